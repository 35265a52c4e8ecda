/* Owns the question whether a planted bug can be seen at all, by anyone, in what the trace shows. */
#include <math.h>

#include "zoo.h"

/* Kernels of fp32 programs differ by more than a rounding (approximate exponentials and reciprocal square roots), and
 * nobody minds a change of less than 30 times this. */
#define LEAST_ROUNDING 3e-6

/* Whether the operation up to this point is a known function of captured tensors, weights aside. */
static bool is_function_of_shown(const struct zoo_config *c, enum zoo_point point)
{
    const bool *s = c->shown;
    bool stream = c->shown[ZOO_INPUT] || c->shown[ZOO_LAYER]; /* what comes into a layer */
    bool branch = s[ZOO_POST_ATTN_NORM] || (!c->post_norms && (s[ZOO_O] || s[ZOO_ATTENTION]));
    bool other = s[ZOO_POST_MLP_NORM] || (!c->post_norms && (s[ZOO_DOWN] || s[ZOO_MLP]));
    bool middle = s[ZOO_ATTN_RESIDUAL] || (stream && branch && !c->dit);
    bool many = c->tokens >= 6; /* a weight per channel is learnt from rows */
    switch (point) {
    case ZOO_EMBED_SCALED:
        return s[ZOO_EMBED];
    case ZOO_EMBED_SUM:
        return s[ZOO_EMBED] && s[ZOO_POSITION];
    case ZOO_INPUT:
        return true;
    case ZOO_ATTENTION:
        return s[ZOO_O];
    case ZOO_MLP:
        return c->experts ? s[ZOO_EXPERTS] && (!c->shared_expert || s[ZOO_SHARED]) : s[ZOO_DOWN];
    case ZOO_MLP_RESIDUAL:
        return s[ZOO_MLP_NORM] && (s[ZOO_DOWN] || s[ZOO_MLP]);
    case ZOO_ATTN_NORM:
    case ZOO_FINAL_NORM:
        return stream && many;
    case ZOO_ATTN_MODULATED:
    case ZOO_MLP_MODULATED:
    case ZOO_FINAL_MODULATED:
        return s[ZOO_MODULATION] && many;
    case ZOO_Q_NORM:
    case ZOO_K_NORM:
        return (s[ZOO_Q] || s[ZOO_QKV]) && many;
    case ZOO_Q_ROPE:
    case ZOO_K_ROPE:
        return c->qk_norm ? s[ZOO_Q_NORM] : s[ZOO_Q];
    case ZOO_SCORES_RAW:
        return s[ZOO_Q_ROPE] || (!c->rotary_size && s[ZOO_Q]);
    case ZOO_SCORES:
        return c->score_cap > 0 || c->alibi ? s[ZOO_SCORES_RAW] : s[ZOO_Q_ROPE] || (!c->rotary_size && s[ZOO_Q]);
    case ZOO_PROBS:
        return s[ZOO_SCORES];
    case ZOO_CONTEXT:
        return s[ZOO_PROBS] && s[ZOO_V];
    case ZOO_POST_ATTN_NORM:
        return (s[ZOO_O] || s[ZOO_ATTENTION]) && many;
    case ZOO_POST_MLP_NORM:
        return (s[ZOO_DOWN] || s[ZOO_MLP]) && many;
    case ZOO_ATTN_RESIDUAL:
        return stream && branch && (!c->dit || s[ZOO_MODULATION]);
    case ZOO_MLP_NORM:
        return many && (c->parallel ? stream : middle);
    case ZOO_ACT:
        return c->gated ? s[ZOO_GATE] : s[ZOO_UP];
    case ZOO_INTERMEDIATE:
        return s[ZOO_GATE_UP] || (s[ZOO_UP] && (s[ZOO_GATE] || s[ZOO_ACT]));
    case ZOO_ROUTER_WEIGHTS:
        return s[ZOO_ROUTER_LOGITS];
    case ZOO_LAYER:
        if (c->norm_after)
            return many && (s[ZOO_MLP_RESIDUAL] || (s[ZOO_MLP_NORM] && other));
        return other && (c->parallel ? stream && branch : middle) && (!c->dit || s[ZOO_MODULATION]);
    case ZOO_LOGITS:
        return c->logit_cap > 0 && s[ZOO_LOGITS_RAW];
    default:
        return false;
    }
}

struct part {
    double change, level, size;
};

static void add(struct part *part, double change, double level, double size)
{
    part->change += change * change;
    part->level += level * level;
    part->size += size * size;
}

/* `usual` is the mean square size of parts like this one: small parts are measured by the others' rounding. */
static double contrast(const struct part *part, double usual, double rounding)
{
    double level = sqrt(part->level), least = rounding * sqrt(part->size > usual ? part->size : usual);
    level = level > least ? level : least;
    return part->change == 0 ? 0 : level > 0 ? sqrt(part->change) / level : (double)INFINITY;
}

static bool is_masked(double value)
{
    return value < -1e4;
}

/* Changes and levels of every row and of every channel; false when one side is not finite where the other is. */
static bool collect(const struct zoo_tensor *bug, const struct zoo_tensor *honest, const struct zoo_tensor *reference,
                    const struct zoo_tensor *forced, struct part *rows, struct part *channels)
{
    int width = bug->heads * bug->inner;
    for (int i = 0; i < bug->rows * width; i++) {
        double right = (double)reference->values[i], was = (double)honest->values[i], is = (double)bug->values[i];
        double level = (forced ? (double)forced->values[i] : was) - right;
        if (is_masked(was) && is_masked(is))
            continue;
        if (isfinite(was) != isfinite(is) || is_masked(was) != is_masked(is))
            return false;
        if (!isfinite(was) || !isfinite(level) || is_masked(right))
            continue;
        add(&rows[i / width], is - was, level, was);
        add(&channels[i % width], is - was, level, was);
    }
    return true;
}

static struct part total(const struct part *parts, int count)
{
    struct part sum = {0};
    for (int i = 0; i < count; i++) {
        sum.change += parts[i].change;
        sum.level += parts[i].level;
        sum.size += parts[i].size;
    }
    return sum;
}

static double largest(const struct part *parts, int count, int group, double rounding)
{
    double usual = total(parts, count).size * group / count, found = 0;
    for (int i = 0; i + group <= count; i += group) {
        struct part part = total(parts + i, group);
        double one = contrast(&part, usual, rounding);
        found = one > found ? one : found;
    }
    return found;
}

double zoo_contrast(const struct zoo_config *c, const struct zoo_numerics *numerics, const struct zoo_tensor *bug,
                    const struct zoo_tensor *honest, const struct zoo_tensor *reference,
                    const struct zoo_tensor *forced, bool *learnable)
{
    int width = bug->heads * bug->inner, size = bug->heads > 1 ? bug->inner : c->head_size;
    int bits = zoo_mantissa_bits(numerics->format), bits_reference = zoo_mantissa_bits(c->reference->format);
    double rounding = ldexp(0.2123, -(bits < bits_reference ? bits : bits_reference)), best = 1e6;
    struct zoo_arena arena = {0};
    struct part *rows = zoo_alloc(&arena, (size_t)bug->rows * sizeof *rows);
    struct part *channels = zoo_alloc(&arena, (size_t)width * sizeof *channels);
    rounding = rounding > LEAST_ROUNDING ? rounding : LEAST_ROUNDING;
    *learnable = is_function_of_shown(c, bug->point);
    if (collect(bug, honest, reference, *learnable ? forced : NULL, rows, channels)) {
        /* what is confined to a row, head or channel must stand out more: the worst of many is noise as well */
        best = largest(rows, bug->rows, bug->rows, rounding);
        if (bug->rows > 1)
            best = fmax(best, largest(rows, bug->rows, 1, rounding) / 2);
        if (width % size == 0 && width > size)
            best = fmax(best, largest(channels, width, size, rounding) / 1.5);
        if (bug->rows >= 4)
            best = fmax(best, largest(channels, width, 1, rounding) / 3);
    }
    zoo_arena_release(&arena);
    return best;
}
