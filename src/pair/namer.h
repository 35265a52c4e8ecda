/* For names.c and name_habits.c only: what is known while the names of one side are read. */
#ifndef TS_PAIR_NAMER_H
#define TS_PAIR_NAMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/table.h"
#include "pair/name_rows.h"
#include "pair/names.h"
#include "pair/words.h"

struct ts_row_place {
    const struct ts_name_row *row;
    enum ts_name_stage stage;
    uint32_t place;
};

#define TS_NAMER_KEPT 1024 /* experts of a layer, three or four of each */

struct ts_namer {
    struct ts_arena *arena;
    const char **kept;     /* by their hashes, the last texts that were kept: most names say what others say */
    struct ts_table table; /* "L:name", "Lvision:name", "H:name" -> index into places */
    struct ts_row_place *places;
    size_t place_count, place_room;
    bool habits[TS_NAME_HABITS], scopes[TS_NAME_HABITS]; /* rows of ts_name_habits and ts_scope_rows that hold */
    bool sequences;                                      /* leading numbers are sequence numbers */
    unsigned in_front;                                   /* ... behind so many words, which all names have */
    bool folders;                                        /* numbers of folders or files are those of ranks */
    bool any_word;                                       /* ... whatever stands before them */
    unsigned strip;
    bool trailing;   /* numbers at the end are those of layers: q_proj_3 */
    const char *own; /* the words in front of a layer's number, where only this engine calls layers so; or NULL */
};

/* names.c. The row that a name inside a layer stands in, in the conventions of that part of the model first; or NULL.
 */
const struct ts_row_place *ts_namer_layer_row(const struct ts_namer *namer, const char *scope, const char *text,
                                              bool parameter);
/* Words [from, to) are a part of a layer. */
bool ts_namer_is_part(const struct ts_namer *namer, const struct ts_words *words, unsigned from, unsigned to);
/* ".weight" or ".bias" where the word says that the name is that of a parameter, in the words of any framework. */
const char *ts_namer_ending(const struct ts_words *words, unsigned last);
/* The tower of a model that word i speaks of, "vision" or "audio"; or NULL. */
const char *ts_namer_tower(const struct ts_words *words, unsigned i);
int64_t ts_namer_take_rank(const struct ts_namer *namer, struct ts_words *words);
/* Leaves out the first words, not the last one. */
void ts_namer_strip(struct ts_words *words, unsigned left);
/* Takes a name apart, without what says nothing. False for one that cannot be. */
bool ts_namer_open(const struct ts_namer *namer, const char *from, struct ts_words *words, int64_t *rank,
                   int64_t *sequence);

/* name_habits.c: the length of what all names end in and says nothing: a number that is no layer's (the first call of
 * everything, x_0, or its first output, x:0), or that it is an output (x.output). 0: none. */
size_t ts_namer_same_ending(const char *const *names, size_t count, struct ts_words *words);
/* What the names of a side have in common, found before any is read. folders: those with numbers may be
 * ranks. words: room for two. *common: words that all names begin with. False without memory. */
bool ts_namer_find_habits(struct ts_namer *namer, const char *const *names, size_t count, bool folders,
                          struct ts_words *words, unsigned *common);

#endif
