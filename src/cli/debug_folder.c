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
#include "cli/command.h"
#include "cli/debug.h"
#include "model/config.h"

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
    char *resolved;
    if (!make_folder(path))
        return false;
    resolved = realpath(path, NULL); /* the candidate may work in another folder */
    if (!resolved)
        return false;
    if (snprintf(folder->path, sizeof folder->path, "%s", resolved) >= (int)sizeof folder->path - 64) {
        free(resolved);
        errno = ENAMETOOLONG;
        return false;
    }
    free(resolved);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (snprintf(parts[i], sizeof folder->reference, "%s/%s", folder->path, names[i]) >=
            (int)sizeof folder->reference)
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
    if (text.size && memchr(text.data, '\0', text.size)) {
        ts_buffer_release(&text);
        errno = EILSEQ;
        return NULL;
    }
    copy = text.failed ? NULL : strdup(text.data ? text.data : "");
    ts_buffer_release(&text);
    return copy;
}

int debug_tell_unreadable(const char *path)
{
    fprintf(stderr, "tsleuth: cannot read \"%s\": %s\n", path,
            errno == EILSEQ ? "it holds NUL bytes, and text is expected" : strerror(errno));
    return EXIT_TROUBLE;
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

static void put_child(struct ts_json_writer *json, const char *key, const struct child *child)
{
    ts_json_key(json, key);
    ts_json_begin_object(json);
    ts_json_key(json, "seconds");
    if (child->seconds > 0)
        ts_json_number(json, child->seconds);
    else
        ts_json_null(json);
    ts_json_key(json, "peak_bytes");
    ts_json_uint(json, child->peak_bytes);
}

bool debug_facts_write(const struct debug_folder *folder, const struct debug_facts *facts)
{
    struct json_file file;
    struct ts_json_writer *json = &file.writer;
    if (!json_file_open(&file, folder->facts))
        return false;
    ts_json_begin_object(json);
    ts_json_key(json, "schema");
    ts_json_string(json, "tsleuth.debug/1");
    put_child(json, "reference", &facts->reference);
    ts_json_key(json, "reused");
    ts_json_bool(json, facts->reused);
    ts_json_end_object(json);
    put_child(json, "candidate", &facts->candidate);
    ts_json_key(json, "status");
    ts_json_int(json, facts->candidate.status);
    ts_json_end_object(json);
    ts_json_end_object(json);
    return json_file_close(&file);
}

void debug_facts_read(const struct debug_folder *folder, struct debug_facts *facts)
{
    char *text = debug_read_text(folder->facts);
    struct ts_model_config flat;
    struct ts_error error;
    *facts = (struct debug_facts){0};
    if (text && ts_model_config_parse(text, strlen(text), &flat, &error) == TS_OK) {
        struct child *children[] = {&facts->reference, &facts->candidate};
        static const char *const keys[][2] = {{"reference.seconds", "reference.peak_bytes"},
                                              {"candidate.seconds", "candidate.peak_bytes"}};
        for (size_t i = 0; i < 2; i++) {
            double seconds = ts_model_config_number(&flat, keys[i][0], 0),
                   bytes = ts_model_config_number(&flat, keys[i][1], 0);
            children[i]->seconds = seconds > 0 && seconds < 1e9 ? seconds : 0;
            children[i]->peak_bytes = bytes > 0 && bytes < 1e18 ? (uint64_t)bytes : 0;
        }
        facts->candidate.status = 0;
        ts_model_config_release(&flat);
    }
    free(text);
}
