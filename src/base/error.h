/* Errors: what went wrong, where, and how bad it is.
 *
 * A function that can fail takes a `struct ts_error *` as its last argument (never NULL) and returns a status. On
 * TS_OK the error is untouched. Otherwise the message is lower case, without a full stop, and says what was found and
 * what was expected; the byte offset is set where it is known. Callers that know more add it on the way up:
 * ts_error_path() and ts_error_tensor() fill the place in unless a callee already did.
 *
 * Nothing in the library prints or exits. An error holds no memory: it can be copied and forgotten. Strings inside
 * may hold bytes from hostile files; escape them when they are shown (ts_text_escape). */
#ifndef TS_BASE_ERROR_H
#define TS_BASE_ERROR_H

#include <stdint.h>

enum ts_status {
    TS_OK = 0,
    TS_ERR_USAGE,       /* the caller or the user asked for something that makes no sense */
    TS_ERR_IO,          /* the system refused: missing file, no permission, disk full */
    TS_ERR_FORMAT,      /* the bytes are not what the format says: corrupt, truncated, hostile */
    TS_ERR_UNSUPPORTED, /* the bytes are fine and this program cannot read them; the message names the feature */
    TS_ERR_LIMIT,       /* a bound of this program was reached (memory, members, nesting, spool) */
    TS_ERR_MEMORY,      /* malloc said no */
    TS_ERR_CANCELLED    /* the user interrupted */
};

#define TS_NO_OFFSET UINT64_MAX

struct ts_error {
    enum ts_status status;
    uint64_t offset;   /* byte in the file, or TS_NO_OFFSET */
    char path[512];    /* file or archive member, or "" */
    char tensor[256];  /* tensor name, or "" */
    char message[512]; /* what and what to do */
};

void ts_error_clear(struct ts_error *error);

/* Fills the error (clearing path and tensor) and returns status, so that a check is one line:
 *     if (length > left)
 *         return ts_fail(error, TS_ERR_FORMAT, at, "header says %" PRIu64 " bytes, %" PRIu64 " are left", length,
 * left); */
enum ts_status ts_fail(struct ts_error *error, enum ts_status status, uint64_t offset, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* TS_ERR_MEMORY with the usual words. */
enum ts_status ts_fail_memory(struct ts_error *error);

/* TS_ERR_IO with the text of an errno value appended. */
enum ts_status ts_fail_errno(struct ts_error *error, int number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds the place unless it is set already; returns the error's status. */
enum ts_status ts_error_path(struct ts_error *error, const char *path);
enum ts_status ts_error_tensor(struct ts_error *error, const char *name);

/* Forwards a failure. */
#define TS_TRY(call)                                                                                                   \
    do {                                                                                                               \
        enum ts_status ts_try_status_ = (call);                                                                        \
        if (ts_try_status_ != TS_OK)                                                                                   \
            return ts_try_status_;                                                                                     \
    } while (0)

#endif
