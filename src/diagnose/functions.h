/* Functions of one number that a model may apply: those that operations are learnt with, and some that candidates apply
 * by mistake. Internal to src/diagnose. */
#ifndef TS_DIAGNOSE_FUNCTIONS_H
#define TS_DIAGNOSE_FUNCTIONS_H

#include <stddef.h>

#include "compare/operation.h"

#define TS_FUNCTIONS (TS_ACTIVATION_COUNT + 7)

/* The first ones are those of enum ts_activation. */
const char *ts_function_name(size_t function);
double ts_function_value(size_t function, double x);

#endif
