/* Behind what was not captured: a softmax, a cache, the input of a norm. Each honest, and each with a bug in its place.
 */
#include "judged_trace.h"

enum { TOKENS = 16, HEADS = 2, WIDTH = 32, TOTAL = TOKENS * WIDTH, KEYS = TOKENS * HEADS * TOKENS };

static void add_erring(struct trace *trace, const char *name, double error)
{
    float *a = made_values(TOTAL), b[TOTAL];
    err(a, b, TOTAL, error);
    trace_add(trace, name, a, b, SHAPE(TOKENS, WIDTH));
    free(a);
}

struct step {
    const char *name;
    double error;
};

static void judge_steps(const struct step *steps, size_t count, size_t expected)
{
    struct judged judged;
    trace_start(&judged.trace);
    for (size_t i = 0; i < count; i++)
        add_erring(&judged.trace, steps[i].name, steps[i].error);
    expect_first(&judged, expected);
}

#define JUDGE(expected, ...)                                                                                           \
    judge_steps((const struct step[]){__VA_ARGS__}, sizeof((const struct step[]){__VA_ARGS__}) / sizeof(struct step),  \
                expected)

/* [tokens, heads, keys]; every token sees itself and those before it. */
static void softmax(const float *scores, float *out)
{
    for (size_t row = 0; row < TOKENS * HEADS; row++) {
        const size_t seen = row / HEADS + 1;
        double sum = 0;
        for (size_t key = 0; key < TOKENS; key++)
            sum += key < seen ? exp((double)scores[row * TOKENS + key]) : 0;
        for (size_t key = 0; key < TOKENS; key++)
            out[row * TOKENS + key] = key < seen ? (float)(exp((double)scores[row * TOKENS + key]) / sum) : 0;
    }
}

/* Probabilities without their scores, of which each errs by this, relative to all of them, and is multiplied. */
static void judge_probabilities(double size, double error, float factor, size_t expected)
{
    struct judged judged;
    float *a = made_values(KEYS), b[KEYS], one[KEYS], other[KEYS];
    trace_start(&judged.trace);
    add_erring(&judged.trace, "layers.0.q", error);
    add_erring(&judged.trace, "layers.0.k", error);
    add_erring(&judged.trace, "layers.0.v", error);
    for (size_t i = 0; i < KEYS; i++)
        a[i] *= (float)size;
    err(a, b, KEYS, error);
    for (size_t i = 0; i < KEYS; i++)
        b[i] *= factor;
    softmax(a, one);
    softmax(b, other);
    trace_add(&judged.trace, "layers.0.attn_probs", one, other, SHAPE(TOKENS, HEADS, TOKENS));
    free(a);
    expect_first(&judged, expected);
}

/* Large scores make large errors of small ones, in the tokens that are nearly tied: as scores they are small. */
static void test_probabilities_are_scores(void **state)
{
    (void)state;
    judge_probabilities(1, 3e-3, 1, SIZE_MAX);
    judge_probabilities(30, 3e-3, 1, SIZE_MAX);
    judge_probabilities(60, 3e-3, 1, SIZE_MAX);
    judge_probabilities(1, 3e-3, 1.2F, 3);
    judge_probabilities(5, 3e-3, 1.2F, 3);
    judge_probabilities(5, 3e-3, 0.5F, 3);
}

/* Scores of every layer err, by what a key's distance is, as with other angles, or whatever it is, as low-bit keys make
 * it. In all layers alike, as both do. */
static void judge_distances(bool by_distance, size_t expected)
{
    struct judged judged;
    trace_start(&judged.trace);
    for (int layer = 0; layer < 3; layer++) {
        float *a = made_values(KEYS), *errors = made_values(KEYS), b[KEYS], one[KEYS], other[KEYS];
        add_erring(&judged.trace, made_name("layers.%d.q", layer), layer ? 0.05 : 1e-7);
        add_erring(&judged.trace, made_name("layers.%d.k", layer), layer ? 0.05 : 1e-7);
        for (size_t i = 0; i < KEYS; i++) {
            const size_t token = i / TOKENS / HEADS, key = i % TOKENS, distance = key < token ? token - key : 0;
            b[i] = a[i] + (by_distance && distance < 2 ? 0.01f : 0.1f) * errors[i];
        }
        softmax(a, one);
        softmax(b, other);
        trace_add(&judged.trace, made_name("layers.%d.attn_probs", layer), one, other, SHAPE(TOKENS, HEADS, TOKENS));
        free(a);
        free(errors);
    }
    expect_first(&judged, expected);
}

static void test_errors_that_grow_with_distance(void **state)
{
    (void)state;
    judge_distances(false, SIZE_MAX);
    judge_distances(true, 2);
}

/* Rows that do not sum to one are no probabilities, whatever their logarithms say. */
static void test_rows_that_are_not_whole(void **state)
{
    struct judged judged;
    float *a = made_values(KEYS), one[KEYS], other[KEYS];
    (void)state;
    trace_start(&judged.trace);
    add_erring(&judged.trace, "layers.0.q", 3e-3);
    add_erring(&judged.trace, "layers.0.k", 3e-3);
    softmax(a, one);
    for (size_t i = 0; i < KEYS; i++)
        other[i] = one[i] * (1.5F + 0.5F * (float)(i / (TOKENS * HEADS) % 3));
    trace_add(&judged.trace, "layers.0.attn_probs", one, other, SHAPE(TOKENS, HEADS, TOKENS));
    free(a);
    expect_first(&judged, 2);
}

/* Keys and values in eight bits, of a run that is equal to the last bit before: nothing but attention's output shows
 * it. No other tensor is granted that, nor a larger error. */
static void test_a_cache_that_nothing_shows(void **state)
{
    (void)state;
    JUDGE(SIZE_MAX, {"embed", 0}, {"layers.0.q", 0}, {"layers.0.k", 0}, {"layers.0.v", 0}, {"layers.0.attn_out", 0.03},
          {"layers.0.up", 0.01}, {"layers.0.down", 0.01});
    JUDGE(4, {"embed", 0}, {"layers.0.q", 0}, {"layers.0.k", 0}, {"layers.0.v", 0}, {"layers.0.attn_out", 0.1},
          {"layers.0.up", 0.03}, {"layers.0.down", 0.03});
    JUDGE(4, {"embed", 0}, {"layers.0.q", 0}, {"layers.0.k", 0}, {"layers.0.v", 0}, {"layers.0.scan_out", 0.03},
          {"layers.0.up", 0.01}, {"layers.0.down", 0.01});
    JUDGE(4, {"embed", 0}, {"layers.0.q", 0}, {"layers.0.k", 0}, {"layers.0.v", 0}, {"layers.0.attn_norm", 0.03},
          {"layers.0.up", 0.01}, {"layers.0.down", 0.01});
}

/* Tokens that err unevenly, by so much in the logarithm of the energy; many products behind it are fine. */
static void judge_uneven(const char *name, double uneven, size_t expected)
{
    static const char *const fine[] = {"ln_1", "up", "gate", "ln_2", "down", "ln_3", "out"};
    struct judged judged;
    float *a = made_values(TOTAL), b[TOTAL];
    trace_start(&judged.trace);
    add_erring(&judged.trace, "embed", 1e-3);
    add_erring(&judged.trace, "layers.0.norm", 1e-3);
    for (int k = 0; k < 4; k++)
        add_erring(&judged.trace, made_name("layers.0.product_%d", k), 1e-3);
    err(a, b, TOTAL, 0.05);
    for (size_t i = 0; i < TOTAL; i++)
        b[i] = a[i] + (float)exp(i / WIDTH % 2 ? -uneven / 2 : uneven / 2) * (b[i] - a[i]) / 1.1F;
    trace_add(&judged.trace, name, a, b, SHAPE(TOKENS, WIDTH));
    free(a);
    for (size_t k = 0; k < sizeof fine / sizeof *fine; k++) {
        char other[32];
        snprintf(other, sizeof other, "layers.0.%s", fine[k]);
        add_erring(&judged.trace, other, 0.01);
    }
    expect_first(&judged, expected);
}

/* Products without a cache say nothing about one. */
static void test_others_have_no_cache(void **state)
{
    (void)state;
    judge_uneven("layers.0.attn_out", 0.8, SIZE_MAX);
    judge_uneven("layers.0.attn_out", 1.3, 6);
    judge_uneven("layers.0.scan_out", 0.8, 6);
}

/* Products of other kinds that are fine say one thing, however many they are; unless it was fine in earlier layers. One
 * layer speaks for a precision, and the others say nothing: they err by what lies between the stories. */
static void judge_many_others(int from, size_t expected)
{
    static const char *const names[] = {"norm", "q", "k", "v", "o", "ln_2", "gate", "up", "down"};
    enum { LAYERS = 7, O = 4 };
    struct judged judged;
    trace_start(&judged.trace);
    add_erring(&judged.trace, "embed", 1e-3);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int k = 0; k < 9; k++) {
            char name[32];
            double error = layer > from || (layer == from && k > O) ? 0.02 : 1e-3;
            if (k == O && layer >= from)
                error = layer == from ? 0.06 : layer < from + 2 ? 0.08 : 0.0356;
            snprintf(name, sizeof name, "layers.%d.%s", layer, names[k]);
            add_erring(&judged.trace, name, error);
        }
    expect_first(&judged, expected);
}

static void test_other_kinds_are_one_fact(void **state)
{
    (void)state;
    judge_many_others(0, SIZE_MAX);
    judge_many_others(2, 1 + 2 * 9 + 4);
}

/* Some layers are quantized and others are not (`coarse`, a bit for each); or q alone is wrong in the first of these,
 * and what comes behind it carries half of that. Sums of the embeddings and v, and of them and up, are learnt. */
static void judge_layers(unsigned coarse, bool bug, size_t expected)
{
    static const char *const names[] = {"q", "k", "v", "sum", "gate", "up", "out", "down"};
    enum { LAYERS = 5, NAMES = 8, Q = 0 };
    struct judged judged;
    float *x = made_values(TOTAL), last[2][TOTAL], sums[2][TOTAL];
    double stream = 3e-3;
    trace_start(&judged.trace);
    trace_add(&judged.trace, "embed", x, x, SHAPE(TOKENS, WIDTH));
    for (int layer = 0; layer < LAYERS; layer++)
        for (int k = 0; k < NAMES; k++) {
            const bool own = (coarse >> layer & 1) && (!bug || k == Q);
            char name[32];
            snprintf(name, sizeof name, "layers.%d.%s", layer, names[k]);
            if (strcmp(names[k], "sum") == 0 || strcmp(names[k], "out") == 0) {
                for (size_t i = 0; i < TOTAL; i++)
                    for (int side = 0; side < 2; side++)
                        sums[side][i] = x[i] + last[side][i];
                trace_add(&judged.trace, name, sums[0], sums[1], SHAPE(TOKENS, WIDTH));
                continue;
            }
            for (size_t i = 0; i < TOTAL; i++)
                last[0][i] = (float)dice_number();
            err(last[0], last[1], TOTAL, own ? sqrt(0.01 + stream * stream) : stream);
            trace_add(&judged.trace, name, last[0], last[1], SHAPE(TOKENS, WIDTH));
            stream = own ? fmax(stream, 0.05) : stream;
        }
    expect_first(&judged, expected);
    free(x);
}

static void test_some_layers_are_coarse(void **state)
{
    (void)state;
    judge_layers(1u << 1, false, SIZE_MAX);
    judge_layers(1u << 1 | 1u << 3, false, SIZE_MAX);
    judge_layers(1u << 1, true, 1 + 8);
}

/* A branch that is small beside the stream: the sum takes it, or does not. */
static void judge_branch(bool taken, size_t expected)
{
    struct judged judged;
    float *x = made_values(TOTAL), *branch = made_values(TOTAL), wrong[TOTAL], a[TOTAL], b[TOTAL];
    trace_start(&judged.trace);
    trace_add(&judged.trace, "embed", x, x, SHAPE(TOKENS, WIDTH));
    for (size_t i = 0; i < TOTAL; i++)
        branch[i] *= 0.05F;
    err(branch, wrong, TOTAL, 0.03);
    trace_add(&judged.trace, "layers.0.attn_out", branch, wrong, SHAPE(TOKENS, WIDTH));
    for (size_t i = 0; i < TOTAL; i++) {
        a[i] = x[i] + branch[i];
        b[i] = x[i] + (taken ? wrong[i] : branch[i]);
    }
    trace_add(&judged.trace, "layers.0.sum", a, b, SHAPE(TOKENS, WIDTH));
    add_erring(&judged.trace, "layers.0.up", 1e-3);
    add_erring(&judged.trace, "layers.0.gate", 1e-3);
    add_erring(&judged.trace, "layers.0.down", 1e-3);
    add_erring(&judged.trace, "layers.0.out", 1e-3);
    free(x);
    free(branch);
    expect_first(&judged, expected);
}

static void test_what_a_sum_takes_is_used(void **state)
{
    (void)state;
    judge_branch(true, SIZE_MAX);
    judge_branch(false, 1);
}

enum hidden_step { PLAIN, CACHED, SCALED, UNMASKED };

/* What comes out of causal attention: a key and a value per head, in eight bits where they are cached. */
static void attend(const float *q, const float *k, const float *v, enum hidden_step step, float *out)
{
    enum { SIZE = WIDTH / HEADS };
    for (size_t token = 0; token < TOKENS; token++)
        for (size_t head = 0; head < HEADS; head++) {
            const size_t seen = step == UNMASKED ? TOKENS : token + 1, at = head * SIZE;
            double weights[TOKENS], most = -INFINITY, sum = 0;
            for (size_t key = 0; key < seen; key++) {
                weights[key] = 0;
                for (size_t i = at; i < at + SIZE; i++)
                    weights[key] +=
                        (double)q[token * WIDTH + i] *
                        (double)(step == CACHED ? to_four_bits((double)k[key * WIDTH + i]) : k[key * WIDTH + i]);
                weights[key] *= (step == SCALED ? 1.3 : 1) / sqrt((double)SIZE);
                most = fmax(most, weights[key]);
            }
            for (size_t key = 0; key < seen; key++)
                sum += weights[key] = exp(weights[key] - most);
            for (size_t i = at; i < at + SIZE; i++) {
                double value = 0;
                for (size_t key = 0; key < seen; key++)
                    value += weights[key] / sum *
                             (double)(step == CACHED ? to_four_bits((double)v[key * WIDTH + i]) : v[key * WIDTH + i]);
                out[token * WIDTH + i] = (float)value;
            }
        }
}

/* Queries, keys and values of this size that err by so much, and what a projection makes of their attention. */
static void judge_sharp(float size, double error, enum hidden_step step, size_t expected)
{
    static const char *const names[3] = {"layers.0.self_attn.q_proj", "layers.0.self_attn.k_proj",
                                         "layers.0.self_attn.v_proj"};
    struct judged judged;
    float *a[3], b[3][TOTAL], *weight = made_values(WIDTH * WIDTH), context[TOTAL], one[TOTAL], other[TOTAL];
    trace_start(&judged.trace);
    for (int i = 0; i < 3; i++) {
        a[i] = made_values(TOTAL);
        for (size_t k = 0; k < TOTAL && i < 2; k++)
            a[i][k] *= size;
        err(a[i], b[i], TOTAL, error);
        trace_add(&judged.trace, names[i], a[i], b[i], SHAPE(TOKENS, WIDTH));
    }
    attend(a[0], a[1], a[2], PLAIN, context);
    matmul(context, weight, TOKENS, WIDTH, WIDTH, one);
    attend(b[0], b[1], b[2], step, context);
    matmul(context, weight, TOKENS, WIDTH, WIDTH, other);
    trace_add(&judged.trace, "layers.0.self_attn.o_proj", one, other, SHAPE(TOKENS, WIDTH));
    for (int i = 0; i < 3; i++)
        free(a[i]);
    free(weight);
    expect_first(&judged, expected);
}

/* Where queries and keys are large, a softmax makes much of small errors, and more of it in some tokens than in others;
 * another factor or mask is told all the same. */
static void test_what_a_hidden_softmax_makes_of_errors(void **state)
{
    (void)state;
    for (int size = 1; size <= 8; size += 7) {
        judge_sharp((float)size, 0, CACHED, SIZE_MAX);
        judge_sharp((float)size, 4e-3, PLAIN, SIZE_MAX);
        judge_sharp((float)size, 4e-3, CACHED, SIZE_MAX);
        judge_sharp((float)size, 0, SCALED, 3);
        judge_sharp((float)size, 0, UNMASKED, 3);
        judge_sharp((float)size, 4e-3, UNMASKED, 3);
    }
}

/* RMS norms of products in layer 1, and in layer 0 without its product. */
static void judge_norms(double error, bool captured, size_t expected)
{
    struct judged judged;
    trace_start(&judged.trace);
    add_erring(&judged.trace, "embed", 1e-3);
    for (int layer = 0; layer < 2; layer++) {
        float *a = made_values(TOTAL), b[TOTAL], one[TOTAL], other[TOTAL];
        err(a, b, TOTAL, error);
        for (size_t row = 0; row < TOKENS; row++) {
            double square_a = 0, square_b = 0;
            for (size_t i = row * WIDTH; i < (row + 1) * WIDTH; i++) {
                square_a += (double)a[i] * (double)a[i];
                square_b += (double)b[i] * (double)b[i];
            }
            for (size_t i = row * WIDTH; i < (row + 1) * WIDTH; i++) {
                const double weight = 1 + 0.3 * sin((double)(i % WIDTH));
                one[i] = (float)(weight * (double)a[i] / sqrt(square_a / WIDTH + 1e-6));
                other[i] = (float)(weight * (double)b[i] / sqrt(square_b / WIDTH + 1e-6));
            }
        }
        if (layer && captured)
            trace_add(&judged.trace, "layers.1.q_a", a, b, SHAPE(TOKENS, WIDTH));
        trace_add(&judged.trace, made_name("layers.%d.q_a_norm", layer), one, other, SHAPE(TOKENS, WIDTH));
        free(a);
        add_erring(&judged.trace, made_name("layers.%d.q_b", layer), error);
    }
    expect_first(&judged, expected);
}

/* A norm whose input was not captured errs as that does: another layer shows that it has one. */
static void test_a_norm_without_its_input(void **state)
{
    (void)state;
    judge_norms(0.08, true, SIZE_MAX);
    judge_norms(0.08, false, 1);
}

/* Weights of four bits, seen through the norms of queries and keys: these are no norms of the stream. */
static void test_a_norm_of_a_projection(void **state)
{
    (void)state;
    JUDGE(SIZE_MAX, {"embed", 1e-3}, {"layers.0.attn_norm", 1e-3}, {"layers.0.attn_q_normed", 0.08},
          {"layers.0.attn_k_normed", 0.08}, {"layers.0.attn_v_proj", 0.08}, {"layers.0.mlp.up_proj", 0.09});
    JUDGE(1, {"embed", 1e-3}, {"layers.0.attn_norm", 0.08}, {"layers.0.attn_q_normed", 0.08},
          {"layers.0.attn_k_normed", 0.08}, {"layers.0.attn_v_proj", 0.08}, {"layers.0.mlp.up_proj", 0.09});
    JUDGE(3, {"embed", 1e-3}, {"layers.0.attn_norm", 1e-3}, {"layers.0.attn_q_proj", 1e-3},
          {"layers.0.attn_q_normed", 0.08}, {"layers.0.attn_k_normed", 0.08}, {"layers.0.attn_v_proj", 0.08},
          {"layers.0.mlp.up_proj", 0.09});
}

/* What comes out of experts, of which nothing inside was captured: tokens err by what three products make of them, two
 * of which are multiplied with each other, and more than one product errs. inside: the products of each were. */
static void judge_experts(double error, double apart, bool inside, size_t expected)
{
    struct judged judged;
    float *a, b[TOTAL];
    trace_start(&judged.trace);
    add_erring(&judged.trace, "embed", 1e-3);
    for (int i = 0; i < 3; i++)
        add_erring(&judged.trace, made_name("layers.0.part_%d.proj", i), 1e-3);
    add_erring(&judged.trace, "layers.0.mlp_norm_output", 1e-3);
    if (inside) {
        add_erring(&judged.trace, "layers.0.mlp.gate_proj", 1e-3);
        add_erring(&judged.trace, "layers.0.mlp.up_proj", 1e-3);
    }
    a = made_values(TOTAL);
    err(a, b, TOTAL, error);
    for (size_t i = 0; i < TOTAL; i++)
        b[i] = a[i] + (i / WIDTH % 2 ? (float)apart : 1) * (b[i] - a[i]);
    trace_add(&judged.trace, inside ? "layers.0.mlp.down_proj" : "layers.0.shared_expert_output", a, b,
              SHAPE(TOKENS, WIDTH));
    free(a);
    expect_first(&judged, expected);
}

static void test_products_inside_of_experts(void **state)
{
    (void)state;
    judge_experts(0.1, 1.9, false, SIZE_MAX);
    judge_experts(0.1, 1.9, true, 7);
    judge_experts(0.1, 8, false, 5);
    judge_experts(0.5, 1.2, false, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probabilities_are_scores),
        cmocka_unit_test(test_errors_that_grow_with_distance),
        cmocka_unit_test(test_rows_that_are_not_whole),
        cmocka_unit_test(test_a_cache_that_nothing_shows),
        cmocka_unit_test(test_other_kinds_are_one_fact),
        cmocka_unit_test(test_others_have_no_cache),
        cmocka_unit_test(test_what_a_sum_takes_is_used),
        cmocka_unit_test(test_a_norm_without_its_input),
        cmocka_unit_test(test_what_a_hidden_softmax_makes_of_errors),
        cmocka_unit_test(test_a_norm_of_a_projection),
        cmocka_unit_test(test_products_inside_of_experts),
        cmocka_unit_test(test_some_layers_are_coarse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
