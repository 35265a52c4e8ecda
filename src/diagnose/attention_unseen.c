/* Owns what can be said about attention of which nothing but the end was captured: which tokens are wrong, and whether
 * what differs between tokens grew or shrank. */
#include <stdlib.h>
#include <string.h>

#include "base/ordered.h"
#include "diagnose/formula.h"
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

static bool has_word(const char *name, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strstr(name, words[i]))
            return true;
    return false;
}

/* Names before it tell of a scan or a recurrence, which carry tokens on as well, and none of attention. */
static bool is_of_a_scan(const struct ts_case *the_case)
{
    static const char *const attention[] = {"attn", "attention", "Attention", "qkv", "kqv", "score", "prob"};
    static const char *const scans[] = {"ssm",  "mamba", "Mamba", "scan", "dt_proj", "x_proj",   "conv1d",
                                        "lstm", "gru",   "rnn",   "wkv",  "rwkv",    "time_mix", "mixer"};
    size_t newest = the_case->actor->pair;
    bool scan = false;
    for (size_t back = 0; back < TS_SCENE_WINDOW && back <= newest; back++) {
        const char *name = the_case->scene->pairs[newest - back].name;
        /* runs of llama.cpp call every first norm that of attention */
        if (ts_names_operand(name) ||
            (has_word(name, attention, sizeof attention / sizeof *attention) && !strstr(name, "norm")))
            return false;
        scan = scan || has_word(name, scans, sizeof scans / sizeof *scans);
    }
    return scan;
}

/* Which tokens agree and which are wrong. */
struct position {
    double mean, limit; /* size of a row, and what one that agrees errs by, of its own size */
    uint64_t onset;     /* those before it agree, and all others are wrong */
    bool sees_ahead;    /* or: all are wrong but the last; those from `late` on may agree */
    uint64_t late, last;
};

enum { TOKENS, UNLIKE };

/* How wrong a row is, over its size. The first token is far larger than the others in many models: that alone makes no
 * row agree. */
static double level_of(const struct ts_case *the_case, size_t row, double mean)
{
    size_t width = the_case->actor->width;
    double size = 0;
    for (size_t i = row * width; i < (row + 1) * width; i++)
        size += isfinite(the_case->expected[i]) ? the_case->expected[i] * the_case->expected[i] : 0;
    size = size < mean ? size : mean;
    return size > 0 ? ts_rows_cost(the_case, the_case->expected, row, 1) / size : 0;
}

static bool count_positions(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                            struct ts_tally *tally)
{
    const struct position *position = formula->numbers;
    (void)out;
    for (size_t row = 0; row < the_case->actor->rows; row++) {
        uint64_t token = ts_case_row(the_case, row);
        bool wrong = level_of(the_case, row, position->mean) > position->limit;
        bool right = position->sees_ahead ? token == position->last : token < position->onset;
        tally->sums[TOKENS]++;
        tally->sums[UNLIKE] += wrong == right && !(position->sees_ahead && !wrong && token > position->late);
    }
    return true;
}

static const char *tell_positions(struct ts_case *the_case, const struct ts_formula *formula,
                                  const struct ts_tally *tally, double *share)
{
    (void)the_case;
    (void)formula;
    *share *= 1 - tally->sums[UNLIKE] / fmax(tally->sums[TOKENS], 1);
    return NULL;
}

/* What lies between queries, keys and the output was not captured. Which tokens are wrong still tells something: the
 * first one sees only itself, so no angle, scale or softmax can spoil it; the last one sees all, so no missing mask
 * can. True when the last one agrees and no other: then the scores of both sides are the same.
 */
static bool propose_by_position(struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor;
    size_t rows = actor->rows, onset = 0;
    double *levels = calloc(2 * rows, sizeof *levels), *sorted = levels ? levels + rows : NULL, middle, limit, all = 0;
    bool after = true, before = true, last = false;
    struct position position;
    for (size_t i = 0; i < the_case->total; i++)
        all += isfinite(the_case->expected[i]) ? the_case->expected[i] * the_case->expected[i] / (double)rows : 0;
    for (size_t row = 0; row < rows && levels; row++)
        sorted[row] = levels[row] = level_of(the_case, row, all);
    if (!levels || rows < 5) {
        free(levels);
        return false;
    }
    middle = ts_nth(sorted, rows, rows - rows / 4 - 1);
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
    position.mean = all;
    position.limit = limit;
    position.onset = ts_case_row(the_case, onset < rows ? onset : rows - 1);
    position.late = (uint64_t)actor->sequence * 3 / 4;
    position.last = (uint64_t)actor->sequence - 1;
    position.sees_ahead = !(onset >= 1 && after);
    if ((onset == 1 && after) || (onset > 1 && after && rows - onset >= 3) || (before && levels[rows - 1] < limit))
        ts_formula_next(the_case, &(struct ts_formula){.count = count_positions,
                                                       .tell = tell_positions,
                                                       .numbers = &position,
                                                       .size = sizeof position});
    if (onset == 1 && after && is_of_a_scan(the_case))
        ts_propose_plain(
            the_case, "rows", 0.5,
            "what carries information from token to token: the scan or recurrence, its inputs and its state",
            "the first token agrees and every later one is wrong: the candidate carries earlier tokens on differently");
    else if (onset == 1 && after)
        ts_propose_plain(the_case, "softmax", 0.5,
                         "the steps from queries and keys to probabilities: rotary angles, scale, softmax; capture "
                         "them to see which",
                         "the first token, which sees only itself, agrees and every later one is wrong: the "
                         "candidate's attention weights differ");
    else if (onset > 1 && after && rows - onset >= 3)
        ts_propose_plain(the_case, "mask", 0.4, "the sliding window, the mask, and the cache at this position",
                         "the first %zu tokens agree and all later ones are wrong: something starts to matter at "
                         "position %zu, such as a sliding window of that length",
                         (size_t)ts_case_row(the_case, onset), (size_t)ts_case_row(the_case, onset));
    else if ((last = before && levels[rows - 1] < limit))
        ts_propose_plain(the_case, "mask", 0.5, "whether the causal mask is applied",
                         "only the last token agrees: it sees all tokens anyway, while the others see tokens ahead of "
                         "them on one side only");
    free(levels);
    return last;
}

/* How sure it is, and how much surer where it explains all. */
#define CONTRAST_LEAST 0.35
#define CONTRAST_MORE  0.4

/* Slots of a tally: products of what differs between tokens, on both sides. */
enum { DOT, EXPECTED, FOUND };

/* The table: the mean of each channel over tokens, expected and found. */
static bool count_contrast(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                           struct ts_tally *tally)
{
    size_t width = the_case->actor->width;
    (void)out;
    if (formula->table_count != 2 * width)
        return false;
    for (size_t i = 0; i < the_case->total; i++) {
        double x = the_case->expected[i] - formula->table[i % width];
        double y = the_case->found[i] - formula->table[width + i % width];
        if (!isfinite(x) || !isfinite(y))
            continue;
        tally->sums[DOT] += x * y;
        tally->sums[EXPECTED] += x * x;
        tally->sums[FOUND] += y * y;
    }
    return true;
}

/* The factor on what differs between tokens, and what share of the change it explains; 0 when it is none that does. */
static double contrast_of(const struct ts_tally *tally, double *share)
{
    double dot = tally->sums[DOT], expected = tally->sums[EXPECTED], found = tally->sums[FOUND];
    double factor = expected > 0 ? dot / expected : 1, all = found + expected - 2 * dot, left = found - factor * dot;
    *share = all > 0 ? 1 - left / all : 0;
    if (!(*share >= 0.5) || !isfinite(factor) || (factor > 0.8 && factor < 1.25) || factor < 0.1)
        return 0;
    return factor;
}

static const char *contrast_text(struct ts_case *the_case, double factor)
{
    return ts_case_text(the_case,
                        "the tokens differ from each other about %.3g times as much as in the reference, around nearly "
                        "the same mean: the candidate's attention is %s",
                        factor, factor > 1 ? "sharper" : "flatter");
}

static const char *tell_contrast(struct ts_case *the_case, const struct ts_formula *formula,
                                 const struct ts_tally *tally, double *share)
{
    double explained, factor = contrast_of(tally, &explained);
    (void)formula;
    *share = factor > 0 ? *share : 0;
    return factor > 0 ? contrast_text(the_case, factor) : NULL;
}

/* Attention with another temperature, seen from outside: near uniform probabilities, what differs between tokens grows
 * with the scale of the scores, while the mean over tokens moves little. */
static void propose_contrast(struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor;
    size_t width = actor->width;
    double *means, dot = 0, expected = 0, found = 0, factor, share;
    struct ts_formula formula = {.count = count_contrast, .tell = tell_contrast, .table_count = 2 * width};
    struct ts_tally tally;
    if (actor->rows < 5 || !ts_names_attention(ts_case_name(the_case, actor)) ||
        !(means = calloc(2 * width, sizeof *means)))
        return;
    for (size_t i = 0; i < the_case->total; i++) {
        means[i % width] += the_case->expected[i] / (double)actor->rows;
        means[width + i % width] += the_case->found[i] / (double)actor->rows;
    }
    for (size_t i = 0; i < width; i++) {
        dot += means[i] * means[width + i];
        expected += means[i] * means[i];
        found += means[width + i] * means[width + i];
    }
    formula.table = means;
    ts_tally_open(&tally);
    (void)count_contrast(the_case, &formula, NULL, &tally);
    factor = contrast_of(&tally, &share);
    if (factor > 0 && dot >= 0.9 * sqrt(expected * found)) {
        ts_formula_next(the_case, &formula);
        /* one factor that explains all of it says more than two numbers for each channel */
        ts_propose_plain(the_case, "softmax", CONTRAST_LEAST + CONTRAST_MORE * share,
                         "the scale of the scores: 1 / sqrt(head_dim) left out or applied twice, or a temperature",
                         "%s", contrast_text(the_case, factor));
    }
    free(means);
}

void ts_propose_unseen_attention(struct ts_case *the_case)
{
    /* another temperature would change the last token as well */
    if (is_before_or_beside(ts_case_name(the_case, the_case->actor)) || !propose_by_position(the_case))
        propose_contrast(the_case);
}
