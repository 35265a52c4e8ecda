/* Map: what the user says about names. Pairs from a file, renames, declared axes. */
#ifndef TS_PAIR_MAP_H
#define TS_PAIR_MAP_H

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"
#include "pair/mapping.h"

/* One line: names of A, names of B; several on a side are shards in rank order; none says "stays alone". */
struct ts_map_line {
    const char **a, **b;
    size_t a_count, b_count;
    const struct ts_mapping *mapping; /* of B's tensor, or NULL; then there is one name on each side */
    size_t number;                    /* of the line; 0 in JSON */
};

struct ts_map {
    struct ts_map_line *lines;
    size_t count;
};

/* Lines `name of A = name of B`; names with blanks at the ends, '=', '+', '|' or '"' stand in double quotes with \",
 * \\ and \n; several names on a side are joined by " + "; " | " and a mapping (pair/mapping.h) may follow two names;
 * lines that begin with '#' are comments. Or a JSON object from names to names or arrays of names. All in the arena. */
enum ts_status ts_map_load(const char *path, struct ts_arena *arena, struct ts_map *map, struct ts_error *error);

/* Appends a name as the map file wants it. */
struct ts_buffer;
void ts_map_put_name(struct ts_buffer *out, const char *name);

/* "s/regex/replacement/": POSIX extended; \1 to \9 and & in the replacement; flags g and i; any delimiter. The name
 * that comes out, in the arena, for each of names[0 .. count). */
enum ts_status ts_rename(const char *rename, const char **names, size_t count, struct ts_arena *arena,
                         struct ts_error *error);

/* "REGEX: tokens heads dim; A:REGEX: ...; B:REGEX: ...": axis names for the tensors that match, of both sides or of
 * one. */
struct ts_dims {
    regex_t *patterns;
    char *sides;                /* 'A', 'B', or 0 for both */
    const char **axes, **texts; /* texts: the expressions as given */
    size_t count;
};
enum ts_status ts_dims_parse(const char *text, struct ts_arena *arena, struct ts_dims *dims, struct ts_error *error);
void ts_dims_release(struct ts_dims *dims);
const char *ts_dims_of(const struct ts_dims *dims, char side, const char *name); /* or NULL; side is 'A' or 'B' */

/* The lines of a file without blanks around, comments and empty lines left out, or a JSON list of names; for --order.
 */
enum ts_status ts_lines_load(const char *path, struct ts_arena *arena, const char ***lines, size_t *count,
                             struct ts_error *error);

#endif
