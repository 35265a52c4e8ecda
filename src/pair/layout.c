/* Owns how the two sides of one pair are laid out against each other where the names already said that they belong
 * together: as they are, as the conventions store them, or as ts_align finds. Every recipe is proved by values. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/progress.h"
#include "pair/pairing.h"
#include "read/values.h"

#define RUN 16
/* A look at equal shapes: 64 elements. A choice between recipes: 512, so that every other row is seen in most. */
#define LOOK_RUNS   4
#define CHOOSE_RUNS 32

enum ts_status ts_agree(const struct ts_view *a, const struct ts_view *b, unsigned runs, struct ts_agreement *agreement,
                        struct ts_error *error)
{
    double left[2 * RUN], right[2 * RUN];
    double aa = 0, bb = 0, ab = 0, sum_a = 0, sum_b = 0, difference = 0, between;
    unsigned components = ts_type_info(a->tensor->type)->components;
    size_t used = 0;
    *agreement = (struct ts_agreement){0, 1};
    if (a->count != b->count || components != ts_type_info(b->tensor->type)->components) {
        *agreement = (struct ts_agreement){INFINITY, 0};
        return TS_OK;
    }
    for (unsigned run = 0; run < runs && a->count; run++) {
        size_t length = a->count < RUN ? (size_t)a->count : RUN;
        /* multiples of the golden ratio spread evenly, however many there are */
        double share = (run + 0.5) * 0.6180339887498949;
        uint64_t first = (uint64_t)((share - floor(share)) * (double)(a->count - length + 1));
        if (a->count <= (uint64_t)RUN * runs) { /* all of it, run by run */
            first = (uint64_t)run * RUN;
            if (first >= a->count)
                break;
            length = a->count - first < RUN ? (size_t)(a->count - first) : RUN;
        } else if (first > a->count - length) {
            first = a->count - length;
        }
        /* most of what pairing takes, of many tensors or from a slow disk, is this */
        if (atomic_load_explicit(&ts_cancelled, memory_order_relaxed))
            return ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
        TS_TRY(ts_view_read_f64(a, first, length, left, error));
        TS_TRY(ts_view_read_f64(b, first, length, right, error));
        for (size_t i = 0; i < length * components; i++) {
            if (!isfinite(left[i]) || !isfinite(right[i]))
                continue;
            aa += left[i] * left[i];
            bb += right[i] * right[i];
            ab += left[i] * right[i];
            sum_a += left[i];
            sum_b += right[i];
            difference += (left[i] - right[i]) * (left[i] - right[i]);
            used++;
        }
    }
    agreement->error = difference == 0 ? 0 : aa > 0 ? sqrt(difference / aa) : INFINITY;
    if (used < 8)
        return TS_OK;
    aa -= sum_a * sum_a / (double)used;
    bb -= sum_b * sum_b / (double)used;
    ab -= sum_a * sum_b / (double)used;
    between = aa > 0 && bb > 0 ? sqrt(aa) * sqrt(bb) : 0;
    if (between > 0)
        agreement->correlation = ab / between;
    else
        agreement->correlation = agreement->error < TS_SAME_TENSOR ? 1 : 0;
    return TS_OK;
}

/* What was expected fits so much worse than what was found that it is missing. */
#define STRANGE 4.0
#define NEARLY  1e-4

static enum ts_status note_strange(struct ts_pairer *pairer, const struct ts_pair *pair, enum ts_turn_kind missing,
                                   struct ts_error *error)
{
    if (pairer->strange++)
        return TS_OK;
    return ts_pairer_note(pairer, error, "%s is not stored as llama.cpp wants it for this architecture: %s is missing",
                          (pairer->b.facts.gguf ? &pair->b : &pair->a)->tensor->name,
                          missing == TS_TURN_ADD    ? "the added 1"
                          : missing == TS_TURN_TILE ? "the other order of the heads of v"
                                                    : "the permutation of rows");
}

/* Tries them on a sample; the best is applied to the pair and kept there. *error_left: its error. */
static enum ts_status choose_turn(struct ts_pairer *pairer, const char *kind, struct ts_pair *pair, const char **recipe,
                                  double *error_left, struct ts_error *error)
{
    struct ts_turn turns[TS_MAX_TURNS], *kept;
    struct ts_view *a = &pair->a, *b = &pair->b;
    size_t expected, best = 0, count = ts_layout_list_turns(pairer, kind, a, turns, &expected);
    double least = INFINITY, least_expected = INFINITY;
    enum ts_status status = TS_OK;
    *recipe = "";
    for (size_t i = 0; i < count && status == TS_OK && (least > 0 || i <= expected); i++) {
        struct ts_view turned, *side = turns[i].on_b ? b : a;
        struct ts_agreement agreement;
        struct ts_arena trial; /* a view of many heads has many parts, and most are thrown away */
        ts_arena_init(&trial, (size_t)64 << 20);
        if (ts_layout_turn(&turns[i], side, &trial, &turned)) {
            status = ts_agree(turns[i].on_b ? a : &turned, turns[i].on_b ? &turned : b, CHOOSE_RUNS, &agreement, error);
            if (status == TS_OK && agreement.error < least) {
                least = agreement.error;
                best = i;
            }
            if (status == TS_OK && i == expected)
                least_expected = agreement.error;
        }
        ts_arena_release(&trial);
    }
    *error_left = least;
    TS_TRY(status);
    if (!(least < TS_SAME_TENSOR)) /* no proof either way: as the converter does, if it does anything */
        best = expected;
    else if (expected && best != expected && !(least_expected < STRANGE * least + NEARLY))
        TS_TRY(note_strange(pairer, pair, turns[expected].kind, error));
    if (best) {
        struct ts_view turned;
        if (!ts_layout_turn(&turns[best], turns[best].on_b ? b : a, &pairer->out->arena, &turned))
            return TS_OK;
        *(turns[best].on_b ? b : a) = turned;
        *recipe = ts_layout_turn_text(&turns[best], &pairer->out->arena);
        kept = ts_arena_alloc(&pairer->out->arena, sizeof *kept);
        if (!*recipe || !kept)
            return ts_fail_memory(error);
        *kept = turns[best];
        kept->expected = best == expected;
        pair->turn = kept;
    }
    return TS_OK;
}

/* There is something that a converter might have done to a weight of this kind. */
static bool may_turn(const struct ts_pairer *pairer, size_t a, const struct ts_view *view)
{
    struct ts_turn turns[TS_MAX_TURNS];
    size_t expected;
    return pairer->a.read.list && ts_layout_list_turns(pairer, pairer->a.read.list[a].kind, view, turns, &expected) > 1;
}

/* Axis names of a tensor: declared on the command line, else by whoever wrote the file. */
static const char *axes_of(struct ts_pairer *pairer, char side, const struct ts_tensor *tensor)
{
    const char *declared = ts_dims_of(&pairer->dims, side, tensor->name);
    char *axes;
    if (declared)
        return declared;
    declared = ts_tensor_attribute(tensor, "axes");
    axes = declared ? ts_arena_string(&pairer->scratch, declared) : NULL;
    for (char *at = axes; at && *at; at++)
        if (*at == ',')
            *at = ' ';
    return axes;
}

enum ts_status ts_layout_recipes(struct ts_pairer *pairer, const char *first, const char *second, const char **out,
                                 struct ts_error *error)
{
    *out = !*first ? second : !*second ? first : ts_arena_printf(&pairer->out->arena, "%s; %s", first, second);
    return *out ? TS_OK : ts_fail_memory(error);
}

/* The axes have names on both sides, and not the same. */
static bool axes_differ(struct ts_pairer *pairer, size_t a, size_t b)
{
    const struct ts_tensor *left = pairer->a.bundle->tensors[a], *right = pairer->b.bundle->tensors[b];
    const char *axes_a, *axes_b;
    if (!pairer->dims.count && !(left->attributes && right->attributes))
        return false;
    axes_a = axes_of(pairer, 'A', left);
    axes_b = axes_of(pairer, 'B', right);
    return axes_a && axes_b && strcmp(axes_a, axes_b) != 0;
}

/* By its ending, or where nearly everything is a weight, by what its name means: A_log. */
static bool is_weight(const struct ts_side *side, size_t index)
{
    return ts_is_parameter(side->names[index]) || side->facts.gguf ||
           (side->facts.weights && side->read.list && side->read.list[index].weight);
}

bool ts_layout_weights(const struct ts_pairer *pairer, size_t a, size_t b)
{
    return is_weight(&pairer->a, a) && is_weight(&pairer->b, b);
}

struct ts_align_hints ts_layout_hints(struct ts_pairer *pairer, size_t a, size_t b, bool weights)
{
    struct ts_align_hints hints = {.axes_a = axes_of(pairer, 'A', pairer->a.bundle->tensors[a]),
                                   .axes_b = axes_of(pairer, 'B', pairer->b.bundle->tensors[b]),
                                   .weights = weights,
                                   .lengths = &pairer->lengths};
    uint64_t heads = ts_layout_heads(pairer, "attn_q");
    const struct ts_name *name = pairer->a.read.list ? &pairer->a.read.list[a] : NULL;
    hints.separate = name && name->known && !strstr(name->kind, "qkv") && !strstr(name->kind, "gate_up");
    hints.heads = heads < TS_MAX_HEADS ? (unsigned)heads : 0;
    return hints;
}

/* Whether `turned` has the axes of `view`, none of them cut or joined, and no two of them of one size. */
static bool turns_axes_by_size(const struct ts_view *view, const struct ts_view *turned)
{
    unsigned axes = 0, found = 0;
    if (view->join != TS_JOIN_NONE || turned->join != TS_JOIN_NONE || view->offset != turned->offset)
        return false;
    for (unsigned i = 0; i < view->rank; i++) {
        if (view->shape[i] == 1)
            continue;
        axes++;
        for (unsigned k = 0; k < i; k++)
            if (view->shape[k] == view->shape[i])
                return false;
        for (unsigned k = 0; k < turned->rank; k++)
            found += turned->shape[k] == view->shape[i] && turned->strides[k] == view->strides[i];
    }
    return axes > 1 && found == axes && view->count == turned->count;
}

/* llama.cpp keeps the decay of a state as it is used, others its logarithm: -exp of the others' stands against it,
 * unless the values agree without. */
static enum ts_status try_decay(struct ts_pairer *pairer, size_t a, struct ts_view *view_a, struct ts_view *view_b,
                                const char **recipe, struct ts_error *error)
{
    const bool gguf_is_b = pairer->b.facts.gguf;
    struct ts_view *logarithm = gguf_is_b ? view_a : view_b;
    struct ts_agreement agreement;
    if (pairer->a.facts.gguf == gguf_is_b || !pairer->a.read.list || view_a->count != view_b->count ||
        strcmp(pairer->a.read.list[a].kind, "ssm_a.weight") != 0)
        return TS_OK;
    TS_TRY(ts_agree(view_a, view_b, CHOOSE_RUNS, &agreement, error));
    if (agreement.error < TS_SAME_TENSOR)
        return TS_OK;
    logarithm->decay = true;
    return ts_layout_recipes(pairer, *recipe, gguf_is_b ? "A: -exp(w)" : "B: -exp(w)", recipe, error);
}

/* [channels, 1, 4] against [channels, 4], of a weight whose rows a converter may have moved: axes of 1 go first. */
static enum ts_status squeeze_long(struct ts_pairer *pairer, size_t a, struct ts_view *long_one,
                                   const struct ts_view *other, char side, const char **recipe, struct ts_error *error)
{
    char words[8 * TS_MAX_RANK] = "";
    const char *text;
    unsigned rank = 0;
    size_t used = 0;
    if (long_one->rank <= other->rank)
        return TS_OK;
    for (unsigned i = 0; i < long_one->rank; i++)
        if (rank < other->rank && long_one->shape[i] == other->shape[rank])
            rank++;
        else if (long_one->shape[i] == 1)
            used += (size_t)snprintf(words + used, sizeof words - used, " %u", i);
        else
            return TS_OK;
    if (rank < other->rank || !may_turn(pairer, a, other) ||
        !ts_view_reshape(long_one, other->shape, rank, &pairer->out->arena, long_one))
        return TS_OK;
    text = ts_arena_printf(&pairer->out->arena, "%c: squeeze%s", side, words);
    return text ? ts_layout_recipes(pairer, *recipe, text, recipe, error) : ts_fail_memory(error);
}

/* Complex numbers on both sides, or on none. */
static bool same_parts(const struct ts_view *a, const struct ts_view *b)
{
    return ts_type_info(a->tensor->type)->components == ts_type_info(b->tensor->type)->components;
}

enum ts_status ts_layout_views(struct ts_pairer *pairer, size_t a, size_t b, const struct ts_view *view_a,
                               const struct ts_view *view_b, const char *recipe, const char *name, const char *name_b,
                               const char *how, bool same, struct ts_error *error)
{
    struct ts_pair pair = {.name = name, .name_b = name_b, .a = *view_a, .b = *view_b, .how = how};
    struct ts_align_hints hints;
    struct ts_alignment alignment;
    struct ts_agreement agreement;
    TS_TRY(try_decay(pairer, a, &pair.a, &pair.b, &recipe, error));
    TS_TRY(squeeze_long(pairer, a, &pair.a, &pair.b, 'A', &recipe, error));
    TS_TRY(squeeze_long(pairer, a, &pair.b, &pair.a, 'B', &recipe, error));
    pair.recipe = recipe;
    TS_TRY(ts_layout_flags(pairer, &pair, error));
    recipe = pair.recipe;
    if (pair.problem)
        return ts_pairer_add(pairer, a, b, &pair, error);
    if (ts_view_same_shape(&pair.a, &pair.b) && same_parts(view_a, view_b) && !axes_differ(pairer, a, b)) {
        bool weights = ts_layout_weights(pairer, a, b);
        double left;
        const char *turned = "";
        /* The same name in the same convention means the same layout: another one is a finding. Weights are the
         * exception, since transposes of square ones belong to their neighbours that are not square. */
        if ((same && !weights) || (same && view_a->rank < 2) || view_a->count < 2)
            return ts_pairer_add(pairer, a, b, &pair, error);
        TS_TRY(ts_agree(&pair.a, &pair.b, LOOK_RUNS, &agreement, error));
        /* what a converter did may be small beside the weights: 1 + w is nearly w where w is large */
        if ((agreement.error < 0.05 && !(!same && weights && may_turn(pairer, a, view_a))) ||
            (same && agreement.correlation >= 0.5))
            return ts_pairer_add(pairer, a, b, &pair, error);
        if (!same && pairer->a.read.list && weights) {
            TS_TRY(choose_turn(pairer, pairer->a.read.list[a].kind, &pair, &turned, &left, error));
            TS_TRY(ts_layout_recipes(pairer, recipe, turned, &pair.recipe, error));
            pair.guess = !(left < TS_SAME_TENSOR);
            if (*turned || left < TS_SAME_TENSOR)
                return ts_pairer_add(pairer, a, b, &pair, error);
        }
        /* fused weights in two orders have some of their rows in common */
        if (agreement.correlation >= 0.5 &&
            !(!same && weights && pairer->a.read.list && strstr(pairer->a.read.list[a].kind, "qkv")))
            return ts_pairer_add(pairer, a, b, &pair, error);
    }
    /* where another tool wrote the file, or nothing but the content speaks, equal shapes may be permuted as well */
    hints = ts_layout_hints(pairer, a, b, !same || ts_layout_weights(pairer, a, b));
    TS_TRY(ts_align(&pair.a, &pair.b, &hints, &pairer->out->arena, &alignment, error));
    pair.a = alignment.a;
    pair.b = alignment.b;
    pair.ambiguous = alignment.ambiguous;
    pair.zeros = alignment.zeros;
    /* [heads, tokens, size] against [tokens, heads, size]: sizes tell which axis is which, whatever the values */
    pair.by_size =
        alignment.guess && turns_axes_by_size(view_a, &alignment.a) && turns_axes_by_size(view_b, &alignment.b);
    pair.guess = alignment.guess && !pair.by_size;
    pair.problem = alignment.problem;
    TS_TRY(ts_layout_recipes(pairer, recipe, alignment.recipe ? alignment.recipe : "", &pair.recipe, error));
    return ts_pairer_add(pairer, a, b, &pair, error);
}

enum ts_status ts_layout_single(struct ts_pairer *pairer, size_t a, size_t b, const char *how, bool same,
                                struct ts_error *error)
{
    const struct ts_tensor *left = pairer->a.bundle->tensors[a], *right = pairer->b.bundle->tensors[b];
    struct ts_view view_a, view_b;
    const char *recipe = "";
    if (!ts_view_of(left, &pairer->out->arena, &view_a) || !ts_view_of(right, &pairer->out->arena, &view_b))
        return ts_fail_memory(error);
    if (left->whole_shape && !right->whole_shape)
        ts_sample_corners(&view_b, left, 'B', "", &pairer->out->arena, &recipe);
    else if (right->whole_shape && !left->whole_shape)
        ts_sample_corners(&view_a, right, 'A', "", &pairer->out->arena, &recipe);
    else if (left->sampled && !right->sampled)
        TS_TRY(ts_sample_ends(&view_b, left, 'B', &pairer->out->arena, &recipe, error));
    else if (right->sampled && !left->sampled)
        TS_TRY(ts_sample_ends(&view_a, right, 'A', &pairer->out->arena, &recipe, error));
    return ts_layout_views(pairer, a, b, &view_a, &view_b, recipe ? recipe : "", left->name, right->name, how, same,
                           error);
}

enum ts_status ts_layout_proved(struct ts_pairer *pairer, size_t a, size_t b, const char *how, struct ts_error *error)
{
    size_t before = pairer->count;
    const struct ts_pair *pair;
    struct ts_agreement agreement = {INFINITY, 0};
    TS_TRY(ts_layout_single(pairer, a, b, how, false, error));
    pair = &pairer->found[before].pair;
    if (!pair->problem && !pair->guess)
        TS_TRY(ts_agree(&pair->a, &pair->b, CHOOSE_RUNS, &agreement, error));
    if (agreement.correlation < 0.8 || agreement.error > TS_SAME_TENSOR) { /* taken back */
        pairer->count = before;
        pairer->a.taken[a] = pairer->b.taken[b] = false;
    }
    return TS_OK;
}

enum ts_status ts_layout_shards_proved(struct ts_pairer *pairer, size_t whole, const size_t *shards, size_t count,
                                       bool shards_are_b, const char *how, struct ts_error *error)
{
    struct ts_side *whole_side = shards_are_b ? &pairer->a : &pairer->b;
    struct ts_side *shard_side = shards_are_b ? &pairer->b : &pairer->a;
    const size_t before = pairer->count, lacking = pairer->out->lacking;
    const uint64_t lacking_of[2] = {pairer->lacking_of[0], pairer->lacking_of[1]};
    const struct ts_pair *pair;
    struct ts_agreement agreement = {INFINITY, 0};
    TS_TRY(ts_layout_shards(pairer, whole, shards, count, shards_are_b, how, error));
    pair = &pairer->found[before].pair;
    if (!pair->problem && !pair->guess)
        TS_TRY(ts_agree(&pair->a, &pair->b, CHOOSE_RUNS, &agreement, error));
    if (agreement.correlation < 0.8 || agreement.error > TS_SAME_TENSOR) { /* taken back */
        pairer->count = before;
        pairer->out->lacking = lacking;
        memcpy(pairer->lacking_of, lacking_of, sizeof lacking_of);
        whole_side->taken[whole] = false;
        for (size_t i = 0; i < count; i++)
            shard_side->taken[shards[i]] = false;
    }
    return TS_OK;
}

const char *ts_layout_common_name(const struct ts_side *side, const size_t *indices, size_t count,
                                  struct ts_arena *arena)
{
    const char *first = side->bundle->tensors[indices[0]]->name;
    size_t length = strlen(first), head = length, tail = length;
    if (count == 1)
        return first;
    for (size_t i = 1; i < count; i++) {
        const char *name = side->bundle->tensors[indices[i]]->name;
        size_t other = strlen(name), same_head = 0, same_tail = 0;
        while (same_head < head && same_head < other && name[same_head] == first[same_head])
            same_head++;
        while (same_tail < tail && same_tail < other - same_head && same_tail < length - same_head &&
               name[other - 1 - same_tail] == first[length - 1 - same_tail])
            same_tail++;
        head = same_head;
        tail = same_tail;
    }
    return ts_arena_printf(arena, "%.*s*%s", (int)head, first, first + length - tail);
}

const char *ts_layout_members(const struct ts_side *side, const size_t *indices, size_t count, struct ts_arena *arena)
{
    struct ts_buffer list;
    const char *text;
    ts_buffer_init(&list, (size_t)64 << 20);
    for (size_t i = 0; i < count; i++) {
        if (i)
            ts_buffer_string(&list, " + ");
        ts_map_put_name(&list, side->bundle->tensors[indices[i]]->name);
    }
    text = list.failed ? NULL : ts_arena_copy(arena, list.data, list.size);
    ts_buffer_release(&list);
    return text;
}

/* A print of the whole against shards that are its pieces: joined along the axis under which the corners agree best.
 * *done is false when none has the right size. */
static enum ts_status join_for_corners(struct ts_pairer *pairer, const struct ts_view *print, struct ts_view *shards,
                                       size_t count, char side, struct ts_view *joined, const char **recipe, bool *done,
                                       struct ts_error *error)
{
    struct ts_arena *arena = &pairer->out->arena;
    double least = INFINITY;
    *done = false;
    for (unsigned axis = 0; axis < shards[0].rank; axis++) {
        struct ts_view view;
        struct ts_agreement agreement;
        unsigned match[TS_MAX_RANK];
        const char *before = ts_arena_printf(arena, "join %zu shards on axis %u", count, axis), *words = "";
        if (!before)
            return ts_fail_memory(error);
        if (!ts_view_join(TS_JOIN_CONCAT, axis, shards, count, arena, &view) ||
            !ts_sample_fits(&view, print->tensor, match) ||
            !ts_sample_corners(&view, print->tensor, side, before, arena, &words) || view.count != print->count)
            continue;
        TS_TRY(ts_agree(print, &view, CHOOSE_RUNS, &agreement, error));
        if (*done && !(agreement.error < least))
            continue;
        *done = true;
        *joined = view;
        *recipe = words;
        least = agreement.error;
    }
    return TS_OK;
}

/* Rows of q and k that one side has permuted, as llama.cpp and Meta's own files do: where ranks hold the tensor of the
 * other side, the whole or every shard is turned first. *alignment is replaced when the values agree then. */
static enum ts_status turn_shards(struct ts_pairer *pairer, const char *kind, const struct ts_view *whole,
                                  const struct ts_view *shards, size_t count, bool shards_are_b,
                                  const struct ts_align_hints *hints, struct ts_alignment *alignment,
                                  const char **recipe, struct ts_error *error)
{
    struct ts_turn turns[TS_MAX_TURNS];
    size_t expected, turn_count = ts_layout_list_turns(pairer, kind, whole, turns, &expected);
    struct ts_view *parts = ts_arena_array(&pairer->scratch, count, sizeof *parts);
    if (!parts)
        return ts_fail_memory(error);
    for (size_t i = 1; i < turn_count; i++) {
        const bool of_shards = turns[i].on_b == shards_are_b;
        struct ts_view turned = *whole;
        struct ts_alignment other;
        bool fits = turns[i].kind == TS_TURN_ROWS && (!of_shards || turns[i].heads % count == 0);
        memcpy(parts, shards, count * sizeof *parts);
        if (fits && !of_shards)
            fits = ts_layout_turn_rows(whole, turns[i].heads, &pairer->out->arena, &turned);
        for (size_t k = 0; k < count && fits && of_shards; k++)
            fits = ts_layout_turn_rows(&shards[k], turns[i].heads / count, &pairer->out->arena, &parts[k]);
        if (!fits)
            continue;
        TS_TRY(ts_align_shards(&turned, parts, count, shards_are_b, hints, &pairer->out->arena, &other, error));
        if (other.guess || other.problem)
            continue;
        *alignment = other;
        *recipe = ts_layout_turn_text(&turns[i], &pairer->out->arena);
        return *recipe ? TS_OK : ts_fail_memory(error);
    }
    return TS_OK;
}

enum ts_status ts_layout_shards(struct ts_pairer *pairer, size_t whole, const size_t *shards, size_t count,
                                bool shards_are_b, const char *how, struct ts_error *error)
{
    struct ts_arena *arena = &pairer->out->arena;
    const struct ts_side *whole_side = shards_are_b ? &pairer->a : &pairer->b;
    struct ts_side *shard_side = shards_are_b ? &pairer->b : &pairer->a;
    size_t a = shards_are_b ? whole : shards[0], b = shards_are_b ? shards[0] : whole;
    struct ts_align_hints hints = ts_layout_hints(pairer, a, b, ts_layout_weights(pairer, a, b));
    struct ts_view single, *views = ts_arena_array(arena, count, sizeof *views);
    const char *common = ts_layout_common_name(shard_side, shards, count, arena);
    const struct ts_tensor *printed = whole_side->bundle->tensors[whole];
    const char *name = printed->name, *cut = "", *turned = "";
    const char side = shards_are_b ? 'B' : 'A';
    struct ts_view joined;
    bool done;
    struct ts_alignment alignment;
    struct ts_pair pair = {.how = how};
    if (!views || !common || !ts_view_of(printed, arena, &single))
        return ts_fail_memory(error);
    for (size_t i = 0; i < count; i++)
        if (!ts_view_of(shard_side->bundle->tensors[shards[i]], arena, &views[i]))
            return ts_fail_memory(error);
    if (printed->whole_shape && count > 1) {
        TS_TRY(join_for_corners(pairer, &single, views, count, side, &joined, &cut, &done, error));
        if (done) {
            TS_TRY(ts_layout_views(pairer, a, b, shards_are_b ? &single : &joined, shards_are_b ? &joined : &single,
                                   cut, shards_are_b ? name : common, shards_are_b ? common : name, how, false, error));
            for (size_t i = 0; i < count; i++)
                shard_side->taken[shards[i]] = true;
            return TS_OK;
        }
        /* ranks that hold all of it each */
        for (size_t i = 0; i < count && ts_sample_corners(&views[i], printed, side, "", arena, &cut); i++)
            ;
    }
    hints.ranks[shards_are_b] = ts_ranks_of(pairer, shard_side, shards, count);
    hints.rank_count[shards_are_b] = shard_side->rank_end;
    TS_TRY(ts_align_shards(&single, views, count, shards_are_b, &hints, arena, &alignment, error));
    if (alignment.guess && hints.weights && pairer->a.read.list && !(cut && *cut))
        TS_TRY(turn_shards(pairer, pairer->a.read.list[a].kind, &single, views, count, shards_are_b, &hints, &alignment,
                           &turned, error));
    ts_ranks_lacking(pairer, &alignment);
    if (count > 1 && !(pair.members[shards_are_b] = ts_layout_members(shard_side, shards, count, arena)))
        return ts_fail_memory(error);
    pair.name = shards_are_b ? name : common;
    pair.name_b = shards_are_b ? common : name;
    pair.a = alignment.a;
    pair.b = alignment.b;
    TS_TRY(ts_layout_recipes(pairer, cut ? cut : "", turned, &pair.recipe, error));
    TS_TRY(ts_layout_recipes(pairer, pair.recipe, alignment.recipe ? alignment.recipe : "", &pair.recipe, error));
    pair.ambiguous = alignment.ambiguous;
    pair.zeros = alignment.zeros;
    pair.guess = alignment.guess;
    pair.problem = alignment.problem;
    TS_TRY(ts_pairer_add(pairer, a, b, &pair, error));
    for (size_t i = 0; i < count; i++)
        shard_side->taken[shards[i]] = true;
    if (!pair.problem && alignment.copied[shards_are_b] && !(cut && *cut))
        TS_TRY(ts_ranks_copies(pairer, &pair, shards_are_b, shards, views, count, whole, error));
    return TS_OK;
}
