/* The small modules of src/base: arena, buffer, number, ordered, error, cpu and progress. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/number.h"
#include "base/ordered.h"
#include "base/progress.h"

static void test_arena_alloc(void **state)
{
    struct ts_arena arena;
    static const unsigned char zeros[40000];
    (void)state;
    ts_arena_init(&arena, 1 << 24);
    for (size_t size = 0; size < 40000; size = size * 3 / 2 + 1) {
        unsigned char *data = ts_arena_alloc(&arena, size);
        assert_non_null(data);
        assert_int_equal((uintptr_t)data % alignof(max_align_t), 0);
        assert_memory_equal(data, zeros, size);
        memset(data, 0xaa, size); /* what comes next must not overlap it: it would not be zero */
    }
    assert_true(arena.total > 0 && arena.total <= arena.limit);
    ts_arena_release(&arena);
    assert_int_equal(arena.total, 0);
    assert_non_null(ts_arena_alloc(&arena, 10)); /* a released arena can be used again */
    ts_arena_release(&arena);
}

/* What came before a mark stays, whatever sizes came behind it, and what is given back is zeroed again. */
static void test_arena_rewind(void **state)
{
    static const size_t before[] = {0, 24, 65000, 100000};
    (void)state;
    for (size_t k = 0; k < sizeof before / sizeof *before; k++) {
        struct ts_arena arena;
        struct ts_arena_mark outer, inner;
        unsigned char *kept, *again;
        size_t total;
        ts_arena_init(&arena, 1 << 24);
        kept = before[k] ? ts_arena_alloc(&arena, before[k]) : NULL;
        if (kept)
            memset(kept, 7, before[k]);
        total = arena.total;
        outer = ts_arena_mark(&arena);
        for (size_t size = 1; size < 200000; size = size * 3 + 5)
            memset(ts_arena_alloc(&arena, size), 8, size);
        inner = ts_arena_mark(&arena);
        for (size_t size = 200000; size > 10; size /= 3)
            memset(ts_arena_alloc(&arena, size), 9, size);
        ts_arena_rewind(&arena, inner);
        memset(ts_arena_alloc(&arena, 1000), 10, 1000);
        ts_arena_rewind(&arena, outer);
        assert_int_equal(arena.total, total);
        for (size_t i = 0; i < before[k]; i++)
            assert_int_equal(kept[i], 7);
        again = ts_arena_alloc(&arena, 4000);
        for (size_t i = 0; i < 4000; i++)
            assert_int_equal(again[i], 0);
        ts_arena_release(&arena);
    }
}

static void test_arena_limit(void **state)
{
    struct ts_arena arena;
    size_t count = 0;
    (void)state;
    ts_arena_init(&arena, 1 << 20);
    while (ts_arena_alloc(&arena, 1000))
        count++;
    assert_true(count > 900 && count < 1049);
    assert_true(arena.total <= 1 << 20);
    assert_null(ts_arena_alloc(&arena, 1 << 20));
    ts_arena_release(&arena);
    ts_arena_init(&arena, 0);
    assert_null(ts_arena_alloc(&arena, 1));
    ts_arena_release(&arena);
    ts_arena_init(&arena, SIZE_MAX);
    assert_null(ts_arena_alloc(&arena, SIZE_MAX));
    assert_null(ts_arena_alloc(&arena, SIZE_MAX - 20));
    assert_null(ts_arena_array(&arena, SIZE_MAX / 2, 3));
    assert_null(ts_arena_copy(&arena, "a", SIZE_MAX));
    assert_non_null(ts_arena_array(&arena, 0, 8));
    ts_arena_release(&arena);
}

/* Less than one usual block: the little there is can be used, and no more. */
static void test_arena_small_limit(void **state)
{
    (void)state;
    for (size_t limit = 256; limit <= 128 * 1024; limit = limit * 5 / 4 + 3) {
        struct ts_arena arena;
        size_t taken = 0;
        unsigned char *piece;
        ts_arena_init(&arena, limit);
        while ((piece = ts_arena_alloc(&arena, 16))) {
            for (int i = 0; i < 16; i++)
                assert_int_equal(piece[i], 0);
            memset(piece, 0xaa, 16);
            taken += 16;
            assert_true(arena.total <= limit);
        }
        assert_true(taken <= limit);
        assert_true(taken + 160 > limit); /* what the heads of at most three blocks cost */
        ts_arena_release(&arena);
    }
    {
        struct ts_arena arena;
        ts_arena_init(&arena, 4096);
        assert_non_null(ts_arena_string(&arena, "a name"));
        assert_non_null(ts_arena_alloc(&arena, 3000));
        assert_null(ts_arena_alloc(&arena, 3000));
        assert_non_null(ts_arena_alloc(&arena, 100)); /* a refusal changes nothing */
        ts_arena_release(&arena);
    }
}

static void test_arena_large(void **state)
{
    struct ts_arena arena;
    char *small, *large, *next;
    (void)state;
    ts_arena_init(&arena, 1 << 24);
    small = ts_arena_alloc(&arena, 16);
    large = ts_arena_alloc(&arena, 1 << 20);
    next = ts_arena_alloc(&arena, 16);
    assert_non_null(small);
    assert_non_null(large);
    assert_ptr_equal(next, small + 16); /* a large piece does not end the block in use */
    memset(large, 1, 1 << 20);
    ts_arena_release(&arena);
}

__attribute__((format(printf, 2, 3))) static const char *say_in(struct ts_arena *arena, const char *format, ...)
{
    va_list args;
    const char *text;
    va_start(args, format);
    text = ts_arena_vsay(arena, format, args);
    va_end(args);
    return text;
}

static void test_arena_strings(void **state)
{
    struct ts_arena arena;
    char *copy;
    (void)state;
    ts_arena_init(&arena, 1 << 20);
    assert_string_equal(ts_arena_copy(&arena, "abcdef", 3), "abc");
    assert_string_equal(ts_arena_copy(&arena, NULL, 0), "");
    assert_string_equal(ts_arena_string(&arena, "name"), "name");
    assert_string_equal(ts_arena_printf(&arena, "%s-%05d", "model", 42), "model-00042");
    assert_string_equal(say_in(&arena, "%s-%05d", "model", 42), "model-00042");
    copy = ts_arena_copy(&arena, "a\0b", 3);
    assert_memory_equal(copy, "a\0b", 4);
    ts_arena_release(&arena);
    ts_arena_init(&arena, 10);
    assert_null(ts_arena_string(&arena, "longer than ten"));
    assert_null(ts_arena_printf(&arena, "%d", 1));
    assert_string_equal(say_in(&arena, "%d", 1), ""); /* a sentence is lost, and not missed */
    ts_arena_release(&arena);
}

static void test_buffer_append(void **state)
{
    struct ts_buffer buffer;
    (void)state;
    ts_buffer_init(&buffer, 1 << 20);
    assert_null(buffer.data);
    assert_true(ts_buffer_append(&buffer, NULL, 0));
    assert_string_equal(buffer.data, "");
    assert_true(ts_buffer_append(&buffer, "abc", 3));
    assert_true(ts_buffer_string(&buffer, "def"));
    assert_true(ts_buffer_byte(&buffer, '!'));
    assert_true(ts_buffer_printf(&buffer, "%d%s", 12, "x"));
    assert_string_equal(buffer.data, "abcdef!12x");
    assert_int_equal(buffer.size, 10);
    for (int i = 0; i < 10000; i++)
        assert_true(ts_buffer_printf(&buffer, "%04d", i));
    assert_int_equal(buffer.size, 40010);
    assert_string_equal(buffer.data + 40002, "99989999");
    ts_buffer_clear(&buffer);
    assert_int_equal(buffer.size, 0);
    assert_string_equal(buffer.data, "");
    ts_buffer_release(&buffer);
    assert_null(buffer.data);
    assert_int_equal(buffer.limit, 1 << 20);
}

static void test_buffer_limit(void **state)
{
    struct ts_buffer buffer;
    (void)state;
    ts_buffer_init(&buffer, 5);
    assert_true(ts_buffer_string(&buffer, "12345")); /* up to the limit */
    assert_false(ts_buffer_byte(&buffer, '6'));
    assert_true(buffer.failed);
    assert_string_equal(buffer.data, "12345");
    assert_false(ts_buffer_append(&buffer, "", 0)); /* the failure stays */
    ts_buffer_clear(&buffer);
    assert_false(buffer.failed);
    assert_false(ts_buffer_printf(&buffer, "%s", "123456"));
    assert_true(buffer.failed);
    assert_int_equal(buffer.size, 0);
    ts_buffer_clear(&buffer);
    assert_true(ts_buffer_printf(&buffer, "%s", "12345"));
    assert_string_equal(buffer.data, "12345");
    ts_buffer_release(&buffer);
}

static void test_buffer_without_limit(void **state)
{
    struct ts_buffer buffer;
    (void)state;
    ts_buffer_init(&buffer, SIZE_MAX);
    assert_true(ts_buffer_string(&buffer, "abc"));
    assert_true(ts_buffer_printf(&buffer, "%d", 7));
    assert_string_equal(buffer.data, "abc7");
    /* No memory is asked for what cannot be counted with the NUL behind it. */
    assert_false(ts_buffer_append(&buffer, "", SIZE_MAX - 4));
    assert_true(buffer.failed);
    assert_string_equal(buffer.data, "abc7");
    ts_buffer_clear(&buffer);
    assert_false(ts_buffer_append(&buffer, "", SIZE_MAX));
    ts_buffer_release(&buffer);
    assert_int_equal(buffer.limit, SIZE_MAX);
}

static void test_checked_arithmetic(void **state)
{
    uint64_t result;
    (void)state;
    assert_true(ts_mul(0, UINT64_MAX, &result) && result == 0);
    assert_true(ts_mul(UINT64_MAX, 1, &result) && result == UINT64_MAX);
    assert_true(ts_mul(UINT64_C(1) << 32, (UINT64_C(1) << 32) - 1, &result) && result == 0xffffffff00000000u);
    assert_false(ts_mul(UINT64_C(1) << 32, UINT64_C(1) << 32, &result));
    assert_false(ts_mul(UINT64_MAX, 2, &result));
    assert_true(ts_add(UINT64_MAX, 0, &result) && result == UINT64_MAX);
    assert_true(ts_add(UINT64_MAX - 1, 1, &result) && result == UINT64_MAX);
    assert_false(ts_add(UINT64_MAX, 1, &result));
    assert_true(ts_span_fits(0, 0, 0));
    assert_true(ts_span_fits(0, 10, 10));
    assert_true(ts_span_fits(10, 0, 10));
    assert_true(ts_span_fits(3, 7, 10));
    assert_false(ts_span_fits(3, 8, 10));
    assert_false(ts_span_fits(11, 0, 10));
    assert_false(ts_span_fits(UINT64_MAX, 2, 10));
    assert_false(ts_span_fits(2, UINT64_MAX, 10));
    assert_true(ts_span_fits(1, UINT64_MAX - 1, UINT64_MAX));
}

static void test_loads(void **state)
{
    static const unsigned char bytes[] = {0xff, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x88};
    (void)state;
    assert_int_equal(ts_load_le16(bytes + 1), 0x0201);
    assert_int_equal(ts_load_be16(bytes + 1), 0x0102);
    assert_int_equal(ts_load_le32(bytes + 1), 0x04030201);
    assert_int_equal(ts_load_be32(bytes + 1), 0x01020304);
    assert_true(ts_load_le64(bytes + 1) == 0x8807060504030201u);
    assert_true(ts_load_be64(bytes + 1) == 0x0102030405060788u);
}

static void test_float_bits(void **state)
{
    (void)state;
    assert_int_equal(ts_float_bits(1.0f), 0x3f800000);
    assert_true(ts_float_from_bits(0xc0000000) == -2.0f);
    assert_true(ts_double_bits(1.0) == 0x3ff0000000000000u);
    assert_true(ts_double_from_bits(0xc000000000000000u) == -2.0);
    assert_true(ts_bf16_to_float(0x3f80) == 1.0f);
    assert_true(ts_bf16_to_float(0xc2f7) == -123.5f);
    assert_true(isinf(ts_bf16_to_float(0x7f80)));
    assert_int_equal(ts_float_bits(ts_bf16_to_float(0x0001)), 0x00010000);
}

/* All 65536 half floats against their definition: sign, exponent, mantissa. */
static void test_half_floats(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        const int exponent = (int)(bits >> 10 & 0x1f), mantissa = (int)(bits & 0x3ff);
        const uint32_t sign = (bits & 0x8000) << 16;
        const float value = ts_f16_to_float((uint16_t)bits);
        float want;
        if (exponent == 0x1f) {
            assert_int_equal(ts_float_bits(value), sign | 0x7f800000 | (uint32_t)mantissa << 13);
            continue;
        }
        want = exponent ? ldexpf((float)(1024 + mantissa), exponent - 25) : ldexpf((float)mantissa, -24);
        assert_int_equal(ts_float_bits(value), ts_float_bits(want) | sign);
    }
}

static void test_ordered(void **state)
{
    double values[60], sorted[60];
    uint64_t numbers[] = {UINT64_MAX, 0, (uint64_t)1 << 63, 7};
    (void)state;
    for (size_t count = 0; count < 60; count++)
        for (size_t nth = 0; nth < count; nth += 3) { /* some of them equal */
            for (size_t i = 0; i < count; i++)
                values[i] = sorted[i] = i == 5 ? (double)INFINITY : (double)(i * i * 7 % 23) - 9;
            qsort(sorted, count, sizeof *sorted, ts_by_value);
            for (size_t i = 1; i < count; i++)
                assert_true(sorted[i - 1] <= sorted[i]);
            assert_true(ts_nth(values, count, nth) == sorted[nth]);
        }
    assert_true(ts_nth(values, 0, 0) == 0);
    qsort(numbers, 4, sizeof *numbers, ts_by_number);
    assert_true(numbers[0] == 0 && numbers[1] == 7 && numbers[3] == UINT64_MAX);
}

static void test_errors(void **state)
{
    struct ts_error error;
    char longest[2000];
    (void)state;
    ts_error_clear(&error);
    assert_int_equal(error.status, TS_OK);
    assert_true(error.offset == TS_NO_OFFSET);
    assert_string_equal(error.message, "");
    assert_int_equal(ts_fail(&error, TS_ERR_FORMAT, 12, "found %d, expected %s", 3, "four"), TS_ERR_FORMAT);
    assert_int_equal(error.status, TS_ERR_FORMAT);
    assert_int_equal(error.offset, 12);
    assert_string_equal(error.message, "found 3, expected four");
    assert_string_equal(error.path, "");
    assert_int_equal(ts_error_path(&error, "a.gguf"), TS_ERR_FORMAT);
    assert_int_equal(ts_error_path(&error, "outer.zip"), TS_ERR_FORMAT); /* the first place is the nearest */
    assert_string_equal(error.path, "a.gguf");
    assert_int_equal(ts_error_tensor(&error, "w"), TS_ERR_FORMAT);
    assert_int_equal(ts_error_tensor(&error, "v"), TS_ERR_FORMAT);
    assert_string_equal(error.tensor, "w");
    assert_int_equal(ts_fail_memory(&error), TS_ERR_MEMORY);
    assert_string_equal(error.message, "out of memory");
    assert_string_equal(error.path, ""); /* a new failure forgets the old place */
    assert_string_equal(error.tensor, "");
    assert_int_equal(ts_fail_errno(&error, ENOENT, "cannot open '%s'", "x"), TS_ERR_IO);
    assert_int_equal(strncmp(error.message, "cannot open 'x': ", 17), 0);
    assert_string_equal(error.message + 17, strerror(ENOENT));
    assert_true(error.offset == TS_NO_OFFSET);

    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    ts_fail(&error, TS_ERR_USAGE, 0, "%s", longest);
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
    ts_fail_errno(&error, ENOENT, "%s", longest);
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
    ts_error_path(&error, longest);
    ts_error_tensor(&error, longest);
    assert_int_equal(strlen(error.path), sizeof error.path - 1);
    assert_int_equal(strlen(error.tensor), sizeof error.tensor - 1);
}

static enum ts_status twice(enum ts_status status, int *calls)
{
    ++*calls;
    TS_TRY(status);
    ++*calls;
    return TS_OK;
}

static void test_try(void **state)
{
    int calls = 0;
    (void)state;
    assert_int_equal(twice(TS_OK, &calls), TS_OK);
    assert_int_equal(calls, 2);
    assert_int_equal(twice(TS_ERR_LIMIT, &calls), TS_ERR_LIMIT);
    assert_int_equal(calls, 3);
}

/* The level is decided once per process, so each question is asked in one of its own. */
static enum ts_simd level_with(const char *asked)
{
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (asked)
            setenv("TSLEUTH_SIMD", asked, 1);
        else
            unsetenv("TSLEUTH_SIMD");
        enum ts_simd level = ts_simd_level();
        unsetenv("TSLEUTH_SIMD"); /* a later change is not seen */
        _exit(ts_simd_level() == level ? (int)level : 99);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_in_range(WEXITSTATUS(status), 0, 4);
    return (enum ts_simd)WEXITSTATUS(status);
}

static void test_simd_level(void **state)
{
    const enum ts_simd there = level_with(NULL);
    (void)state;
    assert_int_equal(level_with("portable"), TS_SIMD_PORTABLE);
    assert_int_equal(level_with("nonsense"), there);
    assert_int_equal(level_with(""), there);
    assert_int_equal(level_with("avx512"), there == TS_SIMD_AVX512BF16 ? TS_SIMD_AVX512 : there);
    assert_int_equal(level_with("neon"), there);
    assert_int_equal(level_with("avx2"), there >= TS_SIMD_AVX2 && there <= TS_SIMD_AVX512BF16 ? TS_SIMD_AVX2 : there);
#if defined(__aarch64__)
    assert_int_equal(there, TS_SIMD_NEON);
#elif defined(__x86_64__)
    assert_int_not_equal(there, TS_SIMD_NEON);
    assert_int_equal(there >= TS_SIMD_AVX2, __builtin_cpu_supports("avx2") != 0);
    /* what is there and not the fastest can be asked for; more than there is changes nothing */
    assert_int_equal(level_with("avx512bf16"),
                     there >= TS_SIMD_AVX512 && __builtin_cpu_supports("avx512bf16") ? TS_SIMD_AVX512BF16 : there);
#endif
    assert_string_equal(ts_simd_name(TS_SIMD_PORTABLE), "portable");
    assert_string_equal(ts_simd_name(TS_SIMD_AVX2), "avx2");
    assert_string_equal(ts_simd_name(TS_SIMD_AVX512), "avx512");
    assert_string_equal(ts_simd_name(TS_SIMD_AVX512BF16), "avx512bf16");
    assert_string_equal(ts_simd_name(TS_SIMD_NEON), "neon");
}

#define SECOND_NS UINT64_C(1000000000)

struct drawing {
    const char *terminal; /* TERM, or NULL */
    unsigned short columns;
    const char *label;
    uint64_t total, done, age_ns; /* age: as if started so long ago */
    int adds;
    bool finish, elements;
};

/* A pseudo-terminal, or -1. */
static int open_terminal(int *master)
{
    int terminal = -1;
    *master = posix_openpt(O_RDWR | O_NOCTTY);
    if (*master < 0)
        return -1;
    if (grantpt(*master) == 0 && unlockpt(*master) == 0)
        terminal = open(ptsname(*master), O_RDWR | O_NOCTTY);
    if (terminal < 0)
        close(*master);
    return terminal;
}

/* Some build machines have none; the tests that need them then pass (skip() counts as a failure in TAP). */
static bool no_terminals(void)
{
    int master, terminal = open_terminal(&master);
    if (terminal < 0)
        return true;
    close(terminal);
    close(master);
    return false;
}

/* What progress writes to a terminal. Standard error is put back before anything is asserted. */
static const char *draw(struct drawing drawing)
{
    static char out[4096];
    struct winsize size = {.ws_row = 24, .ws_col = drawing.columns};
    struct ts_progress progress;
    struct termios raw;
    size_t got = 0;
    int master, terminal = open_terminal(&master), before;
    assert_true(terminal >= 0);
    tcgetattr(terminal, &raw);
    cfmakeraw(&raw);
    tcsetattr(terminal, TCSANOW, &raw);
    ioctl(terminal, TIOCSWINSZ, &size);
    if (drawing.terminal)
        setenv("TERM", drawing.terminal, 1);
    else
        unsetenv("TERM");

    before = dup(STDERR_FILENO);
    dup2(terminal, STDERR_FILENO);
    (drawing.elements ? ts_progress_start_elements : ts_progress_start)(&progress, drawing.label, drawing.total);
    progress.started_ns -= drawing.age_ns;
    for (int i = 0; i < drawing.adds; i++)
        ts_progress_add(&progress, drawing.done / (uint64_t)drawing.adds);
    if (drawing.finish)
        ts_progress_finish(&progress);
    dup2(before, STDERR_FILENO);
    close(before);

    /* What is written arrives at the other side in its own time; a mark behind it says when it is all there. */
    assert_int_equal(write(terminal, "$", 1), 1);
    while (got == 0 || out[got - 1] != '$') {
        ssize_t more = read(master, out + got, sizeof out - got);
        assert_true(more > 0);
        got += (size_t)more;
    }
    out[got - 1] = '\0';
    close(terminal);
    close(master);
    assert_int_equal(atomic_load(&progress.done), drawing.done);
    return out;
}

/* As if started long ago, so that a test machine that stalls for a second does not change the rates. */
static const struct drawing long_run = {.terminal = "xterm",
                                        .columns = 80,
                                        .label = "statistics",
                                        .total = 28000000000000,
                                        .done = 12100000000000,
                                        .age_ns = 3000 * SECOND_NS,
                                        .adds = 1};

static void test_progress_draws(void **state)
{
    struct drawing drawing = long_run;
    (void)state;
    if (no_terminals())
        return;
    assert_string_equal(draw(drawing), "\r  statistics  43% [#########.............] 12.1 of 28.0 TB  4.0 GB/s"
                                       "  eta 1h05m\033[K");
    drawing.elements = true; /* not bytes */
    drawing.columns = 100;
    assert_non_null(strstr(draw(drawing), "] 12.1 of 28.0 T elements  4.0 G/s  eta 1h05m\033[K"));
    drawing.elements = false;
    drawing.terminal = NULL;
    assert_true(strlen(draw(drawing)) > 0);
}

static void test_progress_widths(void **state)
{
    struct drawing drawing = long_run;
    (void)state;
    if (no_terminals())
        return;
    for (unsigned short columns = 1; columns <= 200; columns++) {
        const char *line;
        drawing.columns = columns;
        line = draw(drawing);
        assert_int_equal(line[0], '\r');
        assert_true(strlen(line) - 4 < columns); /* without the return and the erasing */
        if (columns >= 18)
            assert_non_null(strstr(line, "  statistics  43%"));
        if (columns >= 40) {
            assert_non_null(strstr(line, " [###"));
            assert_non_null(strstr(line, "  eta 1h05m"));
        }
        if (columns >= 80)
            assert_non_null(strstr(line, " 12.1 of 28.0 TB  4.0 GB/s"));
    }
    drawing.columns = 0; /* a terminal that does not know counts as 80 */
    assert_non_null(strstr(draw(drawing), " 12.1 of 28.0 TB  4.0 GB/s"));
}

static void test_progress_amounts(void **state)
{
    struct drawing drawing = long_run;
    (void)state;
    if (no_terminals())
        return;
    drawing.label = "reading";
    drawing.total = 0;
    drawing.done = 5000000000;
    drawing.age_ns = 2000 * SECOND_NS;
    assert_string_equal(draw(drawing), "\r  reading  5.0 GB  2.5 MB/s\033[K");
    drawing.total = 5000000000;
    assert_non_null(strstr(draw(drawing), "  reading  100% [##############################] 5.0 of 5.0 GB"));
    assert_null(strstr(draw(drawing), "eta"));
    drawing.done = 6000000000; /* more than was announced */
    assert_non_null(strstr(draw(drawing), "100% [##############################] 6.0 of 5.0 GB"));
    drawing.done = 0;
    assert_non_null(strstr(draw(drawing), "   0% [."));
    assert_null(strstr(draw(drawing), "eta"));
    drawing.done = 5000000000;
    drawing.total = 5100000000;
    assert_non_null(strstr(draw(drawing), "  98% ["));
    assert_non_null(strstr(draw(drawing), "  eta 40s\033"));
    drawing.total = 5550000000;
    assert_non_null(strstr(draw(drawing), "  eta 3m40s"));
    drawing.total = 55000000000;
    assert_non_null(strstr(draw(drawing), "  eta 5h33m"));
    drawing.total = UINT64_MAX;
    assert_non_null(strstr(draw(drawing), "  eta 99h59m"));
}

static void test_progress_is_quiet(void **state)
{
    struct drawing drawing = long_run;
    (void)state;
    if (no_terminals())
        return;
    drawing.finish = true;
    drawing.age_ns = 0;
    assert_string_equal(draw(drawing), ""); /* too early, and nothing to erase */
    drawing.age_ns = 2 * SECOND_NS;
    assert_string_not_equal(draw(drawing), "");
    drawing.terminal = "dumb";
    assert_string_equal(draw(drawing), "");
}

static void test_progress_redraws_seldom(void **state)
{
    struct drawing drawing = long_run;
    struct timespec start, end;
    const char *out;
    size_t lines = 0;
    (void)state;
    if (no_terminals())
        return;
    drawing.adds = 1000;
    drawing.finish = true;
    clock_gettime(CLOCK_MONOTONIC, &start);
    out = draw(drawing);
    clock_gettime(CLOCK_MONOTONIC, &end);
    for (const char *at = out; *at; at++)
        lines += *at == '\r';
    assert_in_range(lines, 2, 2 + (size_t)(end.tv_sec - start.tv_sec + 1) * 10);
    if (end.tv_sec == start.tv_sec && end.tv_nsec - start.tv_nsec < 90000000)
        assert_int_equal(lines, 2); /* the bar, once, and its end */
    assert_string_equal(strrchr(out, '\r'), "\r\033[K");
}

static void test_progress_without_a_terminal(void **state)
{
    struct ts_progress progress;
    int pipes[2], before = dup(STDERR_FILENO);
    char byte;
    (void)state;
    assert_int_equal(pipe(pipes), 0);
    setenv("TERM", "xterm", 1);
    dup2(pipes[1], STDERR_FILENO);
    ts_progress_start(&progress, "reading", 10);
    progress.started_ns -= 5 * SECOND_NS;
    ts_progress_add(&progress, 5);
    ts_progress_finish(&progress);
    dup2(before, STDERR_FILENO);
    close(before);
    close(pipes[1]);
    assert_int_equal(read(pipes[0], &byte, 1), 0);
    close(pipes[0]);
    assert_false(progress.enabled);
    assert_int_equal(atomic_load(&progress.done), 5);
    ts_progress_add(NULL, 1);
    ts_progress_finish(NULL);
    assert_false(atomic_load(&ts_cancelled));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_simd_level), /* first, so that the level is not decided yet */
        cmocka_unit_test(test_arena_alloc),
        cmocka_unit_test(test_arena_rewind),
        cmocka_unit_test(test_arena_limit),
        cmocka_unit_test(test_arena_small_limit),
        cmocka_unit_test(test_arena_large),
        cmocka_unit_test(test_arena_strings),
        cmocka_unit_test(test_buffer_append),
        cmocka_unit_test(test_buffer_limit),
        cmocka_unit_test(test_buffer_without_limit),
        cmocka_unit_test(test_checked_arithmetic),
        cmocka_unit_test(test_loads),
        cmocka_unit_test(test_float_bits),
        cmocka_unit_test(test_half_floats),
        cmocka_unit_test(test_ordered),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_try),
        cmocka_unit_test(test_progress_draws),
        cmocka_unit_test(test_progress_widths),
        cmocka_unit_test(test_progress_amounts),
        cmocka_unit_test(test_progress_is_quiet),
        cmocka_unit_test(test_progress_redraws_seldom),
        cmocka_unit_test(test_progress_without_a_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
