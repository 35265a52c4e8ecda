/* Parts: files that count themselves in their names, "model-00002-of-00005.safetensors". */
#ifndef TS_READ_PARTS_H
#define TS_READ_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "io/folder.h"
#include "tensor/bundle.h"

struct ts_part {
    uint64_t number, of;   /* as they stand: some writers count from 0, most from 1 */
    unsigned start, width; /* the digits of the number in the path */
};

/* What the last such count in a path says. Five digits at least, as all writers have it: "step-3-of-10" is no part. */
bool ts_part_of(const char *path, struct ts_part *part);

/* Tells which parts are missing of sets that no index and no header counted: of members that nobody has taken. prefix:
 * the path of the folder, "" for the input itself. */
enum ts_status ts_parts_missing(const struct ts_folder *folder, const char *prefix, struct ts_bundle *bundle,
                                struct ts_error *error);

#endif
