/* Pickle: reads Python pickles, protocols 0 to 5, as data. Nothing is ever imported, called or executed.
 *
 * A pickle is a program for a stack machine whose instructions include "call this function". This machine runs the
 * stack part only: a class or function becomes a GLOBAL value (two strings), a call becomes an OBJECT value that
 * remembers what would have been called with what. Whoever walks the graph decides which of them it understands.
 *
 * The graph may share and may contain cycles (a list can hold itself), exactly as the pickle says: walkers must bound
 * their steps and depth. The `active` flags are theirs. Strings and bytes point into the pickle's bytes, which must
 * outlive the graph; they may hold NULs and need not be valid UTF-8. Memory is bounded by a constant times the size of
 * the pickle, and by TS_PICKLE_MEMORY. */
#ifndef TS_READ_PICKLE_H
#define TS_READ_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"

/* Sixty million numbers in lists: more than any checkpoint keeps outside of its tensors. */
#define TS_PICKLE_MEMORY ((size_t)1 << 30)

enum ts_pickle_kind {
    TS_PICKLE_NONE,
    TS_PICKLE_BOOL,
    TS_PICKLE_INT,
    TS_PICKLE_BIG, /* an integer beyond 64 signed bits: bytes, little-endian two's complement, or decimal text */
    TS_PICKLE_FLOAT,
    TS_PICKLE_TEXT,   /* str */
    TS_PICKLE_STRING, /* Python 2's str, which may be text or bytes */
    TS_PICKLE_BYTES,  /* bytes or bytearray */
    TS_PICKLE_TUPLE,
    TS_PICKLE_LIST,
    TS_PICKLE_SET,
    TS_PICKLE_DICT, /* a list of key, value, key, value ... */
    TS_PICKLE_GLOBAL,
    TS_PICKLE_OBJECT,
    TS_PICKLE_PERSISTENT /* what the program that wrote it kept outside of the pickle */
};

struct ts_pickle_bytes {
    const uint8_t *data;
    uint64_t size;
    bool decimal;         /* TS_PICKLE_BIG only: data is text */
    void *cache, *loaded; /* for walkers */
};

struct ts_pickle_global {
    const uint8_t *module, *name;
    uint32_t module_size, name_size;
    uint64_t offset;               /* of the instruction that made it */
    struct ts_pickle_global *next; /* in the order of the file */
    int tag;                       /* for walkers, 0 at first */
};

struct ts_pickle_value {
    enum ts_pickle_kind kind;
    union {
        bool truth;
        int64_t integer;
        double number;
        struct ts_pickle_bytes *bytes; /* BIG, TEXT, STRING, BYTES */
        struct ts_pickle_tuple *tuple;
        struct ts_pickle_list *list; /* LIST, SET, DICT */
        struct ts_pickle_global *global;
        struct ts_pickle_object *object;
        struct ts_pickle_persistent *persistent;
    };
};

struct ts_pickle_tuple {
    uint64_t count;
    struct ts_pickle_value items[];
};

/* Lists grow in chunks that never move: APPENDS brings a thousand items at a time. */
struct ts_pickle_chunk {
    struct ts_pickle_chunk *next;
    uint32_t count, capacity;
    struct ts_pickle_value items[];
};

struct ts_pickle_list {
    struct ts_pickle_chunk *first, *last;
    uint64_t count; /* values; a dict has two per entry */
    bool active;
};

struct ts_pickle_object {
    struct ts_pickle_value callable;  /* usually GLOBAL */
    struct ts_pickle_value arguments; /* always TUPLE */
    struct ts_pickle_value state;     /* what BUILD handed over, NONE without */
    struct ts_pickle_list *items;     /* what was appended to it, or NULL */
    struct ts_pickle_list *pairs;     /* what was set in it, or NULL */
    struct ts_pickle_list *keywords;  /* keyword arguments, or NULL */
    uint64_t offset;                  /* of the instruction that made it */
    bool made_by_class;               /* cls.__new__(cls, ...) rather than callable(...) */
    bool active;
};

struct ts_pickle_persistent {
    struct ts_pickle_value id;
    uint64_t offset;
    uint32_t tag; /* ts_pickle.tag at the time of loading */
    struct ts_pickle_persistent *next;
};

/* One arena for any number of pickles that are walked together. */
struct ts_pickle {
    struct ts_arena arena;
    struct ts_pickle_global *globals, **globals_end; /* every one the pickles name, used or not */
    struct ts_pickle_persistent *persistents, **persistents_end;
    uint32_t tag; /* put on every persistent id that is loaded next */
};

void ts_pickle_init(struct ts_pickle *pickle);
void ts_pickle_release(struct ts_pickle *pickle);

/* Runs the pickle that begins at data[start] up to its STOP; *end is the byte behind it. Offsets in errors and objects
 * count from data. */
enum ts_status ts_pickle_load(struct ts_pickle *pickle, const uint8_t *data, uint64_t size, uint64_t start,
                              struct ts_pickle_value *result, uint64_t *end, struct ts_error *error);

/* Walks a list, set or dict (value by value); list may be NULL. */
struct ts_pickle_cursor {
    const struct ts_pickle_chunk *chunk;
    uint32_t index;
};
struct ts_pickle_cursor ts_pickle_begin(const struct ts_pickle_list *list);
bool ts_pickle_next(struct ts_pickle_cursor *cursor, struct ts_pickle_value *value);

/* TEXT, STRING or BYTES equal to text. */
bool ts_pickle_equals(struct ts_pickle_value value, const char *text);
bool ts_pickle_is_global(const struct ts_pickle_global *global, const char *module, const char *name);
/* BIG as the nearest double. */
double ts_pickle_big_to_double(const struct ts_pickle_bytes *big);
/* BIG in decimal; beyond 512 bits only how long it is. */
void ts_pickle_big_text(const struct ts_pickle_bytes *big, struct ts_buffer *out);

/* Text forms of protocol 0 (pickle_text.c). Escapes are undone into the arena; without escapes nothing is copied. The
 * line begins at byte `offset` of the pickle. */
enum ts_status ts_pickle_parse_integer(struct ts_arena *arena, const uint8_t *line, uint64_t size, uint64_t offset,
                                       struct ts_pickle_value *value, struct ts_error *error);
enum ts_status ts_pickle_parse_float(const uint8_t *line, uint64_t size, uint64_t offset, double *number,
                                     struct ts_error *error);
enum ts_status ts_pickle_parse_string(struct ts_arena *arena, const uint8_t *line, uint64_t size, uint64_t offset,
                                      struct ts_pickle_value *value, struct ts_error *error);
enum ts_status ts_pickle_parse_unicode(struct ts_arena *arena, const uint8_t *line, uint64_t size, uint64_t offset,
                                       struct ts_pickle_value *value, struct ts_error *error);

#endif
