/* Owns the list of issues, the order of the families, and what the readers said already. */
#include "check/check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/system.h"
#include "base/text.h"
#include "check/check_internal.h"

/* Each id lists a hundred issues at most, so this is reached by absurdly long names only. */
#define TEXT_LIMIT ((size_t)256 << 20)

static struct ts_check_tally *tally_of(struct ts_checking *checking, const char *id, enum ts_severity severity)
{
    const size_t room = sizeof checking->tallies / sizeof *checking->tallies;
    struct ts_check_tally *tally = checking->tallies;
    for (size_t i = 0; i < checking->tally_count; i++, tally++)
        if (tally->severity == severity && strcmp(tally->id, id) == 0)
            return tally;
    if (checking->tally_count == room)
        return tally - 1;
    *tally = (struct ts_check_tally){.id = id, .severity = severity};
    checking->tally_count++;
    return tally;
}

static void append(struct ts_checking *checking, const char *id, enum ts_severity severity, const char *tensor,
                   const char *text)
{
    struct ts_check *check = checking->check;
    struct ts_issue issue = {.id = id, .severity = severity};
    if (check->count == check->capacity) {
        size_t more = check->capacity ? check->capacity * 2 : 16;
        struct ts_issue *moved = ts_reallocarray(check->issues, more, sizeof *moved);
        if (!moved) {
            checking->failed = true;
            return;
        }
        check->issues = moved;
        check->capacity = more;
    }
    issue.text = ts_arena_string(&check->arena, text);
    issue.tensor = tensor ? ts_arena_string(&check->arena, tensor) : NULL;
    if (!issue.text || (tensor && !issue.tensor)) {
        checking->failed = true;
        return;
    }
    check->issues[check->count++] = issue;
    check->faults += severity == TS_FAULT;
    check->warnings += severity == TS_WARNING;
}

void ts_check_add(struct ts_checking *checking, const char *id, enum ts_severity severity, const char *tensor,
                  const char *format, ...)
{
    va_list arguments;
    char *text;
    int length;
    if (tally_of(checking, id, severity)->count++ >= TS_CHECK_LISTED)
        return;
    va_start(arguments, format);
    length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length < 0) {
        checking->failed = true;
        return;
    }
    append(checking, id, severity, tensor, text);
    free(text);
}

static void tell_unlisted(struct ts_checking *checking)
{
    for (size_t i = 0; i < checking->tally_count; i++) {
        const struct ts_check_tally *tally = &checking->tallies[i];
        char text[160], number[32];
        if (tally->count <= TS_CHECK_LISTED)
            continue;
        snprintf(text, sizeof text, "and %s more issues of the kind \"%s\"",
                 ts_human_count(tally->count - TS_CHECK_LISTED, number), tally->id);
        append(checking, tally->id, tally->severity, NULL, text);
    }
}

/* What open and the readers could not read. A README is no loss. */
static void tell_skips(struct ts_checking *checking)
{
    const struct ts_bundle *bundle = checking->bundle;
    for (size_t i = 0; i < bundle->skip_count; i++)
        if (!bundle->skips[i].harmless)
            ts_check_add(checking, "unreadable", TS_FAULT, bundle->skips[i].path, "%s", bundle->skips[i].reason);
}

/* Readers write findings as sentences. Those about quantized parts begin alike; a part that is missing or of another
 * size breaks the weight, while a layout that is merely unknown to this program does not. Shared bytes are told by
 * ts_check_spans, which knows all pairs. */
static void tell_findings(struct ts_checking *checking)
{
    const struct ts_bundle *bundle = checking->bundle;
    for (size_t i = 0; i < bundle->finding_count; i++) {
        const struct ts_finding *finding = &bundle->findings[i];
        const char *text = finding->text;
        bool quantized = ts_starts_with(text, "stays as its parts") || strstr(text, "scales are missing");
        bool broken = strstr(text, "missing") || strstr(text, "not fit") || strstr(text, " need ");
        if (finding->tensor && ts_starts_with(text, "shares "))
            continue;
        ts_check_add(checking, quantized ? "quantization" : "noticed", quantized && broken ? TS_FAULT : TS_WARNING,
                     finding->tensor, "%s", text);
    }
}

static void tell_sampled(struct ts_checking *checking)
{
    const struct ts_tensor *first = NULL;
    size_t count = 0;
    for (size_t i = 0; i < checking->bundle->count; i++)
        if (checking->bundle->tensors[i]->sampled) {
            first = first ? first : checking->bundle->tensors[i];
            count++;
        }
    if (count == 1)
        ts_check_add(checking, "sampled", TS_NOTE, first->name, "the file holds only some of its elements");
    else if (count)
        ts_check_add(checking, "sampled", TS_NOTE, first->name,
                     "this and %zu other tensors are there in part: the dump holds only some of their elements",
                     count - 1);
}

static enum ts_status run(struct ts_checking *checking, struct ts_error *error)
{
    tell_skips(checking);
    tell_findings(checking);
    tell_sampled(checking);
    ts_check_groups(checking);
    if (checking->failed)
        return ts_fail_memory(error);
    ts_check_spans(checking);
    TS_TRY(ts_check_bytes(checking, error));
    TS_TRY(ts_check_copies(checking, error));
    ts_check_quantized(checking);
    ts_check_model(checking);
    ts_check_layers(checking);
    tell_unlisted(checking);
    return checking->failed ? ts_fail_memory(error) : TS_OK;
}

enum ts_status ts_check_run(struct ts_pool *pool, const struct ts_bundle *bundle, const struct ts_stats *stats,
                            struct ts_progress *progress, struct ts_check *check, struct ts_error *error)
{
    struct ts_checking checking = {
        .pool = pool, .bundle = bundle, .stats = stats, .progress = progress, .check = check};
    enum ts_status status;
    memset(check, 0, sizeof *check);
    ts_arena_init(&check->arena, TEXT_LIMIT);
    status = run(&checking, error);
    free(checking.groups);
    free(checking.group_of);
    if (status != TS_OK)
        ts_check_release(check);
    return status;
}

void ts_check_release(struct ts_check *check)
{
    free(check->issues);
    ts_arena_release(&check->arena);
    memset(check, 0, sizeof *check);
}
