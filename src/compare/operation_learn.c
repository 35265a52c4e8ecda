/* Owns the search: which operation on which earlier tensors gives the newest one, in the reference.
 *
 * Candidates are tried on a few elements or rows first; only what fits there is tried on everything. Of several that
 * fit the one with the smallest residual wins, so that a bf16 reference does not take gelu for its tanh approximation
 * when the other fits better. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_FOR_FACTOR 16  /* numbers: a factor fits two of a few tensors to any two numbers */
#define LEAST_LONE       64  /* numbers of one row, where the run has more tokens */
#define ELEMENTWISE      2   /* of the steps of learning: the first ones, which need no other row */
#define FACTOR_ERRORS    4   /* standard errors by which a factor must differ from one */
#define GATE_LIMIT       7.0 /* that is usual: swiglu_limit */
#define LEAST_CHANNELS   16  /* of which the middle one is looked at by itself */

#include "base/ordered.h"
#include "compare/operation_search.h"
#include "tensor/mask.h"

/* Residual of the values against the actor's reference. */
static double residual_of(const struct ts_search *search, const double *values)
{
    const float *y = search->actor->a;
    const bool scores = ts_may_be_masked(search->actor);
    double error = 0, size = 0;
    for (size_t i = 0; i < search->total; i++) {
        double expected = (double)y[i];
        if ((scores && ts_is_masked_score(expected)) || !isfinite(expected))
            continue;
        error += (values[i] - expected) * (values[i] - expected);
        size += expected * expected;
    }
    return size > 0 ? sqrt(error / size) : error > 0 ? (double)INFINITY : 0;
}

/* The middle channel's, each by its own size. Streams have channels that are thousands of times as large as the others,
 * and to a rounding of those a stream is its own input, whatever was added to the others. 0 where there is no error. */
static double residual_of_channels(const struct ts_search *search, const double *values)
{
    const size_t width = search->actor->width;
    double *residuals = malloc(width * sizeof *residuals), middle;
    size_t count = 0;
    for (size_t channel = 0; channel < width && residuals; channel++) {
        double error = 0, size = 0;
        for (size_t i = channel; i < search->total; i += width) {
            const double expected = (double)search->actor->a[i];
            if (!isfinite(expected))
                continue;
            error += (values[i] - expected) * (values[i] - expected);
            size += expected * expected;
        }
        if (size > 0)
            residuals[count++] = error / size;
    }
    middle = count >= LEAST_CHANNELS ? sqrt(ts_nth(residuals, count, count / 2)) : 0;
    free(residuals);
    return middle;
}

/* The same gate through tanh or not: neither is simpler. Of small gates both fit. */
static bool is_twin(const struct ts_operation *one, const struct ts_operation *other)
{
    return one->kind == TS_OPERATION_GATED_SUM && other->kind == TS_OPERATION_GATED_SUM && one->chunk == other->chunk &&
           one->flag != other->flag && memcmp(one->inputs, other->inputs, sizeof one->inputs) == 0;
}

bool ts_search_consider(struct ts_search *search, struct ts_operation *candidate)
{
    double *inputs[3] = {NULL, NULL, NULL}, *out = malloc(search->total * sizeof *out);
    bool good = out != NULL, kept = false;
    candidate->stride = search->stride;
    candidate->place = search->place;
    for (unsigned i = 0; i < candidate->input_count && good; i++) {
        const struct ts_actor *input = ts_operation_input(search->scene, candidate, i);
        inputs[i] = input ? ts_as_doubles(input->a, input->rows * input->width) : NULL;
        good = inputs[i] != NULL;
    }
    if (good) {
        ts_operation_apply(search->scene, candidate, search->actor, inputs, out);
        candidate->residual = residual_of(search, out);
        if (ts_operation_is_by_place(candidate->kind) && candidate->residual < search->tolerance)
            candidate->residual = fmax(candidate->residual, residual_of_channels(search, out));
        if (candidate->residual < search->tolerance &&
            (search->best.kind == TS_OPERATION_NONE ||
             candidate->residual < (is_twin(candidate, &search->best) ? 1 : 0.5) * search->best.residual)) {
            ts_operation_release(&search->best);
            search->best = *candidate;
            candidate->table = NULL;
            kept = true;
        }
    }
    for (int i = 0; i < 3; i++)
        free(inputs[i]);
    free(out);
    free(candidate->table);
    candidate->table = NULL;
    return kept;
}

/* The sum of up to three inputs at every probe; NULL adds nothing. */
static bool sum_fits(const struct ts_search *search, const float *x, const float *y, const float *z)
{
    double error = 0;
    for (size_t k = 0; k < search->probe_count; k++) {
        size_t at = search->probes[k];
        double value = (double)x[at] + (y ? (double)y[at] : 0) + (z ? (double)z[at] : 0);
        if (ts_search_strays(search, k, value, &error))
            return false;
    }
    return true;
}

static void learn_sums(struct ts_search *search)
{
    const struct ts_actor *const *same = search->same;
    for (size_t i = 0; i < search->same_count; i++) {
        struct ts_operation copy = {.kind = TS_OPERATION_COPY, .inputs = {same[i]->pair}, .input_count = 1};
        if (sum_fits(search, same[i]->a, NULL, NULL) && ts_search_consider(search, &copy))
            return;
    }
    for (size_t i = 0; i < search->same_count; i++)
        for (size_t j = i + 1; j < search->same_count; j++)
            if (sum_fits(search, same[i]->a, same[j]->a, NULL)) {
                struct ts_operation sum = {
                    .kind = TS_OPERATION_SUM, .inputs = {same[i]->pair, same[j]->pair}, .input_count = 2};
                ts_search_consider(search, &sum);
            }
    if (search->best.kind != TS_OPERATION_NONE)
        return;
    for (size_t i = 0; i < search->same_count && i < 12; i++)
        for (size_t j = i + 1; j < search->same_count && j < 12; j++)
            for (size_t l = j + 1; l < search->same_count; l++)
                if (sum_fits(search, same[i]->a, same[j]->a, same[l]->a)) {
                    struct ts_operation sum = {.kind = TS_OPERATION_SUM,
                                               .inputs = {same[i]->pair, same[j]->pair, same[l]->pair},
                                               .input_count = 3};
                    ts_search_consider(search, &sum);
                }
}

/* Least squares of a factor, one element after the other: what remains, and what there was. */
struct line {
    double dot, square, size;
    size_t count;
};

static void line_add(struct line *line, double term, double wanted)
{
    line->dot += term * wanted;
    line->square += term * term;
    line->size += wanted * wanted;
    line->count++;
}

/* The best factor leaves more than the probes may err by; asked after every few elements. */
static bool line_strays(const struct ts_search *search, const struct line *line)
{
    double explained = line->square > 0 ? line->dot * line->dot / line->square : 0;
    return (line->count % 4 == 0 || line->count == search->probe_count) && !(line->size - explained <= search->allowed);
}

/* Adds a number of x + factor * term that is `wanted`, weighed by what rounding leaves of it: beside a number that is
 * far larger, a rounding of that is all there is to see. */
static void line_add_weighed(struct line *line, double x, double term, double wanted)
{
    const double size = sqrt(x * x + wanted * wanted);
    if (size > 0)
        line_add(line, term / size, (wanted - x) / size);
}

/* The factor, or one where what it leaves is too much to tell it from that. */
static double line_factor(const struct line *line)
{
    const double factor = line->square > 0 ? line->dot / line->square : 0;
    const double left = fmax(line->size - factor * line->dot, 0);
    const double own_error = line->count > 1 ? sqrt(left / ((double)(line->count - 1) * line->square)) : 0;
    return fabs(factor - 1) < FACTOR_ERRORS * own_error ? 1 : factor;
}

/* x + factor * y: residuals that are scaled before they are added, or embeddings that are. */
static void learn_scaled_sums(struct ts_search *search)
{
    const float *to = search->actor->a;
    if (search->total < LEAST_FOR_FACTOR)
        return;
    for (size_t i = 0; i < search->same_count && i < 12; i++)
        for (size_t j = 0; j < search->same_count && j < 12; j++) {
            const float *x = search->same[i]->a, *y = search->same[j]->a;
            struct ts_operation sum = {.kind = TS_OPERATION_SCALED_SUM,
                                       .inputs = {search->same[i]->pair, search->same[j]->pair},
                                       .input_count = 2};
            struct line line = {0};
            bool strays = i == j;
            for (size_t k = 0; k < search->probe_count && !strays; k++) {
                size_t at = search->probes[k];
                line_add(&line, (double)y[at], search->wanted[k] - (double)x[at]);
                strays = line_strays(search, &line);
            }
            /* the factor must have explained something: one number fits what is nearly nothing */
            if (strays || line.size < 16 * search->allowed)
                continue;
            line = (struct line){0};
            for (size_t k = 0; k < search->total; k++)
                if (isfinite(to[k]) && isfinite(x[k]) && isfinite(y[k]))
                    line_add_weighed(&line, (double)x[k], (double)y[k], (double)to[k]);
            sum.factor = line_factor(&line);
            ts_search_consider(search, &sum);
        }
}

/* The c of y = c tanh(x / c), from the largest x: the right side grows with c. 0 when no c fits. */
static double softcap_of(const struct ts_search *search, const float *x)
{
    size_t at = 0;
    double low, high = 1e4, from, to;
    for (size_t i = 1; i < search->total; i++)
        if (isfinite(search->actor->a[i]) && isfinite(x[i]) &&
            (fabsf(x[i]) > fabsf(x[at]) || !isfinite(search->actor->a[at])))
            at = i;
    from = fabs((double)x[at]);
    to = fabs((double)search->actor->a[at]);
    if (!(to > 0) || !(from > to * 1.0001))
        return 0;
    low = to * 1.0000001;
    for (int step = 0; step < 80; step++) {
        double middle = sqrt(low * high);
        *(middle * tanh(from / middle) < to ? &low : &high) = middle;
    }
    /* people choose round caps; a fitted one near such a number is that number */
    return fabs(low - round(low)) < 1e-3 * low ? round(low) : low;
}

/* No softcap makes a number larger or turns its sign. */
static bool may_be_softcap(const struct ts_search *search, const float *x)
{
    for (size_t k = 0; k < search->probe_count; k++) {
        double from = (double)x[search->probes[k]], to = search->wanted[k];
        if (!(fabs(to) <= fabs(from) * (1 + search->tolerance)) || from * to < 0)
            return false;
    }
    return true;
}

static void learn_scale(struct ts_search *search)
{
    for (size_t i = 0; i < search->same_count && i < 6; i++) {
        const float *x = search->same[i]->a;
        struct line line = {0};
        bool strays = false;
        double error = 0;
        struct ts_operation scale = {.kind = TS_OPERATION_SCALE, .inputs = {search->same[i]->pair}, .input_count = 1};
        for (size_t k = 0; k < search->probe_count && !strays; k++) {
            line_add(&line, (double)x[search->probes[k]], search->wanted[k]);
            strays = line_strays(search, &line);
        }
        if (!strays) {
            line = (struct line){0};
            for (size_t k = 0; k < search->total; k++)
                if (isfinite(x[k]) && isfinite(search->actor->a[k]))
                    line_add(&line, (double)x[k], (double)search->actor->a[k]);
            scale.factor = line.square > 0 ? line.dot / line.square : 0;
            if (ts_search_consider(search, &scale))
                continue;
        }
        scale.factor = may_be_softcap(search, x) ? softcap_of(search, x) : 0;
        scale.flag = true;
        for (size_t k = 0; k < search->probe_count && scale.factor > 0; k++)
            if (ts_search_strays(search, k, scale.factor * tanh((double)x[search->probes[k]] / scale.factor), &error))
                scale.factor = 0;
        if (scale.factor > 0)
            ts_search_consider(search, &scale);
    }
}

/* What a function or a gate may be given: a tensor of the actor's size, or some columns of a wider one. */
struct operand {
    const struct ts_actor *from;
    size_t place;
    bool part, alternate;
    double at[TS_SEARCH_PROBES];
};

#define MOST_WHOLE 8
#define MOST_WIDE  6 /* wider tensors of which parts are tried */
#define MOST_PARTS 32

static void add_operand(const struct ts_search *search, const struct ts_actor *from, size_t place, bool alternate,
                        struct operand *operand)
{
    const size_t width = search->actor->width, step = alternate ? 2 : 1;
    *operand = (struct operand){.from = from, .place = place, .part = from->width != width, .alternate = alternate};
    for (size_t k = 0; k < search->probe_count; k++)
        operand->at[k] =
            (double)from->a[search->probes[k] / width * from->width + place + step * (search->probes[k] % width)];
}

/* Columns from the beginning and from the end: what stands beside them may have any width. Of twice the width every
 * second one as well. */
static size_t add_parts(const struct ts_search *search, struct operand *parts)
{
    const size_t width = search->actor->width;
    size_t count = 0, wide = 0;
    for (size_t i = 0; i < search->all_count && wide < MOST_WIDE; i++) {
        const struct ts_actor *from = search->all[i];
        if (from->rows != search->actor->rows || from->apart != search->actor->apart || from->width <= width)
            continue;
        wide++;
        for (size_t place = 0; place + width <= from->width && count < MOST_PARTS; place += width) {
            add_operand(search, from, place, false, &parts[count++]);
            if (from->width % width && count < MOST_PARTS)
                add_operand(search, from, from->width - width - place, false, &parts[count++]);
        }
        for (size_t place = 0; place < 2 && from->width == 2 * width && count < MOST_PARTS; place++)
            add_operand(search, from, place, true, &parts[count++]);
    }
    return count;
}

/* y is NULL when there is no second operand. */
static bool activation_fits(const struct ts_search *search, const struct ts_operation *act, const double *x,
                            const double *y)
{
    double error = 0;
    for (size_t k = 0; k < search->probe_count; k++) {
        double first = x[k], second = y ? y[k] : 1, value;
        if (act->limit > 0) {
            first = fmin(first, act->limit);
            second = fmax(-act->limit, fmin(second, act->limit));
        }
        second += act->plus;
        value = act->summed ? ts_activation_value(act->activation, first + second)
                            : ts_activation_value(act->activation, first) * second;
        if (ts_search_strays(search, k, value, &error))
            return false;
    }
    return true;
}

/* Every function of x; y is NULL, or the gate, or what is added to x. */
static void try_functions(struct ts_search *search, const struct operand *x, const struct operand *y, bool summed,
                          bool identity)
{
    for (int f = 0; f < TS_ACTIVATION_COUNT; f++) {
        struct ts_operation act = {.kind = TS_OPERATION_ACTIVATION,
                                   .inputs = {x->from->pair, y ? y->from->pair : 0},
                                   .input_count = y && y->from != x->from ? 2 : 1,
                                   .activation = (enum ts_activation)f,
                                   .fused = y && y->from == x->from,
                                   .summed = summed,
                                   .part = {x->part, y && y->part},
                                   .places = {x->place, y ? y->place : 0},
                                   .alternate = x->alternate || (y && y->alternate),
                                   .size = search->actor->width};
        if ((f != TS_ACTIVATION_IDENTITY || identity) && activation_fits(search, &act, x->at, y ? y->at : NULL))
            ts_search_consider(search, &act);
        if (f == TS_ACTIVATION_IDENTITY || !y || summed)
            continue;
        act.plus = true; /* as gpt-oss has it; where nothing is as large as its limit, nothing shows that */
        for (int limited = 0; limited < 2; limited++) {
            act.limit = limited ? GATE_LIMIT : 0;
            if (activation_fits(search, &act, x->at, y->at))
                ts_search_consider(search, &act);
        }
    }
}

static void learn_activations(struct ts_search *search)
{
    struct operand *all = malloc((MOST_WHOLE + MOST_PARTS) * sizeof *all);
    size_t whole = search->same_count < MOST_WHOLE ? search->same_count : MOST_WHOLE, count = whole;
    if (!all)
        return;
    for (size_t i = 0; i < whole; i++)
        add_operand(search, search->same[i], 0, false, &all[i]);
    for (size_t i = 0; i < whole; i++) {
        for (size_t j = 0; j < whole; j++)
            if (j != i)
                try_functions(search, &all[i], &all[j], false, i < j);
        try_functions(search, &all[i], NULL, false, false);
    }
    for (size_t i = 0; i < whole && search->best.kind == TS_OPERATION_NONE; i++)
        for (size_t j = i + 1; j < whole; j++)
            try_functions(search, &all[i], &all[j], true, false);
    if (search->best.kind == TS_OPERATION_NONE)
        count += add_parts(search, all + whole);
    for (size_t i = 0; i < count && count > whole; i++) {
        for (size_t j = i < whole ? whole : 0; j < count; j++)
            if (j != i &&
                (i < whole || j < whole || (all[i].from == all[j].from && all[i].alternate == all[j].alternate)))
                try_functions(search, &all[i], &all[j], false, i < j);
        if (i >= whole)
            try_functions(search, &all[i], NULL, false, false);
    }
    free(all);
}

/* x times a scale and plus a shift, both chunks of `from`, given at the probes; or a scale alone. */
static void learn_scale_and_shift(struct ts_search *search, const struct ts_actor *from, unsigned chunks,
                                  double (*values)[TS_SEARCH_PROBES], const struct ts_actor *input)
{
    for (unsigned scale = 0; scale < chunks; scale++)
        for (unsigned shift = 0; shift <= chunks; shift++)
            for (int one = 1; one >= 0 && shift != scale; one--) {
                struct ts_operation modulate = {.kind = TS_OPERATION_MODULATE,
                                                .inputs = {input->pair, from->pair},
                                                .input_count = 2,
                                                .chunk = scale,
                                                .other_chunk = shift < chunks ? shift : TS_NO_CHUNK,
                                                .flag = one};
                double error = 0;
                size_t k = 0;
                while (k < search->probe_count &&
                       !ts_search_strays(search, k,
                                         (double)input->a[search->probes[k]] * (one + values[scale][k]) +
                                             (shift < chunks ? values[shift][k] : 0),
                                         &error))
                    k++;
                if (k == search->probe_count)
                    ts_search_consider(search, &modulate);
            }
}

/* x + factor * gate * y, the gate a chunk of `from`, or its tanh. */
static void learn_gated_sum(struct ts_search *search, const struct ts_actor *from, unsigned chunks,
                            double (*values)[TS_SEARCH_PROBES], const struct ts_actor *input)
{
    for (size_t j = 0; j < search->same_count && j < 12; j++)
        for (unsigned at = 0; at < 2 * chunks && search->same[j] != input; at++) {
            struct ts_operation sum = {.kind = TS_OPERATION_GATED_SUM,
                                       .inputs = {input->pair, search->same[j]->pair, from->pair},
                                       .input_count = 3,
                                       .chunk = at % chunks,
                                       .flag = at >= chunks};
            struct line line = {0}, weighed = {0};
            bool strays = false;
            for (size_t k = 0; k < search->probe_count && !strays; k++) {
                const size_t probe = search->probes[k];
                const double gate = sum.flag ? tanh(values[sum.chunk][k]) : values[sum.chunk][k];
                const double x = (double)input->a[probe], term = (double)search->same[j]->a[probe] * gate;
                line_add(&line, term, search->wanted[k] - x);
                line_add_weighed(&weighed, x, term, search->wanted[k]);
                strays = line_strays(search, &line);
            }
            if (strays || !(line.square > 0))
                continue;
            sum.factor = line_factor(&weighed);
            ts_search_consider(search, &sum);
        }
}

/* Chunks of a modulation tensor: two or more times as wide, one row per token or one for all. */
static void learn_modulation(struct ts_search *search)
{
    const struct ts_actor *actor = search->actor;
    double values[TS_MOST_CHUNKS][TS_SEARCH_PROBES];
    for (size_t m = 0; m < search->all_count; m++) {
        const struct ts_actor *from = search->all[m];
        size_t chunks = from->width / actor->width;
        if (from->width % actor->width || chunks < 2 || chunks > TS_MOST_CHUNKS ||
            (from->rows != 1 && !from->apart && from->rows != actor->rows) || actor->apart)
            continue;
        for (size_t chunk = 0; chunk < chunks; chunk++)
            for (size_t k = 0; k < search->probe_count; k++) {
                size_t row = ts_scene_row(search->scene, from, search->probes[k] / actor->width);
                values[chunk][k] =
                    (double)from->a[row * from->width + chunk * actor->width + search->probes[k] % actor->width];
            }
        for (size_t i = 0; i < search->same_count && i < 12; i++) {
            learn_scale_and_shift(search, from, (unsigned)chunks, values, search->same[i]);
            learn_gated_sum(search, from, (unsigned)chunks, values, search->same[i]);
        }
    }
}

static void gather(struct ts_search *search)
{
    size_t newest = search->actor->pair;
    for (size_t back = 1; back < TS_SCENE_WINDOW && back <= newest; back++) {
        const struct ts_actor *other = ts_scene_actor(search->scene, newest - back);
        if (!other || !(other->norm_a > 0))
            continue;
        search->all[search->all_count++] = other;
        if (other->rows == search->actor->rows && other->apart == search->actor->apart &&
            other->width == search->actor->width && search->same_count < TS_SEARCH_INPUTS)
            search->same[search->same_count++] = other;
    }
    /* a stride without common factors with the usual sizes */
    for (size_t i = 0; i < 4 * TS_SEARCH_PROBES && i < search->total && search->probe_count < TS_SEARCH_PROBES; i++) {
        size_t at = search->total <= TS_SEARCH_PROBES ? i : (i * 1000003 + 12345) % search->total;
        double wanted = (double)search->actor->a[at];
        if (!isfinite(wanted)) /* masked */
            continue;
        search->probes[search->probe_count] = at;
        search->wanted[search->probe_count++] = wanted;
        search->allowed += wanted * wanted * search->tolerance * search->tolerance;
    }
}

/* What has one row, where the run has more tokens: a pooler's, the embedding of a time step, or all rows that experts
 * gathered. */
static bool is_lone(const struct ts_scene *scene, const struct ts_actor *actor)
{
    return actor->rows < 2 && scene->tokens != 1;
}

/* False where nothing can be learnt. */
static bool open_search(struct ts_search *search, struct ts_scene *scene, const struct ts_actor *actor)
{
    *search = (struct ts_search){.scene = scene, .actor = actor, .total = actor->rows * actor->width};
    if (!actor->usable || !(actor->norm_a > 0) || (is_lone(scene, actor) && actor->width < LEAST_LONE))
        return false;
    /* a few roundings of the reference's own precision; double's worth of slack for sums in fp32 */
    search->tolerance = 6 * ts_rounding(actor->bits_a);
    if (search->tolerance < 2e-5)
        search->tolerance = 2e-5;
    gather(search);
    return true;
}

enum ts_status ts_operation_learn(struct ts_scene *scene, const struct ts_actor *actor, struct ts_operation *operation,
                                  struct ts_error *error)
{
    struct ts_search search;
    /* what has no free constants before what has one per channel: a modulation common to all tokens also fits as a norm
     */
    void (*const steps[])(struct ts_search *) = {
        learn_sums,       learn_activations, learn_modulation, ts_learn_softmax,  ts_learn_topk,
        ts_learn_context, ts_learn_scores,   learn_scale,      learn_scaled_sums, ts_learn_capped_scores,
        ts_learn_norms,   ts_learn_rotary,   ts_learn_parts,   ts_learn_attention};
    (void)error;
    *operation = (struct ts_operation){0};
    if (!open_search(&search, scene, actor))
        return TS_OK;
    for (size_t i = 0; i < (is_lone(scene, actor) ? ELEMENTWISE : sizeof steps / sizeof *steps) &&
                       search.best.kind == TS_OPERATION_NONE;
         i++)
        steps[i](&search);
    *operation = search.best;
    return TS_OK;
}

bool ts_operation_turn_again(struct ts_scene *scene, const struct ts_actor *actor, struct ts_operation *operation)
{
    struct ts_search search;
    if (is_lone(scene, actor) || !open_search(&search, scene, actor))
        return false;
    ts_learn_rotary(&search);
    if (search.best.kind == TS_OPERATION_NONE)
        ts_learn_parts_that_turn(&search);
    if (search.best.kind == TS_OPERATION_NONE)
        return false;
    ts_operation_release(operation);
    *operation = search.best;
    return true;
}
