/* Owns one question: was this tensor rounded by itself? No replay and no growth tells, as either grants every tensor
 * one rounding to what it holds. */
#include "compare/judge_state.h"

/* One tensor that was rounded by itself: mantissa bits, how many more others have, how many layers, how many tensors
 * before it, of how many numbers. */
#define MOST_OF_ITS_OWN   10
#define FINER             6
#define LAYERS_OF_ITS_OWN 1
#define BEFORE_ITS_OWN    2
#define BEHIND_ITS_OWN    6 /* where there is no other layer */
#define ENOUGH_OF_ITS_OWN 64

/* All tensors before it are finer than so many bits, and there are some: nothing that it comes from was rounded so. The
 * first tensors of a run may be embeddings in a type of their own, which later layers add to in f32. */
static bool is_finer_before(const struct ts_judge *state, size_t i, int bits)
{
    size_t finer = 0;
    for (size_t k = i; k-- > 0;) {
        if (state->pairs[k].problem || state->deltas[k].exact || state->pairs[k].a.count < ENOUGH_OF_ITS_OWN)
            continue;
        if (state->deltas[k].precision_b < bits + FINER && state->deltas[k].precision_a >= bits + FINER)
            return false;
        finer += state->deltas[k].precision_b >= bits + FINER;
    }
    return finer >= BEFORE_ITS_OWN;
}

/* Nothing behind it is as coarse either, and there is enough of that: what is stored in such a type is the only one of
 * the run. A kernel of attention may be, that takes and gives sixteen bits by itself. */
static bool is_finer_behind(const struct ts_judge *state, size_t i, int bits)
{
    size_t finer = 0;
    if (ts_judge_is_behind_attention(state, i) || state->kinds[i] == TS_OPERATION_ATTENTION ||
        state->kinds[i] == TS_OPERATION_ROTARY) /* keys that a cache gives back */
        return false;
    for (size_t k = i + 1; k < state->out->count; k++) {
        if (state->pairs[k].problem || state->deltas[k].exact || state->pairs[k].a.count < ENOUGH_OF_ITS_OWN)
            continue;
        if (state->deltas[k].non_finite_mismatch ||
            (state->deltas[k].precision_b < bits + FINER && state->deltas[k].precision_a >= bits + FINER))
            return false;
        finer += state->deltas[k].precision_b >= bits + FINER;
    }
    return finer >= BEHIND_ITS_OWN;
}

/* Its numbers are those of a type that is coarser than what the same point holds in every other layer (or where there
 * is no other, than all that comes behind it), than what came before it, and than the reference's: this one tensor was
 * rounded. The bits it has, or 0. */
static int bits_of_its_own(struct ts_judge *state, size_t i)
{
    size_t near[2 * TS_POINTS_NEAR], count, others = 0;
    const int bits = state->deltas[i].precision_b;
    if (bits <= 0 || bits > MOST_OF_ITS_OWN || state->deltas[i].precision_a < bits + FINER ||
        state->pairs[i].a.count < ENOUGH_OF_ITS_OWN || !is_finer_before(state, i, bits) ||
        (!state->points.pairs && !ts_points_open(&state->points, state->pairs, state->out->count)))
        return 0;
    count = ts_points_near(&state->points, i, near);
    for (size_t n = 0; n < count; n++) {
        /* of one that is NaN nobody knows it */
        if (state->pairs[near[n]].problem || !state->deltas[near[n]].unequal ||
            state->deltas[near[n]].non_finite_mismatch)
            continue;
        if (state->deltas[near[n]].precision_b < bits + FINER)
            return 0;
        others++;
    }
    return others >= LAYERS_OF_ITS_OWN || is_finer_behind(state, i, bits) ? bits : 0;
}

static const char *type_of_bits(int bits)
{
    return bits == 10 ? "f16" : bits == 7 ? "bf16" : bits == 3 ? "e4m3" : bits == 2 ? "e5m2" : "few bits";
}

bool ts_judge_is_rounded_alone(struct ts_judge *state, size_t i)
{
    size_t near[2 * TS_POINTS_NEAR];
    const int bits = state->deltas[i].unequal ? bits_of_its_own(state, i) : 0;
    if (bits)
        ts_judge_differs(
            state, i,
            ts_judge_say(state->out,
                         ts_points_near(&state->points, i, near)
                             ? "its numbers are those of %s, and in no other layer are they so at this point"
                             : "its numbers are those of %s, and no other tensor of this run has so few bits",
                         type_of_bits(bits)));
    return bits;
}
