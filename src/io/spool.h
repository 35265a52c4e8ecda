/* Spool: room for bytes that exist nowhere in mappable form (inflated members, unpacked archives, parsed text).
 *
 * One unlinked temporary file per input in $TMPDIR (else /tmp), grown and mapped in extents, so that a million small
 * members cost few mappings and the pages belong to the page cache, not to this process's heap. Nothing is left behind
 * whatever happens. The limit stops decompression bombs: past it ts_spool_reserve fails with TS_ERR_LIMIT and says
 * which option raises it. Not thread-safe. */
#ifndef TS_IO_SPOOL_H
#define TS_IO_SPOOL_H

#include <stdint.h>

#include "base/error.h"
#include "io/source.h"

struct ts_spool;

/* Creates nothing on disk until the first reserve. */
struct ts_spool *ts_spool_new(uint64_t limit); /* NULL without memory */
void ts_spool_free(struct ts_spool *spool);    /* sources made from it stay valid */

/* Writable, zeroed room for size bytes, 64-byte aligned. It counts against the limit at once. */
enum ts_status ts_spool_reserve(struct ts_spool *spool, uint64_t size, uint8_t **data, struct ts_error *error);
/* Turns reserved room into a source of its first `size` bytes. path is copied. */
enum ts_status ts_spool_source(struct ts_spool *spool, const uint8_t *data, uint64_t size, const char *path,
                               struct ts_source **source, struct ts_error *error);

/* Gives the latest reservation back (a member that turned out corrupt); of an earlier one nothing happens. */
void ts_spool_unreserve(struct ts_spool *spool, const uint8_t *data, uint64_t size);

/* For data whose length is not known beforehand: write in pieces, then finish. One writer at a time; reserve must not
 * be called between. A cancelled writer's bytes are given back. */
enum ts_status ts_spool_write(struct ts_spool *spool, const void *data, uint64_t size, struct ts_error *error);
enum ts_status ts_spool_finish(struct ts_spool *spool, const char *path, struct ts_source **source,
                               struct ts_error *error);
void ts_spool_cancel(struct ts_spool *spool);

#endif
