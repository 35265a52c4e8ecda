/* Torch walk: descends the value graph of a pickle in its own order, gives every tensor the dotted path that leads to
 * it, and keeps the small things that are no tensors as metadata.
 *
 * Names are those of state_dict(): a pickled module's _parameters, _buffers and _modules do not show. What is shared is
 * walked once for each name; what refers to itself is noted and left. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "read/torch.h"

/* All names together; a hostile file repeats a long one. */
#define MAX_NAME_BYTES ((uint64_t)256 << 20)

/* A name that does not fit fills the path, which is how ts_torch_add knows. */
size_t ts_torch_enter(struct ts_torch *torch, const char *key, size_t size)
{
    size_t before = torch->path_size;
    if (torch->path_size && torch->path_size < TS_TORCH_MAX_NAME)
        torch->path[torch->path_size++] = '.';
    if (size > TS_TORCH_MAX_NAME - torch->path_size)
        size = TS_TORCH_MAX_NAME - torch->path_size;
    for (size_t i = 0; i < size; i++) /* names are C strings everywhere else */
        torch->path[torch->path_size++] = key[i] ? key[i] : '?';
    torch->path[torch->path_size] = '\0';
    return before;
}

void ts_torch_leave(struct ts_torch *torch, size_t before)
{
    torch->path_size = before;
    torch->path[before] = '\0';
}

static enum ts_status too_much(struct ts_torch *torch, struct ts_error *error, uint64_t bound, const char *what)
{
    torch->over = true;
    return ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "expands to more than %" PRIu64 " %s", bound, what);
}

/* Everything the walk does goes through here, so that shared parts cannot make it endless. */
static enum ts_status take_steps(struct ts_torch *torch, uint64_t steps, struct ts_error *error)
{
    torch->steps += steps;
    return torch->steps > torch->step_limit ? too_much(torch, error, torch->step_limit, "values") : TS_OK;
}

enum ts_status ts_torch_add(struct ts_torch *torch, unsigned rank, struct ts_tensor **tensor, struct ts_error *error)
{
    if (torch->emitted >= torch->tensor_limit)
        return too_much(torch, error, torch->tensor_limit, "tensors");
    if ((torch->name_bytes += torch->path_size) > MAX_NAME_BYTES)
        return too_much(torch, error, MAX_NAME_BYTES, "bytes of names");
    if (torch->path_size == TS_TORCH_MAX_NAME)
        return ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "has a name longer than %d bytes", TS_TORCH_MAX_NAME);
    torch->emitted++;
    return ts_bundle_add(torch->bundle, torch->path, rank, tensor, error);
}

enum ts_status ts_torch_skip(struct ts_torch *torch, const struct ts_error *why, bool harmless, struct ts_error *error)
{
    char place[1024];
    TS_TRY(take_steps(torch, 100, error)); /* dear: messages are made for it */
    if (torch->skips++ >= TS_TORCH_MAX_SKIPS)
        return TS_OK;
    if (!harmless)
        return ts_bundle_skip_error(torch->bundle, torch->input->member, torch->path, why, error);
    snprintf(place, sizeof place, "%.400s%s%.500s", torch->input->member, torch->path_size ? ":" : "", torch->path);
    return ts_bundle_skip(torch->bundle, place, true, why->message, error);
}

enum ts_status ts_torch_meta(struct ts_torch *torch, const char *text, size_t size, struct ts_error *error)
{
    char cut[TS_TORCH_META_CUT + 4];
    size_t used = size < TS_TORCH_META_CUT ? size : TS_TORCH_META_CUT;
    if (torch->metas >= TS_TORCH_MAX_METAS || (torch->name_bytes += torch->path_size) > MAX_NAME_BYTES)
        return TS_OK;
    torch->metas++;
    if (used < size)
        while (used && ((unsigned char)text[used] & 0xc0) == 0x80) /* not in the middle of a character */
            used--;
    for (size_t i = 0; i < used; i++)
        cut[i] = text[i] ? text[i] : ' ';
    memcpy(cut + used, used < size ? "..." : "", used < size ? 4 : 1);
    return ts_bundle_meta(torch->bundle, torch->path_size ? torch->path : "(root)", cut, error);
}

static enum ts_status walk_small(struct ts_torch *torch, struct ts_pickle_value value, struct ts_error *error)
{
    struct ts_buffer text;
    enum ts_status status = TS_OK;
    if (torch->metas >= TS_TORCH_MAX_METAS)
        return TS_OK;
    ts_buffer_init(&text, (size_t)64 << 10);
    if (ts_torch_describe(&text, value, 0) && !text.failed)
        status = ts_torch_meta(torch, text.data ? text.data : "", text.size, error);
    ts_buffer_release(&text);
    return status;
}

/* The key of a dict as a part of a name. */
static size_t enter_key(struct ts_torch *torch, struct ts_pickle_value key)
{
    struct ts_buffer text;
    size_t before;
    if (key.kind == TS_PICKLE_TEXT || key.kind == TS_PICKLE_STRING || key.kind == TS_PICKLE_BYTES)
        return ts_torch_enter(torch, (const char *)key.bytes->data,
                              key.bytes->size < SIZE_MAX / 2 ? (size_t)key.bytes->size : SIZE_MAX / 2);
    ts_buffer_init(&text, (size_t)64 << 10);
    if (!ts_torch_describe(&text, key, 0) || text.failed || !text.data)
        before = ts_torch_enter(torch, "?", 1);
    else
        before = ts_torch_enter(torch, text.data, text.size);
    ts_buffer_release(&text);
    return before;
}

static enum ts_status walk_index(struct ts_torch *torch, uint64_t index, struct ts_pickle_value value,
                                 struct ts_error *error)
{
    char key[24];
    size_t before = ts_torch_enter(torch, key, (size_t)snprintf(key, sizeof key, "%" PRIu64, index));
    enum ts_status status = ts_torch_walk(torch, value, error);
    ts_torch_leave(torch, before);
    return status;
}

static enum ts_status walk_items(struct ts_torch *torch, const struct ts_pickle_list *list, struct ts_error *error)
{
    struct ts_pickle_cursor cursor = ts_pickle_begin(list);
    struct ts_pickle_value item;
    for (uint64_t i = 0; ts_pickle_next(&cursor, &item); i++)
        TS_TRY(walk_index(torch, i, item, error));
    return TS_OK;
}

static enum ts_status walk_pairs(struct ts_torch *torch, const struct ts_pickle_list *list, struct ts_error *error)
{
    struct ts_pickle_cursor cursor = ts_pickle_begin(list);
    struct ts_pickle_value key, value;
    while (ts_pickle_next(&cursor, &key) && ts_pickle_next(&cursor, &value)) {
        size_t before = enter_key(torch, key);
        enum ts_status status = ts_torch_walk(torch, value, error);
        ts_torch_leave(torch, before);
        TS_TRY(status);
    }
    return TS_OK;
}

/* The entries of a dict or OrderedDict, or NULL. */
static const struct ts_pickle_list *entries_of(struct ts_pickle_value value)
{
    if (value.kind == TS_PICKLE_DICT)
        return value.list;
    if (value.kind == TS_PICKLE_OBJECT && ts_torch_known(value.object->callable) == TS_TORCH_MAPPING)
        return value.object->pairs;
    return NULL;
}

static bool has_key(const struct ts_pickle_list *list, const char *name)
{
    struct ts_pickle_cursor cursor = ts_pickle_begin(list);
    struct ts_pickle_value key, value;
    for (unsigned i = 0; i < 256 && ts_pickle_next(&cursor, &key) && ts_pickle_next(&cursor, &value); i++)
        if (ts_pickle_equals(key, name))
            return true;
    return false;
}

/* What nn.Module keeps for itself, empty or of no interest. */
static bool is_bookkeeping(struct ts_pickle_value key)
{
    static const char *const names[] = {"_non_persistent_buffers_set",
                                        "_backward_pre_hooks",
                                        "_backward_hooks",
                                        "_is_full_backward_hook",
                                        "_forward_hooks",
                                        "_forward_hooks_with_kwargs",
                                        "_forward_hooks_always_called",
                                        "_forward_pre_hooks",
                                        "_forward_pre_hooks_with_kwargs",
                                        "_state_dict_hooks",
                                        "_state_dict_pre_hooks",
                                        "_load_state_dict_pre_hooks",
                                        "_load_state_dict_post_hooks"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ts_pickle_equals(key, names[i]))
            return true;
    return false;
}

static bool is_transparent(struct ts_pickle_value key)
{
    return ts_pickle_equals(key, "_parameters") || ts_pickle_equals(key, "_buffers") ||
           ts_pickle_equals(key, "_modules");
}

/* Absent parameters (bias=None) are left out, as state_dict() does. */
static enum ts_status walk_members(struct ts_torch *torch, struct ts_pickle_value members, struct ts_error *error)
{
    struct ts_pickle_cursor cursor = ts_pickle_begin(entries_of(members));
    struct ts_pickle_value key, value;
    while (ts_pickle_next(&cursor, &key) && ts_pickle_next(&cursor, &value)) {
        size_t before;
        enum ts_status status;
        TS_TRY(take_steps(torch, 1, error));
        before = enter_key(torch, key);
        status = value.kind == TS_PICKLE_NONE ? TS_OK : ts_torch_walk(torch, value, error);
        ts_torch_leave(torch, before);
        TS_TRY(status);
    }
    return TS_OK;
}

static enum ts_status walk_attributes(struct ts_torch *torch, const struct ts_pickle_list *list, struct ts_error *error)
{
    struct ts_pickle_cursor cursor = ts_pickle_begin(list);
    struct ts_pickle_value key, value;
    bool module = has_key(list, "_parameters") && has_key(list, "_modules");
    while (ts_pickle_next(&cursor, &key) && ts_pickle_next(&cursor, &value)) {
        size_t before = torch->path_size;
        enum ts_status status;
        TS_TRY(take_steps(torch, 1, error));
        if ((module && is_bookkeeping(key)) || ts_pickle_equals(key, "_metadata"))
            continue; /* _metadata: the versions that state_dict() hangs on its OrderedDict */
        if (module && is_transparent(key) && (entries_of(value) || value.kind == TS_PICKLE_OBJECT)) {
            TS_TRY(walk_members(torch, value, error));
            continue;
        }
        if (!ts_pickle_equals(key, "_local_tensor")) /* the data of a DTensor goes by the DTensor's name */
            enter_key(torch, key);
        status = ts_torch_walk(torch, value, error);
        ts_torch_leave(torch, before);
        TS_TRY(status);
    }
    return TS_OK;
}

enum ts_status ts_torch_walk_state(struct ts_torch *torch, struct ts_pickle_value state, struct ts_error *error)
{
    enum ts_status status = TS_OK;
    if (state.kind == TS_PICKLE_NONE)
        return TS_OK;
    TS_TRY(take_steps(torch, 1, error));
    if (state.kind == TS_PICKLE_TUPLE && state.tuple->count == 2 &&
        (entries_of(state.tuple->items[1]) || state.tuple->items[1].kind == TS_PICKLE_NONE) &&
        (entries_of(state.tuple->items[0]) || state.tuple->items[0].kind == TS_PICKLE_NONE)) {
        /* (attributes, slots) */
        for (unsigned i = 0; i < 2; i++)
            if (entries_of(state.tuple->items[i]))
                TS_TRY(walk_attributes(torch, entries_of(state.tuple->items[i]), error));
        return TS_OK;
    }
    if (state.kind == TS_PICKLE_DICT) {
        if (state.list->active)
            return TS_OK; /* an object that is its own attribute dict: Python cannot load it either */
        state.list->active = true;
        status = walk_attributes(torch, state.list, error);
        state.list->active = false;
        return status;
    }
    if (entries_of(state))
        return walk_attributes(torch, entries_of(state), error);
    return ts_torch_walk(torch, state, error);
}

/* The very same container or object, not an equal one. */
static bool is_same(struct ts_pickle_value a, struct ts_pickle_value b)
{
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case TS_PICKLE_NONE:
        return true;
    case TS_PICKLE_TUPLE:
        return a.tuple == b.tuple;
    case TS_PICKLE_LIST:
    case TS_PICKLE_SET:
    case TS_PICKLE_DICT:
        return a.list == b.list;
    case TS_PICKLE_OBJECT:
        return a.object == b.object;
    default:
        return false;
    }
}

/* Outputs of transformers are dicts whose entries are attributes and arguments of the constructor as well: the class is
 * made of its arguments, and each of them stands under a name among the attributes. */
static bool repeats_attributes(const struct ts_pickle_object *object)
{
    struct ts_pickle_value arguments = object->arguments, key, value;
    struct ts_pickle_cursor cursor;
    if (object->state.kind != TS_PICKLE_DICT || !object->pairs || arguments.tuple->count == 0 ||
        arguments.tuple->count > 64 || object->state.list->count != 2 * arguments.tuple->count)
        return false;
    cursor = ts_pickle_begin(object->state.list);
    for (uint64_t i = 0; ts_pickle_next(&cursor, &key) && ts_pickle_next(&cursor, &value); i++)
        if (!is_same(value, arguments.tuple->items[i]))
            return false;
    return true;
}

/* torch kept the source code of classes: ('module', class, file, source), in 0.1 (class, file, source). */
static struct ts_pickle_value class_of(struct ts_pickle_value callable)
{
    const struct ts_pickle_tuple *id;
    if (callable.kind != TS_PICKLE_PERSISTENT || callable.persistent->id.kind != TS_PICKLE_TUPLE)
        return callable;
    id = callable.persistent->id.tuple;
    if (id->count > 1 && ts_pickle_equals(id->items[0], "module"))
        return id->items[1];
    return id->count ? id->items[0] : callable;
}

/* A class this program does not know: its name, and whatever it holds. */
static enum ts_status walk_opaque(struct ts_torch *torch, struct ts_pickle_value class, uint64_t first_argument,
                                  struct ts_pickle_object *object, struct ts_error *error)
{
    const struct ts_pickle_tuple *arguments = object->arguments.tuple;
    struct ts_pickle_value rest = {.kind = TS_PICKLE_TUPLE};
    struct ts_buffer text;
    const bool repeats = first_argument == 0 && repeats_attributes(object);
    bool done = repeats;
    ts_buffer_init(&text, (size_t)64 << 10);
    if (class.kind == TS_PICKLE_GLOBAL) {
        char name[TS_TORCH_META_CUT];
        enum ts_status status;
        ts_torch_global_text(class.global, name, sizeof name);
        ts_buffer_printf(&text, "<%s>", name);
        /* An enum and its like: a call with plain arguments says all in a line. */
        if (!repeats && !object->made_by_class && arguments->count > first_argument) {
            ts_buffer_byte(&text, '(');
            done =
                ts_torch_describe_items(&text, arguments->items + first_argument, arguments->count - first_argument, 1);
            ts_buffer_byte(&text, ')');
            if (!done) {
                ts_buffer_clear(&text);
                ts_buffer_printf(&text, "<%s>", name);
            }
        }
        status = text.failed ? TS_OK : ts_torch_meta(torch, text.data, text.size, error);
        ts_buffer_release(&text);
        TS_TRY(status);
    }
    if (!done && arguments->count > first_argument) {
        if (first_argument == 0) { /* a named tuple of numbers is a list of numbers */
            rest = object->arguments;
            TS_TRY(ts_torch_numbers(torch, rest, &done, error));
        }
        for (uint64_t i = first_argument; !done && i < arguments->count; i++)
            TS_TRY(walk_index(torch, i - first_argument, arguments->items[i], error));
    }
    if (object->state.kind == TS_PICKLE_NONE) /* else they are attributes as well */
        TS_TRY(walk_pairs(torch, object->keywords, error));
    TS_TRY(ts_torch_walk_state(torch, object->state, error));
    TS_TRY(walk_items(torch, object->items, error));
    return repeats ? TS_OK : walk_pairs(torch, object->pairs, error);
}

/* OrderedDict, defaultdict, Counter, dict: entries may come as an argument (a dict, or Python 2's list of pairs). */
static enum ts_status walk_mapping(struct ts_torch *torch, struct ts_pickle_object *object, struct ts_error *error)
{
    struct ts_pickle_value first = ts_torch_argument(object, 0), pair;
    bool done = false;
    if (first.kind == TS_PICKLE_DICT) {
        TS_TRY(ts_torch_walk(torch, first, error));
    } else if (first.kind == TS_PICKLE_LIST) {
        struct ts_pickle_cursor cursor = ts_pickle_begin(first.list);
        while (ts_pickle_next(&cursor, &pair)) {
            struct ts_pickle_value both[2] = {{.kind = TS_PICKLE_NONE}, {.kind = TS_PICKLE_NONE}};
            size_t before;
            enum ts_status status;
            if (pair.kind == TS_PICKLE_TUPLE && pair.tuple->count == 2) {
                memcpy(both, pair.tuple->items, sizeof both);
            } else if (pair.kind == TS_PICKLE_LIST && pair.list->count == 2) {
                struct ts_pickle_cursor inner = ts_pickle_begin(pair.list);
                ts_pickle_next(&inner, &both[0]);
                ts_pickle_next(&inner, &both[1]);
            }
            before = enter_key(torch, both[0]);
            status = ts_torch_walk(torch, both[1], error);
            ts_torch_leave(torch, before);
            TS_TRY(status);
        }
    }
    TS_TRY(ts_torch_number_dict(torch, object->pairs, &done, error));
    if (!done)
        TS_TRY(walk_pairs(torch, object->pairs, error));
    return ts_torch_walk_state(torch, object->state, error);
}

static enum ts_status walk_object(struct ts_torch *torch, struct ts_pickle_value value, struct ts_error *error)
{
    struct ts_pickle_object *object = value.object;
    enum ts_torch_known known = ts_torch_known(object->callable);
    struct ts_pickle_value first = ts_torch_argument(object, 0);
    bool done = false;
    if (known == TS_TORCH_OLD_TENSOR && object->state.kind != TS_PICKLE_TUPLE)
        known = TS_TORCH_OPAQUE;
    if (ts_torch_is_tensor(known))
        return ts_torch_emit(torch, value, error);
    switch (known) {
    case TS_TORCH_MAPPING:
        return walk_mapping(torch, object, error);
    case TS_TORCH_SEQUENCE:
    case TS_TORCH_JIT_LIST:
    case TS_TORCH_JIT_TAGGED:
        if (object->arguments.tuple->count)
            TS_TRY(ts_torch_walk(torch, first, error));
        return object->items
                   ? ts_torch_walk(torch, (struct ts_pickle_value){.kind = TS_PICKLE_LIST, .list = object->items},
                                   error)
                   : TS_OK;
    case TS_TORCH_COMPLEX:
    case TS_TORCH_CONVERSION:
        TS_TRY(ts_torch_numbers(torch, value, &done, error));
        return done ? TS_OK : walk_small(torch, value, error);
    case TS_TORCH_LOAD_FROM_BYTES:
        return ts_torch_emit(torch, value, error);
    case TS_TORCH_SIZE:
    case TS_TORCH_DEVICE:
    case TS_TORCH_LAYOUT:
    case TS_TORCH_ENCODE:
    case TS_TORCH_NUMPY_DTYPE:
        return walk_small(torch, value, error);
    case TS_TORCH_RECONSTRUCTOR: /* (class, base class, value of the base class): a subclass of dict is its entries */
        if (ts_torch_argument(object, 2).kind != TS_PICKLE_NONE)
            TS_TRY(ts_torch_walk(torch, ts_torch_argument(object, 2), error));
        return walk_opaque(torch, first, object->arguments.tuple->count, object, error);
    case TS_TORCH_NEW_OBJECT: /* (class, arguments ...) */
        return walk_opaque(torch, first, 1, object, error);
    default:
        return walk_opaque(torch, class_of(object->callable), 0, object, error);
    }
}

static bool all_text(const struct ts_pickle_value *items, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (items[i].kind != TS_PICKLE_TEXT && items[i].kind != TS_PICKLE_STRING)
            return false;
    return count > 0;
}

static enum ts_status walk_tuple(struct ts_torch *torch, struct ts_pickle_value value, struct ts_error *error)
{
    const struct ts_pickle_tuple *tuple = value.tuple;
    TS_TRY(take_steps(torch, tuple->count, error));
    if (all_text(tuple->items, tuple->count))
        return walk_small(torch, value, error);
    for (uint64_t i = 0; i < tuple->count; i++)
        TS_TRY(walk_index(torch, i, tuple->items[i], error));
    return TS_OK;
}

/* Lists of strings are one line of metadata, not one each. */
static enum ts_status walk_list(struct ts_torch *torch, struct ts_pickle_list *list, struct ts_error *error)
{
    struct ts_pickle_cursor cursor = ts_pickle_begin(list);
    struct ts_pickle_value item;
    struct ts_buffer text;
    enum ts_status status;
    for (const struct ts_pickle_chunk *chunk = list->first; chunk; chunk = chunk->next) {
        TS_TRY(take_steps(torch, chunk->count, error));
        if (chunk->count && !all_text(chunk->items, chunk->count))
            return walk_items(torch, list, error);
    }
    if (!list->count)
        return TS_OK;
    ts_buffer_init(&text, (size_t)64 << 20);
    ts_buffer_byte(&text, '[');
    while (text.size <= TS_TORCH_META_CUT && ts_pickle_next(&cursor, &item)) {
        ts_buffer_string(&text, text.size > 1 ? ", " : "");
        ts_torch_describe(&text, item, 1);
    }
    ts_buffer_byte(&text, ']');
    status = text.failed ? TS_OK : ts_torch_meta(torch, text.data, text.size, error);
    ts_buffer_release(&text);
    return status;
}

static enum ts_status walk_container(struct ts_torch *torch, struct ts_pickle_value value, struct ts_error *error)
{
    bool *active = value.kind == TS_PICKLE_OBJECT  ? &value.object->active
                   : value.kind == TS_PICKLE_TUPLE ? NULL
                                                   : &value.list->active;
    enum ts_status status = TS_OK;
    bool done = false;
    if (active && *active) { /* objects that know their parent do this everywhere: some examples are enough */
        struct ts_error why;
        if (torch->cycles++ >= TS_TORCH_MAX_CYCLES)
            return TS_OK;
        ts_fail(&why, TS_ERR_FORMAT, TS_NO_OFFSET, "refers to itself, and is listed once");
        return ts_torch_skip(torch, &why, true, error);
    }
    if (active)
        *active = true;
    if (value.kind == TS_PICKLE_DICT) {
        status = ts_torch_number_dict(torch, value.list, &done, error);
        if (status == TS_OK && !done)
            status = walk_pairs(torch, value.list, error);
    } else if (value.kind == TS_PICKLE_OBJECT) {
        status = walk_object(torch, value, error);
    } else {
        status = ts_torch_numbers(torch, value, &done, error);
        if (status == TS_OK && !done)
            status =
                value.kind == TS_PICKLE_TUPLE ? walk_tuple(torch, value, error) : walk_list(torch, value.list, error);
    }
    if (active)
        *active = false;
    return status;
}

enum ts_status ts_torch_walk(struct ts_torch *torch, struct ts_pickle_value value, struct ts_error *error)
{
    enum ts_status status;
    bool done = false;
    TS_TRY(take_steps(torch, 1, error));
    switch (value.kind) {
    case TS_PICKLE_BOOL:
    case TS_PICKLE_INT:
    case TS_PICKLE_FLOAT:
    case TS_PICKLE_BIG:
        TS_TRY(ts_torch_numbers(torch, value, &done, error));
        return done ? TS_OK : walk_small(torch, value, error);
    case TS_PICKLE_TUPLE:
    case TS_PICKLE_LIST:
    case TS_PICKLE_SET:
    case TS_PICKLE_DICT:
    case TS_PICKLE_OBJECT:
        if (torch->depth >= TS_TORCH_MAX_DEPTH) {
            struct ts_error why;
            ts_fail(&why, TS_ERR_LIMIT, TS_NO_OFFSET, "is nested more than %d deep", TS_TORCH_MAX_DEPTH);
            return ts_torch_skip(torch, &why, false, error);
        }
        torch->depth++;
        status = walk_container(torch, value, error);
        torch->depth--;
        return status;
    case TS_PICKLE_PERSISTENT:
        if (ts_torch_is_storage_id(value.persistent->id))
            return ts_torch_emit(torch, value, error);
        return walk_small(torch, class_of(value), error);
    default:
        return walk_small(torch, value, error);
    }
}
