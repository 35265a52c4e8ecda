/* Experts that are modules of their own, with a row for each token that chose them: two runs send some tokens to
 * different ones. */
#include <math.h>

#include "made_bundle.h"

enum { TOKENS = 14, EXPERTS = 4, CHOSEN = 2, WIDTH = 8 };

/* How a run takes its tokens. */
struct habit {
    bool by_rank; /* first those whose first choice it is */
    bool last;    /* of equal logits the last one */
    bool no_router, indices;
    bool twice;      /* lists each token's first expert twice, and that has two rows of it */
    bool empty;      /* modules are called without tokens */
    bool wide;       /* of rows, for complex numbers */
    bool alike;      /* all tokens of an expert are */
    size_t captured; /* how many of the experts; 0: all */
};

static float value_of(int layer, size_t token, size_t expert, size_t i)
{
    const double x = (double)(layer * 131 + (int)token * 17 + (int)expert * 71) * 12.9898 + (double)i * 78.233;
    return (float)(2 * sin(x * 43.7) + cos(x * 7.3));
}

static size_t best_of(const float *logits, const bool *used, bool last)
{
    size_t best = EXPERTS;
    for (size_t e = 0; e < EXPERTS; e++)
        if (!used[e] && (best == EXPERTS || logits[e] > logits[best] || (last && logits[e] >= logits[best])))
            best = e;
    return best;
}

/* What the router of a layer and its experts give out; wrong: a token whose rows are those of a bug. */
static void add_layer(struct ts_bundle *bundle, int layer, const float *logits, const struct habit *habit, size_t wrong)
{
    size_t chosen[TOKENS][CHOSEN];
    const size_t width = habit->wide ? 5 * WIDTH : WIDTH;
    float indices[TOKENS * CHOSEN], rows[TOKENS * CHOSEN * 5 * WIDTH];
    for (size_t token = 0; token < TOKENS; token++) {
        bool used[EXPERTS] = {false};
        for (size_t k = 0; k < CHOSEN; k++) {
            chosen[token][k] =
                k && habit->twice ? chosen[token][0] : best_of(logits + token * EXPERTS, used, habit->last);
            used[chosen[token][k]] = true;
            indices[token * CHOSEN + k] = (float)chosen[token][k];
        }
    }
    if (!habit->no_router && !habit->indices)
        made_add(bundle, made_name("model.layers.%d.mlp.gate", layer), logits, SHAPE(TOKENS, EXPERTS));
    if (habit->indices) {
        struct ts_tensor *tensor;
        struct ts_error error;
        int32_t whole[TOKENS * CHOSEN];
        for (size_t i = 0; i < TOKENS * CHOSEN; i++)
            whole[i] = (int32_t)indices[i];
        memcpy(indices, whole, sizeof whole);
        made_add(bundle, made_name("model.layers.%d.mlp.gate.0", layer), indices, SHAPE(TOKENS, CHOSEN));
        tensor = ts_bundle_tensor(bundle, made_name("model.layers.%d.mlp.gate.0", layer));
        tensor->type = TS_I32;
        assert_int_equal(ts_tensor_finish(tensor, &error), TS_OK);
    }
    for (size_t expert = 0; expert < (habit->captured ? habit->captured : EXPERTS); expert++) {
        char name[80];
        size_t count = 0;
        for (size_t rank = 0; rank < (habit->by_rank ? CHOSEN : 1); rank++)
            for (size_t token = 0; token < TOKENS; token++)
                for (size_t k = 0; k < CHOSEN; k++) {
                    if (chosen[token][k] != expert || (habit->by_rank && k != rank))
                        continue;
                    for (size_t i = 0; i < width; i++)
                        rows[count * width + i] =
                            (token == wrong ? -1.0F : 1.0F) *
                            (habit->alike ? value_of(layer, 0, expert, i) + 0.1F * value_of(layer, token, expert, i)
                                          : value_of(layer, token, expert, i));
                    count++;
                }
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%zu.up_proj", layer, expert);
        if (count || habit->empty)
            made_add(bundle, name, rows, SHAPE(count, width));
    }
}

/* NULL where there is none. */
static const struct ts_pair *find(const struct paired *paired, const char *name)
{
    for (size_t i = 0; i < paired->pairing.count; i++)
        if (strcmp(paired->pairing.pairs[i].name, name) == 0)
            return &paired->pairing.pairs[i];
    return NULL;
}

/* So many rows stand beside each other, of which so many are not the same. */
static void assert_rows(const struct paired *paired, const char *name, size_t count, size_t unlike)
{
    const struct ts_pair *pair = find(paired, name);
    double a[WIDTH], b[WIDTH];
    struct ts_error error;
    size_t found = 0;
    assert_non_null(pair);
    assert_null(pair->problem);
    assert_int_equal(pair->a.shape[0], count);
    assert_int_equal(pair->b.shape[0], count);
    for (size_t row = 0; row < count; row++) {
        assert_int_equal(ts_view_read_f64(&pair->a, row * WIDTH, WIDTH, a, &error), TS_OK);
        assert_int_equal(ts_view_read_f64(&pair->b, row * WIDTH, WIDTH, b, &error), TS_OK);
        found += memcmp(a, b, sizeof a) != 0;
    }
    assert_int_equal(found, unlike);
}

/* Logits of one layer: every token chooses experts 0 and 1, or 1 and 2, ... in turn. */
static void fill(float *logits)
{
    for (size_t i = 0; i < TOKENS * EXPERTS; i++) {
        const size_t token = i / EXPERTS, first = token % 3, e = i % EXPERTS;
        logits[i] = e == first ? 3 : e == first + 1 ? 2 : 0.1F * (float)((token + e) % 5);
    }
}

static void send(float *logits, size_t token, size_t from, size_t to)
{
    const float kept = logits[token * EXPERTS + from];
    logits[token * EXPERTS + from] = logits[token * EXPERTS + to];
    logits[token * EXPERTS + to] = kept;
}

/* Tokens 0, 3, 6, 9 and 12 take experts 0 and 1; 1, 4, 7, 10, 13 take 1 and 2; 2, 5, 8, 11 take 2 and 3. Token 3 goes
 * from expert 0 to 2 in the candidate, and token 8 from 2 to 0. */
static void test_tokens_sent_elsewhere(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        const struct habit habit = {.by_rank = way == 1, .indices = way == 2, .no_router = way == 3};
        float logits[TOKENS * EXPERTS];
        struct paired paired;
        paired_start(&paired);
        fill(logits);
        add_layer(paired.a, 0, logits, &habit, SIZE_MAX);
        send(logits, 3, 0, 2);
        send(logits, 8, 2, 0);
        add_layer(paired.b, 0, logits, &habit, SIZE_MAX);
        paired_run(&paired, NULL);
        if (way == 3) { /* nothing tells which tokens these are */
            assert_false(has_note(&paired, "got other tokens"));
            paired_end(&paired);
            continue;
        }
        assert_rows(&paired, "model.layers.0.mlp.experts.0.up_proj", 4, 0);
        assert_rows(&paired, "model.layers.0.mlp.experts.1.up_proj", 10, 0); /* token 3 is in it on both sides */
        assert_rows(&paired, "model.layers.0.mlp.experts.2.up_proj", 8, 0);
        assert_rows(&paired, "model.layers.0.mlp.experts.3.up_proj", 4, 0);
        assert_non_null(strstr(find(&paired, "model.layers.0.mlp.experts.0.up_proj")->recipe,
                               "A: rows of 4 of 5 tokens, which both sides sent there"));
        assert_true(has_note(&paired, "experts got other tokens of A than of B in 2 tensors"));
        assert_int_equal(paired.pairing.only_a_count + paired.pairing.only_b_count, 0);
        if (way < 2) {
            const struct ts_strays *strays = find(&paired, "model.layers.0.mlp.gate")->strays;
            assert_non_null(strays);
            assert_int_equal(strays->count, 2);
            assert_int_equal(strays->tokens[0], 3);
            assert_int_equal(strays->tokens[1], 8);
            assert_true(strays->all);
        }
        paired_end(&paired);
    }
}

/* A row that is wrong is no token that went elsewhere: it stays, to be judged. */
static void test_wrong_rows_stay(void **state)
{
    const struct habit habit = {0};
    float logits[TOKENS * EXPERTS];
    struct paired paired;
    (void)state;
    paired_start(&paired);
    fill(logits);
    add_layer(paired.a, 0, logits, &habit, SIZE_MAX);
    send(logits, 3, 0, 2);
    add_layer(paired.b, 0, logits, &habit, 9);
    paired_run(&paired, NULL);
    assert_rows(&paired, "model.layers.0.mlp.experts.0.up_proj", 4, 1);
    assert_rows(&paired, "model.layers.0.mlp.experts.2.up_proj", 9, 0);
    paired_end(&paired);
}

/* Equal logits: the candidate takes the other of two, in two tokens of one expert. The rows tell. */
static void test_equal_logits(void **state)
{
    const struct habit first = {0}, last = {.last = true};
    float logits[TOKENS * EXPERTS];
    struct paired paired;
    (void)state;
    paired_start(&paired);
    fill(logits);
    for (size_t token = 4; token < 12; token += 3) /* 4, 7 and 10: expert 1, and 2 or 3 */
        logits[token * EXPERTS + 3] = logits[token * EXPERTS + 2];
    add_layer(paired.a, 0, logits, &first, SIZE_MAX);
    logits[4 * EXPERTS + 3] -= 0.01F;
    add_layer(paired.b, 0, logits, &last, SIZE_MAX);
    paired_run(&paired, NULL);
    assert_rows(&paired, "model.layers.0.mlp.experts.1.up_proj", 10, 0);
    assert_rows(&paired, "model.layers.0.mlp.experts.2.up_proj", 7, 0); /* 7 and 10 went to expert 3 */
    assert_rows(&paired, "model.layers.0.mlp.experts.3.up_proj", 4, 0);
    assert_int_equal(find(&paired, "model.layers.0.mlp.gate")->strays->count, 2);
    assert_false(find(&paired, "model.layers.0.mlp.gate")->strays->all);
    paired_end(&paired);
}

/* An expert that only one side's tokens chose has no partner, and lacks none; what a token holds that strayed before
 * is left out of later layers, and of no later step. */
static void test_idle_experts_and_later_layers(void **state)
{
    const struct habit habit = {0};
    float logits[TOKENS * EXPERTS];
    struct paired paired;
    (void)state;
    paired_start(&paired);
    fill(logits);
    for (size_t token = 0; token < TOKENS; token++) /* nobody wants expert 3, but token 2 of the reference */
        if (token % 3 == 2 && token != 2)
            send(logits, token, 3, 0);
    add_layer(paired.a, 0, logits, &habit, SIZE_MAX);
    add_layer(paired.a, 1, logits, &habit, SIZE_MAX);
    send(logits, 2, 3, 0);
    add_layer(paired.b, 0, logits, &habit, SIZE_MAX);
    send(logits, 2, 3, 0);
    add_layer(paired.b, 1, logits, &habit, SIZE_MAX);
    paired_run(&paired, NULL);
    assert_int_equal(paired.pairing.only_a_count + paired.pairing.only_b_count, 0);
    assert_true(has_note(&paired, "hold no token that both sides sent there"));
    assert_null(find(&paired, "model.layers.0.mlp.experts.3.up_proj"));
    assert_rows(&paired, "model.layers.0.mlp.experts.2.up_proj", 9, 0);
    assert_rows(&paired, "model.layers.1.mlp.experts.2.up_proj", 8, 0); /* without token 2 */
    assert_rows(&paired, "model.layers.1.mlp.experts.1.up_proj", 10, 0);
    paired_end(&paired);
}

/* Experts that take first those whose first choice they are. Token 6 has its two experts in another order in the
 * candidate, and stands elsewhere in both; token 3 strays. In the next layer nothing tells the order any more, and the
 * row of token 3 is left out where it stands. */
static void test_first_choices_first(void **state)
{
    const struct habit habit = {.by_rank = true};
    float logits[TOKENS * EXPERTS];
    struct paired paired;
    (void)state;
    for (int strays = 0; strays < 2; strays++) {
        paired_start(&paired);
        fill(logits);
        send(logits, 12, 0, 1);
        add_layer(paired.a, 0, logits, &habit, SIZE_MAX);
        add_layer(paired.a, 1, logits, &habit, SIZE_MAX);
        send(logits, 6, 0, 1);
        if (strays)
            send(logits, 3, 0, 2);
        add_layer(paired.b, 0, logits, &habit, SIZE_MAX);
        send(logits, 6, 0, 1);
        if (strays)
            send(logits, 3, 0, 2);
        add_layer(paired.b, 1, logits, &habit, strays ? 3 : SIZE_MAX);
        paired_run(&paired, NULL);
        for (int layer = 0; layer < 2; layer++) {
            assert_rows(&paired, made_name("model.layers.%d.mlp.experts.0.up_proj", layer), strays ? 4 : 5, 0);
            assert_rows(&paired, made_name("model.layers.%d.mlp.experts.1.up_proj", layer), strays && layer ? 9 : 10,
                        0);
        }
        paired_end(&paired);
    }
}

/* Of equal logits the two sides take another one for the first, so that tokens stand elsewhere among the rows of both
 * experts, which are much alike. */
static void test_first_of_equal_choices(void **state)
{
    const struct habit habits[2] = {{.by_rank = true, .alike = true}, {.by_rank = true, .alike = true, .last = true}};
    float logits[TOKENS * EXPERTS];
    struct paired paired;
    (void)state;
    paired_start(&paired);
    fill(logits);
    send(logits, 9, 0, 1); /* some token tells that they are taken by rank */
    add_layer(paired.a, 0, logits, &habits[0], SIZE_MAX);
    send(logits, 9, 0, 1);
    add_layer(paired.b, 0, logits, &habits[1], SIZE_MAX);
    for (size_t token = 3; token < TOKENS; token += 3)
        logits[token * EXPERTS + 1] = logits[token * EXPERTS];
    add_layer(paired.a, 1, logits, &habits[0], SIZE_MAX);
    add_layer(paired.b, 1, logits, &habits[1], SIZE_MAX);
    paired_run(&paired, NULL);
    for (int layer = 0; layer < 2; layer++) {
        assert_rows(&paired, made_name("model.layers.%d.mlp.experts.0.up_proj", layer), 5, 0);
        assert_rows(&paired, made_name("model.layers.%d.mlp.experts.1.up_proj", layer), 10, 0);
    }
    paired_end(&paired);
}

/* Modules that are called without tokens have no rows: an expert that only one side's tokens took has none to compare,
 * and one that nobody took is the same. */
static void test_called_without_tokens(void **state)
{
    const struct habit habit = {.empty = true};
    float logits[TOKENS * EXPERTS];
    struct paired paired;
    (void)state;
    paired_start(&paired);
    fill(logits);
    for (size_t token = 5; token < TOKENS; token += 3)
        send(logits, token, 3, 0);
    send(logits, 2, 3, 1); /* nobody takes expert 3 */
    add_layer(paired.a, 0, logits, &habit, SIZE_MAX);
    add_layer(paired.a, 1, logits, &habit, SIZE_MAX);
    add_layer(paired.b, 0, logits, &habit, SIZE_MAX);
    send(logits, 7, 1, 3);
    add_layer(paired.b, 1, logits, &habit, SIZE_MAX);
    paired_run(&paired, NULL);
    assert_non_null(find(&paired, "model.layers.0.mlp.experts.3.up_proj"));
    assert_null(find(&paired, "model.layers.1.mlp.experts.3.up_proj"));
    assert_int_equal(paired.pairing.only_a_count + paired.pairing.only_b_count, 0);
    assert_int_equal(paired.pairing.idle_a_count, 1);
    assert_int_equal(paired.pairing.idle_b_count, 1);
    assert_string_equal(paired.pairing.idle_b[0]->name, "model.layers.1.mlp.experts.3.up_proj");
    assert_int_equal(find(&paired, "model.layers.1.mlp.gate")->strays->tokens[0], 7);
    paired_end(&paired);
}

/* Where some experts alone were captured, others may have taken a token instead of each other: it strayed all the same.
 * A single one does not tell how many there are for a token. */
static void test_experts_that_were_not_captured(void **state)
{
    (void)state;
    for (size_t captured = 1; captured < 3; captured++) {
        const struct habit habit = {.captured = captured};
        const struct ts_strays *strays;
        float logits[TOKENS * EXPERTS];
        struct paired paired;
        paired_start(&paired);
        fill(logits);
        add_layer(paired.a, 0, logits, &habit, SIZE_MAX);
        send(logits, 7, 2, 3);
        add_layer(paired.b, 0, logits, &habit, SIZE_MAX);
        paired_run(&paired, NULL);
        assert_rows(&paired, "model.layers.0.mlp.experts.0.up_proj", 5, 0);
        strays = find(&paired, "model.layers.0.mlp.gate")->strays;
        assert_int_equal(strays ? strays->count : 0, captured - 1);
        assert_true(!strays || strays->tokens[0] == 7);
        paired_end(&paired);
    }
}

enum odd { TWICE, COMPLEX, SAMPLED, ODDITIES };

/* What is no choice, and rows that are none of real numbers, or not all of them: everything stays as it is. */
static void test_what_is_not_touched(void **state)
{
    (void)state;
    for (enum odd odd = TWICE; odd < ODDITIES; odd++) {
        const struct habit habit = {.indices = odd == TWICE, .twice = odd == TWICE, .wide = odd == COMPLEX};
        const char *const name = "model.layers.0.mlp.experts.0.up_proj";
        float logits[TOKENS * EXPERTS];
        struct paired paired;
        paired_start(&paired);
        fill(logits);
        add_layer(paired.a, 0, logits, &habit, SIZE_MAX);
        send(logits, 3, 0, 2);
        send(logits, 8, 2, 0);
        add_layer(paired.b, 0, logits, &habit, SIZE_MAX);
        for (int side = 0; side < 2; side++)
            for (int expert = 0; expert < EXPERTS; expert++) {
                struct ts_bundle *bundle = side ? paired.b : paired.a;
                const char *own = made_name("model.layers.0.mlp.experts.%d.up_proj", expert);
                if (odd == COMPLEX)
                    made_complex(bundle, own);
                if (odd == SAMPLED)
                    ts_bundle_tensor(bundle, own)->sampled = true;
            }
        paired_run(&paired, NULL);
        assert_non_null(find(&paired, name));
        assert_null(strstr(find(&paired, name)->recipe, "sent there"));
        assert_false(has_note(&paired, "got other tokens"));
        paired_end(&paired);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_sent_elsewhere),  cmocka_unit_test(test_wrong_rows_stay),
        cmocka_unit_test(test_equal_logits),           cmocka_unit_test(test_idle_experts_and_later_layers),
        cmocka_unit_test(test_first_of_equal_choices), cmocka_unit_test(test_first_choices_first),
        cmocka_unit_test(test_called_without_tokens),  cmocka_unit_test(test_experts_that_were_not_captured),
        cmocka_unit_test(test_what_is_not_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
