#include "diagnose/attention_trial.h"

#include <stdlib.h>

#include "diagnose/variant.h"

#define MOST_SIZE 512 /* numbers of a head of a context */

void ts_trial_choose(struct ts_trial *trial, struct ts_long *it, size_t heads, enum ts_trial_of of)
{
    const struct ts_case *the_case = it->the_case;
    const struct ts_actor *actor = the_case->actor;
    double *of_rows = calloc(actor->rows + heads, sizeof *of_rows), *of_heads = of_rows ? of_rows + actor->rows : NULL;
    *trial = (struct ts_trial){.it = it, .of = of, .numbers = actor->width / heads};
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

double ts_trial_score(void *from, const struct ts_chain *chain)
{
    const struct ts_trial *trial = from;
    const struct ts_case *the_case = trial->it->the_case;
    double context[MOST_SIZE], left = 0, made = 0;
    for (size_t h = 0; h < trial->head_count; h++)
        for (size_t r = 0; r < trial->row_count; r++) {
            const size_t at = trial->rows[r] * the_case->actor->width + trial->heads[h] * trial->numbers;
            const size_t token = (size_t)ts_case_row(the_case, trial->rows[r]);
            const double *given = context;
            if (trial->of != TS_TRIAL_CONTEXT)
                given = ts_long_weights(trial->it, chain, true, trial->heads[h], token);
            else if (!ts_long_context(trial->it, chain, true, trial->heads[h], token, context))
                given = NULL;
            for (size_t i = 0; i < trial->numbers && given; i++) {
                double found = the_case->found[at + i], expected = the_case->expected[at + i], cost, own;
                /* what is masked in scores stays so */
                bool masked = trial->of == TS_TRIAL_SCORES && !ts_is_allowed(expected);
                cost = ts_element_cost(found, masked ? expected : given[i], expected);
                own = ts_element_cost(found, expected, expected);
                left += cost > 0 ? cost : 0;
                made += own > 0 ? own : 0;
            }
            if (!given)
                return 0;
        }
    return made > 0 ? 1 - left / made : 0;
}
