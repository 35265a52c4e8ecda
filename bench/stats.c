/* Statistics of a file against plain reading of the same file with the same threads: bench_stats FILE ROUNDS
 *
 * The rounds of both alternate, so that a busy machine is as busy for each. */
#include <inttypes.h>

#include "compare/stats.h"
#include "plain.h"
#include "read/open.h"

static double measure_stats(struct ts_pool *pool, const char *path, struct ts_stats *stats, uint64_t *bytes)
{
    struct ts_bundle *bundle;
    struct ts_error error;
    double start, seconds;
    if (ts_open(path, NULL, &bundle, &error) != TS_OK)
        give_up("%s: %s", path, error.message);
    if (bundle->count != 1)
        give_up("%s: one tensor was expected", path);
    *bytes = bundle->tensors[0]->bytes;
    start = now();
    if (ts_stats_run(pool, bundle->tensors, 1, stats, NULL, &error) != TS_OK)
        give_up("%s: %s", path, error.message);
    seconds = now() - start;
    ts_bundle_free(bundle);
    return seconds;
}

int main(int argc, char **argv)
{
    struct rounds all = {0};
    struct ts_pool *pool = ts_pool_new(0);
    struct ts_stats stats = {0};
    struct plain plain;
    uint64_t bytes = 0;
    if (argc != 3)
        give_up("usage: %s FILE ROUNDS", argv[0]);
    if (!pool)
        give_up("no memory");
    plain_open(pool, argv + 1, 1, &plain);
    for (unsigned long long rounds = number_argument(argv[2], "rounds"); rounds; rounds--) {
        double ours = measure_stats(pool, argv[1], &stats, &bytes), mapped = plain_read(pool, &plain, true);
        rounds_add(&all, ours, mapped, plain_read(pool, &plain, false), 0);
    }
    rounds_print(&all);
    printf("\"bytes\": %" PRIu64 ", \"plain_bytes\": %" PRIu64 ", \"threads\": %u, \"std\": %.9g}\n", bytes,
           plain.bytes, ts_pool_width(pool), stats.std);
    plain_close(pool, &plain);
    ts_pool_free(pool);
    return 0;
}
