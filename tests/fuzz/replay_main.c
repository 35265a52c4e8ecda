/* Replay: runs a fuzz target over files and folders without a fuzzer, under any compiler's sanitizers.
 *
 * usage: fuzz_NAME FILE-OR-FOLDER...
 *
 * Folders are walked in name order. Before each input its path goes to standard output, and `ok` after it:
 * the last path without an `ok` is the one that crashed. Longer than 30 seconds counts as a crash. */
#include <dirent.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECONDS_PER_INPUT 30

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int complain(const char *path)
{
    fprintf(stderr, "replay: '%s': %s\n", path, strerror(errno));
    return 1;
}

static int replay_file(const char *path, size_t size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return complain(path);
    /* Exactly as large as the input, so that a read of one byte more is seen. */
    uint8_t *data = malloc(size ? size : 1);
    if (!data || fread(data, 1, size, file) != size) {
        int status = complain(path);
        free(data);
        fclose(file);
        return status;
    }
    fclose(file);

    printf("# %s\n", path);
    fflush(stdout);
    alarm(SECONDS_PER_INPUT);
    LLVMFuzzerTestOneInput(data, size);
    alarm(0);
    printf("ok %s\n", path);
    fflush(stdout);
    free(data);
    return 0;
}

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int replay(const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0)
        return complain(path);
    if (!S_ISDIR(about.st_mode))
        return replay_file(path, (size_t)about.st_size);

    struct dirent **entries;
    int count = scandir(path, &entries, visible, alphasort);
    if (count < 0)
        return complain(path);
    int status = 0;
    for (int i = 0; i < count; i++) {
        char below[4096];
        int length = snprintf(below, sizeof below, "%s/%s", path, entries[i]->d_name);
        free(entries[i]);
        if (length < 0 || (size_t)length >= sizeof below) {
            errno = ENAMETOOLONG;
            status |= complain(path);
        } else {
            status |= replay(below);
        }
    }
    free(entries);
    return status;
}

int main(int argc, char **argv)
{
    int status = 0;
    for (int i = 1; i < argc; i++)
        status |= replay(argv[i]);
    return status;
}
