/* What a router makes of a token's logits: the experts that it chooses, and how much each of them counts. */
#ifndef TS_COMPARE_ROUTER_H
#define TS_COMPARE_ROUTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How weights are made. A softmax over the chosen experts alone is that of all of them, divided by its sum. */
struct ts_gate {
    bool sigmoid; /* of each logit by itself, in place of a softmax over all experts */
    bool divided; /* by the sum over the chosen ones */
};

/* The experts with the largest logits, in falling order, of equal ones the first;
 * -1 where there are no more. */
void ts_choose_experts(const float *logits, size_t experts, size_t count, int64_t *chosen);

/* The weights of the chosen experts; none for those of -1. */
void ts_weigh_experts(const struct ts_gate *gate, const float *logits, size_t experts, const int64_t *chosen,
                      size_t count, double *weights);

#endif
