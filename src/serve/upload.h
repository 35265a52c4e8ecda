/* Upload: bytes from a client into a file of a workspace, as they come.
 *
 * A file is unfinished, in the `part` folder, until its last byte is on the disk; then it appears in the side's
 * folder. What an answer or X-Tsleuth-Received acknowledges has been flushed to the disk. */
#ifndef TS_SERVE_UPLOAD_H
#define TS_SERVE_UPLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "serve/call.h"

#define TS_UPLOAD_SYNC ((uint64_t)32 << 20) /* bytes between two flushes */
#define TS_NAME_MOST   1024

/* A relative path that stays inside its folder: checked, never repaired. */
enum ts_status ts_upload_check_name(const char *name, struct ts_error *error);

/* Most bytes of one file now. */
uint64_t ts_upload_limit(const struct ts_server *server);

/* The headers are there; false after failing the call. */
bool ts_upload_begin(struct ts_call *call);
/* Bytes of the body; false after failing the call. */
bool ts_upload_take(struct ts_call *call, const char *data, size_t size);
/* Enough bytes came to flush them: the connection should sleep while ts_upload_flush runs. */
bool ts_upload_wants_flush(const struct ts_call *call);
void ts_upload_flush(struct ts_call *call);
/* The client is gone or done. */
void ts_upload_end(struct ts_call *call);

/* The workspace goes; its lock is held. */
void ts_upload_cancel_all(struct ts_workspace *workspace);

/* Routes. */
void ts_upload_put(struct ts_call *call);
void ts_upload_head(struct ts_call *call);
void ts_upload_delete(struct ts_call *call);
void ts_upload_form(struct ts_call *call);

#endif
