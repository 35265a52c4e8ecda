/* Tensors that hold more than one thing, as latent attention has them: norms, rotations and contexts of a part are
 * replayed as if the part had been captured by itself. */
#include "judged_trace.h"

enum {
    TOKENS = 9,
    HEADS = 2,
    SIZE = 8,   /* of a key and of a value */
    TURN = 4,   /* numbers behind a key that turn */
    LATENT = 16 /* what the keys and values of all heads come from */
};
enum { LATENT_INPUT, QUERIES, NORM, KEYS, TURNED_QUERY, TURNED_KEY, PROBS, CONTEXT, STEPS };

static void turn(const float *from, size_t stride, size_t place, size_t parts, double offset, float *out)
{
    for (size_t token = 0; token < TOKENS; token++)
        for (size_t part = 0; part < parts; part++)
            for (size_t i = 0; i < TURN / 2; i++) {
                const float *x = from + (token * parts + part) * stride + place;
                float *to = out + (token * parts + part) * TURN;
                const double angle = (double)token * (i ? 0.1 : 1) + offset;
                to[i] = (float)((double)x[i] * cos(angle) - (double)x[i + TURN / 2] * sin(angle));
                to[i + TURN / 2] = (float)((double)x[i] * sin(angle) + (double)x[i + TURN / 2] * cos(angle));
            }
}

/* `wrong`: the step in which the candidate does something else; STEPS: none. */
static void judge_latent(size_t wrong)
{
    static const float weights[4] = {1, 0.5f, 1.5f, 0.7f};
    struct judged judged;
    float *wide = made_values(TOKENS * (LATENT + TURN)), *queries = made_values(TOKENS * HEADS * (SIZE + TURN));
    float *keys = made_values(TOKENS * HEADS * 2 * SIZE), *scores = made_values(TOKENS * HEADS * TOKENS);
    float inputs[3][2][TOKENS * HEADS * 2 * SIZE], norm[2][TOKENS * LATENT], turned[2][TOKENS * HEADS * TURN];
    float one[2][TOKENS * TURN], probs[TOKENS * HEADS * TOKENS], context[2][TOKENS * HEADS * SIZE];
    const float *given[3] = {wide, queries, keys};
    const size_t counts[3] = {TOKENS * (LATENT + TURN), TOKENS * HEADS * (SIZE + TURN), TOKENS * HEADS * 2 * SIZE};
    for (int i = 0; i < 3; i++) {
        memcpy(inputs[i][0], given[i], counts[i] * sizeof(float));
        shake(given[i], inputs[i][1], counts[i], 5e-3);
    }
    for (size_t row = 0; row < TOKENS * HEADS; row++) {
        double sum = 0;
        for (size_t key = 0; key < TOKENS; key++)
            sum += key <= row / HEADS ? exp(2 * (double)scores[row * TOKENS + key]) : 0;
        for (size_t key = 0; key < TOKENS; key++)
            probs[row * TOKENS + key] =
                key <= row / HEADS ? (float)(exp(2 * (double)scores[row * TOKENS + key]) / sum) : 0;
    }
    for (int side = 0; side < 2; side++) {
        for (size_t token = 0; token < TOKENS; token++) {
            const float *x = inputs[0][side] + token * (LATENT + TURN);
            double square = 0;
            for (size_t i = 0; i < (wrong == NORM && side ? LATENT + TURN : LATENT); i++)
                square += (double)x[i] * (double)x[i];
            for (size_t i = 0; i < LATENT; i++)
                norm[side][token * LATENT + i] =
                    (float)((double)x[i] / sqrt(square / LATENT + 1e-6) * (double)weights[i % 4]);
        }
        turn(inputs[1][side], SIZE + TURN, SIZE, HEADS, wrong == TURNED_QUERY && side ? 0.1 : 0, turned[side]);
        turn(inputs[0][side], LATENT + TURN, LATENT, 1, wrong == TURNED_KEY && side ? 0.1 : 0, one[side]);
        for (size_t at = 0; at < TOKENS * HEADS * SIZE; at++) {
            const size_t row = at / SIZE, head = row % HEADS;
            double sum = 0;
            for (size_t key = 0; key < TOKENS; key++)
                sum += (double)probs[row * TOKENS + key] *
                       (double)inputs[2][side][(key * HEADS + head) * 2 * SIZE +
                                               (wrong == CONTEXT && side && head ? 0 : SIZE) + at % SIZE];
            context[side][at] = (float)sum;
        }
    }
    trace_start(&judged.trace);
    trace_add(&judged.trace, "layers.0.attn_kv_a_proj", inputs[0][0], inputs[0][1], SHAPE(TOKENS, LATENT + TURN));
    trace_add(&judged.trace, "layers.0.attn_q_b_proj", inputs[1][0], inputs[1][1],
              SHAPE(TOKENS, HEADS * (SIZE + TURN)));
    trace_add(&judged.trace, "layers.0.attn_kv_a_norm", norm[0], norm[1], SHAPE(TOKENS, LATENT));
    trace_add(&judged.trace, "layers.0.attn_kv_b_proj", inputs[2][0], inputs[2][1], SHAPE(TOKENS, HEADS * 2 * SIZE));
    trace_add(&judged.trace, "layers.0.attn_q_pe_rope", turned[0], turned[1], SHAPE(TOKENS, HEADS, TURN));
    trace_add(&judged.trace, "layers.0.attn_k_pe_rope", one[0], one[1], SHAPE(TOKENS, 1, TURN));
    trace_add(&judged.trace, "layers.0.attn_probs", probs, probs, SHAPE(TOKENS, HEADS, TOKENS));
    trace_add(&judged.trace, "layers.0.attn_context", context[0], context[1], SHAPE(TOKENS, HEADS, SIZE));
    judged_run(&judged);
    expect_same_text(judged.judgement.verdicts[NORM].operation,
                     "of each 20 numbers those from 0 on: RMS norm(layers.0.attn_kv_a_proj)");
    expect_same_text(judged.judgement.verdicts[TURNED_QUERY].operation,
                     "of each 12 numbers those from 8 on: rotary(layers.0.attn_q_b_proj), half-split pairs");
    expect_same_text(judged.judgement.verdicts[TURNED_KEY].operation,
                     "of each 20 numbers those from 16 on: rotary(layers.0.attn_kv_a_proj), half-split pairs");
    expect_same_text(judged.judgement.verdicts[CONTEXT].operation,
                     "of each 16 numbers those from 8 on: layers.0.attn_probs x layers.0.attn_kv_b_proj");
    ts_judgement_release(&judged.judgement);
    free(wide);
    free(queries);
    free(keys);
    free(scores);
    expect_first(&judged, wrong == STEPS ? SIZE_MAX : wrong);
}

static void test_parts_of_latent_attention(void **state)
{
    (void)state;
    judge_latent(STEPS);
    judge_latent(NORM);
    judge_latent(TURNED_QUERY);
    judge_latent(TURNED_KEY);
    judge_latent(CONTEXT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_of_latent_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
