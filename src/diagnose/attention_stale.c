/* Owns the search for a key that is another token's, in scores over a long sequence: the key whose scores hold most of
 * the error, and the token whose key they fit. */
#include <stdlib.h>

#include "diagnose/variant.h"

#define MASKED (-1e4)

/* Cost of one key in place of another, over rows and heads. */
static double key_cost(const struct ts_variants *variants, size_t to, size_t from)
{
    const struct ts_case *the_case = variants->the_case;
    const struct ts_actor *actor = the_case->actor, *q = variants->from[0], *k = variants->from[1];
    size_t size = q->width / actor->heads, repeat = actor->heads / (k->width / size);
    double cost = 0;
    for (size_t row = 0; row<actor->rows; row += actor->rows> 16 ? 3 : 1)
        for (size_t head = 0; head < actor->heads; head++) {
            size_t at = row * actor->width + head * actor->inner + to;
            const double *x = variants->inputs[0] + row * q->width + head * size;
            const double *y = variants->inputs[1] + from * k->width + head / repeat * size;
            double sum = 0, d;
            if (!(the_case->expected[at] > MASKED) || !isfinite(the_case->found[at]))
                continue;
            for (size_t i = 0; i < size; i++)
                sum += x[i] * y[i];
            d = the_case->found[at] - the_case->operation.factor * sum;
            cost += d * d;
        }
    return cost;
}

bool ts_find_stale_key(const struct ts_variants *variants, size_t *token, size_t *source)
{
    const struct ts_case *the_case = variants->the_case;
    const struct ts_actor *actor = the_case->actor;
    double *costs, all = 0, best;
    if (the_case->operation.kind != TS_OPERATION_SCORES || the_case->operation.table ||
        !(costs = calloc(actor->inner, sizeof *costs)))
        return false;
    for (size_t i = 0; i < the_case->total; i++) {
        double cost = ts_element_cost(the_case->found[i], the_case->expected[i], the_case->expected[i]);
        costs[i % actor->inner] += cost > 0 ? cost : 0;
        all += cost > 0 ? cost : 0;
    }
    for (size_t key = *token = 0; key < actor->inner; key++)
        *token = costs[key] > costs[*token] ? key : *token;
    *source = *token;
    best = costs[*token] > 0.5 * all ? 0.1 * key_cost(variants, *token, *token) : 0;
    free(costs);
    for (size_t from = 0; from < actor->inner && best > 0; from++) {
        double cost = from == *token ? best : key_cost(variants, *token, from);
        if (cost < best) {
            best = cost;
            *source = from;
        }
    }
    return *source != *token;
}
