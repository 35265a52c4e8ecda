/* Owns values and statistics of blocks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "report/json_fields.h"
#include "serve/block.h"
#include "serve/handlers.h"
#include "serve/opened.h"

#define VALUES_MOST 65536
#define STATS_MOST  ((uint64_t)1 << 24) /* elements that are looked at one by one */
#define PIECE       16384

/* start and count of the query, checked; what is left out is everything. */
bool ts_block_take(struct ts_call *call, const struct ts_focus *subject, uint64_t *start, uint64_t *count,
                   uint64_t *elements)
{
    size_t starts, counts;
    if (!ts_call_counts(call, "start", start, TS_MAX_RANK, &starts) ||
        !ts_call_counts(call, "count", count, TS_MAX_RANK, &counts))
        return false;
    if ((starts && starts != subject->rank) || (counts && counts != subject->rank)) {
        ts_call_fail(call, 400, NULL, "start and count need %u numbers: one per axis", subject->rank);
        return false;
    }
    *elements = 1;
    for (unsigned i = 0; i < subject->rank; i++) {
        if (!starts)
            start[i] = 0;
        if (!counts)
            count[i] = start[i] < subject->shape[i] ? subject->shape[i] - start[i] : 0;
        if (!ts_span_fits(start[i], count[i], subject->shape[i])) {
            ts_call_fail(call, 400, NULL, "axis %u has %llu entries; %llu from %llu are not all there", i,
                         (unsigned long long)subject->shape[i], (unsigned long long)count[i],
                         (unsigned long long)start[i]);
            return false;
        }
        if (!ts_mul(*elements, count[i], elements))
            *elements = UINT64_MAX;
    }
    return true;
}

static void integers_json(struct ts_json_writer *json, const struct ts_view *block, const int64_t *values, size_t count)
{
    bool whole = ts_type_info(block->tensor->type)->kind == TS_CLASS_UINT;
    for (size_t i = 0; i < count; i++)
        if (whole)
            ts_json_uint(json, (uint64_t)values[i]);
        else
            ts_json_int(json, values[i]);
}

static enum ts_status side_json(struct ts_call *call, const struct ts_view *block, unsigned components,
                                struct ts_json_writer *json, struct ts_error *error)
{
    size_t count = (size_t)block->count;
    enum ts_status status;
    double *values;
    bool whole = ts_type_is_integer(block->tensor->type) && block->join != TS_JOIN_SUM && !ts_view_is_computed(block);
    if (!(values = malloc((count * components + 1) * sizeof *values)))
        return ts_fail_memory(error);
    status = whole ? ts_view_read_i64(block, 0, count, (int64_t *)(void *)values, error)
                   : ts_view_read_f64(block, 0, count, values, error);
    ts_opened_touch(call->opened, block->rank && count ? count / block->shape[block->rank - 1] : 1, count * 8);
    ts_json_begin_array(json);
    if (status == TS_OK && whole)
        integers_json(json, block, (const int64_t *)(const void *)values, count);
    for (size_t i = 0; status == TS_OK && !whole && i < count; i++) {
        if (components == 1) {
            ts_json_number(json, values[i]);
            continue;
        }
        ts_json_begin_array(json);
        ts_json_number(json, values[2 * i]);
        ts_json_number(json, values[2 * i + 1]);
        ts_json_end_array(json);
    }
    ts_json_end_array(json);
    free(values);
    return status;
}

static void values(struct ts_call *call, struct ts_focus *subject)
{
    uint64_t start[TS_MAX_RANK], count[TS_MAX_RANK], elements;
    struct ts_error error;
    struct ts_json_writer *json;
    if (!ts_block_take(call, subject, start, count, &elements))
        return;
    if (elements > VALUES_MOST) {
        ts_call_fail(call, 400, "ask for several smaller blocks", "a block may have at most %d values, not %llu",
                     VALUES_MOST, (unsigned long long)elements);
        return;
    }
    json = ts_call_json(call, 200);
    ts_json_begin_object(json);
    ts_field_counts(json, "shape", subject->shape, subject->rank);
    ts_field_counts(json, "start", start, subject->rank);
    ts_field_counts(json, "count", count, subject->rank);
    for (unsigned side = 0; side < 2; side++) {
        struct ts_view block;
        ts_json_key(json, side ? "b" : "a");
        if (!subject->has[side]) {
            ts_json_null(json);
            continue;
        }
        if (!ts_focus_block(subject, side, start, count, &block)) {
            ts_call_fail(call, 503, NULL, "out of memory");
            return;
        }
        if (side_json(call, &block, subject->components, json, &error) != TS_OK) {
            ts_call_error(call, &error);
            return;
        }
    }
    ts_json_end_object(json);
    ts_json_finish(json);
}

void ts_handle_values(struct ts_call *call)
{
    struct ts_focus subject;
    if (!ts_focus_take(call, &subject))
        return;
    values(call, &subject);
    ts_focus_release(&subject);
}

/* Sums over a block. */
struct sums {
    uint64_t count, nan, inf;
    double min, max, sum, squares;
};

static void add(struct sums *sums, double value)
{
    if (isnan(value)) {
        sums->nan++;
    } else if (isinf(value)) {
        sums->inf++;
    } else {
        sums->min = sums->count == 0 || value < sums->min ? value : sums->min;
        sums->max = sums->count == 0 || value > sums->max ? value : sums->max;
        sums->sum += value;
        sums->squares += value * value;
        sums->count++;
    }
}

static void sums_json(struct ts_json_writer *json, const char *key, const struct sums *sums)
{
    double count = (double)sums->count, mean = sums->count ? sums->sum / count : (double)NAN;
    double spread = sums->count ? sums->squares / count - mean * mean : (double)NAN;
    ts_json_key(json, key);
    ts_json_begin_object(json);
    ts_field_count(json, "count", sums->count);
    ts_field_number(json, "min", sums->count ? sums->min : (double)NAN);
    ts_field_number(json, "max", sums->count ? sums->max : (double)NAN);
    ts_field_number(json, "mean", mean);
    ts_field_number(json, "std", spread > 0 ? sqrt(spread) : sums->count ? 0 : (double)NAN);
    ts_field_number(json, "norm", sqrt(sums->squares));
    ts_field_count(json, "nan", sums->nan);
    ts_field_count(json, "inf", sums->inf);
    ts_json_end_object(json);
}

/* Both sides of a block and their difference. */
struct block_sums {
    struct sums sides[2], difference;
    double dot, squares_a, squares_b, sum_abs, max_abs;
    uint64_t worst, mismatched; /* flat in the block */
};

static void add_pair(struct block_sums *sums, double a, double b, uint64_t at)
{
    double difference = a == b ? 0 : b - a;
    add(&sums->difference, difference);
    if (!isfinite(difference) || !isfinite(a)) {
        sums->mismatched += !(isnan(a) && isnan(b)) && a != b;
        return;
    }
    sums->dot += a * b;
    sums->squares_a += a * a;
    sums->squares_b += b * b;
    sums->sum_abs += fabs(difference);
    if (fabs(difference) > sums->max_abs) {
        sums->max_abs = fabs(difference);
        sums->worst = at;
    }
}

static enum ts_status sum_block(struct ts_call *call, const struct ts_view *blocks, const bool *has,
                                unsigned components, struct block_sums *sums, struct ts_error *error)
{
    double *values = malloc(2 * PIECE * 2 * sizeof *values);
    uint64_t total = blocks[has[0] ? 0 : 1].count;
    enum ts_status status = values ? TS_OK : ts_fail_memory(error);
    *sums = (struct block_sums){.worst = UINT64_MAX};
    for (uint64_t at = 0; at < total && status == TS_OK; at += PIECE) {
        size_t count = (size_t)(total - at < PIECE ? total - at : PIECE), numbers = count * components;
        for (unsigned side = 0; side < 2 && status == TS_OK; side++)
            if (has[side])
                status = ts_view_read_f64(&blocks[side], at, count, values + side * 2 * PIECE, error);
        for (size_t i = 0; status == TS_OK && i < numbers; i++) {
            const double *a = values, *b = values + 2 * PIECE;
            if (has[0])
                add(&sums->sides[0], a[i]);
            if (has[1])
                add(&sums->sides[1], b[i]);
            if (has[0] && has[1])
                add_pair(sums, a[i], b[i], at + i / components);
        }
        ts_opened_touch(call->opened, 2 + count / 256, count * 16);
    }
    free(values);
    return status;
}

static void difference_json(struct ts_json_writer *json, const struct ts_focus *subject, const struct block_sums *sums,
                            const uint64_t *start, const uint64_t *count)
{
    double compared = (double)sums->difference.count;
    double reference = sqrt(sums->squares_a), candidate = sqrt(sums->squares_b);
    double error = sqrt(sums->difference.squares);
    uint64_t index[TS_MAX_RANK], rest = sums->worst;
    sums_json(json, "difference", &sums->difference);
    ts_field_number(json, "max_abs", sums->max_abs);
    ts_field_number(json, "mean_abs", compared > 0 ? sums->sum_abs / compared : (double)NAN);
    ts_field_number(json, "mse", compared > 0 ? sums->difference.squares / compared : (double)NAN);
    ts_field_number(json, "rel_l2", error == 0 ? 0 : error / reference);
    ts_field_number(json, "norm_ratio", candidate == reference ? 1 : candidate / reference);
    ts_field_number(json, "cosine", reference == 0 && candidate == 0 ? 1 : sums->dot / (reference * candidate));
    ts_field_count(json, "non_finite_mismatch", sums->mismatched);
    if (sums->worst == UINT64_MAX) {
        ts_field_null(json, "worst");
        return;
    }
    for (unsigned i = subject->rank; i-- > 0;) {
        index[i] = start[i] + rest % count[i];
        rest /= count[i];
    }
    ts_field_counts(json, "worst", index, subject->rank);
}

static void stats(struct ts_call *call, struct ts_focus *subject)
{
    uint64_t start[TS_MAX_RANK], count[TS_MAX_RANK], elements;
    struct ts_view blocks[2];
    struct block_sums sums;
    struct ts_error error;
    struct ts_json_writer *json;
    if (!ts_block_take(call, subject, start, count, &elements))
        return;
    if (elements > STATS_MOST) {
        ts_call_fail(call, 400, "the whole tensor's statistics are at .../tensors/P",
                     "a block may have at most %llu "
                     "elements, not %llu",
                     (unsigned long long)STATS_MOST, (unsigned long long)elements);
        return;
    }
    for (unsigned side = 0; side < 2; side++)
        if (subject->has[side] && !ts_focus_block(subject, side, start, count, &blocks[side])) {
            ts_call_fail(call, 503, NULL, "out of memory");
            return;
        }
    if (sum_block(call, blocks, subject->has, subject->components, &sums, &error) != TS_OK) {
        ts_call_error(call, &error);
        return;
    }
    json = ts_call_json(call, 200);
    ts_json_begin_object(json);
    ts_field_counts(json, "shape", subject->shape, subject->rank);
    ts_field_counts(json, "start", start, subject->rank);
    ts_field_counts(json, "count", count, subject->rank);
    ts_field_count(json, "elements", elements);
    for (unsigned side = 0; side < 2; side++)
        if (subject->has[side])
            sums_json(json, side ? "b" : "a", &sums.sides[side]);
        else
            ts_field_null(json, side ? "b" : "a");
    if (subject->has[0] && subject->has[1])
        difference_json(json, subject, &sums, start, count);
    else
        ts_field_null(json, "difference");
    ts_json_end_object(json);
    ts_json_finish(json);
}

void ts_handle_stats(struct ts_call *call)
{
    struct ts_focus subject;
    if (!ts_focus_take(call, &subject))
        return;
    stats(call, &subject);
    ts_focus_release(&subject);
}
