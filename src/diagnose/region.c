#include "diagnose/region.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/variant.h"

/* A few elements inside may be right by chance. */
#define NEARLY_ALL  0.97
#define RUNS_LISTED 3

size_t ts_region_list(const struct ts_case *the_case, const bool *chosen, size_t count, bool rows, char *text,
                      size_t room)
{
    size_t runs = 0, used = 0;
    if (room)
        text[0] = 0;
    for (size_t i = 0; i < count;) {
        size_t end = i;
        uint64_t from, to;
        bool about;
        if (!chosen[i]) {
            i++;
            continue;
        }
        while (end + 1 < count && chosen[end + 1])
            end++;
        from = rows ? ts_case_row(the_case, i) : i;
        to = rows ? ts_case_row(the_case, end) : end;
        /* where the rows beside it are not looked at, an end may lie anywhere between */
        about = rows && from != to &&
                ((i && from - ts_case_row(the_case, i - 1) > 1) ||
                 (end + 1 < count && ts_case_row(the_case, end + 1) - to > 1));
        if (runs < RUNS_LISTED && used < room)
            used +=
                (size_t)snprintf(text + used, room - used, from == to ? "%s%s%" PRIu64 : "%s%s%" PRIu64 " to %" PRIu64,
                                 runs ? ", " : "", about ? "about " : "", from, to);
        runs++;
        i = end + 1;
    }
    if (runs > RUNS_LISTED && used < room)
        snprintf(text + used, room - used, " and %zu more", runs - RUNS_LISTED);
    return runs;
}

size_t ts_head_size(const struct ts_case *the_case, size_t *heads)
{
    size_t size = 0;
    *heads = 0;
    for (size_t i = 0; i < TS_SCENE_WINDOW; i++) {
        const struct ts_actor *other = &the_case->scene->window[i];
        if (other->usable && other->heads > 1 && other->inner != other->sequence && other->heads > *heads) {
            *heads = other->heads;
            size = other->inner;
        }
    }
    return size;
}

size_t ts_folded_head(const struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor;
    const char *name = ts_case_name(the_case, actor);
    size_t heads, size;
    if (ts_case_direct(the_case) || actor->heads > 1 || (!ts_names_operand(name) && !ts_names_context(name)))
        return 0;
    size = ts_head_size(the_case, &heads);
    if (!size && the_case->scene->score_heads && ts_names_context(name))
        size = actor->width / the_case->scene->score_heads;
    return size > 1 && actor->width % size == 0 && actor->width > size ? size : 0;
}

static size_t count_true(const bool *values, size_t count)
{
    size_t number = 0;
    for (size_t i = 0; i < count; i++)
        number += values[i];
    return number;
}

/* Heads that are touched, when whole heads are. */
static bool by_heads(const struct ts_actor *actor, size_t size, const bool *channels, bool *heads)
{
    if (!size || size == actor->width)
        return false;
    for (size_t head = 0; head < actor->width / size; head++) {
        size_t touched = count_true(channels + head * size, size);
        if (touched && (double)touched < NEARLY_ALL * (double)size)
            return false;
        heads[head] = touched > 0;
    }
    return true;
}

static void describe_rectangle(const struct ts_case *the_case, const bool *rows, const bool *channels,
                               struct ts_region *region)
{
    const struct ts_actor *actor = the_case->actor;
    size_t size = actor->heads > 1 ? actor->inner : ts_folded_head(the_case), number = size ? actor->width / size : 0;
    bool *heads = calloc(number + 1, sizeof *heads);
    char row_text[64] = "", channel_text[64] = "";
    const char *row_word = ts_case_row_word(the_case);
    const char *channel_word = ts_case_direct(the_case) ? "column" : ts_case_is_image(the_case) ? "pixel" : "channel";
    size_t named = region->channels;
    if (!region->all_rows)
        region->pieces += 2 * ts_region_list(the_case, rows, actor->rows, true, row_text, sizeof row_text);
    if (!region->all_channels) {
        if (heads && by_heads(actor, size, channels, heads)) {
            region->pieces += 2 * ts_region_list(the_case, heads, number, false, channel_text, sizeof channel_text);
            channel_word = "head";
            named = count_true(heads, number);
        } else {
            region->pieces +=
                2 * ts_region_list(the_case, channels, actor->width, false, channel_text, sizeof channel_text);
        }
    }
    free(heads);
    if (region->whole)
        snprintf(region->text, sizeof region->text, "every element");
    else if (region->all_rows)
        snprintf(region->text, sizeof region->text, "%s%s %s", channel_word, named > 1 ? "s" : "", channel_text);
    else if (region->all_channels)
        snprintf(region->text, sizeof region->text, "%s%s %s", row_word, region->rows > 1 ? "s" : "", row_text);
    else
        snprintf(region->text, sizeof region->text, "%s%s %s of %s%s %s", channel_word, named > 1 ? "s" : "",
                 channel_text, row_word, region->rows > 1 ? "s" : "", row_text);
}

/* "token 3, head 1, channel 5"; "row 3, column 21" of a weight. */
static const char *place_text(const struct ts_case *the_case, size_t at, char text[96])
{
    const struct ts_actor *actor = the_case->actor;
    const char *channel = ts_case_direct(the_case) ? "column" : ts_case_is_image(the_case) ? "pixel" : "channel";
    size_t number = at % actor->width;
    uint64_t row = ts_case_row(the_case, at / actor->width);
    if (actor->heads > 1 && !ts_case_direct(the_case))
        snprintf(text, 96, "%s %" PRIu64 ", %s %zu, %s %zu", ts_case_row_word(the_case), row,
                 ts_case_is_image(the_case) ? "line" : "head", number / actor->inner, channel, number % actor->inner);
    else
        snprintf(text, 96, "%s %" PRIu64 ", %s %zu", ts_case_row_word(the_case), row, channel, number);
    return text;
}

static void describe_flat(const struct ts_case *the_case, const bool *mask, struct ts_region *region)
{
    size_t first = SIZE_MAX, last = 0, runs = 0;
    for (size_t i = 0; i < the_case->total; i++)
        if (mask[i]) {
            first = first == SIZE_MAX ? i : first;
            last = i;
            runs += i == 0 || !mask[i - 1];
        }
    if ((double)region->count >= NEARLY_ALL * (double)(last - first + 1)) {
        region->pieces = 2;
        if (last + 1 == the_case->total)
            snprintf(region->text, sizeof region->text, "everything from %s on",
                     place_text(the_case, first, (char[96]){0}));
        else
            snprintf(region->text, sizeof region->text, "%s to %s", place_text(the_case, first, (char[96]){0}),
                     place_text(the_case, last, (char[96]){0}));
        return;
    }
    region->pieces = 2 * runs;
    if (ts_case_complete(the_case))
        snprintf(region->text, sizeof region->text, "%zu elements in %zu places", region->count, runs);
    else /* how many there are in all of it is told elsewhere */
        snprintf(region->text, sizeof region->text, "scattered elements");
}

void ts_region_trim(const struct ts_case *the_case, bool *mask)
{
    const struct ts_actor *actor = the_case->actor;
    size_t *rows = calloc(actor->rows + actor->width, sizeof *rows), *channels = rows + actor->rows;
    size_t most_rows = 0, most_channels = 0, all = 0, outside = 0, first = the_case->total, last = 0;
    if (!rows)
        return;
    for (size_t i = 0; i < the_case->total; i++)
        if (mask[i]) {
            all++;
            first = first < i ? first : i;
            last = i;
            most_rows = ++rows[i / actor->width] > most_rows ? rows[i / actor->width] : most_rows;
            most_channels = ++channels[i % actor->width] > most_channels ? channels[i % actor->width] : most_channels;
        }
    for (size_t i = 0; i < the_case->total; i++)
        outside +=
            mask[i] && (2 * rows[i / actor->width] < most_rows || 2 * channels[i % actor->width] < most_channels);
    /* one stretch of memory, which may begin and end within a row, is whole as it is */
    for (size_t i = 0; i < the_case->total && outside * 20 < all && all && all != last - first + 1; i++)
        mask[i] = mask[i] && 2 * rows[i / actor->width] >= most_rows && 2 * channels[i % actor->width] >= most_channels;
    free(rows);
}

bool ts_region_of(const struct ts_case *the_case, const bool *mask, struct ts_region *region)
{
    const struct ts_actor *actor = the_case->actor;
    bool *rows = calloc(actor->rows + actor->width, sizeof *rows), *channels = rows + actor->rows;
    size_t counted = 0;
    *region = (struct ts_region){0};
    if (!rows)
        return false;
    for (size_t i = 0; i < the_case->total; i++) {
        counted += !ts_case_aside(the_case, i / actor->width);
        if (mask[i]) {
            region->count++;
            rows[i / actor->width] = true;
            channels[i % actor->width] = true;
        }
    }
    region->rows = count_true(rows, actor->rows);
    region->channels = count_true(channels, actor->width);
    region->all_rows = region->rows == actor->rows;
    region->all_channels = region->channels == actor->width;
    region->rectangle =
        region->count && (double)region->count >= NEARLY_ALL * (double)region->rows * (double)region->channels;
    region->whole = region->rectangle && (double)region->count >= NEARLY_ALL * (double)counted;
    if (region->rectangle)
        describe_rectangle(the_case, rows, channels, region);
    else if (region->count)
        describe_flat(the_case, mask, region);
    free(rows);
    return region->count > 0;
}
