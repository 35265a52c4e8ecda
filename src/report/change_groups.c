#include "report/change_groups.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/text.h"
#include "tensor/layer.h"

#define NO_LAYER UINT64_MAX
/* Kinds of one group that are named. */
#define KINDS_MOST 12
/* Ranges of layers that are named. */
#define RANGES_MOST 6

struct entry {
    const char *scope; /* what stands before the layers: "model.", "encoder." */
    const char *kind;
    uint64_t layer;
    size_t index;
    bool marked;
};

struct kind {
    const char *name;
    const char *layers; /* "layers 4-7", or "" */
    size_t first, marked;
};

struct group {
    const struct kind *kinds;
    size_t count, first, marked;
};

/* The first whole word that is this number. */
static const char *find_number(const char *name, uint64_t number, size_t *digits)
{
    for (const char *at = name; *at;) {
        const char *start = at;
        while (isalnum((unsigned char)*at))
            at++;
        *digits = strspn(start, "0123456789");
        if (*digits && *digits < 10 && start + *digits == at && strtoull(start, NULL, 10) == number)
            return start;
        if (*at)
            at++;
    }
    return NULL;
}

/* The rest of a name with its other numbers, of experts for instance, as stars; ".weight" goes without saying. */
static const char *without_numbers(const char *rest, struct ts_arena *arena)
{
    size_t length = strlen(rest) - (ts_ends_with(rest, ".weight") ? strlen(".weight") : 0), used = 0;
    char *kind = ts_arena_copy(arena, rest, length);
    if (!kind)
        return NULL;
    for (size_t at = 0; at < length;) {
        size_t end = at;
        bool number = true;
        while (end < length && kind[end] != '.')
            number = isdigit((unsigned char)kind[end++]) && number;
        if (number && end > at) {
            kind[used++] = '*';
        } else {
            memmove(kind + used, kind + at, end - at);
            used += end - at;
        }
        if (end < length)
            kind[used++] = '.';
        at = end + 1;
    }
    kind[used] = '\0';
    return kind;
}

static bool read_entry(const char *name, struct ts_arena *arena, struct entry *entry)
{
    size_t digits = 0, head;
    const char *number = ts_layer_of(name, &entry->layer) ? find_number(name, entry->layer, &digits) : NULL;
    entry->scope = "";
    if (!number) {
        entry->layer = NO_LAYER;
        entry->kind =
            ts_arena_copy(arena, name, strlen(name) - (ts_ends_with(name, ".weight") ? strlen(".weight") : 0));
        return entry->kind != NULL;
    }
    head = (size_t)(number - name); /* "model.layers." -> "model." */
    if (head)
        head--;
    while (head && isalnum((unsigned char)name[head - 1]))
        head--;
    entry->scope = ts_arena_copy(arena, name, head);
    entry->kind = without_numbers(number[digits] ? number + digits + 1 : "", arena);
    return entry->scope && entry->kind;
}

static int by_kind(const void *a, const void *b)
{
    const struct entry *left = a, *right = b;
    int order = strcmp(left->kind, right->kind);
    if (left->layer == NO_LAYER || right->layer == NO_LAYER) /* a kind outside the layers is another one */
        order = left->layer != right->layer ? (left->layer == NO_LAYER ? 1 : -1) : order;
    if (!order && left->layer != right->layer)
        order = left->layer < right->layer ? -1 : 1;
    return order ? order : left->index < right->index ? -1 : left->index > right->index;
}

static int by_layers(const void *a, const void *b)
{
    const struct kind *left = a, *right = b;
    int order = strcmp(left->layers, right->layers);
    return order ? order : left->first < right->first ? -1 : left->first > right->first;
}

static int by_size(const void *a, const void *b)
{
    const struct group *left = a, *right = b;
    if (left->marked != right->marked)
        return left->marked > right->marked ? -1 : 1;
    return left->first < right->first ? -1 : left->first > right->first;
}

/* "layers 0-3, 5": of the marked entries of one kind. */
static const char *layers_of(const struct entry *entries, size_t count, struct ts_arena *arena)
{
    struct ts_buffer text;
    const char *kept;
    size_t ranges = 0;
    bool all = true, several = false;
    uint64_t from = NO_LAYER, last = NO_LAYER;
    if (entries[0].layer == NO_LAYER)
        return "";
    ts_buffer_init(&text, 4096);
    for (size_t i = 0; i <= count; i++) {
        uint64_t layer = i < count ? entries[i].layer : NO_LAYER;
        if (i < count && !entries[i].marked) {
            all = false;
            continue;
        }
        if (layer != NO_LAYER && (layer == last || (last != NO_LAYER && layer == last + 1))) {
            last = layer;
            continue;
        }
        if (last != NO_LAYER && ranges++ < RANGES_MOST) {
            ts_buffer_printf(&text, "%s%" PRIu64, text.size ? ", " : "", from);
            if (last > from)
                ts_buffer_printf(&text, "-%" PRIu64, last);
            several = several || last > from || ranges > 1;
        }
        from = last = layer;
    }
    if (ranges > RANGES_MOST)
        ts_buffer_string(&text, ", ...");
    kept = ts_arena_printf(arena, "layer%s %s%s", several ? "s" : "", text.data ? text.data : "",
                           all && several ? " (all)" : "");
    ts_buffer_release(&text);
    return kept;
}

static size_t parent_length(const char *kind)
{
    const char *dot = strrchr(kind, '.');
    return dot ? (size_t)(dot - kind) + 1 : 0;
}

/* What the leaves end with in common, from an underscore on: "_proj". */
static size_t shared_tail(const char *const *leaves, size_t count)
{
    const char *tail = strrchr(leaves[0], '_');
    size_t length = tail ? strlen(tail) : 0;
    for (size_t i = 0; i < count && length; i++)
        if (!ts_ends_with(leaves[i], tail) || strlen(leaves[i]) == length)
            length = 0;
    return length;
}

/* "self_attn.{q,v}_proj, mlp.down_proj" */
static void put_kinds(struct ts_buffer *out, const struct kind *kinds, size_t count)
{
    size_t shown = count < KINDS_MOST ? count : KINDS_MOST, named = 0;
    bool done[KINDS_MOST] = {false};
    for (size_t i = 0; i < shown; i++) {
        const char *leaves[KINDS_MOST];
        size_t length = parent_length(kinds[i].name), leaf_count = 0, tail;
        if (done[i])
            continue;
        for (size_t k = i; k < shown; k++)
            if (!done[k] && parent_length(kinds[k].name) == length &&
                memcmp(kinds[k].name, kinds[i].name, length) == 0) {
                leaves[leaf_count++] = kinds[k].name + length;
                done[k] = true;
            }
        ts_buffer_printf(out, "%s%.*s", named++ ? ", " : "", (int)length, kinds[i].name);
        if (leaf_count == 1) {
            ts_buffer_string(out, leaves[0]);
            continue;
        }
        tail = length ? shared_tail(leaves, leaf_count) : 0;
        for (size_t k = 0; k < leaf_count; k++) {
            ts_buffer_string(out, k ? (length ? "," : ", ") : length ? "{" : "");
            ts_buffer_append(out, leaves[k], strlen(leaves[k]) - tail);
        }
        if (length)
            ts_buffer_printf(out, "}%s", leaves[0] + strlen(leaves[0]) - tail);
    }
    if (shown < count)
        ts_buffer_printf(out, " and %zu more", count - shown);
}

static size_t list_kinds(const struct entry *entries, size_t count, struct kind *kinds, struct ts_arena *arena)
{
    size_t used = 0;
    for (size_t i = 0, end; i < count; i = end) {
        struct kind kind = {.name = entries[i].kind, .first = SIZE_MAX};
        for (end = i; end < count && strcmp(entries[end].kind, entries[i].kind) == 0 &&
                      (entries[end].layer == NO_LAYER) == (entries[i].layer == NO_LAYER);
             end++) {
            kind.marked += entries[end].marked;
            if (entries[end].marked && entries[end].index < kind.first)
                kind.first = entries[end].index;
        }
        if (!kind.marked)
            continue;
        kind.layers = layers_of(entries + i, end - i, arena);
        if (!kind.layers)
            return SIZE_MAX;
        kinds[used++] = kind;
    }
    return used;
}

static size_t put_all(struct ts_buffer *out, struct kind *kinds, size_t count, struct group *groups, size_t most)
{
    size_t used = 0, shown;
    qsort(kinds, count, sizeof *kinds, by_layers);
    for (size_t i = 0; i < count; i++) {
        if (!i || strcmp(kinds[i].layers, kinds[i - 1].layers) != 0)
            groups[used++] = (struct group){.kinds = &kinds[i], .first = kinds[i].first};
        groups[used - 1].count++;
        groups[used - 1].marked += kinds[i].marked;
    }
    qsort(groups, used, sizeof *groups, by_size);
    shown = used < most ? used : most;
    for (size_t i = 0; i < shown; i++) {
        ts_buffer_printf(out, "%s%s", i ? "; " : "", groups[i].kinds[0].layers);
        if (groups[i].kinds[0].layers[0] && groups[i].kinds[0].name[0])
            ts_buffer_byte(out, ' ');
        put_kinds(out, groups[i].kinds, groups[i].count);
    }
    if (shown < used) {
        size_t rest = 0;
        for (size_t i = shown; i < used; i++)
            rest += groups[i].marked;
        ts_buffer_printf(out, "; and %zu more", rest);
    }
    return used;
}

size_t ts_put_groups(struct ts_buffer *out, const struct ts_pair *pairs, const bool *marked, size_t count, size_t most)
{
    struct entry *entries = calloc(count + 1, sizeof *entries);
    struct kind *kinds = calloc(count + 1, sizeof *kinds);
    struct group *groups = calloc(count + 1, sizeof *groups);
    const char *scope = NULL;
    bool good = entries && kinds && groups, scopes = false;
    struct ts_arena arena;
    size_t used = 0;
    ts_arena_init(&arena, (size_t)1 << 30);
    for (size_t i = 0; i < count && good; i++) {
        entries[i].index = i;
        entries[i].marked = marked[i];
        good = read_entry(pairs[i].name, &arena, &entries[i]);
        if (!good || entries[i].layer == NO_LAYER)
            continue;
        scopes = scopes || (scope && strcmp(scope, entries[i].scope) != 0);
        scope = entries[i].scope;
    }
    for (size_t i = 0; i < count && good && scopes; i++) { /* encoder and decoder */
        entries[i].kind = ts_arena_printf(&arena, "%s%s", entries[i].scope, entries[i].kind);
        good = entries[i].kind != NULL;
    }
    if (good) {
        qsort(entries, count, sizeof *entries, by_kind);
        used = list_kinds(entries, count, kinds, &arena);
        used = used == SIZE_MAX ? 0 : put_all(out, kinds, used, groups, most);
    }
    ts_arena_release(&arena);
    free(entries);
    free(kinds);
    free(groups);
    return used;
}
