/* Owns the ranking of causes: what a proposal explains against its freedom, which of several comes first, and what is
 * said when none holds. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ordered.h"
#include "base/progress.h"
#include "compare/structure.h"
#include "diagnose/case.h"
#include "diagnose/kinds.h"
#include "diagnose/pattern.h"

/* The evidence of a finding that was not put to the proof of numbers. */
#define NOT_PREDICTED 0.5
/* Below this a hypothesis says less than it leaves open. */
#define LEAST_CONFIDENCE 0.3
/* With many free numbers it must explain more to be worth saying: up to this, from 31 of them on. */
#define LEAST_WHEN_FREE 0.7
#define NEARLY_ALL      0.9
/* A number per channel follows whatever tokens have in common, which may be nine tenths of them. */
#define NEARLY_ALL_WHEN_FREE 0.97
#define LEAST_EVIDENCE       0.2
/* A relation between numbers has nothing but its precision: one that leaves a thirtieth in a clean run comes after a
 * step or a place that is sure enough. */
#define NEARLY_ALL_OF_A_RELATION     0.97
#define LEAST_EVIDENCE_OF_A_RELATION 0.25
#define SURE_ENOUGH                  0.6
/* One that leaves this much and far more than rounding, in amplitude, comes after a finding about a step that is as
 * sure as that. */
#define LEFT_OF_A_RELATION 0.002
#define FAR_ABOVE_ROUNDING 5.0
#define SURE               0.8
/* "unrelated" is what remains when everything else explains less than this. */
#define ANYTHING_ELSE 0.5
/* Of two that explain nearly everything, the one that explains it down to rounding is right and the other is near it:
 * confidence cannot tell 0.999 from 0.999999, so ranks also count how much of the error's logarithm is explained, less
 * what the freedom costs (as in the Bayesian information criterion). */
#define EVIDENCE_WEIGHT 0.4
/* Of what was found, where it is lost in noise, a claim may leave so much. */
#define LEFT_OF_IT 0.7
/* What a part of the sum explains must be a little better than what the whole does. */
#define DETOUR 0.02
/* Causes that are no further apart than this are a tie. */
#define TIE          0.02
#define TIE_EVIDENCE 0.05
/* So much less evidence than the best one's, which explains all: not what happened. */
#define REFUTED 0.25
/* So much more of everything must a claim of the second look explain to take the place of the first one's. */
#define BETTER 0.05
/* When no cause holds: a row or a channel that has so many times its share of the error, and this much of all, is said.
 */
#define OVER_ITS_SHARE 4.0
#define LEAST_SHARE    0.2
/* So does a pattern that makes this much of it. */
#define LEAST_PATTERN 0.7
/* Times a rounding: what is larger came in, and is not called one. */
#define CARRIED 50.0
/* Tokens of all sequences of a batch that are looked at when those of one say nothing. */
#define ALL_SEQUENCES 48

/* What may be said when nothing but rounding is there. */
static bool is_about_rounding(const char *id)
{
    static const char *const ids[] = {"rounding", "quantization", "nan", "inf", "routing"};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (strcmp(ids[i], id) == 0)
            return true;
    return false;
}

/* Of a part of the sum they would be said again, or say nothing. */
static bool is_about_the_whole(const char *id)
{
    static const char *const ids[] = {"rounding", "quantization", "nan", "inf", "rows", "heads", "channels"};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (strcmp(ids[i], id) == 0)
            return true;
    return false;
}

static void insert(struct ts_case_book *book, const struct ts_case_entry *entry)
{
    size_t at;
    for (at = 0; at < book->count && strcmp(book->entries[at].cause.id, entry->cause.id) != 0; at++) {
    }
    if (at < book->count) { /* the same cause, said twice: the better one stays */
        if (entry->rank <= book->entries[at].rank)
            return;
        book->count--;
        memmove(&book->entries[at], &book->entries[at + 1], (book->count - at) * sizeof *book->entries);
    }
    for (at = 0; at < book->count && book->entries[at].rank >= entry->rank; at++) {
    }
    if (at == TS_CASE_ENTRIES)
        return;
    book->count += book->count < TS_CASE_ENTRIES;
    memmove(&book->entries[at + 1], &book->entries[at], (book->count - 1 - at) * sizeof *book->entries);
    book->entries[at] = *entry;
}

/* Fills in the words and the rank. */
static void keep(struct ts_case_state *state, struct ts_case_entry *entry, const char *id, const char *check,
                 const char *summary)
{
    struct ts_arena *arena = &state->face.diagnosis->arena;
    struct ts_cause *cause = &entry->cause;
    const char *remark;
    if (state->about && is_about_the_whole(id))
        return;
    remark = ts_case_remark(state, id, summary);
    cause->id = ts_arena_string(arena, id);
    cause->check = ts_arena_string(arena, check);
    cause->summary =
        ts_arena_printf(arena, "%s%s%s%s", state->about ? state->about : "", state->about ? ": " : "", summary, remark);
    cause->confidence -= state->about ? DETOUR : 0;
    cause->proof.of = state->about ? ts_arena_string(arena, state->about) : NULL;
    entry->family = state->family;
    entry->formula = state->next;
    entry->rank = cause->confidence + ts_kind_bonus(id) + EVIDENCE_WEIGHT * entry->evidence;
    if (cause->id && cause->check && cause->summary)
        insert(state->book, entry);
}

/* Error energy that a prediction leaves. */
static double left_by(const struct ts_case *the_case, const double *prediction)
{
    double left = 0;
    for (size_t i = 0; i < the_case->total; i++) {
        double cost;
        if (ts_element_cost(the_case->found[i], the_case->expected[i], the_case->expected[i]) < 0 ||
            ts_case_aside(the_case, i / the_case->actor->width))
            continue;
        cost = ts_element_cost(the_case->found[i], prediction[i], the_case->expected[i]);
        if (cost < 0) /* the prediction is NaN or infinite where the candidate is not */
            return (double)INFINITY;
        left += cost;
    }
    return left;
}

/* What there is to explain. Where the candidate has no relation to what was expected, predicting nothing at all halves
 * the error: a hypothesis has to do better than that as well. */
static double to_explain(const struct ts_case *the_case)
{
    const struct ts_case_state *state = (const struct ts_case_state *)the_case;
    double most = the_case->error;
    if (state->size < most && state->size > 4 * the_case->noise)
        most = state->size;
    return most - the_case->noise;
}

static double explained_by(const struct ts_case *the_case, double left)
{
    double made = to_explain(the_case);
    if (!(made > 0))
        return 0;
    left = left > the_case->noise ? left - the_case->noise : 0;
    return 1 - left / made;
}

/* 0 to 1: the share of the way from the error down to noise, on a logarithmic scale, less the price of freedom. */
static double evidence_of(const struct ts_case_state *state, double left, size_t freedom)
{
    double made = to_explain(&state->face), floor = state->face.noise, whole, gained;
    floor = floor > 1e-14 * made ? floor : 1e-14 * made;
    left = left > floor ? left : floor;
    whole = state->elements * log((made + floor) / floor);
    gained = state->elements * log((made + floor) / left) - (double)freedom * log(state->elements + 1);
    return whole > 0 && gained > 0 ? gained / whole : 0;
}

double ts_explained(const struct ts_case *the_case, const double *prediction)
{
    return explained_by(the_case, left_by(the_case, prediction));
}

/* A precise claim leaves next to nothing in a clean run, and one that leaves a tenth of the error is refuted by that.
 * Under noise it may leave more. */
static bool is_refuted(double explained, double evidence, size_t freedom)
{
    double bits = log2(1 + (double)freedom) / 5;
    double least = NEARLY_ALL + (NEARLY_ALL_WHEN_FREE - NEARLY_ALL) * (bits < 1 ? bits : 1);
    return explained < least && evidence < LEAST_EVIDENCE;
}

static double least_explained(size_t freedom)
{
    double bits = log2(1 + (double)freedom) / 5;
    return LEAST_CONFIDENCE + (LEAST_WHEN_FREE - LEAST_CONFIDENCE) * (bits < 1 ? bits : 1);
}

/* What a person may count up again. */
static void note_proof(struct ts_case_entry *entry, const struct ts_case_state *state, double left)
{
    const struct ts_case *face = &state->face;
    double size = 0;
    for (size_t i = 0; i < face->total; i++)
        size += isfinite(face->expected[i]) ? face->expected[i] * face->expected[i] : 0;
    size = size > 0 ? size : 1;
    entry->cause.proof = (struct ts_cause_proof){.predicted = !entry->plain,
                                                 .explained = entry->explained,
                                                 .error = sqrt(face->error / size),
                                                 .left = sqrt(left / size),
                                                 .rounding = sqrt(face->noise / size),
                                                 .elements = state->elements,
                                                 .fitted = entry->freedom};
}

/* What was found is far smaller than what is expected, and lost in this run's noise: then nearly anything that is small
 * explains the difference, and a claim has to explain some of what was found itself. */
static bool says_nothing_of_it(const struct ts_case_state *state, double left)
{
    return state->size > 0 && state->size < 4 * state->face.noise && left > LEFT_OF_IT * state->size;
}

/* Weighs a claim that leaves so much of the error; returns the confidence it got. */
static double weigh_claim(struct ts_case *the_case, const char *id, double left, size_t freedom, const char *check,
                          const char *summary, va_list args)
{
    struct ts_case_state *state = (struct ts_case_state *)the_case;
    struct ts_case_entry entry = {.freedom = freedom};
    char text[1024];
    entry.explained = explained_by(the_case, left);
    entry.evidence = evidence_of(state, left, freedom);
    entry.cause.confidence = entry.explained - (double)freedom / state->elements;
    if (!(entry.cause.confidence >= LEAST_CONFIDENCE) || entry.explained < least_explained(freedom) ||
        is_refuted(entry.explained, entry.evidence, freedom))
        return 0;
    vsnprintf(text, sizeof text, summary, args);
    note_proof(&entry, state, left);
    keep(state, &entry, id, check, text);
    return entry.cause.confidence;
}

double ts_propose(struct ts_case *the_case, const char *id, const double *prediction, size_t freedom, const char *check,
                  const char *summary, ...)
{
    struct ts_case_state *state = (struct ts_case_state *)the_case;
    double confidence = 0;
    va_list args;
    va_start(args, summary);
    if (!state->quiet && prediction && state->elements > 0) {
        double left = left_by(the_case, prediction);
        if (!says_nothing_of_it(state, left))
            confidence = weigh_claim(the_case, id, left, freedom, check, summary, args);
    }
    va_end(args);
    state->next = (struct ts_formula){0};
    return confidence;
}

double ts_propose_measured(struct ts_case *the_case, const char *id, double left_share, size_t freedom,
                           const char *check, const char *summary, ...)
{
    struct ts_case_state *state = (struct ts_case_state *)the_case;
    double confidence = 0;
    va_list args;
    va_start(args, summary);
    if (!state->quiet && left_share >= 0 && state->elements > 0)
        confidence = weigh_claim(the_case, id, left_share * (to_explain(the_case) + the_case->noise), freedom, check,
                                 summary, args);
    va_end(args);
    state->next = (struct ts_formula){0};
    return confidence;
}

/* certain: how much it counts that nothing was predicted, beside what is. */
static void keep_plain(struct ts_case *the_case, const char *id, double confidence, double certain, const char *check,
                       const char *summary, va_list args)
{
    struct ts_case_state *state = (struct ts_case_state *)the_case;
    struct ts_case_entry entry = {.plain = true};
    char text[1024];
    vsnprintf(text, sizeof text, summary, args);
    entry.cause.confidence = entry.explained = confidence < 1 ? confidence : 1;
    entry.evidence = certain * entry.cause.confidence;
    note_proof(&entry, state, 0);
    keep(state, &entry, id, check, text);
}

void ts_propose_plain(struct ts_case *the_case, const char *id, double confidence, const char *check,
                      const char *summary, ...)
{
    struct ts_case_state *state = (struct ts_case_state *)the_case;
    va_list args;
    va_start(args, summary);
    if (confidence >= LEAST_CONFIDENCE && (!state->quiet || is_about_rounding(id)))
        keep_plain(the_case, id, confidence, NOT_PREDICTED, check, summary, args);
    va_end(args);
    state->next = (struct ts_formula){0};
}

void ts_propose_below_noise(struct ts_case *the_case, const char *id, double confidence, const char *check,
                            const char *summary, ...)
{
    va_list args;
    va_start(args, summary);
    keep_plain(the_case, id, confidence, NOT_PREDICTED, check, summary, args);
    va_end(args);
    ((struct ts_case_state *)the_case)->next = (struct ts_formula){0};
}

void ts_propose_fact(struct ts_case *the_case, const char *id, const char *check, const char *summary, ...)
{
    va_list args;
    va_start(args, summary);
    keep_plain(the_case, id, 1, 1, check, summary, args);
    va_end(args);
    ((struct ts_case_state *)the_case)->next = (struct ts_formula){0};
}

/* A relation with more freedom that explains no more than a better one, or no more than its freedom does by chance, is
 * only its shadow: a factor per row where one factor does it. */
static bool is_shadow(const struct ts_case_entry *entry, const struct ts_case_entry *better)
{
    return !entry->plain && !better->plain && ts_kind_bonus(entry->cause.id) < TS_RELATIONS &&
           entry->freedom > better->freedom &&
           (entry->explained <= better->explained + 0.005 || entry->cause.confidence <= better->cause.confidence);
}

static bool is_not_finite(const char *id)
{
    return strcmp(id, "nan") == 0 || strcmp(id, "inf") == 0;
}

/* What is far weaker than the best only distracts. */
static bool is_far_weaker(const struct ts_case_entry *entry, const struct ts_case_entry *best)
{
    return entry->cause.confidence < best->cause.confidence - 0.4;
}

/* Something else explains it, so that "unrelated" is not said. */
static bool is_explained(const struct ts_case_book *book)
{
    for (size_t i = 0; i < book->count; i++)
        if (strcmp(book->entries[i].cause.id, "unrelated") != 0 && book->entries[i].cause.confidence > ANYTHING_ELSE &&
            !is_far_weaker(&book->entries[i], &book->entries[0]))
            return true;
    return false;
}

bool ts_case_is_said(const struct ts_case_book *book, size_t i)
{
    const struct ts_case_entry *entry = &book->entries[i], *best = &book->entries[0];
    if (strcmp(entry->cause.id, "unrelated") == 0 && is_explained(book))
        return false;
    if (i == 0)
        return true;
    if (is_far_weaker(entry, best))
        return false;
    /* tokens that were routed otherwise are named, and their rows are no finding of their own */
    if (strcmp(best->cause.id, "routing") == 0 && strcmp(entry->cause.id, "rows") == 0)
        return false;
    /* bits of another type are NaN, huge and anything else, which is no finding of its own */
    if (strcmp(best->cause.id, "dtype-confusion") == 0 && best->cause.confidence >= NEARLY_ALL)
        return false;
    /* what leaves far more than the best does is refuted by it, however much it explains */
    if (best->evidence > 0.8 && entry->evidence < best->evidence - REFUTED)
        return false;
    for (size_t k = 0; k < i; k++)
        if (is_shadow(entry, &book->entries[k]))
            return false;
    return true;
}

static bool is_relation(const struct ts_case_entry *entry)
{
    double bonus = ts_kind_bonus(entry->cause.id);
    return !entry->plain && bonus < TS_RELATIONS && bonus > 0;
}

static void put_first(struct ts_case_book *book, size_t i)
{
    struct ts_case_entry first = book->entries[i];
    memmove(&book->entries[1], &book->entries[0], i * sizeof *book->entries);
    book->entries[0] = first;
}

/* A factor for each row or head that explains no more than one for all, its freedom paid for, fits rounding with it. So
 * it does where one for all leaves what the run's noise is behind a factor: that of the weights has a factor for each
 * channel. */
static bool is_freer_for_nothing(const struct ts_case_entry *first, const struct ts_case_entry *other)
{
    const struct ts_cause_proof *proof = &other->cause.proof;
    return is_relation(other) && !first->plain && (is_relation(first) || strcmp(first->cause.id, "heads") == 0) &&
           first->freedom > other->freedom && first->cause.confidence <= other->cause.confidence &&
           (first->evidence <= other->evidence + TIE_EVIDENCE || proof->left <= (1 + proof->error) * proof->rounding);
}

/* Not precise, and something else is sure enough to be said in its place. */
static bool is_doubtful(const struct ts_case_entry *relation, const struct ts_case_entry *other)
{
    const struct ts_cause_proof *proof = &relation->cause.proof;
    const bool coarse =
        relation->explained < NEARLY_ALL_OF_A_RELATION && relation->evidence < LEAST_EVIDENCE_OF_A_RELATION;
    const bool beyond =
        1 - relation->explained > LEFT_OF_A_RELATION && proof->left > FAR_ABOVE_ROUNDING * proof->rounding;
    return (coarse && other->cause.confidence >= SURE_ENOUGH) ||
           (beyond && other->plain && other->cause.confidence >= SURE && ts_kind_bonus(other->cause.id) > TS_RELATIONS);
}

/* Puts a step or a place before relations that are not precise, and what is not a number before any: nobody has to
 * guess about that. */
static void settle_doubts(struct ts_case_book *book)
{
    size_t other, relations = 0;
    while (relations < book->count && is_relation(&book->entries[relations]))
        relations++;
    if (relations && relations < book->count && is_not_finite(book->entries[relations].cause.id))
        put_first(book, relations);
    for (other = 0; relations < book->count && other < relations; other++)
        if (!is_doubtful(&book->entries[other], &book->entries[relations]))
            break;
    if (other && other == relations && other < book->count)
        put_first(book, other);
    for (size_t i = 1; i < book->count; i++)
        if (is_freer_for_nothing(&book->entries[0], &book->entries[i]))
            put_first(book, i);
}

static bool is_tie(const struct ts_case_entry *first, const struct ts_case_entry *other)
{
    return other != first && fabs(first->cause.confidence - other->cause.confidence) <= TIE &&
           fabs(first->evidence - other->evidence) <= TIE_EVIDENCE;
}

static void write_down(const struct ts_case_book *book, struct ts_diagnosis *diagnosis)
{
    const struct ts_case_entry *first = NULL;
    for (size_t i = 0; i < book->count && diagnosis->count < TS_MOST_CAUSES; i++)
        if (ts_case_is_said(book, i)) {
            struct ts_cause *cause = &diagnosis->causes[diagnosis->count++];
            first = first ? first : &book->entries[i];
            *cause = book->entries[i].cause;
            cause->tied = is_tie(first, &book->entries[i]);
            diagnosis->causes[0].tied = diagnosis->causes[0].tied || cause->tied;
        }
}

/* Where "expected" comes from. */
static const char *held_against(const struct ts_case_state *state)
{
    if (state->replayed)
        return "the model's weights times the candidate's own input";
    if (state->face.operation.kind != TS_OPERATION_NONE)
        return "the reference's operation, replayed on the candidate's own inputs";
    return "the reference's values";
}

/* What an error that is spread over rows and channels follows. */
static const char *what_it_follows(struct ts_case *the_case)
{
    double value = ts_pattern_of_value(the_case), one;
    if (value > LEAST_PATTERN)
        return ts_case_text(the_case,
                            "%.0f %% of it depends on the expected value alone: the candidate computes another "
                            "function of the same values",
                            100 * value);
    one = ts_pattern_of_rank_one(the_case);
    if (one > LEAST_PATTERN)
        return ts_case_text(the_case, "%.0f %% of it is one row of numbers, times a factor for each row", 100 * one);
    return "it is spread over rows and channels";
}

/* The row or channel that holds most of the error, when that is far above its share. */
static const char *where_it_stands(struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor;
    double *errors = calloc(actor->rows + actor->width, sizeof *errors), most = OVER_ITS_SHARE;
    const char *text = NULL;
    for (size_t i = 0; errors && i < the_case->total; i++) {
        double cost = ts_element_cost(the_case->found[i], the_case->expected[i], the_case->expected[i]);
        errors[i / actor->width] += cost > 0 ? cost : 0;
        errors[actor->rows + i % actor->width] += cost > 0 ? cost : 0;
    }
    for (size_t p = 0; errors && the_case->error > 0 && p < actor->rows + actor->width; p++) {
        bool row = p < actor->rows;
        size_t parts = row ? actor->rows : actor->width;
        double share = errors[p] / the_case->error;
        if (share < LEAST_SHARE || share * (double)parts < most)
            continue;
        most = share * (double)parts;
        text = ts_case_text(the_case, "%s %" PRIu64 " of %zu holds %.0f %% of it",
                            row ? ts_case_row_word(the_case) : "channel",
                            row ? ts_case_row(the_case, p) : (uint64_t)(p - actor->rows), parts, 100 * share);
    }
    free(errors);
    return text ? text : what_it_follows(the_case);
}

/* The input of the case's operation that errs the most. */
static const char *worst_input(const struct ts_case_state *state)
{
    const struct ts_operation *operation = &state->face.operation;
    size_t worst = operation->inputs[0];
    for (unsigned k = 1; k < operation->input_count; k++)
        if (!(state->deltas[operation->inputs[k]].rel_l2 <= state->deltas[worst].rel_l2))
            worst = operation->inputs[k];
    return state->face.scene->pairs[worst].name;
}

/* When no cause holds: the most telling thing there is to say. */
static void say_strongest(struct ts_case_state *state)
{
    struct ts_case *the_case = &state->face;
    const struct ts_delta *delta = &state->deltas[the_case->diagnosis->pair];
    struct ts_structure structure = {0};
    double relative = 0, size = 0, dot = 0;
    bool counted, knows = state->quiet && (the_case->operation.kind != TS_OPERATION_NONE || state->replayed);
    const char *text;
    if (!state->direct)
        ts_structure_measure(&state->scene, the_case->actor, &structure);
    for (size_t i = 0; i < the_case->total; i++)
        if (isfinite(the_case->expected[i]) && isfinite(the_case->found[i])) {
            size += the_case->expected[i] * the_case->expected[i];
            dot += the_case->expected[i] * (the_case->found[i] - the_case->expected[i]);
        }
    relative = size > 0 ? sqrt(the_case->error / size) : 0;
    if (state->quiet && the_case->operation.kind != TS_OPERATION_NONE)
        text = ts_case_text(the_case,
                            "replayed on the candidate's own inputs, the operation gives the candidate's values up to "
                            "rounding: the error comes from %s",
                            worst_input(state));
    else if (state->quiet && state->replayed)
        text = ts_case_text(
            the_case,
            "%s times the candidate's own %s gives the candidate's values up to rounding: the error comes from %s",
            ts_product_name(the_case, &state->product), ts_case_name(the_case, state->product.input),
            ts_case_name(the_case, state->product.input));
    else if (delta->non_finite_mismatch)
        text = ts_case_text(the_case,
                            "no known cause fits; %" PRIu64 " of %" PRIu64
                            " elements are NaN or infinite on one side only, or infinite with opposite signs",
                            delta->non_finite_mismatch, delta->count);
    else if (delta->exact)
        text = ts_case_text(the_case, "no known cause fits; %" PRIu64 " of %" PRIu64 " integers differ", delta->unequal,
                            delta->count);
    else if (!(size > 0))
        text = ts_case_text(the_case, "no known cause fits; only zeros are expected here, so no place stands out");
    else if (state->quiet && !(relative > 0))
        text = ts_case_text(the_case, "no known cause fits; the tokens that were not set aside agree");
    else if (state->quiet &&
             relative > CARRIED * fmax(ts_rounding(the_case->actor->bits_a), ts_rounding(the_case->actor->bits_b)))
        text = ts_case_text(the_case,
                            "the difference (%.3g of the tensor's norm) is no larger than what comes in makes it, and "
                            "has no form of its own",
                            relative);
    else if (state->quiet)
        text = ts_case_text(the_case, "the difference (%.3g of the tensor's norm) is spread like rounding", relative);
    else if (structure.known && structure.channel > ts_channel_limit(&structure))
        text = ts_case_text(the_case, "no known cause fits; channel %zu has %.0f times the error of the others",
                            structure.worst_channel, structure.channel);
    else if (structure.known && structure.row > TS_ROW_LIMIT)
        text =
            ts_case_text(the_case, "no known cause fits; %s %" PRIu64 " has %.0f times the error of the others",
                         ts_case_row_word(the_case), ts_case_row(the_case, structure.worst_row), sqrt(structure.row));
    else
        text = ts_case_text(the_case,
                            "no known cause fits; the error is %.3g of the tensor's norm, %.0f %% of its energy is "
                            "proportional to the reference, and %s",
                            relative, the_case->error > 0 && size > 0 ? 100 * dot * dot / (size * the_case->error) : 0,
                            where_it_stands(the_case));
    /* numbers of elements are those of all of it; what else is said is of the rows at hand */
    counted = (delta->non_finite_mismatch || delta->exact) && !knows;
    the_case->diagnosis->strongest =
        counted ? text : ts_case_text(the_case, "%s%s", text, ts_case_seen_on(state, state->quiet));
}

static enum ts_status ask_families(struct ts_case_state *state, struct ts_error *error)
{
    const struct ts_pair *pair = &state->scene.pairs[state->face.actor->pair];
    struct ts_progress progress;
    size_t families = 0;
    while (ts_families[families])
        families++;
    ts_progress_start_elements(&progress, "looking for causes", families * state->face.total);
    for (size_t i = 0; ts_families[i]; i++) {
        state->family = i;
        ts_families[i]->propose(&state->face);
        ts_progress_add(&progress, state->face.total);
        state->next = (struct ts_formula){0};
        ts_case_drop_scratch(state);
        ts_view_forget(&pair->a, 0, pair->a.count); /* samples touch pages everywhere */
        ts_view_forget(&pair->b, 0, pair->b.count);
        if (atomic_load(&ts_cancelled))
            break;
    }
    ts_progress_finish(&progress);
    if (atomic_load(&ts_cancelled))
        return ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
    ts_case_look_at_parts(state);
    settle_doubts(state->book);
    ts_case_prove(state);
    if (atomic_load(&ts_cancelled))
        return ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
    return TS_OK;
}

/* Rows in which the best claim fails, and as many of those that it was found on. */
static size_t mixed_rows(const struct ts_case_state *state, uint64_t *list)
{
    size_t rows = state->face.actor->rows, count = 0, kept = 0, half = rows / 2;
    uint64_t first = state->direct ? 0 : ts_scene_first(&state->scene);
    uint64_t end = state->direct ? UINT64_MAX : first + ts_scene_sequence(&state->scene);
    for (size_t i = 0; i < state->failing_count && count < half; i++)
        if (state->failing[i] >= first && state->failing[i] < end)
            list[count++] = state->failing[i];
    for (size_t i = 0, old = rows - count; i < old && count; i++)
        list[count + i] = ts_case_row(&state->face, i * rows / old) + first;
    if (!count)
        return 0;
    qsort(list, rows, sizeof *list, ts_by_number);
    for (size_t i = 0; i < rows; i++)
        if (!kept || list[i] != list[kept - 1])
            list[kept++] = list[i];
    return kept;
}

/* Whether the best claim of a second look was proved as the first one was, and holds better. */
static bool holds_better(const struct ts_case_book *book, double best)
{
    const struct ts_cause *cause = &book->entries[0].cause;
    return book->count && cause->confidence > best + BETTER && cause->proof.of_rows > 0 &&
           (cause->proof.rows == cause->proof.of_rows || best < ANYTHING_ELSE);
}

/* The claims of the second look, then what is left of the first one's. */
static void put_before(struct ts_case_book *book, const struct ts_case_book *second)
{
    struct ts_case_book first = *book;
    *book = *second;
    for (size_t i = 0; i < book->count; i++) { /* what their formulas point to goes with their case */
        book->entries[i].tried = true;
        book->entries[i].formula = (struct ts_formula){0};
    }
    for (size_t i = 0; i < first.count && book->count < TS_CASE_ENTRIES; i++) {
        size_t at = 0;
        while (at < book->count && strcmp(book->entries[at].cause.id, first.entries[i].cause.id) != 0)
            at++;
        if (at == book->count)
            book->entries[book->count++] = first.entries[i];
    }
}

/* The best claim does not hold in other rows: a second look, with some of those. What holds better then is said. */
static enum ts_status look_again(struct ts_case_state *state, struct ts_error *error)
{
    struct ts_case_state *other = malloc(sizeof *other);
    uint64_t *list = calloc(state->face.actor->rows, sizeof *list);
    struct ts_case_rows rows = {.list = list, .reach = TS_SCENE_WINDOW, .glance = &state->glance};
    enum ts_status status = TS_OK;
    double best = state->book->count ? state->book->entries[0].cause.confidence : 0;
    rows.count = list ? mixed_rows(state, list) : 0;
    if (other && rows.count) {
        status = ts_case_open_at(other, state->scene.pairs, state->deltas, state->pair_count, state->face.actor->pair,
                                 state->evidence, &rows, state->face.diagnosis, error);
        if (status == TS_OK && other->face.total && other->direct == state->direct && !other->quiet)
            status = ask_families(other, error);
        if (status == TS_OK && holds_better(other->book, best)) {
            ts_case_own_up(other);
            put_before(state->book, other->book);
            ts_case_prove(state); /* of those left some may be said now */
        }
        ts_case_release(other);
    }
    free(other);
    free(list);
    return status;
}

/* When no cause holds. Of a batch one sequence is looked at, which may be a few tokens; what remains is a question of
 * numbers, which the tokens of all sequences answer as well. */
static enum ts_status say_remainder(struct ts_case_state *state, struct ts_error *error)
{
    const struct ts_scene *scene = &state->scene;
    size_t most = scene->tokens < ALL_SEQUENCES ? (size_t)scene->tokens : ALL_SEQUENCES;
    struct ts_case_rows rows = {.reach = TS_SCENE_WINDOW, .glance = &state->glance};
    struct ts_case_state *other;
    enum ts_status status = TS_OK;
    uint64_t *list;
    ts_case_say_remainder(state);
    ts_case_prove(state);
    if (state->book->count || state->direct || state->quiet || scene->batch <= 1 || scene->taken_count >= most)
        return TS_OK;
    other = malloc(sizeof *other);
    list = calloc(most, sizeof *list);
    for (size_t i = 0; i < most && list; i++)
        list[i] = i * scene->tokens / most;
    rows.list = list;
    rows.count = most;
    if (other && list) {
        status = ts_case_open_at(other, scene->pairs, state->deltas, state->pair_count, state->face.actor->pair,
                                 state->evidence, &rows, state->face.diagnosis, error);
        if (status == TS_OK && other->face.total && !other->direct) {
            ts_case_say_remainder(other);
            ts_case_prove(other);
            ts_case_own_up(other);
            put_before(state->book, other->book);
        }
        ts_case_release(other);
    }
    free(other);
    free(list);
    return status;
}

enum ts_status ts_diagnose(const struct ts_pair *pairs, const struct ts_delta *deltas, size_t count, size_t index,
                           struct ts_diagnosis *diagnosis, struct ts_error *error)
{
    return ts_diagnose_with(pairs, deltas, count, index, NULL, diagnosis, error);
}

enum ts_status ts_diagnose_with(const struct ts_pair *pairs, const struct ts_delta *deltas, size_t count, size_t index,
                                const struct ts_evidence *evidence, struct ts_diagnosis *diagnosis,
                                struct ts_error *error)
{
    struct ts_case_state *state;
    enum ts_status status;
    *diagnosis = (struct ts_diagnosis){.pair = index};
    ts_arena_init(&diagnosis->arena, (size_t)1 << 24);
    if (index >= count)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "there is no pair %zu of %zu", index, count);
    if (pairs[index].problem) {
        diagnosis->strongest = ts_arena_string(&diagnosis->arena, pairs[index].problem);
        return TS_OK;
    }
    state = malloc(sizeof *state); /* too large for small stacks */
    if (!state)
        return ts_fail_memory(error);
    status = ts_case_open(state, pairs, deltas, count, index, evidence, diagnosis, error);
    if (status == TS_OK && state->face.total && pairs[index].a.count)
        status = ask_families(state, error);
    if (status == TS_OK && state->failing_count)
        status = look_again(state, error);
    if (status == TS_OK && state->face.total && pairs[index].a.count) {
        diagnosis->against = held_against(state);
        if (!state->book->count) {
            if (state->deltas) /* it speaks of what was measured */
                say_strongest(state);
            status = say_remainder(state, error);
        }
        ts_case_own_up(state);
        write_down(state->book, diagnosis);
    }
    ts_case_release(state);
    free(state);
    if (status != TS_OK)
        ts_diagnosis_release(diagnosis);
    return status;
}

void ts_diagnosis_release(struct ts_diagnosis *diagnosis)
{
    ts_arena_release(&diagnosis->arena);
    *diagnosis = (struct ts_diagnosis){0};
}
