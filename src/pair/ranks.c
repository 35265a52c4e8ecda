/* Owns what is to be known about the ranks of parallel runs: which of them each side has, tensors that are in shards on
 * both sides but not in the same ones, and which ranks are missing. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "pair/pairing.h"
#include "read/parts.h"

/* Higher numbers are no ranks. */
#define MAX_RANK 65536
/* Elements looked at to tell whether a rank holds the same on both sides. */
#define CHOOSE_RUNS 32
/* So many pieces of one rank tell that a side is that rank. */
#define ALONE_PIECES 3
/* A rank's part of a sum is off by more than this: of two ranks by 0.7, of more by more. */
#define PART_OF_SUM 0.5

enum ts_status ts_ranks_read(struct ts_pairer *pairer, struct ts_side *side, struct ts_error *error)
{
    if (side->has_rank)
        return TS_OK;
    for (size_t i = 0; i < side->count; i++)
        if (side->read.list[i].rank >= (int64_t)side->rank_end && side->read.list[i].rank < MAX_RANK)
            side->rank_end = (uint64_t)side->read.list[i].rank + 1;
    side->has_rank = ts_arena_array(&pairer->scratch, (size_t)side->rank_end, sizeof *side->has_rank);
    if (!side->has_rank)
        return ts_fail_memory(error);
    for (size_t i = 0; i < side->count; i++)
        if (side->read.list[i].rank >= 0 && side->read.list[i].rank < MAX_RANK)
            side->has_rank[side->read.list[i].rank] = true;
    for (uint64_t i = 0; i < side->rank_end; i++)
        side->rank_count += side->has_rank[i];
    return TS_OK;
}

/* Tensors of this side that the other has whole, or has as they are. *pieces: one is smaller than all of its kind
 * there.
 */
static bool look_for_pieces(const struct ts_side *side, const struct ts_side *other, bool *pieces)
{
    /* a rank's share of several is smaller than the first of them */
    static const char *const fused[][2] = {{"attn_qkv.weight", "attn_q.weight"},
                                           {"attn_qkv", "attn_q"},
                                           {"ffn_gate_up.weight", "ffn_gate.weight"},
                                           {"ffn_gate_up", "ffn_gate"}};
    struct ts_table kinds;
    uint64_t *least = calloc(other->count + 1, sizeof *least);
    const bool done = least && ts_table_init(&kinds, other->count);
    *pieces = false;
    for (size_t i = 0; i < other->count && done; i++) {
        const uint64_t count = other->bundle->tensors[i]->count;
        size_t at = i;
        if (ts_table_put(&kinds, other->read.list[i].kind, i, &at) || count < least[at])
            least[at] = count;
    }
    for (size_t i = 0; i < side->count && done && !*pieces; i++) {
        size_t at = ts_table_get(&kinds, side->read.list[i].kind);
        for (size_t k = 0; at == SIZE_MAX && k < sizeof fused / sizeof *fused; k++)
            if (strncmp(side->read.list[i].kind, fused[k][0], strlen(fused[k][0])) == 0)
                at = ts_table_get(&kinds, fused[k][1]);
        *pieces = at != SIZE_MAX && side->bundle->tensors[i]->count < least[at];
    }
    if (done)
        ts_table_release(&kinds);
    free(least);
    return done;
}

/* All that stands under one number stands under the others with the same values, as far as some of it tells. */
static enum ts_status look_for_copies(struct ts_pairer *pairer, const struct ts_side *side, bool *copies,
                                      struct ts_error *error)
{
    struct ts_table first;
    enum ts_status status = TS_OK;
    size_t seen = 0;
    if (!ts_table_init(&first, side->count))
        return ts_fail_memory(error);
    *copies = true;
    for (size_t i = 0; i < side->count && *copies && seen < 32 && status == TS_OK; i++) {
        const struct ts_name *name = &side->read.list[i];
        const char *key = ts_arena_printf(&pairer->scratch, "%s|%s|%" PRId64 "|%s", name->group, name->scope,
                                          name->layer, name->text);
        struct ts_view one, other;
        size_t at = i;
        if (!key || !ts_view_of(side->bundle->tensors[i], &pairer->scratch, &other))
            status = ts_fail_memory(error);
        else if (!ts_table_put(&first, key, i, &at)) {
            if (!ts_view_of(side->bundle->tensors[at], &pairer->scratch, &one))
                status = ts_fail_memory(error);
            else
                status = ts_ranks_identical(&one, &other, copies, error);
            seen++;
        }
    }
    ts_table_release(&first);
    return status;
}

enum ts_status ts_ranks_of_folders(struct ts_pairer *pairer, struct ts_side *side, const struct ts_side *other,
                                   struct ts_error *error)
{
    bool pieces, copies = false;
    if (!side->read.folders)
        return TS_OK;
    for (size_t i = 0; i < other->count; i++)
        if (other->read.list[i].rank >= 0) /* a parallel run against another */
            return TS_OK;
    if (!look_for_pieces(side, other, &pieces))
        return ts_fail_memory(error);
    if (!pieces)
        TS_TRY(look_for_copies(pairer, side, &copies, error));
    side->apart = !pieces && !copies;
    if (side->apart && !ts_names_make_apart(side->names, side->count, 0, &pairer->scratch, &side->read))
        return ts_fail_memory(error);
    return TS_OK;
}

/* The numbers of the ranks of a slot; NULL where they have none, or without memory. */
const uint64_t *ts_ranks_of(struct ts_pairer *pairer, const struct ts_side *side, const size_t *indices, size_t count)
{
    uint64_t *ranks = side->read.list ? ts_arena_array(&pairer->scratch, count, sizeof *ranks) : NULL;
    for (size_t i = 0; ranks && i < count; i++) {
        if (side->read.list[indices[i]].rank < 0)
            return NULL;
        ranks[i] = (uint64_t)side->read.list[indices[i]].rank;
    }
    return ranks;
}

struct meeting {
    size_t common;   /* rank numbers that both have */
    size_t first[2]; /* the tensors of the first of them */
    bool alike;      /* the tensors of all of them have equal shapes */
};

static struct meeting meet(const struct ts_pairer *pairer, const struct ts_slot *a, const struct ts_slot *b)
{
    struct meeting meeting = {.alike = true};
    for (size_t i = 0, k = 0; i < a->count && k < b->count;) {
        int64_t left = pairer->a.read.list[a->indices[i]].rank, right = pairer->b.read.list[b->indices[k]].rank;
        if (left == right) {
            if (!meeting.common++) {
                meeting.first[0] = a->indices[i];
                meeting.first[1] = b->indices[k];
            }
            meeting.alike = meeting.alike && ts_tensor_same_shape(pairer->a.bundle->tensors[a->indices[i]],
                                                                  pairer->b.bundle->tensors[b->indices[k]]);
        }
        i += left <= right;
        k += right <= left;
    }
    return meeting;
}

bool ts_ranks_differ(const struct ts_pairer *pairer, const struct ts_slot *a, const struct ts_slot *b)
{
    struct meeting meeting;
    if (a->kind != TS_SLOT_SHARDS || b->kind != TS_SLOT_SHARDS || a->count == b->count)
        return false;
    meeting = meet(pairer, a, b);
    return !meeting.alike;
}

/* Shards that are not those of the other side hold one tensor: whole on both sides. */
static enum ts_status pair_whole(struct ts_pairer *pairer, const struct ts_slot *a, const struct ts_slot *b,
                                 const char *how, bool only_proved, bool *done, struct ts_error *error)
{
    struct ts_arena *arena = &pairer->out->arena;
    const struct ts_slot *slots[2] = {a, b};
    struct ts_side *sides[2] = {&pairer->a, &pairer->b};
    struct ts_align_hints hints =
        ts_layout_hints(pairer, a->indices[0], b->indices[0], ts_layout_weights(pairer, a->indices[0], b->indices[0]));
    struct ts_alignment alignment;
    struct ts_pair pair = {.how = how};
    struct ts_view *views[2];
    for (int s = 0; s < 2; s++) {
        views[s] = ts_arena_array(arena, slots[s]->count, sizeof *views[s]);
        if (!views[s])
            return ts_fail_memory(error);
        for (size_t i = 0; i < slots[s]->count; i++)
            if (!ts_view_of(sides[s]->bundle->tensors[slots[s]->indices[i]], arena, &views[s][i]))
                return ts_fail_memory(error);
        hints.ranks[s] = ts_ranks_of(pairer, sides[s], slots[s]->indices, slots[s]->count);
        hints.rank_count[s] = sides[s]->rank_end;
    }
    TS_TRY(ts_align_ranks(views[0], a->count, views[1], b->count, &hints, arena, &alignment, error));
    *done = !only_proved || (!alignment.guess && !alignment.problem);
    if (!*done)
        return TS_OK;
    pair.name = ts_layout_common_name(&pairer->a, a->indices, a->count, arena);
    pair.name_b = ts_layout_common_name(&pairer->b, b->indices, b->count, arena);
    for (int s = 0; s < 2; s++)
        if (slots[s]->count > 1 &&
            !(pair.members[s] = ts_layout_members(sides[s], slots[s]->indices, slots[s]->count, arena)))
            return ts_fail_memory(error);
    if (!pair.name || !pair.name_b)
        return ts_fail_memory(error);
    pair.a = alignment.a;
    pair.b = alignment.b;
    pair.recipe = alignment.recipe ? alignment.recipe : "";
    pair.ambiguous = alignment.ambiguous;
    pair.zeros = alignment.zeros;
    pair.guess = alignment.guess;
    pair.problem = alignment.problem;
    ts_ranks_lacking(pairer, &alignment);
    TS_TRY(ts_pairer_add(pairer, a->indices[0], b->indices[0], &pair, error));
    for (int s = 0; s < 2 && !pair.problem; s++)
        if (alignment.copied[s])
            TS_TRY(ts_ranks_copies(pairer, &pair, s, slots[s]->indices, views[s], slots[s]->count,
                                   slots[1 - s]->indices[0], error));
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < slots[s]->count; i++)
            sides[s]->taken[slots[s]->indices[i]] = true;
    return TS_OK;
}

enum ts_status ts_ranks_whole(struct ts_pairer *pairer, const struct ts_slot *a, const struct ts_slot *b,
                              const char *how, struct ts_error *error)
{
    bool done;
    return pair_whole(pairer, a, b, how, false, &done, error);
}

enum ts_status ts_ranks_pair(struct ts_pairer *pairer, const struct ts_slot *a, const struct ts_slot *b,
                             const char *how, bool *done, struct ts_error *error)
{
    struct meeting meeting = meet(pairer, a, b);
    bool same_ranks = a->count == b->count && meeting.common == a->count;
    struct ts_agreement agreement;
    *done = false;
    if (same_ranks && meeting.alike)
        return TS_OK; /* rank by rank */
    if (!same_ranks && meeting.alike && meeting.common && !pairer->resharded) {
        struct ts_view left, right;
        if (!ts_view_of(pairer->a.bundle->tensors[meeting.first[0]], &pairer->scratch, &left) ||
            !ts_view_of(pairer->b.bundle->tensors[meeting.first[1]], &pairer->scratch, &right))
            return ts_fail_memory(error);
        TS_TRY(ts_agree(&left, &right, CHOOSE_RUNS, &agreement, error));
        if (agreement.error < TS_SAME_TENSOR)
            return TS_OK; /* the same run with some ranks missing */
    }
    return pair_whole(pairer, a, b, how, same_ranks || (meeting.alike && !pairer->resharded), done, error);
}

/* Experts of equal numbers, one after the other: whole against shards, or shards against shards. False when the numbers
 * differ. */
static enum ts_status pair_each_expert(struct ts_pairer *pairer, const struct ts_slot *a, const struct ts_slot *b,
                                       const char *how, bool *done, struct ts_error *error)
{
    const size_t of_a = a->kind == TS_SLOT_GRID ? a->ranks : 1, of_b = b->kind == TS_SLOT_GRID ? b->ranks : 1;
    *done = a->kind != TS_SLOT_SINGLE && a->kind != TS_SLOT_SHARDS && b->kind != TS_SLOT_SINGLE &&
            b->kind != TS_SLOT_SHARDS && a->count / of_a == b->count / of_b;
    for (size_t i = 0; i * of_a < a->count && *done; i++)
        *done = pairer->a.read.list[a->indices[i * of_a]].expert == pairer->b.read.list[b->indices[i * of_b]].expert;
    for (size_t i = 0; i * of_a < a->count && *done; i++) {
        const struct ts_slot one = {.indices = a->indices + i * of_a, .count = of_a, .kind = TS_SLOT_SHARDS};
        const struct ts_slot other = {.indices = b->indices + i * of_b, .count = of_b, .kind = TS_SLOT_SHARDS};
        bool whole = true;
        if (of_a == 1)
            TS_TRY(ts_layout_shards(pairer, one.indices[0], other.indices, of_b, true, how, error));
        else if (of_b == 1)
            TS_TRY(ts_layout_shards(pairer, other.indices[0], one.indices, of_a, false, how, error));
        else
            TS_TRY(ts_ranks_pair(pairer, &one, &other, how, &whole, error));
        for (size_t k = 0; k < of_a && k < of_b && !whole; k++) /* the same ranks */
            TS_TRY(ts_layout_single(pairer, one.indices[k], other.indices[k], how, false, error));
    }
    return TS_OK;
}

/* A stack in each rank against the experts of the same ranks: rank by rank. */
static enum ts_status pair_stacks(struct ts_pairer *pairer, const struct ts_slot *stacks, const struct ts_slot *grid,
                                  bool grid_is_b, const char *how, bool *done, struct ts_error *error)
{
    const struct ts_side *side = grid_is_b ? &pairer->b : &pairer->a, *other = grid_is_b ? &pairer->a : &pairer->b;
    const size_t experts = grid->count / grid->ranks;
    size_t *indices = ts_arena_array(&pairer->scratch, experts, sizeof *indices);
    if (!indices)
        return ts_fail_memory(error);
    *done = stacks->count == grid->ranks;
    for (size_t i = 0; i < stacks->count && *done; i++)
        *done = other->read.list[stacks->indices[i]].rank == side->read.list[grid->indices[i]].rank &&
                other->bundle->tensors[stacks->indices[i]]->count ==
                    experts * side->bundle->tensors[grid->indices[i]]->count;
    for (size_t rank = 0; rank < stacks->count && *done; rank++) {
        for (size_t i = 0; i < experts; i++)
            indices[i] = grid->indices[i * grid->ranks + rank];
        TS_TRY(ts_layout_stack(pairer, stacks->indices[rank], indices, experts, grid_is_b, how, done, error));
    }
    return TS_OK;
}

/* What each rank holds as one view: its stack of experts, or the tensor itself. False where shapes do not allow it. */
static bool stack_ranks(struct ts_pairer *pairer, const struct ts_side *side, const struct ts_slot *slot,
                        struct ts_view **views, size_t *count)
{
    const size_t ranks = slot->kind == TS_SLOT_GRID ? slot->ranks : slot->kind == TS_SLOT_SHARDS ? slot->count : 1;
    const size_t experts = slot->count / ranks;
    size_t *indices = ts_arena_array(&pairer->scratch, experts, sizeof *indices);
    *views = ts_arena_array(&pairer->out->arena, ranks, sizeof **views);
    *count = ranks;
    for (size_t rank = 0; rank < ranks && indices && *views; rank++) {
        for (size_t i = 0; i < experts; i++)
            indices[i] = slot->indices[i * ranks + rank];
        if (!ts_layout_stacked(side, indices, experts, &pairer->out->arena, &(*views)[rank]))
            return false;
    }
    return indices && *views;
}

enum ts_status ts_ranks_experts(struct ts_pairer *pairer, const struct ts_slot *a, const struct ts_slot *b,
                                const char *how, struct ts_error *error)
{
    struct ts_arena *arena = &pairer->out->arena;
    const struct ts_slot *slots[2] = {a, b};
    struct ts_side *sides[2] = {&pairer->a, &pairer->b};
    const struct ts_align_hints hints =
        ts_layout_hints(pairer, a->indices[0], b->indices[0], ts_layout_weights(pairer, a->indices[0], b->indices[0]));
    struct ts_pair pair = {.how = how};
    struct ts_alignment alignment;
    struct ts_view *views[2];
    size_t counts[2];
    const char *stacked[2] = {"", ""};
    bool done;
    TS_TRY(pair_each_expert(pairer, a, b, how, &done, error));
    if (!done && a->kind == TS_SLOT_SHARDS && b->kind == TS_SLOT_GRID)
        TS_TRY(pair_stacks(pairer, a, b, true, how, &done, error));
    if (!done && b->kind == TS_SLOT_SHARDS && a->kind == TS_SLOT_GRID)
        TS_TRY(pair_stacks(pairer, b, a, false, how, &done, error));
    if (done)
        return TS_OK;
    for (int s = 0; s < 2; s++) {
        if (!stack_ranks(pairer, sides[s], slots[s], &views[s], &counts[s]))
            return TS_OK;
        if (slots[s]->count > counts[s])
            stacked[s] = ts_arena_printf(arena, "%c: %zu experts stacked", s ? 'B' : 'A', slots[s]->count / counts[s]);
        if (!stacked[s])
            return ts_fail_memory(error);
    }
    TS_TRY(ts_align_ranks(views[0], counts[0], views[1], counts[1], &hints, arena, &alignment, error));
    pair.name = ts_layout_common_name(&pairer->a, a->indices, a->count, arena);
    pair.name_b = ts_layout_common_name(&pairer->b, b->indices, b->count, arena);
    if (!pair.name || !pair.name_b)
        return ts_fail_memory(error);
    TS_TRY(ts_layout_recipes(pairer, stacked[0], stacked[1], &pair.recipe, error));
    TS_TRY(ts_layout_recipes(pairer, pair.recipe, alignment.recipe ? alignment.recipe : "", &pair.recipe, error));
    pair.a = alignment.a;
    pair.b = alignment.b;
    pair.ambiguous = alignment.ambiguous;
    pair.zeros = alignment.zeros;
    pair.guess = alignment.guess;
    pair.problem = alignment.problem;
    TS_TRY(ts_pairer_add(pairer, a->indices[0], b->indices[0], &pair, error));
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < slots[s]->count; i++)
            sides[s]->taken[slots[s]->indices[i]] = true;
    return TS_OK;
}

/* The view reads some of the tensor. */
static bool reads(const struct ts_view *view, const struct ts_tensor *tensor)
{
    bool found = view->join == TS_JOIN_NONE && view->tensor == tensor;
    for (size_t i = 0; view->join != TS_JOIN_NONE && i < view->part_count && !found; i++)
        found = reads(&view->parts[i], tensor);
    return found;
}

enum ts_status ts_ranks_identical(const struct ts_view *one, const struct ts_view *other, bool *identical,
                                  struct ts_error *error)
{
    const uint8_t *left = ts_view_bytes(one), *right = ts_view_bytes(other);
    const size_t components = ts_type_info(one->tensor->type)->components;
    double here[512], there[512];
    *identical = one->count == other->count && components == ts_type_info(other->tensor->type)->components;
    if (*identical && left && right && one->tensor->type == other->tensor->type && one->tensor->count == one->count &&
        memcmp(left, right, (size_t)one->tensor->bytes) == 0)
        return TS_OK;
    for (uint64_t at = 0; at < one->count && *identical; at += 256) {
        size_t now = one->count - at < 256 ? (size_t)(one->count - at) : 256;
        TS_TRY(ts_view_read_f64(one, at, now, here, error));
        TS_TRY(ts_view_read_f64(other, at, now, there, error));
        for (size_t i = 0; i < now * components && *identical; i++)
            *identical = here[i] == there[i] || (isnan(here[i]) && isnan(there[i]));
    }
    return TS_OK;
}

enum ts_status ts_ranks_copies(struct ts_pairer *pairer, const struct ts_pair *pair, bool shards_are_b,
                               const size_t *indices, const struct ts_view *shards, size_t count, size_t whole,
                               struct ts_error *error)
{
    const struct ts_view used = shards_are_b ? pair->b : pair->a, other = shards_are_b ? pair->a : pair->b;
    struct ts_side *side = shards_are_b ? &pairer->b : &pairer->a, *whole_side = shards_are_b ? &pairer->a : &pairer->b;
    const char *how = pair->how, *name = shards_are_b ? pair->name : pair->name_b;
    const bool taken = whole_side->taken[whole];
    size_t last = count;
    for (size_t i = 0; i < count; i++) {
        const struct ts_tensor *tensor = side->bundle->tensors[indices[i]];
        const char *recipe;
        bool identical = true;
        if (reads(&used, tensor)) {
            last = i;
            continue;
        }
        if (last < count)
            TS_TRY(ts_ranks_identical(&shards[last], &shards[i], &identical, error));
        if (identical)
            continue;
        pairer->differing[shards_are_b]++;
        recipe = ts_arena_printf(&pairer->out->arena, "%c: rank %zu, not the same as rank %zu",
                                 shards_are_b ? 'B' : 'A', i, last);
        if (!recipe)
            return ts_fail_memory(error);
        TS_TRY(ts_layout_views(pairer, shards_are_b ? whole : indices[i], shards_are_b ? indices[i] : whole,
                               shards_are_b ? &other : &shards[i], shards_are_b ? &shards[i] : &other, recipe,
                               shards_are_b ? name : tensor->name, shards_are_b ? tensor->name : name, how, false,
                               error));
    }
    whole_side->taken[whole] = taken;
    return TS_OK;
}

void ts_ranks_lacking(struct ts_pairer *pairer, const struct ts_alignment *alignment)
{
    if (!alignment->ranks_of || alignment->problem)
        return;
    if (alignment->ranks_of > pairer->lacking_of[alignment->lacking])
        pairer->lacking_of[alignment->lacking] = alignment->ranks_of;
    pairer->out->lacking++;
}

static enum ts_status note_missing(struct ts_pairer *pairer, const struct ts_side *side, uint64_t of,
                                   struct ts_error *error)
{
    const char letter = side == &pairer->b ? 'B' : 'A';
    struct ts_buffer list;
    uint64_t missing = 0, base = of < side->rank_end; /* counted from one */
    enum ts_status status;
    ts_buffer_init(&list, 4096);
    for (uint64_t i = 0; i < of; i++)
        if (i + base >= side->rank_end || !side->has_rank[i + base]) {
            if (missing < 16)
                ts_buffer_printf(&list, " %" PRIu64, i + base);
            missing++;
        }
    if (missing > 16)
        ts_buffer_string(&list, " ...");
    status = list.failed || !missing
                 ? TS_OK
                 : ts_pairer_note(pairer, error, "rank%s%s of %" PRIu64 " of %c %s missing: %s was not compared",
                                  missing > 1 ? "s" : "", list.data, of, letter, missing > 1 ? "are" : "is",
                                  missing > 1 ? "what they hold" : "what it holds");
    ts_buffer_release(&list);
    return status;
}

/* What each rank holds a part of, to be added up, is no tensor of the other side while a rank is missing. */
static enum ts_status refuse_sums(struct ts_pairer *pairer, bool of_b, uint64_t of, struct ts_error *error)
{
    for (size_t i = 0; i < pairer->count; i++) {
        struct ts_pair *pair = &pairer->found[i].pair;
        const struct ts_view *view = of_b ? &pair->b : &pair->a;
        if (pair->problem || view->join != TS_JOIN_SUM || view->part_count >= of)
            continue;
        pair->problem =
            ts_arena_printf(&pairer->out->arena, "a sum over ranks, of which only %zu of %" PRIu64 " are present",
                            view->part_count, of);
        if (!pair->problem)
            return ts_fail_memory(error);
    }
    return TS_OK;
}

/* Which rank of how many a side is that has one alone: the pieces tell that are all it has of the other side's tensors,
 * "A: shard 0 of 5 on axis 1". 0 where they do not, or not all alike. */
static uint64_t alone_of(const struct ts_pairer *pairer, bool of_b, uint64_t *rank)
{
    uint64_t of = 0;
    size_t found = 0;
    for (size_t i = 0; i < pairer->count; i++) {
        const struct ts_pair *pair = &pairer->found[i].pair;
        uint64_t number, count;
        if (pair->problem || pair->guess || pair->ambiguous ||
            sscanf(pair->recipe, of_b ? "A: shard %" SCNu64 " of %" SCNu64 : "B: shard %" SCNu64 " of %" SCNu64,
                   &number, &count) != 2)
            continue;
        if (of && (of != count || *rank != number))
            return 0;
        of = count;
        *rank = number;
        found++;
    }
    return found >= ALONE_PIECES ? of : 0;
}

/* Where one rank alone was captured, what it would add to the others' is whole in the other run, and has its shape:
 * where the values have nothing in common, that is no finding. */
static enum ts_status refuse_parts_of_sums(struct ts_pairer *pairer, bool of_b, struct ts_error *error)
{
    static const char *const added_up[] = {"attn_output", "attn_out", "ffn_down", "ffn_out", "ssm_out"};
    uint64_t rank = 0, of = alone_of(pairer, of_b, &rank);
    for (size_t i = 0; i < pairer->count && of; i++) {
        struct ts_pair *pair = &pairer->found[i].pair;
        struct ts_agreement agreement;
        bool added = false;
        for (size_t k = 0; k < sizeof added_up / sizeof *added_up; k++)
            added = added || strcmp(pairer->a.read.list[pairer->found[i].a].kind, added_up[k]) == 0;
        if (!added || pair->problem || pair->a.join != TS_JOIN_NONE || pair->b.join != TS_JOIN_NONE ||
            pair->a.tensor->count != pair->b.tensor->count ||
            ts_layout_weights(pairer, pairer->found[i].a, pairer->found[i].b))
            continue;
        TS_TRY(ts_agree(&pair->a, &pair->b, CHOOSE_RUNS, &agreement, error));
        if (agreement.error < PART_OF_SUM)
            continue;
        pair->problem =
            ts_arena_printf(&pairer->out->arena,
                            "a part of a sum over %" PRIu64 " ranks, of which only rank %" PRIu64 " is here", of, rank);
        if (!pair->problem)
            return ts_fail_memory(error);
    }
    return TS_OK;
}

/* Ranks that hold other values under the same names, and on the other side as many tensors that nothing stands against:
 * stages of a pipeline, each of which counts its layers from 0. */
static enum ts_status note_stages(struct ts_pairer *pairer, bool of_b, struct ts_error *error)
{
    const struct ts_side *other = of_b ? &pairer->a : &pairer->b;
    size_t left = 0;
    for (size_t i = 0; i < other->bundle->count; i++)
        left += !other->taken[i];
    if (!pairer->differing[of_b] || left != pairer->differing[of_b])
        return TS_OK;
    return ts_pairer_note(
        pairer, error,
        "the ranks of %c hold other values under the same names, and %c has as many tensors left over: "
        "stages of a pipeline that each count their layers from 0 are compared one by one, with each "
        "rank's file in place of %c",
        of_b ? 'B' : 'A', of_b ? 'A' : 'B', of_b ? 'B' : 'A');
}

/* How many parts the names of the files count, "00002-of-00005"; 0 where they do not. */
static uint64_t counted_in_names(const struct ts_side *side)
{
    uint64_t most = 0;
    struct ts_part part;
    for (size_t i = 0; side->rank_count > 1 && i < side->count; i++)
        if (side->read.list[i].rank >= 0 && ts_part_of(side->bundle->tensors[i]->name, &part) && part.of > most)
            most = part.of;
    return most;
}

enum ts_status ts_ranks_explain(struct ts_pairer *pairer, struct ts_error *error)
{
    struct ts_side *sides[2] = {&pairer->a, &pairer->b};
    for (int s = 0; s < 2; s++) {
        uint64_t of = pairer->lacking_of[s], counted = of ? 0 : counted_in_names(sides[s]);
        if (counted) { /* the reader has told which are missing */
            if (sides[s]->rank_count < counted)
                TS_TRY(refuse_sums(pairer, s == 1, counted, error));
            continue;
        }
        /* gaps in the numbers tell as well, unless files are only counted from one */
        if (!of && sides[s]->rank_count > 1 && sides[s]->rank_count + 1 < sides[s]->rank_end)
            of = sides[s]->rank_end;
        if (!of && sides[s]->rank_count > 1 && sides[s]->rank_count < sides[s]->rank_end && sides[s]->has_rank[0])
            of = sides[s]->rank_end;
        if (of) {
            TS_TRY(note_missing(pairer, sides[s], of, error));
            TS_TRY(refuse_sums(pairer, s == 1, of, error));
        }
        if (sides[s]->rank_count <= 1 && pairer->a.read.list)
            TS_TRY(refuse_parts_of_sums(pairer, s == 1, error));
        TS_TRY(note_stages(pairer, s == 1, error));
    }
    return TS_OK;
}
