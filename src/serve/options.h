/* Options: what the body of a run says, in the words of the comparison. */
#ifndef TS_SERVE_OPTIONS_H
#define TS_SERVE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"
#include "compare/comparison.h"

struct ts_run_options {
    struct ts_comparison_options compare;
    const char *map; /* JSON, for a file; NULL when there is none */
    size_t map_size;
    const char **order; /* names */
    size_t order_count;
};

/* Everything lives in the arena or in the text. */
enum ts_status ts_run_options_parse(const char *text, size_t size, struct ts_arena *arena,
                                    struct ts_run_options *options, struct ts_error *error);

#endif
