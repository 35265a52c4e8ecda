/* Places: where the error is, when nothing says what it is: some rows (which tokens), some heads, some channels, a
 * stripe that belongs to one rank. Causes of last resort, so they are offered modestly. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/formula.h"
#include "diagnose/region.h"

#define HOLDS          0.85 /* share of the error that must be inside */
#define MOST_SHARE     0.5  /* share of the parts that still is "some of them" */
#define MODESTY        0.85
#define REST           0.5  /* what all tokens from one position on count as at most */
#define LEAST_BEFORE   3    /* tokens that agree before it */
#define STANDS_OUT     6.0  /* times a part's share of the noise */
#define AGREES         36.0 /* the same for parts of which noise is all that they may have */
#define MOST_STRETCHES 32   /* of tokens */
#define MOST_OF_HEAD   0.75
#define PART_OF_KEYS   0.25
#define AS_WRONG       0.25 /* of the relative error energy inside */
#define MOST_SEQUENCES 64   /* of a batch */
#define BELOW_WORST    0.02 /* or this share of the worst part's error, whichever is more */

struct part {
    double error, size;
};

static struct part *measure(const struct ts_case *the_case, const struct ts_actor *actor, size_t parts,
                            size_t (*part_at)(const struct ts_actor *, size_t))
{
    struct part *list = calloc(parts, sizeof *list);
    for (size_t i = 0; list && i < the_case->total; i++) {
        double cost = ts_element_cost(the_case->found[i], the_case->expected[i], the_case->expected[i]);
        struct part *part = &list[part_at(actor, i)];
        if (cost < 0 || ts_case_aside(the_case, i / actor->width))
            continue;
        part->error += cost;
        part->size += isfinite(the_case->expected[i]) ? the_case->expected[i] * the_case->expected[i] : 0;
    }
    return list;
}

/* Chooses the parts that err; returns how many, and the share of the error they hold. agree: the others do not err at
 * all, and are not merely far better than the worst. */
static size_t choose(const struct ts_case *the_case, const struct part *list, size_t parts, bool *chosen, double *share,
                     bool *agree)
{
    double size = 0, worst = 0, inside = 0, above = the_case->error - the_case->noise;
    size_t number = 0;
    *agree = true;
    for (size_t p = 0; p < parts; p++) {
        size += list[p].size;
        worst = list[p].error > worst ? list[p].error : worst;
    }
    for (size_t p = 0; p < parts; p++) {
        double own = the_case->noise * (size > 0 ? 0.5 * list[p].size / size + 0.5 / (double)parts : 1);
        chosen[p] = list[p].error > STANDS_OUT * own && list[p].error > BELOW_WORST * worst;
        inside += chosen[p] ? list[p].error - own : 0;
        *agree = *agree && (chosen[p] || list[p].error <= AGREES * own);
        number += chosen[p];
    }
    *share = above > 0 ? inside / above : 0;
    *share = *share < 1 ? *share : 1;
    return number;
}

static size_t row_at(const struct ts_actor *actor, size_t i)
{
    return i / actor->width;
}

static size_t channel_at(const struct ts_actor *actor, size_t i)
{
    return i % actor->width;
}

static size_t head_at(const struct ts_actor *actor, size_t i)
{
    return i % actor->width / actor->inner;
}

/* An actor whose heads are folded into its channels, seen with them. */
static struct ts_actor unfolded(const struct ts_case *the_case)
{
    struct ts_actor actor = *the_case->actor;
    size_t size = ts_folded_head(the_case);
    if (size) {
        actor.heads = actor.width / size;
        actor.inner = size;
    }
    return actor;
}

/* ", stripe 1 of 4: one rank's part" when the chosen channels are one of several equal pieces. */
static const char *stripe(struct ts_case *the_case, const bool *chosen, size_t parts, size_t number)
{
    size_t first = 0;
    while (first < parts && !chosen[first])
        first++;
    for (size_t i = first; i < first + number; i++)
        if (i >= parts || !chosen[i])
            return "";
    if (number >= 8 && parts % number == 0 && first % number == 0 && parts / number <= 64)
        return ts_case_text(the_case, ", piece %zu of %zu: perhaps one rank's part", first / number, parts / number);
    return "";
}

/* All from one position on, and some before it that agree: one number says it, however many they are. */
static bool is_rest(const bool *chosen, size_t rows, size_t number)
{
    for (size_t i = rows - number; i < rows; i++)
        if (!chosen[i])
            return false;
    return rows - number >= LEAST_BEFORE && number > 1;
}

/* Which tokens: the first, the last, all from one position on. */
static const char *which_tokens(const bool *chosen, size_t rows, size_t number)
{
    if (number == 1 && chosen[0])
        return "; the first token: a start token, an attention sink, a prefix";
    if (number == 1 && chosen[rows - 1])
        return "; the last token: the one being decoded, a cut-off end, a missing write";
    if (is_rest(chosen, rows, number))
        return "; all from there to the end: a window, page or chunk that begins there, or a cache that ends";
    return "";
}

/* The channels are those of whole heads, which was said; all but a few, as of keys that nobody looks at. Of attention
 * itself a quarter of them will do: most keys get next to nothing, and no weight makes a key's channel. */
static bool are_heads(const struct ts_actor *actor, const bool *chosen)
{
    const double most = actor->inner == actor->rows ? PART_OF_KEYS : MOST_OF_HEAD;
    for (size_t head = 0; head < actor->heads; head++) {
        size_t number = 0;
        for (size_t i = 0; i < actor->inner; i++)
            number += chosen[head * actor->inner + i];
        if (number && (double)number < most * (double)actor->inner)
            return false;
    }
    return actor->heads > 1;
}

/* The others are as wrong as these are, by their own size: large parts hold most of any error. */
static bool errs_everywhere(const struct ts_case *the_case, const struct part *list, size_t parts, const bool *chosen)
{
    struct part inside = {0}, outside = {0};
    double rest;
    for (size_t p = 0; p < parts; p++) {
        struct part *sum = chosen[p] ? &inside : &outside;
        sum->error += list[p].error;
        sum->size += list[p].size;
    }
    rest = outside.error - the_case->noise;
    return rest > 0 && inside.size > 0 && rest * inside.size > AS_WRONG * inside.error * outside.size;
}

/* Stretches of tokens, both ends included. */
struct stretches {
    size_t count;
    uint64_t ends[MOST_STRETCHES][2];
};

/* Inside these tokens, or channels, it is what it is, and elsewhere what was expected. */
static bool predict_tokens(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct stretches *inside = formula->numbers;
    size_t width = the_case->actor->width;
    for (size_t row = 0; row < the_case->actor->rows; row++) {
        uint64_t token = ts_case_row(the_case, row);
        const double *from = the_case->expected;
        for (size_t i = 0; i < inside->count; i++)
            if (token >= inside->ends[i][0] && token <= inside->ends[i][1])
                from = the_case->found;
        memcpy(out + row * width, from + row * width, width * sizeof *out);
    }
    return true;
}

static bool predict_channels(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const bool *inside = formula->numbers;
    size_t width = the_case->actor->width;
    if (formula->size != width * sizeof *inside)
        return false;
    for (size_t i = 0; i < the_case->total; i++)
        out[i] = inside[i % width] ? the_case->found[i] : the_case->expected[i];
    return true;
}

static void give_formula(struct ts_case *the_case, const bool *chosen, size_t parts, int way)
{
    const struct ts_actor *actor = the_case->actor;
    struct stretches tokens = {0};
    bool *channels;
    if (way) {
        channels = calloc(actor->width, sizeof *channels);
        for (size_t i = 0; channels && i < actor->width; i++)
            channels[i] = chosen[way == 1 ? i / actor->inner : i];
        if (channels)
            ts_formula_next(the_case, &(struct ts_formula){.predict = predict_channels,
                                                           .numbers = channels,
                                                           .size = actor->width * sizeof *channels});
        free(channels);
        return;
    }
    for (size_t row = 0; row < parts; row++) {
        if (!chosen[row])
            continue;
        if (!row || !chosen[row - 1]) {
            if (tokens.count == MOST_STRETCHES)
                return;
            tokens.ends[tokens.count++][0] = ts_case_row(the_case, row);
        }
        tokens.ends[tokens.count - 1][1] = ts_case_row(the_case, row);
    }
    ts_formula_next(the_case,
                    &(struct ts_formula){.predict = predict_tokens, .numbers = &tokens, .size = sizeof tokens});
}

/* The error of each sequence of a batch, every element of it; false where that cannot be read. */
static bool measure_sequences(const struct ts_case *the_case, size_t sequences, struct part *list)
{
    enum { PIECE = 4096 };
    const struct ts_pair *pair = ts_case_pair(the_case);
    const uint64_t length = pair->a.count / sequences;
    double *a = malloc(2 * PIECE * sizeof *a), *b = a ? a + PIECE : NULL;
    bool good = a != NULL;
    for (uint64_t at = 0; at < pair->a.count && good;) {
        const uint64_t rest = length - at % length;
        const size_t count = (size_t)(rest < PIECE ? rest : PIECE);
        struct part *part = &list[at / length];
        struct ts_error ignored;
        good = ts_view_read_f64(&pair->a, at, count, a, &ignored) == TS_OK &&
               ts_view_read_f64(&pair->b, at, count, b, &ignored) == TS_OK;
        for (size_t i = 0; i < count && good; i++) {
            const double cost = ts_element_cost(b[i], a[i], a[i]);
            part->error += cost > 0 ? cost : 0;
            part->size += isfinite(a[i]) ? a[i] * a[i] : 0;
        }
        at += count;
        if (at % length == 0) {
            ts_view_forget(&pair->a, 0, pair->a.count);
            ts_view_forget(&pair->b, 0, pair->b.count);
        }
    }
    free(a);
    return good;
}

/* Of a batch a case holds one sequence, which does not show that others are right. */
static void propose_sequences(struct ts_case *the_case)
{
    const struct ts_pair *pair = ts_case_pair(the_case);
    struct part list[MOST_SEQUENCES] = {{0}};
    bool chosen[MOST_SEQUENCES];
    const uint64_t sequences = the_case->scene->batch;
    struct ts_token_axis axis;
    double inside = 0, all = 0, worst = 0, noise;
    size_t number = 0;
    char text[128];
    if (!ts_case_wants(the_case, "") || ts_case_direct(the_case) || ts_case_is_part(the_case) || sequences < 2 ||
        sequences > MOST_SEQUENCES || pair->a.count % sequences || pair->a.count != pair->b.count ||
        !ts_scene_axis(the_case->scene, the_case->actor->pair, &axis) || !axis.sequence ||
        axis.length * sequences != pair->a.count || !measure_sequences(the_case, (size_t)sequences, list))
        return;
    /* what a sequence of the same size may err by */
    noise = the_case->noise * (double)axis.length / (double)the_case->total;
    for (size_t i = 0; i < sequences; i++)
        worst = fmax(worst, list[i].error);
    for (size_t i = 0; i < sequences; i++) {
        chosen[i] = list[i].error > STANDS_OUT * noise && list[i].error > BELOW_WORST * worst;
        number += chosen[i];
        inside += chosen[i] ? list[i].error : 0;
        all += list[i].error;
    }
    if (!number || inside < HOLDS * all || 2 * number > sequences)
        return;
    ts_region_list(the_case, chosen, (size_t)sequences, false, text, sizeof text);
    ts_formula_next(the_case, &(struct ts_formula){.proved = true});
    ts_propose_plain(the_case, "rows", MODESTY * inside / all * (1 - (double)number / (double)sequences),
                     "what is special about this part of the batch: its length, padding and mask, its slot of the "
                     "cache, the rank that computes it",
                     "sequence%s %s of %" PRIu64 " in the batch hold%s %.0f %% of the error", number == 1 ? "" : "s",
                     text, sequences, number == 1 ? "s" : "", 100 * inside / all);
}

/* One way of cutting a tensor up, and what its parts are called. */
struct way {
    const char *id, *one, *many, *check;
    size_t (*at)(const struct ts_actor *, size_t);
};

/* A weight's rows are no tokens, and nothing of the run has made them. */
static const char *check_of(const struct way *way, int which, bool is_weight)
{
    if (which == 1 || !is_weight)
        return way->check;
    return which == 0
               ? "what was done to these rows alone: a shard, a block or an expert that was converted or trained "
                 "by itself, tokens that were added"
               : "what was done to these columns alone: a shard or a block that was converted by itself";
}

/* Rows and columns of a weight, or what they are in a run. */
static const char *word_of(const struct ts_case *the_case, const struct way *way, int which, size_t number)
{
    if (!ts_case_direct(the_case) || which == 1)
        return number == 1 ? way->one : way->many;
    return which == 0 ? number == 1 ? "row" : "rows" : number == 1 ? "column" : "columns";
}

static void propose(struct ts_case *the_case)
{
    static const struct way tokens[] = {
        {"rows", "token", "tokens",
         "what is special about these tokens: padding, special ids, chunk borders, cache slots", row_at},
        {"heads", "head", "heads", "how heads are split, repeated and merged; one head's weights", head_at},
        {"channels", "channel", "channels",
         "the slice, shard or block of the weights that makes these channels: loading, scale, bounds", channel_at},
    };
    static const struct way planes[] = {
        {"channels", "channel", "channels", "the slice or block of the weights that makes these channels", row_at},
        {"rows", "line of the image", "lines of the image", "the borders: padding, stride, tile size and overlap",
         head_at},
        {"rows", "pixel", "pixels", "the borders: padding, stride, tile size and overlap", channel_at},
    };
    bool image = ts_case_is_image(the_case), is_weight = ts_is_weight(ts_case_pair(the_case)->name);
    const struct way *ways = image ? planes : tokens;
    struct ts_actor own = unfolded(the_case), *actor = &own;
    size_t counts[] = {actor->rows, actor->heads, actor->width};
    if (!(the_case->error > 0) || ts_case_quiet(the_case) || ts_case_ordinary(the_case))
        return;
    propose_sequences(the_case);
    for (int way = 0; way < 3; way++) {
        size_t parts = counts[way], number, runs;
        struct part *list;
        bool *chosen;
        double share, fraction;
        char text[128];
        bool agree, sampled; /* then what is said is put to the other tokens, and how many there are is said there */
        if (parts < 2)
            continue;
        sampled = way == 0 && ts_case_row(the_case, parts - 1) != parts - 1;
        list = measure(the_case, actor, parts, ways[way].at);
        chosen = calloc(parts, sizeof *chosen);
        if (list && chosen && (number = choose(the_case, list, parts, chosen, &share, &agree)) > 0) {
            fraction = (double)number / (double)parts;
            runs = ts_region_list(the_case, chosen, parts, way == 0, text, sizeof text);
            /* each run is a choice of its own: a place that takes many words is none */
            fraction += 2 * (double)(runs - 1) / (double)parts;
            if (way == 0 && agree && is_rest(chosen, parts, number) && fraction > REST)
                fraction = REST;
            if ((way == 2 && are_heads(actor, chosen)) || errs_everywhere(the_case, list, parts, chosen))
                fraction = 1;
            give_formula(the_case, chosen, parts, way);
            if (share > HOLDS && fraction <= MOST_SHARE)
                ts_propose_plain(
                    the_case, ways[way].id, MODESTY * share * (1 - fraction), check_of(&ways[way], way, is_weight),
                    "%s %s%s hold%s %.0f %% of the error%s", word_of(the_case, &ways[way], way, number), text,
                    sampled ? "" : ts_case_text(the_case, " of %zu", parts), number == 1 ? "s" : "", 100 * share,
                    image || (way == 0 && is_weight) ? ""
                    : way == 0                       ? which_tokens(chosen, parts, number)
                    : way == 2                       ? stripe(the_case, chosen, parts, number)
                                                     : "");
        }
        free(list);
        free(chosen);
    }
}

const struct ts_family ts_family_places = {.name = "places", .propose = propose};
