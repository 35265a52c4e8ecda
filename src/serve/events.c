/* Owns the event streams. A stream tells what is new since it last spoke; it sleeps when there is nothing. */
#include "serve/events.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/json_fields.h"
#include "serve/opened.h"
#include "serve/server.h"

#define HEARTBEAT_MS 15000

struct ts_stream {
    struct ts_stream *next;
    struct ts_server *server;
    struct MHD_Connection *connection;
    struct ts_workspace *workspace; /* held */
    struct ts_buffer text;          /* not sent yet */
    size_t sent;
    bool asleep, greeted;
    uint64_t news, done, spoke_ms;
    const char *stage;
};

/* What the run is doing, in the words of the API. */
static const char *stage_of(struct ts_workspace *workspace, const char **unit)
{
    const char *stage = atomic_load(&workspace->stage), *label = atomic_load(&workspace->watch.label);
    *unit = "bytes";
    if (!stage)
        return "waiting";
    if (strcmp(stage, "pairing") == 0 && label) {
        uint64_t total = atomic_load(&workspace->watch.total);
        if (strcmp(label, "comparing") == 0) {
            *unit = "elements";
            return atomic_load(&workspace->watch.done) < total ? "comparing" : "judging";
        }
        if (strcmp(label, "pairing") != 0) {
            *unit = "elements";
            return "judging";
        }
    }
    return stage;
}

static void put_event(struct ts_stream *stream, const char *name,
                      void (*fill)(struct ts_stream *, struct ts_json_writer *))
{
    struct ts_json_writer json;
    ts_buffer_printf(&stream->text, "event: %s\ndata: ", name);
    ts_json_writer_init(&json, &stream->text, 0);
    ts_json_begin_object(&json);
    fill(stream, &json);
    ts_json_end_object(&json);
    ts_buffer_string(&stream->text, "\n\n");
}

static void fill_progress(struct ts_stream *stream, struct ts_json_writer *json)
{
    const char *unit, *stage = stage_of(stream->workspace, &unit);
    uint64_t total = atomic_load(&stream->workspace->watch.total);
    stream->done = atomic_load(&stream->workspace->watch.done);
    stream->stage = stage;
    ts_field_text(json, "stage", stage);
    ts_field_count(json, "done", stream->done < total ? stream->done : total);
    ts_field_count(json, "total", total);
    ts_field_text(json, "unit", unit);
}

static void fill_done(struct ts_stream *stream, struct ts_json_writer *json)
{
    const struct ts_opened *opened = stream->workspace->opened;
    static const char *const outcomes[] = {"match", "differ", "incomplete"};
    if (opened && opened->compared)
        ts_field_text(json, "verdict", outcomes[opened->comparison.outcome]);
}

static void fill_failed(struct ts_stream *stream, struct ts_json_writer *json)
{
    ts_field_text(json, "message", stream->workspace->message);
    if (stream->workspace->fix[0])
        ts_field_text(json, "fix", stream->workspace->fix);
}

static bool has_news(struct ts_stream *stream)
{
    struct ts_workspace *workspace = stream->workspace;
    const char *unit;
    bool news;
    pthread_mutex_lock(&workspace->lock);
    news = !stream->greeted || workspace->news != stream->news ||
           (workspace->state == TS_STATE_BUSY &&
            (atomic_load(&workspace->watch.done) != stream->done || stage_of(workspace, &unit) != stream->stage)) ||
           ts_now_ms() - stream->spoke_ms > HEARTBEAT_MS;
    pthread_mutex_unlock(&workspace->lock);
    return news;
}

/* Fills stream->text with what is new. */
static void speak(struct ts_stream *stream)
{
    struct ts_workspace *workspace = stream->workspace;
    bool new_state;
    pthread_mutex_lock(&workspace->lock);
    new_state = !stream->greeted || workspace->news != stream->news;
    stream->news = workspace->news;
    stream->greeted = true;
    ts_buffer_clear(&stream->text);
    stream->sent = 0;
    if (workspace->state == TS_STATE_BUSY)
        put_event(stream, "progress", fill_progress);
    else if (new_state && workspace->state == TS_STATE_DONE)
        put_event(stream, "done", fill_done);
    else if (new_state && workspace->state == TS_STATE_FAILED)
        put_event(stream, "failed", fill_failed);
    else
        ts_buffer_string(&stream->text, ": still here\n\n");
    pthread_mutex_unlock(&workspace->lock);
    stream->spoke_ms = ts_now_ms();
}

static ssize_t read_stream(void *context, uint64_t position, char *out, size_t most)
{
    struct ts_stream *stream = context;
    struct ts_streams *streams = &stream->server->streams;
    ssize_t size = 0;
    (void)position;
    pthread_mutex_lock(&streams->lock);
    if (stream->sent == stream->text.size && has_news(stream))
        speak(stream);
    if (atomic_load(&stream->server->stopping) || stream->workspace->deleted || stream->text.failed) {
        size = MHD_CONTENT_READER_END_OF_STREAM;
    } else if (stream->sent < stream->text.size) {
        size_t left = stream->text.size - stream->sent;
        left = left < most ? left : most;
        memcpy(out, stream->text.data + stream->sent, left);
        stream->sent += left;
        size = (ssize_t)left;
    } else {
        stream->asleep = true;
        MHD_suspend_connection(stream->connection);
    }
    pthread_mutex_unlock(&streams->lock);
    return size;
}

static void free_stream(void *context)
{
    struct ts_stream *stream = context, **at;
    struct ts_streams *streams = &stream->server->streams;
    pthread_mutex_lock(&streams->lock);
    for (at = &streams->first; *at && *at != stream; at = &(*at)->next)
        ;
    if (*at) {
        *at = stream->next;
        streams->count--;
    }
    pthread_mutex_unlock(&streams->lock);
    ts_workspace_drop(stream->workspace);
    ts_buffer_release(&stream->text);
    free(stream);
}

void ts_events_handle(struct ts_call *call)
{
    struct ts_streams *streams = &call->server->streams;
    struct ts_stream *stream;
    bool full;
    pthread_mutex_lock(&streams->lock);
    full = streams->count >= TS_MOST_STREAMS;
    pthread_mutex_unlock(&streams->lock);
    stream = full ? NULL : calloc(1, sizeof *stream);
    if (!stream) {
        ts_call_fail(call, 503, "close other pages", "too many pages follow this server");
        return;
    }
    stream->server = call->server;
    stream->connection = call->connection;
    stream->workspace = ts_workspace_hold(call->workspace);
    stream->spoke_ms = ts_now_ms();
    ts_buffer_init(&stream->text, 65536);
    pthread_mutex_lock(&streams->lock);
    stream->next = streams->first;
    streams->first = stream;
    streams->count++;
    pthread_mutex_unlock(&streams->lock);
    call->response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, read_stream, stream, free_stream);
    if (!call->response) {
        free_stream(stream);
        ts_call_fail(call, 503, NULL, "out of memory");
        return;
    }
    call->status = 200;
    MHD_add_response_header(call->response, "Content-Type", "text/event-stream");
    MHD_add_response_header(call->response, "Cache-Control", "no-store");
    ts_guard_headers(call->response, false);
}

void ts_events_wake(struct ts_server *server)
{
    struct ts_streams *streams = &server->streams;
    pthread_mutex_lock(&streams->lock);
    for (struct ts_stream *stream = streams->first; stream; stream = stream->next)
        if (stream->asleep && (atomic_load(&server->stopping) || stream->workspace->deleted || has_news(stream))) {
            stream->asleep = false;
            MHD_resume_connection(stream->connection);
        }
    pthread_mutex_unlock(&streams->lock);
}
