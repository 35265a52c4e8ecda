/* Owns the few heads and tokens of a long sequence that guesses are tried on. */
#include "diagnose/attention_trial.h"

#include <stdlib.h>

#include "diagnose/variant.h"

#define MOST_SIZE 512 /* numbers of a head of a context */

static void choose(struct ts_trial *trial, size_t heads)
{
    const struct ts_case *the_case = trial->it->the_case;
    const struct ts_actor *actor = the_case->actor;
    double *of_rows = calloc(actor->rows + heads, sizeof *of_rows), *of_heads = of_rows ? of_rows + actor->rows : NULL;
    for (size_t i = 0; i < the_case->total && of_rows; i++) {
        double cost = ts_element_cost(the_case->found[i], the_case->expected[i], the_case->expected[i]);
        of_rows[i / actor->width] += cost > 0 ? cost : 0;
        of_heads[i % actor->width / trial->numbers] += cost > 0 ? cost : 0;
    }
    while (of_rows && trial->row_count < TS_TRIAL_ROWS && trial->row_count < actor->rows) {
        size_t best = 0;
        for (size_t row = 1; row < actor->rows; row++)
            best = of_rows[row] > of_rows[best] ? row : best;
        of_rows[best] = -1;
        trial->rows[trial->row_count++] = best;
    }
    while (of_heads && trial->head_count < TS_TRIAL_HEADS && trial->head_count < heads) {
        size_t best = 0;
        for (size_t head = 1; head < heads; head++)
            best = of_heads[head] > of_heads[best] ? head : best;
        of_heads[best] = -1;
        trial->heads[trial->head_count++] = best;
    }
    free(of_rows);
}

void ts_trial_open(struct ts_trial *trial, struct ts_long *it, size_t heads, enum ts_trial_of of)
{
    bool good = true;
    *trial = (struct ts_trial){.it = it, .of = of, .numbers = it->the_case->actor->width / heads};
    choose(trial, heads);
    for (size_t h = 1; h < trial->head_count; h++)
        good = ts_long_open(&trial->others[h - 1], it->the_case, it->room) && good;
    if (good && trial->head_count > 1)
        trial->pool = ts_pool_new((unsigned)trial->head_count);
}

void ts_trial_close(struct ts_trial *trial)
{
    for (size_t h = 1; h < TS_TRIAL_HEADS; h++)
        ts_long_close(&trial->others[h - 1]);
    ts_pool_free(trial->pool);
}

/* What a chain leaves of the error, and the error, by heads. */
struct score {
    struct ts_trial *trial;
    const struct ts_chain *chain;
    double left[TS_TRIAL_HEADS], made[TS_TRIAL_HEADS];
    bool failed[TS_TRIAL_HEADS];
};

static void score_head(void *context, uint64_t index, unsigned worker)
{
    struct score *score = context;
    struct ts_trial *trial = score->trial;
    const struct ts_case *the_case = trial->it->the_case;
    struct ts_long *it = trial->pool && index ? &trial->others[index - 1] : trial->it;
    double numbers[MOST_SIZE];
    (void)worker;
    for (size_t r = 0; r < trial->row_count && !score->failed[index]; r++) {
        const size_t at = trial->rows[r] * the_case->actor->width + trial->heads[index] * trial->numbers;
        const size_t token = (size_t)ts_case_row(the_case, trial->rows[r]);
        const double *given = numbers;
        if (trial->of != TS_TRIAL_CONTEXT)
            given = ts_long_weights(it, score->chain, true, trial->heads[index], token);
        else if (!ts_long_context(it, score->chain, true, trial->heads[index], token, numbers))
            given = NULL;
        for (size_t i = 0; i < trial->numbers && given; i++) {
            double found = the_case->found[at + i], expected = the_case->expected[at + i], cost, own;
            /* what is masked in scores stays so */
            bool masked = trial->of == TS_TRIAL_SCORES && !ts_is_allowed(expected);
            cost = ts_element_cost(found, masked ? expected : given[i], expected);
            own = ts_element_cost(found, expected, expected);
            score->left[index] += cost > 0 ? cost : 0;
            score->made[index] += own > 0 ? own : 0;
        }
        score->failed[index] = !given;
    }
}

double ts_trial_score(void *from, const struct ts_chain *chain)
{
    struct ts_trial *trial = from;
    struct score score = {.trial = trial, .chain = chain};
    double left = 0, made = 0;
    if (trial->pool)
        ts_pool_run(trial->pool, trial->head_count, score_head, &score);
    for (size_t h = 0; h < trial->head_count; h++) {
        if (!trial->pool)
            score_head(&score, h, 0);
        if (score.failed[h])
            return 0;
        left += score.left[h];
        made += score.made[h];
    }
    return made > 0 ? 1 - left / made : 0;
}
