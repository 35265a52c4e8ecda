/* Owns which experts a router takes for a token, and with which weights. */
#include "compare/router.h"

#include <math.h>

void ts_choose_experts(const float *logits, size_t experts, size_t count, int64_t *chosen)
{
    for (size_t rank = 0; rank < count; rank++) {
        int64_t best = -1;
        for (size_t i = 0; i < experts; i++) {
            bool taken = false;
            if (best >= 0 && !(logits[i] > logits[best]))
                continue;
            for (size_t k = 0; k < rank && !taken; k++)
                taken = chosen[k] == (int64_t)i;
            if (!taken)
                best = (int64_t)i;
        }
        chosen[rank] = best;
    }
}

void ts_weigh_experts(const struct ts_gate *gate, const float *logits, size_t experts, const int64_t *chosen,
                      size_t count, double *weights)
{
    double largest = -INFINITY, all = 0, sum = 0;
    for (size_t i = 0; i < experts; i++)
        largest = fmax(largest, (double)logits[i]);
    for (size_t i = 0; i < experts && !gate->sigmoid; i++)
        all += exp((double)logits[i] - largest);
    for (size_t k = 0; k < count; k++) {
        const double x = chosen[k] < 0 ? -INFINITY : (double)logits[chosen[k]];
        weights[k] = gate->sigmoid ? 1 / (1 + exp(-x)) : exp(x - largest) / all;
        sum += weights[k];
    }
    for (size_t k = 0; k < count && gate->divided; k++)
        weights[k] /= sum;
}
