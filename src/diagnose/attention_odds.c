#include "diagnose/attention_odds.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/attention_pieces.h"
#include "diagnose/attention_tables.h"
#include "diagnose/product.h"
#include "diagnose/variant.h"

/* Ways to make the reference that are so near to the best one are followed up. */
#define AS_GOOD    0.8
#define AS_NEAR    12.0
#define FAR_BEHIND 0.5
/* Nats between two answers from which on only the first is said. */
#define CLEAR        3.0
#define MOST_IDS     12
#define MOST_NUMBERS 5
/* Pieces of a context that ranks may hold. */
#define MOST_PIECES 8
#define MOST_WAYS   6  /* to cut a context into pieces */
#define MOST_OTHERS 16 /* pieces of which one may stand in the place of another */
/* How uneven what a fate leaves may be; weights of their own are drawn at random, those of numbers in another order are
 * not quite. */
#define UNEVEN       1.35
#define UNEVEN_APART 1.7
#define LEAST_WINDOW 4
#define MOST_WINDOWS 48
/* Numbers between the usual ones are looked for in such steps, as logarithms. */
#define STEP_FIRST 0.8
#define STEP_LEAST 0.02

/* A weight that is larger behind one head than behind others looks like a factor: none but these is told. */
static const double usual_factors[] = {-1, 0.5, 2};

/* The best guess of an id, and the reference's chain that it was made for. */
struct contender {
    struct ts_chain_guess guess;
    struct ts_chain own;
    double nats, evidence;
    size_t told_by;
    bool holds, of_pieces;
};

bool ts_attention_odds_open(struct ts_attention_odds *it)
{
    it->basis = malloc((3 * it->rows * it->width + 1) * sizeof *it->basis);
    it->own = it->basis + it->rows * it->width;
    it->other = it->own + it->rows * it->width;
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
    if (!it->run(it->from, chain, false, it->own) || !it->run(it->from, chain, true, it->other) ||
        !ts_odds_choose(odds, it->the_case, it->list, it->listed, it->basis, it->width))
        return false;
    odds->put_to_all = true;
    return ts_odds_open(odds, it->own, it->other);
}

/* Evidence that the reference does it in this way. */
static double evidence_of(struct ts_attention_odds *it, const struct ts_chain *chain)
{
    struct ts_odds odds;
    double own;
    if (!it->run(it->from, chain, false, it->own) ||
        !ts_odds_choose(&odds, it->the_case, it->list, it->listed, it->basis, it->width) ||
        !ts_odds_learn(&odds, it->own))
        return -INFINITY;
    own = odds.own;
    ts_odds_close(&odds);
    return own;
}

void ts_attention_odds_take(struct ts_attention_odds *it, const struct ts_chain *chain)
{
    size_t at = it->chain_count;
    double own;
    if ((!at && !it->run(it->from, chain, false, it->basis)) || !isfinite(own = evidence_of(it, chain)))
        return;
    while (at > 0 && it->evidence[at - 1] < own)
        at--;
    if (at < TS_ODDS_CHAINS) {
        it->chain_count += it->chain_count < TS_ODDS_CHAINS;
        memmove(&it->chains[at + 1], &it->chains[at], (it->chain_count - 1 - at) * sizeof *it->chains);
        memmove(&it->evidence[at + 1], &it->evidence[at], (it->chain_count - 1 - at) * sizeof *it->evidence);
        it->chains[at] = *chain;
        it->evidence[at] = own;
    }
}

static void take_better(struct ts_attention_odds *it, const struct ts_chain *trial, double *evidence,
                        struct ts_chain *best)
{
    const double own = evidence_of(it, trial);
    if (own > *evidence) {
        *evidence = own;
        *best = *trial;
    }
}

/* Where no way is far ahead, the reference may scale its positions. */
static void take_scaled(struct ts_attention_odds *it)
{
    static const double turns[] = {0.5, 0.25, 0.125, 2}, bases[] = {1e4, 1e5, 5e5, 1e6, 1e7};
    const struct ts_chain own = it->chains[0];
    const double first = it->evidence[0];
    if (it->chain_count < 2 || (first > 0 && (!(own.base > 0) || it->evidence[1] < FAR_BEHIND * first)))
        return;
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++)
        for (size_t b = 0; b < sizeof bases / sizeof *bases; b++)
            for (int way = 0; way < 4; way++) {
                struct ts_chain trial = own;
                trial.q_turns = trial.k_turns = turns[i];
                trial.base = bases[b];
                trial.interleaved = way % 2;
                trial.group = own.size >> way / 2;
                if (trial.group >= 4 && trial.group % 2 == 0)
                    ts_attention_odds_take(it, &trial);
            }
}

/* Windows that a reference may have: powers of two, one and a half times as many, and as far as nothing is wrong. */
static size_t list_windows(const struct ts_attention_odds *it, long *windows)
{
    size_t count = 0;
    for (size_t length = LEAST_WINDOW; length < it->tokens && count + 4 <= MOST_WINDOWS; length *= 2)
        for (size_t more = 0; more < 2 && length + more * length / 2 < it->tokens; more++)
            windows[count++] = (long)(length + more * length / 2);
    for (size_t i = 0, known = count; i < 2; i++) {
        const long length = (long)(it->onset + i);
        bool listed = false;
        for (size_t k = 0; k < known; k++)
            listed = listed || windows[k] == length;
        if (!listed)
            windows[count++] = length;
    }
    return count;
}

/* Where the first tokens are right, either side may have a window. With the reference's its rotary embedding, which was
 * chosen without it, is looked for again. */
static void take_windows(struct ts_attention_odds *it)
{
    static const double bases[] = {1e4, 1e6, 5e5, 1e5, 1e7, 5e6};
    long windows[MOST_WINDOWS];
    struct ts_chain own = it->chains[0];
    const size_t count = it->onset < LEAST_WINDOW || own.shift > 0 ? 0 : list_windows(it, windows);
    for (size_t i = 0; i < count; i++) {
        own.window = windows[i];
        ts_attention_odds_take(it, &own);
    }
    own = it->chains[0];
    for (size_t i = 0; i < 4 * sizeof bases / sizeof *bases && own.window && !it->turned; i++) {
        struct ts_chain trial = own;
        trial.base = bases[i / 4];
        trial.interleaved = i % 2;
        trial.group = own.size >> i / 2 % 2;
        if ((trial.base != own.base || trial.interleaved != own.interleaved || trial.group != own.group) &&
            trial.group >= 4 && trial.group % 2 == 0)
            ts_attention_odds_take(it, &trial);
    }
}

/* Some models rotate a quarter of each head (GPT-NeoX, StableLM). Without it a reference looks as if nothing turned, or
 * some other share of it: the likeliest one says the size of heads and the mask. */
static void take_quarter(struct ts_attention_odds *it)
{
    static const double bases[] = {1e4, 1e6, 5e5, 1e5, 1e7, 5e6};
    struct ts_chain trial = it->chains[0];
    trial.group = trial.size / 4;
    for (size_t i = 0; i < 2 * sizeof bases / sizeof *bases && trial.group >= 4 && trial.group % 2 == 0; i++) {
        trial.base = bases[i / 2];
        trial.interleaved = i % 2;
        ts_attention_odds_take(it, &trial);
    }
}

/* A reference may have what few have: another scale, a cap, a theta of its own. What is usual is left only for what is
 * far likelier. */
static void refine_reference(struct ts_attention_odds *it, size_t at)
{
    static const double caps[] = {50, 30, 20};
    struct ts_chain own = it->chains[at], trial;
    double evidence = it->evidence[at];
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) {
        trial = own;
        trial.cap = caps[i];
        take_better(it, &trial, &evidence, &own);
    }
    for (int base = 0; base < (own.base > 0 ? 2 : 1); base++)
        for (double step = STEP_FIRST; step > STEP_LEAST; step /= 2)
            for (int side = -1; side <= 1; side += 2) {
                trial = own;
                *(base ? &trial.base : &trial.scale) *= exp(side * step);
                take_better(it, &trial, &evidence, &own);
            }
    if (evidence > it->evidence[at] + AS_NEAR) {
        it->evidence[at] = evidence;
        it->chains[at] = own;
    }
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

/* The evidence of a guess together with that of the reference's chain; false when it cannot be told. */
static bool weigh(struct ts_attention_odds *it, struct ts_odds *odds, const struct ts_chain *chain,
                  struct contender *one)
{
    struct ts_odds_fit fit;
    if (!it->run(it->from, chain, true, it->other) || !ts_odds_try(odds, it->other, NULL, &fit))
        return false;
    one->nats = odds->own + fit.evidence;
    one->evidence = fit.evidence;
    one->told_by = odds->rows;
    /* of one head whatever becomes of it looks alike, unless it must fit exactly */
    one->holds =
        chain->copied == TS_NO_INDEX ? ts_odds_hold(&fit) : ts_odds_even(odds) && ts_odds_hold_exactly(&fit, UNEVEN);
    return true;
}

/* What a guess must be better than: nothing is wrong, but for rounding and what came in. */
static double least_of(struct ts_attention_odds *it, struct ts_odds *odds, const struct ts_chain *own)
{
    struct contender right = {.own = *own};
    return weigh(it, odds, own, &right) ? right.nats + AS_NEAR : -INFINITY;
}

/* Which of the candidate's numbers a guess is about. */
static ptrdiff_t number_at(struct contender *one)
{
    double *number = one->guess.reversed ? NULL : ts_chain_number(&one->guess.chain, &one->own);
    return number ? (char *)number - (char *)&one->guess.chain : 0;
}

/* The number that fits best, where it is far likelier than the best of the usual ones. */
static void refine_number(struct ts_attention_odds *it, struct ts_odds *odds, struct contender *one)
{
    const ptrdiff_t at = number_at(one);
    struct contender best = *one;
    for (double step = STEP_FIRST; step > STEP_LEAST; step /= 2)
        for (int side = -1; side <= 1; side += 2) {
            struct contender trial = best;
            *(double *)((char *)&trial.guess.chain + at) *= exp(side * step);
            if (weigh(it, odds, &trial.guess.chain, &trial) && trial.nats > best.nats)
                best = trial;
        }
    if (best.nats < one->nats + AS_NEAR)
        return;
    *one = best;
    ts_chain_say_number(&one->guess, &one->own, 2);
}

static void try_chain(struct ts_attention_odds *it, const struct ts_chain *own, struct contender *best, size_t *count)
{
    const struct ts_chain_guess *guesses;
    size_t guess_count = it->guess(it->from, own, &guesses), number_count = 0;
    struct contender numbers[MOST_NUMBERS]; /* the best for each number that may be another one */
    struct ts_odds odds, turned;
    double least;
    if (!open_odds(it, own, &odds))
        return;
    least = least_of(it, &odds, own);
    for (size_t g = 0; g < guess_count; g++) {
        struct contender one = {.guess = guesses[g], .own = *own};
        size_t at = 0;
        bool good;
        if (guesses[g].reversed && !open_odds(it, &guesses[g].chain, &turned))
            continue;
        good = guesses[g].reversed ? weigh(it, &turned, own, &one) : weigh(it, &odds, &guesses[g].chain, &one);
        if (guesses[g].reversed)
            ts_odds_close(&turned);
        if (good && one.holds && one.nats > least)
            keep(best, count, &one);
        if (!good || !number_at(&one))
            continue;
        while (at < number_count && (number_at(&numbers[at]) != number_at(&one) ||
                                     numbers[at].guess.chain.keys_apart != one.guess.chain.keys_apart))
            at++;
        if (at == number_count ? at < MOST_NUMBERS : one.nats > numbers[at].nats)
            numbers[at] = one;
        number_count += at == number_count && at < MOST_NUMBERS;
    }
    for (size_t i = 0; i < number_count; i++) {
        refine_number(it, &odds, &numbers[i]);
        if (numbers[i].holds && numbers[i].nats > least)
            keep(best, count, &numbers[i]);
    }
    ts_odds_close(&odds);
}

/* Pieces that a context may be cut into: as ranks do, for the heads of keys, and its heads. */
static size_t ways_to_cut(const struct ts_attention_odds *it, const struct ts_chain *own, size_t *ways)
{
    size_t count = 0;
    for (size_t pieces = 2; pieces <= MOST_PIECES && it->width % pieces == 0; pieces *= 2)
        if (pieces != own->heads && pieces != own->served)
            ways[count++] = pieces;
    if (it->width != own->heads * own->size)
        return count;
    if (own->heads > 1) /* first: of two ways to say the same it is the plainer one */
        ways[count++] = own->heads;
    if (own->served > 1 && own->served < own->heads)
        ways[count++] = own->served;
    if (own->size % 2 == 0)
        ways[count++] = 2 * own->heads;
    return count;
}

/* The right context but for a piece of it. */
struct pieces {
    struct ts_attention_odds *it;
    struct ts_odds odds;
    const struct ts_chain *own;
    struct ts_context right;
    double *apart;
    double least;
    struct contender *best;
    size_t *count;
};

static bool weigh_piece(struct pieces *pieces, const struct ts_piece *piece, struct contender *one)
{
    struct ts_attention_odds *it = pieces->it;
    const bool apart = ts_piece_apply(piece, &pieces->right, it->other, pieces->apart);
    struct ts_odds_fit fit;
    *one = (struct contender){.guess = {.id = ts_piece_id(piece)}, .own = *pieces->own, .of_pieces = true};
    if (!ts_odds_try(&pieces->odds, it->other, apart ? pieces->apart : NULL, &fit))
        return false;
    one->nats = pieces->odds.own + fit.evidence;
    one->evidence = fit.evidence;
    one->told_by = pieces->odds.rows;
    one->holds = ts_odds_hold_exactly(&fit, apart ? UNEVEN_APART : UNEVEN) && ts_odds_keep(&pieces->odds, fit.keeps);
    ts_piece_say(piece, pieces->own->heads, pieces->own->served, one->guess.text, sizeof one->guess.text);
    return true;
}

/* Returns the evidence, whether it holds or not. */
static double try_piece(struct pieces *pieces, const struct ts_piece *piece)
{
    struct contender one;
    if (!weigh_piece(pieces, piece, &one))
        return -INFINITY;
    if (one.holds && one.nats > pieces->least)
        keep(pieces->best, pieces->count, &one);
    return one.evidence;
}

/* What may have become of a piece in which the error is. */
static void try_fates(struct pieces *pieces, struct ts_piece piece)
{
    const size_t size = pieces->it->width / piece.pieces;
    piece.fate = TS_PIECE_TIMES;
    for (size_t i = 0; i < sizeof usual_factors / sizeof *usual_factors; i++) {
        piece.factor = usual_factors[i];
        (void)try_piece(pieces, &piece);
    }
    piece.fate = TS_PIECE_REVERSED;
    (void)try_piece(pieces, &piece);
    piece.fate = TS_PIECE_ROLLED;
    for (size_t by = 1; by < size; by++) {
        piece.by = by <= size / 2 ? (long)by : (long)by - (long)size;
        (void)try_piece(pieces, &piece);
    }
}

static void try_others(struct pieces *pieces, struct ts_piece piece)
{
    for (piece.other = 0; piece.other < piece.pieces; piece.other++) {
        piece.fate = TS_PIECE_COPIED;
        if (piece.other != piece.piece)
            (void)try_piece(pieces, &piece);
        piece.fate = TS_PIECE_EXCHANGED;
        if (piece.other > piece.piece)
            (void)try_piece(pieces, &piece);
    }
}

static void try_tokens(struct pieces *pieces, struct ts_piece piece)
{
    for (piece.by = -1; piece.by <= 1; piece.by += 2)
        for (piece.fate = TS_PIECE_SHIFTED; piece.fate <= TS_PIECE_TURNED; piece.fate++)
            (void)try_piece(pieces, &piece);
}

static void try_cut(struct pieces *pieces, size_t count)
{
    const struct ts_chain *own = pieces->own;
    const bool all_at_hand = pieces->it->listed == pieces->it->rows;
    const bool alone = count > 2 && count != 2 * own->heads, heads = count == own->heads || count == own->served;
    struct ts_piece piece = {.pieces = count};
    size_t likest = count;
    double most = 0;
    for (piece.piece = 0; piece.piece < count; piece.piece++) {
        double evidence;
        for (piece.fate = TS_PIECE_MISSING; piece.fate <= (alone ? TS_PIECE_ALONE : TS_PIECE_MISSING); piece.fate++)
            (void)try_piece(pieces, &piece);
        if (!heads)
            continue;
        piece.fate = TS_PIECE_ELSEWHERE;
        evidence = try_piece(pieces, &piece);
        if (evidence > most) {
            most = evidence;
            likest = piece.piece;
        }
        if (all_at_hand)
            try_tokens(pieces, piece);
        if (count <= MOST_OTHERS)
            try_others(pieces, piece);
    }
    piece.piece = likest;
    if (likest < count)
        try_fates(pieces, piece);
}

static void try_pieces(struct ts_attention_odds *it, const struct ts_chain *own, struct contender *best, size_t *count)
{
    const size_t total = it->rows * it->width;
    double *room = malloc((2 * total + 1) * sizeof *room);
    struct pieces pieces = {.it = it,
                            .own = own,
                            .right = {room, it->list, it->listed, it->width},
                            .apart = room + total,
                            .best = best,
                            .count = count};
    size_t ways[MOST_WAYS], way_count = ways_to_cut(it, own, ways);
    if (!room || !open_odds(it, own, &pieces.odds)) {
        free(room);
        return;
    }
    /* what became of a piece is told by sizes, and so by those of the weight behind it */
    pieces.least = least_of(it, &pieces.odds, own);
    if (ts_odds_even(&pieces.odds) && it->run(it->from, own, true, room))
        for (size_t way = 0; way < way_count; way++)
            try_cut(&pieces, ways[way]);
    ts_odds_close(&pieces.odds);
    free(room);
}

static void say(struct ts_attention_odds *it, const struct contender *one, double nats)
{
    struct ts_case *the_case = it->the_case;
    struct ts_moves moves = {.wrong = one->guess.reversed ? one->own : one->guess.chain,
                             .right = one->guess.reversed ? one->guess.chain : one->own,
                             .sure = ts_odds_sure(nats)};
    moves.before = ts_case_text(the_case,
                                "in the attention between %s and this tensor: %s (the weight behind it is not %s: told "
                                "by how %zu tokens stand to each other)",
                                ts_case_name(the_case, one->own.q.actor), one->guess.text,
                                ts_case_has_weights(the_case) ? "used" : "at hand", one->told_by);
    ts_formula_next(the_case, &(struct ts_formula){.told_by = one->told_by});
    if ((!the_case->actor->whole || it->listed < it->rows) && !one->of_pieces) /* the others are told by likeness */
        ts_give_moves(the_case, &moves, true, TS_MOVES_HELD);
    ts_propose_plain(the_case, one->guess.id, moves.sure,
                     "what is passed to the attention between these projections: positions, scale, mask, head counts",
                     "%s", moves.before);
}

bool ts_attention_odds_propose(struct ts_attention_odds *it)
{
    struct contender best[MOST_IDS];
    size_t count = 0, first = 0;
    double next = -INFINITY, top;
    if (!it->chain_count) /* no way to do it can be weighed */
        return false;
    take_windows(it);
    if (!it->turned)
        take_quarter(it);
    take_scaled(it);
    top = it->evidence[0];
    for (size_t i = 0; i < it->chain_count; i++)
        refine_reference(it, i);
    for (size_t i = 1; i < it->chain_count; i++)
        top = fmax(top, it->evidence[i]);
    for (size_t i = 0; i < it->chain_count; i++)
        if (it->evidence[i] > fmin(AS_GOOD * top, top - AS_NEAR)) {
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
