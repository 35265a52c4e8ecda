/* Owns what is one tensor on one side and several on the other, or called otherwise in some models: fused q, k, v and
 * gate, up; the halves of kv_b; tied embeddings; kinds that a name cannot tell apart. Which cut is the right one is
 * proved by values; where none is, the plainest is shown as a guess. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pair/cut.h"
#include "pair/name_rows.h"
#include "read/values.h"

/* Elements a sample has, in runs of 16. */
#define CHOOSE_RUNS 32
/* Ranks nearer than this hold the same. */
#define SAME_RANKS 0.05
/* Numbers of an activation whose signs are looked at. */
#define SIGNS_OF_ROW 64
#define LEAST_SIGNS  64
#define MOST_SIGNS   1024

/* Shares that several ranks hold: each that is not the same as the first is paired by itself. */
static enum ts_status pair_copies(const struct ts_cut_job *job, const struct ts_cut *cut, size_t part,
                                  const struct ts_slot *fused, const struct ts_pair *pair, size_t a, size_t b,
                                  struct ts_error *error)
{
    const struct ts_side *side = job->fused_is_b ? &job->pairer->b : &job->pairer->a;
    struct ts_arena *arena = &job->pairer->out->arena;
    struct ts_view copy, taken, share;
    uint64_t start, size;
    for (size_t number = 0; ts_cut_copy(job, cut, part, &number, arena, &copy, &taken, &start, &size);) {
        const struct ts_view *whole = job->fused_is_b ? &pair->a : &pair->b; /* laid as the pieces are */
        struct ts_pair own = *pair;
        bool identical, fits;
        const char *name = side->bundle->tensors[fused->indices[number]]->name;
        TS_TRY(ts_ranks_identical(&copy, &taken, &identical, error));
        if (identical)
            side->copied[fused->indices[number]] += copy.count;
        if (identical || cut->of > job->shard_count)
            continue;
        fits = !pair->problem && cut->join < whole->rank && start + size <= whole->shape[cut->join] &&
               ts_view_slice(whole, cut->join, start, size, 1, arena, &share) && share.rank == copy.rank &&
               memcmp(share.shape, copy.shape, copy.rank * sizeof *copy.shape) == 0;
        *(job->fused_is_b ? &own.name_b : &own.name) = name;
        if (!fits) { /* told all the same */
            own.problem = ts_arena_printf(arena, "%s of this rank is not the same as in other ranks", job->kinds[part]);
            if (!own.problem)
                return ts_fail_memory(error);
            TS_TRY(ts_pairer_add(job->pairer, a, b, &own, error));
            continue;
        }
        own.recipe = ts_arena_printf(
            arena, "%c: shard %" PRIu64 " of %" PRIu64 " on axis %u; %c: %s cut out, not the same as in other ranks",
            job->fused_is_b ? 'A' : 'B', start / size, cut->of / cut->copies, cut->join, job->fused_is_b ? 'B' : 'A',
            job->kinds[part]);
        if (!own.recipe)
            return ts_fail_memory(error);
        own.a = job->fused_is_b ? share : copy;
        own.b = job->fused_is_b ? copy : share;
        TS_TRY(ts_pairer_add(job->pairer, a, b, &own, error));
    }
    return TS_OK;
}

enum ts_status ts_cut_pair(struct ts_cut_job *job, const struct ts_slot *fused,
                           const struct ts_slot *const slots[TS_CUT_PARTS], bool guess, bool *done,
                           struct ts_error *error)
{
    struct ts_pairer *pairer = job->pairer;
    struct ts_side *part_side = job->fused_is_b ? &pairer->a : &pairer->b;
    struct ts_side *fused_side = job->fused_is_b ? &pairer->b : &pairer->a;
    struct ts_arena *arena = &pairer->out->arena;
    const char *name =
        job->fused_name ? job->fused_name : ts_layout_common_name(fused_side, fused->indices, fused->count, arena);
    struct ts_cut_score best;
    bool ambiguous;
    TS_TRY(ts_cut_choose(job, &best, &ambiguous, error));
    *done = best.agreeing || (guess && best.possible);
    if (!*done)
        return TS_OK;
    for (size_t part = 0; part < job->count; part++) {
        size_t first = slots[part]->indices[0], a = job->fused_is_b ? first : fused->indices[0],
               b = job->fused_is_b ? fused->indices[0] : first;
        const char *common = job->part_names[part]
                                 ? job->part_names[part]
                                 : ts_layout_common_name(part_side, slots[part]->indices, slots[part]->count, arena);
        const char *recipe = ts_cut_words(job, &best.cut, part);
        struct ts_alignment laid;
        struct ts_view piece, other;
        struct ts_cut_trial trial;
        bool fits;
        struct ts_pair pair = {.how = pairer->offset_text && pairer->a.read.list[a].layer >= 0 ? pairer->offset_text
                                                                                               : "canonical name",
                               .ambiguous = ambiguous,
                               .guess = best.agreeing == 0};
        TS_TRY(ts_cut_try(job, &best.cut, part, CHOOSE_RUNS, &trial, error));
        if (!name || !common || !recipe || !ts_cut_out(job, &best.cut, part, arena, &piece, &other))
            return ts_fail_memory(error);
        TS_TRY(ts_cut_lay(job, &best.cut, trial.turned, trial.heads, arena, &piece, &other, &laid, &fits, error));
        if (trial.turned)
            recipe = ts_arena_printf(arena, "%s; %c: rows un-permuted (%" PRIu64 " head%s)", recipe,
                                     (trial.turned == 1) == job->fused_is_b ? 'B' : 'A', trial.heads,
                                     trial.heads == 1 ? "" : "s");
        if (!recipe)
            return ts_fail_memory(error);
        if (job->before)
            TS_TRY(ts_layout_recipes(pairer, job->before, recipe, &recipe, error));
        TS_TRY(ts_layout_recipes(pairer, recipe, laid.recipe, &pair.recipe, error));
        pair.guess = pair.guess || laid.guess;
        pair.zeros = laid.zeros;
        pair.problem = laid.problem;
        pair.name = job->fused_is_b ? common : name;
        pair.name_b = job->fused_is_b ? name : common;
        pair.a = job->fused_is_b ? other : piece;
        pair.b = job->fused_is_b ? piece : other;
        TS_TRY(ts_pairer_add(pairer, a, b, &pair, error));
        TS_TRY(pair_copies(job, &best.cut, part, fused, &pair, a, b, error));
        if (best.cut.kind == TS_CUT_PER_RANK && best.cut.of > job->shard_count)
            ts_ranks_lacking(pairer, &(struct ts_alignment){.ranks_of = best.cut.of, .lacking = job->fused_is_b});
        for (size_t i = 0; i < slots[part]->count; i++)
            part_side->taken[slots[part]->indices[i]] = true;
    }
    for (size_t i = 0; i < fused->count; i++)
        fused_side->taken[fused->indices[i]] = true;
    return TS_OK;
}

const struct ts_cut_rule ts_cut_rules[] = {
    {"attn_qkv", {"attn_q", "attn_k", "attn_v"}, 3, TS_CUT_AS_IT_IS},
    {"attn_kv", {"attn_k", "attn_v"}, 2, TS_CUT_AS_IT_IS},
    {"ffn_gate_up", {"ffn_gate", "ffn_up"}, 2, TS_CUT_AS_IT_IS},
    {"ffn_gate_up_exps", {"ffn_gate_exps", "ffn_up_exps"}, 2, TS_CUT_AS_IT_IS},
    {"ffn_gate_up_shexp", {"ffn_gate_shexp", "ffn_up_shexp"}, 2, TS_CUT_AS_IT_IS},
    {"attn_kv_b", {"attn_k_b", "attn_v_b"}, 2, TS_CUT_AS_IT_IS},
    {"attn_qkv_a", {"attn_q_a", "attn_kv_a_mqa"}, 2, TS_CUT_AS_IT_IS},
    {"cross_attn_kv", {"cross_attn_k", "cross_attn_v"}, 2, TS_CUT_AS_IT_IS},
    {"ssm_in", {"attn_qkv", "attn_gate"}, 2, TS_CUT_AS_IT_IS},
    {"txt_qkv", {"txt_q", "txt_k", "txt_v"}, 3, TS_CUT_AS_IT_IS},
    {"attn_qkv_up", {"attn_q", "attn_k", "attn_v", "ffn_up"}, 4, TS_CUT_AS_IT_IS},
    {"patch_embd", {"patch_embd_0", "patch_embd_1"}, 2, TS_CUT_AS_FRAMES},
    /* RWKV 7, with a gate and without, and 6 */
    {"time_mix_lerp_fused",
     {"time_mix_lerp_r", "time_mix_lerp_w", "time_mix_lerp_k", "time_mix_lerp_v", "time_mix_lerp_a", "time_mix_lerp_g"},
     6,
     TS_CUT_AS_ROW},
    {"time_mix_lerp_fused",
     {"time_mix_lerp_r", "time_mix_lerp_w", "time_mix_lerp_k", "time_mix_lerp_v", "time_mix_lerp_a"},
     5,
     TS_CUT_AS_ROW},
    {"time_mix_lerp_fused",
     {"time_mix_lerp_w", "time_mix_lerp_k", "time_mix_lerp_v", "time_mix_lerp_r", "time_mix_lerp_g"},
     5,
     TS_CUT_AS_ROW},
};
const size_t ts_cut_rule_count = sizeof ts_cut_rules / sizeof *ts_cut_rules;

/* scopes: parts of the model have to be the same. */
static const char *key_for(struct ts_pairer *pairer, const struct ts_side *side, size_t index, const char *kind,
                           bool scopes)
{
    const struct ts_name *name = &side->read.list[index];
    int64_t layer = side == &pairer->a && name->layer >= 0 ? name->layer - pairer->offset : name->layer;
    return ts_arena_printf(&pairer->scratch, "%s|%s|%" PRId64 "|%s", side->labels[index], scopes ? name->scope : "",
                           layer, kind);
}

static enum ts_status slots_left(struct ts_pairer *pairer, const struct ts_side *side, bool scopes,
                                 struct ts_slots *slots, struct ts_error *error)
{
    const char **keys = ts_arena_array(&pairer->scratch, side->count, sizeof *keys);
    if (!keys)
        return ts_fail_memory(error);
    for (size_t i = 0; i < side->count; i++)
        if (!side->taken[i] && !(keys[i] = key_for(pairer, side, i, side->read.list[i].kind, scopes)))
            return ts_fail_memory(error);
    return ts_slots_make(side, keys, &pairer->scratch, slots, error);
}

/* One slot as views: shards, or a stack of experts, or the tensor itself. */
static bool open_fused(struct ts_cut_job *job, const struct ts_side *side, const struct ts_slot *slot)
{
    struct ts_arena *arena = &job->pairer->out->arena;
    job->shard_count = slot->kind == TS_SLOT_SHARDS ? slot->count : 1;
    job->shards = ts_arena_array(arena, job->shard_count, sizeof *job->shards);
    if (!job->shards)
        return false;
    if (slot->kind != TS_SLOT_SHARDS)
        return ts_layout_stacked(side, slot->indices, slot->count, arena, job->shards);
    job->ranks = ts_ranks_of(job->pairer, side, slot->indices, slot->count);
    for (size_t i = 0; i < slot->count; i++)
        if (!ts_view_of(side->bundle->tensors[slot->indices[i]], arena, &job->shards[i]))
            return false;
    return true;
}

/* The fused tensor in the shape that the rule cuts. */
static bool take_fused(struct ts_cut_job *job)
{
    struct ts_view *view = &job->shards[0];
    struct ts_arena *arena = &job->pairer->out->arena;
    const uint64_t *shape = view->shape;
    switch (job->taken) {
    case TS_CUT_AS_IT_IS:
        return true;
    case TS_CUT_AS_ROW:
        return job->shard_count == 1 && ts_view_reshape(view, (uint64_t[]){view->count}, 1, arena, view);
    case TS_CUT_AS_FRAMES:
        return job->shard_count == 1 && view->rank == 5 &&
               ts_view_reshape(view, (uint64_t[]){shape[0] * shape[1], shape[2], shape[3] * shape[4]}, 3, arena, view);
    }
    return false;
}

/* A part of the other side: shards are joined along the axis that parts lie along, neighbours that hold the same once.
 */
static enum ts_status open_part(struct ts_cut_job *job, const struct ts_side *side, const struct ts_slot *slot,
                                size_t part, bool *fits, struct ts_error *error)
{
    struct ts_arena *arena = &job->pairer->out->arena;
    struct ts_view *shards, *out = &job->parts[part];
    size_t copies = 1;
    unsigned axis;
    job->kinds[part] = side->read.list[slot->indices[0]].kind;
    job->part_words[part] = "";
    if (slot->kind != TS_SLOT_SHARDS) {
        *fits = ts_layout_stacked(side, slot->indices, slot->count, arena, out);
        if (*fits && slot->count > 1)
            job->part_words[part] = ts_arena_printf(arena, "%zu experts stacked", slot->count);
        return job->part_words[part] ? TS_OK : ts_fail_memory(error);
    }
    shards = ts_arena_array(arena, slot->count, sizeof *shards);
    if (!shards)
        return ts_fail_memory(error);
    for (size_t i = 0; i < slot->count; i++)
        if (!ts_view_of(side->bundle->tensors[slot->indices[i]], arena, &shards[i]))
            return ts_fail_memory(error);
    axis = job->matrices && shards[0].rank >= 2 ? shards[0].rank - 2 : shards[0].rank - 1;
    for (size_t next = 1; next < slot->count; next++) {
        struct ts_agreement agreement;
        TS_TRY(ts_agree(&shards[0], &shards[next], CHOOSE_RUNS, &agreement, error));
        if (!(agreement.error < SAME_RANKS))
            break;
        copies++;
    }
    *fits = shards[0].rank > 0 && slot->count % copies == 0;
    for (size_t i = 0; i * copies < slot->count && *fits; i++)
        shards[i] = shards[i * copies];
    if (*fits && copies == slot->count) {
        *out = shards[0];
        job->part_words[part] = ts_arena_printf(arena, "rank 0 of %zu equal shards", slot->count);
    } else if (*fits) {
        *fits = ts_view_join(TS_JOIN_CONCAT, axis, shards, slot->count / copies, arena, out);
        job->part_words[part] = copies == 1 ? ts_arena_printf(arena, "join %zu shards on axis %u", slot->count, axis)
                                            : ts_arena_printf(arena, "join %zu of %zu shards, step %zu, on axis %u",
                                                              slot->count / copies, slot->count, copies, axis);
    }
    return job->part_words[part] ? TS_OK : ts_fail_memory(error);
}

/* The ranks of two slots are the same. */
static bool same_ranks(const struct ts_side *side, const struct ts_slot *one, const struct ts_side *other_side,
                       const struct ts_slot *other)
{
    if (one->kind != TS_SLOT_SHARDS || other->kind != TS_SLOT_SHARDS || one->count != other->count)
        return false;
    for (size_t i = 0; i < one->count; i++)
        if (side->read.list[one->indices[i]].rank != other_side->read.list[other->indices[i]].rank)
            return false;
    return true;
}

/* Ranks that hold all of it each, as those of DeepSeek do what comes before the latents: one of them is cut. */
static enum ts_status take_one_rank(struct ts_cut_job *job, struct ts_error *error)
{
    uint64_t count = 0;
    for (size_t i = 0; i < job->count; i++)
        count += job->parts[i].count;
    if (job->shard_count < 2 || job->shards[0].count != count)
        return TS_OK;
    for (size_t i = 1; i < job->shard_count; i++) {
        bool identical;
        TS_TRY(ts_ranks_identical(&job->shards[i], &job->shards[0], &identical, error));
        if (!identical) /* what the others hold would be compared with nothing */
            return TS_OK;
    }
    job->before = ts_arena_printf(&job->pairer->out->arena, "%c: rank 0 of %zu equal shards",
                                  job->fused_is_b ? 'B' : 'A', job->shard_count);
    job->shard_count = 1;
    job->ranks = NULL;
    return job->before ? TS_OK : ts_fail_memory(error);
}

/* The slot of one side against its parts on the other. */
static enum ts_status cut_slots(const struct ts_cut_job *plan, const struct ts_slot *fused,
                                const struct ts_slot *const slots[TS_CUT_PARTS], bool guess, bool *done,
                                struct ts_error *error)
{
    const struct ts_side *side = plan->fused_is_b ? &plan->pairer->b : &plan->pairer->a;
    const struct ts_side *other = plan->fused_is_b ? &plan->pairer->a : &plan->pairer->b;
    struct ts_cut_job job = *plan;
    bool fits = true;
    *done = false;
    for (size_t i = 0; i < job.count && fits; i++)
        TS_TRY(open_part(&job, other, slots[i], i, &fits, error));
    if (!fits || !open_fused(&job, side, fused))
        return TS_OK;
    TS_TRY(take_one_rank(&job, error));
    if (!take_fused(&job))
        return TS_OK;
    TS_TRY(ts_cut_pair(&job, fused, slots, guess, done, error));
    for (size_t i = 1; i < fused->count && job.shard_count == 1 && fused->kind == TS_SLOT_SHARDS && *done; i++)
        side->copied[fused->indices[i]] += job.shards[i].count;
    return TS_OK;
}

/* Runs of as many ranks: what a rank holds fused, another holds in parts, rank by rank. */
static enum ts_status cut_by_rank(const struct ts_cut_job *plan, const struct ts_slot *fused,
                                  const struct ts_slot *const slots[TS_CUT_PARTS], bool *done, struct ts_error *error)
{
    const struct ts_side *side = plan->fused_is_b ? &plan->pairer->b : &plan->pairer->a;
    const struct ts_side *other = plan->fused_is_b ? &plan->pairer->a : &plan->pairer->b;
    *done = false;
    for (size_t i = 0; i < plan->count; i++)
        if (!same_ranks(side, fused, other, slots[i]))
            return TS_OK;
    for (size_t rank = 0; rank < fused->count; rank++) {
        struct ts_slot one = {.indices = &fused->indices[rank], .count = 1, .kind = TS_SLOT_SINGLE};
        struct ts_slot parts[TS_CUT_PARTS];
        const struct ts_slot *given[TS_CUT_PARTS];
        for (size_t i = 0; i < plan->count; i++) {
            parts[i] = (struct ts_slot){.indices = &slots[i]->indices[rank], .count = 1, .kind = TS_SLOT_SINGLE};
            given[i] = &parts[i];
        }
        TS_TRY(cut_slots(plan, &one, given, rank > 0, done, error));
        if (!*done && rank == 0)
            return TS_OK; /* perhaps the parts are dealt out otherwise */
    }
    *done = true;
    return TS_OK;
}

/* The slot of one side under a rule, its parts on the other side. */
static enum ts_status try_rule(struct ts_pairer *pairer, const struct ts_cut_rule *rule, bool fused_is_b,
                               const struct ts_slot *fused, const struct ts_slots *others, bool guess,
                               struct ts_error *error)
{
    struct ts_side *side = fused_is_b ? &pairer->b : &pairer->a, *other = fused_is_b ? &pairer->a : &pairer->b;
    const struct ts_name *name = &side->read.list[fused->indices[0]];
    const char *ending = ts_kind_ending(name->kind);
    const struct ts_cut_job plan = {.pairer = pairer,
                                    .fused_is_b = fused_is_b,
                                    .count = rule->count,
                                    .weights = *ending != '\0',
                                    .taken = rule->taken,
                                    .matrices = rule->taken != TS_CUT_AS_ROW && strcmp(ending, ".weight") == 0};
    const struct ts_slot *slots[TS_CUT_PARTS] = {NULL};
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
        key = ts_arena_printf(&pairer->scratch, "%s|%s|%" PRId64 "|%s", side->labels[fused->indices[0]],
                              guess ? "" : name->scope, layer, kind);
        if (!key)
            return ts_fail_memory(error);
        slots[i] = ts_slots_get(others, key);
        if (!slots[i] || slots[i]->kind >= TS_SLOT_GRID || other->taken[slots[i]->indices[0]])
            return TS_OK;
    }
    TS_TRY(cut_by_rank(&plan, fused, slots, &done, error));
    return done ? TS_OK : cut_slots(&plan, fused, slots, guess, &done, error);
}

static enum ts_status try_rules(struct ts_pairer *pairer, bool fused_is_b, const struct ts_slots *fused,
                                const struct ts_slots *parts, bool guess, struct ts_error *error)
{
    const struct ts_side *side = fused_is_b ? &pairer->b : &pairer->a;
    for (size_t i = 0; i < fused->count; i++)
        for (size_t k = 0; k < ts_cut_rule_count; k++)
            if (fused->list[i].kind < TS_SLOT_GRID && !side->taken[fused->list[i].indices[0]])
                TS_TRY(try_rule(pairer, &ts_cut_rules[k], fused_is_b, &fused->list[i], parts, guess, error));
    return TS_OK;
}

/* Elements of the whole tensor, also where a print shows only its corners. */
static uint64_t whole_count(const struct ts_tensor *tensor)
{
    uint64_t count;
    return tensor->whole_shape && ts_shape_product(tensor->whole_shape, tensor->rank, &count) ? count : tensor->count;
}

/* Activations of which one side has some tokens only: logits of the last one. */
static bool same_width(const struct ts_tensor *a, const struct ts_tensor *b)
{
    return a->rank > 1 && b->rank > 1 && a->shape[a->rank - 1] == b->shape[b->rank - 1];
}

/* Two tensors whose kinds may be one, when their values say so, or when those of other layers did. */
static enum ts_status try_kinds(struct ts_pairer *pairer, const struct ts_slot *slot, const struct ts_slot *found,
                                bool proved, struct ts_error *error)
{
    const size_t a = slot->indices[0], b = found->indices[0];
    const char *how = pairer->offset_text && pairer->a.read.list[a].layer >= 0 ? pairer->offset_text : "canonical name";
    if (proved && slot->kind == TS_SLOT_SHARDS && found->kind == TS_SLOT_SINGLE)
        return ts_layout_shards(pairer, b, slot->indices, slot->count, false, how, error);
    if (proved && slot->kind == TS_SLOT_SINGLE && found->kind == TS_SLOT_SHARDS)
        return ts_layout_shards(pairer, a, found->indices, found->count, true, how, error);
    if (slot->kind == TS_SLOT_SHARDS && found->kind == TS_SLOT_SINGLE)
        return ts_layout_shards_proved(pairer, b, slot->indices, slot->count, false, how, error);
    if (slot->kind == TS_SLOT_SINGLE && found->kind == TS_SLOT_SHARDS)
        return ts_layout_shards_proved(pairer, a, found->indices, found->count, true, how, error);
    if (slot->kind != TS_SLOT_SINGLE || found->kind != TS_SLOT_SINGLE)
        return TS_OK;
    if (pairer->a.bundle->tensors[a]->count < 4 || pairer->b.bundle->tensors[b]->count < 4)
        return TS_OK;
    if (whole_count(pairer->a.bundle->tensors[a]) != whole_count(pairer->b.bundle->tensors[b]))
        return same_width(pairer->a.bundle->tensors[a], pairer->b.bundle->tensors[b])
                   ? ts_layout_proved(pairer, a, b, how, error)
                   : TS_OK;
    return proved ? ts_layout_single(pairer, a, b, how, false, error) : ts_layout_proved(pairer, a, b, how, error);
}

/* How far a row of ts_kind_pairs is taken at its word: weights of a layer only within one part of a model, unless
 * values of other layers proved it. */
enum trust { NOT, WITHIN, ANYWHERE };

static bool same_part(const struct ts_pairer *pairer, size_t a, size_t b)
{
    const struct ts_name *left = &pairer->a.read.list[a], *right = &pairer->b.read.list[b];
    return !left->weight || left->layer < 0 || strcmp(left->scope, right->scope) == 0;
}

/* proved: which rows of ts_kind_pairs are one kind here. Those that are trusted are taken at their word, whatever
 * values say; with NULL every row is tried. */
static enum ts_status try_kind_pairs(struct ts_pairer *pairer, const struct ts_slots *a, const struct ts_slots *b,
                                     bool scopes, const enum trust *trusted, bool *proved, struct ts_error *error)
{
    for (size_t i = 0; i < a->count; i++) {
        const struct ts_slot *slot = &a->list[i];
        const char *kind = pairer->a.read.list[slot->indices[0]].kind;
        for (size_t k = 0; ts_kind_pairs[k][0] && slot->kind <= TS_SLOT_SHARDS; k++) {
            int other = strcmp(kind, ts_kind_pairs[k][0]) == 0 ? 1 : strcmp(kind, ts_kind_pairs[k][1]) == 0 ? 0 : -1;
            const struct ts_slot *found;
            const char *key;
            if (other < 0 || pairer->a.taken[slot->indices[0]] || (trusted && trusted[k] == NOT))
                continue;
            key = key_for(pairer, &pairer->a, slot->indices[0], ts_kind_pairs[k][other], scopes);
            if (!key)
                return ts_fail_memory(error);
            found = ts_slots_get(b, key);
            if (found && !pairer->b.taken[found->indices[0]] &&
                (!trusted || trusted[k] == ANYWHERE || same_part(pairer, slot->indices[0], found->indices[0])))
                TS_TRY(try_kinds(pairer, slot, found, trusted != NULL, error));
            if (pairer->a.taken[slot->indices[0]] && pairer->a.read.list[slot->indices[0]].layer >= 0)
                proved[k] = true;
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
    const char *name;
    bool was_taken;
    if (head == SIZE_MAX || with->taken[head] || embedding == SIZE_MAX ||
        find_kind(without, "output.weight") != SIZE_MAX)
        return TS_OK;
    name = without->bundle->tensors[embedding]->name;
    if (!ts_view_of(with->bundle->tensors[head], &pairer->out->arena, &left) ||
        !ts_view_of(without->bundle->tensors[embedding], &pairer->out->arena, &right))
        return ts_fail_memory(error);
    for (size_t i = 0; i < pairer->count; i++) /* as it was put together, where it is in shards */
        if ((head_is_b ? pairer->found[i].a : pairer->found[i].b) == embedding && !pairer->found[i].pair.problem) {
            right = head_is_b ? pairer->found[i].pair.a : pairer->found[i].pair.b;
            name = head_is_b ? pairer->found[i].pair.name : pairer->found[i].pair.name_b;
            break;
        }
    TS_TRY(ts_agree(&left, &right, CHOOSE_RUNS, &agreement, error));
    if (left.rank != right.rank || memcmp(left.shape, right.shape, left.rank * sizeof *left.shape) != 0 ||
        !(agreement.error < TS_SAME_TENSOR))
        return TS_OK;
    was_taken = without->taken[embedding];
    pair.a = head_is_b ? right : left;
    pair.b = head_is_b ? left : right;
    pair.name = head_is_b ? name : with->bundle->tensors[head]->name;
    pair.name_b = head_is_b ? with->bundle->tensors[head]->name : name;
    pair.recipe = head_is_b ? "A: embedding as head" : "B: embedding as head";
    TS_TRY(ts_pairer_add(pairer, head_is_b ? embedding : head, head_is_b ? head : embedding, &pair, error));
    without->taken[embedding] = was_taken;
    return ts_pairer_note(pairer, error, "%c has no head of its own: it is tied to the embedding",
                          head_is_b ? 'A' : 'B');
}

/* The first tensor of a kind in any layer, or NULL. */
static const struct ts_tensor *first_of(const struct ts_side *side, const char *kind)
{
    for (size_t i = 0; i < side->count; i++)
        if (strcmp(side->read.list[i].kind, kind) == 0)
            return side->bundle->tensors[i];
    return NULL;
}

/* llama.cpp calls it ffn_up also where gate and up are fused in it: there is no gate then, and twice as many rows as
 * the other side's up has, or as many as what the other side calls fused. */
static void name_fused_up(struct ts_side *side, const struct ts_side *other)
{
    const struct ts_tensor *both = first_of(side, "ffn_up.weight"), *up = first_of(other, "ffn_up.weight");
    const bool apart = up && first_of(other, "ffn_gate.weight");
    up = up ? up : first_of(other, "ffn_gate_up.weight");
    if (!both || !up || (!apart && first_of(other, "ffn_up.weight")) || first_of(side, "ffn_gate.weight") ||
        both->rank != 2 || up->rank != 2 || both->shape[0] != (apart ? 2 : 1) * up->shape[0] ||
        both->shape[1] != up->shape[1])
        return;
    for (size_t i = 0; i < side->count; i++) {
        struct ts_name *name = &side->read.list[i];
        if (strcmp(name->kind, "ffn_up.weight") == 0)
            name->kind = "ffn_gate_up.weight";
        else if (strcmp(name->kind, "ffn_up.bias") == 0)
            name->kind = "ffn_gate_up.bias";
    }
}

/* Whether the activation of a layer has been multiplied by the other half of what came in already: its signs are those
 * of the product of both then. Halves one behind the other, or in turns. */
static enum ts_status is_product(const struct ts_tensor *activation, const struct ts_tensor *both, bool *product,
                                 struct ts_error *error)
{
    const uint64_t width = activation->rank ? activation->shape[activation->rank - 1] : 0;
    const size_t count = width < SIGNS_OF_ROW ? (size_t)width : SIGNS_OF_ROW;
    size_t seen = 0, alike[2] = {0, 0};
    *product = false;
    if (!width || !both->rank || both->shape[both->rank - 1] != 2 * width || both->count != 2 * activation->count ||
        ts_type_info(activation->type)->components != 1 || ts_type_info(both->type)->components != 1)
        return TS_OK;
    for (uint64_t row = 0; row < activation->count / width && seen < MOST_SIGNS; row++) {
        double out[SIGNS_OF_ROW], in[2 * SIGNS_OF_ROW], half[SIGNS_OF_ROW];
        TS_TRY(ts_tensor_read_f64(activation, row * width, count, out, error));
        TS_TRY(ts_tensor_read_f64(both, 2 * row * width, 2 * count, in, error));
        TS_TRY(ts_tensor_read_f64(both, (2 * row + 1) * width, count, half, error));
        for (size_t i = 0; i < count; i++) {
            seen += out[i] != 0;
            alike[0] += out[i] * in[i] * half[i] > 0;
            alike[1] += out[i] * in[2 * i] * in[2 * i + 1] > 0;
        }
    }
    *product = seen >= LEAST_SIGNS && (20 * alike[0] > 19 * seen || 20 * alike[1] > 19 * seen);
    return TS_OK;
}

/* The same of a side that has gate and up apart, in the first layer that has all three, of the first rank. */
static enum ts_status is_product_of_two(const struct ts_side *side, bool *product, struct ts_error *error)
{
    const struct ts_tensor *parts[3] = {NULL, NULL, NULL};
    double values[3][SIGNS_OF_ROW];
    size_t seen = 0, alike = 0;
    const struct ts_name *first = NULL;
    int64_t layer = -1;
    *product = false;
    for (size_t i = 0; i < side->count; i++) {
        const struct ts_name *name = &side->read.list[i];
        const int part = strcmp(name->kind, "ffn_gate") == 0  ? 0
                         : strcmp(name->kind, "ffn_up") == 0  ? 1
                         : strcmp(name->kind, "ffn_act") == 0 ? 2
                                                              : -1;
        if (part < 0 || name->expert >= 0)
            continue;
        first = first ? first : name;
        if (name->rank != first->rank)
            continue;
        if (name->layer != layer)
            memset(parts, 0, sizeof parts);
        layer = name->layer;
        parts[part] = side->bundle->tensors[i];
        if (parts[0] && parts[1] && parts[2])
            break;
    }
    for (int part = 0; part < 3; part++)
        if (!parts[part] || parts[part]->count != parts[0]->count || ts_type_info(parts[part]->type)->components != 1)
            return TS_OK;
    for (uint64_t at = 0; at < parts[0]->count && seen < MOST_SIGNS; at += SIGNS_OF_ROW) {
        const uint64_t left = parts[0]->count - at;
        const size_t count = left < SIGNS_OF_ROW ? (size_t)left : SIGNS_OF_ROW;
        for (int part = 0; part < 3; part++)
            TS_TRY(ts_tensor_read_f64(parts[part], at, count, values[part], error));
        for (size_t i = 0; i < count; i++) {
            seen += values[2][i] != 0;
            alike += values[0][i] * values[1][i] * values[2][i] > 0;
        }
    }
    *product = seen >= LEAST_SIGNS && 20 * alike > 19 * seen;
    return TS_OK;
}

/* The first activation of a side that is the product of what came in fused, or SIZE_MAX: vLLM's act_fn takes gate and
 * up as one, and gives what down takes. */
static enum ts_status find_product(const struct ts_side *side, size_t *found, struct ts_error *error)
{
    size_t both = SIZE_MAX;
    *found = SIZE_MAX;
    if (first_of(side, "ffn_mid"))
        return TS_OK;
    for (size_t i = 0; i < side->count; i++) {
        const struct ts_name *name = &side->read.list[i];
        bool product;
        if (strcmp(name->kind, "ffn_gate_up") == 0)
            both = i;
        if (strcmp(name->kind, "ffn_act") != 0 || both == SIZE_MAX || side->read.list[both].layer != name->layer ||
            side->read.list[both].rank != name->rank)
            continue;
        TS_TRY(is_product(side->bundle->tensors[i], side->bundle->tensors[both], &product, error));
        *found = product ? i : SIZE_MAX;
        return TS_OK; /* one layer tells it of all */
    }
    return TS_OK;
}

/* Such a product is no partner of an activation that is none; but where both sides call theirs so, it is. */
static enum ts_status name_products(struct ts_pairer *pairer, struct ts_side *side, size_t found,
                                    struct ts_error *error)
{
    const bool of_b = side == &pairer->b;
    const struct ts_side *other = of_b ? &pairer->a : &pairer->b;
    bool same;
    if (found == SIZE_MAX)
        return TS_OK;
    TS_TRY(is_product_of_two(other, &same, error));
    for (size_t i = 0; i < side->count && !same; i++)
        if (strcmp(side->read.list[i].kind, "ffn_act") == 0) {
            side->read.list[i].kind = side->read.list[i].text = "ffn_mid";
            side->names[i] = ts_arena_printf(&pairer->scratch, "%s.ffn_mid", side->names[i]);
            if (!side->names[i])
                return ts_fail_memory(error);
        }
    if (!same && first_of(other, "ffn_act"))
        TS_TRY(ts_pairer_note(pairer, error, "%s of %c is multiplied by up already, and no partner of one that is not",
                              side->bundle->tensors[found]->name, of_b ? 'B' : 'A'));
    return TS_OK;
}

enum ts_status ts_name_fused(struct ts_pairer *pairer, struct ts_error *error)
{
    size_t of_a, of_b;
    TS_TRY(find_product(&pairer->a, &of_a, error));
    TS_TRY(find_product(&pairer->b, &of_b, error));
    if (of_a == SIZE_MAX || of_b == SIZE_MAX) {
        TS_TRY(name_products(pairer, &pairer->a, of_a, error));
        TS_TRY(name_products(pairer, &pairer->b, of_b, error));
    }
    if (pairer->a.facts.gguf)
        name_fused_up(&pairer->a, &pairer->b);
    if (pairer->b.facts.gguf)
        name_fused_up(&pairer->b, &pairer->a);
    return TS_OK;
}

enum ts_status ts_match_fused(struct ts_pairer *pairer, bool guess, struct ts_error *error)
{
    const struct ts_arena_mark mark = ts_arena_mark(&pairer->scratch);
    struct ts_slots a = {0}, b = {0};
    bool proved[TS_KIND_PAIRS] = {false}, again[TS_KIND_PAIRS] = {false};
    enum trust trusted[TS_KIND_PAIRS] = {NOT};
    enum ts_status status = slots_left(pairer, &pairer->a, !guess, &a, error);
    if (status == TS_OK)
        status = slots_left(pairer, &pairer->b, !guess, &b, error);
    if (status == TS_OK)
        status = try_rules(pairer, false, &a, &b, guess, error);
    if (status == TS_OK)
        status = try_rules(pairer, true, &b, &a, guess, error);
    if (status == TS_OK)
        status = try_kind_pairs(pairer, &a, &b, !guess, NULL, proved, error);
    for (size_t k = 0; guess && ts_kind_pairs[k][0]; k++)
        trusted[k] = proved[k] || pairer->same_kinds[k] ? ANYWHERE : k < TS_KIND_PAIRS_SURE ? WITHIN : NOT;
    if (status == TS_OK && guess)
        status = try_kind_pairs(pairer, &a, &b, false, trusted, again, error);
    for (size_t k = 0; ts_kind_pairs[k][0]; k++)
        pairer->same_kinds[k] = pairer->same_kinds[k] || proved[k];
    ts_table_release(&a.table);
    ts_table_release(&b.table);
    ts_arena_rewind(&pairer->scratch, mark);
    return status;
}

enum ts_status ts_match_tied(struct ts_pairer *pairer, struct ts_error *error)
{
    if (!pairer->a.read.list || !pairer->b.read.list) /* every name had its like */
        return TS_OK;
    TS_TRY(try_tied(pairer, false, error));
    return try_tied(pairer, true, error);
}
