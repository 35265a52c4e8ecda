/* Owns what the names of one side have in common, which tells what numbers in them mean: those of dumps, of ranks, of
 * layers that only one engine calls so. */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "base/table.h"
#include "pair/caches.h"
#include "pair/namer.h"

/* How many words, besides those that are gone, stand before the file's or the tensor's own name. */
static unsigned words_in_front(const struct ts_words *words)
{
    unsigned in_front = 0, met = 0;
    for (unsigned i = 0; i < words->count; i++) {
        if (words->list[i].before == '/' || words->list[i].before == ':')
            in_front = met;
        met += !words->list[i].gone;
    }
    return in_front;
}

/* Numbers in front count the dumps when no two of a rank are equal and they are not simply layers: a layer is named
 * besides, or the rest of the names differs as well. Before them stand the words of a rank, rank0/0003_x, or words that
 * are the same in all names: these are counted by namer->in_front. */
static bool look_for_sequences(struct ts_namer *namer, const char *const *names, size_t count, struct ts_words *words)
{
    struct ts_arena *arena = namer->arena;
    const struct ts_arena_mark mark = ts_arena_mark(arena);
    struct ts_table numbers = {0}, of_ranks = {0}, rests = {0};
    size_t opened = 0, several = 0, distinct = 0, others = 0, layers = 0;
    const char *front = NULL;
    bool done = ts_table_init(&numbers, count) && ts_table_init(&of_ranks, count) && ts_table_init(&rests, count);
    for (size_t i = 0; i < count && opened == i && done; i++) {
        unsigned first, behind, opening;
        uint64_t layer;
        int64_t rank;
        char text[TS_NAME_ROOM];
        const char *number, *key;
        if (!names[i] || !ts_words_split(names[i], words))
            break;
        rank = ts_namer_take_rank(namer, words);
        ts_words_drop_wrappers(words);
        ts_namer_strip(words, namer->strip);
        opening = ts_words_next(words, 0);
        for (unsigned left = namer->in_front; left && opening < words->count; left--)
            opening = ts_words_next(words, opening + 1);
        ts_words_join(words, 0, opening, text);
        if (opening + 1 >= words->count || !words->list[opening].number || (front && strcmp(front, text) != 0))
            break;
        opened++;
        front = front ? front : ts_arena_string(arena, text);
        number = ts_arena_printf(arena, "%" PRIu64, words->list[opening].value);
        key = ts_arena_printf(arena, "%" PRId64 " %" PRIu64, rank, words->list[opening].value);
        done = front && number && key;
        several += done && ts_table_put(&numbers, number, i, NULL);
        distinct += done && ts_table_put(&of_ranks, key, i, NULL);
        words->list[opening].gone = true;
        layers += ts_words_find_layer(words, true, &first, &behind, &layer);
        key = ts_arena_printf(arena, "%" PRId64 " %s", rank, ts_words_join(words, opening, words->count, text));
        done = done && key != NULL;
        others += done && ts_table_put(&rests, key, i, NULL);
    }
    namer->sequences =
        several > 1 && opened == count && distinct == count && (layers * 2 > count || others * 5 >= count * 4);
    ts_table_release(&numbers);
    ts_table_release(&of_ranks);
    ts_table_release(&rests);
    ts_arena_rewind(arena, mark);
    return done;
}

/* model_0/, model_1/ or part0:, part1: are ranks when every tensor stands under such a number, and most stand under all
 * of them. any: after any word, when no number is left out. */
static bool look_for_folders(const char *const *names, size_t count, struct ts_words *words, struct ts_arena *arena,
                             bool any, bool *folders)
{
    const struct ts_arena_mark mark = ts_arena_mark(arena);
    int64_t least = INT64_MAX, most = 0;
    struct ts_table numbers = {0}, rests = {0}, both = {0};
    size_t distinct = 0, others = 0, pairs = 0, seen = 0;
    bool done = true;
    *folders = false;
    for (; seen < count && done; seen++) {
        char text[TS_NAME_ROOM];
        const char *key, *rest, *number;
        int64_t rank;
        if (!names[seen] || !ts_words_split(names[seen], words) || ts_words_take_rank(words) >= 0 ||
            (rank = ts_words_take_folder_rank(words, any)) < 0)
            break;
        least = rank < least ? rank : least;
        most = rank > most ? rank : most;
        if (!seen)
            done = ts_table_init(&numbers, count) && ts_table_init(&rests, count) && ts_table_init(&both, count);
        ts_words_join(words, 0, words->count, text);
        number = ts_arena_printf(arena, "%" PRId64, rank);
        rest = ts_arena_string(arena, text);
        key = ts_arena_printf(arena, "%" PRId64 " %s", rank, text);
        done = done && number && rest && key;
        distinct += done && ts_table_put(&numbers, number, seen, NULL);
        others += done && ts_table_put(&rests, rest, seen, NULL);
        pairs += done && ts_table_put(&both, key, seen, NULL);
    }
    *folders = done && seen == count && distinct > 1 && pairs == count && count * 2 >= distinct * others &&
               others * 2 <= count && (!any || (least <= 1 && most - least == (int64_t)distinct - 1));
    ts_table_release(&numbers);
    ts_table_release(&rests);
    ts_table_release(&both);
    ts_arena_rewind(arena, mark);
    return done;
}

/* Where no name says its layer in words that anybody knows: numbers behind the same words in most names are those of
 * layers when what stands behind them are parts of a layer. */
static bool look_for_own_layers(struct ts_namer *namer, const char *const *names, size_t count, struct ts_words *words)
{
    const char *own = NULL;
    size_t met = 0, parts = 0;
    uint64_t first_number = 0;
    bool several = false;
    for (size_t k = 0; k < count; k++) {
        const size_t i = (k + count / 2) % count; /* what stands in the middle is likely in a layer */
        char text[TS_NAME_ROOM];
        unsigned first, behind, last;
        uint64_t number;
        int64_t ignored;
        bool parameter;
        if (!ts_namer_open(namer, names[i], words, &ignored, &ignored))
            continue;
        if (ts_words_find_layer(words, namer->sequences, &first, &behind, &number))
            return true;
        if (!ts_words_find_number(words, &first, &behind, &number, text))
            continue;
        if (!own && !(own = ts_arena_string(namer->arena, text)))
            return false;
        if (strcmp(own, text) != 0)
            continue;
        several = several || (met && number != first_number);
        first_number = met++ ? first_number : number;
        for (last = words->count; last > behind && words->list[last - 1].gone;)
            last--;
        parameter = last > behind + 1 && ts_namer_ending(words, last - 1)[0];
        ts_words_join(words, behind, parameter ? last - 1 : last, text);
        parts += ts_namer_layer_row(namer, "", text, parameter) != NULL;
    }
    if (several && parts * 2 > met && met * 2 > count)
        namer->own = own;
    return true;
}

/* The same for numbers at the end, q_proj_3: when most names are parts of a layer without them, and the parts have the
 * same numbers. What such a name is about in a layer may be numbered itself, norm1 and norm2. */
static bool look_for_trailing(struct ts_namer *namer, const char *const *names, size_t count, struct ts_words *words)
{
    const struct ts_arena_mark mark = ts_arena_mark(namer->arena);
    struct ts_table seen = {0}, layers = {0};
    size_t met = 0, bases = 0, numbers = 0;
    bool done = ts_table_init(&seen, count) && ts_table_init(&layers, count);
    for (size_t i = 0; i < count && done; i++) {
        char text[TS_NAME_ROOM];
        const char *base, *digits;
        unsigned first, behind;
        uint64_t number;
        int64_t ignored;
        if (!ts_namer_open(namer, names[i], words, &ignored, &ignored))
            continue;
        if (ts_words_find_layer(words, namer->sequences, &first, &behind, &number)) {
            met = 0;
            break;
        }
        if (!ts_words_take_last_number(words, &number) || !ts_namer_is_part(namer, words, 0, words->count))
            continue;
        base = ts_arena_string(namer->arena, ts_words_join(words, 0, words->count, text));
        digits = ts_arena_printf(namer->arena, "%" PRIu64, number);
        done = base && digits;
        met++;
        bases += done && ts_table_put(&seen, base, i, NULL);
        numbers += done && ts_table_put(&layers, digits, i, NULL);
    }
    namer->trailing = done && numbers > 1 && bases > 1 && met * 2 > count && met * 4 >= 3 * bases * numbers;
    ts_table_release(&seen);
    ts_table_release(&layers);
    ts_arena_rewind(namer->arena, mark);
    return done;
}

/* Words that all names begin with and that leave something behind; none that says which part of a model it is. */
static unsigned common_words(const struct ts_namer *namer, const char *const *names, size_t count, struct ts_words *one,
                             struct ts_words *two)
{
    unsigned common = TS_NAME_WORDS;
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        unsigned here = 0;
        if (!names[i])
            continue;
        if (!ts_words_split(names[i], any ? two : one))
            return 0;
        (void)ts_namer_take_rank(namer, any ? two : one);
        if (!any) {
            common = one->count - 1;
            any = true;
            continue;
        }
        for (unsigned a = 0, b = 0; here < common; a++, b++, here++) {
            a = ts_words_next(one, a);
            b = ts_words_next(two, b);
            if (a + 1 >= one->count || b + 1 >= two->count || one->list[a].number || ts_namer_tower(one, a) ||
                strcmp(one->list[a].text, two->list[b].text) != 0 ||
                (one->list[a + 1].number && two->list[b + 1].number))
                break;
        }
        common = here;
    }
    return any && count > 1 ? common : 0;
}

/* Every word of the witness stands in some name. */
static bool is_witnessed(const char *witness, const char *const *names, size_t count)
{
    for (const char *at = witness; *at;) {
        char word[64];
        size_t length = strcspn(at, " "), i = 0;
        if (length >= sizeof word)
            return false;
        memcpy(word, at, length);
        word[length] = '\0';
        while (i < count && !(names[i] && strstr(names[i], word)))
            i++;
        if (i == count)
            return false;
        at += length;
        at += *at == ' ';
    }
    return true;
}

/* Conventions that one name shows for all. */
static void look_for_conventions(struct ts_namer *namer, const char *const *names, size_t count)
{
    for (size_t i = 0; ts_name_habits[i].witness; i++) {
        const bool again = i > 0 && strcmp(ts_name_habits[i].witness, ts_name_habits[i - 1].witness) == 0;
        namer->habits[i] = again ? namer->habits[i - 1] : is_witnessed(ts_name_habits[i].witness, names, count);
    }
    for (size_t i = 0; ts_scope_rows[i].witness; i++)
        namer->scopes[i] = is_witnessed(ts_scope_rows[i].witness, names, count);
}

size_t ts_namer_same_ending(const char *const *names, size_t count, struct ts_words *words)
{
    static const char counted[] = "rank step layer layers block blocks expert experts tp pp gpu device shard worker "
                                  "stage pass iter token head";
    const size_t size = count > 3 && names[0] ? strlen(names[0]) : 0;
    size_t length = 0, layers = 0;
    const char *ending;
    int64_t unused;
    bool number;
    while (length < size && isalnum((unsigned char)names[0][size - 1 - length]))
        length++;
    if (!length || length + 1 >= size)
        return 0;
    ending = names[0] + size - ++length;
    number = strspn(ending + 1, "0123456789") == length - 1;
    if (!strchr(":._-/", *ending) || (!number && !ts_word_in(ending + 1, "output out")))
        return 0;
    for (size_t i = 0; i < count; i++) {
        const size_t own = names[i] ? strlen(names[i]) : 0;
        unsigned first, behind;
        uint64_t layer;
        if (own <= length || strcmp(names[i] + own - length, ending) != 0 ||
            (*ending == ':' && strchr(names[i], ':') != names[i] + own - length) || ts_cache_kind(names[i], &unused) ||
            !ts_words_split(names[i], words) || words->count < 2 ||
            (number && ts_word_in(words->list[words->count - 2].text, counted)))
            return 0;
        words->list[--words->count].gone = true;
        for (unsigned k = 0; k < words->count; k++)
            words->list[k].in_file = words->list[k].in_file && *ending != ':';
        layers += ts_words_find_layer(words, false, &first, &behind, &layer);
    }
    return *ending == ':' || layers * 2 > count ? length : 0;
}

bool ts_namer_find_habits(struct ts_namer *namer, const char *const *names, size_t count, bool folders,
                          struct ts_words *words, unsigned *common)
{
    bool done = !folders || look_for_folders(names, count, words, namer->arena, false, &namer->folders);
    if (done && folders && !namer->folders) {
        namer->any_word = true;
        done = look_for_folders(names, count, words, namer->arena, true, &namer->folders);
    }
    done = done && look_for_sequences(namer, names, count, words);
    if (done && !namer->sequences && count && names[0] && ts_words_split(names[0], words)) {
        (void)ts_namer_take_rank(namer, words);
        ts_words_drop_wrappers(words);
        ts_namer_strip(words, namer->strip);
        namer->in_front = words_in_front(words);
        done = !namer->in_front || look_for_sequences(namer, names, count, words);
        namer->in_front = namer->sequences ? namer->in_front : 0;
    }
    done = done && (namer->sequences || look_for_own_layers(namer, names, count, words));
    done = done && (namer->sequences || namer->own || look_for_trailing(namer, names, count, words));
    if (!done)
        return false;
    look_for_conventions(namer, names, count);
    *common = common_words(namer, names, count, &words[0], &words[1]);
    return true;
}
