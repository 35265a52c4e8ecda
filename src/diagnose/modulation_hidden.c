/* Owns the norm of a gated sum that was not captured itself: hooks show the stream x, what a branch made, the gates,
 * and the norm of x + gate * branch, plain or with a scale and a shift from the same modulation. Which is which is
 * found on the reference; what the candidate does with the gate, and then with scale and shift, is tried. */
#include <stdlib.h>
#include <string.h>

#include "diagnose/variant.h"
#include "diagnose/wiring.h"

#define REACH       14
#define MOST_CHUNKS 16
#define NO_CHUNK    UINT32_MAX
#define EPSILON     1e-6
#define NEAR        1e-4 /* of the reference's energy: bf16 leaves less */
#define WORTHWHILE  0.5

struct sum {
    const struct ts_actor *x, *y, *from;
    unsigned gate, scale, shift; /* chunks; the last two NO_CHUNK for a plain norm */
    unsigned chunks;
};

/* gate = constant + sign * chunk, the chunk through tanh where it is squashed; then norm * (1 - bare + scale) + shift
 */
struct gating {
    unsigned chunk, scale, shift;
    double constant, sign, bare;
    bool squashed;
};

static double chunk_at(const struct ts_case *the_case, const struct ts_actor *from, bool candidate, size_t row,
                       unsigned chunk, size_t i)
{
    const float *values = candidate ? from->b : from->a;
    return (double)values[ts_scene_row(the_case->scene, from, row) * from->width + chunk * the_case->actor->width + i];
}

/* One row of the norm. */
static void fill_row(const struct ts_case *the_case, const struct ts_actor *const from[3], const struct gating *gating,
                     bool candidate, size_t row, double *out)
{
    const size_t width = the_case->actor->width;
    const float *x = candidate ? from[0]->b : from[0]->a, *y = candidate ? from[1]->b : from[1]->a;
    double mean = 0, square = 0, factor;
    for (size_t i = 0; i < width; i++) {
        double chunk = gating->sign != 0 ? chunk_at(the_case, from[2], candidate, row, gating->chunk, i) : 0;
        chunk = gating->squashed ? tanh(chunk) : chunk;
        out[i] = (double)x[row * width + i] + (gating->constant + gating->sign * chunk) * (double)y[row * width + i];
        mean += out[i] / (double)width;
    }
    for (size_t i = 0; i < width; i++)
        square += (out[i] - mean) * (out[i] - mean) / (double)width;
    factor = 1 / sqrt(square + EPSILON);
    for (size_t i = 0; i < width; i++) {
        out[i] = (out[i] - mean) * factor;
        if (gating->scale != NO_CHUNK)
            out[i] = out[i] * (1 - gating->bare + chunk_at(the_case, from[2], candidate, row, gating->scale, i)) +
                     chunk_at(the_case, from[2], candidate, row, gating->shift, i);
    }
}

static bool fits(const struct ts_case *the_case, const struct sum *sum, size_t row, double *out)
{
    const size_t width = the_case->actor->width;
    const struct ts_actor *const from[3] = {sum->x, sum->y, sum->from};
    double left = 0, size = 0;
    fill_row(the_case, from, &(struct gating){.chunk = sum->gate, .scale = sum->scale, .shift = sum->shift, .sign = 1},
             false, row, out);
    for (size_t i = 0; i < width; i++) {
        const double wanted = (double)the_case->actor->a[row * width + i];
        left += (out[i] - wanted) * (out[i] - wanted);
        size += wanted * wanted;
    }
    return left <= NEAR * size;
}

/* All rows, from the first on, which nearly everything fails. */
static bool fits_all(const struct ts_case *the_case, const struct sum *sum, double *out)
{
    for (size_t row = 0; row < the_case->actor->rows; row++)
        if (!fits(the_case, sum, row, out))
            return false;
    return true;
}

/* A row without a mean, and of variance one. */
static bool is_plain(const struct ts_case *the_case)
{
    const size_t width = the_case->actor->width;
    double mean = 0, square = 0;
    for (size_t i = 0; i < width; i++) {
        mean += (double)the_case->actor->a[i] / (double)width;
        square += (double)the_case->actor->a[i] * (double)the_case->actor->a[i] / (double)width;
    }
    return fabs(mean) < 0.01 && fabs(square - 1) < 0.02;
}

/* The first row of the plain norm, with these chunks: nearly all of them fail at once. */
static bool may_fit(const struct ts_case *the_case, const struct sum *sum, const double *normed)
{
    const float *wanted = the_case->actor->a;
    double left = 0, size = 0;
    for (size_t i = 0; i < the_case->actor->width; i++)
        size += (double)wanted[i] * (double)wanted[i];
    for (size_t i = 0; i < the_case->actor->width && left <= NEAR * size; i++) {
        const double scale = chunk_at(the_case, sum->from, false, 0, sum->scale, i);
        const double off =
            normed[i] * (1 + scale) + chunk_at(the_case, sum->from, false, 0, sum->shift, i) - (double)wanted[i];
        left += off * off;
    }
    return left <= NEAR * size;
}

/* out: the case's total, of which the first row holds the plain norm and the second is scratch. */
static bool find_chunks(const struct ts_case *the_case, struct sum *sum, bool plain, double *out)
{
    const struct ts_actor *const from[3] = {sum->x, sum->y, sum->from};
    for (sum->gate = 0; sum->gate < sum->chunks; sum->gate++) {
        const struct gating gating = {.chunk = sum->gate, .scale = NO_CHUNK, .shift = NO_CHUNK, .sign = 1};
        sum->scale = sum->shift = NO_CHUNK;
        if (plain && fits_all(the_case, sum, out))
            return true;
        if (plain)
            continue;
        fill_row(the_case, from, &gating, false, 0, out);
        for (sum->scale = 0; sum->scale < sum->chunks; sum->scale++)
            for (sum->shift = 0; sum->shift < sum->chunks; sum->shift++)
                if (may_fit(the_case, sum, out) && fits_all(the_case, sum, out + the_case->actor->width))
                    return true;
    }
    return false;
}

static bool find(const struct ts_case *the_case, struct sum *sum, double *out)
{
    const size_t width = the_case->actor->width, pair = the_case->actor->pair;
    const bool plain = is_plain(the_case);
    for (size_t gate = 1; gate <= 2 * REACH && gate <= pair; gate++) {
        sum->from = ts_scene_actor(the_case->scene, pair - gate);
        if (!sum->from || (sum->from->rows != 1 && !sum->from->apart) || sum->from->width % width ||
            sum->from->width / width > MOST_CHUNKS)
            continue;
        sum->chunks = (unsigned)(sum->from->width / width);
        for (size_t at = 0; at < (size_t)REACH * REACH; at++) {
            const size_t near = 1 + at / REACH, far = 1 + at % REACH;
            sum->y = ts_earlier(the_case, near);
            sum->x = ts_earlier(the_case, far);
            if (near != far && ts_same_size(the_case, sum->x) && ts_same_size(the_case, sum->y) &&
                find_chunks(the_case, sum, plain, out))
                return true;
        }
    }
    return false;
}

static bool has_chunk(const struct ts_case *the_case, const struct ts_actor *from, unsigned chunk)
{
    return chunk == NO_CHUNK || (chunk + 1) * the_case->actor->width <= from->width;
}

/* Of the stream, the branch and the modulation. */
static bool predict(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct gating *gating = formula->numbers;
    const struct ts_actor *from[3];
    for (unsigned i = 0; i < 3; i++)
        from[i] = ts_scene_actor(the_case->scene, formula->pairs[i]);
    if (!ts_same_size(the_case, from[0]) || !ts_same_size(the_case, from[1]) || !from[2] ||
        from[2]->width % the_case->actor->width || !has_chunk(the_case, from[2], gating->chunk) ||
        !has_chunk(the_case, from[2], gating->scale) || !has_chunk(the_case, from[2], gating->shift))
        return false;
    for (size_t row = 0; row < the_case->actor->rows; row++)
        fill_row(the_case, from, gating, true, row, out + row * the_case->actor->width);
    return true;
}

static void say_chunks(struct ts_case *the_case, const struct sum *sum, const struct gating *gating, const double *out)
{
    const bool own = gating->scale == sum->scale && gating->shift == sum->shift;
    ts_propose(
        the_case, "modulation", out, 0,
        "how the modulation tensor is split into shift and scale, and whether the scale is applied as 1 + scale",
        "%s: the candidate takes chunk %u of %s for the scale%s and chunk %u for the shift, the reference %u (1 +) "
        "and %u",
        own                                                          ? "the \"1 +\" of an adaptive norm is missing"
        : gating->scale == sum->shift && gating->shift == sum->scale ? "scale and shift of an adaptive norm are swapped"
                                                                     : "an adaptive norm takes the wrong chunks",
        gating->scale, ts_case_name(the_case, sum->from), gating->bare > 0 ? "" : " (1 +)", gating->shift, sum->scale,
        sum->shift);
}

static void say(struct ts_case *the_case, const struct sum *sum, const struct gating *gating, const double *out)
{
    const char *y = ts_case_name(the_case, sum->y), *m = ts_case_name(the_case, sum->from);
    const char *check = "the gated sum before this norm: whether the gate is applied, its sign and its chunk";
    if (gating->scale != sum->scale || gating->shift != sum->shift || gating->bare > 0)
        say_chunks(the_case, sum, gating, out);
    else if (gating->sign == 0 && gating->constant == 0)
        ts_propose(the_case, "term-missing", out, 0, check,
                   "before the norm, the candidate does not add the gated term %s", y);
    else if (gating->sign == 0)
        ts_propose(the_case, "modulation", out, 0, check,
                   "before the norm, the candidate does not apply the gate of %s: %s is added ungated", m, y);
    else if (gating->squashed)
        ts_propose(the_case, "modulation", out, 0, "the function applied to the gate",
                   "before the norm, the candidate applies tanh to the gate of %s", m);
    else if (gating->chunk != sum->gate)
        ts_propose(the_case, "modulation", out, 0, check,
                   "before the norm, the candidate gates %s with chunk %u of %s, the reference with chunk %u", y,
                   gating->chunk, m, sum->gate);
    else
        ts_propose(the_case, "modulation", out, 0, check,
                   gating->sign < 0
                       ? "before the norm, the gate has the opposite sign: the candidate subtracts gate * %s"
                       : "before the norm, the candidate gates %s with 1 + gate",
                   y);
}

void ts_propose_gated_norm(struct ts_case *the_case)
{
    static const struct gating ways[] = {{.sign = 1}, {.sign = -1}, {.sign = 1, .constant = 1}};
    double *out = ts_case_scratch(the_case);
    struct sum sum = {0};
    struct gating tried[3 * MOST_CHUNKS + 3 + 2 * MOST_CHUNKS * MOST_CHUNKS];
    const struct gating *best;
    size_t count = 0;
    struct ts_formula formula = {.predict = predict, .size = sizeof *tried, .pair_count = 3};
    if (!out || the_case->actor->rows < 2 || the_case->actor->width < 8 || !find(the_case, &sum, out))
        return;
    formula.pairs[0] = sum.x->pair;
    formula.pairs[1] = sum.y->pair;
    formula.pairs[2] = sum.from->pair;
    for (unsigned at = 0; at < 3 * sum.chunks + 2; at++) {
        struct gating one = at < 3 * sum.chunks ? ways[at % 3] : (struct gating){.constant = at == 3 * sum.chunks};
        one.chunk = at < 3 * sum.chunks ? at / 3 : sum.gate;
        one.scale = sum.scale;
        one.shift = sum.shift;
        if (one.chunk != sum.gate || one.sign != 1 || one.constant != 0)
            tried[count++] = one;
    }
    for (unsigned at = 0; sum.scale != NO_CHUNK && at < 2 * sum.chunks * sum.chunks; at++) {
        const struct gating one = {
            .chunk = sum.gate, .scale = at / 2 % sum.chunks, .shift = at / 2 / sum.chunks, .sign = 1, .bare = at % 2};
        if (one.scale != one.shift && (one.scale != sum.scale || one.shift != sum.shift || one.bare > 0))
            tried[count++] = one;
    }
    tried[count++] =
        (struct gating){.chunk = sum.gate, .scale = sum.scale, .shift = sum.shift, .sign = 1, .squashed = true};
    best = ts_formula_best(the_case, &formula, tried, count, WORTHWHILE, out);
    if (best) {
        ts_formula_next(the_case, &formula);
        say(the_case, &sum, best, out);
    }
}
