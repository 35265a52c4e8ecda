/* The integrity check: bytes up to the first NUL are the config.json, the rest is a file for the reader that bids most,
 * so both what is promised and what is there come from the fuzzer. */
#include "base/pool.h"
#include "check/check.h"
#include "common.h"
#include "compare/stats.h"
#include "read/quantized.h"

/* Views may claim more elements than there is time for. */
#define MAX_ELEMENTS ((uint64_t)1 << 20)

static void check(struct ts_pool *pool, const struct ts_bundle *bundle)
{
    struct ts_error error;
    struct ts_check found;
    struct ts_stats *stats = calloc(bundle->count + 1, sizeof *stats);
    size_t length = 0;
    for (size_t i = 0; i < bundle->count; i++)
        if (bundle->tensors[i]->count > MAX_ELEMENTS) {
            free(stats);
            return;
        }
    if (stats && ts_stats_run(pool, bundle->tensors, bundle->count, stats, NULL, &error) == TS_OK &&
        ts_check_run(pool, bundle, stats, NULL, &found, &error) == TS_OK) {
        for (size_t i = 0; i < found.count; i++)
            length += strlen(found.issues[i].text) + strlen(found.issues[i].id);
        if (length == 1) /* never: no issue is that short */
            abort();
        ts_check_release(&found);
    }
    free(stats);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ts_pool *pool;
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    struct ts_input input = {.member = "fuzz"};
    struct ts_error error;
    struct ts_bundle *bundle = ts_bundle_new("fuzz");
    const struct ts_reader *reader;
    if (!pool)
        pool = ts_pool_new(1);
    input.spool = ts_spool_new(TS_FUZZ_SPOOL_LIMIT);
    if (pool && bundle && input.spool && end &&
        ts_source_copy(data, (size_t)(end - data), "config.json", &bundle->config, &error) == TS_OK &&
        ts_source_copy(end + 1, size - (size_t)(end - data) - 1, "fuzz", &input.source, &error) == TS_OK) {
        reader = ts_reader_for(&input);
        ts_error_clear(&error);
        if (reader && reader->read(&input, bundle, &error) == TS_OK && ts_quantized_join(bundle, &error) == TS_OK)
            check(pool, bundle);
        ts_source_release(input.source);
    }
    ts_bundle_free(bundle);
    if (input.spool)
        ts_spool_free(input.spool);
    return 0;
}
