/* Attention in one step: queries, keys and values were captured, what lies between them and the output was not, as with
 * fused kernels and with hooks on modules.
 *
 * The whole chain is computed here: rotary, scores, mask, softmax, context. Where the context itself was captured, the
 * chain that reproduces the reference is found exactly, and what the candidate did otherwise is a prediction. Where
 * only the output projection was captured, its weight stays unknown; but a matrix without preference for directions
 * keeps products: rows of the difference have about the angles between them that rows of the context's difference have.
 * So hypotheses are ranked by how well the two tables of products agree. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/attention_chain.h"
#include "diagnose/attention_long.h"
#include "diagnose/attention_odds.h"
#include "diagnose/attention_operands.h"
#include "diagnose/attention_pass.h"
#include "diagnose/attention_tables.h"
#include "diagnose/variant.h"

#define MOST_IDS    12
#define MOST_TOKENS 48         /* where tables of products are compared */
#define TRIAL_WORK  (1u << 22) /* multiplications that one trial may take */
#define TABLE_WORK  (1u << 19) /* the same where every guess is tried with every rotary */
#define REACH_WORK  (1u << 24) /* the same for the few that need every row */
#define ODDS_WORK   1e8        /* the same in f32, by every processor, where odds are told */
#define ODDS_LEAST  8          /* rows that they are told by, or it is left to likeness */
/* Likeness of tables of products: the right hypothesis comes near 1, the others stay below 0.8 or so. Less will do when
 * it is far ahead of the others. */
#define LIKE_ENOUGH  0.85
#define LIKE_LEADER  0.7
#define LIKE_LEAD    0.12
#define LIKE_TIE     0.02
#define LIKE_SHARE   0.5  /* of what the right attention of the candidate's inputs leaves */
#define LIKE_MODESTY 0.1  /* is taken off to be the confidence */
#define SIZE_TIE     0.12 /* how far a projection may stretch what it is given in one direction and not in another */
#define RELATED_TIE  0.15 /* of other values: how much less related is another of them */

struct fused {
    struct ts_case *the_case;
    size_t tokens;       /* rows that are looked at */
    size_t reach;        /* and those that they may see, or be mixed up with */
    struct ts_chain own; /* the reference's */
    struct ts_chain_inputs reference, candidate;
    struct ts_chain_inputs first_head; /* the reference's first head alone, of `first_size` numbers */
    size_t first_size;
    struct ts_other_values others[TS_MOST_OTHERS];
    size_t onset; /* the first token that is wrong */
    struct ts_chain_guess *guesses;
    size_t guess_count;
    const size_t *list; /* rows by which odds are told */
    size_t listed;
};

/* A causal context begins with the first token's own values. */
static bool begins_with_values(const struct fused *fused, const struct ts_chain *chain)
{
    const struct ts_actor *actor = fused->the_case->actor;
    size_t repeat = chain->heads / chain->served;
    double error = 0, all = 0;
    for (size_t i = 0; i < chain->heads * chain->size; i++) {
        double value = fused->reference.v[i / chain->size / repeat * chain->size + i % chain->size];
        error += ((double)actor->a[i] - value) * ((double)actor->a[i] - value);
        all += value * value;
    }
    return all > 0 && error < 1e-3 * all;
}

/* Calls for every way a reference may do attention; stops when one is taken. It rotates whole heads, halves of them or,
 * where a test is quick, quarters. */
typedef bool (*chain_test)(struct fused *fused, const struct ts_chain *chain, void *context);

enum share { HALVES = 2, QUARTERS };

static bool each_chain(struct fused *fused, const struct ts_operands *operands, enum share shares, chain_test test,
                       void *context)
{
    static const double bases[] = {0, 1e4, 1e6, 5e5, 1e5, 1e7, 5e6};
    size_t sizes[TS_MOST_HEAD_SIZES], count = ts_operands_head_sizes(fused->the_case, operands, sizes);
    for (size_t b = 0; b < (operands->turned ? 1 : sizeof bases / sizeof *bases); b++)
        for (size_t s = 0; s < count; s++)
            for (int variant = 0; variant < (b ? 4 * (int)shares : 2); variant++) {
                struct ts_chain chain =
                    ts_chain_plain(operands->q.width / sizes[s], operands->k.width / sizes[s], sizes[s]);
                chain.q = operands->q;
                chain.k = operands->k;
                chain.v = operands->v;
                chain.base = bases[b];
                chain.shift = variant % 2 ? (long)fused->reach : 0; /* all visible, or causal */
                chain.interleaved = variant / 2 % 2;
                chain.group = sizes[s] >> variant / 4;
                if (chain.group >= 4 && chain.group % 2 == 0 && test(fused, &chain, context))
                    return true;
            }
    return false;
}

/* Whether what a chain gives for one row, `width` numbers of it, is what was captured. */
static bool is_captured(const struct fused *fused, const double *row_out, size_t row, size_t width)
{
    const struct ts_actor *actor = fused->the_case->actor;
    double error = 0, size = 0, limit = 10 * ts_rounding(actor->bits_a);
    limit = limit > 1e-4 ? limit : 1e-4;
    for (size_t i = 0; i < width; i++) {
        double captured = (double)actor->a[row * actor->width + i];
        error += (row_out[i] - captured) * (row_out[i] - captured);
        size += captured * captured;
    }
    return size > 0 && error <= limit * limit * size;
}

static double *first_columns(const double *values, size_t tokens, size_t width, size_t count)
{
    double *out = malloc(tokens * count * sizeof *out);
    for (size_t t = 0; t < tokens && out; t++)
        memcpy(out + t * count, values + t * width, count * sizeof *out);
    return out;
}

/* The same for the first head alone: thousands of chains are tried, and nearly all of them fail here. A slack of four
 * allows for a head that rounds worse than the row. */
static bool gives_first_head(struct fused *fused, const struct ts_chain *chain, size_t tokens, size_t row, double *out)
{
    const struct ts_actor *actor = fused->the_case->actor;
    struct ts_chain one = *chain;
    double error = 0, size = 0, limit = 40 * ts_rounding(actor->bits_a);
    limit = limit > 4e-4 ? limit : 4e-4;
    if (fused->first_size != chain->size) {
        size_t q_width = chain->heads * chain->size, k_width = chain->served * chain->size;
        ts_chain_inputs_release(&fused->first_head);
        fused->first_head = (struct ts_chain_inputs){
            first_columns(fused->reference.q, actor->rows, q_width, chain->size),
            first_columns(fused->reference.k, actor->rows, k_width, chain->size),
            first_columns(fused->reference.v, actor->rows, k_width, chain->size),
        };
        fused->first_size = chain->size;
    }
    one.heads = one.served = 1;
    if (!fused->first_head.q || !fused->first_head.k || !fused->first_head.v ||
        !ts_chain_run(&one, &fused->first_head, tokens, row, 1, out))
        return false;
    for (size_t i = 0; i < chain->size; i++) {
        double captured = (double)actor->a[row * actor->width + i], given = out[row * chain->size + i];
        error += (given - captured) * (given - captured);
        size += captured * captured;
    }
    return error <= limit * limit * size;
}

/* Whether a chain gives the captured context of one row, in a sequence of `tokens`. */
static bool gives_row(struct fused *fused, const struct ts_chain *chain, size_t tokens, size_t row, double *out)
{
    size_t width = fused->the_case->actor->width;
    return gives_first_head(fused, chain, tokens, row, out) &&
           ts_chain_run(chain, &fused->reference, tokens, row, 1, out) &&
           is_captured(fused, out + row * width, row, width);
}

/* The context was captured: the chain must give it, with one of the usual scales and caps. The first rows of a causal
 * chain need the first tokens only, and show no window; the first row that then differs tells its length. */
static bool gives_context(struct fused *fused, const struct ts_chain *chain, void *context)
{
    static const double caps[] = {0, 50, 30, 20};
    bool causal = chain->shift == 0;
    size_t last = fused->tokens - 1;
    if (begins_with_values(fused, chain) != causal)
        return false;
    for (size_t way = 0; way < 2 * (sizeof caps / sizeof *caps); way++) {
        struct ts_chain trial = *chain;
        trial.scale = way % 2 ? 1 : chain->scale;
        trial.cap = caps[way / 2];
        if (!gives_row(fused, &trial, causal ? 2 : fused->tokens, 1, context))
            continue;
        for (size_t row = 2; row <= last && causal && !trial.window; row++)
            if (!gives_row(fused, &trial, row + 1, row, context))
                trial.window = (long)row;
        if (gives_row(fused, &trial, fused->tokens, last, context) &&
            gives_row(fused, &trial, fused->tokens, fused->tokens / 2, context)) {
            fused->own = trial;
            return true;
        }
    }
    return false;
}

/* What ranks hypotheses where the output projection is unknown. */
struct likest {
    double *context, *own;      /* of a hypothesis and of the reference */
    double *products, *crossed; /* of the hypothesis' difference with itself, and with the reference */
    double *wanted, *wanted_crossed;
    double best;
    bool own_known; /* `own` is of fused->own */
};

static bool likest_open(struct likest *likest, const struct fused *fused, const struct ts_operands *operands)
{
    size_t table = fused->tokens * fused->tokens, wide = fused->reach * operands->q.width;
    *likest = (struct likest){.context = malloc(wide * sizeof(double)),
                              .own = malloc(wide * sizeof(double)),
                              .products = malloc(table * sizeof(double)),
                              .crossed = malloc(table * sizeof(double)),
                              .wanted = malloc(table * sizeof(double)),
                              .wanted_crossed = malloc(table * sizeof(double))};
    return likest->context && likest->own && likest->products && likest->crossed && likest->wanted &&
           likest->wanted_crossed;
}

static void likest_close(struct likest *likest)
{
    free(likest->context);
    free(likest->own);
    free(likest->products);
    free(likest->crossed);
    free(likest->wanted);
    free(likest->wanted_crossed);
}

/* The context of the rows that are looked at; where they need others behind them, among those. */
static bool run_rows(const struct fused *fused, const struct ts_chain *chain, const struct ts_chain_inputs *in,
                     double *out)
{
    bool ahead = ts_chain_mixes_rows(chain) || chain->shift || chain->moved[TS_ROLE_KEY] || chain->moved[TS_ROLE_VALUE];
    return ts_chain_run(chain, in, ahead ? fused->reach : fused->tokens, 0, fused->tokens, out);
}

static bool is_likest(struct fused *fused, const struct ts_chain *chain, void *context)
{
    struct likest *likest = context;
    double score;
    if (!run_rows(fused, chain, &fused->reference, likest->context))
        return true;
    ts_products_of(likest->context, likest->context, fused->tokens, chain->heads * chain->size, true, likest->products);
    score = ts_table_cosine(likest->products, likest->wanted, fused->tokens);
    if (score > likest->best + 1e-4) {
        likest->best = score;
        fused->own = *chain;
    }
    return false;
}

/* The first token that is wrong. */
static size_t find_onset(const struct ts_case *the_case)
{
    double largest = 0, cost;
    size_t row = 0;
    for (size_t r = 0; r < the_case->actor->rows; r++) {
        cost = ts_rows_cost(the_case, the_case->expected, r, 1);
        largest = cost > largest ? cost : largest;
    }
    while (row < the_case->actor->rows && ts_rows_cost(the_case, the_case->expected, row, 1) < 1e-3 * largest)
        row++;
    return row;
}

static void make_guesses(struct fused *fused)
{
    const struct ts_actor *actor = fused->the_case->actor;
    fused->guess_count =
        ts_chain_guesses(&fused->own, fused->reach, fused->reach == actor->rows ? TS_MIXES_ALL : TS_MIXES_NOTHING,
                         actor->width, fused->onset, fused->others, fused->guesses);
}

/* A chain that lasts: values that were loaded go, where they come from stays. */
static struct ts_chain chain_of(const struct ts_chain *chain)
{
    struct ts_chain own = *chain;
    own.values = NULL;
    return own;
}

/* Where guesses are tried when the reference's chain is known. */
struct exact {
    const struct fused *fused;
    size_t first, count; /* rows */
    double base;         /* their error */
    double *out;
};

/* Share of the error that a chain explains there. */
static double score_exact(void *from, const struct ts_chain *chain)
{
    const struct exact *exact = from;
    const struct fused *fused = exact->fused;
    if (!(exact->base > 0) ||
        !ts_chain_run(chain, &fused->candidate, fused->tokens, exact->first, exact->count, exact->out))
        return 0;
    return 1 - ts_rows_cost(fused->the_case, exact->out, exact->first, exact->count) / exact->base;
}

static void propose_exact(struct fused *fused, double *out)
{
    struct ts_case *the_case = fused->the_case;
    struct exact exact = {.fused = fused, .out = out};
    size_t work = fused->tokens * the_case->actor->width;
    ts_worst_rows(the_case, TRIAL_WORK / (work ? work : 1) * the_case->actor->width, &exact.first, &exact.count);
    exact.base = ts_rows_cost(the_case, the_case->expected, exact.first, exact.count);
    for (size_t g = 0; g < fused->guess_count; g++)
        if (!fused->guesses[g].reversed)
            fused->guesses[g].score = score_exact(&exact, &fused->guesses[g].chain);
    ts_chain_refine(fused->guesses, fused->guess_count, &fused->own, score_exact, &exact);
    for (size_t g = 0; g < fused->guess_count; g++) {
        const struct ts_chain_guess *guess = &fused->guesses[g];
        const struct ts_chain given = chain_of(&guess->chain);
        if (guess->reversed || !(guess->score > 0.5) ||
            !ts_chain_run(&guess->chain, &fused->candidate, fused->tokens, 0, fused->tokens, out))
            continue;
        ts_give_chain(the_case, &given);
        ts_propose(the_case, guess->id, out, guess->refined,
                   "what is passed to the attention kernel: scale, mask, window, positions, head counts", "%s",
                   guess->text);
    }
}

/* How well the tables of products agree, of the difference in likest->context and of the reference in likest->own. */
static double score_tables(const struct fused *fused, struct likest *likest)
{
    double sums[TS_TALLY_SUMS] = {0};
    size_t tokens = fused->tokens, width = fused->own.heads * fused->own.size;
    ts_products_of(likest->context, likest->context, tokens, width, false, likest->products);
    ts_products_of(likest->own, likest->context, tokens, width, false, likest->crossed);
    ts_tables_add(&(struct ts_tables){likest->products, likest->wanted, likest->crossed, likest->wanted_crossed}, NULL,
                  tokens, sums);
    return ts_tables_likeness(sums);
}

static double score_guess(struct fused *fused, struct likest *likest, const struct ts_chain_guess *guess)
{
    size_t tokens = fused->tokens, width = fused->own.heads * fused->own.size;
    const struct ts_chain *wrong = guess->reversed ? &fused->own : &guess->chain;
    const struct ts_chain *right = guess->reversed ? &guess->chain : &fused->own;
    /* the reference's own context is the same for most guesses */
    if ((guess->reversed || !likest->own_known) && !run_rows(fused, right, &fused->reference, likest->own))
        return 0;
    likest->own_known = !guess->reversed;
    if (!run_rows(fused, wrong, &fused->candidate, likest->context))
        return 0;
    for (size_t i = 0; i < tokens * width; i++)
        likest->context[i] -= likest->own[i];
    return score_tables(fused, likest);
}

/* What is left of nothing: the context gone altogether. Anything that replaces it by something unrelated looks much the
 * same, so a guess must do better than this. */
static double score_of_loss(struct fused *fused, struct likest *likest)
{
    size_t total = fused->tokens * fused->own.heads * fused->own.size;
    if (!run_rows(fused, &fused->own, &fused->reference, likest->own))
        return 1;
    for (size_t i = 0; i < total; i++)
        likest->context[i] = -likest->own[i];
    return score_tables(fused, likest);
}

/* The reference's own attention on what came into the candidate: tokens that are set aside are keys and values of
 * others, and move them. What is done otherwise must move them far more like the candidate. */
static double score_of_inputs(struct fused *fused, struct likest *likest)
{
    const struct ts_chain_guess nothing = {.chain = fused->own};
    return score_guess(fused, likest, &nothing);
}

/* A guess and the reference's chain that it was made for. */
struct contender {
    struct ts_chain_guess guess;
    struct ts_chain own;
};

static bool replaces_values(const struct ts_chain_guess *guess)
{
    return guess->chain.values || guess->chain.roles[TS_ROLE_VALUE] != TS_ROLE_VALUE;
}

/* Any other values under the right probabilities look much like a loss. What tells them is how tokens of the reference
 * stand to those of the candidate. */
static double relation_of(struct fused *fused, struct likest *likest, const struct contender *best)
{
    struct ts_case *the_case = fused->the_case;
    size_t tokens = fused->tokens, width = best->own.heads * best->own.size;
    return best->guess.reversed || !replaces_values(&best->guess) ||
                   !run_rows(fused, &best->own, &fused->reference, likest->own) ||
                   !run_rows(fused, &best->guess.chain, &fused->candidate, likest->context)
               ? 0
               : ts_relation(likest->own, likest->context, width, the_case->expected, the_case->found,
                             the_case->actor->width, tokens);
}

/* Scores all guesses and keeps the best of every id. */
static void score_guesses(struct fused *fused, struct likest *likest, struct contender *best, size_t *best_count)
{
    likest->own_known = false;
    for (size_t g = 0; g < fused->guess_count; g++) {
        struct ts_chain_guess *guess = &fused->guesses[g];
        size_t at = 0;
        if (guess->fine)
            continue;
        guess->score = score_guess(fused, likest, guess);
        while (at < *best_count && strcmp(best[at].guess.id, guess->id) != 0)
            at++;
        if (at == *best_count && at < MOST_IDS)
            best[(*best_count)++] = (struct contender){*guess, fused->own};
        else if (at < *best_count && guess->score > best[at].guess.score)
            best[at] = (struct contender){*guess, fused->own};
    }
}

/* How much larger a guess makes the difference than it is, both over the reference: a logarithm. Of the guess that was
 * scored last. */
static double size_of(const struct fused *fused, const struct likest *likest)
{
    const struct ts_case *the_case = fused->the_case;
    size_t tokens = fused->tokens, width = fused->own.heads * fused->own.size;
    double made = 0, wanted = 0, own = 0, expected = 0;
    for (size_t t = 0; t < tokens; t++) {
        made += likest->products[t * tokens + t];
        wanted += likest->wanted[t * tokens + t];
    }
    for (size_t i = 0; i < tokens * width; i++)
        own += likest->own[i] * likest->own[i];
    for (size_t i = 0; i < tokens * the_case->actor->width; i++)
        expected += the_case->expected[i] * the_case->expected[i];
    return made > 0 && wanted > 0 && own > 0 && expected > 0 ? 0.5 * log(made / own / (wanted / expected))
                                                             : (double)INFINITY;
}

/* A guess that moves the tokens as much like the candidate as the best does, and by as much as it does, is better. */
static void take_nearer(struct fused *fused, struct likest *likest, const struct ts_chain_guess *trial, double like,
                        double *off, struct ts_chain_guess *nearest)
{
    struct ts_chain_guess scored = *trial;
    double by;
    scored.score = score_guess(fused, likest, trial);
    by = fabs(size_of(fused, likest));
    if (scored.score > like - LIKE_TIE && by < *off) {
        *off = by;
        *nearest = scored;
    }
}

/* Bases, scales and caps are continuous. In which direction tokens move hardly tells one from the next, but how far
 * they move does. The list has the usual ones; this finds which of those it is, or which one between. */
static void refine(struct fused *fused, struct likest *likest, struct contender *best)
{
    struct ts_chain_guess listed = best->guess, between;
    double *number = ts_chain_number(&best->guess.chain, &best->own), off = (double)INFINITY, nearer;
    ptrdiff_t at = number ? (char *)number - (char *)&best->guess.chain : 0;
    if (!number || best->guess.reversed)
        return;
    fused->own = best->own;
    likest->own_known = false;
    make_guesses(fused);
    take_nearer(fused, likest, &best->guess, best->guess.score, &off, &listed);
    for (size_t g = 0; g < fused->guess_count; g++) {
        double *other = ts_chain_number(&fused->guesses[g].chain, &best->own);
        if (other && !fused->guesses[g].reversed && (char *)other - (char *)&fused->guesses[g].chain == at)
            take_nearer(fused, likest, &fused->guesses[g], best->guess.score, &off, &listed);
    }
    between = listed;
    nearer = off;
    for (double step = at == offsetof(struct ts_chain, cap) ? 1.6 : 0.4; step > 0.01; step /= 2)
        for (int side = -1; side <= 1; side += 2) {
            struct ts_chain_guess trial = between;
            *(double *)((char *)&trial.chain + at) *= exp(side * step);
            take_nearer(fused, likest, &trial, best->guess.score, &nearer, &between);
        }
    best->guess = off < SIZE_TIE ? listed : between;
    if (off >= SIZE_TIE)
        ts_chain_say_number(&best->guess, &best->own, 2);
}

static void propose_contender(const struct fused *fused, const struct contender *best)
{
    struct ts_case *the_case = fused->the_case;
    const struct ts_chain_guess *guess = &best->guess;
    struct ts_moves moves = {.wrong = chain_of(guess->reversed ? &best->own : &guess->chain),
                             .right = chain_of(guess->reversed ? &guess->chain : &best->own),
                             .modesty = LIKE_MODESTY};
    moves.before = ts_case_text(the_case, "in the attention between %s and this tensor: %s",
                                ts_case_name(the_case, fused->own.q.actor), guess->text);
    ts_give_moves(the_case, &moves, fused->tokens < the_case->actor->rows, TS_MOVES_HELD);
    ts_propose_plain(the_case, guess->id, guess->score - LIKE_MODESTY,
                     "what is passed to the attention between these projections: positions, scale, mask, head counts",
                     "%s", ts_moves_text(the_case, moves.before, guess->score));
}

/* The rotary embedding of the reference is not known either: with each that is usual, every guess. */
static void propose_likest(struct fused *fused, struct likest *likest, bool turned)
{
    static const double bases[] = {0, 1e4, 1e6, 5e5, 1e5};
    struct ts_case *the_case = fused->the_case;
    size_t width = the_case->actor->width, count = 0, first = 0;
    double *difference = malloc(fused->tokens * width * sizeof *difference);
    struct contender best[MOST_IDS];
    struct ts_chain own = fused->own;
    double loss = 0, inputs = 0, second = 0, relations[MOST_IDS] = {0}, related = 0;
    bool good;
    for (size_t i = 0; i < fused->tokens * width && difference; i++)
        difference[i] = the_case->found[i] - the_case->expected[i];
    if (difference) {
        ts_products_of(difference, difference, fused->tokens, width, false, likest->wanted);
        ts_products_of(the_case->expected, difference, fused->tokens, width, false, likest->wanted_crossed);
        loss = score_of_loss(fused, likest);
        for (size_t b = 0; b < (turned ? 1 : sizeof bases / sizeof *bases); b++)
            for (int variant = 0; variant < (b ? 4 : 1); variant++) {
                fused->own = own;
                fused->own.base = bases[b];
                fused->own.interleaved = variant % 2;
                fused->own.group = own.size >> variant / 2;
                if (fused->own.group < 4 || fused->own.group % 2)
                    continue;
                make_guesses(fused);
                score_guesses(fused, likest, best, &count);
                inputs = fmax(inputs, score_of_inputs(fused, likest));
            }
    }
    for (size_t i = 0; i < count && difference; i++) {
        if (best[i].guess.score > LIKE_ENOUGH - 0.15)
            refine(fused, likest, &best[i]);
        if (best[i].guess.score > best[first].guess.score)
            first = i;
    }
    for (size_t i = 0; i < count; i++)
        if (i != first && best[i].guess.score > second)
            second = best[i].guess.score;
    second = second > loss ? second : loss;
    good = count && best[first].guess.score - inputs > LIKE_SHARE * (1 - inputs) &&
           (best[first].guess.score > LIKE_ENOUGH ||
            (best[first].guess.score > LIKE_LEADER && best[first].guess.score > second + LIKE_LEAD));
    for (size_t i = 0; i < count && good; i++) {
        if (best[i].guess.score > best[first].guess.score - LIKE_TIE && best[i].guess.score > loss)
            relations[i] = relation_of(fused, likest, &best[i]);
        related = fmax(related, relations[i]);
    }
    for (size_t i = 0; i < count && good; i++)
        if (best[i].guess.score > best[first].guess.score - LIKE_TIE &&
            (relations[i] > 0 ? relations[i] > related - RELATED_TIE : best[i].guess.score > loss + 2 * LIKE_TIE))
            propose_contender(fused, &best[i]);
    free(difference);
}

/* Rows for the odds, with every key that they see, or together with all others. */
static bool run_listed(void *from, const struct ts_chain *chain, bool candidate, double *out)
{
    const struct fused *fused = from;
    const struct ts_actor *actor = fused->the_case->actor;
    if (ts_pass_some(fused->the_case, chain, candidate, fused->list, fused->listed, out))
        return true;
    return actor->whole && actor->rows * actor->rows * chain->heads * chain->size <= REACH_WORK &&
           ts_chain_run(chain, candidate ? &fused->candidate : &fused->reference, actor->rows, 0, actor->rows, out);
}

static size_t guess_for(void *from, const struct ts_chain *own, const struct ts_chain_guess **guesses)
{
    struct fused *fused = from;
    fused->own = *own;
    make_guesses(fused);
    *guesses = fused->guesses;
    return fused->guess_count;
}

static bool take_chain(struct fused *fused, const struct ts_chain *chain, void *context)
{
    (void)fused;
    ts_attention_odds_take(context, chain);
    return false;
}

/* What the odds of contexts tell is sharper than likeness. */
static bool propose_by_odds(const struct fused *given, const struct ts_operands *operands)
{
    struct ts_case *the_case = given->the_case;
    const struct ts_glance *glance = the_case->actor->whole ? NULL : ts_case_glance(the_case);
    struct fused fused = *given;
    struct ts_attention_odds odds = {.the_case = the_case,
                                     .rows = the_case->actor->rows,
                                     .width = operands->q.width,
                                     .turned = operands->turned,
                                     .from = &fused,
                                     .run = run_listed,
                                     .guess = guess_for};
    const uint64_t first = ts_scene_first(the_case->scene), tokens = ts_scene_sequence(the_case->scene);
    const double most = ODDS_WORK / ((double)tokens * (double)odds.width);
    size_t spread = ts_odds_spread(odds.rows, odds.width, odds.list);
    bool said = false;
    odds.listed = most < (double)spread ? (size_t)most : spread;
    if (odds.listed < spread && odds.listed < ODDS_LEAST)
        return false;
    for (size_t i = 0; i < odds.listed; i++)
        odds.list[i] = odds.list[i * spread / odds.listed];
    fused.list = odds.list;
    fused.listed = odds.listed;
    fused.tokens = fused.reach = (size_t)tokens;
    if (glance && glance->first >= first && glance->first < first + tokens)
        fused.onset = (size_t)(glance->first - first);
    odds.tokens = fused.tokens;
    odds.onset = fused.onset;
    for (size_t i = 0; i < TS_MOST_OTHERS; i++)
        fused.others[i].values = NULL; /* they are read */
    if (ts_attention_odds_open(&odds)) {
        each_chain(&fused, operands, HALVES, take_chain, &odds);
        said = ts_attention_odds_propose(&odds);
    }
    ts_attention_odds_close(&odds);
    return said;
}

/* Tokens for tables of products: few enough for all guesses, enough to reach what goes wrong. */
static size_t tokens_for_products(const struct ts_case *the_case, size_t width, size_t onset)
{
    size_t tokens = 0;
    while (tokens < the_case->actor->rows &&
           ts_case_row(the_case, tokens) == tokens) /* a spread begins with neighbours */
        tokens++;
    tokens = tokens < MOST_TOKENS ? tokens : MOST_TOKENS;
    while (tokens > 10 && tokens > onset + 6 && tokens * tokens * width > TABLE_WORK)
        tokens--;
    return tokens <= the_case->actor->rows ? tokens : the_case->actor->rows;
}

/* The same chains for long sequences. */
struct long_search {
    struct fused *fused;
    const struct ts_operands *operands;
    ts_long_test test;
    void *context;
};

static bool test_long(struct fused *fused, const struct ts_chain *chain, void *context)
{
    struct long_search *search = context;
    (void)fused;
    return search->test(search->context, chain);
}

static void long_chains(void *from, ts_long_test test, void *context)
{
    struct long_search *search = from;
    search->test = test;
    search->context = context;
    each_chain(search->fused, search->operands, QUARTERS, test_long, search);
}

static bool propose_long(struct fused *fused, const struct ts_operands *operands)
{
    struct long_search search = {.fused = fused, .operands = operands};
    struct fused all = *fused;
    size_t sizes[TS_MOST_HEAD_SIZES], count = ts_operands_head_sizes(fused->the_case, operands, sizes), largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = sizes[i] > largest && sizes[i] <= 512 ? sizes[i] : largest;
    all.tokens = all.reach = (size_t)ts_scene_sequence(fused->the_case->scene);
    search.fused = &all;
    return largest && ts_propose_long_attention(fused->the_case, largest, long_chains, &search, fused->others);
}

void ts_propose_fused_attention(struct ts_case *the_case)
{
    struct fused fused = {.the_case = the_case, .tokens = the_case->actor->rows, .reach = the_case->actor->rows};
    struct ts_operands operands;
    struct likest likest = {0};
    struct ts_chain chain = {0};
    double *out = NULL;
    bool exact;
    if (fused.tokens < 4 || !ts_operands_find(the_case, &operands))
        return;
    ts_operands_others(&operands, fused.others);
    if (!the_case->actor->whole && operands.q.width == the_case->actor->width && propose_long(&fused, &operands))
        return;
    chain.q = operands.q;
    chain.k = operands.k;
    chain.v = operands.v;
    fused.onset = find_onset(the_case);
    fused.guesses = calloc(TS_MOST_GUESSES, sizeof *fused.guesses);
    out = malloc(fused.tokens * operands.q.width * sizeof *out);
    for (size_t i = 0; i < TS_MOST_OTHERS && fused.others[i].operand.actor; i++)
        if (!(fused.others[i].values = ts_operand_load(&fused.others[i].operand, true, fused.tokens)))
            goto done;
    if (!fused.guesses || !out || !ts_chain_load(&fused.reference, &chain, false, fused.tokens) ||
        !ts_chain_load(&fused.candidate, &chain, true, fused.tokens))
        goto done;
    exact = the_case->actor->whole && operands.q.width == the_case->actor->width &&
            each_chain(&fused, &operands, QUARTERS, gives_context, out);
    if (exact) {
        make_guesses(&fused);
        propose_exact(&fused, out);
    } else if (ts_names_attention(ts_case_name(the_case, the_case->actor)) && fused.onset + 3 <= fused.tokens) {
        if (propose_by_odds(&fused, &operands))
            goto done;
        fused.tokens = tokens_for_products(the_case, operands.q.width, fused.onset);
        if (!the_case->actor->whole || fused.reach * fused.reach * operands.q.width > REACH_WORK)
            fused.reach = fused.tokens;
        if (fused.tokens >= 4 && likest_open(&likest, &fused, &operands)) {
            ts_products_of(the_case->expected, the_case->expected, fused.tokens, the_case->actor->width, true,
                           likest.wanted);
            each_chain(&fused, &operands, HALVES, is_likest, &likest);
            if (fused.own.heads)
                propose_likest(&fused, &likest, operands.turned);
        }
        likest_close(&likest);
    }
done:
    ts_chain_inputs_release(&fused.first_head);
    ts_chain_inputs_release(&fused.reference);
    ts_chain_inputs_release(&fused.candidate);
    for (size_t i = 0; i < TS_MOST_OTHERS; i++)
        free(fused.others[i].values);
    free(fused.guesses);
    free(out);
}
