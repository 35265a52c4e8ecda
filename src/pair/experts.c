/* Owns stacks of experts: one tensor of all experts of a layer against one tensor for each. Experts that are not there
 * are left out of the stack, and told. */
#include <inttypes.h>
#include <string.h>

#include "base/buffer.h"
#include "pair/pairing.h"

#define SAMPLE_RUNS 32
/* Numbers of experts that a sentence lists. */
#define MOST_LISTED 8

bool ts_layout_stacked(const struct ts_side *side, const size_t *indices, size_t count, struct ts_arena *arena,
                       struct ts_view *view)
{
    struct ts_view *parts;
    if (count == 1)
        return ts_view_of(side->bundle->tensors[indices[0]], arena, view);
    parts = ts_arena_array(arena, count, sizeof *parts);
    if (!parts)
        return false;
    for (size_t i = 0; i < count; i++) {
        const struct ts_tensor *tensor = side->bundle->tensors[indices[i]];
        uint64_t shape[TS_MAX_RANK] = {1};
        struct ts_view one;
        if (tensor->rank + 1 > TS_MAX_RANK || !ts_view_of(tensor, arena, &one))
            return false;
        if (tensor->rank)
            memcpy(shape + 1, tensor->shape, tensor->rank * sizeof *shape);
        if (!ts_view_reshape(&one, shape, tensor->rank + 1, arena, &parts[i]))
            return false;
    }
    return ts_view_join(TS_JOIN_CONCAT, 0, parts, count, arena, view);
}

/* Of a stack the experts that the other side has too, by their numbers. *without names those that it lacks. */
static enum ts_status take_present(const struct ts_side *side, const size_t *experts, size_t count,
                                   const struct ts_view *stack, struct ts_arena *arena, struct ts_view *out,
                                   const char **without, struct ts_error *error)
{
    uint64_t *starts = ts_arena_array(arena, count, sizeof *starts), next = 0, lacking = 0;
    uint64_t *counts = ts_arena_array(arena, count, sizeof *counts);
    struct ts_buffer list;
    bool fits;
    if (!starts || !counts)
        return ts_fail_memory(error);
    ts_buffer_init(&list, 4096);
    for (size_t i = 0; i <= count; i++) {
        const uint64_t number = i < count ? (uint64_t)side->read.list[experts[i]].expert : stack->shape[0];
        for (; next < number; next++)
            if (lacking++ < MOST_LISTED)
                ts_buffer_printf(&list, " %" PRIu64, next);
        if (i == count)
            break;
        starts[i] = number;
        counts[i] = 1;
        next = number + 1;
    }
    fits = ts_layout_gather(stack, 0, starts, counts, 1, count, arena, out);
    *without = list.failed ? NULL
                           : ts_arena_printf(arena, "expert%s%s%s of %" PRIu64, lacking == 1 ? "" : "s", list.data,
                                             lacking > MOST_LISTED ? " ..." : "", stack->shape[0]);
    ts_buffer_release(&list);
    return fits && *without ? TS_OK : ts_fail_memory(error);
}

enum ts_status ts_layout_stack(struct ts_pairer *pairer, size_t stack, const size_t *experts, size_t count,
                               bool experts_are_b, const char *how, bool *done, struct ts_error *error)
{
    struct ts_arena *arena = &pairer->out->arena;
    const struct ts_side *stack_side = experts_are_b ? &pairer->a : &pairer->b;
    struct ts_side *expert_side = experts_are_b ? &pairer->b : &pairer->a;
    const struct ts_tensor *whole = stack_side->bundle->tensors[stack];
    const char letter = experts_are_b ? 'B' : 'A', *recipe, *name = whole->name, *common, *without = NULL;
    struct ts_view joined, single;
    const int64_t last = expert_side->read.list[experts[count - 1]].expert;
    bool below;
    /* one that is read as [1, ...] is a stack as well */
    *done =
        whole->rank > 0 && whole->shape[0] >= count && ts_layout_stacked(expert_side, experts, count, arena, &joined);
    *done = *done && joined.count / count * whole->shape[0] == whole->count &&
            (whole->shape[0] == count ||
             (last >= 0 && (uint64_t)last < whole->shape[0] && joined.rank == whole->rank - (count == 1)));
    /* all of them one below the other, as DBRX has them */
    below = !*done && count > 1 && last == (int64_t)count - 1 && whole->rank > 0 && whole->rank < TS_MAX_RANK &&
            whole->shape[0] % count == 0 && ts_layout_stacked(expert_side, experts, count, arena, &joined) &&
            joined.count == whole->count && joined.rank == whole->rank + 1;
    *done = *done || below;
    if (!*done)
        return TS_OK;
    recipe = ts_arena_printf(arena, "%c: %zu experts stacked", letter, count);
    common = ts_layout_common_name(expert_side, experts, count, arena);
    if (!recipe || !common || !ts_view_of(whole, arena, &single))
        return ts_fail_memory(error);
    if (below) {
        uint64_t shape[TS_MAX_RANK] = {count, whole->shape[0] / count};
        memcpy(shape + 2, whole->shape + 1, (whole->rank - 1) * sizeof *shape);
        if (!ts_view_reshape(&single, shape, whole->rank + 1, arena, &single))
            return ts_fail_memory(error);
    } else if (whole->shape[0] > count) {
        struct ts_view present;
        struct ts_agreement agreement;
        TS_TRY(take_present(expert_side, experts, count, &single, arena, &present, &without, error));
        if (count == 1 && !ts_view_reshape(&present, joined.shape, joined.rank, arena, &present))
            return ts_fail_memory(error);
        single = present;
        TS_TRY(ts_agree(&single, &joined, SAMPLE_RUNS, &agreement, error));
        *done = 2 * count > whole->shape[0] || agreement.error < TS_SAME_TENSOR;
        if (!*done)
            return TS_OK;
        recipe = count == 1 ? ts_arena_printf(arena, "%c: expert %" PRId64 " of %" PRIu64, experts_are_b ? 'A' : 'B',
                                              last, whole->shape[0])
                            : ts_arena_printf(arena, "%c: %zu experts stacked; %c: without %s", letter, count,
                                              experts_are_b ? 'A' : 'B', without);
        if (!recipe)
            return ts_fail_memory(error);
    }
    TS_TRY(ts_layout_views(pairer, experts_are_b ? stack : experts[0], experts_are_b ? experts[0] : stack,
                           experts_are_b ? &single : &joined, experts_are_b ? &joined : &single, recipe,
                           experts_are_b ? name : common, experts_are_b ? common : name, how, false, error));
    for (size_t i = 0; i < count; i++)
        expert_side->taken[experts[i]] = true;
    if (without && !pairer->out->lacking_experts++) {
        pairer->first_lacking = ts_arena_printf(arena, "%c lacks %s in %s", letter, without, common);
        if (!pairer->first_lacking)
            return ts_fail_memory(error);
    }
    return TS_OK;
}

enum ts_status ts_experts_explain(struct ts_pairer *pairer, struct ts_error *error)
{
    const size_t others = pairer->out->lacking_experts ? pairer->out->lacking_experts - 1 : 0;
    if (!pairer->out->lacking_experts)
        return TS_OK;
    if (!others)
        return ts_pairer_note(pairer, error, "%s: the others were compared", pairer->first_lacking);
    return ts_pairer_note(pairer, error, "%s, and experts in %zu other tensor%s: the others were compared",
                          pairer->first_lacking, others, others == 1 ? "" : "s");
}
