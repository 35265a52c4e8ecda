/* Owns how numbers are held, widened and rounded on their way into the spool, and how lists make a shape. */
#include "read/values.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/progress.h"

struct ts_values *ts_values_new(struct ts_spool *spool, const char *path)
{
    struct ts_values *values = malloc(sizeof *values);
    if (!values)
        return NULL;
    memset(values, 0, offsetof(struct ts_values, hold));
    values->spool = spool;
    values->path = path;
    return values;
}

void ts_values_free(struct ts_values *values)
{
    if (!values)
        return;
    ts_values_cancel(values);
    ts_source_release(values->share);
    free(values);
}

/* The types that encode() writes. */
static bool is_stored(enum ts_type type)
{
    return type <= TS_BF16 || (type >= TS_I64 && type <= TS_I8) || (type >= TS_U64 && type <= TS_U8) || type == TS_BOOL;
}

void ts_values_begin(struct ts_values *values, enum ts_type declared)
{
    if (!is_stored(declared))
        declared = TS_VALUES_INFER;
    values->declared = declared != TS_VALUES_INFER;
    values->type = declared;
    values->single = declared == TS_F32;
    values->misfit = false;
    values->halves = false;
    values->digits = 0;
    values->print.seen = 0;
    values->print.squares = 0;
    values->count = 0;
    values->held = 0;
    values->writing = false;
}

void ts_values_cancel(struct ts_values *values)
{
    if (values->writing)
        ts_spool_cancel(values->spool);
    values->writing = false;
}

/* To nearest, ties to even, from a double, for a float type with `bits` mantissa bits and exponents as float16 or
 * bfloat16 have them. The double is scaled so that the last kept bit is one, where rint rounds as wanted. */
static uint16_t narrow(double value, int bits, int exponent_bits)
{
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const uint16_t sign = (uint16_t)(signbit(value) ? 0x8000 : 0);
    const uint16_t infinite = (uint16_t)(((1u << exponent_bits) - 1) << bits);
    int exponent;
    double scaled;
    uint64_t mantissa;
    if (isnan(value))
        return (uint16_t)(sign | infinite | 1u << (bits - 1));
    value = fabs(value);
    if (value == 0)
        return sign;
    if (isinf(value))
        return sign | infinite;
    exponent = ilogb(value);
    if (exponent < 1 - bias)
        exponent = 1 - bias; /* subnormal: the grid no longer follows the value */
    scaled = rint(ldexp(value, bits - exponent));
    if (exponent > bias)
        return sign | infinite;
    /* A mantissa that rounded up to the next power of two carries into the exponent by itself. */
    mantissa = (uint64_t)scaled + ((uint64_t)(exponent + bias - 1) << bits);
    return mantissa >= infinite ? (uint16_t)(sign | infinite) : (uint16_t)(sign | (uint16_t)mantissa);
}

/* Whether an integer type of whole bytes holds the value; u64 above the signed range does not come this way. */
static bool integer_fits(enum ts_type type, int64_t value)
{
    switch (type) {
    case TS_I64:
        return true;
    case TS_I32:
        return value >= INT32_MIN && value <= INT32_MAX;
    case TS_I16:
        return value >= INT16_MIN && value <= INT16_MAX;
    case TS_I8:
        return value >= INT8_MIN && value <= INT8_MAX;
    case TS_U64:
        return value >= 0;
    case TS_U32:
        return value >= 0 && value <= UINT32_MAX;
    case TS_U16:
        return value >= 0 && value <= UINT16_MAX;
    case TS_U8:
        return value >= 0 && value <= UINT8_MAX;
    case TS_BOOL:
        return value == 0 || value == 1;
    default:
        return false;
    }
}

/* Turns the held numbers into elements of the type, in place: no element is larger than its number. */
static size_t encode(struct ts_values *values, uint8_t **bytes)
{
    const size_t size = ts_type_info(values->type)->block_bytes;
    uint8_t *out = (uint8_t *)&values->hold;
    *bytes = out;
    for (size_t i = 0; i < values->held && size < 8; i++) {
        uint8_t element[8];
        if (values->type == TS_F32) {
            float narrowed = (float)values->hold.floats[i];
            memcpy(element, &narrowed, sizeof narrowed);
        } else if (!values->halves && (values->type == TS_F16 || values->type == TS_BF16)) {
            uint16_t bits =
                values->type == TS_F16 ? narrow(values->hold.floats[i], 10, 5) : narrow(values->hold.floats[i], 7, 8);
            memcpy(element, &bits, sizeof bits);
        } else if (size == 4) {
            uint32_t bits = (uint32_t)values->hold.integers[i];
            memcpy(element, &bits, sizeof bits);
        } else if (size == 2) {
            uint16_t bits = (uint16_t)values->hold.integers[i];
            memcpy(element, &bits, sizeof bits);
        } else {
            element[0] = (uint8_t)values->hold.integers[i];
        }
        memcpy(out + i * size, element, size);
    }
    return values->held * size;
}

static enum ts_status flush(struct ts_values *values, struct ts_error *error)
{
    uint8_t *bytes;
    size_t size;
    if (atomic_load(&ts_cancelled))
        return ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
    size = encode(values, &bytes);
    values->writing = true;
    values->held = 0;
    return ts_spool_write(values->spool, bytes, size, error);
}

/* An integer list met a number that is none: what was stored becomes f64. Rounds only integers beyond 2^53, as reading
 * them as doubles would have. */
static enum ts_status turn_to_doubles(struct ts_values *values, struct ts_error *error)
{
    const enum ts_type type = values->type;
    const size_t size = ts_type_info(type)->block_bytes;
    double part[512];
    struct ts_source *source;
    enum ts_status status = TS_OK;
    if (values->writing) {
        TS_TRY(flush(values, error));
        values->writing = false;
        TS_TRY(ts_spool_finish(values->spool, values->path, &source, error));
        for (uint64_t done = 0; done < values->count && status == TS_OK;) {
            size_t now = values->count - done < 512 ? (size_t)(values->count - done) : 512;
            ts_type_decode_f64(type, false, source->data + done * size, now, part);
            values->writing = true;
            status = ts_spool_write(values->spool, part, now * sizeof part[0], error);
            done += now;
        }
        ts_source_release(source);
    } else {
        for (size_t i = 0; i < values->held; i++)
            values->hold.floats[i] = (double)values->hold.integers[i];
    }
    values->type = TS_F64;
    return status;
}

static enum ts_status fail_mixed(struct ts_error *error)
{
    return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "true and false stand among numbers");
}

/* Numbers of a list that are looked at for how they were printed. */
#define PRINT_SEEN  4096
#define PRINT_LEAST 8

static void note_print(struct ts_values *values, const struct ts_number *number)
{
    int place;
    if (number->digits == 0 || number->digits > 40 || values->print.seen == PRINT_SEEN || !isfinite(number->value) ||
        number->value == 0)
        return;
    place = (int)floor(log10(fabs(number->value)) + 1e-9) + 1 - (int)number->digits;
    if (values->print.seen == 0 || number->digits > values->print.most_digits) {
        values->print.most_digits = number->digits;
        values->print.with_most = 0;
    }
    if (values->print.seen == 0 || place < values->print.finest_place) {
        values->print.finest_place = place;
        values->print.with_finest = 0;
    }
    values->print.seen++;
    values->print.with_most += number->digits == values->print.most_digits;
    values->print.with_finest += place == values->print.finest_place;
    values->print.squares += number->value * number->value;
}

/* Mantissa bits whose rounding, 0.2123 * 2^-bits, is as large as that of the print; 0 when it lost nothing that f32
 * holds, or when numbers were written as short as they can
 * be and still be read back. With d digits each the error is 0.1338 * 10^(1 - d) of
 * a number, RMS over mantissas spread evenly on a logarithmic scale; with so many decimals it is 1/sqrt(12) of the last
 * place. */
static int printed_bits(const struct ts_values *values)
{
    double loss, bits;
    if (values->print.seen < PRINT_LEAST || values->print.most_digits < 4) /* too few to be sure: typed by hand */
        return 0;
    /* of ten numbers one ends in a zero, which some writers leave out */
    if (values->print.with_most >= 0.8 * values->print.seen && values->print.with_finest < values->print.seen)
        loss = 0.1338 * pow(10, 1 - (double)values->print.most_digits);
    else if (values->print.with_finest >= 0.8 * values->print.seen)
        loss = pow(10, values->print.finest_place) / sqrt(12 * values->print.squares / values->print.seen);
    else
        return 0;
    bits = floor(log2(0.2123 / loss));
    return bits >= 23 ? 0 : bits < 1 ? 1 : (int)bits;
}

enum ts_status ts_values_add(struct ts_values *values, const struct ts_number *number, struct ts_error *error)
{
    note_print(values, number);
    int64_t integer = number->integer;
    if (values->type == TS_VALUES_INFER)
        values->type = number->is_integer ? TS_I64 : TS_F64;
    if (values->held == TS_VALUES_HELD)
        TS_TRY(flush(values, error));
    if (number->digits > values->digits)
        values->digits = number->digits;
    if (ts_type_is_integer(values->type)) {
        bool whole = number->is_integer;
        if (values->type == TS_BOOL && !values->declared)
            return fail_mixed(error);
        /* Dumps print token ids as 1.234000e+03. */
        if (!whole && values->declared && fabs(number->value) < 0x1p63 && number->value == trunc(number->value)) {
            integer = (int64_t)number->value;
            whole = true;
        }
        if (whole && integer_fits(values->type, integer)) {
            values->hold.integers[values->held++] = integer;
            values->count++;
            return TS_OK;
        }
        values->misfit = values->declared;
        TS_TRY(turn_to_doubles(values, error));
    }
    values->hold.floats[values->held++] = number->value;
    values->count++;
    return TS_OK;
}

enum ts_status ts_values_add_bool(struct ts_values *values, bool value, struct ts_error *error)
{
    const struct ts_number number = {.value = value, .integer = value, .is_integer = true};
    if (values->declared)
        return ts_values_add(values, &number, error);
    if (values->type == TS_VALUES_INFER)
        values->type = TS_BOOL;
    if (values->type != TS_BOOL)
        return fail_mixed(error);
    if (values->held == TS_VALUES_HELD)
        TS_TRY(flush(values, error));
    values->hold.integers[values->held++] = value;
    values->count++;
    return TS_OK;
}

enum ts_status ts_values_add_half(struct ts_values *values, uint16_t bits, struct ts_error *error)
{
    values->halves = true;
    if (values->held == TS_VALUES_HELD)
        TS_TRY(flush(values, error));
    values->hold.integers[values->held++] = bits;
    values->count++;
    return TS_OK;
}

/* Small lists are put side by side into shared room, so that a file of a million of them does not make as many
 * sources. */
static enum ts_status finish_shared(struct ts_values *values, const uint8_t *bytes, size_t size,
                                    struct ts_source **source, uint64_t *offset, struct ts_error *error)
{
    uint64_t start = (values->share_used + 7) / 8 * 8;
    if (!values->share || !ts_span_fits(start, size, values->shared)) {
        ts_source_release(values->share);
        values->share = NULL;
        TS_TRY(ts_spool_reserve(values->spool, values->shared, &values->share_data, error));
        TS_TRY(ts_spool_source(values->spool, values->share_data, values->shared, values->path, &values->share, error));
        start = 0;
    }
    if (size)
        memcpy(values->share_data + start, bytes, size);
    values->share_used = start + size;
    *source = ts_source_retain(values->share);
    *offset = start;
    return TS_OK;
}

static enum ts_status finish(struct ts_values *values, struct ts_source **source, uint64_t *offset,
                             struct ts_error *error)
{
    uint8_t *bytes, *room;
    size_t size;
    *offset = 0;
    if (values->type == TS_VALUES_INFER)
        values->type = TS_F64; /* an empty list */
    if (values->writing) {
        TS_TRY(flush(values, error));
        values->writing = false;
        return ts_spool_finish(values->spool, values->path, source, error);
    }
    size = encode(values, &bytes);
    values->held = 0;
    if (size <= values->shared / 4)
        return finish_shared(values, bytes, size, source, offset, error);
    TS_TRY(ts_spool_reserve(values->spool, size, &room, error));
    if (size)
        memcpy(room, bytes, size);
    return ts_spool_source(values->spool, room, size, values->path, source, error);
}

bool ts_shape_product(const uint64_t *shape, unsigned rank, uint64_t *product)
{
    *product = 1;
    for (unsigned i = 0; i < rank; i++)
        if (shape[i] == 0)
            *product = 0;
    for (unsigned i = 0; i < rank && *product; i++)
        if (!ts_mul(*product, shape[i], product))
            return false;
    return true;
}

enum ts_status ts_values_tensor(struct ts_values *values, struct ts_bundle *bundle, const char *name,
                                const uint64_t *shape, unsigned rank, struct ts_tensor **tensor, struct ts_error *error)
{
    struct ts_source *source;
    struct ts_tensor *added;
    uint64_t offset, product;
    enum ts_status status;
    char digits[16];
    const bool shaped = shape && ts_shape_product(shape, rank, &product) && product == values->count;
    TS_TRY(finish(values, &source, &offset, error));
    status = ts_bundle_keep(bundle, source, error);
    ts_source_release(source);
    TS_TRY(status);
    TS_TRY(ts_bundle_add(bundle, name, shaped ? rank : 1, &added, error));
    if (!shaped)
        added->shape[0] = values->count;
    else if (rank)
        memcpy(added->shape, shape, rank * sizeof *shape);
    added->type = values->type;
    added->source = source;
    added->offset = offset;
    added->printed_bits = printed_bits(values);
    added->parsed = true;
    added->swapped = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
    status = ts_tensor_finish(added, error);
    if (status == TS_OK && values->digits) {
        snprintf(digits, sizeof digits, "%u", values->digits);
        status = ts_bundle_attribute(bundle, added, "digits", digits, error);
    }
    if (status != TS_OK)
        ts_bundle_drop_last(bundle);
    else
        *tensor = added;
    return status;
}

const char *ts_source_text(const struct ts_source *source, size_t *size)
{
    const char *text = (const char *)source->data;
    *size = (size_t)source->size;
    if (*size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        *size -= 3;
        text += 3;
    }
    return text;
}

void ts_nest_open(struct ts_nest *nest)
{
    if (nest->leaves && nest->depth >= nest->rank)
        nest->ragged = true;
    if (nest->depth < TS_MAX_RANK) {
        nest->counts[nest->depth]++;
        nest->counts[nest->depth + 1] = 0;
    } else {
        nest->deep = true;
    }
    nest->depth++;
}

void ts_nest_value(struct ts_nest *nest)
{
    if (nest->depth > TS_MAX_RANK)
        return;
    if (!nest->leaves) {
        nest->leaves = true;
        nest->rank = nest->depth;
    }
    if (nest->rank != nest->depth)
        nest->ragged = true;
    nest->counts[nest->depth]++;
}

void ts_nest_close(struct ts_nest *nest)
{
    const unsigned level = nest->depth - 1;
    nest->depth--;
    if (level >= TS_MAX_RANK)
        return;
    if (nest->counts[level + 1] == 0 && !nest->leaves) { /* an empty list is as deep as it goes */
        nest->leaves = true;
        nest->rank = level + 1;
    }
    if (!nest->known[level]) {
        nest->known[level] = true;
        nest->shape[level] = nest->counts[level + 1];
    } else if (nest->shape[level] != nest->counts[level + 1]) {
        nest->ragged = true;
    }
}
