/* Experts that a router chose by its scores and a bias for each of them that nobody captured (DeepSeek's and others').
 *
 * Each token that chose an expert and not another says something about the difference of their biases: it is at most
 * what the first one's score had in advance. Taken together, over ways through other experts, these are the bounds that
 * every set of biases keeps which explains the choices; there is none where a way leads back to its start below zero.
 */
#ifndef TS_COMPARE_ROUTER_BIAS_H
#define TS_COMPARE_ROUTER_BIAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TS_MOST_BIASED 512 /* experts: what ways between them are looked for takes the third power of it */

enum ts_router_scores { TS_ROUTER_SIGMOID, TS_ROUTER_SOFTMAX, TS_ROUTER_PLAIN, TS_ROUTER_SCORES };

struct ts_router_bias {
    size_t experts;
    enum ts_router_scores scores; /* what the router makes of its logits before the bias is added */
    bool contradicted;
    float *most;  /* [experts][experts]: of the first one's bias less the second one's, at most */
    double *room; /* for the scores of a token */
};

bool ts_router_bias_open(struct ts_router_bias *bias, size_t experts, enum ts_router_scores scores);
void ts_router_bias_close(struct ts_router_bias *bias);

/* A token's logits, which were captured with so many bits, and what it chose. */
void ts_router_bias_hear(struct ts_router_bias *bias, const float *logits, int bits, const int64_t *chosen,
                         size_t count);

/* After the last token that is heard. False: no biases explain all of the choices. */
bool ts_router_bias_settle(struct ts_router_bias *bias);

/* Some biases that explain all that was heard explain this choice too. */
bool ts_router_bias_allows(struct ts_router_bias *bias, const float *logits, int bits, const int64_t *chosen,
                           size_t count);

#endif
