/* Owns heads that are written with other strides than they are read with: a kernel that takes [tokens, heads, size] for
 * contiguous rows of one head. Blocks of a head stand elsewhere, later writes cover earlier ones, and the rest of the
 * buffer was never written. Whole rows with a wrong pitch are in layout_pitch.c. */
#include <math.h>
#include <stdlib.h>

#include "diagnose/formula.h"
#include "diagnose/layout.h"
#include "diagnose/region.h"

#define MOST_BLOCKS  4096
#define LEAST_BLOCKS 8
#define LEAST_SIZE   4
#define SAME         1e-2 /* of a block's energy may be left where it is found again */
#define LEAST_OFF    0.15 /* share of the blocks that must not be where they belong */
#define FIRST_LOOK   4    /* numbers by which a block is told from most others */
#define FEW          50   /* one in so many may stand where the rule puts none: an end that is cut off */

struct strides {
    struct ts_case *the_case;
    size_t tokens, heads, size, count; /* count: tokens * heads */
    size_t *place;                     /* of block [token, head] of the case in memory, in blocks */
    size_t *block;                     /* and the reverse */
    size_t *from;                      /* per place: the block it holds; EMPTY; UNKNOWN */
};

enum { EMPTY = -2, UNKNOWN = -1 };

static const double *block_at(const struct strides *it, const double *values, size_t block)
{
    return values + block * it->size;
}

static bool is_empty(const double *values, size_t size)
{
    for (size_t i = 1; i < size; i++)
        if (values[i] != values[0])
            return false;
    return true;
}

static bool is_same(const double *found, const double *right, size_t size)
{
    double left = 0, all = 0;
    for (size_t i = 0; i < size; i++) {
        double off = found[i] - right[i];
        left += off * off;
        all += right[i] * right[i];
        if (i + 1 == FIRST_LOOK && left > all + 1e-30) /* nowhere near */
            return false;
    }
    return left < SAME * all;
}

/* Where the blocks of heads stood in memory: as they do in the file, or in another order, if what was captured is a
 * view of the buffer. */
enum order { AS_STORED, TOKENS_FIRST, HEADS_FIRST, ORDERS };

/* False when a head's numbers are not one run of it, or that order is the file's. */
static bool open_strides(struct strides *it, struct ts_case *the_case, enum order order)
{
    const struct ts_actor *actor = the_case->actor;
    size_t folded = ts_folded_head(the_case);
    bool good, other = order == AS_STORED;
    *it = (struct strides){.the_case = the_case, .tokens = actor->rows, .heads = actor->heads, .size = actor->inner};
    if (actor->heads == 1 && folded) {
        it->heads = actor->width / folded;
        it->size = folded;
    }
    it->count = it->tokens * it->heads;
    if (!ts_case_complete(the_case) || it->heads < 2 || it->size < LEAST_SIZE || it->count < LEAST_BLOCKS ||
        it->count > MOST_BLOCKS || it->count * it->size != the_case->total)
        return false;
    it->place = malloc(3 * it->count * sizeof *it->place);
    if (!it->place)
        return false;
    it->block = it->place + it->count;
    it->from = it->block + it->count;
    good = true;
    for (size_t b = 0; b < it->count && good; b++) {
        uint64_t first = 0, last = 0;
        good = ts_case_index(the_case, b * it->size, &first) &&
               ts_case_index(the_case, (b + 1) * it->size - 1, &last) && last == first + it->size - 1 &&
               first % it->size == 0 && first / it->size < it->count;
        it->place[b] = order == HEADS_FIRST    ? b % it->heads * it->tokens + b / it->heads
                       : order == TOKENS_FIRST ? b
                       : good                  ? (size_t)(first / it->size)
                                               : 0;
        other = other || it->place[b] != (size_t)(first / it->size);
    }
    good = good && other;
    for (size_t b = 0; b < it->count && good; b++)
        it->block[it->place[b]] = b;
    if (!good)
        free(it->place);
    return good;
}

/* Finds every block again; false when one is not to be found, or all are where they belong. */
static bool find_blocks(const struct strides *it)
{
    size_t off = 0, moved = 0;
    for (size_t place = 0; place < it->count; place++) {
        const double *found = block_at(it, it->the_case->found, it->block[place]);
        size_t own = it->block[place];
        it->from[place] = (size_t)UNKNOWN;
        if (is_same(found, block_at(it, it->the_case->expected, own), it->size))
            it->from[place] = own;
        else if (is_empty(found, it->size))
            it->from[place] = (size_t)EMPTY;
        for (size_t b = 0; b < it->count && it->from[place] == (size_t)UNKNOWN; b++)
            if (is_same(found, block_at(it, it->the_case->expected, b), it->size))
                it->from[place] = b;
        if (it->from[place] == (size_t)UNKNOWN)
            return false;
        off += it->from[place] != own;
        moved += it->from[place] != own && it->from[place] != (size_t)EMPTY;
    }
    return moved >= 2 && (double)off > LEAST_OFF * (double)it->count;
}

/* The step in memory from one token (or head) to the next that most blocks show; 0 when none does. */
static long step_of(const struct strides *it, bool of_heads)
{
    size_t votes[2] = {0, 0};
    long best = 0;
    for (size_t p = 0; p < it->count; p++)
        for (size_t q = 0; q < it->count; q++) {
            size_t a = it->from[p], b = it->from[q];
            long step = (long)q - (long)p;
            if (a == (size_t)EMPTY || b == (size_t)EMPTY || b != a + (of_heads ? 1 : it->heads) ||
                (of_heads && b % it->heads == 0))
                continue;
            if (step == best)
                votes[0]++;
            else if (votes[0] == 0) { /* the majority's, in one walk */
                best = step;
                votes[0] = 1;
            } else {
                votes[0]--;
            }
        }
    return best;
}

/* Whether every block stands where these steps put it, and nothing where they put nothing. */
static bool is_rule(const struct strides *it, long first, long token_step, long head_step)
{
    size_t wrong = 0, *written = calloc(it->count, sizeof *written);
    for (size_t b = 0; b < it->count && written; b++) {
        long place = first + (long)(b / it->heads) * token_step + (long)(b % it->heads) * head_step;
        if (place >= 0 && (size_t)place < it->count)
            written[place]++;
    }
    for (size_t place = 0; place < it->count && written; place++) {
        size_t b = it->from[place];
        if (b == (size_t)EMPTY)
            wrong += written[place] != 0;
        else
            wrong += (long)place != first + (long)(b / it->heads) * token_step + (long)(b % it->heads) * head_step;
    }
    if (!written)
        return false;
    free(written);
    return wrong <= it->count / FEW;
}

/* True when it is said. */
static bool try_order(struct ts_case *the_case, enum order order, double *prediction)
{
    struct strides it;
    long token_step, head_step, first = 0;
    size_t empty = 0;
    bool said = false;
    if (!open_strides(&it, the_case, order))
        return false;
    if (find_blocks(&it)) {
        token_step = step_of(&it, false);
        head_step = step_of(&it, true);
        for (size_t place = it.count; place-- > 0;)
            if (it.from[place] != (size_t)EMPTY)
                first = (long)place - (long)(it.from[place] / it.heads) * token_step -
                        (long)(it.from[place] % it.heads) * head_step;
        for (size_t place = 0; place < it.count; place++) {
            size_t to = it.block[place] * it.size, b = it.from[place];
            empty += b == (size_t)EMPTY;
            for (size_t i = 0; i < it.size; i++)
                prediction[to + i] = b == (size_t)EMPTY ? the_case->found[to + i] : the_case->expected[b * it.size + i];
        }
        said = empty && token_step && head_step && is_rule(&it, first, token_step, head_step);
        if (said)
            ts_propose(the_case, "permuted", prediction, 3,
                       "the strides passed to the kernel: the rows of a head are not contiguous in this buffer",
                       "heads are written with the wrong strides: tokens %ld and heads %ld apart instead of tokens %ld "
                       "and heads %ld apart; %zu of %zu heads were never written (strides in units of %zu elements)",
                       token_step, head_step, (long)it.place[it.heads] - (long)it.place[0],
                       (long)it.place[1] - (long)it.place[0], empty, it.count, it.size);
    }
    free(it.place);
    return said;
}

void ts_layout_strides(struct ts_case *the_case, double *prediction)
{
    for (enum order order = AS_STORED; order < ORDERS; order++)
        if (try_order(the_case, order, prediction))
            return;
}
