/* Owns the reference's weights and configuration as files, named as checkpoints name them: what a person hands to
 * `--weights` and `--config`. */
#include <stdio.h>
#include <string.h>

#include "zoo.h"

#define MOST_TENSORS 4096

struct listed {
    char name[96];
    const float *values;
    int rows, columns; /* columns 0: a vector */
};

struct list {
    struct listed tensors[MOST_TENSORS];
    int count;
};

static void add(struct list *list, int layer, const char *name, const char *ending, const float *values, int rows,
                int columns)
{
    struct listed *tensor = &list->tensors[list->count];
    if (!values || list->count == MOST_TENSORS)
        return;
    if (layer < 0)
        snprintf(tensor->name, sizeof tensor->name, "%s.%s", name, ending);
    else
        snprintf(tensor->name, sizeof tensor->name, "model.layers.%d.%s.%s", layer, name, ending);
    tensor->values = values;
    tensor->rows = rows;
    tensor->columns = columns;
    list->count++;
}

static void add_matrix(struct list *list, int layer, const char *name, const struct zoo_matrix *matrix)
{
    add(list, layer, name, "weight", matrix->weight, matrix->out, matrix->in);
    add(list, layer, name, "bias", matrix->weight ? matrix->bias : NULL, matrix->out, 0);
}

static void add_norm(struct list *list, int layer, const char *name, const struct zoo_norm *norm)
{
    add(list, layer, name, "weight", norm->on ? norm->weight : NULL, norm->size, 0);
    add(list, layer, name, "bias", norm->on ? norm->bias : NULL, norm->size, 0);
}

static void collect(struct list *list, const struct zoo_model *model)
{
    static const char *const expert[3] = {"gate_proj", "up_proj", "down_proj"};
    add_matrix(list, -1, "model.embed_tokens", &model->embed);
    for (int l = 0; l < model->config->layers; l++) {
        const struct zoo_layer *layer = &model->layer[l];
        add_norm(list, l, "input_layernorm", &layer->attn_norm);
        add_matrix(list, l, "self_attn.q_proj", &layer->q);
        add_matrix(list, l, "self_attn.k_proj", &layer->k);
        add_matrix(list, l, "self_attn.v_proj", &layer->v);
        add_norm(list, l, "self_attn.q_norm", &layer->q_norm);
        add_norm(list, l, "self_attn.k_norm", &layer->k_norm);
        add_matrix(list, l, "self_attn.o_proj", &layer->o);
        add_norm(list, l, "post_attention_layernorm", &layer->mlp_norm);
        add_matrix(list, l, "mlp.gate_proj", &layer->gate);
        add_matrix(list, l, "mlp.up_proj", &layer->up);
        add_matrix(list, l, "mlp.down_proj", &layer->down);
        add_matrix(list, l, "mlp.gate", &layer->router);
        add_matrix(list, l, "adaLN_modulation", &layer->modulation);
        for (int e = 0; e < model->config->experts && e < ZOO_MOST_EXPERTS; e++)
            for (int part = 0; part < 3; part++) {
                char name[64];
                snprintf(name, sizeof name, "mlp.experts.%d.%s", e, expert[part]);
                add_matrix(list, l, name, &layer->expert[e][part]);
            }
    }
    add_norm(list, -1, "model.norm", &model->final_norm);
    add_matrix(list, -1, "lm_head", &model->head);
}

static bool write_config(const char *path, const struct zoo_config *config)
{
    FILE *file = fopen(path, "w");
    if (!file)
        return false;
    fprintf(file,
            "{\"hidden_size\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"head_dim\": %d, "
            "\"rope_theta\": %.9g, \"rms_norm_eps\": %.9g, \"num_hidden_layers\": %d}\n",
            config->hidden, config->heads, config->kv_heads, config->head_size, config->theta, config->epsilon,
            config->layers);
    return fclose(file) == 0;
}

bool zoo_write_weights(const char *folder, const struct zoo_model *model)
{
    static struct list list;
    char path[1024];
    FILE *file;
    uint64_t size = 0;
    long long at = 0;
    long end;
    bool good;
    memset(&list, 0, sizeof list);
    collect(&list, model);
    snprintf(path, sizeof path, "%s/weights.safetensors", folder);
    if (!(file = fopen(path, "wb")))
        return false;
    fwrite(&size, sizeof size, 1, file);
    for (int i = 0; i < list.count; i++) {
        const struct listed *t = &list.tensors[i];
        long long bytes = 4LL * t->rows * (t->columns ? t->columns : 1);
        fprintf(file, "%c\"%s\":{\"dtype\":\"F32\",\"shape\":[%d", i ? ',' : '{', t->name, t->rows);
        if (t->columns)
            fprintf(file, ",%d", t->columns);
        fprintf(file, "],\"data_offsets\":[%lld,%lld]}", at, at + bytes);
        at += bytes;
    }
    fputs(list.count ? "}" : "{}", file);
    while (ftell(file) % 8)
        putc(' ', file);
    end = ftell(file);
    for (int i = 0; i < list.count; i++) {
        const struct listed *t = &list.tensors[i];
        fwrite(t->values, sizeof(float), (size_t)t->rows * (size_t)(t->columns ? t->columns : 1), file);
    }
    size = (uint64_t)end - sizeof size;
    fseek(file, 0, SEEK_SET);
    fwrite(&size, sizeof size, 1, file);
    good = !ferror(file);
    good = fclose(file) == 0 && good;
    snprintf(path, sizeof path, "%s/config.json", folder);
    return good && write_config(path, model->config);
}
