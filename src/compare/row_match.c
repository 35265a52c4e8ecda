/* Owns the matching of rows by content. The reference's rows are sorted by a key, a sum of their signs with mixed
 * weights. Keys differ by no more than the signs do, times the length of the weights, so the search goes outwards from
 * the place where the wanted key falls and ends where no nearer row can come. */
#include "compare/row_match.h"

#include <math.h>
#include <stdlib.h>

#define MOST_NUMBERS ((uint64_t)1 << 22)
#define LEAST_WIDTH  4
#define LEAST_LOOKS  ((size_t)192)
#define MOST_LOOKS   ((size_t)1 << 22) /* at all rows together, where a row gets more than the least */
#define STAYS        0.5               /* a row that fits nearly as well where it is, stays */

struct ts_row_key {
    double key;
    size_t row;
};

size_t ts_row_sign_at(size_t k, size_t signs, size_t width)
{
    return signs < 2 ? 0 : k * (width - 1) / (signs - 1);
}

static double weight_of(size_t k)
{
    static const double weights[] = {1, -0.83, 0.71, -1.13, 0.91, 1.07, -0.97};
    return weights[k % (sizeof weights / sizeof *weights)];
}

static double key_of(const double *signs, size_t count)
{
    double key = 0;
    for (size_t k = 0; k < count; k++)
        key += weight_of(k) * signs[k];
    return isfinite(key) ? key : 0;
}

static int by_key(const void *a, const void *b)
{
    const struct ts_row_key *one = a, *other = b;
    if (one->key != other->key)
        return one->key < other->key ? -1 : 1;
    return one->row < other->row ? -1 : one->row > other->row;
}

bool ts_row_book_open(struct ts_row_book *book, const double *numbers, size_t count, size_t signs)
{
    *book = (struct ts_row_book){.count = count, .signs = signs, .numbers = numbers};
    book->order = malloc(count * sizeof *book->order);
    for (size_t row = 0; row < count && book->order; row++)
        book->order[row] = (struct ts_row_key){key_of(numbers + row * signs, signs), row};
    for (size_t k = 0; k < signs; k++)
        book->spread += weight_of(k) * weight_of(k);
    if (book->order)
        qsort(book->order, count, sizeof *book->order, by_key);
    return book->order != NULL;
}

void ts_row_book_release(struct ts_row_book *book)
{
    free(book->order);
}

/* Anything from `enough` on is as good as that. */
static double distance(const struct ts_row_book *book, const double *signs, size_t row, double enough)
{
    const double *other = book->numbers + row * book->signs;
    double sum = 0;
    for (size_t k = 0; k < book->signs && !(sum > enough); k++)
        sum += (signs[k] - other[k]) * (signs[k] - other[k]);
    return sum;
}

double ts_row_book_distance(const struct ts_row_book *book, const double *signs, size_t row)
{
    return distance(book, signs, row, (double)INFINITY);
}

static size_t place_of(const struct ts_row_book *book, double key)
{
    size_t low = 0, high = book->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (book->order[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct ts_row_found ts_row_book_find(const struct ts_row_book *book, const double *signs, double limit, size_t own,
                                     size_t before, const bool *taken)
{
    const double key = key_of(signs, book->signs);
    const size_t next = before == SIZE_MAX ? SIZE_MAX : before + 1;
    struct ts_row_found found = {.row = SIZE_MAX};
    double best = limit, second = (double)INFINITY;
    size_t up = place_of(book, key), down = up, looks = MOST_LOOKS / book->count;
    for (looks = looks > LEAST_LOOKS ? looks : LEAST_LOOKS; looks && (down || up < book->count); looks--) {
        const bool upward = !down || (up < book->count && book->order[up].key - key <= key - book->order[down - 1].key);
        const struct ts_row_key *at = &book->order[upward ? up++ : --down];
        double now;
        if ((at->key - key) * (at->key - key) * STAYS > book->spread * best)
            break;
        if (taken && taken[at->row])
            continue;
        now = distance(book, signs, at->row, best / STAYS);
        if (now < best || (now == best && at->row < found.row && found.row != SIZE_MAX)) {
            second = found.row == SIZE_MAX ? second : best;
            best = now;
            found.row = at->row;
        } else if (now < second) {
            second = now;
        }
    }
    if (found.row == SIZE_MAX)
        return found;
    found.ambiguous = STAYS * second <= best;
    if (own < book->count && !(taken && taken[own]) && STAYS * ts_row_book_distance(book, signs, own) <= best)
        found.row = own;
    else if (next < book->count && !(taken && taken[next]) && STAYS * ts_row_book_distance(book, signs, next) <= best)
        found.row = next;
    return found;
}

static double left_of(const float *a, const float *b, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += ((double)b[i] - (double)a[i]) * ((double)b[i] - (double)a[i]);
    return sum;
}

static double energy_of(const float *row, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)row[i] * (double)row[i];
    return sum;
}

static void read_signs(const float *row, size_t width, size_t signs, double *out)
{
    for (size_t k = 0; k < signs; k++) {
        const double value = (double)row[ts_row_sign_at(k, signs, width)];
        out[k] = isfinite(value) ? value : 0;
    }
}

/* False as soon as too many are lost: rows that have nothing to do with the reference are the dearest to look for. */
static bool match_rows(struct ts_row_match *match, const struct ts_row_book *book, const struct ts_row_rule *rule,
                       bool *taken)
{
    const size_t width = match->width;
    const double typical = energy_of(match->a, match->count * width) / (double)match->count;
    double signs[TS_ROW_SIGNS], left, energy;
    for (size_t row = 0; row < match->count && row - match->found <= rule->lost; row++) {
        const float *own = match->b + row * width, *wanted;
        struct ts_row_found found;
        read_signs(own, width, book->signs, signs);
        found = ts_row_book_find(book, signs, (double)INFINITY, row, row ? match->rows[row - 1].from : SIZE_MAX,
                                 rule->once ? taken : NULL);
        match->rows[row] = (struct ts_row_matched){.from = SIZE_MAX};
        if (found.row == SIZE_MAX)
            continue;
        wanted = match->a + found.row * width;
        left = left_of(wanted, own, width);
        energy = energy_of(wanted, width);
        if (!(left <= rule->close * energy + rule->floor * typical))
            continue;
        match->rows[row] = (struct ts_row_matched){found.row, found.ambiguous, left, energy};
        taken[found.row] = true;
        match->found++;
        match->moved += found.row != row;
    }
    return match->count - match->found <= rule->lost;
}

size_t ts_row_match_count(const struct ts_pair *pair)
{
    const struct ts_view *view = &pair->a;
    const uint64_t width = view->rank < 2 ? 0 : view->shape[view->rank - 1];
    if (pair->problem || width < LEAST_WIDTH || view->count < 2 * width || view->count > MOST_NUMBERS ||
        pair->b.count != view->count || ts_type_info(view->tensor->type)->components != 1)
        return 0;
    return (size_t)(view->count / width);
}

static bool read_rows(struct ts_row_match *match, const struct ts_pair *pair)
{
    const struct ts_view *view = &pair->a;
    const size_t count = (size_t)view->count;
    struct ts_error ignored;
    match->count = ts_row_match_count(pair);
    if (!match->count)
        return false;
    match->width = count / match->count;
    match->a = malloc(count * sizeof *match->a);
    match->b = malloc(count * sizeof *match->b);
    match->rows = malloc(match->count * sizeof *match->rows);
    return match->a && match->b && match->rows && ts_view_read_f32(view, 0, count, match->a, &ignored) == TS_OK &&
           ts_view_read_f32(&pair->b, 0, count, match->b, &ignored) == TS_OK;
}

bool ts_row_match_open(struct ts_row_match *match, const struct ts_pair *pair, const struct ts_row_rule *rule)
{
    struct ts_row_book book = {0};
    double *signs = NULL;
    bool *taken = NULL, good;
    size_t known;
    *match = (struct ts_row_match){0};
    if (!read_rows(match, pair))
        return false;
    known = match->width < TS_ROW_SIGNS ? match->width : TS_ROW_SIGNS;
    signs = malloc(match->count * known * sizeof *signs);
    taken = calloc(match->count, sizeof *taken);
    good = signs && taken;
    for (size_t row = 0; row < match->count && good; row++)
        read_signs(match->a + row * match->width, match->width, known, signs + row * known);
    good = good && ts_row_book_open(&book, signs, match->count, known) && match_rows(match, &book, rule, taken);
    ts_row_book_release(&book);
    free(signs);
    free(taken);
    return good;
}

struct grouped {
    size_t group, row;
};

static int by_group(const void *a, const void *b)
{
    const struct grouped *one = a, *other = b;
    if (one->group != other->group)
        return one->group < other->group ? -1 : 1;
    return one->row < other->row ? -1 : one->row > other->row;
}

/* The rows of one group, `count` on each side: each takes the nearest that those before it left. To NaN nothing is
 * near.
 */
static void match_group(struct ts_row_match *match, struct grouped *wanted, const struct grouped *rows, size_t count)
{
    const size_t width = match->width;
    size_t taken = 0, blank = 0, blank_wanted = 0; /* of those that are wanted, the ones from `taken` on are free */
    for (size_t k = 0; k < count; k++) {
        struct ts_row_matched *one = &match->rows[rows[k].row];
        double least = (double)INFINITY;
        size_t best = SIZE_MAX;
        *one = (struct ts_row_matched){.from = SIZE_MAX};
        for (size_t j = taken; j < count; j++) {
            const double left = left_of(match->a + wanted[j].row * width, match->b + rows[k].row * width, width);
            if (left < least) {
                least = left;
                best = j;
            }
        }
        if (best == SIZE_MAX) {
            blank += isfinite(energy_of(match->b + rows[k].row * width, width)) ? 0 : 1;
            continue;
        }
        one->from = wanted[best].row;
        one->left = least;
        one->energy = energy_of(match->a + one->from * width, width);
        wanted[best].row = wanted[taken++].row;
        match->found++;
        match->moved += one->from != rows[k].row;
    }
    for (size_t j = taken; j < count; j++)
        blank_wanted += isfinite(energy_of(match->a + wanted[j].row * width, width)) ? 0 : 1;
    match->blank += blank < blank_wanted ? blank : blank_wanted;
}

bool ts_row_match_within(struct ts_row_match *match, const struct ts_pair *pair, const size_t *groups_a,
                         const size_t *groups_b)
{
    struct grouped *a, *b;
    bool good;
    *match = (struct ts_row_match){0};
    if (!read_rows(match, pair))
        return false;
    a = malloc(2 * match->count * sizeof *a);
    b = a ? a + match->count : NULL;
    good = a != NULL;
    for (size_t row = 0; row < match->count && good; row++) {
        a[row] = (struct grouped){groups_a[row], row};
        b[row] = (struct grouped){groups_b[row], row};
    }
    if (good) {
        qsort(a, match->count, sizeof *a, by_group);
        qsort(b, match->count, sizeof *b, by_group);
    }
    for (size_t from = 0, to; from < match->count && good; from = to) {
        for (to = from; to < match->count && a[to].group == a[from].group; to++)
            good = good && b[to].group == a[from].group;
        if (good)
            match_group(match, a + from, b + from, to - from);
    }
    free(a);
    return good;
}

void ts_row_match_release(struct ts_row_match *match)
{
    free(match->a);
    free(match->b);
    free(match->rows);
    *match = (struct ts_row_match){0};
}
