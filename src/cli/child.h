/* A program that is run and measured. */
#ifndef TS_CLI_CHILD_H
#define TS_CLI_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

struct child {
    double seconds;
    uint64_t peak_bytes; /* of resident memory; 0 when the system does not tell */
    int status;          /* exit status, or the signal as a negative number */
};

/* Runs arguments[0] from the PATH with everything it writes going to the file `log`, and waits. environment: pairs of
 * name and value, ended by NULL, added to this program's own. False, with errno set, when it could not be started.
 * After Ctrl-C, which the child gets as well, it waits for the child to end. */
uint64_t child_peak(const struct rusage *usage); /* its peak of resident memory in bytes */
bool child_run(char *const *arguments, const char *const *environment, const char *log, struct child *child);

#endif
