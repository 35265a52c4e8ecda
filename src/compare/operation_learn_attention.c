/* Owns learning the steps of attention: scores, probabilities, context. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare/operation_search.h"
#include "compare/structure.h"
#include "tensor/mask.h"

#define LEAST_OF_ONE 4    /* heads, each with one number where there is one token: fewer lie on a line by chance */
#define LINE_LEFT    2e-2 /* of the logarithms' squares, by the line through them */
#define CAP_STEPS    6
#define CAPPED_LEFT  1e-3 /* the same of scores that were undone: bf16 near a cap leaves less */
#define NEAR_CAP     0.98 /* of it; beyond, rounding decides what is undone */
#define SHARE_KNOWN  0.02 /* of a sink: far above what probabilities are rounded by */

/* Scores that are looked at before most tensors, which are no keys, are seen to be none: on a line through the product
 * with keys lies nearly all of them, and a tenth by chance in one case of thirty. */
#define KEYS_LOOK 24
#define KEYS_LINE 0.1

static const double usual_caps[] = {50, 30, 20, 15, 100};

/* q and k can be the operands of [rows, heads, keys] scores: as many numbers per head, key heads that divide the heads.
 */
static bool fit_together(const struct ts_actor *actor, const struct ts_actor *q, const struct ts_actor *k)
{
    size_t size;
    if (q == k || q->rows != actor->rows || k->rows != actor->rows || q->width % actor->heads || k->width > q->width)
        return false;
    size = q->width / actor->heads;
    return size >= 2 && k->width % size == 0 && actor->heads % (k->width / size) == 0;
}

/* Four sums, so that no addition waits for the one before. */
static double dot_of(const float *x, const float *y, size_t count)
{
    double sums[4] = {0, 0, 0, 0};
    size_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (size_t k = 0; k < 4; k++)
            sums[k] += (double)x[i + k] * (double)y[i + k];
    for (; i < count; i++)
        sums[0] += (double)x[i] * (double)y[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* k holds every token. */
static double product(const struct ts_search *search, const struct ts_actor *q, const struct ts_actor *k, size_t row,
                      size_t head, size_t key)
{
    const struct ts_actor *actor = search->actor;
    size_t size = q->width / actor->heads, repeat = actor->heads / (k->width / size);
    const float *x = q->a + row * q->width + head * size;
    const float *y = k->a + (ts_scene_keys(search->scene, actor, row) + key) * k->width + head / repeat * size;
    return dot_of(x, y, size);
}

/* Of a long sequence without heads the number is not enough: a model may be as wide as its prompt is long. There
 * something must be masked. */
bool ts_may_attend(const struct ts_actor *actor)
{
    size_t total = actor->rows * actor->width, hidden = 0;
    if (actor->heads < (actor->rows < 2 ? LEAST_OF_ONE : 1) || actor->apart || actor->inner != actor->sequence)
        return false;
    for (size_t i = 0; i < total && !actor->whole && actor->heads == 1; i++)
        hidden += actor->a[i] == 0 || ts_is_masked_score((double)actor->a[i]);
    return actor->whole || actor->heads > 1 || hidden * 20 > total;
}

/* The keys of a long sequence are many to read, and most tensors are no keys. Those tokens that are at hand anyway show
 * it: a line through their scores, or through the logarithms of their probabilities within a row. */
static bool may_be_keys(const struct ts_search *search, const struct ts_actor *q, const struct ts_actor *k, bool logs)
{
    const struct ts_actor *actor = search->actor;
    size_t size = q->width / actor->heads, repeat = actor->heads / (k->width / size);
    double xy = 0, xx = 0, yy = 0;
    size_t seen = 0;
    if (k->whole)
        return true;
    for (size_t i = 0; i < 24 && (seen < KEYS_LOOK || xy * xy > KEYS_LINE * xx * yy); i++) {
        size_t row = actor->rows - 1 - i % (actor->rows / 2 + 1), head = i * 5 % actor->heads, used = 0;
        size_t first = ts_scene_keys(search->scene, actor, row);
        double x_sum = 0, y_sum = 0, x_own = 0, y_own = 0, both = 0;
        for (size_t other = 0; other < actor->rows; other++) {
            size_t key = ts_scene_position(search->scene, actor, other);
            double x, y = (double)actor->a[row * actor->width + head * actor->inner + key];
            if (ts_scene_keys(search->scene, actor, other) != first || !isfinite(y) ||
                (logs ? !(y > 1e-6) : ts_is_masked_score(y)))
                continue;
            y = logs ? log(y) : y;
            x = dot_of(q->a + row * q->width + head * size, k->a + other * k->width + head / repeat * size, size);
            x_sum += x;
            y_sum += y;
            x_own += x * x;
            y_own += y * y;
            both += x * y;
            used++;
        }
        /* a bias by distance is no constant, but the line through each row stays */
        if (used > 2) {
            seen += used;
            xy += both - x_sum * y_sum / (double)used;
            xx += x_own - x_sum * x_sum / (double)used;
            yy += y_own - y_sum * y_sum / (double)used;
        }
    }
    return xx > 0 && yy > 0 && xy * xy > 0.5 * xx * yy;
}

/* The keys with every token, when they may be the keys; NULL otherwise. */
static const struct ts_actor *keys_of(const struct ts_search *search, const struct ts_actor *q,
                                      const struct ts_actor *k, bool logs)
{
    return fit_together(search->actor, q, k) && may_be_keys(search, q, k, logs) ? ts_scene_all(search->scene, k->pair)
                                                                                : NULL;
}

/* A look at 64 scores, before rows of them are computed: a line through them must explain them. */
static bool may_be_scores(const struct ts_search *search, const struct ts_actor *q, const struct ts_actor *k)
{
    const struct ts_actor *actor = search->actor;
    double dot = 0, square = 0, size = 0;
    for (size_t i = 0; i < search->probe_count; i++) {
        size_t at = search->probes[i], row = at / actor->width, head = at % actor->width / actor->inner;
        double sum = product(search, q, k, row, head, at % actor->inner);
        dot += sum * search->wanted[i];
        square += sum * sum;
        size += search->wanted[i] * search->wanted[i];
        if (i == 7 && !(dot * dot >= 0.9 * square * size))
            return false;
    }
    return dot * dot >= 0.98 * square * size;
}

/* Scores behind one of the usual soft caps: undone, they lie on a line again. */
static bool learn_capped_scores(struct ts_search *search, const struct ts_actor *q, const struct ts_actor *k,
                                struct ts_operation *scores)
{
    const struct ts_actor *actor = search->actor;
    for (size_t i = 0; i < sizeof usual_caps / sizeof *usual_caps; i++) {
        double dot = 0, square = 0, size = 0, cap = usual_caps[i];
        for (size_t at = 0; at < search->probe_count; at++) {
            size_t place = search->probes[at];
            double y = search->wanted[at] / cap, sum;
            if (!(fabs(y) < NEAR_CAP))
                continue;
            y = cap * atanh(y);
            sum =
                product(search, q, k, place / actor->width, place % actor->width / actor->inner, place % actor->inner);
            dot += sum * y;
            square += sum * sum;
            size += y * y;
        }
        if (!(square > 0) || !(size > 0) || 1 - dot * dot / (square * size) > CAPPED_LEFT)
            continue;
        scores->cap = cap;
        scores->factor = dot / square;
        if (ts_search_consider(search, scores))
            return true;
    }
    return false;
}

static void learn_products(struct ts_search *search, bool capped)
{
    const struct ts_actor *actor = search->actor;
    for (size_t i = 0; i < search->all_count; i++)
        for (size_t j = 0; j < search->all_count; j++) {
            const struct ts_actor *q = search->all[i], *k = keys_of(search, q, search->all[j], false);
            struct ts_operation scores = {
                .kind = TS_OPERATION_SCORES, .inputs = {q->pair, search->all[j]->pair}, .input_count = 2, .factor = 1};
            double dot = 0, square = 0, size = 0;
            if (!k || !may_be_scores(search, q, k))
                continue;
            /* the factor from one row of each head; then everything */
            for (size_t head = 0; head < actor->heads; head++)
                for (size_t key = 0; key < actor->inner; key++) {
                    size_t row = actor->rows - 1 - head % actor->rows;
                    double y = (double)actor->a[row * actor->width + head * actor->inner + key], sum;
                    if (ts_is_masked_score(y) || !isfinite(y))
                        continue;
                    sum = product(search, q, k, row, head, key);
                    dot += sum * y;
                    square += sum * sum;
                    size += y * y;
                }
            /* a line through the probed rows must explain them before everything is computed */
            if (!(square > 0) || !(size > 0) || 1 - dot * dot / (square * size) > 1e-2)
                continue;
            scores.factor = dot / square;
            if (capped ? learn_capped_scores(search, q, k, &scores) : ts_search_consider(search, &scores))
                return;
        }
}

/* Scores of one head within each distance: slope of y over q . k, the means per distance apart. */
struct by_distance {
    double *count, *sum_s, *sum_y; /* per distance */
    double products, squares, sizes;
};

static void add_head(const struct ts_search *search, const struct ts_actor *q, const struct ts_actor *k, size_t head,
                     struct by_distance *sums)
{
    const struct ts_actor *actor = search->actor;
    for (size_t row = 0; row < actor->rows; row++)
        for (size_t key = 0; key < actor->inner; key++) {
            double y = (double)actor->a[row * actor->width + head * actor->inner + key], s;
            size_t distance = actor->sequence - 1 + key - ts_scene_position(search->scene, actor, row);
            if (ts_is_masked_score(y) || !isfinite(y))
                continue;
            s = product(search, q, k, row, head, key);
            sums->count[distance]++;
            sums->sum_s[distance] += s;
            sums->sum_y[distance] += y;
            sums->products += s * y;
            sums->squares += s * s;
            sums->sizes += y * y;
        }
}

/* One line must explain what varies within the distances. Leaves the biases in the table. */
static bool fit_head(const struct ts_search *search, const struct ts_actor *q, const struct ts_actor *k, size_t head,
                     double *scratch, double *factor, double *table)
{
    size_t distances = 2 * search->actor->sequence - 1;
    struct by_distance sums = {scratch, scratch + distances, scratch + 2 * distances, 0, 0, 0};
    memset(scratch, 0, 3 * distances * sizeof *scratch);
    add_head(search, q, k, head, &sums);
    for (size_t d = 0; d < distances; d++)
        if (sums.count[d] > 0) {
            sums.products -= sums.sum_s[d] * sums.sum_y[d] / sums.count[d];
            sums.squares -= sums.sum_s[d] * sums.sum_s[d] / sums.count[d];
            sums.sizes -= sums.sum_y[d] * sums.sum_y[d] / sums.count[d];
        }
    if (!(sums.squares > 0) || !(sums.products * sums.products > 0.98 * sums.squares * sums.sizes))
        return false;
    *factor = sums.products / sums.squares;
    for (size_t d = 0; d < distances; d++)
        table[d] = sums.count[d] > 0 ? (sums.sum_y[d] - *factor * sums.sum_s[d]) / sums.count[d] : 0;
    return true;
}

/* A look at some steps along a diagonal, where the bias stays: they must lie on one line. */
static bool may_be_biased(const struct ts_search *search, const struct ts_actor *q, const struct ts_actor *k)
{
    const struct ts_actor *actor = search->actor;
    double dot = 0, square = 0, size = 0;
    size_t count = 0;
    for (size_t i = 0; i < 64 && count < 24; i++) {
        size_t row = 1 + i * 7 % (actor->sequence - 1), key = 1 + i * 5 % row, head = i % actor->heads;
        size_t at = row * actor->width + head * actor->inner + key, before = at - actor->width - 1;
        double y = (double)actor->a[at] - (double)actor->a[before], s;
        if (!isfinite(y))
            continue;
        s = product(search, q, k, row, head, key) - product(search, q, k, row - 1, head, key - 1);
        dot += s * y;
        square += s * s;
        size += y * y;
        count++;
        if (count == 6 && dot * dot < 0.9 * square * size)
            return false;
    }
    return dot * dot >= 0.95 * square * size;
}

/* ALiBi and relative positions: scores with one more number per head and distance. The first head decides whether the
 * others are worth a look. */
static bool learn_biased_scores(struct ts_search *search, const struct ts_actor *q, const struct ts_actor *k)
{
    const struct ts_actor *actor = search->actor;
    size_t distances = 2 * actor->sequence - 1;
    double *scratch = malloc(3 * distances * sizeof *scratch);
    struct ts_operation scores = {.kind = TS_OPERATION_SCORES,
                                  .inputs = {q->pair, k->pair},
                                  .input_count = 2,
                                  .table = calloc(actor->heads * distances, sizeof(double)),
                                  .table_count = actor->heads * distances};
    bool fits = scratch && scores.table;
    for (size_t head = 0; head < actor->heads && fits; head++) {
        double factor = 0;
        fits = fit_head(search, q, k, head, scratch, &factor, scores.table + head * distances) &&
               (head == 0 || fabs(factor - scores.factor) < 0.02 * fabs(scores.factor));
        /* the mean over the heads */
        scores.factor += (factor - scores.factor) / (double)(head + 1);
    }
    free(scratch);
    if (fits)
        return ts_search_consider(search, &scores);
    free(scores.table);
    return false;
}

void ts_learn_scores(struct ts_search *search)
{
    const struct ts_actor *actor = search->actor;
    if (!ts_may_attend(actor))
        return;
    learn_products(search, false);
    if (!actor->whole) /* one number per distance says little of a few tokens */
        return;
    for (size_t i = 0; i < search->all_count && i < 12 && actor->sequence >= 4; i++)
        for (size_t j = 0; j < search->all_count && j < 12; j++)
            if (search->best.kind == TS_OPERATION_NONE && fit_together(actor, search->all[i], search->all[j]) &&
                may_be_biased(search, search->all[i], search->all[j]) &&
                learn_biased_scores(search, search->all[i], search->all[j]))
                return;
}

void ts_learn_capped_scores(struct ts_search *search)
{
    if (ts_may_attend(search->actor))
        learn_products(search, true);
}

/* Of the logarithms of probabilities, within rows, over the scores that queries and keys make: one row of each head. */
struct slope {
    double covariance, variance, spread;
};

/* False when it is no line. A cap leaves a line nearly straight. */
static bool slope_of_logs(const struct ts_search *search, const struct ts_actor *q, const struct ts_actor *k,
                          double factor, double cap, struct slope *slope)
{
    const struct ts_actor *actor = search->actor;
    *slope = (struct slope){0};
    for (size_t head = 0; head < actor->heads; head++) {
        size_t row = actor->rows - 1 - head % (actor->rows / 2 + 1), used = 0;
        double mean_s = 0, mean_p = 0, products = 0, squares = 0, logs = 0;
        for (size_t key = 0; key < actor->inner; key++) {
            double p = (double)actor->a[row * actor->width + head * actor->inner + key], s;
            if (!(p > 1e-6))
                continue;
            s = factor * product(search, q, k, row, head, key);
            s = cap > 0 ? cap * tanh(s / cap) : s;
            p = log(p);
            mean_s += s;
            mean_p += p;
            products += s * p;
            squares += s * s;
            logs += p * p;
            used++;
        }
        if (used > 1) {
            slope->covariance += products - mean_s * mean_p / (double)used;
            slope->variance += squares - mean_s * mean_s / (double)used;
            slope->spread += logs - mean_p * mean_p / (double)used;
        }
        if (head % 4 == 1 && slope->covariance * slope->covariance < 0.9 * slope->variance * slope->spread)
            return false;
    }
    return slope->variance > 0 && slope->spread > 0 &&
           1 - slope->covariance * slope->covariance / (slope->variance * slope->spread) <= LINE_LEFT;
}

/* With one of the usual soft caps, the factor following from each: what a cap bends is nearly straight, so that a few
 * steps find it. */
static bool learn_capped(struct ts_search *search, const struct ts_actor *q, const struct ts_actor *k,
                         struct ts_operation *softmax)
{
    const double straight = softmax->factor;
    for (size_t i = 0; i < sizeof usual_caps / sizeof *usual_caps; i++) {
        struct slope slope = {0};
        bool line = true;
        softmax->cap = usual_caps[i];
        softmax->factor = straight;
        for (int step = 0; step < CAP_STEPS && line; step++) {
            line = slope_of_logs(search, q, k, softmax->factor, softmax->cap, &slope);
            softmax->factor *= line ? slope.covariance / slope.variance : 1;
        }
        if (line && ts_search_consider(search, softmax))
            return true;
    }
    return false;
}

/* Probabilities straight from queries and keys, the scores not captured: within a row, log p is factor * q . k and a
 * constant, so the factor is a slope. */
static void learn_probabilities(struct ts_search *search)
{
    for (size_t i = 0; i < search->all_count; i++)
        for (size_t j = 0; j < search->all_count; j++) {
            const struct ts_actor *q = search->all[i], *k = keys_of(search, q, search->all[j], true);
            struct ts_operation softmax = {
                .kind = TS_OPERATION_SOFTMAX, .inputs = {q->pair, search->all[j]->pair}, .input_count = 2};
            struct slope slope;
            if (!k || !slope_of_logs(search, q, k, 1, 0, &slope))
                continue;
            softmax.factor = slope.covariance / slope.variance;
            if (ts_search_consider(search, &softmax) || learn_capped(search, q, k, &softmax))
                return;
        }
}

/* A sink per head, from the share that each row leaves: p / share = exp(score - sink). Where all rows of a head leave
 * little, the one that leaves most tells it well enough, as it changes little; a head may leave none at all. */
static void learn_sinks(struct ts_search *search, const struct ts_actor *scores)
{
    const struct ts_actor *actor = search->actor;
    double *table = calloc(actor->heads, sizeof *table), *guesses = calloc(actor->rows, sizeof *guesses);
    struct ts_operation softmax = {
        .kind = TS_OPERATION_SOFTMAX, .inputs = {scores->pair}, .input_count = 1, .table_count = actor->heads};
    bool good = table && guesses, any = false;
    for (size_t head = 0; head < actor->heads && good; head++) {
        size_t count = 0;
        double most = 0, faint = -INFINITY;
        for (size_t row = 0; row < actor->rows; row++) {
            size_t start = row * actor->width + head * actor->inner, at = start;
            double sum = 0, share, guess;
            for (size_t i = start; i < start + actor->inner; i++) {
                sum += (double)actor->a[i];
                at = actor->a[i] > actor->a[at] ? i : at;
            }
            share = 1 - sum;
            if (!(share > 0) || !(actor->a[at] > 0))
                continue;
            guess = (double)scores->a[at] - log((double)actor->a[at] / share);
            if (share > SHARE_KNOWN)
                guesses[count++] = guess;
            if (share > most) {
                most = share;
                faint = guess;
            }
        }
        any = any || count >= 2;
        table[head] = count >= 2 ? ts_nth(guesses, count, count / 2) : faint;
        good = table[head] < INFINITY;
    }
    free(guesses);
    softmax.table = table;
    if (good && any)
        ts_search_consider(search, &softmax);
    else
        free(table);
}

void ts_learn_softmax(struct ts_search *search)
{
    const struct ts_actor *actor = search->actor;
    double least = 1, most = 0;
    for (size_t start = 0; start < search->total; start += actor->inner) {
        double sum = 0;
        for (size_t i = start; i < start + actor->inner; i++) {
            if (!(actor->a[i] >= 0))
                return;
            sum += (double)actor->a[i];
        }
        least = sum < least ? sum : least;
        most = sum > most ? sum : most;
    }
    if (!(most < 1.02)) /* no probabilities */
        return;
    for (size_t i = 0; i < search->same_count && i < 4; i++) {
        struct ts_operation softmax = {
            .kind = TS_OPERATION_SOFTMAX, .inputs = {search->same[i]->pair}, .input_count = 1};
        if (least > 0.98)
            ts_search_consider(search, &softmax);
        else if (search->same[i]->heads == actor->heads)
            learn_sinks(search, search->same[i]);
    }
    if (search->best.kind == TS_OPERATION_NONE && least > 0.98 && ts_may_attend(actor))
        learn_probabilities(search);
}

bool ts_may_be_context(const struct ts_search *search, const struct ts_actor *p, const struct ts_actor *v)
{
    const struct ts_actor *actor = search->actor;
    size_t inner = actor->width / p->heads, repeat = p->heads / (v->width / inner);
    double error = 0;
    for (size_t i = 0; i < search->probe_count; i++) {
        size_t at = search->probes[i], row = at / actor->width, head = at % actor->width / inner;
        const float *weights = p->a + row * p->width + head * p->inner;
        const float *values =
            v->a + ts_scene_keys(search->scene, actor, row) * v->width + head / repeat * inner + at % inner;
        double sum = 0;
        for (size_t key = 0; key < p->inner; key++)
            sum += weights[key] != 0 ? (double)weights[key] * (double)values[key * v->width] : 0;
        if (ts_search_strays(search, i, sum, &error))
            return false;
    }
    return true;
}

/* Shares of one whole, or less where a sink takes the rest. */
static bool are_shares(const float *weights, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        if (!(weights[i] >= 0))
            return false;
        sum += (double)weights[i];
    }
    return sum < 1.01;
}

/* The same for the first tokens of a long sequence: what they see is at hand, when they see only what was before them.
 * Of those that see ahead nothing is told from here, but that they are probabilities, and no queries of which each has
 * as many numbers as there are keys: values with every token are many to read. */
static bool may_be_values(const struct ts_search *search, const struct ts_actor *p, const struct ts_actor *v)
{
    const struct ts_actor *actor = search->actor;
    size_t inner = actor->width / p->heads, repeat = p->heads / (v->width / inner), rows = 0;
    double error = 0, size = 0;
    if (v->whole)
        return true;
    while (rows < actor->rows && rows < 4 && ts_scene_position(search->scene, actor, rows) == rows)
        rows++;
    for (size_t row = 0; row < rows; row++)
        for (size_t at = 0; at < actor->width; at++) {
            size_t head = at / inner;
            const float *weights = p->a + row * p->width + head * p->inner;
            double sum = 0, wanted = (double)actor->a[row * actor->width + at];
            for (size_t key = rows; key < p->inner; key++)
                if (weights[key] != 0)
                    return are_shares(weights, p->inner);
            for (size_t key = 0; key < rows; key++)
                sum += (double)weights[key] * (double)v->a[key * v->width + head / repeat * inner + at % inner];
            error += (sum - wanted) * (sum - wanted);
            size += wanted * wanted;
        }
    return !(error > 0.01 * size);
}

void ts_learn_context(struct ts_search *search)
{
    const struct ts_actor *actor = search->actor;
    for (size_t i = 0; i < search->all_count && i < 8; i++) {
        const struct ts_actor *p = search->all[i];
        if (!ts_may_attend(p) || p->rows != actor->rows || actor->width % p->heads)
            continue;
        for (size_t j = 0; j < search->all_count; j++) {
            const struct ts_actor *v = search->all[j];
            size_t inner = actor->width / p->heads;
            struct ts_operation context = {
                .kind = TS_OPERATION_CONTEXT, .inputs = {p->pair, v->pair}, .input_count = 2};
            if (j == i || v->apart || v->rows != actor->rows || !inner || v->width % inner || v->width < inner ||
                v->width / inner > p->heads || p->heads % (v->width / inner) || !may_be_values(search, p, v) ||
                !(v = ts_scene_all(search->scene, v->pair)))
                continue;
            if (ts_may_be_context(search, p, v) && ts_search_consider(search, &context))
                return;
        }
    }
}
