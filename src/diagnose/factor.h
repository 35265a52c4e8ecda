/* Factor: what a factor may be that the candidate is off by, from sizes, settings and usual mistakes. Internal to
 * src/diagnose. */
#ifndef TS_DIAGNOSE_FACTOR_H
#define TS_DIAGNOSE_FACTOR_H

#include "diagnose/families.h"

/* A fitted factor is told to so many digits: noise makes 1.49999 of 1.5. Near 1 they are what it differs by. */
int ts_factor_digits(double factor);
/* ", which is sqrt(64), ...", to stand behind the factor; "" where it is nothing known. */
void ts_factor_text(const struct ts_case *the_case, double factor, double tolerance, char *text, size_t room);

#endif
