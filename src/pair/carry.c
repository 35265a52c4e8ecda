/* Owns what pairs by content say about the tensors that content alone cannot pair: in a run that went wrong nothing
 * behind the fault has the same values any more. Words that mean one thing in some layers mean it in the others; and
 * what is left between two pairs stands there in the same order on both sides. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/ordered.h"
#include "pair/pairing.h"

/* Numbers of a name that are tried. */
#define NUMBERS 6
/* Pairs by content that must be there before the order of the others is believed. */
#define ANCHORS 3
/* Runs of elements that are looked at of a pair, and the error from which on it does not agree: more than that, or so
 * many times what is usual between the two runs, as values may be near enough to be paired behind a small fault. */
#define LOOK_RUNS 64
#define AGREES    0.05
#define UNUSUAL   100
#define NOTICED   1e-3

/* A name with the number of its layer left out; words is NULL where it has none. */
struct place {
    const char *words;
    int64_t layer;
};

/* Words of A that mean the same as words of B. */
struct rule {
    const char *b;
    int64_t offset; /* layer in A minus layer in B */
    bool broken;    /* some pairs say otherwise */
};

/* The name without its number at place `which`; NULL when it has fewer. */
static char *without(const char *name, unsigned which, struct ts_arena *arena, int64_t *number)
{
    for (const char *at = name; *at;) {
        const size_t digits = strspn(at, "0123456789");
        if (digits && digits < 10 && !which--) {
            *number = strtoll(at, NULL, 10);
            return ts_arena_printf(arena, "%.*s#%s", (int)(at - name), name, at + digits);
        }
        at += digits ? digits : 1;
    }
    return NULL;
}

/* How many names of the side are the same without that number. */
static bool count_like(const struct ts_side *side, struct ts_arena *arena, struct ts_table *table, size_t **counts)
{
    size_t used = 0;
    *counts = ts_arena_array(arena, side->count * NUMBERS, sizeof **counts);
    if (!*counts || !ts_table_init(table, side->count * NUMBERS))
        return false;
    for (size_t i = 0; i < side->count; i++)
        for (unsigned which = 0; which < NUMBERS; which++) {
            int64_t number;
            const char *words = without(side->names[i], which, arena, &number);
            size_t at = used;
            if (!words)
                break;
            used += ts_table_put(table, words, used, &at);
            (*counts)[at]++;
        }
    return true;
}

/* The layer is the number that the name is known to speak of, or the only one that other names have otherwise. */
static struct place place_of(const struct ts_side *side, size_t index, struct ts_arena *arena,
                             const struct ts_table *table, const size_t *counts)
{
    const int64_t layer = side->read.list[index].layer;
    struct place found = {NULL, 0};
    for (unsigned which = 0; which < NUMBERS; which++) {
        int64_t number;
        const char *words = without(side->names[index], which, arena, &number);
        if (!words)
            break;
        if (layer >= 0 ? number != layer : counts[ts_table_get(table, words)] < 2)
            continue;
        if (layer < 0 && found.words)
            return (struct place){NULL, 0};
        found = (struct place){words, number};
        if (layer >= 0)
            break;
    }
    return found;
}

static bool list_places(const struct ts_side *side, struct ts_arena *arena, struct place **places)
{
    struct ts_table table = {0};
    size_t *counts;
    bool done = count_like(side, arena, &table, &counts);
    *places = ts_arena_array(arena, side->count, sizeof **places);
    for (size_t i = 0; done && *places && i < side->count; i++)
        (*places)[i] = place_of(side, i, arena, &table, counts);
    ts_table_release(&table);
    return done && *places;
}

static bool is_by_content(const struct ts_found *found)
{
    return strcmp(found->pair.how, "content") == 0;
}

/* What the pairs by content say. Words that stand for two things on the other side say nothing. */
static size_t learn(const struct ts_pairer *pairer, const struct place *a, const struct place *b, struct ts_table of[2],
                    struct rule *rules)
{
    size_t count = 0;
    for (size_t i = 0; i < pairer->count; i++) {
        const struct place *left = &a[pairer->found[i].a], *right = &b[pairer->found[i].b];
        const int64_t offset = left->layer - right->layer;
        size_t one, other;
        if (!is_by_content(&pairer->found[i]) || !left->words || !right->words)
            continue;
        one = ts_table_get(&of[0], left->words);
        other = ts_table_get(&of[1], right->words);
        if (one == SIZE_MAX && other == SIZE_MAX) {
            ts_table_put(&of[0], left->words, count, NULL);
            ts_table_put(&of[1], right->words, count, NULL);
            rules[count++] = (struct rule){right->words, offset, false};
            continue;
        }
        if (one != SIZE_MAX)
            rules[one].broken = rules[one].broken || one != other || rules[one].offset != offset;
        if (other != SIZE_MAX)
            rules[other].broken = rules[other].broken || one != other;
    }
    return count;
}

/* One offset holds for all layers of a run: that of most words. */
static void drop_strays(struct rule *rules, size_t count)
{
    int64_t most = 0;
    size_t votes = 0, like = 0;
    for (size_t i = 0; i < count; i++) { /* who has more than half of the votes is left in the end */
        most = votes ? most : rules[i].offset;
        votes = rules[i].offset == most ? votes + 1 : votes - 1;
    }
    for (size_t i = 0; i < count; i++)
        like += rules[i].offset == most;
    for (size_t i = 0; i < count; i++)
        rules[i].broken = rules[i].broken || like * 2 <= count || rules[i].offset != most;
}

static bool same_count(const struct ts_pairer *pairer, size_t a, size_t b)
{
    return pairer->a.bundle->tensors[a]->count == pairer->b.bundle->tensors[b]->count;
}

static enum ts_status carry_words(struct ts_pairer *pairer, const struct place *a, const struct place *b,
                                  const struct ts_table *of_a, const struct rule *rules, struct ts_table *left,
                                  struct ts_error *error)
{
    struct ts_arena *arena = &pairer->scratch;
    for (size_t i = 0; i < pairer->b.count; i++) {
        const char *key =
            b[i].words && !pairer->b.taken[i] ? ts_arena_printf(arena, "%" PRId64 " %s", b[i].layer, b[i].words) : "";
        if (!key)
            return ts_fail_memory(error);
        if (*key)
            ts_table_put(left, key, i, NULL);
    }
    for (size_t i = 0; i < pairer->a.count; i++) {
        size_t at = a[i].words && !pairer->a.taken[i] ? ts_table_get(of_a, a[i].words) : SIZE_MAX, other;
        const char *key;
        if (at == SIZE_MAX || rules[at].broken)
            continue;
        key = ts_arena_printf(arena, "%" PRId64 " %s", a[i].layer - rules[at].offset, rules[at].b);
        if (!key)
            return ts_fail_memory(error);
        other = ts_table_get(left, key);
        if (other != SIZE_MAX && !pairer->b.taken[other] && same_count(pairer, i, other))
            TS_TRY(ts_layout_single(pairer, i, other, "content of other layers", false, error));
    }
    return TS_OK;
}

/* Where a pair stands on both sides. */
struct fence {
    size_t a, b;
    double error;
    bool by_content, agrees;
};

struct fences {
    struct fence *list;     /* one for each pair, and one behind the end */
    size_t count, agreeing; /* pairs up to which values agree; 0: order says nothing */
    bool apart;             /* the runs end in other values, or in what has no partner */
};

static int by_place(const void *a, const void *b)
{
    const struct fence *left = a, *right = b;
    return left->a < right->a ? -1 : left->a > right->a;
}

static enum ts_status list_fences(const struct ts_pairer *pairer, struct ts_arena *arena, struct fences *out,
                                  struct ts_error *error)
{
    double *errors = ts_arena_array(arena, pairer->count, sizeof *errors), limit;
    struct fence *list = ts_arena_array(arena, pairer->count + 1, sizeof *list);
    size_t anchors = 0;
    *out = (struct fences){.list = list, .count = pairer->count, .apart = true};
    if (!errors || !list)
        return ts_fail_memory(error);
    for (size_t i = 0; i < pairer->count; i++) {
        const struct ts_found *found = &pairer->found[i];
        struct ts_agreement agreement = {INFINITY, 0};
        if (!found->pair.problem)
            TS_TRY(ts_agree(&found->pair.a, &found->pair.b, LOOK_RUNS, &agreement, error));
        list[i] = (struct fence){found->a, found->b, agreement.error, is_by_content(found), false};
        if (list[i].by_content)
            errors[anchors++] = agreement.error;
    }
    if (anchors < ANCHORS)
        return TS_OK;
    limit = fmin(AGREES, fmax(NOTICED, UNUSUAL * ts_nth(errors, anchors, anchors / 2)));
    qsort(list, pairer->count, sizeof *list, by_place);
    list[pairer->count] = (struct fence){.a = pairer->a.count, .b = pairer->b.count};
    for (size_t i = 0; i < pairer->count; i++) {
        list[i].agrees = list[i].error < limit;
        if (i > 0 && (list[i].a == list[i - 1].a || list[i].b <= list[i - 1].b)) {
            out->agreeing = 0; /* before another on one side, and behind it on the other */
            return TS_OK;
        }
        out->agreeing = list[i].by_content && list[i].agrees ? i + 1 : out->agreeing;
        if (list[i].a + 1 == pairer->a.count || list[i].b + 1 == pairer->b.count)
            out->apart = out->apart && !list[i].agrees;
    }
    return TS_OK;
}

/* What nobody has paired between two fences. */
struct gap {
    size_t *list[2], count[2];
    size_t *first, *last; /* of what the shorter list has: where it may stand in the longer one */
};

static void fill_gap(const struct ts_pairer *pairer, const struct fence *fence, bool opening, struct gap *gap)
{
    const struct ts_side *sides[2] = {&pairer->a, &pairer->b};
    const size_t to[2] = {fence->a, fence->b};
    for (int s = 0; s < 2; s++) {
        gap->count[s] = 0;
        for (size_t i = opening ? 0 : (s ? fence[-1].b : fence[-1].a) + 1; i < to[s]; i++)
            if (!sides[s]->taken[i])
                gap->list[s][gap->count[s]++] = i;
    }
}

/* Finds the tensors of the shorter list in the longer one, in order and by their sizes, from the front and from the
 * end: between the two lies where each may stand. False where they are not all there. */
static bool find_places(const struct ts_pairer *pairer, struct gap *gap)
{
    const bool longer = gap->count[1] > gap->count[0];
    const size_t *few = gap->list[!longer], *many = gap->list[longer];
    const size_t count = gap->count[!longer], all = gap->count[longer];
    for (size_t i = 0, at = 0; i < count; i++, at++) {
        while (at < all && !same_count(pairer, longer ? few[i] : many[at], longer ? many[at] : few[i]))
            at++;
        if (at == all)
            return false;
        gap->first[i] = at;
    }
    for (size_t i = count, at = all; i-- > 0; gap->last[i] = at) /* what is found from the front is found so too */
        do
            at--;
        while (!same_count(pairer, longer ? few[i] : many[at], longer ? many[at] : few[i]));
    return true;
}

static enum ts_status pair_gap(struct ts_pairer *pairer, const struct gap *gap, struct ts_error *error)
{
    const bool longer = gap->count[1] > gap->count[0];
    for (size_t i = 0; i < gap->count[!longer]; i++) {
        const size_t one = gap->list[!longer][i], other = gap->list[longer][gap->first[i]], before = pairer->count;
        if (gap->first[i] != gap->last[i])
            continue;
        TS_TRY(ts_layout_single(pairer, longer ? one : other, longer ? other : one, "place in order", false, error));
        pairer->found[before].pair.by_order = true;
    }
    return TS_OK;
}

/* Runs that agree in the end were captured at other points where something is left over. Of others what is left stands
 * between the same pairs. As far as values agree it has to be there one by one, or on one side only; behind that a side
 * may have been captured at fewer points, and what may stand at several places stays alone. */
static enum ts_status carry_order(struct ts_pairer *pairer, struct ts_error *error)
{
    struct ts_arena *arena = &pairer->scratch;
    const size_t most = pairer->a.count > pairer->b.count ? pairer->a.count : pairer->b.count, count = pairer->count;
    struct gap gap = {.first = ts_arena_array(arena, most, sizeof *gap.first),
                      .last = ts_arena_array(arena, most, sizeof *gap.last)};
    struct fences fences;
    bool apart;
    for (int s = 0; s < 2; s++)
        gap.list[s] = ts_arena_array(arena, most, sizeof **gap.list);
    if (!gap.list[0] || !gap.list[1] || !gap.first || !gap.last)
        return ts_fail_memory(error);
    TS_TRY(list_fences(pairer, arena, &fences, error));
    apart = fences.agreeing && fences.apart;
    for (size_t i = 0; i < fences.agreeing && apart; i++) {
        fill_gap(pairer, &fences.list[i], i == 0, &gap);
        apart = !gap.count[0] || !gap.count[1] || (gap.count[0] == gap.count[1] && find_places(pairer, &gap));
    }
    for (size_t i = 0; i <= count && apart; i++) {
        fill_gap(pairer, &fences.list[i], i == 0, &gap);
        if (find_places(pairer, &gap))
            TS_TRY(pair_gap(pairer, &gap, error));
    }
    if (pairer->count == count)
        return TS_OK;
    return ts_pairer_note(pairer, error,
                          "%zu pair%s made by position alone, as neither names nor values tell: where "
                          "a point was captured on one side only, they may be wrong (correct them with --map)",
                          pairer->count - count, pairer->count - count == 1 ? " was" : "s were");
}

/* Whoever names two inputs that hold one tensor each, of as many elements, wants these compared, whatever the files are
 * called and however wrong the values are: there is nothing to choose from, and so nobody has to read all of them. */
enum ts_status ts_match_only(struct ts_pairer *pairer, struct ts_error *error)
{
    const size_t before = pairer->count;
    struct ts_agreement agreement;
    struct ts_pair *pair;
    if (pairer->a.count != 1 || pairer->b.count != 1 || pairer->a.taken[0] || pairer->b.taken[0] ||
        pairer->options->map_file || !same_count(pairer, 0, 0))
        return TS_OK;
    TS_TRY(ts_layout_single(pairer, 0, 0, "place in order", false, error));
    pair = &pairer->found[before].pair;
    if (pairer->count == before || pair->problem || pair->guess)
        return TS_OK;
    TS_TRY(ts_agree(&pair->a, &pair->b, LOOK_RUNS, &agreement, error));
    if (agreement.correlation >= 0.8 && agreement.error <= TS_SAME_TENSOR)
        pair->how = "content";
    return TS_OK;
}

enum ts_status ts_match_carried(struct ts_pairer *pairer, struct ts_error *error)
{
    struct ts_table of[2] = {{0}}, left = {0};
    struct place *a, *b;
    struct rule *rules;
    enum ts_status status = TS_OK;
    bool any = false;
    for (size_t i = 0; i < pairer->count && !any; i++)
        any = is_by_content(&pairer->found[i]);
    if (!any)
        return TS_OK;
    rules = ts_arena_array(&pairer->scratch, pairer->count, sizeof *rules);
    if (!rules || !list_places(&pairer->a, &pairer->scratch, &a) || !list_places(&pairer->b, &pairer->scratch, &b) ||
        !ts_table_init(&of[0], pairer->count) || !ts_table_init(&of[1], pairer->count) ||
        !ts_table_init(&left, pairer->b.count)) {
        status = ts_fail_memory(error);
    } else {
        drop_strays(rules, learn(pairer, a, b, of, rules));
        status = carry_words(pairer, a, b, &of[0], rules, &left, error);
    }
    ts_table_release(&of[0]);
    ts_table_release(&of[1]);
    ts_table_release(&left);
    return status == TS_OK ? carry_order(pairer, error) : status;
}
