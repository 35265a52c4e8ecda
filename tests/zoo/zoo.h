/* Zoo: toy models with random weights, their forward passes under many honest numerics, and planted bugs.
 *
 * The shape of a model (struct zoo_config) and everything that can be done wrong in it (struct zoo_model: weights and
 * per-layer settings) are data: a bug is a change of that data, or damage done to one tensor on its way (struct
 * zoo_damage). So the forward pass is the same for the reference, the honest candidates and the buggy ones.
 *
 * Everything is a function of a seed: no clock, no address, no libc random numbers. Memory of a model and of a run
 * comes from one arena and goes with it. */
#ifndef ZOO_H
#define ZOO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ZOO_MOST_LAYERS  32
#define ZOO_MOST_EXPERTS 16

/* Random numbers: splitmix64. */
struct zoo_random {
    uint64_t state;
};
uint64_t zoo_random_next(struct zoo_random *random);
double zoo_random_unit(struct zoo_random *random);           /* [0, 1) */
double zoo_random_normal(struct zoo_random *random);         /* about normal, variance 1 */
int zoo_random_below(struct zoo_random *random, int limit);  /* [0, limit) */
bool zoo_random_chance(struct zoo_random *random, double p); /* true with probability p */
struct zoo_random zoo_random_from(uint64_t seed, uint64_t salt);

/* Memory: blocks freed together. Exits when there is none: a test tool has nothing better to do. */
struct zoo_arena {
    void **blocks;
    size_t count, room;
};
void *zoo_alloc(struct zoo_arena *arena, size_t size); /* zeroed */
float *zoo_floats(struct zoo_arena *arena, int count);
void zoo_arena_release(struct zoo_arena *arena);

/* Number formats a value can be rounded to. */
enum zoo_format { ZOO_F32, ZOO_TF32, ZOO_BF16, ZOO_F16, ZOO_E4M3 };
float zoo_round_other(enum zoo_format format, float value);

/* To nearest even. The two commonest formats here, where they can be inlined. */
static inline float zoo_round(enum zoo_format format, float value)
{
    uint32_t bits;
    if (format == ZOO_F32)
        return value;
    if (format != ZOO_BF16)
        return zoo_round_other(format, value);
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7f800000) == 0x7f800000)
        return value;
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&value, &bits, sizeof value);
    return value;
}

int zoo_mantissa_bits(enum zoo_format format);
uint16_t zoo_bf16_bits(float value);
uint16_t zoo_f16_bits(float value);
float zoo_f16_value(uint16_t bits);

/* Formats of weights: values on the grid of the quantizer, kept as floats. */
enum zoo_weights {
    ZOO_WEIGHTS_PLAIN, /* rounded to the activations' format only */
    ZOO_WEIGHTS_INT8,  /* symmetric, a scale per output channel */
    ZOO_WEIGHTS_INT4,  /* scale and zero point per 32 inputs */
    ZOO_WEIGHTS_INT3,
    ZOO_WEIGHTS_FP8,   /* e4m3, a scale per tensor */
    ZOO_WEIGHTS_MXFP4, /* e2m1 with a power of two per 32 inputs */
    ZOO_WEIGHTS_Q4     /* symmetric, a half-precision scale per 32 inputs */
};
void zoo_quantize(enum zoo_weights weights, float *values, int rows, int columns);
/* One row to int8 (or e4m3) with its own scale. */
void zoo_quantize_row(enum zoo_weights weights, float *values, int count);

enum zoo_sum { ZOO_SUM_LANES, ZOO_SUM_FORWARD, ZOO_SUM_BACKWARD, ZOO_SUM_PAIRS };

/* How a run computes. All of these are honest. */
struct zoo_numerics {
    const char *name;  /* in file names */
    const char *dtype; /* in cases.json */
    enum zoo_format format;
    enum zoo_format products; /* inputs of matrix products are rounded to it */
    enum zoo_weights weights;
    enum zoo_weights cache;      /* keys and values, per token and head; PLAIN: not quantized */
    enum zoo_weights activation; /* INT8: inputs of projections, per token */
    enum zoo_sum sum;
    bool fused;        /* one rounding per kernel instead of one per elementary operation */
    bool wide_sums;    /* the residual stream stays in fp32 */
    bool wide_norms;   /* norms in fp32, one rounding at the end */
    bool online;       /* softmax and context in one pass over blocks of keys */
    bool from_half;    /* quantized weights only from the middle layer on */
    bool mlp_only;     /* quantized weights in the mlp alone */
    bool head_kept;    /* the output projection is not quantized */
    bool cache_shown;  /* captured keys and values are those of the cache */
    bool router_exact; /* the router runs in fp32 */
    bool table;        /* gelu comes from a table of half-precision numbers */
    bool one_pass;     /* variances as the mean of squares less the square of the mean */
};

enum zoo_point {
    ZOO_EMBED,
    ZOO_EMBED_SCALED,
    ZOO_POSITION,
    ZOO_EMBED_SUM,
    ZOO_INPUT,
    ZOO_MODULATION,
    ZOO_ATTN_NORM,
    ZOO_ATTN_MODULATED,
    ZOO_QKV,
    ZOO_Q,
    ZOO_K,
    ZOO_V,
    ZOO_Q_NORM,
    ZOO_K_NORM,
    ZOO_Q_ROPE,
    ZOO_K_ROPE,
    ZOO_SCORES_RAW,
    ZOO_SCORES,
    ZOO_PROBS,
    ZOO_CONTEXT,
    ZOO_O,
    ZOO_ATTENTION, /* the module's output: O once more */
    ZOO_POST_ATTN_NORM,
    ZOO_ATTN_RESIDUAL,
    ZOO_MLP_NORM,
    ZOO_MLP_MODULATED,
    ZOO_ROUTER_LOGITS,
    ZOO_ROUTER_WEIGHTS,
    ZOO_ROUTER_INDICES,
    ZOO_EXPERTS,
    ZOO_SHARED,
    ZOO_GATE_UP,
    ZOO_GATE,
    ZOO_UP,
    ZOO_ACT,
    ZOO_INTERMEDIATE,
    ZOO_DOWN,
    ZOO_MLP, /* the module's output: DOWN once more, or experts and shared expert together */
    ZOO_POST_MLP_NORM,
    ZOO_MLP_RESIDUAL, /* only where a norm follows it */
    ZOO_LAYER,
    ZOO_FINAL_MODULATION,
    ZOO_FINAL_NORM,
    ZOO_FINAL_MODULATED,
    ZOO_LOGITS_RAW,
    ZOO_LOGITS,
    ZOO_POINTS
};

enum zoo_activation { ZOO_SILU, ZOO_GELU, ZOO_GELU_TANH, ZOO_QUICK_GELU, ZOO_RELU, ZOO_NO_ACTIVATION };
enum zoo_naming { ZOO_NAMES_PLAIN, ZOO_NAMES_HF, ZOO_NAMES_GPT, ZOO_NAMES_GGML, ZOO_NAMES_DIT, ZOO_NAMINGS };
enum zoo_layout {
    ZOO_LAYOUT_TOKENS, /* [T, D], [T, H, hd] */
    ZOO_LAYOUT_BATCH,  /* [1, T, D], [1, H, T, hd] */
    ZOO_LAYOUT_HEADS,  /* [T, D], [H, T, hd] */
    ZOO_LAYOUT_FLAT    /* [T, D], [T, H * hd]; scores [H, T, T] */
};
enum zoo_capture_set {
    ZOO_CAPTURE_FULL,
    ZOO_CAPTURE_HOOKS,      /* outputs of modules, as framework hooks give them */
    ZOO_CAPTURE_FUSED,      /* the same of a server that fuses projections: qkv, gate and up */
    ZOO_CAPTURE_BLOCKS,     /* norms, attention, mlp and layer outputs */
    ZOO_CAPTURE_LAYERS,     /* layer outputs only */
    ZOO_CAPTURE_PROJECTIONS /* q, k, v, what comes out of attention and of the mlp, and no stream */
};
enum zoo_masked { ZOO_SCORES_UNMASKED, ZOO_SCORES_INFINITE, ZOO_SCORES_LOWEST };

struct zoo_config {
    char name[64];
    uint64_t seed;
    int tokens, hidden, intermediate, vocabulary, layers, heads, kv_heads, head_size;
    bool layer_norm, norm_bias, plus_one, post_norms, qk_norm, parallel, shared_norm, gated, dit, causal;
    bool norm_after;    /* the stream itself is normed after each sum, as in the first encoders */
    bool no_pre_norm;   /* branches take the stream as it is; their outputs are normed */
    bool whole_qk_norm; /* one norm over all heads */
    bool alibi, sinks;  /* a slope per head on the distance; a score per head that takes weight and gives nothing */
    double residual_factor;
    double epsilon;
    bool qkv_bias, out_bias, mlp_bias, fused_qkv, tied, learned_positions;
    int rotary_size; /* 0: no rotary */
    bool interleaved;
    double theta, rope_factor;
    enum zoo_activation activation;
    double embed_scale, score_cap, logit_cap, attention_scale; /* 1, 0, 0 when there is none */
    int window;                                                /* on even layers; 0: none */
    int experts, top;
    bool renormalized, sigmoid_router, shared_expert, shared_gate;
    double router_factor;
    int modulation_rows; /* DiT: 1 or tokens */
    bool scale_first;    /* DiT: scale, shift, gate instead of shift, scale, gate */
    double embed_size;   /* standard deviation of the embeddings */
    bool outliers;       /* channels and a first token far larger than the rest, as real models have */
    bool bf16_weights;   /* the checkpoint itself is bf16 */
    const struct zoo_numerics *reference;
    enum zoo_naming naming;
    enum zoo_layout layout;
    enum zoo_capture_set capture;
    enum zoo_masked masked;
    bool native_storage; /* traces in the run's own type instead of fp32 */
    bool no_indices;     /* chosen experts are not captured */
    bool shown[ZOO_POINTS];
};

struct zoo_matrix {
    int out, in;
    float *weight, *bias; /* [out, in], [out] or NULL */
};

struct zoo_norm {
    bool on, centred, plus_one;
    int size;
    double epsilon;
    float *weight, *bias; /* NULL when there is none */
};

struct zoo_rope {
    int size; /* numbers of a head that turn; 0: none */
    bool interleaved;
    double theta, factor;
    int offset, late, times, sign; /* positions are (token + offset, + late for the last one) * sign, turned `times` */
};

enum zoo_residual { ZOO_RESIDUAL, ZOO_RESIDUAL_MISSING, ZOO_RESIDUAL_DOUBLED, ZOO_RESIDUAL_NORMED, ZOO_RESIDUAL_ONLY };

struct zoo_layer {
    struct zoo_norm attn_norm, mlp_norm, q_norm, k_norm, post_attn_norm, post_mlp_norm;
    struct zoo_matrix q, k, v, o, gate, up, down, router, shared_gate, shared[3], modulation;
    struct zoo_matrix expert[ZOO_MOST_EXPERTS][3]; /* gate, up, down */
    struct zoo_rope q_rope, k_rope;
    double scale, temperature, score_cap, slope; /* slope: of ALiBi's first head, 0: none */
    double residual_factor;
    float *sink; /* per head, NULL: none */
    bool causal, swap_qk, kv_tiled, previous_v, softmax_over_queries, head_layout, mlp_norm_of_input;
    int window, mask_shift, kv_copied; /* kv_copied: this kv head is taken from its neighbour; -1 none */
    int stale_token;                   /* the cache holds the previous token's key and value here; -1 none */
    enum zoo_residual attn_residual, mlp_residual;
    enum zoo_activation activation;
    bool gate_up_swapped, renormalized, sigmoid_router, shared_missing, gates_reversed, gates_ignored;
    double router_factor;
    int chunk[6];       /* DiT: which chunk is shift, scale, gate, shift, scale, gate */
    double one_plus[2]; /* DiT: 1, or 0 where it was forgotten */
    double gate_sign[2];
    bool gate_missing[2];
};

enum zoo_damage_kind {
    ZOO_DAMAGE_NONE,
    ZOO_DAMAGE_NAN,
    ZOO_DAMAGE_INF,
    ZOO_DAMAGE_ZERO_TAIL,
    ZOO_DAMAGE_STALE,
    ZOO_DAMAGE_ROLLED,
    ZOO_DAMAGE_SIGN,
    ZOO_DAMAGE_ZERO_HEAD,
    ZOO_DAMAGE_TYPE,
    ZOO_DAMAGE_SPARSE,
    ZOO_DAMAGE_HEAD_OFFSET,
    ZOO_DAMAGE_CHANNEL,
    ZOO_DAMAGE_CLAMPED,
    ZOO_DAMAGE_UNWRITTEN,
    ZOO_DAMAGE_SCALED,
    ZOO_DAMAGE_ROW_COPIED
};

struct zoo_damage {
    enum zoo_damage_kind kind;
    enum zoo_point point;
    int layer;
    uint64_t seed;
};

struct zoo_model {
    const struct zoo_config *config;
    struct zoo_arena arena;
    struct zoo_layer layer[ZOO_MOST_LAYERS];
    struct zoo_matrix embed, position, head, final_modulation;
    struct zoo_norm final_norm;
    double embed_scale, logit_cap;
    bool position_missing;
    int *token;                 /* ids; DiT: unused */
    float *picture, *condition; /* DiT: inputs [tokens, hidden] and conditioning [modulation_rows, hidden] */
    struct zoo_damage damage;
};

void zoo_model_build(struct zoo_model *model, const struct zoo_config *config);
void zoo_model_lower(struct zoo_model *model, const struct zoo_numerics *numerics); /* rounds and quantizes weights */
void zoo_model_release(struct zoo_model *model);

/* One captured tensor, [rows, heads, inner]. */
struct zoo_tensor {
    enum zoo_point point;
    int layer, rows, heads, inner;
    float *values;
};

struct zoo_trace {
    struct zoo_arena arena;
    struct zoo_tensor *tensors;
    int count, room;
};
void zoo_trace_release(struct zoo_trace *trace);
const struct zoo_tensor *zoo_trace_find(const struct zoo_trace *trace, enum zoo_point point, int layer);

/* Runs the model. With `forced` every captured point is overwritten with that trace's value after it was captured, so
 * that each captured tensor carries the error made since the captured points before it and nothing else. */
void zoo_forward(const struct zoo_model *model, const struct zoo_numerics *numerics, const struct zoo_trace *forced,
                 struct zoo_trace *trace);

/* One run in the making; the pieces of the forward pass share it. */
struct zoo_run {
    const struct zoo_model *model;
    const struct zoo_numerics *numerics;
    const struct zoo_trace *forced;
    struct zoo_trace *trace;
    struct zoo_arena arena;
    float *previous_v;
};
void zoo_emit(struct zoo_run *run, enum zoo_point point, int layer, float *values, int rows, int heads, int inner);
/* Parts beside each other in one captured tensor: what a fused projection gives. */
void zoo_emit_fused(struct zoo_run *run, enum zoo_point point, int layer, float **parts, const int *widths, int count,
                    int rows);

void zoo_linear(const struct zoo_run *run, const struct zoo_matrix *matrix, const float *in, int rows, float *out);
void zoo_norm(const struct zoo_run *run, const struct zoo_norm *norm, const float *in, int groups, float *out);
void zoo_rotate(const struct zoo_run *run, const struct zoo_rope *rope, const float *in, int rows, int heads, int size,
                float *out);
float zoo_activate(enum zoo_activation activation, float x);
float zoo_dot(enum zoo_sum sum, const float *a, const float *b, int count);
void zoo_attention(struct zoo_run *run, int layer, const float *in, float *out);
void zoo_mlp(struct zoo_run *run, int layer, float *in, float *out);

void zoo_damage_apply(const struct zoo_run *run, float *values, int layer, enum zoo_point point, int rows, int heads,
                      int inner);

/* Bugs. */
struct zoo_bug {
    const char *name;
    const char *causes; /* ids of causes that explain it, with commas */
    /* Changes the model; false when this model has no place for the bug. */
    bool (*plant)(struct zoo_model *model, int layer, struct zoo_random *random);
    bool everywhere; /* also makes sense in all layers at once */
};
extern const struct zoo_bug zoo_bugs[];
extern const int zoo_bug_count;

extern const struct zoo_numerics zoo_numerics_list[];
extern const int zoo_numerics_count;
const struct zoo_numerics *zoo_numerics_named(const char *name);

/* Architectures: name and sizes drawn from the seed. */
int zoo_architecture_count(void);
void zoo_config_draw(struct zoo_config *config, int architecture, uint64_t seed);

/* How far the change that a bug makes to a tensor, on identical inputs, stands above what is honest there: the error
 * made since the captured tensors before it where those determine it, and the whole error where they do not
 * (projections, or steps that were not captured). 30 and 5 are plain to see. */
double zoo_contrast(const struct zoo_config *config, const struct zoo_numerics *numerics, const struct zoo_tensor *bug,
                    const struct zoo_tensor *honest, const struct zoo_tensor *reference,
                    const struct zoo_tensor *forced, bool *learnable);

/* Files. */
void zoo_point_name(const struct zoo_config *config, enum zoo_point point, int layer, char *out, size_t size);
bool zoo_write_trace(const char *path, const struct zoo_config *config, const struct zoo_trace *trace,
                     const struct zoo_numerics *numerics);

/* weights.safetensors and config.json, for `tsleuth compare --weights --config`. */
bool zoo_write_weights(const char *folder, const struct zoo_model *model);

struct zoo_case {
    char file[128];
    const char *bug, *dtype; /* bug NULL: noise */
    char first[128], causes[192];
    double planted, honest, contrast;
    bool learnable;
};
bool zoo_write_cases(const char *path, const struct zoo_config *config, const struct zoo_case *cases, int count);

#endif
