/* Owns mappings that a person makes: another partner, another order of axes, a part of one side. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "pair/mapping.h"
#include "report/json_fields.h"
#include "serve/detail.h"
#include "serve/handlers.h"
#include "serve/mappings.h"
#include "serve/opened.h"

struct ts_wish {
    const char *name_b;
    struct ts_mapping how;
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
        if (json->kind != TS_JSON_NUMBER || wish->how.permuted == TS_MAX_RANK)
            return ts_fail(error, TS_ERR_USAGE, json->offset, "permute must be a list of axes");
        TS_TRY(ts_json_uint64(json, &axis, error));
        wish->how.permute[wish->how.permuted++] = axis < TS_MAX_RANK ? (unsigned)axis : TS_MAX_RANK;
    }
}

static enum ts_status take_slice(struct ts_json *json, struct ts_mapping_slice *slice, struct ts_error *error)
{
    *slice = (struct ts_mapping_slice){.count = UINT64_MAX};
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
        if (json->kind != TS_JSON_OBJECT || wish->how.slice_count == TS_MAPPING_SLICES)
            return ts_fail(error, TS_ERR_USAGE, json->offset, "slice must be a list of at most %d objects",
                           TS_MAPPING_SLICES);
        TS_TRY(take_slice(json, &wish->how.slices[wish->how.slice_count++], error));
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

/* What was done: words for a map file, and a recipe. */
static enum ts_status put_words(const struct ts_wish *wish, struct ts_remap *remap, struct ts_error *error)
{
    const bool any = wish->how.permuted || wish->how.slice_count;
    struct ts_buffer text;
    ts_buffer_init(&text, 65536);
    ts_mapping_put(&text, &wish->how, " | ");
    remap->pair.by_hand = any && text.data ? ts_arena_string(&remap->arena, text.data) : NULL;
    ts_buffer_clear(&text);
    ts_buffer_string(&text, wish->swap ? "sides exchanged" : "");
    ts_buffer_string(&text, any && wish->swap ? "; A: " : any ? "B: " : "");
    ts_mapping_put(&text, &wish->how, ", ");
    remap->pair.recipe = ts_arena_string(&remap->arena, text.data ? text.data : "");
    ts_buffer_release(&text);
    return remap->pair.recipe && (!any || remap->pair.by_hand) ? TS_OK : ts_fail_memory(error);
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
    pair->ambiguous = pair->guess = pair->by_size = pair->by_order = pair->zeros = false;
    pair->how = "by hand";
    if (wish->name_b)
        pair->name_b = b->name;
    /* shards that were joined stay joined */
    if (before->a.join == TS_JOIN_NONE && !ts_view_of(before->a.tensor, &remap->arena, &pair->a))
        return ts_fail_memory(error);
    if ((before->b.join == TS_JOIN_NONE || wish->name_b) && !ts_view_of(b, &remap->arena, &pair->b))
        return ts_fail_memory(error);
    TS_TRY(ts_mapping_apply(&wish->how, &pair->a, &pair->b, &remap->arena, error));
    TS_TRY(put_words(wish, remap, error));
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
        status = ts_judge_run(&remap->pair, &remap->delta, 1, NULL, &remap->judgement, error);
    ts_pool_free(pool);
    return status;
}

void ts_remap_json(struct ts_json_writer *json, const struct ts_remap *remap)
{
    const struct ts_wish *wish = remap->wish;
    ts_json_begin_object(json);
    if (wish->name_b)
        ts_field_text(json, "name_b", wish->name_b);
    if (wish->how.permuted) {
        ts_json_key(json, "permute");
        ts_json_begin_array(json);
        for (unsigned i = 0; i < wish->how.permuted; i++)
            ts_json_uint(json, wish->how.permute[i]);
        ts_json_end_array(json);
    }
    if (wish->how.slice_count) {
        ts_json_key(json, "slice");
        ts_json_begin_array(json);
        for (size_t i = 0; i < wish->how.slice_count; i++) {
            ts_json_begin_object(json);
            ts_field_count(json, "axis", wish->how.slices[i].axis);
            ts_field_count(json, "start", wish->how.slices[i].start);
            if (wish->how.slices[i].count != UINT64_MAX)
                ts_field_count(json, "count", wish->how.slices[i].count);
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
