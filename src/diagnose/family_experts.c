/* Experts: how the router's weights are made, and tokens that went elsewhere on a near tie, which is not a bug. Whether
 * the weights are used, and the right experts, is asked in experts_mixed.c. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare/choice.h"
#include "compare/gathered.h"
#include "compare/router_bias.h"
#include "diagnose/experts.h"
#include "diagnose/variant.h"
#include "tensor/layer.h"

#define WORTHWHILE 0.3
/* Factors of the logits that are tried, in octaves of so many steps. */
#define LOGIT_STEPS 16
#define LOGIT_FINE  4
/* Tokens whose choices tell of biases. */
#define HEARD 4096

const struct ts_pair *ts_pair_at(const struct ts_case *the_case, size_t index)
{
    return ts_case_pair(the_case) - the_case->actor->pair + index;
}

static bool is_router_weights(const struct ts_actor *actor)
{
    if (actor->heads != 1 || actor->width > 16)
        return false;
    for (size_t i = 0; i < actor->rows * actor->width; i++)
        if (!(actor->a[i] >= 0) || actor->a[i] > 20)
            return false;
    return true;
}

/* Where a name does not say which number is the layer, the first one is; -1 without any. */
static int64_t layer_of(const char *name)
{
    uint64_t layer;
    if (ts_layer_of(name, &layer))
        return (int64_t)layer;
    while (*name && !isdigit((unsigned char)*name))
        name++;
    return *name ? strtol(name, NULL, 10) : -1;
}

/* So many chosen experts for each token, 0 where they are none: the order in which tokens are gathered is as long, and
 * holds tokens. */
static size_t chosen_in(const struct ts_pair *pair, uint64_t tokens)
{
    if (pair->problem || !ts_type_is_integer(pair->a.tensor->type) || !ts_type_is_integer(pair->b.tensor->type) ||
        !tokens || pair->a.count % tokens || pair->a.count / tokens > TS_MOST_CHOSEN ||
        ts_is_gathering_order(pair, tokens))
        return 0;
    return (size_t)(pair->a.count / tokens);
}

/* The router just before the case's tensor. */
static bool find_router(const struct ts_case *the_case, struct ts_router *router)
{
    *router = (struct ts_router){0};
    for (size_t back = 1; back <= TS_ROUTER_BACK && back <= the_case->actor->pair; back++) {
        size_t index = the_case->actor->pair - back;
        const struct ts_pair *pair = ts_pair_at(the_case, index);
        const struct ts_actor *actor = ts_scene_actor(the_case->scene, index);
        if (!router->indices && chosen_in(pair, the_case->scene->tokens)) {
            router->indices = pair;
            router->chosen = chosen_in(pair, the_case->scene->tokens);
        }
        /* probabilities of attention over a few keys look like a router's weights */
        if (!actor || actor->rows != the_case->scene->taken_count || actor->width >= TS_MOST_EXPERTS ||
            strstr(pair->name, "attn") || strstr(pair->name, "attention"))
            continue;
        if (!router->weights && is_router_weights(actor) && (!router->chosen || router->chosen == actor->width)) {
            router->weights = actor;
            router->chosen = actor->width;
        } else if (router->chosen && !router->logits && actor->heads == 1 && actor->width > router->chosen) {
            router->logits = actor;
            break;
        }
    }
    return router->logits && (router->weights || router->indices);
}

/* Weights and scores are called like their router too, and nothing in them is below zero. */
static bool has_negative(const struct ts_actor *actor)
{
    for (size_t i = 0; i < actor->rows * actor->width; i++)
        if (actor->a[i] < 0)
            return true;
    return false;
}

/* Logits that are called so, of this layer, where nothing says how many experts they choose. */
static const struct ts_actor *find_logits(const struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor;
    int64_t layer = layer_of(ts_case_name(the_case, actor));
    for (size_t back = 1; back <= TS_ROUTER_BACK && back <= actor->pair; back++) {
        const struct ts_actor *other = ts_scene_actor(the_case->scene, actor->pair - back);
        const char *name = other ? ts_case_name(the_case, other) : "";
        if (other && other->rows == actor->rows && other->heads == 1 && other->width >= 2 &&
            other->width < actor->width && other->width < TS_MOST_EXPERTS && layer_of(name) == layer &&
            ts_is_router(the_case, other) && has_negative(other))
            return other;
    }
    return NULL;
}

bool ts_read_indices(const struct ts_pair *pair, uint64_t token, size_t chosen, int64_t *a, int64_t *b)
{
    struct ts_error ignored;
    uint64_t first = token * chosen;
    return ts_view_read_i64(&pair->a, first, chosen, a, &ignored) == TS_OK &&
           ts_view_read_i64(&pair->b, first, chosen, b, &ignored) == TS_OK;
}

bool ts_read_logits(const struct ts_case *the_case, const struct ts_actor *logits, bool candidate, uint64_t token,
                    float *out)
{
    struct ts_error ignored;
    return ts_scene_read(the_case->scene, logits->pair, candidate, token, 1, 0, logits->width, out, &ignored) == TS_OK;
}

/* The router's weights from logits that are `factor` times as large: the share of the error that it explains. The
 * logits are `scaled`. */
static double try_temperature(struct ts_variants *variants, const double *logits, size_t count, double factor,
                              double *scaled)
{
    double *const inputs[] = {scaled};
    for (size_t i = 0; i < count; i++)
        scaled[i] = factor * logits[i];
    return ts_variants_try(variants, &variants->the_case->operation, inputs);
}

static bool predict_temperature(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct ts_actor *from = ts_scene_actor(the_case->scene, formula->pairs[0]);
    const size_t count = from ? from->rows * from->width : 0;
    double *scaled = malloc(count * sizeof *scaled + 1);
    if (!scaled || !from || from->rows != the_case->actor->rows) {
        free(scaled);
        return false;
    }
    for (size_t i = 0; i < count; i++)
        scaled[i] = *(const double *)formula->numbers * (double)from->b[i];
    ts_operation_apply(the_case->scene, &the_case->operation, the_case->actor, (double *const[]){scaled}, out);
    free(scaled);
    return true;
}

/* Logits that are multiplied before they become weights. */
static void propose_temperature(struct ts_case *the_case, struct ts_variants *variants)
{
    const struct ts_actor *from = variants->from[0];
    const size_t count = from->rows * from->width;
    double *scaled = malloc(count * sizeof *scaled), most = WORTHWHILE, best = 0;
    for (int step = -LOGIT_STEPS; step <= LOGIT_STEPS && scaled; step++) {
        double factor = exp2((double)step / LOGIT_FINE);
        double share = step ? try_temperature(variants, variants->inputs[0], count, factor, scaled) : 0;
        if (share > most) {
            most = share;
            best = factor;
        }
    }
    if (best > 0) {
        double low = best * exp2(-1.0 / LOGIT_FINE), high = best * exp2(1.0 / LOGIT_FINE);
        for (int step = 0; step < 24; step++) {
            double one = low + (high - low) / 3, other = high - (high - low) / 3;
            if (try_temperature(variants, variants->inputs[0], count, one, scaled) >
                try_temperature(variants, variants->inputs[0], count, other, scaled))
                high = other;
            else
                low = one;
        }
        best = (low + high) / 2;
        (void)try_temperature(variants, variants->inputs[0], count, best, scaled);
        ts_formula_next(the_case, &(struct ts_formula){.predict = predict_temperature,
                                                       .numbers = &best,
                                                       .size = sizeof best,
                                                       .pairs = {from->pair},
                                                       .pair_count = 1});
        ts_propose(the_case, "router-gate",
                   ts_variants_apply(variants, &the_case->operation, (double *const[]){scaled}), 1,
                   "what the router's logits are multiplied with before they become weights: a temperature, a scale",
                   "the candidate makes its weights of logits that are %.4g times as large", best);
    }
    free(scaled);
}

/* In place: a softmax over the chosen of each token. */
static void softmax_rows(double *values, size_t rows, size_t width, double factor)
{
    for (double *row = values; row < values + rows * width; row += width) {
        double sum = 0;
        for (size_t i = 0; i < width; i++) /* none of them is large: they are scores from 0 to 1 */
            sum += row[i] = exp(row[i]);
        for (size_t i = 0; i < width; i++)
            row[i] *= factor / sum;
    }
}

/* The last of the chosen experts has no weight, and the others share what there is, or keep their own. */
static void propose_one_less(struct ts_case *the_case, const struct ts_variants *variants)
{
    const size_t width = the_case->actor->width;
    for (int kept = 0; kept < 2 && width > 1; kept++) {
        for (size_t row = 0; row < the_case->actor->rows; row++) {
            const double *all = the_case->expected + row * width;
            double *out = variants->out + row * width, sum = 0;
            for (size_t i = 0; i < width; i++)
                sum += all[i];
            for (size_t i = 0; i < width; i++)
                out[i] = i + 1 == width                              ? 0
                         : kept || !(fabs(sum - all[width - 1]) > 0) ? all[i]
                                                                     : all[i] * sum / (sum - all[width - 1]);
        }
        ts_propose(the_case, "router-gate", variants->out, 0, "how many experts each token takes: num_experts_per_tok",
                   "the last of %zu chosen experts has the weight 0%s: the candidate takes one less", width,
                   kept ? "" : ", and the others share its weight");
    }
}

/* The router's weights made otherwise from the candidate's logits. */
static void propose_weights(struct ts_case *the_case)
{
    struct ts_variants variants;
    const struct ts_operation *own = &the_case->operation;
    double most = WORTHWHILE;
    struct ts_operation best = *own;
    bool found = false;
    if (!ts_variants_open(&variants, the_case, &the_case->operation))
        return;
    for (int variant = 0; variant < 4; variant++) {
        struct ts_operation other = *own;
        double share;
        other.flag = variant % 2;
        other.sigmoid = variant / 2;
        if (other.flag == own->flag && other.sigmoid == own->sigmoid)
            continue;
        share = ts_variants_try(&variants, &other, variants.inputs);
        if (share > most) {
            most = share;
            best = other;
            found = true;
        }
    }
    if (found)
        ts_formula_operation(the_case, &best);
    if (found)
        ts_propose(the_case, "router-gate", ts_variants_apply(&variants, &best, variants.inputs), 0,
                   "how the router turns logits into weights: the scoring function, and norm_topk_prob",
                   "from %s, the candidate computes its weights as %s%s, the reference as %s%s",
                   ts_case_name(the_case, variants.from[0]), best.sigmoid ? "sigmoids" : "softmax probabilities",
                   best.flag ? " divided by their sum" : " not divided by their sum",
                   own->sigmoid ? "sigmoids" : "softmax probabilities",
                   own->flag ? " divided by their sum" : " not divided by their sum");
    propose_temperature(the_case, &variants);
    for (int sigmoid = 0; sigmoid < 2; sigmoid++) {
        struct ts_operation scores = *own;
        scores.sigmoid = sigmoid;
        scores.flag = false;
        scores.factor = 1;
        ts_variants_apply(&variants, &scores, variants.inputs);
        softmax_rows(variants.out, the_case->actor->rows, the_case->actor->width, own->factor);
        ts_propose(the_case, "router-gate", variants.out, 0,
                   "whether the chosen scores are put through a softmax once more",
                   "from %s, the candidate's weights are a softmax over the chosen %s, which are scores already",
                   ts_case_name(the_case, variants.from[0]), sigmoid ? "sigmoids" : "softmax probabilities");
    }
    if (fabs(own->factor - 1) > 0.01) {
        struct ts_operation other = *own;
        other.factor = 1;
        ts_formula_operation(the_case, &other);
        ts_propose(the_case, "router-gate", ts_variants_apply(&variants, &other, variants.inputs), 0,
                   "routed_scaling_factor", "the candidate does not apply the factor %.5g to the router's weights",
                   own->factor);
    }
    propose_one_less(the_case, &variants);
    for (int shared = 0; shared < 2; shared++) {
        double weight = shared ? own->factor / (double)the_case->actor->width : 1;
        for (size_t i = 0; i < the_case->total; i++)
            variants.out[i] = weight;
        ts_formula_affine(the_case, 0, weight);
        if (shared)
            ts_propose(the_case, "router-gate", variants.out, 0, "whether the router's scores reach the weights",
                       "the candidate gives all chosen experts the same weight, 1 / %zu", the_case->actor->width);
        else
            ts_propose(the_case, "router-gate", variants.out, 0, "whether the router's scores reach the weights",
                       "the candidate ignores the router's weights: every chosen expert has the weight 1");
    }
    ts_variants_close(&variants);
}

/* The gap between the last chosen and the first left out against the difference of the logits. */
static bool is_near_tie(const float *a, const float *b, size_t experts, size_t chosen, double *gap, double *moved)
{
    double last = INFINITY;
    *gap = INFINITY;
    *moved = 0;
    for (size_t rank = 0; rank <= chosen && rank < experts; rank++) {
        double next = -INFINITY;
        for (size_t i = 0; i < experts; i++)
            if ((double)a[i] < last && (double)a[i] > next)
                next = (double)a[i];
        if (rank && last - next < *gap)
            *gap = last - next;
        last = next;
    }
    for (size_t i = 0; i < experts; i++)
        *moved = fabs((double)b[i] - (double)a[i]) > *moved ? fabs((double)b[i] - (double)a[i]) : *moved;
    return *gap <= 4 * *moved;
}

/* A bias for each expert that nobody captured explains what the reference chooses, and what the candidate does. */
static bool may_be_biased(const struct ts_case *the_case, const struct ts_router *router)
{
    const uint64_t tokens = the_case->scene->tokens, stride = tokens / HEARD + 1;
    bool may = false;
    for (int scores = 0; scores < TS_ROUTER_SCORES && !may; scores++) {
        struct ts_router_bias bias;
        int64_t a[TS_MOST_CHOSEN], b[TS_MOST_CHOSEN];
        float logits[TS_MOST_EXPERTS];
        bool good = ts_router_bias_open(&bias, router->logits->width, (enum ts_router_scores)scores);
        for (uint64_t token = 0; token < tokens && good; token += stride) {
            good = ts_read_indices(router->indices, token, router->chosen, a, b) &&
                   ts_read_logits(the_case, router->logits, false, token, logits);
            if (good)
                ts_router_bias_hear(&bias, logits, router->logits->bits_a, a, router->chosen);
        }
        may = good && ts_router_bias_settle(&bias);
        for (uint64_t token = 0; token < tokens && may; token++) {
            may = ts_read_indices(router->indices, token, router->chosen, a, b);
            if (may && !ts_are_same_experts(a, b, router->chosen))
                may = ts_read_logits(the_case, router->logits, true, token, logits) &&
                      ts_router_bias_allows(&bias, logits, router->logits->bits_b, b, router->chosen);
        }
        ts_router_bias_close(&bias);
    }
    return may;
}

/* Tokens whose experts differ: near ties are named and are no bug. Works on the indices themselves and on what comes
 * after them, and looks at every token, in the case or not. biased: it is not the logits alone that choose, so that
 * experts may be tied whose logits are far apart. */
static void propose_routing(struct ts_case *the_case, const struct ts_router *router, bool own, bool biased)
{
    const struct ts_pair *indices = router->indices ? router->indices : ts_case_pair(the_case);
    int64_t a[TS_MOST_CHOSEN], b[TS_MOST_CHOSEN];
    float right[TS_MOST_EXPERTS], found[TS_MOST_EXPERTS];
    size_t differing = 0, ties = 0, permuted = 0, said = 0;
    char tokens[160] = "";
    double worst_gap = 0, worst_moved = 0;
    for (uint64_t token = 0; token < the_case->scene->tokens; token++) {
        double gap, moved;
        size_t missing = 0;
        if (!ts_read_indices(indices, token, router->chosen, a, b))
            return;
        if (memcmp(a, b, router->chosen * sizeof *a) == 0)
            continue;
        if (!ts_read_logits(the_case, router->logits, false, token, right) ||
            !ts_read_logits(the_case, router->logits, true, token, found))
            return;
        for (size_t i = 0; i < router->chosen; i++) {
            size_t j = 0;
            while (j < router->chosen && b[j] != a[i])
                j++;
            missing += j == router->chosen;
        }
        differing++;
        permuted += missing == 0;
        if (is_near_tie(right, found, router->logits->width, router->chosen, &gap, &moved)) {
            ties++;
            if (said < sizeof tokens - 32)
                said += (size_t)snprintf(tokens + said, sizeof tokens - said, "%s%" PRIu64, said ? ", " : "", token);
            else if (tokens[said - 1] != '.')
                said += (size_t)snprintf(tokens + said, sizeof tokens - said, ", ...");
        } else if (gap > worst_gap) {
            worst_gap = gap;
            worst_moved = moved;
        }
    }
    if (!differing)
        return;
    ts_formula_next(the_case, &(struct ts_formula){.proved = true});
    if (ties == differing && (own || ts_case_quiet(the_case)))
        ts_propose_plain(the_case, "routing", 0.9, "nothing: near ties fall either way; judge these tokens separately",
                         "not a bug: %zu token%s (%s) went to different experts because %s scores are nearly tied",
                         ties, ties == 1 ? "" : "s", tokens, ties == 1 ? "its" : "their");
    else if (own && permuted == differing)
        ts_propose_below_noise(the_case, "router-gate", 0.8, "the order in which chosen experts are listed",
                               "in %zu token%s the candidate lists the same experts in another order", differing,
                               differing == 1 ? "" : "s");
    else if (own && !(biased && may_be_biased(the_case, router)))
        ts_propose_below_noise(the_case, "router-gate", 0.8,
                               "how experts are chosen: groups, correction bias, sorting, number of experts per token",
                               "%zu token%s to different experts, %zu of them without a near tie: the scores are up to "
                               "%.3g apart, while the two runs differ by %.3g there",
                               differing, differing == 1 ? " goes" : "s go", differing - ties, worst_gap, worst_moved);
    else
        ts_formula_next(the_case, &(struct ts_formula){0});
}

/* Each expert's score is a sigmoid, and a softmax over all of them stands in its place. */
static void propose_softmax_of_all(struct ts_case *the_case)
{
    const struct ts_operation *own = &the_case->operation;
    size_t width = the_case->actor->width;
    struct ts_variants variants;
    if (own->kind != TS_OPERATION_ACTIVATION || own->activation != TS_ACTIVATION_SIGMOID || own->input_count != 1 ||
        own->fused || the_case->actor->heads != 1 || width < 2 || width >= TS_MOST_EXPERTS ||
        !ts_variants_open(&variants, the_case, own))
        return;
    for (size_t start = 0; start + width <= the_case->total; start += width) {
        double largest = -INFINITY, sum = 0;
        for (size_t i = start; i < start + width; i++)
            largest = fmax(largest, variants.inputs[0][i]);
        for (size_t i = start; i < start + width; i++)
            sum += variants.out[i] = exp(variants.inputs[0][i] - largest);
        for (size_t i = start; i < start + width; i++)
            variants.out[i] /= sum;
    }
    ts_propose(the_case, "router-gate", variants.out, 0, "how the router turns logits into scores: scoring_func",
               "from %s, the candidate computes its scores as softmax probabilities, the reference as sigmoids",
               ts_case_name(the_case, variants.from[0]));
    ts_variants_close(&variants);
}

/* The weights are right for the experts that the candidate chose, and those are not the reference's. */
static void propose_other_choice(struct ts_case *the_case)
{
    const struct ts_operation *own = &the_case->operation;
    struct ts_router router;
    if (own->kind != TS_OPERATION_TOPK || !own->table || ts_case_direct(the_case))
        return;
    router = (struct ts_router){.logits = ts_scene_actor(the_case->scene, own->inputs[0]),
                                .indices = ts_find_choice(the_case),
                                .chosen = the_case->actor->width};
    if (!router.indices)
        return;
    if (router.logits && router.logits->width < TS_MOST_EXPERTS)
        propose_routing(the_case, &router, true, true);
}

/* A shared expert takes every token, whatever the router says. */
static bool is_shared(const char *name)
{
    return strstr(name, "shared") || strstr(name, "shexp");
}

/* The shared expert of the layer, as far as it was captured. */
static void find_shared(const struct ts_case *the_case, struct ts_router *router)
{
    const struct ts_actor *actor = the_case->actor;
    const int64_t layer = layer_of(ts_case_name(the_case, actor));
    for (size_t back = 1; back <= TS_ROUTER_BACK && back <= actor->pair; back++) {
        const struct ts_actor *other = ts_scene_actor(the_case->scene, actor->pair - back);
        if (!other || other->rows != actor->rows || other->heads != 1 || !is_shared(ts_case_name(the_case, other)) ||
            layer_of(ts_case_name(the_case, other)) != layer)
            continue;
        if (other->width == actor->width && !router->shared)
            router->shared = other;
        else if (other->width == 1 && !router->shared_gate)
            router->shared_gate = other;
    }
}

/* No sum over experts: something inside of one, a shared one, or attention. */
static bool is_inside(const struct ts_case *the_case)
{
    const char *name = ts_case_name(the_case, the_case->actor);
    return ts_names_operand(name) || is_shared(name) || ts_names_attention(name);
}

/* Another number of experts is chosen: their weights differ, or what they make in this layer does. The weights are
 * listed before the experts or behind them. */
static void propose_other_count(struct ts_case *the_case)
{
    const size_t own = the_case->actor->pair, count = ts_case_pair_count(the_case);
    const uint64_t tokens = the_case->scene->tokens;
    const struct ts_pair *self = ts_case_pair(the_case);
    const bool chosen = the_case->operation.kind == TS_OPERATION_TOPK;
    uint64_t of_a = 0, of_b = 0, own_a, own_b;
    bool found = ts_counts_otherwise(self, tokens, chosen, &of_a, &of_b);
    const bool lists = found || ts_counts_otherwise(self, tokens, true, &own_a, &own_b);
    /* what is made of other tensors that are known is wrong whatever the experts make */
    if (is_inside(the_case) || (the_case->operation.kind != TS_OPERATION_NONE && !chosen))
        return;
    for (size_t i = own > 3 ? own - 3 : 0; i < count && i <= own + lists && !found; i++)
        found = i != own && ts_same_layer(ts_pair_at(the_case, i)->name, self->name) &&
                ts_counts_otherwise(ts_pair_at(the_case, i), tokens, false, &of_a, &of_b);
    if (!found)
        return;
    ts_formula_next(the_case, &(struct ts_formula){.proved = true});
    ts_propose_fact(the_case, "router-gate", "num_experts_per_tok",
                    "the candidate chooses %" PRIu64 " expert%s for each token, the reference %" PRIu64, of_b,
                    of_b == 1 ? "" : "s", of_a);
}

void ts_propose_added_experts(struct ts_case *the_case)
{
    struct ts_router router;
    const struct ts_actor *logits = find_router(the_case, &router) ? NULL : find_logits(the_case);
    if (logits && ts_case_in_scene(the_case))
        (void)ts_propose_summed_experts(the_case, &(struct ts_router){.logits = logits});
}

static void propose(struct ts_case *the_case)
{
    struct ts_router router;
    bool own;
    if (!the_case->actor || !the_case->total)
        return;
    if (the_case->operation.kind == TS_OPERATION_TOPK && ts_case_in_scene(the_case))
        propose_weights(the_case);
    if (ts_case_in_scene(the_case))
        propose_softmax_of_all(the_case);
    if (ts_case_quiet(the_case))
        propose_other_choice(the_case);
    propose_other_count(the_case);
    own = ts_type_is_integer(ts_case_pair(the_case)->a.tensor->type);
    if (!own && ts_case_in_scene(the_case) &&
        (the_case->operation.kind == TS_OPERATION_NONE || the_case->operation.kind == TS_OPERATION_TOPK))
        ts_propose_gathered(the_case, the_case->operation.kind == TS_OPERATION_TOPK);
    if (own) {
        router = (struct ts_router){.chosen = chosen_in(ts_case_pair(the_case), the_case->scene->tokens)};
        if (!router.chosen)
            return;
        for (size_t back = 1; back <= TS_ROUTER_BACK && back <= the_case->actor->pair && !router.logits; back++) {
            const struct ts_actor *actor = ts_scene_actor(the_case->scene, the_case->actor->pair - back);
            if (actor && actor->heads == 1 && actor->rows == the_case->scene->taken_count &&
                actor->width > router.chosen && actor->width < TS_MOST_EXPERTS)
                router.logits = actor;
        }
        if (router.logits)
            propose_routing(the_case, &router, true, false);
        return;
    }
    if (ts_case_direct(the_case))
        return;
    if (ts_case_in_scene(the_case) && the_case->operation.kind == TS_OPERATION_NONE) {
        router = (struct ts_router){0};
        find_shared(the_case, &router);
        ts_propose_shared_gate(the_case, &router);
        ts_propose_routed_part(the_case, &router);
    }
    if (!find_router(the_case, &router)) {
        router = (struct ts_router){.logits = find_logits(the_case)};
        find_shared(the_case, &router);
        if (router.logits && ts_case_in_scene(the_case) && the_case->operation.kind == TS_OPERATION_NONE)
            ts_propose_by_logits(the_case, &router, is_inside(the_case));
        if (ts_case_in_scene(the_case))
            ts_propose_unseen_routing(the_case);
        return;
    }
    if (router.weights == the_case->actor)
        return;
    ts_propose_moved_rows(the_case, &router);
    if (router.indices)
        propose_routing(the_case, &router, false, false);
    /* experts mix what the router of their own layer chose */
    if (!ts_case_in_scene(the_case) || the_case->operation.kind != TS_OPERATION_NONE ||
        layer_of(ts_case_name(the_case, router.logits)) != layer_of(ts_case_name(the_case, the_case->actor)) ||
        is_inside(the_case))
        return;
    find_shared(the_case, &router);
    ts_propose_mixed(the_case, &router);
}

const struct ts_family ts_family_experts = {"experts", propose};
