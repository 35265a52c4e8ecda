/* Pickle values: what the instructions of a pickle make: scalars, strings, containers, classes, calls. Nothing is
 * called: a call is kept as the pair of what and with what. */
#include <inttypes.h>
#include <string.h>

#include "base/number.h"
#include "read/pickle_machine.h"

/* How the last chunks of a list grow when items come one by one. */
#define MAX_CHUNK 1024

enum ts_status ts_machine_push_bytes(struct ts_machine *m, enum ts_pickle_kind kind, const uint8_t *data, uint64_t size)
{
    struct ts_pickle_bytes *bytes = ts_arena_alloc(&m->pickle->arena, sizeof *bytes);
    if (!bytes)
        return ts_machine_too_much_memory(m);
    bytes->data = data;
    bytes->size = size;
    return ts_machine_push(m, (struct ts_pickle_value){.kind = kind, .bytes = bytes});
}

enum ts_status ts_machine_push_sized(struct ts_machine *m, enum ts_pickle_kind kind, unsigned width)
{
    const uint8_t *bytes = NULL;
    uint64_t length;
    TS_TRY(ts_machine_take_number(m, width, &length));
    TS_TRY(ts_machine_take(m, length, &bytes));
    return ts_machine_push_bytes(m, kind, bytes, length);
}

/* Little-endian two's complement of any length. */
enum ts_status ts_machine_push_long(struct ts_machine *m, unsigned width)
{
    const uint8_t *bytes = NULL;
    uint64_t length, bits = 0, used;
    TS_TRY(ts_machine_take_number(m, width, &length));
    TS_TRY(ts_machine_take(m, length, &bytes));
    used = length;
    while (used > 8) { /* sign extension says nothing */
        uint8_t fill = bytes[used - 2] & 0x80 ? 0xff : 0;
        if (bytes[used - 1] != fill)
            break;
        used--;
    }
    if (used > 8)
        return ts_machine_push_bytes(m, TS_PICKLE_BIG, bytes, used);
    for (uint64_t i = 0; i < used; i++)
        bits |= (uint64_t)bytes[i] << (8 * i);
    if (used && used < 8 && bytes[used - 1] & 0x80)
        bits |= UINT64_MAX << (8 * used);
    return ts_machine_push(m, (struct ts_pickle_value){.kind = TS_PICKLE_INT, .integer = (int64_t)bits});
}

enum ts_status ts_machine_push_integer(struct ts_machine *m, int64_t integer)
{
    return ts_machine_push(m, (struct ts_pickle_value){.kind = TS_PICKLE_INT, .integer = integer});
}

static enum ts_status append(struct ts_machine *m, struct ts_pickle_list *list, const struct ts_pickle_value *items,
                             size_t count)
{
    while (count) {
        struct ts_pickle_chunk *last = list->last;
        uint32_t now;
        if (!last || last->count == last->capacity) {
            uint64_t grow = list->count < MAX_CHUNK ? list->count : MAX_CHUNK;
            uint32_t room = (uint32_t)(count > grow ? (count < 1 << 20 ? count : 1 << 20) : grow);
            struct ts_pickle_chunk *chunk =
                ts_arena_alloc(&m->pickle->arena, sizeof *chunk + room * sizeof *chunk->items);
            if (!chunk)
                return ts_machine_too_much_memory(m);
            chunk->capacity = room;
            if (last)
                last->next = chunk;
            else
                list->first = chunk;
            list->last = last = chunk;
        }
        now = last->capacity - last->count;
        if (now > count)
            now = (uint32_t)count;
        memcpy(last->items + last->count, items, now * sizeof *items);
        last->count += now;
        list->count += now;
        items += now;
        count -= now;
    }
    return TS_OK;
}

static enum ts_status new_list(struct ts_machine *m, struct ts_pickle_list **list)
{
    *list = ts_arena_alloc(&m->pickle->arena, sizeof **list);
    return *list ? TS_OK : ts_machine_too_much_memory(m);
}

/* Replaces stack[first..] by a list, set or dict of them. */
enum ts_status ts_machine_push_list(struct ts_machine *m, enum ts_pickle_kind kind, size_t first)
{
    struct ts_pickle_list *list;
    if (kind == TS_PICKLE_DICT && (m->count - first) % 2)
        return ts_fail(m->error, TS_ERR_FORMAT, m->op, "a dict has a key without a value");
    TS_TRY(new_list(m, &list));
    if (m->count > first)
        TS_TRY(append(m, list, m->stack + first, m->count - first));
    m->count = first;
    return ts_machine_push(m, (struct ts_pickle_value){.kind = kind, .list = list});
}

static enum ts_status make_tuple(struct ts_machine *m, size_t first, struct ts_pickle_value *value)
{
    size_t count = m->count - first;
    struct ts_pickle_tuple *tuple =
        ts_arena_alloc(&m->pickle->arena, sizeof *tuple + count * sizeof(struct ts_pickle_value));
    if (!tuple)
        return ts_machine_too_much_memory(m);
    tuple->count = count;
    if (count)
        memcpy(tuple->items, m->stack + first, count * sizeof *tuple->items);
    m->count = first;
    *value = (struct ts_pickle_value){.kind = TS_PICKLE_TUPLE, .tuple = tuple};
    return TS_OK;
}

enum ts_status ts_machine_push_tuple(struct ts_machine *m, size_t first)
{
    struct ts_pickle_value value;
    TS_TRY(make_tuple(m, first, &value));
    return ts_machine_push(m, value);
}

/* APPEND, APPENDS, ADDITEMS, SETITEM, SETITEMS: moves stack[first..] into the value below it. */
enum ts_status ts_machine_fill(struct ts_machine *m, size_t first, bool pairs)
{
    struct ts_pickle_value target;
    struct ts_pickle_list *list = NULL;
    size_t fence = m->mark_count ? m->marks[m->mark_count - 1] : 0;
    if (first <= fence)
        return ts_fail(m->error, TS_ERR_FORMAT, m->op, "stack underflow: items without a container below them");
    if (pairs && (m->count - first) % 2)
        return ts_fail(m->error, TS_ERR_FORMAT, m->op, "a key without a value");
    target = m->stack[first - 1];
    if (target.kind == TS_PICKLE_OBJECT) {
        struct ts_pickle_list **place = pairs ? &target.object->pairs : &target.object->items;
        if (!*place)
            TS_TRY(new_list(m, place));
        list = *place;
    } else if (pairs ? target.kind == TS_PICKLE_DICT : target.kind == TS_PICKLE_LIST || target.kind == TS_PICKLE_SET) {
        list = target.list;
    } else {
        return ts_fail(m->error, TS_ERR_FORMAT, m->op, "items are added to something that is no container");
    }
    TS_TRY(append(m, list, m->stack + first, m->count - first));
    m->count = first;
    return TS_OK;
}

static enum ts_status push_global(struct ts_machine *m, const uint8_t *module, uint64_t module_size,
                                  const uint8_t *name, uint64_t name_size)
{
    struct ts_pickle_global *global = ts_arena_alloc(&m->pickle->arena, sizeof *global);
    if (!global)
        return ts_machine_too_much_memory(m);
    if (module_size > UINT32_MAX || name_size > UINT32_MAX)
        return ts_fail(m->error, TS_ERR_FORMAT, m->op, "the name of a class is %" PRIu64 " bytes long", name_size);
    *global = (struct ts_pickle_global){.module = module,
                                        .name = name,
                                        .module_size = (uint32_t)module_size,
                                        .name_size = (uint32_t)name_size,
                                        .offset = m->op};
    *m->pickle->globals_end = global;
    m->pickle->globals_end = &global->next;
    return ts_machine_push(m, (struct ts_pickle_value){.kind = TS_PICKLE_GLOBAL, .global = global});
}

enum ts_status ts_machine_global_from_lines(struct ts_machine *m)
{
    const uint8_t *module, *name;
    uint64_t module_size, name_size;
    TS_TRY(ts_machine_take_line(m, &module, &module_size));
    TS_TRY(ts_machine_take_line(m, &name, &name_size));
    return push_global(m, module, module_size, name, name_size);
}

enum ts_status ts_machine_global_from_stack(struct ts_machine *m)
{
    struct ts_pickle_value module, name;
    TS_TRY(ts_machine_need(m, 2));
    module = m->stack[m->count - 2];
    name = m->stack[m->count - 1];
    if ((module.kind != TS_PICKLE_TEXT && module.kind != TS_PICKLE_STRING) ||
        (name.kind != TS_PICKLE_TEXT && name.kind != TS_PICKLE_STRING))
        return ts_fail(m->error, TS_ERR_FORMAT, m->op, "the name of a class is not a string");
    m->count -= 2;
    return push_global(m, module.bytes->data, module.bytes->size, name.bytes->data, name.bytes->size);
}

/* A number of the copyreg extension registry, which only the program that wrote the pickle knows. */
enum ts_status ts_machine_global_from_registry(struct ts_machine *m, unsigned width)
{
    static const char module[] = "copyreg.extension";
    uint64_t number;
    char *name;
    TS_TRY(ts_machine_take_number(m, width, &number));
    if (!(name = ts_arena_printf(&m->pickle->arena, "%" PRIu64, number)))
        return ts_machine_too_much_memory(m);
    return push_global(m, (const uint8_t *)module, sizeof module - 1, (const uint8_t *)name, strlen(name));
}

static enum ts_status push_object(struct ts_machine *m, struct ts_pickle_value callable,
                                  struct ts_pickle_value arguments, struct ts_pickle_list *keywords, bool made_by_class)
{
    struct ts_pickle_object *object;
    if (arguments.kind != TS_PICKLE_TUPLE)
        return ts_fail(m->error, TS_ERR_FORMAT, m->op, "the arguments of a call are not a tuple");
    if (!(object = ts_arena_alloc(&m->pickle->arena, sizeof *object)))
        return ts_machine_too_much_memory(m);
    *object = (struct ts_pickle_object){.callable = callable,
                                        .arguments = arguments,
                                        .keywords = keywords,
                                        .offset = m->op,
                                        .made_by_class = made_by_class};
    return ts_machine_push(m, (struct ts_pickle_value){.kind = TS_PICKLE_OBJECT, .object = object});
}

/* REDUCE and NEWOBJ: callable, arguments. */
enum ts_status ts_machine_call(struct ts_machine *m, bool made_by_class)
{
    TS_TRY(ts_machine_need(m, 2));
    m->count -= 2;
    return push_object(m, m->stack[m->count], m->stack[m->count + 1], NULL, made_by_class);
}

/* NEWOBJ_EX: class, arguments, keyword arguments. */
enum ts_status ts_machine_call_with_keywords(struct ts_machine *m)
{
    struct ts_pickle_value keywords;
    TS_TRY(ts_machine_need(m, 3));
    m->count -= 3;
    keywords = m->stack[m->count + 2];
    if (keywords.kind != TS_PICKLE_DICT)
        return ts_fail(m->error, TS_ERR_FORMAT, m->op, "the keyword arguments of a call are not a dict");
    return push_object(m, m->stack[m->count], m->stack[m->count + 1], keywords.list, true);
}

/* OBJ: mark, class, arguments ... */
enum ts_status ts_machine_call_from_mark(struct ts_machine *m)
{
    struct ts_pickle_value callable, arguments;
    size_t first;
    TS_TRY(ts_machine_pop_mark(m, &first));
    if (m->count == first)
        return ts_fail(m->error, TS_ERR_FORMAT, m->op, "an object has no class");
    callable = m->stack[first];
    TS_TRY(make_tuple(m, first + 1, &arguments));
    m->count = first;
    return push_object(m, callable, arguments, NULL, true);
}

/* INST: the class as two lines, the arguments above the mark. */
enum ts_status ts_machine_call_named(struct ts_machine *m)
{
    struct ts_pickle_value arguments;
    size_t first;
    TS_TRY(ts_machine_pop_mark(m, &first));
    TS_TRY(make_tuple(m, first, &arguments));
    TS_TRY(ts_machine_global_from_lines(m));
    m->count--;
    return push_object(m, m->stack[m->count], arguments, NULL, true);
}

enum ts_status ts_machine_build(struct ts_machine *m)
{
    struct ts_pickle_value target;
    TS_TRY(ts_machine_need(m, 2));
    target = m->stack[m->count - 2];
    if (target.kind == TS_PICKLE_OBJECT)
        target.object->state = m->stack[m->count - 1];
    else if (target.kind != TS_PICKLE_PERSISTENT && target.kind != TS_PICKLE_GLOBAL)
        return ts_fail(m->error, TS_ERR_FORMAT, m->op, "a state is given to something that is no object");
    m->count--;
    return TS_OK;
}

enum ts_status ts_machine_push_persistent(struct ts_machine *m, struct ts_pickle_value id)
{
    struct ts_pickle_persistent *persistent = ts_arena_alloc(&m->pickle->arena, sizeof *persistent);
    if (!persistent)
        return ts_machine_too_much_memory(m);
    *persistent = (struct ts_pickle_persistent){.id = id, .offset = m->op, .tag = m->pickle->tag};
    *m->pickle->persistents_end = persistent;
    m->pickle->persistents_end = &persistent->next;
    return ts_machine_push(m, (struct ts_pickle_value){.kind = TS_PICKLE_PERSISTENT, .persistent = persistent});
}

enum ts_status ts_machine_persistent_from_line(struct ts_machine *m)
{
    const uint8_t *line = NULL;
    uint64_t length;
    struct ts_pickle_value id;
    TS_TRY(ts_machine_take_line(m, &line, &length));
    TS_TRY(ts_machine_push_bytes(m, TS_PICKLE_TEXT, line, length));
    id = m->stack[--m->count];
    return ts_machine_push_persistent(m, id);
}

/* INT, LONG, FLOAT, STRING, UNICODE: protocol 0 writes them as lines. */
enum ts_status ts_machine_push_text_form(struct ts_machine *m, uint8_t op)
{
    struct ts_pickle_value value = {.kind = TS_PICKLE_FLOAT};
    struct ts_arena *arena = &m->pickle->arena;
    uint64_t length, from = m->at;
    const uint8_t *line = NULL;
    TS_TRY(ts_machine_take_line(m, &line, &length));
    if (op == 'F')
        TS_TRY(ts_pickle_parse_float(line, length, from, &value.number, m->error));
    else if (op == 'S')
        TS_TRY(ts_pickle_parse_string(arena, line, length, from, &value, m->error));
    else if (op == 'V')
        TS_TRY(ts_pickle_parse_unicode(arena, line, length, from, &value, m->error));
    else
        TS_TRY(ts_pickle_parse_integer(arena, line, length, from, &value, m->error));
    if (op == 'L' && value.kind == TS_PICKLE_BOOL) /* only INT writes bools */
        value = (struct ts_pickle_value){.kind = TS_PICKLE_INT, .integer = value.truth};
    return ts_machine_push(m, value);
}

enum ts_status ts_machine_push_binary_float(struct ts_machine *m)
{
    const uint8_t *bytes = NULL;
    TS_TRY(ts_machine_take(m, 8, &bytes));
    return ts_machine_push(
        m, (struct ts_pickle_value){.kind = TS_PICKLE_FLOAT, .number = ts_double_from_bits(ts_load_be64(bytes))});
}

struct ts_pickle_cursor ts_pickle_begin(const struct ts_pickle_list *list)
{
    return (struct ts_pickle_cursor){.chunk = list ? list->first : NULL};
}

bool ts_pickle_next(struct ts_pickle_cursor *cursor, struct ts_pickle_value *value)
{
    while (cursor->chunk && cursor->index == cursor->chunk->count) {
        cursor->chunk = cursor->chunk->next;
        cursor->index = 0;
    }
    if (!cursor->chunk)
        return false;
    *value = cursor->chunk->items[cursor->index++];
    return true;
}

bool ts_pickle_equals(struct ts_pickle_value value, const char *text)
{
    size_t size = strlen(text);
    if (value.kind != TS_PICKLE_TEXT && value.kind != TS_PICKLE_STRING && value.kind != TS_PICKLE_BYTES)
        return false;
    return value.bytes->size == size && memcmp(value.bytes->data, text, size) == 0;
}

bool ts_pickle_is_global(const struct ts_pickle_global *global, const char *module, const char *name)
{
    return global->module_size == strlen(module) && memcmp(global->module, module, global->module_size) == 0 &&
           global->name_size == strlen(name) && memcmp(global->name, name, global->name_size) == 0;
}
