/* Owns the comparison of a checkpoint with what its config.json promises: weights that are missing, that nobody asked
 * for, or that have another shape. Which weights those are is in check_architectures.c.
 *
 * Every promised name is put together and looked up, so the work is bounded by giving up on configs that promise more
 * than three times as many weights as there are: such a file is not that model. Experts are counted for themselves,
 * since some programs store all of a layer in one tensor. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"
#include "check/check_model.h"
#include "tensor/layer.h"

#define NAME_ROOM 512

static bool runs_over(const struct ts_rule *rule, char letter)
{
    return strchr(rule->name, letter) != NULL;
}

static uint64_t layers_of(const struct ts_model *model, const struct ts_rule *rule)
{
    return runs_over(rule, '#') ? model->promise->layers : 1;
}

static uint64_t experts_of(const struct ts_model *model, const struct ts_rule *rule)
{
    const uint64_t inputs = model->promise->dimensions['a'];
    if (!runs_over(rule, '@'))
        return 1;
    return rule->needs & TS_WEIGHT_PER_INPUT ? (inputs ? inputs - 1 : 0) : model->promise->experts;
}

/* The backbone's prefix without "model.", where a head stands beside the backbone. */
static int outside_length(const char *prefix)
{
    size_t length = strlen(prefix);
    return ts_ends_with(prefix, "model.") && (length == 6 || prefix[length - 7] == '.') ? (int)length - 6 : 0;
}

static void put_name(const struct ts_model *model, const struct ts_rule *rule, uint64_t layer, uint64_t expert,
                     char name[NAME_ROOM])
{
    size_t used = 0;
    if (rule->needs & TS_WEIGHT_OUTSIDE)
        used += (size_t)snprintf(name, NAME_ROOM, "%.*s", outside_length(model->prefix), model->prefix);
    else
        used += (size_t)snprintf(name, NAME_ROOM, "%s", model->prefix);
    for (const char *at = rule->name; *at && used + 24 < NAME_ROOM; at++) {
        if (*at == '#' || *at == '@')
            used += (size_t)snprintf(name + used, NAME_ROOM - used, "%" PRIu64, *at == '#' ? layer : expert);
        else
            name[used++] = *at;
    }
    name[used] = '\0';
}

/* The tensor of that name, or the main part of a quantized one that was left in parts; SIZE_MAX. */
static size_t find(const struct ts_model *model, const char *name, bool *in_parts)
{
    char other[NAME_ROOM + 32];
    size_t length = strlen(name), found = ts_table_get(&model->names, name);
    *in_parts = false;
    if (found != SIZE_MAX)
        return found;
    *in_parts = true;
    if (ts_ends_with(name, ".weight")) {
        static const char *const endings[] = {".qweight", ".weight_packed"};
        for (size_t i = 0; i < 2 && found == SIZE_MAX; i++) {
            snprintf(other, sizeof other, "%.*s%s", (int)(length - strlen(".weight")), name, endings[i]);
            found = ts_table_get(&model->names, other);
        }
        return found;
    }
    snprintf(other, sizeof other, "%s_blocks", name);
    return ts_table_get(&model->names, other);
}

struct tally {
    uint64_t wanted, found, experts_wanted, experts_found;
};

/* Calls visit for each weight that the rules promise, optional ones too. */
typedef void visitor(struct ts_model *model, const struct ts_rule *rule, uint64_t layer, uint64_t expert, bool optional,
                     void *context);

static void visit_rule(struct ts_model *model, const struct ts_rule *rule, visitor *visit, void *context)
{
    const uint64_t layers = layers_of(model, rule), experts = experts_of(model, rule);
    if (model->skip_experts && (rule->needs & TS_WEIGHT_OF_EXPERTS))
        return;
    for (uint64_t layer = 0; layer < layers; layer++) {
        bool optional;
        if (!ts_promise_applies(model->promise, rule, layer, &optional))
            continue;
        for (uint64_t expert = 0; expert < experts; expert++)
            visit(model, rule, layer, expert, optional, context);
    }
}

static void visit_all(struct ts_model *model, visitor *visit, void *context)
{
    for (const struct ts_rule *const *list = model->promise->rules; *list; list++)
        for (const struct ts_rule *rule = *list; rule->name; rule++)
            visit_rule(model, rule, visit, context);
}

/* Weights that the rules for experts, or the others, could promise at most, or UINT64_MAX. */
static uint64_t most_wanted(const struct ts_model *model, bool of_experts)
{
    uint64_t total = 0;
    for (const struct ts_rule *const *list = model->promise->rules; *list; list++)
        for (const struct ts_rule *rule = *list; rule->name; rule++) {
            uint64_t count;
            if ((rule->needs & model->promise->absent) || of_experts != !!(rule->needs & TS_WEIGHT_OF_EXPERTS))
                continue;
            if (!ts_mul(layers_of(model, rule), experts_of(model, rule), &count) || !ts_add(total, count, &total))
                return UINT64_MAX;
        }
    return total;
}

static void count(struct ts_model *model, const struct ts_rule *rule, uint64_t layer, uint64_t expert, bool optional,
                  void *context)
{
    struct tally *tally = context;
    char name[NAME_ROOM];
    bool in_parts, here;
    if (optional)
        return;
    put_name(model, rule, layer, expert, name);
    here = find(model, name, &in_parts) != SIZE_MAX;
    tally->wanted++;
    tally->found += here;
    if (rule->needs & TS_WEIGHT_OF_EXPERTS) {
        tally->experts_wanted++;
        tally->experts_found += here;
    }
}

/* Base models are saved without "model.", multimodal ones put the text model deeper. */
static bool find_prefix(struct ts_model *model)
{
    const char *const prefixes[] = {
        model->promise->prefix, "", "language_model.model.", "model.language_model.", "language_model.", "text_model."};
    const char *best = NULL;
    struct tally best_tally = {0};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        struct tally tally = {0};
        model->prefix = prefixes[i];
        visit_all(model, count, &tally);
        if (tally.found > best_tally.found) {
            best = prefixes[i];
            best_tally = tally;
        }
        if (best_tally.found > best_tally.wanted / 2)
            break;
    }
    if (!best)
        return false;
    model->prefix = best;
    if (best_tally.experts_wanted && !best_tally.experts_found) {
        model->skip_experts = true;
        best_tally.wanted -= best_tally.experts_wanted;
    }
    return best_tally.found >= best_tally.wanted / 3;
}

static struct ts_tensor *tensor_at(const struct ts_model *model, size_t index)
{
    return model->checking->bundle->tensors[index];
}

/* Packed codes have the shape of their packing. Codecs may show a matrix transposed to how it is used. */
static bool shape_fits(const struct ts_model *model, const struct ts_rule *rule, uint64_t layer,
                       const struct ts_tensor *tensor)
{
    const unsigned rank = (unsigned)strlen(rule->shape);
    const enum ts_class kind = ts_type_info(tensor->type)->kind;
    unsigned matched = 0;
    if (tensor->type != TS_CODED && kind != TS_CLASS_FLOAT && kind != TS_CLASS_QUANT)
        return true;
    if (tensor->rank != rank)
        return false;
    for (unsigned i = 0; i < rank; i++) {
        uint64_t size = ts_promise_size(model->promise, rule, layer, i);
        bool fits = !size || size == tensor->shape[i];
        for (unsigned j = 0; j < rank && tensor->type == TS_CODED; j++)
            fits = fits || size == tensor->shape[j];
        matched += fits;
    }
    return matched == rank;
}

static void append_promised_shape(const struct ts_model *model, const struct ts_rule *rule, uint64_t layer,
                                  struct ts_buffer *out)
{
    ts_buffer_byte(out, '[');
    for (unsigned i = 0; rule->shape[i]; i++) {
        uint64_t size = ts_promise_size(model->promise, rule, layer, i);
        ts_buffer_string(out, i ? "," : "");
        if (size)
            ts_buffer_printf(out, "%" PRIu64, size);
        else
            ts_buffer_byte(out, '?');
    }
    ts_buffer_byte(out, ']');
}

/* What one rule found wrong. Places are kept up to a number that fits any list. */
#define PLACES 4096

struct verdict {
    uint64_t missing, misshapen;
    uint64_t layers[PLACES], experts[PLACES]; /* of the missing ones */
    struct ts_tensor *first_misshapen;
    uint64_t misshapen_layer;
};

static bool is_bare(const struct ts_model *model, uint64_t layer)
{
    size_t low = 0, high = model->bare_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (model->bare[middle] < layer)
            low = middle + 1;
        else
            high = middle;
    }
    return low < model->bare_count && model->bare[low] == layer;
}

static void judge(struct ts_model *model, const struct ts_rule *rule, uint64_t layer, uint64_t expert, bool optional,
                  void *context)
{
    struct verdict *verdict = context;
    char name[NAME_ROOM];
    bool in_parts;
    size_t found;
    put_name(model, rule, layer, expert, name);
    found = find(model, name, &in_parts);
    if (found == SIZE_MAX && (rule->needs & TS_WEIGHT_OUTSIDE))
        found = find(model, rule->name, &in_parts);
    if (found != SIZE_MAX) {
        model->expected[found] = true;
        if (!in_parts && !shape_fits(model, rule, layer, tensor_at(model, found)) && !verdict->misshapen++) {
            verdict->first_misshapen = tensor_at(model, found);
            verdict->misshapen_layer = layer;
        }
        return;
    }
    /* a backbone saved by itself has no head */
    if (optional || ts_table_get(&model->lost, name) != SIZE_MAX ||
        ((rule->needs & TS_WEIGHT_OUTSIDE) && !model->prefix[0]))
        return;
    if (runs_over(rule, '#') && is_bare(model, layer))
        return;
    if (verdict->missing < PLACES) {
        verdict->layers[verdict->missing] = layer;
        verdict->experts[verdict->missing] = expert;
    }
    verdict->missing++;
}

/* The rule's name with a list in the place of `letter`. */
static void append_listed(const struct ts_model *model, const struct ts_rule *rule, char letter,
                          const uint64_t *numbers, size_t count_of, uint64_t layer, uint64_t expert,
                          struct ts_buffer *out)
{
    ts_buffer_string(out, model->group->key);
    ts_buffer_string(out, rule->needs & TS_WEIGHT_OUTSIDE ? "" : model->prefix);
    for (const char *at = rule->name; *at; at++) {
        if (*at == letter) {
            ts_buffer_byte(out, '{');
            ts_check_ranges(out, numbers, count_of);
            ts_buffer_byte(out, '}');
        } else if (*at == '#' || *at == '@') {
            ts_buffer_printf(out, "%" PRIu64, *at == '#' ? layer : expert);
        } else {
            ts_buffer_byte(out, *at);
        }
    }
}

static bool all_equal(const uint64_t *numbers, size_t count_of)
{
    for (size_t i = 1; i < count_of; i++)
        if (numbers[i] != numbers[0])
            return false;
    return true;
}

static void tell_missing(struct ts_model *model, const struct ts_rule *rule, const struct verdict *verdict)
{
    const size_t kept = verdict->missing < PLACES ? (size_t)verdict->missing : PLACES;
    const char *hint = rule->needs & TS_WEIGHT_OUTSIDE ? ", which does not tie it to the embedding" : "";
    struct ts_buffer name;
    uint64_t others = 0;
    ts_buffer_init(&name, 1 << 16);
    if (kept > 1 && all_equal(verdict->experts, kept)) {
        append_listed(model, rule, '#', verdict->layers, kept, 0, verdict->experts[0], &name);
    } else if (kept > 1 && all_equal(verdict->layers, kept)) {
        append_listed(model, rule, '@', verdict->experts, kept, verdict->layers[0], 0, &name);
    } else {
        append_listed(model, rule, '\0', NULL, 0, verdict->layers[0], verdict->experts[0], &name);
        others = verdict->missing - 1;
    }
    if (others)
        ts_check_add(model->checking, "missing-weight", TS_FAULT, name.data,
                     "config.json (%s) promises it and %" PRIu64 " like it in other layers, and they are not there",
                     model->promise->family, others);
    else
        ts_check_add(model->checking, "missing-weight", TS_FAULT, name.data,
                     "config.json (%s%s) promises it, and it is not there", model->promise->family, hint);
    ts_buffer_release(&name);
}

static void tell_misshapen(struct ts_model *model, const struct ts_rule *rule, const struct verdict *verdict)
{
    struct ts_buffer text;
    ts_buffer_init(&text, 8192);
    ts_buffer_string(&text, "has shape ");
    ts_tensor_shape_text(verdict->first_misshapen, &text);
    ts_buffer_string(&text, ", and config.json makes it ");
    append_promised_shape(model, rule, verdict->misshapen_layer, &text);
    if (verdict->misshapen > 1)
        ts_buffer_printf(&text, "; so have %" PRIu64 " others of its kind", verdict->misshapen - 1);
    ts_check_add(model->checking, "shape", TS_FAULT, verdict->first_misshapen->name, "%s", text.data ? text.data : "");
    ts_buffer_release(&text);
}

static void tell_rules(struct ts_model *model)
{
    struct verdict *verdict = malloc(sizeof *verdict);
    if (!verdict) {
        model->checking->failed = true;
        return;
    }
    for (const struct ts_rule *const *list = model->promise->rules; *list; list++)
        for (const struct ts_rule *rule = *list; rule->name; rule++) {
            verdict->missing = verdict->misshapen = 0;
            visit_rule(model, rule, judge, verdict);
            if (verdict->missing)
                tell_missing(model, rule, verdict);
            if (verdict->misshapen)
                tell_misshapen(model, rule, verdict);
        }
    free(verdict);
}

void ts_model_put_layers(const struct ts_model *model, const uint64_t *layers, size_t count_of, struct ts_buffer *out)
{
    ts_buffer_printf(out, "%s%s%s{", model->group->key, model->prefix,
                     strcmp(model->promise->prefix, "transformer.") == 0 ? "h." : "layers.");
    ts_check_ranges(out, layers, count_of);
    ts_buffer_byte(out, '}');
}

/* Layers without a single weight are told as such, not weight by weight. */
static void tell_bare_layers(struct ts_model *model)
{
    const uint64_t layers = model->promise->layers;
    bool *seen = calloc((size_t)layers + 1, sizeof *seen);
    struct ts_buffer name;
    model->bare = calloc((size_t)layers + 1, sizeof *model->bare);
    if (!seen || !model->bare) {
        model->checking->failed = true;
        free(seen);
        return;
    }
    for (size_t i = 0; i < model->checking->bundle->count; i++) {
        const char *leaf = ts_check_leaf(tensor_at(model, i)->name);
        uint64_t layer;
        if (model->checking->group_of[i] == model->number && ts_starts_with(leaf, model->prefix) &&
            ts_layer_of(leaf, &layer) && layer < layers)
            seen[layer] = true;
    }
    for (uint64_t layer = 0; layer < layers; layer++)
        if (!seen[layer])
            model->bare[model->bare_count++] = layer;
    if (model->bare_count) {
        ts_buffer_init(&name, 4096);
        ts_model_put_layers(model, model->bare, model->bare_count, &name);
        ts_check_add(model->checking, "missing-weight", TS_FAULT, name.data,
                     "config.json says num_hidden_layers is %" PRIu64 ", and %s there", layers,
                     model->bare_count == 1 ? "nothing of this layer is" : "nothing of these layers is");
        ts_buffer_release(&name);
    }
    free(seen);
}

/* Tied by the config, and yet two different matrices: one of them is ignored when the model is loaded. */
static void tell_broken_tie(struct ts_model *model)
{
    const char *const inner = model->promise->rules[0]->name; /* the embedding comes first */
    char name[NAME_ROOM];
    size_t embedding, head;
    const struct ts_tensor *a, *b;
    const uint64_t piece = 4096;
    if (model->promise->head != TS_TIED)
        return;
    snprintf(name, sizeof name, "%s%s", model->prefix, inner);
    embedding = ts_table_get(&model->names, name);
    snprintf(name, sizeof name, "%.*slm_head.weight", outside_length(model->prefix), model->prefix);
    head = ts_table_get(&model->names, name);
    if (embedding == SIZE_MAX || head == SIZE_MAX)
        return;
    a = tensor_at(model, embedding);
    b = tensor_at(model, head);
    if (a->type == b->type && a->bytes == b->bytes) {
        const uint8_t *left = ts_tensor_bytes(a), *right = ts_tensor_bytes(b);
        uint64_t length = a->bytes < piece ? a->bytes : piece;
        if (!left || !right ||
            (memcmp(left, right, (size_t)length) == 0 &&
             memcmp(left + (a->bytes - length), right + (a->bytes - length), (size_t)length) == 0))
            return;
    }
    ts_check_add(model->checking, "tied-weights", TS_WARNING, b->name,
                 "config.json ties it to \"%s\", but the two differ", a->name);
}

/* Shards that are not there are told once, instead of all their weights. */
static bool is_whole(struct ts_checking *checking, const struct ts_check_group *group)
{
    const struct ts_bundle *bundle = checking->bundle;
    bool told = false;
    if (group->shards >= group->parts)
        return true;
    for (size_t i = 0; i < bundle->skip_count; i++)
        told = told || (!bundle->skips[i].harmless && strstr(bundle->skips[i].path, "-of-"));
    if (told)
        return false;
    if (group->key[0] || group->shards > 1)
        ts_check_add(checking, "missing-shard", TS_FAULT, NULL, "%u of %u shards are here%s%.*s", group->shards,
                     group->parts, group->key[0] ? ": " : "", (int)strcspn(group->key, ":"), group->key);
    else
        ts_check_add(checking, "missing-shard", TS_NOTE, NULL,
                     "this is one of %u shards; open their folder to compare them with config.json", group->parts);
    return false;
}

static void check_group(struct ts_model *model)
{
    const uint64_t most = model->group->count + 64;
    /* all experts of a layer in one tensor make for far fewer names than one each */
    model->skip_experts = most_wanted(model, true) / 3 > most;
    if (most_wanted(model, false) / 3 > most || !find_prefix(model))
        return;
    model->checking->groups[model->number].promised = true;
    if (model->skip_experts)
        ts_check_add(model->checking, "experts", TS_NOTE, NULL,
                     "the experts are stored in a layout that is not compared with config.json");
    tell_bare_layers(model);
    tell_rules(model);
    ts_model_tell_extra(model);
    tell_broken_tie(model);
}

static bool put_names(struct ts_model *model)
{
    const struct ts_bundle *bundle = model->checking->bundle;
    if (!ts_table_init(&model->names, model->group->count) || !ts_table_init(&model->lost, bundle->skip_count + 1) ||
        !(model->expected = calloc(bundle->count + 1, sizeof *model->expected)))
        return false;
    for (size_t i = 0; i < bundle->count; i++)
        if (model->checking->group_of[i] == model->number)
            ts_table_put(&model->names, ts_check_leaf(bundle->tensors[i]->name), i, NULL);
    for (size_t i = 0; i < bundle->skip_count; i++)
        ts_table_put(&model->lost, ts_check_leaf(bundle->skips[i].path), i, NULL);
    return true;
}

/* A folder of dumps may have thousands of groups; checkpoints are few. */
#define MAX_MODELS 64

static bool could_be_model(const struct ts_check_group *group, const struct ts_promise *promise)
{
    return group->count >= 3 && group->count >= promise->layers;
}

void ts_check_model(struct ts_checking *checking)
{
    const struct ts_bundle *bundle = checking->bundle;
    struct ts_config config = {0};
    struct ts_promise promise;
    struct ts_error error;
    unsigned models = 0;
    if (bundle->config && !ts_config_read(&config, bundle->config, &error))
        ts_check_add(checking, "config", TS_WARNING, NULL, "config.json cannot be read: %s", error.message);
    for (size_t i = 0; i < checking->group_count; i++)
        if (!is_whole(checking, &checking->groups[i]))
            checking->groups[i].promised = true; /* its gaps are the missing shards */
    if (bundle->config && config.settings && ts_promise_make(&config, &promise))
        for (size_t i = 0; i < checking->group_count && models < MAX_MODELS; i++) {
            struct ts_model model = {
                .checking = checking, .promise = &promise, .group = &checking->groups[i], .number = i};
            if (checking->groups[i].promised || !could_be_model(&checking->groups[i], &promise))
                continue;
            models++;
            if (put_names(&model))
                check_group(&model);
            else
                checking->failed = true;
            ts_table_release(&model.names);
            ts_table_release(&model.lost);
            free(model.expected);
            free(model.bare);
        }
    ts_config_release(&config);
}
