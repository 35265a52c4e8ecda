/* Owns the blocks of files that jumping reads keep. */
#include "io/window.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

#define WINDOWS 2
#define BYTES   ((size_t)16 << 20)
/* A copy of so little costs hardly less than its call, and one of so much hardly more than the page it is in. */
#define LEAST_BITS 9
#define MOST_BITS  12
/* Half of the room: blocks meet in a set of WAYS by chance, and a set must seldom be asked for more than it holds. */
#define FILLED (BYTES / 2)
#define WAYS   8
#define NONE   UINT64_MAX
/* Items side by side of so many bytes and more are read where they are wanted. */
#define DIRECT 2048

struct window {
    const struct ts_source *root;
    unsigned bits; /* of a block */
    uint64_t used; /* when, to find the one to give up */
    uint64_t *blocks;
    uint8_t *oldest; /* of each set: the way to be replaced next */
    uint8_t *bytes;
};

static struct window windows[WINDOWS];
static uint64_t clock_now;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void clear(struct window *window)
{
    free(window->blocks);
    free(window->oldest);
    free(window->bytes);
    *window = (struct window){0};
}

void ts_window_drop(const struct ts_source *root)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < WINDOWS; i++)
        if (windows[i].root == root)
            clear(&windows[i]);
    pthread_mutex_unlock(&lock);
}

/* The window on a file with blocks of such a size, in place of the one that was not used for longest. */
static struct window *find(const struct ts_source *root, unsigned bits)
{
    const size_t count = BYTES >> bits;
    struct window *window = &windows[0];
    for (int i = 0; i < WINDOWS; i++) {
        if (windows[i].root == root && windows[i].bits == bits) {
            windows[i].used = ++clock_now;
            return &windows[i];
        }
        if (windows[i].used < window->used)
            window = &windows[i];
    }
    clear(window);
    window->blocks = malloc(count * sizeof *window->blocks);
    window->oldest = calloc(count / WAYS, 1);
    window->bytes = malloc(BYTES);
    if (!window->blocks || !window->oldest || !window->bytes) {
        clear(window);
        return NULL;
    }
    memset(window->blocks, 0xff, count * sizeof *window->blocks); /* NONE */
    window->root = root;
    window->bits = bits;
    window->used = ++clock_now;
    return window;
}

/* The bytes of a block, brought where they are not there. */
static enum ts_status fetch(struct window *window, uint64_t block, const uint8_t **bytes, struct ts_error *error)
{
    const uint64_t sets = (BYTES >> window->bits) / WAYS, first = block << window->bits;
    const size_t size = (size_t)1 << window->bits, set = (size_t)((block * 0x9e3779b97f4a7c15u >> 24) % sets);
    uint64_t *ways = window->blocks + set * WAYS, left = window->root->size - first;
    unsigned way = 0;
    while (way < WAYS && ways[way] != block)
        way++;
    if (way == WAYS) {
        way = window->oldest[set]++ % WAYS;
        ways[way] = NONE;
        TS_TRY(ts_source_read(window->root, first, left < size ? left : size,
                              window->bytes + ((set * WAYS + way) << window->bits), error));
        ways[way] = block;
    }
    *bytes = window->bytes + ((set * WAYS + way) << window->bits);
    return TS_OK;
}

static enum ts_status gather_blocks(struct window *window, uint64_t offset, const struct ts_gather *gather,
                                    struct ts_error *error)
{
    const uint64_t size = (uint64_t)1 << window->bits;
    uint64_t held = NONE;
    const uint8_t *bytes = NULL;
    for (size_t i = 0; i < gather->count; i++, offset += (uint64_t)gather->step) {
        uint8_t *out = gather->out + i * gather->out_step;
        uint64_t at = offset;
        for (size_t left = gather->size; left;) { /* an item may reach into the next block */
            const uint64_t within = at & (size - 1);
            const size_t now = size - within < left ? (size_t)(size - within) : left;
            if (at >> window->bits != held)
                TS_TRY(fetch(window, at >> window->bits, &bytes, error));
            held = at >> window->bits;
            memcpy(out, bytes + within, now);
            out += now;
            at += now;
            left -= now;
        }
    }
    return TS_OK;
}

enum ts_status ts_window_gather(const struct ts_source *source, const struct ts_gather *gather, struct ts_error *error)
{
    const struct ts_source *root = source;
    uint64_t offset = gather->offset, last;
    unsigned bits = MOST_BITS;
    struct window *window;
    enum ts_status status;
    if (gather->count == 0)
        return TS_OK;
    last = offset + (gather->count - 1) * (uint64_t)gather->step;
    if (!ts_span_fits(offset, gather->size, source->size) || !ts_span_fits(last, gather->size, source->size))
        return ts_fail(error, TS_ERR_USAGE, offset, "reads outside its source");
    if (gather->step == (int64_t)gather->size && gather->out_step == gather->size &&
        gather->count * gather->size >= DIRECT)
        return ts_source_read(source, offset, gather->count * gather->size, gather->out, error);
    while (root->parent)
        root = root->parent;
    offset += (uint64_t)(source->data - root->data);
    while (bits > LEAST_BITS && gather->places > FILLED >> bits)
        bits--;
    pthread_mutex_lock(&lock);
    window = find(root, bits);
    status = window ? gather_blocks(window, offset, gather, error) : ts_fail_memory(error);
    pthread_mutex_unlock(&lock);
    return status;
}
