#include "read/corners.h"

#include <inttypes.h>
#include <string.h>

/* "corners of [1,9,2048]: 3+3 of 9 on axis 1, 3+3 of 2048 on axis 2": so many from the front and from the back */
static enum ts_status describe(struct ts_bundle *bundle, struct ts_tensor *tensor, struct ts_error *error)
{
    struct ts_buffer text;
    enum ts_status status;
    const char *comma = "";
    ts_buffer_init(&text, 8192);
    ts_buffer_string(&text, "corners of [");
    for (unsigned i = 0; i < tensor->rank; i++)
        ts_buffer_printf(&text, "%s%" PRIu64, i ? "," : "", tensor->whole_shape[i]);
    ts_buffer_string(&text, "]: ");
    for (unsigned i = 0; i < tensor->rank; i++) {
        const uint64_t head = tensor->whole_head[i], tail = tensor->shape[i] - head;
        if (tensor->shape[i] == tensor->whole_shape[i])
            continue;
        ts_buffer_printf(&text, "%s%" PRIu64 "+%" PRIu64, comma, head, tail);
        ts_buffer_printf(&text, " of %" PRIu64 " on axis %u", tensor->whole_shape[i], i);
        comma = ", ";
    }
    status = text.failed ? ts_fail_memory(error) : ts_bundle_attribute(bundle, tensor, "sample", text.data, error);
    ts_buffer_release(&text);
    return status;
}

enum ts_status ts_corners_set(struct ts_bundle *bundle, struct ts_tensor *tensor, const uint64_t *whole, unsigned rank,
                              const uint64_t *heads, bool *partial, struct ts_error *error)
{
    uint64_t *shape, *head;
    *partial = false;
    if (rank != tensor->rank || rank == 0)
        return TS_OK;
    for (unsigned i = 0; i < rank; i++) {
        const uint64_t here = tensor->shape[i];
        if (here > whole[i] || (here < whole[i] && (heads ? heads[i] > here : here % 2 != 0))) {
            *partial = false;
            return TS_OK;
        }
        *partial |= here < whole[i];
    }
    if (!*partial)
        return TS_OK;
    shape = ts_arena_array(&bundle->arena, rank, sizeof *shape);
    head = ts_arena_array(&bundle->arena, rank, sizeof *head);
    if (!shape || !head)
        return ts_fail_memory(error);
    memcpy(shape, whole, rank * sizeof *shape);
    for (unsigned i = 0; i < rank; i++)
        head[i] = tensor->shape[i] == whole[i] ? whole[i] : heads ? heads[i] : tensor->shape[i] / 2;
    tensor->whole_shape = shape;
    tensor->whole_head = head;
    tensor->sampled = true;
    return describe(bundle, tensor, error);
}
