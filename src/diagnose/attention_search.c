/* Owns the search behind a long context: the chain that gives the reference's, then what the candidate does otherwise,
 * tried on the worst tokens of a few heads. */
#include <stdio.h>
#include <stdlib.h>

#include "diagnose/attention_pass.h"
#include "diagnose/attention_tables.h"
#include "diagnose/attention_trial.h"
#include "diagnose/variant.h"

#define BEST       3    /* guesses that are worked out in full */
#define WORTHWHILE 0.5  /* share of the error that a trial must explain */
#define MOST_WORK  2e11 /* multiplications for the rows of a case: two seconds */

/* Relative square of what a chain leaves of the reference's context, at one head and token. */
static double left_at(struct ts_long *it, const struct ts_chain *chain, size_t head, size_t token)
{
    double given[512], captured[512], error = 0, size = 0;
    if (!ts_long_context(it, chain, false, head, token, given) ||
        !ts_long_captured(it, chain, false, head, token, captured))
        return (double)INFINITY;
    for (size_t i = 0; i < chain->size; i++) {
        error += (given[i] - captured[i]) * (given[i] - captured[i]);
        size += captured[i] * captured[i];
    }
    return size > 0 ? error / size : (double)INFINITY;
}

static bool fits(struct ts_long *it, const struct ts_chain *chain, size_t head, size_t token)
{
    double limit = 20 * ts_rounding(it->the_case->actor->bits_a);
    limit = limit > 2e-4 ? limit : 2e-4;
    return left_at(it, chain, head, token) <= limit * limit;
}

/* The length of the reference's window, from the first token that cannot see everything, then nearer: the last token
 * shows best what is missing. 0 when no length does it. */
static long find_window(struct ts_long *it, const struct ts_chain *chain)
{
    size_t low = 7, high = it->tokens - 1;
    struct ts_chain trial = *chain;
    double best;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (fits(it, chain, 0, middle))
            low = middle;
        else
            high = middle;
    }
    trial.window = (long)high;
    best = left_at(it, &trial, 0, it->tokens - 1);
    for (long step = 64; step; step /= 2)
        for (int side = -1; side <= 1; side += 2) {
            struct ts_chain other = trial;
            double left;
            other.window += side * step;
            if (other.window < 1)
                continue;
            left = left_at(it, &other, 0, it->tokens - 1);
            if (left < best) {
                best = left;
                trial = other;
            }
        }
    return fits(it, &trial, 0, it->tokens - 1) && fits(it, &trial, 0, it->tokens / 2) ? trial.window : 0;
}

struct search {
    struct ts_long it;
    struct ts_chain own;
    bool found;
};

/* One way a reference may do attention: it must give the captured context, with one of the usual scales and caps. */
static bool gives_context(void *context, const struct ts_chain *chain)
{
    static const double caps[] = {0, 50, 30, 20};
    struct search *search = context;
    struct ts_long *it = &search->it;
    bool causal = chain->shift == 0;
    size_t last = it->tokens - 1;
    if (chain->size > it->room || (causal && !fits(it, chain, 0, 0)))
        return false;
    for (size_t way = 0; way < 2 * (sizeof caps / sizeof *caps); way++) {
        struct ts_chain trial = *chain;
        trial.scale = way % 2 ? 1 : chain->scale;
        trial.cap = caps[way / 2];
        if (!fits(it, &trial, 0, causal ? 1 : last) || (causal && (!fits(it, &trial, 0, 4) || !fits(it, &trial, 0, 7))))
            continue;
        if (causal && !fits(it, &trial, 0, last) && !(trial.window = find_window(it, &trial)))
            continue;
        if (fits(it, &trial, trial.heads - 1, last) && fits(it, &trial, trial.heads / 2, it->tokens / 2)) {
            search->own = trial;
            search->found = true;
            return true;
        }
    }
    return false;
}

/* Lengths of windows between the usual ones, and near the first token that is wrong. */
static void refine_window(struct ts_trial *trial, const struct ts_chain *own, struct ts_chain_guess *guess)
{
    long step = 32;
    if (!guess->chain.window || guess->chain.window == own->window)
        return;
    while (own->window && (size_t)step * 4 < trial->it->tokens)
        step *= 2;
    for (; step; step /= 2)
        for (int side = -1; side <= 1; side += 2) {
            struct ts_chain other = guess->chain;
            double score;
            other.window += side * step;
            if (other.window < 1 || other.window == own->window)
                continue;
            score = ts_trial_score(trial, &other);
            if (score > guess->score) {
                guess->score = score;
                guess->chain = other;
            }
        }
    if (own->window)
        snprintf(guess->text, sizeof guess->text, "the candidate's sliding window is %ld tokens, the reference's %ld",
                 guess->chain.window, own->window);
    else
        snprintf(guess->text, sizeof guess->text,
                 "the candidate has a sliding window of %ld tokens, the reference has none", guess->chain.window);
}

static void propose_guess(struct ts_long *it, const struct ts_chain_guess *guess)
{
    struct ts_case *the_case = it->the_case;
    const struct ts_chain *chain = &guess->chain;
    size_t rows = the_case->actor->rows, width = the_case->actor->width;
    double *out = ts_case_scratch(the_case);
    if (!out || 2.0 * (double)rows * (double)width * (double)it->tokens > MOST_WORK ||
        !ts_pass_rows(the_case, chain, true, out))
        return;
    ts_give_chain(the_case, chain);
    ts_propose(the_case, guess->id, out, guess->refined,
               "what is passed to the attention kernel: scale, mask, window, positions, head counts", "%s",
               guess->text);
}

static void propose_guesses(struct ts_long *it, const struct ts_chain *own, const struct ts_other_values *others)
{
    struct ts_case *the_case = it->the_case;
    const struct ts_glance *glance = ts_case_glance(the_case);
    struct ts_chain_guess *guesses = calloc(TS_MOST_GUESSES, sizeof *guesses);
    size_t onset = glance && glance->first >= it->first && glance->first < it->first + it->tokens
                       ? (size_t)(glance->first - it->first)
                       : 0;
    size_t count =
        guesses ? ts_chain_guesses(own, it->tokens, TS_MIXES_HEADS, the_case->actor->width, onset, others, guesses) : 0;
    struct ts_trial trial;
    ts_trial_open(&trial, it, own->heads, TS_TRIAL_CONTEXT);
    for (size_t g = 0; g < count; g++)
        if (!guesses[g].reversed && ts_long_reaches(&guesses[g].chain) && ts_case_wants(the_case, guesses[g].id)) {
            guesses[g].score = ts_trial_score(&trial, &guesses[g].chain);
            if (guesses[g].score > 0.1 || guesses[g].chain.window == own->window + 1)
                refine_window(&trial, own, &guesses[g]);
        }
    ts_chain_refine(guesses, count, own, ts_trial_score, &trial);
    ts_trial_close(&trial);
    ts_long_close(it); /* what comes next needs the room */
    for (int round = 0; round < (ts_case_wants(the_case, "") ? BEST : 1) && count; round++) {
        size_t best = 0;
        for (size_t g = 1; g < count; g++)
            best = guesses[g].score > guesses[best].score ? g : best;
        if (!(guesses[best].score > WORTHWHILE))
            break;
        propose_guess(it, &guesses[best]);
        guesses[best].score = 0;
    }
    free(guesses);
}

bool ts_propose_long_attention(struct ts_case *the_case, size_t largest_head,
                               void (*chains)(void *from, ts_long_test test, void *context), void *from,
                               const struct ts_other_values *others)
{
    struct search search = {0};
    if (ts_scene_sequence(the_case->scene) > 8 && ts_long_open(&search.it, the_case, largest_head)) {
        chains(from, gives_context, &search);
        if (search.found)
            propose_guesses(&search.it, &search.own, others);
    }
    ts_long_close(&search.it);
    return search.found;
}
