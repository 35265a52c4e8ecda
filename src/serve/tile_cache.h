/* Tile cache: tiles that were expensive to make, the most recent ones. */
#ifndef TS_SERVE_TILE_CACHE_H
#define TS_SERVE_TILE_CACHE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TS_TILE_CACHED 48 /* of half a megabyte each */

struct ts_cached_tile {
    char *key;
    void *data;
    size_t size;
    uint32_t rows, columns, sides;
    bool sampled;
    uint64_t used;
};

struct ts_tile_cache {
    pthread_mutex_t lock;
    uint64_t clock;
    struct ts_cached_tile tiles[TS_TILE_CACHED];
};

/* A copy, to be freed; false when it is not there. */
bool ts_tile_cache_get(struct ts_tile_cache *cache, const char *key, struct ts_cached_tile *out);
/* Copies it in; without memory nothing happens. */
void ts_tile_cache_put(struct ts_tile_cache *cache, const char *key, const struct ts_cached_tile *tile);
void ts_tile_cache_release(struct ts_tile_cache *cache);

#endif
