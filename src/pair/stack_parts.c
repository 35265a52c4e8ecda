/* Owns what is fused on one side while layers are in one tensor on either: q, k and v of all layers as one against
 * separate ones of each layer, or the other way round; and caches of keys and values of each layer as one against all
 * keys and all values. Which axis counts layers is told by values; every part of every layer is a pair of its own. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/progress.h"
#include "pair/cut.h"
#include "pair/stacks.h"

/* Layers that are looked at before an axis is chosen. */
#define LOOKS 2
/* Parts of a model that are looked through for the only one that has a kind. */
#define MOST_KIN 64

struct list {
    struct ts_called *items;
    size_t count;
    bool stacks; /* one of them holds all layers */
};

/* All tensors of one kind: the same of every layer, or one that holds all layers. */
struct kin {
    const struct ts_called *items;
    size_t count;
    bool stack;
};

/* What is fused, and its parts. */
struct kinship {
    struct kin fused, parts[TS_CUT_PARTS];
    size_t count;    /* of parts */
    uint64_t layers; /* how many both sides have */
    bool fused_is_b;
};

static enum ts_status list_side(struct ts_pairer *pairer, const struct ts_side *side, struct list *list,
                                struct ts_error *error)
{
    *list = (struct list){.items = ts_arena_array(&pairer->scratch, side->count, sizeof *list->items)};
    if (!list->items)
        return ts_fail_memory(error);
    for (size_t i = 0; i < side->count; i++) {
        const struct ts_name *name = &side->read.list[i];
        if (side->taken[i] || name->rank >= 0 || name->expert >= 0 || !side->bundle->tensors[i]->count ||
            !(name->stacked || name->layer >= 0))
            continue;
        list->items[list->count++] =
            (struct ts_called){.kind = name->kind,
                               .scope = name->scope,
                               .label = side->labels[i],
                               .layer = name->stacked ? -1 : name->layer - (side == &pairer->a ? pairer->offset : 0),
                               .index = i};
        list->stacks = list->stacks || name->stacked;
    }
    if (list->count)
        qsort(list->items, list->count, sizeof *list->items, ts_by_called);
    return TS_OK;
}

/* label and scope are NULL for any; no scope without a label. */
static int compare_called(const struct ts_called *one, const char *kind, const char *label, const char *scope)
{
    int order = strcmp(one->kind, kind);
    order = order || !label ? order : strcmp(one->label, label);
    return order || !scope ? order : strcmp(one->scope, scope);
}

/* The first of those that are called so; list->count when there is none. */
static size_t first_of(const struct list *list, const char *kind, const char *label, const char *scope)
{
    size_t low = 0, high = list->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (compare_called(&list->items[middle], kind, label, scope) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < list->count && compare_called(&list->items[low], kind, label, scope) == 0 ? low : list->count;
}

/* Those from `from` on that have one kind, one file and one part of a model; *next: where others begin. False where a
 * layer is there twice, or some are of all layers and others are not, or sizes differ. */
static bool find_kin(const struct ts_side *side, const struct list *list, size_t from, struct kin *kin, size_t *next)
{
    const struct ts_called *first = &list->items[from];
    bool fine = true;
    size_t to = from;
    for (; to < list->count && strcmp(list->items[to].kind, first->kind) == 0 &&
           strcmp(list->items[to].label, first->label) == 0 && strcmp(list->items[to].scope, first->scope) == 0;
         to++) {
        const struct ts_called *item = &list->items[to];
        fine = fine && !side->taken[item->index] &&
               (to == from ||
                (first->layer >= 0 && item->layer != item[-1].layer &&
                 ts_tensor_same_shape(side->bundle->tensors[item->index], side->bundle->tensors[first->index])));
    }
    *next = to;
    *kin = (struct kin){.items = first, .count = to - from, .stack = first->layer < 0};
    return fine;
}

/* The kin of a kind that belongs to the same part of a model, or the only one there is: among many nobody looks for
 * that. */
static bool find_like(const struct ts_side *side, const struct list *list, const char *kind,
                      const struct ts_called *like, struct kin *kin)
{
    size_t at = first_of(list, kind, like->label, like->scope), next, others = 0, seen = 0;
    if (at < list->count && find_kin(side, list, at, kin, &next))
        return true;
    for (at = first_of(list, kind, like->label, NULL);
         at < list->count && compare_called(&list->items[at], kind, like->label, NULL) == 0; at = next) {
        struct kin now;
        if (find_kin(side, list, at, &now, &next) && !others++)
            *kin = now;
        if (others > 1 || ++seen > MOST_KIN)
            return false;
    }
    return others == 1;
}

/* Both sides have the same layers, and just one of them has all in one tensor. */
static bool same_layers(struct kinship *kinship)
{
    const struct kin *first = &kinship->parts[0];
    for (size_t i = 1; i < kinship->count; i++) {
        if (kinship->parts[i].stack != first->stack || kinship->parts[i].count != first->count)
            return false;
        for (size_t k = 0; k < first->count && !first->stack; k++)
            if (kinship->parts[i].items[k].layer != first->items[k].layer)
                return false;
    }
    if (kinship->fused.stack == first->stack)
        return false;
    kinship->layers = first->stack ? kinship->fused.count : first->count;
    return true;
}

/* What one layer of a kin is: the tensor itself, or an entry of the axis of the stack. */
static bool open_layer(const struct kin *kin, const struct ts_side *side, uint64_t layer, unsigned axis,
                       struct ts_arena *arena, struct ts_view *view)
{
    const struct ts_tensor *tensor = side->bundle->tensors[kin->items[kin->stack ? 0 : layer].index];
    uint64_t shape[TS_MAX_RANK];
    unsigned rank = 0;
    if (!ts_view_of(tensor, arena, view))
        return false;
    if (axis == TS_NO_AXIS)
        return true;
    if (axis >= tensor->rank || layer >= tensor->shape[axis] || !ts_view_slice(view, axis, layer, 1, 1, arena, view))
        return false;
    for (unsigned i = 0; i < tensor->rank; i++)
        if (i != axis)
            shape[rank++] = tensor->shape[i];
    return ts_view_reshape(view, shape, rank, arena, view);
}

static const struct ts_tensor *tensor_of(const struct kin *kin, const struct ts_side *side, uint64_t layer)
{
    return side->bundle->tensors[kin->items[kin->stack ? 0 : layer].index];
}

/* "x[:,2]", as `tsleuth show` takes it: two axes may be fixed. NULL without memory. */
static const char *entry_name(const struct ts_tensor *tensor, unsigned axis, uint64_t entry, struct ts_arena *arena)
{
    struct ts_buffer out;
    const char *name;
    if (axis == TS_NO_AXIS)
        return tensor->name;
    ts_buffer_init(&out, 65536);
    for (unsigned i = 0; i < axis; i++)
        ts_buffer_string(&out, ":,");
    name = out.failed ? NULL
                      : ts_arena_printf(arena, "%s[%.*s%" PRIu64 "]", tensor->name, (int)out.size,
                                        out.size ? out.data : "", entry);
    ts_buffer_release(&out);
    return name;
}

/* "A: index 2 of 4 on axis 1" */
static const char *entry_words(char side, uint64_t entry, uint64_t of, unsigned axis, struct ts_arena *arena)
{
    return ts_arena_printf(arena, "%c: index %" PRIu64 " of %" PRIu64 " on axis %u", side, entry, of, axis);
}

static const struct ts_side *fused_side(const struct ts_pairer *pairer, const struct kinship *kinship)
{
    return kinship->fused_is_b ? &pairer->b : &pairer->a;
}

static const struct ts_side *part_side(const struct ts_pairer *pairer, const struct kinship *kinship)
{
    return kinship->fused_is_b ? &pairer->a : &pairer->b;
}

/* The job of one layer. axis: of the stacks. *fits is false where sizes do not allow it. */
static enum ts_status open_job(struct ts_pairer *pairer, const struct kinship *kinship, uint64_t layer, unsigned axis,
                               struct ts_arena *arena, struct ts_cut_job *job, bool *fits, struct ts_error *error)
{
    const struct ts_side *side = fused_side(pairer, kinship), *other = part_side(pairer, kinship);
    job->shard_count = 1;
    job->shards = ts_arena_array(arena, 1, sizeof *job->shards);
    if (!job->shards)
        return ts_fail_memory(error);
    *fits = open_layer(&kinship->fused, side, layer, kinship->fused.stack ? axis : TS_NO_AXIS, arena, job->shards);
    /* [in, 3, heads, size]: everything but the inputs is one axis for whoever cuts it */
    if (*fits && job->matrices && job->shards->rank > 2 && !strstr(kinship->fused.items[0].kind, "_exps"))
        *fits = ts_view_reshape(job->shards,
                                (uint64_t[]){job->shards->shape[0], job->shards->count / job->shards->shape[0]}, 2,
                                arena, job->shards);
    for (size_t i = 0; i < kinship->count && *fits; i++) {
        const struct kin *part = &kinship->parts[i];
        job->kinds[i] = part->items[0].kind;
        job->part_words[i] = "";
        *fits = open_layer(part, other, layer, part->stack ? axis : TS_NO_AXIS, arena, &job->parts[i]);
    }
    return TS_OK;
}

/* How well layers agree under an axis. */
static enum ts_status look(struct ts_pairer *pairer, const struct kinship *kinship, const struct ts_cut_job *plan,
                           unsigned axis, struct ts_cut_score *score, struct ts_error *error)
{
    const uint64_t looks = kinship->layers < LOOKS ? kinship->layers : LOOKS;
    enum ts_status status = TS_OK;
    *score = (struct ts_cut_score){.possible = true};
    for (uint64_t i = 0; i < looks && status == TS_OK && score->possible; i++) {
        struct ts_cut_job job = *plan;
        struct ts_cut_score now = {0};
        struct ts_arena arena;
        bool fits, ambiguous;
        ts_arena_init(&arena, (size_t)64 << 20);
        status = open_job(pairer, kinship, looks > 1 ? i * (kinship->layers - 1) / (looks - 1) : 0, axis, &arena, &job,
                          &fits, error);
        if (status == TS_OK && fits)
            status = ts_cut_choose(&job, &now, &ambiguous, error);
        score->possible = fits && now.possible;
        score->agreeing += now.agreeing;
        score->error = now.error > score->error ? now.error : score->error;
        ts_arena_release(&arena);
    }
    return status;
}

/* The axis that counts layers. *axis is TS_NO_AXIS where none can, or values do not tell which of several. */
static enum ts_status choose_axis(struct ts_pairer *pairer, const struct kinship *kinship,
                                  const struct ts_cut_job *plan, unsigned *axis, bool *proved, bool *tied,
                                  struct ts_error *error)
{
    const struct kin *stack = kinship->fused.stack ? &kinship->fused : &kinship->parts[0];
    const struct ts_side *side = kinship->fused.stack ? fused_side(pairer, kinship) : part_side(pairer, kinship);
    const struct ts_tensor *whole = tensor_of(stack, side, 0);
    struct ts_cut_score best = {0};
    size_t possible = 0;
    *axis = TS_NO_AXIS;
    *tied = false;
    for (unsigned i = 0; i < whole->rank; i++) {
        struct ts_cut_score now;
        if (whole->shape[i] != kinship->layers)
            continue;
        TS_TRY(look(pairer, kinship, plan, i, &now, error));
        if (!now.possible && !now.agreeing)
            continue;
        possible++;
        if (now.agreeing > best.agreeing || (now.agreeing == best.agreeing && now.error < best.error) ||
            *axis == TS_NO_AXIS) {
            *tied = *axis != TS_NO_AXIS && now.agreeing == best.agreeing &&
                    best.error <= TS_STACK_AS_WELL * now.error + 1e-12;
            best = now;
            *axis = i;
        } else if (now.agreeing == best.agreeing && now.error <= TS_STACK_AS_WELL * best.error + 1e-12) {
            *tied = true;
        }
    }
    *proved = best.agreeing > 0;
    if (!*proved && possible > 1)
        *axis = TS_NO_AXIS;
    return TS_OK;
}

static enum ts_status pair_layers(struct ts_pairer *pairer, const struct kinship *kinship,
                                  const struct ts_cut_job *plan, unsigned axis, bool tied, struct ts_error *error)
{
    struct ts_arena *arena = &pairer->out->arena;
    const struct ts_side *side = fused_side(pairer, kinship), *other = part_side(pairer, kinship);
    for (uint64_t layer = 0; layer < kinship->layers; layer++) {
        struct ts_cut_job job = *plan;
        struct ts_slot fused = {.count = 1, .kind = TS_SLOT_SINGLE}, parts[TS_CUT_PARTS];
        const struct ts_slot *slots[TS_CUT_PARTS];
        size_t fused_index = kinship->fused.items[kinship->fused.stack ? 0 : layer].index, indices[TS_CUT_PARTS];
        const size_t before = pairer->count;
        bool fits, done;
        TS_TRY(open_job(pairer, kinship, layer, axis, arena, &job, &fits, error));
        if (!fits)
            continue;
        fused.indices = &fused_index;
        job.fused_name =
            entry_name(tensor_of(&kinship->fused, side, layer), kinship->fused.stack ? axis : TS_NO_AXIS, layer, arena);
        job.before =
            entry_words(kinship->fused.stack == kinship->fused_is_b ? 'B' : 'A', layer, kinship->layers, axis, arena);
        if (!job.fused_name || !job.before)
            return ts_fail_memory(error);
        for (size_t i = 0; i < kinship->count; i++) {
            const struct kin *part = &kinship->parts[i];
            indices[i] = part->items[part->stack ? 0 : layer].index;
            parts[i] = (struct ts_slot){.indices = &indices[i], .count = 1, .kind = TS_SLOT_SINGLE};
            slots[i] = &parts[i];
            job.part_names[i] =
                entry_name(tensor_of(part, other, layer), part->stack ? axis : TS_NO_AXIS, layer, arena);
            if (!job.part_names[i])
                return ts_fail_memory(error);
        }
        TS_TRY(ts_cut_pair(&job, &fused, slots, true, &done, error));
        for (size_t i = before; i < pairer->count; i++)
            pairer->found[i].pair.ambiguous = pairer->found[i].pair.ambiguous || tied;
    }
    return TS_OK;
}

static enum ts_status try_rule(struct ts_pairer *pairer, const struct ts_cut_rule *rule, const char *ending,
                               bool fused_is_b, const struct list *fused, const struct list *parts,
                               struct ts_error *error)
{
    const struct ts_cut_job plan = {.pairer = pairer,
                                    .fused_is_b = fused_is_b,
                                    .count = rule->count,
                                    .weights = *ending != '\0',
                                    .matrices = strcmp(ending, ".weight") == 0};
    struct kinship kinship = {.count = rule->count, .fused_is_b = fused_is_b};
    const struct ts_side *side = fused_side(pairer, &kinship), *other = part_side(pairer, &kinship);
    char kind[64];
    size_t next;
    snprintf(kind, sizeof kind, "%s%s", rule->fused, ending);
    for (size_t at = first_of(fused, kind, NULL, NULL); at < fused->count && strcmp(fused->items[at].kind, kind) == 0;
         at = next) {
        bool found = find_kin(side, fused, at, &kinship.fused, &next), proved, tied;
        unsigned axis;
        if (atomic_load(&ts_cancelled))
            return ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
        for (size_t i = 0; i < rule->count && found; i++) {
            char part[64];
            snprintf(part, sizeof part, "%s%s", rule->parts[i], ending);
            found = find_like(other, parts, part, kinship.fused.items, &kinship.parts[i]);
        }
        if (!found || !same_layers(&kinship))
            continue;
        TS_TRY(choose_axis(pairer, &kinship, &plan, &axis, &proved, &tied, error));
        if (axis != TS_NO_AXIS)
            TS_TRY(pair_layers(pairer, &kinship, &plan, axis, tied && proved, error));
    }
    return TS_OK;
}

/* A cache of both of each layer, and the keys and the values of all: the axis of the parts in the first, that of the
 * layers in the others. */
struct cache_way {
    unsigned part_axis, layer_axis;
    size_t agreeing;
    double error;
};

static bool open_cache(const struct ts_pairer *pairer, const struct kinship *kinship, const struct cache_way *way,
                       uint64_t layer, unsigned part, struct ts_arena *arena, struct ts_view *piece,
                       struct ts_view *entry)
{
    const struct kin one = {.items = &kinship->fused.items[layer], .count = 1, .stack = true};
    return open_layer(&one, fused_side(pairer, kinship), part, way->part_axis, arena, piece) &&
           open_layer(&kinship->parts[part], part_side(pairer, kinship), layer, way->layer_axis, arena, entry);
}

static enum ts_status look_at_caches(struct ts_pairer *pairer, const struct kinship *kinship, struct cache_way *way,
                                     bool *fits, struct ts_error *error)
{
    const uint64_t looks = kinship->layers < LOOKS ? kinship->layers : LOOKS;
    enum ts_status status = TS_OK;
    *fits = true;
    way->agreeing = 0;
    way->error = 0;
    for (uint64_t i = 0; i < 2 * looks && status == TS_OK && *fits; i++) {
        const uint64_t layer = looks > 1 ? i / 2 * (kinship->layers - 1) / (looks - 1) : 0;
        struct ts_align_hints hints = {.weights = false};
        struct ts_alignment alignment;
        struct ts_view piece, entry;
        struct ts_arena arena;
        ts_arena_init(&arena, (size_t)64 << 20);
        *fits = open_cache(pairer, kinship, way, layer, i % 2, &arena, &piece, &entry) && piece.count == entry.count;
        if (*fits) {
            status = ts_align(kinship->fused_is_b ? &entry : &piece, kinship->fused_is_b ? &piece : &entry, &hints,
                              &arena, &alignment, error);
            if (status == TS_OK && !alignment.problem && !alignment.guess && alignment.error < TS_SAME_TENSOR) {
                way->agreeing++;
                way->error = alignment.error > way->error ? alignment.error : way->error;
            }
        }
        ts_arena_release(&arena);
    }
    return status;
}

static enum ts_status pair_caches(struct ts_pairer *pairer, const struct kinship *kinship, const struct cache_way *way,
                                  bool tied, struct ts_error *error)
{
    struct ts_arena *arena = &pairer->out->arena;
    const bool is_b = kinship->fused_is_b;
    for (uint64_t layer = 0; layer < kinship->layers; layer++)
        for (unsigned part = 0; part < 2; part++) {
            const struct ts_tensor *both = tensor_of(&kinship->fused, fused_side(pairer, kinship), layer);
            const struct ts_tensor *all = tensor_of(&kinship->parts[part], part_side(pairer, kinship), 0);
            const size_t fused = kinship->fused.items[layer].index, whole = kinship->parts[part].items[0].index;
            const size_t before = pairer->count;
            const char *words[2] = {entry_words(is_b ? 'B' : 'A', part, 2, way->part_axis, arena),
                                    entry_words(is_b ? 'A' : 'B', layer, kinship->layers, way->layer_axis, arena)};
            const char *names[2] = {entry_name(both, way->part_axis, part, arena),
                                    entry_name(all, way->layer_axis, layer, arena)};
            const char *recipe;
            struct ts_view piece, entry;
            if (!words[0] || !words[1] || !names[0] || !names[1] ||
                !open_cache(pairer, kinship, way, layer, part, arena, &piece, &entry))
                return ts_fail_memory(error);
            TS_TRY(ts_layout_recipes(pairer, words[is_b], words[!is_b], &recipe, error));
            TS_TRY(ts_layout_views(pairer, is_b ? whole : fused, is_b ? fused : whole, is_b ? &entry : &piece,
                                   is_b ? &piece : &entry, recipe, names[is_b], names[!is_b], "canonical name", false,
                                   error));
            pairer->found[before].pair.ambiguous = pairer->found[before].pair.ambiguous || tied;
        }
    return TS_OK;
}

static enum ts_status try_caches(struct ts_pairer *pairer, bool fused_is_b, const struct list *fused,
                                 const struct list *parts, struct ts_error *error)
{
    struct kinship kinship = {.count = 2, .fused_is_b = fused_is_b};
    const struct ts_side *side = fused_side(pairer, &kinship), *other = part_side(pairer, &kinship);
    const size_t first = first_of(fused, "attn_kv_cache", NULL, NULL);
    const struct ts_tensor *both, *all;
    struct cache_way best = {.agreeing = 0};
    size_t next, possible = 0;
    bool tied = false;
    if (first == fused->count || !find_kin(side, fused, first, &kinship.fused, &next) || kinship.fused.stack ||
        !find_like(other, parts, "attn_k_cache", kinship.fused.items, &kinship.parts[0]) ||
        !find_like(other, parts, "attn_v_cache", kinship.fused.items, &kinship.parts[1]) || !same_layers(&kinship))
        return TS_OK;
    both = tensor_of(&kinship.fused, side, 0);
    all = tensor_of(&kinship.parts[0], other, 0);
    for (unsigned i = 0; i < both->rank; i++)
        for (unsigned k = 0; k < all->rank; k++) {
            struct cache_way now = {.part_axis = i, .layer_axis = k};
            bool fits;
            if (both->shape[i] != 2 || all->shape[k] != kinship.layers)
                continue;
            TS_TRY(look_at_caches(pairer, &kinship, &now, &fits, error));
            if (!fits)
                continue;
            if (!possible++ || now.agreeing > best.agreeing ||
                (now.agreeing == best.agreeing && now.error < best.error)) {
                tied =
                    possible > 1 && now.agreeing == best.agreeing && best.error <= TS_STACK_AS_WELL * now.error + 1e-12;
                best = now;
            } else if (now.agreeing == best.agreeing && now.error <= TS_STACK_AS_WELL * best.error + 1e-12) {
                tied = true;
            }
        }
    if (!possible || (!best.agreeing && possible > 1))
        return TS_OK;
    return pair_caches(pairer, &kinship, &best, tied && best.agreeing, error);
}

enum ts_status ts_match_stack_parts(struct ts_pairer *pairer, struct ts_error *error)
{
    static const char *const endings[] = {".weight", ".bias", ""};
    struct list lists[2];
    TS_TRY(list_side(pairer, &pairer->a, &lists[0], error));
    TS_TRY(list_side(pairer, &pairer->b, &lists[1], error));
    if (!lists[0].stacks && !lists[1].stacks)
        return TS_OK;
    for (int is_b = 0; is_b < 2; is_b++) {
        for (size_t i = 0; i < ts_cut_rule_count; i++)
            for (size_t k = 0; k < sizeof endings / sizeof *endings && ts_cut_rules[i].taken == TS_CUT_AS_IT_IS; k++)
                TS_TRY(try_rule(pairer, &ts_cut_rules[i], endings[k], is_b, &lists[is_b], &lists[!is_b], error));
        TS_TRY(try_caches(pairer, is_b, &lists[is_b], &lists[!is_b], error));
    }
    return TS_OK;
}
