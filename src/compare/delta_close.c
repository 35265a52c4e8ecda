#include "compare/delta_close.h"

#include <math.h>
#include <stdatomic.h>

#include "base/number.h"
#include "base/progress.h"
#include "compare/delta_kernel.h"
#include "compare/scene.h"
#include "tensor/mask.h"

#define NOWHERE UINT64_MAX

int ts_coarser_bits(const struct ts_pair *pair)
{
    int a = ts_type_info(pair->a.tensor->type)->mantissa_bits, b = ts_type_info(pair->b.tensor->type)->mantissa_bits;
    a = a < 0 ? 23 : a;
    b = b < 0 ? 23 : b;
    return a < b ? a : b;
}

/* Types without an infinity, or with so small a range that they saturate, mask with their lowest number. */
static double lowest_of(enum ts_type type)
{
    switch (type) {
    case TS_F8_E4M3:
        return -448;
    case TS_F8_E5M2:
    case TS_F8_E5M2FNUZ:
        return -57344;
    case TS_F8_E4M3FNUZ:
        return -240;
    default:
        return -(double)INFINITY;
    }
}

struct ts_masks ts_masks_of(const struct ts_pair *pair)
{
    return (struct ts_masks){.lowest_a = lowest_of(pair->a.tensor->type),
                             .lowest_b = lowest_of(pair->b.tensor->type),
                             .scores = pair->masked};
}

bool ts_is_mask(double value, double lowest)
{
    return value == lowest || ts_is_mask_number(value);
}

/* Exponent of the smallest step of a type, that of its subnormal numbers. */
static int least_exponent(enum ts_type type)
{
    switch (type) {
    case TS_F64:
    case TS_C128:
    case TS_F80:
        return -1074;
    case TS_F16:
    case TS_C32:
        return -24;
    case TS_BF16:
        return -133;
    case TS_F8_E4M3:
        return -9;
    case TS_F8_E5M2:
        return -16;
    case TS_F8_E4M3FNUZ:
        return -10;
    case TS_F8_E5M2FNUZ:
        return -17;
    default:
        return -149;
    }
}

struct ts_unit ts_unit_of(const struct ts_pair *pair)
{
    struct ts_unit unit = {.whole = ts_is_exact(pair)};
    for (int side = 0; side < 2; side++) {
        enum ts_type type = (side ? &pair->b : &pair->a)->tensor->type;
        int bits = ts_type_info(type)->mantissa_bits;
        unit.bits[side] = bits < 0 ? 23 : bits < 52 ? bits : 52;
        unit.least[side] = least_exponent(type);
    }
    unit.most_units = ldexp(1, 1 + (unit.bits[0] < unit.bits[1] ? unit.bits[0] : unit.bits[1]));
    return unit;
}

double ts_ulps(const struct ts_unit *unit, double a, double b)
{
    double larger = fabs(a) > fabs(b) ? fabs(a) : fabs(b);
    int exponent, step = -1074;
    if (a == b)
        return 0;
    if (unit->whole)
        return fabs(b - a);
    frexp(larger, &exponent); /* larger = m * 2^exponent with m in [0.5, 1) */
    for (int side = 0; side < 2; side++) {
        int of_side = exponent - 1 - unit->bits[side];
        of_side = of_side > unit->least[side] ? of_side : unit->least[side];
        step = of_side > step ? of_side : step;
    }
    return ldexp(fabs(b - a), -step);
}

struct close_look {
    double max_abs, max_rel, max_ulp, worst_a, worst_b;
    uint64_t worst;
};

static void look_at(struct close_look *look, const struct ts_unit *unit, double x, double y, uint64_t at)
{
    double distance = fabs(y - x);
    if (distance > look->max_abs) {
        look->max_abs = distance;
        look->worst = at;
        look->worst_a = x;
        look->worst_b = y;
    }
    if (x != 0 && distance > look->max_rel * fabs(x))
        look->max_rel = distance / fabs(x);
    ts_raise_ulps(unit, x, y, &look->max_ulp);
}

/* Elements [from, end), masks and what is not finite left out. */
static enum ts_status look_closely(const struct ts_pair *pair, uint64_t from, uint64_t end, struct close_look *look,
                                   struct ts_error *error)
{
    const unsigned per = ts_type_info(pair->a.tensor->type)->components;
    const struct ts_unit unit = ts_unit_of(pair);
    const struct ts_masks masks = ts_masks_of(pair);
    double x[2 * 256], y[2 * 256];
    while (from < end) {
        size_t now = end - from < 256 ? (size_t)(end - from) : 256;
        TS_TRY(ts_view_read_f64(&pair->a, from, now, x, error));
        TS_TRY(ts_view_read_f64(&pair->b, from, now, y, error));
        for (size_t i = 0; i < now * per; i++)
            if (isfinite(x[i]) && isfinite(y[i]) && (unit.whole || !ts_is_masked(&masks, x[i], y[i])))
                look_at(look, &unit, x[i], y[i], from + i / per);
        from += now;
    }
    return TS_OK;
}

static enum ts_status look_at_run(const struct ts_pair *pair, uint64_t from, struct close_look *look,
                                  struct ts_error *error)
{
    *look = (struct close_look){.max_abs = -1, .worst = NOWHERE};
    return look_closely(pair, from, pair->a.count - from < TS_DELTA_RUN ? pair->a.count : from + TS_DELTA_RUN, look,
                        error);
}

enum ts_status ts_find_largest(const struct ts_pair *pair, uint64_t worst_run, uint64_t steepest_run,
                               struct ts_delta *delta, struct ts_error *error)
{
    struct close_look look = {0};
    if (worst_run != NOWHERE) {
        TS_TRY(look_at_run(pair, worst_run, &look, error));
        delta->worst = look.worst;
        delta->worst_a = look.worst_a;
        delta->worst_b = look.worst_b;
        delta->max_ulp = look.max_ulp;
    }
    if (steepest_run != NOWHERE) {
        if (steepest_run != worst_run)
            TS_TRY(look_at_run(pair, steepest_run, &look, error));
        delta->max_rel = look.max_rel;
        delta->max_ulp = fmax(look.max_ulp, delta->max_ulp);
    }
    return TS_OK;
}

enum ts_status ts_delta_ulps(const struct ts_pair *pair, struct ts_delta *delta, struct ts_error *error)
{
    const uint64_t stretch = (uint64_t)1 << 20;
    struct close_look look = {.max_abs = -1};
    if (pair->problem || delta->exact || !delta->unequal)
        return TS_OK;
    for (uint64_t from = 0; from < pair->a.count; from += stretch) {
        const uint64_t end = pair->a.count - from < stretch ? pair->a.count : from + stretch;
        if (atomic_load(&ts_cancelled))
            return ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
        TS_TRY(look_closely(pair, from, end, &look, error));
        ts_view_forget(&pair->a, from, end - from);
        ts_view_forget(&pair->b, from, end - from);
    }
    delta->max_ulp = fmax(delta->max_ulp, look.max_ulp);
    return TS_OK;
}

#define F16_BITS 10

/* The sum of rounded numbers is on no grid, and yet no better than they are. */
static int coarsest_part(const struct ts_view *sum)
{
    int least = 23;
    for (size_t i = 0; i < sum->part_count; i++) {
        const int bits = ts_bits_in_use(&sum->parts[i]);
        least = bits < least ? bits : least;
    }
    return least;
}

int ts_bits_in_use(const struct ts_view *view)
{
    int declared = ts_type_info(view->tensor->type)->mantissa_bits;
    const unsigned parts = ts_type_info(view->tensor->type)->components;
    const size_t most = 128 / (parts ? parts : 1);
    struct ts_view stored = *view; /* 1 + w has more bits than w was rounded to */
    float values[1024];
    size_t count = 0;
    struct ts_error ignored;
    const int printed = view->tensor->printed_bits;
    int finest = printed ? printed : 23, found;
    stored.add = 0;
    stored.decay = false;
    stored.flags = TS_FLAGS_NONE;
    if (view->join == TS_JOIN_SUM)
        return coarsest_part(view);
    if (declared >= 0 && declared < F16_BITS) /* what numpy knows is f16: that is where others put bf16 as well */
        return declared;
    finest = declared >= 0 && declared < finest ? declared : finest;
    if (view->count < 4) /* 3.5 is a round number, and no bf16 for that */
        return finest;
    for (int run = 0; run < 8; run++) { /* eight places spread over the tensor */
        uint64_t first = view->count / 8 * (uint64_t)run;
        size_t now = view->count - first < most ? (size_t)(view->count - first) : most;
        if (parts < 1 || parts > 2 || ts_view_read_f32(&stored, first, now, values + count, &ignored) != TS_OK)
            return finest;
        count += now * parts;
        if (view->count <= most)
            break;
    }
    found = printed && printed == finest ? ts_printed_mantissa_bits(values, count, printed)
                                         : ts_mantissa_bits(values, count);
    return found < finest ? found : finest;
}
