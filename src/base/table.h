/* Table: names to numbers. Open addressing, built once for a known number of names, then looked up.
 *
 * Keys are not copied: they must outlive the table. Used wherever a file repeats names: duplicate detection, shard
 * indices, orders given as lists of names. */
#ifndef TS_BASE_TABLE_H
#define TS_BASE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ts_table {
    struct ts_table_slot *slots;
    size_t mask; /* slots - 1 */
    size_t used, room;
};

bool ts_table_init(struct ts_table *table, size_t names); /* room for that many; false without memory */
void ts_table_release(struct ts_table *table);

/* Stores key -> value. False when the key is there already (its old value stays, and is put in *present if not NULL) or
 * when the room is used up. */
bool ts_table_put(struct ts_table *table, const char *key, size_t value, size_t *present);
/* The value of key, or SIZE_MAX. */
size_t ts_table_get(const struct ts_table *table, const char *key);

#endif
