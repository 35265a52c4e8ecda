/* SGLang's dumper writes one file for each tensor, rank and step:
 *
 *     forward_pass_id=1___rank=0___name=q___dump_index=3___layer_id=0.pt          2025: the tensor itself
 *     step=0___rank=0___dump_index=3___name=q___layer_id=0.pt                     2026: {"value": tensor, "meta":
 * {...}} step=0___rank=0___dump_index=9___name=non_intrusive__model.layers.0.mlp.output___layer_id=0.pt
 *
 * The index counts the dumps of one process. Hooks on modules give names with a prefix and the words inputs and output;
 * calls by hand give free names and the layer aside; parameters begin with param__, gradients with grad__. Whoever
 * calls may add tags of their own. */
#include "read/dump_tags.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "base/text.h"
#include "read/call_name.h"
#include "tensor/layer.h"

#define SEPARATOR "___"
/* Of a tag that goes into the name; longer ones say nothing to people. */
#define MAX_EXTRA 64

static const char hooked[] = "non_intrusive__", parameter[] = "param__", gradient[] = "grad__";

static bool is_key(const char *key, size_t size, const char *word)
{
    return size == strlen(word) && memcmp(key, word, size) == 0;
}

static bool read_number(const char *text, size_t size, uint64_t *number)
{
    uint64_t value = 0;
    if (size == 0 || size > 18)
        return false;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    *number = value;
    return true;
}

/* The tag at *at of text[0 .. size), and *at moves behind it; false at the end. A piece without '=' belongs to the
 * value before it. */
static bool next_tag(const char *text, size_t size, size_t *at, const char **key, size_t *key_size, const char **value,
                     size_t *value_size)
{
    const char *from = text + *at, *equals;
    size_t end = *at;
    if (*at >= size)
        return false;
    for (;;) {
        const char *break_at = memmem(text + end, size - end, SEPARATOR, sizeof SEPARATOR - 1);
        const char *next_break;
        size_t next, next_size;
        end = break_at ? (size_t)(break_at - text) : size;
        if (!break_at)
            break;
        next = end + sizeof SEPARATOR - 1;
        while (next < size && text[next] == '_') /* "a____b": the value ended in '_' */
            next++, end++;
        next_break = memmem(text + next, size - next, SEPARATOR, sizeof SEPARATOR - 1);
        next_size = (next_break ? (size_t)(next_break - text) : size) - next;
        if (memchr(text + next, '=', next_size))
            break;
        end = next + next_size;
        if (end >= size) {
            end = size;
            break;
        }
    }
    *at = end + (sizeof SEPARATOR - 1);
    equals = memchr(from, '=', end - (size_t)(from - text));
    if (!equals)
        return false;
    *key = from;
    *key_size = (size_t)(equals - from);
    *value = equals + 1;
    *value_size = (size_t)(text + end - equals - 1);
    return true;
}

bool ts_tags_read(const char *path, size_t common, struct ts_tags *tags)
{
    const char *slash = strrchr(path, '/'), *text = slash ? slash + 1 : path, *key, *value;
    size_t size = strlen(text), at = 0, key_size, value_size, folder = slash ? (size_t)(text - path) : 0;
    bool has_step = false, has_rank = false, has_index = false;
    *tags = (struct ts_tags){0};
    if (size < 4 || strcmp(text + size - 3, ".pt") != 0 || !strstr(text, SEPARATOR))
        return false;
    size -= 3;
    if (common > folder)
        common = folder;
    tags->folder = path + common;
    tags->folder_size = folder - common;
    tags->rest = text;
    tags->rest_size = size;
    while (next_tag(text, size, &at, &key, &key_size, &value, &value_size)) {
        if (is_key(key, key_size, "name")) {
            tags->name = value;
            tags->name_size = value_size;
        } else if (is_key(key, key_size, "layer_id") || is_key(key, key_size, "layer")) {
            tags->layer = value;
            tags->layer_size = value_size;
        } else if (is_key(key, key_size, "step") || is_key(key, key_size, "forward_pass_id")) {
            has_step = read_number(value, value_size, &tags->step);
        } else if (is_key(key, key_size, "rank")) {
            has_rank = read_number(value, value_size, &tags->rank);
        } else if (is_key(key, key_size, "dump_index")) {
            has_index = read_number(value, value_size, &tags->index);
        }
    }
    return tags->name_size > 0 && has_index && (has_step || has_rank);
}

void ts_tags_look(struct ts_tags_survey *survey, const char *path)
{
    struct ts_tags tags;
    if (!ts_tags_read(path, 0, &tags))
        return;
    if (survey->any) {
        survey->many_steps |= survey->step != tags.step;
        survey->many_ranks |= survey->rank != tags.rank;
    }
    survey->any = true;
    survey->step = tags.step;
    survey->rank = tags.rank;
}

/* "model.layers.0.mlp.output.1" -> the module, what it is of it, and which. */
static char *name_of_call(struct ts_arena *arena, const char *name)
{
    size_t length = strlen(name);
    const char *at;
    char *path;
    if (strcmp(name, "output") == 0 || ts_ends_with(name, ".output")) {
        path = ts_arena_copy(arena, name, length - 6 - (length > 6));
        return path ? ts_call_name(arena, path, TS_CALL_OUTPUT, "") : NULL;
    }
    for (at = name; (at = strstr(at, "output.")) != NULL; at++)
        if ((at == name || at[-1] == '.') && at[7] && strspn(at + 7, "0123456789") == strlen(at + 7)) {
            path = ts_arena_copy(arena, name, at == name ? 0 : (size_t)(at - name - 1));
            return path ? ts_call_name(arena, path, TS_CALL_OUTPUT, at + 7) : NULL;
        }
    for (at = name; (at = strstr(at, "inputs.")) != NULL; at++)
        if (at == name || at[-1] == '.') {
            path = ts_arena_copy(arena, name, at == name ? 0 : (size_t)(at - name - 1));
            return path ? ts_call_name(arena, path, TS_CALL_INPUT, at + 7) : NULL;
        }
    return ts_arena_string(arena, name);
}

/* Tags that whoever called the dumper added: two dumps of one name differ in them. */
static void put_extra(struct ts_buffer *out, const struct ts_tags *tags)
{
    static const char *const known[] = {"name",       "layer_id", "layer",   "step",    "forward_pass_id", "rank",
                                        "dump_index", "pp_rank",  "tp_rank", "cp_rank", "ep_rank",         "etp_rank"};
    const char *key, *value;
    size_t at = 0, key_size, value_size;
    while (next_tag(tags->rest, tags->rest_size, &at, &key, &key_size, &value, &value_size)) {
        bool skip = key_size + value_size > MAX_EXTRA;
        for (size_t i = 0; i < sizeof known / sizeof *known && !skip; i++)
            skip = is_key(key, key_size, known[i]);
        if (!skip)
            ts_buffer_printf(out, ".%.*s=%.*s", (int)key_size, key, (int)value_size, value);
    }
}

/* Steps over the prefix, when it is there. */
static bool step_over(const char **text, size_t *size, const char *prefix)
{
    const size_t length = strlen(prefix);
    if (*size <= length || memcmp(*text, prefix, length) != 0)
        return false;
    *text += length;
    *size -= length;
    return true;
}

char *ts_tags_name(const struct ts_tags_survey *survey, const struct ts_tags *tags, const char *inner,
                   struct ts_arena *arena, bool *drop)
{
    const char *from = tags->name;
    size_t size = tags->name_size;
    struct ts_buffer out;
    uint64_t layer;
    bool is_gradient, is_hooked;
    char *name;
    *drop = strcmp(inner, "meta") == 0 || ts_starts_with(inner, "meta.");
    is_gradient = step_over(&from, &size, gradient);
    is_hooked = step_over(&from, &size, hooked);
    step_over(&from, &size, parameter);
    name = ts_arena_copy(arena, from, size);
    name = name && is_hooked ? name_of_call(arena, name) : name;
    if (!name)
        return NULL;
    ts_buffer_init(&out, (size_t)64 << 10);
    ts_buffer_append(&out, tags->folder, tags->folder_size);
    if (survey->many_steps)
        ts_buffer_printf(&out, "step_%" PRIu64 "/", tags->step);
    if (survey->many_ranks)
        ts_buffer_printf(&out, "rank_%" PRIu64 "/", tags->rank);
    if (tags->layer && tags->layer_size && !ts_layer_of(name, &layer))
        ts_buffer_printf(&out, "layers.%.*s.", (int)tags->layer_size, tags->layer);
    ts_buffer_string(&out, name);
    if (is_gradient)
        ts_buffer_string(&out, ".grad");
    put_extra(&out, tags);
    if (ts_starts_with(inner, "value."))
        ts_buffer_string(&out, inner + 5); /* a dict of tensors was dumped */
    else if (inner[0] && strcmp(inner, "value") != 0)
        ts_buffer_printf(&out, ".%s", inner);
    name = out.failed ? NULL : ts_arena_copy(arena, out.data, out.size);
    ts_buffer_release(&out);
    return name;
}

struct dumped {
    struct ts_tensor *tensor;
    struct ts_tags tags;
    size_t at;
};

static int by_dump(const void *a, const void *b)
{
    const struct dumped *left = a, *right = b;
    size_t shorter =
        left->tags.folder_size < right->tags.folder_size ? left->tags.folder_size : right->tags.folder_size;
    int folder = shorter ? memcmp(left->tags.folder, right->tags.folder, shorter) : 0;
    if (folder || left->tags.folder_size != right->tags.folder_size)
        return folder ? folder : left->tags.folder_size < right->tags.folder_size ? -1 : 1;
    if (left->tags.step != right->tags.step)
        return left->tags.step < right->tags.step ? -1 : 1;
    if (left->tags.index != right->tags.index)
        return left->tags.index < right->tags.index ? -1 : 1;
    if (left->tags.rank != right->tags.rank)
        return left->tags.rank < right->tags.rank ? -1 : 1;
    return left->at < right->at ? -1 : left->at > right->at;
}

/* "b s h[tp] d # dp:=moe_dp" -> "b,s,h,d": names of axes, without how they are cut. NULL when it says something else.
 */
static const char *axes_of(const char *dims, unsigned rank, struct ts_arena *arena)
{
    char *axes = ts_arena_alloc(arena, strlen(dims) + 1), *out = axes;
    unsigned count = 0;
    if (!axes)
        return NULL;
    for (const char *at = dims; *at && *at != '#';) {
        size_t length = strcspn(at, " [#");
        if (length == 0) {
            at += *at == '[' ? strcspn(at, "]") : 0;
            at += *at != '\0' && *at != '#';
            continue;
        }
        if (memchr(at, '(', length) || memchr(at, '*', length) || memchr(at, ',', length))
            return NULL;
        if (count++)
            *out++ = ',';
        memcpy(out, at, length);
        out += length;
        at += length;
    }
    *out = '\0';
    return count == rank && count ? axes : NULL;
}

/* What the dumper says of a tensor is metadata of its file; there are thousands, so only axes stay. */
static enum ts_status take_metas(struct ts_bundle *bundle, const struct dumped *list, size_t count,
                                 struct ts_error *error)
{
    struct ts_table files;
    enum ts_status status = TS_OK;
    size_t kept = 0;
    if (!ts_table_init(&files, count))
        return ts_fail_memory(error);
    for (size_t i = 0; i < count; i++)
        ts_table_put(&files, list[i].tensor->file, i, NULL);
    for (size_t i = 0; i < bundle->meta_count && status == TS_OK; i++) {
        struct ts_meta meta = bundle->metas[i];
        size_t at = meta.file && ts_starts_with(meta.key, "meta.") ? ts_table_get(&files, meta.file) : SIZE_MAX;
        if (at == SIZE_MAX) {
            bundle->metas[kept++] = meta;
        } else if (strcmp(meta.key, "meta.dims") == 0) {
            struct ts_tensor *tensor = list[at].tensor;
            const char *axes = axes_of(meta.value, tensor->rank, &bundle->arena);
            status = ts_bundle_attribute(bundle, tensor, "dims", meta.value, error);
            if (status == TS_OK && axes)
                status = ts_bundle_attribute(bundle, tensor, "axes", axes, error);
        }
    }
    if (status == TS_OK)
        bundle->meta_count = kept;
    ts_table_release(&files);
    return status;
}

enum ts_status ts_tags_arrange(struct ts_bundle *bundle, struct ts_error *error)
{
    struct dumped *list = calloc(bundle->count + 1, sizeof *list);
    size_t count = 0, kept = 0, next = 0;
    enum ts_status status;
    if (!list)
        return ts_fail_memory(error);
    for (size_t i = 0; i < bundle->count; i++) {
        struct ts_tensor *tensor = bundle->tensors[i];
        struct ts_tags tags;
        bool tagged = tensor->file && ts_tags_read(tensor->file, 0, &tags);
        if (tagged && !tensor->name[0])
            continue;
        if (tagged)
            list[count] = (struct dumped){tensor, tags, count}, count++;
        bundle->tensors[kept++] = tensor;
    }
    bundle->count = kept;
    qsort(list, count, sizeof *list, by_dump);
    for (size_t i = 0; i < kept; i++) {
        struct ts_tags tags;
        if (bundle->tensors[i]->file && ts_tags_read(bundle->tensors[i]->file, 0, &tags))
            bundle->tensors[i] = list[next++].tensor;
    }
    status = take_metas(bundle, list, count, error);
    if (status == TS_OK)
        status = ts_call_number(bundle, 0, error);
    if (status == TS_OK && count)
        bundle->order = "order of the dumps";
    free(list);
    return status;
}

/* "TP_0/layers.0.mlp-step12" -> 12 and the bytes before "-step12". */
static bool read_step(const char *name, uint64_t *step, size_t *length)
{
    size_t end = strlen(name), from = end;
    while (from > 0 && ts_is_digit(name[from - 1]))
        from--;
    if (from < 6 || memcmp(name + from - 5, "-step", 5) != 0 || !read_number(name + from, end - from, step))
        return false;
    *length = from - 5;
    return true;
}

struct stepped {
    struct ts_tensor *tensor;
    uint64_t step;
    size_t at;
};

static int by_step(const void *a, const void *b)
{
    const struct stepped *left = a, *right = b;
    if (left->step != right->step)
        return left->step < right->step ? -1 : 1;
    return left->at < right->at ? -1 : left->at > right->at;
}

enum ts_status ts_tags_steps(struct ts_bundle *bundle, struct ts_error *error)
{
    struct stepped *list;
    enum ts_status status = TS_OK;
    size_t length;
    uint64_t step;
    for (size_t i = 0; i < bundle->count; i++)
        if (!read_step(bundle->tensors[i]->name, &step, &length))
            return TS_OK;
    list = calloc(bundle->count + 1, sizeof *list);
    if (!list)
        return ts_fail_memory(error);
    for (size_t i = 0; i < bundle->count; i++) {
        read_step(bundle->tensors[i]->name, &step, &length);
        list[i] = (struct stepped){bundle->tensors[i], step, i};
    }
    qsort(list, bundle->count, sizeof *list, by_step);
    for (size_t i = 0; i < bundle->count && status == TS_OK; i++) {
        struct ts_tensor *tensor = bundle->tensors[i] = list[i].tensor;
        read_step(tensor->name, &step, &length);
        tensor->name = list[0].step == list[bundle->count - 1].step
                           ? ts_arena_copy(&bundle->arena, tensor->name, length)
                           : ts_arena_printf(&bundle->arena, "step_%" PRIu64 "/%.*s", step, (int)length, tensor->name);
        if (!tensor->name)
            status = ts_fail_memory(error);
    }
    free(list);
    return status;
}
