/* Inspect: what the command gathered, for its text and its JSON form. */
#ifndef TS_CLI_INSPECT_H
#define TS_CLI_INSPECT_H

#include "base/buffer.h"
#include "check/check.h"
#include "cli/command.h"
#include "cli/summary.h"
#include "compare/stats.h"
#include "read/open.h"
#include "tensor/bundle.h"

#define HISTOGRAM_BINS 24

struct inspection {
    struct ts_bundle *bundle;
    struct ts_tensor **tensors; /* those that pass the filter, as sorted */
    size_t count;
    struct ts_stats *stats; /* one per tensors[], or NULL */
    struct ts_check *check; /* or NULL */
    struct totals totals;
    bool all; /* every metadata entry, nothing shortened */
};

/* The integrity check alone: what `tsleuth inspect X --check` does. */
int inspect_check(const char *path, const struct ts_open_options *open, const char *json);

bool inspect_text(const struct inspection *inspection);
bool inspect_json(const struct inspection *inspection, const char *path);

#endif
