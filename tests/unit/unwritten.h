/* Memory that nobody has written to holds large numbers, where the C library can fill it: what is read before it is
 * written shows. */
#ifndef TS_TEST_UNWRITTEN_H
#define TS_TEST_UNWRITTEN_H

#include <stdlib.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

static inline void fill_unwritten(bool filled)
{
#ifdef M_PERTURB
    mallopt(M_PERTURB, filled ? 0x37 : 0); /* f32 of -411206 */
#else
    (void)filled;
#endif
}

#endif
