/* Layouts in flat memory. Internal to family_layout.c and the layout_*.c. */
#ifndef TS_DIAGNOSE_LAYOUT_H
#define TS_DIAGNOSE_LAYOUT_H

#include "diagnose/families.h"

/* The case holds some tokens of one long sequence that stand one after the other in the pair's own memory, so that
 * element [token, number] is at token * width + number of both sides. */
bool ts_layout_reads_memory(const struct ts_case *the_case);
/* Rows with a wrong pitch, read or written. prediction: scratch. */
void ts_layout_pitches(struct ts_case *the_case, double *prediction);
/* Four axes and more in another order. In layout_axes.c. */
void ts_layout_axes(struct ts_case *the_case, double *prediction);
/* Sequences of a batch, or batch and tokens, in each other's place. In layout_batch.c. */
void ts_layout_batch(struct ts_case *the_case, double *prediction);
/* Rows of a weight in another order than those of its bias. In layout_bias.c. */
void ts_layout_but_bias(struct ts_case *the_case, double *prediction);
/* Heads that are written with other strides. In layout_strides.c. */
void ts_layout_strides(struct ts_case *the_case, double *prediction);
/* The same values in any order whatever. In layout_values.c. */
void ts_layout_values(struct ts_case *the_case, double *prediction);

#endif
