/* Attention of which queries and keys were captured, apart or in one fused projection, and either the probabilities,
 * the scores, or nothing but the output projection: the rotary embedding and the rest between them were not. */
#include "made_trace.h"

enum { TOKENS = 14, HEADS = 4, SIZE = 16, WIDTH = HEADS * SIZE };

enum end { SCORES, PROBABILITIES, OUTPUT, OUTPUT_ALONE };

struct way {
    size_t served;     /* key heads */
    double base;       /* of the rotary embedding, 0: none */
    double key_offset; /* of its positions */
    double factor;     /* of the scores */
    double cap;
    int q, k; /* which third of the fused projection */
    bool fused, by_head, all_visible, over_heads, mask_last, tiled;
    long window;
};

static const struct way plain = {.served = HEADS, .factor = 0.25, .k = 1};

/* Where number i of a head stands in a row of the fused projection. */
static size_t place_of(const struct way *way, int part, size_t head, size_t i)
{
    return way->by_head ? (head * 3 + (size_t)part) * SIZE + i : (size_t)part * WIDTH + head * SIZE + i;
}

static void turned_head(const struct way *way, const float *from, int part, size_t row, size_t head, double *out)
{
    size_t width = way->fused ? 3 * WIDTH : part == way->q ? WIDTH : way->served * SIZE;
    double position = (double)row + (part == way->k ? way->key_offset : 0);
    for (size_t i = 0; i < SIZE; i++)
        out[i] = (double)from[row * width + (way->fused ? place_of(way, part, head, i) : head * SIZE + i)];
    for (size_t i = 0; i < SIZE / 2 && way->base > 0; i++) {
        double angle = position * pow(way->base, -2.0 * (double)i / SIZE), x = out[i], y = out[i + SIZE / 2];
        out[i] = x * cos(angle) - y * sin(angle);
        out[i + SIZE / 2] = x * sin(angle) + y * cos(angle);
    }
}

static bool is_seen(const struct way *way, size_t row, size_t key)
{
    return way->all_visible || (key <= row && (!way->window || row - key < (size_t)way->window));
}

/* [HEADS, TOKENS, TOKENS] */
static void attend(const struct way *way, const float *queries, const float *keys, bool scores, float *out)
{
    static double all[HEADS][TOKENS][TOKENS];
    for (size_t head = 0; head < HEADS; head++)
        for (size_t row = 0; row < TOKENS; row++)
            for (size_t key = 0; key < TOKENS; key++) {
                double q[SIZE], k[SIZE], sum = 0;
                turned_head(way, queries, way->q, row, head, q);
                turned_head(way, keys, way->k, key, way->tiled ? head % way->served : head * way->served / HEADS, k);
                for (size_t i = 0; i < SIZE; i++)
                    sum += way->factor * q[i] * k[i];
                all[head][row][key] = way->cap > 0 ? way->cap * tanh(sum / way->cap) : sum;
            }
    for (size_t head = 0; head < HEADS; head++)
        for (size_t row = 0; row < TOKENS; row++)
            for (size_t key = 0; key < TOKENS; key++) {
                double sum = 0;
                for (size_t i = 0; i < (way->over_heads ? (size_t)HEADS : (size_t)TOKENS); i++)
                    sum += way->over_heads                          ? exp(all[i][row][key])
                           : way->mask_last || is_seen(way, row, i) ? exp(all[head][row][i])
                                                                    : 0;
                out[(head * TOKENS + row) * TOKENS + key] =
                    (float)(scores                   ? all[head][row][key]
                            : is_seen(way, row, key) ? exp(all[head][row][key]) / sum
                                                     : 0);
            }
}

/* The heads' contexts times an output weight. */
static void project(const float *weights, const float *values, size_t served, const float *weight, float *out)
{
    for (size_t row = 0; row < TOKENS; row++) {
        double context[WIDTH] = {0};
        for (size_t i = 0; i < WIDTH; i++)
            for (size_t key = 0; key < TOKENS; key++)
                context[i] += (double)weights[(i / SIZE * TOKENS + row) * TOKENS + key] *
                              (double)values[key * served * SIZE + i / SIZE * served / HEADS * SIZE + i % SIZE];
        for (size_t o = 0; o < WIDTH; o++) {
            double sum = 0;
            for (size_t i = 0; i < WIDTH; i++)
                sum += context[i] * (double)weight[o * WIDTH + i];
            out[row * WIDTH + o] = (float)sum;
        }
    }
}

/* Words: those that the first cause must hold; NULL: nothing may be said. */
static void expect(struct way right, struct way wrong, enum end end, double noise, const char *id, const char *words)
{
    struct trace trace;
    size_t keys_width = right.served * SIZE, total = HEADS * TOKENS * TOKENS, index;
    float *q = NULL, *k = NULL, *v = NULL, *weight, *a, *b, *out[2], *shaken[3];
    trace_start(&trace);
    q = made_values(TOKENS * 3 * WIDTH);
    k = made_values(TOKENS * WIDTH);
    v = made_values(TOKENS * WIDTH);
    weight = made_values(WIDTH * WIDTH);
    a = made_values(total);
    b = made_values(total);
    for (int side = 0; side < 2; side++)
        out[side] = made_values(TOKENS * WIDTH);
    for (int i = 0; i < 3; i++)
        shaken[i] = made_values(TOKENS * 3 * WIDTH);
    for (size_t i = 0; i < TOKENS * WIDTH && end == OUTPUT_ALONE; i++) /* what all tokens share */
        v[i] += i % 2 ? 2 : -2;
    shake(q, shaken[0], TOKENS * (right.fused ? 3 * WIDTH : WIDTH), noise);
    shake(k, shaken[1], TOKENS * keys_width, noise);
    shake(v, shaken[2], TOKENS * keys_width, noise);
    attend(&right, q, right.fused ? q : k, end == SCORES, a);
    attend(&wrong, shaken[0], right.fused ? shaken[0] : shaken[1], end == SCORES, b);
    if (end == OUTPUT_ALONE)
        trace_add(&trace, "model.layers.1.input_layernorm", q, shaken[0], SHAPE(TOKENS, WIDTH));
    else if (right.fused)
        trace_add(&trace, "transformer.h.1.attn.c_attn", q, shaken[0], SHAPE(TOKENS, 3 * WIDTH));
    else {
        trace_add(&trace, "model.layers.1.self_attn.q_proj", q, shaken[0], SHAPE(TOKENS, WIDTH));
        trace_add(&trace, "model.layers.1.self_attn.k_proj", k, shaken[1], SHAPE(TOKENS, keys_width));
        trace_add(&trace, "model.layers.1.self_attn.v_proj", v, shaken[2], SHAPE(TOKENS, keys_width));
    }
    if (end >= OUTPUT) {
        project(a, v, right.served, weight, out[0]);
        project(b, shaken[2], right.served, weight, out[1]);
        index = trace_add(&trace, "model.layers.1.self_attn.o_proj", out[0], out[1], SHAPE(TOKENS, WIDTH));
    } else {
        shake(b, b, total, noise);
        index = trace_add(&trace, right.fused ? "transformer.h.1.attn.probs" : "model.layers.1.self_attn.attn_probs", a,
                          b, SHAPE(HEADS, TOKENS, TOKENS));
    }
    trace_diagnose(&trace, index);
    if (id)
        assert_first(&trace, id, words);
    else
        assert_silent(&trace);
    trace_end(&trace);
    free(q);
    free(k);
    free(v);
    free(weight);
    free(a);
    free(b);
    for (int side = 0; side < 2; side++)
        free(out[side]);
    for (int i = 0; i < 3; i++)
        free(shaken[i]);
}

static const double noises[] = {1e-7, 2e-3};

/* A rotary embedding lies between queries, keys and probabilities. */
static void test_probabilities(void **state)
{
    struct way right = plain, wrong;
    (void)state;
    right.base = 1e4;
    right.served = 2;
    for (size_t n = 0; n < 2; n++) {
        expect(right, right, PROBABILITIES, noises[n], NULL, NULL);
        wrong = right;
        wrong.base = 5e5;
        expect(right, wrong, PROBABILITIES, noises[n], "rotation", "theta = 500000, the reference's theta = 10000");
        wrong = right;
        wrong.key_offset = 3;
        expect(right, wrong, PROBABILITIES, noises[n], "rotation", "keys are off by +3");
        wrong = right;
        wrong.factor = 1;
        expect(right, wrong, PROBABILITIES, noises[n], "softmax",
               "4 times the reference's, as they are without 1 / sqrt");
        wrong.factor = 0.25 * 0.6;
        expect(right, wrong, PROBABILITIES, noises[n], "softmax", "are 0.6 times");
        wrong = right;
        wrong.cap = 4;
        expect(right, wrong, PROBABILITIES, noises[n], "softmax", "softcap on the scores (4");
        wrong = right;
        wrong.window = 5;
        expect(right, wrong, PROBABILITIES, noises[n], "mask", "a sliding window of 5 tokens, the reference has none");
        expect(wrong, right, PROBABILITIES, noises[n], "mask", "lacks the sliding window of 5 tokens");
        wrong = right;
        wrong.mask_last = true;
        expect(right, wrong, PROBABILITIES, noises[n], "mask", "the mask after the softmax");
        wrong = right;
        wrong.over_heads = true;
        expect(right, wrong, PROBABILITIES, noises[n], "softmax", "over the heads instead of the keys");
        wrong = right;
        wrong.tiled = true;
        expect(right, wrong, PROBABILITIES, noises[n], "heads", "tiles the key heads instead of repeating each");
    }
}

/* Queries, keys and values are one tensor, under the name that GPT-2 has for it. */
static void test_fused(void **state)
{
    struct way right = plain, wrong;
    (void)state;
    right.fused = true;
    for (size_t n = 0; n < 2; n++)
        for (enum end end = SCORES; end <= PROBABILITIES; end++) {
            expect(right, right, end, noises[n], NULL, NULL);
            wrong = right;
            wrong.q = 1;
            wrong.k = 0;
            expect(right, wrong, end, noises[n], "swapped-with", "the candidate swaps queries and keys");
            wrong = right;
            wrong.k = 2;
            expect(right, wrong, end, noises[n], "wrong-input", "the candidate uses the values as keys");
            wrong = right;
            wrong.by_head = true;
            expect(right, wrong, end, noises[n], "permuted", "takes it apart as query, key and value of each head");
            expect(wrong, right, end, noises[n], "permuted", "the reference as query, key and value of each head");
        }
}

/* Of attention whose inside nobody has, how far tokens move tells numbers that where they move to does not. */
static void test_numbers_from_outside(void **state)
{
    struct way right = plain, wrong;
    (void)state;
    right.base = 1e4;
    for (size_t n = 0; n < 2; n++) {
        wrong = right;
        wrong.factor = 1;
        expect(right, wrong, OUTPUT, noises[n], "softmax", "are 4 times the reference's");
        wrong.factor = 0.0625;
        expect(right, wrong, OUTPUT, noises[n], "softmax", "are 0.25 times the reference's");
        wrong = right;
        wrong.base = 5e5;
        expect(right, wrong, OUTPUT, noises[n], "rotation", "theta = 500000, the reference's theta = 10000");
    }
    wrong = right;
    wrong.cap = 10;
    expect(right, wrong, OUTPUT, noises[0], "softmax", "a softcap on the scores (about 10)");
}

/* Without a mask attention is flatter, but so it is nowhere else: the last token agrees, as it would not with another
 * scale. */
static void test_flatter(void **state)
{
    struct way wrong = plain;
    const double factor = plain.factor;
    (void)state;
    for (size_t n = 0; n < 2; n++) {
        wrong = plain;
        wrong.all_visible = true;
        expect(plain, wrong, OUTPUT_ALONE, noises[n], "mask", "only the last token agrees");
        wrong = plain;
        wrong.factor = 0.25 * factor;
        expect(plain, wrong, OUTPUT_ALONE, noises[n], "softmax", NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_probabilities), cmocka_unit_test(test_fused),
                                       cmocka_unit_test(test_numbers_from_outside), cmocka_unit_test(test_flatter)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
