/* The reader of text: dumps with a header (text_dialect.h) and plain numbers (text_plain.h). Owns the bid, which has
 * to leave every README, vocabulary and licence alone, and what plain numbers become. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "read/readers.h"
#include "read/text_dialect.h"
#include "read/text_plain.h"
#include "read/values.h"

/* A header of ours is about as good as a magic of five bytes; numbers at the start of a file are weak evidence. */
#define BID_DIALECT 40
#define BID_NUMBERS 10
/* Numbers are looked for here, behind comments here. */
#define LOOK_NUMBERS  ((size_t)1024)
#define LOOK_COMMENTS ((size_t)64 * 1024)

enum encoding { UTF8, UTF16_LITTLE, UTF16_BIG };

static enum encoding encoding_of(const struct ts_source *source)
{
    if (source->size >= 2 && source->data[0] == 0xff && source->data[1] == 0xfe)
        return UTF16_LITTLE;
    if (source->size >= 2 && source->data[0] == 0xfe && source->data[1] == 0xff)
        return UTF16_BIG;
    return UTF8;
}

/* Whole lines within the limit; where the first line is longer, whole words. */
static size_t whole_lines(const char *text, size_t size, size_t limit)
{
    size_t end = limit;
    if (size <= limit)
        return size;
    while (end > 0 && text[end - 1] != '\n')
        end--;
    if (end > 0)
        return end;
    for (end = limit; end > 0 && !ts_plain_ends(text[end - 1]); end--)
        ;
    return end;
}

/* A file of a single number is more often a version than a tensor, unless its name says data. */
static bool is_data_name(const char *name)
{
    return ts_ends_with(name, ".txt") || ts_ends_with(name, ".csv") || ts_ends_with(name, ".tsv") ||
           ts_ends_with(name, ".dat") || ts_ends_with(name, ".out");
}

static unsigned bid_text(const char *text, size_t size, const char *name)
{
    struct ts_plain plain;
    struct ts_error ignored;
    size_t look = whole_lines(text, size, LOOK_NUMBERS);
    if (ts_dialect_is(text, size))
        return BID_DIALECT;
    if (look == 0 || ts_plain_parse(text, look, true, NULL, &plain, &ignored) != TS_OK)
        return 0;
    if (plain.numbers == 0 && !plain.bracketed && look < size) { /* comments only: savetxt writes long headers */
        look = whole_lines(text, size, LOOK_COMMENTS);
        if (ts_plain_parse(text, look, true, NULL, &plain, &ignored) != TS_OK)
            return 0;
    }
    if (plain.bracketed && plain.numbers == 0 && !plain.shape) /* "[]" is nothing */
        return 0;
    if (plain.bracketed || plain.numbers >= 2 || (plain.numbers == 1 && !plain.names && is_data_name(name)))
        return BID_NUMBERS;
    return 0;
}

static unsigned text_bid(const struct ts_input *input)
{
    const struct ts_source *source = input->source;
    const enum encoding encoding = encoding_of(source);
    char narrow[LOOK_NUMBERS];
    size_t size;
    const char *text;
    if (encoding == UTF8) {
        text = ts_source_text(source, &size);
        return bid_text(text, size, input->member);
    }
    /* Claimed so that the reader can say what is wrong with it. */
    for (size = 0; size < sizeof narrow && 2 * size + 3 < source->size; size++) {
        const uint8_t *pair = source->data + 2 * size + 2;
        if (pair[encoding == UTF16_LITTLE ? 1 : 0] != 0)
            return 0;
        narrow[size] = (char)pair[encoding == UTF16_LITTLE ? 0 : 1];
    }
    size = size == sizeof narrow ? whole_lines(narrow, size, size - 1) : size;
    return bid_text(narrow, size, input->member);
}

static enum ts_status add_plain_notes(const struct ts_plain *plain, struct ts_bundle *bundle, struct ts_tensor *tensor,
                                      bool shaped, struct ts_error *error)
{
    struct ts_arena *arena = &bundle->arena;
    if (plain->names) {
        const char *names = ts_arena_copy(arena, plain->names, plain->names_size < 400 ? plain->names_size : 400);
        if (!names)
            return ts_fail_memory(error);
        TS_TRY(ts_bundle_attribute(bundle, tensor, "columns", names, error));
    }
    if (plain->uneven)
        TS_TRY(ts_bundle_attribute(bundle, tensor, "layout", "lines of different lengths, read as one row", error));
    if (plain->shape && !shaped) {
        const char *shape = ts_arena_copy(arena, plain->shape, plain->shape_size);
        if (!shape)
            return ts_fail_memory(error);
        TS_TRY(ts_bundle_attribute(bundle, tensor, "declared shape", shape, error));
    }
    if (!plain->ellipsis)
        return TS_OK;
    tensor->sampled = true;
    return ts_bundle_attribute(bundle, tensor, "sample", "corners of a print that was shortened with ...", error);
}

static enum ts_status read_plain(const char *text, size_t size, struct ts_values *values, struct ts_bundle *bundle,
                                 struct ts_error *error)
{
    struct ts_plain plain;
    struct ts_tensor *tensor;
    uint64_t shape[TS_MAX_RANK], product = 0;
    unsigned rank;
    bool stated;
    ts_values_begin(values, TS_VALUES_INFER);
    TS_TRY(ts_plain_parse(text, size, false, values, &plain, error));
    if (plain.numbers == 0 && !plain.bracketed)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "the text holds no numbers");
    /* An empty print says its shape aside: tensor([], size=(0, 3)). */
    stated = plain.shape && ts_plain_shape(plain.shape, plain.shape_size, shape, &rank) &&
             ts_shape_product(shape, rank, &product) && product == plain.numbers;
    if (!stated && plain.bracketed) {
        rank = plain.nest.rank;
        memcpy(shape, plain.nest.shape, sizeof shape);
    } else if (!stated) {
        rank = plain.rows > 1 && plain.columns > 1 && !plain.uneven ? 2 : 1;
        shape[0] = rank == 2 ? plain.rows : plain.numbers;
        shape[1] = plain.columns;
    }
    TS_TRY(ts_values_tensor(values, bundle, "", shape, rank, &tensor, error));
    return add_plain_notes(&plain, bundle, tensor, stated, error);
}

static enum ts_status text_read(struct ts_input *input, struct ts_bundle *bundle, struct ts_error *error)
{
    struct ts_source *source = input->source;
    struct ts_values *values;
    enum ts_status status;
    size_t size;
    const char *text = ts_source_text(source, &size);
    if (encoding_of(source) != UTF8)
        return ts_fail(error, TS_ERR_UNSUPPORTED, 0,
                       "is UTF-16 text; write it as UTF-8, for example with: iconv -f UTF-16 -t UTF-8");
    values = ts_values_new(input->spool, source->path);
    if (!values)
        return ts_fail_memory(error);
    values->text = source;
    if (ts_dialect_is(text, size))
        status = ts_dialect_read(input, text, size, values, bundle, error);
    else
        status = read_plain(text, size, values, bundle, error);
    ts_values_free(values);
    if (status != TS_OK && error->offset != TS_NO_OFFSET)
        error->offset += (uint64_t)((const uint8_t *)text - source->data);
    return status;
}

const struct ts_reader ts_reader_text = {
    .name = "text",
    .summary = "text dumps with a header, matrices of numbers, printed tensors",
    .bid = text_bid,
    .read = text_read,
};
