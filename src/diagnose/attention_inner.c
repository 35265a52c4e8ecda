/* Owns scores and probabilities whose way from the queries and keys was not captured: a rotary embedding lies between,
 * or queries and keys are parts of one fused projection, as hooks on modules give them with the attentions of the
 * model's output. The chain that gives the reference's is found exactly, and then what the candidate does otherwise. Of
 * sequences longer than a case holds, heads are worked out one at a time, with keys that are read. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/attention_chain.h"
#include "diagnose/attention_operands.h"
#include "diagnose/attention_trial.h"
#include "diagnose/formula.h"
#include "diagnose/variant.h"

#define MOST_WORK  ((double)(1u << 26)) /* multiplications for all rows, */
#define LONG_WORK  2e9                  /* where heads are read one at a time, */
#define TRIAL_WORK (1u << 20)           /* and for the rows on which a guess is tried */
#define WORTHWHILE 0.5                  /* share of the error that a trial must explain */
#define MOST_OFF   16

/* How a fused projection holds queries, keys and values. */
enum split { BY_TENSOR, BY_HEAD, BY_NUMBER, SPLITS };

static const char *const split_texts[] = {"all queries, all keys, all values", "query, key and value of each head",
                                          "query, key and value of each number"};

struct inner {
    struct ts_case *the_case;
    struct ts_operands operands;
    size_t tokens;
    bool apart;  /* the case holds some of them */
    bool scores; /* not probabilities */
    bool fused;  /* queries, keys and values are thirds of one tensor */
    enum split split;
    struct ts_chain own;
    struct ts_chain_inputs reference, candidate;
    size_t first, count; /* rows on which guesses are tried, */
    double base;         /* and their error */
    struct ts_long it;   /* with trial, where the case holds some tokens */
    struct ts_trial trial;
    double *out;
};

static size_t place_in(enum split split, size_t part, size_t width, size_t size, size_t i)
{
    return split == BY_TENSOR ? part * width + i
           : split == BY_HEAD ? (i / size * 3 + part) * size + i % size
                              : 3 * i + part;
}

static double *load_part(const struct inner *inner, enum split split, size_t part, bool candidate)
{
    const struct ts_actor *actor = inner->operands.q.actor;
    size_t width = inner->operands.q.width, size = width / inner->the_case->actor->heads;
    const float *values = candidate ? actor->b : actor->a;
    double *out = malloc(inner->tokens * width * sizeof *out);
    for (size_t at = 0; at < inner->tokens * width && out; at++)
        out[at] = (double)values[at / width * actor->width + place_in(split, part, width, size, at % width)];
    return out;
}

static bool load(const struct inner *inner, enum split split, bool candidate, struct ts_chain_inputs *inputs)
{
    struct ts_chain chain = {.q = inner->operands.q, .k = inner->operands.k, .v = inner->operands.v};
    if (!inner->fused)
        return ts_chain_load(inputs, &chain, candidate, inner->tokens);
    *inputs = (struct ts_chain_inputs){load_part(inner, split, 0, candidate), load_part(inner, split, 1, candidate),
                                       load_part(inner, split, 2, candidate)};
    return inputs->q && inputs->k && inputs->v;
}

static size_t token_of(const struct inner *inner, size_t row)
{
    return inner->apart ? (size_t)ts_case_row(inner->the_case, row) : row;
}

/* One row of the reference's, of one head where the case holds some tokens, in its place in inner->out. */
static bool weigh_reference(struct inner *inner, const struct ts_chain *chain, size_t row, size_t head)
{
    const double *weights;
    if (!inner->apart)
        return ts_chain_weights(chain, &inner->reference, inner->tokens, row, 1, inner->out);
    weights = ts_long_weights(&inner->it, chain, false, head, token_of(inner, row));
    if (weights)
        memcpy(inner->out + row * inner->the_case->actor->width + head * inner->tokens, weights,
               inner->tokens * sizeof *weights);
    return weights != NULL;
}

/* Relative square of what a chain leaves of the reference's rows, looked at until it is more than enough. What is
 * masked in scores is left out. */
static double left_of_reference(struct inner *inner, const struct ts_chain *chain, double enough)
{
    const struct ts_actor *actor = inner->the_case->actor;
    const size_t rows[] = {1, actor->rows / 2, actor->rows - 1}, heads[] = {0, actor->heads - 1};
    double worst = 0;
    for (size_t look = 0; look < (inner->apart ? 6 : 3) && worst < enough; look++) {
        const size_t row = rows[look % 3], head = heads[look / 3], at = row * actor->width;
        const size_t from = inner->apart ? at + head * inner->tokens : at;
        double error = 0, size = 0;
        if (!weigh_reference(inner, chain, row, head))
            return (double)INFINITY;
        for (size_t i = from; i < from + (inner->apart ? inner->tokens : actor->width); i++) {
            double captured = (double)actor->a[i];
            if (inner->scores && !ts_is_allowed(captured))
                continue;
            error += (inner->out[i] - captured) * (inner->out[i] - captured);
            size += captured * captured;
        }
        worst = size > 0 ? fmax(worst, error / size) : worst;
    }
    return worst;
}

/* Which keys the reference's probabilities see. */
static void read_mask(const struct inner *inner, struct ts_chain *chain)
{
    const struct ts_actor *actor = inner->the_case->actor;
    size_t tokens = inner->tokens, first = tokens, last = actor->rows - 1;
    bool ahead = false;
    for (size_t head = 0; head < actor->heads; head++)
        for (size_t key = 0; key < tokens; key++) {
            ahead = ahead || (key > token_of(inner, 0) && actor->a[head * tokens + key] != 0);
            if (actor->a[last * actor->width + head * tokens + key] != 0 && key < first)
                first = key;
        }
    chain->shift = ahead ? (long)tokens : 0;
    chain->window = !ahead && first > 0 && first < tokens ? (long)(token_of(inner, last) + 1 - first) : 0;
}

/* The reference's chain: a rotary embedding that is usual, or none, with one of the usual scales. */
static bool find_own(struct inner *inner)
{
    static const double bases[] = {0, 1e4, 1e6, 5e5, 1e5, 1e7, 5e6}, caps[] = {0, 50, 30, 20};
    const struct ts_actor *actor = inner->the_case->actor;
    size_t size = inner->operands.q.width / actor->heads;
    double limit = 10 * ts_rounding(actor->bits_a), best;
    limit = limit > 1e-4 ? limit : 1e-4;
    best = limit * limit;
    for (size_t b = 0; b < (inner->operands.turned ? 1 : sizeof bases / sizeof *bases); b++)
        for (int way = 0; way < (b ? 64 : 16); way++) {
            struct ts_chain chain = ts_chain_plain(actor->heads, inner->operands.k.width / size, size);
            double left;
            chain.q = inner->operands.q;
            chain.k = inner->operands.k;
            chain.v = inner->operands.v;
            chain.base = bases[b];
            chain.scale = way % 2 ? 1 : chain.scale;
            chain.cap = caps[way / 4 % 4];
            chain.interleaved = way / 16 % 2;
            chain.group = size >> way / 32;
            chain.weighing = way / 2 % 2 ? TS_WEIGH_SCORES : TS_WEIGH_SOFTMAX;
            inner->scores = way / 2 % 2;
            chain.shift = (long)inner->tokens;
            if (!inner->scores)
                read_mask(inner, &chain);
            if (chain.group < 4 || chain.group % 2)
                continue;
            left = left_of_reference(inner, &chain, best);
            if (left < best) {
                best = left;
                inner->own = chain;
            }
        }
    inner->scores = inner->own.weighing == TS_WEIGH_SCORES;
    return inner->own.heads > 0;
}

/* What is masked stays so. */
static void keep_masked(const struct ts_case *the_case, bool scores, size_t first, size_t count, double *out)
{
    size_t width = the_case->actor->width;
    for (size_t i = first * width; i < (first + count) * width && scores; i++)
        if (!ts_is_allowed(the_case->expected[i]))
            out[i] = the_case->expected[i];
}

static bool predict(const struct inner *inner, const struct ts_chain *chain, const struct ts_chain_inputs *inputs,
                    size_t first, size_t count, double *out)
{
    if (!ts_chain_weights(chain, inputs, inner->tokens, first, count, out))
        return false;
    keep_masked(inner->the_case, inner->scores, first, count, out);
    return true;
}

/* All rows of the case, head by head. */
static bool weigh_long(struct ts_long *it, const struct ts_chain *chain, double *out)
{
    const struct ts_case *the_case = it->the_case;
    for (size_t head = 0; head < chain->heads; head++)
        for (size_t row = 0; row < the_case->actor->rows; row++) {
            const uint64_t token = ts_case_row(the_case, row);
            const double *weights = token < it->tokens ? ts_long_weights(it, chain, true, head, (size_t)token) : NULL;
            if (!weights)
                return false;
            memcpy(out + row * the_case->actor->width + head * it->tokens, weights, it->tokens * sizeof *weights);
        }
    return true;
}

/* All rows of the candidate's. */
static bool predict_all(struct inner *inner, const struct ts_chain *chain)
{
    const size_t rows = inner->the_case->actor->rows;
    if (!inner->apart)
        return predict(inner, chain, &inner->candidate, 0, rows, inner->out);
    if (!weigh_long(&inner->it, chain, inner->out))
        return false;
    keep_masked(inner->the_case, inner->scores, 0, rows, inner->out);
    return true;
}

/* Share of the error that a chain explains where guesses are tried. */
static double score_of(void *from, const struct ts_chain *chain)
{
    struct inner *inner = from;
    if (inner->apart)
        return ts_trial_score(&inner->trial, chain);
    if (!(inner->base > 0) || !predict(inner, chain, &inner->candidate, inner->first, inner->count, inner->out))
        return 0;
    return 1 - ts_rows_cost(inner->the_case, inner->out, inner->first, inner->count) / inner->base;
}

/* Scores of all heads become what each is of a softmax over the heads. */
static void soften_heads(const struct ts_case *the_case, size_t heads, double *out)
{
    const size_t width = the_case->actor->width, tokens = width / heads;
    for (size_t at = 0; at < the_case->actor->rows * tokens; at++) {
        const size_t from = at / tokens * width + at % tokens;
        double sum = 0;
        for (size_t h = 0; h < heads; h++)
            sum += exp(out[from + h * tokens]);
        for (size_t h = 0; h < heads; h++)
            out[from + h * tokens] = the_case->expected[from + h * tokens] != 0 && isfinite(sum) && sum > 0
                                         ? exp(out[from + h * tokens]) / sum
                                         : 0;
    }
}

/* A chain for rows that are not at hand; whether it gives scores, or those of a softmax over the heads. */
struct given {
    struct ts_chain chain;
    bool scores, over_heads;
};

static bool predict_given(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct given *given = formula->numbers;
    struct ts_long it;
    bool good = ts_long_open(&it, the_case, given->chain.size) && weigh_long(&it, &given->chain, out);
    ts_long_close(&it);
    if (good)
        keep_masked(the_case, given->scores, 0, the_case->actor->rows, out);
    if (good && given->over_heads)
        soften_heads(the_case, given->chain.heads, out);
    return good;
}

/* The next proposal is what this chain gives. */
static void give(const struct inner *inner, const struct ts_chain *chain, bool over_heads)
{
    const struct given given = {*chain, inner->scores, over_heads};
    if (inner->apart)
        ts_formula_next(inner->the_case,
                        &(struct ts_formula){.predict = predict_given,
                                             .numbers = &given,
                                             .size = sizeof given,
                                             .work = (double)(chain->heads * chain->size) * (double)inner->tokens});
}

static void propose_it(const struct inner *inner, const char *id, const double *out, size_t freedom, const char *text)
{
    const struct ts_operand *q = &inner->operands.q, *k = &inner->operands.k;
    const char *queries = ts_case_name(inner->the_case, q->actor), *keys = ts_case_name(inner->the_case, k->actor);
    bool one = q->actor == k->actor;
    ts_propose(inner->the_case, id, out, freedom,
               "what is passed to the attention from these projections: positions, scale, mask, head counts",
               "from %s%s%s: %s", queries, one ? "" : " and ", one ? "" : keys, text);
}

/* Whether scores or probabilities can show it, and it is not told elsewhere. */
static bool shows(const struct inner *inner, const struct ts_chain_guess *guess)
{
    const struct ts_chain *chain = &guess->chain, *own = &inner->own;
    bool steps = chain->weighing != own->weighing || chain->over_queries || chain->shift != own->shift ||
                 chain->window != own->window || chain->first_sees_itself || chain->masked_late;
    return !guess->reversed && !chain->values && !(inner->apart && chain->over_queries) && !chain->heads_first &&
           !chain->tiled && !chain->tiled_values && !chain->splits[TS_ROLE_VALUE] &&
           chain->roles[TS_ROLE_VALUE] == TS_ROLE_VALUE && !chain->moved[TS_ROLE_VALUE] &&
           chain->copied == TS_NO_INDEX && chain->stale == TS_NO_INDEX &&
           !(inner->scores && (steps || chain->scale != own->scale));
}

/* Positions of the keys that are off from those of the queries, by more than one. */
static void propose_offsets(struct inner *inner)
{
    for (int from = -MOST_OFF; from <= MOST_OFF && inner->own.base > 0; from++) {
        struct ts_chain chain = inner->own;
        chain.k_from = from;
        if (abs(from) > 1 && score_of(inner, &chain) > WORTHWHILE && predict_all(inner, &chain)) {
            give(inner, &chain, false);
            propose_it(inner, "rotation", inner->out, 1,
                       ts_case_text(inner->the_case,
                                    "the positions of the candidate's keys are off by %+d from those of its queries",
                                    from));
        }
    }
}

static void propose_guesses(struct inner *inner)
{
    struct ts_case *the_case = inner->the_case;
    struct ts_chain_guess *guesses = calloc(TS_MOST_GUESSES, sizeof *guesses);
    size_t onset = 0, rows = the_case->actor->rows, count;
    double largest = 0;
    for (size_t row = 0; row < rows; row++)
        largest = fmax(largest, ts_rows_cost(the_case, the_case->expected, row, 1));
    while (onset + 1 < rows && ts_rows_cost(the_case, the_case->expected, onset, 1) < 1e-3 * largest)
        onset++;
    count = guesses ? ts_chain_guesses(&inner->own, inner->tokens, inner->apart ? TS_MIXES_HEADS : TS_MIXES_ALL,
                                       inner->operands.q.width, token_of(inner, onset), NULL, guesses)
                    : 0;
    for (size_t g = 0; g < count; g++) {
        struct ts_chain_guess *guess = &guesses[g];
        if (!shows(inner, guess))
            continue;
        guess->score = score_of(inner, &guess->chain);
        if (guess->chain.tiled_keys) /* of the values nothing is known here */
            snprintf(guess->text, sizeof guess->text, "the candidate tiles the key heads instead of repeating each");
    }
    ts_chain_refine(guesses, count, &inner->own, score_of, inner);
    for (size_t g = 0; g < count; g++)
        if (guesses[g].score > WORTHWHILE && predict_all(inner, &guesses[g].chain)) {
            give(inner, &guesses[g].chain, false);
            propose_it(inner, guesses[g].id, inner->out, guesses[g].refined, guesses[g].text);
        }
    free(guesses);
}

/* A softmax over the heads, and a mask that comes behind the softmax: both need other numbers than a chain gives. */
static void propose_other_steps(struct inner *inner)
{
    const struct ts_case *the_case = inner->the_case;
    struct ts_chain chain = inner->own;
    chain.weighing = TS_WEIGH_SCORES;
    if (!predict_all(inner, &chain))
        return;
    soften_heads(the_case, chain.heads, inner->out);
    give(inner, &chain, true);
    propose_it(inner, "softmax", inner->out, 0, "the candidate's softmax runs over the heads instead of the keys");
    chain = inner->own;
    chain.shift = (long)inner->tokens;
    chain.window = 0;
    if (inner->apart || !predict_all(inner, &chain)) /* it is among the guesses there */
        return;
    for (size_t i = 0; i < the_case->total; i++)
        inner->out[i] = the_case->expected[i] != 0 ? inner->out[i] : 0;
    propose_it(inner, "mask", inner->out, 0,
               "the candidate applies the mask after the softmax and does not normalize again");
}

/* A fused projection that is taken apart in another way. */
static void propose_splits(const struct inner *inner)
{
    double *out = inner->out;
    for (enum split split = 0; split < SPLITS && inner->fused; split++) {
        struct ts_chain_inputs inputs = {0};
        if (split != inner->split && load(inner, split, true, &inputs) &&
            predict(inner, &inner->own, &inputs, 0, inner->tokens, out))
            propose_it(inner, "permuted", out, 0,
                       ts_case_text(inner->the_case,
                                    "the candidate takes it apart as %s, the reference as %s, one behind the other",
                                    split_texts[split], split_texts[inner->split]));
        ts_chain_inputs_release(&inputs);
    }
}

/* Operands that fit the heads of the tensor. */
static bool find_operands(struct inner *inner)
{
    const struct ts_case *the_case = inner->the_case;
    const struct ts_actor *actor = the_case->actor;
    const struct ts_operands *operands = &inner->operands;
    double work;
    size_t size;
    if (actor->apart || actor->inner != actor->sequence || actor->rows < 4 || !actor->heads ||
        actor->heads * actor->inner != actor->width || !ts_operands_find(inner->the_case, &inner->operands) ||
        operands->q.width % actor->heads)
        return false;
    inner->tokens = actor->sequence;
    inner->apart = actor->rows != actor->sequence;
    size = operands->q.width / actor->heads;
    inner->fused = operands->q.actor == operands->k.actor && operands->q.actor == operands->v.actor &&
                   operands->q.actor->width == 3 * operands->q.width;
    work = (double)actor->rows * (double)inner->tokens * (double)operands->q.width;
    for (size_t row = 0; row < actor->rows; row++)
        if (token_of(inner, row) >= inner->tokens)
            return false;
    return (inner->apart || actor->whole) && size >= 4 && operands->k.width % size == 0 && operands->k.width >= size &&
           actor->heads % (operands->k.width / size) == 0 && work <= (inner->apart ? LONG_WORK : MOST_WORK);
}

static void propose_all(struct inner *inner)
{
    struct ts_case *the_case = inner->the_case;
    if (inner->apart) {
        ts_trial_open(&inner->trial, &inner->it, inner->own.heads,
                      inner->scores ? TS_TRIAL_SCORES : TS_TRIAL_PROBABILITIES);
    } else {
        size_t work = inner->tokens * inner->operands.q.width;
        ts_worst_rows(the_case, TRIAL_WORK / (work ? work : 1) * the_case->actor->width, &inner->first, &inner->count);
        inner->base = ts_rows_cost(the_case, the_case->expected, inner->first, inner->count);
    }
    propose_guesses(inner);
    propose_offsets(inner);
    if (!inner->scores)
        propose_other_steps(inner);
    if (!inner->apart)
        propose_splits(inner);
}

bool ts_propose_inner_attention(struct ts_case *the_case)
{
    struct inner inner = {.the_case = the_case};
    bool found = false, good;
    if (!find_operands(&inner) || !(inner.out = ts_case_scratch(the_case)))
        return false;
    if (inner.apart)
        found = ts_long_open(&inner.it, the_case, inner.operands.q.width / the_case->actor->heads) && find_own(&inner);
    for (enum split split = 0; split < (inner.fused ? SPLITS : 1) && !found && !inner.apart; split++) {
        inner.split = split;
        ts_chain_inputs_release(&inner.reference);
        found = load(&inner, split, false, &inner.reference) && find_own(&inner);
    }
    good = found && (inner.apart || load(&inner, inner.split, true, &inner.candidate));
    if (good)
        propose_all(&inner);
    ts_trial_close(&inner.trial);
    ts_long_close(&inner.it);
    ts_chain_inputs_release(&inner.reference);
    ts_chain_inputs_release(&inner.candidate);
    return found;
}
