#include "pair/misread.h"

#include <math.h>

#include "base/ordered.h"

/* Elements that are read as another type. They are the same up to what bf16 and some error make of them; small ones
 * among larger ones carry the error of those, and some are far off. As a wrong type every second one may be right. */
#define LOOKED_AT  512
#define SAME_VALUE 0.03
#define SAME_SHARE 0.75

static const enum ts_type types[] = {TS_F32, TS_F16, TS_BF16, TS_F64};

/* How far apart the sizes of numbers are, in powers of two; of those that are finite and not zero. */
static double spread_of(const double *values, size_t count)
{
    double sum = 0, squares = 0;
    size_t told = 0;
    for (size_t i = 0; i < count; i++) {
        int exponent;
        if (!isfinite(values[i]) || values[i] == 0)
            continue;
        (void)frexp(values[i], &exponent);
        sum += exponent;
        squares += (double)exponent * exponent;
        told++;
    }
    return told ? squares / (double)told - sum / (double)told * (sum / (double)told) : 0;
}

/* The median size of numbers that are finite and not zero; 0 when they are too few to tell anything. */
static double median_size(const double *values, size_t count)
{
    double sizes[LOOKED_AT];
    size_t told = 0;
    for (size_t i = 0; i < count; i++)
        if (isfinite(values[i]) && values[i] != 0)
            sizes[told++] = fabs(values[i]);
    if (told < LOOKED_AT / 8)
        return 0;
    return ts_nth(sizes, told, told / 2);
}

/* Most of them, and most of those that are not zero, which unrelated bits are not. */
static bool are_near(const double *values, const double *expected, size_t count)
{
    const double median = median_size(expected, count);
    size_t told[2] = {0}, near[2] = {0}; /* zeros, others */
    for (size_t i = 0; i < count; i++) {
        const bool other = expected[i] != 0;
        if (!isfinite(expected[i]))
            continue;
        told[other]++;
        near[other] += fabs(values[i] - expected[i]) <= SAME_VALUE * fmax(fabs(expected[i]), median);
    }
    return median > 0 && (double)near[1] >= SAME_SHARE * (double)told[1] &&
           (double)(near[0] + near[1]) >= SAME_SHARE * (double)(told[0] + told[1]);
}

/* Whether the first elements are the same when the bytes of one tensor are read as another type. Bits that are read as
 * a wrong type have sizes all over the place, or at least not less so than those that are right: that tells on which
 * side the mistake is. */
static bool is_same_read_as(const struct ts_tensor *tensor, enum ts_type type, const struct ts_tensor *other)
{
    double values[LOOKED_AT], expected[LOOKED_AT];
    struct ts_tensor read = *tensor;
    struct ts_error ignored;
    uint64_t length = tensor->bytes / ts_type_info(type)->block_bytes;
    size_t count, own;
    read.type = type;
    read.rank = 1;
    read.shape = &length;
    read.strides = NULL;
    if (length < LOOKED_AT / 8 || ts_tensor_finish(&read, &ignored) != TS_OK)
        return false;
    count = length < other->count ? (size_t)(length < LOOKED_AT ? length : LOOKED_AT)
                                  : (size_t)(other->count < LOOKED_AT ? other->count : LOOKED_AT);
    own = count < tensor->count ? count : (size_t)tensor->count;
    return ts_tensor_read_f64(other, 0, count, expected, &ignored) == TS_OK &&
           ts_tensor_read_f64(tensor, 0, own, values, &ignored) == TS_OK &&
           spread_of(values, own) >= spread_of(expected, count) / 2 &&
           ts_tensor_read_f64(&read, 0, count, values, &ignored) == TS_OK && are_near(values, expected, count);
}

static bool has_such_bytes(const struct ts_tensor *tensor, const struct ts_tensor *other)
{
    bool any = false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        any = any || tensor->type == types[i];
    return any && !tensor->swapped && !tensor->parsed && !tensor->sampled && ts_tensor_is_contiguous(tensor) &&
           ts_type_info(other->type)->components == 1;
}

static bool find_type(const struct ts_tensor *tensor, const struct ts_tensor *other, bool whole, enum ts_type *type)
{
    const unsigned width = ts_type_info(tensor->type)->block_bytes;
    if (!has_such_bytes(tensor, other))
        return false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const unsigned other_width = ts_type_info(types[i])->block_bytes;
        *type = types[i];
        if (other_width != width && (!whole || tensor->bytes / other_width == other->count) &&
            is_same_read_as(tensor, *type, other))
            return true;
    }
    return false;
}

bool ts_misread(const struct ts_tensor *tensor, const struct ts_tensor *other, enum ts_type *type)
{
    return find_type(tensor, other, false, type);
}

bool ts_misread_whole(const struct ts_tensor *tensor, const struct ts_tensor *other, enum ts_type *type)
{
    return find_type(tensor, other, true, type);
}
