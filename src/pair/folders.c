/* Owns folders (or files) of one side that hold the same names, where the other side has each name once: stages of a
 * pipeline that count their layers from 0 each, and copies of one run in other types.
 *
 * Stages get the layer numbers of the whole model where names and content say that they are its stages; of folders that
 * are numbered twice, mp_rank_01_003, one number may be that of a stage and the other that of a rank. Of copies the one
 * with the types of the other side stands against it. Both is told, and whoever wants it otherwise renames. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "pair/pairing.h"
#include "pair/sketch.h"

#define MAX_FOLDERS 64
/* Tensors of each stage that are looked at, and the largest of them: norms and biases are small in every model. */
#define PROBES     8
#define PROBE_SIZE ((uint64_t)1 << 18)
#define SAME       0.05 /* sketches nearer than this are of one tensor */

struct one_folder {
    const char *name; /* with what ends it: "stage0:", "f16/" */
    int64_t first, last, shift;
    size_t layers;
    uint64_t stage;      /* its number, or its place where the whole name says it */
    const char *as_rank; /* the name without that number, "" where nothing else is said */
    size_t met, alike;   /* tensors that the other side has in this size, and those in this type besides */
};

struct folders {
    struct one_folder list[MAX_FOLDERS];
    size_t count;
    size_t *of;         /* of each tensor */
    const char **rests; /* its name without the folder */
};

/* What all names begin with, up to the end of a folder. */
static size_t common_folder(const struct ts_side *side)
{
    const char *first = side->names[0];
    size_t length = strcspn(first, ":");
    for (size_t i = 1; i < side->count; i++) {
        size_t same = 0;
        while (same < length && side->names[i][same] == first[same])
            same++;
        length = same;
    }
    while (length > 0 && first[length - 1] != '/')
        length--;
    return length;
}

static int by_name(const void *a, const void *b)
{
    return ts_natural_compare(((const struct one_folder *)a)->name, ((const struct one_folder *)b)->name);
}

static size_t find(const struct folders *folders, const char *name, size_t length)
{
    size_t at = 0;
    while (at < folders->count &&
           (strlen(folders->list[at].name) != length || strncmp(folders->list[at].name, name, length) != 0))
        at++;
    return at;
}

/* The folders of a side in their natural order; folders->count is 0 where not every tensor stands in one, or they are
 * too many. */
static enum ts_status list_folders(struct ts_pairer *pairer, const struct ts_side *side, struct folders *folders,
                                   struct ts_error *error)
{
    const size_t common = side->count ? common_folder(side) : 0;
    *folders = (struct folders){.of = ts_arena_array(&pairer->scratch, side->count, sizeof *folders->of),
                                .rests = ts_arena_array(&pairer->scratch, side->count, sizeof *folders->rests)};
    if (!folders->of || !folders->rests)
        return ts_fail_memory(error);
    for (size_t i = 0; i < side->count; i++) {
        const size_t length = common + strcspn(side->names[i] + common, "/:") + 1;
        if (length >= strlen(side->names[i]) || !side->names[i][length - 1]) {
            folders->count = 0;
            return TS_OK;
        }
        folders->rests[i] = side->names[i] + length;
        if (find(folders, side->names[i], length) < folders->count)
            continue;
        if (folders->count == MAX_FOLDERS) {
            folders->count = 0;
            return TS_OK;
        }
        folders->list[folders->count].name = ts_arena_copy(&pairer->scratch, side->names[i], length);
        if (!folders->list[folders->count++].name)
            return ts_fail_memory(error);
    }
    qsort(folders->list, folders->count, sizeof *folders->list, by_name);
    for (size_t i = 0; i < side->count; i++)
        folders->of[i] = find(folders, side->names[i], (size_t)(folders->rests[i] - side->names[i]));
    return TS_OK;
}

/* What a tensor is, with its layer moved. */
static const char *key_of(struct ts_pairer *pairer, const struct ts_name *name, int64_t shift)
{
    return ts_arena_printf(&pairer->scratch, "%s|%" PRId64 "|%" PRId64 "|%s", name->scope,
                           name->layer < 0 ? name->layer : name->layer + shift, name->expert, name->kind);
}

/* The tensors of a side by what they are; of several that are the same the first. */
static enum ts_status index_kinds(struct ts_pairer *pairer, const struct ts_names *names, struct ts_table *table,
                                  struct ts_error *error)
{
    if (!ts_table_init(table, names->count))
        return ts_fail_memory(error);
    for (size_t i = 0; i < names->count; i++) {
        const char *key = key_of(pairer, &names->list[i], 0);
        if (!key) {
            ts_table_release(table);
            return ts_fail_memory(error);
        }
        ts_table_put(table, key, i, NULL);
    }
    return TS_OK;
}

/* The first and the last layer and how many there are. */
static bool count_layers(struct ts_pairer *pairer, const struct ts_names *names, const size_t *of, size_t folder,
                         struct one_folder *out)
{
    struct ts_table seen;
    bool done = ts_table_init(&seen, names->count);
    for (size_t i = 0; i < names->count && done; i++) {
        const int64_t layer = names->list[i].layer;
        const char *key;
        if ((of && of[i] != folder) || layer < 0)
            continue;
        key = ts_arena_printf(&pairer->scratch, "%" PRId64, layer);
        done = key != NULL;
        if (!done || !ts_table_put(&seen, key, i, NULL))
            continue;
        out->first = out->layers && out->first < layer ? out->first : layer;
        out->last = out->layers && out->last > layer ? out->last : layer;
        out->layers++;
    }
    ts_table_release(&seen);
    return done;
}

/* Takes the number at `place` of every folder's name, counted from its end, for that of a stage. *numbered is false
 * where one has none there, or no other. False without memory. */
static bool number_stages(struct ts_pairer *pairer, struct folders *folders, unsigned place, bool *numbered)
{
    *numbered = false;
    for (size_t i = 0; i < folders->count; i++) {
        struct one_folder *one = &folders->list[i];
        const char *name = one->name;
        size_t end = strlen(name), start = end, others = 0, word;
        for (unsigned k = 0; k <= place; k++) {
            for (end = start; end > 0 && !ts_is_digit(name[end - 1]);)
                end--;
            for (start = end; start > 0 && ts_is_digit(name[start - 1]);)
                start--;
        }
        for (size_t k = 0; name[k]; k++)
            others += ts_is_digit(name[k]) && (k < start || k >= end);
        if (start == end || end - start > 9 || !others)
            return true;
        one->stage = strtoull(name + start, NULL, 10);
        for (word = start; word > 0 && strchr("_-.", name[word - 1]);)
            word--;
        if (word >= 2 && strncmp(name + word - 2, "pp", 2) == 0)
            word -= 2;
        else if (word >= 5 && strncmp(name + word - 5, "stage", 5) == 0)
            word -= 5;
        one->as_rank = ts_arena_printf(&pairer->scratch, "%.*s%s", (int)word, name, name + end);
        if (!one->as_rank)
            return false;
    }
    *numbered = true;
    return true;
}

/* The stage behind one, in whatever order the folders are; NULL behind the last. */
static struct one_folder *next_stage(struct folders *folders, const struct one_folder *stage)
{
    struct one_folder *next = NULL;
    for (size_t i = 0; i < folders->count; i++) {
        struct one_folder *one = &folders->list[i];
        if ((!stage || one->stage > stage->stage) && (!next || one->stage < next->stage))
            next = one;
    }
    return next;
}

/* Stages that follow each other and have as many layers as the whole: true where that moves some. The ranks of a stage
 * have the same layers. */
static bool shift_stages(struct folders *folders, const struct one_folder *all)
{
    int64_t next = all->first;
    size_t moved = 0;
    for (struct one_folder *stage = NULL; (stage = next_stage(folders, stage));) {
        stage->shift = stage->layers ? next - stage->first : 0;
        for (size_t i = 0; i < folders->count; i++) {
            struct one_folder *one = &folders->list[i];
            if (one->stage != stage->stage)
                continue;
            if (one->first != stage->first || one->last != stage->last || one->layers != stage->layers)
                return false;
            one->shift = stage->shift;
        }
        moved += stage->shift != 0;
        next += (int64_t)stage->layers;
    }
    return moved > 0 && next == all->last + 1;
}

/* Whether folders can be stages: each by itself, or told by one of two numbers in their names. */
static bool find_stages(struct ts_pairer *pairer, const struct ts_names *names, struct folders *folders,
                        const struct ts_names *whole, bool *possible)
{
    struct one_folder all = {0};
    *possible = false;
    if (!count_layers(pairer, whole, NULL, 0, &all))
        return false;
    for (size_t i = 0; i < folders->count; i++) {
        struct one_folder *one = &folders->list[i];
        if (!count_layers(pairer, names, folders->of, i, one))
            return false;
        if (one->layers && one->last - one->first + 1 != (int64_t)one->layers)
            return true;
        one->stage = i;
        one->as_rank = "";
    }
    if (!all.layers || all.last - all.first + 1 != (int64_t)all.layers)
        return true;
    *possible = shift_stages(folders, &all);
    for (unsigned place = 0; place < 2 && !*possible; place++) {
        bool numbered;
        if (!number_stages(pairer, folders, place, &numbered))
            return false;
        *possible = numbered && shift_stages(folders, &all);
    }
    return true;
}

/* Whether two tensors of one size hold the same; one that is too large or too small says nothing. */
static enum ts_status same_content(const struct ts_tensor *one, const struct ts_tensor *other, bool *same,
                                   struct ts_error *error)
{
    struct ts_sketch left, right;
    *same = false;
    if (one->count != other->count)
        return TS_OK;
    TS_TRY(ts_sketch_make(one, &left, error));
    TS_TRY(ts_sketch_make(other, &right, error));
    *same = !left.constant && ts_sketch_distance(&left, &right) < SAME;
    return TS_OK;
}

/* *proved: tensors of stages agree with those of the layers that they would be, more than with those of the numbers
 * they have, and those of the stage that keeps its numbers agree somewhere too: what all ranks of a parallel run hold
 * would agree in every folder but that one. Or nothing agrees with these, and every tensor of one side has just one of
 * the other, most of them in the same size, which pieces have not. */
static enum ts_status prove_stages(struct ts_pairer *pairer, const struct ts_side *side, const struct ts_side *other,
                                   const struct ts_names *names, const struct folders *folders,
                                   const struct ts_table *kinds, bool *proved, struct ts_error *error)
{
    size_t looked[MAX_FOLDERS] = {0}, as_stages = 0, as_they_are = 0, partners = 0, alike = 0;
    size_t kept = 0, kept_agree = 0;
    bool *taken = ts_arena_array(&pairer->scratch, other->count, sizeof *taken);
    if (!taken)
        return ts_fail_memory(error);
    for (size_t i = 0; i < side->count; i++) {
        const struct ts_tensor *tensor = side->bundle->tensors[i];
        const struct one_folder *folder = &folders->list[folders->of[i]];
        const char *moved = key_of(pairer, &names->list[i], folder->shift), *here = key_of(pairer, &names->list[i], 0);
        size_t there, at;
        bool same;
        if (!moved || !here)
            return ts_fail_memory(error);
        there = ts_table_get(kinds, moved);
        partners += there != SIZE_MAX && !taken[there];
        alike += there != SIZE_MAX && !taken[there] && other->bundle->tensors[there]->count == tensor->count;
        if (there != SIZE_MAX)
            taken[there] = true;
        if (names->list[i].layer < 0 || tensor->count < 16 || tensor->count > PROBE_SIZE ||
            looked[folders->of[i]] == PROBES || there == SIZE_MAX)
            continue;
        looked[folders->of[i]]++;
        TS_TRY(same_content(tensor, other->bundle->tensors[there], &same, error));
        kept += !folder->shift;
        kept_agree += !folder->shift && same;
        if (!folder->shift)
            continue;
        as_stages += same;
        at = ts_table_get(kinds, here);
        if (at == SIZE_MAX)
            continue;
        TS_TRY(same_content(tensor, other->bundle->tensors[at], &same, error));
        as_they_are += same;
    }
    *proved = (as_stages > as_they_are && (kept_agree || !kept)) ||
              (!as_they_are && partners == side->count && partners == other->count && alike * 2 > partners);
    return TS_OK;
}

/* The rest of a name with its layer moved: the first number in it that is the layer's. */
static const char *renumber(struct ts_pairer *pairer, const char *rest, const struct ts_name *name, int64_t shift)
{
    for (const char *at = rest; name->layer >= 0 && *at; at++) {
        size_t digits = strspn(at, "0123456789");
        if (digits && digits < 10 && strtoll(at, NULL, 10) == name->layer)
            return ts_arena_printf(&pairer->scratch, "%.*s%" PRId64 "%s", (int)(at - rest), rest, name->layer + shift,
                                   at + digits);
        at += digits ? digits - 1 : 0;
    }
    return rest;
}

static enum ts_status match_stages(struct ts_pairer *pairer, struct ts_side *side, const struct ts_side *other,
                                   struct folders *folders, const struct ts_names *names, const struct ts_names *whole,
                                   const struct ts_table *kinds, bool *done, struct ts_error *error)
{
    const bool of_b = side == &pairer->b;
    const struct one_folder *second = NULL;
    size_t moved = 0, stages = 0;
    if (!find_stages(pairer, names, folders, whole, done))
        return ts_fail_memory(error);
    if (*done)
        TS_TRY(prove_stages(pairer, side, other, names, folders, kinds, done, error));
    if (!*done)
        return TS_OK;
    for (size_t i = 0; i < side->count; i++) {
        const struct one_folder *folder = &folders->list[folders->of[i]];
        const char *rest = renumber(pairer, folders->rests[i], &names->list[i], folder->shift);
        side->names[i] = rest ? ts_arena_printf(&pairer->scratch, "%s%s", folder->as_rank, rest) : NULL;
        if (!side->names[i])
            return ts_fail_memory(error);
    }
    for (struct one_folder *stage = NULL; (stage = next_stage(folders, stage)); stages++)
        if (stage->shift && !moved++)
            second = stage;
    return ts_pairer_note(pairer, error,
                          "%c is in %zu pipeline stages that each count their layers from 0: layers "
                          "%" PRId64 ".. of %.*s are compared with layers %" PRId64 ".. of %c%s",
                          of_b ? 'B' : 'A', stages, second->first, (int)strlen(second->name) - 1, second->name,
                          second->first + second->shift, of_b ? 'A' : 'B', moved > 1 ? ", and so on" : "");
}

/* Folders that each hold most of the other side in its sizes: the one that has its types too stands against it. */
static enum ts_status match_copies(struct ts_pairer *pairer, struct ts_side *side, const struct ts_side *other,
                                   struct folders *folders, const struct ts_names *names, const struct ts_table *kinds,
                                   bool *done, struct ts_error *error)
{
    const char letter = side == &pairer->b ? 'B' : 'A', against = side == &pairer->b ? 'A' : 'B';
    const struct one_folder *best = NULL, *next = NULL;
    size_t full = 0;
    char rename[192] = "";
    *done = false;
    for (size_t i = 0; i < side->count; i++) {
        const struct ts_tensor *tensor = side->bundle->tensors[i], *partner;
        struct one_folder *folder = &folders->list[folders->of[i]];
        const char *key = key_of(pairer, &names->list[i], 0);
        size_t at = key ? ts_table_get(kinds, key) : SIZE_MAX;
        if (!key)
            return ts_fail_memory(error);
        if (at == SIZE_MAX)
            continue;
        partner = other->bundle->tensors[at];
        folder->met += partner->count == tensor->count;
        folder->alike += partner->count == tensor->count && partner->type == tensor->type;
    }
    for (size_t i = 0; i < folders->count; i++) {
        const struct one_folder *one = &folders->list[i];
        full += one->met * 2 > other->count;
        if (!best || one->met > best->met || (one->met == best->met && one->alike > best->alike)) {
            next = best;
            best = one;
        } else if (!next || one->met > next->met || (one->met == next->met && one->alike > next->alike)) {
            next = one;
        }
    }
    if (full < 2)
        return TS_OK;
    if (side == &pairer->b && strlen(next->name) < 64)
        snprintf(rename, sizeof rename, "; choose another with --rename 's,^%s,,'", next->name);
    if (best->met == next->met && best->alike == next->alike)
        return ts_pairer_note(pairer, error,
                              "%zu folders of %c hold the tensors of %c, and their names do not tell which is meant: "
                              "give one of them, %.*s or %.*s, in place of %c",
                              full, letter, against, (int)strlen(best->name) - 1, best->name,
                              (int)strlen(next->name) - 1, next->name, letter);
    for (size_t i = 0; i < side->count; i++)
        if (&folders->list[folders->of[i]] == best)
            side->names[i] = folders->rests[i];
    *done = true;
    return ts_pairer_note(pairer, error,
                          "%.*s of the %zu folders of %c that hold the tensors of %c is compared with it%s",
                          (int)strlen(best->name) - 1, best->name, full, letter, against, rename);
}

/* Some name stands in several folders. */
static bool names_repeat(const struct ts_side *side, const struct folders *folders, bool *repeat)
{
    struct ts_table table;
    if (!ts_table_init(&table, side->count))
        return false;
    *repeat = false;
    for (size_t i = 0; i < side->count && !*repeat; i++)
        *repeat = !ts_table_put(&table, folders->rests[i], i, NULL);
    ts_table_release(&table);
    return true;
}

static enum ts_status match_side(struct ts_pairer *pairer, struct ts_side *side, const struct ts_side *other,
                                 bool copies, bool *changed, struct ts_error *error)
{
    struct folders folders, others;
    struct ts_names names, whole;
    struct ts_table kinds;
    enum ts_status status;
    bool repeat, done = false;
    TS_TRY(list_folders(pairer, side, &folders, error));
    if (folders.count < 2)
        return TS_OK;
    if (!names_repeat(side, &folders, &repeat))
        return ts_fail_memory(error);
    TS_TRY(list_folders(pairer, other, &others, error));
    if (!repeat || others.count > 1 ||
        (others.count && find(&folders, others.list[0].name, strlen(others.list[0].name)) < folders.count))
        return TS_OK;
    if (!ts_names_make_apart(folders.rests, side->count, 0, &pairer->scratch, &names) ||
        !ts_names_make_apart(others.count ? others.rests : other->names, other->count, 0, &pairer->scratch, &whole))
        return ts_fail_memory(error);
    TS_TRY(index_kinds(pairer, &whole, &kinds, error));
    status = copies ? match_copies(pairer, side, other, &folders, &names, &kinds, &done, error)
                    : match_stages(pairer, side, other, &folders, &names, &whole, &kinds, &done, error);
    ts_table_release(&kinds);
    *changed = *changed || done;
    return status;
}

enum ts_status ts_match_stages(struct ts_pairer *pairer, struct ts_error *error)
{
    bool changed = false;
    if (pairer->options->layer_offset_given)
        return TS_OK;
    TS_TRY(match_side(pairer, &pairer->b, &pairer->a, false, &changed, error));
    return changed ? TS_OK : match_side(pairer, &pairer->a, &pairer->b, false, &changed, error);
}

enum ts_status ts_match_copies(struct ts_pairer *pairer, struct ts_side *side, const struct ts_side *other,
                               struct ts_error *error)
{
    bool changed = false;
    for (size_t i = 0; i < side->count; i++)
        if (side->read.list[i].rank >= 0)
            return TS_OK;
    TS_TRY(match_side(pairer, side, other, true, &changed, error));
    if (!changed)
        return TS_OK;
    side->apart = true;
    return ts_names_make_apart(side->names, side->count, 0, &pairer->scratch, &side->read) ? TS_OK
                                                                                           : ts_fail_memory(error);
}
