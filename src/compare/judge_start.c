/* Owns one question: may a low precision start at a pair whose error nothing before it explains?
 *
 * Two stories explain such an error. By the first, this run's products are coarse (weights of four bits, a cache in
 * eight): then others make an error of their own as well. By the second it is a bug, made once: then the others carry
 * what came in, and no more. With `own` the error that began here and `in` what came into another product, the first
 * story expects sqrt(in^2 + own^2) to come out of it, the second `in`. Either is met within a spread, as weights
 * differ; each witness is asked which one it fits better, by the logarithm of the ratio of their likelihoods. One that
 * was drowned by what came in says nothing, by itself.
 *
 * Those at the same point of other layers know best: one kind of weight may be coarser than others. Where they are
 * silent, the products around are heard, and where nobody speaks, structure decides. */
#include <math.h>
#include <string.h>

#include "compare/judge_state.h"
#include "pair/names.h"
#include "tensor/layer.h"

/* Logarithm of how far an honest product strays from what the stories expect: weights and inputs differ. */
#define SPREAD 0.4
/* Spreads beyond which more comes out than a precision explains. Where that is so in as many layers, and in most that
 * can be asked, a third story meets it better: the same bug in every layer. */
#define MET_BY_NEITHER 1.5
#define LAYERS_BEYOND  3
/* From what error on, and by how much of what is beyond, a carried one grows. */
#define LARGE       0.2
#define LARGE_GROWS 2.0
/* One witness alone is no proof, nor are many of a kind, that err together: what they say is cut off at this. */
#define MOST_SAME    2.0
#define MOST_OTHER   1.0
#define MOST_OF_ALL  3.0
#define MOST_BEFORE  1.0
#define CARRIED      1.5
#define UNSEEN_INPUT 0.18
#define SIBLINGS     2
/* What is said against a precision by products of other kinds: one kind may be coarse alone. */
#define OTHERS_AGAINST      0.15
#define MOST_OTHERS_AGAINST 0.6
/* From what on products of the same layer, or one of another, say that it is coarse. */
#define MIXED 0.8
/* Weights of four bits make an error of 0.08 to 0.12 in one product, through the four or five of a layer twice as much,
 * and two bits one half: beyond it becomes unlikely, and beyond START_LIMIT nobody is asked. Below STRUCTURE_FROM,
 * products in another precision than what they give are what is usual. */
#define FOUR_BITS        0.12
#define FOUR_BITS_OF_ALL 0.30
#define UNLIKELY         1.75 /* by the factor e */
#define START_LIMIT      0.7
#define STRUCTURE_FROM   0.01
#define USUAL            2.5
#define EXACT_BEFORE     3
#define FAR_BELOW        100.0
#define SUDDEN           8.0 /* times one rounding: a kernel of another order makes one or two */
#define ALONE_LIMIT      0.05
#define ALONE_COUNT      16
#define LEFT_BEHIND      0.1
#define EXPLAINED        2.0 /* a bug behind it explains what was noticed, and one bug is enough */
/* Slopes of honest errors that start: nine in ten below 0.1; those of bugs are of any size. */
#define SLOPE_SPREAD 0.1
#define MLP_SPREAD   0.15 /* of three products, two of which are multiplied with each other */
#define CLIP_SPREAD  0.35 /* of those that make the result smaller: blocks with a common scale cut off their largest */
/* Tokens of honest errors that start err alike: nine in ten spread by less than 0.27, half of the bugs' by 2 and more.
 */
#define EVEN               2.0
#define EVEN_SPREAD        0.5
#define HIDDEN_SPREAD      0.7 /* behind a softmax that was not captured, in the first layer, or products that were not */
#define MOST_UNEVEN        4.0
#define MOST_UNEVEN_OF_ALL 2.5 /* where other layers speak for a precision, by so much: */
#define SPEAKS_FOR         0.8
#define CALM_ROW           0.04
#define OFFSET_SHARE       0.4
#define OFFSET_OF_FEW      0.9  /* of two or three tokens */
#define OFFSET_OF_LAYER    0.75 /* with an attention inside, that may look at all tokens alike and gives them the same */
/* Where layers were left out and nobody else says anything, a score down to this is no proof of a bug. */
#define OPEN_FROM   (-2.0)
#define OPEN_LIMIT  0.4 /* what weights of four bits make of a whole model, at most */
#define OPEN_UNEVEN 1.5
#define OPEN_SLOPES 1.5 /* spreads of an honest slope: beyond, the error follows the reference */
#define SILENT      0.3
/* What eight bits make of keys and values: up to twice one rounding to e4m3 each, as attention adds them up. */
#define CACHED_BITS   3
#define CACHED_MOST   2.5
#define CACHED_UNEVEN 0.9
#define CACHED_LIMIT  0.3
/* Scores that are not small make more of an error, and of some tokens only: what it does to u, in the logarithm of how
 * much more, and up to which factor a token may be the calmer that looks at one key alone. */
#define SHARP_UNEVEN 0.5
#define SHARP_CALM   10.0
#define NEAR_SCORES  8 /* pairs before what comes out of attention, among which queries and keys are */

/* Of a product that shares its input with i, relative to what differs between tokens as that of i is: a large bias
 * makes an error look small. */
static double error_beside(const struct ts_judge *state, size_t i, size_t k)
{
    const struct ts_structure *here = &state->structures[i], *there = &state->structures[k];
    double bias = here->known && there->known ? (1 - there->alike) / fmax(1 - here->alike, 1e-3) : 1;
    return ts_judge_level(state, k) / sqrt(fmax(bias, 1e-3));
}

static bool is_product(const struct ts_judge *state, size_t k)
{
    return ts_judge_is_free(state, k) && !state->parts[k] && !ts_judge_is_norm(state->pairs[k].name);
}

/* What came into k, from the nearest earlier pair behind i that is its input or close to it. False when there is none.
 */
static bool came_in(const struct ts_judge *state, size_t i, size_t k, double *in)
{
    for (size_t at = k - 1; at > i && k - at <= TS_INHERIT_FROM; at--)
        if (!is_product(state, at) && state->errors[at] > 0) {
            *in = state->errors[at];
            return true;
        }
    return false;
}

/* The same where products alone were captured, or layers: the one before it took the same stream, or gave it. */
static bool came_in_nearly(const struct ts_judge *state, size_t k, double *in)
{
    *in = state->errors[k - 1];
    return ts_judge_is_free(state, k - 1);
}

bool ts_judge_is_whole_layer(const struct ts_judge *state, size_t i)
{
    uint64_t layer;
    return ts_layer_of(state->pairs[i].name, &layer) &&
           !(i > 0 && ts_same_layer(state->pairs[i].name, state->pairs[i - 1].name)) &&
           !(i + 1 < state->out->count && ts_same_layer(state->pairs[i].name, state->pairs[i + 1].name));
}

static double cut(double value, double most)
{
    return fmax(-most, fmin(most, value));
}

/* What is in favour of the first story, at most `most` either way. grown: the logarithm of what may have become of what
 * came in on its way. */
static double weigh_grown(double own, double in, double out, double grown, double most)
{
    double carried = fmax(in, own / 50), coarse = sqrt(carried * carried + own * own);
    double met = log(fmax(out, carried)); /* a bias makes any error small */
    double to_coarse = log(coarse) - met, to_carried = fmax(0, met - log(carried) - grown);
    double found = (to_carried * to_carried - to_coarse * to_coarse) / (2 * SPREAD * SPREAD);
    return cut(found, most);
}

static double weigh(double own, double in, double out, double most)
{
    return weigh_grown(own, in, out, 0, most);
}

/* In favour of the first story over the third one: less than 0 where more came out than a precision explains. */
static double weigh_beyond(double own, double in, double out)
{
    const double more = log(fmax(out, in) / sqrt(in * in + own * own)) / SPREAD;
    return more > MET_BY_NEITHER ? cut((MET_BY_NEITHER * MET_BY_NEITHER - more * more) / 2, MOST_SAME) : 0;
}

/* The same of what layers add to a stream. Behind layers that were fine a bug is the likelier story, and where its
 * error is large, what depends on it is another thing by then: it is made more of. */
static double weigh_update(const struct ts_judge *state, size_t i, size_t k, bool fine_before)
{
    const double in = state->errors[state->follows[k] - 1];
    const double own = state->follows[i] ? state->updates[i] : ts_judge_level(state, i);
    const double grown = fine_before ? log(1 + LARGE_GROWS * fmax(0, in - LARGE)) : 0;
    return weigh_grown(own, in, state->updates[k], grown, MOST_SAME);
}

/* Next to each other in order and in one layer, with nothing learnt between them: q, k and v, that share their input.
 * Asked of one after the other, away from i. */
static bool is_sibling(const struct ts_judge *state, size_t i, size_t k)
{
    return ts_judge_is_free(state, i) && ts_judge_is_free(state, k) &&
           ts_same_layer(state->pairs[i].name, state->pairs[k].name);
}

struct evidence {
    double kind, others; /* those like it: the same points and what shares its input; all others */
    double layers;       /* what the same points of later layers say, which is in `kind` as well */
    double earlier;      /* and those of earlier ones */
    double mates;        /* what others of its own layer say, behind it, which is in `others` as well */
    size_t speakers;     /* those of them that speak for a precision */
    size_t clear;        /* and do so by a good deal */
    size_t asked;        /* of so many */
    size_t siblings;
    size_t far_below; /* same points of earlier layers that err by far less */
    bool before;      /* the same point of an earlier layer was asked: it did not start with the run */
};

/* Whether what i and its siblings take was captured. Where only products were, it is between the last of them and i,
 * and may be what is wrong: then all siblings err alike by either story, and mostly more than four bits make.
 * Embeddings, and layers that continue each other, are the stream itself. */
static bool has_input(const struct ts_judge *state, size_t i)
{
    uint64_t layer;
    while (i > 0 && ts_same_layer(state->pairs[i].name, state->pairs[i - 1].name) && is_product(state, i - 1))
        i--;
    return i == 0 || !is_product(state, i - 1) || state->follows[i - 1] ||
           !ts_layer_of(state->pairs[i - 1].name, &layer);
}

/* One of some kinds, by its name. */
static bool is_one_of(const struct ts_judge *state, size_t i, const char *const *kinds, size_t count)
{
    const struct ts_arena_mark mark = ts_arena_mark(&state->out->arena);
    struct ts_names names;
    bool found = false;
    if (ts_names_make(&state->pairs[i].name, 1, 0, &state->out->arena, &names))
        for (size_t k = 0; k < count; k++)
            found = found || strcmp(names.list[0].kind, kinds[k]) == 0;
    ts_arena_rewind(&state->out->arena, mark);
    return found;
}

/* Projections whose weights programs store as one, or in one way: queries, keys and values, gate and up. Keys and
 * values may have been captured as a cache gives them back. */
static bool are_of_one_kind(const struct ts_judge *state, size_t i, size_t k)
{
    static const char *const attention[] = {"attn_q", "attn_k", "attn_v"};
    static const char *const gated[] = {"ffn_gate", "ffn_up"};
    const bool cached = ts_judge_level(state, i) < CACHED_MOST * ts_rounding(CACHED_BITS);
    return (is_one_of(state, i, attention, cached ? 1 : 3) && is_one_of(state, k, attention, 3)) ||
           (is_one_of(state, i, gated, 2) && is_one_of(state, k, gated, 2));
}

/* What shares its input and is as coarse is of its kind; what is not may be of another, by its name. No more than q, k
 * and v are believed to share one: what comes further behind may carry its error, and errs less for that. */
static void hear_sibling(const struct ts_judge *state, size_t i, size_t k, struct evidence *evidence)
{
    double level = error_beside(state, i, k), own = ts_judge_level(state, i);
    double found = weigh(own, 0, level, MOST_OTHER);
    if (evidence->siblings++ >= SIBLINGS || (k > i && found > 0 && CARRIED * level < own) ||
        (own > UNSEEN_INPUT && !has_input(state, i)))
        return;
    *(found > 0 || are_of_one_kind(state, i, k) ? &evidence->kind : &evidence->others) += found;
}

/* Those before it, that were fine. A precision that starts in the middle of a run leaves them as a bug does: they say
 * that it did not start with the run, which is less usual, and no more however many they are. */
static void hear_before(const struct ts_judge *state, size_t i, struct evidence *evidence)
{
    double kind = 0;
    bool sibling = true;
    for (size_t k = i; k-- > 1;) {
        sibling = sibling && is_sibling(state, i, k);
        if (!is_product(state, k))
            continue;
        if (ts_judge_same_point(state->pairs[k].name, state->pairs[i].name)) {
            kind += weigh(ts_judge_level(state, i), 0, ts_judge_calm_level(state, k), MOST_SAME);
            evidence->before = true;
            evidence->far_below += FAR_BELOW * ts_judge_level(state, k) < ts_judge_level(state, i);
        } else if (sibling) {
            hear_sibling(state, i, k, evidence);
        }
    }
    evidence->earlier = fmax(kind, -MOST_BEFORE);
    evidence->kind += evidence->earlier;
}

/* Some layers are coarse and others are not, as programs quantize all but the most delicate ones: where other products
 * of its own layer err anew, or several layers do at its point, no single bug does it. Then those that are fine say no
 * more than those before it do. */
static void grant_mixed(struct evidence *evidence)
{
    double said = evidence->layers + evidence->earlier;
    if (evidence->mates < MIXED && evidence->clear < 2)
        return;
    evidence->kind += fmax(said, -MOST_BEFORE) - said;
    evidence->others = fmax(evidence->others, evidence->mates);
}

/* Products in another precision than what they give are a matter of the kernel, which is the same in every layer: the
 * last one does not start with it alone. */
static bool is_small_and_last(double level, const struct evidence *evidence)
{
    return level < STRUCTURE_FROM && evidence->far_below >= 2 && !evidence->asked;
}

/* What comes out of an MLP or of experts, of which nothing inside was captured: two products that are multiplied with
 * each other, and a third. */
static bool hides_products(const struct ts_judge *state, size_t i)
{
    static const char *const ends[] = {"ffn_moe_out", "ffn_shexp_out", "ffn_out", "ffn_down"};
    static const char *const inside[] = {"ffn_act",      "ffn_mid",        "ffn_gate",     "ffn_up",
                                         "ffn_gate_up",  "ffn_gate_exps",  "ffn_up_exps",  "ffn_gate_up_exps",
                                         "ffn_act_exps", "ffn_gate_shexp", "ffn_up_shexp", "ffn_act_shexp",
                                         "ffn_act_up"};
    if (!is_one_of(state, i, ends, sizeof ends / sizeof *ends))
        return false;
    for (size_t back = 1; back <= TS_INHERIT_FROM && back <= i; back++)
        if (ts_same_layer(state->pairs[i - back].name, state->pairs[i].name) &&
            is_one_of(state, i - back, inside, sizeof inside / sizeof *inside))
            return false;
    return true;
}

/* A later point like i, and what came into it. */
static bool is_asked(const struct ts_judge *state, size_t i, size_t k, double *in)
{
    return is_product(state, k) && ts_judge_same_point(state->pairs[k].name, state->pairs[i].name) &&
           !ts_judge_is_repeated(state->pairs[k].name, state->pairs[i].name) && !state->follows[k] &&
           (came_in(state, i, k, in) || came_in_nearly(state, k, in));
}

/* Of one product: of several, of which nothing inside was captured, or of experts, layers differ. */
static bool is_in_every_layer(const struct ts_judge *state, size_t i)
{
    size_t asked = 0, beyond = 0;
    for (size_t k = i + 1; k < state->failed && !hides_products(state, i); k++) {
        double in;
        if (!is_asked(state, i, k, &in))
            continue;
        asked++;
        beyond += weigh_beyond(ts_judge_level(state, i), in, ts_judge_level(state, k)) < 0;
    }
    return beyond >= LAYERS_BEYOND && 2 * beyond > asked;
}

static void hear(const struct ts_judge *state, size_t i, struct evidence *evidence)
{
    const double level = ts_judge_level(state, i);
    const bool everywhere = is_in_every_layer(state, i);
    bool sibling = true;
    *evidence = (struct evidence){0};
    hear_before(state, i, evidence);
    for (size_t k = i + 1; k < state->failed; k++) {
        double in, out = ts_judge_calm_level(state, k), found = 0;
        bool same = ts_judge_same_point(state->pairs[k].name, state->pairs[i].name);
        sibling = sibling && is_sibling(state, i, k);
        if (!is_product(state, k) || (same && ts_judge_is_repeated(state->pairs[k].name, state->pairs[i].name)))
            continue; /* a bug is in every step: its own point says nothing */
        if (!(out > 0) && state->deltas[k].unequal)
            continue; /* it differs in tokens that were set aside, and there are no others */
        if (same && state->follows[k])
            found = weigh_update(state, i, k, evidence->earlier < 0);
        else if (sibling)
            hear_sibling(state, i, k, evidence);
        else if (is_asked(state, i, k, &in))
            found = everywhere ? weigh_beyond(level, in, out) : weigh(level, in, out, MOST_SAME);
        else if (!same && came_in(state, i, k, &in)) {
            double said = weigh(level, in, out, MOST_OTHER);
            if (everywhere && weigh_beyond(level, in, out) < 0)
                said = fmin(said, 0);
            evidence->others += said;
            evidence->mates += ts_same_layer(state->pairs[k].name, state->pairs[i].name) ? said : 0;
        }
        evidence->speakers += found > 0;
        evidence->clear += found > MIXED;
        evidence->asked += found != 0;
        evidence->layers += found;
    }
    evidence->kind += evidence->layers;
    grant_mixed(evidence);
    if (is_small_and_last(level, evidence))
        evidence->kind = fmin(evidence->kind, -MOST_OF_ALL);
}

/* A slope that chance makes of so many numbers. */
static double chance_of(const struct ts_judge *state, size_t i)
{
    return 2 / sqrt(fmax(1, (double)state->pairs[i].a.count));
}

static bool is_of_attention(const char *name)
{
    return (strstr(name, "attn") || strstr(name, "attention")) && !ts_judge_is_norm(name);
}

/* Something that was learnt between k and i takes k: what comes out of that counts in its place. */
static bool is_taken_before(const struct ts_judge *state, size_t k, size_t i)
{
    while (--i > k)
        if (state->takes[i] == k + 1)
            return true;
    return false;
}

bool ts_judge_is_behind_attention(const struct ts_judge *state, size_t i)
{
    static const char *const kinds[] = {"attn_context", "attn_context_heads", "attn_output", "attn_out",
                                        "cross_attn_output"};
    return is_of_attention(state->pairs[i].name) && !ts_judge_attention_is_known(state, i) &&
           is_one_of(state, i, kinds, sizeof kinds / sizeof *kinds);
}

/* Queries, keys and values as they come out of their projections: no cache is before them. */
static bool is_projected(const struct ts_judge *state, size_t i)
{
    static const char *const kinds[] = {"attn_q",   "attn_k",  "attn_v",        "attn_qkv", "attn_q_a",
                                        "attn_q_b", "attn_kv", "attn_kv_a_mqa", "attn_kv_b"};
    return is_one_of(state, i, kinds, sizeof kinds / sizeof *kinds);
}

double ts_judge_sharpness(const struct ts_judge *state, size_t i, double *came)
{
    double largest[2] = {0, 0};
    *came = 0;
    if (!ts_judge_is_behind_attention(state, i))
        return 1;
    for (size_t back = 1; back <= NEAR_SCORES && back <= i; back++) {
        const size_t k = i - back;
        const struct ts_delta *delta = &state->deltas[k];
        double size = delta->compared ? delta->a.norm / sqrt((double)delta->compared) : 0;
        if (!ts_same_layer(state->pairs[k].name, state->pairs[i].name))
            break;
        if (!isfinite(state->errors[k]) || is_taken_before(state, k, i))
            continue;
        *came = fmax(*came, state->errors[k]);
        if (!(size > largest[1]))
            continue;
        largest[1] = fmin(size, largest[0]);
        largest[0] = fmax(size, largest[0]);
    }
    return isfinite(largest[0] * largest[1]) ? fmax(1, largest[0] * largest[1]) : 1;
}

/* What a whole layer gives to the next one. */
static bool is_layer_of_stream(const struct ts_judge *state, size_t i)
{
    bool stream = state->follows[i] != 0;
    for (size_t k = i + 1; k < state->out->count && !stream; k++)
        stream = state->follows[k] == i + 1;
    return stream && ts_judge_is_whole_layer(state, i);
}

/* No token is free of the error that rounding weights or activations made, and tokens share no more of it than they
 * share of the reference. Bugs of attention leave the tokens alone that see one key, and others stand in the place of
 * the result. No honest error that starts has shown a token with less than a seventh of the median one's energy. */
static bool has_structure(const struct ts_structure *structure, double sharpness, bool of_layer)
{
    const double calmer = fmin(sharpness, SHARP_CALM), share = of_layer ? OFFSET_OF_LAYER : OFFSET_SHARE;
    if (structure->by_distance)
        return true;
    return structure->known ? structure->least_row < CALM_ROW / (calmer * calmer) || structure->offset > share
                            : structure->offset > OFFSET_OF_FEW;
}

/* Attention lies between i and what was captured before it. */
static bool hides_softmax(const struct ts_judge *state, size_t i)
{
    return ts_judge_is_whole_layer(state, i) ||
           (is_of_attention(state->pairs[i].name) && !ts_judge_attention_is_known(state, i));
}

/* Keys and values go through a cache that attention alone sees. Where nothing between them and what comes out was
 * captured, an error of the size that eight bits make of each number may be that of the cache. */
static bool is_of_a_cache(const struct ts_judge *state, size_t i, double sharpness)
{
    return is_of_attention(state->pairs[i].name) && !ts_judge_attention_is_known(state, i) && !is_projected(state, i) &&
           ts_judge_level(state, i) < fmin(CACHED_MOST * ts_rounding(CACHED_BITS) * sharpness, CACHED_LIMIT);
}

/* That other kinds are fine is one fact where an error starts with the run, however many say so; and none where they
 * have no cache. */
static double weight_of_others(const struct ts_judge *state, size_t i, const struct evidence *evidence,
                               double sharpness)
{
    double against = OTHERS_AGAINST * evidence->others;
    if (evidence->others > 0 || evidence->before)
        return evidence->others > 0 ? evidence->others : against;
    return is_of_a_cache(state, i, sharpness) ? 0 : fmax(against, -MOST_OTHERS_AGAINST);
}

/* What is in favour of a precision that its error is spread over the tokens as rounding spreads it: less where those of
 * its kind speak against one. It speaks less against one where two later layers err anew, at the same point, or what
 * the only one there is adds to the stream: through a softmax that was not captured, tokens err by what near ties make
 * of it. Tokens of few numbers err unevenly by chance.
 */
static double evenness(const struct ts_judge *state, size_t i, const struct evidence *evidence, double sharpness)
{
    const struct ts_structure *structure = &state->structures[i];
    double chance = structure->known ? 2 * (double)structure->rows / (double)state->pairs[i].a.count : 0;
    double sharper = 1 + SHARP_UNEVEN * log(sharpness);
    bool hidden = (!evidence->before && hides_softmax(state, i)) || hides_products(state, i);
    double spread = sharper * (hidden ? HIDDEN_SPREAD : EVEN_SPREAD);
    double found = structure->uneven * structure->uneven / (spread * spread + chance);
    bool all = evidence->speakers > 1 || (state->follows[i] && evidence->speakers == evidence->asked);
    double most = all && evidence->layers > SPEAKS_FOR ? MOST_UNEVEN_OF_ALL : MOST_UNEVEN;
    return structure->known ? fmin(EVEN - fmin(most, found), evidence->kind < 0 ? EVEN / 2 : EVEN) : 1;
}

/* Layers that were left out before the first that was captured, as far as the names tell. */
static uint64_t hidden_layers(const struct ts_judge *state, size_t i)
{
    uint64_t layer, before;
    if (!ts_layer_of(state->pairs[i].name, &layer) || (i > 0 && ts_layer_of(state->pairs[i - 1].name, &before)))
        return 0;
    return layer;
}

/* In the layer of i, what the norm at its point in another layer takes. */
static bool has_input_of(const struct ts_judge *state, size_t i, size_t input)
{
    for (size_t k = 0; k < i; k++)
        if (ts_same_layer(state->pairs[k].name, state->pairs[i].name) &&
            ts_judge_same_point(state->pairs[k].name, state->pairs[input].name))
            return true;
    return false;
}

/* In its own layer, that is a sum of what its layer makes, all of which was captured in the layer of i: no product lies
 * between them and the norm. What is of another size gates, and the norms of the layer tell how coarse that is. */
static bool is_a_sum_of_captured(const struct ts_judge *state, size_t i, size_t input)
{
    size_t found = 0;
    for (size_t k = 0; k < input; k++) {
        if (state->used[k] != input + 1 || state->pairs[k].a.count != state->pairs[input].a.count ||
            !ts_same_layer(state->pairs[k].name, state->pairs[input].name))
            continue;
        if (!has_input_of(state, i, k))
            return false;
        found++;
    }
    return found > 0;
}

/* In another layer the same norm was learnt, from something that was not captured here. */
static bool has_lost_its_input(const struct ts_judge *state, size_t i)
{
    bool lost = false;
    for (size_t k = 0; k < state->out->count; k++)
        if (k != i && state->kinds[k] == TS_OPERATION_NORM && state->takes[k] &&
            ts_judge_same_point(state->pairs[k].name, state->pairs[i].name) &&
            ts_same_layer(state->pairs[k].name, state->pairs[state->takes[k] - 1].name) &&
            !has_input_of(state, i, state->takes[k] - 1)) {
            if (is_a_sum_of_captured(state, i, state->takes[k] - 1))
                return false;
            lost = true;
        }
    return lost;
}

/* Of no layer, with all layers behind it: embeddings are before it, which no product makes. */
static bool is_before_layers(const struct ts_judge *state, size_t i)
{
    uint64_t layer;
    for (size_t k = 0; k < state->out->count; k++)
        if (ts_layer_of(state->pairs[k].name, &layer))
            return k > i;
    return false;
}

/* The last norm is learnt where its input was captured and there are tokens enough to learn its weights from. Where it
 * is not, products were left out before it; and so they were before that of a layer, where other layers show what it
 * takes. */
static bool is_behind_a_hole(const struct ts_judge *state, size_t i)
{
    uint64_t layer;
    if (hidden_layers(state, i))
        return true;
    if (!state->structures[i].known || !ts_judge_is_norm(state->pairs[i].name) || is_before_layers(state, i))
        return false;
    return !ts_layer_of(state->pairs[i].name, &layer) || has_lost_its_input(state, i);
}

/* A norm of queries, keys or a latent, by its name, and not of the stream: where the projection before it was not
 * captured in its layer, a product lies between. */
static bool is_behind_a_projection(const struct ts_judge *state, size_t i)
{
    static const char *const norms[] = {"attn_q_norm", "attn_k_norm", "attn_q_a_norm", "attn_kv_a_norm"};
    static const char *const projections[] = {"attn_q", "attn_k", "attn_q_a", "attn_kv_a_mqa"};
    for (size_t n = 0; n < sizeof norms / sizeof *norms; n++) {
        bool captured = false;
        if (!is_one_of(state, i, &norms[n], 1))
            continue;
        for (size_t back = 1; back <= TS_INHERIT_FROM && back <= i && !captured; back++)
            captured = ts_same_layer(state->pairs[i - back].name, state->pairs[i].name) &&
                       is_one_of(state, i - back, &projections[n], 1);
        return !captured;
    }
    return false;
}

double ts_judge_products_of_module(const struct ts_judge *state, size_t i)
{
    return hides_products(state, i) ? 3 : 1;
}

double ts_judge_came_into_layer(const struct ts_judge *state, size_t i)
{
    double most = 0;
    bool stream = false;
    for (size_t back = 1; back <= TS_INHERIT_FROM && back <= i; back++) {
        const size_t k = i - back;
        const bool here = ts_same_layer(state->pairs[k].name, state->pairs[i].name);
        if (stream && !here)
            break;
        most = isfinite(state->errors[k]) ? fmax(most, state->errors[k]) : most;
        stream = stream || (here && (state->kinds[k] == TS_OPERATION_COPY || state->kinds[k] == TS_OPERATION_SUM ||
                                     state->kinds[k] == TS_OPERATION_NORM));
    }
    return most;
}

/* The error that weights of four bits make between what was captured before i and i itself. */
static double likely_error(const struct ts_judge *state, size_t i)
{
    uint64_t hidden = hidden_layers(state, i);
    if (is_behind_a_hole(state, i) || ts_judge_is_whole_layer(state, i))
        return FOUR_BITS_OF_ALL * sqrt((double)hidden + 1);
    return FOUR_BITS * sqrt(ts_judge_products_of_module(state, i));
}

/* Products before it are equal to the last bit: both sides run the same code up to here. */
static bool is_exact_before(const struct ts_judge *state, size_t i)
{
    size_t equal = 0;
    for (size_t k = 0; k < i; k++) {
        if (state->deltas[k].unequal)
            return false;
        equal += is_product(state, k);
    }
    return equal >= EXACT_BEFORE;
}

bool ts_judge_is_sudden(const struct ts_judge *state, size_t i)
{
    return ts_judge_level(state, i) > fmax(STRUCTURE_FROM, SUDDEN * ts_judge_rounding(&state->deltas[i])) &&
           is_exact_before(state, i);
}

/* Those right behind it have nothing of its error, nor has the stream that goes on from the layer, where it may be a
 * small part: whatever they take, it is not this. Neither story tells of that: the
 * tensor was captured elsewhere than the reference's, as it is at the same point of every layer. */
static bool is_left_behind(const struct ts_judge *state, size_t i)
{
    unsigned seen = 0;
    if (state->used[i])
        return false;
    for (size_t k = i + 1; k < state->out->count && k <= i + TS_INHERIT_FROM; k++) {
        if (!isfinite(state->errors[k]) || ts_judge_same_point(state->pairs[k].name, state->pairs[i].name) ||
            (state->gone[k] && state->gone[k] == state->scene.taken_count))
            continue;
        if (state->errors[k] > LEFT_BEHIND * state->errors[i] ||
            (state->follows[k] && state->pairs[k].a.count == state->pairs[i].a.count &&
             state->deltas[k].mse > LEFT_BEHIND * LEFT_BEHIND * state->deltas[i].mse))
            return false;
        seen++;
    }
    return seen >= 4;
}

/* Of what comes behind all layers, by its name, where none of them was captured: the whole model lies before it. */
static bool ends_unseen_layers(const struct ts_judge *state, size_t i)
{
    struct ts_names names;
    uint64_t layer;
    for (size_t k = 0; k <= i; k++)
        if (ts_layer_of(state->pairs[k].name, &layer))
            return false;
    return ts_names_make(&state->pairs[i].name, 1, 0, &state->out->arena, &names) &&
           names.list[0].stage == TS_STAGE_TAIL;
}

/* Nobody says anything: what lies between the inputs and i was left out, and so was everything like it. Behind a whole
 * model an error is as uneven as its softmaxes make it; in one layer a bug looks otherwise. */
static bool is_open(const struct ts_judge *state, size_t i, const struct evidence *evidence, double slope, double score)
{
    if (fabs(evidence->kind) > SILENT || fabs(evidence->others) > MOST_OTHER || fabs(slope) > OPEN_SLOPES)
        return false;
    if (ends_unseen_layers(state, i))
        return state->errors[i] < OPEN_LIMIT && state->structures[i].uneven < OPEN_UNEVEN;
    return (is_behind_a_hole(state, i) || ts_judge_is_whole_layer(state, i)) &&
           state->errors[i] < likely_error(state, i) && score > OPEN_FROM;
}

/* Where an error of that size starts, whatever is exact before it, all tokens err alike and without direction. Other
 * scores, masks and angles leave those alone that see one key, or touch some far more than others. */
static bool may_be_cached(const struct ts_judge *state, size_t i, double slope, double sharpness)
{
    const struct ts_structure *structure = &state->structures[i];
    double uneven = CACHED_UNEVEN + SHARP_UNEVEN * log(sharpness);
    return is_of_a_cache(state, i, sharpness) && structure->uneven < uneven && fabs(slope) < 1;
}

enum ts_judge_start ts_judge_may_start(const struct ts_judge *state, size_t i)
{
    struct evidence evidence;
    double level = ts_judge_level(state, i), slope = state->structures[i].slope, likely = likely_error(state, i), score;
    double came, sharpness = ts_judge_sharpness(state, i, &came);
    slope /= (slope < 0 ? CLIP_SPREAD : hides_products(state, i) ? MLP_SPREAD : SLOPE_SPREAD) + chance_of(state, i);
    if (state->counted && ts_same_layer(state->pairs[state->counted - 1].name, state->pairs[i].name))
        return TS_START_NONE; /* that explains it */
    if (fmax(level, state->updates[i]) > START_LIMIT ||
        (ts_judge_is_norm(state->pairs[i].name) && !is_behind_a_hole(state, i) && !is_behind_a_projection(state, i)) ||
        (level > STRUCTURE_FROM &&
         (has_structure(&state->structures[i], sharpness, is_layer_of_stream(state, i)) || is_left_behind(state, i))))
        return TS_START_NONE;
    hear(state, i, &evidence);
    /* what four bits make of a whole model is much for the first tensor of all, where no other layer has one like it */
    if (i == 0 && level > OPEN_LIMIT && likely < FOUR_BITS_OF_ALL && !evidence.asked)
        return TS_START_NONE;
    /* a tensor by itself, that may be no run's, is believed where it has structure that could speak; but not where
     * nobody was asked because of a bug behind it */
    if (state->failed == state->out->count && evidence.kind == 0 && evidence.others < MOST_OTHER &&
        !state->structures[i].known && (level > ALONE_LIMIT || state->pairs[i].a.count < ALONE_COUNT))
        return is_open(state, i, &evidence, slope, 0) ? TS_START_OPEN : TS_START_NONE;
    if (level > STRUCTURE_FROM && is_exact_before(state, i) && evidence.kind <= 0 && evidence.others <= 0 &&
        !may_be_cached(state, i, slope, sharpness))
        return TS_START_NONE;
    score = cut(evidence.kind + weight_of_others(state, i, &evidence, sharpness), MOST_OF_ALL);
    score += (level > STRUCTURE_FROM ? evenness(state, i, &evidence, sharpness) : USUAL) - slope * slope;
    score -= UNLIKELY * log(fmax(level, likely) / likely);
    score += state->failed < state->out->count ? EXPLAINED : 0;
    /* of a layer that is seen by its outcome alone, and so much of it is wrong, either story may be true */
    if (score > 0)
        return ts_judge_is_whole_layer(state, i) && level > OPEN_LIMIT ? TS_START_OPEN : TS_START_LIKELY;
    return is_open(state, i, &evidence, slope, score) ? TS_START_OPEN : TS_START_NONE;
}
