/* The judge where something stands out because it did so in what came in: a head, a key, a small token behind a norm,
 * what all tokens share, tokens that took other experts. Each with the same trace where nothing did before. */
#include "compare/structure.h"
#include "judged_trace.h"

enum { TOKENS = 12, WIDTH = 64, HEADS = 4, INNER = 16, KEYS = 7, ODD = 9 };

/* Products of one level of error, so that the judge knows what this run makes. */
static void add_products(struct trace *trace, double error)
{
    static const char *const names[] = {"layers.0.first_proj", "layers.0.second_proj", "layers.0.third_proj",
                                        "layers.0.fourth_proj"};
    for (int i = 0; i < 4; i++) {
        float *a = made_values(TOKENS * WIDTH), b[TOKENS * WIDTH];
        shake(a, b, TOKENS * WIDTH, error);
        trace_add(trace, names[i], a, b, SHAPE(TOKENS, WIDTH));
        free(a);
    }
}

/* [tokens, heads, inner], of which one head errs more. */
static void add_heads(struct trace *trace, const char *name, size_t inner, double error, double more)
{
    const size_t total = TOKENS * HEADS * inner;
    float *a = made_values(total), *errors = made_values(total), *b = malloc(total * sizeof *b);
    assert_non_null(b);
    for (size_t i = 0; i < total; i++)
        b[i] = a[i] + (float)(error * (i / inner % HEADS == 1 ? more : 1)) * errors[i];
    trace_add(trace, name, a, b, SHAPE(TOKENS, HEADS, inner));
    free(a);
    free(errors);
    free(b);
}

/* One head's probabilities, over keys of another sequence, lie close to each other and err more; so does its context.
 */
static void judge_context(double probs_more, size_t expected)
{
    struct judged judged;
    trace_start(&judged.trace);
    add_products(&judged.trace, 1e-3);
    add_heads(&judged.trace, "layers.0.attn_scores", TOKENS, 1e-3, 1);
    add_heads(&judged.trace, "layers.0.cross_attn_probs", KEYS, 1e-3, probs_more);
    add_heads(&judged.trace, "layers.0.cross_attn_context", INNER, 1e-3, 7);
    expect_first(&judged, expected);
}

static void test_a_head_of_the_context(void **state)
{
    (void)state;
    judge_context(6, SIZE_MAX);
    judge_context(1, 6);
}

/* A key that is small errs by as much as the others: scores for it err, of the head that looks at it. */
static void judge_scores(bool small, size_t expected)
{
    const size_t total = TOKENS * HEADS * TOKENS;
    struct judged judged;
    float *k = made_values(TOKENS * WIDTH), *errors = made_values(TOKENS * WIDTH), near_k[TOKENS * WIDTH];
    float *scores = made_values(total), *others = made_values(total), *near_scores = malloc(total * sizeof *scores);
    assert_non_null(near_scores);
    trace_start(&judged.trace);
    add_products(&judged.trace, 4e-3);
    for (size_t i = 0; i < TOKENS * WIDTH; i++) {
        k[i] *= small && i / WIDTH == ODD ? 0.02f : 1;
        near_k[i] = k[i] + 4e-3f * errors[i];
    }
    for (size_t i = 0; i < total; i++)
        near_scores[i] = scores[i] + (i % (HEADS * TOKENS) == ODD ? 0.09f : 4e-3f) * others[i];
    trace_add(&judged.trace, "layers.0.attn_k_normed", k, near_k, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "layers.0.attn_scores", scores, near_scores, SHAPE(TOKENS, HEADS, TOKENS));
    free(k);
    free(errors);
    free(scores);
    free(others);
    free(near_scores);
    expect_first(&judged, expected);
}

static void test_a_key_of_the_scores(void **state)
{
    (void)state;
    judge_scores(true, SIZE_MAX);
    judge_scores(false, 5);
}

/* A norm of the first numbers of a wider tensor, which are small in one token: behind it they are as large as the
 * others', and so is their error. */
static void judge_part_norm(bool small, size_t between, size_t expected)
{
    enum { PART = 32 };
    struct judged judged;
    float *x = made_values(TOKENS * WIDTH), *errors = made_values(TOKENS * WIDTH), near_x[TOKENS * WIDTH];
    float *y = made_values(TOKENS * PART), *others = made_values(TOKENS * PART), near_y[TOKENS * PART];
    trace_start(&judged.trace);
    add_products(&judged.trace, 4e-3);
    for (size_t i = 0; i < TOKENS * WIDTH; i++) {
        x[i] *= small && i / WIDTH == ODD && i % WIDTH < PART ? 0.02f : 1;
        near_x[i] = x[i] + 4e-3f * errors[i];
    }
    for (size_t i = 0; i < TOKENS * PART; i++)
        near_y[i] = y[i] + (i / PART == ODD ? 0.1f : 4e-3f) * others[i];
    trace_add(&judged.trace, "layers.0.attn_context", x, near_x, SHAPE(TOKENS, WIDTH));
    for (size_t i = 0; i < between; i++) {
        float *q = made_values(TOKENS * WIDTH), near_q[TOKENS * WIDTH];
        shake(q, near_q, TOKENS * WIDTH, 4e-3);
        trace_add(&judged.trace, made_name("layers.0.attn_q_%d", (int)i), q, near_q, SHAPE(TOKENS, WIDTH));
        free(q);
    }
    trace_add(&judged.trace, "layers.0.attn_kv_a_norm", y, near_y, SHAPE(TOKENS, PART));
    free(x);
    free(errors);
    free(y);
    free(others);
    expect_first(&judged, expected);
}

static void test_a_small_token_behind_a_norm(void **state)
{
    (void)state;
    judge_part_norm(true, 0, SIZE_MAX);
    judge_part_norm(false, 0, 5);
    judge_part_norm(true, 3, SIZE_MAX); /* what is made of other inputs stands between */
    judge_part_norm(false, 3, 8);
}

/* A token that is larger than the others and errs more, by as much as it is larger: a product of which it comes out no
 * larger than they do errs as much more all the same. */
static void judge_large_token(bool large, size_t expected)
{
    struct judged judged;
    float *x = made_values(TOKENS * WIDTH), *errors = made_values(TOKENS * WIDTH), near_x[TOKENS * WIDTH];
    float *y = made_values(TOKENS * WIDTH), *others = made_values(TOKENS * WIDTH), near_y[TOKENS * WIDTH];
    trace_start(&judged.trace);
    add_products(&judged.trace, 4e-3);
    for (size_t i = 0; i < TOKENS * WIDTH; i++) {
        const bool odd = i / WIDTH == ODD;
        x[i] *= large && odd ? 20 : 1;
        near_x[i] = x[i] + 4e-3f * (large && odd ? 20 : 1) * errors[i];
        near_y[i] = y[i] + 4e-3f * (odd ? 20 : 1) * others[i];
    }
    trace_add(&judged.trace, "layers.0.mlp_intermediate", x, near_x, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "layers.0.mlp_down_proj", y, near_y, SHAPE(TOKENS, WIDTH));
    free(x);
    free(errors);
    free(y);
    free(others);
    expect_first(&judged, expected);
}

static void test_a_large_token_before_a_product(void **state)
{
    (void)state;
    judge_large_token(true, SIZE_MAX);
    judge_large_token(false, 5);
}

/* A norm of heads in one list, of which one token errs more, and its projection; `wrong`: that one makes another token
 * too large. */
static void judge_projected(bool wrong, size_t expected)
{
    struct judged judged;
    float *weight = made_values(WIDTH * WIDTH), *x = made_values(TOKENS * WIDTH), *errors = made_values(TOKENS * WIDTH);
    float near_x[TOKENS * WIDTH], y[TOKENS * WIDTH], near_y[TOKENS * WIDTH];
    trace_start(&judged.trace);
    add_products(&judged.trace, 0.02);
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        near_x[i] = x[i] + (i / WIDTH == 3 ? 0.2f : 0.02f) * errors[i];
    trace_add(&judged.trace, "layers.0.linear_attn.norm", x, near_x, SHAPE(TOKENS * HEADS, INNER));
    matmul(x, weight, TOKENS, WIDTH, WIDTH, y);
    matmul(near_x, weight, TOKENS, WIDTH, WIDTH, near_y);
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        near_y[i] *= wrong && i / WIDTH == ODD ? 1.3f : 1;
    trace_add(&judged.trace, "layers.0.linear_attn.out_proj", y, near_y, SHAPE(TOKENS, WIDTH));
    free(weight);
    free(x);
    free(errors);
    expect_first(&judged, expected);
}

static void test_a_token_of_a_projection(void **state)
{
    (void)state;
    judge_projected(false, SIZE_MAX);
    judge_projected(true, 5);
}

/* A norm of heads of which one is small and errs, one number of it most; or that number alone does. */
static void judge_small_head(bool small, size_t expected)
{
    enum { AT = ODD * WIDTH + 2 * INNER };
    struct judged judged;
    float *a = made_values(TOKENS * WIDTH), *errors = made_values(TOKENS * WIDTH), b[TOKENS * WIDTH];
    trace_start(&judged.trace);
    add_products(&judged.trace, 4e-3);
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        b[i] = a[i] + (small && i / INNER == AT / INNER ? 0.03f : 4e-3f) * errors[i];
    b[AT] = a[AT] + 0.35f;
    trace_add(&judged.trace, "layers.0.linear_attn.norm", a, b, SHAPE(TOKENS * HEADS, INNER));
    free(a);
    free(errors);
    expect_first(&judged, expected);
}

static void test_a_small_head(void **state)
{
    (void)state;
    judge_small_head(true, SIZE_MAX);
    judge_small_head(false, 4);
}

/* Two tokens took other experts, or none did, and those behind them are other ones where a scan comes next. */
static void judge_scan(bool flipped, size_t expected)
{
    enum { TAKEN = 2 };
    struct judged judged;
    int64_t chosen[2][TOKENS * TAKEN];
    float *a = made_values(TOKENS * WIDTH), *others = made_values(TOKENS * WIDTH), b[TOKENS * WIDTH];
    trace_start(&judged.trace);
    add_products(&judged.trace, 4e-3);
    for (size_t i = 0; i < TOKENS * TAKEN; i++)
        chosen[0][i] = chosen[1][i] = (int64_t)((i / TAKEN * 3 + i % TAKEN * 5) % 16);
    for (size_t token = 2; flipped && token < 6; token += 3)
        chosen[1][token * TAKEN + 1] = (chosen[0][token * TAKEN + 1] + 7) % 16;
    trace_add_integers(&judged.trace, "layers.0.mlp.experts_chosen", chosen[0], chosen[1], TOKENS, TAKEN);
    for (int scanned = 0; scanned < 2; scanned++) {
        shake(scanned ? a : others, b, TOKENS * WIDTH, 4e-3);
        for (size_t i = 0; i < TOKENS * WIDTH && (flipped || scanned); i++)
            if (i / WIDTH == 2 || (i / WIDTH == 3 && scanned) || i / WIDTH == 5)
                b[i] += scanned ? others[i] : a[i];
        if (!scanned)
            trace_add(&judged.trace, "layers.0.mlp.experts", others, b, SHAPE(TOKENS, WIDTH));
    }
    trace_add(&judged.trace, "layers.1.linear_attn.norm", a, b, SHAPE(TOKENS * HEADS, INNER));
    shake(others, b, TOKENS * INNER, 4e-3);
    trace_add(&judged.trace, "layers.1.mlp.router", others, b, SHAPE(TOKENS, INNER)); /* nothing is hidden here */
    free(a);
    free(others);
    expect_first(&judged, expected);
}

static void test_a_scan_behind_tokens_set_aside(void **state)
{
    (void)state;
    judge_scan(true, SIZE_MAX);
    judge_scan(false, 6);
}

/* Behind what was not captured one token errs some times as much as the others, or all err as much as these do
 * together. */
static void judge_one_of_many(bool one, size_t expected)
{
    struct judged judged;
    trace_start(&judged.trace);
    add_products(&judged.trace, 0.01);
    for (int layer = 0; layer < 2; layer++) {
        float *a = made_values(TOKENS * WIDTH), *errors = made_values(TOKENS * WIDTH), b[TOKENS * WIDTH];
        for (size_t i = 0; i < TOKENS * WIDTH; i++)
            b[i] = a[i] + (!layer ? 0.012f : !one ? 0.1f : i / WIDTH == ODD ? 0.3f : 0.02f) * errors[i];
        trace_add(&judged.trace, made_name("layers.%d.mamba.norm", layer), a, b, SHAPE(TOKENS, WIDTH));
        shake(errors, b, TOKENS * WIDTH, 0.012);
        trace_add(&judged.trace, made_name("layers.%d.mlp.up_proj", layer), errors, b, SHAPE(TOKENS, WIDTH));
        free(a);
        free(errors);
    }
    expect_first(&judged, expected);
}

static void test_one_token_of_many(void **state)
{
    (void)state;
    judge_one_of_many(true, SIZE_MAX);
    judge_one_of_many(false, 6);
}

/* Tokens share most of what goes in and little of what comes out: rounded weights err alike in all of them. */
static void judge_offset(bool alike, size_t expected)
{
    struct judged judged;
    float *x = made_values(TOKENS * WIDTH), *common = made_values(WIDTH), near_x[TOKENS * WIDTH];
    float *y = made_values(TOKENS * WIDTH), *shared = made_values(WIDTH), near_y[TOKENS * WIDTH];
    trace_start(&judged.trace);
    add_products(&judged.trace, 0.02);
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        x[i] = alike ? 0.3f * x[i] + 3 * common[i % WIDTH] : x[i];
    shake(x, near_x, TOKENS * WIDTH, 0.02);
    shake(y, near_y, TOKENS * WIDTH, 0.02);
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        near_y[i] += 0.08f * shared[i % WIDTH];
    trace_add(&judged.trace, "layers.0.norm", x, near_x, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "layers.0.q_b_proj", y, near_y, SHAPE(TOKENS, WIDTH));
    free(x);
    free(common);
    free(y);
    free(shared);
    expect_first(&judged, expected);
}

static void test_an_offset_that_goes_in(void **state)
{
    (void)state;
    judge_offset(true, SIZE_MAX);
    judge_offset(false, 5);
}

/* Three tokens say that a bias is missing: all of the error is the same in them. */
static void test_an_offset_of_three_tokens(void **state)
{
    enum { FEW = 3 };
    (void)state;
    for (int bias = 0; bias < 2; bias++) {
        struct trace trace;
        struct ts_scene scene;
        struct ts_structure structure = {0};
        struct ts_error error;
        const struct ts_actor *actor;
        float *a = made_values(FEW * WIDTH), *errors = made_values(FEW * WIDTH), b[FEW * WIDTH];
        for (size_t i = 0; i < FEW * WIDTH; i++)
            b[i] = a[i] + 0.1f * errors[bias ? i % WIDTH : i];
        trace_start(&trace);
        trace_add(&trace, "layers.0.o_proj", a, b, SHAPE(FEW, WIDTH));
        assert_int_equal(ts_scene_open(&scene, trace.pairs, trace.count, &error), TS_OK);
        actor = ts_scene_next(&scene, &error);
        assert_non_null(actor);
        ts_structure_measure(&scene, actor, &structure);
        assert_false(structure.known);
        if (bias)
            assert_true(structure.offset > 0.99);
        else
            assert_true(fabs(structure.offset) < 0.4);
        ts_scene_release(&scene);
        trace_end(&trace);
        free(a);
        free(errors);
    }
}

/* Coarse weights, and one token that was not written; or an MLP, which has no experts, one token of which is another.
 */
static void judge_token(const char *name, double error, double left, size_t expected)
{
    struct judged judged;
    trace_start(&judged.trace);
    add_products(&judged.trace, error);
    for (int t = 0; t < 5; t++) {
        float *a = made_values(TOKENS * WIDTH), *other = made_values(TOKENS * WIDTH), b[TOKENS * WIDTH];
        shake(a, b, TOKENS * WIDTH, error);
        for (size_t i = 0; i < TOKENS * WIDTH; i++)
            if ((t == 1 && i / WIDTH == ODD) || (t > 1 && left > 0 && (i / WIDTH == ODD || i / WIDTH == ODD - 3)))
                b[i] = (float)left * other[i];
        trace_add(&judged.trace,
                  t == 0   ? "layers.0.mlp.gate_proj"
                  : t == 1 ? name
                           : made_name("layers.%d.mlp.out", t),
                  a, b, SHAPE(TOKENS, WIDTH));
        free(a);
        free(other);
    }
    expect_first(&judged, expected);
}

static void test_a_token_by_itself(void **state)
{
    (void)state;
    judge_token("layers.0.mlp.up_proj", 0.15, 0, 5);
    judge_token("layers.0.mlp.up_proj", 0.01, 1, 5);
}

enum { EXPERTS = 8, CHOSEN = 2, LAYERS = 2 };

/* Logits that fall from an expert of its own on in each token, and the two largest of them, in both layers; `biased`:
 * one token of the first layer takes the third one, as a bias that was not captured makes it. In the second layer a
 * token's second and third are nearly tied, and the candidate takes the third though it is not the larger one. The
 * weights of the chosen stand before their numbers. */
static void judge_choice(bool biased, size_t expected)
{
    struct judged judged;
    trace_start(&judged.trace);
    add_products(&judged.trace, 0.02);
    for (int layer = 0; layer < LAYERS; layer++) {
        float logits[2][TOKENS * EXPERTS], weights[2][TOKENS * CHOSEN], *out = made_values(TOKENS * WIDTH);
        int64_t chosen[2][TOKENS * CHOSEN];
        float near_out[TOKENS * WIDTH];
        for (size_t row = 0; row < TOKENS; row++) {
            const bool tied = layer == 1 && row == ODD, moved = biased && layer == 0 && row == 3;
            for (size_t k = 0; k < EXPERTS; k++) {
                const size_t at = row * EXPERTS + (row * 3 + k) % EXPERTS;
                logits[0][at] = 2 - 0.5f * (float)k + (float)(0.1 * dice_number());
                if (tied && k == 2)
                    logits[0][at] = logits[0][row * EXPERTS + (row * 3 + 1) % EXPERTS] - 0.005f;
                logits[1][at] = logits[0][at] + (float)(0.02 * (tied && k < 3 ? 0 : dice_number()));
            }
            for (int side = 0; side < 2; side++)
                for (size_t k = 0; k < CHOSEN; k++) {
                    const size_t rank = k && (moved || (tied && side)) ? 2 : k;
                    chosen[side][row * CHOSEN + k] = (int64_t)((row * 3 + rank) % EXPERTS);
                    weights[side][row * CHOSEN + k] = 0.4f + 0.1f * (float)(row % 3) + (float)(0.01 * dice_number());
                }
        }
        trace_add(&judged.trace, made_name("layers.%d.router_logits", layer), logits[0], logits[1],
                  SHAPE(TOKENS, EXPERTS));
        trace_add(&judged.trace, made_name("layers.%d.router_weights", layer), weights[0], weights[1],
                  SHAPE(TOKENS, CHOSEN));
        trace_add_integers(&judged.trace, made_name("layers.%d.router_indices", layer), chosen[0], chosen[1], TOKENS,
                           CHOSEN);
        shake(out, near_out, TOKENS * WIDTH, 0.02);
        trace_add(&judged.trace, made_name("layers.%d.experts_output", layer), out, near_out, SHAPE(TOKENS, WIDTH));
        free(out);
    }
    expect_first(&judged, expected);
}

static void test_a_choice_that_follows_by_chance(void **state)
{
    (void)state;
    judge_choice(true, SIZE_MAX);
    judge_choice(false, 10);
}

/* Scores of one head: a token that took another expert is a key to the others. */
static void judge_one_head(bool flipped, size_t expected)
{
    struct judged judged;
    int64_t chosen[2][TOKENS * CHOSEN];
    float *scores = made_values(TOKENS * TOKENS), *others = made_values(TOKENS * TOKENS), near_scores[TOKENS * TOKENS];
    trace_start(&judged.trace);
    add_products(&judged.trace, 0.02);
    for (size_t i = 0; i < TOKENS * CHOSEN; i++)
        chosen[0][i] = chosen[1][i] = (int64_t)(i % EXPERTS);
    chosen[1][ODD * CHOSEN + 1] += flipped ? 1 : 0;
    trace_add_integers(&judged.trace, "layers.0.experts_chosen", chosen[0], chosen[1], TOKENS, CHOSEN);
    shake(scores, near_scores, TOKENS * TOKENS, 0.01);
    for (size_t row = 0; row < TOKENS; row++)
        near_scores[row * TOKENS + ODD] = others[row];
    trace_add(&judged.trace, "layers.1.attn_scores", scores, near_scores, SHAPE(TOKENS, 1, TOKENS));
    free(scores);
    free(others);
    expect_first(&judged, expected);
}

static void test_a_key_of_one_head(void **state)
{
    (void)state;
    judge_one_head(true, SIZE_MAX);
    judge_one_head(false, 5);
}

/* Most keys are of tokens that took other experts: what is left of the scores errs as everything does. */
static void test_keys_that_are_mostly_aside(void **state)
{
    struct judged judged;
    int64_t chosen[2][TOKENS * CHOSEN];
    float *scores = made_values(TOKENS * TOKENS), *others = made_values(TOKENS * TOKENS), near_scores[TOKENS * TOKENS];
    (void)state;
    trace_start(&judged.trace);
    add_products(&judged.trace, 0.1);
    for (size_t i = 0; i < TOKENS * CHOSEN; i++) {
        chosen[0][i] = (int64_t)(i % EXPERTS);
        chosen[1][i] = (int64_t)((i + (i % CHOSEN && i / CHOSEN < 8)) % EXPERTS);
    }
    trace_add_integers(&judged.trace, "layers.0.experts_chosen", chosen[0], chosen[1], TOKENS, CHOSEN);
    for (size_t i = 0; i < TOKENS * TOKENS; i++)
        near_scores[i] = scores[i] + 0.1f * others[i];
    trace_add(&judged.trace, "layers.1.attn_scores", scores, near_scores, SHAPE(TOKENS, 1, TOKENS));
    free(scores);
    free(others);
    expect_first(&judged, SIZE_MAX);
}

/* Coarse weights, and routers that send every token elsewhere in the end: what comes behind them has no token left, and
 * says nothing about where the error starts. */
static void test_witnesses_without_tokens(void **state)
{
    enum { RUN = 9 };
    static const char *const names[] = {"layers.%d.norm", "layers.%d.q_proj", "layers.%d.k_proj", "layers.%d.v_proj"};
    struct judged judged;
    float *embed = made_values(TOKENS * WIDTH);
    (void)state;
    trace_start(&judged.trace);
    trace_add(&judged.trace, "embed", embed, embed, SHAPE(TOKENS, WIDTH));
    free(embed);
    for (int layer = 0; layer < RUN; layer++) {
        int64_t chosen[2][TOKENS * CHOSEN];
        for (int p = 0; p < 4; p++) {
            float *a = made_values(TOKENS * WIDTH), *errors = made_values(TOKENS * WIDTH), b[TOKENS * WIDTH];
            for (size_t i = 0; i < TOKENS * WIDTH; i++)
                b[i] = a[i] + (layer > 1 ? 0.9f : p || layer ? 0.08f : 0) * errors[i];
            trace_add(&judged.trace, made_name(names[p], layer), a, b, SHAPE(TOKENS, WIDTH));
            free(a);
            free(errors);
        }
        for (size_t i = 0; i < TOKENS * CHOSEN; i++) {
            const bool moved = layer < 2 && i % CHOSEN && (i / CHOSEN < TOKENS / 2) == (layer == 0);
            chosen[0][i] = (int64_t)(i % EXPERTS);
            chosen[1][i] = (int64_t)((i + moved) % EXPERTS);
        }
        trace_add_integers(&judged.trace, made_name("layers.%d.experts_chosen", layer), chosen[0], chosen[1], TOKENS,
                           CHOSEN);
    }
    expect_first(&judged, SIZE_MAX);
}

/* Numbers of bf16 at one point of one layer, or of all of them. */
static void judge_rounded(double size, int layers, int from, int to, size_t expected)
{
    struct judged judged;
    trace_start(&judged.trace);
    for (int layer = 0; layer < layers; layer++) {
        float *a = made_values(TOKENS * WIDTH), b[TOKENS * WIDTH];
        for (size_t i = 0; i < TOKENS * WIDTH; i++)
            a[i] = (a[i] < 0 ? -1 : 1) * ((float)size + 0.03f * a[i]);
        shake(a, b, TOKENS * WIDTH, 1e-6);
        if (layer >= from && layer < to)
            round_all(b, TOKENS * WIDTH);
        trace_add(&judged.trace, made_name("layers.%d.o_proj", layer), a, b, SHAPE(TOKENS, WIDTH));
        free(a);
    }
    expect_first(&judged, expected);
}

/* In the other layers the same point is NaN, of which nobody knows how it was rounded. */
static void test_one_that_is_rounded_before_nan(void **state)
{
    struct judged judged;
    (void)state;
    trace_start(&judged.trace);
    for (int layer = 0; layer < 6; layer++) {
        float *a = made_values(TOKENS * WIDTH), b[TOKENS * WIDTH];
        shake(a, b, TOKENS * WIDTH, 1e-6);
        if (layer == 2)
            round_all(b, TOKENS * WIDTH);
        b[5] = layer > 2 ? NAN : b[5];
        trace_add(&judged.trace, made_name(layer < 2 ? "input_%d" : "layers.%d.o_proj", layer), a, b,
                  SHAPE(TOKENS, WIDTH));
        free(a);
    }
    expect_first(&judged, 3);
}

static void test_one_tensor_that_is_rounded(void **state)
{
    (void)state;
    /* of one size, so that rounding errs by the most it can, or by the least: then it is no more than one rounding */
    for (int least = 0; least < 2; least++) {
        const double size = least ? 1.8 : 1.1;
        judge_rounded(size, 5, 2, 3, 2);
        judge_rounded(size, 5, 0, 5, SIZE_MAX);
        judge_rounded(size, 5, 3, 5, SIZE_MAX);
        judge_rounded(size, 2, 1, 2, SIZE_MAX);
        judge_rounded(size, 5, 0, 1, SIZE_MAX); /* embeddings in a type of their own */
    }
}

/* A sum that is replayed, and rounded in one layer; `input`: one of its terms was, and is what differs. */
static void judge_rounded_sum(int rounded, bool input, size_t expected)
{
    struct judged judged;
    trace_start(&judged.trace);
    for (int layer = 0; layer < 4; layer++) {
        float *x = made_values(TOKENS * WIDTH), *y = made_values(TOKENS * WIDTH), sum[TOKENS * WIDTH];
        float x_b[TOKENS * WIDTH], y_b[TOKENS * WIDTH], sum_b[TOKENS * WIDTH];
        shake(x, x_b, TOKENS * WIDTH, 1e-6);
        shake(y, y_b, TOKENS * WIDTH, 1e-6);
        if (input && layer == rounded)
            round_all(x_b, TOKENS * WIDTH);
        for (size_t i = 0; i < TOKENS * WIDTH; i++) {
            sum[i] = x[i] + y[i];
            sum_b[i] = x_b[i] + y_b[i];
        }
        if (!input && layer == rounded)
            round_all(sum_b, TOKENS * WIDTH);
        trace_add(&judged.trace, made_name("layers.%d.o_proj", layer), x, x_b, SHAPE(TOKENS, WIDTH));
        trace_add(&judged.trace, made_name("layers.%d.down_proj", layer), y, y_b, SHAPE(TOKENS, WIDTH));
        trace_add(&judged.trace, made_name("layers.%d.output", layer), sum, sum_b, SHAPE(TOKENS, WIDTH));
        free(x);
        free(y);
    }
    expect_first(&judged, expected);
}

static void test_one_replayed_tensor_that_is_rounded(void **state)
{
    (void)state;
    judge_rounded_sum(2, false, 8);
    judge_rounded_sum(2, true, 6);
    judge_rounded_sum(4, false, SIZE_MAX);
}

/* A stream in f32 to which two terms in bf16 are added, whose sum was rounded to bf16 first. factor: on that sum, where
 * it is wrong. */
static void judge_sum_in_steps(float factor, size_t expected)
{
    struct judged judged;
    trace_start(&judged.trace);
    for (int layer = 0; layer < 3; layer++) {
        float *x = made_values(TOKENS * WIDTH), *y = made_values(TOKENS * WIDTH), *z = made_values(TOKENS * WIDTH);
        float x_b[TOKENS * WIDTH], y_b[TOKENS * WIDTH], z_b[TOKENS * WIDTH], sum[2][TOKENS * WIDTH];
        shake(x, x_b, TOKENS * WIDTH, 1e-3);
        memcpy(y_b, y, sizeof y_b);
        memcpy(z_b, z, sizeof z_b);
        round_all(y_b, TOKENS * WIDTH);
        round_all(z_b, TOKENS * WIDTH);
        for (size_t i = 0; i < TOKENS * WIDTH; i++) {
            sum[0][i] = x[i] + (y[i] + z[i]);
            sum[1][i] = x_b[i] + (layer == 1 ? factor : 1) * to_bf16(y_b[i] + z_b[i]);
        }
        trace_add(&judged.trace, made_name("layers.%d.residual", layer), x, x_b, SHAPE(TOKENS, WIDTH));
        trace_add(&judged.trace, made_name("layers.%d.experts", layer), y, y_b, SHAPE(TOKENS, WIDTH));
        trace_add(&judged.trace, made_name("layers.%d.shared", layer), z, z_b, SHAPE(TOKENS, WIDTH));
        trace_add(&judged.trace, made_name("layers.%d.output", layer), sum[0], sum[1], SHAPE(TOKENS, WIDTH));
        free(x);
        free(y);
        free(z);
    }
    expect_first(&judged, expected);
}

static void test_a_sum_in_steps(void **state)
{
    (void)state;
    judge_sum_in_steps(1, SIZE_MAX);
    judge_sum_in_steps(1.01f, 7);
}

/* One layer in f32: keys that were turned, as a cache of eight bits gives them back, with scales for heads; or what
 * comes out of a norm is. */
static void judge_cached(bool turned, const double scales[2], size_t expected)
{
    enum { PART = WIDTH / 2, HALF = PART / 2 };
    struct judged judged;
    float *x = made_values(TOKENS * WIDTH), y[TOKENS * WIDTH], y_b[TOKENS * WIDTH];
    trace_start(&judged.trace);
    for (size_t i = 0; i < TOKENS * WIDTH; i++) {
        const size_t pair = i % HALF, first = i / PART * PART + pair;
        const double angle = (double)(i / WIDTH) * pow(10000, -(double)pair / HALF);
        y[i] = (float)(i % PART < HALF ? (double)x[first] * cos(angle) - (double)x[first + HALF] * sin(angle)
                                       : (double)x[first + HALF] * cos(angle) + (double)x[first] * sin(angle));
    }
    if (!turned)
        normalize(x, TOKENS, WIDTH, y);
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        y_b[i] = (float)(scales[i % WIDTH / PART] * (double)to_four_bits((double)y[i] / scales[i % WIDTH / PART]));
    trace_add(&judged.trace, "embed", x, x, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "layers.0.k_proj", x, x, SHAPE(TOKENS, 2, PART));
    trace_add(&judged.trace, "layers.0.keys", y, y_b, SHAPE(TOKENS, 2, PART));
    free(x);
    for (int i = 0; i < 7; i++) {
        float *a = made_values(TOKENS * WIDTH), b[TOKENS * WIDTH];
        shake(a, b, TOKENS * WIDTH, 0.02);
        trace_add(&judged.trace, made_name("layers.0.product_%d", i), a, b, SHAPE(TOKENS, WIDTH));
        free(a);
    }
    expect_first(&judged, expected);
}

static void test_keys_of_one_layer_from_a_cache(void **state)
{
    (void)state;
    judge_cached(true, (double[2]){1, 1}, SIZE_MAX);
    judge_cached(true, (double[2]){0.7, 0.0123}, SIZE_MAX);
    judge_cached(false, (double[2]){1, 1}, 2);
}

/* Products of weights of a few bits, and one behind them that errs by more. */
static void judge_last(double error, double last, size_t expected)
{
    struct judged judged;
    float *a, *errors, b[TOKENS * WIDTH];
    trace_start(&judged.trace);
    add_products(&judged.trace, error);
    a = made_values(TOKENS * WIDTH);
    errors = made_values(TOKENS * WIDTH);
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        b[i] = a[i] + (float)last * errors[i];
    trace_add(&judged.trace, "logits", a, b, SHAPE(TOKENS, WIDTH));
    free(a);
    free(errors);
    expect_first(&judged, expected);
}

/* A small error may grow by some times; of a large one that would leave nothing of the tensor. */
static void test_a_large_error_grows_less(void **state)
{
    (void)state;
    judge_last(0.28, 0.35, SIZE_MAX);
    judge_last(0.28, 0.8, 4);
    judge_last(0.01, 0.03, SIZE_MAX);
}

/* What two large numbers leave of each other errs by as much as it is large. Added to a stream it is nothing, and no
 * excuse for what comes behind that. */
static void judge_terms(bool related, size_t expected)
{
    struct judged judged;
    float *x = made_values(TOKENS * WIDTH), *rest = made_values(TOKENS * WIDTH), *stream = made_values(TOKENS * WIDTH);
    float *last = made_values(TOKENS * WIDTH), *other = made_values(TOKENS * WIDTH);
    float numbers[5][2][TOKENS * WIDTH], near_last[TOKENS * WIDTH];
    static const char *const names[5] = {"layers.0.up", "layers.0.down", "layers.0.left", "layers.0.stream",
                                         "layers.0.sum"};
    for (size_t i = 0; i < TOKENS * WIDTH; i++) {
        numbers[0][0][i] = x[i];
        numbers[1][0][i] = -x[i] + 0.006f * rest[i];
        numbers[3][0][i] = stream[i];
    }
    for (int k = 0; k < 4; k++)
        if (k != 2)
            shake(numbers[k][0], numbers[k][1], TOKENS * WIDTH, 0.01);
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < TOKENS * WIDTH; i++) {
            numbers[2][side][i] = numbers[0][side][i] + numbers[1][side][i];
            numbers[4][side][i] = numbers[3][side][i] + numbers[2][side][i];
        }
    trace_start(&judged.trace);
    add_products(&judged.trace, 0.01);
    for (int k = 0; k < 5; k++)
        trace_add(&judged.trace, names[k], numbers[k][0], numbers[k][1], SHAPE(TOKENS, WIDTH));
    shake(related ? last : other, near_last, TOKENS * WIDTH, 0.01);
    trace_add(&judged.trace, "layers.1.q_proj", last, near_last, SHAPE(TOKENS, WIDTH));
    free(x);
    free(rest);
    free(stream);
    free(last);
    free(other);
    expect_first(&judged, expected);
}

static void test_terms_come_in_through_their_sum(void **state)
{
    (void)state;
    judge_terms(true, SIZE_MAX);
    judge_terms(false, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_head_of_the_context),
        cmocka_unit_test(test_a_key_of_the_scores),
        cmocka_unit_test(test_a_small_token_behind_a_norm),
        cmocka_unit_test(test_a_large_token_before_a_product),
        cmocka_unit_test(test_a_token_of_a_projection),
        cmocka_unit_test(test_one_token_of_many),
        cmocka_unit_test(test_a_small_head),
        cmocka_unit_test(test_a_scan_behind_tokens_set_aside),
        cmocka_unit_test(test_terms_come_in_through_their_sum),
        cmocka_unit_test(test_an_offset_that_goes_in),
        cmocka_unit_test(test_an_offset_of_three_tokens),
        cmocka_unit_test(test_a_token_by_itself),
        cmocka_unit_test(test_a_choice_that_follows_by_chance),
        cmocka_unit_test(test_a_key_of_one_head),
        cmocka_unit_test(test_witnesses_without_tokens),
        cmocka_unit_test(test_keys_that_are_mostly_aside),
        cmocka_unit_test(test_a_large_error_grows_less),
        cmocka_unit_test(test_a_sum_in_steps),
        cmocka_unit_test(test_one_that_is_rounded_before_nan),
        cmocka_unit_test(test_one_tensor_that_is_rounded),
        cmocka_unit_test(test_one_replayed_tensor_that_is_rounded),
        cmocka_unit_test(test_keys_of_one_layer_from_a_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
