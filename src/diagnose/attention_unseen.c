/* Owns what can be said about attention of which nothing but the end was captured: which tokens are wrong, and whether
 * what differs between tokens grew or shrank. */
#include <stdlib.h>
#include <string.h>

#include "diagnose/variant.h"

/* No attention lies between this tensor and those before it. */
static bool is_before_or_beside(const char *name)
{
    static const char *const words[] = {"mlp", "ffn", "feed_forward", "router", "expert", "moe"};
    bool beside = ts_names_operand(name);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        beside = beside || (strstr(name, words[i]) && !ts_names_attention(name));
    return beside;
}

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

/* What lies between queries, keys and the output was not captured. Which tokens are wrong still tells something: the
 * first one sees only itself, so no angle, scale or softmax can spoil it; the last one sees all, so no missing mask
 * can.
 */
static void propose_by_position(struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor;
    size_t rows = actor->rows, onset = 0;
    double *levels = calloc(2 * rows, sizeof *levels), *sorted = levels ? levels + rows : NULL, middle, limit, all = 0;
    bool after = true, before = true;
    for (size_t i = 0; i < the_case->total; i++)
        all += isfinite(the_case->expected[i]) ? the_case->expected[i] * the_case->expected[i] / (double)rows : 0;
    for (size_t row = 0; row < rows && levels; row++) {
        double size = 0;
        for (size_t i = row * actor->width; i < (row + 1) * actor->width; i++)
            size += isfinite(the_case->expected[i]) ? the_case->expected[i] * the_case->expected[i] : 0;
        /* the first token is far larger than the others in many models: that alone makes no row agree */
        size = size < all ? size : all;
        levels[row] = size > 0 ? ts_rows_cost(the_case, the_case->expected, row, 1) / size : 0;
        sorted[row] = levels[row];
    }
    if (!levels || rows < 5) {
        free(levels);
        return;
    }
    qsort(sorted, rows, sizeof *sorted, by_value);
    middle = sorted[rows - rows / 4 - 1];
    limit = all > 0 ? 20 * the_case->noise / (all * (double)rows) : 0; /* rows that agree err as noise does */
    limit = limit > 1e-4 * middle ? limit : 1e-4 * middle;
    limit = limit < 0.04 * middle ? limit : 0.04 * middle;
    while (onset < rows && levels[onset] < limit)
        onset++;
    for (size_t row = onset; row < rows; row++)
        after = after && levels[row] > limit;
    /* of many tokens the last ones miss next to nothing */
    for (size_t row = 0; row + 1 < rows; row++)
        before = before && (levels[row] > limit ||
                            (!actor->whole && ts_case_row(the_case, row) > (uint64_t)actor->sequence * 3 / 4));
    if (onset == 1 && after)
        ts_propose_plain(
            the_case, "softmax", 0.5,
            "what is between queries, keys and probabilities: rotary angles, the scale, the softmax; capture "
            "them to see which",
            "the first token, which sees only itself, agrees, and every later one is wrong: attention "
            "weighs the tokens otherwise");
    else if (onset > 1 && after && rows - onset >= 3)
        ts_propose_plain(the_case, "mask", 0.4, "the sliding window, the mask, and the cache at this position",
                         "the first %zu tokens agree and all later ones are wrong: something that begins to matter at "
                         "position %zu, as a window of that length does",
                         (size_t)ts_case_row(the_case, onset), (size_t)ts_case_row(the_case, onset));
    else if (before && levels[rows - 1] < limit)
        ts_propose_plain(the_case, "mask", 0.5, "whether the causal mask is applied",
                         "only the last token, which sees all others anyway, agrees: the others see tokens ahead of "
                         "them");
    free(levels);
}

/* Attention with another temperature, seen from outside: near uniform probabilities, what differs between tokens grows
 * with the scale of the scores, while the mean over tokens moves little. */
static void propose_contrast(struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor;
    double dot = 0, expected_size = 0, found_size = 0, mean_dot = 0, mean_expected = 0, mean_found = 0, factor, left,
           all;
    if (actor->rows < 5 || !ts_names_attention(ts_case_name(the_case, actor)))
        return;
    for (size_t i = 0; i < actor->width; i++) {
        double expected = 0, found = 0;
        for (size_t row = 0; row < actor->rows; row++) {
            expected += the_case->expected[row * actor->width + i] / (double)actor->rows;
            found += the_case->found[row * actor->width + i] / (double)actor->rows;
        }
        mean_dot += expected * found;
        mean_expected += expected * expected;
        mean_found += found * found;
        for (size_t row = 0; row < actor->rows; row++) {
            double x = the_case->expected[row * actor->width + i] - expected;
            double y = the_case->found[row * actor->width + i] - found;
            dot += x * y;
            expected_size += x * x;
            found_size += y * y;
        }
    }
    factor = expected_size > 0 ? dot / expected_size : 1;
    all = found_size + expected_size - 2 * dot;
    left = found_size - factor * dot;
    if (!(all > 0) || !isfinite(factor) || (factor > 0.8 && factor < 1.25) || factor < 0.1 || 1 - left / all < 0.5 ||
        mean_dot < 0.9 * sqrt(mean_expected * mean_found))
        return;
    ts_propose_plain(the_case, "softmax", 0.55,
                     "the scale of the scores: 1 / sqrt(head size) left out or applied twice, a temperature",
                     "what differs between tokens is about %.3g times the reference's, around much the same mean: "
                     "attention is %s",
                     factor, factor > 1 ? "sharper" : "flatter");
}

void ts_propose_unseen_attention(struct ts_case *the_case)
{
    if (!is_before_or_beside(ts_case_name(the_case, the_case->actor)))
        propose_by_position(the_case);
    propose_contrast(the_case);
}
