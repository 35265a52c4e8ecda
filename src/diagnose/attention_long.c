/* Owns attention over long sequences: one head and one token at a time, read from where they lie. */
#include "diagnose/attention_long.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/attention_tables.h"
#include "diagnose/variant.h"

#define MOST_SIZE   512 /* numbers of a head */
#define TRIAL_ROWS  6
#define TRIAL_HEADS 2
#define BEST        3   /* guesses that are worked out in full */
#define WORTHWHILE  0.5 /* share of the error that a trial must explain */
#define MOST_WORK   6e9 /* multiplications of one prediction: some seconds */

bool ts_long_open(struct ts_long *it, struct ts_case *the_case, size_t largest_head)
{
    size_t tokens = (size_t)ts_scene_sequence(the_case->scene);
    *it = (struct ts_long){.the_case = the_case, .tokens = tokens, .first = ts_scene_first(the_case->scene)};
    it->held_head = TS_NO_INDEX;
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

/* One head turned to a position. */
static void turn(const struct ts_chain *chain, double position, double *head)
{
    size_t pairs = chain->group / 2;
    for (size_t i = 0; i < pairs && chain->base > 0; i++) {
        double angle = position * pow(chain->base, -(double)i / (double)pairs), c = cos(angle), s = sin(angle);
        double *x = head + (chain->interleaved ? 2 * i : i), *y = chain->interleaved ? x + 1 : x + pairs, old = *x;
        *x = old * c - *y * s;
        *y = old * s + *y * c;
    }
}

/* Turns rows [from, to) as keys are. The angle grows by the same step from token to token. */
static void turn_rows(const struct ts_chain *chain, size_t from, size_t to, double *rows)
{
    size_t pairs = chain->group / 2, size = chain->size;
    for (size_t i = 0; i < pairs; i++) {
        double step = chain->k_turns * pow(chain->base, -(double)i / (double)pairs), c = 1, s = 0;
        double step_c = cos(step), step_s = sin(step);
        size_t x = chain->interleaved ? 2 * i : i, y = chain->interleaved ? x + 1 : x + pairs;
        for (size_t t = from; t < to; t++) {
            double *key = rows + t * size, old = key[x], next = c * step_c - s * step_s;
            if (t == from || t % 256 == 0) { /* now and then from the start, so that nothing piles up */
                c = cos(step * ((double)t + chain->k_from));
                s = sin(step * ((double)t + chain->k_from));
                next = c * step_c - s * step_s;
            }
            key[x] = old * c - key[y] * s;
            key[y] = old * s + key[y] * c;
            s = s * step_c + c * step_s;
            c = next;
        }
    }
}

static bool turns_alike(const struct ts_chain *a, const struct ts_chain *b)
{
    return a->base == b->base && a->interleaved == b->interleaved && a->group == b->group && a->k_turns == b->k_turns &&
           a->k_from == b->k_from && memcmp(a->roles, b->roles, sizeof a->roles) == 0 &&
           a->turned_before == b->turned_before;
}

static bool same_operand(const struct ts_operand *a, const struct ts_operand *b)
{
    return a->actor == b->actor && a->offset == b->offset;
}

/* Keys and values of a head, the keys turned up to `count`. */
static bool hold(struct ts_long *it, const struct ts_chain *chain, bool candidate, size_t served, size_t count)
{
    const struct ts_operand *keys = ts_chain_operand(chain, TS_ROLE_KEY);
    const struct ts_operand *values = ts_chain_operand(chain, TS_ROLE_VALUE);
    bool turned_values = ts_chain_turns(chain, TS_ROLE_VALUE);
    if (it->held_head != served || it->held_candidate != candidate || it->held.size != chain->size ||
        !same_operand(keys, ts_chain_operand(&it->held, TS_ROLE_KEY)) ||
        !same_operand(values, ts_chain_operand(&it->held, TS_ROLE_VALUE)) ||
        turned_values != ts_chain_turns(&it->held, TS_ROLE_VALUE) ||
        (turned_values && !turns_alike(&it->held, chain))) {
        size_t k = keys->offset + served * chain->size, v = values->offset + served * chain->size;
        it->held_head = TS_NO_INDEX;
        if (!read_numbers(it, keys->actor->pair, candidate, 0, it->tokens, k, chain->size, it->keys) ||
            !read_numbers(it, values->actor->pair, candidate, 0, it->tokens, v, chain->size, it->values))
            return false;
        if (turned_values)
            turn_rows(chain, 0, it->tokens, it->values);
        it->held_head = served;
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
            turn_rows(chain, it->turned_count, count, it->turned);
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

/* The query of one head at one token. */
static bool read_query(struct ts_long *it, const struct ts_chain *chain, bool candidate, size_t head, size_t token,
                       double *query)
{
    const struct ts_operand *from = ts_chain_operand(chain, TS_ROLE_QUERY);
    size_t size = chain->size, pair = from->actor->pair;
    if (!chain->numbers_first)
        return read_numbers(it, pair, candidate, token, 1, from->offset + head * size, size, query);
    for (size_t i = 0; i < size; i++)
        if (!read_numbers(it, pair, candidate, token, 1, from->offset + i * chain->heads + head, 1, query + i))
            return false;
    return true;
}

/* One query among those that are done together. */
struct query {
    double numbers[MOST_SIZE];
    long first, last; /* keys that it sees */
    bool blind;       /* none: a row that sees nothing is uniform where masks are added */
    double largest, sum, *scores, *out;
};

static bool open_query(struct ts_long *it, const struct ts_chain *chain, bool candidate, size_t head, size_t token,
                       struct query *query)
{
    long tokens = (long)it->tokens, own = (long)token;
    query->last = own + chain->shift < tokens ? own + chain->shift : tokens - 1;
    query->first = chain->window > 0 && own - chain->window + 1 > 0 ? own - chain->window + 1 : 0;
    if (chain->first_sees_itself && token == 0)
        query->last = 0;
    query->blind = query->last < query->first;
    if (query->blind) {
        query->first = 0;
        query->last = tokens - 1;
    }
    query->largest = -INFINITY;
    query->sum = 0;
    if (!read_query(it, chain, candidate, head, token, query->numbers))
        return false;
    if (ts_chain_turns(chain, TS_ROLE_QUERY))
        turn(chain, chain->q_turns * ((double)token + (token + 1 == it->tokens ? chain->late : 0)), query->numbers);
    memset(query->out, 0, chain->size * sizeof *query->out);
    return true;
}

bool ts_long_contexts(struct ts_long *it, const struct ts_chain *chain, bool candidate, size_t head, size_t token,
                      size_t count, double *out, size_t stride)
{
    size_t repeat = chain->heads / chain->served, size = chain->size;
    size_t served = chain->tiled ? head % chain->served : head / repeat;
    size_t turned;
    struct query queries[TS_LONG_TOGETHER];
    long first = (long)it->tokens, last = -1;
    served = served == chain->copied ? chain->copied_from : served;
    if (size > MOST_SIZE || size > it->room || count > TS_LONG_TOGETHER || token + count > it->tokens)
        return false;
    for (size_t j = 0; j < count; j++) {
        queries[j].scores = it->scores + j * it->tokens;
        queries[j].out = out + j * stride;
        if (!open_query(it, chain, candidate, head, token + j, &queries[j]))
            return false;
        first = queries[j].first < first ? queries[j].first : first;
        last = queries[j].last > last ? queries[j].last : last;
    }
    if (chain->moved[TS_ROLE_KEY])
        turned = it->tokens;
    else
        turned = (size_t)last + 1;
    if (!hold(it, chain, candidate, served, turned))
        return false;
    for (long key = first; key <= last; key++) {
        const double *from = it->turned + ts_chain_place(chain, TS_ROLE_KEY, (size_t)key, it->tokens) * size;
        for (size_t j = 0; j < count; j++) {
            struct query *query = &queries[j];
            double score;
            if (key < query->first || key > query->last)
                continue;
            score = query->blind ? 0 : chain->scale * dot(query->numbers, from, size);
            score = chain->cap > 0 ? chain->cap * tanh(score / chain->cap) : score;
            query->scores[key] = score;
            query->largest = score > query->largest ? score : query->largest;
        }
    }
    for (long key = first; key <= last; key++) {
        const double *value = it->values + ts_chain_place(chain, TS_ROLE_VALUE, (size_t)key, it->tokens) * size;
        for (size_t j = 0; j < count; j++) {
            struct query *query = &queries[j];
            double weight;
            if (key < query->first || key > query->last)
                continue;
            weight = ts_chain_weight(chain, query->scores[key], query->largest);
            query->sum += weight;
            for (size_t i = 0; i < size && weight != 0; i++)
                query->out[i] += weight * value[i];
        }
    }
    for (size_t j = 0; j < count && chain->weighing == TS_WEIGH_SOFTMAX; j++)
        for (size_t i = 0; i < size; i++)
            queries[j].out[i] /= queries[j].sum;
    return true;
}

bool ts_long_context(struct ts_long *it, const struct ts_chain *chain, bool candidate, size_t head, size_t token,
                     double *out)
{
    return ts_long_contexts(it, chain, candidate, head, token, 1, out, 0);
}

/* Relative square of what a chain leaves of the reference's context, at one head and token. */
static double left_at(struct ts_long *it, const struct ts_chain *chain, size_t head, size_t token)
{
    double given[512], captured[512], error = 0, size = 0;
    if (!ts_long_context(it, chain, false, head, token, given) ||
        !ts_long_captured(it, chain, false, head, token, captured))
        return (double)INFINITY;
    for (size_t i = 0; i < chain->size; i++) {
        error += (given[i] - captured[i]) * (given[i] - captured[i]);
        size += captured[i] * captured[i];
    }
    return size > 0 ? error / size : (double)INFINITY;
}

static bool fits(struct ts_long *it, const struct ts_chain *chain, size_t head, size_t token)
{
    double limit = 20 * ts_rounding(it->the_case->actor->bits_a);
    limit = limit > 2e-4 ? limit : 2e-4;
    return left_at(it, chain, head, token) <= limit * limit;
}

/* The length of the reference's window, from the first token that cannot see everything, then nearer: the last token
 * shows best what is missing. 0 when no length does it. */
static long find_window(struct ts_long *it, const struct ts_chain *chain)
{
    size_t low = 7, high = it->tokens - 1;
    struct ts_chain trial = *chain;
    double best;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (fits(it, chain, 0, middle))
            low = middle;
        else
            high = middle;
    }
    trial.window = (long)high;
    best = left_at(it, &trial, 0, it->tokens - 1);
    for (long step = 64; step; step /= 2)
        for (int side = -1; side <= 1; side += 2) {
            struct ts_chain other = trial;
            double left;
            other.window += side * step;
            if (other.window < 1)
                continue;
            left = left_at(it, &other, 0, it->tokens - 1);
            if (left < best) {
                best = left;
                trial = other;
            }
        }
    return fits(it, &trial, 0, it->tokens - 1) && fits(it, &trial, 0, it->tokens / 2) ? trial.window : 0;
}

struct search {
    struct ts_long it;
    struct ts_chain own;
    bool found;
};

/* One way a reference may do attention: it must give the captured context, with one of the usual scales and caps. */
static bool gives_context(void *context, const struct ts_chain *chain)
{
    static const double caps[] = {0, 50, 30, 20};
    struct search *search = context;
    struct ts_long *it = &search->it;
    bool causal = chain->shift == 0;
    size_t last = it->tokens - 1;
    if (chain->size > it->room || (causal && !fits(it, chain, 0, 0)))
        return false;
    for (size_t way = 0; way < 2 * (sizeof caps / sizeof *caps); way++) {
        struct ts_chain trial = *chain;
        trial.scale = way % 2 ? 1 : chain->scale;
        trial.cap = caps[way / 2];
        if (!fits(it, &trial, 0, causal ? 1 : last) || (causal && (!fits(it, &trial, 0, 4) || !fits(it, &trial, 0, 7))))
            continue;
        if (causal && !fits(it, &trial, 0, last) && !(trial.window = find_window(it, &trial)))
            continue;
        if (fits(it, &trial, trial.heads - 1, last) && fits(it, &trial, trial.heads / 2, it->tokens / 2)) {
            search->own = trial;
            search->found = true;
            return true;
        }
    }
    return false;
}

/* Rows and heads on which guesses are tried first: those with the largest error. */
struct trial {
    size_t rows[TRIAL_ROWS], row_count, heads[TRIAL_HEADS], head_count;
};

static void choose_trial(const struct ts_case *the_case, const struct ts_chain *own, struct trial *trial)
{
    const struct ts_actor *actor = the_case->actor;
    double *rows = calloc(actor->rows + own->heads, sizeof *rows), *heads = rows ? rows + actor->rows : NULL;
    *trial = (struct trial){0};
    for (size_t i = 0; i < the_case->total && rows; i++) {
        double cost = ts_element_cost(the_case->found[i], the_case->expected[i], the_case->expected[i]);
        rows[i / actor->width] += cost > 0 ? cost : 0;
        heads[i % actor->width / own->size] += cost > 0 ? cost : 0;
    }
    while (rows && trial->row_count < TRIAL_ROWS && trial->row_count < actor->rows) {
        size_t best = 0;
        for (size_t row = 1; row < actor->rows; row++)
            best = rows[row] > rows[best] ? row : best;
        rows[best] = -1;
        trial->rows[trial->row_count++] = best;
    }
    while (heads && trial->head_count < TRIAL_HEADS && trial->head_count < own->heads) {
        size_t best = 0;
        for (size_t head = 1; head < own->heads; head++)
            best = heads[head] > heads[best] ? head : best;
        heads[best] = -1;
        trial->heads[trial->head_count++] = best;
    }
    free(rows);
}

/* Share of the error that a guess explains where it is tried. */
static double try_guess(struct ts_long *it, const struct trial *trial, const struct ts_chain *chain)
{
    const struct ts_case *the_case = it->the_case;
    double given[512], left = 0, made = 0;
    for (size_t h = 0; h < trial->head_count; h++)
        for (size_t r = 0; r < trial->row_count; r++) {
            size_t at = trial->rows[r] * the_case->actor->width + trial->heads[h] * chain->size;
            if (!ts_long_context(it, chain, true, trial->heads[h], (size_t)ts_case_row(the_case, trial->rows[r]),
                                 given))
                return 0;
            for (size_t i = 0; i < chain->size; i++) {
                double cost = ts_element_cost(the_case->found[at + i], given[i], the_case->expected[at + i]);
                double own =
                    ts_element_cost(the_case->found[at + i], the_case->expected[at + i], the_case->expected[at + i]);
                left += cost > 0 ? cost : 0;
                made += own > 0 ? own : 0;
            }
        }
    return made > 0 ? 1 - left / made : 0;
}

/* Lengths of windows between the usual ones, and near the first token that is wrong. */
static void refine_window(struct ts_long *it, const struct trial *trial, const struct ts_chain *own,
                          struct ts_chain_guess *guess)
{
    long step = 32;
    if (!guess->chain.window || guess->chain.window == own->window)
        return;
    while (own->window && (size_t)step * 4 < it->tokens)
        step *= 2;
    for (; step; step /= 2)
        for (int side = -1; side <= 1; side += 2) {
            struct ts_chain other = guess->chain;
            double score;
            other.window += side * step;
            if (other.window < 1 || other.window == own->window)
                continue;
            score = try_guess(it, trial, &other);
            if (score > guess->score) {
                guess->score = score;
                guess->chain = other;
            }
        }
    if (own->window)
        snprintf(guess->text, sizeof guess->text, "the window is %ld long, the reference's %ld", guess->chain.window,
                 own->window);
    else
        snprintf(guess->text, sizeof guess->text, "the candidate has a window of %ld, the reference none",
                 guess->chain.window);
}

/* Over all queries, or tokens mixed up: no row can be done alone. */
bool ts_long_reaches(const struct ts_chain *chain)
{
    return !chain->over_queries && !chain->heads_first;
}

/* The context of all rows of the case. */
static bool run_chain(struct ts_long *it, const struct ts_chain *chain, bool candidate, double *out)
{
    const struct ts_case *the_case = it->the_case;
    size_t rows = the_case->actor->rows, width = chain->heads * chain->size;
    /* heads that share keys one behind the other, so that these are read once */
    for (size_t served = 0; served < chain->served; served++)
        for (size_t head = 0; head < chain->heads; head++) {
            if ((chain->tiled ? head % chain->served : head / (chain->heads / chain->served)) != served)
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

static void propose_guess(struct ts_long *it, const struct ts_chain_guess *guess)
{
    struct ts_case *the_case = it->the_case;
    const struct ts_chain *chain = &guess->chain;
    size_t rows = the_case->actor->rows, width = the_case->actor->width;
    double *out = ts_case_scratch(the_case);
    if (!out || 2.0 * (double)rows * (double)width * (double)it->tokens > MOST_WORK || !run_chain(it, chain, true, out))
        return;
    ts_give_chain(the_case, chain);
    ts_propose(the_case, guess->id, out, 0,
               "what the attention kernel is given: scale, mask, window, positions, head counts", "%s", guess->text);
}

static void propose_guesses(struct ts_long *it, const struct ts_chain *own, const struct ts_other_values *others)
{
    struct ts_case *the_case = it->the_case;
    const struct ts_glance *glance = ts_case_glance(the_case);
    struct ts_chain_guess *guesses = calloc(TS_MOST_GUESSES, sizeof *guesses);
    size_t onset = glance && glance->first >= it->first && glance->first < it->first + it->tokens
                       ? (size_t)(glance->first - it->first)
                       : 0;
    size_t count =
        guesses ? ts_chain_guesses(own, it->tokens, false, the_case->actor->width, onset, others, guesses) : 0;
    struct trial trial;
    choose_trial(the_case, own, &trial);
    for (size_t g = 0; g < count; g++)
        if (!guesses[g].reversed && ts_long_reaches(&guesses[g].chain) && ts_case_wants(the_case, guesses[g].id)) {
            guesses[g].score = try_guess(it, &trial, &guesses[g].chain);
            if (guesses[g].score > 0.1 || guesses[g].chain.window == own->window + 1)
                refine_window(it, &trial, own, &guesses[g]);
        }
    for (int round = 0; round < (ts_case_wants(the_case, "") ? BEST : 1) && count; round++) {
        size_t best = 0;
        for (size_t g = 1; g < count; g++)
            best = guesses[g].score > guesses[best].score ? g : best;
        if (!(guesses[best].score > WORTHWHILE))
            break;
        propose_guess(it, &guesses[best]);
        guesses[best].score = 0;
    }
    free(guesses);
}

bool ts_propose_long_attention(struct ts_case *the_case, size_t largest_head,
                               void (*chains)(void *from, ts_long_test test, void *context), void *from,
                               const struct ts_other_values *others)
{
    struct search search = {0};
    if (ts_scene_sequence(the_case->scene) > 8 && ts_long_open(&search.it, the_case, largest_head)) {
        chains(from, gives_context, &search);
        if (search.found)
            propose_guesses(&search.it, &search.own, others);
    }
    ts_long_close(&search.it);
    return search.found;
}

#define SCORES_READ ((double)(1 << 26)) /* numbers of both tensors */
#define ONE_NEARLY  0.01                /* what rows of probabilities may sum to beside one */

/* Sums of exponentials that grow: the largest exponent so far is taken out. */
struct growing {
    double largest, sum;
};

static void grow(struct growing *growing, double exponent)
{
    if (exponent > growing->largest) {
        growing->sum = growing->sum * exp(growing->largest - exponent) + 1;
        growing->largest = exponent;
    } else {
        growing->sum += exp(exponent - growing->largest);
    }
}

/* Rows that sum to one over the keys are no softmax over anything else. */
static bool sums_over_keys(const struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor;
    size_t ones = 0, lanes = the_case->total / actor->inner;
    for (size_t lane = 0; lane < lanes; lane++) {
        double sum = 0;
        for (size_t i = 0; i < actor->inner; i++)
            sum += the_case->found[lane * actor->inner + i];
        ones += fabs(sum - 1) < ONE_NEARLY;
    }
    return ones * 2 > lanes;
}

/* The table: the largest score of each key, then the sum of exponentials over its queries. */
static bool predict_over_queries(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct ts_actor *actor = the_case->actor,
                          *scores = ts_scene_actor(the_case->scene, the_case->operation.inputs[0]);
    size_t width = actor->width;
    if (!scores || scores->rows != actor->rows || scores->width != width || formula->table_count != 2 * width)
        return false;
    for (size_t i = 0; i < the_case->total; i++) {
        double sum = formula->table[width + i % width];
        out[i] = actor->a[i] > 0 && sum > 0 ? exp((double)scores->b[i] - formula->table[i % width]) / sum : 0;
    }
    return true;
}

bool ts_softmax_over_queries(struct ts_case *the_case, const double *scores, double *out)
{
    const struct ts_actor *actor = the_case->actor;
    const struct ts_scene *scene = the_case->scene;
    uint64_t tokens = ts_scene_sequence(scene), first = ts_scene_first(scene);
    size_t from = the_case->operation.inputs[0], width = actor->width;
    struct growing *sums = NULL;
    float *row = NULL;
    double *table = NULL;
    struct ts_error ignored;
    bool good = (double)tokens * (double)width * 2 <= SCORES_READ && ts_case_wants(the_case, "softmax") &&
                !sums_over_keys(the_case);
    if (good) {
        sums = malloc(width * sizeof *sums);
        row = malloc(2 * width * sizeof *row);
        good = sums && row;
    }
    for (size_t i = 0; i < width && good; i++)
        sums[i] = (struct growing){-INFINITY, 0};
    for (uint64_t token = 0; token < tokens && good; token++) {
        good = ts_scene_read(scene, from, true, first + token, 1, 0, width, row, &ignored) == TS_OK &&
               ts_scene_read(scene, actor->pair, false, first + token, 1, 0, width, row + width, &ignored) == TS_OK;
        for (size_t i = 0; i < width && good; i++)
            if (row[width + i] > 0 && isfinite(row[i])) /* visible in the reference */
                grow(&sums[i], (double)row[i]);
    }
    for (size_t i = 0; i < actor->rows * width && good; i++) {
        const struct growing *sum = &sums[i % width];
        out[i] = actor->a[i] > 0 && sum->sum > 0 ? exp(scores[i] - sum->largest) / sum->sum : 0;
    }
    if (good && (table = malloc(2 * width * sizeof *table))) {
        for (size_t i = 0; i < width; i++) {
            table[i] = sums[i].largest;
            table[width + i] = sums[i].sum;
        }
        ts_formula_next(
            the_case, &(struct ts_formula){.predict = predict_over_queries, .table = table, .table_count = 2 * width});
    }
    free(table);
    free(sums);
    free(row);
    return good;
}

/* The same where each sequence has its own sums, which are taken from all of its queries. */
static bool predict_over_all(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct ts_actor *actor = the_case->actor, *all = ts_scene_all(the_case->scene, actor->pair);
    const struct ts_actor *scores = ts_scene_all(the_case->scene, the_case->operation.inputs[0]);
    const struct ts_actor *own = ts_scene_actor(the_case->scene, the_case->operation.inputs[0]);
    size_t width = actor->width;
    struct growing *sums;
    (void)formula;
    if (!all || !scores || !own || scores->rows != all->rows || scores->width != width || own->rows != actor->rows ||
        !(sums = malloc(width * sizeof *sums)))
        return false;
    for (size_t i = 0; i < width; i++)
        sums[i] = (struct growing){-INFINITY, 0};
    for (size_t i = 0; i < all->rows * width; i++)
        if (all->a[i] > 0 && isfinite(scores->b[i])) /* visible in the reference */
            grow(&sums[i % width], (double)scores->b[i]);
    for (size_t i = 0; i < the_case->total; i++) {
        const struct growing *sum = &sums[i % width];
        out[i] = actor->a[i] > 0 && sum->sum > 0 ? exp((double)own->b[i] - sum->largest) / sum->sum : 0;
    }
    free(sums);
    return true;
}

void ts_give_over_queries(struct ts_case *the_case)
{
    if (the_case->operation.kind == TS_OPERATION_SOFTMAX && the_case->operation.input_count == 1)
        ts_formula_next(the_case, &(struct ts_formula){.predict = predict_over_all});
}
