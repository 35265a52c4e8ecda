/* Owns the names of caches: every engine has its own for the keys and values of a layer, and most of them say nothing
 * of attention. past_key_values.3.0, past_key_values.3.key, present.3.key, key_cache.3, cache_k_l3 and
 * layers.3.self_attn.k_cache are one. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "pair/pairing.h"
#include "pair/words.h"

#define MOST_LAYERS 4096
#define MOST_WORDS  16

struct cache_name {
    char words[MOST_WORDS][16];
    size_t count, numbers;
    uint64_t values[2];
};

/* Letters and digits apart, in lower case. False where there is more than any cache is called. */
static bool split(const char *name, struct cache_name *out)
{
    while (*name) {
        const bool digit = isdigit((unsigned char)*name);
        char word[16];
        size_t length = 0;
        if (!isalnum((unsigned char)*name)) {
            name++;
            continue;
        }
        for (; isalnum((unsigned char)*name) && !isdigit((unsigned char)*name) == !digit; name++) {
            if (length + 1 == sizeof word)
                return false;
            word[length++] = (char)tolower((unsigned char)*name);
        }
        word[length] = '\0';
        if (digit ? out->numbers == 2 || length > 9 : out->count == MOST_WORDS)
            return false;
        if (digit)
            out->values[out->numbers++] = strtoull(word, NULL, 10);
        else
            memcpy(out->words[out->count++], word, sizeof word);
    }
    return true;
}

/* "k" or "v", and of which layer; NULL for what is no cache, or both in one. */
static const char *read_cache(const char *name, uint64_t *layer)
{
    struct cache_name parts = {.count = 0};
    bool cache = false, key = false, value = false, wrapped = false;
    if (!split(name, &parts) || parts.numbers == 0)
        return NULL;
    for (size_t i = 0; i + 2 < parts.count && !wrapped; i++) /* what all of them are in */
        if (ts_word_in(parts.words[i], "past present") && strcmp(parts.words[i + 1], "key") == 0 &&
            ts_word_in(parts.words[i + 2], "value values")) {
            memcpy(parts.words[i + 1], "cache", sizeof "cache");
            memcpy(parts.words[i + 2], "cache", sizeof "cache");
            wrapped = true;
        }
    for (size_t i = 0; i < parts.count; i++) {
        const char *word = parts.words[i];
        cache = cache || ts_word_in(word, "past present cache caches");
        key = key || ts_word_in(word, "k key keys");
        value = value || ts_word_in(word, "v value values");
        if (!ts_word_in(word, "past present cache caches k key keys v value values l layer layers model self attn "
                              "attention decoder module transformer h blocks"))
            return NULL;
    }
    *layer = parts.values[0];
    if (!cache || *layer >= MOST_LAYERS)
        return NULL;
    if (parts.numbers == 1)
        return key == value ? NULL : key ? "k" : "v";
    return key || value || parts.values[1] > 1 ? NULL : parts.values[1] ? "v" : "k";
}

/* Where both sides have some: a side alone keeps its names. */
static bool has_caches(const struct ts_side *side)
{
    uint64_t layer;
    for (size_t i = 0; i < side->count; i++)
        if (read_cache(side->names[i], &layer))
            return true;
    return false;
}

/* Those that the other side does not call the same, and one of each: a dump may hold a cache twice. */
static enum ts_status rename_side(struct ts_pairer *pairer, struct ts_side *side, const struct ts_table *others,
                                  struct ts_error *error)
{
    struct ts_table names = {0};
    enum ts_status status = ts_table_init(&names, 2 * side->count) ? TS_OK : ts_fail_memory(error);
    for (size_t i = 0; i < side->count && status == TS_OK; i++)
        ts_table_put(&names, side->names[i], i, NULL);
    for (size_t i = 0; i < side->count && status == TS_OK; i++) {
        uint64_t layer;
        const char *what = read_cache(side->names[i], &layer), *name;
        if (!what || ts_table_get(others, side->names[i]) != SIZE_MAX)
            continue;
        name = ts_arena_printf(&pairer->scratch, "model.layers.%" PRIu64 ".self_attn.%s_cache", layer, what);
        if (!name)
            status = ts_fail_memory(error);
        else if (ts_table_put(&names, name, i, NULL))
            side->names[i] = name;
    }
    ts_table_release(&names);
    return status;
}

enum ts_status ts_match_caches(struct ts_pairer *pairer, struct ts_error *error)
{
    struct ts_side *sides[2] = {&pairer->a, &pairer->b};
    struct ts_table names[2] = {{0}};
    enum ts_status status = TS_OK;
    if (!has_caches(sides[0]) || !has_caches(sides[1]))
        return TS_OK;
    for (int s = 0; s < 2; s++) {
        if (status == TS_OK && !ts_table_init(&names[s], sides[s]->count))
            status = ts_fail_memory(error);
        for (size_t i = 0; i < sides[s]->count && status == TS_OK; i++)
            ts_table_put(&names[s], sides[s]->names[i], i, NULL);
    }
    for (int s = 0; s < 2 && status == TS_OK; s++)
        status = rename_side(pairer, sides[s], &names[1 - s], error);
    ts_table_release(&names[0]);
    ts_table_release(&names[1]);
    return status;
}
