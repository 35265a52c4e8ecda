/* The proof of a claim on all rows: made of the rows that a case holds, put to those that it does not, with the numbers
 * that were found. Every cause is planted twice, once everywhere and once in no other rows than those that are looked
 * at, with something nearby elsewhere: the claim must lose what it does not explain, and a second look is taken. */
#include "hidden_rows.h"

enum { ROWS = 1500, CHANNELS = 64, HEADS = 4, SIZE = CHANNELS / HEADS, TOTAL = ROWS * CHANNELS };

struct plot {
    const char *id, *words;
    /* Makes a row of the output from rows of its inputs: as it should be (way 0), as it is (1), and as it is where
     * nobody looks at first (2). */
    void (*row)(size_t token, const float *x, const float *y, int way, float *out);
    uint64_t batch;                /* sequences; 0: one */
    const char *then, *then_words; /* what is found when it is looked at again where the claim fails */
    bool survives;                 /* the claim is still said, with its share */
    bool evidence;                 /* the model's weights are at hand */
};

static float weights[2][CHANNELS * CHANNELS]; /* that projections are made with */

struct made {
    float x[2][TOTAL], y[2][TOTAL], out[2][TOTAL];
    bool looked[ROWS];
    struct trace trace;
    size_t index;
};

static void make(struct made *made, const struct plot *plot, bool elsewhere)
{
    uint64_t shape[] = {plot->batch ? plot->batch : 1, ROWS / (plot->batch ? plot->batch : 1), CHANNELS};
    size_t length = (size_t)shape[1];
    trace_start(&made->trace);
    for (size_t i = 0; i < TOTAL; i++) {
        made->x[0][i] = (float)(dice_number() * 2);
        made->y[0][i] = (float)(dice_number() * 2);
    }
    shake(made->x[0], made->x[1], TOTAL, 1e-6);
    shake(made->y[0], made->y[1], TOTAL, 1e-6);
    for (int side = 0; side < 2; side++)
        for (size_t row = 0; row < ROWS; row++) {
            size_t at = row * CHANNELS;
            plot->row(row % length, made->x[side] + at, made->y[side] + at,
                      !side                             ? 0
                      : elsewhere && !made->looked[row] ? 2
                                                        : 1,
                      made->out[side] + at);
        }
    if (plot->evidence) {
        struct ts_bundle *file = ts_bundle_new("weights");
        struct ts_error error;
        made_add(file, "model.layers.2.self_attn.q_proj.weight", weights[0], SHAPE(CHANNELS, CHANNELS));
        made_add(file, "model.layers.2.self_attn.k_proj.weight", weights[1], SHAPE(CHANNELS, CHANNELS));
        assert_int_equal(ts_evidence_make(file, NULL, NULL, &made->trace.evidence, &error), TS_OK);
    }
    trace_add(&made->trace, "layer.0.input", made->x[0], made->x[1], 3, shape);
    trace_add(&made->trace, "layer.0.branch", made->y[0], made->y[1], 3, shape);
    made->index = trace_add(&made->trace, plot->evidence ? "model.layers.2.self_attn.q_proj" : "layer.0.output",
                            made->out[0], made->out[1], 3, shape);
}

static void expect_proof(const struct plot *plot)
{
    struct made *made = calloc(1, sizeof *made);
    const struct ts_cause *cause;
    char words[160];
    size_t failing = 0, first = ROWS;
    bool survived = false;
    assert_non_null(made);
    make(made, plot, false);
    trace_diagnose(&made->trace, made->index);
    assert_first(&made->trace, plot->id, plot->words);
    cause = &made->trace.diagnosis.causes[0];
    if (!strstr(cause->summary, "on all 1500 tokens") || cause->proof.rows != ROWS || cause->proof.of_rows != ROWS ||
        cause->confidence < 0.9 || strstr(cause->summary, "does not hold"))
        fail_msg("%s %.3f", cause->summary, cause->confidence);
    look_at_rows(&made->trace, made->index, made->looked);
    /* which rows are looked at depends a little on what is in them */
    for (int round = 0, news = 1; round < 20 && news; round++) {
        trace_end(&made->trace);
        make(made, plot, true);
        news = look_at_rows(&made->trace, made->index, made->looked);
        assert_true(round < 19);
    }
    for (size_t row = 0; row < ROWS; row++)
        if (!made->looked[row]) {
            first = failing++ ? first : row;
        }
    assert_true(failing > ROWS / 2);
    trace_diagnose(&made->trace, made->index);
    if (plot->then) {
        assert_first(&made->trace, plot->then, plot->then_words);
        cause = &made->trace.diagnosis.causes[0];
        assert_true(cause->confidence > 0.9 && cause->proof.rows == ROWS && cause->proof.of_rows == ROWS);
    }
    snprintf(words, sizeof words, "it does not hold in %zu of them, first in token %zu", failing, first);
    for (size_t i = 0; i < made->trace.diagnosis.count; i++) {
        cause = &made->trace.diagnosis.causes[i];
        if (strstr(cause->summary, plot->words) &&
            (!strstr(cause->summary, "on all 1500 tokens it explains") || !strstr(cause->summary, words) ||
             cause->confidence > 0.9 || cause->proof.rows != ROWS || cause->proof.explained > 0.9)) {
            trace_print(&made->trace);
            fail_msg("wanted: %s", words);
        }
        survived = survived || strstr(cause->summary, plot->words);
    }
    if (survived != plot->survives) {
        trace_print(&made->trace);
        fail_msg("the claim is %s", survived ? "still said" : "not said any more");
    }
    trace_end(&made->trace);
    free(made);
}

/* Nothing that is learnt. */
static void scaled(size_t token, const float *x, const float *y, int way, float *out)
{
    static const float factors[] = {1, 3, 2.4f};
    (void)token;
    for (size_t i = 0; i < CHANNELS; i++)
        out[i] = x[i] * y[(i + 1) % CHANNELS] * factors[way];
}

static void scaled_sum(size_t token, const float *x, const float *y, int way, float *out)
{
    static const float factors[] = {1, 3, 2.4f};
    (void)token;
    for (size_t i = 0; i < CHANNELS; i++)
        out[i] = (x[i] + y[i]) * factors[way];
}

static void shifted(size_t token, const float *x, const float *y, int way, float *out)
{
    static const float offsets[] = {0, 2, 1.4f};
    (void)token;
    for (size_t i = 0; i < CHANNELS; i++)
        out[i] = x[i] + y[i] + offsets[way];
}

static float channel_factor(size_t i, int way)
{
    float factor = 1.5f + (float)(i % 7) / 3;
    return way == 0 ? 1 : way == 1 ? factor : 1 + 0.7f * (factor - 1);
}

static void channels(size_t token, const float *x, const float *y, int way, float *out)
{
    (void)token;
    for (size_t i = 0; i < CHANNELS; i++)
        out[i] = (x[i] + y[i]) * channel_factor(i, way);
}

/* Of one term of a sum. */
static void channels_of_term(size_t token, const float *x, const float *y, int way, float *out)
{
    (void)token;
    for (size_t i = 0; i < CHANNELS; i++)
        out[i] = x[i] * channel_factor(i, way) + y[i];
}

/* Some channels still hold an earlier tensor. */
static void not_written(size_t token, const float *x, const float *y, int way, float *out)
{
    (void)token;
    for (size_t i = 0; i < CHANNELS; i++) {
        float right = x[i] * y[(i + 1) % CHANNELS];
        out[i] = way == 0 || i < CHANNELS / 2 ? right : way == 1 ? y[i] : 0.7f * y[i] + 0.3f * right;
    }
}

static void missing(size_t token, const float *x, const float *y, int way, float *out)
{
    static const float times[] = {1, 0, 0.3f};
    (void)token;
    for (size_t i = 0; i < CHANNELS; i++)
        out[i] = times[way] * x[i] + y[i];
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static void activated(size_t token, const float *x, const float *y, int way, float *out)
{
    (void)token;
    for (size_t i = 0; i < CHANNELS; i++) {
        double v = (double)x[i], relu = v > 0 ? v : 0;
        out[i] = (float)((way == 0 ? silu(v) : way == 1 ? relu : 0.7 * relu + 0.3 * silu(v)) * (double)y[i]);
    }
}

static void normed(size_t token, const float *x, const float *y, int way, float *out)
{
    static const double epsilons[] = {1e-5, 0.5, 0.33};
    double square = 0;
    (void)token;
    (void)y;
    for (size_t i = 0; i < CHANNELS; i++)
        square += (double)x[i] * (double)x[i] / CHANNELS;
    for (size_t i = 0; i < CHANNELS; i++)
        out[i] = (float)((double)x[i] / sqrt(square + epsilons[way]) * (1 + (double)(i % 5) / 4));
}

static void turned(size_t token, const float *x, const float *y, int way, float *out)
{
    static const double bases[] = {1e4, 2e2, 1e3};
    (void)y;
    for (size_t head = 0; head < HEADS; head++)
        for (size_t i = 0; i < SIZE / 2; i++) {
            double angle = (double)token * pow(bases[way], -2.0 * (double)i / SIZE), c = cos(angle), s = sin(angle);
            size_t p = head * SIZE + i, q = p + SIZE / 2;
            out[p] = (float)((double)x[p] * c - (double)x[q] * s);
            out[q] = (float)((double)x[p] * s + (double)x[q] * c);
        }
}

static void limited(size_t token, const float *x, const float *y, int way, float *out)
{
    static const float limits[] = {1e9f, 0.5f, 1.1f};
    (void)token;
    for (size_t i = 0; i < CHANNELS; i++) {
        float value = x[i] + y[i];
        out[i] = value > limits[way] ? limits[way] : value < -limits[way] ? -limits[way] : value;
    }
}

static void swapped_halves(size_t token, const float *x, const float *y, int way, float *out)
{
    (void)token;
    for (size_t i = 0; i < CHANNELS; i++) {
        size_t from = way == 0 ? i : (i + CHANNELS / 2) % CHANNELS;
        out[i] = x[from] * y[(from + 1) % CHANNELS];
        if (way == 2)
            out[i] = (out[i] + x[i] * y[(i + 1) % CHANNELS]) / 2;
    }
}

static void projected(size_t token, const float *x, const float *y, int way, float *out)
{
    static const float factors[] = {1, 3, 2.4f};
    (void)token;
    (void)y;
    for (size_t o = 0; o < CHANNELS; o++) {
        double sum = 0;
        for (size_t i = 0; i < CHANNELS; i++)
            sum += (double)weights[0][o * CHANNELS + i] * (double)x[i];
        out[o] = (float)sum * factors[way];
    }
}

/* With another weight of the file, or with something between the two. */
static void projected_otherwise(size_t token, const float *x, const float *y, int way, float *out)
{
    static const double shares[] = {0, 1, 0.75};
    (void)token;
    (void)y;
    for (size_t o = 0; o < CHANNELS; o++) {
        double sum = 0;
        for (size_t i = 0; i < CHANNELS; i++)
            sum += ((1 - shares[way]) * (double)weights[0][o * CHANNELS + i] +
                    shares[way] * (double)weights[1][o * CHANNELS + i]) *
                   (double)x[i];
        out[o] = (float)sum;
    }
}

static void test_products(void **state)
{
    (void)state;
    for (size_t i = 0; i < CHANNELS * CHANNELS; i++) {
        weights[0][i] = (float)dice_number();
        weights[1][i] = (float)dice_number();
    }
    expect_proof(&(struct plot){.id = "scaled",
                                .words = "3 times",
                                .row = projected,
                                .then = "row-scaled",
                                .then_words = "from 2.4 to 3; checked on all 1500 tokens",
                                .evidence = true});
    expect_proof(&(struct plot){
        .id = "swapped-with", .words = "k_proj", .row = projected_otherwise, .survives = true, .evidence = true});
}

static void test_numbers(void **state)
{
    (void)state;
    expect_proof(&(struct plot){.id = "scaled",
                                .words = "3 times",
                                .row = scaled,
                                .then = "row-scaled",
                                .then_words = "from 2.4 to 3; checked on all 1500 tokens"});
    expect_proof(&(struct plot){.id = "scaled",
                                .words = "3 times",
                                .row = scaled_sum,
                                .then = "row-scaled",
                                .then_words = "from 2.4 to 3; checked on all 1500 tokens"});
    expect_proof(&(struct plot){.id = "offset",
                                .words = "off by +2",
                                .row = shifted,
                                .then = "centering",
                                .then_words = "from 1.4 to 2; checked on all 1500 tokens"});
    expect_proof(&(struct plot){.id = "channel-scaled",
                                .words = "from 1.5 to 3.5",
                                .row = channels,
                                .then = "channel-scaled",
                                .then_words = "each channel"});
    expect_proof(&(struct plot){.id = "channel-scaled",
                                .words = "from 1.5 to 3.5",
                                .row = channels_of_term,
                                .then = "channel-scaled",
                                .then_words = "in the term layer.0.input of the sum: each channel"});
    expect_proof(&(struct plot){.id = "clamped", .words = "-0.5 to 0.5", .row = limited, .survives = true});
}

static void test_steps(void **state)
{
    (void)state;
    expect_proof(
        &(struct plot){.id = "term-missing", .words = "minus layer.0.input", .row = missing, .survives = true});
    expect_proof(&(struct plot){.id = "activation",
                                .words = "relu",
                                .row = activated,
                                .then = "activation",
                                .then_words = "an unknown function of"});
    expect_proof(&(struct plot){.id = "row-scaled",
                                .words = "0.5 in the candidate",
                                .row = normed,
                                .then = "row-scaled",
                                .then_words = "its own factor"});
    expect_proof(&(struct plot){.id = "stale", .words = "still hold layer.0.branch", .row = not_written});
    expect_proof(&(struct plot){.id = "rotation", .words = "theta = 200", .row = turned});
    expect_proof(&(struct plot){.id = "permuted", .words = "two halves", .row = swapped_halves});
}

/* The sequence with the worst element is looked at; a claim is put to all of them. */
static void test_batch(void **state)
{
    (void)state;
    expect_proof(&(struct plot){.id = "scaled",
                                .words = "3 times",
                                .row = scaled_sum,
                                .then = "row-scaled",
                                .then_words = "from 2.4 to 3; checked on all 1500 tokens",
                                .batch = 3});
    expect_proof(&(struct plot){.id = "rotation", .words = "theta = 200", .row = turned, .batch = 3});
}

enum { OUTPUTS = 40000 };

/* A parameter, of which a case holds a spread of rows. */
static void test_weights(void **state)
{
    size_t total = (size_t)OUTPUTS * CHANNELS;
    float *a = malloc(total * sizeof *a), *b = malloc(total * sizeof *b);
    bool *looked = calloc(OUTPUTS, sizeof *looked);
    struct trace trace;
    (void)state;
    assert_true(a && b && looked);
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        size_t index;
        trace_start(&trace);
        for (size_t i = 0; i < total; i++)
            a[i] = (float)(dice_number() * 2);
        for (size_t i = 0; i < total; i++)
            b[i] = a[i] * (elsewhere && !looked[i / CHANNELS] ? 2 : 3);
        index = trace_add(&trace, "layer.0.proj.weight", a, b, SHAPE(OUTPUTS, CHANNELS));
        look_at_rows(&trace, index, looked);
        trace_diagnose(&trace, index);
        assert_first(&trace, elsewhere ? "row-scaled" : "scaled",
                     elsewhere ? "from 2 to 3; checked on all 40000 rows" : "3 times");
        assert_true(trace.diagnosis.causes[0].proof.rows == OUTPUTS);
        assert_non_null(strstr(trace.diagnosis.causes[0].summary, "on all 40000 rows"));
        trace_end(&trace);
    }
    free(a);
    free(b);
    free(looked);
}

/* Three times what is expected. */
static bool predict_thrice(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    (void)formula;
    for (size_t i = 0; i < the_case->total; i++)
        out[i] = 3 * the_case->expected[i];
    return true;
}

/* Where a row costs so much that not all of them can be looked at, the summary says how many were. */
static void test_costly_rows(void **state)
{
    struct made *made = calloc(1, sizeof *made);
    struct ts_case_state *open;
    struct ts_diagnosis diagnosis;
    const struct ts_cause *cause;
    double *prediction;
    char words[64];
    (void)state;
    assert_non_null(made);
    make(made, &(struct plot){.row = scaled}, false);
    open = open_hidden(&made->trace, made->index, &diagnosis);
    prediction = ts_case_scratch(&open->face);
    assert_non_null(prediction);
    assert_true(predict_thrice(&open->face, NULL, prediction));
    ts_formula_next(&open->face, &(struct ts_formula){.predict = predict_thrice, .work = 1e9});
    assert_true(ts_propose(&open->face, "scaled", prediction, 1, "nothing", "three times") > 0.9);
    ts_case_prove(open);
    cause = &open->book->entries[0].cause;
    assert_true(cause->proof.rows > 0 && cause->proof.rows < ROWS && cause->proof.of_rows == ROWS);
    snprintf(words, sizeof words, "three times; checked on %.0f of 1500 tokens", cause->proof.rows);
    assert_string_equal(cause->summary, words);
    close_hidden(open, &diagnosis);
    trace_end(&made->trace);
    free(made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),  cmocka_unit_test(test_steps),   cmocka_unit_test(test_batch),
        cmocka_unit_test(test_products), cmocka_unit_test(test_weights), cmocka_unit_test(test_costly_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
