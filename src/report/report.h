/* Report: what a comparison found, for people and for programs.
 *
 * Every form is written into memory; nothing is printed here. A buffer that ran out of room says so in its `failed`.
 * Names and sentences may hold any bytes from hostile files: each form escapes them in its own way. */
#ifndef TS_REPORT_REPORT_H
#define TS_REPORT_REPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/json.h"
#include "compare/comparison.h"
#include "diagnose/diagnose.h"
#include "report/layout.h"

enum ts_sort {
    TS_SORT_DEFAULT, /* what changed most first for checkpoints, execution order for traces */
    TS_SORT_ORDER,
    TS_SORT_NAME,
    TS_SORT_CHANGED, /* by the share of elements that changed, in whole percents, then by how much */
    TS_SORT_ERROR,   /* relative L2 */
    TS_SORT_SIZE
};

/* What making one side took, where this program has run it. */
struct ts_report_cost {
    double seconds;      /* 0: not known */
    uint64_t peak_bytes; /* of resident memory; 0: not known */
};

struct ts_report_options {
    bool all;                             /* text: every pair in a line of its own, every list in full */
    bool grades;                          /* EXCELLENT, GOOD, ACCEPTABLE, SIGNIFICANT */
    unsigned only;                        /* text: 1 << enum ts_judged of the rows to show; 0 for all */
    enum ts_sort sort;                    /* text, HTML: of the rows */
    size_t top;                           /* text: only that many rows, of traces the largest errors; 0 for all */
    const struct ts_diagnosis *diagnosis; /* of the first divergence, or NULL */
    const struct ts_report_cost *costs;   /* of A and of B, or NULL */
    const struct ts_tolerance *tolerance; /* the user's, or NULL when each pair was counted with that of its type */
};

/* A table in execution order, the first divergence and why, what was left out, and the verdict in the last line. */
void ts_report_text(const struct ts_comparison *comparison, const struct ts_report_options *options,
                    const struct ts_layout *layout, struct ts_buffer *out);
/* Schema tsleuth.report/1. Leaves ts_json_finish to the caller. */
void ts_report_json(const struct ts_comparison *comparison, const struct ts_report_options *options,
                    struct ts_json_writer *json);
/* One line per pair and per tensor without partner, RFC 4180. A text that a spreadsheet would take for a formula begins
 * with an apostrophe. */
void ts_report_csv(const struct ts_comparison *comparison, const struct ts_report_options *options,
                   struct ts_buffer *out);
/* One test case per pair: failures differ, errors could not be compared. */
void ts_report_junit(const struct ts_comparison *comparison, const struct ts_report_options *options,
                     struct ts_buffer *out);
/* One self-contained page. It reads the worst tensors again for their heat maps: what cannot be read is said in place
 * of the picture; the error is TS_ERR_CANCELLED or TS_ERR_MEMORY. */
enum ts_status ts_report_html(const struct ts_comparison *comparison, const struct ts_report_options *options,
                              struct ts_buffer *out, struct ts_error *error);

#endif
