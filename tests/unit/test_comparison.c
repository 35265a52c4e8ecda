/* The steps of a comparison together: what is a checkpoint, what is an edit, what bytes tell. */
#include "report_sample.h"

#include "base/number.h"
#include "compare/exact.h"
#include "compare/honesty.h"
#include "dice.h"

struct inputs {
    struct ts_bundle *a, *b;
    struct ts_pool *pool;
};

static void inputs_open(struct inputs *inputs)
{
    inputs->a = ts_bundle_new("a");
    inputs->b = ts_bundle_new("b");
    inputs->pool = ts_pool_new(2);
    assert_true(inputs->a && inputs->b && inputs->pool);
    dice_state = 3;
}

/* Takes the bundles over. */
static void compare(struct inputs *inputs, const struct ts_comparison_options *options,
                    struct ts_comparison *comparison)
{
    struct ts_error error;
    if (ts_comparison_run(inputs->a, inputs->b, options, inputs->pool, comparison, &error) != TS_OK)
        fail_msg("%s", error.message);
    ts_pool_free(inputs->pool);
}

static void add_bytes(struct ts_bundle *bundle, const char *name, enum ts_type type, const void *bytes, size_t size,
                      size_t rows, size_t columns)
{
    struct ts_source *source;
    struct ts_tensor *tensor;
    struct ts_error error;
    assert_int_equal(ts_source_copy(bytes, size, name, &source, &error), TS_OK);
    assert_int_equal(ts_bundle_keep(bundle, source, &error), TS_OK);
    assert_int_equal(ts_bundle_add(bundle, name, 2, &tensor, &error), TS_OK);
    tensor->type = type;
    tensor->source = source;
    tensor->shape[0] = rows;
    tensor->shape[1] = columns;
    assert_int_equal(ts_tensor_finish(tensor, &error), TS_OK);
    ts_source_release(source);
}

static void add_bf16(struct ts_bundle *bundle, const char *name, const uint16_t *bits, size_t rows, size_t columns)
{
    add_bytes(bundle, name, TS_BF16, bits, rows * columns * 2, rows, columns);
}

static void fill(uint16_t *bits, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bits[i] = (uint16_t)(ts_float_bits((float)(0.02 * dice_number())) >> 16);
}

#define ROWS    40
#define COLUMNS 48
#define COUNT   (ROWS * COLUMNS)

static uint16_t to_bf16(float value)
{
    uint32_t bits = ts_float_bits(value);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Four tensors: equal; one step of the grid off in places; changed by a few thousandths in one direction; and with tiny
 * numbers that went through f16, which has steps of 2^-24 there. */
static void make_edits(struct inputs *inputs)
{
    uint16_t a[COUNT], b[COUNT];
    inputs_open(inputs);
    fill(a, COUNT);
    add_bf16(inputs->a, "layers.0.q.weight", a, ROWS, COLUMNS);
    add_bf16(inputs->b, "layers.0.q.weight", a, ROWS, COLUMNS);
    fill(a, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        b[i] = (uint16_t)(a[i] + (i % 7 == 0 && (a[i] & 0x7f) < 0x7f));
    add_bf16(inputs->a, "layers.0.k.weight", a, ROWS, COLUMNS);
    add_bf16(inputs->b, "layers.0.k.weight", b, ROWS, COLUMNS);
    fill(a, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        double update = 3e-5 * (1 + (double)(i / COLUMNS) / ROWS) * ((i % COLUMNS) % 3 == 0 ? 1 : -0.7);
        b[i] = to_bf16(ts_bf16_to_float(a[i]) + (float)update);
    }
    add_bf16(inputs->a, "layers.0.v.weight", a, ROWS, COLUMNS);
    add_bf16(inputs->b, "layers.0.v.weight", b, ROWS, COLUMNS);
    fill(a, COUNT);
    memcpy(b, a, sizeof b);
    for (size_t i = 0; i < COUNT; i += 50) {
        a[i] = to_bf16(20.45f * 0x1p-24f);
        b[i] = to_bf16(20 * 0x1p-24f);
    }
    add_bf16(inputs->a, "layers.0.o.weight", a, ROWS, COLUMNS);
    add_bf16(inputs->b, "layers.0.o.weight", b, ROWS, COLUMNS);
}

/* Rounding allows a bf16 tensor an error of 0.005, but not where both files have bf16 to begin with. */
static void test_edits_are_not_rounding(void **state)
{
    struct inputs inputs;
    struct ts_comparison comparison;
    (void)state;
    make_edits(&inputs);
    compare(&inputs, &(struct ts_comparison_options){.rank = true}, &comparison);
    assert_true(comparison.judgement.weights);
    assert_int_equal(comparison.judgement.verdicts[0].judged, TS_JUDGED_OK);
    assert_true(comparison.judgement.verdicts[1].judged <= TS_JUDGED_NOISE);
    assert_true(comparison.deltas[2].rel_l2 < 0.0049);
    assert_int_equal(comparison.judgement.verdicts[2].judged, TS_JUDGED_DIFFERS);
    assert_true(comparison.deltas[3].max_ulp > 1);
    assert_true(comparison.judgement.verdicts[3].judged <= TS_JUDGED_NOISE);
    assert_int_equal(comparison.judgement.first, 2);
    assert_int_equal(comparison.judgement.counts[TS_JUDGED_DIFFERS], 1);
    assert_int_equal(comparison.outcome, TS_OUTCOME_DIFFER);
    assert_non_null(comparison.ranks);
    assert_true(comparison.ranks[0].known);
    assert_int_equal(comparison.ranks[0].rank, 0);
    assert_int_equal(comparison.ranks[2].rank, 1);
    ts_comparison_release(&comparison);
}

/* A step of w is several of 1 + w where that is small: no edit, if the other file kept what was rounded here. */
static void test_rounding_before_one_was_added(void **state)
{
    struct inputs inputs;
    struct ts_comparison comparison;
    float rounded[COUNT], added[COUNT];
    struct ts_error error;
    (void)state;
    inputs_open(&inputs);
    assert_int_equal(ts_bundle_meta(inputs.b, "general.architecture", "gemma3", &error), TS_OK);
    for (size_t i = 0; i < COUNT; i++) {
        const float w = (float)(i % 2 ? -0.8 : 0.8) + (float)(0.05 * dice_number());
        rounded[i] = ts_bf16_to_float(to_bf16(w));
        added[i] = 1 + w;
    }
    sample_tensor(inputs.a, "model.layers.0.input_layernorm.weight", 1, (uint64_t[]){COUNT}, rounded, COUNT);
    sample_tensor(inputs.b, "blk.0.attn_norm.weight", 1, (uint64_t[]){COUNT}, added, COUNT);
    compare(&inputs, &(struct ts_comparison_options){0}, &comparison);
    assert_string_equal(comparison.pairing.pairs[0].recipe, "A: 1 + w");
    assert_true(comparison.judgement.verdicts[0].judged <= TS_JUDGED_NOISE);
    ts_comparison_release(&comparison);
}

/* What a rule or a tolerance of the user's lets pass is said to be let pass, and by what. */
static void test_what_a_rule_allows(void **state)
{
    static const char *const loose[] = {"v.weight:rel_l2<0.5", NULL}, *const tight[] = {"v.weight:rel_l2<1e-9", NULL};
    struct inputs inputs;
    struct ts_comparison comparison;
    (void)state;
    make_edits(&inputs);
    compare(&inputs, &(struct ts_comparison_options){.rules = loose}, &comparison);
    assert_int_equal(comparison.judgement.verdicts[2].judged, TS_JUDGED_NOISE);
    assert_true(comparison.judgement.verdicts[2].allowed);
    assert_non_null(strstr(comparison.judgement.verdicts[2].why, "allowed by the rule \"v.weight:rel_l2<0.5\""));
    assert_false(comparison.judgement.verdicts[0].allowed);
    assert_false(comparison.judgement.verdicts[1].allowed); /* noise by itself */
    ts_comparison_release(&comparison);
    make_edits(&inputs);
    compare(&inputs, &(struct ts_comparison_options){.rules = tight}, &comparison);
    assert_int_equal(comparison.judgement.verdicts[2].judged, TS_JUDGED_DIFFERS);
    assert_false(comparison.judgement.verdicts[2].allowed);
    ts_comparison_release(&comparison);
}

/* A trace that goes wrong in layer 4 and again in layer 6: where a rule allows the one, only what lies between carries
 * it for sure. */
static void test_what_carries_what_a_rule_allows(void **state)
{
    static const char *const rules[] = {"layers.4.mlp:rel_l2<1", "layers.6.mlp:rel_l2<1e-9", NULL};
    struct inputs inputs;
    struct ts_comparison comparison;
    (void)state;
    inputs_open(&inputs);
    for (int layer = 0; layer < 8; layer++) {
        char name[32];
        float a[COUNT], b[COUNT];
        snprintf(name, sizeof name, "layers.%d.mlp", layer);
        for (size_t i = 0; i < COUNT; i++) {
            a[i] = (float)dice_number();
            b[i] = a[i] + (layer < 4 ? 1e-4f : 0.4f) * (float)dice_number();
        }
        sample_tensor(inputs.a, name, 2, (uint64_t[]){ROWS, COLUMNS}, a, COUNT);
        sample_tensor(inputs.b, name, 2, (uint64_t[]){ROWS, COLUMNS}, b, COUNT);
    }
    compare(&inputs, &(struct ts_comparison_options){.rules = rules}, &comparison);
    assert_int_equal(comparison.judgement.first, 5);
    assert_string_equal(comparison.judgement.verdicts[5].why, "carried from layers.4.mlp, which a rule allows");
    assert_int_equal(comparison.judgement.verdicts[7].judged, TS_JUDGED_DIFFERS);
    assert_string_equal(comparison.judgement.verdicts[7].why, "carried from the first divergence");
    ts_comparison_release(&comparison);
}

static void test_subject_can_be_forced(void **state)
{
    struct inputs inputs;
    struct ts_comparison comparison;
    (void)state;
    make_edits(&inputs);
    compare(&inputs, &(struct ts_comparison_options){.subject = TS_SUBJECT_TRACES}, &comparison);
    assert_false(comparison.judgement.weights);
    assert_null(comparison.ranks);
    ts_comparison_release(&comparison);
    inputs_open(&inputs);
    sample_tensor(inputs.a, "hidden", 1, (uint64_t[]){3}, (float[]){1, 2, 3}, 3);
    sample_tensor(inputs.b, "hidden", 1, (uint64_t[]){3}, (float[]){1, 2, 3}, 3);
    compare(&inputs, &(struct ts_comparison_options){.subject = TS_SUBJECT_CHECKPOINTS}, &comparison);
    assert_true(comparison.judgement.weights);
    ts_comparison_release(&comparison);
}

/* However little else changed. */
static void test_nan_in_a_checkpoint_differs(void **state)
{
    struct inputs inputs;
    struct ts_comparison comparison;
    (void)state;
    inputs_open(&inputs);
    sample_tensor(inputs.a, "norm.weight", 1, (uint64_t[]){4}, (float[]){1, 2, 3, 4}, 4);
    sample_tensor(inputs.b, "norm.weight", 1, (uint64_t[]){4}, (float[]){1, 2, NAN, 4}, 4);
    compare(&inputs, &(struct ts_comparison_options){0}, &comparison);
    assert_true(comparison.judgement.weights);
    assert_int_equal(comparison.judgement.verdicts[0].judged, TS_JUDGED_DIFFERS);
    assert_int_equal(comparison.outcome, TS_OUTCOME_DIFFER);
    ts_comparison_release(&comparison);
}

static void test_bytes(void **state)
{
    struct inputs inputs;
    struct ts_comparison comparison;
    (void)state;
    inputs_open(&inputs);
    sample_tensor(inputs.a, "same", 1, (uint64_t[]){2}, (float[]){NAN, 2}, 2);
    sample_tensor(inputs.b, "same", 1, (uint64_t[]){2}, (float[]){NAN, 2}, 2);
    sample_tensor(inputs.a, "zero", 1, (uint64_t[]){2}, (float[]){1, 0.0f}, 2);
    sample_tensor(inputs.b, "zero", 1, (uint64_t[]){2}, (float[]){1, -0.0f}, 2);
    compare(&inputs, &(struct ts_comparison_options){.delta = {.exact = true}}, &comparison);
    assert_int_equal(comparison.pairing.count, 2);
    assert_true(ts_comparison_same_bytes(&comparison, 0));
    assert_false(ts_comparison_same_bytes(&comparison, 1));
    assert_int_equal(comparison.first_bytes[1], 7); /* the sign is in the last byte of the second number */
    assert_int_equal(comparison.judgement.verdicts[0].judged, TS_JUDGED_OK);
    assert_int_equal(comparison.judgement.verdicts[1].judged, TS_JUDGED_DIFFERS);
    assert_non_null(strstr(comparison.judgement.verdicts[1].why, "byte 7 of its data"));
    assert_false(comparison.judgement.weights);
    ts_comparison_release(&comparison);
}

/* One pair of complex with real numbers cannot be compared; that is no reason not to compare the others. */
static void test_complex_against_real(void **state)
{
    struct inputs inputs;
    struct ts_comparison comparison;
    struct ts_tensor *tensor;
    struct ts_error error;
    (void)state;
    inputs_open(&inputs);
    sample_tensor(inputs.a, "same", 1, (uint64_t[]){2}, (float[]){1, 2}, 2);
    sample_tensor(inputs.b, "same", 1, (uint64_t[]){2}, (float[]){1, 2}, 2);
    tensor = sample_tensor(inputs.a, "phases", 1, (uint64_t[]){4}, (float[]){1, 2, 3, 4}, 4);
    tensor->type = TS_C64;
    tensor->shape[0] = 2;
    assert_int_equal(ts_tensor_finish(tensor, &error), TS_OK);
    sample_tensor(inputs.b, "phases", 1, (uint64_t[]){3}, (float[]){5, -7, 1}, 3);
    compare(&inputs, &(struct ts_comparison_options){0}, &comparison);
    assert_int_equal(comparison.pairing.count, 2);
    assert_int_equal(comparison.judgement.counts[TS_JUDGED_OK], 1);
    assert_int_equal(comparison.judgement.counts[TS_JUDGED_UNKNOWN], 1);
    assert_int_equal(comparison.outcome, TS_OUTCOME_INCOMPLETE);
    ts_comparison_release(&comparison);
}

#define BLOCKS 64 /* of 256 elements */

/* Of numbers that f16 has as normal ones. */
static uint16_t to_half(float value)
{
    const uint32_t bits = ts_float_bits(value), rounded = (bits & 0x7fffffff) - (112u << 23) + 0x1000;
    return (uint16_t)((bits >> 16 & 0x8000) | rounded >> 13);
}

static float furthest(const float *values, size_t count)
{
    float most = 0;
    for (size_t i = 0; i < count; i++)
        most = fabsf(values[i]) > fabsf(most) ? values[i] : most;
    return most;
}

/* 32 at a time: codes 0 to 15 around 8, the furthest number at code 0. */
static void to_q4_0(const float *values, float factor, uint8_t *out)
{
    for (size_t block = 0; block < BLOCKS * 8; block++, values += 32, out += 18) {
        const float scale = factor * furthest(values, 32) / -8;
        const uint16_t half = to_half(scale);
        memcpy(out, &half, 2);
        for (size_t i = 0; i < 32; i++) {
            const double code = floor((double)(factor * values[i] / scale) + 8.5);
            const uint8_t nibble = (uint8_t)(code > 15 ? 15 : code);
            out[2 + i % 16] = i < 16 ? nibble : (uint8_t)(out[2 + i % 16] | nibble << 4);
        }
    }
}

/* 256 at a time: -1, 0 and 1 times the furthest number. Byte i % 32 of either half holds the codes of four numbers. */
static void to_tq2_0(const float *values, uint8_t *out)
{
    for (size_t block = 0; block < BLOCKS; block++, values += 256, out += 66) {
        const float scale = fabsf(furthest(values, 256));
        const uint16_t half = to_half(scale);
        memset(out, 0, 64);
        for (size_t i = 0; i < 256; i++) {
            const unsigned code = (unsigned)lround((double)(values[i] / scale)) + 1;
            out[i / 128 * 32 + i % 32] |= (uint8_t)(code << (i % 128 / 32 * 2));
        }
        memcpy(out + 64, &half, 2);
    }
}

/* Quantizing rounds the scales of blocks, which shows where all are alike, and does badly where few numbers are large;
 * a factor on a tensor of many blocks is neither. */
static void test_what_quantizing_does(void **state)
{
    static const struct {
        bool two_values, ternary;
        float factor;
        enum ts_judged judged;
    } cases[] = {{false, false, 1, TS_JUDGED_NOISE},       {true, false, 1, TS_JUDGED_NOISE},
                 {true, true, 1, TS_JUDGED_NOISE},         {false, true, 1, TS_JUDGED_NOISE},
                 {false, false, 1.05f, TS_JUDGED_DIFFERS}, {false, false, 0.95f, TS_JUDGED_DIFFERS}};
    static float values[BLOCKS * 256];
    static uint8_t bytes[BLOCKS * 8 * 18];
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct inputs inputs;
        struct ts_comparison comparison;
        inputs_open(&inputs);
        for (size_t i = 0; i < BLOCKS * 256; i++) {
            const double share = (double)(1 + (i * 7919 + 13) % 9973) / 9974, sign = i * 31 % 17 < 8 ? -1 : 1;
            values[i] = (float)(sign * (cases[k].two_values ? 0.05 : -0.02 * log(share)));
        }
        if (cases[k].ternary)
            to_tq2_0(values, bytes);
        else
            to_q4_0(values, cases[k].factor, bytes);
        sample_tensor(inputs.a, "layers.0.q.weight", 2, (uint64_t[]){BLOCKS, 256}, values, BLOCKS * 256);
        add_bytes(inputs.b, "layers.0.q.weight", ts_type_of_block(cases[k].ternary ? TS_BLOCK_TQ2_0 : TS_BLOCK_Q4_0),
                  bytes, cases[k].ternary ? BLOCKS * 66 : sizeof bytes, BLOCKS, 256);
        compare(&inputs, &(struct ts_comparison_options){0}, &comparison);
        if (comparison.judgement.verdicts[0].judged != cases[k].judged)
            fail_msg("case %zu: error %g, %s", k, comparison.deltas[0].rel_l2, comparison.judgement.verdicts[0].why);
        ts_comparison_release(&comparison);
    }
}

/* Three small whole numbers are no sign of fp8, in whose precision a third more would be rounding. */
static void test_few_numbers_are_no_precision(void **state)
{
    struct inputs inputs;
    struct ts_comparison comparison;
    (void)state;
    inputs_open(&inputs);
    sample_tensor(inputs.a, "counts", 1, (uint64_t[]){3}, (float[]){1, 2, 3}, 3);
    sample_tensor(inputs.b, "counts", 1, (uint64_t[]){3}, (float[]){1, 2, 4}, 3);
    compare(&inputs, &(struct ts_comparison_options){0}, &comparison);
    assert_int_equal(comparison.outcome, TS_OUTCOME_DIFFER);
    ts_comparison_release(&comparison);
}

static bool is_doubted(const struct ts_comparison *comparison, const char *words)
{
    for (size_t i = 0; i < comparison->doubt_count; i++)
        if (strstr(comparison->doubts[i], words))
            return true;
    return false;
}

/* Square weights of four layers, some of them turned in the candidate: all of them are a habit of the format, which one
 * program cannot have in both files; one is a fault. */
static void test_one_turned_among_siblings(void **state)
{
    static const unsigned kinds[] = {0, 1, 4};
    (void)state;
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        unsigned turned = kinds[kind];
        struct inputs inputs;
        struct ts_comparison comparison;
        uint32_t dice = 7;
        inputs_open(&inputs);
        for (unsigned layer = 0; layer < 4; layer++) {
            char name[64];
            float values[24 * 24], other[24 * 24];
            for (size_t i = 0; i < 24 * 24; i++) {
                dice = dice * 1664525 + 1013904223;
                values[i] = (float)(dice >> 8) / 0x1p23f - 1;
            }
            for (size_t i = 0; i < 24 * 24; i++)
                other[i] = turned == 4 || (turned && layer == 2) ? values[i % 24 * 24 + i / 24] : values[i];
            snprintf(name, sizeof name, "layers.%u.fc.weight", layer);
            sample_tensor(inputs.a, name, 2, (uint64_t[]){24, 24}, values, 24 * 24);
            sample_tensor(inputs.b, name, 2, (uint64_t[]){24, 24}, other, 24 * 24);
        }
        compare(&inputs, &(struct ts_comparison_options){0}, &comparison);
        assert_int_equal(comparison.outcome, turned == 1 ? TS_OUTCOME_DIFFER : TS_OUTCOME_MATCH);
        assert_int_equal(comparison.judgement.counts[TS_JUDGED_DIFFERS], turned == 1);
        assert_true(is_doubted(&comparison, "\"layers.0.fc.weight\" (and others) has the same name") == (turned == 4));
        assert_true(is_doubted(&comparison, "only in a different order") == (turned == 4));
        if (turned == 1)
            assert_string_equal(comparison.pairing.pairs[comparison.judgement.first].name, "layers.2.fc.weight");
        ts_comparison_release(&comparison);
    }
}

/* Halves in a tensor that is declared as f32, as programs make it that write n * 4 bytes of them; and floats that are
 * declared as halves, or are doubles. Whichever side it is, the report says which type the bytes are. */
static void test_bytes_of_another_type(void **state)
{
    static const struct {
        enum ts_type written, declared;
        const char *words;
    } cases[] = {{TS_F16, TS_F32, "read as f16 instead of f32"}, {TS_BF16, TS_F32, "read as bf16 instead of f32"},
                 {TS_F32, TS_F16, "read as f32 instead of f16"}, {TS_F32, TS_BF16, "read as f32 instead of bf16"},
                 {TS_F64, TS_F32, "read as f64 instead of f32"}, {TS_F32, TS_F32, NULL}};
    (void)state;
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        const bool in_a = i % 2;
        const enum ts_type written = cases[i / 2].written, declared = cases[i / 2].declared;
        float values[COUNT];
        double bytes[2 * COUNT] = {0};
        struct inputs inputs;
        struct ts_comparison comparison;
        inputs_open(&inputs);
        for (int layer = 0; layer < 2; layer++) {
            for (size_t k = 0; k < COUNT; k++) {
                values[k] = (float)dice_number();
                if (written == TS_F16)
                    memcpy((char *)bytes + 2 * k, &(uint16_t){to_half(values[k])}, 2);
                else if (written == TS_BF16)
                    memcpy((char *)bytes + 2 * k, &(uint16_t){to_bf16(values[k])}, 2);
                else if (written == TS_F32)
                    memcpy((char *)bytes + 4 * k, &values[k], 4);
                else
                    bytes[k] = values[k];
            }
            add_bytes(in_a ? inputs.b : inputs.a, layer ? "layers.1.up" : "layers.0.up", TS_F32, values, sizeof values,
                      ROWS, COLUMNS);
            add_bytes(in_a ? inputs.a : inputs.b, layer ? "layers.1.up" : "layers.0.up", layer ? declared : TS_F32,
                      layer ? (const void *)bytes : values, COUNT * (size_t)(declared == TS_F32 ? 4 : 2 + 2 * !layer),
                      ROWS, COLUMNS);
        }
        compare(&inputs, &(struct ts_comparison_options){0}, &comparison);
        if (cases[i / 2].words)
            assert_true(is_doubted(&comparison, cases[i / 2].words));
        assert_int_equal(is_doubted(&comparison, in_a ? "of the reference, read as" : "of the candidate, read as"),
                         cases[i / 2].words != NULL);
        assert_false(is_doubted(&comparison, in_a ? "of the candidate, read as" : "of the reference, read as"));
        ts_comparison_release(&comparison);
    }
}

/* Halves that are declared as half as many floats, and floats as twice as many halves: every second number agrees, and
 * it is no slice for that. */
static void test_misread_bytes_are_no_slice(void **state)
{
    (void)state;
    for (int as_halves = 0; as_halves < 2; as_halves++) {
        const size_t columns = as_halves ? 2 * COLUMNS : COLUMNS / 2;
        float values[COUNT];
        uint16_t halves[COUNT];
        struct inputs inputs;
        struct ts_comparison comparison;
        inputs_open(&inputs);
        for (size_t i = 0; i < COUNT; i++) {
            values[i] = (float)dice_number();
            halves[i] = to_bf16(values[i] + (float)(0.005 * dice_number()));
        }
        add_bytes(inputs.a, "up", TS_F32, values, sizeof values, ROWS, COLUMNS);
        add_bytes(inputs.b, "up", as_halves ? TS_BF16 : TS_F32, as_halves ? (const void *)values : halves,
                  as_halves ? sizeof values : sizeof halves, ROWS, columns);
        compare(&inputs, &(struct ts_comparison_options){0}, &comparison);
        assert_int_equal(comparison.outcome, TS_OUTCOME_INCOMPLETE);
        assert_string_equal(comparison.pairing.pairs[0].problem,
                            as_halves ? "the bytes of B, read as f32 instead of bf16, are the values of A"
                                      : "the bytes of B, read as bf16 instead of f32, are the values of A");
        assert_true(is_doubted(&comparison, "it was written or declared with the wrong type"));
        ts_comparison_release(&comparison);
    }
}

/* A token in front that one side has alone is doubted before anything that attends to it is blamed; not where all
 * agrees, nor one at the end, which nothing sees. */
static void test_a_token_in_front(void **state)
{
    enum { ALL_TOKENS = 13, EACH = 16 };
    static const char *const names[] = {"model.embed_tokens", "model.layers.0.input_layernorm",
                                        "model.layers.0.self_attn.v_proj", "model.layers.0.self_attn.o_proj"};
    (void)state;
    for (int way = 0; way < 8; way++) {
        const bool wrong = way & 1, at_end = way & 2, of_a = way & 4;
        struct inputs inputs;
        struct ts_comparison comparison;
        inputs_open(&inputs);
        for (int i = 0; i < 4; i++) {
            float all[ALL_TOKENS * EACH], less[(ALL_TOKENS - 1) * EACH];
            for (size_t k = 0; k < ALL_TOKENS * EACH; k++)
                all[k] = (float)dice_number();
            memcpy(less, all + (at_end ? 0 : EACH), sizeof less);
            for (size_t k = 5 * EACH; k < 6 * EACH && wrong && i == 3; k++)
                less[k] *= 2; /* one token */
            add_bytes(of_a ? inputs.a : inputs.b, names[i], TS_F32, all, sizeof all, ALL_TOKENS, EACH);
            add_bytes(of_a ? inputs.b : inputs.a, names[i], TS_F32, less, sizeof less, ALL_TOKENS - 1, EACH);
        }
        compare(&inputs, &(struct ts_comparison_options){0}, &comparison);
        assert_int_equal(comparison.judgement.first, wrong ? 3 : SIZE_MAX);
        assert_int_equal(is_doubted(&comparison, of_a ? "the reference has 1 more token in front"
                                                      : "the candidate has 1 more token in front"),
                         wrong && !at_end);
        ts_comparison_release(&comparison);
    }
}

/* Channels of the last of two ranks, or its heads, are no tokens. */
static void test_a_shard_lacks_no_tokens(void **state)
{
    enum { TOKENS = 6, HEADS = 8, SIZE = 8, NUMBERS = TOKENS * HEADS * SIZE };
    static const char *const names[] = {"model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj",
                                        "model.layers.0.self_attn.v_proj", "model.layers.1.self_attn.q_proj"};
    (void)state;
    for (int heads_first = 0; heads_first < 2; heads_first++) {
        const unsigned rank = heads_first ? 3 : 2;
        struct inputs inputs;
        struct ts_comparison comparison;
        inputs_open(&inputs);
        for (int i = 0; i < 4; i++) {
            const uint64_t flat[] = {TOKENS, HEADS * SIZE}, half[] = {TOKENS, HEADS / 2 * SIZE};
            const uint64_t heads[] = {HEADS, TOKENS, SIZE}, half_heads[] = {HEADS / 2, TOKENS, SIZE};
            float all[NUMBERS], own[NUMBERS / 2], hidden[TOKENS * SIZE];
            for (size_t k = 0; k < NUMBERS; k++)
                all[k] = (float)dice_number();
            for (size_t k = 0; k < NUMBERS / 2; k++)
                own[k] = all[heads_first ? NUMBERS / 2 + k : k / half[1] * flat[1] + half[1] + k % half[1]];
            for (size_t k = 0; k < TOKENS * SIZE; k++)
                hidden[k] = (float)dice_number();
            for (size_t k = 0; k < NUMBERS / 2 && i == 3; k++)
                own[k] += (float)(0.2 * dice_number());
            sample_tensor(inputs.a, names[i], rank, heads_first ? heads : flat, all, NUMBERS);
            sample_tensor(inputs.b, names[i], rank, heads_first ? half_heads : half, own, NUMBERS / 2);
            if (i == 0) {
                sample_tensor(inputs.a, "model.embed_tokens", 2, (uint64_t[]){TOKENS, SIZE}, hidden, TOKENS * SIZE);
                sample_tensor(inputs.b, "model.embed_tokens", 2, (uint64_t[]){TOKENS, SIZE}, hidden, TOKENS * SIZE);
            }
        }
        compare(&inputs, &(struct ts_comparison_options){.subject = TS_SUBJECT_TRACES}, &comparison);
        assert_true(comparison.judgement.first != SIZE_MAX);
        assert_false(is_doubted(&comparison, "in front"));
        ts_comparison_release(&comparison);
    }
}

/* A capture of the reference that was overwritten by the next, or never written, is the reference's fault. */
static void test_references_are_doubted_too(void **state)
{
    static const char *const names[] = {"layer_0_q", "layer_0_k", "layer_0_v"};
    float values[3][64];
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 64; i++)
            values[t][i] = (float)((i * 37 + t * 11) % 64) - 31.5f;
    for (int kind = 0; kind < 3; kind++) {
        struct inputs inputs;
        struct ts_comparison comparison;
        inputs_open(&inputs);
        for (int t = 0; t < 3; t++) {
            float zeros[64] = {0};
            const float *reference = kind == 1 && t == 0 ? values[1] : kind == 2 && t == 0 ? zeros : values[t];
            sample_tensor(inputs.a, names[t], 2, (uint64_t[]){8, 8}, reference, 64);
            sample_tensor(inputs.b, names[t], 2, (uint64_t[]){8, 8}, values[t], 64);
        }
        compare(&inputs, &(struct ts_comparison_options){.subject = TS_SUBJECT_TRACES}, &comparison);
        assert_true(is_doubted(&comparison, "the same values in the reference") == (kind == 1));
        assert_true(is_doubted(&comparison, "of the reference holds one value") == (kind == 2));
        ts_comparison_release(&comparison);
    }
}

/* Two runs that hold zeros everywhere agree, and nothing follows from it; one constant among others is usual. */
static void test_constants_on_both_sides_show_nothing(void **state)
{
    static const char *const names[] = {"layer_0_q", "layer_0_k", "layer_0_v"};
    (void)state;
    for (int constants = 1; constants < 4; constants += 2) {
        struct inputs inputs;
        struct ts_comparison comparison;
        inputs_open(&inputs);
        for (int t = 0; t < 3; t++) {
            float values[64] = {0};
            for (int i = 0; i < 64 && t >= constants; i++)
                values[i] = (float)((i * 37 + t * 11) % 64) - 31.5f;
            sample_tensor(inputs.a, names[t], 2, (uint64_t[]){8, 8}, values, 64);
            sample_tensor(inputs.b, names[t], 2, (uint64_t[]){8, 8}, values, 64);
        }
        compare(&inputs, &(struct ts_comparison_options){.subject = TS_SUBJECT_TRACES}, &comparison);
        assert_true(is_doubted(&comparison, "on both sides, and show nothing") == (constants == 3));
        ts_comparison_release(&comparison);
    }
}

/* Tensors of very different size: the distance of the two says nothing about their angle. */
static void test_cosine_of_unequal_sizes(void **state)
{
    static const double factors[] = {1, 40, 1e5, 1e12, 1e-9};
    (void)state;
    for (size_t f = 0; f < sizeof factors / sizeof *factors; f++) {
        struct inputs inputs;
        struct ts_comparison comparison;
        float a[600], b[600];
        double aa = 0, bb = 0, ab = 0;
        inputs_open(&inputs);
        for (int i = 0; i < 600; i++) {
            a[i] = (float)dice_number();
            b[i] = (float)(factors[f] * (dice_number() + 0.3 * (double)a[i]));
            aa += (double)a[i] * (double)a[i];
            bb += (double)b[i] * (double)b[i];
            ab += (double)a[i] * (double)b[i];
        }
        sample_tensor(inputs.a, "x", 2, (uint64_t[]){20, 30}, a, 600);
        sample_tensor(inputs.b, "x", 2, (uint64_t[]){20, 30}, b, 600);
        compare(&inputs, &(struct ts_comparison_options){.rules = (const char *[]){"x: cosine > 0.9", NULL}},
                &comparison);
        assert_true(fabs(comparison.deltas[0].cosine - ab / sqrt(aa * bb)) < 1e-7);
        assert_int_equal(comparison.judgement.verdicts[0].judged, TS_JUDGED_DIFFERS);
        ts_comparison_release(&comparison);
    }
}

/* A file in bf16 against one in f32: rounding and cutting off move a number by one step at most, and one that was moved
 * further is a change, be it one of thousands. */
static void test_one_element_is_no_rounding(void **state)
{
    enum { ROUNDED, CUT_OFF, LOST };
    (void)state;
    for (int kind = ROUNDED; kind <= LOST; kind++) {
        struct inputs inputs;
        struct ts_comparison comparison;
        float a[COUNT];
        uint16_t b[COUNT];
        inputs_open(&inputs);
        for (size_t i = 0; i < COUNT; i++) {
            a[i] = (float)dice_number();
            b[i] = kind == CUT_OFF ? (uint16_t)(ts_float_bits(a[i]) >> 16) : to_bf16(a[i]);
        }
        a[7] = 0.1f;
        b[7] = kind == LOST ? 0 : to_bf16(a[7]);
        sample_tensor(inputs.a, "layers.0.q.weight", 2, (uint64_t[]){ROWS, COLUMNS}, a, COUNT);
        add_bf16(inputs.b, "layers.0.q.weight", b, ROWS, COLUMNS);
        compare(&inputs, &(struct ts_comparison_options){0}, &comparison);
        assert_true(comparison.deltas[0].rel_l2 < 0.005);
        assert_true((comparison.judgement.verdicts[0].judged == TS_JUDGED_DIFFERS) == (kind == LOST));
        ts_comparison_release(&comparison);
    }
}

/* Q4_0 with scales that are powers of two: 64 rows of 128 numbers between -1 and 1, which steps of 1/4 hold; as one
 * matrix or as several experts. */
static void add_q4_0(struct ts_bundle *bundle, const char *name, unsigned rank, const uint64_t *shape,
                     const float *values)
{
    unsigned char blocks[64 * 4][18];
    struct ts_source *source;
    struct ts_tensor *tensor;
    struct ts_error error;
    for (int block = 0; block < 64 * 4; block++) {
        blocks[block][0] = 0;
        blocks[block][1] = 0x34; /* 0.25 in f16 */
        for (int i = 0; i < 16; i++) {
            const float *at = values + block * 32 + i;
            blocks[block][2 + i] = (unsigned char)((int)floorf(at[0] * 4 + 8.5f) | (int)floorf(at[16] * 4 + 8.5f) << 4);
        }
    }
    assert_int_equal(ts_source_copy(blocks, sizeof blocks, name, &source, &error), TS_OK);
    assert_int_equal(ts_bundle_keep(bundle, source, &error), TS_OK);
    assert_int_equal(ts_bundle_add(bundle, name, rank, &tensor, &error), TS_OK);
    tensor->type = ts_type_of_block(TS_BLOCK_Q4_0);
    tensor->source = source;
    memcpy(tensor->shape, shape, rank * sizeof *shape);
    assert_int_equal(ts_tensor_finish(tensor, &error), TS_OK);
    ts_source_release(source);
}

/* The four bits themselves are known from the type, and no cause. */
static void first_cause_is(const struct ts_comparison *comparison, const char *id)
{
    struct ts_diagnosis diagnosis;
    struct ts_error error;
    assert_int_equal(ts_diagnose(comparison->pairing.pairs, comparison->deltas, 1, 0, &diagnosis, &error), TS_OK);
    assert_true(diagnosis.count > 0);
    assert_string_equal(diagnosis.causes[0].id, id);
    ts_diagnosis_release(&diagnosis);
}

/* Four bits err by an eighth of such numbers. A tenth more of everything, or a row that is lost, is hidden in that from
 * whoever looks at the whole. */
static void test_four_bits_hide_no_factor_and_no_row(void **state)
{
    enum { HONEST, LARGER, ROW, EXPERTS, ROW_OF_EXPERT, ZERO_ROW, CASES };
    static const uint64_t whole[] = {64, 128}, experts[] = {4, 16, 128};
    (void)state;
    for (int kind = HONEST; kind < CASES; kind++) {
        const bool bug = kind == LARGER || kind == ROW || kind == ROW_OF_EXPERT;
        const unsigned rank = kind < EXPERTS ? 2 : 3;
        struct inputs inputs;
        struct ts_comparison comparison;
        float a[64 * 128], b[64 * 128];
        inputs_open(&inputs);
        for (int i = 0; i < 64 * 128; i++) {
            a[i] = kind == ZERO_ROW && i / 128 == 33 ? 0 : (float)dice_number();
            b[i] = kind == LARGER ? a[i] * 1.1f : a[i];
            if ((kind == ROW || kind == ROW_OF_EXPERT) && i / 128 == 33)
                b[i] = 0;
        }
        sample_tensor(inputs.a, "layers.0.q.weight", rank, rank == 2 ? whole : experts, a, 64 * 128);
        add_q4_0(inputs.b, "layers.0.q.weight", rank, rank == 2 ? whole : experts, b);
        compare(&inputs, &(struct ts_comparison_options){0}, &comparison);
        assert_true(comparison.deltas[0].rel_l2 < 0.1875); /* what is allowed to four bits and a half */
        assert_int_equal(comparison.judgement.verdicts[0].judged, bug ? TS_JUDGED_DIFFERS : TS_JUDGED_NOISE);
        assert_int_equal(comparison.outcome, bug ? TS_OUTCOME_DIFFER : TS_OUTCOME_MATCH);
        if (kind == LARGER)
            first_cause_is(&comparison, "scaled");
        if (kind == ROW)
            assert_non_null(strstr(comparison.judgement.verdicts[0].why, "row 33 errs by 1 of its size"));
        if (kind == ROW_OF_EXPERT)
            assert_non_null(strstr(comparison.judgement.verdicts[0].why, "row [2,1] errs by 1 of its size"));
        ts_comparison_release(&comparison);
    }
}

/* The tokens themselves, captured on both sides. */
static void test_captured_tokens_differ(void **state)
{
    (void)state;
    for (int other = 0; other < 2; other++) {
        struct inputs inputs;
        struct ts_comparison comparison;
        inputs_open(&inputs);
        for (int side = 0; side < 2; side++) {
            int32_t tokens[2] = {7, side ? 7 + other : 7};
            float bits[2];
            struct ts_tensor *tensor;
            memcpy(bits, tokens, sizeof bits);
            tensor = sample_tensor(side ? inputs.b : inputs.a, "input_ids", 1, (uint64_t[]){2}, bits, 2);
            tensor->type = TS_I32;
        }
        compare(&inputs, &(struct ts_comparison_options){0}, &comparison);
        assert_true(is_doubted(&comparison, "different token ids") == (other == 1));
        ts_comparison_release(&comparison);
    }
}

/* Where a capture says its token ids: in a key of their own, or in the run's description. */
static void test_tokens_of_a_capture(void **state)
{
    static const struct {
        const char *key, *value, *expected;
    } cases[] = {
        {"token_ids", "[1, 2]", "[1, 2]"},
        {"tsleuth.run", "{\"program\":\"engine\",\"tokens\":[5,17]}", "[5,17]"},
        {"tsleuth.run", "{\"pid\":7,\"token_ids\": [[5, 17]] ,\"x\":{\"tokens\":[1]}}", "[[5, 17]]"},
        {"tsleuth.run", "{\"x\":{\"tokens\":[1]}}", NULL},
        {"tsleuth.run", "{\"tokens\":\"none\"}", NULL},
        {"tsleuth.run", "{\"tokens\":[1,", NULL},
        {"tsleuth.run", "[1]", NULL},
        {"other", "[1]", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ts_bundle *bundle = ts_bundle_new("capture");
        struct ts_error error;
        const char *found;
        assert_non_null(bundle);
        assert_int_equal(ts_bundle_meta(bundle, cases[i].key, cases[i].value, &error), TS_OK);
        found = ts_capture_tokens(bundle, &bundle->arena);
        if (cases[i].expected) {
            assert_non_null(found);
            assert_string_equal(found, cases[i].expected);
        } else {
            assert_null(found);
        }
        ts_bundle_free(bundle);
    }
}

/* Sums over ranks that compute in bf16 and store f32 are no better than bf16, though no sum is on its grid. */
static void test_sums_are_as_coarse_as_their_parts(void **state)
{
    static const char *const names[] = {"rank0/o", "rank1/o", "rank0/x", "rank1/x"};
    struct inputs inputs;
    struct ts_comparison comparison;
    float whole[COUNT], parts[2][COUNT];
    (void)state;
    inputs_open(&inputs);
    for (size_t i = 0; i < COUNT; i++) {
        whole[i] = (float)dice_number();
        parts[0][i] = ts_bf16_to_float(to_bf16((float)dice_number()));
        parts[1][i] = ts_bf16_to_float(to_bf16(whole[i] - parts[0][i]));
    }
    sample_tensor(inputs.a, "o", 2, (uint64_t[]){ROWS, COLUMNS}, whole, COUNT);
    for (int rank = 0; rank < 2; rank++)
        sample_tensor(inputs.b, names[rank], 2, (uint64_t[]){ROWS, COLUMNS}, parts[rank], COUNT);
    sample_tensor(inputs.a, "x", 2, (uint64_t[]){ROWS, COLUMNS}, parts[0], COUNT);
    for (int rank = 0; rank < 2; rank++)
        sample_tensor(inputs.b, names[2 + rank], 2, (uint64_t[]){ROWS, COLUMNS}, parts[0], COUNT);
    compare(&inputs, &(struct ts_comparison_options){0}, &comparison);
    assert_string_equal(comparison.pairing.pairs[0].recipe, "B: sum of 2 shards");
    assert_true(comparison.deltas[0].rel_l2 > 1e-4);
    assert_int_equal(comparison.deltas[0].precision_b, 7);
    assert_int_equal(comparison.outcome, TS_OUTCOME_MATCH);
    ts_comparison_release(&comparison);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edits_are_not_rounding),
        cmocka_unit_test(test_rounding_before_one_was_added),
        cmocka_unit_test(test_subject_can_be_forced),
        cmocka_unit_test(test_nan_in_a_checkpoint_differs),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_tokens_of_a_capture),
        cmocka_unit_test(test_complex_against_real),
        cmocka_unit_test(test_what_quantizing_does),
        cmocka_unit_test(test_references_are_doubted_too),
        cmocka_unit_test(test_a_token_in_front),
        cmocka_unit_test(test_a_shard_lacks_no_tokens),
        cmocka_unit_test(test_bytes_of_another_type),
        cmocka_unit_test(test_misread_bytes_are_no_slice),
        cmocka_unit_test(test_captured_tokens_differ),
        cmocka_unit_test(test_what_a_rule_allows),
        cmocka_unit_test(test_what_carries_what_a_rule_allows),
        cmocka_unit_test(test_few_numbers_are_no_precision),
        cmocka_unit_test(test_one_turned_among_siblings),
        cmocka_unit_test(test_cosine_of_unequal_sizes),
        cmocka_unit_test(test_constants_on_both_sides_show_nothing),
        cmocka_unit_test(test_one_element_is_no_rounding),
        cmocka_unit_test(test_four_bits_hide_no_factor_and_no_row),
        cmocka_unit_test(test_sums_are_as_coarse_as_their_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
