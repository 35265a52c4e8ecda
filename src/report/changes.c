#include "report/changes.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "report/change_groups.h"
#include "report/facts.h"

/* Groups of tensors that a sentence names. */
#define GROUPS_MOST 4
/* A rank is low when the matrix has at least so many times as many rows and columns. */
#define LOW 4
/* And nearly full when all but a tenth of them take part. */
#define NEARLY_FULL 10
/* An update that touches fewer of its elements is an edit, whatever its rank. */
#define SPREAD 0.1

const char ts_rank_method[] =
    "rank: how many singular values of candidate - reference are larger than rounding to the stored "
    "types explains, up to 128";

double ts_changed_fraction(const struct ts_delta *delta)
{
    return delta->count ? fmin((double)delta->unequal / (double)delta->count, 1) : 0;
}

/* Both sides keep it in the same type and use it to the same bit. */
static bool is_stored_alike(const struct ts_pair *pair, const struct ts_delta *delta)
{
    return strcmp(ts_view_type_name(&pair->a), ts_view_type_name(&pair->b)) == 0 &&
           delta->precision_a == delta->precision_b && !(pair->recipe && *pair->recipe);
}

bool ts_is_changed(const struct ts_comparison *comparison, size_t index)
{
    const struct ts_pair *pair = &comparison->pairing.pairs[index];
    if (pair->problem || ts_is_equal(comparison, index))
        return false;
    return comparison->judgement.verdicts[index].judged == TS_JUDGED_DIFFERS ||
           is_stored_alike(pair, &comparison->deltas[index]);
}

size_t ts_changed_count(const struct ts_comparison *comparison)
{
    size_t count = 0;
    for (size_t i = 0; i < comparison->pairing.count; i++)
        count += ts_is_changed(comparison, i);
    return count;
}

void ts_put_changed(struct ts_buffer *out, const struct ts_comparison *comparison, size_t index)
{
    const struct ts_delta *delta = &comparison->deltas[index];
    double percent = 100 * ts_changed_fraction(delta);
    char count[32];
    if (!delta->unequal && !ts_is_equal(comparison, index))
        ts_buffer_string(out, "bits only");
    else if (delta->unequal >= delta->count || percent == 0)
        ts_buffer_printf(out, "%.0f %%", percent);
    else if (percent > 99.9) /* not all of them */
        ts_buffer_string(out, "99.9 %");
    else if (percent >= 0.1)
        ts_buffer_printf(out, "%.3g %%", percent);
    else
        ts_buffer_printf(out, "%s element%s", ts_human_count(delta->unequal, count), delta->unequal == 1 ? "" : "s");
}

void ts_put_ratio(struct ts_buffer *out, double ratio)
{
    if (ratio >= 0.01 && ratio < 99.5)
        ts_buffer_printf(out, ratio < 9.95 ? "%.4f" : "%.1f", ratio);
    else
        ts_put_short(out, ratio);
}

void ts_put_rank(struct ts_buffer *out, const struct ts_change_rank *rank, bool unicode)
{
    if (!rank->known)
        ts_buffer_byte(out, '-');
    else
        ts_buffer_printf(out, "%s%u", rank->at_least ? (unicode ? "≥ " : ">= ") : "", rank->rank);
}

void ts_put_changes(struct ts_buffer *out, const struct ts_comparison *comparison)
{
    const struct ts_pairing *pairing = &comparison->pairing;
    size_t changed = ts_changed_count(comparison), equal = 0, groups;
    bool *marked, most;
    struct ts_buffer text;
    if (!changed)
        return;
    for (size_t i = 0; i < pairing->count; i++)
        equal += ts_is_equal(comparison, i);
    if (changed == pairing->count) {
        if (changed <= 2)
            ts_buffer_string(out, changed == 1 ? "the only tensor changed" : "both tensors changed");
        else
            ts_buffer_printf(out, "all %zu tensors changed", changed);
        return;
    }
    ts_buffer_printf(out, "%zu of %zu tensors changed", changed, pairing->count);
    marked = calloc(pairing->count + 1, sizeof *marked);
    if (!marked) {
        out->failed = true;
        return;
    }
    /* of most of them it is shorter to say which did not */
    most = changed > pairing->count / 2 && changed + equal == pairing->count;
    for (size_t i = 0; i < pairing->count; i++)
        marked[i] = ts_is_changed(comparison, i) != most;
    ts_buffer_init(&text, (size_t)16 << 20);
    groups = ts_put_groups(&text, pairing->pairs, marked, pairing->count, GROUPS_MOST);
    if (groups && text.data)
        ts_buffer_printf(out, "%s%s",
                         most          ? ", all but "
                         : groups > 1  ? ": "
                         : changed > 1 ? ", all of them in "
                                       : ": ",
                         text.data);
    ts_buffer_release(&text);
    free(marked);
}

/* Matrices that changed, by what their ranks say. */
struct rank_tally {
    size_t matrices, low, full, none; /* none: nothing above the floor */
    unsigned least_low, most_low, usual_low, least_full;
    size_t usual_count;
};

static struct rank_tally tally_ranks(const struct ts_comparison *comparison)
{
    struct rank_tally tally = {.least_low = UINT32_MAX, .least_full = UINT32_MAX};
    size_t votes[TS_RANK_MOST + 1] = {0};
    for (size_t i = 0; i < comparison->pairing.count; i++) {
        const struct ts_change_rank *rank = &comparison->ranks[i];
        uint64_t side = rank->rows < rank->columns ? rank->rows : rank->columns;
        if (!rank->known || !ts_is_changed(comparison, i))
            continue;
        tally.matrices++;
        if (!rank->rank) {
            tally.none++;
        } else if (rank->at_least || (uint64_t)rank->rank * NEARLY_FULL >= side * (NEARLY_FULL - 1)) {
            tally.full++;
            tally.least_full = rank->rank < tally.least_full ? rank->rank : tally.least_full;
        } else if ((uint64_t)rank->rank * LOW <= side && ts_changed_fraction(&comparison->deltas[i]) >= SPREAD) {
            tally.low++;
            tally.least_low = rank->rank < tally.least_low ? rank->rank : tally.least_low;
            tally.most_low = rank->rank > tally.most_low ? rank->rank : tally.most_low;
            votes[rank->rank]++;
        }
    }
    for (unsigned r = 0; r <= TS_RANK_MOST; r++)
        if (votes[r] > tally.usual_count) {
            tally.usual_low = r;
            tally.usual_count = votes[r];
        }
    return tally;
}

/* "all 12 matrices that changed", "10 of the 12 matrices that changed" */
static void put_matrices(struct ts_buffer *out, size_t count, size_t all)
{
    if (all == 1)
        ts_buffer_string(out, "the one matrix that changed");
    else if (count == all && all == 2)
        ts_buffer_string(out, "both matrices that changed");
    else if (count == all)
        ts_buffer_printf(out, "all %zu matrices that changed", all);
    else
        ts_buffer_printf(out, "%zu of the %zu matrices that changed", count, all);
}

void ts_put_ranks(struct ts_buffer *out, const struct ts_comparison *comparison)
{
    struct rank_tally tally;
    size_t before = out->size;
    if (!comparison->ranks)
        return;
    tally = tally_ranks(comparison);
    if (tally.low && tally.least_low == tally.most_low) {
        ts_buffer_printf(out, "the change has rank %u in ", tally.most_low);
        put_matrices(out, tally.low, tally.matrices);
        ts_buffer_printf(out,
                         tally.low == tally.matrices
                             ? ": it looks like a merged LoRA of rank %u (its alpha cannot be recovered)"
                             : ", which looks like a merged LoRA of rank %u",
                         tally.most_low);
    } else if (tally.low) {
        ts_buffer_printf(out, "the change has a low rank, %u to %u, in ", tally.least_low, tally.most_low);
        put_matrices(out, tally.low, tally.matrices);
        if (tally.usual_count > 1)
            ts_buffer_printf(out, ", mostly %u", tally.usual_low);
        ts_buffer_printf(out, ", which looks like a merged LoRA of rank %u or more", tally.most_low);
    }
    if (tally.full) {
        ts_buffer_printf(out, "%sthe change has full rank (at least %u) in ", out->size > before ? "; " : "",
                         tally.least_full);
        put_matrices(out, tally.full, tally.matrices);
        ts_buffer_printf(out, ": %s trained or replaced entirely", tally.full == 1 ? "it was" : "they were");
    }
    if (tally.none) {
        ts_buffer_printf(out, "%sthe change is no larger than rounding in ", out->size > before ? "; " : "");
        put_matrices(out, tally.none, tally.matrices);
    }
}

enum ts_sort ts_sort_of(const struct ts_comparison *comparison, const struct ts_report_options *options)
{
    if (options->sort != TS_SORT_DEFAULT)
        return options->sort;
    return comparison->judgement.weights ? TS_SORT_CHANGED : options->top ? TS_SORT_ERROR : TS_SORT_ORDER;
}

struct ranked {
    const char *name;
    double first, second; /* larger ones come first */
    size_t index;
};

static int by_rank(const void *a, const void *b)
{
    const struct ranked *left = a, *right = b;
    int order = left->name ? ts_natural_compare(left->name, right->name) : 0;
    if (order)
        return order;
    if (left->first != right->first)
        return left->first > right->first ? -1 : 1;
    if (left->second != right->second)
        return left->second > right->second ? -1 : 1;
    return left->index < right->index ? -1 : left->index > right->index;
}

static struct ranked ranked_as(const struct ts_comparison *comparison, size_t i, enum ts_sort sort)
{
    const struct ts_pair *pair = &comparison->pairing.pairs[i];
    struct ranked ranked = {.index = i};
    switch (sort) {
    case TS_SORT_DEFAULT:
    case TS_SORT_ORDER:
        break;
    case TS_SORT_NAME:
        ranked.name = pair->name;
        break;
    case TS_SORT_ERROR:
        ranked.first = ts_badness(comparison, i);
        break;
    case TS_SORT_SIZE:
        ranked.first = (double)pair->a.count;
        break;
    case TS_SORT_CHANGED: /* in whole percents: of weights that were trained each has another 99.99 % */
        ranked.first = pair->problem ? -1 : ceil(100 * ts_changed_fraction(&comparison->deltas[i]) - 1e-9);
        ranked.second = ts_badness(comparison, i);
        break;
    }
    return ranked;
}

size_t *ts_sorted_pairs(const struct ts_comparison *comparison, unsigned only, enum ts_sort sort, size_t most,
                        size_t *count)
{
    struct ranked *ranked = calloc(comparison->pairing.count + 1, sizeof *ranked);
    size_t *result = calloc(comparison->pairing.count + 1, sizeof *result), used = 0;
    *count = 0;
    if (!ranked || !result) {
        free(ranked);
        free(result);
        return NULL;
    }
    for (size_t i = 0; i < comparison->pairing.count; i++)
        if (!only || only & 1u << comparison->judgement.verdicts[i].judged)
            ranked[used++] = ranked_as(comparison, i, sort);
    qsort(ranked, used, sizeof *ranked, by_rank);
    *count = used < most ? used : most;
    for (size_t i = 0; i < *count; i++)
        result[i] = ranked[i].index;
    free(ranked);
    return result;
}
