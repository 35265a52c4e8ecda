/* Owns the state of a forward pass: scopes, memory of activations, points, rounding, settings. */
#include "model/run.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/progress.h"
#include "model/round.h"
#include "tensor/layer.h"

#define SETTING_LIMIT 16777216.0 /* 2^24: more than any size of any model, and products of two fit in 64 bits */

struct ts_block {
    struct ts_block *next;
    size_t count;
    float values[];
};

/* Points by name, so that a second call of a module is "#2": open addressing over copies of the names. */
struct ts_seen {
    size_t slots, used;
    struct slot {
        char *name;
        unsigned times;
    } * list;
};

void ts_run_fail(struct ts_run *run, enum ts_status status, const char *format, ...)
{
    va_list arguments;
    char text[sizeof run->error.message];
    if (!ts_ok(run))
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    ts_fail(&run->error, status, TS_NO_OFFSET, "%s", text);
}

size_t ts_enter(struct ts_run *run, const char *format, ...)
{
    size_t mark = run->scope_length, room = sizeof run->scope - mark;
    va_list arguments;
    int added;
    if (mark && room > 1) {
        run->scope[mark] = '.';
        room--;
    }
    va_start(arguments, format);
    added = vsnprintf(run->scope + mark + (mark ? 1 : 0), room, format, arguments);
    va_end(arguments);
    if (added < 0 || (size_t)added >= room) {
        run->scope[mark] = '\0';
        ts_run_fail(run, TS_ERR_LIMIT, "names of modules are nested too deep");
        return mark;
    }
    run->scope_length = mark + (mark ? 1 : 0) + (size_t)added;
    return mark;
}

void ts_leave(struct ts_run *run, size_t mark)
{
    run->scope_length = mark;
    run->scope[mark] = '\0';
}

const char *ts_full_name(const struct ts_run *run, const char *name, char text[768])
{
    snprintf(text, 768, "%s%s%s", run->scope, run->scope_length && name[0] ? "." : "", name);
    return text;
}

static struct ts_block *new_block(struct ts_run *run, size_t count)
{
    struct ts_block *block;
    uint64_t bytes;
    if (!ts_real(run))
        return NULL;
    if (!ts_mul(count, sizeof(float), &bytes) || !ts_add(bytes, sizeof *block, &bytes) || bytes > SIZE_MAX ||
        !(block = malloc((size_t)bytes))) {
        ts_fail_memory(&run->error);
        return NULL;
    }
    block->count = count;
    block->next = run->blocks;
    run->blocks = block;
    return block;
}

struct ts_act ts_new(struct ts_run *run, size_t rows, size_t width)
{
    struct ts_act x = {.rows = rows, .width = width};
    struct ts_block *block;
    uint64_t count;
    if (ts_ok(run) && !ts_mul(rows, width, &count))
        ts_run_fail(run, TS_ERR_LIMIT, "an activation of %zu by %zu numbers", rows, width);
    block = ts_real(run) ? new_block(run, rows * width) : NULL;
    x.data = block ? block->values : NULL;
    return x;
}

struct ts_act ts_copy(struct ts_run *run, struct ts_act x)
{
    struct ts_act copy = ts_new(run, x.rows, x.width);
    copy.heads = x.heads;
    copy.layout = x.layout;
    if (ts_real(run))
        memcpy(copy.data, x.data, x.rows * x.width * sizeof *x.data);
    return copy;
}

float *ts_scratch(struct ts_run *run, size_t count)
{
    struct ts_block *block = new_block(run, count);
    return block ? block->values : NULL;
}

struct ts_block *ts_mark(const struct ts_run *run)
{
    return run->blocks;
}

void ts_forget(struct ts_run *run, struct ts_block *mark, const struct ts_act *keep)
{
    struct ts_block *block = run->blocks, *kept = NULL;
    while (block && block != mark) {
        struct ts_block *next = block->next;
        if (keep && block->values == keep->data)
            kept = block;
        else
            free(block);
        block = next;
    }
    run->blocks = mark;
    if (kept) {
        kept->next = mark;
        run->blocks = kept;
    }
}

void ts_hold(struct ts_run *run, struct ts_act *held, struct ts_act x)
{
    ts_let_go(held);
    *held = x;
    held->data = NULL;
    if (!ts_real(run))
        return;
    held->data = malloc((x.rows * x.width + 1) * sizeof *x.data);
    if (held->data)
        memcpy(held->data, x.data, x.rows * x.width * sizeof *x.data);
    else
        ts_fail_memory(&run->error);
}

void ts_let_go(struct ts_act *held)
{
    free(held->data);
    held->data = NULL;
}

static uint64_t hash_of(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    while (*name)
        hash = (hash ^ (unsigned char)*name++) * 0x100000001b3u;
    return hash ^ hash >> 29;
}

static bool grow_seen(struct ts_seen *seen)
{
    struct ts_seen larger = {.slots = seen->slots ? 2 * seen->slots : 1024, .used = seen->used};
    larger.list = calloc(larger.slots, sizeof *larger.list);
    if (!larger.list)
        return false;
    for (size_t i = 0; i < seen->slots; i++)
        if (seen->list[i].name) {
            size_t at = hash_of(seen->list[i].name) & (larger.slots - 1);
            while (larger.list[at].name)
                at = (at + 1) & (larger.slots - 1);
            larger.list[at] = seen->list[i];
        }
    free(seen->list);
    *seen = larger;
    return true;
}

/* How often the name has come by, this time included; 0 without memory. */
static unsigned count_name(struct ts_run *run, const char *name)
{
    struct ts_seen *seen = run->seen;
    size_t at;
    if (!seen && !(run->seen = seen = calloc(1, sizeof *seen)))
        return 0;
    if (2 * (seen->used + 1) > seen->slots && !grow_seen(seen))
        return 0;
    at = hash_of(name) & (seen->slots - 1);
    while (seen->list[at].name && strcmp(seen->list[at].name, name) != 0)
        at = (at + 1) & (seen->slots - 1);
    if (!seen->list[at].name) {
        if (!(seen->list[at].name = strdup(name)))
            return 0;
        seen->used++;
    }
    return ++seen->list[at].times;
}

static void forget_seen(struct ts_run *run)
{
    if (!run->seen)
        return;
    for (size_t i = 0; i < run->seen->slots; i++)
        free(run->seen->list[i].name);
    free(run->seen->list);
    free(run->seen);
    run->seen = NULL;
}

void ts_run_release(struct ts_run *run)
{
    ts_forget(run, NULL, NULL);
    forget_seen(run);
}

bool ts_wanted(const struct ts_run *run, const char *name)
{
    char text[768];
    if (!run->watcher->wanted)
        return true;
    return run->watcher->wanted(run->watcher->context, ts_full_name(run, name, text));
}

void ts_round(const struct ts_run *run, float *values, size_t count)
{
    if (run->wide)
        return;
    if (run->compute == TS_COMPUTE_BF16)
        for (size_t i = 0; i < count; i++)
            values[i] = ts_round_bf16(values[i]);
    else if (run->compute == TS_COMPUTE_F16)
        for (size_t i = 0; i < count; i++)
            values[i] = ts_round_f16(values[i]);
}

/* Fills in the point's name and number of calls; false after an error. */
static bool begin_point(struct ts_run *run, const char *name, struct ts_point *point, char text[800])
{
    unsigned times;
    uint64_t layer;
    char full[768];
    if (!ts_ok(run))
        return false;
    if (atomic_load_explicit(&ts_cancelled, memory_order_relaxed)) {
        ts_run_fail(run, TS_ERR_CANCELLED, "interrupted");
        return false;
    }
    /* a plan looks beyond the layers that will be run, for the sake of their weights; no point comes from there */
    ts_full_name(run, name, full);
    if (run->plan && ts_layer_of(full, &layer) && layer >= run->layer_limit)
        run->muted = true;
    if (run->muted)
        return false;
    times = count_name(run, full);
    if (!times) {
        ts_fail_memory(&run->error);
        return false;
    }
    snprintf(text, 800, times > 1 ? "%s#%u" : "%s", full, times);
    point->name = text;
    return true;
}

static void take(struct ts_run *run, const struct ts_point *point)
{
    if (ts_ok(run) && run->watcher->take)
        run->error.status = run->watcher->take(run->watcher->context, point, &run->error);
}

void ts_capture_values(struct ts_run *run, const char *name, float *values, unsigned rank, const uint64_t *shape)
{
    struct ts_point point = {.rank = rank, .values = run->plan ? NULL : values, .wide = run->wide};
    bool found = false;
    char text[800];
    if (!begin_point(run, name, &point, text))
        return;
    memcpy(point.shape, shape, rank * sizeof *shape);
    if (run->plan || !run->watcher->replace) {
        take(run, &point);
        return;
    }
    if (run->watcher->local)
        take(run, &point);
    if (ts_ok(run))
        run->error.status = run->watcher->replace(run->watcher->context, &point, values, &found, &run->error);
    if (!run->watcher->local)
        take(run, &point);
}

/* Other numbers in place of these, where the watcher has any. */
static void replace_integers(struct ts_run *run, const struct ts_point *point, int64_t *values, size_t limit)
{
    size_t count = 1;
    bool found = false;
    float *given;
    for (unsigned i = 0; i < point->rank; i++)
        count *= (size_t)point->shape[i];
    given = malloc((count + 1) * sizeof *given);
    if (!given)
        ts_fail_memory(&run->error);
    else
        run->error.status = run->watcher->replace(run->watcher->context, point, given, &found, &run->error);
    for (size_t i = 0; found && i < count && ts_ok(run); i++)
        if (!(given[i] >= 0 && given[i] < (float)limit && given[i] == floorf(given[i]))) {
            found = false;
            if (!run->watcher->local)
                ts_run_fail(run, TS_ERR_USAGE, "%s is given as %g at %zu, and a whole number below %zu is expected",
                            point->name, (double)given[i], i, limit);
        }
    for (size_t i = 0; found && i < count && ts_ok(run); i++)
        values[i] = (int64_t)given[i];
    free(given);
}

void ts_capture_integers(struct ts_run *run, const char *name, int64_t *values, unsigned rank, const uint64_t *shape,
                         size_t limit)
{
    struct ts_point point = {.rank = rank, .integer = true, .integers = run->plan ? NULL : values};
    bool replace = !run->plan && run->watcher->replace;
    char text[800];
    if (!begin_point(run, name, &point, text))
        return;
    memcpy(point.shape, shape, rank * sizeof *shape);
    if (!replace || run->watcher->local)
        take(run, &point);
    if (replace && ts_ok(run))
        replace_integers(run, &point, values, limit);
    if (replace && !run->watcher->local)
        take(run, &point);
}

/* [tokens, heads, size] to [heads, tokens, size], or back. */
static void swap_axes(const float *from, float *to, size_t first, size_t second, size_t size)
{
    for (size_t i = 0; i < first; i++)
        for (size_t j = 0; j < second; j++)
            memcpy(to + (j * first + i) * size, from + (i * second + j) * size, size * sizeof *from);
}

void ts_capture(struct ts_run *run, const char *name, struct ts_act x)
{
    size_t heads = x.heads ? x.heads : 1, size = x.width / heads;
    uint64_t shape[4] = {1, x.rows, x.width, 0};
    if (!ts_ok(run))
        return;
    if (x.layout == TS_BATCHED) {
        ts_capture_values(run, name, x.data, 3, shape);
    } else if (x.layout == TS_FLAT) {
        ts_capture_values(run, name, x.data, 2, shape + 1);
    } else if (x.layout == TS_TOKENS_HEADS) {
        ts_capture_values(run, name, x.data, 4, (uint64_t[]){1, x.rows, heads, size});
    } else if (run->plan) {
        ts_capture_values(run, name, NULL, 4, (uint64_t[]){1, heads, x.rows, size});
    } else {
        float *turned = malloc((x.rows * x.width + 1) * sizeof *turned);
        if (!turned) {
            ts_fail_memory(&run->error);
            return;
        }
        swap_axes(x.data, turned, x.rows, heads, size);
        ts_capture_values(run, name, turned, 4, (uint64_t[]){1, heads, x.rows, size});
        if (run->watcher->replace)
            swap_axes(turned, x.data, heads, x.rows, size);
        free(turned);
    }
}

/* The number below a key; false, with an error that says what is there instead, when it is none. *value is left as it
 * is where the config says nothing. */
static bool read_number(struct ts_run *run, const char *key, double *value)
{
    const char *text = ts_model_config_text(run->config, key);
    char *end;
    if (!text) {
        if (ts_model_config_has_parts(run->config, key)) {
            ts_run_fail(run, TS_ERR_FORMAT, "the config has a list or an object as %s, and a number is expected", key);
            return false;
        }
        return true;
    }
    *value = strtod(text, &end);
    if (text[0] && !*end)
        return true;
    ts_run_fail(run, TS_ERR_FORMAT, "the config says %s is \"%.60s\", and a number is expected", key, text);
    return false;
}

size_t ts_count(struct ts_run *run, const char *key, size_t otherwise)
{
    double value = (double)otherwise;
    if (!read_number(run, key, &value))
        return otherwise ? otherwise : 1;
    if (!(value >= 0) || value > SETTING_LIMIT || value != floor(value)) {
        ts_run_fail(run, TS_ERR_FORMAT, "the config says %s is %s, which is not a size this program believes", key,
                    ts_model_config_text(run->config, key));
        return otherwise ? otherwise : 1;
    }
    return (size_t)value;
}

size_t ts_need(struct ts_run *run, const char *key)
{
    size_t value = ts_count(run, key, 0);
    if (value)
        return value;
    if (ts_model_config_text(run->config, key))
        ts_run_fail(run, TS_ERR_FORMAT, "the config says %s is 0", key);
    else
        ts_run_fail(run, TS_ERR_FORMAT, "the config has no %s", key);
    return 1;
}

double ts_number(struct ts_run *run, const char *key, double otherwise)
{
    double value = otherwise;
    if (!read_number(run, key, &value))
        return otherwise;
    if (!isfinite(value) && isfinite(otherwise)) {
        ts_run_fail(run, TS_ERR_FORMAT, "the config says %s is %s, which is not finite", key,
                    ts_model_config_text(run->config, key));
        return otherwise;
    }
    return value;
}

double ts_positive(struct ts_run *run, const char *key, double otherwise)
{
    double value = ts_number(run, key, otherwise);
    if (value > 0)
        return value;
    ts_run_fail(run, TS_ERR_FORMAT, "the config says %s is %g, and a number above zero is expected", key, value);
    return 1;
}

bool ts_flag(struct ts_run *run, const char *key, bool otherwise)
{
    const char *text = ts_model_config_text(run->config, key);
    if (!text && ts_model_config_has_parts(run->config, key))
        ts_run_fail(run, TS_ERR_FORMAT, "the config has a list or an object as %s, and true or false is expected", key);
    if (!text)
        return otherwise;
    if (strcmp(text, "true") == 0 || strcmp(text, "1") == 0)
        return true;
    if (strcmp(text, "false") != 0 && strcmp(text, "0") != 0)
        ts_run_fail(run, TS_ERR_FORMAT, "the config says %s is \"%.60s\", and true or false is expected", key, text);
    return false;
}

size_t ts_layers(struct ts_run *run, size_t of_model)
{
    if (run->layer_limit >= of_model)
        return of_model;
    /* a plan looks at every layer, so that strict loading knows them all */
    run->cut = !run->plan;
    return run->plan ? of_model : run->layer_limit;
}
