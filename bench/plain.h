/* Plain reading: the limit for anything that looks at each byte of a file.
 *
 * Files are added up as 64-bit words, the least that can be done with bytes that were really fetched, in pieces that
 * the threads take in turn; from a fresh mapping, or with read(). */
#ifndef TS_BENCH_PLAIN_H
#define TS_BENCH_PLAIN_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/pool.h"
#include "measure.h"

#define PLAIN_PIECE  ((size_t)4 << 20)
#define PLAIN_BUFFER ((size_t)256 << 10) /* read() into what stays in a core's second-level cache */
#define PLAIN_FILES  2

typedef uint64_t plain_words __attribute__((vector_size(64), aligned(1), may_alias));

/* Four sums, so that no addition waits for the one before. */
#define PLAIN_ADD_WORDS(NAME, TARGET)                                                                                  \
    TARGET static uint64_t NAME(const uint8_t *data, size_t size)                                                      \
    {                                                                                                                  \
        const plain_words *at = (const plain_words *)data;                                                             \
        plain_words a = {0}, b = {0}, c = {0}, d = {0};                                                                \
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

PLAIN_ADD_WORDS(plain_add, )
#if defined(__x86_64__)
PLAIN_ADD_WORDS(plain_add_avx2, __attribute__((target("avx2"))))
PLAIN_ADD_WORDS(plain_add_avx512, __attribute__((target("avx512f"))))
#endif

struct plain {
    struct {
        const uint8_t *mapped; /* NULL: read() */
        int file;
        uint64_t size, pieces;
    } files[PLAIN_FILES];
    unsigned count;
    bool giving_back; /* pages of a mapping, piece by piece, as whoever may not keep them has to */
    uint64_t bytes;
    uint64_t *sums;    /* per piece, so that nothing can be left out */
    uint8_t **buffers; /* per worker */
    uint64_t (*add)(const uint8_t *data, size_t size);
};

static inline void plain_read_piece(void *context, uint64_t index, unsigned worker)
{
    const struct plain *plain = context;
    uint64_t first, left, *sum = &plain->sums[index];
    unsigned which = 0;
    while (index >= plain->files[which].pieces)
        index -= plain->files[which++].pieces;
    first = index * PLAIN_PIECE;
    left = plain->files[which].size - first;
    left = left < PLAIN_PIECE ? left : PLAIN_PIECE;
    *sum = 0;
    if (plain->files[which].mapped) {
        *sum = plain->add(plain->files[which].mapped + first, (size_t)left);
        if (plain->giving_back)
            madvise((void *)(plain->files[which].mapped + first), (size_t)left, MADV_DONTNEED);
        return;
    }
    while (left) {
        size_t asked = left < PLAIN_BUFFER ? (size_t)left : PLAIN_BUFFER;
        ssize_t got = pread(plain->files[which].file, plain->buffers[worker], asked, (off_t)first);
        if (got <= 0)
            give_up("cannot read: %s", got < 0 ? strerror(errno) : "the file ended");
        *sum += plain->add(plain->buffers[worker], (size_t)got);
        first += (uint64_t)got;
        left -= (uint64_t)got;
    }
}

/* Seconds for all of the files, one after the other. Making and removing a mapping is not part of it. */
static inline double plain_read(struct ts_pool *pool, struct plain *plain, bool mapping)
{
    uint64_t pieces = 0;
    double start, seconds;
    for (unsigned i = 0; i < plain->count; i++) {
        void *mapped = NULL;
        if (mapping)
            mapped = mmap(NULL, plain->files[i].size, PROT_READ, MAP_SHARED, plain->files[i].file, 0);
        if (mapped == MAP_FAILED)
            give_up("cannot map: %s", strerror(errno));
        plain->files[i].mapped = mapped;
        pieces += plain->files[i].pieces;
    }
    start = now();
    ts_pool_run(pool, pieces, plain_read_piece, plain);
    seconds = now() - start;
    for (unsigned i = 0; i < plain->count; i++)
        if (mapping)
            munmap((void *)plain->files[i].mapped, plain->files[i].size);
    return seconds;
}

/* Opens the files and reads them once, into the cache of the system. */
static inline void plain_open(struct ts_pool *pool, char *const *paths, unsigned count, struct plain *plain)
{
    uint64_t pieces = 0;
    struct stat info;
    *plain = (struct plain){.count = count, .add = plain_add};
#if defined(__x86_64__)
    if (ts_simd_level() == TS_SIMD_AVX2)
        plain->add = plain_add_avx2;
    if (ts_simd_level() >= TS_SIMD_AVX512)
        plain->add = plain_add_avx512;
#endif
    for (unsigned i = 0; i < count; i++) {
        int file = open(paths[i], O_RDONLY);
        if (file < 0 || fstat(file, &info) != 0)
            give_up("%s: %s", paths[i], strerror(errno));
        plain->files[i].file = file;
        plain->files[i].size = (uint64_t)info.st_size;
        plain->files[i].pieces = (plain->files[i].size + PLAIN_PIECE - 1) / PLAIN_PIECE;
        plain->bytes += plain->files[i].size;
        pieces += plain->files[i].pieces;
    }
    plain->sums = calloc(pieces + 1, sizeof *plain->sums);
    plain->buffers = calloc(ts_pool_width(pool), sizeof *plain->buffers);
    if (!plain->sums || !plain->buffers)
        give_up("no memory");
    for (unsigned i = 0; i < ts_pool_width(pool); i++)
        if (!(plain->buffers[i] = aligned_alloc(64, PLAIN_BUFFER)))
            give_up("no memory");
    plain_read(pool, plain, false);
}

static inline void plain_close(struct ts_pool *pool, struct plain *plain)
{
    for (unsigned i = 0; i < ts_pool_width(pool); i++)
        free(plain->buffers[i]);
    for (unsigned i = 0; i < plain->count; i++)
        close(plain->files[i].file);
    free(plain->buffers);
    free(plain->sums);
}

#endif
