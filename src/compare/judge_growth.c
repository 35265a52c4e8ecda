/* Owns judging what could not be learnt: may its error have grown, may a low precision start here, has it structure? */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compare/gathered.h"
#include "compare/judge_state.h"
#include "tensor/layer.h"

/* Growth over what came in, where no operation could be learnt. */
#define GROWTH_LIMIT 8.0
#define CLOSE_LIMIT  4.0
#define LARGE_LIMIT  3.0 /* of errors that would become larger than this: there is little left for them to grow to */
#define LARGE        0.45
/* Error of inputs that have a relation to the reference; a third of TS_UNRELATED where tokens with other experts count.
 */
#define RELATED 0.7
/* Embeddings are multiplied by a constant, and products take numbers far larger than the others, which bf16 rounds by
 * up to this. */
#define ROUNDED_FACTOR 0x1p-9
/* No honest error that starts has a slope above 0.3; see judge_start.c. */
#define FOLLOWS_HALF   0.5
#define FOLLOWS_CUT    0.7 /* of those that make the result smaller, as blocks do that cut off their largest */
#define FOLLOWS_GROWTH 4.0
/* Noise makes nothing so much larger, nor smaller: what has no relation any more has a slope of 0.71 at most. */
#define ENLARGED         0.25
#define SMALLER          0.85
#define ENLARGED_GROWTH  1.5
#define SCATTERED_GROWTH 30.0 /* numbers that err a thirtieth of it err as before */
#define NOTED            0.03 /* more than eight bits make: whoever reads the report is told */
#define CARRIED          2.0  /* times what came in, tokens that are set aside included */
#define HIDDEN_ROWS      5    /* softmax that was not captured makes much of a token's near ties */
#define ROW_AGAIN        5.0  /* times what it did before: a token stands out anew */
#define ELEMENT_HEAD     3.0  /* times the median head's error: of the others in the head of a number that stands out */
#define ROWS_FOR_ONE     8    /* tokens, of which one may be left out */
#define HEAD_AGAIN       3    /* times what the same head did before it: near ties of one head's softmax */
/* What a product makes of a token's error depends on which of its inputs err, where few are large: by how much of it,
 * in energy, tokens are unlike. */
#define ROW_GAIN 16.0
/* Honest products stand out of those at the same point of other layers by up to 1.6 times, and of the median one by
 * 2.2. */
#define STEADY_LIMIT  2.5
#define STEADY_LARGER 1.5
#define STEADY_LAYERS 4
#define FIRST_LIMIT   1e-2   /* and alone, with nothing before it, up to this one */
#define CHAIN_LIMIT   2.5e-2 /* weights of eight bits, seen through the outputs of layers alone */
/* What a softmax that was not captured makes of errors, at most: of all tokens, and of one that looks at another key
 * for it, whose own error may be some times that of all. */
#define SHARP_MOST  0.5
#define SHARP_ROW   1.5
#define SHARP_TIMES 4.0
/* A product whose result is less than half as large as in other layers, of as much that goes in, rounds off what the
 * others do: to how much of its error that is put down, at least. */
#define SMALL       2.0
#define SMALL_LEAST 0.25
#define TOO_NOISY   0.25 /* rows that err by more are not sure to be found again in another order */

/* The largest error among the pairs just before i. What attention made on the way to a context that was captured has
 * come in through that, and so have the terms of a sum that was; but for its own point of another layer, which shows
 * what such a product makes of such an input. */
static double inherited(const struct ts_judge *state, size_t i)
{
    double most = 0;
    bool context = false;
    for (size_t back = 1; back <= TS_INHERIT_FROM && back <= i; back++) {
        size_t k = i - back;
        context = context || state->kinds[k] == TS_OPERATION_CONTEXT;
        if (context && (state->kinds[k] == TS_OPERATION_SCORES || state->kinds[k] == TS_OPERATION_SOFTMAX))
            continue;
        if (state->used[k] && state->used[k] <= i && !ts_judge_same_point(state->pairs[k].name, state->pairs[i].name))
            continue;
        most = isfinite(state->errors[k]) && state->errors[k] > most ? state->errors[k] : most;
    }
    return most;
}

/* The median error of what was not learnt before i and errs at all: the level at which this run's products live, with
 * `calm` that of most tokens. `seen` are those that do not err as well. */
static double usual_level(const struct ts_judge *state, size_t i, bool calm, size_t *seen)
{
    double recent[64];
    size_t count = 0;
    *seen = 0;
    for (size_t back = 1; back <= i && count < 64; back++)
        if (ts_judge_is_free(state, i - back)) {
            if (state->errors[i - back] > 0)
                recent[count++] = calm ? ts_judge_calm_level(state, i - back) : ts_judge_level(state, i - back);
            ++*seen;
        }
    return ts_nth(recent, count, count / 2);
}

/* The error at the same point one layer earlier, 0 when there is none nearby. */
static double error_one_layer_earlier(const struct ts_judge *state, size_t i)
{
    for (size_t back = 1; back <= 96 && back <= i; back++)
        if (isfinite(state->errors[i - back]) && ts_judge_same_point(state->pairs[i - back].name, state->pairs[i].name))
            return ts_judge_level(state, i - back);
    return 0;
}

bool ts_judge_is_norm(const char *name)
{
    return strstr(name, "norm") || strstr(name, "ln_");
}

/* Its error is the same in every token, far more so than the tokens themselves are. */
bool ts_judge_is_offset(const struct ts_structure *structure)
{
    return structure->known && structure->offset > TS_OFFSET_LIMIT;
}

/* Layer outputs alone, two or more behind i, none of which is better: each layer adds its part, however the stream
 * itself grows. */
static bool never_recovers(const struct ts_judge *state, size_t i)
{
    double level = state->errors[i];
    unsigned seen = 0;
    for (size_t k = i + 1; k < state->out->count; k++)
        if (isfinite(state->errors[k]) && ts_judge_same_point(state->pairs[k].name, state->pairs[i].name)) {
            if (state->errors[k] < 1.02 * level)
                return false;
            level = state->errors[k];
            seen++;
        } else if (ts_judge_is_free(state, k) && !seen) {
            return false;
        }
    return seen >= 2;
}

/* Tokens that took other experts are among those that are looked at, as there are no others. */
static bool has_returned(const struct ts_judge *state, size_t i)
{
    return state->returned && i >= state->returned_at;
}

static bool any_aside(const struct ts_judge *state)
{
    for (size_t row = 0; row < state->scene.taken_count; row++)
        if (state->scene.aside[row])
            return true;
    return false;
}

/* Tokens that took other experts are set aside, but attention carries their error to the others. */
static double spread_by_aside(const struct ts_judge *state, size_t i)
{
    const bool any = state->flipped || has_returned(state, i) || any_aside(state);
    double most = 0;
    for (size_t back = 1; any && back <= TS_INHERIT_FROM && back <= i; back++)
        if (isfinite(state->errors[i - back]) && !state->reordered[i - back] && state->deltas[i - back].rel_l2 > most)
            most = state->deltas[i - back].rel_l2;
    return 0.5 * most;
}

/* Experts take what their router took. Its logits tell how much most tokens erred there, whatever attention has carried
 * to some from those that are set aside. 0: they were not captured. */
static double calm_of_router(const struct ts_judge *state, size_t i)
{
    double most = 0;
    for (size_t k = i; k-- > 0 && ts_same_layer(state->pairs[k].name, state->pairs[i].name);)
        if (ts_judge_is_router(state->pairs[k].name) && state->structures[k].known)
            most = fmax(most, state->structures[k].calm);
    return most;
}

bool ts_judge_attention_is_known(const struct ts_judge *state, size_t i)
{
    for (size_t back = 1; back <= TS_INHERIT_FROM && back <= i; back++)
        if (state->kinds[i - back] == TS_OPERATION_CONTEXT || state->kinds[i - back] == TS_OPERATION_ATTENTION)
            return true;
    return false;
}

/* One rounding, as the larger tensors of this run show it: what a few numbers were rounded to, they do not tell. */
static double rounding_of_run(const struct ts_judge *state)
{
    double seen[64];
    size_t count = 0;
    for (size_t k = 0; k < state->out->count && count < 64; k++)
        if (isfinite(state->errors[k]) && state->pairs[k].a.count >= TS_FEW_NUMBERS)
            seen[count++] = ts_judge_rounding(&state->deltas[k]);
    return ts_nth(seen, count, count / 2);
}

/* One rounding of what a run computes in whose layers were captured by their outputs alone. Those are sums, which many
 * programs keep in f32 while the products are in sixteen bits: what comes out of the head is a product, and tells. No
 * layer errs by less than the products within it are rounded by. */
static double rounding_of_products(struct ts_judge *state)
{
    double head = 0, least = INFINITY;
    if (state->rounding_of_products > 0)
        return state->rounding_of_products;
    for (size_t k = 0; k < state->out->count; k++) {
        if (ts_judge_is_whole_layer(state, k)) {
            head = 0;
            least = isfinite(state->errors[k]) ? fmin(least, state->errors[k]) : least;
        } else if (isfinite(state->errors[k]) && state->pairs[k].a.count >= TS_FEW_NUMBERS) {
            head = fmax(head, ts_judge_rounding(&state->deltas[k]));
        }
    }
    return state->rounding_of_products = fmax(fmin(head, least), ts_rounding(23));
}

/* A channel by which gates or scans let through more of what came in errs no more than that did, what a few tokens
 * make of it is none of the channel's, and where others follow it closely, it is the end of a long tail: units whose
 * large common part was rounded, behind an activation. */
static bool channel_stands_out(const struct ts_structure *structure, double base)
{
    return structure->channel > ts_channel_limit(structure) && structure->channel > 2 * structure->inherited_channel &&
           structure->channel_gap > TS_CHANNEL_GAP && structure->channel_error > base &&
           structure->channel_rows > (double)structure->rows / 8;
}

/* The worst channel of scores of a long sequence is a key of a token that is not looked at: nobody knows what came into
 * it, a small token behind a norm or other experts. */
static bool is_unseen_key(const struct ts_judge *state, size_t i)
{
    const struct ts_view *view = &state->pairs[i].a;
    const uint64_t sequence = ts_scene_sequence(&state->scene);
    if (state->scene.taken_count == state->scene.tokens || view->rank < 2 || !sequence ||
        view->shape[view->rank - 1] != sequence)
        return false;
    for (size_t row = 0; row < state->scene.taken_count; row++)
        if (state->scene.taken[row] % sequence == state->structures[i].worst_channel % sequence)
            return false;
    return true;
}

static void say_element(struct ts_judge *state, size_t i)
{
    const struct ts_structure *structure = &state->structures[i];
    const struct ts_actor *actor = ts_scene_actor(&state->scene, i);
    char token[64];
    if (!structure->known || !actor) {
        ts_judge_differs(state, i,
                         ts_judge_say(state->out, "element %zu has %.0f times the error of the others",
                                      structure->worst_element, structure->element));
        return;
    }
    ts_scene_token_text(&state->scene, state->scene.taken[structure->worst_element / actor->width], token,
                        sizeof token);
    ts_judge_differs(state, i,
                     ts_judge_say(state->out,
                                  "one element, of %s and channel %zu, has %.0f times the error of the others", token,
                                  structure->worst_element % actor->width, structure->element));
}

/* The norm of what a convolution and a scan over the tokens made, a list of heads: the tokens behind one that is set
 * aside take far more from it than attention would give them. */
static bool is_behind_scan(const struct ts_judge *state, size_t i)
{
    const struct ts_view *view = &state->pairs[i].a;
    return view->rank == 2 && view->shape[0] > state->scene.tokens && ts_judge_is_norm(state->pairs[i].name);
}

/* One number stands out. Such a norm makes much of heads that are small, each for itself: there its head must not. */
static bool is_element_wrong(const struct ts_judge *state, size_t i)
{
    const struct ts_structure *own = &state->structures[i];
    return ts_element_stands_out(own) && own->element > 8 * own->inherited_element && /* weights of norms */
           !(is_behind_scan(state, i) && own->element_head > ELEMENT_HEAD);
}

/* How far one token may stand out. */
static double row_limit(const struct ts_judge *state, size_t i)
{
    return (ts_judge_attention_is_known(state, i) || ts_judge_is_end_projection(state, i) ? 1 : HIDDEN_ROWS) *
           TS_ROW_LIMIT;
}

/* One token errs far more than the others, and more than what came in of it; `least`: than what came in of all. */
static bool is_token_wrong(const struct ts_judge *state, size_t i, double least)
{
    const struct ts_structure *own = &state->structures[i];
    if (own->row <= row_limit(state, i))
        return false;
    if (ts_judge_is_end_projection(state, i))
        return own->row > ROW_AGAIN * own->row_before && own->row_gain > ROW_GAIN &&
               own->row_error > CLOSE_LIMIT * own->row_error_before;
    return own->row > ROW_AGAIN * own->inherited_row && own->row_error > least;
}

/* The error of all tokens but one that stands out no further than one may, such as one that is small before it is
 * normalized: of few tokens it would make the error of all. So would a channel that is as large as all others together:
 * what its terms cancel to is chance. */
static double level_of_most(const struct ts_judge *state, size_t i, double level)
{
    const struct ts_structure *structure = &state->structures[i];
    const bool one = structure->known && structure->strays == 1 && structure->rows >= ROWS_FOR_ONE;
    if (structure->rest > 0 && structure->channel <= ts_channel_limit(structure))
        level = fmin(level, structure->rest);
    return one && structure->row <= row_limit(state, i) ? fmin(level, structure->calm) : level;
}

static double size_of(const struct ts_judge *state, size_t i)
{
    const struct ts_delta *delta = &state->deltas[i];
    return delta->compared ? delta->a.norm / sqrt((double)delta->compared) : 0;
}

/* How large the reference's numbers are beside those of the last tensor before that is no product; 0: nobody knows. */
static double gain_of(const struct ts_judge *state, size_t i)
{
    for (size_t k = i; k-- > 0 && i - k <= TS_INHERIT_FROM;)
        if (!ts_judge_is_free(state, k) && !state->deltas[k].exact && !state->pairs[k].problem && size_of(state, k) > 0)
            return size_of(state, i) / size_of(state, k);
    return 0;
}

/* What weights that are rounded, or products that are, make of an error has the size of what goes in, times that of the
 * weights, however little of it is left when the terms cancel. Layers are alike in both: where the reference's result
 * is far smaller than at the same point of others, its error is held against their size. */
static double share_of_usual_size(struct ts_judge *state, size_t i)
{
    size_t near[2 * TS_POINTS_NEAR], count, seen = 0;
    double gains[2 * TS_POINTS_NEAR], own = gain_of(state, i), usual;
    if (!(own > 0) || (!state->points.pairs && !ts_points_open(&state->points, state->pairs, state->out->count)))
        return 1;
    count = ts_points_near(&state->points, i, near);
    for (size_t n = 0; n < count; n++)
        if (!state->pairs[near[n]].problem && (gains[seen] = gain_of(state, near[n])) > 0)
            seen++;
    usual = seen >= 2 ? ts_nth(gains, seen, (seen - 1) / 2) : 0;
    return usual > 0 ? fmin(1, fmax(SMALL_LEAST, SMALL * own / usual)) : 1;
}

/* What comes out of pair i, and what came in, of most tokens: where the logits of the router that its layer's experts
 * were chosen by tell that, tokens that took other experts and what attention carries of them are in neither. */
static double growth_of_most(const struct ts_judge *state, size_t i, double level, double *came)
{
    const double calm = state->structures[i].known ? calm_of_router(state, i) : 0;
    *came = calm > 0 ? calm : inherited(state, i);
    return calm > 0 ? state->structures[i].calm : level;
}

/* What a product makes of the error that comes in is steady from layer to layer, however large that is: far steadier
 * than what it may be in a layer alone. More than in every other layer is made here. Where little came in, as in the
 * first layers, what a product adds is all of it: then it is no larger than elsewhere. */
static bool grows_as_nowhere_else(struct ts_judge *state, size_t i, double level)
{
    size_t near[2 * TS_POINTS_NEAR], count, seen = 0;
    double levels[2 * TS_POINTS_NEAR], came;
    const double chance = ts_judge_chance_left(state, i), limit = STEADY_LIMIT * chance;
    level = growth_of_most(state, i, level, &came);
    if (!(came > 0) || (!state->points.pairs && !ts_points_open(&state->points, state->pairs, state->out->count)))
        return false;
    count = ts_points_near(&state->points, i, near);
    for (size_t n = 0; n < count; n++) {
        double before, there = growth_of_most(state, near[n], ts_judge_level(state, near[n]), &before);
        if (!isfinite(there) || !(there > 0) || !(before > 0))
            continue;
        if (level * before <= limit * came * there)
            return false;
        levels[seen++] = there;
    }
    /* of few tokens the errors of one point are as uneven as chance is */
    return seen >= STEADY_LAYERS && level > STEADY_LARGER * ts_nth(levels, seen, chance > 1 ? seen - 1 : seen / 2);
}

/* A factor that came in, as other products of this layer show it: behind a norm that is what a channel far larger than
 * all others was rounded by. It comes out again, once for each product that a module holds. */
static double factor_that_came(const struct ts_judge *state, size_t i)
{
    double most = 0;
    for (size_t back = 1; back <= TS_INHERIT_FROM && back <= i; back++) {
        const size_t k = i - back;
        if (state->structures[k].slope > FOLLOWS_CUT && isfinite(state->errors[k]) &&
            ts_same_layer(state->pairs[k].name, state->pairs[i].name))
            most = fmax(most, state->structures[k].slope * state->errors[k]);
    }
    return most * ts_judge_products_of_module(state, i);
}

/* Much of an error that has grown is proportional to the reference. */
static bool has_followed(const struct ts_structure *structure, double level, double base)
{
    const bool larger = structure->slope > FOLLOWS_HALF, smaller = structure->slope < -FOLLOWS_CUT;
    const double by = fabs(structure->slope) * level;
    const double shrunk = 1 - 1 / sqrt(1 + base * base); /* a norm takes so much from what has noise in it */
    return by > ROUNDED_FACTOR && (((larger || smaller) && level > FOLLOWS_GROWTH * base) ||
                                   ((larger ? by > ENLARGED : structure->slope < -SMALLER && by > ENLARGED + shrunk) &&
                                    level > ENLARGED_GROWTH * base));
}

/* `open`: a choice that the logits do not tell is an excuse. */
static void judge_unlearnt(struct ts_judge *state, size_t i, bool open)
{
    const struct ts_structure *structure = &state->structures[i];
    double level = ts_judge_level(state, i), usual, base, calm, earlier, limit, large, sharpness, came, share, most,
           least, rounding = ts_judge_rounding(&state->deltas[i]);
    size_t seen;
    enum ts_judge_hidden hidden;
    enum ts_judge_start start = TS_START_LIKELY;
    bool flips, grown, carried, mixed, few = state->pairs[i].a.count < TS_FEW_NUMBERS;
    if (few)
        rounding = fmax(rounding, rounding_of_run(state));
    if (ts_judge_is_whole_layer(state, i))
        rounding = fmax(rounding, rounding_of_products(state));
    if (!isfinite(level))
        level = state->deltas[i].rel_l2;
    usual = usual_level(state, i, false, &seen);
    base = inherited(state, i);
    base = fmax(fmax(usual, base), fmin(spread_by_aside(state, i), 0.1));
    sharpness = ts_judge_sharpness(state, i, &came);
    /* a few roundings are always there; fewer where nothing is hidden, as a coarse cache in attention may be, and other
     * products have shown what they make */
    base = fmax(base, (seen >= 3 && ts_judge_attention_is_known(state, i) ? 2 : 4) * rounding);
    calm = calm_of_router(state, i);
    if (calm > 0 && calm < base && structure->known) {
        const double most_came = fmax(fmax(calm, usual_level(state, i, true, &seen)), 4 * rounding);
        if (structure->calm > GROWTH_LIMIT * most_came) {
            level = structure->calm;
            base = most_came;
        }
    }
    /* some heads, and some numbers, take more than others from tokens that are set aside */
    mixed = state->gone[i] && is_behind_scan(state, i);
    carried = mixed || ((state->gone[i] || has_returned(state, i)) && level <= CARRIED * base);
    flips = ts_judge_are_unseen_flips(state, i, base);
    hidden = flips ? TS_HIDDEN_NOTHING : ts_judge_hides_routing(state, i, base);
    if (hidden == TS_HIDDEN_CHOICE && !open)
        hidden = TS_HIDDEN_NOTHING;
    if (hidden != TS_HIDDEN_NOTHING) {
        if (hidden != TS_HIDDEN_ROUTING) /* a bug of these tokens looks the same, and it could have been known */
            state->out->verdicts[i].judged = TS_JUDGED_UNKNOWN;
        state->flipped = flips = true;
    }
    if (flips) {
        state->strayed = state->strayed == SIZE_MAX ? i : state->strayed;
        level = fmin(level, structure->calm);
        state->out->verdicts[i].why = ts_judge_say(
            state->out, "%zu token%s may have been routed to different experts; the choice was not captured",
            structure->strays, structure->strays == 1 ? "" : "s");
    }
    flips = flips || state->flipped || has_returned(state, i); /* attention makes channels of those tokens */
    if (isinf(state->deltas[i].rel_l2)) {
        ts_judge_differs(state, i, "the reference is zero everywhere, and the candidate is not");
        return;
    }
    if (structure->zero_rows) {
        char token[64];
        ts_scene_token_text(&state->scene, state->scene.taken[structure->zero_row], token, sizeof token);
        ts_judge_differs(state, i,
                         structure->zero_rows == 1
                             ? ts_judge_say(state->out, "%s is zero in the candidate", token)
                             : ts_judge_say(state->out, "%zu tokens are zero in the candidate, the first is %s",
                                            structure->zero_rows, token));
        return;
    }
    if (ts_judge_is_rounded_alone(state, i))
        return;
    if (level > TS_UNRELATED && ts_is_gathered(state->pairs[i].name) && inherited(state, i) > TOO_NOISY &&
        ts_judge_excused_rows(state, i)) {
        state->out->verdicts[i].why = "tokens took different experts, and the others err too much to be found again "
                                      "among the rows inside; what comes out of the experts is judged instead";
        return;
    }
    if (level > TS_UNRELATED * (state->gone[i] ? ts_judge_chance_left(state, i) : 1) && !few &&
        state->deltas[i].cosine < TS_RESEMBLES && !structure->mostly_related &&
        ts_judge_came_into_layer(state, i) < (has_returned(state, i) ? TS_UNRELATED / LARGE_LIMIT : RELATED)) {
        ts_judge_differs(
            state, i,
            ts_judge_say(
                state->out,
                i ? "it no longer resembles the reference (cosine %.2f), though what was captured before it does"
                  : "it does not resemble the reference (cosine %.2f)",
                state->deltas[i].cosine));
        return;
    }
    /* where the same point one layer earlier lies at the run's level, growth is steadier and the limit closer; not
     * where few tokens are left, of which one makes the error of all */
    earlier =
        has_returned(state, i) || state->gone[i] * 2 > state->scene.taken_count ? 0 : error_one_layer_earlier(state, i);
    limit = earlier > 0 && earlier < 1.5 * base ? CLOSE_LIMIT : GROWTH_LIMIT;
    large = LARGE_LIMIT * sqrt(ts_judge_products_of_module(state, i));
    limit = fmin(limit, fmax(large, LARGE / fmax(usual, inherited(state, i))));
    share = share_of_usual_size(state, i);
    most = share * level_of_most(state, i, level);
    least = fmin(sharpness * came, SHARP_MOST);
    grown = most > fmax(limit * ts_judge_chance_left(state, i) * base, least) ||
            (!flips && !few && ts_judge_is_sudden(state, i)) ||
            (((!flips && !any_aside(state)) || calm > 0) && !few && share == 1 &&
             most > fmax(CLOSE_LIMIT * rounding, least) && grows_as_nowhere_else(state, i, most));
    if (grown && level > NOTED && state->out->coarse == SIZE_MAX)
        state->out->coarse = i; /* unless it is found to differ */
    if (grown)
        start = ts_judge_may_start(state, i);
    if (start <= TS_START_OPEN && seen < 3 &&
        (level < FIRST_LIMIT || (level < CHAIN_LIMIT && never_recovers(state, i))))
        start = TS_START_LIKELY;
    if (start == TS_START_OPEN) {
        state->out->verdicts[i].judged = TS_JUDGED_UNKNOWN;
        state->out->verdicts[i].why = ts_judge_say(
            state->out,
            "low-bit weights, a low-bit cache or a bug can make the error of %.2g before it: the captures do not tell "
            "them apart; the outputs of the %s would",
            level, ts_judge_is_whole_layer(state, i) ? "layer's parts, attention and MLP," : "layers");
    }
    if (start == TS_START_NONE) {
        ts_judge_differs(state, i,
                         ts_judge_say(state->out,
                                      usual > 0 || inherited(state, i) > 0
                                          ? "its error is %s times that of its inputs and of the rest of this run"
                                      : i > 0
                                          ? "its error is %s times what rounding explains, and nothing before it errs"
                                          : "its error is %s times what rounding explains",
                                      ts_judge_times(level / base).text));
        return;
    }
    if (grown && !flips && structure->known && structure->scattered && level > SCATTERED_GROWTH * base) {
        ts_judge_differs(state, i,
                         ts_judge_say(state->out,
                                      "its error is %s times that of its inputs and sits in a few scattered "
                                      "elements, while low precision touches all of them",
                                      ts_judge_times(level / base).text));
        return;
    }
    if (structure->constant_channels)
        ts_judge_differs(state, i,
                         structure->constant_channels == 1
                             ? ts_judge_say(state->out,
                                            "channel %zu has the same value in every token of the candidate",
                                            structure->constant_channel)
                             : ts_judge_say(state->out,
                                            "%zu channels have the same value in every token of the candidate, the "
                                            "first of them %zu",
                                            structure->constant_channels, structure->constant_channel));
    if (level > 3 * rounding && !few && !carried && is_element_wrong(state, i))
        say_element(state, i);
    flips = flips || is_unseen_key(state, i);
    if (level > 3 * rounding && structure->known && !(flips && channel_stands_out(structure, base))) {
        char token[64];
        ts_scene_token_text(&state->scene, state->scene.taken[structure->worst_row], token, sizeof token);
        if (channel_stands_out(structure, base))
            ts_judge_differs(state, i,
                             ts_judge_say(state->out, "channel %zu has %.0f times the error of the others",
                                          structure->worst_channel, structure->channel));
        else if (!carried && structure->block > TS_BLOCK_LIMIT &&
                 structure->block > HEAD_AGAIN * structure->inherited_block)
            ts_judge_differs(state, i,
                             ts_judge_say(state->out, "channels %zu to %zu have %.0f times the error of the others",
                                          structure->worst_block * structure->block_size,
                                          (structure->worst_block + 1) * structure->block_size - 1, structure->block));
        else if (!flips && !mixed &&
                 is_token_wrong(state, i, fmax(GROWTH_LIMIT * base, fmin(SHARP_TIMES * sharpness * came, SHARP_ROW))))
            ts_judge_differs(
                state, i, ts_judge_say(state->out, "%s has %.0f times the error of the others", token, structure->row));
        else if (ts_judge_is_offset(structure) && level > 2 * base)
            ts_judge_differs(state, i,
                             ts_judge_say(state->out, "%.0f %% of its error is the same in every token, like an offset",
                                          100 * structure->offset));
        else if (level <
                 ts_judge_sum_rounding(&state->pairs[i])) /* below that nothing follows the reference for a reason */
            return;
        else if (fabs(structure->slope) > 0.8 && level > fmax(2 * base, factor_that_came(state, i)) &&
                 !(i == 0 && level < ROUNDED_FACTOR))
            ts_judge_differs(state, i,
                             ts_judge_say(state->out, "its error is proportional to the reference: a factor of %.4g",
                                          1 + structure->slope * level));
        else if (has_followed(structure, level, base))
            ts_judge_differs(
                state, i,
                ts_judge_say(
                    state->out,
                    "its error is %s times that of its inputs, and %.0f %% of it is proportional to the reference",
                    ts_judge_times(level / base).text, 100 * structure->slope * structure->slope));
    }
}

void ts_judge_unlearnt(struct ts_judge *state, size_t i)
{
    struct ts_verdict *verdict = &state->out->verdicts[i];
    const struct ts_verdict before = *verdict;
    const size_t coarse = state->out->coarse;
    struct ts_verdict plain;
    judge_unlearnt(state, i, false);
    plain = *verdict;
    if (plain.judged != TS_JUDGED_DIFFERS)
        return;
    *verdict = before;
    state->out->coarse = coarse;
    judge_unlearnt(state, i, true);
    if (verdict->judged != TS_JUDGED_UNKNOWN)
        *verdict = plain;
}
