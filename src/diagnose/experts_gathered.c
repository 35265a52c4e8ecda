/* Owns a router's weights where something else than the largest logits chooses the experts, a bias or groups, and the
 * choice was captured: how the chosen ones' weights are made, and what is added to their scores. */
#include <stdlib.h>
#include <string.h>

#include "diagnose/experts.h"
#include "diagnose/variant.h"

#define BIAS_ROOM 2 /* times as many weights as there are numbers that are added to scores */

/* Ways to make weights of logits, all that there are. */
static const struct ts_gate gates[] = {{false, false}, {false, true}, {true, false}, {true, true}};
#define GATES (sizeof gates / sizeof *gates)

/* Where a bias, groups or anything else decides which experts are chosen, the choice cannot be learnt from the logits.
 * Where it was captured, how the weights of the chosen ones are made still can. */
struct gathered {
    const struct ts_actor *logits;
    const struct ts_pair *indices;
    size_t chosen;
};

const struct ts_pair *ts_find_choice(const struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor;
    uint64_t tokens = the_case->scene->tokens;
    size_t count = ts_case_pair_count(the_case);
    const struct ts_pair *found = NULL;
    if (actor->heads != 1 || actor->width < 2 || actor->width > TS_MOST_CHOSEN ||
        actor->rows != the_case->scene->taken_count)
        return NULL;
    for (size_t i = actor->pair > 3 ? actor->pair - 3 : 0; i < count && i <= actor->pair + 3; i++) {
        const struct ts_pair *pair = ts_pair_at(the_case, i);
        if (!pair->problem && ts_type_is_integer(pair->a.tensor->type) && ts_type_is_integer(pair->b.tensor->type) &&
            pair->a.count == tokens * actor->width)
            found = pair;
    }
    return found;
}

/* What may be the logits, `back` tensors before; NULL for what may not. */
static const struct ts_actor *logits_before(const struct ts_case *the_case, size_t back)
{
    const struct ts_actor *actor = the_case->actor, *other;
    if (back > actor->pair)
        return NULL;
    other = ts_scene_actor(the_case->scene, actor->pair - back);
    return other && other->heads == 1 && other->rows == actor->rows && other->width > actor->width &&
                   other->width < TS_MOST_EXPERTS
               ? other
               : NULL;
}

/* One side's weights made in one way; false when an index is none. */
static bool gate_rows(const struct ts_case *the_case, const struct gathered *gathered, bool candidate,
                      const struct ts_gate *gate, double *out)
{
    size_t experts = gathered->logits->width, chosen = gathered->chosen;
    for (size_t row = 0; row < the_case->actor->rows; row++) {
        int64_t a[TS_MOST_CHOSEN], b[TS_MOST_CHOSEN], *own = candidate ? b : a;
        if (!ts_read_indices(gathered->indices, the_case->scene->taken[row], chosen, a, b))
            return false;
        for (size_t k = 0; k < chosen; k++)
            if (own[k] < 0 || (uint64_t)own[k] >= experts)
                return false;
        ts_weigh_experts(gate, (candidate ? gathered->logits->b : gathered->logits->a) + row * experts, experts, own,
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

/* Weights of the chosen ones, for other rows. */
struct gating {
    size_t indices;
    struct ts_gate gate;
    double factor;
};

static bool predict_gathered(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct gating *gating = formula->numbers;
    struct gathered gathered = {.logits = ts_scene_actor(the_case->scene, formula->pairs[0]),
                                .indices = ts_pair_at(the_case, gating->indices),
                                .chosen = the_case->actor->width};
    if (!gathered.logits || gathered.logits->rows != the_case->actor->rows ||
        !gate_rows(the_case, &gathered, true, &gating->gate, out))
        return false;
    for (size_t i = 0; i < the_case->total; i++)
        out[i] *= gating->factor;
    return true;
}

/* Scores with a number for each expert added to them. */
struct biased {
    size_t indices;
    struct ts_gate gate;
    double factor;
};

/* The candidate's weights: its scores and what is added to those of each expert, divided by their sum where the
 * reference divides. */
static bool predict_biased(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct biased *biased = formula->numbers;
    const struct ts_gate scores = {biased->gate.sigmoid, false};
    struct gathered gathered = {.logits = ts_scene_actor(the_case->scene, formula->pairs[0]),
                                .indices = ts_pair_at(the_case, biased->indices),
                                .chosen = the_case->actor->width};
    if (!gathered.logits || gathered.logits->rows != the_case->actor->rows ||
        gathered.logits->width != formula->table_count || !gate_rows(the_case, &gathered, true, &scores, out))
        return false;
    for (size_t row = 0; row < the_case->actor->rows; row++) {
        int64_t a[TS_MOST_CHOSEN], b[TS_MOST_CHOSEN];
        double *weights = out + row * gathered.chosen, sum = 0;
        if (!ts_read_indices(gathered.indices, the_case->scene->taken[row], gathered.chosen, a, b))
            return false;
        for (size_t k = 0; k < gathered.chosen; k++)
            sum += weights[k] += formula->table[b[k]];
        for (size_t k = 0; k < gathered.chosen; k++)
            weights[k] *= biased->factor / (biased->gate.divided && sum != 0 ? sum : 1);
    }
    return true;
}

/* What must hold for the numbers that are added to scores s: for the weight w of an expert, w * (sum of s + sum of what
 * is added) = s + what is added to its own; where weights are not divided by their sum, w = s + that. */
struct added {
    size_t rows, chosen, experts;
    double *weights;     /* 0 where weights are not divided */
    int64_t *experts_of; /* of each weight */
};

/* out += A x, or its transpose. */
static void apply_added(const struct added *added, bool transposed, const double *x, double *out)
{
    for (size_t row = 0; row < added->rows; row++) {
        const double *w = added->weights + row * added->chosen;
        const int64_t *e = added->experts_of + row * added->chosen;
        double sum = 0;
        for (size_t k = 0; k < added->chosen; k++)
            sum += transposed ? w[k] * x[row * added->chosen + k] : x[e[k]];
        for (size_t k = 0; k < added->chosen; k++) {
            if (transposed)
                out[e[k]] += x[row * added->chosen + k] - sum;
            else
                out[row * added->chosen + k] += x[e[k]] - w[k] * sum;
        }
    }
}

static double squares(const double *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i] * values[i];
    return sum;
}

/* Least squares by conjugate gradients. left: what must be explained, reordered to what remains. */
static void fit_added(const struct added *added, double *left, double *table)
{
    const size_t count = added->rows * added->chosen, experts = added->experts;
    double *room = calloc(2 * experts + count, sizeof *room), *slope = room, *step = room + experts,
           *moved = room + 2 * experts, before, first;
    if (!room)
        return;
    apply_added(added, true, left, slope);
    memcpy(step, slope, experts * sizeof *step);
    first = before = squares(slope, experts);
    for (size_t round = 0; round < 2 * experts && before > 1e-24 * first; round++) {
        double along, by, after;
        memset(moved, 0, count * sizeof *moved);
        apply_added(added, false, step, moved);
        along = squares(moved, count);
        if (!(along > 0))
            break;
        by = before / along;
        for (size_t i = 0; i < experts; i++)
            table[i] += by * step[i];
        for (size_t i = 0; i < count; i++)
            left[i] -= by * moved[i];
        memset(slope, 0, experts * sizeof *slope);
        apply_added(added, true, left, slope);
        after = squares(slope, experts);
        for (size_t i = 0; i < experts; i++)
            step[i] = slope[i] + after / before * step[i];
        before = after;
    }
    free(room);
}

/* The correction bias decides which experts are chosen, and does not belong into their weights. What is added to each
 * expert's score is fitted to the candidate. */
static void propose_biased(struct ts_case *the_case, const struct gathered *gathered, const struct ts_gate *own,
                           double factor)
{
    const size_t experts = gathered->logits->width, chosen = gathered->chosen, rows = the_case->actor->rows;
    const struct ts_gate scores = {own->sigmoid, false};
    double *made = ts_case_scratch(the_case), *out = ts_case_scratch(the_case), *table = calloc(experts, sizeof *table);
    struct added added = {.rows = rows,
                          .chosen = chosen,
                          .experts = experts,
                          .weights = calloc(the_case->total, sizeof(double)),
                          .experts_of = calloc(the_case->total, sizeof(int64_t))};
    struct biased biased = {(size_t)(gathered->indices - ts_pair_at(the_case, 0)), *own, factor};
    struct ts_formula formula = {.predict = predict_biased,
                                 .numbers = &biased,
                                 .size = sizeof biased,
                                 .table = table,
                                 .table_count = experts,
                                 .pairs = {gathered->logits->pair},
                                 .pair_count = 1};
    bool good = made && out && table && added.weights && added.experts_of && experts * BIAS_ROOM <= the_case->total &&
                gate_rows(the_case, gathered, true, &scores, made);
    for (size_t row = 0; row < rows && good; row++) {
        int64_t a[TS_MOST_CHOSEN];
        double sum = 0;
        good =
            ts_read_indices(gathered->indices, the_case->scene->taken[row], chosen, a, added.experts_of + row * chosen);
        for (size_t k = row * chosen; k < (row + 1) * chosen; k++)
            sum += made[k];
        for (size_t k = row * chosen; k < (row + 1) * chosen; k++) {
            const double found = the_case->found[k] / factor;
            added.weights[k] = own->divided ? found : 0;
            made[k] = found * (own->divided ? sum : 1) - made[k];
        }
    }
    if (good) {
        fit_added(&added, made, table);
        if (predict_biased(the_case, &formula, out)) {
            ts_formula_next(the_case, &formula);
            ts_propose(the_case, "router-gate", out, experts,
                       "that the correction bias chooses the experts and is no part of their weights",
                       "the candidate's weights are those of scores to which each expert adds a number of its own, as "
                       "the bias that chooses them is");
        }
    }
    free(added.weights);
    free(added.experts_of);
    free(table);
}

/* How the reference's weights follow from logits and a choice that were captured; NULL when they do not. Scores may be
 * captured between logits and weights, and are as wide. */
static const struct ts_gate *find_gate(const struct ts_case *the_case, struct gathered *gathered, double *made,
                                       double *factor)
{
    double least = 1e-4;
    const struct ts_gate *own = NULL;
    for (size_t back = 1; back <= TS_ROUTER_BACK && !own; back++) {
        if (!(gathered->logits = logits_before(the_case, back)))
            continue;
        for (const struct ts_gate *gate = gates; gate < gates + GATES; gate++) {
            double left, one;
            if (!gate_rows(the_case, gathered, false, gate, made))
                break;
            one = fit_factor(the_case->actor->a, made, the_case->total, &left);
            if (left < least) {
                least = left;
                own = gate;
                *factor = one;
            }
        }
    }
    return own;
}

void ts_propose_gathered(struct ts_case *the_case, bool learnt)
{
    static const char *const names[] = {"softmax probabilities", "sigmoids"};
    double *made = ts_case_scratch(the_case), factor = 1;
    struct gathered gathered = {.indices = ts_find_choice(the_case), .chosen = the_case->actor->width};
    struct gating gating;
    const struct ts_gate *own;
    if (!made || !gathered.indices || !(own = find_gate(the_case, &gathered, made, &factor)))
        return;
    for (const struct ts_gate *gate = gates; gate < gates + GATES; gate++) {
        if (learnt && gate != own)
            continue;
        if (!gate_rows(the_case, &gathered, true, gate, made))
            return;
        for (size_t i = 0; i < the_case->total; i++)
            made[i] *= factor;
        gating = (struct gating){(size_t)(gathered.indices - ts_pair_at(the_case, 0)), *gate, factor};
        ts_formula_next(the_case, &(struct ts_formula){.predict = predict_gathered,
                                                       .numbers = &gating,
                                                       .size = sizeof gating,
                                                       .pairs = {gathered.logits->pair},
                                                       .pair_count = 1});
        if (gate != own)
            ts_propose(the_case, "router-gate", made, 0,
                       "how the router turns logits into weights: the scoring function, and norm_topk_prob",
                       "the candidate's weights are %s%s; the reference's are %s%s", names[gate->sigmoid],
                       gate->divided ? " divided by their sum" : "", names[own->sigmoid],
                       own->divided ? " divided by their sum" : "");
        else
            ts_propose(the_case, "router-gate", made, 0, "which experts are chosen: correction bias, groups, order",
                       "the candidate computes the weights as the reference does, but for other experts");
    }
    propose_biased(the_case, &gathered, own, factor);
}
