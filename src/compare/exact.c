#include "compare/exact.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "compare/pieces.h"

#define PIECE ((uint64_t)4 << 20) /* bytes of each side */

struct job {
    struct ts_pieces cut; /* bytes are its elements */
    const struct ts_pair *pairs;
    _Atomic uint64_t *first; /* byte of each pair that differs */
    struct ts_progress *progress;
};

/* The bytes of a view: of a type with one element per block as ts_view_bytes has them; of packed and quantized ones
 * those of a tensor that is seen whole and as it is. NULL when there are none. */
static const uint8_t *bytes_of_view(const struct ts_view *view, bool plain)
{
    const struct ts_tensor *tensor = view->tensor;
    const uint8_t *bytes = ts_view_bytes(view);
    if (bytes || !plain || tensor->type == TS_CODED || ts_type_info(tensor->type)->block_elements == 1)
        return bytes;
    return view->join == TS_JOIN_NONE && view->count == tensor->count && ts_tensor_is_contiguous(tensor)
               ? ts_tensor_bytes(tensor)
               : NULL;
}

/* Both sides in the order and layout their files have. */
static bool is_plain(const struct ts_pair *pair)
{
    return (!pair->recipe || !*pair->recipe) && pair->a.tensor->count == pair->b.tensor->count;
}

static uint64_t bytes_of(const struct ts_pair *pair)
{
    uint64_t bytes;
    return pair->problem || pair->a.tensor->type != pair->b.tensor->type || !bytes_of_view(&pair->a, is_plain(pair)) ||
                   !bytes_of_view(&pair->b, is_plain(pair)) ||
                   !ts_type_bytes(pair->a.tensor->type, pair->a.count, &bytes)
               ? 0
               : bytes;
}

static uint64_t place_of(const struct ts_view *view, bool plain, uint64_t first)
{
    const uint8_t *bytes = bytes_of_view(view, plain), *start = ts_tensor_bytes(view->tensor);
    if (view->tensor->parsed)
        return TS_EXACT_NOWHERE;
    return view->tensor->offset + (bytes && start && bytes > start ? (uint64_t)(bytes - start) : 0) + first;
}

void ts_exact_places(const struct ts_pair *pair, uint64_t first, uint64_t *in_a, uint64_t *in_b)
{
    *in_a = place_of(&pair->a, is_plain(pair), first);
    *in_b = place_of(&pair->b, is_plain(pair), first);
}

static void work(void *context, uint64_t index)
{
    struct job *job = context;
    uint64_t start, size;
    size_t which = ts_pieces_item(&job->cut, index, &start);
    const struct ts_pair *pair = &job->pairs[which];
    const uint8_t *a = bytes_of_view(&pair->a, is_plain(pair)) + start,
                  *b = bytes_of_view(&pair->b, is_plain(pair)) + start;
    size = bytes_of(pair) - start;
    size = size < job->cut.sizes[which] ? size : job->cut.sizes[which];
    ts_progress_add(job->progress, size);
    if (atomic_load(&job->first[which]) < start)
        return;
    if (memcmp(a, b, (size_t)size) != 0) {
        uint64_t at = 0, found = atomic_load(&job->first[which]);
        while (a[at] == b[at])
            at++;
        while (start + at < found && !atomic_compare_exchange_weak(&job->first[which], &found, start + at)) {
        }
    }
}

static void forget_bytes(void *context, size_t which, uint64_t first, uint64_t end)
{
    const struct job *job = context;
    const struct ts_pair *pair = &job->pairs[which];
    const struct ts_type_info *info = ts_type_info(pair->a.tensor->type);
    const uint64_t bytes = bytes_of(pair);
    end = end < bytes ? end : bytes;
    first = first / info->block_bytes * info->block_elements;
    end = end / info->block_bytes * info->block_elements;
    ts_view_forget(&pair->a, first, end - first);
    ts_view_forget(&pair->b, first, end - first);
}

static enum ts_status run_batch(struct ts_pool *pool, struct job *job, size_t count, struct ts_error *error)
{
    ts_pieces_begin(&job->cut);
    for (size_t i = 0; i < count; i++) {
        const struct ts_pair *pair = &job->pairs[i];
        const uint64_t bytes = bytes_of(pair);
        bool comparable = !pair->problem && (bytes || pair->a.count == 0);
        atomic_init(&job->first[i], comparable ? TS_EXACT_EQUAL : TS_EXACT_UNKNOWN);
        ts_pieces_add(&job->cut, bytes, PIECE >> job->cut.halved);
    }
    return ts_pieces_run(&job->cut, pool, work, forget_bytes, job, error);
}

enum ts_status ts_exact_run(struct ts_pool *pool, const struct ts_pair *pairs, size_t count, uint64_t *first,
                            struct ts_progress *progress, struct ts_error *error)
{
    struct job job = {.progress = progress};
    enum ts_status status = TS_OK;
    job.first = calloc(TS_PIECES_BATCH, sizeof *job.first);
    if (!ts_pieces_init(&job.cut, pool) || !job.first)
        status = ts_fail_memory(error);
    for (size_t i = 0; i < count && status == TS_OK; i += TS_PIECES_BATCH) {
        const size_t now = count - i < TS_PIECES_BATCH ? count - i : TS_PIECES_BATCH;
        job.pairs = pairs + i;
        status = run_batch(pool, &job, now, error);
        for (size_t k = 0; k < now; k++)
            first[i + k] = atomic_load(&job.first[k]);
    }
    ts_pieces_release(&job.cut);
    free(job.first);
    return status;
}
