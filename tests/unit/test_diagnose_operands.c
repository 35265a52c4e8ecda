/* Attention in one step, of which queries, keys and values were captured: one of them in the place of another, and
 * scores that weigh the values in other ways. Named where the context was captured and where the projection behind it
 * alone was, of which nobody has the weight; silent where that weight is another one. And tokens that are moved. */
#include "made_trace.h"

enum { HEADS = 8, SIZE = 16, WIDTH = HEADS * SIZE, OUT = 160, MOST = 300 };

enum fault {
    NOTHING,
    VALUES_ARE_KEYS,     /* as they are turned */
    VALUES_ARE_RAW_KEYS, /* as they were projected */
    KEYS_AND_VALUES,     /* exchanged, turned keys for values */
    KEYS_ARE_VALUES,
    NO_SOFTMAX,
    NOT_DIVIDED,
    NOT_ITSELF, /* each token sees those before it, the first itself */
    NO_MASK,
    VALUES_LATE,    /* each token meets the value of the one before it, the first the last one's */
    KEYS_BY_NUMBER, /* [size, heads] where [heads, size] is meant */
    VALUES_BY_NUMBER,
    QUERIES_VIEWED, /* [heads, tokens, size] where [tokens, heads, size] is meant */
    VALUES_VIEWED,
    ALL_VIEWED,
    ALL_VIEWED_BACK, /* and what they make as well */
    SCALED,          /* numbers that nobody would list */
    CAPPED,
    OTHER_BASE,
    OTHER_WEIGHT,
};

struct attention {
    size_t tokens, served;
    float *q, *k, *v, *weight[2]; /* [tokens, WIDTH], [tokens, served * SIZE] and [OUT, WIDTH] */
};

/* Halves of a head that turn by position / base^(i / half). */
static void turned_by(const float *head, size_t position, bool other_base, double *out)
{
    static double known[2][MOST][SIZE / 2][2]; /* cosine and sine */
    for (size_t i = 0; i < SIZE / 2; i++) {
        double *turn = known[other_base][position][i], x = (double)head[i], y = (double)head[SIZE / 2 + i];
        if (turn[0] == 0 && turn[1] == 0) {
            double angle = (double)position * pow(other_base ? 33000 : 10000, -(double)i / (SIZE / 2));
            turn[0] = cos(angle);
            turn[1] = sin(angle);
        }
        out[i] = x * turn[0] - y * turn[1];
        out[SIZE / 2 + i] = x * turn[1] + y * turn[0];
    }
}

static void turned(const float *head, size_t position, double *out)
{
    turned_by(head, position, false, out);
}

static void as_they_are(const float *head, double *out)
{
    for (size_t i = 0; i < SIZE; i++)
        out[i] = (double)head[i];
}

/* The numbers of queries, keys or values in the places in which a candidate takes them. */
static const float *split(const float *own, size_t tokens, size_t heads, bool by_number, bool viewed, float *room)
{
    for (size_t at = 0; at < tokens * heads * SIZE; at++) {
        size_t i = at % SIZE, head = at / SIZE % heads, token = at / SIZE / heads;
        room[at] = own[by_number ? (token * SIZE + i) * heads + head
                       : viewed  ? (head * tokens + token) * SIZE + i
                                 : at];
    }
    return room;
}

/* weights: what each key weighs, [HEADS, tokens, tokens], or NULL. */
static void attend(const struct attention *right, enum fault fault, float *context, float *weights)
{
    static float room[3][MOST * WIDTH];
    bool back = fault == ALL_VIEWED_BACK, all = fault == ALL_VIEWED || back;
    struct attention own = *right, *from = &own;
    size_t keys = own.served * SIZE;
    own.q = (float *)split(right->q, own.tokens, HEADS, false, all || fault == QUERIES_VIEWED, room[0]);
    own.k = (float *)split(right->k, own.tokens, own.served, fault == KEYS_BY_NUMBER, all, room[1]);
    own.v = (float *)split(right->v, own.tokens, own.served, fault == VALUES_BY_NUMBER, all || fault == VALUES_VIEWED,
                           room[2]);
    for (size_t head = 0; head < HEADS; head++)
        for (size_t row = 0; row < from->tokens; row++) {
            size_t served = head / (HEADS / from->served);
            double query[SIZE], sum = 0, out[SIZE] = {0};
            turned_by(from->q + row * WIDTH + head * SIZE, row, fault == OTHER_BASE, query);
            for (size_t token = 0; token < from->tokens; token++) {
                size_t place = fault == VALUES_LATE ? (token + from->tokens - 1) % from->tokens : token;
                const float *k = from->k + token * keys + served * SIZE, *v = from->v + place * keys + served * SIZE;
                double key[SIZE], value[SIZE], score = 0, weight;
                if (fault != NO_MASK && token > row - (fault == NOT_ITSELF && row > 0))
                    break;
                turned_by(k, token, fault == OTHER_BASE, key);
                as_they_are(v, value);
                if (fault == VALUES_ARE_KEYS || fault == KEYS_AND_VALUES)
                    turned(k, token, value);
                if (fault == VALUES_ARE_RAW_KEYS)
                    as_they_are(k, value);
                if (fault == KEYS_AND_VALUES || fault == KEYS_ARE_VALUES)
                    as_they_are(v, key);
                for (size_t i = 0; i < SIZE; i++)
                    score += query[i] * key[i] / sqrt(SIZE) * (fault == SCALED ? 1.4 : 1);
                score = fault == CAPPED ? 2.5 * tanh(score / 2.5) : score;
                weight = fault == NO_SOFTMAX ? score : exp(score);
                sum += weight;
                for (size_t i = 0; i < SIZE; i++)
                    out[i] += weight * value[i];
                if (weights)
                    weights[(head * from->tokens + row) * from->tokens + token] = (float)weight;
            }
            for (size_t token = 0; token < from->tokens && weights; token++)
                weights[(head * from->tokens + row) * from->tokens + token] /= (float)sum;
            for (size_t i = 0; i < SIZE; i++)
                context[(back ? head * from->tokens + row : row * HEADS + head) * SIZE + i] =
                    (float)(fault == NO_SOFTMAX || fault == NOT_DIVIDED ? out[i] : out[i] / sum);
        }
}

static void project(const float *context, const float *weight, size_t tokens, float *out)
{
    for (size_t t = 0; t < tokens; t++)
        for (size_t o = 0; o < OUT; o++) {
            double sum = 0;
            for (size_t i = 0; i < WIDTH; i++)
                sum += (double)context[t * WIDTH + i] * (double)weight[o * WIDTH + i];
            out[t * OUT + o] = (float)(sum / sqrt(WIDTH));
        }
}

/* captured: the context, else the projection behind it. */
static void diagnose(struct trace *trace, size_t tokens, size_t served, enum fault fault, bool captured, bool coarse)
{
    static float context[2][MOST * WIDTH], out[2][MOST * OUT];
    struct attention from = {.tokens = tokens, .served = served};
    trace_start(trace);
    from.q = made_values(tokens * WIDTH);
    from.k = made_values(tokens * served * SIZE);
    from.v = made_values(tokens * served * SIZE);
    from.weight[0] = made_values(OUT * WIDTH);
    from.weight[1] = made_values(OUT * WIDTH);
    attend(&from, NOTHING, context[0], NULL);
    attend(&from, fault, context[1], NULL);
    for (int side = 0; side < 2; side++)
        project(context[side], from.weight[side && fault == OTHER_WEIGHT], tokens, out[side]);
    for (size_t i = 0; i < tokens * WIDTH && coarse; i++)
        context[1][i] = to_bf16(context[1][i]);
    for (size_t i = 0; i < tokens * OUT && coarse; i++)
        out[1][i] = to_bf16(out[1][i]);
    trace_add(trace, "model.layers.3.self_attn.q_proj", from.q, from.q, SHAPE(1, tokens, WIDTH));
    trace_add(trace, "model.layers.3.self_attn.k_proj", from.k, from.k, SHAPE(1, tokens, served * SIZE));
    trace_add(trace, "model.layers.3.self_attn.v_proj", from.v, from.v, SHAPE(1, tokens, served * SIZE));
    trace_diagnose(
        trace, captured ? trace_add(trace, "model.layers.3.self_attn.attn_context", context[0], context[1],
                                    SHAPE(1, tokens, WIDTH))
                        : trace_add(trace, "model.layers.3.self_attn.o_proj", out[0], out[1], SHAPE(1, tokens, OUT)));
    free(from.q);
    free(from.k);
    free(from.v);
    free(from.weight[0]);
    free(from.weight[1]);
}

static const struct named {
    enum fault fault;
    const char *id, *words;
} named[] = {
    {VALUES_ARE_KEYS, "wrong-input", "uses the keys as values, taken after the rotary embedding"},
    {VALUES_ARE_RAW_KEYS, "wrong-input", "uses the keys as values, taken before the rotary embedding"},
    {KEYS_AND_VALUES, "swapped-with", "swaps keys and values, taken after the rotary embedding"},
    {KEYS_ARE_VALUES, "wrong-input", "uses the values as keys, taken after the rotary embedding"},
    {NO_SOFTMAX, "softmax", "applies no softmax"},
    {NOT_DIVIDED, "softmax", "does not divide the softmax exponentials by their sum"},
    {NOT_ITSELF, "mask", "each token sees the tokens before it but not itself, except the first"},
    {NO_MASK, "mask", "no causal mask"},
    {VALUES_LATE, "shifted", "values are one token late"},
    {KEYS_BY_NUMBER, "permuted", "splits the keys into [head_dim, heads]"},
    {VALUES_BY_NUMBER, "permuted", "splits the values into [head_dim, heads]"},
    {QUERIES_VIEWED, "permuted", "takes the queries for [heads, tokens, head_dim]"},
    {VALUES_VIEWED, "permuted", "takes the values for [heads, tokens, head_dim]"},
    {ALL_VIEWED, "permuted", "takes queries, keys and values for [heads, tokens, head_dim]"},
    {ALL_VIEWED_BACK, "permuted", "views queries, keys and values as [heads, tokens, head_dim], and the context back"},
};

/* Of these the projection behind it tells two digits. */
static const struct named numbers[] = {
    {SCALED, "softmax", "scores are 1.4 times the reference's"},
    {CAPPED, "softmax", "only the candidate has a softcap on the scores (2.5)"},
    {OTHER_BASE, "rotation", "fit theta = 33000, the reference's theta = 10000"},
};

static void expect(const struct named *it, size_t tokens, size_t served, bool captured, bool coarse)
{
    struct trace trace;
    diagnose(&trace, tokens, served, it->fault, captured, coarse);
    assert_first(&trace, it->id, it->words);
    if (captured)
        assert_true(trace.diagnosis.causes[0].confidence > 0.9);
    if (captured && tokens == MOST)
        assert_true(trace.diagnosis.causes[0].proof.rows == MOST);
    trace_end(&trace);
}

static void expect_all(size_t tokens, size_t served, bool captured, bool coarse, size_t step)
{
    for (size_t i = 0; i < sizeof named / sizeof *named; i += step)
        expect(&named[i], tokens, served, captured, coarse);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && captured; i++)
        expect(&numbers[i], tokens, served, captured, coarse);
}

static void test_the_context_was_captured(void **state)
{
    (void)state;
    expect_all(9, 2, true, false, 1);
    expect_all(21, HEADS, true, true, 1);
}

static void test_the_projection_was_captured(void **state)
{
    struct trace trace;
    (void)state;
    expect_all(14, HEADS, false, false, SANITIZED ? 7 : 1);
    expect_all(19, 2, false, true, 4);
    /* more tokens than all guesses are tried on: those that reach ahead are given every key */
    diagnose(&trace, 80, 2, NO_MASK, false, true);
    assert_first(&trace, "mask", "no causal mask");
    trace_end(&trace);
    diagnose(&trace, 80, 2, VALUES_LATE, false, true);
    assert_first(&trace, "shifted", "values are one token late");
    trace_end(&trace);
}

/* More than a case holds: head by head, then put to every token. */
static void test_of_long_sequences(void **state)
{
    (void)state;
    expect_all(MOST, 2, true, false, SANITIZED ? 5 : 1);
}

/* Probabilities of more tokens than a case holds, with a rotary embedding on the way that was not captured. */
static void test_long_probabilities(void **state)
{
    static float context[MOST * WIDTH], weights[2][HEADS * MOST * MOST];
    static const struct named ways[] = {
        {SCALED, "softmax", "scores are 1.4 times the reference's"},
        {CAPPED, "softmax", "only the candidate has a softcap on the scores (2.5)"},
        {OTHER_BASE, "rotation", "fit theta = 33000, the reference's theta = 10000"},
        {NO_MASK, "mask", "no causal mask"},
        {NOT_ITSELF, "mask", "each token sees the tokens before it but not itself, except the first"},
        {KEYS_BY_NUMBER, "permuted", "splits the keys into [head_dim, heads]"},
        {QUERIES_VIEWED, "permuted", "takes the queries for [heads, tokens, head_dim]"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i += SANITIZED ? 3 : 1) {
        struct attention from = {.tokens = MOST, .served = 2};
        struct trace trace;
        trace_start(&trace);
        from.q = made_values(MOST * WIDTH);
        from.k = made_values(MOST * from.served * SIZE);
        from.v = made_values(MOST * from.served * SIZE);
        memset(weights, 0, sizeof weights);
        attend(&from, NOTHING, context, weights[0]);
        attend(&from, ways[i].fault, context, weights[1]);
        trace_add(&trace, "model.layers.3.self_attn.q_proj", from.q, from.q, SHAPE(1, MOST, WIDTH));
        trace_add(&trace, "model.layers.3.self_attn.k_proj", from.k, from.k, SHAPE(1, MOST, from.served * SIZE));
        trace_add(&trace, "model.layers.3.self_attn.v_proj", from.v, from.v, SHAPE(1, MOST, from.served * SIZE));
        trace_diagnose(&trace, trace_add(&trace, "model.layers.3.self_attn.attn_probs", weights[0], weights[1],
                                         SHAPE(1, HEADS, MOST, MOST)));
        assert_first(&trace, ways[i].id, ways[i].words);
        assert_true(trace.diagnosis.causes[0].proof.rows == MOST);
        assert_true(trace.diagnosis.causes[0].confidence > 0.9);
        trace_end(&trace);
        free(from.q);
        free(from.k);
        free(from.v);
    }
}

/* Nothing is said of queries, keys and values. */
static void end_without_operands(struct trace *trace)
{
    static const char *const ids[] = {"wrong-input", "swapped-with", "softmax", "shifted", "mask"};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        assert_null(trace_cause(trace, ids[i]));
    trace_end(trace);
}

/* Another weight behind the right context has nothing to do with keys; rounding has no cause. */
static void test_no_operand_is_accused(void **state)
{
    struct trace trace;
    (void)state;
    for (size_t tokens = 9; tokens < 40; tokens += SANITIZED ? 20 : 10) {
        diagnose(&trace, tokens, 2, OTHER_WEIGHT, false, true);
        end_without_operands(&trace);
        diagnose(&trace, tokens, 2, NOTHING, tokens % 20 == 9, true);
        end_without_operands(&trace);
    }
}

/* A table of positions that begins one or two late: nothing of the reference stands in its last rows. */
static void moved(struct trace *trace, size_t tokens, size_t by, bool around)
{
    enum { NARROW = 40 };
    float *table = made_values((tokens + by) * NARROW), *found = malloc(tokens * NARROW * sizeof *found);
    float *words = made_values(tokens * NARROW);
    assert_non_null(found);
    trace_start(trace);
    for (size_t i = 0; i < tokens * NARROW; i++)
        found[i] = to_bf16(table[around ? (i + by * NARROW) % (tokens * NARROW) : i + by * NARROW]);
    trace_add(trace, "embed_tokens", words, words, SHAPE(1, tokens, NARROW));
    trace_diagnose(trace, trace_add(trace, "embed_positions", table, found, SHAPE(1, tokens, NARROW)));
    free(table);
    free(words);
    free(found);
}

static void test_tokens_are_moved(void **state)
{
    static const size_t lengths[] = {5, 8, 23, 61};
    struct trace trace;
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        moved(&trace, lengths[i], 1, false);
        assert_first(
            &trace, "shifted",
            "tokens are shifted by -1: position i holds what belongs at i + 1; the last ones are not in the reference");
        trace_end(&trace);
        moved(&trace, lengths[i], 2, false);
        assert_first(&trace, "shifted", "tokens are shifted by -2: ");
        trace_end(&trace);
        moved(&trace, lengths[i], 1, true);
        assert_first(&trace, "shifted", "tokens are shifted by -1, wrapping around");
        assert_true(trace.diagnosis.causes[0].confidence > 0.95);
        trace_end(&trace);
    }
    /* two rows of four that stand elsewhere are too few, and one that is further away is no place */
    moved(&trace, 4, 2, false);
    assert_null(trace_cause(&trace, "shifted"));
    trace_end(&trace);
    moved(&trace, 6, 6, false);
    assert_null(trace_cause(&trace, "shifted"));
    trace_end(&trace);
}

/* Queries laid out in heads wider than the one key head, as a recipe may leave them, say nothing about heads. */
static void test_heads_of_another_size(void **state)
{
    static float context[2][20 * WIDTH];
    const size_t tokens = 20;
    struct attention from = {.tokens = tokens, .served = 1};
    struct trace trace;
    (void)state;
    from.q = made_values(tokens * WIDTH);
    from.k = made_values(tokens * SIZE);
    from.v = made_values(tokens * SIZE);
    attend(&from, NOTHING, context[0], NULL);
    attend(&from, NO_MASK, context[1], NULL);
    trace_start(&trace);
    trace_add(&trace, "model.layers.3.self_attn.q_proj", from.q, from.q, SHAPE(1, tokens, 4, WIDTH / 4));
    trace_add(&trace, "model.layers.3.self_attn.k_proj", from.k, from.k, SHAPE(1, tokens, SIZE));
    trace_add(&trace, "model.layers.3.self_attn.v_proj", from.v, from.v, SHAPE(1, tokens, SIZE));
    trace_diagnose(&trace, trace_add(&trace, "model.layers.3.self_attn.attn_context", context[0], context[1],
                                     SHAPE(1, tokens, WIDTH)));
    assert_first(&trace, "mask", "no causal mask");
    trace_end(&trace);
    free(from.q);
    free(from.k);
    free(from.v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_context_was_captured), cmocka_unit_test(test_the_projection_was_captured),
        cmocka_unit_test(test_of_long_sequences),        cmocka_unit_test(test_long_probabilities),
        cmocka_unit_test(test_no_operand_is_accused),    cmocka_unit_test(test_tokens_are_moved),
        cmocka_unit_test(test_heads_of_another_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
