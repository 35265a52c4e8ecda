/* Owns the bugs of norms, residuals, activations, mixtures, adaptive norms, and the ends of the model. */
#include <string.h>

#include "bugs.h"

/* Norms. */

static struct zoo_norm *some_norm(struct zoo_model *m, int l, struct zoo_random *r)
{
    struct zoo_layer *layer = &m->layer[l];
    struct zoo_norm *sites[6] = {&layer->attn_norm, &layer->mlp_norm,       &layer->q_norm,
                                 &layer->k_norm,    &layer->post_attn_norm, &layer->post_mlp_norm};
    for (int tries = 0; tries < 32; tries++) {
        struct zoo_norm *site = sites[zoo_random_below(r, 6)];
        bool unused = (site == &layer->mlp_norm && m->config->parallel && m->config->shared_norm) ||
                      ((site == &layer->mlp_norm || site == &layer->attn_norm) && m->config->no_pre_norm);
        if (site->on && !unused)
            return site;
    }
    return &layer->attn_norm;
}

BUG(epsilon)
{
    struct zoo_norm *norm = some_norm(m, l, r);
    norm->epsilon = norm->epsilon < 5e-6 ? 1e-5 : 1e-6;
    return true;
}

BUG(epsilon_large)
{
    struct zoo_norm *norm = some_norm(m, l, r);
    norm->epsilon = 0.05;
    return true;
}

BUG(norm_of_another_layer)
{
    struct zoo_layer *other = &m->layer[(l + 1) % m->config->layers];
    struct zoo_norm *from = zoo_random_chance(r, 0.5) ? &other->attn_norm : &other->mlp_norm;
    m->layer[l].attn_norm.weight = from->weight;
    return from->weight != NULL && m->config->layers > 1;
}

BUG(norm_plus_one)
{
    struct zoo_norm *norm = some_norm(m, l, r);
    norm->plus_one = !norm->plus_one;
    return norm->weight != NULL;
}

BUG(norm_weight_missing)
{
    struct zoo_norm *norm = some_norm(m, l, r);
    bool had = norm->weight != NULL;
    norm->weight = NULL;
    return had;
}

BUG(norm_bias_missing)
{
    struct zoo_norm *norm = some_norm(m, l, r);
    bool had = norm->bias != NULL;
    norm->bias = NULL;
    return had;
}

BUG(mean_not_removed)
{
    UNUSED(r);
    m->layer[l].attn_norm.centred = false;
    return m->config->layer_norm;
}

BUG(layer_norm_for_rms)
{
    UNUSED(r);
    m->layer[l].mlp_norm.centred = true;
    return !m->config->layer_norm;
}

BUG(norm_skipped)
{
    struct zoo_norm *norm = some_norm(m, l, r);
    norm->on = false;
    return true;
}

BUG(qk_norm_missing)
{
    UNUSED(r);
    m->layer[l].q_norm.on = m->layer[l].k_norm.on = false;
    return m->config->qk_norm;
}

BUG(mlp_norm_wrong_input)
{
    UNUSED(r);
    m->layer[l].mlp_norm_of_input = true;
    return !m->config->parallel;
}

/* Residuals. */

BUG(attn_residual)
{
    enum zoo_residual wrong[] = {ZOO_RESIDUAL_MISSING, ZOO_RESIDUAL_DOUBLED, ZOO_RESIDUAL_ONLY};
    m->layer[l].attn_residual = wrong[zoo_random_below(r, 3)];
    return !m->config->parallel;
}

BUG(mlp_residual)
{
    enum zoo_residual wrong[] = {ZOO_RESIDUAL_MISSING, ZOO_RESIDUAL_DOUBLED, ZOO_RESIDUAL_ONLY};
    m->layer[l].mlp_residual = wrong[zoo_random_below(r, 3)];
    return true;
}

BUG(residual_normed)
{
    if (zoo_random_chance(r, 0.5) && !m->config->parallel)
        m->layer[l].attn_residual = ZOO_RESIDUAL_NORMED;
    else
        m->layer[l].mlp_residual = ZOO_RESIDUAL_NORMED;
    return true;
}

BUG(residual_factor_missing)
{
    UNUSED(r);
    m->layer[l].residual_factor = 1;
    return m->config->residual_factor != 1;
}

/* Activations. */

static bool activation(struct zoo_model *m, int l, enum zoo_activation wrong)
{
    bool other = m->layer[l].activation != wrong;
    m->layer[l].activation = wrong;
    return other && !m->config->experts;
}

BUG(activation_missing)
{
    UNUSED(r);
    return activation(m, l, ZOO_NO_ACTIVATION);
}

BUG(activation_relu)
{
    UNUSED(r);
    return activation(m, l, ZOO_RELU);
}

BUG(activation_gelu)
{
    UNUSED(r);
    return activation(m, l, ZOO_GELU);
}

BUG(activation_quick_gelu)
{
    UNUSED(r);
    return activation(m, l, ZOO_QUICK_GELU);
}

BUG(activation_silu)
{
    UNUSED(r);
    return activation(m, l, ZOO_SILU);
}

BUG(gate_up_swapped)
{
    UNUSED(r);
    m->layer[l].gate_up_swapped = true;
    return m->config->gated && !m->config->experts;
}

/* Mixtures. */

BUG(experts_swapped)
{
    struct zoo_layer *layer = &m->layer[l];
    int a = m->config->experts ? zoo_random_below(r, m->config->experts) : 0;
    struct zoo_matrix other[3];
    if (!m->config->experts)
        return false;
    memcpy(other, layer->expert[a], sizeof other);
    memcpy(layer->expert[a], layer->expert[(a + 1) % m->config->experts], sizeof other);
    memcpy(layer->expert[(a + 1) % m->config->experts], other, sizeof other);
    return true;
}

BUG(gates_reversed)
{
    UNUSED(r);
    m->layer[l].gates_reversed = true;
    return m->config->experts > 0;
}

BUG(gates_ignored)
{
    UNUSED(r);
    m->layer[l].gates_ignored = true;
    return m->config->experts > 0;
}

BUG(gates_renormalized)
{
    UNUSED(r);
    m->layer[l].renormalized = !m->config->renormalized;
    return m->config->experts > 0;
}

BUG(router_sigmoid)
{
    UNUSED(r);
    m->layer[l].sigmoid_router = !m->config->sigmoid_router;
    return m->config->experts > 0;
}

BUG(router_factor_missing)
{
    UNUSED(r);
    m->layer[l].router_factor = 1;
    return m->config->experts > 0 && m->config->router_factor != 1;
}

BUG(shared_expert_missing)
{
    UNUSED(r);
    m->layer[l].shared_missing = true;
    return m->config->shared_expert;
}

/* Adaptive norms. */

BUG(shift_scale_swapped)
{
    int half = 3 * zoo_random_below(r, 2), other = m->layer[l].chunk[half];
    m->layer[l].chunk[half] = m->layer[l].chunk[half + 1];
    m->layer[l].chunk[half + 1] = other;
    return m->config->dit;
}

BUG(chunk_of_the_other_half)
{
    int at = zoo_random_below(r, 3);
    m->layer[l].chunk[at] = m->layer[l].chunk[at + 3];
    return m->config->dit;
}

BUG(one_plus_missing)
{
    m->layer[l].one_plus[zoo_random_below(r, 2)] = 0;
    return m->config->dit;
}

BUG(gate_missing)
{
    m->layer[l].gate_missing[zoo_random_below(r, 2)] = true;
    return m->config->dit;
}

BUG(gate_sign)
{
    m->layer[l].gate_sign[zoo_random_below(r, 2)] = -1;
    return m->config->dit;
}

/* Ends of the model. */

BUG(embed_scale_missing)
{
    UNUSED(l);
    UNUSED(r);
    m->embed_scale = 1;
    return m->config->embed_scale != 1;
}

BUG(logit_cap_missing)
{
    UNUSED(l);
    UNUSED(r);
    m->logit_cap = 0;
    return m->config->logit_cap > 0;
}

BUG(token_off_by_one)
{
    int at = zoo_random_below(r, m->config->tokens);
    UNUSED(l);
    if (!m->config->dit)
        m->token[at] = (m->token[at] + 1) % m->config->vocabulary;
    return !m->config->dit;
}
