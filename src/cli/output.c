/* Owns files that hold results: each appears whole under its name, or not at all, whenever the program is stopped. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/progress.h"
#include "base/system.h"
#include "cli/command.h"

/* The name of the file that is being written, for a signal handler: whole whenever it does not begin with NUL. */
static char abandoned[4096];

static void guard(const char *path)
{
    size_t length = strlen(path);
    abandoned[0] = '\0';
    atomic_signal_fence(memory_order_seq_cst);
    if (length && length < sizeof abandoned) {
        memcpy(abandoned + 1, path + 1, length);
        atomic_signal_fence(memory_order_seq_cst);
        abandoned[0] = path[0];
    }
    atomic_signal_fence(memory_order_seq_cst);
}

/* While it holds, no signal comes between a file and the knowledge of its name. */
static void hold_signals(sigset_t *before)
{
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGINT);
    sigaddset(&both, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &both, before);
}

void output_abandon(void)
{
    if (abandoned[0])
        unlink(abandoned);
}

static bool fits(int length, size_t size)
{
    return length > 0 && (size_t)length < size;
}

/* A link is followed, so that the file it names is replaced and not the link. */
static bool resolve(struct output *output)
{
    char *real = realpath(output->path, NULL);
    int length = snprintf(output->target, sizeof output->target, "%s", real ? real : output->path);
    free(real);
    return fits(length, sizeof output->target);
}

/* A file without a name, where the system has such: then not even a kill leaves anything behind. */
static int open_unnamed(struct output *output)
{
#if TS_LINUX
    const char *slash = strrchr(output->target, '/');
    size_t length = !slash ? 1 : slash == output->target ? 1 : (size_t)(slash - output->target);
    char *folder = strndup(slash ? output->target : ".", length);
    int file = folder && access("/proc/self/fd", X_OK) == 0 ? open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666) : -1;
    free(folder);
    output->unnamed = file >= 0;
    return file;
#else
    (void)output;
    return -1;
#endif
}

static int open_beside(struct output *output)
{
    int length = snprintf(output->temporary, sizeof output->temporary, "%s.XXXXXX", output->target), file;
    sigset_t before;
    mode_t mask;
    if (!fits(length, sizeof output->temporary)) {
        output->temporary[0] = '\0';
        return -1;
    }
    hold_signals(&before);
    file = mkstemp(output->temporary);
    if (file < 0)
        output->temporary[0] = '\0';
    guard(output->temporary);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (file < 0)
        return -1;
    mask = umask(0); /* mkstemp keeps others out; a report is as open as any other file */
    umask(mask);
    if (fchmod(file, 0666 & ~mask) != 0)
        output->failed = true;
    return file;
}

bool output_open(struct output *output, const char *path)
{
    struct stat info;
    int file = -1;
    *output = (struct output){.path = path, .file = stdout};
    if (strcmp(path, "-") == 0)
        return true;
    if (resolve(output)) {
        if (stat(output->target, &info) == 0 && !S_ISREG(info.st_mode)) { /* /dev/null, a pipe: nothing to replace */
            file = open(output->target, O_WRONLY | O_CLOEXEC);
        } else {
            file = open_unnamed(output);
            if (file < 0)
                file = open_beside(output);
        }
    }
    output->file = file >= 0 ? fdopen(file, "w") : NULL;
    if (!output->file) {
        fprintf(stderr, "tsleuth: cannot write \"%s\": %s\n", path, strerror(errno));
        return false;
    }
    return true;
}

bool output_possible(const char *path)
{
    struct output output;
    struct stat info;
    if (strcmp(path, "-") == 0 || (stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)))
        return true; /* opening a pipe would be seen at its other end */
    if (!output_open(&output, path))
        return false;
    output_discard(&output);
    return true;
}

void output_write(struct output *output, const void *data, size_t size)
{
    if (size && fwrite(data, 1, size, output->file) != size && !output->failed) {
        output->failed = true;
        output->reason = errno;
    }
}

/* Gives an unnamed file a name beside the target. */
static bool name_it(struct output *output)
{
#if TS_LINUX
    char from[64];
    sigset_t before;
    bool named;
    int failure;
    snprintf(from, sizeof from, "/proc/self/fd/%d", fileno(output->file));
    for (unsigned attempt = 0; attempt < 100; attempt++) {
        int length =
            snprintf(output->temporary, sizeof output->temporary, "%s.%ld-%u", output->target, (long)getpid(), attempt);
        if (!fits(length, sizeof output->temporary))
            break;
        hold_signals(&before);
        named = linkat(AT_FDCWD, from, AT_FDCWD, output->temporary, AT_SYMLINK_FOLLOW) == 0;
        if (named)
            guard(output->temporary);
        failure = errno;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (named)
            return true;
        if (failure != EEXIST)
            break;
    }
#endif
    output->temporary[0] = '\0';
    return false;
}

bool output_close(struct output *output)
{
    bool good = fflush(output->file) == 0 && !output->failed;
    bool interrupted = atomic_load(&ts_cancelled);
    int reason = output->failed ? output->reason : good ? 0 : errno;
    if (output->file != stdout) {
        bool before = good;
        errno = 0;
        good = good && !interrupted && (!output->unnamed || name_it(output));
        good = fclose(output->file) == 0 && good;
        if (good && output->temporary[0] && rename(output->temporary, output->target) != 0)
            good = false;
        reason = before && !good ? errno : reason;
        if (!good && output->temporary[0])
            unlink(output->temporary);
        guard("");
    }
    if (!good && interrupted)
        fprintf(stderr, "tsleuth: interrupted; \"%s\" was not written\n", output->path);
    else if (!good && output->file == stdout)
        fprintf(stderr, "tsleuth: cannot write to standard output%s%s\n", reason ? ": " : "",
                reason ? strerror(reason) : "");
    else if (!good)
        fprintf(stderr, "tsleuth: cannot write \"%s\"%s%s\n", output->path, reason ? ": " : "",
                reason ? strerror(reason) : "");
    return good;
}

void output_discard(struct output *output)
{
    if (output->file == stdout)
        return;
    fclose(output->file);
    if (output->temporary[0])
        unlink(output->temporary);
    guard("");
}

static void json_write(void *context, const char *data, size_t size)
{
    struct json_file *json = context;
    output_write(&json->output, data, size);
}

bool json_file_open(struct json_file *json, const char *path)
{
    *json = (struct json_file){0};
    if (!output_open(&json->output, path))
        return false;
    ts_buffer_init(&json->buffer, (size_t)64 << 20);
    ts_json_writer_init(&json->writer, &json->buffer, 1);
    json->writer.flush = json_write;
    json->writer.flush_context = json;
    return true;
}

bool json_file_close(struct json_file *json)
{
    ts_json_finish(&json->writer);
    if (json->buffer.failed)
        json->output.failed = true;
    ts_buffer_release(&json->buffer);
    return output_close(&json->output);
}
