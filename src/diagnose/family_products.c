/* Products: with the model's weights at hand, what the candidate multiplied with what. The weight that makes the
 * reference is known (product.h); here the candidate's output is held against every other weight of that shape, the
 * transpose, other orders of rows and inputs, other inputs, and the bias left out. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/formula.h"
#include "diagnose/product.h"
#include "diagnose/shuffle.h"
#include "diagnose/variant.h"

#define LOOK_ROWS      4
#define LOOK_CHANNELS  12
#define PROOF_ROWS     48
#define PROOF_CHANNELS 256
#define PROOF_WORK     2e10 /* multiplications for the rows of the case, before others are looked at */
/* A look that explains this much is worth a proof; of two, the simpler one unless the other explains this much more. */
#define WORTHWHILE 0.5
#define SIMPLER    0.02
/* Elements of weights that are read, and multiplications for orders of the input. */
#define READ_MOST   ((uint64_t)1 << 28)
#define ORDERS_WORK ((size_t)1 << 28)
/* Alike by chance: outputs that have less in common are unrelated. */
#define UNRELATED 0.3

struct guess {
    struct ts_product product;
    double share;
    const char *id, *check, *text;
};

struct search {
    struct ts_case *the_case;
    const struct ts_evidence *evidence;
    const struct ts_product *own;
    struct ts_sample sample;
    double *values, made;
    double *right; /* the right product of the sample */
    struct guess best;
    uint64_t read;
};

static double made_of(const struct ts_case *the_case, const struct ts_sample *sample)
{
    double error = 0, size = 0;
    for (size_t t = 0; t < sample->row_count; t++)
        for (size_t c = 0; c < sample->channel_count; c++) {
            size_t i = sample->rows[t] * the_case->actor->width + sample->channels[c];
            double cost = ts_element_cost(the_case->found[i], the_case->expected[i], the_case->expected[i]);
            if (cost < 0 || !isfinite(the_case->found[i]))
                continue;
            error += cost;
            size += the_case->found[i] * the_case->found[i];
        }
    return error < size ? error : size;
}

static double left_of(const struct ts_case *the_case, const struct ts_sample *sample, const double *values)
{
    double left = 0;
    for (size_t t = 0; t < sample->row_count; t++)
        for (size_t c = 0; c < sample->channel_count; c++) {
            size_t i = sample->rows[t] * the_case->actor->width + sample->channels[c];
            double cost =
                ts_element_cost(the_case->found[i], values[t * sample->channel_count + c], the_case->expected[i]);
            if (isfinite(the_case->found[i]))
                left += cost >= 0 ? cost : 4 * the_case->found[i] * the_case->found[i];
        }
    return left;
}

/* The same numbers as the right product has: a copy of the weight under another name (tied embeddings), a bias of
 * zeros. */
static bool is_right(const struct search *search)
{
    double left = 0, size = 0;
    for (size_t i = 0; i < search->sample.row_count * search->sample.channel_count; i++) {
        left += (search->values[i] - search->right[i]) * (search->values[i] - search->right[i]);
        size += search->right[i] * search->right[i];
    }
    return left <= 1e-8 * size;
}

/* Keeps the guess when it explains clearly more than what came before; true when it does. */
static bool consider(struct search *search, const struct ts_product *product, const char *id)
{
    double share;
    search->read += search->sample.channel_count * product->input->width;
    if (!ts_product_values(product, true, &search->sample, search->values))
        return false;
    share = 1 - left_of(search->the_case, &search->sample, search->values) / search->made;
    if (!(share > WORTHWHILE) || share < search->best.share + SIMPLER ||
        (is_right(search) && strcmp(id, "skipped-op") != 0))
        return false;
    search->best = (struct guess){.product = *product, .share = share, .id = id};
    return true;
}

static const char *actor_name(const struct search *search, const struct ts_actor *actor)
{
    return ts_case_name(search->the_case, actor);
}

/* What is left of the reference when it is the product, capped softly. */
static double left_by_cap(const struct search *search, double cap)
{
    const struct ts_actor *actor = search->the_case->actor;
    double left = 0;
    for (size_t t = 0; t < search->sample.row_count; t++)
        for (size_t c = 0; c < search->sample.channel_count; c++) {
            double x = search->right[t * search->sample.channel_count + c];
            double off = (double)actor->a[search->sample.rows[t] * actor->width + search->sample.channels[c]] -
                         (cap > 0 ? cap * tanh(x / cap) : x);
            left += isfinite(off) ? off * off : 0;
        }
    return left;
}

/* The cap under which the product is the reference; 0 when there is none. */
static double cap_behind(const struct search *search)
{
    const struct ts_actor *actor = search->the_case->actor;
    double largest = 0, low, high, cap, usual;
    for (size_t i = 0; i < actor->rows * actor->width; i++)
        largest = fmax(largest, isfinite(actor->a[i]) ? fabs((double)actor->a[i]) : 0);
    low = log(largest);
    high = log(largest * 30);
    for (int step = 0; step < 32 && largest > 0; step++) {
        double a = low + (high - low) / 3, b = high - (high - low) / 3;
        if (left_by_cap(search, exp(a)) < left_by_cap(search, exp(b)))
            high = b;
        else
            low = a;
    }
    cap = exp((low + high) / 2);
    usual = nearbyint(cap);
    if (usual > 0 && fabs(cap / usual - 1) < 0.02)
        cap = usual;
    return largest > 0 && left_by_cap(search, cap) < 0.05 * left_by_cap(search, 0) ? cap : 0;
}

/* The product itself, where the reference goes on from it: a softcap, a factor. */
static void nothing_behind(struct search *search)
{
    double cap;
    if (!consider(search, search->own, "skipped-op"))
        return;
    search->best.text = ts_case_text(
        search->the_case, "the candidate holds the plain product of %s and %s, which the reference changes afterwards",
        ts_product_name(search->the_case, search->own), actor_name(search, search->own->input));
    search->best.check = "what comes after the product: a softcap, a scale";
    cap = cap_behind(search);
    if (cap > 0) {
        search->best.id = "clamped";
        search->best.text = ts_case_text(search->the_case,
                                         "the softcap is missing: the candidate holds the plain product of %s and %s, "
                                         "the reference %.4g * tanh(x / %.4g) of it",
                                         ts_product_name(search->the_case, search->own),
                                         actor_name(search, search->own->input), cap, cap);
        search->best.check = "softcapping of scores or logits (logit_softcapping)";
    }
}

/* The bias of the weight, left out or added twice. */
static void other_bias(struct search *search)
{
    struct ts_product product = *search->own;
    static const double times[] = {0, 2};
    for (size_t i = 0; i < 2 && product.bias; i++) {
        product.bias_times = times[i];
        if (!consider(search, &product, "offset"))
            continue;
        search->best.text = ts_case_text(
            search->the_case, times[i] == 0 ? "the candidate does not add %s" : "the candidate adds %s twice",
            product.bias->full);
        search->best.check = "whether the bias is loaded, and where it is added";
    }
    product.bias_times = 1;
    for (size_t i = 0; i < search->evidence->counts[TS_WEIGHTS_REFERENCE] && search->own->bias; i++) {
        const struct ts_weight *other = &search->evidence->weights[TS_WEIGHTS_REFERENCE][i];
        product.bias = other;
        if (other == search->own->bias || other->inputs || other->rows != search->own->bias->rows ||
            !strstr(other->full, "bias") || !consider(search, &product, "offset"))
            continue;
        search->best.text =
            ts_case_text(search->the_case, "the candidate adds %s instead of %s", other->full, search->own->bias->full);
        search->best.check = "which bias is loaded for this step: its name, its layer number";
    }
}

/* The weight's own numbers in another order. */
static void other_layout(struct search *search)
{
    static const unsigned swap[2] = {1, 0};
    struct ts_arena *arena = &search->the_case->diagnosis->arena;
    const struct ts_weight *weight = search->own->weight;
    struct ts_product product = *search->own;
    uint64_t stored[2] = {search->own->matrix.shape[1], search->own->matrix.shape[0]};
    struct ts_view flat;
    const char *name = ts_product_name(search->the_case, search->own);
    if (stored[0] == stored[1] && ts_view_permute(&search->own->matrix, swap, arena, &product.matrix) &&
        consider(search, &product, "transposed-weight")) {
        search->best.text = ts_case_text(search->the_case, "the candidate uses %s transposed", name);
        search->best.check = "the weight's orientation: [out, in] or [in, out]; to undo: transpose(0, 1)";
    }
    if (stored[0] != stored[1] && !search->own->transposed && ts_view_reshape(&weight->view, stored, 2, arena, &flat) &&
        ts_view_permute(&flat, swap, arena, &product.matrix) && consider(search, &product, "transposed-weight")) {
        search->best.text = ts_case_text(search->the_case,
                                         "the candidate reads %s of shape [%" PRIu64 ",%" PRIu64 "] as [%" PRIu64
                                         ",%" PRIu64 "] in the same memory, then uses it transposed",
                                         name, stored[1], stored[0], stored[0], stored[1]);
        search->best.check = "the weight's orientation: [out, in] or [in, out]";
    }
    product = *search->own;
    for (int turn = TS_ROWS_PLAIN; turn <= TS_ROWS_HALVES; turn++) {
        size_t known = ts_settings_size(&search->evidence->config, TS_SETTING_HEAD_DIM);
        size_t heads[] = {known, search->the_case->actor->inner, search->own->head, 128, 64};
        for (size_t h = 0; h < sizeof heads / sizeof *heads; h++) {
            product.turn = (enum ts_turn_of_rows)turn;
            product.head = heads[h];
            if ((turn != TS_ROWS_PLAIN &&
                 (heads[h] < 4 || heads[h] % 2 || search->the_case->actor->width % heads[h])) ||
                (turn == (int)search->own->turn && (turn == TS_ROWS_PLAIN || heads[h] == search->own->head)) ||
                !consider(search, &product, "permuted"))
                continue;
            search->best.text = ts_case_text(
                search->the_case, "the candidate takes the rows of %s in another order within heads of %zu: %s", name,
                heads[h] ? heads[h] : search->own->head,
                turn == TS_ROWS_PLAIN ? "as stored in the file, without the permutation that the reference applies"
                : turn == TS_ROWS_INTERLEAVED ? "interleaved pairs instead of halves"
                                              : "halves instead of interleaved pairs");
            search->best.check =
                "the order of rotary rows that the weights were converted for: halves or interleaved pairs";
        }
    }
}

struct orders {
    struct search *search;
    struct ts_product product;
    size_t *order, *best_order;
    struct ts_shuffle best;
    bool found;
};

static void try_order(const struct ts_shuffle *shuffle, void *context)
{
    struct orders *orders = context;
    for (size_t i = 0; i < orders->product.input->width; i++)
        orders->order[i] = (size_t)ts_shuffle_source(shuffle, i);
    orders->product.order = orders->order;
    if (consider(orders->search, &orders->product, "permuted")) {
        memcpy(orders->best_order, orders->order, orders->product.input->width * sizeof *orders->order);
        orders->search->best.product.order = orders->best_order;
        orders->best = *shuffle;
        orders->found = true;
    }
}

/* The input's numbers, or the weight's columns, in another order: heads put together otherwise before the output
 * projection. best_order has room for the input's width and outlives the search. */
static void other_order(struct search *search, size_t *best_order)
{
    const struct ts_actor *input = search->own->input;
    struct orders orders = {.search = search, .product = *search->own, .best_order = best_order};
    size_t each = search->sample.row_count * search->sample.channel_count * input->width + input->rows * input->width;
    char text[256], recipe[160];
    orders.order = malloc(input->width * sizeof *orders.order);
    if (!orders.order)
        return;
    ts_shuffle_each(1, input->width, false, NULL, 0, ORDERS_WORK / (each + 1), try_order, &orders);
    free(orders.order);
    if (!orders.found || !search->best.product.order)
        return;
    ts_shuffle_text(&orders.best, 1, input->width, input->heads, text, sizeof text);
    ts_shuffle_recipe(&orders.best, recipe, sizeof recipe);
    search->best.text = ts_case_text(search->the_case, "%s is multiplied with the values of %s in another order: %s",
                                     ts_product_name(search->the_case, search->own), actor_name(search, input), text);
    search->best.check =
        ts_case_text(search->the_case, "how %s is assembled, or the order of the weight's columns; to undo: %s",
                     actor_name(search, input), recipe);
}

/* The right weight on another tensor. */
static void other_input(struct search *search)
{
    const struct ts_actor *actor = search->the_case->actor;
    for (size_t back = 1; back < TS_SCENE_WINDOW && back <= actor->pair; back++) {
        struct ts_product product = *search->own;
        product.input = ts_scene_actor(search->the_case->scene, actor->pair - back);
        if (!product.input || product.input == search->own->input || product.input->rows != actor->rows ||
            product.input->width != search->own->input->width || !consider(search, &product, "wrong-input"))
            continue;
        search->best.text = ts_case_text(search->the_case, "the candidate applies %s to %s instead of %s",
                                         ts_product_name(search->the_case, search->own),
                                         actor_name(search, product.input), actor_name(search, search->own->input));
        search->best.check = "which tensor is passed to this projection";
    }
}

/* Another weight of the file, or another part of the same one. */
static void other_weight(struct search *search, enum ts_weights_of where)
{
    const struct ts_evidence *evidence = search->evidence;
    uint64_t width = search->the_case->actor->width;
    for (size_t i = 0; i < evidence->counts[where] && search->read < READ_MOST; i++) {
        const struct ts_weight *weight = &evidence->weights[where][i];
        static const unsigned swap[2] = {1, 0};
        struct ts_product product = {.weight = weight,
                                     .where = where,
                                     .matrix = weight->view,
                                     .transposed = search->own->transposed,
                                     .turn = search->own->turn,
                                     .head = search->own->head,
                                     .input = search->own->input,
                                     .bias_times = 1};
        uint64_t offsets[4], spare;
        if (!weight->inputs ||
            (product.transposed &&
             !ts_view_permute(&weight->view, swap, &search->the_case->diagnosis->arena, &product.matrix)))
            continue;
        if (product.matrix.shape[1] != product.input->width || product.matrix.shape[0] < width)
            continue;
        spare = product.matrix.shape[0] - width;
        offsets[0] = 0;
        offsets[1] = spare;
        offsets[2] = width;
        offsets[3] = spare >= width ? spare - width : 0;
        product.bias = search->own->bias ? ts_evidence_bias(evidence, weight, where) : NULL;
        for (int o = 0; o < 4; o++) {
            product.first = offsets[o];
            if (offsets[o] > spare || (o && offsets[o] == 0) ||
                (where == search->own->where && weight == search->own->weight && offsets[o] == search->own->first) ||
                !consider(search, &product, "swapped-with"))
                continue;
            search->best.text = ts_case_text(search->the_case, "the candidate uses %s%s instead of %s",
                                             ts_product_name(search->the_case, &product),
                                             where == TS_WEIGHTS_CANDIDATE ? " of its own file" : "",
                                             ts_product_name(search->the_case, search->own));
            search->best.check =
                "which weight is loaded for this step: its name, its layer number, its part of a fused weight";
        }
    }
}

/* The candidate's file holds another weight under this name: what is different about it is a case of its own. */
static bool file_differs(struct search *search)
{
    const struct ts_weight *theirs;
    struct ts_product product = *search->own;
    struct ts_diagnosis diagnosis;
    struct ts_error ignored;
    struct ts_pair pair = {.how = "name", .recipe = ""};
    bool same_shape;
    if (!search->evidence->counts[TS_WEIGHTS_CANDIDATE] ||
        !(theirs = ts_evidence_same(search->evidence, search->own->weight, TS_WEIGHTS_CANDIDATE)))
        return false;
    same_shape = theirs->rows == search->own->weight->rows && theirs->inputs == search->own->weight->inputs;
    if (!same_shape || search->own->transposed)
        return false;
    product.weight = theirs;
    product.where = TS_WEIGHTS_CANDIDATE;
    product.matrix = theirs->view;
    product.bias = search->own->bias ? ts_evidence_bias(search->evidence, theirs, TS_WEIGHTS_CANDIDATE) : NULL;
    if (!consider(search, &product, "unrelated"))
        return false;
    search->best.check = "how the candidate's file was made: conversion, quantization, download";
    search->best.text = ts_case_text(
        search->the_case, "the product is right, but the candidate's file holds another %s than the reference's",
        theirs->full);
    pair.name = search->own->weight->full;
    pair.name_b = theirs->full;
    pair.a = search->own->weight->view;
    pair.b = theirs->view;
    if (ts_diagnose(&pair, NULL, 1, 0, &diagnosis, &ignored) == TS_OK) {
        if (diagnosis.count) {
            search->best.id = ts_case_text(search->the_case, "%s", diagnosis.causes[0].id);
            search->best.text =
                ts_case_text(search->the_case, "%s: %s", search->best.text, diagnosis.causes[0].summary);
            search->best.check =
                ts_case_text(search->the_case, "%s; %s", search->best.check, diagnosis.causes[0].check);
        }
        ts_diagnosis_release(&diagnosis);
    }
    return true;
}

/* Correlation of the tokens' products of the output with those of the input, tokens with themselves left out: weights
 * drawn at random keep angles. The deviation of one weight is what they would have to be drawn with. */
static double angles_kept(const struct search *search, double *deviation)
{
    const struct ts_actor *actor = search->the_case->actor, *input = search->own->input;
    size_t rows = search->sample.row_count;
    double xy = 0, xx = 0, yy = 0, x_mean = 0, y_mean = 0, out = 0, in = 0, count = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t s = 0; s < rows; s++)
            for (size_t t = 0; t <= s; t++) {
                const float *x = input->b + search->sample.rows[s] * input->width;
                const float *z = input->b + search->sample.rows[t] * input->width;
                const double *y = search->the_case->found + search->sample.rows[s] * actor->width;
                const double *w = search->the_case->found + search->sample.rows[t] * actor->width;
                double gram_in = 0, gram_out = 0;
                for (size_t i = 0; i < input->width; i++)
                    gram_in += (double)x[i] * (double)z[i];
                for (size_t i = 0; i < actor->width; i++)
                    gram_out += y[i] * w[i];
                if (s == t && pass == 0) {
                    in += gram_in;
                    out += gram_out;
                }
                if (s == t)
                    continue;
                if (pass == 0) {
                    x_mean += gram_in;
                    y_mean += gram_out;
                    count++;
                } else {
                    xy += (gram_in - x_mean / count) * (gram_out - y_mean / count);
                    xx += (gram_in - x_mean / count) * (gram_in - x_mean / count);
                    yy += (gram_out - y_mean / count) * (gram_out - y_mean / count);
                }
            }
    *deviation = in > 0 ? sqrt(out / (in * (double)actor->width)) : 0;
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : 0;
}

static double cosine_of(const struct ts_tally *tally)
{
    double size = tally->sums[TS_RELATED_EXPECTED] * tally->sums[TS_RELATED_FOUND];
    return size > 0 ? tally->sums[TS_RELATED_DOT] / sqrt(size) : 1;
}

/* The words around the cosine, kept as long as the diagnosis. */
struct random_words {
    const char *before, *after;
};

static const char *tell_related(struct ts_case *the_case, const struct ts_formula *formula,
                                const struct ts_tally *tally, double *share)
{
    const struct random_words *words = formula->numbers;
    double cosine = cosine_of(tally);
    *share = fabs(cosine) > UNRELATED ? 0 : *share;
    return ts_case_text(the_case, "%s%.3f%s", words->before, cosine, words->after);
}

/* No weight of the file explains the output. */
static void say_random(struct search *search)
{
    struct ts_case *the_case = search->the_case;
    const struct ts_settings *config = &search->evidence->config;
    double deviation, kept, wanted = config->values[TS_SETTING_INITIAL_STD];
    struct random_words words;
    struct ts_formula formula = {
        .count = ts_count_related, .tell = tell_related, .numbers = &words, .size = sizeof words};
    struct ts_tally tally;
    const char *looks = "";
    ts_tally_open(&tally);
    (void)ts_count_related(the_case, &formula, NULL, &tally);
    if (fabs(cosine_of(&tally)) > UNRELATED)
        return;
    ts_sample_take(the_case, 12, 8, &search->sample);
    kept = angles_kept(search, &deviation);
    if (kept > 0.8)
        looks = "; tokens keep their angles to each other, as with random weights";
    words.before = ts_case_text(the_case,
                                "weights not loaded or random: the reference is %s times %s, and no weight of that "
                                "shape in the file gives the candidate's output (cosine ",
                                ts_product_name(the_case, search->own), actor_name(search, search->own->input));
    words.after =
        ts_case_text(the_case, "); the candidate's weight has a standard deviation of about %.4g%s%s", deviation,
                     fabs(deviation / wanted - 1) < 0.1 ? ", the initializer_range of the configuration" : "", looks);
    ts_formula_next(the_case, &formula);
    ts_propose_plain(the_case, "unrelated", 0.98,
                     "whether this weight was loaded at all: a name that did not match, a missing shard, a random "
                     "initialization",
                     "%s%.3f%s", words.before, cosine_of(&tally), words.after);
}

/* The product for other rows; the order of its inputs, where it is another, is in the table. */
static bool given_product(struct ts_case *the_case, const struct ts_formula *formula, struct ts_product *product,
                          struct ts_actor *input)
{
    const struct ts_actor *from = ts_scene_actor(the_case->scene, formula->pairs[0]);
    if (!from || from->rows != the_case->actor->rows)
        return false;
    *product = *(const struct ts_product *)formula->numbers;
    *input = *from;
    input->b = malloc(from->rows * from->width * sizeof *input->b);
    for (size_t i = 0; i < from->rows * from->width && input->b; i++)
        input->b[i] =
            from->b[formula->table_count ? i / from->width * from->width + (size_t)formula->table[i % from->width] : i];
    product->input = input;
    product->order = NULL;
    return input->b;
}

static bool predict_product(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    struct ts_product product;
    struct ts_actor input;
    bool good;
    if (!given_product(the_case, formula, &product, &input))
        return false;
    good = ts_product_replay(&product, the_case->actor, out);
    free(input.b);
    return good;
}

static void give_formula(struct ts_case *the_case, const struct ts_product *product)
{
    double work = ts_product_work(product, the_case->actor), *table = NULL;
    struct ts_formula formula = {.predict = predict_product,
                                 .product = given_product,
                                 .numbers = product,
                                 .size = sizeof *product,
                                 .pairs = {product->input->pair},
                                 .pair_count = 1,
                                 .work = work / (double)the_case->actor->rows};
    if (work > PROOF_WORK || product->input->rows != the_case->actor->rows)
        return;
    if (product->order) {
        formula.table_count = product->input->width;
        formula.table = table = malloc(formula.table_count * sizeof *table);
        for (size_t i = 0; table && i < formula.table_count; i++)
            table[i] = (double)product->order[i];
    }
    if (table || !product->order)
        ts_formula_next(the_case, &formula);
    free(table);
}

static void propose_best(struct search *search)
{
    struct ts_case *the_case = search->the_case;
    struct ts_sample sample;
    double *values, made, left;
    size_t rows = PROOF_ROWS, channels = PROOF_CHANNELS;
    ts_sample_take(the_case, rows, channels, &sample);
    values = malloc(sample.row_count * sample.channel_count * sizeof *values);
    made = made_of(the_case, &sample);
    if (values && made > 0 && ts_product_values(&search->best.product, true, &sample, values)) {
        left = left_of(the_case, &sample, values);
        give_formula(the_case, &search->best.product);
        ts_propose_measured(the_case, search->best.id, left / made, 0, search->best.check,
                            "%s (replayed on %s: %zu products, with a relative error of %.2g)", search->best.text,
                            actor_name(search, search->best.product.input), sample.row_count * sample.channel_count,
                            sqrt(left / (made > 0 ? made : 1)));
    }
    free(values);
}

static void propose(struct ts_case *the_case)
{
    struct search search = {
        .the_case = the_case, .evidence = ts_case_evidence(the_case), .own = ts_case_product(the_case)};
    size_t *order;
    if (!search.own || !search.evidence || !ts_case_in_scene(the_case))
        return;
    ts_sample_take(the_case, LOOK_ROWS, LOOK_CHANNELS, &search.sample);
    search.made = made_of(the_case, &search.sample);
    search.values = malloc(LOOK_ROWS * LOOK_CHANNELS * sizeof *search.values);
    search.right = malloc(LOOK_ROWS * LOOK_CHANNELS * sizeof *search.right);
    order = malloc(search.own->input->width * sizeof *order);
    if (search.values && search.right && order && search.made > 0 &&
        ts_product_values(search.own, true, &search.sample, search.right)) {
        nothing_behind(&search);
        other_bias(&search);
        if (!file_differs(&search)) {
            other_weight(&search, TS_WEIGHTS_REFERENCE);
            other_layout(&search);
            other_input(&search);
            if (search.best.share < 0.9)
                other_order(&search, order);
            if (search.best.share < 0.9 && search.evidence->counts[TS_WEIGHTS_CANDIDATE])
                other_weight(&search, TS_WEIGHTS_CANDIDATE);
        }
        if (search.best.product.weight)
            propose_best(&search);
        else
            say_random(&search);
    }
    free(search.values);
    free(search.right);
    free(order);
}

const struct ts_family ts_family_products = {"products", propose};
