/* Owns the words of mappings, and what they do to a view. */
#include "pair/mapping.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

static const char *skip_blanks(const char *at)
{
    while (*at == ' ' || *at == '\t' || *at == '\r')
        at++;
    return at;
}

/* A whole number at *at; false, and nothing taken, when there is none or it is too large. */
static bool take_number(const char **at, uint64_t *value)
{
    const char *from = skip_blanks(*at), *digit = from;
    *value = 0;
    for (; isdigit((unsigned char)*digit); digit++)
        if (__builtin_mul_overflow(*value, (uint64_t)10, value) ||
            __builtin_add_overflow(*value, (uint64_t)(*digit - '0'), value))
            return false;
    if (digit > from)
        *at = digit;
    return digit > from;
}

static bool take_word(const char **at, const char *word)
{
    const char *from = skip_blanks(*at);
    size_t length = strlen(word);
    if (strncmp(from, word, length) != 0)
        return false;
    *at = from + length;
    return true;
}

static bool take_slice(const char **at, struct ts_mapping_slice *slice)
{
    uint64_t stop;
    slice->count = UINT64_MAX;
    if (!take_number(at, &slice->axis))
        return false;
    if (!take_number(at, &slice->start)) /* ":8" */
        slice->start = 0;
    if (!take_word(at, ":"))
        return false;
    if (!take_number(at, &stop))
        return true;
    if (stop <= slice->start)
        return false;
    slice->count = stop - slice->start;
    return true;
}

enum ts_status ts_mapping_parse(const char *words, struct ts_mapping *mapping, struct ts_error *error)
{
    const char *at = words;
    *mapping = (struct ts_mapping){0};
    do {
        uint64_t axis;
        bool good = false;
        if (take_word(&at, "permute ") && !mapping->permuted && !mapping->slice_count) {
            while (mapping->permuted < TS_MAX_RANK && take_number(&at, &axis)) {
                mapping->permute[mapping->permuted++] = axis < TS_MAX_RANK ? (unsigned)axis : TS_MAX_RANK;
                good = true;
            }
        } else if (take_word(&at, "slice ") && mapping->slice_count < TS_MAPPING_SLICES) {
            good = take_slice(&at, &mapping->slices[mapping->slice_count++]);
        }
        if (!good)
            return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET,
                           "\"%.200s\" is no mapping; expected permute AXES, then slice AXIS FROM:TO, with | between",
                           skip_blanks(words));
    } while (take_word(&at, "|"));
    if (*skip_blanks(at))
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "\"%.200s\" stands behind a mapping", skip_blanks(at));
    return TS_OK;
}

void ts_mapping_put(struct ts_buffer *out, const struct ts_mapping *mapping, const char *between)
{
    if (mapping->permuted)
        ts_buffer_string(out, "permute");
    for (unsigned i = 0; i < mapping->permuted; i++)
        ts_buffer_printf(out, " %u", mapping->permute[i]);
    for (size_t i = 0; i < mapping->slice_count; i++) {
        const struct ts_mapping_slice *slice = &mapping->slices[i];
        ts_buffer_printf(out, "%sslice %" PRIu64 " %" PRIu64 ":", i || mapping->permuted ? between : "", slice->axis,
                         slice->start);
        if (slice->count != UINT64_MAX)
            ts_buffer_printf(out, "%" PRIu64, slice->start + slice->count);
    }
}

static enum ts_status permute(const struct ts_mapping *mapping, struct ts_view *view, struct ts_arena *arena,
                              struct ts_error *error)
{
    uint64_t seen = 0;
    if (!mapping->permuted)
        return TS_OK;
    for (unsigned i = 0; i < mapping->permuted; i++)
        if (mapping->permute[i] < view->rank)
            seen |= UINT64_C(1) << mapping->permute[i];
    if (mapping->permuted != view->rank || (unsigned)__builtin_popcountll(seen) != view->rank)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "permute must name each of the %u axes once", view->rank);
    return ts_view_permute(view, mapping->permute, arena, view) ? TS_OK : ts_fail_memory(error);
}

static enum ts_status cut(const struct ts_mapping *mapping, struct ts_view *view, struct ts_arena *arena,
                          struct ts_error *error)
{
    for (size_t i = 0; i < mapping->slice_count; i++) {
        const struct ts_mapping_slice *one = &mapping->slices[i];
        uint64_t size = one->axis < view->rank ? view->shape[one->axis] : 0, count = one->count;
        if (count == UINT64_MAX && one->start <= size)
            count = size - one->start;
        if (one->axis >= view->rank || one->start > size || count > size - one->start || count == 0)
            return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET,
                           "slice %zu is outside axis %" PRIu64 " of %" PRIu64 " entries", i, one->axis, size);
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
        ts_buffer_printf(out, "%s%" PRIu64, i ? "," : "", view->shape[i]);
    ts_buffer_byte(out, ']');
}

static enum ts_status fit(const struct ts_view *a, struct ts_view *b, struct ts_arena *arena, struct ts_error *error)
{
    uint64_t left[TS_MAX_RANK], right[TS_MAX_RANK];
    unsigned rank = squeezed(a, left);
    struct ts_buffer text;
    enum ts_status status;
    if (rank == squeezed(b, right) && memcmp(left, right, rank * sizeof *left) == 0 &&
        ts_view_reshape(b, a->shape, a->rank, arena, b))
        return TS_OK;
    ts_buffer_init(&text, 4096);
    put_shape(&text, a);
    ts_buffer_string(&text, " against ");
    put_shape(&text, b);
    status = ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "under this mapping the shapes are %s: they must be equal",
                     text.data ? text.data : "");
    ts_buffer_release(&text);
    return status;
}

enum ts_status ts_mapping_apply(const struct ts_mapping *mapping, const struct ts_view *a, struct ts_view *b,
                                struct ts_arena *arena, struct ts_error *error)
{
    TS_TRY(permute(mapping, b, arena, error));
    TS_TRY(cut(mapping, b, arena, error));
    return fit(a, b, arena, error);
}
