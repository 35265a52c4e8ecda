/* CPU: which instruction set the kernels may use.
 *
 * Kernels are compiled once per level from one template. The level is the fastest that the processor and the operating
 * system offer, or the one that the environment variable TSLEUTH_SIMD names (portable, avx2, avx512, avx512bf16, neon),
 * so that the tests run each one. Asking for what is not there changes nothing. */
#ifndef TS_BASE_CPU_H
#define TS_BASE_CPU_H

#include <stdbool.h>

enum ts_simd {
    TS_SIMD_PORTABLE = 0, /* whatever the compiler's default target has */
    TS_SIMD_AVX2 = 1,     /* AVX2, FMA, F16C */
    TS_SIMD_AVX512 = 2,   /* AVX-512 F, BW, DQ, VL */
    TS_SIMD_AVX512BF16,   /* and products of bf16 */
    TS_SIMD_NEON          /* ARM64: always there, so equal to the compiler's default */
};

#define TS_SIMD_LEVELS (TS_SIMD_NEON + 1)

enum ts_simd ts_simd_level(void); /* decided once, on first use; thread-safe */
const char *ts_simd_name(enum ts_simd level);
bool ts_simd_has(enum ts_simd level); /* this machine */
/* What the environment asks for and this machine has not; NULL when it asks for nothing of the kind. */
const char *ts_simd_unmet(void);

/* A kernel file (base/level.h) is a table at each level: TS_DECLARE_TABLES names them in its header, and TS_TABLE is
 * the address of the one to use. */
#if defined(__x86_64__)
#define TS_DECLARE_TABLES(type, name) extern type name##_portable, name##_avx2, name##_avx512, name##_avx512bf16
#define TS_TABLE(name)                                                                                                 \
    (ts_simd_level() == TS_SIMD_AVX512BF16 ? &name##_avx512bf16                                                        \
     : ts_simd_level() == TS_SIMD_AVX512   ? &name##_avx512                                                            \
     : ts_simd_level() == TS_SIMD_AVX2     ? &name##_avx2                                                              \
                                           : &name##_portable)
#elif defined(__aarch64__)
#define TS_DECLARE_TABLES(type, name) extern type name##_portable, name##_neon
#define TS_TABLE(name)                (ts_simd_level() == TS_SIMD_NEON ? &name##_neon : &name##_portable)
#else
#define TS_DECLARE_TABLES(type, name) extern type name##_portable
#define TS_TABLE(name)                (&name##_portable)
#endif

#endif
