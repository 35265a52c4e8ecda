/* Owns the pairing by names, from strict to loose: exact, cleaned, canonical with everything that is said, canonical
 * without the file, canonical without the part of the model. A key that two tensors of one side have is not used,
 * unless experts or ranks tell them apart: never are two different tensors paired. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "pair/pairing.h"

enum level {
    CLEANED,    /* group, scope, layer, words as they stand */
    WITH_GROUP, /* group, scope, layer, kind */
    WITH_LABEL, /* scope, layer, kind; groups only as far as they were found to belong together */
    WITHOUT_SCOPE,
    FIRST_OUTPUT, /* besides, of several outputs the first is called as the module is */
    LEVELS
};

/* The layer in B's numbers. */
static int64_t shifted(const struct ts_pairer *pairer, const struct ts_side *side, const struct ts_name *name)
{
    return side == &pairer->a && name->layer >= 0 ? name->layer - pairer->offset : name->layer;
}

/* Of a module that gives several tensors some captures call the first X.0, others X; and of what is given to one the
 * first X.input, or by its keyword. */
static const char *output_of(struct ts_pairer *pairer, const struct ts_name *name)
{
    const char *kind = name->kind, *end = kind + strlen(kind), *digits = end;
    static const char keyword[] = "_input_hidden_states";
    size_t length = strlen(kind);
    if (length >= sizeof keyword && strcmp(end - (sizeof keyword - 1), keyword) == 0)
        return ts_arena_printf(&pairer->scratch, "%.*s_input", (int)(length - (sizeof keyword - 1)), kind);
    while (digits > kind && ts_is_digit(digits[-1]))
        digits--;
    if (name->weight || digits == end || (digits > kind && digits[-1] != '_'))
        return kind;
    if (strcmp(digits, "0") != 0)
        return kind;
    if (digits == kind)
        return name->layer >= 0 ? "layer_out" : kind;
    length = (size_t)(digits - kind) - 1;
    return ts_arena_printf(&pairer->scratch, "%.*s", (int)length, kind);
}

static const char *key_of(struct ts_pairer *pairer, const struct ts_side *side, size_t index, enum level level)
{
    const struct ts_name *name = &side->read.list[index];
    const char *group = level <= WITH_GROUP ? name->group : pairer->unlabelled ? "" : side->labels[index];
    const char *scope = level < WITHOUT_SCOPE ? name->scope : "";
    const char *kind = level == CLEANED ? name->text : level == FIRST_OUTPUT ? output_of(pairer, name) : name->kind;
    char layer[24] = "";
    if (!kind)
        return NULL;
    if (name->stacked)
        snprintf(layer, sizeof layer, "*");
    else if (name->layer >= 0)
        snprintf(layer, sizeof layer, "%" PRId64, shifted(pairer, side, name));
    return ts_arena_printf(&pairer->scratch, "%s|%s|%s|%s", group, scope, layer, kind);
}

static enum ts_status make_slots(struct ts_pairer *pairer, const struct ts_side *side, enum level level,
                                 struct ts_slots *slots, struct ts_error *error)
{
    const char **keys = ts_arena_array(&pairer->scratch, side->count, sizeof *keys);
    if (!keys)
        return ts_fail_memory(error);
    for (size_t i = 0; i < side->count; i++)
        if (!side->taken[i] && !(side->counted && side->counted[i]) && !(keys[i] = key_of(pairer, side, i, level)))
            return ts_fail_memory(error);
    return ts_slots_make(side, keys, &pairer->scratch, slots, error);
}

static const char *how_of(const struct ts_pairer *pairer, size_t a)
{
    return pairer->offset_text && pairer->a.read.list[a].layer >= 0 ? pairer->offset_text : "canonical name";
}

/* Both names come from one convention: what stands behind the layer is the same. */
static bool same_words(const struct ts_pairer *pairer, size_t a, size_t b)
{
    return strcmp(pairer->a.read.list[a].text, pairer->b.read.list[b].text) == 0;
}

static enum ts_status pair_single(struct ts_pairer *pairer, size_t a, size_t b, struct ts_error *error)
{
    return ts_layout_single(pairer, a, b, how_of(pairer, a), same_words(pairer, a, b), error);
}

/* Experts (or ranks) with the same number on both sides. */
static enum ts_status pair_numbered(struct ts_pairer *pairer, const struct ts_slot *a, const struct ts_slot *b,
                                    bool experts, struct ts_error *error)
{
    for (size_t i = 0, j = 0; i < a->count && j < b->count;) {
        const struct ts_name *left = &pairer->a.read.list[a->indices[i]];
        const struct ts_name *right = &pairer->b.read.list[b->indices[j]];
        int64_t one = experts ? left->expert : left->rank, other = experts ? right->expert : right->rank;
        if (one == other)
            TS_TRY(pair_single(pairer, a->indices[i], b->indices[j], error));
        i += one <= other;
        j += other <= one;
    }
    return TS_OK;
}

/* Numbers 0 .. count - 1, so that a stack of them is complete. */
static bool complete(const struct ts_side *side, const struct ts_slot *slot)
{
    return side->read.list[slot->indices[0]].expert == 0 &&
           side->read.list[slot->indices[slot->count - 1]].expert == (int64_t)slot->count - 1;
}

static enum ts_status pair_slots(struct ts_pairer *pairer, const struct ts_slot *a, const struct ts_slot *b,
                                 struct ts_error *error)
{
    const char *how = how_of(pairer, a->indices[0]);
    bool done;
    if (a->kind == TS_SLOT_AMBIGUOUS || b->kind == TS_SLOT_AMBIGUOUS)
        return TS_OK;
    if (pairer->ranks_only)
        return a->kind == TS_SLOT_SHARDS && b->kind == TS_SLOT_SHARDS ? ts_ranks_pair(pairer, a, b, how, &done, error)
                                                                      : TS_OK;
    if (a->kind == TS_SLOT_GRID || b->kind == TS_SLOT_GRID ||
        (a->kind == TS_SLOT_SHARDS && b->kind == TS_SLOT_EXPERTS && complete(&pairer->b, b)) ||
        (b->kind == TS_SLOT_SHARDS && a->kind == TS_SLOT_EXPERTS && complete(&pairer->a, a)))
        return ts_ranks_experts(pairer, a, b, how, error);
    if (a->kind == TS_SLOT_SINGLE && b->kind == TS_SLOT_SINGLE)
        return pair_single(pairer, a->indices[0], b->indices[0], error);
    if (a->kind == b->kind)
        return pair_numbered(pairer, a, b, a->kind == TS_SLOT_EXPERTS, error);
    if (a->kind == TS_SLOT_SINGLE && b->kind == TS_SLOT_EXPERTS)
        return ts_layout_stack(pairer, a->indices[0], b->indices, b->count, true, how, &done, error);
    if (b->kind == TS_SLOT_SINGLE && a->kind == TS_SLOT_EXPERTS)
        return ts_layout_stack(pairer, b->indices[0], a->indices, a->count, false, how, &done, error);
    if (a->kind == TS_SLOT_SINGLE && b->kind == TS_SLOT_SHARDS)
        return ts_layout_shards(pairer, a->indices[0], b->indices, b->count, true, how, error);
    if (b->kind == TS_SLOT_SINGLE && a->kind == TS_SLOT_SHARDS)
        return ts_layout_shards(pairer, b->indices[0], a->indices, a->count, false, how, error);
    return TS_OK;
}

static enum ts_status match_level(struct ts_pairer *pairer, enum level level, struct ts_error *error)
{
    const struct ts_arena_mark mark = ts_arena_mark(&pairer->scratch);
    struct ts_slots a = {0}, b = {0};
    enum ts_status status = make_slots(pairer, &pairer->a, level, &a, error);
    if (status == TS_OK)
        status = make_slots(pairer, &pairer->b, level, &b, error);
    for (size_t i = 0; i < a.count && status == TS_OK && pairer->ranks_only && !pairer->resharded; i++) {
        const struct ts_slot *other = ts_slots_get(&b, a.list[i].key);
        pairer->resharded = other && ts_ranks_differ(pairer, &a.list[i], other);
    }
    for (size_t i = 0; i < a.count && status == TS_OK; i++) {
        const struct ts_slot *other = ts_slots_get(&b, a.list[i].key);
        if (atomic_load(&ts_cancelled))
            status = ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
        else if (other)
            status = pair_slots(pairer, &a.list[i], other, error);
    }
    ts_table_release(&a.table);
    ts_table_release(&b.table);
    ts_arena_rewind(&pairer->scratch, mark);
    return status;
}

/* Exact names: with a layer offset only for tensors outside of layers. */
static enum ts_status match_exact(struct ts_pairer *pairer, struct ts_error *error)
{
    const struct ts_side *a = &pairer->a, *b = &pairer->b;
    struct ts_table table;
    enum ts_status status = TS_OK;
    if (!ts_table_init(&table, b->count))
        return ts_fail_memory(error);
    for (size_t i = 0; i < b->count; i++)
        if (!b->taken[i])
            ts_table_put(&table, b->names[i], i, NULL);
    for (size_t i = 0; i < a->count && status == TS_OK; i++) {
        size_t other = a->taken[i] ? SIZE_MAX : ts_table_get(&table, a->names[i]);
        if (other == SIZE_MAX || b->taken[other] || (a->counted && a->counted[i]) ||
            (pairer->offset != 0 && a->read.list[i].layer >= 0))
            continue;
        if ((i & 255) == 0 && atomic_load(&ts_cancelled))
            status = ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
        else
            status = ts_layout_single(pairer, i, other, "name", true, error);
    }
    ts_table_release(&table);
    return status;
}

#define MAX_GROUPS 64

/* The different groups of what is left; false when there are too many to bring together. */
static bool list_groups(const struct ts_side *side, const char *groups[MAX_GROUPS], size_t *count, size_t *group_of)
{
    *count = 0;
    for (size_t i = 0; i < side->count; i++) {
        size_t at = 0;
        if (side->taken[i])
            continue;
        while (at < *count && strcmp(groups[at], side->read.list[i].group) != 0)
            at++;
        if (at == *count && *count == MAX_GROUPS)
            return false;
        if (at == *count)
            groups[(*count)++] = side->read.list[i].group;
        group_of[i] = at;
    }
    return true;
}

/* How much two groups have in common: names count, equal shapes count more. */
static enum ts_status count_common(struct ts_pairer *pairer, const size_t *group_a, const size_t *group_b,
                                   unsigned (*common)[MAX_GROUPS], struct ts_error *error)
{
    const struct ts_arena_mark mark = ts_arena_mark(&pairer->scratch);
    struct ts_slots a = {0}, b = {0};
    enum ts_status status = make_slots(pairer, &pairer->a, WITH_LABEL, &a, error);
    if (status == TS_OK)
        status = make_slots(pairer, &pairer->b, WITH_LABEL, &b, error);
    for (size_t i = 0; i < a.count && status == TS_OK; i++) {
        const struct ts_slot *other = ts_slots_get(&b, a.list[i].key);
        for (size_t j = 0; other && j < a.list[i].count && j < MAX_GROUPS; j++)
            for (size_t k = 0; k < other->count && k < MAX_GROUPS; k++) {
                size_t left = a.list[i].indices[j], right = other->indices[k];
                common[group_a[left]][group_b[right]] +=
                    ts_tensor_same_shape(pairer->a.bundle->tensors[left], pairer->b.bundle->tensors[right]) ? 3 : 1;
            }
    }
    ts_table_release(&a.table);
    ts_table_release(&b.table);
    ts_arena_rewind(&pairer->scratch, mark);
    return status;
}

/* Tensors whose names stand in several files of a side. Where there are none its files are pieces of one whole, and do
 * not have to be told apart; a few may be left over from something else. */
static enum ts_status count_again(struct ts_pairer *pairer, const struct ts_side *side, const size_t *group_of,
                                  bool *none, bool *few, struct ts_error *error)
{
    const struct ts_arena_mark mark = ts_arena_mark(&pairer->scratch);
    struct ts_slots slots = {0};
    enum ts_status status = make_slots(pairer, side, WITH_LABEL, &slots, error);
    size_t all = 0, again = 0;
    for (size_t i = 0; i < slots.count && status == TS_OK; i++) {
        const struct ts_slot *slot = &slots.list[i];
        bool several = false;
        for (size_t k = 1; k < slot->count && !several; k++)
            several = group_of[slot->indices[k]] != group_of[slot->indices[0]];
        all += slot->count;
        again += several ? slot->count : 0;
    }
    *none = *none && !again;
    *few = *few && again * 10 <= all;
    ts_table_release(&slots.table);
    ts_arena_rewind(&pairer->scratch, mark);
    return status;
}

/* Files of one side that stand for files of the other: the pair of groups with most in common first. Where two are
 * equally likely, none is chosen. What belongs to no such pair keeps the label "". */
static enum ts_status label_groups(struct ts_pairer *pairer, struct ts_error *error)
{
    const char *names_a[MAX_GROUPS], *names_b[MAX_GROUPS];
    size_t count_a, count_b, locked = 0;
    size_t *of_a = ts_arena_array(&pairer->scratch, pairer->a.count, sizeof *of_a);
    size_t *of_b = ts_arena_array(&pairer->scratch, pairer->b.count, sizeof *of_b);
    unsigned(*common)[MAX_GROUPS] = ts_arena_array(&pairer->scratch, MAX_GROUPS, sizeof *common);
    const char *label_a[MAX_GROUPS] = {NULL}, *label_b[MAX_GROUPS] = {NULL};
    bool none = true, few = true;
    if (!of_a || !of_b || !common)
        return ts_fail_memory(error);
    if (!list_groups(&pairer->a, names_a, &count_a, of_a) || !list_groups(&pairer->b, names_b, &count_b, of_b) ||
        (count_a <= 1 && count_b <= 1))
        return TS_OK;
    TS_TRY(count_again(pairer, &pairer->a, of_a, &none, &few, error));
    TS_TRY(count_again(pairer, &pairer->b, of_b, &none, &few, error));
    if (none)
        return TS_OK;
    pairer->pieces = few;
    TS_TRY(count_common(pairer, of_a, of_b, common, error));
    for (;;) {
        unsigned best = 0;
        size_t best_a = 0, best_b = 0;
        bool tied = false;
        for (size_t i = 0; i < count_a; i++)
            for (size_t j = 0; j < count_b; j++)
                if (!label_a[i] && !label_b[j] && common[i][j] && common[i][j] >= best) {
                    tied = common[i][j] == best && (i == best_a || j == best_b);
                    if (common[i][j] > best) {
                        best = common[i][j];
                        best_a = i;
                        best_b = j;
                    }
                }
        if (!best)
            break;
        if (tied) { /* this group cannot be told from another: it stays without partner */
            label_a[best_a] = ts_arena_printf(&pairer->out->arena, "a%zu", best_a);
            if (!label_a[best_a])
                return ts_fail_memory(error);
            continue;
        }
        label_a[best_a] = label_b[best_b] = ts_arena_printf(&pairer->out->arena, "%zu", ++locked);
        if (!label_a[best_a])
            return ts_fail_memory(error);
    }
    for (size_t i = 0; i < pairer->a.count; i++)
        if (!pairer->a.taken[i])
            pairer->a.labels[i] = label_a[of_a[i]] ? label_a[of_a[i]] : "";
    for (size_t i = 0; i < pairer->b.count; i++)
        if (!pairer->b.taken[i])
            pairer->b.labels[i] = label_b[of_b[i]] ? label_b[of_b[i]] : "";
    return TS_OK;
}

static bool any_left(const struct ts_side *side)
{
    for (size_t i = 0; i < side->count; i++)
        if (!side->taken[i])
            return true;
    return false;
}

/* Every name of one side is a name of the other with the same shape, and the other way round: neither layers nor ranks
 * have to be compared. */
static enum ts_status all_exact(const struct ts_pairer *pairer, bool *all, struct ts_error *error)
{
    struct ts_table table;
    *all = pairer->a.count == pairer->b.count;
    if (!*all)
        return TS_OK;
    if (!ts_table_init(&table, pairer->b.count))
        return ts_fail_memory(error);
    for (size_t i = 0; i < pairer->b.count; i++)
        ts_table_put(&table, pairer->b.names[i], i, NULL);
    for (size_t i = 0; i < pairer->a.count && *all; i++) {
        size_t other = ts_table_get(&table, pairer->a.names[i]);
        *all =
            other != SIZE_MAX && ts_tensor_same_shape(pairer->a.bundle->tensors[i], pairer->b.bundle->tensors[other]);
    }
    ts_table_release(&table);
    return TS_OK;
}

static enum ts_status match_levels(struct ts_pairer *pairer, struct ts_error *error)
{
    for (enum level level = CLEANED; level < LEVELS; level++) {
        if (!any_left(&pairer->a) || !any_left(&pairer->b))
            return TS_OK;
        if (level == WITH_LABEL) {
            pairer->pieces = false;
            TS_TRY(label_groups(pairer, error));
        }
        /* what only one file of a side has needs no label */
        pairer->unlabelled = level >= WITH_LABEL && pairer->pieces;
        if (pairer->unlabelled)
            TS_TRY(match_level(pairer, level, error));
        pairer->unlabelled = false;
        TS_TRY(match_level(pairer, level, error));
    }
    return TS_OK;
}

/* Names without the words that all of a side begin with: a folder, a prefix that no table knows. */
static enum ts_status match_stripped(struct ts_pairer *pairer, struct ts_error *error)
{
    struct ts_side *sides[2] = {&pairer->a, &pairer->b};
    struct ts_names before[2] = {pairer->a.read, pairer->b.read};
    enum ts_status status;
    if (!before[0].common && !before[1].common)
        return TS_OK;
    for (int i = 0; i < 2; i++)
        if (before[i].common &&
            !(sides[i]->apart ? ts_names_make_apart : ts_names_make)(sides[i]->names, sides[i]->count, before[i].common,
                                                                     &pairer->scratch, &sides[i]->read))
            return ts_fail_memory(error);
    status = match_levels(pairer, error);
    if (status == TS_OK && any_left(&pairer->a) && any_left(&pairer->b))
        status = ts_match_fused(pairer, false, error);
    pairer->a.read = before[0];
    pairer->b.read = before[1];
    return status;
}

/* What both sides have in shards, but not in the same ones: equal names do not say then what belongs together. */
static enum ts_status match_ranks(struct ts_pairer *pairer, struct ts_error *error)
{
    TS_TRY(ts_ranks_read(pairer, &pairer->a, error));
    TS_TRY(ts_ranks_read(pairer, &pairer->b, error));
    if (pairer->a.rank_count < 2 || pairer->b.rank_count < 2)
        return TS_OK;
    pairer->ranks_only = true;
    TS_TRY(match_levels(pairer, error));
    pairer->ranks_only = false;
    return TS_OK;
}

enum ts_status ts_match_names(struct ts_pairer *pairer, struct ts_error *error)
{
    bool exact;
    if (pairer->options->by_content)
        TS_TRY(ts_match_counted(pairer, error));
    TS_TRY(all_exact(pairer, &exact, error));
    if (!exact || pairer->a.counted || pairer->options->layer_offset_given) {
        TS_TRY(ts_pairer_read_names(pairer, error));
        TS_TRY(ts_pairer_step(pairer, ts_find_offset, error));
        TS_TRY(match_ranks(pairer, error));
    }
    TS_TRY(match_exact(pairer, error));
    if (!any_left(&pairer->a) || !any_left(&pairer->b))
        return TS_OK;
    TS_TRY(ts_pairer_read_names(pairer, error));
    TS_TRY(match_levels(pairer, error));
    if (any_left(&pairer->a) && any_left(&pairer->b))
        TS_TRY(ts_pairer_step(pairer, ts_match_stacks, error));
    if (any_left(&pairer->a) && any_left(&pairer->b))
        TS_TRY(ts_pairer_step(pairer, ts_match_stack_parts, error));
    if (any_left(&pairer->a) && any_left(&pairer->b))
        TS_TRY(ts_match_fused(pairer, false, error));
    if (any_left(&pairer->a) && any_left(&pairer->b))
        TS_TRY(ts_pairer_step(pairer, match_stripped, error));
    if (any_left(&pairer->a) && any_left(&pairer->b))
        TS_TRY(ts_match_fused(pairer, true, error));
    return TS_OK;
}
