#include "compare/judge_ties.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "compare/gathered.h"
#include "tensor/layer.h"
#include "tensor/view_far.h"

#define WIDTH_LEAST  8 /* numbers of a token in what comes out */
#define WIDTH_MOST   16384
#define LOOK_AHEAD   24  /* pairs behind a router */
#define OUTPUTS      4   /* of its layer that are looked at */
#define CHOICE_AHEAD 4   /* pairs behind the logits that may hold the choice */
#define VISIBLE      0.3 /* of what another expert makes of a token: the median token errs by less */
#define CARRIED      0.3 /* relative error of logits, of which attention carried the most from tokens that flipped */

struct ranked {
    float value;
    size_t expert;
};

static int by_rank(const void *one, const void *other)
{
    const struct ranked *a = one, *b = other;
    return a->value != b->value ? (a->value < b->value ? 1 : -1) : a->expert < b->expert ? -1 : a->expert > b->expert;
}

static bool ends_with_word(const char *name, const char *word)
{
    size_t length = strlen(name), size = strlen(word);
    return ts_ends_with(name, word) && (length == size || strchr("._/", name[length - size - 1]));
}

bool ts_judge_is_router(const char *name)
{
    static const char *const others[] = {"weight", "indices", "chosen", "selected", "topk",
                                         "top_k",  "bias",    "norm",   "altup",    "shared"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(name, others[i]))
            return false;
    return strstr(name, "router") || strstr(name, "moe_logits") || strstr(name, "moe_probs") ||
           strstr(name, "gate_inp") || strstr(name, "gate_logits") || strstr(name, "gate.logits") ||
           ends_with_word(name, "gate") || ends_with_word(name, "gating");
}

size_t ts_router_width(const struct ts_judge *state, size_t i)
{
    const struct ts_pair *pair = &state->pairs[i];
    struct ts_token_axis axis;
    uint64_t tokens = state->scene.tokens;
    if (!tokens || pair->problem || pair->guess || pair->a.count % tokens != 0 || pair->a.count != pair->b.count ||
        ts_type_is_integer(pair->a.tensor->type) || ts_type_is_integer(pair->b.tensor->type) ||
        ts_type_info(pair->a.tensor->type)->components != 1 || ts_type_info(pair->b.tensor->type)->components != 1 ||
        state->deltas[i].non_finite_mismatch || !ts_scene_axis(&state->scene, i, &axis) ||
        axis.after != pair->a.count / tokens || axis.after > WIDTH_MOST)
        return 0;
    return (size_t)axis.after;
}

bool ts_router_rows(const struct ts_judge *state, size_t i, bool candidate, size_t width, float *out)
{
    const struct ts_view *view = candidate ? &state->pairs[i].b : &state->pairs[i].a;
    const struct ts_scene *scene = &state->scene;
    struct ts_error ignored;
    if (view->rank && view->shape[view->rank - 1] == width)
        return ts_view_read_rows_f32(view, scene->taken, scene->taken_count, out, &ignored) == TS_OK;
    for (size_t row = 0; row < scene->taken_count; row++)
        if (ts_view_read_f32(view, scene->taken[row] * width, width, out + row * width, &ignored) != TS_OK)
            return false;
    return true;
}

bool ts_router_errors(const float *a, const float *b, size_t rows, size_t width, double *errors, double *median)
{
    double *sizes = malloc(2 * rows * sizeof *sizes), *sorted = sizes ? sizes + rows : NULL, typical;
    if (!sizes)
        return false;
    for (size_t row = 0; row < rows; row++) {
        errors[row] = sizes[row] = 0;
        for (size_t i = row * width; i < (row + 1) * width; i++) {
            double d = (double)b[i] - (double)a[i];
            if (isfinite(d)) {
                errors[row] += d * d;
                sizes[row] += (double)a[i] * (double)a[i];
            }
        }
        sorted[row] = sizes[row];
    }
    typical = ts_nth(sorted, rows, rows / 2);
    for (size_t row = 0; row < rows; row++)
        sorted[row] = errors[row] = typical > 0 ? errors[row] / fmax(sizes[row], typical) : 0;
    *median = ts_nth(sorted, rows, rows / 2);
    free(sizes);
    return *median > 0;
}

/* How much of the chosen experts' sum the last of them makes, for every k: their weights add up as what is at right
 * angles does. A token that took another one in its place errs by about as much. */
static void weigh_last(const struct ranked *ranked, size_t experts, double *shares)
{
    double square = 0;
    for (size_t k = 0; k < TS_MOST_KEPT && k < experts; k++) {
        const double weight = exp((double)ranked[k].value - (double)ranked[0].value);
        square += weight * weight;
        shares[k] = weight / sqrt(square);
    }
}

/* Which of the k largest are others, for every k. Adds the gaps below them, and returns the size of the errors. */
static double rank_row(struct ts_router *router, size_t row, const float *a, const float *b, const int *bits,
                       struct ranked *ranked, int *balance, double *gaps)
{
    const size_t experts = router->experts;
    struct ranked *of_a = ranked, *of_b = ranked + experts;
    double noise = 0, shares[TS_MOST_KEPT];
    size_t unlike = 0;
    for (size_t i = 0; i < experts; i++) {
        of_a[i] = (struct ranked){a[i], i};
        of_b[i] = (struct ranked){b[i], i};
        balance[i] = 0;
        noise += ((double)b[i] - (double)a[i]) * ((double)b[i] - (double)a[i]) / (double)experts;
    }
    qsort(of_a, experts, sizeof *of_a, by_rank);
    qsort(of_b, experts, sizeof *of_b, by_rank);
    weigh_last(of_a, experts, shares);
    for (size_t k = 0; k < TS_MOST_KEPT && k + 1 < experts; k++) {
        double gap_a = (double)of_a[k].value - (double)of_a[k + 1].value,
               gap_b = (double)of_b[k].value - (double)of_b[k + 1].value;
        bool tied = gap_a <= ldexp(fabs((double)of_a[k].value), -bits[0]) ||
                    gap_b <= ldexp(fabs((double)of_b[k].value), -bits[1]);
        balance[of_a[k].expert]++;
        unlike += balance[of_a[k].expert] == 1 ? 1 : 0;
        unlike -= balance[of_a[k].expert] == 0 ? 1 : 0;
        balance[of_b[k].expert]--;
        unlike += balance[of_b[k].expert] == -1 ? 1 : 0;
        unlike -= balance[of_b[k].expert] == 0 ? 1 : 0;
        router->changed[row] |= unlike && !tied && router->usual < VISIBLE * shares[k] ? 1u << k : 0;
        router->tied[row] |= unlike || tied ? 1u << k : 0;
        gaps[k] += gap_a;
    }
    return sqrt(noise);
}

/* So many rows inside of the experts behind a router has each token: k. 0 where none were captured. */
static size_t rows_inside(const struct ts_judge *state, size_t i)
{
    for (size_t k = i + 1; k <= i + LOOK_AHEAD && k < state->out->count; k++) {
        const struct ts_pair *pair = &state->pairs[k];
        const uint64_t rows = pair->problem || pair->a.rank != 2 ? 0 : pair->a.shape[0];
        if (!ts_same_layer(state->pairs[i].name, pair->name))
            return 0;
        if (ts_is_gathered(pair->name) && rows && rows % state->scene.tokens == 0)
            return (size_t)(rows / state->scene.tokens);
    }
    return 0;
}

uint32_t ts_router_ranks(const struct ts_judge *state, size_t i, size_t experts)
{
    uint32_t all = 0, kept = 0;
    size_t inside;
    for (size_t k = i + 1; k <= i + CHOICE_AHEAD && k < state->out->count; k++) {
        uint64_t tokens = state->scene.tokens, width = state->pairs[k].problem ? 0 : state->pairs[k].a.count / tokens;
        bool integers = !state->pairs[k].problem && ts_type_is_integer(state->pairs[k].a.tensor->type);
        if (width == 0 || state->pairs[k].a.count % tokens != 0 || width >= experts || width > TS_MOST_KEPT)
            continue;
        if (integers || state->deltas[k].exact)
            return 0; /* the weights of the chosen often stand before their numbers */
        if (!kept && (strstr(state->pairs[k].name, "weight") || strstr(state->pairs[k].name, "topk")))
            kept = 1u << (width - 1);
    }
    if (kept)
        return kept;
    inside = rows_inside(state, i);
    if (inside > 0 && inside < experts && inside <= TS_MOST_KEPT)
        return 1u << (inside - 1);
    for (size_t k = 1; k <= TS_MOST_KEPT && k < experts; k++)
        if (k <= 6 || k % 2 == 0)
            all |= 1u << (k - 1);
    return all;
}

/* How far tokens stand out behind the router: in what its own layer makes of them, else in what comes next. */
static void look_behind(const struct ts_judge *state, struct ts_router *router, float *a, float *b, size_t room,
                        double *errors)
{
    const size_t rows = state->scene.taken_count;
    size_t seen = 0;
    double median;
    for (size_t i = router->pair + 1; i <= router->pair + LOOK_AHEAD && i < state->out->count && seen < OUTPUTS; i++) {
        const char *name = state->pairs[i].name;
        const size_t width = ts_router_width(state, i);
        bool own = ts_same_layer(state->pairs[router->pair].name, state->pairs[i].name);
        if ((!own && seen) || ts_judge_is_router(name))
            return;
        if (width < WIDTH_LEAST || width < router->experts || width > room || !state->deltas[i].unequal ||
            strstr(name, "shared") || strstr(name, "weight") || !ts_router_rows(state, i, false, width, a) ||
            !ts_router_rows(state, i, true, width, b) || !ts_router_errors(a, b, rows, width, errors, &median))
            continue;
        for (size_t row = 0; row < rows; row++) {
            router->behind[row] = fmax(router->behind[row], errors[row] / median);
            router->error[row] = fmax(router->error[row], sqrt(errors[row]));
        }
        router->usual = fmax(router->usual, sqrt(median));
        router->own = own;
        seen++;
        if (!own)
            return;
    }
}

/* The widest row among what look_behind() may look at. */
static size_t widest_behind(const struct ts_judge *state, size_t i)
{
    size_t widest = 0;
    for (size_t k = i; k <= i + LOOK_AHEAD && k < state->out->count; k++) {
        const size_t width = ts_router_width(state, k);
        widest = width > widest ? width : widest;
    }
    return widest;
}

void ts_router_release(struct ts_router *router)
{
    free(router->changed);
    free(router->before);
    *router = (struct ts_router){0};
}

static bool are_finite(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}

bool ts_router_clean(const struct ts_router *router, size_t row)
{
    return router->before[row] <= TS_ROUTER_CLEAN || (router->after && router->came[row] <= CARRIED);
}

/* Tokens that may have chosen otherwise at one rank, on average over the ranks. Small gaps are as frequent as their
 * mean tells, g, and errors of size e on both sides close 0.564 e / g of them. `noise` is the sum of the tokens'
 * errors, as gaps are of theirs. */
static double expected_ties(const struct ts_router *router, const double *gaps, double noise, size_t rows)
{
    double sum = 0;
    size_t ranks = 0;
    for (size_t k = 0; k < TS_MOST_KEPT; k++)
        if (router->possible >> k & 1) {
            sum += gaps[k] > 0 ? fmin(0.564 * noise / (gaps[k] / (double)rows), 0.5 * (double)rows) : 0;
            ranks++;
        }
    return ranks ? sum / (double)ranks : 0;
}

bool ts_router_open(const struct ts_judge *state, size_t i, size_t experts, uint32_t possible, bool after,
                    struct ts_router *router)
{
    const size_t rows = state->scene.taken_count, widest = widest_behind(state, i);
    float *a = malloc(2 * rows * widest * sizeof *a), *b = a ? a + rows * widest : NULL;
    double *errors = malloc(rows * sizeof *errors), median, gaps[TS_MOST_KEPT] = {0}, of_all = 0;
    struct ranked *ranked = malloc(2 * experts * sizeof *ranked);
    int *balance = malloc(experts * sizeof *balance), bits[2];
    bool good;
    *router = (struct ts_router){.pair = i, .experts = experts, .possible = possible, .after = after};
    router->changed = calloc(2 * rows, sizeof *router->changed);
    router->before = calloc(4 * rows, sizeof *router->before);
    good = a && errors && ranked && balance && router->changed && router->before;
    if (good) {
        router->tied = router->changed + rows;
        router->behind = router->before + rows;
        router->error = router->behind + rows;
        router->came = router->error + rows;
        look_behind(state, router, a, b, widest, errors);
    }
    good = good && ts_router_rows(state, i, false, experts, a) && ts_router_rows(state, i, true, experts, b) &&
           are_finite(a, rows * experts) && are_finite(b, rows * experts) &&
           ts_router_errors(a, b, rows, experts, errors, &median);
    if (good) {
        bits[0] = ts_mantissa_bits(a, rows * experts);
        bits[1] = ts_mantissa_bits(b, rows * experts);
        for (size_t row = 0; row < rows; row++) {
            double noise = rank_row(router, row, a + row * experts, b + row * experts, bits, ranked, balance, gaps);
            router->before[row] = fmax(1, errors[row] / median);
            router->came[row] = sqrt(errors[row]);
            of_all += ts_router_clean(router, row) ? noise : 0;
        }
        router->level = sqrt(median);
        router->expected = expected_ties(router, gaps, of_all, rows) * (double)state->scene.tokens / (double)rows;
    } else {
        ts_router_release(router);
    }
    free(a);
    free(errors);
    free(ranked);
    free(balance);
    return good;
}
