/* Experts: what their outputs are weighed with, their order, and choices on a near tie. */
#include "test_causes.h"

#define GATES  .at = "layer_0_router_weights", .made = make_mixture
#define CHOICE .at = "layer_0_router_indices", .made = make_mixture
#define OUT    .at = "layer_0_experts_output", .made = make_mixture
#define SUM    .at = "layer_0_mlp_output", .made = make_mixture

static void other_choice(struct side *side, double *values, size_t count)
{
    for (size_t i = 0; i < count; i++) /* no tie: any expert */
        values[i] = (double)((size_t)(values[i] + 1 + (double)(i % 2)) % side->size->experts);
}

static void all_ones(struct side *side, double *values, size_t count)
{
    (void)side;
    for (size_t i = 0; i < count; i++)
        values[i] = 1;
}

static void all_alike(struct side *side, double *values, size_t count)
{
    side->told[0] = (double)side->size->chosen;
    for (size_t i = 0; i < count; i++)
        values[i] = 1 / (double)side->size->chosen;
}

static void last_of_none(struct side *side, double *values, size_t count)
{
    const size_t chosen = side->size->chosen;
    for (size_t start = 0; start < count; start += chosen) {
        const double last = values[start + chosen - 1];
        for (size_t i = start; i < start + chosen; i++)
            values[i] /= 1 - last;
        values[start + chosen - 1] = 0;
    }
}

static void softmax_again(struct side *side, double *values, size_t count)
{
    const size_t chosen = side->size->chosen;
    for (size_t start = 0; start < count; start += chosen) {
        double sum = 0;
        for (size_t i = start; i < start + chosen; i++)
            sum += values[i] = exp(values[i]);
        for (size_t i = start; i < start + chosen; i++)
            values[i] /= sum;
    }
}

static const struct row rows[] = {
    {"router-gate", "sigmoid for softmax", GATES, .candidate = {.sigmoid = true},
     .words = {"sigmoids divided by their sum"}, .near = "row-scaled activation"},
    {"router-gate", "softmax for sigmoid", GATES, .reference = {.sigmoid = true}, .words = {"softmax"}},
    {"router-gate", "not renormalised", GATES, .candidate = {.unnormalized = true},
     .words = {"not divided by their sum"}, .near = "row-scaled scaled"},
    {"router-gate", "renormalised", GATES, .reference = {.unnormalized = true}, .near = "row-scaled"},
    {"router-gate", "scaling factor", GATES, .reference = {.routed_scale = 2.5}, .near = "scaled"},
    {"router-gate", "second choices", GATES, .candidate = {.first_rank = 1},
     .words = {"as the reference does, but for other experts"}, .near = "unrelated softmax"},
    {"router-gate", "sharper softmax", GATES, .candidate = {.sharper = 2}, .words = {"weights of logits that are "},
     .near = "softmax"},
    {"router-gate", "sharper sigmoids", GATES, .reference = {.sigmoid = true},
     .candidate = {.sigmoid = true, .sharper = 0.5}, .words = {"weights of logits that are "},
     .near = "softmax row-scaled"},
    {"router-gate", "softmax once more", GATES, .reference = {.unnormalized = true},
     .candidate = {.unnormalized = true}, .plant = softmax_again,
     .words = {"a softmax over the chosen softmax probabilities"}, .near = "affine row-scaled"},
    {"router-gate", "weights of one", GATES, .plant = all_ones, .words = {"the candidate ignores the router's weights"},
     .near = "unwritten", .beside = "unwritten"},
    {"router-gate", "weights alike", GATES, .plant = all_alike,
     .words = {"gives all chosen experts the same weight, 1 / {0}"}, .near = "unwritten scaled", .beside = "unwritten"},
    {"router-gate", "one expert less", GATES, .plant = last_of_none, .words = {"the candidate takes one less"},
     .near = "zeros"},
    {"router-gate", "weights ignored", OUT, .candidate = {.ignored = true}, .words = {"without the router's weights"},
     .near = "scaled unrelated"},
    {"router-gate", "experts exchanged", OUT, .candidate = {.exchanged_expert = 1}, .words = {"are wrong; the other"},
     .near = "rows unrelated"},
    {"term-missing", "shared expert", SUM, .reference = {.shared = true},
     .candidate = {.shared = true, .shared_missing = true}, .words = {"layer_0_shared_expert_output"},
     .near = "router-gate"},
    {"routing", "near ties", CHOICE, .candidate = {.tied = true}, .words = {"not a bug", " tokens (3, 7, 11"},
     .near = "router-gate rows"},
    {"routing", "what experts make of such tokens", OUT, .candidate = {.tied = true},
     .words = {"not a bug", " tokens (3, 7, 11"}, .near = "rows router-gate unrelated"},
    {"router-gate", "all experts moved", OUT, .candidate = {.rolled = true}, .words = {"experts in another order"},
     .near = "unrelated permuted"},
    {"router-gate", "all experts moved, beside a shared one", SUM, .reference = {.shared = true},
     .candidate = {.shared = true, .rolled = true}, .words = {"experts in another order"},
     .near = "unrelated permuted"},
    {"router-gate", "all experts moved, beside a shared one with a gate", SUM,
     .reference = {.shared = true, .shared_gated = true},
     .candidate = {.shared = true, .shared_gated = true, .rolled = true}, .words = {"experts in another order"},
     .near = "unrelated permuted"},
    {"router-gate", "all experts moved, a shared one comes later", SUM,
     .reference = {.shared = true, .shared_missing = true},
     .candidate = {.shared = true, .shared_missing = true, .rolled = true}, .words = {"experts in another order"},
     .near = "unrelated permuted"},
    {"router-gate", "weights ignored, beside a shared expert", SUM, .reference = {.shared = true},
     .candidate = {.shared = true, .ignored = true}, .words = {"without the router's weights"},
     .near = "scaled unrelated"},
    {"router-gate", "sigmoids, behind a shared expert", SUM, .reference = {.shared = true},
     .candidate = {.shared = true, .sigmoid = true}, .hidden = "weights indices shared", .clean = true,
     .words = {"weigh the experts that layer_0_router_logits chooses differently", "sigmoids"}, .near = "row-scaled",
     .beside = "rows channels"},
    {"router-gate", "weights twice", OUT, .reference = {.routed_scale = 1.7},
     .candidate = {.routed_scale = 1.7, .twice = true}, .words = {"router's weights were applied twice"},
     .near = "scaled row-scaled", .beside = "row-scaled"},
    {"router-gate", "the first expert alone", OUT, .candidate = {.first_alone = true},
     .words = {"like the first of the chosen experts alone"}, .near = "term-missing unrelated",
     .beside = "term-missing row-scaled"},
    {"router-gate", "a bias in the weights", GATES, .reference = {.sigmoid = true, .biased = true},
     .candidate = {.sigmoid = true, .biased = true, .bias_in_weights = true},
     .words = {"scores to which each expert adds a number of its own"}, .near = "offset row-scaled"},
    {"router-gate", "a bias that does not choose", GATES, .reference = {.sigmoid = true, .biased = true},
     .candidate = {.sigmoid = true}, .words = {"to different experts", "without a near tie"}, .near = "routing"},
    {"router-gate", "a shared expert's gate is not applied", SUM, .reference = {.shared = true, .shared_gated = true},
     .candidate = {.shared = true, .shared_gated = true, .ungated = true},
     .words = {"does not apply the gate of the shared expert: layer_0_shared_expert_output"}, .near = "row-scaled",
     .beside = "term-extra row-scaled"},
    {"router-gate", "a shared expert's gate without its sigmoid", SUM,
     .reference = {.shared = true, .shared_gated = true},
     .candidate = {.shared = true, .shared_gated = true, .gate_bare = true},
     .words = {"with its gate as it is, without the sigmoid"}, .near = "row-scaled", .beside = "row-scaled"},
    {"router-gate", "no tie", CHOICE, .plant = other_choice, .near = "routing shifted"},
};

const struct table causes_experts = TABLE("experts", rows);
