/* Checkpoints of the golden cases as files: a folder with config.json and weights that follow the formula. */
#ifndef TS_TEST_MODEL_FILES_H
#define TS_TEST_MODEL_FILES_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "io/source.h"
#include "model/model.h"
#include "model/round.h"
#include "model_golden.h"

/* The bytes of the case's config. */
static inline void write_config(const struct golden *golden, size_t number, const char *path)
{
    struct ts_json json;
    struct ts_error error;
    size_t at = 0;
    FILE *file;
    ts_json_init(&json, golden->source->data, (size_t)golden->source->size);
    do
        assert_int_equal(ts_json_next(&json, &error), TS_OK);
    while (json.kind != TS_JSON_KEY || !ts_json_equals(&json, "cases"));
    assert_int_equal(ts_json_next(&json, &error), TS_OK);
    for (;; at++) {
        assert_int_equal(ts_json_next(&json, &error), TS_OK);
        if (at == number)
            break;
        assert_int_equal(ts_json_skip_value(&json, &error), TS_OK);
    }
    for (;;) {
        assert_int_equal(ts_json_next(&json, &error), TS_OK);
        assert_int_equal(json.kind, TS_JSON_KEY);
        if (ts_json_equals(&json, "config"))
            break;
        assert_int_equal(ts_json_skip_value(&json, &error), TS_OK);
    }
    assert_int_equal(ts_json_next(&json, &error), TS_OK);
    at = json.offset;
    assert_int_equal(ts_json_skip_value(&json, &error), TS_OK);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(golden->source->data + at, 1, json.offset + 1 - at, file), json.offset + 1 - at);
    assert_int_equal(fclose(file), 0);
}

static inline void write_number(FILE *file, float value, const char *type)
{
    uint16_t half = strcmp(type, "bfloat16") == 0 ? ts_bf16_bits(value) : ts_f16_bits(value);
    if (strcmp(type, "float32") == 0)
        assert_int_equal(fwrite(&value, sizeof value, 1, file), 1);
    else
        assert_int_equal(fwrite(&half, sizeof half, 1, file), 1);
}

/* The checkpoint, from the list of names and shapes. leave_out: a name that is not written. */
static inline void write_weights(const struct golden *golden, size_t number, const char *path, const char *leave_out)
{
    const char *type = of_case(golden, number, "dtype");
    float center = strtof(of_case(golden, number, "center"), NULL);
    char prefix[64], header_size[8];
    struct ts_buffer header, names;
    uint64_t offset = 0, bytes = strcmp(type, "float32") == 0 ? 4 : 2;
    size_t length;
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    ts_buffer_init(&header, (size_t)8 << 20);
    ts_buffer_init(&names, (size_t)8 << 20);
    snprintf(prefix, sizeof prefix, "cases.%zu.weights.", number);
    length = strlen(prefix);
    ts_buffer_byte(&header, '{');
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < golden->all.count; i++) {
            const char *key = golden->all.keys[i], *name = key + length;
            uint64_t shape[4], count = 1;
            unsigned rank = 0;
            char weight[256];
            if (strncmp(key, prefix, length) != 0 || !ts_ends_with(key, ".0"))
                continue;
            snprintf(weight, sizeof weight, "%.*s", (int)(strlen(name) - 2), name);
            if (leave_out && strcmp(weight, leave_out) == 0)
                continue;
            /* "weights.NAME.0" is the first size unless NAME itself goes on with a number */
            for (; rank < 4; rank++) {
                char dimension[400];
                const char *text;
                snprintf(dimension, sizeof dimension, "%s%s.%u", prefix, weight, rank);
                text = ts_model_config_text(&golden->all, dimension);
                if (!text)
                    break;
                shape[rank] = strtoull(text, NULL, 10);
                count *= shape[rank];
            }
            if (pass) {
                for (uint64_t k = 0; k < count; k++)
                    write_number(file, weight_of(weight, k, shape, rank, center), type);
                continue;
            }
            ts_buffer_printf(&header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", offset ? "," : "", weight,
                             bytes == 4                      ? "F32"
                             : strcmp(type, "bfloat16") == 0 ? "BF16"
                                                             : "F16");
            for (unsigned k = 0; k < rank; k++)
                ts_buffer_printf(&header, k ? ",%" PRIu64 : "%" PRIu64, shape[k]);
            ts_buffer_printf(&header, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", offset, offset + count * bytes);
            offset += count * bytes;
        }
        if (pass == 0) {
            ts_buffer_byte(&header, '}');
            for (unsigned k = 0; k < 8; k++)
                header_size[k] = (char)(header.size >> 8 * k);
            assert_int_equal(fwrite(header_size, 1, 8, file), 8);
            assert_int_equal(fwrite(header.data, 1, header.size, file), header.size);
        }
    }
    assert_int_equal(fclose(file), 0);
    ts_buffer_release(&header);
    ts_buffer_release(&names);
}

struct folder {
    char path[64], config[96], weights[96];
};

static inline void make_model(const struct golden *golden, size_t number, struct folder *folder, const char *leave_out)
{
    snprintf(folder->path, sizeof folder->path, "/tmp/tsleuth-model-XXXXXX");
    assert_non_null(mkdtemp(folder->path));
    snprintf(folder->config, sizeof folder->config, "%s/config.json", folder->path);
    snprintf(folder->weights, sizeof folder->weights, "%s/model.safetensors", folder->path);
    write_config(golden, number, folder->config);
    write_weights(golden, number, folder->weights, leave_out);
}

static inline void remove_model(const struct folder *folder)
{
    unlink(folder->config);
    unlink(folder->weights);
    rmdir(folder->path);
}

static inline enum ts_status plan_only(const char *path, const int64_t *tokens, size_t count, struct ts_buffer *trouble,
                                       struct ts_error *error)
{
    struct ts_model model;
    struct ts_model_options options = {.cache = true};
    struct ts_watcher watcher = {0};
    struct ts_pool *pool = ts_pool_new(1);
    enum ts_status status = ts_model_open(path, &model, error);
    if (status == TS_OK) {
        status = ts_model_plan(&model, &options, tokens, count, pool, &watcher, trouble, error);
        ts_model_release(&model);
    }
    ts_pool_free(pool);
    return status;
}

static inline void replace_in_file(const char *path, const char *from, const char *to)
{
    struct ts_source *source;
    struct ts_error error;
    char *text, *at;
    FILE *file;
    assert_int_equal(ts_source_open(path, &source, &error), TS_OK);
    text = strndup((const char *)source->data, (size_t)source->size);
    ts_source_release(source);
    at = strstr(text, from);
    assert_non_null(at);
    file = fopen(path, "w");
    fprintf(file, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    assert_int_equal(fclose(file), 0);
    free(text);
}

#endif
