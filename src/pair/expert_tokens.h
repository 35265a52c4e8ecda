/* Expert tokens: whose row is which in what experts gave out, by the choice of their tokens, and which rows of both
 * sides belong together. Internal to src/pair. */
#ifndef TS_PAIR_EXPERT_TOKENS_H
#define TS_PAIR_EXPERT_TOKENS_H

#include "pair/expert_choice.h"

#define TS_GLANCED_ROWS 32 /* rows of an expert that tell in which order they stand */

/* What an expert gave out on both sides, or on one: [rows, ...]. */
struct ts_expert_module {
    size_t found;    /* index of the pair; SIZE_MAX: a tensor without a partner */
    size_t index[2]; /* of the tensors */
    uint64_t expert, rows[2], width;
    struct ts_view whole[2]; /* of the sides that have it */
    struct ts_expert_module *next;
};

/* Which order experts take their tokens in: by their places, or first those whose first choice it is. */
enum ts_expert_taking { TS_BY_TOKEN, TS_BY_RANK, TS_TAKINGS };

/* Tokens of one expert on each side, in the order of its rows. */
struct ts_expert_rows {
    size_t *tokens[2];
    size_t count[2];
};

/* Notes where the rows of one side stand, or forgets it. */
void ts_expert_places(const struct ts_expert_choice *choice, const struct ts_expert_rows *rows, int side, bool noted);
/* The tokens of an expert, by its rows. False where they are not as many as its rows are, or without memory; to be
 * freed. */
bool ts_expert_rows_of(const struct ts_expert_choice *choice, const struct ts_expert_module *module,
                       enum ts_expert_taking taking, struct ts_expert_rows *rows);
void ts_expert_rows_free(struct ts_expert_rows *rows);
bool ts_expert_rows_same(const struct ts_expert_rows *rows);
/* Rows of tokens that both sides have, and that did not stray in layers before, if not `all`: starts[side] gets their
 * places, in the order of A. Returns how many. */
size_t ts_expert_common(const struct ts_expert_choice *choice, const struct ts_expert_rows *rows, bool all,
                        uint64_t *const *starts);
/* Equal logits among those of its tokens leave open in which order it took them. */
bool ts_expert_tangled(const struct ts_expert_choice *choice, const struct ts_expert_module *module,
                       enum ts_expert_taking taking);
/* Where it is open which row is whose, by what they hold: tokens that strayed before are those that changed most.
 * common: how many pairs there are to be; fewer where a row is not finite. Whether any changed. False without memory.
 */
bool ts_expert_match(const struct ts_expert_choice *choice, const struct ts_expert_module *module,
                     const struct ts_expert_rows *rows, uint64_t *const *starts, size_t *common, bool *moved);
/* The order in which the experts of this layer take their tokens: the one that makes their rows agree; as in the layers
 * before where all of them got the same tokens, as then any would. */
enum ts_expert_taking ts_expert_order(const struct ts_expert_module *modules, const struct ts_expert_choice *choice,
                                      uint64_t *const *starts, enum ts_expert_taking before);
/* Where experts take their tokens by rank: of equal logits any may be the one before, which moves a token among the
 * rows of an expert. The places are taken that make its rows agree best. */
void ts_expert_settle(const struct ts_expert_module *modules, const struct ts_expert_choice *choice,
                      uint64_t *const *starts);

#endif
