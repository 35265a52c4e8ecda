/* Pickle: the stack machine. Owns the stack, the marks and the memo; refuses whatever Python's own unpickler would
 * refuse about them (underflow, missing marks, unknown memo entries, lengths past the end). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/system.h"
#include "read/pickle_machine.h"

/* 64 million: a gigabyte of stack, the same bound as the arena's. */
#define MAX_STACK ((size_t)1 << 26)

struct memo_slot {
    uint64_t key; /* index + 1, so that 0 is an empty slot */
    struct ts_pickle_value value;
};

enum ts_status ts_machine_too_much_memory(struct ts_machine *m)
{
    return ts_fail(m->error, TS_ERR_LIMIT, m->op, "the pickle needs more than %zu MiB of memory",
                   TS_PICKLE_MEMORY >> 20);
}

/* Bytes of the instruction's argument. */
enum ts_status ts_machine_take(struct ts_machine *m, uint64_t length, const uint8_t **bytes)
{
    if (length > m->size - m->at)
        return ts_fail(m->error, TS_ERR_FORMAT, m->op, "an instruction needs %" PRIu64 " bytes, %" PRIu64 " are left",
                       length, m->size - m->at);
    *bytes = m->data + m->at;
    m->at += length;
    return TS_OK;
}

/* A little-endian length of 1, 2, 4 or 8 bytes. */
enum ts_status ts_machine_take_number(struct ts_machine *m, unsigned width, uint64_t *number)
{
    const uint8_t *bytes = NULL;
    TS_TRY(ts_machine_take(m, width, &bytes));
    *number = 0;
    for (unsigned i = width; i-- > 0;)
        *number = *number << 8 | bytes[i];
    return TS_OK;
}

/* A line without its end. */
enum ts_status ts_machine_take_line(struct ts_machine *m, const uint8_t **line, uint64_t *length)
{
    const uint8_t *from = m->data + m->at, *end = memchr(from, '\n', m->size - m->at);
    if (!end)
        return ts_fail(m->error, TS_ERR_FORMAT, m->op, "a line has no end");
    *line = from;
    *length = (uint64_t)(end - from);
    m->at += *length + 1;
    if (*length && from[*length - 1] == '\r') /* protocol 0 survives text mode on Windows */
        --*length;
    return TS_OK;
}

enum ts_status ts_machine_push(struct ts_machine *m, struct ts_pickle_value value)
{
    if (m->count == m->capacity) {
        size_t more = m->capacity ? m->capacity * 2 : 64;
        struct ts_pickle_value *moved;
        if (more > MAX_STACK)
            return ts_machine_too_much_memory(m);
        if (!(moved = ts_reallocarray(m->stack, more, sizeof *moved)))
            return ts_fail_memory(m->error);
        m->stack = moved;
        m->capacity = more;
    }
    m->stack[m->count++] = value;
    return TS_OK;
}

/* The number of values above the last mark: what an instruction may take. */
static size_t available(const struct ts_machine *m)
{
    return m->count - (m->mark_count ? m->marks[m->mark_count - 1] : 0);
}

enum ts_status ts_machine_need(struct ts_machine *m, size_t values)
{
    if (available(m) < values)
        return ts_fail(m->error, TS_ERR_FORMAT, m->op,
                       "stack underflow: instruction 0x%02x needs %zu values, there are %zu", m->data[m->op], values,
                       available(m));
    return TS_OK;
}

static enum ts_status push_mark(struct ts_machine *m)
{
    if (m->mark_count == m->mark_capacity) {
        size_t more = m->mark_capacity ? m->mark_capacity * 2 : 64;
        size_t *moved;
        if (more > MAX_STACK)
            return ts_machine_too_much_memory(m);
        if (!(moved = ts_reallocarray(m->marks, more, sizeof *moved)))
            return ts_fail_memory(m->error);
        m->marks = moved;
        m->mark_capacity = more;
    }
    m->marks[m->mark_count++] = m->count;
    return TS_OK;
}

/* Removes the last mark; what lay above it is stack[*first .. count), still there. */
enum ts_status ts_machine_pop_mark(struct ts_machine *m, size_t *first)
{
    if (!m->mark_count)
        return ts_fail(m->error, TS_ERR_FORMAT, m->op, "instruction 0x%02x finds no mark on the stack", m->data[m->op]);
    *first = m->marks[--m->mark_count];
    return TS_OK;
}

static struct memo_slot *memo_slot(struct memo_slot *slots, size_t size, uint64_t key)
{
    size_t at = (size_t)(key * 0x9e3779b97f4a7c15u >> 20) & (size - 1); /* Fibonacci hashing */
    while (slots[at].key && slots[at].key != key)
        at = (at + 1) & (size - 1);
    return &slots[at];
}

/* The entry of an index in the table, or NULL. */
static struct memo_slot *table_find(const struct ts_machine *m, uint64_t index)
{
    struct memo_slot *slot = m->table_used ? memo_slot(m->table, m->table_size, index + 1) : NULL;
    return slot && slot->key ? slot : NULL;
}

static enum ts_status table_put(struct ts_machine *m, uint64_t index)
{
    struct memo_slot *slot;
    if (m->table_used * 2 >= m->table_size) {
        size_t more = m->table_size ? m->table_size * 2 : 256;
        struct memo_slot *slots;
        if (more > MAX_STACK)
            return ts_machine_too_much_memory(m);
        if (!(slots = calloc(more, sizeof *slots)))
            return ts_fail_memory(m->error);
        for (size_t i = 0; i < m->table_size; i++)
            if (m->table[i].key)
                *memo_slot(slots, more, m->table[i].key) = m->table[i];
        free(m->table);
        m->table = slots;
        m->table_size = more;
    }
    slot = memo_slot(m->table, m->table_size, index + 1);
    m->table_used += !slot->key;
    m->entries += !slot->key;
    *slot = (struct memo_slot){.key = index + 1, .value = m->stack[m->count - 1]};
    return TS_OK;
}

static enum ts_status memo_put(struct ts_machine *m, uint64_t index)
{
    TS_TRY(ts_machine_need(m, 1));
    if (index == UINT64_MAX)
        return ts_fail(m->error, TS_ERR_FORMAT, m->op, "memo index out of range");
    if (index > m->row_count)
        return table_put(m, index);
    if (index == m->row_count) {
        if (m->row_count == m->row_capacity) {
            size_t more = m->row_capacity ? m->row_capacity * 2 : 256;
            struct ts_pickle_value *moved;
            if (more > MAX_STACK)
                return ts_machine_too_much_memory(m);
            if (!(moved = ts_reallocarray(m->row, more, sizeof *moved)))
                return ts_fail_memory(m->error);
            m->row = moved;
            m->row_capacity = more;
        }
        m->row_count++;
        m->entries += !table_find(m, index); /* the row has it from now on */
    }
    m->row[index] = m->stack[m->count - 1];
    return TS_OK;
}

static enum ts_status memo_get(struct ts_machine *m, uint64_t index)
{
    const struct memo_slot *slot;
    if (index < m->row_count)
        return ts_machine_push(m, m->row[index]);
    slot = index == UINT64_MAX ? NULL : table_find(m, index);
    if (!slot)
        return ts_fail(m->error, TS_ERR_FORMAT, m->op, "memo entry %" PRIu64 " is used and was never stored", index);
    return ts_machine_push(m, slot->value);
}

/* The index of GET and PUT. */
static enum ts_status take_decimal(struct ts_machine *m, uint64_t *index)
{
    const uint8_t *line = NULL;
    uint64_t length;
    struct ts_pickle_value value;
    TS_TRY(ts_machine_take_line(m, &line, &length));
    TS_TRY(ts_pickle_parse_integer(&m->pickle->arena, line, length, m->op, &value, m->error));
    *index = value.kind == TS_PICKLE_BOOL ? value.truth : (uint64_t)value.integer; /* "01" is 1 here */
    if (value.kind != TS_PICKLE_BOOL && (value.kind != TS_PICKLE_INT || value.integer < 0))
        return ts_fail(m->error, TS_ERR_FORMAT, m->op, "memo index out of range");
    return TS_OK;
}

static enum ts_status pop(struct ts_machine *m)
{
    if (m->mark_count && m->marks[m->mark_count - 1] == m->count) {
        m->mark_count--;
        return TS_OK;
    }
    TS_TRY(ts_machine_need(m, 1));
    m->count--;
    return TS_OK;
}

static enum ts_status frame(struct ts_machine *m)
{
    uint64_t length;
    TS_TRY(ts_machine_take_number(m, 8, &length));
    if (length > m->size - m->at)
        return ts_fail(m->error, TS_ERR_FORMAT, m->op, "a frame says %" PRIu64 " bytes, %" PRIu64 " are left", length,
                       m->size - m->at);
    return TS_OK; /* how the writer buffered; says nothing about the values */
}

static enum ts_status protocol(struct ts_machine *m)
{
    uint64_t number;
    TS_TRY(ts_machine_take_number(m, 1, &number));
    if (number > 5)
        return ts_fail(m->error, TS_ERR_UNSUPPORTED, m->op, "pickle protocol %" PRIu64 "; this program knows 0 to 5",
                       number);
    return TS_OK;
}

/* Instructions that only push something. */
static enum ts_status run_push(struct ts_machine *m, uint8_t op)
{
    uint64_t number = 0;
    switch (op) {
    case 'N': /* NONE */
        return ts_machine_push(m, (struct ts_pickle_value){.kind = TS_PICKLE_NONE});
    case 0x88: /* NEWTRUE */
    case 0x89: /* NEWFALSE */
        return ts_machine_push(m, (struct ts_pickle_value){.kind = TS_PICKLE_BOOL, .truth = op == 0x88});
    case 'J': /* BININT */
        TS_TRY(ts_machine_take_number(m, 4, &number));
        return ts_machine_push_integer(m, (int32_t)(uint32_t)number);
    case 'K': /* BININT1 */
    case 'M': /* BININT2 */
        TS_TRY(ts_machine_take_number(m, op == 'K' ? 1 : 2, &number));
        return ts_machine_push_integer(m, (int64_t)number);
    case 0x8a: /* LONG1 */
        return ts_machine_push_long(m, 1);
    case 0x8b: /* LONG4 */
        return ts_machine_push_long(m, 4);
    case 'I': /* INT */
    case 'L': /* LONG */
    case 'F': /* FLOAT */
    case 'S': /* STRING */
    case 'V': /* UNICODE */
        return ts_machine_push_text_form(m, op);
    case 'G': /* BINFLOAT */
        return ts_machine_push_binary_float(m);
    case 'T': /* BINSTRING */
        return ts_machine_push_sized(m, TS_PICKLE_STRING, 4);
    case 'U': /* SHORT_BINSTRING */
        return ts_machine_push_sized(m, TS_PICKLE_STRING, 1);
    case 'X': /* BINUNICODE */
        return ts_machine_push_sized(m, TS_PICKLE_TEXT, 4);
    case 0x8c: /* SHORT_BINUNICODE */
        return ts_machine_push_sized(m, TS_PICKLE_TEXT, 1);
    case 0x8d: /* BINUNICODE8 */
        return ts_machine_push_sized(m, TS_PICKLE_TEXT, 8);
    case 'B': /* BINBYTES */
        return ts_machine_push_sized(m, TS_PICKLE_BYTES, 4);
    case 'C': /* SHORT_BINBYTES */
        return ts_machine_push_sized(m, TS_PICKLE_BYTES, 1);
    case 0x8e: /* BINBYTES8 */
    case 0x96: /* BYTEARRAY8 */
        return ts_machine_push_sized(m, TS_PICKLE_BYTES, 8);
    case ')': /* EMPTY_TUPLE */
        return ts_machine_push_tuple(m, m->count);
    case ']': /* EMPTY_LIST */
        return ts_machine_push_list(m, TS_PICKLE_LIST, m->count);
    case '}': /* EMPTY_DICT */
        return ts_machine_push_list(m, TS_PICKLE_DICT, m->count);
    case 0x8f: /* EMPTY_SET */
        return ts_machine_push_list(m, TS_PICKLE_SET, m->count);
    case 'c': /* GLOBAL */
        return ts_machine_global_from_lines(m);
    case 0x82: /* EXT1 */
    case 0x83: /* EXT2 */
    case 0x84: /* EXT4 */
        return ts_machine_global_from_registry(m, 1u << (op - 0x82));
    case 'P': /* PERSID */
        return ts_machine_persistent_from_line(m);
    case 'h': /* BINGET */
    case 'j': /* LONG_BINGET */
        TS_TRY(ts_machine_take_number(m, op == 'h' ? 1 : 4, &number));
        return memo_get(m, number);
    case 'g': /* GET */
        TS_TRY(take_decimal(m, &number));
        return memo_get(m, number);
    default:
        return ts_fail(m->error, TS_ERR_FORMAT, m->op, "0x%02x is no pickle instruction", op);
    }
}

/* Instructions that work on what lies on the stack; the rest is run_push's. */
static enum ts_status run(struct ts_machine *m, uint8_t op)
{
    uint64_t number;
    size_t first;
    switch (op) {
    case 0x80: /* PROTO */
        return protocol(m);
    case 0x95: /* FRAME */
        return frame(m);
    case '(': /* MARK */
        return push_mark(m);
    case '0': /* POP */
        return pop(m);
    case '1': /* POP_MARK */
        TS_TRY(ts_machine_pop_mark(m, &first));
        m->count = first;
        return TS_OK;
    case '2': /* DUP */
        TS_TRY(ts_machine_need(m, 1));
        return ts_machine_push(m, m->stack[m->count - 1]);
    case 'q': /* BINPUT */
    case 'r': /* LONG_BINPUT */
        TS_TRY(ts_machine_take_number(m, op == 'q' ? 1 : 4, &number));
        return memo_put(m, number);
    case 'p': /* PUT */
        TS_TRY(take_decimal(m, &number));
        return memo_put(m, number);
    case 0x94: /* MEMOIZE */
        return memo_put(m, m->entries);
    case 0x85: /* TUPLE1 */
    case 0x86: /* TUPLE2 */
    case 0x87: /* TUPLE3 */
        TS_TRY(ts_machine_need(m, (size_t)(op - 0x84)));
        return ts_machine_push_tuple(m, m->count - (size_t)(op - 0x84));
    case 't': /* TUPLE */
        TS_TRY(ts_machine_pop_mark(m, &first));
        return ts_machine_push_tuple(m, first);
    case 'l':  /* LIST */
    case 'd':  /* DICT */
    case 0x91: /* FROZENSET */
        TS_TRY(ts_machine_pop_mark(m, &first));
        return ts_machine_push_list(m, op == 'l' ? TS_PICKLE_LIST : op == 'd' ? TS_PICKLE_DICT : TS_PICKLE_SET, first);
    case 'a': /* APPEND */
        TS_TRY(ts_machine_need(m, 2));
        return ts_machine_fill(m, m->count - 1, false);
    case 's': /* SETITEM */
        TS_TRY(ts_machine_need(m, 3));
        return ts_machine_fill(m, m->count - 2, true);
    case 'e':  /* APPENDS */
    case 'u':  /* SETITEMS */
    case 0x90: /* ADDITEMS */
        TS_TRY(ts_machine_pop_mark(m, &first));
        return ts_machine_fill(m, first, op == 'u');
    case 0x93: /* STACK_GLOBAL */
        return ts_machine_global_from_stack(m);
    case 'R': /* REDUCE */
        return ts_machine_call(m, false);
    case 0x81: /* NEWOBJ */
        return ts_machine_call(m, true);
    case 0x92: /* NEWOBJ_EX */
        return ts_machine_call_with_keywords(m);
    case 'o': /* OBJ */
        return ts_machine_call_from_mark(m);
    case 'i': /* INST */
        return ts_machine_call_named(m);
    case 'b': /* BUILD */
        return ts_machine_build(m);
    case 'Q': /* BINPERSID */
        TS_TRY(ts_machine_need(m, 1));
        m->count--;
        return ts_machine_push_persistent(m, m->stack[m->count]);
    case 0x97: /* NEXT_BUFFER */
        return ts_fail(m->error, TS_ERR_UNSUPPORTED, m->op,
                       "the pickle keeps data in out-of-band buffers, which are not in the file");
    case 0x98: /* READONLY_BUFFER */
        return ts_machine_need(m, 1);
    default:
        return run_push(m, op);
    }
}

void ts_pickle_init(struct ts_pickle *pickle)
{
    *pickle = (struct ts_pickle){0};
    ts_arena_init(&pickle->arena, TS_PICKLE_MEMORY);
    pickle->globals_end = &pickle->globals;
    pickle->persistents_end = &pickle->persistents;
}

void ts_pickle_release(struct ts_pickle *pickle)
{
    ts_arena_release(&pickle->arena);
    ts_pickle_init(pickle);
}

static enum ts_status run_all(struct ts_machine *m, struct ts_pickle_value *result)
{
    while (m->at < m->size) {
        uint8_t op;
        m->op = m->at;
        op = m->data[m->at++];
        if (op == '.') {
            TS_TRY(ts_machine_need(m, 1));
            *result = m->stack[m->count - 1];
            return TS_OK;
        }
        TS_TRY(run(m, op));
    }
    return ts_fail(m->error, TS_ERR_FORMAT, m->size, "the pickle ends without its STOP instruction");
}

enum ts_status ts_pickle_load(struct ts_pickle *pickle, const uint8_t *data, uint64_t size, uint64_t start,
                              struct ts_pickle_value *result, uint64_t *end, struct ts_error *error)
{
    struct ts_machine m = {.pickle = pickle, .data = data, .size = size, .at = start, .error = error};
    enum ts_status status;
    if (start > size)
        return ts_fail(error, TS_ERR_FORMAT, size, "the file ends where a pickle should begin");
    status = run_all(&m, result);
    *end = m.at;
    free(m.stack);
    free(m.marks);
    free(m.row);
    free(m.table);
    return status;
}
