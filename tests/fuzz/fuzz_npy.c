#include "common.h"

extern const struct ts_reader ts_reader_npy;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return ts_fuzz_reader(&ts_reader_npy, data, size);
}
