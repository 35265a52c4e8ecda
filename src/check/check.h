/* Check: what an integrity check of one input finds.
 *
 * Looks at the descriptions (spans, promises of config.json, quantization groups, tied weights) and at the bytes
 * (non-finite, constant, half-filled, dead rows, copies). Each finding has an id that scripts may rely on:
 *
 *     unreadable        what the readers could not read: truncated, out of range, unknown
 *     noticed           what the readers found strange
 *     quantization      scales, biases or zero points that are missing, do not fit or belong to nothing
 *     sampled           a dump that holds only some elements
 *     overlap           tensors that share bytes of the file
 *     shared-storage    the same, on purpose
 *     tied-weights      embedding and head with the same bytes, or tied by config.json and different
 *     same-bytes        two names with the same bytes
 *     nan, inf          with the number and the first place
 *     zeros, constant   one value, or one bit pattern, everywhere
 *     half-filled       a stretch at one end, or regular stretches, that were not written
 *     dead-rows         rows of zeros
 *     padding-rows      the same at the end of a vocabulary
 *     config            a config.json that cannot be read
 *     missing-weight, unexpected-weight, shape      config.json (GGUF: block_count) against the file
 *     missing-shard     some of a set of numbered files
 *     experts           experts in a layout that is not compared with config.json
 *     gap               a layer, or a tensor of one layer, that its neighbours have */
#ifndef TS_CHECK_CHECK_H
#define TS_CHECK_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/pool.h"
#include "base/progress.h"
#include "compare/stats.h"
#include "tensor/bundle.h"

enum ts_severity {
    TS_NOTE,    /* worth knowing, no fault: tied weights */
    TS_WARNING, /* suspicious: constant buffers, dead rows */
    TS_FAULT    /* broken: truncated, NaN, missing weights */
};

struct ts_issue {
    const char *id; /* "nan", "constant", "missing-weight", "same-bytes" */
    enum ts_severity severity;
    const char *tensor; /* or NULL when it is about the input */
    const char *text;   /* one sentence with the numbers, without a full stop */
};

struct ts_check {
    struct ts_arena arena; /* texts */
    struct ts_issue *issues;
    size_t count, capacity;
    size_t faults, warnings; /* of them */
};

/* stats[i] belongs to bundle->tensors[i] (ts_stats_run over all of them). */
enum ts_status ts_check_run(struct ts_pool *pool, const struct ts_bundle *bundle, const struct ts_stats *stats,
                            struct ts_progress *progress, struct ts_check *check, struct ts_error *error);
void ts_check_release(struct ts_check *check);

#endif
