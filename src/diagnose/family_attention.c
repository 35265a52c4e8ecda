/* Attention: the mask, the softmax (temperature, axis, what is missing of it). Which key and value heads serve which
 * query heads is asked in attention_heads.c. */
#include <stdlib.h>
#include <string.h>

#include "diagnose/attention_long.h"
#include "diagnose/variant.h"

#define WORTHWHILE 0.3
/* Of this tensor's error, what one that agrees may have. */
#define AGREES 0.2

/* Which keys each query may see: [rows, keys]. */
struct mask {
    size_t rows, keys;
    unsigned char *allowed;
    size_t *at; /* which token each row is */
};

static void mask_close(struct mask *mask)
{
    free(mask->allowed);
    free(mask->at);
}

static bool mask_open(struct mask *mask, const struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor;
    *mask = (struct mask){.rows = actor->rows, .keys = actor->inner};
    mask->allowed = calloc(actor->rows * actor->inner + 1, 1);
    mask->at = calloc(actor->rows + 1, sizeof *mask->at);
    for (size_t row = 0; row < actor->rows && mask->at; row++)
        mask->at[row] = (size_t)ts_case_row(the_case, row);
    return mask->allowed && mask->at;
}

/* Keys from row - window + 1 to row + shift; window 0: all before. */
static void mask_band(struct mask *mask, long window, long shift)
{
    for (size_t row = 0; row < mask->rows; row++)
        for (size_t key = 0; key < mask->keys; key++) {
            long distance = (long)mask->at[row] - (long)key;
            mask->allowed[row * mask->keys + key] = distance >= -shift && (window <= 0 || distance < window);
        }
}

/* A row that sees nothing cannot be: what it does then is up to the program, and taken as it is. */
static void mask_fill_empty(struct mask *mask, const struct mask *found)
{
    for (size_t row = 0; row < mask->rows; row++)
        if (!memchr(mask->allowed + row * mask->keys, 1, mask->keys))
            memcpy(mask->allowed + row * mask->keys, found->allowed + row * mask->keys, mask->keys);
}

/* The mask that values show, in any head. `scores`: masked are those far below zero; else those that are zero. */
static void mask_read(struct mask *mask, const struct ts_actor *actor, const float *values, bool scores)
{
    memset(mask->allowed, 0, mask->rows * mask->keys);
    for (size_t row = 0; row < mask->rows; row++)
        for (size_t head = 0; head < actor->heads; head++)
            for (size_t key = 0; key < mask->keys; key++) {
                float value = values[row * actor->width + head * actor->inner + key];
                if (scores ? ts_is_allowed((double)value) : value > 0)
                    mask->allowed[row * mask->keys + key] = 1;
            }
}

static size_t mask_differences(const struct mask *a, const struct mask *b)
{
    size_t count = 0;
    for (size_t i = 0; i < a->rows * a->keys; i++)
        count += a->allowed[i] != b->allowed[i];
    return count;
}

/* The band that fits best: how far ahead most rows see, and how far back the later ones do, unless others see the first
 * key from further away. */
static void mask_describe(const struct mask *mask, long *window, long *shift)
{
    long ahead = 0, reach = 0;
    size_t votes = 0;
    *window = 0;
    *shift = (long)mask->keys;
    for (size_t row = 0; row < mask->rows; row++) {
        long last = -1, first = -1, before = 0;
        size_t same = 0;
        for (size_t key = 0; key < mask->keys; key++)
            if (mask->allowed[row * mask->keys + key]) {
                last = (long)key;
                first = first < 0 ? (long)key : first;
            }
        if (first > 0 && (long)mask->at[row] - first + 1 > *window)
            *window = (long)mask->at[row] - first + 1;
        if (first == 0 && (long)mask->at[row] + 1 > reach)
            reach = (long)mask->at[row] + 1;
        if (last < 0 || last + 1 == (long)mask->keys) /* sees to the end: that tells nothing about how far */
            continue;
        before = last - (long)mask->at[row];
        for (size_t other = 0; other < mask->rows; other++) {
            size_t key = mask->at[other] + (size_t)before;
            if (key < mask->keys && mask->allowed[other * mask->keys + key] &&
                (key + 1 == mask->keys || !mask->allowed[other * mask->keys + key + 1]))
                same++;
        }
        if (same > votes) {
            votes = same;
            ahead = before;
        }
    }
    if (reach > *window)
        *window = 0;
    if (votes)
        *shift = ahead;
    if (!votes && mask->rows) { /* everything ahead is visible; is everything behind? */
        size_t row = mask->rows - 1, key = 0;
        while (key < mask->keys && !mask->allowed[row * mask->keys + key])
            key++;
        *window = key > 0 && key < mask->keys ? (long)(mask->at[row] - key) + 1 : 0;
    }
}

static const char *mask_text(struct ts_case *the_case, long window, long shift, size_t keys)
{
    const char *back =
        window > 0 ? ts_case_text(the_case, ", at most %ld tokens back (a window of %ld)", window - 1, window) : "";
    if (shift >= (long)keys - 1)
        return ts_case_text(the_case, "each token sees every token%s", back);
    if (shift == 0)
        return ts_case_text(the_case, "each token sees itself and the tokens before it%s", back);
    if (shift > 0)
        return ts_case_text(the_case, "each token sees %ld token%s ahead%s", shift, shift == 1 ? "" : "s", back);
    if (shift == -1)
        return ts_case_text(the_case, "each token sees the tokens before it but not itself%s", back);
    return ts_case_text(the_case, "each token sees only tokens at least %ld before it%s", -shift, back);
}

/* Where two masks that are the same band differ first: a stretch of keys. */
static const char *first_difference(struct ts_case *the_case, const struct mask *a, const struct mask *b)
{
    for (size_t i = 0; i < a->rows * a->keys; i++)
        if (a->allowed[i] != b->allowed[i]) {
            size_t row = i / a->keys, key = i % a->keys, end = key;
            while (end + 1 < a->keys && a->allowed[row * a->keys + end + 1] != b->allowed[row * a->keys + end + 1])
                end++;
            return ts_case_text(the_case, ": from token %zu on, keys %zu to %zu are %s in the candidate", a->at[row],
                                key, end, b->allowed[i] ? "visible" : "masked");
        }
    return "";
}

enum way {
    OVER_KEYS,
    OVER_QUERIES,
    OVER_HEADS,
    UNNORMALIZED,
    SIGMOIDS,
    ONE_MORE,       /* an extra 1 in the denominator */
    ONE_MORE_BELOW, /* the same after the largest score was subtracted */
    UNNORMALIZED_BELOW,
    AS_THEY_ARE, /* no softmax at all: nothing where the mask hides */
    MASKED_LATE  /* the mask comes after the softmax */
};

struct soft {
    enum way way;
    double factor; /* on the scores */
    double cap;    /* cap * tanh(score / cap) when above 0 */
    const struct mask *mask;
    const double *sinks; /* per head, one more score that nothing is taken of; or NULL */
};

/* Exponentials of one lane of scores, `stride` apart, then their normalization. */
static void soft_lane(const struct soft *soft, const double *sink, double *lane, size_t count, size_t stride)
{
    double largest = -INFINITY, sum = 0;
    for (size_t i = 0; i < count; i++)
        largest = lane[i * stride] > largest ? lane[i * stride] : largest;
    if (largest == -INFINITY) { /* nothing to see: additive masks leave a uniform row */
        for (size_t i = 0; i < count; i++)
            lane[i * stride] = 1 / (double)count;
        return;
    }
    for (size_t i = 0; i < count; i++) {
        lane[i * stride] = exp(lane[i * stride] - (soft->way == UNNORMALIZED ? 0 : largest));
        sum += lane[i * stride];
    }
    sum += sink ? exp(*sink - largest) : 0;
    if (soft->way == ONE_MORE || soft->way == ONE_MORE_BELOW)
        sum += soft->way == ONE_MORE ? exp(-largest) : 1;
    for (size_t i = 0; i < count && soft->way != UNNORMALIZED && soft->way != UNNORMALIZED_BELOW; i++)
        lane[i * stride] /= sum;
}

static void soft_fill(const struct ts_actor *actor, const struct soft *soft, const double *scores, double *out)
{
    size_t keys = actor->inner;
    for (size_t at = 0; at < actor->rows * actor->width; at++) {
        size_t row = at / actor->width, key = at % keys;
        double score = scores[at] * soft->factor;
        if (soft->cap > 0)
            score = soft->cap * tanh(score / soft->cap);
        if (!ts_is_allowed(scores[at]) || (soft->way != MASKED_LATE && !soft->mask->allowed[row * keys + key]))
            score = -INFINITY;
        out[at] = soft->way == SIGMOIDS                            ? 1 / (1 + exp(-score))
                  : soft->way == AS_THEY_ARE && score == -INFINITY ? 0
                                                                   : score;
    }
    if (soft->way == OVER_QUERIES)
        for (size_t i = 0; i < actor->width; i++)
            soft_lane(soft, NULL, out + i, actor->rows, actor->width);
    else if (soft->way == OVER_HEADS)
        for (size_t row = 0; row < actor->rows; row++)
            for (size_t key = 0; key < keys; key++)
                soft_lane(soft, NULL, out + row * actor->width + key, actor->heads, keys);
    else if (soft->way != SIGMOIDS && soft->way != AS_THEY_ARE)
        for (size_t start = 0; start < actor->rows * actor->width; start += keys)
            soft_lane(soft, soft->sinks ? &soft->sinks[start / keys % actor->heads] : NULL, out + start, keys, 1);
    /* where the mask hides a whole lane, or comes last, hidden is zero all the same */
    for (size_t at = 0; at < actor->rows * actor->width; at++)
        if ((soft->way == MASKED_LATE || soft->way == OVER_QUERIES || soft->way == OVER_HEADS) &&
            !soft->mask->allowed[at / actor->width * keys + at % keys])
            out[at] = 0;
}

/* Slope of the logarithm of what was found against the scores, within each row. */
static double find_temperature(const struct ts_case *the_case, const double *scores)
{
    const struct ts_actor *actor = the_case->actor;
    double upper = 0, lower = 0;
    for (size_t start = 0; start < the_case->total; start += actor->inner) {
        double mean_score = 0, mean_log = 0;
        size_t count = 0;
        for (size_t i = start; i < start + actor->inner; i++)
            if (the_case->found[i] > 1e-30 && ts_is_allowed(scores[i])) {
                mean_score += scores[i];
                mean_log += log(the_case->found[i]);
                count++;
            }
        if (count < 2)
            continue;
        mean_score /= (double)count;
        mean_log /= (double)count;
        for (size_t i = start; i < start + actor->inner; i++)
            if (the_case->found[i] > 1e-30 && ts_is_allowed(scores[i])) {
                upper += (scores[i] - mean_score) * (log(the_case->found[i]) - mean_log);
                lower += (scores[i] - mean_score) * (scores[i] - mean_score);
            }
    }
    return lower > 0 ? upper / lower : 1;
}

/* "4 = sqrt(16), 16 numbers per head", where the factor is one of those that attention knows. */
static const char *factor_text(struct ts_case *the_case, double factor)
{
    for (size_t back = 1; back < 12 && back <= the_case->actor->pair; back++) {
        const struct ts_actor *q = ts_scene_actor(the_case->scene, the_case->actor->pair - back);
        double root;
        if (!q || q->heads != the_case->actor->heads || q->heads < 2 || q->rows != the_case->actor->rows ||
            q->inner == the_case->actor->inner)
            continue;
        root = sqrt((double)q->inner);
        if (fabs(factor / root - 1) < 0.02)
            return ts_case_text(the_case, " = sqrt(%zu), the root of head_dim", q->inner);
        if (fabs(factor * root - 1) < 0.02)
            return ts_case_text(the_case, " = 1 / sqrt(%zu), from head_dim", q->inner);
        return "";
    }
    return "";
}

/* What a claim about masks or softmaxes says of any row. */
struct band {
    long window, shift;
    bool used;  /* else the mask is the reference's, */
    bool found; /* or what the candidate's own rows show */
    struct soft soft;
};

/* The mask of some rows; to be closed. */
static bool band_open(struct mask *mask, const struct band *band, const struct ts_case *the_case, bool scores)
{
    if (!mask_open(mask, the_case))
        return false;
    if (band->used)
        mask_band(mask, band->window, band->shift);
    else
        mask_read(mask, the_case->actor, band->found ? the_case->actor->b : the_case->actor->a, scores);
    return true;
}

/* Scores as they are without any mask, straight from queries and keys, or as they were captured. */
static bool bare_scores(struct ts_case *the_case, double *out)
{
    struct ts_operation product = the_case->operation;
    struct ts_actor bare = *the_case->actor;
    struct ts_variants variants;
    bool captured = product.kind == TS_OPERATION_SOFTMAX && product.input_count == 1;
    if (!ts_variants_open(&variants, the_case, &the_case->operation))
        return false;
    product.kind = TS_OPERATION_SCORES;
    if (the_case->operation.kind == TS_OPERATION_SCORES)
        bare.a = calloc(the_case->total, sizeof *bare.a);
    if (captured)
        memcpy(out, variants.inputs[0], the_case->total * sizeof *out);
    else if (bare.a)
        ts_operation_apply(the_case->scene, &product, &bare, variants.inputs, out);
    if (bare.a != the_case->actor->a)
        free(bare.a);
    ts_variants_close(&variants);
    return captured || bare.a;
}

static bool predict_masked(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct band *band = formula->numbers;
    const struct ts_actor *actor = the_case->actor;
    struct mask mask = {0};
    bool good = band_open(&mask, band, the_case, true) && bare_scores(the_case, out);
    for (size_t at = 0; at < the_case->total && good; at++)
        if (!mask.allowed[at / actor->width * actor->inner + at % actor->inner])
            out[at] = -(double)INFINITY;
    mask_close(&mask);
    return good;
}

static bool predict_soft(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct band *band = formula->numbers;
    struct soft soft = band->soft;
    struct mask mask = {0};
    double *scores = malloc(the_case->total * sizeof *scores);
    bool good = scores && band_open(&mask, band, the_case, false) && bare_scores(the_case, scores);
    soft.mask = &mask;
    soft.sinks = the_case->operation.table;
    if (good)
        soft_fill(the_case->actor, &soft, scores, out);
    mask_close(&mask);
    free(scores);
    return good;
}

static void give_band(struct ts_case *the_case, const struct band *band)
{
    bool scores = the_case->operation.kind == TS_OPERATION_SCORES;
    if (!scores && band->soft.way == OVER_QUERIES)
        ts_give_over_queries(the_case);
    if (scores || band->soft.way != OVER_QUERIES)
        ts_formula_next(the_case, &(struct ts_formula){.predict = scores ? predict_masked : predict_soft,
                                                       .numbers = band,
                                                       .size = sizeof *band,
                                                       .work = ts_operation_work(the_case, &the_case->operation)});
}

struct softmax_search {
    struct ts_case *the_case;
    const double *scores, *sinks;
    struct mask reference, found, trial;
    double *out;
};

/* The best mask: none, the band that the candidate's zeros show, the zeros themselves. */
static void propose_masks(struct softmax_search *search)
{
    struct ts_case *the_case = search->the_case;
    const struct ts_actor *actor = the_case->actor;
    struct soft soft = {.way = OVER_KEYS, .factor = 1, .mask = &search->trial, .sinks = search->sinks};
    long window, shift, own_window, own_shift;
    size_t differing = mask_differences(&search->reference, &search->found);
    double banded = 0, read;
    const char *reference;
    mask_describe(&search->reference, &own_window, &own_shift);
    reference = mask_text(the_case, own_window, own_shift, actor->inner);
    soft.mask = &search->reference;
    soft.way = MASKED_LATE;
    soft_fill(actor, &soft, search->scores, search->out);
    give_band(the_case, &(struct band){.soft = soft});
    ts_propose(the_case, "mask", search->out, 0, "that the mask is added to the scores before the softmax",
               "the candidate applies the mask after the softmax and does not normalize again");
    soft.way = OVER_KEYS;
    soft.mask = &search->trial;
    if (differing) {
        mask_describe(&search->found, &window, &shift);
        mask_band(&search->trial, window, shift);
        mask_fill_empty(&search->trial, &search->found);
        soft_fill(actor, &soft, search->scores, search->out);
        give_band(the_case, &(struct band){.window = window, .shift = shift, .used = true, .soft = soft});
        banded = ts_propose(
            the_case, "mask", search->out, 0, "the attention mask: its diagonal, and the sliding window of this layer",
            "in the candidate %s; in the reference %s", mask_text(the_case, window, shift, actor->inner), reference);
        memcpy(search->trial.allowed, search->found.allowed, search->found.rows * search->found.keys);
        soft_fill(actor, &soft, search->scores, search->out);
        read = ts_explained(the_case, search->out);
        if (read > banded + 0.02)
            give_band(the_case, &(struct band){.found = true, .soft = soft});
        if (read > banded + 0.02)
            ts_propose(the_case, "mask", search->out, differing < actor->rows ? differing : actor->rows,
                       "the attention mask",
                       "the candidate's mask is different: %zu of %zu entries are visible on one side only; in the "
                       "reference %s",
                       differing, search->found.rows * search->found.keys, reference);
    }
}

/* Another soft cap on the scores than the reference's, or none: of products of captured queries and keys. */
static void propose_caps(struct ts_case *the_case, struct ts_variants *variants)
{
    static const double caps[] = {0, 15, 20, 30, 50, 100};
    const double own = the_case->operation.cap;
    struct ts_operation changed = the_case->operation;
    const char *text;
    double most = WORTHWHILE, best = 0;
    if (!ts_operation_is_product(&changed) || changed.kind == TS_OPERATION_CONTEXT)
        return;
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) {
        double share;
        changed.cap = caps[i];
        share = caps[i] == own ? 0 : ts_variants_try(variants, &changed, variants->inputs);
        if (share > most) {
            most = share;
            best = caps[i];
        }
    }
    if (!(most > WORTHWHILE))
        return;
    changed.cap = best;
    text = best == 0  ? ts_case_text(the_case, "the candidate lacks the softcap of %.3g on the scores", own)
           : own == 0 ? ts_case_text(the_case, "only the candidate has a softcap on the scores (%.3g)", best)
                      : ts_case_text(the_case, "the candidate's softcap on the scores is %.3g, the reference's %.3g",
                                     best, own);
    ts_formula_operation(the_case, &changed);
    ts_propose(the_case, "clamped", ts_variants_apply(variants, &changed, variants->inputs), 0,
               "the softcap on attention scores (attn_logit_softcapping)", "%s", text);
}

static void propose_ways(struct softmax_search *search)
{
    static const struct {
        enum way way;
        double cap;
        const char *text;
    } ways[] = {{OVER_QUERIES, 0, "the candidate's softmax runs over the queries instead of the keys"},
                {OVER_HEADS, 0, "the candidate's softmax runs over the heads instead of the keys"},
                {UNNORMALIZED, 0, "the candidate does not normalize the exponentials"},
                {UNNORMALIZED_BELOW, 0, "the candidate does not normalize the exponentials"},
                {ONE_MORE_BELOW, 0, "the candidate's softmax has an extra 1 in its denominator (a sink)"},
                {SIGMOIDS, 0, "the candidate applies a sigmoid instead of the softmax"},
                {AS_THEY_ARE, 0, "the candidate applies no softmax: it holds the scores themselves"},
                {ONE_MORE, 0, "the candidate's softmax has an extra 1 in its denominator (a sink)"},
                {OVER_KEYS, 20, "the candidate caps the scores at 20 before the softmax"},
                {OVER_KEYS, 30, "the candidate caps the scores at 30 before the softmax"},
                {OVER_KEYS, 50, "the candidate caps the scores at 50 before the softmax"}};
    struct ts_case *the_case = search->the_case;
    struct soft soft = {.factor = 1, .mask = &search->reference, .sinks = search->sinks};
    double factor = find_temperature(the_case, search->scores), best = 0;
    size_t which = 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        double share;
        if (ways[i].way == OVER_QUERIES && !the_case->actor->whole) {
            if (ts_softmax_over_queries(the_case, search->scores, search->out))
                ts_propose(the_case, "softmax", search->out, 0, "the softmax: its axis and its normalization", "%s",
                           ways[i].text);
            continue;
        }
        soft.way = ways[i].way;
        soft.cap = ways[i].cap;
        soft_fill(the_case->actor, &soft, search->scores, search->out);
        share = ts_explained(the_case, search->out);
        if (share > best) {
            best = share;
            which = i;
        }
    }
    if (best > WORTHWHILE) {
        soft.way = ways[which].way;
        soft.cap = ways[which].cap;
        soft_fill(the_case->actor, &soft, search->scores, search->out);
        give_band(the_case, &(struct band){.soft = soft});
        ts_propose(the_case, soft.way == AS_THEY_ARE ? "skipped-op" : "softmax", search->out, 0,
                   soft.way == AS_THEY_ARE ? "whether the softmax runs, and writes to the tensor that is read next"
                                           : "the softmax: its axis and its normalization",
                   "%s", ways[which].text);
    }
    soft = (struct soft){.way = OVER_KEYS, .factor = factor, .mask = &search->reference, .sinks = search->sinks};
    soft_fill(the_case->actor, &soft, search->scores, search->out);
    if (!(factor > 0) || fabs(factor - 1) <= 0.005)
        return;
    give_band(the_case, &(struct band){.soft = soft});
    ts_propose(the_case, "softmax", search->out, 1,
               "the scale of the scores: 1 / sqrt(head_dim) applied twice or left out, or a temperature",
               "the candidate's softmax has another temperature: it scales the scores by %.4g%s", factor,
               factor_text(the_case, factor));
}

static void propose_softmax(struct ts_case *the_case, struct ts_variants *variants)
{
    struct softmax_search search = {
        .the_case = the_case, .scores = variants->inputs[0], .sinks = the_case->operation.table, .out = variants->out};
    const struct ts_actor *actor = the_case->actor;
    double *scores = NULL;
    if (the_case->operation.input_count > 1) { /* straight from queries and keys */
        struct ts_operation product = the_case->operation;
        product.kind = TS_OPERATION_SCORES;
        search.scores = scores = malloc(the_case->total * sizeof *scores);
        if (scores)
            ts_operation_apply(the_case->scene, &product, actor, variants->inputs, scores);
    }
    if (search.scores && mask_open(&search.reference, the_case) && mask_open(&search.found, the_case) &&
        mask_open(&search.trial, the_case)) {
        mask_read(&search.reference, actor, actor->a, false);
        mask_read(&search.found, actor, actor->b, false);
        propose_masks(&search);
        propose_ways(&search);
    }
    mask_close(&search.reference);
    mask_close(&search.found);
    mask_close(&search.trial);
    free(scores);
}

/* The mask inside captured scores: masked at other places than in the reference, the same values elsewhere. */
static void propose_score_mask(struct ts_case *the_case, struct ts_variants *variants)
{
    const struct ts_actor *actor = the_case->actor;
    struct mask reference = {0}, found = {0};
    size_t differing;
    long window, shift, own_window, own_shift;
    if (mask_open(&reference, the_case) && mask_open(&found, the_case)) {
        mask_read(&reference, actor, actor->a, true);
        mask_read(&found, actor, actor->b, true);
        differing = mask_differences(&reference, &found);
        if (differing) {
            struct ts_actor bare = *actor;
            struct ts_operation scores = the_case->operation;
            float *unmasked = calloc(the_case->total, sizeof *unmasked);
            bare.a = unmasked;
            mask_describe(&reference, &own_window, &own_shift);
            mask_describe(&found, &window, &shift);
            if (unmasked) {
                ts_operation_apply(the_case->scene, &scores, &bare, variants->inputs, variants->out);
                for (size_t at = 0; at < the_case->total; at++)
                    if (!found.allowed[at / actor->width * actor->inner + at % actor->inner])
                        variants->out[at] = -(double)INFINITY;
                if (window != own_window || shift != own_shift)
                    give_band(the_case, &(struct band){.window = window, .shift = shift, .used = true});
                else
                    give_band(the_case, &(struct band){.found = true});
                if (window == own_window && shift == own_shift)
                    ts_propose(the_case, "mask", variants->out, 1, "the attention mask: what else it hides",
                               "%zu of %zu mask entries are visible on one side only%s", differing,
                               found.rows * found.keys, first_difference(the_case, &reference, &found));
                else
                    ts_propose(the_case, "mask", variants->out, 1,
                               "the attention mask: its diagonal, and the sliding window of this layer",
                               "in the candidate %s; in the reference %s",
                               mask_text(the_case, window, shift, actor->inner),
                               mask_text(the_case, own_window, own_shift, actor->inner));
            }
            free(unmasked);
        }
    }
    mask_close(&reference);
    mask_close(&found);
}

/* Slots of a tally of masks: elements that are visible or masked on one side only, what those and all of them cost. */
enum { SHOWN, HIDDEN, MASK_COST, COST };

#define ONE_SIDED 0.85 /* confidence, where that is all of the error */

static bool count_one_sided(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                            struct ts_tally *tally)
{
    (void)formula;
    (void)out;
    for (size_t i = 0; i < the_case->total; i++) {
        double own = ts_element_cost(the_case->found[i], the_case->expected[i], the_case->expected[i]);
        bool reference = ts_is_allowed(the_case->expected[i]), candidate = ts_is_allowed(the_case->found[i]);
        own = own > 0 && !ts_case_aside(the_case, i / the_case->actor->width) ? own : 0;
        tally->sums[COST] += own;
        if (reference == candidate || isnan(the_case->found[i]) || isnan(the_case->expected[i]))
            continue;
        tally->sums[MASK_COST] += own;
        tally->sums[SHOWN] += candidate;
        tally->sums[HIDDEN] += reference;
    }
    return true;
}

static const char *one_sided_text(struct ts_case *the_case, const struct ts_tally *tally)
{
    double shown = tally->sums[SHOWN], hidden = tally->sums[HIDDEN];
    if (!(shown > 0) || !(hidden > 0))
        return ts_case_text(the_case, "%.0f %s that the reference %s %s in the candidate", shown + hidden,
                            shown + hidden > 1 ? "entries" : "entry", shown > 0 ? "masks" : "does not mask",
                            shown > 0 ? (shown > 1 ? "are visible" : "is visible")
                                      : (hidden > 1 ? "are masked" : "is masked"));
    return ts_case_text(the_case,
                        "%.0f entries that the reference masks are visible in the candidate, and %.0f that it does not "
                        "mask are masked",
                        shown, hidden);
}

static const char *tell_one_sided(struct ts_case *the_case, const struct ts_formula *formula,
                                  const struct ts_tally *tally, double *share)
{
    (void)formula;
    *share = tally->sums[COST] > 0 ? ONE_SIDED * tally->sums[MASK_COST] / tally->sums[COST] : *share;
    return one_sided_text(the_case, tally);
}

static const char *tell_bare_mask(struct ts_case *the_case, const struct ts_formula *formula,
                                  const struct ts_tally *tally, double *share)
{
    (void)the_case;
    (void)formula;
    *share = tally->sums[COST] > 0 ? tally->sums[MASK_COST] / tally->sums[COST] : *share;
    return NULL;
}

/* Scores that could not be learnt (capped ones): at least the masks on both sides can be compared. */
static void propose_bare_mask(struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor;
    struct mask reference = {0}, found = {0};
    if (actor->inner != actor->sequence || !mask_open(&reference, the_case) || !mask_open(&found, the_case)) {
        mask_close(&reference);
        mask_close(&found);
        return;
    }
    mask_read(&reference, actor, actor->a, true);
    mask_read(&found, actor, actor->b, true);
    if (mask_differences(&reference, &found)) {
        double cost = 0;
        long window, shift, own_window, own_shift;
        for (size_t at = 0; at < the_case->total; at++) {
            size_t place = at / actor->width * actor->inner + at % actor->inner;
            double own = ts_element_cost(the_case->found[at], the_case->expected[at], the_case->expected[at]);
            cost += reference.allowed[place] != found.allowed[place] && own > 0 ? own : 0;
        }
        mask_describe(&reference, &own_window, &own_shift);
        mask_describe(&found, &window, &shift);
        ts_formula_next(the_case, &(struct ts_formula){.count = count_one_sided, .tell = tell_bare_mask});
        ts_propose_plain(the_case, "mask", the_case->error > 0 ? cost / the_case->error : 0,
                         "the attention mask: its diagonal, and the sliding window of this layer",
                         "%zu entries are masked on one side only: in the candidate %s; in the reference %s",
                         mask_differences(&reference, &found), mask_text(the_case, window, shift, actor->inner),
                         mask_text(the_case, own_window, own_shift, actor->inner));
    }
    mask_close(&reference);
    mask_close(&found);
}

/* Whatever the axes are: elements that are masked on one side only. */
static void propose_one_sided(struct ts_case *the_case)
{
    struct ts_formula formula = {.count = count_one_sided, .tell = tell_one_sided};
    struct ts_tally tally;
    /* the reference masks, or the candidate writes what nothing but a mask is, where there are keys */
    bool masks = false, keys = the_case->actor->inner == the_case->actor->sequence;
    for (size_t i = 0; i < the_case->total; i++)
        masks = masks || !ts_is_allowed(the_case->expected[i]) || (keys && the_case->found[i] < -1e29);
    if (!masks)
        return;
    ts_tally_open(&tally);
    (void)count_one_sided(the_case, &formula, NULL, &tally);
    ts_formula_next(the_case, &formula);
    if (tally.sums[SHOWN] + tally.sums[HIDDEN] >= 2 && the_case->error > 0)
        ts_propose_plain(the_case, "mask", ONE_SIDED * tally.sums[MASK_COST] / the_case->error,
                         "the attention mask: its diagonal, its window, the axis it is broadcast along", "%s",
                         one_sided_text(the_case, &tally));
    else
        ts_formula_next(the_case, &(struct ts_formula){0});
}

/* What attention made was captured before this tensor and agrees, so that no fault of attention can be seen here. */
static bool is_attention_right(const struct ts_case *the_case)
{
    size_t newest = the_case->actor->pair;
    for (size_t back = 1; back < TS_SCENE_WINDOW && back <= newest; back++) {
        const struct ts_actor *other = ts_scene_actor(the_case->scene, newest - back);
        const char *name = other ? ts_case_name(the_case, other) : "";
        if (other && ts_names_context(name))
            return other->error < AGREES * the_case->actor->error;
        if (ts_names_operand(name))
            return false;
    }
    return false;
}

static void propose(struct ts_case *the_case)
{
    struct ts_variants variants;
    if (the_case->operation.kind != TS_OPERATION_SCORES && the_case->operation.kind != TS_OPERATION_SOFTMAX &&
        ts_case_in_scene(the_case)) {
        propose_bare_mask(the_case);
        propose_one_sided(the_case);
    }
    if ((the_case->operation.kind == TS_OPERATION_SCORES || the_case->operation.kind == TS_OPERATION_NONE) &&
        ts_case_in_scene(the_case))
        ts_propose_distance_bias(the_case);
    if (the_case->operation.kind == TS_OPERATION_NONE && ts_case_in_scene(the_case) && !is_attention_right(the_case) &&
        !ts_propose_inner_attention(the_case)) {
        ts_propose_unseen_attention(the_case);
        if (ts_names_attention(ts_case_name(the_case, the_case->actor)))
            ts_propose_head_factors(the_case);
        ts_propose_fused_attention(the_case);
    }
    if (!ts_variants_open(&variants, the_case, &the_case->operation))
        return;
    if (the_case->operation.kind == TS_OPERATION_SOFTMAX)
        propose_softmax(the_case, &variants);
    propose_caps(the_case, &variants);
    if (the_case->operation.kind == TS_OPERATION_SCORES || the_case->operation.kind == TS_OPERATION_CONTEXT) {
        ts_propose_heads(the_case, &variants);
        ts_propose_exchanged(the_case, &variants);
        ts_propose_stale_token(the_case, &variants);
        ts_propose_shifted_tokens(the_case, &variants);
    }
    if (the_case->operation.kind == TS_OPERATION_SCORES)
        propose_score_mask(the_case, &variants);
    ts_variants_close(&variants);
}

const struct ts_family ts_family_attention = {"attention", propose};
