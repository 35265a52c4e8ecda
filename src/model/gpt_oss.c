/* gpt-oss: windows in every other layer, a sink in each head's softmax, and experts whose gate and up columns alternate
 * and are clamped: (up + 1) * gate * sigmoid(1.702 gate). */
#include <math.h>

#include "model/decoder.h"
#include "model/experts.h"
#include "model/families.h"

#define SLOPE 1.702f

struct experts {
    size_t count, inner;
    float limit;
};

/* Expert e of a stack [experts, in, out] as [out, in]; its row of a stack of biases. */
static const struct ts_view *weight_of(struct ts_run *run, const char *name, size_t e, size_t count, size_t in,
                                       size_t out)
{
    const struct ts_view *stack = ts_parameter(run, name, 3, (uint64_t[]){count, in, out});
    struct ts_view *views = ts_arena_array(&run->weights->arena, 3, sizeof *views);
    if (!stack)
        return NULL;
    if (!views || !ts_view_slice(stack, 0, e, 1, 1, &run->weights->arena, &views[0]) ||
        !ts_view_reshape(&views[0], (uint64_t[]){in, out}, 2, &run->weights->arena, &views[1]) ||
        !ts_view_permute(&views[1], (unsigned[]){1, 0}, &run->weights->arena, &views[2])) {
        ts_run_fail(run, TS_ERR_MEMORY, "not enough memory");
        return NULL;
    }
    return &views[2];
}

static const struct ts_view *bias_of(struct ts_run *run, const char *name, size_t e, size_t count, size_t out)
{
    const struct ts_view *stack = ts_parameter(run, name, 2, (uint64_t[]){count, out});
    struct ts_view *views = ts_arena_array(&run->weights->arena, 2, sizeof *views);
    if (!stack)
        return NULL;
    if (!views || !ts_view_slice(stack, 0, e, 1, 1, &run->weights->arena, &views[0]) ||
        !ts_view_reshape(&views[0], (uint64_t[]){out}, 1, &run->weights->arena, &views[1])) {
        ts_run_fail(run, TS_ERR_MEMORY, "not enough memory");
        return NULL;
    }
    return &views[1];
}

/* Among experts the product is stored before the bias is added. */
static struct ts_act product(struct ts_run *run, struct ts_act x, const struct ts_view *weight,
                             const struct ts_view *bias)
{
    struct ts_act y = ts_linear_view(run, "", x, weight, NULL);
    const float *b = ts_parameter_values(run, bias);
    for (size_t i = 0; b && i < y.rows * y.width; i++)
        y.data[i] += b[i % y.width];
    if (ts_real(run))
        ts_round(run, y.data, y.rows * y.width);
    return y;
}

/* Gate and up in turn from two stacks [experts, inner, width], as GGUF files have them. */
static struct ts_act two_products(struct ts_run *run, size_t e, struct ts_act rows, const struct experts *how)
{
    static const char *const names[] = {"experts.gate_proj", "experts.up_proj"}, *const biases[] = {
                                                                                     "experts.gate_proj_bias",
                                                                                     "experts.up_proj_bias"};
    struct ts_act fused = ts_new(run, rows.rows, 2 * how->inner);
    for (size_t k = 0; k < 2; k++) {
        const struct ts_view *weight = weight_of(run, names[k], e, how->count, how->inner, rows.width),
                             *bias = bias_of(run, biases[k], e, how->count, how->inner);
        struct ts_view turned;
        struct ts_act part;
        if (run->plan || !weight || !bias)
            continue;
        if (!ts_view_permute(weight, (unsigned[]){1, 0}, &run->weights->arena, &turned))
            ts_run_fail(run, TS_ERR_MEMORY, "not enough memory");
        part = product(run, rows, &turned, bias);
        for (size_t i = 0; i < rows.rows * how->inner && ts_real(run); i++)
            fused.data[2 * i + k] = part.data[i];
    }
    return fused;
}

static bool has_two_stacks(const struct ts_run *run)
{
    char full[768];
    return ts_model_weights_find(run->weights, ts_full_name(run, "experts.gate_proj", full)) != NULL;
}

static struct ts_act say(struct ts_run *run, size_t e, struct ts_act rows, struct ts_act active, void *context)
{
    const struct experts *how = context;
    size_t inner = how->inner, width = rows.width;
    const struct ts_view *both = NULL, *both_bias = NULL,
                         *down = weight_of(run, "experts.down_proj", e, how->count, inner, width),
                         *down_bias = bias_of(run, "experts.down_proj_bias", e, how->count, width);
    struct ts_act fused, gated;
    (void)active;
    if (has_two_stacks(run)) {
        fused = two_products(run, e, rows, how);
    } else {
        both = weight_of(run, "experts.gate_up_proj", e, how->count, width, 2 * inner);
        both_bias = bias_of(run, "experts.gate_up_proj_bias", e, how->count, 2 * inner);
        fused = run->plan || !ts_ok(run) ? ts_new(run, rows.rows, 2 * inner) : product(run, rows, both, both_bias);
    }
    if (run->plan || !ts_ok(run))
        return ts_new(run, rows.rows, width);
    gated = ts_new(run, rows.rows, inner);
    for (size_t i = 0; i < rows.rows * inner && ts_real(run); i++) {
        float gate = fused.data[2 * i], up = fused.data[2 * i + 1], steps[2];
        gate = gate > how->limit ? how->limit : gate;
        up = up > how->limit ? how->limit : up < -how->limit ? -how->limit : up;
        steps[0] = gate * SLOPE;
        ts_round(run, steps, 1);
        steps[0] = 1 / (1 + expf(-steps[0]));
        steps[1] = up + 1;
        ts_round(run, steps, 2);
        steps[0] *= gate;
        ts_round(run, steps, 1);
        gated.data[i] = steps[0] * steps[1];
    }
    if (ts_real(run))
        ts_round(run, gated.data, rows.rows * inner);
    return product(run, gated, down, down_bias);
}

static struct ts_act mixture(struct ts_run *run, const struct ts_decoder *decoder, struct ts_act x)
{
    struct experts how = {.count = ts_need(run, "num_local_experts"),
                          .inner = decoder->inner,
                          .limit = (float)ts_number(run, "swiglu_limit", 7)};
    struct ts_router_settings settings = {
        .kind = TS_ROUTER_SOFTMAX_BEST, .experts = how.count, .chosen = ts_need(run, "num_experts_per_tok")};
    size_t scope = ts_enter(run, "mlp");
    struct ts_routing routing;
    struct ts_act logits;
    x.layout = TS_FLAT;
    logits = ts_router_logits(run, "router", NULL, x, how.count, true);
    routing = ts_route(run, "router", logits, &settings);
    x = ts_mix(run, x, &routing, how.inner, &(struct ts_expert){.say = say}, &how);
    x.layout = TS_BATCHED;
    ts_capture(run, "", x);
    ts_leave(run, scope);
    return x;
}

static const float *sinks(struct ts_run *run, size_t heads)
{
    size_t scope = ts_enter(run, "self_attn");
    const float *values = ts_parameter_values(run, ts_parameter(run, "sinks", 1, (uint64_t[]){heads}));
    ts_leave(run, scope);
    return values;
}

static struct ts_act layer(struct ts_run *run, const struct ts_decoder *decoder, size_t i, struct ts_act x,
                           void *context)
{
    bool bias = ts_flag(run, "attention_bias", true);
    struct ts_self_attention how = {
        .bias = bias,
        .output_bias = bias,
        .attention = {.window = ts_window_of_layer(run, i, false), .sinks = sinks(run, decoder->heads)}};
    struct ts_act h;
    (void)context;
    x = ts_add_attention(run, decoder, x, TS_NORM_RMS_WIDE, &how);
    h = ts_norm(run, "post_attention_layernorm", x, TS_NORM_RMS_WIDE, decoder->eps, 0);
    return ts_sum(run, "", x, mixture(run, decoder, h));
}

static void forward(struct ts_run *run)
{
    struct ts_decoder decoder =
        ts_decoder_read(run, &(struct ts_decoder){.head_size = 64, .eps = 1e-5, .theta = 150000});
    decoder.half_angles = true;
    ts_decoder_walk(run, &decoder, &(struct ts_walk){.norm = TS_NORM_RMS_WIDE, .layer = layer});
}

const struct ts_model_family ts_model_family_gpt_oss = {.types = "gpt_oss", .forward = forward};
