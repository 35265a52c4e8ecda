/* What tests/capture/run lets a real program do with tsleuth_dump.h, one job per run.
 *
 * With CRASH_STEPS defined, the system calls that change files are counted, a write page by page as the kernel does it,
 * and the process kills itself before step CRASH_AT: every state that kill -9 can leave, one after the other. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef CRASH_STEPS
static void step(void)
{
    static long steps, crash_at = -1;
    if (crash_at < 0)
        crash_at = getenv("CRASH_AT") ? strtol(getenv("CRASH_AT"), NULL, 10) : 0;
    if (++steps == crash_at)
        kill(getpid(), SIGKILL);
}

static ssize_t stepped_pwrite(int fd, const void *data, size_t size, off_t at)
{
    size_t page = 4096 - (size_t)at % 4096;
    step();
    return pwrite(fd, data, size < page ? size : page, at);
}

static int stepped_ftruncate(int fd, off_t size)
{
    step();
    return ftruncate(fd, size);
}

static int stepped_rename(const char *from, const char *to)
{
    step();
    return rename(from, to);
}

static int stepped_link(const char *from, const char *to)
{
    step();
    return link(from, to);
}

static int stepped_unlink(const char *path)
{
    step();
    return unlink(path);
}
#define pwrite    stepped_pwrite
#define ftruncate stepped_ftruncate
#define rename    stepped_rename
#define link      stepped_link
#define unlink    stepped_unlink
#endif

#define TSLEUTH_DUMP_IMPLEMENTATION
#include "tsleuth_dump.h"

/* Bytes that say which tensor they are of: its number, over and over. */
static uint64_t *numbered(uint64_t number, size_t words)
{
    static uint64_t *buffer;
    static size_t room;
    if (words > room) {
        free(buffer);
        room = words * 2;
        buffer = malloc(room * sizeof *buffer);
        if (!buffer)
            exit(9);
    }
    for (size_t i = 0; i < words; i++)
        buffer[i] = number;
    return buffer;
}

static int dump_numbered(const char *prefix, uint64_t number, size_t words)
{
    char name[64];
    int64_t shape[1] = {(int64_t)words};
    snprintf(name, sizeof name, "%s.%llu", prefix, (unsigned long long)number);
    return ts_dump_plain(name, TS_DUMP_U64, numbered(number, words), 1, shape);
}

/* Each type with 24 bytes 1 ... 24. */
static int types(void)
{
    static const char *const names[] = {"F32",     "F64",         "F16",         "BF16",    "F8_E4M3", "F8_E5M2",
                                        "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F6_E2M3", "F6_E3M2", "F4",
                                        "C64",     "I64",         "I32",         "I16",     "I8",      "U64",
                                        "U32",     "U16",         "U8",          "BOOL"};
    static const int64_t counts[] = {6, 3, 12, 12, 24, 24, 24, 24, 24, 32, 32, 48, 3, 3, 6, 12, 24, 3, 6, 12, 24, 24};
    unsigned char bytes[24];
    int failed = 0;
    for (int i = 0; i < 24; i++)
        bytes[i] = (unsigned char)(i + 1);
    for (int i = 0; i < 22; i++) {
        int64_t shape[2] = {1, counts[i]};
        failed |= !ts_dump_plain(names[i], (enum ts_dump_type)i, bytes, 2, shape);
        memset(bytes, 0, sizeof bytes); /* nothing may be looked at later */
        for (int k = 0; k < 24; k++)
            bytes[k] = (unsigned char)(k + 1);
    }
    return failed;
}

static int strided(const char *name, const int32_t *data, int ndim, const int64_t *shape, const int64_t *strides)
{
    struct ts_dump_tensor tensor = ts_dump_describe(name, TS_DUMP_I32, data, ndim, shape);
    tensor.strides = strides;
    return !ts_dump(&tensor);
}

static int strides(void)
{
    static int32_t data[1 << 20];
    int failed = 0;
    for (int i = 0; i < 1 << 20; i++)
        data[i] = i;
#define JOB(name, at, n, shape, strides)                                                                               \
    failed |= strided(name, data + (at), n, (const int64_t[])shape, (const int64_t[])strides)
#define SET(...) {__VA_ARGS__}
    JOB("plain", 0, 2, SET(3, 4), SET(4, 1));
    JOB("transposed", 0, 2, SET(4, 3), SET(1, 4));
    JOB("sliced", 5, 3, SET(2, 3, 4), SET(100, 10, 2));
    JOB("backwards", 23, 2, SET(4, 6), SET(-6, -1));
    JOB("broadcast", 7, 3, SET(3, 1, 5), SET(0, 99, 1));
    JOB("all_zero", 9, 2, SET(2, 2), SET(0, 0));
    JOB("scalar", 42, 0, SET(1), SET(1));
    JOB("empty", 0, 3, SET(3, 0, 2), SET(5, 5, 5));
    JOB("large_transposed", 0, 2, SET(1024, 1024), SET(1, 1024));
    JOB("large_rows", 0, 2, SET(512, 1000), SET(2000, 1));
#undef SET
#undef JOB
    return failed;
}

static int names(void)
{
    static char huge[5000];
    static const char *const list[] = {"a/b/c",
                                       "say \"hi\"",
                                       "back\\slash",
                                       "new\nline\ttab\x01",
                                       "grüße 張量 🙂",
                                       "bad \xff\xfe end",
                                       "cut \xe2\x82",
                                       "over \xc0\xaf",
                                       "surrogate \xed\xa0\x80",
                                       "",
                                       "__metadata__",
                                       "__tsleuth_spare__",
                                       "twice",
                                       "twice",
                                       "twice#2",
                                       "twice",
                                       "third#2",
                                       "third",
                                       "third"};
    float value = 0;
    int failed = 0;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++, value += 1.0f)
        failed |= !ts_dump_f32(list[i], &value, 0, NULL);
    memset(huge, 'x', sizeof huge - 1);
    failed |= !ts_dump_f32(huge, &value, 0, NULL);
    huge[sizeof huge - 2] = 'y';
    value += 1.0f;
    failed |= !ts_dump_f32(huge, &value, 0, NULL);
    memset(huge, '\x01', sizeof huge - 1);
    value += 1.0f;
    failed |= !ts_dump_f32(huge, &value, 0, NULL);
    return failed | !ts_dump_f32(NULL, &value, 0, NULL);
}

static int notes(void)
{
    float data[24] = {0};
    int64_t shape[3] = {2, 3, 4};
    struct ts_dump_tensor tensor = ts_dump_describe("noted", TS_DUMP_F32, data, 3, shape);
    int32_t tokens[3] = {1, -2, 30000};
    ts_dump_info("precision", "f32 \"quoted\"");
    ts_dump_tokens(tokens, 3);
    tensor.axes = "tokens,heads,channels";
    tensor.layer = 7;
    tensor.step = 2;
    return !ts_dump(&tensor) | !ts_dump_f32("plain", data, 3, shape);
}

/* Wrong descriptions are refused, and told of; what follows is written. */
static int wrong(void)
{
    float data[4] = {1, 2, 3, 4};
    int64_t good[1] = {4}, negative[2] = {2, -1}, vast[3] = {1 << 30, 1 << 30, 1 << 30}, odd[1] = {3};
    struct ts_dump_tensor packed = ts_dump_describe("packed", TS_DUMP_F4, data, 1, good);
    int accepted = 0;
    packed.strides = good;
    accepted |= ts_dump_f32("negative", data, 2, negative);
    accepted |= ts_dump_f32("vast", data, 3, vast);
    accepted |= ts_dump_f32("no_data", NULL, 1, good);
    accepted |= ts_dump_f32("no_shape", data, 1, NULL);
    accepted |= ts_dump_f32("axes", data, 99, good);
    accepted |= ts_dump_plain("type", (enum ts_dump_type)77, data, 1, good);
    accepted |= ts_dump_plain("bits", TS_DUMP_F4, data, 1, odd);
    accepted |= ts_dump(&packed);
    return accepted | !ts_dump_f32("good", data, 1, good);
}

static int many(uint64_t count, size_t words, int noted)
{
    int failed = 0;
    for (uint64_t i = 0; i < count; i++) {
        char name[96];
        int64_t shape[1] = {(int64_t)words};
        struct ts_dump_tensor tensor;
        snprintf(name, sizeof name, "model.layers.%llu.self_attn.point_%llu", (unsigned long long)(i / 100),
                 (unsigned long long)(i % 100));
        tensor = ts_dump_describe(name, TS_DUMP_U64, numbered(i, words), 1, shape);
        tensor.layer = noted ? (int64_t)(i / 100) : -1;
        failed |= !ts_dump(&tensor);
    }
    return failed;
}

/* As `forever`, but for a number of tensors, and it ends well. */
static int some(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        char name[64];
        size_t words = (size_t)(i * 7 % 23) * (i % 16 == 5 ? 100 : 1);
        int64_t shape[1] = {(int64_t)words};
        struct ts_dump_tensor tensor;
        snprintf(name, sizeof name, "t.%llu", (unsigned long long)i);
        tensor = ts_dump_describe(name, TS_DUMP_U64, numbered(i, words), 1, shape);
        tensor.step = i % 4 == 0 ? (int64_t)i : -1;
        if (!ts_dump(&tensor))
            return 1;
        if (write(1, &i, sizeof i) != (ssize_t)sizeof i)
            return 2;
    }
    return 0;
}

/* Dumps until it is killed; writes the number of each tensor that was acknowledged to standard output. */
static int forever(unsigned seed, size_t most_words, int noted)
{
    for (uint64_t i = 0;; i++) {
        unsigned sort;
        size_t words;
        seed = seed * 1103515245u + 12345u;
        sort = seed >> 16 & 63;
        words = sort < 8 ? 0 : sort < 60 ? sort * 3 : (seed >> 8) % most_words;
        if (noted && sort % 3 == 0) {
            char name[64];
            int64_t shape[1] = {(int64_t)words};
            struct ts_dump_tensor tensor;
            snprintf(name, sizeof name, "t.%llu", (unsigned long long)i);
            tensor = ts_dump_describe(name, TS_DUMP_U64, numbered(i, words), 1, shape);
            tensor.step = (int64_t)i;
            if (!ts_dump(&tensor))
                return 1;
        } else if (!dump_numbered("t", i, words)) {
            return 1;
        }
        if (write(1, &i, sizeof i) != (ssize_t)sizeof i)
            return 2;
    }
}

static void *thread_job(void *argument)
{
    uint64_t from = *(const uint64_t *)argument;
    for (uint64_t i = from; i < from + 500; i++) {
        uint64_t data[64];
        char name[32];
        int64_t shape[1] = {64};
        for (int k = 0; k < 64; k++)
            data[k] = i;
        snprintf(name, sizeof name, "t.%llu", (unsigned long long)i);
        if (!ts_dump_plain(name, TS_DUMP_U64, data, 1, shape))
            return argument;
        memset(data, 0xee, sizeof data);
    }
    return NULL;
}

static int threads(void)
{
    pthread_t ids[8];
    uint64_t from[8];
    int failed = 0;
    for (uint64_t i = 0; i < 8; i++) {
        from[i] = i * 1000;
        if (pthread_create(&ids[i], NULL, thread_job, &from[i]) != 0)
            return 1;
    }
    for (int i = 0; i < 8; i++) {
        void *result;
        pthread_join(ids[i], &result);
        failed |= result != NULL;
    }
    return failed;
}

/* A child that dumps, and ends by exit, beside a parent that goes on. */
static int forked(void)
{
    int status, failed = !dump_numbered("parent", 1, 10);
    pid_t child = fork();
    if (child == 0)
        exit(!dump_numbered("child", 2, 10));
    if (waitpid(child, &status, 0) != child || status != 0)
        return 1;
    child = fork();
    if (child == 0)
        exit(0); /* dumped nothing: must leave the parent's file alone */
    if (waitpid(child, &status, 0) != child || status != 0)
        return 1;
    return failed | !dump_numbered("parent", 3, 10);
}

static int ranks(void)
{
    int64_t shape[1] = {8};
    int failed = 0;
    for (int rank = 0; rank < 3; rank++) {
        struct ts_dump_tensor tensor = ts_dump_describe("x", TS_DUMP_U64, numbered((uint64_t)rank, 8), 1, shape);
        tensor.rank = rank;
        failed |= !ts_dump(&tensor);
    }
    return failed;
}

static int switches(const char *first, const char *second)
{
    int failed = dump_numbered("off", 0, 4) | ts_dump_wants(NULL);
    ts_dump_enable(first);
    failed |= !dump_numbered("a", 1, 4) | !ts_dump_wants("a");
    ts_dump_disable();
    failed |= dump_numbered("warmup", 2, 4);
    ts_dump_enable(NULL);
    failed |= !dump_numbered("a", 3, 4);
    ts_dump_enable(second);
    failed |= !dump_numbered("b", 4, 4);
    ts_dump_flush();
    ts_dump_close();
    failed |= !dump_numbered("late", 5, 4);
    return failed;
}

/* Under a limit on the size of files, the writer must stop by itself: no SIGXFSZ, no tensor half written. */
static int limited(uint64_t limit, size_t words)
{
    struct rlimit old = {limit, RLIM_INFINITY};
    int written = 0;
    if (setrlimit(RLIMIT_FSIZE, &old) != 0)
        return 1;
    for (uint64_t i = 0; i < 100; i++)
        written += dump_numbered("t", i, words);
    printf("%d\n", written);
    return 0;
}

static int until_full(size_t words)
{
    int written = 0;
    for (uint64_t i = 0; i < 200; i++)
        written += dump_numbered("t", i, words);
    written += dump_numbered("last", 200, 1);
    printf("%d\n", written);
    return 0;
}

static int sampled(void)
{
    static int32_t data[100 * 50];
    int64_t three[3] = {10, 10, 50}, flat[1] = {5000}, small[1] = {10}, transposed[2] = {50, 100}, by[2] = {1, 50};
    for (int i = 0; i < 5000; i++)
        data[i] = i;
    return !ts_dump_i32("rows", data, 3, three) | !ts_dump_i32("flat", data, 1, flat) |
           !ts_dump_i32("small", data, 1, small) | strided("transposed", data, 2, transposed, by);
}

static int hold(void)
{
    int failed = !dump_numbered("t", 0, 100);
    char byte = 'r';
    if (write(1, &byte, 1) != 1 || read(0, &byte, 1) < 0)
        return 1;
    return failed | !dump_numbered("t", 1, 100);
}

static uint64_t number(char **argv, int argc, int at)
{
    return argc > at ? strtoull(argv[at], NULL, 10) : 0;
}

int main(int argc, char **argv)
{
    const char *job = argc > 1 ? argv[1] : "";
    if (strcmp(job, "types") == 0)
        return types();
    if (strcmp(job, "strides") == 0)
        return strides();
    if (strcmp(job, "names") == 0)
        return names();
    if (strcmp(job, "notes") == 0)
        return notes();
    if (strcmp(job, "wrong") == 0)
        return wrong();
    if (strcmp(job, "many") == 0)
        return many(number(argv, argc, 2), (size_t)number(argv, argc, 3), number(argv, argc, 4) != 0);
    if (strcmp(job, "forever") == 0)
        return forever((unsigned)number(argv, argc, 2), (size_t)number(argv, argc, 3), number(argv, argc, 4) != 0);
    if (strcmp(job, "some") == 0)
        return some(number(argv, argc, 2));
    if (strcmp(job, "threads") == 0)
        return threads();
    if (strcmp(job, "fork") == 0)
        return forked();
    if (strcmp(job, "ranks") == 0)
        return ranks();
    if (strcmp(job, "switches") == 0 && argc > 3)
        return switches(argv[2], argv[3]);
    if (strcmp(job, "limited") == 0)
        return limited(number(argv, argc, 2), (size_t)number(argv, argc, 3));
    if (strcmp(job, "full") == 0)
        return until_full((size_t)number(argv, argc, 2));
    if (strcmp(job, "sampled") == 0)
        return sampled();
    if (strcmp(job, "hold") == 0)
        return hold();
    return 64;
}
