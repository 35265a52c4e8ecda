#include "diagnose/factor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "diagnose/product.h"
#include "diagnose/region.h"
#include "diagnose/variant.h"

struct suspect {
    double value;
    char text[320];
};

static size_t common_width(const struct ts_case *the_case)
{
    size_t best = 0, best_votes = 0;
    for (size_t i = 0; i < TS_SCENE_WINDOW; i++) {
        size_t votes = 0;
        for (size_t j = 0; j < TS_SCENE_WINDOW; j++)
            votes += the_case->scene->window[j].usable && the_case->scene->window[j].heads == 1 &&
                     the_case->scene->window[j].width == the_case->scene->window[i].width;
        if (the_case->scene->window[i].usable && votes > best_votes) {
            best = the_case->scene->window[i].width;
            best_votes = votes;
        }
    }
    return best;
}

/* The list of suspects, those of the likeliest kind first. */
struct suspects {
    struct suspect list[160];
    size_t count;
};

static void add_suspect(struct suspects *suspects, double value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add_suspect(struct suspects *suspects, double value, const char *format, ...)
{
    struct suspect *suspect = &suspects->list[suspects->count];
    va_list arguments;
    if (suspects->count == sizeof suspects->list / sizeof *suspects->list)
        return;
    suspect->value = value;
    va_start(arguments, format);
    vsnprintf(suspect->text, sizeof suspect->text, format, arguments);
    va_end(arguments);
    suspects->count++;
}

static void suspect_settings(struct suspects *suspects, const struct ts_evidence *evidence)
{
    for (int key = TS_SETTING_ROUTED_SCALE; evidence && key <= TS_SETTING_LOGITS_SCALE; key++) {
        double value = evidence->config.values[key];
        const char *name = evidence->config.names[key];
        if (!(value > 0) || value == 1)
            continue;
        add_suspect(suspects, value, "%s (%.6g in the configuration), applied once too often", name, value);
        add_suspect(suspects, 1 / value, "1/%s (%.6g in the configuration), left out", name, value);
        add_suspect(suspects, 1 / sqrt(value), "1/sqrt(%s) (%.6g in the configuration)", name, value);
        add_suspect(suspects, sqrt(value), "sqrt(%s) (%.6g in the configuration)", name, value);
    }
}

static void suspect_head(struct suspects *suspects, size_t head)
{
    double d = (double)head;
    if (!head)
        return;
    add_suspect(suspects, 1 / sqrt(d),
                "1/sqrt(%zu), from head_dim: the attention scale is applied twice, or where it should not be", head);
    add_suspect(suspects, sqrt(d), "sqrt(%zu), from head_dim: the attention scale is missing", head);
}

/* What is less usual, and often a plain number as well: the fourth root of 16 is 2. */
static void suspect_head_otherwise(struct suspects *suspects, size_t head)
{
    double d = (double)head;
    if (!head)
        return;
    add_suspect(suspects, pow(d, -0.25), "%zu^(-1/4), from head_dim: the scale is split over q and k on one side only",
                head);
    add_suspect(suspects, pow(d, 0.25), "%zu^(1/4), from head_dim: the scale is split over q and k on one side only",
                head);
    add_suspect(suspects, d, "%zu, which is head_dim", head);
    add_suspect(suspects, 1 / d, "1/%zu, one over head_dim", head);
}

/* Where heads are folded into one axis and nothing shows their size: those that the axis can be cut into. */
static void suspect_folded(struct suspects *suspects, size_t width)
{
    for (size_t head = 16; head <= 256 && head < width; head += 2) {
        if (width % head)
            continue;
        add_suspect(suspects, sqrt((double)head), "sqrt(%zu), from a head_dim of %zu: the attention scale is missing",
                    head, head);
        add_suspect(
            suspects, 1 / sqrt((double)head),
            "1/sqrt(%zu), from a head_dim of %zu: the attention scale is applied twice, or where it should not be",
            head, head);
    }
}

static void suspect_width(struct suspects *suspects, size_t width)
{
    if (!width)
        return;
    add_suspect(suspects, sqrt((double)width),
                "sqrt(%zu), from hidden_size: the embedding scale is applied once too often", width);
    add_suspect(suspects, 1 / sqrt((double)width), "1/sqrt(%zu), from hidden_size: the embedding scale is left out",
                width);
    add_suspect(suspects, 1 / (double)width, "1/%zu, one over hidden_size", width);
}

/* cap * tanh(x / cap) with one of the two left out. Without a configuration: of the caps that models have, where
 * nothing lies beyond. */
static void suspect_caps(struct suspects *suspects, const struct ts_case *the_case)
{
    static const double usual[] = {15, 20, 30, 50};
    const struct ts_evidence *evidence = ts_case_evidence(the_case);
    double largest = 0;
    for (size_t i = 0; i < the_case->total; i++)
        largest = isfinite(the_case->expected[i]) ? fmax(largest, fabs(the_case->expected[i])) : largest;
    for (int key = TS_SETTING_SCORE_CAP; evidence && key <= TS_SETTING_LOGIT_CAP; key++) {
        double cap = evidence->config.values[key];
        if (!(cap >= largest) || cap == 1)
            continue;
        add_suspect(suspects, 1 / cap, "1/%s (%.6g in the configuration): the softcap is not multiplied by its cap",
                    evidence->config.names[key], cap);
        add_suspect(suspects, cap, "%s (%.6g in the configuration): the softcap is multiplied by its cap twice",
                    evidence->config.names[key], cap);
    }
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        if (usual[i] < largest)
            continue;
        add_suspect(suspects, 1 / usual[i], "1/%g: perhaps a softcap that is not multiplied by its cap", usual[i]);
        add_suspect(suspects, usual[i], "%g: perhaps a softcap that is multiplied by its cap twice", usual[i]);
    }
}

static void suspect_plain(struct suspects *suspects)
{
    static const double plain[] = {2, 3, 4, 5, 6, 8, 10, 12, 16, 30, 32, 50, 64, 100, 128, 255, 256, 448, 1000};
    add_suspect(suspects, M_SQRT2, "sqrt(2)");
    add_suspect(suspects, M_SQRT1_2, "1/sqrt(2)");
    add_suspect(suspects, M_LOG2E, "log2(e): exp and exp2 are mixed up");
    add_suspect(suspects, M_LN2, "ln(2): exp and exp2 are mixed up");
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        bool ranks = plain[i] <= 64 && plain[i] != 5 && plain[i] != 10 && plain[i] != 30 && plain[i] != 50;
        add_suspect(suspects, plain[i], "%g%s", plain[i],
                    ranks ? ": summed or applied more than once (all-reduce, residual, scale)" : "");
        add_suspect(suspects, 1 / plain[i], "1/%g%s", plain[i],
                    ranks ? ": averaged, or a partial sum of one of that many ranks" : "");
    }
}

/* The first of them that fits, unless another one fits far better. */
static size_t best_suspect(const struct suspects *suspects, size_t from, size_t to, double factor, double tolerance)
{
    size_t best = SIZE_MAX;
    for (size_t i = from; i < to; i++) {
        double off = fabs(factor / suspects->list[i].value - 1);
        if (off < tolerance && (best == SIZE_MAX || off < 0.5 * fabs(factor / suspects->list[best].value - 1)))
            best = i;
    }
    return best;
}

int ts_factor_digits(double factor)
{
    return fabs(factor - 1) < 0.01 ? 6 : 4;
}

/* What a factor may be. The size of a head is looked at first where a scale made of it belongs: in queries, keys and
 * scores. Elsewhere four is four ranks before it is the root of sixteen, and what else it may be is said behind that.
 */
void ts_factor_text(const struct ts_case *the_case, double factor, double tolerance, char *text, size_t room)
{
    const struct ts_actor *actor = the_case->actor;
    const char *name = ts_case_name(the_case, actor);
    struct suspects suspects = {.count = 0};
    const char *first;
    char plain[32];
    size_t same, heads, head = ts_head_size(the_case, &heads), width = common_width(the_case), best, other = SIZE_MAX,
                        common;
    bool of_heads = ts_names_operand(name) || strstr(name, "score") || strstr(name, "kq") ||
                    (actor->heads > 1 && actor->inner == actor->sequence);
    bool of_width = strstr(name, "embed") || strstr(name, "embd") || strstr(name, "wte");
    suspect_settings(&suspects, ts_case_evidence(the_case));
    suspect_caps(&suspects, the_case);
    if (of_heads)
        suspect_head(&suspects, head);
    if (of_width || of_heads)
        suspect_width(&suspects, width);
    suspect_plain(&suspects);
    common = suspects.count;
    if (of_heads)
        suspect_head_otherwise(&suspects, head);
    else
        suspect_head(&suspects, head);
    if (!of_width && !of_heads)
        suspect_width(&suspects, width);
    if (of_heads && !head && actor->heads == 1)
        suspect_folded(&suspects, actor->width);
    if (of_heads && head && width && head != width) {
        add_suspect(&suspects, sqrt((double)head / (double)width),
                    "sqrt(%zu/%zu): scaled by hidden_size instead of head_dim", head, width);
        add_suspect(&suspects, sqrt((double)width / (double)head),
                    "sqrt(%zu/%zu): scaled by head_dim instead of hidden_size", width, head);
    }
    best = best_suspect(&suspects, 0, common, factor, tolerance);
    other = best_suspect(&suspects, common, suspects.count, factor, tolerance);
    if (best == SIZE_MAX || (other != SIZE_MAX && fabs(factor / suspects.list[other].value - 1) <
                                                      0.5 * fabs(factor / suspects.list[best].value - 1))) {
        best = other;
        other = SIZE_MAX;
    }
    text[0] = 0;
    if (best == SIZE_MAX)
        return;
    snprintf(plain, sizeof plain, "%.*g", ts_factor_digits(factor), factor);
    first = suspects.list[best].text;
    same = strncmp(first, plain, strlen(plain)) == 0 ? strlen(plain) : 0;
    if (same && !first[same]) /* "3 times, which is 3" */
        return;
    same = same && first[same] == ':' ? same : 0; /* "2 times what it should be: summed" */
    snprintf(text, room, "%s%s%s%s", same ? "" : ", which is ", first + same, other == SIZE_MAX ? "" : "; or ",
             other == SIZE_MAX ? "" : suspects.list[other].text);
}
