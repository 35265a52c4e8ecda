/* Formula: how a claim predicts the candidate's rows, whatever rows they are, with the numbers it was found with.
 * Internal to src/diagnose.
 *
 * A case of a large tensor holds some of its rows. A family that says by which formula it made a prediction has it put
 * to all of them (prove.c): nothing is fitted again there but what the claim itself leaves open for every row. A
 * formula belongs to the next proposal, which it must predict: one that does not, on the rows it was found on, is not
 * used. Without a formula a claim is tried by asking its family again, on some of the rows. */
#ifndef TS_DIAGNOSE_FORMULA_H
#define TS_DIAGNOSE_FORMULA_H

#include <stdint.h>

#include "diagnose/family.h"

#define TS_TALLY_SUMS   18
#define TS_TALLY_PLACES 4

/* An element of the pair. */
struct ts_tally_place {
    uint64_t row, flat; /* as people count them, and in the pair's own shape; UINT64_MAX where that cannot be told */
    size_t column;
    double found, expected;
};

/* What a claim counts up over all rows: a tally of some rows and one of those behind them make one of both. */
struct ts_tally {
    double sums[TS_TALLY_SUMS];
    double least, most;
    struct ts_tally_place places[TS_TALLY_PLACES]; /* the first ones, in order */
    size_t place_count;
};

struct ts_everywhere;
struct ts_product;

/* Multiplications that a proof may take in f32, many rows together: attention of 24576 tokens by 4096 numbers on both
 * sides, in half a minute on two cores. From how many on products with a few directions do in place of whole contexts;
 * and those of claims behind one that holds everywhere. */
#define TS_PARTS_WORK  3e12
#define TS_WHOLE_WORK  1.5e12
#define TS_WEAKER_WORK 1e11

/* Rows of the pair that are predicted one part of their columns after the other. */
#define TS_PARTS_ROWS 96
struct ts_stretch {
    uint64_t first;
    size_t rows; /* at most TS_PARTS_ROWS, of one sequence */
};

/* Some columns of the rows of a stretch: `count` numbers from `first` on, in out + row * stride. With directions,
 * [count, direction_count], out is products of those numbers with them, whose squares stand for theirs. */
struct ts_columns {
    size_t first, count;
    const double *out;
    size_t stride;
    const double *directions;
    size_t direction_count;
};
/* Takes some parts of the rows of a stretch, in the order of their columns. Called from several threads, for each
 * stretch from one at a time. */
typedef bool ts_take_columns(void *context, uint64_t stretch, const struct ts_columns *parts, size_t count);

struct ts_formula {
    /* Fills out for the case's rows; called from several threads, each with a case of its own. False when it cannot.
     * Tensors that the formula names are in the case's scene; nothing else is but the inputs of its operation. */
    bool (*predict)(struct ts_case *the_case, const struct ts_formula *formula, double *out);
    /* Adds the case's rows to the tally; out is what was predicted, NULL without a predictor. A finding has no
     * prediction, and is put to every element by counting alone. False when it cannot. Threads as above. */
    bool (*count)(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                  struct ts_tally *tally);
    /* In place of predicting stretch by stretch, where each would have to read all of its sequence: all of them at
     * once, on every processor. few: products with a few directions will do. False when it cannot, and then nothing is
     * lost. Beside `predict`. */
    bool (*predict_parts)(struct ts_case *the_case, const struct ts_formula *formula,
                          const struct ts_stretch *stretches, size_t count, bool few, ts_take_columns *take,
                          void *context);
    double work_few; /* as `work`, where products with a few directions will do */
    /* Beside `predict`, where a row is a weight times an input: which product that is, and what it is given in the
     * case's rows, in its own order; input->b is to be freed. Of many rows products with random directions are compared
     * (directions.h), which takes next to no work. Threads as above. */
    bool (*product)(struct ts_case *the_case, const struct ts_formula *formula, struct ts_product *product,
                    struct ts_actor *input);
    /* In place of counting in stretches: puts the claim to as many rows as can be done in a few seconds, on every
     * processor, where a stretch would have to read all of the sequence; fills the tally, the sums and how many rows
     * those were. False when it cannot. */
    bool (*count_at_once)(struct ts_case *the_case, const struct ts_formula *formula, struct ts_everywhere *all);
    /* The summary with the tally's numbers, NULL: it stays; share is the confidence, which of a finding may fall. */
    const char *(*tell)(struct ts_case *the_case, const struct ts_formula *formula, const struct ts_tally *tally,
                        double *share);
    const void *numbers; /* of the predictor; copied */
    size_t size;
    const double *table; /* copied */
    size_t table_count;
    size_t pairs[3]; /* earlier tensors that it reads, beside the inputs of the case's operation */
    unsigned pair_count;
    bool reference; /* of the earlier tensors the reference's side is wanted as well */
    bool proved;    /* there is no predictor: the family has put the claim to every element itself */
    size_t told_by; /* there is no predictor: so many rows of the case told it; 0: all */
    bool sampled;   /* the family looked at some rows of the case alone: it is counted even where those are all */
    bool exact;     /* a prediction of the last bit: counted are the elements that are equal */
    double work;    /* multiplications for a row, where they are far more than its numbers */
};

void ts_tally_open(struct ts_tally *tally);
/* What comes behind is added to what is before. */
void ts_tally_add(struct ts_tally *tally, const struct ts_tally *behind);
/* Element i of the case is one of the first that are told. */
void ts_tally_place(struct ts_tally *tally, const struct ts_case *the_case, size_t i);

/* A counter: products of what was found with what was expected, and of each with itself, over finite numbers. */
enum ts_related { TS_RELATED_DOT, TS_RELATED_EXPECTED, TS_RELATED_FOUND, TS_RELATED_COUNT };
bool ts_count_related(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                      struct ts_tally *tally);

/* Of `count` settings, of the formula's size each, the one whose prediction explains the most and more than `least`;
 * the formula has its numbers then, and `out` what it predicts. NULL when there is none. */
const void *ts_formula_best(struct ts_case *the_case, struct ts_formula *formula, const void *ways, size_t count,
                            double least, double *out);

/* The next proposal is made by this. Families that say nothing are asked again. */
void ts_formula_next(struct ts_case *the_case, const struct ts_formula *formula);

/* factor * expected + offset */
void ts_formula_affine(struct ts_case *the_case, double factor, double offset);
/* The same for each number of a row. NULL: factors of one, offsets of zero. */
void ts_formula_channels(struct ts_case *the_case, const double *factors, const double *offsets);
/* A factor for each row (or head of a row), or an offset, fitted to it. Where those that were found are all but the
 * same, from low to high, it is one of them or none. */
void ts_formula_rows(struct ts_case *the_case, bool heads, bool offset, double low, double high);
/* What the reference holds in a tensor of the same shape. */
void ts_formula_other(struct ts_case *the_case, size_t pair);
/* Where the rows stand that the candidate holds: so many further on, the last one first, or in blocks of that length,
 * of which block b is the reference's from[b], or nothing but zeros. What is beyond the end may be anything, unless it
 * goes on at the beginning. */
#define TS_ROWS_PLACES 256
#define TS_ROWS_EMPTY  (SIZE_MAX - 1)
struct ts_rows_moved {
    int64_t step;
    bool around, reversed;
    size_t length;
    size_t from[TS_ROWS_PLACES];
};
void ts_formula_moved(struct ts_case *the_case, const struct ts_rows_moved *moved);
/* Numbers of the candidate's rows of an earlier, wider tensor: number i is the one at order[i]. */
void ts_formula_slices(struct ts_case *the_case, size_t pair, const size_t *order);
/* The expected values so many times, plus the candidate's earlier tensors so many times each. */
void ts_formula_sum(struct ts_case *the_case, double expected, const size_t *pairs, const double *times,
                    unsigned count);
/* Another operation, or one on other inputs, of the candidate's own values. */
void ts_formula_operation(struct ts_case *the_case, const struct ts_operation *operation);
/* The numbers of a row in another order: number i is the expected one at order[i], or zero at SIZE_MAX. offsets: what
 * is added to each, or NULL. */
void ts_formula_order(struct ts_case *the_case, const size_t *order, const double *offsets);

/* Applies an operation to the candidate's values of the inputs in the case's scene. */
bool ts_formula_apply(struct ts_case *the_case, const struct ts_operation *operation, double *out);
/* Multiplications that it takes for a row where it is a product of captured tensors, else 0. */
double ts_operation_work(const struct ts_case *the_case, const struct ts_operation *operation);

#endif
