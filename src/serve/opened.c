/* Owns the life of what is open, and what /tensors/P means. */
#include "serve/opened.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/call.h"

#define TOUCHED_MOST ((uint64_t)48 << 20)
#define FAULT_BYTES  ((uint64_t)64 << 10) /* Linux maps so much around a fault */

static _Atomic uint64_t serials;

struct ts_opened *ts_opened_new(void)
{
    struct ts_opened *opened = calloc(1, sizeof *opened);
    if (!opened)
        return NULL;
    atomic_init(&opened->holders, 1);
    opened->serial = atomic_fetch_add(&serials, 1);
    pthread_mutex_init(&opened->lock, NULL);
    ts_arena_init(&opened->arena, (size_t)256 << 20);
    return opened;
}

enum ts_status ts_opened_prepare(struct ts_opened *opened, struct ts_error *error)
{
    const struct ts_bundle *bundle = opened->bundles[0] ? opened->bundles[0] : opened->bundles[1];
    size_t count = opened->compared ? opened->comparison.pairing.count : bundle->count;
    const char **names = calloc(count + 1, sizeof *names);
    bool good = names != NULL;
    for (size_t i = 0; good && i < count; i++)
        names[i] = opened->compared ? opened->comparison.pairing.pairs[i].name : bundle->tensors[i]->name;
    good = good && ts_names_make(names, count, 0, &opened->arena, &opened->pair_names);
    free(names);
    if (opened->compared) {
        opened->remaps = calloc(count + 1, sizeof *opened->remaps);
        opened->worst = calloc(count + 1, sizeof *opened->worst);
        good = good && opened->remaps && opened->worst;
    }
    return good ? TS_OK : ts_fail_memory(error);
}

struct ts_opened *ts_opened_hold(struct ts_opened *opened)
{
    atomic_fetch_add(&opened->holders, 1);
    return opened;
}

void ts_remap_drop(struct ts_remap *remap)
{
    if (!remap || atomic_fetch_sub(&remap->holders, 1) != 1)
        return;
    ts_judgement_release(&remap->judgement);
    ts_arena_release(&remap->arena);
    free(remap);
}

void ts_opened_drop(struct ts_opened *opened)
{
    if (!opened || atomic_fetch_sub(&opened->holders, 1) != 1)
        return;
    for (size_t i = 0; opened->compared && i < opened->comparison.pairing.count; i++) {
        if (opened->remaps)
            ts_remap_drop(opened->remaps[i]);
        if (opened->worst)
            free(opened->worst[i]);
    }
    free(opened->remaps);
    free(opened->worst);
    if (opened->diagnosed)
        ts_diagnosis_release(&opened->diagnosis);
    if (opened->stats)
        ts_check_release(&opened->check);
    free(opened->stats);
    if (opened->compared) {
        ts_comparison_release(&opened->comparison);
    } else {
        ts_bundle_free(opened->bundles[0]);
        ts_bundle_free(opened->bundles[1]);
    }
    ts_arena_release(&opened->arena);
    pthread_mutex_destroy(&opened->lock);
    free(opened);
}

void ts_opened_forget_pages(struct ts_opened *opened)
{
    for (unsigned side = 0; side < 2; side++)
        for (size_t i = 0; opened->bundles[side] && i < opened->bundles[side]->source_count; i++) {
            const struct ts_source *source = opened->bundles[side]->sources[i];
            ts_source_forget(source, 0, source->size);
        }
    atomic_store(&opened->touched, 0);
}

void ts_opened_touch(struct ts_opened *opened, uint64_t places, uint64_t bytes)
{
    bytes += places * FAULT_BYTES;
    if (atomic_fetch_add(&opened->touched, bytes) + bytes > TOUCHED_MOST)
        ts_opened_forget_pages(opened);
}

double ts_badness_of(double a, double b)
{
    double distance;
    if (isnan(a) && isnan(b))
        return DBL_MAX;
    if (isnan(a) || isnan(b))
        return (double)INFINITY;
    if (a == b)
        return 0; /* equal infinities too */
    distance = fabs(a - b);
    return distance;
}

/* "12", "a12", "b3". */
static bool parse_id(const char *text, int *side, size_t *index)
{
    char *end;
    *side = *text == 'a' ? 0 : *text == 'b' ? 1 : -1;
    text += *side >= 0;
    if (*text < '0' || *text > '9' || strlen(text) > 9)
        return false;
    *index = (size_t)strtoul(text, &end, 10);
    return *end == '\0';
}

static void take_pair(struct ts_focus *subject, size_t index)
{
    struct ts_opened *opened = subject->opened;
    subject->pair = &opened->comparison.pairing.pairs[index];
    subject->delta = subject->pair->problem ? NULL : &opened->comparison.deltas[index];
    subject->verdict = &opened->comparison.judgement.verdicts[index];
    pthread_mutex_lock(&opened->lock);
    subject->remap = opened->remaps[index];
    if (subject->remap)
        atomic_fetch_add(&subject->remap->holders, 1);
    pthread_mutex_unlock(&opened->lock);
    if (subject->remap) {
        subject->pair = &subject->remap->pair;
        subject->delta = subject->pair->problem ? NULL : &subject->remap->delta;
        subject->verdict = &subject->remap->judgement.verdicts[0];
    }
    subject->views[0] = subject->pair->a;
    subject->views[1] = subject->pair->b;
    subject->has[0] = true;
    subject->has[1] = ts_view_same_shape(&subject->pair->a, &subject->pair->b);
}

static bool take_tensor(struct ts_focus *subject, unsigned side, size_t index)
{
    subject->tensor = subject->opened->bundles[side]->tensors[index];
    subject->has[side] = true;
    return ts_view_of(subject->tensor, &subject->arena, &subject->views[side]);
}

/* ?side=a or b */
static bool take_one_side(struct ts_call *call, struct ts_focus *subject)
{
    char side[4] = "";
    if (!MHD_lookup_connection_value(call->connection, MHD_GET_ARGUMENT_KIND, "side"))
        return true;
    if (!ts_call_parameter(call, "side", side, sizeof side) || !(strcmp(side, "a") == 0 || strcmp(side, "b") == 0) ||
        !(subject->pair || subject->has[side[0] == 'b'])) {
        ts_call_fail(call, 400, NULL, "side must be a or b, and there");
        return false;
    }
    subject->has[side[0] == 'b'] = true;
    subject->has[side[0] != 'b'] = false;
    return true;
}

bool ts_focus_take(struct ts_call *call, struct ts_focus *subject)
{
    struct ts_opened *opened = call->opened;
    const struct ts_view *view;
    size_t index, count = 0;
    int side;
    *subject = (struct ts_focus){.opened = opened};
    ts_arena_init(&subject->arena, (size_t)4 << 20);
    if (parse_id(call->captures[1], &side, &index)) {
        if (side < 0)
            count = opened->compared ? opened->comparison.pairing.count : 0;
        else if (opened->bundles[side])
            count = opened->bundles[side]->count;
    }
    if (index >= count || !count) {
        ts_call_fail(call, 404, "the ids are in the list of tensors", "there is no tensor \"%.40s\"",
                     call->captures[1]);
        ts_arena_release(&subject->arena);
        return false;
    }
    subject->index = index;
    if (side < 0) {
        take_pair(subject, index);
    } else if (!take_tensor(subject, (unsigned)side, index)) {
        ts_call_fail(call, 503, NULL, "out of memory");
        ts_focus_release(subject);
        return false;
    }
    if (!take_one_side(call, subject)) {
        ts_focus_release(subject);
        return false;
    }
    view = &subject->views[subject->has[0] ? 0 : 1];
    subject->rank = view->rank;
    subject->shape = view->shape;
    subject->count = view->count;
    subject->components = ts_type_info(view->tensor->type)->components == 2 ? 2 : 1;
    snprintf(subject->key, sizeof subject->key, "%" PRIu64 ".%d.%zu.%" PRIu64 ".%d%d", opened->serial, side, index,
             subject->remap ? subject->remap->serial : 0, subject->has[0], subject->has[1]);
    return true;
}

void ts_focus_release(struct ts_focus *subject)
{
    ts_remap_drop(subject->remap);
    ts_arena_release(&subject->arena);
}

bool ts_focus_block(struct ts_focus *subject, unsigned side, const uint64_t *start, const uint64_t *count,
                    struct ts_view *block)
{
    *block = subject->views[side];
    for (unsigned i = 0; i < subject->rank; i++)
        if (count[i] != block->shape[i] && !ts_view_slice(block, i, start[i], count[i], 1, &subject->arena, block))
            return false;
    return true;
}
