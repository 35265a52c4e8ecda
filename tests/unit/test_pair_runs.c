/* Whole runs that are captured by two programs: ranks in folders of any name, other names, other layer numbers, outputs
 * that are tuples; and the map that is saved of such a pairing. */
#include <math.h>

#include "made_bundle.h"
#include "scratch.h"

enum { LAYERS = 3, FIRST = 3, RANKS = 4, TOKENS = 5, WIDTH = 16 };

static const uint64_t whole[3] = {1, TOKENS, WIDTH};

/* What one rank holds: columns of q, all of a norm's output, a part of the sum that the output projection makes. */
static void add_ranks(struct ts_bundle *bundle, const char *folder, int layer, const float *q, const float *norm,
                      const float *parts)
{
    for (int rank = 0; rank < RANKS; rank++) {
        float share[TOKENS * WIDTH / RANKS];
        char name[128];
        for (int token = 0; token < TOKENS; token++)
            for (int i = 0; i < WIDTH / RANKS; i++)
                share[token * WIDTH / RANKS + i] = q[token * WIDTH + rank * WIDTH / RANKS + i];
        snprintf(name, sizeof name, "%strace:attn_norm-%d", made_name(folder, rank), layer);
        made_add(bundle, name, norm, SHAPE(TOKENS, WIDTH));
        snprintf(name, sizeof name, "%strace:Qcur-%d", made_name(folder, rank), layer);
        made_add(bundle, name, share, SHAPE(TOKENS, WIDTH / RANKS));
        snprintf(name, sizeof name, "%strace:attn_out-%d", made_name(folder, rank), layer);
        made_add(bundle, name, parts + (size_t)rank * TOKENS * WIDTH, SHAPE(TOKENS, WIDTH));
    }
}

static void add_both(struct paired *paired, const char *folder, int spoiled)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        float *q = made_values(TOKENS * WIDTH), *norm = made_values(TOKENS * WIDTH);
        float *parts = made_values(RANKS * TOKENS * WIDTH), sum[TOKENS * WIDTH];
        for (size_t i = 0; i < TOKENS * WIDTH; i++) {
            sum[i] = 0;
            for (size_t rank = 0; rank < RANKS; rank++)
                sum[i] += parts[rank * TOKENS * WIDTH + i];
        }
        if (layer == spoiled)
            for (size_t i = 0; i < RANKS * TOKENS * WIDTH; i++)
                parts[i] = (float)(i % 7) - 3;
        made_add(paired->a, made_name("model.layers.%d.input_layernorm", layer + FIRST), norm, 3, whole);
        made_add(paired->a, made_name("model.layers.%d.self_attn.q_proj", layer + FIRST), q, 3, whole);
        made_add(paired->a, made_name("model.layers.%d.self_attn.o_proj", layer + FIRST), sum, 3, whole);
        add_ranks(paired->b, folder, layer, q, norm, parts);
        free(q);
        free(norm);
        free(parts);
    }
}

static void test_ranks_in_folders(void **state)
{
    static const char *const folders[] = {"rank%d/", "tp-%d/",  "model_%d/",       "part%d/",  "cuda_%d/",
                                          "run/p%d", "node%d/", "shards/part_%d/", "dump.%d/", "engine%d/"};
    (void)state;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        struct paired paired;
        const bool ranks = strcmp(folders[i], "run/p%d") != 0; /* run/p0trace: says nothing */
        paired_start(&paired);
        add_both(&paired, folders[i], -1);
        paired_run(&paired, NULL);
        if (ranks) {
            assert_all_equal(&paired, 3 * LAYERS, 1e-6);
            assert_int_equal(paired.pairing.layer_offset, FIRST);
            assert_string_equal(paired_find(&paired, "model.layers.4.self_attn.o_proj", NULL)->recipe,
                                "A: squeeze 0; B: sum of 4 shards");
            assert_string_equal(paired_find(&paired, "model.layers.3.self_attn.q_proj", NULL)->recipe,
                                "A: squeeze 0; B: join 4 shards on axis 1");
            assert_string_equal(paired_find(&paired, "model.layers.5.input_layernorm", NULL)->recipe,
                                "A: squeeze 0; B: rank 0 of 4 equal shards");
        } else {
            assert_int_equal(paired.pairing.count, 0);
        }
        paired_end(&paired);
    }
}

/* Every rank counts its dumps from 0, and the folder of a step may stand inside of that of a rank. */
static void test_counted_dumps_of_ranks(void **state)
{
    static const char *const kinds[] = {"model.layers.0.input_layernorm", "model.layers.0.self_attn.q_proj",
                                        "model.layers.0.mlp.gate_proj"};
    static const char *const forms[] = {"rank%d/%04d_",         "rank_%d/%d-",           "run/tp%d/%d.",
                                        "gpu%d_%03d_",          "model_%d/%04d_",        "dump_rank%d/tensors/%04d_",
                                        "rank_%d/step_5/%04d_", "tp_rank_%d/step0:%04d_"};
    (void)state;
    for (size_t form = 0; form < sizeof forms / sizeof *forms; form++) {
        struct paired paired;
        float *values = made_values(4 * TOKENS * WIDTH);
        paired_start(&paired);
        made_add(paired.a, "model.embed_tokens", values + 3 * TOKENS * WIDTH, SHAPE(TOKENS, WIDTH));
        for (int i = 0; i < 3; i++)
            made_add(paired.a, kinds[i], values + i * TOKENS * WIDTH, SHAPE(TOKENS, WIDTH));
        for (int rank = 0; rank < RANKS; rank++) {
            char name[128];
            size_t length;
            snprintf(name, sizeof name, forms[form], rank, 0);
            length = strlen(name);
            snprintf(name + length, sizeof name - length, "model.embed_tokens");
            made_add(paired.b, name, values + 3 * TOKENS * WIDTH, SHAPE(TOKENS, WIDTH));
            for (int i = 0; i < 3; i++) {
                float share[TOKENS * WIDTH];
                const int width = i ? WIDTH / RANKS : WIDTH;
                for (int k = 0; k < TOKENS * width; k++)
                    share[k] = values[i * TOKENS * WIDTH + k / width * WIDTH + (i ? rank * width : 0) + k % width];
                snprintf(name, sizeof name, forms[form], rank, i + 1);
                length = strlen(name);
                snprintf(name + length, sizeof name - length, "%s", kinds[i]);
                made_add(paired.b, name, share, SHAPE(TOKENS, (uint64_t)width));
            }
        }
        paired_run(&paired, NULL);
        assert_all_equal(&paired, 4, 0);
        paired_end(&paired);
        free(values);
    }
}

/* Layers that give what they computed and the stream apart, in every rank; the last one is wrong. A run whose layers
 * give their outputs beside something else of the same size is left as it is. */
static void test_streams_in_two_parts(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++)
        for (int apart = 0; apart < 2; apart++) {
            struct paired paired;
            const struct ts_pair *pair;
            const char *name = "model.layers.1";
            paired_start(&paired);
            for (int layer = 0; layer < LAYERS; layer++) {
                float *computed = made_values(TOKENS * WIDTH), *stream = made_values(TOKENS * WIDTH);
                float sum[TOKENS * WIDTH];
                for (size_t i = 0; i < TOKENS * WIDTH; i++)
                    sum[i] = apart ? computed[i] + stream[i] : computed[i];
                made_add(paired.a, made_name("model.layers.%d", layer), sum, 3, whole);
                for (size_t i = 0; i < TOKENS * WIDTH && layer == LAYERS - 1; i++)
                    computed[i] = (float)(i % 7) - 3;
                for (int rank = 0; rank < ranks; rank++) {
                    const char *folder = ranks == 1 ? "" : rank ? "rank1/trace:" : "rank0/trace:";
                    char other[64];
                    snprintf(other, sizeof other, "%smodel.layers.%d.output.0", folder, layer);
                    made_add(paired.b, other, computed, SHAPE(TOKENS, WIDTH));
                    snprintf(other, sizeof other, "%smodel.layers.%d.output.1", folder, layer);
                    made_add(paired.b, other, stream, SHAPE(TOKENS, WIDTH));
                }
                free(computed);
                free(stream);
            }
            paired_run(&paired, NULL);
            assert_int_equal(paired.pairing.count, LAYERS);
            assert_int_equal(paired.pairing.only_b_count, apart ? 0 : ranks * LAYERS);
            pair = paired_find(&paired, name, NULL);
            assert_true(pair_error(pair) < 1e-6);
            assert_int_equal(strstr(pair->recipe, "B: plus output.1") != NULL, apart);
            pair = paired_find(&paired, "model.layers.2", NULL);
            assert_int_equal(strstr(pair->recipe, "B: plus output.1") != NULL, apart);
            assert_true(pair_error(pair) > 0.5);
            paired_end(&paired);
        }
}

/* One layer gives its output whole, beside the stream that others need: nothing is added to what agrees. */
static void test_one_stream_is_whole(void **state)
{
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (int layer = 0; layer < LAYERS; layer++) {
        float *computed = made_values(TOKENS * WIDTH), *stream = made_values(TOKENS * WIDTH), sum[TOKENS * WIDTH];
        for (size_t i = 0; i < TOKENS * WIDTH; i++)
            sum[i] = computed[i] + stream[i];
        made_add(paired.a, made_name("model.layers.%d", layer), sum, 3, whole);
        made_add(paired.b, made_name("model.layers.%d.output.0", layer), layer == 1 ? sum : computed,
                 SHAPE(TOKENS, WIDTH));
        made_add(paired.b, made_name("model.layers.%d.output.1", layer), stream, SHAPE(TOKENS, WIDTH));
        free(computed);
        free(stream);
    }
    paired_run(&paired, NULL);
    assert_int_equal(paired.pairing.count, LAYERS);
    for (int layer = 0; layer < LAYERS; layer++) {
        const struct ts_pair *pair = paired_find(&paired, made_name("model.layers.%d", layer), NULL);
        assert_true(pair_error(pair) < 1e-6);
        assert_int_equal(strstr(pair->recipe, "B: plus output.1") != NULL, layer != 1);
    }
    paired_end(&paired);
}

/* Many wrong tensors of a layer, and many without a partner: what is tried in vain takes no memory. */
static void test_crowd_without_partners(void **state)
{
    enum { CROWD = 400 };
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (int i = 0; i < 2 * CROWD; i++) {
        float *values = made_values(2 * TOKENS * WIDTH);
        const char *name = made_name(i < CROWD ? "model.layers.0.made%d" : "model.layers.0.left%d", i);
        if (i < CROWD)
            made_add(paired.a, name, values, SHAPE(TOKENS, WIDTH));
        made_add(paired.b, name, values + TOKENS * WIDTH, SHAPE(TOKENS, WIDTH));
        free(values);
    }
    paired_run(&paired, &(struct ts_pair_options){0});
    assert_int_equal(paired.pairing.count, CROWD);
    assert_int_equal(paired.pairing.only_b_count, CROWD);
    assert_true(paired.pairing.arena.total < (size_t)4 << 20);
    paired_end(&paired);
}

/* An activation that takes gate and up as one gives their product. The other side's does not: it stands alone, and the
 * product is what goes into down. */
static void test_activation_of_both(void **state)
{
    (void)state;
    for (int multiplied = 0; multiplied < 2; multiplied++)
        for (int with_input = 0; with_input < 2; with_input++) {
            struct paired paired;
            paired_start(&paired);
            for (int layer = 0; layer < LAYERS; layer++) {
                float *gate = made_values(TOKENS * WIDTH), *up = made_values(TOKENS * WIDTH);
                float both[2 * TOKENS * WIDTH], activated[TOKENS * WIDTH], product[TOKENS * WIDTH];
                for (size_t i = 0; i < TOKENS * WIDTH; i++) {
                    both[i / WIDTH * 2 * WIDTH + i % WIDTH] = gate[i];
                    both[i / WIDTH * 2 * WIDTH + WIDTH + i % WIDTH] = up[i];
                    activated[i] = (float)((double)gate[i] / (1 + exp(-(double)gate[i])));
                    product[i] = activated[i] * up[i];
                }
                made_add(paired.a, made_name("model.layers.%d.mlp.gate_proj", layer), gate, 3, whole);
                made_add(paired.a, made_name("model.layers.%d.mlp.up_proj", layer), up, 3, whole);
                made_add(paired.a, made_name("model.layers.%d.mlp.act_fn", layer), activated, 3, whole);
                if (with_input)
                    made_add(paired.a, made_name("model.layers.%d.mlp.down_proj.input", layer), product, 3, whole);
                made_add(paired.b, made_name("model.layers.%d.mlp.gate_up_proj", layer), both,
                         SHAPE(TOKENS, 2 * WIDTH));
                made_add(paired.b, made_name("model.layers.%d.mlp.act_fn", layer), multiplied ? product : activated,
                         SHAPE(TOKENS, WIDTH));
                free(gate);
                free(up);
            }
            paired_run(&paired, NULL);
            assert_int_equal(paired.pairing.count, (multiplied && !with_input ? 2 : 3) * LAYERS);
            for (size_t i = 0; i < paired.pairing.count; i++)
                assert_true(pair_error(&paired.pairing.pairs[i]) == 0);
            assert_int_equal(paired.pairing.only_a_count, multiplied || with_input ? LAYERS : 0);
            assert_int_equal(paired.pairing.only_b_count, multiplied && !with_input ? LAYERS : 0);
            assert_int_equal(paired.pairing.note_count, multiplied ? 1 : 0);
            paired_end(&paired);
        }
}

/* Both sides call the product their activation, and one has gate and up apart: they are partners by their names, also
 * where the product is wrong. */
static void test_activation_of_two(void **state)
{
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (int layer = 0; layer < LAYERS; layer++) {
        float *gate = made_values(TOKENS * WIDTH), *up = made_values(TOKENS * WIDTH);
        float both[2 * TOKENS * WIDTH], product[2][TOKENS * WIDTH];
        for (size_t i = 0; i < TOKENS * WIDTH; i++) {
            both[i / WIDTH * 2 * WIDTH + i % WIDTH] = gate[i];
            both[i / WIDTH * 2 * WIDTH + WIDTH + i % WIDTH] = up[i];
            product[0][i] = (float)((double)gate[i] / (1 + exp(-(double)gate[i]))) * up[i];
            product[1][i] = gate[i] * up[i];
        }
        made_add(paired.a, made_name("model.layers.%d.mlp.gate_proj", layer), gate, 3, whole);
        made_add(paired.a, made_name("model.layers.%d.mlp.up_proj", layer), up, 3, whole);
        made_add(paired.a, made_name("model.layers.%d.mlp.act_fn", layer), product[0], 3, whole);
        made_add(paired.b, made_name("model.layers.%d.mlp.gate_up_proj", layer), both, SHAPE(TOKENS, 2 * WIDTH));
        made_add(paired.b, made_name("model.layers.%d.mlp.act_fn", layer), product[1], SHAPE(TOKENS, WIDTH));
        free(gate);
        free(up);
    }
    paired_run(&paired, NULL);
    assert_int_equal(paired.pairing.count, 3 * LAYERS);
    assert_int_equal(paired.pairing.note_count, 0);
    paired_find(&paired, "model.layers.0.mlp.act_fn", "model.layers.0.mlp.act_fn");
    paired_end(&paired);
}

enum { BROAD = 64 };

/* A layer's gate, up and what down takes, on some ranks; gate and up fused or apart. */
static void add_activations(struct ts_bundle *bundle, int layer, const float *gate, const float *up, size_t ranks,
                            bool fused)
{
    const size_t width = BROAD / ranks;
    for (size_t rank = 0; rank < ranks; rank++) {
        float both[2 * TOKENS * BROAD], apart[2][TOKENS * BROAD], product[TOKENS * BROAD];
        char name[64];
        for (size_t i = 0; i < TOKENS * width; i++) {
            const size_t from = i / width * BROAD + rank * width + i % width, row = i / width * 2 * width;
            apart[0][i] = both[row + i % width] = gate[from];
            apart[1][i] = both[row + width + i % width] = up[from];
            product[i] = (float)((double)gate[from] / (1 + exp(-(double)gate[from]))) * up[from];
        }
        snprintf(name, sizeof name, "rank%zu/model.layers.%d.mlp.", rank, layer);
        if (fused) {
            made_add(bundle, strcat(name, "gate_up_proj"), both, SHAPE(TOKENS, 2 * width));
        } else {
            made_add(bundle, strcat(name, "gate_proj"), apart[0], SHAPE(TOKENS, width));
            strcpy(strrchr(name, '.') + 1, "up_proj");
            made_add(bundle, name, apart[1], SHAPE(TOKENS, width));
        }
        strcpy(strrchr(name, '.') + 1, "act_fn");
        made_add(bundle, name, product, SHAPE(TOKENS, width));
    }
}

/* The same on ranks, of which the sides have other numbers; and where both have gate and up in one. */
static void test_activation_of_two_on_ranks(void **state)
{
    (void)state;
    for (int fused = 0; fused < 2; fused++) {
        struct paired paired;
        paired_start(&paired);
        for (int layer = 0; layer < LAYERS; layer++) {
            float *gate = made_values(TOKENS * BROAD), *up = made_values(TOKENS * BROAD);
            add_activations(paired.a, layer, gate, up, 4, fused);
            add_activations(paired.b, layer, gate, up, 2, true);
            free(gate);
            free(up);
        }
        paired_run(&paired, NULL);
        assert_int_equal(paired.pairing.count, (fused ? 2 : 3) * LAYERS);
        assert_int_equal(paired.pairing.note_count, 0);
        paired_find(&paired, "rank*/model.layers.0.mlp.act_fn", "rank*/model.layers.0.mlp.act_fn");
        paired_end(&paired);
    }
}

/* Dumps with numbers in front, in the folder of an archive that has them as the disk had them: the numbers are their
 * order, and no layers, and what stands behind them are the names; on either side, and with values that do not agree.
 */
static void test_numbers_in_an_archive(void **state)
{
    static const char *const parts[] = {"input_layernorm", "self_attn_q_proj", "mlp_up_proj", "mlp_down_proj"};
    (void)state;
    for (int archive_is_b = 0; archive_is_b < 2; archive_is_b++) {
        struct paired paired;
        paired_start(&paired);
        for (int i = 0; i < 12; i++) {
            const int at = archive_is_b ? i : i * 5 % 12; /* another order in A */
            float *values = made_values(TOKENS * WIDTH), *others = made_values(TOKENS * WIDTH);
            char plain[64], numbered[80];
            snprintf(plain, sizeof plain, "model.layers.%d.%s", i / 4, parts[i % 4]);
            snprintf(numbered, sizeof numbered, "run/%03d_model_layers_%d_%s", at, at / 4, parts[at % 4]);
            made_add(archive_is_b ? paired.a : paired.b, plain, values, SHAPE(TOKENS, WIDTH));
            made_add(archive_is_b ? paired.b : paired.a, numbered, others, SHAPE(TOKENS, WIDTH));
            free(values);
            free(others);
        }
        paired.a->order = paired.b->order = "order of the file";
        paired_run(&paired, NULL);
        assert_int_equal(paired.pairing.count, 12);
        for (int i = 0; i < 12; i++) {
            const struct ts_pair *pair = &paired.pairing.pairs[i];
            char name[80];
            snprintf(name, sizeof name, "run/%03d_model_layers_%d_%s", i, i / 4, parts[i % 4]);
            assert_string_equal(pair->how, "canonical name");
            assert_string_equal(archive_is_b ? pair->name_b : pair->name, name);
        }
        paired_end(&paired);
    }
}

/* A single pass of two layers that an archive has in any order, or backward, is put in the order of a pass; one that
 * goes forward keeps its own, and so do gradients. */
static void test_order_of_an_archive(void **state)
{
    static const char *const names[] = {"model.embed_tokens",
                                        "model.layers.0.post_attention_layernorm",
                                        "model.layers.0.self_attn.q_proj", /* as no model has it, but in one layer */
                                        "model.layers.0.mlp.down_proj",
                                        "model.layers.1.self_attn.q_proj",
                                        "model.layers.1.post_attention_layernorm",
                                        "model.layers.1.mlp.down_proj",
                                        "model.norm"};
    static const size_t orders[4][8] = {{0, 1, 2, 3, 4, 5, 6, 7},  /* its own */
                                        {3, 6, 0, 5, 1, 7, 4, 2},  /* as a disk has it */
                                        {7, 6, 5, 4, 3, 2, 1, 0},  /* backward */
                                        {7, 6, 5, 4, 3, 2, 1, 0}}; /* ... gradients */
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct paired paired;
        paired_start(&paired);
        for (size_t i = 0; i < 8; i++) {
            float *values = made_values(TOKENS * WIDTH);
            char text[96];
            snprintf(text, sizeof text, "%s%s", names[orders[kind][i]], kind == 3 ? ".grad" : "");
            made_add(paired.a, text, values, SHAPE(TOKENS, WIDTH));
            made_add(paired.b, text, values, SHAPE(TOKENS, WIDTH));
            free(values);
        }
        paired.a->order = paired.b->order = "order of the file";
        paired_run(&paired, NULL);
        assert_int_equal(paired.pairing.count, 8);
        for (size_t i = 0; i < 8; i++) {
            static const size_t of_a_pass[8] = {0, 2, 1, 3, 4, 5, 6, 7};
            const char *expected = names[kind == 1 || kind == 2 ? of_a_pass[i] : orders[kind][i]];
            assert_int_equal(strncmp(paired.pairing.pairs[i].name, expected, strlen(expected)), 0);
        }
        paired_end(&paired);
    }
}

/* Complex numbers are no product of halves, and twice as many numbers as are looked at. */
static void test_complex_activation(void **state)
{
    enum { WIDE = 256 };
    static const char *const names[] = {"model.layers.0.mlp.gate_up_proj", "model.layers.0.mlp.act_fn"};
    (void)state;
    for (int form = 1; form < 4; form++) {
        struct paired paired;
        float *values = made_values(TOKENS * 2 * WIDE);
        paired_start(&paired);
        for (size_t i = 0; i < 2; i++) {
            const bool is_complex = form >> i & 1;
            const uint64_t width = (uint64_t)WIDE * (i ? 1 : 2) / (is_complex ? 1 : 2);
            made_add(paired.a, names[i], values, SHAPE(TOKENS, width));
            if (is_complex)
                made_complex(paired.a, names[i]);
        }
        made_add(paired.b, names[1], values, SHAPE(TOKENS, WIDE / 2));
        paired_run(&paired, NULL);
        assert_int_equal(paired.status, TS_OK);
        assert_int_equal(paired.pairing.note_count, 0);
        free(values);
        paired_end(&paired);
    }
}

/* Logits of the last token under another name, against those of all. */
static void test_logits_of_the_last_token(void **state)
{
    struct paired paired;
    float *logits = made_values(TOKENS * WIDTH), *norm = made_values(TOKENS * WIDTH);
    (void)state;
    paired_start(&paired);
    made_add(paired.a, "model.norm", norm, 3, whole);
    made_add(paired.a, "lm_head", logits, 3, whole);
    made_add(paired.b, "result_norm", norm, SHAPE(TOKENS, WIDTH));
    made_add(paired.b, "result_output", logits + (TOKENS - 1) * WIDTH, SHAPE(1, WIDTH));
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 2, 0);
    free(logits);
    free(norm);
    paired_end(&paired);
}

/* A prefill and two tokens against one pass over all of them; where a step has the sizes of the pass, it stands alone.
 */
static void test_steps_of_one_pass(void **state)
{
    static const char *const forms[] = {"step_%d/", "step_%d:", "step%d."};
    enum { PREFILL = TOKENS - 2 };
    (void)state;
    for (size_t form = 0; form < 3; form++)
        for (int again = 0; again < 2; again++) {
            struct paired paired;
            paired_start(&paired);
            for (int layer = 0; layer < LAYERS; layer++) {
                float *values = made_values(TOKENS * WIDTH);
                char name[64], other[64];
                snprintf(name, sizeof name, "model.layers.%d.mlp", layer);
                made_add(paired.a, name, values, 3, whole);
                for (int step = 0; step < 3; step++) {
                    const int first = step ? PREFILL + step - 1 : 0, count = step ? 1 : PREFILL;
                    snprintf(other, sizeof other, "%s%s", made_name(forms[form], step), name);
                    made_add(paired.b, other, values + first * WIDTH, SHAPE(1, (uint64_t)count, WIDTH));
                }
                snprintf(other, sizeof other, "%s%s", made_name(forms[form], 3), name);
                if (again)
                    made_add(paired.b, other, values, 3, whole);
                free(values);
            }
            paired_run(&paired, NULL);
            assert_int_equal(paired.pairing.count, LAYERS);
            assert_int_equal(paired.pairing.only_b_count, again ? 3 * LAYERS : 0);
            for (size_t i = 0; i < LAYERS; i++) {
                assert_true(pair_error(&paired.pairing.pairs[i]) == 0);
                assert_string_equal(paired.pairing.pairs[i].recipe, again ? "" : "B: join 3 shards on axis 1");
            }
            paired_end(&paired);
        }
}

/* Tensors of no elements say nothing about steps: the one that has the size of the pass stands against it. */
static void test_empty_tensors_of_one_pass(void **state)
{
    struct paired paired;
    float *values = made_values(TOKENS * WIDTH);
    (void)state;
    paired_start(&paired);
    made_add(paired.a, "model.layers.0.mlp", values, 3, whole);
    for (int i = 0; i < 3; i++)
        made_add(paired.a, made_name("model.layers.%d.empty", i), values, SHAPE(0, WIDTH));
    made_add(paired.b, "step_0/model.layers.0.mlp", values, SHAPE(1, 1, WIDTH));
    made_add(paired.b, "step_1/model.layers.0.mlp", values, 3, whole);
    paired_run(&paired, NULL);
    assert_int_equal(paired.pairing.count, 1);
    assert_true(pair_error(&paired.pairing.pairs[0]) == 0);
    assert_string_equal(paired.pairing.pairs[0].recipe, "");
    free(values);
    paired_end(&paired);
}

/* Whoever follows the advice to rename gets the other step, however steps are spelled and whichever folder holds them.
 */
static void test_the_rename_of_a_step(void **state)
{
    static const struct {
        const char *form, *rename;
    } cases[] = {{"step_%d/", "s,^step_1/,,"},
                 {"step%d.", "s,^step1\\.,,"},
                 {"step_%d/rank_0/", "s,^step_1/,,"},
                 {"rank_0/step_%d/", "s,/step_1/,/,"},
                 {"rank_0/step=%d/", "s,/step=1/,/,"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int followed = 0; followed < 2; followed++) {
            const char *renames[2] = {followed ? cases[i].rename : NULL};
            struct paired paired;
            paired_start(&paired);
            for (int layer = 0; layer < LAYERS; layer++) {
                char name[64], other[96];
                snprintf(name, sizeof name, "model.layers.%d.mlp", layer);
                for (int step = 0; step < 13; step++) {
                    float *values = made_values(TOKENS * WIDTH);
                    snprintf(other, sizeof other, "%s%s", made_name(cases[i].form, step), name);
                    made_add(paired.b, other, values, 3, whole);
                    if (step == followed)
                        made_add(paired.a, name, values, 3, whole);
                    free(values);
                }
            }
            paired_run(&paired, &(struct ts_pair_options){.renames = renames});
            assert_int_equal(paired.pairing.count, LAYERS);
            assert_int_equal(has_note(&paired, cases[i].rename), !followed);
            for (size_t k = 0; k < LAYERS; k++)
                assert_true(pair_error(&paired.pairing.pairs[k]) == 0);
            paired_end(&paired);
        }
}

/* Caches under the names of other engines, one layer wrong, so that no content tells which it is. Those of an encoder
 * and scales are none. */
static void test_names_of_caches(void **state)
{
    static const char *const names[][2] = {{"past_key_values.%d.0", "past_key_values.%d.1"},
                                           {"past_key_values.%d.key", "past_key_values.%d.value"},
                                           {"present.%d.key", "present.%d.value"},
                                           {"past_key_values.layers.%d.keys", "past_key_values.layers.%d.values"},
                                           {"past_key_values.key_cache.%d", "past_key_values.value_cache.%d"},
                                           {"cache_k_l%d", "cache_v_l%d"},
                                           {"model.layers.%d.self_attn.k_cache", "model.layers.%d.self_attn.v_cache"}};
    enum { FORMS = sizeof names / sizeof *names };
    (void)state;
    for (size_t form = 1; form < FORMS; form++) {
        struct paired paired;
        paired_start(&paired);
        for (int layer = 0; layer < LAYERS; layer++)
            for (int k = 0; k < 2; k++) {
                float *values = made_values(TOKENS * WIDTH), *others = made_values(TOKENS * WIDTH);
                made_add(paired.a, made_name(names[0][k], layer), values, SHAPE(1, TOKENS, WIDTH));
                made_add(paired.b, made_name(names[form][k], layer), layer == 1 ? others : values,
                         SHAPE(1, TOKENS, WIDTH));
                free(values);
                free(others);
            }
        paired_run(&paired, &(struct ts_pair_options){0});
        assert_int_equal(paired.pairing.count, 2 * LAYERS);
        for (size_t i = 0; i < paired.pairing.count; i++) {
            const bool wrong = strstr(paired.pairing.pairs[i].name, ".1.") != NULL;
            assert_int_equal(pair_error(&paired.pairing.pairs[i]) > 0.5, wrong);
        }
        assert_string_equal(paired_find(&paired, made_name(names[0][1], 1), NULL)->name_b,
                            made_name(names[form][1], 1));
        paired_end(&paired);
    }
    for (int i = 0; i < 2; i++) {
        struct paired paired;
        float *values = made_values(TOKENS * WIDTH);
        paired_start(&paired);
        made_add(paired.a, "past_key_values.0.key", values, SHAPE(1, TOKENS, WIDTH));
        made_add(paired.b, i ? "present.0.encoder.key" : "cache_k_l0_scale", values, SHAPE(1, TOKENS, WIDTH));
        paired_run(&paired, &(struct ts_pair_options){0});
        assert_int_equal(paired.pairing.count, 0);
        free(values);
        paired_end(&paired);
    }
}

/* Numbers of modules are no ranks: nn.Sequential has model.0, and a tensor that stands under one number only is none.
 */
static void test_numbers_that_are_no_ranks(void **state)
{
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (int i = 0; i < 4; i++) {
        float *values = made_values(24);
        made_add(paired.a, made_name("model.%d.conv", i), values, SHAPE(4, 6));
        made_add(paired.b, made_name("model/part%d:conv_", i), values, SHAPE(4, 6));
        free(values);
    }
    paired_run(&paired, &(struct ts_pair_options){0});
    assert_int_equal(paired.pairing.count, 0); /* four tensors on each side, and none joined of the others */
    ts_pairing_release(&paired.pairing);
    paired_run(&paired, NULL); /* by content each finds its own */
    assert_all_equal(&paired, 4, 0);
    paired_end(&paired);
}

/* Two whole dumps in one folder, one of which is the other side's: the other one is nobody's rank. */
static void test_two_dumps_in_a_folder(void **state)
{
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (int layer = 0; layer < 4; layer++) {
        float *values = made_values(40), *others = made_values(40);
        made_add(paired.a, made_name("model.layers.%d.mlp", layer), values, SHAPE(5, 8));
        made_add(paired.b, made_name("model_0:model.layers.%d.mlp", layer), values, SHAPE(5, 8));
        made_add(paired.b, made_name("model_1:model.layers.%d.mlp", layer), others, SHAPE(5, 8));
        free(values);
        free(others);
    }
    paired_run(&paired, NULL);
    assert_int_equal(paired.pairing.count, 4);
    assert_int_equal(paired.pairing.only_b_count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_true(pair_error(&paired.pairing.pairs[i]) == 0);
        assert_non_null(strstr(paired.pairing.only_b[i]->name, "model_1:"));
    }
    paired_end(&paired);
}

/* An error in a share that several ranks hold, where the other side has an axis more: only one of them is read, and the
 * others are looked at all the same. */
static void test_share_that_differs(void **state)
{
    enum { HEAD = 4, KEYS = 2 * HEAD };
    static const char *const folders[] = {"rank%d/layer_0_qkv_proj", "dump.%d:layer_0_qkv_proj"};
    (void)state;
    for (size_t folder = 0; folder < 2; folder++) {
        struct paired paired;
        float *parts[3] = {made_values(TOKENS * WIDTH), made_values(TOKENS * KEYS), made_values(TOKENS * KEYS)};
        paired_start(&paired);
        made_add(paired.a, "model.layers.0.self_attn.q_proj", parts[0], 3, whole);
        made_add(paired.a, "model.layers.0.self_attn.k_proj", parts[1], SHAPE(1, TOKENS, KEYS));
        made_add(paired.a, "model.layers.0.self_attn.v_proj", parts[2], SHAPE(1, TOKENS, KEYS));
        for (int rank = 0; rank < RANKS; rank++) { /* 4 columns of q, then a head of k and of v for two ranks each */
            float fused[TOKENS * 12];
            for (int token = 0; token < TOKENS; token++)
                for (int i = 0; i < 12; i++)
                    fused[token * 12 + i] = i < 4 ? parts[0][token * WIDTH + rank * 4 + i]
                                                  : parts[i / 4][token * KEYS + rank / 2 * HEAD + i % 4];
            if (rank == 3)
                fused[2 * 12 + 9] += 9; /* of v */
            made_add(paired.b, made_name(folders[folder], rank), fused, SHAPE(TOKENS, 12));
        }
        paired_run(&paired, NULL);
        assert_int_equal(paired.pairing.count, 4);
        for (size_t i = 0; i < 4; i++)
            if (strchr(paired.pairing.pairs[i].name_b, '*'))
                assert_true(pair_error(&paired.pairing.pairs[i]) == 0);
        assert_true(pair_error(paired_find(&paired, "model.layers.0.self_attn.v_proj", made_name(folders[folder], 3))) >
                    0.5);
        for (int i = 0; i < 3; i++)
            free(parts[i]);
        paired_end(&paired);
    }
}

/* As many ranks on both sides, called otherwise: rank by rank. */
static void test_same_ranks_in_other_folders(void **state)
{
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (int rank = 0; rank < 4; rank++) {
        float *values = made_values(40);
        made_add(paired.a, made_name("rank%d/t:model.layers.0.mlp", rank), values, SHAPE(5, 8));
        values[7] += 9;
        made_add(paired.b, made_name("part_%d/dump:model.layers.0.mlp", rank), values, SHAPE(5, 8));
        free(values);
    }
    paired_run(&paired, &(struct ts_pair_options){0});
    assert_int_equal(paired.pairing.count, 4);
    paired_find(&paired, "rank2/t:model.layers.0.mlp", "part_2/dump:model.layers.0.mlp");
    paired_end(&paired);
}

/* What the output projection is called is proved in the other layers; in the one that is wrong it is paired as well. */
static void test_kind_proved_elsewhere(void **state)
{
    (void)state;
    for (int ranks = 0; ranks < 2; ranks++) {
        struct paired paired;
        paired_start(&paired);
        if (ranks) {
            add_both(&paired, "rank%d/", 1);
        } else {
            for (int layer = 0; layer < LAYERS; layer++) {
                float *values = made_values(TOKENS * WIDTH);
                made_add(paired.a, made_name("model.layers.%d.mlp.down_proj", layer), values, 3, whole);
                for (size_t i = 0; i < TOKENS * WIDTH && layer == 1; i++)
                    values[i] = (float)(i % 5);
                made_add(paired.b, made_name("ffn_out-%d", layer), values, SHAPE(TOKENS, WIDTH));
                free(values);
            }
        }
        paired_run(&paired, NULL);
        assert_int_equal(paired.status, TS_OK);
        assert_int_equal(paired.pairing.only_a_count, 0);
        assert_int_equal(paired.pairing.only_b_count, 0);
        assert_true(
            pair_error(paired_find(&paired, ranks ? "model.layers.4.self_attn.o_proj" : "model.layers.1.mlp.down_proj",
                                   NULL)) > 0.1);
        paired_end(&paired);
    }
}

static void test_map_keeps_ranks(void **state)
{
    struct paired paired;
    struct ts_pairing first;
    struct ts_pair_options options = {.by_content = true};
    (void)state;
    paired_start(&paired);
    add_both(&paired, "model_%d/", 2);
    paired_run(&paired, &options);
    assert_int_equal(paired.pairing.count, 3 * LAYERS);
    assert_int_equal(ts_pairing_save(&paired.pairing, scratch_path("ranks.map"), &paired.error), TS_OK);
    first = paired.pairing;
    options.map_file = scratch_path("ranks.map");
    paired_run(&paired, &options);
    assert_int_equal(paired.status, TS_OK);
    assert_int_equal(paired.pairing.count, first.count);
    assert_false(has_note(&paired, "ranks.map"));
    for (size_t i = 0; i < first.count; i++) {
        assert_string_equal(paired.pairing.pairs[i].how, "map");
        assert_string_equal(paired.pairing.pairs[i].name, first.pairs[i].name);
        assert_string_equal(paired.pairing.pairs[i].name_b, first.pairs[i].name_b);
        assert_string_equal(paired.pairing.pairs[i].recipe, first.pairs[i].recipe);
    }
    ts_pairing_release(&first);
    paired_end(&paired);
}

static void test_map_of_any_name(void **state)
{
    static const char *const names[] = {"two\nlines", "a \\n b", " blank ", "x = y", "#", "q\" + r"};
    const size_t count = sizeof names / sizeof *names;
    struct paired paired;
    struct ts_pair_options options = {.by_content = true};
    (void)state;
    paired_start(&paired);
    for (size_t i = 0; i < count; i++) {
        float *values = made_values(16);
        made_add(paired.a, names[i], values, SHAPE(16));
        made_add(paired.b, names[count - 1 - i], values, SHAPE(16));
        free(values);
    }
    paired_run(&paired, &options);
    assert_int_equal(paired.pairing.count, count);
    assert_int_equal(ts_pairing_save(&paired.pairing, scratch_path("names.map"), &paired.error), TS_OK);
    ts_pairing_release(&paired.pairing);
    options.map_file = scratch_path("names.map");
    paired_run(&paired, &options);
    assert_int_equal(paired.status, TS_OK);
    assert_int_equal(paired.pairing.count, count);
    for (size_t i = 0; i < count; i++)
        assert_string_equal(paired_find(&paired, names[i], names[i])->how, "map");
    paired_end(&paired);
}

/* An engine's own word in front of layers that begin at another number. */
static void test_offset_under_a_prefix(void **state)
{
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (int layer = 0; layer < 4; layer++) {
        float *values = made_values(32);
        made_add(paired.a, made_name("model.layers.%d.mlp.up_proj", layer + 5), values, SHAPE(4, 8));
        values[3] += 9; /* no content to go by */
        values[17] -= 9;
        made_add(paired.b, made_name("my_engine.layers.%d.mlp.up_proj", layer), values, SHAPE(4, 8));
        free(values);
    }
    paired_run(&paired, &(struct ts_pair_options){0});
    assert_int_equal(paired.pairing.count, 4);
    assert_int_equal(paired.pairing.layer_offset, 5);
    assert_string_equal(paired_find(&paired, "model.layers.7.mlp.up_proj", NULL)->name_b,
                        "my_engine.layers.2.mlp.up_proj");
    paired_end(&paired);
}

static void test_outputs_of_tuples(void **state)
{
    static const char *const names[][2] = {
        {"model.layers.0.self_attn.0", "model.layers.0.self_attn"},
        {"model.layers.0.self_attn.1", "model.layers.0.self_attn.output.1"},
        {"model.layers.0.0", "model.layers.0"},
        {"model.layers.0.1", "model.layers.0.output.1"},
        {"model.rotary_emb.0", "model.rotary_emb"},
        {"model.rotary_emb.1", "model.rotary_emb.output.1"},
        {"model.layers.0.self_attn.input", "model.layers.0.self_attn.input.hidden_states"},
        {"model.layers.0.odd.part.0", "model.layers.0.odd.part"},
        {"model.layers.0.odd.part.2", "model.layers.0.odd.part.output.2"},
    };
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int side = 0; side < 2; side++) { /* unrelated values: names alone bring them together */
            float *values = made_values(20);
            made_add(side ? paired.b : paired.a, names[i][side], values, SHAPE(4, 5));
            free(values);
        }
    paired_run(&paired, NULL);
    assert_int_equal(paired.pairing.count, sizeof names / sizeof *names);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        paired_find(&paired, names[i][0], names[i][1]);
    paired_end(&paired);
}

/* Options that do nothing are told. */
static void test_idle_options(void **state)
{
    static const char *const renames[] = {"s/nothing/else/", NULL};
    struct paired paired;
    FILE *file = fopen(scratch_path("twice.map"), "w");
    (void)state;
    assert_non_null(file);
    fputs("x = y\nx = z\n", file);
    fclose(file);
    paired_start(&paired);
    for (int i = 0; i < 2; i++) {
        float *values = made_values(12);
        made_add(paired.a, i ? "w" : "x", values, SHAPE(3, 4));
        made_add(paired.b, i ? "z" : "y", values, SHAPE(3, 4));
        free(values);
    }
    paired_run(&paired, &(struct ts_pair_options){.renames = renames,
                                                  .dims = "x: tokens; nowhere: tokens dim",
                                                  .map_file = scratch_path("twice.map")});
    assert_int_equal(paired.status, TS_OK);
    assert_true(has_note(&paired, "changes no name"));
    assert_true(has_note(&paired, "names 1 axes for \"x\", but x has 2"));
    assert_true(has_note(&paired, "\"nowhere\" matches no name"));
    assert_true(has_note(&paired, "line 2 of"));
    paired_end(&paired);
}

/* A dump of the first and the last numbers against the whole: in the same order it is taken at its word, in another
 * only where the values agree. */
static void check_ends(const char *declared, const char *sample, size_t head, size_t tail, float spoil, bool taken)
{
    struct paired paired;
    struct ts_error error;
    float *values = made_values(2 * 30 * 4), *part = made_values(head + tail);
    paired_start(&paired);
    made_add(paired.a, "layers.0.mlp", values, SHAPE(1, 8, 30));
    memcpy(part, values, head * sizeof *part);
    memcpy(part + head, values + 240 - tail, tail * sizeof *part);
    for (size_t i = 0; i < head + tail; i++)
        part[i] += spoil * (float)(i % 3);
    made_add(paired.b, "layer_0_mlp", part, SHAPE(head + tail));
    paired.b->tensors[0]->sampled = true;
    assert_int_equal(ts_bundle_attribute(paired.b, paired.b->tensors[0], "declared shape", declared, &error), TS_OK);
    assert_int_equal(ts_bundle_attribute(paired.b, paired.b->tensors[0], "sample", sample, &error), TS_OK);
    paired_run(&paired, NULL);
    assert_int_equal(paired.pairing.count, 1);
    if ((paired.pairing.pairs[0].problem == NULL) != taken)
        fail_msg("%s, %s: %s, off by %g", declared, sample, paired.pairing.pairs[0].recipe,
                 pair_error(&paired.pairing.pairs[0]));
    if (taken && spoil == 0)
        assert_true(pair_error(&paired.pairing.pairs[0]) == 0);
    else if (taken)
        assert_true(pair_error(&paired.pairing.pairs[0]) > 0.1);
    free(values);
    free(part);
    paired_end(&paired);
}

static void test_ends_of_dumps(void **state)
{
    (void)state;
    check_ends("8x30", "first 20 and last 25 of 240", 20, 25, 0, true);
    check_ends("(8, 30)", "first 35 of 240", 35, 0, 0, true);
    check_ends("8x30", "first 20 and last 25 of 240", 20, 25, 3, true); /* a finding */
    check_ends("8x2x15", "first 20 and last 25 of 240", 20, 25, 0, true);
    check_ends("2x8x15", "first 20 and last 25 of 240", 20, 25, 3, false); /* another order, perhaps */
    check_ends("8x31", "first 20 and last 25 of 248", 20, 25, 3, false);
    check_ends("8x30", "first 21 and last 25 of 240", 20, 25, 3, false); /* hostile */
    check_ends("8x30", "first 18446744073709551615 and last 46 of 240", 20, 25, 3, false);
}

/* Nothing in the names, and some tensors several times over: the same number of them on both sides are partners. */
static void test_copies_without_names(void **state)
{
    struct paired paired;
    float *twice = made_values(40), *once = made_values(40), *thrice = made_values(40);
    (void)state;
    paired_start(&paired);
    made_add(paired.a, "foo", twice, SHAPE(5, 8));
    made_add(paired.a, "bar", once, SHAPE(5, 8));
    made_add(paired.a, "baz", twice, SHAPE(5, 8));
    made_add(paired.a, "boo", thrice, SHAPE(5, 8));
    made_add(paired.b, "one", thrice, SHAPE(5, 8));
    made_add(paired.b, "two", twice, SHAPE(40));
    made_add(paired.b, "three", twice, SHAPE(5, 8));
    made_add(paired.b, "four", thrice, SHAPE(5, 8));
    made_add(paired.b, "five", once, SHAPE(5, 8));
    paired_run(&paired, NULL);
    assert_int_equal(paired.pairing.count, 3);
    paired_find(&paired, "foo", "two");
    paired_find(&paired, "baz", "three");
    paired_find(&paired, "bar", "five");
    assert_int_equal(paired.pairing.only_a_count, 1); /* one against two: which, cannot be told */
    free(twice);
    free(once);
    free(thrice);
    paired_end(&paired);
}

/* An archive whose members lie as a disk kept them says nothing about a run; one that goes through its layers does. */
static void test_order_of_members(void **state)
{
    static const char *const kinds[] = {"value", "key", "query", "post_mlp"};
    (void)state;
    for (int scrambled = 0; scrambled < 2; scrambled++) {
        struct paired paired;
        paired_start(&paired);
        for (size_t i = 0; i < 24; i++) {
            /* values before keys, which no forward pass does: the order of the file is told by that */
            const size_t place = scrambled ? i * 11 % 24 : i;
            float *values = made_values(32);
            char name[64];
            snprintf(name, sizeof name, "%zu_%s", place / 4, kinds[place % 4]);
            made_add(paired.a, name, values, SHAPE(4, 8));
            made_add(paired.b, name, values, SHAPE(4, 8));
            free(values);
        }
        paired.a->order = paired.b->order = "order of the files";
        paired_run(&paired, NULL);
        assert_int_equal(paired.pairing.count, 24);
        assert_string_equal(paired.pairing.order, scrambled ? "order of a forward pass" : "order of the files of A");
        assert_string_equal(paired.pairing.pairs[5].name, "1_key");
        assert_string_equal(paired.pairing.pairs[4].name, scrambled ? "1_query" : "1_value");
        paired_end(&paired);
    }
}

/* A list as transformers gives it against layers by name: numbers count from the embedding on, and the last one stands
 * behind the norm. From layer 2 on nothing agrees, and the names alone say what belongs together. */
static void check_hidden_states(const char *format, bool norm, bool embedding, bool swapped)
{
    enum { STATES = 5 };
    struct paired paired;
    struct ts_bundle *list, *layers;
    paired_start(&paired);
    list = swapped ? paired.b : paired.a;
    layers = swapped ? paired.a : paired.b;
    for (int i = 0; i < STATES; i++) {
        float *values = made_values(TOKENS * WIDTH);
        const bool last = embedding && i == STATES - 1;
        made_add(list, made_name(format, i), values, 3, whole);
        for (size_t k = 0; i >= 3 && !last && k < TOKENS * WIDTH; k++)
            values[k] = -values[TOKENS * WIDTH - 1 - k];
        if (embedding && i == 0)
            made_add(layers, "model.embed_tokens", values, SHAPE(TOKENS, WIDTH));
        else
            made_add(layers, made_name("model.layers.%d", i - embedding), values, SHAPE(TOKENS, WIDTH));
        free(values);
    }
    if (norm) { /* it is behind this one that the list ends */
        float *values = made_values(TOKENS * WIDTH);
        made_add(layers, "model.norm", values, SHAPE(TOKENS, WIDTH));
        free(values);
    }
    paired_run(&paired, NULL);
    for (int i = embedding; i < STATES - embedding; i++) {
        const char *one = made_name(format, i), *other = made_name("model.layers.%d", i - embedding);
        assert_non_null(paired_find(&paired, swapped ? other : one, swapped ? one : other));
    }
    if (embedding) {
        const char *one = made_name(format, 0);
        assert_non_null(
            paired_find(&paired, swapped ? "model.embed_tokens" : one, swapped ? one : "model.embed_tokens"));
    }
    paired_end(&paired);
}

/* Three tensors without names against three layers that none of them is of. */
static void test_numbers_that_are_no_layers(void **state)
{
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (int i = 0; i < 3; i++) {
        float *one = made_values(TOKENS * WIDTH), *other = made_values(TOKENS * WIDTH);
        made_add(paired.a, made_name("%d", i), one, SHAPE(TOKENS, WIDTH));
        made_add(paired.b, made_name("model.layers.%d", i), other, SHAPE(TOKENS, WIDTH));
        free(one);
        free(other);
    }
    paired_run(&paired, NULL);
    assert_int_equal(paired.pairing.count, 0);
    paired_end(&paired);
}

static void test_hidden_states(void **state)
{
    static const char *const formats[] = {"hidden_states.%d", "hidden_states_%d", "arr_%d", "%d"};
    (void)state;
    for (size_t i = 0; i < 4; i++)
        for (int way = 0; way < 8; way++)
            check_hidden_states(formats[i], way & 1, way & 2, way & 4);
}

/* A run of four layers in words that no table knows on one side, with the same sizes in the same order; from tensor
 * `wrong` on nothing agrees, and from `right` on it does again. words: by layer, or each tensor has its own. */
static void run_of_strange_words(struct paired *paired, bool words, int wrong, int right)
{
    static const char *const known[] = {"attn_norm", "self_attn.q_proj", "mlp.up_proj", "mlp.down_proj"};
    static const char *const strange[] = {"zephyr", "quartz2", "marble", "copper"};
    paired_start(paired);
    for (int i = 0; i < 16; i++) {
        const uint64_t width = i % 4 == 2 ? 48 : 16;
        float *values = made_values(9 * width), *others = made_values(9 * width);
        char name[64];
        snprintf(name, sizeof name, "model.layers.%d.%s", i / 4, known[i % 4]);
        made_add(paired->a, name, values, SHAPE(9, width));
        if (words)
            snprintf(name, sizeof name, "%s_%d", strange[i % 4], i / 4);
        else
            snprintf(name, sizeof name, "word%c", 'z' - i);
        made_add(paired->b, name, i >= wrong && i < right ? others : values, SHAPE(9, width));
        free(values);
        free(others);
    }
    paired_run(paired, NULL);
    assert_int_equal(paired->status, TS_OK);
}

/* Behind a fault no values agree any more: what content said of the layers before it holds for the others too. */
static void test_words_of_other_layers(void **state)
{
    struct paired paired;
    (void)state;
    run_of_strange_words(&paired, true, 9, 15); /* the end agrees, so that order is not asked */
    assert_int_equal(paired.pairing.count, 16);
    for (int i = 0; i < 16; i++) {
        const struct ts_pair *pair = &paired.pairing.pairs[i];
        assert_string_equal(pair->name, paired.a->tensors[i]->name);
        assert_string_equal(pair->name_b, paired.b->tensors[i]->name);
        assert_string_equal(pair->how, i >= 9 && i < 15 ? "content of other layers" : "content");
    }
    paired_end(&paired);
}

/* Words that say nothing at all: the order of both sides does, where the runs part ways. Where they agree in the end,
 * what is left over was captured somewhere else. */
static void test_places_in_order(void **state)
{
    struct paired paired;
    (void)state;
    run_of_strange_words(&paired, false, 6, 16);
    assert_int_equal(paired.pairing.count, 16);
    for (int i = 0; i < 16; i++) {
        assert_string_equal(paired.pairing.pairs[i].name_b, paired.b->tensors[i]->name);
        assert_string_equal(paired.pairing.pairs[i].how, i >= 6 ? "place in order" : "content");
    }
    paired_end(&paired);
    run_of_strange_words(&paired, false, 6, 12);
    assert_int_equal(paired.pairing.count, 10);
    paired_end(&paired);
    run_of_strange_words(&paired, false, 2, 16); /* too little to go by */
    assert_int_equal(paired.pairing.count, 2);
    paired_end(&paired);
}

/* Points that only one side was captured at. Before the fault they say nothing about the others, and behind it what may
 * stand at two places stays alone; all that was paired so is called that. Where both sides have points of their own
 * between pairs that agree, order means nothing. */
static void test_places_between_others(void **state)
{
    (void)state;
    for (int way = 0; way < 8; way++) {
        const bool swapped = way % 2, both = way / 2 == 3;
        const int dropped = way / 2 == 0 ? 1 : way / 2 == 1 ? 10 : way / 2 == 2 ? 12 : 1;
        struct paired paired;
        paired_start(&paired);
        for (int i = 0; i < 16; i++) { /* 16 16 48 16, and so on */
            const uint64_t width = i % 4 == 2 ? 48 : 16;
            float *values = made_values(9 * width), *others = made_values(9 * width);
            const char letters[] = {'n', (char)('z' - i), '\0'};
            made_add(swapped ? paired.b : paired.a, made_name("val_%d", 100 + i), values, SHAPE(9, width));
            for (int k = 0; k < 2 && both && i == dropped; k++)
                made_add(swapped ? paired.a : paired.b, k ? "its" : "own", others, SHAPE(9, width));
            if (i != dropped)
                made_add(swapped ? paired.a : paired.b, letters, i >= 7 ? others : values, SHAPE(9, width));
            free(values);
            free(others);
        }
        paired_run(&paired, NULL);
        /* the 48 is told from its neighbours; of three that are alike, with one of them missing, none is */
        assert_int_equal(paired.pairing.count, both ? 6 : dropped == 12 ? 13 : 15);
        for (size_t i = 0; i < paired.pairing.count; i++) {
            const struct ts_pair *pair = &paired.pairing.pairs[i];
            const char *one = swapped ? pair->name_b : pair->name, *other = swapped ? pair->name : pair->name_b;
            assert_int_equal(atoi(one + strlen("val_")), 100 + 'z' - other[1]);
            assert_int_equal(pair->by_order, 'z' - other[1] >= 7);
            assert_int_equal(strcmp(pair->how, "place in order") == 0, pair->by_order);
        }
        paired_end(&paired);
    }
}

/* Two ranks that hold layers 2 and 3 of four, counted from 0: what both hold is what layers 2 and 3 hold, and so are no
 * stages of a pipeline. */
static void test_ranks_are_no_stages(void **state)
{
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (int layer = 0; layer < 4; layer++) {
        float *norm = made_values(9 * 16), *query = made_values(9 * 16), piece[9 * 8];
        made_add(paired.a, made_name("layers.%d.attn_norm", layer), norm, SHAPE(9, 16));
        made_add(paired.a, made_name("layers.%d.attn_q", layer), query, SHAPE(9, 16));
        for (int rank = 0; rank < 2 && layer >= 2; rank++) {
            const char *folder = rank ? "tp1/layers.%d.attn_norm" : "tp0/layers.%d.attn_norm";
            for (int i = 0; i < 9 * 8; i++)
                piece[i] = query[i / 8 * 16 + rank * 8 + i % 8];
            made_add(paired.b, made_name(folder, layer - 2), norm, SHAPE(9, 16));
            made_add(paired.b, made_name(rank ? "tp1/layers.%d.attn_q" : "tp0/layers.%d.attn_q", layer - 2), piece,
                     SHAPE(9, 8));
        }
        free(norm);
        free(query);
    }
    paired_run(&paired, NULL);
    assert_int_equal(paired.pairing.layer_offset, 2);
    assert_int_equal(paired.pairing.count, 4);
    assert_int_equal(paired.pairing.only_a_count, 4);
    assert_int_equal(paired.pairing.only_b_count, 0);
    for (size_t i = 0; i < paired.pairing.count; i++)
        assert_true(pair_error(&paired.pairing.pairs[i]) == 0);
    paired_end(&paired);
}

/* What some call an activation is the product with the other half for others: proved by the values of one layer, in
 * pieces too. */
static void test_activations_in_pieces(void **state)
{
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (int layer = 0; layer < 2; layer++) {
        float *values = made_values(9 * 16), piece[9 * 8];
        made_add(paired.a, made_name("ffn_gate_par-%d", layer), values, SHAPE(9, 16));
        for (int rank = 0; rank < 2; rank++) {
            for (int i = 0; i < 9 * 8; i++)
                piece[i] = values[i / 8 * 16 + rank * 8 + i % 8];
            made_add(paired.b, made_name(rank ? "rank1/layers.%d.mlp.act" : "rank0/layers.%d.mlp.act", layer), piece,
                     SHAPE(9, 8));
        }
        free(values);
    }
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 2, 0);
    paired_end(&paired);
}

/* A GGUF file with the tensors of a run: what its names say are no weights, and their order is that of the run. */
static void test_run_in_gguf(void **state)
{
    static const char *const known[] = {"model.layers.%d.self_attn.q_proj", "model.layers.%d.mlp.down_proj"};
    static const char *const dumped[] = {"Qcur-%d", "ffn_out-%d"};
    struct paired paired;
    (void)state;
    paired_start(&paired);
    assert_int_equal(ts_bundle_meta(paired.b, "general.architecture", "llama", &paired.error), TS_OK);
    for (int i = 0; i < 6; i++) {
        float *values = made_values(9 * 16), *others = made_values(9 * 16);
        made_add(paired.a, made_name(known[i % 2], i / 2), values, SHAPE(9, 16));
        made_add(paired.b, made_name(dumped[i % 2], i / 2), others, SHAPE(9, 16)); /* of which nothing agrees */
        free(values);
        free(others);
    }
    paired_run(&paired, NULL);
    assert_int_equal(paired.pairing.count, 6);
    for (size_t i = 0; i < 6; i++)
        assert_string_equal(paired.pairing.pairs[i].name_b, paired.b->tensors[i]->name);
    paired_end(&paired);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_dumps_in_a_folder),
        cmocka_unit_test(test_share_that_differs),
        cmocka_unit_test(test_same_ranks_in_other_folders),
        cmocka_unit_test(test_ranks_in_folders),
        cmocka_unit_test(test_counted_dumps_of_ranks),
        cmocka_unit_test(test_streams_in_two_parts),
        cmocka_unit_test(test_one_stream_is_whole),
        cmocka_unit_test(test_crowd_without_partners),
        cmocka_unit_test(test_activation_of_both),
        cmocka_unit_test(test_activation_of_two),
        cmocka_unit_test(test_activation_of_two_on_ranks),
        cmocka_unit_test(test_order_of_an_archive),
        cmocka_unit_test(test_numbers_in_an_archive),
        cmocka_unit_test(test_complex_activation),
        cmocka_unit_test(test_the_rename_of_a_step),
        cmocka_unit_test(test_names_of_caches),
        cmocka_unit_test(test_steps_of_one_pass),
        cmocka_unit_test(test_empty_tensors_of_one_pass),
        cmocka_unit_test(test_logits_of_the_last_token),
        cmocka_unit_test(test_numbers_that_are_no_ranks),
        cmocka_unit_test(test_kind_proved_elsewhere),
        cmocka_unit_test(test_map_keeps_ranks),
        cmocka_unit_test(test_map_of_any_name),
        cmocka_unit_test(test_offset_under_a_prefix),
        cmocka_unit_test(test_outputs_of_tuples),
        cmocka_unit_test(test_idle_options),
        cmocka_unit_test(test_ends_of_dumps),
        cmocka_unit_test(test_order_of_members),
        cmocka_unit_test(test_copies_without_names),
        cmocka_unit_test(test_hidden_states),
        cmocka_unit_test(test_numbers_that_are_no_layers),
        cmocka_unit_test(test_words_of_other_layers),
        cmocka_unit_test(test_places_in_order),
        cmocka_unit_test(test_places_between_others),
        cmocka_unit_test(test_ranks_are_no_stages),
        cmocka_unit_test(test_activations_in_pieces),
        cmocka_unit_test(test_run_in_gguf),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
