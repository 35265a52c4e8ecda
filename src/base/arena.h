/* Arena: many small allocations that die together, with a ceiling.
 *
 * Everything a bundle describes (names, shapes, metadata) lives in one arena, so closing an input is one call and a
 * hostile file cannot make the program allocate without bound: past the limit ts_arena_alloc returns NULL. */
#ifndef TS_BASE_ARENA_H
#define TS_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

struct ts_arena_block;

struct ts_arena {
    struct ts_arena_block *blocks;
    size_t total; /* bytes taken from malloc */
    size_t limit;
};

void ts_arena_init(struct ts_arena *arena, size_t limit);
void ts_arena_release(struct ts_arena *arena);

/* What was allocated after a mark can be given back by itself, last mark first: room for one step of several. */
struct ts_arena_mark {
    struct ts_arena_block *block, *behind;
    size_t used, total;
};
struct ts_arena_mark ts_arena_mark(const struct ts_arena *arena);
void ts_arena_rewind(struct ts_arena *arena, struct ts_arena_mark mark);

/* Zeroed, aligned for any type. NULL past the limit or without memory. Size 0 gives a valid pointer. */
void *ts_arena_alloc(struct ts_arena *arena, size_t size);
/* As above for count * size, NULL when the product overflows. */
void *ts_arena_array(struct ts_arena *arena, size_t count, size_t size);
/* A NUL-terminated copy. Bytes after an embedded NUL are kept but C strings end there: refuse NULs before. */
char *ts_arena_copy(struct ts_arena *arena, const char *text, size_t length);
char *ts_arena_string(struct ts_arena *arena, const char *text);
char *ts_arena_printf(struct ts_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *ts_arena_vprintf(struct ts_arena *arena, const char *format, va_list args) __attribute__((format(printf, 2, 0)));
/* For sentences, which may be lost but not missed: "" without memory. */
const char *ts_arena_vsay(struct ts_arena *arena, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

#endif
