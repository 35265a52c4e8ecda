/* Owns tensors of which a file shows only a part, prints and truncated dumps: what of a whole one stands beside them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "pair/pairing.h"
#include "read/values.h"

/* Elements a sample has, in runs of 16. */
#define CHOOSE_RUNS 32

/* Axis i of the view, in the order of its axes, is axis match[i] of a tensor known by its corners: sizes tell, and of
 * equal sizes it does not matter which is which, since equal sizes are cut alike. Axes of one element match none. */
bool ts_sample_fits(const struct ts_view *view, const struct ts_tensor *corners, unsigned match[TS_MAX_RANK])
{
    bool used[TS_MAX_RANK] = {false};
    for (unsigned i = 0; i < view->rank; i++) {
        match[i] = TS_MAX_RANK;
        for (unsigned k = 0; k < corners->rank && match[i] == TS_MAX_RANK && view->shape[i] != 1; k++)
            if (!used[k] && corners->whole_shape[k] == view->shape[i])
                match[i] = k;
        if (match[i] < TS_MAX_RANK)
            used[match[i]] = true;
        else if (view->shape[i] != 1)
            return false;
    }
    for (unsigned k = 0; k < corners->rank; k++)
        if (!used[k] && corners->whole_shape[k] != 1)
            return false;
    return true;
}

/* Takes of a whole tensor what a print shows of the other. Where axes were split or merged between them the whole one
 * is read in the other's shape first. before: what was done to it already. False: it has another size, and is left
 * alone. */
bool ts_sample_corners(struct ts_view *view, const struct ts_tensor *corners, char side, const char *before,
                       struct ts_arena *arena, const char **recipe)
{
    unsigned match[TS_MAX_RANK];
    uint64_t product;
    struct ts_view cut = *view;
    struct ts_buffer words;
    const char *comma = *before ? ", " : "";
    ts_buffer_init(&words, 8192);
    ts_buffer_printf(&words, "%c: %s", side, before);
    if (!ts_sample_fits(&cut, corners, match)) {
        if (!ts_shape_product(corners->whole_shape, corners->rank, &product) || product != view->count ||
            !ts_view_reshape(view, corners->whole_shape, corners->rank, arena, &cut) ||
            !ts_sample_fits(&cut, corners, match)) {
            ts_buffer_release(&words);
            return false;
        }
        ts_buffer_printf(&words, "%sread as [", comma);
        for (unsigned i = 0; i < cut.rank; i++)
            ts_buffer_printf(&words, "%s%" PRIu64, i ? "," : "", cut.shape[i]);
        ts_buffer_string(&words, "]");
        comma = ", ";
    }
    for (unsigned i = 0; i < cut.rank; i++) {
        const unsigned k = match[i];
        uint64_t starts[2], counts[2];
        if (k == TS_MAX_RANK || corners->shape[k] == corners->whole_shape[k])
            continue;
        counts[0] = corners->whole_head[k];
        counts[1] = corners->shape[k] - counts[0];
        starts[0] = 0;
        starts[1] = cut.shape[i] - counts[1];
        ts_buffer_printf(&words, "%scorners %" PRIu64 "+%" PRIu64 " of %" PRIu64 " on axis %u", comma, counts[0],
                         counts[1], cut.shape[i], i);
        comma = ", ";
        if (!ts_layout_gather(&cut, i, counts[0] ? starts : starts + 1, counts[0] ? counts : counts + 1, 1,
                              counts[0] && counts[1] ? 2 : 1, arena, &cut)) {
            ts_buffer_release(&words);
            return false;
        }
    }
    *recipe = words.failed ? NULL : ts_arena_copy(arena, words.data, words.size);
    ts_buffer_release(&words);
    if (*recipe)
        *view = cut;
    return *recipe != NULL;
}

/* The sizes in "(1, 3, 2048)" or "3x2048", without ones, are those of the view in its order. */
static bool has_sizes(const struct ts_view *view, const char *declared)
{
    unsigned axis = 0;
    while (*(declared += strcspn(declared, "0123456789"))) {
        char *end;
        const unsigned long long size = strtoull(declared, &end, 10);
        declared = end;
        while (axis < view->rank && view->shape[axis] == 1)
            axis++;
        if (size == 1)
            continue;
        if (axis == view->rank || view->shape[axis++] != size)
            return false;
    }
    while (axis < view->rank && view->shape[axis] == 1)
        axis++;
    return axis == view->rank;
}

/* Takes of a whole tensor the numbers that a dump of the other holds: its first ones and its last ones in the order of
 * the file. Where the dump declares another shape, only if the values agree: the order may be another one. */
enum ts_status ts_sample_ends(struct ts_view *view, const struct ts_tensor *dump, char side, struct ts_arena *arena,
                              const char **recipe, struct ts_error *error)
{
    const char *sample = ts_tensor_attribute(dump, "sample"), *declared = ts_tensor_attribute(dump, "declared shape");
    uint64_t head, tail = 0, total, starts[2] = {0}, counts[2];
    struct ts_agreement agreement;
    struct ts_view row, ends, own;
    if (!sample || (sscanf(sample, "first %" SCNu64 " and last %" SCNu64 " of %" SCNu64, &head, &tail, &total) != 3 &&
                    sscanf(sample, "first %" SCNu64 " of %" SCNu64, &head, &total) != 2))
        return TS_OK;
    if (total != view->count || dump->rank != 1 || head > total || tail > total - head || head + tail != dump->count ||
        !head || !ts_view_reshape(view, &total, 1, arena, &row))
        return TS_OK;
    counts[0] = head;
    counts[1] = tail;
    starts[1] = total - tail;
    if (!ts_layout_gather(&row, 0, starts, counts, 1, tail ? 2 : 1, arena, &ends) || !ts_view_of(dump, arena, &own))
        return ts_fail_memory(error);
    if (!declared || !has_sizes(view, declared)) {
        TS_TRY(ts_agree(&own, &ends, CHOOSE_RUNS, &agreement, error));
        if (!(agreement.error < TS_SAME_TENSOR) || agreement.correlation < 0.8)
            return TS_OK;
    }
    *recipe = tail ? ts_arena_printf(
                         arena, "%c: read as [%" PRIu64 "], corners %" PRIu64 "+%" PRIu64 " of %" PRIu64 " on axis 0",
                         side, total, head, tail, total)
                   : ts_arena_printf(arena, "%c: read as [%" PRIu64 "], take 0..%" PRIu64 " of %" PRIu64 " on axis 0",
                                     side, total, head, total);
    if (!*recipe)
        return ts_fail_memory(error);
    *view = ends;
    return TS_OK;
}
