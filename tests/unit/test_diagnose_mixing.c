/* How the chosen experts are mixed: by captured weights, and by the router's logits alone, as hooks on modules leave
 * them. What other weights, a capacity, another number of experts or a shared expert do is told; what goes wrong inside
 * of experts, or in what was not captured, is not told as such. */
#include "made_trace.h"

enum { TOKENS = 40, WIDTH = 64, INNER = 48, EXPERTS = 12, MOST = 4, TOTAL = TOKENS * WIDTH, CAPACITY = 8 };

enum fault {
    NOTHING,
    SUM,
    MEAN,
    TWICE,
    BACKWARDS,
    FIRST_FOR_ALL,
    UNDIVIDED,
    ONE_MORE,
    LATE,
    GATE_AND_UP,
    RELU,
    GELU,
    COARSE,
    EXPERTS_HALF,
    SHARED_TWICE,
    SHARED_MISSING
};

enum shared { NO_SHARED, GATED, HIDDEN };

struct model {
    size_t chosen;
    enum shared shared;
    bool captured; /* weights and choice, not the logits alone */
    bool scores;   /* weights alone, called as a router is */
    bool sigmoid;  /* scores are sigmoids, divided by their sum */
    double coarse; /* relative error of the candidate */
    double came;   /* and of its logits */
    bool padded;   /* some tokens have logits that are no numbers, or minus infinity, or no weights, on both sides */
};

struct side {
    float weights[TOKENS * MOST], routed[TOTAL], out[TOTAL];
    int64_t list[TOKENS * MOST];
};

static double middle_of(enum fault fault, double gate, double up)
{
    if (fault == GATE_AND_UP)
        return up / (1 + exp(-up)) * gate;
    if (fault == GELU)
        return 0.5 * gate * (1 + erf(gate / sqrt(2))) * up;
    return fault == RELU ? (gate > 0 ? gate : 0) * up : gate / (1 + exp(-gate)) * up;
}

/* A number of a weight, or of one that has seven levels. */
static double number_of(enum fault fault, float number)
{
    return fault == COARSE ? round(3 * (double)number) / 3 : (double)number;
}

/* out += weight * down(f(gate x) * up x) */
static void add_expert(const float *x, const float *weights, enum fault fault, double weight, double *out)
{
    double middle[INNER];
    for (size_t i = 0; i < INNER; i++) {
        double gate = 0, up = 0;
        for (size_t k = 0; k < WIDTH; k++) {
            gate += 1.7 * (double)x[k] * number_of(fault, weights[i * WIDTH + k]) / sqrt(WIDTH);
            up += 1.7 * (double)x[k] * number_of(fault, weights[(INNER + i) * WIDTH + k]) / sqrt(WIDTH);
        }
        middle[i] = middle_of(fault, 1.7 * gate, up);
    }
    for (size_t k = 0; k < WIDTH; k++)
        for (size_t i = 0; i < INNER; i++)
            out[k] +=
                weight * 1.7 * middle[i] * number_of(fault, weights[2 * INNER * WIDTH + k * INNER + i]) / sqrt(INNER);
}

/* The experts with the largest logits and what they count for. */
static void choose(const struct model *model, const float *logits, size_t count, bool divided, int64_t *list,
                   double *weights)
{
    double sum = 0, all = 0;
    for (size_t e = 0; e < EXPERTS; e++)
        all += exp((double)logits[e]);
    for (size_t k = 0; k < count; k++) {
        int64_t best = -1;
        for (int64_t e = 0; e < EXPERTS; e++) {
            bool taken = false;
            for (size_t j = 0; j < k; j++)
                taken = taken || list[j] == e;
            if (!taken && (best < 0 || logits[e] > logits[best]))
                best = e;
        }
        list[k] = best;
        weights[k] = model->sigmoid ? 1 / (1 + exp(-(double)logits[best])) : exp((double)logits[best]) / all;
        sum += weights[k];
    }
    for (size_t k = 0; k < count && divided; k++)
        weights[k] /= sum;
}

static double weight_in(enum fault fault, const double *weights, size_t chosen, size_t k, size_t before)
{
    switch (fault) {
    case SUM:
        return 1;
    case MEAN:
        return 1 / (double)chosen;
    case TWICE:
        return weights[k] * weights[k];
    case BACKWARDS:
        return weights[chosen - 1 - k];
    case FIRST_FOR_ALL:
        return weights[0];
    case LATE:
        return before < CAPACITY ? weights[k] : 0;
    default:
        return weights[k];
    }
}

static void run_mixture(const struct model *model, enum fault fault, const float *x, const float *logits,
                        const float *experts, const float *shared, const float *gate, struct side *side)
{
    size_t taken[EXPERTS] = {0};
    for (size_t t = 0; t < TOKENS; t++) {
        const size_t count = model->chosen + (fault == ONE_MORE);
        const double part = 1 / (1 + exp(-(double)gate[t]));
        const double times = fault == SHARED_TWICE ? 2 : fault == SHARED_MISSING ? 0 : 1;
        double weights[MOST + 1], out[WIDTH] = {0};
        int64_t list[MOST + 1];
        choose(model, logits + t * EXPERTS, count, fault != UNDIVIDED, list, weights);
        for (size_t k = 0; k < count; k++)
            add_expert(x + t * WIDTH, experts + (size_t)list[k] * 3 * INNER * WIDTH, fault,
                       weight_in(fault, weights, count, k, taken[list[k]]++), out);
        for (size_t k = 0; k < model->chosen; k++) {
            side->list[t * model->chosen + k] = list[k];
            side->weights[t * model->chosen + k] = (float)weights[k];
        }
        for (size_t i = 0; i < WIDTH; i++) {
            const double routed = out[i] * (fault == EXPERTS_HALF ? 0.5 : 1);
            side->out[t * WIDTH + i] =
                (float)(routed + (model->shared ? times * part * (double)shared[t * WIDTH + i] : 0));
        }
    }
}

/* Diagnoses the output of the mixture. */
static void diagnose(struct trace *trace, const struct model *model, enum fault fault)
{
    static struct side sides[2];
    float *x, *logits, *experts, *shared, *gate, *found;
    size_t index;
    trace_start(trace);
    x = made_values(TOTAL);
    logits = made_values((size_t)TOKENS * EXPERTS);
    found = malloc((size_t)TOKENS * EXPERTS * sizeof *found);
    assert_non_null(found);
    experts = made_values((size_t)EXPERTS * 3 * INNER * WIDTH);
    shared = made_values(TOTAL);
    gate = made_values(TOKENS);
    for (size_t i = 0; i < (size_t)TOKENS * EXPERTS; i++)
        logits[i] *= 2.5f;
    for (int side = 0; side < 2; side++)
        run_mixture(model, side ? fault : NOTHING, x, logits, experts, shared, gate, &sides[side]);
    shake(sides[1].out, sides[1].out, TOTAL, model->coarse);
    for (size_t i = 0; i < 3 * EXPERTS && model->padded; i++)
        logits[(i / EXPERTS * 11 + 2) * EXPERTS + i % EXPERTS] = i / EXPERTS == 1 ? NAN : -INFINITY;
    for (size_t i = 0; i < model->chosen && model->padded; i++)
        sides[0].weights[2 * model->chosen + i] = 0;
    shake(logits, found, (size_t)TOKENS * EXPERTS, model->came);
    trace_add(trace, "model.layers.0.post_attention_layernorm", x, x, SHAPE(TOKENS, WIDTH));
    if (!model->scores)
        trace_add(trace, "model.layers.0.mlp.gate", logits, found, SHAPE(TOKENS, EXPERTS));
    if (model->captured || model->scores)
        trace_add(trace, "model.layers.0.mlp.gate.weights", sides[0].weights, sides[0].weights,
                  SHAPE(TOKENS, model->chosen));
    if (model->captured)
        trace_add_integers(trace, "model.layers.0.mlp.gate.indices", sides[0].list, sides[0].list, TOKENS,
                           model->chosen);
    if (model->shared == GATED) {
        trace_add(trace, "model.layers.0.mlp.shared_expert", shared, shared, SHAPE(TOKENS, WIDTH));
        trace_add(trace, "model.layers.0.mlp.shared_expert_gate", gate, gate, SHAPE(TOKENS, 1));
    }
    index = trace_add(trace, "model.layers.0.mlp", sides[0].out, sides[1].out, SHAPE(TOKENS, WIDTH));
    trace_diagnose(trace, index);
    free(x);
    free(logits);
    free(found);
    free(experts);
    free(shared);
    free(gate);
}

static void expect_first(const struct model *model, enum fault fault, const char *id, const char *words)
{
    struct trace trace;
    diagnose(&trace, model, fault);
    assert_first(&trace, id, words);
    trace_end(&trace);
}

/* Whatever may be said, it is not that experts are weighed otherwise. */
static void expect_no_weights(const struct model *model, enum fault fault)
{
    struct trace trace;
    diagnose(&trace, model, fault);
    if (trace_cause(&trace, "router-gate")) {
        fail_msg("fault %d: the router's weights are blamed", (int)fault);
    }
    trace_end(&trace);
}

static const double precisions[] = {0, 4e-3};

static void test_by_captured_weights(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        const struct model model = {.chosen = i % 2 ? 4 : 2, .captured = true, .coarse = precisions[i / 2]};
        expect_first(&model, SUM, "router-gate", "a plain sum of the chosen experts");
        expect_first(&model, MEAN, "router-gate", "a plain mean of the chosen experts");
        expect_first(&model, TWICE, "router-gate", "the router's weights were applied twice");
        expect_first(&model, BACKWARDS, "router-gate", "went to the wrong one of the chosen experts");
        expect_first(&model, FIRST_FOR_ALL, "router-gate", "the first expert's weight were that of all chosen ones");
        expect_no_weights(&model, GATE_AND_UP);
        expect_no_weights(&model, RELU);
    }
}

/* Weights that are nearly equal make a factor of nearly the same in all tokens, which is not what happened. */
static void test_weights_that_are_nearly_equal(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const struct model model = {.chosen = 3, .captured = true, .sigmoid = true, .coarse = precisions[i]};
        expect_first(&model, SUM, "router-gate", "a plain sum of the chosen experts");
        expect_first(&model, TWICE, "router-gate", "the router's weights were applied twice");
    }
}

static void test_by_logits_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        const struct model model = {.chosen = i % 2 ? 4 : 2, .coarse = precisions[i / 2]};
        expect_first(&model, SUM, "router-gate", "a plain sum of the chosen experts");
        expect_first(&model, MEAN, "router-gate", "a plain mean of the chosen experts");
        expect_first(&model, TWICE, "router-gate", "the router's weights were applied twice");
        expect_first(&model, FIRST_FOR_ALL, "router-gate", "the first expert's weight were that of all chosen ones");
        expect_first(&model, UNDIVIDED, "router-gate", "does not divide the weights of the chosen experts");
        expect_no_weights(&model, GATE_AND_UP);
        expect_no_weights(&model, RELU);
    }
}

/* Tokens that pad a batch tell nothing, and hide nothing. */
static void test_beside_padding(void **state)
{
    (void)state;
    for (size_t captured = 0; captured < 2; captured++) {
        const struct model model = {.chosen = 4, .captured = captured, .padded = true};
        expect_first(&model, SUM, "router-gate", "a plain sum of the chosen experts");
        expect_first(&model, TWICE, "router-gate", "the router's weights were applied twice");
        expect_first(&model, FIRST_FOR_ALL, "router-gate", "the first expert's weight were that of all chosen ones");
        if (captured)
            expect_first(&model, RELU, "activation", "relu in place of silu");
    }
}

/* Another activation changes all tokens alike, by what follows from the functions; coarser weights do not. */
static void test_inside_of_experts(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        const struct model model = {.chosen = i % 2 ? 4 : 2, .captured = true, .coarse = precisions[i / 2]};
        struct trace trace;
        expect_first(&model, RELU, "activation", "relu in place of silu");
        expect_first(&model, GELU, "activation", "gelu in place of silu");
        expect_first(&model, GATE_AND_UP, "activation", "gate and up exchanged with silu");
        diagnose(&trace, &model, COARSE);
        assert_null(trace_cause(&trace, "activation"));
        assert_null(trace_cause(&trace, "router-gate"));
        trace_end(&trace);
        diagnose(&trace, &(struct model){.chosen = model.chosen, .captured = true, .came = 0.1}, RELU);
        assert_null(trace_cause(&trace, "activation")); /* coarse weights everywhere may have made it */
        trace_end(&trace);
    }
}

static void test_late_tokens(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        const struct model model = {.chosen = 3, .captured = i % 2, .coarse = precisions[i / 2]};
        expect_first(&model, LATE, "router-gate", "what is beyond a capacity of 8 for each expert");
    }
}

static void test_beside_a_gated_expert(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const struct model model = {.chosen = 2, .shared = GATED, .coarse = precisions[i]};
        expect_first(&model, EXPERTS_HALF, "scaled", "the experts that were routed to count 0.5 times");
        expect_first(&model, SHARED_TWICE, "term-extra", "the shared expert counts double");
        expect_first(&model, SHARED_MISSING, "term-missing", "the shared expert is left out");
        expect_first(&model, UNDIVIDED, "router-gate", "does not divide the weights of the chosen experts");
        expect_first(&model, TWICE, "router-gate", "the router's weights were applied twice");
        expect_first(&model, SUM, "router-gate", "a plain sum of the chosen experts");
    }
}

/* What else is in the sum was not captured: what becomes of it is not taken for other weights. */
static void test_beside_what_is_hidden(void **state)
{
    (void)state;
    for (size_t chosen = 2; chosen <= 4; chosen++) {
        const struct model model = {.chosen = chosen, .shared = HIDDEN};
        expect_no_weights(&model, GATE_AND_UP);
        for (enum fault fault = EXPERTS_HALF; fault <= SHARED_MISSING; fault++) {
            struct trace trace;
            diagnose(&trace, &model, fault);
            if (trace_cause(&trace, "router-gate") &&
                !strstr(trace_cause(&trace, "router-gate")->summary, "what else is in the sum"))
                fail_msg("fault %d: %s", (int)fault, trace_cause(&trace, "router-gate")->summary);
            trace_end(&trace);
        }
    }
}

/* Weights have the name of their router, and are no logits. */
static void test_weights_are_no_logits(void **state)
{
    const struct model model = {.chosen = 4, .shared = GATED, .scores = true};
    (void)state;
    expect_no_weights(&model, EXPERTS_HALF);
    expect_no_weights(&model, SHARED_TWICE);
}

/* As many columns of the first pair as the last one has, whose candidate takes the place of its own; the last one goes.
 */
static void narrow(struct trace *trace, size_t index)
{
    struct ts_pair *pair = &trace->pairs[index];
    const struct ts_pair *last = &trace->pairs[--trace->count];
    struct ts_view whole = pair->a;
    assert_true(ts_view_slice(&whole, 1, 0, last->b.tensor->shape[1], 1, &trace->arena, &pair->a));
    pair->b = last->b;
}

/* One expert in place of two has the weight 1, and a captured choice says so. */
static void test_another_number_of_experts(void **state)
{
    const struct model model = {.chosen = 2};
    static struct side side;
    struct trace trace;
    float *x = made_values(TOTAL), *logits, *experts, ones[TOKENS];
    int64_t first[TOKENS];
    (void)state;
    trace_start(&trace);
    logits = made_values((size_t)TOKENS * EXPERTS);
    experts = made_values((size_t)EXPERTS * 3 * INNER * WIDTH);
    run_mixture(&model, NOTHING, x, logits, experts, x, x, &side);
    for (size_t t = 0; t < TOKENS; t++) {
        ones[t] = 1;
        first[t] = side.list[t * model.chosen];
    }
    trace_add(&trace, "model.layers.0.mlp.gate", logits, logits, SHAPE(TOKENS, EXPERTS));
    trace_add(&trace, "model.layers.0.mlp.gate.weights", side.weights, side.weights, SHAPE(TOKENS, model.chosen));
    trace_add(&trace, "one weight", ones, ones, SHAPE(TOKENS, 1));
    narrow(&trace, 1);
    trace_add_integers(&trace, "model.layers.0.mlp.gate.indices", side.list, side.list, TOKENS, model.chosen);
    trace_add_integers(&trace, "one choice", first, first, TOKENS, 1);
    narrow(&trace, 2);
    trace_diagnose(&trace, 1);
    assert_first(&trace, "router-gate", "the candidate chooses 1 expert for each token, the reference 2");
    trace_end(&trace);
    free(x);
    free(logits);
    free(experts);
}

/* A list of one column more, whose last one is 12 for every token or not, before a tensor with the other sign. */
static void diagnose_behind(const char *list, bool shared, const char *name)
{
    struct trace trace;
    float *x = made_values(TOTAL), *negative = made_values(TOTAL);
    int64_t more[TOKENS * 3], fewer[TOKENS * 2];
    trace_start(&trace);
    for (size_t i = 0; i < TOTAL; i++)
        negative[i] = -x[i];
    for (size_t i = 0; i < (size_t)TOKENS * 3; i++) {
        more[i] = i % 3 == 2 && shared ? EXPERTS : (int64_t)(i / 3 * 7 + i % 3 * 5) % EXPERTS;
        if (i % 3 < 2)
            fewer[i / 3 * 2 + i % 3] = more[i];
    }
    trace_add_integers(&trace, list, more, more, TOKENS, 3);
    trace_add_integers(&trace, "two", fewer, fewer, TOKENS, 2);
    narrow(&trace, 0);
    trace_add(&trace, name, x, negative, SHAPE(TOKENS, WIDTH));
    trace_diagnose(&trace, 1);
    assert_first(&trace, "sign-flipped", NULL);
    if (trace_cause(&trace, "router-gate"))
        fail_msg("%s", trace_cause(&trace, "router-gate")->summary);
    trace_end(&trace);
    free(x);
    free(negative);
}

/* A shared expert in the list of one side, a list of another layer, integers that nobody chose, and a shared expert's
 * own output. */
static void test_no_other_number_of_experts(void **state)
{
    (void)state;
    diagnose_behind("model.layers.0.mlp.topk_indices", true, "model.layers.0.mlp");
    diagnose_behind("model.layers.0.mlp.topk_indices", false, "model.layers.1.self_attn.o_proj");
    diagnose_behind("model.layers.0.position_ids", false, "model.layers.0.self_attn.o_proj");
    diagnose_behind("model.layers.0.mlp.topk_indices", false, "model.layers.0.mlp.shared_expert");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_captured_weights),
        cmocka_unit_test(test_weights_that_are_nearly_equal),
        cmocka_unit_test(test_by_logits_alone),
        cmocka_unit_test(test_late_tokens),
        cmocka_unit_test(test_beside_padding),
        cmocka_unit_test(test_inside_of_experts),
        cmocka_unit_test(test_beside_a_gated_expert),
        cmocka_unit_test(test_beside_what_is_hidden),
        cmocka_unit_test(test_weights_are_no_logits),
        cmocka_unit_test(test_another_number_of_experts),
        cmocka_unit_test(test_no_other_number_of_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
