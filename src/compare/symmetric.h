/* Symmetric: the little dense linear algebra that ranks need. */
#ifndef TS_COMPARE_SYMMETRIC_H
#define TS_COMPARE_SYMMETRIC_H

#include <stddef.h>

/* `count` columns of n numbers, one after the other, become orthonormal in place. A column that lies in the space of
 * those before it becomes zero, or a direction at right angles to them that rounding has left. */
void ts_orthonormalize(double *columns, size_t n, size_t count);

/* Eigenvalues of a symmetric size by size matrix, largest first. The matrix is destroyed. */
void ts_symmetric_eigenvalues(double *matrix, size_t size, double *values);

#endif
