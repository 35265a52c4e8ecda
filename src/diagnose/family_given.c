/* Given: what a product was given by the candidate, where nobody has its weight: the tensor before the norm instead of
 * the one behind it, another function between two projections, the numbers of the right tensor in another order. Each
 * is told by how the tokens stand to each other and to the reference's (odds.h). With the weights at hand
 * family_hidden.c and family_products.c replay it. */
#include <stdlib.h>
#include <string.h>

#include "diagnose/functions.h"
#include "diagnose/odds.h"
#include "diagnose/product.h"
#include "diagnose/variant.h"
#include "diagnose/wiring.h"
#include "tensor/layer.h"

#define LOOKED_AT   18  /* earlier tensors that may be given to it: from the first norm of a layer to its last */
#define OPERANDS    4   /* of those, the nearest may be made into something first */
#define SOURCES     6   /* ways to make the reference that are followed up, */
#define AS_GOOD     0.8 /* as far as their evidence is so much of the best one's, or so few nats below it */
#define AS_NEAR     12.0
#define LEAST       24 /* numbers of the tensor */
#define WIDEST      ((size_t)1 << 15)
#define MOST_PIECES 8
/* Two tensors that differ by less than this share are one. */
#define THE_SAME 1e-3
/* Cosine with an earlier tensor from which on that one was added in. */
#define PART_OF_IT 0.3
/* Nats between two answers from which on only the first is named. */
#define CLEAR 3.0

enum shape {
    TENSOR,
    PRODUCT,
    SWAPPED,
    ALONE,
    OTHER_ALONE,
    SUM,
    AFTERWARDS, /* f(x y) */
    BOTH,       /* f(x) f(y) */
    ONE_MORE,   /* f(x) (y + 1) */
    CLIPPED,
    CLIPPED_ONE,
    CLIPPED_OTHER,
    CLIPPED_RESULT
};
enum order { AS_IT_IS, NEGATED, REVERSED, HALVES, INTERLEAVED, TAKEN_APART, BY_HEAD, NUMBERS_FIRST, ORDERS };
/* Of some equal pieces of a row one counts for nothing, or all others do. */
enum lacking { NOTHING, ONE, ALL_BUT_ONE };

/* How what is given is made of earlier tensors. */
struct way {
    const struct ts_actor *x, *y; /* y: NULL where there is none; x itself: halves of one */
    size_t width;
    enum shape shape;
    size_t function;
    double limit;
    enum order order;
    enum lacking lacking;
    size_t piece, pieces;
};

struct source {
    struct way way;
    double own;
};

struct search {
    struct ts_case *the_case;
    const struct ts_actor *near[LOOKED_AT];
    size_t near_count;
    struct source sources[SOURCES];
    size_t source_count;
    double *values[3]; /* what the reference's product is given, what the candidate's should be and may be */
    struct way best, second, from; /* from: the reference's, of the best */
    double most, next, evidence;
    size_t told_by; /* so many tokens */
};

static double clip(double x, double limit)
{
    return x < -limit ? -limit : x > limit ? limit : x;
}

static double value_of(const struct way *way, double x, double y)
{
    switch (way->shape) {
    case PRODUCT:
        return ts_function_value(way->function, x) * y;
    case SWAPPED:
        return ts_function_value(way->function, y) * x;
    case ALONE:
        return ts_function_value(way->function, x);
    case OTHER_ALONE:
        return ts_function_value(way->function, y);
    case SUM:
        return ts_function_value(way->function, x) + y;
    case CLIPPED:
        return ts_function_value(way->function, x < way->limit ? x : way->limit) * (way->y ? clip(y, way->limit) : 1);
    case CLIPPED_ONE:
        return ts_function_value(way->function, x < way->limit ? x : way->limit) * (way->y ? y : 1);
    case CLIPPED_OTHER:
        return ts_function_value(way->function, x) * clip(y, way->limit);
    case CLIPPED_RESULT:
        return clip(ts_function_value(way->function, x) * (way->y ? y : 1), way->limit);
    case AFTERWARDS:
        return ts_function_value(way->function, x * y);
    case BOTH:
        return ts_function_value(way->function, x) * ts_function_value(way->function, y);
    case ONE_MORE:
        return ts_function_value(way->function, x) * (y + 1);
    default:
        return x;
    }
}

/* Where number i of row `row` stands before the order is changed; heads of x, [tokens, heads, inner]. */
static size_t place_of(const struct way *way, size_t rows, size_t row, size_t i)
{
    size_t width = way->width, heads = way->x->heads, inner = way->x->inner, flat = row * width + i;
    switch (way->order) {
    case REVERSED:
        return row * width + width - 1 - i;
    case HALVES:
        return row * width + (i + width / 2) % width;
    case INTERLEAVED: /* both halves by turns */
        return row * width + i % 2 * (width / 2) + i / 2;
    case TAKEN_APART: /* and back */
        return row * width + i % (width / 2) * 2 + i / (width / 2);
    case BY_HEAD: /* [heads, tokens, inner] in memory, read as [tokens, heads * inner] */
        return flat / inner % rows * width + flat / (inner * rows) * inner + flat % inner;
    case NUMBERS_FIRST: /* [inner, heads] */
        return row * width + i % heads * inner + i / heads;
    default:
        return flat;
    }
}

/* The rows that the odds are told by, of `rows` there are. */
static void make(const struct way *way, const struct ts_odds *odds, size_t rows, bool candidate, double *out)
{
    const float *x = candidate ? way->x->b : way->x->a;
    const float *y = way->y && way->y != way->x ? (candidate ? way->y->b : way->y->a) : NULL;
    bool halves = way->y == way->x;
    size_t stride = halves ? 2 * way->width : way->width;
    for (size_t k = 0; k < odds->rows; k++)
        for (size_t row = odds->list[k], i = 0; i < way->width; i++) {
            size_t at = place_of(way, rows, row, i), of = at / way->width, column = at % way->width;
            double first = (double)x[of * stride + column];
            double second = halves ? (double)x[of * stride + way->width + column] : y ? (double)y[at] : 0;
            double value = value_of(way, first, second);
            bool there = !way->lacking || (i * way->pieces / way->width == way->piece) == (way->lacking == ALL_BUT_ONE);
            out[row * way->width + i] = !there ? 0 : way->order == NEGATED ? -value : value;
        }
}

/* A tensor that is captured twice, as the output of one step and the input of the next. */
static bool is_a_copy(const struct search *search, const struct ts_actor *one)
{
    for (size_t i = 0; i < search->near_count; i++)
        if (search->near[i]->width == one->width && search->near[i]->heads == one->heads &&
            memcmp(search->near[i]->a, one->a, one->rows * one->width * sizeof *one->a) == 0 &&
            memcmp(search->near[i]->b, one->b, one->rows * one->width * sizeof *one->b) == 0)
            return true;
    return false;
}

static void find_near(struct search *search)
{
    struct ts_case *the_case = search->the_case;
    bool behind_attention = ts_names_attention(ts_case_name(the_case, the_case->actor));
    for (size_t back = 1; back < TS_SCENE_WINDOW && search->near_count < LOOKED_AT; back++) {
        const struct ts_actor *one = ts_earlier(the_case, back);
        /* attention lies between, which mixes tokens: what comes before it is no input of a product behind it */
        if (behind_attention && one && ts_names_operand(ts_case_name(the_case, one)))
            return;
        if (one && one->usable && !one->apart && one->rows == the_case->actor->rows && one->width > 1 &&
            one->width <= WIDEST && isfinite(one->error) && !is_a_copy(search, one))
            search->near[search->near_count++] = one;
    }
}

/* Rows are chosen by the operand, so that functions of it are told by the same ones. */
static bool open_odds(struct search *search, const struct way *way, struct ts_odds *odds)
{
    size_t rows = search->the_case->actor->rows, stride = way->y == way->x ? 2 * way->width : way->width;
    size_t list[TS_ODDS_ROWS], count = ts_odds_spread(rows, way->width, list);
    for (size_t row = 0; row < rows; row++)
        for (size_t i = 0; i < way->width; i++)
            search->values[2][row * way->width + i] = (double)way->x->a[row * stride + i];
    if (!ts_odds_choose(odds, search->the_case, list, count, search->values[2], way->width))
        return false;
    make(way, odds, rows, false, search->values[0]);
    make(way, odds, rows, true, search->values[1]);
    return ts_odds_open(odds, search->values[0], search->values[1]);
}

/* Keeps the ways that make the reference best. */
static void keep_source(struct search *search, const struct way *way)
{
    struct ts_odds odds;
    size_t at = search->source_count;
    if (!open_odds(search, way, &odds))
        return;
    while (at > 0 && search->sources[at - 1].own < odds.own)
        at--;
    if (at < SOURCES) {
        search->source_count += search->source_count < SOURCES;
        memmove(&search->sources[at + 1], &search->sources[at],
                (search->source_count - 1 - at) * sizeof *search->sources);
        search->sources[at] = (struct source){*way, odds.own};
    }
    ts_odds_close(&odds);
}

/* Functions that models apply between two projections. */
static const enum ts_activation usual[] = {TS_ACTIVATION_SILU,       TS_ACTIVATION_GELU, TS_ACTIVATION_GELU_TANH,
                                           TS_ACTIVATION_QUICK_GELU, TS_ACTIVATION_RELU, TS_ACTIVATION_RELU_SQUARED};
enum { USUAL = sizeof usual / sizeof *usual };

static bool can_be_operand(const struct ts_case *the_case, const struct ts_actor *one)
{
    const char *name = ts_case_name(the_case, one);
    return one->heads == 1 && !ts_names_operand(name) && !ts_names_attention(name);
}

/* Gate and up in one; halves of what is called otherwise are too much alike to be told from it. */
static bool is_fused(const char *name)
{
    return (strstr(name, "gate") && strstr(name, "up")) || strstr(name, "w13") || strstr(name, "fc1") ||
           strstr(name, "wi");
}

static void find_sources(struct search *search)
{
    const struct ts_case *the_case = search->the_case;
    const struct ts_actor *operands[OPERANDS];
    size_t count = 0;
    for (size_t i = 0; i < search->near_count; i++) {
        const struct ts_actor *x = search->near[i];
        keep_source(search, &(struct way){.x = x, .width = x->width, .shape = TENSOR});
        if (count < OPERANDS && can_be_operand(the_case, x))
            operands[count++] = x;
    }
    if (!can_be_operand(the_case, the_case->actor))
        return;
    for (size_t i = 0; i < count; i++)
        for (size_t f = 0; f < USUAL; f++) {
            const struct ts_actor *x = operands[i];
            keep_source(search, &(struct way){.x = x, .width = x->width, .shape = ALONE, .function = usual[f]});
            if (x->width % 2 == 0 && is_fused(ts_case_name(the_case, x)))
                keep_source(search, &(struct way){
                                        .x = x, .y = x, .width = x->width / 2, .shape = PRODUCT, .function = usual[f]});
            for (size_t k = 0; k < count; k++)
                if (k != i && operands[k]->width == x->width)
                    keep_source(
                        search,
                        &(struct way){
                            .x = x, .y = operands[k], .width = x->width, .shape = PRODUCT, .function = usual[f]});
        }
}

/* What the candidate's product is given by this way is what it should be given, all but a little. */
static bool is_the_same(const struct search *search, const struct ts_odds *odds, const double *other, size_t width)
{
    double apart = 0, size = 0;
    for (size_t k = 0; k < odds->rows * width; k++) {
        size_t i = odds->list[k / width] * width + k % width;
        double own = search->values[1][i];
        if (!isfinite(other[i]))
            return true;
        apart += (other[i] - own) * (other[i] - own);
        size += own * own;
    }
    return apart <= THE_SAME * THE_SAME * size;
}

static bool is_clipped(const struct way *way)
{
    return way->shape == CLIPPED || way->shape == CLIPPED_ONE || way->shape == CLIPPED_OTHER ||
           way->shape == CLIPPED_RESULT;
}

/* Whatever the limit of a clip. */
static bool is_one_way(const struct way *one, const struct way *other)
{
    return one->x == other->x && one->y == other->y && one->shape == other->shape && one->function == other->function &&
           one->order == other->order && one->lacking == other->lacking && one->piece == other->piece &&
           one->pieces == other->pieces;
}

static void try_way(struct search *search, struct ts_odds *odds, const struct source *source, const struct way *way)
{
    struct ts_odds_fit fit;
    double all;
    make(way, odds, search->the_case->actor->rows, true, search->values[2]);
    if (is_the_same(search, odds, search->values[2], way->width) || !ts_odds_try(odds, search->values[2], NULL, &fit))
        return;
    all = source->own + fit.evidence;
    if (way->lacking && !ts_odds_keep(odds, 0)) /* what is left out is not in what was found */
        return;
    /* of these numbers some functions make the same */
    if (!ts_odds_hold(&fit) || fabs(all - search->most) < THE_SAME * CLEAR)
        return;
    if (all > search->most) {
        if (!is_one_way(way, &search->best)) {
            search->next = search->most;
            search->second = search->best;
        }
        search->most = all;
        search->best = *way;
        search->from = source->way;
        search->evidence = fit.evidence;
        search->told_by = odds->rows;
    } else if (all > search->next && !is_one_way(way, &search->best)) {
        search->next = all;
        search->second = *way;
    }
}

/* Limits of a clip that are usual. */
static const double limits[] = {0.5, 1, 2, 3, 4, 5, 6, 7, 8, 10, 16, 20, 32, 50, 100};
enum { LIMITS = sizeof limits / sizeof *limits };

/* What is told by a limit, whether it fits or not. */
static double evidence_at(struct search *search, struct ts_odds *odds, struct way *way, double limit)
{
    struct ts_odds_fit fit;
    way->limit = limit;
    make(way, odds, search->the_case->actor->rows, true, search->values[2]);
    return !is_the_same(search, odds, search->values[2], way->width) && ts_odds_try(odds, search->values[2], NULL, &fit)
               ? fit.evidence
               : -(double)INFINITY;
}

/* A limit is any number. The usual ones show where to look; another one must tell clearly more than they do. */
static void try_limits(struct search *search, struct ts_odds *odds, const struct source *source, enum shape shape)
{
    struct way way = source->way;
    double best = 0, most = -(double)INFINITY, at, here;
    way.shape = shape;
    for (size_t k = 0; k < LIMITS; k++) {
        double evidence = evidence_at(search, odds, &way, limits[k]);
        if (evidence > most) {
            most = evidence;
            best = limits[k];
        }
    }
    if (!isfinite(most))
        return;
    at = best;
    here = most;
    for (double step = 0.4; step > 0.002; step /= 2)
        for (int side = -1; side <= 1; side += 2) {
            double limit = at * exp(side * step), evidence = evidence_at(search, odds, &way, limit);
            if (evidence > here) {
                here = evidence;
                at = limit;
            }
        }
    way.limit = here > most + CLEAR ? at : best;
    try_way(search, odds, source, &way);
}

static void try_functions(struct search *search, struct ts_odds *odds, const struct source *source)
{
    static const enum shape gated[] = {PRODUCT, SWAPPED, ALONE, OTHER_ALONE, SUM, AFTERWARDS, BOTH, ONE_MORE};
    static const enum shape clipped[] = {CLIPPED, CLIPPED_RESULT, CLIPPED_ONE, CLIPPED_OTHER};
    struct way way = source->way;
    for (size_t f = 0; f < TS_FUNCTIONS; f++)
        for (size_t s = 0; s < (way.y ? sizeof gated / sizeof *gated : 1); s++) {
            way.function = f;
            way.shape = way.y ? gated[s] : ALONE;
            /* one thing went wrong, not two */
            if (way.shape == source->way.shape || f == source->way.function ||
                (f == TS_ACTIVATION_IDENTITY && (way.shape == ALONE || way.shape == OTHER_ALONE)))
                try_way(search, odds, source, &way);
        }
    way.function = source->way.function;
    for (size_t s = 0; s < (way.y ? sizeof clipped / sizeof *clipped : 2); s++)
        try_limits(search, odds, source, clipped[s]);
}

static void try_orders(struct search *search, struct ts_odds *odds, const struct source *source)
{
    const struct ts_case *the_case = search->the_case;
    struct way way = source->way;
    for (int order = AS_IT_IS + 1; order < ORDERS; order++) {
        way.order = (enum order)order;
        if (((order == BY_HEAD || order == NUMBERS_FIRST) && (way.x->heads < 2 || way.shape != TENSOR)) ||
            (order == BY_HEAD && (!way.x->whole || the_case->scene->batch > 1)) ||
            (way.width % 2 && order >= HALVES && order <= TAKEN_APART))
            continue;
        try_way(search, odds, source, &way);
    }
}

/* What one rank adds is missing, or nothing else is there. */
static void try_pieces(struct search *search, struct ts_odds *odds, const struct source *source)
{
    struct way way = source->way;
    for (way.pieces = 2; way.pieces <= MOST_PIECES && way.width % way.pieces == 0; way.pieces *= 2)
        for (way.piece = 0; way.piece < way.pieces; way.piece++)
            for (int lacking = ONE; lacking <= (way.pieces > 2 ? ALL_BUT_ONE : ONE); lacking++) {
                way.lacking = (enum lacking)lacking;
                try_way(search, odds, source, &way);
            }
}

static void try_source(struct search *search, const struct source *source)
{
    struct ts_odds odds;
    if (!open_odds(search, &source->way, &odds))
        return;
    for (size_t i = 0; i < search->near_count && source->way.shape == TENSOR; i++)
        if (search->near[i] != source->way.x && search->near[i]->width == source->way.width)
            try_way(search, &odds, source,
                    &(struct way){.x = search->near[i], .width = source->way.width, .shape = TENSOR});
    if (source->way.shape != TENSOR)
        try_functions(search, &odds, source);
    try_orders(search, &odds, source);
    try_pieces(search, &odds, source);
    ts_odds_close(&odds);
}

static const char *operand_text(struct ts_case *the_case, const struct way *way, bool second)
{
    const char *name = ts_case_name(the_case, second ? way->y : way->x);
    /* nobody applies a function to what a norm gives; behind a product it makes much the same of the tokens */
    if (way->shape != TENSOR && strstr(name, "norm"))
        return ts_case_text(the_case, "a product of %s", name);
    return way->y == way->x ? ts_case_text(the_case, "the %s half of %s", second ? "second" : "first", name) : name;
}

static const char *order_text(enum order order)
{
    switch (order) {
    case NEGATED:
        return " with the opposite sign";
    case REVERSED:
        return " with its channels in reverse";
    case HALVES:
        return " with the halves of each row exchanged";
    case INTERLEAVED:
        return " with the halves of each row interleaved";
    case TAKEN_APART:
        return " with even channels before odd ones";
    case BY_HEAD:
        return " read as [tokens, heads * size] while memory holds [heads, tokens, size]";
    case NUMBERS_FIRST:
        return " with each row as [size, heads] instead of [heads, size]";
    default:
        return "";
    }
}

/* "silu(gate) * up". */
static const char *way_text(struct ts_case *the_case, const struct way *way)
{
    const char *x = operand_text(the_case, way, false), *y = way->y ? operand_text(the_case, way, true) : "";
    const char *f = ts_function_name(way->function), *order = order_text(way->order), *text;
    const char *fx = way->function == TS_ACTIVATION_IDENTITY ? x : ts_case_text(the_case, "%s(%s)", f, x);
    const char *fy = way->function == TS_ACTIVATION_IDENTITY ? y : ts_case_text(the_case, "%s(%s)", f, y);
    const char *limit = ts_plain_number(way->limit, 3, (char[32]){0});
    switch (way->shape) {
    case PRODUCT:
        text = ts_case_text(the_case, "%s * %s", fx, y);
        break;
    case SWAPPED:
        text = ts_case_text(the_case, "%s * %s", fy, x);
        break;
    case ALONE:
        text = fx;
        break;
    case OTHER_ALONE:
        text = fy;
        break;
    case SUM:
        text = ts_case_text(the_case, "%s + %s", fx, y);
        break;
    case CLIPPED:
        text = ts_case_text(the_case, "%s(%s)%s%s with %s clipped at %s", f, x, *y ? " * " : "", y,
                            *y ? "both of them" : "it", limit);
        break;
    case CLIPPED_ONE:
        text = ts_case_text(the_case, "%s(%s) * %s with %s clipped at %s", f, x, y, x, limit);
        break;
    case CLIPPED_OTHER:
        text = ts_case_text(the_case, "%s * %s with %s clipped at %s", fx, y, y, limit);
        break;
    case CLIPPED_RESULT:
        text = ts_case_text(the_case, "%s%s%s, clipped at %s", fx, *y ? " * " : "", y, limit);
        break;
    case AFTERWARDS:
        text = ts_case_text(the_case, "%s(%s * %s)", f, x, y);
        break;
    case BOTH:
        text = ts_case_text(the_case, "%s * %s", fx, fy);
        break;
    case ONE_MORE:
        text = ts_case_text(the_case, "%s * (%s + 1)", fx, y);
        break;
    default:
        text = x;
    }
    if (way->lacking)
        return ts_case_text(the_case, "%s %zu of %zu equal pieces of the channels of %s%s",
                            way->lacking == ONE ? "all but piece" : "only piece", way->piece, way->pieces, text, order);
    return ts_case_text(the_case, "%s%s", text, order);
}

static const char *id_of(const struct way *way)
{
    if (way->lacking)
        return "term-missing";
    if (way->order == NEGATED)
        return "sign-flipped";
    if (way->order != AS_IT_IS)
        return "permuted";
    if (way->shape == TENSOR)
        return "wrong-input";
    return is_clipped(way) ? "clamped" : "activation";
}

static const char *check_of(const char *id)
{
    if (strcmp(id, "wrong-input") == 0)
        return "which tensor is passed to this product: whether it is taken before or behind the norm";
    if (strcmp(id, "term-missing") == 0)
        return "sums over ranks (all-reduce) and blocks of inputs: whether all parts are added";
    if (strcmp(id, "permuted") == 0)
        return "the reshape and transpose between the step before and this product";
    if (strcmp(id, "clamped") == 0)
        return "a limit on the inputs of the activation (swiglu_limit), or on what it makes";
    if (strcmp(id, "sign-flipped") == 0)
        return "a subtraction in the other order before this product";
    return "the activation function (hidden_act), and which projection it is applied to";
}

static void say(struct search *search)
{
    struct ts_case *the_case = search->the_case;
    const char *id = id_of(&search->best);
    bool clear = search->most - search->next > CLEAR;
    double nats = fmin(search->evidence, clear ? search->evidence : search->most - search->next + CLEAR);
    ts_formula_next(the_case, &(struct ts_formula){.told_by = search->told_by});
    ts_propose_plain(the_case, id, ts_odds_sure(nats), check_of(id),
                     "the product that makes this is given %s instead of %s%s (its weight is not %s: told by how %zu "
                     "tokens stand to each other)",
                     way_text(the_case, &search->best), way_text(the_case, &search->from),
                     clear ? "" : ts_case_text(the_case, ", or %s", way_text(the_case, &search->second)),
                     ts_case_has_weights(the_case) ? "used" : "at hand", search->told_by);
}

/* What attention gives mixes tokens: it is a product of what attention held before, its context, if that was captured
 * in this layer, and of nothing else. */
static bool is_behind_unseen_attention(const struct search *search)
{
    const char *name = ts_case_name(search->the_case, search->the_case->actor);
    uint64_t layer, other;
    bool known = ts_layer_of(name, &layer);
    if (!ts_names_attention(name))
        return false;
    for (size_t i = 0; i < search->near_count; i++) {
        const char *near = ts_case_name(search->the_case, search->near[i]);
        if ((ts_names_attention(near) || ts_names_context(near)) && !strstr(near, "norm") &&
            (!known || (ts_layer_of(near, &other) && other == layer)))
            return false;
    }
    return true;
}

/* Scores and probabilities are no products of a weight, and neither is what an earlier tensor was added to. */
static bool is_product(const struct search *search)
{
    const struct ts_actor *actor = search->the_case->actor;
    size_t below = 0;
    if (is_behind_unseen_attention(search))
        return false;
    for (size_t k = 0; k < actor->rows * actor->width; k++)
        below += actor->a[k] < 0;
    if (!below || (actor->heads > 1 && actor->inner == actor->sequence))
        return false;
    for (size_t i = 0; i < search->near_count; i++) {
        const struct ts_actor *other = search->near[i];
        double dot = 0;
        for (size_t k = 0; other->width == actor->width && k < actor->rows * actor->width; k++)
            dot += (double)actor->a[k] * (double)other->a[k];
        if (fabs(dot) > PART_OF_IT * actor->norm_a * other->norm_a)
            return false;
    }
    return true;
}

static bool is_as_good(const struct source *source, const struct source *best)
{
    return source->own > fmin(AS_GOOD * best->own, best->own - AS_NEAR);
}

static bool open_search(struct search *search)
{
    size_t widest = 0;
    find_near(search);
    for (size_t i = 0; i < search->near_count; i++)
        widest = search->near[i]->width > widest ? search->near[i]->width : widest;
    for (int k = 0; k < 3; k++)
        search->values[k] = malloc((search->the_case->actor->rows * widest + 1) * sizeof *search->values[k]);
    return widest && search->values[0] && search->values[1] && search->values[2];
}

static void propose(struct ts_case *the_case)
{
    struct search search = {.the_case = the_case};
    if (!ts_case_in_scene(the_case) || ts_case_quiet(the_case) || ts_case_is_part(the_case) ||
        the_case->operation.kind != TS_OPERATION_NONE || ts_case_product(the_case) || the_case->total < LEAST ||
        the_case->actor->apart || the_case->delta->non_finite_mismatch ||
        !(ts_case_wants(the_case, "activation") || ts_case_wants(the_case, "wrong-input") ||
          ts_case_wants(the_case, "permuted") || ts_case_wants(the_case, "clamped") ||
          ts_case_wants(the_case, "sign-flipped") || ts_case_wants(the_case, "term-missing")))
        return;
    if (open_search(&search) && is_product(&search)) {
        find_sources(&search);
        search.most = search.next = -INFINITY;
        for (size_t i = 0; i < search.source_count && is_as_good(&search.sources[i], &search.sources[0]); i++)
            try_source(&search, &search.sources[i]);
        if (search.best.x)
            say(&search);
    }
    for (int k = 0; k < 3; k++)
        free(search.values[k]);
}

const struct ts_family ts_family_given = {"given", propose};
