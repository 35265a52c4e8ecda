/* Torch quantized: codes with one scale and zero point, or with one of each per channel.
 *
 * The arithmetic is that of torch's dequantize on CPUs, so that values agree to the bit: per tensor, the difference of
 * code and zero point is taken in integers and multiplied by the scale as float; per channel, the difference is taken
 * in float and multiplied by the scale in the scale's own precision. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "read/torch.h"

struct affine {
    float scale;
    int64_t zero_point;
    /* per channel */
    uint64_t channels, inner; /* elements that follow each other with the same channel */
};

/* Read so many codes at a time. */
#define BLOCK 512

static enum ts_status read_per_tensor(const struct ts_tensor *tensor, uint64_t first, size_t count, float *out,
                                      struct ts_error *error)
{
    const struct affine *affine = tensor->codec_data;
    int64_t codes[BLOCK];
    while (count) {
        size_t now = count < BLOCK ? count : BLOCK;
        TS_TRY(ts_tensor_read_i64(tensor->parts[0], first, now, codes, error));
        for (size_t i = 0; i < now; i++) /* codes have 32 bits and zero points fit too: no overflow */
            out[i] = (float)(codes[i] - affine->zero_point) * affine->scale;
        first += now;
        out += now;
        count -= now;
    }
    return TS_OK;
}

/* Scales and zero points of channels [first, first + count), at most BLOCK. */
struct channel_window {
    uint64_t first, count;
    double scales[BLOCK];
    float zero_points[BLOCK];
};

static enum ts_status fill_window(const struct ts_tensor *tensor, uint64_t channel, struct channel_window *window,
                                  struct ts_error *error)
{
    const struct affine *affine = tensor->codec_data;
    uint64_t left = affine->channels - channel;
    int64_t integers[BLOCK];
    window->first = channel;
    window->count = left < BLOCK ? left : BLOCK;
    TS_TRY(ts_tensor_read_f64(tensor->parts[1], channel, (size_t)window->count, window->scales, error));
    if (!ts_type_is_integer(tensor->parts[2]->type))
        return ts_tensor_read_f32(tensor->parts[2], channel, (size_t)window->count, window->zero_points, error);
    TS_TRY(ts_tensor_read_i64(tensor->parts[2], channel, (size_t)window->count, integers, error));
    for (uint64_t i = 0; i < window->count; i++)
        window->zero_points[i] = (float)integers[i];
    return TS_OK;
}

static enum ts_status read_per_channel(const struct ts_tensor *tensor, uint64_t first, size_t count, float *out,
                                       struct ts_error *error)
{
    const struct affine *affine = tensor->codec_data;
    const bool wide = tensor->parts[1]->type == TS_F64;
    uint64_t channel = first / affine->inner % affine->channels, within = first % affine->inner;
    struct channel_window window;
    int64_t codes[BLOCK];
    window.first = window.count = 0;
    while (count) {
        size_t now = count < BLOCK ? count : BLOCK;
        TS_TRY(ts_tensor_read_i64(tensor->parts[0], first, now, codes, error));
        for (size_t i = 0; i < now; i++) {
            float difference;
            double scale;
            if (channel < window.first || channel - window.first >= window.count)
                TS_TRY(fill_window(tensor, channel, &window, error));
            scale = window.scales[channel - window.first];
            difference = (float)codes[i] - window.zero_points[channel - window.first];
            out[i] = wide ? (float)((double)difference * scale) : difference * (float)scale;
            if (++within == affine->inner) {
                within = 0;
                channel = channel + 1 == affine->channels ? 0 : channel + 1;
            }
        }
        first += now;
        out += now;
        count -= now;
    }
    return TS_OK;
}

static void explain(const struct ts_tensor *tensor, uint64_t index, struct ts_buffer *out)
{
    const struct affine *affine = tensor->codec_data;
    struct ts_error ignored;
    int64_t code;
    if (index >= tensor->count || ts_tensor_read_i64(tensor->parts[0], index, 1, &code, &ignored) != TS_OK)
        return;
    if (tensor->part_count == 1) {
        ts_buffer_printf(out, "code %" PRId64 ", zero point %" PRId64 ", scale %.7g", code, affine->zero_point,
                         (double)affine->scale);
    } else {
        uint64_t channel = index / affine->inner % affine->channels;
        double scale, zero_point;
        if (ts_tensor_read_f64(tensor->parts[1], channel, 1, &scale, &ignored) != TS_OK ||
            ts_tensor_read_f64(tensor->parts[2], channel, 1, &zero_point, &ignored) != TS_OK)
            return;
        ts_buffer_printf(out, "code %" PRId64 ", zero point %.7g, scale %.7g (channel %" PRIu64 ")", code, zero_point,
                         scale, channel);
    }
}

static const struct ts_codec per_tensor = {"torch affine", read_per_tensor, explain};
static const struct ts_codec per_channel = {"torch affine per channel", read_per_channel, explain};

static enum ts_status number_of(struct ts_pickle_value value, double *number, struct ts_error *error)
{
    if (value.kind == TS_PICKLE_FLOAT)
        *number = value.number;
    else if (value.kind == TS_PICKLE_INT)
        *number = (double)value.integer;
    else
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "its scale or zero point is not a number");
    return TS_OK;
}

static enum ts_status set_per_tensor(struct ts_pickle_value quantizer, struct affine *affine, char *scheme, size_t size,
                                     struct ts_error *error)
{
    double scale = 0, zero_point = 0;
    TS_TRY(number_of(quantizer.tuple->items[1], &scale, error));
    TS_TRY(number_of(quantizer.tuple->items[2], &zero_point, error));
    if (!(zero_point >= -2147483648.0 && zero_point <= 4294967295.0))
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "its zero point %g is beyond 32 bits", zero_point);
    affine->scale = (float)scale;
    affine->zero_point = (int64_t)zero_point;
    snprintf(scheme, size, "per_tensor_affine, scale %.9g, zero point %" PRId64, scale, affine->zero_point);
    return TS_OK;
}

static enum ts_status set_per_channel(struct ts_torch *torch, const struct ts_torch_view *codes,
                                      struct ts_pickle_value quantizer, struct affine *affine, struct ts_tensor **parts,
                                      char *scheme, size_t size, struct ts_error *error)
{
    const struct ts_pickle_value *items = quantizer.tuple->items;
    struct ts_torch_view view;
    TS_TRY(ts_torch_view_of(torch, items[1], &view, error));
    TS_TRY(ts_torch_part(torch, &view, &parts[1], error));
    TS_TRY(ts_torch_view_of(torch, items[2], &view, error));
    TS_TRY(ts_torch_part(torch, &view, &parts[2], error));
    if (items[3].kind != TS_PICKLE_INT || items[3].integer < 0 || (uint64_t)items[3].integer >= codes->rank)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "is quantized along an axis it does not have");
    affine->channels = codes->shape[items[3].integer];
    if (parts[1]->count != affine->channels || parts[2]->count != affine->channels)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET,
                       "has %" PRIu64 " channels, %" PRIu64 " scales and %" PRIu64 " zero points", affine->channels,
                       parts[1]->count, parts[2]->count);
    if (ts_type_info(parts[1]->type)->components != 1 || ts_type_info(parts[2]->type)->components != 1)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "its scales or zero points are complex");
    affine->inner = 1;
    for (unsigned i = (unsigned)items[3].integer + 1; i < codes->rank; i++)
        if (!ts_mul(affine->inner, codes->shape[i], &affine->inner))
            return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "its shape has more than 2^63 elements");
    snprintf(scheme, size, "%s, axis %" PRId64,
             ts_type_is_integer(parts[2]->type) ? "per_channel_affine" : "per_channel_affine_float_qparams",
             items[3].integer);
    return TS_OK;
}

enum ts_status ts_torch_emit_quantized(struct ts_torch *torch, const struct ts_torch_view *codes,
                                       struct ts_pickle_value quantizer, struct ts_error *error)
{
    struct affine *affine = ts_arena_alloc(&torch->bundle->arena, sizeof *affine);
    struct ts_tensor **parts = ts_arena_array(&torch->bundle->arena, 3, sizeof *parts), *tensor;
    struct ts_torch_storage *storage = codes->storage;
    uint64_t count = quantizer.kind == TS_PICKLE_TUPLE ? quantizer.tuple->count : 0;
    char scheme[160], text[200];
    enum ts_status status;
    if (!affine || !parts)
        return ts_fail_memory(error);
    if (!ts_type_is_integer(codes->type))
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "is quantized and its codes are of type %s",
                       ts_type_info(codes->type)->name);
    TS_TRY(ts_torch_part(torch, codes, &parts[0], error));
    if (count == 3)
        TS_TRY(set_per_tensor(quantizer, affine, scheme, sizeof scheme, error));
    else if (count == 4)
        TS_TRY(set_per_channel(torch, codes, quantizer, affine, parts, scheme, sizeof scheme, error));
    else
        return ts_fail(error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET,
                       "is quantized in a way this program does not know (%" PRIu64 " parameters)", count);
    TS_TRY(ts_torch_add(torch, codes->rank, &tensor, error));
    tensor->type = TS_CODED;
    tensor->source = codes->source;
    tensor->codec = count == 3 ? &per_tensor : &per_channel;
    tensor->codec_data = affine;
    tensor->parts = parts;
    tensor->part_count = count == 3 ? 1 : 3;
    if (codes->rank)
        memcpy(tensor->shape, codes->shape, codes->rank * sizeof *tensor->shape);
    status = ts_tensor_finish(tensor, error);
    if (status != TS_OK) {
        ts_bundle_drop_last(torch->bundle);
        return status;
    }
    snprintf(text, sizeof text, "%s %s", codes->dtype ? codes->dtype->name : "integers", scheme);
    TS_TRY(ts_bundle_attribute(torch->bundle, tensor, "scheme", text, error));
    return ts_torch_note_sharing(torch, storage, tensor, error);
}
