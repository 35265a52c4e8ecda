/* Owns what is added to attention beside queries and keys: biases that grow with the distance (ALiBi), and sinks in the
 * denominator of the softmax. */
#include <stdlib.h>
#include <string.h>

#include "diagnose/formula.h"
#include "diagnose/variant.h"
#include "tensor/mask.h"

/* Slopes of n heads are 2^(-8 h / n), h from 1: so near to it they are taken for the usual ones. */
#define NEAR 0.05
/* Share of the error from which on slopes say it all: a number for each distance would say the same with more. */
#define GROWS 0.9

/* Least squares slope of the difference over the distance, for each head. */
static void find_slopes(const struct ts_case *the_case, double *slopes)
{
    const struct ts_actor *actor = the_case->actor;
    for (size_t head = 0; head < actor->heads; head++) {
        double upper = 0, lower = 0;
        for (size_t row = 0; row < actor->rows; row++)
            for (size_t key = 0; key < actor->inner; key++) {
                size_t at = row * actor->width + head * actor->inner + key;
                double difference = the_case->found[at] - the_case->expected[at],
                       distance = (double)ts_case_row(the_case, row) - (double)key;
                if (!isfinite(difference) || ts_is_masked_score(the_case->found[at]))
                    continue;
                upper += difference * distance;
                lower += distance * distance;
            }
        slopes[head] = lower > 0 ? upper / lower : 0;
    }
}

/* All of them one factor times the usual slopes; the factor, or 0. */
static double usual_slopes(const double *slopes, size_t heads)
{
    double upper = 0, lower = 0, left = 0, size = 0, factor;
    for (size_t h = 0; h < heads; h++) {
        double usual = exp2(-8.0 * (double)(h + 1) / (double)heads);
        upper += usual * slopes[h];
        lower += usual * usual;
    }
    factor = upper / lower;
    for (size_t h = 0; h < heads; h++) {
        double usual = factor * exp2(-8.0 * (double)(h + 1) / (double)heads);
        left += (slopes[h] - usual) * (slopes[h] - usual);
        size += slopes[h] * slopes[h];
    }
    return left < NEAR * NEAR * size ? factor : 0;
}

/* A slope per head in the table. */
static bool predict_slopes(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct ts_actor *actor = the_case->actor;
    if (formula->table_count != actor->heads)
        return false;
    for (size_t row = 0; row < actor->rows; row++)
        for (size_t at = 0; at < actor->width; at++) {
            double distance = (double)ts_case_row(the_case, row) - (double)(at % actor->inner);
            out[row * actor->width + at] =
                the_case->expected[row * actor->width + at] + formula->table[at / actor->inner] * distance;
        }
    return true;
}

/* Number of the distance key - row, and of all of them. */
static size_t distance_at(const struct ts_case *the_case, size_t row, size_t key)
{
    return the_case->actor->sequence - 1 + key - (size_t)ts_case_row(the_case, row);
}

static size_t distances(const struct ts_actor *actor)
{
    return 2 * actor->sequence - 1;
}

/* A number per head and distance in the table. */
static bool predict_relative(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct ts_actor *actor = the_case->actor;
    if (formula->table_count != actor->heads * distances(actor))
        return false;
    for (size_t row = 0; row < actor->rows; row++)
        for (size_t at = 0; at < actor->width; at++)
            out[row * actor->width + at] =
                the_case->expected[row * actor->width + at] +
                formula->table[at / actor->inner * distances(actor) + distance_at(the_case, row, at % actor->inner)];
    return true;
}

/* The mean difference for each head and distance; returns how many of them there are. */
static size_t find_relative(const struct ts_case *the_case, double *table, double *low, double *high)
{
    const struct ts_actor *actor = the_case->actor;
    size_t total = actor->heads * distances(actor), used = 0;
    double *counts = calloc(total, sizeof *counts);
    for (size_t i = 0; i < the_case->total && counts; i++) {
        size_t row = i / actor->width, head = i % actor->width / actor->inner, key = i % actor->inner;
        size_t place = head * distances(actor) + distance_at(the_case, row, key);
        double difference = the_case->found[i] - the_case->expected[i];
        if (!isfinite(difference) || ts_is_masked_score(the_case->found[i]))
            continue;
        table[place] += difference;
        counts[place]++;
    }
    for (size_t i = 0; i < total && counts; i++) {
        if (!(counts[i] > 0))
            continue;
        table[i] /= counts[i];
        *low = fmin(*low, table[i]);
        *high = fmax(*high, table[i]);
        used++;
    }
    free(counts);
    return used;
}

/* The reference's scores are products of queries and keys, and nothing is added to them. */
static bool has_no_bias(const struct ts_operation *operation)
{
    return operation->kind == TS_OPERATION_SCORES && !operation->table;
}

/* What is added depends on the head and the distance alone, in any way: a table of relative positions. */
static void propose_relative_bias(struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor;
    const struct ts_operation *operation = &the_case->operation;
    struct ts_formula formula = {.predict = predict_relative, .table_count = actor->heads * distances(actor)};
    double *prediction = ts_case_scratch(the_case), *table = calloc(formula.table_count, sizeof *table);
    double low = INFINITY, high = -INFINITY;
    size_t used;
    formula.table = table;
    if (table && prediction && operation->kind == TS_OPERATION_SCORES &&
        operation->table_count == formula.table_count) {
        for (size_t i = 0; i < formula.table_count; i++)
            table[i] = -operation->table[i];
        (void)predict_relative(the_case, &formula, prediction);
        ts_formula_next(the_case, &formula);
        ts_propose(the_case, "term-missing", prediction, 0, "whether the position bias is added to the scores",
                   "the candidate does not add the position bias (one number per head and query-key distance)");
        memset(table, 0, formula.table_count * sizeof *table);
    }
    if (table && prediction && (used = find_relative(the_case, table, &low, &high)) * 2 < the_case->total) {
        (void)predict_relative(the_case, &formula, prediction);
        ts_formula_next(the_case, &formula);
        ts_propose(the_case, has_no_bias(operation) ? "term-extra" : "offset", prediction, used,
                   "the relative position bias: whether it is added, which table it comes from (layer, encoder or "
                   "decoder), the bucketing of distances, and its sign",
                   "the candidate adds %s position bias: its scores differ by one number per head and query-key "
                   "distance, from %.4g to %.4g",
                   has_no_bias(operation) ? "a" : "another", low, high);
    }
    free(table);
}

void ts_propose_distance_bias(struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor;
    double *prediction = ts_case_scratch(the_case), *slopes, low = INFINITY, high = -INFINITY, factor;
    struct ts_formula formula = {.predict = predict_slopes, .table_count = actor->heads};
    bool grows;
    if (!prediction || actor->heads < 2 || actor->inner != actor->sequence || actor->rows < 3 ||
        !(slopes = calloc(actor->heads, sizeof *slopes)))
        return;
    find_slopes(the_case, slopes);
    formula.table = slopes;
    (void)predict_slopes(the_case, &formula, prediction);
    for (size_t head = 0; head < actor->heads; head++) {
        low = slopes[head] < low ? slopes[head] : low;
        high = slopes[head] > high ? slopes[head] : high;
    }
    grows = ts_explained(the_case, prediction) > GROWS;
    ts_formula_next(the_case, &formula);
    factor = usual_slopes(slopes, actor->heads);
    if (fabs(factor - 1) < NEAR)
        ts_propose(the_case, "term-missing", prediction, 1, "whether the position bias (ALiBi) is added to the scores",
                   "the candidate does not add the position bias (ALiBi): the error grows with the query-key distance "
                   "by 2^(-8 h / %zu) in head h",
                   actor->heads);
    else if (has_no_bias(&the_case->operation))
        ts_propose(the_case, "term-extra", prediction, actor->heads, "whether this model has a position bias (ALiBi)",
                   "the candidate adds a position bias (ALiBi): the error grows with the query-key distance, with one "
                   "slope per head from %.4g to %.4g",
                   low, high);
    else
        ts_propose(the_case, "offset", prediction, actor->heads,
                   "the slopes of the position bias (ALiBi): their sequence over the heads, and their sign",
                   "the candidate's position bias (ALiBi) has other slopes: the error grows with the query-key "
                   "distance, with one slope per head from %.4g to %.4g",
                   low, high);
    free(slopes);
    if (actor->rows >= 6 && !grows)
        propose_relative_bias(the_case);
}

static double factor_of(const struct ts_case *the_case, size_t start, size_t size)
{
    double dot = 0, square = 0;
    for (size_t i = start; i < start + size; i++)
        if (isfinite(the_case->found[i]) && isfinite(the_case->expected[i])) {
            dot += the_case->expected[i] * the_case->found[i];
            square += the_case->expected[i] * the_case->expected[i];
        }
    return square > 0 ? dot / square : 1;
}

/* Factor of each piece of `size` numbers of each row; returns the share of the error that they leave explained. */
static double scale_pieces(const struct ts_case *the_case, size_t size, double *prediction, double *low, double *high,
                           size_t *above)
{
    *low = INFINITY;
    *high = -INFINITY;
    *above = 0;
    for (size_t start = 0; start + size <= the_case->total; start += size) {
        double factor = factor_of(the_case, start, size);
        for (size_t i = start; i < start + size; i++)
            prediction[i] = factor * the_case->expected[i];
        *low = factor < *low ? factor : *low;
        *high = factor > *high ? factor : *high;
        *above += factor > 1;
    }
    return ts_explained(the_case, prediction);
}

/* Factors of heads must leave less than this share of what a factor of each token leaves. */
#define LEFT_BY_HEADS 0.5

/* Factors of pieces, for other rows: fitted to each, on the side of one where they are here. */
struct pieces {
    size_t size;
    bool above;
};

static bool predict_pieces(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct pieces *pieces = formula->numbers;
    for (size_t start = 0; start + pieces->size <= the_case->total; start += pieces->size) {
        double factor = factor_of(the_case, start, pieces->size);
        factor = pieces->above ? fmax(factor, 1) : fmin(factor, 1);
        for (size_t i = start; i < start + pieces->size; i++)
            out[i] = factor * the_case->expected[i];
    }
    return the_case->total % pieces->size == 0;
}

/* Probabilities that sum to one on one side and to less on the other (attention sinks, an extra one in the
 * denominator): each head of each token has a factor, all of them above one or all below. Heads may be folded into one
 * axis. */
void ts_propose_head_factors(struct ts_case *the_case)
{
    static const size_t usual[] = {256, 192, 128, 96, 80, 64, 48, 40, 32, 24, 20, 16, 12, 8};
    const struct ts_actor *actor = the_case->actor;
    double *prediction = ts_case_scratch(the_case), low, high, plain, by_row, explained;
    size_t above;
    if (!prediction || actor->heads > 1 || actor->rows < 2)
        return;
    plain = scale_pieces(the_case, the_case->total, prediction, &low, &high, &above);
    by_row = scale_pieces(the_case, actor->width, prediction, &low, &high, &above);
    for (size_t s = 0; s < sizeof usual / sizeof *usual; s++) {
        size_t pieces = the_case->total / usual[s];
        if (actor->width % usual[s] || actor->width / usual[s] < 2)
            continue;
        explained = scale_pieces(the_case, usual[s], prediction, &low, &high, &above);
        if (explained < 0.95 || explained < plain + 0.1 || low < 0.05 ||
            (above * 10 < pieces * 9 && above * 10 > pieces))
            continue;
        /* a factor of the whole token is a norm's, of which no head shows more */
        if (1 - explained >= LEFT_BY_HEADS * (1 - by_row))
            return;
        ts_formula_next(the_case, &(struct ts_formula){.predict = predict_pieces,
                                                       .numbers = &(struct pieces){usual[s], above * 2 > pieces},
                                                       .size = sizeof(struct pieces)});
        ts_propose(
            the_case, "softmax", prediction, pieces,
            "attention sinks (one learned number per head) or an extra 1 in the softmax denominator: left out or added",
            "the candidate's softmax has another denominator: each head (%zu channels) of each token has its own "
            "factor, from %.4g to %.4g",
            usual[s], low, high);
        return;
    }
}
