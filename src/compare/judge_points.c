#include "compare/judge_points.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/table.h"
#include "base/text.h"
#include "tensor/layer.h"

/* Steps over a number; *from: its digits without zeros in front. */
static const char *step_over(const char *at, const char **from)
{
    while (*at == '0' && ts_is_digit(at[1]))
        at++;
    for (*from = at; ts_is_digit(*at);)
        at++;
    return at;
}

bool ts_judge_same_point(const char *a, const char *b)
{
    unsigned differences = 0;
    while (*a && *b && differences < 2) {
        if (ts_is_digit(*a) && ts_is_digit(*b)) {
            const char *from_a, *from_b;
            a = step_over(a, &from_a);
            b = step_over(b, &from_b);
            differences += a - from_a != b - from_b || memcmp(from_a, from_b, (size_t)(a - from_a)) != 0;
        } else if (*a++ != *b++) {
            return false;
        }
    }
    return !*a && !*b && differences == 1;
}

bool ts_judge_is_repeated(const char *a, const char *b)
{
    size_t at = 0;
    const char *ignored;
    if (!ts_judge_same_point(a, b))
        return false;
    while (a[at] == b[at]) /* they differ in one number, by its digits or by how many there are */
        at++;
    while (at > 0 && ts_is_digit(a[at - 1]))
        at--;
    if (at > 0 && a[at - 1] == '#')
        return true;
    /* what opens the name and stands in front of the layer says which run of it this is */
    return ts_same_layer(a, b) && ts_same_layer(a, step_over(a + at, &ignored));
}

/* The name with one digit for every number: what all names of a point have in common. */
static const char *letters_of(struct ts_arena *arena, const char *name)
{
    char *letters = ts_arena_alloc(arena, strlen(name) + 1), *to = letters;
    const char *ignored;
    while (letters && *name) {
        if (ts_is_digit(*name)) {
            name = step_over(name, &ignored);
            *to++ = '0';
        } else {
            *to++ = *name++;
        }
    }
    if (letters)
        *to = 0;
    return letters;
}

bool ts_points_open(struct ts_points *points, const struct ts_pair *pairs, size_t count)
{
    struct ts_table groups = {0};
    struct ts_arena arena;
    size_t *last = calloc(count + 1, sizeof *last), used = 0;
    bool good;
    ts_arena_init(&arena, (size_t)1 << 30);
    *points = (struct ts_points){.pairs = pairs,
                                 .before = calloc(count + 1, sizeof *points->before),
                                 .after = calloc(count + 1, sizeof *points->after)};
    good = last && points->before && points->after && ts_table_init(&groups, count + 1);
    for (size_t i = 0; i < count && good; i++) {
        const char *letters = letters_of(&arena, pairs[i].name);
        size_t group = used;
        good = letters != NULL;
        if (!good)
            break;
        used += ts_table_put(&groups, letters, used, &group);
        points->before[i] = last[group];
        if (last[group])
            points->after[last[group] - 1] = i + 1;
        last[group] = i + 1;
    }
    ts_table_release(&groups);
    ts_arena_release(&arena);
    free(last);
    if (!good)
        ts_points_release(points);
    return good;
}

void ts_points_release(struct ts_points *points)
{
    free(points->before);
    free(points->after);
    *points = (struct ts_points){0};
}

size_t ts_points_near(struct ts_points *points, size_t i, size_t near[2 * TS_POINTS_NEAR])
{
    const char *name = points->pairs[i].name;
    size_t count = 0, first = i, steps = 0;
    while (points->before[first] && steps < TS_POINTS_NEAR) {
        first = points->before[first] - 1;
        steps++;
    }
    for (size_t k = first, behind = 0; behind <= TS_POINTS_NEAR; k = points->after[k] - 1) {
        points->asked++;
        if (ts_judge_same_point(points->pairs[k].name, name))
            near[count++] = k;
        behind += k >= i;
        if (!points->after[k])
            break;
    }
    return count;
}
