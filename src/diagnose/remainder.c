/* Owns what is said when no hypothesis holds and the error looks like that of coarser weights, which is no fault when
 * it is meant. A finding, not a prediction, and a modest one. */
#include <stdlib.h>

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

struct spread {
    double relative;    /* size of the error over that of what was expected */
    double following;   /* correlation of the error with it */
    double least, most; /* of a row's relative error, over that of the row in the middle */
};

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static bool measure(const struct ts_case *the_case, struct spread *spread)
{
    size_t rows = the_case->actor->rows, width = the_case->actor->width, used = 0;
    double *levels = calloc(rows, sizeof *levels), error = 0, size = 0, dot = 0;
    for (size_t row = 0; row < rows && levels; row++) {
        double own = 0, wrong = 0;
        for (size_t i = row * width; i < (row + 1) * width; i++) {
            double x = the_case->expected[i], e = the_case->found[i] - x;
            if (!isfinite(x) || !isfinite(e))
                continue;
            own += x * x;
            wrong += e * e;
            dot += x * e;
        }
        size += own;
        error += wrong;
        if (own > 0 && !ts_case_aside(the_case, row))
            levels[used++] = wrong / own;
    }
    if (levels && used) {
        qsort(levels, used, sizeof *levels, by_value);
        spread->relative = size > 0 ? sqrt(error / size) : 0;
        spread->following = error > 0 && size > 0 ? dot / sqrt(error * size) : 0;
        spread->least = levels[used / 2] > 0 ? levels[0] / levels[used / 2] : 0;
        spread->most = levels[used / 2] > 0 ? levels[used - 1] / levels[used / 2] : (double)INFINITY;
    }
    free(levels);
    return used > 0 && size > 0 && error > 0;
}

static double product(const double *x, const double *minus, size_t s, size_t t, size_t width)
{
    double sum = 0;
    for (size_t i = 0; i < width; i++) {
        double a = x[s * width + i] - (minus ? minus[s * width + i] : 0);
        double b = x[t * width + i] - (minus ? minus[t * width + i] : 0);
        sum += a * b;
    }
    return sum;
}

/* y = W x, and the error of other weights is E x: if E has no structure of its own, tokens keep their angles to each
 * other in both. Correlation of the angles between tokens of the error with those of what was expected. */
static double angles_alike(const struct ts_case *the_case)
{
    size_t width = the_case->actor->width, tokens = the_case->actor->rows, count = 0;
    double own[TOKENS_MOST], wrong[TOKENS_MOST], x = 0, y = 0, xx = 0, yy = 0, xy = 0, below;
    tokens = tokens < TOKENS_MOST ? tokens : TOKENS_MOST;
    while (tokens > TOKENS_LEAST && tokens * tokens * width > WORK_MOST)
        tokens--;
    if (tokens < TOKENS_LEAST)
        return 0;
    for (size_t s = 0; s < tokens; s++) {
        own[s] = product(the_case->expected, NULL, s, s, width);
        wrong[s] = product(the_case->found, the_case->expected, s, s, width);
        if (!(own[s] > 0) || !(wrong[s] > 0) || !isfinite(own[s]) || !isfinite(wrong[s]))
            return 0;
        for (size_t t = 0; t < s; t++) {
            double a = product(the_case->expected, NULL, s, t, width) / sqrt(own[s] * own[t]);
            double b = product(the_case->found, the_case->expected, s, t, width) / sqrt(wrong[s] * wrong[t]);
            x += a;
            y += b;
            xx += a * a;
            yy += b * b;
            xy += a * b;
            count++;
        }
    }
    below = (xx - x * x / (double)count) * (yy - y * y / (double)count);
    return below > 0 ? (xy - x * y / (double)count) / sqrt(below) : 0;
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
    double chance = 4 / sqrt((double)the_case->total);
    if (the_case->operation.kind != TS_OPERATION_NONE || !is_one_product(state) || the_case->total < 128 ||
        spread->relative < FINEST || spread->relative > COARSEST || fabs(spread->following) > 0.08 + chance ||
        spread->least < 0.1 || spread->most > 8)
        return false;
    ts_structure_measure(&state->scene, the_case->actor, &structure);
    return structure.known && structure.channel <= ts_channel_limit(&structure) && structure.block <= TS_BLOCK_LIMIT &&
           angles_alike(the_case) > ALIKE;
}

void ts_case_say_remainder(struct ts_case_state *state)
{
    struct ts_case *the_case = &state->face;
    struct spread spread = {0};
    if (state->direct || state->quiet || the_case->error < ABOVE_NOISE * the_case->noise ||
        !measure(the_case, &spread) || !inputs_agree(state, spread.relative))
        return;
    if (is_like_rounded_weights(state, &spread))
        ts_propose_plain(the_case, "quantization", 0.4,
                         "the precision of the weights that make this tensor, and whether it is meant; with --weights "
                         "it can be told",
                         "the error, %.2g of the tensor's size, is spread evenly over tokens and channels, does not "
                         "follow the reference, and tokens keep their angles in it: as when the weights here were "
                         "rounded or quantized%s",
                         spread.relative,
                         spread.relative > 0.03    ? " to four bits or so"
                         : spread.relative > 0.012 ? " to fp8 or so"
                                                   : " to eight bits or so");
}
