/* The readers, one line each; readers.c lists them. */
#ifndef TS_READ_READERS_H
#define TS_READ_READERS_H

#include "read/reader.h"

extern const struct ts_reader ts_reader_call_tree;
extern const struct ts_reader ts_reader_gguf;
extern const struct ts_reader ts_reader_ggml_log;
extern const struct ts_reader ts_reader_json_dump;
extern const struct ts_reader ts_reader_msprobe;
extern const struct ts_reader ts_reader_npy;
extern const struct ts_reader ts_reader_npz;
extern const struct ts_reader ts_reader_onnx;
extern const struct ts_reader ts_reader_polygraphy;
extern const struct ts_reader ts_reader_raw_sidecar;
extern const struct ts_reader ts_reader_safetensors;
extern const struct ts_reader ts_reader_shard_index;
extern const struct ts_reader ts_reader_text;
extern const struct ts_reader ts_reader_torch;
extern const struct ts_reader ts_reader_trace;

#endif
