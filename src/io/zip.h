/* Zip: the central directory of a zip file, and its members as sources.
 *
 * Stored members are slices of the file (nothing is copied: this is how torch and npz tensors stay mapped); deflated
 * ones are inflated into the spool, with their checksum verified. Zip64 and data descriptors are understood; data
 * before the archive is too. Checked on opening: directory inside the file, every span inside the file, no two members
 * overlapping (the trick of decompression bombs), sizes that deflate can reach (at most 1032 to 1). A member that fails
 * gets its `problem`; a directory that fails is an error. */
#ifndef TS_IO_ZIP_H
#define TS_IO_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "io/source.h"
#include "io/spool.h"

struct ts_zip_entry {
    const char *name; /* NUL-terminated copy; a name with a NUL inside is a problem */
    uint64_t packed, size, header_offset;
    uint64_t data_offset; /* filled in by ts_zip_open from the local header */
    uint32_t crc32;
    uint16_t method, flags;
    bool is_folder;
    const char *problem; /* not NULL: cannot be opened, and why */
};

struct ts_zip {
    struct ts_source *source;
    struct ts_spool *spool; /* may be NULL: then only stored members open */
    struct ts_zip_entry *entries;
    size_t count;
    uint64_t before; /* bytes of other archives before this one, which nobody reads; else 0 */
    struct ts_arena arena;
    uint32_t *by_name; /* private: hash table */
    size_t table_size;
};

bool ts_zip_is(const struct ts_source *source); /* begins with a local header or an empty directory */
enum ts_status ts_zip_open(struct ts_source *source, struct ts_spool *spool, struct ts_zip **zip,
                           struct ts_error *error);
void ts_zip_free(struct ts_zip *zip);
/* The entry with that name, or NULL. Of two with one name the last wins, as with every unzip, unless only the first can
 * be opened. */
const struct ts_zip_entry *ts_zip_find(const struct ts_zip *zip, const char *name);
enum ts_status ts_zip_member(struct ts_zip *zip, const struct ts_zip_entry *entry, struct ts_source **source,
                             struct ts_error *error);

#endif
