/* Pool: a fixed team of threads that runs one loop at a time.
 *
 * ts_pool_run calls work(context, index, worker) for each index in [0, count), on every thread of the pool and on the
 * calling one, and returns when all are done. Indices are handed out in order, one at a time, so pieces should be of
 * some hundred microseconds. worker is in [0, ts_pool_width): use it to index per-thread scratch. Results must not
 * depend on which worker took which index: keep one result per index and combine them in order.
 *
 * A pool serves one ts_pool_run at a time; calls from several threads take turns. work must not call ts_pool_run. */
#ifndef TS_BASE_POOL_H
#define TS_BASE_POOL_H

#include <stddef.h>
#include <stdint.h>

struct ts_pool;

/* threads 0: one per processor this process may use, or TSLEUTH_THREADS. NULL without memory. */
struct ts_pool *ts_pool_new(unsigned threads);
void ts_pool_free(struct ts_pool *pool);
unsigned ts_pool_width(const struct ts_pool *pool);
void ts_pool_run(struct ts_pool *pool, uint64_t count, void (*work)(void *context, uint64_t index, unsigned worker),
                 void *context);

#endif
