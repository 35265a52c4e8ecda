/* Grid: values that came off a quantized store. A cache of keys and values in eight bits gives back numbers in the
 * run's own type, so their mantissas do not show it; but divided by a scale they are few numbers again. What such a
 * grid rounds off is no error of the operation before it. */
#ifndef TS_COMPARE_GRID_H
#define TS_COMPARE_GRID_H

#include <stddef.h>

/* RMS relative error that the grid explains which the values lie on; 0 when they lie on none. Looked for: e4m3 and
 * signed integers of 8 and 4 bits, with one scale per part of `size` numbers (its largest is the grid's end), and e4m3
 * with one scale for all. */
double ts_grid_error(const float *values, size_t parts, size_t size);

#endif
