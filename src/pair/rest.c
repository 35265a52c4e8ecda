/* Owns what alignments leave out: of tensors that stand in a pair, the part that no pair reads. A second sequence,
 * further rows, other ranks' shares: nothing was found wrong with them, and nothing was looked at. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pair/pairing.h"

/* Kinds that get a sentence of their own on each side; the others share one. */
#define MOST_KINDS 3
/* Shares are fractions up to this denominator, else percent. */
#define MOST_PARTS 64

/* What is read of one tensor. */
struct reading {
    const struct ts_tensor *tensor;
    const struct ts_pair *pair; /* the first that reads it */
    uint64_t read;
    bool settled; /* zeros are left out, or a sample is all there is, which is told elsewhere */
};

struct kind {
    char share[16];
    const struct reading *first;
    size_t count;
};

struct rest {
    struct ts_pairer *pairer;
    const struct ts_side *side;
    struct reading *list;   /* per tensor of the side */
    struct ts_table names;  /* of the side */
    struct ts_table pieces; /* of tensors that were counted: tied weights are read twice */
};

/* Elements of its tensor that a plain view reads. */
static uint64_t elements_read(const struct ts_view *view)
{
    uint64_t read = 1;
    for (unsigned i = 0; i < view->rank; i++)
        read *= view->strides[i] ? view->shape[i] : 1;
    return read;
}

/* Plain views that do not read all of their tensors: most pairs have none. */
static size_t count_pieces(const struct ts_view *view)
{
    size_t count = 0;
    if (view->join == TS_JOIN_NONE)
        return elements_read(view) < view->tensor->count;
    for (size_t i = 0; i < view->part_count; i++)
        count += count_pieces(&view->parts[i]);
    return count;
}

static enum ts_status read_leaf(struct rest *rest, const struct ts_pair *pair, const struct ts_view *view,
                                struct ts_error *error)
{
    const size_t at = ts_table_get(&rest->names, view->tensor->name);
    const uint64_t read = elements_read(view);
    struct reading *reading;
    const char *piece;
    if (at == SIZE_MAX || !view->tensor->count)
        return TS_OK;
    reading = &rest->list[at];
    reading->tensor = rest->side->bundle->tensors[at];
    reading->pair = reading->pair ? reading->pair : pair;
    reading->settled =
        reading->settled || pair->padded || pair->zeros || pair->a.tensor->sampled || pair->b.tensor->sampled;
    if (read >= view->tensor->count) { /* all of it, whatever else is read */
        reading->settled = true;
        return TS_OK;
    }
    piece = ts_arena_printf(&rest->pairer->scratch, "%zu %" PRIu64 " %" PRIu64, at, view->offset, view->count);
    if (!piece)
        return ts_fail_memory(error);
    if (!ts_table_put(&rest->pieces, piece, at, NULL))
        return TS_OK;
    /* complex numbers that are read as real ones have twice the elements */
    reading->read += view->tensor->count == 2 * reading->tensor->count ? read / 2 : read;
    return TS_OK;
}

static enum ts_status read_view(struct rest *rest, const struct ts_pair *pair, const struct ts_view *view,
                                struct ts_error *error)
{
    if (view->join == TS_JOIN_NONE)
        return read_leaf(rest, pair, view, error);
    for (size_t i = 0; i < view->part_count; i++)
        TS_TRY(read_view(rest, pair, &view->parts[i], error));
    return TS_OK;
}

static bool is_partial(const struct reading *reading)
{
    return reading->tensor && !reading->settled && reading->read < reading->tensor->count;
}

static bool has_partial(const struct rest *rest, const struct ts_view *view)
{
    const size_t at = view->join == TS_JOIN_NONE ? ts_table_get(&rest->names, view->tensor->name) : SIZE_MAX;
    bool any = at != SIZE_MAX && is_partial(&rest->list[at]);
    for (size_t i = 0; view->join != TS_JOIN_NONE && i < view->part_count && !any; i++)
        any = has_partial(rest, &view->parts[i]);
    return any;
}

/* "half", "7/8", "12%" */
static void put_share(char *text, size_t size, uint64_t part, uint64_t whole)
{
    uint64_t a = whole, b = part;
    while (b) {
        const uint64_t c = a % b;
        a = b;
        b = c;
    }
    if (whole / a == 2)
        snprintf(text, size, "half");
    else if (whole / a <= MOST_PARTS)
        snprintf(text, size, "%" PRIu64 "/%" PRIu64, part / a, whole / a);
    else if ((double)part < 0.01 * (double)whole)
        snprintf(text, size, "less than 1%%");
    else
        snprintf(text, size, "%.0f%%", (double)part >= 0.99 * (double)whole ? 99 : 100 * (double)part / (double)whole);
}

static enum ts_status note_kinds(struct rest *rest, struct ts_error *error)
{
    struct kind kinds[MOST_KINDS] = {{{0}, NULL, 0}};
    const char side = rest->side == &rest->pairer->b ? 'B' : 'A', other = side == 'A' ? 'B' : 'A';
    size_t known = 0, more = 0;
    for (size_t i = 0; i < rest->side->count; i++) {
        const struct reading *reading = &rest->list[i];
        char share[sizeof kinds->share];
        size_t kind = 0;
        if (!is_partial(reading))
            continue;
        put_share(share, sizeof share, reading->tensor->count - reading->read, reading->tensor->count);
        while (kind < known && strcmp(kinds[kind].share, share) != 0)
            kind++;
        if (kind == MOST_KINDS) {
            more++;
            continue;
        }
        if (kind == known) {
            kinds[known++].first = reading;
            memcpy(kinds[kind].share, share, sizeof share);
        }
        kinds[kind].count++;
    }
    for (size_t i = 0; i < known; i++) {
        const struct reading *first = kinds[i].first;
        if (kinds[i].count == 1)
            TS_TRY(ts_pairer_note(rest->pairer, error, "%s of %s of %c was not compared: %c does not have it (%s)",
                                  kinds[i].share, first->tensor->name, side, other, first->pair->recipe));
        else
            TS_TRY(ts_pairer_note(
                rest->pairer, error, "%s of each of %zu tensors of %c was not compared: %c does not have it (%s, %s)",
                kinds[i].share, kinds[i].count, side, other, first->tensor->name, first->pair->recipe));
    }
    return more ? ts_pairer_note(rest->pairer, error, "parts of %zu more tensor%s of %c were not compared", more,
                                 more == 1 ? "" : "s", side)
                : TS_OK;
}

static enum ts_status explain_side(struct rest *rest, struct ts_error *error)
{
    const struct ts_pairer *pairer = rest->pairer;
    const bool of_b = rest->side == &pairer->b;
    size_t pieces = 0;
    for (size_t i = 0; i < pairer->out->count; i++)
        if (!pairer->out->pairs[i].problem)
            pieces += count_pieces(of_b ? &pairer->out->pairs[i].b : &pairer->out->pairs[i].a);
    if (!pieces)
        return TS_OK;
    rest->list = ts_arena_array(&rest->pairer->scratch, rest->side->count, sizeof *rest->list);
    if (!rest->list || !ts_table_init(&rest->names, rest->side->count) || !ts_table_init(&rest->pieces, pieces))
        return ts_fail_memory(error);
    for (size_t i = 0; i < rest->side->count; i++)
        ts_table_put(&rest->names, rest->side->bundle->tensors[i]->name, i, NULL);
    for (size_t i = 0; i < pairer->out->count; i++) {
        const struct ts_pair *pair = &pairer->out->pairs[i];
        if (!pair->problem)
            TS_TRY(read_view(rest, pair, of_b ? &pair->b : &pair->a, error));
    }
    for (size_t i = 0; i < rest->side->count; i++)
        rest->list[i].read += rest->side->copied[i];
    for (size_t i = 0; i < pairer->out->count; i++) {
        struct ts_pair *pair = &pairer->out->pairs[i];
        pair->partial = pair->partial || (!pair->problem && has_partial(rest, of_b ? &pair->b : &pair->a));
    }
    return note_kinds(rest, error);
}

enum ts_status ts_explain_rest(struct ts_pairer *pairer, struct ts_error *error)
{
    enum ts_status status = TS_OK;
    for (int s = 0; s < 2 && status == TS_OK; s++) {
        const struct ts_arena_mark mark = ts_arena_mark(&pairer->scratch);
        struct rest rest = {.pairer = pairer, .side = s ? &pairer->b : &pairer->a};
        status = explain_side(&rest, error);
        ts_table_release(&rest.names);
        ts_table_release(&rest.pieces);
        ts_arena_rewind(&pairer->scratch, mark);
    }
    return status;
}
