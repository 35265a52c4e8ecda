/* What tsleuth_dump.h costs: bench_dump FOLDER MEGABYTES ROUNDS
 *
 * Bytes through ts_dump beside the same bytes through plain pwrite to a new file, in alternating rounds: large tensors,
 * and small ones (4 KiB each). And a call while dumping is switched off, beside an empty loop. */
#define TSLEUTH_DUMP_IMPLEMENTATION
#include "tsleuth_dump.h"

#include "measure.h"

static void plain_write(const char *path, const char *data, size_t piece, size_t pieces)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    if (fd < 0)
        give_up("%s: %s", path, strerror(errno));
    for (size_t i = 0; i < pieces; i++)
        if (pwrite(fd, data, piece, (off_t)(i * piece)) != (ssize_t)piece)
            give_up("%s: %s", path, strerror(errno));
    close(fd);
}

static void dump(const char *path, const char *data, size_t piece, size_t pieces)
{
    int64_t shape[1] = {(int64_t)(piece / sizeof(float))};
    ts_dump_enable(path);
    for (size_t i = 0; i < pieces; i++) {
        char name[64];
        snprintf(name, sizeof name, "model.layers.%zu.point_%zu", i / 100, i % 100);
        if (!ts_dump_plain(name, TS_DUMP_F32, data, 1, shape))
            give_up("%s: a tensor was not written", path);
    }
    ts_dump_close();
}

static void measure(const char *folder, const char *what, size_t piece, size_t bytes, unsigned long long rounds)
{
    size_t pieces = bytes / piece;
    struct best ours = {0}, plain = {0};
    char path[4096], *data = malloc(piece);
    if (!data)
        give_up("no memory");
    memset(data, 0x3f, piece);
    for (unsigned long long i = 0; i < rounds; i++) {
        double start = now();
        snprintf(path, sizeof path, "%s/plain", folder);
        plain_write(path, data, piece, pieces);
        best_add(&plain, now() - start);
        unlink(path);
        snprintf(path, sizeof path, "%s/%s-%llu.safetensors", folder, what, i);
        start = now();
        dump(path, data, piece, pieces);
        best_add(&ours, now() - start);
        unlink(path);
    }
    free(data);
    printf("{\"what\": \"%s\", \"bytes\": %zu, \"tensors\": %zu, \"dump_s\": %.9f, \"plain_s\": %.9f}\n", what,
           pieces * piece, pieces, ours.seconds, plain.seconds);
}

__attribute__((noinline)) static double calls(size_t count, const float *data, const int64_t *shape)
{
    double start = now();
    for (size_t i = 0; i < count; i++) {
        ts_dump_f32("model.layers.0.self_attn.q_proj", data, 2, shape);
        __asm__ volatile("" ::: "memory");
    }
    return now() - start;
}

__attribute__((noinline)) static double nothing(size_t count)
{
    double start = now();
    for (size_t i = 0; i < count; i++)
        __asm__ volatile("" ::: "memory");
    return now() - start;
}

static void measure_disabled(unsigned long long rounds)
{
    const size_t count = 100000000;
    const int64_t shape[2] = {4, 4};
    float data[16] = {0};
    struct best off = {0}, empty = {0};
    ts_dump_disable();
    for (unsigned long long i = 0; i < rounds; i++) {
        best_add(&off, calls(count, data, shape));
        best_add(&empty, nothing(count));
    }
    printf("{\"what\": \"disabled\", \"call_s\": %.15f, \"empty_s\": %.15f}\n", off.seconds / (double)count,
           empty.seconds / (double)count);
}

int main(int argc, char **argv)
{
    unsigned long long rounds;
    size_t bytes;
    if (argc != 4)
        give_up("usage: %s FOLDER MEGABYTES ROUNDS", argv[0]);
    bytes = (size_t)number_argument(argv[2], "megabytes") << 20;
    rounds = number_argument(argv[3], "rounds");
    measure(argv[1], "large", (size_t)16 << 20, bytes, rounds);
    measure(argv[1], "small", 4096, bytes / 4, rounds);
    measure_disabled(rounds);
    return 0;
}
