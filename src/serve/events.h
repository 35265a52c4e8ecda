/* Events: server-sent events of a workspace. A stream sleeps until the keeper's next look finds news. */
#ifndef TS_SERVE_EVENTS_H
#define TS_SERVE_EVENTS_H

#include <pthread.h>

struct ts_call;
struct ts_server;
struct ts_stream;

struct ts_streams {
    pthread_mutex_t lock;
    struct ts_stream *first;
    size_t count;
};

#define TS_MOST_STREAMS 256

/* Answers the call with a stream. */
void ts_events_handle(struct ts_call *call);
/* Wakes the streams that have something to say; all of them when the server stops. */
void ts_events_wake(struct ts_server *server);

#endif
