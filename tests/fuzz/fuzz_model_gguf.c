/* Models in GGUF files: whatever the keys and tensors say, planning gives a run or a reason, and what was planned runs.
 */
#include "base/pool.h"
#include "common.h"
#include "model/model.h"
#include "read/readers.h"

/* A run takes time with the square of these. */
#define MAX_RUN 65536

static void try_model(struct ts_model *model, struct ts_pool *pool, size_t size)
{
    static const int64_t tokens[] = {0, 1, 0};
    struct ts_model_options options = {.cache = true, .allow_unused = true};
    struct ts_watcher watcher = {0};
    struct ts_error error;
    ts_error_clear(&error);
    if (ts_model_plan(model, &options, tokens, 3, pool, &watcher, NULL, &error) == TS_OK) {
        if (size <= MAX_RUN)
            (void)ts_model_run(model, &options, tokens, 3, pool, &watcher, &error);
    } else if (!error.message[0]) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ts_pool *pool;
    struct ts_input input = {.member = "fuzz"};
    struct ts_bundle *bundle = ts_bundle_new("fuzz");
    struct ts_model model;
    struct ts_error error;
    ts_error_clear(&error);
    if (!pool)
        pool = ts_pool_new(1);
    input.spool = ts_spool_new(TS_FUZZ_SPOOL_LIMIT);
    if (pool && bundle && input.spool && ts_source_copy(data, size, "fuzz", &input.source, &error) == TS_OK) {
        if (ts_reader_gguf.read(&input, bundle, &error) == TS_OK) {
            bundle->format = "gguf v3";
            if (ts_model_of(bundle, &model, &error) == TS_OK) {
                try_model(&model, pool, size);
                ts_model_release(&model);
            } else if (!error.message[0]) {
                abort();
            }
            bundle = NULL;
        }
        ts_source_release(input.source);
    }
    ts_bundle_free(bundle);
    if (input.spool)
        ts_spool_free(input.spool);
    return 0;
}
