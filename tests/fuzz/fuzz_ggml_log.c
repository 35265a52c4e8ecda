#include "common.h"
#include "read/readers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return ts_fuzz_reader(&ts_reader_ggml_log, data, size);
}
