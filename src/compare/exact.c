#include "compare/exact.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PIECE ((uint64_t)4 << 20)

struct job {
    const struct ts_pair *pairs;
    size_t count;
    uint64_t *first_piece;
    _Atomic uint64_t *first;
    struct ts_progress *progress;
};

static uint64_t bytes_of(const struct ts_pair *pair)
{
    return pair->problem || pair->a.tensor->type != pair->b.tensor->type || !ts_view_bytes(&pair->a) ||
                   !ts_view_bytes(&pair->b)
               ? 0
               : pair->a.count * ts_type_info(pair->a.tensor->type)->block_bytes;
}

static size_t pair_of(const struct job *job, uint64_t index)
{
    size_t low = 0, high = job->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        *(job->first_piece[middle] <= index ? &low : &high) = middle;
    }
    return low;
}

static void work(void *context, uint64_t index, unsigned worker)
{
    struct job *job = context;
    size_t which = pair_of(job, index);
    const struct ts_pair *pair = &job->pairs[which];
    uint64_t start = (index - job->first_piece[which]) * PIECE, size = bytes_of(pair) - start;
    const uint8_t *a = ts_view_bytes(&pair->a) + start, *b = ts_view_bytes(&pair->b) + start;
    uint64_t elements = ts_type_info(pair->a.tensor->type)->block_bytes;
    (void)worker;
    size = size < PIECE ? size : PIECE;
    if (atomic_load(&ts_cancelled) || atomic_load(&job->first[which]) < start)
        return;
    if (memcmp(a, b, (size_t)size) != 0) {
        uint64_t at = 0, found = atomic_load(&job->first[which]);
        while (a[at] == b[at])
            at++;
        while (start + at < found && !atomic_compare_exchange_weak(&job->first[which], &found, start + at)) {
        }
    }
    ts_view_forget(&pair->a, start / elements, size / elements);
    ts_view_forget(&pair->b, start / elements, size / elements);
    ts_progress_add(job->progress, size);
}

enum ts_status ts_exact_run(struct ts_pool *pool, const struct ts_pair *pairs, size_t count, uint64_t *first,
                            struct ts_progress *progress, struct ts_error *error)
{
    struct job job = {.pairs = pairs, .count = count, .progress = progress};
    uint64_t pieces = 0;
    job.first_piece = calloc(count + 1, sizeof *job.first_piece);
    job.first = calloc(count + 1, sizeof *job.first);
    if (!job.first_piece || !job.first) {
        free(job.first_piece);
        free(job.first);
        return ts_fail_memory(error);
    }
    for (size_t i = 0; i < count; i++) {
        bool comparable = !pairs[i].problem && (bytes_of(&pairs[i]) || pairs[i].a.count == 0);
        atomic_init(&job.first[i], comparable ? TS_EXACT_EQUAL : TS_EXACT_UNKNOWN);
        job.first_piece[i] = pieces;
        pieces += (bytes_of(&pairs[i]) + PIECE - 1) / PIECE;
    }
    job.first_piece[count] = pieces;
    ts_pool_run(pool, pieces, work, &job);
    for (size_t i = 0; i < count; i++)
        first[i] = atomic_load(&job.first[i]);
    free(job.first_piece);
    free(job.first);
    return atomic_load(&ts_cancelled) ? ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted") : TS_OK;
}
