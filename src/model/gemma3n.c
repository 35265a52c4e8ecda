/* Gemma 3n: four streams of hidden states of which each layer computes one and corrects the others (AltUp), a low-rank
 * residual beside attention (Laurel), an embedding of each token for each layer, gates cut to their largest entries,
 * and upper layers that use the keys and values of a lower one. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/decoder.h"
#include "model/families.h"

#define MAGNITUDE_FLOOR 1e-5f
#define MOST_STREAMS    64
#define LOCAL_THETA     10000 /* of layers with a window */

/* what a config that says nothing means */
static const struct ts_decoder usual = {.heads = 8,
                                        .kv_heads = 2,
                                        .head_size = 256,
                                        .vocabulary = 262400,
                                        .theta = 1e6,
                                        .function = TS_GELU_TANH,
                                        .tied = true};

struct state {
    size_t streams, active, part, shared; /* part: width of a token's embedding for one layer */
    struct ts_rotary sliding, full;
    struct ts_act keys[2], values[2]; /* of the last layer that has its own: [0] full, [1] sliding */
};

static bool slides(struct ts_run *run, size_t i)
{
    return ts_layer_slides(run, i, (i + 1) % 5 != 0);
}

/* The key of a setting that is one number or a list with one per layer. */
static const char *per_layer(struct ts_run *run, const char *key, size_t i, char name[128])
{
    snprintf(name, 128, "%s.%zu", key, i);
    return ts_model_config_text(run->config, name) ? name : key;
}

static struct ts_act norm(struct ts_run *run, const char *name, struct ts_act x, const struct ts_decoder *decoder,
                          size_t heads)
{
    return ts_norm(run, name, x, TS_NORM_RMS_WIDE, decoder->eps, heads);
}

/* [layers][tokens, part]: the token's own embedding for each layer, and a projection of its ordinary one. */
static struct ts_act layer_inputs(struct ts_run *run, const struct ts_decoder *decoder, struct ts_act x, size_t part)
{
    size_t width = decoder->layers * part;
    struct ts_act own =
        ts_embed(run, "embed_tokens_per_layer", ts_count(run, "vocab_size_per_layer_input", decoder->vocabulary), width,
                 sqrt((double)part));
    struct ts_act projected = ts_linear(run, "per_layer_model_projection", x, width, false);
    projected = ts_scale(run, "", projected, 1 / sqrt((double)decoder->hidden));
    projected.heads = decoder->layers;
    projected.layout = TS_TOKENS_HEADS;
    projected = norm(run, "per_layer_projection_norm", projected, decoder, decoder->layers);
    projected = ts_scale(run, "", ts_sum(run, "", projected, own), 1 / sqrt(2));
    ts_capture(run, "per_layer_inputs", projected);
    return projected;
}

/* The mean square; the library stores the squares, and then their mean. */
static float magnitude(const struct ts_run *run, const float *row, size_t width)
{
    bool low = run->compute != TS_COMPUTE_F32;
    double squares = 0;
    float mean;
    for (size_t i = 0; i < width; i++) {
        float square = row[i] * row[i];
        ts_round(run, &square, 1);
        squares += low ? (double)square : (double)row[i] * (double)row[i];
    }
    mean = (float)(squares / (double)width);
    ts_round(run, &mean, 1);
    return mean;
}

/* Gives each row of x the length of the same row of `like`. */
static void match_magnitude(struct ts_run *run, struct ts_act x, struct ts_act like)
{
    for (size_t t = 0; t < x.rows && ts_real(run); t++) {
        float target = sqrtf(magnitude(run, like.data + t * x.width, x.width));
        float now = magnitude(run, x.data + t * x.width, x.width);
        now = sqrtf(now > MAGNITUDE_FLOOR ? now : MAGNITUDE_FLOOR);
        ts_round(run, &target, 1);
        ts_round(run, &now, 1);
        for (size_t i = 0; i < x.width; i++)
            x.data[t * x.width + i] *= target;
        ts_round(run, x.data + t * x.width, x.width);
        for (size_t i = 0; i < x.width; i++)
            x.data[t * x.width + i] /= now;
        ts_round(run, x.data + t * x.width, x.width);
    }
}

/* The streams stand one behind the other: [streams * tokens, hidden]. */
static struct ts_act stream(struct ts_act streams, size_t which, size_t tokens)
{
    struct ts_act x = {.data = streams.data ? streams.data + which * tokens * streams.width : NULL,
                       .rows = tokens,
                       .width = streams.width};
    return x;
}

static void capture_streams(struct ts_run *run, const char *name, struct ts_act streams, size_t count)
{
    ts_capture_values(run, name, streams.data, 4, (uint64_t[]){count, 1, streams.rows / count, streams.width});
}

static struct ts_act modalities(struct ts_run *run, const struct ts_decoder *decoder, struct ts_act x, size_t count)
{
    struct ts_act h = norm(run, "router_norm", x, decoder, 0);
    h = ts_scale(run, "", h, 1 / (double)decoder->hidden);
    h = ts_linear(run, "modality_router", h, count, false);
    return ts_activate(run, "modalities", h, TS_TANH);
}

/* Rounds x, adds what was there before, and rounds again. */
static void add_to(const struct ts_run *run, struct ts_act x, struct ts_act before)
{
    if (!ts_real(run))
        return;
    ts_round(run, x.data, x.rows * x.width);
    for (size_t i = 0; i < x.rows * x.width; i++)
        x.data[i] += before.data[i];
    ts_round(run, x.data, x.rows * x.width);
}

/* Each stream becomes itself plus a mixture of all, whose coefficients the active one chooses. */
static struct ts_act predict(struct ts_run *run, const struct ts_decoder *decoder, struct ts_act streams, size_t count,
                             size_t active)
{
    size_t scope = ts_enter(run, "altup"), tokens = run->token_count, width = streams.width;
    struct ts_act chosen = modalities(run, decoder, stream(streams, active, tokens), count);
    struct ts_act mixing = ts_linear(run, "prediction_coefs", chosen, count * count, false);
    struct ts_act out = ts_new(run, streams.rows, width);
    for (size_t j = 0; j < count && ts_real(run); j++)
        for (size_t t = 0; t < tokens; t++) {
            float *to = out.data + (j * tokens + t) * width;
            memset(to, 0, width * sizeof *to);
            for (size_t i = 0; i < count; i++) {
                float by = mixing.data[t * count * count + j * count + i];
                const float *from = streams.data + (i * tokens + t) * width;
                for (size_t k = 0; k < width; k++)
                    to[k] += by * from[k];
            }
        }
    add_to(run, out, streams);
    capture_streams(run, "predictions", out, count);
    ts_leave(run, scope);
    return out;
}

/* The library clamps these weights when it runs; no known model has any that it would change. */
static void check_correction(struct ts_run *run, size_t count)
{
    double clip = ts_number(run, "altup_coef_clip", 0);
    float values[MOST_STREAMS * MOST_STREAMS];
    const struct ts_model_weight *weight;
    char name[768];
    if (!run->plan || !ts_ok(run) || !(clip > 0))
        return;
    weight = ts_model_weights_find(run->weights, ts_full_name(run, "correction_coefs.weight", name));
    if (!weight || weight->view.count != count * count)
        return;
    run->error.status = ts_view_read_f32(&weight->view, 0, count * count, values, &run->error);
    for (size_t i = 0; i < count * count && ts_ok(run); i++)
        if (fabsf(values[i]) > (float)clip)
            ts_run_fail(run, TS_ERR_UNSUPPORTED,
                        "%s.correction_coefs.weight has %g, beyond the altup_coef_clip of %g, and clamped weights are "
                        "not supported yet",
                        run->scope, (double)values[i], clip);
}

/* What the layer found beyond the prediction is given to each stream, in its own measure. */
static struct ts_act correct(struct ts_run *run, const struct ts_decoder *decoder, struct ts_act predictions,
                             struct ts_act found, size_t count, size_t active)
{
    size_t scope = ts_enter(run, "altup"), tokens = run->token_count, width = predictions.width;
    struct ts_act chosen = modalities(run, decoder, found, count);
    struct ts_act measure = ts_linear(run, "correction_coefs", chosen, count, false);
    struct ts_act news = ts_scale(run, "", stream(predictions, active, tokens), -1);
    struct ts_act out = ts_new(run, predictions.rows, width);
    check_correction(run, count);
    news = ts_sum(run, "innovation", found, news);
    for (size_t j = 0; j < count && ts_real(run); j++)
        for (size_t t = 0; t < tokens; t++) {
            float *to = out.data + (j * tokens + t) * width, by = measure.data[t * count + j] + 1;
            ts_round(run, &by, 1);
            for (size_t k = 0; k < width; k++)
                to[k] = news.data[t * width + k] * by;
        }
    add_to(run, out, predictions);
    capture_streams(run, "corrected", out, count);
    ts_leave(run, scope);
    return out;
}

static struct ts_act laurel(struct ts_run *run, const struct ts_decoder *decoder, struct ts_act x)
{
    size_t scope = ts_enter(run, "laurel");
    struct ts_act h = ts_linear(run, "linear_left", x, ts_need(run, "laurel_rank"), false);
    h = ts_linear(run, "linear_right", h, decoder->hidden, false);
    h = norm(run, "post_laurel_norm", h, decoder, 0);
    h = ts_sum(run, "", x, h);
    ts_capture(run, "", h);
    ts_leave(run, scope);
    return h;
}

/* Queries, keys or values: projected, each head normed (values without a weight), turned unless they are values. */
static struct ts_act project(struct ts_run *run, const struct ts_decoder *decoder, char which, struct ts_act x,
                             size_t heads, const struct ts_rotary *rotary)
{
    char name[16];
    snprintf(name, sizeof name, "%c_proj", which);
    x = ts_linear(run, name, x, heads * decoder->head_size, false);
    x.heads = heads;
    x.layout = TS_TOKENS_HEADS;
    snprintf(name, sizeof name, "%c_norm", which);
    x = ts_norm(run, name, x, which == 'v' ? TS_NORM_RMS_BARE : TS_NORM_RMS_WIDE, decoder->eps, heads);
    if (!rotary)
        return x;
    snprintf(name, sizeof name, "%c_rope", which);
    return ts_rotate(run, name, x, rotary, false);
}

/* Files written by newer libraries leave out the projections that are never used with a cache. */
static bool has_keys(struct ts_run *run)
{
    char name[768];
    return ts_model_weights_find(run->weights, ts_full_name(run, "k_proj.weight", name)) != NULL;
}

/* And where they stand in the file they may be left over. */
static void ignore_keys(struct ts_run *run)
{
    static const char *const names[] = {"k_proj.weight", "v_proj.weight", "k_norm.weight"};
    char name[768];
    for (size_t i = 0; i < sizeof names / sizeof *names && run->plan; i++)
        ts_model_weights_find(run->weights, ts_full_name(run, names[i], name));
}

static struct ts_act attention(struct ts_run *run, const struct ts_decoder *decoder, size_t i, struct ts_act x,
                               struct state *state)
{
    bool sliding = slides(run, i);
    const struct ts_rotary *rotary = sliding ? &state->sliding : &state->full;
    size_t scope = ts_enter(run, "self_attn"), first_shared = decoder->layers - state->shared;
    struct ts_act q = project(run, decoder, 'q', x, decoder->heads, rotary), k, v, out;
    bool shares = i >= first_shared && first_shared > 0 && (run->cache || !has_keys(run));
    if (shares) {
        ignore_keys(run);
        k = state->keys[sliding];
        v = state->values[sliding];
    } else {
        k = project(run, decoder, 'k', x, decoder->kv_heads, rotary);
        v = project(run, decoder, 'v', x, decoder->kv_heads, NULL);
    }
    if (i < first_shared) { /* the last of its kind below the shared ones stands */
        ts_hold(run, &state->keys[sliding], k);
        ts_hold(run, &state->values[sliding], v);
    }
    out = ts_attend(run, q, k, v, &(struct ts_attention){.scale = 1, .window = sliding ? ts_window(run, 512) : 0});
    out = ts_linear(run, "o_proj", out, decoder->hidden, false);
    ts_capture(run, "", out);
    ts_leave(run, scope);
    return out;
}

/* The inverse of the normal distribution's cumulative: bisection on erfc, once per layer. */
static double normal_quantile(double p)
{
    double low = -10, high = 10;
    for (unsigned step = 0; step < 200; step++) {
        double middle = (low + high) / 2;
        if (erfc(-middle / sqrt(2)) / 2 < p)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

/* Keeps what lies above mean + quantile * deviation of its row, less that. */
static struct ts_act cut_gate(struct ts_run *run, struct ts_act x, double sparsity)
{
    struct ts_act y = ts_new(run, x.rows, x.width);
    float by = (float)normal_quantile(sparsity);
    ts_round(run, &by, 1);
    for (size_t t = 0; t < x.rows && ts_real(run); t++) {
        const float *row = x.data + t * x.width;
        double mean = 0, squares = 0;
        float cut[2];
        for (size_t i = 0; i < x.width; i++)
            mean += (double)row[i];
        mean /= (double)x.width;
        for (size_t i = 0; i < x.width; i++)
            squares += ((double)row[i] - mean) * ((double)row[i] - mean);
        cut[0] = (float)mean;
        cut[1] = (float)sqrt(squares / (double)x.width);
        ts_round(run, cut, 2);
        cut[1] *= by;
        ts_round(run, cut, 2);
        cut[0] += cut[1];
        ts_round(run, cut, 1);
        for (size_t i = 0; i < x.width; i++)
            y.data[t * x.width + i] = row[i] > cut[0] ? row[i] - cut[0] : 0;
    }
    if (ts_real(run))
        ts_round(run, y.data, y.rows * y.width);
    ts_capture(run, "gate_sparse", y);
    return y;
}

static struct ts_act mlp(struct ts_run *run, const struct ts_decoder *decoder, size_t i, struct ts_act x)
{
    char name[128];
    size_t scope = ts_enter(run, "mlp"), inner = ts_count(run, per_layer(run, "intermediate_size", i, name), 16384);
    double sparsity = ts_number(run, per_layer(run, "activation_sparsity_pattern", i, name), 0);
    struct ts_act gate = ts_linear(run, "gate_proj", x, inner, false), up;
    if (!(sparsity >= 0 && sparsity < 1))
        ts_run_fail(run, TS_ERR_FORMAT, "the config says %s is %g, and a share below one is expected", name, sparsity);
    if (sparsity > 0)
        gate = cut_gate(run, gate, sparsity);
    gate = ts_activate(run, "act_fn", gate, decoder->function);
    up = ts_linear(run, "up_proj", x, inner, false);
    x = ts_linear(run, "down_proj", ts_multiply(run, "intermediate", gate, up), decoder->hidden, false);
    ts_capture(run, "", x);
    ts_leave(run, scope);
    return x;
}

/* The token's embedding for this layer, gated by the corrected active stream, goes to all other streams. */
static void add_layer_input(struct ts_run *run, const struct ts_decoder *decoder, size_t i, struct ts_act streams,
                            struct ts_act inputs, const struct state *state)
{
    size_t tokens = run->token_count, part = state->part;
    struct ts_act h = ts_copy(run, stream(streams, state->active, tokens));
    if (ts_flag(run, "altup_correct_scale", true)) {
        struct ts_block *mark = ts_mark(run);
        const float *by =
            ts_parameter_values(run, ts_parameter(run, "altup.correct_output_scale", 1, (uint64_t[]){decoder->hidden}));
        for (size_t k = 0; k < h.rows * h.width && by && ts_real(run); k++)
            h.data[k] *= by[k % h.width];
        if (ts_real(run))
            ts_round(run, h.data, h.rows * h.width);
        ts_forget(run, mark, NULL);
    }
    h = ts_linear(run, "per_layer_input_gate", h, part, false);
    h = ts_activate(run, "act_fn", h, decoder->function);
    h = ts_multiply(run, "", h, ts_columns(run, inputs, i * part, part));
    h = ts_linear(run, "per_layer_projection", h, decoder->hidden, false);
    h = norm(run, "post_per_layer_input_norm", h, decoder, 0);
    for (size_t j = 1; j < state->streams && ts_real(run); j++) {
        struct ts_act to = stream(streams, j, tokens);
        for (size_t k = 0; k < h.rows * h.width; k++)
            to.data[k] += h.data[k];
        ts_round(run, to.data, h.rows * h.width);
    }
}

static struct ts_act layer(struct ts_run *run, const struct ts_decoder *decoder, size_t i, struct ts_act streams,
                           struct ts_act inputs, struct state *state)
{
    size_t tokens = run->token_count;
    struct ts_act predictions = predict(run, decoder, streams, state->streams, state->active);
    struct ts_act active = stream(predictions, state->active, tokens);
    struct ts_act normed = norm(run, "input_layernorm", active, decoder, 0);
    struct ts_act beside = laurel(run, decoder, normed);
    struct ts_act h = attention(run, decoder, i, normed, state), x;
    h = norm(run, "post_attention_layernorm", h, decoder, 0);
    x = ts_sum(run, "", active, h);
    x = ts_divide(run, "attn_residual", ts_sum(run, "", x, beside), sqrt(2));
    h = norm(run, "pre_feedforward_layernorm", x, decoder, 0);
    h = mlp(run, decoder, i, h);
    h = norm(run, "post_feedforward_layernorm", h, decoder, 0);
    x = ts_sum(run, "mlp_residual", x, h);
    streams = correct(run, decoder, predictions, x, state->streams, state->active);
    add_layer_input(run, decoder, i, streams, inputs, state);
    return streams;
}

/* One stream becomes several, each of the first one's length. */
static struct ts_act open_streams(struct ts_run *run, struct ts_act x, size_t count)
{
    struct ts_act streams = ts_new(run, count * x.rows, x.width);
    for (size_t j = 0; j < count; j++) {
        struct ts_act h = x;
        char name[64];
        snprintf(name, sizeof name, "altup_projections.%zu", j - 1);
        if (j) {
            h = ts_copy(run, ts_linear(run, name, x, x.width, false));
            match_magnitude(run, h, x);
        }
        if (ts_real(run))
            memcpy(streams.data + j * x.rows * x.width, h.data, x.rows * x.width * sizeof *h.data);
    }
    return streams;
}

/* And several one again: their mean. */
static struct ts_act close_streams(struct ts_run *run, struct ts_act streams, size_t count)
{
    size_t tokens = streams.rows / count;
    struct ts_act first = stream(streams, 0, tokens), sum = ts_copy(run, first);
    for (size_t j = 1; j < count; j++) {
        char name[64];
        struct ts_act h;
        snprintf(name, sizeof name, "altup_unembed_projections.%zu", j - 1);
        h = ts_copy(run, ts_linear(run, name, stream(streams, j, tokens), streams.width, false));
        match_magnitude(run, h, first);
        for (size_t i = 0; i < tokens * streams.width && ts_real(run); i++)
            sum.data[i] += h.data[i];
    }
    for (size_t i = 0; i < tokens * streams.width && ts_real(run); i++)
        sum.data[i] /= (float)count;
    if (ts_real(run))
        ts_round(run, sum.data, tokens * streams.width);
    ts_capture(run, "altup_mean", sum);
    return sum;
}

static void forward(struct ts_run *run)
{
    struct ts_decoder decoder = ts_decoder_read(run, &usual);
    struct state state = {.streams = ts_count(run, "altup_num_inputs", 4),
                          .active = ts_count(run, "altup_active_idx", 0),
                          .part = ts_need(run, "hidden_size_per_layer_input"),
                          .shared = ts_count(run, "num_kv_shared_layers", 0)};
    size_t model = ts_enter(run, "model"), layers = ts_layers(run, decoder.layers);
    struct ts_act x, inputs, streams;
    if (!state.streams || state.streams > MOST_STREAMS || state.active >= state.streams ||
        state.shared > decoder.layers)
        ts_run_fail(run, TS_ERR_FORMAT,
                    "the config has %zu streams of which %zu is active, and %zu of %zu layers share", state.streams,
                    state.active, state.shared, decoder.layers);
    if (!ts_ok(run))
        return;
    ts_model_weights_ignore(run->weights, "vision_tower.");
    ts_model_weights_ignore(run->weights, "audio_tower.");
    ts_model_weights_ignore(run->weights, "embed_vision.");
    ts_model_weights_ignore(run->weights, "embed_audio.");
    x = ts_embed(run, "embed_tokens", decoder.vocabulary, decoder.hidden, sqrt((double)decoder.hidden));
    inputs = layer_inputs(run, &decoder, x, state.part);
    inputs.layout = TS_BATCHED;
    streams = open_streams(run, x, state.streams);
    capture_streams(run, "altup_streams", streams, state.streams);
    if (ts_model_config_text(run->config, "rope_parameters.sliding_attention.rope_theta")) {
        state.sliding = ts_rotary_make(run, "rope_parameters.sliding_attention", decoder.head_size, LOCAL_THETA, false);
        state.full = ts_rotary_make(run, "rope_parameters.full_attention", decoder.head_size, decoder.theta, false);
    } else {
        state.full = ts_rotary_make(run, "rope_scaling", decoder.head_size, decoder.theta, false);
        state.sliding = ts_rotary_plain(run, decoder.head_size, ts_number(run, "rope_local_base_freq", LOCAL_THETA));
    }
    for (size_t i = 0; i < layers && ts_ok(run); i++) {
        struct ts_block *mark = ts_mark(run);
        size_t scope = ts_enter(run, "layers.%zu", i);
        streams = layer(run, &decoder, i, streams, inputs, &state);
        capture_streams(run, "", streams, state.streams);
        ts_leave(run, scope);
        ts_forget(run, mark, &streams);
    }
    if (!run->cut) {
        x = close_streams(run, streams, state.streams);
        x = norm(run, "norm", x, &decoder, 0);
    }
    ts_leave(run, model);
    ts_head(run, x, "model.embed_tokens.weight", decoder.vocabulary, decoder.tied,
            ts_number(run, "final_logit_softcapping", 0));
    for (unsigned kind = 0; kind < 2; kind++) {
        ts_let_go(&state.keys[kind]);
        ts_let_go(&state.values[kind]);
    }
}

const struct ts_model_family ts_model_family_gemma3n = {.types = "gemma3n_text gemma3n", .forward = forward};
