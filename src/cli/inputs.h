/* Inputs: a reference and a candidate, opened and compared. Shared by the commands that take two. */
#ifndef TS_CLI_INPUTS_H
#define TS_CLI_INPUTS_H

#include <stdbool.h>

#include "compare/comparison.h"
#include "read/open.h"

/* Both bundles are taken over, whatever comes of it. */
bool compare_bundles(struct ts_bundle *a, struct ts_bundle *b, const struct ts_comparison_options *options,
                     struct ts_comparison *comparison);
/* False after telling what is wrong; else the caller releases the comparison. */
bool compare_inputs(const char *const inputs[2], const struct ts_open_options *open,
                    const struct ts_comparison_options *options, struct ts_comparison *comparison);

#endif
