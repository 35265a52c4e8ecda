/* HTTP: the listening socket and the connections. */
#ifndef TS_SERVE_HTTP_H
#define TS_SERVE_HTTP_H

#include "base/error.h"
#include "serve/serve.h"

enum ts_status ts_http_start(struct ts_server *server, const struct ts_serve_options *options, struct ts_error *error);

#endif
