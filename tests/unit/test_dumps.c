/* The dumps of tests/golden/dumps/make.py, which other tools would have written of one toy model: each must open with
 * the model's names, in the order of the run, and with the numbers of reference.safetensors. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "opened.h"
#include "read/call_name.h"
#include "read/dump_tags.h"
#include "read/open.h"

#define DUMPS "tests/golden/dumps/"

static struct ts_bundle *open_dump(const char *name)
{
    struct ts_bundle *bundle;
    struct ts_error error;
    char path[256];
    snprintf(path, sizeof path, DUMPS "%s", name);
    ts_error_clear(&error);
    if (ts_open(path, NULL, &bundle, &error) != TS_OK)
        fail_msg("%s: %s", path, error.message);
    return bundle;
}

static const struct ts_tensor *named(const struct ts_bundle *bundle, const char *name)
{
    const struct ts_tensor *tensor = ts_bundle_tensor(bundle, name);
    if (!tensor)
        fail_msg("%s has no tensor \"%s\"", bundle->path, name);
    return tensor;
}

static size_t place_of(const struct ts_bundle *bundle, const char *name)
{
    for (size_t i = 0; i < bundle->count; i++)
        if (strcmp(bundle->tensors[i]->name, name) == 0)
            return i;
    fail_msg("%s has no tensor \"%s\"", bundle->path, name);
    return 0;
}

/* How a number was written on its way; "" for bytes. */
static double as_printed(double value, const char *format)
{
    char text[64];
    if (!format[0])
        return value;
    snprintf(text, sizeof text, format[0] == 'e' ? "%.4e" : "%.4f", value);
    return (double)strtof(text, NULL);
}

static double element(const struct ts_tensor *tensor, uint64_t index)
{
    double value;
    struct ts_error error;
    assert_true(index < tensor->count);
    assert_int_equal(ts_tensor_read_f64(tensor, index, 1, &value, &error), TS_OK);
    return value;
}

/* Row r and column c of a printed matrix stand for these of the whole. */
static uint64_t whole_index(const struct ts_tensor *tensor, unsigned axis, uint64_t i)
{
    if (!tensor->whole_shape || i < tensor->whole_head[axis])
        return i;
    return tensor->whole_shape[axis] - (tensor->shape[axis] - i);
}

/* Every number of the tensor, a matrix but for ones in front, is that of the whole one [rows, columns]. */
static void assert_same(const struct ts_tensor *found, const struct ts_tensor *whole, const char *format)
{
    const unsigned rank = found->rank;
    const uint64_t columns = found->shape[rank - 1], rows = found->count / columns;
    const uint64_t width = whole->shape[whole->rank - 1];
    assert_true(rank >= 2);
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < columns; c++) {
            uint64_t from = whole_index(found, rank - 2, r) * width + whole_index(found, rank - 1, c);
            double expected = as_printed(element(whole, from), format), value = element(found, r * columns + c);
            if (value != expected)
                fail_msg("%s [%d,%d]: %.9g instead of %.9g", found->name, (int)r, (int)c, value, expected);
        }
}

/* All tensors of the dump that the reference has under the same name; how many there are. */
static size_t assert_all_same(const struct ts_bundle *bundle, const struct ts_bundle *reference, const char *format)
{
    size_t compared = 0;
    for (size_t i = 0; i < bundle->count; i++) {
        const struct ts_tensor *tensor = bundle->tensors[i], *whole = ts_bundle_tensor(reference, tensor->name);
        if (!whole || whole->type != TS_F32)
            continue;
        if (!tensor->sampled)
            assert_int_equal(tensor->count, whole->count);
        assert_same(tensor, whole, format);
        compared++;
    }
    return compared;
}

static size_t lost(const struct ts_bundle *bundle)
{
    size_t count = 0;
    for (size_t i = 0; i < bundle->skip_count; i++)
        count += !bundle->skips[i].harmless;
    return count;
}

static void test_sglang(void **state)
{
    struct ts_bundle *bundle = open_dump("sglang"), *reference = open_dump("reference.safetensors");
    (void)state;
    assert_int_equal(bundle->count, 2 * reference->count);
    assert_int_equal(lost(bundle), 0);
    assert_string_equal(bundle->order, "order of the dumps");
    for (size_t i = 0; i < bundle->count; i++) { /* as computed, the two ranks side by side */
        const struct ts_tensor *tensor = bundle->tensors[i];
        assert_int_equal(strncmp(tensor->name, i % 2 ? "rank_1/" : "rank_0/", 7), 0);
        assert_string_equal(tensor->name + 7, reference->tensors[i / 2]->name);
    }
    assert_shape(named(bundle, "rank_1/model.layers.0.self_attn.q_proj"), "[7,4]");
    assert_attribute(named(bundle, "rank_1/model.layers.0.self_attn.q_proj"), "axes", "t,h");
    assert_attribute(named(bundle, "rank_0/model.norm"), "dims", "t h # tp:replicated");
    assert_int_equal(bundle->meta_count, 0); /* what the dumper says of each tensor is none of the input's */
    /* before anything is summed in another order the numbers are the reference's */
    assert_same(named(bundle, "rank_0/model.layers.0.input_layernorm"),
                named(reference, "model.layers.0.input_layernorm"), "");
    ts_bundle_free(bundle);
    ts_bundle_free(reference);
}

static void test_sglang_2025(void **state)
{
    static const char *const names[] = {"input_ids",
                                        "layers.0.layer_start__hidden_states",
                                        "layers.0.q_proj",
                                        "layers.0.k_proj",
                                        "layers.0.v_proj",
                                        "layers.0.o_proj.part=attention",
                                        "layers.0.mlp_output",
                                        "layers.0.mlp_output#2",
                                        "layers.1.layer_start__hidden_states"};
    struct ts_bundle *bundle = open_dump("sglang_2025"), *reference = open_dump("reference.safetensors");
    (void)state;
    assert_int_equal(bundle->count, 16);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_string_equal(bundle->tensors[i]->name, names[i]);
    assert_same(named(bundle, "layers.1.v_proj"), named(reference, "model.layers.1.self_attn.v_proj"), "");
    assert_same(named(bundle, "logits"), named(reference, "lm_head"), "");
    ts_bundle_free(bundle);
    ts_bundle_free(reference);
}

static void test_sglang_steps(void **state)
{
    static const char *const names[] = {"step_2/both.hidden", "step_2/both.residual", "step_10/both.hidden",
                                        "step_10/both.residual"};
    struct ts_bundle *bundle = open_dump("sglang_steps");
    (void)state;
    assert_int_equal(bundle->count, 4);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(bundle->tensors[i]->name, names[i]);
    assert_true(element(bundle->tensors[1], 3) == 2 * element(bundle->tensors[0], 3));
    ts_bundle_free(bundle);
}

static void test_tags(void **state)
{
    struct ts_tags tags;
    struct ts_tags_survey survey = {0};
    struct ts_arena arena;
    bool drop;
    (void)state;
    assert_false(ts_tags_read("model.pt", 0, &tags));
    assert_false(ts_tags_read("a=1___b=2.pt", 0, &tags));       /* no name */
    assert_false(ts_tags_read("name=x___rank=0.pt", 0, &tags)); /* no index */
    assert_false(ts_tags_read("step=0___rank=0___dump_index=x___name=y.pt", 0, &tags));
    assert_false(ts_tags_read("step=0___rank=0___dump_index=1___name=y.npy", 0, &tags));
    assert_false(ts_tags_read("step=0___rank=0___dump_index=99999999999999999999___name=y.pt", 0, &tags));
    /* the separator inside a name */
    assert_true(ts_tags_read("runs/step=3___rank=1___dump_index=12___name=a___b_=c____mb=2.pt", 5, &tags));
    assert_int_equal(tags.step, 3);
    assert_int_equal(tags.rank, 1);
    assert_int_equal(tags.index, 12);
    assert_int_equal(tags.folder_size, 0);
    assert_true(ts_tags_read("step=3___rank=1___dump_index=12___name=a___b.pt", 0, &tags));
    assert_int_equal(tags.name_size, 5);
    ts_arena_init(&arena, 1 << 20);
    assert_true(ts_tags_read("x/step=3___rank=1___dump_index=12___name=kv___layer_id=5.pt", 0, &tags));
    assert_string_equal(ts_tags_name(&survey, &tags, "value", &arena, &drop), "x/layers.5.kv");
    assert_false(drop);
    assert_string_equal(ts_tags_name(&survey, &tags, "value.k", &arena, &drop), "x/layers.5.kv.k");
    ts_tags_name(&survey, &tags, "meta.step", &arena, &drop);
    assert_true(drop);
    assert_true(ts_tags_read("step=3___rank=1___dump_index=12___name=grad__param__layers.1.q.weight.pt", 0, &tags));
    assert_string_equal(ts_tags_name(&survey, &tags, "", &arena, &drop), "layers.1.q.weight.grad");
    assert_true(ts_tags_read("step=3___rank=1___dump_index=12___name=non_intrusive__inputs.input_ids.pt", 0, &tags));
    assert_string_equal(ts_tags_name(&survey, &tags, "", &arena, &drop), "input_ids");
    assert_true(ts_tags_read("step=3___rank=1___dump_index=12___name=non_intrusive__a.output.1.pt", 0, &tags));
    assert_string_equal(ts_tags_name(&survey, &tags, "value", &arena, &drop), "a.output.1");
    survey = (struct ts_tags_survey){.any = true, .many_steps = true, .many_ranks = true};
    assert_string_equal(ts_tags_name(&survey, &tags, "value", &arena, &drop), "step_3/rank_1/a.output.1");
    ts_arena_release(&arena);
}

static void check_tree(const char *name, const char *format, size_t samples)
{
    struct ts_bundle *bundle = open_dump(name), *reference = open_dump("reference.safetensors");
    size_t sampled = 0;
    assert_int_equal(bundle->count, 51);
    assert_string_equal(bundle->order, "order of the calls");
    assert_int_equal(lost(bundle), 0);
    assert_int_equal(bundle->finding_count, 0);
    assert_string_equal(bundle->tensors[0]->name, "input_ids");
    assert_string_equal(bundle->tensors[3]->name, "model.embed_tokens");
    assert_string_equal(bundle->tensors[4]->name, "model.layers.0.input");
    assert_string_equal(bundle->tensors[50]->name, "lm_head");
    assert_true(place_of(bundle, "model.layers.0.self_attn.o_proj") <
                place_of(bundle, "model.layers.0.post_attention_layernorm"));
    assert_int_equal(named(bundle, "input_ids")->type, TS_I64);
    assert_shape(named(bundle, "model.layers.1.mlp.up_proj"), "[1,7,12]");
    assert_int_equal(assert_all_same(bundle, reference, format), 31);
    for (size_t i = 0; i < bundle->count; i++)
        sampled += bundle->tensors[i]->sampled;
    assert_int_equal(sampled, samples);
    ts_bundle_free(bundle);
    ts_bundle_free(reference);
}

static void test_call_tree_files(void **state)
{
    (void)state;
    check_tree("hf_files", "", 0);
}

static void test_call_tree_printed(void **state)
{
    struct ts_bundle *bundle;
    const struct ts_tensor *logits;
    (void)state;
    check_tree("hf_repr", "e", 1);
    bundle = open_dump("hf_repr/ToyForCausalLM_debug_tree_FULL_TENSORS.json");
    logits = named(bundle, "lm_head"); /* more than a thousand numbers: torch shows corners */
    assert_shape(logits, "[1,6,6]");
    assert_int_equal(logits->whole_shape[2], 150);
    assert_int_equal(logits->whole_head[2], 3);
    assert_attribute(logits, "sample", "corners of [1,7,150]: 3+3 of 7 on axis 1, 3+3 of 150 on axis 2");
    assert_int_equal(logits->printed_bits, 13);
    ts_bundle_free(bundle);
}

static void test_call_tree_summary(void **state)
{
    struct ts_bundle *bundle = NULL;
    struct ts_error error;
    (void)state;
    ts_error_clear(&error);
    assert_int_not_equal(ts_open(DUMPS "hf_repr/ToyForCausalLM_debug_tree_SUMMARY.json", NULL, &bundle, &error), TS_OK);
    assert_non_null(strstr(error.message, "is a summary of 51 tensors"));
    assert_non_null(strstr(error.message, "ToyForCausalLM_debug_tree_FULL_TENSORS.json"));
}

/* Calls of one module, outputs beside children, tuples, a DTensor, bf16. */
static void test_call_tree_odd(void **state)
{
    static const char text[] =
        "{\"module_path\": \"M (top-level)\", \"inputs\": {\"args\": [\"None\", {\"shape\": \"torch.Size([2])\","
        " \"dtype\": \"torch.bfloat16\", \"value\": \"tensor([1.0078e+00, -2.0000e+00], dtype=torch.bfloat16)\"}]},"
        " \"outputs\": [{\"shape\": \"torch.Size([])\", \"dtype\": \"torch.float32\", \"value\": [\"tensor(3.)\"]},"
        " {\"shape\": \"torch.Size([1])\", \"dtype\": \"torch.int64\", \"value\": [\"tensor([4])\"]}],"
        " \"children\": [{\"module_path\": \"M.a\", \"inputs\": {}, \"outputs\": {\"shape\": \"torch.Size([1])\","
        " \"dtype\": \"torch.float32\", \"value\": \"DTensor (rank0) -> tensor([5.])\"}},"
        " {\"module_path\": \"M.a\", \"inputs\": {}, \"outputs\": {\"shape\": \"torch.Size([1])\","
        " \"dtype\": \"torch.float32\", \"value\": [\"tensor([6.])\"]}},"
        " {\"module_path\": \"M.b\", \"inputs\": null, \"outputs\": {\"last\": {\"shape\": \"torch.Size([3])\","
        " \"dtype\": \"torch.float32\", \"value\": [\"tensor([7., 8.])\"]}, \"cache\": \"DynamicCache()\"}}]}";
    static const char *const names[] = {"input.1", "a", "a#2", "b.output.last", "output", "output.1"};
    static const double two[] = {1.0078125, -2};
    struct opened opened;
    (void)state;
    open_text(&opened, &ts_reader_call_tree, text);
    assert_int_equal(opened.status, TS_OK);
    assert_int_equal(opened.bid, 88);
    assert_int_equal(opened.bundle->count, 6);
    for (size_t i = 0; i < 6; i++)
        assert_string_equal(opened.bundle->tensors[i]->name, names[i]);
    assert_int_equal(opened.bundle->tensors[0]->type, TS_BF16);
    assert_values(opened.bundle->tensors[0], two, 2);
    assert_true(element(opened.bundle->tensors[1], 0) == 5 && element(opened.bundle->tensors[2], 0) == 6);
    assert_true(element(opened.bundle->tensors[4], 0) == 3 && opened.bundle->tensors[4]->rank == 0);
    assert_true(opened.bundle->tensors[3]->sampled);
    assert_true(has_finding(&opened, "the print has 2 values, its shape says torch.Size([3])"));
    close_opened(&opened);
}

static void test_msprobe(void **state)
{
    struct ts_bundle *bundle = open_dump("msprobe"), *reference = open_dump("reference.safetensors");
    (void)state;
    assert_int_equal(lost(bundle), 0);
    assert_int_equal(bundle->count, 40);
    assert_string_equal(bundle->tensors[0]->name, "rank0/model.layers.1.input_layernorm");
    assert_string_equal(bundle->tensors[20]->name, "rank1/model.layers.1.input_layernorm");
    assert_true(place_of(bundle, "rank0/model.layers.1.self_attn.o_proj.input") + 1 ==
                place_of(bundle, "rank0/model.layers.1.self_attn.o_proj"));
    assert_true(place_of(bundle, "rank0/model.layers.1.self_attn.input.hidden_states") + 1 ==
                place_of(bundle, "rank0/model.layers.1.self_attn"));
    assert_shape(named(bundle, "rank1/model.layers.1.mlp.gate_proj"), "[1,7,6]");
    assert_shape(named(bundle, "rank1/model.norm.weight"), "[8]");
    assert_same(named(bundle, "rank1/lm_head"), named(reference, "lm_head"), "");
    ts_bundle_free(bundle);
    bundle = open_dump("msprobe/step0/rank0/dump.json");
    assert_int_equal(bundle->count, 20);
    assert_string_equal(bundle->order, "order of dump.json");
    assert_same(named(bundle, "model.norm"), named(reference, "model.norm"), "");
    ts_bundle_free(bundle);
    ts_bundle_free(reference);
}

static void test_msprobe_npy(void **state)
{
    struct ts_bundle *bundle = open_dump("msprobe_npy"), *reference = open_dump("reference.safetensors");
    (void)state;
    assert_int_equal(bundle->count, 16);
    assert_int_equal(assert_all_same(bundle, reference, ""), 16);
    assert_int_equal(lost(bundle), 1); /* named in dump.json, and not there */
    assert_non_null(strstr(bundle->skips[0].path, "mlp.up_proj.Linear.forward.0.output.0.npy"));
    ts_bundle_free(bundle);
    ts_bundle_free(reference);
}

/* The names that records get, of files that are not there. */
static void test_msprobe_names(void **state)
{
    static const char text[] = "{\"task\": \"tensor\", \"level\": \"mix\", \"dump_data_dir\": null, \"data\": {"
                               "\"Functional.linear.1.forward\": {\"input_args\": [{\"data_name\": \"a.pt\"}]},"
                               "\"x.0.debug\": [{\"data_name\": \"b.pt\"}, {\"k\": {\"data_name\": \"c.pt\"}}],"
                               "\"y.0.debug\": {\"type\": \"torch.Tensor\", \"shape\": [1], \"Max\": 1}}}";
    struct opened opened;
    (void)state;
    open_text(&opened, &ts_reader_msprobe, text);
    assert_int_equal(opened.status, TS_OK);
    assert_int_equal(opened.bundle->count, 0);
    assert_int_equal(opened.bundle->skip_count, 3);
    assert_true(has_skip(&opened, "dump_tensor_data/c.pt", "no such file"));
    assert_true(has_finding(&opened, "1 tensor of \"sample.txt\" has statistics only"));
    close_opened(&opened);
}

static void test_msprobe_statistics(void **state)
{
    struct ts_bundle *bundle = open_dump("msprobe_stats");
    struct ts_error error;
    (void)state;
    assert_int_equal(bundle->count, 0);
    assert_int_equal(lost(bundle), 1);
    assert_non_null(strstr(bundle->skips[0].reason, "is a dump of statistics only (task statistics, level L0): 17"));
    ts_bundle_free(bundle);
    ts_error_clear(&error);
    assert_int_not_equal(ts_open(DUMPS "msprobe_stats/step0/rank0/dump.json", NULL, &bundle, &error), TS_OK);
    assert_non_null(strstr(error.message, "statistics only"));
}

struct pair {
    const char *graph, *module;
};

static void check_log(const char *name, uint64_t shown, uint64_t head)
{
    static const struct pair pairs[] = {{"inp_embd", "model.embed_tokens"},
                                        {"attn_norm-0", "model.layers.0.input_layernorm"},
                                        {"Qcur-1", "model.layers.1.self_attn.q_proj"},
                                        {"kqv_out-1", "model.layers.1.self_attn.o_proj.input"},
                                        {"ffn_norm-1", "model.layers.1.post_attention_layernorm"},
                                        {"ffn_gate-0", "model.layers.0.mlp.gate_proj"},
                                        {"l_out-1", "model.layers.1"},
                                        {"result_norm", "model.norm"},
                                        {"result_output", "lm_head"}};
    struct ts_bundle *bundle = open_dump(name), *reference = open_dump("reference.safetensors");
    const struct ts_tensor *logits = named(bundle, "result_output");
    assert_int_equal(bundle->count, 46);
    assert_int_equal(lost(bundle), 0);
    assert_string_equal(bundle->tensors[0]->name, "inp_embd");
    assert_string_equal(bundle->tensors[1]->name, "attn_norm_unscaled-0");
    assert_string_equal(bundle->tensors[5]->name, "Qcur_rope-0");
    assert_string_equal(bundle->tensors[45]->name, "result_output");
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const struct ts_tensor *tensor = named(bundle, pairs[i].graph);
        assert_true(tensor->sampled);
        assert_same(tensor, named(reference, pairs[i].module), "f");
    }
    assert_int_equal(logits->shape[0], shown);
    assert_int_equal(logits->shape[1], shown);
    assert_int_equal(logits->whole_shape[1], 150);
    assert_int_equal(logits->whole_head[1], head);
    assert_attribute(logits, "operation", "MUL_MAT");
    assert_int_equal(named(bundle, "Qcur_rope-0")->rank, 3);
    ts_bundle_free(bundle);
    ts_bundle_free(reference);
}

static void test_llama_2024(void **state)
{
    (void)state;
    check_log("llama_2024.log", 3, 3);
}

static void test_llama_2025(void **state)
{
    (void)state;
    check_log("llama_2025.log", 6, 3);
}

static void test_llama_2026(void **state)
{
    (void)state;
    check_log("llama_2026.log", 6, 3);
}

struct printed {
    const char *name, *type, *op, *ne, *block;
};

/* Two passes, a bias, a fourth axis, a quantized tensor, colours, wrong blocks, a log that is cut off. */
static void test_llama_odd(void **state)
{
    static const struct printed list[] = {
        {"x", "f32", "GET_ROWS", "2, 1, 1, 1", "[\n[\n[ 1.0000, 2.0000],\n],\n]\nsum = 3.0\n"},
        {"Qcur-0", "f32", "MUL_MAT", "1, 1, 1, 2",
         "[\n[\n[ 1.5000],\n],\n]\nsum = 1.5\n[\n[\n[ 2.5000],\n],\n]\nsum = 4.0\n"},
        {"Qcur-0", "f32", "ADD", "1, 1, 1, 1", "\033[31m[\n\033[0m[\n[ nan],\n],\n]\nsum = nan\n"},
        {"Qcur-0", "f32", "ROPE", "1, 1, 1, 1", "[\n[\n[ -inf],\n],\n]\nsum = 1.0\n"},
        {"k", "q8_0", "CPY", "32, 1, 1, 1", ""},
        {"x", "f32", "GET_ROWS", "2, 1, 1, 1", "[\n[\n[ 3.0000, 4.0000],\n],\n]\nsum = 7.0\n"},
        {"Kcur-0", "f32", "ROPE", "1, 1, 1, 1", "[\n[\n[ 1.0000],\n],\n]\n"}, /* without its sum */
        {"wrong", "f32", "ADD", "4, 1, 1, 1", "[\n[\n[ 3.0000, 4.0000],\n],\n]\nsum = 7.0\n"},
        {"uneven", "f32", "ADD", "2, 2, 1, 1", "[\n[\n[ 3.0000, 4.0000],\n[ 1.0],\n],\n]\nsum = 7.0\n"},
        {"words", "f32", "ADD", "2, 1, 1, 1", "[\n[\n[ 3.0000, hello],\n],\n]\nsum = 7.0\n"},
        {"cut", "f32", "ADD", "2, 1, 1, 1", "[\n[\n[ 3.0000, "},
    };
    static const char *const names[] = {"step_0/x", "step_0/Qcur_mul_mat-0", "step_0/Qcur-0", "step_0/Qcur_rope-0",
                                        "step_1/x", "step_1/Kcur_rope-0"};
    static const double fourth[] = {1.5, 2.5};
    struct ts_buffer text;
    struct opened opened;
    (void)state;
    ts_buffer_init(&text, 1 << 16);
    ts_buffer_string(&text, "main: noise\n");
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        ts_buffer_printf(&text, "ggml_debug: %24s = (%s) %10s(a{1, 1, 1, 1}, }) = {%s}\n%s", list[i].name, list[i].type,
                         list[i].op, list[i].ne, list[i].block);
    open_text(&opened, &ts_reader_ggml_log, text.data);
    ts_buffer_release(&text);
    assert_int_equal(opened.status, TS_OK);
    assert_true(opened.bid > 40);
    assert_int_equal(opened.bundle->count, 6);
    for (size_t i = 0; i < 6; i++)
        assert_string_equal(opened.bundle->tensors[i]->name, names[i]);
    assert_shape(opened.bundle->tensors[0], "[1,2]");
    assert_shape(opened.bundle->tensors[1], "[2,1,1,1]");
    assert_values(opened.bundle->tensors[1], fourth, 2);
    assert_false(opened.bundle->tensors[1]->sampled);
    assert_true(isnan(element(opened.bundle->tensors[2], 0)));
    assert_int_equal(opened.bundle->skip_count, 5);
    assert_true(has_skip(&opened, "sample.txt:k", "llama.cpp did not print its values (q8_0)"));
    assert_true(has_skip(&opened, "sample.txt:wrong", "2 entries are printed along ne[0], which has 4"));
    assert_true(has_skip(&opened, "sample.txt:uneven", "its lists differ in length"));
    assert_true(has_skip(&opened, "sample.txt:words", "neither a number"));
    assert_true(has_skip(&opened, "sample.txt:cut", "the log ends inside its values"));
    close_opened(&opened);
}

static void test_polygraphy(void **state)
{
    struct ts_bundle *bundle = open_dump("polygraphy.json"), *reference = open_dump("reference.safetensors");
    (void)state;
    assert_int_equal(bundle->count, 3);
    assert_string_equal(bundle->tensors[1]->name, "model.norm");
    assert_int_equal(assert_all_same(bundle, reference, ""), 3);
    ts_bundle_free(bundle);
    ts_bundle_free(reference);
}

static void test_tensorrt_llm(void **state)
{
    struct ts_bundle *bundle = open_dump("tllm_debug"), *reference = open_dump("reference.safetensors");
    (void)state;
    assert_int_equal(bundle->count, 8); /* and not the text beside each */
    assert_int_equal(bundle->skip_count, 8);
    assert_int_equal(lost(bundle), 0);
    assert_string_equal(bundle->tensors[0]->name, "TP_0/transformer.layers.0.attention.qkv");
    assert_string_equal(bundle->tensors[7]->name, "TP_1/transformer.layers.1.mlp_output");
    assert_same(bundle->tensors[7], named(reference, "model.layers.1.mlp"), "");
    ts_bundle_free(bundle);
    ts_bundle_free(reference);
}

static void test_nested(void **state)
{
    static const char *const names[] = {"step_1.layers.0.q", "step_1.layers.0.k", "step_1.layers.1.q",
                                        "step_1.embed",      "step_0.0",          "step_0.2.logits"};
    struct ts_bundle *bundle = open_dump("nested.pt"), *reference = open_dump("reference.safetensors");
    (void)state;
    assert_int_equal(bundle->count, 6);
    for (size_t i = 0; i < 6; i++)
        assert_string_equal(bundle->tensors[i]->name, names[i]);
    assert_same(bundle->tensors[1], named(reference, "model.layers.0.self_attn.k_proj"), "");
    ts_bundle_free(bundle);
    ts_bundle_free(reference);
}

static int bits_of_print(const char *text)
{
    struct opened opened;
    int bits;
    open_text(&opened, &ts_reader_text, text);
    assert_int_equal(opened.status, TS_OK);
    bits = opened.bundle->tensors[0]->printed_bits;
    close_opened(&opened);
    return bits;
}

/* 0.1338 * 10^-4 of each number is what rounding to 14.0 bits loses, and so on. */
static void test_printed_bits(void **state)
{
    (void)state;
    assert_int_equal(bits_of_print("1.2345e+00 2.3456e-03 3.4567e+01 -4.5678e-02 5.6789e+00 6.7891e-05 7.8912e+00 "
                                   "8.9123e+03 9.1234e-01 1.0000e+00\n"),
                     13);
    assert_int_equal(bits_of_print("1.234567e+00 2.345678e-03 3.456789e+01 -4.567891e-02 5.678912e+00 6.789123e-05 "
                                   "7.891234e+00 8.912345e+03 9.123456e-01 1.000000e+00\n"),
                     20);
    /* 0.0001 / sqrt(12) in numbers whose mean square is 0.279: log2(0.2123 * sqrt(12 * 0.279) / 0.0001) = 11.9 */
    assert_int_equal(bits_of_print("0.5000 0.0500 0.0050 0.0005 1.0000 0.0001 0.1234 0.0123 1.2345 0.0002\n"), 11);
    /* as short as they can be: nothing is lost */
    assert_int_equal(bits_of_print("0.5 0.125 1e-3 0.33333334 0.1 0.7071068 3.1415927 0.25 2.718282 1.5 0.0625\n"), 0);
    assert_int_equal(bits_of_print("1 2 3 4 5 6 7 8 9 10\n"), 0);
    assert_int_equal(bits_of_print("1.2345 2.3456 3.4567\n"), 0); /* too few to tell */
}

static void test_call_names(void **state)
{
    struct ts_arena arena;
    (void)state;
    ts_arena_init(&arena, 1 << 20);
    assert_string_equal(ts_call_name(&arena, "a.b", TS_CALL_OUTPUT, ""), "a.b");
    assert_string_equal(ts_call_name(&arena, "a.b", TS_CALL_OUTPUT, "0"), "a.b");
    assert_string_equal(ts_call_name(&arena, "a.b", TS_CALL_OUTPUT, "1.0"), "a.b.output.1.0");
    assert_string_equal(ts_call_name(&arena, "a.b", TS_CALL_INPUT, "0"), "a.b.input");
    assert_string_equal(ts_call_name(&arena, "a.b", TS_CALL_INPUT, "x"), "a.b.input.x");
    assert_string_equal(ts_call_name(&arena, "", TS_CALL_INPUT, "input_ids"), "input_ids");
    assert_string_equal(ts_call_name(&arena, "", TS_CALL_INPUT, "1"), "input.1");
    assert_string_equal(ts_call_name(&arena, "", TS_CALL_OUTPUT, ""), "output");
    ts_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sglang),
        cmocka_unit_test(test_sglang_2025),
        cmocka_unit_test(test_sglang_steps),
        cmocka_unit_test(test_tags),
        cmocka_unit_test(test_call_tree_files),
        cmocka_unit_test(test_call_tree_printed),
        cmocka_unit_test(test_call_tree_summary),
        cmocka_unit_test(test_call_tree_odd),
        cmocka_unit_test(test_msprobe),
        cmocka_unit_test(test_msprobe_npy),
        cmocka_unit_test(test_msprobe_names),
        cmocka_unit_test(test_msprobe_statistics),
        cmocka_unit_test(test_llama_2024),
        cmocka_unit_test(test_llama_2025),
        cmocka_unit_test(test_llama_2026),
        cmocka_unit_test(test_llama_odd),
        cmocka_unit_test(test_polygraphy),
        cmocka_unit_test(test_tensorrt_llm),
        cmocka_unit_test(test_nested),
        cmocka_unit_test(test_printed_bits),
        cmocka_unit_test(test_call_names),
    };
    return cmocka_run_group_tests_name("dumps", tests, NULL, NULL);
}
