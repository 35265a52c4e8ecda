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
};

/* How the angles of a guess follow for any row: from the reference's there, times a factor, with something added to
 * each and so many positions further on; or from the position alone. */
enum ts_follows { TS_FROM_NOTHING, TS_FROM_REFERENCE, TS_FROM_UNWOUND, TS_FROM_POSITION };

struct ts_angles {
    enum ts_follows follows;
    double factor, constant, positions;
};

/* What turns other rows: [the reference's steps per pair, then those of the guess] are in the table. */
struct ts_turning {
    struct ts_turned_pairs own, pairing;
    struct ts_angles how;
    size_t offset; /* of the input's columns in its tensor */
    double factor;
};

/* The turns from one tensor to another, [rows, group / 2]. */
void ts_find_turns(const struct ts_actor *actor, const struct ts_turned_pairs *pairing, const float *from,
                   const float *to, double complex *turns);
void ts_turn_by(const struct ts_actor *actor, const struct ts_turned_pairs *pairing, const float *from,
                const double *angles, double *out);
/* The predictor of a formula whose numbers are a struct ts_turning. */
bool ts_predict_turned(struct ts_case *the_case, const struct ts_formula *formula, double *out);

#endif
