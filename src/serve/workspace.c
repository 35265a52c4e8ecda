/* Owns one workspace: its folder, its JSON file, what its sides are. */
#include "serve/workspace.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "report/json_fields.h"
#include "serve/files.h"
#include "serve/job.h"
#include "serve/opened.h"
#include "serve/server.h"
#include "serve/upload.h"

#define REST_MS ((uint64_t)10 * 60 * 1000) /* without a request for so long, a comparison is closed */

struct ts_workspace *ts_workspace_hold(struct ts_workspace *workspace)
{
    atomic_fetch_add(&workspace->holders, 1);
    return workspace;
}

void ts_workspace_drop(struct ts_workspace *workspace)
{
    if (!workspace || atomic_fetch_sub(&workspace->holders, 1) != 1)
        return;
    ts_opened_drop(workspace->opened);
    pthread_mutex_destroy(&workspace->lock);
    for (unsigned i = 0; i < 2; i++)
        free(workspace->paths[i]);
    free(workspace->options);
    free(workspace);
}

bool ts_workspace_folder(const struct ts_workspace *workspace, unsigned side, bool part, char *out, size_t size)
{
    unsigned number = side ^ (unsigned)workspace->swapped;
    int length =
        snprintf(out, size, "%s/%s/%u%s", workspace->server->store.folder, workspace->id, number, part ? ".part" : "");
    return length > 0 && (size_t)length < size;
}

/* The only entry of a folder; "" when there are several or none. */
static size_t only_entry(const char *path, char *out, size_t size)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    size_t count = 0;
    out[0] = '\0';
    if (!folder)
        return 0;
    while (count < 2 && (entry = readdir(folder)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            snprintf(out, size, "%s", entry->d_name);
            count++;
        }
    closedir(folder);
    return count;
}

bool ts_workspace_input(const struct ts_workspace *workspace, unsigned side, char *out, size_t size)
{
    char entry[260];
    size_t length, entries;
    out[0] = '\0';
    if (workspace->paths[side])
        return snprintf(out, size, "%s", workspace->paths[side]) < (int)size;
    if (!ts_workspace_folder(workspace, side, false, out, size))
        return false;
    entries = only_entry(out, entry, sizeof entry);
    length = strlen(out);
    if (entries == 0)
        out[0] = '\0';
    else if (entries == 1)
        return snprintf(out + length, size - length, "/%s", entry) < (int)(size - length);
    return true;
}

void ts_workspace_name(const struct ts_workspace *workspace, unsigned side, char *out, size_t size)
{
    char path[4096], entry[260];
    if (workspace->paths[side]) {
        snprintf(out, size, "%s", workspace->paths[side]);
        return;
    }
    out[0] = '\0';
    if (!ts_workspace_folder(workspace, side, false, path, sizeof path))
        return;
    switch (only_entry(path, entry, sizeof entry)) {
    case 0:
        break;
    case 1:
        snprintf(out, size, "%s", entry);
        break;
    default:
        snprintf(out, size, "uploaded files");
    }
}

static const char *const states[] = {"ready", "busy", "done", "failed"};

void ts_workspace_cut_short(struct ts_workspace *workspace)
{
    snprintf(workspace->message, sizeof workspace->message, "the server ended before the run did");
    snprintf(workspace->fix, sizeof workspace->fix, "run it again");
}

static void saved_json(const struct ts_workspace *workspace, struct ts_json_writer *json)
{
    ts_json_begin_object(json);
    ts_field_text(json, "schema", "tsleuth.workspace/1");
    ts_field_count(json, "created", workspace->created);
    ts_field_count(json, "used", workspace->used);
    ts_field_text(json, "a", workspace->paths[0]);
    ts_field_text(json, "b", workspace->paths[1]);
    ts_field_bool(json, "swapped", workspace->swapped);
    ts_field_text(json, "options", workspace->options);
    ts_field_text(json, "state", states[workspace->state]);
    if (workspace->state == TS_STATE_FAILED) {
        ts_field_text(json, "message", workspace->message);
        ts_field_text(json, "fix", workspace->fix);
    }
    ts_json_end_object(json);
    ts_json_finish(json);
}

enum ts_status ts_workspace_save(struct ts_workspace *workspace, struct ts_error *error)
{
    struct ts_buffer text;
    struct ts_json_writer json;
    enum ts_status status;
    char path[4096];
    if (workspace->deleted)
        return TS_OK;
    ts_buffer_init(&text, (size_t)16 << 20);
    ts_json_writer_init(&json, &text, 2);
    saved_json(workspace, &json);
    snprintf(path, sizeof path, "%s/%s/workspace.json", workspace->server->store.folder, workspace->id);
    status = text.failed ? ts_fail_memory(error) : ts_write_whole(path, text.data, text.size, error);
    ts_buffer_release(&text);
    if (status == TS_OK)
        workspace->saved = workspace->used;
    return status;
}

void ts_workspace_delete(struct ts_workspace *workspace)
{
    struct ts_store *store = &workspace->server->store;
    struct ts_workspace **at;
    char path[4096], gone[4096];
    bool was_listed = false;
    pthread_mutex_lock(&store->lock);
    for (at = &store->first; *at; at = &(*at)->next)
        if (*at == workspace) {
            *at = workspace->next;
            store->count--;
            was_listed = true;
            break;
        }
    pthread_mutex_unlock(&store->lock);
    if (!was_listed)
        return;
    ts_job_cancel(workspace);
    pthread_mutex_lock(&workspace->lock);
    workspace->deleted = true;
    workspace->news++;
    ts_upload_cancel_all(workspace);
    if (workspace->state != TS_STATE_BUSY)
        ts_job_forget(workspace, false);
    snprintf(path, sizeof path, "%s/%s", store->folder, workspace->id);
    snprintf(gone, sizeof gone, "%s/gone-%s", store->folder, workspace->id);
    if (rename(path, gone) != 0)
        snprintf(gone, sizeof gone, "%s", path);
    pthread_mutex_unlock(&workspace->lock);
    ts_remove_tree(gone);
    ts_workspace_drop(workspace);
}

static void files_json(struct ts_json_writer *json, const struct ts_listing *listing, bool complete)
{
    for (size_t i = 0; i < listing->count && i < 10000; i++) {
        ts_json_begin_object(json);
        ts_field_text(json, "name", listing->files[i].name);
        ts_field_count(json, "bytes", listing->files[i].bytes);
        ts_field_bool(json, "complete", complete);
        ts_json_end_object(json);
    }
}

static uint64_t size_of(const char *path)
{
    struct stat info;
    struct ts_listing listing;
    uint64_t bytes;
    if (stat(path, &info) != 0)
        return 0;
    if (!S_ISDIR(info.st_mode))
        return (uint64_t)info.st_size;
    ts_list_files(path, &listing);
    bytes = listing.bytes;
    ts_listing_release(&listing);
    return bytes;
}

/* A side: its name, its bytes, its files. Tells whether there is something to open. */
static bool side_json(struct ts_workspace *workspace, unsigned side, struct ts_json_writer *json, bool files)
{
    struct ts_listing whole = {0}, part = {0};
    char path[4096], name[4096];
    bool filled = false;
    ts_json_key(json, side ? "b" : "a");
    ts_workspace_name(workspace, side, name, sizeof name);
    if (!workspace->paths[side]) {
        if (ts_workspace_folder(workspace, side, false, path, sizeof path))
            ts_list_files(path, &whole);
        if (ts_workspace_folder(workspace, side, true, path, sizeof path))
            ts_list_files(path, &part);
        filled = whole.count > 0;
        if (!whole.count && !part.count) {
            ts_json_null(json);
            return false;
        }
    } else {
        filled = true;
    }
    ts_json_begin_object(json);
    ts_field_text(json, "name", name[0] ? name : part.files[0].name);
    ts_field_count(json, "bytes", workspace->paths[side] ? size_of(workspace->paths[side]) : whole.bytes + part.bytes);
    ts_field_text(json, "state", part.count ? "uploading" : "ready");
    ts_field_bool(json, "local", workspace->paths[side] != NULL);
    ts_field_count(json, "count", whole.count + part.count);
    if (files) {
        ts_json_key(json, "files");
        ts_json_begin_array(json);
        files_json(json, &whole, true);
        files_json(json, &part, false);
        ts_json_end_array(json);
    }
    ts_json_end_object(json);
    ts_listing_release(&whole);
    ts_listing_release(&part);
    return filled;
}

bool ts_workspace_rests(const struct ts_workspace *workspace, uint64_t now_ms)
{
    /* It may have been touched since the clock was read. */
    return workspace->opened && now_ms > workspace->touched_ms + REST_MS;
}

static void summary_json(const struct ts_workspace *workspace, struct ts_json_writer *json)
{
    const struct ts_opened *opened = workspace->opened;
    ts_json_key(json, "summary");
    if (!opened) {
        ts_json_null(json);
        return;
    }
    ts_json_begin_object(json);
    ts_field_bool(json, "compared", opened->compared);
    for (unsigned i = 0; i < 2; i++)
        if (opened->bundles[i])
            ts_field_count(json, i ? "tensors_b" : "tensors_a", opened->bundles[i]->count);
    if (opened->compared) {
        static const char *const outcomes[] = {"match", "differ", "incomplete"};
        ts_field_text(json, "verdict", outcomes[opened->comparison.outcome]);
        ts_field_text(json, "text", opened->comparison.outcome_text);
    }
    ts_json_end_object(json);
}

void ts_workspace_json(struct ts_workspace *workspace, struct ts_json_writer *json, bool files)
{
    bool filled;
    ts_json_begin_object(json);
    ts_field_text(json, "id", workspace->id);
    ts_field_count(json, "created", workspace->created);
    ts_field_count(json, "used", workspace->used);
    filled = side_json(workspace, 0, json, files);
    filled = side_json(workspace, 1, json, files) || filled;
    ts_field_text(json, "state", workspace->state == TS_STATE_IDLE && !filled ? "empty" : states[workspace->state]);
    if (workspace->state == TS_STATE_BUSY)
        ts_field_text(json, "stage", atomic_load(&workspace->stage));
    if (workspace->state == TS_STATE_FAILED) {
        ts_json_key(json, "error");
        ts_json_begin_object(json);
        ts_field_text(json, "message", workspace->message);
        if (workspace->fix[0])
            ts_field_text(json, "fix", workspace->fix);
        ts_json_end_object(json);
    }
    if (files)
        summary_json(workspace, json);
    ts_json_end_object(json);
}
