/* Owns one order of fused weights that no exchange of axes gives: q, k and v group by group, each key and value head
 * behind the query heads that share it, against all of q, all of k, all of v. */
#include <inttypes.h>
#include <string.h>

#include "pair/align_search.h"

#define MAX_GROUPS    64
#define MAX_PER_GROUP 16 /* query heads that share a key head */
#define MIN_WIDTH     4
#define COST_GROUPS   25u

/* Side `side`, along `axis`, is made of `groups` groups of (queries + 2) heads: joins its slices in the other order. */
static void add_groups(struct ts_align_search *search, const struct ts_align_layouts *given, unsigned side,
                       unsigned axis, uint64_t groups, uint64_t queries, uint64_t width)
{
    const struct ts_view *view = &given->view[side];
    struct ts_view *parts = ts_arena_array(&search->scratch, (size_t)(3 * groups), sizeof *parts), joined;
    const uint64_t begin[3] = {0, queries * width, (queries + 1) * width}, size[3] = {queries * width, width, width};
    struct ts_align_candidate *candidate;
    const char *words;
    size_t count = 0;
    for (unsigned part = 0; parts && part < 3; part++)
        for (uint64_t group = 0; group < groups; group++)
            if (!ts_view_slice(view, axis, group * (queries + 2) * width + begin[part], size[part], 1, &search->scratch,
                               &parts[count++]))
                return;
    words =
        ts_arena_printf(&search->scratch, "ungroup axis %u, %" PRIu64 " groups of %" PRIu64 "+1+1 heads of %" PRIu64,
                        axis, groups, queries, width);
    if (!parts || !words || !ts_view_join(TS_JOIN_CONCAT, axis, parts, count, &search->scratch, &joined) ||
        !(candidate = ts_align_add(search)))
        return;
    *candidate = (struct ts_align_candidate){.cost = given->cost + COST_GROUPS};
    candidate->view[side] = joined;
    candidate->view[1 - side] = given->view[1 - side];
    candidate->words[side] = ts_align_words(search, given->words[side], words);
    candidate->words[1 - side] = given->words[1 - side];
}

void ts_align_add_groups(struct ts_align_search *search, const struct ts_align_layouts *given)
{
    if (!ts_align_equal_shapes(&given->view[0], &given->view[1]))
        return;
    for (unsigned axis = 0; axis < given->view[0].rank; axis++)
        for (uint64_t queries = 2; queries <= MAX_PER_GROUP; queries++)
            for (uint64_t groups = 2; groups <= MAX_GROUPS; groups++) {
                uint64_t heads = (queries + 2) * groups, size = given->view[0].shape[axis];
                if (size % heads != 0 || size / heads < MIN_WIDTH)
                    continue;
                for (unsigned side = 0; side < 2; side++)
                    add_groups(search, given, side, axis, groups, queries, size / heads);
            }
}
