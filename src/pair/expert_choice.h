/* Expert choice: which experts each token of a layer takes on both sides, by what the router of the layer gave out,
 * logits or the choice itself.
 *
 * How many experts a token takes is not told by logits: whoever reads them finds it out (per_token), and only then may
 * ask for what follows from it. Everything lives in the arena it was read into. */
#ifndef TS_PAIR_EXPERT_CHOICE_H
#define TS_PAIR_EXPERT_CHOICE_H

#include "pair/pair.h"

#define TS_MOST_EXPERTS 4096

/* A token that takes an expert; tied: or may, as of equal logits any may be taken, which is told by the rows. */
struct ts_expert_member {
    uint32_t token;
    uint16_t place; /* the expert's among those of the token */
    bool tied;
};

/* Whom the tokens of a side choose. */
struct ts_expert_takers {
    uint16_t *experts;                /* [tokens, listed]: those with the largest logits, falling */
    uint32_t *equal;                  /* of each token: bit i for equal logits at places i and i + 1 */
    struct ts_expert_member *members; /* expert by expert, ascending */
    size_t *firsts;                   /* where each one's begin, and where all of them end */
};

struct ts_expert_choice {
    size_t tokens, listed; /* listed: experts of each token, the largest logits first */
    size_t per_token;      /* how many of them it takes */
    bool whole;            /* the choice itself, not logits */
    bool sure;             /* no other per_token would do */
    struct ts_expert_takers sides[2];
    size_t *places; /* room for a number of each token; SIZE_MAX between uses */
    struct ts_pair *router;
    bool *before, *strayed; /* tokens that took other experts in a layer before; or in this one */
};

/* A router's logits, or its choice, of at least so many experts; rows: at least so many tokens. False where it is
 * neither. */
bool ts_expert_choice_read(const struct ts_pair *pair, uint64_t experts, uint64_t rows, struct ts_arena *arena,
                           struct ts_expert_choice *choice);
/* A token takes the experts at the places before `first`, and as many of those from there to `end` as are lacking. */
void ts_expert_choice_tied(const struct ts_expert_choice *choice, int side, size_t token, size_t *first, size_t *end);
/* Lists the tokens of each expert. False without memory. */
bool ts_expert_choice_list(struct ts_expert_choice *choice, struct ts_arena *arena);
/* Marks tokens as strayed whose experts are others on the two sides. False where equal logits leave some of them open.
 */
bool ts_expert_choice_strays(const struct ts_expert_choice *choice);

#endif
