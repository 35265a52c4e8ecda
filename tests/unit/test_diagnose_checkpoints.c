/* Weights of which many differ at once: each is explained by itself, for nothing comes into a weight from the others.
 */
#include "made_trace.h"

enum { HIDDEN = 128, ROWS = 64, LAYERS = 4 };

struct checkpoint {
    struct trace trace;
    float norm[2][LAYERS][HIDDEN], matrix[2][LAYERS][ROWS * HIDDEN];
};

static struct checkpoint *checkpoint_new(double mean)
{
    struct checkpoint *made = calloc(1, sizeof *made);
    assert_non_null(made);
    trace_start(&made->trace);
    for (int layer = 0; layer < LAYERS; layer++) {
        for (size_t i = 0; i < HIDDEN; i++)
            made->norm[0][layer][i] = (float)(mean + 0.3 * dice_number());
        for (size_t i = 0; i < (size_t)ROWS * HIDDEN; i++)
            made->matrix[0][layer][i] = (float)(0.1 * (dice_number() + dice_number()));
    }
    memcpy(made->norm[1], made->norm[0], sizeof made->norm[0]);
    memcpy(made->matrix[1], made->matrix[0], sizeof made->matrix[0]);
    return made;
}

/* Diagnoses the norm of layer 1 or, when asked to, the matrix. */
static void checkpoint_diagnose(struct checkpoint *made, bool matrix)
{
    size_t index = 0;
    for (int layer = 0; layer < LAYERS; layer++) {
        size_t norm = trace_add(&made->trace, made_name("model.layers.%d.input_layernorm.weight", layer),
                                made->norm[0][layer], made->norm[1][layer], SHAPE(HIDDEN));
        size_t other = trace_add(&made->trace, made_name("model.layers.%d.self_attn.q_proj.weight", layer),
                                 made->matrix[0][layer], made->matrix[1][layer], SHAPE(ROWS, HIDDEN));
        index = layer == 1 ? matrix ? other : norm : index;
    }
    trace_diagnose(&made->trace, index);
}

static void checkpoint_end(struct checkpoint *made)
{
    trace_end(&made->trace);
    free(made);
}

/* A file that was converted twice, or not at all: all norms are off by one, which is a third of what they are. */
static void test_one_is_taken_off_all_norms(void **state)
{
    struct checkpoint *made = checkpoint_new(2.6);
    (void)state;
    for (int layer = 0; layer < LAYERS; layer++)
        for (size_t i = 0; i < HIDDEN; i++)
            made->norm[1][layer][i] -= 1;
    checkpoint_diagnose(made, false);
    assert_first(&made->trace, "offset", "every element is off by -1");
    assert_false(made->trace.diagnosis.causes[0].tied);
    checkpoint_end(made);
}

static void test_all_matrices_are_scaled(void **state)
{
    struct checkpoint *made = checkpoint_new(1);
    (void)state;
    for (int layer = 0; layer < LAYERS; layer++)
        for (size_t i = 0; i < (size_t)ROWS * HIDDEN; i++)
            made->matrix[1][layer][i] *= 0.75F;
    checkpoint_diagnose(made, true);
    assert_first(&made->trace, "scaled", "every element is 0.75 times");
    checkpoint_end(made);
}

/* Two layers changed places: their norms are much alike, and are each other's all the same. */
static void test_layers_changed_places(void **state)
{
    struct checkpoint *made = checkpoint_new(1);
    (void)state;
    memcpy(made->norm[1][1], made->norm[0][2], sizeof made->norm[0][2]);
    memcpy(made->norm[1][2], made->norm[0][1], sizeof made->norm[0][1]);
    memcpy(made->matrix[1][1], made->matrix[0][2], sizeof made->matrix[0][2]);
    memcpy(made->matrix[1][2], made->matrix[0][1], sizeof made->matrix[0][1]);
    checkpoint_diagnose(made, false);
    assert_first(&made->trace, "swapped-with", "model.layers.2.input_layernorm.weight");
    checkpoint_end(made);
}

static void train(float *values, size_t count, double size)
{
    for (size_t i = 0; i < count; i++)
        values[i] += (float)(size * (dice_number() + dice_number() + dice_number()));
}

/* Training moves everything a little, and the largest step of each tensor is no bug. */
static void test_training_is_no_cause(void **state)
{
    static const double sizes[] = {0.003, 0.03, 0.1};
    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int matrix = 0; matrix < 2; matrix++) {
            struct checkpoint *made = checkpoint_new(1);
            for (int layer = 0; layer < LAYERS; layer++) {
                train(made->norm[1][layer], HIDDEN, sizes[k]);
                train(made->matrix[1][layer], (size_t)ROWS * HIDDEN, 0.1 * sizes[k]);
            }
            checkpoint_diagnose(made, matrix);
            assert_silent(&made->trace);
            assert_null(strstr(made->trace.diagnosis.strongest, "what comes in"));
            checkpoint_end(made);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_is_taken_off_all_norms),
        cmocka_unit_test(test_all_matrices_are_scaled),
        cmocka_unit_test(test_layers_changed_places),
        cmocka_unit_test(test_training_is_no_cause),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
