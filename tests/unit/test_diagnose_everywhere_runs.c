/* Claims that need more than a row at a time, put to every row: attention in one step, operands exchanged, sequences of
 * a batch, weights that were rounded; and claims that are not the best one. */
#include "diagnose/attention_tables.h"
#include "hidden_rows.h"

enum { TOKENS = 320, HEADS = 4, SIZE = 16, WIDTH = HEADS * SIZE, OUT = 128, TOTAL = TOKENS * OUT };

static float q[TOKENS * WIDTH], k[TOKENS * WIDTH], v[TOKENS * WIDTH], right[TOTAL], wrong[TOTAL];
static float weight[WIDTH * OUT];

static void fill(float *values, size_t count, double size)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(size * (dice_number() + dice_number()));
}

static bool is_hidden(const bool *hidden, size_t row)
{
    return hidden && hidden[row];
}

/* Numbers that nothing in the trace explains. */
static double noise_at(size_t row, size_t i)
{
    return sin(0.37 * (double)(row * row % 9973) + 1.9 * (double)(i * i) + (double)(row * i));
}

/* Causal attention of one token among those of its sequence, which begins at `first`. */
static void attend(size_t first, size_t row, double scale, bool turned, float *out)
{
    for (size_t head = 0; head < HEADS; head++) {
        double weights[TOKENS], sum = 0;
        for (size_t key = first; key <= row; key++) {
            const float *x = q + row * WIDTH + head * SIZE, *y = k + key * WIDTH + head * SIZE;
            double score = 0;
            for (size_t i = 0; i < SIZE / 2; i++) {
                double angle = turned ? (double)(row - key) * pow(1e4, -2.0 * (double)i / SIZE) : 0;
                double c = cos(angle), s = sin(angle), a = (double)x[i], b = (double)x[i + SIZE / 2];
                score += (a * c - b * s) * (double)y[i] + (a * s + b * c) * (double)y[i + SIZE / 2];
            }
            weights[key - first] = exp(scale * score / sqrt(SIZE));
            sum += weights[key - first];
        }
        for (size_t i = 0; i < SIZE; i++) {
            double value = 0;
            for (size_t key = first; key <= row; key++)
                value += weights[key - first] / sum * (double)v[key * WIDTH + head * SIZE + i];
            out[head * SIZE + i] = (float)value;
        }
    }
}

static void add_operands(struct trace *trace, size_t batch, size_t tokens)
{
    trace_add(trace, "layers.0.self_attn.q_proj", q, q, SHAPE(batch, tokens, WIDTH));
    trace_add(trace, "layers.0.self_attn.k_proj", k, k, SHAPE(batch, tokens, WIDTH));
    trace_add(trace, "layers.0.self_attn.v_proj", v, v, SHAPE(batch, tokens, WIDTH));
}

static void fill_operands(void)
{
    fill(q, TOKENS * WIDTH, 1.5);
    fill(k, TOKENS * WIDTH, 1.5);
    fill(v, TOKENS * WIDTH, 1);
    fill(weight, WIDTH * OUT, 1);
}

/* The last step of attention is a projection whose weight nobody has; the candidate's scores are four times as large,
 * or it does not turn. Hidden tokens are moved as far, in directions of their own, or not at all. */
static bool spared, unturned;

static size_t build_projected(struct trace *trace, size_t tokens, const bool *hidden)
{
    static float contexts[2][TOKENS * WIDTH];
    fill_operands();
    for (size_t row = 0; row < tokens; row++) {
        attend(0, row, 1, true, contexts[0] + row * WIDTH);
        attend(0, row, unturned ? 1 : 4, !unturned, contexts[1] + row * WIDTH);
    }
    matmul(contexts[0], weight, tokens, WIDTH, OUT, right);
    matmul(contexts[1], weight, tokens, WIDTH, OUT, wrong);
    for (size_t row = 0; row < tokens; row++) {
        double size = 0;
        for (size_t i = row * OUT; i < (row + 1) * OUT; i++)
            size += ((double)wrong[i] - (double)right[i]) * ((double)wrong[i] - (double)right[i]) * 2 / OUT;
        for (size_t i = 0; i < OUT && is_hidden(hidden, row); i++)
            wrong[row * OUT + i] = right[row * OUT + i] + (spared ? 0 : (float)(sqrt(size) * noise_at(row, i)));
    }
    add_operands(trace, 1, tokens);
    return trace_add(trace, "layers.0.self_attn.o_proj", right, wrong, SHAPE(1, tokens, OUT));
}

static size_t build_long(struct trace *trace, const bool *hidden)
{
    return build_projected(trace, TOKENS, hidden);
}

static void test_likeness(void **state)
{
    struct hidden_plan plan = {.rows = TOKENS, .unit = "tokens", .build = build_long};
    (void)state;
    spared = unturned = false;
    plan.id = "softmax";
    plan.words = "before the softmax, the candidate's scores are 4 times the reference's";
    plan.least = 0.7;
    expect_everywhere(&plan);
}

/* All tokens are at hand, and the first ones are compared: the others count as well. */
static void test_all_at_hand(void **state)
{
    enum { SHORT = 200, COMPARED = 48 };
    bool hidden[SHORT] = {false};
    struct trace trace;
    double before;
    (void)state;
    spared = unturned = false;
    trace_start(&trace);
    trace_diagnose(&trace, build_projected(&trace, SHORT, NULL));
    assert_first(&trace, "softmax", "before the softmax, the candidate's scores are 4 times the reference's");
    assert_non_null(strstr(trace.diagnosis.causes[0].summary, "checked on all 200 tokens"));
    assert_true(trace.diagnosis.causes[0].proof.rows == SHORT && trace.diagnosis.causes[0].proof.of_rows == SHORT);
    before = trace.diagnosis.causes[0].confidence;
    assert_true(before > 0.7);
    trace_end(&trace);
    for (size_t row = COMPARED; row < SHORT; row++)
        hidden[row] = true;
    trace_start(&trace);
    trace_diagnose(&trace, build_projected(&trace, SHORT, hidden));
    for (size_t i = 0; i < trace.diagnosis.count; i++)
        if (strstr(trace.diagnosis.causes[i].summary, "the scores are"))
            assert_true(trace.diagnosis.causes[i].confidence < 0.75 * before);
    trace_end(&trace);
}

/* Where operands cannot be held, runs of tokens are taken from end to end, with every key that they see. */
static void test_spread(void **state)
{
    bool hidden[TOKENS] = {false};
    (void)state;
    spared = unturned = false;
    for (int pass = 0; pass < 2; pass++) {
        struct trace trace;
        struct ts_diagnosis diagnosis;
        struct ts_case_state *open;
        struct ts_moves moves = {.right = ts_chain_plain(HEADS, HEADS, SIZE), .before = "four times", .modesty = 0.1};
        struct ts_operand *operands[3] = {&moves.right.q, &moves.right.k, &moves.right.v};
        const struct ts_cause *cause;
        for (size_t row = 16; row < TOKENS - 16 && pass; row++)
            hidden[row] = true;
        trace_start(&trace);
        open = open_hidden(&trace, build_long(&trace, pass ? hidden : NULL), &diagnosis);
        for (size_t i = 0; i < 3; i++)
            *operands[i] = (struct ts_operand){ts_scene_actor(open->face.scene, i), 0, WIDTH};
        moves.right.base = 1e4;
        moves.wrong = moves.right;
        moves.wrong.scale *= 4;
        ts_give_moves(&open->face, &moves, false, 0);
        ts_propose_plain(&open->face, "softmax", 0.95, "nothing", "four times");
        ts_case_prove(open);
        cause = open->book->count ? &open->book->entries[0].cause : NULL;
        if (pass) {
            assert_true(!cause || cause->confidence < 0.6);
        } else {
            assert_non_null(cause);
            assert_true(cause->proof.rows == TOKENS && cause->proof.of_rows == TOKENS);
            assert_true(cause->confidence > 0.85);
            assert_non_null(strstr(cause->summary, "most like the candidate: likeness "));
        }
        close_hidden(open, &diagnosis);
        trace_end(&trace);
    }
}

/* A claim far behind the best one is put to all rows as well, and goes when it does not hold there. */
static void test_weaker(void **state)
{
    static const char words[] = "the first token, which sees only itself, agrees and every later one is wrong";
    bool *looked = calloc(TOKENS, sizeof *looked), *hidden = calloc(TOKENS, sizeof *hidden);
    struct trace trace;
    size_t index, behind = 0;
    (void)state;
    assert_true(looked && hidden);
    spared = unturned = true;
    trace_start(&trace);
    index = build_long(&trace, NULL);
    trace_diagnose(&trace, index);
    for (size_t i = 0; i < trace.diagnosis.count; i++) {
        const struct ts_cause *cause = &trace.diagnosis.causes[i];
        assert_true(cause->proof.rows == TOKENS && cause->proof.of_rows == TOKENS);
        behind += i > 0;
    }
    assert_true(behind > 0);
    look_at_rows(&trace, index, looked);
    for (int round = 0, news = 1; news && round < 10; round++) {
        trace_end(&trace);
        trace_start(&trace);
        for (size_t row = 0; row < TOKENS; row++)
            hidden[row] = !looked[row];
        index = build_long(&trace, hidden);
        news = look_at_rows(&trace, index, looked);
    }
    trace_diagnose(&trace, index);
    for (size_t i = 0; i < trace.diagnosis.count; i++)
        if (strstr(trace.diagnosis.causes[i].summary, words)) {
            trace_print(&trace);
            fail_msg("it holds in few tokens, and is said");
        }
    trace_end(&trace);
    free(looked);
    free(hidden);
}

/* Queries stand where keys should, in scores of a long sequence. */
static size_t build_exchanged(struct trace *trace, const bool *hidden)
{
    static float scores[2][HEADS * TOKENS * TOKENS];
    fill_operands();
    for (size_t head = 0; head < HEADS; head++)
        for (size_t row = 0; row < TOKENS; row++)
            for (size_t key = 0; key < TOKENS; key++) {
                size_t at = (head * TOKENS + row) * TOKENS + key;
                double own = 0, other = 0;
                for (size_t i = head * SIZE; i < (head + 1) * SIZE; i++) {
                    own += (double)q[row * WIDTH + i] * (double)k[key * WIDTH + i] / sqrt(SIZE);
                    other += (double)k[row * WIDTH + i] * (double)q[key * WIDTH + i] / sqrt(SIZE);
                }
                scores[0][at] = (float)own;
                scores[1][at] = (float)(is_hidden(hidden, row) ? -1.5 * other : other);
            }
    trace_add(trace, "layers.0.attn.q", q, q, SHAPE(TOKENS, HEADS, SIZE));
    trace_add(trace, "layers.0.attn.k", k, k, SHAPE(TOKENS, HEADS, SIZE));
    return trace_add(trace, "layers.0.attn.scores", scores[0], scores[1], SHAPE(HEADS, TOKENS, TOKENS));
}

static void test_exchanged(void **state)
{
    struct hidden_plan plan = {.rows = TOKENS, .unit = "tokens", .build = build_exchanged};
    (void)state;
    plan.id = "wrong-input";
    plan.words = "swaps queries and keys: the rows and columns of its scores are swapped";
    expect_everywhere(&plan);
}

/* A batch of sequences, of which one is looked at. */
enum { BATCH = 8, LENGTH = TOKENS / BATCH };

enum batched { ROLLED, SHUFFLED, EMPTIED, IN_ONE_STEP };

static enum batched batched;

/* Where the candidate's token belongs. */
static size_t moved_from(size_t token)
{
    return batched == ROLLED ? (token + LENGTH - 2) % LENGTH : (token * 27 + 11) % LENGTH;
}

static size_t build_batch(struct trace *trace, const bool *hidden)
{
    fill_operands();
    for (size_t row = 0; row < TOKENS; row++) {
        size_t first = row / LENGTH * LENGTH, from = first + moved_from(row - first);
        if (batched == IN_ONE_STEP) {
            attend(first, row, 1, true, right + row * WIDTH);
            attend(first, row, is_hidden(hidden, row) ? 0.2 : 4, true, wrong + row * WIDTH);
            continue;
        }
        for (size_t i = 0; i < WIDTH; i++) {
            double other = (double)v[row * WIDTH + i] + 0.5 * noise_at(row, i); /* the worst one stays where it is */
            right[row * WIDTH + i] = v[row * WIDTH + i];
            wrong[row * WIDTH + i] = is_hidden(hidden, row)                          ? (float)other
                                     : batched == EMPTIED && (row - first) % 16 == 3 ? 0
                                                                                     : v[from * WIDTH + i];
        }
    }
    if (batched == IN_ONE_STEP) {
        add_operands(trace, BATCH, LENGTH);
        return trace_add(trace, "layers.0.self_attn.context", right, wrong, SHAPE(BATCH, LENGTH, WIDTH));
    }
    trace_add(trace, "layers.0.norm", q, q, SHAPE(BATCH, LENGTH, WIDTH));
    return trace_add(trace, "layers.0.output", right, wrong, SHAPE(BATCH, LENGTH, WIDTH));
}

/* Tokens that come around the end, and those that are empty, are not so in the other sequences. */
static void expect_but_for_some(void)
{
    bool looked[TOKENS] = {false}, hidden[TOKENS] = {false};
    struct trace trace;
    size_t index, count = 0;
    char words[64];
    trace_start(&trace);
    index = build_batch(&trace, NULL);
    look_at_rows(&trace, index, looked);
    trace_end(&trace);
    for (size_t row = 0; row < TOKENS; row++) {
        size_t token = row % LENGTH;
        hidden[row] = !looked[row] && (batched == ROLLED ? token < 2 : token % 16 == 3);
        count += hidden[row];
    }
    trace_start(&trace);
    index = build_batch(&trace, hidden);
    assert_false(look_at_rows(&trace, index, looked));
    trace_diagnose(&trace, index);
    snprintf(words, sizeof words, "it does not hold in %zu of them", count);
    if (!strstr(trace.diagnosis.causes[0].summary, words)) {
        trace_print(&trace);
        fail_msg("not said: %s", words);
    }
    trace_end(&trace);
}

static void test_batch(void **state)
{
    struct hidden_plan plan = {.rows = TOKENS, .unit = "tokens", .build = build_batch};
    (void)state;
    batched = ROLLED;
    plan.id = "shifted";
    plan.words = "tokens are shifted by 2, wrapping around";
    expect_everywhere(&plan);
    batched = SHUFFLED;
    plan.id = "permuted";
    plan.words = "tokens are out of place";
    expect_everywhere(&plan);
    batched = EMPTIED;
    plan.words = "3 are zero";
    expect_everywhere(&plan);
    expect_but_for_some();
    batched = ROLLED;
    expect_but_for_some();
    batched = IN_ONE_STEP;
    plan.id = "softmax";
    plan.words = "before the softmax, the candidate's scores are 4 times the reference's";
    expect_everywhere(&plan);
}

/* A projection with a weight of four bits. Hidden tokens err as much, and keep no angles; or all in few channels. */
enum { ROWS = 1500, INPUTS = 64, OUTPUTS = 96 };

static bool in_few_channels;

static size_t build_rounded(struct trace *trace, const bool *hidden)
{
    static float x[ROWS * INPUTS], y[ROWS * OUTPUTS], z[ROWS * OUTPUTS], coarse[INPUTS * OUTPUTS];
    static float parts_of[8 * INPUTS], fine[INPUTS * OUTPUTS];
    fill(parts_of, 8 * INPUTS, 1);
    fill(fine, INPUTS * OUTPUTS, 1);
    for (size_t row = 0; row < ROWS; row++) { /* tokens have much in common */
        double parts[8];
        for (size_t p = 0; p < 8; p++)
            parts[p] = dice_number() + dice_number();
        for (size_t i = 0; i < INPUTS; i++) {
            double sum = 0.3 * dice_number();
            for (size_t p = 0; p < 8; p++)
                sum += parts[p] * (double)parts_of[p * INPUTS + i];
            x[row * INPUTS + i] = (float)sum;
        }
    }
    for (size_t i = 0; i < INPUTS * OUTPUTS; i++)
        coarse[i] = (float)(nearbyint((double)fine[i] / 0.25) * 0.25);
    matmul(x, fine, ROWS, INPUTS, OUTPUTS, y);
    matmul(x, coarse, ROWS, INPUTS, OUTPUTS, z);
    for (size_t row = 0; row < ROWS; row++) {
        double error = 0, few = 0;
        for (size_t i = 0; i < OUTPUTS; i++) {
            double off = (double)z[row * OUTPUTS + i] - (double)y[row * OUTPUTS + i];
            error += off * off;
            few += i < OUTPUTS / 12 ? off * off : 0;
        }
        for (size_t i = 0; i < OUTPUTS && is_hidden(hidden, row); i++) {
            size_t at = row * OUTPUTS + i;
            double off = ((double)z[at] - (double)y[at]) / sqrt(few);
            off = !in_few_channels ? sqrt(2.0 / OUTPUTS) * noise_at(row, i) : i < OUTPUTS / 12 ? off : 0;
            z[at] = y[at] + (float)(sqrt(error) * off);
        }
    }
    trace_add(trace, "layers.0.norm", x, x, SHAPE(1, ROWS, INPUTS));
    return trace_add(trace, "layers.0.mlp.up_proj", y, z, SHAPE(1, ROWS, OUTPUTS));
}

static void test_rounded(void **state)
{
    struct hidden_plan plan = {.rows = ROWS, .unit = "tokens", .build = build_rounded, .id = "quantization"};
    (void)state;
    plan.words = "it looks like weights rounded or quantized";
    plan.least = 0.38;
    plan.without_family = true;
    in_few_channels = false;
    expect_everywhere(&plan);
    in_few_channels = true;
    expect_everywhere(&plan);
}

/* When no known cause fits: rounding is looked for in all tokens, and of anything else it is said how many were looked
 * at.
 */
static void test_none(void **state)
{
    for (int noise = 0; noise < 2; noise++) {
        struct trace trace;
        fill_operands();
        for (size_t row = 0; row < TOKENS; row++)
            for (size_t i = 0; i < WIDTH; i++) {
                size_t at = row * WIDTH + i;
                double odd = noise_at(row, i), even = noise_at(row + TOKENS, i);
                right[at] = to_bf16(q[at] + k[at]);
                wrong[at] = noise ? right[at] + (float)(0.4 * odd * even * fabs(odd))
                                  : right[at] * (odd > 0.5 ? 1.0078125f : 1);
            }
        trace_start(&trace);
        trace_add(&trace, "layers.0.a", q, q, SHAPE(1, TOKENS, WIDTH));
        trace_add(&trace, "layers.0.b", k, k, SHAPE(1, TOKENS, WIDTH));
        trace_diagnose(&trace, trace_add(&trace, "layers.0.sum", right, wrong, SHAPE(1, TOKENS, WIDTH)));
        if (trace.diagnosis.count || !trace.diagnosis.strongest ||
            !strstr(trace.diagnosis.strongest,
                    noise ? "; checked on 48 of 320 tokens" : "; checked on all 320 tokens")) {
            trace_print(&trace);
            fail_msg("%d", noise);
        }
        trace_end(&trace);
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_likeness), cmocka_unit_test(test_all_at_hand), cmocka_unit_test(test_weaker),
        cmocka_unit_test(test_spread),   cmocka_unit_test(test_none),        cmocka_unit_test(test_exchanged),
        cmocka_unit_test(test_batch),    cmocka_unit_test(test_rounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
