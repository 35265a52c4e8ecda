/* Owns the weights of GGUF models: each tensor under its name in transformers, seen in the layout it has there. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/gguf_model.h"

/* Parts of a weight that is put together: two for each head. */
#define MOST_HEADS 65536

struct naming {
    const struct ts_bundle *bundle;
    const struct ts_gguf_architecture *architecture;
    struct ts_model_weights *weights;
    struct ts_error *error;
    size_t heads, key_heads;
};

/* "blk.12.attn_q.weight" in parts. */
struct parts {
    bool layer;
    size_t number;
    char kind[64];
    const char *ending; /* "weight", "bias" */
};

static bool take_apart(const char *name, struct parts *parts)
{
    const char *dot = strrchr(name, '.'), *at = name;
    *parts = (struct parts){0};
    if (!dot)
        return false;
    if (ts_starts_with(name, "blk.")) {
        char *end;
        errno = 0;
        parts->number = strtoul(name + 4, &end, 10);
        if (errno || end == name + 4 || *end != '.' || name[4] < '0' || name[4] > '9')
            return false;
        parts->layer = true;
        at = end + 1;
    }
    if (dot <= at || (size_t)(dot - at) >= sizeof parts->kind)
        return false;
    memcpy(parts->kind, at, (size_t)(dot - at));
    parts->ending = dot + 1;
    return true;
}

static const struct ts_gguf_row *find_row(const struct ts_gguf_row *rows, const char *kind)
{
    for (; rows && rows->kind; rows++)
        if (strcmp(rows->kind, kind) == 0)
            return rows;
    return NULL;
}

static const struct ts_gguf_row *row_of(const struct naming *naming, const struct parts *parts)
{
    const struct ts_gguf_architecture *architecture = naming->architecture;
    const struct ts_gguf_row *row = find_row(parts->layer ? architecture->rows : architecture->model_rows, parts->kind);
    return row ? row : find_row(parts->layer ? ts_gguf_layer_rows : ts_gguf_model_rows, parts->kind);
}

static enum ts_status fail_shape(const struct naming *naming, const struct ts_tensor *tensor, const char *problem)
{
    return ts_fail(naming->error, TS_ERR_FORMAT, TS_NO_OFFSET, "%.128s %s", tensor->name, problem);
}

static enum ts_status add(const struct naming *naming, const char *name, const struct ts_view *view)
{
    const char *kept = ts_arena_string(&naming->weights->arena, name);
    if (!kept)
        return ts_fail_memory(naming->error);
    ts_model_weights_add(naming->weights, kept, view);
    return TS_OK;
}

/* Of each head llama.cpp has rows 0, 1, 2, 3 where transformers has 0, half, 1, half + 1: first the even ones of a
 * head, then the odd ones. */
static enum ts_status part_pairs(const struct naming *naming, const struct ts_tensor *tensor, size_t heads,
                                 struct ts_view *view)
{
    struct ts_arena *arena = &naming->weights->arena;
    struct ts_view *parts;
    uint64_t size;
    if (!view->rank || !view->count)
        return fail_shape(naming, tensor, "is empty");
    if (!heads || heads > MOST_HEADS || view->shape[0] % heads || view->shape[0] / heads % 2)
        return fail_shape(naming, tensor, "has a number of rows that its heads do not divide");
    size = view->shape[0] / heads;
    if (!(parts = ts_arena_array(arena, 2 * heads, sizeof *parts)))
        return ts_fail_memory(naming->error);
    for (size_t i = 0; i < 2 * heads; i++)
        if (!ts_view_slice(view, 0, i / 2 * size + i % 2, size / 2, 2, arena, &parts[i]))
            return ts_fail_memory(naming->error);
    return ts_view_join(TS_JOIN_CONCAT, 0, parts, 2 * heads, arena, view) ? TS_OK : ts_fail_memory(naming->error);
}

static enum ts_status turn(const struct naming *naming, struct ts_view *view)
{
    if (view->rank < 2)
        return TS_OK;
    return ts_view_transpose(view, &naming->weights->arena, view) ? TS_OK : ts_fail_memory(naming->error);
}

/* Entry i of the first axis. */
static enum ts_status entry(const struct naming *naming, const struct ts_view *view, uint64_t i, struct ts_view *out)
{
    struct ts_view slice;
    if (!ts_view_slice(view, 0, i, 1, 1, &naming->weights->arena, &slice) ||
        !ts_view_reshape(&slice, view->shape + 1, view->rank - 1, &naming->weights->arena, out))
        return ts_fail_memory(naming->error);
    return TS_OK;
}

static enum ts_status spread(const struct naming *naming, const struct ts_tensor *tensor, const char *name,
                             const struct ts_view *view)
{
    if (view->rank != 3 || view->shape[0] > 64)
        return fail_shape(naming, tensor, "is not a list of matrices");
    for (uint64_t i = 0; i < view->shape[0]; i++) {
        struct ts_view one;
        char full[256];
        TS_TRY(entry(naming, view, i, &one));
        snprintf(full, sizeof full, "%s.%" PRIu64 ".weight", name, i);
        TS_TRY(add(naming, full, &one));
    }
    return TS_OK;
}

/* DeepSeek's kv_b_proj [heads * (plain + value), rank] from what llama.cpp makes of it: keys [heads, rank, plain],
 * turned, and values [heads, value, rank]. */
static enum ts_status add_latent(const struct naming *naming, const struct ts_tensor *keys, size_t layer)
{
    struct ts_arena *arena = &naming->weights->arena;
    const struct ts_tensor *values;
    struct ts_view *parts, both[2], joined;
    char name[128];
    snprintf(name, sizeof name, "blk.%zu.attn_v_b.weight", layer);
    values = ts_bundle_tensor(naming->bundle, name);
    if (!values || keys->rank != 3 || values->rank != 3 || !keys->count || !values->count ||
        keys->shape[0] != values->shape[0] || keys->shape[1] != values->shape[2] || keys->shape[0] > MOST_HEADS)
        return fail_shape(naming, keys, "does not fit the values beside it (attn_v_b)");
    if (!ts_view_of(keys, arena, &both[0]) || !ts_view_of(values, arena, &both[1]) ||
        !(parts = ts_arena_array(arena, 2 * (size_t)keys->shape[0], sizeof *parts)))
        return ts_fail_memory(naming->error);
    TS_TRY(turn(naming, &both[0]));
    for (size_t i = 0; i < 2 * keys->shape[0]; i++)
        TS_TRY(entry(naming, &both[i % 2], i / 2, &parts[i]));
    if (!ts_view_join(TS_JOIN_CONCAT, 0, parts, 2 * (size_t)keys->shape[0], arena, &joined))
        return ts_fail_memory(naming->error);
    snprintf(name, sizeof name, "%s%zu.self_attn.kv_b_proj.weight", naming->architecture->layers, layer);
    return add(naming, name, &joined);
}

/* "ffn_gate.3": experts one by one, as the first Mixtral files have them. */
static bool single_expert(const struct parts *parts, char name[64])
{
    static const char *const kinds[][2] = {{"ffn_gate.", "w1"}, {"ffn_down.", "w2"}, {"ffn_up.", "w3"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (ts_starts_with(parts->kind, kinds[i][0])) {
            const char *number = parts->kind + strlen(kinds[i][0]);
            if (!*number || strspn(number, "0123456789") != strlen(number))
                return false;
            snprintf(name, 64, "block_sparse_moe.experts.%.20s.%s", number, kinds[i][1]);
            return true;
        }
    return false;
}

static enum ts_status add_tensor(const struct naming *naming, const struct ts_tensor *tensor)
{
    const struct ts_gguf_architecture *architecture = naming->architecture;
    const struct ts_gguf_row *row;
    struct ts_view view;
    struct parts parts;
    char name[256], expert[64];
    bool weight, bias, bare;
    size_t heads;
    if (!ts_view_of(tensor, &naming->weights->arena, &view))
        return ts_fail_memory(naming->error);
    if (ts_starts_with(tensor->name, "rope_f")) /* is in the settings */
        return TS_OK;
    if (!take_apart(tensor->name, &parts))
        return add(naming, tensor->name, &view);
    weight = strcmp(parts.ending, "weight") == 0;
    bias = strcmp(parts.ending, "bias") == 0;
    if (strcmp(parts.ending, "input_scale") == 0) /* of activations that are quantized; here they are not */
        return TS_OK;
    if (strcmp(parts.ending, "scale") == 0)
        return ts_fail(naming->error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET,
                       "%.128s is a scale of its own beside a weight, which cannot be run yet", tensor->name);
    if (parts.layer && weight && strcmp(architecture->name, "deepseek2") == 0) {
        if (strcmp(parts.kind, "attn_k_b") == 0)
            return add_latent(naming, tensor, parts.number);
        if (strcmp(parts.kind, "attn_v_b") == 0)
            return TS_OK;
    }
    if (parts.layer && architecture->pairs && weight && single_expert(&parts, expert)) {
        snprintf(name, sizeof name, "%s%zu.%s.weight", architecture->layers, parts.number, expert);
        return add(naming, name, &view);
    }
    row = row_of(naming, &parts);
    if (!row || (!weight && !bias))
        return add(naming, tensor->name, &view);
    if (row->how & TS_GGUF_SPREAD)
        return spread(naming, tensor, row->name, &view);
    bare = row->how & TS_GGUF_BARE;
    if (parts.layer)
        snprintf(name, sizeof name, "%s%zu.%s%s", architecture->layers, parts.number, row->name,
                 bare   ? bias ? "_bias" : ""
                 : bias ? ".bias"
                        : ".weight");
    else
        snprintf(name, sizeof name, "%s%s", row->name, bias ? ".bias" : ".weight");
    if (weight && row->how & TS_GGUF_TURNED)
        TS_TRY(turn(naming, &view));
    heads = strcmp(parts.kind, "attn_q") == 0   ? naming->heads
            : strcmp(parts.kind, "attn_k") == 0 ? naming->key_heads
                                                : 0;
    if (architecture->pairs && heads)
        TS_TRY(part_pairs(naming, tensor, heads, &view));
    if (architecture->shifted && ts_ends_with(name, "norm.weight"))
        view.add = -1;
    /* a gate of one row may be written as a vector */
    if (strcmp(parts.kind, "ffn_gate_inp_shexp") == 0 && view.rank == 1 &&
        !ts_view_reshape(&view, (uint64_t[]){1, view.shape[0]}, 2, &naming->weights->arena, &view))
        return ts_fail_memory(naming->error);
    return add(naming, name, &view);
}

enum ts_status ts_gguf_weights(const struct ts_bundle *bundle, const struct ts_gguf_architecture *architecture,
                               const struct ts_model_config *config, struct ts_model_weights *weights,
                               struct ts_error *error)
{
    struct naming naming = {.bundle = bundle, .architecture = architecture, .weights = weights, .error = error};
    double heads = ts_model_config_number(config, "num_attention_heads", 0),
           key_heads = ts_model_config_number(config, "num_key_value_heads", heads);
    /* what is spread becomes up to 64 of them, and there are two such tensors */
    TS_TRY(ts_model_weights_begin(weights, bundle->count + 128, error));
    naming.heads = heads >= 1 && heads <= MOST_HEADS ? (size_t)heads : MOST_HEADS + 1;
    naming.key_heads = key_heads >= 1 && key_heads <= MOST_HEADS ? (size_t)key_heads : MOST_HEADS + 1;
    for (size_t i = 0; i < bundle->count; i++)
        TS_TRY(add_tensor(&naming, bundle->tensors[i]));
    return TS_OK;
}
