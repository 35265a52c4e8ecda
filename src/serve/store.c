/* Owns the list of workspaces: found again at the start, made, cleaned up. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "io/source.h"
#include "serve/files.h"
#include "serve/server.h"
#include "serve/workspace.h"

static uint64_t now_seconds(void)
{
    return (uint64_t)time(NULL);
}

static bool is_id(const char *text)
{
    if (text[0] != 'w' || strlen(text) != TS_WORKSPACE_ID)
        return false;
    return strspn(text + 1, "0123456789abcdef") == TS_WORKSPACE_ID - 1;
}

static struct ts_workspace *make(struct ts_server *server, const char *id)
{
    struct ts_workspace *workspace = calloc(1, sizeof *workspace);
    if (!workspace)
        return NULL;
    workspace->server = server;
    snprintf(workspace->id, sizeof workspace->id, "%s", id);
    atomic_init(&workspace->holders, 1);
    pthread_mutex_init(&workspace->lock, NULL);
    workspace->created = workspace->used = now_seconds();
    return workspace;
}

/* Newest first. */
static void add(struct ts_store *store, struct ts_workspace *workspace)
{
    struct ts_workspace **at = &store->first;
    while (*at && (*at)->created > workspace->created)
        at = &(*at)->next;
    workspace->next = *at;
    *at = workspace;
    store->count++;
}

static enum ts_status take_text(struct ts_json *json, struct ts_arena *arena, char **out, struct ts_error *error)
{
    const char *text;
    TS_TRY(ts_json_next(json, error));
    if (json->kind != TS_JSON_STRING)
        return ts_json_skip_value(json, error);
    TS_TRY(ts_json_copy(json, arena, &text, error));
    free(*out);
    *out = strdup(text);
    return *out ? TS_OK : ts_fail_memory(error);
}

/* A text that is cut where it does not fit. */
static enum ts_status take_short(struct ts_json *json, struct ts_arena *arena, char *out, size_t size,
                                 struct ts_error *error)
{
    const char *text;
    TS_TRY(ts_json_next(json, error));
    if (json->kind != TS_JSON_STRING)
        return ts_json_skip_value(json, error);
    TS_TRY(ts_json_copy(json, arena, &text, error));
    snprintf(out, size, "%s", text);
    return TS_OK;
}

/* The comparison itself is made again when somebody looks at it. */
static void take_state(struct ts_workspace *workspace, const char *state)
{
    if (strcmp(state, "done") == 0 && workspace->options)
        workspace->state = TS_STATE_DONE;
    if (strcmp(state, "failed") == 0)
        workspace->state = TS_STATE_FAILED;
    if (strcmp(state, "busy") == 0) { /* not begun by itself: it may be what ended the server */
        workspace->state = TS_STATE_FAILED;
        ts_workspace_cut_short(workspace);
    }
}

static enum ts_status take_fields(struct ts_workspace *workspace, struct ts_json *json, struct ts_arena *arena,
                                  struct ts_error *error)
{
    char state[16] = "";
    TS_TRY(ts_json_expect(json, TS_JSON_OBJECT, "an object", error));
    for (;;) {
        TS_TRY(ts_json_next(json, error));
        if (json->kind == TS_JSON_OBJECT_END) {
            take_state(workspace, state);
            return TS_OK;
        }
        if (ts_json_equals(json, "created") || ts_json_equals(json, "used")) {
            uint64_t *target = ts_json_equals(json, "used") ? &workspace->used : &workspace->created;
            TS_TRY(ts_json_expect(json, TS_JSON_NUMBER, "a time", error));
            TS_TRY(ts_json_uint64(json, target, error));
        } else if (ts_json_equals(json, "a")) {
            TS_TRY(take_text(json, arena, &workspace->paths[0], error));
        } else if (ts_json_equals(json, "b")) {
            TS_TRY(take_text(json, arena, &workspace->paths[1], error));
        } else if (ts_json_equals(json, "options")) {
            TS_TRY(take_text(json, arena, &workspace->options, error));
        } else if (ts_json_equals(json, "state")) {
            TS_TRY(take_short(json, arena, state, sizeof state, error));
        } else if (ts_json_equals(json, "message")) {
            TS_TRY(take_short(json, arena, workspace->message, sizeof workspace->message, error));
        } else if (ts_json_equals(json, "fix")) {
            TS_TRY(take_short(json, arena, workspace->fix, sizeof workspace->fix, error));
        } else if (ts_json_equals(json, "swapped")) {
            TS_TRY(ts_json_next(json, error));
            workspace->swapped = json->kind == TS_JSON_TRUE;
        } else {
            TS_TRY(ts_json_skip_value(json, error));
        }
    }
}

/* A workspace that an earlier server left. */
static void load(struct ts_server *server, const char *id)
{
    struct ts_workspace *workspace;
    struct ts_source *source;
    struct ts_arena arena;
    struct ts_json json;
    struct ts_error error;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s/workspace.json", server->store.folder, id);
    if (ts_source_open(path, &source, &error) != TS_OK)
        return;
    workspace = make(server, id);
    ts_arena_init(&arena, (size_t)64 << 20);
    ts_json_init(&json, source->data, (size_t)source->size);
    if (workspace && take_fields(workspace, &json, &arena, &error) == TS_OK) {
        workspace->saved = workspace->used;
        add(&server->store, workspace);
    } else {
        ts_workspace_drop(workspace);
    }
    ts_arena_release(&arena);
    ts_source_release(source);
}

enum ts_status ts_store_open(struct ts_server *server, const char *folder, struct ts_error *error)
{
    struct ts_store *store = &server->store;
    const struct dirent *entry;
    DIR *list;
    pthread_mutex_init(&store->lock, NULL);
    if (!ts_make_folders(folder))
        return ts_fail_errno(error, errno, "cannot make the folder \"%s\" for workspaces; give another --workspaces",
                             folder);
    store->folder = realpath(folder, NULL);
    list = store->folder ? opendir(store->folder) : NULL;
    if (!list)
        return ts_fail_errno(error, errno, "cannot read the folder \"%s\" of workspaces", folder);
    while ((entry = readdir(list))) {
        char gone[4200];
        if (is_id(entry->d_name) && store->count < TS_MOST_WORKSPACES)
            load(server, entry->d_name);
        if (strncmp(entry->d_name, "gone-", 5) == 0 && is_id(entry->d_name + 5)) { /* a removal that was cut short */
            snprintf(gone, sizeof gone, "%s/%s", store->folder, entry->d_name);
            ts_remove_tree(gone);
        }
    }
    closedir(list);
    return TS_OK;
}

void ts_store_close(struct ts_store *store)
{
    while (store->first) {
        struct ts_workspace *workspace = store->first;
        store->first = workspace->next;
        ts_workspace_drop(workspace);
    }
    if (store->folder)
        pthread_mutex_destroy(&store->lock);
    free(store->folder);
    store->folder = NULL;
}

struct ts_workspace *ts_workspace_find(struct ts_server *server, const char *id)
{
    struct ts_workspace *found;
    pthread_mutex_lock(&server->store.lock);
    for (found = server->store.first; found; found = found->next)
        if (strcmp(found->id, id) == 0) {
            ts_workspace_hold(found);
            break;
        }
    pthread_mutex_unlock(&server->store.lock);
    return found;
}

/* 128 bits that nobody can guess. */
static bool make_id(char id[TS_WORKSPACE_ID + 1])
{
    unsigned char bytes[16];
    int random = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    bool good = random >= 0 && read(random, bytes, sizeof bytes) == (ssize_t)sizeof bytes;
    if (random >= 0)
        close(random);
    id[0] = 'w';
    for (size_t i = 0; good && i < sizeof bytes; i++)
        snprintf(id + 1 + 2 * i, 3, "%02x", bytes[i]);
    return good;
}

enum ts_status ts_workspace_new(struct ts_server *server, const char *const paths[2], struct ts_workspace **out,
                                struct ts_error *error)
{
    struct ts_store *store = &server->store;
    struct ts_workspace *workspace;
    char id[TS_WORKSPACE_ID + 1], path[4096];
    enum ts_status status;
    if (store->count >= TS_MOST_WORKSPACES)
        return ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "there are %d workspaces already; delete some",
                       TS_MOST_WORKSPACES);
    if (!make_id(id))
        return ts_fail_errno(error, errno, "cannot read /dev/urandom");
    snprintf(path, sizeof path, "%s/%s", store->folder, id);
    if (mkdir(path, 0700) != 0)
        return ts_fail_errno(error, errno, "cannot make the folder \"%s\"", path);
    workspace = make(server, id);
    if (!workspace)
        return ts_fail_memory(error);
    for (unsigned i = 0; paths && i < 2; i++)
        if (paths[i] && !(workspace->paths[i] = strdup(paths[i]))) {
            ts_workspace_drop(workspace);
            return ts_fail_memory(error);
        }
    status = ts_workspace_save(workspace, error);
    if (status != TS_OK) {
        ts_remove_tree(path);
        ts_workspace_drop(workspace);
        return status;
    }
    ts_workspace_hold(workspace);
    pthread_mutex_lock(&store->lock);
    add(store, workspace);
    pthread_mutex_unlock(&store->lock);
    *out = workspace;
    return TS_OK;
}

/* The one that was not used for the longest time and does nothing now; held. */
static struct ts_workspace *oldest(struct ts_store *store)
{
    struct ts_workspace *found = NULL;
    pthread_mutex_lock(&store->lock);
    for (struct ts_workspace *one = store->first; one; one = one->next) {
        pthread_mutex_lock(&one->lock);
        if (one->state != TS_STATE_BUSY && !one->opened && !one->uploads && (!found || one->used < found->used))
            found = one;
        pthread_mutex_unlock(&one->lock);
    }
    if (found)
        ts_workspace_hold(found);
    pthread_mutex_unlock(&store->lock);
    return found;
}

/* Less than a tenth of the disk and less than 2 GB are free. */
static bool disk_is_full(const char *folder)
{
    struct statvfs disk;
    uint64_t left;
    if (statvfs(folder, &disk) != 0)
        return false;
    left = (uint64_t)disk.f_bavail * disk.f_frsize;
    return left < (uint64_t)2000000000 && left < (uint64_t)disk.f_blocks * disk.f_frsize / 10;
}

/* What was uploaded, all together, is more than is to be kept. */
static bool is_too_much(const struct ts_server *server)
{
    struct ts_listing all;
    uint64_t bytes;
    if (!server->keep_bytes)
        return false;
    ts_list_files(server->store.folder, &all);
    bytes = all.bytes;
    ts_listing_release(&all);
    return bytes > server->keep_bytes;
}

static void save_uses(struct ts_store *store)
{
    struct ts_error ignored;
    pthread_mutex_lock(&store->lock);
    for (struct ts_workspace *one = store->first; one; one = one->next) {
        pthread_mutex_lock(&one->lock);
        if (one->used != one->saved)
            ts_workspace_save(one, &ignored);
        pthread_mutex_unlock(&one->lock);
    }
    pthread_mutex_unlock(&store->lock);
}

void ts_store_clean(struct ts_server *server)
{
    save_uses(&server->store);
    for (;;) {
        struct ts_workspace *workspace = oldest(&server->store);
        uint64_t now = now_seconds(), age = workspace && now > workspace->used ? now - workspace->used : 0;
        bool old = server->keep_days && age / 86400 >= server->keep_days;
        /* no size takes what was used within the hour, not even a full disk */
        if (!workspace || (!old && !(age > 3600 && (disk_is_full(server->store.folder) || is_too_much(server))))) {
            ts_workspace_drop(workspace);
            return;
        }
        ts_workspace_delete(workspace);
        ts_workspace_drop(workspace);
    }
}
