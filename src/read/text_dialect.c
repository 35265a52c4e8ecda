/* The dialects differ in the header's keys and in how much of the tensor follows; nothing else. So one loop reads them
 * all: comment lines until the first number are the header, numbers follow, comments among them say which part of the
 * tensor comes next, and another "# Tensor:" begins the next dump.
 *
 *     # Tensor: layer_3_q (FP16 format)      the suffix: values are "0x3c00 (1.000000e+00)", the bits count
 *     # Shape: (1, 3, 2048)                  or 3x2048, (5,), ()
 *     # Dtype: float32                       or "# Data type size: 4 bytes", or neither
 *     # Total elements: 6144
 *     # Mean: ... Std, Min, Max              of the whole tensor, also where only a part is there
 *     # Data:                                or "# Data (first 100 elements as hex and converted):"
 *     # First 50 elements:                   when there are more than 1000; "# Last 50 elements:" follows */
#include "read/text_dialect.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/number.h"
#include "read/text_plain.h"
#include "read/type_name.h"

/* More than any dialect has; what follows is not kept. */
#define MAX_NOTES 48
/* A header that is longer is none. */
#define HEADER_SEARCH ((size_t)64 * 1024)
/* What the writer that names no part takes from the start. */
#define USUAL_SAMPLE 100

struct slice {
    const char *text;
    size_t size;
};

struct note {
    struct slice key, value;
};

struct dump {
    struct slice name, shape_text, dtype;
    struct slice mean, min, max;
    bool has_name, has_shape, shape_known;
    bool hex;        /* fp16 bits */
    bool four_bytes; /* "Data type size: 4 bytes" */
    uint64_t shape[TS_MAX_RANK];
    unsigned rank;
    uint64_t total;        /* elements the shape says; valid when shape_known */
    uint64_t stated_total; /* "Total elements", or UINT64_MAX */
    uint64_t first, last;  /* elements that the comments promise, or 0 */
    uint64_t before_last;  /* values read when the comment on the last ones came */
    bool has_last;
    bool cut;               /* the last number touches the end of the file and may be a part of one */
    uint64_t disagreements; /* bits and number of a line that say different things */
    uint64_t first_disagreement;
    struct note notes[MAX_NOTES];
    size_t note_count;
};

struct reading {
    const char *text;
    size_t size, at;
    struct ts_values *values;
    struct ts_bundle *bundle;
    struct ts_input *input;
};

static struct slice trim(const char *text, size_t size)
{
    while (size && (text[0] == ' ' || text[0] == '\t')) {
        text++;
        size--;
    }
    while (size && (text[size - 1] == ' ' || text[size - 1] == '\t' || text[size - 1] == '\r'))
        size--;
    return (struct slice){text, size};
}

/* The line at *at, trimmed; *at moves behind its line break. */
static struct slice next_line(const char *text, size_t size, size_t *at)
{
    const char *end = memchr(text + *at, '\n', size - *at);
    size_t from = *at, stop = end ? (size_t)(end - text) : size;
    *at = end ? stop + 1 : size;
    return trim(text + from, stop - from);
}

static bool same(struct slice slice, const char *word)
{
    return strlen(word) == slice.size && strncasecmp(slice.text, word, slice.size) == 0;
}

static bool starts(struct slice slice, const char *word)
{
    return strlen(word) <= slice.size && strncasecmp(slice.text, word, strlen(word)) == 0;
}

/* "# Key: value" taken apart; without a colon everything is key. */
static struct note comment_of(struct slice line)
{
    struct slice content = trim(line.text + 1, line.size - 1);
    const char *colon = memchr(content.text, ':', content.size);
    struct note note = {.key = content, .value = {content.text + content.size, 0}};
    if (!colon)
        return note;
    note.key = trim(content.text, (size_t)(colon - content.text));
    note.value = trim(colon + 1, (size_t)(content.text + content.size - colon - 1));
    return note;
}

bool ts_dialect_is(const char *text, size_t size)
{
    bool name = false, shape = false;
    size_t at = 0;
    if (size > HEADER_SEARCH)
        size = HEADER_SEARCH;
    while (at < size && !(name && shape)) {
        struct slice line = next_line(text, size, &at);
        struct note note;
        if (line.size == 0)
            continue;
        if (line.text[0] != '#')
            return false;
        note = comment_of(line);
        if (!note.value.text || note.value.text == note.key.text + note.key.size)
            continue; /* no colon */
        name |= same(note.key, "tensor");
        shape |= same(note.key, "shape");
    }
    return name && shape;
}

/* The number inside "First 50 elements" after its first word, or 0. */
static uint64_t promised(struct slice text, size_t word)
{
    struct slice rest = trim(text.text + word, text.size - word);
    struct ts_number number;
    size_t used = ts_number_scan(rest.text, rest.size, false, &number);
    rest = trim(rest.text + used, rest.size - used);
    return used && number.is_integer && number.integer > 0 && starts(rest, "element") ? (uint64_t)number.integer : 0;
}

static void take_name(struct dump *dump, struct slice value)
{
    static const char half[] = "(FP16 format)";
    const size_t length = sizeof half - 1;
    if (value.size >= length && strncasecmp(value.text + value.size - length, half, length) == 0) {
        dump->hex = true;
        value = trim(value.text, value.size - length);
    }
    dump->name = value;
    dump->has_name = true;
}

static void take_shape(struct dump *dump, struct slice value)
{
    dump->shape_text = value;
    dump->has_shape = true;
    dump->shape_known = ts_plain_shape(value.text, value.size, dump->shape, &dump->rank) &&
                        ts_shape_product(dump->shape, dump->rank, &dump->total);
}

static uint64_t whole_number(struct slice value)
{
    struct ts_number number;
    size_t used = ts_number_scan(value.text, value.size, false, &number);
    return used && number.is_integer && number.integer >= 0 ? (uint64_t)number.integer : UINT64_MAX;
}

static void keep_note(struct dump *dump, struct note note)
{
    static const char special[] = "special values - ";
    if (starts(note.key, special)) { /* "Special values - NaN: 0, Inf: 0, Zero: 3" */
        const char *end = note.value.text + note.value.size;
        note.value =
            (struct slice){note.key.text + sizeof special - 1, (size_t)(end - note.key.text) - (sizeof special - 1)};
        note.key.size = sizeof "special values" - 1;
    }
    if (note.value.size == 0) {
        note.value = note.key;
        note.key = (struct slice){"note", 4};
    }
    if (dump->note_count < MAX_NOTES)
        dump->notes[dump->note_count++] = note;
}

/* Comments that mean the same before and among the numbers. */
static bool take_part(struct dump *dump, struct slice key, uint64_t count)
{
    if (starts(key, "first ") && promised(key, 6)) {
        dump->first = promised(key, 6);
    } else if (starts(key, "last ") && promised(key, 5)) {
        dump->last = promised(key, 5);
        dump->has_last = true;
        dump->before_last = count;
    } else {
        return false;
    }
    return true;
}

static void take_header(struct dump *dump, struct note note)
{
    if (same(note.key, "tensor")) {
        take_name(dump, note.value);
    } else if (same(note.key, "shape")) {
        take_shape(dump, note.value);
    } else if (starts(note.key, "data") && (note.key.size == 4 || note.key.text[4] == '(' || note.key.text[4] == ' ') &&
               !starts(note.key, "data type")) {
        struct slice rest = trim(note.key.text + 4, note.key.size - 4);
        if (starts(rest, "(first ") && promised(rest, 7))
            dump->first = promised(rest, 7);
        for (size_t i = 0; i + 6 <= rest.size; i++)
            dump->hex |= strncasecmp(rest.text + i, "as hex", 6) == 0;
    } else if (!take_part(dump, note.key, 0) && !same(note.key, "statistics")) {
        if (same(note.key, "dtype"))
            dump->dtype = note.value;
        else if (same(note.key, "data type size"))
            dump->four_bytes = starts(note.value, "4 byte");
        else if (same(note.key, "total elements"))
            dump->stated_total = whole_number(note.value);
        else if (same(note.key, "mean"))
            dump->mean = note.value;
        else if (same(note.key, "min"))
            dump->min = note.value;
        else if (same(note.key, "max"))
            dump->max = note.value;
        keep_note(dump, note);
    }
}

static enum ts_status read_header(struct reading *reading, struct dump *dump, struct ts_error *error)
{
    memset(dump, 0, offsetof(struct dump, notes));
    dump->note_count = 0;
    dump->stated_total = UINT64_MAX;
    while (reading->at < reading->size) {
        const size_t from = reading->at;
        struct slice line = next_line(reading->text, reading->size, &reading->at);
        struct note note;
        if (line.size == 0)
            continue;
        note = comment_of(line);
        if (line.text[0] != '#' || (dump->has_name && same(note.key, "tensor"))) {
            reading->at = from;
            break;
        }
        if (memchr(line.text, '\0', line.size))
            return ts_fail(error, TS_ERR_FORMAT, from, "line %" PRIu64 ": the header holds a NUL byte",
                           ts_plain_line(reading->text, from));
        take_header(dump, note);
    }
    return TS_OK;
}

static enum ts_type storage_of(const struct dump *dump)
{
    enum ts_type type;
    bool swapped;
    if (dump->hex)
        return TS_F16;
    if (dump->dtype.size && ts_type_from_name(dump->dtype.text, dump->dtype.size, &type, &swapped))
        return type;
    return dump->four_bytes ? TS_F32 : TS_VALUES_INFER;
}

/* A count at which the dump may honestly end. */
static bool is_expected(const struct dump *dump, uint64_t count)
{
    if (dump->shape_known && count == dump->total)
        return true;
    if (dump->first || dump->last)
        return count == dump->first + dump->last;
    return count == USUAL_SAMPLE && (!dump->shape_known || dump->total > USUAL_SAMPLE);
}

static enum ts_status fail_hex(const struct reading *reading, const char *at, struct ts_error *error)
{
    const size_t offset = (size_t)(at - reading->text);
    return ts_fail(error, TS_ERR_FORMAT, offset,
                   "line %" PRIu64 ": expected the bits of an fp16 number such as 0x3c00 (1.000000e+00)",
                   ts_plain_line(reading->text, offset));
}

/* "0x3c00 (1.000000e+00)": the bits are what is stored, the number beside them is only compared. */
static enum ts_status read_hex(struct reading *reading, struct dump *dump, struct slice line, struct ts_error *error)
{
    struct ts_number bits, beside;
    struct slice rest;
    size_t used = ts_number_scan(line.text, line.size, false, &bits);
    const bool touches = line.text + line.size == reading->text + reading->size;
    float value;
    double gap;
    if (touches && line.size < 6) {
        dump->cut = true;
        return TS_OK;
    }
    if (used != 6 || line.text[0] != '0' || (line.text[1] | 0x20) != 'x' || !bits.is_integer ||
        (used < line.size && !ts_plain_ends(line.text[used])))
        return fail_hex(reading, line.text, error);
    rest = trim(line.text + used, line.size - used);
    value = ts_f16_to_float((uint16_t)bits.integer);
    if (rest.size > 2 && rest.text[0] == '(' && rest.text[rest.size - 1] == ')' &&
        ts_number_scan(rest.text + 1, rest.size - 1, false, &beside)) {
        gap = fabs((double)value - beside.value);
        /* Seven digits were printed. A NaN beside a NaN makes the gap NaN, which is not larger. */
        if (isnan(value) != isnan(beside.value) || (isfinite(value) && gap > 1e-5 * fabs((double)value)) ||
            (isinf(value) && (double)value != beside.value)) {
            if (dump->disagreements++ == 0)
                dump->first_disagreement = reading->values->count;
        }
    } else if (rest.size && rest.text[0] != '#' && !touches) {
        return fail_hex(reading, rest.text, error);
    }
    return ts_values_add_half(reading->values, (uint16_t)bits.integer, error);
}

static enum ts_status read_numbers(struct reading *reading, struct dump *dump, struct slice line,
                                   struct ts_error *error)
{
    size_t at = 0;
    const char *end = reading->text + reading->size;
    while (at < line.size && line.text[at] != '#') {
        struct ts_number number;
        size_t used = ts_number_scan(line.text + at, line.size - at, reading->values->single, &number);
        bool ends = at + used == line.size || ts_plain_ends(line.text[at + used]);
        bool touches = line.text + line.size == end && !memchr(line.text + at, ' ', line.size - at);
        if (touches && !is_expected(dump, reading->values->count + 1)) {
            dump->cut = true; /* "1.2345" may have been "1.234567e-05" */
            return TS_OK;
        }
        if (!used || !ends)
            return ts_plain_fail(reading->text, reading->size, (size_t)(line.text - reading->text) + at, error);
        TS_TRY(ts_values_add(reading->values, &number, error));
        at += used;
        while (at < line.size && (line.text[at] == ' ' || line.text[at] == '\t' || line.text[at] == ','))
            at++;
    }
    return TS_OK;
}

static enum ts_status read_data(struct reading *reading, struct dump *dump, struct ts_error *error)
{
    while (reading->at < reading->size) {
        const size_t from = reading->at;
        struct slice line = next_line(reading->text, reading->size, &reading->at);
        if (line.size == 0)
            continue;
        if (line.text[0] == '#') {
            struct note note = comment_of(line);
            if (same(note.key, "tensor")) {
                reading->at = from;
                return TS_OK;
            }
            take_part(dump, note.key, reading->values->count);
            continue;
        }
        ts_values_passed(reading->values, line.text);
        if (dump->hex)
            TS_TRY(read_hex(reading, dump, line, error));
        else
            TS_TRY(read_numbers(reading, dump, line, error));
    }
    return TS_OK;
}

static void append_of_total(const struct dump *dump, char *out, size_t size)
{
    size_t length = strlen(out);
    if (dump->shape_known)
        snprintf(out + length, size - length, " of %" PRIu64, dump->total);
    else
        snprintf(out + length, size - length, " of an unknown number");
}

/* What the values are of the whole: "first 50 and last 50 of 6144". */
static void describe_sample(const struct dump *dump, uint64_t count, char *out, size_t size)
{
    if (!dump->has_last) {
        snprintf(out, size, "first %" PRIu64, count);
    } else {
        uint64_t first = dump->before_last, last = count - first;
        if (last == dump->last)
            snprintf(out, size, "first %" PRIu64 " and last %" PRIu64, first, last);
        else
            snprintf(out, size, "first %" PRIu64 " and %" PRIu64 " of the last %" PRIu64, first, last, dump->last);
    }
    append_of_total(dump, out, size);
}

static enum ts_status add_attribute(struct reading *reading, struct ts_tensor *tensor, struct slice key,
                                    struct slice value, struct ts_error *error)
{
    struct ts_arena *arena = &reading->bundle->arena;
    char *name = ts_arena_copy(arena, key.text, key.size), *text = ts_arena_copy(arena, value.text, value.size);
    if (!name || !text)
        return ts_fail_memory(error);
    for (char *c = name; *c; c++)
        if (*c >= 'A' && *c <= 'Z')
            *c = (char)(*c | 0x20);
    return ts_bundle_attribute(reading->bundle, tensor, name, text, error);
}

static enum ts_status add_attributes(struct reading *reading, const struct dump *dump, struct ts_tensor *tensor,
                                     bool whole, struct ts_error *error)
{
    char sample[160];
    if (!whole) {
        TS_TRY(add_attribute(reading, tensor, (struct slice){"declared shape", 14}, dump->shape_text, error));
        if (tensor->sampled) {
            describe_sample(dump, tensor->count, sample, sizeof sample);
            TS_TRY(ts_bundle_attribute(reading->bundle, tensor, "sample", sample, error));
        }
    }
    for (size_t i = 0; i < dump->note_count; i++)
        TS_TRY(add_attribute(reading, tensor, dump->notes[i].key, dump->notes[i].value, error));
    return TS_OK;
}

/* One unit in the last digit of a number as printed: 1e-6 for "0.123456" and "1.234567e+00". */
static double last_digit(struct slice text)
{
    int power = 0;
    bool fraction = false;
    for (size_t i = 0; i < text.size; i++) {
        char c = text.text[i];
        struct ts_number exponent;
        if (c == '.')
            fraction = true;
        else if (c >= '0' && c <= '9')
            power -= fraction;
        else if ((c | 0x20) == 'e' && ts_number_scan(text.text + i + 1, text.size - i - 1, false, &exponent) &&
                 fabs(exponent.value) < 1000)
            return pow(10, power + exponent.value);
        else if (c != '-' && c != '+')
            break;
    }
    return pow(10, power);
}

struct statistics {
    double min, max, sum, sum_abs;
    uint64_t special; /* NaN and infinite */
};

static enum ts_status gather(const struct ts_tensor *tensor, struct statistics *statistics, struct ts_error *error)
{
    *statistics = (struct statistics){.min = (double)INFINITY, .max = -(double)INFINITY};
    for (uint64_t done = 0; done < tensor->count;) {
        double part[512];
        size_t now = tensor->count - done < 512 ? (size_t)(tensor->count - done) : 512;
        TS_TRY(ts_tensor_read_f64(tensor, done, now, part, error));
        for (size_t i = 0; i < now; i++) {
            if (!isfinite(part[i])) {
                statistics->special++;
                continue;
            }
            statistics->min = fmin(statistics->min, part[i]);
            statistics->max = fmax(statistics->max, part[i]);
            statistics->sum += part[i];
            statistics->sum_abs += fabs(part[i]);
        }
        done += now;
    }
    return TS_OK;
}

/* *stated and how far a true value may lie from it; false when the header does not say. */
static bool stated_value(struct slice text, double *stated, double *unit)
{
    struct ts_number number;
    if (text.size == 0 || ts_number_scan(text.text, text.size, false, &number) == 0)
        return false;
    *stated = number.value;
    *unit = 0.51 * last_digit(text); /* a half, and the rounding of 10^n */
    return true;
}

/* The header's numbers against the values. With NaN or infinities among them the dialects disagree on what a mean or
 * a minimum is, so nothing is said then. Of a part only the bounds can be checked. */
static enum ts_status check_statistics(struct reading *reading, const struct dump *dump, const struct ts_tensor *tensor,
                                       bool whole, unsigned digits, struct ts_error *error)
{
    struct statistics found;
    double stated, unit, rounding, mean;
    const struct slice bounds[] = {dump->min, dump->max};
    if (tensor->count == 0 || !(dump->min.size || dump->max.size || dump->mean.size))
        return TS_OK;
    TS_TRY(gather(tensor, &found, error));
    if (found.special)
        return TS_OK;
    /* Of printing: relative to the largest value, as the values may have a fixed number of decimals. */
    rounding = digits && digits < 17 ? pow(10, 1 - (double)digits) : 1e-6;
    for (int i = 0; i < 2; i++) {
        const double value = i ? found.max : found.min;
        const double slack = rounding * fmax(fabs(found.min), fabs(found.max));
        double gap;
        if (!stated_value(bounds[i], &stated, &unit))
            continue;
        gap = whole ? fabs(value - stated) : i ? value - stated : stated - value;
        if ((whole && isnan(stated)) || gap > slack + unit)
            TS_TRY(ts_bundle_find(reading->bundle, tensor->name, error,
                                  whole ? "the header says %s %.9g, but that of its values is %.9g"
                                        : "the header says %s %.9g, but one of its values is %.9g",
                                  i ? "max" : "min", stated, value));
    }
    if (!whole || !stated_value(dump->mean, &stated, &unit))
        return TS_OK;
    mean = found.sum / (double)tensor->count;
    /* Writers sum in float, one after the other: an error of up to half an ulp of the running sum at each step. */
    rounding += 0x1p-23 * (double)tensor->count;
    if (tensor->type == TS_F16 || starts(dump->dtype, "float16"))
        rounding += 0x1p-10;
    if (tensor->type == TS_BF16)
        rounding += 0x1p-7;
    if (isnan(stated) || fabs(mean - stated) > rounding * found.sum_abs / (double)tensor->count + unit)
        TS_TRY(ts_bundle_find(reading->bundle, tensor->name, error,
                              "the header says mean %.9g, but that of its values is %.9g", stated, mean));
    return TS_OK;
}

/* What a person should know about the number of values. */
static enum ts_status check_counts(struct reading *reading, const struct dump *dump, const struct ts_tensor *tensor,
                                   struct ts_error *error)
{
    struct ts_bundle *bundle = reading->bundle;
    if (!dump->shape_known)
        TS_TRY(ts_bundle_find(bundle, tensor->name, error, "its header's shape \"%.*s\" cannot be read",
                              (int)(dump->shape_text.size < 80 ? dump->shape_text.size : 80), dump->shape_text.text));
    else if (dump->stated_total != UINT64_MAX && dump->stated_total != dump->total)
        TS_TRY(ts_bundle_find(bundle, tensor->name, error,
                              "the header says %" PRIu64 " elements in total, but its shape has %" PRIu64,
                              dump->stated_total, dump->total));
    if (dump->shape_known && tensor->count > dump->total)
        return ts_bundle_find(bundle, tensor->name, error,
                              "has %" PRIu64 " values, but its shape has room for %" PRIu64 ": read as one row",
                              tensor->count, dump->total);
    if (dump->cut || !is_expected(dump, tensor->count))
        return ts_bundle_find(bundle, tensor->name, error, "the dump ends after %" PRIu64 " values%s: it was cut off",
                              tensor->count, dump->cut ? ", inside a number" : "");
    return TS_OK;
}

static enum ts_status finish_dump(struct reading *reading, struct dump *dump, struct ts_error *error)
{
    struct ts_values *values = reading->values;
    struct ts_bundle *bundle = reading->bundle;
    struct ts_tensor *tensor;
    const char *name = ts_arena_copy(&bundle->arena, dump->name.text, dump->name.size);
    const bool whole = dump->shape_known && values->count == dump->total;
    const unsigned digits = values->digits;
    if (!name)
        return ts_fail_memory(error);
    if (values->count == 0 && !whole) {
        struct ts_error why;
        ts_fail(&why, TS_ERR_FORMAT, reading->at, "the dump has a header and no values");
        ts_values_cancel(values);
        return ts_bundle_skip_error(bundle, reading->input->member, name, &why, error);
    }
    if (values->misfit)
        TS_TRY(ts_bundle_find(bundle, name, error,
                              "the header says %.*s, but not all of its values are such: read as f64",
                              (int)(dump->dtype.size < 80 ? dump->dtype.size : 80), dump->dtype.text));
    TS_TRY(ts_values_tensor(values, bundle, name, whole ? dump->shape : NULL, dump->rank, &tensor, error));
    tensor->sampled = !whole && !(dump->shape_known && tensor->count > dump->total);
    TS_TRY(add_attributes(reading, dump, tensor, whole, error));
    TS_TRY(check_counts(reading, dump, tensor, error));
    TS_TRY(check_statistics(reading, dump, tensor, whole, digits, error));
    if (dump->disagreements)
        TS_TRY(ts_bundle_find(bundle, name, error,
                              "%" PRIu64 " numbers differ from the fp16 bits beside them, first at element %" PRIu64
                              "; the bits were taken",
                              dump->disagreements, dump->first_disagreement));
    return TS_OK;
}

enum ts_status ts_dialect_read(struct ts_input *input, const char *text, size_t size, struct ts_values *values,
                               struct ts_bundle *bundle, struct ts_error *error)
{
    struct reading reading = {.text = text, .size = size, .values = values, .bundle = bundle, .input = input};
    struct dump *dump = malloc(sizeof *dump);
    enum ts_status status = dump ? TS_OK : ts_fail_memory(error);
    while (status == TS_OK && reading.at < size) {
        status = read_header(&reading, dump, error);
        if (status != TS_OK || !dump->has_name)
            break;
        ts_values_begin(values, storage_of(dump));
        status = read_data(&reading, dump, error);
        if (status == TS_OK)
            status = finish_dump(&reading, dump, error);
    }
    free(dump);
    return status;
}
