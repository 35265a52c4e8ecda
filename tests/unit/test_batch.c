/* Several sequences that ran at once, [batch, tokens, ...]: rows of all of them are judged together, attention within
 * each, and a diagnosis looks at the sequence that is wrong. Hidden states may be one list of all tokens. */
#include "judged_trace.h"

enum { BATCH = 2, TOKENS = 7, HEADS = 3, SIZE = 8, HIDDEN = HEADS * SIZE };
enum { ROWS = BATCH * TOKENS, TOTAL = ROWS * HIDDEN, SCORES = BATCH * HEADS * TOKENS * TOKENS };

enum fault { NO_FAULT, NO_MASK, NORM_WITHOUT_WEIGHT, OTHER_CHUNK };

/* One side of a run: a norm, queries, keys and values [batch, heads, tokens, size], probabilities, the context, and a
 * modulation with one row per sequence. */
struct side {
    float x[TOTAL], normed[TOTAL], q[TOTAL], k[TOTAL], v[TOTAL], probs[SCORES], context[TOTAL];
    float modulation[BATCH * 2 * HIDDEN], out[TOTAL];
};

static void norm(struct side *side, const float *weight, bool weighted)
{
    for (size_t row = 0; row < ROWS; row++) {
        double square = 0;
        for (size_t i = 0; i < HIDDEN; i++)
            square += (double)side->x[row * HIDDEN + i] * (double)side->x[row * HIDDEN + i];
        for (size_t i = 0; i < HIDDEN; i++)
            side->normed[row * HIDDEN + i] = (float)((double)side->x[row * HIDDEN + i] / sqrt(square / HIDDEN + 1e-6) *
                                                     (weighted ? (double)weight[i] : 1));
    }
}

/* [batch, tokens, heads * size] times a weight, as [batch, heads, tokens, size]. */
static void project(const float *x, const float *weight, float *out)
{
    float flat[TOTAL];
    matmul(x, weight, ROWS, HIDDEN, HIDDEN, flat);
    for (size_t row = 0; row < ROWS; row++)
        for (size_t i = 0; i < HIDDEN; i++)
            out[((row / TOKENS * HEADS + i / SIZE) * TOKENS + row % TOKENS) * SIZE + i % SIZE] = flat[row * HIDDEN + i];
}

/* `unmasked`: a sequence that sees what comes behind, BATCH when there is none. */
static void attend(struct side *side, size_t unmasked)
{
    for (size_t head = 0; head < BATCH * HEADS; head++)
        for (size_t row = 0; row < TOKENS; row++) {
            float *p = side->probs + (head * TOKENS + row) * TOKENS,
                  *out = side->context + (head * TOKENS + row) * SIZE;
            size_t keys = head / HEADS == unmasked ? TOKENS : row + 1;
            double sum = 0, weights[TOKENS] = {0};
            for (size_t key = 0; key < keys; key++) {
                double dot = 0;
                for (size_t i = 0; i < SIZE; i++)
                    dot += (double)side->q[(head * TOKENS + row) * SIZE + i] *
                           (double)side->k[(head * TOKENS + key) * SIZE + i];
                weights[key] = exp(dot / sqrt((double)SIZE));
                sum += weights[key];
            }
            for (size_t key = 0; key < TOKENS; key++)
                p[key] = (float)(weights[key] / sum);
            for (size_t i = 0; i < SIZE; i++) {
                double value = 0;
                for (size_t key = 0; key < TOKENS; key++)
                    value += (double)p[key] * (double)side->v[(head * TOKENS + key) * SIZE + i];
                out[i] = (float)value;
            }
        }
}

static void modulate(struct side *side, bool swapped)
{
    for (size_t i = 0; i < TOTAL; i++) {
        const float *row = side->modulation + i / HIDDEN / TOKENS * 2 * HIDDEN + i % HIDDEN;
        side->out[i] = side->normed[i] * (1 + row[swapped ? HIDDEN : 0]) + row[swapped ? 0 : HIDDEN];
    }
}

static void add_hidden(struct trace *trace, const char *name, const float *a, const float *b, bool folded)
{
    if (folded)
        trace_add(trace, name, a, b, SHAPE(ROWS, HIDDEN));
    else
        trace_add(trace, name, a, b, SHAPE(BATCH, TOKENS, HIDDEN));
}

/* Returns nothing: the pairs are embed, norm, q, k, v, probs, context, modulation, modulated. `folded`: an axis of
 * sequences only where there are heads. */
static void make(struct trace *trace, struct side *sides, enum fault fault, bool folded)
{
    float *weight = made_values(HIDDEN), *matrices = made_values(3 * HIDDEN * HIDDEN), *x = made_values(TOTAL);
    float *modulation = made_values(BATCH * 2 * HIDDEN);
    for (int b = 0; b < 2; b++) {
        struct side *side = &sides[b];
        memcpy(side->x, x, sizeof side->x);
        if (b)
            shake(x, side->x, TOTAL, 1e-6);
        norm(side, weight, !(b && fault == NORM_WITHOUT_WEIGHT));
        project(side->normed, matrices, side->q);
        project(side->normed, matrices + HIDDEN * HIDDEN, side->k);
        project(side->normed, matrices + 2 * HIDDEN * HIDDEN, side->v);
        attend(side, b && fault == NO_MASK ? 1 : BATCH);
        memcpy(side->modulation, modulation, sizeof side->modulation);
        modulate(side, b && fault == OTHER_CHUNK);
    }
#define ADD(name, field, ...) trace_add(trace, name, sides[0].field, sides[1].field, SHAPE(__VA_ARGS__))
    add_hidden(trace, "embed", sides[0].x, sides[1].x, folded);
    add_hidden(trace, "layers.0.norm", sides[0].normed, sides[1].normed, folded);
    ADD("layers.0.q", q, BATCH, HEADS, TOKENS, SIZE);
    ADD("layers.0.k", k, BATCH, HEADS, TOKENS, SIZE);
    ADD("layers.0.v", v, BATCH, HEADS, TOKENS, SIZE);
    ADD("layers.0.probs", probs, BATCH, HEADS, TOKENS, TOKENS);
    ADD("layers.0.context", context, BATCH, HEADS, TOKENS, SIZE);
    ADD("layers.0.modulation", modulation, BATCH, 2 * HIDDEN);
    add_hidden(trace, "layers.0.modulated", sides[0].out, sides[1].out, folded);
#undef ADD
    free(weight);
    free(matrices);
    free(x);
    free(modulation);
}

static void test_a_batch_is_judged(void **state)
{
    static const struct {
        enum fault fault;
        size_t first;
    } cases[] = {{NO_FAULT, SIZE_MAX}, {NORM_WITHOUT_WEIGHT, 1}, {NO_MASK, 5}, {OTHER_CHUNK, 8}};
    (void)state;
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        struct judged judged;
        struct side *sides = calloc(2, sizeof *sides);
        trace_start(&judged.trace);
        make(&judged.trace, sides, cases[i / 2].fault, i % 2);
        expect_first(&judged, cases[i / 2].first);
        free(sides);
    }
}

/* Everything but the projections is learnt, across the sequences. */
static void test_a_batch_is_learnt(void **state)
{
    static const bool learnt[] = {false, true, false, false, false, true, true, false, true};
    (void)state;
    for (int folded = 0; folded < 2; folded++) {
        struct judged judged;
        struct side *sides = calloc(2, sizeof *sides);
        trace_start(&judged.trace);
        make(&judged.trace, sides, NO_FAULT, folded);
        judged_run(&judged);
        assert_int_equal(judged.judgement.tokens, ROWS);
        for (size_t i = 0; i < sizeof learnt / sizeof *learnt; i++)
            if ((judged.judgement.verdicts[i].operation != NULL) != learnt[i])
                fail_msg("%s is %s", judged.trace.pairs[i].name, learnt[i] ? "not learnt" : "learnt");
        judged_end(&judged);
        free(sides);
    }
}

static void test_a_batch_is_diagnosed(void **state)
{
    static const struct {
        enum fault fault;
        size_t index;
        const char *id;
    } cases[] = {{NORM_WITHOUT_WEIGHT, 1, "channel-scaled"}, {NO_MASK, 5, "mask"}, {OTHER_CHUNK, 8, "modulation"}};
    (void)state;
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        struct trace trace;
        struct side *sides = calloc(2, sizeof *sides);
        trace_start(&trace);
        make(&trace, sides, cases[i / 2].fault, i % 2);
        trace_diagnose(&trace, cases[i / 2].index);
        assert_first(&trace, cases[i / 2].id, NULL);
        trace_end(&trace);
        free(sides);
    }
}

/* Which sequence a token is of that turns as another one should. `all`: in every sequence, else in the second. */
static void expect_turned(bool all, const char *words, const char *not_said)
{
    struct trace trace;
    float *x = made_values(TOTAL), *q = made_values(TOTAL), *turned[2] = {made_values(TOTAL), made_values(TOTAL)};
    trace_start(&trace);
    for (size_t i = 0; i < 2 * TOTAL; i++) {
        size_t at = i % TOTAL, pair = at % SIZE % (SIZE / 2), place = at / SIZE % TOKENS, first = at - at % SIZE;
        size_t sequence = at / (TOKENS * HIDDEN), moved = i >= TOTAL && place == 5 && (all || sequence) ? 3 : 0;
        double angle = (double)(place + moved) * pow(100, -(double)pair / (SIZE / 2));
        double a = (double)q[first + pair], b = (double)q[first + pair + SIZE / 2];
        turned[i / TOTAL][at] =
            (float)(at % SIZE < SIZE / 2 ? a * cos(angle) - b * sin(angle) : a * sin(angle) + b * cos(angle));
    }
    trace_add(&trace, "embed", x, x, SHAPE(BATCH, TOKENS, HIDDEN));
    trace_add(&trace, "layers.0.norm", x, x, SHAPE(BATCH, TOKENS, HIDDEN));
    trace_add(&trace, "layers.0.q", q, q, SHAPE(BATCH, HEADS, TOKENS, SIZE));
    trace_diagnose(&trace,
                   trace_add(&trace, "layers.0.q_rope", turned[0], turned[1], SHAPE(BATCH, HEADS, TOKENS, SIZE)));
    assert_first(&trace, "rotation", words);
    if (strstr(trace.diagnosis.causes[0].summary, not_said))
        fail_msg("%s", trace.diagnosis.causes[0].summary);
    trace_end(&trace);
    free(x);
    free(q);
    free(turned[0]);
    free(turned[1]);
}

static void test_turned_tokens_of_a_batch(void **state)
{
    (void)state;
    expect_turned(
        true,
        "token 5 of sequence 0 is rotated as if at position 8, token 5 of sequence 1 is rotated as if at position 8",
        "token 5 turns");
    expect_turned(false, "token 5 of sequence 1 is rotated as if at position 8", "sequence 0");
}

/* Sequences that are too short each to tell that weights were rounded. */
enum coarse { ALL_COARSE, ONE_COARSE, NOT_OF_A_WEIGHT };

static void diagnose_coarse(struct trace *trace, size_t batch, size_t tokens, enum coarse coarse)
{
    enum { IN = 48, OUT = 96, DIRECTIONS = 3 };
    size_t rows = batch * tokens;
    float *weight = made_values(OUT * IN), *rounded = made_values(OUT * IN), *along = made_values(DIRECTIONS * IN);
    float *x = made_values(rows * IN), *y[2] = {made_values(rows * OUT), made_values(rows * OUT)};
    trace_start(trace);
    for (size_t i = 0; i < OUT * IN; i++)
        rounded[i] = (float)(round((double)weight[i] / 0.4) * 0.4);
    for (size_t i = 0; i < rows * IN; i++)
        for (size_t k = 0; k < DIRECTIONS; k++) /* tokens that are more or less alike, as those of a text */
            x[i] += (float)(2 * sin((double)(i / IN * (k + 2) + k)) * (double)along[k * IN + i % IN]);
    matmul(x, weight, rows, IN, OUT, y[0]);
    matmul(x, rounded, rows, IN, OUT, y[1]);
    for (size_t i = 0; i < rows * OUT; i++)
        if (coarse == NOT_OF_A_WEIGHT)
            y[1][i] = y[0][i] + (float)(0.5 * dice_number());
        else if (coarse == ONE_COARSE && i < rows * OUT / batch)
            y[1][i] = y[0][i];
    trace_add(trace, "embed", x, x, SHAPE(batch, tokens, IN));
    trace_add(trace, "layers.0.norm", x, x, SHAPE(batch, tokens, IN));
    trace_diagnose(trace, trace_add(trace, "layers.0.mlp.up_proj", y[0], y[1], SHAPE(batch, tokens, OUT)));
    free(weight);
    free(rounded);
    free(along);
    free(x);
    free(y[0]);
    free(y[1]);
}

static void test_coarse_weights_of_short_sequences(void **state)
{
    struct trace trace;
    (void)state;
    for (size_t tokens = 2; tokens <= 8; tokens++) {
        diagnose_coarse(&trace, tokens < 4 ? 6 : 2, tokens, ALL_COARSE);
        assert_first(&trace, "quantization", "to about 4 bits");
        trace_end(&trace);
    }
    diagnose_coarse(&trace, 80, 5, ALL_COARSE); /* more than are looked at */
    assert_first(&trace, "quantization", "all 400 tokens");
    trace_end(&trace);
    for (int coarse = ONE_COARSE; coarse <= NOT_OF_A_WEIGHT; coarse++) {
        diagnose_coarse(&trace, 2, 5, (enum coarse)coarse);
        assert_null(trace_cause(&trace, "quantization"));
        trace_end(&trace);
    }
}

/* [tokens, heads, size] beside plain matrices is no batch. */
static void test_heads_are_no_batch(void **state)
{
    struct judged judged;
    float *x = made_values(TOTAL);
    (void)state;
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++) {
        static const char *const names[] = {"a", "b", "c", "d"};
        trace_add(&judged.trace, names[i], x, x, SHAPE(ROWS, HIDDEN));
    }
    trace_add(&judged.trace, "q", x, x, SHAPE(ROWS, HEADS, SIZE));
    trace_add(&judged.trace, "k", x, x, SHAPE(ROWS, HEADS, SIZE));
    judged_run(&judged);
    assert_int_equal(judged.judgement.tokens, ROWS);
    judged_end(&judged);
    free(x);
}

enum { MOST = 6, LONG = 40, LONG_TOTAL = MOST * LONG * HIDDEN };

/* Sequence i of a product's result is from[i]'s in the candidate, or a number of its own where that is none. */
static void diagnose_order(struct trace *trace, size_t batch, const size_t *from, size_t tokens, double error)
{
    float *embed = made_values(LONG_TOTAL), *a = made_values(LONG_TOTAL), *b = made_values(LONG_TOTAL);
    float *wide = made_values(2 * LONG_TOTAL);
    const size_t length = tokens * HIDDEN;
    for (size_t i = 0; i < batch; i++)
        if (from[i] < batch)
            memcpy(b + i * length, a + from[i] * length, length * sizeof *b);
    shake(b, b, batch * length, error);
    trace_start(trace);
    trace_add(trace, "embed", embed, embed, SHAPE(batch, tokens, HIDDEN));
    trace_add(trace, "layers.0.wide", wide, wide, SHAPE(batch, tokens, 2 * HIDDEN));
    trace_diagnose(trace, trace_add(trace, "layers.0.out", a, b, SHAPE(batch, tokens, HIDDEN)));
    free(embed);
    free(a);
    free(b);
    free(wide);
}

static void expect_order(size_t batch, const size_t *from, const char *words)
{
    struct trace trace;
    for (int way = 0; way < 4; way++) {
        diagnose_order(&trace, batch, from, way % 2 ? LONG : TOKENS, way / 2 ? 0.05 : 1e-6);
        assert_first(&trace, "permuted", words);
        trace_end(&trace);
    }
}

static void test_sequences_are_exchanged(void **state)
{
    (void)state;
    expect_order(2, (size_t[]){1, 0}, "the two sequences of the batch are swapped");
    expect_order(3, (size_t[]){2, 1, 0}, "sequences 0 and 2 of the batch are swapped");
    expect_order(4, (size_t[]){2, 3, 0, 1}, "the two halves of the batch are swapped (2 sequences each)");
    expect_order(4, (size_t[]){3, 2, 1, 0}, "the 4 sequences of the batch are in reverse order");
    expect_order(6, (size_t[]){0, 2, 3, 1, 4, 5},
                 "3 of 6 sequences of the batch are out of place; the first: 1 holds what belongs at 2");
    expect_order(2, (size_t[]){0, 0}, "1 of 2 sequences of the batch holds another one: the first, 1, holds 0");
}

/* Numbers of its own are no other sequence's, nor is half of one. */
static void test_sequences_are_others(void **state)
{
    struct trace trace;
    const struct ts_cause *cause;
    (void)state;
    for (size_t right = 0; right < 3; right++) {
        diagnose_order(&trace, 2, (size_t[]){right ? 9 : 0, right == 2 ? 1 : 9}, TOKENS, 1e-6);
        cause = trace_cause(&trace, "permuted");
        if (cause && strstr(cause->summary, "of the batch"))
            fail_msg("%s", cause->summary);
        trace_end(&trace);
    }
}

/* Which part of the batch is wrong is said, though the case holds one sequence. */
static void test_one_sequence_is_wrong(void **state)
{
    struct trace trace;
    const struct ts_cause *cause;
    (void)state;
    diagnose_order(&trace, 3, (size_t[]){0, 9, 2}, TOKENS, 1e-3);
    cause = trace_cause(&trace, "rows");
    assert_non_null(cause);
    assert_non_null(strstr(cause->summary, "sequence 1 of 3 in the batch holds 100 % of the error"));
    trace_end(&trace);
    diagnose_order(&trace, 3, (size_t[]){9, 9, 9}, TOKENS, 1e-3);
    assert_null(trace_cause(&trace, "rows"));
    trace_end(&trace);
}

/* The memory of a batch: batch and tokens in each other's place, or its rows and another tensor's in one buffer that is
 * read as if it held them alone. */
static void test_memory_of_a_batch(void **state)
{
    enum { SEQUENCES = 3, SHORT = 9, COUNT = SEQUENCES * SHORT };
    static const char *const words[] = {"stored as [9,3,...], read as [3,9,...]",
                                        "apart: a view into a wider buffer is read as contiguous memory; between the "
                                        "rows is layers.0.k"};
    (void)state;
    for (int way = 0; way < 2; way++) {
        struct trace trace;
        float *x = made_values(COUNT * HIDDEN), *a = made_values(COUNT * HIDDEN), *k = made_values(COUNT * HIDDEN);
        float b[COUNT * HIDDEN];
        for (size_t row = 0; row < COUNT; row++) {
            const float *from = way == 0       ? a + (row % SEQUENCES * SHORT + row / SEQUENCES) * HIDDEN
                                : row % 2 == 0 ? a + row / 2 * HIDDEN
                                               : k + row / 2 * HIDDEN;
            memcpy(b + row * HIDDEN, from, HIDDEN * sizeof *b);
        }
        shake(b, b, COUNT * HIDDEN, 1e-3);
        trace_start(&trace);
        trace_add(&trace, "layers.0.norm", x, x, SHAPE(SEQUENCES, SHORT, HIDDEN));
        trace_add(&trace, "layers.0.k", k, k, SHAPE(SEQUENCES, SHORT, HIDDEN));
        trace_diagnose(&trace, trace_add(&trace, "layers.0.v", a, b, SHAPE(SEQUENCES, SHORT, HIDDEN)));
        assert_first(&trace, "permuted", words[way]);
        trace_end(&trace);
        free(x);
        free(a);
        free(k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_batch_is_judged),        cmocka_unit_test(test_a_batch_is_learnt),
        cmocka_unit_test(test_a_batch_is_diagnosed),     cmocka_unit_test(test_heads_are_no_batch),
        cmocka_unit_test(test_turned_tokens_of_a_batch), cmocka_unit_test(test_coarse_weights_of_short_sequences),
        cmocka_unit_test(test_sequences_are_exchanged),  cmocka_unit_test(test_sequences_are_others),
        cmocka_unit_test(test_memory_of_a_batch),        cmocka_unit_test(test_one_sequence_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
