/* Owns the order in which layouts are considered for two tensors: as they are, then what shapes allow, then pieces. */
#include "pair/align.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/buffer.h"
#include "pair/align_search.h"
#include "pair/misread.h"

/* Equal shapes: the tensors are taken as they are unless their values disagree by more than this ... */
#define DISAGREE 0.5
/* ... and another layout is better by this factor. */
#define DRAMATIC 0.25
/* Shapes that differ by ones come from different habits, so less is asked for: another layout must agree this well. */
#define WELL 0.75

static void append_shape(struct ts_buffer *text, const struct ts_view *view)
{
    ts_buffer_byte(text, '[');
    for (unsigned i = 0; i < view->rank; i++)
        ts_buffer_printf(text, "%s%" PRIu64, i ? "," : "", view->shape[i]);
    ts_buffer_byte(text, ']');
}

static const char *shape_words(const char *before, const struct ts_view *view, struct ts_arena *arena)
{
    struct ts_buffer text;
    const char *words;
    ts_buffer_init(&text, 4096);
    ts_buffer_string(&text, before);
    append_shape(&text, view);
    words = text.failed ? NULL : ts_arena_string(arena, text.data);
    ts_buffer_release(&text);
    return words;
}

enum ts_status ts_align_no_layout(const struct ts_view *a, const struct ts_view *b, size_t shards_a, size_t shards_b,
                                  struct ts_arena *arena, struct ts_alignment *out, struct ts_error *error)
{
    const struct ts_view *view[2] = {a, b};
    const size_t shards[2] = {shards_a, shards_b};
    struct ts_buffer text;
    ts_buffer_init(&text, 4096);
    for (unsigned side = 0; side < 2; side++) {
        ts_buffer_string(&text, side ? " against " : "");
        if (shards[side])
            ts_buffer_printf(&text, "%zu shards like ", shards[side]);
        append_shape(&text, view[side]);
        if (ts_type_info(a->tensor->type)->components != ts_type_info(b->tensor->type)->components)
            ts_buffer_string(&text, ts_type_info(view[side]->tensor->type)->components == 2 ? " complex" : " real");
    }
    ts_buffer_string(&text, ": no layout fits");
    out->problem = text.failed ? NULL : ts_arena_string(arena, text.data);
    ts_buffer_release(&text);
    return out->problem ? TS_OK : ts_fail_memory(error);
}

void ts_alignment_init(struct ts_alignment *out, const struct ts_view *a, const struct ts_view *b)
{
    memset(out, 0, sizeof *out);
    out->a = *a;
    out->b = *b;
    out->recipe = "";
    out->runner_up = INFINITY;
}

/* Axis names that put the axes of B in another order than those of A. */
static bool names_differ(const struct ts_align_hints *hints)
{
    return hints->axes_a && hints->axes_b && strcmp(hints->axes_a, hints->axes_b) != 0;
}

/* Shapes that are equal, or equal but for ones. The plain reading stands unless the values speak against it loudly; for
 * activations of exactly equal shape it always stands, since there another order of axes is a bug to be reported. */
static enum ts_status align_equal(struct ts_align_search *search, struct ts_align_layouts *layouts, bool exactly,
                                  struct ts_alignment *out, const struct ts_align_candidate **winner,
                                  struct ts_error *error)
{
    const struct ts_align_candidate *other;
    struct ts_align_candidate *plain;
    struct ts_alignment others = *out;
    layouts->whole_axes = layouts->in_order = true;
    ts_align_add_layouts(search, layouts);
    if (search->count == 0)
        return TS_OK;
    plain = search->list;
    *winner = plain;
    TS_TRY(ts_align_measure(search, &plain->view[0], &plain->view[1], 512, &plain->fit, error));
    if (plain->fit.fit > DISAGREE)
        TS_TRY(ts_align_measure(search, &plain->view[0], &plain->view[1], 4096, &plain->fit, error));
    out->error = plain->fit.error;
    if (plain->fit.fit <= DISAGREE || plain->named ||
        (exactly && !search->hints->weights && !names_differ(search->hints)))
        return TS_OK;
    search->list = NULL; /* the plain one stays where it is */
    search->count = search->capacity = 0;
    layouts->in_order = false;
    layouts->whole_axes = exactly;
    ts_align_add_layouts(search, layouts);
    if (search->hints->weights) {
        ts_align_add_row_orders(search, layouts);
        ts_align_add_groups(search, layouts);
        ts_align_add_turned_heads(search, layouts);
    }
    TS_TRY(ts_align_choose(search, &others, &other, error));
    if (!other)
        return TS_OK;
    if (other->named || other->fit.fit < DRAMATIC * plain->fit.fit ||
        (!exactly && plain->fit.fit >= TS_ALIGN_AGREES && other->fit.fit < WELL)) {
        *winner = other;
        *out = others;
    } else {
        out->runner_up = ts_align_same_map(plain, other) ? others.runner_up : others.error;
    }
    return TS_OK;
}

static enum ts_status add_equal_counts(struct ts_align_search *search, struct ts_align_layouts *layouts,
                                       struct ts_error *error)
{
    double score;
    ts_align_add_layouts(search, layouts);
    TS_TRY(ts_align_best_score(search, &score, error));
    if (score >= TS_ALIGN_AGREES) {
        layouts->deep = true;
        ts_align_add_layouts(search, layouts);
        if (search->hints->weights)
            ts_align_add_turned_heads(search, layouts);
    }
    return TS_OK;
}

/* words: what was done to the sides before. */
static enum ts_status align_search(struct ts_align_search *search, const struct ts_view *a, const struct ts_view *b,
                                   const char *const *words, struct ts_arena *arena, struct ts_alignment *out,
                                   struct ts_error *error)
{
    struct ts_align_layouts layouts = {.view = {*a, *b}, .words = {words[0], words[1]}, .limit = 2000};
    const struct ts_align_candidate *winner = NULL;
    const bool exactly = ts_align_equal_shapes(a, b);
    layouts.moving = !(ts_align_is_costly(b) && !ts_align_is_costly(a));
    if (exactly || ts_same_sizes(a->shape, a->rank, b->shape, b->rank)) {
        TS_TRY(align_equal(search, &layouts, exactly, out, &winner, error));
    } else {
        if (a->count == b->count)
            TS_TRY(add_equal_counts(search, &layouts, error));
        else
            TS_TRY(ts_align_add_slices(search, &layouts, error));
        TS_TRY(ts_align_choose(search, out, &winner, error));
    }
    if (!winner) {
        /* without memory nothing fits either, and that is not the shapes' fault */
        if (!ts_arena_alloc(&search->scratch, 1))
            return ts_fail_memory(error);
        return ts_align_no_layout(a, b, 0, 0, arena, out, error);
    }
    if (exactly && !*winner->words[0] && !*winner->words[1])
        return TS_OK; /* out holds the views as given */
    if (winner->cut.of) {
        struct ts_align_candidate said = *winner;
        TS_TRY(ts_align_look_at_rest(search, &said, error));
        return ts_align_finish(&said, arena, out, error);
    }
    return ts_align_finish(winner, arena, out, error);
}

static enum ts_status search_and_finish(const struct ts_view *a, const struct ts_view *b, const char *const *words,
                                        const struct ts_align_hints *hints, struct ts_arena *arena,
                                        struct ts_alignment *out, struct ts_error *error)
{
    struct ts_align_search search;
    enum ts_status status = ts_align_search_init(&search, a, b, hints, error);
    if (status == TS_OK)
        status = align_search(&search, a, b, words, arena, out, error);
    ts_align_search_release(&search);
    return status;
}

static enum ts_type part_of(enum ts_type type)
{
    return type == TS_C32 ? TS_F16 : type == TS_C64 ? TS_F32 : TS_F64;
}

bool ts_align_real(const struct ts_view *view, struct ts_arena *arena, struct ts_view *out)
{
    const struct ts_tensor *tensor = view->tensor;
    struct ts_tensor *real = ts_arena_alloc(arena, sizeof *real);
    struct ts_error ignored;
    if (!real || view->count == 0 || view->join != TS_JOIN_NONE || ts_view_is_computed(view) || tensor->codec ||
        tensor->whole_shape || view->rank >= TS_MAX_RANK || tensor->rank >= TS_MAX_RANK)
        return false;
    *real = *tensor;
    *out = *view;
    real->type = part_of(tensor->type);
    real->shape = ts_arena_array(arena, tensor->rank + 1, sizeof *real->shape);
    real->strides = tensor->strides ? ts_arena_array(arena, tensor->rank + 1, sizeof *real->strides) : NULL;
    out->shape = ts_arena_array(arena, view->rank + 1, sizeof *out->shape);
    out->strides = ts_arena_array(arena, view->rank + 1, sizeof *out->strides);
    if (!real->shape || (tensor->strides && !real->strides) || !out->shape || !out->strides)
        return false;
    /* an axis of one element may have a stride of any size */
    for (unsigned i = 0; i < tensor->rank; i++) {
        real->shape[i] = tensor->shape[i];
        if (real->strides)
            real->strides[i] = tensor->shape[i] == 1 ? 0 : 2 * tensor->strides[i];
    }
    for (unsigned i = 0; i < view->rank; i++) {
        out->shape[i] = view->shape[i];
        out->strides[i] = view->shape[i] == 1 ? 0 : 2 * view->strides[i];
    }
    real->shape[real->rank++] = out->shape[out->rank++] = 2;
    out->strides[view->rank] = 1;
    if (real->strides)
        real->strides[tensor->rank] = 1;
    out->tensor = real;
    out->offset *= 2;
    out->count *= 2;
    return ts_tensor_finish(real, &ignored) == TS_OK;
}

/* Complex numbers against real ones: every element is two real numbers, the last axis. */
static enum ts_status align_complex(const struct ts_view *a, const struct ts_view *b,
                                    const struct ts_align_hints *hints, struct ts_arena *arena,
                                    struct ts_alignment *out, struct ts_error *error)
{
    const unsigned side = ts_type_info(b->tensor->type)->components == 2;
    struct ts_align_hints unnamed = hints ? *hints : (struct ts_align_hints){0};
    struct ts_view real;
    const struct ts_view *sides[2] = {side ? a : &real, side ? &real : b};
    const char *words[2] = {"", ""};
    if (!ts_align_real(side ? b : a, arena, &real) || sides[!side]->count == 0)
        return ts_align_no_layout(a, b, 0, 0, arena, out, error);
    unnamed.axes_a = unnamed.axes_b = NULL;
    words[side] = shape_words("complex read as ", &real, arena);
    if (!words[side])
        return ts_fail_memory(error);
    TS_TRY(search_and_finish(sides[0], sides[1], words, &unnamed, arena, out, error));
    if (out->problem || (out->guess && sides[0]->count != sides[1]->count)) {
        ts_alignment_init(out, a, b);
        return ts_align_no_layout(a, b, 0, 0, arena, out, error);
    }
    return TS_OK;
}

static bool is_whole(const struct ts_view *view)
{
    return view->join == TS_JOIN_NONE && view->count == view->tensor->count && !ts_view_is_computed(view);
}

/* Bytes under a wrong type are no part of the other side, however well every second number agrees. */
static enum ts_status find_misread(const struct ts_view *a, const struct ts_view *b, struct ts_arena *arena,
                                   struct ts_alignment *out, struct ts_error *error)
{
    const struct ts_tensor *tensors[2] = {a->tensor, b->tensor};
    enum ts_type type;
    if (a->count == b->count || !is_whole(a) || !is_whole(b))
        return TS_OK;
    for (unsigned side = 0; side < 2; side++) {
        if (!ts_misread_whole(tensors[side], tensors[!side], &type))
            continue;
        out->problem =
            ts_arena_printf(arena, "the bytes of %c, read as %s instead of %s, are the values of %c", side ? 'B' : 'A',
                            ts_type_info(type)->name, ts_tensor_type_name(tensors[side]), side ? 'A' : 'B');
        return out->problem ? TS_OK : ts_fail_memory(error);
    }
    return TS_OK;
}

enum ts_status ts_align(const struct ts_view *a, const struct ts_view *b, const struct ts_align_hints *hints,
                        struct ts_arena *arena, struct ts_alignment *out, struct ts_error *error)
{
    static const char *const nothing[2] = {"", ""};
    ts_alignment_init(out, a, b);
    if (ts_type_info(a->tensor->type)->components != ts_type_info(b->tensor->type)->components)
        return align_complex(a, b, hints, arena, out, error);
    if (a->count == 0 && b->count == 0) { /* nothing to pair: any shape will do */
        if (ts_align_equal_shapes(a, b))
            return TS_OK;
        out->recipe = ts_view_reshape(b, a->shape, a->rank, arena, &out->b) ? "B: empty, like A" : NULL;
        return out->recipe ? TS_OK : ts_fail_memory(error);
    }
    if (a->count == 0 || b->count == 0)
        return ts_align_no_layout(a, b, 0, 0, arena, out, error);
    TS_TRY(find_misread(a, b, arena, out, error));
    return out->problem ? TS_OK : search_and_finish(a, b, nothing, hints, arena, out, error);
}
