/* Stacks: one tensor that holds what the other side has in several. Shared by stacks.c, which knows them by their
 * names, and stack_values.c, which knows them by what they hold. Internal. */
#ifndef TS_PAIR_STACKS_H
#define TS_PAIR_STACKS_H

#include "pair/pairing.h"

/* Pieces that are looked at before an axis is chosen. */
#define TS_STACK_LOOKS 4
/* Another way that errs no more than this times as much fits as well. */
#define TS_STACK_AS_WELL 1.5
#define TS_NO_AXIS       TS_MAX_RANK

/* A tensor of a layer or of all, by what its name says. */
struct ts_called {
    const char *kind, *scope, *label;
    int64_t layer; /* -1: of all */
    size_t index;
};

/* For qsort: those of one kind, file and part of a model together, by layer. */
int ts_by_called(const void *a, const void *b);

/* A tensor of the other side, and which entry of the stack it is. */
struct ts_stack_member {
    size_t index;
    int64_t layer;
    uint64_t entry; /* among the layers that are there */
    unsigned part;
};

struct ts_stack {
    struct ts_pairer *pairer;
    bool is_b;
    bool by_values; /* names say nothing: pieces have to be the same tensors beyond doubt */
    size_t whole;
    struct ts_stack_member *list; /* by layer, then by part */
    size_t count;
    uint64_t layers;              /* that are there; 0: layers are not what it counts */
    unsigned parts;               /* keys and values, or experts; 0: neither */
    size_t votes[TS_MAX_RANK][2]; /* axes that values proved for other stacks, of layers and of parts */
};

struct ts_stack_way {
    unsigned layer_axis, part_axis;
    bool by_number; /* the stack has more layers than are there */
    bool roomy;     /* ... or room for more in each */
    size_t agreeing;
    unsigned agreeing_parts; /* a bit for each of the first parts */
    double error;
};

/* The way under which most members agree; of those that do not differ the one that other stacks have, then the first.
 * *tied: another one fits as well. *any: sizes allow one. */
enum ts_status ts_stack_choose(struct ts_stack *stack, struct ts_stack_way *best, bool *tied, bool *any,
                               struct ts_error *error);
/* Every member with its piece, in pairs. */
enum ts_status ts_stack_pair(struct ts_stack *stack, const struct ts_stack_way *way, bool tied, const char *how,
                             struct ts_error *error);

#endif
