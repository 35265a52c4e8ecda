/* GPT-2: learnt positions, LayerNorm with biases, one product for q, k and v, weights stored [in, out]. */
#include <math.h>
#include <string.h>

#include "model/attention.h"
#include "model/families.h"
#include "model/operations.h"

/* name.weight [x.width, width], turned round. */
static struct ts_act product(struct ts_run *run, const char *name, struct ts_act x, size_t width)
{
    size_t scope = ts_enter(run, "%s", name);
    const struct ts_view *weight = ts_parameter(run, "weight", 2, (uint64_t[]){x.width, width}),
                         *bias = ts_parameter(run, "bias", 1, (uint64_t[]){width});
    struct ts_view *turned = ts_arena_alloc(&run->weights->arena, sizeof *turned);
    struct ts_act y = {0};
    if (!turned || (weight && !ts_view_permute(weight, (unsigned[]){1, 0}, &run->weights->arena, turned)))
        ts_run_fail(run, TS_ERR_MEMORY, "not enough memory");
    if (weight) {
        y = ts_linear_view(run, "", x, turned, bias);
    } else {
        y = ts_new(run, x.rows, width);
    }
    ts_capture(run, "", y);
    ts_leave(run, scope);
    return y;
}

static struct ts_act positions(struct ts_run *run, size_t most, size_t width)
{
    size_t scope = ts_enter(run, "wpe");
    const struct ts_view *table = ts_parameter(run, "weight", 2, (uint64_t[]){most, width});
    struct ts_act x = ts_new(run, run->token_count, width);
    if (run->token_count > most)
        ts_run_fail(run, TS_ERR_USAGE, "%zu tokens, and the model has %zu positions", run->token_count, most);
    if (ts_real(run) && table)
        run->error.status = ts_view_read_f32(table, 0, x.rows * width, x.data, &run->error);
    ts_capture(run, "", x);
    ts_leave(run, scope);
    return x;
}

static struct ts_act part(struct ts_run *run, struct ts_act fused, size_t which, size_t width, size_t heads)
{
    struct ts_act x = ts_columns(run, fused, which * width, width);
    x.heads = heads;
    return x;
}

static struct ts_act attention(struct ts_run *run, struct ts_act x, size_t heads, size_t i)
{
    size_t scope = ts_enter(run, "attn"), width = x.width;
    double scale = ts_flag(run, "scale_attn_weights", true) ? 1 / sqrt((double)(width / heads)) : 1;
    struct ts_act fused = product(run, "c_attn", x, 3 * width), out;
    if (ts_flag(run, "scale_attn_by_inverse_layer_idx", false))
        scale /= (double)(i + 1);
    out = ts_attend(run, part(run, fused, 0, width, heads), part(run, fused, 1, width, heads),
                    part(run, fused, 2, width, heads), &(struct ts_attention){.scale = scale});
    out = product(run, "c_proj", out, width);
    ts_capture(run, "resid_dropout", out);
    ts_capture(run, "", out);
    ts_leave(run, scope);
    return out;
}

static struct ts_act mlp(struct ts_run *run, struct ts_act x, size_t inner, enum ts_function function)
{
    size_t scope = ts_enter(run, "mlp"), width = x.width;
    x = product(run, "c_fc", x, inner);
    x = ts_activate(run, "act", x, function);
    x = product(run, "c_proj", x, width);
    ts_capture(run, "dropout", x);
    ts_capture(run, "", x);
    ts_leave(run, scope);
    return x;
}

static void forward(struct ts_run *run)
{
    size_t width = ts_need(run, "n_embd"), heads = ts_need(run, "n_head"), layers = ts_need(run, "n_layer"),
           vocabulary = ts_need(run, "vocab_size"), inner = ts_count(run, "n_inner", 4 * width),
           model = ts_enter(run, "transformer");
    double eps = ts_positive(run, "layer_norm_epsilon", 1e-5);
    enum ts_function function = ts_function_named(run, "activation_function", "gelu_new");
    struct ts_act x = ts_embed(run, "wte", vocabulary, width, 1);
    x = ts_sum(run, "drop", x, positions(run, ts_count(run, "n_positions", 1024), width));
    if (width % heads)
        ts_run_fail(run, TS_ERR_FORMAT, "the config has %zu heads in a width of %zu", heads, width);
    layers = ts_layers(run, layers);
    for (size_t i = 0; i < layers && ts_ok(run); i++) {
        struct ts_block *mark = ts_mark(run);
        size_t scope = ts_enter(run, "h.%zu", i);
        struct ts_act h = ts_norm(run, "ln_1", x, TS_NORM_LAYER, eps, 0);
        x = ts_sum(run, "attn_residual", attention(run, h, heads, i), x);
        h = ts_norm(run, "ln_2", x, TS_NORM_LAYER, eps, 0);
        x = ts_sum(run, "", x, mlp(run, h, inner, function));
        ts_capture(run, "", x);
        ts_leave(run, scope);
        ts_forget(run, mark, &x);
    }
    if (!run->cut)
        x = ts_norm(run, "ln_f", x, TS_NORM_LAYER, eps, 0);
    ts_leave(run, model);
    /* masks that older files store */
    ts_model_weights_ignore(run->weights, ".attn.bias");
    ts_model_weights_ignore(run->weights, ".attn.masked_bias");
    ts_head(run, x, "transformer.wte.weight", vocabulary, ts_flag(run, "tie_word_embeddings", true), 0);
}

const struct ts_model_family ts_model_family_gpt2 = {.types = "gpt2", .forward = forward};
