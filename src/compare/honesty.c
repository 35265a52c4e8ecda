#include "compare/honesty.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/json.h"
#include "compare/scene_place.h"
#include "pair/misread.h"

#define LONGEST_NAME 160
/* Tensors whose bytes are read as another type. */
#define MOST_MISREAD 256
/* Tensors that lack the same tokens, so that it is the run that does. */
#define IN_FRONT 3

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

/* A name for a sentence: of one that fills a page, the beginning and the end. */
static const char *named(struct doubts *doubts, size_t pair)
{
    const char *name = doubts->comparison->pairing.pairs[pair].name, *tail;
    const size_t length = strlen(name);
    size_t head = 80;
    if (length <= LONGEST_NAME)
        return name;
    while (head > 0 && ((unsigned char)name[head] & 0xc0) == 0x80) /* no letter is cut in two */
        head--;
    for (tail = name + length - 40; ((unsigned char)*tail & 0xc0) == 0x80; tail++)
        ;
    tail = ts_arena_printf(doubts->arena, "%.*s…%s", (int)head, name, tail);
    return tail ? tail : "";
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

/* "input_ids", "model.input_ids", "0_token_ids": a capture of the tokens themselves. Some write them as floats;
 * embed_tokens are none. */
static bool holds_tokens(const struct ts_pair *pair, bool integers)
{
    static const char *const names[] = {"input_ids", "token_ids", "tokens", "input_tokens"};
    const size_t length = strlen(pair->name);
    for (size_t i = 0; i < (integers ? sizeof names / sizeof *names : 2); i++) {
        const size_t tail = strlen(names[i]);
        if (length >= tail && strcmp(pair->name + length - tail, names[i]) == 0 &&
            (length == tail || strchr("._/:-", pair->name[length - tail - 1])))
            return true;
    }
    return false;
}

static bool captured_other_tokens(const struct ts_comparison *comparison)
{
    for (size_t i = 0; i < comparison->pairing.count; i++)
        if (holds_tokens(&comparison->pairing.pairs[i], comparison->deltas[i].exact) &&
            !comparison->pairing.pairs[i].problem && comparison->deltas[i].unequal)
            return true;
    return false;
}

static void compare_tokens(struct doubts *doubts)
{
    const char *a = ts_capture_tokens(doubts->comparison->a, doubts->arena);
    const char *b = ts_capture_tokens(doubts->comparison->b, doubts->arena);
    if (a && b && !same_numbers(a, b))
        add(doubts,
            "the two runs had different token ids, according to their metadata: everything will differ; run both on "
            "the same input");
    else if (captured_other_tokens(doubts->comparison))
        add(doubts,
            "the two runs had different token ids, according to their captures: everything will differ; run both on "
            "the same input");
}

/* How many tokens stand in front of those that a view takes, to the end of their axis, which is as long as the
 * sequence; 0: it takes others, or all, or is cut along another axis, as shards are. */
static uint64_t left_in_front(const struct ts_view *view, uint64_t sequence)
{
    const struct ts_tensor *tensor = view->tensor;
    uint64_t behind = 1, start = 0;
    unsigned axis = view->rank, cut = 0, as_long = 0;
    bool tokens = false;
    if (view->join != TS_JOIN_NONE || !view->count || view->count >= tensor->count)
        return 0;
    for (unsigned i = tensor->rank; i-- > 0; behind *= tensor->shape[i]) {
        if (tensor->shape[i] == 1)
            continue;
        while (axis > 0 && view->shape[axis - 1] == 1)
            axis--;
        if (!axis--)
            return 0;
        if (view->strides[axis] != (int64_t)behind || view->shape[axis] > tensor->shape[i])
            return 0;
        as_long += view->shape[axis] == sequence;
        if (view->shape[axis] == tensor->shape[i])
            continue;
        cut++;
        tokens = view->shape[axis] == sequence;
        start = tensor->shape[i] - view->shape[axis];
        if (view->offset != start * behind)
            return 0;
    }
    return cut == 1 && tokens && as_long == 1 ? start : 0;
}

/* A BOS that one program adds: all that attends to it, and every position, differs for that reason alone. */
static void look_for_tokens_in_front(struct doubts *doubts)
{
    const struct ts_comparison *comparison = doubts->comparison;
    uint64_t most = 0, sequence = 0;
    size_t alike = 0, compared = 0, side = 0;
    char ids[64] = "";
    if (comparison->judgement.first == SIZE_MAX)
        return;
    if (ts_place_batch(comparison->pairing.pairs, comparison->pairing.count, &sequence) == 1)
        sequence = comparison->judgement.tokens;
    for (size_t i = 0; i < comparison->pairing.count; i++) {
        const struct ts_pair *pair = &comparison->pairing.pairs[i];
        uint64_t start[2];
        int64_t id;
        struct ts_error ignored;
        if (pair->problem || pair->zeros || pair->guess)
            continue;
        compared++;
        start[0] = left_in_front(&pair->a, sequence);
        start[1] = left_in_front(&pair->b, sequence);
        if (!start[0] == !start[1])
            continue;
        if (!alike) {
            side = start[1] > 0;
            most = start[side];
        }
        if (start[side] != most)
            continue;
        alike++;
        if (holds_tokens(pair, comparison->deltas[i].exact) && comparison->deltas[i].exact && most == 1 &&
            ts_tensor_read_i64(side ? pair->b.tensor : pair->a.tensor, 0, 1, &id, &ignored) == TS_OK)
            snprintf(ids, sizeof ids, " (id %" PRId64 ")", id);
    }
    if (alike >= IN_FRONT && 2 * alike > compared)
        add(doubts, ts_arena_printf(doubts->arena,
                                    "the %s has %" PRIu64 " more token%s%s in front%s: unless the %s keeps %s in a "
                                    "cache, positions and attention differ for that alone; run both on the same tokens",
                                    side ? "candidate" : "reference", most, most == 1 ? "" : "s", ids,
                                    most == 1 ? ", as a BOS is that one side adds" : "",
                                    side ? "reference" : "candidate", most == 1 ? "it" : "them"));
}

static const struct ts_side *side_of(const struct ts_delta *delta, bool candidate)
{
    return candidate ? &delta->b : &delta->a;
}

static uint64_t non_finite(const struct ts_side *side)
{
    return side->nan + side->positive_inf + side->negative_inf;
}

/* Of integers beyond 2^53 the least and the largest, which are doubles here, may be neighbours. A mask holds two
 * values, of which only the one that hides nothing is compared: what is left out must be so because of the other side
 * alone. */
static bool is_constant(const struct ts_delta *delta, bool candidate)
{
    const struct ts_side *side = side_of(delta, candidate), *other = side_of(delta, !candidate);
    return delta->compared >= 8 && side->min == side->max && !(delta->exact && fabs(side->min) >= 0x1p53) &&
           !non_finite(side) && !delta->masked && delta->count - delta->compared <= non_finite(other);
}

/* Constant on one side and not on the other: a buffer that nobody wrote, or wrote once. A reference can lie as well. */
static void look_for_unwritten(struct doubts *doubts, bool candidate)
{
    const struct ts_pairing *pairing = &doubts->comparison->pairing;
    size_t found = 0, first = 0;
    for (size_t i = 0; i < pairing->count; i++) {
        const struct ts_delta *delta = &doubts->comparison->deltas[i];
        if (!pairing->pairs[i].problem && is_constant(delta, candidate) && !is_constant(delta, !candidate)) {
            first = found++ ? first : i;
        }
    }
    if (found)
        add(doubts,
            ts_arena_printf(doubts->arena,
                            "%zu tensor%s of the %s hold%s one value everywhere (\"%s\": %.6g), while the %s's %s not: "
                            "buffers never written, or captured too early",
                            found, found == 1 ? "" : "s", candidate ? "candidate" : "reference", found == 1 ? "s" : "",
                            named(doubts, first), side_of(&doubts->comparison->deltas[first], candidate)->min,
                            candidate ? "reference" : "candidate", found == 1 ? "does" : "do"));
}

/* Runs that were fed nothing, or captured before anything was computed, agree in everything. A few constants are usual:
 * masks, positions, states that begin at zero. */
static void look_for_nothing(struct doubts *doubts)
{
    const struct ts_pairing *pairing = &doubts->comparison->pairing;
    size_t constant = 0, all = 0;
    for (size_t i = 0; i < pairing->count; i++) {
        const struct ts_delta *delta = &doubts->comparison->deltas[i];
        if (pairing->pairs[i].problem || delta->compared < 8)
            continue;
        all++;
        constant += is_constant(delta, false) && is_constant(delta, true);
    }
    if (constant > 1 && constant * 2 > all)
        add(doubts, ts_arena_printf(doubts->arena,
                                    "%zu of %zu tensors hold one value everywhere on both sides, and show nothing: was "
                                    "anything computed before they were captured?",
                                    constant, all));
}

/* NaN at the same places is no difference, and no agreement either: anything may have made it. */
static void look_for_nan(struct doubts *doubts)
{
    const struct ts_pairing *pairing = &doubts->comparison->pairing;
    size_t found = 0, first = 0;
    for (size_t i = 0; i < pairing->count; i++)
        if (!pairing->pairs[i].problem && doubts->comparison->deltas[i].nan_both)
            first = found++ ? first : i;
    if (found)
        add(doubts,
            ts_arena_printf(
                doubts->arena,
                "%zu of %zu tensor%s hold%s NaN at the same places on both sides, the first \"%s\" (%" PRIu64
                " of %" PRIu64 " elements), where nothing can be compared: look for what makes NaN in "
                "the reference",
                found, pairing->count, pairing->count == 1 ? "" : "s", found == 1 ? "s" : "", named(doubts, first),
                doubts->comparison->deltas[first].nan_both, doubts->comparison->deltas[first].count));
}

struct copy {
    uint64_t hash, other; /* of the side that is looked at, and of the other */
    size_t pair;
};

static int by_hash(const void *a, const void *b)
{
    const struct copy *left = a, *right = b;
    return left->hash < right->hash ? -1 : left->hash > right->hash;
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

/* Whether two captures of one side that are equal look like one overwritten. A reference may well do nothing between
 * two points, where the candidate's bug does something: there the later one is off. Overwritten is the earlier. */
static bool is_overwritten(const struct doubts *doubts, size_t one, size_t other, bool candidate)
{
    const size_t earlier = one < other ? one : other, later = one < other ? other : one;
    return candidate ? is_off(doubts, one) || is_off(doubts, other) : is_off(doubts, earlier) && !is_off(doubts, later);
}

/* Two captures of one side that are one and the same where the other's are two: an alias that was captured after it had
 * been overwritten. */
static void look_for_copies(struct doubts *doubts, bool candidate)
{
    const struct ts_pairing *pairing = &doubts->comparison->pairing;
    struct copy *copies = calloc(pairing->count + 1, sizeof *copies);
    size_t count = 0, found = 0, one = 0, other = 0;
    for (size_t i = 0; copies && i < pairing->count && pairing->count <= 20000; i++) {
        const struct ts_pair *pair = &pairing->pairs[i];
        struct copy copy = {.pair = i};
        if (pair->problem || pair->a.count < 32 || ts_type_info(pair->a.tensor->type)->components != 1 ||
            ts_type_info(pair->b.tensor->type)->components != 1 ||
            is_constant(&doubts->comparison->deltas[i], candidate) ||
            !sketch(candidate ? &pair->b : &pair->a, &copy.hash) ||
            !sketch(candidate ? &pair->a : &pair->b, &copy.other))
            continue;
        copies[count++] = copy;
    }
    if (count > 1)
        qsort(copies, count, sizeof *copies, by_hash);
    for (size_t i = 1; i < count; i++)
        if (copies[i].hash == copies[i - 1].hash && copies[i].other != copies[i - 1].other &&
            is_overwritten(doubts, copies[i].pair, copies[i - 1].pair, candidate)) {
            if (!found++) {
                one = copies[i - 1].pair;
                other = copies[i].pair;
            }
        }
    if (found)
        add(doubts, ts_arena_printf(doubts->arena,
                                    "\"%s\" and \"%s\" have the same values in the %s but not in the %s%s: a buffer "
                                    "captured after it was overwritten looks like this; copy it before the next "
                                    "operation",
                                    named(doubts, one), named(doubts, other), candidate ? "candidate" : "reference",
                                    candidate ? "reference" : "candidate", found > 1 ? ", and so do others" : ""));
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
                                    "%" PRIu64 " token%s in the sliding window of %" PRIu64
                                    ": an error in the window cannot show; use a longer prompt",
                                    tokens, tokens == 1 ? " fits" : "s fit", window));
}

/* A file compared with itself agrees, and proves nothing. */
static void look_for_one_input(struct doubts *doubts)
{
    struct stat a, b;
    if (stat(doubts->comparison->a->path, &a) == 0 && stat(doubts->comparison->b->path, &b) == 0 &&
        a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        add(doubts, S_ISDIR(a.st_mode) ? "both inputs are the same folder" : "both inputs are the same file");
}

/* Files that call a weight by one name in one shape are read by one program; where its values agree in another order
 * only, that program reads one of them wrongly. */
static void look_for_other_orders(struct doubts *doubts)
{
    const struct ts_pairing *pairing = &doubts->comparison->pairing;
    size_t found = 0, one = 0;
    for (size_t i = 0; i < pairing->count; i++) {
        const struct ts_pair *pair = &pairing->pairs[i];
        const struct ts_tensor *a = pair->a.tensor, *b = pair->b.tensor;
        if (pair->problem || !pair->recipe[0] || pair->guess || !a || !b || strcmp(pair->name, pair->name_b) != 0 ||
            pair->a.count != a->count || pair->b.count != b->count || /* stacks and shards have parts */
            !ts_tensor_same_shape(a, b) || doubts->comparison->judgement.verdicts[i].judged == TS_JUDGED_DIFFERS)
            continue;
        one = found++ ? one : i;
    }
    if (found)
        add(doubts,
            ts_arena_printf(doubts->arena,
                            "\"%s\"%s has the same name and shape on both sides but agrees only in a different order "
                            "(%s): a program that reads both files reads one of them wrongly",
                            named(doubts, one), found > 1 ? " (and others)" : "", pairing->pairs[one].recipe));
}

/* Numbers of one type that were written as, or are read as, those of another width: a half for a float, a double for a
 * float. What is left of them resembles nothing. */
static void look_for_other_types(struct doubts *doubts, bool candidate)
{
    const struct ts_pairing *pairing = &doubts->comparison->pairing;
    enum ts_type type = TS_F32, first_type = TS_F32;
    size_t found = 0, first = 0, looked_at = 0;
    for (size_t i = 0; i < pairing->count && looked_at < MOST_MISREAD; i++) {
        const struct ts_pair *pair = &pairing->pairs[i];
        const struct ts_delta *delta = &doubts->comparison->deltas[i];
        const struct ts_tensor *own = candidate ? pair->b.tensor : pair->a.tensor;
        const struct ts_tensor *other = candidate ? pair->a.tensor : pair->b.tensor;
        if (!own || !other || own->type == TS_CODED ||
            (!pair->problem && doubts->comparison->judgement.verdicts[i].judged <= TS_JUDGED_NOISE) ||
            (!pair->problem && own->count == other->count && !delta->non_finite_mismatch && delta->cosine > 0.5))
            continue;
        looked_at++;
        if (!ts_misread(own, other, &type))
            continue;
        if (!found++) {
            first = i;
            first_type = type;
        }
    }
    if (found)
        add(doubts,
            ts_arena_printf(
                doubts->arena,
                "the bytes of \"%s\"%s of the %s, read as %s instead of %s, are the values of the %s: it was written "
                "or declared with the wrong type",
                named(doubts, first), found > 1 ? " (and others)" : "", candidate ? "candidate" : "reference",
                ts_type_info(first_type)->name,
                ts_tensor_type_name(candidate ? pairing->pairs[first].b.tensor : pairing->pairs[first].a.tensor),
                candidate ? "reference" : "candidate"));
}

size_t ts_honesty_doubts(const struct ts_comparison *comparison, struct ts_arena *arena,
                         const char *texts[TS_MOST_DOUBTS])
{
    struct doubts doubts = {.comparison = comparison, .arena = arena, .texts = texts, .count = comparison->doubt_count};
    look_for_one_input(&doubts);
    compare_tokens(&doubts);
    look_for_nan(&doubts);
    look_for_other_types(&doubts, true);
    look_for_other_types(&doubts, false);
    look_for_unwritten(&doubts, true);
    look_for_copies(&doubts, true);
    if (comparison->judgement.weights)
        look_for_other_orders(&doubts);
    if (!comparison->judgement.weights) { /* weights of ones, and of equal layers, are where training begins */
        look_for_unwritten(&doubts, false);
        look_for_copies(&doubts, false);
        look_for_nothing(&doubts);
        look_for_tokens_in_front(&doubts);
    }
    look_at_coverage(&doubts);
    return doubts.count;
}
