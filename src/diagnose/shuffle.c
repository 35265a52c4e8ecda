#include "diagnose/shuffle.h"

#include <inttypes.h>
#include <stdio.h>

#define MOST_DIVISORS 256

static size_t divisors_of(uint64_t number, uint64_t *divisors)
{
    size_t count = 0;
    for (uint64_t d = 1; d * d <= number && count + 2 <= MOST_DIVISORS; d++)
        if (number % d == 0) {
            divisors[count++] = d;
            if (d != number / d)
                divisors[count++] = number / d;
        }
    return count;
}

struct walk {
    void (*each)(const struct ts_shuffle *shuffle, void *context);
    void *context;
    size_t left;
};

static void offer(struct walk *walk, uint64_t outer, uint64_t first, uint64_t second, uint64_t inner, int where)
{
    struct ts_shuffle shuffle = {outer, first, second, inner, where};
    if (!walk->left || first < 2 || second < 2)
        return;
    walk->left--;
    walk->each(&shuffle, walk->context);
}

/* Every [outer, first, second, inner] of `number`, put between `before` and `after`. */
static void factor(struct walk *walk, uint64_t number, uint64_t before, uint64_t after, int where)
{
    uint64_t outers[MOST_DIVISORS], firsts[MOST_DIVISORS], seconds[MOST_DIVISORS];
    size_t outer_count = divisors_of(number, outers);
    for (size_t i = 0; i < outer_count; i++) {
        size_t first_count = divisors_of(number / outers[i], firsts);
        for (size_t j = 0; j < first_count; j++) {
            uint64_t rest = number / outers[i] / firsts[j];
            size_t second_count = firsts[j] < 2 ? 0 : divisors_of(rest, seconds);
            for (size_t k = 0; k < second_count; k++)
                offer(walk, before * outers[i], firsts[j], seconds[k], rest / seconds[k] * after, where);
        }
    }
}

void ts_shuffle_each(uint64_t rows, uint64_t columns, bool across, const uint64_t *shape, unsigned rank, size_t most,
                     void (*each)(const struct ts_shuffle *shuffle, void *context), void *context)
{
    struct walk walk = {each, context, most};
    uint64_t divisors[MOST_DIVISORS];
    size_t count;
    if (across && shape)
        for (unsigned i = 0; i < rank; i++)
            for (unsigned j = i + 1; j < rank; j++)
                for (unsigned l = j + 1; l <= rank; l++) {
                    uint64_t sizes[4] = {1, 1, 1, 1};
                    for (unsigned axis = 0; axis < rank; axis++)
                        sizes[axis < i ? 0 : axis < j ? 1 : axis < l ? 2 : 3] *= shape[axis];
                    offer(&walk, sizes[0], sizes[1], sizes[2], sizes[3], TS_SHUFFLE_AXES);
                    offer(&walk, sizes[0], sizes[2], sizes[1], sizes[3], TS_SHUFFLE_AXES);
                }
    /* rows against any part of the columns: heads that are not an axis of their own */
    count = across ? divisors_of(columns, divisors) : 0;
    for (size_t i = 0; i < count; i++) {
        offer(&walk, 1, rows, divisors[i], columns / divisors[i], TS_SHUFFLE_AXES);
        offer(&walk, 1, divisors[i], rows, columns / divisors[i], TS_SHUFFLE_AXES);
    }
    factor(&walk, columns, rows, 1, TS_SHUFFLE_COLUMNS);
    if (across)
        factor(&walk, rows, 1, columns, TS_SHUFFLE_ROWS);
}

void ts_shuffle_text(const struct ts_shuffle *shuffle, uint64_t rows, uint64_t columns, uint64_t heads, char *text,
                     size_t room)
{
    /* a swap of axes that stays inside the rows, or moves whole rows, is said as such */
    int where = shuffle->where != TS_SHUFFLE_AXES ? shuffle->where
                : shuffle->outer % rows == 0      ? (int)TS_SHUFFLE_COLUMNS
                : shuffle->inner % columns == 0   ? (int)TS_SHUFFLE_ROWS
                                                  : (int)TS_SHUFFLE_AXES;
    const char *what = where == TS_SHUFFLE_ROWS ? "rows" : "channels";
    uint64_t unit = where == TS_SHUFFLE_ROWS ? columns : 1;
    uint64_t outer = where == TS_SHUFFLE_COLUMNS ? shuffle->outer / rows : shuffle->outer;
    uint64_t inner = shuffle->inner / unit, first = shuffle->first, second = shuffle->second;
    char group[48] = "";
    if (outer > 1)
        snprintf(group, sizeof group, " in each group of %" PRIu64, first * second);
    if (where == TS_SHUFFLE_AXES && shuffle->outer == 1 && inner == 1 && first == second)
        snprintf(text, room, "it is transposed");
    else if (where == TS_SHUFFLE_AXES && shuffle->outer == 1 && inner == 1)
        snprintf(text, room, "it is transposed, [%" PRIu64 ",%" PRIu64 "] read as [%" PRIu64 ",%" PRIu64 "]", second,
                 first, first, second);
    else if (where == TS_SHUFFLE_AXES && inner == 1)
        snprintf(text, room,
                 "each of %" PRIu64 " matrices is transposed, [%" PRIu64 ",%" PRIu64 "] read as [%" PRIu64 ",%" PRIu64
                 "]",
                 shuffle->outer, second, first, first, second);
    else if (where == TS_SHUFFLE_AXES)
        snprintf(text, room,
                 "axes are swapped, stored as [%s%" PRIu64 ",%" PRIu64 ",%" PRIu64 "], read as [%s%" PRIu64 ",%" PRIu64
                 ",%" PRIu64 "]",
                 shuffle->outer > 1 ? "...," : "", second, first, inner, shuffle->outer > 1 ? "...," : "", first,
                 second, inner);
    else if (inner == 1 && second == 2)
        snprintf(text, room, "%s%s are in halves (0,2,4,... 1,3,5,...) instead of interleaved", what, group);
    else if (inner == 1 && first == 2)
        snprintf(text, room, "%s%s are interleaved (0,%" PRIu64 ",1,...) instead of in halves", what, group, second);
    else if (outer == 1 && (first == 3 || second == 3) && inner > 1)
        snprintf(text, room, "%s: q, k and v of each of %" PRIu64 " heads are %s", what, first == 3 ? second : first,
                 first == 3 ? "together instead of all q, all k, all v" : "apart instead of together");
    else if (first == 2 && second == 2 && outer == 1)
        snprintf(text, room, "the second and the third quarter of the %s have changed places", what);
    else if (first == 2 && second == 2)
        snprintf(text, room, "the second and the third quarter of each group of %" PRIu64 " %s have changed places",
                 4 * inner, what);
    else if (first == second && (outer > 1 || inner > 1))
        snprintf(text, room, "%s are transposed as a grid of [%" PRIu64 ",%" PRIu64 "] blocks of %" PRIu64 "%s", what,
                 first, second, inner, outer > 1 ? ", again and again" : "");
    else if (outer == 1 && first * second == heads && inner > 1)
        snprintf(text, room,
                 "heads are in another order: %" PRIu64 " groups of %" PRIu64 " instead of %" PRIu64
                 " groups of %" PRIu64,
                 second, first, first, second);
    else if (first == second)
        snprintf(text, room, "%s are transposed as a grid of [%" PRIu64 ",%" PRIu64 "]%s", what, first, second,
                 first == heads ? " (heads and head_dim swapped)" : "");
    else if (outer == 1 && inner == 1)
        snprintf(text, room, "%s are laid out as [%" PRIu64 ",%" PRIu64 "] instead of [%" PRIu64 ",%" PRIu64 "]%s",
                 what, second, first, first, second,
                 heads > 1 && (first == heads || second == heads) ? " (heads and head_dim swapped)" : "");
    else
        snprintf(text, room,
                 "%s are laid out as [%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "] instead of [%" PRIu64 ",%" PRIu64
                 ",%" PRIu64 ",%" PRIu64 "]",
                 what, outer, second, first, inner, outer, first, second, inner);
}

void ts_shuffle_recipe(const struct ts_shuffle *shuffle, char *text, size_t room)
{
    const unsigned axis = shuffle->outer > 1; /* axes of one number are left out */
    char outer[24] = "", inner[24] = "";
    if (shuffle->outer > 1)
        snprintf(outer, sizeof outer, "%" PRIu64 ", ", shuffle->outer);
    if (shuffle->inner > 1)
        snprintf(inner, sizeof inner, ", %" PRIu64, shuffle->inner);
    snprintf(text, room, "reshape(%s%" PRIu64 ", %" PRIu64 "%s).transpose(%u, %u), then reshape back", outer,
             shuffle->second, shuffle->first, inner, axis, axis + 1);
}
