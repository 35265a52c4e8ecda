/* Corners: tensors of which a print shows the first and the last entries of each long axis. */
#ifndef TS_READ_CORNERS_H
#define TS_READ_CORNERS_H

#include "base/error.h"
#include "tensor/bundle.h"

/* Says that the tensor holds only the corners of one of shape whole[0 .. rank): of axis i its first heads[i] entries
 * and, for the rest of its own length, the last ones. heads NULL: half of its length where it is shorter than the
 * whole. Does nothing when the shapes do not allow it (another rank, an axis that is longer, an odd length to halve),
 * or when nothing is missing; *partial says whether something is. */
enum ts_status ts_corners_set(struct ts_bundle *bundle, struct ts_tensor *tensor, const uint64_t *whole, unsigned rank,
                              const uint64_t *heads, bool *partial, struct ts_error *error);

#endif
