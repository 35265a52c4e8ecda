/* Finds repositories in the cache that huggingface_hub keeps:
 *
 *     <cache>/models--owner--name/refs/main                 the commit that a branch or tag stands for
 *     <cache>/models--owner--name/snapshots/<commit>/...    the files, as links into ../../blobs */
#include "io/hub.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/text.h"

#ifndef PATH_MAX
#define PATH_MAX 4096
#endif

#define SCHEME "hf://"
/* The hub's own bounds: 96 characters for a name; branches are git's. */
#define MAX_NAME     96
#define MAX_REVISION 255

struct request {
    const char *kind;                  /* "models", "datasets", "spaces" */
    char repository[2 * MAX_NAME + 2]; /* "owner/name" or "name" */
    char revision[MAX_REVISION + 1];
    bool named_revision;
    const char *path; /* inside, or "" */
};

bool ts_hub_is_url(const char *text)
{
    return ts_starts_with(text, SCHEME);
}

static enum ts_status fail_url(struct ts_error *error, const char *url, const char *why)
{
    return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET,
                   "\"%s\" is no place on the hub: %s; write hf://owner/name[@revision][/path]", url, why);
}

/* The rules of the hub: letters, digits, - _ and ., without two - or . in a row. */
static bool is_name(const char *text, size_t length)
{
    if (length == 0 || length > MAX_NAME)
        return false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        if (!plain && c != '-' && c != '.')
            return false;
        if (!plain && i > 0 && text[i - 1] == c)
            return false;
    }
    return text[0] != '.' && text[0] != '-';
}

/* Relative, without empty or dotted components and without characters that could fool a terminal or a path. */
static bool is_safe_path(const char *text)
{
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f || *c == '\\')
            return false;
    while (*text) {
        size_t length = strcspn(text, "/");
        if (length == 0 || (text[0] == '.' && (length == 1 || (length == 2 && text[1] == '.'))))
            return false;
        text += length;
        if (*text == '/' && *++text == '\0')
            return false;
    }
    return true;
}

/* How much of the text behind an @ is the revision: up to the next slash, or all of a special reference. */
static size_t revision_length(const char *text)
{
    static const char *const special[] = {"refs/pr/", "refs/convert/"};
    for (size_t i = 0; i < 2; i++)
        if (ts_starts_with(text, special[i]))
            return strlen(special[i]) + strcspn(text + strlen(special[i]), "/");
    return strcspn(text, "/");
}

static bool read_revision(struct request *request, const char *text, size_t length)
{
    size_t used = 0;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (c == '%' && length - i >= 3 && text[i + 1] == '2' && (text[i + 2] == 'F' || text[i + 2] == 'f')) {
            c = '/';
            i += 2;
        }
        if (used == MAX_REVISION || strchr("%@:?*[~^ ", c))
            return false;
        request->revision[used++] = c;
    }
    request->revision[used] = '\0';
    request->named_revision = true;
    return used && is_safe_path(request->revision);
}

static enum ts_status parse(const char *url, struct request *request, struct ts_error *error)
{
    static const char *const kinds[] = {"models", "datasets", "spaces"};
    const char *at = url + strlen(SCHEME);
    size_t owner, name;
    memset(request, 0, sizeof *request);
    memcpy(request->revision, "main", 5);
    request->kind = kinds[0];
    for (size_t i = 0; i < 3; i++) {
        size_t length = strlen(kinds[i]);
        if (strncmp(at, kinds[i], length) == 0 && at[length] == '/') {
            request->kind = kinds[i];
            at += length + 1;
            break;
        }
    }
    owner = strcspn(at, "/@");
    if (!is_name(at, owner))
        return fail_url(error, url, "it names no repository");
    memcpy(request->repository, at, owner);
    at += owner;
    if (*at == '/') {
        name = strcspn(at + 1, "/@");
        if (!is_name(at + 1, name))
            return fail_url(error, url, "the repository's name is empty or has characters that names do not have");
        memcpy(request->repository + owner, at, name + 1);
        at += name + 1;
    }
    if (*at == '@') {
        size_t length = revision_length(at + 1);
        if (!read_revision(request, at + 1, length))
            return fail_url(error, url, "the revision is empty or has characters that revisions do not have");
        at += 1 + length;
    }
    if (*at == '/')
        at++;
    if (!is_safe_path(at))
        return fail_url(error, url, "the path leaves the repository or has an empty part");
    request->path = at;
    return TS_OK;
}

static bool put(char *to, size_t size, const char *a, const char *b, const char *c, const char *d)
{
    int length = snprintf(to, size, "%s%s%s%s", a, b, c, d);
    return length >= 0 && (size_t)length < size;
}

/* The value of the variable with ~/ expanded; false when it is not set or empty. */
static bool from_environment(const char *variable, const char *below, char *path, size_t size)
{
    const char *value = getenv(variable), *home = getenv("HOME");
    if (!value || !*value)
        return false;
    if (value[0] == '~' && (value[1] == '/' || value[1] == '\0') && home)
        return put(path, size, home, value + 1, below, "");
    return put(path, size, value, below, "", "");
}

static bool find_cache(char *path, size_t size)
{
    return from_environment("HF_HUB_CACHE", "", path, size) ||
           from_environment("HUGGINGFACE_HUB_CACHE", "", path, size) ||
           from_environment("HF_HOME", "/hub", path, size) ||
           from_environment("XDG_CACHE_HOME", "/huggingface/hub", path, size) ||
           from_environment("HOME", "/.cache/huggingface/hub", path, size);
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* <cache>/models--owner--name */
static bool repository_folder(const char *cache, const struct request *request, char *folder, size_t size)
{
    char flat[3 * MAX_NAME];
    size_t used = 0;
    for (const char *c = request->repository; *c; c++) {
        if (*c == '/') {
            flat[used++] = '-';
            flat[used++] = '-';
        } else {
            flat[used++] = *c;
        }
    }
    flat[used] = '\0';
    return put(folder, size, cache, "/", request->kind, "--") &&
           put(folder + strlen(folder), size - strlen(folder), flat, "", "", "");
}

static const char *download_kind(const struct request *request)
{
    return strcmp(request->kind, "datasets") == 0 ? " --repo-type dataset"
           : strcmp(request->kind, "spaces") == 0 ? " --repo-type space"
                                                  : "";
}

/* "hf://gpt2/config.json" may be the file of a repository without an owner. */
static bool drop_owner(const char *cache, const char *url, struct request *request, char *folder, size_t size)
{
    char *slash = strchr(request->repository, '/');
    if (!slash || request->named_revision)
        return false;
    *slash = '\0';
    if (repository_folder(cache, request, folder, size) && is_folder(folder)) {
        const char *at = url + strlen(SCHEME);
        if (strncmp(at, request->kind, strlen(request->kind)) == 0 && at[strlen(request->kind)] == '/')
            at += strlen(request->kind) + 1;
        request->path = at + strlen(request->repository) + 1;
        return true;
    }
    *slash = '/';
    return false;
}

static bool is_commit(const char *text, size_t length)
{
    return length == 40 && strspn(text, "0123456789abcdef") >= 40;
}

/* Reads the commit that refs/<revision> holds. */
static bool read_reference(const char *folder, const char *revision, char commit[64])
{
    char path[PATH_MAX];
    size_t length;
    FILE *file;
    if (!put(path, sizeof path, folder, "/refs/", revision, "") || is_folder(path) || !(file = fopen(path, "re")))
        return false;
    length = fread(commit, 1, 63, file);
    fclose(file);
    while (length && (commit[length - 1] == '\n' || commit[length - 1] == '\r' || commit[length - 1] == ' '))
        length--;
    commit[length] = '\0';
    return is_commit(commit, length);
}

/* Appends the names in a folder of the repository, most of them commits, shortened as git does. */
static void list_names(struct ts_buffer *text, const char *folder, const char *below)
{
    char path[PATH_MAX];
    struct dirent *entry;
    unsigned shown = 0;
    DIR *stream;
    if (!put(path, sizeof path, folder, below, "", "") || !(stream = opendir(path)))
        return;
    while ((entry = readdir(stream)) && shown < 8) {
        size_t length = strlen(entry->d_name);
        if (entry->d_name[0] == '.')
            continue;
        ts_buffer_string(text, text->size ? ", " : "");
        ts_buffer_append(text, entry->d_name, is_commit(entry->d_name, length) ? 12 : length);
        shown++;
    }
    if (entry)
        ts_buffer_string(text, ", ...");
    closedir(stream);
}

static enum ts_status fail_revision(const struct request *request, const char *folder, struct ts_error *error)
{
    struct ts_buffer there;
    enum ts_status status;
    ts_buffer_init(&there, 4096);
    list_names(&there, folder, "/refs");
    list_names(&there, folder, "/snapshots");
    status = ts_fail(error, TS_ERR_IO, TS_NO_OFFSET,
                     "\"%s\" is in the local Hugging Face cache, but not its revision %s (there is: %.200s); download "
                     "it with: hf download %s%s --revision %s",
                     request->repository, request->revision, there.size ? there.data : "nothing", request->repository,
                     download_kind(request), request->revision);
    ts_buffer_release(&there);
    return status;
}

static enum ts_status find_snapshot(const struct request *request, const char *folder, char *path, size_t size,
                                    struct ts_error *error)
{
    char commit[64];
    if (put(path, size, folder, "/snapshots/", request->revision, "") && is_folder(path))
        return TS_OK;
    if (read_reference(folder, request->revision, commit) && put(path, size, folder, "/snapshots/", commit, "") &&
        is_folder(path))
        return TS_OK;
    return fail_revision(request, folder, error);
}

enum ts_status ts_hub_resolve(const char *url, char *path, size_t size, struct ts_error *error)
{
    struct request request;
    char cache[PATH_MAX], folder[PATH_MAX], snapshot[PATH_MAX];
    struct stat info;
    if (!ts_hub_is_url(url))
        return fail_url(error, url, "it does not begin with hf://");
    TS_TRY(parse(url, &request, error));
    if (!find_cache(cache, sizeof cache))
        return ts_fail(error, TS_ERR_IO, TS_NO_OFFSET,
                       "cannot tell where the Hugging Face cache is: set HF_HUB_CACHE or HOME");
    if (!(repository_folder(cache, &request, folder, sizeof folder) && is_folder(folder)) &&
        !drop_owner(cache, url, &request, folder, sizeof folder))
        return ts_fail(
            error, TS_ERR_IO, TS_NO_OFFSET,
            "\"%s\" is not in the local Hugging Face cache (looked in %s); download it with: hf download %s%s",
            request.repository, cache, request.repository, download_kind(&request));
    TS_TRY(find_snapshot(&request, folder, snapshot, sizeof snapshot, error));
    if (!put(path, size, snapshot, *request.path ? "/" : "", request.path, ""))
        return ts_fail(error, TS_ERR_IO, TS_NO_OFFSET, "the path of \"%s\" in the cache is too long", url);
    if (stat(path, &info) != 0)
        return ts_fail(
            error, TS_ERR_IO, TS_NO_OFFSET,
            "\"%s\" is in the local Hugging Face cache, but without %s; download it with: hf download %s%s %s",
            request.repository, request.path, request.repository, download_kind(&request), request.path);
    return TS_OK;
}
