#include "compare/judge.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "compare/structure.h"
#include "tensor/layer.h"

/* Above this many times what rounding explains, the operation itself is wrong. Honest replays stay below 1 in bf16 and
 * f16, below 5 in fp32, where constants learnt from rounded values add their part; planted bugs begin at 26. A single
 * row or head may stray further by chance. */
#define REPLAY_LIMIT 10.0
#define PART_LIMIT   16.0
/* Growth over what came in, where no operation could be learnt. */
#define GROWTH_LIMIT 8.0
#define CLOSE_LIMIT  4.0
#define INHERIT_FROM 12 /* earlier pairs whose error may have come in */
/* A precision may start at siblings up to this error: two-bit weights begin near one half. */
#define START_LIMIT 0.7
#define FIRST_LIMIT 1e-2 /* and alone, with nothing before it, up to this one */

struct state {
    const struct ts_pair *pairs;
    const struct ts_delta *deltas;
    struct ts_judgement *out;
    struct ts_scene scene;
    double *errors; /* relative L2 per pair; NaN when it could not be measured */
    bool *learnt;
    struct ts_structure *structures; /* per pair, for those that were not learnt */
    struct ts_replay *replays;       /* per pair, for those that were */
    enum ts_operation_kind *kinds;
    double *strays; /* per pair: how far its worst row stands out */
};

static const char *say(struct ts_judgement *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

static const char *say(struct ts_judgement *out, const char *format, ...)
{
    char text[512];
    va_list args;
    const char *kept;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    kept = ts_arena_string(&out->arena, text);
    return kept ? kept : "";
}

static void note(struct ts_judgement *out, const char *text)
{
    if (out->note_count < sizeof out->notes / sizeof *out->notes)
        out->notes[out->note_count++] = text;
}

static void differs(struct state *state, size_t i, const char *why)
{
    state->out->verdicts[i].judged = TS_JUDGED_DIFFERS;
    state->out->verdicts[i].made_here = true;
    state->out->verdicts[i].why = why;
}

static double pair_rounding(const struct ts_delta *delta)
{
    int bits = delta->precision_a < delta->precision_b ? delta->precision_a : delta->precision_b;
    return ts_rounding(bits > 0 ? bits : 23);
}

/* The largest error among the pairs just before i. */
static double inherited(const struct state *state, size_t i)
{
    double largest = 0;
    for (size_t back = 1; back <= INHERIT_FROM && back <= i; back++)
        if (isfinite(state->errors[i - back]) && state->errors[i - back] > largest)
            largest = state->errors[i - back];
    return largest;
}

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

/* The median error of what was not learnt before i: the level at which this run's products live. */
static double usual_level(const struct state *state, size_t i, size_t *seen)
{
    double recent[64], median;
    size_t count = 0;
    for (size_t back = 1; back <= i && count < 64; back++)
        if (!state->learnt[i - back] && isfinite(state->errors[i - back]) && state->errors[i - back] > 0)
            recent[count++] = state->errors[i - back];
    *seen = count;
    if (!count)
        return 0;
    qsort(recent, count, sizeof *recent, by_value);
    median = recent[count / 2];
    return median;
}

/* The same point of another layer: names that are equal but for one number. */
static bool same_point(const char *a, const char *b)
{
    unsigned differences = 0;
    while (*a && *b) {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            char *end_a, *end_b;
            differences += strtoul(a, &end_a, 10) != strtoul(b, &end_b, 10);
            a = end_a;
            b = end_b;
        } else if (*a++ != *b++) {
            return false;
        }
    }
    return !*a && !*b && differences == 1;
}

/* The error at the same point one layer earlier, 0 when there is none nearby. */
static double error_one_layer_earlier(const struct state *state, size_t i)
{
    for (size_t back = 1; back <= 96 && back <= i; back++)
        if (isfinite(state->errors[i - back]) && same_point(state->pairs[i - back].name, state->pairs[i].name))
            return state->errors[i - back];
    return 0;
}

static bool is_free(const struct state *state, size_t i)
{
    return !state->learnt[i] && isfinite(state->errors[i]);
}

static bool is_norm(const char *name)
{
    return strstr(name, "norm") || strstr(name, "ln_");
}

/* Tensors side by side in order, of one layer and without anything learnt between them, share their input: q, k and v.
 * When all of them start at the same level, a precision starts there and not a bug. Counts them; 0 also when one of
 * them does not. */
static size_t siblings_that_start(const struct state *state, size_t i, bool *alone)
{
    size_t first = i, last = i, siblings = 0;
    double level = state->errors[i];
    uint64_t layer, other;
    bool layered = ts_layer_of(state->pairs[i].name, &layer);
#define IS_SIBLING(k)                                                                                                  \
    (is_free(state, k) && layered && ts_layer_of(state->pairs[k].name, &other) && other == layer &&                    \
     !same_point(state->pairs[k].name, state->pairs[i].name))
    while (first > 0 && IS_SIBLING(first - 1))
        first--;
    while (last + 1 < state->out->count && IS_SIBLING(last + 1))
        last++;
#undef IS_SIBLING
    *alone = true;
    for (size_t k = first; k <= last; k++) {
        *alone = *alone && (k == i || is_norm(state->pairs[k].name));
        if (k == i || state->errors[k] == 0 || is_norm(state->pairs[k].name)) /* a norm before them is their input */
            continue;
        if (state->errors[k] < level / 3)
            return 0;
        siblings++;
    }
    return siblings;
}

/* A chain of the same points, layer after layer: weights of low precision add their error in every layer, a bug in one
 * place does not. */
static bool keeps_growing(const struct state *state, size_t i)
{
    double level = state->errors[i];
    unsigned seen = 0;
    for (size_t k = i + 1; k < state->out->count && seen < 2; k++)
        if (isfinite(state->errors[k]) && same_point(state->pairs[k].name, state->pairs[i].name)) {
            if (state->errors[k] < level * (seen ? 1.1 : 1.25)) /* equal parts add up to 1.41, then 1.22 */
                return false;
            level = state->errors[k];
            seen++;
        }
    return seen == 2;
}

/* The projections behind i add error to what came into them as well: every weight is of low precision, not one of them
 * wrong. */
static bool others_add_error(const struct state *state, size_t i)
{
    size_t looked_at = 0, adding = 0;
    for (size_t k = i + 1; k < state->out->count && looked_at < 8; k++) {
        size_t input = k;
        if (!is_free(state, k) || is_norm(state->pairs[k].name))
            continue;
        while (input > i && (!state->learnt[input] || !isfinite(state->errors[input])))
            input--;
        if (input <= i || !(state->errors[input] > 0))
            continue;
        looked_at++;
        adding += state->errors[k] > 1.1 * state->errors[input];
    }
    return looked_at >= 2 && adding * 5 >= looked_at * 3;
}

/* A precision may start at products that share their input, or, where only one point per layer was captured, along the
 * chain of these. A norm starts none. */
static bool may_start(const struct state *state, size_t i)
{
    const char *name = state->pairs[i].name;
    bool alone;
    const struct ts_structure *structure = &state->structures[i];
    if (is_norm(name) || (structure->known && structure->offset > TS_OFFSET_LIMIT))
        return false;
    if (siblings_that_start(state, i, &alone))
        return true;
    return alone && (keeps_growing(state, i) || others_add_error(state, i));
}

static void judge_unlearnt(struct state *state, size_t i)
{
    const struct ts_structure *structure = &state->structures[i];
    double level = state->errors[i], usual, base, earlier, rounding = pair_rounding(&state->deltas[i]);
    size_t seen;
    if (!isfinite(level))
        level = state->deltas[i].rel_l2;
    usual = usual_level(state, i, &seen);
    base = inherited(state, i);
    base = usual > base ? usual : base;
    base = 4 * rounding > base ? 4 * rounding : base;
    if (isinf(state->deltas[i].rel_l2)) {
        differs(state, i, "the reference is zero everywhere, and the candidate is not");
        return;
    }
    if (level > 0.9 && state->deltas[i].cosine < 0.3 && inherited(state, i) < 0.7) {
        differs(state, i,
                say(state->out, "it has no relation to the reference any more (cosine %.2f), while what came in does",
                    state->deltas[i].cosine));
        return;
    }
    /* where the same point one layer earlier lies at the run's level, growth is steadier and the limit closer */
    earlier = error_one_layer_earlier(state, i);
    if (level > (earlier > 0 && earlier < 1.5 * base ? CLOSE_LIMIT : GROWTH_LIMIT) * base &&
        !(level < START_LIMIT && may_start(state, i)) && !(seen < 3 && level < FIRST_LIMIT)) {
        differs(
            state, i,
            say(state->out, "its error is %.3g times what came in and what this run makes elsewhere", level / base));
        return;
    }
    if (level > 3 * rounding && structure->known) {
        if (structure->channel > TS_CHANNEL_LIMIT)
            differs(state, i,
                    say(state->out, "channel %zu errs %.0f times as much as the others do", structure->worst_channel,
                        structure->channel));
        else if (structure->block > TS_BLOCK_LIMIT)
            differs(state, i,
                    say(state->out, "channels %zu to %zu err %.0f times as much as the others do",
                        structure->worst_block * structure->block_size,
                        (structure->worst_block + 1) * structure->block_size - 1, structure->block));
        else if (structure->row > TS_ROW_LIMIT && structure->row > 5 * structure->inherited_row &&
                 structure->row_error > GROWTH_LIMIT * base)
            differs(state, i,
                    say(state->out, "token %" PRIu64 " errs %.0f times as much as the others do",
                        state->scene.taken[structure->worst_row], structure->row));
        else if (structure->offset > TS_OFFSET_LIMIT && level > 2 * base)
            differs(state, i,
                    say(state->out, "%.0f %% of its error is the same in every token, as an offset is",
                        100 * structure->offset));
        else if (fabs(structure->slope) > 0.8 && level > 2 * base)
            differs(state, i,
                    say(state->out, "its error follows the reference: a factor of %.4g", 1 + structure->slope * level));
    }
}

static void note_replay(struct state *state, size_t i, const struct ts_operation *operation,
                        const struct ts_replay *replay)
{
    struct ts_verdict *verdict = &state->out->verdicts[i];
    struct ts_buffer text;
    ts_buffer_init(&text, 4096);
    ts_operation_text(&state->scene, operation, &text);
    verdict->operation = ts_arena_string(&state->out->arena, text.data ? text.data : "");
    ts_buffer_release(&text);
    verdict->noise_ratio = replay->ratio;
    state->replays[i] = *replay;
    state->kinds[i] = operation->kind;
}

static bool is_product(enum ts_operation_kind kind)
{
    return kind == TS_OPERATION_SCORES || kind == TS_OPERATION_CONTEXT || kind == TS_OPERATION_SOFTMAX;
}

/* Products may run in a precision that neither side shows: a cache in fp8, autocast. Then all of a kind err alike, by
 * little, and the one that errs more than the others is looked for. */
static double usual_replay(const struct state *state, enum ts_operation_kind kind, bool parts)
{
    double ratios[64], locals[64];
    size_t count = 0;
    for (size_t i = 0; i < state->out->count && count < 64 && is_product(kind); i++)
        if (state->kinds[i] == kind && isfinite(state->replays[i].ratio)) {
            ratios[count] = parts ? state->replays[i].worst_part : state->replays[i].ratio;
            locals[count++] = state->replays[i].local;
        }
    if (count < 2)
        return 0;
    qsort(ratios, count, sizeof *ratios, by_value);
    qsort(locals, count, sizeof *locals, by_value);
    if (count == 2) /* two that agree are evidence only of a small error */
        return locals[1] < 0.05 && locals[1] < 2 * locals[0] ? ratios[1] : 0;
    return locals[count / 2] < 0.1 ? ratios[count / 2] : 0;
}

/* The smallest error that this run's projections make: the precision its products run in, whatever their operands show.
 */
static double product_level(const struct state *state)
{
    double least = (double)INFINITY;
    size_t seen = 0;
    for (size_t i = 0; i < state->out->count && seen < 12; i++)
        if (is_free(state, i) && state->errors[i] > 0) {
            least = state->errors[i] < least ? state->errors[i] : least;
            seen++;
        }
    return seen >= 3 ? least : 0;
}

static void judge_replay(struct state *state, size_t i)
{
    const struct ts_replay *replay = &state->replays[i];
    double limit = fmax(REPLAY_LIMIT, 5 * usual_replay(state, state->kinds[i], false));
    double part_limit = fmax(PART_LIMIT, 5 * usual_replay(state, state->kinds[i], true));
    if (is_product(state->kinds[i]) && replay->local < 0.01 && replay->local < 2.5 * product_level(state))
        return;
    if (replay->ratio > limit)
        differs(state, i,
                say(state->out,
                    "replayed on the candidate's own inputs, the reference's operation gives something else: "
                    "the difference is %.3g times what rounding explains",
                    replay->ratio));
    else if (replay->worst_part > part_limit)
        differs(state, i,
                say(state->out,
                    "replayed on the candidate's own inputs, token %" PRIu64 " comes out otherwise: "
                    "%.3g times what rounding explains",
                    state->scene.taken[replay->worst_row], replay->worst_part));
}

/* Rows of two integer tensors that differ, taken tokens only. */
static bool row_differs(const struct state *state, size_t i, size_t row, uint64_t width)
{
    const struct ts_pair *pair = &state->pairs[i];
    struct ts_error ignored;
    int64_t a[64], b[64];
    if (width > 64)
        return false;
    return ts_view_read_i64(&pair->a, state->scene.taken[row] * width, (size_t)width, a, &ignored) != TS_OK ||
           ts_view_read_i64(&pair->b, state->scene.taken[row] * width, (size_t)width, b, &ignored) != TS_OK ||
           memcmp(a, b, (size_t)width * sizeof *a) != 0;
}

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
    qsort(sorted, logits->width, sizeof *sorted, by_value);
    for (size_t i = 0; i < kept && i + 1 < logits->width; i++) /* order among the kept counts as well */
        gap = sorted[i + 1] - sorted[i] < gap ? sorted[i + 1] - sorted[i] : gap;
    free(sorted);
    return gap <= 4 * error && error < 1.2 * sqrt(spread);
}

/* Which of a row is at place `rank` from above. */
static size_t at_rank(const float *row, size_t width, size_t rank)
{
    for (size_t i = 0; i < width; i++) {
        size_t above = 0;
        for (size_t k = 0; k < width; k++)
            above += row[k] > row[i] || (row[k] == row[i] && k < i);
        if (above == rank)
            return i;
    }
    return width;
}

/* Tokens whose chosen experts differ on a near tie, seen at the router's logits: their indices may not be captured. */
static void set_flipped_aside(struct state *state, const struct ts_operation *operation, const struct ts_actor *weights)
{
    const struct ts_actor *logits = ts_scene_actor(&state->scene, operation->inputs[0]);
    if (operation->kind != TS_OPERATION_TOPK || !logits || logits->width > 1024)
        return;
    for (size_t row = 0; row < logits->rows; row++) {
        bool flipped = false;
        for (size_t rank = 0; rank < weights->width && !flipped; rank++)
            flipped = at_rank(logits->a + row * logits->width, logits->width, rank) !=
                      at_rank(logits->b + row * logits->width, logits->width, rank);
        if (flipped && is_near_tie(logits, row, weights->width))
            state->scene.aside[row] = true;
    }
}

/* Integers: chosen experts may flip on a near tie; anything else must be equal. */
static void judge_integers(struct state *state, size_t i)
{
    const struct ts_pair *pair = &state->pairs[i];
    uint64_t width =
        state->scene.tokens && pair->a.count % state->scene.tokens == 0 ? pair->a.count / state->scene.tokens : 0;
    const struct ts_actor *logits = NULL;
    size_t flipped = 0;
    for (size_t back = 1; back <= 8 && back <= i && !logits; back++) {
        const struct ts_actor *other = ts_scene_actor(&state->scene, i - back);
        if (other && other->heads == 1 && other->rows == state->scene.taken_count && width && other->width > width)
            logits = other;
    }
    for (size_t row = 0; width && width <= 64 && row < state->scene.taken_count; row++)
        if (state->scene.aside[row] && row_differs(state, i, row, width)) {
            flipped++; /* its input took another way in an earlier layer already */
        } else if (row_differs(state, i, row, width)) {
            if (!logits || !is_near_tie(logits, row, (size_t)width)) {
                differs(state, i, say(state->out, "integers differ in %" PRIu64 " places", state->deltas[i].unequal));
                return;
            }
            state->scene.aside[row] = true;
            flipped++;
        }
    if (!flipped && state->deltas[i].unequal)
        differs(state, i, say(state->out, "integers differ in %" PRIu64 " places", state->deltas[i].unequal));
    else if (flipped) {
        state->out->verdicts[i].judged = TS_JUDGED_NOISE;
        state->out->verdicts[i].why =
            say(state->out, "%zu tokens were routed otherwise on a near tie; they are set aside from here on", flipped);
    }
}

static void first_look(struct state *state, size_t i)
{
    const struct ts_pair *pair = &state->pairs[i];
    const struct ts_delta *delta = &state->deltas[i];
    struct ts_verdict *verdict = &state->out->verdicts[i];
    double rounding = pair_rounding(delta);
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

/* Activations are often looked up in tables of half precision. An error as small as that is a table unless another
 * function explains it. */
static enum ts_status forgive_tables(struct state *state, const struct ts_operation *operation,
                                     const struct ts_actor *actor, struct ts_replay *replay, struct ts_error *error)
{
    if (operation->kind != TS_OPERATION_ACTIVATION || replay->local > 2e-3 || replay->ratio <= REPLAY_LIMIT / 2)
        return TS_OK;
    for (int f = 0; f < TS_ACTIVATION_COUNT; f++) {
        struct ts_operation other = *operation;
        struct ts_replay rival;
        other.activation = (enum ts_activation)f;
        if (other.activation == operation->activation)
            continue;
        TS_TRY(ts_operation_replay(&state->scene, &other, actor, &rival, error));
        if (rival.local < 0.5 * replay->local)
            return TS_OK;
    }
    replay->ratio = replay->worst_part = 1;
    return TS_OK;
}

/* Loads, learns and replays one pair; notes what growth and structure need for those that cannot be learnt. */
static enum ts_status look_closer(struct state *state, size_t i, struct ts_error *error)
{
    const struct ts_delta *delta = &state->deltas[i];
    const struct ts_actor *actor;
    struct ts_operation operation;
    struct ts_replay replay;
    enum ts_status status = TS_OK;
    actor = ts_scene_next(&state->scene, error);
    if (!actor)
        return error->status;
    state->errors[i] = state->pairs[i].problem ? (double)NAN : actor->usable ? actor->error : delta->rel_l2;
    if (state->pairs[i].problem)
        return TS_OK;
    if (delta->exact || ts_type_is_integer(state->pairs[i].a.tensor->type)) {
        state->errors[i] = (double)NAN;
        state->learnt[i] = true; /* neither growth nor structure applies */
        if (delta->unequal)
            judge_integers(state, i);
        return TS_OK;
    }
    if (delta->non_finite_mismatch) {
        differs(
            state, i,
            say(state->out, "%" PRIu64 " elements are NaN or infinite on one side only", delta->non_finite_mismatch));
        return TS_OK;
    }
    if (!actor->usable)
        return TS_OK;
    TS_TRY(ts_operation_learn(&state->scene, actor, &operation, error));
    if (operation.kind != TS_OPERATION_NONE) {
        state->learnt[i] = true;
        status = ts_operation_replay(&state->scene, &operation, actor, &replay, error);
        if (status == TS_OK)
            status = forgive_tables(state, &operation, actor, &replay, error);
        if (status == TS_OK)
            note_replay(state, i, &operation, &replay);
        set_flipped_aside(state, &operation, actor);
        ts_operation_release(&operation);
    } else {
        ts_structure_measure(&state->scene, actor, &state->structures[i]);
    }
    state->strays[i] = ts_structure_rows(&state->scene, actor, NULL, NULL);
    for (size_t back = 1; back <= INHERIT_FROM && back <= i; back++)
        if (state->strays[i - back] > state->structures[i].inherited_row)
            state->structures[i].inherited_row = state->strays[i - back];
    return status;
}

/* After the first divergence everything carries its error; what stands above the noise before it differs. */
static void judge_downstream(struct state *state)
{
    struct ts_judgement *out = state->out;
    double before = 0;
    for (size_t i = 0; i < out->first; i++)
        if (isfinite(state->errors[i]) && state->errors[i] > before)
            before = state->errors[i];
    for (size_t i = out->first + 1; i < out->count; i++) {
        struct ts_verdict *verdict = &out->verdicts[i];
        if (verdict->judged == TS_JUDGED_DIFFERS || verdict->judged == TS_JUDGED_UNKNOWN)
            continue;
        if (state->deltas[i].rel_l2 > 3 * before && state->deltas[i].rel_l2 > 4 * pair_rounding(&state->deltas[i])) {
            verdict->judged = TS_JUDGED_DIFFERS;
            verdict->why = "carried from the first divergence";
        }
    }
}

static void sum_up(struct state *state)
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
    out->tokens = state->scene.tokens;
    out->aside = ts_arena_array(&out->arena, state->scene.taken_count + 1, sizeof *out->aside);
    for (size_t row = 0; out->aside && row < state->scene.taken_count; row++)
        if (state->scene.aside[row])
            out->aside[out->aside_count++] = state->scene.taken[row];
    if (out->tokens == 1)
        note(out, "one token: rotary angles, masks and the softmax over several keys cannot show errors here; use a "
                  "longer prompt");
}

bool ts_judge_are_weights(const struct ts_pair *pairs, size_t count)
{
    size_t weights = 0;
    for (size_t i = 0; i < count; i++) {
        const char *name = pairs[i].name;
        weights += ts_ends_with(name, ".weight") || ts_ends_with(name, ".bias") || ts_ends_with(name, "_weight") ||
                   ts_ends_with(name, "_bias") || strstr(name, ".experts.") != NULL;
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
    double rounding = 3 * pair_rounding(delta), grid = 0;
    if (ts_type_info(pair->a.tensor->type)->kind == TS_CLASS_QUANT)
        grid = 3 * exp2(-floor(stored_bits(pair->a.tensor)));
    if (ts_type_info(pair->b.tensor->type)->kind == TS_CLASS_QUANT)
        grid = fmax(grid, 3 * exp2(-floor(stored_bits(pair->b.tensor))));
    return fmax(rounding, grid);
}

static void judge_weights(struct state *state)
{
    struct ts_judgement *out = state->out;
    for (size_t i = 0; i < out->count; i++) {
        const struct ts_delta *delta = &state->deltas[i];
        struct ts_verdict *verdict = &out->verdicts[i];
        if (verdict->judged == TS_JUDGED_UNKNOWN || verdict->judged == TS_JUDGED_OK)
            continue;
        if (delta->non_finite_mismatch)
            differs(state, i,
                    say(out, "%" PRIu64 " elements are NaN or infinite on one side only", delta->non_finite_mismatch));
        else if (delta->exact)
            differs(state, i, say(out, "integers differ in %" PRIu64 " places", delta->unequal));
        else if (!(delta->rel_l2 <= allowed_error(&state->pairs[i], delta)))
            differs(state, i,
                    say(out, "%.3g %% of its elements changed, by %.3g of its norm; its precision allows %.2g",
                        100 * (double)delta->unequal / (double)delta->count, delta->rel_l2,
                        allowed_error(&state->pairs[i], delta)));
        if (verdict->judged == TS_JUDGED_DIFFERS && out->first == SIZE_MAX)
            out->first = i;
    }
}

static enum ts_status judge_all(struct state *state, struct ts_error *error)
{
    struct ts_judgement *out = state->out;
    for (size_t i = 0; i < out->count; i++)
        first_look(state, i);
    out->first = SIZE_MAX;
    out->weights = ts_judge_are_weights(state->pairs, out->count);
    if (out->weights) {
        judge_weights(state);
        sum_up(state);
        return TS_OK;
    }
    for (size_t i = 0; i < out->count; i++)
        TS_TRY(look_closer(state, i, error));
    for (size_t i = 0; i < out->count && out->first == SIZE_MAX; i++) {
        if (state->kinds[i] != TS_OPERATION_NONE && state->deltas[i].unequal &&
            out->verdicts[i].judged != TS_JUDGED_DIFFERS)
            judge_replay(state, i);
        else if (!state->learnt[i] && out->verdicts[i].judged == TS_JUDGED_NOISE)
            judge_unlearnt(state, i);
        if (out->verdicts[i].judged == TS_JUDGED_DIFFERS)
            out->first = i;
    }
    if (out->first != SIZE_MAX)
        judge_downstream(state);
    sum_up(state);
    return TS_OK;
}

enum ts_status ts_judge_run(const struct ts_pair *pairs, const struct ts_delta *deltas, size_t count,
                            struct ts_judgement *judgement, struct ts_error *error)
{
    struct state state = {.pairs = pairs, .deltas = deltas, .out = judgement};
    enum ts_status status;
    *judgement = (struct ts_judgement){.count = count, .first = SIZE_MAX};
    ts_arena_init(&judgement->arena, (size_t)1 << 30);
    judgement->verdicts = ts_arena_array(&judgement->arena, count + 1, sizeof *judgement->verdicts);
    state.errors = calloc(count + 1, sizeof *state.errors);
    state.strays = calloc(count + 1, sizeof *state.strays);
    state.learnt = calloc(count + 1, sizeof *state.learnt);
    state.replays = calloc(count + 1, sizeof *state.replays);
    state.kinds = calloc(count + 1, sizeof *state.kinds);
    state.structures = calloc(count + 1, sizeof *state.structures);
    status = judgement->verdicts && state.errors && state.learnt && state.structures && state.strays && state.replays &&
                     state.kinds
                 ? ts_scene_open(&state.scene, pairs, count, error)
                 : ts_fail_memory(error);
    if (status == TS_OK) {
        status = judge_all(&state, error);
        ts_scene_release(&state.scene);
    }
    free(state.errors);
    free(state.strays);
    free(state.learnt);
    free(state.replays);
    free(state.kinds);
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
