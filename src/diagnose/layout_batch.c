/* Owns sequences of a batch that stand in each other's place: guidance that takes its halves the other way round,
 * requests that were sorted, an index that is not advanced; and batch and tokens in each other's. A case may hold one
 * sequence, which has nothing to do with its own any more; so all of them are matched by content, and what comes out is
 * proved on everything. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare/row_match.h"
#include "diagnose/formula.h"
#include "diagnose/layout.h"

#define MOST_SEQUENCES 64
#define SIGNS          96   /* numbers by which a sequence is known */
#define LEAST_NUMBERS  16   /* of a sequence: fewer match by chance */
#define MATCHES        0.1  /* of what it is off from its own place, in energy */
#define PIECE          4096 /* numbers read at a time */

struct batch {
    struct ts_case *the_case;
    size_t count;    /* sequences */
    uint64_t length; /* numbers of one, side by side in both tensors */
    size_t from[MOST_SEQUENCES];
    size_t moved;
    uint64_t across; /* or tokens stand in this many columns of a matrix that is read by rows, and not in sequences */
};

/* The token of the reference that stands at this one's place. */
static uint64_t token_from(const struct batch *batch, uint64_t token)
{
    const struct ts_scene *scene = batch->the_case->scene;
    const uint64_t sequence = ts_scene_sequence(scene);
    if (batch->across)
        return token % batch->across * (scene->tokens / batch->across) + token / batch->across;
    return batch->from[token / sequence] * sequence + token % sequence;
}

/* False where sequences do not stand one behind the other. */
static bool open_batch(struct batch *batch, struct ts_case *the_case)
{
    const struct ts_scene *scene = the_case->scene;
    const struct ts_actor *actor = the_case->actor;
    const struct ts_pair *pair = ts_case_pair(the_case);
    struct ts_token_axis axis;
    *batch = (struct batch){.the_case = the_case};
    if (ts_case_direct(the_case) || ts_case_is_part(the_case) || actor->apart || scene->batch < 2 ||
        scene->batch > MOST_SEQUENCES || actor->rows != scene->taken_count || pair->a.count != pair->b.count ||
        pair->a.count % scene->batch || !ts_scene_axis(scene, actor->pair, &axis))
        return false;
    batch->count = (size_t)scene->batch;
    batch->length = pair->a.count / scene->batch;
    /* an axis of their own, or the first tokens of the axis of all tokens */
    return batch->length >= LEAST_NUMBERS &&
           (axis.sequence ? axis.length == batch->length
                          : axis.size == scene->tokens && axis.size * axis.after == pair->a.count);
}

static bool read_signs(const struct ts_view *view, uint64_t first, uint64_t length, double *signs)
{
    struct ts_error ignored;
    for (size_t i = 0; i < SIGNS; i++) {
        uint64_t at = (i * 0x9e3779b97f4a7c15u >> 11) % length;
        if (ts_view_read_f64(view, first + at, 1, &signs[i], &ignored) != TS_OK)
            return false;
        signs[i] = isfinite(signs[i]) ? signs[i] : 0;
    }
    return true;
}

/* Which sequence of the reference each one of the candidate holds; its own where no other is far nearer. */
static bool match_sequences(struct batch *batch)
{
    const struct ts_pair *pair = ts_case_pair(batch->the_case);
    double *signs = malloc(2 * batch->count * SIGNS * sizeof *signs);
    const double *found = signs ? signs + batch->count * SIGNS : NULL;
    struct ts_row_book book = {0};
    bool good = signs != NULL;
    for (size_t i = 0; i < 2 * batch->count && good; i++)
        good = read_signs(i < batch->count ? &pair->a : &pair->b, i % batch->count * batch->length, batch->length,
                          signs + i * SIGNS);
    good = good && ts_row_book_open(&book, signs, batch->count, SIGNS);
    for (size_t i = 0; i < batch->count && good; i++) {
        const double limit = MATCHES * ts_row_book_distance(&book, found + i * SIGNS, i);
        const size_t from = ts_row_book_find(&book, found + i * SIGNS, limit, i, SIZE_MAX, NULL).row;
        batch->from[i] = from == SIZE_MAX ? i : from;
        batch->moved += batch->from[i] != i;
    }
    ts_row_book_release(&book);
    free(signs);
    return good && batch->moved;
}

/* What is left of the error of the whole tensor, over what there is to explain; NaN when it cannot be read. */
static double left_of_all(const struct batch *batch)
{
    const struct ts_pair *pair = ts_case_pair(batch->the_case);
    double *values = malloc(3 * PIECE * sizeof *values), error = 0, left = 0, size = 0;
    const uint64_t together = batch->across ? pair->a.count / batch->the_case->scene->tokens : batch->length;
    bool good = values != NULL;
    for (uint64_t i = 0; i * together < pair->a.count && good; i++) {
        const uint64_t from = batch->across ? token_from(batch, i) : batch->from[i];
        for (uint64_t at = 0; at < together && good; at += PIECE) {
            const size_t count = (size_t)(together - at < PIECE ? together - at : PIECE);
            const uint64_t own = i * together + at;
            struct ts_error ignored;
            good = ts_view_read_f64(&pair->b, own, count, values, &ignored) == TS_OK &&
                   ts_view_read_f64(&pair->a, own, count, values + PIECE, &ignored) == TS_OK &&
                   ts_view_read_f64(&pair->a, from * together + at, count, values + 2 * PIECE, &ignored) == TS_OK;
            for (size_t k = 0; k < count && good; k++) {
                double off = values[k] - values[PIECE + k], rest = values[k] - values[2 * PIECE + k];
                error += isfinite(off) ? off * off : 0;
                left += isfinite(rest) ? rest * rest : 0;
                size += isfinite(values[k]) ? values[k] * values[k] : 0;
            }
        }
        if ((i + 1) * together % batch->length == 0) {
            ts_view_forget(&pair->a, 0, pair->a.count);
            ts_view_forget(&pair->b, 0, pair->b.count);
        }
    }
    free(values);
    error = size < error ? size : error;
    return good && error > 0 ? left / error : (double)NAN;
}

/* The reference's tokens that stand in the rows of the case. */
static bool predict(const struct batch *batch, double *prediction)
{
    struct ts_case *the_case = batch->the_case;
    const struct ts_scene *scene = the_case->scene;
    const size_t width = the_case->actor->width;
    float *row_values = malloc(width * sizeof *row_values);
    bool good = row_values != NULL;
    for (size_t row = 0; row < the_case->actor->rows && good; row++) {
        struct ts_error ignored;
        good = ts_scene_read(scene, the_case->actor->pair, false, token_from(batch, scene->taken[row]), 1, 0, width,
                             row_values, &ignored) == TS_OK;
        for (size_t i = 0; i < width && good; i++)
            prediction[row * width + i] = (double)row_values[i];
    }
    free(row_values);
    return good;
}

static bool is_permutation(const struct batch *batch)
{
    bool seen[MOST_SEQUENCES] = {false};
    for (size_t i = 0; i < batch->count; i++) {
        if (seen[batch->from[i]])
            return false;
        seen[batch->from[i]] = true;
    }
    return true;
}

/* "the two sequences of the batch are swapped" */
static const char *say(const struct batch *batch)
{
    struct ts_case *the_case = batch->the_case;
    size_t first = 0, halves = 0, reversed = 0;
    while (batch->from[first] == first)
        first++;
    for (size_t i = 0; i < batch->count; i++) {
        halves += batch->count % 2 == 0 && batch->from[i] == (i + batch->count / 2) % batch->count;
        reversed += batch->from[i] == batch->count - 1 - i;
    }
    if (!is_permutation(batch))
        return ts_case_text(the_case, "%zu of %zu sequences of the batch hold%s another one: the first, %zu, holds %zu",
                            batch->moved, batch->count, batch->moved == 1 ? "s" : "", first, batch->from[first]);
    if (batch->count == 2)
        return "the two sequences of the batch are swapped";
    if (batch->moved == 2)
        return ts_case_text(the_case, "sequences %zu and %zu of the batch are swapped", first, batch->from[first]);
    if (halves == batch->count)
        return ts_case_text(the_case, "the two halves of the batch are swapped (%zu sequences each)", batch->count / 2);
    if (reversed == batch->count)
        return ts_case_text(the_case, "the %zu sequences of the batch are in reverse order", batch->count);
    return ts_case_text(the_case,
                        "%zu of %zu sequences of the batch are out of place; the first: %zu holds what belongs at %zu",
                        batch->moved, batch->count, first, batch->from[first]);
}

/* What is left of all of it, or of the case, whichever is more; NaN where it is not explained so. */
static double left_by(const struct batch *batch, double *prediction)
{
    const double share = predict(batch, prediction) ? ts_explained(batch->the_case, prediction) : 0;
    const double left = share > 0 ? left_of_all(batch) : (double)NAN;
    return left < 2 * MATCHES ? fmax(left, 1 - share) : (double)NAN;
}

/* [tokens, batch, ...] read as [batch, tokens, ...], or the reverse. */
static void exchange(struct batch *batch, double *prediction)
{
    struct ts_case *the_case = batch->the_case;
    const struct ts_scene *scene = the_case->scene;
    const uint64_t sequence = ts_scene_sequence(scene);
    struct ts_token_axis axis;
    if (!ts_scene_axis(scene, the_case->actor->pair, &axis) ||
        axis.after * scene->tokens != batch->length * batch->count)
        return;
    for (int columns = 0; columns < 2; columns++) {
        const uint64_t across = columns ? sequence : scene->batch;
        double left;
        batch->across = across;
        left = left_by(batch, prediction);
        if (!(left >= 0))
            continue;
        ts_formula_next(the_case, &(struct ts_formula){.proved = true});
        ts_propose_measured(the_case, "permuted", left, 1,
                            ts_case_text(the_case,
                                         "whether the batch or the tokens come first where this is computed; to undo: "
                                         "reshape(%" PRIu64 ", %" PRIu64 ", %" PRIu64
                                         ").transpose(0, 1), then reshape back",
                                         scene->tokens / across, across, axis.after),
                            "batch and tokens are exchanged: stored as [%" PRIu64 ",%" PRIu64 ",...], read as [%" PRIu64
                            ",%" PRIu64 ",...]",
                            scene->tokens / across, across, across, scene->tokens / across);
        return;
    }
}

void ts_layout_batch(struct ts_case *the_case, double *prediction)
{
    struct batch batch;
    double left;
    if (!ts_case_wants(the_case, "") || !open_batch(&batch, the_case))
        return;
    exchange(&batch, prediction);
    batch.across = 0;
    if (!match_sequences(&batch))
        return;
    left = left_by(&batch, prediction);
    if (!(left >= 0))
        return;
    ts_formula_next(the_case, &(struct ts_formula){.proved = true});
    ts_propose_measured(the_case, "permuted", left, 1,
                        "the order of the batch: the two halves of guidance, sorted or gathered requests, a batch "
                        "index that does not advance",
                        "%s", say(&batch));
}
