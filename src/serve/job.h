/* Job: opening and comparing what is in a workspace, in a thread of its own. */
#ifndef TS_SERVE_JOB_H
#define TS_SERVE_JOB_H

#include <stdbool.h>

#include "base/error.h"
#include "serve/workspace.h"

/* Starts it with options in JSON (checked; NULL: those of the last run). The lock is held. */
enum ts_status ts_job_start(struct ts_workspace *workspace, const char *options, struct ts_error *error);
void ts_job_cancel(struct ts_workspace *workspace);
/* The comparison no longer fits what is in the workspace, or nobody looks at it: closes it. The lock is held. */
void ts_job_forget(struct ts_workspace *workspace, bool keep_state);
/* Are these options? */
enum ts_status ts_job_check(const char *options, size_t size, struct ts_error *error);

#endif
