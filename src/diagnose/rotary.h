/* What the reference turns, and how: the input, the pairs, the angles and the positions of each row. Internal to
 * src/diagnose. */
#ifndef TS_DIAGNOSE_ROTARY_H
#define TS_DIAGNOSE_ROTARY_H

#include "diagnose/turning.h"

struct ts_rotary {
    struct ts_case *the_case;
    const struct ts_actor *input;
    struct ts_turned_columns columns; /* of input, in their tensor */
    struct ts_actor slice;          /* what input points to when it is a part of a fused projection; owns its values */
    struct ts_turned_pairs pairing; /* the reference's */
    double *angles;                 /* the reference's: [rows, group / 2] */
    double *steps;                  /* per pair: its angle per position, in the reference */
    double *places;                 /* position of each row, */
    bool placed;                    /* which may not be where it stands */
    double base;                    /* theta that the reference's angles fit, 0 when they fit none */
    float *turned;                  /* the candidate's input, times what the reference multiplies it with */
};

/* Finds rotary->input, the pairing and the angles. turns and scratch have room for the case. False when the reference
 * turns nothing that is known. */
bool ts_rotary_find_reference(struct ts_rotary *rotary, double complex *turns, double *scratch);
/* Makes rotary->input what the case's operation takes: its input, or a part of that. False without memory. */
bool ts_rotary_take_input(struct ts_rotary *rotary);
/* Positions, steps per position and base of the reference's angles. */
void ts_rotary_study_reference(struct ts_rotary *rotary, double complex *turns);
void ts_rotary_release(struct ts_rotary *rotary);

/* The base whose table fits best, by the turns of rotary->places. */
double ts_rotary_find_base(const struct ts_rotary *rotary, const double complex *turns, size_t pairs);
/* Where neighbours turn in pairs, pairs that do not turn look as if they had an angle of zero. How many numbers of a
 * head turn: those behind are what went in, to the last bit, and these angles would have moved them; or more than these
 * angles are for have moved. */
size_t ts_rotary_numbers(const struct ts_rotary *rotary, const float *from, const float *to, int bits,
                         const double *angles, double base);
/* Relative error of turning `from` by the angles against `to`. */
double ts_turned_error(const struct ts_actor *actor, const struct ts_turned_pairs *pairing, const float *from,
                       const double *angles, const float *to, double *scratch);
void ts_angles_of(const double complex *turns, size_t count, double *angles);

#endif
