/* Owns the measure of agreement that decides between layouts.
 *
 * A layout must be recognized though the values differ: by rounding, by quantization (relative errors of 0.6 are honest
 * there), or by the very bug that is looked for. And it must not be decided by a few huge values, which the residual
 * stream of most language models has. So every value is squashed, x / (s + |x|), s being the usual size of a value:
 * order and sign stay, huge ones count like large ones, infinities are values like others. Then
 *
 *     fit      = |b - a| / |a - mean a|          both squashed with A's s
 *     relation = sqrt(2 (1 - |correlation|))     each squashed with its own s: blind to a factor, its sign, an offset
 *
 * are both 0 for equal values, the relative error where that is small, and sqrt 2 for values in unrelated order,
 * whatever their distribution: the mean is taken out because positive values agree to some degree in any order. */
#include <math.h>
#include <string.h>

#include "base/progress.h"
#include "pair/align_search.h"
#include "tensor/view_box.h"

/* Elements read at a time. Complex numbers take two places. */
#define CHUNK 1024
/* Numbers looked at of views whose neighbours are far apart in their file: each is a read by itself. */
#define FAR ((uint64_t)1 << 17)

struct tally {
    double pairs, wrong, unequal; /* wrong: NaN on one side only */
    double a, aa, dd;             /* with A's scale on both sides */
    double b, bb, ab;             /* b with its own */
    double plain_dd, plain_aa;
};

static double squash(double x, double scale)
{
    return isinf(x) ? (x < 0 ? -1 : 1) : x / (scale + fabs(x));
}

static void tally_numbers(const struct ts_align_search *search, const double *a, const double *b, size_t count,
                          struct tally *tally)
{
    for (size_t i = 0; i < count; i++) {
        double x, y, z;
        if (isnan(a[i]) || isnan(b[i])) {
            tally->wrong += isnan(a[i]) != isnan(b[i]);
            continue;
        }
        if (isfinite(a[i]) && isfinite(b[i])) {
            tally->plain_dd += (b[i] - a[i]) * (b[i] - a[i]);
            tally->plain_aa += a[i] * a[i];
        }
        x = squash(a[i], search->scale[0]);
        y = squash(b[i], search->scale[0]);
        z = squash(b[i], search->scale[1]);
        tally->pairs++;
        tally->unequal += a[i] != b[i];
        tally->a += x;
        tally->aa += x * x;
        tally->dd += (y - x) * (y - x);
        tally->b += z;
        tally->bb += z * z;
        tally->ab += x * z;
    }
}

static void tally_integers(const int64_t *a, const int64_t *b, size_t count, struct tally *tally)
{
    for (size_t i = 0; i < count; i++) {
        double difference = (double)b[i] - (double)a[i];
        tally->pairs++;
        tally->unequal += a[i] != b[i];
        tally->plain_dd += difference * difference;
        tally->plain_aa += (double)a[i] * (double)a[i];
    }
}

/* Sum of squares around the mean; 0 for constants, whose difference is rounding. */
static double spread(double sum, double squares, double count)
{
    double around = squares - sum * sum / count;
    return around > 1e-12 * squares ? around : 0;
}

static void conclude(const struct ts_align_search *search, const struct tally *tally, struct ts_align_fit *fit)
{
    double spread_a, spread_b, missing = tally->wrong / (tally->pairs + tally->wrong + 1e-300);
    fit->error = tally->plain_dd == 0 ? 0 : sqrt(tally->plain_dd / tally->plain_aa);
    fit->fit = fit->relation = 0;
    if (tally->unequal + tally->wrong > 0) {
        if (search->whole_numbers) {
            fit->fit = fit->relation = M_SQRT2 * tally->unequal / tally->pairs;
        } else if (tally->pairs == 0) {
            fit->fit = fit->relation = M_SQRT2;
        } else {
            spread_a = spread(tally->a, tally->aa, tally->pairs);
            spread_b = spread(tally->b, tally->bb, tally->pairs);
            fit->relation = M_SQRT2;
            if (spread_a > 0 && spread_b > 0) {
                double product = tally->ab - tally->a * tally->b / tally->pairs;
                double correlation = fabs(product) / sqrt(spread_a * spread_b);
                fit->relation = sqrt(2 * (correlation < 1 ? 1 - correlation : 0) + 2 * missing);
            }
            if (spread_a == 0)
                spread_a = tally->aa; /* a constant has no order to find: how far apart the values are must do */
            fit->fit = spread_a > 0 ? sqrt(tally->dd / spread_a + 2 * missing) : M_SQRT2;
        }
    }
    fit->score = fit->fit < TS_ALIGN_AGREES ? fit->fit : TS_ALIGN_AGREES + fit->relation;
}

/* Where the run-th run of a sample begins, somewhere in its share of the elements: evenly spaced runs could all fall on
 * the same column. */
static uint64_t run_start(uint64_t run, uint64_t share, uint64_t length)
{
    uint64_t mixed = (run + 1) * UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    return run * share + (mixed >> 16) % (share - length + 1);
}

static uint64_t run_length(uint64_t budget)
{
    return budget <= 512 ? 8 : budget <= 8192 ? 32 : budget <= 65536 ? 64 : 4096;
}

static enum ts_status read_both(const struct ts_align_search *search, const struct ts_view *a, const struct ts_view *b,
                                uint64_t first, uint64_t count, struct tally *tally, struct ts_error *error)
{
    union {
        double numbers[2 * CHUNK];
        int64_t integers[CHUNK];
    } of_a, of_b;
    size_t components = ts_type_info(a->tensor->type)->components;
    while (count) {
        size_t now = count < CHUNK ? (size_t)count : CHUNK;
        if (atomic_load_explicit(&ts_cancelled, memory_order_relaxed))
            return ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
        if (search->whole_numbers) {
            TS_TRY(ts_view_read_i64(a, first, now, of_a.integers, error));
            TS_TRY(ts_view_read_i64(b, first, now, of_b.integers, error));
            tally_integers(of_a.integers, of_b.integers, now, tally);
        } else {
            TS_TRY(ts_view_read_f64(a, first, now, of_a.numbers, error));
            TS_TRY(ts_view_read_f64(b, first, now, of_b.numbers, error));
            tally_numbers(search, of_a.numbers, of_b.numbers, now * components, tally);
        }
        first += now;
        count -= now;
    }
    return TS_OK;
}

enum ts_status ts_align_measure(const struct ts_align_search *search, const struct ts_view *a, const struct ts_view *b,
                                uint64_t budget, struct ts_align_fit *fit, struct ts_error *error)
{
    struct tally tally = {0};
    if (budget > FAR && a->count > budget && (ts_view_is_far(a) || ts_view_is_far(b)))
        budget = FAR;
    if (a->count <= budget) {
        TS_TRY(read_both(search, a, b, 0, a->count, &tally, error));
    } else {
        uint64_t length = run_length(budget), runs = budget / length, share = a->count / runs;
        for (uint64_t run = 0; run < runs; run++)
            TS_TRY(read_both(search, a, b, run_start(run, share, length), length, &tally, error));
    }
    conclude(search, &tally, fit);
    return TS_OK;
}

/* The square of the mean root: a thousandfold outlier in a thousand values moves it by a few percent, and so do zeros.
 */
static enum ts_status usual_size(const struct ts_view *view, double *size, struct ts_error *error)
{
    const uint64_t budget = 512, length = run_length(budget);
    const size_t components = ts_type_info(view->tensor->type)->components;
    uint64_t runs = view->count <= budget ? 1 : budget / length, share = view->count / runs;
    double numbers[2 * 512], sum = 0, count = 0;
    for (uint64_t run = 0; run < runs; run++) {
        size_t now = (size_t)(runs == 1 ? view->count : length);
        TS_TRY(ts_view_read_f64(view, runs == 1 ? 0 : run_start(run, share, length), now, numbers, error));
        for (size_t i = 0; i < now * components; i++)
            if (isfinite(numbers[i])) {
                sum += sqrt(fabs(numbers[i]));
                count++;
            }
    }
    *size = count > 0 ? sum / count * (sum / count) : 0;
    return TS_OK;
}

enum ts_status ts_align_search_init(struct ts_align_search *search, const struct ts_view *a, const struct ts_view *b,
                                    const struct ts_align_hints *hints, struct ts_error *error)
{
    static const struct ts_align_hints none;
    enum ts_type type_a = a->tensor->type, type_b = b->tensor->type;
    memset(search, 0, sizeof *search);
    ts_arena_init(&search->scratch, (size_t)256 << 20);
    search->hints = hints ? hints : &none;
    search->limit = TS_ALIGN_LIMIT;
    /* Truth values carry so little that equal ones are no evidence; as numbers their mean is taken out. */
    search->whole_numbers =
        ts_type_is_integer(type_a) && ts_type_is_integer(type_b) && !(type_a == TS_BOOL || type_b == TS_BOOL);
    if (search->whole_numbers)
        return TS_OK;
    TS_TRY(usual_size(a, &search->scale[0], error));
    TS_TRY(usual_size(b, &search->scale[1], error));
    for (int side = 0; side < 2; side++)
        if (search->scale[side] == 0)
            search->scale[side] = search->scale[1 - side] > 0 ? search->scale[1 - side] : 1;
    return TS_OK;
}

void ts_align_search_release(struct ts_align_search *search)
{
    ts_arena_release(&search->scratch);
}
