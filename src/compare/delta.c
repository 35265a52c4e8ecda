/* Owns how pairs are cut into pieces, who walks them, and how pieces are joined. */
#include "compare/delta.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "compare/delta_box.h"
#include "compare/delta_close.h"
#include "compare/delta_walk.h"
#include "compare/moments.h"
#include "compare/pieces.h"

#define PIECE_BYTES  ((uint64_t)8 << 20) /* of both sides */
#define LARGEST      ((uint64_t)1 << 21) /* elements of a piece, a multiple of any run */
#define SMALLEST     ((uint64_t)1 << 17)
#define NOWHERE      UINT64_MAX
#define MASKED_LEAST 2 /* times that a mask is there */

struct job {
    struct ts_pieces cut;
    const struct ts_pair *pairs;
    struct ts_delta_piece *pieces;
    _Atomic uint64_t *ratios; /* of each pair: bits of the largest |d| / |a| found so far */
    struct ts_boxes **boxes;  /* of each pair, NULL where it is walked as it stands */
    struct ts_box_shelf shelf;
    double *masks; /* of each pair: the number that pieces of it have still to be looked at without; NaN */
    const struct ts_delta_options *options;
    struct ts_progress *progress;
};

/* torch.testing's defaults for the coarser type, unless the user gave a tolerance. Integers are allowed nothing. */
static struct ts_tolerance tolerance_of(const struct job *job, const struct ts_pair *pair)
{
    int bits = ts_coarser_bits(pair);
    if (job->options->given)
        return job->options->tolerance;
    if (ts_is_exact(pair))
        return (struct ts_tolerance){0};
    return (struct ts_tolerance){.rtol = bits >= 52   ? 1e-7
                                         : bits >= 23 ? 1.3e-6
                                         : bits >= 10 ? 1e-3
                                         : bits >= 7  ? 1.6e-2
                                                      : 0.1,
                                 .atol = bits >= 52 ? 1e-7 : 1e-5};
}

static uint64_t piece_size(const struct job *job, const struct ts_pair *pair)
{
    const struct ts_type_info *a = ts_type_info(pair->a.tensor->type), *b = ts_type_info(pair->b.tensor->type);
    uint64_t size = LARGEST;
    while (size > SMALLEST && size * a->block_bytes / a->block_elements + size * b->block_bytes / b->block_elements >
                                  PIECE_BYTES >> job->cut.halved)
        size /= 2;
    return size;
}

static void forget_elements(void *context, size_t which, uint64_t first, uint64_t end)
{
    struct job *job = context;
    if (!job->boxes[which])
        ts_pieces_forget_pair(&job->cut, &job->pairs[which], first, end);
}

/* The largest relative difference that any piece of the pair has found, a little less: pieces need not look for smaller
 * ones, and those that have it too still find it, so that what is reported does not depend on who came first. */
static double ratio_so_far(const _Atomic uint64_t *ratio)
{
    return ts_double_from_bits(atomic_load_explicit(ratio, memory_order_relaxed)) * (1 - 0x1p-20);
}

static void raise_ratio(_Atomic uint64_t *ratio, double found)
{
    const uint64_t bits = ts_double_bits(found); /* of positive numbers: ordered as they are */
    uint64_t before = atomic_load_explicit(ratio, memory_order_relaxed);
    while (bits > before &&
           !atomic_compare_exchange_weak_explicit(ratio, &before, bits, memory_order_relaxed, memory_order_relaxed)) {
    }
}

/* Of large integers the walk found the elements themselves, with differences that doubles may not have. */
static enum ts_status find_largest(const struct ts_pair *pair, const struct ts_delta_piece *all, struct ts_delta *delta,
                                   struct ts_error *error)
{
    if (ts_delta_is_fast(pair) || !ts_is_exact(pair) || all->worst == NOWHERE)
        return ts_find_largest(pair, all->worst, all->steepest, delta, error);
    delta->worst = all->worst;
    delta->max_rel = all->max_rel;
    delta->max_ulp = all->max_abs;
    TS_TRY(ts_view_read_f64(&pair->a, all->worst, 1, &delta->worst_a, error));
    return ts_view_read_f64(&pair->b, all->worst, 1, &delta->worst_b, error);
}

/* While the box is there: its elements are far apart in the pair. The two apart, since whether a box looks for its
 * steepest depends on what others have found. */
static enum ts_status look_at_box(const struct ts_box *box, const struct ts_boxes *boxes, struct ts_delta_piece *piece,
                                  struct ts_error *error)
{
    struct ts_delta worst = {.worst = NOWHERE}, steepest = {0};
    struct ts_delta_piece only = *piece;
    only.steepest = NOWHERE;
    TS_TRY(find_largest(&box->pair, &only, &worst, error));
    if (ts_is_exact(&box->pair) && !ts_delta_is_fast(&box->pair))
        steepest = (struct ts_delta){.max_rel = piece->max_rel};
    else
        TS_TRY(ts_find_largest(&box->pair, NOWHERE, piece->steepest, &steepest, error));
    piece->worst = worst.worst == NOWHERE ? NOWHERE : ts_box_place(box, boxes, worst.worst);
    piece->worst_a = worst.worst_a;
    piece->worst_b = worst.worst_b;
    piece->worst_ulp = worst.max_ulp;
    piece->steepest_ratio = steepest.max_rel;
    piece->steepest_ulp = steepest.max_ulp;
    if (piece->first_non_finite != NOWHERE)
        piece->first_non_finite = ts_box_place(box, boxes, piece->first_non_finite);
    return TS_OK;
}

/* Scores whose mask is written as -1e9 or so, the same on both sides: next to it no error of what is seen would count.
 * Whether it is the mask of the whole pair is told by all pieces; those that differ take their sums without it while
 * their elements are at hand, the others once some piece does. */
static enum ts_status look_beside_mask(const struct ts_pair *pair, uint64_t first, uint64_t end,
                                       struct ts_delta_piece *piece, struct ts_error *error)
{
    const struct ts_delta_shifts none = {0};
    struct ts_delta_piece seen;
    if (!ts_delta_may_mask(pair, piece))
        return TS_OK;
    ts_delta_piece_init(&seen);
    TS_TRY(ts_delta_walk_shifted(pair, first, end, &none, piece->min_a, &seen, error));
    piece->seen_a = seen.a;
    piece->seen_b = seen.b;
    piece->seen_min_a = seen.min_a;
    piece->seen_min_b = seen.min_b;
    piece->beside = true;
    return TS_OK;
}

static enum ts_status work_on_box(struct job *job, size_t which, uint64_t index, const struct ts_tolerance *tolerance,
                                  struct ts_delta_piece *piece, uint64_t *elements, struct ts_error *error)
{
    const struct ts_boxes *boxes = job->boxes[which];
    struct ts_box *box = ts_box_take(&job->shelf);
    enum ts_status status;
    if (!box)
        return ts_fail_memory(error);
    status = ts_box_load(box, boxes, &job->pairs[which], index, error);
    *elements = box->pair.a.count;
    if (status == TS_OK)
        status = ts_delta_walk(&box->pair, 0, *elements, ratio_so_far(&job->ratios[which]), tolerance, piece, error);
    if (status == TS_OK && piece->unequal)
        status = look_beside_mask(&box->pair, 0, *elements, piece, error);
    if (status == TS_OK)
        status = look_at_box(box, boxes, piece, error);
    ts_box_return(&job->shelf, box);
    return status;
}

static void work(void *context, uint64_t index)
{
    struct job *job = context;
    uint64_t first, elements;
    size_t which = ts_pieces_item(&job->cut, index, &first);
    const struct ts_pair *pair = &job->pairs[which];
    const uint64_t size = job->cut.sizes[which];
    const uint64_t end = pair->a.count - first < size ? pair->a.count : first + size;
    struct ts_delta_piece *piece = &job->pieces[index];
    struct ts_tolerance tolerance = tolerance_of(job, pair);
    struct ts_error error;
    enum ts_status status;
    ts_delta_piece_init(piece);
    elements = end - first;
    if (job->boxes[which])
        status = work_on_box(job, which, first, &tolerance, piece, &elements, &error);
    else
        status = ts_delta_walk(pair, first, end, ratio_so_far(&job->ratios[which]), &tolerance, piece, &error);
    if (status == TS_OK && !job->boxes[which] && piece->unequal)
        status = look_beside_mask(pair, first, end, piece, &error);
    raise_ratio(&job->ratios[which], piece->max_rel);
    ts_progress_add(job->progress, elements);
    if (status != TS_OK)
        ts_pieces_fail(&job->cut, &error, pair->name);
}

static void join_pieces(const struct job *job, size_t which, struct ts_delta_piece *all)
{
    ts_delta_piece_init(all);
    for (uint64_t i = job->cut.first[which]; i < job->cut.first[which + 1]; i++) {
        const struct ts_delta_piece *piece = &job->pieces[i];
        ts_moments_join(&all->a, &piece->a);
        ts_moments_join(&all->b, &piece->b);
        all->min_a = piece->min_a < all->min_a ? piece->min_a : all->min_a;
        all->max_a = piece->max_a > all->max_a ? piece->max_a : all->max_a;
        all->min_b = piece->min_b < all->min_b ? piece->min_b : all->min_b;
        all->max_b = piece->max_b > all->max_b ? piece->max_b : all->max_b;
        all->nan_a += piece->nan_a;
        all->nan_b += piece->nan_b;
        all->plus_a += piece->plus_a;
        all->plus_b += piece->plus_b;
        all->minus_a += piece->minus_a;
        all->minus_b += piece->minus_b;
        all->nan_both += piece->nan_both;
        all->inf_both += piece->inf_both;
        all->masked += piece->masked;
        all->non_finite += piece->non_finite;
        if (piece->first_non_finite < all->first_non_finite)
            all->first_non_finite = piece->first_non_finite;
        all->unequal += piece->unequal;
        all->mismatched += piece->mismatched;
        all->sum += piece->sum;
        all->sum_abs += piece->sum_abs;
        all->squares += piece->squares;
        /* of equal ones the first, also where boxes do not follow each other */
        if (piece->max_abs > all->max_abs || (piece->max_abs == all->max_abs && piece->worst < all->worst)) {
            all->max_abs = piece->max_abs;
            all->worst = piece->worst;
            all->worst_a = piece->worst_a;
            all->worst_b = piece->worst_b;
            all->worst_ulp = piece->worst_ulp;
        }
        if (piece->max_rel > all->max_rel) {
            all->max_rel = piece->max_rel;
            all->steepest = piece->steepest;
            all->steepest_ratio = piece->steepest_ratio;
            all->steepest_ulp = piece->steepest_ulp;
        }
        for (int t = 0; t < TS_DELTA_TOLERANCES; t++)
            all->apart[t] = all->apart[t] || piece->apart[t];
    }
}

static void put_side(struct ts_side *side, const struct ts_moments *moments, double min, double max, int shift)
{
    side->min = moments->count ? min + 0.0 : (double)NAN;
    side->max = moments->count ? max + 0.0 : (double)NAN;
    side->mean = moments->count ? ldexp(moments->mean, -shift) : (double)NAN;
    side->std = ldexp(ts_moments_std(moments), -shift);
    side->norm = ldexp(sqrt(moments->squares), -shift);
}

/* The power of two that brings numbers as large as this to about one; 0 where their squares are doubles anyway. */
static int shift_of(double largest)
{
    if (largest == 0 || (largest < 0x1p480 && largest > 0x1p-480))
        return 0;
    return isfinite(largest) ? -ilogb(largest) : -DBL_MAX_EXP;
}

/* Doubles whose squares overflow or vanish: the sums once more, of values that were shifted to about one, each side and
 * their difference for itself. Tells by how many powers of two. */
static enum ts_status sum_again(const struct ts_pair *pair, double mask, struct ts_delta_piece *all,
                                struct ts_delta_shifts *shifts, struct ts_error *error)
{
    struct ts_delta_piece again;
    *shifts = (struct ts_delta_shifts){0};
    if (!all->a.count)
        return TS_OK;
    *shifts = (struct ts_delta_shifts){.a = shift_of(fmax(fabs(all->min_a), fabs(all->max_a))),
                                       .b = shift_of(fmax(fabs(all->min_b), fabs(all->max_b))),
                                       .d = shift_of(all->max_abs)};
    if (!shifts->a && !shifts->b && !shifts->d)
        return TS_OK;
    ts_delta_piece_init(&again);
    TS_TRY(ts_delta_walk_shifted(pair, 0, pair->a.count, shifts, mask, &again, error));
    all->a = again.a;
    all->b = again.b;
    all->sum = again.sum;
    all->sum_abs = again.sum_abs;
    all->squares = again.squares;
    return TS_OK;
}

static bool has_mask(const struct ts_delta_piece *piece, double mask)
{
    return piece->min_a == mask && piece->min_b == mask;
}

static void work_beside_mask(void *context, uint64_t index)
{
    struct job *job = context;
    uint64_t first;
    size_t which = ts_pieces_item(&job->cut, index, &first);
    const struct ts_pair *pair = &job->pairs[which];
    const uint64_t size = job->cut.sizes[which];
    struct ts_delta_piece *piece = &job->pieces[index];
    struct ts_box *box = NULL;
    struct ts_error error;
    enum ts_status status = TS_OK;
    if (!has_mask(piece, job->masks[which]) || piece->beside)
        return;
    if (job->boxes[which] && !(box = ts_box_take(&job->shelf)))
        status = ts_fail_memory(&error);
    if (status == TS_OK && box)
        status = ts_box_load(box, job->boxes[which], pair, first, &error);
    if (status == TS_OK)
        status = box ? look_beside_mask(&box->pair, 0, box->pair.a.count, piece, &error)
                     : look_beside_mask(pair, first, pair->a.count - first < size ? pair->a.count : first + size, piece,
                                        &error);
    if (box)
        ts_box_return(&job->shelf, box);
    if (status != TS_OK)
        ts_pieces_fail(&job->cut, &error, pair->name);
}

/* Pieces in which nothing differs, of pairs that do elsewhere. */
static enum ts_status look_at_others(struct ts_pool *pool, struct job *job, size_t count, struct ts_error *error)
{
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        struct ts_delta_piece all;
        job->masks[i] = (double)NAN;
        if (job->pairs[i].problem)
            continue;
        join_pieces(job, i, &all);
        if (!all.unequal || !ts_delta_may_mask(&job->pairs[i], &all))
            continue;
        job->masks[i] = all.min_a;
        for (uint64_t k = job->cut.first[i]; k < job->cut.first[i + 1] && !any; k++)
            any = has_mask(&job->pieces[k], all.min_a) && !job->pieces[k].beside;
    }
    return any ? ts_pieces_run(&job->cut, pool, work_beside_mask, forget_elements, job, error) : TS_OK;
}

/* Takes the sums without the mask, where it is the least number of both sides and there many times. Returns which it
 * is, NaN where there is none. */
static double leave_mask_out(const struct job *job, size_t which, struct ts_delta_piece *all)
{
    const double mask = all->min_a;
    struct ts_delta_piece seen;
    uint64_t masked;
    if (!all->unequal || !ts_delta_may_mask(&job->pairs[which], all))
        return (double)NAN;
    ts_delta_piece_init(&seen);
    for (uint64_t i = job->cut.first[which]; i < job->cut.first[which + 1]; i++) {
        const struct ts_delta_piece *piece = &job->pieces[i];
        const bool here = has_mask(piece, mask);
        ts_moments_join(&seen.a, here ? &piece->seen_a : &piece->a);
        ts_moments_join(&seen.b, here ? &piece->seen_b : &piece->b);
        seen.min_a = fmin(seen.min_a, here ? piece->seen_min_a : piece->min_a);
        seen.min_b = fmin(seen.min_b, here ? piece->seen_min_b : piece->min_b);
    }
    masked = all->a.count - seen.a.count;
    if (masked < MASKED_LEAST || masked < all->a.count / 100 || !seen.a.count)
        return (double)NAN;
    all->a = seen.a;
    all->b = seen.b;
    all->min_a = seen.min_a;
    all->min_b = seen.min_b;
    return mask;
}

static void put_largest(const struct ts_delta_piece *all, struct ts_delta *delta)
{
    delta->worst = all->worst;
    delta->worst_a = all->worst_a;
    delta->worst_b = all->worst_b;
    delta->max_rel = all->steepest_ratio;
    delta->max_ulp = fmax(all->worst_ulp, all->steepest_ulp);
}

static enum ts_status finish(const struct ts_pair *pair, bool boxed, double mask, struct ts_delta_piece *all,
                             struct ts_delta *delta, struct ts_error *error)
{
    double norm_a, norm_b, distance;
    struct ts_delta_shifts shifts;
    TS_TRY(sum_again(pair, mask, all, &shifts, error));
    *delta = (struct ts_delta){.count = pair->a.count * ts_type_info(pair->a.tensor->type)->components,
                               .compared = all->a.count,
                               .nan_both = all->nan_both,
                               .inf_both = all->inf_both,
                               .masked = all->masked,
                               .non_finite_mismatch = all->non_finite,
                               .first_non_finite_mismatch = all->first_non_finite,
                               .unequal = all->unequal,
                               .identical = all->unequal == 0 && all->masked == 0,
                               .max_abs = all->max_abs,
                               .mismatched = all->mismatched + all->non_finite,
                               .worst = NOWHERE,
                               .exact = ts_is_exact(pair),
                               .rank = pair->a.rank};
    put_side(&delta->a, &all->a, all->min_a, all->max_a, shifts.a);
    put_side(&delta->b, &all->b, all->min_b, all->max_b, shifts.b);
    delta->a.nan = all->nan_a;
    delta->b.nan = all->nan_b;
    delta->a.positive_inf = all->plus_a;
    delta->b.positive_inf = all->plus_b;
    delta->a.negative_inf = all->minus_a;
    delta->b.negative_inf = all->minus_b;
    for (int t = 0; t < TS_DELTA_TOLERANCES; t++)
        delta->allclose[t] = !all->apart[t] && !all->non_finite;
    if (all->a.count) {
        delta->mean_abs = ldexp(all->sum_abs / (double)all->a.count, -shifts.d);
        delta->mse = ldexp(all->squares / (double)all->a.count, -2 * shifts.d);
        delta->rmse = ldexp(sqrt(all->squares / (double)all->a.count), -shifts.d);
        delta->mean = ldexp(all->sum / (double)all->a.count, -shifts.d);
    }
    /* in the reference's measure */
    norm_a = sqrt(all->a.squares);
    norm_b = ldexp(sqrt(all->b.squares), shifts.a - shifts.b);
    distance = ldexp(sqrt(all->squares), shifts.a - shifts.d);
    delta->rel_l2 = norm_a > 0 ? distance / norm_a : distance > 0 ? (double)INFINITY : 0;
    delta->norm_ratio = norm_a > 0 ? norm_b / norm_a : norm_b > 0 ? (double)INFINITY : 1;
    /* |b - a|^2 = (|b| - |a|)^2 + 2 |a| |b| (1 - cos): this form keeps the digits of a cosine near one */
    if (norm_a > 0 && norm_b > 0)
        delta->cosine = 1 - (ldexp(all->squares, 2 * (shifts.a - shifts.d)) - (norm_b - norm_a) * (norm_b - norm_a)) /
                                (2 * norm_a * norm_b);
    else
        delta->cosine = norm_a == norm_b ? 1 : (double)NAN;
    if (delta->cosine > 1)
        delta->cosine = 1;
    if (delta->cosine < -1)
        delta->cosine = -1;
    delta->precision_a = ts_bits_in_use(&pair->a);
    delta->precision_b = ts_bits_in_use(&pair->b);
    if (boxed)
        put_largest(all, delta);
    else
        TS_TRY(find_largest(pair, all, delta, error));
    /* kernels take differences of f32 in f32; what is said of the worst element is exact, but for huge integers */
    if (!delta->exact && delta->worst != NOWHERE)
        delta->max_abs = fabs(delta->worst_b - delta->worst_a);
    if (norm_a == 0 && norm_b > 0) /* no element of the reference to be relative to */
        delta->max_rel = (double)INFINITY;
    return TS_OK;
}

/* A batch of pairs, so that the pieces of a huge comparison do not fill memory. */
static enum ts_status measure_batch(struct ts_pool *pool, struct job *job, size_t count, struct ts_delta *deltas,
                                    struct ts_error *error)
{
    enum ts_status status;
    ts_pieces_begin(&job->cut);
    for (size_t i = 0; i < count; i++) {
        atomic_store_explicit(&job->ratios[i], 0, memory_order_relaxed);
        job->boxes[i] = ts_boxes_plan(&job->pairs[i]);
        if (job->boxes[i])
            ts_pieces_add(&job->cut, job->boxes[i]->count, 1);
        else
            ts_pieces_add(&job->cut, job->pairs[i].problem ? 0 : job->pairs[i].a.count,
                          job->pairs[i].problem ? LARGEST : piece_size(job, &job->pairs[i]));
    }
    job->pieces = malloc((ts_pieces_count(&job->cut) + 1) * sizeof *job->pieces);
    if (!job->pieces)
        return ts_fail_memory(error);
    status = ts_pieces_run(&job->cut, pool, work, forget_elements, job, error);
    if (status == TS_OK)
        status = look_at_others(pool, job, count, error);
    for (size_t i = 0; i < count && status == TS_OK; i++) {
        struct ts_delta_piece all;
        if (job->pairs[i].problem) {
            deltas[i] = (struct ts_delta){.worst = NOWHERE, .first_non_finite_mismatch = NOWHERE};
            continue;
        }
        join_pieces(job, i, &all);
        status = finish(&job->pairs[i], job->boxes[i], leave_mask_out(job, i, &all), &all, &deltas[i], error);
        if (status == TS_OK && ts_delta_needs_cosine(&deltas[i]))
            status = ts_delta_cosine(&job->pairs[i], &deltas[i], error);
        /* samples touch pages all over */
        ts_pieces_forget_pair(&job->cut, &job->pairs[i], 0, job->pairs[i].a.count);
    }
    free(job->pieces);
    return status;
}

static enum ts_status run_batch(struct ts_pool *pool, struct job *job, size_t count, struct ts_delta *deltas,
                                struct ts_error *error)
{
    enum ts_status status = measure_batch(pool, job, count, deltas, error);
    for (size_t i = 0; i < count; i++)
        free(job->boxes[i]);
    ts_box_shelf_clear(&job->shelf);
    return status;
}

enum ts_status ts_delta_run(struct ts_pool *pool, const struct ts_pair *pairs, size_t count,
                            const struct ts_delta_options *options, struct ts_delta *deltas,
                            struct ts_progress *progress, struct ts_error *error)
{
    struct job job = {.options = options, .progress = progress};
    enum ts_status status = TS_OK;
    job.ratios = calloc(TS_PIECES_BATCH, sizeof *job.ratios);
    job.boxes = calloc(TS_PIECES_BATCH, sizeof *job.boxes);
    job.masks = calloc(TS_PIECES_BATCH, sizeof *job.masks);
    ts_box_shelf_init(&job.shelf);
    if (!ts_pieces_init(&job.cut, pool) || !job.ratios || !job.boxes || !job.masks)
        status = ts_fail_memory(error);
    for (size_t i = 0; i < count && status == TS_OK; i += TS_PIECES_BATCH) {
        job.pairs = pairs + i;
        status = run_batch(pool, &job, count - i < TS_PIECES_BATCH ? count - i : TS_PIECES_BATCH, deltas + i, error);
    }
    ts_pieces_release(&job.cut);
    ts_box_shelf_release(&job.shelf);
    free(job.ratios);
    free(job.boxes);
    free(job.masks);
    return status;
}
