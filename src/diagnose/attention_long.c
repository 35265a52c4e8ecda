/* Owns attention over long sequences in double: one head and a few tokens at a time, read from where they lie. */
#include "diagnose/attention_long.h"

#include <stdlib.h>
#include <string.h>

#define MOST_SIZE 512 /* numbers of a head */

bool ts_long_open(struct ts_long *it, struct ts_case *the_case, size_t largest_head)
{
    size_t tokens = (size_t)ts_scene_sequence(the_case->scene);
    *it = (struct ts_long){.the_case = the_case, .tokens = tokens, .first = ts_scene_first(the_case->scene)};
    it->held_key = TS_NO_INDEX;
    it->room = largest_head;
    it->read = malloc(tokens * largest_head * sizeof *it->read);
    it->keys = malloc(tokens * largest_head * sizeof *it->keys);
    it->values = malloc(tokens * largest_head * sizeof *it->values);
    it->turned = malloc(tokens * largest_head * sizeof *it->turned);
    it->scores = malloc(TS_LONG_TOGETHER * tokens * sizeof *it->scores);
    return it->read && it->keys && it->values && it->turned && it->scores;
}

void ts_long_close(struct ts_long *it)
{
    free(it->read);
    free(it->keys);
    free(it->values);
    free(it->turned);
    free(it->scores);
}

static bool read_numbers(struct ts_long *it, size_t pair, bool candidate, size_t token, size_t tokens, size_t column,
                         size_t count, double *out)
{
    struct ts_error ignored;
    if (ts_scene_read(it->the_case->scene, pair, candidate, it->first + token, tokens, column, count, it->read,
                      &ignored) != TS_OK)
        return false;
    for (size_t i = 0; i < tokens * count; i++)
        out[i] = (double)it->read[i];
    return true;
}

bool ts_long_captured(struct ts_long *it, const struct ts_chain *chain, bool candidate, size_t head, size_t token,
                      double *out)
{
    return read_numbers(it, it->the_case->actor->pair, candidate, token, 1, head * chain->size, chain->size, out);
}

static bool turns_alike(const struct ts_chain *a, const struct ts_chain *b)
{
    const struct ts_turning x = ts_chain_turning(a, TS_ROLE_KEY), y = ts_chain_turning(b, TS_ROLE_KEY);
    return x.base == y.base && x.interleaved == y.interleaved && x.group == y.group && a->k_turns == b->k_turns &&
           a->k_from == b->k_from && memcmp(a->roles, b->roles, sizeof a->roles) == 0 &&
           a->turned_before == b->turned_before;
}

static bool same_operand(const struct ts_operand *a, const struct ts_operand *b)
{
    return a->actor == b->actor && a->offset == b->offset;
}

/* So many numbers that stand one behind the other in an operand of all tokens, wherever its rows end. */
static bool read_flat(struct ts_long *it, const struct ts_operand *from, bool candidate, size_t at, size_t count,
                      double *out)
{
    for (size_t run; count; at += run, out += run, count -= run) {
        run = from->width - at % from->width;
        run = run < count ? run : count;
        if (run > it->tokens * it->room || !read_numbers(it, from->actor->pair, candidate, at / from->width, 1,
                                                         from->offset + at % from->width, run, out))
            return false;
    }
    return true;
}

/* A head of an operand of `heads` at some tokens. */
static bool read_head(struct ts_long *it, const struct ts_chain *chain, enum ts_role role, bool candidate, size_t heads,
                      size_t head, size_t token, size_t tokens, double *out)
{
    const struct ts_operand *from = ts_chain_operand(chain, role);
    size_t size = chain->size, pair = from->actor->pair;
    if (ts_chain_split(chain, role) == TS_SPLIT_UNTURNED)
        return read_flat(it, from, candidate, (head * it->tokens + token) * size, tokens * size, out);
    if (ts_chain_split(chain, role) == TS_SPLIT_HEADS)
        return read_numbers(it, pair, candidate, token, tokens, from->offset + head * size, size, out);
    for (size_t i = 0; i < size; i++) {
        struct ts_error ignored;
        if (ts_scene_read(it->the_case->scene, pair, candidate, it->first + token, tokens,
                          from->offset + i * heads + head, 1, it->read, &ignored) != TS_OK)
            return false;
        for (size_t t = 0; t < tokens; t++)
            out[t * size + i] = (double)it->read[t];
    }
    return true;
}

static bool split_alike(const struct ts_chain *a, const struct ts_chain *b)
{
    return memcmp(a->splits, b->splits, sizeof a->splits) == 0;
}

/* Keys and values that serve a head, the keys turned up to `count`. */
static bool hold(struct ts_long *it, const struct ts_chain *chain, bool candidate, size_t head, size_t count)
{
    const size_t served = ts_chain_served(chain, head), key_head = ts_chain_head(chain, TS_ROLE_KEY, served);
    const size_t value_head = ts_chain_head(chain, TS_ROLE_VALUE, served);
    const struct ts_operand *keys = ts_chain_operand(chain, TS_ROLE_KEY);
    const struct ts_operand *values = ts_chain_operand(chain, TS_ROLE_VALUE);
    bool turned_values = ts_chain_turns(chain, TS_ROLE_VALUE);
    if (it->held_key != key_head || it->held_value != value_head || it->held_candidate != candidate ||
        it->held.size != chain->size || !split_alike(&it->held, chain) ||
        !same_operand(keys, ts_chain_operand(&it->held, TS_ROLE_KEY)) ||
        !same_operand(values, ts_chain_operand(&it->held, TS_ROLE_VALUE)) ||
        turned_values != ts_chain_turns(&it->held, TS_ROLE_VALUE) ||
        (turned_values && !turns_alike(&it->held, chain))) {
        it->held_key = TS_NO_INDEX;
        if (!read_head(it, chain, TS_ROLE_KEY, candidate, chain->served, key_head, 0, it->tokens, it->keys) ||
            !read_head(it, chain, TS_ROLE_VALUE, candidate, chain->served, value_head, 0, it->tokens, it->values))
            return false;
        if (turned_values)
            ts_chain_turn(chain, TS_ROLE_KEY, chain->k_turns, chain->k_from, it->tokens, it->values);
        it->held_key = key_head;
        it->held_value = value_head;
        it->held_candidate = candidate;
        it->turned_count = 0;
    } else if (!turns_alike(&it->held, chain)) {
        it->turned_count = 0;
    }
    it->held = *chain;
    if (it->turned_count < count) {
        memcpy(it->turned + it->turned_count * chain->size, it->keys + it->turned_count * chain->size,
               (count - it->turned_count) * chain->size * sizeof *it->turned);
        if (ts_chain_turns(chain, TS_ROLE_KEY))
            ts_chain_turn(chain, TS_ROLE_KEY, chain->k_turns, (double)it->turned_count + chain->k_from,
                          count - it->turned_count, it->turned + it->turned_count * chain->size);
        it->turned_count = count;
    }
    return true;
}

static double dot(const double *x, const double *y, size_t count)
{
    double sums[8] = {0}; /* added to in turn, for the sake of the processor */
    size_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (size_t k = 0; k < 8; k++)
            sums[k] += x[i + k] * y[i + k];
    for (; i < count; i++)
        sums[0] += x[i] * y[i];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/* One query among those that are done together. */
struct query {
    double numbers[MOST_SIZE];
    size_t first, end; /* keys that it sees */
    bool blind;        /* none: a row that sees nothing is uniform where masks are added */
    double largest, sum, *scores;
};

static bool open_query(struct ts_long *it, const struct ts_chain *chain, bool candidate, size_t head, size_t token,
                       struct query *query)
{
    query->blind = !ts_chain_sees(chain, token, it->tokens, &query->first, &query->end);
    query->largest = -INFINITY;
    query->sum = 0;
    if (!read_head(it, chain, TS_ROLE_QUERY, candidate, chain->heads, head, token, 1, query->numbers))
        return false;
    if (ts_chain_turns(chain, TS_ROLE_QUERY))
        ts_chain_turn(chain, TS_ROLE_QUERY, chain->q_turns, (double)token + (token + 1 == it->tokens ? chain->late : 0),
                      1, query->numbers);
    return true;
}

/* Scores of some tokens in a row with the keys from `first` on, up to but not with `end`, that one of them sees. */
static bool score_queries(struct ts_long *it, const struct ts_chain *chain, bool candidate, size_t head, size_t token,
                          size_t count, struct query *queries, size_t *first, size_t *end)
{
    size_t size = chain->size, turned;
    *first = it->tokens;
    *end = 0;
    if (size > MOST_SIZE || size > it->room || count > TS_LONG_TOGETHER || token + count > it->tokens)
        return false;
    for (size_t j = 0; j < count; j++) {
        queries[j].scores = it->scores + j * it->tokens;
        if (!open_query(it, chain, candidate, head, token + j, &queries[j]))
            return false;
        *first = queries[j].first < *first ? queries[j].first : *first;
        *end = queries[j].end > *end ? queries[j].end : *end;
    }
    if (chain->masked_late) {
        *first = 0;
        *end = it->tokens;
    }
    if (chain->moved[TS_ROLE_KEY])
        turned = it->tokens;
    else
        turned = *end;
    if (!hold(it, chain, candidate, head, turned))
        return false;
    for (size_t key = *first; key < *end; key++) {
        const double *from = it->turned + ts_chain_place(chain, TS_ROLE_KEY, key, it->tokens) * size;
        for (size_t j = 0; j < count; j++) {
            struct query *query = &queries[j];
            double score;
            if (!chain->masked_late && (key < query->first || key >= query->end))
                continue;
            score = query->blind ? 0 : chain->scale * dot(query->numbers, from, size);
            score = chain->cap > 0 ? chain->cap * tanh(score / chain->cap) : score;
            query->scores[key] = score;
            query->largest = score > query->largest ? score : query->largest;
        }
    }
    return true;
}

static bool run_queries(struct ts_long *it, const struct ts_chain *chain, bool candidate, size_t head, size_t token,
                        size_t count, double *out, size_t stride)
{
    size_t size = chain->size, first, end;
    struct query queries[TS_LONG_TOGETHER];
    if (!score_queries(it, chain, candidate, head, token, count, queries, &first, &end))
        return false;
    for (size_t j = 0; j < count; j++)
        memset(out + j * stride, 0, size * sizeof *out);
    for (size_t key = first; key < end; key++) {
        const double *value = it->values + ts_chain_place(chain, TS_ROLE_VALUE, key, it->tokens) * size;
        for (size_t j = 0; j < count; j++) {
            struct query *query = &queries[j];
            const bool seen = key >= query->first && key < query->end;
            double weight;
            if (!seen && !chain->masked_late)
                continue;
            weight = ts_chain_weight(chain, query->scores[key], query->largest);
            query->sum += weight;
            for (size_t i = 0; i < size && seen && weight != 0; i++)
                out[j * stride + i] += weight * value[i];
        }
    }
    for (size_t j = 0; j < count && chain->weighing == TS_WEIGH_SOFTMAX; j++)
        for (size_t i = 0; i < size; i++)
            out[j * stride + i] /= queries[j].sum;
    return true;
}

const double *ts_long_weights(struct ts_long *it, const struct ts_chain *chain, bool candidate, size_t head,
                              size_t token)
{
    struct query query;
    size_t first, end;
    if (!score_queries(it, chain, candidate, head, token, 1, &query, &first, &end))
        return NULL;
    for (size_t key = first; key < end; key++) {
        query.scores[key] = ts_chain_weight(chain, query.scores[key], query.largest);
        query.sum += query.scores[key];
    }
    for (size_t key = query.first; key < query.end && chain->weighing == TS_WEIGH_SOFTMAX; key++)
        query.scores[key] /= query.sum;
    memset(query.scores, 0, query.first * sizeof *query.scores);
    memset(query.scores + query.end, 0, (it->tokens - query.end) * sizeof *query.scores);
    return query.scores;
}

bool ts_long_contexts(struct ts_long *it, const struct ts_chain *chain, bool candidate, size_t head, size_t token,
                      size_t count, double *out, size_t stride)
{
    if (!chain->heads_first)
        return run_queries(it, chain, candidate, head, token, count, out, stride);
    for (size_t j = 0; j < count; j++) { /* what stands there is another head of another token */
        size_t at = (token + j) * chain->heads + head;
        if (!run_queries(it, chain, candidate, at / it->tokens, at % it->tokens, 1, out + j * stride, 0))
            return false;
    }
    return true;
}

bool ts_long_context(struct ts_long *it, const struct ts_chain *chain, bool candidate, size_t head, size_t token,
                     double *out)
{
    return ts_long_contexts(it, chain, candidate, head, token, 1, out, 0);
}

bool ts_long_reaches(const struct ts_chain *chain)
{
    return !chain->over_queries;
}

/* The context of all rows of the case. */
static bool run_chain(struct ts_long *it, const struct ts_chain *chain, bool candidate, double *out)
{
    const struct ts_case *the_case = it->the_case;
    size_t rows = the_case->actor->rows, width = chain->heads * chain->size;
    for (size_t at = 0; at < rows * chain->heads && chain->heads_first; at++) { /* those of a row share their keys */
        size_t row = at / chain->heads, head = at % chain->heads;
        if (!ts_long_context(it, chain, candidate, head, (size_t)ts_case_row(the_case, row), out + at * chain->size))
            return false;
    }
    if (chain->heads_first)
        return true;
    /* heads that share keys one behind the other, so that these are read once */
    for (size_t served = 0; served < ts_chain_serving(chain); served++)
        for (size_t head = 0; head < chain->heads; head++) {
            if (ts_chain_served(chain, head) != served)
                continue;
            for (size_t row = 0, run; row < rows; row += run) {
                uint64_t token = ts_case_row(the_case, row);
                for (run = 1;
                     run < TS_LONG_TOGETHER && row + run < rows && ts_case_row(the_case, row + run) == token + run;
                     run++) {
                }
                if (!ts_long_contexts(it, chain, candidate, head, (size_t)token, run,
                                      out + row * width + head * chain->size, width))
                    return false;
            }
        }
    return true;
}

bool ts_long_rows(struct ts_case *the_case, const struct ts_chain *chain, bool candidate, double *out)
{
    struct ts_long it;
    bool good = ts_long_open(&it, the_case, chain->size) && run_chain(&it, chain, candidate, out);
    ts_long_close(&it);
    return good;
}
