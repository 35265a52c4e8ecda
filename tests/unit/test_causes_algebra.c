/* Relations of numbers: one factor, an offset, both, a sign, a factor for each channel or row, a mean that is removed.
 */
#include "test_causes.h"

#define EACH for (size_t i = 0; i < count; i++)
#define WIDE hidden(side->size)

static void times(struct side *side, double *values, size_t count)
{
    side->told[0] = side->row->number;
    EACH values[i] *= side->row->number;
}

static void times_power_of_head(struct side *side, double *values, size_t count)
{
    side->told[0] = pow((double)side->size->head, side->row->number);
    EACH values[i] *= side->told[0];
}

static void times_power_of_hidden(struct side *side, double *values, size_t count)
{
    side->told[0] = pow((double)WIDE, side->row->number);
    EACH values[i] *= side->told[0];
}

static void plus(struct side *side, double *values, size_t count)
{
    side->told[0] = side->row->number;
    EACH values[i] += side->row->number;
}

static void plus_by_channel(struct side *side, double *values, size_t count)
{
    const double *bias = weights(WIDE, 0.1, 0.8);
    side->told[0] = (double)INFINITY;
    for (size_t i = 0; i < WIDE; i++)
        side->told[0] = fmin(side->told[0], bias[i]);
    EACH values[i] += bias[i % WIDE];
}

static void times_and_plus(struct side *side, double *values, size_t count)
{
    side->told[0] = 1.25;
    side->told[1] = 0.5;
    EACH values[i] = values[i] * side->told[0] + side->told[1];
}

static void times_and_plus_by_channel(struct side *side, double *values, size_t count)
{
    const double *factor = weights(WIDE, 1.5, 0.4), *bias = weights(WIDE, 0.2, 0.4);
    EACH values[i] = values[i] * factor[i % WIDE] + bias[i % WIDE];
}

static void times_by_channel(struct side *side, double *values, size_t count)
{
    const double *factor = weights(WIDE, 2, 0.4);
    double low = (double)INFINITY, high = 0;
    for (size_t i = 0; i < WIDE; i++) {
        low = fmin(low, factor[i]);
        high = fmax(high, factor[i]);
    }
    side->told[0] = low;
    side->told[1] = high;
    EACH values[i] *= factor[i % WIDE];
}

static void one_channel(struct side *side, double *values, size_t count)
{
    side->told[0] = 3;
    EACH values[i] *= i % WIDE == 7 ? 3 : 1;
}

static void times_by_row(struct side *side, double *values, size_t count)
{
    EACH values[i] *= 1 + 0.07 * (double)(i / WIDE % 5);
}

/* One head of them, and a number for each. */
static void times_in_a_head(struct side *side, double *values, size_t count)
{
    side->told[0] = side->row->number;
    EACH values[i] *= i % WIDE / side->size->head == 1 ? side->row->number : 1;
}

static void plus_in_a_head(struct side *side, double *values, size_t count)
{
    side->told[0] = side->row->number;
    EACH values[i] += i % WIDE / side->size->head == 1 ? side->row->number : 0;
}

static void times_by_head(struct side *side, double *values, size_t count)
{
    side->told[0] = 1.5;
    EACH values[i] *= 1.5 + 0.25 * (double)(i % WIDE / side->size->head);
}

/* One row only, the row's own mean removed; another constant for each token is none of the named ones. */
static void less_the_mean(struct side *side, double *values, size_t count)
{
    for (size_t row = 0; row < count; row += WIDE) {
        double mean = 0;
        for (size_t i = 0; i < WIDE; i++)
            mean += values[row + i] / (double)WIDE;
        for (size_t i = 0; i < WIDE; i++)
            values[row + i] -= mean;
    }
}

static void noise_of_its_own(struct side *side, double *values, size_t count)
{
    (void)side;
    EACH values[i] += 0.5 * (drawn() + drawn());
}

static void noise_in_a_channel(struct side *side, double *values, size_t count)
{
    double much = sqrt((double)WIDE); /* as much as all others together */
    EACH values[i] += (i % WIDE == 5 ? much : 1) * 0.2 * (drawn() + drawn());
}

static void noise_in_a_row(struct side *side, double *values, size_t count)
{
    double much = 1.5 * sqrt((double)side->size->tokens);
    EACH values[i] += (i / WIDE == 4 ? much : 1) * 0.1 * (drawn() + drawn());
}

#define Q    .at = "layer_0_attn_q_proj", .made = make_layer
#define NORM .at = "layer_0_attn_norm_output", .made = make_layer
#define MLP  .at = "layer_0_mlp_norm_output", .made = make_layer

static const struct row rows[] = {
    {"scaled", "sqrt(head)", Q, .plant = times_power_of_head, .number = 0.5,
     .words = {"every element is {~0}", "sqrt({head}), from head_dim"},
     .near = "affine offset row-scaled channel-scaled"},
    {"scaled", "1/sqrt(head)", Q, .plant = times_power_of_head, .number = -0.5,
     .words = {"1/sqrt({head}), from head_dim"}, .near = "zeros unrelated"},
    {"scaled", "sqrt(hidden)", .at = "layer_0_input", .made = make_layer, .plant = times_power_of_hidden, .number = 0.5,
     .words = {"sqrt({hidden}), from hidden_size"}, .near = "inf sparse"},
    {"scaled", "1/sqrt(hidden)", .at = "layer_0_input", .made = make_layer, .plant = times_power_of_hidden,
     .number = -0.5, .words = {"1/sqrt({hidden}), from hidden_size"}},
    {"scaled", "two", Q, .plant = times, .number = 2, .words = {"every element is {~0}", ": summed"},
     .near = "term-extra"},
    {"scaled", "four ranks", Q, .plant = times, .number = 4,
     .words = {"every element is {~0}", ": summed", "all-reduce"}},
    {"scaled", "a quarter", Q, .plant = times, .number = 0.25, .words = {"which is 1/4:", "ranks"}},
    {"scaled", "an eighth", .at = "layer_0_attn_o_proj", .made = make_layer, .plant = times, .number = 0.125,
     .words = {"every element is {~0}", "which is 1/8"}},
    {"scaled", "no named factor", Q, .plant = times, .number = 0.73, .words = {"every element is {~0}"}},
    {"scaled", "of the scores", .at = "layer_0_attn_scores", .made = make_layer, .candidate = {.unscaled = true},
     .words = {"sqrt({head}), from head_dim"}, .near = "softmax"},
    {"sign-flipped", "all of it", Q, .plant = times, .number = -1, .words = {"the opposite sign"},
     .near = "scaled unrelated affine"},
    {"offset", "a constant", Q, .plant = plus, .number = 0.25, .words = {"off by {~0}"},
     .near = "affine scaled centering"},
    {"offset", "a constant, less", .at = "layer_0_mlp_act", .made = make_layer, .plant = plus, .number = -0.4,
     .words = {"off by {~0}"}, .near = "activation"},
    {"offset", "by channel", Q, .plant = plus_by_channel, .words = {"off by", "constant", "from {~0}"},
     .near = "channel-scaled term-extra channels"},
    {"offset", "1 + w in the file", .at = "model.layers.0.input_layernorm.weight", .made = make_checkpoint,
     .plant = plus, .number = 1, .words = {"off by {~0}"}, .near = "affine scaled"},
    {"offset", "bias missing", Q, .candidate = {.bias_missing = true}, .words = {"off by", "constant"},
     .near = "term-missing"},
    {"offset", "bias twice", Q, .candidate = {.bias_twice = true}, .words = {"off by", "constant"}},
    {"offset", "a norm's bias missing", NORM, .reference = {.layer_norm = true, .norm_bias = true},
     .candidate = {.layer_norm = true, .norm_bias = true, .no_bias = true},
     .words = {"the candidate does not apply the norm's bias"}, .near = "centering channel-scaled"},
    {"affine", "all", Q, .plant = times_and_plus, .words = {"every element is {~0}", "should be, plus {~1}"},
     .near = "scaled offset row-scaled"},
    {"affine", "by channel", Q, .plant = times_and_plus_by_channel,
     .words = {"each channel has its own factor and its own offset"}, .near = "channel-scaled offset"},
    {"channel-scaled", "by channel", Q, .plant = times_by_channel, .words = {"factor", "from {~0}"},
     .near = "scaled affine"},
    {"channel-scaled", "one channel", Q, .plant = one_channel, .words = {"channel 7 is {~0} times"},
     .near = "channels sparse"},
    {"channel-scaled", "weight missing", NORM, .candidate = {.norm_weight = NO_WEIGHT},
     .words = {"1 / w", "does not apply"}, .near = "skipped-op row-scaled"},
    {"channel-scaled", "1 + w for w", NORM, .candidate = {.norm_weight = ONE_PLUS_WEIGHT}, .words = {"(1 + w) / w"},
     .near = "affine offset"},
    {"channel-scaled", "w for 1 + w", NORM, .reference = {.norm_weight = ONE_PLUS_WEIGHT},
     .candidate = {.norm_weight = WEIGHT}, .words = {"leaves out the 1 of 1 + w"}},
    {"channel-scaled", "weight twice", NORM, .candidate = {.norm_weight = WEIGHT_TWICE},
     .words = {"applies the norm's weight twice"}},
    {"channel-scaled", "another norm's weight", MLP, .candidate = {.mlp_norm_weight = WEIGHT_OF_THE_FIRST},
     .words = {"w' is the weight of layer_0_attn_norm_output"}, .near = "wrong-input swapped-with"},
    {"channel-scaled", "a norm's weight and bias, both others", NORM,
     .reference = {.layer_norm = true, .norm_bias = true}, .candidate = {.layer_norm = true, .norm_bias = true},
     .plant = times_and_plus_by_channel, .words = {"another weight and another bias in each of {hidden} channels"},
     .near = "affine centering", .beside = "affine"},
    {"heads", "a factor of one", Q, .plant = times_in_a_head, .number = 0.4, .words = {"head 1 is {~0} times"},
     .near = "channels scaled"},
    {"heads", "an offset of one", Q, .plant = plus_in_a_head, .number = 0.7, .words = {"head 1 is off by {~0}"},
     .near = "channels offset"},
    {"heads", "a factor of each", Q, .plant = times_by_head, .words = {"each head has its own factor, from {~0}"},
     .near = "scaled channel-scaled"},
    {"heads", "a factor of one, folded", .at = "layer_0_attn_context", .made = make_layer, .plant = times_in_a_head,
     .number = 0.4, .words = {"(head 1 of {heads}) are {~0}"}, .near = "channels channel-scaled"},
    {"row-scaled", "by row", Q, .plant = times_by_row, .near = "scaled rows"},
    {"row-scaled", "epsilon", NORM, .candidate = {.epsilon = 1e-2}, .clean = true,
     .words = {"0.01 in the candidate, 1e-06 in the reference"}, .near = "scaled"},
    {"row-scaled", "epsilon, much larger", NORM, .reference = {.epsilon = 1e-5}, .candidate = {.epsilon = 1e-1},
     .words = {"0.1 in the candidate, 1e-05 in the reference"}, .beside = "scaled"},
    {"row-scaled", "epsilon, small numbers", NORM, .reference = {.small = true},
     .candidate = {.small = true, .epsilon = 1e-5}, .words = {"1e-05 in the candidate, 1e-06 in the reference"},
     .near = "scaled"},
    {"row-scaled", "not divided", NORM, .candidate = {.undivided = true},
     .words = {"does not divide the row by its root mean square"}, .near = "channel-scaled skipped-op"},
    {"centering", "LayerNorm for RMSNorm", NORM, .candidate = {.layer_norm = true}, .words = {"as LayerNorm does"},
     .near = "row-scaled offset"},
    {"centering", "RMSNorm for LayerNorm", NORM, .reference = {.layer_norm = true}, .words = {"as in RMSNorm"}},
    {"centering", "the mean alone", Q, .plant = less_the_mean, .words = {"off by", "constant"}, .near = "offset"},
    {NULL, "noise without structure", Q, .plant = noise_of_its_own,
     .words = {"no known cause fits", "spread over rows and channels"},
     .near = "unrelated rows heads channels clamped quantization rounding"},
    {NULL, "noise, most of it in a channel", Q, .plant = noise_in_a_channel,
     .words = {"no known cause fits", "channel 5"}, .near = "channels channel-scaled sparse"},
    {NULL, "noise, most of it in a row", Q, .plant = noise_in_a_row, .words = {"no known cause fits", "token 4 "},
     .near = "rows row-scaled unrelated"},
};

const struct table causes_algebra = TABLE("algebra", rows);
