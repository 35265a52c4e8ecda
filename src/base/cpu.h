/* CPU: which instruction set the kernels may use.
 *
 * Kernels are compiled once per level from one template. The level is what the processor and the operating system
 * offer, lowered by the environment variable TSLEUTH_SIMD (portable, avx2, avx512, neon), so that the tests run
 * each one. Asking for more than there is gives what there is. */
#ifndef TS_BASE_CPU_H
#define TS_BASE_CPU_H

enum ts_simd {
    TS_SIMD_PORTABLE = 0, /* whatever the compiler's default target has */
    TS_SIMD_AVX2 = 1,     /* AVX2, FMA, F16C */
    TS_SIMD_AVX512 = 2,   /* AVX-512 F, BW, DQ, VL */
    TS_SIMD_NEON = 3      /* ARM64: always there, so equal to the compiler's default */
};

enum ts_simd ts_simd_level(void); /* decided once, on first use; thread-safe */
const char *ts_simd_name(enum ts_simd level);

#endif
