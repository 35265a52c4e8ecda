/* Owns uploads: names, ranges, limits, the bytes, and the moment when a file is complete. */
#include "serve/upload.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/system.h"
#include "base/text.h"
#include "report/json_fields.h"
#include "serve/files.h"
#include "serve/job.h"
#include "serve/server.h"

#define COMPONENT_MOST 255
#define DEPTH_MOST     32
#define FORM_FILES     1000

/* One file that is written. */
struct target {
    int file; /* -1: none */
    char *name, *part, *whole;
    unsigned side;
    uint64_t at, total; /* next byte; all of them, UINT64_MAX when that is unknown */
    uint64_t unflushed;
};

struct ts_upload {
    struct ts_upload *next; /* in the workspace */
    pthread_mutex_t lock;   /* held while bytes are written */
    bool cancelled, listed;
    unsigned side;
    struct target target;
    uint64_t limit;
    struct MHD_PostProcessor *form; /* NULL for a raw PUT */
    struct target done[FORM_FILES]; /* of a form: waiting for the flush */
    size_t done_count;
    unsigned failed_status;
};

enum ts_status ts_upload_check_name(const char *name, struct ts_error *error)
{
    size_t length = strlen(name), depth = 0;
    if (length == 0 || length > TS_NAME_MOST)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "a file's name has 1 to %d bytes, not %zu", TS_NAME_MOST,
                       length);
    if (ts_utf8_valid_prefix(name, length) != length)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "the file's name is not UTF-8");
    if (name[0] == '/')
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "the file's name must be relative");
    for (const char *at = name;;) {
        size_t part = strcspn(at, "/");
        if (part == 0 || (part == 1 && at[0] == '.') || (part == 2 && at[0] == '.' && at[1] == '.'))
            return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET,
                           "the file's name has an empty part, \".\" or \"..\" between its slashes");
        if (part > COMPONENT_MOST)
            return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "a part of the file's name has more than %d bytes",
                           COMPONENT_MOST);
        for (size_t i = 0; i < part; i++)
            if ((unsigned char)at[i] < 0x20 || at[i] == 0x7f || at[i] == '\\')
                return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET,
                               "the file's name holds a control character or a backslash");
        if (++depth > DEPTH_MOST)
            return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "the file lies in more than %d folders", DEPTH_MOST);
        at += part;
        if (!*at)
            return TS_OK;
        at++;
    }
}

uint64_t ts_upload_limit(const struct ts_server *server)
{
    struct statvfs disk;
    uint64_t left = UINT64_MAX;
    if (statvfs(server->store.folder, &disk) == 0) {
        left = (uint64_t)disk.f_bavail * disk.f_frsize;
        left = left > 1000000000 ? left - 1000000000 : 0;
    }
    return server->upload_limit && server->upload_limit < left ? server->upload_limit : left;
}

static bool parse_side(struct ts_call *call, const char *text, unsigned *side)
{
    *side = strcmp(text, "b") == 0;
    if (*side || strcmp(text, "a") == 0)
        return true;
    ts_call_fail(call, 404, NULL, "the sides of a workspace are a and b, not \"%.20s\"", text);
    return false;
}

static bool check_name(struct ts_call *call, const char *name)
{
    struct ts_error error;
    if (ts_upload_check_name(name, &error) == TS_OK)
        return true;
    ts_call_fail(call, 400, "send a relative path, for example run1/layer_3.npy", "%s", error.message);
    return false;
}

static void close_target(struct target *target)
{
    if (target->file >= 0)
        close(target->file);
    free(target->name);
    free(target->part);
    free(target->whole);
    *target = (struct target){.file = -1};
}

/* Where the bytes of a file go until it is complete, and then. */
static bool set_paths(struct ts_call *call, struct target *target, unsigned side, const char *name)
{
    char part[4096], whole[4096];
    bool good;
    pthread_mutex_lock(&call->workspace->lock);
    good = ts_workspace_folder(call->workspace, side, true, part, sizeof part) &&
           ts_workspace_folder(call->workspace, side, false, whole, sizeof whole);
    pthread_mutex_unlock(&call->workspace->lock);
    target->side = side;
    target->name = strdup(name);
    good = good && target->name && asprintf(&target->part, "%s/%s", part, name) >= 0 &&
           asprintf(&target->whole, "%s/%s", whole, name) >= 0;
    if (!good)
        ts_call_fail(call, 503, NULL, "out of memory");
    return good;
}

static void fail_disk(struct ts_call *call, int number)
{
    if (number == ENOSPC || number == EDQUOT)
        ts_call_fail(call, 507, "delete workspaces or free space, then go on", "the disk is full");
    else if (number == ENOTDIR || number == EISDIR || number == EEXIST)
        ts_call_fail(call, 409, NULL, "a file and a folder would have the same name");
    else
        ts_call_fail(call, 500, NULL, "the file cannot be written: %s", strerror(number));
}

static bool open_target(struct ts_call *call, struct target *target, uint64_t first)
{
    struct stat info;
    int number = ENOENT;
    pthread_mutex_lock(&call->workspace->lock);
    if (!call->workspace->deleted) { /* its folders must not come back */
        if (ts_make_parents(target->part))
            target->file = open(target->part, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        number = errno;
    }
    pthread_mutex_unlock(&call->workspace->lock);
    if (target->file < 0) {
        fail_disk(call, number);
        return false;
    }
    if (fstat(target->file, &info) != 0) {
        fail_disk(call, errno);
        return false;
    }
    if ((uint64_t)info.st_size < first) {
        ts_call_header(call, "X-Tsleuth-Received", "%" PRIu64, (uint64_t)info.st_size);
        ts_call_fail(call, 409, "go on where X-Tsleuth-Received says",
                     "%" PRIu64 " bytes are there, the range begins at %" PRIu64, (uint64_t)info.st_size, first);
        return false;
    }
    if (ftruncate(target->file, (off_t)first) != 0) {
        fail_disk(call, errno);
        return false;
    }
    target->at = first;
    return true;
}

/* "bytes FIRST-LAST/TOTAL" */
static bool parse_range(const char *text, uint64_t *first, uint64_t *last, uint64_t *total)
{
    char extra;
    return strlen(text) < 80 && strspn(text, "bytes 0123456789-/") == strlen(text) &&
           sscanf(text, "bytes %" SCNu64 "-%" SCNu64 "/%" SCNu64 "%c", first, last, total, &extra) == 3 &&
           *first <= *last && *last < *total && *total < INT64_MAX;
}

static bool too_large(struct ts_call *call, uint64_t size)
{
    uint64_t limit = ts_upload_limit(call->server);
    char most[16], asked[16];
    if (size <= limit)
        return false;
    ts_call_fail(call, 413, "name the file on the command line: tsleuth serve PATH reads it where it is",
                 "the file has %s, at most %s can be uploaded", ts_human_bytes(size, asked),
                 ts_human_bytes(limit, most));
    return true;
}

/* Nobody else writes this file any more: whoever does is stopped, and the newer upload goes on. */
static void stop_others(struct ts_workspace *workspace, unsigned side, const char *name)
{
    for (struct ts_upload *one = workspace->uploads; one; one = one->next) {
        pthread_mutex_lock(&one->lock);
        if (one->target.name && one->target.side == side && strcmp(one->target.name, name) == 0)
            one->cancelled = true;
        pthread_mutex_unlock(&one->lock);
    }
}

void ts_upload_cancel_all(struct ts_workspace *workspace)
{
    for (struct ts_upload *one = workspace->uploads; one; one = one->next) {
        pthread_mutex_lock(&one->lock);
        one->cancelled = true;
        pthread_mutex_unlock(&one->lock);
    }
}

/* The workspace takes files: it is not at work, and that side is no path of this machine. */
static bool enter(struct ts_call *call, int side)
{
    struct ts_workspace *workspace = call->workspace;
    bool good = false;
    pthread_mutex_lock(&workspace->lock);
    if (workspace->deleted) {
        ts_call_fail(call, 404, NULL, "the workspace was deleted");
    } else if (workspace->state == TS_STATE_BUSY) {
        ts_call_fail(call, 409, "wait or cancel the run", "the workspace is busy");
    } else if (side >= 0 && workspace->paths[side]) {
        ts_call_fail(call, 409, "make another workspace", "this side is a path of this machine");
    } else {
        if (side >= 0)
            stop_others(workspace, (unsigned)side, call->captures[2]);
        ts_job_forget(workspace, false);
        workspace->news++;
        call->upload->next = workspace->uploads;
        workspace->uploads = call->upload;
        call->upload->listed = true;
        good = true;
    }
    pthread_mutex_unlock(&workspace->lock);
    return good;
}

static bool begin_put(struct ts_call *call)
{
    const char *range = MHD_lookup_connection_value(call->connection, MHD_HEADER_KIND, "Content-Range");
    const char *length = MHD_lookup_connection_value(call->connection, MHD_HEADER_KIND, "Content-Length");
    struct ts_upload *upload = call->upload;
    uint64_t first = 0, last = 0, total = UINT64_MAX, size = length ? strtoull(length, NULL, 10) : UINT64_MAX;
    if (!parse_side(call, call->captures[1], &upload->side) || !check_name(call, call->captures[2]))
        return false;
    if (range && (!parse_range(range, &first, &last, &total) || (length && size != last - first + 1))) {
        ts_call_fail(call, 400, "send Content-Range: bytes FIRST-LAST/TOTAL and as many bytes",
                     "the range \"%.80s\" makes no sense here", range);
        return false;
    }
    if (!range && length)
        total = size;
    upload->limit = range ? last + 1 : ts_upload_limit(call->server);
    if (total != UINT64_MAX && too_large(call, total))
        return false;
    upload->target.total = total; /* complete before others see it */
    if (!set_paths(call, &upload->target, upload->side, call->captures[2]) || !enter(call, (int)upload->side))
        return false;
    return open_target(call, &upload->target, first);
}

static bool write_bytes(struct ts_call *call, struct target *target, const char *data, size_t size)
{
    struct ts_upload *upload = call->upload;
    bool good = true;
    pthread_mutex_lock(&upload->lock);
    if (upload->cancelled) {
        ts_call_fail(call, 409, NULL, "the upload was cancelled");
        good = false;
    } else if (target->at + size > upload->limit) {
        ts_call_fail(call, 413, "name the file on the command line: tsleuth serve PATH reads it where it is",
                     "more bytes came than can be taken");
        good = false;
    }
    while (good && size) {
        ssize_t written = pwrite(target->file, data, size, (off_t)target->at);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            fail_disk(call, written < 0 ? errno : ENOSPC);
            good = false;
            break;
        }
        data += written;
        size -= (size_t)written;
        target->at += (uint64_t)written;
        target->unflushed += (uint64_t)written;
    }
    pthread_mutex_unlock(&upload->lock);
    return good;
}

/* The file that a form's bytes go to; the one before waits for its flush. Others may look at the upload. */
static void set_target(struct ts_upload *upload, const struct target *target)
{
    pthread_mutex_lock(&upload->lock);
    if (upload->target.file >= 0)
        upload->done[upload->done_count++] = upload->target;
    upload->target = *target;
    pthread_mutex_unlock(&upload->lock);
}

/* The next file of a form begins. */
static bool next_file(struct ts_call *call, const char *field, const char *filename)
{
    struct ts_upload *upload = call->upload;
    struct target target = {.file = -1, .total = UINT64_MAX};
    unsigned side;
    if (upload->done_count + 1 >= FORM_FILES) {
        ts_call_fail(call, 413, "send several forms", "a form may have at most %d files", FORM_FILES - 1);
        return false;
    }
    if (!parse_side(call, field, &side))
        return false;
    if (!filename || !*filename) {
        ts_call_fail(call, 400, "curl -F a=@FILE", "the form's field %s is no file", field);
        return false;
    }
    if (!check_name(call, filename))
        return false;
    pthread_mutex_lock(&call->workspace->lock);
    if (call->workspace->paths[side]) {
        pthread_mutex_unlock(&call->workspace->lock);
        ts_call_fail(call, 409, "make another workspace", "this side is a path of this machine");
        return false;
    }
    stop_others(call->workspace, side, filename);
    pthread_mutex_unlock(&call->workspace->lock);
    if (!set_paths(call, &target, side, filename) || !open_target(call, &target, 0)) {
        close_target(&target);
        return false;
    }
    set_target(upload, &target);
    return true;
}

static enum MHD_Result take_form(void *context, enum MHD_ValueKind kind, const char *key, const char *filename,
                                 const char *type, const char *encoding, const char *data, uint64_t offset, size_t size)
{
    struct ts_call *call = context;
    struct ts_upload *upload = call->upload;
    (void)kind;
    (void)type;
    (void)encoding;
    if (offset == 0 && !next_file(call, key ? key : "", filename)) {
        upload->failed_status = call->status;
        return MHD_NO;
    }
    if (size && !write_bytes(call, &upload->target, data, size)) {
        upload->failed_status = call->status;
        return MHD_NO;
    }
    return MHD_YES;
}

static bool begin_form(struct ts_call *call)
{
    const char *length = MHD_lookup_connection_value(call->connection, MHD_HEADER_KIND, "Content-Length");
    call->upload->limit = ts_upload_limit(call->server);
    if (length && too_large(call, strtoull(length, NULL, 10)))
        return false;
    if (!enter(call, -1))
        return false;
    call->upload->form = MHD_create_post_processor(call->connection, 65536, take_form, call);
    if (!call->upload->form)
        ts_call_fail(call, 415, "curl -F a=@FILE -F b=@FILE", "the body must be multipart/form-data");
    return call->upload->form != NULL;
}

bool ts_upload_begin(struct ts_call *call)
{
    call->upload = calloc(1, sizeof *call->upload);
    if (!call->upload) {
        ts_call_fail(call, 503, NULL, "out of memory");
        return false;
    }
    pthread_mutex_init(&call->upload->lock, NULL);
    call->upload->target.file = -1;
    return call->method == TS_PUT ? begin_put(call) : begin_form(call);
}

bool ts_upload_take(struct ts_call *call, const char *data, size_t size)
{
    struct ts_upload *upload = call->upload;
    if (!upload->form)
        return write_bytes(call, &upload->target, data, size);
    if (MHD_post_process(upload->form, data, size) == MHD_YES)
        return true;
    if (!upload->failed_status)
        ts_call_fail(call, 400, NULL, "the form cannot be read");
    return false;
}

bool ts_upload_wants_flush(const struct ts_call *call)
{
    return call->upload->target.unflushed >= TS_UPLOAD_SYNC;
}

/* Nothing is acknowledged here: it keeps the disk at work while more bytes come, and the system's cache from filling up
 * with what it cannot write, which would stop the thread that reads from the client. The newest stretch is handed to
 * the disk, the one before must be there. */
void ts_upload_flush(struct ts_call *call)
{
    struct target *target = &call->upload->target;
    if (target->file >= 0) {
#if TS_LINUX
        off_t window = (off_t)target->unflushed, start = (off_t)target->at - window;
        sync_file_range(target->file, start, window, SYNC_FILE_RANGE_WRITE);
        if (start >= window)
            sync_file_range(target->file, start - window, window,
                            SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
#else
        fsync(target->file);
#endif
    }
    target->unflushed = 0;
}

void ts_upload_end(struct ts_call *call)
{
    struct ts_upload *upload = call->upload;
    if (!upload)
        return;
    if (upload->form)
        MHD_destroy_post_processor(upload->form);
    if (upload->listed) {
        struct ts_upload **at;
        pthread_mutex_lock(&call->workspace->lock);
        for (at = &call->workspace->uploads; *at && *at != upload; at = &(*at)->next)
            ;
        if (*at)
            *at = upload->next;
        pthread_mutex_unlock(&call->workspace->lock);
    }
    close_target(&upload->target);
    for (size_t i = 0; i < upload->done_count; i++)
        close_target(&upload->done[i]);
    pthread_mutex_destroy(&upload->lock);
    free(upload);
    call->upload = NULL;
}

/* Nobody took the upload or its workspace away; both locks are held. */
static bool still_wanted(struct ts_call *call)
{
    if (call->upload->cancelled)
        ts_call_fail(call, 409, NULL, "the upload was cancelled");
    else if (call->workspace->deleted)
        ts_call_fail(call, 404, NULL, "the workspace was deleted");
    else
        return true;
    return false;
}

/* Everything came: to the disk, then to its place. */
static bool complete(struct ts_call *call, struct target *target)
{
    struct ts_upload *upload = call->upload;
    bool good, whole = target->total == UINT64_MAX || target->at == target->total;
    if (fsync(target->file) != 0) {
        fail_disk(call, errno);
        return false;
    }
    pthread_mutex_lock(&call->workspace->lock);
    pthread_mutex_lock(&upload->lock);
    good = still_wanted(call);
    if (good && whole && (!ts_make_parents(target->whole) || rename(target->part, target->whole) != 0)) {
        fail_disk(call, errno);
        good = false;
    }
    pthread_mutex_unlock(&upload->lock);
    pthread_mutex_unlock(&call->workspace->lock);
    if (good)
        ts_sync_parent(whole ? target->whole : target->part);
    return good;
}

static void file_json(struct ts_json_writer *json, const struct target *target)
{
    ts_json_begin_object(json);
    ts_field_text(json, "name", target->name);
    ts_field_text(json, "side", target->side ? "b" : "a");
    ts_field_count(json, "bytes", target->at);
    ts_field_bool(json, "complete", target->total == UINT64_MAX || target->at == target->total);
    ts_json_end_object(json);
}

static void tell_news(struct ts_workspace *workspace)
{
    pthread_mutex_lock(&workspace->lock);
    workspace->news++;
    workspace->used = (uint64_t)time(NULL);
    pthread_mutex_unlock(&workspace->lock);
}

void ts_upload_put(struct ts_call *call)
{
    struct target *target = &call->upload->target;
    struct ts_json_writer *json;
    if (!complete(call, target))
        return;
    tell_news(call->workspace);
    json = ts_call_json(call, 201);
    file_json(json, target);
    ts_json_finish(json);
    ts_upload_end(call);
}

void ts_upload_form(struct ts_call *call)
{
    struct ts_upload *upload = call->upload;
    struct ts_json_writer *json;
    const struct target none = {.file = -1};
    set_target(upload, &none);
    if (!upload->done_count) {
        ts_call_fail(call, 400, "curl -F a=@FILE -F b=@FILE", "the form has no files");
        return;
    }
    for (size_t i = 0; i < upload->done_count; i++)
        if (!complete(call, &upload->done[i]))
            return;
    tell_news(call->workspace);
    json = ts_call_json(call, 201);
    ts_json_begin_array(json);
    for (size_t i = 0; i < upload->done_count; i++)
        file_json(json, &upload->done[i]);
    ts_json_end_array(json);
    ts_json_finish(json);
    ts_upload_end(call);
}

/* The paths of a file that is asked about. */
static bool find_file(struct ts_call *call, struct target *target)
{
    unsigned side;
    *target = (struct target){.file = -1};
    if (!parse_side(call, call->captures[1], &side) || !check_name(call, call->captures[2]))
        return false;
    if (set_paths(call, target, side, call->captures[2]))
        return true;
    close_target(target);
    return false;
}

void ts_upload_head(struct ts_call *call)
{
    struct target target;
    struct stat info;
    if (!find_file(call, &target))
        return;
    call->status = 200;
    if (stat(target.whole, &info) == 0 && S_ISREG(info.st_mode)) {
        ts_call_header(call, "X-Tsleuth-Received", "%" PRIu64, (uint64_t)info.st_size);
        ts_call_header(call, "X-Tsleuth-Complete", "1");
    } else if ((target.file = open(target.part, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)) >= 0 && fsync(target.file) == 0 &&
               fstat(target.file, &info) == 0) {
        ts_call_header(call, "X-Tsleuth-Received", "%" PRIu64, (uint64_t)info.st_size);
    } else {
        ts_call_fail(call, 404, NULL, "nothing of this file was received");
        ts_call_header(call, "X-Tsleuth-Received", "0");
    }
    close_target(&target);
}

void ts_upload_delete(struct ts_call *call)
{
    struct ts_workspace *workspace = call->workspace;
    struct target target;
    bool was_there;
    if (!find_file(call, &target))
        return;
    pthread_mutex_lock(&workspace->lock);
    if (workspace->state == TS_STATE_BUSY) {
        ts_call_fail(call, 409, "wait or cancel the run", "the workspace is busy");
    } else {
        stop_others(workspace, target.side, target.name);
        was_there = unlink(target.part) == 0;
        was_there = unlink(target.whole) == 0 || was_there;
        /* folders that are empty now would be opened as inputs */
        for (char *slash; (slash = strrchr(target.name, '/'));) {
            *slash = '\0';
            target.whole[strlen(target.whole) - strlen(slash + 1) - 1] = '\0';
            if (rmdir(target.whole) != 0)
                break;
        }
        if (was_there) {
            ts_job_forget(workspace, false);
            workspace->news++;
            call->status = 204;
        } else {
            ts_call_fail(call, 404, NULL, "there is no such file");
        }
    }
    pthread_mutex_unlock(&workspace->lock);
    close_target(&target);
}
