/* Owns the taking apart of names: words, ranks, wrappers, and where a layer number stands. */
#include "pair/words.h"

#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

bool ts_words_split(const char *name, struct ts_words *words)
{
    size_t length = strlen(name);
    const char *file = strchr(name, ':');
    char *out = words->letters;
    char before = 0;
    words->count = 0;
    if (length > TS_NAME_LENGTH)
        return false;
    for (size_t at = 0; at < length;) {
        struct ts_word *word = &words->list[words->count];
        bool digits = true;
        if (!isalnum((unsigned char)name[at]) && name[at] != '#' && !((unsigned char)name[at] & 0x80)) {
            before = name[at++];
            continue;
        }
        if (words->count == TS_NAME_WORDS)
            return false;
        *word = (struct ts_word){.text = out, .before = before, .in_file = file && name + at < file};
        do { /* "#2" marks a second call of a module: it opens a word of its own */
            digits = digits && isdigit((unsigned char)name[at]);
            *out++ = (char)tolower((unsigned char)name[at++]);
        } while (at < length && (isalnum((unsigned char)name[at]) || ((unsigned char)name[at] & 0x80)));
        *out++ = '\0';
        word->number = digits && strlen(word->text) < 10;
        if (word->number)
            word->value = strtoull(word->text, NULL, 10);
        before = 0;
        words->count++;
    }
    return words->count > 0;
}

bool ts_word_in(const char *word, const char *list)
{
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

unsigned ts_words_next(const struct ts_words *words, unsigned i)
{
    while (i < words->count && words->list[i].gone)
        i++;
    return i;
}

bool ts_words_is(const struct ts_words *words, unsigned i, const char *text)
{
    return i < words->count && strcmp(words->list[i].text, text) == 0;
}

/* Room for the letters of a word that a number ends. */
#define LETTERS 32

/* "rank3" -> "rank" and 3. */
static bool ends_in_number(const char *word, char letters[LETTERS], uint64_t *number)
{
    size_t length = strcspn(word, "0123456789");
    if (length == 0 || length >= LETTERS || !word[length] || strlen(word + length) > 9 ||
        strspn(word + length, "0123456789") != strlen(word + length))
        return false;
    memcpy(letters, word, length);
    letters[length] = '\0';
    *number = strtoull(word + length, NULL, 10);
    return true;
}

/* "rank3" -> 3 for one of the words. */
static bool numbered(const char *word, const char *list, uint64_t *number)
{
    char letters[LETTERS];
    return ends_in_number(word, letters, number) && ts_word_in(letters, list);
}

int64_t ts_words_take_rank(struct ts_words *words)
{
    struct ts_word *list = words->list;
    for (unsigned i = 0; i < words->count; i++) {
        uint64_t number;
        if (numbered(list[i].text, "rank tp tprank mprank shard gpu device worker", &number)) {
            list[i].gone = true;
        } else if (ts_word_in(list[i].text, "rank tp shard gpu device worker consolidated") && i + 1 < words->count &&
                   list[i + 1].number) {
            list[i].gone = list[i + 1].gone = true;
            number = list[i + 1].value;
        } else if (list[i].number && (list[i].before == '-' || list[i].before == '.' || list[i].before == '_') &&
                   ts_words_is(words, i + 1, "of") && i + 2 < words->count && list[i + 2].number &&
                   list[i].value <= list[i + 2].value) {
            list[i].gone = list[i + 1].gone = list[i + 2].gone = true;
            number = list[i].value; /* from 0 or from 1: only the order counts */
        } else {
            continue;
        }
        /* mp_rank_01_003: the fourth stage of a pipeline */
        if (i + 3 < words->count && list[i + 1].gone && list[i + 2].number && list[i + 2].before == '_' &&
            !strncmp(list[i].text, "rank", 4) && (list[i + 3].before == '/' || !list[i + 3].in_file) &&
            (list[i + 3].before == '/' || list[i + 2].in_file))
            list[i + 2].gone = true;
        if (i > 0 && ts_word_in(list[i - 1].text, "tp mp tensor parallel model") && !strncmp(list[i].text, "rank", 4))
            list[i - 1].gone = true;
        return (int64_t)number;
    }
    return -1;
}

/* A word in front of a number that may count ranks. any: whatever does not count something else for sure. */
static bool counts_ranks(const char *word, bool any)
{
    if (any)
        return !ts_word_in(word,
                           "layers layer h l blocks block blk step steps iter iteration pass call token tokens "
                           "tok batch sample prompt epoch checkpoint ckpt expert experts head heads f fp bf int q");
    return ts_word_in(word, "model part partition split chunk piece cuda npu xpu card dev proc process node host pe");
}

int64_t ts_words_take_folder_rank(struct ts_words *words, bool any)
{
    struct ts_word *list = words->list;
    for (unsigned i = 0; i + 1 < words->count; i++) {
        uint64_t number;
        char letters[LETTERS];
        if (list[i + 1].before != '/' && (!list[i].in_file || list[i + 1].in_file))
            continue; /* not the end of a folder's or a file's name */
        if (ends_in_number(list[i].text, letters, &number) && counts_ranks(letters, any)) {
            list[i].gone = true;
            return (int64_t)number;
        }
        if (list[i].number && i > 0 && list[i].before != '/' && !list[i - 1].number &&
            counts_ranks(list[i - 1].text, any)) {
            list[i].gone = true;
            list[i - 1].gone = list[i - 1].gone || !any; /* trace_0: the file is called trace */
            return (int64_t)list[i].value;
        }
    }
    return -1;
}

/* MaxText's MoeBlock_0.wi_0, DeepSeekMoeBlock_0.MoeBlock_0.wi_0, moe_block.wi_0 and mlp.MoeBlock_0.wi_0 are moe.wi_0:
 * the number counts modules of one class inside of a layer, and no layers. */
static void drop_numbered_modules(struct ts_words *words)
{
    struct ts_word *list = words->list;
    unsigned first = words->count;
    for (unsigned i = 0; i + 2 < words->count; i++) {
        const bool counted = ts_ends_with(list[i].text, "moeblock") && ts_words_is(words, i + 1, "0");
        const bool plain =
            ts_words_is(words, i, "moe") && ts_words_is(words, i + 1, "block") &&
            (ts_word_in(list[i + 2].text, "gate wi wo shared") || ts_ends_with(list[i + 2].text, "moeblock"));
        if (!counted && !plain)
            continue;
        list[i + 1].gone = true;
        if (first < i)
            list[i].gone = true;
        else
            list[first = i].text = "moe";
        if (i > 0 && ts_words_is(words, i - 1, "mlp"))
            list[i - 1].gone = true;
    }
}

void ts_words_drop_wrappers(struct ts_words *words)
{
    static const char *const wrappers[][3] = {{"orig", "mod", ""},
                                              {"fsdp", "wrapped", "module"},
                                              {"checkpoint", "wrapped", "module"},
                                              {"forward", "module", ""},
                                              {"state", "dict", ""}};
    struct ts_word *list = words->list;
    for (unsigned i = 0; i < words->count; i++)
        for (size_t k = 0; k < sizeof wrappers / sizeof *wrappers; k++) {
            unsigned length = wrappers[k][2][0] ? 3 : 2;
            bool all = i + length < words->count;
            for (unsigned j = 0; j < length && all; j++)
                all = ts_words_is(words, i + j, wrappers[k][j]);
            for (unsigned j = 0; j < length && all; j++)
                list[i + j].gone = true;
        }
    for (unsigned i = 1; i + 2 < words->count; i++) /* a module that an adapter was put around */
        if (ts_words_is(words, i, "base") && ts_words_is(words, i + 1, "layer") &&
            ts_word_in(list[i + 2].text, "weight bias"))
            list[i].gone = list[i + 1].gone = true;
    drop_numbered_modules(words);
    if (words->count > 1 && list[words->count - 1].before == '.' &&
        ts_word_in(list[words->count - 1].text, "pth pt npy bin txt safetensors pkl f32"))
        list[words->count - 1].gone = true;
}

#define LAYER_WORDS "layers layer h blocks block blk resblocks"

/* One of them, or a word that ends so: decoderlayer, transformerblocks. */
static bool says_layer(const char *word)
{
    return ts_word_in(word, LAYER_WORDS) || ts_ends_with(word, "layer") || ts_ends_with(word, "layers") ||
           ts_ends_with(word, "block") || ts_ends_with(word, "blocks");
}

bool ts_words_find_layer(const struct ts_words *words, bool sequences, unsigned *first, unsigned *behind,
                         uint64_t *layer)
{
    const struct ts_word *list = words->list;
    unsigned opening = ts_words_next(words, 0), last = words->count;
    while (last > 0 && list[last - 1].gone)
        last--;
    for (unsigned i = opening; i < last; i++) {
        const char *word = list[i].text;
        char letters[LETTERS];
        uint64_t number;
        if (list[i].gone)
            continue;
        if (i + 2 < last && list[i + 2].number && says_layer(word) &&
            ts_word_in(list[i + 1].text, "idx index id num no number")) {
            *first = i;
            *behind = i + 3;
            *layer = list[i + 2].value;
            return true;
        }
        if (i + 1 < last && list[i + 1].number && says_layer(word)) {
            *first = i;
            *behind = i + 2;
            *layer = list[i + 1].value;
            while (*first > opening && ts_word_in(list[*first - 1].text, LAYER_WORDS)) /* layers.layers.3 */
                --*first;
            return true;
        }
        if (numbered(word, "layer layers block blk l", &number) ||
            (ends_in_number(word, letters, &number) && strlen(letters) > 5 && says_layer(letters))) {
            *first = i;
            *behind = i + 1;
            *layer = number;
            return true;
        }
        if (strcmp(word, "rope") == 0 && ts_words_is(words, i + 1, "call") && i + 2 < last && list[i + 2].number) {
            *first = i; /* the words stay: they say what it is */
            *behind = i;
            *layer = list[i + 2].value;
            return true;
        }
        /* a number that opens a file's name: 3_query */
        if (!sequences && list[i].number && i + 1 < last &&
            (i == opening || list[i].before == '/' || list[i].before == ':')) {
            *first = i;
            *behind = i + 1;
            *layer = list[i].value;
            return true;
        }
    }
    /* transformer_encoder.3.ffn_norm */
    for (unsigned i = opening; i + 2 < last; i++)
        if (list[i + 1].number && ts_word_in(list[i].text, "encoder convnext posnet deepstack list projectors")) {
            *first = i + (strcmp(list[i].text, "encoder") != 0); /* the others say which part of a model it is */
            *behind = i + 2;
            *layer = list[i + 1].value;
            return true;
        }
    /* Qcur-3, as llama.cpp's callbacks name what they see */
    if (last >= opening + 2 && list[last - 1].number && list[last - 1].before == '-') {
        while (opening + 1 < last && list[opening].in_file &&
               !list[last - 1].in_file) /* the file says something else */
            opening = ts_words_next(words, opening + 1);
        *first = opening;
        *behind = opening;
        *layer = list[last - 1].value;
        return true;
    }
    return false;
}

bool ts_words_take_last_number(struct ts_words *words, uint64_t *number)
{
    unsigned last = words->count;
    char letters[LETTERS];
    while (last > 0 && words->list[last - 1].gone)
        last--;
    if (last > ts_words_next(words, 0) + 1 && words->list[last - 1].number) {
        *number = words->list[last - 1].value;
        words->list[last - 1].gone = true;
        return true;
    }
    if (last == 0 || !ends_in_number(words->list[last - 1].text, letters, number))
        return false;
    words->letters[words->list[last - 1].text - words->letters + (ptrdiff_t)strlen(letters)] = '\0';
    return true;
}

bool ts_words_find_number(const struct ts_words *words, unsigned *first, unsigned *behind, uint64_t *number, char *own)
{
    const struct ts_word *list = words->list;
    for (unsigned i = ts_words_next(words, 0); i + 1 < words->count; i++) {
        char letters[LETTERS];
        if (list[i].gone || list[i].in_file)
            continue;
        if (list[i].number && i > 0 && !list[i - 1].gone && !list[i - 1].in_file) {
            *first = i - 1;
            *number = list[i].value;
            ts_words_join(words, 0, i, own);
        } else if (ends_in_number(list[i].text, letters, number)) {
            size_t length = strlen(ts_words_join(words, 0, i, own));
            *first = i;
            memcpy(own + length, letters, strlen(letters) + 1); /* behind the others, without a mark between */
        } else {
            continue;
        }
        *behind = i + 1;
        return true;
    }
    return false;
}

char *ts_words_join(const struct ts_words *words, unsigned from, unsigned to, char *out)
{
    char *at = out;
    for (unsigned i = from; i < to; i++) {
        size_t length = strlen(words->list[i].text);
        if (words->list[i].gone)
            continue;
        if (at > out)
            *at++ = '_';
        memcpy(at, words->list[i].text, length);
        at += length;
    }
    *at = '\0';
    return out;
}
