/* Owns the scales, zero points and group indices that belong to no weight. Weights without fitting scales are told by
 * the readers, which need them to make one tensor out of the parts; what they leave over is seen here. */
#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "base/text.h"
#include "check/check_internal.h"

struct ending {
    const char *suffix;
    bool certain; /* nothing but quantization has tensors of this name */
};

static const struct ending endings[] = {
    {".qzeros", true},
    {".g_idx", true},
    {".weight_scale_inv", true},
    {".weight_scale", true},
    {".weight_zero_point", true},
    {".scales", false},
    {"_scales", false},
    {".weight.absmax", true},
    {".biases", false},
};

/* What the weight itself may be called. */
static const char *const weights[] = {".weight", ".qweight", ".weight_packed", "_blocks", ""};

static bool has_weight(const struct ts_table *names, struct ts_buffer *wanted, const char *name, size_t stem)
{
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        ts_buffer_clear(wanted);
        if (!ts_buffer_append(wanted, name, stem) || !ts_buffer_string(wanted, weights[i]))
            return true;
        if (wanted->size && ts_table_get(names, wanted->data) != SIZE_MAX)
            return true;
    }
    return false;
}

static void tell_orphan(struct ts_checking *checking, const struct ts_table *names, struct ts_buffer *wanted,
                        const char *name, bool quantized)
{
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t length = strlen(name), size = strlen(endings[i].suffix);
        if (length <= size || !ts_ends_with(name, endings[i].suffix) || !(quantized || endings[i].certain))
            continue;
        if (!has_weight(names, wanted, name, length - size))
            ts_check_add(checking, "quantization", TS_FAULT, name,
                         "belongs to a quantized weight \"%.*s\" that is not there", (int)(length - size), name);
        return;
    }
}

void ts_check_quantized(struct ts_checking *checking)
{
    const struct ts_bundle *bundle = checking->bundle;
    struct ts_table names = {0};
    struct ts_buffer wanted;
    bool quantized = false;
    if (!ts_table_init(&names, bundle->count + 1)) {
        checking->failed = true;
        return;
    }
    ts_buffer_init(&wanted, (size_t)1 << 20);
    for (size_t i = 0; i < bundle->count; i++) {
        ts_table_put(&names, bundle->tensors[i]->name, i, NULL);
        quantized = quantized || bundle->tensors[i]->type == TS_CODED;
    }
    for (size_t i = 0; i < bundle->count; i++)
        if (bundle->tensors[i]->type != TS_CODED)
            tell_orphan(checking, &names, &wanted, bundle->tensors[i]->name, quantized);
    ts_buffer_release(&wanted);
    ts_table_release(&names);
}
