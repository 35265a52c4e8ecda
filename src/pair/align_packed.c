/* Owns sequences of unequal length: one side holds a batch of them, padded to the longest, the other one behind the
 * other without the padding. How long each is, is read off the values: rows agree until the padding begins. The batch
 * may be one list of rows too: every number of sequences that divides it is tried. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "pair/align_search.h"

#define MOST_SEQUENCES 1024
#define MOST_ROWS      65536
#define GLANCE         16  /* numbers of a row that are looked at */
#define SAME_ROW       0.3 /* distance of two rows beside their size; unrelated ones are at 1.4 */
#define COST_PACKED    14u /* above a plain cut */
#define MOST_LISTED    8   /* lengths that the recipe names */

struct packing {
    struct ts_align_search *search;
    struct ts_view padded, packed; /* [sequences, rows, ...], [packed rows, ...] */
    uint64_t sequences, rows, in_all;
    size_t width;      /* numbers of a row that are looked at */
    double *values[2]; /* those of all rows of padded, of packed */
    uint64_t *starts, *counts;
};

/* The first numbers of every row. */
static enum ts_status read_rows(const struct ts_view *view, uint64_t rows, size_t width, double *values,
                                struct ts_error *error)
{
    const uint64_t size = view->count / rows;
    for (uint64_t row = 0; row < rows; row++)
        TS_TRY(ts_view_read_f64(view, row * size, width, values + row * width, error));
    return TS_OK;
}

static bool same_rows(const struct packing *p, uint64_t padded, uint64_t packed)
{
    const double *x = p->values[0] + padded * p->width, *y = p->values[1] + packed * p->width;
    double distance = 0, size = 0;
    for (size_t i = 0; i < p->width; i++) {
        distance += (y[i] - x[i]) * (y[i] - x[i]);
        size += x[i] * x[i];
    }
    return distance <= SAME_ROW * SAME_ROW * size; /* neither NaN nor unlike */
}

/* Lengths of all sequences: from the first row on, padding behind them, or from the last row back. */
static bool find_lengths(const struct packing *p, bool from_the_end)
{
    uint64_t left = p->in_all;
    for (uint64_t i = 0; i < p->sequences; i++) {
        const uint64_t sequence = from_the_end ? p->sequences - 1 - i : i;
        uint64_t length = 0;
        for (; length < p->rows && length < left; length++) {
            const uint64_t row = from_the_end ? p->rows - 1 - length : length;
            const uint64_t other = from_the_end ? left - 1 - length : p->in_all - left + length;
            if (!same_rows(p, sequence * p->rows + row, other))
                break;
        }
        if (length == 0)
            return false;
        p->starts[sequence] = from_the_end ? p->rows - length : 0;
        p->counts[sequence] = length;
        left -= length;
    }
    return left == 0;
}

static const char *words_of(const struct packing *p, bool from_the_end)
{
    struct ts_buffer text;
    const char *words;
    ts_buffer_init(&text, 4096);
    ts_buffer_printf(&text, "pack the %s", from_the_end ? "last" : "first");
    for (uint64_t i = 0; i < p->sequences && i < MOST_LISTED; i++)
        ts_buffer_printf(&text, "%s%" PRIu64, i ? "+" : " ", p->counts[i]);
    ts_buffer_printf(&text, "%s of %" PRIu64 "x%" PRIu64 " rows", p->sequences > MOST_LISTED ? "+..." : "",
                     p->sequences, p->rows);
    words = text.failed ? NULL : ts_arena_copy(&p->search->scratch, text.data, text.size);
    ts_buffer_release(&text);
    return words;
}

static bool pack(const struct packing *p, struct ts_view *out)
{
    struct ts_arena *arena = &p->search->scratch;
    struct ts_view *parts = ts_arena_array(arena, (size_t)p->sequences, sizeof *parts);
    for (uint64_t i = 0; parts && i < p->sequences; i++) {
        struct ts_view one, rows;
        if (!ts_view_slice(&p->padded, 0, i, 1, 1, arena, &one) ||
            !ts_view_reshape(&one, p->padded.shape + 1, p->padded.rank - 1, arena, &rows) ||
            !ts_view_slice(&rows, 0, p->starts[i], p->counts[i], 1, arena, &parts[i]))
            return false;
    }
    return parts && ts_view_join(TS_JOIN_CONCAT, 0, parts, (size_t)p->sequences, arena, out);
}

/* Whether rows of both sides are alike, and so many that they may be a padded batch. */
static bool fits(const struct packing *p, uint64_t all, unsigned row_axis)
{
    if (p->padded.rank != p->packed.rank + row_axis || p->padded.rank < row_axis + 2 ||
        p->padded.join != TS_JOIN_NONE || all > MOST_ROWS || p->in_all < 2 || p->in_all >= all)
        return false;
    for (unsigned i = 1; i < p->packed.rank; i++)
        if (p->packed.shape[i] != p->padded.shape[i + row_axis])
            return false;
    return p->width >= 4 && ts_type_info(p->padded.tensor->type)->components == 1;
}

/* For the tensors to come. */
static void keep_lengths(const struct packing *p, bool from_the_end)
{
    struct ts_lengths *known = p->search->hints ? p->search->hints->lengths : NULL;
    if (!known || known->sequences)
        return;
    known->starts = ts_arena_array(known->arena, (size_t)p->sequences, sizeof *known->starts);
    known->counts = ts_arena_array(known->arena, (size_t)p->sequences, sizeof *known->counts);
    if (!known->starts || !known->counts)
        return;
    memcpy(known->starts, p->starts, (size_t)p->sequences * sizeof *known->starts);
    memcpy(known->counts, p->counts, (size_t)p->sequences * sizeof *known->counts);
    known->sequences = p->sequences;
    known->rows = p->rows;
    known->in_all = p->in_all;
    known->from_the_end = from_the_end;
}

/* Where no values agree, the lengths that other tensors of the run have. */
static bool take_lengths(const struct packing *p, bool *from_the_end)
{
    const struct ts_lengths *known = p->search->hints ? p->search->hints->lengths : NULL;
    if (!known || known->sequences != p->sequences || known->rows != p->rows || known->in_all != p->in_all)
        return false;
    memcpy(p->starts, known->starts, (size_t)p->sequences * sizeof *p->starts);
    memcpy(p->counts, known->counts, (size_t)p->sequences * sizeof *p->counts);
    *from_the_end = known->from_the_end;
    return true;
}

/* How the two sides are given. */
struct given {
    const struct ts_align_layouts *layouts;
    unsigned large;
    bool squeezed, listed; /* the packed side has an axis of one in front; the padded side is one list of rows */
};

static void add_candidate(const struct packing *p, const struct given *given, bool from_the_end)
{
    const unsigned large = given->large;
    const char *const *before = given->layouts->words;
    struct ts_align_candidate *candidate;
    struct ts_view view;
    const char *words = words_of(p, from_the_end);
    const char *split = given->listed && words
                            ? ts_arena_printf(&p->search->scratch, "split 0 as %" PRIu64 "x%" PRIu64 ", %s",
                                              p->sequences, p->rows, words)
                            : words;
    if (!split || !pack(p, &view) || !(candidate = ts_align_add(p->search)))
        return;
    candidate->view[large] = view;
    candidate->view[1 - large] = p->packed;
    candidate->words[large] = ts_align_words(p->search, before[large], split);
    candidate->words[1 - large] =
        given->squeezed ? ts_align_words(p->search, before[1 - large], "squeeze 0") : before[1 - large];
    candidate->cost = given->layouts->cost + COST_PACKED;
}

/* Rows taken as so many sequences. */
static bool try_sequences(struct packing *p, const struct given *given)
{
    bool found = false;
    for (int from_the_end = 0; from_the_end < 2; from_the_end++)
        if (find_lengths(p, from_the_end)) {
            keep_lengths(p, from_the_end);
            add_candidate(p, given, from_the_end);
            found = true;
        }
    return found;
}

/* [sequences * rows, ...] as [sequences, rows, ...]. */
static bool split_rows(struct packing *p, const struct ts_view *listed, uint64_t sequences)
{
    uint64_t shape[TS_MAX_RANK] = {sequences, listed->shape[0] / sequences};
    if (listed->rank >= TS_MAX_RANK || sequences > MOST_SEQUENCES || sequences > p->in_all)
        return false;
    memcpy(shape + 2, listed->shape + 1, (listed->rank - 1) * sizeof *shape);
    p->sequences = sequences;
    p->rows = shape[1];
    return p->in_all < p->sequences * p->rows &&
           ts_view_reshape(listed, shape, listed->rank + 1, &p->search->scratch, &p->padded);
}

/* The batch as it is given, or every one that the rows may be. */
static void try_all(struct packing *p, const struct given *given)
{
    const struct ts_lengths *known = p->search->hints ? p->search->hints->lengths : NULL;
    const struct ts_view listed = p->padded;
    bool found = false, from_the_end = false;
    if (!given->listed)
        found =
            p->sequences >= 2 && p->sequences <= MOST_SEQUENCES && p->in_all >= p->sequences && try_sequences(p, given);
    for (uint64_t sequences = 2; given->listed && sequences <= listed.shape[0]; sequences++)
        if (listed.shape[0] % sequences == 0 && split_rows(p, &listed, sequences))
            found = try_sequences(p, given) || found;
    if (found)
        return;
    if (given->listed && (!known || !known->sequences || known->sequences * known->rows != listed.shape[0] ||
                          !split_rows(p, &listed, known->sequences)))
        return;
    if (take_lengths(p, &from_the_end))
        add_candidate(p, given, from_the_end);
}

enum ts_status ts_align_add_packed(struct ts_align_search *search, const struct ts_align_layouts *layouts,
                                   struct ts_error *error)
{
    const unsigned large = layouts->view[0].count < layouts->view[1].count;
    struct packing p = {.search = search, .padded = layouts->view[large], .packed = layouts->view[1 - large]};
    const struct ts_view before = p.packed;
    struct given given = {.layouts = layouts, .large = large};
    enum ts_status status = TS_OK;
    uint64_t all;
    given.squeezed = before.rank > 2 && before.shape[0] == 1;
    if (given.squeezed && !ts_view_reshape(&before, before.shape + 1, before.rank - 1, &search->scratch, &p.packed))
        return TS_OK;
    if (p.padded.rank < 2 || !p.packed.rank || !p.packed.shape[0])
        return TS_OK;
    given.listed = p.packed.rank == p.padded.rank;
    p.sequences = p.padded.shape[0];
    p.rows = p.padded.shape[1];
    p.in_all = p.packed.shape[0];
    p.width = p.packed.count / p.in_all < GLANCE ? (size_t)(p.packed.count / p.in_all) : GLANCE;
    if (!given.listed && p.rows > MOST_ROWS)
        return TS_OK;
    all = given.listed ? p.sequences : p.sequences > MOST_ROWS ? UINT64_MAX : p.sequences * p.rows;
    if (!fits(&p, all, !given.listed))
        return TS_OK;
    p.starts = ts_arena_array(&search->scratch, (size_t)all, sizeof *p.starts);
    p.counts = ts_arena_array(&search->scratch, (size_t)all, sizeof *p.counts);
    p.values[0] = calloc((size_t)all, p.width * sizeof(double));
    p.values[1] = calloc((size_t)p.in_all, p.width * sizeof(double));
    if (!p.starts || !p.counts || !p.values[0] || !p.values[1])
        status = ts_fail_memory(error);
    if (status == TS_OK)
        status = read_rows(&p.padded, all, p.width, p.values[0], error);
    if (status == TS_OK)
        status = read_rows(&p.packed, p.in_all, p.width, p.values[1], error);
    if (status == TS_OK)
        try_all(&p, &given);
    free(p.values[0]);
    free(p.values[1]);
    return status;
}
