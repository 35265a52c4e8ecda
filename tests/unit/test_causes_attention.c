/* Activations, scores, probabilities, heads; and places where an error is confined. */
#include "test_causes.h"

#define AT(point) .at = "layer_0_" point, .made = make_layer
#define EACH      for (size_t i = 0; i < count; i++)
#define WIDE      hidden(side->size)

/* Numbers of no meaning. */
static double junk(void)
{
    return 1.5 * (drawn() + drawn());
}

static void first_token(struct side *side, double *values, size_t count)
{
    EACH values[i] = i / WIDE == 0 ? junk() : values[i];
}

static void last_token(struct side *side, double *values, size_t count)
{
    EACH values[i] = i / WIDE + 1 == side->size->tokens ? junk() : values[i];
}

static void later_tokens(struct side *side, double *values, size_t count)
{
    EACH values[i] = i / WIDE >= 8 ? junk() : values[i];
}

static void one_head(struct side *side, double *values, size_t count)
{
    side->told[0] = (double)side->size->heads - 2;
    EACH values[i] = i % WIDE / side->size->head == side->size->heads - 2 ? junk() : values[i];
}

static void stripe(struct side *side, double *values, size_t count)
{
    EACH values[i] = i % WIDE / (WIDE / 4) == 1 ? junk() : values[i];
    side->told[0] = (double)(WIDE / 4);
    side->told[1] = (double)(WIDE / 2 - 1);
}

static void some_channels(struct side *side, double *values, size_t count)
{
    EACH values[i] = i % WIDE == 3 || i % WIDE == 19 ? junk() : values[i];
}

static void head_of_another(struct side *side, double *values, size_t count)
{
    size_t size = side->size->head;
    EACH if (i % WIDE / size == 2) values[i] = values[i - 2 * size];
}

static void channel_of_another(struct side *side, double *values, size_t count)
{
    EACH if (i % WIDE == 9) values[i] = values[i - 5];
}

static void token_of_another(struct side *side, double *values, size_t count)
{
    EACH if (i / WIDE == 7) values[i] = values[i - 4 * WIDE];
}

static void capped(struct side *side, double *values, size_t count)
{
    side->told[0] = 2;
    EACH values[i] = 2 * tanh(values[i] / 2);
}

#define KERNEL .hidden = "scores probs"
#define HOOKS  .hidden = "scores probs rope context residual"
#define ENDS   .hidden = "scores probs rope context residual q_ k_ v_"

static const struct row rows[] = {
    {"activation", "relu", AT("mlp_act"), .candidate = {.function = RELU}, .words = {"relu(layer_0_mlp_gate_proj)"},
     .near = "clamped zeros"},
    {"activation", "none", AT("mlp_act"), .candidate = {.function = NO_FUNCTION},
     .words = {"layer_0_mlp_gate_proj * layer_0_mlp_up_proj without an activation"}, .near = "skipped-op scaled"},
    {"activation", "on the other", AT("mlp_act"), .candidate = {.function = ON_THE_OTHER}, .words = {"wrong operand"},
     .near = "wrong-input swapped-with permuted"},
    {"activation", "without up", AT("mlp_act"), .candidate = {.function = WITHOUT_UP},
     .words = {"not multiplied by layer_0_mlp_up_proj"}, .near = "skipped-op unrelated"},
    {"activation", "no named one", AT("mlp_act"), .candidate = {.function = SINE}, .words = {"an unknown function of"},
     .near = "clamped unrelated"},
    {"activation", "gelu", AT("mlp_act"), .candidate = {.function = GELU}, .words = {"gelu"}},
    {"activation", "exact gelu", AT("mlp_act"), .candidate = {.function = GELU},
     .words = {"computes gelu(layer_0_mlp_gate_proj)"}, .clean = true},
    {"activation", "quick gelu", AT("mlp_act"), .candidate = {.function = GELU_QUICK}, .words = {"quick"}},
    {"activation", "tanh gelu", AT("mlp_act"), .candidate = {.function = GELU_TANH}, .words = {"tanh"}, .clean = true},
    {"activation", "tanh for exact gelu", AT("mlp_act"), .reference = {.function = GELU},
     .candidate = {.function = GELU_TANH}, .words = {"tanh"}, .clean = true, .near = "rounding quantization"},
    {"activation", "exact for tanh gelu", AT("mlp_act"), .reference = {.function = GELU_TANH},
     .candidate = {.function = GELU}, .words = {"gelu(layer_0_mlp_gate_proj)"}, .clean = true},
    {"activation", "silu for gelu", AT("mlp_act"), .reference = {.function = GELU}, .words = {"silu"}},
    {"activation", "silu for quick gelu", AT("mlp_act"), .reference = {.function = GELU_QUICK}, .words = {"silu"}},
    {"activation", "silu for relu", AT("mlp_act"), .reference = {.function = RELU}, .words = {"silu"}},
    {"clamped", "limits of a gated activation", AT("mlp_act"), .candidate = {.function = LIMITED, .limit = 1},
     .near = "activation sparse"},
    {"clamped", "limits between the usual ones", AT("mlp_act"), .candidate = {.function = LIMITED, .limit = 1.37},
     .number = 1.37, .words = {"clipped at {~0}"}, .near = "activation sparse"},
    {"clamped", "softcap of the scores", AT("attn_scores"), .plant = capped, .words = {"applies a softcap: {~0}"},
     .near = "scaled softmax"},
    {"clamped", "softcap missing", AT("attn_scores"), .reference = {.cap = 2}, .number = 2,
     .words = {"the reference is {~0}", "missing"}, .near = "scaled activation"},
    {"clamped", "softcap of the logits", .at = "logits", .made = make_layer, .candidate = {.cap_logits = 30},
     .number = 30, .words = {"applies a softcap: {~0}"}},
    {"clamped", "softcap of the logits missing", .at = "logits", .made = make_layer, .reference = {.cap_logits = 30},
     .number = 30, .words = {"the reference is {~0}", "missing"}, .near = "scaled"},
    {"clamped", "softcap at its end", .at = "logits", .made = make_layer, .candidate = {.cap_logits = 10}, .number = 10,
     .words = {"applies a softcap: {~0}"}, .near = "scaled"},
    {"clamped", "softcap at its end, missing", .at = "logits", .made = make_layer, .reference = {.cap_logits = 10},
     .number = 10, .words = {"the reference is {~0}", "missing"}, .near = "scaled unrelated"},
    {"mask", "missing", AT("attn_probs"), .candidate = {.unmasked = true}, .words = {"each token sees every token"},
     .near = "softmax row-scaled"},
    {"mask", "one ahead", AT("attn_probs"), .candidate = {.ahead = 1}, .words = {"sees 1 token ahead"},
     .near = "shifted softmax"},
    {"mask", "one short", AT("attn_probs"), .reference = {.ahead = 1}, .near = "shifted"},
    {"mask", "without itself", AT("attn_probs"), .candidate = {.ahead = -1},
     .words = {"the tokens before it but not itself"}, .near = "shifted nan sparse"},
    {"mask", "a window", AT("attn_probs"), .candidate = {.window = 4}, .words = {"at most 3 tokens back"},
     .near = "zeros sparse"},
    {"mask", "window missing", AT("attn_probs"), .reference = {.window = 5}, .near = "softmax"},
    {"mask", "another window", AT("attn_probs"), .reference = {.window = 5}, .candidate = {.window = 6},
     .words = {"at most 5 tokens back"}},
    {"mask", "after the softmax", AT("attn_probs"), .candidate = {.masked_late = true}, .words = {"after the softmax"},
     .near = "row-scaled softmax"},
    {"mask", "of the scores, missing", AT("attn_scores"), .reference = {.masked_scores = true},
     .candidate = {.masked_scores = true, .unmasked = true}, .words = {"each token sees every token"},
     .near = "inf sparse"},
    {"mask", "of the scores, one ahead", AT("attn_scores"), .reference = {.masked_scores = true},
     .candidate = {.masked_scores = true, .ahead = 1}, .words = {"1 token ahead"}, .near = "inf"},
    {"mask", "of the scores, a window", AT("attn_scores"), .reference = {.masked_scores = true, .window = 6},
     .candidate = {.masked_scores = true, .window = 5}, .words = {"at most 4 tokens back", "at most 5 tokens back"},
     .near = "inf nan"},
    {"mask", "in a kernel", AT("attn_context"), KERNEL, .candidate = {.ahead = 1}, .words = {"one token ahead"}},
    {"mask", "in a kernel, missing", AT("attn_context"), KERNEL, .candidate = {.unmasked = true}},
    {"mask", "in a kernel, a window", AT("attn_context"), KERNEL, .candidate = {.window = 5}, .words = {"5"}},
    {"mask", "behind a projection", AT("attn_o_proj"), HOOKS, .candidate = {.unmasked = true},
     .words = {"no causal mask"}},
    {"mask", "from its ends, missing", AT("attn_o_proj"), ENDS, .candidate = {.unmasked = true},
     .words = {"only the last token agrees: it sees all tokens anyway"}, .near = "rows unrelated",
     .beside = "unrelated"},
    {"mask", "from its ends, a window", AT("attn_o_proj"), ENDS, .candidate = {.window = 4},
     .words = {"the first 4 tokens agree and all later ones are wrong"}, .near = "rows stale", .beside = "rows"},
    {"softmax", "from its ends", AT("attn_o_proj"), ENDS, .candidate = {.temperature = 1},
     .words = {"the first token, which sees only itself, agrees"}, .near = "rows mask"},
    {"softmax", "over the queries", AT("attn_probs"), .candidate = {.over_queries = true},
     .words = {"over the queries"}, .near = "mask permuted"},
    {"softmax", "temperature", AT("attn_probs"), .candidate = {.temperature = 0.83}, .words = {"1.83"}, .near = "mask"},
    {"skipped-op", "softmax", AT("attn_probs"), .candidate = {.no_softmax = true},
     .words = {"layer_0_attn_scores unchanged"}, .near = "softmax unrelated mask"},
    {"softmax", "in a kernel", AT("attn_context"), KERNEL, .candidate = {.temperature = 1}, .words = {"2 times"},
     .near = "mask"},
    {"softmax", "in a kernel, over the queries", AT("attn_context"), KERNEL, .candidate = {.over_queries = true},
     .words = {"queries"}},
    {"heads", "tiled", AT("attn_scores"), .candidate = {.tiled = true}, .words = {"tiles the key heads"},
     .near = "permuted wrong-input"},
    {"heads", "tiled, in a kernel", AT("attn_context"), KERNEL, .candidate = {.tiled = true},
     .words = {"tiles key and value heads"}},
    {"heads", "one head", AT("attn_q_proj"), .plant = one_head, .words = {"head {0} of {heads}"},
     .near = "channels rows unrelated"},
    {"heads", "a copy", AT("attn_q_proj"), .plant = head_of_another, .near = "stale permuted"},
    {"rows", "the first", AT("attn_q_proj"), .plant = first_token, .words = {"token 0"}, .near = "heads sparse"},
    {"rows", "a weight's", .at = "model.layers.0.self_attn.q_proj.weight", .made = make_checkpoint,
     .plant = first_token, .words = {"row 0 of {hidden} holds 100 % of the error"}, .check = "these rows alone",
     .near = "heads sparse"},
    {"rows", "the last", AT("attn_q_proj"), .plant = last_token, .words = {"the last token"},
     .near = "heads unrelated"},
    {"rows", "from the ninth on", AT("attn_q_proj"), .plant = later_tokens, .words = {"tokens 8 to {last}"},
     .near = "stale shifted", .beside = "unrelated"},
    {"rows", "a copy", AT("attn_q_proj"), .plant = token_of_another, .words = {"7 is a copy of 3"},
     .near = "stale permuted"},
    {"channels", "a rank's stripe", AT("output"), .plant = stripe, .words = {"channels {0} to {1}", "piece 1 of 4"},
     .near = "rows heads unrelated"},
    {"channels", "two", AT("output"), .plant = some_channels, .words = {"3", "19"}, .near = "channel-scaled sparse"},
    {"channels", "a copy", AT("output"), .plant = channel_of_another, .words = {"9 is a copy of 4"},
     .near = "stale permuted channel-scaled"},
    {"wrong-input", "queries and keys exchanged", AT("attn_scores"), .candidate = {.exchanged = true},
     .words = {"the candidate swaps queries and keys"}, .near = "permuted heads"},
    {"stale", "a key", AT("attn_scores"), .candidate = {.stale_token = 6},
     .words = {"key of token 5 is that of token 4"}, .near = "channels rows shifted"},
};

const struct table causes_attention = TABLE("attention", rows);
