/* Quantized weights from hostile parts. Two kinds of input, told apart by the first byte's lowest bit:
 *
 *     0: length of the config (two bytes, little-endian), the config, a safetensors file
 *     1: length of the config, the config, then a compact description of tensors: names that families look for, types
 *        and small shapes. Mutating a header rarely leaves JSON and offsets intact; this gets past them. */
#include "common.h"

#include <stdio.h>

#include "base/number.h"
#include "read/quantized.h"

extern const struct ts_reader ts_reader_safetensors;

static const char *const suffixes[] = {
    ".weight",
    ".qweight",
    ".scales",
    ".qzeros",
    ".g_idx",
    ".biases",
    ".weight_packed",
    ".weight_scale",
    ".weight_zero_point",
    ".weight_shape",
    ".weight_g_idx",
    ".weight_global_scale",
    ".weight_scale_inv",
    ".weight_scale_2",
    ".scale",
    ".SCB",
    ".weight_format",
    ".weight.absmax",
    ".weight.quant_map",
    ".weight.quant_state.bitsandbytes__nf4",
    ".weight.nested_absmax",
    ".weight.nested_quant_map",
    "_blocks",
    "_scales",
    "",
    "_scale",
};

static const enum ts_type types[] = {TS_F32,     TS_F16,     TS_BF16,    TS_I32, TS_U32, TS_I8,  TS_U8,   TS_I64,
                                     TS_F8_E4M3, TS_F8_E5M2, TS_F8_E8M0, TS_F64, TS_I16, TS_C64, TS_BOOL, TS_F4_E2M1};

/* Tensors of six bytes each: module, suffix, type and rank, three lengths; their elements are at the end of the input,
 * and may overlap. A length byte with the top bit set counts in 32s. */
static void describe(struct ts_bundle *bundle, struct ts_source *source, size_t count)
{
    struct ts_error error;
    for (size_t i = 0; i < count && (i + 1) * 6 <= source->size; i++) {
        const uint8_t *at = source->data + i * 6;
        const char *suffix = suffixes[at[1] % (sizeof suffixes / sizeof *suffixes)];
        unsigned rank = at[2] >> 4 & 3;
        struct ts_tensor *tensor;
        char name[64];
        ts_error_clear(&error);
        snprintf(name, sizeof name, "%s%c%s", at[0] & 1 ? "file:" : "", 'a' + (at[0] >> 1) % 3, suffix);
        if (ts_bundle_add(bundle, name, rank, &tensor, &error) != TS_OK)
            return;
        tensor->type = types[at[2] & 15];
        tensor->swapped = at[2] >> 6 == 3;
        tensor->source = source;
        for (unsigned axis = 0; axis < rank; axis++)
            tensor->shape[axis] = at[3 + axis] & 128 ? (at[3 + axis] & 127u) * 32u : at[3 + axis];
        tensor->offset = 0;
        if (ts_tensor_finish(tensor, &error) != TS_OK) {
            ts_bundle_drop_last(bundle);
        } else if (tensor->bytes <= source->size) {
            tensor->offset = tensor->span_offset = source->size - tensor->bytes; /* up to the end of the allocation */
        }
    }
}

static void explain_all(const struct ts_bundle *bundle)
{
    struct ts_buffer text;
    ts_buffer_init(&text, 1 << 16);
    for (size_t i = 0; i < bundle->count; i++) {
        const struct ts_tensor *tensor = bundle->tensors[i];
        if (tensor->type != TS_CODED)
            continue;
        ts_buffer_clear(&text);
        tensor->codec->explain(tensor, 0, &text);
        tensor->codec->explain(tensor, tensor->count - 1, &text);
        for (uint64_t at = 0; at < tensor->count && at < 4096; at += 500) { /* rows beyond the first, too */
            float values[500];
            struct ts_error error;
            ts_error_clear(&error);
            (void)ts_tensor_read_f32(tensor, at, tensor->count - at < 500 ? (size_t)(tensor->count - at) : 500, values,
                                     &error);
        }
    }
    ts_buffer_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ts_input input = {.member = "fuzz"};
    struct ts_bundle *bundle;
    struct ts_error error;
    size_t config;
    if (size < 3)
        return 0;
    config = ts_load_le16(data + 1);
    if (config > size - 3)
        return 0;
    ts_error_clear(&error);
    bundle = ts_bundle_new("fuzz");
    if (!bundle || ts_source_copy(data + 3 + config, size - 3 - config, "fuzz", &input.source, &error) != TS_OK) {
        ts_bundle_free(bundle);
        return 0;
    }
    if (config && ts_source_copy(data + 3, config, "config.json", &bundle->config, &error) != TS_OK)
        bundle->config = NULL;
    if (data[0] & 1) {
        if (ts_bundle_keep(bundle, input.source, &error) == TS_OK)
            describe(bundle, input.source, data[0] >> 1 & 15);
    } else if (ts_reader_safetensors.bid(&input) == 0 || ts_reader_safetensors.read(&input, bundle, &error) != TS_OK) {
        bundle->count = 0; /* what open does with a file that cannot be read */
    }
    ts_error_clear(&error);
    if (ts_quantized_join(bundle, &error) != TS_OK && error.status != TS_ERR_MEMORY)
        abort(); /* whatever is wrong with a weight is a finding */
    ts_fuzz_bundle(bundle);
    explain_all(bundle);
    ts_bundle_free(bundle);
    ts_source_release(input.source);
    return 0;
}
