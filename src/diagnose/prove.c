/* Owns the proof of what a case has found: a case of a large tensor holds some of its rows, and a claim about all of
 * them is put to the others, so many at a time that memory stays what it was. What becomes of the claim there decides
 * its confidence, and the summary says how many rows it was tried on. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/case.h"

#define PROVED     2   /* claims, from the best one on */
#define RIVAL      0.1 /* that are so near it in rank */
#define MOST_WORK  6e7 /* numbers that are read and looked at for one proof: a few seconds */
#define LOOKS      8   /* so often a family looks at each number of the case */
#define REACH      10  /* earlier tensors that are loaded at least */
#define LEAST_ROWS 4   /* fewer say nothing */
#define HOLDS      0.9 /* share of what it explained at first that a claim must explain everywhere */

/* Which rows have been looked at. */
struct rows {
    uint64_t first, count; /* of all of them */
    bool *seen;
    size_t looked;
    uint64_t at, phase; /* of the walk */
};

static bool rows_open(struct rows *rows, const struct ts_case_state *state)
{
    const struct ts_actor *actor = state->face.actor;
    *rows = (struct rows){0};
    if (state->direct) {
        rows->count = state->scene.pairs[actor->pair].a.count / state->own_last;
    } else {
        rows->first = ts_scene_first(&state->scene);
        rows->count = ts_scene_sequence(&state->scene);
        if (state->scene.batch > 1 && !rows->first && actor->rows == state->scene.taken_count &&
            state->scene.taken[actor->rows - 1] >= rows->count)
            rows->count = state->scene.tokens;
        if (actor->rows != state->scene.taken_count)
            return false;
    }
    if (rows->count <= actor->rows || rows->count > (uint64_t)1 << 24 || !(rows->seen = calloc((size_t)rows->count, 1)))
        return false;
    for (size_t i = 0; i < actor->rows; i++)
        rows->seen[state->direct ? state->own_rows[i] : state->scene.taken[i] - rows->first] = true;
    rows->looked = actor->rows;
    return true;
}

static int by_number(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* The next rows that nobody has looked at, in order: each batch spreads over all of them. */
static size_t next_rows(struct rows *rows, uint64_t stride, size_t most, uint64_t *out)
{
    size_t count = 0;
    while (rows->phase < stride && count < most) {
        if (rows->at >= rows->count) {
            rows->at = ++rows->phase;
            continue;
        }
        if (!rows->seen[rows->at])
            out[count++] = rows->first + rows->at;
        rows->at += stride;
    }
    qsort(out, count, sizeof *out, by_number);
    return count;
}

/* How far back the claim looks: to its operation's inputs, and to whatever tensor it names. */
static size_t reach_of(const struct ts_case_state *state, const struct ts_cause *cause)
{
    const struct ts_operation *operation = &state->face.operation;
    size_t index = state->face.actor->pair, reach = REACH;
    for (unsigned k = 0; k < operation->input_count; k++)
        reach = index - operation->inputs[k] > reach ? index - operation->inputs[k] : reach;
    for (size_t back = 1; back < TS_SCENE_WINDOW && back <= index; back++)
        if (back > reach && strstr(cause->summary, state->scene.pairs[index - back].name))
            reach = back;
    return reach < index ? reach : index;
}

/* Numbers that a batch of rows takes. */
static double work_of(const struct ts_case_state *state, size_t reach, size_t family)
{
    const struct ts_actor *actor = state->face.actor;
    double width = 0, tokens = (double)ts_scene_sequence(&state->scene);
    if (state->direct)
        return (double)state->face.total * (2 + LOOKS);
    for (size_t back = 0; back <= reach; back++)
        if (!state->scene.pairs[actor->pair - back].problem && tokens > 0)
            width += (double)state->scene.pairs[actor->pair - back].a.count / (double)state->scene.tokens;
    width += (double)actor->width * (ts_families[family] == &ts_family_wiring ? 5 * LOOKS : LOOKS); /* at many others */
    /* attention works with every key */
    if (state->face.operation.kind == TS_OPERATION_SCORES)
        width += (double)actor->width * 16;
    else if (ts_families[family] == &ts_family_attention || ts_operation_is_product(&state->face.operation))
        width += (double)actor->width * tokens / 12;
    return width * (double)actor->rows;
}

/* One batch: the same family, asked again. Adds what there was to explain, and what the claim explains. */
static bool try_batch(const struct ts_case_state *state, const struct ts_case_entry *entry, size_t reach,
                      const uint64_t *list, size_t count, double *made, double *explained)
{
    struct ts_case_state *other = malloc(sizeof *other);
    struct ts_diagnosis aside = {0};
    struct ts_case_rows rows = {list, count, reach, &state->glance};
    struct ts_error ignored;
    bool good;
    if (!other)
        return false;
    ts_arena_init(&aside.arena, (size_t)1 << 22);
    good = ts_case_open_at(other, state->scene.pairs, state->deltas, state->pair_count, state->face.actor->pair,
                           state->evidence, &rows, &aside, &ignored) == TS_OK &&
           other->face.total && other->direct == state->direct;
    if (good && !other->quiet) {
        double energy = other->face.error - other->face.noise;
        other->family = entry->family;
        other->only = entry->cause.id;
        ts_families[entry->family]->propose(&other->face);
        *made += energy > 0 ? energy : 0;
        for (size_t i = 0; i < other->book->count; i++)
            if (strcmp(other->book->entries[i].cause.id, entry->cause.id) == 0)
                *explained += energy > 0 ? energy * other->book->entries[i].explained : 0;
    }
    ts_case_release(other);
    free(other);
    ts_arena_release(&aside.arena);
    return good;
}

/* A factor is told by what was measured on every element: what it leaves is the part of the candidate that is not along
 * the reference. */
static bool is_proved_by_delta(const struct ts_case_state *state, const struct ts_case_entry *entry, double *share)
{
    const struct ts_delta *delta = state->face.delta;
    double ratio, left;
    if ((strcmp(entry->cause.id, "scaled") != 0 && strcmp(entry->cause.id, "sign-flipped") != 0) || !delta ||
        entry->freedom > 1 || state->replayed || state->face.operation.kind != TS_OPERATION_NONE ||
        entry->cause.proof.of || !(delta->rel_l2 > 0) || !isfinite(delta->rel_l2) || !isfinite(delta->norm_ratio) ||
        !isfinite(delta->cosine))
        return false;
    ratio = delta->norm_ratio / delta->rel_l2;
    left = ratio * ratio * (1 - delta->cosine * delta->cosine);
    *share = left > 0 ? 1 - left : 1;
    return *share >= HOLDS * entry->explained;
}

static void say(struct ts_case_state *state, struct ts_case_entry *entry, const struct rows *rows, double share)
{
    struct ts_cause *cause = &entry->cause;
    const char *unit = ts_case_folded(&state->face) ? "stretches" : state->direct ? "rows" : "tokens", *text;
    char number[32];
    struct ts_arena *arena = &state->face.diagnosis->arena;
    if (rows->looked == rows->count)
        snprintf(number, sizeof number, "all");
    else
        snprintf(number, sizeof number, "%zu of", rows->looked);
    if (share >= HOLDS * entry->explained)
        text = ts_arena_printf(arena, entry->plain ? "%s; seen on %s %" PRIu64 " %s" : "%s; tried on %s %" PRIu64 " %s",
                               cause->summary, number, rows->count, unit);
    else
        text = ts_arena_printf(arena, "%s; on %s %" PRIu64 " %s it explains %.0f %% of the error", cause->summary,
                               number, rows->count, unit, 100 * share);
    cause->summary = text ? text : cause->summary;
    cause->proof.rows = (double)rows->looked;
    cause->proof.of_rows = (double)rows->count;
}

static void prove(struct ts_case_state *state, struct ts_case_entry *entry)
{
    struct rows rows;
    double made = state->face.error - state->face.noise, explained, work, done = 0, share = entry->explained;
    size_t most = state->face.actor->rows, reach;
    uint64_t batches, *list = NULL;
    bool known;
    /* every token has been measured */
    bool places = entry->plain && strcmp(entry->cause.id, "rows") == 0 && state->glance.tokens;
    if (!rows_open(&rows, state))
        return;
    explained = made * entry->explained;
    reach = state->direct ? 0 : reach_of(state, &entry->cause);
    work = work_of(state, reach, entry->family);
    batches = (rows.count + most - 1) / most;
    list = calloc(most, sizeof *list);
    known = is_proved_by_delta(state, entry, &share);
    if (places || known)
        rows.looked = (size_t)rows.count;
    /* a claim about a part of the tensor, and one that predicts nothing, is left as it is */
    while (list && !known && !entry->plain && !entry->cause.proof.of && made > 0 && (done += work) <= MOST_WORK) {
        size_t count = next_rows(&rows, batches, most, list);
        if (count < LEAST_ROWS || !try_batch(state, entry, reach, list, count, &made, &explained))
            break;
        rows.looked += count;
    }
    if (!known)
        share = made > 0 ? explained / made : entry->explained;
    if (share < HOLDS * entry->explained && share < entry->cause.confidence) {
        entry->rank -= entry->cause.confidence - share;
        entry->cause.confidence = share;
        entry->cause.proof.explained = share;
    }
    say(state, entry, &rows, share);
    free(list);
    free(rows.seen);
}

void ts_case_prove(struct ts_case_state *state)
{
    struct ts_case_book *book = state->book;
    if (state->complete || state->quiet)
        return;
    for (size_t i = 0; i < PROVED && i < book->count; i++)
        if (i == 0 || book->entries[i].rank > book->entries[0].rank - RIVAL)
            prove(state, &book->entries[i]);
    if (book->count > 1 && book->entries[1].rank > book->entries[0].rank &&
        book->entries[0].cause.confidence + 0.1 < book->entries[1].cause.confidence) {
        struct ts_case_entry first = book->entries[1];
        book->entries[1] = book->entries[0];
        book->entries[0] = first;
    }
}
