/* Owns the forms: the ways in which the ranks of a parallel run may hold one tensor, each as a view of the whole put
 * together again. Whether it is the right one is for others to prove. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/buffer.h"
#include "pair/align_forms.h"

/* Costs stand above those of layouts: a join that needs no layout goes first. */
#define COST_EQUAL       0u
#define COST_JOIN        1u
#define COST_SUM         5u
#define COST_SOME        10u /* only every n-th rank */
#define COST_ZIGZAG      25u
#define COST_FUSED       30u
#define COST_INTERLEAVED 40u
#define COST_ODD         20u /* fused, though the name says otherwise */
#define COST_ONE         50u /* one rank of several that differ */

/* No head is wider. */
#define MAX_WIDTH 65536

static struct ts_arena *scratch(const struct ts_align_forms *f)
{
    return &f->search->scratch;
}

static void add(struct ts_align_forms *f, const struct ts_align_form *form)
{
    if (!form->words || (f->wanted && form->view.count != f->wanted))
        return;
    if (f->form_count == f->capacity) {
        size_t capacity = f->capacity ? 2 * f->capacity : 16;
        struct ts_align_form *list = ts_arena_array(scratch(f), capacity, sizeof *list);
        if (!list)
            return;
        if (f->form_count)
            memcpy(list, f->list, f->form_count * sizeof *list);
        f->list = list;
        f->capacity = capacity;
    }
    f->list[f->form_count++] = *form;
}

/* All shards alike but along `axis`. */
bool ts_align_shards_fit(const struct ts_align_forms *f, unsigned axis)
{
    const struct ts_view *first = f->shards;
    for (size_t i = 0; i < f->count; i++) {
        if (f->shards[i].rank != first->rank)
            return false;
        for (unsigned k = 0; k < first->rank; k++)
            if (k != axis && f->shards[i].shape[k] != first->shape[k])
                return false;
    }
    return true;
}

static bool alike(const struct ts_align_forms *f)
{
    return ts_align_shards_fit(f, UINT32_MAX);
}

/* How far apart two shards of the side are; 0.1 is more than honest noise between ranks. */
#define SAME 0.1
static enum ts_status apart(const struct ts_align_forms *f, const struct ts_view *one, const struct ts_view *other,
                            double *distance, struct ts_error *error)
{
    struct ts_align_search same = *f->search;
    struct ts_align_fit fit = {0};
    enum ts_status status;
    same.scale[0] = same.scale[1] = f->search->scale[f->side];
    status = ts_align_measure(&same, one, other, 8192, &fit, error);
    *distance = fit.fit;
    return status;
}

/* How many neighbouring ranks hold the same, the most of it. */
static enum ts_status count_copies(const struct ts_align_forms *f, const struct ts_view *shards, size_t *copies,
                                   struct ts_error *error)
{
    size_t run = 1;
    double distance;
    *copies = 0;
    for (size_t i = 1; i <= f->count; i++) {
        distance = INFINITY;
        if (i < f->count)
            TS_TRY(apart(f, &shards[i - run], &shards[i], &distance, error));
        if (distance <= SAME) {
            run++;
            continue;
        }
        while (run) { /* the greatest common divisor of all runs */
            size_t left = *copies % run;
            *copies = run;
            run = left;
        }
        run = 1;
    }
    return TS_OK;
}

static void add_plain_joins(struct ts_align_forms *f)
{
    for (unsigned axis = 0; axis < f->shards->rank; axis++) {
        struct ts_view joined;
        if (ts_align_shards_fit(f, axis) &&
            ts_view_join(TS_JOIN_CONCAT, axis, f->shards, f->count, scratch(f), &joined))
            add(f, &(struct ts_align_form){joined,
                                           ts_arena_printf(scratch(f), "join %zu shards on axis %u", f->count, axis),
                                           COST_JOIN,
                                           TS_FORM_PLAIN,
                                           axis,
                                           false,
                                           {0}});
    }
}

/* Fewer pieces than ranks (key and value heads): each is held by `copies` neighbouring ranks. only: so many, or 0. */
static void add_some_ranks(struct ts_align_forms *f, size_t only)
{
    for (size_t copies = 2; copies < f->count; copies++) {
        size_t count = f->count / copies;
        struct ts_view *some, joined;
        if (f->count % copies != 0 || (only && copies != only) ||
            !(some = ts_arena_array(scratch(f), count, sizeof *some)))
            continue;
        for (size_t i = 0; i < count; i++)
            some[i] = f->shards[i * copies];
        for (unsigned axis = 0; axis < f->shards->rank; axis++)
            if (ts_align_shards_fit(f, axis) && ts_view_join(TS_JOIN_CONCAT, axis, some, count, scratch(f), &joined))
                add(f,
                    &(struct ts_align_form){joined,
                                            ts_arena_printf(scratch(f), "join %zu of %zu shards, step %zu, on axis %u",
                                                            count, f->count, copies, axis),
                                            COST_SOME,
                                            TS_FORM_PLAIN,
                                            axis,
                                            true,
                                            {0}});
    }
}

static void add_sum(struct ts_align_forms *f)
{
    struct ts_view sum;
    if (alike(f) && ts_view_join(TS_JOIN_SUM, 0, f->shards, f->count, scratch(f), &sum))
        add(f, &(struct ts_align_form){sum,
                                       ts_arena_printf(scratch(f), "sum of %zu shards", f->count),
                                       COST_SUM,
                                       TS_FORM_PLAIN,
                                       UINT32_MAX,
                                       false,
                                       {0}});
}

static void add_first_of_equal(struct ts_align_forms *f)
{
    add(f, &(struct ts_align_form){f->shards[0],
                                   ts_arena_printf(scratch(f), "rank 0 of %zu equal shards", f->count),
                                   COST_EQUAL,
                                   TS_FORM_PLAIN,
                                   UINT32_MAX,
                                   true,
                                   {0}});
}

/* Equal shards, or one of unequal ones. Ranks that differ from rank 0 are named. */
static enum ts_status add_single_ranks(struct ts_align_forms *f, struct ts_error *error)
{
    struct ts_buffer differ;
    size_t different = 0;
    if (!alike(f) || f->shards->count != f->wanted)
        return TS_OK;
    ts_buffer_init(&differ, 4096);
    for (size_t i = 1; i < f->count; i++) {
        double distance;
        enum ts_status status = apart(f, &f->shards[0], &f->shards[i], &distance, error);
        if (status != TS_OK) {
            ts_buffer_release(&differ);
            return status;
        }
        if (distance > SAME) {
            ts_buffer_printf(&differ, "%s%zu", different ? " " : "", i);
            different++;
        }
    }
    if (different == 0) {
        add_first_of_equal(f);
    } else {
        for (size_t i = 0; i < f->count; i++)
            add(f, &(struct ts_align_form){
                       f->shards[i],
                       i || different + 1 == f->count
                           ? ts_arena_printf(scratch(f), "rank %zu of %zu, which differ", i, f->count)
                           : ts_arena_printf(scratch(f), "rank 0 of %zu, rank%s %s differ%s", f->count,
                                             different > 1 ? "s" : "", differ.data, different > 1 ? "" : "s"),
                       COST_ONE + (i ? 1 : 0),
                       TS_FORM_PLAIN,
                       UINT32_MAX,
                       true,
                       {0}});
    }
    ts_buffer_release(&differ);
    return TS_OK;
}

/* Heads dealt out to the ranks in turn: entry [head, rank, width] of the whole axis is [head, width] of that rank. */
static void add_interleaved(struct ts_align_forms *f, unsigned axis)
{
    const struct ts_view *first = f->shards;
    const uint64_t size = first->shape[axis];
    uint64_t shape[TS_MAX_RANK];
    if (first->rank + 2 > TS_MAX_RANK)
        return;
    for (uint64_t width = 1; width < size && width <= MAX_WIDTH; width++) {
        struct ts_view *apart, joined;
        unsigned cost = COST_INTERLEAVED;
        size_t i;
        if (size % width != 0 || !(apart = ts_arena_array(scratch(f), f->count, sizeof *apart)))
            continue;
        memcpy(shape, first->shape, axis * sizeof *shape);
        memcpy(shape + axis, (uint64_t[3]){size / width, 1, width}, 3 * sizeof *shape);
        memcpy(shape + axis + 3, first->shape + axis + 1, (first->rank - axis - 1) * sizeof *shape);
        for (i = 0; i < f->count; i++)
            if (!ts_view_reshape(&f->shards[i], shape, first->rank + 2, scratch(f), &apart[i]))
                break;
        if (i < f->count || !ts_view_join(TS_JOIN_CONCAT, axis + 1, apart, f->count, scratch(f), &joined))
            continue;
        if (f->search->hints->heads && size * f->count == f->search->hints->heads * width)
            cost -= 5;
        add(f, &(struct ts_align_form){joined,
                                       ts_arena_printf(scratch(f),
                                                       "join %zu shards on axis %u, heads of %" PRIu64 " interleaved",
                                                       f->count, axis, width),
                                       cost,
                                       TS_FORM_INTERLEAVED,
                                       axis,
                                       false,
                                       {width}});
    }
}

/* Each rank holds its share of `parts` projections one after the other. sizes: of a share. Where there are fewer key
 * and value heads than ranks, the shares behind the first are held by `copies` ranks each. */
static void add_fused(struct ts_align_forms *f, unsigned axis, const uint64_t *sizes, unsigned parts, size_t copies)
{
    struct ts_view *pieces = ts_arena_array(scratch(f), parts * f->count, sizeof *pieces), joined;
    uint64_t begin = 0;
    size_t count = 0;
    const char *words;
    for (unsigned part = 0; pieces && part < parts; begin += sizes[part++])
        for (size_t i = 0; i < f->count; i += part ? copies : 1)
            if (!ts_view_slice(&f->shards[i], axis, begin, sizes[part], 1, scratch(f), &pieces[count++]))
                return;
    if (!pieces || !ts_view_join(TS_JOIN_CONCAT, axis, pieces, count, scratch(f), &joined))
        return;
    words = ts_arena_printf(scratch(f), "join %zu shards on axis %u, in %u parts %" PRIu64 "+%" PRIu64, f->count, axis,
                            parts, sizes[0], sizes[1]);
    if (words && parts == 3)
        words = ts_arena_printf(scratch(f), "%s+%" PRIu64, words, sizes[2]);
    if (words && copies > 1)
        words = ts_arena_printf(scratch(f), "%s, %zu copies of each but the first", words, copies);
    add(f, &(struct ts_align_form){joined,
                                   words,
                                   COST_FUSED + (unsigned)(copies > 1) + (f->search->hints->separate ? COST_ODD : 0),
                                   TS_FORM_FUSED,
                                   axis,
                                   false,
                                   {sizes[0] * f->count, sizes[1] * f->count / copies}});
}

static enum ts_status add_all_fused(struct ts_align_forms *f, unsigned axis, struct ts_error *error)
{
    const uint64_t size = f->shards->shape[axis];
    struct ts_view *keys_of = ts_arena_array(scratch(f), f->count, sizeof *keys_of);
    if (size % 2 == 0)
        add_fused(f, axis, (uint64_t[2]){size / 2, size / 2}, 2, 1);
    /* `group` query heads to each key and value head of a rank */
    for (uint64_t group = 1; group <= 32 && keys_of; group++) {
        uint64_t keys = size / (group + 2);
        size_t only = 0;
        if (size % (group + 2) != 0)
            continue;
        for (size_t i = 0; i < f->count && !f->wanted; i++)
            if (!ts_view_slice(&f->shards[i], axis, group * keys, 2 * keys, 1, scratch(f), &keys_of[i]))
                return TS_OK;
        if (!f->wanted)
            TS_TRY(count_copies(f, keys_of, &only, error));
        for (size_t copies = 1; copies <= f->count; copies++)
            if (f->count % copies == 0 && (!only || copies == only))
                add_fused(f, axis, (uint64_t[3]){group * keys, keys, keys}, 3, copies);
    }
    return TS_OK;
}

/* Context parallel: rank r holds chunk r from the front and chunk r from the back. */
static void add_zigzag(struct ts_align_forms *f, unsigned axis)
{
    const uint64_t half = f->shards->shape[axis] / 2;
    struct ts_view *pieces = ts_arena_array(scratch(f), 2 * f->count, sizeof *pieces), joined;
    if (!pieces || f->shards->shape[axis] % 2 != 0)
        return;
    for (size_t i = 0; i < f->count; i++)
        if (!ts_view_slice(&f->shards[i], axis, 0, half, 1, scratch(f), &pieces[i]) ||
            !ts_view_slice(&f->shards[i], axis, half, half, 1, scratch(f), &pieces[2 * f->count - 1 - i]))
            return;
    if (ts_view_join(TS_JOIN_CONCAT, axis, pieces, 2 * f->count, scratch(f), &joined))
        add(f,
            &(struct ts_align_form){joined,
                                    ts_arena_printf(scratch(f), "join %zu shards on axis %u, zigzag", f->count, axis),
                                    COST_ZIGZAG,
                                    TS_FORM_ZIGZAG,
                                    axis,
                                    false,
                                    {0}});
}

/* Where the size of the whole is not known, what the ranks hold tells how many copies there are. */
static enum ts_status add_unsized(struct ts_align_forms *f, struct ts_error *error)
{
    size_t copies = 1;
    if (alike(f))
        TS_TRY(count_copies(f, f->shards, &copies, error));
    if (copies == f->count) {
        add_first_of_equal(f);
    } else if (copies > 1) {
        add_some_ranks(f, copies);
    } else {
        add_plain_joins(f);
        add_sum(f);
    }
    return TS_OK;
}

enum ts_status ts_align_plain_forms(struct ts_align_forms *forms, struct ts_error *error)
{
    if (!forms->wanted)
        return add_unsized(forms, error);
    TS_TRY(add_single_ranks(forms, error));
    add_plain_joins(forms);
    add_sum(forms);
    return TS_OK;
}

enum ts_status ts_align_other_forms(struct ts_align_forms *forms, struct ts_error *error)
{
    if (forms->wanted)
        add_some_ranks(forms, 0);
    for (unsigned axis = 0; alike(forms) && axis < forms->shards->rank; axis++) {
        add_zigzag(forms, axis);
        TS_TRY(add_all_fused(forms, axis, error));
        add_interleaved(forms, axis);
    }
    return TS_OK;
}
