/* What may have become of some heads of a context, or of a piece that one rank holds, where all others are right.
 * Internal to src/diagnose: told by odds. */
#ifndef TS_DIAGNOSE_ATTENTION_PIECES_H
#define TS_DIAGNOSE_ATTENTION_PIECES_H

#include <stdbool.h>
#include <stddef.h>

enum ts_fate {
    TS_PIECE_MISSING,
    TS_PIECE_ALONE,     /* all others are */
    TS_PIECE_ELSEWHERE, /* it counts, but by other weights: its numbers are in another order, or the weights are */
    TS_PIECE_TIMES,     /* a factor */
    TS_PIECE_ROLLED,
    TS_PIECE_REVERSED,
    TS_PIECE_SHIFTED, /* that of a token nearby; the token at the end has its own */
    TS_PIECE_TURNED,  /* the same around the end */
    TS_PIECE_EXCHANGED,
    TS_PIECE_COPIED, /* that of another piece in its place */
};

struct ts_piece {
    enum ts_fate fate;
    size_t pieces, piece, other; /* of so many equal ones, which */
    double factor;
    long by; /* places or tokens */
};

/* [rows, width], of which these rows are looked at. */
struct ts_context {
    const double *values;
    const size_t *list;
    size_t listed, width;
};

/* What a candidate's product is given instead of the right context, in the same rows, and in `apart` what meets other
 * weights; whether there is any of that. Tokens nearby stand in the rows beside: all are looked at then. */
bool ts_piece_apply(const struct ts_piece *piece, const struct ts_context *right, double *out, double *apart);
const char *ts_piece_id(const struct ts_piece *piece);
/* heads: of the context. served: of keys and values. */
void ts_piece_say(const struct ts_piece *piece, size_t heads, size_t served, char *text, size_t room);

#endif
