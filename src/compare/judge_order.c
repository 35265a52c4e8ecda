/* Owns the verdict about rows that experts gathered (gathered.h): they are matched by what they hold, and judged by
 * what is left of them. */
#include <stdlib.h>

#include "base/ordered.h"
#include "compare/gathered.h"
#include "compare/judge_ties.h"
#include "tensor/layer.h"

#define LEAST_SHARE 1e-12 /* of a row's energy: one may have no error */
#define LOST        0.25  /* a row of which more is left may be another one, */
#define LOST_TIMES  16    /* if most rows are so much better */

struct matched {
    double left, energy;
    const float *wanted, *found;
};

/* The rows that were found, those that err most for their size first. */
struct order {
    size_t width;
    struct matched *rows;
    size_t first, end;   /* those that count: all but the worst ones, which tokens set aside may have */
    double left, energy; /* of those */
};

static int by_share(const void *a, const void *b)
{
    const struct matched *one = a, *other = b;
    double left = one->left * other->energy, right = other->left * one->energy;
    return left > right ? -1 : left < right;
}

/* excused: rows that may have no match, or a bad one. */
static void order_rows(const struct ts_row_match *match, size_t excused, struct order *order)
{
    const size_t width = match->width, lost = match->count - match->found - match->blank;
    for (size_t row = 0; row < match->count; row++) {
        const struct ts_row_matched *one = &match->rows[row];
        if (one->from != SIZE_MAX)
            order->rows[order->end++] = (struct matched){.left = one->left,
                                                         .energy = one->energy,
                                                         .wanted = match->a + one->from * width,
                                                         .found = match->b + row * width};
    }
    qsort(order->rows, order->end, sizeof *order->rows, by_share);
    order->width = width;
    order->first = excused > lost ? excused - lost : 0;
    for (size_t i = order->first; i < order->end; i++) {
        order->left += order->rows[i].left;
        order->energy += order->rows[i].energy;
    }
}

static double share_of(const struct matched *row)
{
    return row->energy > 0 && row->left > 0 ? row->left / row->energy : LEAST_SHARE;
}

/* How far the rows' errors lie from each other, in the logarithm, about the median. They are in the order of their
 * shares. */
static double unevenness(const struct order *order)
{
    const double median = share_of(&order->rows[(order->first + order->end) / 2]);
    double squares = 0;
    for (size_t i = order->first; i < order->end; i++)
        squares += log(share_of(&order->rows[i]) / median) * log(share_of(&order->rows[i]) / median);
    return sqrt(squares / (double)(order->end - order->first));
}

/* Whether the error follows the rows, is the same in all of them or spread evenly: what says more than its size. */
static void measure_matched(const struct order *order, struct ts_structure *structure)
{
    const double rows = (double)(order->end - order->first);
    double product = 0, common = 0, common_a = 0;
    for (size_t channel = 0; channel < order->width; channel++) {
        double errors = 0, sizes = 0;
        for (size_t i = order->first; i < order->end; i++) {
            double a = (double)order->rows[i].wanted[channel], d = (double)order->rows[i].found[channel] - a;
            errors += d;
            sizes += a;
            product += a * d;
        }
        common += errors * errors;
        common_a += sizes * sizes;
    }
    if (!(order->left > 0) || !(order->energy > 0))
        return;
    common_a /= rows * order->energy;
    *structure = (struct ts_structure){.known = true,
                                       .rows = order->end - order->first,
                                       .least_row = 1,
                                       .uneven = unevenness(order),
                                       .calm = sqrt(share_of(&order->rows[(order->first + order->end) / 2])),
                                       .alike = common_a,
                                       .offset = ts_offset_share(common / (rows * order->left), common_a),
                                       .slope = product / sqrt(order->left * order->energy)};
}

/* The router whose experts gathered the rows of pair i, k for each token; false where its logits were not captured. */
static bool open_router(const struct ts_judge *state, size_t i, size_t k, struct ts_router *router)
{
    for (size_t at = i; at-- > 0 && ts_same_layer(state->pairs[at].name, state->pairs[i].name);) {
        const size_t experts = ts_judge_is_router(state->pairs[at].name) ? ts_router_width(state, at) : 0;
        if (k < experts)
            return ts_router_open(state, at, experts, 1u << (k - 1), false, router);
    }
    return false;
}

size_t ts_judge_excused_rows(const struct ts_judge *state, size_t i)
{
    const size_t rows = ts_row_match_count(&state->pairs[i]);
    const size_t tokens = state->scene.taken_count, k = state->scene.tokens ? rows / state->scene.tokens : 0;
    struct ts_router router = {0};
    const bool routed =
        k >= 1 && k <= TS_MOST_KEPT && rows % state->scene.tokens == 0 && open_router(state, i, k, &router);
    size_t excused = 0;
    for (size_t row = 0; row < tokens; row++)
        excused += state->scene.aside[row] || (routed && router.tied[row] >> (k - 1) & 1);
    ts_router_release(&router);
    return tokens ? (excused * rows + tokens - 1) / tokens : 0;
}

/* What is left of a vector's error in the order of its numbers, relative: each slot has one, the weight of its expert.
 */
static double left_in_order(const struct ts_pair *pair)
{
    const size_t count = (size_t)pair->a.count;
    double *a = malloc(count * sizeof *a), *b = malloc(count * sizeof *b), left = 0, energy = 0;
    struct ts_error ignored;
    if (a && b && ts_view_read_f64(&pair->a, 0, count, a, &ignored) == TS_OK &&
        ts_view_read_f64(&pair->b, 0, count, b, &ignored) == TS_OK) {
        qsort(a, count, sizeof *a, ts_by_value);
        qsort(b, count, sizeof *b, ts_by_value);
        for (size_t k = 0; k < count; k++) {
            left += (b[k] - a[k]) * (b[k] - a[k]);
            energy += a[k] * a[k];
        }
    }
    free(a);
    free(b);
    return energy > 0 ? sqrt(left / energy) : (double)INFINITY;
}

/* In a layer whose order was captured, what has as many rows is in that order. */
static bool is_in_captured_order(const struct ts_judge *state, size_t i)
{
    const struct ts_pair *order = &state->pairs[state->gathered], *pair = &state->pairs[i];
    return state->gathered && ts_type_info(pair->a.tensor->type)->components == 1 &&
           ts_type_info(pair->b.tensor->type)->components == 1 && pair->a.rank && pair->a.shape[0] == order->a.count &&
           pair->b.rank == pair->a.rank && pair->b.shape[0] == order->a.count && ts_same_layer(order->name, pair->name);
}

/* What is left of the rows that count, relative. */
static double left_of_rows(const struct order *order)
{
    return order->energy > 0 ? sqrt(order->left / order->energy) : order->left > 0 ? (double)INFINITY : 0;
}

/* Rows in an order that was captured are those of the same token, which leaves little to find. Too much may be left of
 * as many as are excused. */
static bool match_by_order(const struct ts_judge *state, size_t i, size_t excused, bool across,
                           struct ts_row_match *match, struct order *order)
{
    const struct ts_pair *captured = &state->pairs[state->gathered];
    const size_t count = (size_t)captured->a.count;
    size_t *tokens = malloc(2 * count * sizeof *tokens);
    bool good = tokens && count <= TS_MOST_GATHERED * state->scene.tokens &&
                ts_row_match_count(&state->pairs[i]) == count &&
                ts_gathered_tokens(captured, false, state->scene.tokens, across, tokens) &&
                ts_gathered_tokens(captured, true, state->scene.tokens, across, tokens + count) &&
                ts_row_match_within(match, &state->pairs[i], tokens, tokens + count) &&
                (order->rows = malloc(count * sizeof *order->rows));
    free(tokens);
    if (!good)
        return false;
    order_rows(match, excused, order);
    return order->first < order->end && isfinite(order->left) && isfinite(order->energy) &&
           share_of(&order->rows[order->first]) <=
               fmax(LOST, LOST_TIMES * share_of(&order->rows[(order->first + order->end) / 2]));
}

/* By the order that was captured, else by what the rows hold. */
static bool match_somehow(const struct ts_judge *state, size_t i, bool in_order, struct ts_row_match *match,
                          struct order *order)
{
    const size_t excused = ts_judge_excused_rows(state, i);
    for (int across = 0; across < 2 && in_order; across++) {
        if (match_by_order(state, i, excused, across, match, order))
            return true;
        free(order->rows);
        *order = (struct order){0};
        ts_row_match_release(match);
    }
    if (!ts_gathered_match(match, &state->pairs[i], excused) ||
        !(order->rows = malloc(match->count * sizeof *order->rows)))
        return false;
    order_rows(match, excused, order);
    return order->first < order->end;
}

bool ts_judge_reordered(struct ts_judge *state, size_t i, double *error)
{
    const struct ts_delta *delta = &state->deltas[i];
    struct ts_row_match match = {0};
    struct order order = {0};
    double left = 0;
    bool found = false;
    const bool in_order = is_in_captured_order(state, i);
    if (delta->exact || !delta->unequal || delta->non_finite_mismatch ||
        !(delta->rel_l2 > 8 * ts_judge_rounding(delta)) || (!in_order && !ts_is_gathered(state->pairs[i].name)))
        return false;
    if (in_order && state->pairs[i].a.count == state->pairs[i].a.shape[0]) {
        *error = left_in_order(&state->pairs[i]);
        if (!(*error < TS_GATHERED_LEAVES * delta->rel_l2))
            return false;
        state->out->verdicts[i].why = ts_judge_say(state->out,
                                                   "its numbers are in a different order: experts gather tokens as "
                                                   "they come; matched up, their error is %.2g",
                                                   *error);
        return true;
    }
    if (match_somehow(state, i, in_order, &match, &order)) {
        left = left_of_rows(&order);
        found = match.moved >= 2 && left < TS_GATHERED_LEAVES * delta->rel_l2;
        if (found)
            measure_matched(&order, &state->structures[i]);
    }
    free(order.rows);
    ts_row_match_release(&match);
    if (!found)
        return false;
    *error = left;
    state->out->verdicts[i].why = ts_judge_say(
        state->out,
        "%zu of %zu rows in a different order: experts gather tokens as they come; matched up, their error is %.2g",
        match.moved, match.count, left);
    return true;
}
