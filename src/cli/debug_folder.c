/* Owns the folder that `tsleuth debug` works in. */
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/text.h"
#include "cli/debug.h"

#define TEXT_LIMIT ((size_t)64 << 20)
#define LOG_SHOWN  4096 /* bytes of the log's end */

static bool make_folder(const char *path)
{
    struct stat info;
    if (mkdir(path, 0777) == 0)
        return true;
    return errno == EEXIST && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool debug_folder_open(const char *path, struct debug_folder *folder)
{
    static const char *const names[] = {"reference.safetensors", "reference.key", "candidate", "candidate.old",
                                        "candidate.log",         "tokens.txt",    "run.json"};
    char *const parts[] = {folder->reference, folder->key,    folder->dump, folder->old_dump,
                           folder->log,       folder->tokens, folder->facts};
    char real[4096];
    char *resolved;
    if (!make_folder(path))
        return false;
    resolved = realpath(path, NULL); /* the candidate may work in another folder */
    if (!resolved)
        return false;
    if (snprintf(real, sizeof real, "%s", resolved) >= (int)sizeof real - 64) {
        free(resolved);
        errno = ENAMETOOLONG;
        return false;
    }
    free(resolved);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (snprintf(parts[i], sizeof folder->reference, "%s/%s", real, names[i]) >= (int)sizeof folder->reference)
            return false;
    return true;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info, (void)type, (void)where;
    return remove(path);
}

bool debug_folder_fresh_dump(const struct debug_folder *folder)
{
    struct stat info;
    if (lstat(folder->dump, &info) == 0) {
        /* only what this program has put aside itself is removed */
        if (lstat(folder->old_dump, &info) == 0 && nftw(folder->old_dump, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0)
            return false;
        if (rename(folder->dump, folder->old_dump) != 0)
            return false;
    }
    return make_folder(folder->dump);
}

bool debug_folder_has_dump(const struct debug_folder *folder)
{
    DIR *list = opendir(folder->dump);
    bool found = false;
    struct dirent *entry;
    while (list && !found && (entry = readdir(list)))
        found = entry->d_name[0] != '.';
    if (list)
        closedir(list);
    return found;
}

char *debug_read_text(const char *path)
{
    FILE *file = fopen(path, "r");
    struct ts_buffer text;
    char piece[4096], *copy;
    size_t got;
    if (!file)
        return NULL;
    ts_buffer_init(&text, TEXT_LIMIT);
    ts_buffer_append(&text, "", 0);
    while ((got = fread(piece, 1, sizeof piece, file)) > 0)
        ts_buffer_append(&text, piece, got);
    fclose(file);
    copy = text.failed ? NULL : strdup(text.data ? text.data : "");
    ts_buffer_release(&text);
    return copy;
}

bool debug_write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    bool good = file && fputs(text, file) >= 0;
    return file && fclose(file) == 0 && good;
}

void debug_show_log(const char *path, FILE *to)
{
    FILE *file = fopen(path, "r");
    char piece[LOG_SHOWN + 1];
    struct ts_buffer out;
    size_t got = 0, from = 0;
    long size;
    if (!file)
        return;
    if (fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0) {
        bool cut = size > LOG_SHOWN;
        if (fseek(file, cut ? size - LOG_SHOWN : 0, SEEK_SET) == 0)
            got = fread(piece, 1, LOG_SHOWN, file);
        piece[got] = '\0';
        if (cut && strchr(piece, '\n'))
            from = (size_t)(strchr(piece, '\n') - piece) + 1;
    }
    fclose(file);
    ts_buffer_init(&out, (size_t)1 << 20);
    while (from < got) {
        size_t length = strcspn(piece + from, "\n");
        ts_buffer_string(&out, "  | ");
        ts_text_escape(&out, piece + from, length);
        ts_buffer_byte(&out, '\n');
        from += length + 1;
    }
    if (out.data)
        fputs(out.data, to);
    else
        fputs("  (it printed nothing)\n", to);
    ts_buffer_release(&out);
}
