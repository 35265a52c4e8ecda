/* Owns names that only count: onnx::MatMul_123, var_12, t0, output_3. Equal ones mean one thing as long as both
 * programs count the same things. Where values say that they do not, names say nothing, and content does. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "pair/pairing.h"
#include "pair/words.h"

/* Elements that are looked at of two tensors of one name, in runs of 16, and the error up to which they agree. */
#define LOOK_RUNS 8
#define AGREES    0.05
/* Tensors that must be found under other names before names are given up; where no shapes fit, one will do. */
#define ENOUGH 3
/* Longer words than these count nothing. */
#define LETTERS 24

/* What exporters, compilers and people count with. Words of operations stand for any result of one. */
static const char counters[] =
    "onnx var t tensor tensors output outputs out node value val v x y tmp temp buf buffer arr array op const constant "
    "data result results unnamed variable fill matmul add mul sub div pow sqrt gemm conv relu gelu sigmoid tanh "
    "softmax "
    "reshape transpose concat slice gather split unsqueeze squeeze cast identity expand where reduce mean einsum clone "
    "view permute mm bmm addmm linear";

/* Nothing but words to count with, and a number at the end. */
static bool only_counts(const char *name)
{
    bool number = false;
    while (*name) {
        char word[LETTERS];
        size_t length = 0;
        if (!isalnum((unsigned char)*name)) {
            name++;
            continue;
        }
        number = isdigit((unsigned char)*name);
        for (; isalnum((unsigned char)*name) && !isdigit((unsigned char)*name) == !number; name++) {
            if (length + 1 == sizeof word)
                return false;
            word[length++] = (char)tolower((unsigned char)*name);
        }
        word[length] = '\0';
        if (!number && !ts_word_in(word, counters))
            return false;
    }
    return number;
}

struct counted {
    size_t agreeing, disagreeing, unfit; /* pairs of one name; unfit: of those that do not agree, other sizes */
};

/* Looks at pairs of one name. Leaves in `open` what counts and does not agree. */
static enum ts_status look_at_names(struct ts_pairer *pairer, bool *open_a, bool *open_b, struct counted *counted,
                                    struct ts_error *error)
{
    struct ts_table table;
    enum ts_status status = TS_OK;
    if (!ts_table_init(&table, pairer->b.count))
        return ts_fail_memory(error);
    for (size_t i = 0; i < pairer->b.count; i++)
        if (open_b[i])
            ts_table_put(&table, pairer->b.names[i], i, NULL);
    for (size_t i = 0; i < pairer->a.count && status == TS_OK; i++) {
        const size_t other = open_a[i] ? ts_table_get(&table, pairer->a.names[i]) : SIZE_MAX;
        const struct ts_tensor *left = pairer->a.bundle->tensors[i], *right;
        struct ts_agreement agreement = {1, 0};
        struct ts_arena arena;
        struct ts_view one, its;
        if (other == SIZE_MAX)
            continue;
        right = pairer->b.bundle->tensors[other];
        ts_arena_init(&arena, (size_t)1 << 20);
        if (left->count != right->count) {
            counted->unfit++;
        } else if (ts_tensor_same_shape(left, right)) {
            if (!ts_view_of(left, &arena, &one) || !ts_view_of(right, &arena, &its))
                status = ts_fail_memory(error);
            else
                status = ts_agree(&one, &its, LOOK_RUNS, &agreement, error);
        }
        ts_arena_release(&arena);
        if (status == TS_OK && agreement.error < AGREES) {
            counted->agreeing++;
            open_a[i] = open_b[other] = false;
        } else {
            counted->disagreeing++;
        }
    }
    ts_table_release(&table);
    return status;
}

static bool list_counted(const struct ts_side *side, struct ts_arena *arena, bool **open, size_t *count)
{
    *open = ts_arena_array(arena, side->count, sizeof **open);
    *count = 0;
    for (size_t i = 0; *open && i < side->count; i++) {
        (*open)[i] = !side->taken[i] && only_counts(side->names[i]);
        *count += (*open)[i];
    }
    return *open != NULL;
}

/* What content says of the open ones, where that is enough to give up their names. */
static enum ts_status pair_by_content(struct ts_pairer *pairer, bool *open_a, bool *open_b,
                                      const struct counted *counted, struct ts_error *error)
{
    size_t(*pairs)[2], count = 0, moved = 0;
    TS_TRY(ts_content_find(pairer, open_a, open_b, &pairs, &count, error));
    for (size_t i = 0; i < count; i++)
        moved += strcmp(pairer->a.names[pairs[i][0]], pairer->b.names[pairs[i][1]]) != 0;
    if (!moved || (moved < ENOUGH && counted->unfit < counted->disagreeing) ||
        (moved <= counted->agreeing && 2 * moved < counted->disagreeing))
        return TS_OK;
    for (size_t i = 0; i < count; i++)
        TS_TRY(ts_layout_proved(pairer, pairs[i][0], pairs[i][1], "content", error));
    pairer->a.counted = open_a;
    pairer->b.counted = open_b;
    return ts_pairer_note(pairer, error,
                          "names such as %s only count, and not the same things on both sides: %zu tensors stand under "
                          "other numbers",
                          pairer->a.names[pairs[0][0]], moved);
}

enum ts_status ts_match_counted(struct ts_pairer *pairer, struct ts_error *error)
{
    struct ts_arena_mark mark;
    enum ts_status status;
    struct counted counted = {0};
    size_t count_a, count_b;
    bool *open_a, *open_b;
    if (!list_counted(&pairer->a, &pairer->scratch, &open_a, &count_a) ||
        !list_counted(&pairer->b, &pairer->scratch, &open_b, &count_b))
        return ts_fail_memory(error);
    if (!count_a || !count_b)
        return TS_OK;
    TS_TRY(look_at_names(pairer, open_a, open_b, &counted, error));
    if (!counted.disagreeing)
        return TS_OK;
    mark = ts_arena_mark(&pairer->scratch);
    status = pair_by_content(pairer, open_a, open_b, &counted, error);
    ts_arena_rewind(&pairer->scratch, mark);
    return status;
}
