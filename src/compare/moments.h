/* Moments: count, mean and squared deviation of numbers that arrive in pieces, joined by Chan's rule, which does not
 * cancel when the mean is large against the spread. */
#ifndef TS_COMPARE_MOMENTS_H
#define TS_COMPARE_MOMENTS_H

#include <math.h>
#include <stdint.h>

struct ts_moments {
    uint64_t count;
    double mean, deviation; /* sum of squared distances from mean */
    double squares;         /* sum of squares */
};

static inline void ts_moments_join(struct ts_moments *all, const struct ts_moments *more)
{
    double total = (double)all->count, n = (double)more->count, delta = more->mean - all->mean;
    if (!more->count)
        return;
    all->deviation += more->deviation + delta * delta * (total * n / (total + n));
    all->mean += delta * (n / (total + n));
    all->squares += more->squares;
    all->count += more->count;
}

static inline double ts_moments_std(const struct ts_moments *all)
{
    return all->count ? sqrt(all->deviation / (double)all->count) : (double)NAN;
}

#endif
