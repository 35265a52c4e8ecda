#include "diagnose/functions.h"

#include <math.h>

struct function {
    const char *name;
    double (*value)(double x);
};

static double elu(double x)
{
    return x > 0 ? x : expm1(x);
}

static double softplus(double x)
{
    return x > 30 ? x : log1p(exp(x));
}

static double mish(double x)
{
    return x * tanh(softplus(x));
}

static double hard_swish(double x)
{
    double slope = (x + 3) / 6;
    return x * (slope < 0 ? 0 : slope > 1 ? 1 : slope);
}

static double leaky_relu(double x)
{
    return x > 0 ? x : 0.01 * x;
}

static double relu6(double x)
{
    return x < 0 ? 0 : x > 6 ? 6 : x;
}

static double absolute(double x)
{
    return fabs(x);
}

static const struct function others[] = {
    {"elu", elu},     {"exp", exp},     {"mish", mish}, {"hard_swish", hard_swish}, {"leaky_relu", leaky_relu},
    {"relu6", relu6}, {"abs", absolute}};

_Static_assert(TS_FUNCTIONS == TS_ACTIVATION_COUNT + sizeof others / sizeof *others, "every function has a number");

const char *ts_function_name(size_t function)
{
    return function < TS_ACTIVATION_COUNT ? ts_activation_name((enum ts_activation)function)
                                          : others[function - TS_ACTIVATION_COUNT].name;
}

double ts_function_value(size_t function, double x)
{
    return function < TS_ACTIVATION_COUNT ? ts_activation_value((enum ts_activation)function, x)
                                          : others[function - TS_ACTIVATION_COUNT].value(x);
}
