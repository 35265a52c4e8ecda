/* Owns what choices of experts say about biases that were not captured. */
#include "compare/router_bias.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool ts_router_bias_open(struct ts_router_bias *bias, size_t experts, enum ts_router_scores scores)
{
    *bias = (struct ts_router_bias){.experts = experts, .scores = scores};
    if (experts < 2 || experts > TS_MOST_BIASED)
        return false;
    bias->most = malloc(experts * experts * sizeof *bias->most);
    bias->room = malloc(experts * sizeof *bias->room);
    for (size_t i = 0; i < experts * experts && bias->most; i++)
        bias->most[i] = INFINITY;
    return bias->most && bias->room;
}

void ts_router_bias_close(struct ts_router_bias *bias)
{
    free(bias->most);
    free(bias->room);
    *bias = (struct ts_router_bias){0};
}

/* False: something is not a number. */
static bool score(struct ts_router_bias *bias, const float *logits)
{
    double most = -INFINITY, sum = 0;
    for (size_t i = 0; i < bias->experts; i++) {
        if (!isfinite(logits[i]))
            return false;
        most = fmax(most, (double)logits[i]);
    }
    for (size_t i = 0; i < bias->experts; i++) {
        const double logit = (double)logits[i];
        bias->room[i] = bias->scores == TS_ROUTER_SIGMOID   ? 1 / (1 + exp(-logit))
                        : bias->scores == TS_ROUTER_SOFTMAX ? exp(logit - most)
                                                            : logit;
        sum += bias->room[i];
    }
    for (size_t i = 0; i < bias->experts && bias->scores == TS_ROUTER_SOFTMAX; i++)
        bias->room[i] /= sum;
    return true;
}

static bool is_chosen(size_t expert, const int64_t *chosen, size_t count)
{
    for (size_t k = 0; k < count; k++)
        if (chosen[k] == (int64_t)expert)
            return true;
    return false;
}

static bool are_experts(const struct ts_router_bias *bias, const int64_t *chosen, size_t count)
{
    for (size_t k = 0; k < count; k++)
        if (chosen[k] < 0 || chosen[k] >= (int64_t)bias->experts || is_chosen((size_t)chosen[k], chosen, k))
            return false;
    return true;
}

/* The choice was made before logits were rounded for the capture; scores and biases were rounded before it was made. */
static double slack_of(const struct ts_router_bias *bias, int bits)
{
    double most = 0;
    for (size_t i = 0; i < bias->experts; i++)
        most = fmax(most, fabs(bias->room[i]));
    return ldexp(most, -bits) + 1e-6;
}

void ts_router_bias_hear(struct ts_router_bias *bias, const float *logits, int bits, const int64_t *chosen,
                         size_t count)
{
    double slack;
    if (!are_experts(bias, chosen, count) || !score(bias, logits)) {
        bias->contradicted = true;
        return;
    }
    slack = slack_of(bias, bits);
    for (size_t other = 0; other < bias->experts; other++) {
        float *most = bias->most + other * bias->experts;
        if (is_chosen(other, chosen, count))
            continue;
        for (size_t k = 0; k < count; k++)
            most[chosen[k]] = fminf(most[chosen[k]], (float)(bias->room[chosen[k]] - bias->room[other] + slack));
    }
}

bool ts_router_bias_settle(struct ts_router_bias *bias)
{
    const size_t experts = bias->experts;
    for (size_t i = 0; i < experts; i++)
        bias->most[i * experts + i] = 0;
    for (size_t by = 0; by < experts && !bias->contradicted; by++)
        for (size_t one = 0; one < experts; one++) {
            float *to = bias->most + one * experts;
            const float *from = bias->most + by * experts, first = to[by];
            if (!isfinite(first))
                continue;
            for (size_t other = 0; other < experts; other++)
                to[other] = first + from[other] < to[other] ? first + from[other] : to[other];
        }
    for (size_t i = 0; i < experts; i++)
        bias->contradicted = bias->contradicted || bias->most[i * experts + i] < 0;
    return !bias->contradicted;
}

bool ts_router_bias_allows(struct ts_router_bias *bias, const float *logits, int bits, const int64_t *chosen,
                           size_t count)
{
    double slack;
    if (!are_experts(bias, chosen, count) || !score(bias, logits))
        return false;
    slack = slack_of(bias, bits);
    for (size_t other = 0; other < bias->experts; other++)
        for (size_t k = 0; k < count && !is_chosen(other, chosen, count); k++) {
            const size_t one = (size_t)chosen[k];
            /* the other one's bias is larger by at least this */
            const double least = -(double)bias->most[one * bias->experts + other];
            if (least > bias->room[one] - bias->room[other] + slack)
                return false;
        }
    return true;
}
