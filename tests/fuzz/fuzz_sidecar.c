/* The sidecar stands in a folder in which every name that does not begin with "no" opens the sidecar's own bytes. */
#include "common.h"
#include "io/listing.h"
#include "read/readers.h"

static struct ts_source *whole;

static enum ts_status open_any(struct ts_folder *folder, const char *path, struct ts_source **source,
                               struct ts_error *error)
{
    (void)folder;
    if (strncmp(path, "no", 2) == 0)
        return ts_fail(error, TS_ERR_IO, TS_NO_OFFSET, "no such file");
    return ts_source_slice(whole, 0, whole->size, path, source, error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct ts_folder_kind kind = {.open_path = open_any};
    struct ts_input input = {.member = "fuzz.json"};
    struct ts_bundle *bundle = ts_bundle_new("fuzz");
    struct ts_error error;
    ts_error_clear(&error);
    input.spool = ts_spool_new(TS_FUZZ_SPOOL_LIMIT);
    input.folder = ts_listing_new("fuzz", &kind);
    if (bundle && input.spool && input.folder &&
        ts_source_copy(data, size, "fuzz.json", &input.source, &error) == TS_OK) {
        whole = input.source;
        (void)ts_reader_raw_sidecar.bid(&input);
        if (ts_reader_raw_sidecar.read(&input, bundle, &error) != TS_OK && !error.message[0])
            abort();
        ts_fuzz_bundle(bundle);
        ts_source_release(input.source);
    }
    ts_bundle_free(bundle);
    ts_folder_free(input.folder);
    if (input.spool)
        ts_spool_free(input.spool);
    return 0;
}
