/* Owns what single heads of a context may have gone through, in numbers and in words. */
#include "diagnose/attention_pieces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The token whose numbers stand in a row. */
static size_t token_of(const struct ts_piece *piece, size_t row, size_t rows)
{
    const size_t by = (size_t)labs(piece->by);
    if (piece->fate == TS_PIECE_TURNED)
        return (piece->by < 0 ? row + by : row + rows - by) % rows;
    return piece->by < 0 ? (row + by < rows ? row + by : row) : row < by ? row : row - by;
}

static double number_of(const struct ts_piece *piece, const struct ts_context *right, size_t row, size_t i)
{
    const size_t width = right->width, size = width / piece->pieces;
    const size_t own = piece->piece * size, other = piece->other * size;
    const double *line = right->values + row * width;
    switch (piece->fate) {
    case TS_PIECE_TIMES:
        return piece->factor * line[own + i];
    case TS_PIECE_ROLLED:
        return line[own + (i + size - (size_t)piece->by) % size];
    case TS_PIECE_REVERSED:
        return line[own + size - 1 - i];
    case TS_PIECE_SHIFTED:
    case TS_PIECE_TURNED:
        return right->values[token_of(piece, row, right->listed) * width + own + i];
    case TS_PIECE_EXCHANGED:
    case TS_PIECE_COPIED:
        return line[other + i];
    default:
        return 0;
    }
}

bool ts_piece_apply(const struct ts_piece *piece, const struct ts_context *right, double *out, double *apart)
{
    const size_t width = right->width, size = width / piece->pieces, own = piece->piece * size;
    const bool elsewhere = piece->fate == TS_PIECE_ELSEWHERE, alone = piece->fate == TS_PIECE_ALONE;
    for (size_t k = 0; k < right->listed; k++) {
        const size_t row = right->list[k], at = row * width;
        const double *from = right->values + at;
        if (alone)
            memset(out + at, 0, width * sizeof *out);
        else
            memcpy(out + at, from, width * sizeof *out);
        if (elsewhere) {
            memset(apart + at, 0, width * sizeof *out);
            memcpy(apart + at + own, from + own, size * sizeof *out);
        }
        for (size_t i = own; i < own + size; i++)
            out[at + i] = alone ? from[i] : number_of(piece, right, row, i - own);
        if (piece->fate == TS_PIECE_EXCHANGED)
            memcpy(out + at + piece->other * size, from + own, size * sizeof *out);
    }
    return elsewhere;
}

const char *ts_piece_id(const struct ts_piece *piece)
{
    switch (piece->fate) {
    case TS_PIECE_TIMES:
        return piece->factor == -1 ? "sign-flipped" : "scaled";
    case TS_PIECE_ROLLED:
    case TS_PIECE_REVERSED:
    case TS_PIECE_EXCHANGED:
        return "permuted";
    case TS_PIECE_SHIFTED:
    case TS_PIECE_TURNED:
        return "shifted";
    case TS_PIECE_ELSEWHERE:
    case TS_PIECE_COPIED:
        return "heads";
    default:
        return "term-missing";
    }
}

static void say_fate(const struct ts_piece *piece, bool head, char *text, size_t room)
{
    const char *what = head ? "head" : "piece";
    switch (piece->fate) {
    case TS_PIECE_ALONE:
        snprintf(text, room, "%s %zu alone counts", what, piece->piece);
        break;
    case TS_PIECE_ELSEWHERE:
        snprintf(text, room,
                 "%s %zu alone is wrong: it counts, but its numbers stand in another order or meet other weights", what,
                 piece->piece);
        break;
    case TS_PIECE_TIMES:
        if (piece->factor == -1)
            snprintf(text, room, "%s %zu has the other sign", what, piece->piece);
        else
            snprintf(text, room, "%s %zu is %s%.2g times what it should be", what, piece->piece,
                     piece->factor == 0.5 || piece->factor == 2 ? "" : "about ", piece->factor);
        break;
    case TS_PIECE_ROLLED:
        snprintf(text, room, "the numbers of %s %zu are rolled by %ld of %s", what, piece->piece, piece->by,
                 head ? "head_dim" : "its width");
        break;
    case TS_PIECE_REVERSED:
        snprintf(text, room, "the numbers of %s %zu stand in reverse order", what, piece->piece);
        break;
    case TS_PIECE_SHIFTED:
    case TS_PIECE_TURNED:
        snprintf(text, room, "%s %zu is one token %s: each token has that of the token %s it", what, piece->piece,
                 piece->by > 0 ? "late" : "early", piece->by > 0 ? "before" : "after");
        break;
    case TS_PIECE_EXCHANGED:
        snprintf(text, room, "%ss %zu and %zu are exchanged", what, piece->piece, piece->other);
        break;
    case TS_PIECE_COPIED:
        snprintf(text, room, "%s %zu holds a copy of %s %zu", what, piece->piece, what, piece->other);
        break;
    default:
        snprintf(text, room, "%s %zu is missing", what, piece->piece);
    }
}

void ts_piece_say(const struct ts_piece *piece, size_t heads, size_t served, char *text, size_t room)
{
    const bool lacks = piece->fate == TS_PIECE_MISSING || piece->fate == TS_PIECE_ALONE;
    const size_t half = piece->piece % 2;
    char fate[160];
    say_fate(piece, piece->pieces == heads, fate, sizeof fate);
    if (piece->pieces == heads)
        snprintf(text, room, "of the %zu heads of the context, %s", heads, fate);
    else if (piece->pieces == 2 * heads)
        snprintf(text, room, "of the %zu heads of the context, the %s half of head %zu is missing", heads,
                 half ? "second" : "first", piece->piece / 2);
    else
        snprintf(text, room, "of %zu equal pieces of the context%s, %s%s", piece->pieces,
                 !lacks && piece->pieces == served ? ", one for each key head" : "", fate,
                 lacks ? ": what one rank adds" : "");
}
