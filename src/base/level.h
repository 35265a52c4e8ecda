/* For kernel files only: they are compiled once per instruction set (meson.build, `kernel_sources`) with TS_LEVEL set
 * to portable, avx2, avx512, avx512bf16 or neon. Everything in such a file is static, except one table whose name
 * carries the level: `const struct x TS_AT_LEVEL(ts_x_kernels)` becomes ts_x_kernels_avx2. TS_TABLE in base/cpu.h picks
 * one. */
#ifndef TS_BASE_LEVEL_H
#define TS_BASE_LEVEL_H

#define TS_PASTE_AGAIN_(a, b) a##_##b
#define TS_PASTE_(a, b)       TS_PASTE_AGAIN_(a, b)
#define TS_AT_LEVEL(name)     TS_PASTE_(name, TS_LEVEL)

#endif
