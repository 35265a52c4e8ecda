/* Owns the numbering of pieces and the order in which their pages are given back. */
#include "compare/pieces.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/progress.h"

#define MOST_WHOLE 8 /* threads whose pieces need not be halved */
#define TOGETHER   8 /* pieces; half of that where many threads hold some */
#define ENOUGH     ((uint64_t)32 << 20)
#define NOTHING    UINT64_MAX
#define SMALL      ((uint64_t)1 << 18) /* elements of a pair */

bool ts_pieces_init(struct ts_pieces *pieces, const struct ts_pool *pool)
{
    *pieces = (struct ts_pieces){.width = ts_pool_width(pool), .together = TOGETHER};
    while (pieces->width >> pieces->halved > MOST_WHOLE)
        pieces->halved++;
    if (pieces->halved)
        pieces->together = TOGETHER / 2 << pieces->halved;
    pieces->at = malloc(pieces->width * sizeof *pieces->at);
    pieces->first = calloc(TS_PIECES_BATCH + 1, sizeof *pieces->first);
    pieces->sizes = calloc(TS_PIECES_BATCH, sizeof *pieces->sizes);
    pthread_mutex_init(&pieces->lock, NULL);
    ts_error_clear(&pieces->error);
    return pieces->at && pieces->first && pieces->sizes;
}

void ts_pieces_release(struct ts_pieces *pieces)
{
    pthread_mutex_destroy(&pieces->lock);
    free(pieces->at);
    free(pieces->first);
    free(pieces->sizes);
}

void ts_pieces_begin(struct ts_pieces *pieces)
{
    pieces->items = 0;
    pieces->first[0] = 0;
}

void ts_pieces_add(struct ts_pieces *pieces, uint64_t elements, uint64_t size)
{
    uint64_t count = elements / size + (elements % size != 0);
    pieces->sizes[pieces->items] = size;
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
    *first = (index - pieces->first[low]) * pieces->sizes[low];
    return low;
}

struct run {
    const struct ts_pieces *pieces;
    ts_piece_task *work;
    ts_piece_forget *forget;
    void *context;
    _Atomic uint64_t given; /* pieces before this one have been given back */
};

static void forget_pieces(const struct run *run, uint64_t from, uint64_t to)
{
    const struct ts_pieces *pieces = run->pieces;
    while (from < to && run->forget) {
        uint64_t first;
        size_t item = ts_pieces_item(pieces, from, &first);
        uint64_t stop = to < pieces->first[item + 1] ? to : pieces->first[item + 1];
        run->forget(run->context, item, first, first + (stop - from) * pieces->sizes[item]);
        from = stop;
    }
}

/* The first piece that anybody may still look at, when index is done. A thread that the system has stopped is not
 * waited for, once every other could have done another piece. */
static uint64_t first_in_use(const struct run *run, uint64_t index)
{
    const uint64_t width = run->pieces->width;
    uint64_t first = index + 1;
    for (uint64_t i = 0; i < width; i++) {
        uint64_t at = atomic_load_explicit(&run->pieces->at[i], memory_order_relaxed);
        first = at < first ? at : first;
    }
    return index > width && first < index - width ? index - width : first;
}

/* Whoever comes by gives back what all are past, and the piece before it once more, of which the one behind may have
 * brought back pages. A thread that was not waited for brings back pages of its piece and of the ones beside it, that
 * nobody else looks at again. */
static void run_piece(void *context, uint64_t index, unsigned worker)
{
    struct run *run = context;
    const uint64_t together = run->pieces->together;
    uint64_t given, end;
    if (atomic_load(&ts_cancelled))
        return;
    atomic_store_explicit(&run->pieces->at[worker], index, memory_order_relaxed);
    run->work(run->context, index);
    atomic_store_explicit(&run->pieces->at[worker], NOTHING, memory_order_relaxed);
    given = atomic_load(&run->given);
    if (given > index)
        forget_pieces(run, index ? index - 1 : 0, given > index + 1 ? index + 2 : index + 1);
    end = first_in_use(run, index);
    while (given + together <= end)
        if (atomic_compare_exchange_weak(&run->given, &given, given + together)) {
            forget_pieces(run, given ? given - 1 : 0, given + together);
            given += together;
        }
}

enum ts_status ts_pieces_run(struct ts_pieces *pieces, struct ts_pool *pool, ts_piece_task *work,
                             ts_piece_forget *forget, void *context, struct ts_error *error)
{
    struct run run = {.pieces = pieces, .work = work, .forget = forget, .context = context};
    for (unsigned i = 0; i < pieces->width; i++)
        atomic_init(&pieces->at[i], NOTHING);
    ts_pool_run(pool, ts_pieces_count(pieces), run_piece, &run);
    if (atomic_load(&ts_cancelled))
        return ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
    forget_pieces(&run, run.given ? run.given - 1 : 0, ts_pieces_count(pieces));
    if (pieces->error.status != TS_OK)
        *error = pieces->error;
    return pieces->error.status;
}

bool ts_pieces_enough(struct ts_pieces *pieces, uint64_t bytes)
{
    const uint64_t before = atomic_fetch_add(&pieces->small, bytes);
    return before / ENOUGH != (before + bytes) / ENOUGH;
}

void ts_pieces_forget_pair(struct ts_pieces *pieces, const struct ts_pair *pair, uint64_t first, uint64_t end)
{
    const struct ts_view *views[2] = {&pair->a, &pair->b};
    const bool small = pair->a.count < SMALL;
    end = end < pair->a.count ? end : pair->a.count;
    if (small && !ts_pieces_enough(pieces, pair->a.tensor->bytes + pair->b.tensor->bytes))
        return;
    for (int side = 0; side < 2; side++)
        if (small && views[side]->join == TS_JOIN_NONE)
            ts_source_forget(views[side]->tensor->source, 0, views[side]->tensor->source->size);
        else
            ts_view_forget(views[side], first, end - first);
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
