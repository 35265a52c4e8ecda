/* Owns mappings that a person makes: another partner, another order of axes, a part of one side. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "report/json_fields.h"
#include "serve/detail.h"
#include "serve/handlers.h"
#include "serve/mappings.h"
#include "serve/opened.h"

#define SLICES_MOST 64

struct slice {
    uint64_t axis, start, count;
};

struct ts_wish {
    const char *name_b;
    unsigned permute[TS_MAX_RANK];
    unsigned permuted; /* how many; 0: as it is */
    struct slice slices[SLICES_MOST];
    size_t slice_count;
    bool swap, any;
};

static enum ts_status take_permute(struct ts_json *json, struct ts_wish *wish, struct ts_error *error)
{
    TS_TRY(ts_json_expect(json, TS_JSON_ARRAY, "a list of axes", error));
    for (;;) {
        uint64_t axis;
        TS_TRY(ts_json_next(json, error));
        if (json->kind == TS_JSON_ARRAY_END)
            return TS_OK;
        if (json->kind != TS_JSON_NUMBER || wish->permuted == TS_MAX_RANK)
            return ts_fail(error, TS_ERR_USAGE, json->offset, "permute must be a list of axes");
        TS_TRY(ts_json_uint64(json, &axis, error));
        wish->permute[wish->permuted++] = axis < TS_MAX_RANK ? (unsigned)axis : TS_MAX_RANK;
    }
}

static enum ts_status take_slice(struct ts_json *json, struct slice *slice, struct ts_error *error)
{
    *slice = (struct slice){.count = UINT64_MAX};
    for (;;) {
        uint64_t *target;
        TS_TRY(ts_json_next(json, error));
        if (json->kind == TS_JSON_OBJECT_END)
            return TS_OK;
        target = ts_json_equals(json, "axis")    ? &slice->axis
                 : ts_json_equals(json, "start") ? &slice->start
                 : ts_json_equals(json, "count") ? &slice->count
                                                 : NULL;
        if (!target)
            return ts_fail(error, TS_ERR_USAGE, json->offset, "a slice has axis, start and count");
        TS_TRY(ts_json_expect(json, TS_JSON_NUMBER, "a whole number", error));
        TS_TRY(ts_json_uint64(json, target, error));
    }
}

static enum ts_status take_slices(struct ts_json *json, struct ts_wish *wish, struct ts_error *error)
{
    TS_TRY(ts_json_expect(json, TS_JSON_ARRAY, "a list of slices", error));
    for (;;) {
        TS_TRY(ts_json_next(json, error));
        if (json->kind == TS_JSON_ARRAY_END)
            return TS_OK;
        if (json->kind != TS_JSON_OBJECT || wish->slice_count == SLICES_MOST)
            return ts_fail(error, TS_ERR_USAGE, json->offset, "slice must be a list of at most %d objects",
                           SLICES_MOST);
        TS_TRY(take_slice(json, &wish->slices[wish->slice_count++], error));
    }
}

static enum ts_status take_wish(const char *text, size_t size, struct ts_arena *arena, struct ts_wish *wish,
                                struct ts_error *error)
{
    struct ts_json json;
    if (!size)
        return TS_OK;
    ts_json_init(&json, text, size);
    TS_TRY(ts_json_expect(&json, TS_JSON_OBJECT, "an object", error));
    for (;;) {
        TS_TRY(ts_json_next(&json, error));
        if (json.kind == TS_JSON_OBJECT_END)
            return ts_json_expect(&json, TS_JSON_END, "the end of the body", error);
        wish->any = true;
        if (ts_json_equals(&json, "name_b")) {
            TS_TRY(ts_json_expect(&json, TS_JSON_STRING, "a name", error));
            TS_TRY(ts_json_copy(&json, arena, &wish->name_b, error));
        } else if (ts_json_equals(&json, "permute")) {
            TS_TRY(take_permute(&json, wish, error));
        } else if (ts_json_equals(&json, "slice")) {
            TS_TRY(take_slices(&json, wish, error));
        } else if (ts_json_equals(&json, "swap")) {
            TS_TRY(ts_json_next(&json, error));
            if (json.kind != TS_JSON_TRUE && json.kind != TS_JSON_FALSE)
                return ts_fail(error, TS_ERR_USAGE, json.offset, "swap is true or false");
            wish->swap = json.kind == TS_JSON_TRUE;
        } else {
            return ts_fail(error, TS_ERR_USAGE, json.offset, "a mapping has name_b, permute, slice and swap");
        }
    }
}

static enum ts_status permute(struct ts_view *view, const struct ts_wish *wish, struct ts_arena *arena,
                              struct ts_error *error)
{
    uint64_t seen = 0;
    if (!wish->permuted)
        return TS_OK;
    for (unsigned i = 0; i < wish->permuted; i++)
        if (wish->permute[i] < view->rank)
            seen |= UINT64_C(1) << wish->permute[i];
    if (wish->permuted != view->rank || (unsigned)__builtin_popcountll(seen) != view->rank)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "permute must name each of the %u axes once", view->rank);
    return ts_view_permute(view, wish->permute, arena, view) ? TS_OK : ts_fail_memory(error);
}

static enum ts_status slice(struct ts_view *view, const struct ts_wish *wish, struct ts_arena *arena,
                            struct ts_error *error)
{
    for (size_t i = 0; i < wish->slice_count; i++) {
        const struct slice *one = &wish->slices[i];
        uint64_t size = one->axis < view->rank ? view->shape[one->axis] : 0, count = one->count;
        if (count == UINT64_MAX && one->start <= size)
            count = size - one->start;
        if (one->axis >= view->rank || one->start > size || count > size - one->start || count == 0)
            return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "slice %zu is outside axis %llu of %llu entries", i,
                           (unsigned long long)one->axis, (unsigned long long)size);
        if (!ts_view_slice(view, (unsigned)one->axis, one->start, count, 1, arena, view))
            return ts_fail_memory(error);
    }
    return TS_OK;
}

static unsigned squeezed(const struct ts_view *view, uint64_t *shape)
{
    unsigned rank = 0;
    for (unsigned i = 0; i < view->rank; i++)
        if (view->shape[i] != 1)
            shape[rank++] = view->shape[i];
    return rank;
}

static void put_shape(struct ts_buffer *out, const struct ts_view *view)
{
    ts_buffer_byte(out, '[');
    for (unsigned i = 0; i < view->rank; i++)
        ts_buffer_printf(out, "%s%llu", i ? "," : "", (unsigned long long)view->shape[i]);
    ts_buffer_byte(out, ']');
}

/* Shapes may differ by axes of one element. */
static enum ts_status fit(struct ts_remap *remap, struct ts_error *error)
{
    struct ts_pair *pair = &remap->pair;
    uint64_t a[TS_MAX_RANK], b[TS_MAX_RANK];
    unsigned rank = squeezed(&pair->a, a);
    struct ts_buffer text;
    enum ts_status status;
    if (rank == squeezed(&pair->b, b) && memcmp(a, b, rank * sizeof *a) == 0 &&
        ts_view_reshape(&pair->b, pair->a.shape, pair->a.rank, &remap->arena, &pair->b))
        return TS_OK;
    ts_buffer_init(&text, 4096);
    put_shape(&text, &pair->a);
    ts_buffer_string(&text, " against ");
    put_shape(&text, &pair->b);
    status = ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "under this mapping the shapes are %s: they must be equal",
                     text.data ? text.data : "");
    ts_buffer_release(&text);
    return status;
}

/* What was done, in the words of recipes. */
static const char *recipe_of(const struct ts_wish *wish, struct ts_arena *arena)
{
    struct ts_buffer text;
    const char *made;
    ts_buffer_init(&text, 65536);
    ts_buffer_string(&text, wish->swap ? "sides exchanged; A:" : "B:");
    if (wish->permuted) {
        ts_buffer_string(&text, " permute");
        for (unsigned i = 0; i < wish->permuted; i++)
            ts_buffer_printf(&text, " %u", wish->permute[i]);
    }
    for (size_t i = 0; i < wish->slice_count; i++)
        ts_buffer_printf(&text, "%s slice %llu of axis %llu from %llu", i || wish->permuted ? "," : "",
                         (unsigned long long)wish->slices[i].count, (unsigned long long)wish->slices[i].axis,
                         (unsigned long long)wish->slices[i].start);
    made = wish->permuted || wish->slice_count ? ts_arena_string(arena, text.data)
           : wish->swap                        ? "sides exchanged"
                                               : "";
    ts_buffer_release(&text);
    return made ? made : "";
}

/* Tensors are taken as they are in the file, before any recipe. */
static enum ts_status map_pair(struct ts_opened *opened, size_t index, const struct ts_wish *wish,
                               struct ts_remap *remap, struct ts_error *error)
{
    const struct ts_pair *before = &opened->comparison.pairing.pairs[index];
    const struct ts_tensor *b = before->b.tensor;
    struct ts_pair *pair = &remap->pair;
    if (wish->name_b && !(b = ts_bundle_tensor(opened->bundles[1], wish->name_b)))
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "the candidate has no tensor \"%s\"", wish->name_b);
    *pair = *before;
    pair->problem = NULL;
    pair->guess = pair->ambiguous = false;
    pair->how = "by hand";
    if (wish->name_b)
        pair->name_b = b->name;
    /* shards that were joined stay joined */
    if (before->a.join == TS_JOIN_NONE && !ts_view_of(before->a.tensor, &remap->arena, &pair->a))
        return ts_fail_memory(error);
    if ((before->b.join == TS_JOIN_NONE || wish->name_b) && !ts_view_of(b, &remap->arena, &pair->b))
        return ts_fail_memory(error);
    TS_TRY(permute(&pair->b, wish, &remap->arena, error));
    TS_TRY(slice(&pair->b, wish, &remap->arena, error));
    pair->recipe = recipe_of(wish, &remap->arena);
    TS_TRY(fit(remap, error));
    if (wish->swap) {
        struct ts_view view = pair->a;
        const char *name = pair->name;
        pair->a = pair->b;
        pair->b = view;
        pair->name = pair->name_b;
        pair->name_b = name;
    }
    return TS_OK;
}

static enum ts_status measure(struct ts_remap *remap, const struct ts_opened *opened, struct ts_error *error)
{
    struct ts_delta_options options = {.given = opened->tolerance_given, .tolerance = opened->tolerance};
    struct ts_pool *pool = ts_pool_new(0);
    enum ts_status status = pool ? TS_OK : ts_fail_memory(error);
    if (status == TS_OK)
        status = ts_delta_run(pool, &remap->pair, 1, &options, &remap->delta, NULL, error);
    if (status == TS_OK)
        status = ts_judge_run(&remap->pair, &remap->delta, 1, &remap->judgement, error);
    ts_pool_free(pool);
    return status;
}

void ts_remap_json(struct ts_json_writer *json, const struct ts_remap *remap)
{
    const struct ts_wish *wish = remap->wish;
    ts_json_begin_object(json);
    if (wish->name_b)
        ts_field_text(json, "name_b", wish->name_b);
    if (wish->permuted) {
        ts_json_key(json, "permute");
        ts_json_begin_array(json);
        for (unsigned i = 0; i < wish->permuted; i++)
            ts_json_uint(json, wish->permute[i]);
        ts_json_end_array(json);
    }
    if (wish->slice_count) {
        ts_json_key(json, "slice");
        ts_json_begin_array(json);
        for (size_t i = 0; i < wish->slice_count; i++) {
            ts_json_begin_object(json);
            ts_field_count(json, "axis", wish->slices[i].axis);
            ts_field_count(json, "start", wish->slices[i].start);
            if (wish->slices[i].count != UINT64_MAX)
                ts_field_count(json, "count", wish->slices[i].count);
            ts_json_end_object(json);
        }
        ts_json_end_array(json);
    }
    ts_field_bool(json, "swap", wish->swap);
    ts_json_end_object(json);
}

static enum ts_status keep_wish(struct ts_remap *remap, const struct ts_wish *wish, struct ts_error *error)
{
    struct ts_wish *kept = ts_arena_alloc(&remap->arena, sizeof *kept);
    if (!kept)
        return ts_fail_memory(error);
    *kept = *wish;
    remap->wish = kept;
    remap->swapped = wish->swap;
    return TS_OK;
}

enum ts_status ts_remap_make(struct ts_opened *opened, size_t index, const char *text, size_t size,
                             struct ts_remap **out, struct ts_error *error)
{
    static _Atomic uint64_t serials = 1;
    struct ts_remap *remap = calloc(1, sizeof *remap);
    struct ts_wish wish = {0};
    enum ts_status status;
    *out = NULL;
    if (!remap)
        return ts_fail_memory(error);
    atomic_init(&remap->holders, 1);
    remap->serial = atomic_fetch_add(&serials, 1);
    ts_arena_init(&remap->arena, (size_t)8 << 20);
    status = take_wish(text, size, &remap->arena, &wish, error);
    if (status == TS_OK && wish.any)
        status = map_pair(opened, index, &wish, remap, error);
    if (status == TS_OK && wish.any)
        status = measure(remap, opened, error);
    if (status == TS_OK && wish.any)
        status = keep_wish(remap, &wish, error);
    if (status == TS_OK && wish.any)
        *out = remap;
    else
        ts_remap_drop(remap);
    return status;
}

static enum ts_status apply(struct ts_call *call, size_t index, struct ts_error *error)
{
    struct ts_remap *remap;
    enum ts_status status;
    TS_TRY(ts_remap_make(call->opened, index, call->body.data, call->body.size, &remap, error));
    status = ts_mappings_set(call->workspace, call->opened, index, remap, error);
    if (status != TS_OK)
        ts_remap_drop(remap);
    return status;
}

void ts_handle_remap(struct ts_call *call)
{
    struct ts_focus subject;
    struct ts_error error;
    size_t index;
    if (!ts_focus_take(call, &subject))
        return;
    index = subject.index;
    if (!subject.pair) {
        ts_focus_release(&subject);
        ts_call_fail(call, 409, "map a pair to it with name_b", "only pairs can be mapped");
        return;
    }
    ts_focus_release(&subject);
    if (apply(call, index, &error) != TS_OK) {
        ts_call_error(call, &error);
        return;
    }
    if (!ts_focus_take(call, &subject))
        return;
    ts_tensor_answer(call, &subject);
    ts_focus_release(&subject);
}
