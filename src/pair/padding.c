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
#define MOVED_IDS      6    /* that stand elsewhere: fewer, of few different ones as experts are, do so by chance */
#define JUNK           0.01 /* padding that is further apart is not what both sides computed alike */
#define LEVEL          0.1  /* tokens that are further apart do not agree */
#define MOST_TRIED     16   /* pairs, from the first on, in which moved sequences are looked for */
#define MOST_LISTED    8    /* lengths that the recipe names */
#define FORBIDDEN      -1e3 /* scores that a mask adds are below this: -1e4, -1e9, the lowest of a type, -inf */

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
    uint64_t unmoved = 0, moved = 0;
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
        moved += glance->rows - batch->pads[s];
    }
    batch->behind[left] = false;
    batch->behind[right] = true;
    return unmoved && batch->all >= 2 && (!glance->whole || moved >= MOVED_IDS);
}

/* What a mask hides, [sequences, rows]. */
struct mask {
    uint64_t sequences, rows;
    bool *hidden;
    bool square; /* [rows, rows] */
};

/* Each row hides one token less than the one before it: a causal mask of one sequence, and no batch of as many
 * sequences as the longest has tokens. */
static bool is_causal(const struct mask *mask, const struct batch *batch)
{
    bool causal = mask->square && mask->rows >= 3;
    for (uint64_t s = 0; s < mask->sequences && causal; s++)
        causal = batch->pads[s] == mask->rows - 1 - s;
    return causal;
}

/* Hidden rows at one end of each sequence, and tokens in all of them. */
static bool is_masked(const struct mask *mask, bool behind, struct batch *batch)
{
    batch->all = 0;
    for (uint64_t s = 0; s < mask->sequences; s++) {
        const bool *row = mask->hidden + s * mask->rows;
        uint64_t hidden = 0;
        while (hidden < mask->rows && row[behind ? mask->rows - 1 - hidden : hidden])
            hidden++;
        for (uint64_t i = hidden; i < mask->rows; i++)
            if (row[behind ? mask->rows - 1 - i : i])
                return false;
        if (hidden == mask->rows)
            return false;
        batch->pads[s] = hidden;
        batch->all += hidden;
    }
    return batch->all > 0 && !is_causal(mask, batch);
}

/* [sequences, rows], or for each of its rows, or for one that stands for all: [sequences, 1, rows, rows]. */
static bool is_mask(const struct ts_view *view, struct mask *mask)
{
    const unsigned rank = view->rank;
    if (view->join != TS_JOIN_NONE || rank < 2 || rank > 4 || !view->count || (rank == 4 && view->shape[1] != 1) ||
        ts_type_info(view->tensor->type)->components != 1)
        return false;
    *mask = (struct mask){.sequences = view->shape[0], .rows = view->shape[rank - 1]};
    mask->square = rank == 2 && mask->sequences == mask->rows;
    return mask->rows >= 2 && mask->sequences <= MOST_SEQUENCES && mask->rows <= MOST_ROWS / mask->sequences &&
           (rank == 2 || view->shape[rank - 2] == 1 || view->shape[rank - 2] == mask->rows);
}

/* A key that the last row does not see is padding, unless it is only out of the window of that row: then it sees
 * itself and not what follows. (Rows of padding that would see nothing are allowed everything by some programs.) */
static enum ts_status out_of_window(const struct ts_view *view, uint64_t first, uint64_t rows, uint64_t key,
                                    double limit, double *row, bool *out, struct ts_error *error)
{
    const size_t two = key + 1 < rows ? 2 : 1;
    TS_TRY(ts_view_read_f64(view, first + key, two, row, error));
    *out = row[0] > limit && !(row[two - 1] > limit);
    if (*out || !(row[0] > limit))
        return TS_OK;
    TS_TRY(ts_view_read_f64(view, first, (size_t)rows, row, error));
    for (uint64_t i = 0; i < rows && !*out; i++)
        *out = !(row[i] > limit);
    return TS_OK;
}

/* Added to scores, 0 for what is seen; or 1 for that and 0 for the rest. */
static enum ts_status read_mask(const struct ts_view *view, struct mask *mask, struct ts_arena *arena,
                                struct ts_error *error)
{
    const uint64_t queries = view->count / (mask->sequences * mask->rows), rows = mask->rows;
    double *row = ts_arena_array(arena, (size_t)rows, sizeof *row), limit = 0;
    mask->hidden = ts_arena_array(arena, (size_t)(mask->sequences * rows), sizeof *mask->hidden);
    if (!row || !mask->hidden)
        return ts_fail_memory(error);
    for (uint64_t s = 0; s < mask->sequences; s++) {
        TS_TRY(ts_view_read_f64(view, ((s + 1) * queries - 1) * rows, (size_t)rows, row, error));
        for (uint64_t i = 0; i < rows; i++)
            limit = row[i] < FORBIDDEN ? FORBIDDEN : limit;
    }
    for (uint64_t s = 0; s < mask->sequences; s++) {
        bool *hidden = mask->hidden + s * rows, window;
        TS_TRY(ts_view_read_f64(view, ((s + 1) * queries - 1) * rows, (size_t)rows, row, error));
        for (uint64_t i = 0; i < rows; i++)
            hidden[i] = !(row[i] > limit);
        for (uint64_t i = 0; i < rows && queries > 1; i++)
            if (hidden[i]) {
                TS_TRY(out_of_window(view, (s * queries + i) * rows, rows, i, limit, row, &window, error));
                hidden[i] = !window;
            }
    }
    return TS_OK;
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

/* A pair that has the sizes of the batch: an axis for sequences and one for rows, with heads between them or not, or
 * one for all rows. */
static bool take_batch(const struct batch *batch, const struct ts_pair *pair, struct ts_arena *arena,
                       struct ts_pair *out, unsigned *axis)
{
    *out = *pair;
    *axis = 1;
    if (!pair->problem && pair->a.rank >= 1 && pair->a.rank < TS_MAX_RANK && pair->b.rank == pair->a.rank &&
        batch->sequences > 1 && pair->a.shape[0] == batch->sequences * batch->rows) {
        uint64_t shape[TS_MAX_RANK] = {batch->sequences, batch->rows};
        for (unsigned i = 1; i < pair->a.rank; i++)
            shape[i + 1] = pair->a.shape[i];
        if (!ts_view_same_shape(&pair->a, &pair->b) ||
            !ts_view_reshape(&pair->a, shape, pair->a.rank + 1, arena, &out->a) ||
            !ts_view_reshape(&pair->b, shape, pair->a.rank + 1, arena, &out->b))
            return false;
        return is_batch(out);
    }
    if (!is_batch(pair) || pair->a.shape[0] != batch->sequences)
        return false;
    if (pair->a.shape[1] != batch->rows)
        *axis = 2;
    return *axis == 1 || (pair->a.rank == 4 && pair->a.shape[2] == batch->rows);
}

/* Whether padding holds other values on the two sides, and whether tokens do. */
static enum ts_status look_at_rows(struct ts_pairer *pairer, const struct batch *batch, bool *junk, bool *wrong,
                                   struct ts_error *error)
{
    *junk = *wrong = false;
    for (size_t i = 0; i < pairer->count; i++) {
        struct ts_pair pair;
        struct glance glance;
        unsigned axis;
        if (!take_batch(batch, &pairer->found[i].pair, &pairer->scratch, &pair, &axis) || axis != 1)
            continue;
        TS_TRY(take_glance(&pair, &glance, error));
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
    struct ts_pair taken;
    unsigned axis;
    const char *words;
    if (!take_batch(batch, pair, arena, &taken, &axis))
        return TS_OK;
    TS_TRY(ts_agree(&pair->a, &pair->b, 64, &plain, error));
    if (moved && plain.error == 0)
        return TS_OK;
    if (moved && axis == 2 && pair->a.shape[3] == batch->rows) {
        pair->problem = "scores of every row for every row, and the two sides are padded at opposite ends";
        return TS_OK;
    }
    words = words_of(batch, axis, arena);
    if (!words || !pack(batch, &taken.a, axis, batch->behind[0], arena, &a) ||
        !pack(batch, &taken.b, axis, batch->behind[1], arena, &b))
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

/* Takes the padding out where it errs; ids: they tell it, and one id several times may be what the text says: then its
 * error would reach the tokens behind it. */
static enum ts_status leave_told(struct ts_pairer *pairer, const struct batch *batch, const char *name, bool ids,
                                 bool *done, struct ts_error *error)
{
    bool junk, wrong;
    TS_TRY(look_at_rows(pairer, batch, &junk, &wrong, error));
    *done = junk && !(ids && wrong);
    if (!*done)
        return TS_OK;
    TS_TRY(ts_pairer_note(pairer, error,
                          "%s shows that %" PRIu64 " of %" PRIu64
                          " rows are padding: their values differ and were not compared",
                          name, batch->all, batch->sequences * batch->rows));
    return pack_all(pairer, batch, error);
}

/* One tensor that may be a mask: [sequences, rows] only under a name that says what of. */
static enum ts_status read_told(struct ts_pairer *pairer, const char *name, const struct ts_view *view,
                                struct batch *batch, bool *told, struct ts_error *error)
{
    struct ts_arena arena; /* a model may have a mask for every layer */
    enum ts_status status;
    struct mask mask;
    *told = false;
    if (!ts_ends_with(name, "mask") || !is_mask(view, &mask) ||
        (view->rank == 2 && !ts_ends_with(name, "attention_mask") && !ts_ends_with(name, "padding_mask") &&
         !ts_ends_with(name, "attn_mask")))
        return TS_OK;
    *batch = (struct batch){.sequences = mask.sequences, .rows = mask.rows};
    batch->pads = ts_arena_array(&pairer->scratch, (size_t)mask.sequences, sizeof *batch->pads);
    if (!batch->pads)
        return ts_fail_memory(error);
    ts_arena_init(&arena, (size_t)1 << 20);
    status = read_mask(view, &mask, &arena, error);
    for (int behind = 0; behind < 2 && status == TS_OK && !*told; behind++) {
        batch->behind[0] = batch->behind[1] = behind;
        *told = is_masked(&mask, behind, batch);
    }
    ts_arena_release(&arena);
    return status;
}

static bool same_padding(const struct batch *one, const struct batch *other)
{
    return one->sequences == other->sequences && one->rows == other->rows && one->behind[0] == other->behind[0] &&
           memcmp(one->pads, other->pads, (size_t)one->sequences * sizeof *one->pads) == 0;
}

/* Whether it is other padding than that of the mask before: the masks of all layers tell the same. */
static bool is_news(const struct batch *batch, struct batch *before)
{
    const bool news = !before->pads || !same_padding(batch, before);
    *before = *batch;
    return news;
}

/* Masks of both sides that hide the same, whatever they are written with. */
static enum ts_status find_masks(struct ts_pairer *pairer, struct batch *before, bool *done, struct ts_error *error)
{
    for (size_t i = 0; i < pairer->count && !*done; i++) {
        const struct ts_pair *pair = &pairer->found[i].pair;
        struct batch batch, other;
        bool told;
        if (pair->problem || !ts_view_same_shape(&pair->a, &pair->b))
            continue;
        TS_TRY(read_told(pairer, pair->name, &pair->a, &batch, &told, error));
        if (told)
            TS_TRY(read_told(pairer, pair->name, &pair->b, &other, &told, error));
        if (told && same_padding(&batch, &other) && is_news(&batch, before))
            TS_TRY(leave_told(pairer, &batch, pair->name, false, done, error));
    }
    return TS_OK;
}

/* A mask that only one side was captured with. */
static enum ts_status find_lone_masks(struct ts_pairer *pairer, struct batch *before, bool *done,
                                      struct ts_error *error)
{
    for (int s = 0; s < 2; s++) {
        const struct ts_side *side = s ? &pairer->b : &pairer->a;
        for (size_t i = 0; i < side->count && !*done; i++) {
            struct batch batch;
            struct ts_view view;
            bool told;
            if (side->taken[i] || !ts_ends_with(side->names[i], "mask"))
                continue;
            if (!ts_view_of(side->bundle->tensors[i], &pairer->scratch, &view))
                return ts_fail_memory(error);
            TS_TRY(read_told(pairer, side->names[i], &view, &batch, &told, error));
            if (told && is_news(&batch, before))
                TS_TRY(leave_told(pairer, &batch, side->names[i], false, done, error));
        }
    }
    return TS_OK;
}

static enum ts_status find_ids(struct ts_pairer *pairer, bool *done, struct ts_error *error)
{
    for (size_t i = 0; i < pairer->count && !*done; i++) {
        const struct ts_pair *pair = &pairer->found[i].pair;
        struct glance glance;
        struct batch batch;
        bool told;
        if ((!ts_ends_with(pair->name, "input_ids") && !ts_ends_with(pair->name, "token_ids")) || !is_batch(pair) ||
            pair->a.rank != 2)
            continue;
        if (!open_batch(pairer, pair, &batch))
            return ts_fail_memory(error);
        TS_TRY(take_glance(pair, &glance, error));
        told = memcmp(glance.values[0], glance.values[1], (size_t)pair->a.count * sizeof(double)) == 0;
        for (int behind = 0, found = 0; told && behind < 2 && !found; behind++) {
            batch.behind[0] = batch.behind[1] = behind;
            found = is_filled(&glance, behind, &batch);
            told = found || !behind;
        }
        close_glance(&glance);
        if (told)
            TS_TRY(leave_told(pairer, &batch, pair->name, true, done, error));
    }
    return TS_OK;
}

enum ts_status ts_leave_padding(struct ts_pairer *pairer, struct ts_error *error)
{
    struct batch told = {0};
    bool done = false;
    TS_TRY(find_moved(pairer, &done, error));
    if (!done)
        TS_TRY(find_masks(pairer, &told, &done, error));
    if (!done)
        TS_TRY(find_lone_masks(pairer, &told, &done, error));
    return done ? TS_OK : find_ids(pairer, &done, error);
}
