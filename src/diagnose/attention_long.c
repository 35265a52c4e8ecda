/* Owns attention over long sequences in double: one head and a few tokens at a time, read from where they lie. */
#include "diagnose/attention_long.h"

#include <stdlib.h>
#include <string.h>

#define MOST_SIZE 512               /* numbers of a head */
#define READ_ROOM ((size_t)1 << 18) /* numbers that are taken apart at a time: they stay in the cache meanwhile */

bool ts_long_open(struct ts_long *it, struct ts_case *the_case, size_t largest_head)
{
    size_t tokens = (size_t)ts_scene_sequence(the_case->scene);
    *it = (struct ts_long){.the_case = the_case, .tokens = tokens, .first = ts_scene_first(the_case->scene)};
    it->room = largest_head;
    it->read = malloc(READ_ROOM * sizeof *it->read);
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
    it->read = it->keys = it->values = NULL;
    it->turned = it->scores = NULL;
}

static bool read_numbers(const struct ts_long *it, size_t pair, bool candidate, size_t token, size_t tokens,
                         size_t column, size_t count, float *out)
{
    struct ts_error ignored;
    return ts_scene_read(it->the_case->scene, pair, candidate, it->first + token, tokens, column, count, out,
                         &ignored) == TS_OK;
}

/* Each `apart` behind the one before; those of a token stand one behind the other then. */
static bool read_apart(struct ts_long *it, size_t pair, bool candidate, size_t token, size_t tokens, size_t column,
                       size_t count, size_t apart, float *out)
{
    const size_t width = (count - 1) * apart + 1;
    if (width > READ_ROOM)
        return false;
    for (size_t now; tokens; token += now, tokens -= now, out += now * count) {
        now = READ_ROOM / width < tokens ? READ_ROOM / width : tokens;
        if (!read_numbers(it, pair, candidate, token, now, column, width, it->read))
            return false;
        for (size_t t = 0; t < now; t++)
            for (size_t i = 0; i < count; i++)
                out[t * count + i] = it->read[t * width + i * apart];
    }
    return true;
}

static void widen(const float *from, size_t count, double *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (double)from[i];
}

bool ts_long_captured(struct ts_long *it, const struct ts_chain *chain, bool candidate, size_t head, size_t token,
                      double *out)
{
    float numbers[MOST_SIZE];
    if (chain->size > MOST_SIZE ||
        !read_numbers(it, it->the_case->actor->pair, candidate, token, 1, head * chain->size, chain->size, numbers))
        return false;
    widen(numbers, chain->size, out);
    return true;
}

static bool turns_alike(const struct ts_chain *a, const struct ts_chain *b)
{
    const struct ts_turning x = ts_chain_turning(a, TS_ROLE_KEY), y = ts_chain_turning(b, TS_ROLE_KEY);
    return x.base == y.base && x.interleaved == y.interleaved && x.group == y.group && a->k_turns == b->k_turns &&
           a->k_from == b->k_from && memcmp(a->roles, b->roles, sizeof a->roles) == 0 &&
           a->turned_before == b->turned_before;
}

/* So many numbers that stand one behind the other in an operand of all tokens, wherever its rows end. */
static bool read_flat(const struct ts_long *it, const struct ts_operand *from, bool candidate, size_t at, size_t count,
                      float *out)
{
    for (size_t run; count; at += run, out += run, count -= run) {
        run = from->width - at % from->width;
        run = run < count ? run : count;
        if (!read_numbers(it, from->actor->pair, candidate, at / from->width, 1, from->offset + at % from->width, run,
                          out))
            return false;
    }
    return true;
}

static struct ts_long_head head_of(const struct ts_chain *chain, enum ts_role role, bool candidate, size_t heads,
                                   size_t head)
{
    return (struct ts_long_head){.operand = *ts_chain_operand(chain, role),
                                 .split = ts_chain_split(chain, role),
                                 .heads = heads,
                                 .head = head,
                                 .size = chain->size,
                                 .candidate = candidate};
}

static bool same_head(const struct ts_long_head *a, const struct ts_long_head *b)
{
    return a->operand.actor == b->operand.actor && a->operand.offset == b->operand.offset && a->split == b->split &&
           a->heads == b->heads && a->head == b->head && a->size == b->size && a->candidate == b->candidate;
}

static bool read_head(struct ts_long *it, const struct ts_long_head *head, size_t token, size_t tokens, float *out)
{
    const struct ts_operand *from = &head->operand;
    const size_t pair = from->actor->pair, size = head->size;
    if (head->split == TS_SPLIT_UNTURNED)
        return read_flat(it, from, head->candidate, (head->head * it->tokens + token) * size, tokens * size, out);
    if (head->split == TS_SPLIT_HEADS)
        return read_numbers(it, pair, head->candidate, token, tokens, from->offset + head->head * size, size, out);
    return read_apart(it, pair, head->candidate, token, tokens, from->offset + head->head, size, head->heads, out);
}

/* Reads all tokens of a head where another one is held. */
static bool hold_head(struct ts_long *it, struct ts_long_head *held, const struct ts_long_head *head, float *numbers)
{
    if (same_head(held, head))
        return true;
    *held = *head;
    if (read_head(it, head, 0, it->tokens, numbers))
        return true;
    *held = (struct ts_long_head){0};
    return false;
}

/* Keys and values that serve a head, the keys turned up to `count`. */
static bool hold(struct ts_long *it, const struct ts_chain *chain, bool candidate, size_t head, size_t count)
{
    const size_t served = ts_chain_served(chain, head);
    const struct ts_long_head key =
        head_of(chain, TS_ROLE_KEY, candidate, chain->served, ts_chain_head(chain, TS_ROLE_KEY, served));
    const struct ts_long_head value =
        head_of(chain, TS_ROLE_VALUE, candidate, chain->served, ts_chain_head(chain, TS_ROLE_VALUE, served));
    const bool turned_values = ts_chain_turns(chain, TS_ROLE_VALUE), alike = turns_alike(&it->held, chain);
    if (!same_head(&it->key, &key) || !alike)
        it->turned_count = 0;
    if (it->turned_values != turned_values || (turned_values && !alike))
        it->value = (struct ts_long_head){0};
    it->held = *chain;
    if (!hold_head(it, &it->key, &key, it->keys))
        return false;
    if (!same_head(&it->value, &value)) {
        if (!hold_head(it, &it->value, &value, it->values))
            return false;
        if (turned_values) { /* where the keys will be */
            widen(it->values, it->tokens * chain->size, it->turned);
            ts_chain_turn(chain, TS_ROLE_KEY, chain->k_turns, chain->k_from, it->tokens, it->turned);
            for (size_t i = 0; i < it->tokens * chain->size; i++)
                it->values[i] = (float)it->turned[i];
            it->turned_count = 0;
        }
        it->turned_values = turned_values;
    }
    if (it->turned_count < count) {
        widen(it->keys + it->turned_count * chain->size, (count - it->turned_count) * chain->size,
              it->turned + it->turned_count * chain->size);
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
    const struct ts_long_head one = head_of(chain, TS_ROLE_QUERY, candidate, chain->heads, head);
    float numbers[MOST_SIZE];
    query->blind = !ts_chain_sees(chain, token, it->tokens, &query->first, &query->end);
    query->largest = -INFINITY;
    query->sum = 0;
    if (!read_head(it, &one, token, 1, numbers))
        return false;
    widen(numbers, chain->size, query->numbers);
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
        const float *value = it->values + ts_chain_place(chain, TS_ROLE_VALUE, key, it->tokens) * size;
        for (size_t j = 0; j < count; j++) {
            struct query *query = &queries[j];
            const bool seen = key >= query->first && key < query->end;
            double weight;
            if (!seen && !chain->masked_late)
                continue;
            weight = ts_chain_weight(chain, query->scores[key], query->largest);
            query->sum += weight;
            for (size_t i = 0; i < size && seen && weight != 0; i++)
                out[j * stride + i] += weight * (double)value[i];
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
