/* Attention: the mask, the softmax (temperature, axis, what is missing of it). Which key and value heads serve which
 * query heads is asked in attention_heads.c. */
#include <stdlib.h>
#include <string.h>

#include "diagnose/attention_long.h"
#include "diagnose/attention_mask.h"
#include "diagnose/variant.h"

#define WORTHWHILE 0.3
/* Of this tensor's error, what one that agrees may have. */
#define AGREES 0.2
/* Entries of a mask that are otherwise where it is told as a band all the same. */
#define NO_BAND 0.05

enum way {
    OVER_KEYS,
    OVER_QUERIES,
    OVER_HEADS,
    UNNORMALIZED,
    SIGMOIDS,
    ONE_MORE,       /* an extra 1 in the denominator */
    ONE_MORE_BELOW, /* the same after the largest score was subtracted */
    UNNORMALIZED_BELOW,
    WITHOUT_SINKS,
    AS_THEY_ARE, /* no softmax at all: nothing where the mask hides */
    MASKED_LATE  /* the mask comes after the softmax */
};

struct soft {
    enum way way;
    double factor; /* on the scores */
    double cap;    /* cap * tanh(score / cap) when above 0 */
    const struct ts_mask *mask;
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
    sum += sink && soft->way != WITHOUT_SINKS ? exp(*sink - largest) : 0;
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
    struct ts_mask_shape shape, own; /* what is claimed, and the reference's, of the sequence it was found in */
    bool kept;                       /* with the reference's padding, which each sequence has for itself */
    bool used;                       /* else the mask is the reference's, */
    bool found;                      /* or what the candidate's own rows show */
    struct soft soft;
};

/* One row of a sequence whose padding nobody has seen but in the reference's rows: what these hide beyond the
 * reference's band. Padding itself is taken as it is found. */
static void band_of_row(struct ts_mask *mask, const struct band *band, const struct ts_mask *reference,
                        const struct ts_mask *found, size_t row)
{
    const size_t keys = mask->keys, start = row * keys;
    const unsigned char *own = reference->allowed + start;
    const long place = (long)mask->at[row];
    size_t first = keys, end = 0, count = 0, unlike = 0;
    for (size_t key = 0; key < keys; key++) {
        const long distance = place - (long)key;
        const bool usual = distance >= -band->own.shift && (band->own.window <= 0 || distance < band->own.window);
        first = own[key] && first == keys ? key : first;
        end = own[key] ? key + 1 : end;
        count += own[key];
        unlike += usual != own[key];
    }
    /* a first token that sees itself may be either */
    if ((unlike || !place) && (count <= 1 || count == keys)) {
        memcpy(mask->allowed + start, found->allowed + start, keys);
        return;
    }
    if (!band->kept || (band->own.window > 0 && place - (long)first + 1 >= band->own.window))
        first = 0;
    if (!band->kept || place + band->own.shift < (long)end)
        end = keys;
    for (size_t key = 0; key < keys; key++)
        mask->allowed[start + key] = mask->allowed[start + key] && key >= first && key < end;
    if (!memchr(mask->allowed + start, 1, keys))
        memcpy(mask->allowed + start, found->allowed + start, keys);
}

/* The band that is claimed, and of padding what was found. */
static bool band_of_shape(struct ts_mask *mask, const struct band *band, const struct ts_case *the_case, bool scores)
{
    const bool alone = the_case->scene->batch <= 1;
    struct ts_mask found = {0}, reference = {0};
    struct ts_mask_shape shape = band->shape;
    bool good = ts_mask_open(&found, the_case) && ts_mask_open(&reference, the_case);
    if (good) {
        ts_mask_read(&found, the_case->actor, the_case->actor->b, scores);
        ts_mask_read(&reference, the_case->actor, the_case->actor->a, scores);
        shape.front = alone ? shape.front : 0;
        shape.back = alone ? shape.back : 0;
        ts_mask_band(mask, &shape);
    }
    if (good && alone && ts_is_padded(&band->own))
        ts_mask_fill(mask, &band->own, &found, NULL);
    for (size_t row = 0; row < mask->rows && good && !alone; row++)
        band_of_row(mask, band, &reference, &found, row);
    ts_mask_close(&found);
    ts_mask_close(&reference);
    return good;
}

/* The mask of some rows; to be closed. */
static bool band_open(struct ts_mask *mask, const struct band *band, const struct ts_case *the_case, bool scores)
{
    if (!ts_mask_open(mask, the_case))
        return false;
    if (band->used)
        return band_of_shape(mask, band, the_case, scores);
    ts_mask_read(mask, the_case->actor, band->found ? the_case->actor->b : the_case->actor->a, scores);
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
    struct ts_mask mask = {0};
    bool good = band_open(&mask, band, the_case, true) && bare_scores(the_case, out);
    for (size_t at = 0; at < the_case->total && good; at++)
        if (!mask.allowed[at / actor->width * actor->inner + at % actor->inner])
            out[at] = -(double)INFINITY;
    ts_mask_close(&mask);
    return good;
}

static bool predict_soft(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct band *band = formula->numbers;
    struct soft soft = band->soft;
    struct ts_mask mask = {0};
    double *scores = malloc(the_case->total * sizeof *scores);
    bool good = scores && band_open(&mask, band, the_case, false) && bare_scores(the_case, scores);
    soft.mask = &mask;
    soft.sinks = the_case->operation.table;
    if (good)
        soft_fill(the_case->actor, &soft, scores, out);
    ts_mask_close(&mask);
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

/* Other sequences have another padding, or none: as the reference shows it there, or, where the candidate hides
 * something of its own, as its own rows do. */
static void give_shape(struct ts_case *the_case, const struct ts_mask_shape *shape, const struct ts_mask_shape *own,
                       const struct soft *soft)
{
    bool kept = shape->front == own->front && shape->back == own->back, used = kept || !ts_is_padded(shape);
    give_band(the_case,
              &(struct band){.shape = *shape, .own = *own, .kept = kept, .used = used, .found = !used, .soft = *soft});
}

struct softmax_search {
    struct ts_case *the_case;
    const double *scores, *sinks;
    struct ts_mask reference, found, trial;
    double *out;
};

/* The best mask: none, the band that the candidate's zeros show, the zeros themselves. */
static void propose_masks(struct softmax_search *search)
{
    struct ts_case *the_case = search->the_case;
    const struct ts_actor *actor = the_case->actor;
    struct soft soft = {.way = OVER_KEYS, .factor = 1, .mask = &search->trial, .sinks = search->sinks};
    struct ts_mask_shape shape, own;
    size_t differing = ts_mask_differences(&search->reference, &search->found);
    double banded = 0, read;
    const char *reference;
    bool is_band;
    own = ts_mask_describe(&search->reference);
    reference = ts_mask_text(the_case, &own, actor->inner);
    ts_mask_band(&search->trial, &own);
    ts_mask_fill(&search->trial, &own, &search->reference, NULL);
    is_band = (double)ts_mask_differences(&search->trial, &search->reference) <=
              NO_BAND * (double)(search->trial.rows * search->trial.keys);
    soft.mask = &search->reference;
    soft.way = MASKED_LATE;
    soft_fill(actor, &soft, search->scores, search->out);
    give_band(the_case, &(struct band){.soft = soft});
    ts_propose(the_case, "mask", search->out, 0, "that the mask is added to the scores before the softmax",
               "the candidate applies the mask after the softmax and does not normalize again");
    soft.way = OVER_KEYS;
    soft.mask = &search->trial;
    if (differing) {
        shape = ts_mask_describe(&search->found);
        ts_mask_band(&search->trial, &shape);
        ts_mask_fill(&search->trial, &shape, &search->found, &search->reference);
        if (ts_is_padded(&own)) /* what padding itself sees is up to the program */
            ts_mask_fill(&search->trial, &own, &search->found, NULL);
        soft_fill(actor, &soft, search->scores, search->out);
        if (!ts_is_one_shape(&shape, &own)) {
            give_shape(the_case, &shape, &own, &soft);
            banded = ts_propose(the_case, "mask", search->out, 0, ts_mask_check(&shape, &own),
                                "in the candidate %s; in the reference %s",
                                ts_mask_text(the_case, &shape, actor->inner), reference);
        }
        memcpy(search->trial.allowed, search->found.allowed, search->found.rows * search->found.keys);
        soft_fill(actor, &soft, search->scores, search->out);
        read = ts_explained(the_case, search->out);
        if (read > banded + 0.02)
            give_band(the_case, &(struct band){.found = true, .soft = soft});
        if (read > banded + 0.02)
            ts_propose(the_case, "mask", search->out, differing < actor->rows ? differing : actor->rows,
                       "the attention mask",
                       "the candidate's mask is different: %zu of %zu entries are visible on one side only%s",
                       differing, search->found.rows * search->found.keys,
                       is_band ? ts_case_text(the_case, "; in the reference %s", reference) : "");
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
                {WITHOUT_SINKS, 0, "the candidate leaves out the attention sinks"},
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
        if (ways[i].way == WITHOUT_SINKS && !search->sinks)
            continue;
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
                   : soft.way == WITHOUT_SINKS
                       ? "the sinks of this layer: one learned number per head in the denominator of the softmax"
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
    if (search.scores && ts_mask_open(&search.reference, the_case) && ts_mask_open(&search.found, the_case) &&
        ts_mask_open(&search.trial, the_case)) {
        ts_mask_read(&search.reference, actor, actor->a, false);
        ts_mask_read(&search.found, actor, actor->b, false);
        propose_masks(&search);
        propose_ways(&search);
    }
    ts_mask_close(&search.reference);
    ts_mask_close(&search.found);
    ts_mask_close(&search.trial);
    free(scores);
}

/* The mask inside captured scores: masked at other places than in the reference, the same values elsewhere. */
static void propose_score_mask(struct ts_case *the_case, struct ts_variants *variants)
{
    const struct ts_actor *actor = the_case->actor;
    struct ts_mask reference = {0}, found = {0};
    size_t differing;
    if (ts_mask_open(&reference, the_case) && ts_mask_open(&found, the_case)) {
        ts_mask_read(&reference, actor, actor->a, true);
        ts_mask_read(&found, actor, actor->b, true);
        differing = ts_mask_differences(&reference, &found);
        if (differing) {
            struct ts_actor bare = *actor;
            struct ts_operation scores = the_case->operation;
            float *unmasked = calloc(the_case->total, sizeof *unmasked);
            bare.a = unmasked;
            struct ts_mask_shape own = ts_mask_describe(&reference), shape = ts_mask_describe(&found);
            if (unmasked) {
                ts_operation_apply(the_case->scene, &scores, &bare, variants->inputs, variants->out);
                for (size_t at = 0; at < the_case->total; at++)
                    if (!found.allowed[at / actor->width * actor->inner + at % actor->inner])
                        variants->out[at] = -(double)INFINITY;
                if (!ts_is_one_shape(&shape, &own))
                    give_shape(the_case, &shape, &own, &(struct soft){0});
                else
                    give_band(the_case, &(struct band){.found = true});
                if (ts_is_one_shape(&shape, &own))
                    ts_propose(the_case, "mask", variants->out, 1, "the attention mask: what else it hides",
                               "%zu of %zu mask entries are visible on one side only%s", differing,
                               found.rows * found.keys, ts_mask_first_difference(the_case, &reference, &found));
                else
                    ts_propose(the_case, "mask", variants->out, 1, ts_mask_check(&shape, &own),
                               "in the candidate %s; in the reference %s", ts_mask_text(the_case, &shape, actor->inner),
                               ts_mask_text(the_case, &own, actor->inner));
            }
            free(unmasked);
        }
    }
    ts_mask_close(&reference);
    ts_mask_close(&found);
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
    struct ts_mask reference = {0}, found = {0};
    if (actor->inner != actor->sequence || !ts_mask_open(&reference, the_case) || !ts_mask_open(&found, the_case)) {
        ts_mask_close(&reference);
        ts_mask_close(&found);
        return;
    }
    ts_mask_read(&reference, actor, actor->a, true);
    ts_mask_read(&found, actor, actor->b, true);
    if (ts_mask_differences(&reference, &found)) {
        struct ts_mask_shape own = ts_mask_describe(&reference), shape = ts_mask_describe(&found);
        double cost = 0;
        for (size_t at = 0; at < the_case->total; at++) {
            size_t place = at / actor->width * actor->inner + at % actor->inner;
            double one = ts_element_cost(the_case->found[at], the_case->expected[at], the_case->expected[at]);
            cost += reference.allowed[place] != found.allowed[place] && one > 0 ? one : 0;
        }
        ts_formula_next(the_case, &(struct ts_formula){.count = count_one_sided, .tell = tell_bare_mask});
        ts_propose_plain(the_case, "mask", the_case->error > 0 ? cost / the_case->error : 0,
                         ts_mask_check(&shape, &own),
                         "%zu entries are masked on one side only: in the candidate %s; in the reference %s",
                         ts_mask_differences(&reference, &found), ts_mask_text(the_case, &shape, actor->inner),
                         ts_mask_text(the_case, &own, actor->inner));
    }
    ts_mask_close(&reference);
    ts_mask_close(&found);
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
        ts_propose_probabilities(the_case);
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
        ts_propose_splits(the_case, &variants);
        ts_propose_stale_token(the_case, &variants);
        ts_propose_shifted_tokens(the_case, &variants);
    }
    if (the_case->operation.kind == TS_OPERATION_SCORES)
        propose_score_mask(the_case, &variants);
    ts_variants_close(&variants);
}

const struct ts_family ts_family_attention = {"attention", propose};
