/* Owns gaps in the numbering of layers, for files of any kind: a layer that is missing between others, a tensor that
 * one layer lacks and all others have; and GGUF's block_count. Checkpoints that config.json describes have been checked
 * exactly and are left out. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/ordered.h"
#include "base/table.h"
#include "base/text.h"
#include "check/check_internal.h"
#include "tensor/layer.h"

/* One tensor of a numbered layer. */
struct entry {
    const char *name;  /* the leaf, so that shards of one checkpoint meet */
    size_t index;      /* in the bundle */
    size_t start, end; /* of the number */
    uint64_t layer;
    uint32_t group;
};

static int compare_numbers(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

/* Which stack of layers: the file, and what stands before the number. */
static int by_stack(const struct entry *a, const struct entry *b)
{
    size_t shorter = a->start < b->start ? a->start : b->start;
    int order = compare_numbers(a->group, b->group);
    if (!order)
        order = strncmp(a->name, b->name, shorter);
    return order ? order : compare_numbers(a->start, b->start);
}

/* Stack, then what stands behind the number, then the number. */
static int by_tensor(const void *a, const void *b)
{
    const struct entry *left = a, *right = b;
    int order = by_stack(left, right);
    if (!order)
        order = strcmp(left->name + left->end, right->name + right->end);
    return order ? order : compare_numbers(left->layer, right->layer);
}

struct stack {
    struct ts_checking *checking;
    const struct entry *entries;
    size_t count;
    uint64_t *layers; /* all of them, ascending */
    size_t layer_count;
    uint64_t *odd; /* layers that have what most others lack: of another kind, ascending */
    size_t odd_count;
    struct lack *lacks;
    size_t lack_count;
};

struct lack {
    uint64_t layer;
    const struct entry *like; /* the same tensor of another layer */
};

static int by_lacking_layer(const void *a, const void *b)
{
    const struct lack *left = a, *right = b;
    int order = compare_numbers(left->layer, right->layer);
    return order ? order : compare_numbers(left->like->index, right->like->index);
}

static size_t end_of_tensor(const struct stack *stack, size_t first)
{
    size_t last = first + 1;
    while (last < stack->count && strcmp(stack->entries[last].name + stack->entries[last].end,
                                         stack->entries[first].name + stack->entries[first].end) == 0)
        last++;
    return last;
}

/* A tensor that all layers but one have. First and last layers are often of another kind, and so are layers that have
 * tensors of their own. */
static void find_lack(struct stack *stack, size_t first, size_t last)
{
    size_t missing = 0;
    uint64_t layer;
    if (last - first != stack->layer_count - 1)
        return;
    while (missing < last - first && stack->entries[first + missing].layer == stack->layers[missing])
        missing++;
    if (missing == 0 || missing == stack->layer_count - 1 ||
        stack->entries[first + missing].layer != stack->layers[missing + 1])
        return;
    layer = stack->layers[missing];
    if (!bsearch(&layer, stack->odd, stack->odd_count, sizeof *stack->odd, ts_by_number))
        stack->lacks[stack->lack_count++] = (struct lack){layer, &stack->entries[first]};
}

/* The name up to the layer's number, with the file before it. */
static void append_start(const struct stack *stack, const struct entry *entry, struct ts_buffer *out)
{
    const char *whole = stack->checking->bundle->tensors[entry->index]->name;
    ts_buffer_append(out, whole, (size_t)(entry->name - whole) + entry->start);
}

static void tell_lacks(struct stack *stack)
{
    qsort(stack->lacks, stack->lack_count, sizeof *stack->lacks, by_lacking_layer);
    for (size_t first = 0, last; first < stack->lack_count; first = last) {
        const struct lack *lack = &stack->lacks[first];
        struct ts_buffer name;
        for (last = first + 1; last < stack->lack_count && stack->lacks[last].layer == lack->layer;)
            last++;
        ts_buffer_init(&name, (size_t)1 << 20);
        append_start(stack, lack->like, &name);
        ts_buffer_printf(&name, "%" PRIu64 "%s", lack->layer, lack->like->name + lack->like->end);
        if (last - first > 1)
            ts_check_add(stack->checking, "gap", TS_WARNING, name.data,
                         "is not there, nor are %zu more of this layer; all other layers have them", last - first - 1);
        else
            ts_check_add(stack->checking, "gap", TS_WARNING, name.data, "is not there; all other layers have it");
        ts_buffer_release(&name);
    }
}

/* Numbers missing between the first and the last. A dump of every fourth layer has no gaps: at least two layers must be
 * there for each that is not. */
static void tell_missing_layers(struct stack *stack)
{
    const uint64_t *layers = stack->layers;
    const uint64_t span = layers[stack->layer_count - 1] - layers[0] + 1;
    const uint64_t missing = span - stack->layer_count;
    const struct entry *entry = &stack->entries[0];
    struct ts_buffer list;
    if (!missing || missing > stack->layer_count / 2)
        return;
    ts_buffer_init(&list, (size_t)1 << 20);
    append_start(stack, entry, &list);
    ts_buffer_byte(&list, '{');
    for (size_t i = 1, told = 0; i < stack->layer_count; i++) {
        if (layers[i] == layers[i - 1] + 1)
            continue;
        if (told++ == 8) {
            ts_buffer_string(&list, ",...");
            break;
        }
        ts_buffer_printf(&list, "%s%" PRIu64, told > 1 ? "," : "", layers[i - 1] + 1);
        if (layers[i] > layers[i - 1] + 2)
            ts_buffer_printf(&list, "..%" PRIu64, layers[i] - 1);
    }
    ts_buffer_byte(&list, '}');
    ts_check_add(stack->checking, "gap", TS_WARNING, list.data,
                 "%" PRIu64 " layer%s missing between %" PRIu64 " and %" PRIu64, missing,
                 missing == 1 ? " is" : "s are", layers[0], layers[stack->layer_count - 1]);
    ts_buffer_release(&list);
}

static void check_stack(struct stack *stack)
{
    for (size_t i = 0; i < stack->count; i++)
        stack->layers[i] = stack->entries[i].layer;
    stack->layer_count = ts_check_sort_unique(stack->layers, stack->count);
    if (stack->layer_count < 3)
        return;
    tell_missing_layers(stack);
    stack->odd_count = stack->lack_count = 0;
    for (size_t first = 0, last; first < stack->count; first = last) {
        last = end_of_tensor(stack, first);
        if (last - first <= stack->layer_count / 2)
            for (size_t i = first; i < last; i++)
                stack->odd[stack->odd_count++] = stack->entries[i].layer;
    }
    stack->odd_count = ts_check_sort_unique(stack->odd, stack->odd_count);
    for (size_t first = 0, last; first < stack->count; first = last) {
        last = end_of_tensor(stack, first);
        find_lack(stack, first, last);
    }
    tell_lacks(stack);
}

static void check_stacks(struct ts_checking *checking, struct entry *entries, size_t count)
{
    struct stack stack = {.checking = checking};
    stack.layers = calloc(count + 1, sizeof *stack.layers);
    stack.odd = calloc(count + 1, sizeof *stack.odd);
    stack.lacks = calloc(count + 1, sizeof *stack.lacks);
    if (!stack.layers || !stack.odd || !stack.lacks)
        checking->failed = true;
    qsort(entries, count, sizeof *entries, by_tensor);
    for (size_t first = 0, last; first < count && !checking->failed; first = last) {
        for (last = first + 1; last < count && by_stack(&entries[first], &entries[last]) == 0;)
            last++;
        stack.entries = entries + first;
        stack.count = last - first;
        check_stack(&stack);
    }
    free(stack.layers);
    free(stack.odd);
    free(stack.lacks);
}

/* Text of metadata as a number; GGUF readers write numbers plainly. */
static bool meta_number(const struct ts_bundle *bundle, const char *file, const char *key, uint64_t *number)
{
    for (size_t i = 0; i < bundle->meta_count; i++) {
        const struct ts_meta *meta = &bundle->metas[i];
        char *end;
        if (strcmp(meta->key, key) != 0 || (file && meta->file && strcmp(meta->file, file) != 0))
            continue;
        *number = strtoull(meta->value, &end, 10);
        return end != meta->value && *end == '\0' && meta->value[0] != '-';
    }
    return false;
}

/* blk.N of one GGUF file (NULL: of all tensors, there is one model only). */
static void check_block_count(struct ts_checking *checking, const struct ts_meta *architecture, bool alone)
{
    const struct ts_bundle *bundle = checking->bundle;
    const char *file = alone ? NULL : architecture->file;
    uint64_t blocks, extra = 0, missing = 0, next = 0;
    uint64_t *layers;
    size_t count = 0;
    struct ts_buffer key, list;
    bool known;
    ts_buffer_init(&key, 4096);
    ts_buffer_printf(&key, "%s.nextn_predict_layers", architecture->value);
    if (key.data)
        meta_number(bundle, file, key.data, &extra);
    ts_buffer_clear(&key);
    ts_buffer_printf(&key, "%s.block_count", architecture->value);
    known = key.data && !key.failed && meta_number(bundle, file, key.data, &blocks);
    ts_buffer_release(&key);
    layers = known ? calloc(bundle->count + 1, sizeof *layers) : NULL;
    if (!layers) {
        checking->failed = checking->failed || known;
        return;
    }
    for (size_t i = 0; i < bundle->count; i++) {
        const struct ts_tensor *tensor = bundle->tensors[i];
        const char *leaf = ts_check_leaf(tensor->name);
        if (ts_starts_with(leaf, "blk.") && ts_layer_of(leaf, &layers[count]) &&
            (!file || (tensor->file && strcmp(tensor->file, file) == 0)))
            count++;
    }
    count = ts_check_sort_unique(layers, count);
    ts_buffer_init(&list, 8192);
    ts_buffer_string(&list, "blk.{");
    for (size_t i = 0; i <= count; i++) {
        /* layers for speculative decoding count as blocks and may be left out of the file */
        uint64_t end = i < count ? layers[i] : blocks - (extra < blocks ? extra : blocks);
        if (next < end && end <= blocks) {
            ts_buffer_printf(&list, "%s%" PRIu64, missing ? "," : "", next);
            if (end > next + 1)
                ts_buffer_printf(&list, "..%" PRIu64, end - 1);
            missing += end - next;
        }
        if (i < count)
            next = layers[i] + 1;
    }
    ts_buffer_byte(&list, '}');
    if (count && missing)
        ts_check_add(checking, "missing-weight", TS_FAULT, list.data,
                     "%s.block_count is %" PRIu64 ", and %" PRIu64 " of the blocks %s not there", architecture->value,
                     blocks, missing, missing == 1 ? "is" : "are");
    else if (count && layers[count - 1] >= blocks)
        ts_check_add(checking, "unexpected-weight", TS_WARNING, NULL,
                     "%s.block_count is %" PRIu64 ", and there are tensors of block %" PRIu64, architecture->value,
                     blocks, layers[count - 1]);
    ts_buffer_release(&list);
    free(layers);
}

static void check_block_counts(struct ts_checking *checking)
{
    const struct ts_bundle *bundle = checking->bundle;
    const unsigned most = 64; /* models in one folder */
    unsigned models = 0, done = 0;
    for (size_t i = 0; i < bundle->meta_count; i++)
        models += strcmp(bundle->metas[i].key, "general.architecture") == 0;
    for (size_t i = 0; i < bundle->meta_count && done < most; i++)
        if (strcmp(bundle->metas[i].key, "general.architecture") == 0) {
            check_block_count(checking, &bundle->metas[i], models == 1);
            done++;
        }
}

void ts_check_layers(struct ts_checking *checking)
{
    const struct ts_bundle *bundle = checking->bundle;
    struct entry *entries = calloc(bundle->count + 1, sizeof *entries);
    size_t count = 0;
    if (!entries) {
        checking->failed = true;
        return;
    }
    check_block_counts(checking);
    for (size_t i = 0; i < bundle->count; i++) {
        struct entry entry = {.index = i, .group = checking->group_of[i]};
        entry.name = ts_check_leaf(bundle->tensors[i]->name);
        if (!checking->groups[entry.group].promised &&
            ts_check_layer_place(entry.name, &entry.layer, &entry.start, &entry.end))
            entries[count++] = entry;
    }
    check_stacks(checking, entries, count);
    free(entries);
}
