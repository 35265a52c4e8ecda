/* Owns the experts that tokens took where the choice itself was not captured, and the router's logits were.
 *
 * The largest k of a token's logits are its experts, and k is unknown. It is told by the whole run: where a token's k
 * largest are others in the candidate, what comes out of the experts strays, and only there. A k is believed when
 * tokens stray where it says so, and those that should stray do. The tokens that it names are set aside at each router.
 *
 * Where tokens choose by something else (a bias that was not captured, groups of experts), every k is refuted by tokens
 * whose largest changed and which took no notice. Then a few tokens may stray at each router, no more than the logits'
 * own errors exchange, and whoever reads the report is told. So they may before a bug of all tokens, which leaves no
 * routers behind it that could refute anything. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare/judge_ties.h"
#include "tensor/layer.h"

#define MOST_EXPERTS 1024
#define MOST_ROUTERS 1024
#define ROWS_LEAST   8 /* tokens, of which a median can be had */
/* Energies of a token's error over the median token's, and over what stood out in its logits already. */
#define STRAYS   9.0  /* where its logits tell that it may; */
#define ALONE    60.0 /* where nothing tells: some honest ones stand out by 20 */
#define UNMOVED  2.0
#define LARGEST  3.0  /* relative error of a token with another expert: its result is not much larger */
#define BELIEVED 3    /* tokens that stray as told, for one that does not */
#define REFUTED  2    /* tokens that took no notice, or routers with others that stray: not the k largest */
#define RULES    6.0  /* a choice by groups and biases meets so many times the ties of one by rank */
#define GROWN    8.0  /* times what the median token's logits err by: no honest experts in one precision do */
#define JUMP     30.0 /* logits that err so many times as much as those before are wrong, not tied */
#define UNLIKELY 0.01
#define LIKELY   0.1
#define LISTED   8 /* tokens that are named */
#define FEW_OF   8

static bool strays(const struct ts_router *router, size_t row, double times)
{
    return ts_router_clean(router, row) && router->behind[row] > times * router->before[row] &&
           router->error[row] <= LARGEST;
}

/* Its k-th expert may be another: what that makes of it is no more than its part, the smaller the more experts there
 * are. */
static bool is_told(const struct ts_router *router, size_t row, unsigned bit)
{
    return router->tied[row] >> bit & 1 && strays(router, row, STRAYS) &&
           router->error[row] <= LARGEST / sqrt((double)bit + 1);
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
            const bool is = is_told(router, row, bit);
            told += is;
            untold += !is && strays(router, row, ALONE);
            all.unmoved += router->changed[row] >> bit & 1 && router->behind[row] > 0 && router->behind[row] < UNMOVED;
        }
        all.told += told;
        all.untold += router->own ? untold : 0;
        all.explained += told && untold <= told;
        all.left += router->own && untold > told;
    }
    return all;
}

/* More than this of what is expected is `unlikely`. */
static size_t most_by_chance(double expected, double unlikely)
{
    double term = exp(-expected), sum = term;
    size_t most = 0;
    while (1 - sum > unlikely && most < 1000) {
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

/* By the k largest; `few`: of as many tokens as chance may make tell k. */
static void flips_of(const struct ts_judge *state, struct ts_judge_flips *flips, const struct ts_router *router,
                     unsigned bit, bool few)
{
    bool any = false;
    for (size_t row = 0; row < state->scene.taken_count; row++) {
        flips->rows[row] = is_told(router, row, bit);
        any = any || flips->rows[row];
    }
    flips->pair = router->pair;
    flips->known = any;
    /* weights of the chosen leave one k */
    flips->guess = few && router->possible != 1u << bit ? "too few tokens tell how many experts each takes" : NULL;
}

/* `refuted`: the choice does not follow from the logits alone. Else, unless a bug of all tokens hides who does not
 * stray, it stays open whether there are any. */
static void flips_by_number(const struct ts_judge *state, struct ts_judge_flips *flips, const struct ts_router *router,
                            bool refuted, bool bug)
{
    const bool open = !refuted && !bug;
    size_t count = 0;
    bool few;
    for (size_t row = 0; row < state->scene.taken_count; row++) {
        flips->rows[row] = strays(router, row, ALONE);
        count += flips->rows[row];
    }
    flips->pair = router->pair;
    flips->guess = refuted ? "it does not follow from the logits alone"
                           : "no near tie of the logits explains them, so that a bug of these tokens looks the same";
    few =
        count <= (open ? most_by_chance(router->expected, LIKELY) : most_by_chance(RULES * router->expected, UNLIKELY));
    flips->known = !open && few && are_scattered(state, flips->rows, count);
    flips->open = open && few && are_scattered(state, flips->rows, count);
}

/* Routers before the first place where all tokens begin to err far more: between their logits and what comes out of
 * the experts, or before their logits. 0 when there is none. */
static size_t before_a_bug(const struct ts_router *routers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if ((routers[i].own && routers[i].usual > GROWN * routers[i].level) ||
            (i > 0 && routers[i].level > GROWN * routers[i - 1].level))
            return i;
    return 0;
}

/* What the first `voters` of the routers tell about those in [from, to). `bug`: one of all tokens comes behind them. */
static void decide(struct ts_judge *state, const struct ts_router *routers, size_t voters, size_t from, size_t to,
                   bool bug)
{
    long best = -1, gain = 0;
    bool refuted = true, few = false;
    for (unsigned bit = 0; bit < TS_MOST_KEPT; bit++) {
        struct weighed weighed = weigh(state, routers, voters, bit);
        long own = (long)weighed.told - 2 * (long)weighed.unmoved;
        if (!weighed.possible)
            continue;
        refuted = refuted && ((weighed.unmoved >= REFUTED && weighed.unmoved * BELIEVED > weighed.told) ||
                              (weighed.left >= REFUTED && weighed.left > weighed.explained));
        if (weighed.told && weighed.unmoved * BELIEVED <= weighed.told && weighed.left <= weighed.explained &&
            weighed.told > weighed.untold && own > gain) {
            gain = own;
            best = (long)bit;
            few = weighed.told < BELIEVED;
        }
    }
    for (size_t i = from; i < to; i++) {
        struct ts_judge_flips *flips = &state->flips[state->flip_count];
        flips->rows = calloc(state->scene.taken_count, sizeof *flips->rows);
        if (!flips->rows)
            return;
        if (best >= 0)
            flips_of(state, flips, &routers[i], (unsigned)best, few);
        else /* one bug is enough: what explains the rest of the run need not explain these tokens */
            flips_by_number(state, flips, &routers[i], refuted, bug);
        state->flip_count++;
    }
}

/* Routers behind a bug of all tokens say nothing about those before it. */
static void decide_all(struct ts_judge *state, const struct ts_router *routers, size_t count, bool jumped)
{
    const size_t before = jumped ? count : before_a_bug(routers, count);
    decide(state, routers, before, 0, before, true);
    if (before < count)
        decide(state, routers, count, before, count, false);
}

/* No narrower than what comes before it, and not called a router. */
static bool is_gate_of_activation(const struct ts_judge *state, size_t i)
{
    return i > 0 && !strstr(state->pairs[i].name, "router") &&
           state->pairs[i].a.count > state->pairs[i - 1].a.count / 2;
}

/* Rows of experts tell which tokens each of them got on both sides. */
static void add_known(struct ts_judge *state, size_t i)
{
    const struct ts_strays *strays = state->pairs[i].strays;
    struct ts_judge_flips *flips = &state->flips[state->flip_count];
    *flips = (struct ts_judge_flips){.pair = i, .rows = calloc(state->scene.taken_count, sizeof *flips->rows)};
    for (size_t row = 0, k = 0; row < state->scene.taken_count && flips->rows; row++) {
        while (k < strays->count && strays->tokens[k] < state->scene.taken[row])
            k++;
        flips->rows[row] = k < strays->count && strays->tokens[k] == state->scene.taken[row];
        flips->known = flips->known || flips->rows[row];
    }
    state->flip_count += flips->rows != NULL;
}

void ts_judge_find_flips(struct ts_judge *state)
{
    struct ts_router *routers = NULL;
    size_t count = 0, most = 0;
    bool after = false, jumped = false;
    if (state->scene.tokens <= 1)
        return;
    for (size_t i = 0; i < state->out->count; i++)
        most += state->pairs[i].strays || ts_judge_is_router(state->pairs[i].name);
    most = most < MOST_ROUTERS ? most : MOST_ROUTERS;
    if (!most || !(routers = calloc(most, sizeof *routers)) || !(state->flips = calloc(most, sizeof *state->flips))) {
        free(routers);
        return;
    }
    for (size_t i = 0; i < state->out->count && count + state->flip_count < most; i++) {
        size_t experts;
        uint32_t possible;
        if (state->pairs[i].strays && ts_router_width(state, i) > 0) {
            add_known(state, i);
            continue;
        }
        if (state->scene.taken_count < ROWS_LEAST || !ts_judge_is_router(state->pairs[i].name) ||
            is_gate_of_activation(state, i) || !state->deltas[i].unequal || (experts = ts_router_width(state, i)) < 3 ||
            experts > MOST_EXPERTS || !(possible = ts_router_ranks(state, i, experts)))
            continue;
        if (!ts_router_open(state, i, experts, possible, after, &routers[count]))
            continue;
        /* an error that starts here is no noise, unless tokens that flipped before have carried it to all others */
        if (count && !after && routers[count].level > JUMP * routers[count - 1].level) {
            ts_router_release(&routers[count]);
            jumped = true;
            break;
        }
        for (size_t row = 0; row < state->scene.taken_count; row++)
            after = after || strays(&routers[count], row, ALONE);
        count++;
    }
    decide_all(state, routers, count, jumped);
    for (size_t i = 0; i < count; i++)
        ts_router_release(&routers[i]);
    free(routers);
}

bool ts_judge_has_open_flips(const struct ts_judge *state, size_t i)
{
    for (size_t k = 0; k < state->flip_count; k++)
        if (state->flips[k].pair == i)
            return state->flips[k].open;
    return false;
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
                ts_judge_leave_out(state, row, flips->guess != NULL);
                count++;
            }
        state->guess = state->guess ? state->guess : flips->guess;
        if (state->out->verdicts[i].judged == TS_JUDGED_NOISE || state->out->verdicts[i].judged == TS_JUDGED_OK)
            state->out->verdicts[i].why =
                ts_judge_say(state->out, "%zu token%s %s different experts%s; %s set aside from here on", count,
                             count == 1 ? "" : "s", flips->guess ? "may have taken" : "took",
                             flips->guess ? "" : " on a near tie", count == 1 ? "it is" : "they are");
    }
}

void ts_judge_release_flips(struct ts_judge *state)
{
    for (size_t k = 0; k < state->flip_count; k++)
        free(state->flips[k].rows);
    free(state->flips);
}

/* "3, 17 and 2 more": tokens that err far more than the median one, and were not set aside. */
static void list_strays(const struct ts_judge *state, size_t i, char *out, size_t size)
{
    const size_t rows = state->scene.taken_count, width = ts_router_width(state, i);
    float *a = malloc(2 * rows * width * sizeof *a + 1), *b = a ? a + rows * width : NULL;
    double *errors = malloc(rows * sizeof *errors + 1), median;
    size_t used = 0, found = 0;
    out[0] = 0;
    if (a && errors && width && ts_router_rows(state, i, false, width, a) && ts_router_rows(state, i, true, width, b) &&
        ts_router_errors(a, b, rows, width, errors, &median))
        for (size_t row = 0; row < rows; row++) {
            if (state->scene.aside[row] || errors[row] <= TS_ROUTER_CLEAN * median || ++found > LISTED || used >= size)
                continue;
            used +=
                (size_t)snprintf(out + used, size - used, "%s%" PRIu64, used ? ", " : " (", state->scene.taken[row]);
        }
    if (found > LISTED && used < size)
        used += (size_t)snprintf(out + used, size - used, " and %zu more", found - LISTED);
    if (found && used < size)
        snprintf(out + used, size - used, ")");
    free(a);
    free(errors);
}

/* Few tokens alone are wrong at the first divergence, behind products in which experts may hide. */
static bool may_be_flips(const struct ts_judge *state)
{
    const size_t i = state->out->first;
    const struct ts_structure *structure;
    uint64_t layer;
    if (i == SIZE_MAX || i == 0 || state->learnt[i] || !(state->errors[i - 1] > 0))
        return false;
    structure = &state->structures[i];
    return structure->known && structure->strays && structure->strays * FEW_OF <= state->scene.taken_count &&
           structure->calm * FEW_OF < structure->row_error && !strstr(state->pairs[i].name, "attn") &&
           !strstr(state->pairs[i].name, "attention") &&
           (!ts_layer_of(state->pairs[i].name, &layer) || !ts_layer_of(state->pairs[i - 1].name, &layer) ||
            state->follows[i]);
}

/* The logits of its layer were captured, and did not tell. */
static bool has_logits(const struct ts_judge *state, size_t i)
{
    for (size_t k = i; k-- > 0 && ts_same_layer(state->pairs[k].name, state->pairs[i].name);)
        if (ts_judge_is_router(state->pairs[k].name))
            return true;
    return false;
}

/* The names show an MLP of every token, or the configuration tells of one, and nothing shows experts. */
static bool is_dense(const struct ts_judge *state)
{
    bool projected = state->dense;
    for (size_t i = 0; i < state->out->count; i++) {
        const char *name = state->pairs[i].name;
        if (strstr(name, "expert") || strstr(name, "moe") || strstr(name, "router") ||
            (ts_judge_is_router(name) && !is_gate_of_activation(state, i)))
            return false;
        projected = projected || strstr(name, "up_proj") || strstr(name, "fc1") || strstr(name, "c_fc");
    }
    return projected;
}

void ts_judge_note_flips(struct ts_judge *state)
{
    struct ts_judgement *out = state->out;
    char tokens[160];
    if (state->guess)
        ts_judge_note(
            out,
            ts_judge_say(out,
                         "behind a router, the tokens that were set aside stray as if they took different experts; "
                         "its choice was not captured, and %s: capture the chosen experts to be sure",
                         state->guess));
    if (state->strayed != SIZE_MAX) {
        list_strays(state, state->strayed, tokens, sizeof tokens);
        ts_judge_note(
            out,
            is_dense(state)
                ? ts_judge_say(out,
                               "from \"%s\" on, some tokens err far more than the others%s: no more than one may that "
                               "is small before it is normalized, but a bug of these tokens would look the same",
                               state->pairs[state->strayed].name, tokens)
                : ts_judge_say(
                      out,
                      "from \"%s\" on, tokens stray as if they took different experts%s, but the choice was not "
                      "captured: capture %sthe chosen experts to be sure",
                      state->pairs[state->strayed].name, tokens,
                      has_logits(state, state->strayed) ? "" : "the router's logits or "));
    } else if (may_be_flips(state) && (state->experts || !state->dense)) {
        list_strays(state, out->first, tokens, sizeof tokens);
        ts_judge_note(
            out, ts_judge_say(out,
                              "at \"%s\" only a few tokens are wrong%s: %stokens that took different %s on a near tie "
                              "look like this; the router's logits would tell",
                              state->pairs[out->first].name, tokens,
                              state->experts ? "" : "if this model has experts (--config would say so), ",
                              state->experts ? "experts" : "ones"));
    }
}
