/* Which lines the table of the text report has: text_lines.c decides, text_table.c makes them. */
#ifndef TS_REPORT_TEXT_LINES_H
#define TS_REPORT_TEXT_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "report/report.h"

enum ts_line_kind {
    TS_LINE_ROW,
    TS_LINE_RUN,     /* pairs that agree, or that cannot be compared */
    TS_LINE_WAKE,    /* what differs after the first divergence and a few followers */
    TS_LINE_REST,    /* checkpoints: changed tensors beyond those that are shown */
    TS_LINE_ROUNDED, /* checkpoints: those that only rounding changed */
    TS_LINE_SAME     /* checkpoints: those that are unchanged */
};

struct ts_line {
    enum ts_line_kind kind;
    size_t first, last; /* pairs; for the last three kinds how many, and the pair with the largest error */
};

/* Judged ok or noise. */
bool ts_pair_agrees(const struct ts_comparison *comparison, size_t index);

/* The lines, to be freed; NULL without memory. */
struct ts_line *ts_list_lines(const struct ts_comparison *comparison, const struct ts_report_options *options,
                              size_t *count);

#endif
