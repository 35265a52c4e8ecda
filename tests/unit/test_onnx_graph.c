/* ONNX graphs: constant nodes, subgraphs, functions, names, metadata, and how a model is told from other files. */
#include "onnx_message.h"

static struct message node_of(const char *op, const char *name, const char *output)
{
    struct message node = {.size = 0};
    text(&node, 2, output);
    if (*name)
        text(&node, 3, name);
    text(&node, 4, op);
    return node;
}

static struct message attribute_of(const char *name)
{
    struct message attribute = {.size = 0};
    text(&attribute, 1, name);
    return attribute;
}

static void test_constants(void **state)
{
    (void)state;
    struct message graph = {.size = 0};
    struct message node = node_of("Constant", "n0", "float"), attribute = attribute_of("value_float");
    fixed32(&attribute, 2, 2.5f);
    inside(&node, 5, &attribute);
    inside(&graph, 1, &node);

    node = node_of("Constant", "n1", "floats");
    attribute = attribute_of("value_floats");
    fixed32(&attribute, 7, 1);
    fixed32(&attribute, 7, 2);
    inside(&node, 5, &attribute);
    inside(&graph, 1, &node);

    node = node_of("Constant", "n2", "int");
    attribute = attribute_of("value_int");
    varint(&attribute, 3, (uint64_t)-3);
    inside(&node, 5, &attribute);
    inside(&graph, 1, &node);

    node = node_of("Constant", "n3", "ints");
    attribute = attribute_of("value_ints");
    pack_varints(&attribute, 8, (const int64_t[]){4, -5, 6}, 3);
    inside(&node, 5, &attribute);
    inside(&graph, 1, &node);

    node = node_of("Constant", "n4", "tensor");
    attribute = attribute_of("value");
    struct message tensor = tensor_of("inner", 3, 2);
    bytes(&tensor, 9, "\7\x8", 2);
    inside(&attribute, 5, &tensor);
    inside(&node, 5, &attribute);
    inside(&graph, 1, &node);

    node = node_of("Constant", "n5", "string");
    attribute = attribute_of("value_string");
    text(&attribute, 4, "hello");
    inside(&node, 5, &attribute);
    inside(&graph, 1, &node);

    node = node_of("Constant", "n6", "sparse");
    attribute = attribute_of("sparse_value");
    struct message sparse = {.size = 0};
    tensor = tensor_of("v", 1, 1);
    bytes(&tensor, 9, "\0\0\x80\x3f", 4);
    inside(&sparse, 1, &tensor);
    tensor = tensor_of("", 7, 1);
    varint(&tensor, 7, 11);
    inside(&sparse, 2, &tensor);
    varint(&sparse, 3, 3);
    varint(&sparse, 3, 4);
    inside(&attribute, 22, &sparse);
    inside(&node, 5, &attribute);
    inside(&graph, 1, &node);

    node = node_of("Clip", "clip", "y"); /* numbers of other nodes are no tensors */
    attribute = attribute_of("value_max");
    fixed32(&attribute, 2, 6);
    inside(&node, 5, &attribute);
    inside(&graph, 1, &node);

    tensor = tensor_of("last", 3, 1); /* initializers come first all the same */
    bytes(&tensor, 9, "\x9", 1);
    inside(&graph, 5, &tensor);

    struct opened opened = open_graph(&graph);
    assert_int_equal(opened.bundle->count, 8);
    check(&opened, 0, "last", TS_I8, VALUES(9));
    check(&opened, 1, "float", TS_F32, VALUES(2.5));
    assert_int_equal(opened.bundle->tensors[1]->rank, 0);
    check(&opened, 2, "floats", TS_F32, VALUES(1, 2));
    assert_int_equal(opened.bundle->tensors[2]->rank, 1);
    check(&opened, 3, "int", TS_I64, VALUES(-3));
    check(&opened, 4, "ints", TS_I64, VALUES(4, -5, 6));
    check(&opened, 5, "tensor", TS_I8, VALUES(7, 8));
    check(&opened, 6, "sparse.values", TS_F32, VALUES(1));
    check(&opened, 7, "sparse.indices", TS_I64, VALUES(11));
    assert_string_equal(ts_tensor_attribute(opened.bundle->tensors[6], "sparse shape"), "[3,4]");
    assert_int_equal(opened.bundle->skip_count, 1);
    assert_string_equal(opened.bundle->skips[0].path, "m.onnx:n5");
    assert_string_equal(ts_bundle_meta_value(opened.bundle, "operators"), "Constant 7, Clip 1");
    finish(&opened);
}

static struct message graph_with(const char *name, uint8_t value)
{
    struct message graph = {.size = 0}, tensor = tensor_of(name, 2, 1);
    bytes(&tensor, 9, &value, 1);
    inside(&graph, 5, &tensor);
    return graph;
}

static void test_subgraphs_and_functions(void **state)
{
    (void)state;
    struct message graph = graph_with("w", 1), node = node_of("If", "if_1", "y");
    struct message then_branch = graph_with("w", 2), else_branch = graph_with("w", 3);
    struct message attribute = attribute_of("then_branch");
    inside(&attribute, 6, &then_branch);
    inside(&node, 5, &attribute);
    attribute = attribute_of("else_branch");
    inside(&attribute, 6, &else_branch);
    inside(&node, 5, &attribute);
    inside(&graph, 1, &node);
    struct message model = model_of(&graph), function = {.size = 0};
    text(&function, 1, "gelu");
    node = node_of("Constant", "", "c");
    attribute = attribute_of("value_int");
    varint(&attribute, 3, 4);
    inside(&node, 5, &attribute);
    inside(&function, 7, &node);
    inside(&model, 25, &function);
    struct opened opened = open_bytes(model.data, model.size);
    assert_int_equal(opened.bundle->count, 4);
    check(&opened, 0, "w", TS_U8, VALUES(1));
    check(&opened, 1, "if_1/then_branch/w", TS_U8, VALUES(2));
    check(&opened, 2, "if_1/else_branch/w", TS_U8, VALUES(3));
    check(&opened, 3, "gelu/c", TS_I64, VALUES(4));
    finish(&opened);
}

static void test_sparse_initializer(void **state)
{
    (void)state;
    struct message graph = {.size = 0}, sparse = {.size = 0}, tensor = tensor_of("s", 2, 2);
    bytes(&tensor, 9, "\1\2", 2);
    inside(&sparse, 1, &tensor);
    tensor = tensor_of("", 7, 2);
    pack_varints(&tensor, 7, (const int64_t[]){3, 9}, 2);
    inside(&sparse, 2, &tensor);
    pack_varints(&sparse, 3, (const int64_t[]){5, 2}, 2);
    inside(&graph, 15, &sparse);
    struct opened opened = open_graph(&graph);
    assert_int_equal(opened.bundle->count, 2);
    check(&opened, 0, "s.values", TS_U8, VALUES(1, 2));
    check(&opened, 1, "s.indices", TS_I64, VALUES(3, 9));
    assert_string_equal(ts_tensor_attribute(opened.bundle->tensors[1], "sparse shape"), "[5,2]");
    finish(&opened);
}

static void test_tensors_of_other_nodes(void **state)
{
    (void)state;
    struct message graph = {.size = 0}, tensor = tensor_of("", 2, 1);
    bytes(&tensor, 9, "\6", 1);
    struct message node = node_of("FusedThing", "fused", "y"), attribute = attribute_of("packed_weight");
    inside(&attribute, 5, &tensor);
    inside(&node, 5, &attribute);
    text(&node, 7, "com.example");
    inside(&graph, 1, &node);
    node = node_of("ConstantOfShape", "fill", "z"); /* its value is no tensor of the model */
    attribute = attribute_of("value");
    inside(&attribute, 5, &tensor);
    inside(&node, 5, &attribute);
    inside(&graph, 1, &node);
    struct opened opened = open_graph(&graph);
    assert_int_equal(opened.bundle->count, 1);
    check(&opened, 0, "fused.packed_weight", TS_U8, VALUES(6));
    assert_int_equal(opened.bundle->skip_count, 0);
    finish(&opened);
}

static void test_training_graphs(void **state)
{
    (void)state;
    struct message graph = graph_with("w", 1), model = model_of(&graph), training = {.size = 0};
    struct message algorithm = graph_with("w", 2);
    inside(&training, 2, &algorithm);
    inside(&model, 20, &training);
    struct opened opened = open_bytes(model.data, model.size);
    assert_int_equal(opened.bundle->count, 2);
    check(&opened, 1, "training/algorithm/w", TS_U8, VALUES(2));
    finish(&opened);
}

static void test_nesting_is_bounded(void **state)
{
    (void)state;
    struct message graph = graph_with("deep", 1);
    for (int i = 0; i < 40; i++) {
        struct message node = node_of("If", "n", "y"), attribute = attribute_of("b");
        inside(&attribute, 6, &graph);
        inside(&node, 5, &attribute);
        graph = (struct message){.size = 0};
        inside(&graph, 1, &node);
    }
    struct opened opened = open_graph(&graph);
    assert_int_equal(opened.status, TS_OK);
    assert_int_equal(opened.bundle->count, 0);
    assert_int_equal(opened.bundle->skip_count, 1);
    assert_non_null(strstr(opened.bundle->skips[0].reason, "nested more than 16 deep"));
    finish(&opened);
}

static void test_duplicate_names(void **state)
{
    (void)state;
    struct message graph = {.size = 0};
    for (uint8_t i = 0; i < 3; i++) {
        struct message tensor = tensor_of("w", 2, 1);
        bytes(&tensor, 9, &i, 1);
        inside(&graph, 5, &tensor);
    }
    struct opened opened = open_graph(&graph);
    assert_int_equal(opened.bundle->count, 3);
    check(&opened, 0, "w", TS_U8, VALUES(0));
    check(&opened, 1, "w#2", TS_U8, VALUES(1));
    check(&opened, 2, "w#3", TS_U8, VALUES(2));
    assert_int_equal(opened.bundle->finding_count, 2);
    finish(&opened);
}

static void test_one_bad_initializer(void **state)
{
    (void)state;
    struct message graph = {.size = 0}, good = tensor_of("good", 2, 1);
    bytes(&good, 9, "\5", 1);
    bytes(&graph, 5, "\x4a\x7f", 2); /* raw_data of 127 bytes, which are not there */
    inside(&graph, 5, &good);
    struct opened opened = open_graph(&graph);
    check(&opened, 0, "good", TS_U8, VALUES(5));
    assert_int_equal(opened.bundle->skip_count, 1);
    assert_non_null(strstr(opened.bundle->skips[0].reason, "field 9 takes 127 bytes, 0 are left"));
    finish(&opened);
}

static void test_metadata(void **state)
{
    (void)state;
    struct message graph = graph_with("w", 1), model, entry = {.size = 0};
    /* input "x": float ["batch", 3, ?] */
    struct message value = {.size = 0}, type = {.size = 0}, shape = {.size = 0}, dim = {.size = 0}, outer = {.size = 0};
    text(&dim, 2, "batch");
    inside(&shape, 1, &dim);
    dim.size = 0;
    varint(&dim, 1, 3);
    inside(&shape, 1, &dim);
    dim.size = 0;
    inside(&shape, 1, &dim);
    varint(&type, 1, 10);
    inside(&type, 2, &shape);
    inside(&outer, 1, &type);
    text(&value, 1, "x");
    inside(&value, 2, &outer);
    inside(&graph, 11, &value);
    model = model_of(&graph);
    text(&model, 2, "pytorch");
    text(&model, 3, "2.11.0");
    varint(&model, 5, 7);
    text(&entry, 1, "task");
    text(&entry, 2, "detect");
    inside(&model, 14, &entry);
    struct opened opened = open_bytes(model.data, model.size);
    assert_int_equal(opened.status, TS_OK);
    assert_string_equal(ts_bundle_meta_value(opened.bundle, "producer_name"), "pytorch");
    assert_string_equal(ts_bundle_meta_value(opened.bundle, "producer_version"), "2.11.0");
    assert_string_equal(ts_bundle_meta_value(opened.bundle, "model_version"), "7");
    assert_string_equal(ts_bundle_meta_value(opened.bundle, "opset.ai.onnx"), "17");
    assert_string_equal(ts_bundle_meta_value(opened.bundle, "task"), "detect");
    assert_string_equal(ts_bundle_meta_value(opened.bundle, "input.x"), "float16 [batch,3,?]");
    assert_string_equal(ts_bundle_meta_value(opened.bundle, "nodes"), "0");
    finish(&opened);
}

static unsigned bid_of(const void *data, size_t size)
{
    struct ts_input input = {.member = "m.onnx"};
    struct ts_error error;
    assert_int_equal(ts_source_copy(data, size, "m.onnx", &input.source, &error), TS_OK);
    unsigned bid = ts_reader_onnx.bid(&input);
    ts_source_release(input.source);
    return bid;
}

static void test_bids(void **state)
{
    (void)state;
    struct message graph = graph_with("weight", 1), model = model_of(&graph);
    assert_int_equal(bid_of(model.data, model.size), 40);
    assert_int_equal(bid_of(model.data, model.size - 6), 24); /* cut inside the graph */
    model.data[1] = 99;                                       /* ir_version */
    assert_int_equal(bid_of(model.data, model.size), 0);
    model = model_of(&graph);
    varint(&model, 9, 1); /* no such field */
    assert_int_equal(bid_of(model.data, model.size), 0);
    assert_int_equal(bid_of("", 0), 0);
    assert_int_equal(bid_of("\n\n\n\n", 4), 0);
    assert_int_equal(bid_of("some words\n", 11), 0);
    assert_int_equal(bid_of("{\"a\": 1}", 8), 0);
    assert_int_equal(bid_of("\0\0\0\0\0\0\0\0", 8), 0);
    struct message tensor = tensor_of("input_0", 6, 2);
    pack_varints(&tensor, 5, (const int64_t[]){1, -1}, 2);
    assert_int_equal(bid_of(tensor.data, tensor.size), 20);
    assert_int_equal(bid_of(tensor.data, tensor.size - 1), 0);
}

static void test_cut_model(void **state)
{
    (void)state;
    struct message graph = graph_with("weight", 1), model = model_of(&graph);
    struct opened opened = open_bytes(model.data, model.size - 6);
    assert_int_equal(opened.status, TS_ERR_FORMAT);
    assert_non_null(strstr(opened.error.message, "truncated: field 7"));
    finish(&opened);
}

static void test_bare_tensor(void **state)
{
    (void)state;
    struct message tensor = tensor_of("input_0", 6, 2);
    pack_varints(&tensor, 5, (const int64_t[]){1, -1}, 2);
    struct opened opened = open_bytes(tensor.data, tensor.size);
    assert_int_equal(opened.bundle->count, 1);
    check(&opened, 0, "input_0", TS_I32, VALUES(1, -1));
    finish(&opened);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constants),          cmocka_unit_test(test_subgraphs_and_functions),
        cmocka_unit_test(test_sparse_initializer), cmocka_unit_test(test_tensors_of_other_nodes),
        cmocka_unit_test(test_training_graphs),    cmocka_unit_test(test_nesting_is_bounded),
        cmocka_unit_test(test_duplicate_names),    cmocka_unit_test(test_one_bad_initializer),
        cmocka_unit_test(test_metadata),           cmocka_unit_test(test_bids),
        cmocka_unit_test(test_cut_model),          cmocka_unit_test(test_bare_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
