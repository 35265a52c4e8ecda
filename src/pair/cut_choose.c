/* Owns the choice between cuts: the one under which the values of most parts agree, and whether another does as well.
 */
#include <math.h>
#include <string.h>

#include "pair/cut.h"

#define CHOOSE_RUNS 32
#define ALL_RUNS    ((unsigned)1 << 18) /* four million elements */
/* Another cut that errs no more than this times as much fits as well. */
#define AS_WELL 1.5
/* And one that errs less, but not by this factor, is no better. */
#define PLAINER 1.1

enum ts_status ts_cut_lay(const struct ts_cut_job *job, const struct ts_cut *cut, int turned, uint64_t heads,
                          struct ts_arena *arena, struct ts_view *piece, struct ts_view *other,
                          struct ts_alignment *out, bool *fits, struct ts_error *error)
{
    struct ts_align_hints hints = {.weights = job->weights};
    *out = (struct ts_alignment){.recipe = ""};
    *fits = !(turned == 1 && !ts_layout_turn_rows(piece, heads, arena, piece)) &&
            !(turned == 2 && !ts_layout_turn_rows(other, heads, arena, other));
    if (!*fits ||
        (piece->rank == other->rank && memcmp(piece->shape, other->shape, piece->rank * sizeof *piece->shape) == 0))
        return TS_OK;
    /* joined across, any shape could be laid against any other */
    *fits = job->shard_count == 1 || cut->join == ts_cut_axis(job);
    if (!*fits)
        return TS_OK;
    TS_TRY(ts_align(job->fused_is_b ? other : piece, job->fused_is_b ? piece : other, &hints, arena, out, error));
    *fits = !out->guess && !out->problem;
    *piece = job->fused_is_b ? out->b : out->a;
    *other = job->fused_is_b ? out->a : out->b;
    return TS_OK;
}

/* Where nobody says how many heads there are, many may be tried. Whatever their size, the first row of a head stays the
 * first: where it is another one, no turn helps. */
static enum ts_status first_rows_agree(const struct ts_view *piece, const struct ts_view *other, struct ts_arena *arena,
                                       bool *agree, struct ts_error *error)
{
    struct ts_agreement agreement;
    struct ts_view rows[2];
    *agree = piece->rank == 2 && ts_view_same_shape(piece, other) &&
             ts_view_slice(piece, 0, 0, 1, 1, arena, &rows[0]) && ts_view_slice(other, 0, 0, 1, 1, arena, &rows[1]);
    if (!*agree)
        return TS_OK;
    TS_TRY(ts_agree(&rows[0], &rows[1], CHOOSE_RUNS, &agreement, error));
    *agree = agreement.error < TS_SAME_TENSOR;
    return TS_OK;
}

enum ts_status ts_cut_try(const struct ts_cut_job *job, const struct ts_cut *cut, size_t part, unsigned runs,
                          struct ts_cut_trial *trial, struct ts_error *error)
{
    const bool turns = part < 2 && job->weights && job->count == 3;
    const bool known = turns && ts_layout_heads(job->pairer, job->kinds[part]);
    uint64_t heads[TS_LIKELY_HEADS];
    size_t likely = 0;
    enum ts_status status = TS_OK;
    *trial = (struct ts_cut_trial){.error = INFINITY};
    for (size_t turn = 0; turn < 1 + 2 * likely || !turn; turn++) {
        const uint64_t of = turn ? heads[(turn - 1) / 2] : 0;
        const int turned = turn ? 1 + (int)((turn - 1) % 2) : 0;
        struct ts_arena arena;
        struct ts_view piece, other;
        struct ts_agreement agreement;
        struct ts_alignment alignment;
        bool fits, worth;
        ts_arena_init(&arena, (size_t)64 << 20);
        fits = ts_cut_out(job, cut, part, &arena, &piece, &other);
        worth = fits && !turn && turns;
        if (worth && !known)
            status = first_rows_agree(&piece, &other, &arena, &worth, error);
        if (worth)
            likely = ts_layout_likely_heads(job->pairer, job->kinds[part], other.rank ? other.shape[0] : 0, heads);
        if (status == TS_OK && fits)
            status = ts_cut_lay(job, cut, turned, of, &arena, &piece, &other, &alignment, &fits, error);
        if (status == TS_OK && fits)
            status = ts_agree(&piece, &other, runs, &agreement, error);
        if (status == TS_OK && fits && agreement.error < trial->error) {
            trial->error = agreement.error;
            trial->turned = turned;
            trial->heads = of;
        }
        ts_arena_release(&arena);
        TS_TRY(status);
        if (!turn && !known && trial->error < TS_SAME_TENSOR) /* nobody says how many heads there are, or need to be */
            break;
    }
    return TS_OK;
}

static bool better(const struct ts_cut_score *one, const struct ts_cut_score *other)
{
    if (one->agreeing != other->agreeing)
        return one->agreeing > other->agreeing;
    if (!one->agreeing)
        return one->possible && !other->possible;
    return PLAINER * one->error + 1e-12 < other->error; /* the plainer ones come first */
}

static enum ts_status try_cut(const struct ts_cut_job *job, const struct ts_cut *cut, unsigned runs,
                              struct ts_cut_score *score, struct ts_error *error)
{
    *score = (struct ts_cut_score){.cut = *cut, .possible = true};
    for (size_t part = 0; part < job->count; part++) {
        struct ts_cut_trial trial;
        TS_TRY(ts_cut_try(job, cut, part, runs, &trial, error));
        score->possible = score->possible && isfinite(trial.error);
        if (trial.error < TS_SAME_TENSOR) {
            score->agreeing++;
            score->error = trial.error > score->error ? trial.error : score->error;
        }
    }
    return TS_OK;
}

/* The two cuts take the same elements for every part. */
static bool same_cuts(const struct ts_cut_job *job, const struct ts_cut *one, const struct ts_cut *other)
{
    struct ts_arena arena;
    bool same = true;
    ts_arena_init(&arena, (size_t)64 << 20);
    for (size_t part = 0; part < job->count && same; part++) {
        struct ts_view left, right, aside;
        same = ts_cut_out(job, one, part, &arena, &left, &aside) &&
               ts_cut_out(job, other, part, &arena, &right, &aside) && left.count == right.count;
        for (uint64_t i = 0; i < 64 && same; i++) {
            uint64_t at = left.count < 64 ? i % left.count : i * (left.count / 64) + i * 7919 % (left.count / 64),
                     index, its;
            same = ts_pair_origin(&left, at, &index) == ts_pair_origin(&right, at, &its) && index == its;
        }
    }
    ts_arena_release(&arena);
    return same;
}

enum ts_status ts_cut_choose(struct ts_cut_job *job, struct ts_cut_score *best, bool *ambiguous, struct ts_error *error)
{
    struct ts_cut_score list[8], now;
    struct ts_cut cut;
    size_t count = 0;
    *best = (struct ts_cut_score){0};
    *ambiguous = false;
    for (int pass = 0; pass < 2 && best->agreeing < job->count; pass++) {
        job->any_heads = pass && (job->count == 2 || !ts_layout_heads(job->pairer, "attn_k"));
        for (size_t number = 0; ts_cut_next(job, &number, &cut) && (!pass || job->any_heads);) {
            TS_TRY(try_cut(job, &cut, CHOOSE_RUNS, &now, error));
            if (now.agreeing == job->count && count < sizeof list / sizeof *list)
                list[count++] = now;
            if (better(&now, best))
                *best = now;
        }
    }
    /* what fits as well on the sample is looked at in full: cuts may differ in a few places only */
    for (size_t i = 0; i < count && best->agreeing == job->count; i++) {
        struct ts_cut_score full;
        if (list[i].error > AS_WELL * best->error + 1e-12 || same_cuts(job, &list[i].cut, &best->cut))
            continue;
        TS_TRY(try_cut(job, &best->cut, ALL_RUNS, best, error));
        TS_TRY(try_cut(job, &list[i].cut, ALL_RUNS, &full, error));
        if (better(&full, best)) {
            *ambiguous = best->agreeing == job->count && best->error <= AS_WELL * full.error + 1e-12;
            *best = full;
        } else if (full.agreeing == job->count && full.error <= AS_WELL * best->error + 1e-12) {
            *ambiguous = true;
        }
    }
    return TS_OK;
}
