/* Owns the experts that tokens took where the choice itself was not captured, and the router's logits were.
 *
 * The largest k of a token's logits are its experts, and k is unknown. It is told by the whole run: where a token's k
 * largest are others in the candidate, what comes out of the experts strays, and only there. A k is believed when
 * tokens stray where it says so, and those that should stray do. The tokens that it names are set aside at each router.
 *
 * Where tokens choose by something else (a bias that was not captured, groups of experts), every k is refuted by tokens
 * whose largest changed and which took no notice. Then a few tokens may stray at each router, no more than the logits'
 * own errors exchange, and whoever reads the report is told. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "compare/judge_state.h"
#include "tensor/layer.h"

#define MOST_EXPERTS 1024
#define MOST_KEPT    16 /* experts of a token */
#define MOST_ROUTERS 1024
#define ROWS_LEAST   8 /* tokens, of which a median can be had */
#define WIDTH_LEAST  8 /* numbers of a token in what comes out */
#define WIDTH_MOST   65536
#define LOOK_AHEAD   24 /* pairs behind a router */
#define OUTPUTS      4  /* of its layer that are looked at */
#define CHOICE_AHEAD 4  /* pairs behind the logits that may hold the choice */
/* Energies of a token's error over the median token's, and over what stood out in its logits already. */
#define STRAYS   9.0  /* where its logits tell that it may; */
#define ALONE    60.0 /* where nothing tells: some honest ones stand out by 20 */
#define UNMOVED  2.0
#define CLEAN    25.0 /* of the logits: beyond it the token was wrong before it was routed, */
#define CARRIED  0.3  /* unless attention carried the error of tokens that flipped before: up to this */
#define LARGEST  3.0  /* relative error of a token with another expert: its result is not much larger */
#define BELIEVED 3    /* tokens that stray as told, for one that does not */
#define REFUTED  2    /* tokens that took no notice, or routers with others that stray: not the k largest */
#define RULES    6.0  /* a choice by groups and biases meets so many times the ties of one by rank */
#define JUMP     30.0 /* logits that err so many times as much as those before are wrong, not tied */
#define UNLIKELY 0.01

/* One router whose choice was not captured. Bit k - 1 stands for the k largest. */
struct ts_router {
    size_t pair, experts;
    uint32_t possible; /* every k there may be */
    uint32_t *changed; /* per token: for which k its experts are others */
    uint32_t *tied;    /* the same, and those that rounding for the capture may have hidden */
    double *before;    /* how far the token stood out in the logits, 1 at least */
    double *behind;    /* and in what came out of the experts, 0 where nothing was captured */
    double *error;     /* its relative error there */
    double *came;      /* and in the logits */
    bool after;        /* tokens strayed behind earlier routers */
    bool own;          /* what came out of them is its own layer's, with no attention between */
    double level;      /* relative error of the median token's logits */
    double expected;   /* tokens that the errors of the logits give another expert at one rank */
};

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
                                         "top_k",  "bias",    "norm",   "altup"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(name, others[i]))
            return false;
    return strstr(name, "router") || strstr(name, "moe_logits") || strstr(name, "moe_probs") ||
           strstr(name, "gate_inp") || strstr(name, "gate_logits") || strstr(name, "gate.logits") ||
           ends_with_word(name, "gate") || ends_with_word(name, "gating");
}

/* Numbers of a token, one row of them, that can be read; 0 for anything else. */
static size_t width_of(const struct ts_judge *state, size_t i)
{
    const struct ts_pair *pair = &state->pairs[i];
    struct ts_token_axis axis;
    uint64_t tokens = state->scene.tokens;
    if (pair->problem || pair->guess || pair->a.count % tokens != 0 || pair->a.count != pair->b.count ||
        ts_type_is_integer(pair->a.tensor->type) || ts_type_is_integer(pair->b.tensor->type) ||
        ts_type_info(pair->a.tensor->type)->components != 1 || ts_type_info(pair->b.tensor->type)->components != 1 ||
        state->deltas[i].non_finite_mismatch || !ts_scene_axis(&state->scene, i, &axis) ||
        axis.after != pair->a.count / tokens || axis.after > WIDTH_MOST)
        return 0;
    return (size_t)axis.after;
}

/* The tokens that are looked at, of one side. */
static bool read_rows(const struct ts_judge *state, size_t i, bool candidate, size_t width, float *out)
{
    struct ts_error ignored;
    for (size_t row = 0; row < state->scene.taken_count; row++)
        if (ts_scene_read(&state->scene, i, candidate, state->scene.taken[row], 1, 0, width, out + row * width,
                          &ignored) != TS_OK)
            return false;
    return true;
}

/* Error energy of each row over its size, and the median of these; a small row errs by the size of the others. False
 * when most rows are equal, which leaves nothing to measure by. */
static bool row_errors(const float *a, const float *b, size_t rows, size_t width, double *errors, double *median)
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

/* Which of the k largest are others, for every k. Adds the gaps below them, and returns the size of the errors. */
static double rank_row(struct ts_router *router, size_t row, const float *a, const float *b, const int *bits,
                       struct ranked *ranked, int *balance, double *gaps)
{
    const size_t experts = router->experts;
    struct ranked *of_a = ranked, *of_b = ranked + experts;
    double noise = 0;
    size_t unlike = 0;
    for (size_t i = 0; i < experts; i++) {
        of_a[i] = (struct ranked){a[i], i};
        of_b[i] = (struct ranked){b[i], i};
        balance[i] = 0;
        noise += ((double)b[i] - (double)a[i]) * ((double)b[i] - (double)a[i]) / (double)experts;
    }
    qsort(of_a, experts, sizeof *of_a, by_rank);
    qsort(of_b, experts, sizeof *of_b, by_rank);
    for (size_t k = 0; k < MOST_KEPT && k + 1 < experts; k++) {
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
        router->changed[row] |= unlike && !tied ? 1u << k : 0;
        router->tied[row] |= unlike || tied ? 1u << k : 0;
        gaps[k] += gap_a;
    }
    return sqrt(noise);
}

/* How many experts a token takes: the weights of the chosen say it where they were captured, and indices are looked at
 * elsewhere: then none. */
static uint32_t possible_ranks(const struct ts_judge *state, size_t i, size_t experts)
{
    uint32_t all = 0;
    for (size_t k = i + 1; k <= i + CHOICE_AHEAD && k < state->out->count; k++) {
        uint64_t tokens = state->scene.tokens, width = state->pairs[k].problem ? 0 : state->pairs[k].a.count / tokens;
        bool integers = !state->pairs[k].problem && ts_type_is_integer(state->pairs[k].a.tensor->type);
        if (width == 0 || state->pairs[k].a.count % tokens != 0 || width >= experts || width > MOST_KEPT)
            continue;
        if (integers || state->deltas[k].exact)
            return 0;
        if (strstr(state->pairs[k].name, "weight") || strstr(state->pairs[k].name, "topk"))
            return 1u << (width - 1);
    }
    for (size_t k = 1; k <= MOST_KEPT && k < experts; k++)
        if (k <= 6 || k % 2 == 0)
            all |= 1u << (k - 1);
    return all;
}

static bool same_layer(const struct ts_judge *state, size_t i, size_t k)
{
    uint64_t layer, other;
    return ts_layer_of(state->pairs[i].name, &layer) && ts_layer_of(state->pairs[k].name, &other) && layer == other;
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
        const size_t width = width_of(state, i);
        bool own = same_layer(state, router->pair, i);
        if ((!own && seen) || ts_judge_is_router(name))
            return;
        if (width < WIDTH_LEAST || width > room || !state->deltas[i].unequal || strstr(name, "shared") ||
            strstr(name, "weight") || !read_rows(state, i, false, width, a) || !read_rows(state, i, true, width, b) ||
            !row_errors(a, b, rows, width, errors, &median))
            continue;
        for (size_t row = 0; row < rows; row++) {
            router->behind[row] = fmax(router->behind[row], errors[row] / median);
            router->error[row] = fmax(router->error[row], sqrt(errors[row]));
        }
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
        const size_t width = width_of(state, k);
        widest = width > widest ? width : widest;
    }
    return widest;
}

static void router_release(struct ts_router *router)
{
    free(router->changed);
    free(router->before);
    *router = (struct ts_router){0};
}

static bool is_clean(const struct ts_router *router, size_t row)
{
    return router->before[row] <= CLEAN || (router->after && router->came[row] <= CARRIED);
}

/* Tokens that may have chosen otherwise at one rank, on average over the ranks. Small gaps are as frequent as their
 * mean tells, g, and errors of size e on both sides close 0.564 e / g of them. `noise` is the sum of the tokens'
 * errors, as gaps are of theirs. */
static double expected_ties(const struct ts_router *router, const double *gaps, double noise, size_t rows)
{
    double sum = 0;
    size_t ranks = 0;
    for (size_t k = 0; k < MOST_KEPT; k++)
        if (router->possible >> k & 1) {
            sum += gaps[k] > 0 ? fmin(0.564 * noise / (gaps[k] / (double)rows), 0.5 * (double)rows) : 0;
            ranks++;
        }
    return ranks ? sum / (double)ranks : 0;
}

/* Everything about one router; false when there is nothing to tell from. */
static bool router_open(const struct ts_judge *state, size_t i, size_t experts, uint32_t possible, bool after,
                        struct ts_router *router)
{
    const size_t rows = state->scene.taken_count, widest = widest_behind(state, i);
    float *a = malloc(2 * rows * widest * sizeof *a), *b = a ? a + rows * widest : NULL;
    double *errors = malloc(rows * sizeof *errors), median, gaps[MOST_KEPT] = {0}, of_all = 0;
    struct ranked *ranked = malloc(2 * experts * sizeof *ranked);
    int *balance = malloc(experts * sizeof *balance), bits[2];
    bool good;
    *router = (struct ts_router){.pair = i, .experts = experts, .possible = possible, .after = after};
    router->changed = calloc(2 * rows, sizeof *router->changed);
    router->before = calloc(4 * rows, sizeof *router->before);
    good = a && errors && ranked && balance && router->changed && router->before &&
           read_rows(state, i, false, experts, a) && read_rows(state, i, true, experts, b) &&
           row_errors(a, b, rows, experts, errors, &median);
    if (good) {
        router->tied = router->changed + rows;
        router->behind = router->before + rows;
        router->error = router->behind + rows;
        router->came = router->error + rows;
        bits[0] = ts_mantissa_bits(a, rows * experts);
        bits[1] = ts_mantissa_bits(b, rows * experts);
        for (size_t row = 0; row < rows; row++) {
            double noise = rank_row(router, row, a + row * experts, b + row * experts, bits, ranked, balance, gaps);
            router->before[row] = fmax(1, errors[row] / median);
            router->came[row] = sqrt(errors[row]);
            of_all += is_clean(router, row) ? noise : 0;
        }
        router->level = sqrt(median);
        router->expected = expected_ties(router, gaps, of_all, rows) * (double)state->scene.tokens / (double)rows;
        look_behind(state, router, a, b, widest, errors);
    } else {
        router_release(router);
    }
    free(a);
    free(errors);
    free(ranked);
    free(balance);
    return good;
}

static bool strays(const struct ts_router *router, size_t row, double times)
{
    return is_clean(router, row) && router->behind[row] > times * router->before[row] && router->error[row] <= LARGEST;
}

/* What a run says about the k largest. */
struct weighed {
    bool possible;
    size_t told;            /* tokens that stray as they tell */
    size_t unmoved;         /* those that should, and do not */
    size_t untold;          /* those that stray and are not told, where no attention is between */
    size_t explained, left; /* routers behind which most tokens that stray are told, and the others */
};

static struct weighed weigh(const struct ts_judge *state, const struct ts_router *routers, size_t count, unsigned bit)
{
    struct weighed all = {0};
    for (size_t i = 0; i < count; i++) {
        const struct ts_router *router = &routers[i];
        size_t told = 0, untold = 0;
        if (!(router->possible >> bit & 1))
            continue;
        all.possible = true;
        for (size_t row = 0; row < state->scene.taken_count; row++) {
            bool tied = router->tied[row] >> bit & 1;
            told += tied && strays(router, row, STRAYS);
            untold += !tied && strays(router, row, ALONE);
            all.unmoved += router->changed[row] >> bit & 1 && router->behind[row] > 0 && router->behind[row] < UNMOVED;
        }
        all.told += told;
        all.untold += router->own ? untold : 0;
        all.explained += told && untold <= told;
        all.left += router->own && untold > told;
    }
    return all;
}

/* More than this of what is expected is unlikely. */
static size_t most_by_chance(double expected)
{
    double term = exp(-expected), sum = term;
    size_t most = 0;
    while (1 - sum > UNLIKELY && most < 1000) {
        term *= expected / (double)++most;
        sum += term;
    }
    return most;
}

/* No tokens that a bug might have by their places: one at an end, or three and more in a row. */
static bool are_scattered(const struct ts_judge *state, const bool *flips, size_t count)
{
    const uint64_t *taken = state->scene.taken;
    size_t first = SIZE_MAX, last = 0, rows = state->scene.taken_count;
    for (size_t row = 0; row < rows; row++)
        if (flips[row]) {
            first = first == SIZE_MAX ? row : first;
            last = row;
        }
    if (count == 0 || first == SIZE_MAX)
        return false;
    if (count == 1)
        return taken[first] != 0 && taken[first] + 1 != state->scene.tokens;
    return count == 2 || last - first + 1 > count;
}

static void flips_of(const struct ts_judge *state, struct ts_judge_flips *flips, const struct ts_router *router,
                     unsigned bit)
{
    bool any = false;
    for (size_t row = 0; row < state->scene.taken_count; row++) {
        bool flipped = router->tied[row] >> bit & 1 && strays(router, row, STRAYS);
        flips->rows[row] = flipped;
        any = any || flipped;
    }
    flips->pair = router->pair;
    flips->known = any;
}

static void flips_by_number(const struct ts_judge *state, struct ts_judge_flips *flips, const struct ts_router *router)
{
    size_t count = 0;
    for (size_t row = 0; row < state->scene.taken_count; row++) {
        flips->rows[row] = strays(router, row, ALONE);
        count += flips->rows[row];
    }
    flips->pair = router->pair;
    flips->known = flips->guessed =
        count <= most_by_chance(RULES * router->expected) && are_scattered(state, flips->rows, count);
}

static void decide(struct ts_judge *state, const struct ts_router *routers, size_t count)
{
    long best = -1, gain = 0;
    bool refuted = true;
    for (unsigned bit = 0; bit < MOST_KEPT; bit++) {
        struct weighed weighed = weigh(state, routers, count, bit);
        long own = (long)weighed.told - 2 * (long)weighed.unmoved;
        if (!weighed.possible)
            continue;
        refuted = refuted && ((weighed.unmoved >= REFUTED && weighed.unmoved * BELIEVED > weighed.told) ||
                              (weighed.left >= REFUTED && weighed.left > weighed.explained));
        if (weighed.told && weighed.unmoved * BELIEVED <= weighed.told &&
            (weighed.left < weighed.explained ||
             (weighed.left == weighed.explained && weighed.told > weighed.untold)) &&
            own > gain) {
            gain = own;
            best = (long)bit;
        }
    }
    if (best < 0 && !refuted)
        return;
    for (size_t i = 0; i < count; i++) {
        struct ts_judge_flips *flips = &state->flips[state->flip_count];
        flips->rows = calloc(state->scene.taken_count, sizeof *flips->rows);
        if (!flips->rows)
            return;
        if (best >= 0)
            flips_of(state, flips, &routers[i], (unsigned)best);
        else
            flips_by_number(state, flips, &routers[i]);
        state->flip_count++;
    }
}

void ts_judge_find_flips(struct ts_judge *state)
{
    struct ts_router *routers = NULL;
    size_t count = 0, most = 0;
    bool after = false;
    if (state->scene.tokens <= 1 || state->scene.taken_count < ROWS_LEAST)
        return;
    for (size_t i = 0; i < state->out->count; i++)
        most += ts_judge_is_router(state->pairs[i].name);
    most = most < MOST_ROUTERS ? most : MOST_ROUTERS;
    if (!most || !(routers = calloc(most, sizeof *routers)) || !(state->flips = calloc(most, sizeof *state->flips))) {
        free(routers);
        return;
    }
    for (size_t i = 0; i < state->out->count && count < most; i++) {
        size_t experts;
        uint32_t possible;
        if (!ts_judge_is_router(state->pairs[i].name) || !state->deltas[i].unequal || (experts = width_of(state, i)) < 3 ||
            experts > MOST_EXPERTS || !(possible = possible_ranks(state, i, experts)))
            continue;
        if (!router_open(state, i, experts, possible, after, &routers[count]))
            continue;
        /* an error that starts here is no noise, unless tokens that flipped before have carried it to all others */
        if (count && !after && routers[count].level > JUMP * routers[count - 1].level) {
            router_release(&routers[count]);
            break;
        }
        for (size_t row = 0; row < state->scene.taken_count; row++)
            after = after || strays(&routers[count], row, ALONE);
        count++;
    }
    decide(state, routers, count);
    for (size_t i = 0; i < count; i++)
        router_release(&routers[i]);
    free(routers);
}

void ts_judge_apply_flips(struct ts_judge *state, size_t i)
{
    size_t count = 0;
    for (size_t k = 0; k < state->flip_count; k++) {
        const struct ts_judge_flips *flips = &state->flips[k];
        if (flips->pair != i || !flips->known)
            continue;
        for (size_t row = 0; row < state->scene.taken_count; row++)
            if (flips->rows[row]) {
                state->scene.aside[row] = true;
                count++;
            }
        state->guessed = state->guessed || flips->guessed;
        if (state->out->verdicts[i].judged == TS_JUDGED_NOISE || state->out->verdicts[i].judged == TS_JUDGED_OK)
            state->out->verdicts[i].why =
                ts_judge_say(state->out, "%zu token%s %s other experts%s; %s set aside from here on", count,
                             count == 1 ? "" : "s", flips->guessed ? "may have taken" : "took",
                             flips->guessed ? "" : " on a near tie", count == 1 ? "it is" : "they are");
    }
}

void ts_judge_release_flips(struct ts_judge *state)
{
    for (size_t k = 0; k < state->flip_count; k++)
        free(state->flips[k].rows);
    free(state->flips);
}
