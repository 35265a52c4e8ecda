/* Owns the building of a case: which rows it holds, their values, and what was expected of them. */
#include "diagnose/case.h"

#include <stdlib.h>
#include <string.h>

#include "compare/gathered.h"

/* Elements of a pair that is read directly: enough for any fit, and read in a moment. */
#define DIRECT_MOST ((uint64_t)1 << 20)
/* An axis that is longer is cut into rows of so many, of which a spread is read. */
#define FOLDED ((uint64_t)1 << 12)
/* Numbers of one side of one tensor that a scene takes. */
#define SEQUENCE_LEAST 4
#define SCENE_MOST     ((uint64_t)1 << 22)
#define SCENE_SOME     ((uint64_t)1 << 20) /* where it is not all of it anyway */
/* Multiplications for a product that is replayed whole: a second or two. */
#define REPLAY_MOST     2e10
#define REPLAY_RESIDUAL 2e-3
#define TURNED_PROBES   32
#define CHOSEN_MOST     64 /* experts of a token */

static enum ts_status read_row(const struct ts_view *view, uint64_t first, size_t numbers, unsigned components,
                               double *out, struct ts_error *error)
{
    return ts_view_read_f64(view, first, numbers / components, out, error);
}

#define BEHIND ((uint64_t)4 << 20) /* elements whose pages may stay resident behind the walk */

/* Rows with the worst elements are among a spread of them. */
static void take_worst_rows(const struct ts_case_state *state, uint64_t last, uint64_t rows)
{
    uint64_t places[2];
    if (!state->face.delta || rows < 8)
        return;
    places[0] = state->face.delta->worst;
    places[1] = state->face.delta->first_non_finite_mismatch;
    for (int k = 0; k < 2; k++) {
        uint64_t wanted = places[k] / last, at = 0;
        while (at + 1 < rows && state->own_rows[at + 1] <= wanted)
            at++;
        if (places[k] != UINT64_MAX && state->own_rows[at] <= wanted)
            state->own_rows[at] = wanted;
    }
}

static enum ts_status load_direct(struct ts_case_state *state, const struct ts_pair *pair,
                                  const struct ts_case_rows *given, struct ts_error *error)
{
    struct ts_actor *actor = &state->own;
    unsigned components =
        ts_type_info(pair->a.tensor->type)->components == 2 && ts_type_info(pair->b.tensor->type)->components == 2 ? 2
                                                                                                                   : 1;
    uint64_t last = pair->a.rank ? pair->a.shape[pair->a.rank - 1] : 1, all, rows, width, forgotten = 0;
    size_t total;
    if (!pair->a.count || !last)
        return TS_OK;
    last = last > DIRECT_MOST ? FOLDED : last; /* what is left over of a folded axis is not looked at */
    width = last * components;
    state->own_last = last;
    all = pair->a.count / last;
    width = width < DIRECT_MOST ? width : DIRECT_MOST;
    rows = all < DIRECT_MOST / width ? all : DIRECT_MOST / width;
    rows = rows ? rows : 1;
    rows = given && given->count < rows ? given->count : rows;
    total = (size_t)(rows * width);
    *actor = (struct ts_actor){.pair = actor->pair,
                               .usable = true,
                               .rows = (size_t)rows,
                               .width = (size_t)width,
                               .heads = 1,
                               .inner = (size_t)width};
    state->complete = rows == all && width == last * components;
    state->own_rows = calloc((size_t)rows, sizeof *state->own_rows);
    actor->a = malloc(total * sizeof *actor->a);
    actor->b = malloc(total * sizeof *actor->b);
    state->expected = malloc(total * sizeof *state->expected);
    state->found = malloc(total * sizeof *state->found);
    if (!state->own_rows || !actor->a || !actor->b || !state->expected || !state->found)
        return ts_fail_memory(error);
    for (size_t row = 0; row < rows; row++)
        state->own_rows[row] = given         ? given->list[row]
                               : rows == all ? row
                               : rows == 1   ? 0
                                             : row * (all - 1) / (rows - 1);
    if (!given && rows < all)
        take_worst_rows(state, last, rows);
    for (size_t row = 0; row < rows; row++) {
        uint64_t from = state->own_rows[row];
        bool known = !state->gathered || state->gathered[from] != SIZE_MAX; /* others are set aside */
        TS_TRY(read_row(known ? &pair->a : &pair->b, (state->gathered && known ? state->gathered[from] : from) * last,
                        (size_t)width, components, state->expected + row * width, error));
        TS_TRY(read_row(&pair->b, from * last, (size_t)width, components, state->found + row * width, error));
        if (from > forgotten + BEHIND / last) { /* and what lies between the rows: the system reads ahead */
            ts_view_forget(&pair->a, forgotten * last, (from - forgotten) * last);
            ts_view_forget(&pair->b, forgotten * last, (from - forgotten) * last);
            forgotten = from;
        }
    }
    for (size_t i = 0; i < total; i++) {
        actor->a[i] = (float)state->expected[i];
        actor->b[i] = (float)state->found[i];
    }
    actor->bits_a = ts_mantissa_bits(actor->a, total);
    actor->bits_b = ts_mantissa_bits(actor->b, total);
    return TS_OK;
}

/* How many experts each token chose, where this is such a choice and it is not the same on both sides; else 0. A vector
 * of more numbers than tokens is no choice, but the order in which experts gathered them. */
static size_t chosen_otherwise(const struct ts_case_state *state, size_t index)
{
    const struct ts_pair *pair = &state->scene.pairs[index];
    const uint64_t tokens = state->scene.tokens;
    uint64_t width = tokens && pair->a.count % tokens == 0 ? pair->a.count / tokens : 0;
    if (pair->problem || !width || width > CHOSEN_MOST || (state->deltas && !state->deltas[index].unequal) ||
        !ts_type_is_integer(pair->a.tensor->type) || !ts_type_is_integer(pair->b.tensor->type) ||
        (width > 1 && pair->a.shape[pair->a.rank - 1] != width))
        return 0;
    return (size_t)width;
}

/* Tokens whose chosen experts differ before this pair were routed otherwise on a near tie (had it been more, the
 * divergence would have been there): they are wrong in their own right and are left out. The same experts in another
 * order make the same sum, but lists of what belongs to each of them. */
void ts_case_set_aside(struct ts_case_state *state, size_t index)
{
    struct ts_scene *scene = &state->scene;
    for (size_t i = 0; i < index; i++) {
        const struct ts_pair *pair = &scene->pairs[i];
        size_t width = chosen_otherwise(state, i);
        bool listed = scene->pairs[index].a.count == width * scene->tokens;
        for (size_t row = 0; row < scene->taken_count && width; row++) {
            struct ts_error ignored;
            int64_t a[CHOSEN_MOST], b[CHOSEN_MOST];
            if (ts_view_read_i64(&pair->a, scene->taken[row] * width, width, a, &ignored) != TS_OK ||
                ts_view_read_i64(&pair->b, scene->taken[row] * width, width, b, &ignored) != TS_OK ||
                memcmp(a, b, width * sizeof *a) == 0)
                continue;
            scene->aside[row] = scene->aside[row] || listed || !ts_are_same_experts(a, b, width);
        }
    }
}

/* A small error that does nothing but follow the result, or that one channel makes, is no rounding: what the judge goes
 * by as well (compare/judge.c). Products round on the way as nothing that was captured tells. */
static bool is_structured(const struct ts_case_state *state, const struct ts_replay *judged)
{
    const struct ts_actor *actor = state->face.actor;
    enum ts_operation_kind kind = state->face.operation.kind;
    bool fine = ts_rounding(actor->bits_b < actor->bits_a ? actor->bits_b : actor->bits_a) < ts_rounding(10);
    if (kind == TS_OPERATION_SCORES || kind == TS_OPERATION_CONTEXT || kind == TS_OPERATION_ROTARY ||
        state->face.total < 64 || !isfinite(judged->ratio))
        return false;
    return (judged->ratio > 2 && fabs(judged->slope) > 0.8) || judged->worst_channel_part > (fine ? 24 : 12);
}

/* Of a batch the sequence with the worst element is enough, and what works across tokens is one thing then. A few
 * tokens say too little alone. */
static void choose_sequence(struct ts_case_state *state, size_t index)
{
    struct ts_scene *scene = &state->scene;
    const struct ts_delta *delta = state->deltas ? &state->deltas[index] : NULL;
    uint64_t token, worst;
    if (!delta || scene->batch <= 1 || scene->tokens / scene->batch < SEQUENCE_LEAST)
        return;
    /* NaN is worse than any number, and is not counted among them */
    worst = delta->first_non_finite_mismatch != UINT64_MAX ? delta->first_non_finite_mismatch : delta->worst;
    if (ts_scene_token(scene, index, worst, &token))
        ts_scene_choose(scene, token);
}

/* Of a long sequence a spread of tokens is looked at. Those where it errs most and first are among them. */
static void take_worst(struct ts_case_state *state, size_t index)
{
    uint64_t places[2], tokens[2];
    size_t count = 0;
    if (!state->deltas)
        return;
    places[0] = state->deltas[index].worst;
    places[1] = state->deltas[index].first_non_finite_mismatch;
    for (size_t i = 0; i < 2; i++)
        if (places[i] != UINT64_MAX && ts_scene_token(&state->scene, index, places[i], &tokens[count]))
            count++;
    ts_scene_take(&state->scene, tokens, count);
}

/* Of a long sequence or a wide tensor some tokens are enough, where all of them would be too much for a scene. */
static void choose_tokens(struct ts_case_state *state, size_t index)
{
    struct ts_scene *scene = &state->scene;
    const struct ts_pair *pairs = scene->pairs;
    size_t wanted = scene->taken_count;
    uint64_t width = 0;
    for (size_t back = 0; back < 4 && back <= index; back++)
        if (!pairs[index - back].problem && scene->tokens && pairs[index - back].a.count / scene->tokens > width)
            width = pairs[index - back].a.count / scene->tokens;
    if (width && wanted > SCENE_MOST / width)
        wanted = SCENE_SOME / width > 8 ? (size_t)(SCENE_SOME / width) : 8;
    if (!scene->tokens || wanted > scene->taken_count || wanted < 8 ||
        (wanted == scene->taken_count && scene->taken_count >= ts_scene_sequence(scene)))
        return;
    ts_glance_measure(&state->glance, scene, index);
    if (state->glance.tokens)
        ts_glance_take(&state->glance, scene, state->face.delta, index, wanted);
    else
        take_worst(state, index);
}

/* The configuration says what the numbers of a token are where heads are folded into one axis. */
static void name_axes(const struct ts_settings *config, const char *name, struct ts_actor *actor)
{
    static const struct {
        const char *kind;
        enum ts_settings_key heads;
    } kinds[] = {{"attn_q", TS_SETTING_HEADS},         {"attn_k", TS_SETTING_KV_HEADS},
                 {"attn_v", TS_SETTING_KV_HEADS},      {"attn_q_norm", TS_SETTING_HEADS},
                 {"attn_k_norm", TS_SETTING_KV_HEADS}, {"attn_q_rope", TS_SETTING_HEADS},
                 {"attn_k_rope", TS_SETTING_KV_HEADS}, {"attn_context", TS_SETTING_HEADS}};
    size_t head = ts_settings_size(config, TS_SETTING_HEAD_DIM), all = ts_settings_size(config, TS_SETTING_HEADS);
    struct ts_arena arena;
    struct ts_names names;
    if (!actor->usable || actor->heads != 1 || !all || actor->rows < 2)
        return;
    head = head ? head : ts_settings_size(config, TS_SETTING_HIDDEN) / all;
    ts_arena_init(&arena, 1 << 20);
    if (head && ts_names_make(&name, 1, 0, &arena, &names))
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            size_t heads = ts_settings_size(config, kinds[i].heads);
            heads = heads ? heads : all;
            if (strcmp(names.list[0].kind, kinds[i].kind) == 0 && actor->width == heads * head) {
                actor->heads = heads;
                actor->inner = head;
            }
        }
    ts_arena_release(&arena);
}

/* A projection that the file's weights make: what is expected is their product with the candidate's own input. */
static void replay_product(struct ts_case_state *state)
{
    const struct ts_actor *actor = state->face.actor;
    double *replayed;
    ts_product_learn(&state->face, state->evidence, &state->product);
    /* what comes behind the product on the way (a softcap), and weights that are rounded otherwise, show as a residual:
     * then the reference says better what is expected */
    if (!state->product.weight || ts_product_work(&state->product, actor) > REPLAY_MOST ||
        state->product.residual > REPLAY_RESIDUAL + 6 * ts_rounding(actor->bits_a))
        return;
    replayed = malloc(state->face.total * sizeof *replayed);
    if (replayed && ts_product_replay(&state->product, actor, replayed)) {
        memcpy(state->expected, replayed, state->face.total * sizeof *replayed);
        state->replayed = true;
    }
    free(replayed);
}

/* A large square whose sides changed places: a sample of its tokens could not show it, as they are columns on the other
 * side. Some numbers tell. */
static bool is_turned_square(const struct ts_pair *pair)
{
    const struct ts_view *view = &pair->a;
    uint64_t side = view->rank ? view->shape[view->rank - 1] : 0;
    double left = 0, size = 0, stays = 0;
    if (side < 2 || view->count / side != side || view->count % side || view->rank < 2 ||
        view->shape[view->rank - 2] != side || pair->b.count != view->count ||
        ts_type_info(view->tensor->type)->components != 1 || ts_type_info(pair->b.tensor->type)->components != 1)
        return false;
    for (uint64_t i = 0; i < TURNED_PROBES; i++) {
        uint64_t row = (i * 2654435761u + 1) % side, column = (i * 40503u * 977u + side / 3) % side;
        struct ts_error ignored;
        double here, there, turned;
        if (ts_view_read_f64(&pair->a, row * side + column, 1, &here, &ignored) != TS_OK ||
            ts_view_read_f64(&pair->b, row * side + column, 1, &there, &ignored) != TS_OK ||
            ts_view_read_f64(&pair->b, column * side + row, 1, &turned, &ignored) != TS_OK)
            return false;
        left += (turned - here) * (turned - here);
        stays += (there - here) * (there - here);
        size += here * here;
    }
    ts_view_forget(&pair->a, 0, pair->a.count);
    ts_view_forget(&pair->b, 0, pair->b.count);
    return left < 0.1 * size && left < 0.1 * stays;
}

enum ts_status ts_case_open(struct ts_case_state *state, const struct ts_pair *pairs, const struct ts_delta *deltas,
                            size_t count, size_t index, const struct ts_evidence *evidence,
                            struct ts_diagnosis *diagnosis, struct ts_error *error)
{
    return ts_case_open_at(state, pairs, deltas, count, index, evidence, NULL, diagnosis, error);
}

/* Which tokens the scene is to hold. */
static void choose_rows(struct ts_case_state *state, const struct ts_case_rows *rows, size_t index)
{
    struct ts_scene *scene = &state->scene;
    if (ts_is_weight(scene->pairs[index].name))
        return;
    if (rows) {
        scene->taken_count = rows->count < scene->taken_count ? rows->count : scene->taken_count;
        memcpy(scene->taken, rows->list, scene->taken_count * sizeof *scene->taken);
        state->glance = *rows->glance;
        state->glance_borrowed = true;
        return;
    }
    choose_sequence(state, index);
    choose_tokens(state, index);
}

/* Rows of experts that are none of the reference's are those of tokens that took other experts. More than these have
 * are wrong: they are held against what is left. */
static void place_lost(struct ts_case_state *state, size_t index)
{
    const struct ts_scene *scene = &state->scene;
    const struct ts_view *view = &scene->pairs[index].a;
    size_t rows = (size_t)(view->count / view->shape[view->rank - 1]), lost = 0, aside = 0, next = 0;
    bool *used = calloc(rows, sizeof *used);
    ts_case_set_aside(state, index);
    for (size_t row = 0; row < scene->taken_count; row++)
        aside += scene->aside[row];
    for (size_t row = 0; row < rows && used; row++) {
        lost += state->gathered[row] == SIZE_MAX;
        if (state->gathered[row] != SIZE_MAX)
            used[state->gathered[row]] = true;
    }
    for (size_t row = 0; row < rows && used && lost * scene->taken_count > aside * rows; row++) {
        if (state->gathered[row] != SIZE_MAX)
            continue;
        while (used[next])
            next++;
        state->gathered[row] = next++;
    }
    free(used);
}

enum ts_status ts_case_open_at(struct ts_case_state *state, const struct ts_pair *pairs, const struct ts_delta *deltas,
                               size_t count, size_t index, const struct ts_evidence *evidence,
                               const struct ts_case_rows *rows, struct ts_diagnosis *diagnosis, struct ts_error *error)
{
    size_t reach = rows && rows->reach < TS_SCENE_WINDOW - 1 ? rows->reach + 1 : TS_SCENE_WINDOW;
    struct ts_actor *actor = NULL;
    struct ts_replay judged;
    bool structured = false;
    double modelled = 0;
    *state =
        (struct ts_case_state){.deltas = deltas, .pair_count = count, .own = {.pair = index}, .evidence = evidence};
    state->face.diagnosis = diagnosis;
    state->face.delta = deltas ? &deltas[index] : NULL;
    state->face.scene = &state->scene;
    state->book = calloc(1, sizeof *state->book);
    if (!state->book)
        return ts_fail_memory(error);
    TS_TRY(ts_scene_open_near(&state->scene, pairs, count, index, error));
    choose_rows(state, rows, index);
    if (deltas && !ts_is_weight(pairs[index].name) &&
        (state->gathered = ts_gathered_order(&pairs[index], &deltas[index])))
        place_lost(state, index);
    if (!ts_is_weight(pairs[index].name) && !state->gathered &&
        !(state->scene.tokens > state->scene.taken_count && is_turned_square(&pairs[index]))) {
        /* what lies further back than the window would be pushed out of it again */
        state->scene.loaded = index + 1 > reach ? index + 1 - reach : 0;
        while (state->scene.loaded <= index) {
            if (!(actor = ts_scene_next(&state->scene, error)))
                return error->status;
            if (evidence)
                name_axes(&evidence->config, pairs[actor->pair].name, actor);
        }
        ts_case_set_aside(state, index);
    }
    state->direct = !actor || !actor->usable;
    if (state->direct) {
        TS_TRY(load_direct(state, &pairs[index], rows, error));
        actor = &state->own;
    }
    state->face.actor = actor;
    state->face.total = actor->rows * actor->width;
    if (!state->face.total)
        return TS_OK;
    if (!state->direct) {
        state->complete = state->face.total == pairs[index].a.count;
        state->expected = malloc(state->face.total * sizeof *state->expected);
        state->found = malloc(state->face.total * sizeof *state->found);
        if (!state->expected || !state->found)
            return ts_fail_memory(error);
        for (size_t i = 0; i < state->face.total; i++) {
            state->expected[i] = (double)actor->a[i];
            state->found[i] = (double)actor->b[i];
        }
        TS_TRY(ts_operation_learn(&state->scene, actor, &state->face.operation, error));
        ts_adapt_norm(&state->face);
        if (state->face.operation.kind != TS_OPERATION_NONE) {
            TS_TRY(ts_case_replay(state, &modelled, error));
            TS_TRY(ts_operation_replay(&state->scene, &state->face.operation, actor, &judged, error));
            modelled = ts_case_agreed_noise(state, &judged, modelled);
            structured = is_structured(state, &judged);
        } else if (evidence) {
            replay_product(state);
        }
    }
    state->face.expected = state->expected;
    state->face.found = state->found;
    ts_case_weigh(state, index, modelled);
    state->quiet = state->quiet && !structured;
    return TS_OK;
}

void ts_case_of_part(struct ts_case_state *part, struct ts_case_state *whole, double *expected, double *found,
                     double noise_factor, const char *about)
{
    struct ts_case *face = &part->face;
    double counted = 0;
    *part = *whole;
    face->operation = (struct ts_operation){0};
    face->expected = part->expected = expected;
    face->found = part->found = found;
    part->about = about;
    part->whole = whole;
    part->part = TS_PART_OTHER;
    part->cached = part->scratch_count = 0;
    part->size = part->elements = face->error = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < face->total; i++) {
            double cost = ts_element_cost(found[i], expected[i], expected[i]);
            if (cost < 0 || ts_case_aside(face, i / face->actor->width))
                continue;
            if (pass) {
                part->elements += cost > 0 && cost * counted > 1e-3 * face->error;
                continue;
            }
            face->error += cost;
            counted += cost > 0;
            part->size += isfinite(found[i]) ? found[i] * found[i] : 0;
        }
    face->noise *= noise_factor;
    face->noise = face->noise < 0.8 * face->error ? face->noise : 0.8 * face->error;
}

void ts_case_release_part(struct ts_case_state *part)
{
    ts_case_drop_scratch(part);
    for (size_t i = 0; i < part->cached; i++)
        free(part->cache[i].values);
}

void ts_case_drop_scratch(struct ts_case_state *state)
{
    for (size_t i = 0; i < state->scratch_count; i++)
        free(state->scratch[i]);
    state->scratch_count = 0;
}

void ts_case_release(struct ts_case_state *state)
{
    ts_case_drop_scratch(state);
    for (size_t i = 0; i < state->cached; i++)
        free(state->cache[i].values);
    free(state->book);
    free(state->own.a);
    free(state->own.b);
    free(state->own_rows);
    free(state->gathered);
    free(state->expected);
    free(state->found);
    ts_operation_release(&state->face.operation);
    ts_arena_release(&state->formulas);
    if (!state->glance_borrowed)
        ts_glance_release(&state->glance);
    ts_scene_release(&state->scene);
}
