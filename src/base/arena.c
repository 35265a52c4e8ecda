#include "base/arena.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Large enough that a hundred thousand tensors need a few hundred blocks, small enough that opening one file does not
 * show up in resident memory. */
#define BLOCK_SIZE ((size_t)64 * 1024)

struct ts_arena_block {
    struct ts_arena_block *next;
    size_t used, size;
    alignas(max_align_t) unsigned char data[];
};

void ts_arena_init(struct ts_arena *arena, size_t limit)
{
    arena->blocks = NULL;
    arena->total = 0;
    arena->limit = limit;
}

void ts_arena_release(struct ts_arena *arena)
{
    struct ts_arena_block *block = arena->blocks;
    while (block) {
        struct ts_arena_block *next = block->next;
        free(block);
        block = next;
    }
    arena->blocks = NULL;
    arena->total = 0;
}

struct ts_arena_mark ts_arena_mark(const struct ts_arena *arena)
{
    struct ts_arena_block *block = arena->blocks;
    return (struct ts_arena_mark){block, block ? block->next : NULL, block ? block->used : 0, arena->total};
}

/* Newer blocks stand before the one that was current at the mark, or, large ones, right behind it. */
void ts_arena_rewind(struct ts_arena *arena, struct ts_arena_mark mark)
{
    struct ts_arena_block *block = arena->blocks, *next;
    for (; block != mark.block; block = next) {
        next = block->next;
        free(block);
    }
    for (block = mark.block ? mark.block->next : NULL; block != mark.behind; block = next) {
        next = block->next;
        free(block);
    }
    arena->blocks = mark.block;
    arena->total = mark.total;
    if (!mark.block)
        return;
    mark.block->next = mark.behind;
    memset(mark.block->data + mark.used, 0, mark.block->used - mark.used); /* as new blocks are */
    mark.block->used = mark.used;
}

/* The room a new block for small pieces should have: what is left when that is less than the usual size, so that a
 * limit of a few kilobytes, or the end of a large one, can be used up. */
static size_t small_block(const struct ts_arena *arena, size_t size)
{
    size_t left = arena->total < arena->limit ? arena->limit - arena->total : 0;
    if (left >= sizeof(struct ts_arena_block) + BLOCK_SIZE)
        return BLOCK_SIZE;
    left = left > sizeof(struct ts_arena_block) ? left - sizeof(struct ts_arena_block) : 0;
    return left > size ? left : size;
}

static struct ts_arena_block *new_block(struct ts_arena *arena, size_t payload)
{
    size_t bytes = sizeof(struct ts_arena_block) + payload;
    struct ts_arena_block *block;
    if (bytes < payload || bytes > arena->limit - arena->total || arena->total > arena->limit)
        return NULL;
    block = calloc(1, bytes);
    if (!block)
        return NULL;
    block->size = payload;
    arena->total += bytes;
    return block;
}

void *ts_arena_alloc(struct ts_arena *arena, size_t size)
{
    struct ts_arena_block *block = arena->blocks;
    const size_t align = alignof(max_align_t);
    size_t start;
    if (size > SIZE_MAX - align)
        return NULL;
    size = size ? (size + align - 1) & ~(align - 1) : align;
    if (block && block->size - block->used >= size) {
        start = block->used;
        block->used += size;
        return block->data + start;
    }
    if (size > BLOCK_SIZE / 4) { /* its own block, behind the current one so that the rest of that stays in use */
        struct ts_arena_block *large = new_block(arena, size);
        if (!large)
            return NULL;
        large->used = size;
        if (block) {
            large->next = block->next;
            block->next = large;
        } else {
            arena->blocks = large;
        }
        return large->data;
    }
    block = new_block(arena, small_block(arena, size));
    if (!block)
        return NULL;
    block->next = arena->blocks;
    arena->blocks = block;
    block->used = size;
    return block->data;
}

void *ts_arena_array(struct ts_arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return NULL;
    return ts_arena_alloc(arena, bytes);
}

char *ts_arena_copy(struct ts_arena *arena, const char *text, size_t length)
{
    char *copy;
    if (length == SIZE_MAX || !(copy = ts_arena_alloc(arena, length + 1)))
        return NULL;
    if (length)
        memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

char *ts_arena_string(struct ts_arena *arena, const char *text)
{
    return ts_arena_copy(arena, text, strlen(text));
}

char *ts_arena_vprintf(struct ts_arena *arena, const char *format, va_list args)
{
    va_list again;
    int length;
    char *text;
    va_copy(again, args);
    length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length < 0 || !(text = ts_arena_alloc(arena, (size_t)length + 1)))
        return NULL;
    vsnprintf(text, (size_t)length + 1, format, args);
    return text;
}

char *ts_arena_printf(struct ts_arena *arena, const char *format, ...)
{
    va_list args;
    char *text;
    va_start(args, format);
    text = ts_arena_vprintf(arena, format, args);
    va_end(args);
    return text;
}

const char *ts_arena_vsay(struct ts_arena *arena, const char *format, va_list args)
{
    const char *text = ts_arena_vprintf(arena, format, args);
    return text ? text : "";
}
