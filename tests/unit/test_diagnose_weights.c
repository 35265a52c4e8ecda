/* Causes that need the model's weights or its configuration: the weight that was used is named, and nothing is said
 * where nothing is wrong. */
#include "made_trace.h"

enum { TOKENS = 12, HEADS = 4, SIZE = 16, HIDDEN = HEADS * SIZE, WIDE = 160, LAYERS = 4 };

/* A file of random weights, and a trace of one layer of it. */
struct model {
    struct trace trace;
    struct ts_bundle *file, *file_b;
    float norm[LAYERS][HIDDEN], bias[LAYERS][HIDDEN];
    float q[LAYERS][HIDDEN * HIDDEN], k[LAYERS][HIDDEN * HIDDEN], v[LAYERS][HIDDEN * HIDDEN],
        o[LAYERS][HIDDEN * HIDDEN];
    float gate[LAYERS][WIDE * HIDDEN], up[LAYERS][WIDE * HIDDEN];
    float x[2][TOKENS * HIDDEN], normed[2][TOKENS * HIDDEN], other[2][TOKENS * HIDDEN];
};

static void fill(float *values, size_t count, double size, double mean)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(mean + size * (dice_number() + dice_number() + dice_number()));
}

static void add_weights(struct ts_bundle *file, const struct model *model)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        made_add(file, made_name("model.layers.%d.input_layernorm.weight", layer), model->norm[layer], SHAPE(HIDDEN));
        made_add(file, made_name("model.layers.%d.self_attn.q_proj.weight", layer), model->q[layer],
                 SHAPE(HIDDEN, HIDDEN));
        made_add(file, made_name("model.layers.%d.self_attn.q_proj.bias", layer), model->bias[layer], SHAPE(HIDDEN));
        made_add(file, made_name("model.layers.%d.self_attn.k_proj.weight", layer), model->k[layer],
                 SHAPE(HIDDEN, HIDDEN));
        made_add(file, made_name("model.layers.%d.self_attn.v_proj.weight", layer), model->v[layer],
                 SHAPE(HIDDEN, HIDDEN));
        made_add(file, made_name("model.layers.%d.self_attn.o_proj.weight", layer), model->o[layer],
                 SHAPE(HIDDEN, HIDDEN));
        made_add(file, made_name("model.layers.%d.mlp.gate_proj.weight", layer), model->gate[layer],
                 SHAPE(WIDE, HIDDEN));
        made_add(file, made_name("model.layers.%d.mlp.up_proj.weight", layer), model->up[layer], SHAPE(WIDE, HIDDEN));
    }
}

static void apply_norm(const float *x, const float *weight, double one, float *out)
{
    for (size_t t = 0; t < TOKENS; t++) {
        double square = 1e-6;
        for (size_t i = 0; i < HIDDEN; i++)
            square += (double)x[t * HIDDEN + i] * (double)x[t * HIDDEN + i] / HIDDEN;
        for (size_t i = 0; i < HIDDEN; i++)
            out[t * HIDDEN + i] =
                (float)((double)x[t * HIDDEN + i] / sqrt(square) * (one + (weight ? (double)weight[i] : 0)));
    }
}

/* y[t][o] = sum over i of x[t][i] * matrix[o * row + i * column]. */
static void multiply(const float *x, const float *matrix, size_t out, size_t row, size_t column, const float *bias,
                     float *y)
{
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t o = 0; o < out; o++) {
            double sum = bias ? (double)bias[o] : 0;
            for (size_t i = 0; i < HIDDEN; i++)
                sum += (double)x[t * HIDDEN + i] * (double)matrix[o * row + i * column];
            y[t * out + o] = (float)sum;
        }
}

static void model_start(struct model *model, double noise)
{
    trace_start(&model->trace);
    dice_state = 1234;
    for (int layer = 0; layer < LAYERS; layer++) {
        fill(model->norm[layer], HIDDEN, 0.2, 1);
        fill(model->bias[layer], HIDDEN, 0.3, 0);
        fill(model->q[layer], HIDDEN * HIDDEN, 0.1, 0);
        fill(model->k[layer], HIDDEN * HIDDEN, 0.1, 0);
        fill(model->v[layer], HIDDEN * HIDDEN, 0.1, 0);
        fill(model->o[layer], HIDDEN * HIDDEN, 0.1, 0);
        fill(model->gate[layer], WIDE * HIDDEN, 0.1, 0);
        fill(model->up[layer], WIDE * HIDDEN, 0.1, 0);
    }
    fill(model->x[0], TOKENS * HIDDEN, 1, 0.2);
    fill(model->other[0], TOKENS * HIDDEN, 1, 0);
    shake(model->x[0], model->x[1], TOKENS * HIDDEN, noise);
    shake(model->other[0], model->other[1], TOKENS * HIDDEN, noise);
    for (int side = 0; side < 2; side++)
        apply_norm(model->x[side], model->norm[2], 0, model->normed[side]);
    model->file = ts_bundle_new("weights");
    add_weights(model->file, model);
}

/* Hands the file over and adds what comes before the tensor in question. */
static void model_trace(struct model *model, const char *config)
{
    struct ts_source *source = NULL;
    struct ts_error error;
    if (config)
        assert_int_equal(ts_source_copy(config, strlen(config), "models/config.json", &source, &error), TS_OK);
    if (ts_evidence_make(model->file, model->file_b, source, &model->trace.evidence, &error) != TS_OK)
        fail_msg("%s", error.message);
    ts_source_release(source);
    trace_add(&model->trace, "model.layers.2.other", model->other[0], model->other[1], SHAPE(TOKENS, HIDDEN));
    trace_add(&model->trace, "model.layers.2.input", model->x[0], model->x[1], SHAPE(TOKENS, HIDDEN));
}

/* Diagnoses a projection of the normed input. */
static void diagnose_product(struct model *model, const char *name, size_t out, const float *reference,
                             const float *candidate)
{
    model_trace(model, NULL);
    trace_add(&model->trace, "model.layers.2.input_layernorm", model->normed[0], model->normed[1],
              SHAPE(TOKENS, HIDDEN));
    trace_diagnose(&model->trace, trace_add(&model->trace, name, reference, candidate, SHAPE(TOKENS, (uint64_t)out)));
}

#define Q_PROJ "model.layers.2.self_attn.q_proj"

static void test_honest_is_silent(void **state)
{
    static const double sizes[] = {1e-7, 2e-3};
    (void)state;
    for (size_t s = 0; s < 2; s++) {
        struct model *model = calloc(1, sizeof *model);
        float a[TOKENS * HIDDEN], b[TOKENS * HIDDEN];
        model_start(model, sizes[s]);
        multiply(model->normed[0], model->q[2], HIDDEN, HIDDEN, 1, model->bias[2], a);
        multiply(model->normed[1], model->q[2], HIDDEN, HIDDEN, 1, model->bias[2], b);
        shake(b, b, TOKENS * HIDDEN, sizes[s]);
        diagnose_product(model, Q_PROJ, HIDDEN, a, b);
        assert_silent(&model->trace);
        trace_end(&model->trace);
        free(model);
    }
}

/* What came in wrong goes out wrong: the product is replayed on the candidate's own input, and is right. */
static void test_inherited_is_said(void **state)
{
    struct model *model = calloc(1, sizeof *model);
    float a[TOKENS * HIDDEN], b[TOKENS * HIDDEN];
    (void)state;
    model_start(model, 1e-7);
    for (size_t i = 0; i < TOKENS * HIDDEN; i++)
        model->normed[1][i] *= i % 3 ? 1 : 1.4f;
    multiply(model->normed[0], model->q[2], HIDDEN, HIDDEN, 1, model->bias[2], a);
    multiply(model->normed[1], model->q[2], HIDDEN, HIDDEN, 1, model->bias[2], b);
    diagnose_product(model, Q_PROJ, HIDDEN, a, b);
    assert_silent(&model->trace);
    assert_non_null(strstr(model->trace.diagnosis.strongest, "the error comes from model.layers.2.input_layernorm"));
    trace_end(&model->trace);
    free(model);
}

/* The candidate multiplies with another matrix of the file. */
static void expect_product(const char *name, size_t out, const float *(*matrix)(const struct model *, int), size_t row,
                           size_t column, const float *(*right)(const struct model *, int), bool bias, const char *id,
                           const char *words)
{
    struct model *model = calloc(1, sizeof *model);
    float *a = malloc(TOKENS * out * sizeof *a), *b = malloc(TOKENS * out * sizeof *b);
    model_start(model, 1e-6);
    multiply(model->normed[0], right(model, 2), out, HIDDEN, 1, bias ? model->bias[2] : NULL, a);
    multiply(model->normed[1], matrix(model, 3), out, row, column, bias ? model->bias[2] : NULL, b);
    diagnose_product(model, name, out, a, b);
    assert_first(&model->trace, id, words);
    trace_end(&model->trace);
    free(a);
    free(b);
    free(model);
}

#define MATRIX(what, layer)                                                                                            \
    static const float *what##_##layer(const struct model *model, int unused)                                          \
    {                                                                                                                  \
        (void)unused;                                                                                                  \
        return model->what[layer];                                                                                     \
    }
MATRIX(q, 2)
MATRIX(q, 3)
MATRIX(k, 2)
MATRIX(v, 2)
MATRIX(gate, 2)
MATRIX(up, 2)

static void test_another_weight(void **state)
{
    (void)state;
    expect_product("model.layers.2.self_attn.k_proj", HIDDEN, v_2, HIDDEN, 1, k_2, false, "swapped-with",
                   "uses model.layers.2.self_attn.v_proj.weight instead of "
                   "model.layers.2.self_attn.k_proj.weight");
    expect_product("model.layers.2.mlp.gate_proj", WIDE, up_2, HIDDEN, 1, gate_2, false, "swapped-with",
                   "uses model.layers.2.mlp.up_proj.weight instead of");
    expect_product("model.layers.2.self_attn.q_proj", HIDDEN, q_3, HIDDEN, 1, q_2, false, "swapped-with",
                   "uses model.layers.3.self_attn.q_proj.weight instead of");
    /* names that no table knows: which weight it is follows from the values */
    expect_product("step_17", HIDDEN, q_3, HIDDEN, 1, q_2, false, "swapped-with",
                   "instead of model.layers.2.self_attn.q_proj.weight");
}

static void test_transposed(void **state)
{
    (void)state;
    expect_product(Q_PROJ, HIDDEN, q_2, 1, HIDDEN, q_2, false, "transposed-weight", "q_proj.weight transposed");
    expect_product("model.layers.2.mlp.up_proj", WIDE, up_2, 1, WIDE, up_2, false, "transposed-weight",
                   "of shape [160,64] as [64,160] in the same memory");
}

static void test_random_weights(void **state)
{
    struct model *model = calloc(1, sizeof *model);
    float a[TOKENS * HIDDEN], b[TOKENS * HIDDEN], fresh[HIDDEN * HIDDEN];
    (void)state;
    model_start(model, 1e-6);
    fill(fresh, HIDDEN * HIDDEN, 0.02, 0);
    multiply(model->normed[0], model->q[2], HIDDEN, HIDDEN, 1, NULL, a);
    multiply(model->normed[1], fresh, HIDDEN, HIDDEN, 1, NULL, b);
    diagnose_product(model, Q_PROJ, HIDDEN, a, b);
    assert_first(&model->trace, "unrelated", "weights not loaded or random");
    assert_non_null(strstr(model->trace.diagnosis.causes[0].summary, "no weight of that shape in the file"));
    trace_end(&model->trace);
    free(model);
}

static void test_bias(void **state)
{
    static const struct {
        double times;
        const char *words;
    } ways[] = {{0, "does not add model.layers.2.self_attn.q_proj.bias"},
                {2, "adds model.layers.2.self_attn.q_proj.bias twice"}};
    (void)state;
    for (size_t w = 0; w < 2; w++) {
        struct model *model = calloc(1, sizeof *model);
        float a[TOKENS * HIDDEN], b[TOKENS * HIDDEN];
        model_start(model, 1e-6);
        multiply(model->normed[0], model->q[2], HIDDEN, HIDDEN, 1, model->bias[2], a);
        multiply(model->normed[1], model->q[2], HIDDEN, HIDDEN, 1, NULL, b);
        for (size_t i = 0; i < TOKENS * HIDDEN; i++)
            b[i] += (float)(ways[w].times * (double)model->bias[2][i % HIDDEN]);
        diagnose_product(model, Q_PROJ, HIDDEN, a, b);
        assert_first(&model->trace, "offset", ways[w].words);
        trace_end(&model->trace);
        free(model);
    }
}

static void test_wrong_input(void **state)
{
    struct model *model = calloc(1, sizeof *model);
    float a[TOKENS * HIDDEN], b[TOKENS * HIDDEN];
    (void)state;
    model_start(model, 1e-6);
    multiply(model->normed[0], model->k[2], HIDDEN, HIDDEN, 1, NULL, a);
    multiply(model->other[1], model->k[2], HIDDEN, HIDDEN, 1, NULL, b);
    diagnose_product(model, "model.layers.2.self_attn.k_proj", HIDDEN, a, b);
    assert_first(&model->trace, "wrong-input",
                 "k_proj.weight to model.layers.2.other instead of model.layers.2.input_layernorm");
    trace_end(&model->trace);
    free(model);
}

/* Columns of the output projection that meet [size, heads] where [heads, size] is meant. */
static void test_order_of_inputs(void **state)
{
    struct model *model = calloc(1, sizeof *model);
    float a[TOKENS * HIDDEN], b[TOKENS * HIDDEN], mixed[TOKENS * HIDDEN];
    (void)state;
    model_start(model, 1e-6);
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t head = 0; head < HEADS; head++)
            for (size_t i = 0; i < SIZE; i++)
                mixed[t * HIDDEN + i * HEADS + head] = model->normed[1][t * HIDDEN + head * SIZE + i];
    multiply(model->normed[0], model->o[2], HIDDEN, HIDDEN, 1, NULL, a);
    multiply(mixed, model->o[2], HIDDEN, HIDDEN, 1, NULL, b);
    diagnose_product(model, "model.layers.2.self_attn.o_proj", HIDDEN, a, b);
    assert_first(&model->trace, "permuted", "o_proj.weight is multiplied with the values of");
    trace_end(&model->trace);
    free(model);
}

/* The candidate's own file is at fault, and says how. */
static void test_candidates_file(void **state)
{
    struct model *model = calloc(1, sizeof *model), *theirs = calloc(1, sizeof *theirs);
    float a[TOKENS * HIDDEN], b[TOKENS * HIDDEN];
    (void)state;
    model_start(model, 1e-6);
    *theirs = *model;
    for (size_t head = 0; head < HEADS; head++)
        for (size_t i = 0; i < SIZE; i++)
            memcpy(theirs->q[2] + (head * SIZE + i % 2 * SIZE / 2 + i / 2) * HIDDEN,
                   model->q[2] + (head * SIZE + i) * HIDDEN, HIDDEN * sizeof(float));
    model->file_b = ts_bundle_new("weights_b");
    add_weights(model->file_b, theirs);
    multiply(model->normed[0], model->q[2], HIDDEN, HIDDEN, 1, NULL, a);
    multiply(model->normed[1], theirs->q[2], HIDDEN, HIDDEN, 1, NULL, b);
    diagnose_product(model, Q_PROJ, HIDDEN, a, b);
    assert_first(&model->trace, "permuted", "the candidate's file holds another");
    trace_end(&model->trace);
    free(theirs);
    free(model);
}

/* Queries, keys and values in one weight: the candidate cuts out the wrong part. */
static void test_part_of_a_fused_weight(void **state)
{
    struct model *model = calloc(1, sizeof *model);
    float a[TOKENS * HIDDEN], b[TOKENS * HIDDEN], *fused = malloc(3 * sizeof model->q[0]);
    (void)state;
    model_start(model, 1e-6);
    memcpy(fused, model->q[1], sizeof model->q[0]);
    memcpy(fused + HIDDEN * HIDDEN, model->k[1], sizeof model->q[0]);
    memcpy(fused + 2 * HIDDEN * HIDDEN, model->v[1], sizeof model->q[0]);
    ts_bundle_free(model->file);
    model->file = ts_bundle_new("weights");
    made_add(model->file, "model.layers.2.self_attn.qkv_proj.weight", fused, SHAPE(3 * HIDDEN, HIDDEN));
    multiply(model->normed[0], model->k[1], HIDDEN, HIDDEN, 1, NULL, a);
    multiply(model->normed[1], model->v[1], HIDDEN, HIDDEN, 1, NULL, b);
    diagnose_product(model, "model.layers.2.self_attn.k_proj", HIDDEN, a, b);
    assert_first(&model->trace, "swapped-with",
                 "rows 128 to 191 of model.layers.2.self_attn.qkv_proj.weight instead of");
    assert_non_null(strstr(model->trace.diagnosis.causes[0].summary, "instead of rows 64 to 127"));
    trace_end(&model->trace);
    free(fused);
    free(model);
}

/* The same values under two names are one weight; and a step behind the product that is left out is not blamed on
 * weights. */
static void test_tied_weights_and_a_softcap(void **state)
{
    struct model *model = calloc(1, sizeof *model);
    float a[TOKENS * HIDDEN], b[TOKENS * HIDDEN];
    (void)state;
    model_start(model, 1e-6);
    made_add(model->file, "model.embed_tokens.weight", model->v[3], SHAPE(HIDDEN, HIDDEN));
    multiply(model->normed[0], model->v[3], HIDDEN, HIDDEN, 1, NULL, a);
    multiply(model->normed[1], model->v[3], HIDDEN, HIDDEN, 1, NULL, b);
    for (size_t i = 0; i < TOKENS * HIDDEN; i++)
        a[i] = (float)(6 * tanh((double)a[i] / 6));
    diagnose_product(model, "lm_head", HIDDEN, a, b);
    assert_first(&model->trace, "clamped", "6 * tanh(x / 6)");
    assert_null(trace_cause(&model->trace, "swapped-with"));
    trace_end(&model->trace);
    free(model);
}

/* Rows of q in the order that another rotary kernel wants: named with the weight. */
static void test_rotary_order_of_rows(void **state)
{
    struct model *model = calloc(1, sizeof *model);
    float a[TOKENS * HIDDEN], b[TOKENS * HIDDEN], plain[TOKENS * HIDDEN];
    (void)state;
    model_start(model, 1e-6);
    multiply(model->normed[0], model->k[2], HIDDEN, HIDDEN, 1, NULL, a);
    multiply(model->normed[1], model->k[2], HIDDEN, HIDDEN, 1, NULL, plain);
    for (size_t i = 0; i < TOKENS * HIDDEN; i++) {
        size_t within = i % SIZE;
        b[i] = plain[i - within + within % 2 * (SIZE / 2) + within / 2];
    }
    model_trace(model, "{\"head_dim\": 16, \"num_attention_heads\": 4}");
    trace_add(&model->trace, "model.layers.2.input_layernorm", model->normed[0], model->normed[1],
              SHAPE(TOKENS, HIDDEN));
    trace_diagnose(&model->trace,
                   trace_add(&model->trace, "model.layers.2.self_attn.k_proj", a, b, SHAPE(TOKENS, HIDDEN)));
    assert_first(&model->trace, "permuted", "rows of model.layers.2.self_attn.k_proj.weight");
    trace_end(&model->trace);
    free(model);
}

/* A file whose rows were turned for another kernel (as converters to GGUF do) still explains the reference. */
static void test_file_with_turned_rows(void **state)
{
    struct model *model = calloc(1, sizeof *model);
    float a[TOKENS * HIDDEN], b[TOKENS * HIDDEN], turned[HIDDEN * HIDDEN];
    (void)state;
    model_start(model, 1e-6);
    for (size_t row = 0; row < HIDDEN; row++) {
        size_t within = row % SIZE;
        memcpy(turned + row * HIDDEN, model->k[2] + (row - within + within % 2 * (SIZE / 2) + within / 2) * HIDDEN,
               HIDDEN * sizeof *turned);
    }
    ts_bundle_free(model->file);
    model->file = ts_bundle_new("weights");
    made_add(model->file, "blk.2.attn_k.weight", turned, SHAPE(HIDDEN, HIDDEN));
    made_add(model->file, "blk.2.attn_v.weight", model->v[2], SHAPE(HIDDEN, HIDDEN));
    multiply(model->normed[0], model->k[2], HIDDEN, HIDDEN, 1, NULL, a);
    multiply(model->normed[1], model->k[2], HIDDEN, HIDDEN, 1, NULL, b);
    for (size_t i = 0; i < TOKENS * HIDDEN; i++)
        model->normed[1][i] *= i % 3 ? 1 : 1.3f;
    multiply(model->normed[1], model->k[2], HIDDEN, HIDDEN, 1, NULL, b);
    diagnose_product(model, "model.layers.2.self_attn.k_proj", HIDDEN, a, b);
    assert_silent(&model->trace);
    assert_non_null(strstr(model->trace.diagnosis.strongest, "blk.2.attn_k.weight times the candidate's own"));
    trace_end(&model->trace);
    free(model);
}

/* Norms: which weight, in which convention. seen: the norm's input is in the trace. */
static void expect_norm(bool seen, const float *candidate(const struct model *), double one, double reference_one,
                        const char *words)
{
    struct model *model = calloc(1, sizeof *model);
    model_start(model, 1e-6);
    apply_norm(model->x[0], model->norm[2], reference_one, model->normed[0]);
    apply_norm(model->x[1], candidate(model), one, model->normed[1]);
    model_trace(model, NULL);
    if (!seen)
        model->trace.count = 1;
    trace_diagnose(&model->trace, trace_add(&model->trace, "model.layers.2.input_layernorm", model->normed[0],
                                            model->normed[1], SHAPE(TOKENS, HIDDEN)));
    assert_first(&model->trace, "channel-scaled", words);
    trace_end(&model->trace);
    free(model);
}

static const float *norm_of_three(const struct model *model)
{
    return model->norm[3];
}
static const float *norm_of_two(const struct model *model)
{
    return model->norm[2];
}
static const float *no_norm(const struct model *model)
{
    (void)model;
    return NULL;
}

static void test_norm_weights(void **state)
{
    (void)state;
    for (int seen = 0; seen < 2; seen++) {
        expect_norm(
            seen, norm_of_three, 0, 0,
            "the candidate uses model.layers.3.input_layernorm.weight, not model.layers.2.input_layernorm.weight");
        expect_norm(seen, norm_of_two, 1, 0,
                    "applies model.layers.2.input_layernorm.weight as 1 + w, the reference as w");
        expect_norm(seen, no_norm, 1, 0, "does not apply model.layers.2.input_layernorm.weight");
    }
    expect_norm(true, norm_of_two, 0, 1, "as w, the reference as 1 + w");
}

/* The configuration's key stands in the sentence. */
static void test_settings_are_named(void **state)
{
    struct model *model = calloc(1, sizeof *model);
    (void)state;
    model_start(model, 1e-6);
    for (size_t t = 0; t < TOKENS; t++) {
        double square[2] = {1e-6, 0.1};
        for (size_t i = 0; i < HIDDEN; i++)
            for (int side = 0; side < 2; side++)
                square[side] +=
                    (double)model->x[side][t * HIDDEN + i] * (double)model->x[side][t * HIDDEN + i] / HIDDEN;
        for (size_t i = 0; i < HIDDEN; i++)
            for (int side = 0; side < 2; side++)
                model->normed[side][t * HIDDEN + i] =
                    (float)((double)model->x[side][t * HIDDEN + i] / sqrt(square[side]) * (double)model->norm[2][i]);
    }
    model_trace(model, "{\"rms_norm_eps\": 1e-06, \"hidden_act\": \"silu\"}");
    trace_diagnose(&model->trace, trace_add(&model->trace, "model.layers.2.input_layernorm", model->normed[0],
                                            model->normed[1], SHAPE(TOKENS, HIDDEN)));
    assert_first(&model->trace, "row-scaled", "0.1 in the candidate");
    assert_non_null(
        strstr(model->trace.diagnosis.causes[0].summary, "in the configuration: rms_norm_eps 1e-06 (config.json)"));
    trace_end(&model->trace);
    free(model);
}

/* Heads that are folded into one axis: the configuration unfolds them, and a head is named as a head. */
static void test_settings_name_axes(void **state)
{
    static const char config[] = "{\"text_config\": {\"num_attention_heads\": 4, \"head_dim\": 16}}";
    for (int with = 0; with < 2; with++) {
        struct model *model = calloc(1, sizeof *model);
        float a[TOKENS * HIDDEN], b[TOKENS * HIDDEN];
        (void)state;
        model_start(model, 1e-6);
        multiply(model->normed[0], model->v[1], HIDDEN, HIDDEN, 1, NULL, a);
        memcpy(b, a, sizeof b);
        for (size_t t = 0; t < TOKENS; t++)
            for (size_t i = SIZE; i < 2 * SIZE; i++)
                b[t * HIDDEN + i] = (float)(dice_number() * 3);
        ts_bundle_free(model->file);
        model->file = NULL;
        model_trace(model, with ? config : NULL);
        trace_diagnose(&model->trace, trace_add(&model->trace, Q_PROJ, a, b, SHAPE(TOKENS, HIDDEN)));
        assert_first(&model->trace, with ? "heads" : "channels", with ? "head 1 of 4" : "channels 16 to 31");
        trace_end(&model->trace);
        free(model);
    }
}

enum { ROUTED = 6, TAKEN = 2 };

/* The weights of the chosen experts, the largest first; divided by their sum, or not. */
static void routed_weights(const float *logits, bool divided, float *weights)
{
    for (size_t t = 0; t < TOKENS; t++) {
        double all = 0, sum = 0, largest[TAKEN] = {0, 0};
        for (size_t e = 0; e < ROUTED; e++) {
            double now = exp((double)logits[t * ROUTED + e]);
            all += now;
            largest[1] = now > largest[0] ? largest[0] : now > largest[1] ? now : largest[1];
            largest[0] = now > largest[0] ? now : largest[0];
        }
        for (size_t k = 0; k < TAKEN; k++)
            sum += largest[k] / all;
        for (size_t k = 0; k < TAKEN; k++)
            weights[t * TAKEN + k] = (float)(largest[k] / all / (divided ? sum : 1));
    }
}

/* Weights that are not divided by their sum: the key that decides it is named with its value. */
static void test_key_of_a_router(void **state)
{
    struct model *model = calloc(1, sizeof *model);
    float *logits = made_values(TOKENS * ROUTED), a[TOKENS * TAKEN], b[TOKENS * TAKEN];
    (void)state;
    model_start(model, 1e-7);
    routed_weights(logits, true, a);
    routed_weights(logits, false, b);
    model_trace(model, "{\"norm_topk_prob\": true}");
    trace_add(&model->trace, "model.layers.2.router.logits", logits, logits, SHAPE(TOKENS, ROUTED));
    trace_diagnose(&model->trace,
                   trace_add(&model->trace, "model.layers.2.router.weights", a, b, SHAPE(TOKENS, TAKEN)));
    assert_first(&model->trace, "router-gate", "; in the configuration: norm_topk_prob 1 (config.json)");
    trace_end(&model->trace);
    free(logits);
    free(model);
}

static void test_settings_are_read(void **state)
{
    static const char text[] = "{\"model_type\": \"x\", \"rope_parameters\": {\"rope_theta\": 1e6}, "
                               "\"hidden_act\": \"gelu\", \"hidden_activation\": \"gelu_pytorch_tanh\", "
                               "\"sliding_window\": null, \"norm_topk_prob\": true, "
                               "\"vision_config\": {\"num_attention_heads\": 99}, "
                               "\"text_config\": {\"num_attention_heads\": 8, \"num_key_value_heads\": 2}}";
    static const char *const broken[] = {"", "[1]", "{\"rope_theta\": }", "{\"a\": {\"b\": 1}",
                                         "{\"head_dim\": \"x\"} 7 8"};
    struct ts_settings settings;
    struct ts_source *source;
    struct ts_error error;
    (void)state;
    assert_int_equal(ts_source_copy(text, strlen(text), "a/b/config.json", &source, &error), TS_OK);
    assert_int_equal(ts_settings_read(&settings, source, &error), TS_OK);
    ts_source_release(source);
    assert_true(settings.known);
    assert_string_equal(settings.source, "config.json");
    assert_true(settings.values[TS_SETTING_THETA] == 1e6);
    assert_string_equal(settings.names[TS_SETTING_THETA], "rope_theta");
    assert_string_equal(settings.activation, "gelu_pytorch_tanh");
    assert_true(isnan(settings.values[TS_SETTING_WINDOW]));
    assert_true(settings.values[TS_SETTING_RENORMALIZED] == 1);
    assert_int_equal(ts_settings_size(&settings, TS_SETTING_HEADS), 8);
    assert_int_equal(ts_settings_size(&settings, TS_SETTING_KV_HEADS), 2);
    assert_int_equal(ts_settings_size(&settings, TS_SETTING_HEAD_DIM), 0);
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        assert_int_equal(ts_source_copy(broken[i], strlen(broken[i]), "c.json", &source, &error), TS_OK);
        assert_int_equal(ts_settings_read(&settings, source, &error), TS_ERR_FORMAT);
        ts_source_release(source);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_honest_is_silent),
        cmocka_unit_test(test_inherited_is_said),
        cmocka_unit_test(test_another_weight),
        cmocka_unit_test(test_transposed),
        cmocka_unit_test(test_random_weights),
        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_wrong_input),
        cmocka_unit_test(test_order_of_inputs),
        cmocka_unit_test(test_candidates_file),
        cmocka_unit_test(test_part_of_a_fused_weight),
        cmocka_unit_test(test_tied_weights_and_a_softcap),
        cmocka_unit_test(test_rotary_order_of_rows),
        cmocka_unit_test(test_file_with_turned_rows),
        cmocka_unit_test(test_norm_weights),
        cmocka_unit_test(test_settings_are_named),
        cmocka_unit_test(test_settings_name_axes),
        cmocka_unit_test(test_key_of_a_router),
        cmocka_unit_test(test_settings_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
