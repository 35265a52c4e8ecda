/* Owns what can be said about attention of which nothing but the end was captured: which tokens are wrong, and whether
 * what differs between tokens grew or shrank. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/ordered.h"
#include "diagnose/formula.h"
#include "diagnose/variant.h"
#include "tensor/layer.h"

#define FEWEST_ROWS 3
#define ENOUGH_ROWS 5    /* to say that all agree but one */
#define NEARLY      0.2  /* of the tokens may be otherwise, where nearly all are said to be so */
#define SPARED      0.04 /* of what others err by, in energy */
#define NO_ROW      1e-4 /* of what rows have in the mean, in energy */
#define ALIKE       4.0  /* rows that noise alone made differ by less, in energy */
#define AT_ONCE     0.4  /* the least that one key counts for, times the number of keys */
#define RISING_ROWS 16
#define RISES       2.0
#define MASKED      1000.0 /* scores are smaller */

/* No attention lies between this tensor and those before it. */
static bool is_before_or_beside(const char *name)
{
    static const char *const words[] = {"mlp", "ffn",   "feed_forward", "router", "expert",
                                        "moe", "embed", "embd",         "wte",    "wpe"};
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
    bool nearly;        /* not all others, but most */
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
    const struct position *position = formula->numbers;
    const double unlike = tally->sums[UNLIKE] / fmax(tally->sums[TOKENS], 1);
    (void)the_case;
    *share *= position->nearly && unlike > NEARLY ? 0 : 1 - unlike;
    return NULL;
}

/* How wrong each row is. */
struct levels {
    const double *of;
    size_t rows;
    double limit; /* rows that agree err by less, as noise does */
};

/* Of rows from `first` on, what nine in ten err by and more; the least of a few. */
static double nearly_all(const struct levels *levels, size_t first, size_t end, double *scratch)
{
    memcpy(scratch, levels->of + first, (end - first) * sizeof *scratch);
    return ts_nth(scratch, end - first, (end - first) / 10);
}

/* The first `onset` rows agree because nothing of what they need is missing: alike, as noise is, and the next ones lack
 * one key of a few, which counts. Angles and scales make more of an error the more keys there are, and the further. */
static bool begins_at_once(const struct levels *levels, size_t onset, double *scratch)
{
    const double step = AT_ONCE / (double)(onset + 1);
    double calm, most = 0, usual;
    memcpy(scratch, levels->of, onset * sizeof *scratch);
    calm = ts_nth(scratch, onset, (onset - 1) / 2);
    for (size_t row = 0; row < onset; row++)
        most = levels->of[row] > most ? levels->of[row] : most;
    memcpy(scratch, levels->of + onset, (levels->rows - onset) * sizeof *scratch);
    usual = ts_nth(scratch, levels->rows - onset, (levels->rows - onset) / 2);
    return most <= ALIKE * calm && levels->of[onset] >= step * step * usual;
}

/* The first row errs far less than the others, whatever noise there is: than nearly all of them, or than nearly all of
 * the later ones while the early ones err the more the later they stand. */
static bool spares_the_first(const struct levels *levels, double *scratch)
{
    const size_t rows = levels->rows, early = rows / 4;
    double halves[2] = {0, 0};
    if (levels->of[0] < SPARED * nearly_all(levels, 1, rows, scratch))
        return true;
    if (rows < RISING_ROWS || levels->of[0] >= SPARED * nearly_all(levels, early, rows, scratch))
        return false;
    for (size_t row = 0; row < early / 2 * 2; row++)
        halves[row >= early / 2] += levels->of[row];
    return halves[1] > RISES * halves[0];
}

/* The last token agrees, and those before it do not. Of a long sequence, of which some rows are at hand, the very last
 * ones miss next to nothing. */
static bool spares_the_last(const struct ts_case *the_case, const struct levels *levels, double *scratch)
{
    const size_t rows = levels->rows;
    const uint64_t late = (uint64_t)the_case->actor->sequence * 3 / 4;
    const double last = levels->of[rows - 1];
    size_t wrong = 0, first_late = rows - 1;
    if (ts_case_row(the_case, rows - 1) + 1 != (uint64_t)the_case->actor->sequence)
        return false;
    for (size_t row = 0; row + 1 < rows; row++) {
        bool is_late = !the_case->actor->whole && ts_case_row(the_case, row) > late;
        wrong += levels->of[row] > levels->limit || is_late;
        first_late = is_late && row < first_late ? row : first_late;
    }
    if (last < levels->limit && wrong == rows - 1)
        return true;
    return last < SPARED * nearly_all(levels, 0, first_late, scratch);
}

enum found { NOTHING, FIRST_AGREES, FIRST_SPARED, WINDOW, LAST_SPARED };

/* The first row is there to agree: it was not routed otherwise, and is no zero. */
static bool has_first(const struct ts_case *the_case, double mean)
{
    double size = 0;
    for (size_t i = 0; i < the_case->actor->width; i++)
        size += isfinite(the_case->expected[i]) ? the_case->expected[i] * the_case->expected[i] : 0;
    return !ts_case_aside(the_case, 0) && size > NO_ROW * mean;
}

static enum found find_position(const struct ts_case *the_case, const struct levels *levels, double mean,
                                double *scratch, size_t *onset)
{
    const size_t rows = levels->rows;
    const bool first = has_first(the_case, mean);
    bool after = true;
    *onset = 0;
    while (*onset < rows && levels->of[*onset] < levels->limit)
        ++*onset;
    for (size_t row = *onset; row < rows; row++)
        after = after && levels->of[row] > levels->limit;
    if (rows >= ENOUGH_ROWS && *onset == 1 && after && first)
        return FIRST_AGREES;
    if (rows >= ENOUGH_ROWS && *onset > 1 && after && rows - *onset >= 3)
        return *onset > rows / 4 || begins_at_once(levels, *onset, scratch) ? WINDOW : first ? FIRST_SPARED : NOTHING;
    if (rows >= ENOUGH_ROWS && spares_the_last(the_case, levels, scratch))
        return LAST_SPARED;
    return first && spares_the_first(levels, scratch) ? FIRST_SPARED : NOTHING;
}

/* Scores of the first token with all others, that no mask hides: what lies between queries, keys and these tells it
 * from other tokens by its angle alone, which is 0. */
static bool is_of_all_keys(const struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor;
    size_t seen = 0;
    if (actor->inner != actor->sequence || !strstr(ts_case_name(the_case, actor), "score"))
        return false;
    for (size_t i = 0; i < actor->width; i++)
        seen += fabs(the_case->expected[i]) < MASKED && fabs(the_case->found[i]) < MASKED;
    return seen == actor->width;
}

static void say_first_spared(struct ts_case *the_case, bool alone)
{
    const char *how = alone ? "agrees and every later one is wrong" : "errs far less than nearly all later ones";
    if (is_of_all_keys(the_case))
        ts_propose_plain(the_case, "rotation", alone ? 0.6 : 0.5,
                         "the rotary angles of the queries: base, sign, pairs; capture queries before and after",
                         "the first token, which no angle turns, %s, whichever key it looks at: the queries are turned "
                         "otherwise",
                         how);
    else if (is_of_a_scan(the_case))
        ts_propose_plain(
            the_case, "rows", alone ? 0.5 : 0.4,
            "what carries information from token to token: the scan or recurrence, its inputs and its state",
            "the first token %s: the candidate carries earlier tokens on differently", how);
    else
        ts_propose_plain(the_case, "softmax", alone ? 0.5 : 0.4,
                         "the steps from queries and keys to probabilities: rotary angles, scale, softmax; capture "
                         "them to see which",
                         "the first token, which sees only itself, %s: the candidate's attention weights differ", how);
}

/* What lies between queries, keys and the output was not captured. Which tokens are wrong still tells something: the
 * first one sees only itself, so no angle, scale or softmax can spoil it; the last one sees all, so no missing mask
 * can. True when the last one agrees and no other: then the scores of both sides are the same.
 */
static bool propose_by_position(struct ts_case *the_case)
{
    const size_t rows = the_case->actor->rows;
    double *of = calloc(2 * rows + 1, sizeof *of), *scratch = of ? of + rows : NULL, middle, all = 0;
    struct levels levels = {.of = of, .rows = rows};
    struct position position;
    enum found found;
    size_t onset;
    if (!of || rows < FEWEST_ROWS) {
        free(of);
        return false;
    }
    for (size_t i = 0; i < the_case->total; i++)
        all += isfinite(the_case->expected[i]) ? the_case->expected[i] * the_case->expected[i] / (double)rows : 0;
    for (size_t row = 0; row < rows; row++)
        scratch[row] = of[row] = level_of(the_case, row, all);
    middle = ts_nth(scratch, rows, rows - rows / 4 - 1);
    levels.limit = all > 0 ? 20 * the_case->noise / (all * (double)rows) : 0; /* rows that agree err as noise does */
    levels.limit = fmin(fmax(levels.limit, 1e-4 * middle), SPARED * middle);
    found = find_position(the_case, &levels, all, scratch, &onset);
    position.mean = all;
    position.limit = levels.limit;
    position.onset = ts_case_row(the_case, found == WINDOW || found == FIRST_AGREES ? onset : 1);
    position.sees_ahead = found == LAST_SPARED;
    position.nearly = found == FIRST_SPARED;
    if (position.nearly)
        position.limit = fmax(levels.limit, 2 * of[0]);
    position.late = (uint64_t)the_case->actor->sequence * 3 / 4;
    position.last = (uint64_t)the_case->actor->sequence - 1;
    if (found != NOTHING)
        ts_formula_next(the_case, &(struct ts_formula){.count = count_positions,
                                                       .tell = tell_positions,
                                                       .numbers = &position,
                                                       .size = sizeof position});
    if (found == FIRST_AGREES || found == FIRST_SPARED)
        say_first_spared(the_case, found == FIRST_AGREES);
    else if (found == WINDOW)
        ts_propose_plain(the_case, "mask", 0.4, "the sliding window, the mask, and the cache at this position",
                         "the first %zu tokens agree and all later ones are wrong: something starts to matter at "
                         "position %zu, such as a sliding window of that length",
                         (size_t)position.onset, (size_t)position.onset);
    else if (found == LAST_SPARED)
        ts_propose_plain(the_case, "mask", 0.5, "whether the causal mask is applied",
                         "only the last token agrees: it sees all tokens anyway, while the others see tokens ahead of "
                         "them on one side only");
    free(of);
    return found == LAST_SPARED;
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

/* Values that grew took the mean along; sharper probabilities leave it where it was. */
static bool keeps_the_mean(double of_mean, double factor)
{
    return of_mean > 0 && fabs(log(of_mean)) < 0.5 * fabs(log(factor));
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
    if (factor > 0 && dot >= 0.9 * sqrt(expected * found) && keeps_the_mean(dot / expected, factor)) {
        ts_formula_next(the_case, &formula);
        /* one factor that explains all of it says more than two numbers for each channel */
        ts_propose_plain(the_case, "softmax", CONTRAST_LEAST + CONTRAST_MORE * share,
                         "the scale of the scores: 1 / sqrt(head_dim) left out or applied twice, or a temperature",
                         "%s", contrast_text(the_case, factor));
    }
    free(means);
}

/* More follows it, nothing comes before it, and its name tells of no layer: nothing was made of it yet. */
static bool begins_the_trace(const struct ts_case *the_case)
{
    const char *name = ts_case_name(the_case, the_case->actor);
    uint64_t layer;
    return !the_case->actor->pair && ts_case_pair_count(the_case) > 1 && !ts_names_attention(name) &&
           !ts_layer_of(name, &layer);
}

void ts_propose_unseen_attention(struct ts_case *the_case)
{
    /* another temperature would change the last token as well */
    if (is_before_or_beside(ts_case_name(the_case, the_case->actor)) || begins_the_trace(the_case) ||
        !propose_by_position(the_case))
        propose_contrast(the_case);
}
