/* Owns opening and comparing two inputs. */
#include "cli/inputs.h"

#include <string.h>

#include "base/pool.h"
#include "cli/command.h"

bool compare_bundles(struct ts_bundle *a, struct ts_bundle *b, const struct ts_comparison_options *options,
                     struct ts_comparison *comparison)
{
    struct ts_pool *pool = ts_pool_new(0);
    struct ts_error error;
    enum ts_status status;
    if (pool) {
        status = ts_comparison_run(a, b, options, pool, comparison, &error);
    } else {
        ts_bundle_free(a);
        ts_bundle_free(b);
        status = ts_fail_memory(&error);
    }
    ts_pool_free(pool);
    if (status != TS_OK)
        tell_error(&error);
    return status == TS_OK;
}

bool compare_inputs(const char *const inputs[2], const struct ts_open_options *open,
                    const struct ts_comparison_options *options, struct ts_comparison *comparison)
{
    struct ts_bundle *bundles[2] = {NULL, NULL};
    struct ts_error error;
    bool opened = true;
    for (int i = 0; i < 2; i++)
        if (strcmp(inputs[i], "-") == 0) {
            fputs("tsleuth: tensors cannot be read from standard input; give a file (./- for one called \"-\")\n",
                  stderr);
            return false;
        }
    for (int i = 0; i < 2; i++) /* of two that cannot be read both are told */
        if (ts_open(inputs[i], open, &bundles[i], &error) != TS_OK) {
            tell_error(&error);
            opened = false;
            if (error.status == TS_ERR_CANCELLED)
                break;
        }
    if (opened)
        return compare_bundles(bundles[0], bundles[1], options, comparison);
    ts_bundle_free(bundles[0]);
    ts_bundle_free(bundles[1]);
    return false;
}
