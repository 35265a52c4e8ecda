/* Owns what is one tensor on one side and several on the other, or called otherwise in some models: fused q, k, v and
 * gate, up; the halves of kv_b; tied embeddings; kinds that a name cannot tell apart. All of it proved by values:
 * without agreement the tensors stay alone. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pair/name_rows.h"
#include "pair/pairing.h"
#include "read/values.h"

#define CHOOSE_RUNS 32
#define MAX_PARTS   3

/* How parts stand in a fused tensor, along one axis. */
enum cut_kind {
    BLOCKS,      /* one behind the other */
    ALTERNATING, /* an element of each in turn */
    BY_HEAD,     /* for each head, or group of heads with its k and v, one behind the other */
    TURNED_HALF, /* kv_b: for each head its rows of k, stored transposed elsewhere, then those of v */
    CUT_KINDS
};

struct cut {
    enum cut_kind kind;
    bool transposed; /* the fused tensor's last two axes are swapped first */
};

/* What is cut: one fused side, its parts on the other. */
struct job {
    struct ts_pairer *pairer;
    bool fused_is_b;
    struct ts_view fused, parts[MAX_PARTS];
    size_t count;
    const char *kinds[MAX_PARTS];
    bool weights, matrices; /* parameters; and not biases */
};

static bool transpose(const struct ts_view *view, struct ts_arena *arena, struct ts_view *out)
{
    unsigned order[TS_MAX_RANK];
    if (view->rank < 2)
        return false;
    for (unsigned i = 0; i < view->rank; i++)
        order[i] = i;
    order[view->rank - 1] = view->rank - 2;
    order[view->rank - 2] = view->rank - 1;
    return ts_view_permute(view, order, arena, out);
}

/* Piece `part` of kv_b [heads * (k + v), rank]: for k [heads, rank, k], for v [heads, v, rank]. */
static bool cut_latent(const struct job *job, size_t part, struct ts_arena *arena, struct ts_view *out)
{
    const struct ts_view *k = &job->parts[0], *v = &job->parts[1], *fused = &job->fused;
    struct ts_view split, piece;
    uint64_t shape[3];
    if (job->count != 2 || k->rank != 3 || v->rank != 3 || fused->rank != 2 || k->shape[0] != v->shape[0] ||
        fused->shape[0] != k->shape[0] * (k->shape[2] + v->shape[1]) || k->shape[1] != fused->shape[1])
        return false;
    shape[0] = k->shape[0];
    shape[1] = k->shape[2] + v->shape[1];
    shape[2] = fused->shape[1];
    if (!ts_view_reshape(fused, shape, 3, arena, &split) ||
        !ts_view_slice(&split, 1, part ? k->shape[2] : 0, part ? v->shape[1] : k->shape[2], 1, arena, &piece))
        return false;
    if (part) {
        *out = piece;
        return true;
    }
    return transpose(&piece, arena, out);
}

/* Piece `part` of the fused tensor under a cut; false when the sizes do not allow it. */
static bool cut_out(const struct job *job, const struct cut *cut, size_t part, struct ts_arena *arena,
                    struct ts_view *out)
{
    struct ts_view fused = job->fused;
    const struct ts_view *wanted = &job->parts[part];
    unsigned axis, rank = wanted->rank;
    uint64_t total = 0, before = 0, size, starts[1], counts[1];
    if (cut->kind == TURNED_HALF)
        return !cut->transposed && cut_latent(job, part, arena, out);
    if (fused.rank != rank || rank == 0 || (cut->transposed && (!job->matrices || !transpose(&fused, arena, &fused))))
        return false;
    /* matrices are cut along their outputs: [out, in], or [experts, out, in]; biases and what was computed, along their
     * last axis */
    axis = job->matrices && rank >= 2 ? rank - 2 : rank - 1;
    for (size_t i = 0; i < job->count; i++) {
        before += i < part ? job->parts[i].shape[axis] : 0;
        total += job->parts[i].shape[axis];
        for (unsigned k = 0; k < rank; k++)
            if (k != axis && job->parts[i].shape[k] != fused.shape[k])
                return false;
    }
    size = wanted->shape[axis];
    if (total != fused.shape[axis] || size == 0)
        return false;
    if (cut->kind == BLOCKS) {
        starts[0] = before;
        counts[0] = size;
        return ts_layout_gather(&fused, axis, starts, counts, 1, 1, arena, out);
    }
    if (cut->kind == ALTERNATING) {
        starts[0] = part;
        counts[0] = size;
        return total == size * job->count && ts_layout_gather(&fused, axis, starts, counts, job->count, 1, arena, out);
    }
    /* by head: as many groups as k has heads */
    {
        uint64_t groups = ts_layout_heads(job->pairer, "attn_k"), start = 0, *many_starts, *many_counts;
        if (job->count != 3 || groups == 0 || groups > 4096 || total % groups != 0 || size % groups != 0)
            return false;
        many_starts = ts_arena_array(arena, groups, sizeof *many_starts);
        many_counts = ts_arena_array(arena, groups, sizeof *many_counts);
        if (!many_starts || !many_counts)
            return false;
        for (size_t i = 0; i < part; i++)
            start += job->parts[i].shape[axis] / groups;
        for (uint64_t i = 0; i < groups; i++) {
            many_starts[i] = i * (total / groups) + start;
            many_counts[i] = size / groups;
        }
        return ts_layout_gather(&fused, axis, many_starts, many_counts, 1, groups, arena, out);
    }
}

/* The error of one part under a cut, rows of q and k turned or not. *turned: on which side, 0 none, 1 fused, 2 part. */
static enum ts_status error_of(const struct job *job, const struct cut *cut, size_t part, double *least, int *turned,
                               struct ts_error *error)
{
    uint64_t heads = part < 2 && job->weights && job->count == 3 ? ts_layout_heads(job->pairer, job->kinds[part]) : 0;
    struct ts_arena trial;
    struct ts_view piece, other;
    struct ts_agreement agreement;
    enum ts_status status = TS_OK;
    ts_arena_init(&trial, (size_t)64 << 20);
    *least = INFINITY;
    *turned = 0;
    if (cut_out(job, cut, part, &trial, &piece))
        for (int turn = 0; turn < (heads ? 3 : 1) && status == TS_OK; turn++) {
            if (turn && !ts_layout_turn_rows(turn == 1 ? &piece : &job->parts[part], heads, &trial, &other))
                continue;
            status = ts_agree(turn == 1 ? &other : &piece, turn == 2 ? &other : &job->parts[part], CHOOSE_RUNS,
                              &agreement, error);
            if (status == TS_OK && agreement.error < *least) {
                *least = agreement.error;
                *turned = turn;
            }
        }
    ts_arena_release(&trial);
    return status;
}

static const char *cut_text(const struct job *job, const struct cut *cut, size_t part, int turned)
{
    static const char *const kinds[] = {"cut out", "every %zu. cut out", "cut out head by head",
                                        "cut out head by head"};
    struct ts_arena *arena = &job->pairer->out->arena;
    char fused = job->fused_is_b ? 'B' : 'A', other = job->fused_is_b ? 'A' : 'B';
    uint64_t heads = ts_layout_heads(job->pairer, job->kinds[part]);
    const char *name = job->kinds[part], *recipe;
    size_t length = (size_t)(ts_kind_ending(name) - name);
    if (cut->kind == ALTERNATING)
        recipe = ts_arena_printf(arena, "%c: %severy %zu. row from %zu is %.*s", fused,
                                 cut->transposed ? "transposed, " : "", job->count, part, (int)length, name);
    else
        recipe = ts_arena_printf(arena, "%c: %s%.*s %s", fused, cut->transposed ? "transposed, " : "", (int)length,
                                 name, kinds[cut->kind]);
    if (recipe && turned)
        recipe = ts_arena_printf(arena, "%s; %c: rows un-permuted (%" PRIu64 " heads)", recipe,
                                 turned == 1 ? fused : other, heads);
    return recipe;
}

/* Finds the cut under which all parts agree, and makes the pairs. */
static enum ts_status cut_fused(struct job *job, size_t fused, const struct ts_slot *const slots[MAX_PARTS], bool *done,
                                struct ts_error *error)
{
    struct ts_pairer *pairer = job->pairer;
    struct ts_side *part_side = job->fused_is_b ? &pairer->a : &pairer->b;
    struct ts_side *fused_side = job->fused_is_b ? &pairer->b : &pairer->a;
    struct cut best = {BLOCKS, false};
    double least = INFINITY;
    for (unsigned i = 0; i < 2 * CUT_KINDS; i++) {
        struct cut cut = {i / 2, i % 2};
        double worst = 0;
        for (size_t part = 0; part < job->count && worst < least; part++) {
            double one;
            int turned;
            TS_TRY(error_of(job, &cut, part, &one, &turned, error));
            worst = one > worst || isnan(one) ? one : worst;
        }
        if (worst < least) {
            least = worst;
            best = cut;
        }
    }
    *done = least < TS_SAME_TENSOR;
    if (!*done)
        return TS_OK;
    for (size_t part = 0; part < job->count; part++) {
        struct ts_arena *arena = &pairer->out->arena;
        size_t first = slots[part]->indices[0], a = job->fused_is_b ? first : fused,
               b = job->fused_is_b ? fused : first;
        const char *recipe, *common, *name = fused_side->bundle->tensors[fused]->name;
        struct ts_view piece, other = job->parts[part];
        struct ts_pair pair = {.how = pairer->offset_text && pairer->a.read.list[a].layer >= 0 ? pairer->offset_text
                                                                                               : "canonical name"};
        double one;
        int turned;
        TS_TRY(error_of(job, &best, part, &one, &turned, error));
        if (!cut_out(job, &best, part, arena, &piece) ||
            (turned == 1 && !ts_layout_turn_rows(&piece, ts_layout_heads(pairer, job->kinds[part]), arena, &piece)) ||
            (turned == 2 && !ts_layout_turn_rows(&other, ts_layout_heads(pairer, job->kinds[part]), arena, &other)))
            return ts_fail_memory(error);
        recipe = cut_text(job, &best, part, turned);
        common = ts_layout_common_name(part_side, slots[part]->indices, slots[part]->count, arena);
        if (recipe && slots[part]->count > 1)
            recipe = ts_arena_printf(arena, "%s; %c: %zu experts stacked", recipe, job->fused_is_b ? 'A' : 'B',
                                     slots[part]->count);
        if (!recipe || !common)
            return ts_fail_memory(error);
        pair.name = job->fused_is_b ? common : name;
        pair.name_b = job->fused_is_b ? name : common;
        pair.a = job->fused_is_b ? other : piece;
        pair.b = job->fused_is_b ? piece : other;
        pair.recipe = recipe;
        TS_TRY(ts_pairer_add(pairer, a, b, &pair, error));
        for (size_t i = 0; i < slots[part]->count; i++)
            part_side->taken[slots[part]->indices[i]] = true;
    }
    return TS_OK;
}

struct rule {
    const char *fused, *parts[MAX_PARTS];
    size_t count;
};

static const struct rule rules[] = {
    {"attn_qkv", {"attn_q", "attn_k", "attn_v"}, 3},
    {"ffn_gate_up", {"ffn_gate", "ffn_up", NULL}, 2},
    {"ffn_gate_up_exps", {"ffn_gate_exps", "ffn_up_exps", NULL}, 2},
    {"ffn_gate_up_shexp", {"ffn_gate_shexp", "ffn_up_shexp", NULL}, 2},
    {"attn_kv_b", {"attn_k_b", "attn_v_b", NULL}, 2},
};

static const char *key_for(struct ts_pairer *pairer, const struct ts_side *side, size_t index, const char *kind)
{
    const struct ts_name *name = &side->read.list[index];
    int64_t layer = side == &pairer->a && name->layer >= 0 ? name->layer - pairer->offset : name->layer;
    return ts_arena_printf(&pairer->scratch, "%s|%s|%" PRId64 "|%s", side->labels[index], name->scope, layer, kind);
}

static enum ts_status slots_left(struct ts_pairer *pairer, const struct ts_side *side, struct ts_slots *slots,
                                 struct ts_error *error)
{
    const char **keys = ts_arena_array(&pairer->scratch, side->count, sizeof *keys);
    if (!keys)
        return ts_fail_memory(error);
    for (size_t i = 0; i < side->count; i++)
        if (!side->taken[i] && !(keys[i] = key_for(pairer, side, i, side->read.list[i].kind)))
            return ts_fail_memory(error);
    return ts_slots_make(side, keys, &pairer->scratch, slots, error);
}

/* The slot of one side under a rule, its parts on the other side. */
static enum ts_status try_rule(struct ts_pairer *pairer, const struct rule *rule, bool fused_is_b,
                               const struct ts_slot *fused, const struct ts_slots *others, struct ts_error *error)
{
    struct ts_side *side = fused_is_b ? &pairer->b : &pairer->a, *other = fused_is_b ? &pairer->a : &pairer->b;
    const struct ts_name *name = &side->read.list[fused->indices[0]];
    const char *ending = ts_kind_ending(name->kind);
    struct job job = {.pairer = pairer,
                      .fused_is_b = fused_is_b,
                      .count = rule->count,
                      .weights = *ending != '\0',
                      .matrices = strcmp(ending, ".weight") == 0};
    const struct ts_slot *slots[MAX_PARTS] = {NULL};
    bool done;
    if (strlen(rule->fused) != (size_t)(ending - name->kind) ||
        strncmp(rule->fused, name->kind, strlen(rule->fused)) != 0)
        return TS_OK;
    for (size_t i = 0; i < rule->count; i++) {
        char kind[64];
        const char *key;
        int64_t layer = name->layer;
        snprintf(kind, sizeof kind, "%s%s", rule->parts[i], ending);
        if (layer >= 0)
            layer += fused_is_b ? 0 : -pairer->offset;
        key = ts_arena_printf(&pairer->scratch, "%s|%s|%" PRId64 "|%s", side->labels[fused->indices[0]], name->scope,
                              layer, kind);
        if (!key)
            return ts_fail_memory(error);
        slots[i] = ts_slots_get(others, key);
        if (!slots[i] || slots[i]->kind == TS_SLOT_AMBIGUOUS || slots[i]->kind == TS_SLOT_SHARDS ||
            other->taken[slots[i]->indices[0]] ||
            !ts_layout_stacked(other, slots[i]->indices, slots[i]->count, &pairer->out->arena, &job.parts[i]))
            return TS_OK;
        job.kinds[i] = other->read.list[slots[i]->indices[0]].kind;
    }
    if (!ts_view_of(side->bundle->tensors[fused->indices[0]], &pairer->out->arena, &job.fused))
        return ts_fail_memory(error);
    TS_TRY(cut_fused(&job, fused->indices[0], slots, &done, error));
    return TS_OK;
}

static enum ts_status try_rules(struct ts_pairer *pairer, bool fused_is_b, const struct ts_slots *fused,
                                const struct ts_slots *parts, struct ts_error *error)
{
    const struct ts_side *side = fused_is_b ? &pairer->b : &pairer->a;
    for (size_t i = 0; i < fused->count; i++)
        for (size_t k = 0; k < sizeof rules / sizeof *rules; k++)
            if (fused->list[i].kind == TS_SLOT_SINGLE && !side->taken[fused->list[i].indices[0]])
                TS_TRY(try_rule(pairer, &rules[k], fused_is_b, &fused->list[i], parts, error));
    return TS_OK;
}

/* Elements of the whole tensor, also where a print shows only its corners. */
static uint64_t whole_count(const struct ts_tensor *tensor)
{
    uint64_t count;
    return tensor->whole_shape && ts_shape_product(tensor->whole_shape, tensor->rank, &count) ? count : tensor->count;
}

/* Two tensors whose kinds may be one, when their values say so. */
static enum ts_status try_kinds(struct ts_pairer *pairer, size_t a, size_t b, struct ts_error *error)
{
    const char *how = pairer->offset_text && pairer->a.read.list[a].layer >= 0 ? pairer->offset_text : "canonical name";
    if (whole_count(pairer->a.bundle->tensors[a]) != whole_count(pairer->b.bundle->tensors[b]) ||
        pairer->a.bundle->tensors[a]->count < 4)
        return TS_OK;
    return ts_layout_proved(pairer, a, b, how, error);
}

static enum ts_status try_kind_pairs(struct ts_pairer *pairer, const struct ts_slots *a, const struct ts_slots *b,
                                     struct ts_error *error)
{
    for (size_t i = 0; i < a->count; i++) {
        const struct ts_slot *slot = &a->list[i];
        const char *kind = pairer->a.read.list[slot->indices[0]].kind;
        for (size_t k = 0; ts_kind_pairs[k][0] && slot->kind == TS_SLOT_SINGLE; k++) {
            int other = strcmp(kind, ts_kind_pairs[k][0]) == 0 ? 1 : strcmp(kind, ts_kind_pairs[k][1]) == 0 ? 0 : -1;
            const struct ts_slot *found;
            const char *key;
            if (other < 0 || pairer->a.taken[slot->indices[0]])
                continue;
            key = key_for(pairer, &pairer->a, slot->indices[0], ts_kind_pairs[k][other]);
            if (!key)
                return ts_fail_memory(error);
            found = ts_slots_get(b, key);
            if (found && found->kind == TS_SLOT_SINGLE && !pairer->b.taken[found->indices[0]])
                TS_TRY(try_kinds(pairer, slot->indices[0], found->indices[0], error));
        }
    }
    return TS_OK;
}

/* The first tensor of a kind outside of layers; taken or not. SIZE_MAX. */
static size_t find_kind(const struct ts_side *side, const char *kind)
{
    for (size_t i = 0; i < side->count; i++)
        if (side->read.list[i].layer < 0 && strcmp(side->read.list[i].kind, kind) == 0 && !*side->read.list[i].scope)
            return i;
    return SIZE_MAX;
}

/* A head that one side leaves out because it is the embedding. */
static enum ts_status try_tied(struct ts_pairer *pairer, bool head_is_b, struct ts_error *error)
{
    struct ts_side *with = head_is_b ? &pairer->b : &pairer->a, *without = head_is_b ? &pairer->a : &pairer->b;
    size_t head = find_kind(with, "output.weight"), embedding = find_kind(without, "token_embd.weight");
    struct ts_pair pair = {.how = "tied", .recipe = ""};
    struct ts_agreement agreement;
    struct ts_view left, right;
    bool was_taken;
    if (head == SIZE_MAX || with->taken[head] || embedding == SIZE_MAX ||
        find_kind(without, "output.weight") != SIZE_MAX)
        return TS_OK;
    if (!ts_view_of(with->bundle->tensors[head], &pairer->out->arena, &left) ||
        !ts_view_of(without->bundle->tensors[embedding], &pairer->out->arena, &right))
        return ts_fail_memory(error);
    TS_TRY(ts_agree(&left, &right, CHOOSE_RUNS, &agreement, error));
    if (left.rank != right.rank || memcmp(left.shape, right.shape, left.rank * sizeof *left.shape) != 0 ||
        !(agreement.error < TS_SAME_TENSOR))
        return TS_OK;
    was_taken = without->taken[embedding];
    pair.a = head_is_b ? right : left;
    pair.b = head_is_b ? left : right;
    pair.name = (head_is_b ? without : with)->bundle->tensors[head_is_b ? embedding : head]->name;
    pair.name_b = (head_is_b ? with : without)->bundle->tensors[head_is_b ? head : embedding]->name;
    pair.recipe = head_is_b ? "A: embedding as head" : "B: embedding as head";
    TS_TRY(ts_pairer_add(pairer, head_is_b ? embedding : head, head_is_b ? head : embedding, &pair, error));
    without->taken[embedding] = was_taken;
    return ts_pairer_note(pairer, error, "%c has no head of its own: it is tied to the embedding",
                          head_is_b ? 'A' : 'B');
}

enum ts_status ts_match_fused(struct ts_pairer *pairer, struct ts_error *error)
{
    struct ts_slots a = {0}, b = {0};
    enum ts_status status = slots_left(pairer, &pairer->a, &a, error);
    if (status == TS_OK)
        status = slots_left(pairer, &pairer->b, &b, error);
    if (status == TS_OK)
        status = try_rules(pairer, false, &a, &b, error);
    if (status == TS_OK)
        status = try_rules(pairer, true, &b, &a, error);
    if (status == TS_OK)
        status = try_kind_pairs(pairer, &a, &b, error);
    ts_table_release(&a.table);
    ts_table_release(&b.table);
    return status;
}

enum ts_status ts_match_tied(struct ts_pairer *pairer, struct ts_error *error)
{
    if (!pairer->a.read.list || !pairer->b.read.list) /* every name had its like */
        return TS_OK;
    TS_TRY(try_tied(pairer, false, error));
    return try_tied(pairer, true, error);
}
