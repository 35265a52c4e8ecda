/* Owns judging integers: the experts that a router chose, above all.
 *
 * The choice is replayed as other operations are: where the reference's indices are the largest of its captured logits,
 * the candidate's must be the largest of its own, whatever error these carry. Tokens that took other experts are set
 * aside from there on. Where no captured logits explain the reference's choice, but biases that were not captured do,
 * the candidate's has to follow from its own logits and some of these biases. Where neither does (groups), only near
 * ties are forgiven. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/ordered.h"
#include "compare/choice.h"
#include "compare/gathered.h"
#include "compare/judge_state.h"
#include "compare/router.h"
#include "compare/router_bias.h"
#include "tensor/layer.h"

#define MOST_CHOSEN     64
#define MOST_EXPERTS    4096
#define BACK            8  /* earlier pairs that may hold the logits */
#define FLIPS_BY_ERROR  12 /* of all that are chosen, times the error that came in */
#define NEARLY_IN_ORDER 0.75
#define TELLING_TOKENS  16 /* of all routers, whose experts no bias leaves as they are */
#define SLOTS_NEAR      32 /* pairs around a choice, whose places for experts may be those it has */

/* A gap among the k largest numbers of a row, or below them, that the row's own error can close; the error being that
 * of a run, not of a bug: not beyond the spread of the row. */
static bool is_near_tie(const struct ts_actor *logits, size_t row, size_t kept)
{
    const float *a = logits->a + row * logits->width, *b = logits->b + row * logits->width;
    double *sorted = malloc(logits->width * sizeof *sorted), gap = (double)INFINITY, error = 0, mean = 0, spread = 0;
    if (!sorted)
        return false;
    for (size_t i = 0; i < logits->width; i++) {
        sorted[i] = -(double)a[i];
        mean += (double)a[i] / (double)logits->width;
        error = fabs((double)b[i] - (double)a[i]) > error ? fabs((double)b[i] - (double)a[i]) : error;
    }
    for (size_t i = 0; i < logits->width; i++)
        spread += ((double)a[i] - mean) * ((double)a[i] - mean) / (double)logits->width;
    qsort(sorted, logits->width, sizeof *sorted, ts_by_value);
    for (size_t i = 0; i < kept && i + 1 < logits->width; i++) /* order among the kept counts as well */
        gap = sorted[i + 1] - sorted[i] < gap ? sorted[i + 1] - sorted[i] : gap;
    free(sorted);
    return gap <= 4 * error && error < 1.2 * sqrt(spread);
}

static bool is_of_layer_of(const struct ts_judge *state, size_t i, size_t other)
{
    uint64_t one, two;
    if ((i > other ? i - other : other - i) > SLOTS_NEAR)
        return false;
    return !ts_layer_of(state->pairs[i].name, &one) || !ts_layer_of(state->pairs[other].name, &two) || one == two;
}

void ts_judge_turn_round(struct ts_judge *state, size_t i, size_t row, size_t slots)
{
    if (!state->turned && !(state->turned = calloc(state->scene.taken_count + 1, sizeof *state->turned)))
        return;
    if (state->slots != slots || !is_of_layer_of(state, i, state->turned_at))
        memset(state->turned, 0, state->scene.taken_count * sizeof *state->turned);
    state->turned[row] = true;
    state->turned_at = i;
    state->slots = slots;
}

/* Numbers or heads that each expert has its share of; attention that is made of experts has several heads for each. */
static bool has_slots(const struct ts_judge *state, const struct ts_actor *actor)
{
    return actor->width == state->slots || actor->heads == state->slots ||
           (actor->heads > state->slots && actor->heads % state->slots == 0 &&
            strstr(state->pairs[state->turned_at].name, "attention"));
}

bool ts_judge_hide_turned(struct ts_judge *state, size_t i, const struct ts_actor *actor, bool *hidden)
{
    struct ts_scene *scene = &state->scene;
    bool any = false;
    if (!state->turned || !actor->usable || actor->apart || actor->rows != scene->taken_count ||
        !has_slots(state, actor) || !is_of_layer_of(state, i, state->turned_at))
        return false;
    for (size_t row = 0; row < scene->taken_count; row++) {
        hidden[row] = state->turned[row] && !scene->aside[row];
        scene->aside[row] = scene->aside[row] || hidden[row];
        any = any || hidden[row];
    }
    return any;
}

void ts_judge_leave_out(struct ts_judge *state, size_t row, bool guess)
{
    if (guess && !state->scene.aside[row] && !(state->returned && state->returned[row])) {
        if (!state->guesses)
            state->guesses = calloc(state->scene.taken_count + 1, sizeof *state->guesses);
        if (state->guesses)
            state->guesses[row] = true;
    }
    state->scene.aside[row] = true;
}

void ts_judge_set_aside(struct ts_judge *state, const struct ts_operation *operation, const struct ts_actor *weights,
                        bool replayed)
{
    const struct ts_actor *logits = ts_scene_actor(&state->scene, operation->inputs[0]);
    int64_t a[MOST_CHOSEN], b[MOST_CHOSEN];
    /* what a bias or groups chose is not what the logits alone tell */
    if (operation->kind != TS_OPERATION_TOPK || operation->table || !logits || weights->width > MOST_CHOSEN ||
        logits->rows == 1 || logits->apart)
        return;
    for (size_t row = 0; row < logits->rows; row++) {
        ts_choose_experts(logits->a + row * logits->width, logits->width, weights->width, a);
        ts_choose_experts(logits->b + row * logits->width, logits->width, weights->width, b);
        if (memcmp(a, b, weights->width * sizeof *a) == 0 || !(replayed || is_near_tie(logits, row, weights->width)))
            continue;
        if (ts_are_same_experts(a, b, weights->width))
            ts_judge_turn_round(state, weights->pair, row, weights->width);
        else
            ts_judge_leave_out(state, row, false);
    }
}

/* The numbers of a row that are not zero, falling; more than fit: MOST_CHOSEN + 1. */
static size_t weights_of(const float *row, size_t width, double *weights)
{
    size_t count = 0;
    for (size_t i = 0; i < width; i++) {
        if (row[i] == 0)
            continue;
        if (count == MOST_CHOSEN)
            return MOST_CHOSEN + 1;
        weights[count++] = -(double)row[i];
    }
    qsort(weights, count, sizeof *weights, ts_by_value);
    return count;
}

/* How far the weights of a token are apart, whichever experts have them; infinity where they are not as many. */
static double weights_apart(const struct ts_actor *weights, size_t row, size_t count)
{
    double a[MOST_CHOSEN], b[MOST_CHOSEN], most = 0;
    if (weights_of(weights->a + row * weights->width, weights->width, a) != count ||
        weights_of(weights->b + row * weights->width, weights->width, b) != count)
        return (double)INFINITY;
    for (size_t k = 0; k < count; k++)
        most = fmax(most, fabs(a[k] - b[k]));
    return most;
}

static bool has_other_experts(const struct ts_actor *weights, size_t row)
{
    const float *a = weights->a + row * weights->width, *b = weights->b + row * weights->width;
    for (size_t i = 0; i < weights->width; i++)
        if ((a[i] == 0) != (b[i] == 0))
            return true;
    return false;
}

/* Pair k holds a number of each expert for each token, and so may be logits: those of a token, of both sides. */
static bool read_logits(const struct ts_judge *state, size_t k, uint64_t token, size_t experts, float *a, float *b)
{
    const struct ts_pair *pair = &state->pairs[k];
    struct ts_error ignored;
    if (pair->problem || pair->a.count != state->scene.tokens * experts || pair->b.count != pair->a.count ||
        ts_type_is_integer(pair->a.tensor->type) ||
        ts_view_read_f32(&pair->a, token * experts, experts, a, &ignored) != TS_OK ||
        ts_view_read_f32(&pair->b, token * experts, experts, b, &ignored) != TS_OK)
        return false;
    for (size_t i = 0; i < experts; i++)
        if (!isfinite(a[i]) || !isfinite(b[i]) || a[i] == 0)
            return false;
    return true;
}

/* By logits around the weights, which one of the candidate's experts has that the reference did not take, and the one
 * that it stands for, are not nearly tied: further apart than some times what the token's logits err by. */
static bool is_refuted_by_logits(const struct ts_judge *state, const struct ts_actor *weights, size_t row)
{
    const float *taken_a = weights->a + row * weights->width, *taken_b = weights->b + row * weights->width;
    float *a = malloc(2 * weights->width * sizeof *a), *b = a ? a + weights->width : NULL;
    const size_t from = weights->pair > BACK ? weights->pair - BACK : 0;
    bool refuted = false;
    for (size_t k = from; a && k < state->out->count && k <= weights->pair + BACK; k++) {
        float left = -INFINITY, joined = INFINITY, error = 0;
        if (k == weights->pair || !read_logits(state, k, state->scene.taken[row], weights->width, a, b))
            continue;
        for (size_t i = 0; i < weights->width; i++) {
            error = fmaxf(error, fabsf(a[i] - b[i]));
            left = taken_a[i] != 0 && taken_b[i] == 0 ? fmaxf(left, a[i]) : left;
            joined = taken_a[i] == 0 && taken_b[i] != 0 ? fminf(joined, a[i]) : joined;
        }
        refuted = refuted || fabsf(left - joined) > 4 * error;
    }
    free(a);
    return refuted;
}

/* Of experts that are nearly tied the one weighs as much as the other: a token that took another one has the same
 * weights, in other places, up to what other tokens err by. Each token has as many, and few of all. */
void ts_judge_set_scattered_aside(struct ts_judge *state, const struct ts_actor *weights)
{
    const struct ts_scene *scene = &state->scene;
    double first[MOST_CHOSEN], usual = 0;
    size_t count, others = 0;
    if (weights->rows != scene->taken_count || weights->rows < 2 || weights->apart || weights->heads != 1 ||
        weights->width < 3 || weights->width > MOST_EXPERTS)
        return;
    count = weights_of(weights->a, weights->width, first);
    if (count == 0 || count > MOST_CHOSEN || 2 * count > weights->width)
        return;
    for (size_t row = 0; row < weights->rows; row++) {
        const double apart = weights_apart(weights, row, count);
        if (!isfinite(apart))
            return;
        if (has_other_experts(weights, row))
            others++;
        else
            usual = fmax(usual, apart);
    }
    if (!others || 4 * others > weights->rows)
        return;
    usual = fmax(usual, ldexp(first[0] < 0 ? -first[0] : 1, -weights->bits_b));
    for (size_t row = 0; row < weights->rows; row++)
        if (!scene->aside[row] && has_other_experts(weights, row) && weights_apart(weights, row, count) <= 4 * usual &&
            !is_refuted_by_logits(state, weights, row))
            ts_judge_leave_out(state, row, false);
}

/* The chosen ones are the largest of the row, in falling order when `ordered`. What was chosen was compared before it
 * was rounded for the capture: a step in the last place decides nothing. */
static bool are_largest(const float *row, size_t width, const int64_t *chosen, size_t count, bool ordered, int bits)
{
    float most = 0, least = INFINITY, others = -INFINITY;
    double slack;
    for (size_t i = 0; i < width; i++) {
        bool taken = false;
        if (!isfinite(row[i]))
            return false;
        for (size_t k = 0; k < count; k++)
            taken = taken || chosen[k] == (int64_t)i;
        if (taken)
            least = row[i] < least ? row[i] : least;
        else
            others = row[i] > others ? row[i] : others;
        most = fabsf(row[i]) > most ? fabsf(row[i]) : most;
    }
    slack = ldexp((double)most, -bits);
    for (size_t k = 0; k < count; k++) {
        if (chosen[k] < 0 || chosen[k] >= (int64_t)width)
            return false;
        for (size_t j = 0; j < k; j++)
            if (chosen[j] == chosen[k] || (ordered && (double)row[chosen[j]] < (double)row[chosen[k]] - slack))
                return false;
    }
    return (double)least >= (double)others - slack;
}

/* One router's choice: the pairs of its indices and of its logits, and room for a token of each. */
struct choice {
    const struct ts_pair *indices, *logits;
    size_t count, experts;
    int64_t a[MOST_CHOSEN], b[MOST_CHOSEN];
    float row[MOST_EXPERTS];
    bool ordered;
    bool replayed; /* the reference's choice follows from these logits */
    size_t turned; /* tokens with the same experts in another order, as the candidate's own logits have them */
    int bits_a, bits_b;
    struct ts_router_bias bias; /* open where it takes biases to explain the reference's choice */
};

static bool read_choice(struct choice *choice, uint64_t token)
{
    struct ts_error ignored;
    return ts_view_read_i64(&choice->indices->a, token * choice->count, choice->count, choice->a, &ignored) == TS_OK &&
           ts_view_read_i64(&choice->indices->b, token * choice->count, choice->count, choice->b, &ignored) == TS_OK;
}

static bool is_own_choice(struct choice *choice, uint64_t token, bool candidate)
{
    struct ts_error ignored;
    const struct ts_view *view = candidate ? &choice->logits->b : &choice->logits->a;
    if (ts_view_read_f32(view, token * choice->experts, choice->experts, choice->row, &ignored) != TS_OK)
        return false;
    if (candidate && choice->bias.experts)
        return ts_router_bias_allows(&choice->bias, choice->row, choice->bits_b, choice->b, choice->count);
    return are_largest(choice->row, choice->experts, candidate ? choice->b : choice->a, choice->count, choice->ordered,
                       candidate ? choice->bits_b : choice->bits_a);
}

/* All of the reference's choices are the largest of these logits. */
static bool explains(struct choice *choice, const struct ts_judge *state)
{
    for (int ordered = 1; ordered >= 0; ordered--) {
        size_t row = 0;
        choice->ordered = ordered;
        while (row < state->scene.taken_count && read_choice(choice, state->scene.taken[row]) &&
               is_own_choice(choice, state->scene.taken[row], false))
            row++;
        if (row == state->scene.taken_count)
            return true;
    }
    return false;
}

/* The same with a bias for each expert; what was heard about them stays open then. */
static bool explains_with_biases(struct choice *choice, const struct ts_judge *state)
{
    struct ts_error ignored;
    for (int scores = 0; scores < TS_ROUTER_SCORES; scores++) {
        bool good = ts_router_bias_open(&choice->bias, choice->experts, (enum ts_router_scores)scores);
        for (size_t row = 0; row < state->scene.taken_count && good; row++) {
            const uint64_t token = state->scene.taken[row];
            good = read_choice(choice, token) && ts_view_read_f32(&choice->logits->a, token * choice->experts,
                                                                  choice->experts, choice->row, &ignored) == TS_OK;
            if (good)
                ts_router_bias_hear(&choice->bias, choice->row, choice->bits_a, choice->a, choice->count);
        }
        if (good && ts_router_bias_settle(&choice->bias))
            return true;
        ts_router_bias_close(&choice->bias);
    }
    return false;
}

enum how { ANY, BY_LOGITS, WITH_BIASES };

/* The nearest earlier matrix that is wider, one row per token, and explains the reference in this way. */
static const struct ts_actor *find_logits(struct ts_judge *state, size_t i, struct choice *choice, enum how how)
{
    for (size_t back = 1; back <= BACK && back <= i; back++) {
        const struct ts_actor *actor = ts_scene_actor(&state->scene, i - back);
        if (!actor || actor->heads != 1 || actor->apart || actor->rows != state->scene.taken_count ||
            actor->width <= choice->count)
            continue;
        if (how == ANY)
            return actor;
        choice->logits = &state->pairs[i - back];
        choice->experts = actor->width;
        choice->bits_a = actor->bits_a;
        choice->bits_b = actor->bits_b;
        if (actor->width <= MOST_EXPERTS && choice->logits->a.count == state->scene.tokens * actor->width &&
            (how == BY_LOGITS ? explains(choice, state) : explains_with_biases(choice, state)))
            return actor;
    }
    return NULL;
}

static void unequal(struct ts_judge *state, size_t i)
{
    ts_judge_differs(state, i,
                     ts_judge_say(state->out, "integers differ in %" PRIu64 " place%s", state->deltas[i].unequal,
                                  state->deltas[i].unequal == 1 ? "" : "s"));
}

/* The share of the chosen that are others, by their numbers and not by their order; 0 when a row cannot be read. */
static double exchanged(struct choice *choice, uint64_t tokens, size_t *flipped)
{
    size_t others = 0;
    *flipped = 0;
    for (uint64_t token = 0; token < tokens; token++) {
        if (!read_choice(choice, token))
            return 1;
        *flipped += memcmp(choice->a, choice->b, choice->count * sizeof *choice->a) != 0;
        for (size_t i = 0; i < choice->count; i++) {
            size_t k = 0;
            while (k < choice->count && choice->b[k] != choice->a[i])
                k++;
            others += k == choice->count;
        }
    }
    return (double)others / ((double)tokens * (double)choice->count);
}

/* No logits were captured at all. Noise exchanges experts that were nearly tied: so many of them, by what came in, as
 * neighbours in a row of numbers lie that close. */
static bool are_unseen_ties(struct ts_judge *state, size_t i, struct choice *choice, size_t *flipped)
{
    double came = 0, share = exchanged(choice, state->scene.tokens, flipped);
    double one = 1 / ((double)state->scene.tokens * (double)choice->count);
    size_t row = 0;
    for (size_t back = 1; back <= BACK && back <= i; back++)
        if (isfinite(state->errors[i - back]))
            came = fmax(came, state->errors[i - back]);
    if (!(came > 0) || *flipped == 0)
        return false;
    if ((double)*flipped > fmax(2, FLIPS_BY_ERROR * came * (double)(state->scene.tokens * choice->count)) ||
        share > fmax(2 * (double)choice->count * one, fmin(6 * came, 0.5)))
        return false;
    *flipped = choice->turned = 0;
    for (uint64_t token = 0; token < state->scene.tokens; token++) {
        bool taken;
        while (row < state->scene.taken_count && state->scene.taken[row] < token)
            row++;
        taken = row < state->scene.taken_count && state->scene.taken[row] == token;
        if (!read_choice(choice, token) || memcmp(choice->a, choice->b, choice->count * sizeof *choice->a) == 0)
            continue;
        if (ts_are_same_experts(choice->a, choice->b, choice->count)) {
            choice->turned++;
            if (taken)
                ts_judge_turn_round(state, i, row, choice->count);
            continue;
        }
        ++*flipped;
        if (taken)
            ts_judge_leave_out(state, row, true);
    }
    return true;
}

/* All of the candidate's choices follow from its own logits and biases that explain the reference's; and no more of
 * them are others than the error of the logits makes (or `few`), which few tokens with few bounds would not say. */
static bool are_biased_choices(struct ts_judge *state, size_t i, struct choice *choice, double few, size_t *flipped)
{
    const struct ts_actor *logits = find_logits(state, i, choice, WITH_BIASES);
    double came = logits ? state->errors[logits->pair] : 0;
    size_t row = 0;
    bool good = logits && isfinite(came);
    *flipped = choice->turned = 0;
    for (uint64_t token = 0; token < state->scene.tokens && good; token++) {
        good = read_choice(choice, token) && is_own_choice(choice, token, true);
        *flipped += good && !ts_are_same_experts(choice->a, choice->b, choice->count);
    }
    good = good && (double)*flipped <= fmax(few, FLIPS_BY_ERROR * came * (double)(state->scene.tokens * choice->count));
    for (uint64_t token = 0; token < state->scene.tokens && good; token++) {
        while (row < state->scene.taken_count && state->scene.taken[row] < token)
            row++;
        good = read_choice(choice, token);
        if (!good || memcmp(choice->a, choice->b, choice->count * sizeof *choice->a) == 0)
            continue;
        choice->turned += ts_are_same_experts(choice->a, choice->b, choice->count);
        if (row == state->scene.taken_count || state->scene.taken[row] != token)
            continue;
        if (ts_are_same_experts(choice->a, choice->b, choice->count))
            ts_judge_turn_round(state, i, row, choice->count);
        else
            ts_judge_leave_out(state, row, false);
    }
    ts_router_bias_close(&choice->bias);
    return good;
}

/* Of a few tokens a choice may follow from the logits by chance, where a bias that was not captured hardly moves it.
 * The routers of other layers tell: whether the reference's choice at one of them is not the largest of what stands as
 * far before it as these logits do. */
static bool chooses_otherwise_elsewhere(struct ts_judge *state, size_t i, const struct choice *choice)
{
    const size_t back = i - (size_t)(choice->logits - state->pairs);
    struct choice *other = malloc(sizeof *other);
    bool found = false;
    for (size_t k = back; k < state->out->count && other && !found; k++) {
        const struct ts_pair *indices = &state->pairs[k], *logits = &state->pairs[k - back];
        if (k == i || indices->problem || logits->problem || indices->a.count != choice->indices->a.count ||
            logits->a.count != choice->logits->a.count || !ts_judge_same_point(indices->name, choice->indices->name) ||
            !ts_judge_same_point(logits->name, choice->logits->name))
            continue;
        *other = *choice;
        other->indices = indices;
        other->logits = logits;
        found = !explains(other, state);
    }
    free(other);
    return found;
}

/* The reference's experts are the largest of its logits and stand in their order, but for some tokens: what ranks them
 * is not the logits alone, even where it took none of the others. Experts in no order follow by chance, in half of the
 * tokens at most. */
static bool are_nearly_in_order(const struct ts_judge *state, const struct choice *choice)
{
    struct choice *other = choice->ordered ? NULL : malloc(sizeof *other);
    size_t follow = 0;
    if (!other)
        return false;
    *other = *choice;
    other->ordered = true;
    for (size_t row = 0; row < state->scene.taken_count; row++)
        follow += read_choice(other, state->scene.taken[row]) && is_own_choice(other, state->scene.taken[row], false);
    free(other);
    return (double)follow >= NEARLY_IN_ORDER * (double)state->scene.taken_count;
}

/* A bias that changed nothing in the reference's tokens, of which there are few, may in the candidate's: in one that is
 * nearly tied with it. So may one that changed no more than their order. */
static bool are_biased_after_all(struct ts_judge *state, size_t i, struct choice *choice, size_t *flipped)
{
    const struct ts_pair *logits = choice->logits;
    uint64_t tokens = 0;
    for (size_t k = 0; k < state->out->count; k++)
        if (k == i || ts_judge_same_point(state->pairs[k].name, choice->indices->name))
            tokens += state->scene.tokens;
    if (tokens >= TELLING_TOKENS && !are_nearly_in_order(state, choice))
        return false;
    choice->replayed = !are_biased_choices(state, i, choice, 0, flipped);
    choice->logits = logits;
    return !choice->replayed;
}

/* Counts the tokens that chose otherwise; false when one of them had no reason to. */
static bool count_flipped(struct ts_judge *state, size_t i, struct choice *choice, bool exact, size_t *flipped)
{
    struct ts_scene *scene = &state->scene;
    const struct ts_actor *logits = exact ? find_logits(state, i, choice, BY_LOGITS) : NULL;
    size_t row = 0, unseen = 0;
    const bool replayed = choice->replayed = logits != NULL;
    if (!logits && (are_biased_choices(state, i, choice, 2, flipped) || are_unseen_ties(state, i, choice, flipped)))
        return true;
    if (!logits)
        logits = find_logits(state, i, choice, ANY);
    *flipped = choice->turned = 0;
    for (uint64_t token = 0; token < scene->tokens; token++) {
        bool taken;
        while (row < scene->taken_count && scene->taken[row] < token)
            row++;
        taken = row < scene->taken_count && scene->taken[row] == token;
        if (!read_choice(choice, token))
            return false;
        if (memcmp(choice->a, choice->b, choice->count * sizeof *choice->a) == 0)
            continue;
        if (!replayed && !taken) { /* its logits were not looked at */
            unseen++;
            continue;
        }
        if (replayed ? is_own_choice(choice, token, true)
                     : scene->aside[row] || (logits && is_near_tie(logits, row, choice->count))) {
            if (ts_are_same_experts(choice->a, choice->b, choice->count)) {
                if (taken)
                    ts_judge_turn_round(state, i, row, choice->count);
                choice->turned++;
                continue;
            }
            ++*flipped;
            if (taken)
                ts_judge_leave_out(state, row, !replayed);
            continue;
        }
        if (replayed && chooses_otherwise_elsewhere(state, i, choice))
            return count_flipped(state, i, choice, false, flipped);
        if (replayed && are_biased_after_all(state, i, choice, flipped))
            return true;
        if (replayed)
            ts_judge_differs(state, i,
                             ts_judge_say(state->out,
                                          "token %" PRIu64 " chose what is not the largest of the candidate's own %s",
                                          token, choice->logits->name));
        else
            unequal(state, i);
        return false;
    }
    /* others are believed only where some were seen to be ties */
    if (unseen && !*flipped && !choice->turned)
        return false;
    *flipped += unseen;
    return true;
}

const char *ts_judge_counts_otherwise(struct ts_judge *state, size_t i)
{
    uint64_t of_a, of_b;
    if (!ts_counts_otherwise(&state->pairs[i], state->scene.tokens, state->kinds[i] == TS_OPERATION_TOPK, &of_a, &of_b))
        return NULL;
    return ts_judge_say(state->out, "the candidate chooses %" PRIu64 " for each token, the reference %" PRIu64, of_b,
                        of_a);
}

void ts_judge_integers(struct ts_judge *state, size_t i)
{
    const struct ts_pair *pair = &state->pairs[i];
    uint64_t tokens = state->scene.tokens, width = tokens && pair->a.count % tokens == 0 ? pair->a.count / tokens : 0;
    struct choice *choice;
    size_t flipped = 0;
    if (tokens > 1 && width && i && ts_is_of_experts(pair->name) && ts_is_gathering_order(pair, tokens)) {
        ts_judge_gathering(state, i);
        return;
    }
    if (ts_judge_keys(state, i))
        return;
    if (!width || width > MOST_CHOSEN || tokens == 1 || !(choice = calloc(1, sizeof *choice))) {
        unequal(state, i);
        return;
    }
    choice->indices = pair;
    choice->count = (size_t)width;
    if (!ts_may_be_chosen(pair, choice->count, tokens)) {
        unequal(state, i);
    } else if (count_flipped(state, i, choice, true, &flipped)) {
        if (flipped) {
            state->out->verdicts[i].judged = TS_JUDGED_NOISE;
            state->out->verdicts[i].why =
                ts_judge_say(state->out, "%zu token%s routed to different experts%s; %s set aside from here on",
                             flipped, flipped == 1 ? " was" : "s were",
                             !choice->replayed ? ", apparently on a near tie"
                             : choice->ordered ? ""
                                               : " on a near tie",
                             flipped == 1 ? "it is" : "they are");
        } else if (choice->turned) {
            state->out->verdicts[i].judged = TS_JUDGED_NOISE;
            state->out->verdicts[i].why =
                ts_judge_say(state->out, "%zu token%s the same experts in another order, on a near tie", choice->turned,
                             choice->turned == 1 ? " has" : "s have");
        } else {
            unequal(state, i);
        }
    } else if (state->out->verdicts[i].judged != TS_JUDGED_DIFFERS) {
        unequal(state, i);
    }
    free(choice);
}
