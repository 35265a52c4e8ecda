/* Owns the comparison of heads in two orders; see heads_order.h. */
#include "compare/heads_order.h"

#include <math.h>

#define WIDEST 512 /* numbers of a head that are looked at */
#define PLACES 6   /* of tokens, and of heads: spread over all */
/* Heads that have nothing to do with each other are alike by chance, about 1 / sqrt(size) of the whole. One order must
 * be this much ahead of the other. */
#define AHEAD 0.15

static double likeness(const float *x, const float *y, size_t count)
{
    double product = 0, of_x = 0, of_y = 0;
    for (size_t i = 0; i < count; i++) {
        product += (double)x[i] * (double)y[i];
        of_x += (double)x[i] * (double)x[i];
        of_y += (double)y[i] * (double)y[i];
    }
    return of_x > 0 && of_y > 0 ? fabs(product) / sqrt(of_x * of_y) : 0;
}

enum ts_heads_order ts_heads_order(const struct ts_view *matrix, const struct ts_view *tensor, uint64_t count,
                                   uint64_t size)
{
    const size_t width = size < WIDEST ? (size_t)size : WIDEST;
    const uint64_t places = count < PLACES ? count : PLACES;
    float here[WIDEST], straight[WIDEST], turned[WIDEST];
    double as_tokens = 0, as_heads = 0;
    size_t seen = 0;
    struct ts_error ignored;
    for (uint64_t k = 0; k < places * places; k++) {
        const uint64_t i = k / places * count / places, j = k % places * count / places;
        if (i == j) /* the same place in both */
            continue;
        if (ts_view_read_f32(tensor, (i * count + j) * size, width, here, &ignored) != TS_OK ||
            ts_view_read_f32(matrix, (i * count + j) * size, width, straight, &ignored) != TS_OK ||
            ts_view_read_f32(matrix, (j * count + i) * size, width, turned, &ignored) != TS_OK)
            return TS_HEADS_UNTOLD;
        as_tokens += likeness(here, straight, width);
        as_heads += likeness(here, turned, width);
        seen++;
    }
    if (!seen || !isfinite(as_tokens + as_heads) || fabs(as_tokens - as_heads) < AHEAD * (double)seen)
        return TS_HEADS_UNTOLD;
    return as_heads > as_tokens ? TS_HEADS_FIRST : TS_TOKENS_FIRST;
}
