/* Owns what converters do to weights of known kinds, as views: rows of heads in another order, fused weights in another
 * order, 1 added to a norm. Which of it was done, layout.c finds out by values. */
#include <inttypes.h>
#include <string.h>

#include "pair/pairing.h"

bool ts_layout_gather(const struct ts_view *view, unsigned axis, const uint64_t *starts, const uint64_t *counts,
                      uint64_t step, size_t count, struct ts_arena *arena, struct ts_view *out)
{
    struct ts_view *parts = ts_arena_array(arena, count, sizeof *parts);
    if (!parts)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!ts_view_slice(view, axis, starts[i], counts[i], step, arena, &parts[i]))
            return false;
    if (count == 1) {
        *out = parts[0];
        return true;
    }
    return ts_view_join(TS_JOIN_CONCAT, axis, parts, count, arena, out);
}

bool ts_layout_turn_rows(const struct ts_view *view, uint64_t heads, struct ts_arena *arena, struct ts_view *out)
{
    uint64_t rows = view->rank ? view->shape[0] : 0, half, *starts, *counts;
    if (heads == 0 || heads > TS_MAX_HEADS || rows == 0 || rows % (2 * heads) != 0 || rows / heads < 4)
        return false;
    half = rows / heads / 2;
    starts = ts_arena_array(arena, 2 * heads, sizeof *starts);
    counts = ts_arena_array(arena, 2 * heads, sizeof *counts);
    if (!starts || !counts)
        return false;
    for (uint64_t i = 0; i < 2 * heads; i++) {
        starts[i] = i / 2 * 2 * half + i % 2;
        counts[i] = half;
    }
    return ts_layout_gather(view, 0, starts, counts, 2, 2 * heads, arena, out);
}

/* The rows of a fused q, k, v that stand head by head (or group by group), brought to all q, all k, all v. */
static bool unmix(const struct ts_view *view, uint64_t groups, uint64_t in_group, struct ts_arena *arena,
                  struct ts_view *out)
{
    uint64_t rows = view->rank ? view->shape[0] : 0, size, *starts, *counts;
    if (groups == 0 || groups > TS_MAX_HEADS || in_group == 0 || in_group > TS_MAX_HEADS ||
        rows % (groups * (in_group + 2)) != 0)
        return false;
    size = rows / (groups * (in_group + 2));
    starts = ts_arena_array(arena, 3 * groups, sizeof *starts);
    counts = ts_arena_array(arena, 3 * groups, sizeof *counts);
    if (!starts || !counts || size == 0)
        return false;
    for (uint64_t i = 0; i < 3 * groups; i++) {
        uint64_t part = i / groups, group = i % groups;
        starts[i] = group * (in_group + 2) * size + (part == 0 ? 0 : in_group + part - 1) * size;
        counts[i] = part == 0 ? in_group * size : size;
    }
    return ts_layout_gather(view, 0, starts, counts, 1, 3 * groups, arena, out);
}

/* Heads of values that stand by the head of keys they belong to, brought to the order in which each head of keys comes
 * in turn: as llama.cpp has them for Qwen 3.5. Along one axis, what stands before them left alone. */
static bool tile(const struct ts_turn *turn, const struct ts_view *view, struct ts_arena *arena, struct ts_view *out)
{
    const uint64_t heads = turn->heads * turn->in_group, before = turn->before > 0;
    const uint64_t length = turn->axis < view->rank ? view->shape[turn->axis] : 0;
    struct ts_view plain = *view; /* heads are moved before anything is computed */
    uint64_t size, *starts, *counts;
    if (turn->heads == 0 || turn->in_group < 2 || heads > TS_MAX_HEADS || length <= turn->before ||
        (length - turn->before) % heads != 0)
        return false;
    size = (length - turn->before) / heads;
    starts = ts_arena_array(arena, heads + 1, sizeof *starts);
    counts = ts_arena_array(arena, heads + 1, sizeof *counts);
    if (!starts || !counts)
        return false;
    starts[0] = 0;
    counts[0] = turn->before;
    for (uint64_t i = 0; i < heads; i++) {
        starts[before + i] = turn->before + (i % turn->heads * turn->in_group + i / turn->heads) * size;
        counts[before + i] = size;
    }
    plain.decay = false;
    if (!ts_layout_gather(&plain, turn->axis, starts, counts, 1, heads + before, arena, out))
        return false;
    out->decay = view->decay;
    return true;
}

uint64_t ts_layout_heads(const struct ts_pairer *pairer, const char *kind)
{
    const struct ts_facts *facts = pairer->a.facts.heads ? &pairer->a.facts : &pairer->b.facts;
    return strncmp(kind, "attn_k", 6) == 0 ? facts->kv_heads : facts->heads;
}

size_t ts_layout_likely_heads(const struct ts_pairer *pairer, const char *kind, uint64_t rows,
                              uint64_t heads[TS_LIKELY_HEADS])
{
    static const uint64_t usual[TS_LIKELY_HEADS] = {128, 64, 256, 96, 80, 112, 160, 192, 32, 16}; /* sizes of a head */
    size_t count = 0;
    heads[0] = ts_layout_heads(pairer, kind);
    if (heads[0])
        return 1;
    for (size_t i = 0; i < TS_LIKELY_HEADS; i++)
        if (rows && rows % usual[i] == 0)
            heads[count++] = rows / usual[i];
    return count;
}

bool ts_layout_turn(const struct ts_turn *turn, const struct ts_view *view, struct ts_arena *arena, struct ts_view *out)
{
    uint64_t half;
    *out = *view;
    switch (turn->kind) {
    case TS_TURN_ROWS:
        return ts_layout_turn_rows(view, turn->heads, arena, out);
    case TS_TURN_UNMIX:
        return unmix(view, turn->heads, turn->in_group, arena, out);
    case TS_TURN_ADD:
        out->add += turn->add;
        return true;
    case TS_TURN_SWAP_HALVES:
        half = view->rank && view->shape[0] % 2 == 0 ? view->shape[0] / 2 : 0;
        return half && ts_layout_gather(view, 0, (uint64_t[]){half, 0}, (uint64_t[]){half, half}, 1, 2, arena, out);
    case TS_TURN_TILE:
        return tile(turn, view, arena, out);
    case TS_TURN_NOTHING:
        break;
    }
    return true;
}

const char *ts_layout_turn_text(const struct ts_turn *turn, struct ts_arena *arena)
{
    char side = turn->on_b ? 'B' : 'A';
    switch (turn->kind) {
    case TS_TURN_ROWS:
        return ts_arena_printf(arena, "%c: rows un-permuted (%" PRIu64 " head%s)", side, turn->heads,
                               turn->heads == 1 ? "" : "s");
    case TS_TURN_UNMIX:
        return ts_arena_printf(arena, "%c: q, k and v of %" PRIu64 " %s taken apart", side, turn->heads,
                               turn->in_group == 1 ? "heads" : "groups");
    case TS_TURN_ADD:
        return ts_arena_printf(arena, "%c: %g + w", side, turn->add);
    case TS_TURN_SWAP_HALVES:
        return ts_arena_printf(arena, "%c: halves swapped", side);
    case TS_TURN_TILE:
        return ts_arena_printf(arena, "%c: heads of v in turns (%" PRIu64 " groups)", side, turn->heads);
    case TS_TURN_NOTHING:
        break;
    }
    return "";
}

/* Weights of linear attention in whose rows, or columns, heads of values stand. */
static bool list_tile(const struct ts_facts *gguf, bool gguf_is_b, const char *kind, const struct ts_view *view,
                      struct ts_turn *turn)
{
    static const struct {
        const char *kind;
        bool columns;
    } rows[] = {{"attn_qkv.weight", false},  {"attn_gate.weight", false}, {"ssm_conv1d.weight", false},
                {"ssm_alpha.weight", false}, {"ssm_beta.weight", false},  {"ssm_dt.bias", false},
                {"ssm_a.weight", false},     {"ssm_out.weight", true}};
    const uint64_t groups = gguf->key_heads, heads = gguf->value_heads;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const unsigned axis = rows[i].columns ? 1 : 0;
        uint64_t length;
        if (strcmp(kind, rows[i].kind) != 0 || axis >= view->rank || groups == 0 || groups > TS_MAX_HEADS ||
            heads > TS_MAX_HEADS || heads <= groups || heads % groups != 0)
            continue;
        length = view->shape[axis];
        *turn = (struct ts_turn){
            .kind = TS_TURN_TILE, .on_b = !gguf_is_b, .heads = groups, .in_group = heads / groups, .axis = axis};
        if (length != heads && length != gguf->inner)
            turn->before = length > gguf->inner ? length - gguf->inner : 0;
        return length % heads == 0 || turn->before;
    }
    return false;
}

size_t ts_layout_list_turns(const struct ts_pairer *pairer, const char *kind, const struct ts_view *view,
                            struct ts_turn turns[TS_MAX_TURNS], size_t *expected)
{
    const struct ts_facts *gguf = pairer->b.facts.gguf ? &pairer->b.facts : &pairer->a.facts;
    bool gguf_is_b = pairer->b.facts.gguf;
    uint64_t rows = view->rank ? view->shape[0] : 0;
    const char *ending = ts_kind_ending(kind);
    size_t length = (size_t)(ending - kind), count = 0;
    turns[count++] = (struct ts_turn){.kind = TS_TURN_NOTHING};
    *expected = 0;
    if (!*ending)
        return count;
    if (pairer->a.facts.gguf != pairer->b.facts.gguf && list_tile(gguf, gguf_is_b, kind, view, &turns[count])) {
        *expected = ts_facts_tiles(gguf) ? count : 0;
        return count + 1;
    }
    if (length == 6 && (strncmp(kind, "attn_q", 6) == 0 || strncmp(kind, "attn_k", 6) == 0)) {
        uint64_t heads[TS_LIKELY_HEADS];
        const size_t likely = ts_layout_likely_heads(pairer, kind, rows, heads);
        if (ts_facts_turns_rows(gguf) && ts_layout_heads(pairer, kind))
            *expected = gguf_is_b ? count + 1 : count;
        for (size_t i = 0; i < likely && count + 2 <= TS_MAX_TURNS; i++) {
            turns[count++] = (struct ts_turn){.kind = TS_TURN_ROWS, .heads = heads[i]};
            turns[count++] = (struct ts_turn){.kind = TS_TURN_ROWS, .on_b = true, .heads = heads[i]};
        }
    } else if (length == 8 && strncmp(kind, "attn_qkv", 8) == 0) {
        uint64_t heads = ts_layout_heads(pairer, "attn_q"), groups = ts_layout_heads(pairer, "attn_k");
        for (int on_b = 0; on_b < 2 && heads; on_b++) {
            turns[count++] = (struct ts_turn){.kind = TS_TURN_UNMIX, .on_b = on_b, .heads = heads, .in_group = 1};
            if (groups && groups != heads && heads % groups == 0)
                turns[count++] =
                    (struct ts_turn){.kind = TS_TURN_UNMIX, .on_b = on_b, .heads = groups, .in_group = heads / groups};
        }
    } else if (length == 16 && strncmp(kind, "final_modulation", 16) == 0) { /* shift and scale, scale and shift */
        turns[count++] = (struct ts_turn){.kind = TS_TURN_SWAP_HALVES, .on_b = true};
    } else if (view->rank == 1 && length > 4 && strncmp(ending - 4, "norm", 4) == 0 && strcmp(ending, ".weight") == 0 &&
               pairer->a.facts.gguf != pairer->b.facts.gguf) {
        /* 1/5 and 1/5^1.5: PLaMo 3, behind attention and behind the network */
        static const double added[] = {1, 0.2, 0.08944271909999159};
        const size_t amounts = strcmp(gguf->architecture, "plamo3") == 0 ? 3 : 1;
        if (ts_facts_adds_one(gguf) && strcmp(kind, "ssm_norm.weight") != 0) /* which is an ordinary one */
            *expected = gguf_is_b ? 1 : 2;
        for (size_t i = 0; i < 2 * amounts; i++)
            turns[count++] = (struct ts_turn){.kind = TS_TURN_ADD, .on_b = i % 2, .add = added[i / 2]};
    }
    return count;
}
