/* Owns the names of caches: every engine has its own for the keys and values of a layer, and most of them say nothing
 * of attention. past_key_values.3.0, past_key_values.3.key, present.3.key, key_cache.3, cache_k_l3, keys_3 and
 * layers.3.self_attn.k_cache are one. past_key_values.3 holds both, key_cache those of all layers. */
#include "pair/caches.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

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

const char *ts_cache_kind(const char *name, int64_t *layer)
{
    struct cache_name parts = {.count = 0};
    bool cache = false, key = false, value = false, wrapped = false;
    if (!split(name, &parts))
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
        key = key || ts_word_in(word, "k key keys kv");
        value = value || ts_word_in(word, "v value values kv");
        if (!ts_word_in(word, "past present cache caches k key keys v value values kv l layer layers model self attn "
                              "attention decoder module transformer h blocks"))
            return NULL;
    }
    cache = cache || (parts.count == 1 && parts.numbers == 1 && ts_word_in(parts.words[0], "keys values"));
    if (!cache || (parts.numbers && parts.values[0] >= MOST_LAYERS) ||
        (parts.numbers == 2 && (key || value || parts.values[1] > 1)))
        return NULL;
    *layer = parts.numbers ? (int64_t)parts.values[0] : -1;
    if (parts.numbers < 2)
        return key == value ? "attn_kv_cache" : key ? "attn_k_cache" : "attn_v_cache";
    return parts.values[1] ? "attn_v_cache" : "attn_k_cache";
}
