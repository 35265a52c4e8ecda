/* What every fuzz target of a reader does: wrap the bytes in a source, let one reader bid and read, touch
 * both ends of every tensor it found, free everything. A target is then one line:
 *
 *     int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
 *     {
 *         return ts_fuzz_reader(&ts_reader_npy, data, size);
 *     }
 *
 * read runs whatever the bid says: a fuzzer learns more from bytes that are nearly right, and readers of
 * shards are called without a bid too. */
#ifndef TS_FUZZ_COMMON_H
#define TS_FUZZ_COMMON_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/source.h"
#include "io/spool.h"
#include "io/zip.h"
#include "read/reader.h"
#include "tensor/bundle.h"
#include "tensor/tensor.h"

#define TS_FUZZ_SPOOL_LIMIT ((uint64_t)64 << 20)
#define TS_FUZZ_ELEMENTS    64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first and the last elements. A reader that lets a bad span through is caught here by the address
 * sanitizer: sources made by ts_source_copy end where their allocation ends. */
static inline void ts_fuzz_tensor(const struct ts_tensor *tensor)
{
    double values[2 * TS_FUZZ_ELEMENTS]; /* complex elements give two numbers each */
    struct ts_error error;
    ts_error_clear(&error);
    uint64_t some = tensor->count < TS_FUZZ_ELEMENTS ? tensor->count : TS_FUZZ_ELEMENTS;
    if (some == 0)
        return;
    (void)ts_tensor_read_f64(tensor, 0, (size_t)some, values, &error);
    (void)ts_tensor_read_f64(tensor, tensor->count - some, (size_t)some, values, &error);
}

/* Every string and every tensor of the bundle is looked at; names must be there. */
static inline void ts_fuzz_bundle(const struct ts_bundle *bundle)
{
    size_t length = 0;
    for (size_t i = 0; i < bundle->count; i++) {
        if (!bundle->tensors[i]->name || !bundle->tensors[i]->source)
            abort();
        length += strlen(bundle->tensors[i]->name);
        for (const struct ts_attribute *a = bundle->tensors[i]->attributes; a; a = a->next)
            length += strlen(a->key) + strlen(a->value);
        ts_fuzz_tensor(bundle->tensors[i]);
    }
    for (size_t i = 0; i < bundle->meta_count; i++)
        length += strlen(bundle->metas[i].key) + strlen(bundle->metas[i].value);
    for (size_t i = 0; i < bundle->skip_count; i++)
        length += strlen(bundle->skips[i].path) + strlen(bundle->skips[i].reason);
    for (size_t i = 0; i < bundle->finding_count; i++)
        length += strlen(bundle->findings[i].text);
    if (length == SIZE_MAX) /* never; keeps the walk from being optimized away */
        abort();
}

static inline int ts_fuzz_reader(const struct ts_reader *reader, const uint8_t *data, size_t size)
{
    struct ts_error error;
    ts_error_clear(&error);
    struct ts_input input = {.member = "fuzz", .folder = NULL};
    if (ts_source_copy(data, size, "fuzz", &input.source, &error) != TS_OK)
        return 0;
    input.spool = ts_spool_new(TS_FUZZ_SPOOL_LIMIT);
    struct ts_bundle *bundle = ts_bundle_new("fuzz");
    if (input.spool && bundle) {
        if (ts_zip_is(input.source) && ts_zip_open(input.source, input.spool, &input.zip, &error) != TS_OK)
            input.zip = NULL;
        (void)reader->bid(&input);
        ts_error_clear(&error);
        enum ts_status status = reader->read(&input, bundle, &error);
        if (status != TS_OK && !error.message[0]) /* a failure always says why */
            abort();
        ts_fuzz_bundle(bundle);
    }
    ts_bundle_free(bundle);
    if (input.zip)
        ts_zip_free(input.zip);
    if (input.spool)
        ts_spool_free(input.spool);
    ts_source_release(input.source);
    return 0;
}

#endif
