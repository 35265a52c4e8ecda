/* Owns content sketches: see sketch.h for what they tell. */
#include "pair/sketch.h"

#include <math.h>
#include <string.h>

#include "base/number.h"
#include "base/progress.h"

#define PIECE 2048
#define LANES 16 /* sums beside each other: of a piece, f32 is good for a millionth of them */

static uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= UINT64_C(0xff51afd7ed558ccd);
    x ^= x >> 33;
    x *= UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ x >> 33;
}

/* Frequencies and phases without relation to each other or to round numbers: multiples of irrational steps. In waves
 * per root mean square, between 0.3 and 1.6: lower ones see only the sum, higher ones turn rounding errors into chance.
 */
static double frequency(unsigned wave)
{
    double step = (wave + 1) * 0.7548776662466927;
    return 0.3 + 1.3 * (step - floor(step));
}

static double phase(unsigned wave)
{
    double step = (wave + 1) * 0.5698402909980532;
    return step - floor(step);
}

static enum ts_status first_walk(const struct ts_tensor *tensor, struct ts_sketch *sketch, struct ts_error *error)
{
    unsigned components = ts_type_info(tensor->type)->components;
    double squares = 0, sum = 0, projection = 0;
    float values[2 * PIECE], first = 0;
    sketch->constant = true;
    for (uint64_t at = 0; at < tensor->count; at += PIECE) {
        size_t count = tensor->count - at < PIECE ? (size_t)(tensor->count - at) : PIECE;
        if ((at & ((UINT64_C(1) << 22) - 1)) == 0 && atomic_load(&ts_cancelled))
            return ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
        TS_TRY(ts_tensor_read_f32(tensor, at, count, values, error));
        if (at == 0)
            first = values[0];
        for (size_t i = 0; i < count * components; i++) {
            float value = values[i];
            uint64_t sign = mix((at * components + i) / 64 + 1) >> ((at * components + i) % 64) & 1;
            sketch->constant = sketch->constant && value == first;
            sketch->hash += mix(ts_float_bits(value == 0 ? 0 : value) + UINT64_C(0x9e3779b97f4a7c15));
            if (!isfinite(value)) {
                sketch->broken++;
                continue;
            }
            squares += (double)value * (double)value;
            sum += (double)value;
            projection += sign ? (double)value : -(double)value;
        }
    }
    sketch->norm = sqrt(squares);
    sketch->sum = sketch->norm > 0 ? sum / sketch->norm : 0;
    sketch->projection = sketch->norm > 0 ? projection / sketch->norm : 0;
    return TS_OK;
}

typedef float floats __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t whole_numbers __attribute__((vector_size(LANES * sizeof(float))));

/* The sum of a triangle wave over numbers that are filled up with such as are NaN. What is added to turns and taken off
 * again leaves the nearest whole number; numbers beyond that, and what is none, add nothing. */
static double wave_over(const float *values, size_t count, float scale, float start)
{
    const float whole = 0x1.8p23f;
    floats sums = {0};
    double sum = 0;
    for (size_t i = 0; i < count; i += LANES) {
        floats turns, off;
        memcpy(&turns, values + i, sizeof turns);
        turns = turns * scale + start;
        off = turns - (turns + whole - whole);
        off = (floats)((whole_numbers)off & INT32_MAX);
        sums += (floats)((whole_numbers)(0.25f - off) & (off <= 0.5f));
    }
    for (size_t k = 0; k < LANES; k++)
        sum += (double)sums[k];
    return sum;
}

/* The waves are taken around the mean, so that norm weights, which are all near 1, differ in what they differ. */
static enum ts_status second_walk(const struct ts_tensor *tensor, struct ts_sketch *sketch, struct ts_error *error)
{
    unsigned components = ts_type_info(tensor->type)->components;
    double numbers = (double)tensor->count * components, mean = sketch->sum * sketch->norm / numbers;
    double spread = sqrt(fmax(sketch->norm * sketch->norm / numbers - mean * mean, 0));
    float values[2 * PIECE + LANES], scale[TS_SKETCH_WAVES], start[TS_SKETCH_WAVES];
    double sums[TS_SKETCH_WAVES] = {0};
    if (!(spread > 1e-6 * fabs(mean)) || !isfinite(1 / spread))
        return TS_OK;
    for (unsigned wave = 0; wave < TS_SKETCH_WAVES; wave++) {
        scale[wave] = (float)(frequency(wave) / spread);
        start[wave] = (float)(phase(wave) - mean * frequency(wave) / spread);
    }
    for (uint64_t at = 0; at < tensor->count; at += PIECE) {
        size_t count = tensor->count - at < PIECE ? (size_t)(tensor->count - at) : PIECE;
        if ((at & ((UINT64_C(1) << 22) - 1)) == 0 && atomic_load(&ts_cancelled))
            return ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
        TS_TRY(ts_tensor_read_f32(tensor, at, count, values, error));
        for (size_t k = 0; k < LANES; k++)
            values[count * components + k] = NAN;
        for (unsigned wave = 0; wave < TS_SKETCH_WAVES; wave++)
            sums[wave] += wave_over(values, count * components, scale[wave], start[wave]);
    }
    /* a triangle wave of height 1/4 has a root mean square of 1/4 / sqrt(3) */
    for (unsigned wave = 0; wave < TS_SKETCH_WAVES; wave++)
        sketch->waves[wave] = sums[wave] / sqrt(numbers) / (0.25 / sqrt(3));
    return TS_OK;
}

enum ts_status ts_sketch_make(const struct ts_tensor *tensor, struct ts_sketch *sketch, struct ts_error *error)
{
    memset(sketch, 0, sizeof *sketch);
    sketch->count = tensor->count;
    TS_TRY(first_walk(tensor, sketch, error));
    return second_walk(tensor, sketch, error);
}

double ts_sketch_distance(const struct ts_sketch *a, const struct ts_sketch *b)
{
    return ts_sketch_distance_below(a, b, INFINITY);
}

double ts_sketch_distance_below(const struct ts_sketch *a, const struct ts_sketch *b, double limit)
{
    double largest = fmax(a->norm, b->norm), distance;
    if (a->count != b->count || a->broken != b->broken)
        return 2;
    if (a->hash == b->hash)
        return 0;
    if (a->constant != b->constant)
        return 2;
    distance = largest > 0 ? fabs(a->norm - b->norm) / largest : 0;
    distance = fmax(distance, fabs(a->sum - b->sum) / fmax(1, fmax(fabs(a->sum), fabs(b->sum))));
    for (unsigned wave = 0; wave < TS_SKETCH_WAVES && distance < limit; wave++)
        distance = fmax(distance, fabs(a->waves[wave] - b->waves[wave]) / 4);
    return distance;
}
