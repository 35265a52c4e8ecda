/* Lines: rows or columns that are matched by content. Internal to match.c and match_say.c. */
#ifndef TS_DIAGNOSE_LINES_H
#define TS_DIAGNOSE_LINES_H

#include "compare/row_match.h"
#include "diagnose/formula.h"
#include "diagnose/match.h"

#define TS_LINE_BLOCKS 64
#define TS_LINE_CLOSE  0.1 /* of a line's energy may be left */

/* Lines of the domain: reference lines may be more than the case holds. */
struct ts_lines {
    struct ts_case *the_case;
    bool columns;
    const struct ts_view *view; /* NULL: the reference lines are those of the case, or of the scene */
    uint64_t view_columns;
    bool tokens;               /* the reference lines are all tokens of a long sequence */
    struct ts_token_axis axis; /* where those are */
    size_t count, found_count; /* reference lines, found lines */
    size_t signs;
    double *reference, *found; /* [count, signs] */
    struct ts_row_book book;   /* of the reference lines */
    size_t *from;              /* per found line: the reference line, SIZE_MAX when none is near */
    bool *empty;               /* per found line: nothing but zeros */
    size_t runs, moved, emptied;
    double *centres;   /* columns that are known by what is above or below their mean: that of each, in the reference
                          and in the candidate; else NULL */
    bool all;          /* every row of the pair is a found line, whether the case holds it or not */
    double left_share; /* then: what the matching leaves, over what there is to explain */
};

/* Which line of all of them a found one is. */
size_t ts_own_place(const struct ts_lines *lines, size_t line);
/* Signed distance a line has moved. */
int64_t ts_step_of(const struct ts_lines *lines, size_t line);
/* The candidate holds this token where it belongs. */
bool ts_is_in_place(const struct ts_lines *lines, size_t token);

/* What the lines show, in match_say.c. The common step of nearly all lines that moved, 0 when there is none. */
int64_t ts_common_step(const struct ts_lines *lines);
bool ts_is_reversed(const struct ts_lines *lines);
/* Of rows of which some are known: the length of blocks that moved as wholes, and where what each holds belongs; 0
 * when they do not. */
size_t ts_sampled_blocks(const struct ts_lines *lines, size_t *from);
/* Proposes it. prediction: of the lines that are in the case. */
void ts_lines_say(struct ts_lines *lines, const double *prediction);
/* The same for the blocks of a vector: block b holds what belongs at from[b]. */
void ts_blocks_say(struct ts_case *the_case, const size_t *from, size_t blocks, const double *prediction);

#endif
