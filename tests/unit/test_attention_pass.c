/* Attention of many tokens at once, in f32: the kernel against plain loops in double, chains against those that are
 * done one token at a time, and a claim about a long sequence that is put to all of it. */
#include "diagnose/attention_kernel.h"
#include "diagnose/attention_long.h"
#include "diagnose/attention_pass.h"
#include "diagnose/attention_tables.h"
#include "hidden_rows.h"

/* The tables this machine can run, the one that rounds every product first. */
static size_t levels(const struct ts_attend_kernels *out[4])
{
    size_t count = 0;
    out[count++] = &ts_attend_kernels_portable;
#if defined(__x86_64__)
    if (ts_simd_level() >= TS_SIMD_AVX2)
        out[count++] = &ts_attend_kernels_avx2;
    if (ts_simd_level() >= TS_SIMD_AVX512)
        out[count++] = &ts_attend_kernels_avx512;
    if (ts_simd_level() >= TS_SIMD_AVX512BF16)
        out[count++] = &ts_attend_kernels_avx512bf16;
#elif defined(__aarch64__)
    if (ts_simd_level() == TS_SIMD_NEON)
        out[count++] = &ts_attend_kernels_neon;
#endif
    return count;
}

enum { KEYS = 700, ROOM = 768, MOST = 128, QUERIES = 25 };

struct head {
    float keys[ROOM * MOST], values[ROOM * MOST], queries[QUERIES * MOST];
    float scores[QUERIES * TS_ATTEND_BLOCK], piece[QUERIES * MOST];
    double out[QUERIES * MOST], first[QUERIES * MOST], alone[MOST];
    struct ts_attend_query each[QUERIES];
    struct ts_attend_head head;
};

static void make_head(struct head *it, size_t size, float cap, bool plain, double sharp)
{
    size_t padded = (size + TS_ATTEND_WHOLE - 1) / TS_ATTEND_WHOLE * TS_ATTEND_WHOLE;
    memset(it, 0, sizeof *it);
    for (size_t key = 0; key < KEYS; key++)
        for (size_t i = 0; i < size; i++) {
            it->keys[(key / TS_ATTEND_PANEL * size + i) * TS_ATTEND_PANEL + key % TS_ATTEND_PANEL] =
                (float)dice_number();
            it->values[key * padded + i] = (float)dice_number();
        }
    for (size_t i = 0; i < QUERIES * size; i++)
        it->queries[i] = (float)(sharp * dice_number());
    for (size_t row = 0; row < QUERIES; row++) { /* all keys, one, some between, around the borders of blocks */
        it->each[row].first = row < 2 ? 0 : row % 3 ? row * 27 : 256 - row % 2;
        it->each[row].end = row == 0 ? KEYS : row == 1 ? 1 : it->each[row].first + 1 + row * row % 43;
    }
    it->head = (struct ts_attend_head){it->keys, it->values, size, padded, cap, plain};
}

/* Largest distance from plain loops, of the size of the result. */
static double distance(const struct head *it, const double *out, double limit)
{
    size_t size = it->head.size, padded = it->head.padded;
    double worst = 0;
    for (size_t row = 0; row < QUERIES; row++) {
        const struct ts_attend_query *query = &it->each[row];
        double context[MOST] = {0}, sum = 0, wrong = 0, whole = 0;
        for (size_t key = query->first; key < query->end; key++) {
            double score = 0, weight;
            for (size_t i = 0; i < size; i++)
                score += (double)it->queries[row * size + i] *
                         (double)it->keys[(key / TS_ATTEND_PANEL * size + i) * TS_ATTEND_PANEL + key % TS_ATTEND_PANEL];
            score = it->head.cap > 0 ? (double)it->head.cap * tanh(score / (double)it->head.cap) : score;
            weight = it->head.plain ? score : exp(score - (double)query->largest);
            sum += weight;
            for (size_t i = 0; i < size; i++)
                context[i] += weight * (double)it->values[key * padded + i];
        }
        if (!it->head.plain)
            assert_true(fabs(sum - query->sum) < limit * sum);
        for (size_t i = 0; i < size; i++) {
            wrong += pow(out[row * padded + i] - context[i], 2);
            whole += context[i] * context[i];
        }
        worst = fmax(worst, sqrt(wrong / whole));
    }
    return worst;
}

static void test_kernel(void **state)
{
    static const size_t sizes[] = {16, 20, 64, 80, 128};
    static const struct {
        float cap;
        bool plain;
        double sharp;
    } ways[] = {{0, false, 1}, {0, false, 6}, {3, false, 2}, {0, true, 1}, {0, false, 100}};
    const struct ts_attend_kernels *tables[4];
    size_t count = levels(tables);
    struct head *it = malloc(sizeof *it);
    (void)state;
    assert_non_null(it);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            make_head(it, sizes[s], ways[w].cap, ways[w].plain, ways[w].sharp / sqrt((double)sizes[s]));
            for (size_t level = 0; level < count; level++) {
                size_t row = QUERIES - 1, padded = it->head.padded;
                double limit = 1e-6 + 1e-6 * ways[w].sharp; /* scores of that size are rounded */
                tables[level]->attend(&it->head, it->queries, it->each, QUERIES, it->scores, it->piece, it->out);
                assert_true(distance(it, it->out, limit) < limit);
                if (level > 1) /* all that fuse give the same bits */
                    assert_memory_equal(it->out, it->first, QUERIES * padded * sizeof *it->out);
                memcpy(it->first, it->out, QUERIES * padded * sizeof *it->out);
                tables[level]->attend(&it->head, it->queries + row * sizes[s], it->each + row, 1, it->scores, it->piece,
                                      it->alone);
                assert_memory_equal(it->alone, it->out + row * padded, padded * sizeof *it->out);
            }
        }
    free(it);
}

enum { TOKENS = 600, HEADS = 4, SERVED = 2, SIZE = 20, WIDTH = HEADS * SIZE, NARROW = SERVED * SIZE };

struct operands {
    struct trace trace;
    struct ts_diagnosis diagnosis;
    struct ts_case_state *open;
    struct ts_chain chain;
    float q[TOKENS * WIDTH], k[TOKENS * NARROW], v[TOKENS * NARROW], right[TOKENS * WIDTH], wrong[TOKENS * WIDTH];
};

static void open_trace(struct operands *it)
{
    struct ts_operand *operands[3] = {&it->chain.q, &it->chain.k, &it->chain.v};
    size_t index;
    trace_start(&it->trace);
    trace_add(&it->trace, "layer_0_attn_q", it->q, it->q, SHAPE(TOKENS, HEADS, SIZE));
    trace_add(&it->trace, "layer_0_attn_k", it->k, it->k, SHAPE(TOKENS, SERVED, SIZE));
    trace_add(&it->trace, "layer_0_attn_v", it->v, it->v, SHAPE(TOKENS, SERVED, SIZE));
    index = trace_add(&it->trace, "layer_0_attn_context", it->right, it->wrong, SHAPE(TOKENS, HEADS, SIZE));
    it->open = open_hidden(&it->trace, index, &it->diagnosis);
    it->chain = ts_chain_plain(HEADS, SERVED, SIZE);
    for (size_t i = 0; i < 3; i++)
        *operands[i] = (struct ts_operand){ts_scene_actor(it->open->face.scene, i), 0, i ? NARROW : WIDTH};
}

/* The same numbers in a trace of their own. */
static struct operands *open_operands_of(const struct operands *made)
{
    struct operands *it = malloc(sizeof *it);
    assert_non_null(it);
    *it = *made;
    open_trace(it);
    return it;
}

static struct operands *open_operands(bool broken)
{
    struct operands *it = calloc(1, sizeof *it);
    assert_non_null(it);
    for (size_t i = 0; i < TOKENS * WIDTH; i++) {
        it->q[i] = (float)(3 * dice_number());
        it->right[i] = (float)dice_number();
        it->wrong[i] = (float)dice_number();
    }
    for (size_t i = 0; i < TOKENS * NARROW; i++) {
        it->k[i] = (float)(3 * dice_number());
        it->v[i] = (float)dice_number();
    }
    if (broken)
        it->v[5] = NAN;
    open_trace(it);
    return it;
}

static void close_operands(struct operands *it)
{
    close_hidden(it->open, &it->diagnosis);
    trace_end(&it->trace);
    free(it);
}

/* Some tokens, in runs and alone, with both ends. */
static size_t some_tokens(size_t *tokens)
{
    size_t count = 0;
    for (size_t token = 0; token < TOKENS; token++)
        if (token < 9 || token % 37 == 0 || (token > 300 && token < 340) || token + 5 > TOKENS)
            tokens[count++] = token;
    assert_true(count <= TS_PASS_ROWS);
    return count;
}

/* A pass gives what is given one token at a time, or its products with the directions. */
static void expect_pass(struct operands *it, const struct ts_chain *chain, bool projected)
{
    struct ts_long slow;
    struct ts_pass pass;
    size_t tokens[TS_PASS_ROWS], count = some_tokens(tokens), heads = 0;
    double wrong = 0, whole = 0;
    assert_true(ts_pass_reaches(chain));
    assert_true(ts_long_open(&slow, &it->open->face, SIZE));
    assert_true(ts_pass_open(&pass, &it->open->face, chain, true, projected));
    for (size_t served = 0; served < SERVED; served += pass.held) {
        const double *given;
        assert_true(ts_pass_hold(&pass, 0, served));
        given = ts_pass_run(&pass, 0, 0, pass.count, tokens, count);
        assert_non_null(given);
        for (size_t i = 0; i < pass.count * count; i++, heads += i % count == 0) {
            const double *own = given + i * pass.padded;
            double context[SIZE];
            assert_true(ts_long_context(&slow, chain, true, pass.heads[i / count], tokens[i % count], context));
            for (size_t k = 0; k < pass.numbers; k++) {
                double expected = projected ? 0 : context[k];
                for (size_t n = 0; n < SIZE && projected; n++)
                    expected +=
                        context[n] * ts_pass_directions(&pass, pass.heads[i / count])[n * TS_PASS_DIRECTIONS + k];
                wrong += (own[k] - expected) * (own[k] - expected);
                whole += expected * expected;
            }
        }
    }
    assert_int_equal(heads, HEADS);
    assert_true(whole > 0 && sqrt(wrong / whole) < 3e-6);
    ts_pass_close(&pass);
    ts_long_close(&slow);
}

static void test_chains(void **state)
{
    struct operands *it = open_operands(false);
    struct ts_chain chains[24];
    size_t count = 0;
    (void)state;
    for (size_t i = 0; i < 24; i++) {
        chains[i] = it->chain;
        if (i > 9) { /* turned on the way */
            chains[i].base = 1e4;
            chains[i].group = i % 2 ? SIZE : SIZE / 2;
            chains[i].interleaved = i % 3 == 0;
        }
    }
    chains[count++].scale *= 3;
    chains[count++].shift = 1;
    chains[count++].shift = -2; /* the first two see nothing */
    chains[count++].shift = TOKENS;
    chains[count++].window = 70;
    chains[count++].cap = 2;
    chains[count++].weighing = TS_WEIGH_LOWERED;
    chains[count++].weighing = TS_WEIGH_EXPONENTS;
    chains[count++].weighing = TS_WEIGH_SCORES;
    chains[count++].tiled = true;
    chains[count].copied = 1;
    chains[count++].copied_from = 0;
    chains[count].stale = 333;
    chains[count++].stale_from = 17;
    chains[count++].moved[TS_ROLE_KEY] = 3;
    chains[count++].moved[TS_ROLE_VALUE] = -3;
    chains[count++].splits[TS_ROLE_QUERY] = TS_SPLIT_NUMBERS;
    chains[count++].splits[TS_ROLE_KEY] = TS_SPLIT_NUMBERS;
    chains[count++].splits[TS_ROLE_VALUE] = TS_SPLIT_NUMBERS;
    chains[count++].splits[TS_ROLE_QUERY] = TS_SPLIT_UNTURNED;
    chains[count].splits[TS_ROLE_KEY] = TS_SPLIT_UNTURNED;
    chains[count++].splits[TS_ROLE_VALUE] = TS_SPLIT_UNTURNED;
    chains[count++].late = 4;
    chains[count++].k_from = 2;
    chains[count++].q_turns = 2;
    chains[count].roles[TS_ROLE_KEY] = TS_ROLE_VALUE;
    chains[count++].roles[TS_ROLE_VALUE] = TS_ROLE_KEY;
    chains[count].turned_before = true;
    chains[count].roles[TS_ROLE_KEY] = TS_ROLE_VALUE;
    chains[count++].roles[TS_ROLE_VALUE] = TS_ROLE_KEY;
    assert_int_equal(count, 24);
    for (size_t i = 0; i < count; i++)
        expect_pass(it, &chains[i], i % 4 == 1);
    close_operands(it);
}

/* A value that is no number would be no number in the rows of its block that do not see it. */
static void test_broken(void **state)
{
    struct operands *it = open_operands(true);
    struct ts_pass pass;
    double *out = ts_case_scratch(&it->open->face);
    (void)state;
    assert_true(ts_pass_open(&pass, &it->open->face, &it->chain, true, false));
    assert_false(ts_pass_hold(&pass, 0, 0));
    ts_pass_close(&pass);
    it->chain.window = 40;
    assert_true(out && ts_pass_rows(&it->open->face, &it->chain, true, out));
    assert_true(isnan(out[5]) && isfinite(out[it->open->face.total - 1]));
    close_operands(it);
}

/* The candidate's scores are three times as large, but for tokens that hold something else. */
static void fill_contexts(struct operands *it, size_t from, size_t end)
{
    struct ts_long slow;
    assert_true(ts_long_open(&slow, &it->open->face, SIZE));
    for (size_t i = 0; i < TOKENS * HEADS; i++) {
        struct ts_chain chain = it->chain;
        double right[SIZE], wrong[SIZE];
        assert_true(ts_long_context(&slow, &chain, true, i % HEADS, i / HEADS, right));
        chain.scale *= 3;
        assert_true(ts_long_context(&slow, &chain, true, i % HEADS, i / HEADS, wrong));
        for (size_t k = 0; k < SIZE; k++) {
            it->right[i * SIZE + k] = (float)right[k];
            it->wrong[i * SIZE + k] =
                (float)(i / HEADS >= from && i / HEADS < end ? 2 * right[k] - wrong[k] : wrong[k]);
        }
    }
    ts_long_close(&slow);
}

/* The claim as it is proved when rows are said to cost so much. */
static struct ts_cause_proof prove_dear(const struct operands *made, double work, double work_few, const char *words)
{
    struct operands *it = open_operands_of(made);
    struct ts_chain chain = it->chain;
    double *out = ts_case_scratch(&it->open->face);
    struct ts_cause_proof proof;
    chain.scale *= 3;
    assert_true(out && ts_pass_rows(&it->open->face, &chain, true, out));
    ts_give_chain(&it->open->face, &chain);
    it->open->next.work = work;
    it->open->next.work_few = work_few;
    assert_true(ts_propose(&it->open->face, "softmax", out, 0, "nothing", "three times") > 0.5);
    ts_case_prove(it->open);
    assert_int_equal(it->open->book->count, 1);
    if (!strstr(it->open->book->entries[0].cause.summary, words))
        fail_msg("%s", it->open->book->entries[0].cause.summary);
    proof = it->open->book->entries[0].cause.proof;
    close_operands(it);
    return proof;
}

/* Products with a few directions tell what whole contexts do; where even they are too dear, some tokens are tried. The
 * number of threads changes nothing. */
static void test_few(void **state)
{
    static const char words[] = "checked on all 600 tokens; it does not hold in 3 of them, first in token 450";
    static const char directed[] =
        "checked on all 600 tokens (by random projections); it does not hold in 3 of them, first in token 450";
    struct operands *made = open_operands(false);
    struct ts_cause_proof whole, few, again, some;
    (void)state;
    fill_contexts(made, 450, 453);
    whole = prove_dear(made, 1e6, 1e6, words);
    few = prove_dear(made, 1e12, 1e6, directed);
    assert_true(whole.left > 0 && fabs(few.left / whole.left - 1) < 0.1 && few.left != whole.left);
    assert_true(few.error == whole.error && few.rows == TOKENS && few.of_rows == TOKENS);
    assert_int_equal(setenv("TSLEUTH_THREADS", "3", 1), 0);
    again = prove_dear(made, 1e12, 1e6, directed);
    assert_true(again.left == few.left && again.error == few.error);
    unsetenv("TSLEUTH_THREADS");
    some = prove_dear(made, 1e12, 1.2e10, "on 288 of 600 tokens");
    assert_true(some.rows == 288 && some.of_rows == TOKENS);
    close_operands(made);
}

/* Every key weighs the same, so that contexts are means, which long sequences are quickly made of. The reference has a
 * window; the candidate none, but for a few tokens. */
enum { LONG = 4096, LONG_HEADS = 8, LONG_SIZE = 128, LONG_WIDTH = LONG_HEADS * LONG_SIZE, WINDOW = 256 };

static void test_long(void **state)
{
    enum { SPARED = 1990, SPARED_END = 2030 };
    float *q = calloc(LONG * LONG_WIDTH, sizeof *q), *kv = calloc(2 * LONG * LONG_SIZE, sizeof *kv);
    float *right = malloc(LONG * LONG_WIDTH * sizeof *right), *wrong = malloc(LONG * LONG_WIDTH * sizeof *wrong);
    double sum[LONG_SIZE] = {0}, near[LONG_SIZE] = {0};
    const struct ts_cause *cause;
    struct trace trace;
    size_t index;
    (void)state;
    assert_true(q && kv && right && wrong);
    trace_start(&trace);
    for (size_t i = 0; i < 2 * LONG * LONG_SIZE; i++)
        kv[i] = (float)dice_number();
    for (size_t row = 0; row < LONG; row++)
        for (size_t i = 0; i < LONG_SIZE; i++) {
            const float *value = kv + (LONG + row) * LONG_SIZE + i;
            sum[i] += (double)*value;
            near[i] += (double)*value - (row < WINDOW ? 0 : (double)*(value - WINDOW * LONG_SIZE));
            for (size_t head = 0; head < LONG_HEADS; head++) {
                size_t at = row * LONG_WIDTH + head * LONG_SIZE + i;
                right[at] = (float)(near[i] / (double)(row < WINDOW ? row + 1 : WINDOW));
                wrong[at] = row >= SPARED && row < SPARED_END ? right[at] : (float)(sum[i] / (double)(row + 1));
            }
        }
    trace_add(&trace, "layer_0_attn_q", q, q, SHAPE(LONG, LONG_HEADS, LONG_SIZE));
    trace_add(&trace, "layer_0_attn_k", kv, kv, SHAPE(LONG, 1, LONG_SIZE));
    trace_add(&trace, "layer_0_attn_v", kv + LONG * LONG_SIZE, kv + LONG * LONG_SIZE, SHAPE(LONG, 1, LONG_SIZE));
    index = trace_add(&trace, "layer_0_attn_context", right, wrong, SHAPE(LONG, LONG_HEADS, LONG_SIZE));
    trace_diagnose(&trace, index);
    assert_first(&trace, "mask", "lacks the sliding window of 256 tokens");
    cause = &trace.diagnosis.causes[0];
    assert_non_null(strstr(cause->summary, "all 4096 tokens"));
    assert_non_null(strstr(cause->summary, "it does not hold in 40 of them, first in token 1990"));
    assert_true(cause->proof.rows == LONG && cause->proof.of_rows == LONG);
    trace_end(&trace);
    free(q);
    free(kv);
    free(right);
    free(wrong);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernel), cmocka_unit_test(test_chains), cmocka_unit_test(test_broken),
        cmocka_unit_test(test_few),    cmocka_unit_test(test_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
