#include "compare/threeway.h"

#include <math.h>
#include <stdlib.h>

#include "base/table.h"
#include "read/open.h"

/* The truth against one side: errors by the side's tensor. */
struct against {
    struct ts_pairing pairing;
    struct ts_delta *deltas;
    struct ts_table table; /* names of the side's tensors: the first pair of each */
    size_t *next;          /* the next pair of the same name, or SIZE_MAX */
};

static enum ts_status measure(const struct ts_bundle *truth, const struct ts_bundle *side,
                              const struct ts_pair_options *pairs, const struct ts_delta_options *options,
                              struct ts_pool *pool, struct against *against, struct ts_error *error)
{
    struct ts_pairing *pairing = &against->pairing;
    TS_TRY(ts_pair_run(truth, side, pairs, pool, NULL, pairing, error));
    ts_set_complex_aside(pairing);
    against->deltas = calloc(pairing->count + 1, sizeof *against->deltas);
    against->next = calloc(pairing->count + 1, sizeof *against->next);
    if (!against->deltas || !against->next || !ts_table_init(&against->table, pairing->count))
        return ts_fail_memory(error);
    for (size_t i = pairing->count; i-- > 0;) {
        size_t first = i;
        against->next[i] = SIZE_MAX;
        if (ts_table_put(&against->table, pairing->pairs[i].b.tensor->name, i, &first))
            continue;
        against->next[i] = against->next[first];
        against->next[first] = i;
    }
    return ts_delta_run(pool, pairing->pairs, pairing->count, options, against->deltas, NULL, error);
}

/* Complex numbers that are read as real ones are another tensor at the same bytes. */
static bool same_tensor(const struct ts_tensor *one, const struct ts_tensor *other)
{
    return one == other || (one->name == other->name && one->source == other->source && one->offset == other->offset);
}

/* The first pair with that tensor from `at` on, or SIZE_MAX. */
static size_t find(const struct against *against, const struct ts_tensor *tensor, size_t at)
{
    while (at != SIZE_MAX &&
           (against->pairing.pairs[at].problem || !same_tensor(against->pairing.pairs[at].b.tensor, tensor)))
        at = against->next[at];
    return at;
}

/* The most that one rounding of the candidate does to an element of the truth: half a step at the largest one. */
static double largest_rounding(const struct ts_delta *theirs, int bits)
{
    return ldexp(fmax(fabs(theirs->a.min), fabs(theirs->a.max)), -bits - 1);
}

/* Raises the ratios to those of this part. */
static void weigh(const struct ts_delta *own, const struct ts_delta *theirs, double *l2, double *worst, bool *broken)
{
    /* a reference that is exact would make any error infinite: one rounding of the candidate is always granted */
    const int bits = theirs->precision_b < 23 ? theirs->precision_b : 23;
    *l2 = fmax(*l2, theirs->rel_l2 / fmax(own->rel_l2, ts_rounding(bits)));
    if (theirs->max_abs > 0)
        *worst = fmax(*worst, theirs->max_abs / fmax(own->max_abs, largest_rounding(theirs, bits)));
    *broken = *broken || theirs->non_finite_mismatch;
}

/* Tells how many pairs it judged. Where the truth holds in several tensors what both sides hold in one, or the other
 * way round, each side has several pairs: those with the same tensor of the truth belong together. */
static size_t judge(struct ts_comparison *comparison, const struct against *a, const struct against *b)
{
    struct ts_judgement *judgement = &comparison->judgement;
    size_t judged = 0;
    for (size_t i = 0; i < comparison->pairing.count; i++) {
        const struct ts_pair *pair = &comparison->pairing.pairs[i];
        struct ts_verdict *verdict = &judgement->verdicts[i];
        double l2 = 0, worst = 0;
        bool broken = false, any = false;
        size_t own = pair->problem ? SIZE_MAX : find(a, pair->a.tensor, ts_table_get(&a->table, pair->a.tensor->name));
        for (; own != SIZE_MAX; own = find(a, pair->a.tensor, a->next[own])) {
            size_t theirs = find(b, pair->b.tensor, ts_table_get(&b->table, pair->b.tensor->name));
            for (; theirs != SIZE_MAX; theirs = find(b, pair->b.tensor, b->next[theirs])) {
                if (!same_tensor(a->pairing.pairs[own].a.tensor, b->pairing.pairs[theirs].a.tensor))
                    continue;
                weigh(&a->deltas[own], &b->deltas[theirs], &l2, &worst, &broken);
                any = true;
            }
        }
        if (!any)
            continue;
        judged++;
        verdict->three_ways = true;
        verdict->over_own[0] = l2;
        verdict->over_own[1] = worst;
        if (l2 > TS_THREEWAY_L2 || worst > TS_THREEWAY_MAX || broken) {
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
                "against the high-precision run its error is %.3g times the reference's own, its worst element %.3g "
                "times",
                l2, worst);
        }
    }
    return judged;
}

/* How near the limits the candidate comes, and where: what was judged this way looks like any other verdict. */
static void tell_ratios(struct ts_comparison *comparison)
{
    struct ts_judgement *judgement = &comparison->judgement;
    size_t most = SIZE_MAX;
    double worst = 0;
    for (size_t i = 0; i < comparison->pairing.count; i++) {
        const struct ts_verdict *verdict = &judgement->verdicts[i];
        if (!verdict->three_ways)
            continue;
        most = most == SIZE_MAX || verdict->over_own[0] > judgement->verdicts[most].over_own[0] ? i : most;
        worst = fmax(worst, verdict->over_own[1]);
    }
    if (most == SIZE_MAX || judgement->note_count >= sizeof judgement->notes / sizeof *judgement->notes)
        return;
    judgement->notes[judgement->note_count] = ts_arena_printf(
        &comparison->arena,
        "against the high-precision run the candidate's error is up to %.3g times the reference's own (\"%s\"), its "
        "worst element up to %.3g times; %g and %g times are allowed",
        judgement->verdicts[most].over_own[0], comparison->pairing.pairs[most].name, worst, TS_THREEWAY_L2,
        TS_THREEWAY_MAX);
    judgement->note_count += judgement->notes[judgement->note_count] != NULL;
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
    /* what was said of names is about those of the candidate beside the reference's */
    struct ts_pair_options plain = options->pair, given = options->pair;
    plain.map_file = NULL;
    plain.renames = NULL;
    plain.layer_offset_given = false;
    TS_TRY(ts_open(path, NULL, &truth, error));
    status = measure(truth, comparison->a, &plain, &options->delta, pool, &a, error);
    given.layer_offset_given = given.layer_offset_given || comparison->pairing.layer_offset != 0;
    given.layer_offset = a.pairing.layer_offset + comparison->pairing.layer_offset;
    if (status == TS_OK)
        status = measure(truth, comparison->b, &given, &options->delta, pool, &b, error);
    if (status == TS_OK) {
        tell_gaps(comparison, path, judge(comparison, &a, &b));
        tell_ratios(comparison);
    }
    ts_pairing_release(&a.pairing);
    ts_pairing_release(&b.pairing);
    free(a.deltas);
    free(b.deltas);
    free(a.next);
    free(b.next);
    ts_table_release(&a.table);
    ts_table_release(&b.table);
    ts_bundle_free(truth);
    return status;
}
