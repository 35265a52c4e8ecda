/* Wiring: the right operations on the wrong tensors. A tensor that equals another one, an operation that was left out
 * or took something else, a term of a sum that is missing, there twice or comes from elsewhere, a square weight used
 * transposed; and, when nothing at all holds, no relation. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/attention_operands.h"
#include "diagnose/variant.h"
#include "diagnose/wiring.h"

/* Of what tells tokens apart: how much of it a stream may change by, and what of that is nothing. */
#define STREAM  1.0
#define MISSING 0.1
/* Of the error of a stream: what the next layer has of it at least that was given the wrong one. */
#define GOES_ON 0.3
/* Times the noise: tokens that are no further apart are any other tensor's, but for a constant. */
#define BESIDE 2 /* pairs: gate, what is applied to it, and up */
#define ALIKE  2.0
/* A trial explains something worth proving on everything. */
#define WORTHWHILE 0.3
/* Pairs that are read when another tensor with the same values is looked for. */
#define LOOKED_AT  256
#define LOOK_LIMIT ((size_t)1 << 26) /* elements of them in all */

/* The next word of a name: letters, or digits; *length 0 at the end. */
static const char *next_word(const char *text, size_t *length)
{
    while (*text && !isalnum((unsigned char)*text))
        text++;
    *length = 0;
    while (isalnum((unsigned char)text[*length]))
        ++*length;
    return text;
}

static bool word_is(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && strncmp(text, word, length) == 0;
}

static bool all_digits(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!isdigit((unsigned char)text[i]))
            return false;
    return length > 0;
}

/* Words that name things side by side: what stands in for another of its group was mixed up with it. */
static int role_of(const char *text, size_t length)
{
    static const char *const groups[][6] = {{"q", "k", "v", "query", "key", "value"},
                                            {"wq", "wk", "wv", "wo", "o"},
                                            {"gate", "up", "ffn_gate", "ffn_up"},
                                            {"w1", "w2", "w3"},
                                            {"scale", "shift"},
                                            {"attn", "mlp", "attention", "ffn"}};
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        for (size_t i = 0; i < 6 && groups[g][i]; i++)
            if (word_is(text, length, groups[g][i]))
                return (int)g + 1;
    return 0;
}

/* q_proj and k_proj, or the same tensor of two layers. */
static bool are_siblings(const char *a, const char *b)
{
    size_t length_a, length_b, differing = 0;
    for (;;) {
        a = next_word(a, &length_a);
        b = next_word(b, &length_b);
        if (!length_a || !length_b)
            return length_a == length_b && differing <= 2;
        if (length_a != length_b || strncmp(a, b, length_a) != 0) {
            int role = role_of(a, length_a);
            if (!(all_digits(a, length_a) && all_digits(b, length_b)) && !(role && role == role_of(b, length_b)))
                return false;
            differing++;
        }
        a += length_a;
        b += length_b;
    }
}

/* The candidate's values of another tensor; masked where the reference is, for masks come with the step. */
static void take_values(const struct ts_case *the_case, const struct ts_actor *other, double *out)
{
    for (size_t i = 0; i < the_case->total; i++)
        out[i] = the_case->expected[i] == -INFINITY ? -(double)INFINITY : (double)other->b[i];
}

/* Another tensor that is what was expected but for a few elements says nothing about where those come from. */
static bool is_nearly_expected(const struct ts_case *the_case, const double *prediction)
{
    size_t apart = 0;
    for (size_t i = 0; i < the_case->total; i++)
        if (!(fabs(prediction[i] - the_case->expected[i]) <= 1e-3 * fabs(the_case->expected[i])))
            apart++;
    return apart * 20 < the_case->total;
}

/* What tells tokens apart: energy that is left without each channel's mean. */
static double told_apart(const struct ts_case *the_case, const float *x, const float *minus)
{
    const size_t rows = the_case->actor->rows, width = the_case->actor->width;
    double energy = 0;
    for (size_t i = 0; i < width; i++) {
        double sum = 0, square = 0;
        for (size_t at = i; at < rows * width; at += width) {
            const double value = (double)x[at] - (minus ? (double)minus[at] : 0);
            sum += value;
            square += value * value;
        }
        energy += fmax(0, square - sum * sum / (double)rows);
    }
    return energy;
}

/* In the reference the stream goes on from there, and this adds to it. */
static bool is_stream(const struct ts_case *the_case, const struct ts_actor *from)
{
    const float *a = the_case->actor->a;
    return told_apart(the_case, a, from->a) < STREAM * told_apart(the_case, a, NULL);
}

static bool same_shape(const struct ts_pair *a, const struct ts_pair *b)
{
    if (a->problem || b->problem || a->a.rank != b->a.rank || a->a.rank == 0)
        return false;
    for (unsigned i = 0; i < a->a.rank; i++)
        if (a->a.shape[i] != b->a.shape[i])
            return false;
    return ts_type_is_integer(a->a.tensor->type) == ts_type_is_integer(b->a.tensor->type) &&
           ts_type_info(b->a.tensor->type)->components == 1;
}

/* The next one of this shape is wrong as well: it was not merely captured in the wrong place. */
static bool goes_on_wrong(const struct ts_case *the_case)
{
    const struct ts_pair *own = ts_case_pair(the_case);
    const size_t behind = ts_case_pair_count(the_case) - the_case->actor->pair;
    for (size_t i = 1; i < behind && the_case->delta; i++)
        if (same_shape(own, &own[i]))
            return the_case->delta[i].rel_l2 > GOES_ON * the_case->delta->rel_l2;
    return false;
}

/* What a gated sum gates, among its inputs. */
#define GATED 1

/* What was found is an earlier tensor: either the operation was left out, or another tensor stands here. */
static void propose_equal(struct ts_case *the_case)
{
    const struct ts_operation *operation = &the_case->operation;
    bool is_sum = operation->kind == TS_OPERATION_SUM || operation->kind == TS_OPERATION_GATED_SUM;
    size_t best = 0;
    double most = WORTHWHILE, *prediction = ts_case_scratch(the_case);
    const struct ts_actor *other;
    const char *name;
    if (!prediction)
        return;
    for (size_t back = 1; back < TS_SCENE_WINDOW; back++) {
        const struct ts_actor *actor = ts_earlier(the_case, back);
        double share;
        /* a sum that equals one of its terms lacks the other; a linear scale that was left out is a factor. But what is
         * gated before it is added is no term by itself */
        if (!ts_same_size(the_case, actor) ||
            (is_sum && ts_is_input(the_case, actor->pair) &&
             !(operation->kind == TS_OPERATION_GATED_SUM && actor->pair == operation->inputs[GATED])) ||
            (operation->kind == TS_OPERATION_SCALE && !operation->flag && ts_is_input(the_case, actor->pair)) ||
            (operation->kind == TS_OPERATION_COPY && ts_is_input(the_case, actor->pair)))
            continue;
        take_values(the_case, actor, prediction);
        if (is_nearly_expected(the_case, prediction))
            continue;
        share = ts_explained(the_case, prediction);
        if (share > most + 1e-9) {
            most = share;
            best = back;
        }
    }
    if (!best)
        return;
    other = ts_earlier(the_case, best);
    name = ts_case_name(the_case, other);
    take_values(the_case, other, prediction);
    ts_formula_sum(the_case, 0, &other->pair, &(double){1}, 1);
    /* what equals another norm's result is that norm's, or the norm of its input */
    if (ts_is_input(the_case, other->pair) ||
        (operation->kind != TS_OPERATION_COPY && operation->kind != TS_OPERATION_NORM &&
         (!are_siblings(name, ts_case_name(the_case, the_case->actor)) ||
          (is_stream(the_case, other) && goes_on_wrong(the_case)))))
        ts_propose(the_case, "skipped-op", prediction, 0,
                   ts_case_text(the_case, "whether %s is computed at all, and whether it is captured after the step",
                                ts_case_name(the_case, the_case->actor)),
                   "the candidate holds %s unchanged: this step was not applied", name);
    else
        ts_propose(the_case, "swapped-with", prediction, 0, "which tensors or weights are bound to which names",
                   "the candidate holds its own %s here", name);
}

/* Another tensor and a constant per channel, in the table. */
static bool predict_but_bias(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct ts_actor *other = ts_scene_actor(the_case->scene, formula->pairs[0]);
    if (!ts_same_size(the_case, other) || formula->table_count != the_case->actor->width)
        return false;
    for (size_t i = 0; i < the_case->total; i++)
        out[i] = (double)other->b[i] + formula->table[i % formula->table_count];
    return true;
}

/* Weights of another tensor, biases of this one: what was found is a sibling but for a constant per channel. */
static void propose_equal_but_bias(struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor, *best = NULL;
    size_t rows = actor->rows, width = actor->width;
    double *prediction = ts_case_scratch(the_case), most = 0.99, *apart, update;
    bool stream;
    struct ts_formula formula = {.predict = predict_but_bias, .table_count = width, .pair_count = 1};
    if (!prediction || the_case->operation.kind != TS_OPERATION_NONE || rows < 6)
        return;
    for (size_t back = 1; back <= 12; back++) {
        const struct ts_actor *other = ts_earlier(the_case, back);
        double left = 0, all = 0;
        if (!ts_same_size(the_case, other) ||
            !are_siblings(ts_case_name(the_case, other), ts_case_name(the_case, actor)))
            continue;
        for (size_t i = 0; i < width; i++) {
            double found = 0, mean = 0;
            for (size_t at = i; at < rows * width; at += width) {
                found += the_case->found[at] / (double)rows;
                mean += (the_case->found[at] - (double)other->b[at]) / (double)rows;
            }
            for (size_t at = i; at < rows * width; at += width) {
                double rest = the_case->found[at] - (double)other->b[at] - mean;
                left += rest * rest;
                all += (the_case->found[at] - found) * (the_case->found[at] - found);
            }
        }
        if (all > ALIKE * the_case->noise && 1 - (left - the_case->noise) / all > most) {
            most = 1 - (left - the_case->noise) / all;
            best = other;
        }
    }
    if (!best || !(apart = calloc(width, sizeof *apart)))
        return;
    for (size_t at = 0; at < rows * width; at++)
        apart[at % width] += (the_case->found[at] - (double)best->b[at]) / (double)rows;
    formula.pairs[0] = best->pair;
    formula.table = apart;
    (void)predict_but_bias(the_case, &formula, prediction);
    update = told_apart(the_case, actor->a, best->a);
    stream = is_stream(the_case, best);
    if (!stream || told_apart(the_case, actor->b, best->b) < MISSING * update)
        ts_formula_next(the_case, &formula);
    free(apart);
    if (!stream)
        ts_propose(the_case, "swapped-with", prediction, width, "which weights are bound to which names",
                   "the candidate holds its own %s here, except for a constant per channel: that tensor's weight with "
                   "another bias",
                   ts_case_name(the_case, best));
    else if (told_apart(the_case, actor->b, best->b) < MISSING * update)
        ts_propose(
            the_case, "skipped-op", prediction, width,
            "what is added to the residual stream here: a branch or gate that is zero or does not depend on the token",
            "the candidate adds the same numbers to its own %s in every token: what the reference adds for each token "
            "is missing",
            ts_case_name(the_case, best));
}

/* Values of another pair laid out as the case's. `scene` is a spare one. */
static bool read_like_case(struct ts_case *the_case, struct ts_scene *scene, size_t pair, double *out)
{
    const struct ts_pair *other = ts_case_pair(the_case) - the_case->actor->pair + pair;
    const struct ts_actor *actor = the_case->actor;
    struct ts_error ignored;
    if (ts_case_direct(the_case)) {
        for (size_t row = 0; row < actor->rows; row++)
            if (ts_view_read_f64(&other->a, ts_case_row(the_case, row) * actor->width, actor->width,
                                 out + row * actor->width, &ignored) != TS_OK)
                return false;
        return true;
    }
    scene->loaded = pair;
    actor = ts_scene_next(scene, &ignored);
    if (!ts_same_size(the_case, actor) || !actor->usable)
        return false;
    for (size_t i = 0; i < the_case->total; i++)
        out[i] = (double)actor->a[i];
    return true;
}

/* Gate and up are made by one weight, whose rows stand one behind the other, or take turns. Where it is taken apart in
 * the other way, half of each tensor's channels are the other's. */
static double mixed(const struct ts_case *the_case, const double *other, bool in_turns, bool second, size_t at)
{
    size_t width = the_case->actor->width, row = at / width * width, i = at % width, from;
    bool others;
    if (in_turns) { /* of rows that take turns a half */
        from = (second ? width : 0) + i;
        others = from % 2 != (second ? 1U : 0U);
        return others ? other[row + from / 2] : the_case->expected[row + from / 2];
    }
    from = 2 * i + (second ? 1U : 0U); /* of those one behind the other every second one */
    others = (from >= width) != second;
    return others ? other[row + from % width] : the_case->expected[row + from % width];
}

/* The tensor that shares a weight with this one comes next, or came before. */
static void propose_mixed(struct ts_case *the_case)
{
    const struct ts_pair *own = ts_case_pair(the_case), *pairs = own - the_case->actor->pair;
    size_t count = ts_case_pair_count(the_case), index = the_case->actor->pair;
    double *prediction = ts_case_scratch(the_case), *other = malloc((the_case->total + 1) * sizeof *other);
    struct ts_scene scene;
    struct ts_error ignored;
    if (!prediction || !other || the_case->operation.kind != TS_OPERATION_NONE || the_case->actor->width % 2 ||
        ts_scene_open_like(&scene, the_case->scene, &ignored) != TS_OK) {
        free(other);
        return;
    }
    for (size_t step = 1; step <= BESIDE; step++)
        for (int earlier = 0; earlier < 2; earlier++) {
            size_t pair = earlier ? index - step : index + step;
            if ((earlier ? step > index : index + step >= count) || !same_shape(own, &pairs[pair]) ||
                !read_like_case(the_case, &scene, pair, other))
                continue;
            for (int in_turns = 0; in_turns < 2; in_turns++) {
                for (size_t i = 0; i < the_case->total; i++)
                    prediction[i] = mixed(the_case, other, in_turns, earlier, i);
                if (ts_explained(the_case, prediction) < WORTHWHILE)
                    continue;
                ts_propose(the_case, "permuted", prediction, 0,
                           "how the weight that makes both is split: one half for each, or every second row",
                           in_turns ? "half of the channels are those of %s: the candidate takes a half of a weight "
                                      "whose rows take turns, where the reference takes every second one"
                                    : "half of the channels are those of %s: the candidate takes every second row of a "
                                      "weight whose rows stand one half behind the other, where the reference takes a "
                                      "half",
                           pairs[pair].name);
            }
        }
    ts_scene_release(&scene);
    free(other);
}

/* What was found is the reference of another tensor, before or after this one: projections swapped, a layer off by one,
 * captured at another place. */
static void propose_swapped(struct ts_case *the_case)
{
    const struct ts_pair *own = ts_case_pair(the_case), *pairs = own - the_case->actor->pair;
    size_t count = ts_case_pair_count(the_case), index = the_case->actor->pair, best = SIZE_MAX, looked = 0;
    double *prediction = ts_case_scratch(the_case), most = WORTHWHILE;
    struct ts_scene scene;
    struct ts_error ignored;
    if (!prediction || ts_type_info(own->a.tensor->type)->components != 1 ||
        ts_scene_open_like(&scene, the_case->scene, &ignored) != TS_OK)
        return;
    for (size_t step = 1; step < count && looked < LOOKED_AT && looked * the_case->total < LOOK_LIMIT; step++)
        for (int side = 0; side < 2; side++) {
            size_t pair = side ? index - step : index + step;
            double share;
            if ((side ? step > index : index + step >= count) || !same_shape(own, &pairs[pair]) ||
                ts_is_input(the_case, pair))
                continue;
            looked++;
            if (!read_like_case(the_case, &scene, pair, prediction) || is_nearly_expected(the_case, prediction))
                continue;
            share = ts_explained(the_case, prediction);
            if (share > most) {
                most = share;
                best = pair;
            }
        }
    if (best != SIZE_MAX && read_like_case(the_case, &scene, best, prediction)) {
        const char *name = pairs[best].name;
        bool later = best > index;
        ts_formula_other(the_case, best);
        if (later || ts_case_direct(the_case) || are_siblings(name, own->name))
            ts_propose(the_case, "swapped-with", prediction, 0,
                       "which tensors or weights are bound to which names, and layer numbers",
                       "the candidate holds what the reference holds in %s, %s", name,
                       later ? "which comes later" : "which comes earlier");
        else
            ts_propose(the_case, "skipped-op", prediction, 0,
                       ts_case_text(the_case, "whether %s is computed at all", own->name),
                       "the candidate holds what the reference holds in %s: the steps since then were not applied",
                       name);
    }
    ts_scene_release(&scene);
}

/* Whether `other` can stand in for an input of the operation. */
static bool fits(const struct ts_case *the_case, unsigned slot, const struct ts_actor *other)
{
    const struct ts_operation *operation = &the_case->operation;
    const struct ts_actor *now = ts_scene_actor(the_case->scene, operation->inputs[slot]);
    if (!now || !other || other == now || other->rows != now->rows || other->width != now->width)
        return false;
    return slot == 1 || operation->kind != TS_OPERATION_CONTEXT || other->heads == now->heads;
}

static void fill_rows(const struct ts_variants *variants, const struct ts_operation *operation, unsigned slot,
                      const struct ts_actor *other, double *out)
{
    size_t first = 0, count = other->rows;
    if (ts_variants_by_rows(variants, operation, slot)) {
        first = variants->first;
        count = variants->count;
    }
    for (size_t i = first * other->width; i < (first + count) * other->width; i++)
        out[i] = (double)other->b[i];
}

static void propose_wrong_input(struct ts_case *the_case)
{
    struct ts_operation changed = the_case->operation;
    struct ts_variants variants;
    unsigned best_slot = 0;
    size_t best = 0;
    double most = WORTHWHILE;
    if (changed.kind == TS_OPERATION_COPY || changed.kind == TS_OPERATION_SCALE ||
        !ts_variants_open(&variants, the_case, &the_case->operation))
        return;
    for (unsigned slot = 0; slot < changed.input_count; slot++) {
        const struct ts_actor *from = variants.from[slot];
        double *stand_in = malloc(from->rows * from->width * sizeof *stand_in), *inputs[3];
        bool keys = slot == 1 && ts_operation_is_product(&the_case->operation); /* or values: every token of them */
        memcpy(inputs, variants.inputs, sizeof inputs);
        inputs[slot] = stand_in;
        for (size_t back = 1; back < TS_SCENE_WINDOW && stand_in; back++) {
            const struct ts_actor *other = ts_earlier(the_case, back);
            double share;
            /* the norm of twice a term is the norm of that term, which has its own words */
            if (!fits(the_case, slot, other) ||
                (changed.kind == TS_OPERATION_NORM && ts_is_input(the_case, other->pair)) ||
                (keys && !(other = ts_scene_all(the_case->scene, other->pair))))
                continue;
            changed.inputs[slot] = other->pair;
            fill_rows(&variants, &changed, slot, other, stand_in);
            share = ts_variants_try(&variants, &changed, inputs);
            if (share > most + 1e-9) {
                most = share;
                best = back;
                best_slot = slot;
            }
        }
        changed.inputs[slot] = the_case->operation.inputs[slot];
        free(stand_in);
    }
    if (best) {
        const struct ts_actor *other;
        double *inputs[3];
        changed.inputs[best_slot] = ts_earlier(the_case, best)->pair;
        other = ts_operation_input(the_case->scene, &changed, best_slot);
        memcpy(inputs, variants.inputs, sizeof inputs);
        inputs[best_slot] = ts_as_doubles(other->b, other->rows * other->width);
        ts_formula_operation(the_case, &changed);
        if (inputs[best_slot])
            ts_propose(the_case, "wrong-input", ts_variants_apply(&variants, &changed, inputs), 0,
                       ts_case_text(the_case, "which tensor is passed to the step that makes %s",
                                    ts_case_name(the_case, the_case->actor)),
                       "the candidate applies the right operation to the wrong tensor: %s instead of %s",
                       ts_case_name(the_case, other), ts_case_name(the_case, variants.from[best_slot]));
        free(inputs[best_slot]);
    }
    ts_variants_close(&variants);
}

#define RELATED     0.6  /* cosine */
#define SPARED      0.01 /* of what others err by, in energy */
#define SPARED_ROWS 5

/* What is looked at by itself has no input, and what weights look like says more. */
static bool is_of_a_run(const struct ts_case *the_case)
{
    return the_case->actor->pair && !ts_case_direct(the_case);
}

/* The sentence, and how sure it is; NULL when the two are related. */
static const char *unrelated_text(struct ts_case *the_case, const struct ts_tally *tally, double *sure)
{
    double cosine =
        tally->sums[TS_RELATED_DOT] / sqrt(tally->sums[TS_RELATED_EXPECTED] * tally->sums[TS_RELATED_FOUND]);
    *sure = 0;
    if (!(tally->sums[TS_RELATED_EXPECTED] > 0) || !(tally->sums[TS_RELATED_FOUND] > 0) ||
        tally->sums[TS_RELATED_COUNT] < 8 || !(fabs(cosine) < RELATED))
        return NULL;
    *sure = (is_of_a_run(the_case) ? 0.9 : 0.8) - fabs(cosine);
    return ts_case_text(the_case,
                        "no simple relation to the reference is left (cosine %.3f, norm %.3g times the reference's)%s",
                        cosine, sqrt(tally->sums[TS_RELATED_FOUND] / tally->sums[TS_RELATED_EXPECTED]),
                        is_of_a_run(the_case) ? ", although what was captured before it agrees" : "");
}

static const char *tell_related(struct ts_case *the_case, const struct ts_formula *formula,
                                const struct ts_tally *tally, double *share)
{
    (void)formula;
    return unrelated_text(the_case, tally, share);
}

/* Queries, keys and values were captured before it, and nothing of what attention makes of them. */
static bool is_behind_attention(const struct ts_case *the_case)
{
    struct ts_operands operands;
    if (!ts_case_in_scene(the_case) || the_case->operation.kind != TS_OPERATION_NONE ||
        !ts_names_attention(ts_case_name(the_case, the_case->actor)) || !ts_operands_find(the_case, &operands))
        return false;
    for (size_t pair = operands.q.actor->pair + 1; pair < the_case->actor->pair; pair++)
        if (ts_names_context(the_case->scene->pairs[pair].name))
            return false;
    return true;
}

/* The step that makes it is known, and takes nothing but what was captured. */
static bool is_without_weights(const struct ts_case *the_case)
{
    const enum ts_operation_kind kind = the_case->operation.kind;
    return ts_case_in_scene(the_case) && kind != TS_OPERATION_NONE && kind != TS_OPERATION_NORM;
}

/* The first token agrees where the others have nothing in common with the reference: the weights are the right ones,
 * and what tokens make of each other is not. */
static bool spares_the_first(const struct ts_case *the_case)
{
    const size_t rows = the_case->actor->rows;
    double first, others, size = 0, mean = 0;
    if (rows < SPARED_ROWS || ts_case_row(the_case, 0) != 0 || ts_case_aside(the_case, 0))
        return false;
    for (size_t i = 0; i < the_case->total; i++) {
        const double own = the_case->expected[i] * the_case->expected[i];
        size += i < the_case->actor->width && isfinite(own) ? own : 0;
        mean += isfinite(own) ? own / (double)rows : 0;
    }
    first = ts_rows_cost(the_case, the_case->expected, 0, 1);
    others = ts_rows_cost(the_case, the_case->expected, 1, rows - 1);
    return first * mean < fmin(size, mean) * SPARED * others / (double)(rows - 1); /* zeros agree with anything */
}

/* Nothing in common with the reference. */
static void propose_unrelated(struct ts_case *the_case)
{
    struct ts_formula formula = {.count = ts_count_related, .tell = tell_related};
    struct ts_tally tally;
    double sure;
    const char *text;
    ts_tally_open(&tally);
    (void)ts_count_related(the_case, &formula, NULL, &tally);
    text = unrelated_text(the_case, &tally, &sure);
    if (!text || spares_the_first(the_case))
        return;
    ts_formula_next(the_case, &formula);
    ts_propose_plain(
        the_case, "unrelated", sure,
        is_behind_attention(the_case) && ts_names_context(ts_case_name(the_case, the_case->actor))
            ? "what attention makes of queries, keys and values, which no weight goes into: how they are split into "
              "heads, the mask, the scale, the softmax"
        : is_behind_attention(the_case)
            ? "how attention splits queries, keys and values into heads and merges them again, which was not captured; "
              "and the weights behind it: whether they were loaded, are those of the right layer and file, and their "
              "layout"
        : is_without_weights(the_case)
            ? "the code of this step, which no weight goes into, and what it writes to: its buffer, strides and indices"
        : the_case->actor->pair
            ? "whether the weights were loaded, whether they are those of the right layer and file, and their layout"
            : "whether both runs got the same input, and loaded the same weights up to here",
        "%s", text);
}

static void propose(struct ts_case *the_case)
{
    if (ts_case_quiet(the_case) || !the_case->total)
        return;
    if (ts_case_in_scene(the_case)) {
        propose_equal(the_case);
        propose_equal_but_bias(the_case);
        propose_wrong_input(the_case);
        ts_wiring_sums(the_case);
        ts_wiring_far(the_case);
        ts_wiring_weights(the_case);
        ts_wiring_slices(the_case);
        propose_mixed(the_case);
    }
    propose_swapped(the_case);
    propose_unrelated(the_case);
}

const struct ts_family ts_family_wiring = {"wiring", propose};
