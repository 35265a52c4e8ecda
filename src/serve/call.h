/* Call: one request from its first byte to its answer.
 *
 * The connection's thread reads the request, checks who asks, and finds the route. Then the connection sleeps while a
 * lane runs the handler, which only fills in the answer: status, type, bytes. The connection wakes and sends it. */
#ifndef TS_SERVE_CALL_H
#define TS_SERVE_CALL_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/json.h"
#include "serve/lane.h"

struct ts_server;
struct ts_workspace;
struct ts_opened;
struct ts_upload;
struct ts_call;

#define TS_CALL_CAPTURES 3
#define TS_CALL_HEADERS  4
#define TS_CALL_BODY     ((size_t)4 << 20) /* a map of a hundred thousand names fits */
#define TS_CALL_ANSWER   ((size_t)192 << 20)

enum ts_method { TS_GET = 1, TS_HEAD = 2, TS_POST = 4, TS_PUT = 8, TS_DELETE = 16 };

/* Quick answers, slow ones, what waits for the disk, comparisons. */
enum ts_lane_kind { TS_LANE_QUICK, TS_LANE_SLOW, TS_LANE_DISK, TS_LANE_JOBS, TS_LANES };

struct ts_route {
    unsigned methods;
    const char *pattern; /* below /api/v1/; a * stands for one segment, ** for the rest */
    enum ts_lane_kind lane;
    bool wants_workspace, wants_opened;
    bool streams; /* the body goes through serve/upload.h */
    void (*handle)(struct ts_call *call);
};

struct ts_call {
    struct ts_task task;
    struct ts_server *server;
    struct MHD_Connection *connection;
    enum ts_method method;
    char *path; /* raw, as sent */
    const struct ts_route *route;
    char *captures[TS_CALL_CAPTURES]; /* decoded, owned */
    struct ts_buffer body;
    struct ts_workspace *workspace; /* held */
    struct ts_opened *opened;       /* held */
    struct ts_upload *upload;       /* owned */
    bool refused;                   /* answered before the body: what comes is thrown away */
    bool finished;
    bool later; /* the handler found that it takes longer than it should here: it runs again in the slow lane */
    uint64_t discarded;
    /* the answer */
    unsigned status;
    const char *type;
    struct ts_buffer out;
    struct ts_json_writer json;
    struct {
        const char *name;
        char value[200];
    } headers[TS_CALL_HEADERS];
    size_t header_count;
    struct MHD_Response *response; /* made by the handler itself: event streams, the page */
};

/* A JSON answer begins. */
struct ts_json_writer *ts_call_json(struct ts_call *call, unsigned status);
/* An error answer; fix may be NULL. What was written before is dropped. */
void ts_call_fail(struct ts_call *call, unsigned status, const char *fix, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same from an error of the engine. */
void ts_call_error(struct ts_call *call, const struct ts_error *error);
void ts_call_header(struct ts_call *call, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A parameter of the query, decoded into out; false when it is not there or too long. */
bool ts_call_parameter(struct ts_call *call, const char *name, char *out, size_t size);
/* Whole numbers of the query. *value keeps what it holds when the parameter is not there; false after failing the call
 * when it is there and is not a number up to `most`. */
bool ts_call_count(struct ts_call *call, const char *name, uint64_t most, uint64_t *value);
/* "0,3,0": at most `room` of them; *count is 0 when the parameter is not there. */
bool ts_call_counts(struct ts_call *call, const char *name, uint64_t *values, size_t room, size_t *count);

/* Percent-decoding in place; false when it is malformed or holds a NUL. */
bool ts_decode_percent(char *text);

/* Goes on with a call that waited for its workspace to be opened. */
void ts_call_continue(struct ts_call *call);
/* The answer is there: wakes the connection. */
void ts_call_done(struct ts_call *call);

#endif
