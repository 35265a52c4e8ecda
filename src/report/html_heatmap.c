/* Owns the heat maps of the HTML report: pictures of reference, candidate and difference, and error along axes. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/changes.h"
#include "report/facts.h"
#include "report/html.h"
#include "report/markup.h"
#include "report/plane.h"
#include "report/png.h"

#define MAPS      12
#define MAPS_GOOD 4 /* when nothing differs */
#define LEAST     4 /* elements worth a picture */
#define BARS      96u

/* Colours of a picture: three that stand for something, then a ramp. 66 of them, so that a picture of pure noise packs
 * into three quarters of a byte per cell, and twelve tensors stay far below a megabyte. */
enum { COLOUR_NONE, COLOUR_NAN, COLOUR_INF, COLOUR_RAMP };
#define LEVELS  63
#define COLOURS (COLOUR_RAMP + LEVELS)

static int by_value(const void *a, const void *b)
{
    float left = *(const float *)a, right = *(const float *)b;
    return left < right ? -1 : left > right;
}

static bool is_shown(float value)
{
    return isfinite(value) && value > -1e30f; /* below: a mask's stand-in for -inf */
}

/* The magnitude that gets the strongest colour: that of the 99th percentile, so that one outlier does not bleach all
 * others. */
static float find_scale(const struct ts_plane *plane, const float *values)
{
    size_t cells = (size_t)plane->height * plane->width, used = 0;
    float *sorted = malloc(cells * sizeof *sorted), scale = 0;
    for (size_t i = 0; sorted && i < cells; i++)
        if (is_shown(values[i]) && values[i] != 0)
            sorted[used++] = fabsf(values[i]);
    if (used) {
        qsort(sorted, used, sizeof *sorted, by_value);
        scale = sorted[(used - 1) * 99 / 100];
    }
    free(sorted);
    return scale;
}

static float largest_difference(const struct ts_plane *plane)
{
    float most = 0;
    for (size_t i = 0; i < (size_t)plane->height * plane->width; i++)
        if (isfinite(plane->difference[i]) && fabsf(plane->difference[i]) > most)
            most = fabsf(plane->difference[i]);
    return most;
}

static struct ts_colour blend(const struct ts_colour *stops, unsigned count, double at)
{
    double place = at * (count - 1);
    unsigned from = place >= count - 1 ? count - 2 : (unsigned)place;
    double share = place - from;
    const struct ts_colour *low = &stops[from], *high = &stops[from + 1];
    return (struct ts_colour){(uint8_t)lround(low->red + share * (high->red - low->red)),
                              (uint8_t)lround(low->green + share * (high->green - low->green)),
                              (uint8_t)lround(low->blue + share * (high->blue - low->blue))};
}

static const struct ts_colour cold[] = {{247, 247, 247}, {173, 216, 230}, {100, 149, 237}, {25, 60, 160}};
static const struct ts_colour warm[] = {{247, 247, 247}, {255, 228, 181}, {255, 140, 0}, {150, 50, 0}};
static const struct ts_colour hot[] = {{247, 247, 247}, {255, 228, 181}, {255, 140, 0}, {200, 30, 30}, {80, 0, 60}};

/* Blue below zero and orange above, or from pale to dark for magnitudes. */
static void make_palette(struct ts_colour palette[COLOURS], bool is_signed)
{
    palette[COLOUR_NONE] = (struct ts_colour){190, 190, 190};
    palette[COLOUR_NAN] = (struct ts_colour){255, 45, 85};
    palette[COLOUR_INF] = (struct ts_colour){255, 221, 0};
    for (int i = 0; i < LEVELS; i++) {
        double at = 2.0 * i / (LEVELS - 1) - 1;
        palette[COLOUR_RAMP + i] = !is_signed ? blend(hot, 5, (double)i / (LEVELS - 1))
                                   : at < 0   ? blend(cold, 4, -at)
                                              : blend(warm, 4, at);
    }
}

static uint8_t colour_of_value(float value, float scale)
{
    double at = scale > 0 ? (double)value / (double)scale : 0;
    at = at < -1 ? -1 : at > 1 ? 1 : at;
    return (uint8_t)(COLOUR_RAMP + lround((at + 1) / 2 * (LEVELS - 1)));
}

/* By the square root, so that a few large errors do not hide the pattern of the others; anything shows. */
static uint8_t colour_of_difference(float value, float scale)
{
    if (value == 0 || !(scale > 0))
        return COLOUR_RAMP;
    return (uint8_t)(COLOUR_RAMP + 1 + lround(sqrt(fabs((double)value) / (double)scale) * (LEVELS - 2)));
}

static void put_picture(struct ts_buffer *out, const struct ts_plane *plane, const float *values, float scale,
                        bool is_signed)
{
    size_t cells = (size_t)plane->height * plane->width;
    struct ts_colour palette[COLOURS];
    struct ts_buffer png;
    uint8_t *pixels = malloc(cells);
    if (!pixels) {
        out->failed = true;
        return;
    }
    make_palette(palette, is_signed);
    for (size_t i = 0; i < cells; i++)
        pixels[i] = !plane->seen[i]                      ? COLOUR_NONE
                    : isnan(values[i])                   ? COLOUR_NAN
                    : is_signed && !is_shown(values[i])  ? COLOUR_INF
                    : !is_signed && !isfinite(values[i]) ? COLOUR_INF
                    : is_signed                          ? colour_of_value(values[i], scale)
                                                         : colour_of_difference(values[i], scale);
    ts_buffer_init(&png, (size_t)1 << 20);
    if (!ts_put_png(&png, pixels, plane->width, plane->height, palette, COLOURS))
        out->failed = true;
    else
        ts_put_base64(out, png.data, png.size);
    ts_buffer_release(&png);
    free(pixels);
}

static void put_figure(struct ts_buffer *out, const struct ts_plane *plane, const char *label, const float *values,
                       float scale, bool is_signed)
{
    /* the longer side is 256 pixels, the shorter one in proportion but never a mere line */
    unsigned longest = plane->width > plane->height ? plane->width : plane->height;
    unsigned width = 256 * plane->width / longest, height = 256 * plane->height / longest;
    uint64_t mark = plane->mark;
    width = width < 28 ? 28 : width;
    height = height < 28 ? 28 : height;
    ts_buffer_printf(
        out, "<figure><div class=\"map\" style=\"width:%upx;height:%upx\"><img alt=\"%s\" src=\"data:image/png;base64,",
        width, height, label);
    put_picture(out, plane, values, scale, is_signed);
    ts_buffer_string(out, "\">");
    if (mark < plane->count)
        ts_buffer_printf(out, "<i style=\"left:%.2f%%;top:%.2f%%\"></i>",
                         100 * ((double)(mark % plane->columns) + 0.5) / (double)plane->columns,
                         100 * ((double)(mark / plane->columns) + 0.5) / (double)plane->rows);
    ts_buffer_printf(out, "</div><figcaption>%s<br><span class=\"dim\">", label);
    if (is_signed)
        ts_buffer_printf(out, "−%.3g … %.3g", (double)scale, (double)scale);
    else
        ts_buffer_printf(out, "0 … %.3g", (double)scale);
    ts_buffer_string(out, "</span></figcaption></figure>\n");
}

/* Relative error along one axis as bars. */
static void put_profile(struct ts_buffer *out, const struct ts_profile *profile, unsigned axis)
{
    unsigned bars = profile->size < BARS ? (unsigned)profile->size : BARS;
    double values[BARS], most = 0, all = 0;
    for (unsigned i = 0; i < bars; i++) {
        double error = 0, reference = 0;
        for (uint64_t k = ts_cut(profile->size, bars, i); k < ts_cut(profile->size, bars, i + 1); k++) {
            error += profile->error[k];
            reference += profile->reference[k];
        }
        values[i] = error > 0 ? sqrt(error / reference) : 0; /* infinite where the reference is all zeros */
        most = isfinite(values[i]) && values[i] > most ? values[i] : most;
        all = values[i] > all ? values[i] : all;
    }
    ts_buffer_printf(out, "<figure><svg class=\"bars\" viewBox=\"0 0 %u 32\" preserveAspectRatio=\"none\">", bars);
    for (unsigned i = 0; i < bars; i++) {
        double height = most > 0 && isfinite(values[i]) ? 32 * values[i] / most : values[i] > 0 ? 32 : 0;
        if (height > 0)
            ts_buffer_printf(out, "<path d=\"M%u 32v-%.1fh.8v%.1fz\"/>", i, height, height);
    }
    ts_buffer_printf(out, "</svg><figcaption>axis %u, size %" PRIu64 "<br><span class=\"dim\">error up to ", axis,
                     profile->size);
    ts_put_short(out, all);
    ts_buffer_string(out, "</span></figcaption></figure>\n");
}

static void put_profiles(struct ts_buffer *out, const struct ts_delta *delta)
{
    unsigned shown = 0;
    for (unsigned axis = 0; delta->profiles && delta->rmse > 0 && axis < delta->rank && shown < 4; axis++)
        if (delta->profiles[axis].size > 1 && delta->profiles[axis].error && delta->profiles[axis].reference) {
            if (!shown++)
                ts_buffer_string(out, "<div class=\"axes\">\n");
            put_profile(out, &delta->profiles[axis], axis);
        }
    if (shown)
        ts_buffer_string(out, "</div>\n");
}

static void put_words(struct ts_buffer *out, const struct ts_plane *plane, const struct ts_delta *delta)
{
    ts_buffer_printf(out, "<p class=\"dim\">%" PRIu64 " × %" PRIu64 " of ", plane->rows, plane->columns);
    ts_put_view_shape(out, &plane->pair->a);
    if (plane->wrapped)
        ts_buffer_printf(out, ", wrapped at %" PRIu64, plane->wrapped);
    if (plane->rows > plane->height || plane->columns > plane->width)
        ts_buffer_printf(out, "; each cell covers %" PRIu64 " × %" PRIu64 " elements%s",
                         (plane->rows + plane->height - 1) / plane->height,
                         (plane->columns + plane->width - 1) / plane->width,
                         plane->sampled ? ", of which some were sampled" : "");
    if (plane->mark < plane->count) {
        ts_buffer_string(out, delta->non_finite_mismatch ? ". At " : ". Worst at ");
        ts_put_coordinates(out, &plane->pair->a, plane->mark);
        ts_buffer_string(out, ": ");
        ts_put_two(out, plane->pair, plane->mark, plane->mark_a, plane->mark_b);
    }
    if (delta->non_finite_mismatch)
        ts_buffer_printf(out, ". %" PRIu64 " element%s NaN or infinite on one side and something else on the other",
                         delta->non_finite_mismatch, delta->non_finite_mismatch == 1 ? " is" : "s are");
    ts_buffer_string(out, ".</p>\n");
}

static void put_maps(struct ts_buffer *out, const struct ts_plane *plane, const struct ts_delta *delta)
{
    float scale = find_scale(plane, plane->a); /* of both sides, so that colours mean the same */
    if (!(scale > 0))
        scale = find_scale(plane, plane->b);
    ts_buffer_string(out, "<div class=\"maps\">\n");
    put_figure(out, plane, "reference", plane->a, scale, true);
    put_figure(out, plane, "candidate", plane->b, scale, true);
    put_figure(out, plane, "difference", plane->difference, largest_difference(plane), false);
    put_profiles(out, delta);
    ts_buffer_string(out, "</div>\n");
    put_words(out, plane, delta);
}

static enum ts_status put_card(struct ts_buffer *out, const struct ts_comparison *comparison, size_t i,
                               struct ts_error *error)
{
    const struct ts_pair *pair = &comparison->pairing.pairs[i];
    struct ts_plane plane = {.pair = pair};
    enum ts_status status;
    plane.mark = ts_worst_element(comparison, i, &plane.mark_a, &plane.mark_b);
    status = ts_plane_read(&plane, error);
    ts_buffer_printf(out, "<article><h3><a href=\"#t%zu\">", i);
    ts_put_markup(out, pair->name, TS_HTML_NAME);
    ts_buffer_printf(out, "</a>%s</h3>\n",
                     i == comparison->judgement.first && !comparison->judgement.weights ? " <b>first divergence</b>"
                                                                                        : "");
    if (status == TS_OK) {
        put_maps(out, &plane, &comparison->deltas[i]);
    } else {
        ts_buffer_string(out, "<p>No picture: ");
        ts_put_markup(out, error->message, 300);
        ts_buffer_string(out, "</p>\n");
    }
    ts_buffer_string(out, "</article>\n");
    ts_plane_release(&plane);
    return status == TS_ERR_CANCELLED || status == TS_ERR_MEMORY ? status : TS_OK;
}

static bool is_worth_it(const struct ts_comparison *comparison, size_t i)
{
    const struct ts_pair *pair = &comparison->pairing.pairs[i];
    return !pair->problem && pair->a.count >= LEAST && pair->a.count == pair->b.count &&
           ts_view_components(&pair->a) == ts_view_components(&pair->b) &&
           (comparison->deltas[i].unequal || comparison->deltas[i].non_finite_mismatch);
}

enum ts_status ts_put_html_heatmaps(struct ts_buffer *out, const struct ts_comparison *comparison,
                                    struct ts_error *error)
{
    bool differs = comparison->judgement.counts[TS_JUDGED_DIFFERS] > 0;
    size_t first = comparison->judgement.weights ? SIZE_MAX : comparison->judgement.first; /* of runs it comes first */
    size_t count, shown = 0, most = differs ? MAPS : MAPS_GOOD;
    size_t *worst = ts_sorted_pairs(comparison, differs ? 1u << TS_JUDGED_DIFFERS : 1u << TS_JUDGED_NOISE,
                                    TS_SORT_ERROR, SIZE_MAX, &count);
    enum ts_status status = worst ? TS_OK : ts_fail_memory(error);
    for (size_t k = 0; status == TS_OK && k <= count && shown < most; k++) {
        size_t i = k == 0 ? first : worst[k - 1];
        if (i >= comparison->pairing.count || (k > 0 && i == first) || !is_worth_it(comparison, i))
            continue;
        if (!shown++)
            ts_buffer_printf(
                out,
                "<section><h2>%s</h2>\n<p class=\"dim\">The last axis runs to the right, the others downward. "
                "<span class=\"key cold\"></span> negative, <span class=\"key warm\"></span> positive, "
                "<span class=\"key nan\"></span> NaN, <span class=\"key inf\"></span> infinite. A cell that covers "
                "several elements shows the largest. Differences are on a square-root scale; the ring marks the worst "
                "element.</p>\n",
                !differs                        ? "The largest noise"
                : comparison->judgement.weights ? "The largest changes"
                                                : "The worst tensors");
        status = put_card(out, comparison, i, error);
    }
    if (shown)
        ts_buffer_string(out, "</section>\n");
    free(worst);
    return status;
}
