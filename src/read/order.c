#include "read/order.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/table.h"
#include "base/text.h"

static int by_natural_name(const void *a, const void *b)
{
    const struct ts_tensor *const *left = a, *const *right = b;
    return ts_natural_compare((*left)->name, (*right)->name);
}

void ts_order_natural(struct ts_bundle *bundle, size_t start)
{
    if (bundle->count > start + 1)
        qsort(bundle->tensors + start, bundle->count - start, sizeof *bundle->tensors, by_natural_name);
}

/* Moves each named tensor to the front in turn. `sorted` has room for all. */
static bool take_in_order(struct ts_bundle *bundle, size_t start, struct ts_json *json, struct ts_arena *arena,
                          const struct ts_table *table, struct ts_tensor **sorted)
{
    struct ts_error error;
    size_t taken = 0;
    if (ts_json_expect(json, TS_JSON_ARRAY, "an array", &error) != TS_OK)
        return false;
    for (;;) {
        const char *name;
        size_t index;
        if (ts_json_next(json, &error) != TS_OK)
            return false;
        if (json->kind == TS_JSON_ARRAY_END)
            break;
        if (json->kind != TS_JSON_STRING || ts_json_copy(json, arena, &name, &error) != TS_OK)
            return false;
        index = ts_table_get(table, name);
        if (index != SIZE_MAX && bundle->tensors[index]) {
            sorted[taken++] = bundle->tensors[index];
            bundle->tensors[index] = NULL;
        }
    }
    for (size_t i = start; i < bundle->count; i++)
        if (bundle->tensors[i])
            sorted[taken++] = bundle->tensors[i];
    return true;
}

bool ts_order_by_list(struct ts_bundle *bundle, size_t start, const char *text, size_t size)
{
    size_t count = bundle->count - start;
    struct ts_tensor **sorted = calloc(count + 1, sizeof(struct ts_tensor *));
    struct ts_tensor **before = calloc(count + 1, sizeof(struct ts_tensor *));
    struct ts_table table = {0};
    struct ts_arena arena;
    struct ts_json json;
    bool done = false;
    ts_arena_init(&arena, (size_t)256 << 20);
    if (sorted && before && ts_table_init(&table, count)) {
        for (size_t i = start; i < bundle->count; i++)
            ts_table_put(&table, bundle->tensors[i]->name, i, NULL);
        if (count)
            memcpy(before, bundle->tensors + start, count * sizeof(struct ts_tensor *));
        ts_json_init(&json, text, size);
        done = take_in_order(bundle, start, &json, &arena, &table, sorted);
        if (count)
            memcpy(bundle->tensors + start, done ? sorted : before, count * sizeof(struct ts_tensor *));
    }
    ts_table_release(&table);
    ts_arena_release(&arena);
    free(sorted);
    free(before);
    return done;
}

struct placed {
    struct ts_tensor *tensor;
    size_t index;
};

static int by_place(const void *a, const void *b)
{
    const struct placed *left = a, *right = b;
    if (left->tensor->offset != right->tensor->offset)
        return left->tensor->offset < right->tensor->offset ? -1 : 1;
    return left->index < right->index ? -1 : 1;
}

bool ts_order_by_offset(struct ts_bundle *bundle, size_t start)
{
    size_t count = bundle->count - start;
    struct placed *placed = calloc(count + 1, sizeof *placed);
    if (!placed)
        return false;
    for (size_t i = 0; i < count; i++)
        placed[i] = (struct placed){bundle->tensors[start + i], i};
    qsort(placed, count, sizeof *placed, by_place);
    for (size_t i = 0; i < count; i++)
        bundle->tensors[start + i] = placed[i].tensor;
    free(placed);
    return true;
}

bool ts_order_is_sorted(const struct ts_bundle *bundle, size_t start)
{
    for (size_t i = start + 1; i < bundle->count; i++)
        if (bundle->tensors[i]->type == bundle->tensors[i - 1]->type &&
            strcmp(bundle->tensors[i - 1]->name, bundle->tensors[i]->name) > 0)
            return false;
    return true;
}
