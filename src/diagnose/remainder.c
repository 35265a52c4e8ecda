/* Owns what is said when no hypothesis holds and the error looks like that of coarser weights, which is no fault when
 * it is meant. A finding, not a prediction, and a modest one. */
#include <stdlib.h>

#include "base/ordered.h"
#include "compare/structure.h"
#include "diagnose/case.h"
#include "diagnose/variant.h"

/* Nothing is said of an error that is not this many times, in energy, what the tensors around it hold. */
#define ABOVE_NOISE 9.0
/* What came in agrees when it errs less than this share of what is found here. */
#define AGREES      0.34
#define LOOKED_BACK 8
/* Relative errors that rounded weights make: eight bits per channel at the one end, three in groups at the other. */
#define FINEST   2e-3
#define COARSEST 0.35
/* Cosine with an earlier tensor from which on that one was added in. */
#define PART_OF_IT 0.3
/* Tokens whose products are compared, and multiplications for it. */
#define TOKENS_MOST  48
#define TOKENS_LEAST 6
#define WORK_MOST    ((size_t)1 << 24)
/* Products of tokens that random numbers leave alike; measured on weights of 4 to 8 bits: 0.6 to 0.99. */
#define ALIKE 0.5
/* Correlation of the error with what is expected, and of a row's relative error with that of the one in the middle. */
#define FOLLOWS   0.08
#define LEAST_ROW 0.1
#define MOST_ROW  8.0
#define TOGETHER  16  /* of all tokens, those whose products are taken with each other */
#define PEAKED    3.0 /* times as much in single channels as the row in the middle has it */
#define SURE      0.4

struct spread {
    double relative;    /* size of the error over that of what was expected */
    double following;   /* correlation of the error with it */
    double least, most; /* of a row's relative error, over that of the row in the middle */
    double middle;      /* which is this, squared */
    double peaked; /* how much of a row's error stands in few channels, of the row in the middle; 1: in all alike */
};

struct row {
    double own, wrong, dot, peaked;
};

static struct row add_row(const struct ts_case *the_case, size_t row)
{
    size_t width = the_case->actor->width;
    struct row sums = {0};
    double fourth = 0;
    for (size_t i = row * width; i < (row + 1) * width; i++) {
        double x = the_case->expected[i], e = the_case->found[i] - x;
        if (!isfinite(x) || !isfinite(e))
            continue;
        sums.own += x * x;
        sums.wrong += e * e;
        sums.dot += x * e;
        fourth += e * e * e * e;
    }
    sums.peaked = sums.wrong > 0 ? fourth * (double)width / (sums.wrong * sums.wrong) : 0;
    return sums;
}

static bool measure(const struct ts_case *the_case, struct spread *spread)
{
    size_t rows = the_case->actor->rows, used = 0;
    double *levels = calloc(2 * rows, sizeof *levels), *peaks = levels ? levels + rows : NULL;
    double error = 0, size = 0, dot = 0;
    for (size_t row = 0; row < rows && levels; row++) {
        struct row sums = add_row(the_case, row);
        dot += sums.dot;
        size += sums.own;
        error += sums.wrong;
        if (!(sums.own > 0) || ts_case_aside(the_case, row))
            continue;
        peaks[used] = sums.peaked;
        levels[used++] = sums.wrong / sums.own;
    }
    if (levels && used) {
        qsort(levels, used, sizeof *levels, ts_by_value);
        spread->peaked = ts_nth(peaks, used, used / 2);
        spread->relative = size > 0 ? sqrt(error / size) : 0;
        spread->following = error > 0 && size > 0 ? dot / sqrt(error * size) : 0;
        spread->middle = levels[used / 2];
        spread->least = levels[used / 2] > 0 ? levels[0] / levels[used / 2] : 0;
        spread->most = levels[used / 2] > 0 ? levels[used - 1] / levels[used / 2] : (double)INFINITY;
    }
    free(levels);
    return used > 0 && size > 0 && error > 0;
}

/* Products of a row with another, of what is expected and of the error. */
static void products(const struct ts_case *the_case, size_t s, size_t t, double *own, double *wrong)
{
    size_t width = the_case->actor->width, i = 0;
    const double *x = the_case->expected + s * width, *y = the_case->expected + t * width;
    const double *p = the_case->found + s * width, *q = the_case->found + t * width;
    double sums[4] = {0}, errors[4] = {0}; /* in turn, for the sake of the processor */
    for (; i + 4 <= width; i += 4)
        for (size_t k = 0; k < 4; k++) {
            sums[k] += x[i + k] * y[i + k];
            errors[k] += (p[i + k] - x[i + k]) * (q[i + k] - y[i + k]);
        }
    for (; i < width; i++) {
        sums[0] += x[i] * y[i];
        errors[0] += (p[i] - x[i]) * (q[i] - y[i]);
    }
    *own = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    *wrong = (errors[0] + errors[1]) + (errors[2] + errors[3]);
}

/* Slots of a tally: the error, what is expected, their product, the error of rows that err as they should, how many of
 * those there are and of all; then sums about the angles between tokens. */
enum { ERROR, SIZE, DOT, EVEN, EVEN_ROWS, ROWS, X, Y, XX, YY, XY, ANGLES };

/* y = W x, and the error of other weights is E x: if E has no structure of its own, tokens keep their angles to each
 * other in both. Adds the angles between tokens of the error and those of what was expected. */
static void add_angles(const struct ts_case *the_case, size_t first, size_t tokens, double *sums)
{
    double own[TOKENS_MOST], wrong[TOKENS_MOST];
    for (size_t s = 0; s < tokens; s++) {
        products(the_case, first + s, first + s, &own[s], &wrong[s]);
        for (size_t t = 0; t < s; t++) {
            double a, b;
            products(the_case, first + s, first + t, &a, &b);
            a /= sqrt(own[s] * own[t]);
            b /= sqrt(wrong[s] * wrong[t]);
            if (!isfinite(a) || !isfinite(b))
                continue;
            sums[X] += a;
            sums[Y] += b;
            sums[XX] += a * a;
            sums[YY] += b * b;
            sums[XY] += a * b;
            sums[ANGLES]++;
        }
    }
}

/* Correlation of those angles. */
static double angles_alike(const double *sums)
{
    double count = sums[ANGLES], x = sums[X], y = sums[Y];
    double below = (sums[XX] - x * x / count) * (sums[YY] - y * y / count);
    return count > 0 && below > 0 ? (sums[XY] - x * y / count) / sqrt(below) : 0;
}

/* How many tokens of the case are compared. */
static size_t tokens_compared(const struct ts_case *the_case)
{
    size_t tokens = the_case->actor->rows < TOKENS_MOST ? the_case->actor->rows : TOKENS_MOST;
    while (tokens > TOKENS_LEAST && tokens * tokens * the_case->actor->width > WORK_MOST)
        tokens--;
    return tokens;
}

static bool inputs_agree(const struct ts_case_state *state, double relative)
{
    const struct ts_actor *actor = state->face.actor;
    for (size_t back = 1; back <= LOOKED_BACK && back <= actor->pair; back++) {
        const struct ts_actor *other = ts_scene_actor((struct ts_scene *)&state->scene, actor->pair - back);
        if (other && other->error > AGREES * relative)
            return false;
    }
    return true;
}

/* One product makes this tensor, as far as what was captured tells. A whole layer between two points of the residual
 * stream, or attention of which only the end is there, spreads any fault of its inside as evenly. */
static bool is_one_product(const struct ts_case_state *state)
{
    const struct ts_case *the_case = &state->face;
    const struct ts_actor *actor = the_case->actor, *before = NULL;
    for (size_t back = 1; back <= LOOKED_BACK && back <= actor->pair; back++) {
        const struct ts_actor *other = ts_scene_actor((struct ts_scene *)&state->scene, actor->pair - back);
        double dot = 0;
        before = before ? before : other;
        if (!other || other->rows != actor->rows || other->width != actor->width || !(other->norm_a > 0))
            continue;
        for (size_t i = 0; i < the_case->total; i++)
            dot += (double)actor->a[i] * (double)other->a[i];
        if (fabs(dot) > PART_OF_IT * actor->norm_a * other->norm_a)
            return false;
    }
    return before &&
           (!ts_names_attention(ts_case_name(the_case, actor)) || ts_names_attention(ts_case_name(the_case, before)));
}

/* Weights that were rounded: every output is a sum of many small errors, so that none stands out. */
static bool is_like_rounded_weights(struct ts_case_state *state, const struct spread *spread)
{
    const struct ts_case *the_case = &state->face;
    struct ts_structure structure = {0};
    double chance = 4 / sqrt((double)the_case->total), sums[TS_TALLY_SUMS] = {0};
    size_t tokens = tokens_compared(the_case);
    if (the_case->operation.kind != TS_OPERATION_NONE || !is_one_product(state) || the_case->total < 128 ||
        spread->relative < FINEST || spread->relative > COARSEST || fabs(spread->following) > FOLLOWS + chance ||
        spread->least < LEAST_ROW || spread->most > MOST_ROW || tokens < TOKENS_LEAST)
        return false;
    add_angles(the_case, 0, tokens, sums);
    ts_structure_measure(&state->scene, the_case->actor, &structure);
    return structure.known && structure.channel <= ts_channel_limit(&structure) && structure.block <= TS_BLOCK_LIMIT &&
           angles_alike(sums) > ALIKE;
}

static const char *rounded_text(struct ts_case *the_case, double relative)
{
    return ts_case_text(
        the_case,
        "the error (%.2g of the tensor's norm) is spread evenly over tokens and channels, does not follow the "
        "reference, and keeps the angles between tokens: it looks like weights rounded or quantized%s",
        relative,
        relative > 0.16    ? " to 3 bits or fewer"
        : relative > 0.03  ? " to about 4 bits"
        : relative > 0.012 ? " to about fp8"
                           : " to about 8 bits");
}

static bool count_rounded(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                          struct ts_tally *tally)
{
    const struct spread *spread = formula->numbers;
    double *sums = tally->sums;
    size_t rows = the_case->actor->rows;
    (void)out;
    for (size_t row = 0; row < rows; row++) {
        struct row own = add_row(the_case, row);
        bool even = own.wrong >= LEAST_ROW * spread->middle * own.own &&
                    own.wrong <= MOST_ROW * spread->middle * own.own && own.peaked <= PEAKED * spread->peaked;
        if (ts_case_aside(the_case, row))
            continue;
        sums[ERROR] += own.wrong;
        sums[SIZE] += own.own;
        sums[DOT] += own.dot;
        sums[EVEN] += even ? own.wrong : 0;
        sums[EVEN_ROWS] += even;
        sums[ROWS]++;
    }
    for (size_t row = 0; row < rows; row += TOGETHER)
        add_angles(the_case, row, rows - row < TOGETHER ? rows - row : TOGETHER, sums);
    return true;
}

/* As sure as the rows are many that err so, and the error that is theirs; not at all when it follows the reference, or
 * tokens have other angles in it. */
static const char *tell_rounded(struct ts_case *the_case, const struct ts_formula *formula,
                                const struct ts_tally *tally, double *share)
{
    const double *sums = tally->sums;
    double following = sums[DOT] / sqrt(sums[ERROR] * sums[SIZE]);
    (void)formula;
    *share = sums[ROWS] > 0 && sums[ERROR] > 0 && fabs(following) <= FOLLOWS && angles_alike(sums) > ALIKE
                 ? SURE * fmin(sums[EVEN] / sums[ERROR], sums[EVEN_ROWS] / sums[ROWS])
                 : 0;
    return *share > 0 ? rounded_text(the_case, sqrt(sums[ERROR] / sums[SIZE])) : NULL;
}

void ts_case_say_remainder(struct ts_case_state *state)
{
    struct ts_case *the_case = &state->face;
    struct spread spread = {0};
    if (state->direct || state->quiet || the_case->error < ABOVE_NOISE * the_case->noise ||
        !measure(the_case, &spread) || !inputs_agree(state, spread.relative) ||
        !is_like_rounded_weights(state, &spread))
        return;
    ts_formula_next(the_case, &(struct ts_formula){.count = count_rounded,
                                                   .tell = tell_rounded,
                                                   .numbers = &spread,
                                                   .size = sizeof spread,
                                                   .sampled = tokens_compared(the_case) < the_case->actor->rows});
    /* W x with other factors of the channels of x is no other weight to one who sees neither */
    ts_propose_plain(
        the_case, "quantization", SURE,
        ts_case_text(the_case,
                     "the precision of the weights that make this tensor, and whether it is intended%s; if a norm "
                     "before it was not captured, whether that has the right weight, which would look the same",
                     state->evidence && state->evidence->counts[TS_WEIGHTS_REFERENCE] ? "" : " (--weights would tell)"),
        "%s", rounded_text(the_case, spread.relative));
}
