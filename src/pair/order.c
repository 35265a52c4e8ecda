/* Owns the execution order of the pairs: from a file the user gives, from an input that keeps one, from sequence
 * numbers in names, from what a model of that kind does, and last the natural order of names. Never the alphabet. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "pair/pairing.h"

/* Steps back through a model that no pass makes by chance. */
#define LEAST_BACK 3

/* What qsort's callback may look at. */
struct sorted {
    const struct ts_found *found;
    size_t rank;  /* from an order file; before that, where the pair's group (file) begins */
    bool ordered; /* within its group the order of the input says something */
    const struct ts_pairer *pairer;
};

static int compare_index(size_t a, size_t b)
{
    return a < b ? -1 : a > b;
}

static int by_a(const void *a, const void *b)
{
    const struct sorted *left = a, *right = b;
    int order = compare_index(left->found->a, right->found->a);
    return order ? order : compare_index(left->found->b, right->found->b);
}

static int by_b(const void *a, const void *b)
{
    const struct sorted *left = a, *right = b;
    int order = compare_index(left->found->b, right->found->b);
    return order ? order : compare_index(left->found->a, right->found->a);
}

static int compare_numbers(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

static int by_sequence_a(const void *a, const void *b)
{
    const struct sorted *left = a, *right = b;
    const struct ts_name *names = left->pairer->a.read.list;
    int order = compare_numbers(names[left->found->a].sequence, names[right->found->a].sequence);
    return order ? order : by_a(a, b);
}

static int by_sequence_b(const void *a, const void *b)
{
    const struct sorted *left = a, *right = b;
    const struct ts_name *names = left->pairer->b.read.list;
    int order = compare_numbers(names[left->found->b].sequence, names[right->found->b].sequence);
    return order ? order : by_b(a, b);
}

static int by_name(const void *a, const void *b)
{
    const struct sorted *left = a, *right = b;
    int order = ts_natural_compare(left->found->pair.name, right->found->pair.name);
    return order ? order : by_b(a, b);
}

/* Towers and encoders run before the text model or the decoder. */
static int part_of_model(const struct ts_name *name)
{
    if (strncmp(name->scope, "vision", 6) == 0 || strncmp(name->scope, "audio", 5) == 0)
        return 0;
    return strcmp(name->scope, "encoder") == 0 ? 1 : 2;
}

/* What the pair is: by A's name, or B's where A's is of all layers. */
static const struct ts_name *meaning(const struct sorted *one)
{
    const struct ts_name *name = &one->pairer->a.read.list[one->found->a];
    return name->stacked && one->pairer->b.read.list ? &one->pairer->b.read.list[one->found->b] : name;
}

static int by_model(const void *a, const void *b)
{
    const struct sorted *left = a, *right = b;
    const struct ts_name *one = meaning(left), *other = meaning(right);
    int order = strcmp(one->group, other->group) == 0 ? 0 : ts_natural_compare(one->group, other->group);
    if (!order)
        order = part_of_model(one) - part_of_model(other);
    if (!order)
        order = (int)one->stage - (int)other->stage;
    if (!order)
        order = compare_numbers(one->layer, other->layer);
    if (!order)
        order = one->place < other->place ? -1 : one->place > other->place;
    if (!order) /* the weight before its bias */
        order = strcmp(ts_kind_ending(other->kind), ts_kind_ending(one->kind));
    if (!order)
        order = compare_numbers(one->expert, other->expert);
    return order ? order : by_name(a, b);
}

/* Group by group; inside as the input has them, or as a model runs. */
static int by_group_a(const void *a, const void *b)
{
    const struct sorted *left = a, *right = b;
    int order = compare_index(left->rank, right->rank);
    return order ? order : left->ordered ? by_a(a, b) : by_model(a, b);
}

static int by_group_b(const void *a, const void *b)
{
    const struct sorted *left = a, *right = b;
    int order = compare_index(left->rank, right->rank);
    return order ? order : left->ordered ? by_b(a, b) : by_model(a, b);
}

static int by_rank(const void *a, const void *b)
{
    const struct sorted *left = a, *right = b;
    return compare_index(left->rank, right->rank);
}

static const char *name_of(const struct sorted *one, bool b)
{
    const struct ts_pairer *pairer = one->pairer;
    return b ? pairer->b.bundle->tensors[one->found->b]->name : pairer->a.bundle->tensors[one->found->a]->name;
}

/* Both names begin with the same "file:", or have none. */
static bool same_group(const char *one, const char *other)
{
    size_t length = strcspn(one, ":"), other_length = strcspn(other, ":");
    bool has = one[length] == ':', other_has = other[other_length] == ':';
    return has == other_has && (!has || (length == other_length && memcmp(one, other, length) == 0));
}

static const char *file_of(const struct sorted *one, bool b)
{
    const struct ts_pairer *pairer = one->pairer;
    const char *file =
        b ? pairer->b.bundle->tensors[one->found->b]->file : pairer->a.bundle->tensors[one->found->a]->file;
    return file ? file : "";
}

/* As folders are listed, folder by folder: "0/mlp.npy" before "0.npy". */
static int compare_listed(const char *one, const char *other)
{
    char left[256], right[256];
    size_t length = strcspn(one, "/"), other_length = strcspn(other, "/");
    while (length == other_length && one[length] && other[length] && memcmp(one, other, length) == 0) {
        one += length + 1;
        other += length + 1;
        length = strcspn(one, "/");
        other_length = strcspn(other, "/");
    }
    snprintf(left, sizeof left, "%.*s", (int)length, one);
    snprintf(right, sizeof right, "%.*s", (int)other_length, other);
    return ts_natural_compare(left, right);
}

/* The pairs [from, to), in the order of one side, stand by name as a library sorts them, or as a folder is listed, a
 * file for each, in which layers.0.npy comes behind layers.0.mlp.npy: that order says nothing. */
static bool looks_sorted(const struct sorted *list, size_t from, size_t to, bool b, bool listed)
{
    bool bytes = true, natural = true;
    for (size_t i = from + 1; i < to && (bytes || natural || listed); i++) {
        bytes = bytes && strcmp(name_of(&list[i - 1], b), name_of(&list[i], b)) <= 0;
        natural = natural && ts_natural_compare(name_of(&list[i - 1], b), name_of(&list[i], b)) <= 0;
        listed = listed && compare_listed(file_of(&list[i - 1], b), file_of(&list[i], b)) < 0;
    }
    return bytes || natural || listed;
}

/* The same pairs jump back and forth between layers: archives of folders have the order in which the disk kept the
 * names. A run goes through its layers, and back only where another pass begins. */
static bool looks_scrambled(const struct ts_side *side, const struct sorted *list, size_t from, size_t to, bool b)
{
    int64_t last = -1, least = INT64_MAX, most = -1;
    size_t back = 0, layered = 0;
    for (size_t i = from; i < to; i++) {
        int64_t layer = side->read.list[b ? list[i].found->b : list[i].found->a].layer;
        if (layer < 0)
            continue;
        back += layer < last;
        least = layer < least ? layer : least;
        most = layer > most ? layer : most;
        last = layer;
        layered++;
    }
    return most - least >= 3 && back * 4 > layered;
}

/* Where a name stands in a pass through a model: before the layers, in one of them, behind them; -1: unknown. */
static int64_t stand(const struct ts_name *name)
{
    if (!name->known || name->stage == TS_STAGE_UNKNOWN)
        return -1;
    return name->stage == TS_STAGE_HEAD ? 0 : name->stage == TS_STAGE_TAIL ? INT64_MAX : name->layer + 1;
}

/* The same pairs, most of them of kinds that a table knows and each of them once, go back through the model half as
 * often as forward or more: a single pass does not, in whatever order an archive has it. Gradients may. */
static bool looks_backward(const struct ts_side *side, const struct sorted *list, size_t from, size_t to, bool b,
                           struct ts_arena *arena)
{
    const struct ts_arena_mark mark = ts_arena_mark(arena);
    struct ts_table seen = {0};
    size_t forward = 0, back = 0, layers_back = 0, known = 0;
    int64_t last = -1;
    bool once;
    for (size_t i = from; i < to; i++) {
        const int64_t now = stand(&side->read.list[b ? list[i].found->b : list[i].found->a]);
        if (now < 0)
            continue;
        forward += last >= 0 && now > last;
        back += last >= 0 && now < last;
        layers_back += now > 0 && last < INT64_MAX && now < last;
        last = now;
        known++;
    }
    if ((back < LEAST_BACK && (forward || !layers_back)) || back * 2 <= forward || known * 2 <= to - from ||
        !ts_table_init(&seen, to - from))
        return false;
    once = true;
    for (size_t i = from; i < to && once; i++) {
        const struct ts_name *name = &side->read.list[b ? list[i].found->b : list[i].found->a];
        const char *key = ts_arena_printf(arena, "%s|%s|%" PRId64 "|%" PRId64 "|%" PRId64, name->scope, name->kind,
                                          name->layer, name->expert, name->rank);
        once = key && ts_table_put(&seen, key, i, NULL) && !strstr(name_of(&list[i], b), "grad");
    }
    ts_table_release(&seen);
    ts_arena_rewind(arena, mark);
    return once;
}

/* Several tensors of a side hold all layers each: a run is through one layer before it comes to the next, and so their
 * order says nothing. The pairs are in the order of that side. */
static bool is_of_stacks(const struct ts_pairer *pairer, const struct sorted *list, size_t count, bool b)
{
    const struct ts_names *own = b ? &pairer->b.read : &pairer->a.read, *other = b ? &pairer->a.read : &pairer->b.read;
    size_t stacks = 0, last = SIZE_MAX;
    for (size_t i = 0; i < count && own->list && other->list && stacks < 2; i++) {
        const size_t index = b ? list[i].found->b : list[i].found->a;
        stacks += index != last && own->list[index].stacked &&
                  other->list[b ? list[i].found->a : list[i].found->b].layer >= 0;
        last = index;
    }
    return stacks > 1;
}

/* Sorts by the order of one side and finds the groups in which it says something; false when it does in none. */
static bool keeps_order(struct ts_pairer *pairer, const struct ts_side *side, struct sorted *list, size_t count, bool b)
{
    const bool given = strcmp(side->bundle->order, "order given in the metadata") == 0;
    const bool listed = strcmp(side->bundle->order, "order of the files") == 0;
    bool any = false;
    if (strcmp(side->bundle->order, "natural order of names") == 0 || side->facts.gguf)
        return false; /* and converters write by their own tables */
    qsort(list, count, sizeof *list, b ? by_b : by_a);
    if (is_of_stacks(pairer, list, count, b))
        return false;
    for (size_t from = 0, to; from < count; from = to) {
        bool ordered;
        for (to = from + 1; to < count && same_group(name_of(&list[from], b), name_of(&list[to], b));)
            to++;
        ordered = given || (to - from > 1 && !looks_sorted(list, from, to, b, listed) &&
                            !(side->read.list && (looks_scrambled(side, list, from, to, b) ||
                                                  looks_backward(side, list, from, to, b, &pairer->scratch))));
        any = any || ordered;
        for (size_t i = from; i < to; i++) {
            list[i].rank = from;
            list[i].ordered = ordered;
        }
    }
    return any;
}

/* Half of the pairs are something a table knows. */
static bool is_model(const struct sorted *list, size_t count)
{
    size_t known = 0;
    for (size_t i = 0; i < count; i++)
        known += meaning(&list[i])->known;
    return known * 2 > count;
}

/* Whether a side numbers its dumps and has them in another order: an archive has its members as the disk had them. */
static bool is_renumbered(const struct ts_side *side, struct sorted *list, size_t count, bool b)
{
    int64_t last = -1;
    if (!side->read.sequences || strcmp(side->bundle->order, "order given in the metadata") == 0)
        return false;
    qsort(list, count, sizeof *list, b ? by_b : by_a);
    for (size_t i = 0; i < count; i++) {
        const int64_t sequence = side->read.list[b ? list[i].found->b : list[i].found->a].sequence;
        if (sequence < last)
            return true;
        last = sequence;
    }
    return false;
}

static enum ts_status sort(struct ts_pairer *pairer, struct sorted *list, size_t count, const char **source,
                           struct ts_error *error)
{
    bool all = true;
    TS_TRY(ts_pairer_read_side(pairer, &pairer->a, error));
    if (!is_renumbered(&pairer->a, list, count, false) && keeps_order(pairer, &pairer->a, list, count, false)) {
        for (size_t i = 0; i < count && all; i++)
            all = list[i].ordered;
        if (!all)
            qsort(list, count, sizeof *list, by_group_a);
        *source = ts_arena_printf(&pairer->out->arena, "%s of A", pairer->a.bundle->order);
        return *source ? TS_OK : ts_fail_memory(error);
    }
    TS_TRY(ts_pairer_read_side(pairer, &pairer->b, error));
    if (!pairer->a.read.sequences && !is_renumbered(&pairer->b, list, count, true) &&
        keeps_order(pairer, &pairer->b, list, count, true)) {
        for (size_t i = 0; i < count && all; i++)
            all = list[i].ordered;
        if (!all)
            qsort(list, count, sizeof *list, by_group_b);
        *source = ts_arena_printf(&pairer->out->arena, "%s of B", pairer->b.bundle->order);
        return *source ? TS_OK : ts_fail_memory(error);
    }
    if (pairer->a.read.sequences) {
        qsort(list, count, sizeof *list, by_sequence_a);
        *source = "order of the numbers in front of the names of A";
    } else if (pairer->b.read.sequences) {
        qsort(list, count, sizeof *list, by_sequence_b);
        *source = "order of the numbers in front of the names of B";
    } else if (is_model(list, count)) {
        qsort(list, count, sizeof *list, by_model);
        *source = "order of a forward pass";
    } else {
        qsort(list, count, sizeof *list, by_name);
        *source = "natural order of names";
    }
    return TS_OK;
}

static void mark(const struct ts_table *lines, const char *name, bool *here)
{
    const size_t line = ts_table_get(lines, name);
    if (line != SIZE_MAX)
        here[line] = true;
}

/* Says which names of the order file are those of no tensor and no pair. */
static enum ts_status note_missing(struct ts_pairer *pairer, const struct ts_table *table, const char *const *lines,
                                   size_t line_count, const struct sorted *list, size_t count, struct ts_error *error)
{
    const struct ts_side *sides[] = {&pairer->a, &pairer->b};
    bool *here = ts_arena_array(&pairer->scratch, line_count + 1, sizeof *here);
    size_t missing = 0, first = 0;
    if (!here)
        return ts_fail_memory(error);
    for (size_t i = 0; i < count; i++) { /* stacks and shards, which have a name of their own */
        mark(table, list[i].found->pair.name, here);
        mark(table, list[i].found->pair.name_b, here);
    }
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < sides[side]->count; i++) {
            mark(table, sides[side]->bundle->tensors[i]->name, here);
            if (sides[side]->names[i])
                mark(table, sides[side]->names[i], here);
        }
    for (size_t i = 0; i < line_count; i++)
        if (ts_table_get(table, lines[i]) == i && !here[i]) /* one that is written twice counts once */
            first = missing++ ? first : i;
    if (!missing)
        return TS_OK;
    return ts_pairer_note(pairer, error, "%zu name%s of %s %s in neither input, the first \"%s\"", missing,
                          missing == 1 ? "" : "s", pairer->options->order_file, missing == 1 ? "is" : "are",
                          lines[first]);
}

/* Pairs that the file names, by A's or B's name, come first and in its order; the rest stays behind them. */
static enum ts_status apply_file(struct ts_pairer *pairer, struct sorted *list, size_t count, const char **source,
                                 struct ts_error *error)
{
    const char **lines;
    size_t line_count, named = 0;
    struct ts_table table;
    enum ts_status status;
    TS_TRY(ts_lines_load(pairer->options->order_file, &pairer->scratch, &lines, &line_count, error));
    if (!ts_table_init(&table, line_count))
        return ts_fail_memory(error);
    for (size_t i = 0; i < line_count; i++)
        ts_table_put(&table, lines[i], i, NULL);
    for (size_t i = 0; i < count; i++) {
        size_t rank = ts_table_get(&table, list[i].found->pair.name);
        if (rank == SIZE_MAX)
            rank = ts_table_get(&table, list[i].found->pair.name_b);
        for (int b = 0; b < 2 && rank == SIZE_MAX; b++) /* of shards and stacks the first */
            rank = ts_table_get(&table, name_of(&list[i], b));
        named += rank != SIZE_MAX;
        list[i].rank = rank == SIZE_MAX ? line_count + i : rank; /* the rest stays as it was sorted */
    }
    status = note_missing(pairer, &table, lines, line_count, list, count, error);
    ts_table_release(&table);
    TS_TRY(status);
    qsort(list, count, sizeof *list, by_rank);
    if (named < count)
        TS_TRY(ts_pairer_note(pairer, error, "%zu pair%s not in the order file and come%s last, in the %s",
                              count - named, count - named == 1 ? " is" : "s are", count - named == 1 ? "s" : "",
                              *source));
    *source = "order of the --order file";
    return TS_OK;
}

/* Puts what was found into the order of the list, circle by circle, so that it takes no room. */
static void move(struct ts_found *found, struct sorted *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct ts_found first;
        size_t to = i;
        if (!list[i].found)
            continue;
        first = found[i];
        for (;;) {
            const size_t from = (size_t)(list[to].found - found);
            list[to].found = NULL;
            if (from == i)
                break;
            found[to] = found[from];
            to = from;
        }
        found[to] = first;
    }
}

enum ts_status ts_order_found(struct ts_pairer *pairer, struct ts_error *error)
{
    size_t count = pairer->count;
    struct sorted *list = calloc(count + 1, sizeof *list);
    enum ts_status status;
    const char *source = pairer->a.bundle->order;
    if (!list)
        return ts_fail_memory(error);
    for (size_t i = 0; i < count; i++)
        list[i] = (struct sorted){&pairer->found[i], SIZE_MAX, false, pairer};
    status = sort(pairer, list, count, &source, error);
    if (status == TS_OK && pairer->options->order_file)
        status = apply_file(pairer, list, count, &source, error);
    pairer->out->order = source;
    move(pairer->found, list, count);
    free(list);
    return status;
}
