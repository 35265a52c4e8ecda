/* Owns the numbering of pieces and the order in which their pages are given back. */
#include "compare/pieces.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/progress.h"

bool ts_pieces_init(struct ts_pieces *pieces, uint64_t size, const struct ts_pool *pool)
{
    *pieces = (struct ts_pieces){.size = size, .lag = (uint64_t)4 * ts_pool_width(pool)};
    pieces->first = calloc(TS_PIECES_BATCH + 1, sizeof *pieces->first);
    pthread_mutex_init(&pieces->lock, NULL);
    ts_error_clear(&pieces->error);
    return pieces->first != NULL;
}

void ts_pieces_release(struct ts_pieces *pieces)
{
    pthread_mutex_destroy(&pieces->lock);
    free(pieces->first);
}

void ts_pieces_begin(struct ts_pieces *pieces)
{
    pieces->items = 0;
    pieces->first[0] = 0;
}

void ts_pieces_add(struct ts_pieces *pieces, uint64_t elements)
{
    uint64_t count = elements / pieces->size + (elements % pieces->size != 0);
    pieces->first[pieces->items + 1] = pieces->first[pieces->items] + count;
    pieces->items++;
}

size_t ts_pieces_item(const struct ts_pieces *pieces, uint64_t index, uint64_t *first)
{
    size_t low = 0, high = pieces->items;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (pieces->first[middle] <= index)
            low = middle;
        else
            high = middle;
    }
    *first = (index - pieces->first[low]) * pieces->size;
    return low;
}

struct run {
    const struct ts_pieces *pieces;
    ts_piece_task *work, *forget;
    void *context;
};

static void run_piece(void *context, uint64_t index, unsigned worker)
{
    const struct run *run = context;
    (void)worker;
    if (atomic_load(&ts_cancelled))
        return;
    run->work(run->context, index);
    run->forget(run->context, index);
    if (index >= run->pieces->lag)
        run->forget(run->context, index - run->pieces->lag);
}

enum ts_status ts_pieces_run(struct ts_pieces *pieces, struct ts_pool *pool, ts_piece_task *work, ts_piece_task *forget,
                             void *context, struct ts_error *error)
{
    struct run run = {pieces, work, forget, context};
    ts_pool_run(pool, ts_pieces_count(pieces), run_piece, &run);
    if (atomic_load(&ts_cancelled))
        return ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
    if (pieces->error.status != TS_OK)
        *error = pieces->error;
    return pieces->error.status;
}

void ts_pieces_fail(struct ts_pieces *pieces, const struct ts_error *error, const char *name)
{
    pthread_mutex_lock(&pieces->lock);
    if (pieces->error.status == TS_OK) {
        pieces->error = *error;
        ts_error_tensor(&pieces->error, name);
    }
    pthread_mutex_unlock(&pieces->lock);
}
