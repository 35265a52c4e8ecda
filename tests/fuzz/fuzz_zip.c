/* Zip directories and members: what the checks let through is read to the last byte. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "io/folder.h"
#include "io/zip.h"

/* Small: inflating is libdeflate's, and zeros are slow to sum under sanitizers. */
#define SPOOL_LIMIT ((uint64_t)1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned read_all(const struct ts_source *source)
{
    unsigned sum = 0;
    for (uint64_t i = 0; i < source->size; i++)
        sum += source->data[i];
    return sum;
}

static void walk_zip(struct ts_zip *zip)
{
    for (size_t i = 0; i < zip->count; i++) {
        const struct ts_zip_entry *entry = &zip->entries[i], *found = ts_zip_find(zip, entry->name);
        struct ts_source *source;
        struct ts_error error;
        if (!found || strcmp(found->name, entry->name) != 0 || (found->problem && !entry->problem))
            abort();
        ts_error_clear(&error);
        if (ts_zip_member(zip, entry, &source, &error) != TS_OK) {
            if (!error.message[0] || !error.path[0])
                abort();
            continue;
        }
        if (entry->problem || source->size != entry->size)
            abort();
        (void)read_all(source);
        ts_source_release(source);
    }
}

static void walk_folder(struct ts_folder *folder)
{
    for (size_t i = 0; i < folder->count; i++) {
        struct ts_source *source;
        struct ts_error error;
        if (ts_folder_find(folder, folder->members[i].path) == SIZE_MAX)
            abort();
        if (ts_folder_open_member(folder, i, &source, &error) == TS_OK)
            ts_source_release(source);
        if (ts_folder_open_beside(folder, folder->members[0].path, folder->members[i].path, &source, &error) == TS_OK)
            ts_source_release(source);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ts_spool *spool = ts_spool_new(SPOOL_LIMIT);
    struct ts_source *source;
    struct ts_error error;
    struct ts_zip *zip;
    struct ts_folder *folder;
    if (!spool || ts_source_copy(data, size, "fuzz.zip", &source, &error) != TS_OK) {
        ts_spool_free(spool);
        return 0;
    }
    (void)ts_zip_is(source);
    ts_error_clear(&error);
    if (ts_zip_open(source, spool, &zip, &error) == TS_OK) {
        walk_zip(zip);
        ts_zip_free(zip);
        if (ts_folder_open_zip(source, spool, &folder, &error) == TS_OK) {
            walk_folder(folder);
            ts_folder_free(folder);
        }
    } else if (!error.message[0]) {
        abort();
    }
    ts_spool_free(spool);
    ts_source_release(source);
    return 0;
}
