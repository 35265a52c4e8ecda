/* Tar, 7z and compressed files through libarchive, whether or not they look like one. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "io/folder.h"

#define SPOOL_LIMIT ((uint64_t)1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(struct ts_folder *folder)
{
    unsigned sum = 0;
    for (size_t i = 0; i < folder->count; i++) {
        struct ts_source *source;
        struct ts_error error;
        if (ts_folder_find(folder, folder->members[i].path) == SIZE_MAX)
            abort();
        if (ts_folder_open_member(folder, i, &source, &error) != TS_OK) {
            if (!folder->members[i].problem)
                abort();
            continue;
        }
        if (source->size != folder->members[i].size)
            abort();
        for (uint64_t at = 0; at < source->size; at++)
            sum += source->data[at];
        ts_source_release(source);
    }
    (void)sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ts_spool *spool = ts_spool_new(SPOOL_LIMIT);
    struct ts_source *source;
    struct ts_error error;
    struct ts_folder *folder;
    if (!spool || ts_source_copy(data, size, "fuzz.tar.gz", &source, &error) != TS_OK) {
        ts_spool_free(spool);
        return 0;
    }
    (void)ts_folder_is_archive(source);
    ts_error_clear(&error);
    if (ts_folder_open_archive(source, spool, &folder, &error) == TS_OK) {
        walk(folder);
        ts_folder_free(folder);
    } else if (!error.message[0]) {
        abort();
    }
    ts_spool_free(spool);
    ts_source_release(source);
    return 0;
}
