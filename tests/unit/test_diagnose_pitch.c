/* Layouts of flat memory in sequences of which a diagnosis holds some tokens, and in short ones: buffers read with
 * other axes, in reverse, with another row pitch, as another type. */
#include "made_trace.h"

enum { LONG = 300, SHORT = 12, HEADS = 4, SIZE = 12, WIDTH = HEADS * SIZE };

struct memory {
    struct trace trace;
    size_t tokens;
    float *x, *k, *right, *wrong;
};

static void start(struct memory *memory, size_t tokens)
{
    memory->tokens = tokens;
    trace_start(&memory->trace);
    memory->x = made_values(tokens * WIDTH);
    memory->k = made_values(tokens * WIDTH);
    memory->right = made_values(tokens * WIDTH);
    memory->wrong = calloc(tokens * WIDTH, sizeof *memory->wrong);
    assert_non_null(memory->wrong);
    trace_add(&memory->trace, "layer_0_attn_norm_output", memory->x, memory->x, SHAPE(tokens, WIDTH));
    trace_add(&memory->trace, "layer_0_attn_k", memory->k, memory->k, SHAPE(tokens, WIDTH));
}

static void finish(struct memory *memory, const char *id, const char *words)
{
    const struct ts_cause *cause = &memory->trace.diagnosis.causes[0];
    shake(memory->wrong, memory->wrong, memory->tokens * WIDTH, 1e-4);
    trace_diagnose(&memory->trace, trace_add(&memory->trace, "layer_0_attn_v", memory->right, memory->wrong,
                                             SHAPE(memory->tokens, WIDTH)));
    assert_first(&memory->trace, id, words);
    assert_true(cause->confidence > 0.7);
    trace_end(&memory->trace);
    free(memory->x);
    free(memory->k);
    free(memory->right);
    free(memory->wrong);
}

/* [first, second, inner] stored as [second, first, inner]. */
static void swap(struct memory *memory, size_t first, size_t second, size_t inner)
{
    for (size_t i = 0; i < memory->tokens * WIDTH; i++) {
        size_t k = i % inner, b = i / inner % first, a = i / inner / first;
        memory->wrong[i] = memory->right[(b * second + a) * inner + k];
    }
}

static void test_axes(void **state)
{
    static const size_t lengths[] = {SHORT, LONG};
    (void)state;
    for (size_t l = 0; l < 2; l++) {
        size_t tokens = lengths[l];
        struct memory memory;
        start(&memory, tokens);
        swap(&memory, tokens, WIDTH, 1);
        finish(&memory, "permuted", "it is transposed");
        start(&memory, tokens);
        swap(&memory, tokens, HEADS, SIZE);
        finish(&memory, "permuted",
               tokens == LONG ? "stored as [4,300,12], read as [300,4,12]" : "stored as [4,12,12], read as [12,4,12]");
        start(&memory, tokens);
        for (size_t i = 0; i < tokens * WIDTH; i++)
            memory.wrong[i] = memory.right[(tokens - 1 - i / WIDTH) * WIDTH + i % WIDTH];
        finish(&memory, "permuted", "tokens are in reverse order");
    }
}

/* Rows that were written further apart than they are read; in the gaps nothing, another tensor, or anything. */
static void test_pitches(void **state)
{
    static const size_t lengths[] = {SHORT, LONG};
    (void)state;
    for (size_t l = 0; l < 2; l++)
        for (int gaps = 0; gaps < 3; gaps++) {
            size_t tokens = lengths[l], pitch = gaps ? 2 * WIDTH : WIDTH + 16;
            struct memory memory;
            char words[80];
            start(&memory, tokens);
            for (size_t i = 0; i < tokens * WIDTH; i++) {
                size_t row = i / pitch, column = i % pitch;
                memory.wrong[i] = column < WIDTH ? memory.right[row * WIDTH + column]
                                  : gaps == 1    ? memory.k[row * WIDTH + column - WIDTH]
                                  : gaps == 2    ? (float)dice_number()
                                                 : 0;
            }
            snprintf(words, sizeof words,
                     gaps ? "%zu elements apart but are read %d apart: a view into a wider buffer"
                          : "%zu elements apart but are read %d apart: the gaps and the end",
                     pitch, WIDTH);
            finish(&memory, "permuted", words);
        }
}

/* What stands in the gaps is named where it was captured, as numbers and not as complex ones. */
static void test_name_in_the_gaps(void **state)
{
    (void)state;
    for (int is_complex = 0; is_complex < 2; is_complex++) {
        struct memory memory;
        struct ts_pair *k = &memory.trace.pairs[1];
        start(&memory, LONG);
        for (size_t i = 0; i < LONG * WIDTH; i++) {
            size_t row = i / (2 * WIDTH), column = i % (2 * WIDTH);
            memory.wrong[i] =
                column < WIDTH ? memory.right[row * WIDTH + column] : memory.k[row * WIDTH + column - WIDTH];
        }
        if (is_complex) {
            made_complex(memory.trace.a, "layer_0_attn_k");
            made_complex(memory.trace.b, "layer_0_attn_k");
            assert_true(ts_view_of(ts_bundle_tensor(memory.trace.a, "layer_0_attn_k"), &memory.trace.arena, &k->a));
            assert_true(ts_view_of(ts_bundle_tensor(memory.trace.b, "layer_0_attn_k"), &memory.trace.arena, &k->b));
        }
        finish(&memory, "permuted", is_complex ? "something else" : "between the rows is layer_0_attn_k");
    }
}

/* Widths of types that were confused: the lower halves of f32 are as good as random, and NaN among them is no NaN that
 * was born here. */
static void test_widths(void **state)
{
    static const size_t lengths[] = {SHORT, LONG};
    (void)state;
    for (size_t l = 0; l < 2; l++) {
        struct memory memory;
        start(&memory, lengths[l]);
        for (size_t i = 0; i < lengths[l] * WIDTH; i++) {
            float exact = memory.right[i / 2] * (float)(1 + 1e-6 * dice_number());
            uint32_t bits = ts_float_bits(exact);
            memory.wrong[i] = ts_bf16_to_float((uint16_t)(i % 2 ? bits >> 16 : bits & 0xffff));
        }
        finish(&memory, "dtype-confusion", "f32 is read as pairs of bf16");
        start(&memory, lengths[l]);
        for (size_t i = 0; i < lengths[l] * WIDTH / 2; i++)
            memory.wrong[i] = ts_float_from_bits((ts_float_bits(memory.right[2 * i + 1]) & 0xffff0000u) |
                                                 ts_float_bits(memory.right[2 * i]) >> 16);
        finish(&memory, "dtype-confusion", "pairs of bf16 are read as f32");
    }
}

/* None of it is said about noise. */
static void test_noise_is_silent(void **state)
{
    static const size_t lengths[] = {SHORT, LONG};
    (void)state;
    for (size_t l = 0; l < 2; l++) {
        struct memory memory;
        start(&memory, lengths[l]);
        shake(memory.right, memory.wrong, lengths[l] * WIDTH, 3e-7);
        trace_diagnose(&memory.trace, trace_add(&memory.trace, "layer_0_attn_v", memory.right, memory.wrong,
                                                SHAPE(lengths[l], WIDTH)));
        assert_null(trace_cause(&memory.trace, "permuted"));
        assert_null(trace_cause(&memory.trace, "shifted"));
        assert_null(trace_cause(&memory.trace, "dtype-confusion"));
        trace_end(&memory.trace);
        free(memory.x);
        free(memory.k);
        free(memory.right);
        free(memory.wrong);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_axes),   cmocka_unit_test(test_pitches),         cmocka_unit_test(test_name_in_the_gaps),
        cmocka_unit_test(test_widths), cmocka_unit_test(test_noise_is_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
