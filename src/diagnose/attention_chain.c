/* Owns the arithmetic: rotary, scores, mask, softmax and context, each as it should be or with one thing wrong. */
#include "diagnose/attention_chain.h"

#include <stdlib.h>
#include <string.h>

double *ts_operand_load(const struct ts_operand *operand, bool candidate, size_t tokens)
{
    const float *from = candidate ? operand->actor->b : operand->actor->a;
    double *out = malloc((tokens * operand->width + 1) * sizeof *out);
    for (size_t t = 0; t < tokens && out; t++)
        for (size_t i = 0; i < operand->width; i++)
            out[t * operand->width + i] = (double)from[t * operand->actor->width + operand->offset + i];
    return out;
}

void ts_chain_inputs_release(struct ts_chain_inputs *inputs)
{
    free(inputs->q);
    free(inputs->k);
    free(inputs->v);
    *inputs = (struct ts_chain_inputs){0};
}

bool ts_chain_load(struct ts_chain_inputs *inputs, const struct ts_chain *chain, bool candidate, size_t tokens)
{
    ts_chain_inputs_release(inputs);
    inputs->q = ts_operand_load(&chain->q, candidate, tokens);
    inputs->k = ts_operand_load(&chain->k, candidate, tokens);
    inputs->v = ts_operand_load(&chain->v, candidate, tokens);
    return inputs->q && inputs->k && inputs->v;
}

const struct ts_operand *ts_chain_operand(const struct ts_chain *chain, enum ts_role served_as)
{
    const struct ts_operand *const operands[] = {&chain->q, &chain->k, &chain->v};
    return operands[chain->roles[served_as]];
}

enum ts_split ts_chain_split(const struct ts_chain *chain, enum ts_role served_as)
{
    return chain->splits[chain->roles[served_as]];
}

bool ts_chain_mixes_rows(const struct ts_chain *chain)
{
    bool mixed = chain->over_queries || chain->heads_first;
    for (int i = 0; i < 3; i++)
        mixed = mixed || chain->splits[i] == TS_SPLIT_UNTURNED;
    return mixed;
}

bool ts_chain_turns(const struct ts_chain *chain, enum ts_role served_as)
{
    return chain->base > 0 && (chain->turned_before ? chain->roles[served_as] : served_as) != TS_ROLE_VALUE;
}

size_t ts_chain_place(const struct ts_chain *chain, enum ts_role served_as, size_t token, size_t tokens)
{
    size_t by = (size_t)abs(chain->moved[served_as]) % tokens;
    if (token == chain->stale)
        return chain->stale_from;
    return (chain->moved[served_as] < 0 ? token + by : token + tokens - by) % tokens;
}

struct ts_turning ts_chain_turning(const struct ts_chain *chain, enum ts_role served_as)
{
    if (served_as == TS_ROLE_QUERY ? chain->queries_apart : served_as == TS_ROLE_KEY && chain->keys_apart)
        return chain->apart;
    return (struct ts_turning){chain->base, chain->interleaved, chain->group};
}

/* The angle grows by the same step from row to row. */
void ts_chain_turn(const struct ts_chain *chain, enum ts_role served_as, double times, double position, size_t count,
                   double *rows)
{
    const struct ts_turning turning = ts_chain_turning(chain, served_as);
    size_t pairs = turning.group / 2;
    for (size_t i = 0; i < pairs && turning.base > 0; i++) {
        double step = times * pow(turning.base, -(double)i / (double)pairs), c = 1, s = 0;
        double step_c = count > 1 ? cos(step) : 1, step_s = count > 1 ? sin(step) : 0;
        size_t x = turning.interleaved ? 2 * i : i, y = turning.interleaved ? x + 1 : x + pairs;
        for (size_t t = 0; t < count; t++) {
            double *head = rows + t * chain->size, old = head[x], next;
            if (t % 256 == 0) { /* now and then from the start, so that nothing piles up */
                c = cos(step * (position + (double)t));
                s = sin(step * (position + (double)t));
            }
            head[x] = old * c - head[y] * s;
            head[y] = old * s + head[y] * c;
            next = c * step_c - s * step_s;
            s = s * step_c + c * step_s;
            c = next;
        }
    }
}

bool ts_chain_sees(const struct ts_chain *chain, size_t token, size_t tokens, size_t *first, size_t *end)
{
    long own = (long)token, last = own + chain->shift < (long)tokens ? own + chain->shift : (long)tokens - 1;
    long from = chain->window > 0 && own - chain->window + 1 > 0 ? own - chain->window + 1 : 0;
    if (chain->first_sees_itself && token == 0)
        last = 0;
    *first = last < from ? 0 : (size_t)from;
    *end = last < from ? tokens : (size_t)last + 1;
    return last >= from;
}

void ts_chain_open(struct ts_chain *chain, size_t tokens)
{
    chain->shift = (long)tokens;
    chain->window = 0;
    chain->first_sees_itself = false;
}

size_t ts_chain_serving(const struct ts_chain *chain)
{
    return chain->tiled_keys || chain->tiled_values ? chain->heads : chain->served;
}

size_t ts_chain_served(const struct ts_chain *chain, size_t head)
{
    if (chain->tiled_keys || chain->tiled_values)
        return head;
    return chain->tiled ? head % chain->served : head / (chain->heads / chain->served);
}

size_t ts_chain_head(const struct ts_chain *chain, enum ts_role served_as, size_t serving)
{
    size_t head = serving;
    if (chain->tiled_keys || chain->tiled_values)
        head = (served_as == TS_ROLE_KEY ? chain->tiled_keys : chain->tiled_values)
                   ? serving % chain->served
                   : serving / (chain->heads / chain->served);
    if (chain->copies == (served_as == TS_ROLE_KEY ? TS_COPY_VALUES : TS_COPY_KEYS))
        return head;
    return head == chain->copied ? chain->copied_from : head;
}

double ts_chain_weight(const struct ts_chain *chain, double score, double largest)
{
    switch (chain->weighing) {
    case TS_WEIGH_EXPONENTS:
        return exp(score);
    case TS_WEIGH_SCORES:
        return isfinite(score) ? score : 0;
    default:
        /* a row that sees nothing is uniform where masks are added */
        return largest == -(double)INFINITY ? 1 : exp(score - largest);
    }
}

static const double *input_of(const struct ts_chain *chain, const struct ts_chain_inputs *in, enum ts_role served_as)
{
    const double *const inputs[] = {in->q, in->k, chain->values ? chain->values : in->v};
    return inputs[chain->roles[served_as]];
}

/* Cosines and sines per position and pair. */
static double *turns_of(const struct ts_turning *turning, size_t tokens, double from, double late, double times)
{
    size_t pairs = turning->group / 2;
    double *table = malloc((tokens * pairs * 2 + 1) * sizeof *table);
    for (size_t i = 0; i < pairs && table && turning->base > 0; i++) {
        double step = times * pow(turning->base, -(double)i / (double)pairs);
        for (size_t t = 0; t < tokens; t++) {
            double angle = step * ((double)t + from + (t + 1 == tokens ? late : 0));
            table[2 * (t * pairs + i)] = cos(angle);
            table[2 * (t * pairs + i) + 1] = sin(angle);
        }
    }
    return table;
}

static void turn(const struct ts_turning *turning, size_t row, double *head, const double *tables)
{
    size_t pairs = turning->group / 2;
    const double *table = tables + 2 * row * pairs;
    for (size_t i = 0; i < pairs && turning->base > 0; i++) {
        double *x = head + (turning->interleaved ? 2 * i : i), *y = turning->interleaved ? x + 1 : x + pairs, old = *x;
        *x = old * table[2 * i] - *y * table[2 * i + 1];
        *y = old * table[2 * i + 1] + *y * table[2 * i];
    }
}

static bool visible(const struct ts_chain *chain, size_t row, size_t key)
{
    long distance = (long)row - (long)key;
    if (chain->first_sees_itself && row == 0)
        return key == 0;
    return distance >= -chain->shift && (chain->window <= 0 || distance < chain->window);
}

/* Scores of one query head: out has `tokens` numbers, -inf where masked. */
static void score_row(const struct ts_chain *chain, const double *query, const double *keys, size_t key_width,
                      size_t served, size_t row, size_t tokens, double *out)
{
    for (size_t key = 0; key < tokens; key++) {
        const double *k = keys + ts_chain_place(chain, TS_ROLE_KEY, key, tokens) * key_width + served * chain->size;
        double sum = 0;
        if (!visible(chain, row, key)) {
            out[key] = -(double)INFINITY;
            continue;
        }
        for (size_t i = 0; i < chain->size; i++)
            sum += query[i] * k[i];
        sum *= chain->scale;
        out[key] = chain->cap > 0 ? chain->cap * tanh(sum / chain->cap) : sum;
    }
}

static void soften(const struct ts_chain *chain, double *scores, size_t count, size_t stride)
{
    double largest = -INFINITY, sum = 0;
    for (size_t i = 0; i < count; i++)
        largest = scores[i * stride] > largest ? scores[i * stride] : largest;
    for (size_t i = 0; i < count; i++) {
        scores[i * stride] = ts_chain_weight(chain, scores[i * stride], largest);
        sum += scores[i * stride];
    }
    for (size_t i = 0; i < count && chain->weighing == TS_WEIGH_SOFTMAX; i++)
        scores[i * stride] /= sum;
}

/* What serves as that, [tokens, heads, size], however it is split. */
static void split_heads(const struct ts_chain *chain, const struct ts_chain_inputs *in, enum ts_role served_as,
                        size_t tokens, size_t heads, double *out)
{
    const double *from = input_of(chain, in, served_as);
    enum ts_split split = ts_chain_split(chain, served_as);
    size_t size = chain->size;
    if (split == TS_SPLIT_HEADS) {
        memcpy(out, from, tokens * heads * size * sizeof *out);
        return;
    }
    for (size_t at = 0; at < tokens * heads * size; at++)
        out[at] = from[ts_split_place(split, tokens, heads, size, at / size / heads, at / size % heads, at % size)];
}

struct workspace {
    double *keys, *values, *query, *scores, *q_turns, *k_turns;
};

static void workspace_release(struct workspace *space)
{
    free(space->keys);
    free(space->values);
    free(space->query);
    free(space->scores);
    free(space->q_turns);
    free(space->k_turns);
}

static bool workspace_fill(struct workspace *space, const struct ts_chain *chain, const struct ts_chain_inputs *in,
                           size_t tokens)
{
    const struct ts_turning queries = ts_chain_turning(chain, TS_ROLE_QUERY);
    const struct ts_turning keys = ts_chain_turning(chain, TS_ROLE_KEY);
    size_t width = chain->served * chain->size;
    *space = (struct workspace){.keys = malloc(tokens * width * sizeof(double)),
                                .values = malloc(tokens * width * sizeof(double)),
                                .query = malloc(chain->size * sizeof(double)),
                                .scores = malloc(tokens * (chain->over_queries ? tokens : 1) * sizeof(double)),
                                .q_turns = turns_of(&queries, tokens, 0, chain->late, chain->q_turns),
                                .k_turns = turns_of(&keys, tokens, chain->k_from, 0, chain->k_turns)};
    if (!space->keys || !space->values || !space->query || !space->scores || !space->q_turns || !space->k_turns) {
        workspace_release(space);
        return false;
    }
    split_heads(chain, in, TS_ROLE_KEY, tokens, chain->served, space->keys);
    split_heads(chain, in, TS_ROLE_VALUE, tokens, chain->served, space->values);
    for (size_t t = 0; t < tokens; t++)
        for (size_t h = 0; h < chain->served; h++) {
            if (ts_chain_turns(chain, TS_ROLE_KEY))
                turn(&keys, t, space->keys + t * width + h * chain->size, space->k_turns);
            if (ts_chain_turns(chain, TS_ROLE_VALUE))
                turn(&keys, t, space->values + t * width + h * chain->size, space->k_turns);
        }
    return true;
}

static void add_values(const struct ts_chain *chain, const double *values, size_t served, size_t key, size_t tokens,
                       double weight, double *to)
{
    size_t place = ts_chain_place(chain, TS_ROLE_VALUE, key, tokens);
    const double *from = values + (place * chain->served + served) * chain->size;
    for (size_t i = 0; i < chain->size && weight != 0; i++)
        to[i] += weight * from[i];
}

/* Memory written as [heads, tokens, size], taken for [tokens, heads, size]. */
static bool mix_up_heads(const struct ts_chain *chain, size_t tokens, double *out)
{
    size_t total = tokens * chain->heads * chain->size;
    double *copy = malloc(total * sizeof *copy);
    if (!copy)
        return false;
    memcpy(copy, out, total * sizeof *copy);
    for (size_t at = 0; at < total; at++) {
        size_t i = at % chain->size, t = at / chain->size % tokens, head = at / chain->size / tokens;
        out[at] = copy[(t * chain->heads + head) * chain->size + i];
    }
    free(copy);
    return true;
}

/* What a query head makes of the keys that it sees: the sum of their values, or the weights themselves. */
static void take(const struct ts_chain *chain, const struct workspace *space, size_t valued, size_t key, size_t tokens,
                 double weight, bool bare, double *to)
{
    if (bare)
        to[key] = weight;
    else
        add_values(chain, space->values, valued, key, tokens, weight, to);
}

static bool run(const struct ts_chain *chain, const struct ts_chain_inputs *in, size_t tokens, size_t first,
                size_t count, bool bare, double *out)
{
    const struct ts_turning turning = ts_chain_turning(chain, TS_ROLE_QUERY);
    enum ts_split split = ts_chain_split(chain, TS_ROLE_QUERY);
    size_t made = bare ? tokens : chain->size; /* numbers of a head */
    const double *queries = input_of(chain, in, TS_ROLE_QUERY);
    struct ts_chain open = *chain;
    struct workspace space;
    bool good = true;
    ts_chain_open(&open, tokens);
    if (!workspace_fill(&space, chain, in, tokens))
        return false;
    if (chain->over_queries || chain->heads_first) {
        first = 0;
        count = tokens;
    }
    for (size_t head = 0; head < chain->heads; head++) {
        size_t served = ts_chain_head(chain, TS_ROLE_KEY, ts_chain_served(chain, head));
        size_t valued = ts_chain_head(chain, TS_ROLE_VALUE, ts_chain_served(chain, head));
        for (size_t row = first; row < first + count; row++) {
            double *line = chain->over_queries ? space.scores + row * tokens : space.scores;
            double *to = out + (row * chain->heads + head) * made;
            for (size_t i = 0; i < chain->size; i++)
                space.query[i] = queries[ts_split_place(split, tokens, chain->heads, chain->size, row, head, i)];
            if (ts_chain_turns(chain, TS_ROLE_QUERY))
                turn(&turning, row, space.query, space.q_turns);
            score_row(chain->masked_late ? &open : chain, space.query, space.keys, chain->served * chain->size, served,
                      row, tokens, line);
            memset(to, 0, made * sizeof *to);
            if (chain->over_queries)
                continue;
            soften(chain, line, tokens, 1);
            for (size_t key = 0; key < tokens; key++)
                if (!chain->masked_late || visible(chain, row, key))
                    take(chain, &space, valued, key, tokens, line[key], bare, to);
        }
        for (size_t key = 0; key < tokens && chain->over_queries; key++) {
            soften(chain, space.scores + key, tokens, tokens);
            for (size_t row = 0; row < tokens; row++)
                if (visible(chain, row, key))
                    take(chain, &space, valued, key, tokens, space.scores[row * tokens + key], bare,
                         out + (row * chain->heads + head) * made);
        }
    }
    if (chain->heads_first && !bare)
        good = mix_up_heads(chain, tokens, out);
    workspace_release(&space);
    return good;
}

bool ts_chain_run(const struct ts_chain *chain, const struct ts_chain_inputs *in, size_t tokens, size_t first,
                  size_t count, double *out)
{
    return run(chain, in, tokens, first, count, false, out);
}

bool ts_chain_weights(const struct ts_chain *chain, const struct ts_chain_inputs *in, size_t tokens, size_t first,
                      size_t count, double *out)
{
    return run(chain, in, tokens, first, count, true, out);
}

/* A chain with nothing wrong. */
struct ts_chain ts_chain_plain(size_t heads, size_t served, size_t size)
{
    return (struct ts_chain){.heads = heads,
                             .served = served,
                             .size = size,
                             .roles = {TS_ROLE_QUERY, TS_ROLE_KEY, TS_ROLE_VALUE},
                             .scale = 1 / sqrt((double)size),
                             .q_turns = 1,
                             .k_turns = 1,
                             .group = size,
                             .copied = TS_NO_INDEX,
                             .stale = TS_NO_INDEX};
}
