/* Attention of prompts that people have, seen by hooks on modules: queries, keys and values as the projections give
 * them, heads side by side, and what the output projection makes, whose weight is not at hand. */
#include "made_trace.h"

enum { HEADS = 4, SERVED = 2, SIZE = 16, WIDTH = HEADS * SIZE, NARROW = SERVED * SIZE, HIDDEN = 80, MOST = 264 };

struct turning {
    double theta, scale; /* positions are divided by it */
    bool interleaved;
    size_t group;
};

/* What becomes of a head of the context. */
enum fate {
    UNTOUCHED,
    ROLLED,
    REVERSED,
    SHUFFLED,
    HALVED,
    RAISED,
    NEGATED,
    LATE,
    EXCHANGED,
    COPIED,
    LEFT_OUT,
    HALF_LEFT_OUT,
    UNIFORM, /* its query is zero */
    NOISE,
};
#define CHOSEN 2 /* the head, and another one */
#define OTHER  1

struct way {
    enum fate fate;
    struct turning q, k;
    bool tiled_keys, tiled_values, masked_late, half_missing;
    long window;
    size_t end;    /* of what is written; 0: all */
    size_t others; /* every so many-th token has gone another way before: other queries, keys and values */
    double uneven; /* how much larger than one the weight is behind the last head, and smaller behind the first */
};

static const struct turning plain = {1e4, 1, false, SIZE};
static float operands[2][3][MOST * WIDTH], contexts[2][MOST * WIDTH], outputs[2][MOST * HIDDEN];

static void turn(const struct turning *how, size_t token, const float *from, double *out)
{
    const size_t pairs = how->group / 2;
    for (size_t i = 0; i < SIZE; i++)
        out[i] = (double)from[i];
    for (size_t i = 0; i < pairs; i++) {
        const double angle = (double)token / how->scale * pow(how->theta, -(double)i / (double)pairs);
        const size_t one = how->interleaved ? 2 * i : i, other = how->interleaved ? one + 1 : one + pairs;
        out[one] = (double)from[one] * cos(angle) - (double)from[other] * sin(angle);
        out[other] = (double)from[one] * sin(angle) + (double)from[other] * cos(angle);
    }
}

static void attend(const struct way *way, int side, size_t tokens)
{
    static double keys[MOST][SIZE], weights[MOST];
    for (size_t head = 0; head < HEADS; head++) {
        const size_t key_head = way->tiled_keys ? head % SERVED : head / (HEADS / SERVED);
        const size_t value_head = way->tiled_values ? head % SERVED : head / (HEADS / SERVED);
        for (size_t s = 0; s < tokens; s++)
            turn(&way->k, s, operands[side][1] + s * NARROW + key_head * SIZE, keys[s]);
        for (size_t t = 0; t < tokens; t++) {
            float *out = contexts[side] + t * WIDTH + head * SIZE;
            const size_t first = way->window && t + 1 > (size_t)way->window ? t + 1 - (size_t)way->window : 0;
            double query[SIZE], sum = 0;
            turn(&way->q, t, operands[side][0] + t * WIDTH + head * SIZE, query);
            for (size_t i = 0; i < SIZE && way->fate == UNIFORM && head == CHOSEN; i++)
                query[i] = 0;
            for (size_t s = 0; s < tokens; s++) {
                double score = 0;
                for (size_t i = 0; i < SIZE; i++)
                    score += query[i] * keys[s][i];
                weights[s] = exp(score / sqrt(SIZE));
                sum += way->masked_late || (s >= first && s <= t) ? weights[s] : 0;
            }
            for (size_t i = 0; i < SIZE; i++) {
                double value = 0;
                for (size_t s = first; s <= t; s++)
                    value += weights[s] / sum * (double)operands[side][2][s * NARROW + value_head * SIZE + i];
                out[i] = (way->half_missing && head >= HEADS / 2) || (way->end && t >= way->end) ? 0 : (float)value;
            }
        }
    }
}

static float fated(enum fate fate, size_t token, size_t i)
{
    static const size_t shuffled[SIZE] = {3, 9, 14, 0, 7, 12, 1, 10, 5, 15, 2, 8, 4, 13, 6, 11};
    const float *line = contexts[1] + token * WIDTH, *own = line + CHOSEN * SIZE, *other = line + OTHER * SIZE;
    switch (fate) {
    case ROLLED:
        return own[(i + SIZE - 3) % SIZE];
    case REVERSED:
        return own[SIZE - 1 - i];
    case SHUFFLED:
        return own[shuffled[i]];
    case HALVED:
        return own[i] / 2;
    case RAISED:
        return own[i] * 1.4F;
    case NEGATED:
        return -own[i];
    case LATE:
        return token ? (own - WIDTH)[i] : own[i];
    case EXCHANGED:
    case COPIED:
        return other[i];
    case HALF_LEFT_OUT:
        return i < SIZE / 2 ? 0 : own[i];
    case LEFT_OUT:
        return 0;
    case NOISE:
        return (float)dice_number() / 2;
    default:
        return own[i];
    }
}

static void befall(enum fate fate, size_t tokens)
{
    for (size_t t = tokens; t-- > 0;) {
        float head[SIZE];
        for (size_t i = 0; i < SIZE; i++)
            head[i] = fated(fate, t, i);
        if (fate == EXCHANGED)
            memcpy(contexts[1] + t * WIDTH + OTHER * SIZE, contexts[1] + t * WIDTH + CHOSEN * SIZE, sizeof head);
        memcpy(contexts[1] + t * WIDTH + CHOSEN * SIZE, head, sizeof head);
    }
}

static double shaken(double x, double noise)
{
    return x * (1 + noise * dice_number());
}

/* context: it was captured as well. */
static void make(struct trace *trace, struct way right, struct way wrong, size_t tokens, double noise, bool context)
{
    static const char *const names[] = {"q_proj", "k_proj", "v_proj"};
    static float weight[HIDDEN * WIDTH];
    char name[64];
    trace_start(trace);
    for (size_t i = 0; i < HIDDEN * WIDTH; i++)
        weight[i] = (float)(dice_number() * (1 + right.uneven * (2.0 * (double)(i % WIDTH / SIZE) / (HEADS - 1) - 1)));
    for (int k = 0; k < 3; k++) {
        const size_t width = k ? NARROW : WIDTH;
        for (size_t i = 0; i < tokens * width; i++) {
            operands[0][k][i] = (float)((k < 2 ? 2 : 1) * (dice_number() + dice_number()));
            operands[1][k][i] = (float)shaken((double)operands[0][k][i], noise);
            if (wrong.others && i / width % wrong.others == wrong.others / 2)
                operands[1][k][i] = (float)((k < 2 ? 2 : 1) * (dice_number() + dice_number()));
        }
        snprintf(name, sizeof name, "model.layers.2.self_attn.%s", names[k]);
        trace_add(trace, name, operands[0][k], operands[1][k], SHAPE(1, tokens, width));
    }
    for (int side = 0; side < 2; side++) {
        attend(side ? &wrong : &right, side, tokens);
        if (side)
            befall(wrong.fate, tokens);
        for (size_t at = 0; at < tokens * HIDDEN; at++) {
            double sum = 0;
            for (size_t i = 0; i < WIDTH; i++)
                sum += (double)weight[at % HIDDEN * WIDTH + i] * (double)contexts[side][at / HIDDEN * WIDTH + i];
            outputs[side][at] = (float)shaken(sum, side ? noise : 0);
        }
    }
    if (context)
        trace_diagnose(trace, trace_add(trace, "model.layers.2.self_attn.attn_context", contexts[0], contexts[1],
                                        SHAPE(1, tokens, WIDTH)));
    else
        trace_diagnose(trace, trace_add(trace, "model.layers.2.self_attn.o_proj", outputs[0], outputs[1],
                                        SHAPE(1, tokens, HIDDEN)));
}

static void expect(struct way right, struct way wrong, size_t tokens, const char *id, const char *words)
{
    static unsigned asked;
    if (SANITIZED && asked++ % 2) /* of all that is asked, half */
        return;
    for (int coarse = SANITIZED || tokens > 256; coarse < 2; coarse++) { /* of what takes long, once */
        struct trace trace;
        make(&trace, right, wrong, tokens, coarse ? 3e-3 : 1e-7, false);
        assert_first(&trace, id, words);
        if (tokens > 256)
            assert_non_null(strstr(trace.diagnosis.causes[0].summary, "checked on all 264 tokens"));
        trace_end(&trace);
    }
}

/* Queries or keys alone that turn in another way, in sequences of which all or some tokens are looked at. */
static void test_turned_apart(void **state)
{
    static const size_t lengths[] = {60, MOST};
    const struct way right = {.q = plain, .k = plain};
    (void)state;
    for (size_t n = 0; n < (SANITIZED ? 1 : sizeof lengths / sizeof *lengths); n++) {
        struct way wrong = right;
        wrong.q.interleaved = true;
        expect(right, wrong, lengths[n], "rotation", "rotates the wrong pairs of the queries (interleaved)");
        wrong = right;
        wrong.k.group = SIZE / 2;
        expect(right, wrong, lengths[n], "rotation", "rotates half as many channels of each head of the keys");
        wrong = right;
        wrong.k.theta = 3e5;
        expect(right, wrong, lengths[n], "rotation", "rotary angles of the keys fit theta = ");
        wrong = right;
        wrong.q.theta = wrong.k.theta = 1e6;
        expect(right, wrong, lengths[n], "rotation", "theta = 1000000, the reference's theta = 10000");
    }
}

/* A reference that rotates a quarter of each head, and candidates that rotate all of it, or no pairs of it rightly. */
static void test_quarter_of_heads(void **state)
{
    struct way right = {.q = plain, .k = plain}, wrong;
    (void)state;
    right.q.group = right.k.group = SIZE / 4;
    wrong = right;
    wrong.q.group = wrong.k.group = SIZE;
    expect(right, wrong, 40, "rotation", "rotates all channels of each head (16 instead of 4)");
    wrong = right;
    wrong.q.interleaved = wrong.k.interleaved = true;
    expect(right, wrong, 40, "rotation", "rotates the wrong pairs (interleaved)");
}

/* A reference that divides its positions. */
static void test_scaled_positions(void **state)
{
    struct way right = {.q = plain, .k = plain}, wrong;
    (void)state;
    right.q.scale = right.k.scale = 4;
    right.q.theta = right.k.theta = 1e6;
    wrong = right;
    wrong.q.scale = wrong.k.scale = 1;
    expect(right, wrong, MOST, "rotation", "angles are 4 times the reference's");
}

static void test_masks_and_heads(void **state)
{
    static const size_t lengths[] = {60, MOST};
    const struct way right = {.q = plain, .k = plain};
    (void)state;
    for (size_t n = 0; n < (SANITIZED ? 1 : sizeof lengths / sizeof *lengths); n++) {
        struct way wrong = right;
        wrong.masked_late = true;
        expect(right, wrong, lengths[n], "mask", "the mask after the softmax");
        wrong = right;
        wrong.window = 40;
        expect(right, wrong, lengths[n], "mask", "a sliding window of 40 tokens");
        wrong = right;
        wrong.tiled_values = true;
        expect(right, wrong, lengths[n], "heads", "tiles the value heads instead of repeating each");
        wrong = right;
        wrong.tiled_keys = true;
        expect(right, wrong, lengths[n], "heads", "tiles the key heads instead of repeating each");
    }
}

/* A reference that has a window, and a candidate with another one or none. */
static void test_windows_of_both(void **state)
{
    struct way right = {.q = plain, .k = plain, .window = 24}, wrong = right;
    (void)state;
    wrong.window = 12;
    expect(right, wrong, 60, "mask", "the candidate's sliding window is 12 tokens, the reference's 24");
    wrong.window = 0;
    expect(right, wrong, 60, "mask", "the candidate lacks the sliding window of 24 tokens");
}

/* Where the context was captured it is told exactly. */
static void test_contexts(void **state)
{
    const struct way right = {.q = plain, .k = plain};
    struct way wrong[3] = {right, right, right};
    static const char *const ids[] = {"heads", "mask", "rotation"},
                             *const words[] = {
                                 "tiles the value heads instead of repeating each; the key heads are right",
                                 "the mask after the softmax", "the wrong pairs of the keys"};
    (void)state;
    wrong[0].tiled_values = wrong[1].masked_late = wrong[2].k.interleaved = true;
    for (size_t i = 0; i < 3; i++) {
        struct trace trace;
        make(&trace, right, wrong[i], MOST, 1e-7, true);
        assert_first(&trace, ids[i], words[i]);
        assert_non_null(strstr(trace.diagnosis.causes[0].summary, "checked on all 264 tokens"));
        assert_true(trace.diagnosis.causes[0].confidence > 0.95);
        trace_end(&trace);
    }
}

/* Whatever becomes of one head, the tokens are wrong in the same directions. Only what was left out is missing. */
static void test_fates_of_a_head(void **state)
{
    static const struct {
        enum fate fate;
        const char *id, *words;
    } told[] = {
        {ROLLED, "permuted", "of the 4 heads of the context, the numbers of head 2 are rolled by 3 of head_dim ("},
        {REVERSED, "permuted", "the numbers of head 2 stand in reverse order ("},
        {SHUFFLED, "heads", "head 2 alone is wrong: it counts, but its numbers stand in another order or meet"},
        {HALVED, "scaled", "head 2 is 0.5 times what it should be ("},
        {NEGATED, "sign-flipped", "head 2 has the other sign ("},
        {LATE, "shifted", "head 2 is one token late: each token has that of the token before it ("},
        {EXCHANGED, "permuted", "heads 1 and 2 are exchanged ("},
        {COPIED, "heads", "head 2 holds a copy of head 1 ("},
        {LEFT_OUT, "term-missing", "of the 4 heads of the context, head 2 is missing ("},
        {HALF_LEFT_OUT, "term-missing", "of the 4 heads of the context, the first half of head 2 is missing ("}};
    (void)state;
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        for (int turned = 0; turned < 2; turned++) {
            struct way right = {.q = plain, .k = plain}, wrong;
            right.q.group = right.k.group = turned ? SIZE : 0;
            wrong = right;
            wrong.fate = told[i].fate;
            expect(right, wrong, 40, told[i].id, told[i].words);
        }
}

/* What none of these explains is not said to be one of them. */
static void test_other_fates(void **state)
{
    static const enum fate fates[] = {UNIFORM, NOISE, RAISED};
    (void)state;
    for (size_t i = 0; i < sizeof fates / sizeof *fates; i++)
        for (int coarse = 0; coarse < 2; coarse++) {
            const struct way right = {.q = plain, .k = plain};
            struct way wrong = right;
            struct trace trace;
            wrong.fate = fates[i];
            make(&trace, right, wrong, 40, coarse ? 3e-3 : 1e-7, false);
            for (size_t k = 0; k < trace.diagnosis.count; k++)
                if (trace.diagnosis.causes[k].confidence > 0.5) {
                    trace_print(&trace);
                    fail_msg("a head is blamed for what it has not done");
                }
            trace_end(&trace);
        }
}

/* Where the weight is larger behind some heads than behind others, sizes say nothing of what became of one. */
static void test_uneven_weights(void **state)
{
    static const enum fate fates[] = {SHUFFLED, HALVED, RAISED, NEGATED, COPIED, LEFT_OUT};
    (void)state;
    for (size_t i = 0; i < sizeof fates / sizeof *fates; i++)
        for (int coarse = 0; coarse < 2; coarse++) {
            const struct way right = {.q = plain, .k = plain, .uneven = 2.0 / 3};
            struct way wrong = right;
            struct trace trace;
            wrong.fate = fates[i];
            make(&trace, right, wrong, 40, coarse ? 3e-3 : 1e-7, false);
            for (size_t k = 0; k < trace.diagnosis.count; k++)
                if (strstr(trace.diagnosis.causes[k].summary, "is not at hand")) {
                    trace_print(&trace);
                    fail_msg("fate %d is told by sizes", (int)fates[i]);
                }
            trace_end(&trace);
        }
}

/* A claim that cannot be put to all tokens is no surer than those that told it. */
static void test_told_by_some(void **state)
{
    struct way right = {.q = plain, .k = plain}, wrong = right;
    const char *told, *checked;
    struct trace trace;
    (void)state;
    wrong.half_missing = true;
    make(&trace, right, wrong, MOST, 1e-7, false);
    assert_first(&trace, "term-missing", "of 2 equal pieces of the context, piece 1 is missing");
    told = strstr(trace.diagnosis.causes[0].summary, "told by how ");
    checked = strstr(trace.diagnosis.causes[0].summary, "checked on ");
    assert_true(told && checked && strstr(checked, " of 264 tokens"));
    assert_int_equal(atoi(told + strlen("told by how ")), atoi(checked + strlen("checked on ")));
    trace_end(&trace);
}

/* Where a part is not written, no way to do attention can be weighed. */
static void test_unwritten_end(void **state)
{
    const struct way right = {.q = plain, .k = plain};
    struct way wrong = right;
    (void)state;
    wrong.end = 30;
    expect(right, wrong, 37, "zeros", "zero in tokens 30 to 36");
}

/* Weights that were given are not said to be missing, though these steps are told without them. */
static void test_weights_that_are_not_used(void **state)
{
    struct way right = {.q = plain, .k = plain}, wrong = right;
    struct ts_bundle *file = ts_bundle_new("weights");
    float *weight = made_values(HIDDEN * WIDTH);
    struct trace trace;
    struct ts_error error;
    (void)state;
    wrong.q.interleaved = wrong.k.interleaved = true;
    made_add(file, "model.layers.2.self_attn.o_proj.weight", weight, SHAPE(HIDDEN, WIDTH));
    make(&trace, right, wrong, 40, 1e-7, false);
    assert_int_equal(ts_evidence_make(file, NULL, NULL, &trace.evidence, &error), TS_OK);
    trace_diagnose(&trace, trace.count - 1);
    assert_first(&trace, "rotation", "(the weight behind it is not used: told by how ");
    trace_end(&trace);
    free(weight);
}

/* Tokens that took other experts before are keys and values of the others, and what those make of them is right. */
static void test_tokens_that_went_another_way(void **state)
{
    const struct way right = {.q = plain, .k = plain};
    (void)state;
    for (size_t others = 7; others <= 29; others += 11) {
        struct trace trace;
        make(&trace, right, (struct way){.q = plain, .k = plain, .others = others}, 60, 3e-3, false);
        for (size_t i = 0; i < trace.diagnosis.count; i++)
            if (strstr(trace.diagnosis.causes[i].summary, "in the attention between")) {
                trace_print(&trace);
                fail_msg("attention is blamed for what came in");
            }
        trace_end(&trace);
    }
}

/* Rounding alone is nobody's fault. */
static void test_silence(void **state)
{
    const struct way right = {.q = plain, .k = plain};
    static const size_t lengths[] = {60, MOST};
    (void)state;
    for (size_t n = 0; n < (SANITIZED ? 1 : sizeof lengths / sizeof *lengths); n++) {
        struct trace trace;
        make(&trace, right, right, lengths[n], 3e-3, false);
        for (size_t i = 0; i < trace.diagnosis.count; i++)
            if (strstr(trace.diagnosis.causes[i].summary, "is not at hand")) {
                trace_print(&trace);
                fail_msg("attention is blamed for what it has not done");
            }
        trace_end(&trace);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_turned_apart),
                                       cmocka_unit_test(test_quarter_of_heads),
                                       cmocka_unit_test(test_scaled_positions),
                                       cmocka_unit_test(test_masks_and_heads),
                                       cmocka_unit_test(test_windows_of_both),
                                       cmocka_unit_test(test_contexts),
                                       cmocka_unit_test(test_fates_of_a_head),
                                       cmocka_unit_test(test_other_fates),
                                       cmocka_unit_test(test_uneven_weights),
                                       cmocka_unit_test(test_told_by_some),
                                       cmocka_unit_test(test_unwritten_end),
                                       cmocka_unit_test(test_weights_that_are_not_used),
                                       cmocka_unit_test(test_tokens_that_went_another_way),
                                       cmocka_unit_test(test_silence)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
