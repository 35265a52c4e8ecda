/* Caches: the names of the keys and values that a run keeps. Internal to names.c. */
#ifndef TS_PAIR_CACHES_H
#define TS_PAIR_CACHES_H

#include <stdint.h>

/* "attn_k_cache", "attn_v_cache", or "attn_kv_cache" for both in one tensor; NULL for what is no cache. *layer: -1
 * where it is one of all layers. */
const char *ts_cache_kind(const char *name, int64_t *layer);

#endif
