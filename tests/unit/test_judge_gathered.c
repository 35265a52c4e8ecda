/* The judge where experts gather tokens in an order of their own: what was captured inside of them holds the same rows
 * in another order, and more of them are other ones where tokens took other experts. Each with a trace on which it must
 * still speak. */
#include "judged_trace.h"

enum { TOKENS = 12, WIDTH = 32, CHOSEN = 2, ROWS = TOKENS * CHOSEN, EXPERTS = 8 };

#define TINY 2e-4

/* Where the candidate puts row `row`. */
static size_t moved(size_t row)
{
    return (row * 7 + 3) % ROWS;
}

static void add_shaken(struct trace *trace, const char *name, double error)
{
    float *a = made_values(TOKENS * WIDTH), b[TOKENS * WIDTH];
    shake(a, b, TOKENS * WIDTH, error);
    trace_add(trace, name, a, b, SHAPE(TOKENS, WIDTH));
    free(a);
}

/* Rows [ROWS, width], the candidate's where the order has them; other: they are of other values. */
static void add_rows(struct trace *trace, const char *name, size_t width, double error, bool other)
{
    float *a = made_values(ROWS * width), *others = made_values(ROWS * width), b[ROWS * WIDTH], shaken[ROWS * WIDTH];
    shake(other ? others : a, shaken, ROWS * width, error);
    for (size_t row = 0; row < ROWS; row++)
        memcpy(b + moved(row) * width, shaken + row * width, width * sizeof *b);
    if (width == 1)
        trace_add(trace, name, a, b, SHAPE(ROWS));
    else
        trace_add(trace, name, a, b, SHAPE(ROWS, width));
    free(a);
    free(others);
}

enum wrong { NOTHING, A_SLOT, THE_WEIGHTS, THE_ROWS, WHAT_COMES_OUT };

/* An order that was captured, which token each slot is, their weights, what goes in and what comes out. */
static void judge_captured_order(const char *order, enum wrong wrong, size_t expected)
{
    struct judged judged;
    int64_t slots[2][ROWS], tokens[2][ROWS];
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++)
        add_shaken(&judged.trace, made_name("layers.0.part_%d.proj", i), TINY);
    for (size_t row = 0; row < ROWS; row++) {
        slots[0][row] = slots[1][moved(row)] = (int64_t)((row * 5 + 1) % ROWS);
        tokens[0][row] = tokens[1][moved(row)] = slots[0][row] / CHOSEN;
    }
    if (wrong == A_SLOT)
        slots[1][4] = slots[1][5];
    trace_add_integers(&judged.trace, order, slots[0], slots[1], ROWS, 1);
    trace_add_integers(&judged.trace, "layers.0.mlp.router.1", tokens[0], tokens[1], ROWS, 1);
    add_rows(&judged.trace, "layers.0.mlp.router.2", 1, TINY, wrong == THE_WEIGHTS);
    add_rows(&judged.trace, "layers.0.mlp.input_linear", WIDTH, TINY, wrong == THE_ROWS);
    add_shaken(&judged.trace, "layers.0.mlp", wrong == WHAT_COMES_OUT ? 1 : TINY);
    expect_first(&judged, expected);
}

static void test_an_order_that_was_captured(void **state)
{
    (void)state;
    judge_captured_order("layers.0.mlp.router.0", NOTHING, SIZE_MAX);
    judge_captured_order("layers.0.mlp.router.0", A_SLOT, 4);
    judge_captured_order("layers.0.mlp.router.0", THE_WEIGHTS, 6);
    judge_captured_order("layers.0.mlp.router.0", THE_ROWS, 7);
    judge_captured_order("layers.0.mlp.router.0", WHAT_COMES_OUT, 8);
    judge_captured_order("layers.0.attn.positions", NOTHING, 4); /* these belong into their order */
}

/* One token took another expert in layer 0, and attention carries that to the last two: the others are what they were.
 * then: the error that all tokens have behind the experts of layer 1, which follows the reference where it is a bug. */
static void judge_behind_flips(double then, bool follows, size_t expected)
{
    struct judged judged;
    int64_t chosen[2][ROWS];
    float *a, *others, b[TOKENS * WIDTH];
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++)
        add_shaken(&judged.trace, made_name("layers.0.part_%d.proj", i), TINY);
    for (size_t i = 0; i < ROWS; i++)
        chosen[0][i] = chosen[1][i] = (int64_t)((i / CHOSEN * 3 + i % CHOSEN * 5) % 16);
    chosen[1][9 * CHOSEN + 1] = (chosen[0][9 * CHOSEN + 1] + 7) % 16;
    trace_add_integers(&judged.trace, "layers.0.mlp.experts_chosen", chosen[0], chosen[1], TOKENS, CHOSEN);
    for (int part = 0; part < 4; part++) {
        static const char *const names[4] = {"layers.0.mlp.experts", "layers.1.attn.o_proj",
                                             "layers.1.mlp.router.logits", "layers.1.mlp.experts"};
        const size_t width = part == 2 ? EXPERTS : WIDTH;
        const double error = part == 3 ? then : TINY;
        a = made_values(TOKENS * width);
        others = made_values(TOKENS * width);
        for (size_t i = 0; i < TOKENS * width; i++) {
            const double carried = i / width == 9 ? 1 : i / width < 9 || !part ? 0 : 0.4;
            const double made = part == 3 && follows ? error * (0.6 * (double)a[i] + 0.8 * dice_number())
                                                     : error * (double)a[i] * dice_number();
            b[i] = (float)((double)a[i] + made + carried * (double)others[i]);
        }
        trace_add(&judged.trace, names[part], a, b, SHAPE(TOKENS, width));
        free(a);
        free(others);
    }
    expect_first(&judged, expected);
}

static void test_experts_behind_tokens_that_carry_an_error(void **state)
{
    (void)state;
    judge_behind_flips(TINY, false, SIZE_MAX);
    judge_behind_flips(0.2, true, 8);
}

/* Weights of four bits: tokens flip in every layer, and what the others hold inside of the experts errs too much to be
 * found again. What comes out of the experts errs as what went in does, or is another thing. */
static void judge_noisy(double comes_out, size_t expected)
{
    struct judged judged;
    int64_t chosen[2][ROWS];
    trace_start(&judged.trace);
    for (int i = 0; i < 6; i++)
        add_shaken(&judged.trace, made_name("layers.0.part_%d.proj", i), 0.45);
    for (size_t i = 0; i < ROWS; i++)
        chosen[0][i] = chosen[1][i] = (int64_t)((i / CHOSEN * 3 + i % CHOSEN * 5) % 16);
    for (size_t token = 3; token < 7; token++)
        chosen[1][token * CHOSEN + 1] = (chosen[0][token * CHOSEN + 1] + 7) % 16;
    trace_add_integers(&judged.trace, "layers.0.mlp.experts_chosen", chosen[0], chosen[1], TOKENS, CHOSEN);
    add_rows(&judged.trace, "layers.0.mlp.experts.act_fn", WIDTH, 0.45, true);
    add_shaken(&judged.trace, "layers.0.mlp.experts", comes_out);
    expect_first(&judged, expected);
}

static void test_rows_that_err_too_much_to_be_found(void **state)
{
    (void)state;
    judge_noisy(0.5, SIZE_MAX);
    judge_noisy(30, 8);
}

/* Logits that fall from an expert of its own on in each token; the second and the third of some tokens are nearly tied,
 * and the candidate has them the other way round, if `tied`. Their rows inside of the experts are other ones. */
static void judge_lost_rows(bool tied, size_t expected)
{
    enum { FLIPPED = 4 };
    struct judged judged;
    float *logits = made_values(TOKENS * EXPERTS), near_logits[TOKENS * EXPERTS];
    float *a = made_values(ROWS * WIDTH), *others = made_values(ROWS * WIDTH), b[ROWS * WIDTH], shaken[ROWS * WIDTH];
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++)
        add_shaken(&judged.trace, made_name("layers.0.part_%d.proj", i), 0.1);
    for (size_t i = 0; i < TOKENS * EXPERTS; i++) {
        const size_t token = i / EXPERTS, rank = (i + token) % EXPERTS;
        logits[i] = 4 - (float)rank + (tied && token < FLIPPED && rank == 2 ? 0.9f : 0);
        near_logits[i] = logits[i] + 0.04f * (float)dice_number() +
                         (tied && token < FLIPPED ? rank == 1   ? -0.2f
                                                    : rank == 2 ? 0.2f
                                                                : 0
                                                  : 0);
    }
    trace_add(&judged.trace, "layers.0.mlp.router", logits, near_logits, SHAPE(TOKENS, EXPERTS));
    shake(a, shaken, ROWS * WIDTH, 0.1);
    memcpy(shaken, others, FLIPPED * WIDTH * sizeof *shaken);
    for (size_t row = 0; row < ROWS; row++)
        memcpy(b + moved(row) * WIDTH, shaken + row * WIDTH, WIDTH * sizeof *b);
    trace_add(&judged.trace, "layers.0.mlp.experts.fc1", a, b, SHAPE(ROWS, WIDTH));
    add_shaken(&judged.trace, "layers.0.mlp.experts", 0.15);
    free(logits);
    free(a);
    free(others);
    expect_first(&judged, expected);
}

static void test_rows_that_near_ties_explain(void **state)
{
    (void)state;
    judge_lost_rows(true, SIZE_MAX);
    judge_lost_rows(false, 5);
}

/* A layer norm behind them: so many numbers in another order are not what its weight came from. */
static void judge_norm_behind(bool applied, size_t expected)
{
    struct judged judged;
    float *x, *weight, *bias, sides[2][TOKENS * WIDTH], out[2][TOKENS * WIDTH];
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++)
        add_shaken(&judged.trace, made_name("layers.0.part_%d.proj", i), TINY);
    add_rows(&judged.trace, "layers.0.mlp.experts.act_fn", WIDTH, TINY, false);
    x = made_values(TOKENS * WIDTH);
    weight = made_values(WIDTH);
    bias = made_values(WIDTH);
    memcpy(sides[0], x, sizeof sides[0]);
    shake(x, sides[1], TOKENS * WIDTH, TINY);
    trace_add(&judged.trace, "layers.0", sides[0], sides[1], SHAPE(TOKENS, WIDTH));
    for (int side = 0; side < 2; side++) {
        normalize(sides[side], TOKENS, WIDTH, out[side]);
        for (size_t i = 0; i < TOKENS * WIDTH; i++)
            out[side][i] = (float)((double)out[side][i] * (side && !applied ? 1 : 1 + 0.2 * (double)weight[i % WIDTH]) +
                                   0.1 * (double)bias[i % WIDTH]);
    }
    trace_add(&judged.trace, "norm", out[0], out[1], SHAPE(TOKENS, WIDTH));
    free(x);
    free(weight);
    free(bias);
    expect_first(&judged, expected);
}

static void test_a_norm_behind_gathered_rows(void **state)
{
    (void)state;
    judge_norm_behind(true, SIZE_MAX);
    judge_norm_behind(false, 6);
}

/* Experts that are modules of their own are most of a trace, and have a row for each token that came: how many tokens
 * there are is told by the others, if there are any. */
static void test_rows_of_experts_are_no_tokens(void **state)
{
    (void)state;
    for (int others = 0; others < 2; others++) {
        struct judged judged;
        trace_start(&judged.trace);
        for (int i = 0; i < 3 * others; i++)
            add_shaken(&judged.trace, made_name("layers.%d.self_attn.o_proj", i), TINY);
        for (int i = 0; i < EXPERTS; i++) {
            float *a = made_values(5 * WIDTH), b[5 * WIDTH];
            shake(a, b, 5 * WIDTH, TINY);
            trace_add(&judged.trace, made_name("layers.0.mlp.experts.%d.up_proj", i), a, b, SHAPE(5, WIDTH));
            free(a);
        }
        judged_run(&judged);
        assert_int_equal(judged.judgement.tokens, others ? TOKENS : 5);
        judged_end(&judged);
    }
}

enum { FLIPPED = 3, TURNED = 7, HEADS = 2 * CHOSEN, SIZE = WIDTH / HEADS };

/* What both sides chose by their logits: the second and the third of one token are nearly tied, and the first two of
 * another one. */
struct sorted {
    float logits[2][TOKENS * EXPERTS];
    size_t chosen[2][TOKENS][CHOSEN];
    int64_t slots[2][ROWS];
};

static void choose(struct sorted *sorted, bool across, bool falling)
{
    for (size_t i = 0; i < TOKENS * EXPERTS; i++) {
        const size_t token = i / EXPERTS, rank = (3 * i + token) % EXPERTS;
        const float tie = token == FLIPPED && rank == 2 ? 0.999f : token == TURNED && rank == 1 ? 0.999f : 0;
        sorted->logits[0][i] = 2 - (float)rank + tie;
        sorted->logits[1][i] = sorted->logits[0][i] + (tie ? 0.002f : 0);
        for (int side = 0; side < 2; side++) {
            const bool swapped = side && ((token == FLIPPED && rank > 0) || (token == TURNED && rank < 2));
            const size_t place = !swapped ? rank : token == TURNED ? 1 - rank : rank == 1 ? 2 : rank == 2 ? 1 : rank;
            if (place < CHOSEN)
                sorted->chosen[side][token][place] = i % EXPERTS;
        }
    }
    for (int side = 0; side < 2; side++)
        for (size_t expert = 0, row = 0; expert < EXPERTS; expert++)
            for (size_t token = 0; token < TOKENS; token++)
                for (size_t k = 0; k < CHOSEN; k++)
                    if (sorted->chosen[side][token][k] == (falling ? EXPERTS - 1 - expert : expert))
                        sorted->slots[side][row++] = (int64_t)(across ? k * TOKENS + token : token * CHOSEN + k);
}

enum misled { NOBODY, OTHER_HEADS, OTHER_ROWS, HEADS_IN_THE_MLP, ANOTHER_ORDER, A_ROW_OF_NAN, ALL_BUT_A_ROW_OF_NAN };

static const char *part(enum misled misled, const char *name)
{
    static char names[8][64];
    static size_t used;
    char *out = names[used++ % 8];
    snprintf(out, sizeof names[0], "layers.0.%s.%s", misled == HEADS_IN_THE_MLP ? "mlp" : "self_attention", name);
    return out;
}

static bool is_of(int64_t token, int64_t slot, bool across)
{
    return (across ? slot % TOKENS : slot / CHOSEN) == token;
}

/* Attention that is made of experts: the order in which they gathered tokens, what is inside of them, and queries, with
 * two heads for each of a token's experts. `noise`: the error of all, and thrice as much in a few rows. */
static void judge_sorted(bool across, double noise, enum misled misled, size_t expected)
{
    static struct sorted sorted;
    struct judged judged;
    float *values, *unlike, sides[2][ROWS * WIDTH];
    size_t stays = 0; /* a row that is in its place on both sides */
    choose(&sorted, across, misled == ANOTHER_ORDER);
    while (sorted.slots[0][stays] != sorted.slots[1][stays] || is_of(FLIPPED, sorted.slots[0][stays], across) ||
           is_of(TURNED, sorted.slots[0][stays], across))
        stays++;
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++)
        add_shaken(&judged.trace, made_name("layers.0.part_%d.proj", i), noise);
    trace_add(&judged.trace, part(misled, "router.layer"), sorted.logits[0], sorted.logits[1], SHAPE(TOKENS, EXPERTS));
    trace_add_integers(&judged.trace, part(misled, "router.0"), sorted.slots[0], sorted.slots[1], ROWS, 1);
    values = made_values(TOKENS * EXPERTS * WIDTH); /* what each expert makes of each token */
    unlike = made_values(WIDTH);
    for (int side = 0; side < 2; side++)
        for (size_t row = 0; row < ROWS; row++) {
            const size_t slot = (size_t)sorted.slots[side][row], token = across ? slot % TOKENS : slot / CHOSEN;
            const size_t k = across ? slot / TOKENS : slot % CHOSEN;
            const float *from = values + (token * EXPERTS + sorted.chosen[side][token][k]) * WIDTH;
            const double error = side ? noise * (token < 2 || token > 9 ? 3 : 1) : 0;
            for (size_t i = 0; i < WIDTH; i++)
                sides[side][row * WIDTH + i] = misled == OTHER_ROWS && side && token == 5
                                                   ? unlike[i]
                                                   : from[i] * (float)(1 + error * dice_number());
        }
    for (size_t row = 0; row < ROWS && misled >= A_ROW_OF_NAN; row++)
        for (size_t i = 0; i < WIDTH; i++) {
            if (row == stays)
                sides[0][row * WIDTH + i] = sides[1][row * WIDTH + i] = NAN;
            else if (misled == ALL_BUT_A_ROW_OF_NAN)
                sides[1][row * WIDTH + i] = (float)dice_number();
        }
    trace_add(&judged.trace, part(misled, "input_linear"), sides[0], sides[1], SHAPE(ROWS, WIDTH));
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < TOKENS * WIDTH; i++) {
            const size_t head = i / SIZE / TOKENS, token = i / SIZE % TOKENS;
            const size_t k = head * CHOSEN / HEADS;
            const size_t other = misled == OTHER_HEADS && side && token == 5 ? CHOSEN - 1 - k : k;
            const float *from = values + (token * EXPERTS + sorted.chosen[side][token][other]) * WIDTH;
            sides[side][i] =
                from[head % (HEADS / CHOSEN) * SIZE + i % SIZE] * (float)(1 + (side ? noise : 0) * dice_number());
        }
    trace_add(&judged.trace, part(misled, "q_rope"), sides[0], sides[1], SHAPE(1, HEADS, TOKENS, SIZE));
    free(values);
    free(unlike);
    judged_run(&judged);
    if (expected == SIZE_MAX) {
        assert_int_equal(judged.judgement.aside_count, 1);
        assert_int_equal(judged.judgement.aside[0], FLIPPED);
        assert_non_null(strstr(judged.judgement.verdicts[5].why, "1 token was routed to different experts"));
        assert_true(isnan(judged.judgement.verdicts[5].error));
        assert_true(judged.judgement.verdicts[6].error > 0 && judged.judgement.verdicts[6].error < 3 * noise);
    }
    ts_judgement_release(&judged.judgement);
    expect_first(&judged, expected);
}

static void test_experts_that_the_order_tells(void **state)
{
    (void)state;
    for (int across = 0; across < 2; across++) {
        judge_sorted(across, TINY, NOBODY, SIZE_MAX);
        judge_sorted(across, 0.4, NOBODY, SIZE_MAX); /* rows that err too much to be found among all */
        judge_sorted(across, TINY, OTHER_ROWS, 6);
        judge_sorted(across, TINY, OTHER_HEADS, 7);
        judge_sorted(across, TINY, A_ROW_OF_NAN, SIZE_MAX);
        judge_sorted(across, TINY, ALL_BUT_A_ROW_OF_NAN, 6);
        judge_sorted(across, TINY, ANOTHER_ORDER, 6); /* these logits do not tell what it means */
    }
    judge_sorted(false, TINY, HEADS_IN_THE_MLP, 7); /* no place for experts there */
}

/* The same experts in other slots: those of one token are nearly tied, or the candidate counts slots by the numbers of
 * its experts. */
static void judge_slots(bool by_number, const char *said)
{
    static struct sorted sorted;
    struct judged judged;
    choose(&sorted, false, false);
    memcpy(sorted.chosen[1][FLIPPED], sorted.chosen[0][FLIPPED], sizeof sorted.chosen[0][FLIPPED]);
    memcpy(sorted.logits[1] + FLIPPED * EXPERTS, sorted.logits[0] + FLIPPED * EXPERTS, EXPERTS * sizeof(float));
    for (size_t expert = 0, row = 0; expert < EXPERTS; expert++)
        for (size_t token = 0; token < TOKENS; token++)
            for (size_t k = 0; k < CHOSEN; k++)
                if (sorted.chosen[1][token][k] == expert) {
                    const size_t smaller = sorted.chosen[1][token][1 - k] < expert;
                    sorted.slots[1][row++] = (int64_t)(token * CHOSEN + (by_number ? smaller : k));
                }
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++)
        add_shaken(&judged.trace, made_name("layers.0.part_%d.proj", i), TINY);
    trace_add(&judged.trace, "layers.0.mlp.router.layer", sorted.logits[0], sorted.logits[1], SHAPE(TOKENS, EXPERTS));
    trace_add_integers(&judged.trace, "layers.0.mlp.router.0", sorted.slots[0], sorted.slots[1], ROWS, 1);
    judged_run(&judged);
    assert_int_equal(judged.judgement.verdicts[5].judged, TS_JUDGED_NOISE);
    if (!strstr(judged.judgement.verdicts[5].why, said))
        fail_msg("it says: %s", judged.judgement.verdicts[5].why);
    judged_end(&judged);
}

static void test_slots_that_are_counted_otherwise(void **state)
{
    (void)state;
    judge_slots(false, "1 token has the same experts in another order, on a near tie");
    judge_slots(true, "have the same experts, in slots that are counted in another order");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_order_that_was_captured),
        cmocka_unit_test(test_experts_behind_tokens_that_carry_an_error),
        cmocka_unit_test(test_rows_that_err_too_much_to_be_found),
        cmocka_unit_test(test_rows_that_near_ties_explain),
        cmocka_unit_test(test_a_norm_behind_gathered_rows),
        cmocka_unit_test(test_rows_of_experts_are_no_tokens),
        cmocka_unit_test(test_experts_that_the_order_tells),
        cmocka_unit_test(test_slots_that_are_counted_otherwise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
