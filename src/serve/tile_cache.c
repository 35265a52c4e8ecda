/* The cache of tile_cache.h: few entries, so a plain search does. */
#include "serve/tile_cache.h"

#include <stdlib.h>
#include <string.h>

bool ts_tile_cache_get(struct ts_tile_cache *cache, const char *key, struct ts_cached_tile *out)
{
    bool found = false;
    pthread_mutex_lock(&cache->lock);
    for (size_t i = 0; i < TS_TILE_CACHED && !found; i++) {
        struct ts_cached_tile *tile = &cache->tiles[i];
        if (!tile->key || strcmp(tile->key, key) != 0)
            continue;
        tile->used = ++cache->clock;
        *out = *tile;
        out->key = NULL;
        out->data = malloc(tile->size + 1);
        found = out->data != NULL;
        if (found)
            memcpy(out->data, tile->data, tile->size);
    }
    pthread_mutex_unlock(&cache->lock);
    return found;
}

void ts_tile_cache_put(struct ts_tile_cache *cache, const char *key, const struct ts_cached_tile *tile)
{
    struct ts_cached_tile made = *tile, *victim = &cache->tiles[0];
    made.key = strdup(key);
    made.data = malloc(tile->size + 1);
    if (!made.key || !made.data) {
        free(made.key);
        free(made.data);
        return;
    }
    memcpy(made.data, tile->data, tile->size);
    pthread_mutex_lock(&cache->lock);
    for (size_t i = 0; i < TS_TILE_CACHED; i++) {
        struct ts_cached_tile *one = &cache->tiles[i];
        if (one->key && strcmp(one->key, key) == 0) { /* two made it at once */
            victim = one;
            break;
        }
        if (one->used < victim->used)
            victim = one;
    }
    free(victim->key);
    free(victim->data);
    made.used = ++cache->clock;
    *victim = made;
    pthread_mutex_unlock(&cache->lock);
}

void ts_tile_cache_release(struct ts_tile_cache *cache)
{
    for (size_t i = 0; i < TS_TILE_CACHED; i++) {
        free(cache->tiles[i].key);
        free(cache->tiles[i].data);
    }
}
