/* Words: a tensor's name taken apart. Internal to names.c, name_habits.c, hidden.c and words.c. */
#ifndef TS_PAIR_WORDS_H
#define TS_PAIR_WORDS_H

#include <stdbool.h>
#include <stdint.h>

/* Longer names, or names of more words, are taken as they stand. */
#define TS_NAME_LENGTH 1000
#define TS_NAME_WORDS  64
/* Room for the words of a name joined again. */
#define TS_NAME_ROOM (2 * TS_NAME_LENGTH + 32)

struct ts_word {
    const char *text; /* NUL-terminated, lower case */
    char before;      /* the separator in front, 0 at the start */
    bool number, in_file, gone;
    uint64_t value;
};

struct ts_words {
    char letters[TS_NAME_ROOM];
    struct ts_word list[TS_NAME_WORDS];
    unsigned count;
};

/* False for a name without words or with too many. Words before the first ':' are in_file. */
bool ts_words_split(const char *name, struct ts_words *words);
/* Words [from, to) that are not gone, joined by '_'. Returns out, which has TS_NAME_ROOM. */
char *ts_words_join(const struct ts_words *words, unsigned from, unsigned to, char *out);
/* The first word from i on that is not gone; count when there is none. */
unsigned ts_words_next(const struct ts_words *words, unsigned i);
bool ts_words_is(const struct ts_words *words, unsigned i, const char *text); /* false behind the end */
bool ts_word_in(const char *word, const char *list);                          /* a list separated by blanks */

/* Marks as gone what says the rank of a tensor-parallel run and gives it; -1 when nothing does. rank0, rank_0,
 * tp_rank_0, mp_rank_00, tp0, shard0, gpu0, device_0, worker0, Meta's consolidated.00, and "00001-of-00008". */
int64_t ts_words_take_rank(struct ts_words *words);
/* The same for words that say it less clearly, at the end of a folder's or a file's name: model_0/, part1/, cuda_0:;
 * any: also for words that say nothing, dump.0:. Whether they mean ranks only all names together can tell. */
int64_t ts_words_take_folder_rank(struct ts_words *words, bool any);
/* Marks as gone what frameworks wrap around a module, and file types at the end. */
void ts_words_drop_wrappers(struct ts_words *words);
/* Where the layer number stands: words [*first, *behind) say it; *first equals *behind when the number stands elsewhere
 * in words that say more. sequences: a number in front is none. */
bool ts_words_find_layer(const struct ts_words *words, bool sequences, unsigned *first, unsigned *behind,
                         uint64_t *layer);
/* Takes a number away from the end of the last word that is not gone: q_proj_3, q_proj3. False where there is none, or
 * nothing else. */
bool ts_words_take_last_number(struct ts_words *words, uint64_t *number);
/* A number behind words that no list has, trunk.3.x or tower3_x: the first of the name with something behind it. own
 * gets the words in front of it, joined; it has TS_NAME_ROOM. */
bool ts_words_find_number(const struct ts_words *words, unsigned *first, unsigned *behind, uint64_t *number, char *own);

#endif
