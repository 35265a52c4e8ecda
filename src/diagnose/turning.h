/* Turning: pairs of numbers that rotary embeddings turn, and the angles of a guess for any rows. Internal to
 * src/diagnose. */
#ifndef TS_DIAGNOSE_TURNING_H
#define TS_DIAGNOSE_TURNING_H

#include <complex.h>

#include "diagnose/formula.h"

/* Where the pairs of a head are, and how many of its numbers turn. */
struct ts_turned_pairs {
    size_t heads, inner; /* of the tensor; heads * inner = width */
    size_t group;
    bool interleaved;
    size_t start;  /* the numbers of a head before this one do not turn */
    bool gathered; /* neighbours go in, and come out as halves (interleaved is true then) */
};

static inline bool ts_turns_at(const struct ts_turned_pairs *pairing, size_t i)
{
    return i % pairing->inner >= pairing->start && i % pairing->inner < pairing->start + pairing->group;
}

/* How the angles of a guess follow for any row: from the reference's there, times a factor, with something added to
 * each and so many positions further on; from the position alone; from the reference's, and the position that the row
 * itself shows; or they are whatever the row shows, the same in all of its heads. */
enum ts_follows { TS_FROM_FREE, TS_FROM_PLACES, TS_FROM_REFERENCE, TS_FROM_UNWOUND, TS_FROM_POSITION };

struct ts_angles {
    enum ts_follows follows;
    double factor, constant, positions;
};

/* Columns of a tensor: from `first` on, or of a part of each head those `inner` that stand `stride` from the next. */
struct ts_turned_columns {
    size_t first, stride, inner;
};

static inline size_t ts_turned_column(const struct ts_turned_columns *columns, size_t i)
{
    return columns->first + (columns->stride ? i / columns->inner * columns->stride + i % columns->inner : i);
}

/* What turns other rows: [the reference's steps per pair, then those of the guess] are in the table. */
struct ts_turning {
    struct ts_turned_pairs own, pairing;
    struct ts_angles how;
    struct ts_turned_columns columns; /* of the input, in its tensor */
    double factor;
    double most;     /* TS_FROM_PLACES: positions that are tried on either side */
    bool placed;     /* tokens do not stand at their positions: those are read off the reference's turns, */
    double furthest; /* no further from their places than this */
};

/* The turns from one tensor to another, [rows, group / 2]. */
void ts_find_turns(const struct ts_actor *actor, const struct ts_turned_pairs *pairing, const float *from,
                   const float *to, double complex *turns);
void ts_turn_by(const struct ts_actor *actor, const struct ts_turned_pairs *pairing, const float *from,
                const double *angles, double *out);
/* Angle per position of each pair. Neighbours in the sequence show it without ambiguity up to half a turn; tokens
 * further apart then sharpen it. */
void ts_find_steps(const double complex *turns, const double *places, size_t rows, size_t pairs, double *steps);
/* By how many whole positions the turns of a row are ahead of these angles, no further than `most` either way and no
 * further back than two places before the first. */
double ts_find_place(const double complex *turns, const double *angles, const double *steps, size_t pairs, double place,
                     double most);
/* The predictor of a formula whose numbers are a struct ts_turning. */
bool ts_predict_turned(struct ts_case *the_case, const struct ts_formula *formula, double *out);
/* Of such a formula with TS_FROM_PLACES: how many tokens turn as others do, and which. */
bool ts_count_places(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                     struct ts_tally *tally);
/* "token 5", or "token 5 of sequence 1" of a batch, which the element at this flat index is of. */
void ts_turned_token_text(const struct ts_case *the_case, uint64_t place, uint64_t flat, char *out, size_t size);
const char *ts_tell_places(struct ts_case *the_case, const struct ts_formula *formula, const struct ts_tally *tally,
                           double *share);

#endif
