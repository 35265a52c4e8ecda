/* Owns the exports: the reports of the command line, and the map. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/source.h"
#include "report/report.h"
#include "serve/handlers.h"
#include "serve/mappings.h"
#include "serve/opened.h"
#include "serve/server.h"

/* False after failing the call: one side alone has no report. */
static bool take_options(struct ts_call *call, struct ts_report_options *options)
{
    const struct ts_opened *opened = call->opened;
    *options = (struct ts_report_options){.diagnosis = opened->diagnosed ? &opened->diagnosis : NULL,
                                          .tolerance = opened->tolerance_given ? &opened->tolerance : NULL};
    if (!opened->compared)
        ts_call_fail(call, 409, "upload the other side", "there is only one side: nothing was compared");
    return opened->compared;
}

static void attach(struct ts_call *call, const char *type, const char *name)
{
    call->status = 200;
    call->type = type;
    ts_call_header(call, "Content-Disposition", "attachment; filename=\"%s\"", name);
}

/* The elements [offset, offset + limit) of the list under "tensors"; everything else stays. */
static enum ts_status cut_tensors(struct ts_buffer *text, uint64_t offset, uint64_t limit, struct ts_error *error)
{
    struct ts_json json;
    struct ts_buffer out;
    size_t first = 0, last = 0, begin, end;
    ts_json_init(&json, text->data, text->size);
    TS_TRY(ts_json_expect(&json, TS_JSON_OBJECT, "an object", error));
    for (;;) {
        TS_TRY(ts_json_next(&json, error));
        if (json.kind == TS_JSON_OBJECT_END)
            return TS_OK;
        if (ts_json_equals(&json, "tensors"))
            break;
        TS_TRY(ts_json_skip_value(&json, error));
    }
    TS_TRY(ts_json_expect(&json, TS_JSON_ARRAY, "a list", error));
    begin = json.offset + 1;
    for (uint64_t i = 0;; i++) {
        TS_TRY(ts_json_next(&json, error));
        if (json.kind == TS_JSON_ARRAY_END)
            break;
        if (i == offset)
            first = json.offset;
        TS_TRY(ts_json_skip_value(&json, error));
        if (i >= offset && i - offset < limit)
            last = json.offset + 1;
    }
    end = json.offset;
    ts_buffer_init(&out, text->limit);
    ts_buffer_append(&out, text->data, begin);
    if (first && last > first)
        ts_buffer_append(&out, text->data + first, last - first);
    ts_buffer_append(&out, text->data + end, text->size - end);
    ts_buffer_release(text);
    *text = out;
    return TS_OK;
}

void ts_handle_report(struct ts_call *call)
{
    struct ts_report_options options;
    struct ts_json_writer *json;
    struct ts_error error;
    uint64_t offset = 0, limit = UINT64_MAX;
    if (!ts_call_count(call, "offset", UINT64_MAX, &offset) || !ts_call_count(call, "limit", UINT64_MAX, &limit) ||
        !take_options(call, &options))
        return;
    json = ts_call_json(call, 200);
    ts_report_json(&call->opened->comparison, &options, json);
    ts_json_finish(json);
    if ((offset || limit != UINT64_MAX) && !call->out.failed && cut_tensors(&call->out, offset, limit, &error) != TS_OK)
        ts_call_error(call, &error);
}

void ts_handle_report_json(struct ts_call *call)
{
    ts_handle_report(call);
    if (call->status == 200)
        attach(call, "application/json", "report.json");
}

void ts_handle_report_html(struct ts_call *call)
{
    struct ts_report_options options;
    struct ts_error error;
    if (!take_options(call, &options))
        return;
    attach(call, "text/html; charset=utf-8", "report.html");
    if (ts_report_html(&call->opened->comparison, &options, &call->out, &error) != TS_OK)
        ts_call_error(call, &error);
    ts_opened_forget_pages(call->opened);
}

void ts_handle_report_csv(struct ts_call *call)
{
    struct ts_report_options options;
    if (!take_options(call, &options))
        return;
    attach(call, "text/csv; charset=utf-8", "report.csv");
    ts_report_csv(&call->opened->comparison, &options, &call->out);
}

void ts_handle_report_junit(struct ts_call *call)
{
    struct ts_report_options options;
    if (!take_options(call, &options))
        return;
    attach(call, "application/xml", "report.xml");
    ts_report_junit(&call->opened->comparison, &options, &call->out);
}

/* Maps are written to files; this one is read back and removed. */
void ts_handle_map(struct ts_call *call)
{
    struct ts_report_options options;
    struct ts_pairing pairing;
    struct ts_source *source;
    struct ts_error error;
    char path[4200];
    if (!take_options(call, &options))
        return;
    if (ts_mappings_pairing(call->opened, &pairing, &error) != TS_OK) {
        ts_call_error(call, &error);
        return;
    }
    snprintf(path, sizeof path, "%s/%s/map-%p.txt", call->server->store.folder, call->workspace->id, (void *)call);
    if (ts_pairing_save(&pairing, path, &error) != TS_OK || ts_source_open(path, &source, &error) != TS_OK) {
        ts_call_error(call, &error);
    } else {
        attach(call, "text/plain; charset=utf-8", "map.txt");
        ts_buffer_append(&call->out, source->data, (size_t)source->size);
        ts_source_release(source);
    }
    unlink(path);
    ts_mappings_pairing_release(&pairing);
}
