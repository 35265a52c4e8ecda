#include "compare/judge.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/progress.h"
#include "base/text.h"
#include "compare/judge_state.h"
#include "pair/align.h"
#include "pair/facts.h"
#include "tensor/layer.h"

#define DOUBTFUL      30.0 /* times what the run's projections err by */
#define FOLLOWS_SLOPE 0.8
#define FOLLOWS_LEAST 1.2 /* where it does nothing else: values that were cut off instead of rounded follow by 0.87 */
#define FOLLOWS_ALL   0.95
#define FOLLOWS_COUNT 64 /* numbers, so that chance makes no such slope */
/* Another soft cap or axis leaves so much less of a product's error: cut off numbers, which have a direction as well,
 * keep half of it. */
#define RIVAL_LIMIT 3.0
#define SPARED      0.25 /* of the rows and heads of a product, which are exact */
/* Tokens of a long sequence that are looked at because the worst elements are there. */
#define WORST_TOKENS   12
#define MOST_TOKENS    ((uint64_t)1 << 22)
#define MODULATED_MORE 2.0 /* other weights of the same precision err by as much, more or less */
#define MODULATED_MOST 3.0 /* of a captured modulation: its error is one of the scale, and 1 is added to that */
#define PLAIN_NORM     0.3 /* of its error: a norm that errs by less has weights, no products */

const char *ts_judge_say(struct ts_judgement *out, const char *format, ...)
{
    va_list args;
    const char *kept;
    va_start(args, format);
    kept = ts_arena_vsay(&out->arena, format, args);
    va_end(args);
    return kept;
}

struct ts_times ts_judge_times(double value)
{
    struct ts_times times;
    const double unit = value < 1e9 ? 1e6 : 1e9, step = value < 1e4 ? 100 : value < 1e5 ? 1000 : 10000;
    const unsigned whole = value < 1e6 ? (unsigned)(nearbyint(value / step) * step) : 0;
    if (value < 1000 || !(value < 1e12))
        snprintf(times.text, sizeof times.text, "%.3g", value);
    else if (value >= 995000)
        snprintf(times.text, sizeof times.text, "%.3g %s", value / unit, value < 1e9 ? "million" : "billion");
    else
        snprintf(times.text, sizeof times.text, "%u,%03u", whole / 1000, whole % 1000);
    return times;
}

void ts_judge_note(struct ts_judgement *out, const char *text)
{
    if (out->note_count < sizeof out->notes / sizeof *out->notes)
        out->notes[out->note_count++] = text;
}

void ts_judge_differs(struct ts_judge *state, size_t i, const char *why)
{
    state->out->verdicts[i].judged = TS_JUDGED_DIFFERS;
    state->out->verdicts[i].made_here = true;
    state->out->verdicts[i].why = why;
}

double ts_judge_rounding(const struct ts_delta *delta)
{
    int bits = delta->precision_a < delta->precision_b ? delta->precision_a : delta->precision_b;
    return ts_rounding(bits > 0 ? bits : 23);
}

struct usual {
    double ratios[64], locals[64], slopes[64];
    size_t count;
};

static void add_usual(struct usual *usual, const struct ts_judge *state, enum ts_operation_kind kind, bool parts)
{
    usual->count = 0;
    for (size_t i = 0; i < state->out->count && usual->count < 64; i++)
        if (state->products[i] && (state->kinds[i] == kind || kind == TS_OPERATION_NONE) &&
            isfinite(state->replays[i].ratio)) {
            usual->ratios[usual->count] = parts ? state->replays[i].worst_part : state->replays[i].ratio;
            usual->slopes[usual->count] = fabs(state->replays[i].slope);
            usual->locals[usual->count++] = state->replays[i].local;
        }
}

/* Products may run in a precision that neither side shows: a cache in fp8, autocast. Then all of a kind err alike, by
 * little, and the one that errs more than the others is looked for. A cache in four bits makes more of it, which does
 * not follow the result, as that of another factor does. Of one layer, the scores and the context are taken together.
 */
static double usual_replay(const struct ts_judge *state, enum ts_operation_kind kind, bool parts)
{
    struct usual usual;
    double most;
    add_usual(&usual, state, kind, parts);
    if (usual.count < 2)
        add_usual(&usual, state, TS_OPERATION_NONE, parts);
    if (usual.count < 2)
        return 0;
    if (usual.count == 2) { /* two that agree are evidence of a small error, or of one that does not follow */
        most = fmax(usual.locals[0], usual.locals[1]);
        return most < (fmax(usual.slopes[0], usual.slopes[1]) < 0.3 ? 0.25 : 0.05) &&
                       most < 2 * fmin(usual.locals[0], usual.locals[1])
                   ? fmax(usual.ratios[0], usual.ratios[1])
                   : 0;
    }
    return ts_nth(usual.locals, usual.count, usual.count / 2) <
                   (ts_nth(usual.slopes, usual.count, usual.count / 2) < 0.3 ? 0.25 : 0.1)
               ? ts_nth(usual.ratios, usual.count, usual.count / 2)
               : 0;
}

/* A small error that this run's projections make: the precision its products run in, whatever their operands show. Not
 * the smallest, which may be a product's in a stream that it is small beside. */
static double product_level(const struct ts_judge *state)
{
    double errors[12];
    size_t seen = 0;
    for (size_t i = 0; i < state->out->count && seen < 12; i++)
        if (ts_judge_is_free(state, i) && state->errors[i] > 0)
            errors[seen++] = state->errors[i];
    return seen >= 3 ? ts_nth(errors, seen, seen / 4) : 0;
}

enum failure { NO_FAILURE, ALL_FAILS, PART_FAILS, CHANNEL_FAILS, TOGETHER_FAILS };

/* What makes the error may be products that were not captured: in attention itself, or of the scale and shift of an
 * adaptive norm, which look like the weight and bias of a plain one. Those err as others do before the norm; behind it
 * others carry its error. In attention a cache may be coarse where everything before is equal to the last bit: there
 * only another function, that explains the error, speaks against a precision. */
static double level_of_hidden_products(const struct ts_judge *state, size_t i)
{
    size_t before = 0, unequal = 0;
    if ((!state->products[i] || state->replays[i].rival > 0) && !state->adaptive[i])
        return 0;
    for (size_t k = 0; k < i && state->adaptive[i]; k++)
        if (ts_judge_is_free(state, k)) {
            before++;
            unequal += state->errors[k] > 0;
        }
    return before >= 3 && !unequal ? 0 : product_level(state);
}

/* A scale and a shift that were not captured, of a run that shows the outputs of its layers alone: they come out of
 * products as coarse as those that made what the layers added. Where the run has another such norm that errs far less,
 * its weights are no products. */
static bool errs_as_layers_do(const struct ts_judge *state, size_t i)
{
    double updates[64];
    size_t count = 0;
    if (!state->adaptive[i] || state->modulated[i] > 0 || state->replays[i].ratio <= FOLLOWS_LEAST)
        return false;
    for (size_t k = 0; k < state->out->count; k++) {
        if (k != i && state->adaptive[k] && state->replays[k].local < PLAIN_NORM * state->replays[i].local)
            return false;
        if (k < i && count < 64 && state->follows[k] && state->updates[k] > 0)
            updates[count++] = state->updates[k];
    }
    return count && state->replays[i].local < MODULATED_MORE * ts_nth(updates, count, count / 4);
}

/* In another layer, where the modulation was captured, the same point was learnt as what that makes of a norm. Here it
 * was not, and errs by as much. */
static bool errs_as_modulations_do(const struct ts_judge *state, size_t i)
{
    if (!state->adaptive[i] || state->modulated[i] > 0)
        return false;
    for (size_t k = 0; k < state->out->count; k++)
        if (state->kinds[k] == TS_OPERATION_MODULATE &&
            state->replays[i].local < MODULATED_MORE * state->modulated[k] &&
            ts_judge_same_point(state->pairs[k].name, state->pairs[i].name))
            return true;
    return false;
}

/* By its name a scale and a shift are applied there, which were captured nowhere: products made them, as coarse as
 * those before it. */
static bool errs_as_products_before(const struct ts_judge *state, size_t i)
{
    double errors[64];
    size_t count = 0;
    if (!state->adaptive[i] || state->modulated[i] > 0 || !strstr(state->pairs[i].name, "modulat"))
        return false;
    for (size_t k = i; k-- > 0 && count < 64;)
        if (ts_judge_is_free(state, k) && !ts_judge_is_norm(state->pairs[k].name))
            errors[count++] = state->errors[k];
    return count && fabs(state->replays[i].slope) < FOLLOWS_SLOPE &&
           state->replays[i].local < ts_nth(errors, count, count / 4);
}

static bool follows(const struct ts_judge *state, size_t i)
{
    double ratio = state->replays[i].ratio, slope = fabs(state->replays[i].slope);
    return state->pairs[i].a.count >= FOLLOWS_COUNT &&
           !(state->kinds[i] == TS_OPERATION_NORM &&
             state->replays[i].local < ts_judge_sum_rounding(&state->pairs[i])) &&
           ((ratio > TS_FOLLOWS_FROM && slope > FOLLOWS_SLOPE) || (ratio > FOLLOWS_LEAST && slope > FOLLOWS_ALL));
}

/* A precision that is hidden in a product of captured tensors, as a cache in eight bits is, touches all that comes out
 * of it: scores and contexts of which a good part is exact are no work of one. (Probabilities are 1 where there is one
 * key.) */
static bool is_spared(const struct ts_judge *state, size_t i)
{
    return (state->kinds[i] == TS_OPERATION_SCORES || state->kinds[i] == TS_OPERATION_CONTEXT) &&
           state->replays[i].calm > SPARED;
}

static enum failure replay_fails(const struct ts_judge *state, size_t i)
{
    const struct ts_replay *replay = &state->replays[i];
    enum ts_operation_kind kind = state->kinds[i];
    double room = 1;
    bool excused = state->products[i] && !(replay->rival > 0) && !is_spared(state, i);
    if (kind == TS_OPERATION_NONE || !state->deltas[i].unequal ||
        (replay->local < 0.01 && replay->local < 2.5 * level_of_hidden_products(state, i)) ||
        (state->adaptive[i] && replay->local < MODULATED_MOST * state->modulated[i]) || errs_as_layers_do(state, i) ||
        errs_as_modulations_do(state, i) || errs_as_products_before(state, i))
        return NO_FAILURE;
    if (state->products[i] || kind == TS_OPERATION_ROTARY || ts_judge_rounding(&state->deltas[i]) < ts_rounding(10))
        room = TS_REPLAY_FINE;
    room *= ts_judge_chance(state, i);
    if (replay->ratio > fmax(room * TS_REPLAY_LIMIT, excused ? 5 * usual_replay(state, kind, false) : 0) ||
        (!state->products[i] && follows(state, i)) || (state->products[i] && replay->rival > RIVAL_LIMIT))
        return ALL_FAILS;
    if (replay->worst_part > fmax(room * TS_REPLAY_PART, excused ? 5 * usual_replay(state, kind, true) : 0))
        return PART_FAILS;
    if (!state->products[i] && replay->worst_channel_part > room * TS_REPLAY_CHANNEL)
        return CHANNEL_FAILS;
    return replay->matched > 0 ? TOGETHER_FAILS : NO_FAILURE;
}

/* A product in one step is granted the precision of tensor cores, in which this run's other products do not live. */
static bool is_doubtful(const struct ts_judge *state, size_t i)
{
    return state->kinds[i] == TS_OPERATION_ATTENTION && state->out->verdicts[i].judged == TS_JUDGED_NOISE &&
           state->replays[i].local > DOUBTFUL * product_level(state);
}

static void judge_replay(struct ts_judge *state, size_t i)
{
    const struct ts_replay *replay = &state->replays[i];
    enum failure failure = replay_fails(state, i);
    char token[64];
    ts_scene_token_text(&state->scene, state->scene.taken[replay->worst_row], token, sizeof token);
    if (failure == ALL_FAILS && replay->ratio <= TS_REPLAY_LIMIT)
        ts_judge_differs(
            state, i,
            ts_judge_say(state->out,
                         "replayed on the candidate's own inputs, the reference's operation gives a different result: "
                         "off by %s times what rounding explains, %.2f of it proportional to the result",
                         ts_judge_times(replay->ratio).text, replay->slope));
    else if (failure == ALL_FAILS)
        ts_judge_differs(
            state, i,
            ts_judge_say(state->out,
                         "replayed on the candidate's own inputs, the reference's operation gives a different result: "
                         "off by %s times what rounding explains",
                         ts_judge_times(replay->ratio).text));
    else if (failure == PART_FAILS)
        ts_judge_differs(state, i,
                         ts_judge_say(state->out,
                                      "replayed on the candidate's own inputs, %s comes out differently: "
                                      "off by %s times what rounding explains",
                                      token, ts_judge_times(replay->worst_part).text));
    else if (failure == CHANNEL_FAILS)
        ts_judge_differs(state, i,
                         ts_judge_say(state->out,
                                      "replayed on the candidate's own inputs, channel %zu comes out differently: "
                                      "off by %s times what rounding explains",
                                      replay->worst_channel, ts_judge_times(replay->worst_channel_part).text));
    else if (failure == TOGETHER_FAILS)
        ts_judge_differs(state, i,
                         ts_judge_say(state->out,
                                      "replayed on the candidate's own inputs, no number is off by more than rounding, "
                                      "but together they point to a different %s, by %.0f standard errors",
                                      state->kinds[i] == TS_OPERATION_NORM ? "epsilon" : "function", replay->matched));
}

static void first_look(struct ts_judge *state, size_t i)
{
    const struct ts_pair *pair = &state->pairs[i];
    const struct ts_delta *delta = &state->deltas[i];
    struct ts_verdict *verdict = &state->out->verdicts[i];
    double rounding = ts_judge_rounding(delta);
    verdict->noise_ratio = (double)NAN;
    verdict->roundings = pair->problem ? 0 : (delta->rel_l2 / rounding) * (delta->rel_l2 / rounding);
    if (pair->problem) {
        verdict->judged = TS_JUDGED_UNKNOWN;
        verdict->why = pair->problem;
    } else if (delta->identical || delta->unequal == 0) {
        verdict->judged = TS_JUDGED_OK;
    } else {
        verdict->judged = verdict->roundings <= 1 ? TS_JUDGED_OK : TS_JUDGED_NOISE;
    }
}

/* After the first divergence everything carries its error; what stands above the noise before it differs, and so does
 * what has no relation to the reference, as large as that noise may be. */
static void judge_downstream(struct ts_judge *state)
{
    struct ts_judgement *out = state->out;
    double before = 0;
    for (size_t i = 0; i < out->first; i++)
        if (isfinite(state->errors[i]) && state->errors[i] > before)
            before = state->errors[i];
    for (size_t i = out->first + 1; i < out->count; i++) {
        struct ts_verdict *verdict = &out->verdicts[i];
        double level = state->reordered[i] ? state->errors[i] : state->deltas[i].rel_l2;
        if (verdict->judged == TS_JUDGED_DIFFERS || verdict->judged == TS_JUDGED_UNKNOWN)
            continue;
        if ((level > 3 * before && level > 4 * ts_judge_rounding(&state->deltas[i])) ||
            (level > TS_UNRELATED && state->deltas[i].cosine < TS_RESEMBLES)) {
            verdict->judged = TS_JUDGED_DIFFERS;
            verdict->why = "carried from the first divergence";
        }
    }
}

static void sum_up(struct ts_judge *state)
{
    struct ts_judgement *out = state->out;
    size_t votes[24] = {0}, best = 23;
    for (size_t i = 0; i < out->count; i++) {
        int bits = state->deltas[i].precision_b;
        out->counts[out->verdicts[i].judged]++;
        if (!state->pairs[i].problem && bits >= 0 && bits < 24)
            votes[bits]++;
    }
    for (size_t k = 0; k < 24; k++)
        if (votes[k] > votes[best])
            best = k;
    out->precision_b = (int)best;
    if (out->weights)
        return;
    for (size_t i = 0; i < out->count; i++)
        out->verdicts[i].error = state->errors[i];
    out->tokens = state->scene.tokens;
    out->aside = ts_arena_array(&out->arena, state->scene.taken_count + 1, sizeof *out->aside);
    if (state->guesses)
        out->guessed = ts_arena_array(&out->arena, state->scene.taken_count + 1, sizeof *out->guessed);
    for (size_t row = 0; out->aside && row < state->scene.taken_count; row++)
        if (state->scene.aside[row] || (state->returned && state->returned[row])) {
            if (out->guessed)
                out->guessed[out->aside_count] = state->guesses[row];
            out->aside[out->aside_count++] = state->scene.taken[row];
        }
    if (out->coarse != SIZE_MAX && out->coarse < out->first)
        ts_judge_note(
            out, ts_judge_say(out,
                              "from \"%s\" on, errors are as large as low-bit weights or a low-bit cache make them "
                              "(%.2g there); if the candidate uses neither, look at what computes that tensor",
                              state->pairs[out->coarse].name, state->errors[out->coarse]));
    ts_judge_note_flips(state);
    ts_judge_note_aside(state);
    if (out->tokens == 1)
        ts_judge_note(
            out, "only one token: errors in rotary angles, masks or the softmax over several keys cannot show; use a "
                 "longer prompt");
}

/* experts.down_proj is a stack of weights that has no word for it, experts.3.w1.qzeros belongs to one; experts.3.w1 is
 * what a module gave in a run. */
static bool is_weight_of_experts(const char *name)
{
    const char *at = strstr(name, ".experts.");
    if (!at)
        return false;
    at += strlen(".experts.");
    if (!strchr("0123456789", *at))
        return true;
    at = strchr(at, '.');
    return at && strchr(at + 1, '.');
}

bool ts_judge_are_weights(const struct ts_pair *pairs, size_t count)
{
    size_t weights = 0;
    for (size_t i = 0; i < count; i++) {
        weights += ts_is_parameter(pairs[i].name) || ts_is_parameter(pairs[i].a.tensor->name) ||
                   is_weight_of_experts(pairs[i].name);
    }
    return count > 0 && weights * 2 > count;
}

/* Bits that a number of this tensor takes in its file. */
static double stored_bits(const struct ts_tensor *tensor)
{
    return tensor->count ? (double)tensor->bytes * 8 / (double)tensor->count : 32;
}

/* Relative error that rounding to a type or quantizing to so many bits makes, with some room: a grid of 2^bits steps
 * over the range of a block errs near 2^-bits of its RMS, and twice that where blocks hold outliers. */
static double allowed_error(const struct ts_pair *pair, const struct ts_delta *delta)
{
    double rounding = 3 * ts_judge_rounding(delta), grid = 0;
    if (ts_type_info(pair->a.tensor->type)->kind == TS_CLASS_QUANT)
        grid = 3 * exp2(-floor(stored_bits(pair->a.tensor)));
    if (ts_type_info(pair->b.tensor->type)->kind == TS_CLASS_QUANT)
        grid = fmax(grid, 3 * exp2(-floor(stored_bits(pair->b.tensor))));
    return fmax(rounding, grid);
}

static void judge_weights(struct ts_judge *state)
{
    struct ts_judgement *out = state->out;
    for (size_t i = 0; i < out->count; i++) {
        const struct ts_delta *delta = &state->deltas[i];
        struct ts_verdict *verdict = &out->verdicts[i];
        /* neither a NaN nor another integer is noise, however small the rest of the difference is */
        bool never_noise = delta->non_finite_mismatch || (delta->exact && delta->unequal);
        if (verdict->judged == TS_JUDGED_UNKNOWN || (verdict->judged == TS_JUDGED_OK && !never_noise))
            continue;
        if (delta->non_finite_mismatch)
            ts_judge_differs(
                state, i,
                ts_judge_say(out, "%" PRIu64 " element%s NaN or infinite on one side and something else on the other",
                             delta->non_finite_mismatch, delta->non_finite_mismatch == 1 ? " is" : "s are"));
        else if (delta->exact)
            ts_judge_differs(state, i,
                             ts_judge_say(out, "integers differ in %" PRIu64 " place%s", delta->unequal,
                                          delta->unequal == 1 ? "" : "s"));
        else if (!(delta->rel_l2 <= allowed_error(&state->pairs[i], delta)))
            ts_judge_differs(
                state, i,
                ts_judge_say(out, "%.3g %% of its elements changed, by %.3g of its norm; rounding explains %.2g",
                             100 * (double)delta->unequal / (double)delta->count, delta->rel_l2,
                             allowed_error(&state->pairs[i], delta)));
        if (verdict->judged == TS_JUDGED_DIFFERS && out->first == SIZE_MAX)
            out->first = i;
    }
}

/* Of a long sequence only some tokens are looked at. Those with the worst elements must be among them: each pair votes
 * for its own, the more the further it stands out. */
static void take_worst_tokens(struct ts_judge *state)
{
    struct ts_scene *scene = &state->scene;
    double *votes;
    uint64_t chosen[WORST_TOKENS];
    size_t count = 0;
    if (scene->taken_count == scene->tokens || scene->tokens > MOST_TOKENS ||
        !(votes = calloc((size_t)scene->tokens, sizeof *votes)))
        return;
    for (size_t i = 0; i < state->out->count; i++) {
        const struct ts_delta *delta = &state->deltas[i];
        uint64_t token;
        double vote = delta->mse > 0 ? delta->max_abs / sqrt(delta->mse) : 0;
        if (delta->worst != UINT64_MAX && isfinite(vote) && ts_scene_token(scene, i, delta->worst, &token))
            votes[token] += vote;
    }
    while (count < WORST_TOKENS) {
        size_t best = 0;
        for (size_t token = 1; token < scene->tokens; token++)
            best = votes[token] > votes[best] ? token : best;
        if (!(votes[best] > 0))
            break;
        votes[best] = 0;
        chosen[count++] = best;
    }
    free(votes);
    ts_scene_take(scene, chosen, count);
}

/* Another number of experts was seen in its layer. */
static bool is_counted(const struct ts_judge *state, size_t i)
{
    return state->counted && ts_same_layer(state->pairs[state->counted - 1].name, state->pairs[i].name);
}

/* That explains what is wrong with it: neither a shared expert nor what is made of tensors that are known. */
static bool is_of_other_count(const struct ts_judge *state, size_t i)
{
    return is_counted(state, i) && !strstr(state->pairs[i].name, "shared") &&
           (state->kinds[i] == TS_OPERATION_NONE || state->kinds[i] == TS_OPERATION_TOPK);
}

static enum ts_status judge_all(struct ts_judge *state, struct ts_pool *pool, struct ts_error *error)
{
    struct ts_judgement *out = state->out;
    bool unequal = false, gone;
    const char *why = NULL, *otherwise;
    for (size_t i = 0; i < out->count; i++)
        first_look(state, i);
    out->first = SIZE_MAX;
    out->weights = state->subject == TS_SUBJECT_GUESS ? ts_judge_are_weights(state->pairs, out->count)
                                                      : state->subject == TS_SUBJECT_CHECKPOINTS;
    if (out->weights) {
        judge_weights(state);
        sum_up(state);
        return TS_OK;
    }
    for (size_t i = 0; i < out->count; i++)
        unequal = unequal || state->deltas[i].unequal || state->deltas[i].masked;
    if (unequal) {
        take_worst_tokens(state);
        ts_judge_find_flips(state);
    }
    if (unequal)
        TS_TRY(ts_judge_look(state, pool, error));
    for (state->failed = 0; state->failed < out->count; state->failed++)
        if (out->verdicts[state->failed].judged == TS_JUDGED_DIFFERS ||
            replay_fails(state, state->failed) != NO_FAILURE)
            break;
    gone = ts_judge_is_mostly_gone(state);
    for (size_t i = 0; i < out->count && out->first == SIZE_MAX; i++) {
        if (!is_counted(state, i) && (otherwise = ts_judge_counts_otherwise(state, i))) {
            state->counted = i + 1;
            why = otherwise;
        }
        if (state->learnt[i] && out->verdicts[i].judged != TS_JUDGED_DIFFERS)
            judge_replay(state, i);
        if ((!state->learnt[i] && out->verdicts[i].judged == TS_JUDGED_NOISE) || is_doubtful(state, i))
            ts_judge_unlearnt(state, i);
        if (gone && ts_judge_has_nobody_left(state, i)) {
            out->verdicts[i].judged = TS_JUDGED_UNKNOWN;
            out->verdicts[i].why = "all of its tokens were set aside before it, and none is left to judge it by";
        }
        if (out->verdicts[i].judged == TS_JUDGED_OK || out->verdicts[i].judged == TS_JUDGED_NOISE)
            ts_judge_is_rounded_alone(state, i);
        if (out->verdicts[i].judged == TS_JUDGED_DIFFERS)
            out->first = i;
    }
    if (out->first != SIZE_MAX && is_of_other_count(state, out->first)) {
        out->first = state->counted - 1;
        ts_judge_differs(state, out->first, why);
    }
    if (out->first != SIZE_MAX)
        judge_downstream(state);
    sum_up(state);
    return TS_OK;
}

enum ts_status ts_judge_run(const struct ts_pair *pairs, const struct ts_delta *deltas, size_t count,
                            struct ts_pool *pool, struct ts_judgement *judgement, struct ts_error *error)
{
    return ts_judge_run_as(TS_SUBJECT_GUESS, TS_EXPERTS_UNTOLD, pairs, deltas, count, pool, judgement, error);
}

/* Complex numbers as twice as many real ones, side by side where they are so in the file. Those that are computed or
 * joined stay, and are judged by their size alone. */
static bool real_side(struct ts_view *view, struct ts_arena *arena)
{
    struct ts_view real, flat;
    uint64_t shape[TS_MAX_RANK];
    if (!ts_align_real(view, arena, &real))
        return false;
    if (view->rank > 0) {
        memcpy(shape, view->shape, view->rank * sizeof *shape);
        shape[view->rank - 1] *= 2;
    }
    *view = view->rank > 0 && ts_view_reshape(&real, shape, view->rank, arena, &flat) ? flat : real;
    return true;
}

/* The pairs as the judge looks at them; NULL without memory. */
static const struct ts_pair *real_pairs(const struct ts_pair *pairs, size_t count, struct ts_arena *arena)
{
    struct ts_pair *copies = NULL;
    for (size_t i = 0; i < count; i++) {
        struct ts_view a = pairs[i].a, b = pairs[i].b;
        if (pairs[i].problem || ts_type_info(a.tensor->type)->components != 2 ||
            ts_type_info(b.tensor->type)->components != 2 || !real_side(&a, arena) || !real_side(&b, arena) ||
            a.rank != b.rank)
            continue;
        if (!copies) {
            copies = ts_arena_array(arena, count, sizeof *copies);
            if (!copies)
                return NULL;
            memcpy(copies, pairs, count * sizeof *copies);
        }
        copies[i].a = a;
        copies[i].b = b;
    }
    return copies ? copies : pairs;
}

enum ts_status ts_judge_run_as(enum ts_subject subject, enum ts_experts experts, const struct ts_pair *pairs,
                               const struct ts_delta *deltas, size_t count, struct ts_pool *pool,
                               struct ts_judgement *judgement, struct ts_error *error)
{
    struct ts_judge state = {.pairs = pairs,
                             .deltas = deltas,
                             .out = judgement,
                             .subject = subject,
                             .experts = experts == TS_EXPERTS_SOME,
                             .dense = experts == TS_EXPERTS_NONE,
                             .strayed = SIZE_MAX};
    enum ts_status status;
    *judgement = (struct ts_judgement){.count = count, .first = SIZE_MAX, .coarse = SIZE_MAX};
    ts_arena_init(&judgement->arena, (size_t)1 << 30);
    if (count && !(state.pairs = pairs = real_pairs(pairs, count, &judgement->arena))) {
        ts_judgement_release(judgement);
        return ts_fail_memory(error);
    }
    judgement->verdicts = ts_arena_array(&judgement->arena, count + 1, sizeof *judgement->verdicts);
    state.errors = calloc(count + 1, sizeof *state.errors);
    state.strays = calloc(count + 1, sizeof *state.strays);
    state.gone = calloc(count + 1, sizeof *state.gone);
    state.follows = calloc(count + 1, sizeof *state.follows);
    state.updates = calloc(count + 1, sizeof *state.updates);
    state.used = calloc(count + 1, sizeof *state.used);
    state.takes = calloc(count + 1, sizeof *state.takes);
    state.levels = calloc(count + 1, sizeof *state.levels);
    state.parts = calloc(count + 1, sizeof *state.parts);
    state.reordered = calloc(count + 1, sizeof *state.reordered);
    state.learnt = calloc(count + 1, sizeof *state.learnt);
    state.replays = calloc(count + 1, sizeof *state.replays);
    state.kinds = calloc(count + 1, sizeof *state.kinds);
    state.products = calloc(count + 1, sizeof *state.products);
    state.adaptive = calloc(count + 1, sizeof *state.adaptive);
    state.modulated = calloc(count + 1, sizeof *state.modulated);
    state.structures = calloc(count + 1, sizeof *state.structures);
    status = judgement->verdicts && state.errors && state.learnt && state.reordered && state.structures &&
                     state.strays && state.replays && state.kinds && state.products && state.adaptive &&
                     state.modulated && state.follows && state.updates && state.used && state.takes && state.levels &&
                     state.parts && state.gone
                 ? ts_scene_open(&state.scene, pairs, count, error)
                 : ts_fail_memory(error);
    if (status == TS_OK) {
        state.scene.in_one_step = state.scene.in_parts = state.scene.first_will_do = true;
        status = judge_all(&state, pool, error);
        ts_scene_release(&state.scene);
    }
    ts_judge_release_flips(&state);
    ts_points_release(&state.points);
    free(state.routing);
    free(state.guesses);
    free(state.returned);
    free(state.turned);
    free(state.errors);
    free(state.strays);
    free(state.gone);
    free(state.follows);
    free(state.updates);
    free(state.used);
    free(state.takes);
    free(state.levels);
    free(state.parts);
    free(state.learnt);
    free(state.reordered);
    free(state.replays);
    free(state.kinds);
    free(state.products);
    free(state.adaptive);
    free(state.modulated);
    free(state.structures);
    if (status != TS_OK)
        ts_judgement_release(judgement);
    return status;
}

void ts_judgement_release(struct ts_judgement *judgement)
{
    ts_arena_release(&judgement->arena);
    *judgement = (struct ts_judgement){0};
}
