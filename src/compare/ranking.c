#include "compare/ranking.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/progress.h"
#include "base/text.h"

#define MOST_ROWS  256 /* of large tensors; all of those with up to MOST numbers */
#define MOST       ((uint64_t)1 << 22)
#define MOST_WIDTH ((uint64_t)1 << 22)
#define TOP        10

/* One rank's share of the vocabulary, or some tokens' scores: the largest of these need not be the largest of all.
 * Vocabularies are padded by less. */
static bool is_part_of_rows(const struct ts_view *view)
{
    const struct ts_tensor *tensor = view->tensor;
    return tensor->rank > 0 && 8 * view->shape[view->rank - 1] < 7 * tensor->shape[tensor->rank - 1];
}

bool ts_ranking_applies(const struct ts_pair *pair)
{
    static const char *const words[] = {"logits",       "lm_head",  "probs",  "probabilities",
                                        "attn_weights", "router.0", "softmax"};
    if (pair->problem || pair->a.rank < 1 || ts_type_is_integer(pair->a.tensor->type) ||
        ts_type_info(pair->a.tensor->type)->components != 1 || pair->a.shape[pair->a.rank - 1] < 2 ||
        pair->a.shape[pair->a.rank - 1] > MOST_WIDTH || strstr(pair->name, ".weight") || pair->a.tensor->sampled ||
        pair->b.tensor->sampled || ts_ends_with(pair->name, ".input"))
        return false; /* the largest of some numbers is no choice, nor is what a module was given */
    if (pair->partial && (is_part_of_rows(&pair->a) || is_part_of_rows(&pair->b)))
        return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(pair->name, words[i]))
            return true;
    return false;
}

static bool are_probabilities(const float *row, size_t width)
{
    double sum = 0;
    for (size_t i = 0; i < width; i++) {
        if (!(row[i] >= 0))
            return false;
        sum += (double)row[i];
    }
    return fabs(sum - 1) < 0.05;
}

/* Log-probabilities of a row. */
static void log_probabilities(const float *row, size_t width, bool probabilities, double *out)
{
    double largest = -INFINITY, sum = 0;
    for (size_t i = 0; i < width; i++)
        largest = (double)row[i] > largest ? (double)row[i] : largest;
    for (size_t i = 0; i < width; i++) {
        out[i] = probabilities ? log((double)row[i]) : (double)row[i] - largest;
        sum += exp(out[i]);
    }
    for (size_t i = 0; i < width; i++)
        out[i] -= log(sum);
}

/* How many entries stand above entry `at`. */
static size_t rank_of(const float *row, size_t width, size_t at)
{
    size_t above = 0;
    for (size_t i = 0; i < width; i++)
        above += row[i] > row[at] || (row[i] == row[at] && i < at);
    return above;
}

/* The indices of the largest entries, best first. */
static size_t largest_of(const float *row, size_t width, size_t best[TOP])
{
    size_t count = 0;
    for (size_t i = 0; i < width; i++) {
        size_t place = count;
        if (isnan(row[i]))
            continue;
        while (place > 0 && row[i] > row[best[place - 1]])
            place--;
        if (place >= TOP)
            continue;
        if (count < TOP)
            count++;
        memmove(best + place + 1, best + place, (count - place - 1) * sizeof *best);
        best[place] = i;
    }
    return count;
}

static void add_row(struct ts_ranking *ranking, const float *a, const float *b, size_t width, double *log_a,
                    double *log_b)
{
    size_t best_a[TOP], best_b[TOP], count_a = largest_of(a, width, best_a), count_b = largest_of(b, width, best_b),
                                     shared = 0;
    double divergence = 0;
    if (!count_a || !count_b)
        return;
    for (size_t i = 0; i < count_a; i++)
        for (size_t k = 0; k < count_b; k++)
            shared += best_a[i] == best_b[k];
    ranking->rows++;
    ranking->same_first += best_a[0] == best_b[0];
    ranking->top_overlap += (double)shared / (double)count_a;
    ranking->worst_rank = fmax(ranking->worst_rank, 1 + (double)rank_of(b, width, best_a[0]));
    log_probabilities(a, width, ranking->probabilities, log_a);
    log_probabilities(b, width, ranking->probabilities, log_b);
    for (size_t i = 0; i < width; i++) {
        double p = exp(log_a[i]);
        /* a candidate's exact zero is taken as the smallest f32: an infinite divergence says too little */
        if (p > 0)
            divergence += p * (log_a[i] - fmax(log_b[i], -103));
    }
    ranking->divergence += fmax(divergence, 0);
    ranking->max_divergence = fmax(ranking->max_divergence, divergence);
}

enum ts_status ts_ranking_measure(const struct ts_pair *pair, struct ts_ranking *ranking, struct ts_error *error)
{
    uint64_t width = pair->a.shape[pair->a.rank - 1], rows = pair->a.count / width;
    uint64_t step = pair->a.count <= MOST ? 1 : rows / MOST_ROWS + 1;
    float *a = malloc(width * 2 * sizeof *a), *b = a ? a + width : NULL;
    double *logs = malloc(width * 2 * sizeof *logs);
    enum ts_status status = a && logs ? TS_OK : ts_fail_memory(error);
    *ranking = (struct ts_ranking){0};
    for (uint64_t row = 0; row < rows && status == TS_OK; row += step) {
        if (atomic_load_explicit(&ts_cancelled, memory_order_relaxed)) {
            status = ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
            break;
        }
        status = ts_view_read_f32(&pair->a, row * width, (size_t)width, a, error);
        if (status == TS_OK)
            status = ts_view_read_f32(&pair->b, row * width, (size_t)width, b, error);
        if (status != TS_OK)
            break;
        if (row == 0)
            ranking->probabilities = are_probabilities(a, (size_t)width);
        add_row(ranking, a, b, (size_t)width, logs, logs + width);
    }
    if (status == TS_OK && ranking->rows > 0) {
        ranking->known = true;
        ranking->all_rows = (double)rows;
        ranking->same_first /= ranking->rows;
        ranking->top_overlap /= ranking->rows;
        ranking->divergence /= ranking->rows;
    }
    free(a);
    free(logs);
    return status;
}
