/* Owns ONNX models: a ModelProto, walked where it lies. Tensors come from the initializers of the graph, from Constant
 * nodes, and from the subgraphs and functions below, in that order for each graph; subgraphs prefix their names with
 * those of the node and attribute that hold them. A file that is one bare TensorProto (the .pb files of test data) is
 * read as one tensor. The numbers themselves are onnx_tensor.c's. */
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/table.h"
#include "base/text.h"
#include "read/onnx_meta.h"
#include "read/onnx_tensor.h"
#include "read/readers.h"

/* If inside Loop inside Scan is seen; more than a few levels are not. */
#define MAX_DEPTH  16
#define MAX_PREFIX 1024

struct graph {
    struct ts_onnx *onnx;
    struct ts_onnx_ops *ops;
    const char *prefix; /* "" or ends with '/' */
    unsigned depth;
};

static enum ts_status walk_graph(struct graph *graph, struct ts_wire wire, struct ts_error *error);

static struct ts_onnx_span span_of(const struct ts_wire_field *field)
{
    return (struct ts_onnx_span){field->offset, field->size};
}

static bool span_equals(const struct ts_onnx *onnx, struct ts_onnx_span span, const char *text)
{
    return span.size == strlen(text) && memcmp(onnx->input->source->data + span.offset, text, span.size) == 0;
}

/* One part failed: it is written down, and the others go on. Not without memory. */
static enum ts_status skip(struct ts_onnx *onnx, const char *name, const struct ts_error *why, struct ts_error *error)
{
    if (why->status != TS_ERR_MEMORY)
        return ts_bundle_skip_error(onnx->bundle, onnx->input->member, name, why, error);
    *error = *why;
    return why->status;
}

/* prefix + name (+ suffix) in the arena. */
static enum ts_status full_name(const struct graph *graph, struct ts_onnx_span span, const char *suffix,
                                const char **name, struct ts_error *error)
{
    const char *text;
    TS_TRY(ts_onnx_text(graph->onnx, span, &text, error));
    if (*graph->prefix || *suffix)
        text = ts_arena_printf(&graph->onnx->bundle->arena, "%s%s%s", graph->prefix, text, suffix);
    *name = text;
    return text ? TS_OK : ts_fail_memory(error);
}

/* A tensor called by its own name, or by `outer` where it is the value of a node. */
static enum ts_status add_tensor(const struct graph *graph, struct ts_wire wire, const struct ts_onnx_span *outer,
                                 const char *suffix, struct ts_error *error)
{
    struct ts_onnx_tensor parsed;
    const char *name;
    TS_TRY(ts_onnx_tensor_parse(&wire, &parsed, error));
    TS_TRY(full_name(graph, outer ? *outer : parsed.name, suffix, &name, error));
    if (ts_onnx_tensor_add(graph->onnx, &parsed, name, error) != TS_OK)
        return ts_error_tensor(error, name);
    return TS_OK;
}

/* SparseTensorProto: values 1, indices 2, dims 3. Shown by its parts; both carry the shape of the whole. */
static enum ts_status add_sparse(const struct graph *graph, struct ts_wire wire, const struct ts_onnx_span *outer,
                                 struct ts_error *error)
{
    struct ts_bundle *bundle = graph->onnx->bundle;
    struct ts_wire walk = wire;
    struct ts_wire_field field, values = {.number = 0}, indices = {.number = 0};
    char shape[256];
    TS_TRY(ts_onnx_dims_text(wire, 3, shape, sizeof shape, error));
    do {
        TS_TRY(ts_wire_next(&walk, &field, error));
        if (TS_WIRE_KEY_OF(field) == TS_WIRE_KEY(1, TS_WIRE_BYTES))
            values = field;
        else if (TS_WIRE_KEY_OF(field) == TS_WIRE_KEY(2, TS_WIRE_BYTES))
            indices = field;
    } while (field.number);
    if (!values.number || !indices.number)
        return ts_fail(error, TS_ERR_FORMAT, wire.at, "sparse tensor without its %s",
                       values.number ? "indices" : "values");
    struct ts_onnx_tensor parsed;
    struct ts_wire inside = ts_wire_inside(&wire, &values);
    TS_TRY(ts_onnx_tensor_parse(&inside, &parsed, error));
    struct ts_onnx_span name = outer ? *outer : parsed.name;
    TS_TRY(add_tensor(graph, inside, &name, ".values", error));
    TS_TRY(ts_bundle_attribute(bundle, bundle->tensors[bundle->count - 1], "sparse shape", shape, error));
    TS_TRY(add_tensor(graph, ts_wire_inside(&wire, &indices), &name, ".indices", error));
    return ts_bundle_attribute(bundle, bundle->tensors[bundle->count - 1], "sparse shape", shape, error);
}

struct node {
    struct ts_onnx_span name, op, domain, output;
    bool is_constant;
};

/* What a node is called: its name, which is optional, else its first output. */
static struct ts_onnx_span node_label(const struct node *node)
{
    return node->name.size ? node->name : node->output.size ? node->output : node->op;
}

static enum ts_status walk_subgraph(const struct graph *graph, struct ts_onnx_span label, struct ts_onnx_span attribute,
                                    struct ts_wire wire, struct ts_error *error)
{
    struct graph below = {.onnx = graph->onnx, .ops = graph->ops, .depth = graph->depth + 1};
    const char *node, *which;
    if (below.depth > MAX_DEPTH)
        return ts_fail(error, TS_ERR_LIMIT, wire.at, "graphs nested more than %d deep", MAX_DEPTH);
    TS_TRY(ts_onnx_text(graph->onnx, label, &node, error));
    TS_TRY(ts_onnx_text(graph->onnx, attribute, &which, error));
    below.prefix = ts_arena_printf(&graph->onnx->bundle->arena, "%s%s/%s/", graph->prefix, node, which);
    if (!below.prefix)
        return ts_fail_memory(error);
    if (strlen(below.prefix) > MAX_PREFIX)
        return ts_fail(error, TS_ERR_LIMIT, wire.at, "the names of nested graphs take more than %d bytes", MAX_PREFIX);
    return walk_graph(&below, wire, error);
}

/* The value of a Constant node, which has exactly one attribute. */
static enum ts_status add_constant(const struct graph *graph, const struct node *node, const struct ts_wire *attribute,
                                   const struct ts_wire_field *field, struct ts_error *error)
{
    const struct ts_onnx_span *label = node->output.size ? &node->output : &node->name;
    struct ts_wire inside = ts_wire_inside(attribute, field);
    const char *name;
    switch (TS_WIRE_KEY_OF(*field)) {
    case TS_WIRE_KEY(5, TS_WIRE_BYTES):
        return add_tensor(graph, inside, label, "", error);
    case TS_WIRE_KEY(22, TS_WIRE_BYTES):
        return add_sparse(graph, inside, label, error);
    default:
        break;
    }
    bool floats = field->number == 2 || field->number == 7;
    bool scalar = field->number == 2 || field->number == 3;
    TS_TRY(full_name(graph, *label, "", &name, error));
    return ts_onnx_numbers_add(graph->onnx, attribute, field->number, floats ? TS_F32 : TS_I64, scalar, name, error);
}

/* AttributeProto: name 1, f 2, i 3, s 4, t 5, g 6, floats 7, ints 8, strings 9, tensors 10, graphs 11, type 20,
 * sparse_tensor 22. Tensors of other nodes are weights of custom operators; ConstantOfShape has its fill value there,
 * which is no tensor of the model. */
static enum ts_status walk_attribute(const struct graph *graph, const struct node *node, struct ts_wire wire,
                                     struct ts_error *error)
{
    struct ts_wire walk = wire;
    struct ts_wire_field field;
    struct ts_onnx_span name = {0, 0};
    bool numbers_done = false, reads_tensors = !span_equals(graph->onnx, node->op, "ConstantOfShape");
    do {
        TS_TRY(ts_wire_next(&walk, &field, error));
        if (TS_WIRE_KEY_OF(field) == TS_WIRE_KEY(1, TS_WIRE_BYTES))
            name = span_of(&field);
    } while (field.number);
    bool is_value =
        node->is_constant && name.size >= 5 && memcmp(graph->onnx->input->source->data + name.offset, "value", 5) == 0;
    bool is_sparse = node->is_constant && span_equals(graph->onnx, name, "sparse_value");
    walk = wire;
    do {
        TS_TRY(ts_wire_next(&walk, &field, error));
        switch (TS_WIRE_KEY_OF(field)) {
        case TS_WIRE_KEY(6, TS_WIRE_BYTES):
        case TS_WIRE_KEY(11, TS_WIRE_BYTES):
            TS_TRY(walk_subgraph(graph, node_label(node), name, ts_wire_inside(&wire, &field), error));
            break;
        case TS_WIRE_KEY(2, TS_WIRE_FIXED32):
        case TS_WIRE_KEY(3, TS_WIRE_VARINT):
        case TS_WIRE_KEY(7, TS_WIRE_BYTES):
        case TS_WIRE_KEY(7, TS_WIRE_FIXED32):
        case TS_WIRE_KEY(8, TS_WIRE_BYTES):
        case TS_WIRE_KEY(8, TS_WIRE_VARINT):
            if (is_value && !numbers_done) /* all pieces of a repeated field at once */
                TS_TRY(add_constant(graph, node, &wire, &field, error));
            numbers_done = true;
            break;
        case TS_WIRE_KEY(5, TS_WIRE_BYTES):
        case TS_WIRE_KEY(10, TS_WIRE_BYTES):
            if (is_value && field.number == 5) {
                TS_TRY(add_constant(graph, node, &wire, &field, error));
            } else if (reads_tensors) {
                const char *text;
                struct ts_onnx_span label = node_label(node);
                TS_TRY(ts_onnx_text(graph->onnx, name, &text, error));
                text = ts_arena_printf(&graph->onnx->bundle->arena, ".%s", text);
                if (!text)
                    return ts_fail_memory(error);
                TS_TRY(add_tensor(graph, ts_wire_inside(&wire, &field), &label, text, error));
            }
            break;
        case TS_WIRE_KEY(22, TS_WIRE_BYTES):
            if (is_sparse)
                TS_TRY(add_constant(graph, node, &wire, &field, error));
            break;
        case TS_WIRE_KEY(4, TS_WIRE_BYTES):
        case TS_WIRE_KEY(9, TS_WIRE_BYTES):
            if (is_value && field.number == 4)
                return ts_fail(error, TS_ERR_UNSUPPORTED, field.start, "a constant string, not numbers");
            break;
        default:
            break;
        }
    } while (field.number);
    return TS_OK;
}

/* NodeProto: input 1, output 2, name 3, op_type 4, attribute 5, domain 7. */
static enum ts_status walk_node(const struct graph *graph, struct ts_wire wire, struct ts_error *error)
{
    struct ts_wire walk = wire;
    struct ts_wire_field field;
    struct node node = {.is_constant = false};
    bool has_attribute = false;
    do {
        TS_TRY(ts_wire_next(&walk, &field, error));
        switch (TS_WIRE_KEY_OF(field)) {
        case TS_WIRE_KEY(2, TS_WIRE_BYTES):
            if (!node.output.size)
                node.output = span_of(&field);
            break;
        case TS_WIRE_KEY(3, TS_WIRE_BYTES):
            node.name = span_of(&field);
            break;
        case TS_WIRE_KEY(4, TS_WIRE_BYTES):
            node.op = span_of(&field);
            break;
        case TS_WIRE_KEY(5, TS_WIRE_BYTES):
            has_attribute = true;
            break;
        case TS_WIRE_KEY(7, TS_WIRE_BYTES):
            node.domain = span_of(&field);
            break;
        default:
            break;
        }
    } while (field.number);
    ts_onnx_ops_count(graph->ops, (const char *)wire.source->data + node.op.offset, node.op.size);
    node.is_constant = span_equals(graph->onnx, node.op, "Constant") &&
                       (node.domain.size == 0 || span_equals(graph->onnx, node.domain, "ai.onnx"));
    walk = wire;
    while (has_attribute) {
        TS_TRY(ts_wire_next(&walk, &field, error));
        has_attribute = field.number != 0;
        if (TS_WIRE_KEY_OF(field) != TS_WIRE_KEY(5, TS_WIRE_BYTES))
            continue;
        struct ts_error why;
        ts_error_clear(&why);
        if (walk_attribute(graph, &node, ts_wire_inside(&wire, &field), &why) != TS_OK) {
            const char *label;
            struct ts_error bad;
            if (full_name(graph, node_label(&node), "", &label, &bad) != TS_OK)
                label = "a node";
            TS_TRY(skip(graph->onnx, why.tensor[0] ? why.tensor : label, &why, error));
        }
    }
    return TS_OK;
}

/* Nodes of a graph (field 1) or of a function (field 7). */
static enum ts_status walk_nodes(const struct graph *graph, struct ts_wire wire, uint32_t number,
                                 struct ts_error *error)
{
    struct ts_wire_field field;
    do {
        TS_TRY(ts_wire_next(&wire, &field, error));
        if (field.number != number || field.type != TS_WIRE_BYTES)
            continue;
        struct ts_error why;
        ts_error_clear(&why);
        if (walk_node(graph, ts_wire_inside(&wire, &field), &why) != TS_OK)
            TS_TRY(skip(graph->onnx, "a node", &why, error));
    } while (field.number);
    return TS_OK;
}

/* GraphProto: node 1, name 2, initializer 5, input 11, output 12, sparse_initializer 15. */
static enum ts_status walk_graph(struct graph *graph, struct ts_wire wire, struct ts_error *error)
{
    struct ts_wire walk = wire;
    struct ts_wire_field field;
    do {
        TS_TRY(ts_wire_next(&walk, &field, error));
        struct ts_error why;
        enum ts_status status = TS_OK;
        ts_error_clear(&why);
        if (TS_WIRE_KEY_OF(field) == TS_WIRE_KEY(5, TS_WIRE_BYTES))
            status = add_tensor(graph, ts_wire_inside(&walk, &field), NULL, "", &why);
        else if (TS_WIRE_KEY_OF(field) == TS_WIRE_KEY(15, TS_WIRE_BYTES))
            status = add_sparse(graph, ts_wire_inside(&walk, &field), NULL, &why);
        if (status != TS_OK)
            TS_TRY(skip(graph->onnx, why.tensor[0] ? why.tensor : "an initializer", &why, error));
    } while (field.number);
    return walk_nodes(graph, wire, 1, error);
}

/* FunctionProto: name 1, node 7. */
static enum ts_status walk_function(struct ts_onnx *onnx, struct ts_onnx_ops *ops, struct ts_wire wire,
                                    struct ts_error *error)
{
    struct graph graph = {.onnx = onnx, .ops = ops, .prefix = "", .depth = 1};
    struct ts_wire walk = wire;
    struct ts_wire_field field;
    do {
        TS_TRY(ts_wire_next(&walk, &field, error));
        if (TS_WIRE_KEY_OF(field) != TS_WIRE_KEY(1, TS_WIRE_BYTES))
            continue;
        TS_TRY(full_name(&graph, span_of(&field), "/", &graph.prefix, error));
        if (strlen(graph.prefix) > MAX_PREFIX)
            return ts_fail(error, TS_ERR_LIMIT, wire.at, "a function's name takes more than %d bytes", MAX_PREFIX);
    } while (field.number);
    return walk_nodes(&graph, wire, 7, error);
}

/* TrainingInfoProto: initialization 1, algorithm 2; both graphs. */
static enum ts_status walk_training(struct ts_onnx *onnx, struct ts_onnx_ops *ops, struct ts_wire wire,
                                    struct ts_error *error)
{
    struct ts_wire_field field;
    do {
        TS_TRY(ts_wire_next(&wire, &field, error));
        if (field.type != TS_WIRE_BYTES || (field.number != 1 && field.number != 2))
            continue;
        struct graph graph = {.onnx = onnx,
                              .ops = ops,
                              .prefix = field.number == 1 ? "training/initialization/" : "training/algorithm/",
                              .depth = 1};
        TS_TRY(walk_graph(&graph, ts_wire_inside(&wire, &field), error));
    } while (field.number);
    return TS_OK;
}

/* Two tensors of one name would pair with each other: the later ones become "name#2", "name#3". */
static enum ts_status rename_duplicates(struct ts_bundle *bundle, size_t start, struct ts_error *error)
{
    size_t count = bundle->count - start, first, renamed = 0;
    struct ts_table table;
    unsigned *seen = calloc(count + 1, sizeof *seen);
    enum ts_status status = TS_OK;
    if (!seen || !ts_table_init(&table, count + 1)) {
        free(seen);
        return ts_fail_memory(error);
    }
    for (size_t i = 0; i < count && status == TS_OK; i++) {
        struct ts_tensor *tensor = bundle->tensors[start + i];
        const char *name = tensor->name;
        for (int tries = 0; tries < 4 && tensor->name && !ts_table_put(&table, tensor->name, i, &first); tries++)
            tensor->name = ts_arena_printf(&bundle->arena, "%s#%u", name, ++seen[first] + 1);
        if (!tensor->name) {
            tensor->name = name;
            status = ts_fail_memory(error);
        } else if (tensor->name != name && renamed++ < 10) {
            status = ts_bundle_find(bundle, tensor->name, error, "another tensor is called \"%s\" already", name);
        }
    }
    ts_table_release(&table);
    free(seen);
    return status;
}

/* ModelProto: graph 7, training_info 20, functions 25. The rest is metadata. */
static enum ts_status read_model(struct ts_onnx *onnx, struct ts_onnx_ops *ops, struct ts_error *error)
{
    struct ts_wire wire = ts_wire_all(onnx->input->source);
    struct ts_wire_field field;
    TS_TRY(ts_onnx_describe_model(onnx, error));
    do {
        TS_TRY(ts_wire_next(&wire, &field, error));
        struct ts_wire inside = ts_wire_inside(&wire, &field);
        if (TS_WIRE_KEY_OF(field) == TS_WIRE_KEY(7, TS_WIRE_BYTES)) {
            struct graph graph = {.onnx = onnx, .ops = ops, .prefix = "", .depth = 0};
            TS_TRY(walk_graph(&graph, inside, error));
        } else if (TS_WIRE_KEY_OF(field) == TS_WIRE_KEY(20, TS_WIRE_BYTES)) {
            TS_TRY(walk_training(onnx, ops, inside, error));
        } else if (TS_WIRE_KEY_OF(field) == TS_WIRE_KEY(25, TS_WIRE_BYTES)) {
            TS_TRY(walk_function(onnx, ops, inside, error));
        }
    } while (field.number);
    return ts_onnx_describe_ops(onnx, ops, error);
}

/* What a file without a magic can be known by: every field of the message is one of the schema's, with its wire type,
 * up to the last byte. A bit per wire type that a field number may have. */
enum { V = 1 << TS_WIRE_VARINT, B = 1 << TS_WIRE_BYTES, F4 = 1 << TS_WIRE_FIXED32, F8 = 1 << TS_WIRE_FIXED64 };

static const uint8_t model_fields[27] = {
    [1] = V, [2] = B, [3] = B, [4] = B, [5] = V, [6] = B, [7] = B, [8] = B, [14] = B, [20] = B, [25] = B, [26] = B};
static const uint8_t graph_fields[17] = {
    [1] = B, [2] = B, [5] = B, [10] = B, [11] = B, [12] = B, [13] = B, [14] = B, [15] = B, [16] = B};
static const uint8_t tensor_fields[17] = {
    [1] = V | B, [2] = V,       [3] = B,      [4] = B | F4, [5] = V | B, [6] = B,  [7] = V | B, [8] = B,
    [9] = B,     [10] = B | F8, [11] = V | B, [12] = B,     [13] = B,    [14] = V, [16] = B};

/* Numbers just past the last one may be fields of a later version. */
static bool known(const uint8_t *fields, size_t count, const struct ts_wire_field *field)
{
    if (field->number >= count)
        return field->number < count + 8 && ((V | B) >> field->type & 1);
    return fields[field->number] >> field->type & 1;
}

/* Its first fields: enough to tell a graph from text, cheap however long it is. A field that runs past the end of the
 * file is one of a file that was cut. */
static bool is_graph(struct ts_wire wire)
{
    struct ts_wire_field field;
    struct ts_error ignored;
    for (int i = 0; i < 16; i++) {
        struct ts_wire before = wire;
        if (ts_wire_next(&wire, &field, &ignored) != TS_OK) {
            uint64_t tag;
            if (wire.end != wire.source->size || ts_wire_varint(&before, &tag, &ignored) != TS_OK || tag >> 3 > 100)
                return false;
            field.number = (uint32_t)(tag >> 3);
            field.type = tag & 7;
            return known(graph_fields, sizeof graph_fields, &field);
        }
        if (!field.number)
            return i > 0;
        if (!known(graph_fields, sizeof graph_fields, &field))
            return false;
    }
    return true;
}

/* A graph that says it is longer than the file: a download that was cut, which this reader can name. */
static bool is_cut_graph(struct ts_wire wire)
{
    struct ts_error ignored;
    uint64_t tag, size;
    if (ts_wire_varint(&wire, &tag, &ignored) != TS_OK || tag != TS_WIRE_KEY(7, TS_WIRE_BYTES) ||
        ts_wire_varint(&wire, &size, &ignored) != TS_OK)
        return false;
    return is_graph(wire);
}

static unsigned model_bid(const struct ts_source *source)
{
    struct ts_wire wire = ts_wire_all(source);
    struct ts_wire_field field;
    struct ts_error ignored;
    bool has_version = false, has_graph = false;
    for (;;) {
        struct ts_wire before = wire;
        if (ts_wire_next(&wire, &field, &ignored) != TS_OK)
            return has_version && is_cut_graph(before) ? 24 : 0;
        if (!field.number)
            return has_version && has_graph ? 40 : 0;
        if (!known(model_fields, sizeof model_fields, &field))
            return 0;
        if (field.number == 1) {
            if (field.value < 1 || field.value > 50) /* 14 in 2026, about one a year */
                return 0;
            has_version = true;
        } else if (field.number == 7) {
            if (!is_graph(ts_wire_inside(&wire, &field)))
                return 0;
            has_graph = true;
        }
    }
}

static unsigned tensor_bid(const struct ts_source *source)
{
    struct ts_wire all = ts_wire_all(source), wire = all;
    struct ts_wire_field field;
    struct ts_error ignored;
    struct ts_onnx_tensor parsed;
    do {
        if (ts_wire_next(&wire, &field, &ignored) != TS_OK)
            return 0;
        if (field.number && !known(tensor_fields, sizeof tensor_fields, &field))
            return 0;
    } while (field.number);
    return ts_onnx_tensor_parse(&all, &parsed, &ignored) == TS_OK && ts_onnx_tensor_is_whole(&parsed) ? 20 : 0;
}

static unsigned onnx_bid(const struct ts_input *input)
{
    unsigned bid = model_bid(input->source);
    return bid ? bid : tensor_bid(input->source);
}

static enum ts_status onnx_read(struct ts_input *input, struct ts_bundle *bundle, struct ts_error *error)
{
    struct ts_onnx onnx = {.input = input, .bundle = bundle};
    size_t start = bundle->count;
    TS_TRY(ts_bundle_keep(bundle, input->source, error));
    enum ts_status status;
    if (!model_bid(input->source) && tensor_bid(input->source)) {
        struct graph graph = {.onnx = &onnx, .prefix = ""};
        status = add_tensor(&graph, ts_wire_all(input->source), NULL, "", error);
    } else {
        struct ts_onnx_ops *ops = calloc(1, sizeof *ops);
        status = ops ? read_model(&onnx, ops, error) : ts_fail_memory(error);
        free(ops);
    }
    if (status == TS_OK)
        status = rename_duplicates(bundle, start, error);
    ts_onnx_release(&onnx);
    return status;
}

const struct ts_reader ts_reader_onnx = {
    .name = "onnx",
    .summary = "ONNX model, with external data, or one ONNX tensor (.pb)",
    .gathers = true,
    .bid = onnx_bid,
    .read = onnx_read,
};
