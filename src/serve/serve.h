/* Serve: a local web server with the API of docs/api.md and the page that uses it. */
#ifndef TS_SERVE_SERVE_H
#define TS_SERVE_SERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define TS_SERVE_PORT 8765

struct ts_serve_options {
    const char *host;       /* NULL: 127.0.0.1 */
    const char *token;      /* NULL: none; needed with a host that others reach */
    const char *workspaces; /* folder; made when it is not there */
    const char *paths[2];   /* inputs of this machine, or NULL */
    uint64_t port;
    bool port_given;       /* no other will do; 0 takes any free one */
    uint64_t keep_days;    /* workspaces that were not used for so long go; 0: never */
    uint64_t keep_bytes;   /* the oldest go while all of them hold more; 0: any size */
    uint64_t upload_limit; /* bytes per file; 0: the free disk less 1 GB */
};

struct ts_server;

/* Listens and answers from its own threads until it is stopped. */
enum ts_status ts_serve_start(const struct ts_serve_options *options, struct ts_server **server,
                              struct ts_error *error);
/* Where a browser finds it: with the token, and with the workspace of the paths that were given. */
const char *ts_serve_url(const struct ts_server *server);
/* Cancels what runs, answers what waits, writes what must be kept. */
void ts_serve_stop(struct ts_server *server);

#endif
