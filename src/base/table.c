#include "base/table.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct ts_table_slot {
    const char *key; /* NULL: free */
    uint64_t hash;
    size_t value;
};

bool ts_table_init(struct ts_table *table, size_t names)
{
    size_t slots = 16;
    *table = (struct ts_table){.room = names};
    if (names > SIZE_MAX / 64)
        return false;
    while (slots < names * 2) /* at most half full, so that a probe ends soon */
        slots *= 2;
    table->slots = calloc(slots, sizeof *table->slots);
    table->mask = slots - 1;
    return table->slots != NULL;
}

void ts_table_release(struct ts_table *table)
{
    free(table->slots);
    *table = (struct ts_table){0};
}

static struct ts_table_slot *slot_of(const struct ts_table *table, const char *key, uint64_t hash)
{
    size_t at = (size_t)hash & table->mask;
    while (table->slots[at].key && (table->slots[at].hash != hash || strcmp(table->slots[at].key, key) != 0))
        at = (at + 1) & table->mask;
    return &table->slots[at];
}

bool ts_table_put(struct ts_table *table, const char *key, size_t value, size_t *present)
{
    uint64_t hash = XXH3_64bits(key, strlen(key));
    struct ts_table_slot *slot = slot_of(table, key, hash);
    if (slot->key) {
        if (present)
            *present = slot->value;
        return false;
    }
    if (table->used == table->room) {
        if (present)
            *present = SIZE_MAX;
        return false;
    }
    *slot = (struct ts_table_slot){key, hash, value};
    table->used++;
    return true;
}

size_t ts_table_get(const struct ts_table *table, const char *key)
{
    const struct ts_table_slot *slot;
    if (!table->slots)
        return SIZE_MAX;
    slot = slot_of(table, key, XXH3_64bits(key, strlen(key)));
    return slot->key ? slot->value : SIZE_MAX;
}
