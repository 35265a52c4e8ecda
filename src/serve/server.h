/* What the parts of the server share: settings, lanes, the workspaces, the caches. */
#ifndef TS_SERVE_SERVER_H
#define TS_SERVE_SERVER_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/call.h"
#include "serve/events.h"
#include "serve/lane.h"
#include "serve/tile_cache.h"
#include "serve/workspace.h"

struct ts_server {
    char host[256]; /* as in the address; IPv6 without brackets */
    uint16_t port;
    bool local;      /* only this machine can reach it */
    char *token;     /* or NULL */
    char cookie[32]; /* name of the cookie that carries it */
    char url[768];
    uint64_t upload_limit; /* 0: by the free disk */
    uint64_t keep_days, keep_bytes;
    char *paths[2]; /* of the command line, or NULL */
    struct MHD_Daemon *daemon;
    struct ts_lane *lanes[TS_LANES];
    struct ts_store store;
    struct ts_streams streams;
    struct ts_tile_cache tiles;
    pthread_t keeper; /* wakes event streams, closes what rests, removes what is old */
    bool keeper_runs;
    atomic_bool stopping;
};

uint64_t ts_now_ms(void); /* monotonic */

/* Checks who asks; false after refusing the call. */
bool ts_guard_check(struct ts_call *call);
/* The security headers that every answer carries. */
void ts_guard_headers(struct MHD_Response *response, bool page);

extern const struct ts_route ts_routes[]; /* ends with a NULL pattern */

#endif
