/* Activation: which function was applied, to which operand, and with what limits, recovered from the captured inputs.
 */
#include <stdlib.h>
#include <string.h>

#include "base/ordered.h"
#include "diagnose/functions.h"
#include "diagnose/variant.h"

#define WORTHWHILE 0.3
/* A curve of pieces between this many knots stands for any function of one number. */
#define KNOTS 24
/* A named function wins over the free curve unless the curve explains this much more. */
#define CURVE_MARGIN 0.02
/* A limit that is not a usual one must explain this much more than what else was found. */
#define BETWEEN_MARGIN 0.01

/* What is done with the inputs x (that of the function) and y (the gate's other side). */
enum shape {
    PRODUCT,      /* f(x) * y */
    SWAPPED,      /* f(y) * x */
    ALONE,        /* f(x) */
    OTHER_ALONE,  /* f(y) */
    OF_PRODUCT,   /* f(x * y) */
    BOTH,         /* f(x) * f(y) */
    SUM,          /* f(x) + y */
    PRODUCT_PLUS, /* f(x) * (y + 1) */
    TWICE,        /* f(f(x)) * y */
    CLIPPED,      /* f(min(x, limit)) * y clipped to limit */
    CLIPPED_ONE,  /* f(min(x, limit)) * y */
    CAPPED,       /* f(limit * tanh(x / limit)) * y */
    NOT_PLUS,     /* f(x) * y, where the reference has y + 1 */
    NOT_CLIPPED,  /* f(x) * (y + 1), where the reference clips both */
    /* of f(x + y), where x is the sum already */
    FIRST_BEFORE,  /* f(first) + second */
    SECOND_BEFORE, /* first + f(second) */
    BOTH_BEFORE,   /* f(first) + f(second) */
    FIRST_LEFT,    /* f(first) */
    SECOND_LEFT,   /* f(second) */
    SHAPES
};

struct guess {
    enum shape shape;
    size_t function;
    double limit;
    double cut; /* the reference's own limit */
    bool plus;  /* and the 1 that it adds to y */
};

static double clip(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

/* It takes the second operand as the reference does, with the 1 that may be added to it. */
static bool takes_gate(enum shape shape)
{
    return shape == PRODUCT || shape == SWAPPED || shape == TWICE || shape == CLIPPED || shape == CLIPPED_ONE ||
           shape == CAPPED || shape == NOT_CLIPPED;
}

static double guess_value(const struct guess *guess, double x, double y, bool gated)
{
    const double cut = guess->shape == CLIPPED ? guess->limit : guess->shape == NOT_CLIPPED ? 0 : guess->cut;
    double f;
    if (guess->shape == SWAPPED) {
        f = x;
        x = y;
        y = f;
    }
    if (cut > 0) {
        x = x < cut ? x : cut;
        y = clip(y, -cut, cut);
    }
    y += guess->plus && takes_gate(guess->shape);
    switch (guess->shape) {
    case ALONE:
        return ts_function_value(guess->function, x);
    case OTHER_ALONE:
        return ts_function_value(guess->function, y);
    case OF_PRODUCT:
        return ts_function_value(guess->function, x * y);
    case BOTH:
        return ts_function_value(guess->function, x) * ts_function_value(guess->function, y);
    case SUM:
        return ts_function_value(guess->function, x) + y;
    case PRODUCT_PLUS:
        return ts_function_value(guess->function, x) * (y + 1);
    case TWICE:
        f = ts_function_value(guess->function, ts_function_value(guess->function, x));
        return gated ? f * y : f;
    case CLIPPED:
        f = ts_function_value(guess->function, x);
        return gated ? f * y : f;
    case CLIPPED_ONE:
        f = ts_function_value(guess->function, x < guess->limit ? x : guess->limit);
        return gated ? f * y : f;
    case CAPPED:
        f = ts_function_value(guess->function, guess->limit * tanh(x / guess->limit));
        return gated ? f * y : f;
    case FIRST_BEFORE:
        return ts_function_value(guess->function, x - y) + y;
    case SECOND_BEFORE:
        return x - y + ts_function_value(guess->function, y);
    case BOTH_BEFORE:
        return ts_function_value(guess->function, x - y) + ts_function_value(guess->function, y);
    case FIRST_LEFT:
        return ts_function_value(guess->function, x - y);
    case SECOND_LEFT:
        return ts_function_value(guess->function, y);
    default:
        f = ts_function_value(guess->function, x);
        return gated ? f * y : f;
    }
}

/* The gate, or the second term of a sum. */
static const double *other_of(const struct ts_variants *variants)
{
    return variants->inputs[1] ? variants->inputs[1] : variants->inputs[2];
}

static void fill(const struct ts_variants *variants, const struct guess *guess, size_t first, size_t count)
{
    size_t width = variants->the_case->actor->width;
    const double *x = variants->inputs[0], *y = other_of(variants);
    for (size_t i = first * width; i < (first + count) * width; i++)
        variants->out[i] = guess_value(guess, x[i], y ? y[i] : 0, variants->inputs[1] != NULL);
}

static bool needs_gate(enum shape shape)
{
    return shape == SWAPPED || shape == OTHER_ALONE || shape == OF_PRODUCT || shape == BOTH || shape == SUM ||
           shape == PRODUCT_PLUS;
}

/* "silu(x)"; of a function that changes nothing, "x". */
static const char *applied_to(struct ts_case *the_case, size_t function, const char *x)
{
    return function == TS_ACTIVATION_IDENTITY ? x : ts_case_text(the_case, "%s(%s)", ts_function_name(function), x);
}

/* "y", or "(y + 1)"; "" where there is none. */
static const char *gate_text(struct ts_case *the_case, bool plus, const char *y)
{
    return plus && *y ? ts_case_text(the_case, "(%s + 1)", y) : y;
}

/* What the reference does. */
static const char *own_text(struct ts_case *the_case, const struct ts_operation *operation, const char *x,
                            const char *y)
{
    return ts_case_text(the_case, "%s%s%s%s", applied_to(the_case, (size_t)operation->activation, x), *y ? " * " : "",
                        gate_text(the_case, operation->plus, y),
                        operation->limit > 0 ? ts_case_text(the_case, ", its inputs clipped at %.4g", operation->limit)
                                             : "");
}

static const char *guess_text(struct ts_case *the_case, const struct guess *guess, const char *x, const char *y)
{
    const char *f = ts_function_name(guess->function);
    if (guess->shape == SWAPPED)
        return ts_case_text(the_case, "%s(%s) * %s (the activation is on the wrong operand)", f, y,
                            gate_text(the_case, guess->plus, x));
    y = takes_gate(guess->shape) ? gate_text(the_case, guess->plus, y) : y;
    switch (guess->shape) {
    case ALONE:
        return ts_case_text(the_case, "%s%s%s", applied_to(the_case, guess->function, x),
                            *y ? ", not multiplied by " : "", y);
    case OTHER_ALONE:
        return ts_case_text(the_case, "%s, without %s", applied_to(the_case, guess->function, y), x);
    case OF_PRODUCT:
        return ts_case_text(the_case, "%s(%s * %s) (the product is taken before the activation)", f, x, y);
    case BOTH:
        return ts_case_text(the_case, "%s on both operands, %s and %s", f, x, y);
    case SUM:
        return ts_case_text(the_case, "%s + %s (a sum instead of the product)",
                            applied_to(the_case, guess->function, x), y);
    case PRODUCT_PLUS:
        return ts_case_text(the_case, "%s * (%s + 1)", applied_to(the_case, guess->function, x), y);
    case TWICE:
        return ts_case_text(the_case, "%s applied twice to %s", f, x);
    case CLIPPED:
        return ts_case_text(the_case, "%s with its inputs clipped at %.4g", f, guess->limit);
    case CLIPPED_ONE:
        return ts_case_text(the_case, "%s of %s clipped at %.4g%s%s", f, x, guess->limit, *y ? ", times " : "", y);
    case CAPPED:
        return ts_case_text(the_case, "%s after a softcap of %.4g on %s", f, guess->limit, x);
    case NOT_CLIPPED:
        return ts_case_text(the_case, "%s * %s without clipping them", applied_to(the_case, guess->function, x), y);
    default:
        return guess->function == TS_ACTIVATION_IDENTITY
                   ? ts_case_text(the_case, "%s%s%s without an activation", x, *y ? " * " : "", y)
                   : ts_case_text(the_case, "%s(%s)%s%s", f, x, *y ? " * " : "", y);
    }
}

static size_t piece_of(const double *knots, double x, double *along)
{
    size_t low = 0, high = KNOTS - 1;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (knots[middle] <= x)
            low = middle;
        else
            high = middle;
    }
    *along = knots[high] > knots[low] ? (x - knots[low]) / (knots[high] - knots[low]) : 0;
    return low;
}

/* Any function: found = c(x) * y with c made of straight pieces between knots at quantiles of x, by least squares. The
 * normal equations are tridiagonal. False when it cannot be solved. */
static bool fit_curve(const struct ts_variants *variants, double *knots, double *heights)
{
    const struct ts_case *the_case = variants->the_case;
    const double *x = variants->inputs[0], *y = variants->inputs[1];
    double sample[1024], diagonal[KNOTS] = {0}, beside[KNOTS] = {0}, right[KNOTS] = {0};
    size_t count = the_case->total < 1024 ? the_case->total : 1024;
    if (count < 8 * KNOTS)
        return false;
    for (size_t i = 0; i < count; i++)
        sample[i] = x[(size_t)((double)i * (double)the_case->total / (double)count)];
    qsort(sample, count, sizeof *sample, ts_by_value);
    for (size_t k = 0; k < KNOTS; k++)
        knots[k] = sample[k * (count - 1) / (KNOTS - 1)];
    for (size_t i = 0; i < the_case->total; i++) {
        double along, weight = y ? y[i] : 1, low, high;
        size_t k = piece_of(knots, x[i], &along);
        if (!isfinite(the_case->found[i]) || !isfinite(weight) || !isfinite(x[i]))
            continue;
        low = (1 - along) * weight;
        high = along * weight;
        diagonal[k] += low * low;
        diagonal[k + 1] += high * high;
        beside[k] += low * high;
        right[k] += low * the_case->found[i];
        right[k + 1] += high * the_case->found[i];
    }
    for (size_t k = 1; k < KNOTS; k++) {
        double factor;
        if (!(diagonal[k - 1] > 0))
            return false;
        factor = beside[k - 1] / diagonal[k - 1];
        diagonal[k] -= factor * beside[k - 1];
        right[k] -= factor * right[k - 1];
    }
    for (size_t k = KNOTS; k-- > 0;) {
        if (!(diagonal[k] > 0))
            return false;
        heights[k] = (right[k] - (k + 1 < KNOTS ? beside[k] * heights[k + 1] : 0)) / diagonal[k];
    }
    return true;
}

/* The operands by themselves: inputs[0] is what the function is given, inputs[1] the gate; of f(x + y) the sum, and the
 * second term in inputs[2]. */
static bool split_operands(struct ts_variants *variants)
{
    const struct ts_case *the_case = variants->the_case;
    const struct ts_operation *operation = variants->operation;
    unsigned count = ts_operation_has_two(operation) ? 2 : 1;
    double *apart[3] = {NULL, NULL, NULL};
    bool good = true;
    for (unsigned slot = 0; slot < count; slot++) {
        apart[slot] = malloc(the_case->total * sizeof **apart);
        good = good && apart[slot];
        for (size_t i = 0; i < the_case->total && good; i++)
            apart[slot][i] =
                ts_operation_operand(operation, the_case->actor, variants->from, variants->inputs, slot, i);
    }
    for (size_t i = 0; i < the_case->total && good && operation->summed; i++)
        apart[0][i] += apart[1][i];
    if (operation->summed) {
        apart[2] = apart[1];
        apart[1] = NULL;
    }
    for (unsigned i = 0; i < 3; i++) {
        free(variants->inputs[i]);
        variants->inputs[i] = apart[i];
    }
    return good;
}

static const char *part_name(struct ts_case *the_case, const struct ts_variants *variants, unsigned slot)
{
    const struct ts_operation *operation = variants->operation;
    const struct ts_actor *from = variants->from[operation->fused ? 0 : slot];
    if (!from)
        return "";
    if (!operation->part[slot])
        return ts_case_name(the_case, from);
    if (operation->alternate)
        return ts_case_text(the_case, "the %s columns of %s", operation->places[slot] ? "odd" : "even",
                            ts_case_name(the_case, from));
    if (from->width == 2 * operation->size)
        return ts_case_text(the_case, "the %s half of %s", operation->places[slot] ? "second" : "first",
                            ts_case_name(the_case, from));
    return ts_case_text(the_case, "%s[%zu:%zu]", ts_case_name(the_case, from), operation->places[slot],
                        operation->places[slot] + operation->size);
}

/* What the function is given, and the gate or "". */
static const char *operand_name(struct ts_case *the_case, const struct ts_variants *variants, unsigned slot)
{
    if (!variants->operation->summed)
        return part_name(the_case, variants, slot);
    return slot ? ""
                : ts_case_text(the_case, "%s + %s", part_name(the_case, variants, 0), part_name(the_case, variants, 1));
}

/* One value everywhere is a function of anything, and says nothing about this one. */
static bool is_constant(const struct ts_case *the_case)
{
    for (size_t i = 1; i < the_case->total; i++)
        if (the_case->found[i] != the_case->found[0])
            return false;
    return true;
}

static void fill_curve(const struct ts_variants *variants, const double *knots, const double *heights)
{
    for (size_t i = 0; i < variants->the_case->total; i++) {
        double along;
        size_t k = piece_of(knots, variants->inputs[0][i], &along);
        variants->out[i] =
            ((1 - along) * heights[k] + along * heights[k + 1]) * (variants->inputs[1] ? variants->inputs[1][i] : 1);
    }
}

/* The curve or the guess for other rows. */
static bool predict_rows(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    struct ts_variants variants;
    bool good;
    if (!ts_variants_open(&variants, the_case, &the_case->operation))
        return false;
    good = split_operands(&variants);
    if (good && formula->table_count)
        fill_curve(&variants, formula->table, formula->table + KNOTS);
    else if (good)
        fill(&variants, formula->numbers, 0, the_case->actor->rows);
    if (good)
        memcpy(out, variants.out, the_case->total * sizeof *out);
    ts_variants_close(&variants);
    return good;
}

/* Share that one factor on everything explains. */
static double explained_by_factor(struct ts_case *the_case)
{
    double *scaled = ts_case_scratch(the_case), both = 0, own = 0;
    for (size_t i = 0; i < the_case->total && scaled; i++)
        if (isfinite(the_case->found[i]) && isfinite(the_case->expected[i])) {
            both += the_case->found[i] * the_case->expected[i];
            own += the_case->expected[i] * the_case->expected[i];
        }
    for (size_t i = 0; i < the_case->total && scaled; i++)
        scaled[i] = own > 0 ? both / own * the_case->expected[i] : 0;
    return scaled ? ts_explained(the_case, scaled) : 0;
}

static void propose_curve(struct ts_variants *variants, double explained)
{
    struct ts_case *the_case = variants->the_case;
    double knots[KNOTS], heights[KNOTS], table[2 * KNOTS], share;
    if (variants->operation->plus || is_constant(the_case) || !fit_curve(variants, knots, heights))
        return;
    fill_curve(variants, knots, heights);
    share = ts_explained(the_case, variants->out);
    memcpy(table, knots, sizeof knots);
    memcpy(table + KNOTS, heights, sizeof heights);
    ts_formula_next(the_case, &(struct ts_formula){.predict = predict_rows, .table = table, .table_count = 2 * KNOTS});
    /* the right function times a number is no unknown one */
    if (share > fmax(explained, explained_by_factor(the_case)) + CURVE_MARGIN)
        ts_propose(the_case, "activation", variants->out, KNOTS,
                   "the activation function of the candidate (hidden_act)",
                   "the candidate computes an unknown function of %s: it gives %.3g at %.3g, %.3g at %.3g and %.3g at "
                   "%.3g, where %s gives %.3g, %.3g and %.3g",
                   operand_name(the_case, variants, 0), heights[3], knots[3], heights[KNOTS / 2], knots[KNOTS / 2],
                   heights[KNOTS - 4], knots[KNOTS - 4], ts_activation_name(variants->operation->activation),
                   ts_activation_value(variants->operation->activation, knots[3]),
                   ts_activation_value(variants->operation->activation, knots[KNOTS / 2]),
                   ts_activation_value(variants->operation->activation, knots[KNOTS - 4]));
}

/* A function that makes the same of these inputs, to within rounding or (same) altogether; TS_FUNCTIONS when there is
 * none. */
static size_t twin_of(const struct ts_variants *variants, const struct guess *best, bool *same)
{
    const struct ts_case *the_case = variants->the_case;
    const double *x = variants->inputs[0], *y = other_of(variants);
    for (size_t f = 0; f < TS_FUNCTIONS; f++) {
        struct guess guess = *best;
        double apart = 0;
        guess.function = f;
        for (size_t i = 0; i < the_case->total && apart <= the_case->noise; i++) {
            double d = guess_value(&guess, x[i], y ? y[i] : 0, variants->inputs[1] != NULL) - variants->out[i];
            apart += isfinite(d) ? d * d : 0;
        }
        *same = apart == 0;
        if (f != best->function && apart <= the_case->noise)
            return f;
    }
    return TS_FUNCTIONS;
}

static void consider(struct ts_variants *variants, const struct guess *guess, struct guess *best, double *most)
{
    double share;
    fill(variants, guess, variants->first, variants->count);
    share = ts_variants_share(variants, variants->out);
    if (share > *most + 1e-9) {
        *most = share;
        *best = *guess;
    }
}

/* Limits that are not among the usual ones: a coarse walk, then ever smaller steps around the best. */
static void consider_limits_between(struct ts_variants *variants, const struct guess *like, struct guess *best,
                                    double *most)
{
    struct guess found = {.shape = SHAPES};
    double share = *most + BETWEEN_MARGIN;
    for (int shape = CLIPPED; shape <= CLIPPED_ONE; shape++)
        for (double limit = 0.25; limit < 60; limit *= 1.15) {
            struct guess guess = *like;
            guess.shape = (enum shape)shape;
            guess.limit = limit;
            consider(variants, &guess, &found, &share);
        }
    for (double step = 0.08; step > 1e-4 && found.shape != SHAPES; step /= 2)
        for (int side = -1; side <= 1; side += 2) {
            struct guess guess = found;
            guess.limit *= 1 + side * step;
            consider(variants, &guess, &found, &share);
        }
    if (found.shape != SHAPES) {
        *best = found;
        *most = share;
    }
}

/* The function before the sum, or a sum of one term. */
static void propose_summed(struct ts_variants *variants, const struct guess *best)
{
    struct ts_case *the_case = variants->the_case;
    const char *f = ts_function_name(best->function), *first = part_name(the_case, variants, 0);
    const char *second = part_name(the_case, variants, 1);
    fill(variants, best, 0, the_case->actor->rows);
    ts_formula_next(the_case, &(struct ts_formula){.predict = predict_rows, .numbers = best, .size = sizeof *best});
    if (best->shape == FIRST_LEFT || best->shape == SECOND_LEFT)
        ts_propose(the_case, "term-missing", variants->out, 0, "the addition before the activation",
                   "the candidate computes %s(%s) without adding %s", f, best->shape == FIRST_LEFT ? first : second,
                   best->shape == FIRST_LEFT ? second : first);
    else
        ts_propose(the_case, "activation", variants->out, 0, "whether the activation comes before or after the sum",
                   "the candidate computes %s(%s) + %s%s%s%s; the reference computes %s(%s + %s)", f,
                   best->shape == SECOND_BEFORE ? second : first,
                   best->shape == BOTH_BEFORE ? ts_case_text(the_case, "%s(", f) : "",
                   best->shape == SECOND_BEFORE ? first : second, best->shape == BOTH_BEFORE ? ")" : "",
                   " (the activation is applied before the sum)", f, first, second);
}

/* Other columns of an input than those it should be. */
static void propose_other_part(struct ts_case *the_case)
{
    const struct ts_operation *operation = &the_case->operation;
    struct ts_operation changed = *operation, best = *operation;
    struct ts_variants variants;
    double most = WORTHWHILE;
    unsigned at = 0;
    if (!(operation->part[0] || operation->part[1]) || !ts_variants_open(&variants, the_case, operation))
        return;
    for (unsigned slot = 0; slot < (ts_operation_has_two(operation) ? 2 : 1); slot++) {
        size_t width = variants.from[operation->fused ? 0 : slot]->width, size = operation->size;
        for (size_t step = 0; step + size <= width && operation->part[slot] && !operation->alternate; step += size)
            for (int end = 0; end < 2; end++) {
                double share;
                changed = *operation;
                changed.places[slot] = end ? width - size - step : step;
                if (changed.places[slot] == operation->places[slot])
                    continue;
                share = ts_variants_try(&variants, &changed, variants.inputs);
                if (share > most + 1e-9) {
                    most = share;
                    best = changed;
                    at = slot;
                }
            }
    }
    if (most > WORTHWHILE) {
        const char *right = part_name(the_case, &variants, at);
        ts_variants_apply(&variants, &best, variants.inputs);
        variants.operation = &best;
        ts_formula_operation(the_case, &best);
        ts_propose(the_case, "wrong-input", variants.out, 0, "which columns of the fused projection are taken",
                   "the candidate applies the right operation to the wrong columns: %s instead of %s",
                   part_name(the_case, &variants, at), right);
    }
    ts_variants_close(&variants);
}

/* Both operands are the halves of one input, or its even and odd columns: the other way, or exchanged. */
static void propose_other_split(struct ts_case *the_case)
{
    const struct ts_operation *operation = &the_case->operation;
    struct ts_operation changed = *operation, best = *operation;
    struct ts_variants variants;
    double most = WORTHWHILE;
    if (!operation->fused || !ts_variants_open(&variants, the_case, operation))
        return;
    for (unsigned way = 0; way < 4 && variants.from[0]->width == 2 * operation->size; way++) {
        double share;
        changed.alternate = way / 2;
        changed.places[0] = (way % 2) * (changed.alternate ? 1 : operation->size);
        changed.places[1] = (1 - way % 2) * (changed.alternate ? 1 : operation->size);
        if (changed.alternate == operation->alternate)
            continue;
        share = ts_variants_try(&variants, &changed, variants.inputs);
        if (share > most + 1e-9) {
            most = share;
            best = changed;
        }
    }
    if (most > WORTHWHILE) {
        const char *first = part_name(the_case, &variants, 0), *second = part_name(the_case, &variants, 1);
        ts_variants_apply(&variants, &best, variants.inputs);
        variants.operation = &best;
        ts_formula_operation(the_case, &best);
        ts_propose(the_case, "wrong-input", variants.out, 0,
                   "whether the fused projection holds its two parts as halves or alternating",
                   "the candidate applies the right operation to the wrong columns: %s and %s instead of %s and %s",
                   part_name(the_case, &variants, 0), part_name(the_case, &variants, 1), first, second);
    }
    ts_variants_close(&variants);
}

static void propose(struct ts_case *the_case)
{
    static const double limits[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 50};
    const struct ts_operation *operation = &the_case->operation;
    struct ts_variants variants;
    const struct guess own = {
        .function = (size_t)operation->activation, .cut = operation->limit, .plus = operation->plus};
    struct guess best = {.shape = SHAPES};
    double most = WORTHWHILE, explained = 0;
    if (operation->kind == TS_OPERATION_NONE)
        ts_propose_other_function(the_case);
    ts_propose_function_on_top(the_case);
    if (operation->kind != TS_OPERATION_ACTIVATION)
        return;
    propose_other_part(the_case);
    propose_other_split(the_case);
    if (!ts_variants_open(&variants, the_case, operation))
        return;
    if (!split_operands(&variants)) {
        ts_variants_close(&variants);
        return;
    }
    for (int shape = PRODUCT; shape < CLIPPED; shape++)
        for (size_t f = 0; f < TS_FUNCTIONS; f++) {
            struct guess guess = own;
            guess.shape = (enum shape)shape;
            guess.function = f;
            bool same = f == own.function;
            if ((needs_gate(guess.shape) && !variants.inputs[1]) || (guess.shape == PRODUCT && same) ||
                (guess.shape == ALONE && !variants.inputs[1]) || (guess.shape >= OF_PRODUCT && !same))
                continue;
            consider(&variants, &guess, &best, &most);
        }
    for (int shape = NOT_PLUS; shape <= NOT_CLIPPED; shape++) {
        struct guess guess = own;
        guess.shape = (enum shape)shape;
        if (shape == NOT_PLUS ? own.plus : own.cut > 0)
            consider(&variants, &guess, &best, &most);
    }
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct guess guess = own;
        guess.shape = CLIPPED;
        guess.limit = limits[i];
        consider(&variants, &guess, &best, &most);
        guess.shape = CLIPPED_ONE;
        consider(&variants, &guess, &best, &most);
        guess.shape = CAPPED;
        consider(&variants, &guess, &best, &most);
    }
    consider_limits_between(&variants, &own, &best, &most);
    for (int shape = FIRST_BEFORE; shape < SHAPES && operation->summed; shape++) {
        struct guess guess = {.shape = (enum shape)shape, .function = (size_t)operation->activation};
        consider(&variants, &guess, &best, &most);
    }
    if (best.shape != SHAPES && best.shape >= FIRST_BEFORE) {
        propose_summed(&variants, &best);
        explained = ts_explained(the_case, variants.out);
    } else if (best.shape != SHAPES) {
        const char *x = operand_name(the_case, &variants, 0), *y = operand_name(the_case, &variants, 1);
        bool clipped = best.shape == CLIPPED || best.shape == CLIPPED_ONE || best.shape == NOT_CLIPPED;
        size_t twin;
        bool same = false;
        fill(&variants, &best, 0, the_case->actor->rows);
        explained = ts_explained(the_case, variants.out);
        twin = twin_of(&variants, &best, &same);
        ts_formula_next(the_case, &(struct ts_formula){.predict = predict_rows, .numbers = &best, .size = sizeof best});
        ts_propose(the_case, clipped ? "clamped" : "activation", variants.out, best.limit > 0 ? 1 : 0,
                   clipped ? "the limits that clip the inputs of the activation (swiglu_limit)"
                           : "the activation function (hidden_act), and which projection it is applied to",
                   "the candidate computes %s%s; the reference computes %s", guess_text(the_case, &best, x, y),
                   twin == TS_FUNCTIONS
                       ? ""
                       : ts_case_text(the_case, " (or %s; %s)", ts_function_name(twin),
                                      same ? "of these numbers it makes the same" : "rounding hides the difference"),
                   own_text(the_case, operation, x, y));
    }
    propose_curve(&variants, explained);
    ts_variants_close(&variants);
}

const struct ts_family ts_family_activation = {"activation", propose};
