/* Owns the walk over some elements of a pair: by the fast kernels where they know the types, in double elsewhere, and
 * element by element what those hand back. */
#include "compare/delta_walk.h"

#include <math.h>

#include "base/number.h"
#include "compare/delta_close.h"
#include "compare/delta_f64_kernel.h"
#include "compare/delta_kernel.h"

#define DECODED 8192 /* numbers decoded at a time; of both sides half as many, to stay in the second-level cache */
#define AHEAD   4096 /* bytes; see FETCH_AHEAD of lanes.h */
#define CAREFUL 512  /* elements at a time, as doubles */
#define NOWHERE UINT64_MAX
#define SLACK   0x1p-20
/* Differences above this are looked at one by one: masks are constants such as -65504 or -1e9. Among numbers that may
 * be such constants so are the steps between two of them: -1e4 is -9984 in bf16. */
#define SUSPICIOUS 9000.0
#define MASK_STEP  16.0

static const double allclose_steps[TS_DELTA_TOLERANCES] = {1e-3, 1e-4, 1e-5};

void ts_delta_piece_init(struct ts_delta_piece *piece)
{
    *piece = (struct ts_delta_piece){.min_a = INFINITY,
                                     .max_a = -INFINITY,
                                     .min_b = INFINITY,
                                     .max_b = -INFINITY,
                                     .first_non_finite = NOWHERE,
                                     .worst = NOWHERE,
                                     .steepest = NOWHERE};
}

/* Sums of a stretch of elements. Deviations are from the first of them: numbers that differ little from each other keep
 * their digits. */
struct stretch {
    uint64_t count;
    double origin[2], sum[2], deviation[2], squares[2]; /* of a and of b */
};

static void add_to_stretch(struct stretch *stretch, int side, double value)
{
    double from_origin;
    if (!stretch->count)
        stretch->origin[side] = value;
    from_origin = value - stretch->origin[side];
    stretch->sum[side] += from_origin;
    stretch->deviation[side] += from_origin * from_origin;
    stretch->squares[side] += value * value;
}

static void join_stretch(struct ts_moments *moments, const struct stretch *stretch, int side)
{
    const double n = (double)stretch->count;
    struct ts_moments more = {.count = stretch->count, .squares = stretch->squares[side]};
    if (!stretch->count)
        return;
    more.mean = stretch->origin[side] + stretch->sum[side] / n;
    more.deviation = fmax(0, stretch->deviation[side] - stretch->sum[side] * stretch->sum[side] / n);
    ts_moments_join(moments, &more);
}

static void add_stretch(struct ts_delta_piece *piece, const struct stretch *stretch)
{
    join_stretch(&piece->a, stretch, 0);
    join_stretch(&piece->b, stretch, 1);
}

/* Two finite numbers and their difference, which of integers is not always that of the doubles. */
static void add_finite(struct ts_delta_piece *piece, double x, double y, double d, uint64_t at,
                       const struct ts_tolerance *tolerance, struct stretch *stretch)
{
    const double distance = fabs(d);
    add_to_stretch(stretch, 0, x);
    add_to_stretch(stretch, 1, y);
    stretch->count++;
    piece->min_a = x < piece->min_a ? x : piece->min_a;
    piece->max_a = x > piece->max_a ? x : piece->max_a;
    piece->min_b = y < piece->min_b ? y : piece->min_b;
    piece->max_b = y > piece->max_b ? y : piece->max_b;
    piece->sum += d;
    piece->sum_abs += distance;
    piece->squares += d * d;
    piece->unequal += d != 0;
    if (distance > piece->max_abs) {
        piece->max_abs = distance;
        piece->worst = at;
    }
    piece->mismatched += distance > tolerance->atol + tolerance->rtol * fabs(x);
    for (int t = 0; t < TS_DELTA_TOLERANCES; t++)
        piece->apart[t] = piece->apart[t] || distance > allclose_steps[t] + allclose_steps[t] * fabs(x);
    if (x != 0 && distance > piece->max_rel * fabs(x)) {
        piece->max_rel = distance / fabs(x);
        piece->steepest = at;
    }
}

static void add_pair_values(struct ts_delta_piece *piece, double x, double y, uint64_t at, const struct ts_masks *masks,
                            const struct ts_tolerance *tolerance, struct stretch *stretch)
{
    bool finite_x = isfinite(x), finite_y = isfinite(y);
    piece->nan_a += isnan(x) != 0;
    piece->nan_b += isnan(y) != 0;
    piece->plus_a += isinf(x) && x > 0;
    piece->plus_b += isinf(y) && y > 0;
    piece->minus_a += isinf(x) && x < 0;
    piece->minus_b += isinf(y) && y < 0;
    if (ts_is_masked(masks, x, y)) {
        piece->masked += x != y;
        return;
    }
    if (!finite_x || !finite_y) {
        piece->nan_both += isnan(x) && isnan(y);
        piece->inf_both += x == y;
        if (!(isnan(x) && isnan(y)) && x != y) {
            piece->unequal++;
            if (!piece->non_finite++)
                piece->first_non_finite = at;
        }
        return;
    }
    add_finite(piece, x, y, y - x, at, tolerance, stretch);
}

static void add_sums(struct ts_delta_piece *piece, const struct ts_delta_sums *sums, uint64_t first)
{
    ts_moments_join(&piece->a, &sums->a);
    ts_moments_join(&piece->b, &sums->b);
    piece->min_a = sums->min_a < piece->min_a ? sums->min_a : piece->min_a;
    piece->max_a = sums->max_a > piece->max_a ? sums->max_a : piece->max_a;
    piece->min_b = sums->min_b < piece->min_b ? sums->min_b : piece->min_b;
    piece->max_b = sums->max_b > piece->max_b ? sums->max_b : piece->max_b;
    piece->sum += sums->sum;
    piece->sum_abs += sums->sum_abs;
    piece->squares += sums->squares;
    piece->unequal += sums->unequal;
    piece->mismatched += sums->mismatched;
    if (sums->max_abs > piece->max_abs) {
        piece->max_abs = sums->max_abs;
        piece->worst = first;
    }
    if (sums->max_rel > piece->max_rel) {
        piece->max_rel = sums->max_rel;
        piece->steepest = first;
    }
}

/* Finite numbers of which none masks anything, `per` to an element; false if they are not that. */
static bool add_doubles(const double *x, const double *y, size_t count, unsigned per, uint64_t first,
                        const struct ts_masks *masks, const struct ts_tolerance *tolerance,
                        struct ts_delta_piece *piece)
{
    const struct ts_delta_f64_limits limits = {tolerance->rtol, tolerance->atol, piece->max_rel};
    const double furthest = piece->max_abs, ratio = piece->max_rel;
    struct ts_delta_sums sums;
    size_t i = 0;
    TS_TABLE(ts_delta_f64_kernels)->measure(x, y, count, limits, &sums);
    if (!sums.clean || (masks && ts_may_mask(sums.min_a, masks->lowest_a) && ts_may_mask(sums.min_b, masks->lowest_b)))
        return false;
    add_sums(piece, &sums, first);
    if (piece->max_abs > furthest) {
        while (i + 1 < count && fabs(y[i] - x[i]) < sums.max_abs)
            i++;
        piece->worst = first + i / per;
    }
    for (i = 0; i < count && piece->max_rel > ratio; i++)
        if (x[i] != 0 && fabs(y[i] - x[i]) / fabs(x[i]) >= sums.max_rel) {
            piece->steepest = first + i / per;
            break;
        }
    for (int t = 0; t < TS_DELTA_TOLERANCES; t++)
        for (i = 0; i < count && !piece->apart[t] && sums.max_abs > allclose_steps[t]; i++)
            piece->apart[t] = fabs(y[i] - x[i]) > allclose_steps[t] + allclose_steps[t] * fabs(x[i]);
    return true;
}

/* A side that can be read where it stands, or NULL. */
static const double *doubles_of(const struct ts_view *view)
{
    const uint8_t *bytes = view->tensor->type == TS_F64 ? ts_view_bytes(view) : NULL;
    return (uintptr_t)bytes % sizeof(double) ? NULL : (const double *)(const void *)bytes;
}

/* Any values, any types. */
static enum ts_status walk_careful(const struct ts_pair *pair, uint64_t first, uint64_t end,
                                   struct ts_delta_piece *piece, const struct ts_tolerance *tolerance,
                                   struct ts_error *error)
{
    const unsigned per = ts_type_info(pair->a.tensor->type)->components;
    const struct ts_masks masks = ts_masks_of(pair);
    const double *doubles_a = doubles_of(&pair->a), *doubles_b = doubles_of(&pair->b);
    double x[2 * CAREFUL], y[2 * CAREFUL];
    if (per != ts_type_info(pair->b.tensor->type)->components)
        return ts_fail(error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET, "a complex tensor against a real one");
    while (first < end) {
        const size_t now = end - first < CAREFUL ? (size_t)(end - first) : CAREFUL;
        struct stretch stretch = {0};
        const double *of_a = doubles_a ? doubles_a + first : x, *of_b = doubles_b ? doubles_b + first : y;
        if (!doubles_a)
            TS_TRY(ts_view_read_f64(&pair->a, first, now, x, error));
        if (!doubles_b)
            TS_TRY(ts_view_read_f64(&pair->b, first, now, y, error));
        if (add_doubles(of_a, of_b, now * per, per, first, &masks, tolerance, piece)) {
            first += now;
            continue;
        }
        for (size_t i = 0; i < now * per; i++)
            add_pair_values(piece, of_a[i], of_b[i], first + i / per, &masks, tolerance, &stretch);
        add_stretch(piece, &stretch);
        first += now;
    }
    return TS_OK;
}

static double shifted(double x, int shift)
{
    return shift ? ldexp(x, shift) : x;
}

/* The difference itself, unless that is beyond all doubles. */
static double shifted_difference(double x, double y, int shift)
{
    return isfinite(y - x) ? shifted(y - x, shift) : shifted(y, shift) - shifted(x, shift);
}

bool ts_delta_may_mask(const struct ts_pair *pair, const struct ts_delta_piece *piece)
{
    return piece->min_a == piece->min_b && !ts_is_exact(pair) && isfinite(piece->min_a) &&
           ts_is_mask(piece->min_a, -(double)INFINITY);
}

enum ts_status ts_delta_walk_shifted(const struct ts_pair *pair, uint64_t first, uint64_t end,
                                     const struct ts_delta_shifts *shifts, double mask, struct ts_delta_piece *piece,
                                     struct ts_error *error)
{
    const unsigned per = ts_type_info(pair->a.tensor->type)->components;
    const struct ts_masks masks = ts_masks_of(pair);
    double x[2 * CAREFUL], y[2 * CAREFUL];
    while (first < end) {
        const size_t now = end - first < CAREFUL ? (size_t)(end - first) : CAREFUL;
        struct stretch stretch = {0};
        TS_TRY(ts_view_read_f64(&pair->a, first, now, x, error));
        TS_TRY(ts_view_read_f64(&pair->b, first, now, y, error));
        for (size_t i = 0; i < now * per; i++) {
            double of_a, of_b, d;
            if (!isfinite(x[i]) || !isfinite(y[i]) || (x[i] == mask && y[i] == mask) ||
                ts_is_masked(&masks, x[i], y[i]))
                continue;
            of_a = shifted(x[i], shifts->a);
            of_b = shifted(y[i], shifts->b);
            d = shifted_difference(x[i], y[i], shifts->d);
            add_to_stretch(&stretch, 0, of_a);
            add_to_stretch(&stretch, 1, of_b);
            stretch.count++;
            piece->min_a = of_a < piece->min_a ? of_a : piece->min_a;
            piece->min_b = of_b < piece->min_b ? of_b : piece->min_b;
            piece->sum += d;
            piece->sum_abs += fabs(d);
            piece->squares += d * d;
        }
        add_stretch(piece, &stretch);
        first += now;
    }
    return TS_OK;
}

/* The number itself: u64 is read with its bits in an i64. */
static __int128 whole(int64_t bits, enum ts_type type)
{
    return type == TS_U64 ? (__int128)(uint64_t)bits : (__int128)bits;
}

/* As doubles; false unless each is less than 2^51. They are added to the bits of 1.5 * 2^52, where a double's last bit
 * counts one. */
static bool fit_doubles(const int64_t *values, size_t count, enum ts_type type, double *out)
{
    const uint64_t bias = type == TS_U64 ? 0 : (uint64_t)1 << 51;
    const unsigned width = type == TS_U64 ? 51 : 52;
    uint64_t beyond = 0;
    for (size_t i = 0; i < count; i++) {
        const uint64_t bits = (uint64_t)values[i];
        beyond |= (bits + bias) >> width;
        out[i] = ts_double_from_bits(bits + 0x4338000000000000u) - 0x1.8p52;
    }
    return !beyond;
}

static bool is_long(enum ts_type type)
{
    return type == TS_I64 || type == TS_U64;
}

enum ts_status ts_delta_read(const struct ts_pair *pair, uint64_t first, size_t count, double *x, double *y,
                             double *differences, struct ts_error *error)
{
    const enum ts_type type_a = pair->a.tensor->type, type_b = pair->b.tensor->type;
    const size_t numbers = count * ts_type_info(type_a)->components;
    int64_t of_a[CAREFUL], of_b[CAREFUL];
    TS_TRY(ts_view_read_f64(&pair->a, first, count, x, error));
    TS_TRY(ts_view_read_f64(&pair->b, first, count, y, error));
    for (size_t i = 0; i < numbers; i++)
        differences[i] = y[i] - x[i];
    for (size_t from = 0, now; ts_is_exact(pair) && (is_long(type_a) || is_long(type_b)) && from < count; from += now) {
        now = count - from < CAREFUL ? count - from : CAREFUL;
        TS_TRY(ts_view_read_i64(&pair->a, first + from, now, of_a, error));
        TS_TRY(ts_view_read_i64(&pair->b, first + from, now, of_b, error));
        for (size_t i = 0; i < now; i++)
            differences[from + i] = (double)(whole(of_b[i], type_b) - whole(of_a[i], type_a));
    }
    return TS_OK;
}

/* Integers: differences are exact before they are rounded to a double, so that 2^62 and 2^62 + 1 are one apart. No
 * number masks anything here. */
static enum ts_status walk_integers(const struct ts_pair *pair, uint64_t first, uint64_t end,
                                    struct ts_delta_piece *piece, const struct ts_tolerance *tolerance,
                                    struct ts_error *error)
{
    const enum ts_type type_a = pair->a.tensor->type, type_b = pair->b.tensor->type;
    const bool long_ones = is_long(type_a) || is_long(type_b);
    int64_t x[CAREFUL], y[CAREFUL];
    double of_x[CAREFUL], of_y[CAREFUL];
    while (first < end) {
        const size_t now = end - first < CAREFUL ? (size_t)(end - first) : CAREFUL;
        struct stretch stretch = {0};
        bool fit = true;
        if (long_ones) {
            TS_TRY(ts_view_read_i64(&pair->a, first, now, x, error));
            TS_TRY(ts_view_read_i64(&pair->b, first, now, y, error));
            fit = fit_doubles(x, now, type_a, of_x) && fit_doubles(y, now, type_b, of_y);
        } else {
            TS_TRY(ts_view_read_f64(&pair->a, first, now, of_x, error));
            TS_TRY(ts_view_read_f64(&pair->b, first, now, of_y, error));
        }
        fit = fit && add_doubles(of_x, of_y, now, 1, first, NULL, tolerance, piece);
        for (size_t i = 0; i < now && !fit; i++) {
            const __int128 of_a = whole(x[i], type_a), of_b = whole(y[i], type_b);
            add_finite(piece, (double)of_a, (double)of_b, (double)(of_b - of_a), first + i, tolerance, &stretch);
        }
        add_stretch(piece, &stretch);
        first += now;
    }
    return TS_OK;
}

/* Whether some |d| > step + step * |a|, in double. */
static enum ts_status exceeds(const struct ts_pair *pair, uint64_t first, size_t count, double step, bool *found,
                              struct ts_error *error)
{
    double x[512], y[512];
    *found = false;
    for (size_t done = 0; done < count && !*found;) {
        size_t now = count - done < 512 ? count - done : 512;
        TS_TRY(ts_view_read_f64(&pair->a, first + done, now, x, error));
        TS_TRY(ts_view_read_f64(&pair->b, first + done, now, y, error));
        for (size_t i = 0; i < now && !*found; i++)
            *found = fabs(y[i] - x[i]) > step + step * fabs(x[i]);
        done += now;
    }
    return TS_OK;
}

/* The fixed tolerances, where a run can exceed one that is not exceeded yet. What f32 cannot tell is looked at in
 * double; SLACK is some times its rounding. */
static enum ts_status add_allclose(const struct ts_pair *pair, uint64_t first, size_t count, const uint8_t *a,
                                   const uint8_t *b, const struct ts_delta_kernel *kernel,
                                   const struct ts_delta_sums *sums, struct ts_delta_piece *piece,
                                   struct ts_error *error)
{
    const double largest = sums->max_a > -sums->min_a ? sums->max_a : -sums->min_a;
    for (int t = 0; t < TS_DELTA_TOLERANCES; t++) {
        const double step = allclose_steps[t];
        const float less = (float)(step * (1 - SLACK));
        if (piece->apart[t] || sums->max_abs <= step * (1 - SLACK))
            continue;
        if (sums->max_abs > (step + step * largest) * (1 + SLACK))
            piece->apart[t] = true;
        else if (kernel->beyond(a, b, count, less, less))
            TS_TRY(exceeds(pair, first, count, step, &piece->apart[t], error));
    }
    return TS_OK;
}

/* Tensors of fewer numbers are added up in double throughout, which no one waits for. What sums of a few f32 numbers
 * lose cancels out in larger ones, mostly: it is some 2^-24 / sqrt(count) of them. */
static bool is_small(const struct ts_pair *pair)
{
    return pair->a.count < (uint64_t)1 << 16;
}

static bool lies_there(const struct ts_view *view, enum ts_type type)
{
    return view->tensor->type == type && ts_view_bytes(view);
}

/* How a pair is measured. A side is `plain` that lies there as the kernel takes it; others are decoded to f32. */
struct manner {
    const struct ts_delta_kernel *kernel;
    bool plain_a, plain_b;
};

static const struct ts_delta_kernel *kernel_of(enum ts_delta_kind kind)
{
    return &TS_TABLE(ts_delta_kernels)->of[kind];
}

static struct manner manner_of(const struct ts_pair *pair)
{
    const bool single_a = lies_there(&pair->a, TS_F32), single_b = lies_there(&pair->b, TS_F32);
    if (is_small(pair))
        return (struct manner){kernel_of(TS_DELTA_DOUBLED), single_a, single_b};
    if (lies_there(&pair->a, TS_BF16) && lies_there(&pair->b, TS_BF16))
        return (struct manner){kernel_of(TS_DELTA_BF16), true, true};
    if (lies_there(&pair->a, TS_F16) && lies_there(&pair->b, TS_F16))
        return (struct manner){kernel_of(TS_DELTA_F16), true, true};
    if (lies_there(&pair->a, TS_BF16))
        return (struct manner){TS_TABLE(ts_delta_mixed_kernel), true, single_b};
    return (struct manner){kernel_of(TS_DELTA_F32), single_a, single_b};
}

/* One side of a run: where it stands, or decoded into the buffer. */
static enum ts_status read_side(const struct ts_view *view, bool plain, uint64_t first, size_t count, float *buffer,
                                const uint8_t **out, struct ts_error *error)
{
    if (plain) {
        *out = ts_view_bytes(view) + first * ts_type_info(view->tensor->type)->block_bytes;
        return TS_OK;
    }
    *out = (const uint8_t *)buffer;
    return ts_view_read_f32(view, first, count, buffer, error);
}

/* What the kernel asks memory for while it works on a run: numbers some way ahead where they stand as they are, else
 * what is decoded next. A hint, so only for tensors as they are. */
static struct ts_ahead look_ahead(const struct ts_view *view, bool plain, uint64_t next, const uint8_t *run)
{
    const struct ts_tensor *tensor = view->tensor;
    const struct ts_type_info *info = ts_type_info(tensor->type);
    if (plain)
        return (struct ts_ahead){(uintptr_t)run + AHEAD, (size_t)info->block_bytes * 16};
    if (view->join != TS_JOIN_NONE || view->count != tensor->count || !ts_tensor_is_contiguous(tensor))
        return (struct ts_ahead){(uintptr_t)run, 0};
    return (struct ts_ahead){(uintptr_t)ts_tensor_bytes(tensor) + next / info->block_elements * info->block_bytes,
                             (size_t)info->block_bytes * 16 / info->block_elements};
}

/* Numbers that f32 has. */
static bool is_fast(const struct ts_tensor *tensor)
{
    const struct ts_type_info *info = ts_type_info(tensor->type);
    if (ts_type_is_integer(tensor->type))
        return info->block_bytes == 1; /* of one number, or of several smaller ones */
    return info->components == 1 &&
           (info->kind == TS_CLASS_QUANT ||
            (info->kind == TS_CLASS_FLOAT && tensor->type != TS_F64 && tensor->type != TS_F80));
}

bool ts_delta_is_fast(const struct ts_pair *pair)
{
    return !pair->masked && is_fast(pair->a.tensor) && is_fast(pair->b.tensor);
}

/* What a kernel handed back, such as second moments of an optimizer, whose squares vanish in f32: once more as f32
 * numbers, whose squares are doubles. */
static bool measure_doubled(const struct ts_pair *pair, uint64_t first, size_t count, struct ts_delta_limits limits,
                            struct ts_delta_sums *sums)
{
    float x[DECODED], y[DECODED];
    struct ts_error ignored;
    if (ts_view_read_f32(&pair->a, first, count, x, &ignored) != TS_OK ||
        ts_view_read_f32(&pair->b, first, count, y, &ignored) != TS_OK)
        return false;
    kernel_of(TS_DELTA_DOUBLED)->measure((const uint8_t *)x, (const uint8_t *)y, count, limits, sums);
    return sums->clean;
}

/* What a kernel handed back; again: may be clean in double, and nothing is beyond a fixed tolerance. */
static enum ts_status walk_rest(const struct ts_pair *pair, uint64_t first, uint64_t end, struct ts_delta_limits limits,
                                bool again, struct ts_delta_piece *piece, const struct ts_tolerance *tolerance,
                                struct ts_error *error)
{
    limits.same = limits.eager = false;
    while (first < end) {
        size_t now = end - first < DECODED ? (size_t)(end - first) : DECODED;
        struct ts_delta_sums sums;
        limits.ratio = (float)piece->max_rel;
        limits.min_a = piece->min_a;
        limits.max_a = piece->max_a;
        limits.min_b = piece->min_b;
        limits.max_b = piece->max_b;
        if (again && measure_doubled(pair, first, now, limits, &sums))
            add_sums(piece, &sums, first);
        else
            TS_TRY(walk_careful(pair, first, first + now, piece, tolerance, error));
        first += now;
    }
    return TS_OK;
}

/* Whether masks may be among the numbers that were added up. */
static bool is_suspicious(const struct ts_delta_sums *sums)
{
    return sums->max_abs > SUSPICIOUS ||
           (sums->max_abs >= MASK_STEP && ts_is_masked_score(sums->min_a) && ts_is_masked_score(sums->min_b));
}

static enum ts_status walk_fast(const struct ts_pair *pair, uint64_t first, uint64_t end, double ratio,
                                struct ts_delta_piece *piece, const struct ts_tolerance *tolerance,
                                struct ts_error *error)
{
    const struct manner manner = manner_of(pair);
    const bool plain_a = manner.plain_a, plain_b = manner.plain_b;
    const struct ts_delta_kernel *kernel = manner.kernel;
    const size_t run = plain_a && plain_b ? TS_DELTA_RUN : plain_a || plain_b ? DECODED : DECODED / 2;
    float x[DECODED], y[DECODED];
    struct ts_delta_limits limits = {.rtol = (float)tolerance->rtol, .atol = (float)tolerance->atol};
    while (first < end) {
        const size_t now = end - first < run ? (size_t)(end - first) : run;
        const uint8_t *a, *b;
        struct ts_delta_sums sums;
        limits.ratio = (float)(piece->max_rel > ratio ? piece->max_rel : ratio);
        limits.min_a = piece->min_a;
        limits.max_a = piece->max_a;
        limits.min_b = piece->min_b;
        limits.max_b = piece->max_b;
        TS_TRY(read_side(&pair->a, plain_a, first, now, x, &a, error));
        TS_TRY(read_side(&pair->b, plain_b, first, now, y, &b, error));
        limits.ahead[0] = look_ahead(&pair->a, plain_a, first + now, a);
        limits.ahead[1] = look_ahead(&pair->b, plain_b, first + now, b);
        kernel->measure(a, b, now, limits, &sums);
        if (!sums.clean || is_suspicious(&sums)) {
            const bool again = sums.max_abs <= allclose_steps[TS_DELTA_TOLERANCES - 1];
            TS_TRY(walk_rest(pair, first, first + now, limits, again, piece, tolerance, error));
        } else {
            add_sums(piece, &sums, first);
            TS_TRY(add_allclose(pair, first, now, a, b, kernel, &sums, piece, error));
            limits.eager = sums.eager;
            limits.same = sums.same;
        }
        first += now;
    }
    return TS_OK;
}

enum ts_status ts_delta_walk(const struct ts_pair *pair, uint64_t first, uint64_t end, double ratio,
                             const struct ts_tolerance *tolerance, struct ts_delta_piece *piece, struct ts_error *error)
{
    if (ts_delta_is_fast(pair))
        return walk_fast(pair, first, end, ratio, piece, tolerance, error);
    if (ts_is_exact(pair))
        return walk_integers(pair, first, end, piece, tolerance, error);
    return walk_careful(pair, first, end, piece, tolerance, error);
}
