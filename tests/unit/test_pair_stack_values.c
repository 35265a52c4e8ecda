/* Stacks that no name tells, found by what they hold: weights, activations and caches of all layers under the names
 * that programs give their arrays; where they stand in execution order; and what is left of them behind a fault. */
#include "made_bundle.h"

enum { LAYERS = 4, WIDE = 16, HIGH = 24, HEADS = 2, TOKENS = 5, SIZE = 6, ROOM = 9, CACHE = HEADS * TOKENS * SIZE };

static const struct ts_pair_options by_content = {.by_content = true};

static float *stack_up(float *const *pieces, size_t count, size_t size)
{
    float *all = made_values(count * size);
    for (size_t i = 0; i < count; i++)
        memcpy(&all[i * size], pieces[i], size * sizeof *all);
    return all;
}

static void free_all(float **list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(list[i]);
}

/* Values that the other side computed: off by some roundings, so that nothing is equal to the last bit. */
static float *nearly(const float *values, size_t count)
{
    float *out = made_values(count);
    for (size_t i = 0; i < count; i++)
        out[i] = values[i] * (1 + 1e-6f * (float)(i % 3));
    return out;
}

/* Rows of each head from halves to pairs, as programs have them that turn neighbouring channels. */
static float *paired_rows(const float *values, size_t heads, size_t rows, size_t columns)
{
    const size_t size = rows / heads, half = size / 2;
    float *out = made_values(rows * columns);
    for (size_t row = 0; row < rows; row++) {
        const size_t head = row / size, in = row % size, to = head * size + 2 * (in % half) + in / half;
        memcpy(&out[to * columns], &values[row * columns], columns * sizeof *out);
    }
    return out;
}

/* rms_att_weight, wq, w3 of all layers, as small C programs keep them: norms that are alike, square weights, and q with
 * its rows permuted. In either order of the two sides. */
static void test_weights_of_small_programs(void **state)
{
    (void)state;
    for (int stack_is_b = 0; stack_is_b < 2; stack_is_b++) {
        static const char *const names[5] = {
            "model.layers.%d.input_layernorm.weight", "model.layers.%d.post_attention_layernorm.weight",
            "model.layers.%d.self_attn.q_proj.weight", "model.layers.%d.self_attn.o_proj.weight",
            "model.layers.%d.mlp.up_proj.weight"};
        static const char *const stacks[5] = {"rms_att_weight", "rms_ffn_weight", "wq", "wo", "w3"};
        const size_t sizes[5] = {WIDE, WIDE, WIDE * WIDE, WIDE * WIDE, HIGH * WIDE};
        struct paired paired;
        struct ts_bundle *single, *whole;
        paired_start(&paired);
        single = stack_is_b ? paired.a : paired.b;
        whole = stack_is_b ? paired.b : paired.a;
        for (int kind = 0; kind < 5; kind++) {
            float *pieces[LAYERS], *all;
            for (int layer = 0; layer < LAYERS; layer++) {
                float *values = made_values(sizes[kind]);
                for (size_t i = 0; i < sizes[kind] && kind < 2; i++)
                    values[i] = 1 + values[i] / 50;
                made_add(single, made_name(names[kind], layer), values, kind < 2 ? 1 : 2,
                         (uint64_t[]){kind < 2 ? WIDE : sizes[kind] / WIDE, WIDE});
                pieces[layer] = kind == 2 ? paired_rows(values, HEADS, WIDE, WIDE) : nearly(values, sizes[kind]);
                free(values);
            }
            all = stack_up(pieces, LAYERS, sizes[kind]);
            made_add(whole, stacks[kind], all, kind < 2 ? 2 : 3,
                     (uint64_t[]){LAYERS, kind < 2 ? WIDE : sizes[kind] / WIDE, WIDE});
            free(all);
            free_all(pieces, LAYERS);
        }
        paired_run(&paired, &by_content);
        assert_all_equal(&paired, 5 * LAYERS, 1e-5);
        for (int kind = 0; kind < 5; kind++)
            for (int layer = 0; layer < LAYERS; layer++) {
                char piece[64];
                const char *name = made_name(names[kind], layer);
                const struct ts_pair *pair;
                snprintf(piece, sizeof piece, "%s[%d]", stacks[kind], layer);
                pair = paired_find(&paired, stack_is_b ? name : piece, stack_is_b ? piece : name);
                assert_string_equal(pair->how, "content");
                assert_false(pair->ambiguous);
                assert_false(pair->by_order);
            }
        paired_end(&paired);
    }
}

/* Tensors of the sizes of stacks that hold something else stay alone, and so do norms around 1 that are others. */
static void test_sizes_alone_prove_nothing(void **state)
{
    struct paired paired;
    float *other = made_values(LAYERS * WIDE * WIDE);
    (void)state;
    paired_start(&paired);
    for (int layer = 0; layer < LAYERS; layer++) {
        float *values = made_values(WIDE * WIDE);
        made_add(paired.a, made_name("model.layers.%d.self_attn.q_proj.weight", layer), values, SHAPE(WIDE, WIDE));
        for (size_t i = 0; i < WIDE; i++)
            values[i] = 1 + values[i] / 50;
        made_add(paired.a, made_name("model.layers.%d.input_layernorm.weight", layer), values, SHAPE(WIDE));
        free(values);
    }
    made_add(paired.b, "wz", other, SHAPE(LAYERS, WIDE, WIDE));
    for (size_t i = 0; i < LAYERS * WIDE; i++)
        other[i] = 1 + other[i] / 50;
    made_add(paired.b, "gains", other, SHAPE(LAYERS, WIDE));
    paired_run(&paired, &by_content);
    assert_int_equal(paired.status, TS_OK);
    assert_int_equal(paired.pairing.count, 0);
    free(other);
    paired_end(&paired);
}

/* Norms that are all 1 fit each other: every one has a partner, and it is said that another would do as well. */
static void test_equal_norms_are_ambiguous(void **state)
{
    struct paired paired;
    float ones[LAYERS * WIDE];
    size_t ambiguous = 0;
    (void)state;
    for (size_t i = 0; i < LAYERS * WIDE; i++)
        ones[i] = 1;
    paired_start(&paired);
    for (int layer = 0; layer < LAYERS; layer++) {
        made_add(paired.a, made_name("model.layers.%d.input_layernorm.weight", layer), ones, SHAPE(WIDE));
        made_add(paired.a, made_name("model.layers.%d.post_attention_layernorm.weight", layer), ones, SHAPE(WIDE));
    }
    made_add(paired.b, "gain_a", ones, SHAPE(LAYERS, WIDE));
    made_add(paired.b, "gain_b", ones, SHAPE(LAYERS, WIDE));
    paired_run(&paired, &by_content);
    assert_all_equal(&paired, 2 * LAYERS, 0);
    for (size_t i = 0; i < paired.pairing.count; i++)
        ambiguous += paired.pairing.pairs[i].ambiguous;
    assert_true(ambiguous >= LAYERS);
    paired_end(&paired);
}

/* Both of all layers under a name that says little, [layers, 2, heads, tokens, size] or with tokens before heads; both
 * of one layer beside its attention; and keys and values that are only numbered. */
static void test_caches_under_any_name(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++) {
        float *parts[2 * LAYERS], *all;
        struct paired paired;
        paired_start(&paired);
        for (int i = 0; i < 2 * LAYERS; i++) {
            float *values = made_values(CACHE);
            parts[i] = made_values(CACHE);
            for (size_t at = 0; at < CACHE; at++) { /* tokens before heads */
                const size_t token = at / SIZE % TOKENS, head = at / SIZE / TOKENS;
                parts[i][form == 1 ? (token * HEADS + head) * SIZE + at % SIZE : at] = values[at];
            }
            made_add(paired.a,
                     form == 3 ? made_name(i % 2 ? "values_%d" : "keys_%d", i / 2)
                               : made_name(i % 2 ? "past_key_values.%d.1" : "past_key_values.%d.0", i / 2),
                     values, SHAPE(HEADS, TOKENS, SIZE));
            free(values);
        }
        all = stack_up(parts, 2 * LAYERS, CACHE);
        for (int layer = 0; layer < LAYERS && form == 2; layer++)
            made_add(paired.b, made_name("layers.%d.attn.kv", layer), &all[layer * 2 * CACHE],
                     SHAPE(2, HEADS, TOKENS, SIZE));
        if (form == 1)
            made_add(paired.b, "kv", all, SHAPE(LAYERS, 2, TOKENS, HEADS, SIZE));
        else if (form != 2)
            made_add(paired.b, form == 3 ? "kv_cache" : "kv", all, SHAPE(LAYERS, 2, HEADS, TOKENS, SIZE));
        paired_run(&paired, &by_content);
        assert_all_equal(&paired, 2 * LAYERS, 0);
        free(all);
        free_all(parts, 2 * LAYERS);
        paired_end(&paired);
    }
}

/* Queries, keys and values of a layer in one tensor with an axis of three, [3, heads, tokens, size] or [tokens, 3,
 * heads, size]; what goes wrong from layer 2 on holds the same. */
static void test_packed_queries_keys_and_values(void **state)
{
    static const char *const names[3] = {"model.layers.%d.self_attn.q_proj", "model.layers.%d.self_attn.k_proj",
                                         "model.layers.%d.self_attn.v_proj"};
    (void)state;
    for (int form = 0; form < 4; form++) {
        const bool tokens_first = form % 2, packed_is_b = form / 2;
        struct paired paired;
        paired_start(&paired);
        for (int layer = 0; layer < LAYERS; layer++) {
            float packed[3 * CACHE];
            for (size_t part = 0; part < 3; part++) {
                float *values = made_values(CACHE); /* [tokens, heads * size] */
                made_add(packed_is_b ? paired.a : paired.b, made_name(names[part], layer), values,
                         SHAPE(1, TOKENS, HEADS * SIZE));
                for (size_t i = 0; i < CACHE; i++) {
                    const size_t token = i / (HEADS * SIZE), head = i / SIZE % HEADS, at = i % SIZE;
                    packed[tokens_first ? ((token * 3 + part) * HEADS + head) * SIZE + at
                                        : ((part * HEADS + head) * TOKENS + token) * SIZE + at] =
                        layer < 2 ? values[i] : (float)(i % 7) - 3;
                }
                free(values);
            }
            if (tokens_first)
                made_add(packed_is_b ? paired.b : paired.a, made_name("model.layers.%d.attn.qkv", layer), packed,
                         SHAPE(TOKENS, 3, HEADS, SIZE));
            else
                made_add(packed_is_b ? paired.b : paired.a, made_name("model.layers.%d.attn.qkv", layer), packed,
                         SHAPE(3, HEADS, TOKENS, SIZE));
        }
        paired_run(&paired, &by_content);
        assert_int_equal(paired.pairing.count, 3 * LAYERS);
        assert_int_equal(paired.pairing.only_a_count + paired.pairing.only_b_count, 0);
        for (int layer = 0; layer < LAYERS; layer++)
            for (int part = 0; part < 3; part++) {
                const char *name = made_name(names[part], layer);
                char piece[64];
                const struct ts_pair *pair;
                snprintf(piece, sizeof piece, "model.layers.%d.attn.qkv[%s%d]", layer, tokens_first ? ":," : "", part);
                pair = paired_find(&paired, packed_is_b ? name : piece, packed_is_b ? piece : name);
                assert_string_equal(pair->how, layer < 2 ? "content" : "content of other layers");
                assert_null(pair->problem);
                if (layer < 2)
                    assert_true(pair_error(pair) == 0);
            }
        paired_end(&paired);
    }
}

/* A cache that was made for more tokens than have come: the rest of it is zero. */
static void test_caches_with_room(void **state)
{
    (void)state;
    for (int cache_is_b = 0; cache_is_b < 2; cache_is_b++) {
        float *all = calloc(LAYERS * 2 * HEADS * ROOM * SIZE, sizeof *all);
        struct paired paired;
        assert_non_null(all);
        paired_start(&paired);
        for (size_t i = 0; i < 2 * LAYERS; i++) {
            float *values = made_values(CACHE);
            for (size_t head = 0; head < HEADS; head++)
                memcpy(&all[(i * HEADS + head) * ROOM * SIZE], &values[head * TOKENS * SIZE],
                       TOKENS * SIZE * sizeof *all);
            made_add(cache_is_b ? paired.a : paired.b,
                     made_name(i % 2 ? "past_key_values.%d.value" : "past_key_values.%d.key", (int)i / 2), values,
                     SHAPE(1, HEADS, TOKENS, SIZE));
            free(values);
        }
        made_add(cache_is_b ? paired.b : paired.a, "kv_cache", all, SHAPE(LAYERS, 2, 1, HEADS, ROOM, SIZE));
        paired_run(&paired, &by_content);
        assert_all_equal(&paired, 2 * LAYERS, 0);
        for (size_t i = 0; i < paired.pairing.count; i++)
            assert_non_null(strstr(paired.pairing.pairs[i].recipe, "(the rest is zero)"));
        free(all);
        paired_end(&paired);
    }
}

/* Hidden states of a run in one tensor: the embedding, what each layer makes, and the last norm in place of what the
 * last layer makes; or that itself. */
static void test_hidden_states_in_one(void **state)
{
    (void)state;
    for (int normed = 0; normed < 2; normed++) {
        float *states[LAYERS + 2], *all;
        struct paired paired;
        const struct ts_pair *pair;
        paired_start(&paired);
        for (int i = 0; i < LAYERS + 2; i++) {
            states[i] = made_values(TOKENS * WIDE);
            made_add(paired.a,
                     i == 0            ? "model.embed_tokens"
                     : i == LAYERS + 1 ? "model.norm"
                                       : made_name("model.layers.%d", i - 1),
                     states[i], SHAPE(1, TOKENS, WIDE));
        }
        if (normed) {
            float *swapped = states[LAYERS];
            states[LAYERS] = states[LAYERS + 1];
            states[LAYERS + 1] = swapped;
        }
        all = stack_up(states, LAYERS + 1, TOKENS * WIDE);
        made_add(paired.b, "hidden_states", all, SHAPE(LAYERS + 1, TOKENS, WIDE));
        paired_run(&paired, &by_content);
        assert_int_equal(paired.pairing.count, LAYERS + 1);
        for (size_t i = 0; i < paired.pairing.count; i++)
            assert_true(pair_error(&paired.pairing.pairs[i]) == 0);
        pair = paired_find(&paired, "model.layers.1", "hidden_states[2]");
        assert_string_equal(pair->how, "content");
        paired_find(&paired, normed ? "model.norm" : made_name("model.layers.%d", LAYERS - 1), "hidden_states[4]");
        free(all);
        free_all(states, LAYERS + 2);
        paired_end(&paired);
    }
}

/* Three points of each layer, on one side as three stacks; from point `fault` of layer 0 on nothing agrees. */
static void add_run(struct paired *paired, bool stacks_are_a, int fault, bool other_order)
{
    static const char *const names[3] = {"model.layers.%d.mix", "model.layers.%d.act", "model.layers.%d.out"};
    static const char *const stacks[3] = {"q", "a", "m"};
    float *values[3][LAYERS];
    for (int layer = 0; layer < LAYERS; layer++)
        for (int point = 0; point < 3; point++) {
            values[point][layer] = made_values(TOKENS * WIDE);
            made_add(stacks_are_a ? paired->b : paired->a, made_name(names[point], layer), values[point][layer],
                     SHAPE(TOKENS, WIDE));
            for (size_t i = 0; i < TOKENS * WIDE && (layer > 0 || point >= fault); i++)
                values[point][layer][i] = (float)((i * 7 + (size_t)(layer * 3 + point) * 13) % 11) - 5;
        }
    for (int i = 0; i < 3; i++) {
        const int point = other_order ? (i + 1) % 3 : i;
        float *all = stack_up(values[point], LAYERS, TOKENS * WIDE);
        made_add(stacks_are_a ? paired->a : paired->b, stacks[point], all, SHAPE(LAYERS, TOKENS, WIDE));
        free(all);
    }
    for (int point = 0; point < 3; point++)
        free_all(values[point], LAYERS);
    paired->a->order = paired->b->order = "order of the file";
}

/* A run is through a layer before it comes to the next: where the reference has stacks the candidate tells the order.
 */
static void test_order_of_stacks(void **state)
{
    struct paired paired;
    (void)state;
    paired_start(&paired);
    add_run(&paired, true, 3, false);
    paired_run(&paired, &by_content);
    assert_int_equal(paired.pairing.count, 3 * LAYERS);
    for (size_t i = 0; i < paired.pairing.count; i++) {
        char name[32];
        snprintf(name, sizeof name, "%c[%d]", "qam"[i % 3], (int)i / 3);
        assert_string_equal(paired.pairing.pairs[i].name, name);
    }
    paired_end(&paired);
}

/* The third point is wrong in all layers: its place behind the other two tells it, which is said. Where those two are
 * not in order, nothing does. */
static void test_place_behind_a_fault(void **state)
{
    (void)state;
    for (int other_order = 0; other_order < 2; other_order++) {
        struct paired paired;
        paired_start(&paired);
        add_run(&paired, false, 2, other_order);
        paired_run(&paired, &by_content);
        assert_int_equal(paired.pairing.count, other_order ? 2 * LAYERS : 3 * LAYERS);
        assert_int_equal(has_note(&paired, "by position alone"), !other_order);
        for (size_t i = 0; i < paired.pairing.count; i++)
            assert_int_equal(paired.pairing.pairs[i].by_order, paired.pairing.pairs[i].name_b[0] == 'm');
        paired_end(&paired);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_of_small_programs), cmocka_unit_test(test_sizes_alone_prove_nothing),
        cmocka_unit_test(test_equal_norms_are_ambiguous), cmocka_unit_test(test_caches_under_any_name),
        cmocka_unit_test(test_caches_with_room),          cmocka_unit_test(test_packed_queries_keys_and_values),
        cmocka_unit_test(test_hidden_states_in_one),      cmocka_unit_test(test_order_of_stacks),
        cmocka_unit_test(test_place_behind_a_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
