/* Owns the order of the steps of a comparison, and the rules that users give instead of the judge's. */
#include "compare/comparison.h"

#include <inttypes.h>
#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare/comparison_edits.h"
#include "compare/comparison_guesses.h"
#include "compare/exact.h"
#include "compare/honesty.h"
#include "compare/threeway.h"

_Static_assert(sizeof((struct ts_comparison *)0)->doubts / sizeof(char *) == TS_MOST_DOUBTS, "room for every doubt");

/* Pairs that get profiles and quantiles when there are very many: those that differ, up to this number. */
#define DETAILED 2000
/* Where no more pairs than these were captured, their own errors are all that is known of the precision of the run. */
#define FEW_PAIRS      3
#define MANY_ROUNDINGS 25.0 /* five times the error of one */
#define NEVER_F32      1e-3 /* nothing that is computed in f32 throughout errs by as much */
#define NEVER_BF16     0.03 /* nor in sixteen or eight bits: weights or a cache of fewer do, or a bug */

const char *ts_comparison_grade(const struct ts_delta *delta)
{
    if (delta->non_finite_mismatch)
        return "SIGNIFICANT";
    if (delta->allclose[1])
        return "EXCELLENT";
    if (delta->allclose[0])
        return "GOOD";
    return delta->max_abs < 1e-2 && delta->cosine > 0.99 ? "ACCEPTABLE" : "SIGNIFICANT";
}

struct metric {
    const char *name;
    size_t offset; /* of a double in struct ts_delta; SIZE_MAX for those that are computed */
};

static const struct metric metrics[] = {{"max_abs", offsetof(struct ts_delta, max_abs)},
                                        {"mean_abs", offsetof(struct ts_delta, mean_abs)},
                                        {"mse", offsetof(struct ts_delta, mse)},
                                        {"rel_l2", offsetof(struct ts_delta, rel_l2)},
                                        {"max_rel", offsetof(struct ts_delta, max_rel)},
                                        {"max_ulp", offsetof(struct ts_delta, max_ulp)},
                                        {"cosine", offsetof(struct ts_delta, cosine)},
                                        {"norm_ratio", offsetof(struct ts_delta, norm_ratio)},
                                        {"roundings", SIZE_MAX},
                                        {"mismatched", SIZE_MAX}};

struct rule {
    regex_t regex;
    const struct metric *metric;
    double limit;
    bool less;
    const char *text;
};

/* "REGEX: metric < number" or "metric > number"; the last colon separates. */
static enum ts_status parse_rule(const char *text, struct rule *rule, struct ts_error *error)
{
    const char *colon = strrchr(text, ':'), *at = colon ? colon + 1 : text;
    char *pattern, name[32] = "", sign = 0, extra;
    int got = colon ? sscanf(at, " %31[a-z0-9_] %c %lf %c", name, &sign, &rule->limit, &extra) : 0;
    rule->metric = NULL;
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
        if (strcmp(metrics[i].name, name) == 0)
            rule->metric = &metrics[i];
    if (got != 3 || (sign != '<' && sign != '>') || !rule->metric)
        return ts_fail(
            error, TS_ERR_USAGE, TS_NO_OFFSET,
            "rule \"%s\" is not of the form 'REGEX: metric < number'; metrics are max_abs, mean_abs, mse, rel_l2, "
            "max_rel, max_ulp, cosine, norm_ratio, roundings, mismatched",
            text);
    pattern = strndup(text, (size_t)(colon - text));
    if (!pattern)
        return ts_fail_memory(error);
    got = regcomp(&rule->regex, pattern, REG_EXTENDED | REG_NOSUB);
    free(pattern);
    if (got != 0)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "rule \"%s\" does not begin with a regular expression", text);
    rule->less = sign == '<';
    rule->text = text;
    return TS_OK;
}

static double metric_value(const struct ts_comparison *comparison, size_t i, const struct metric *metric)
{
    const struct ts_delta *delta = &comparison->deltas[i];
    if (metric->offset != SIZE_MAX)
        return *(const double *)((const char *)delta + metric->offset);
    return metric->name[0] == 'r' ? comparison->judgement.verdicts[i].roundings : (double)delta->mismatched;
}

static void set_verdict(struct ts_comparison *comparison, size_t i, bool good, const char *why, const char *allowed)
{
    struct ts_verdict *verdict = &comparison->judgement.verdicts[i];
    verdict->judged = good ? (comparison->deltas[i].unequal ? TS_JUDGED_NOISE : TS_JUDGED_OK) : TS_JUDGED_DIFFERS;
    verdict->made_here = !good;
    verdict->allowed = verdict->judged == TS_JUDGED_NOISE;
    verdict->why = good ? allowed : why;
}

/* The first pair that differs, and how many there are of each kind. */
static void count_again(struct ts_judgement *judgement)
{
    memset(judgement->counts, 0, sizeof judgement->counts);
    judgement->first = SIZE_MAX;
    for (size_t i = 0; i < judgement->count; i++) {
        judgement->counts[judgement->verdicts[i].judged]++;
        if (judgement->verdicts[i].judged == TS_JUDGED_DIFFERS && judgement->first == SIZE_MAX)
            judgement->first = i;
    }
}

/* What carries the error of a tensor that a rule lets pass still differs, and from where is said, up to where more
 * error is made: what comes behind that may carry either. */
static enum ts_status name_source(struct ts_comparison *comparison, size_t first, struct ts_error *error)
{
    struct ts_judgement *judgement = &comparison->judgement;
    const char *why;
    if (first == SIZE_MAX || judgement->verdicts[first].judged == TS_JUDGED_DIFFERS)
        return TS_OK;
    why = ts_arena_printf(&judgement->arena, "carried from %s, which a rule allows",
                          comparison->pairing.pairs[first].name);
    for (size_t i = first + 1; i < judgement->count && why && !judgement->verdicts[i].made_here; i++)
        if (judgement->verdicts[i].judged == TS_JUDGED_DIFFERS)
            judgement->verdicts[i].why = why;
    return why ? TS_OK : ts_fail_memory(error);
}

/* Fixed tolerances and grades stand for the judge everywhere; a rule where its expression matches. */
static enum ts_status apply_rules(struct ts_comparison *comparison, const struct ts_comparison_options *options,
                                  struct ts_error *error)
{
    struct ts_judgement *judgement = &comparison->judgement;
    const size_t first = judgement->first;
    enum ts_status status = TS_OK;
    for (size_t i = 0; i < judgement->count; i++) {
        const struct ts_delta *delta = &comparison->deltas[i];
        if (comparison->pairing.pairs[i].problem)
            continue;
        if (options->fixed_tolerance)
            set_verdict(comparison, i, delta->mismatched == 0, "some elements are outside the given tolerance",
                        "within the given tolerance");
        else if (options->grades)
            set_verdict(comparison, i, strcmp(ts_comparison_grade(delta), "SIGNIFICANT") != 0,
                        "its grade is SIGNIFICANT", "its grade allows it");
    }
    for (size_t k = 0; options->rules && options->rules[k]; k++) {
        struct rule rule;
        TS_TRY(parse_rule(options->rules[k], &rule, error));
        for (size_t i = 0; i < judgement->count; i++) {
            const struct ts_pair *pair = &comparison->pairing.pairs[i];
            double value;
            if (pair->problem || regexec(&rule.regex, pair->name, 0, NULL, 0) != 0)
                continue;
            if (rule.metric->offset == offsetof(struct ts_delta, max_ulp) &&
                (status = ts_delta_ulps(pair, &comparison->deltas[i], error)) != TS_OK)
                break;
            value = metric_value(comparison, i, rule.metric);
            set_verdict(
                comparison, i,
                (rule.less ? value < rule.limit : value > rule.limit) && !comparison->deltas[i].non_finite_mismatch,
                ts_arena_printf(&judgement->arena, "the rule \"%s\" does not hold: it is %.6g", rule.text, value),
                ts_arena_printf(&judgement->arena, "allowed by the rule \"%s\": it is %.6g", rule.text, value));
        }
        regfree(&rule.regex);
        TS_TRY(status);
    }
    if (options->fixed_tolerance || options->grades || options->rules)
        count_again(judgement);
    return options->rules ? name_source(comparison, first, error) : TS_OK;
}

/* A rule that cannot be understood is told of before hours of reading. */
static enum ts_status check_rules(const struct ts_comparison_options *options, struct ts_error *error)
{
    for (size_t k = 0; options->rules && options->rules[k]; k++) {
        struct rule rule;
        TS_TRY(parse_rule(options->rules[k], &rule, error));
        regfree(&rule.regex);
    }
    return TS_OK;
}

/* Numbers of one part against numbers of two cannot be compared; the others of their files can. */
void ts_set_complex_aside(struct ts_pairing *pairing)
{
    for (size_t i = 0; i < pairing->count; i++) {
        struct ts_pair *pair = &pairing->pairs[i];
        if (!pair->problem &&
            ts_type_info(pair->a.tensor->type)->components != ts_type_info(pair->b.tensor->type)->components)
            pair->problem = "complex numbers against real ones";
    }
}

/* A rule that fits no tensor is most likely misspelt, and would pass for one that holds. */
static enum ts_status doubt_idle_rules(struct ts_comparison *comparison, const struct ts_comparison_options *options,
                                       struct ts_error *error)
{
    const size_t most = sizeof comparison->doubts / sizeof *comparison->doubts;
    for (size_t k = 0; options->rules && options->rules[k] && comparison->doubt_count < most; k++) {
        struct rule rule;
        bool fits = false;
        const char *text;
        TS_TRY(parse_rule(options->rules[k], &rule, error));
        for (size_t i = 0; i < comparison->pairing.count && !fits; i++)
            fits = regexec(&rule.regex, comparison->pairing.pairs[i].name, 0, NULL, 0) == 0;
        regfree(&rule.regex);
        text = fits ? NULL : ts_arena_printf(&comparison->arena, "the rule \"%s\" matches no tensor", rule.text);
        if (text)
            comparison->doubts[comparison->doubt_count++] = text;
    }
    return TS_OK;
}

/* Tensors that are equal but for how their masks are written are not the same bytes, and the report says why they pass.
 */
static void note_masks(struct ts_comparison *comparison)
{
    struct ts_judgement *judgement = &comparison->judgement;
    uint64_t elements = 0;
    size_t tensors = 0;
    const char *first = NULL, *text;
    for (size_t i = 0; i < comparison->pairing.count; i++)
        if (comparison->deltas[i].masked) {
            elements += comparison->deltas[i].masked;
            first = tensors++ ? first : comparison->pairing.pairs[i].name;
        }
    if (!tensors || judgement->note_count >= sizeof judgement->notes / sizeof *judgement->notes)
        return;
    text =
        ts_arena_printf(&judgement->arena,
                        "masked on both sides with different values (such as -inf and the lowest of the type): %" PRIu64
                        " element%s of \"%s\"%s, counted as equal",
                        elements, elements == 1 ? "" : "s", first, tensors == 1 ? "" : " and others");
    if (text)
        judgement->notes[judgement->note_count++] = text;
}

/* What could not be read: files, or tensors of files that could. */
static size_t lost_members(const struct ts_comparison *comparison, bool inside)
{
    const struct ts_bundle *sides[2] = {comparison->a, comparison->b};
    size_t lost = 0;
    for (unsigned side = 0; side < 2; side++)
        for (size_t i = 0; i < sides[side]->skip_count; i++)
            lost += !sides[side]->skips[i].harmless && sides[side]->skips[i].inside == inside;
    return lost;
}

static size_t sampled_pairs(const struct ts_comparison *comparison)
{
    size_t sampled = 0;
    for (size_t i = 0; i < comparison->pairing.count; i++)
        sampled += comparison->pairing.pairs[i].a.tensor->sampled || comparison->pairing.pairs[i].b.tensor->sampled;
    return sampled;
}

static size_t uncompared_pairs(const struct ts_comparison *comparison)
{
    size_t count = 0;
    for (size_t i = 0; i < comparison->pairing.count; i++)
        count += comparison->pairing.pairs[i].problem && comparison->judgement.verdicts[i].judged == TS_JUDGED_UNKNOWN;
    return count;
}

/* Whether something is, and the sentence that says what. */
static bool is_lacking(struct ts_comparison *comparison, size_t alone, const char **sentence)
{
    const struct ts_pairing *pairing = &comparison->pairing;
    const size_t uncompared = uncompared_pairs(comparison);
    const struct {
        size_t count;
        const char *one, *many;
    } lacking[] = {{alone, "tensor has no partner", "tensors have no partner"},
                   {uncompared, "pair could not be compared", "pairs could not be compared"},
                   {comparison->judgement.counts[TS_JUDGED_UNKNOWN] - uncompared, "tensor could not be judged",
                    "tensors could not be judged"},
                   {lost_members(comparison, true), "tensor could not be read", "tensors could not be read"},
                   {lost_members(comparison, false), "file could not be read", "files could not be read"},
                   {sampled_pairs(comparison), "dump is a sample", "dumps are samples"},
                   {pairing->lacking, "tensor lacks ranks", "tensors lack ranks"},
                   {pairing->lacking_experts, "tensor lacks experts", "tensors lack experts"}};
    char text[512] = "nothing that was compared differs, but";
    size_t used = strlen(text), parts = 0, told = 0;
    for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++)
        parts += lacking[i].count > 0;
    if (!parts)
        return false;
    for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++)
        if (lacking[i].count) {
            const char *join = !told ? "" : told + 1 == parts ? " and" : ",";
            used += (size_t)snprintf(text + used, sizeof text - used, "%s %zu %s", join, lacking[i].count,
                                     lacking[i].count == 1 ? lacking[i].one : lacking[i].many);
            told++;
        }
    *sentence = ts_arena_string(&comparison->arena, text);
    return true;
}

static bool is_unexplained(const struct ts_comparison *comparison, size_t i)
{
    const struct ts_verdict *verdict = &comparison->judgement.verdicts[i];
    return verdict->judged == TS_JUDGED_NOISE && isnan(verdict->noise_ratio) && !verdict->three_ways &&
           verdict->roundings > MANY_ROUNDINGS;
}

/* Where little was captured, the largest error that neither an operation nor rounding to the type explains: a coarse
 * precision makes it, and so does a bug. 0 when there is none, or when the user has said what is allowed. */
static double unexplained_error(const struct ts_comparison *comparison, const struct ts_comparison_options *options)
{
    double most = 0;
    if (comparison->pairing.count + comparison->filtered > FEW_PAIRS || comparison->judgement.weights ||
        options->fixed_tolerance || options->rules || options->grades)
        return 0;
    for (size_t i = 0; i < comparison->pairing.count; i++)
        if (is_unexplained(comparison, i) && comparison->deltas[i].rel_l2 > most)
            most = comparison->deltas[i].rel_l2;
    return most > NEVER_F32 ? most : 0;
}

static void advise(struct ts_comparison *comparison)
{
    struct ts_judgement *judgement = &comparison->judgement;
    if (judgement->note_count < sizeof judgement->notes / sizeof *judgement->notes)
        judgement->notes[judgement->note_count++] =
            "lower precision or a bug can make such an error: with nothing captured before it, there is no telling "
            "which; capture more tensors, or say what is allowed (--rtol 1e-3 --atol 1e-5)";
}

/* Of few tensors, one that errs by more than sixteen bits make is not called noise: nothing there says so. */
static void leave_open(struct ts_comparison *comparison, const struct ts_comparison_options *options)
{
    if (comparison->judgement.counts[TS_JUDGED_DIFFERS] || unexplained_error(comparison, options) <= NEVER_BF16)
        return;
    advise(comparison);
    for (size_t i = 0; i < comparison->pairing.count; i++)
        if (is_unexplained(comparison, i) && comparison->deltas[i].rel_l2 > NEVER_BF16) {
            struct ts_verdict *verdict = &comparison->judgement.verdicts[i];
            verdict->judged = TS_JUDGED_UNKNOWN;
            verdict->why = ts_arena_printf(&comparison->arena,
                                           "low-bit weights, a low-bit cache or a bug can make an error of %.2g",
                                           comparison->deltas[i].rel_l2);
        }
    count_again(&comparison->judgement);
}

/* "all 12 tensors", of two or more. */
static const char *all_tensors(struct ts_comparison *comparison)
{
    const char *text = comparison->pairing.count == 2
                           ? "both tensors"
                           : ts_arena_printf(&comparison->arena, "all %zu tensors", comparison->pairing.count);
    return text ? text : "all tensors";
}

/* How much alike two inputs are that match. */
static const char *what_agrees(struct ts_comparison *comparison, const struct ts_comparison_options *options)
{
    const size_t count = comparison->pairing.count;
    const double error = unexplained_error(comparison, options);
    const bool coarse =
        comparison->judgement.coarse != SIZE_MAX && !options->fixed_tolerance && !options->rules && !options->grades;
    const double large = coarse ? 0.5 * comparison->deltas[comparison->judgement.coarse].rel_l2 : 0;
    size_t unequal = 0, masked = 0, partial = 0, so_large = 0, three_ways = 0;
    double most = 0;
    const char *but, *where;
    for (size_t i = 0; i < count; i++) {
        unequal += comparison->deltas[i].unequal > 0;
        three_ways += comparison->deltas[i].unequal > 0 && comparison->judgement.verdicts[i].three_ways;
        so_large += comparison->deltas[i].rel_l2 >= large;
        most = fmax(most, comparison->deltas[i].rel_l2);
        partial += comparison->pairing.pairs[i].partial;
        masked += comparison->deltas[i].unequal == 0 && comparison->deltas[i].masked > 0;
    }
    where = partial ? " in the parts that both sides have" : "";
    but = !unequal                            ? "except for how masks are written"
          : options->fixed_tolerance          ? "within the given tolerance"
          : options->rules || options->grades ? "by the given rules"
          : three_ways == unequal             ? "up to the reference's own error"
                                              : "up to rounding";
    if (error > 0) {
        advise(comparison);
        return ts_arena_printf(
            &comparison->arena,
            "nothing shows that %s wrong, but %s an error of %.2g, more than rounding to its type explains",
            count == 1 ? "the only tensor is" : "a tensor is", count == 1 ? "it has" : "one has", error);
    }
    if (coarse && unequal && count > 1) {
        /* tokens that were set aside would be in it */
        const char *by =
            comparison->judgement.aside_count ? "" : ts_arena_printf(&comparison->arena, ", up to %.2g", most);
        return ts_arena_printf(&comparison->arena,
                               "%s agree, provided the candidate uses low-bit weights or a low-bit cache: "
                               "%zu ha%s errors of that size%s%s",
                               all_tensors(comparison), so_large, so_large == 1 ? "s" : "ve", by ? by : "", where);
    }
    if (!unequal && !masked)
        return count == 1 ? ts_arena_printf(&comparison->arena, "the only tensor is equal%s", where)
                          : ts_arena_printf(&comparison->arena, "%s are equal%s", all_tensors(comparison), where);
    if (count == 1)
        return ts_arena_printf(&comparison->arena, "the only tensor %s %s%s", unequal ? "agrees" : "is equal", but,
                               where);
    if ((unequal ? unequal : masked) == count)
        return ts_arena_printf(&comparison->arena, "%s %s %s%s", all_tensors(comparison),
                               unequal ? "agree" : "are equal", but, where);
    return ts_arena_printf(&comparison->arena, "%s %s%s, %zu of them %s", all_tensors(comparison),
                           unequal ? "agree" : "are equal", where, unequal ? unequal : masked, but);
}

static const char *why_nothing(const struct ts_comparison *comparison)
{
    if (comparison->filtered)
        return "no compared tensor has a name that matches the filter";
    if (!comparison->a->count && !comparison->b->count)
        return "neither input has a readable tensor";
    if (!comparison->a->count || !comparison->b->count)
        return comparison->a->count ? "the candidate has no readable tensor" : "the reference has no readable tensor";
    return "the two inputs have no tensor in common (say with --map which ones belong together)";
}

static void decide(struct ts_comparison *comparison, const struct ts_comparison_options *options)
{
    const struct ts_judgement *judgement = &comparison->judgement;
    const struct ts_pairing *pairing = &comparison->pairing;
    const size_t alone = (options->partial ? 0 : pairing->only_a_count) + pairing->only_b_count;
    if (judgement->counts[TS_JUDGED_DIFFERS]) {
        comparison->outcome = TS_OUTCOME_DIFFER;
        comparison->outcome_text = pairing->count == 1
                                       ? "the only tensor differs"
                                       : ts_arena_printf(&comparison->arena, "%zu of %zu tensors differ",
                                                         judgement->counts[TS_JUDGED_DIFFERS], pairing->count);
    } else if (!pairing->count) {
        comparison->outcome = TS_OUTCOME_INCOMPLETE;
        comparison->outcome_text = why_nothing(comparison);
    } else if (is_lacking(comparison, alone, &comparison->outcome_text)) {
        comparison->outcome = TS_OUTCOME_INCOMPLETE;
    } else {
        comparison->outcome = TS_OUTCOME_MATCH;
        comparison->outcome_text = what_agrees(comparison, options);
    }
    if (!comparison->outcome_text)
        comparison->outcome_text = "";
}

static size_t keep_matching(const regex_t *regex, const struct ts_tensor **tensors, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (regexec(regex, tensors[i]->name, 0, NULL, 0) == 0)
            tensors[kept++] = tensors[i];
    return kept;
}

/* Pairs whose name does not match the filter go, with what was found out about them; order stays. */
static enum ts_status filter_pairs(struct ts_comparison *comparison, const char *filter, struct ts_error *error)
{
    struct ts_pairing *pairing = &comparison->pairing;
    regex_t regex;
    size_t kept = 0;
    if (regcomp(&regex, filter, REG_EXTENDED | REG_NOSUB) != 0)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "\"%s\" is not a regular expression", filter);
    for (size_t i = 0; i < pairing->count; i++) {
        if (regexec(&regex, pairing->pairs[i].name, 0, NULL, 0) != 0)
            continue;
        pairing->pairs[kept] = pairing->pairs[i];
        if (comparison->deltas)
            comparison->deltas[kept] = comparison->deltas[i];
        if (comparison->judgement.verdicts)
            comparison->judgement.verdicts[kept] = comparison->judgement.verdicts[i];
        kept++;
    }
    comparison->filtered = pairing->count - kept;
    pairing->count = kept;
    if (comparison->judgement.verdicts) {
        comparison->judgement.count = kept;
        count_again(&comparison->judgement);
    }
    pairing->only_a_count = keep_matching(&regex, pairing->only_a, pairing->only_a_count);
    pairing->only_b_count = keep_matching(&regex, pairing->only_b, pairing->only_b_count);
    pairing->idle_a_count = keep_matching(&regex, pairing->idle_a, pairing->idle_a_count);
    pairing->idle_b_count = keep_matching(&regex, pairing->idle_b, pairing->idle_b_count);
    regfree(&regex);
    return TS_OK;
}

/* What is shown of a run was judged by all of it: the first of those shown need not be where it went wrong. */
static enum ts_status filter_run(struct ts_comparison *comparison, const struct ts_comparison_options *options,
                                 struct ts_error *error)
{
    struct ts_judgement *judgement = &comparison->judgement;
    const struct ts_pair *pairs = comparison->pairing.pairs;
    const char *first = judgement->first < comparison->pairing.count ? pairs[judgement->first].name : NULL, *text;
    const bool judged = !options->fixed_tolerance && !options->grades && !options->high_precision && !options->rules;
    TS_TRY(filter_pairs(comparison, options->filter, error));
    if (!first || !judged || (judgement->first < comparison->pairing.count && pairs[judgement->first].name == first) ||
        judgement->note_count >= sizeof judgement->notes / sizeof *judgement->notes)
        return TS_OK;
    text = ts_arena_printf(&comparison->arena, "the run's first divergence is %s, which the filter excludes", first);
    if (!text)
        return ts_fail_memory(error);
    judgement->notes[judgement->note_count++] = text;
    return TS_OK;
}

static enum ts_status measure(struct ts_comparison *comparison, const struct ts_comparison_options *options,
                              struct ts_pool *pool, struct ts_error *error)
{
    struct ts_pairing *pairing = &comparison->pairing;
    struct ts_progress progress;
    uint64_t elements = 0;
    enum ts_status status;
    comparison->deltas = calloc(pairing->count + 1, sizeof *comparison->deltas);
    if (!comparison->deltas)
        return ts_fail_memory(error);
    for (size_t i = 0; i < pairing->count; i++)
        elements += pairing->pairs[i].a.count;
    ts_progress_start_elements(&progress, "comparing", elements);
    status = ts_delta_run(pool, pairing->pairs, pairing->count, &options->delta, comparison->deltas, &progress, error);
    ts_progress_finish(&progress);
    return status;
}

/* Where the bytes of a view are counted: in its file, or in a member of an archive, which has a path of its own. */
static const char *file_of(const struct ts_view *view, const char *file)
{
    const struct ts_source *source = view->tensor->source;
    return source && source->path && source->parent ? source->path : file;
}

/* "byte 100 of its data is the first that differs (byte 2088 of the reference's file, 2096 of the candidate's)" */
static const char *first_byte_text(struct ts_arena *arena, const struct ts_pair *pair, uint64_t first)
{
    uint64_t in_a, in_b;
    ts_exact_places(pair, first, &in_a, &in_b);
    if (in_a == TS_EXACT_NOWHERE || in_b == TS_EXACT_NOWHERE) /* no byte of the file to point at */
        return ts_arena_printf(arena, "byte %" PRIu64 " of its data is the first that differs, as read from text",
                               first);
    return ts_arena_printf(
        arena, "byte %" PRIu64 " of its data is the first that differs (byte %" PRIu64 " of %s, %" PRIu64 " of %s)",
        first, in_a, file_of(&pair->a, "the reference's file"), in_b, file_of(&pair->b, "the candidate's"));
}

/* The values of pairs that are not the same bytes, and the verdicts of all. */
static enum ts_status judge_bytes(struct ts_comparison *comparison, const struct ts_comparison_options *options,
                                  struct ts_pool *pool, struct ts_progress *progress, struct ts_error *error)
{
    struct ts_judgement *judgement = &comparison->judgement;
    for (size_t i = 0; i < comparison->pairing.count; i++) {
        struct ts_pair *pair = &comparison->pairing.pairs[i];
        struct ts_verdict *verdict = &judgement->verdicts[i];
        struct ts_delta *delta = &comparison->deltas[i];
        uint64_t first = comparison->first_bytes[i];
        verdict->noise_ratio = (double)NAN;
        if (pair->problem) {
            verdict->judged = TS_JUDGED_UNKNOWN;
            verdict->why = pair->problem;
        } else if (first == TS_EXACT_EQUAL) {
            *delta = (struct ts_delta){.count = pair->a.count,
                                       .compared = pair->a.count,
                                       .identical = true,
                                       .cosine = 1,
                                       .norm_ratio = 1,
                                       .worst = UINT64_MAX,
                                       .first_non_finite_mismatch = UINT64_MAX,
                                       .allclose = {true, true, true}};
        } else {
            TS_TRY(ts_delta_run(pool, pair, 1, &options->delta, delta, progress, error));
            if (first != TS_EXACT_UNKNOWN) {
                verdict->judged = TS_JUDGED_DIFFERS;
                verdict->why = first_byte_text(&judgement->arena, pair, first);
            } else if (!delta->identical) {
                verdict->judged = TS_JUDGED_DIFFERS;
                verdict->why = "its values differ; so do the types or layouts, so bytes cannot be compared";
            }
        }
    }
    count_again(judgement);
    return TS_OK;
}

/* Byte for byte first; what is not the same, or has no bytes to compare, is measured as ever. Every difference counts.
 */
static enum ts_status judge_exactly(struct ts_comparison *comparison, const struct ts_comparison_options *options,
                                    bool weights, struct ts_pool *pool, struct ts_error *error)
{
    struct ts_pairing *pairing = &comparison->pairing;
    struct ts_judgement *judgement = &comparison->judgement;
    struct ts_progress progress;
    enum ts_status status;
    uint64_t bytes = 0;
    *judgement = (struct ts_judgement){.count = pairing->count, .first = SIZE_MAX, .weights = weights};
    ts_arena_init(&judgement->arena, (size_t)1 << 30);
    judgement->verdicts = ts_arena_array(&judgement->arena, pairing->count + 1, sizeof *judgement->verdicts);
    comparison->first_bytes = ts_arena_array(&comparison->arena, pairing->count + 1, sizeof(uint64_t));
    comparison->deltas = calloc(pairing->count + 1, sizeof *comparison->deltas);
    if (!comparison->first_bytes || !judgement->verdicts || !comparison->deltas)
        return ts_fail_memory(error);
    for (size_t i = 0; i < pairing->count; i++)
        bytes += pairing->pairs[i].a.tensor->bytes;
    ts_progress_start(&progress, "comparing", bytes);
    status = ts_exact_run(pool, pairing->pairs, pairing->count, comparison->first_bytes, &progress, error);
    if (status == TS_OK)
        status = judge_bytes(comparison, options, pool, &progress, error);
    ts_progress_finish(&progress);
    return status;
}

static enum ts_status measure_ranks(struct ts_comparison *comparison, struct ts_pool *pool, struct ts_error *error)
{
    const struct ts_pairing *pairing = &comparison->pairing;
    struct ts_progress progress;
    enum ts_status status;
    uint64_t elements = 0;
    comparison->ranks = ts_arena_array(&comparison->arena, pairing->count + 1, sizeof *comparison->ranks);
    if (!comparison->ranks)
        return ts_fail_memory(error);
    for (size_t i = 0; i < pairing->count; i++)
        if (comparison->deltas[i].unequal && pairing->pairs[i].a.rank > 1)
            elements += 3 * pairing->pairs[i].a.count; /* it is walked three times at least */
    ts_progress_start_elements(&progress, "ranks", elements);
    status = ts_change_rank_run(pool, pairing->pairs, comparison->deltas, pairing->count, comparison->ranks, &progress,
                                error);
    ts_progress_finish(&progress);
    return status;
}

bool ts_comparison_same_bytes(const struct ts_comparison *comparison, size_t index)
{
    return comparison->first_bytes && comparison->first_bytes[index] == TS_EXACT_EQUAL;
}

static bool wants_detail(const struct ts_comparison *comparison, size_t i)
{
    return comparison->deltas[i].unequal &&
           (comparison->pairing.count <= DETAILED || comparison->judgement.verdicts[i].judged == TS_JUDGED_DIFFERS);
}

static enum ts_status look_closer(struct ts_comparison *comparison, struct ts_pool *pool, struct ts_error *error)
{
    const struct ts_pairing *pairing = &comparison->pairing;
    struct ts_progress progress;
    enum ts_status status;
    uint64_t elements = 0;
    size_t which[DETAILED], count = 0;
    for (size_t i = 0; i < pairing->count && count < DETAILED; i++)
        if (wants_detail(comparison, i)) {
            elements += pairing->pairs[i].a.count;
            which[count++] = i;
        }
    ts_progress_start_elements(&progress, "looking closer", elements);
    status =
        ts_delta_detail(pool, pairing->pairs, which, count, &comparison->arena, comparison->deltas, &progress, error);
    ts_progress_finish(&progress);
    return status;
}

static uint64_t tensor_bytes(const struct ts_bundle *bundle)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < bundle->count; i++)
        bytes += bundle->tensors[i]->bytes;
    return bytes;
}

static enum ts_status run(struct ts_comparison *comparison, const struct ts_comparison_options *options,
                          struct ts_pool *pool, struct ts_error *error)
{
    struct ts_progress progress;
    enum ts_status status;
    bool weights, guesses;
    TS_TRY(check_rules(options, error));
    ts_progress_start(&progress, "pairing", tensor_bytes(comparison->a) + tensor_bytes(comparison->b));
    status = ts_pair_run(comparison->a, comparison->b, &options->pair, pool, &progress, &comparison->pairing, error);
    ts_progress_finish(&progress);
    TS_TRY(status);
    ts_set_complex_aside(&comparison->pairing);
    comparison->paired[0] = comparison->a->count - comparison->pairing.only_a_count - comparison->pairing.idle_a_count;
    comparison->paired[1] = comparison->b->count - comparison->pairing.only_b_count - comparison->pairing.idle_b_count;
    weights = options->subject == TS_SUBJECT_GUESS
                  ? ts_judge_are_weights(comparison->pairing.pairs, comparison->pairing.count)
                  : options->subject == TS_SUBJECT_CHECKPOINTS;
    /* weights are judged one by one, so the others need not be read; a run is judged by what came before */
    if (options->filter && (options->delta.exact || weights))
        TS_TRY(filter_pairs(comparison, options->filter, error));
    if (options->delta.exact) {
        TS_TRY(judge_exactly(comparison, options, weights, pool, error));
    } else {
        TS_TRY(measure(comparison, options, pool, error));
        TS_TRY(ts_judge_run_as(weights ? TS_SUBJECT_CHECKPOINTS : TS_SUBJECT_TRACES, options->experts,
                               comparison->pairing.pairs, comparison->deltas, comparison->pairing.count, pool,
                               &comparison->judgement, error));
        if (weights && ts_find_edits(comparison))
            count_again(&comparison->judgement);
        TS_TRY(ts_leave_guesses_open(comparison, &guesses, error));
        if (guesses)
            count_again(&comparison->judgement);
        if (options->filter && !weights)
            TS_TRY(filter_run(comparison, options, error));
        if (options->high_precision) {
            TS_TRY(ts_threeway_judge(comparison, options->high_precision, options, pool, error));
            count_again(&comparison->judgement);
        }
        TS_TRY(apply_rules(comparison, options, error));
        note_masks(comparison);
        TS_TRY(look_closer(comparison, pool, error));
        if (weights && ts_find_odd_rows(comparison))
            count_again(&comparison->judgement);
        comparison->doubt_count = ts_honesty_doubts(comparison, &comparison->arena, comparison->doubts);
        TS_TRY(doubt_idle_rules(comparison, options, error));
    }
    if (options->rank)
        TS_TRY(measure_ranks(comparison, pool, error));
    leave_open(comparison, options);
    decide(comparison, options);
    return TS_OK;
}

enum ts_status ts_comparison_run(struct ts_bundle *a, struct ts_bundle *b, const struct ts_comparison_options *options,
                                 struct ts_pool *pool, struct ts_comparison *comparison, struct ts_error *error)
{
    enum ts_status status;
    *comparison = (struct ts_comparison){.a = a, .b = b};
    ts_arena_init(&comparison->arena, (size_t)1 << 30);
    status = run(comparison, options, pool, error);
    if (status != TS_OK)
        ts_comparison_release(comparison);
    return status;
}

void ts_comparison_release(struct ts_comparison *comparison)
{
    ts_judgement_release(&comparison->judgement);
    ts_pairing_release(&comparison->pairing);
    ts_arena_release(&comparison->arena);
    free(comparison->deltas);
    ts_bundle_free(comparison->a);
    ts_bundle_free(comparison->b);
    *comparison = (struct ts_comparison){0};
}
