/* Summary: totals by element type and by layer, and what config.json says. Shared by the commands that list tensors. */
#ifndef TS_CLI_SUMMARY_H
#define TS_CLI_SUMMARY_H

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/json.h"
#include "tensor/bundle.h"

struct total {
    const char *name; /* of the type; NULL for a layer */
    uint64_t layer;   /* UINT64_MAX: outside all layers */
    uint64_t tensors, elements, bytes;
};

struct totals {
    struct total *types, *layers; /* types by bytes, largest first; layers in order, outsiders last */
    size_t type_count, layer_count;
    struct total all;
};

enum ts_status totals_of(struct ts_tensor *const *tensors, size_t count, struct totals *totals, struct ts_error *error);
void totals_release(struct totals *totals);
void put_totals(struct ts_buffer *out, const struct totals *totals);
void totals_json(struct ts_json_writer *json, const struct totals *totals);

/* The lines of config.json that tell what the model is; nothing without one. */
void put_config(struct ts_buffer *out, const struct ts_bundle *bundle);
void config_json(struct ts_json_writer *json, const struct ts_bundle *bundle);

#endif
