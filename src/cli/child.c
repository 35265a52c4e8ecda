/* Owns running another program. */
#include "cli/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/progress.h"

/* In the child, after fork: on failure the error number goes through the pipe, which a successful exec closes. */
static void become(char *const *arguments, const char *const *environment, int log, int report)
{
    int number, nothing;
    setpgid(0, 0); /* a group of its own, which can be ended as a whole */
    for (size_t i = 0; environment[i]; i += 2)
        if (setenv(environment[i], environment[i + 1], 1) != 0)
            goto failed;
    nothing = open("/dev/null", O_RDONLY);
    if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0)
        goto failed;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    execvp(arguments[0], arguments);
failed:
    number = errno;
    if (write(report, &number, sizeof number) != (ssize_t)sizeof number)
        _exit(126);
    _exit(127);
}

double seconds_since(const struct timespec *start)
{
    struct timespec stop;
    clock_gettime(CLOCK_MONOTONIC, &stop);
    return (double)(stop.tv_sec - start->tv_sec) + 1e-9 * (double)(stop.tv_nsec - start->tv_nsec);
}

/* Waits for the child and looks for an interruption meanwhile: asks every hundredth of the time that has passed, at
 * least each centisecond, so that what is measured is right to one percent. */
static void wait_for(pid_t pid, const struct timespec *start, int *status, struct rusage *usage)
{
    static const struct {
        double after;
        int signal;
    } steps[] = {{0, SIGINT}, {1, SIGTERM}, {3, SIGKILL}};
    struct timespec told = {0};
    size_t step = 0;
    for (;;) {
        double passed = seconds_since(start), pause = passed / 100;
        pid_t got = wait4(pid, status, WNOHANG, usage);
        if (got == pid || (got < 0 && errno != EINTR)) {
            if (step) /* what it left behind: shells start their background jobs deaf to the first signal */
                kill(-pid, SIGKILL);
            return;
        }
        if (atomic_load(&ts_cancelled) && step < sizeof steps / sizeof *steps) {
            if (!step)
                clock_gettime(CLOCK_MONOTONIC, &told);
            if (seconds_since(&told) >= steps[step].after)
                kill(-pid, steps[step++].signal);
        }
        pause = pause < 0.0001 ? 0.0001 : pause > 0.01 ? 0.01 : pause;
        nanosleep(&(struct timespec){.tv_nsec = (long)(pause * 1e9)}, NULL);
    }
}

uint64_t child_peak(const struct rusage *usage)
{
#ifdef __APPLE__
    return (uint64_t)usage->ru_maxrss; /* in bytes there, in KiB elsewhere */
#else
    return (uint64_t)usage->ru_maxrss * 1024;
#endif
}

bool child_run(char *const *arguments, const char *const *environment, const char *log, struct child *child)
{
    struct timespec start;
    struct rusage usage = {0};
    int pipes[2], file, status = 0, number = 0;
    ssize_t got;
    pid_t pid;
    *child = (struct child){0};
    file = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0)
        return false;
    if (pipe(pipes) != 0) {
        close(file);
        return false;
    }
    if (fcntl(pipes[1], F_SETFD, FD_CLOEXEC) != 0 || fcntl(pipes[0], F_SETFD, FD_CLOEXEC) != 0) {
        close(file);
        close(pipes[0]);
        close(pipes[1]);
        return false;
    }
    clock_gettime(CLOCK_MONOTONIC, &start);
    pid = fork();
    if (pid == 0)
        become(arguments, environment, file, pipes[1]);
    number = pid < 0 ? errno : 0;
    close(file);
    close(pipes[1]);
    if (pid > 0) {
        setpgid(pid, pid); /* in both, since either may be first */
        do
            got = read(pipes[0], &number, sizeof number);
        while (got < 0 && errno == EINTR);
        number = got == (ssize_t)sizeof number ? number : 0;
        wait_for(pid, &start, &status, &usage);
        child->seconds = seconds_since(&start);
        child->peak_bytes = child_peak(&usage);
        child->status = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    }
    close(pipes[0]);
    errno = number;
    return number == 0;
}
