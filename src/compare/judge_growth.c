/* Owns judging what could not be learnt: may its error have grown, may a low precision start here, has it structure? */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compare/judge_state.h"
#include "tensor/layer.h"

/* Growth over what came in, where no operation could be learnt. */
#define GROWTH_LIMIT 8.0
#define CLOSE_LIMIT  4.0
/* A precision may start at siblings up to this error: two-bit weights begin near one half. */
#define START_LIMIT 0.7
/* Weights of four bits start below this. Coarser ones are rare, and what lies above must be believed less lightly. */
#define DOUBT_FROM     0.25
#define SILENT_LIMIT   0.35 /* where nothing behind says anything */
#define AHEAD          8    /* products behind it that are asked whether it does */
#define CLIMB          6    /* layers behind it that must be no better */
#define ADDED_SHARE    (1.0 / 3)
#define SURE_SHARE     0.6
#define SAME_SHARE     0.6 /* the same grid errs by the same in every layer, but for what weights differ */
#define CLEAN_SLOPE    0.3
#define CALM_ROW       0.04
#define OFFSET_SHARE   0.4
#define STRUCTURE_FROM 0.01   /* smaller errors that start are those of products in another precision */
#define FLIPPED        0.1    /* error of a token with another expert */
#define STRAY_AGAIN    15.0   /* a token stands out in another layer too, whatever the noise has become there */
#define FLIPS_OF_NOISE 24.0   /* share of tokens that so much noise gives other experts, at most */
#define ROUNDED_FACTOR 0x1p-9 /* embeddings are multiplied by a constant, which bf16 rounds by up to this */
#define HIDDEN_LIMIT   0.05
#define HIDDEN_ROWS    5      /* softmax that was not captured makes much of a token's near ties */
#define FIRST_LIMIT    1e-2   /* and alone, with nothing before it, up to this one */
#define CHAIN_LIMIT    2.5e-2 /* weights of eight bits, seen through the outputs of layers alone */

/* The largest error among the pairs just before i. What attention made on the way to a context that was captured has
 * come in through that. */
static double inherited(const struct ts_judge *state, size_t i)
{
    double most = 0;
    bool context = false;
    for (size_t back = 1; back <= TS_INHERIT_FROM && back <= i; back++) {
        size_t k = i - back;
        context = context || state->kinds[k] == TS_OPERATION_CONTEXT;
        if (context && (state->kinds[k] == TS_OPERATION_SCORES || state->kinds[k] == TS_OPERATION_SOFTMAX))
            continue;
        most = isfinite(state->errors[k]) && state->errors[k] > most ? state->errors[k] : most;
    }
    return most;
}

/* The median error of what was not learnt before i: the level at which this run's products live. */
static double usual_level(const struct ts_judge *state, size_t i, size_t *seen)
{
    double recent[64];
    size_t count = 0;
    for (size_t back = 1; back <= i && count < 64; back++)
        if (!state->learnt[i - back] && isfinite(state->errors[i - back]) && state->errors[i - back] > 0)
            recent[count++] = state->errors[i - back];
    *seen = count;
    return ts_nth(recent, count, count / 2);
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
static double error_one_layer_earlier(const struct ts_judge *state, size_t i)
{
    for (size_t back = 1; back <= 96 && back <= i; back++)
        if (isfinite(state->errors[i - back]) && same_point(state->pairs[i - back].name, state->pairs[i].name))
            return state->errors[i - back];
    return 0;
}

static bool is_norm(const char *name)
{
    return strstr(name, "norm") || strstr(name, "ln_");
}

/* Relative to what differs between tokens: a large bias makes an error look small. */
static double centred_error(const struct ts_judge *state, size_t k)
{
    const struct ts_structure *structure = &state->structures[k];
    return structure->known ? state->errors[k] / sqrt(fmax(1 - structure->alike, 1e-3)) : state->errors[k];
}

/* Tensors side by side in order, of one layer and without anything learnt between them, share their input: q, k and v.
 * When all of them start at the same level, a precision starts there and not a bug. Counts them; 0 also when one of
 * them does not. */
static size_t siblings_that_start(const struct ts_judge *state, size_t i, bool *alone)
{
    size_t first = i, last = i, siblings = 0;
    double level = state->errors[i];
    uint64_t layer, other;
    bool layered = ts_layer_of(state->pairs[i].name, &layer);
#define IS_SIBLING(k)                                                                                                  \
    (ts_judge_is_free(state, k) && layered && ts_layer_of(state->pairs[k].name, &other) && other == layer &&           \
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
        if (fmax(state->errors[k], centred_error(state, k)) < level / 3)
            return 0;
        siblings++;
    }
    return siblings;
}

/* A chain of the same points, layer after layer: weights of low precision add their error in every layer, a bug in one
 * place does not. */
static bool keeps_growing(const struct ts_judge *state, size_t i)
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

/* The same, where the stream itself grows and each layer's part weighs less than the one before: it takes more layers
 * to see, none of which may be better, and the first must be among them. */
static bool climbs_slowly(const struct ts_judge *state, size_t i)
{
    double first = state->errors[i], level = first;
    double chance = 2 / sqrt(fmax(1, (double)state->pairs[i].a.count)); /* two errors of one token differ by as much */
    unsigned seen = 0;
    if (error_one_layer_earlier(state, i) > 0) /* layers before it are fine, and errors of bugs climb as well */
        return false;
    for (size_t k = i + 1; k < state->out->count && seen < CLIMB; k++)
        if (isfinite(state->errors[k]) && same_point(state->pairs[k].name, state->pairs[i].name)) {
            if (state->errors[k] < level * (seen ? 0.97 : 1.1) * fmax(0, 1 - chance))
                return false;
            level = fmax(level, state->errors[k]);
            seen++;
        }
    return (seen >= 3 && level > 1.35 * first) || (seen == 2 && level > 1.15 * first);
}

/* What the products behind i say about an error that starts there. */
enum testimony { SILENT, AGAINST, FOR };

/* A norm of what a product made is added to the stream, which the next product takes, and is no product's input. The
 * stream itself is an operand of sums. Nor is what a product made, captured once more. */
static bool is_post_norm(const struct ts_judge *state, size_t k)
{
    size_t from = state->fed_by[k];
    if (state->kinds[k] != TS_OPERATION_NORM && state->kinds[k] != TS_OPERATION_COPY)
        return false;
    if (state->summed[from])
        return false;
    if (state->learnt[from] && state->errors[from] == state->errors[state->fed_by[from]]) /* captured twice */
        from = state->fed_by[from];
    return ts_judge_is_free(state, from) && !state->summed[from] && !is_norm(state->pairs[from].name) &&
           state->pairs[from].a.rank == state->pairs[k].a.rank;
}

/* As many rows in both, where both are matrices: keys of another sequence, which cross attention takes, do not come
 * from the norm before them. */
static bool has_rows_of(const struct ts_judge *state, size_t one, size_t other)
{
    const struct ts_view *a = &state->pairs[one].a, *b = &state->pairs[other].a;
    if (a->rank != b->rank || a->rank < 2)
        return true;
    return a->shape[a->rank - 2] == b->shape[b->rank - 2];
}

/* The nearest earlier pair, behind i, that is the input of k or close to it; i when there is none, or the
 * stream that it takes was not captured. */
static size_t input_of(const struct ts_judge *state, size_t i, size_t k)
{
    const size_t product = k;
    while (k > i && ((!state->learnt[k] && !is_norm(state->pairs[k].name)) || !isfinite(state->errors[k]) ||
                     !(state->errors[k] > 0)))
        k--;
    return k > i && (is_post_norm(state, k) || !has_rows_of(state, k, product)) ? i : k;
}

static double added_error(double out, double in)
{
    return sqrt(fmax(0, out * out - in * in));
}

/* Error that rounding weights or activations made does not follow the reference, no token is free of it, and tokens
 * share no more of it than they share of the reference. That of a bug mostly does, by 0.3 and more: what is wrong was
 * left out of the result, or stands in its place. And bugs of attention leave the tokens alone that see one key. Honest
 * errors that start have shown slopes up to 0.21, and no token with less than a seventh of the median one's energy. */
static bool is_unstructured(const struct ts_judge *state, size_t i)
{
    const struct ts_structure *structure = &state->structures[i];
    double chance = 2 / sqrt(fmax(1, (double)fmin((double)state->pairs[i].a.count, 1e4)));
    if (structure->known && (structure->least_row < CALM_ROW ||
                             structure->offset > structure->alike + OFFSET_SHARE * (1 - structure->alike)))
        return false;
    return fabs(structure->slope) < CLEAN_SLOPE + chance;
}

/* One kind of product may run in a precision of its own that no tensor shows, as attention over a cache in fp8 does, or
 * have coarser weights than others. It does so in every layer: by little, or by the same. */
static bool same_points_add(const struct ts_judge *state, size_t i, size_t needed)
{
    double added[4];
    size_t count = 0;
    for (size_t k = i + 1; k < state->failed && count < 4; k++)
        if (isfinite(state->errors[k]) && same_point(state->pairs[k].name, state->pairs[i].name)) {
            size_t input = input_of(state, i, k);
            if (input > i)
                added[count++] = added_error(state->errors[k], state->errors[input]);
        }
    if (state->errors[i] < HIDDEN_LIMIT)
        return count >= 2 && ts_nth(added, count, (count - 1) / 2) >= ADDED_SHARE * state->errors[i];
    /* what is added to much that came in may be that, amplified: there is a least to it, and no most, unless there is
     * one other layer and no sibling */
    if (count == 1 && needed > 1 && state->failed == state->out->count &&
        ts_nth(added, count, 0) < state->errors[i] / SAME_SHARE)
        needed = 1;
    return state->errors[i] < DOUBT_FROM && count >= needed &&
           ts_nth(added, count, 0) > SAME_SHARE * state->errors[i] && is_unstructured(state, i);
}

/* Where every weight or product is of low precision, those behind i add as much error of their own to what came into
 * them, and end no better. A bug adds its error once. Nobody is heard behind a failed replay: what follows it carries
 * that. */
static enum testimony products_behind(const struct ts_judge *state, size_t i, size_t siblings)
{
    double added[AHEAD], reached[AHEAD], came[AHEAD], level = state->errors[i], share;
    size_t count = 0;
    for (size_t k = i + 1; k < state->failed && count < AHEAD; k++) {
        size_t input;
        double out = state->errors[k];
        if (!ts_judge_is_free(state, k) || is_norm(state->pairs[k].name) || (input = input_of(state, i, k)) == i ||
            state->errors[input] > 3 * level) /* what it adds would not show */
            continue;
        added[count] = added_error(out, state->errors[input]);
        came[count] = state->errors[input];
        reached[count++] = out;
    }
    if (same_points_add(state, i, siblings ? 1 : 2))
        return FOR;
    if (count < 2 || (state->failed < state->out->count && count < AHEAD / 2))
        return state->failed < state->out->count ? FOR : SILENT;
    /* what is added to little is beyond doubt, and weights differ; where as much came in, it may have been amplified */
    share = ts_nth(came, count, count / 2) < 0.5 * level ? 0.6 : level > HIDDEN_LIMIT ? 0.9 : 0.7;
    return ts_nth(added, count, count / 2) >= (level > DOUBT_FROM ? SURE_SHARE : ADDED_SHARE) * level &&
                   ts_nth(reached, count, count / 4) >= share * level
               ? FOR
               : AGAINST;
}

/* Weights that coarse are in every product, or from one layer on. One before i that is far better speaks against them
 * where i stands alone, and so does one behind that ends better than i did, with more products in it or not. */
static bool finer_elsewhere(const struct ts_judge *state, size_t i, bool alone)
{
    double level = state->errors[i];
    size_t seen = 0;
    for (size_t k = 1; k < i && alone; k++)
        if (ts_judge_is_free(state, k) && state->errors[k] > 0 && !is_norm(state->pairs[k].name) &&
            state->errors[k] < level / 20 && !same_point(state->pairs[k].name, state->pairs[i].name))
            return true;
    for (size_t k = i + 1; k < state->failed && seen < 3; k++)
        if (ts_judge_is_free(state, k) && !is_norm(state->pairs[k].name) && input_of(state, i, k) != i) {
            if (state->errors[k] < 0.8 * level)
                return true;
            seen++;
        }
    return false;
}

/* Where the products of a layer before i are far better, neither the layer nor the run is coarse. What attention hides
 * errs by less. */
static bool finer_in_its_layer(const struct ts_judge *state, size_t i)
{
    uint64_t layer, other;
    if (state->errors[i] < HIDDEN_LIMIT || !ts_layer_of(state->pairs[i].name, &layer))
        return false;
    for (size_t k = i; k > 0 && ts_layer_of(state->pairs[k - 1].name, &other) && other == layer; k--)
        if (ts_judge_is_free(state, k - 1) && !is_norm(state->pairs[k - 1].name) && state->errors[k - 1] > 0 &&
            state->errors[k - 1] < state->errors[i] / 20)
            return true;
    return false;
}

/* Its error is the same in every token, far more so than the tokens themselves are. */
static bool is_offset(const struct ts_structure *structure)
{
    return structure->known && structure->offset > TS_OFFSET_LIMIT &&
           1 - structure->offset < 0.25 * (1 - structure->alike);
}

/* The same point one layer earlier is equal bit for bit: both sides run the same code there, and no precision that a
 * run lives in begins in the middle with an error of this size. */
static bool was_equal(const struct ts_judge *state, size_t i)
{
    for (size_t back = 1; back <= 96 && back <= i && state->errors[i] > HIDDEN_LIMIT; back++)
        if (isfinite(state->errors[i - back]) && same_point(state->pairs[i - back].name, state->pairs[i].name))
            return state->deltas[i - back].unequal == 0;
    return false;
}

/* The same point of an earlier layer is far better. */
static bool was_better(const struct ts_judge *state, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (isfinite(state->errors[k]) && state->errors[k] < state->errors[i] / 20 &&
            same_point(state->pairs[k].name, state->pairs[i].name))
            return true;
    return false;
}

/* No other layer has this point, and no product before it is better: nothing but structure can speak. */
static bool is_only_one(const struct ts_judge *state, size_t i)
{
    for (size_t k = 0; k < state->out->count; k++)
        if (k != i && (same_point(state->pairs[k].name, state->pairs[i].name) ||
                       (k > 0 && k < i && ts_judge_is_free(state, k) && !is_norm(state->pairs[k].name) &&
                        state->errors[k] < state->errors[i] / 10)))
            return false;
    return true;
}

/* A replay fails behind i before the same point of another layer could speak. One bug is enough to explain a run. */
static bool is_cut_short(const struct ts_judge *state, size_t i)
{
    for (size_t k = i + 1; k < state->failed; k++)
        if (same_point(state->pairs[k].name, state->pairs[i].name))
            return false;
    return state->failed < state->out->count;
}

/* A precision may start at products that share their input, or, where only one point per layer was captured, along the
 * chain of these. A norm starts none. */
static bool may_start(const struct ts_judge *state, size_t i)
{
    bool alone;
    size_t siblings = siblings_that_start(state, i, &alone);
    const struct ts_structure *structure = &state->structures[i];
    enum testimony testimony = products_behind(state, i, siblings);
    double level = state->errors[i], earlier = error_one_layer_earlier(state, i);
    if (is_norm(state->pairs[i].name) || is_offset(structure) || testimony == AGAINST || was_equal(state, i) ||
        (level > STRUCTURE_FROM && !is_unstructured(state, i)) ||
        (testimony == SILENT && ((level > SILENT_LIMIT && !keeps_growing(state, i)) || was_better(state, i))) ||
        (level > DOUBT_FROM && finer_elsewhere(state, i, alone)))
        return false;
    if (level > HIDDEN_LIMIT && same_points_add(state, i, siblings ? 1 : 2))
        return true;
    if (level < DOUBT_FROM && is_cut_short(state, i) && !was_better(state, i) && is_unstructured(state, i))
        return true;
    if (testimony == SILENT && level < HIDDEN_LIMIT && state->pairs[i].a.count >= 16 && is_unstructured(state, i) &&
        !(earlier > 0 && earlier < level / 2)) /* a cache in eight bits, unseen */
        return true;
    if (alone && testimony == SILENT && structure->known && level < DOUBT_FROM && is_only_one(state, i) &&
        !finer_in_its_layer(state, i))
        return true;
    return siblings || (alone && !finer_in_its_layer(state, i) &&
                        (testimony == FOR || keeps_growing(state, i) || climbs_slowly(state, i)));
}

/* Layer outputs alone, two or more behind i, none of which is better: each layer adds its part, however the stream
 * itself grows. */
static bool never_recovers(const struct ts_judge *state, size_t i)
{
    double level = state->errors[i];
    unsigned seen = 0;
    for (size_t k = i + 1; k < state->out->count; k++)
        if (isfinite(state->errors[k]) && same_point(state->pairs[k].name, state->pairs[i].name)) {
            if (state->errors[k] < 1.02 * level)
                return false;
            level = state->errors[k];
            seen++;
        } else if (ts_judge_is_free(state, k) && !seen) {
            return false;
        }
    return seen >= 2;
}

/* Tokens that took other experts are set aside, but attention carries their error to the others. */
static double spread_by_aside(const struct ts_judge *state, size_t i)
{
    double most = 0;
    bool any = state->flipped;
    for (size_t row = 0; row < state->scene.taken_count && !any; row++)
        any = state->scene.aside[row];
    for (size_t back = 1; any && back <= TS_INHERIT_FROM && back <= i; back++)
        if (isfinite(state->errors[i - back]) && !state->reordered[i - back] && state->deltas[i - back].rel_l2 > most)
            most = state->deltas[i - back].rel_l2;
    return 0.5 * most;
}

/* No more tokens than noise of this size gives other experts in all layers so far. The others are calm. */
static bool are_so_few(const struct ts_judge *state, size_t i, double base)
{
    const struct ts_structure *own = &state->structures[i];
    uint64_t layer;
    return own->known && own->strays && own->row_error >= FLIPPED && own->calm <= CLOSE_LIMIT * base &&
           ts_layer_of(state->pairs[i].name, &layer) &&
           (double)own->strays <=
               fmin(0.2, FLIPS_OF_NOISE * base * (double)(layer + 1)) * (double)state->scene.taken_count;
}

/* Experts whose choice was not captured: a few tokens err by as much as they are large, other ones in each layer, and
 * the rest is calm. A bug of some tokens has the same ones everywhere, or one place. */
static bool are_unseen_flips(const struct ts_judge *state, size_t i, double base)
{
    const struct ts_structure *own = &state->structures[i];
    size_t alike = 0, others = 0, fresh = 0, last = SIZE_MAX;
    bool more = false;
    if (!own->known || !own->strays || own->strays * 3 > state->scene.taken_count || own->row_error < FLIPPED)
        return false;
    for (size_t k = 0; k < state->out->count; k++) {
        const struct ts_structure *other = &state->structures[k];
        if (k == i || !other->known || !same_point(state->pairs[k].name, state->pairs[i].name))
            continue;
        others++;
        if (other->row > STRAY_AGAIN && other->row_error > FLIPPED && other->worst_row != own->worst_row) {
            alike += other->row > 3 * other->inherited_row;
            fresh += other->worst_row != last; /* in the stream those of earlier layers stay */
            last = other->worst_row;
        }
        /* those that attention carries the error to err far less than the first */
        more = more ||
               (k > i && other->row > STRAY_AGAIN && other->row_error > FLIPPED && other->worst_rows > own->worst_rows);
    }
    return (alike >= 2 && alike * 2 >= others) || ((alike || fresh >= 2 || more) && are_so_few(state, i, base));
}

/* A run with experts, by its names, whose choice is nowhere to be seen. */
static bool hides_routing(const struct ts_judge *state)
{
    bool experts = false;
    for (size_t i = 0; i < state->out->count; i++) {
        const char *name = state->pairs[i].name;
        experts = experts || strstr(name, "expert") || strstr(name, "moe");
        if (strstr(name, "router") || ts_type_is_integer(state->pairs[i].a.tensor->type))
            return false;
    }
    return experts;
}

/* A context was replayed shortly before. */
static bool attention_is_known(const struct ts_judge *state, size_t i)
{
    for (size_t back = 1; back <= TS_INHERIT_FROM && back <= i; back++)
        if (state->kinds[i - back] == TS_OPERATION_CONTEXT)
            return true;
    return false;
}

/* A channel by which gates or scans let through more of what came in errs no more than that did, and what a few tokens
 * make of it is none of the channel's. */
static bool channel_stands_out(const struct ts_structure *structure, double base)
{
    return structure->channel > ts_channel_limit(structure) && structure->channel > 2 * structure->inherited_channel &&
           structure->channel_error > base && structure->channel_rows > (double)structure->rows / 8;
}

void ts_judge_unlearnt(struct ts_judge *state, size_t i)
{
    const struct ts_structure *structure = &state->structures[i];
    double level = state->errors[i], usual, base, earlier, rounding = ts_judge_rounding(&state->deltas[i]);
    size_t seen;
    bool flips;
    if (!isfinite(level))
        level = state->deltas[i].rel_l2;
    usual = usual_level(state, i, &seen);
    base = inherited(state, i);
    base = fmax(fmax(usual, base), fmin(spread_by_aside(state, i), 0.1));
    /* a few roundings are always there; fewer where nothing is hidden, as a coarse cache in attention may be, and other
     * products have shown what they make */
    base = fmax(base, (seen >= 3 && attention_is_known(state, i) ? 2 : 4) * rounding);
    flips = are_unseen_flips(state, i, base);
    if (flips && structure->calm < level)
        level = structure->calm;
    if (!flips && are_so_few(state, i, base) && hides_routing(state)) {
        state->flipped = flips = true;
        level = fmin(level, structure->calm);
        state->out->verdicts[i].why =
            ts_judge_say(state->out, "%zu token%s may have taken other experts, whose choice was not captured",
                         structure->strays, structure->strays == 1 ? "" : "s");
    }
    flips = flips || state->flipped; /* attention makes channels of those tokens */
    if (isinf(state->deltas[i].rel_l2)) {
        ts_judge_differs(state, i, "the reference is zero everywhere, and the candidate is not");
        return;
    }
    if (level > 0.9 && state->deltas[i].cosine < 0.3 && inherited(state, i) < 0.7) {
        ts_judge_differs(
            state, i,
            ts_judge_say(state->out,
                         i ? "it has no relation to the reference any more (cosine %.2f), while what came in does"
                           : "it has no relation to the reference (cosine %.2f)",
                         state->deltas[i].cosine));
        return;
    }
    /* where the same point one layer earlier lies at the run's level, growth is steadier and the limit closer */
    earlier = error_one_layer_earlier(state, i);
    if (level > (earlier > 0 && earlier < 1.5 * base ? CLOSE_LIMIT : GROWTH_LIMIT) * base &&
        !(level < START_LIMIT && may_start(state, i)) && !(seen < 3 && level < FIRST_LIMIT) &&
        !(seen < 3 && level < CHAIN_LIMIT && never_recovers(state, i))) {
        ts_judge_differs(state, i,
                         ts_judge_say(state->out,
                                      "its error is %.3g times what came in and what this run makes elsewhere",
                                      level / base));
        return;
    }
    if (level > 3 * rounding && structure->element > TS_ELEMENT_LIMIT &&
        structure->element > 8 * structure->inherited_element) /* weights of norms */
        ts_judge_differs(state, i,
                         ts_judge_say(state->out, "element %zu errs %.0f times as much as the others do",
                                      structure->worst_element, structure->element));
    if (level > 3 * rounding && structure->known && !(flips && channel_stands_out(structure, base))) {
        char token[64];
        ts_scene_token_text(&state->scene, state->scene.taken[structure->worst_row], token, sizeof token);
        if (channel_stands_out(structure, base))
            ts_judge_differs(state, i,
                             ts_judge_say(state->out, "channel %zu errs %.0f times as much as the others do",
                                          structure->worst_channel, structure->channel));
        else if (structure->block > TS_BLOCK_LIMIT)
            ts_judge_differs(state, i,
                             ts_judge_say(state->out, "channels %zu to %zu err %.0f times as much as the others do",
                                          structure->worst_block * structure->block_size,
                                          (structure->worst_block + 1) * structure->block_size - 1, structure->block));
        else if (!flips && structure->row > (attention_is_known(state, i) ? 1 : HIDDEN_ROWS) * TS_ROW_LIMIT &&
                 structure->row > 5 * structure->inherited_row && structure->row_error > GROWTH_LIMIT * base)
            ts_judge_differs(
                state, i,
                ts_judge_say(state->out, "%s errs %.0f times as much as the others do", token, structure->row));
        else if (is_offset(structure) && level > 2 * base)
            ts_judge_differs(state, i,
                             ts_judge_say(state->out,
                                          "%.0f %% of its error is the same in every token, as an offset is",
                                          100 * structure->offset));
        else if (fabs(structure->slope) > 0.8 && level > 2 * base && !(i == 0 && level < ROUNDED_FACTOR))
            ts_judge_differs(state, i,
                             ts_judge_say(state->out, "its error follows the reference: a factor of %.4g",
                                          1 + structure->slope * level));
    }
}
