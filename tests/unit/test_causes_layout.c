/* The right values in another order, in runs and in checkpoints. */
#include "test_causes.h"

#define EACH for (size_t i = 0; i < count; i++)
#define WIDE hidden(side->size)

static const double *copy(const double *values, size_t count)
{
    double *old = weights(count, 0, 1);
    memcpy(old, values, count * sizeof *old);
    return old;
}

/* [outer, first, second, inner] stored as [outer, second, first, inner]. */
static void swap_axes(double *values, size_t count, size_t first, size_t second, size_t inner)
{
    const double *old = copy(values, count);
    EACH
    {
        size_t k = i % inner, a = i / inner % second, b = i / inner / second % first, o = i / inner / second / first;
        values[((o * second + a) * first + b) * inner + k] = old[i];
    }
}

static void heads_and_size(struct side *side, double *values, size_t count)
{
    swap_axes(values, count, side->size->heads, side->size->head, 1);
}

static void heads_and_tokens(struct side *side, double *values, size_t count)
{
    swap_axes(values, count, side->size->tokens, side->size->heads, side->size->head);
}

static void halves_to_pairs(struct side *side, double *values, size_t count)
{
    swap_axes(values, count, 2, side->size->head / 2, 1);
}

static void pairs_to_halves(struct side *side, double *values, size_t count)
{
    swap_axes(values, count, side->size->head / 2, 2, 1);
}

static void rows_to_pairs(struct side *side, double *values, size_t count)
{
    swap_axes(values, count, 2, side->size->head / 2, WIDE);
}

static void transposed(struct side *side, double *values, size_t count)
{
    swap_axes(values, count, count / WIDE, WIDE, 1);
}

static void swapped_halves(struct side *side, double *values, size_t count)
{
    const double *old = copy(values, count);
    EACH values[i] = old[i / WIDE * WIDE + (i + WIDE / 2) % WIDE];
}

static void swapped_half_rows(struct side *side, double *values, size_t count)
{
    const double *old = copy(values, count);
    (void)side;
    EACH values[i] = old[(i + count / 2) % count];
}

static void order_of_heads(struct side *side, double *values, size_t count)
{
    static const size_t order[] = {2, 0, 3, 1};
    const double *old = copy(values, count);
    size_t size = side->size->head;
    EACH
    {
        size_t head = i % WIDE / size;
        values[i] = old[i / WIDE * WIDE + (head < 4 ? order[head] : head) * size + i % size];
    }
}

static void reversed_rows(struct side *side, double *values, size_t count)
{
    const double *old = copy(values, count);
    EACH values[i] = old[(count / WIDE - 1 - i / WIDE) * WIDE + i % WIDE];
}

static void by_head(struct side *side, double *values, size_t count) /* q, k, v of each head together */
{
    swap_axes(values, count, 3, side->size->heads, side->size->head * WIDE);
}

static void by_number(struct side *side, double *values, size_t count)
{
    swap_axes(values, count, 3, WIDE, WIDE);
}

static void values_before_keys(struct side *side, double *values, size_t count)
{
    const double *old = copy(values, count);
    EACH
    {
        size_t part = i / (count / 3);
        values[i] = old[(part == 0 ? 0 : 3 - part) * (count / 3) + i % (count / 3)];
    }
    (void)side;
}

static void swapped_quarters(struct side *side, double *values, size_t count)
{
    (void)side;
    swap_axes(values, count, 2, 2, count / 4);
}

static void moved_tokens(struct side *side, double *values, size_t count)
{
    const double *old = copy(values, count);
    for (size_t i = WIDE; i < count; i++)
        values[i] = old[i - WIDE];
}

static void moved_elements(struct side *side, double *values, size_t count)
{
    const double *old = copy(values, count);
    (void)side;
    for (size_t i = 3; i < count; i++)
        values[i] = old[i - 3];
}

static void strided_read(struct side *side, double *values, size_t count)
{
    const double *old = copy(values, count);
    side->told[0] = (double)(WIDE - 4);
    EACH values[i] = old[i / WIDE * (WIDE - 4) + i % WIDE];
}

static void strided_write(struct side *side, double *values, size_t count)
{
    const double *old = copy(values, count);
    size_t pitch = WIDE + 8;
    side->told[0] = (double)pitch;
    memset(values, 0, count * sizeof *values);
    EACH if (i / WIDE * pitch + i % WIDE < count) values[i / WIDE * pitch + i % WIDE] = old[i];
}

#define Q               .at = "q_proj", .made = make_two
#define WEIGHT_OF(part) .at = "model.layers.0." part ".weight", .made = make_checkpoint

static const struct row rows[] = {
    {"permuted", "heads and head size", Q, .plant = heads_and_size, .undo = true,
     .words = {"are laid out as [{head},{heads}] instead of [{heads},{head}]", "heads and head_dim swapped"},
     .check = "reshape({tokens}, {head}, {heads}).transpose(1, 2)", .near = "unrelated rotation"},
    {"permuted", "heads and tokens", Q, .plant = heads_and_tokens, .undo = true,
     .words = {"axes are swapped, stored as [{heads},{tokens},{head}]"},
     .check = "reshape({heads}, {tokens}, {head}).transpose(0, 1)", .near = "shifted stale unrelated"},
    {"permuted", "interleaved", Q, .plant = halves_to_pairs, .undo = true,
     .words = {"channels in each group of {head} are interleaved"}, .near = "rotation"},
    {"permuted", "as halves", Q, .plant = pairs_to_halves, .undo = true,
     .words = {"channels in each group of {head} are in halves"}, .near = "rotation"},
    {"permuted", "halves swapped", Q, .plant = swapped_halves, .undo = true, .words = {"halves"},
     .near = "shifted swapped-with"},
    {"permuted", "order of heads", Q, .plant = order_of_heads, .undo = true, .words = {"2, 0, 3, 1"}, .near = "heads"},
    {"permuted", "tokens reversed", Q, .plant = reversed_rows, .undo = true, .words = {"tokens are in reverse order"},
     .near = "shifted rows"},
    {"permuted", "strided read", Q, .plant = strided_read, .words = {"rows are {0} elements apart instead of {hidden}"},
     .near = "shifted unrelated stale"},
    {"permuted", "strided write", Q, .plant = strided_write,
     .words = {"rows were written {0} elements apart but are read {hidden} apart"}, .near = "zeros shifted unwritten"},
    {"shifted", "tokens", Q, .plant = moved_tokens, .words = {"tokens are shifted by 1"},
     .near = "permuted stale rows"},
    {"shifted", "rows", WEIGHT_OF("self_attn.q_proj"), .plant = moved_tokens, .words = {"rows are shifted by 1"},
     .check = "the order of experts, shards or rows", .near = "permuted stale rows"},
    {"shifted", "elements", Q, .plant = moved_elements, .words = {"shifted by 3 elements"},
     .near = "permuted unrelated"},
    {"permuted", "a square weight", WEIGHT_OF("self_attn.q_proj"), .plant = transposed, .undo = true,
     .words = {"it is transposed"}, .near = "transposed-weight unrelated"},
    {"permuted", "a weight's memory", WEIGHT_OF("mlp.gate_proj"), .plant = transposed, .undo = true,
     .words = {"transposed, [{hidden},{inner}] read as [{inner},{hidden}]"}},
    {"permuted", "rotary rows", WEIGHT_OF("self_attn.q_proj"), .plant = rows_to_pairs, .undo = true,
     .words = {"rows in each group of {head} are interleaved"}, .near = "rows rotation"},
    {"permuted", "gate and up", WEIGHT_OF("mlp.gate_up_proj"), .plant = swapped_half_rows, .undo = true,
     .words = {"halves"}, .near = "swapped-with shifted"},
    {"permuted", "two of four parts", WEIGHT_OF("mlp.gate_proj"), .plant = swapped_quarters, .undo = true,
     .words = {"the second and the third quarter of the rows have changed places"}, .near = "swapped-with shifted"},
    {"permuted", "q, k, v by head", WEIGHT_OF("self_attn.qkv_proj"), .plant = by_head, .undo = true,
     .words = {"q, k and v of each of {heads} heads are together"}, .near = "unrelated"},
    {"permuted", "q, k, v by number", WEIGHT_OF("self_attn.qkv_proj"), .plant = by_number, .undo = true},
    {"permuted", "values before keys", WEIGHT_OF("self_attn.qkv_proj"), .plant = values_before_keys, .undo = true,
     .words = {"0, 2, 1"}, .near = "swapped-with"},
    {"permuted", "pieces of a vector", .at = "model.layers.0.modulation.bias", .made = make_checkpoint,
     .plant = values_before_keys, .undo = true, .words = {"0, 2, 1"}, .near = "shifted unrelated"},
};

const struct table causes_layout = TABLE("layout", rows);
