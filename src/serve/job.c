/* Owns the run of a workspace: opens its sides, compares, judges, diagnoses, and tells those who wait. */
#include "serve/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "read/open.h"
#include "serve/files.h"
#include "serve/mappings.h"
#include "serve/opened.h"
#include "serve/options.h"
#include "serve/server.h"

struct run {
    struct ts_workspace *workspace;
    struct ts_opened *opened;
    struct ts_pool *pool;
    struct ts_arena arena;
    struct ts_run_options options;
    char inputs[2][4096];
    char *text; /* of the options */
    char map[4200], order[4200];
};

enum ts_status ts_job_check(const char *options, size_t size, struct ts_error *error)
{
    struct ts_run_options parsed;
    struct ts_arena arena;
    enum ts_status status;
    ts_arena_init(&arena, (size_t)64 << 20);
    status = ts_run_options_parse(options, size, &arena, &parsed, error);
    ts_arena_release(&arena);
    return status;
}

/* Tells people what went wrong in the names that they know. */
static void keep_error(struct ts_workspace *workspace, const struct ts_error *error)
{
    static const char *const fixes[] = {
        [TS_OK] = "",
        [TS_ERR_USAGE] = "change the options and run again",
        [TS_ERR_IO] = "look whether the file is still there and can be read",
        [TS_ERR_FORMAT] = "the file is damaged or was cut short; upload it again, or take another",
        [TS_ERR_UNSUPPORTED] = "write it in another form, for example as safetensors or npz",
        [TS_ERR_LIMIT] = "split it, or use the command line",
        [TS_ERR_MEMORY] = "close other workspaces and run again",
        [TS_ERR_CANCELLED] = "run it again",
    };
    const char *path = error->path;
    size_t folder = strlen(workspace->server->store.folder), prefix = folder + 1 + TS_WORKSPACE_ID + 3;
    char place[32] = "";
    if (strncmp(path, workspace->server->store.folder, folder) == 0 && strlen(path) > prefix)
        path += prefix; /* "FOLDER/ID/0/" */
    if (error->offset != TS_NO_OFFSET)
        snprintf(place, sizeof place, "at byte %" PRIu64 ": ", error->offset);
    if (error->status == TS_ERR_CANCELLED)
        snprintf(workspace->message, sizeof workspace->message, "cancelled");
    else
        snprintf(workspace->message, sizeof workspace->message, "%s%s%s%s%s%s", path, *path ? ": " : "", place,
                 error->tensor, error->tensor[0] ? ": " : "", error->message);
    snprintf(workspace->fix, sizeof workspace->fix, "%s", fixes[error->status]);
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* An input without a single tensor is of no use: says why nothing could be read. */
static enum ts_status open_side(struct run *run, unsigned side, struct ts_error *error)
{
    static const char *const stages[] = {"opening a", "opening b"};
    struct ts_opened *opened = run->opened;
    struct ts_bundle *bundle;
    char *name;
    atomic_store(&run->workspace->stage, stages[side]);
    TS_TRY(ts_open(run->inputs[side], NULL, &bundle, error));
    opened->bundles[side] = bundle;
    name = ts_arena_string(&bundle->arena, opened->names[side]);
    if (!name)
        return ts_fail_memory(error);
    bundle->path = name;
    if (!bundle->count) {
        const struct ts_skip *skip = bundle->skip_count ? bundle->skips : NULL;
        ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "no tensor could be read%s%s%s%.300s", skip ? ": " : "",
                skip ? base_of(skip->path) : "", skip ? ": " : "", skip ? skip->reason : "");
        return ts_error_path(error, opened->names[side]);
    }
    return TS_OK;
}

/* Maps and orders are files to the engine. */
static enum ts_status write_lists(struct run *run, struct ts_error *error)
{
    struct ts_buffer lines;
    enum ts_status status = TS_OK;
    if (run->options.map) {
        TS_TRY(ts_write_whole(run->map, run->options.map, run->options.map_size, error));
        run->options.compare.pair.map_file = run->map;
    }
    if (!run->options.order_count)
        return TS_OK;
    ts_buffer_init(&lines, (size_t)64 << 20);
    for (size_t i = 0; i < run->options.order_count; i++) {
        ts_buffer_string(&lines, run->options.order[i]);
        ts_buffer_byte(&lines, '\n');
    }
    status = lines.failed ? ts_fail_memory(error) : ts_write_whole(run->order, lines.data, lines.size, error);
    ts_buffer_release(&lines);
    run->options.compare.pair.order_file = run->order;
    return status;
}

static enum ts_status compare(struct run *run, struct ts_error *error)
{
    struct ts_opened *opened = run->opened;
    struct ts_bundle *a = opened->bundles[0], *b = opened->bundles[1];
    const struct ts_comparison *comparison = &opened->comparison;
    TS_TRY(write_lists(run, error));
    opened->bundles[0] = opened->bundles[1] = NULL;
    atomic_store(&run->workspace->stage, "pairing");
    TS_TRY(ts_comparison_run(a, b, &run->options.compare, run->pool, &opened->comparison, error));
    opened->compared = true;
    opened->bundles[0] = a;
    opened->bundles[1] = b;
    opened->tolerance = run->options.compare.delta.tolerance;
    opened->tolerance_given = run->options.compare.delta.given;
    if (comparison->judgement.first == SIZE_MAX)
        return TS_OK;
    atomic_store(&run->workspace->stage, "diagnosing");
    TS_TRY(ts_diagnose(comparison->pairing.pairs, comparison->deltas, comparison->pairing.count,
                       comparison->judgement.first, &opened->diagnosis, error));
    opened->diagnosed = true;
    return TS_OK;
}

/* One side alone: statistics and health. */
static enum ts_status examine(struct run *run, const struct ts_bundle *bundle, struct ts_error *error)
{
    struct ts_opened *opened = run->opened;
    struct ts_progress progress;
    uint64_t bytes = 0;
    enum ts_status status;
    opened->stats = calloc(bundle->count, sizeof *opened->stats);
    if (!opened->stats)
        return ts_fail_memory(error);
    for (size_t i = 0; i < bundle->count; i++)
        bytes += bundle->tensors[i]->bytes;
    atomic_store(&run->workspace->stage, "comparing");
    ts_progress_start(&progress, "statistics", bytes);
    status = ts_stats_run(run->pool, bundle->tensors, bundle->count, opened->stats, &progress, error);
    ts_progress_finish(&progress);
    TS_TRY(status);
    atomic_store(&run->workspace->stage, "judging");
    ts_progress_start(&progress, "checking", bytes);
    status = ts_check_run(run->pool, bundle, opened->stats, &progress, &opened->check, error);
    ts_progress_finish(&progress);
    return status;
}

/* The sources of both sides, for whoever looks after memory while the run works. */
static void show_sources(struct run *run)
{
    struct ts_workspace *workspace = run->workspace;
    struct ts_source **list;
    size_t count = 0;
    for (unsigned side = 0; side < 2; side++)
        count += run->opened->bundles[side] ? run->opened->bundles[side]->source_count : 0;
    list = calloc(count + 1, sizeof *list);
    if (!list)
        return;
    count = 0;
    for (unsigned side = 0; side < 2; side++)
        for (size_t i = 0; run->opened->bundles[side] && i < run->opened->bundles[side]->source_count; i++)
            list[count++] = ts_source_retain(run->opened->bundles[side]->sources[i]);
    pthread_mutex_lock(&workspace->lock);
    workspace->forming = list;
    workspace->forming_count = count;
    pthread_mutex_unlock(&workspace->lock);
}

static void hide_sources(struct ts_workspace *workspace)
{
    struct ts_source **list;
    size_t count;
    pthread_mutex_lock(&workspace->lock);
    list = workspace->forming;
    count = workspace->forming_count;
    workspace->forming = NULL;
    workspace->forming_count = 0;
    pthread_mutex_unlock(&workspace->lock);
    for (size_t i = 0; i < count; i++)
        ts_source_release(list[i]);
    free(list);
}

static enum ts_status work(struct run *run, struct ts_error *error)
{
    TS_TRY(ts_run_options_parse(run->text, strlen(run->text), &run->arena, &run->options, error));
    for (unsigned side = 0; side < 2; side++)
        if (run->inputs[side][0])
            TS_TRY(open_side(run, side, error));
    show_sources(run);
    if (run->opened->bundles[0] && run->opened->bundles[1])
        TS_TRY(compare(run, error));
    else if (run->opened->bundles[0] || run->opened->bundles[1])
        TS_TRY(examine(run, run->opened->bundles[run->opened->bundles[0] ? 0 : 1], error));
    else
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "there is nothing in this workspace yet");
    TS_TRY(ts_opened_prepare(run->opened, error));
    return ts_mappings_load(run->workspace, run->opened, error);
}

/* Wakes everybody who waits for the end of the run. */
static void release_waiting(struct ts_workspace *workspace)
{
    struct ts_call *waiting = workspace->waiting;
    workspace->waiting = NULL;
    pthread_mutex_unlock(&workspace->lock);
    while (waiting) {
        struct ts_call *next = (struct ts_call *)waiting->task.next;
        ts_call_continue(waiting);
        waiting = next;
    }
}

static void finish(struct run *run, enum ts_status status, const struct ts_error *error)
{
    struct ts_workspace *workspace = run->workspace;
    struct ts_error ignored;
    pthread_mutex_lock(&workspace->lock);
    if (status == TS_OK && !workspace->deleted) {
        workspace->opened = run->opened;
        run->opened = NULL;
        workspace->state = TS_STATE_DONE;
    } else {
        if (status != TS_OK)
            keep_error(workspace, error);
        if (status == TS_ERR_CANCELLED && atomic_load(&workspace->server->stopping))
            ts_workspace_cut_short(workspace);
        workspace->state = TS_STATE_FAILED;
    }
    ts_workspace_save(workspace, &ignored);
    workspace->touched_ms = ts_now_ms();
    workspace->news++;
    release_waiting(workspace);
}

static void run_job(struct ts_task *task)
{
    struct ts_workspace *workspace = (struct ts_workspace *)(void *)((char *)task - offsetof(struct ts_workspace, job));
    struct run *run = calloc(1, sizeof *run);
    struct ts_error error;
    enum ts_status status;
    if (!run || !(run->opened = ts_opened_new()) || !(run->pool = ts_pool_new(0))) {
        struct run nothing = {.workspace = workspace};
        status = ts_fail_memory(&error);
        finish(&nothing, status, &error);
        ts_opened_drop(run ? run->opened : NULL);
        free(run);
        ts_workspace_drop(workspace);
        return;
    }
    run->workspace = workspace;
    ts_arena_init(&run->arena, (size_t)64 << 20);
    pthread_mutex_lock(&workspace->lock);
    for (unsigned side = 0; side < 2; side++) {
        ts_workspace_input(workspace, side, run->inputs[side], sizeof run->inputs[side]);
        ts_workspace_name(workspace, side, run->opened->names[side], sizeof run->opened->names[side]);
    }
    run->text = strdup(workspace->options);
    pthread_mutex_unlock(&workspace->lock);
    snprintf(run->map, sizeof run->map, "%s/%s/map.json", workspace->server->store.folder, workspace->id);
    snprintf(run->order, sizeof run->order, "%s/%s/order.txt", workspace->server->store.folder, workspace->id);
    ts_watched = &workspace->watch;
    status = !run->text                                 ? ts_fail_memory(&error)
             : atomic_load(&workspace->watch.cancelled) ? ts_fail(&error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted")
                                                        : work(run, &error);
    ts_watched = NULL;
    hide_sources(workspace);
    ts_opened_forget_pages(run->opened);
    finish(run, status, &error);
    ts_opened_drop(run->opened);
    ts_pool_free(run->pool);
    ts_arena_release(&run->arena);
    free(run->text);
    free(run);
    ts_workspace_drop(workspace);
}

enum ts_status ts_job_start(struct ts_workspace *workspace, const char *options, struct ts_error *error)
{
    enum ts_workspace_state before = workspace->state;
    enum ts_status status;
    char input[4096], *copy;
    bool filled = false;
    if (workspace->state == TS_STATE_BUSY)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "a run is under way; cancel it first");
    for (unsigned side = 0; side < 2; side++)
        filled = (ts_workspace_input(workspace, side, input, sizeof input) && input[0]) || filled;
    if (!filled)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "there is nothing in this workspace yet; upload something");
    if (options) {
        copy = strdup(options);
        if (!copy)
            return ts_fail_memory(error);
        free(workspace->options);
        workspace->options = copy;
    }
    workspace->used = (uint64_t)time(NULL);
    workspace->state = TS_STATE_BUSY; /* in the file too: a server that dies in the middle finds it there */
    status = ts_workspace_save(workspace, error);
    if (status != TS_OK) {
        workspace->state = before;
        return status;
    }
    ts_opened_drop(workspace->opened);
    workspace->opened = NULL;
    workspace->message[0] = workspace->fix[0] = '\0';
    atomic_store(&workspace->watch.cancelled, false);
    atomic_store(&workspace->watch.label, NULL);
    atomic_store(&workspace->watch.done, 0);
    atomic_store(&workspace->watch.total, 0);
    atomic_store(&workspace->stage, "waiting");
    workspace->news++;
    workspace->job.run = run_job;
    ts_workspace_hold(workspace);
    if (ts_lane_push(workspace->server->lanes[TS_LANE_JOBS], &workspace->job))
        return TS_OK;
    workspace->state = TS_STATE_IDLE;
    ts_workspace_save(workspace, error);      /* what is told below matters more than whether this worked */
    atomic_fetch_sub(&workspace->holders, 1); /* the caller holds it too */
    return ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "too many runs wait already; try again later");
}

void ts_job_cancel(struct ts_workspace *workspace)
{
    atomic_store(&workspace->watch.cancelled, true);
}

void ts_job_forget(struct ts_workspace *workspace, bool keep_state)
{
    struct ts_error ignored;
    ts_opened_drop(workspace->opened);
    workspace->opened = NULL;
    if (keep_state)
        return;
    ts_mappings_forget(workspace);
    if (workspace->state == TS_STATE_IDLE)
        return;
    workspace->state = TS_STATE_IDLE;
    ts_workspace_save(workspace, &ignored); /* what it says would be of other inputs */
}
