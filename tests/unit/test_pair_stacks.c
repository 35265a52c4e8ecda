/* One tensor against many: weights of all layers in one, along any axis, and caches of keys and values in every shape
 * that programs keep them in. */
#include <math.h>
#include <time.h>

#include "base/buffer.h"
#include "made_bundle.h"

enum { LAYERS = 3, IN = 6, OUT = 8, HEADS = 2, TOKENS = 5, SIZE = 4, CACHE = HEADS * TOKENS * SIZE };

/* Pieces of `outer` times `inner` numbers, the piece counted between the two. */
static float *stack_up(float *const *pieces, size_t count, size_t outer, size_t inner)
{
    float *all = made_values(count * outer * inner);
    for (size_t i = 0; i < outer; i++)
        for (size_t k = 0; k < count; k++)
            memcpy(&all[(i * count + k) * inner], &pieces[k][i * inner], inner * sizeof *all);
    return all;
}

static float *transposed(const float *values, size_t rows, size_t columns)
{
    float *out = made_values(rows * columns);
    for (size_t i = 0; i < rows; i++)
        for (size_t k = 0; k < columns; k++)
            out[k * rows + i] = values[i * columns + k];
    return out;
}

static void free_all(float **list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(list[i]);
}

/* Kernels of [in, out] on one side, one behind the other along each axis; [out, in] on the other, one for each layer. A
 * layer that is wrong shows as such and nowhere else. */
static void test_layers_along_any_axis(void **state)
{
    (void)state;
    for (int round = 0; round < 12; round++) {
        const size_t axis = (size_t)round % 3;
        const bool stack_is_b = round / 3 % 2, spoiled = round / 6;
        const size_t outer = axis == 0 ? 1 : axis == 1 ? IN : IN * OUT, inner = IN * OUT / outer;
        const uint64_t shapes[3][3] = {{LAYERS, IN, OUT}, {IN, LAYERS, OUT}, {IN, OUT, LAYERS}};
        float *kernels[LAYERS], *scales[LAYERS], *all;
        struct paired paired;
        struct ts_bundle *stack_side, *other;
        paired_start(&paired);
        stack_side = stack_is_b ? paired.b : paired.a;
        other = stack_is_b ? paired.a : paired.b;
        for (int layer = 0; layer < LAYERS; layer++) {
            float *turned;
            kernels[layer] = made_values(IN * OUT);
            scales[layer] = made_values(IN);
            turned = transposed(kernels[layer], IN, OUT);
            for (size_t i = 0; i < IN * OUT && spoiled && layer == 1; i++)
                turned[i] = (float)(i % 5) - 2;
            made_add(other, made_name("model.layers.%d.mlp.gate_proj.weight", layer), turned, SHAPE(OUT, IN));
            made_add(other, made_name("model.layers.%d.input_layernorm.weight", layer), scales[layer], SHAPE(IN));
            free(turned);
        }
        all = stack_up(kernels, LAYERS, outer, inner);
        made_add(stack_side, "params/params/decoder/layers/mlp/wi_0/kernel", all, 3, shapes[axis]);
        free(all);
        all = stack_up(scales, LAYERS, axis ? IN : 1, axis ? 1 : IN);
        made_add(stack_side, "params/params/decoder/layers/pre_self_attention_layer_norm/scale", all,
                 SHAPE(axis ? IN : LAYERS, axis ? LAYERS : IN));
        free(all);
        paired_run(&paired, &(struct ts_pair_options){0});
        assert_int_equal(paired.status, TS_OK);
        assert_int_equal(paired.pairing.count, 2 * LAYERS);
        assert_int_equal(paired.pairing.only_a_count + paired.pairing.only_b_count, 0);
        for (int layer = 0; layer < LAYERS; layer++) {
            const bool wrong = spoiled && layer == 1;
            const char *const kernel = made_name("model.layers.%d.mlp.gate_proj.weight", layer);
            char words[64], name[128], slice[3][8];
            const struct ts_pair *pair;
            snprintf(slice[0], sizeof slice[0], "[%d]", layer);
            snprintf(slice[1], sizeof slice[1], "[:,%d]", layer);
            snprintf(slice[2], sizeof slice[2], "[:,:,%d]", layer);
            snprintf(name, sizeof name, "params/params/decoder/layers/mlp/wi_0/kernel%s", slice[axis]);
            snprintf(words, sizeof words, "%c: index %d of %d on axis %zu; ", stack_is_b ? 'B' : 'A', layer, LAYERS,
                     axis);
            pair = paired_find(&paired, stack_is_b ? kernel : name, stack_is_b ? name : kernel);
            assert_null(pair->problem);
            assert_int_equal(pair_error(pair) > 0.5, wrong);
            assert_int_equal(strncmp(pair->recipe, words, strlen(words)), 0);
        }
        for (size_t i = 0; i < paired.pairing.count; i++)
            assert_false(paired.pairing.pairs[i].partial);
        free_all(kernels, LAYERS);
        free_all(scales, LAYERS);
        paired_end(&paired);
    }
}

/* As many layers as heads: which axis counts them only the values tell, and where those say nothing the other stacks
 * do. A projection of heads cannot be merged where it lies apart: the other side is split. */
static void test_axes_of_one_size(void **state)
{
    (void)state;
    for (int stack_is_b = 0; stack_is_b < 2; stack_is_b++) {
        float *kernels[HEADS], ones[HEADS * HEADS], *all;
        struct paired paired;
        paired_start(&paired);
        for (size_t i = 0; i < HEADS * HEADS; i++)
            ones[i] = 1;
        for (int layer = 0; layer < HEADS; layer++) {
            float *turned;
            kernels[layer] = made_values(HEADS * SIZE * OUT);
            turned = transposed(kernels[layer], HEADS * SIZE, OUT);
            made_add(stack_is_b ? paired.a : paired.b, made_name("model.layers.%d.self_attn.o_proj.weight", layer),
                     turned, SHAPE(OUT, HEADS * SIZE));
            made_add(stack_is_b ? paired.a : paired.b, made_name("model.layers.%d.input_layernorm.weight", layer), ones,
                     SHAPE(HEADS));
            free(turned);
        }
        all = stack_up(kernels, HEADS, HEADS, SIZE * OUT);
        made_add(stack_is_b ? paired.b : paired.a, "params.decoder.layers.pre_self_attention_layer_norm.scale", ones,
                 SHAPE(HEADS, HEADS));
        made_add(stack_is_b ? paired.b : paired.a, "params.decoder.layers.self_attention.out.kernel", all,
                 SHAPE(HEADS, HEADS, SIZE, OUT));
        paired_run(&paired, &(struct ts_pair_options){0});
        assert_int_equal(paired.pairing.count, 2 * HEADS);
        for (size_t i = 0; i < paired.pairing.count; i++) {
            const struct ts_pair *pair = &paired.pairing.pairs[i];
            assert_true(pair_error(pair) == 0);
            assert_false(pair->guess);
            assert_false(pair->ambiguous);
            assert_non_null(strstr(pair->recipe, "on axis 1"));
        }
        free(all);
        free_all(kernels, HEADS);
        paired_end(&paired);
    }
}

enum form { APART, IN_PAIRS, KEYS_AND_VALUES, PARTS_FIRST, LAYERS_FIRST, FORMS };

/* Keys and values of all layers, [heads, tokens, size] each; where those of all layers are one, tokens come first. */
static void add_caches(struct ts_bundle *bundle, enum form form, float *const *keys, float *const *values)
{
    float *both[LAYERS], *by_part[2];
    by_part[0] = stack_up(keys, LAYERS, 1, CACHE);
    by_part[1] = stack_up(values, LAYERS, 1, CACHE);
    for (int layer = 0; layer < LAYERS; layer++) {
        float *one[2] = {keys[layer], values[layer]};
        both[layer] = stack_up(one, 2, 1, CACHE);
        if (form == APART) {
            made_add(bundle, made_name("past_key_values.%d.0", layer), one[0], SHAPE(1, HEADS, TOKENS, SIZE));
            made_add(bundle, made_name("past_key_values.%d.1", layer), one[1], SHAPE(1, HEADS, TOKENS, SIZE));
        }
        if (form == IN_PAIRS)
            made_add(bundle, made_name("present_%d", layer), both[layer], SHAPE(2, 1, HEADS, TOKENS, SIZE));
    }
    for (int part = 0; part < 2 && form == KEYS_AND_VALUES; part++)
        made_add(bundle, part ? "value_cache" : "key_cache", by_part[part], SHAPE(LAYERS, HEADS, TOKENS, SIZE));
    if (form == PARTS_FIRST || form == LAYERS_FIRST) {
        float *all = stack_up(form == PARTS_FIRST ? by_part : both, form == PARTS_FIRST ? 2 : LAYERS, 1,
                              (form == PARTS_FIRST ? LAYERS : 2) * CACHE);
        made_add(bundle, form == PARTS_FIRST ? "kv_cache" : "past_key_values", all,
                 SHAPE(form == PARTS_FIRST ? 2 : LAYERS, form == PARTS_FIRST ? LAYERS : 2, 1, HEADS, TOKENS, SIZE));
        free(all);
    }
    free_all(both, LAYERS);
    free_all(by_part, 2);
}

/* Every form against every other one, the last layer of one side wrong. (Pairs of a layer against all keys are cut on
 * both sides, and are not brought together.) */
static void test_caches_in_every_form(void **state)
{
    (void)state;
    for (enum form a = APART; a < FORMS; a++)
        for (enum form b = APART; b < FORMS; b++) {
            float *keys[LAYERS], *values[LAYERS], *wrong[LAYERS];
            struct paired paired;
            double most = 0;
            if (a == b || (a == IN_PAIRS && b == KEYS_AND_VALUES) || (b == IN_PAIRS && a == KEYS_AND_VALUES))
                continue;
            paired_start(&paired);
            for (int layer = 0; layer < LAYERS; layer++) {
                keys[layer] = made_values(CACHE);
                values[layer] = made_values(CACHE);
                wrong[layer] = made_values(CACHE);
                if (layer + 1 < LAYERS)
                    memcpy(wrong[layer], values[layer], CACHE * sizeof(float));
            }
            add_caches(paired.a, a, keys, values);
            add_caches(paired.b, b, keys, wrong);
            paired_run(&paired, &(struct ts_pair_options){0});
            assert_int_equal(paired.pairing.only_a_count + paired.pairing.only_b_count, 0);
            for (size_t i = 0; i < paired.pairing.count; i++) {
                const struct ts_pair *pair = &paired.pairing.pairs[i];
                assert_null(pair->problem);
                assert_false(pair->partial);
                if (a == APART || b == APART) {
                    const char *name = a == APART ? pair->name : pair->name_b;
                    assert_int_equal(pair_error(pair) > 0.5, strcmp(name, "past_key_values.2.1") == 0);
                }
                most = fmax(most, pair_error(pair));
            }
            assert_true(most > 0.1);
            assert_true(paired.pairing.count >= (a == APART || b == APART ? 2 * LAYERS : 1));
            free_all(keys, LAYERS);
            free_all(values, LAYERS);
            free_all(wrong, LAYERS);
            paired_end(&paired);
        }
}

/* Two layers are all that the other side has of four: what is there stands at its number. Nothing is taken for a stack
 * that has fewer layers than there are. */
static void test_some_layers(void **state)
{
    (void)state;
    for (int count = 2; count < 6; count += 3) {
        float *kernels[5], *all;
        struct paired paired;
        paired_start(&paired);
        for (int layer = 0; layer < 5; layer++) {
            kernels[layer] = made_values(IN * OUT);
            if (layer + count >= 4 && (count == 5 || layer < 4))
                made_add(paired.b, made_name("layers.%d.mlp.up_proj.weight", layer), kernels[layer], SHAPE(IN, OUT));
        }
        all = stack_up(kernels, 4, 1, IN * OUT);
        made_add(paired.a, "decoder.layers.mlp.up_proj.weight", all, SHAPE(4, IN, OUT));
        paired_run(&paired, &(struct ts_pair_options){0});
        assert_int_equal(paired.pairing.count, count == 2 ? 2 : 0);
        for (size_t i = 0; i < paired.pairing.count; i++) {
            assert_true(pair_error(&paired.pairing.pairs[i]) == 0);
            assert_true(paired.pairing.pairs[i].partial);
        }
        free(all);
        free_all(kernels, 5);
        paired_end(&paired);
    }
}

/* MaxText: weights of all experts of all layers in one tensor, experts before layers or behind them, as many of one as
 * of the other, against a tensor for each. One that is wrong shows as such. */
static void test_experts_of_all_layers(void **state)
{
    enum { EXPERTS = LAYERS, KERNEL = IN * OUT };
    (void)state;
    for (int round = 0; round < 8; round++) {
        const bool stack_is_b = round & 1, layers_first = round & 2, spoiled = round & 4;
        float *all = made_values(LAYERS * EXPERTS * KERNEL);
        struct paired paired;
        struct ts_bundle *stack_side, *other;
        paired_start(&paired);
        stack_side = stack_is_b ? paired.b : paired.a;
        other = stack_is_b ? paired.a : paired.b;
        made_add(stack_side, "params-decoder-layers-MoeBlock_0-wi_0", all, SHAPE(LAYERS, EXPERTS, IN, OUT));
        for (int layer = 0; layer < LAYERS; layer++)
            for (int expert = 0; expert < EXPERTS; expert++) {
                const int at = layers_first ? layer * EXPERTS + expert : expert * LAYERS + layer;
                float *turned = transposed(&all[at * KERNEL], IN, OUT);
                char name[96];
                for (size_t i = 0; i < KERNEL && spoiled && layer == 1 && expert == 2; i++)
                    turned[i] = (float)(i % 5) - 2;
                snprintf(name, sizeof name, "model.layers.%d.block_sparse_moe.experts.%d.w1.weight", layer, expert);
                made_add(other, name, turned, SHAPE(OUT, IN));
                free(turned);
            }
        paired_run(&paired, &(struct ts_pair_options){0});
        assert_int_equal(paired.status, TS_OK);
        assert_int_equal(paired.pairing.count, LAYERS * EXPERTS);
        assert_int_equal(paired.pairing.only_a_count + paired.pairing.only_b_count, 0);
        for (int layer = 0; layer < LAYERS; layer++)
            for (int expert = 0; expert < EXPERTS; expert++) {
                const bool wrong = spoiled && layer == 1 && expert == 2;
                char name[96], piece[96];
                const struct ts_pair *pair;
                snprintf(name, sizeof name, "model.layers.%d.block_sparse_moe.experts.%d.w1.weight", layer, expert);
                snprintf(piece, sizeof piece, "params-decoder-layers-MoeBlock_0-wi_0[%d,%d]",
                         layers_first ? layer : expert, layers_first ? expert : layer);
                pair = paired_find(&paired, stack_is_b ? name : piece, stack_is_b ? piece : name);
                assert_int_equal(pair_error(pair) > 0.5, wrong);
                assert_true(wrong || !pair->guess);
                assert_false(pair->ambiguous || pair->partial);
            }
        free(all);
        paired_end(&paired);
    }
}

/* DeepSeek in MaxText: the first layers in one stack, the others in the next. Norms of ones tell nothing, names do. */
static void test_dense_layers_before_the_others(void **state)
{
    (void)state;
    for (int ones = 0; ones < 2; ones++)
        for (int stack_is_b = 0; stack_is_b < 2; stack_is_b++) {
            float *all = made_values(5 * IN);
            struct paired paired;
            paired_start(&paired);
            for (size_t i = 0; i < 5 * IN && ones; i++)
                all[i] = 1;
            made_add(stack_is_b ? paired.b : paired.a,
                     "params-decoder-dense_layers-pre_self_attention_layer_norm-scale", all, SHAPE(2, IN));
            made_add(stack_is_b ? paired.b : paired.a, "params-decoder-moe_layers-pre_self_attention_layer_norm-scale",
                     &all[2 * IN], SHAPE(3, IN));
            for (int layer = 0; layer < 5; layer++)
                made_add(stack_is_b ? paired.a : paired.b, made_name("model.layers.%d.input_layernorm.weight", layer),
                         &all[layer * IN], SHAPE(IN));
            paired_run(&paired, &(struct ts_pair_options){0});
            assert_all_equal(&paired, 5, 0);
            for (int layer = 0; layer < 5; layer++) {
                const char *name = made_name("model.layers.%d.input_layernorm.weight", layer);
                const char *piece =
                    made_name(layer < 2 ? "params-decoder-dense_layers-pre_self_attention_layer_norm-scale[%d]"
                                        : "params-decoder-moe_layers-pre_self_attention_layer_norm-scale[%d]",
                              layer < 2 ? layer : layer - 2);
                paired_find(&paired, stack_is_b ? name : piece, stack_is_b ? piece : name);
            }
            free(all);
            paired_end(&paired);
        }
}

/* q, k and v of all layers in one tensor, layers along the first or the second axis, against one of each for each
 * layer; and q, k and v apart, each of all layers, against one fused tensor for each. */
static void test_fused_and_stacked(void **state)
{
    enum { Q = 8, K = 4, V = 4, ALL = Q + K + V };
    static const char *const apart[3] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
    static const size_t sizes[3] = {Q, K, V}, starts[3] = {0, Q, Q + K};
    (void)state;
    for (int round = 0; round < 16; round++) {
        const bool fused_is_b = round & 1, fused_stacked = round & 2, middle = round & 4, spoiled = round & 8;
        float *fused[LAYERS], *parts[3][LAYERS];
        struct paired paired;
        struct ts_bundle *side, *other;
        paired_start(&paired);
        side = fused_is_b ? paired.b : paired.a;
        other = fused_is_b ? paired.a : paired.b;
        for (int layer = 0; layer < LAYERS; layer++) {
            fused[layer] = made_values(ALL * IN);
            for (int i = 0; i < 3; i++) {
                parts[i][layer] = made_values(sizes[i] * IN);
                if (!(spoiled && layer == 1 && i == 2))
                    memcpy(parts[i][layer], &fused[layer][starts[i] * IN], sizes[i] * IN * sizeof(float));
            }
        }
        if (fused_stacked) {
            float *all = stack_up(fused, LAYERS, middle ? ALL : 1, middle ? IN : ALL * IN);
            made_add(side, "decoder.layers.self_attention.linear_qkv.weight", all,
                     SHAPE(middle ? ALL : LAYERS, middle ? LAYERS : ALL, IN));
            free(all);
        }
        for (int layer = 0; layer < LAYERS && !fused_stacked; layer++)
            made_add(side, made_name("model.layers.%d.self_attn.qkv_proj.weight", layer), fused[layer], SHAPE(ALL, IN));
        for (int i = 0; i < 3; i++) {
            char name[96];
            if (!fused_stacked) {
                float *all = stack_up(parts[i], LAYERS, middle ? sizes[i] : 1, middle ? IN : sizes[i] * IN);
                snprintf(name, sizeof name, "decoder.layers.%s.weight", apart[i]);
                made_add(other, name, all, SHAPE(middle ? sizes[i] : LAYERS, middle ? LAYERS : sizes[i], IN));
                free(all);
            }
            for (int layer = 0; layer < LAYERS && fused_stacked; layer++) {
                snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, apart[i]);
                made_add(other, name, parts[i][layer], SHAPE(sizes[i], IN));
            }
        }
        paired_run(&paired, &(struct ts_pair_options){0});
        assert_int_equal(paired.status, TS_OK);
        assert_int_equal(paired.pairing.count, 3 * LAYERS);
        assert_int_equal(paired.pairing.only_a_count + paired.pairing.only_b_count, 0);
        for (int layer = 0; layer < LAYERS; layer++)
            for (int i = 0; i < 3; i++) {
                const char *axis = middle ? ":," : "";
                char whole[96], part[96], slice[16];
                const struct ts_pair *pair;
                snprintf(slice, sizeof slice, "[%s%d]", axis, layer);
                if (fused_stacked) {
                    snprintf(whole, sizeof whole, "decoder.layers.self_attention.linear_qkv.weight%s", slice);
                    snprintf(part, sizeof part, "model.layers.%d.%s.weight", layer, apart[i]);
                } else {
                    snprintf(whole, sizeof whole, "model.layers.%d.self_attn.qkv_proj.weight", layer);
                    snprintf(part, sizeof part, "decoder.layers.%s.weight%s", apart[i], slice);
                }
                pair = paired_find(&paired, fused_is_b ? part : whole, fused_is_b ? whole : part);
                assert_int_equal(pair_error(pair) > 0.5, spoiled && layer == 1 && i == 2);
                assert_false(pair->ambiguous);
            }
        free_all(fused, LAYERS);
        for (int i = 0; i < 3; i++)
            free_all(parts[i], LAYERS);
        paired_end(&paired);
    }
}

/* Keys and values of each layer as one against all keys and all values, the axis of two and that of layers anywhere. */
static void test_caches_of_layers_against_all_of_a_kind(void **state)
{
    (void)state;
    for (int round = 0; round < 16; round++) {
        const bool all_is_b = round & 1, inside = round & 2, second = round & 4, spoiled = round & 8;
        float *kinds[2][LAYERS];
        struct paired paired;
        paired_start(&paired);
        for (int layer = 0; layer < LAYERS; layer++) {
            float *both, *two[2];
            for (int kind = 0; kind < 2; kind++) {
                kinds[kind][layer] = made_values(CACHE);
                two[kind] = made_values(CACHE);
                if (!(spoiled && kind && layer == 1))
                    memcpy(two[kind], kinds[kind][layer], CACHE * sizeof(float));
            }
            both = stack_up(two, 2, inside ? HEADS : 1, inside ? TOKENS * SIZE : CACHE);
            made_add(all_is_b ? paired.a : paired.b, made_name("past_key_values.%d", layer), both,
                     SHAPE(inside ? HEADS : 2, inside ? 2 : HEADS, TOKENS, SIZE));
            free(both);
            free_all(two, 2);
        }
        for (int kind = 0; kind < 2; kind++) {
            float *all = stack_up(kinds[kind], LAYERS, second ? HEADS : 1, second ? TOKENS * SIZE : CACHE);
            made_add(all_is_b ? paired.b : paired.a, kind ? "value_cache" : "key_cache", all,
                     SHAPE(second ? HEADS : LAYERS, second ? LAYERS : HEADS, TOKENS, SIZE));
            free(all);
        }
        paired_run(&paired, &(struct ts_pair_options){0});
        assert_int_equal(paired.status, TS_OK);
        assert_int_equal(paired.pairing.count, 2 * LAYERS);
        assert_int_equal(paired.pairing.only_a_count + paired.pairing.only_b_count, 0);
        for (int layer = 0; layer < LAYERS; layer++)
            for (int kind = 0; kind < 2; kind++) {
                char one[64], all[64];
                const struct ts_pair *pair;
                snprintf(one, sizeof one, "past_key_values.%d[%s%d]", layer, inside ? ":," : "", kind);
                snprintf(all, sizeof all, "%s[%s%d]", kind ? "value_cache" : "key_cache", second ? ":," : "", layer);
                pair = paired_find(&paired, all_is_b ? one : all, all_is_b ? all : one);
                assert_int_equal(pair_error(pair) > 0.5, spoiled && kind && layer == 1);
            }
        free_all(kinds[0], LAYERS);
        free_all(kinds[1], LAYERS);
        paired_end(&paired);
    }
}

/* A stack of one layer is no line of a map: no tensor has the name of its layer. */
static void test_map_of_a_stack(void **state)
{
    float *kernel = made_values(IN * OUT);
    struct paired paired;
    struct ts_buffer map;
    struct ts_error error;
    (void)state;
    paired_start(&paired);
    made_add(paired.a, "decoder.layers.mlp.up_proj.weight", kernel, SHAPE(1, IN, OUT));
    made_add(paired.b, "model.layers.0.mlp.up_proj.weight", kernel, SHAPE(IN, OUT));
    paired_run(&paired, &(struct ts_pair_options){0});
    assert_int_equal(paired.pairing.count, 1);
    ts_buffer_init(&map, 65536);
    assert_int_equal(ts_pairing_put(&paired.pairing, &map, &error), TS_OK);
    assert_non_null(strstr(map.data, "# decoder.layers.mlp.up_proj.weight[0] = "));
    ts_buffer_release(&map);
    free(kernel);
    paired_end(&paired);
}

/* Many stacks, many layers, and none of one among the other: names are not gone through for each of them. */
static void test_many_that_do_not_fit(void **state)
{
    enum { MANY = 10000 };
    const float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct paired paired;
    clock_t since;
    (void)state;
    paired_start(&paired);
    for (int i = 0; i < MANY; i++) {
        made_add(paired.a, made_name("part%d.layers.mlp.wi_0.kernel", i), values, SHAPE(2, 4));
        made_add(paired.b, made_name("model.layers.%d.mlp.gate_proj.weight", i), values, SHAPE(4));
    }
    since = clock();
    paired_run(&paired, &(struct ts_pair_options){0});
    assert_true(clock() - since < 5 * CLOCKS_PER_SEC);
    assert_int_equal(paired.status, TS_OK);
    assert_int_equal(paired.pairing.count, 0);
    paired_end(&paired);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers_along_any_axis), cmocka_unit_test(test_axes_of_one_size),
        cmocka_unit_test(test_caches_in_every_form),  cmocka_unit_test(test_some_layers),
        cmocka_unit_test(test_map_of_a_stack),        cmocka_unit_test(test_many_that_do_not_fit),
        cmocka_unit_test(test_experts_of_all_layers), cmocka_unit_test(test_dense_layers_before_the_others),
        cmocka_unit_test(test_fused_and_stacked),     cmocka_unit_test(test_caches_of_layers_against_all_of_a_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
