/* The scanner of number_scan.h.
 *
 * Dumps of hundreds of megabytes are ordinary, so the common number (at most 19 digits, a small exponent) is converted
 * by one exact multiplication or division. The others go through strtod in a form that has no decimal point, where
 * locales cannot disagree. */
#include "read/number_scan.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"

/* Midpoints between doubles have at most 767 significant digits. Past 800 a last digit that stands for "something not
 * zero follows" rounds like the whole number. The same holds for 32 hexadecimal digits, of which 14 fill a double. */
#define SIGNIFICANT_DIGITS     800
#define SIGNIFICANT_HEX_DIGITS 32

/* Every exponent beyond it gives 0 or infinity, even with a gigabyte of digits before or behind the point. */
#define LARGEST_EXPONENT ((int64_t)1 << 40)

static double convert(const char *text, bool single)
{
    return single ? (double)strtof(text, NULL) : strtod(text, NULL);
}

/* The exponent at text, which stands on its letter; returns its length with the letter, 0 when no digits follow. */
static size_t scan_exponent(const char *text, size_t size, int64_t *exponent)
{
    size_t at = 1;
    bool down = false;
    int64_t value = 0;
    if (at < size && (text[at] == '-' || text[at] == '+'))
        down = text[at++] == '-';
    if (at >= size || !ts_is_digit(text[at]))
        return 0;
    for (; at < size && ts_is_digit(text[at]); at++)
        if (value < LARGEST_EXPONENT)
            value = value * 10 + (text[at] - '0');
    *exponent = down ? -value : value;
    return at;
}

/* Writes "<digits>e<exponent>" for strtod: digits of text[0 .. size) with the point taken out. */
static double slow_decimal(const char *text, size_t size, int64_t exponent, bool single)
{
    char copy[SIGNIFICANT_DIGITS + 32];
    size_t count = 0;
    bool fraction = false, dropped = false;
    for (size_t at = 0; at < size; at++) {
        if (text[at] == '.') {
            fraction = true;
        } else if (count == SIGNIFICANT_DIGITS) {
            dropped |= text[at] != '0';
            exponent += !fraction;
        } else {
            exponent -= fraction;
            if (count > 0 || text[at] != '0')
                copy[count++] = text[at];
        }
    }
    if (count == 0)
        return 0;
    if (dropped) {
        copy[count++] = '1';
        exponent--;
    }
    /* With at most 801 digits everything past these bounds is 0 or infinite. */
    exponent = exponent > 9999 ? 9999 : exponent < -9999 ? -9999 : exponent;
    snprintf(copy + count, sizeof copy - count, "e%d", (int)exponent);
    return convert(copy, single);
}

/* text stands behind "0x". Returns the bytes taken, 0 when there are no digits. */
static size_t scan_hex(const char *text, size_t size, bool single, struct ts_number *number)
{
    char copy[SIGNIFICANT_HEX_DIGITS + 48] = "0x";
    size_t at = 0, count = 2, used;
    int64_t exponent = 0, written = 0;
    uint64_t integer = 0;
    bool any = false, fraction = false, dropped = false, fits = true;
    for (; at < size; at++) {
        int digit = text[at] == '.' && !fraction ? 16 : ts_hex_value(text[at]);
        if (digit < 0)
            break;
        if (digit == 16) {
            fraction = true;
            continue;
        }
        any = true;
        fits = fits && integer < (uint64_t)1 << 59;
        integer = fits ? integer << 4 | (uint64_t)digit : 0;
        if (count == 2 + SIGNIFICANT_HEX_DIGITS) {
            dropped |= digit != 0;
            exponent += fraction ? 0 : 4;
        } else {
            exponent -= fraction ? 4 : 0;
            if (count > 2 || digit != 0)
                copy[count++] = text[at];
        }
    }
    if (!any)
        return 0;
    *number = (struct ts_number){.is_integer = fits && !fraction, .integer = (int64_t)integer};
    if (at < size && (text[at] | 0x20) == 'p' && (used = scan_exponent(text + at, size - at, &written)) > 0) {
        at += used;
        exponent += written;
        number->is_integer = false;
    }
    if (dropped) {
        copy[count++] = '1';
        exponent -= 4;
    }
    if (count > 2) {
        exponent = exponent > 99999 ? 99999 : exponent < -99999 ? -99999 : exponent;
        snprintf(copy + count, sizeof copy - count, "p%d", (int)exponent);
        number->value = convert(copy, single);
    }
    return at;
}

/* True when text begins with the lower-case word, in any case. */
static bool begins(const char *text, size_t size, const char *word)
{
    size_t at = 0;
    for (; word[at]; at++)
        if (at >= size || (text[at] | 0x20) != word[at])
            return false;
    return true;
}

static size_t scan_word(const char *text, size_t size, struct ts_number *number)
{
    size_t at = 0;
    *number = (struct ts_number){.value = (double)INFINITY};
    if (begins(text, size, "infinity"))
        return 8;
    if (begins(text, size, "inf"))
        return 3;
    if (!begins(text, size, "nan"))
        return 0;
    number->value = (double)NAN;
    if (size < 4 || text[3] != '(')
        return 3;
    for (at = 4; at < size && (ts_is_digit(text[at]) || ((text[at] | 0x20) >= 'a' && (text[at] | 0x20) <= 'z')); at++)
        ;
    return at < size && text[at] == ')' ? at + 1 : 3;
}

static bool may_round_twice(double value)
{
    /* Halfway between two normal floats: a one and 28 zeros behind float's mantissa. Subnormal floats end elsewhere. */
    return (ts_double_bits(value) & 0x1fffffff) == 0x10000000 || (value != 0 && value < (double)FLT_MIN);
}

/* Digits, point, exponent; the sign has been taken. */
static size_t scan_decimal(const char *text, size_t size, bool single, struct ts_number *number)
{
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    size_t at = 0, first, mantissa_end, used, point = 0;
    uint64_t mantissa = 0;
    int64_t exponent = 0, scale;
    double value;
    bool fraction = false;
    while (at < size && text[at] == '0')
        at++;
    first = at;
    /* Wraps after 19 digits, and is then not used. */
    for (; at < size && ts_is_digit(text[at]); at++)
        mantissa = mantissa * 10 + (uint64_t)(text[at] - '0');
    used = at - first; /* significant digits */
    if (at < size && text[at] == '.') {
        fraction = true;
        point = at++;
        if (used == 0)
            while (at < size && text[at] == '0')
                at++;
        first = at;
        for (; at < size && ts_is_digit(text[at]); at++)
            mantissa = mantissa * 10 + (uint64_t)(text[at] - '0');
        used += at - first;
        if (at == 1) /* a lone point */
            return 0;
    } else if (at == 0) {
        return 0;
    }
    mantissa_end = at;
    scale = fraction ? -(int64_t)(at - point - 1) : 0;
    number->is_integer = false;
    if (at < size && ((text[at] | 0x20) == 'e' || (text[at] | 0x20) == 'd')) {
        size_t length = scan_exponent(text + at, size - at, &exponent);
        at += length;
        fraction |= length > 0;
    }
    number->digits = used < UINT32_MAX ? (unsigned)used : UINT32_MAX;
    scale += exponent;
    if (used <= 19 && !fraction && mantissa <= (uint64_t)1 << 63) {
        number->is_integer = true;
        number->integer = mantissa > INT64_MAX ? INT64_MIN : (int64_t)mantissa; /* right if the sign is minus */
        number->digits = 0;
    }
    if (FLT_EVAL_METHOD == 0 && used <= 19 && mantissa <= (uint64_t)1 << 53 && scale >= -22 && scale <= 22)
        /* Both operands are exact, so the one operation rounds once. */
        value = scale < 0 ? (double)mantissa / tens[-scale] : (double)mantissa * tens[scale];
    else if (used <= 19 && mantissa == 0)
        value = 0;
    else
        value = slow_decimal(text, mantissa_end, exponent, single);
    if (single) {
        if (may_round_twice(value))
            value = slow_decimal(text, mantissa_end, exponent, true);
        value = (double)(float)value;
    }
    number->value = value;
    return at;
}

size_t ts_number_scan(const char *text, size_t size, bool single, struct ts_number *number)
{
    size_t at = 0, used;
    bool negative = false;
    if (size > 0 && (text[0] == '-' || text[0] == '+'))
        negative = text[at++] == '-';
    if (at >= size)
        return 0;
    if (text[at] == '0' && size - at > 2 && (text[at + 1] | 0x20) == 'x') {
        used = scan_hex(text + at + 2, size - at - 2, single, number);
        used += used ? 2 : 0;
    } else if (ts_is_digit(text[at]) || text[at] == '.') {
        used = scan_decimal(text + at, size - at, single, number);
    } else {
        used = scan_word(text + at, size - at, number);
    }
    if (used == 0)
        return 0;
    if (negative) {
        number->value = -number->value;
        if (number->is_integer && number->integer != INT64_MIN)
            number->integer = -number->integer;
        /* An integer has no negative zero to keep the sign of; a file of "-0" is better off as floats. */
        number->is_integer = number->is_integer && number->integer != 0;
    } else if (number->is_integer && number->integer == INT64_MIN) {
        number->is_integer = false;
    }
    return at + used;
}
