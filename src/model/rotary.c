/* Owns rotary positions: the frequencies of every scaling, and the turn itself.
 *
 * Frequencies are computed in fp32 step by step as transformers does, since at long positions their rounding is
 * visible. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/attention.h"

struct settings {
    struct ts_run *run;
    const char *key;
};

/* A setting below the key, or in the older spelling: rope_scaling.NAME, then NAME. */
static const char *text_of(const struct settings *settings, const char *name)
{
    char key[256];
    const char *text;
    snprintf(key, sizeof key, "%s.%s", settings->key, name);
    if ((text = ts_model_config_text(settings->run->config, key)))
        return text;
    snprintf(key, sizeof key, "rope_scaling.%s", name);
    if ((text = ts_model_config_text(settings->run->config, key)))
        return text;
    return ts_model_config_text(settings->run->config, name);
}

static const char *key_of(const struct settings *settings, const char *name, char key[256])
{
    snprintf(key, 256, "%s.%s", settings->key, name);
    if (!ts_model_config_text(settings->run->config, key)) {
        snprintf(key, 256, "rope_scaling.%s", name);
        if (!ts_model_config_text(settings->run->config, key))
            snprintf(key, 256, "%s", name);
    }
    return key;
}

static double number_of(const struct settings *settings, const char *name, double otherwise)
{
    char key[256];
    return ts_number(settings->run, key_of(settings, name, key), otherwise);
}

static double positive_of(const struct settings *settings, const char *name, double otherwise)
{
    char key[256];
    return ts_positive(settings->run, key_of(settings, name, key), otherwise);
}

/* One over the plain frequency. Factors go on this where the library puts them there: the quotient rounds otherwise. */
static float power(double base, size_t i, size_t size)
{
    return powf((float)base, (float)(2 * i) / (float)size);
}

static void plain_frequencies(float *frequencies, size_t size, double base)
{
    for (size_t i = 0; i < size / 2; i++)
        frequencies[i] = 1.0f / power(base, i, size);
}

/* All of them are slowed down. */
static void linear_frequencies(const struct settings *settings, float *frequencies, size_t size)
{
    double factor = positive_of(settings, "factor", 1);
    for (size_t i = 0; i < size / 2; i++)
        frequencies[i] /= (float)factor;
}

/* The base grows with the length once it passes what the model was trained on. */
static void dynamic_frequencies(const struct settings *settings, float *frequencies, size_t size, double base)
{
    double factor = positive_of(settings, "factor", 1),
           trained = positive_of(settings, "max_position_embeddings", 2048);
    double length = (double)settings->run->token_count;
    trained = positive_of(settings, "original_max_position_embeddings", trained);
    if (length < trained)
        length = trained;
    if (size > 2)
        base *= pow(factor * length / trained - (factor - 1), (double)size / (double)(size - 2));
    plain_frequencies(frequencies, size, base);
}

/* Long waves are slowed down by the factor, short ones kept, those between blended. */
static void llama3_frequencies(const struct settings *settings, float *frequencies, size_t size)
{
    float factor = (float)positive_of(settings, "factor", 8), low = (float)positive_of(settings, "low_freq_factor", 1),
          high = (float)positive_of(settings, "high_freq_factor", 4),
          trained = (float)positive_of(settings, "original_max_position_embeddings", 8192);
    for (size_t i = 0; i < size / 2; i++) {
        float wave = 2 * (float)M_PI / frequencies[i], smooth = (trained / wave - low) / (high - low);
        if (wave > trained / low)
            frequencies[i] /= factor;
        else if (wave >= trained / high)
            frequencies[i] = (1 - smooth) * frequencies[i] / factor + smooth * frequencies[i];
    }
}

/* The index at which a wave turns so often over the trained length. */
static double yarn_index(double turns, size_t size, double base, double trained)
{
    return (double)size * log(trained / (turns * 2 * M_PI)) / (2 * log(base));
}

static double yarn_scale(double factor, double weight)
{
    return factor <= 1 ? 1 : 0.1 * weight * log(factor) + 1;
}

static double yarn_frequencies(const struct settings *settings, float *frequencies, size_t size, double base)
{
    double trained = positive_of(settings, "original_max_position_embeddings",
                                 positive_of(settings, "max_position_embeddings", 4096));
    double factor = positive_of(settings, "factor", 1), fast = positive_of(settings, "beta_fast", 32),
           slow = positive_of(settings, "beta_slow", 1), scale = number_of(settings, "attention_factor", 0),
           all = number_of(settings, "mscale_all_dim", 0), some = number_of(settings, "mscale", 0);
    double first = yarn_index(fast, size, base, trained), last = yarn_index(slow, size, base, trained);
    const char *truncate = text_of(settings, "truncate");
    if (scale == 0)
        scale = all > 0 && some > 0 ? yarn_scale(factor, some) / yarn_scale(factor, all) : yarn_scale(factor, 1);
    if (!truncate || strcmp(truncate, "false") != 0) {
        first = floor(first);
        last = ceil(last);
    }
    first = first > 0 ? first : 0;
    last = last < (double)(size - 1) ? last : (double)(size - 1);
    if (first == last)
        last += 0.001;
    for (size_t i = 0; i < size / 2; i++) {
        float ramp = ((float)i - (float)first) / (float)(last - first), kept,
              slowed = 1.0f / ((float)factor * power(base, i, size));
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        kept = 1 - ramp;
        frequencies[i] = slowed * (1 - kept) + frequencies[i] * kept;
    }
    return scale;
}

/* A factor for each frequency, one list for short inputs and one for those beyond the trained length. */
static double longrope_frequencies(const struct settings *settings, float *frequencies, size_t size, double base)
{
    double trained = positive_of(settings, "original_max_position_embeddings",
                                 positive_of(settings, "max_position_embeddings", 4096));
    double longest = positive_of(settings, "max_position_embeddings", trained),
           factor = positive_of(settings, "factor", longest / trained),
           scale = number_of(settings, "attention_factor", 0);
    const char *list = (double)settings->run->token_count > trained ? "long_factor" : "short_factor";
    char name[64];
    if (trained < longest)
        factor = longest / trained;
    if (scale == 0)
        scale = factor <= 1 ? 1 : sqrt(1 + log(factor) / log(trained));
    for (size_t i = 0; i < size / 2; i++) {
        double by;
        snprintf(name, sizeof name, "%s.%zu", list, i);
        by = number_of(settings, name, 0);
        if (!(by > 0)) {
            ts_run_fail(settings->run, TS_ERR_FORMAT, "the config has no %s for frequency %zu of %zu", list, i,
                        size / 2);
            return 1;
        }
        frequencies[i] = 1.0f / ((float)by * power(base, i, size));
    }
    return scale;
}

/* The scaling as a file may keep it: a divisor for each frequency. */
static void given_frequencies(const struct settings *settings, float *frequencies, size_t size)
{
    char name[64];
    for (size_t i = 0; i < size / 2; i++) {
        double by;
        snprintf(name, sizeof name, "factors.%zu", i);
        by = number_of(settings, name, 0);
        if (!(by > 0)) {
            ts_run_fail(settings->run, TS_ERR_FORMAT, "the config has no rotary factor for frequency %zu of %zu", i,
                        size / 2);
            return;
        }
        frequencies[i] /= (float)by;
    }
}

static void fill(struct ts_run *run, struct ts_rotary *rotary, const float *frequencies, double scale)
{
    size_t half = rotary->size / 2;
    for (size_t p = 0; p < rotary->positions; p++)
        for (size_t i = 0; i < half; i++) {
            float angle = frequencies[i] * (float)p;
            rotary->cosine[p * half + i] = cosf(angle) * (float)scale;
            rotary->sine[p * half + i] = sinf(angle) * (float)scale;
        }
    ts_round(run, rotary->cosine, rotary->positions * half);
    ts_round(run, rotary->sine, rotary->positions * half);
}

static bool begin(struct ts_run *run, struct ts_rotary *rotary, size_t size)
{
    if (ts_ok(run) && (size < 2 || size % 2))
        ts_run_fail(run, TS_ERR_FORMAT, "rotary positions over %zu numbers of a head: an even number is needed", size);
    *rotary = (struct ts_rotary){.positions = run->token_count, .size = size};
    rotary->cosine = ts_scratch(run, rotary->positions * (size / 2));
    rotary->sine = ts_scratch(run, rotary->positions * (size / 2));
    return ts_real(run);
}

struct ts_rotary ts_rotary_plain(struct ts_run *run, size_t size, double base)
{
    struct ts_rotary rotary;
    if (begin(run, &rotary, size)) {
        float *frequencies = ts_scratch(run, size / 2);
        if (frequencies) {
            plain_frequencies(frequencies, size, base);
            fill(run, &rotary, frequencies, 1);
        }
    }
    return rotary;
}

/* [1, positions, size]: both halves of a head see the same angles; or one half. What is given in its place goes into
 * the table; of two halves the first counts. */
static void capture(struct ts_run *run, const char *name, float *table, const struct ts_rotary *rotary, bool one)
{
    size_t half = rotary->size / 2, width = one ? half : rotary->size;
    struct ts_block *mark = ts_mark(run);
    struct ts_act shown = ts_new(run, rotary->positions, width);
    for (size_t p = 0; p < rotary->positions && ts_real(run); p++)
        for (size_t at = 0; at < width; at += half)
            memcpy(shown.data + p * width + at, table + p * half, half * sizeof(float));
    ts_capture(run, name, shown);
    for (size_t p = 0; p < rotary->positions && ts_real(run) && run->watcher->replace; p++)
        memcpy(table + p * half, shown.data + p * width, half * sizeof(float));
    ts_forget(run, mark, NULL);
}

/* Settings that are no object would leave everything at its default. */
static void check_settings(struct ts_run *run, const char *key)
{
    char first[256];
    const char *text = ts_model_config_text(run->config, key);
    snprintf(first, sizeof first, "%s.0", key);
    if (text || ts_model_config_text(run->config, first))
        ts_run_fail(run, TS_ERR_FORMAT, "the config says %s is %.60s, and an object is expected", key,
                    text ? text : "a list");
}

/* By the type of scaling; returns the factor on cosines and sines. */
static double scale_frequencies(const struct settings *settings, float *frequencies, size_t size, double base)
{
    struct ts_run *run = settings->run;
    const char *type = text_of(settings, "rope_type");
    if (!type)
        type = text_of(settings, "type");
    if (!type || strcmp(type, "default") == 0)
        return 1;
    if (strcmp(type, "yarn") == 0)
        return yarn_frequencies(settings, frequencies, size, base);
    if (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0) /* its first name */
        return longrope_frequencies(settings, frequencies, size, base);
    if (strcmp(type, "linear") == 0)
        linear_frequencies(settings, frequencies, size);
    else if (strcmp(type, "dynamic") == 0)
        dynamic_frequencies(settings, frequencies, size, base);
    else if (strcmp(type, "llama3") == 0)
        llama3_frequencies(settings, frequencies, size);
    else if (strcmp(type, "factors") == 0)
        given_frequencies(settings, frequencies, size);
    else
        ts_run_fail(run, TS_ERR_UNSUPPORTED,
                    "rotary scaling \"%.60s\" is not supported; known are default, linear, dynamic, llama3, yarn, "
                    "longrope",
                    type);
    return 1;
}

struct ts_rotary ts_rotary_make(struct ts_run *run, const char *key, size_t size, double base, bool half)
{
    struct settings settings = {run, key};
    struct ts_rotary rotary;
    double scale = 1;
    float *frequencies = NULL;
    check_settings(run, key);
    check_settings(run, "rope_scaling");
    base = positive_of(&settings, "rope_theta", base);
    begin(run, &rotary, size);
    if (ts_ok(run)) { /* in a plan, too: settings may be wrong */
        frequencies = malloc((size / 2 + 1) * sizeof *frequencies);
        if (frequencies) {
            plain_frequencies(frequencies, size, base);
            scale = scale_frequencies(&settings, frequencies, size, base);
        } else {
            ts_fail_memory(&run->error);
        }
    }
    for (size_t i = 0; i < size / 2 && ts_ok(run); i++)
        if (!(frequencies[i] >= 0 && isfinite(frequencies[i]) && isfinite(scale)))
            ts_run_fail(run, TS_ERR_FORMAT, "the config's rotary settings give frequency %zu of %zu as %g, times %g", i,
                        size / 2, (double)frequencies[i], scale);
    if (ts_real(run))
        fill(run, &rotary, frequencies, scale);
    free(frequencies);
    capture(run, "rotary_emb.0", rotary.cosine, &rotary, half);
    capture(run, "rotary_emb.1", rotary.sine, &rotary, half);
    return rotary;
}

struct ts_act ts_rotate(struct ts_run *run, const char *name, struct ts_act x, const struct ts_rotary *rotary,
                        bool interleaved)
{
    struct ts_act y = ts_copy(run, x);
    size_t heads = x.heads ? x.heads : 1, size = x.width / heads, half = rotary->size / 2;
    if (ts_ok(run) && (rotary->size > size || rotary->positions < x.rows))
        ts_run_fail(run, TS_ERR_FORMAT, "rotary positions over %zu numbers of a head of %zu", rotary->size, size);
    for (size_t t = 0; t < x.rows && ts_real(run); t++)
        for (size_t h = 0; h < heads; h++) {
            const float *from = x.data + t * x.width + h * size, *cosine = rotary->cosine + t * half,
                        *sine = rotary->sine + t * half;
            float *to = y.data + t * x.width + h * size;
            for (size_t i = 0; i < half; i++) {
                float first = from[interleaved ? 2 * i : i], second = from[interleaved ? 2 * i + 1 : i + half];
                float parts[4] = {first * cosine[i], second * sine[i], second * cosine[i], first * sine[i]};
                ts_round(run, parts, 4);
                to[i] = parts[0] - parts[1];
                to[i + half] = parts[2] + parts[3];
            }
        }
    if (ts_real(run))
        ts_round(run, y.data, x.rows * x.width);
    if (name[0])
        ts_capture(run, name, y);
    return y;
}
