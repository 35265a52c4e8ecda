/* Owns the search for pieces of a wider tensor: queries, keys and values out of a fused projection, gate and up. In the
 * reference each block of channels is a block of the wider one; in the candidate it is another. */
#include <stdio.h>
#include <stdlib.h>

#include "diagnose/wiring.h"

#define MOST_BLOCKS  256
#define SIGNS        8    /* numbers of a block that are looked at first */
#define CLOSE        1e-2 /* of a block's energy may be left */
#define LOOKED_AT    12
#define MOST_STRIDE  8
#define LOOK_COLUMNS 16

/* Error of a block of one tensor against one of another over all rows, as a share of the former's energy. few: only
 * some numbers. */
static double difference(const float *block, size_t width, const float *whole, size_t whole_width, size_t rows,
                         size_t length, bool few)
{
    double left = 0, size = 0;
    size_t row_step = few && rows > SIGNS ? rows / SIGNS : 1, step = few && length > SIGNS ? length / SIGNS : 1;
    for (size_t row = 0; row < rows; row += row_step)
        for (size_t i = 0; i < length; i += step) {
            double a = (double)block[row * width + i], b = (double)whole[row * whole_width + i];
            left += (a - b) * (a - b);
            size += a * a;
        }
    return size > 0 ? left / size : (double)INFINITY;
}

/* The block of the wider tensor that equals this one, SIZE_MAX when none does. */
static size_t find_block(const float *block, size_t width, const float *whole, size_t whole_width, size_t rows,
                         size_t length)
{
    double best = CLOSE;
    size_t found = SIZE_MAX;
    for (size_t at = 0; (at + 1) * length <= whole_width; at++) {
        double left;
        if (difference(block, width, whole + at * length, whole_width, rows, length, true) > 2 * CLOSE)
            continue;
        left = difference(block, width, whole + at * length, whole_width, rows, length, false);
        if (left < best) {
            best = left;
            found = at;
        }
    }
    return found;
}

static void list_blocks(const size_t *list, size_t count, char *text, size_t room)
{
    size_t used = 0;
    for (size_t i = 0; i < count && i < 8 && used + 1 < room; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%zu", i ? ", " : "", list[i]);
    if (count > 8 && used + 1 < room)
        snprintf(text + used, room - used, " ...");
}

/* Blocks of `length` channels, each found in `whole` on both sides. */
static bool try_length(struct ts_case *the_case, const struct ts_actor *whole, size_t length)
{
    const struct ts_actor *actor = the_case->actor;
    size_t blocks = actor->width / length, right[MOST_BLOCKS], wrong[MOST_BLOCKS], moved = 0;
    size_t *order;
    double *prediction;
    char reference[96], candidate[96];
    for (size_t b = 0; b < blocks; b++) {
        right[b] = find_block(actor->a + b * length, actor->width, whole->a, whole->width, actor->rows, length);
        if (right[b] == SIZE_MAX)
            return false;
    }
    for (size_t b = 0; b < blocks; b++) {
        wrong[b] = find_block(actor->b + b * length, actor->width, whole->b, whole->width, actor->rows, length);
        if (wrong[b] == SIZE_MAX)
            return false;
        moved += wrong[b] != right[b];
    }
    prediction = moved ? ts_case_scratch(the_case) : NULL;
    if (!prediction)
        return false;
    order = malloc(actor->width * sizeof *order);
    for (size_t i = 0; i < the_case->total; i++)
        prediction[i] =
            (double)whole->b[i / actor->width * whole->width + wrong[i % actor->width / length] * length + i % length];
    for (size_t i = 0; order && i < actor->width; i++)
        order[i] = wrong[i / length] * length + i % length;
    if (order)
        ts_formula_slices(the_case, whole->pair, order);
    free(order);
    list_blocks(right, blocks, reference, sizeof reference);
    list_blocks(wrong, blocks, candidate, sizeof candidate);
    return ts_propose(
               the_case, "permuted", prediction, 1,
               ts_case_text(the_case,
                            "how %s is split: q, k and v of each head together, or all q, all k, all v; gate and up",
                            ts_case_name(the_case, whole)),
               "the candidate cuts this out of %s at the wrong places: pieces of %zu channels %s instead of %s",
               ts_case_name(the_case, whole), length, candidate, reference) > 0;
}

/* Channel i of this tensor is channel first + i * stride of the wider one. */
static bool is_strided(const float *values, size_t width, const float *whole, size_t whole_width, size_t rows,
                       size_t first, size_t stride)
{
    size_t column_step = width > LOOK_COLUMNS ? width / LOOK_COLUMNS : 1;
    for (size_t pass = 0; pass < 2; pass++) { /* a few of them first */
        double left = 0, size = 0;
        for (size_t row = 0; row < rows; row++)
            for (size_t i = 0; i < width; i += pass ? 1 : column_step) {
                double a = (double)values[row * width + i], b = (double)whole[row * whole_width + first + i * stride];
                left += (a - b) * (a - b);
                size += a * a;
            }
        if (!(size > 0) || left > (pass ? 1 : 2) * CLOSE * size)
            return false;
    }
    return true;
}

/* In the reference neighbours of the wider tensor, in the candidate every n-th of its channels; or the reverse. */
static bool try_strides(struct ts_case *the_case, const struct ts_actor *whole)
{
    const struct ts_actor *actor = the_case->actor;
    size_t width = actor->width, stride = whole->width / width, block = SIZE_MAX, first = SIZE_MAX, *order;
    bool spread; /* the reference's are */
    double *prediction = ts_case_scratch(the_case);
    const char *name = ts_case_name(the_case, whole), *neighbours, *others;
    if (whole->width % width || stride < 2 || stride > MOST_STRIDE || !prediction)
        return false;
    block = find_block(actor->a, width, whole->a, whole->width, actor->rows, width);
    spread = block == SIZE_MAX;
    if (spread)
        block = find_block(actor->b, width, whole->b, whole->width, actor->rows, width);
    for (size_t at = 0; at < stride && block != SIZE_MAX && first == SIZE_MAX; at++)
        if (is_strided(spread ? actor->a : actor->b, width, spread ? whole->a : whole->b, whole->width, actor->rows, at,
                       stride))
            first = at;
    if (first == SIZE_MAX || !(order = malloc(width * sizeof *order)))
        return false;
    for (size_t i = 0; i < width; i++)
        order[i] = spread ? block * width + i : first + i * stride;
    for (size_t i = 0; i < the_case->total; i++)
        prediction[i] = (double)whole->b[i / width * whole->width + order[i % width]];
    ts_formula_slices(the_case, whole->pair, order);
    free(order);
    neighbours = ts_case_text(the_case, "channels %zu to %zu", block * width, block * width + width - 1);
    others = ts_case_text(the_case, "every %zu%s channel from %zu on", stride,
                          stride == 2   ? "nd"
                          : stride == 3 ? "rd"
                                        : "th",
                          first);
    return ts_propose(the_case, "permuted", prediction, 1,
                      ts_case_text(the_case,
                                   "how %s is split: whether its parts stand one behind the other or take turns", name),
                      "the candidate takes %s of %s, the reference %s", spread ? neighbours : others, name,
                      spread ? others : neighbours) > 0;
}

void ts_wiring_slices(struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor;
    const struct ts_operation *operation = &the_case->operation;
    const bool is_part = operation->kind == TS_OPERATION_COPY && operation->stride;
    if ((operation->kind != TS_OPERATION_NONE && !is_part) || actor->width < 8)
        return;
    for (size_t back = 1, looked = 0; back < TS_SCENE_WINDOW && looked < LOOKED_AT; back++) {
        const struct ts_actor *whole = ts_earlier(the_case, back);
        if (!whole || whole->rows != actor->rows || whole->width <= actor->width)
            continue;
        looked++;
        /* whole pieces first, then heads, then halves of all: the larger the pieces, the plainer what is said */
        if (try_length(the_case, whole, actor->width))
            return;
        if (actor->heads > 1 && actor->inner >= 4 && actor->heads <= MOST_BLOCKS &&
            try_length(the_case, whole, actor->inner))
            return;
        for (size_t length = actor->width / 2; length >= 4 && actor->width / length <= MOST_BLOCKS; length /= 2)
            if (actor->width % length == 0 && try_length(the_case, whole, length))
                return;
        if (try_strides(the_case, whole))
            return;
    }
}
