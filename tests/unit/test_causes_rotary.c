/* Rotations: what the angles of the candidate are, and the reference's beside them. */
#include "test_causes.h"

#define Q_ROPE .at = "layer_0_attn_q_rope", .made = make_layer
#define K_ROPE .at = "layer_0_attn_k_rope", .made = make_layer

/* The right rotation, and then the numbers of each head interleaved. */
static void interleave(struct side *side, double *values, size_t count)
{
    size_t size = side->size->head;
    double *old = weights(count, 0, 1);
    memcpy(old, values, count * sizeof *old);
    for (size_t i = 0; i < count; i++)
        values[i] = old[i / size * size + i % 2 * (size / 2) + i % size / 2];
}

static void order_of_heads(struct side *side, double *values, size_t count)
{
    static const size_t order[] = {2, 0, 3, 1};
    size_t size = side->size->head, wide = hidden(side->size);
    double *old = weights(count, 0, 1);
    memcpy(old, values, count * sizeof *old);
    for (size_t i = 0; i < count; i++) {
        size_t head = i % wide / size;
        values[i] = old[i / wide * wide + (head < 4 ? order[head] : head) * size + i % size];
    }
}

static void mirror(struct side *side, double *values, size_t count)
{
    (void)side;
    for (size_t i = 0; i < count; i++)
        values[i] = -values[i];
}

static const struct row rows[] = {
    {"rotation", "base", Q_ROPE, .candidate = {.base = 1e6},
     .words = {"theta = 1000000", "the reference's theta = 10000"}, .check = "rope_theta",
     .near = "permuted swapped-with unrelated wrong-input"},
    {"rotation", "base of the reference", K_ROPE, .reference = {.base = 500000}, .candidate = {.base = 10000},
     .words = {"theta = 10000", "the reference's theta = 500000"}},
    {"rotation", "base, interleaved", Q_ROPE, .reference = {.interleaved = true},
     .candidate = {.interleaved = true, .base = 500000}, .words = {"theta = 500000", "the reference's theta = 10000"}},
    {"rotation", "one later", Q_ROPE, .candidate = {.position = 1}, .words = {"off by +1"}, .near = "shifted rows"},
    {"rotation", "three earlier", K_ROPE, .candidate = {.position = -3}, .words = {"off by -3"}},
    {"rotation", "a hundred later", Q_ROPE, .candidate = {.position = 100}, .words = {"off by +100"}},
    {"rotation", "the last token", Q_ROPE, .candidate = {.last_position = 1},
     .words = {"token {last} is rotated as if at position {tokens}"}, .near = "rows stale"},
    {"rotation", "backwards", Q_ROPE, .candidate = {.backwards = true}, .words = {"the other way"},
     .near = "sign-flipped"},
    {"rotation", "interleaved for halves", Q_ROPE, .candidate = {.interleaved = true},
     .words = {"wrong pairs", "reference half-split"}, .near = "permuted"},
    {"rotation", "halves for interleaved", K_ROPE, .reference = {.interleaved = true},
     .words = {"wrong pairs", "reference interleaved"}, .near = "permuted"},
    {"rotation", "partial", Q_ROPE, .candidate = {.half_turned = true},
     .words = {"rotates {half} channels of each head, the reference {head}"}, .near = "channels skipped-op"},
    {"rotation", "partial in the reference", Q_ROPE, .reference = {.half_turned = true},
     .words = {"rotates {head} channels of each head, the reference {half}"}},
    {"rotation", "partial, three quarters", Q_ROPE, .candidate = {.most_turned = true},
     .words = {"rotates {most} channels of each head, the reference {head}"}, .near = "channels skipped-op"},
    {"rotation", "partial in the reference, three quarters", Q_ROPE, .reference = {.most_turned = true},
     .words = {"rotates {head} channels of each head, the reference {most}"}},
    {"rotation", "base, three quarters", K_ROPE, .reference = {.most_turned = true},
     .candidate = {.most_turned = true, .base = 500000}, .words = {"theta = 500000", "the reference's theta = 10000"}},
    {"rotation", "twice", Q_ROPE, .candidate = {.turned_twice = true}, .words = {"applied twice"}},
    {"skipped-op", "rotation", Q_ROPE, .candidate = {.unturned = true}, .words = {"layer_0_attn_q_proj"},
     .near = "rotation", .beside = "stale"},
    {"permuted", "rotated, then interleaved", Q_ROPE, .plant = interleave, .undo = true,
     .words = {"channels in each group of {head} are interleaved"}, .near = "rotation"},
    {"permuted", "rotated, then heads in another order", Q_ROPE, .plant = order_of_heads, .undo = true,
     .words = {"2, 0, 3, 1"}, .near = "rotation heads"},
    {"sign-flipped", "rotated, then negated", Q_ROPE, .plant = mirror, .near = "rotation", .beside = "rotation"},
};

const struct table causes_rotary = TABLE("rotary", rows);
