/* Hidden: the function between two projections, where its inputs and the product behind it were captured and nothing
 * between them, as hooks on modules do: gate and up, then down. With the model's weights at hand the whole step is
 * replayed. Which weight and which function make the reference is found by content; what the candidate computes instead
 * is a prediction. Where the function itself was captured, family_activation.c says it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/formula.h"
#include "diagnose/product.h"
#include "diagnose/variant.h"

#define LOOKED_AT   8    /* earlier tensors that may be its inputs */
#define MOST_INPUTS 96   /* ways to take them */
#define FITS        1e-2 /* of the reference's energy may be left: weights may be quantized */
#define WORTHWHILE  0.5  /* of the error must be explained */
#define WEIGHT_FITS 0.9  /* the same of another weight */
#define TWIN        4    /* times what the best one leaves, and what the file's rounding does */
#define LOOK_ROWS   6
#define LOOK_WIDTH  24
#define READ_MOST   ((uint64_t)1 << 27)
#define PROOF_WORK  1e11

/* Where x and y stand: tensors of their own, or halves of one. */
struct inputs {
    size_t pairs[2]; /* y's is SIZE_MAX where there is none */
    size_t width;    /* of the product's input */
    bool halves;     /* both are in the first one */
    bool exchanged;  /* x is the second half */
};

enum shape { PRODUCT, SWAPPED, ALONE, OTHER_ALONE, BOTH, SHAPES };

struct guess {
    enum shape shape;
    enum ts_activation function;
};

/* How one side makes the tensor. */
struct made {
    struct inputs inputs;
    struct guess guess;
    struct ts_product product; /* its input is made on the way */
};

static double value_of(const struct guess *guess, double x, double y, bool gated)
{
    double f = ts_activation_value(guess->function, guess->shape == SWAPPED || guess->shape == OTHER_ALONE ? y : x);
    switch (guess->shape) {
    case SWAPPED:
        return f * x;
    case ALONE:
    case OTHER_ALONE:
        return f;
    case BOTH:
        return f * ts_activation_value(guess->function, y);
    default:
        return gated ? f * y : f;
    }
}

/* Some rows of what the product is given, as an actor without a place in the trace; its values are to be freed. */
static bool make_input(const struct ts_case *the_case, const struct made *made, bool candidate, const size_t *rows,
                       size_t count, struct ts_actor *out)
{
    const struct inputs *from = &made->inputs;
    const struct ts_actor *x = ts_scene_actor(the_case->scene, from->pairs[0]);
    const struct ts_actor *y = from->pairs[1] == SIZE_MAX ? NULL : ts_scene_actor(the_case->scene, from->pairs[1]);
    bool gated = from->halves || y;
    float *values;
    if (!x || (from->pairs[1] != SIZE_MAX && !y) || x->rows != the_case->actor->rows)
        return false;
    values = malloc(count * from->width * sizeof *values);
    if (!values)
        return false;
    for (size_t k = 0; k < count; k++) {
        size_t row = rows ? rows[k] : k;
        const float *one = (candidate ? x->b : x->a) + row * x->width;
        const float *other = from->halves ? one + from->width : y ? (candidate ? y->b : y->a) + row * y->width : one;
        const float *first = from->exchanged ? other : one, *second = from->exchanged ? one : other;
        for (size_t i = 0; i < from->width; i++)
            values[k * from->width + i] = (float)value_of(&made->guess, (double)first[i], (double)second[i], gated);
    }
    *out = (struct ts_actor){.usable = true,
                             .a = values,
                             .b = values,
                             .rows = count,
                             .width = from->width,
                             .heads = 1,
                             .inner = from->width};
    return true;
}

/* The step on one side's inputs, for the sample's rows and channels. */
static bool run_sample(const struct ts_case *the_case, const struct made *made, bool candidate,
                       const struct ts_sample *sample, double *out)
{
    struct ts_sample rows = *sample;
    struct ts_product product = made->product;
    struct ts_actor input;
    bool good;
    if (!make_input(the_case, made, candidate, sample->rows, sample->row_count, &input))
        return false;
    for (size_t k = 0; k < rows.row_count; k++)
        rows.rows[k] = k;
    product.input = &input;
    good = ts_product_values(&product, candidate, &rows, out);
    free(input.a);
    return good;
}

/* Energy of the difference from the reference or from what was found, and of that itself. */
static double left_of(const struct ts_case *the_case, const struct ts_sample *sample, bool candidate,
                      const double *values, double *size)
{
    double left = 0;
    *size = 0;
    for (size_t t = 0; t < sample->row_count; t++)
        for (size_t c = 0; c < sample->channel_count; c++) {
            size_t i = sample->rows[t] * the_case->actor->width + sample->channels[c];
            double wanted = candidate ? the_case->found[i] : (double)the_case->actor->a[i];
            double off = wanted - values[t * sample->channel_count + c];
            if (!isfinite(off) || ts_case_aside(the_case, sample->rows[t]))
                continue;
            left += off * off;
            *size += wanted * wanted;
        }
    return left;
}

static size_t list_inputs(const struct ts_case *the_case, struct inputs *list)
{
    const struct ts_actor *actor = the_case->actor, *near[LOOKED_AT];
    size_t count = 0, found = 0;
    for (size_t back = 1; back < TS_SCENE_WINDOW && back <= actor->pair && found < LOOKED_AT; back++) {
        const struct ts_actor *one = ts_scene_actor(the_case->scene, actor->pair - back);
        if (one && one->rows == actor->rows && one->heads == 1 && !ts_names_operand(ts_case_name(the_case, one)))
            near[found++] = one;
    }
    for (size_t i = 0; i < found; i++)
        for (size_t j = 0; j < found && count < MOST_INPUTS; j++)
            if (i != j && near[i]->width == near[j]->width)
                list[count++] = (struct inputs){{near[i]->pair, near[j]->pair}, near[i]->width, false, false};
    for (size_t i = 0; i < found; i++) {
        for (int exchanged = 0; exchanged < 2 && near[i]->width % 2 == 0 && count < MOST_INPUTS; exchanged++)
            list[count++] =
                (struct inputs){{near[i]->pair, SIZE_MAX}, near[i]->width / 2, true, exchanged ? true : false};
        if (count < MOST_INPUTS)
            list[count++] = (struct inputs){{near[i]->pair, SIZE_MAX}, near[i]->width, false, false};
    }
    return count;
}

struct search {
    struct ts_case *the_case;
    const struct ts_evidence *evidence;
    struct ts_sample sample;
    struct inputs inputs[MOST_INPUTS];
    size_t input_count;
    double *values;
    struct made best; /* how the reference is made */
    double least;
    uint64_t read;
};

/* The layer that a name is of, as names of weights are read. */
static int64_t layer_of(const char *name)
{
    struct ts_arena arena;
    struct ts_names names;
    int64_t layer = -1;
    ts_arena_init(&arena, 1 << 20);
    if (ts_names_make(&name, 1, 0, &arena, &names))
        layer = names.list[0].layer;
    ts_arena_release(&arena);
    return layer;
}

/* One weight with every way to make its input. */
static void try_weight(struct search *search, const struct ts_product *product)
{
    const struct ts_weight *biases[2] = {NULL,
                                         ts_evidence_bias(search->evidence, product->weight, TS_WEIGHTS_REFERENCE)};
    for (size_t k = 0; k < search->input_count && search->read < READ_MOST; k++)
        for (int function = 0; function < TS_ACTIVATION_COUNT; function++)
            for (int b = 0; b < (biases[1] ? 2 : 1); b++) {
                bool gated = search->inputs[k].pairs[1] != SIZE_MAX || search->inputs[k].halves;
                struct made made = {.inputs = search->inputs[k], .product = *product};
                double left, size;
                if (search->inputs[k].width != product->matrix.shape[1] ||
                    (!gated && function == TS_ACTIVATION_IDENTITY)) /* a plain product is another family's */
                    continue;
                made.guess = (struct guess){gated ? PRODUCT : ALONE, (enum ts_activation)function};
                made.product.bias = biases[b];
                search->read += search->sample.channel_count * search->inputs[k].width;
                if (!run_sample(search->the_case, &made, false, &search->sample, search->values))
                    continue;
                left = left_of(search->the_case, &search->sample, false, search->values, &size);
                if (size > 0 && left / size < search->least) {
                    search->least = left / size;
                    search->best = made;
                }
            }
}

/* How the reference makes the tensor: the file's weight, the inputs and the function. */
static bool learn(struct search *search)
{
    static const unsigned swap[2] = {1, 0};
    const struct ts_evidence *evidence = search->evidence;
    int64_t layer = layer_of(ts_case_name(search->the_case, search->the_case->actor));
    search->least = FITS;
    for (int near = 1; near >= 0 && !search->best.product.weight; near--) /* weights of the same layer first */
        for (size_t i = 0; i < evidence->counts[TS_WEIGHTS_REFERENCE]; i++) {
            const struct ts_weight *weight = &evidence->weights[TS_WEIGHTS_REFERENCE][i];
            if (!weight->inputs || (weight->name->layer == layer) != near)
                continue;
            for (int turned = 0; turned < 2; turned++) {
                struct ts_product product = {
                    .weight = weight, .matrix = weight->view, .transposed = turned, .bias_times = 1};
                if (turned &&
                    !ts_view_permute(&weight->view, swap, &search->the_case->diagnosis->arena, &product.matrix))
                    continue;
                if (product.matrix.shape[0] == search->the_case->actor->width)
                    try_weight(search, &product);
            }
        }
    return search->best.product.weight != NULL;
}

static bool given_made(struct ts_case *the_case, const struct ts_formula *formula, struct ts_product *product,
                       struct ts_actor *input)
{
    const struct made *made = formula->numbers;
    *product = made->product;
    product->input = input;
    return make_input(the_case, made, true, NULL, the_case->actor->rows, input);
}

static bool predict_made(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    struct ts_product product;
    struct ts_actor input;
    bool good;
    if (!given_made(the_case, formula, &product, &input))
        return false;
    good = ts_product_replay(&product, the_case->actor, out);
    free(input.b);
    return good;
}

static const char *side(struct search *search, const struct inputs *inputs, bool second)
{
    struct ts_case *the_case = search->the_case;
    size_t pair = second && !inputs->halves ? inputs->pairs[1] : inputs->pairs[0];
    const char *name = ts_case_name(the_case, ts_scene_actor(the_case->scene, pair));
    return inputs->halves
               ? ts_case_text(the_case, "the %s half of %s", second != inputs->exchanged ? "second" : "first", name)
               : name;
}

static const char *guess_text(struct search *search, const struct made *made)
{
    struct ts_case *the_case = search->the_case;
    bool gated = made->inputs.pairs[1] != SIZE_MAX || made->inputs.halves, plain;
    const char *f = ts_activation_name(made->guess.function), *x = side(search, &made->inputs, false),
               *y = gated ? side(search, &made->inputs, true) : "";
    plain = made->guess.function == TS_ACTIVATION_IDENTITY;
    switch (made->guess.shape) {
    case SWAPPED:
        return ts_case_text(the_case, "%s(%s) * %s", f, y, x);
    case ALONE:
        return plain ? ts_case_text(the_case, "%s unchanged", x) : ts_case_text(the_case, "%s(%s)", f, x);
    case OTHER_ALONE:
        return plain ? ts_case_text(the_case, "%s unchanged", y) : ts_case_text(the_case, "%s(%s)", f, y);
    case BOTH:
        return ts_case_text(the_case, "%s(%s) * %s(%s)", f, x, f, y);
    default:
        return plain ? ts_case_text(the_case, "%s * %s", x, y) : ts_case_text(the_case, "%s(%s) * %s", f, x, y);
    }
}

static void give_formula(struct search *search, const struct made *best)
{
    struct ts_case *the_case = search->the_case;
    double work = (double)best->inputs.width * (double)the_case->actor->width;
    struct ts_formula formula = {.predict = predict_made,
                                 .product = given_made,
                                 .numbers = best,
                                 .size = sizeof *best,
                                 .pairs = {best->inputs.pairs[0], best->inputs.pairs[1]},
                                 .pair_count = best->inputs.pairs[1] == SIZE_MAX ? 1 : 2,
                                 .work = work};
    if (work * (double)the_case->actor->rows < PROOF_WORK)
        ts_formula_next(the_case, &formula);
}

static void say(struct search *search, const struct made *best, double share, enum ts_activation twin)
{
    struct ts_case *the_case = search->the_case;
    give_formula(search, best);
    ts_propose_measured(
        the_case, "activation", 1 - share, 0,
        "the activation function (hidden_act), and which projection it is applied to; the input of this product was "
        "not captured",
        "%s is given %s%s instead of %s (replayed from there: %zu products)", ts_product_name(the_case, &best->product),
        guess_text(search, best),
        twin == TS_ACTIVATION_COUNT
            ? ""
            : ts_case_text(the_case, " (or %s of it; rounding hides the difference)", ts_activation_name(twin)),
        guess_text(search, &search->best), search->sample.row_count * search->sample.channel_count);
}

/* The right function, and then another weight of the file. */
static void try_weights(struct search *search, double made_error)
{
    static const unsigned swap[2] = {1, 0};
    struct ts_case *the_case = search->the_case;
    const struct ts_evidence *evidence = search->evidence;
    const struct ts_product *own = &search->best.product;
    struct made best = {.product = {.weight = NULL}};
    double most = WEIGHT_FITS;
    for (size_t i = 0; i < evidence->counts[TS_WEIGHTS_REFERENCE] && search->read < READ_MOST; i++) {
        struct made made = search->best;
        const struct ts_weight *weight = &evidence->weights[TS_WEIGHTS_REFERENCE][i];
        double left, size;
        if (!weight->inputs || weight == own->weight || weight->view.rank != 2)
            continue;
        made.product.weight = weight;
        made.product.matrix = weight->view;
        if (own->transposed && !ts_view_permute(&weight->view, swap, &the_case->diagnosis->arena, &made.product.matrix))
            continue;
        if (made.product.matrix.shape[0] != own->matrix.shape[0] ||
            made.product.matrix.shape[1] != own->matrix.shape[1])
            continue;
        made.product.bias = own->bias ? ts_evidence_bias(evidence, weight, TS_WEIGHTS_REFERENCE) : NULL;
        search->read += search->sample.channel_count * made.inputs.width;
        if (!run_sample(the_case, &made, true, &search->sample, search->values))
            continue;
        left = left_of(the_case, &search->sample, true, search->values, &size);
        if (1 - left / fmin(made_error, size) > most) {
            most = 1 - left / fmin(made_error, size);
            best = made;
        }
    }
    if (!best.product.weight)
        return;
    give_formula(search, &best);
    ts_propose_measured(the_case, "swapped-with", 1 - most, 0,
                        "which weight is loaded for this step: its name, its layer number",
                        "the candidate uses %s instead of %s, given %s (replayed from there: %zu products)",
                        ts_product_name(the_case, &best.product), ts_product_name(the_case, own),
                        guess_text(search, &search->best), search->sample.row_count * search->sample.channel_count);
}

/* What the candidate does with the same inputs and the same weight. */
static void try_guesses(struct search *search)
{
    struct ts_case *the_case = search->the_case;
    bool gated = search->best.inputs.pairs[1] != SIZE_MAX || search->best.inputs.halves;
    double made_error, size, most = WORTHWHILE, lefts[SHAPES][TS_ACTIVATION_COUNT], least;
    enum ts_activation twin = TS_ACTIVATION_COUNT;
    struct made best = {.guess = {.shape = SHAPES}};
    if (!run_sample(the_case, &search->best, true, &search->sample, search->values))
        return;
    made_error = left_of(the_case, &search->sample, true, search->values, &size);
    if (!(made_error > 4 * search->least * size)) /* the reference's own step explains it */
        return;
    for (int shape = 0; shape < SHAPES; shape++)
        for (int function = 0; function < TS_ACTIVATION_COUNT; function++) {
            struct made made = search->best;
            double left, share;
            lefts[shape][function] = INFINITY;
            if ((!gated && shape != ALONE) || (shape == BOTH && function == TS_ACTIVATION_IDENTITY) ||
                (shape == SWAPPED && function == TS_ACTIVATION_IDENTITY) ||
                (shape == (int)search->best.guess.shape && function == (int)search->best.guess.function))
                continue;
            made.guess = (struct guess){(enum shape)shape, (enum ts_activation)function};
            if (!run_sample(the_case, &made, true, &search->sample, search->values))
                return;
            left = left_of(the_case, &search->sample, true, search->values, &size);
            lefts[shape][function] = left;
            share = 1 - left / fmin(made_error, size);
            if (share > most) {
                most = share;
                best = made;
            }
        }
    if (best.guess.shape == SHAPES) {
        try_weights(search, made_error);
        return;
    }
    least = lefts[best.guess.shape][best.guess.function];
    for (int function = 0; function < TS_ACTIVATION_COUNT; function++)
        if (function != (int)best.guess.function &&
            lefts[best.guess.shape][function] <= TWIN * (least + search->least * size))
            twin = (enum ts_activation)function;
    say(search, &best, most, twin);
}

static void propose(struct ts_case *the_case)
{
    struct search search = {.the_case = the_case, .evidence = ts_case_evidence(the_case)};
    const char *name;
    if (!search.evidence || !search.evidence->counts[TS_WEIGHTS_REFERENCE] || !ts_case_in_scene(the_case) ||
        ts_case_quiet(the_case) || ts_case_is_part(the_case) || the_case->operation.kind != TS_OPERATION_NONE ||
        ts_case_product(the_case) ||
        !(ts_case_wants(the_case, "activation") || ts_case_wants(the_case, "swapped-with")))
        return;
    name = ts_case_name(the_case, the_case->actor);
    if (the_case->actor->heads != 1 || ts_names_operand(name) || ts_names_attention(name))
        return;
    ts_sample_take(the_case, LOOK_ROWS, LOOK_WIDTH, &search.sample);
    search.input_count = list_inputs(the_case, search.inputs);
    search.values = malloc(search.sample.row_count * search.sample.channel_count * sizeof *search.values);
    if (search.values && search.sample.row_count * search.sample.channel_count >= 8 && learn(&search))
        try_guesses(&search);
    free(search.values);
}

const struct ts_family ts_family_hidden = {"hidden", propose};
