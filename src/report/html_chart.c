/* Owns the chart of the HTML report: error along execution order, as inline SVG. */
#include <math.h>
#include <stdlib.h>

#include "compare/scene.h"
#include "report/facts.h"
#include "report/html.h"
#include "report/markup.h"
#include "tensor/layer.h"

#define WIDTH  1000.0
#define HEIGHT 300.0
#define LEFT   58.0
#define RIGHT  14.0
#define TOP    30.0
#define BOTTOM 34.0
#define LANE   22.0 /* below the scale for exact equality, above it for what has no finite error */
#define POINTS 2000 /* beyond that many pairs only the worst of each stretch is drawn */

struct chart {
    const struct ts_comparison *comparison;
    struct ts_buffer *out;
    size_t count;
    int low, high; /* decades */
};

static double x_of(const struct chart *chart, double index)
{
    return LEFT + (index + 0.5) / (double)chart->count * (WIDTH - LEFT - RIGHT);
}

static double y_of_value(const struct chart *chart, double error)
{
    double share = (log10(error) - chart->low) / (chart->high - chart->low);
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    return HEIGHT - BOTTOM - LANE - share * (HEIGHT - BOTTOM - TOP - 2 * LANE);
}

static double y_of(const struct chart *chart, size_t i)
{
    double bad = ts_badness(chart->comparison, i);
    if (bad <= 0)
        return HEIGHT - BOTTOM;
    return isfinite(bad) ? y_of_value(chart, bad) : TOP;
}

/* The decades that hold every error, at least two of them and at most 16. */
static void find_scale(struct chart *chart)
{
    double low = (double)INFINITY, high = 0;
    for (size_t i = 0; i < chart->count; i++) {
        double bad = ts_badness(chart->comparison, i);
        if (bad > 0 && isfinite(bad)) {
            low = bad < low ? bad : low;
            high = bad > high ? bad : high;
        }
    }
    chart->low = high > 0 ? (int)floor(log10(low)) : -8;
    chart->high = high > 0 ? (int)ceil(log10(high)) : 0;
    if (chart->high - chart->low < 2)
        chart->low = chart->high - 2;
    if (chart->high - chart->low > 16)
        chart->low = chart->high - 16;
}

static void put_scale(const struct chart *chart)
{
    int step = 1 + (chart->high - chart->low) / 8;
    for (int decade = chart->low; decade <= chart->high; decade += step) {
        double y = y_of_value(chart, pow(10, decade));
        ts_buffer_printf(
            chart->out,
            "<path class=\"grid\" d=\"M%.0f %.1fH%.0f\"/><text class=\"end\" x=\"%.0f\" y=\"%.1f\">1e%d</text>\n", LEFT,
            y, WIDTH - RIGHT, LEFT - 6, y + 4, decade);
    }
    ts_buffer_printf(chart->out, "<text class=\"end\" x=\"%.0f\" y=\"%.1f\">equal</text>\n", LEFT - 6,
                     HEIGHT - BOTTOM + 4);
}

/* Bands for the layers, so that a place in the order can be read off. */
static void put_layers(const struct chart *chart)
{
    const struct ts_pair *pairs = chart->comparison->pairing.pairs;
    double labelled = -1000;
    bool shade = false;
    for (size_t i = 0, last; i < chart->count; i = last + 1) {
        uint64_t layer, other;
        double left, right;
        last = i;
        if (!ts_layer_of(pairs[i].name, &layer))
            continue;
        while (last + 1 < chart->count && ts_layer_of(pairs[last + 1].name, &other) && other == layer)
            last++;
        left = x_of(chart, (double)i - 0.5);
        right = x_of(chart, (double)last + 0.5);
        if (right - left < 3) /* names that only look numbered: bands would be a barcode */
            continue;
        shade = !shade;
        if (shade)
            ts_buffer_printf(chart->out, "<rect class=\"band\" x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"%.0f\"/>",
                             left, TOP - 8, right - left, HEIGHT - BOTTOM - TOP + 16);
        if ((left + right) / 2 - labelled > 34) {
            labelled = (left + right) / 2;
            ts_buffer_printf(chart->out, "<text class=\"mid\" x=\"%.1f\" y=\"%.0f\">%llu</text>\n", labelled,
                             HEIGHT - 8, (unsigned long long)layer);
        }
    }
    if (labelled >= 0)
        ts_buffer_printf(chart->out, "<text class=\"end\" x=\"%.0f\" y=\"%.0f\">layer</text>\n", LEFT - 6, HEIGHT - 8);
}

/* One rounding in the precision that most pairs have. */
static void put_floor(const struct chart *chart)
{
    size_t votes[64] = {0}, best = 0;
    struct ts_buffer name;
    double rounding, y;
    for (size_t i = 0; i < chart->count; i++)
        if (!chart->comparison->pairing.pairs[i].problem && !chart->comparison->deltas[i].exact)
            votes[ts_pair_precision(&chart->comparison->deltas[i]) & 63]++;
    for (size_t bits = 1; bits < 64; bits++)
        if (votes[bits] > votes[best])
            best = bits;
    rounding = ts_rounding((int)best);
    if (!best || rounding < pow(10, chart->low) || rounding > pow(10, chart->high))
        return;
    y = y_of_value(chart, rounding);
    ts_buffer_init(&name, 64);
    ts_put_precision(&name, (int)best);
    ts_buffer_printf(chart->out,
                     "<path class=\"floor\" d=\"M%.0f %.1fH%.0f\"/><text class=\"end floor-text\" x=\"%.0f\" "
                     "y=\"%.1f\">one rounding of %s</text>\n",
                     LEFT, y, WIDTH - RIGHT, WIDTH - RIGHT - 4, y - 4, name.data ? name.data : "");
    ts_buffer_release(&name);
}

static void put_point(const struct chart *chart, size_t i)
{
    const struct ts_pair *pair = &chart->comparison->pairing.pairs[i];
    const struct ts_verdict *verdict = &chart->comparison->judgement.verdicts[i];
    bool first = i == chart->comparison->judgement.first && !chart->comparison->judgement.weights;
    ts_buffer_printf(chart->out, "<a href=\"#t%zu\"><circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"><title>", i,
                     ts_html_classes[verdict->judged], x_of(chart, (double)i), y_of(chart, i),
                     first                ? "6"
                     : chart->count > 300 ? "2.5"
                                          : "4");
    ts_put_markup(chart->out, pair->name, TS_HTML_NAME);
    if (pair->problem) {
        ts_buffer_string(chart->out, ": cannot be compared");
    } else {
        ts_buffer_printf(chart->out, ": %s, error ", ts_judged_name(verdict->judged));
        ts_put_short(chart->out, chart->comparison->deltas[i].rel_l2);
        if (ts_has_roundings(chart->comparison, i)) {
            ts_buffer_string(chart->out, ", ");
            ts_put_short(chart->out, verdict->roundings);
            ts_buffer_string(chart->out, " roundings");
        }
    }
    ts_buffer_string(chart->out, "</title></circle></a>\n");
}

/* The worst pair of each of at most POINTS stretches; the first divergence always. */
static void put_points(const struct chart *chart)
{
    size_t stretches = chart->count < POINTS ? chart->count : POINTS, first = chart->comparison->judgement.first;
    for (size_t k = 0; k < stretches; k++) {
        size_t begin = k * chart->count / stretches, end = (k + 1) * chart->count / stretches, worst = begin;
        for (size_t i = begin; i < end; i++)
            if (ts_badness(chart->comparison, i) > ts_badness(chart->comparison, worst))
                worst = i;
        if (first >= begin && first < end && worst != first)
            put_point(chart, first);
        put_point(chart, worst);
    }
}

static void put_first(const struct chart *chart)
{
    size_t first = chart->comparison->judgement.first;
    double x;
    bool right;
    if (first >= chart->count || chart->comparison->judgement.weights) /* which weights come first means nothing */
        return;
    x = x_of(chart, (double)first);
    right = x > WIDTH * 0.6;
    ts_buffer_printf(chart->out,
                     "<path class=\"first\" d=\"M%.1f %.0fV%.0f\"/><text class=\"first-text%s\" x=\"%.1f\" y=\"14\">",
                     x, TOP - 10, HEIGHT - BOTTOM + 6, right ? " end" : "", right ? x + 4 : x - 4);
    ts_buffer_string(chart->out, "first divergence: ");
    ts_put_markup(chart->out, chart->comparison->pairing.pairs[first].name, 56);
    ts_buffer_string(chart->out, "</text>\n");
}

void ts_put_html_chart(struct ts_buffer *out, const struct ts_comparison *comparison)
{
    struct chart chart = {.comparison = comparison, .out = out, .count = comparison->pairing.count};
    bool endless = false;
    if (!chart.count)
        return;
    find_scale(&chart);
    ts_buffer_printf(out, "<section><h2>%s</h2>\n<div class=\"scroll\"><svg class=\"chart\" ",
                     comparison->judgement.weights ? "Change of each tensor, in order" : "Error along execution order");
    ts_buffer_printf(out, "viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"relative error of each tensor\">\n",
                     WIDTH, HEIGHT);
    put_layers(&chart);
    put_scale(&chart);
    for (size_t i = 0; i < chart.count; i++)
        endless = endless || isinf(ts_badness(comparison, i));
    if (endless)
        ts_buffer_printf(out, "<text class=\"end\" x=\"%.0f\" y=\"%.1f\">nan, inf</text>\n", LEFT - 6, TOP + 4);
    put_floor(&chart);
    put_first(&chart);
    put_points(&chart);
    ts_buffer_printf(out,
                     "</svg></div>\n<p class=\"dim\">%s, one point per tensor; click one to go to its row."
                     "</p></section>\n",
                     comparison->judgement.weights ? "Norm of the change over the norm of the reference"
                                                   : "Relative L2 error");
}
