/* Expectations: what the tensors of an input should look like, in a small text file.
 *
 *     # tensor or pattern              properties
 *     model.layers.*.attn_probs        shape [1,4,*,*]  range [0,1]  rows-sum 1 ±1e-3  entropy [0.2,1]
 *     img_in                           range [-15,16]  finite  norm 123 ±5%
 *     "a name with blanks"             dtype f32
 *     quant: blk.0.ffn_down.weight     relative-error-to ref.safetensors < 0.02
 *
 * Each property of each line is one expectation. docs/check.md has the whole language. */
#ifndef TS_CHECK_EXPECT_H
#define TS_CHECK_EXPECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/pool.h"
#include "base/progress.h"
#include "tensor/bundle.h"

enum ts_property {
    TS_PROPERTY_SHAPE,
    TS_PROPERTY_DTYPE,
    TS_PROPERTY_TENSORS, /* how many fit the pattern */
    TS_PROPERTY_FINITE,
    TS_PROPERTY_RANGE, /* all values */
    TS_PROPERTY_MIN,
    TS_PROPERTY_MAX,
    TS_PROPERTY_MEAN,
    TS_PROPERTY_STD,
    TS_PROPERTY_RMS,
    TS_PROPERTY_NORM,
    TS_PROPERTY_SUM,
    TS_PROPERTY_ZEROS,    /* share of zeros */
    TS_PROPERTY_SPARSITY, /* share below a hundredth of the largest of their row */
    TS_PROPERTY_ROWS_SUM, /* each row of the last axis */
    TS_PROPERTY_ENTROPY,  /* of rows as probabilities, over what is not zero; 1 for all alike; mean over rows */
    TS_PROPERTY_RELATIVE_ERROR,
    TS_PROPERTIES
};

/* Allowed values; strict bounds where `open`. */
struct ts_bounds {
    double low, high;
    bool low_open, high_open;
};

#define TS_ANY_SIZE UINT64_MAX

struct ts_expectation {
    size_t line, column;  /* from 1 */
    const char *label;    /* "quant", or NULL */
    const char *pattern;  /* or a name, when exact */
    bool exact, optional; /* optional: it may fit no tensor */
    enum ts_property property;
    const char *text; /* as written: "range [0,1]" */
    struct ts_bounds bounds;
    unsigned rank;             /* of a shape */
    uint64_t *shape;           /* TS_ANY_SIZE for "*" */
    const char *types;         /* of dtype: "f32,bf16" */
    const char *file, *tensor; /* of a relative error; tensor NULL: the same name */
};

struct ts_expect {
    struct ts_arena arena;
    struct ts_expectation *list;
    size_t count;
};

/* Errors say "line 3, column 12". */
enum ts_status ts_expect_parse(const void *text, size_t size, struct ts_expect *expect, struct ts_error *error);
void ts_expect_release(struct ts_expect *expect);
/* Whether a pattern fits a name: '*' any run, '?' any byte, '[a-z]' and '[!a-z]' one of a set. */
bool ts_expect_fits(const char *pattern, const char *name);
const char *ts_property_name(enum ts_property property);

enum ts_expected { TS_EXPECTED_PASS, TS_EXPECTED_FAIL, TS_EXPECTED_UNKNOWN };

struct ts_expect_result {
    enum ts_expected verdict;      /* unknown: some values could not be read, or are not in the input */
    size_t tensors, failed;        /* that fit the pattern; of them */
    double low, high;              /* measured, over all of them; NaN where nothing was */
    const struct ts_tensor *first; /* that failed, else NULL */
    double measured, measured_to;  /* of that one; for a range both ends */
    const char *why;               /* in words, where numbers do not tell; or NULL */
};

/* results: one per expectation. folder: where files of relative errors are, or NULL. Strings live in the arena. */
enum ts_status ts_expect_run(struct ts_pool *pool, const struct ts_bundle *bundle, const struct ts_expect *expect,
                             const char *folder, struct ts_expect_result *results, struct ts_arena *arena,
                             struct ts_progress *progress, struct ts_error *error);

/* Writes an expectation file from what the bundle holds, ranges wider by the share `margin` of their width. */
enum ts_status ts_expect_record(struct ts_pool *pool, const struct ts_bundle *bundle, double margin,
                                struct ts_buffer *out, struct ts_progress *progress, struct ts_error *error);

/* What a walk along the rows of the last axis tells. */
struct ts_rows {
    uint64_t rows, counted; /* counted: with two entries above zero, for the entropy */
    double least_sum, most_sum;
    double entropy, sparsity;
    bool measured;
};
enum ts_status ts_rows_measure(const struct ts_tensor *tensor, struct ts_rows *rows, struct ts_error *error);

#endif
