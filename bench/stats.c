/* Statistics of a file, and the comparison of its halves, against plain reading of the same file with the same threads:
 * bench_stats FILE ROUNDS
 *
 * Plain reading adds up the file as 64-bit words, the least that can be done with bytes that were really fetched, in
 * pieces that the threads take in turn; once from a fresh mapping, once with read(). The rounds of all three alternate,
 * so that a busy machine is as busy for each. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/pool.h"
#include "compare/delta.h"
#include "compare/stats.h"
#include "measure.h"
#include "read/open.h"

#define PIECE  ((size_t)4 << 20)
#define SHIFT  ((uint64_t)7)       /* rows: the data repeats, and halves that begin at other places of it differ */
#define BUFFER ((size_t)256 << 10) /* read() into what stays in a core's second-level cache */

typedef uint64_t words __attribute__((vector_size(64), aligned(1), may_alias));

/* Four sums, so that no addition waits for the one before. */
#define ADD_WORDS(NAME, TARGET)                                                                                        \
    TARGET static uint64_t NAME(const uint8_t *data, size_t size)                                                      \
    {                                                                                                                  \
        const words *at = (const words *)data;                                                                         \
        words a = {0}, b = {0}, c = {0}, d = {0};                                                                      \
        uint64_t sum = 0;                                                                                              \
        for (size_t i = 0; i + 4 <= size / sizeof *at; i += 4) {                                                       \
            a += at[i];                                                                                                \
            b += at[i + 1];                                                                                            \
            c += at[i + 2];                                                                                            \
            d += at[i + 3];                                                                                            \
        }                                                                                                              \
        a += b + c + d;                                                                                                \
        for (int i = 0; i < 8; i++)                                                                                    \
            sum += a[i];                                                                                               \
        return sum;                                                                                                    \
    }

ADD_WORDS(add_words_plainly, )
#if defined(__x86_64__)
ADD_WORDS(add_words_avx2, __attribute__((target("avx2"))))
ADD_WORDS(add_words_avx512, __attribute__((target("avx512f"))))
#endif

struct reading {
    const uint8_t *mapped; /* NULL: read() */
    int file;
    uint64_t size, *sums; /* per piece, so that nothing can be left out */
    uint8_t **buffers;    /* per worker */
    uint64_t (*add)(const uint8_t *data, size_t size);
};

static void read_piece(void *context, uint64_t index, unsigned worker)
{
    const struct reading *reading = context;
    uint64_t first = index * PIECE, left = reading->size - first;
    left = left < PIECE ? left : PIECE;
    reading->sums[index] = 0;
    if (reading->mapped) {
        reading->sums[index] = reading->add(reading->mapped + first, (size_t)left);
        return;
    }
    while (left) {
        size_t asked = left < BUFFER ? (size_t)left : BUFFER;
        ssize_t got = pread(reading->file, reading->buffers[worker], asked, (off_t)first);
        if (got <= 0)
            give_up("cannot read: %s", got < 0 ? strerror(errno) : "the file ended");
        reading->sums[index] += reading->add(reading->buffers[worker], (size_t)got);
        first += (uint64_t)got;
        left -= (uint64_t)got;
    }
}

static double read_plainly(struct ts_pool *pool, struct reading *reading, bool mapping)
{
    double start, seconds;
    void *mapped = NULL;
    if (mapping) {
        mapped = mmap(NULL, reading->size, PROT_READ, MAP_SHARED, reading->file, 0);
        if (mapped == MAP_FAILED)
            give_up("cannot map: %s", strerror(errno));
    }
    reading->mapped = mapped;
    start = now();
    ts_pool_run(pool, (reading->size + PIECE - 1) / PIECE, read_piece, reading);
    seconds = now() - start;
    if (mapped)
        munmap(mapped, reading->size);
    return seconds;
}

static double measure_stats(struct ts_pool *pool, const char *path, struct ts_stats *stats, uint64_t *bytes)
{
    struct ts_bundle *bundle;
    struct ts_error error;
    double start, seconds;
    if (ts_open(path, NULL, &bundle, &error) != TS_OK)
        give_up("%s: %s", path, error.message);
    if (bundle->count != 1)
        give_up("%s: one tensor was expected", path);
    *bytes = bundle->tensors[0]->bytes;
    start = now();
    if (ts_stats_run(pool, bundle->tensors, 1, stats, NULL, &error) != TS_OK)
        give_up("%s: %s", path, error.message);
    seconds = now() - start;
    ts_bundle_free(bundle);
    return seconds;
}

/* The first half of the tensor against its second half: as many bytes as the file has, and everything differs. */
static double measure_compare(struct ts_pool *pool, const char *path, struct ts_delta *delta)
{
    const struct ts_delta_options options = {0};
    struct ts_bundle *bundle;
    struct ts_arena arena;
    struct ts_view whole;
    struct ts_pair pair = {.name = "halves", .name_b = "halves"};
    struct ts_error error;
    double start, seconds;
    uint64_t half;
    if (ts_open(path, NULL, &bundle, &error) != TS_OK)
        give_up("%s: %s", path, error.message);
    ts_arena_init(&arena, (size_t)1 << 20);
    half = bundle->tensors[0]->shape[0] / 2 - SHIFT;
    if (!ts_view_of(bundle->tensors[0], &arena, &whole) || !ts_view_slice(&whole, 0, 0, half, 1, &arena, &pair.a) ||
        !ts_view_slice(&whole, 0, half + 2 * SHIFT, half, 1, &arena, &pair.b))
        give_up("no memory");
    start = now();
    if (ts_delta_run(pool, &pair, 1, &options, delta, NULL, &error) != TS_OK)
        give_up("%s: %s", path, error.message);
    seconds = now() - start;
    ts_arena_release(&arena);
    ts_bundle_free(bundle);
    return seconds;
}

int main(int argc, char **argv)
{
    struct reading reading = {.add = add_words_plainly};
    struct best stats_best = {0}, compare_best = {0}, mapped_best = {0}, read_best = {0};
    struct ts_pool *pool = ts_pool_new(0);
    struct ts_stats stats = {0};
    struct ts_delta delta = {0};
    struct stat info;
    uint64_t bytes = 0;
    if (argc != 3)
        give_up("usage: %s FILE ROUNDS", argv[0]);
#if defined(__x86_64__)
    if (ts_simd_level() == TS_SIMD_AVX2)
        reading.add = add_words_avx2;
    if (ts_simd_level() == TS_SIMD_AVX512)
        reading.add = add_words_avx512;
#endif
    reading.file = open(argv[1], O_RDONLY);
    if (reading.file < 0 || fstat(reading.file, &info) != 0)
        give_up("%s: %s", argv[1], strerror(errno));
    reading.size = (uint64_t)info.st_size;
    reading.sums = calloc(reading.size / PIECE + 1, sizeof *reading.sums);
    reading.buffers = pool ? calloc(ts_pool_width(pool), sizeof *reading.buffers) : NULL;
    if (!pool || !reading.sums || !reading.buffers)
        give_up("no memory");
    for (unsigned i = 0; i < ts_pool_width(pool); i++)
        if (!(reading.buffers[i] = aligned_alloc(64, BUFFER)))
            give_up("no memory");
    read_plainly(pool, &reading, false); /* all of it into the cache of the system, and the buffers into memory */
    for (unsigned long long rounds = number_argument(argv[2], "rounds"); rounds; rounds--) {
        best_add(&stats_best, measure_stats(pool, argv[1], &stats, &bytes));
        best_add(&compare_best, measure_compare(pool, argv[1], &delta));
        best_add(&mapped_best, read_plainly(pool, &reading, true));
        best_add(&read_best, read_plainly(pool, &reading, false));
    }
    printf("{\"bytes\": %" PRIu64 ", \"file_bytes\": %" PRIu64 ", \"threads\": %u, \"stats_s\": %.9f, "
           "\"compare_s\": %.9f, \"mapped_s\": %.9f, \"read_s\": %.9f, \"std\": %.9g, \"rel_l2\": %.9g}\n",
           bytes, reading.size, ts_pool_width(pool), stats_best.seconds, compare_best.seconds, mapped_best.seconds,
           read_best.seconds, stats.std, delta.rel_l2);
    for (unsigned i = 0; i < ts_pool_width(pool); i++)
        free(reading.buffers[i]);
    free(reading.buffers);
    free(reading.sums);
    ts_pool_free(pool);
    close(reading.file);
    return 0;
}
