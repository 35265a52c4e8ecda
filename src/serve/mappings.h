/* Mappings: what people mapped by hand in a workspace, kept in its folder as `mappings.json`.
 *
 * A mapping belongs to a pair by the names of both sides, so that it is found again after a restart and after a run
 * with other options; one that no longer fits is left out. */
#ifndef TS_SERVE_MAPPINGS_H
#define TS_SERVE_MAPPINGS_H

#include "base/error.h"
#include "pair/pair.h"
#include "serve/opened.h"

#define TS_MOST_MAPPINGS      1000
#define TS_MAPPINGS_MOST_SIZE ((size_t)4 << 20)

struct ts_workspace;

/* One pair under a mapping in JSON (docs/api.md, remap), measured; NULL in *remap for {}, which maps nothing. */
enum ts_status ts_remap_make(struct ts_opened *opened, size_t index, const char *text, size_t size,
                             struct ts_remap **remap, struct ts_error *error);

/* Maps again what was mapped before. A file that cannot be read is as good as none; fails when it is cancelled or
 * memory runs out. */
enum ts_status ts_mappings_load(struct ts_workspace *workspace, struct ts_opened *opened, struct ts_error *error);
/* Puts the mapping in the place of the pair's last one and writes all of them down; on failure nothing has changed and
 * the caller keeps the mapping. */
enum ts_status ts_mappings_set(struct ts_workspace *workspace, struct ts_opened *opened, size_t index,
                               struct ts_remap *remap, struct ts_error *error);
/* The inputs are others now. The workspace's lock is held. */
void ts_mappings_forget(const struct ts_workspace *workspace);

/* The pairing with what was mapped by hand in it, for a map file: who was given a partner by hand leaves the one it
 * had. Borrows everything but its lists. */
enum ts_status ts_mappings_pairing(struct ts_opened *opened, struct ts_pairing *pairing, struct ts_error *error);
void ts_mappings_pairing_release(struct ts_pairing *pairing);

#endif
