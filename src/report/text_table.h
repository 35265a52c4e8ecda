/* The table of the text report: pairs in execution order, agreeing runs folded into one line each. */
#ifndef TS_REPORT_TEXT_TABLE_H
#define TS_REPORT_TEXT_TABLE_H

#include "report/report.h"

void ts_put_table(const struct ts_comparison *comparison, const struct ts_report_options *options,
                  const struct ts_layout *layout, struct ts_buffer *out);

#endif
