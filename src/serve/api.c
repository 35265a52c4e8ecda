/* Owns the list of addresses, and the handlers of workspaces. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "report/json_fields.h"
#include "serve/handlers.h"
#include "serve/job.h"
#include "serve/opened.h"
#include "serve/server.h"
#include "serve/upload.h"

static void health(struct ts_call *call)
{
    struct ts_json_writer *json = ts_call_json(call, 200);
    ts_json_begin_object(json);
    ts_field_text(json, "name", "tsleuth");
    ts_field_text(json, "version", TS_VERSION);
    ts_field_text(json, "schema", "tsleuth.api/1");
    ts_field_count(json, "upload_limit", ts_upload_limit(call->server));
    ts_json_end_object(json);
    ts_json_finish(json);
}

/* {"a": path, "b": path}: those of the command line alone. */
static enum ts_status take_paths(struct ts_call *call, struct ts_arena *arena, const char *paths[2],
                                 struct ts_error *error)
{
    const struct ts_server *server = call->server;
    struct ts_json json;
    if (!call->body.size)
        return TS_OK;
    ts_json_init(&json, call->body.data, call->body.size);
    TS_TRY(ts_json_expect(&json, TS_JSON_OBJECT, "an object", error));
    for (;;) {
        unsigned side;
        TS_TRY(ts_json_next(&json, error));
        if (json.kind == TS_JSON_OBJECT_END)
            return ts_json_expect(&json, TS_JSON_END, "the end of the body", error);
        side = ts_json_equals(&json, "b");
        if (!side && !ts_json_equals(&json, "a"))
            return ts_fail(error, TS_ERR_USAGE, json.offset, "a workspace has the sides a and b");
        TS_TRY(ts_json_expect(&json, TS_JSON_STRING, "a path", error));
        TS_TRY(ts_json_copy(&json, arena, &paths[side], error));
        if (!(server->paths[0] && strcmp(paths[side], server->paths[0]) == 0) &&
            !(server->paths[1] && strcmp(paths[side], server->paths[1]) == 0))
            return ts_fail(error, TS_ERR_USAGE, json.offset,
                           "only paths that were given to tsleuth serve can be opened; upload the file instead");
    }
}

static void new_workspace(struct ts_call *call)
{
    const char *paths[2] = {NULL, NULL};
    struct ts_workspace *workspace = NULL;
    struct ts_arena arena;
    struct ts_error error;
    struct ts_json_writer *json;
    enum ts_status status;
    ts_arena_init(&arena, 65536);
    status = take_paths(call, &arena, paths, &error);
    if (status == TS_OK)
        status = ts_workspace_new(call->server, paths, &workspace, &error);
    if (status != TS_OK) {
        ts_call_error(call, &error);
    } else {
        json = ts_call_json(call, 201);
        ts_json_begin_object(json);
        ts_field_text(json, "id", workspace->id);
        ts_field_count(json, "created", workspace->created);
        ts_json_end_object(json);
        ts_json_finish(json);
    }
    ts_workspace_drop(workspace);
    ts_arena_release(&arena);
}

static void list_workspaces(struct ts_call *call)
{
    struct ts_store *store = &call->server->store;
    struct ts_json_writer *json = ts_call_json(call, 200);
    struct ts_workspace **list;
    size_t count = 0;
    pthread_mutex_lock(&store->lock);
    list = calloc(store->count + 1, sizeof *list);
    for (struct ts_workspace *one = store->first; list && one; one = one->next)
        list[count++] = ts_workspace_hold(one);
    pthread_mutex_unlock(&store->lock);
    ts_json_begin_array(json);
    for (size_t i = 0; i < count; i++) {
        pthread_mutex_lock(&list[i]->lock);
        if (!list[i]->deleted)
            ts_workspace_json(list[i], json, false);
        pthread_mutex_unlock(&list[i]->lock);
        ts_workspace_drop(list[i]);
    }
    ts_json_end_array(json);
    ts_json_finish(json);
    free(list);
}

static void show_workspace(struct ts_call *call)
{
    struct ts_json_writer *json = ts_call_json(call, 200);
    pthread_mutex_lock(&call->workspace->lock);
    ts_workspace_json(call->workspace, json, true);
    pthread_mutex_unlock(&call->workspace->lock);
    ts_json_finish(json);
}

static void delete_workspace(struct ts_call *call)
{
    ts_workspace_delete(call->workspace);
    call->status = 204;
}

static void answer_state(struct ts_call *call, unsigned status)
{
    struct ts_json_writer *json = ts_call_json(call, status);
    ts_workspace_json(call->workspace, json, true);
    ts_json_finish(json);
}

static void run(struct ts_call *call)
{
    struct ts_workspace *workspace = call->workspace;
    const char *options = call->body.size ? call->body.data : "{}";
    struct ts_error error;
    enum ts_status status;
    if (call->body.size && strlen(options) != call->body.size) {
        ts_call_fail(call, 400, NULL, "the body holds a NUL");
        return;
    }
    if (ts_job_check(options, strlen(options), &error) != TS_OK) {
        ts_call_fail(call, 400, "see docs/api.md for the options of a run", "%s", error.message);
        return;
    }
    pthread_mutex_lock(&workspace->lock);
    status = ts_job_start(workspace, options, &error);
    if (status == TS_OK)
        answer_state(call, 202);
    pthread_mutex_unlock(&workspace->lock);
    if (status == TS_ERR_USAGE)
        ts_call_fail(call, 409, NULL, "%s", error.message);
    else if (status != TS_OK)
        ts_call_error(call, &error);
}

static void cancel(struct ts_call *call)
{
    ts_job_cancel(call->workspace);
    pthread_mutex_lock(&call->workspace->lock);
    answer_state(call, 202);
    pthread_mutex_unlock(&call->workspace->lock);
}

static void swap(struct ts_call *call)
{
    struct ts_workspace *workspace = call->workspace;
    struct ts_error error;
    char *path;
    pthread_mutex_lock(&workspace->lock);
    if (workspace->state == TS_STATE_BUSY || workspace->uploads) {
        ts_call_fail(call, 409, "wait or cancel", "the workspace is busy");
    } else {
        path = workspace->paths[0];
        workspace->paths[0] = workspace->paths[1];
        workspace->paths[1] = path;
        workspace->swapped = !workspace->swapped;
        ts_job_forget(workspace, false);
        free(workspace->options); /* maps and offsets were the other way round */
        workspace->options = NULL;
        workspace->news++;
        if (ts_workspace_save(workspace, &error) == TS_OK)
            answer_state(call, 200);
        else
            ts_call_error(call, &error);
    }
    pthread_mutex_unlock(&workspace->lock);
}

#define TENSOR "workspaces/*/tensors/*"

const struct ts_route ts_routes[] = {
    {TS_GET | TS_HEAD, "health", TS_LANE_QUICK, false, false, false, health},
    {TS_POST, "workspaces", TS_LANE_DISK, false, false, false, new_workspace},
    {TS_GET, "workspaces", TS_LANE_DISK, false, false, false, list_workspaces},
    {TS_GET, "workspaces/*", TS_LANE_DISK, true, false, false, show_workspace},
    {TS_DELETE, "workspaces/*", TS_LANE_DISK, true, false, false, delete_workspace},
    {TS_PUT, "workspaces/*/*/files/**", TS_LANE_DISK, true, false, true, ts_upload_put},
    {TS_HEAD, "workspaces/*/*/files/**", TS_LANE_DISK, true, false, false, ts_upload_head},
    {TS_DELETE, "workspaces/*/*/files/**", TS_LANE_DISK, true, false, false, ts_upload_delete},
    {TS_POST, "workspaces/*/upload", TS_LANE_DISK, true, false, true, ts_upload_form},
    {TS_POST, "workspaces/*/swap", TS_LANE_DISK, true, false, false, swap},
    {TS_POST, "workspaces/*/run", TS_LANE_DISK, true, false, false, run},
    {TS_POST, "workspaces/*/cancel", TS_LANE_QUICK, true, false, false, cancel},
    {TS_GET, "workspaces/*/events", TS_LANE_QUICK, true, false, false, ts_events_handle},
    {TS_GET, "workspaces/*/tensors", TS_LANE_QUICK, true, true, false, ts_handle_tensors},
    {TS_GET, TENSOR, TS_LANE_SLOW, true, true, false, ts_handle_tensor},
    {TS_GET, TENSOR "/values", TS_LANE_QUICK, true, true, false, ts_handle_values},
    {TS_GET, TENSOR "/tile", TS_LANE_QUICK, true, true, false, ts_handle_tile},
    {TS_GET, TENSOR "/stats", TS_LANE_SLOW, true, true, false, ts_handle_stats},
    {TS_GET, TENSOR "/worst", TS_LANE_SLOW, true, true, false, ts_handle_worst},
    {TS_GET, TENSOR "/scatter", TS_LANE_SLOW, true, true, false, ts_handle_scatter},
    {TS_GET, TENSOR "/causes", TS_LANE_SLOW, true, true, false, ts_handle_causes},
    {TS_POST, TENSOR "/remap", TS_LANE_SLOW, true, true, false, ts_handle_remap},
    {TS_GET, "workspaces/*/report", TS_LANE_SLOW, true, true, false, ts_handle_report},
    {TS_GET, "workspaces/*/report.html", TS_LANE_SLOW, true, true, false, ts_handle_report_html},
    {TS_GET, "workspaces/*/report.csv", TS_LANE_SLOW, true, true, false, ts_handle_report_csv},
    {TS_GET, "workspaces/*/report.xml", TS_LANE_SLOW, true, true, false, ts_handle_report_junit},
    {TS_GET, "workspaces/*/report.json", TS_LANE_SLOW, true, true, false, ts_handle_report_json},
    {TS_GET, "workspaces/*/map", TS_LANE_SLOW, true, true, false, ts_handle_map},
    {0, NULL, 0, false, false, false, NULL},
};
