/* Owns the gathering of tensors under keys: alone, as the experts of a layer, as the shards of a run, or ambiguous. */
#include <stdlib.h>
#include <string.h>

#include "pair/pairing.h"

/* Sorting needs the numbers at hand. */
struct numbered {
    int64_t number, second;
    size_t index;
};

static int by_number(const void *a, const void *b)
{
    const struct numbered *left = a, *right = b;
    if (left->number != right->number)
        return left->number < right->number ? -1 : 1;
    return left->second < right->second ? -1 : left->second > right->second;
}

/* Puts experts in shards in order, when every expert is there once for each of the same ranks. */
static bool sort_grid(const struct ts_side *side, struct ts_slot *slot, struct numbered *room)
{
    size_t ranks = 0;
    for (size_t i = 0; i < slot->count; i++) {
        const struct ts_name *name = &side->read.list[slot->indices[i]];
        room[i] = (struct numbered){name->expert, name->rank, slot->indices[i]};
        if (name->expert < 0 || name->rank < 0)
            return false;
    }
    qsort(room, slot->count, sizeof *room, by_number);
    while (ranks < slot->count && room[ranks].number == room[0].number)
        ranks++;
    if (ranks < 2 || slot->count % ranks != 0)
        return false;
    for (size_t i = 0; i < slot->count; i++)
        if (room[i].number != room[i / ranks * ranks].number || room[i].second != room[i % ranks].second ||
            (i % ranks && room[i].second == room[i - 1].second) ||
            (i >= ranks && room[i].number == room[i - ranks].number))
            return false;
    for (size_t i = 0; i < slot->count; i++)
        slot->indices[i] = room[i].index;
    slot->ranks = ranks;
    return true;
}

/* Puts the tensors of a slot in the order of their experts or ranks, when those are all different. */
static bool sort_slot(const struct ts_side *side, struct ts_slot *slot, bool experts, struct numbered *room)
{
    for (size_t i = 0; i < slot->count; i++) {
        const struct ts_name *name = &side->read.list[slot->indices[i]];
        room[i] = (struct numbered){experts ? name->expert : name->rank, 0, slot->indices[i]};
        if (room[i].number < 0)
            return false;
    }
    qsort(room, slot->count, sizeof *room, by_number);
    for (size_t i = 1; i < slot->count; i++)
        if (room[i].number == room[i - 1].number)
            return false;
    for (size_t i = 0; i < slot->count; i++)
        slot->indices[i] = room[i].index;
    return true;
}

/* All have the same expert (or none), the same rank (or none). */
static bool all_equal(const struct ts_side *side, const struct ts_slot *slot, bool experts)
{
    const struct ts_name *first = &side->read.list[slot->indices[0]];
    for (size_t i = 1; i < slot->count; i++) {
        const struct ts_name *name = &side->read.list[slot->indices[i]];
        if (experts ? name->expert != first->expert : name->rank != first->rank)
            return false;
    }
    return true;
}

static void classify(const struct ts_side *side, struct ts_slot *slot, struct numbered *room)
{
    slot->kind = TS_SLOT_AMBIGUOUS;
    if (slot->count == 1)
        slot->kind = side->read.list[slot->indices[0]].expert >= 0 ? TS_SLOT_EXPERTS : TS_SLOT_SINGLE;
    else if (all_equal(side, slot, true) && sort_slot(side, slot, false, room))
        slot->kind = TS_SLOT_SHARDS;
    else if (sort_slot(side, slot, true, room)) /* the files that they are spread over may look like ranks */
        slot->kind = TS_SLOT_EXPERTS;
    else if (sort_grid(side, slot, room))
        slot->kind = TS_SLOT_GRID;
}

enum ts_status ts_slots_make(const struct ts_side *side, const char *const *keys, struct ts_arena *arena,
                             struct ts_slots *slots, struct ts_error *error)
{
    size_t *slot_of = calloc(side->count + 1, sizeof *slot_of), largest = 0;
    struct numbered *room = NULL;
    enum ts_status status = TS_OK;
    *slots = (struct ts_slots){0};
    slots->list = ts_arena_array(arena, side->count, sizeof *slots->list);
    if (!slot_of || !slots->list || !ts_table_init(&slots->table, side->count)) {
        free(slot_of);
        return ts_fail_memory(error);
    }
    for (size_t i = 0; i < side->count; i++) {
        size_t at = slots->count;
        if (!keys[i])
            continue;
        if (ts_table_put(&slots->table, keys[i], at, &at))
            slots->list[slots->count++].key = keys[i];
        slots->list[at].count++;
        slot_of[i] = at;
    }
    for (size_t i = 0; i < slots->count && status == TS_OK; i++) {
        struct ts_slot *slot = &slots->list[i];
        largest = slot->count > largest ? slot->count : largest;
        slot->indices = ts_arena_array(arena, slot->count, sizeof *slot->indices);
        slot->count = 0;
        if (!slot->indices)
            status = ts_fail_memory(error);
    }
    room = calloc(largest + 1, sizeof *room);
    if (!room)
        status = ts_fail_memory(error);
    for (size_t i = 0; i < side->count && status == TS_OK; i++)
        if (keys[i])
            slots->list[slot_of[i]].indices[slots->list[slot_of[i]].count++] = i;
    for (size_t i = 0; i < slots->count && status == TS_OK; i++)
        classify(side, &slots->list[i], room);
    free(room);
    free(slot_of);
    return status;
}

const struct ts_slot *ts_slots_get(const struct ts_slots *slots, const char *key)
{
    size_t found = ts_table_get(&slots->table, key);
    return found == SIZE_MAX ? NULL : &slots->list[found];
}
