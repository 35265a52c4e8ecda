/* Experts: which ones a token goes to, and the weighted sum of what they say. */
#ifndef TS_MODEL_EXPERTS_H
#define TS_MODEL_EXPERTS_H

#include "model/operations.h"

struct ts_routing {
    size_t experts, chosen;
    float *weights;   /* [tokens][chosen]; NULL in a plan */
    int64_t *indices; /* [tokens][chosen] */
    struct ts_act chosen_weights;
    bool wide;
};

enum ts_router {
    TS_ROUTER_SOFTMAX,      /* probabilities of all, the best of them */
    TS_ROUTER_SOFTMAX_BEST, /* the best logits, a softmax among these: gpt-oss */
    TS_ROUTER_SIGMOID       /* sigmoids plus a bias, the best groups, the best in them: DeepSeek 3 */
};

struct ts_router_settings {
    enum ts_router kind;
    size_t experts, chosen;
    bool renormalise;
    size_t groups, chosen_groups; /* TS_ROUTER_SIGMOID */
    const float *bias;            /* TS_ROUTER_SIGMOID: added for the choice only */
    double factor;                /* on the weights; 0: none */
    bool wide;                    /* the weights stay in fp32 whatever the precision of the run */
};

/* The router's logits: name.weight [experts, x.width] and a bias; other_scope as in struct ts_gated_experts. Captured
 * as name.0, the first of the three things a router returns. */
struct ts_act ts_router_logits(struct ts_run *run, const char *name, const char *other_scope, struct ts_act x,
                               size_t experts, bool bias);
/* From the router's logits. Captures the chosen experts' weights as name.1 and their indices as name.2. */
struct ts_routing ts_route(struct ts_run *run, const char *name, struct ts_act logits,
                           const struct ts_router_settings *settings);

/* What one expert makes of some rows, in two steps: what its activation function gives, [rows, inner], and the rest. */
struct ts_expert {
    struct ts_act (*act)(struct ts_run *run, size_t expert, struct ts_act rows,
                         void *context); /* NULL: none is shown */
    struct ts_act (*say)(struct ts_run *run, size_t expert, struct ts_act rows, struct ts_act active, void *context);
};
/* The weighted sum over each token's experts. Captures "experts.act_fn" (its rows by expert, then by token), each
 * expert's own output, zero where it was not chosen, when the run asks for it, and "experts". */
struct ts_act ts_mix(struct ts_run *run, struct ts_act x, const struct ts_routing *routing, size_t inner,
                     const struct ts_expert *expert, void *context);

/* The usual expert, a gated MLP: weights NAME.E.{gate,up,down}_proj.weight, or stacked over all experts as
 * NAME.gate_up_proj [E, 2 inner, hidden] and NAME.down_proj [E, hidden, inner], or gate and up as two stacks
 * NAME.gate_proj and NAME.up_proj. */
struct ts_gated_experts {
    size_t inner;
    enum ts_function function;
    const char *name;             /* scope below the current one: "experts" */
    const char *gate, *up, *down; /* "gate_proj"; "w1" in Mixtral */
    const char *other_scope;      /* where the file keeps them, when that is another scope; or NULL */
};
extern const struct ts_expert ts_gated_expert;

#endif
