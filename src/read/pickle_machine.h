/* Pickle machine: the stack machine behind ts_pickle_load, for pickle.c and pickle_values.c only.
 *
 * Every function returns TS_OK or fills machine.error. */
#ifndef TS_READ_PICKLE_MACHINE_H
#define TS_READ_PICKLE_MACHINE_H

#include "read/pickle.h"

struct ts_machine {
    struct ts_pickle *pickle;
    const uint8_t *data;
    uint64_t size, at;
    uint64_t op; /* where the current instruction begins */
    struct ts_pickle_value *stack;
    size_t count, capacity;
    size_t *marks;
    size_t mark_count, mark_capacity;
    /* The memo. Writers number from 0: those entries stand in an array. Any other number below 2^64 is allowed too,
     * and goes to a table with open addressing. */
    struct ts_pickle_value *row;
    size_t row_count, row_capacity;
    struct memo_slot *table;
    size_t table_used, table_size;
    size_t entries; /* different indices stored */
    struct ts_error *error;
};

/* pickle.c: arguments of the instruction */
enum ts_status ts_machine_take(struct ts_machine *m, uint64_t length, const uint8_t **bytes);
enum ts_status ts_machine_take_number(struct ts_machine *m, unsigned width, uint64_t *number);
enum ts_status ts_machine_take_line(struct ts_machine *m, const uint8_t **line, uint64_t *length);

/* pickle.c: the stack */
enum ts_status ts_machine_too_much_memory(struct ts_machine *m);
enum ts_status ts_machine_push(struct ts_machine *m, struct ts_pickle_value value);
enum ts_status ts_machine_need(struct ts_machine *m, size_t values);
enum ts_status ts_machine_pop_mark(struct ts_machine *m, size_t *first);

/* pickle_values.c: scalars and strings */
enum ts_status ts_machine_push_bytes(struct ts_machine *m, enum ts_pickle_kind kind, const uint8_t *data,
                                     uint64_t size);
enum ts_status ts_machine_push_sized(struct ts_machine *m, enum ts_pickle_kind kind, unsigned width);
enum ts_status ts_machine_push_long(struct ts_machine *m, unsigned width);
enum ts_status ts_machine_push_integer(struct ts_machine *m, int64_t integer);
enum ts_status ts_machine_push_text_form(struct ts_machine *m, uint8_t op);
enum ts_status ts_machine_push_binary_float(struct ts_machine *m);

/* pickle_values.c: containers made of, or filled from, stack[first..] */
enum ts_status ts_machine_push_list(struct ts_machine *m, enum ts_pickle_kind kind, size_t first);
enum ts_status ts_machine_push_tuple(struct ts_machine *m, size_t first);
enum ts_status ts_machine_fill(struct ts_machine *m, size_t first, bool pairs);

/* pickle_values.c: classes, calls and persistent ids */
enum ts_status ts_machine_global_from_lines(struct ts_machine *m);
enum ts_status ts_machine_global_from_stack(struct ts_machine *m);
enum ts_status ts_machine_global_from_registry(struct ts_machine *m, unsigned width);
enum ts_status ts_machine_call(struct ts_machine *m, bool made_by_class);
enum ts_status ts_machine_call_with_keywords(struct ts_machine *m);
enum ts_status ts_machine_call_from_mark(struct ts_machine *m);
enum ts_status ts_machine_call_named(struct ts_machine *m);
enum ts_status ts_machine_build(struct ts_machine *m);
enum ts_status ts_machine_push_persistent(struct ts_machine *m, struct ts_pickle_value id);
enum ts_status ts_machine_persistent_from_line(struct ts_machine *m);

#endif
