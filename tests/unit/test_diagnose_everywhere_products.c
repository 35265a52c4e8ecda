/* Claims whose rows cost far more than their numbers, put to all of them: products with weights, in random directions
 * and whole, of queries with keys, of probabilities with values, and attention told by likeness. Rows are said to cost
 * so much that a few of them would have been all. */
#include "base/matrix.h"
#include "base/progress.h"
#include "compare/operation_across.h"
#include "diagnose/attention_tables.h"
#include "diagnose/directions.h"
#include "hidden_rows.h"

static void fill(float *values, size_t count, double size)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(size * (dice_number() + dice_number() + dice_number()));
}

/* Any depth, and rows and columns that are no whole number of tiles. */
static void test_matrix(void **state)
{
    enum { ROWS = 17, COLUMNS = 80, DEPTH = 700, STRIDE = DEPTH + 5 };
    static float a[ROWS * STRIDE], b[DEPTH * COLUMNS], piece[ROWS * COLUMNS];
    static double out[ROWS * COLUMNS], last[COLUMNS];
    (void)state;
    fill(a, ROWS * STRIDE, 1);
    fill(b, DEPTH * COLUMNS, 1);
    for (size_t i = 0; i < ROWS * COLUMNS; i++)
        out[i] = 1;
    ts_matrix_add(a, STRIDE, ROWS, b, COLUMNS, COLUMNS, DEPTH, piece, out, COLUMNS);
    for (size_t i = 0; i < ROWS * COLUMNS; i++) {
        double sum = 1;
        for (size_t k = 0; k < DEPTH; k++)
            sum += (double)a[i / COLUMNS * STRIDE + k] * (double)b[k * COLUMNS + i % COLUMNS];
        assert_true(fabs(out[i] - sum) < 1e-4);
    }
    for (size_t i = 0; i < COLUMNS; i++)
        last[i] = 1;
    ts_matrix_add(a + (ROWS - 1) * STRIDE, STRIDE, 1, b, COLUMNS, COLUMNS, DEPTH, piece, last, COLUMNS);
    assert_memory_equal(last, out + (ROWS - 1) * COLUMNS, sizeof last);
}

static void test_across(void **state)
{
    enum { ROWS = 7, HEADS = 6, SERVED = 2, SIZE = 20, KEYS = 300, WIDTH = SERVED * SIZE };
    static const size_t serves[HEADS] = {1, 0, 0, 1, 1, 0};
    static double q[ROWS * HEADS * SIZE], p[ROWS * HEADS * KEYS], all[KEYS * WIDTH], scores[ROWS * HEADS * KEYS];
    static double context[ROWS * HEADS * SIZE];
    struct ts_across across = {q, ROWS, HEADS, SIZE, all, KEYS, WIDTH, SIZE, NULL};
    (void)state;
    for (size_t i = 0; i < ROWS * HEADS * SIZE; i++)
        q[i] = (double)(float)dice_number();
    for (size_t i = 0; i < ROWS * HEADS * KEYS; i++)
        p[i] = (double)(float)(dice_number() + 1);
    for (size_t i = 0; i < KEYS * WIDTH; i++)
        all[i] = (double)(float)dice_number();
    for (int pass = 0; pass < 2; pass++) {
        across.serves = pass ? serves : NULL;
        across.rows = q;
        across.part = SIZE;
        assert_true(ts_across_scores(&across, scores));
        across.rows = p;
        across.part = KEYS;
        assert_true(ts_across_context(&across, context));
        for (size_t i = 0; i < ROWS * HEADS; i++) {
            size_t served = pass ? serves[i % HEADS] : i % HEADS / (HEADS / SERVED);
            double value[SIZE] = {0};
            for (size_t key = 0; key < KEYS; key++) {
                double sum = 0;
                for (size_t k = 0; k < SIZE; k++) {
                    sum += q[i * SIZE + k] * all[key * WIDTH + served * SIZE + k];
                    value[k] += p[i * KEYS + key] * all[key * WIDTH + served * SIZE + k];
                }
                assert_true(fabs(scores[i * KEYS + key] - sum) < 1e-5);
            }
            for (size_t k = 0; k < SIZE; k++)
                assert_true(fabs(context[i * SIZE + k] - value[k]) < 1e-4);
        }
    }
    all[5] = NAN; /* is nothing to those that do not see it */
    assert_false(ts_across_context(&across, context));
}

enum { TOKENS = 600, IN = 72, OUT = 100 };

static float x[TOKENS * IN], right[TOKENS * OUT], wrong[TOKENS * OUT], weights[2][OUT * IN], bias[OUT];

static double made(const float *row, const float *weight, size_t channel)
{
    double sum = (double)bias[channel];
    for (size_t i = 0; i < IN; i++)
        sum += (double)row[i] * (double)weight[channel * IN + i];
    return sum;
}

/* The candidate is what another layer's weight gives, but for some tokens; or 0.7 times what it should be. */
static size_t build_product(struct trace *trace, bool scaled, size_t from, size_t end)
{
    struct ts_bundle *file = ts_bundle_new("weights");
    struct ts_error error;
    dice_state = 77;
    fill(x, TOKENS * IN, 1);
    fill(weights[0], OUT * IN, 0.1);
    fill(weights[1], OUT * IN, 0.1);
    fill(bias, OUT, 0.2);
    for (size_t i = 0; i < TOKENS * OUT; i++) {
        size_t row = i / OUT;
        double own = made(x + row * IN, weights[0], i % OUT), other = made(x + row * IN, weights[1], i % OUT);
        right[i] = (float)own;
        other = scaled ? 0.7 * own : other;
        wrong[i] = (float)(row >= from && row < end ? 2 * own - other : other);
    }
    for (int layer = 0; layer < 2; layer++) {
        made_add(file, made_name("model.layers.%d.self_attn.q_proj.weight", layer), weights[layer], SHAPE(OUT, IN));
        made_add(file, made_name("model.layers.%d.self_attn.q_proj.bias", layer), bias, SHAPE(OUT));
    }
    assert_int_equal(ts_evidence_make(file, NULL, NULL, &trace->evidence, &error), TS_OK);
    trace_add(trace, "model.layers.0.input_layernorm", x, x, SHAPE(TOKENS, IN));
    return trace_add(trace, "model.layers.0.self_attn.q_proj", right, wrong, SHAPE(TOKENS, OUT));
}

/* All families, then the proof of the best claim, whose rows cost so much. */
static struct ts_cause_proof prove_dear(struct trace *trace, size_t index, double work, const char *words)
{
    struct ts_diagnosis diagnosis;
    struct ts_case_state *open = open_hidden(trace, index, &diagnosis);
    struct ts_cause_proof proof;
    for (open->family = 0; ts_families[open->family]; open->family++) {
        ts_families[open->family]->propose(&open->face);
        ts_case_drop_scratch(open);
    }
    assert_true(open->book->count > 0);
    if (work > 0)
        open->book->entries[0].formula.work = work;
    ts_case_prove(open);
    assert_true(open->book->count > 0);
    proof = open->book->entries[0].cause.proof;
    if (!strstr(open->book->entries[0].cause.summary, words))
        fail_msg("%s", open->book->entries[0].cause.summary);
    close_hidden(open, &diagnosis);
    return proof;
}

static struct ts_cause_proof prove_product(bool scaled, size_t from, size_t end, double work, const char *words)
{
    struct trace trace;
    struct ts_cause_proof proof;
    trace_start(&trace);
    proof = prove_dear(&trace, build_product(&trace, scaled, from, end), work, words);
    trace_end(&trace);
    return proof;
}

static void test_directed(void **state)
{
    static const char whole_words[] = "checked on all 600 tokens; it does not hold in 4 of them, first in token 560";
    static const char words[] =
        "checked on all 600 tokens (by random projections); it does not hold in 4 of them, first in token 560";
    struct ts_cause_proof whole, few, again;
    (void)state;
    prove_product(false, 0, 0, 1e9, "checked on all 600 tokens (by random projections)");
    whole = prove_product(false, 560, 564, 0, whole_words);
    few = prove_product(false, 560, 564, 1e9, words);
    assert_true(few.rows == TOKENS && few.of_rows == TOKENS && few.elements == whole.elements);
    assert_true(whole.left > 0 && fabs(few.left / whole.left - 1) < 0.2 && few.left != whole.left);
    assert_true(fabs(few.error / whole.error - 1) < 0.02);
    assert_int_equal(setenv("TSLEUTH_THREADS", "3", 1), 0);
    again = prove_product(false, 560, 564, 1e9, words);
    assert_true(fabs(again.left / few.left - 1) < 1e-12 && fabs(again.error / few.error - 1) < 1e-12);
    unsetenv("TSLEUTH_THREADS");
    /* what is no product itself is held against one that is replayed whole */
    prove_product(true, 560, 564, 0, whole_words);
}

/* A weight in the directions, and whole: with a bias, rows in the other rotary order, numbers in another order. */
static void test_replay(void **state)
{
    enum { ROWS = 9 };
    static double out[ROWS * OUT], seen[ROWS * TS_DIRECTIONS];
    struct trace trace;
    struct ts_diagnosis diagnosis;
    struct ts_case_state *open;
    struct ts_product product;
    struct ts_directed directed;
    struct ts_actor input, actor;
    size_t order[IN];
    float *directions = ts_directions_draw(OUT);
    (void)state;
    trace_start(&trace);
    open = open_hidden(&trace, build_product(&trace, false, 0, 0), &diagnosis);
    assert_true(directions && open->product.weight && open->product.bias && open->replayed);
    product = open->product;
    input = *product.input;
    actor = *open->face.actor;
    actor.rows = input.rows = ROWS;
    product.input = &input;
    for (int pass = 0; pass < 3; pass++) {
        product.turn = pass ? TS_ROWS_INTERLEAVED : TS_ROWS_PLAIN;
        product.head = 20;
        for (size_t i = 0; i < IN; i++)
            order[i] = i * 5 % IN;
        product.order = pass == 2 ? order : NULL;
        assert_true(ts_product_replay(&product, &actor, out));
        for (size_t i = 0; i < ROWS * OUT; i++) {
            size_t channel = i % OUT, within = channel % 20,
                   row = pass ? channel - within + 2 * (within % 10) + within / 10 : channel;
            double sum = (double)bias[row];
            for (size_t k = 0; k < IN; k++)
                sum += (double)input.b[i / OUT * IN + (pass == 2 ? order[k] : k)] * (double)weights[0][row * IN + k];
            assert_true(fabs(out[i] - sum) < 1e-5);
        }
        if (pass == 2)
            continue;
        assert_true(ts_directed_open(&directed, &product, OUT, directions));
        assert_true(ts_directions_of(input.b, ROWS, IN, directed.weights, directed.offsets, seen));
        for (size_t i = 0; i < ROWS * TS_DIRECTIONS; i++) {
            double sum = 0;
            for (size_t c = 0; c < OUT; c++)
                sum += out[i / TS_DIRECTIONS * OUT + c] * (double)directions[c * TS_DIRECTIONS + i % TS_DIRECTIONS];
            assert_true(fabs(seen[i] - sum) < 1e-5);
        }
        ts_directed_close(&directed);
    }
    close_hidden(open, &diagnosis);
    trace_end(&trace);
    free(directions);
}

enum { LONG = 320, HEADS = 4, SERVED = 2, SIZE = 32, WIDTH = HEADS * SIZE, NARROW = SERVED * SIZE };

static float q[LONG * WIDTH], k[LONG * NARROW], v[LONG * NARROW], table[2][HEADS * LONG * LONG];
static float contexts[2][LONG * WIDTH];

static void fill_operands(void)
{
    fill(q, LONG * WIDTH, 0.8);
    fill(k, LONG * NARROW, 0.8);
    fill(v, LONG * NARROW, 1);
}

/* Causal attention, key head g for head h; scores and probabilities go to the table of a side. */
static void attend(int side, double scale, bool tiled)
{
    for (size_t i = 0; i < LONG * HEADS; i++) {
        size_t row = i / HEADS, head = i % HEADS, served = tiled ? head % SERVED : head / (HEADS / SERVED);
        float *weigh = table[side] + (head * LONG + row) * LONG;
        double sum = 0, value[SIZE] = {0};
        for (size_t key = 0; key < LONG; key++) {
            double score = 0;
            for (size_t n = 0; n < SIZE; n++)
                score += (double)q[row * WIDTH + head * SIZE + n] * (double)k[key * NARROW + served * SIZE + n];
            weigh[key] = (float)(key <= row ? exp(scale * score / sqrt(SIZE)) : 0);
            sum += (double)weigh[key];
        }
        for (size_t key = 0; key < LONG; key++) {
            weigh[key] = (float)((double)weigh[key] / sum);
            for (size_t n = 0; n < SIZE; n++)
                value[n] += (double)weigh[key] * (double)v[key * NARROW + served * SIZE + n];
        }
        for (size_t n = 0; n < SIZE; n++)
            contexts[side][i * SIZE + n] = (float)value[n];
    }
}

/* Some late tokens hold something else. */
static void spoil(float *rows, const float *own, size_t width)
{
    for (size_t i = 300 * width; i < 303 * width; i++)
        rows[i] = 2 * own[i] - rows[i];
}

/* Captured probabilities times values, whose heads are tiled: so dear that half of the tokens were tried. */
static void test_context(void **state)
{
    struct trace trace;
    size_t index;
    (void)state;
    dice_state = 5;
    fill_operands();
    attend(0, 1, false);
    for (size_t i = 0; i < LONG * WIDTH; i++) {
        size_t row = i / WIDTH, head = i % WIDTH / SIZE;
        double sum = 0;
        for (size_t key = 0; key <= row; key++)
            sum += (double)table[0][(head * LONG + row) * LONG + key] *
                   (double)v[key * NARROW + head % SERVED * SIZE + i % SIZE];
        contexts[1][i] = (float)sum;
    }
    spoil(contexts[1], contexts[0], WIDTH);
    trace_start(&trace);
    trace_add(&trace, "layers.0.attn.v", v, v, SHAPE(LONG, SERVED, SIZE));
    trace_add(&trace, "layers.0.attn.probs", table[0], table[0], SHAPE(HEADS, LONG, LONG));
    index = trace_add(&trace, "layers.0.attn.context", contexts[0], contexts[1], SHAPE(LONG, HEADS, SIZE));
    prove_dear(&trace, index, 1e8, "checked on all 320 tokens; it does not hold in 3 of them, first in token 300");
    trace_end(&trace);
}

/* The same for scores. */
static void test_scores(void **state)
{
    struct trace trace;
    size_t index;
    (void)state;
    dice_state = 6;
    fill_operands();
    for (size_t i = 0; i < HEADS * LONG * LONG; i++) {
        size_t head = i / (LONG * LONG), row = i / LONG % LONG, key = i % LONG;
        double sums[2] = {0, 0};
        for (size_t n = 0; n < SIZE; n++) {
            sums[0] += (double)q[row * WIDTH + head * SIZE + n] * (double)k[key * NARROW + head / 2 * SIZE + n];
            sums[1] += (double)q[row * WIDTH + head * SIZE + n] * (double)k[key * NARROW + head % 2 * SIZE + n];
        }
        table[0][i] = (float)(sums[0] / sqrt(SIZE));
        table[1][i] = (float)((row >= 300 && row < 303 ? 2 * sums[0] - sums[1] : sums[1]) / sqrt(SIZE));
    }
    trace_start(&trace);
    trace_add(&trace, "layers.0.attn.q", q, q, SHAPE(LONG, HEADS, SIZE));
    trace_add(&trace, "layers.0.attn.k", k, k, SHAPE(LONG, SERVED, SIZE));
    index = trace_add(&trace, "layers.0.attn.scores", table[0], table[1], SHAPE(HEADS, LONG, LONG));
    prove_dear(&trace, index, 1e8, "checked on all 320 tokens; it does not hold in 3 of them, first in token 300");
    trace_end(&trace);
}

/* Attention behind which a projection comes that nobody has: the scores are three times as large, in all tokens or in
 * the first ones and some between. */
static double likeness_of(size_t from, double work, double work_few, const char *words)
{
    static float weight[WIDTH * OUT], outputs[2][LONG * OUT];
    struct ts_moves moves = {.right = ts_chain_plain(HEADS, SERVED, SIZE), .before = "three times", .modesty = 0.1};
    struct ts_operand *operands[3] = {&moves.right.q, &moves.right.k, &moves.right.v};
    struct trace trace;
    struct ts_diagnosis diagnosis;
    struct ts_case_state *open;
    const struct ts_cause *cause;
    double confidence;
    dice_state = 9;
    fill_operands();
    fill(weight, WIDTH * OUT, 1);
    attend(0, 1, false);
    attend(1, 3, false);
    for (int side = 0; side < 2; side++)
        matmul(contexts[side], weight, LONG, WIDTH, OUT, outputs[side]);
    for (size_t row = from; row < LONG; row++) { /* moved as far, but in ways of their own */
        for (size_t i = row * OUT; i < (row + 1) * OUT; i++)
            outputs[1][i] = outputs[0][i] + (outputs[1][i] - outputs[0][i]) * (dice_number() < 0 ? -1.0f : 1.0f);
    }
    trace_start(&trace);
    trace_add(&trace, "layers.0.self_attn.q_proj", q, q, SHAPE(LONG, WIDTH));
    trace_add(&trace, "layers.0.self_attn.k_proj", k, k, SHAPE(LONG, NARROW));
    trace_add(&trace, "layers.0.self_attn.v_proj", v, v, SHAPE(LONG, NARROW));
    open = open_hidden(&trace, trace_add(&trace, "layers.0.self_attn.o_proj", outputs[0], outputs[1], SHAPE(LONG, OUT)),
                       &diagnosis);
    for (size_t i = 0; i < 3; i++)
        *operands[i] = (struct ts_operand){ts_scene_actor(open->face.scene, i), 0, i ? NARROW : WIDTH};
    moves.wrong = moves.right;
    moves.wrong.scale *= 3;
    ts_give_moves(&open->face, &moves, false, 0);
    open->next.work = work;
    open->next.work_few = work_few;
    ts_propose_plain(&open->face, "softmax", 0.95, "nothing", "three times");
    ts_case_prove(open);
    cause = open->book->count ? &open->book->entries[0].cause : NULL;
    confidence = cause ? cause->confidence : 0;
    if (cause && !strstr(cause->summary, words))
        fail_msg("%s", cause->summary);
    close_hidden(open, &diagnosis);
    trace_end(&trace);
    return confidence;
}

static void test_likeness(void **state)
{
    struct ts_watch watch = {0};
    double whole, few, threads;
    (void)state;
    ts_watched = &watch;
    whole = likeness_of(LONG, 1e9, 1e9, "checked on all 320 tokens");
    ts_watched = NULL;
    assert_string_equal(atomic_load(&watch.label), "proving"); /* a person sees how far it has come */
    assert_true(whole > 0.85 && atomic_load(&watch.done) > 0);
    few = likeness_of(LONG, 1.8e10, 9e9, "checked on all 320 tokens (by random projections)");
    assert_true(fabs(few - whole) < 0.05 && few != whole);
    assert_int_equal(setenv("TSLEUTH_THREADS", "3", 1), 0);
    threads = likeness_of(LONG, 1e11, 1e9, "(by random projections)");
    unsetenv("TSLEUTH_THREADS");
    assert_true(fabs(threads / few - 1) < 1e-12);
    assert_true(likeness_of(96, 1e9, 1e9, "checked on all 320 tokens") < 0.75 * whole);
    likeness_of(LONG, 1e11, 2e10, "checked on 128 of 320 tokens"); /* both ends of it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matrix),   cmocka_unit_test(test_across),  cmocka_unit_test(test_directed),
        cmocka_unit_test(test_replay),   cmocka_unit_test(test_context), cmocka_unit_test(test_scores),
        cmocka_unit_test(test_likeness),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
