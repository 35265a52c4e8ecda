#include "read/readers.h"

// clang-format off
const struct ts_reader *const ts_readers[] = {
    &ts_reader_safetensors,
    &ts_reader_shard_index,
    &ts_reader_torch,
    &ts_reader_gguf,
    &ts_reader_npy,
    &ts_reader_npz,
    &ts_reader_onnx,
    &ts_reader_msprobe,
    &ts_reader_call_tree,
    &ts_reader_ggml_log,
    &ts_reader_polygraphy,
    &ts_reader_text,
    &ts_reader_json_dump,
    &ts_reader_raw_sidecar,
    &ts_reader_trace,
    NULL,
};
// clang-format on

const struct ts_reader *ts_reader_for(const struct ts_input *input)
{
    const struct ts_reader *best = NULL;
    unsigned highest = 0;
    for (size_t i = 0; ts_readers[i]; i++) {
        unsigned bid = ts_readers[i]->bid(input);
        if (bid > highest) {
            highest = bid;
            best = ts_readers[i];
        }
    }
    return best;
}

enum ts_status ts_input_beside(struct ts_input *input, const char *path, struct ts_source **source,
                               struct ts_error *error)
{
    if (!input->folder)
        return ts_fail(error, TS_ERR_IO, TS_NO_OFFSET, "no such file: \"%s\"", path);
    return ts_folder_open_beside(input->folder, input->member, path, source, error);
}

enum ts_status ts_read_source(struct ts_input *input, const struct ts_reader *reader, struct ts_source *source,
                              const char *member, struct ts_bundle *bundle, struct ts_error *error)
{
    struct ts_input other = {
        .source = source, .member = member, .folder = input->folder, .spool = input->spool, .zip = NULL};
    enum ts_status status;
    if (ts_zip_is(source))
        TS_TRY(ts_zip_open(source, input->spool, &other.zip, error));
    if (!reader)
        reader = ts_reader_for(&other);
    status = reader ? reader->read(&other, bundle, error)
                    : ts_fail(error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET, "is not a tensor file this program knows");
    if (other.zip)
        ts_zip_free(other.zip);
    return status;
}
