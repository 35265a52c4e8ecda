/* The parts of the HTML report. Each appends markup that needs nothing from outside the page. */
#ifndef TS_REPORT_HTML_H
#define TS_REPORT_HTML_H

#include "report/report.h"

/* Names wider than this are shortened in the middle: a page must not grow with one hostile name. */
#define TS_HTML_NAME 160

extern const char ts_html_style[], ts_html_script[];
extern const char *const ts_html_classes[]; /* of the verdicts */

struct ts_page {
    const struct ts_comparison *comparison;
    const struct ts_report_options *options;
    struct ts_buffer *out;
};

void ts_page_put(const struct ts_page *page, const char *markup); /* as it is */
void ts_page_text(const struct ts_page *page, const char *text);  /* escaped */
void ts_page_name(const struct ts_page *page, const char *name);  /* escaped, and shortened */

/* Relative L2 of each pair along execution order, on a logarithmic scale. Points lead to the rows "t<index>". */
void ts_put_html_chart(struct ts_buffer *out, const struct ts_comparison *comparison);
/* Reference, candidate and difference of the worst pairs, and their error along each axis. */
enum ts_status ts_put_html_heatmaps(struct ts_buffer *out, const struct ts_comparison *comparison,
                                    struct ts_error *error);

/* A row for each pair; of checkpoints those that are unchanged share a line. */
enum ts_status ts_put_html_table(const struct ts_page *page, struct ts_error *error);

#endif
