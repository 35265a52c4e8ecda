/* Owns the padding of batches that have one shape on both sides: before the tokens on one side and behind them on the
 * other, where each sequence is moved by its own number of rows; or at the same end, where a mask or the token ids tell
 * which rows they are and the rows hold what nobody uses. Both are compared without it, packed. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/text.h"
#include "pair/pairing.h"

#define MOST_SEQUENCES 1024
#define MOST_ROWS      65536
#define GLANCE         16   /* numbers of a row that are looked at */
#define FEWEST         4    /* numbers of a row that tell it from others, unless they are whole */
#define SAME_ROW       0.3  /* distance of two rows beside their size; unrelated ones are at 1.4 */
#define JUNK           0.01 /* padding that is further apart is not what both sides computed alike */
#define LEVEL          0.1  /* tokens that are further apart do not agree */
#define MOST_TRIED     16   /* pairs, from the first on, in which moved sequences are looked for */
#define MOST_LISTED    8    /* lengths that the recipe names */

struct batch {
    uint64_t sequences, rows;
    uint64_t *pads; /* rows of padding of each */
    uint64_t all;   /* of them */
    bool behind[2]; /* in A, in B: the padding stands behind the tokens */
};

/* The first numbers of every row of a pair: [sequences, rows, ...] on both sides. */
struct glance {
    uint64_t sequences, rows;
    size_t width;
    bool whole; /* numbers */
    double *values[2];
};

static bool is_batch(const struct ts_pair *pair)
{
    return !pair->problem && !pair->by_hand && pair->a.join == TS_JOIN_NONE && pair->b.join == TS_JOIN_NONE &&
           pair->a.rank >= 2 && pair->a.count && ts_view_same_shape(&pair->a, &pair->b) && pair->a.shape[1] >= 2 &&
           pair->a.shape[0] <= MOST_SEQUENCES && pair->a.shape[1] <= MOST_ROWS / pair->a.shape[0] &&
           ts_type_info(pair->a.tensor->type)->components == 1 && ts_type_info(pair->b.tensor->type)->components == 1;
}

static void close_glance(struct glance *glance)
{
    free(glance->values[0]);
    free(glance->values[1]);
}

static enum ts_status take_glance(const struct ts_pair *pair, struct glance *glance, struct ts_error *error)
{
    const uint64_t rows = pair->a.shape[0] * pair->a.shape[1], size = pair->a.count / rows;
    enum ts_status status = TS_OK;
    *glance = (struct glance){.sequences = pair->a.shape[0],
                              .rows = pair->a.shape[1],
                              .width = size < GLANCE ? (size_t)size : GLANCE,
                              .whole = ts_type_is_integer(pair->a.tensor->type)};
    for (int side = 0; side < 2 && status == TS_OK; side++) {
        const struct ts_view *view = side ? &pair->b : &pair->a;
        glance->values[side] = calloc((size_t)rows, glance->width * sizeof(double));
        if (!glance->values[side])
            status = ts_fail_memory(error);
        for (uint64_t row = 0; row < rows && status == TS_OK; row++)
            status =
                ts_view_read_f64(view, row * size, glance->width, glance->values[side] + row * glance->width, error);
    }
    if (status != TS_OK)
        close_glance(glance);
    return status;
}

static const double *row_of(const struct glance *glance, int side, uint64_t sequence, uint64_t row)
{
    return glance->values[side] + (sequence * glance->rows + row) * glance->width;
}

static bool equal_rows(const struct glance *glance, const double *x, const double *y)
{
    return memcmp(x, y, glance->width * sizeof *x) == 0;
}

/* Neither NaN nor unlike. */
static bool near_rows(const struct glance *glance, const double *x, const double *y, double limit)
{
    double distance = 0, size = 0;
    if (equal_rows(glance, x, y))
        return true;
    for (size_t i = 0; i < glance->width; i++) {
        distance += (y[i] - x[i]) * (y[i] - x[i]);
        size += x[i] * x[i];
    }
    return !glance->whole && distance <= limit * limit * size;
}

/* Rows from an end of a sequence on that are all the same. */
static uint64_t run_length(const struct glance *glance, int side, uint64_t sequence, bool behind)
{
    const uint64_t last = glance->rows - 1;
    uint64_t length = 1;
    while (length <= last && equal_rows(glance, row_of(glance, side, sequence, behind ? last : 0),
                                        row_of(glance, side, sequence, behind ? last - length : length)))
        length++;
    return length;
}

/* Every sequence of the side `left` begins with rows that are behind it on the other, the same row everywhere, and the
 * longest sequence has none. Fewer than two of them may be a token that was moved. */
static bool is_moved(const struct glance *glance, int left, struct batch *batch)
{
    const int right = 1 - left;
    const uint64_t last = glance->rows - 1;
    const double *pad = NULL;
    uint64_t unmoved = 0;
    batch->all = 0;
    for (uint64_t s = 0; s < glance->sequences; s++) {
        uint64_t row = 0, before, behind;
        while (row <= last && near_rows(glance, row_of(glance, right, s, row), row_of(glance, left, s, row), SAME_ROW))
            row++;
        batch->pads[s] = 0;
        if (row > last) {
            unmoved++;
            continue;
        }
        before = run_length(glance, left, s, false);
        behind = run_length(glance, right, s, true);
        batch->pads[s] = before < behind ? before : behind;
        pad = pad ? pad : row_of(glance, right, s, last);
        if (batch->pads[s] > last || !equal_rows(glance, pad, row_of(glance, right, s, last)) ||
            !near_rows(glance, pad, row_of(glance, left, s, 0), SAME_ROW))
            return false;
        for (row = batch->pads[s]; row <= last; row++)
            if (!near_rows(glance, row_of(glance, right, s, row - batch->pads[s]), row_of(glance, left, s, row),
                           SAME_ROW))
                return false;
        batch->all += batch->pads[s];
    }
    batch->behind[left] = false;
    batch->behind[right] = true;
    return unmoved && batch->all >= 2;
}

/* A mask of zeros and ones: the zeros at one end. */
static bool is_masked(const struct glance *glance, bool behind, struct batch *batch)
{
    batch->all = 0;
    for (uint64_t s = 0; s < glance->sequences; s++) {
        const double *row = row_of(glance, 0, s, 0);
        uint64_t zeros = 0;
        while (zeros < glance->rows && row[behind ? glance->rows - 1 - zeros : zeros] == 0)
            zeros++;
        for (uint64_t i = zeros; i < glance->rows; i++)
            if (row[behind ? glance->rows - 1 - i : i] == 0)
                return false;
        if (zeros == glance->rows)
            return false;
        batch->pads[s] = zeros;
        batch->all += zeros;
    }
    return batch->all > 0;
}

/* Token ids: one id again and again at one end of the shorter sequences. Where all begin or end with it, it is a token
 * as well. */
static bool is_filled(const struct glance *glance, bool behind, struct batch *batch)
{
    const uint64_t end = behind ? glance->rows - 1 : 0;
    uint64_t longest = 0, least = UINT64_MAX;
    double id = 0;
    batch->all = 0;
    for (uint64_t s = 0; s < glance->sequences; s++) {
        batch->pads[s] = run_length(glance, 0, s, behind);
        if (batch->pads[s] > longest) {
            longest = batch->pads[s];
            id = *row_of(glance, 0, s, end);
        }
    }
    for (uint64_t s = 0; s < glance->sequences; s++) {
        batch->pads[s] = *row_of(glance, 0, s, end) == id ? batch->pads[s] : 0;
        least = batch->pads[s] < least ? batch->pads[s] : least;
    }
    for (uint64_t s = 0; s < glance->sequences; s++)
        batch->all += batch->pads[s] -= least;
    return longest < glance->rows && batch->all >= 2;
}

static bool is_pad(const struct batch *batch, uint64_t sequence, uint64_t row)
{
    return batch->behind[0] ? row >= batch->rows - batch->pads[sequence] : row < batch->pads[sequence];
}

/* Whether padding holds other values on the two sides, and whether tokens do. */
static enum ts_status look_at_rows(const struct ts_pairer *pairer, const struct batch *batch, bool *junk, bool *wrong,
                                   struct ts_error *error)
{
    *junk = *wrong = false;
    for (size_t i = 0; i < pairer->count; i++) {
        const struct ts_pair *pair = &pairer->found[i].pair;
        struct glance glance;
        if (!is_batch(pair) || pair->a.shape[0] != batch->sequences || pair->a.shape[1] != batch->rows)
            continue;
        TS_TRY(take_glance(pair, &glance, error));
        for (uint64_t s = 0; s < batch->sequences; s++)
            for (uint64_t row = 0; row < batch->rows; row++) {
                const double *x = row_of(&glance, 0, s, row), *y = row_of(&glance, 1, s, row);
                if (is_pad(batch, s, row))
                    *junk = *junk || !near_rows(&glance, x, y, JUNK);
                else
                    *wrong = *wrong || !near_rows(&glance, x, y, LEVEL);
            }
        close_glance(&glance);
    }
    return TS_OK;
}

/* [sequences, rows, ...] or [sequences, heads, rows, ...] without the padding: [tokens, ...], [tokens, heads, ...]. */
static bool pack(const struct batch *batch, const struct ts_view *view, unsigned axis, bool behind,
                 struct ts_arena *arena, struct ts_view *out)
{
    static const unsigned order[3] = {1, 0, 2};
    struct ts_view *parts = ts_arena_array(arena, (size_t)batch->sequences, sizeof *parts);
    for (uint64_t s = 0; parts && s < batch->sequences; s++) {
        struct ts_view one, rows;
        if (!ts_view_slice(view, 0, s, 1, 1, arena, &one) ||
            !ts_view_reshape(&one, view->shape + 1, view->rank - 1, arena, &rows) ||
            (axis == 2 && !ts_view_permute(&rows, order, arena, &rows)) ||
            !ts_view_slice(&rows, 0, behind ? 0 : batch->pads[s], batch->rows - batch->pads[s], 1, arena, &parts[s]))
            return false;
    }
    return parts && ts_view_join(TS_JOIN_CONCAT, 0, parts, (size_t)batch->sequences, arena, out);
}

static const char *words_of(const struct batch *batch, unsigned axis, struct ts_arena *arena)
{
    struct ts_buffer text;
    const char *words;
    ts_buffer_init(&text, 4096);
    for (int side = 0; side < 2; side++) {
        ts_buffer_printf(&text, "%s%spack the %s", side ? "; B: " : "A: ", axis == 2 ? "swap 1 2, " : "",
                         batch->behind[side] ? "first" : "last");
        for (uint64_t s = 0; s < batch->sequences && s < MOST_LISTED; s++)
            ts_buffer_printf(&text, "%s%" PRIu64, s ? "+" : " ", batch->rows - batch->pads[s]);
        ts_buffer_printf(&text, "%s of %" PRIu64 "x%" PRIu64 " rows", batch->sequences > MOST_LISTED ? "+..." : "",
                         batch->sequences, batch->rows);
    }
    words = text.failed ? NULL : ts_arena_copy(arena, text.data, text.size);
    ts_buffer_release(&text);
    return words;
}

/* Tensors of another kind that happen to have the sizes agree better as they are. */
static enum ts_status pack_pair(struct ts_pairer *pairer, const struct batch *batch, struct ts_pair *pair,
                                struct ts_error *error)
{
    const bool moved = batch->behind[0] != batch->behind[1];
    struct ts_arena *arena = &pairer->out->arena;
    struct ts_agreement plain, packed;
    struct ts_view a, b;
    unsigned axis = 1;
    const char *words;
    if (!is_batch(pair) || pair->a.shape[0] != batch->sequences)
        return TS_OK;
    if (pair->a.shape[1] != batch->rows)
        axis = 2;
    if (axis == 2 && (pair->a.rank != 4 || pair->a.shape[2] != batch->rows))
        return TS_OK;
    TS_TRY(ts_agree(&pair->a, &pair->b, 64, &plain, error));
    if (moved && plain.error == 0)
        return TS_OK;
    if (moved && axis == 2 && pair->a.shape[3] == batch->rows) {
        pair->problem = "scores of every row for every row, and the padding of the two sides stands at other ends";
        return TS_OK;
    }
    words = words_of(batch, axis, arena);
    if (!words || !pack(batch, &pair->a, axis, batch->behind[0], arena, &a) ||
        !pack(batch, &pair->b, axis, batch->behind[1], arena, &b))
        return ts_fail_memory(error);
    TS_TRY(ts_agree(&a, &b, 64, &packed, error));
    if (moved && plain.error < packed.error)
        return TS_OK;
    pair->a = a;
    pair->b = b;
    pair->ambiguous = pair->guess = pair->by_size = false;
    pair->padded = true;
    return ts_layout_recipes(pairer, pair->recipe, words, &pair->recipe, error);
}

static enum ts_status pack_all(struct ts_pairer *pairer, const struct batch *batch, struct ts_error *error)
{
    for (size_t i = 0; i < pairer->count; i++)
        TS_TRY(pack_pair(pairer, batch, &pairer->found[i].pair, error));
    return TS_OK;
}

static bool open_batch(struct ts_pairer *pairer, const struct ts_pair *pair, struct batch *batch)
{
    *batch = (struct batch){.sequences = pair->a.shape[0], .rows = pair->a.shape[1]};
    batch->pads = ts_arena_array(&pairer->scratch, (size_t)batch->sequences, sizeof *batch->pads);
    return batch->pads;
}

static enum ts_status find_moved(struct ts_pairer *pairer, bool *done, struct ts_error *error)
{
    unsigned tried = 0;
    for (size_t i = 0; i < pairer->count && tried < MOST_TRIED; i++) {
        const struct ts_pair *pair = &pairer->found[i].pair;
        struct glance glance;
        struct batch batch;
        if (!is_batch(pair) || pair->a.shape[0] < 2)
            continue;
        tried++;
        if (!open_batch(pairer, pair, &batch))
            return ts_fail_memory(error);
        TS_TRY(take_glance(pair, &glance, error));
        *done =
            (glance.whole || glance.width >= FEWEST) && (is_moved(&glance, 0, &batch) || is_moved(&glance, 1, &batch));
        close_glance(&glance);
        if (!*done)
            continue;
        TS_TRY(ts_pairer_note(pairer, error,
                              "%s shows that the sequences of A are padded %s their tokens and those of B %s: %" PRIu64
                              " of %" PRIu64 " rows are padding and were not compared",
                              pair->name, batch.behind[0] ? "behind" : "before", batch.behind[1] ? "behind" : "before",
                              batch.all, batch.sequences * batch.rows));
        return pack_all(pairer, &batch, error);
    }
    return TS_OK;
}

static enum ts_status find_told(struct ts_pairer *pairer, struct ts_error *error)
{
    for (size_t i = 0; i < pairer->count; i++) {
        const struct ts_pair *pair = &pairer->found[i].pair;
        const bool mask = ts_ends_with(pair->name, "attention_mask") || ts_ends_with(pair->name, "padding_mask");
        const bool ids = ts_ends_with(pair->name, "input_ids") || ts_ends_with(pair->name, "token_ids");
        struct glance glance;
        struct batch batch;
        bool told, junk, wrong;
        if ((!mask && !ids) || !is_batch(pair) || pair->a.rank != 2)
            continue;
        if (!open_batch(pairer, pair, &batch))
            return ts_fail_memory(error);
        TS_TRY(take_glance(pair, &glance, error));
        told = memcmp(glance.values[0], glance.values[1], (size_t)pair->a.count * sizeof(double)) == 0;
        for (int behind = 0, found = 0; told && behind < 2 && !found; behind++) {
            batch.behind[0] = batch.behind[1] = behind;
            found = mask ? is_masked(&glance, behind, &batch) : is_filled(&glance, behind, &batch);
            told = found || !behind;
        }
        close_glance(&glance);
        if (!told)
            continue;
        TS_TRY(look_at_rows(pairer, &batch, &junk, &wrong, error));
        /* one id several times may be what the text says, and then its error would reach the tokens behind it */
        if (!junk || (ids && wrong))
            continue;
        TS_TRY(ts_pairer_note(pairer, error,
                              "%s tells that %" PRIu64 " of %" PRIu64
                              " rows are padding: they hold other values on the two sides and were not compared",
                              pair->name, batch.all, batch.sequences * batch.rows));
        return pack_all(pairer, &batch, error);
    }
    return TS_OK;
}

enum ts_status ts_leave_padding(struct ts_pairer *pairer, struct ts_error *error)
{
    bool done = false;
    TS_TRY(find_moved(pairer, &done, error));
    return done ? TS_OK : find_told(pairer, error);
}
