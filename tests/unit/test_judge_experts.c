/* The judge where a few tokens, numbers or masks are honestly other ones: experts that flipped, what they carry to
 * other tokens, outliers that came in, masks written by hand. Each with a trace on which it must still speak. */
#include <float.h>

#include "judged_trace.h"

enum { TOKENS = 12, WIDTH = 32, CHOSEN = 2 };

#define TINY 2e-4

/* Values of their own, and the same with a relative error. */
static void add_shaken(struct trace *trace, const char *name, double error)
{
    float *a = made_values(TOKENS * WIDTH), b[TOKENS * WIDTH];
    shake(a, b, TOKENS * WIDTH, error);
    trace_add(trace, name, a, b, SHAPE(TOKENS, WIDTH));
    free(a);
}

/* The same with other values in these tokens. */
static void add_others(struct trace *trace, const char *name, double error, const size_t *tokens, size_t count,
                       float factor)
{
    float *a = made_values(TOKENS * WIDTH), *other = made_values(TOKENS * WIDTH), b[TOKENS * WIDTH];
    shake(a, b, TOKENS * WIDTH, error);
    for (size_t i = 0; i < count; i++)
        for (size_t k = tokens[i] * WIDTH; k < (tokens[i] + 1) * WIDTH; k++)
            b[k] = factor * other[k];
    trace_add(trace, name, a, b, SHAPE(TOKENS, WIDTH));
    free(a);
    free(other);
}

static void add_flipped(struct trace *trace, const char *name, double error, const size_t *tokens, size_t count)
{
    add_others(trace, name, error, tokens, count, 1);
}

/* Experts of each token, `count` tokens of which chose another second one. */
static void add_choice(struct trace *trace, const char *name, const size_t *tokens, size_t count)
{
    int64_t chosen[2][TOKENS * CHOSEN];
    for (size_t row = 0; row < TOKENS; row++)
        for (size_t k = 0; k < CHOSEN; k++)
            chosen[0][row * CHOSEN + k] = chosen[1][row * CHOSEN + k] = (int64_t)((row * 3 + k * 5) % 16);
    for (size_t i = 0; i < count; i++)
        chosen[1][tokens[i] * CHOSEN + 1] = (chosen[0][tokens[i] * CHOSEN + 1] + 7) % 16;
    trace_add_integers(trace, name, chosen[0], chosen[1], TOKENS, CHOSEN);
}

static const size_t all_tokens[TOKENS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

/* Four products of coarse weights, then the choice of a router whose logits were not captured. */
static void route_unseen(struct judged *judged, double error, size_t flipped)
{
    static const char *const names[4] = {"layers.0.q_proj", "layers.0.k_proj", "layers.0.v_proj", "layers.0.o_proj"};
    trace_start(&judged->trace);
    for (int i = 0; i < 4; i++)
        add_shaken(&judged->trace, names[i], error);
    add_choice(&judged->trace, "layers.0.mlp.experts_chosen", all_tokens + 3, flipped);
}

static void test_flips_without_logits(void **state)
{
    struct judged judged;
    (void)state;
    route_unseen(&judged, 1e-2, 1);
    judged_run(&judged);
    assert_int_equal(judged.judgement.first, SIZE_MAX);
    assert_int_equal(judged.judgement.verdicts[4].judged, TS_JUDGED_NOISE);
    assert_int_equal(judged.judgement.aside_count, 1);
    assert_int_equal(judged.judgement.aside[0], 3);
    assert_true(judged.judgement.guessed && judged.judgement.guessed[0]);
    assert_non_null(strstr(judged.judgement.verdicts[4].why, "apparently on a near tie"));
    judged_end(&judged);
    route_unseen(&judged, 1e-2, 9); /* far more than so small an error can exchange */
    expect_first(&judged, 4);
    route_unseen(&judged, 0, 1); /* nothing came in that could */
    expect_first(&judged, 4);
}

/* A group of experts that is nearly tied with another is exchanged as a whole. */
static void judge_groups(double error, size_t flipped, size_t expected)
{
    struct judged judged;
    int64_t chosen[2][TOKENS * CHOSEN];
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++)
        add_shaken(&judged.trace, made_name("layers.0.part_%d.proj", i), error);
    for (size_t i = 0; i < TOKENS * CHOSEN; i++) {
        chosen[0][i] = (int64_t)(i * 5 % 16);
        chosen[1][i] = (chosen[0][i] + (i / CHOSEN % 4 == 1 && i / CHOSEN / 4 < flipped ? 8 : 0)) % 16;
    }
    trace_add_integers(&judged.trace, "layers.0.mlp.experts_chosen", chosen[0], chosen[1], TOKENS, CHOSEN);
    expect_first(&judged, expected);
}

static void test_groups_without_logits(void **state)
{
    (void)state;
    judge_groups(2e-3, 1, SIZE_MAX);
    judge_groups(2e-3, 2, SIZE_MAX);
    judge_groups(2e-3, 3, 4);
    judge_groups(0, 1, 4);
}

/* The experts' weights before their indices: a token that chose otherwise has other weights, and no fault. Where it did
 * not, they are one. */
static void judge_weights_first(size_t flipped, size_t expected)
{
    static const char *const names[4] = {"layers.0.q_proj", "layers.0.k_proj", "layers.0.v_proj", "layers.0.o_proj"};
    struct judged judged;
    float a[TOKENS * CHOSEN], b[TOKENS * CHOSEN];
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++)
        add_shaken(&judged.trace, names[i], 1e-2);
    for (size_t i = 0; i < TOKENS * CHOSEN; i++)
        a[i] = (float)(0.5 + 0.2 * dice_number());
    shake(a, b, TOKENS * CHOSEN, 1e-2);
    b[3 * CHOSEN] += 0.4f;
    b[3 * CHOSEN + 1] -= 0.4f;
    trace_add(&judged.trace, "layers.0.mlp.router_weights", a, b, SHAPE(TOKENS, CHOSEN));
    add_choice(&judged.trace, "layers.0.mlp.router_indices", all_tokens + 3, flipped);
    expect_first(&judged, expected);
}

static void test_weights_before_indices(void **state)
{
    (void)state;
    judge_weights_first(1, SIZE_MAX);
    judge_weights_first(0, 4);
}

/* Layers of thirteen tensors and a last one, that of the experts; in some layers a token of it took another expert.
 * Neither choice nor logits were captured. */
static void run_unseen_in(struct judged *judged, const char *last, const size_t *flipped, size_t layers, float factor)
{
    trace_start(&judged->trace);
    for (size_t layer = 0; layer < layers; layer++) {
        char name[64];
        for (int i = 0; i < 13; i++) {
            snprintf(name, sizeof name, "layers.%zu.attn.part_%c", layer, 'a' + i);
            add_shaken(&judged->trace, name, TINY);
        }
        snprintf(name, sizeof name, last, layer);
        add_others(&judged->trace, name, TINY, &flipped[layer], flipped[layer] < TOKENS, factor);
    }
}

static void run_unseen(struct judged *judged, const size_t *flipped, size_t layers, float factor)
{
    run_unseen_in(judged, "layers.%zu.mlp", flipped, layers, factor);
}

static void test_flips_without_a_router(void **state)
{
    static const size_t everywhere[4] = {2, 7, 4, 9}, once[4] = {TOKENS, 7, TOKENS, TOKENS}, same[4] = {5, 5, 5, 5};
    struct judged judged;
    (void)state;
    run_unseen(&judged, everywhere, 4, 1);
    judged_run(&judged);
    assert_non_null(strstr(judged.judgement.verdicts[13].why, "1 token may have been routed to different experts"));
    assert_int_equal(judged.judgement.note_count, 1);
    assert_non_null(strstr(judged.judgement.notes[0], "from \"layers.0.mlp\" on"));
    ts_judgement_release(&judged.judgement);
    expect_first(&judged, SIZE_MAX);
    run_unseen_in(&judged, "layers.%zu.attn.o_proj", everywhere, 4, 1); /* no experts are before it in its layer */
    expect_first(&judged, 13);
    run_unseen(&judged, everywhere, 4, 8); /* no expert's result is as large */
    expect_first(&judged, 13);
    run_unseen(&judged, once, 4, 1); /* one token in one layer */
    expect_first(&judged, 27);
    run_unseen(&judged, same, 4, 1); /* the same token in every layer: a bug of that token */
    expect_first(&judged, 13);
}

/* The names tell that there are experts, nothing tells which were chosen, and the noise of the run is such that one
 * token of twelve may well have taken another: in one layer. */
static void judge_hidden(const char *experts, double noise, size_t flipped, size_t expected)
{
    struct judged judged;
    trace_start(&judged.trace);
    for (size_t layer = 0; layer < 3; layer++) {
        char name[64];
        for (int i = 0; i < 13; i++) {
            snprintf(name, sizeof name, "layers.%zu.attn.part_%c", layer, 'a' + i);
            add_shaken(&judged.trace, name, noise);
        }
        snprintf(name, sizeof name, experts, layer);
        add_flipped(&judged.trace, name, noise, all_tokens + 3, layer == 1 ? flipped : 0);
    }
    expect_first(&judged, expected);
}

/* The same with a router that was captured in one layer: in this one it hides nothing, in others it tells that there
 * are experts, and nobody can tell whether this is one. Gates as wide as the stream are no routers; and experts do not
 * show in attention before they do in what goes into it. */
static void judge_hidden_beside(const char *flipped, size_t shown, size_t width, size_t expected)
{
    struct judged judged;
    trace_start(&judged.trace);
    for (size_t layer = 0; layer < 3; layer++) {
        char name[64];
        float *a = made_values(TOKENS * WIDTH), b[TOKENS * WIDTH];
        for (int i = 0; i < 13; i++) {
            snprintf(name, sizeof name, "layers.%zu.attn.part_%c", layer, 'a' + i);
            add_shaken(&judged.trace, name, 5e-3);
        }
        snprintf(name, sizeof name, "layers.%zu.mlp.gate", layer);
        shake(a, b, TOKENS * width, 5e-3);
        if (layer == shown)
            trace_add(&judged.trace, name, a, b, SHAPE(TOKENS, width));
        free(a);
        snprintf(name, sizeof name, flipped, layer);
        add_flipped(&judged.trace, name, 5e-3, all_tokens + 3, layer == 1);
    }
    judged_run(&judged);
    if (expected == SIZE_MAX) {
        assert_int_equal(judged.judgement.verdicts[28].judged, TS_JUDGED_UNKNOWN);
        assert_int_equal(judged.judgement.counts[TS_JUDGED_UNKNOWN], 1);
        assert_int_equal(judged.judgement.note_count, 1);
        assert_non_null(strstr(judged.judgement.notes[0], "\"layers.1"));
        assert_non_null(strstr(judged.judgement.notes[0], "(3)"));
        assert_non_null(
            strstr(judged.judgement.notes[0], shown == 1 ? "capture the chosen" : "capture the router's logits"));
    }
    ts_judgement_release(&judged.judgement);
    expect_first(&judged, expected);
}

static void test_routers_of_some_layers(void **state)
{
    (void)state;
    judge_hidden_beside("layers.%zu", 0, 8, SIZE_MAX);
    judge_hidden_beside("layers.%zu", 0, WIDTH, 28);
    judge_hidden_beside("layers.%zu.attn.o_proj", 0, 8, 28);
    judge_hidden_beside("layers.%zu", 1, 8, 28); /* the logits are there, and nothing is tied */
    /* nothing but a bias that was not captured, or a bug of that token, which may look the same */
    judge_hidden_beside("layers.%zu.mlp.experts", 1, 8, SIZE_MAX);
}

static void test_flips_where_routing_is_hidden(void **state)
{
    static const char *const experts = "layers.%zu.shared_expert", *const plain = "layers.%zu.mlp";
    (void)state;
    judge_hidden(experts, 5e-3, 0, SIZE_MAX);
    judge_hidden(experts, 5e-3, 1, SIZE_MAX);
    judge_hidden(experts, 5e-3, 5, 27); /* too many for so little noise */
    judge_hidden(experts, 1e-6, 1, 27); /* and next to no noise flips nobody */
    judge_hidden(plain, 5e-3, 1, 27);
}

/* Outputs of layers alone. Coarse weights in all of them add ever less to a stream that grows; a bug in one adds
 * once. */
static void judge_climb(const double *errors, size_t expected)
{
    struct judged judged;
    float *x;
    trace_start(&judged.trace);
    x = made_values(TOKENS * WIDTH);
    trace_add(&judged.trace, "embed", x, x, SHAPE(TOKENS, WIDTH));
    for (int layer = 0; layer < 6; layer++)
        add_shaken(&judged.trace, made_name("layers.%d", layer), errors[layer]);
    free(x);
    expect_first(&judged, expected);
}

static void test_coarse_layers_of_a_growing_stream(void **state)
{
    static const double coarse[6] = {0.36, 0.435, 0.48, 0.52, 0.55, 0.58},
                        once[6] = {0.36, 0.37, 0.36, 0.38, 0.37, 0.38}, late[6] = {1e-3, 1e-3, 0.36, 0.41, 0.46, 0.52};
    (void)state;
    judge_climb(coarse, SIZE_MAX);
    judge_climb(once, 1);
    judge_climb(late, 3);
}

/* sqrt(128) is 11.3137, and 11.3125 in bf16: embeddings are scaled by either. */
static void judge_factor(double factor, size_t expected)
{
    struct judged judged;
    float *x, y[TOKENS * WIDTH];
    trace_start(&judged.trace);
    x = made_values(TOKENS * WIDTH);
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        y[i] = (float)((double)x[i] * factor);
    trace_add(&judged.trace, "embed", x, y, SHAPE(TOKENS, WIDTH));
    free(x);
    expect_first(&judged, expected);
}

static void test_a_factor_of_embeddings_that_was_rounded(void **state)
{
    (void)state;
    judge_factor(11.3125 / sqrt(128.0), SIZE_MAX);
    judge_factor(1.004, 0);
}

/* Experts of two tokens flip on a near tie; attention carries their error to all tokens of the next layer. */
static void run_spread(struct judged *judged, bool flips)
{
    trace_start(&judged->trace);
    add_shaken(&judged->trace, "layers.0.q_proj", 1e-2);
    add_shaken(&judged->trace, "layers.0.k_proj", 1e-2);
    add_shaken(&judged->trace, "layers.0.v_proj", 1e-2);
    add_choice(&judged->trace, "layers.0.mlp.experts_chosen", all_tokens + 3, flips ? 1 : 0);
    add_flipped(&judged->trace, "layers.0.mlp", 1e-2, all_tokens + 3, flips ? 1 : 0);
    add_shaken(&judged->trace, "layers.1.v_proj", 1e-2);
    add_shaken(&judged->trace, "layers.1.o_proj", 1.0);
}

static void test_error_that_flipped_tokens_spread(void **state)
{
    struct judged judged;
    (void)state;
    run_spread(&judged, true);
    expect_first(&judged, SIZE_MAX);
    run_spread(&judged, false);
    expect_first(&judged, 6);
}

enum order { AS_THEY_WERE, REVERSED, ONE_ROW_WRONG, ONE_ROW_OFF, ONE_ROW_TWICE, OTHER_VALUES };

/* What experts gathered, [tokens * chosen, width], the candidate's rows in another order. */
static void add_gathered(struct trace *trace, const char *name, double error, enum order order)
{
    enum { ROWS = TOKENS * CHOSEN };
    float *a = made_values(ROWS * WIDTH), *other = made_values(ROWS * WIDTH), shaken[ROWS * WIDTH], b[ROWS * WIDTH];
    shake(order == OTHER_VALUES ? other : a, shaken, ROWS * WIDTH, error);
    for (size_t row = 0; row < ROWS; row++)
        memcpy(b + row * WIDTH, shaken + (order == AS_THEY_WERE ? row : (row * 7 + 3) % ROWS) * WIDTH,
               WIDTH * sizeof *b);
    if (order == ONE_ROW_WRONG)
        memcpy(b + 5 * WIDTH, other, WIDTH * sizeof *b);
    if (order == ONE_ROW_TWICE)
        memcpy(b + 5 * WIDTH, b + 8 * WIDTH, WIDTH * sizeof *b);
    for (size_t i = 5 * WIDTH; i < 6 * WIDTH && order == ONE_ROW_OFF; i++)
        b[i] += 0.3f * other[i];
    trace_add(trace, name, a, b, SHAPE(ROWS, WIDTH));
    free(a);
    free(other);
}

/* A layer with products, what its experts hold, what comes out of them, and a layer behind it. */
static void judge_gathered(const char *name, enum order order, double error, double behind, size_t expected)
{
    struct judged judged;
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++)
        add_shaken(&judged.trace, made_name("layers.0.part_%d.proj", i), TINY);
    add_gathered(&judged.trace, name, error, order);
    add_shaken(&judged.trace, "layers.0.mlp.experts", behind);
    add_shaken(&judged.trace, "layers.1.q_proj", TINY);
    judged_run(&judged);
    if (order == REVERSED && expected != 4)
        assert_non_null(strstr(judged.judgement.verdicts[4].why, "experts gather tokens as they come"));
    else if (judged.judgement.verdicts[4].why)
        assert_null(strstr(judged.judgement.verdicts[4].why, "experts gather"));
    ts_judgement_release(&judged.judgement);
    expect_first(&judged, expected);
}

static void test_rows_that_experts_gather(void **state)
{
    static const char *const inside = "layers.0.mlp.experts.act_fn";
    (void)state;
    judge_gathered(inside, AS_THEY_WERE, TINY, TINY, SIZE_MAX);
    judge_gathered(inside, REVERSED, TINY, TINY, SIZE_MAX);
    judge_gathered(inside, REVERSED, 0, TINY, SIZE_MAX);
    judge_gathered("experts.0.up", REVERSED, TINY, TINY, SIZE_MAX);
    /* other rows, one other row, or rows that err: wrong routing and wrong weights are found */
    judge_gathered(inside, OTHER_VALUES, TINY, TINY, 4);
    judge_gathered(inside, ONE_ROW_WRONG, TINY, TINY, 4);
    judge_gathered(inside, ONE_ROW_TWICE, TINY, TINY, 4);
    /* what comes in another order elsewhere is a bug */
    judge_gathered("layers.0.mlp.up_proj", REVERSED, TINY, TINY, 4);
    judge_gathered("layers.0.mlp.shared_experts.up_proj", REVERSED, TINY, TINY, 4);
    /* the order of what is inside hides nothing of what comes out */
    judge_gathered(inside, REVERSED, TINY, 1.0, 5);
}

/* A token that took another expert has another row inside it, and the others are still the same. */
static void judge_gathered_flips(enum order order, size_t flipped, size_t expected)
{
    struct judged judged;
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++)
        add_shaken(&judged.trace, made_name("layers.0.part_%d.proj", i), 1e-2);
    add_choice(&judged.trace, "layers.0.mlp.experts_chosen", all_tokens + 3, flipped);
    add_gathered(&judged.trace, "layers.0.mlp.experts.act_fn", 1e-2, order);
    expect_first(&judged, expected);
}

/* Rows in another order whose error is no noise: another activation, whose size alone a coarse precision might have. */
static void judge_gathered_activation(bool other, size_t expected)
{
    enum { ROWS = TOKENS * CHOSEN };
    struct judged judged;
    float *x, a[ROWS * WIDTH], b[ROWS * WIDTH];
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++)
        add_shaken(&judged.trace, made_name("layers.0.part_%d.proj", i), TINY);
    x = made_values(ROWS * WIDTH);
    for (size_t i = 0; i < ROWS * WIDTH; i++) {
        const size_t to = (i / WIDTH * 7 + 3) % ROWS * WIDTH + i % WIDTH;
        const double silu = (double)x[i] / (1 + exp(-(double)x[i]));
        const double gelu = (double)x[i] * 0.5 * (1 + erf((double)x[i] / sqrt(2)));
        a[i] = (float)silu;
        b[to] = (float)(other ? gelu : silu * (1 + 0.16 * dice_number()));
    }
    trace_add(&judged.trace, "layers.0.mlp.experts.act_fn", a, b, SHAPE(ROWS, WIDTH));
    free(x);
    expect_first(&judged, expected);
}

static void test_what_matched_rows_show(void **state)
{
    (void)state;
    judge_gathered_flips(ONE_ROW_WRONG, 1, SIZE_MAX);
    judge_gathered_flips(ONE_ROW_OFF, 1, SIZE_MAX); /* an expert that makes nearly the same of it */
    judge_gathered_flips(ONE_ROW_WRONG, 0, 5);
    judge_gathered_flips(ONE_ROW_OFF, 0, 5);
    judge_gathered_activation(false, SIZE_MAX); /* weights of four bits in the experts alone */
    judge_gathered_activation(true, 4);
}

/* Scores whose queries and keys were not captured: those of a token that was routed otherwise are other ones. */
static void judge_scores_behind_flips(size_t flipped, size_t sinks, size_t expected)
{
    enum { HEADS = 3, KEY = 3 };
    const size_t keys = TOKENS + sinks, count = HEADS * TOKENS * keys;
    struct judged judged;
    float *scores, *others, b[HEADS * TOKENS * (TOKENS + 1)];
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++)
        add_shaken(&judged.trace, made_name("layers.0.part_%d.proj", i), 1e-2);
    add_choice(&judged.trace, "layers.0.mlp.experts_chosen", all_tokens + KEY, flipped);
    scores = made_values(count);
    others = made_values(count);
    shake(scores, b, count, 1e-2);
    for (size_t i = KEY; i < count; i += keys)
        b[i] = others[i];
    trace_add(&judged.trace, "layers.1.attn.scores", scores, b, SHAPE(HEADS, TOKENS, keys));
    free(scores);
    free(others);
    expect_first(&judged, expected);
}

static void test_keys_of_tokens_set_aside(void **state)
{
    (void)state;
    judge_scores_behind_flips(1, 0, SIZE_MAX);
    judge_scores_behind_flips(0, 0, 5);
    judge_scores_behind_flips(1, 1, SIZE_MAX);
    judge_scores_behind_flips(0, 1, 5);
}

/* Probabilities whose scores were not captured, with a sink: what the key of such a token takes, the others lack.
 * wrong: one token's are larger besides, by so much. */
static void judge_probabilities_behind_flips(size_t flipped, double wrong, size_t expected)
{
    enum { HEADS = 3, KEY = 3 };
    struct judged judged;
    float *scores, sides[2][HEADS * TOKENS * TOKENS];
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++)
        add_shaken(&judged.trace, made_name("layers.0.part_%d.proj", i), 1e-3);
    add_choice(&judged.trace, "layers.0.mlp.experts_chosen", all_tokens + KEY, flipped);
    scores = made_values(HEADS * TOKENS * TOKENS);
    for (size_t side = 0; side < 2; side++)
        for (size_t start = 0; start < HEADS * TOKENS * TOKENS; start += TOKENS) {
            const size_t token = start / TOKENS % TOKENS;
            double sum = 1; /* the sink's */
            for (size_t key = 0; key <= token; key++) {
                double score = (double)scores[start + key] + (side ? 1e-3 * dice_number() : 0);
                score = side && key == KEY ? score + 2 : score;
                sides[side][start + key] = (float)exp(score);
                sum += exp(score);
            }
            for (size_t key = 0; key < TOKENS; key++)
                sides[side][start + key] = key > token ? 0 : (float)((double)sides[side][start + key] / sum);
            for (size_t key = 0; key < TOKENS && side && token == TOKENS - 1; key++)
                sides[side][start + key] *= (float)(1 + wrong);
        }
    trace_add(&judged.trace, "layers.1.attn.probs", sides[0], sides[1], SHAPE(HEADS, TOKENS, TOKENS));
    free(scores);
    expect_first(&judged, expected);
}

static void test_shares_of_tokens_set_aside(void **state)
{
    (void)state;
    judge_probabilities_behind_flips(1, 0, SIZE_MAX);
    judge_probabilities_behind_flips(0, 0, 5);
    judge_probabilities_behind_flips(1, -0.3, 5);
}

/* One token, one number of which errs by so many times the others' error. */
static void add_outlier(struct trace *trace, const char *name, double times)
{
    enum { NUMBERS = 64 };
    float *a = made_values(NUMBERS), b[NUMBERS];
    for (size_t i = 0; i < NUMBERS; i++) {
        a[i] += a[i] < 0 ? -1 : 1;
        b[i] = (float)((double)a[i] * (1 + 1e-3 * (i % 2 ? 1 : -1)));
    }
    b[11] = (float)((double)a[11] * (1 + 1e-3 * times));
    trace_add(trace, name, a, b, SHAPE(1, NUMBERS));
    free(a);
}

static void judge_outliers(double before, double here, size_t expected)
{
    struct judged judged;
    trace_start(&judged.trace);
    add_outlier(&judged.trace, "layers.0.up_proj", 1);
    add_outlier(&judged.trace, "layers.0.k_proj", before);
    add_outlier(&judged.trace, "layers.0.down_proj", here);
    expect_first(&judged, expected);
}

static void test_inherited_outliers(void **state)
{
    (void)state;
    judge_outliers(1, 1, SIZE_MAX);
    judge_outliers(20, 60, SIZE_MAX); /* it came in */
    judge_outliers(1, 60, 2);
}

/* One number of many tokens, wrong by so much, under noise of a hundredth that hides its energy. */
static void judge_lone(double wrong, size_t expected)
{
    enum { LONG = 40, WIDE = 128 };
    static const char *const names[4] = {"layers.0.q_proj", "layers.0.k_proj", "layers.0.v_proj", "layers.0.o_proj"};
    struct judged judged;
    float *x = made_values(LONG * WIDE);
    trace_start(&judged.trace);
    trace_add(&judged.trace, "embed", x, x, SHAPE(LONG, WIDE));
    free(x);
    for (int i = 0; i < 4; i++) {
        float *a = made_values(LONG * WIDE), *b = made_values(LONG * WIDE);
        shake(a, b, LONG * WIDE, 1e-2);
        if (i == 2)
            b[17 * WIDE + 9] = (float)((double)a[17 * WIDE + 9] + wrong);
        trace_add(&judged.trace, names[i], a, b, SHAPE(LONG, WIDE));
        free(a);
        free(b);
    }
    expect_first(&judged, expected);
}

static void test_one_wrong_element_of_many_tokens(void **state)
{
    (void)state;
    judge_lone(0, SIZE_MAX);
    judge_lone(0.05, SIZE_MAX);
    judge_lone(2, 3);
}

/* Scores whose mask the reference writes as minus infinity and the candidate by hand. */
static void judge_masks(float masked_a, float masked_b, size_t expected)
{
    struct judged judged;
    float *hidden, *scores, a[3 * TOKENS * TOKENS], b[3 * TOKENS * TOKENS];
    trace_start(&judged.trace);
    hidden = made_values(TOKENS * WIDTH);
    scores = made_values(3 * TOKENS * TOKENS);
    shake(scores, b, 3 * TOKENS * TOKENS, 1e-6);
    for (size_t i = 0; i < 3 * TOKENS * TOKENS; i++) {
        bool masked = i % TOKENS > i / TOKENS % TOKENS;
        a[i] = masked ? masked_a : scores[i];
        b[i] = masked ? masked_b : b[i];
    }
    trace_add(&judged.trace, "embed", hidden, hidden, SHAPE(TOKENS, WIDTH));
    trace_add(&judged.trace, "layers.0.attn.scores", a, b, SHAPE(3, TOKENS, TOKENS));
    free(hidden);
    free(scores);
    expect_first(&judged, expected);
}

static void test_masks_written_by_hand(void **state)
{
    (void)state;
    judge_masks(-INFINITY, -3.4e38f, SIZE_MAX);
    judge_masks(-3.4e38f, -INFINITY, SIZE_MAX);
    judge_masks(-INFINITY, -2e30f, SIZE_MAX);
    judge_masks(-FLT_MAX, -65472, SIZE_MAX); /* f16, with a score added to the mask */
    judge_masks(-FLT_MAX, -3, 1);
    judge_masks(-INFINITY, -3, 1);
    judge_masks(-INFINITY, INFINITY, 1);
    judge_masks(INFINITY, 3.4e38f, 1);
}

/* Nothing can be said of the type that one number went through, however often it stands there. */
static void test_bits_of_a_constant(void **state)
{
    float values[64];
    (void)state;
    for (size_t i = 0; i < 64; i++)
        values[i] = i % 3 ? 1.5f : -1.5f;
    assert_int_equal(ts_mantissa_bits(values, 64), 23);
    for (size_t i = 0; i < 64; i++)
        values[i] = (float)(1 + i % 4) * 0.25f;
    assert_int_equal(ts_mantissa_bits(values, 64), 2);
    for (size_t i = 0; i < 64; i++)
        values[i] = to_bf16((float)dice_number());
    assert_int_equal(ts_mantissa_bits(values, 64), 7);
}

/* A router whose bias decides who is chosen and is no part of the weights: sigmoids divided by their sum, times 2.5.
 * faulty: the bias is in them. flipped: tokens that chose another expert on a tie. late: the choice was captured behind
 * the weights. */
static void route_with_a_bias(struct judged *judged, bool faulty, size_t flipped, bool late)
{
    enum { EXPERTS = 8 };
    float *logits = made_values(TOKENS * EXPERTS), *bias = made_values(EXPERTS), own[2][TOKENS * EXPERTS];
    float gates[2][TOKENS * CHOSEN];
    int64_t chosen[2][TOKENS * CHOSEN];
    memcpy(own[0], logits, sizeof own[0]);
    shake(logits, own[1], TOKENS * EXPERTS, TINY);
    for (int side = 0; side < 2; side++)
        for (size_t row = 0; row < TOKENS; row++) {
            const float *from = own[side] + row * EXPERTS;
            double sum = 0;
            for (size_t k = 0; k < CHOSEN; k++) { /* any two of them: what was captured tells whose weights these are */
                size_t expert = (row * 3 + k * 5 + (side && k && row >= TOKENS - flipped)) % EXPERTS;
                double gate =
                    1 / (1 + exp(-(double)from[expert])) + (faulty && side ? 0.002 * (double)bias[expert] : 0);
                chosen[side][row * CHOSEN + k] = (int64_t)expert;
                gates[side][row * CHOSEN + k] = (float)gate;
                sum += gate;
            }
            for (size_t k = 0; k < CHOSEN; k++)
                gates[side][row * CHOSEN + k] *= (float)(2.5 / sum);
        }
    trace_add(&judged->trace, "layers.0.mlp.gate", own[0], own[1], SHAPE(TOKENS, EXPERTS));
    if (!late)
        trace_add_integers(&judged->trace, "layers.0.mlp.chosen", chosen[0], chosen[1], TOKENS, CHOSEN);
    trace_add(&judged->trace, "layers.0.mlp.gate_weights", gates[0], gates[1], SHAPE(TOKENS, CHOSEN));
    if (late)
        trace_add_integers(&judged->trace, "layers.0.mlp.chosen", chosen[0], chosen[1], TOKENS, CHOSEN);
    free(logits);
    free(bias);
}

static void test_weights_that_a_bias_chose(void **state)
{
    struct judged judged;
    (void)state;
    for (int way = 0; way < 2; way++) {
        trace_start(&judged.trace);
        for (int i = 0; i < 4; i++)
            add_shaken(&judged.trace, made_name("layers.0.attn_%d", i), TINY);
        route_with_a_bias(&judged, way == 1, 0, false);
        expect_first(&judged, way ? 6 : SIZE_MAX);
    }
    /* those that chose otherwise have the weights of whom they chose: whatever is said of the choice, it is not them */
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++)
        add_shaken(&judged.trace, made_name("layers.0.attn_%d", i), TINY);
    route_with_a_bias(&judged, false, 2, false);
    judged_run(&judged);
    assert_int_not_equal(judged.judgement.first, 6);
    assert_int_not_equal(judged.judgement.verdicts[6].judged, TS_JUDGED_DIFFERS);
    judged_end(&judged);
}

/* The choice stands behind the weights that it gives: they are replayed with it all the same. */
static void test_weights_before_what_a_bias_chose(void **state)
{
    struct judged judged;
    (void)state;
    for (int way = 0; way < 3; way++) {
        trace_start(&judged.trace);
        for (int i = 0; i < 4; i++)
            add_shaken(&judged.trace, made_name("layers.0.attn_%d", i), TINY);
        route_with_a_bias(&judged, way == 1, way == 2 ? 2 : 0, true);
        judged_run(&judged);
        assert_non_null(judged.judgement.verdicts[5].operation);
        if (way == 1)
            assert_int_equal(judged.judgement.first, 5);
        else
            assert_int_not_equal(judged.judgement.verdicts[5].judged, TS_JUDGED_DIFFERS);
        judged_end(&judged);
    }
}

enum chosen_by { BY_BIAS, BY_BIAS_NOT_DIVIDED, BY_NOTHING };

/* In the reference the largest logits are those that a bias chose, by chance: two of them in each token, the third not
 * far below. The candidate's error exchanges the second and the third, and its bias chooses as the reference's does. */
static void judge_chosen_by_chance(enum chosen_by how, size_t expected)
{
    enum { EXPERTS = 8 };
    struct judged judged;
    float *spread = made_values(TOKENS * EXPERTS), own[2][TOKENS * EXPERTS], gates[2][TOKENS * CHOSEN];
    int64_t chosen[2][TOKENS * CHOSEN];
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++)
        add_shaken(&judged.trace, made_name("layers.0.attn_%d", i), 1e-2);
    for (size_t i = 0; i < TOKENS * EXPERTS; i++)
        own[0][i] = own[1][i] = -1 + 0.2f * spread[i];
    for (size_t row = 0; row < TOKENS; row++) {
        float *a = own[0] + row * EXPERTS, *b = own[1] + row * EXPERTS;
        a[row % EXPERTS] = b[row % EXPERTS] = 1.5f;
        a[(row + 1) % EXPERTS] = 0.5f;
        b[(row + 1) % EXPERTS] = 0.47f;
        a[(row + 2) % EXPERTS] = 0.48f;
        b[(row + 2) % EXPERTS] = 0.51f;
    }
    for (int side = 0; side < 2; side++)
        for (size_t row = 0; row < TOKENS; row++) {
            double sum = 0, gate[CHOSEN];
            for (size_t k = 0; k < CHOSEN; k++) {
                const size_t expert = (row + k + (how == BY_NOTHING && side && row == 5 ? 4 : 0)) % EXPERTS;
                chosen[side][row * CHOSEN + k] = (int64_t)expert;
                gate[k] = 1 / (1 + exp(-(double)own[side][row * EXPERTS + expert]));
                sum += gate[k];
            }
            for (size_t k = 0; k < CHOSEN; k++)
                gates[side][row * CHOSEN + k] = (float)(2.5 * gate[k] / (how == BY_BIAS_NOT_DIVIDED && side ? 1 : sum));
        }
    trace_add(&judged.trace, "layers.0.mlp.gate", own[0], own[1], SHAPE(TOKENS, EXPERTS));
    trace_add(&judged.trace, "layers.0.mlp.gate_weights", gates[0], gates[1], SHAPE(TOKENS, CHOSEN));
    trace_add_integers(&judged.trace, "layers.0.mlp.chosen", chosen[0], chosen[1], TOKENS, CHOSEN);
    free(spread);
    expect_first(&judged, expected);
}

static void test_weights_of_the_largest_by_chance(void **state)
{
    (void)state;
    judge_chosen_by_chance(BY_BIAS, SIZE_MAX);
    judge_chosen_by_chance(BY_BIAS_NOT_DIVIDED, 5);
    judge_chosen_by_chance(BY_NOTHING, 5); /* the choice is wrong, and so are the weights before it */
}

/* A mixture captured at the calls of its modules: most tensors are of experts, and it is a run all the same. */
static void test_experts_of_a_run(void **state)
{
    static const struct {
        const char *name;
        bool weights;
    } cases[] = {
        {"model.layers.0.mlp.experts.%d.down_proj", false}, {"layers.0.block_sparse_moe.experts.%d.w1", false},
        {"model.layers.0.mlp.experts.%d", false},           {"model.layers.%d.mlp.experts.down_proj", true},
        {"model.layers.0.mlp.experts.%d.w1.qzeros", true},  {"model.layers.0.mlp.experts.%d.w1.weight", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct trace trace;
        trace_start(&trace);
        add_shaken(&trace, "model.layers.0.mlp", TINY);
        for (int k = 0; k < 4; k++)
            add_shaken(&trace, made_name(cases[i].name, k), TINY);
        assert_int_equal(ts_judge_are_weights(trace.pairs, trace.count), cases[i].weights);
        trace_end(&trace);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_that_a_bias_chose),
        cmocka_unit_test(test_weights_before_what_a_bias_chose),
        cmocka_unit_test(test_weights_of_the_largest_by_chance),
        cmocka_unit_test(test_flips_without_logits),
        cmocka_unit_test(test_groups_without_logits),
        cmocka_unit_test(test_weights_before_indices),
        cmocka_unit_test(test_flips_without_a_router),
        cmocka_unit_test(test_flips_where_routing_is_hidden),
        cmocka_unit_test(test_routers_of_some_layers),
        cmocka_unit_test(test_coarse_layers_of_a_growing_stream),
        cmocka_unit_test(test_a_factor_of_embeddings_that_was_rounded),
        cmocka_unit_test(test_error_that_flipped_tokens_spread),
        cmocka_unit_test(test_rows_that_experts_gather),
        cmocka_unit_test(test_what_matched_rows_show),
        cmocka_unit_test(test_keys_of_tokens_set_aside),
        cmocka_unit_test(test_shares_of_tokens_set_aside),
        cmocka_unit_test(test_inherited_outliers),
        cmocka_unit_test(test_one_wrong_element_of_many_tokens),
        cmocka_unit_test(test_masks_written_by_hand),
        cmocka_unit_test(test_bits_of_a_constant),
        cmocka_unit_test(test_experts_of_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
