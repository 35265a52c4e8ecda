/* Owns what a list of chosen experts looks like, and how many of them a token has on either side. */
#include "compare/choice.h"

#include <string.h>

#include "tensor/layer.h"

#define LIST_ROOM (1 << 12) /* bytes for the shape of one */

static bool has_word(const char *name, const char *const *words, size_t count)
{
    for (size_t k = 0; k < count; k++)
        if (strstr(name, words[k]))
            return true;
    return false;
}

/* Positions are whole numbers from 0 on as well, and belong into their order. */
bool ts_is_of_experts(const char *name)
{
    static const char *const words[] = {"router", "expert", "moe", "sort", "permut", "dispatch"};
    uint64_t layer;
    return has_word(name, words, sizeof words / sizeof *words) && ts_layer_of(name, &layer);
}

/* Masks, positions and places in a cache have a few numbers for each token too, and no noise changes them. They are
 * told by their names, or by numbers that nobody ranked: negative ones (but -1 for nothing), booleans, ones and zeros
 * where a token has more than two, and one for each token that always rises. Masks of experts, or of groups of them, do
 * change with the choice. */
bool ts_may_be_chosen(const struct ts_pair *pair, size_t count, uint64_t tokens)
{
    static const char *const choosing[] = {"router", "expert", "moe", "gate", "group", "top", "choice", "select"};
    static const char *const given[] = {"mask", "position",    "input_ids", "token_type", "segment",
                                        "slot", "block_table", "seq_len",   "seqlen",     "length"};
    int64_t a[TS_MOST_LISTED], b[TS_MOST_LISTED];
    bool bits = count > 2, rising = count == 1;
    struct ts_error ignored;
    int64_t last = INT64_MIN;
    if (ts_is_of_experts(pair->name) || has_word(pair->name, choosing, sizeof choosing / sizeof *choosing))
        return true;
    if (has_word(pair->name, given, sizeof given / sizeof *given) || pair->a.tensor->type == TS_BOOL ||
        pair->b.tensor->type == TS_BOOL)
        return false;
    for (uint64_t token = 0; token < tokens; token++) {
        if (ts_view_read_i64(&pair->a, token * count, count, a, &ignored) != TS_OK ||
            ts_view_read_i64(&pair->b, token * count, count, b, &ignored) != TS_OK)
            break;
        for (size_t k = 0; k < count; k++) {
            if (a[k] < -1 || b[k] < -1)
                return false;
            bits = bits && (a[k] == 0 || a[k] == 1);
        }
        rising = rising && a[0] > last;
        last = a[0];
    }
    return !bits && !rising;
}

/* Columns of a list that hold one number for all tokens; SIZE_MAX when it cannot be read. */
static size_t count_shared(const struct ts_tensor *tensor, uint64_t tokens, size_t columns)
{
    double first[TS_MOST_LISTED], row[TS_MOST_LISTED];
    bool varies[TS_MOST_LISTED] = {false};
    struct ts_arena arena;
    struct ts_error ignored;
    struct ts_view whole;
    size_t shared = 0;
    bool good;
    ts_arena_init(&arena, LIST_ROOM);
    good = ts_view_of(tensor, &arena, &whole) && whole.count == tokens * columns &&
           ts_view_read_f64(&whole, 0, columns, first, &ignored) == TS_OK;
    for (uint64_t token = 1; token < tokens && good; token++) {
        good = ts_view_read_f64(&whole, token * columns, columns, row, &ignored) == TS_OK;
        for (size_t k = 0; k < columns && good; k++)
            varies[k] = varies[k] || row[k] != first[k];
    }
    for (size_t k = 0; k < columns; k++)
        shared += !varies[k];
    ts_arena_release(&arena);
    return good ? shared : SIZE_MAX;
}

bool ts_counts_otherwise(const struct ts_pair *pair, uint64_t tokens, bool weights, uint64_t *of_a, uint64_t *of_b)
{
    const struct ts_tensor *a = pair->a.tensor, *b = pair->b.tensor;
    uint64_t fewer, more;
    if (pair->problem || tokens <= 1 || !a->rank || a->rank != b->rank)
        return false;
    *of_a = a->shape[a->rank - 1];
    *of_b = b->shape[b->rank - 1];
    fewer = *of_a < *of_b ? *of_a : *of_b;
    more = *of_a < *of_b ? *of_b : *of_a;
    if (!fewer || fewer == more || more > TS_MOST_LISTED || pair->a.count != tokens * fewer)
        return false;
    if (!weights &&
        !(ts_type_is_integer(a->type) && ts_type_is_integer(b->type) && ts_may_be_chosen(pair, (size_t)fewer, tokens)))
        return false;
    return count_shared(*of_a > *of_b ? a : b, tokens, (size_t)more) < more - fewer;
}
