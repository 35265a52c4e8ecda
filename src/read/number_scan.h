/* Number scan: decimal and hexadecimal numbers in text, converted exactly and without the locale.
 *
 * Accepted: digits with an optional point and exponent (e, E, and Fortran's d, D), a sign, "0x" integers and C99
 * hexadecimal floats, and nan, inf, infinity in any case, with a sign and C's "nan(...)" payload. Values are correctly
 * rounded, as by strtod; too large is infinite. */
#ifndef TS_READ_NUMBER_SCAN_H
#define TS_READ_NUMBER_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ts_number {
    double value;
    int64_t integer; /* when is_integer */
    bool is_integer; /* no point, no exponent, and it fits */
    unsigned digits; /* significant decimal digits as written; 0 for integers, hexadecimal, nan and inf */
};

/* Scans the number at text[0 .. size) and returns how many bytes it takes, or 0 when none begins there. What follows
 * it is the caller's to check. single: value is the nearest float, rounded once. */
size_t ts_number_scan(const char *text, size_t size, bool single, struct ts_number *number);

#endif
