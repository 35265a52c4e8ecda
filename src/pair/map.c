/* Owns the user's own words about names: map files, renames, declared axes, order files. */
#include "pair/map.h"

#include <ctype.h>
#include <string.h>

#include "base/buffer.h"
#include "base/json.h"
#include "io/source.h"

/* A name is longer than the other text on its line only in hostile files. */
#define MAX_PARTS 4096

static bool grow_lines(struct ts_arena *arena, struct ts_map *map, size_t *room)
{
    if (map->count == *room) {
        size_t more = *room ? *room * 2 : 64;
        struct ts_map_line *moved = ts_arena_array(arena, more, sizeof *moved);
        if (!moved)
            return false;
        if (map->count)
            memcpy(moved, map->lines, map->count * sizeof *moved);
        map->lines = moved;
        *room = more;
    }
    return true;
}

/* Reads one name at *at, which has no blanks in front, up to `end`: quoted, or up to " = ", " + ", " | " or the end. */
static enum ts_status read_name(const char **at, const char *end, size_t line, struct ts_arena *arena,
                                const char **name, struct ts_error *error)
{
    const char *from = *at, *stop = from;
    char *out;
    if (from < end && *from == '"') {
        size_t used = 0;
        out = ts_arena_alloc(arena, (size_t)(end - from) + 1);
        if (!out)
            return ts_fail_memory(error);
        for (stop = from + 1; stop < end && *stop != '"'; stop++) {
            if (*stop == '\\' && stop + 1 < end)
                out[used++] = *++stop == 'n' ? '\n' : *stop; /* \n is a line break */
            else
                out[used++] = *stop;
        }
        if (stop == end)
            return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "line %zu: a name in quotes has no closing quote", line);
        out[used] = '\0';
        *at = stop + 1;
        *name = out;
        return TS_OK;
    }
    while (stop < end && *stop != '=' &&
           !((*stop == '+' || *stop == '|') && stop > from && isblank((unsigned char)stop[-1]) &&
             (stop + 1 == end || isblank((unsigned char)stop[1]))))
        stop++;
    *at = stop;
    while (stop > from && isspace((unsigned char)stop[-1]))
        stop--;
    *name = ts_arena_copy(arena, from, (size_t)(stop - from));
    return *name ? TS_OK : ts_fail_memory(error);
}

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && isspace((unsigned char)*at))
        at++;
    return at;
}

/* One side of a line: names joined by " + ". */
static enum ts_status read_side(const char **at, const char *end, size_t line, struct ts_arena *arena,
                                const char ***names, size_t *count, struct ts_error *error)
{
    size_t room = 0;
    *names = NULL;
    *count = 0;
    for (;;) {
        *at = skip_blanks(*at, end);
        if (*at == end || **at == '=' || (**at == '|' && *count))
            return TS_OK;
        if (*count == room) {
            const char **moved;
            if (room >= MAX_PARTS)
                return ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "line %zu: more than %d names on one side", line,
                               MAX_PARTS);
            room = room ? room * 2 : 1;
            moved = ts_arena_array(arena, room, sizeof *moved);
            if (!moved)
                return ts_fail_memory(error);
            if (*count)
                memcpy(moved, *names, *count * sizeof *moved);
            *names = moved;
        }
        TS_TRY(read_name(at, end, line, arena, &(*names)[*count], error));
        ++*count;
        *at = skip_blanks(*at, end);
        if (*at < end && **at == '+')
            ++*at;
        else if (*at < end && **at != '=' && **at != '|')
            return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "line %zu: expected '=' or '+' behind \"%s\"", line,
                           (*names)[*count - 1]);
    }
}

/* What stands behind "|". */
static enum ts_status read_mapping(const char **at, const char *end, struct ts_map_line *line, struct ts_arena *arena,
                                   struct ts_error *error)
{
    const char *words = ts_arena_copy(arena, *at + 1, (size_t)(end - *at - 1));
    struct ts_mapping *mapping = ts_arena_alloc(arena, sizeof *mapping);
    struct ts_error why;
    if (!words || !mapping)
        return ts_fail_memory(error);
    if (line->a_count != 1 || line->b_count != 1)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "line %zu: a mapping stands behind one name on each side",
                       line->number);
    if (ts_mapping_parse(words, mapping, &why) != TS_OK)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "line %zu: %s", line->number, why.message);
    line->mapping = mapping;
    *at = end;
    return TS_OK;
}

static enum ts_status read_text(const char *text, size_t size, struct ts_arena *arena, struct ts_map *map,
                                struct ts_error *error)
{
    size_t room = 0, number = 0;
    for (const char *at = text, *all = text + size; at < all;) {
        const char *line_end = memchr(at, '\n', (size_t)(all - at));
        const char *end = line_end ? line_end : all, *next = line_end ? line_end + 1 : all;
        struct ts_map_line line = {.number = ++number};
        if (memchr(at, '\0', (size_t)(end - at)))
            return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "line %zu: a NUL byte; is this a text file?", number);
        at = skip_blanks(at, end);
        if (at < end && *at != '#') {
            TS_TRY(read_side(&at, end, number, arena, &line.a, &line.a_count, error));
            if (at == end || *at != '=')
                return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "line %zu: no '='; expected name of A = name of B",
                               number);
            at++;
            TS_TRY(read_side(&at, end, number, arena, &line.b, &line.b_count, error));
            if (at < end && *at == '|')
                TS_TRY(read_mapping(&at, end, &line, arena, error));
            if (at < end)
                return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET,
                               "line %zu: a second '='; put names that contain one in quotes", number);
            if (line.a_count + line.b_count > 0) {
                if (!grow_lines(arena, map, &room))
                    return ts_fail_memory(error);
                map->lines[map->count++] = line;
            }
        }
        at = next;
    }
    return TS_OK;
}

static enum ts_status json_names(struct ts_json *json, struct ts_arena *arena, size_t most, const char ***names,
                                 size_t *count, struct ts_error *error)
{
    size_t room = 1;
    *names = ts_arena_array(arena, room, sizeof **names);
    *count = 0;
    if (!*names)
        return ts_fail_memory(error);
    TS_TRY(ts_json_next(json, error));
    if (json->kind == TS_JSON_NULL)
        return TS_OK;
    if (json->kind == TS_JSON_STRING) {
        *count = 1;
        return ts_json_copy(json, arena, &(*names)[0], error);
    }
    if (json->kind != TS_JSON_ARRAY)
        return ts_fail(error, TS_ERR_USAGE, json->offset, "expected a name, an array of names or null");
    for (;;) {
        TS_TRY(ts_json_next(json, error));
        if (json->kind == TS_JSON_ARRAY_END)
            return TS_OK;
        if (json->kind != TS_JSON_STRING)
            return ts_fail(error, TS_ERR_USAGE, json->offset, "expected a name");
        if (*count == room) {
            const char **moved = room < most ? ts_arena_array(arena, room * 2, sizeof *moved) : NULL;
            if (!moved)
                return ts_fail(error, TS_ERR_LIMIT, json->offset, "too many names in one array");
            memcpy(moved, *names, *count * sizeof *moved);
            *names = moved;
            room *= 2;
        }
        TS_TRY(ts_json_copy(json, arena, &(*names)[*count], error));
        ++*count;
    }
}

static enum ts_status read_json(const char *text, size_t size, struct ts_arena *arena, struct ts_map *map,
                                struct ts_error *error)
{
    struct ts_json json;
    size_t room = 0;
    ts_json_init(&json, text, size);
    TS_TRY(ts_json_expect(&json, TS_JSON_OBJECT, "an object from names of A to names of B", error));
    for (;;) {
        struct ts_map_line line = {.a_count = 1};
        TS_TRY(ts_json_next(&json, error));
        if (json.kind == TS_JSON_OBJECT_END)
            break;
        line.a = ts_arena_alloc(arena, sizeof *line.a);
        if (!line.a || !grow_lines(arena, map, &room))
            return ts_fail_memory(error);
        TS_TRY(ts_json_copy(&json, arena, &line.a[0], error));
        TS_TRY(json_names(&json, arena, MAX_PARTS, &line.b, &line.b_count, error));
        map->lines[map->count++] = line;
    }
    return ts_json_next(&json, error);
}

enum ts_status ts_map_load(const char *path, struct ts_arena *arena, struct ts_map *map, struct ts_error *error)
{
    struct ts_source *source;
    enum ts_status status;
    const char *text, *first;
    *map = (struct ts_map){0};
    TS_TRY(ts_source_open(path, &source, error));
    text = (const char *)source->data;
    first = skip_blanks(text, text + source->size);
    status = first < text + source->size && *first == '{' ? read_json(text, (size_t)source->size, arena, map, error)
                                                          : read_text(text, (size_t)source->size, arena, map, error);
    ts_source_release(source);
    return status == TS_OK ? TS_OK : ts_error_path(error, path);
}

void ts_map_put_name(struct ts_buffer *out, const char *name)
{
    size_t length = strlen(name);
    bool quoted = length == 0 || strpbrk(name, "=\"\\\n") || strstr(name, " +") || strstr(name, " |") ||
                  name[0] == '|' || isspace((unsigned char)name[0]) || isspace((unsigned char)name[length - 1]) ||
                  name[0] == '#' || name[0] == '+' || name[0] == '{';
    if (!quoted) {
        ts_buffer_string(out, name);
        return;
    }
    ts_buffer_byte(out, '"');
    for (; *name; name++) {
        if (*name == '"' || *name == '\\' || *name == '\n')
            ts_buffer_byte(out, '\\');
        ts_buffer_byte(out, *name == '\n' ? 'n' : *name);
    }
    ts_buffer_byte(out, '"');
}

/* What replaces a match: \1 to \9 are groups, & is all of it. */
static void put_replacement(struct ts_buffer *out, const char *replacement, size_t size, const char *text,
                            const regmatch_t *groups)
{
    for (size_t i = 0; i < size; i++) {
        int group = -1;
        if (replacement[i] == '&')
            group = 0;
        else if (replacement[i] == '\\' && i + 1 < size && isdigit((unsigned char)replacement[i + 1]))
            group = replacement[++i] - '0';
        else if (replacement[i] == '\\' && i + 1 < size)
            i++;
        if (group < 0)
            ts_buffer_byte(out, replacement[i]);
        else if (groups[group].rm_so >= 0)
            ts_buffer_append(out, text + groups[group].rm_so, (size_t)(groups[group].rm_eo - groups[group].rm_so));
    }
}

/* The name after the replacement, or NULL without memory. */
static const char *replace(const regex_t *regex, const char *name, const char *replacement, size_t size, bool global,
                           struct ts_arena *arena)
{
    struct ts_buffer out;
    regmatch_t groups[10];
    const char *at = name, *result;
    bool any = false;
    ts_buffer_init(&out, 1 << 20);
    while ((!any || global) && regexec(regex, at, 10, groups, at > name ? REG_NOTBOL : 0) == 0) {
        any = true;
        ts_buffer_append(&out, at, (size_t)groups[0].rm_so);
        put_replacement(&out, replacement, size, at, groups);
        at += groups[0].rm_eo;
        if (groups[0].rm_eo == groups[0].rm_so) { /* an empty match: go on behind the next letter */
            if (!*at)
                break;
            ts_buffer_byte(&out, *at++);
        }
    }
    ts_buffer_string(&out, at);
    result = !any ? name : out.failed ? NULL : ts_arena_copy(arena, out.data ? out.data : "", out.size);
    ts_buffer_release(&out);
    return result;
}

/* The next part of s/…/…/ up to an unescaped delimiter; \ before the delimiter is taken away. */
static const char *read_part(const char **at, char delimiter, struct ts_arena *arena, size_t *size)
{
    char *out = ts_arena_alloc(arena, strlen(*at) + 1);
    size_t used = 0;
    for (; out && **at && **at != delimiter; ++*at) {
        if (**at == '\\' && (*at)[1] == delimiter)
            ++*at;
        else if (**at == '\\' && (*at)[1])
            out[used++] = *(*at)++;
        out[used++] = **at;
    }
    *size = used;
    return out;
}

enum ts_status ts_rename(const char *rename, const char **names, size_t count, struct ts_arena *arena,
                         struct ts_error *error)
{
    const char *at = rename + 2, *pattern, *replacement;
    char delimiter = rename[0] ? rename[1] : '\0', message[128];
    size_t pattern_size, size;
    bool global = false;
    int flags = REG_EXTENDED, code;
    regex_t regex;
    if (rename[0] != 's' || !delimiter || isalnum((unsigned char)delimiter) || delimiter == '\\')
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "\"%s\" is no rename; expected s/regex/replacement/", rename);
    pattern = read_part(&at, delimiter, arena, &pattern_size);
    at += *at == delimiter;
    replacement = read_part(&at, delimiter, arena, &size);
    if (!pattern || !replacement)
        return ts_fail_memory(error);
    if (*at != delimiter)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET,
                       "\"%s\" does not end with '%c'; expected s/regex/replacement/", rename, delimiter);
    for (at++; *at; at++) {
        if (*at == 'g')
            global = true;
        else if (*at == 'i' || *at == 'I')
            flags |= REG_ICASE;
        else
            return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "\"%s\": flag '%c' is not known; g and i are", rename,
                           *at);
    }
    code = regcomp(&regex, pattern, flags);
    if (code != 0) {
        regerror(code, &regex, message, sizeof message);
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "\"%s\": %s", rename, message);
    }
    for (size_t i = 0; i < count; i++) {
        const char *changed = replace(&regex, names[i], replacement, size, global, arena);
        if (!changed) {
            regfree(&regex);
            return ts_fail_memory(error);
        }
        names[i] = changed;
    }
    regfree(&regex);
    return TS_OK;
}

enum ts_status ts_dims_parse(const char *text, struct ts_arena *arena, struct ts_dims *dims, struct ts_error *error)
{
    size_t room = 1;
    *dims = (struct ts_dims){0};
    for (const char *at = text; *at; at++)
        room += *at == ';';
    dims->patterns = ts_arena_array(arena, room, sizeof *dims->patterns);
    dims->axes = ts_arena_array(arena, room, sizeof *dims->axes);
    dims->texts = ts_arena_array(arena, room, sizeof *dims->texts);
    dims->sides = ts_arena_array(arena, room, sizeof *dims->sides);
    if (!dims->patterns || !dims->axes || !dims->texts || !dims->sides)
        return ts_fail_memory(error);
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, ";");
        char *piece =
            ts_arena_copy(arena, skip_blanks(at, at + length), (size_t)(at + length - skip_blanks(at, at + length)));
        char *colon = piece ? strrchr(piece, ':') : NULL, message[128];
        int code;
        if (!piece)
            return ts_fail_memory(error);
        at += length;
        at += *at == ';';
        if (!*piece)
            continue;
        if (!colon)
            return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET,
                           "\"%s\" declares no axes; expected REGEX: tokens heads dim", piece);
        *colon = '\0';
        if ((piece[0] == 'A' || piece[0] == 'B') && piece[1] == ':') {
            dims->sides[dims->count] = piece[0];
            piece += 2;
        }
        code = regcomp(&dims->patterns[dims->count], piece, REG_EXTENDED | REG_NOSUB);
        if (code != 0) {
            regerror(code, &dims->patterns[dims->count], message, sizeof message);
            return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "\"%s\": %s", piece, message);
        }
        dims->texts[dims->count] = piece;
        dims->axes[dims->count++] = skip_blanks(colon + 1, colon + 1 + strlen(colon + 1));
    }
    return TS_OK;
}

void ts_dims_release(struct ts_dims *dims)
{
    for (size_t i = 0; i < dims->count; i++)
        regfree(&dims->patterns[i]);
    dims->count = 0;
}

const char *ts_dims_of(const struct ts_dims *dims, char side, const char *name)
{
    for (size_t i = 0; i < dims->count; i++)
        if ((!dims->sides[i] || dims->sides[i] == side) && regexec(&dims->patterns[i], name, 0, NULL, 0) == 0)
            return dims->axes[i];
    return NULL;
}

enum ts_status ts_lines_load(const char *path, struct ts_arena *arena, const char ***lines, size_t *count,
                             struct ts_error *error)
{
    struct ts_source *source;
    const char *text, *all;
    size_t room = 1;
    bool fits;
    TS_TRY(ts_source_open(path, &source, error));
    text = (const char *)source->data;
    all = text + source->size;
    if (skip_blanks(text, all) < all && *skip_blanks(text, all) == '[') { /* ["first", "second"] */
        struct ts_json json;
        enum ts_status status;
        ts_json_init(&json, text, source->size);
        status = json_names(&json, arena, SIZE_MAX / 4, lines, count, error); /* the file bounds it */
        if (status == TS_OK)
            status = ts_json_next(&json, error); /* nothing may follow */
        ts_source_release(source);
        return status == TS_OK ? TS_OK : ts_error_path(error, path);
    }
    for (const char *at = text; at < all; at++)
        room += *at == '\n';
    *lines = ts_arena_array(arena, room, sizeof **lines);
    *count = 0;
    fits = *lines != NULL;
    for (const char *at = text; at < all && fits;) {
        const char *line_end = memchr(at, '\n', (size_t)(all - at));
        const char *end = line_end ? line_end : all, *next = line_end ? line_end + 1 : all;
        at = skip_blanks(at, end);
        while (end > at && isspace((unsigned char)end[-1]))
            end--;
        if (at < end && *at != '#') {
            (*lines)[*count] = ts_arena_copy(arena, at, (size_t)(end - at));
            fits = (*lines)[(*count)++] != NULL;
        }
        at = next;
    }
    ts_source_release(source);
    return fits ? TS_OK : ts_fail_memory(error);
}
