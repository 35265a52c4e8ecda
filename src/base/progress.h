/* Progress: a bar on standard error, on a terminal only, and only when the work has taken a second.
 *
 * This is the one part of the library that writes to the terminal, and only for a caller that hands it a started
 * struct: long functions take a pointer to one, add what they have done, and stay silent when it is NULL.
 * ts_progress_add may be called from any thread, at most some thousand times a second. Until the first second has
 * passed it only counts; after that, whichever thread adds when a tenth of a second has gone by redraws the line. */
#ifndef TS_BASE_PROGRESS_H
#define TS_BASE_PROGRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Someone who follows a long piece of work from another thread and may stop it. Work that runs in a thread whose
 * ts_watched is set tells it what it is doing and stops when `cancelled` is. */
struct ts_watch {
    atomic_bool cancelled;
    _Atomic(const char *) label; /* of the last ts_progress that was started, or NULL */
    _Atomic uint64_t done, total;
};

/* The watch of this thread, or NULL. The threads of a pool take over that of the thread that asked for the run. */
extern _Thread_local struct ts_watch *ts_watched;

struct ts_progress {
    const char *label; /* "reading", "statistics" */
    uint64_t total;    /* in bytes, or in elements; 0 when unknown */
    bool elements;     /* what is counted */
    _Atomic uint64_t done;
    /* private */
    bool enabled;
    struct ts_watch *watch;
    uint64_t started_ns;
    _Atomic uint64_t drawn_ns; /* 0: nothing on the screen */
};

/* Enabled when standard error is a terminal and TERM is not "dumb". */
void ts_progress_start(struct ts_progress *progress, const char *label, uint64_t total);
/* The same for work that counts elements. */
void ts_progress_start_elements(struct ts_progress *progress, const char *label, uint64_t total);
void ts_progress_add(struct ts_progress *progress, uint64_t amount); /* progress may be NULL */
void ts_progress_finish(struct ts_progress *progress);               /* erases the bar */

/* Set by the signal handler of the command line; long loops look at it and return TS_ERR_CANCELLED. In a thread with a
 * watch it is the watch's own. */
#define ts_cancelled (*ts_cancel_flag())
atomic_bool *ts_cancel_flag(void);

#endif
