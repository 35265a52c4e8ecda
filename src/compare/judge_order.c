/* Owns the rows that experts gather. A mixture of experts collects the tokens of each expert by a sort or a scatter
 * that keeps no order, so that two honest runs hold the same rows in another one. Inside the module of the experts rows
 * are therefore matched by what they hold; what comes out of it is in the order of the tokens again and is judged as
 * ever. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compare/gathered.h"
#include "compare/judge_state.h"

#define MOST_NUMBERS ((uint64_t)1 << 22)
#define SIGNS        16    /* numbers that a row is known by */
#define REACH        64    /* rows looked at on either side of the place where a row's key falls */
#define CLOSE        0.25  /* of a row's energy may be left: weights of three bits leave less */
#define LEAST_SHARE  1e-12 /* of a row's energy: one may have no error */
#define MATCHED      0.5   /* the order explains the error when it leaves less than this of it */
#define LOST_MOST    2     /* one row in so many may be found nowhere */

/* Inside the module of the experts: "mlp.experts.act_fn", not "mlp.experts" itself, which holds what comes out. */
static bool is_inside_experts(const char *name)
{
    for (const char *at = name; (at = strstr(at, "experts.")); at++)
        if ((at == name || at[-1] == '.' || at[-1] == '_' || at[-1] == '/') && !strstr(name, "shared_expert"))
            return true;
    return false;
}

struct keyed {
    double key;
    size_t row;
};

struct gathered {
    size_t rows, width, signs;
    float *a, *b;
    struct keyed *order; /* the reference's rows by key */
    bool *used;          /* per place in that order */
    double typical;      /* energy of a row */
};

static int by_key(const void *a, const void *b)
{
    double left = ((const struct keyed *)a)->key, right = ((const struct keyed *)b)->key;
    return left < right ? -1 : left > right;
}

static size_t sign_at(const struct gathered *gathered, size_t k)
{
    return gathered->signs < 2 ? 0 : k * (gathered->width - 1) / (gathered->signs - 1);
}

static double key_of(const struct gathered *gathered, const float *row)
{
    static const double weights[] = {1, -0.83, 0.71, -1.13, 0.91, 1.07, -0.97};
    double key = 0;
    for (size_t k = 0; k < gathered->signs; k++)
        key += weights[k % (sizeof weights / sizeof *weights)] * (double)row[sign_at(gathered, k)];
    return key;
}

static double distance(const float *a, const float *b, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += ((double)b[i] - (double)a[i]) * ((double)b[i] - (double)a[i]);
    return sum;
}

static double size_of(const float *row, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)row[i] * (double)row[i];
    return sum;
}

static bool open_gathered(struct gathered *gathered, const struct ts_pair *pair)
{
    const struct ts_view *view = &pair->a;
    struct ts_error ignored;
    *gathered = (struct gathered){0};
    if (view->rank < 2 || !view->count || view->count > MOST_NUMBERS || view->count != pair->b.count)
        return false;
    gathered->width = (size_t)view->shape[view->rank - 1];
    gathered->rows = (size_t)(view->count / gathered->width);
    gathered->signs = gathered->width < SIGNS ? gathered->width : SIGNS;
    if (gathered->rows < 2 || gathered->width < 4)
        return false;
    gathered->a = malloc((size_t)view->count * sizeof *gathered->a);
    gathered->b = malloc((size_t)view->count * sizeof *gathered->b);
    gathered->order = malloc(gathered->rows * sizeof *gathered->order);
    gathered->used = calloc(gathered->rows, sizeof *gathered->used);
    if (!gathered->a || !gathered->b || !gathered->order || !gathered->used ||
        ts_view_read_f32(&pair->a, 0, (size_t)view->count, gathered->a, &ignored) != TS_OK ||
        ts_view_read_f32(&pair->b, 0, (size_t)view->count, gathered->b, &ignored) != TS_OK)
        return false;
    for (size_t row = 0; row < gathered->rows; row++) {
        gathered->order[row] = (struct keyed){key_of(gathered, gathered->a + row * gathered->width), row};
        if (!isfinite(gathered->order[row].key))
            return false;
    }
    gathered->typical = size_of(gathered->a, (size_t)view->count) / (double)gathered->rows;
    qsort(gathered->order, gathered->rows, sizeof *gathered->order, by_key);
    return isfinite(gathered->typical);
}

static void close_gathered(struct gathered *gathered)
{
    free(gathered->a);
    free(gathered->b);
    free(gathered->order);
    free(gathered->used);
}

/* The place in the order of the nearest row that nobody took yet, SIZE_MAX when none is near. */
static size_t nearest(const struct gathered *gathered, const float *row)
{
    double key = key_of(gathered, row), least = (double)INFINITY;
    size_t low = 0, high = gathered->rows, best = SIZE_MAX;
    float signs[SIGNS], others[SIGNS];
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (gathered->order[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t k = 0; k < gathered->signs; k++)
        signs[k] = row[sign_at(gathered, k)];
    high = low + REACH < gathered->rows ? low + REACH : gathered->rows;
    for (size_t at = low > REACH ? low - REACH : 0; at < high; at++) {
        const float *other = gathered->a + gathered->order[at].row * gathered->width;
        double now;
        if (gathered->used[at])
            continue;
        for (size_t k = 0; k < gathered->signs; k++)
            others[k] = other[sign_at(gathered, k)];
        now = distance(others, signs, gathered->signs);
        if (now < least) {
            least = now;
            best = at;
        }
    }
    return best;
}

struct order {
    size_t moved, lost;
    size_t first, end;   /* of the matched ones, those that count */
    double left, energy; /* of the rows that were matched, but for the worst ones that tokens set aside may have */
};

struct matched {
    double left, energy;
    const float *wanted, *found;
};

/* Those that err most for their size first. */
static int by_share(const void *a, const void *b)
{
    const struct matched *one = a, *other = b;
    double left = one->left * other->energy, right = other->left * one->energy;
    return left > right ? -1 : left < right;
}

/* excused: rows that may have no match, or a bad one. from: which row of the reference each is, or NULL. */
static void match_rows(struct gathered *gathered, size_t excused, struct matched *matched, size_t *from,
                       struct order *order)
{
    size_t count = 0;
    *order = (struct order){0};
    for (size_t row = 0; row < gathered->rows; row++) {
        const float *found = gathered->b + row * gathered->width, *wanted;
        size_t at = nearest(gathered, found);
        double left, energy;
        wanted = at == SIZE_MAX ? NULL : gathered->a + gathered->order[at].row * gathered->width;
        left = wanted ? distance(wanted, found, gathered->width) : (double)INFINITY;
        energy = wanted ? size_of(wanted, gathered->width) : 0;
        if (!(left <= CLOSE * energy + 1e-3 * gathered->typical)) {
            order->lost++;
            if (from)
                from[row] = SIZE_MAX;
            continue;
        }
        gathered->used[at] = true;
        if (from)
            from[row] = gathered->order[at].row;
        order->moved += gathered->order[at].row != row;
        matched[count++] = (struct matched){left, energy, wanted, found};
    }
    qsort(matched, count, sizeof *matched, by_share);
    order->first = excused > order->lost ? excused - order->lost : 0;
    order->end = count;
    for (size_t i = order->first; i < count; i++) {
        order->left += matched[i].left;
        order->energy += matched[i].energy;
    }
}

static double share_of(const struct matched *row)
{
    return row->energy > 0 && row->left > 0 ? row->left / row->energy : LEAST_SHARE;
}

/* How far the rows' errors lie from each other, in the logarithm, about the median. They are in the order of their
 * shares. */
static double unevenness(const struct matched *matched, const struct order *order)
{
    const double median = share_of(&matched[(order->first + order->end) / 2]);
    double squares = 0;
    for (size_t i = order->first; i < order->end; i++)
        squares += log(share_of(&matched[i]) / median) * log(share_of(&matched[i]) / median);
    return sqrt(squares / (double)(order->end - order->first));
}

/* Whether the error follows the rows, is the same in all of them or spread evenly: what says more than its size. */
static void measure_matched(const struct gathered *gathered, const struct matched *matched, const struct order *order,
                            struct ts_structure *structure)
{
    const double rows = (double)(order->end - order->first);
    double product = 0, common = 0, common_a = 0;
    for (size_t channel = 0; channel < gathered->width; channel++) {
        double errors = 0, sizes = 0;
        for (size_t i = order->first; i < order->end; i++) {
            double a = (double)matched[i].wanted[channel], d = (double)matched[i].found[channel] - a;
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
                                       .uneven = unevenness(matched, order),
                                       .alike = common_a,
                                       .offset = ts_offset_share(common / (rows * order->left), common_a),
                                       .slope = product / sqrt(order->left * order->energy)};
}

/* Rows of the tokens that are set aside: each token has as many as another. */
static size_t excused_rows(const struct ts_judge *state, size_t rows)
{
    size_t aside = 0;
    for (size_t row = 0; row < state->scene.taken_count; row++)
        aside += state->scene.aside[row];
    return state->scene.taken_count ? (aside * rows + state->scene.taken_count - 1) / state->scene.taken_count : 0;
}

bool ts_judge_reordered(struct ts_judge *state, size_t i, double *error)
{
    const struct ts_pair *pair = &state->pairs[i];
    const struct ts_delta *delta = &state->deltas[i];
    struct gathered gathered;
    struct order order = {0};
    struct matched *matched = NULL;
    double left = 0;
    bool found = false;
    if (pair->problem || delta->exact || !delta->unequal || delta->non_finite_mismatch ||
        !is_inside_experts(pair->name) || !(delta->rel_l2 > 8 * ts_judge_rounding(delta)))
        return false;
    if (open_gathered(&gathered, pair) && (matched = malloc(gathered.rows * sizeof *matched))) {
        const size_t excused = excused_rows(state, gathered.rows);
        match_rows(&gathered, excused, matched, NULL, &order);
        left = order.energy > 0 ? sqrt(order.left / order.energy) : 0;
        found = order.moved >= 2 && left < MATCHED * delta->rel_l2 && order.lost <= excused;
        if (found)
            measure_matched(&gathered, matched, &order, &state->structures[i]);
    }
    free(matched);
    close_gathered(&gathered);
    if (!found)
        return false;
    *error = left;
    state->out->verdicts[i].why = ts_judge_say(
        state->out, "%zu of %zu rows in another order: experts gather tokens as they come; matched, they err by %.2g",
        order.moved, gathered.rows, left);
    return true;
}

size_t *ts_gathered_order(const struct ts_pair *pair, const struct ts_delta *delta)
{
    struct gathered gathered;
    struct order order = {0};
    struct matched *matched = NULL;
    size_t *from = NULL;
    bool found = false;
    if (pair->problem || !is_inside_experts(pair->name))
        return NULL;
    if (open_gathered(&gathered, pair) && (matched = malloc(gathered.rows * sizeof *matched)) &&
        (from = malloc(gathered.rows * sizeof *from))) {
        match_rows(&gathered, 0, matched, from, &order);
        found = order.moved >= 2 && order.lost * LOST_MOST <= gathered.rows &&
                sqrt(order.left / order.energy) < MATCHED * delta->rel_l2;
    }
    free(matched);
    close_gathered(&gathered);
    if (!found)
        free(from);
    return found ? from : NULL;
}
