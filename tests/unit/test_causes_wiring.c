/* Wires: the right numbers in the wrong place, steps that are skipped, sums that lack a term. */
#include "test_causes.h"

static void copy_of(struct side *side, double *values, size_t count, const char *name)
{
    memcpy(values, value_of(side, name), count * sizeof *values);
}

static void state_before(struct side *side, double *values, size_t count)
{
    copy_of(side, values, count, "hidden_states.1");
}

static void weight_before(struct side *side, double *values, size_t count)
{
    copy_of(side, values, count, "model.layers.0.self_attn.q_proj.weight");
}

static void before_the_norm(struct side *side, double *values, size_t count)
{
    copy_of(side, values, count, "layer_0_input");
}

static void other_projection(struct side *side, double *values, size_t count)
{
    copy_of(side, values, count, "layer_0_mlp_gate_proj");
}

/* A normal distribution with a standard deviation of 0.02. */
static void fresh_normal(struct side *side, double *values, size_t count)
{
    (void)side;
    for (size_t i = 0; i < count; i++)
        values[i] = 0.02 * sqrt(-2 * log(fabs(drawn()) + 1e-300)) * cos(M_PI * drawn());
}

static void of_another_file(struct side *side, double *values, size_t count)
{
    (void)side;
    for (size_t i = 0; i < count; i++)
        values[i] = 0.03 * (drawn() + drawn());
}

static void fresh_uniform(struct side *side, double *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = drawn() / sqrt((double)hidden(side->size));
}

#define AT(point) .at = "layer_0_" point, .made = make_layer

static const struct row rows[] = {
    {"swapped-with", "keys and values", AT("attn_k_proj"), .candidate = {.swapped_projections = true},
     .words = {"layer_0_attn_v_proj"}, .near = "unrelated transposed-weight permuted"},
    {"swapped-with", "gate for up", AT("mlp_up_proj"), .plant = other_projection,
     .words = {"the candidate holds its own layer_0_mlp_gate_proj here"}, .near = "stale"},
    {"swapped-with", "another layer's weight", .at = "model.layers.1.self_attn.q_proj.weight", .made = make_checkpoint,
     .plant = weight_before, .words = {"model.layers.0.self_attn.q_proj.weight"}, .near = "unrelated stale"},
    {"skipped-op", "a layer, which hands on its input", .at = "hidden_states.2", .made = make_stream,
     .plant = state_before, .words = {"hidden_states.1 unchanged"}, .near = "swapped-with term-missing",
     .beside = "swapped-with"},
    {"skipped-op", "captured before the norm", AT("attn_norm_output"), .plant = before_the_norm,
     .words = {"layer_0_input"}, .near = "row-scaled channel-scaled"},
    {"skipped-op", "a norm", AT("mlp_norm_output"), .candidate = {.norm_skipped = true}, .words = {"layer_0_residual"},
     .near = "wrong-input"},
    {"wrong-input", "of a norm", AT("mlp_norm_output"), .candidate = {.norm_of_input = true},
     .words = {"layer_0_input instead of layer_0_residual"}, .near = "skipped-op term-missing"},
    {"wrong-input", "of a norm, the sum unseen", AT("mlp_norm_output"), .candidate = {.norm_of_input = true},
     .hidden = "residual", .words = {"layer_0_input alone"}, .near = "term-missing"},
    {"wrong-input", "the norm's output is added", AT("output"), .candidate = {.mlp_residual = FROM_NORM},
     .words = {"layer_0_mlp_norm_output instead of layer_0_residual"}, .near = "term-missing term-extra"},
    {"term-missing", "the stream", AT("residual"), .candidate = {.attn_residual = MISSING},
     .words = {"minus layer_0_input"}, .near = "skipped-op wrong-input swapped-with"},
    {"term-missing", "the stream, unseen", AT("mlp_norm_output"), .candidate = {.attn_residual = MISSING},
     .hidden = "residual", .words = {"layer_0_input is missing"}, .near = "wrong-input"},
    {"skipped-op", "a norm, the sum unseen", AT("mlp_norm_output"), .candidate = {.norm_skipped = true},
     .hidden = "residual", .words = {"layer_0_attn_o_proj + layer_0_input: the norm was not applied"},
     .near = "wrong-input row-scaled"},
    {"term-extra", "the stream twice, unseen", AT("mlp_norm_output"), .candidate = {.attn_residual = DOUBLED},
     .hidden = "residual", .words = {"1 * layer_0_attn_o_proj + 2 * layer_0_input"}, .near = "wrong-input"},
    {"term-missing", "the stream of the MLP", AT("output"), .candidate = {.mlp_residual = MISSING},
     .words = {"layer_0_residual"}},
    {"term-missing", "the branch", AT("residual"), .candidate = {.attn_residual = BRANCH_MISSING},
     .words = {"minus layer_0_attn_o_proj"}, .near = "skipped-op"},
    {"term-extra", "the stream twice", AT("residual"), .candidate = {.attn_residual = DOUBLED},
     .words = {"adds layer_0_input twice"}, .near = "scaled wrong-input"},
    {"term-extra", "the branch twice", AT("output"), .candidate = {.mlp_residual = BRANCH_DOUBLED},
     .words = {"adds layer_0_mlp_down_proj twice"}, .near = "scaled"},
    {"sign-flipped", "the branch", AT("residual"), .candidate = {.attn_residual = SUBTRACTED},
     .words = {"subtracts layer_0_attn_o_proj"}, .near = "term-missing term-extra"},
    {"term-missing", "a column of a product", AT("mlp_down_proj"), .candidate = {.column = 17},
     .words = {"channel 16 of layer_0_mlp_act"}, .near = "channels channel-scaled"},
    {"transposed-weight", "square", AT("attn_o_proj"), .candidate = {.o_transposed = true}, .words = {"mirrored"},
     .near = "unrelated permuted swapped-with"},
    {"unrelated", "other weights", AT("attn_o_proj"), .candidate = {.o_random = true},
     .hidden = "context scores probs q_ k_ v_", .words = {"no simple relation"},
     .near = "transposed-weight permuted sign-flipped affine"},
    {"unrelated", "a normal weight", .at = "model.layers.0.mlp.gate_proj.weight", .made = make_checkpoint,
     .plant = fresh_normal, .words = {"no relation to the reference", "it is normal"}, .check = "loaded at all",
     .near = "swapped-with permuted stale"},
    {"unrelated", "another file's weight", .at = "model.layers.0.self_attn.qkv_proj.weight", .made = make_checkpoint,
     .plant = of_another_file, .words = {"no relation to the reference"}, .check = "same model",
     .near = "swapped-with permuted stale"},
    {"unrelated", "a fresh weight", .at = "model.layers.1.mlp.gate_proj.weight", .made = make_checkpoint,
     .plant = fresh_uniform, .words = {"it is uniform"}, .check = "loaded", .near = "scaled"},
};

const struct table causes_wiring = TABLE("wiring", rows);
