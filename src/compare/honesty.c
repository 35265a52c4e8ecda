#include "compare/honesty.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/json.h"

struct doubts {
    const struct ts_comparison *comparison;
    struct ts_arena *arena;
    const char **texts;
    size_t count;
};

static void add(struct doubts *doubts, const char *text)
{
    if (text && doubts->count < TS_MOST_DOUBTS)
        doubts->texts[doubts->count++] = text;
}

/* {"program":"engine","tokens":[1,2]}: what stands behind the key, as it is written. */
static const char *token_ids_of_run(const char *run, struct ts_arena *arena)
{
    struct ts_json json;
    struct ts_error ignored;
    ts_json_init(&json, run, strlen(run));
    if (ts_json_next(&json, &ignored) != TS_OK || json.kind != TS_JSON_OBJECT)
        return NULL;
    while (ts_json_next(&json, &ignored) == TS_OK && json.kind == TS_JSON_KEY) {
        bool wanted = ts_json_equals(&json, "tokens") || ts_json_equals(&json, "token_ids");
        const char *from;
        if (ts_json_next(&json, &ignored) != TS_OK)
            return NULL;
        from = json.text + json.offset;
        wanted = wanted && json.kind == TS_JSON_ARRAY;
        if (ts_json_skip_value(&json, &ignored) != TS_OK)
            return NULL;
        if (wanted)
            return ts_arena_copy(arena, from, (size_t)(json.text + json.at - from));
    }
    return NULL;
}

const char *ts_capture_tokens(const struct ts_bundle *bundle, struct ts_arena *arena)
{
    static const char *const keys[] = {"token_ids", "tsleuth.tokens", "input_ids", "tokens"};
    const char *value;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if ((value = ts_bundle_meta_value(bundle, keys[i])))
            return value;
    value = ts_bundle_meta_value(bundle, "tsleuth.run");
    return value ? token_ids_of_run(value, arena) : NULL;
}

/* The same numbers, however they are written: "[1, 2]", "1,2", "[[1, 2]]". */
static bool same_numbers(const char *a, const char *b)
{
    for (;;) {
        size_t length;
        a += strcspn(a, "0123456789");
        b += strcspn(b, "0123456789");
        length = strspn(a, "0123456789");
        if (length != strspn(b, "0123456789") || memcmp(a, b, length) != 0)
            return false;
        if (!length)
            return true;
        a += length;
        b += length;
    }
}

static void compare_tokens(struct doubts *doubts)
{
    const char *a = ts_capture_tokens(doubts->comparison->a, doubts->arena);
    const char *b = ts_capture_tokens(doubts->comparison->b, doubts->arena);
    if (a && b && !same_numbers(a, b))
        add(doubts,
            "the two runs had other token ids, by their own metadata: everything will differ; run both on the same "
            "input");
}

static bool is_constant(const struct ts_side *side, uint64_t compared)
{
    return compared >= 8 && side->min == side->max;
}

/* Constant in the candidate and not in the reference: a buffer that nobody wrote, or wrote once. */
static void look_for_unwritten(struct doubts *doubts)
{
    const struct ts_pairing *pairing = &doubts->comparison->pairing;
    size_t found = 0, first = 0;
    for (size_t i = 0; i < pairing->count; i++) {
        const struct ts_delta *delta = &doubts->comparison->deltas[i];
        if (!pairing->pairs[i].problem && is_constant(&delta->b, delta->compared) &&
            !is_constant(&delta->a, delta->compared)) {
            first = found++ ? first : i;
        }
    }
    if (found)
        add(doubts,
            ts_arena_printf(
                doubts->arena,
                "%zu tensor%s of the candidate hold%s one value everywhere (\"%s\": %.6g) and the reference's %s not: "
                "buffers that were never written, or captured before they were",
                found, found == 1 ? "" : "s", found == 1 ? "s" : "", pairing->pairs[first].name,
                doubts->comparison->deltas[first].b.min, found == 1 ? "does" : "do"));
}

struct copy {
    uint64_t hash_a, hash_b;
    size_t pair;
};

static int by_candidate(const void *a, const void *b)
{
    const struct copy *left = a, *right = b;
    return left->hash_b < right->hash_b ? -1 : left->hash_b > right->hash_b;
}

/* A hash of a sample of the values: equal tensors have equal ones. */
static bool sketch(const struct ts_view *view, uint64_t *hash)
{
    float values[256];
    struct ts_error ignored;
    XXH64_hash_t all = view->count;
    for (int run = 0; run < 4; run++) {
        uint64_t first = view->count / 4 * (uint64_t)run;
        size_t now = view->count - first < 256 ? (size_t)(view->count - first) : 256;
        if (ts_view_read_f32(view, first, now, values, &ignored) != TS_OK)
            return false;
        all = XXH3_64bits_withSeed(values, now * sizeof *values, all);
    }
    *hash = all;
    return true;
}

/* Off by more than rounding makes of equal things: one of two that were overwritten is. */
static bool is_off(const struct doubts *doubts, size_t pair)
{
    return !(doubts->comparison->deltas[pair].rel_l2 < 0.02);
}

/* Two captures of the candidate that are one and the same where the reference's are two: an alias that was captured
 * after it had been overwritten. */
static void look_for_copies(struct doubts *doubts)
{
    const struct ts_pairing *pairing = &doubts->comparison->pairing;
    struct copy *copies = calloc(pairing->count + 1, sizeof *copies);
    size_t count = 0, found = 0, one = 0, other = 0;
    for (size_t i = 0; copies && i < pairing->count && pairing->count <= 20000; i++) {
        const struct ts_pair *pair = &pairing->pairs[i];
        struct copy copy = {.pair = i};
        if (pair->problem || pair->a.count < 32 || ts_type_info(pair->a.tensor->type)->components != 1 ||
            ts_type_info(pair->b.tensor->type)->components != 1 ||
            is_constant(&doubts->comparison->deltas[i].b, doubts->comparison->deltas[i].compared) ||
            !sketch(&pair->a, &copy.hash_a) || !sketch(&pair->b, &copy.hash_b))
            continue;
        copies[count++] = copy;
    }
    if (count > 1)
        qsort(copies, count, sizeof *copies, by_candidate);
    for (size_t i = 1; i < count; i++)
        if (copies[i].hash_b == copies[i - 1].hash_b && copies[i].hash_a != copies[i - 1].hash_a &&
            (is_off(doubts, copies[i].pair) || is_off(doubts, copies[i - 1].pair))) {
            if (!found++) {
                one = copies[i - 1].pair;
                other = copies[i].pair;
            }
        }
    if (found)
        add(doubts, ts_arena_printf(
                        doubts->arena,
                        "\"%s\" and \"%s\" are the same values in the candidate and not in the reference%s: a buffer "
                        "captured after it was overwritten looks like this; copy before the next operation",
                        pairing->pairs[one].name, pairing->pairs[other].name, found > 1 ? ", and so are others" : ""));
    free(copies);
}

/* sliding_window of a config.json, 0 when there is none. */
static uint64_t window_of(const struct ts_bundle *bundle)
{
    struct ts_json json;
    struct ts_error ignored;
    uint64_t window = 0;
    if (!bundle->config)
        return 0;
    ts_json_init(&json, bundle->config->data, (size_t)bundle->config->size);
    while (ts_json_next(&json, &ignored) == TS_OK && json.kind != TS_JSON_END)
        if (json.kind == TS_JSON_KEY && ts_json_equals(&json, "sliding_window") &&
            ts_json_next(&json, &ignored) == TS_OK && json.kind == TS_JSON_NUMBER &&
            ts_json_uint64(&json, &window, &ignored) == TS_OK)
            return window;
    return 0;
}

static void look_at_coverage(struct doubts *doubts)
{
    uint64_t tokens = doubts->comparison->judgement.tokens, window = window_of(doubts->comparison->a);
    window = window ? window : window_of(doubts->comparison->b);
    if (window && tokens && tokens <= window)
        add(doubts, ts_arena_printf(doubts->arena,
                                    "%" PRIu64 " tokens are not more than the sliding window of %" PRIu64
                                    ": an error in the window cannot show; use a longer prompt",
                                    tokens, window));
}

size_t ts_honesty_doubts(const struct ts_comparison *comparison, struct ts_arena *arena,
                         const char *texts[TS_MOST_DOUBTS])
{
    struct doubts doubts = {.comparison = comparison, .arena = arena, .texts = texts};
    compare_tokens(&doubts);
    look_for_unwritten(&doubts);
    look_for_copies(&doubts);
    look_at_coverage(&doubts);
    return doubts.count;
}
