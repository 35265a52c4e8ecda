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
    const uint8_t *a = bytes_of_view(&pair->a, is_plain(pair)) + start,
                  *b = bytes_of_view(&pair->b, is_plain(pair)) + start;
    const struct ts_type_info *info = ts_type_info(pair->a.tensor->type);
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
    ts_view_forget(&pair->a, start / info->block_bytes * info->block_elements,
                   size / info->block_bytes * info->block_elements);
    ts_view_forget(&pair->b, start / info->block_bytes * info->block_elements,
                   size / info->block_bytes * info->block_elements);
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
