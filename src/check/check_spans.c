/* Owns the question which tensors share bytes of the file. PyTorch saves views of one storage on purpose, and some
 * formats let two names point to the same place; everywhere else shared bytes mean broken offsets. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "base/text.h"
#include "check/check_internal.h"

struct span {
    uintptr_t start, end; /* addresses: slices of one file meet here */
    const struct ts_tensor *stored;
    const struct ts_tensor *owner; /* the tensor of the bundle: `stored`, or what it is a part of */
    size_t order;
};

static int by_place(const void *a, const void *b)
{
    const struct span *left = a, *right = b;
    if (left->start != right->start)
        return left->start < right->start ? -1 : 1;
    if (left->end != right->end)
        return left->end > right->end ? -1 : 1;
    return left->order < right->order ? -1 : left->order > right->order;
}

/* Touches all bytes of its span: not every second one, as a column of a matrix does. */
static bool is_dense(const struct ts_tensor *tensor)
{
    uint64_t bytes;
    return !tensor->strides || (ts_type_bytes(tensor->type, tensor->count, &bytes) && bytes >= tensor->bytes);
}

static size_t add_span(struct span *spans, size_t count, const struct ts_tensor *stored, const struct ts_tensor *owner)
{
    uintptr_t start;
    if (!stored->source || !stored->bytes || stored->type == TS_CODED)
        return count;
    start = (uintptr_t)(stored->source->data + stored->span_offset);
    spans[count] = (struct span){start, start + (uintptr_t)stored->bytes, stored, owner, count};
    return count + 1;
}

/* Readers of formats that forbid shared bytes say so; then even two names for one place are a fault. Their findings
 * carry names without the file. */
static bool is_forbidden(const struct ts_table *told, const struct ts_tensor *tensor)
{
    return ts_table_get(told, tensor->name) != SIZE_MAX || ts_table_get(told, ts_check_leaf(tensor->name)) != SIZE_MAX;
}

static void tell_same_place(struct ts_checking *checking, const struct span *spans, size_t count, bool forbidden)
{
    const struct ts_tensor *first = spans[0].owner, *second = spans[1].owner;
    const char *storage = ts_tensor_attribute(first, "storage");
    const bool tied = ts_check_is_embedding(first->name) && ts_check_is_embedding(second->name);
    if (forbidden)
        for (size_t i = 1; i < count; i++)
            ts_check_add(checking, "overlap", TS_FAULT, spans[i].owner->name,
                         "all its %" PRIu64 " bytes are also those of \"%s\", which the format forbids",
                         spans[i].stored->bytes, first->name);
    else if (count > 2)
        ts_check_add(checking, "shared-storage", TS_NOTE, first->name, "is stored once for \"%s\" and %zu more names",
                     second->name, count - 2);
    else
        ts_check_add(checking, tied ? "tied-weights" : "shared-storage", TS_NOTE, first->name,
                     "is stored once for \"%s\" too%s%s", second->name, storage ? ", as storage " : "",
                     storage ? storage : "");
}

static void tell_views(struct ts_checking *checking, const struct span *spans, size_t count)
{
    ts_check_add(checking, "shared-storage", TS_NOTE, spans[0].owner->name, "shares storage %s with \"%s\"%s",
                 ts_tensor_attribute(spans[0].owner, "storage"), spans[1].owner->name, count > 2 ? " and others" : "");
}

/* spans[0 .. count) are connected: each begins inside of those before it. */
static void tell_run(struct ts_checking *checking, const struct span *spans, size_t count, const struct ts_table *told)
{
    bool views = true, same = true, forbidden = false;
    size_t widest = 0;
    for (size_t i = 0; i < count; i++) {
        views = views && ts_tensor_attribute(spans[i].owner, "storage");
        same = same && spans[i].start == spans[0].start && spans[i].end == spans[0].end;
        forbidden = forbidden || is_forbidden(told, spans[i].owner);
    }
    if (same) {
        tell_same_place(checking, spans, count, forbidden);
        return;
    }
    if (views) {
        tell_views(checking, spans, count);
        return;
    }
    for (size_t i = 1; i < count; i++) {
        const struct span *other = &spans[widest], *span = &spans[i];
        uintptr_t end = span->end < other->end ? span->end : other->end;
        if (span->start < other->end && is_dense(span->stored) && is_dense(other->stored))
            ts_check_add(checking, "overlap", TS_FAULT, span->owner->name,
                         "%" PRIu64 " of its %" PRIu64 " bytes are also those of \"%s\"", (uint64_t)(end - span->start),
                         span->stored->bytes, other->owner->name);
        if (span->end > spans[widest].end)
            widest = i;
    }
}

/* Parts that two weights have in common (a code book) are one tensor twice. */
static size_t drop_twins(struct span *spans, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (!kept || spans[kept - 1].stored != spans[i].stored)
            spans[kept++] = spans[i];
    return kept;
}

static void tell_spans(struct ts_checking *checking, struct span *spans, size_t count, const struct ts_table *told)
{
    qsort(spans, count, sizeof *spans, by_place);
    count = drop_twins(spans, count);
    for (size_t first = 0; first < count;) {
        uintptr_t end = spans[first].end;
        size_t last = first + 1;
        for (; last < count && spans[last].start < end; last++)
            end = spans[last].end > end ? spans[last].end : end;
        if (last - first > 1)
            tell_run(checking, spans + first, last - first, told);
        first = last;
    }
}

void ts_check_spans(struct ts_checking *checking)
{
    const struct ts_bundle *bundle = checking->bundle;
    struct ts_table told = {0};
    struct span *spans;
    size_t room = 1, count = 0;
    for (size_t i = 0; i < bundle->count; i++)
        room += 1 + bundle->tensors[i]->part_count;
    spans = calloc(room, sizeof *spans);
    if (!spans || !ts_table_init(&told, bundle->finding_count + 1)) {
        checking->failed = true;
        free(spans);
        return;
    }
    for (size_t i = 0; i < bundle->finding_count; i++)
        if (bundle->findings[i].tensor && ts_starts_with(bundle->findings[i].text, "shares "))
            ts_table_put(&told, bundle->findings[i].tensor, i, NULL);
    for (size_t i = 0; i < bundle->count; i++) {
        const struct ts_tensor *tensor = bundle->tensors[i];
        count = add_span(spans, count, tensor, tensor);
        for (size_t part = 0; part < tensor->part_count; part++)
            count = add_span(spans, count, tensor->parts[part], tensor);
    }
    tell_spans(checking, spans, count, &told);
    ts_table_release(&told);
    free(spans);
}
