/* The golden models of tests/golden/model/expected.json, for the tests that run them.
 *
 * The file was made by tests/model/make_expected.py with the real library: small models whose weights follow a formula
 * from their names, so that they can be made anew here, and for each module's output a few values and the length of the
 * whole. */
#ifndef MODEL_GOLDEN_H
#define MODEL_GOLDEN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"
#include "io/source.h"
#include "model/config.h"
#include "model/model.h"

#define SAMPLES 12

static inline uint64_t hash_of(const char *name, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * 0x100000001b3u;
    return hash;
}

static inline uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The formula of make_expected.py. */
static inline float weight_of(const char *name, uint64_t index, const uint64_t *shape, unsigned rank, float center)
{
    float u = (float)(mix(hash_of(name, strlen(name)) + index) >> 40) * 0x1p-23f - 1;
    if (rank == 1) {
        bool norm = strstr(name, "norm") || strstr(name, "ln_");
        return u * 0.25f + (norm && ts_ends_with(name, "weight") ? center : 0);
    }
    if (strstr(name, "embed") || strstr(name, "wte") || strstr(name, "wpe"))
        return u;
    return u * (float)(1.7320508 / sqrt((double)shape[rank - 1]));
}

struct golden {
    struct ts_source *source;
    struct ts_model_config all; /* the whole file, flat */
};

static inline void setup(struct golden *golden)
{
    struct ts_error error;
    assert_int_equal(ts_source_open("tests/golden/model/expected.json", &golden->source, &error), TS_OK);
    assert_int_equal(ts_model_config_parse(golden->source->data, (size_t)golden->source->size, &golden->all, &error),
                     TS_OK);
}

static inline void teardown(struct golden *golden)
{
    ts_model_config_release(&golden->all);
    ts_source_release(golden->source);
}

static inline const char *of_case(const struct golden *golden, size_t number, const char *key)
{
    char name[600];
    snprintf(name, sizeof name, "cases.%zu.%s", number, key);
    return ts_model_config_text(&golden->all, name);
}

static inline size_t read_tokens(const struct golden *golden, size_t number, int64_t *tokens, size_t room)
{
    size_t count = 0;
    char key[64];
    const char *text;
    for (;; count++) {
        snprintf(key, sizeof key, "tokens.%zu", count);
        if (!(text = of_case(golden, number, key)))
            return count;
        assert_true(count < room);
        tokens[count] = strtoll(text, NULL, 10);
    }
}

/* What is expected of a point, under the name that hooks in transformers give it. */
struct checking {
    const struct golden *golden;
    size_t number, checked, close, values;
    double worst;
    char worst_name[300];
    const char *title;
    bool low;
};

static inline const char *expected_of(const struct checking *checking, const char *point, const char *what,
                                      size_t index)
{
    char key[512];
    if (strcmp(what, "norm") == 0)
        snprintf(key, sizeof key, "points.%s.norm", point);
    else
        snprintf(key, sizeof key, "points.%s.%s.%zu", point, what, index);
    return of_case(checking->golden, checking->number, key);
}

/* Modules that return several things are "name.0", "name.1" there. */
static inline bool find_expected(const struct checking *checking, const char *name, char *found, size_t room)
{
    static const char *const endings[] = {"", ".0"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(found, room, "%s%s", name, endings[i]);
        if (expected_of(checking, found, "norm", 0))
            return true;
    }
    if (ts_ends_with(name, ".attn_probs")) {
        snprintf(found, room, "%.*s.1", (int)(strlen(name) - strlen(".attn_probs")), name);
        return expected_of(checking, found, "norm", 0) != NULL;
    }
    return false;
}

static inline enum ts_status check_point(void *context, const struct ts_point *point, struct ts_error *error)
{
    struct checking *checking = context;
    uint64_t count = 1;
    double squares = 0, norm, rms, worst = 0;
    char name[300];
    const char *hash;
    bool unordered;
    (void)error;
    if ((!point->values && !point->integers) || !find_expected(checking, point->name, name, sizeof name))
        return TS_OK;
    for (unsigned i = 0; i < point->rank; i++)
        count *= point->shape[i];
    for (uint64_t i = 0; i < count; i++) {
        double value = point->integers ? (double)point->integers[i] : (double)point->values[i];
        squares += value * value;
    }
    norm = strtod(expected_of(checking, name, "norm", 0), NULL);
    rms = norm / sqrt((double)count) + 1e-30;
    hash = strchr(name, '#');
    /* that router's choices, and everywhere the rows of one expert, come in no order there; their length as a whole
     * tells enough */
    unordered = strstr(name, "experts.act_fn") ||
                (strstr(checking->title, "deepseek") && (ts_ends_with(name, "gate.1") || ts_ends_with(name, "gate.2")));
    for (size_t i = 0; i < SAMPLES && i < count && !unordered; i++) {
        uint64_t at =
            count <= SAMPLES ? i : mix(hash_of(name, hash ? (size_t)(hash - name) : strlen(name)) + i) % count;
        double value = point->integers ? (double)point->integers[at] : (double)point->values[at];
        double off = fabs(value - strtod(expected_of(checking, name, "values", i), NULL)) / rms;
        worst = off > worst ? off : worst;
        checking->values++;
        checking->close += off < 1e-5;
    }
    worst = fmax(worst, fabs(sqrt(squares) - norm) / (norm + 1e-30));
    if (worst > checking->worst) {
        checking->worst = worst;
        snprintf(checking->worst_name, sizeof checking->worst_name, "%s", name);
    }
    checking->checked++;
    return TS_OK;
}

/* Of the points of a case, how many are there to be found. */
static inline size_t expected_points(const struct golden *golden, size_t number)
{
    char prefix[64];
    size_t count = 0;
    snprintf(prefix, sizeof prefix, "cases.%zu.points.", number);
    for (size_t i = 0; i < golden->all.count; i++)
        if (golden->all.values[i] && ts_starts_with(golden->all.keys[i], prefix) &&
            ts_ends_with(golden->all.keys[i], ".norm") && !strstr(golden->all.keys[i], ".mlp.1."))
            count++;
    return count;
}

static inline size_t case_titled(const struct golden *golden, const char *title)
{
    const char *text;
    for (size_t i = 0; (text = of_case(golden, i, "title")); i++)
        if (strcmp(text, title) == 0)
            return i;
    fail_msg("no case %s", title);
    return 0;
}

/* Everything a run gives, in one sum of bits. */
static inline enum ts_status add_bits(void *context, const struct ts_point *point, struct ts_error *error)
{
    uint64_t *sum = context, count = point->values ? 1 : 0;
    (void)error;
    for (unsigned i = 0; i < point->rank && count; i++)
        count *= point->shape[i];
    for (uint64_t i = 0; i < count; i++)
        *sum = mix(*sum ^ ts_float_bits(point->values[i]));
    return TS_OK;
}

#endif
