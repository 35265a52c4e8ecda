/* Grids of small floats: internal to src/diagnose. */
#ifndef TS_DIAGNOSE_FLOAT_GRID_H
#define TS_DIAGNOSE_FLOAT_GRID_H

#include "diagnose/families.h"

/* Proposes "quantization" where what was found lies on the levels of an 8- or 4-bit float under some scale. */
void ts_propose_float_grid(struct ts_case *the_case);

#endif
