/* Writes a made-up model of the shape of Qwen3-0.6B, bf16: bench_make_model FOLDER [LAYERS]. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"

enum { HIDDEN = 1024, HEADS = 16, KV_HEADS = 8, HEAD_SIZE = 128, INNER = 3072, VOCABULARY = 151936 };

static struct ts_buffer header;
static uint64_t offset;

static void announce(const char *format, unsigned layer, uint64_t rows, uint64_t columns)
{
    uint64_t bytes = 2 * rows * (columns ? columns : 1);
    ts_buffer_string(&header, offset ? ",\"" : "\"");
    ts_buffer_printf(&header, format, layer);
    if (columns)
        ts_buffer_printf(&header, "\":{\"dtype\":\"BF16\",\"shape\":[%" PRIu64 ",%" PRIu64 "]", rows, columns);
    else
        ts_buffer_printf(&header, "\":{\"dtype\":\"BF16\",\"shape\":[%" PRIu64 "]", rows);
    ts_buffer_printf(&header, ",\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", offset, offset + bytes);
    offset += bytes;
}

int main(int argc, char **argv)
{
    unsigned layers = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 28;
    static uint16_t piece[1 << 20];
    uint64_t state = 1;
    char path[4096];
    uint8_t size[8];
    FILE *file;
    if (argc < 2)
        return 2;
    mkdir(argv[1], 0777);
    snprintf(path, sizeof path, "%s/config.json", argv[1]);
    if (!(file = fopen(path, "w")))
        return 1;
    fprintf(file,
            "{\"model_type\":\"qwen3\",\"hidden_size\":%d,\"num_hidden_layers\":%u,\"num_attention_heads\":%d,"
            "\"num_key_value_heads\":%d,\"head_dim\":%d,\"intermediate_size\":%d,\"vocab_size\":%d,"
            "\"rms_norm_eps\":1e-6,\"rope_theta\":1000000,\"hidden_act\":\"silu\",\"tie_word_embeddings\":true}\n",
            HIDDEN, layers, HEADS, KV_HEADS, HEAD_SIZE, INNER, VOCABULARY);
    if (fclose(file) != 0)
        return 1;
    ts_buffer_init(&header, (size_t)1 << 20);
    ts_buffer_byte(&header, '{');
    announce("model.embed_tokens.weight", 0, VOCABULARY, HIDDEN);
    for (unsigned i = 0; i < layers; i++) {
        announce("model.layers.%u.input_layernorm.weight", i, HIDDEN, 0);
        announce("model.layers.%u.self_attn.q_proj.weight", i, HEADS * HEAD_SIZE, HIDDEN);
        announce("model.layers.%u.self_attn.k_proj.weight", i, KV_HEADS * HEAD_SIZE, HIDDEN);
        announce("model.layers.%u.self_attn.v_proj.weight", i, KV_HEADS * HEAD_SIZE, HIDDEN);
        announce("model.layers.%u.self_attn.o_proj.weight", i, HIDDEN, HEADS * HEAD_SIZE);
        announce("model.layers.%u.self_attn.q_norm.weight", i, HEAD_SIZE, 0);
        announce("model.layers.%u.self_attn.k_norm.weight", i, HEAD_SIZE, 0);
        announce("model.layers.%u.post_attention_layernorm.weight", i, HIDDEN, 0);
        announce("model.layers.%u.mlp.gate_proj.weight", i, INNER, HIDDEN);
        announce("model.layers.%u.mlp.up_proj.weight", i, INNER, HIDDEN);
        announce("model.layers.%u.mlp.down_proj.weight", i, HIDDEN, INNER);
    }
    announce("model.norm.weight", 0, HIDDEN, 0);
    ts_buffer_byte(&header, '}');
    while (header.size % 8)
        ts_buffer_byte(&header, ' ');
    for (unsigned i = 0; i < 8; i++)
        size[i] = (uint8_t)(header.size >> 8 * i);
    snprintf(path, sizeof path, "%s/model.safetensors", argv[1]);
    if (!(file = fopen(path, "w")) || fwrite(size, 1, 8, file) != 8 ||
        fwrite(header.data, 1, header.size, file) != header.size)
        return 1;
    /* numbers of either sign around 1/32, as far as bits go: random mantissas, two exponents */
    for (uint64_t done = 0; done < offset;) {
        size_t count = sizeof piece / sizeof *piece;
        if (offset - done < sizeof piece)
            count = (size_t)(offset - done) / 2;
        for (size_t i = 0; i < count; i += 4) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            for (size_t k = 0; k < 4 && i + k < count; k++)
                piece[i + k] = (uint16_t)((state >> 16 * k & 0x80ff) | 0x3c80);
        }
        if (fwrite(piece, 2, count, file) != count)
            return 1;
        done += 2 * count;
    }
    return fclose(file) != 0;
}
