/* Owns the run: the user's map, names, fused tensors, content, then order and what is left over. */
#include "pair/pair.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/system.h"
#include "base/text.h"
#include "pair/pairing.h"

/* Views and names of a million pairs take a few hundred megabytes; nobody compares more. */
#define ARENA_LIMIT ((size_t)8 << 30)

enum ts_status ts_pairer_note(struct ts_pairer *pairer, struct ts_error *error, const char *format, ...)
{
    struct ts_pairing *out = pairer->out;
    const char *note;
    va_list args;
    if (out->note_count == sizeof out->notes / sizeof *out->notes)
        return TS_OK;
    va_start(args, format);
    note = ts_arena_vprintf(&out->arena, format, args);
    va_end(args);
    if (!note)
        return ts_fail_memory(error);
    out->notes[out->note_count++] = note;
    return TS_OK;
}

enum ts_status ts_pairer_read_side(struct ts_pairer *pairer, struct ts_side *side, struct ts_error *error)
{
    if (!side->read.list && !ts_names_make(side->names, side->count, 0, &pairer->scratch, &side->read))
        return ts_fail_memory(error);
    /* a GGUF file holds nothing but parameters: "blk.0.ssm_dt_norm" is a weight */
    for (size_t i = 0; i < side->count && side->facts.gguf; i++) {
        struct ts_name *name = &side->read.list[i];
        if (!name->weight && !(name->kind = ts_arena_printf(&pairer->scratch, "%s.weight", name->kind)))
            return ts_fail_memory(error);
        name->weight = true;
    }
    return TS_OK;
}

enum ts_status ts_pairer_read_names(struct ts_pairer *pairer, struct ts_error *error)
{
    const bool read = pairer->a.read.list && pairer->b.read.list;
    if (!pairer->a.read.list && !pairer->b.read.list) {
        TS_TRY(ts_match_stages(pairer, error));
        TS_TRY(ts_match_hidden(pairer, error));
    }
    TS_TRY(ts_pairer_read_side(pairer, &pairer->a, error));
    TS_TRY(ts_pairer_read_side(pairer, &pairer->b, error));
    if (read)
        return TS_OK;
    TS_TRY(ts_name_fused(pairer, error));
    TS_TRY(ts_ranks_of_folders(pairer, &pairer->a, &pairer->b, error));
    TS_TRY(ts_ranks_of_folders(pairer, &pairer->b, &pairer->a, error));
    TS_TRY(ts_match_copies(pairer, &pairer->a, &pairer->b, error));
    return ts_match_copies(pairer, &pairer->b, &pairer->a, error);
}

enum ts_status ts_pairer_step(struct ts_pairer *pairer, enum ts_status (*step)(struct ts_pairer *, struct ts_error *),
                              struct ts_error *error)
{
    const struct ts_arena_mark mark = ts_arena_mark(&pairer->scratch);
    const enum ts_status status = step(pairer, error);
    ts_arena_rewind(&pairer->scratch, mark);
    return status;
}

enum ts_status ts_pairer_add(struct ts_pairer *pairer, size_t a, size_t b, const struct ts_pair *pair,
                             struct ts_error *error)
{
    if (pairer->count == pairer->room) {
        size_t more = pairer->room ? pairer->room * 2 : 256;
        struct ts_found *moved = ts_reallocarray(pairer->found, more, sizeof *moved);
        if (!moved)
            return ts_fail_memory(error);
        pairer->found = moved;
        pairer->room = more;
    }
    pairer->found[pairer->count++] = (struct ts_found){*pair, a, b};
    pairer->a.taken[a] = true;
    pairer->b.taken[b] = true;
    ts_progress_add(pairer->progress, pairer->a.bundle->tensors[a]->bytes + pairer->b.bundle->tensors[b]->bytes);
    return TS_OK;
}

static enum ts_status open_side(struct ts_pairer *pairer, struct ts_side *side, const struct ts_bundle *bundle,
                                struct ts_error *error)
{
    side->bundle = bundle;
    side->count = bundle->count;
    side->names = ts_arena_array(&pairer->scratch, side->count, sizeof *side->names);
    side->taken = ts_arena_array(&pairer->scratch, side->count, sizeof *side->taken);
    side->labels = ts_arena_array(&pairer->scratch, side->count, sizeof *side->labels);
    side->copied = ts_arena_array(&pairer->scratch, side->count, sizeof *side->copied);
    if (!side->names || !side->taken || !side->labels || !side->copied)
        return ts_fail_memory(error);
    for (size_t i = 0; i < side->count; i++) {
        side->names[i] = bundle->tensors[i]->name;
        side->labels[i] = "";
    }
    ts_facts_read(bundle, &side->facts);
    return TS_OK;
}

/* Where the names of one side of a map line are; *missing: the first that is nowhere, or NULL. */
static bool find_all(const struct ts_side *side, const struct ts_table *tables, const char *const *names, size_t count,
                     size_t *indices, const char **missing)
{
    *missing = NULL;
    for (size_t i = 0; i < count; i++) {
        indices[i] = ts_table_get(&tables[0], names[i]);
        if (indices[i] == SIZE_MAX)
            indices[i] = ts_table_get(&tables[1], names[i]);
        if (indices[i] == SIZE_MAX) {
            *missing = names[i];
            return false;
        }
        if (side->taken[indices[i]])
            return false;
    }
    return true;
}

/* A line that says how B's tensor is to be taken: nobody looks for a layout. */
static enum ts_status map_by_hand(struct ts_pairer *pairer, const struct ts_map_line *line, size_t a, size_t b,
                                  struct ts_error *error)
{
    struct ts_arena *arena = &pairer->out->arena;
    const struct ts_tensor *left = pairer->a.bundle->tensors[a], *right = pairer->b.bundle->tensors[b];
    struct ts_pair pair = {.name = left->name, .name_b = right->name, .how = "map"};
    struct ts_buffer words;
    struct ts_error why;
    enum ts_status status;
    if (!ts_view_of(left, arena, &pair.a) || !ts_view_of(right, arena, &pair.b))
        return ts_fail_memory(error);
    status = ts_mapping_apply(line->mapping, &pair.a, &pair.b, arena, &why);
    if (status == TS_ERR_USAGE)
        return ts_fail(error, status, TS_NO_OFFSET, "%s, line %zu: %s", pairer->options->map_file, line->number,
                       why.message);
    if (status != TS_OK) {
        *error = why;
        return status;
    }
    ts_buffer_init(&words, 65536);
    ts_mapping_put(&words, line->mapping, " | ");
    pair.by_hand = words.data ? ts_arena_string(arena, words.data) : NULL;
    ts_buffer_clear(&words);
    ts_buffer_string(&words, "B: ");
    ts_mapping_put(&words, line->mapping, ", ");
    pair.recipe = words.data ? ts_arena_string(arena, words.data) : NULL;
    ts_buffer_release(&words);
    if (!pair.by_hand || !pair.recipe)
        return ts_fail_memory(error);
    return ts_pairer_add(pairer, a, b, &pair, error);
}

/* One line of the map. Several names on a side are shards; a side without names says "stays alone". */
static enum ts_status map_line(struct ts_pairer *pairer, const struct ts_map_line *line, size_t *a, size_t *b,
                               bool *alone, struct ts_error *error)
{
    *alone = line->a_count == 0 || line->b_count == 0;
    if (*alone) {
        for (size_t i = 0; i < line->a_count; i++)
            pairer->a.taken[a[i]] = true;
        for (size_t i = 0; i < line->b_count; i++)
            pairer->b.taken[b[i]] = true;
        return TS_OK;
    }
    if (line->mapping)
        return map_by_hand(pairer, line, a[0], b[0], error);
    if (line->a_count == 1 && line->b_count == 1) {
        bool same = strcmp(pairer->a.names[a[0]], pairer->b.names[b[0]]) == 0;
        return ts_layout_single(pairer, a[0], b[0], "map", same, error);
    }
    if (line->a_count == 1)
        return ts_layout_shards(pairer, a[0], b, line->b_count, true, "map", error);
    if (line->b_count == 1)
        return ts_layout_shards(pairer, b[0], a, line->a_count, false, "map", error);
    return ts_ranks_whole(pairer, &(struct ts_slot){.indices = a, .count = line->a_count, .kind = TS_SLOT_SHARDS},
                          &(struct ts_slot){.indices = b, .count = line->b_count, .kind = TS_SLOT_SHARDS}, "map",
                          error);
}

/* tables[0]: names as matched, tables[1]: names as they stand in the file. */
static bool index_names(const struct ts_side *side, struct ts_table tables[2])
{
    if (!ts_table_init(&tables[0], side->count) || !ts_table_init(&tables[1], side->count))
        return false;
    for (size_t i = 0; i < side->count; i++) {
        ts_table_put(&tables[0], side->names[i], i, NULL);
        ts_table_put(&tables[1], side->bundle->tensors[i]->name, i, NULL);
    }
    return true;
}

/* What the map leaves alone is hidden from the rest of the run and shows up again among what has no partner. */
static enum ts_status apply_map(struct ts_pairer *pairer, bool *alone_a, bool *alone_b, struct ts_error *error)
{
    struct ts_map map;
    struct ts_table a[2] = {{0}}, b[2] = {{0}};
    enum ts_status status = ts_map_load(pairer->options->map_file, &pairer->scratch, &map, error);
    const char *first_missing = NULL;
    size_t missing = 0, missing_line = 0, again = 0;
    bool missing_in_b = false;
    if (status == TS_OK && (!index_names(&pairer->a, a) || !index_names(&pairer->b, b)))
        status = ts_fail_memory(error);
    for (size_t i = 0; status == TS_OK && i < map.count; i++) {
        const struct ts_map_line *line = &map.lines[i];
        size_t *in_a = ts_arena_array(&pairer->scratch, line->a_count, sizeof *in_a);
        size_t *in_b = ts_arena_array(&pairer->scratch, line->b_count, sizeof *in_b);
        const char *lost, *lost_b;
        bool there, alone;
        if (!in_a || !in_b) {
            status = ts_fail_memory(error);
            break;
        }
        there = find_all(&pairer->a, a, line->a, line->a_count, in_a, &lost);
        there = find_all(&pairer->b, b, line->b, line->b_count, in_b, &lost_b) && there;
        if (lost || lost_b) {
            if (!missing++) {
                first_missing = lost ? lost : lost_b;
                missing_line = line->number;
                missing_in_b = !lost;
            }
            continue;
        }
        if (!there) {
            again = again ? again : line->number;
            continue;
        }
        status = map_line(pairer, line, in_a, in_b, &alone, error);
        for (size_t k = 0; alone && k < line->a_count; k++)
            alone_a[in_a[k]] = true;
        for (size_t k = 0; alone && k < line->b_count; k++)
            alone_b[in_b[k]] = true;
    }
    for (int i = 0; i < 2; i++) {
        ts_table_release(&a[i]);
        ts_table_release(&b[i]);
    }
    if (status == TS_OK && again)
        status = ts_pairer_note(pairer, error, "line %zu of %s names a tensor that an earlier line has paired", again,
                                pairer->options->map_file);
    if (status == TS_OK && missing)
        status =
            ts_pairer_note(pairer, error, "%zu line%s of %s name%s tensors that do not exist, the first \"%s\" of %c%s",
                           missing, missing == 1 ? "" : "s", pairer->options->map_file, missing == 1 ? "s" : "",
                           first_missing, missing_in_b ? 'B' : 'A', missing_line ? "" : " (JSON)");
    return status;
}

/* idle: those of experts that got no token of the other side, which are not looked for there. */
static enum ts_status list_left(struct ts_pairer *pairer, const struct ts_side *side, const bool *alone, bool idle,
                                const struct ts_tensor ***list, size_t *count, struct ts_error *error)
{
    *list = ts_arena_array(&pairer->out->arena, side->count, sizeof **list);
    *count = 0;
    if (!*list)
        return ts_fail_memory(error);
    for (size_t i = 0; i < side->count; i++)
        if (side->idle && side->idle[i] ? idle : !idle && (!side->taken[i] || alone[i]))
            (*list)[(*count)++] = side->bundle->tensors[i];
    return TS_OK;
}

/* Masks, frequencies and positions that old checkpoints hold although code makes them: a mask called attn.bias has more
 * than one axis, as a bias has not. */
static bool is_made_by_code(const struct ts_tensor *tensor)
{
    return (tensor->rank >= 2 && ts_ends_with(tensor->name, "attn.bias")) ||
           ts_ends_with(tensor->name, "masked_bias") || ts_ends_with(tensor->name, "rotary_emb.inv_freq") ||
           ts_ends_with(tensor->name, "embeddings.position_ids");
}

/* Sentences about tensors that have no partner for a known reason. */
static enum ts_status explain_left(struct ts_pairer *pairer, struct ts_error *error)
{
    const struct ts_side *sides[2] = {&pairer->a, &pairer->b};
    for (int s = 0; s < 2; s++) {
        const char *first = NULL;
        size_t made = 0;
        for (size_t i = 0; i < sides[s]->count; i++)
            if (!sides[s]->taken[i] && is_made_by_code(sides[s]->bundle->tensors[i]) && !made++)
                first = sides[s]->bundle->tensors[i]->name;
        if (made > 1)
            TS_TRY(ts_pairer_note(
                pairer, error,
                "%s and %zu more of %c are not weights: programs compute such masks and tables themselves, and "
                "converters leave them out",
                first, made - 1, s ? 'B' : 'A'));
        else if (made)
            TS_TRY(ts_pairer_note(
                pairer, error,
                "%s of %c is not a weight: programs compute such masks and tables themselves, and converters leave "
                "them out",
                first, s ? 'B' : 'A'));
        for (size_t i = 0; i < sides[s]->count; i++) {
            const char *name = sides[s]->names[i];
            if (!sides[s]->taken[i] && sides[s]->facts.gguf && strncmp(name, "rope_f", 6) == 0)
                TS_TRY(ts_pairer_note(
                    pairer, error, "%s of %c was made by the converter from the model's config: no other file has it",
                    name, s ? 'B' : 'A'));
        }
    }
    return TS_OK;
}

/* Whether a view has all numbers of its tensor in their order: at most its axes are cut or joined otherwise. */
static bool in_order(const struct ts_view *view)
{
    int64_t stride = 1;
    if (view->join != TS_JOIN_NONE || ts_view_is_computed(view) || view->count != view->tensor->count)
        return false;
    for (unsigned i = view->rank; i-- > 0; stride *= (int64_t)view->shape[i])
        if (view->shape[i] != 1 && view->strides[i] != stride)
            return false;
    return true;
}

/* Sequences that one side lists one behind the other, and the other has an axis for: which axes there are, the last one
 * left as it is. NULL: something else is done to it; "": without memory. */
static const char *joined_key(struct ts_pairer *pairer, const struct ts_found *found)
{
    const struct ts_tensor *sides[2] = {pairer->a.bundle->tensors[found->a], pairer->b.bundle->tensors[found->b]};
    const struct ts_view *views[2] = {&found->pair.a, &found->pair.b};
    const char *key = found->pair.recipe;
    if (!in_order(views[0]) || !in_order(views[1]) || found->pair.members[0] || found->pair.members[1])
        return NULL;
    for (int s = 0; s < 2; s++) {
        if (sides[s]->rank < 2 || views[s]->rank < 2 ||
            views[s]->shape[views[s]->rank - 1] != sides[s]->shape[sides[s]->rank - 1])
            return NULL;
        for (unsigned i = 0; i + 1 < sides[s]->rank && key; i++)
            key = ts_arena_printf(&pairer->scratch, "%s%s%" PRIu64, key, i ? "," : "|", sides[s]->shape[i]);
    }
    return key ? key : "";
}

/* A layout that no values prove here may be proved in other layers: the same kind of tensor, the same recipe. That the
 * same axes in front are joined is proved by any tensor that has them. */
static enum ts_status prove_by_others(struct ts_pairer *pairer, struct ts_error *error)
{
    /* what values prove, what sizes tell, and then what neither does */
    static const struct {
        bool guess, by_size, proves;
    } passes[] = {{false, false, true}, {false, true, false}, {false, true, true}, {true, false, false}};
    struct ts_table proved;
    enum ts_status status = TS_OK;
    bool any = false;
    for (size_t i = 0; i < pairer->count && !any; i++)
        any = pairer->found[i].pair.guess || pairer->found[i].pair.by_size;
    if (!any || !pairer->a.read.list)
        return TS_OK;
    if (!ts_table_init(&proved, 2 * pairer->count))
        return ts_fail_memory(error);
    for (size_t pass = 0; pass < sizeof passes / sizeof *passes; pass++)
        for (size_t i = 0; i < pairer->count && status == TS_OK; i++) {
            struct ts_pair *pair = &pairer->found[i].pair;
            const struct ts_name *name = &pairer->a.read.list[pairer->found[i].a];
            const char *keys[2] = {NULL, NULL};
            if (pair->guess != passes[pass].guess || pair->by_size != passes[pass].by_size || pair->problem ||
                pair->ambiguous || !*pair->recipe)
                continue;
            if (name->layer >= 0) {
                keys[0] = ts_arena_printf(&pairer->scratch, "%s|%s|%s", name->scope, name->kind, pair->recipe);
                keys[0] = keys[0] ? keys[0] : "";
            }
            keys[1] = joined_key(pairer, &pairer->found[i]);
            for (int k = 0; k < 2 && status == TS_OK; k++) {
                if (keys[k] && !*keys[k])
                    status = ts_fail_memory(error);
                else if (keys[k] && passes[pass].proves)
                    ts_table_put(&proved, keys[k], i, NULL);
                else if (keys[k] && ts_table_get(&proved, keys[k]) != SIZE_MAX)
                    pair->guess = pair->by_size = false;
            }
        }
    ts_table_release(&proved);
    return status;
}

static size_t count_words(const char *text)
{
    size_t count = 0;
    while (*(text += strspn(text, " \t"))) {
        text += strcspn(text, " \t");
        count++;
    }
    return count;
}

/* Declared axes that no tensor has, or that are too few or too many for the first that has the name, are told. */
static enum ts_status check_dims(struct ts_pairer *pairer, struct ts_error *error)
{
    const struct ts_side *sides[2] = {&pairer->a, &pairer->b};
    for (size_t k = 0; k < pairer->dims.count; k++) {
        const size_t named = count_words(pairer->dims.axes[k]);
        const struct ts_tensor *other = NULL;
        bool any = false;
        for (int s = 0; s < 2; s++)
            for (size_t i = 0; i < sides[s]->count && !any; i++) {
                const struct ts_tensor *tensor = sides[s]->bundle->tensors[i];
                if ((pairer->dims.sides[k] && pairer->dims.sides[k] != "AB"[s]) ||
                    regexec(&pairer->dims.patterns[k], tensor->name, 0, NULL, 0) != 0)
                    continue;
                any = tensor->rank == named;
                other = other ? other : tensor;
            }
        if (!any && other)
            TS_TRY(ts_pairer_note(pairer, error, "--dims names %zu axes for \"%s\", but %s has %u: ignored", named,
                                  pairer->dims.texts[k], other->name, other->rank));
        else if (!any)
            TS_TRY(ts_pairer_note(pairer, error, "--dims \"%s\" matches no name", pairer->dims.texts[k]));
    }
    return TS_OK;
}

static enum ts_status rename_all(struct ts_pairer *pairer, const char *rename, struct ts_error *error)
{
    struct ts_side *side = &pairer->b;
    const char **before = ts_arena_array(&pairer->scratch, side->count, sizeof *before);
    if (!before)
        return ts_fail_memory(error);
    if (side->count)
        memcpy(before, side->names, side->count * sizeof *before);
    TS_TRY(ts_rename(rename, side->names, side->count, &pairer->scratch, error));
    for (size_t i = 0; i < side->count; i++)
        if (side->names[i] != before[i])
            return TS_OK;
    return ts_pairer_note(pairer, error, "--rename \"%s\" changes no name of B", rename);
}

/* The pairs without what they were found by, in the same room: of very many nobody needs two lists. */
static enum ts_status hand_over(struct ts_pairer *pairer, struct ts_error *error)
{
    struct ts_pairing *out = pairer->out;
    void *pairs = pairer->found;
    for (size_t i = 0; i < pairer->count; i++) {
        const struct ts_pair pair = pairer->found[i].pair;
        memcpy((char *)pairs + i * sizeof pair, &pair, sizeof pair);
    }
    pairer->found = NULL;
    out->pairs = pairs;
    out->count = pairer->count;
    pairs = ts_reallocarray(out->pairs, out->count + 1, sizeof *out->pairs);
    if (!pairs)
        return ts_fail_memory(error);
    out->pairs = pairs;
    return TS_OK;
}

static enum ts_status run(struct ts_pairer *pairer, struct ts_error *error)
{
    const struct ts_pair_options *options = pairer->options;
    struct ts_pairing *out = pairer->out;
    bool *alone_a = ts_arena_array(&pairer->scratch, pairer->a.count, sizeof *alone_a);
    bool *alone_b = ts_arena_array(&pairer->scratch, pairer->b.count, sizeof *alone_b);
    if (!alone_a || !alone_b)
        return ts_fail_memory(error);
    for (const char *const *rename = options->renames; rename && *rename; rename++)
        TS_TRY(rename_all(pairer, *rename, error));
    TS_TRY(ts_match_steps(pairer, error));
    if (options->dims)
        TS_TRY(ts_dims_parse(options->dims, &pairer->scratch, &pairer->dims, error));
    TS_TRY(check_dims(pairer, error));
    if (options->map_file) {
        TS_TRY(ts_pairer_read_names(pairer, error)); /* the recipes want to know what is being paired */
        TS_TRY(ts_ranks_read(pairer, &pairer->a, error));
        TS_TRY(ts_ranks_read(pairer, &pairer->b, error));
        TS_TRY(apply_map(pairer, alone_a, alone_b, error));
    }
    TS_TRY(ts_match_names(pairer, error));
    TS_TRY(ts_pairer_step(pairer, ts_match_tied, error));
    if (options->by_content) {
        TS_TRY(ts_pairer_step(pairer, ts_match_only, error));
        TS_TRY(ts_pairer_step(pairer, ts_match_content, error));
        TS_TRY(ts_pairer_step(pairer, ts_match_stack_values, error));
        TS_TRY(ts_pairer_step(pairer, ts_match_carried, error));
    }
    TS_TRY(ts_pairer_step(pairer, ts_match_sums, error));
    TS_TRY(ts_pairer_step(pairer, prove_by_others, error));
    TS_TRY(ts_order_found(pairer, error));
    TS_TRY(ts_leave_padding(pairer, error));
    TS_TRY(ts_pairer_step(pairer, ts_align_expert_rows, error));
    TS_TRY(explain_left(pairer, error));
    TS_TRY(ts_ranks_explain(pairer, error));
    TS_TRY(ts_experts_explain(pairer, error));
    TS_TRY(hand_over(pairer, error));
    TS_TRY(list_left(pairer, &pairer->a, alone_a, false, &out->only_a, &out->only_a_count, error));
    TS_TRY(list_left(pairer, &pairer->b, alone_b, false, &out->only_b, &out->only_b_count, error));
    TS_TRY(list_left(pairer, &pairer->a, alone_a, true, &out->idle_a, &out->idle_a_count, error));
    return list_left(pairer, &pairer->b, alone_b, true, &out->idle_b, &out->idle_b_count, error);
}

enum ts_status ts_pair_run(const struct ts_bundle *a, const struct ts_bundle *b, const struct ts_pair_options *options,
                           struct ts_pool *pool, struct ts_progress *progress, struct ts_pairing *pairing,
                           struct ts_error *error)
{
    static const struct ts_pair_options defaults = {.by_content = true};
    struct ts_pairer pairer = {
        .options = options ? options : &defaults, .pool = pool, .progress = progress, .out = pairing};
    enum ts_status status;
    memset(pairing, 0, sizeof *pairing);
    ts_arena_init(&pairing->arena, ARENA_LIMIT);
    ts_arena_init(&pairer.scratch, ARENA_LIMIT);
    pairer.lengths.arena = &pairing->arena;
    pairing->order = a->order;
    status = open_side(&pairer, &pairer.a, a, error);
    if (status == TS_OK)
        status = open_side(&pairer, &pairer.b, b, error);
    if (status == TS_OK)
        status = run(&pairer, error);
    if (status == TS_OK)
        status = ts_drop_odd_layouts(pairing, error);
    if (status == TS_OK)
        status = ts_explain_rest(&pairer, error);
    for (size_t i = 0; i < pairing->count && status == TS_OK; i++)
        pairing->pairs[i].masked = ts_pair_is_masked(&pairing->pairs[i]);
    ts_dims_release(&pairer.dims);
    ts_arena_release(&pairer.scratch);
    free(pairer.found);
    ts_give_back_memory();
    if (status != TS_OK)
        ts_pairing_release(pairing);
    return status;
}

void ts_pairing_release(struct ts_pairing *pairing)
{
    free(pairing->pairs);
    ts_arena_release(&pairing->arena);
    memset(pairing, 0, sizeof *pairing);
}

const struct ts_tensor *ts_pair_origin(const struct ts_view *view, uint64_t flat, uint64_t *index)
{
    while (view->join == TS_JOIN_CONCAT) {
        const struct ts_view *part = view->parts;
        uint64_t inner = 1, outer, rest;
        for (unsigned i = view->axis + 1; i < view->rank; i++)
            inner *= view->shape[i];
        outer = flat / (view->shape[view->axis] * inner);
        rest = flat % (view->shape[view->axis] * inner);
        for (; rest >= part->shape[view->axis] * inner; part++)
            rest -= part->shape[view->axis] * inner;
        flat = outer * part->shape[view->axis] * inner + rest;
        view = part;
    }
    if (view->join != TS_JOIN_NONE)
        return NULL;
    *index = view->offset;
    for (unsigned i = view->rank; i-- > 0; flat /= view->shape[i])
        *index += flat % view->shape[i] * (uint64_t)view->strides[i];
    return view->tensor;
}

const struct ts_tensor *ts_pair_only_tensor(const struct ts_view *view)
{
    if (view->join == TS_JOIN_NONE)
        return view->tensor;
    for (size_t i = 0; i < view->part_count; i++)
        if (ts_pair_only_tensor(&view->parts[i]) != view->tensor)
            return NULL;
    return view->tensor;
}

const char *ts_pair_member(const struct ts_view *view, uint64_t flat)
{
    uint64_t index;
    const struct ts_tensor *tensor = ts_pair_only_tensor(view) ? NULL : ts_pair_origin(view, flat, &index);
    return tensor ? tensor->name : NULL;
}

/* A line of its own in the map: one tensor against one, neither of them in another pair as well. Stacks and cuts are
 * found again without the map. */
static bool is_line(const struct ts_pair *pair, const struct ts_table *used, const size_t *uses)
{
    const struct ts_tensor *sides[2] = {ts_pair_only_tensor(&pair->a), ts_pair_only_tensor(&pair->b)};
    if (strcmp(pair->how, "tied") == 0 || !sides[0] || !sides[1] || strcmp(pair->name, sides[0]->name) != 0 ||
        strcmp(pair->name_b, sides[1]->name) != 0) /* one layer of a stack has a name that no tensor has */
        return false;
    for (int i = 0; i < 2; i++) {
        size_t at = ts_table_get(&used[i], sides[i]->name);
        if (at == SIZE_MAX || uses[at] != 1)
            return false;
    }
    return true;
}

static enum ts_status put_pairs(const struct ts_pairing *pairing, struct ts_buffer *out, struct ts_error *error)
{
    struct ts_table used[2] = {{0}};
    size_t *uses = calloc(2 * pairing->count + 1, sizeof *uses);
    bool fits = uses && ts_table_init(&used[0], pairing->count) && ts_table_init(&used[1], pairing->count);
    for (size_t i = 0; i < pairing->count && fits; i++)
        for (int side = 0; side < 2; side++) {
            const struct ts_tensor *tensor = ts_pair_only_tensor(side ? &pairing->pairs[i].b : &pairing->pairs[i].a);
            size_t at = 2 * i + (size_t)side;
            if (!tensor || strcmp(pairing->pairs[i].how, "tied") == 0)
                continue;
            ts_table_put(&used[side], tensor->name, at, &at);
            uses[at]++;
        }
    for (size_t i = 0; i < pairing->count && fits; i++) {
        const struct ts_pair *pair = &pairing->pairs[i];
        if (*pair->recipe)
            ts_buffer_printf(out, "# %s\n", pair->recipe);
        if (!pair->by_hand && !pair->members[0] && !pair->members[1] && !is_line(pair, used, uses))
            ts_buffer_string(out, "# ");
        for (int side = 0; side < 2; side++) {
            if (pair->members[side])
                ts_buffer_string(out, pair->members[side]);
            else
                ts_map_put_name(out, side ? pair->name_b : pair->name);
            ts_buffer_string(out, side ? "" : " = ");
        }
        if (pair->by_hand)
            ts_buffer_printf(out, " | %s", pair->by_hand);
        ts_buffer_byte(out, '\n');
    }
    ts_table_release(&used[0]);
    ts_table_release(&used[1]);
    free(uses);
    return fits ? TS_OK : ts_fail_memory(error);
}

enum ts_status ts_pairing_put(const struct ts_pairing *pairing, struct ts_buffer *out, struct ts_error *error)
{
    ts_buffer_string(out, "# name of A = name of B; \"name =\" and \"= name\" stay alone\n");
    TS_TRY(put_pairs(pairing, out, error));
    for (size_t i = 0; i < pairing->only_a_count; i++) {
        ts_map_put_name(out, pairing->only_a[i]->name);
        ts_buffer_string(out, " =\n");
    }
    for (size_t i = 0; i < pairing->only_b_count; i++) {
        ts_buffer_string(out, "= ");
        ts_map_put_name(out, pairing->only_b[i]->name);
        ts_buffer_byte(out, '\n');
    }
    return out->failed ? ts_fail_memory(error) : TS_OK;
}

enum ts_status ts_pairing_save(const struct ts_pairing *pairing, const char *path, struct ts_error *error)
{
    struct ts_buffer out;
    FILE *file;
    bool written;
    int number;
    ts_buffer_init(&out, (size_t)1 << 30);
    if (ts_pairing_put(pairing, &out, error) != TS_OK) {
        ts_buffer_release(&out);
        return error->status;
    }
    file = fopen(path, "w");
    written = file && fwrite(out.data, 1, out.size, file) == out.size;
    number = errno;
    if (file && fclose(file) != 0) {
        written = false;
        number = errno;
    }
    ts_buffer_release(&out);
    if (written)
        return TS_OK;
    ts_fail_errno(error, number, "cannot write the map");
    return ts_error_path(error, path);
}
