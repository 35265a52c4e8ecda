/* The layer that a tensor's name speaks of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tensor/layer.h"

static void test_layers(void **state)
{
    static const struct {
        const char *name;
        uint64_t layer;
    } names[] = {
        {"model.layers.3.mlp.down_proj.weight", 3},
        {"model.layers.3", 3},
        {"blk.31.attn_q.weight", 31},
        {"h.0.attn.c_attn.bias", 0},
        {"transformer.h.11.ln_1.weight", 11},
        {"encoder.layer.2.experts.5.w", 2},
        {"decoder.block.7.layer.1.DenseReluDense.wi", 7}, /* the first counts */
        {"block_3", 3},
        {"blocks.12.norm", 12},
        {"layer_3_attn_q_rope", 3},
        {"runs/a/layer_10/q.pt", 10},
        {"3_query", 3},
        {"runs/3_query", 3},
        {"step:3_query", 3},
        {"vision.blocks.1.merger.layers.2", 1},
        {"layers.007.w", 7},
        {"layers.999999999.w", 999999999},
        {"double-layers.4.x", 4},
        {"ffn_norm-5", 5}, /* llama.cpp's graph */
        {"Qcur-0", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint64_t layer = 12345;
        if (!ts_layer_of(names[i].name, &layer) || layer != names[i].layer)
            fail_msg("%s: %lu", names[i].name, (unsigned long)layer);
    }
}

static void test_no_layers(void **state)
{
    static const char *const names[] = {"noise_3e-4",
                                        "",
                                        "lm_head.weight",
                                        "model.norm.weight",
                                        "layers",
                                        "layers.",
                                        "layers.x.3",
                                        "layers.3x",
                                        "mylayers.3.w", /* another word */
                                        "layersx.3",
                                        "layers..3",
                                        "model.3.weight",
                                        "model_3_query", /* a number only opens a file's name */
                                        "3query",
                                        "3.weight",
                                        "layers.-1.w",
                                        "layers.1000000000.w", /* no model is that deep */
                                        "layers.18446744073709551617.w",
                                        "\xff\xfe\x80"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint64_t layer;
        if (ts_layer_of(names[i], &layer))
            fail_msg("%s: %lu", names[i], (unsigned long)layer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layers), cmocka_unit_test(test_no_layers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
