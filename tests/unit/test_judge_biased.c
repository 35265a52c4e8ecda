/* The judge where a bias that was not captured ranks the experts of a router, and shows in their order alone. */
#include "judged_trace.h"

enum { TOKENS = 24, WIDTH = 32, CHOSEN = 2, EXPERTS = 8, ODD = 6 };

static void add_shaken(struct trace *trace, const char *name, double error)
{
    float *a = made_values(TOKENS * WIDTH), b[TOKENS * WIDTH];
    shake(a, b, TOKENS * WIDTH, error);
    trace_add(trace, name, a, b, SHAPE(TOKENS, WIDTH));
    free(a);
}

enum order { RANKED, BY_LOGITS };
enum wrong { NOTHING, ANOTHER_EXPERT };

/* Each token takes expert row and the next one, which are the largest logits. Where the second one is expert 0 it is as
 * good as tied with the first, and its bias puts it in front, unless the order is that of the logits. In one token of
 * the candidate the bias takes expert 0 that the logits put third; `wrong`: another token takes what nothing tells. */
static void judge_bias(enum order order, enum wrong wrong, size_t expected)
{
    struct judged judged;
    float *spread = made_values(TOKENS * EXPERTS), own[2][TOKENS * EXPERTS], gates[2][TOKENS * CHOSEN];
    int64_t chosen[2][TOKENS * CHOSEN];
    trace_start(&judged.trace);
    for (int i = 0; i < 4; i++)
        add_shaken(&judged.trace, made_name("layers.0.attn_%d", i), 1e-2);
    for (size_t i = 0; i < TOKENS * EXPERTS; i++)
        own[0][i] = own[1][i] = -1 + 0.2f * spread[i];
    for (size_t row = 0; row < TOKENS; row++)
        for (int side = 0; side < 2; side++) {
            float *logits = own[side] + row * EXPERTS;
            const bool tied = (row + 1) % EXPERTS == 0;
            logits[row % EXPERTS] = 1.5f;
            logits[(row + 1) % EXPERTS] = tied ? 1.49f : 0.5f;
            chosen[side][row * CHOSEN] = (int64_t)(row % EXPERTS);
            chosen[side][row * CHOSEN + 1] = (int64_t)((row + 1) % EXPERTS);
            if (tied && order == RANKED) {
                chosen[side][row * CHOSEN] = 0;
                chosen[side][row * CHOSEN + 1] = (int64_t)(row % EXPERTS);
            }
            if (row == ODD) {
                logits[0] = side ? 0.3f : 0.25f;
                logits[ODD + 1] = side ? 0.47f : 0.5f;
                chosen[side][row * CHOSEN + 1] = side ? 0 : ODD + 1;
            }
            if (row == ODD + 4 && side && wrong == ANOTHER_EXPERT) {
                logits[(row + 4) % EXPERTS] = own[0][row * EXPERTS + (row + 4) % EXPERTS] = -3;
                chosen[side][row * CHOSEN + 1] = (int64_t)((row + 4) % EXPERTS);
            }
        }
    for (int side = 0; side < 2; side++)
        for (size_t row = 0; row < TOKENS; row++) {
            double sum = 0, gate[CHOSEN];
            for (size_t k = 0; k < CHOSEN; k++) {
                gate[k] = 1 / (1 + exp(-(double)own[side][row * EXPERTS + (size_t)chosen[side][row * CHOSEN + k]]));
                sum += gate[k];
            }
            for (size_t k = 0; k < CHOSEN; k++)
                gates[side][row * CHOSEN + k] = (float)(2.5 * gate[k] / sum);
        }
    trace_add(&judged.trace, "layers.0.mlp.gate", own[0], own[1], SHAPE(TOKENS, EXPERTS));
    trace_add(&judged.trace, "layers.0.mlp.gate_weights", gates[0], gates[1], SHAPE(TOKENS, CHOSEN));
    trace_add_integers(&judged.trace, "layers.0.mlp.chosen", chosen[0], chosen[1], TOKENS, CHOSEN);
    free(spread);
    expect_first(&judged, expected);
}

static void test_order_tells_of_a_bias(void **state)
{
    (void)state;
    judge_bias(RANKED, NOTHING, SIZE_MAX);
    judge_bias(RANKED, ANOTHER_EXPERT, 5);
    judge_bias(BY_LOGITS, NOTHING, 5); /* nothing tells of a bias, and 24 tokens would */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order_tells_of_a_bias)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
