/* Tables of products between tokens, where the projection behind attention is not known: a matrix without preference
 * for directions keeps them, so that the difference between two outputs has about those of the difference between two
 * contexts. Internal to src/diagnose. */
#ifndef TS_DIAGNOSE_ATTENTION_TABLES_H
#define TS_DIAGNOSE_ATTENTION_TABLES_H

#include "diagnose/attention_chain.h"
#include "diagnose/formula.h"

/* The product of two rows. */
double ts_product_of(const double *x, const double *y, size_t width);
/* Products of the rows of x with those of y, [tokens, tokens]. */
void ts_products_of(const double *x, const double *y, size_t tokens, size_t width, bool centred, double *out);
/* The cosine between two tables. */
double ts_table_cosine(const double *a, const double *b, size_t tokens);

/* What a hypothesis makes of some tokens, and what was found of them. */
struct ts_tables {
    double *moved, *moved_found;     /* products of the difference with itself */
    double *crossed, *crossed_found; /* of what it should be with the difference */
};

/* Adds tables of some tokens to sums, of which there are TS_TALLY_SUMS. sizes: what the products of the reference's
 * context with itself are, per token; NULL where nothing need be known about chance. */
void ts_tables_add(const struct ts_tables *tables, const double *sizes, size_t tokens, double *sums);
/* The sums are of products that so many random directions stand for: those add chance of their own. */
void ts_tables_direct(double *sums, double directions);
/* How alike they are, 0 to 1. */
double ts_tables_likeness(const double *sums);
/* The same as it would be if the projection added nothing of its own to products. Far down a long sequence tokens are
 * moved in all directions, and a projection to so many numbers hides what is left of their products: then those count
 * for less. */
double ts_tables_fair(const double *sums, double width);

/* Whether outputs stand to each other as contexts do, [tokens, wide] both, which are spoilt: expected and found as own
 * and context, by products of their tokens once what the tokens of each have in common is taken out. They are chance
 * for contexts that have nothing to do with it, and what chance makes is seen where channels have signs drawn at
 * random. 0 when it is no more than that, else how alike they are. */
double ts_relation(double *own, double *context, size_t wide, const double *expected, const double *found, size_t width,
                   size_t tokens);

/* These are in attention_moves.c. The claim that a chain moves the tokens as they were moved, for every row of the
 * pair: `wrong` is the candidate's, `right` the reference's. before: the words. */
struct ts_moves {
    struct ts_chain wrong, right;
    const char *before;
    double modesty; /* what is taken off the likeness to be the confidence */
    double sure;    /* it is known otherwise: the confidence where likeness does not speak against it; 0: it is not */
};
const char *ts_moves_text(struct ts_case *the_case, const char *before, double likeness);
/* The next proposal is that claim; nothing is given where it cannot be put to other rows. sampled: as in formulas.
 * held: how many numbers of queries, keys and values may be held at once; longer sequences are done head by head. */
#define TS_MOVES_HELD ((size_t)1 << 21)
void ts_give_moves(struct ts_case *the_case, const struct ts_moves *moves, bool sampled, size_t held);
/* The next proposal is what the chain makes of the candidate's operands. */
void ts_give_chain(struct ts_case *the_case, const struct ts_chain *chain);

#endif
