/* Owns the judgement: measures the tensors that expectations speak of, and holds one against the other. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/expect.h"
#include "compare/stats.h"
#include "read/open.h"

enum { NEEDS_STATS = 1, NEEDS_ROWS = 2 };

#define PIECE 32768

struct facts {
    unsigned needs;
    struct ts_stats stats;
    struct ts_rows rows;
    enum ts_status status; /* of the rows */
    struct ts_error error;
};

struct reference {
    const char *path;
    struct ts_bundle *bundle;
    struct reference *next;
};

struct judge {
    const struct ts_bundle *bundle;
    const struct ts_expect *expect;
    const char *folder;
    struct ts_pool *pool;
    struct ts_arena *arena;
    struct facts *facts; /* one per tensor */
    struct reference *references;
    struct ts_error *error;
};

static unsigned needs_of(enum ts_property property)
{
    switch (property) {
    case TS_PROPERTY_SHAPE:
    case TS_PROPERTY_DTYPE:
    case TS_PROPERTY_TENSORS:
    case TS_PROPERTY_RELATIVE_ERROR:
        return 0;
    case TS_PROPERTY_SPARSITY:
    case TS_PROPERTY_ROWS_SUM:
    case TS_PROPERTY_ENTROPY:
        return NEEDS_ROWS;
    default:
        return NEEDS_STATS;
    }
}

static bool fits(const struct ts_expectation *expectation, const struct ts_tensor *tensor)
{
    return expectation->exact ? strcmp(expectation->pattern, tensor->name) == 0
                              : ts_expect_fits(expectation->pattern, tensor->name);
}

static bool within(const struct ts_bounds *bounds, double value)
{
    return !isnan(value) && (bounds->low_open ? value > bounds->low : value >= bounds->low) &&
           (bounds->high_open ? value < bounds->high : value <= bounds->high);
}

struct row_work {
    const struct ts_bundle *bundle;
    struct facts *facts;
};

static void measure_rows(void *context, uint64_t index, unsigned worker)
{
    struct row_work *work = context;
    struct facts *facts = &work->facts[index];
    (void)worker;
    if (facts->needs & NEEDS_ROWS)
        facts->status = ts_rows_measure(work->bundle->tensors[index], &facts->rows, &facts->error);
}

static enum ts_status measure(struct judge *judge, struct ts_progress *progress)
{
    const struct ts_bundle *bundle = judge->bundle;
    struct ts_tensor **wanted = calloc(bundle->count + 1, sizeof *wanted);
    struct ts_stats *stats = calloc(bundle->count + 1, sizeof *stats);
    struct row_work work = {bundle, judge->facts};
    enum ts_status status = TS_OK;
    size_t count = 0;
    for (size_t i = 0; wanted && i < bundle->count; i++)
        if (judge->facts[i].needs & NEEDS_STATS)
            wanted[count++] = bundle->tensors[i];
    if (!wanted || !stats)
        status = ts_fail_memory(judge->error);
    else
        status = ts_stats_run(judge->pool, wanted, count, stats, progress, judge->error);
    for (size_t i = 0, k = 0; status == TS_OK && i < bundle->count; i++)
        if (judge->facts[i].needs & NEEDS_STATS)
            judge->facts[i].stats = stats[k++];
    free(wanted);
    free(stats);
    if (status != TS_OK)
        return status;
    ts_pool_run(judge->pool, bundle->count, measure_rows, &work);
    for (size_t i = 0; i < bundle->count; i++)
        if (judge->facts[i].status != TS_OK) {
            *judge->error = judge->facts[i].error;
            return ts_error_tensor(judge->error, bundle->tensors[i]->name);
        }
    return TS_OK;
}

/* How one tensor stands to one expectation. */
struct finding {
    enum ts_expected verdict;
    double value, to; /* measured; both ends of a range, else the same number */
    const char *why;
};

static const char *say(struct judge *judge, const char *format, ...) __attribute__((format(printf, 2, 3)));
static const char *say(struct judge *judge, const char *format, ...)
{
    va_list arguments;
    const char *kept;
    va_start(arguments, format);
    kept = ts_arena_vsay(judge->arena, format, arguments);
    va_end(arguments);
    return kept;
}

static void judge_shape(struct judge *judge, const struct ts_expectation *expectation, const struct ts_tensor *tensor,
                        struct finding *finding)
{
    const uint64_t *shape = tensor->whole_shape ? tensor->whole_shape : tensor->shape;
    bool same = tensor->rank == expectation->rank;
    struct ts_buffer text;
    for (unsigned i = 0; same && i < tensor->rank; i++)
        same = expectation->shape[i] == TS_ANY_SIZE || expectation->shape[i] == shape[i];
    finding->verdict = same ? TS_EXPECTED_PASS : TS_EXPECTED_FAIL;
    if (same)
        return;
    ts_buffer_init(&text, 4096);
    for (unsigned i = 0; i < tensor->rank; i++)
        ts_buffer_printf(&text, "%s%" PRIu64, i ? "," : "", shape[i]);
    finding->why = say(judge, "is [%.400s]", text.data ? text.data : "");
    ts_buffer_release(&text);
}

static void judge_type(struct judge *judge, const struct ts_expectation *expectation, const struct ts_tensor *tensor,
                       struct finding *finding)
{
    const char *type = ts_tensor_type_name(tensor), *at = expectation->types;
    size_t length = strlen(type);
    for (;;) {
        size_t part = strcspn(at, ",");
        if (part == length && memcmp(at, type, length) == 0)
            return;
        if (!at[part])
            break;
        at += part + 1;
    }
    finding->verdict = TS_EXPECTED_FAIL;
    finding->why = say(judge, "is %.100s", type);
}

static void judge_finite(struct judge *judge, const struct facts *facts, const struct ts_tensor *tensor,
                         struct finding *finding)
{
    const struct ts_stats *stats = &facts->stats;
    uint64_t infinite = stats->positive_inf + stats->negative_inf, at[TS_MAX_RANK];
    uint64_t first = stats->nan && stats->first_nan < stats->first_inf ? stats->first_nan : stats->first_inf;
    struct ts_buffer place;
    finding->value = finding->to = (double)(stats->nan + infinite);
    if (!stats->nan && !infinite)
        return;
    finding->verdict = TS_EXPECTED_FAIL;
    ts_buffer_init(&place, 4096);
    if (first != TS_NOWHERE) {
        ts_flat_to_coordinates(tensor, first, at);
        for (unsigned i = 0; i < tensor->rank; i++)
            ts_buffer_printf(&place, "%s%" PRIu64, i ? "," : "", at[i]);
    }
    finding->why = say(judge, "%" PRIu64 " NaN, %" PRIu64 " inf, the first at [%.300s]", stats->nan, infinite,
                       place.data ? place.data : "");
    ts_buffer_release(&place);
}

static double value_of(enum ts_property property, const struct facts *facts)
{
    const struct ts_stats *stats = &facts->stats;
    switch (property) {
    case TS_PROPERTY_MIN:
        return stats->min;
    case TS_PROPERTY_MAX:
        return stats->max;
    case TS_PROPERTY_MEAN:
        return stats->mean;
    case TS_PROPERTY_STD:
        return stats->std;
    case TS_PROPERTY_RMS:
        return stats->norm / sqrt((double)stats->finite);
    case TS_PROPERTY_NORM:
        return stats->norm;
    case TS_PROPERTY_SUM:
        return stats->mean * (double)stats->finite;
    case TS_PROPERTY_ZEROS:
        return (double)stats->zeros / (double)stats->count;
    case TS_PROPERTY_SPARSITY:
        return facts->rows.sparsity;
    default:
        return facts->rows.entropy;
    }
}

static void judge_value(const struct ts_expectation *expectation, const struct facts *facts, struct finding *finding)
{
    const struct ts_bounds *bounds = &expectation->bounds;
    bool stats = needs_of(expectation->property) == NEEDS_STATS;
    if (!stats && !facts->rows.measured) {
        *finding = (struct finding){TS_EXPECTED_UNKNOWN, NAN, NAN, "complex numbers have no such rows"};
        return;
    }
    if (stats ? !facts->stats.count : !facts->rows.rows) {
        *finding = (struct finding){TS_EXPECTED_UNKNOWN, NAN, NAN, "is empty"};
        return;
    }
    if (stats && !facts->stats.finite && expectation->property != TS_PROPERTY_ZEROS) {
        *finding = (struct finding){TS_EXPECTED_FAIL, NAN, NAN, "has no finite value"};
        return;
    }
    if (expectation->property == TS_PROPERTY_RANGE) {
        finding->value = facts->stats.min;
        finding->to = facts->stats.max;
    } else if (expectation->property == TS_PROPERTY_ROWS_SUM) {
        finding->value = facts->rows.least_sum;
        finding->to = facts->rows.most_sum;
    } else {
        finding->value = finding->to = value_of(expectation->property, facts);
    }
    if (expectation->property == TS_PROPERTY_ENTROPY && !facts->rows.counted) {
        finding->verdict = TS_EXPECTED_UNKNOWN;
        finding->why = "has no row with two values above zero";
    } else if (!within(bounds, finding->value) || !within(bounds, finding->to)) {
        finding->verdict = TS_EXPECTED_FAIL;
    }
}

/* Opened once each, and closed at the end. */
static enum ts_status reference_of(struct judge *judge, const char *file, struct ts_bundle **bundle)
{
    struct reference *reference = judge->references;
    bool whole = file[0] == '/' || strstr(file, "://") || !judge->folder || !judge->folder[0];
    for (; reference; reference = reference->next)
        if (strcmp(reference->path, file) == 0) {
            *bundle = reference->bundle;
            return TS_OK;
        }
    reference = ts_arena_alloc(judge->arena, sizeof *reference);
    if (!reference)
        return ts_fail_memory(judge->error);
    reference->path = whole ? file : ts_arena_printf(judge->arena, "%s/%s", judge->folder, file);
    if (!reference->path)
        return ts_fail_memory(judge->error);
    TS_TRY(ts_open(reference->path, NULL, &reference->bundle, judge->error));
    reference->path = file;
    reference->next = judge->references;
    judge->references = reference;
    *bundle = reference->bundle;
    return TS_OK;
}

static enum ts_status relative_error(const struct ts_tensor *tensor, const struct ts_tensor *reference, double *value,
                                     struct ts_error *error)
{
    double difference = 0, length = 0, *values = malloc(4 * PIECE * sizeof *values), *others = values + 2 * PIECE;
    unsigned parts = ts_type_info(tensor->type)->components;
    enum ts_status status = values ? TS_OK : ts_fail_memory(error);
    for (uint64_t at = 0; status == TS_OK && at < tensor->count; at += PIECE) {
        size_t count = (size_t)(tensor->count - at < PIECE ? tensor->count - at : PIECE);
        status = ts_tensor_read_f64(tensor, at, count, values, error);
        if (status == TS_OK)
            status = ts_tensor_read_f64(reference, at, count, others, error);
        for (size_t i = 0; i < count * parts && status == TS_OK; i++) {
            double d = values[i] - others[i];
            difference += d * d;
            length += others[i] * others[i];
        }
    }
    free(values);
    *value = difference > 0 || isnan(difference) ? sqrt(difference / length) : 0;
    return status;
}

static enum ts_status judge_error(struct judge *judge, const struct ts_expectation *expectation,
                                  const struct ts_tensor *tensor, struct finding *finding)
{
    const char *name = expectation->tensor ? expectation->tensor : tensor->name;
    const struct ts_tensor *reference;
    struct ts_bundle *bundle = NULL;
    TS_TRY(reference_of(judge, expectation->file, &bundle));
    reference = ts_bundle_tensor(bundle, name);
    finding->verdict = TS_EXPECTED_FAIL;
    if (!reference) {
        finding->why = say(judge, "%.200s has no tensor \"%.200s\"", expectation->file, name);
        return TS_OK;
    }
    if (!ts_same_sizes(tensor->shape, tensor->rank, reference->shape, reference->rank) ||
        ts_type_info(tensor->type)->components != ts_type_info(reference->type)->components) {
        finding->why = "is of another shape than the reference";
        return TS_OK;
    }
    TS_TRY(relative_error(tensor, reference, &finding->value, judge->error));
    finding->to = finding->value;
    finding->verdict = within(&expectation->bounds, finding->value) ? TS_EXPECTED_PASS : TS_EXPECTED_FAIL;
    return TS_OK;
}

static enum ts_status judge_tensor(struct judge *judge, const struct ts_expectation *expectation, size_t index,
                                   struct finding *finding)
{
    const struct ts_tensor *tensor = judge->bundle->tensors[index];
    const struct facts *facts = &judge->facts[index];
    *finding = (struct finding){.value = NAN, .to = NAN};
    switch (expectation->property) {
    case TS_PROPERTY_SHAPE:
        judge_shape(judge, expectation, tensor, finding);
        return TS_OK;
    case TS_PROPERTY_DTYPE:
        judge_type(judge, expectation, tensor, finding);
        return TS_OK;
    case TS_PROPERTY_TENSORS:
        return TS_OK;
    case TS_PROPERTY_FINITE:
        judge_finite(judge, facts, tensor, finding);
        break;
    case TS_PROPERTY_RELATIVE_ERROR:
        TS_TRY(judge_error(judge, expectation, tensor, finding));
        break;
    default:
        judge_value(expectation, facts, finding);
    }
    /* what is there may break a bound, but cannot keep one for the rest */
    if (tensor->sampled && (finding->verdict == TS_EXPECTED_PASS || (expectation->property != TS_PROPERTY_RANGE &&
                                                                     expectation->property != TS_PROPERTY_FINITE))) {
        finding->verdict = TS_EXPECTED_UNKNOWN;
        finding->why = "the input holds only some of its values";
    }
    return TS_OK;
}

static enum ts_status judge_expectation(struct judge *judge, const struct ts_expectation *expectation,
                                        struct ts_expect_result *result)
{
    *result = (struct ts_expect_result){.low = NAN, .high = NAN, .measured = NAN, .measured_to = NAN};
    for (size_t i = 0; i < judge->bundle->count; i++) {
        struct finding finding;
        if (!fits(expectation, judge->bundle->tensors[i]))
            continue;
        TS_TRY(judge_tensor(judge, expectation, i, &finding));
        result->tensors++;
        result->low = !(finding.value >= result->low) && !isnan(finding.value) ? finding.value : result->low;
        result->high = !(finding.to <= result->high) && !isnan(finding.to) ? finding.to : result->high;
        if (finding.verdict == TS_EXPECTED_PASS)
            continue;
        result->failed += finding.verdict == TS_EXPECTED_FAIL;
        /* the first that fails, or else the first that cannot be told */
        if (!result->first || (finding.verdict == TS_EXPECTED_FAIL && result->verdict != TS_EXPECTED_FAIL)) {
            result->first = judge->bundle->tensors[i];
            result->verdict = finding.verdict;
            result->measured = finding.value;
            result->measured_to = finding.to;
            result->why = finding.why;
        }
    }
    if (expectation->property == TS_PROPERTY_TENSORS) {
        result->low = result->high = result->measured = result->measured_to = (double)result->tensors;
        result->verdict = within(&expectation->bounds, result->low) ? TS_EXPECTED_PASS : TS_EXPECTED_FAIL;
    } else if (!result->tensors && !expectation->optional) {
        result->verdict = TS_EXPECTED_FAIL;
        result->why = "no tensor fits";
    }
    return TS_OK;
}

enum ts_status ts_expect_run(struct ts_pool *pool, const struct ts_bundle *bundle, const struct ts_expect *expect,
                             const char *folder, struct ts_expect_result *results, struct ts_arena *arena,
                             struct ts_progress *progress, struct ts_error *error)
{
    struct judge judge = {.bundle = bundle,
                          .expect = expect,
                          .folder = folder,
                          .pool = pool,
                          .arena = arena,
                          .facts = calloc(bundle->count + 1, sizeof(struct facts)),
                          .error = error};
    enum ts_status status = judge.facts ? TS_OK : ts_fail_memory(error);
    for (size_t i = 0; status == TS_OK && i < expect->count; i++)
        for (size_t k = 0; k < bundle->count; k++)
            if (fits(&expect->list[i], bundle->tensors[k]))
                judge.facts[k].needs |= needs_of(expect->list[i].property);
    if (status == TS_OK)
        status = measure(&judge, progress);
    for (size_t i = 0; status == TS_OK && i < expect->count; i++)
        status = judge_expectation(&judge, &expect->list[i], &results[i]);
    for (struct reference *reference = judge.references; reference; reference = reference->next)
        ts_bundle_free(reference->bundle);
    free(judge.facts);
    return status;
}
