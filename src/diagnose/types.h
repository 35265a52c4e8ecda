/* What the files of the types family share. Internal to them. */
#ifndef TS_DIAGNOSE_TYPES_H
#define TS_DIAGNOSE_TYPES_H

#include "diagnose/family.h"

/* Values on grids of even steps. */
void ts_propose_quantized(struct ts_case *the_case);
/* Bits that are read as another type. prediction: scratch. */
void ts_propose_confused(struct ts_case *the_case, double *prediction);

/* Nearly all that is wrong is right with its bytes in reverse order, whatever the numbers look like. */
bool ts_bits_are_explained(const struct ts_case *the_case);

#endif
