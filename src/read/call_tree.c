/* Call trees: what model_addition_debugger_context of Hugging Face transformers writes,
 * NAME_debug_tree_FULL_TENSORS.json (in early versions NAME_debug_tree.json): nested calls of modules,
 *
 *     {"module_path": "LlamaForCausalLM.model.layers.0.mlp.gate_proj",
 *      "inputs": {"args": [TENSOR], "kwargs": {"x": TENSOR}}, "outputs": TENSOR, "children": [CALL, ...]}
 *
 * in which a tensor is {"shape": "torch.Size([1, 5])", "dtype": "torch.float32", "value": VALUE, "mean": ...}: VALUE is
 * what Python prints for it, as one string or a list of lines, corners only when it is large; or "./FILE.safetensors"
 * beside the tree. NAME_debug_tree_SUMMARY.json is the same without values, and is said to be so.
 *
 * One loop walks the tokens: depth is bounded by the JSON reader, and the stack here has a place for each level. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "read/call_name.h"
#include "read/corners.h"
#include "read/readers.h"
#include "read/text_plain.h"
#include "read/type_name.h"
#include "read/values.h"

#define MAX_NAME  ((size_t)4096)
#define LOOK_SIZE ((size_t)256 * 1024)
#define SHARED    ((uint64_t)1 << 20)
/* One tensor as printed: torch shows a thousand numbers unless told otherwise, but it can be told. */
#define MAX_PRINT ((size_t)256 << 20)

/* What an open object or list is. */
enum level_kind { OTHER, CALL, CHILDREN, ROLE, VALUES };

struct level {
    enum level_kind kind;
    bool list;
    enum ts_call_role role;      /* ROLE and VALUES */
    bool plain;                  /* the word for this level stays out of names: args, kwargs */
    uint64_t next;               /* index of the next item of a list */
    size_t index_size;           /* of the index text before this level */
    const char *path;            /* CALL and below: the module */
    size_t outputs, outputs_end; /* CALL: tensors that its outputs gave */
};

struct tensor_text {
    bool open, has_shape, has_value;
    unsigned depth;
    struct ts_json value; /* the token behind "value" */
    const char *shape, *dtype;
};

struct tree {
    struct ts_input *input;
    struct ts_bundle *bundle;
    struct ts_values *values;
    struct ts_json json;
    struct level *levels;
    struct ts_buffer index, print;
    struct tensor_text tensor;
    const char *root;
    bool root_outputs; /* the tree has some of the whole model's outputs */
    uint64_t without_values;
};

static enum ts_status next(struct tree *tree, struct ts_error *error)
{
    return ts_json_next(&tree->json, error);
}

/* "LlamaForCausalLM.model.layers.0" -> "model.layers.0". The root's path is the class. */
static const char *module_path(struct tree *tree, const char *path)
{
    size_t length;
    if (!tree->root) {
        const char *blank = strchr(path, ' '); /* "Class (top-level)" */
        tree->root = ts_arena_copy(&tree->bundle->arena, path, blank ? (size_t)(blank - path) : strlen(path));
        return tree->root ? "" : NULL;
    }
    length = strlen(tree->root);
    if (strncmp(path, tree->root, length) == 0 && path[length] == '.')
        return path + length + 1;
    return strcmp(path, tree->root) == 0 ? "" : path;
}

static char *current_name(struct tree *tree, const struct level *level)
{
    return ts_call_name(&tree->bundle->arena, level->path ? level->path : "", level->role,
                        tree->index.size ? tree->index.data : "");
}

static enum ts_status skip_tensor(struct tree *tree, const char *name, const struct ts_error *why,
                                  struct ts_error *error)
{
    return ts_bundle_skip_error(tree->bundle, tree->input->member, name, why, error);
}

/* The values lie in a file beside the tree; it holds one tensor called "data". */
static enum ts_status read_file(struct tree *tree, const char *name, const char *file, struct ts_error *error)
{
    struct ts_bundle *bundle = tree->bundle;
    const size_t start = bundle->count, findings = bundle->finding_count, skips = bundle->skip_count;
    struct ts_source *source;
    struct ts_error why;
    const char *order = bundle->order;
    enum ts_status status;
    ts_error_clear(&why);
    while (strncmp(file, "./", 2) == 0)
        file += 2;
    if (ts_input_beside(tree->input, file, &source, &why) != TS_OK)
        return skip_tensor(tree, name, &why, error);
    bundle->file_bytes += source->size;
    status = ts_read_source(tree->input, &ts_reader_safetensors, source, file, bundle, &why);
    ts_source_release(source);
    bundle->order = order;
    if (status != TS_OK) {
        bundle->count = start;
        bundle->finding_count = findings;
        bundle->skip_count = skips;
        return skip_tensor(tree, name, &why, error);
    }
    for (size_t i = start; i < bundle->count; i++)
        if (bundle->count - start > 1 && strcmp(bundle->tensors[i]->name, "data") == 0)
            bundle->tensors[i]->name = "";
    return ts_call_rename(bundle, start, name, NULL, error);
}

/* The print's lines, joined again, in tree->print. */
static enum ts_status collect_print(struct tree *tree, struct ts_error *error)
{
    struct ts_json json = tree->tensor.value;
    struct ts_arena scratch;
    enum ts_status status = TS_OK;
    const bool list = json.kind == TS_JSON_ARRAY;
    ts_buffer_clear(&tree->print);
    ts_arena_init(&scratch, MAX_PRINT);
    for (;;) {
        const char *line;
        if (list && ((status = ts_json_next(&json, error)) != TS_OK || json.kind == TS_JSON_ARRAY_END))
            break;
        if (json.kind != TS_JSON_STRING) {
            status = ts_fail(error, TS_ERR_FORMAT, json.offset, "expected the lines of a printed tensor as strings");
            break;
        }
        if ((status = ts_json_copy(&json, &scratch, &line, error)) != TS_OK)
            break;
        ts_buffer_string(&tree->print, line);
        ts_buffer_byte(&tree->print, '\n');
        if (!list)
            break;
    }
    ts_arena_release(&scratch);
    if (status == TS_OK && tree->print.failed)
        status = ts_fail(error, TS_ERR_LIMIT, json.offset, "a printed tensor of more than %zu bytes", MAX_PRINT);
    return status;
}

/* "DTensor (rank0) -> tensor(...)": what is in front of the print is of no use. */
static size_t print_start(const char *text)
{
    const char *arrow = strstr(text, "-> ");
    return arrow && ts_starts_with(text, "DTensor") ? (size_t)(arrow - text) + 3 : 0;
}

static enum ts_status parse_print(struct tree *tree, const char *name, struct ts_error *error)
{
    struct ts_values *values = tree->values;
    struct ts_bundle *bundle = tree->bundle;
    uint64_t shape[TS_MAX_RANK], product;
    unsigned rank = 0;
    enum ts_type type;
    struct ts_plain plain;
    struct ts_tensor *tensor;
    bool swapped, known, whole, partial;
    size_t from;
    TS_TRY(collect_print(tree, error));
    from = print_start(tree->print.data);
    known = tree->tensor.shape && ts_plain_shape(tree->tensor.shape, strlen(tree->tensor.shape), shape, &rank) &&
            ts_shape_product(shape, rank, &product);
    if (!tree->tensor.dtype || !ts_type_from_name(tree->tensor.dtype, strlen(tree->tensor.dtype), &type, &swapped))
        type = TS_VALUES_INFER;
    /* five digits bring bf16 and f16 back exactly; of f32 some are lost, and the attribute digits says so */
    ts_values_begin(values, type);
    TS_TRY(ts_plain_parse(tree->print.data + from, tree->print.size - from, false, values, &plain, error));
    whole = known && values->count == product;
    TS_TRY(ts_values_tensor(values, bundle, name, whole ? shape : plain.nest.shape, whole ? rank : plain.nest.rank,
                            &tensor, error));
    if (whole || !known)
        return TS_OK;
    if (plain.ellipsis)
        TS_TRY(ts_corners_set(bundle, tensor, shape, rank, NULL, &partial, error));
    if (plain.ellipsis && partial)
        return TS_OK;
    tensor->sampled = tensor->count < product;
    TS_TRY(ts_bundle_attribute(bundle, tensor, "declared shape", tree->tensor.shape, error));
    return ts_bundle_find(bundle, name, error, "the print has %llu values, its shape says %.200s",
                          (unsigned long long)tensor->count, tree->tensor.shape);
}

/* The object that ends here said shape and dtype: a tensor. */
static enum ts_status finish_tensor(struct tree *tree, const struct level *level, struct ts_error *error)
{
    struct tensor_text *text = &tree->tensor;
    struct ts_error why;
    const char *name, *file;
    text->open = false;
    if (!text->has_value) {
        tree->without_values++;
        return TS_OK;
    }
    name = current_name(tree, level);
    if (!name)
        return ts_fail_memory(error);
    ts_error_clear(&why);
    if (text->value.kind == TS_JSON_STRING && text->value.raw_size < MAX_NAME) {
        if (ts_json_copy(&text->value, &tree->bundle->arena, &file, &why) != TS_OK)
            return skip_tensor(tree, name, &why, error);
        if (ts_ends_with(file, ".safetensors"))
            return read_file(tree, name, file, error);
    }
    if (parse_print(tree, name, &why) == TS_OK)
        return TS_OK;
    ts_values_cancel(tree->values);
    if (why.status == TS_ERR_MEMORY || why.status == TS_ERR_CANCELLED) {
        *error = why;
        return why.status;
    }
    why.offset = text->value.offset; /* inside the print it says nothing */
    return skip_tensor(tree, name, &why, error);
}

static bool extend_index(struct tree *tree, const char *piece)
{
    if (tree->index.size)
        ts_buffer_byte(&tree->index, '.');
    ts_buffer_string(&tree->index, piece);
    return !tree->index.failed;
}

static void shorten_index(struct tree *tree, size_t size)
{
    tree->index.failed = false;
    if (tree->index.data) {
        tree->index.size = size;
        tree->index.data[size] = '\0';
    }
}

/* Outputs stand before the calls they were made by; they are moved behind them. */
static enum ts_status move_outputs(struct ts_bundle *bundle, const struct level *call, struct ts_error *error)
{
    const size_t moved = call->outputs_end - call->outputs, behind = bundle->count - call->outputs_end;
    struct ts_tensor **held;
    if (moved == 0 || behind == 0)
        return TS_OK;
    held = calloc(moved, sizeof(struct ts_tensor *));
    if (!held)
        return ts_fail_memory(error);
    memcpy(held, bundle->tensors + call->outputs, moved * sizeof(struct ts_tensor *));
    memmove(bundle->tensors + call->outputs, bundle->tensors + call->outputs_end, behind * sizeof(struct ts_tensor *));
    memcpy(bundle->tensors + call->outputs + behind, held, moved * sizeof(struct ts_tensor *));
    free(held);
    return TS_OK;
}

/* An object or list opens under the key (NULL: an item of a list or the top). */
static enum ts_status open_level(struct tree *tree, const char *key, struct ts_error *error)
{
    struct ts_json *json = &tree->json;
    struct level *level = &tree->levels[json->depth], *parent = &tree->levels[json->depth - 1];
    char number[24];
    *level = (struct level){.list = json->kind == TS_JSON_ARRAY,
                            .path = parent->path,
                            .role = parent->role,
                            .index_size = tree->index.size};
    if (json->depth == 1 || (parent->kind == CHILDREN && !level->list)) {
        level->kind = level->list ? OTHER : CALL;
        level->path = NULL;
        level->outputs = level->outputs_end = tree->bundle->count;
    } else if (parent->kind == CALL && key && (strcmp(key, "inputs") == 0 || strcmp(key, "outputs") == 0)) {
        level->kind = ROLE;
        level->role = key[0] == 'i' ? TS_CALL_INPUT : TS_CALL_OUTPUT;
        tree->root_outputs |= level->role == TS_CALL_OUTPUT && json->depth == 2;
        if (level->role == TS_CALL_OUTPUT)
            parent->outputs = parent->outputs_end = tree->bundle->count;
    } else if (parent->kind == CALL && key && strcmp(key, "children") == 0) {
        level->kind = CHILDREN;
    } else if (parent->kind == ROLE || parent->kind == VALUES) {
        level->kind = VALUES;
        level->plain = parent->kind == ROLE && level->role == TS_CALL_INPUT && key &&
                       (strcmp(key, "args") == 0 || strcmp(key, "kwargs") == 0);
        if (parent->list)
            snprintf(number, sizeof number, "%llu", (unsigned long long)parent->next++);
        if (!level->plain && !extend_index(tree, parent->list ? number : key ? key : ""))
            return ts_fail(error, TS_ERR_LIMIT, json->offset, "a name is longer than %zu bytes", MAX_NAME);
    }
    if (!level->list && (level->kind == ROLE || level->kind == VALUES))
        tree->tensor = (struct tensor_text){.open = true, .depth = json->depth};
    return TS_OK;
}

static enum ts_status close_level(struct tree *tree, struct ts_error *error)
{
    struct level *level = &tree->levels[tree->json.depth + 1];
    struct tensor_text *text = &tree->tensor;
    if (text->open && !level->list && text->depth == tree->json.depth + 1) {
        text->open = false;
        if (text->has_shape && text->dtype)
            TS_TRY(finish_tensor(tree, level, error));
    }
    if (level->kind == ROLE && level->role == TS_CALL_OUTPUT)
        tree->levels[tree->json.depth].outputs_end = tree->bundle->count;
    if (level->kind == CALL)
        TS_TRY(move_outputs(tree->bundle, level, error));
    shorten_index(tree, level->index_size);
    return TS_OK;
}

/* A key of the object that is open at json.depth, and its value, unless that opens another level. */
static enum ts_status read_key(struct tree *tree, struct ts_error *error)
{
    struct ts_json *json = &tree->json;
    struct level *level = &tree->levels[json->depth];
    struct tensor_text *text = &tree->tensor;
    const bool of_tensor = text->open && text->depth == json->depth;
    const char *key, *value;
    TS_TRY(ts_json_copy(json, &tree->bundle->arena, &key, error));
    TS_TRY(next(tree, error));
    if (of_tensor && strcmp(key, "value") == 0 && (json->kind == TS_JSON_STRING || json->kind == TS_JSON_ARRAY)) {
        text->has_value = true;
        text->value = *json;
        return json->kind == TS_JSON_ARRAY ? ts_json_skip_value(json, error) : TS_OK;
    }
    if (json->kind == TS_JSON_OBJECT || json->kind == TS_JSON_ARRAY)
        return open_level(tree, key, error);
    if (json->kind != TS_JSON_STRING)
        return TS_OK;
    if (level->kind == CALL && strcmp(key, "module_path") == 0) {
        TS_TRY(ts_json_copy(json, &tree->bundle->arena, &value, error));
        level->path = module_path(tree, value);
        return level->path ? TS_OK : ts_fail_memory(error);
    }
    if (!of_tensor || (strcmp(key, "shape") != 0 && strcmp(key, "dtype") != 0))
        return TS_OK;
    TS_TRY(ts_json_copy(json, &tree->bundle->arena, &value, error));
    if (key[0] == 's') {
        text->shape = value;
        text->has_shape = true;
    } else {
        text->dtype = value;
    }
    return TS_OK;
}

static enum ts_status walk(struct tree *tree, struct ts_error *error)
{
    struct ts_json *json = &tree->json;
    for (;;) {
        TS_TRY(next(tree, error));
        switch (json->kind) {
        case TS_JSON_END:
            return TS_OK;
        case TS_JSON_KEY:
            TS_TRY(read_key(tree, error));
            break;
        case TS_JSON_OBJECT:
        case TS_JSON_ARRAY:
            TS_TRY(open_level(tree, NULL, error));
            break;
        case TS_JSON_OBJECT_END:
        case TS_JSON_ARRAY_END:
            TS_TRY(close_level(tree, error));
            break;
        default: /* an item of a list that is no tensor: None, True, a cache */
            tree->levels[json->depth].next++;
            break;
        }
    }
}

/* The values are in the tree that was written with this one, or nowhere. */
static enum ts_status tell_summary(struct tree *tree, struct ts_error *error)
{
    static const char ending[] = "_SUMMARY.json";
    struct ts_input *input = tree->input;
    struct ts_source *source;
    struct ts_error ignored;
    const char *slash = strrchr(input->member, '/'), *own = slash ? slash + 1 : input->member;
    bool beside = false;
    char *full;
    if (ts_ends_with(own, ending) && input->folder) {
        full = ts_arena_printf(&tree->bundle->arena, "%.*s_FULL_TENSORS.json",
                               (int)(strlen(input->member) - strlen(ending)), input->member);
        if (!full)
            return ts_fail_memory(error);
        /* asked without taking it: it has a reader of its own */
        beside = ts_folder_find(input->folder, full) != SIZE_MAX;
        full += own - input->member;
        if (!beside && input->folder->count == 0 && ts_input_beside(input, full, &source, &ignored) == TS_OK) {
            ts_source_release(source);
            return ts_fail(error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET,
                           "is a summary of %llu tensors (mean, std, min, max) without values; they are in %s",
                           (unsigned long long)tree->without_values, full);
        }
    }
    if (beside)
        return ts_bundle_skip(tree->bundle, input->member, true, "is the summary of the call tree beside it", error);
    return ts_fail(error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET,
                   "is a summary of %llu tensors (mean, std, min, max) without values; the values are in "
                   "..._FULL_TENSORS.json, which was written with it",
                   (unsigned long long)tree->without_values);
}

/* transformers writes what the whole model returned to CLASS_outputs_KEY.safetensors, and does not name it in the tree.
 */
static enum ts_status read_root_outputs(struct tree *tree, struct ts_error *error)
{
    static const char ending[] = ".safetensors";
    struct ts_input *input = tree->input;
    const char *slash = strrchr(input->member, '/');
    const size_t place = slash ? (size_t)(slash - input->member) + 1 : 0;
    char *before;
    if (!tree->root || tree->root_outputs || !input->folder)
        return TS_OK;
    before = ts_arena_printf(&tree->bundle->arena, "%.*s%s_outputs_", (int)place, input->member, tree->root);
    if (!before)
        return ts_fail_memory(error);
    for (size_t i = 0; i < input->folder->count; i++) {
        const char *member = input->folder->members[i].path;
        const size_t least = strlen(before) + sizeof ending - 1, length = strlen(member);
        char *index, *name;
        if (length <= least || length > MAX_NAME || !ts_starts_with(member, before) || !ts_ends_with(member, ending))
            continue;
        index = ts_arena_copy(&tree->bundle->arena, member + strlen(before), length - least);
        name = index ? ts_call_name(&tree->bundle->arena, "", TS_CALL_OUTPUT, index) : NULL;
        if (!name)
            return ts_fail_memory(error);
        TS_TRY(read_file(tree, name, member + place, error));
    }
    return TS_OK;
}

static enum ts_status read_tree(struct tree *tree, size_t start, struct ts_error *error)
{
    const size_t skips = tree->bundle->skip_count;
    TS_TRY(walk(tree, error));
    if (tree->bundle->count > start)
        TS_TRY(read_root_outputs(tree, error));
    if (tree->bundle->count == start && tree->bundle->skip_count == skips && tree->without_values)
        return tell_summary(tree, error);
    if (tree->without_values)
        TS_TRY(ts_bundle_find(tree->bundle, NULL, error, "%llu tensors of the call tree have no values",
                              (unsigned long long)tree->without_values));
    return ts_call_number(tree->bundle, start, error);
}

static enum ts_status tree_read(struct ts_input *input, struct ts_bundle *bundle, struct ts_error *error)
{
    struct tree tree = {.input = input, .bundle = bundle};
    const struct ts_source *source = input->source;
    const size_t start = bundle->count;
    enum ts_status status;
    size_t size;
    const char *text = ts_source_text(source, &size);
    ts_json_init(&tree.json, text, size);
    tree.json.allow_nan = true;
    ts_buffer_init(&tree.index, MAX_NAME);
    ts_buffer_init(&tree.print, MAX_PRINT);
    tree.levels = calloc(TS_JSON_MAX_DEPTH + 2, sizeof *tree.levels);
    tree.values = ts_values_new(input->spool, source->path);
    if (tree.values)
        tree.values->shared = source->size < SHARED / 4 ? (source->size * 4 + 63) / 64 * 64 : SHARED;
    status = tree.levels && tree.values ? read_tree(&tree, start, error) : ts_fail_memory(error);
    if (tree.values)
        ts_values_free(tree.values);
    free(tree.levels);
    ts_buffer_release(&tree.index);
    ts_buffer_release(&tree.print);
    if (status != TS_OK && error->offset != TS_NO_OFFSET)
        error->offset += source->size - size;
    if (status == TS_OK && bundle->count > start)
        bundle->order = "order of the calls";
    return status;
}

/* An object whose first keys are module_path and inputs or children: no other file has both. */
static unsigned tree_bid(const struct ts_input *input)
{
    struct ts_json json;
    struct ts_error ignored;
    size_t size;
    const char *text = ts_source_text(input->source, &size);
    bool path = false;
    if (size == 0 || (text[0] != '{' && (!text[0] || !strchr(" \t\r\n", text[0]))))
        return 0;
    ts_json_init(&json, text, size < LOOK_SIZE ? size : LOOK_SIZE);
    if (ts_json_next(&json, &ignored) != TS_OK || json.kind != TS_JSON_OBJECT)
        return 0;
    for (int keys = 0; keys < 4; keys++) {
        if (ts_json_next(&json, &ignored) != TS_OK || json.kind != TS_JSON_KEY)
            return 0;
        if (path &&
            (ts_json_equals(&json, "inputs") || ts_json_equals(&json, "outputs") || ts_json_equals(&json, "children")))
            return 8 * (sizeof "module_path" - 1);
        path = path || ts_json_equals(&json, "module_path");
        if (ts_json_skip_value(&json, &ignored) != TS_OK)
            return 0;
    }
    return 0;
}

const struct ts_reader ts_reader_call_tree = {
    .name = "call tree",
    .summary = "debug trees of Hugging Face transformers, with printed values or safetensors beside them",
    .gathers = true,
    .for_folder = true,
    .bid = tree_bid,
    .read = tree_read,
};
