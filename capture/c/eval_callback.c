/* An evaluation callback in the manner of ggml: the scheduler asks for each node whether it is wanted, and hands it
 * over when it is computed. The structs below stand in for ggml's, so that the example builds without it; with ggml,
 * include ggml.h and ggml-backend.h instead of them, and set the callback with ggml_backend_sched_set_eval_callback, or
 * as cb_eval in llama_context_params.
 *
 *     cc -O2 -I include capture/c/eval_callback.c -o eval_callback
 *     TSLEUTH_DUMP=trace.safetensors TSLEUTH_DUMP_FILTER='!*norm*' ./eval_callback && tsleuth trace.safetensors */
#define TSLEUTH_DUMP_IMPLEMENTATION
#include "tsleuth_dump.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum ggml_type {
    GGML_TYPE_F32 = 0,
    GGML_TYPE_F16 = 1,
    GGML_TYPE_I8 = 24,
    GGML_TYPE_I16 = 25,
    GGML_TYPE_I32 = 26,
    GGML_TYPE_I64 = 27,
    GGML_TYPE_F64 = 28,
    GGML_TYPE_BF16 = 30
};

struct ggml_tensor {
    enum ggml_type type;
    int64_t ne[4]; /* innermost axis first: the reverse of a shape */
    size_t nb[4];  /* strides in bytes */
    void *data;    /* on a device: fetch it with ggml_backend_tensor_get before it is dumped */
    char name[64];
};

static bool dump_type(enum ggml_type type, enum ts_dump_type *out, size_t *size)
{
    switch (type) {
    case GGML_TYPE_F32:
        *out = TS_DUMP_F32, *size = 4;
        return true;
    case GGML_TYPE_F16:
        *out = TS_DUMP_F16, *size = 2;
        return true;
    case GGML_TYPE_BF16:
        *out = TS_DUMP_BF16, *size = 2;
        return true;
    case GGML_TYPE_F64:
        *out = TS_DUMP_F64, *size = 8;
        return true;
    case GGML_TYPE_I8:
        *out = TS_DUMP_I8, *size = 1;
        return true;
    case GGML_TYPE_I16:
        *out = TS_DUMP_I16, *size = 2;
        return true;
    case GGML_TYPE_I32:
        *out = TS_DUMP_I32, *size = 4;
        return true;
    case GGML_TYPE_I64:
        *out = TS_DUMP_I64, *size = 8;
        return true;
    }
    return false; /* quantized blocks: weights, which are in the GGUF file anyway */
}

/* "q_proj-12" is of layer 12. */
static int64_t layer_of(const char *name)
{
    const char *dash = strrchr(name, '-');
    char *end;
    long layer = dash ? strtol(dash + 1, &end, 10) : -1;
    return dash && end > dash + 1 && !*end ? layer : -1;
}

static bool trace_node(struct ggml_tensor *node, bool ask, void *user_data)
{
    struct ts_dump_tensor tensor;
    enum ts_dump_type type;
    int64_t shape[4], strides[4];
    size_t size;
    int axes = 4;
    (void)user_data;
    if (ask)
        return ts_dump_wants(node->name) && dump_type(node->type, &type, &size);
    if (!dump_type(node->type, &type, &size))
        return true;
    while (axes > 1 && node->ne[axes - 1] == 1)
        axes--;
    for (int i = 0; i < axes; i++) {
        shape[i] = node->ne[axes - 1 - i];
        strides[i] = (int64_t)(node->nb[axes - 1 - i] / size);
    }
    tensor = ts_dump_describe(node->name, type, node->data, axes, shape);
    tensor.strides = strides;
    tensor.layer = layer_of(node->name);
    ts_dump(&tensor);
    return true; /* go on with the graph */
}

static struct ggml_tensor node_of(const char *name, float *data, int64_t inner, int64_t middle, int64_t outer)
{
    struct ggml_tensor node;
    memset(&node, 0, sizeof node);
    node.type = GGML_TYPE_F32;
    node.ne[0] = inner, node.ne[1] = middle, node.ne[2] = outer, node.ne[3] = 1;
    node.nb[0] = 4;
    for (int i = 1; i < 4; i++)
        node.nb[i] = node.nb[i - 1] * (size_t)node.ne[i - 1];
    node.data = data;
    snprintf(node.name, sizeof node.name, "%s", name);
    return node;
}

int main(void)
{
    static float embedding[5 * 8], query[5 * 8], scores[2 * 5 * 5];
    struct ggml_tensor graph[4];
    size_t nb;
    for (int i = 0; i < 5 * 8; i++) {
        embedding[i] = (float)i;
        query[i] = (float)i * 0.5f;
    }
    graph[0] = node_of("inp_embd", embedding, 8, 5, 1);
    graph[1] = node_of("q_proj-0", query, 8, 5, 1);
    graph[2] = node_of("q_proj_permuted-0", query, 4, 2, 5); /* heads of 4, then ggml_permute(0, 2, 1, 3) */
    nb = graph[2].nb[1];
    graph[2].ne[1] = 5, graph[2].ne[2] = 2;
    graph[2].nb[1] = graph[2].nb[2], graph[2].nb[2] = nb;
    graph[3] = node_of("kq-0", scores, 5, 5, 2);
    for (size_t i = 0; i < sizeof graph / sizeof *graph; i++)
        if (trace_node(&graph[i], true, NULL) && !trace_node(&graph[i], false, NULL))
            return 1;
    return 0;
}
