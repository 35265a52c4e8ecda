/* Owns the start and the end of the server, and its keeper. */
#include "serve/server.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <mach/mach.h>
#elif defined(__GLIBC__)
#include <malloc.h>
#endif

#include "base/system.h"
#include "base/thread.h"
#include "io/source.h"
#include "serve/http.h"
#include "serve/job.h"
#include "serve/opened.h"

#define KEEPER_MS    50
#define MOST_OPEN    8    /* comparisons that nobody waits for */
#define CLEAN_EVERY  6000 /* looks of the keeper: five minutes */
#define QUICK_WIDTH  4
#define SLOW_WIDTH   3
#define DISK_WIDTH   4
#define JOBS_WIDTH   2
#define MEMORY_LIMIT ((uint64_t)96 << 20) /* resident: above it mapped pages are let go */

uint64_t ts_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* A file that is cut short while it is mapped must not end a server that others use: zeros stand in for what is gone.
 * Whatever else faults ends the program as before. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *at = (void *)((uintptr_t)info->si_addr & ~(uintptr_t)(page - 1));
    (void)context;
    if (info->si_addr && mmap(at, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at)
        return;
    signal(number, SIG_DFL);
    raise(number);
}

static uint64_t resident_bytes(void)
{
#if defined(__APPLE__)
    struct mach_task_basic_info info;
    mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
    if (task_info(mach_task_self(), MACH_TASK_BASIC_INFO, (task_info_t)&info, &count) == KERN_SUCCESS)
        return (uint64_t)info.resident_size;
#elif TS_LINUX
    unsigned long long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    int found = file ? fscanf(file, "%llu %llu", &total, &resident) : 0;
    if (file)
        fclose(file);
    if (found == 2)
        return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
#endif
    return UINT64_MAX; /* unknown here: let go of pages every now and then */
}

/* Closes what nobody has asked for lately, and the one that rested longest while too many are open. */
static void close_resting(struct ts_server *server, bool forget)
{
    struct ts_workspace *longest = NULL;
    size_t open = 0;
    uint64_t now = ts_now_ms(), longest_ms = UINT64_MAX;
    pthread_mutex_lock(&server->store.lock);
    for (struct ts_workspace *one = server->store.first; one; one = one->next) {
        pthread_mutex_lock(&one->lock);
        for (size_t i = 0; forget && i < one->forming_count; i++)
            ts_source_forget(one->forming[i], 0, one->forming[i]->size);
        if (ts_workspace_rests(one, now)) {
            ts_job_forget(one, true);
        } else if (one->opened) {
            open++;
            if (forget)
                ts_opened_forget_pages(one->opened);
            if (one->touched_ms < longest_ms) {
                longest = one;
                longest_ms = one->touched_ms;
            }
        }
        pthread_mutex_unlock(&one->lock);
    }
    if (open > MOST_OPEN) {
        pthread_mutex_lock(&longest->lock);
        ts_job_forget(longest, true);
        pthread_mutex_unlock(&longest->lock);
    }
    pthread_mutex_unlock(&server->store.lock);
}

static void *keep(void *argument)
{
    struct ts_server *server = argument;
    const struct timespec pause = {.tv_nsec = KEEPER_MS * 1000000L};
    for (unsigned turn = 1; !atomic_load(&server->stopping); turn++) {
        nanosleep(&pause, NULL);
        ts_events_wake(server);
        if (resident_bytes() > MEMORY_LIMIT) {
            close_resting(server, true);
#if TS_LINUX && defined(__GLIBC__)
            if (turn % 20 == 0)
                malloc_trim(0);
#endif
        } else if (turn % 10 == 0) {
            close_resting(server, false);
        }
        if (turn % CLEAN_EVERY == 0)
            ts_store_clean(server);
    }
    return NULL;
}

static bool same_path(const char *a, const char *b)
{
    return (!a && !b) || (a && b && strcmp(a, b) == 0);
}

/* The paths of the command line: the workspace that has them from an earlier time, or a new one; it starts at once. */
static enum ts_status open_paths(struct ts_server *server, const struct ts_serve_options *options,
                                 struct ts_workspace **out, struct ts_error *error)
{
    const char *paths[2] = {NULL, NULL};
    char *real[2] = {NULL, NULL};
    struct ts_workspace *found;
    enum ts_status status = TS_OK;
    for (unsigned i = 0; i < 2; i++)
        if (options->paths[i]) { /* hf:// stays as it is */
            real[i] = realpath(options->paths[i], NULL);
            paths[i] = real[i] ? real[i] : options->paths[i];
        }
    for (found = server->store.first; found; found = found->next)
        if (same_path(found->paths[0], paths[0]) && same_path(found->paths[1], paths[1]))
            break;
    if (found)
        ts_workspace_hold(found);
    else
        status = ts_workspace_new(server, paths, &found, error);
    if (status == TS_OK) {
        pthread_mutex_lock(&found->lock);
        status = ts_job_start(found, found->options ? NULL : "{}", error);
        pthread_mutex_unlock(&found->lock);
    }
    for (unsigned i = 0; i < 2; i++)
        server->paths[i] = real[i] ? real[i] : paths[i] ? strdup(paths[i]) : NULL;
    *out = found;
    return status;
}

static void make_url(struct ts_server *server, const struct ts_workspace *workspace)
{
    bool six = strchr(server->host, ':') != NULL;
    const char *host =
        strcmp(server->host, "0.0.0.0") == 0 || strcmp(server->host, "::") == 0 ? "localhost" : server->host;
    six = six && host == server->host;
    snprintf(server->url, sizeof server->url, "http://%s%s%s:%u/%s%s%s%s", six ? "[" : "", host, six ? "]" : "",
             server->port, server->token ? "?token=" : "", server->token ? server->token : "", workspace ? "#/w/" : "",
             workspace ? workspace->id : "");
}

static bool is_local(const char *host)
{
    return strcmp(host, "127.0.0.1") == 0 || strcmp(host, "::1") == 0 || strcmp(host, "localhost") == 0;
}

static enum ts_status start(struct ts_server *server, const struct ts_serve_options *options, struct ts_error *error)
{
    static const unsigned widths[TS_LANES] = {QUICK_WIDTH, SLOW_WIDTH, DISK_WIDTH, JOBS_WIDTH};
    struct sigaction bus = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    struct ts_workspace *workspace = NULL;
    enum ts_status status;
    signal(SIGPIPE, SIG_IGN);
    sigaction(SIGBUS, &bus, NULL);
#if TS_LINUX && defined(__GLIBC__)
    mallopt(M_ARENA_MAX, 2); /* memory that one thread gave back serves the others */
#endif
    for (unsigned i = 0; i < TS_LANES; i++)
        if (!(server->lanes[i] = ts_lane_new(widths[i], i == TS_LANE_JOBS ? 32 : 512)))
            return ts_fail_memory(error);
    TS_TRY(ts_store_open(server, options->workspaces, error));
    ts_store_clean(server);
    if (options->paths[0]) {
        status = open_paths(server, options, &workspace, error);
        if (status != TS_OK) {
            ts_workspace_drop(workspace);
            return status;
        }
    }
    status = ts_http_start(server, options, error);
    if (status == TS_OK)
        make_url(server, workspace);
    ts_workspace_drop(workspace);
    TS_TRY(status);
    server->keeper_runs = ts_thread_start(&server->keeper, keep, server);
    return server->keeper_runs ? TS_OK : ts_fail_memory(error);
}

enum ts_status ts_serve_start(const struct ts_serve_options *options, struct ts_server **out, struct ts_error *error)
{
    struct ts_server *server = calloc(1, sizeof *server);
    enum ts_status status;
    *out = NULL;
    if (!server)
        return ts_fail_memory(error);
    snprintf(server->host, sizeof server->host, "%s", options->host ? options->host : "127.0.0.1");
    server->local = is_local(server->host);
    server->upload_limit = options->upload_limit;
    server->keep_days = options->keep_days;
    server->keep_bytes = options->keep_bytes;
    pthread_mutex_init(&server->streams.lock, NULL);
    pthread_mutex_init(&server->tiles.lock, NULL);
    server->token = options->token ? strdup(options->token) : NULL;
    status = options->token && !server->token ? ts_fail_memory(error) : start(server, options, error);
    if (status == TS_OK)
        *out = server;
    else
        ts_serve_stop(server);
    return status;
}

const char *ts_serve_url(const struct ts_server *server)
{
    return server->url;
}

void ts_serve_stop(struct ts_server *server)
{
    MHD_socket at = MHD_INVALID_SOCKET;
    if (!server)
        return;
    atomic_store(&server->stopping, true);
    if (server->store.folder) {
        pthread_mutex_lock(&server->store.lock);
        for (struct ts_workspace *one = server->store.first; one; one = one->next)
            ts_job_cancel(one);
        pthread_mutex_unlock(&server->store.lock);
    }
    if (server->keeper_runs)
        pthread_join(server->keeper, NULL);
    if (server->daemon)
        at = MHD_quiesce_daemon(server->daemon);
    /* what sleeps is answered and wakes: no connection may sleep when the daemon stops */
    for (unsigned i = TS_LANES; i-- > 0;) /* comparisons first: calls that wait for them go on to the others */
        ts_lane_close(server->lanes[i]);
    ts_events_wake(server);
    if (server->daemon)
        MHD_stop_daemon(server->daemon);
    if (at != MHD_INVALID_SOCKET)
        close(at);
    if (server->store.folder)
        ts_store_clean(server);
    for (unsigned i = 0; i < TS_LANES; i++)
        ts_lane_free(server->lanes[i]);
    ts_store_close(&server->store);
    ts_tile_cache_release(&server->tiles);
    pthread_mutex_destroy(&server->streams.lock);
    pthread_mutex_destroy(&server->tiles.lock);
    free(server->token);
    free(server->paths[0]);
    free(server->paths[1]);
    free(server);
}
