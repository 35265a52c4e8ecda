#include "compare/threeway.h"

#include <math.h>
#include <stdlib.h>

#include "read/open.h"

/* The truth against one side: errors by the side's tensor. */
struct against {
    struct ts_pairing pairing;
    struct ts_delta *deltas;
};

static enum ts_status measure(const struct ts_bundle *truth, const struct ts_bundle *side,
                              const struct ts_comparison_options *options, struct ts_pool *pool,
                              struct against *against, struct ts_error *error)
{
    TS_TRY(ts_pair_run(truth, side, &options->pair, pool, NULL, &against->pairing, error));
    ts_set_complex_aside(&against->pairing);
    against->deltas = calloc(against->pairing.count + 1, sizeof *against->deltas);
    if (!against->deltas)
        return ts_fail_memory(error);
    return ts_delta_run(pool, against->pairing.pairs, against->pairing.count, &options->delta, against->deltas, NULL,
                        error);
}

static const struct ts_delta *delta_of(const struct against *against, const struct ts_tensor *tensor, size_t hint)
{
    /* all three are in one order, so the place is nearly always the same */
    for (size_t step = 0; step < against->pairing.count; step++) {
        size_t i = (hint + step) % against->pairing.count;
        if (against->pairing.pairs[i].b.tensor == tensor)
            return against->pairing.pairs[i].problem ? NULL : &against->deltas[i];
    }
    return NULL;
}

/* The most that one rounding of the candidate does to an element of the truth: half a step at the largest one. */
static double largest_rounding(const struct ts_delta *theirs, int bits)
{
    return ldexp(fmax(fabs(theirs->a.min), fabs(theirs->a.max)), -bits - 1);
}

/* Tells how many pairs it judged. */
static size_t judge(struct ts_comparison *comparison, const struct against *a, const struct against *b)
{
    struct ts_judgement *judgement = &comparison->judgement;
    size_t judged = 0;
    for (size_t i = 0; i < comparison->pairing.count; i++) {
        const struct ts_pair *pair = &comparison->pairing.pairs[i];
        struct ts_verdict *verdict = &judgement->verdicts[i];
        const struct ts_delta *own = pair->problem ? NULL : delta_of(a, pair->a.tensor, i);
        const struct ts_delta *theirs = pair->problem ? NULL : delta_of(b, pair->b.tensor, i);
        double floor, most, l2, worst;
        int bits;
        if (!own || !theirs)
            continue;
        judged++;
        /* a reference that is exact would make any error infinite: one rounding of the candidate is always granted */
        bits = theirs->precision_b < 23 ? theirs->precision_b : 23;
        floor = ts_rounding(bits);
        most = largest_rounding(theirs, bits);
        l2 = theirs->rel_l2 / (own->rel_l2 > floor ? own->rel_l2 : floor);
        worst = theirs->max_abs > 0 ? theirs->max_abs / fmax(own->max_abs, most) : 0;
        verdict->three_ways = true;
        verdict->over_own[0] = l2;
        verdict->over_own[1] = worst;
        if (l2 > TS_THREEWAY_L2 || worst > TS_THREEWAY_MAX || theirs->non_finite_mismatch) {
            verdict->judged = TS_JUDGED_DIFFERS;
            verdict->made_here = true;
            verdict->why =
                ts_arena_printf(&judgement->arena,
                                "against the high-precision run its error is %.3g times the reference's own, its "
                                "worst element %.3g times",
                                l2, worst);
        } else {
            verdict->judged = comparison->deltas[i].unequal ? TS_JUDGED_NOISE : TS_JUDGED_OK;
            verdict->made_here = false;
            verdict->why = ts_arena_printf(
                &judgement->arena,
                "against the high-precision run it errs %.3g times as much as the reference, its worst element %.3g "
                "times",
                l2, worst);
        }
    }
    return judged;
}

/* What the third run does not hold keeps the verdict of the judge, and that has to be said. */
static void tell_gaps(struct ts_comparison *comparison, const char *path, size_t judged)
{
    const size_t count = comparison->pairing.count, most = sizeof comparison->doubts / sizeof *comparison->doubts;
    const char *text;
    if (judged == count || comparison->doubt_count >= most)
        return;
    text = judged ? ts_arena_printf(&comparison->arena,
                                    "the high-precision run \"%s\" holds %zu of the %zu pairs: the others are judged "
                                    "without it",
                                    path, judged, count)
                  : ts_arena_printf(&comparison->arena,
                                    "the high-precision run \"%s\" has no tensor in common with both: nothing was "
                                    "judged by it",
                                    path);
    if (text)
        comparison->doubts[comparison->doubt_count++] = text;
}

enum ts_status ts_threeway_judge(struct ts_comparison *comparison, const char *path,
                                 const struct ts_comparison_options *options, struct ts_pool *pool,
                                 struct ts_error *error)
{
    struct ts_bundle *truth;
    struct against a = {0}, b = {0};
    enum ts_status status;
    TS_TRY(ts_open(path, NULL, &truth, error));
    status = measure(truth, comparison->a, options, pool, &a, error);
    if (status == TS_OK)
        status = measure(truth, comparison->b, options, pool, &b, error);
    if (status == TS_OK)
        tell_gaps(comparison, path, judge(comparison, &a, &b));
    ts_pairing_release(&a.pairing);
    ts_pairing_release(&b.pairing);
    free(a.deltas);
    free(b.deltas);
    ts_bundle_free(truth);
    return status;
}
