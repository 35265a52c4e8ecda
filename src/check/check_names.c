/* Owns what the check reads out of names: which file, which layer, what kind of tensor. Names decide severities only:
 * what is found is found in bytes and descriptions. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/ordered.h"
#include "base/table.h"
#include "base/text.h"
#include "check/check_internal.h"
#include "tensor/layer.h"

/* "model:lm_head.weight" -> "lm_head.weight". TensorFlow's "kernel:0" stays whole. */
const char *ts_check_leaf(const char *name)
{
    const char *colon = strchr(name, ':');
    if (!colon || !colon[1] || strspn(colon + 1, "0123456789") == strlen(colon + 1))
        return name;
    return colon + 1;
}

static const char *last_part(const char *name)
{
    const char *leaf = ts_check_leaf(name), *slash = strrchr(leaf, '/');
    return slash && slash[1] ? slash + 1 : leaf;
}

bool ts_check_says(const char *name, const char *words)
{
    const char *part = last_part(name);
    while (*words) {
        size_t length = strcspn(words, " ");
        for (const char *at = part; *at; at++)
            if (strncasecmp(at, words, length) == 0)
                return true;
        words += length + (words[length] == ' ');
    }
    return false;
}

bool ts_check_has_word(const char *name, const char *words)
{
    const char *part = last_part(name);
    while (*part) {
        size_t length = 0;
        while (isalnum((unsigned char)part[length]))
            length++;
        for (const char *word = words; length && *word;) {
            size_t size = strcspn(word, " ");
            if (size == length && strncasecmp(part, word, length) == 0)
                return true;
            word += size + (word[size] == ' ');
        }
        part += length + (part[length] != '\0');
    }
    return false;
}

bool ts_check_is_embedding(const char *name)
{
    return ts_check_says(name, "embed wte wpe lm_head token_embd embd tok_emb word_emb proj_out vocab") ||
           strcmp(ts_check_leaf(name), "output.weight") == 0 || strcmp(ts_check_leaf(name), "shared.weight") == 0 ||
           ts_ends_with(name, ".shared.weight") || ts_ends_with(name, ".decoder.weight");
}

bool ts_check_is_mask(const char *name)
{
    return ts_check_says(name, "mask bias score logit");
}

bool ts_check_is_weight(const char *name)
{
    return ts_ends_with(name, "weight") || ts_ends_with(name, ".bias") || ts_ends_with(name, "_bias") ||
           ts_ends_with(name, "weight_packed") || ts_ends_with(name, "_blocks");
}

bool ts_check_layer_place(const char *name, uint64_t *layer, size_t *start, size_t *end)
{
    /* ts_layer_of reads from the left and says only the number: the first beginning of the name that has one ends with
     * it. A word that opens a name ("3_query") is seen with the character behind it. */
    char beginning[512];
    size_t length = strlen(name);
    if (!ts_layer_of(name, layer))
        return false;
    for (size_t at = 0; at < length && at + 1 < sizeof beginning; at++) {
        uint64_t number;
        if (!isdigit((unsigned char)name[at]) || isdigit((unsigned char)name[at + 1]))
            continue;
        memcpy(beginning, name, at + 2);
        beginning[at + 2 < sizeof beginning ? at + 2 : at + 1] = '\0';
        if (!ts_layer_of(beginning, &number) || number != *layer)
            continue;
        *end = at + 1;
        for (*start = at; *start > 0 && isdigit((unsigned char)name[*start - 1]);)
            (*start)--;
        return true;
    }
    return false;
}

/* "-00002-of-00005" in a file's name, as Hugging Face and llama.cpp number shards: five digits and more. */
static bool shard_number(const char *text, size_t *digits_at, unsigned *number, unsigned *of)
{
    for (const char *at = text; (at = strstr(at, "-of-")); at++) {
        const char *start = at;
        unsigned long long first, second;
        while (start > text && isdigit((unsigned char)start[-1]))
            start--;
        if (at - start < 5 || at - start > 8 || start == text || start[-1] != '-' || strspn(at + 4, "0123456789") < 5)
            continue;
        first = strtoull(start, NULL, 10);
        second = strtoull(at + 4, NULL, 10);
        if (first < 1 || first > second || second > 100000)
            continue;
        *digits_at = (size_t)(start - text);
        *number = (unsigned)first;
        *of = (unsigned)second;
        return true;
    }
    return false;
}

/* What stands before the leaf, with the number of a shard blanked. */
static char *key_of(struct ts_checking *checking, const char *name)
{
    size_t length = (size_t)(ts_check_leaf(name) - name), at;
    unsigned number, of;
    char *key = ts_arena_copy(&checking->check->arena, name, length);
    if (key && shard_number(key, &at, &number, &of))
        for (; isdigit((unsigned char)key[at]); at++)
            key[at] = '#';
    return key;
}

static bool same_prefix(const char *a, const char *b)
{
    size_t length = (size_t)(ts_check_leaf(a) - a);
    return (size_t)(ts_check_leaf(b) - b) == length && memcmp(a, b, length) == 0;
}

struct shard {
    uint32_t group;
    unsigned number;
};

static int by_shard(const void *a, const void *b)
{
    const struct shard *left = a, *right = b;
    if (left->group != right->group)
        return left->group < right->group ? -1 : 1;
    return left->number < right->number ? -1 : left->number > right->number;
}

/* Notes which shard a stored tensor came from. */
static size_t add_shard(struct ts_checking *checking, size_t index, const struct ts_tensor *stored,
                        struct shard *shards, size_t count)
{
    struct ts_check_group *group = &checking->groups[checking->group_of[index]];
    size_t at;
    unsigned number, of;
    if (!stored->file || !shard_number(stored->file, &at, &number, &of))
        return count;
    group->parts = of > group->parts ? of : group->parts;
    shards[count] = (struct shard){checking->group_of[index], number};
    /* neighbours mostly come from one shard */
    return count && by_shard(&shards[count - 1], &shards[count]) == 0 ? count : count + 1;
}

/* How many of its shards a group has. */
static void count_shards(struct ts_checking *checking)
{
    const struct ts_bundle *bundle = checking->bundle;
    struct shard *shards;
    size_t count = 0, room = 1;
    for (size_t i = 0; i < bundle->count; i++)
        room += 1 + bundle->tensors[i]->part_count;
    shards = calloc(room, sizeof *shards);
    if (!shards) {
        checking->failed = true;
        return;
    }
    for (size_t i = 0; i < bundle->count; i++) {
        const struct ts_tensor *tensor = bundle->tensors[i];
        count = add_shard(checking, i, tensor, shards, count);
        for (size_t part = 0; part < tensor->part_count; part++)
            count = add_shard(checking, i, tensor->parts[part], shards, count);
    }
    qsort(shards, count, sizeof *shards, by_shard);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || by_shard(&shards[i], &shards[i - 1]) != 0)
            checking->groups[shards[i].group].shards++;
    free(shards);
}

void ts_check_groups(struct ts_checking *checking)
{
    const struct ts_bundle *bundle = checking->bundle;
    struct ts_table keys = {0};
    size_t prefixes = 1;
    for (size_t i = 1; i < bundle->count; i++)
        prefixes += !same_prefix(bundle->tensors[i - 1]->name, bundle->tensors[i]->name);
    checking->groups = calloc(prefixes, sizeof *checking->groups);
    checking->group_of = calloc(bundle->count + 1, sizeof *checking->group_of);
    if (!checking->groups || !checking->group_of || !ts_table_init(&keys, prefixes)) {
        checking->failed = true;
        return;
    }
    for (size_t i = 0; i < bundle->count; i++) {
        const char *name = bundle->tensors[i]->name;
        size_t group;
        if (i && same_prefix(bundle->tensors[i - 1]->name, name)) {
            group = checking->group_of[i - 1];
        } else {
            const char *key = key_of(checking, name);
            if (!key) {
                checking->failed = true;
                break;
            }
            group = ts_table_get(&keys, key);
            if (group == SIZE_MAX) {
                group = checking->group_count++;
                checking->groups[group].key = key;
                ts_table_put(&keys, key, group, NULL);
            }
        }
        checking->group_of[i] = (uint32_t)group;
        checking->groups[group].count++;
    }
    ts_table_release(&keys);
    if (!checking->failed)
        count_shards(checking);
}

size_t ts_check_sort_unique(uint64_t *numbers, size_t count)
{
    size_t kept = 0;
    qsort(numbers, count, sizeof *numbers, ts_by_number);
    for (size_t i = 0; i < count; i++)
        if (!kept || numbers[kept - 1] != numbers[i])
            numbers[kept++] = numbers[i];
    return kept;
}

void ts_check_ranges(struct ts_buffer *out, const uint64_t *numbers, size_t count)
{
    const unsigned most = 8;
    unsigned listed = 0;
    for (size_t i = 0; i < count; listed++) {
        size_t last = i;
        if (listed == most) {
            ts_buffer_string(out, ",...");
            return;
        }
        while (last + 1 < count && numbers[last + 1] == numbers[last] + 1)
            last++;
        ts_buffer_printf(out, "%s%" PRIu64, listed ? "," : "", numbers[i]);
        if (last > i)
            ts_buffer_printf(out, "..%" PRIu64, numbers[last]);
        i = last + 1;
    }
}

char *ts_check_place(const struct ts_tensor *tensor, uint64_t index, char text[TS_PLACE_TEXT])
{
    uint64_t at[TS_MAX_RANK];
    size_t used = 1;
    text[0] = '[';
    ts_flat_to_coordinates(tensor, index, at);
    for (unsigned i = 0; i < tensor->rank && used + 32 < TS_PLACE_TEXT; i++)
        used += (size_t)snprintf(text + used, TS_PLACE_TEXT - used, "%s%" PRIu64, i ? "," : "", at[i]);
    snprintf(text + used, TS_PLACE_TEXT - used, "]");
    return text;
}
