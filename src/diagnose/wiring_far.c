/* Owns the search for a wire that begins far back: a stream that goes on from the embeddings, or from some layers
 * before, instead of from where it was left. A scene holds the last tensors; those before them are read one by one. */
#include <stdlib.h>
#include <string.h>

#include "diagnose/variant.h"
#include "diagnose/wiring.h"

/* A trial explains something worth proving on everything. */
#define WORTHWHILE 0.3
/* Tensors that are read, from both ends of what lies before, and their numbers in all. */
#define LOOKED_AT  192
#define LOOK_LIMIT ((size_t)1 << 25)
/* Of what was not learnt: so many tensors that it may go on from, and how much it may change by at most. */
#define STREAMS 3
#define CHANGED 0.98
#define TRIED   65536
/* Where what a layer makes of the wrong stream was not captured: how near to 1 and -1 the factors of both streams must
 * be, how well that must be known, and what it is worth. */
#define FACTOR_OFF   0.15
#define FACTOR_KNOWN 0.05
#define PARTLY_SURE  0.8

/* `pair` stands where these inputs of the operation belong, or, of what was not learnt, where `near` does. */
struct far_wire {
    size_t pair, near;
    unsigned slots;
};

/* What the search holds. */
struct far_search {
    struct ts_case *the_case;
    struct ts_variants variants;             /* of a learnt operation */
    const struct ts_actor *streams[STREAMS]; /* else */
    size_t stream_count;
    size_t first, count; /* rows that are tried */
    double cost;         /* of what was expected on them */
    double *far, *none, *out;
    struct far_wire best;
    double most;
};

/* The candidate's values of `wire`, applied to the operation's inputs, or in place of a stream. */
static void fill_inputs(const struct far_wire *wire, double *const *own, unsigned count, double *far, double *none,
                        double **inputs)
{
    bool given = false;
    for (unsigned k = 0; k < count; k++) {
        bool taken = wire->slots >> k & 1;
        inputs[k] = !taken ? own[k] : given ? none : far;
        given = given || taken;
    }
}

static void replace_stream(const struct ts_case *the_case, const double *far, const struct ts_actor *stream,
                           size_t first, size_t end, double *out)
{
    for (size_t i = first; i < end; i++)
        out[i] = the_case->expected[i] + (far[i] - (double)stream->b[i]);
}

/* The candidate's rows of a tensor that no scene holds. */
static bool read_far(const struct ts_case *the_case, size_t pair, double *out)
{
    const struct ts_scene *scene = the_case->scene;
    const struct ts_actor *actor = the_case->actor;
    size_t width = actor->width, run;
    float *values = malloc(actor->rows * width * sizeof *values);
    bool good = values != NULL;
    for (size_t row = 0; row < actor->rows && good; row += run) {
        uint64_t from = ts_case_row(the_case, row);
        struct ts_error ignored;
        for (run = 1; row + run < actor->rows && ts_case_row(the_case, row + run) == from + run; run++) {
        }
        good = ts_scene_read(scene, pair, true, ts_scene_first(scene) + from, run, 0, width, values, &ignored) == TS_OK;
        for (size_t i = 0; i < run * width && good; i++)
            out[row * width + i] = (double)values[i];
    }
    free(values);
    return good;
}

static bool predict_far(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct far_wire *wire = formula->numbers;
    const struct ts_operation *operation = &the_case->operation;
    double *far = calloc(the_case->total, sizeof *far), *none = calloc(the_case->total, sizeof *none);
    double *own[3] = {NULL, NULL, NULL}, *inputs[3] = {NULL, NULL, NULL};
    bool good = far && none && read_far(the_case, wire->pair, far);
    if (good && !wire->slots) {
        const struct ts_actor *stream = ts_scene_actor(the_case->scene, wire->near);
        good = ts_same_size(the_case, stream);
        if (good)
            replace_stream(the_case, far, stream, 0, the_case->total, out);
    }
    for (unsigned k = 0; k < operation->input_count && wire->slots && good; k++) {
        const struct ts_actor *input = ts_operation_input(the_case->scene, operation, k);
        own[k] = input ? ts_as_doubles(input->b, input->rows * input->width) : NULL;
        good = own[k] != NULL;
    }
    if (good && wire->slots) {
        fill_inputs(wire, own, operation->input_count, far, none, inputs);
        ts_operation_apply(the_case->scene, operation, the_case->actor, inputs, out);
    }
    for (int k = 0; k < 3; k++)
        free(own[k]);
    free(far);
    free(none);
    return good;
}

/* An operation that takes the numbers of a token as they stand. */
static bool goes_by_numbers(enum ts_operation_kind kind)
{
    return kind == TS_OPERATION_SUM || kind == TS_OPERATION_SCALED_SUM || kind == TS_OPERATION_GATED_SUM ||
           kind == TS_OPERATION_NORM;
}

/* What the reference may go on from: near to it already, for a stream changes by a branch. */
static void find_streams(struct far_search *search)
{
    const struct ts_actor *actor = search->the_case->actor;
    for (size_t back = 1; back < TS_SCENE_WINDOW && search->stream_count < STREAMS; back++) {
        const struct ts_actor *other = ts_earlier(search->the_case, back);
        double change = 0, size = 0;
        if (!ts_same_size(search->the_case, other))
            continue;
        for (size_t i = search->first * actor->width; i < (search->first + search->count) * actor->width; i++) {
            double apart = (double)actor->a[i] - (double)other->a[i];
            change += apart * apart;
            size += (double)actor->a[i] * (double)actor->a[i];
        }
        if (change < CHANGED * size)
            search->streams[search->stream_count++] = other;
    }
}

static bool open_search(struct far_search *search)
{
    struct ts_case *the_case = search->the_case;
    enum ts_operation_kind kind = the_case->operation.kind;
    if (kind == TS_OPERATION_NONE) {
        ts_worst_rows(the_case, TRIED, &search->first, &search->count);
        search->cost = ts_rows_cost(the_case, the_case->expected, search->first, search->count);
        find_streams(search);
        if (!search->stream_count)
            return false;
    } else if (!goes_by_numbers(kind) || !ts_variants_open(&search->variants, the_case, &the_case->operation)) {
        return false;
    }
    search->far = ts_case_scratch(the_case);
    search->none = ts_case_scratch(the_case);
    search->out = ts_case_scratch(the_case);
    return search->far && search->none && search->out;
}

static void keep_better(struct far_search *search, const struct far_wire *wire, double share)
{
    if (share > search->most) {
        search->most = share;
        search->best = *wire;
    }
}

/* The tensor in `far` in every place where it may stand by mistake. */
static void try_far(struct far_search *search, size_t pair)
{
    struct ts_case *the_case = search->the_case;
    const struct ts_operation *operation = &the_case->operation;
    size_t width = the_case->actor->width;
    unsigned all = (1u << operation->input_count) - 1;
    for (size_t i = 0; i < search->stream_count; i++) {
        if (search->streams[i]->pair == pair)
            continue;
        replace_stream(the_case, search->far, search->streams[i], search->first * width,
                       (search->first + search->count) * width, search->out);
        keep_better(search, &(struct far_wire){.pair = pair, .near = search->streams[i]->pair},
                    1 - ts_rows_cost(the_case, search->out, search->first, search->count) / search->cost);
    }
    for (unsigned slots = 1; slots <= all && operation->kind != TS_OPERATION_NONE; slots++) {
        struct far_wire wire = {.pair = pair, .slots = slots};
        double *inputs[3] = {NULL, NULL, NULL};
        bool fits = slots < all || operation->kind == TS_OPERATION_NORM; /* of a sum something must be left */
        for (unsigned k = 0; k < operation->input_count; k++)
            fits = fits && (!(slots >> k & 1) || ts_same_size(the_case, search->variants.from[k]));
        if (!fits || (slots & (slots - 1) && operation->kind != TS_OPERATION_SUM &&
                      operation->kind != TS_OPERATION_NORM)) /* with a factor each they are not one tensor */
            continue;
        fill_inputs(&wire, search->variants.inputs, operation->input_count, search->far, search->none, inputs);
        keep_better(search, &wire, ts_variants_try(&search->variants, operation, inputs));
    }
}

/* "x", or "x + y". */
static const char *replaced_text(struct far_search *search)
{
    struct ts_case *the_case = search->the_case;
    const char *text = NULL;
    if (!search->best.slots)
        return ts_case_name(the_case, ts_scene_actor(the_case->scene, search->best.near));
    for (unsigned k = 0; k < the_case->operation.input_count; k++)
        if (search->best.slots >> k & 1) {
            const char *name = ts_case_name(the_case, search->variants.from[k]);
            text = text ? ts_case_text(the_case, "%s + %s", text, name) : name;
        }
    return text;
}

/* Slots of a tally: products of the stream that is taken, of the one that should be and of the error. */
enum { TAKEN, BOTH, LEFT, ERROR_TAKEN, ERROR_LEFT, ERROR, NUMBERS };

static bool count_streams(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                          struct ts_tally *tally)
{
    const struct far_wire *wire = formula->numbers;
    const struct ts_actor *left = ts_scene_actor(the_case->scene, wire->near);
    double *taken = malloc(the_case->total * sizeof *taken);
    bool good = taken && ts_same_size(the_case, left) && read_far(the_case, wire->pair, taken);
    (void)out;
    for (size_t i = 0; i < the_case->total && good; i++) {
        double error = the_case->found[i] - the_case->expected[i], y = (double)left->b[i];
        if (!isfinite(error) || !isfinite(y) || !isfinite(taken[i]))
            continue;
        tally->sums[TAKEN] += taken[i] * taken[i];
        tally->sums[BOTH] += taken[i] * y;
        tally->sums[LEFT] += y * y;
        tally->sums[ERROR_TAKEN] += error * taken[i];
        tally->sums[ERROR_LEFT] += error * y;
        tally->sums[ERROR] += error * error;
        tally->sums[NUMBERS]++;
    }
    free(taken);
    return good;
}

/* Least squares of the error over the two streams: one is there and the other is not, whatever the layer then makes of
 * it, which has no reason to follow either. */
static bool are_exchanged(const struct ts_tally *tally)
{
    const double *s = tally->sums, square = s[TAKEN] * s[LEFT] - s[BOTH] * s[BOTH];
    double taken = (s[ERROR_TAKEN] * s[LEFT] - s[ERROR_LEFT] * s[BOTH]) / square;
    double left = (s[ERROR_LEFT] * s[TAKEN] - s[ERROR_TAKEN] * s[BOTH]) / square;
    double rest = s[ERROR] - taken * s[ERROR_TAKEN] - left * s[ERROR_LEFT];
    double known = sqrt(rest / s[NUMBERS] * fmax(s[TAKEN], s[LEFT]) / square);
    return square > 0 && fabs(taken - 1) < FACTOR_OFF && fabs(left + 1) < FACTOR_OFF && known < FACTOR_KNOWN &&
           rest < (1 - WORTHWHILE) * s[ERROR];
}

static const char *tell_streams(struct ts_case *the_case, const struct ts_formula *formula,
                                const struct ts_tally *tally, double *share)
{
    (void)the_case;
    (void)formula;
    *share = are_exchanged(tally) ? *share : 0;
    return NULL;
}

/* A layer of which the output alone was captured goes on from the wrong stream, and what it adds has changed with it:
 * the two streams explain a part of the error. */
static void propose_partly(struct far_search *search)
{
    struct ts_case *the_case = search->the_case;
    const struct far_wire *best = &search->best;
    const char *near = ts_case_name(the_case, ts_scene_actor(the_case->scene, best->near));
    struct ts_formula formula = {.count = count_streams,
                                 .tell = tell_streams,
                                 .numbers = best,
                                 .size = sizeof *best,
                                 .pairs = {best->near},
                                 .pair_count = 1};
    struct ts_tally tally;
    ts_tally_open(&tally);
    if (!count_streams(the_case, &formula, NULL, &tally) || !are_exchanged(&tally))
        return;
    ts_formula_next(the_case, &formula);
    ts_propose_plain(the_case, "wrong-input", PARTLY_SURE,
                     ts_case_text(the_case, "what is added up inside %s: the residual stream",
                                  ts_case_name(the_case, the_case->actor)),
                     "the sum contains %s instead of %s: the candidate's residual stream continues from the wrong "
                     "tensor, and what is added to it differs as well",
                     the_case->scene->pairs[best->pair].name, near);
}

static void propose_best(struct far_search *search)
{
    struct ts_case *the_case = search->the_case;
    const struct far_wire *best = &search->best;
    struct ts_formula formula = {.predict = predict_far, .numbers = best, .size = sizeof *best};
    if (!best->slots) {
        formula.pairs[0] = best->near;
        formula.pair_count = 1;
    }
    if (!predict_far(the_case, &formula, search->out))
        return;
    ts_formula_next(the_case, &formula);
    if (!(ts_propose(the_case, "wrong-input", search->out, 0,
                     ts_case_text(the_case, "which tensor is passed to the step that makes %s: the residual stream",
                                  ts_case_name(the_case, the_case->actor)),
                     "the candidate applies the right operation to the wrong tensor: %s instead of %s",
                     the_case->scene->pairs[best->pair].name, replaced_text(search)) > 0) &&
        !best->slots)
        propose_partly(search);
}

void ts_wiring_far(struct ts_case *the_case)
{
    struct far_search search = {.the_case = the_case, .most = WORTHWHILE};
    /* what is within the scene was tried with a learnt operation already */
    size_t within = the_case->operation.kind == TS_OPERATION_NONE ? 1 : TS_SCENE_WINDOW;
    size_t index = the_case->actor->pair, before = index >= within ? index - within + 1 : 0, looked = 0;
    struct ts_scene scene;
    struct ts_error ignored;
    if (!before || ts_case_is_part(the_case) || the_case->actor->apart ||
        ts_scene_open_like(&scene, the_case->scene, &ignored) != TS_OK)
        return;
    if (open_search(&search))
        /* from both ends: the embeddings are the first of all */
        for (size_t step = 0; step < before && looked < LOOKED_AT && looked * the_case->total < LOOK_LIMIT; step++) {
            size_t pair = step % 2 ? before - 1 - step / 2 : step / 2;
            const struct ts_pair *far = &scene.pairs[pair];
            const struct ts_actor *other;
            if (far->problem || far->a.count != ts_case_pair(the_case)->a.count)
                continue;
            looked++;
            scene.loaded = pair;
            other = ts_scene_next(&scene, &ignored);
            if (!ts_same_size(the_case, other) || !other->usable || other->apart)
                continue;
            for (size_t i = 0; i < the_case->total; i++)
                search.far[i] = (double)other->b[i];
            try_far(&search, pair);
        }
    if (search.most > WORTHWHILE)
        propose_best(&search);
    ts_variants_close(&search.variants);
    ts_scene_release(&scene);
}
