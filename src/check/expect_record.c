/* Owns writing expectations from a run that is known to be good. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check/expect.h"
#include "compare/stats.h"

/* Rows that add up to one to half of this are taken for probabilities; bf16 stays within it. */
#define ROW_SLACK 0.01

static void put_name(struct ts_buffer *out, const char *name)
{
    ts_buffer_byte(out, '"');
    for (; *name; name++) {
        unsigned char byte = (unsigned char)*name;
        if (byte == '"' || byte == '\\')
            ts_buffer_printf(out, "\\%c", byte);
        else if (byte < 0x20 || byte == 0x7f)
            ts_buffer_printf(out, "\\x%02x", byte);
        else
            ts_buffer_byte(out, (char)byte);
    }
    ts_buffer_byte(out, '"');
}

/* Rounded away from the middle, so that a bound never cuts what it was made from. */
static double outwards(double value, bool up)
{
    double step;
    if (value == 0 || !isfinite(value))
        return value;
    step = pow(10, floor(log10(fabs(value))) - 3);
    if (step == 0)
        return value;
    return up ? ceil(value / step) * step : floor(value / step) * step;
}

static void put_range(struct ts_buffer *out, const char *property, double low, double high, double margin, double least,
                      double most)
{
    double more = margin * (high > low ? high - low : fabs(high));
    double from = fmax(outwards(low - more, false), low < least ? -INFINITY : least);
    double to = fmin(outwards(high + more, true), high > most ? INFINITY : most);
    ts_buffer_printf(out, "  %s [%.6g,%.6g]", property, from, to);
}

static void put_tensor(struct ts_buffer *out, const struct ts_tensor *tensor, const struct ts_stats *stats,
                       const struct ts_rows *rows, double margin)
{
    bool probabilities = rows->measured && rows->rows && tensor->rank > 1 && tensor->shape[tensor->rank - 1] > 1 &&
                         stats->finite == stats->count && stats->min >= 0 &&
                         fabs(rows->least_sum - 1) < ROW_SLACK / 2 && fabs(rows->most_sum - 1) < ROW_SLACK / 2;
    put_name(out, tensor->name);
    ts_buffer_string(out, "  shape [");
    for (unsigned i = 0; i < tensor->rank; i++)
        ts_buffer_printf(out, "%s%" PRIu64, i ? "," : "", tensor->shape[i]);
    ts_buffer_byte(out, ']');
    if (stats->count && stats->finite == stats->count)
        ts_buffer_string(out, "  finite");
    if (probabilities) {
        ts_buffer_printf(out, "  range [0,1]  rows-sum 1 ±%g", ROW_SLACK);
        if (rows->counted)
            put_range(out, "entropy", rows->entropy, rows->entropy, margin, 0, 1);
    } else if (stats->finite) {
        put_range(out, "range", stats->min, stats->max, margin, stats->min >= 0 ? 0 : -INFINITY,
                  stats->max <= 0 ? 0 : INFINITY);
        if (stats->norm > 0 && isfinite(stats->norm))
            ts_buffer_printf(out, "  norm %.*g ±%g%%", margin > 0 ? 6 : 17, stats->norm, 100 * margin);
    }
    ts_buffer_byte(out, '\n');
}

struct work {
    const struct ts_bundle *bundle;
    struct ts_rows *rows;
    struct ts_error *errors;
};

static void measure(void *context, uint64_t index, unsigned worker)
{
    struct work *work = context;
    (void)worker;
    ts_error_clear(&work->errors[index]);
    (void)ts_rows_measure(work->bundle->tensors[index], &work->rows[index], &work->errors[index]);
}

enum ts_status ts_expect_record(struct ts_pool *pool, const struct ts_bundle *bundle, double margin,
                                struct ts_buffer *out, struct ts_progress *progress, struct ts_error *error)
{
    struct ts_stats *stats = calloc(bundle->count + 1, sizeof *stats);
    struct work work = {bundle, calloc(bundle->count + 1, sizeof(struct ts_rows)),
                        calloc(bundle->count + 1, sizeof(struct ts_error))};
    enum ts_status status = stats && work.rows && work.errors ? TS_OK : ts_fail_memory(error);
    if (status == TS_OK)
        status = ts_stats_run(pool, bundle->tensors, bundle->count, stats, progress, error);
    if (status == TS_OK)
        ts_pool_run(pool, bundle->count, measure, &work);
    ts_buffer_printf(out, "# recorded by tsleuth check; ranges are %g %% wider than what was seen\n", 100 * margin);
    for (size_t i = 0; status == TS_OK && i < bundle->count; i++) {
        if (work.errors[i].status != TS_OK) {
            *error = work.errors[i];
            status = ts_error_tensor(error, bundle->tensors[i]->name);
        } else if (!bundle->tensors[i]->sampled) {
            put_tensor(out, bundle->tensors[i], &stats[i], &work.rows[i], margin);
        }
    }
    free(stats);
    free(work.rows);
    free(work.errors);
    if (status == TS_OK && out->failed)
        return ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "the expectations are too long");
    return status;
}
