/* What systems do not have in common. Header only.
 *
 * TS_LINUX says that calls and files of Linux may be used; whatever stands under it has another way beside it. A build
 * with -Dportable=true does without, so that Linux runs the tests of the ways that others take. */
#ifndef TS_BASE_SYSTEM_H
#define TS_BASE_SYSTEM_H

#include <stddef.h>
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#if defined(__linux__) && !defined(TS_PORTABLE)
#define TS_LINUX 1
#else
#define TS_LINUX 0
#endif

/* What was freed between other things goes back to the system, which glibc leaves to its callers: behind steps that
 * need much for a while. */
static inline void ts_give_back_memory(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/* realloc for `count` things of `size` bytes; NULL, and the old ones stay, when there is no room for so many. macOS has
 * no reallocarray. */
static inline void *ts_reallocarray(void *data, size_t count, size_t size)
{
    size_t bytes;
    return __builtin_mul_overflow(count, size, &bytes) ? NULL : realloc(data, bytes);
}

#endif
