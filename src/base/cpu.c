/* Detection of the instruction set, once. */
#include "base/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define VARIABLE "TSLEUTH_SIMD"

#if defined(__x86_64__)
/* Not every compiler knows the name "f16c". That the wide registers are saved follows from the AVX2 asked for
 * beside. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

/* The features of a level are those its kernels are compiled with (meson.build), not only those that name it.
 * __builtin_cpu_supports also asks whether the operating system saves the wide registers. */
static enum ts_simd detect(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi2") ||
        !has_f16c())
        return TS_SIMD_PORTABLE;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return TS_SIMD_AVX2;
    return __builtin_cpu_supports("avx512bf16") ? TS_SIMD_AVX512BF16 : TS_SIMD_AVX512;
#elif defined(__aarch64__)
    return TS_SIMD_NEON;
#else
    return TS_SIMD_PORTABLE;
#endif
}

/* What is fastest of it: Intel's processors have one unit for products of bf16 and two for everything else, so that
 * comparing two bf16 numbers takes 0.65 cycles with these products and 0.5 without. */
static enum ts_simd fastest(enum ts_simd there)
{
#if defined(__x86_64__)
    if (there == TS_SIMD_AVX512BF16 && __builtin_cpu_is("intel"))
        return TS_SIMD_AVX512;
#endif
    return there;
}

bool ts_simd_has(enum ts_simd level)
{
    const enum ts_simd there = detect();
    return level == TS_SIMD_PORTABLE || level == there || (there != TS_SIMD_NEON && level < there);
}

/* The level that is asked for; TS_SIMD_LEVELS when none is, or this machine has not got it. */
static enum ts_simd find_asked(const char *asked)
{
    enum ts_simd level = TS_SIMD_PORTABLE;
    while (level < TS_SIMD_LEVELS && !(asked && strcmp(asked, ts_simd_name(level)) == 0 && ts_simd_has(level)))
        level++;
    return level;
}

const char *ts_simd_unmet(void)
{
    const char *asked = getenv(VARIABLE);
    return asked && *asked && find_asked(asked) == TS_SIMD_LEVELS ? asked : NULL;
}

enum ts_simd ts_simd_level(void)
{
    /* The level plus one; 0 until known. Threads that race here all come to the same answer. */
    static atomic_int known;
    int level = atomic_load_explicit(&known, memory_order_relaxed);
    if (level == 0) {
        const enum ts_simd asked = find_asked(getenv(VARIABLE));
        level = 1 + (int)(asked < TS_SIMD_LEVELS ? asked : fastest(detect()));
        atomic_store_explicit(&known, level, memory_order_relaxed);
    }
    return (enum ts_simd)(level - 1);
}

const char *ts_simd_name(enum ts_simd level)
{
    switch (level) {
    case TS_SIMD_PORTABLE:
        return "portable";
    case TS_SIMD_AVX2:
        return "avx2";
    case TS_SIMD_AVX512:
        return "avx512";
    case TS_SIMD_AVX512BF16:
        return "avx512bf16";
    case TS_SIMD_NEON:
        return "neon";
    }
    return "unknown";
}
