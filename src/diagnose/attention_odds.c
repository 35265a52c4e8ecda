#include "diagnose/attention_odds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/variant.h"

/* Ways to make the reference that are so near to the best one are followed up. */
#define AS_GOOD 0.8
#define AS_NEAR 12.0
/* Nats between two answers from which on only the first is said. */
#define CLEAR    3.0
#define MOST_IDS 12
/* Pieces of a context that ranks may hold. */
#define MOST_PIECES 8

/* The best guess of an id, and the reference's chain that it was made for. */
struct contender {
    struct ts_chain_guess guess;
    struct ts_chain own;
    double nats, evidence;
    size_t told_by;
};

bool ts_attention_odds_open(struct ts_attention_odds *it)
{
    it->basis = malloc((3 * it->tokens * it->width + 1) * sizeof *it->basis);
    it->own = it->basis + it->tokens * it->width;
    it->other = it->own + it->tokens * it->width;
    it->chain_count = 0;
    return it->basis != NULL;
}

void ts_attention_odds_close(struct ts_attention_odds *it)
{
    free(it->basis);
    it->basis = NULL;
}

/* The odds of what follows when the reference does it in this way; all are told by the same rows. */
static bool open_odds(struct ts_attention_odds *it, const struct ts_chain *chain, struct ts_odds *odds)
{
    return it->run(it->from, chain, false, it->own) && it->run(it->from, chain, true, it->other) &&
           ts_odds_choose(odds, it->the_case, it->tokens, it->basis, it->width) &&
           ts_odds_open(odds, it->own, it->other);
}

void ts_attention_odds_take(struct ts_attention_odds *it, const struct ts_chain *chain)
{
    struct ts_odds odds;
    size_t at = it->chain_count;
    if ((!at && !it->run(it->from, chain, false, it->basis)) || !open_odds(it, chain, &odds))
        return;
    while (at > 0 && it->evidence[at - 1] < odds.own)
        at--;
    if (at < TS_ODDS_CHAINS) {
        it->chain_count += it->chain_count < TS_ODDS_CHAINS;
        memmove(&it->chains[at + 1], &it->chains[at], (it->chain_count - 1 - at) * sizeof *it->chains);
        memmove(&it->evidence[at + 1], &it->evidence[at], (it->chain_count - 1 - at) * sizeof *it->evidence);
        it->chains[at] = *chain;
        it->evidence[at] = odds.own;
    }
    ts_odds_close(&odds);
}

static void keep(struct contender *best, size_t *count, const struct contender *one)
{
    size_t at = 0;
    while (at < *count && strcmp(best[at].guess.id, one->guess.id) != 0)
        at++;
    if (at == *count && at < MOST_IDS)
        best[(*count)++] = *one;
    else if (at < *count && one->nats > best[at].nats)
        best[at] = *one;
}

/* The evidence of a guess together with that of the reference's chain; false when it does not hold. */
static bool weigh(struct ts_attention_odds *it, struct ts_odds *odds, const struct ts_chain *chain,
                  struct contender *one)
{
    struct ts_odds_fit fit;
    if (!it->run(it->from, chain, true, it->other) || !ts_odds_try(odds, it->other, &fit) || !ts_odds_hold(&fit))
        return false;
    one->nats = odds->own + fit.evidence;
    one->evidence = fit.evidence;
    one->told_by = odds->rows;
    return true;
}

static void try_chain(struct ts_attention_odds *it, const struct ts_chain *own, struct contender *best, size_t *count)
{
    const struct ts_chain_guess *guesses;
    size_t guess_count = it->guess(it->from, own, &guesses);
    struct ts_odds odds, turned;
    if (!open_odds(it, own, &odds))
        return;
    for (size_t g = 0; g < guess_count; g++) {
        struct contender one = {.guess = guesses[g], .own = *own};
        bool good;
        if (guesses[g].reversed && !open_odds(it, &guesses[g].chain, &turned))
            continue;
        good = guesses[g].reversed ? weigh(it, &turned, own, &one) : weigh(it, &odds, &guesses[g].chain, &one);
        if (good)
            keep(best, count, &one);
        if (guesses[g].reversed)
            ts_odds_close(&turned);
    }
    ts_odds_close(&odds);
}

/* The right context, of which a piece does not count, or nothing else does: what one rank holds. */
static void try_pieces(struct ts_attention_odds *it, const struct ts_chain *own, struct contender *best, size_t *count)
{
    struct ts_odds odds;
    if (!open_odds(it, own, &odds))
        return;
    for (size_t pieces = 2; pieces <= MOST_PIECES && it->width % pieces == 0; pieces *= 2)
        for (size_t piece = 0; piece < pieces; piece++)
            for (int alone = 0; alone < (pieces > 2 ? 2 : 1); alone++) {
                struct contender one = {.guess = {.id = "term-missing"}, .own = *own};
                struct ts_odds_fit fit;
                if (!it->run(it->from, own, true, it->other))
                    break;
                for (size_t i = 0; i < it->tokens * it->width; i++)
                    if ((i % it->width * pieces / it->width == piece) != (alone != 0))
                        it->other[i] = 0;
                if (!ts_odds_try(&odds, it->other, &fit) || !ts_odds_hold(&fit))
                    continue;
                one.nats = odds.own + fit.evidence;
                one.evidence = fit.evidence;
                one.told_by = odds.rows;
                snprintf(one.guess.text, sizeof one.guess.text,
                         "of %zu equal pieces of the context, piece %zu %s: what one rank adds", pieces, piece,
                         alone ? "alone counts" : "is missing");
                keep(best, count, &one);
            }
    ts_odds_close(&odds);
}

static void say(struct ts_attention_odds *it, const struct contender *one, double nats)
{
    struct ts_case *the_case = it->the_case;
    ts_propose_plain(
        the_case, one->guess.id, ts_odds_sure(nats),
        "what is passed to the attention between these projections: positions, scale, mask, head counts",
        "in the attention between %s and this tensor: %s (the weight behind it is not at hand: told by how "
        "%zu tokens stand to each other)",
        ts_case_name(the_case, one->own.q.actor), one->guess.text, one->told_by);
}

bool ts_attention_odds_propose(struct ts_attention_odds *it)
{
    struct contender best[MOST_IDS];
    size_t count = 0, first = 0;
    double next = -INFINITY;
    for (size_t i = 0; i < it->chain_count; i++)
        if (it->evidence[i] > fmin(AS_GOOD * it->evidence[0], it->evidence[0] - AS_NEAR)) {
            try_chain(it, &it->chains[i], best, &count);
            try_pieces(it, &it->chains[i], best, &count);
        }
    for (size_t i = 1; i < count; i++)
        first = best[i].nats > best[first].nats ? i : first;
    for (size_t i = 0; i < count; i++)
        next = i != first ? fmax(next, best[i].nats) : next;
    for (size_t i = 0; i < count; i++)
        if (i == first || best[i].nats > best[first].nats - CLEAR)
            say(it, &best[i], fmin(best[i].evidence, best[first].nats - next + CLEAR));
    return count > 0;
}
