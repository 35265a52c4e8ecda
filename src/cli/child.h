/* A program that is run and measured. */
#ifndef TS_CLI_CHILD_H
#define TS_CLI_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <time.h>

struct child {
    double seconds;
    uint64_t peak_bytes; /* of resident memory; 0 when the system does not tell */
    int status;          /* exit status, or the signal as a negative number */
};

/* Runs arguments[0] from the PATH with everything it writes going to the file `log`, and waits. environment: pairs of
 * name and value, ended by NULL, added to this program's own. False, with errno set, when it could not be started.
 * When this program is interrupted, the child and all that it started are interrupted too, and ended where they do not
 * end by themselves; child_run returns when the child has. */
bool child_run(char *const *arguments, const char *const *environment, const char *log, struct child *child);
double seconds_since(const struct timespec *start); /* of CLOCK_MONOTONIC */
uint64_t child_peak(const struct rusage *usage);    /* of resident memory in bytes */

#endif
