/* A folder for a test to write in. Paths given to these functions are relative to it; missing folders are made. */
#ifndef TS_TEST_SCRATCH_H
#define TS_TEST_SCRATCH_H

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch[4096];

__attribute__((unused)) static int scratch_make(void **state)
{
    const char *parent = getenv("TMPDIR");
    char made[2048], *real;
    (void)state;
    snprintf(made, sizeof made, "%s/tsleuth-test-XXXXXX", parent && *parent ? parent : "/tmp");
    if (!mkdtemp(made) || !(real = realpath(made, NULL)))
        return -1;
    snprintf(scratch, sizeof scratch, "%s", real);
    free(real);
    return 0;
}

static int scratch_remove_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info, (void)type, (void)where;
    return remove(path);
}

__attribute__((unused)) static int scratch_remove(void **state)
{
    (void)state;
    return nftw(scratch, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* The full path; good until the eighth call after it. */
__attribute__((unused)) static const char *scratch_path(const char *name)
{
    static char paths[8][8192];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", scratch, name);
    return path;
}

/* Makes the folders above a file. */
__attribute__((unused)) static const char *scratch_above(const char *name)
{
    char path[8192];
    snprintf(path, sizeof path, "%s", scratch_path(name));
    for (char *slash = path + strlen(scratch) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            abort();
        *slash = '/';
    }
    return scratch_path(name);
}

__attribute__((unused)) static void scratch_write(const char *name, const void *data, size_t size)
{
    FILE *file = fopen(scratch_above(name), "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        abort();
}

__attribute__((unused)) static void scratch_text(const char *name, const char *text)
{
    scratch_write(name, text, strlen(text));
}

__attribute__((unused)) static void scratch_link(const char *name, const char *target)
{
    if (symlink(target, scratch_above(name)) != 0)
        abort();
}

#endif
