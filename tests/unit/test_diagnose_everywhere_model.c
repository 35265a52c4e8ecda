/* Claims about the steps of a model, put to every token of sequences of which a case holds a few: turns, experts,
 * attention, projections. */
#include "hidden_rows.h"

enum { ROWS = 1200, HEADS = 4, SIZE = 16, WIDTH = HEADS * SIZE, TOTAL = ROWS * WIDTH };

static float x[TOTAL], right[TOTAL], wrong[TOTAL];

static void fill(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(dice_number() + dice_number() + dice_number());
}

static bool is_hidden(const bool *hidden, size_t row)
{
    return hidden && hidden[row];
}

/* Pairs (i, i + half) of every head; the angle of each is given. */
static void turn_row(const float *from, double (*angle)(size_t row, size_t head, size_t pair, int way), size_t row,
                     int way, float *out)
{
    for (size_t head = 0; head < HEADS; head++)
        for (size_t i = 0; i < SIZE / 2; i++) {
            double turn = angle(row, head, i, way), c = cos(turn), s = sin(turn);
            size_t p = row * WIDTH + head * SIZE + i, q = p + SIZE / 2;
            out[p] = (float)((double)from[p] * c - (double)from[q] * s);
            out[q] = (float)((double)from[p] * s + (double)from[q] * c);
        }
}

static double frequency(double base, size_t pair)
{
    return pow(base, -2.0 * (double)pair / SIZE);
}

/* Numbers from 0 to 6.3 that look like any. */
static double any_angle(size_t a, size_t b)
{
    return 6.283 * fmod(0.618034 * (double)(a * 977 + b * 131 + 5), 1);
}

/* Way 0 is the reference's, 1 what is planted, 2 what stands where nobody looks at first. */
static double same_angles(size_t row, size_t head, size_t pair, int way)
{
    (void)row;
    (void)head;
    return way == 0 ? 0 : (way == 1 ? 3 : 9) * frequency(1e4, pair);
}

static double growing_angles(size_t row, size_t head, size_t pair, int way)
{
    (void)head;
    return way == 0 ? 0 : (double)row * (frequency(way == 1 ? 5e4 : 2e3, pair) - frequency(1e4, pair));
}

static double free_angles(size_t row, size_t head, size_t pair, int way)
{
    return way == 0 ? 0 : way == 1 ? any_angle(row, pair) : any_angle(row * HEADS + head, pair + 3);
}

static double (*angles)(size_t row, size_t head, size_t pair, int way);

/* What was turned was not captured. */
static size_t build_turned(struct trace *trace, const bool *hidden)
{
    fill(x, TOTAL);
    fill(right, TOTAL);
    for (size_t row = 0; row < ROWS; row++)
        turn_row(right, angles, row, is_hidden(hidden, row) ? 2 : 1, wrong);
    trace_add(trace, "model.embed", x, x, SHAPE(1, ROWS, WIDTH));
    return trace_add(trace, "model.layers.0.self_attn.q_norm", right, wrong, SHAPE(1, ROWS, HEADS, SIZE));
}

static double own_angles(size_t row, size_t head, size_t pair, int way)
{
    double plain = (double)row * frequency(1e4, pair);
    return way < 2 ? plain + (way == 0 ? 0 : any_angle(row, pair)) : any_angle(row * HEADS + head, pair + 3);
}

/* Every fifth token is at another position. */
static double moved_angles(size_t row, size_t head, size_t pair, int way)
{
    double offset = way && row % 5 == 3 ? 7 : 0;
    if (way == 2 && offset > 0)
        return any_angle(row * HEADS + head, pair + 3);
    return ((double)row + offset) * frequency(1e4, pair);
}

static size_t build_rotary(struct trace *trace, const bool *hidden)
{
    fill(x, TOTAL);
    for (size_t row = 0; row < ROWS; row++) {
        turn_row(x, angles, row, 0, right);
        turn_row(x, angles, row, is_hidden(hidden, row) ? 2 : 1, wrong);
    }
    trace_add(trace, "model.layers.0.self_attn.q_proj", x, x, SHAPE(1, ROWS, HEADS, SIZE));
    return trace_add(trace, "model.layers.0.self_attn.q_rope", right, wrong, SHAPE(1, ROWS, HEADS, SIZE));
}

static void test_turns(void **state)
{
    struct hidden_plan plan = {
        .id = "rotation", .rows = ROWS, .unit = "tokens", .build = build_turned, .least = 0.8, .silent_there = true};
    (void)state;
    angles = same_angles;
    plan.words = "positions are off by +3 (the angles fit theta = 10000)";
    expect_everywhere(&plan);
    angles = growing_angles;
    plan.words = "fit theta = 50000, the reference's theta = 10000";
    expect_everywhere(&plan);
    angles = free_angles;
    plan.words = "by different angles in each token";
    expect_everywhere(&plan);
    plan.build = build_rotary;
    angles = own_angles;
    plan.words = "keep their length but are rotated by other angles";
    expect_everywhere(&plan);
    angles = moved_angles;
    plan.words = "240 tokens are rotated as if at other positions: token 3 as at 10, token 8 as at 15";
    expect_everywhere(&plan);
}

/* Cosines of a rotary embedding, halves alike. */
static double table_theta;
static bool table_bent;

static size_t build_table(struct trace *trace, const bool *hidden)
{
    fill(x, TOTAL);
    for (size_t i = 0; i < TOTAL; i++) {
        size_t row = i / WIDTH, pair = i % (WIDTH / 2);
        double f = pow(1e4, -2.0 * (double)pair / WIDTH), g = pow(table_theta, -2.0 * (double)pair / WIDTH);
        g = table_bent && g < 0.3 ? g / 8 : g;
        g = is_hidden(hidden, row) ? 0.77 * g + 0.3 : g;
        right[i] = (float)cos((double)row * f);
        wrong[i] = (float)cos((double)row * g);
    }
    trace_add(trace, "model.embed", x, x, SHAPE(1, ROWS, WIDTH));
    return trace_add(trace, "model.rotary.cos", right, wrong, SHAPE(1, ROWS, WIDTH));
}

static void test_tables(void **state)
{
    struct hidden_plan plan = {.id = "rotation", .rows = ROWS, .unit = "tokens", .build = build_table, .least = 0.85};
    (void)state;
    table_theta = 1e6;
    table_bent = false;
    plan.words = "theta is 1000000 in the candidate, 10000 in the reference";
    expect_everywhere(&plan);
    table_theta = 1e4;
    table_bent = true;
    plan.words = "0.125 to 0.125 times the reference's";
    expect_everywhere(&plan);
}

enum { EXPERTS = 16, CHOSEN = 2 };

static float logits[ROWS * EXPERTS], weights[2][ROWS * CHOSEN];
static int64_t chosen[2][ROWS * CHOSEN];

/* A bias decides who is chosen, so that the logits alone do not tell. */
static void choose(bool biased)
{
    fill(logits, ROWS * EXPERTS);
    for (size_t row = 0; row < ROWS; row++) {
        const float *own = logits + row * EXPERTS;
        size_t best = SIZE_MAX, second = SIZE_MAX;
        for (size_t i = 0; i < EXPERTS; i++) {
            float score = own[i] + (biased ? 0.3f * (float)i : 0);
            if (best == SIZE_MAX || score > own[best] + (biased ? 0.3f * (float)best : 0)) {
                second = best;
                best = i;
            } else if (second == SIZE_MAX || score > own[second] + (biased ? 0.3f * (float)second : 0)) {
                second = i;
            }
        }
        chosen[0][row * CHOSEN] = (int64_t)best;
        chosen[0][row * CHOSEN + 1] = (int64_t)second;
    }
    memcpy(chosen[1], chosen[0], sizeof chosen[0]);
}

static double score(size_t row, size_t k, bool sigmoid)
{
    const float *own = logits + row * EXPERTS;
    double all = 0;
    if (sigmoid)
        return 1 / (1 + exp(-(double)own[chosen[0][row * CHOSEN + k]]));
    for (size_t i = 0; i < EXPERTS; i++)
        all += exp((double)own[i]);
    return exp((double)own[chosen[0][row * CHOSEN + k]]) / all;
}

static size_t build_gate(struct trace *trace, const bool *hidden)
{
    size_t index;
    choose(true);
    for (size_t row = 0; row < ROWS; row++)
        for (size_t k = 0; k < CHOSEN; k++) {
            double soft = score(row, 0, false) + score(row, 1, false);
            double divided = score(row, k, false) / soft, sigmoid = score(row, k, true);
            weights[0][row * CHOSEN + k] = (float)sigmoid;
            weights[1][row * CHOSEN + k] = (float)(is_hidden(hidden, row) ? 1.4 - divided : divided);
        }
    trace_add(trace, "layers.0.router.logits", logits, logits, SHAPE(ROWS, EXPERTS));
    index = trace_add(trace, "layers.0.router.weights", weights[0], weights[1], SHAPE(ROWS, CHOSEN));
    trace_add_integers(trace, "layers.0.router.indices", chosen[0], chosen[1], ROWS, CHOSEN);
    return index;
}

/* What each expert makes of a token: numbers of its own. */
static double made_by(size_t row, size_t expert, size_t i)
{
    return sin(0.37 * (double)(row * 31 + i * 7) + 1.7 * (double)((expert + 1) * (i + 3)));
}

enum mixed { EQUAL, ONE_EXPERT, NOT_WEIGHED };

static enum mixed mixed;

static size_t build_mixed(struct trace *trace, const bool *hidden)
{
    size_t count = mixed == NOT_WEIGHED ? 1 : CHOSEN;
    choose(false);
    for (size_t row = 0; row < ROWS; row++)
        for (size_t i = 0; i < WIDTH; i++) {
            size_t at = row * WIDTH + i;
            double own = 0, other = 0;
            for (size_t k = 0; k < count; k++) {
                size_t expert = (size_t)chosen[0][row * CHOSEN + k];
                double weight = 2 * score(row, k, false), made = made_by(row, expert, i);
                weights[0][row * count + k] = (float)weight;
                own += weight * made;
                other += mixed == ONE_EXPERT ? weight * (expert == 5 ? made_by(row, 40, i) : made) : made;
            }
            right[at] = (float)own;
            wrong[at] = (float)other;
            if (is_hidden(hidden, row))
                wrong[at] = mixed == ONE_EXPERT    ? right[at] * (chosen[0][row * CHOSEN] % 2 ? 1.5f : 1.2f)
                            : mixed == NOT_WEIGHED ? 0.5f * (right[at] + wrong[at])
                                                   : (float)made_by(row, 50, i);
        }
    trace_add(trace, "layers.0.router.logits", logits, logits, SHAPE(ROWS, EXPERTS));
    trace_add(trace, "layers.0.router.weights", weights[0], weights[0], SHAPE(ROWS, count));
    if (mixed != NOT_WEIGHED)
        trace_add_integers(trace, "layers.0.router.indices", chosen[0], chosen[1], ROWS, CHOSEN);
    return trace_add(trace, "layers.0.mlp.output", right, wrong, SHAPE(ROWS, WIDTH));
}

static void test_experts(void **state)
{
    struct hidden_plan plan = {.id = "router-gate", .rows = ROWS, .unit = "tokens"};
    size_t with = 0;
    char words[128];
    (void)state;
    plan.build = build_gate;
    plan.words = "the candidate's weights are softmax probabilities divided by their sum; the reference's are sigmoids";
    expect_everywhere(&plan);
    plan.build = build_mixed;
    mixed = NOT_WEIGHED;
    plan.words = "the candidate does not apply the router's weight";
    expect_everywhere(&plan);
    mixed = EQUAL;
    plan.least = 0.6;
    plan.words = "a plain sum of the chosen experts, without the router's weights";
    expect_everywhere(&plan);
    dice_state = 7;
    choose(false);
    for (size_t row = 0; row < ROWS; row++)
        with += chosen[0][row * CHOSEN] == 5 || chosen[0][row * CHOSEN + 1] == 5;
    snprintf(words, sizeof words, "only the %zu tokens that went to expert 5 are wrong; the other %zu agree", with,
             ROWS - with);
    mixed = ONE_EXPERT;
    plan.least = 0.8;
    plan.words = words;
    expect_everywhere(&plan);
}

/* The indices themselves: every token is looked at. */
static void test_routing(void **state)
{
    struct trace trace;
    (void)state;
    trace_start(&trace);
    choose(false);
    for (size_t row = 2; row < ROWS; row += 4) {
        chosen[1][row * CHOSEN] = chosen[0][row * CHOSEN + 1];
        chosen[1][row * CHOSEN + 1] = chosen[0][row * CHOSEN];
    }
    trace_add(&trace, "layers.0.router.logits", logits, logits, SHAPE(ROWS, EXPERTS));
    trace_add_integers(&trace, "layers.0.router.indices", chosen[0], chosen[1], ROWS, CHOSEN);
    trace_diagnose(&trace, 1);
    assert_non_null(trace_cause(&trace, "router-gate"));
    assert_non_null(
        strstr(trace_cause(&trace, "router-gate")->summary, "in 300 tokens the candidate lists the same experts"));
    trace_end(&trace);
}

enum { TOKENS = 320, FEW_HEADS = 2, KEY = 8, KEYS = FEW_HEADS * KEY };

static float q[TOKENS * KEYS], k[TOKENS * KEYS], scores[2][FEW_HEADS * TOKENS * TOKENS];

enum scored { STALE, ONE_BEFORE, BIASED };

static enum scored scored;

static double product(size_t head, size_t row, size_t key)
{
    double sum = 0;
    for (size_t i = 0; i < KEY; i++)
        sum += (double)q[row * KEYS + head * KEY + i] * (double)k[key * KEYS + head * KEY + i];
    return sum / sqrt(KEY);
}

static size_t build_scores(struct trace *trace, const bool *hidden)
{
    fill(q, TOKENS * KEYS);
    fill(k, TOKENS * KEYS);
    for (size_t head = 0; head < FEW_HEADS; head++)
        for (size_t row = 0; row < TOKENS; row++)
            for (size_t key = 0; key < TOKENS; key++) {
                size_t at = (head * TOKENS + row) * TOKENS + key;
                bool other = is_hidden(hidden, row);
                double own = product(head, row, key), found = own;
                if (scored == STALE && key == 100)
                    found = other ? own + 2 : product(head, row, 30);
                if (scored == ONE_BEFORE)
                    found = product(head, row, (key + TOKENS - 1) % TOKENS) + (other ? own : 0);
                if (scored == BIASED)
                    found = own + (other ? -0.03 : 0.011 * (double)(head + 1)) * ((double)row - (double)key);
                scores[0][at] = (float)own;
                scores[1][at] = (float)found;
            }
    trace_add(trace, "layers.0.attn.q", q, q, SHAPE(TOKENS, FEW_HEADS, KEY));
    trace_add(trace, "layers.0.attn.k", k, k, SHAPE(TOKENS, FEW_HEADS, KEY));
    return trace_add(trace, "layers.0.attn.scores", scores[0], scores[1], SHAPE(FEW_HEADS, TOKENS, TOKENS));
}

static void test_attention(void **state)
{
    struct hidden_plan plan = {.rows = TOKENS, .unit = "tokens", .build = build_scores};
    (void)state;
    scored = STALE;
    plan.id = "stale";
    plan.words = "key of token 100 is that of token 30";
    expect_everywhere(&plan);
    scored = ONE_BEFORE;
    plan.id = "shifted";
    plan.words = "each token gets the key of the token before it";
    expect_everywhere(&plan);
    scored = BIASED;
    plan.id = "term-extra";
    plan.words = "one slope per head from 0.011 to 0.022";
    expect_everywhere(&plan);
}

static float matrix[WIDTH * WIDTH];

enum projected { TRANSPOSED, UNDIVIDED, PARTIAL, UNRELATED };

static enum projected projected;

static size_t build_projected(struct trace *trace, const bool *hidden)
{
    static float normed[TOTAL];
    fill(matrix, WIDTH * WIDTH);
    for (size_t row = 0; row < ROWS; row++) {
        double size = exp(dice_number()), square = 0;
        for (size_t i = 0; i < WIDTH; i++) {
            double value = size * (dice_number() + dice_number());
            x[row * WIDTH + i] = (float)value;
            square += value * value / WIDTH;
        }
        for (size_t i = 0; i < WIDTH; i++)
            normed[row * WIDTH + i] = (float)((double)x[row * WIDTH + i] / sqrt(square) * (0.7 + (double)(i % 5) / 4));
    }
    for (size_t row = 0; row < ROWS; row++)
        for (size_t o = 0; o < WIDTH; o++) {
            double own = 0, turned = 0, plain = 0, part = 0;
            size_t at = row * WIDTH + o;
            for (size_t i = 0; i < WIDTH; i++) {
                double in = (double)normed[row * WIDTH + i] / sqrt(WIDTH), weight = (double)matrix[o * WIDTH + i];
                own += weight * in;
                turned += (double)matrix[i * WIDTH + o] * in;
                plain += weight * (double)x[row * WIDTH + i] / sqrt(WIDTH);
                part += i < WIDTH / 2 ? weight * in : 0;
            }
            right[at] = (float)own;
            wrong[at] = (float)(projected == TRANSPOSED ? turned : projected == UNDIVIDED ? plain : part);
            if (projected == UNRELATED)
                wrong[at] = (float)made_by(row, 3, o * o + 2 * row * row);
            if (is_hidden(hidden, row))
                wrong[at] = projected == TRANSPOSED || projected == UNDIVIDED ? (float)made_by(row, 3, o * o)
                            : projected == PARTIAL                            ? (float)(own + part)
                                                                              : (float)(1.5 * own);
        }
    if (projected == UNDIVIDED)
        trace_add(trace, "layers.0.residual", x, x, SHAPE(1, ROWS, WIDTH));
    if (projected != UNRELATED)
        trace_add(trace, "layers.0.norm", normed, normed, SHAPE(1, ROWS, WIDTH));
    return trace_add(trace, projected == UNRELATED ? "model.embed" : "layers.0.mlp.up_proj", right, wrong,
                     SHAPE(1, ROWS, WIDTH));
}

static void test_projections(void **state)
{
    struct hidden_plan plan = {.rows = ROWS, .unit = "tokens", .build = build_projected};
    (void)state;
    projected = TRANSPOSED;
    plan.id = "transposed-weight";
    plan.words = "the candidate uses the weight transposed";
    expect_everywhere(&plan);
    projected = UNDIVIDED;
    plan.id = "wrong-input";
    plan.words = "in proportion to the length of its row in layers.0.residual";
    plan.least = 0.8;
    expect_everywhere(&plan);
    projected = PARTIAL;
    plan.id = "term-missing";
    plan.words = "a part of a sum is missing";
    plan.least = 0.6;
    expect_everywhere(&plan);
    projected = UNRELATED;
    plan.id = "unrelated";
    plan.words = "no simple relation to the reference is left";
    plan.least = 0.7;
    expect_everywhere(&plan);
}

/* A norm over 64 numbers with weights: over pieces of 16 instead, or of heads that were cut out otherwise. */
static size_t norm_group;

static void norm_row(const float *from, size_t group, bool shuffled, float *out)
{
    for (size_t start = 0; start < WIDTH; start += group) {
        double square = 0;
        for (size_t i = start; i < start + group; i++) {
            double value = (double)from[shuffled ? i % HEADS * SIZE + i / HEADS : i];
            square += value * value / (double)group;
        }
        for (size_t i = start; i < start + group; i++)
            out[i] = (float)((double)from[shuffled ? i % HEADS * SIZE + i / HEADS : i] / sqrt(square + 1e-6) *
                             (0.5 + (double)(i % norm_group % 7) / 5));
    }
}

enum normed { PIECES, SHUFFLED };

static enum normed how_normed;

static size_t build_normed(struct trace *trace, const bool *hidden)
{
    fill(x, TOTAL);
    norm_group = how_normed == PIECES ? WIDTH : SIZE;
    for (size_t row = 0; row < ROWS; row++) {
        const float *from = x + row * WIDTH;
        norm_row(from, norm_group, false, right + row * WIDTH);
        norm_row(from, SIZE, how_normed == SHUFFLED, wrong + row * WIDTH);
        for (size_t i = row * WIDTH; i < (row + 1) * WIDTH && is_hidden(hidden, row); i++)
            wrong[i] = how_normed == PIECES ? 2 * right[i] - wrong[i] : 0.5f * (right[i] + wrong[i]);
    }
    if (how_normed == PIECES) {
        trace_add(trace, "layers.0.input", x, x, SHAPE(1, ROWS, WIDTH));
        return trace_add(trace, "layers.0.norm", right, wrong, SHAPE(1, ROWS, WIDTH));
    }
    trace_add(trace, "layers.0.attn.q", x, x, SHAPE(1, ROWS, HEADS, SIZE));
    return trace_add(trace, "layers.0.attn.q_norm", right, wrong, SHAPE(1, ROWS, HEADS, SIZE));
}

/* A chunk of a modulation gates what a step made. */
static size_t build_chunk(struct trace *trace, const bool *hidden)
{
    static float modulation[6 * WIDTH];
    fill(x, TOTAL);
    fill(modulation, 6 * WIDTH);
    for (size_t i = 0; i < TOTAL; i++) {
        right[i] = x[i] * modulation[2 * WIDTH + i % WIDTH];
        wrong[i] = x[i] * modulation[4 * WIDTH + i % WIDTH];
        wrong[i] = is_hidden(hidden, i / WIDTH) ? 0.5f * (right[i] + wrong[i]) : wrong[i];
    }
    trace_add(trace, "layers.0.modulation", modulation, modulation, SHAPE(1, 6 * WIDTH));
    trace_add(trace, "layers.0.mlp.down", x, x, SHAPE(1, ROWS, WIDTH));
    return trace_add(trace, "layers.0.mlp.gated", right, wrong, SHAPE(1, ROWS, WIDTH));
}

/* The keys' weight with the queries' bias. */
static size_t build_sibling(struct trace *trace, const bool *hidden)
{
    static float keys[TOTAL];
    fill(x, TOTAL);
    fill(keys, TOTAL);
    fill(right, TOTAL);
    for (size_t i = 0; i < TOTAL; i++) {
        keys[i] += 0.2f * (float)(i % WIDTH % 9);
        wrong[i] = keys[i] + 0.1f * (float)(i % WIDTH % 5) - 0.3f;
        wrong[i] = is_hidden(hidden, i / WIDTH) ? 0.6f * (right[i] + wrong[i]) : wrong[i];
    }
    trace_add(trace, "layers.0.norm", x, x, SHAPE(1, ROWS, WIDTH));
    trace_add(trace, "layers.0.self_attn.k_proj", keys, keys, SHAPE(1, ROWS, WIDTH));
    return trace_add(trace, "layers.0.self_attn.q_proj", right, wrong, SHAPE(1, ROWS, WIDTH));
}

static void test_steps(void **state)
{
    struct hidden_plan plan = {.rows = ROWS, .unit = "tokens", .build = build_normed, .silent_there = true};
    (void)state;
    how_normed = PIECES;
    plan.id = "row-scaled";
    plan.words = "normalizes pieces of 16 channels instead of all 64";
    expect_everywhere(&plan);
    how_normed = SHUFFLED;
    plan.id = "permuted";
    plan.words = "the candidate's norm gets the values of layers.0.attn.q in another order";
    expect_everywhere(&plan);
    plan.build = build_chunk;
    plan.id = "modulation";
    plan.words = "with chunk 4 of layers.0.modulation, the reference with chunk 2";
    expect_everywhere(&plan);
    plan.build = build_sibling;
    plan.id = "swapped-with";
    plan.words = "holds its own layers.0.self_attn.k_proj here, except for a constant per channel";
    expect_everywhere(&plan);
}

enum outside { LATER_TOKENS, SHARPER, SINKS };

static enum outside outside;

/* Attention of which nothing but the end was captured. */
static size_t build_outside(struct trace *trace, const bool *hidden)
{
    fill(x, TOTAL);
    fill(right, TOTAL);
    for (size_t row = 0; row < ROWS; row++)
        for (size_t i = 0; i < WIDTH; i++) {
            size_t at = row * WIDTH + i;
            double mean = outside == SHARPER ? 0.8 * (double)(i % 5) : 0;
            double factor = 0.4 + 0.08 * any_angle(row, i / SIZE * 17);
            bool other = is_hidden(hidden, row);
            if (outside == LATER_TOKENS)
                wrong[at] = row && !other ? right[at] + (float)(0.5 * made_by(row, 3, i * i)) : right[at];
            else if (outside == SHARPER)
                wrong[at] = (float)(mean + (other ? -0.5 : 1.9) * (double)right[at] + 0.4 * made_by(row, 3, i * i));
            else
                wrong[at] = (float)((other ? 2 - factor : factor) * (double)right[at]);
            right[at] += (float)mean;
        }
    trace_add(trace, "layers.0.norm", x, x, SHAPE(1, ROWS, WIDTH));
    return trace_add(trace, "layers.0.self_attn.context", right, wrong, SHAPE(1, ROWS, WIDTH));
}

static void test_from_outside(void **state)
{
    struct hidden_plan plan = {.rows = ROWS, .unit = "tokens", .build = build_outside, .id = "softmax"};
    (void)state;
    outside = LATER_TOKENS;
    plan.words = "the first token, which sees only itself, agrees and every later one is wrong";
    plan.least = 0.5;
    expect_everywhere(&plan);
    outside = SHARPER;
    plan.words = "the tokens differ from each other about 1.9 times as much as in the reference";
    expect_everywhere(&plan);
    outside = SINKS;
    plan.words = "each head (16 channels) of each token has its own factor";
    plan.least = 0.9;
    expect_everywhere(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),   cmocka_unit_test(test_tables),       cmocka_unit_test(test_experts),
        cmocka_unit_test(test_routing), cmocka_unit_test(test_attention),    cmocka_unit_test(test_projections),
        cmocka_unit_test(test_steps),   cmocka_unit_test(test_from_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
