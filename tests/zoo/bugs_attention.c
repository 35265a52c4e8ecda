/* Owns the bugs of positions, rotation and attention. */
#include <math.h>

#include "bugs.h"

/* Positions and rotation. */

static bool both_ropes(struct zoo_model *m, int l, double theta, double factor, int offset)
{
    struct zoo_rope *ropes[2] = {&m->layer[l].q_rope, &m->layer[l].k_rope};
    for (int i = 0; i < 2; i++) {
        ropes[i]->theta *= theta;
        ropes[i]->factor *= factor;
        ropes[i]->offset += offset;
    }
    return m->config->rotary_size > 0;
}

BUG(rope_theta)
{
    return both_ropes(m, l, zoo_random_chance(r, 0.5) ? 50 : 0.1, 1, 0);
}

BUG(rope_factor_missing)
{
    UNUSED(r);
    return m->config->rope_factor != 1 && both_ropes(m, l, 1, 1 / m->config->rope_factor, 0);
}

BUG(rope_off_by_one)
{
    UNUSED(r);
    return both_ropes(m, l, 1, 1, 1);
}

BUG(rope_keys_from_one)
{
    UNUSED(r);
    m->layer[l].k_rope.offset = 1;
    return m->config->rotary_size > 0;
}

BUG(rope_last_position)
{
    UNUSED(r);
    m->layer[l].q_rope.late = 1;
    return m->config->rotary_size > 0;
}

BUG(rope_twice)
{
    UNUSED(r);
    m->layer[l].k_rope.times = 2;
    return m->config->rotary_size > 0;
}

BUG(rope_missing)
{
    struct zoo_rope *rope = zoo_random_chance(r, 0.5) ? &m->layer[l].q_rope : &m->layer[l].k_rope;
    rope->times = 0;
    return m->config->rotary_size > 0;
}

BUG(rope_sign)
{
    UNUSED(r);
    m->layer[l].q_rope.sign = m->layer[l].k_rope.sign = -1;
    return m->config->rotary_size > 0;
}

BUG(rope_half)
{
    UNUSED(r);
    m->layer[l].q_rope.size /= 2;
    m->layer[l].k_rope.size /= 2;
    return m->config->rotary_size >= 8 && m->config->rotary_size % 4 == 0;
}

BUG(rope_pairing)
{
    UNUSED(r);
    m->layer[l].q_rope.interleaved = m->layer[l].k_rope.interleaved = !m->config->interleaved;
    return m->config->rotary_size > 0;
}

BUG(position_missing)
{
    UNUSED(l);
    UNUSED(r);
    m->position_missing = true;
    return m->config->learned_positions;
}

/* Attention. */

BUG(swapped_q_k)
{
    UNUSED(r);
    m->layer[l].swap_qk = true;
    return m->config->heads == m->config->kv_heads && !m->config->fused_qkv;
}

BUG(previous_v)
{
    UNUSED(r);
    m->layer[l].previous_v = true;
    return l > 0;
}

BUG(stale_cache)
{
    m->layer[l].stale_token = m->config->tokens > 2 ? 1 + zoo_random_below(r, m->config->tokens - 1) : -1;
    return m->layer[l].stale_token > 0;
}

BUG(kv_tiled)
{
    UNUSED(r);
    m->layer[l].kv_tiled = true;
    return m->config->kv_heads > 1 && m->config->kv_heads < m->config->heads;
}

BUG(kv_duplicated)
{
    m->layer[l].kv_copied = zoo_random_below(r, m->config->kv_heads);
    return m->config->kv_heads > 1;
}

BUG(mask_missing)
{
    UNUSED(r);
    m->layer[l].causal = false;
    return m->config->causal;
}

BUG(mask_off_by_one)
{
    m->layer[l].mask_shift = zoo_random_chance(r, 0.5) ? 1 : -1;
    return m->config->causal;
}

BUG(window_missing)
{
    UNUSED(r);
    m->layer[l].window = 0;
    return m->config->window > 0;
}

BUG(window_off_by_one)
{
    m->layer[l].window += m->layer[l].window ? (zoo_random_chance(r, 0.5) ? 1 : -1) : 0;
    return m->config->window > 0;
}

BUG(score_cap_missing)
{
    UNUSED(r);
    m->layer[l].score_cap = 0;
    return m->config->score_cap > 0;
}

BUG(slopes_missing)
{
    UNUSED(r);
    m->layer[l].slope = 0;
    return m->config->alibi;
}

BUG(slopes_wrong)
{
    UNUSED(r);
    m->layer[l].slope = 1;
    return m->config->alibi;
}

BUG(sinks_missing)
{
    UNUSED(r);
    m->layer[l].sink = NULL;
    return m->config->sinks;
}

BUG(attention_unscaled)
{
    UNUSED(r);
    m->layer[l].scale = 1;
    return true;
}

BUG(attention_scaled_twice)
{
    UNUSED(r);
    m->layer[l].scale *= m->layer[l].scale;
    return true;
}

BUG(attention_scale_of_hidden)
{
    UNUSED(r);
    m->layer[l].scale = 1 / sqrt(m->config->hidden);
    return m->config->hidden != m->config->head_size;
}

BUG(softmax_temperature)
{
    UNUSED(r);
    m->layer[l].temperature = 1.3;
    return true;
}

BUG(softmax_axis)
{
    UNUSED(r);
    m->layer[l].softmax_over_queries = true;
    return true;
}

BUG(head_layout)
{
    UNUSED(r);
    m->layer[l].head_layout = true;
    return true;
}
