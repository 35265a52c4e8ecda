/* Experts: how the router's weights are made, whether they are used, whether the right experts are; and tokens that
 * went elsewhere on a near tie, which is not a bug. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/variant.h"

#define SPARED       1e-3 /* 1 less the cosine of a row that agrees */
#define WORTHWHILE   0.3
#define MOST_CHOSEN  64
#define MOST_EXPERTS 4096
#define ROUTER_BACK  8 /* pairs between the router and what its experts make */

struct router {
    const struct ts_actor *logits, *weights; /* NULL when they were not captured */
    const struct ts_pair *indices;
    size_t chosen;
};

static const struct ts_pair *pair_at(const struct ts_case *the_case, size_t index)
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

/* The first number of a name, which is its layer; -1 without one. */
static long layer_of(const char *name)
{
    while (*name && !isdigit((unsigned char)*name))
        name++;
    return *name ? strtol(name, NULL, 10) : -1;
}

/* The router just before the case's tensor. */
static bool find_router(const struct ts_case *the_case, struct router *router)
{
    uint64_t tokens = the_case->scene->tokens;
    *router = (struct router){0};
    for (size_t back = 1; back <= ROUTER_BACK && back <= the_case->actor->pair; back++) {
        size_t index = the_case->actor->pair - back;
        const struct ts_pair *pair = pair_at(the_case, index);
        const struct ts_actor *actor = ts_scene_actor(the_case->scene, index);
        if (!pair->problem && ts_type_is_integer(pair->a.tensor->type) && ts_type_is_integer(pair->b.tensor->type) &&
            !router->indices && tokens && pair->a.count % tokens == 0 && pair->a.count / tokens <= MOST_CHOSEN) {
            router->indices = pair;
            router->chosen = (size_t)(pair->a.count / tokens);
        }
        if (!actor || actor->rows != the_case->scene->taken_count || actor->width >= MOST_EXPERTS)
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

static bool read_indices(const struct ts_case *the_case, const struct ts_pair *pair, size_t row, size_t chosen,
                         int64_t *a, int64_t *b)
{
    struct ts_error ignored;
    uint64_t first = the_case->scene->taken[row] * chosen;
    return ts_view_read_i64(&pair->a, first, chosen, a, &ignored) == TS_OK &&
           ts_view_read_i64(&pair->b, first, chosen, b, &ignored) == TS_OK;
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
                   "how the router turns logits into weights: scoring function, and norm_topk_prob",
                   "made of %s, the candidate's weights are %s%s, the reference's are %s%s",
                   ts_case_name(the_case, variants.from[0]), best.sigmoid ? "sigmoids" : "softmax probabilities",
                   best.flag ? " divided by their sum" : " that are not divided by their sum",
                   own->sigmoid ? "sigmoids" : "softmax probabilities",
                   own->flag ? " divided by their sum" : " as they are");
    if (fabs(own->factor - 1) > 0.01) {
        struct ts_operation other = *own;
        other.factor = 1;
        ts_formula_operation(the_case, &other);
        ts_propose(the_case, "router-gate", ts_variants_apply(&variants, &other, variants.inputs), 0,
                   "routed_scaling_factor", "the factor %.5g on the router's weights is missing", own->factor);
    }
    for (size_t i = 0; i < the_case->total; i++)
        variants.out[i] = own->factor / (double)the_case->actor->width;
    ts_formula_affine(the_case, 0, own->factor / (double)the_case->actor->width);
    ts_propose(the_case, "router-gate", variants.out, 0, "whether the router's scores reach the weights",
               "all chosen experts have the same weight, 1 / %zu", the_case->actor->width);
    ts_variants_close(&variants);
}

enum gate { GATE_SOFTMAX, GATE_SIGMOID, GATES };
#define WAYS                                                                                                           \
    (2 * GATES) /* each as it is and divided by its sum: a softmax over the chosen ones is that of all, divided */

/* Weights of the experts that were chosen, from their logits. */
static void gate_row(enum gate gate, bool divided, const float *logits, size_t experts, const int64_t *chosen,
                     size_t count, double *out)
{
    double largest = -INFINITY, sum = 0, all = 0;
    for (size_t i = 0; i < experts; i++)
        largest = (double)logits[i] > largest ? (double)logits[i] : largest;
    for (size_t i = 0; i < experts; i++)
        all += exp((double)logits[i] - largest);
    for (size_t k = 0; k < count; k++) {
        double x = (double)logits[chosen[k]];
        out[k] = gate == GATE_SIGMOID ? 1 / (1 + exp(-x)) : exp(x - largest);
        sum += out[k];
    }
    for (size_t k = 0; k < count; k++)
        out[k] /= divided ? sum : gate == GATE_SOFTMAX ? all : 1;
}

/* Where a bias, groups or anything else decides which experts are chosen, the choice cannot be learnt from the logits.
 * Where it was captured, how the weights of the chosen ones are made still can. */
struct gathered {
    const struct ts_actor *logits;
    const struct ts_pair *indices;
    size_t chosen;
};

static bool find_gathered(const struct ts_case *the_case, struct gathered *gathered)
{
    const struct ts_actor *actor = the_case->actor;
    uint64_t tokens = the_case->scene->tokens;
    size_t count = ts_case_pair_count(the_case);
    *gathered = (struct gathered){.chosen = actor->width};
    if (actor->heads != 1 || actor->width < 2 || actor->width > MOST_CHOSEN ||
        actor->rows != the_case->scene->taken_count)
        return false;
    for (size_t i = actor->pair > 3 ? actor->pair - 3 : 0; i < count && i <= actor->pair + 3; i++) {
        const struct ts_pair *pair = pair_at(the_case, i);
        if (!pair->problem && ts_type_is_integer(pair->a.tensor->type) && ts_type_is_integer(pair->b.tensor->type) &&
            pair->a.count == tokens * actor->width)
            gathered->indices = pair;
    }
    for (size_t back = 1; back <= ROUTER_BACK && back <= actor->pair && !gathered->logits; back++) {
        const struct ts_actor *other = ts_scene_actor(the_case->scene, actor->pair - back);
        if (other && other->heads == 1 && other->rows == actor->rows && other->width > actor->width &&
            other->width < MOST_EXPERTS)
            gathered->logits = other;
    }
    return gathered->logits && gathered->indices;
}

/* One side's weights made in one way; false when an index is none. */
static bool gate_rows(const struct ts_case *the_case, const struct gathered *gathered, bool candidate, enum gate gate,
                      bool divided, double *out)
{
    size_t experts = gathered->logits->width, chosen = gathered->chosen;
    for (size_t row = 0; row < the_case->actor->rows; row++) {
        int64_t a[MOST_CHOSEN], b[MOST_CHOSEN], *own = candidate ? b : a;
        if (!read_indices(the_case, gathered->indices, row, chosen, a, b))
            return false;
        for (size_t k = 0; k < chosen; k++)
            if (own[k] < 0 || (uint64_t)own[k] >= experts)
                return false;
        gate_row(gate, divided, (candidate ? gathered->logits->b : gathered->logits->a) + row * experts, experts, own,
                 chosen, out + row * chosen);
    }
    return true;
}

/* The factor on weights that were made in one way, and what it leaves of their energy. */
static double fit_factor(const float *values, const double *made, size_t count, double *left)
{
    double dot = 0, square = 0, all = 0, factor;
    for (size_t i = 0; i < count; i++) {
        dot += (double)values[i] * made[i];
        square += made[i] * made[i];
        all += (double)values[i] * (double)values[i];
    }
    factor = square > 0 ? dot / square : 0;
    *left = all > 0 ? 1 - factor * dot / all : 1;
    return factor;
}

static void propose_gathered(struct ts_case *the_case)
{
    static const char *const names[GATES] = {"softmax probabilities", "sigmoids"};
    double *made = ts_case_scratch(the_case), least = 1e-4, factor = 1;
    struct gathered gathered;
    int own = -1;
    if (!made || !find_gathered(the_case, &gathered))
        return;
    for (int way = 0; way < WAYS; way++) {
        double left, one;
        if (!gate_rows(the_case, &gathered, false, (enum gate)(way / 2), way % 2, made))
            return;
        one = fit_factor(the_case->actor->a, made, the_case->total, &left);
        if (left < least) {
            least = left;
            own = way;
            factor = one;
        }
    }
    for (int way = 0; way < WAYS && own >= 0; way++) {
        if (!gate_rows(the_case, &gathered, true, (enum gate)(way / 2), way % 2, made))
            return;
        for (size_t i = 0; i < the_case->total; i++)
            made[i] *= factor;
        if (way != own)
            ts_propose(the_case, "router-gate", made, 0,
                       "how the router turns logits into weights: scoring function, and norm_topk_prob",
                       "the candidate's weights are %s%s; the reference takes %s%s", names[way / 2],
                       way % 2 ? ", divided by their sum" : "", names[own / 2],
                       own % 2 ? ", divided by their sum" : "");
        else
            ts_propose(the_case, "router-gate", made, 0, "which experts are chosen: the bias, the groups, their order",
                       "the weights are made as the reference makes them; the experts they belong to are others");
    }
}

/* What rows of the output look like beside the reference when experts are mixed otherwise. Outputs of different experts
 * are taken as unrelated and of equal size: then weights w and v give vectors with the cosine w.v / (|w| |v|) and sizes
 * in the proportion |v| / |w|. First what is measured: the cosine, and the logarithm of the proportion. */
static void measure_row(const struct ts_case *the_case, size_t row, double *cosine, double *size)
{
    size_t width = the_case->actor->width;
    double dot = 0, expected = 0, found = 0;
    for (size_t i = row * width; i < (row + 1) * width; i++)
        if (isfinite(the_case->found[i]) && isfinite(the_case->expected[i])) {
            dot += the_case->found[i] * the_case->expected[i];
            expected += the_case->expected[i] * the_case->expected[i];
            found += the_case->found[i] * the_case->found[i];
        }
    *cosine = expected > 0 && found > 0 ? dot / sqrt(expected * found) : 0;
    *size = expected > 0 && found > 0 ? 0.5 * log(found / expected) : 0;
}

enum { EQUAL_WEIGHTS, MEAN_WEIGHTS, REVERSED_WEIGHTS, OTHER_EXPERTS, SAME_WEIGHTS, MIXINGS };

/* Cosine and logarithm of size that a way of mixing predicts for a row. */
static void predict_row(int mixing, const float *weights, size_t chosen, double *cosine, double *size)
{
    double sum = 0, square = 0, turned = 0, k = (double)chosen;
    for (size_t i = 0; i < chosen; i++) {
        sum += (double)weights[i];
        square += (double)weights[i] * (double)weights[i];
        turned += (double)weights[i] * (double)weights[chosen - 1 - i];
    }
    square = square > 0 ? square : 1;
    *cosine = mixing == REVERSED_WEIGHTS ? turned / square
              : mixing == OTHER_EXPERTS  ? 0
              : mixing == SAME_WEIGHTS   ? 1
                                         : sum / sqrt(k * square);
    *size = mixing == EQUAL_WEIGHTS ? 0.5 * log(k / square) : mixing == MEAN_WEIGHTS ? 0.5 * log(1 / (k * square)) : 0;
}

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

/* Experts that are mixed otherwise change every channel: half of them must not hold nearly all of the error. */
static bool is_spread(const struct ts_case *the_case)
{
    size_t width = the_case->actor->width;
    double *parts = calloc(width, sizeof *parts), lower = 0, all = 0;
    for (size_t i = 0; i < the_case->total && parts; i++) {
        double cost = ts_element_cost(the_case->found[i], the_case->expected[i], the_case->expected[i]);
        parts[i % width] += cost > 0 ? cost : 0;
    }
    if (parts)
        qsort(parts, width, sizeof *parts, by_value);
    for (size_t i = 0; i < width && parts; i++) {
        lower += i < width / 2 ? parts[i] : 0;
        all += parts[i];
    }
    free(parts);
    return lower > 0.03 * all;
}

/* The experts' output is wrong although the router agrees. */
static void propose_mixing(struct ts_case *the_case, const struct router *router)
{
    static const char *const texts[MIXINGS] = {
        [EQUAL_WEIGHTS] = "sizes and angles of the rows are those of experts added up without the router's weights",
        [MEAN_WEIGHTS] = "sizes and angles of the rows are those of a plain mean over the chosen experts",
        [REVERSED_WEIGHTS] = "sizes and angles of the rows are those of weights that went to the wrong one of the "
                             "chosen experts",
        [OTHER_EXPERTS] = "rows have the right size and no relation to the reference: other experts than the chosen "
                          "ones were used, experts in another order, or experts whose weights were not loaded"};
    double distances[MIXINGS] = {0}, mean = 0;
    size_t rows = 0, best = 0, chosen = router->chosen, spared[MIXINGS] = {0};
    if (!router->weights || chosen > MOST_CHOSEN || !is_spread(the_case))
        return;
    for (size_t row = 0; row < the_case->actor->rows; row++) {
        double cosine, size;
        if (ts_case_aside(the_case, row))
            continue;
        measure_row(the_case, row, &cosine, &size);
        mean += cosine;
        rows++;
        for (int mixing = 0; mixing < MIXINGS; mixing++) {
            double predicted, grown;
            predict_row(mixing, router->weights->b + row * chosen, chosen, &predicted, &grown);
            spared[mixing] += cosine > 1 - SPARED && predicted < 1 - 20 * SPARED;
            distances[mixing] += (cosine - predicted) * (cosine - predicted) + (size - grown) * (size - grown);
        }
    }
    for (size_t mixing = 1; mixing < MIXINGS; mixing++)
        if (distances[mixing] < distances[best])
            best = mixing;
    /* it would have changed every row: one that agrees speaks against it */
    if (!rows || best == SAME_WEIGHTS || distances[best] > 0.4 * (double)rows || spared[best] * 8 > rows)
        return;
    ts_propose_plain(the_case, "router-gate",
                     best == OTHER_EXPERTS                   ? 0.55 /* it says all that "unrelated" would, and more */
                     : distances[best] < 0.16 * (double)rows ? 0.7
                                                             : 0.66,
                     "how the router's weights and indices reach the experts, and the order of the experts' weights",
                     "the router's weights and choices agree, but what the experts make does not (mean cosine of a row "
                     "%.2f): %s",
                     mean / (double)rows, texts[best]);
}

/* With one expert per token its weight is a factor of the row. */
static void propose_single(struct ts_case *the_case, const struct router *router)
{
    static const char *const texts[] = {"the router's weight is not applied", "the router's weight is applied twice"};
    double *prediction = ts_case_scratch(the_case);
    if (!router->weights || router->chosen != 1 || !prediction)
        return;
    for (int twice = 0; twice < 2; twice++) {
        for (size_t i = 0; i < the_case->total; i++) {
            double weight = (double)router->weights->b[i / the_case->actor->width];
            prediction[i] = the_case->expected[i] * (twice ? weight : weight > 0 ? 1 / weight : 0);
        }
        ts_propose(the_case, "router-gate", prediction, 0, "where the router's weight is multiplied in", "%s",
                   texts[twice]);
    }
}

/* The experts of a token in the reference: captured, or those with the largest logits. */
static bool experts_of(const struct ts_case *the_case, const struct router *router, size_t row, int64_t *experts)
{
    int64_t other[MOST_CHOSEN];
    const float *logits = router->logits->a + row * router->logits->width;
    if (router->indices)
        return read_indices(the_case, router->indices, row, router->chosen, experts, other);
    for (size_t rank = 0; rank < router->chosen; rank++) {
        int64_t best = -1;
        for (size_t i = 0; i < router->logits->width; i++) {
            bool taken = false;
            for (size_t k = 0; k < rank; k++)
                taken = taken || experts[k] == (int64_t)i;
            if (!taken && (best < 0 || logits[i] > logits[best]))
                best = (int64_t)i;
        }
        experts[rank] = best;
    }
    return true;
}

/* Wrong exactly for the tokens that went to some experts. */
static void propose_some_experts(struct ts_case *the_case, const struct router *router)
{
    size_t experts = router->logits->width, rows = the_case->actor->rows, width = the_case->actor->width;
    size_t culprits = 0, wrong_rows = 0, explained = 0, said = 0;
    int64_t chosen[MOST_CHOSEN];
    enum { UNSEEN, CLEAN, SUSPECT };
    unsigned char *seen = calloc(experts + rows + 1, 1), *wrong = seen ? seen + experts : NULL;
    double size = 0;
    char names[120] = "";
    for (size_t i = 0; i < the_case->total; i++)
        size += isfinite(the_case->expected[i]) ? the_case->expected[i] * the_case->expected[i] : 0;
    for (size_t row = 0; row < rows && seen; row++) {
        double own = 0, cost = ts_rows_cost(the_case, the_case->expected, row, 1);
        for (size_t i = row * width; i < (row + 1) * width; i++)
            own += isfinite(the_case->expected[i]) ? the_case->expected[i] * the_case->expected[i] : 0;
        wrong[row] = cost * size > 30 * the_case->noise * own && cost > 0;
        wrong_rows += wrong[row];
        if (wrong[row] || !experts_of(the_case, router, row, chosen))
            continue;
        for (size_t i = 0; i < router->chosen; i++)
            if (chosen[i] >= 0 && (uint64_t)chosen[i] < experts)
                seen[chosen[i]] = CLEAN;
    }
    for (size_t row = 0; row < rows && seen; row++) { /* every wrong token has an expert that no right token has */
        bool has = false;
        if (!wrong[row] || !experts_of(the_case, router, row, chosen))
            continue;
        for (size_t i = 0; i < router->chosen; i++) {
            if (chosen[i] < 0 || (uint64_t)chosen[i] >= experts || seen[chosen[i]] == CLEAN)
                continue;
            has = true;
            if (seen[chosen[i]] == UNSEEN && said < sizeof names - 24)
                said += (size_t)snprintf(names + said, sizeof names - said, "%s%" PRId64, said ? ", " : "", chosen[i]);
            culprits += seen[chosen[i]] == UNSEEN;
            seen[chosen[i]] = SUSPECT;
        }
        explained += has;
    }
    if (wrong_rows >= 2 && wrong_rows + 2 <= rows && explained == wrong_rows && culprits * 2 <= experts)
        ts_propose_plain(the_case, "router-gate", wrong_rows >= 4 && wrong_rows + 4 <= rows ? 0.9 : 0.8,
                         "the weights and the order of these experts",
                         culprits == 1 ? "only the %zu tokens that went to expert %s are wrong, the other %zu agree"
                                       : "only the %zu tokens that went to experts %s are wrong, the other %zu agree",
                         wrong_rows, names, rows - wrong_rows);
    free(seen);
}

/* The gap between the last chosen and the first left out against the difference of the logits. */
static bool is_near_tie(const struct ts_actor *logits, size_t row, size_t chosen, double *gap, double *moved)
{
    const float *a = logits->a + row * logits->width, *b = logits->b + row * logits->width;
    double last = INFINITY;
    *gap = INFINITY;
    *moved = 0;
    for (size_t rank = 0; rank <= chosen && rank < logits->width; rank++) {
        double next = -INFINITY;
        for (size_t i = 0; i < logits->width; i++)
            if ((double)a[i] < last && (double)a[i] > next)
                next = (double)a[i];
        if (rank && last - next < *gap)
            *gap = last - next;
        last = next;
    }
    for (size_t i = 0; i < logits->width; i++)
        *moved = fabs((double)b[i] - (double)a[i]) > *moved ? fabs((double)b[i] - (double)a[i]) : *moved;
    return *gap <= 4 * *moved;
}

/* Tokens whose experts differ: near ties are named and are no bug. Works on the indices themselves and on what comes
 * after them. */
static void propose_routing(struct ts_case *the_case, const struct router *router, bool own)
{
    const struct ts_pair *indices = own ? ts_case_pair(the_case) : router->indices;
    int64_t a[MOST_CHOSEN], b[MOST_CHOSEN];
    size_t differing = 0, ties = 0, permuted = 0, said = 0;
    char tokens[160] = "";
    double worst_gap = 0, worst_moved = 0;
    for (size_t row = 0; row < router->logits->rows; row++) {
        double gap, moved;
        size_t missing = 0;
        if (!read_indices(the_case, indices, row, router->chosen, a, b) ||
            memcmp(a, b, router->chosen * sizeof *a) == 0)
            continue;
        for (size_t i = 0; i < router->chosen; i++) {
            size_t j = 0;
            while (j < router->chosen && b[j] != a[i])
                j++;
            missing += j == router->chosen;
        }
        differing++;
        permuted += missing == 0;
        if (is_near_tie(router->logits, row, router->chosen, &gap, &moved)) {
            ties++;
            if (said < sizeof tokens - 32)
                said += (size_t)snprintf(tokens + said, sizeof tokens - said, "%s%" PRIu64, said ? ", " : "",
                                         the_case->scene->taken[row]);
        } else if (gap > worst_gap) {
            worst_gap = gap;
            worst_moved = moved;
        }
    }
    if (!differing)
        return;
    if (ties == differing && (own || ts_case_quiet(the_case)))
        ts_propose_plain(the_case, "routing", 0.9, "nothing: near ties fall either way; compare these tokens apart",
                         "not a bug: %zu tokens (%s) were sent to other experts because their scores are nearly tied",
                         ties, tokens);
    else if (own && permuted == differing)
        ts_propose_plain(the_case, "router-gate", 0.8, "the order in which chosen experts are listed",
                         "in %zu tokens the same experts are chosen in another order", differing);
    else if (own)
        ts_propose_plain(the_case, "router-gate", 0.8,
                         "how experts are chosen: groups, correction bias, sorting, number of experts per token",
                         "%zu tokens go to other experts, %zu of them without a tie: the scores are %.3g apart where "
                         "they differ by %.3g",
                         differing, differing - ties, worst_gap, worst_moved);
}

static void propose(struct ts_case *the_case)
{
    struct router router;
    bool own;
    if (!the_case->actor || !the_case->total)
        return;
    if (the_case->operation.kind == TS_OPERATION_TOPK && ts_case_in_scene(the_case))
        propose_weights(the_case);
    own = ts_type_is_integer(ts_case_pair(the_case)->a.tensor->type);
    if (!own && the_case->operation.kind == TS_OPERATION_NONE && ts_case_in_scene(the_case))
        propose_gathered(the_case);
    if (own) {
        uint64_t tokens = the_case->scene->tokens, count = ts_case_pair(the_case)->a.count;
        if (!tokens || count % tokens || count / tokens > MOST_CHOSEN ||
            !ts_type_is_integer(ts_case_pair(the_case)->b.tensor->type))
            return;
        router = (struct router){.chosen = (size_t)(count / tokens)};
        for (size_t back = 1; back <= ROUTER_BACK && back <= the_case->actor->pair && !router.logits; back++) {
            const struct ts_actor *actor = ts_scene_actor(the_case->scene, the_case->actor->pair - back);
            if (actor && actor->heads == 1 && actor->rows == the_case->scene->taken_count &&
                actor->width > router.chosen && actor->width < MOST_EXPERTS)
                router.logits = actor;
        }
        if (router.logits)
            propose_routing(the_case, &router, true);
        return;
    }
    if (ts_case_direct(the_case) || !find_router(the_case, &router) || router.weights == the_case->actor)
        return;
    if (router.indices)
        propose_routing(the_case, &router, false);
    /* experts mix what the router of their own layer chose */
    if (!ts_case_in_scene(the_case) || the_case->operation.kind != TS_OPERATION_NONE ||
        layer_of(ts_case_name(the_case, router.logits)) != layer_of(ts_case_name(the_case, the_case->actor)) ||
        ts_names_operand(ts_case_name(the_case, the_case->actor)) ||
        ts_names_attention(ts_case_name(the_case, the_case->actor)))
        return;
    propose_single(the_case, &router);
    propose_some_experts(the_case, &router);
    propose_mixing(the_case, &router);
}

const struct ts_family ts_family_experts = {"experts", propose};
