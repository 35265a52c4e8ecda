/* A toy model in plain C whose activations can be dumped.
 *
 *     cc -O2 -I include capture/c/plain.c -o plain -lm
 *     TSLEUTH_DUMP=trace.safetensors ./plain && tsleuth trace.safetensors
 *     TSLEUTH_DUMP=trace.safetensors TSLEUTH_DUMP_FILTER='*.layers.0.*' ./plain */
#define TSLEUTH_DUMP_IMPLEMENTATION
#include "tsleuth_dump.h"

#include <math.h>
#include <stdio.h>

#define TOKENS 5
#define WIDTH  8
#define LAYERS 2

static void normalize(const float *in, float *out)
{
    for (int t = 0; t < TOKENS; t++) {
        float sum = 0.0f;
        for (int i = 0; i < WIDTH; i++)
            sum += in[t * WIDTH + i] * in[t * WIDTH + i];
        for (int i = 0; i < WIDTH; i++)
            out[t * WIDTH + i] = in[t * WIDTH + i] / sqrtf(sum / WIDTH + 1e-6f);
    }
}

int main(void)
{
    const int32_t tokens[TOKENS] = {3, 1, 4, 1, 5};
    const int64_t shape[2] = {TOKENS, WIDTH};
    float hidden[TOKENS * WIDTH], normed[TOKENS * WIDTH];
    char name[64];

    ts_dump_tokens(tokens, TOKENS);
    ts_dump_info("precision", "f32");
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < WIDTH; i++)
            hidden[t * WIDTH + i] = sinf((float)(tokens[t] * WIDTH + i));
    ts_dump_f32("model.embed_tokens", hidden, 2, shape);

    for (int layer = 0; layer < LAYERS; layer++) {
        normalize(hidden, normed);
        snprintf(name, sizeof name, "model.layers.%d.input_layernorm", layer);
        ts_dump_f32(name, normed, 2, shape);
        for (int i = 0; i < TOKENS * WIDTH; i++)
            normed[i] = normed[i] / (1.0f + expf(-normed[i]));
        snprintf(name, sizeof name, "model.layers.%d.mlp.act_fn", layer);
        ts_dump_f32(name, normed, 2, shape); /* the same buffer again: it was copied the first time */
        for (int i = 0; i < TOKENS * WIDTH; i++)
            hidden[i] += normed[i];
    }
    normalize(hidden, normed);
    ts_dump_f32("model.norm", normed, 2, shape);
    return 0;
}
