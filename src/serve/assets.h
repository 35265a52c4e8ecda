/* Assets: the files of the page inside the program; the table is made by web/embed. */
#ifndef TS_SERVE_ASSETS_H
#define TS_SERVE_ASSETS_H

#include <stddef.h>

struct ts_asset_entry {
    const char *name, *type;
    size_t offset, size;
};

extern const struct ts_asset_entry ts_asset_entries[]; /* ends with a NULL name */
extern const unsigned char ts_asset_bytes[];

#endif
