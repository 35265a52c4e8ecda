/* Owns the words about lines that were found again in another place: all moved alike, reversed, in blocks, copied, or
 * in any order. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/lines.h"
#include "diagnose/region.h"

#define SCATTERED       8   /* lines that moved, most of them each by itself, */
#define SCATTERED_LEAST 0.9 /* must explain so much */

/* The common step of nearly all lines that moved, 0 when there is none. */
int64_t ts_common_step(const struct ts_lines *lines)
{
    int64_t step = 0;
    size_t votes = 0, agree = 0;
    for (size_t i = 0; i < lines->found_count; i++) { /* a majority survives this */
        if (lines->from[i] == SIZE_MAX)
            continue;
        if (!votes)
            step = ts_step_of(lines, i);
        votes = ts_step_of(lines, i) == step ? votes + 1 : votes - 1;
    }
    for (size_t i = 0; i < lines->found_count; i++)
        agree += lines->from[i] != SIZE_MAX && ts_step_of(lines, i) == step;
    return agree * 4 >= lines->found_count * 3 ? step : 0;
}

bool ts_is_reversed(const struct ts_lines *lines)
{
    size_t agree = 0;
    for (size_t i = 0; i < lines->found_count; i++)
        agree += lines->from[i] == lines->count - 1 - ts_own_place(lines, i);
    return agree * 10 >= lines->found_count * 9;
}

/* The length of blocks that moved as wholes, and where what each holds belongs; 0 otherwise. */
static size_t block_order(const struct ts_lines *lines, size_t *from)
{
    size_t length = 0;
    if (lines->view || lines->tokens || lines->count < 2)
        return 0;
    for (size_t i = 0, start = 0; i <= lines->found_count; i++) {
        bool ends = i == lines->found_count || (i > start && lines->from[i] != lines->from[i - 1] + 1);
        if (i < lines->found_count && lines->from[i] == SIZE_MAX)
            return 0;
        if (ends) {
            size_t run = i - start;
            while (length) { /* greatest common divisor of the runs */
                size_t rest = run % length;
                run = length;
                length = rest;
            }
            length = run;
            start = i;
        }
    }
    if (length < 2 || length >= lines->found_count || lines->found_count / length > TS_LINE_BLOCKS)
        return 0;
    for (size_t i = 0; i < lines->found_count; i += length) {
        if (lines->from[i] % length)
            return 0;
        from[i / length] = lines->from[i] / length;
    }
    return length;
}

/* The same for a weight of which some rows are known: blocks that moved as wholes. Returns their length. */
size_t ts_sampled_blocks(const struct ts_lines *lines, size_t *from)
{
    for (size_t blocks = 2; (lines->view || lines->tokens) && !lines->columns && blocks <= TS_LINE_BLOCKS; blocks++) {
        size_t length = lines->count / blocks;
        bool fits = lines->count % blocks == 0 && lines->found_count >= 2 * blocks;
        for (size_t b = 0; b < blocks; b++)
            from[b] = SIZE_MAX;
        for (size_t i = 0; i < lines->found_count && fits; i++) {
            size_t own = ts_own_place(lines, i), block = own / length, other = lines->from[i] / length;
            fits = lines->from[i] != SIZE_MAX && lines->from[i] % length == own % length &&
                   (from[block] == SIZE_MAX || from[block] == other);
            from[block] = other;
        }
        for (size_t b = 0; b < blocks && fits; b++)
            fits = from[b] < blocks;
        if (fits)
            return length;
    }
    return 0;
}

static void list_blocks(const size_t *blocks, size_t count, size_t most, char *text, size_t room)
{
    size_t used = 0;
    for (size_t b = 0; b < count && b < most && used + 8 < room; b++)
        used += (size_t)snprintf(text + used, room - used, "%s%zu", b ? ", " : "", blocks[b]);
    if (count > most && used < room)
        snprintf(text + used, room - used, " ...");
}

bool ts_tokens_come_first(const struct ts_case *the_case)
{
    const struct ts_view *view = &ts_case_pair(the_case)->a;
    struct ts_token_axis tokens;
    unsigned axis = 0;
    while (axis + 1 < view->rank && view->shape[axis] == 1)
        axis++;
    /* with as many heads as tokens, sizes do not tell which come first */
    return view->rank && view->shape[axis] == the_case->scene->tokens &&
           (!ts_scene_axis(the_case->scene, the_case->actor->pair, &tokens) ||
            tokens.after * tokens.size == view->count);
}

const char *ts_recipe_remark(const struct ts_case *the_case)
{
    return ts_case_direct(the_case) || ts_tokens_come_first(the_case) ? "" : ", with the token axis first";
}

/* "; to undo: reshape(2, 3, 4)[:, [2, 0, 1]], then reshape back": block b holds what belongs at from[b]. "" when some
 * are lost. */
static const char *undo(struct ts_case *the_case, uint64_t outer, const size_t *from, size_t blocks, uint64_t inner)
{
    size_t back[TS_LINE_BLOCKS];
    char text[320] = "";
    for (size_t b = 0; b < blocks; b++)
        back[b] = SIZE_MAX;
    for (size_t b = 0; b < blocks; b++)
        if (from[b] < blocks)
            back[from[b]] = b;
    for (size_t b = 0; b < blocks; b++)
        if (back[b] == SIZE_MAX)
            return "";
    list_blocks(back, blocks, TS_LINE_BLOCKS, text, sizeof text);
    return ts_case_text(the_case, "; to undo: reshape(%" PRIu64 ", %zu, %" PRIu64 ")[:, [%s]], then reshape back%s",
                        outer, blocks, inner, text, ts_recipe_remark(the_case));
}

/* All rows of the pair, and the numbers of each. */
static uint64_t all_rows(const struct ts_lines *lines, uint64_t *width)
{
    *width = lines->view ? lines->view_columns : lines->the_case->actor->width;
    return ts_case_pair(lines->the_case)->a.count / *width;
}

/* Every line that moved is still where it belongs as well: it was copied, not moved. */
static bool are_copies(const struct ts_lines *lines)
{
    for (size_t i = 0; i < lines->found_count && lines->tokens && !lines->all; i++)
        if (lines->from[i] != SIZE_MAX && ts_step_of(lines, i) != 0 && !ts_is_in_place(lines, lines->from[i]))
            return false;
    if (lines->tokens && !lines->all)
        return true;
    for (size_t i = 0; i < lines->found_count; i++)
        if (lines->from[i] != SIZE_MAX && ts_step_of(lines, i) != 0 &&
            (lines->from[i] >= lines->found_count || lines->from[lines->from[i]] != lines->from[i]))
            return false;
    return !lines->view || lines->all;
}

/* Whole heads, or some channels. */
static const char *copied_heads(const struct ts_lines *lines, const bool *moved)
{
    const struct ts_actor *actor = lines->the_case->actor;
    for (size_t i = 0; i < lines->found_count; i++)
        if (actor->heads < 2 || moved[i] != moved[i / actor->inner * actor->inner])
            return "channels";
    return "heads";
}

/* Offers what the lines of the case predict, or what is left of everything where every line was matched. */
__attribute__((format(printf, 6, 7))) static void offer(const struct ts_lines *lines, const double *prediction,
                                                        const char *id, size_t freedom, const char *check,
                                                        const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (lines->centres)
        ts_propose(
            lines->the_case, id, prediction, freedom + lines->moved,
            ts_case_text(lines->the_case, "the rows of the weight; %s", check),
            "%s, except for a constant added to each in every token: the weights are out of place, the bias is not",
            text);
    else if (!lines->all)
        ts_propose(lines->the_case, id, prediction, freedom, check, "%s", text);
    else /* freedom is held against the elements of the case */
        ts_propose_measured(lines->the_case, id, lines->left_share,
                            freedom * lines->the_case->actor->rows / lines->count, check, "%s (on all %zu %s%s)", text,
                            lines->count, ts_case_direct(lines->the_case) ? "rows" : "tokens",
                            lines->tokens && lines->the_case->scene->batch > 1 ? " of the sequence" : "");
}

static void say_copies(const struct ts_lines *lines, const double *prediction, const char *what)
{
    bool *moved = calloc(lines->found_count, sizeof *moved);
    char text[128];
    size_t first = SIZE_MAX, number = 0;
    bool behind = true;
    int letters;
    if (!moved)
        return;
    for (size_t i = 0; i < lines->found_count; i++) {
        moved[i] = lines->from[i] != SIZE_MAX && ts_step_of(lines, i) != 0;
        first = moved[i] && first == SIZE_MAX ? i : first;
        number += moved[i];
    }
    letters = (int)strlen(what) - (number == 1); /* one of them has no s at its end */
    ts_region_list(lines->the_case, moved, lines->found_count, !lines->columns && !lines->all, text, sizeof text);
    for (size_t i = 0; i < lines->found_count; i++)
        behind = behind && (!moved[i] || ts_step_of(lines, i) == -1);
    if (!lines->columns && behind && !ts_case_direct(lines->the_case))
        offer(lines, prediction, "stale", 2 * lines->runs,
              "whether they are written at all: a position that does not advance, a slot that is written twice",
              number > 1 ? "%.*s %s repeat the one before: %zu is a copy of %zu"
                         : "%.*s %s repeats the one before: %zu is a copy of %zu",
              letters, what, text, ts_own_place(lines, first), lines->from[first]);
    else
        offer(lines, prediction, lines->columns ? copied_heads(lines, moved) : "rows", 2 * lines->runs,
              lines->columns || ts_case_direct(lines->the_case)
                  ? "the piece that is loaded or computed there: a shard or a head of another rank, read twice"
                  : "which token is looked up or read there: its id, its slot, its position",
              number > 1 ? "%.*s %s are copies of others: %zu is a copy of %zu"
                         : "%.*s %s is a copy of another: %zu is a copy of %zu",
              letters, what, text, ts_own_place(lines, first), lines->from[first]);
    free(moved);
}

void ts_lines_say(struct ts_lines *lines, const double *prediction)
{
    struct ts_case *the_case = lines->the_case;
    const char *what = lines->columns             ? ts_case_direct(the_case) ? "columns" : "channels"
                       : ts_case_direct(the_case) ? "rows"
                                                  : "tokens";
    char order[256] = "";
    int64_t step = ts_common_step(lines);
    size_t length, blocks, first, from[TS_LINE_BLOCKS];
    uint64_t width, rows = all_rows(lines, &width);
    if (!step && are_copies(lines)) {
        say_copies(lines, prediction, what);
        return;
    }
    if (step) {
        offer(lines, prediction, "shifted", 1,
              lines->columns
                  ? "an index, a slice or a pointer that is off"
                  : ts_case_check(
                        the_case,
                        "positions: a cache offset, a token prepended or dropped, padding on the other side, a roll",
                        "the order of experts, shards or rows: a roll, or one that was added or left out before them"),
              "%s are shifted by %" PRId64 ": position i holds what belongs at i %c %" PRId64, what, -step,
              step < 0 ? '-' : '+', step < 0 ? -step : step);
        return;
    }
    if (ts_is_reversed(lines)) {
        offer(lines, prediction, "permuted", 1,
              ts_case_text(the_case,
                           "a flip, a negative stride, or the wrong end of an axis; to undo: reshape(%" PRIu64
                           ", %" PRIu64 ").flip(%d), then reshape back%s",
                           rows, width, lines->columns ? 1 : 0, ts_recipe_remark(the_case)),
              "%s are in reverse order", what);
        return;
    }
    if ((length = block_order(lines, from)) > 0 || (length = ts_sampled_blocks(lines, from)) > 0) {
        const char *fix = "";
        blocks = lines->count / length;
        list_blocks(from, blocks, 16, order, sizeof order);
        if (lines->columns || lines->count == rows) /* else some tokens stand for all */
            fix = undo(the_case, lines->columns ? rows : 1, from, blocks, lines->columns ? length : length * width);
        if (blocks == 2)
            offer(lines, prediction, "permuted", 1,
                  ts_case_text(the_case, "the order of the two halves: gate and up, scale and shift, sine and cosine%s",
                               fix),
                  "the two halves of the %s are swapped (%zu each)", what, length);
        else
            offer(lines, prediction, "permuted", blocks,
                  ts_case_text(the_case, "the order of %s%s",
                               blocks == 3 || blocks == 6
                                   ? "the pieces: q, k and v, or shift, scale and gate of a modulation"
                                   : "heads, experts or shards",
                               fix),
                  "blocks of %zu %s are in the order %s", length, what, order);
        return;
    }
    /* tokens that are much alike match each other in any order: an order without any order must explain more */
    if (lines->moved > SCATTERED && 2 * lines->runs > lines->moved && !lines->all &&
        ts_explained(the_case, prediction) < SCATTERED_LEAST)
        return;
    for (first = 0; first < lines->found_count && (lines->from[first] == SIZE_MAX || !ts_step_of(lines, first));
         first++) {
    }
    offer(lines, prediction, "permuted", 2 * lines->runs, "the order in which they are gathered, split or written",
          "%zu of %zu %s are out of place, in %zu runs; the first: %zu holds what belongs at %zu%s", lines->moved,
          lines->found_count, what, lines->runs, ts_own_place(lines, first), lines->from[first],
          lines->emptied ? ts_case_text(the_case, "; %zu are zero", lines->emptied) : "");
}

void ts_blocks_say(struct ts_case *the_case, const size_t *from, size_t blocks, const double *prediction)
{
    const size_t length = the_case->total / blocks;
    char order[256] = "";
    list_blocks(from, blocks, TS_LINE_BLOCKS, order, sizeof order);
    ts_propose(the_case, "permuted", prediction, blocks == 2 ? 1 : blocks,
               ts_case_text(the_case, "the order of the pieces: gate and up, scale and shift, q, k and v%s",
                            undo(the_case, 1, from, blocks, length)),
               blocks == 2 ? "the two halves are swapped (%zu elements each)"
                           : "blocks of %zu elements are in the order %s",
               length, order);
}
