/* Owns the connections: reads requests, finds their route, lets them sleep while a lane works, sends the answers. */
#include "serve/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "serve/assets.h"
#include "serve/job.h"
#include "serve/opened.h"
#include "serve/server.h"
#include "serve/upload.h"

#define CONNECTIONS     1500
#define HTTP_THREADS    4
#define TIMEOUT_SECONDS 60
#define DISCARD_MOST    ((uint64_t)8 << 20) /* of a refused body, so that the client reads why */

static enum ts_method method_of(const char *name)
{
    static const struct {
        const char *name;
        enum ts_method method;
    } methods[] = {{"GET", TS_GET}, {"HEAD", TS_HEAD}, {"POST", TS_POST}, {"PUT", TS_PUT}, {"DELETE", TS_DELETE}};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(name, methods[i].name) == 0)
            return methods[i].method;
    return 0;
}

/* Does the path fit the pattern? What the stars stand for goes to captures. */
static bool fits(struct ts_call *call, const char *pattern, const char *path)
{
    size_t captured = 0;
    for (;;) {
        size_t want = strcspn(pattern, "/"), have = strcspn(path, "/");
        bool rest = want == 2 && memcmp(pattern, "**", 2) == 0;
        if (rest)
            have = strlen(path);
        if (pattern[0] == '*') {
            if (have == 0 || captured == TS_CALL_CAPTURES)
                return false;
            free(call->captures[captured]);
            call->captures[captured] = strndup(path, have);
            if (!call->captures[captured])
                return false;
            captured++;
        } else if (want != have || memcmp(pattern, path, want) != 0) {
            return false;
        }
        pattern += want;
        path += have;
        if (!*pattern || !*path)
            return !*pattern && !*path;
        pattern++;
        path++;
    }
}

static bool find_route(struct ts_call *call)
{
    const char *path = call->path + strlen("/api/v1/");
    bool other_method = false;
    for (const struct ts_route *route = ts_routes; route->pattern; route++) {
        if (!fits(call, route->pattern, path))
            continue;
        if (!(route->methods & call->method)) {
            other_method = true;
            continue;
        }
        for (size_t i = 0; i < TS_CALL_CAPTURES; i++)
            if (call->captures[i] && !ts_decode_percent(call->captures[i])) {
                ts_call_fail(call, 400, NULL, "the address is badly encoded");
                return false;
            }
        call->route = route;
        return true;
    }
    if (other_method)
        ts_call_fail(call, 405, NULL, "this address does not take that method");
    else
        ts_call_fail(call, 404, "see docs/api.md", "there is nothing at this address");
    return false;
}

/* The page and its files. */
static void give_asset(struct ts_call *call)
{
    const char *path = strcmp(call->path, "/") == 0 ? "/index.html" : call->path;
    const struct ts_asset_entry *asset = ts_asset_entries;
    while (asset->name && strcmp(asset->name, path) != 0)
        asset++;
    if (!asset->name || !(call->method & (TS_GET | TS_HEAD))) {
        ts_call_fail(call, asset->name ? 405 : 404, NULL, "there is no such page");
        return;
    }
    call->response = MHD_create_response_from_buffer(asset->size, (void *)(uintptr_t)(ts_asset_bytes + asset->offset),
                                                     MHD_RESPMEM_PERSISTENT);
    call->status = 200;
    if (!call->response)
        return;
    MHD_add_response_header(call->response, "Content-Type", asset->type);
    MHD_add_response_header(call->response, "Content-Encoding", "gzip");
    MHD_add_response_header(call->response, "Cache-Control", "no-cache");
    ts_guard_headers(call->response, true);
}

/* Everything that can be said before the body. */
static void begin(struct ts_call *call)
{
    call->refused = true;
    if (!call->method) {
        ts_call_fail(call, 405, NULL, "this server knows GET, HEAD, POST, PUT and DELETE");
        return;
    }
    if (!ts_guard_check(call))
        return;
    if (strncmp(call->path, "/api/v1/", 8) != 0) {
        give_asset(call);
        return;
    }
    if (!find_route(call))
        return;
    if (call->route->wants_workspace && !(call->workspace = ts_workspace_find(call->server, call->captures[0]))) {
        ts_call_fail(call, 404, "list them with GET /api/v1/workspaces", "there is no workspace \"%.40s\"",
                     call->captures[0]);
        return;
    }
    if (call->route->streams && !ts_upload_begin(call))
        return;
    call->refused = false;
}

static enum MHD_Result send_answer(struct ts_call *call)
{
    struct MHD_Response *response = call->response;
    enum MHD_Result result;
    if (!response) {
        if (call->out.failed)
            ts_call_fail(call, 507, "ask for a part of it, or use the command line", "the answer is too large");
        if (!call->out.data) /* empty answers have a body of no bytes */
            ts_buffer_append(&call->out, "", 0);
        response = MHD_create_response_from_buffer(call->out.size, call->out.data,
                                                   call->out.data ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
        if (!response)
            return MHD_NO;
        call->out.data = NULL;
        ts_buffer_release(&call->out);
        MHD_add_response_header(response, "Content-Type", call->type ? call->type : "application/json");
        MHD_add_response_header(response, "Cache-Control", "no-store");
        ts_guard_headers(response, false);
    }
    for (size_t i = 0; i < call->header_count; i++)
        MHD_add_response_header(response, call->headers[i].name, call->headers[i].value);
    if (call->status == 503)
        MHD_add_response_header(response, "Retry-After", "1");
    result = MHD_queue_response(call->connection, call->status, response);
    MHD_destroy_response(response);
    call->response = NULL;
    return result;
}

void ts_call_done(struct ts_call *call)
{
    call->finished = true;
    MHD_resume_connection(call->connection);
}

/* The comparison of the workspace, opened again when it was closed. True when the call may go on, or has failed; else
 * it waits for the end of the run. */
static bool take_opened(struct ts_call *call)
{
    struct ts_workspace *workspace = call->workspace;
    struct ts_error error;
    bool ready = true;
    pthread_mutex_lock(&workspace->lock);
    workspace->touched_ms = ts_now_ms();
    workspace->used = (uint64_t)time(NULL);
    if (workspace->opened) {
        call->opened = ts_opened_hold(workspace->opened);
    } else if (workspace->state == TS_STATE_FAILED) {
        ts_call_fail(call, 422, workspace->fix[0] ? workspace->fix : NULL, "%s", workspace->message);
    } else if (workspace->state != TS_STATE_BUSY && !workspace->options) {
        ts_call_fail(call, 409, "POST .../run first", "nothing was opened in this workspace yet");
    } else if (workspace->state != TS_STATE_BUSY && ts_job_start(workspace, NULL, &error) != TS_OK) {
        ts_call_error(call, &error);
    } else {
        call->task.next = (struct ts_task *)workspace->waiting;
        workspace->waiting = call;
        ready = false;
    }
    pthread_mutex_unlock(&workspace->lock);
    return ready;
}

static void push(struct ts_call *call, enum ts_lane_kind lane);

static void run_handler(struct ts_task *task)
{
    struct ts_call *call = (struct ts_call *)task;
    bool later = call->later;
    if (call->route->wants_opened && !call->opened) {
        if (!take_opened(call))
            return;
        if (!call->opened) {
            ts_call_done(call);
            return;
        }
    }
    call->route->handle(call);
    if (later || !call->later)
        ts_call_done(call);
    else
        push(call, TS_LANE_SLOW);
}

static void push(struct ts_call *call, enum ts_lane_kind lane)
{
    call->task.run = run_handler;
    if (ts_lane_push(call->server->lanes[lane], &call->task))
        return;
    ts_call_fail(call, 503, "try again in a moment", "the server is busy");
    ts_call_done(call);
}

void ts_call_continue(struct ts_call *call)
{
    push(call, call->route->lane);
}

static void run_flush(struct ts_task *task)
{
    struct ts_call *call = (struct ts_call *)task;
    ts_upload_flush(call);
    MHD_resume_connection(call->connection);
}

/* The connection sleeps while its bytes are written through to the disk. */
static void flush(struct ts_call *call)
{
    call->task.run = run_flush;
    MHD_suspend_connection(call->connection);
    if (!ts_lane_push(call->server->lanes[TS_LANE_DISK], &call->task))
        MHD_resume_connection(call->connection);
}

static enum MHD_Result take_body(struct ts_call *call, const char *data, size_t *size)
{
    if (call->refused) {
        call->discarded += *size;
        *size = 0;
        return call->discarded > DISCARD_MOST ? MHD_NO : MHD_YES;
    }
    if (call->route->streams) {
        call->refused = !ts_upload_take(call, data, *size);
        if (!call->refused && ts_upload_wants_flush(call))
            flush(call);
    } else if (!ts_buffer_append(&call->body, data, *size)) {
        ts_call_fail(call, 413, NULL, "the body of this request may have at most %zu bytes", TS_CALL_BODY);
        call->refused = true;
    }
    *size = 0;
    return MHD_YES;
}

/* Too long to be read and thrown away: the answer comes first, and the connection ends. */
static bool body_is_long(struct ts_call *call)
{
    const char *length = MHD_lookup_connection_value(call->connection, MHD_HEADER_KIND, "Content-Length");
    return (length && strlen(length) > 6) ||
           MHD_lookup_connection_value(call->connection, MHD_HEADER_KIND, "Expect") != NULL;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *data, size_t *size, void **state)
{
    struct ts_call *call = *state;
    (void)version;
    if (!call) {
        call = calloc(1, sizeof *call);
        if (!call)
            return MHD_NO;
        *state = call;
        call->server = context;
        call->connection = connection;
        call->method = method_of(method);
        ts_buffer_init(&call->body, TS_CALL_BODY);
        ts_buffer_init(&call->out, TS_CALL_ANSWER);
        call->path = strdup(url);
        if (!call->path)
            return MHD_NO;
        begin(call);
        return call->refused && body_is_long(call) ? send_answer(call) : MHD_YES;
    }
    if (*size)
        return take_body(call, data, size);
    if (!call->finished && !call->refused && !atomic_load(&call->server->stopping)) {
        MHD_suspend_connection(connection);
        ts_call_continue(call);
        return MHD_YES;
    }
    if (!call->status)
        ts_call_fail(call, 503, NULL, "the server stops");
    return send_answer(call);
}

static void on_completed(void *context, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code)
{
    struct ts_call *call = *state;
    (void)context;
    (void)connection;
    (void)code;
    if (!call)
        return;
    ts_upload_end(call);
    ts_opened_drop(call->opened);
    ts_workspace_drop(call->workspace);
    for (size_t i = 0; i < TS_CALL_CAPTURES; i++)
        free(call->captures[i]);
    free(call->path);
    ts_buffer_release(&call->body);
    ts_buffer_release(&call->out);
    if (call->response)
        MHD_destroy_response(call->response);
    free(call);
    *state = NULL;
}

/* Addresses are decoded where it is known what they mean. */
static size_t leave_escaped(void *context, struct MHD_Connection *connection, char *text)
{
    (void)context;
    (void)connection;
    return strlen(text);
}

static void say_nothing(void *context, const char *format, va_list arguments)
{
    (void)context;
    (void)format;
    (void)arguments;
}

static int listen_at(const struct addrinfo *address, uint16_t port, uint16_t *bound)
{
    struct sockaddr_storage place;
    socklen_t size = address->ai_addrlen;
    int on = 1, at = socket(address->ai_family, SOCK_STREAM, 0);
    if (at < 0)
        return -1;
    memcpy(&place, address->ai_addr, size);
    if (address->ai_family == AF_INET6)
        ((struct sockaddr_in6 *)&place)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)&place)->sin_port = htons(port);
    setsockopt(at, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on); /* a port that was ours a moment ago */
    if (bind(at, (struct sockaddr *)&place, size) != 0 || listen(at, 512) != 0 ||
        getsockname(at, (struct sockaddr *)&place, &size) != 0) {
        int number = errno;
        close(at);
        errno = number;
        return -1;
    }
    *bound = ntohs(address->ai_family == AF_INET6 ? ((struct sockaddr_in6 *)&place)->sin6_port
                                                  : ((struct sockaddr_in *)&place)->sin_port);
    return at;
}

/* The port asked for; else the default one or the next that is free. */
static enum ts_status open_socket(struct ts_server *server, const struct ts_serve_options *options, int *out,
                                  struct ts_error *error)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *address;
    uint16_t port = (uint16_t)options->port;
    int failed = getaddrinfo(server->host, NULL, &hints, &address), at = -1, tries = options->port_given ? 1 : 100;
    if (failed)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "cannot listen at \"%s\": %s", server->host,
                       gai_strerror(failed));
    for (int i = 0; i < tries && at < 0; i++)
        at = listen_at(address, (uint16_t)(port + i), &server->port);
    if (at < 0 && !options->port_given)
        at = listen_at(address, 0, &server->port);
    failed = errno;
    freeaddrinfo(address);
    if (at < 0)
        return ts_fail_errno(error, failed, "cannot listen at port %u of %s; another --port may be free", port,
                             server->host);
    *out = at;
    return TS_OK;
}

/* Connections, files and their mappings all need descriptors. */
static unsigned connection_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 200;
    if (limit.rlim_cur < CONNECTIONS + 500) {
        limit.rlim_cur = limit.rlim_max < CONNECTIONS + 500 ? limit.rlim_max : CONNECTIONS + 500;
        setrlimit(RLIMIT_NOFILE, &limit);
        getrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur >= CONNECTIONS + 500)
        return CONNECTIONS;
    return limit.rlim_cur > 300 ? (unsigned)limit.rlim_cur - 200 : 100;
}

enum ts_status ts_http_start(struct ts_server *server, const struct ts_serve_options *options, struct ts_error *error)
{
    int at = -1;
    TS_TRY(open_socket(server, options, &at, error));
    snprintf(server->cookie, sizeof server->cookie, "tsleuth_%u", server->port);
    /* Not epoll, which libmicrohttpd uses edge-triggered: where a client's last bytes and its end are seen at once, the
     * read that takes the bytes comes short, counts as the last, and nobody learns of the end before the timeout. */
    server->daemon = MHD_start_daemon(
        MHD_USE_POLL | MHD_USE_INTERNAL_POLLING_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC | MHD_USE_ERROR_LOG,
        server->port, NULL, NULL, on_request, server, MHD_OPTION_EXTERNAL_LOGGER, say_nothing, NULL,
        MHD_OPTION_LISTEN_SOCKET, at, MHD_OPTION_THREAD_POOL_SIZE, (unsigned)HTTP_THREADS, MHD_OPTION_THREAD_STACK_SIZE,
        TS_THREAD_STACK, MHD_OPTION_CONNECTION_LIMIT, connection_limit(), MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)TIMEOUT_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)128 * 1024, MHD_OPTION_UNESCAPE_CALLBACK,
        leave_escaped, NULL, MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_END);
    if (!server->daemon) {
        close(at);
        return ts_fail(error, TS_ERR_IO, TS_NO_OFFSET, "the web server could not be started");
    }
    return TS_OK;
}
