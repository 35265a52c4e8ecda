/* Row match: rows found again by what they hold, wherever they stand, though noise went over them.
 *
 * A row is known by its signs, up to TS_ROW_SIGNS of its numbers spread over its length, and is the row of the
 * reference whose signs are nearest. Where a second one is nearly as near, which of them it is cannot be told
 * (`ambiguous`): then it stays if its own place is as good, else it goes on behind the row before it, else it is the
 * nearest, the first of equal ones. Signs alone are no proof: a row may differ in all its other numbers, and whoever
 * takes it for found measures what is left of it, as ts_row_match_open does.
 *
 * Limits: the nearest is the true one in up to some two thousand rows. In more, a row that is wanted is compared with
 * some of those whose keys (sums of signs) are nearest to its own, 192 at the least; noise may push the right one out
 * of their reach, and then it is not found. No more than that are compared, so work grows as the rows do. */
#ifndef TS_COMPARE_ROW_MATCH_H
#define TS_COMPARE_ROW_MATCH_H

#include "pair/pair.h"

#define TS_ROW_SIGNS 24

/* Where sign k of a row of `width` numbers stands, of `signs` that it has. */
size_t ts_row_sign_at(size_t k, size_t signs, size_t width);

/* The rows of a reference, by their signs. */
struct ts_row_book {
    size_t count, signs;
    const double *numbers; /* [count, signs], the caller's, finite or never near anything */
    struct ts_row_key *order;
    double spread; /* how far apart keys may be, squared, of signs that are 1 apart */
};

struct ts_row_found {
    size_t row; /* SIZE_MAX: none is near */
    bool ambiguous;
};

/* False when there is no memory. To be released either way. */
bool ts_row_book_open(struct ts_row_book *book, const double *numbers, size_t count, size_t signs);
void ts_row_book_release(struct ts_row_book *book);
/* How far a row is from these signs, squared. */
double ts_row_book_distance(const struct ts_row_book *book, const double *signs, size_t row);
/* The row with these signs, from which it is nearer than `limit`, squared. own: its place; before: the row that the one
 * before it was, SIZE_MAX when that is not known. taken: rows that it cannot be any more, or NULL. */
struct ts_row_found ts_row_book_find(const struct ts_row_book *book, const double *signs, double limit, size_t own,
                                     size_t before, const bool *taken);

/* What counts as the same row, measured on all of its numbers. */
struct ts_row_rule {
    double close; /* so much of the row's energy may be left, */
    double floor; /* and so much of that of a row of ordinary size */
    size_t lost;  /* so many rows may be found nowhere: with more of them the search is given up */
    bool once;    /* each row of the reference is one of the candidate's, no more */
};

/* A row of the candidate. */
struct ts_row_matched {
    size_t from;         /* the row of the reference that it is, SIZE_MAX: none of them */
    bool ambiguous;      /* or as well another one */
    double left, energy; /* squares of what is left, and of the row of the reference */
};

/* Both sides of a pair of at most four million numbers, row by row (the last axis), and what was found. */
struct ts_row_match {
    size_t count, width;
    float *a, *b;
    struct ts_row_matched *rows;
    size_t found, moved; /* how many were found, and how many of those in another place */
    size_t blank; /* of groups: rows with NaN or infinities that were not, where as many of the reference's are such */
};

/* How many rows a pair has; 0 where it is too large, complex, or has no rows of four numbers and more. */
size_t ts_row_match_count(const struct ts_pair *pair);
/* False when there are none, they cannot be read, or too many are lost. To be released either way. */
bool ts_row_match_open(struct ts_row_match *match, const struct ts_pair *pair, const struct ts_row_rule *rule);
/* The same where it is known which rows belong together: each row of the candidate is one of the reference's in its
 * group, the nearest that no other took, whatever is left of it, as long as that is finite. Groups of each side's rows:
 * numbers below their count; as many rows of each on both sides. */
bool ts_row_match_within(struct ts_row_match *match, const struct ts_pair *pair, const size_t *groups_a,
                         const size_t *groups_b);
void ts_row_match_release(struct ts_row_match *match);

#endif
