/* Handlers: one function per address of the API, listed in api.c. */
#ifndef TS_SERVE_HANDLERS_H
#define TS_SERVE_HANDLERS_H

#include "serve/call.h"

void ts_handle_tensors(struct ts_call *call);
void ts_handle_tensor(struct ts_call *call);
void ts_handle_causes(struct ts_call *call);
void ts_handle_values(struct ts_call *call);
void ts_handle_stats(struct ts_call *call);
void ts_handle_worst(struct ts_call *call);
void ts_handle_scatter(struct ts_call *call);
void ts_handle_tile(struct ts_call *call);
void ts_handle_remap(struct ts_call *call);
void ts_handle_report(struct ts_call *call);
void ts_handle_report_html(struct ts_call *call);
void ts_handle_report_csv(struct ts_call *call);
void ts_handle_report_junit(struct ts_call *call);
void ts_handle_report_json(struct ts_call *call);
void ts_handle_map(struct ts_call *call);

#endif
