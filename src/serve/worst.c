/* Owns the search for single elements: the worst ones, the first NaN, and a sample for the scatter plot. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/json_fields.h"
#include "serve/handlers.h"
#include "serve/opened.h"
#include "serve/server.h"

#define PIECE       16384
#define AROUND      8 /* neighbours on each side, along the last axis */
#define POINTS_MOST 65536

/* Reads pieces of one or two sides. */
struct scan {
    struct ts_focus *subject;
    double *sides[2];
};

static bool start_scan(struct ts_focus *subject, struct scan *scan, size_t elements)
{
    scan->subject = subject;
    for (unsigned side = 0; side < 2; side++)
        scan->sides[side] = malloc((elements * subject->components + 1) * sizeof(double));
    return scan->sides[0] && scan->sides[1];
}

static void end_scan(struct scan *scan)
{
    free(scan->sides[0]);
    free(scan->sides[1]);
}

/* Complex numbers are looked at by their magnitude. */
static enum ts_status read_piece(struct scan *scan, uint64_t at, size_t count, struct ts_error *error)
{
    struct ts_focus *subject = scan->subject;
    for (unsigned side = 0; side < 2; side++) {
        if (!subject->has[side])
            continue;
        TS_TRY(ts_view_read_f64(&subject->views[side], at, count, scan->sides[side], error));
        for (size_t i = 0; subject->components == 2 && i < count; i++)
            scan->sides[side][i] = hypot(scan->sides[side][2 * i], scan->sides[side][2 * i + 1]);
    }
    ts_opened_touch(subject->opened, 2, count * 16);
    return TS_OK;
}

static double badness_at(const struct scan *scan, size_t i)
{
    const struct ts_focus *subject = scan->subject;
    if (subject->has[0] && subject->has[1])
        return ts_badness_of(scan->sides[0][i], scan->sides[1][i]);
    return ts_badness_of(scan->sides[subject->has[0] ? 0 : 1][i], 0);
}

struct entry {
    double badness;
    uint64_t index;
};

/* Is it less bad? Of equals the later one is. */
static bool less(struct entry a, struct entry b)
{
    return a.badness < b.badness || (a.badness == b.badness && a.index > b.index);
}

/* A heap with the least bad on top. */
static void sift_down(struct entry *heap, size_t count, size_t at)
{
    for (;;) {
        size_t child = 2 * at + 1;
        struct entry held = heap[at];
        if (child >= count)
            return;
        if (child + 1 < count && less(heap[child + 1], heap[child]))
            child++;
        if (!less(heap[child], held))
            return;
        heap[at] = heap[child];
        heap[child] = held;
        at = child;
    }
}

static void sift_up(struct entry *heap, size_t at)
{
    while (at && less(heap[at], heap[(at - 1) / 2])) {
        struct entry held = heap[at];
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
        heap[at] = held;
    }
}

static int worst_first(const void *a, const void *b)
{
    return less(*(const struct entry *)a, *(const struct entry *)b) ? 1 : -1;
}

static enum ts_status find_worst(struct ts_call *call, struct scan *scan, struct ts_worst *worst,
                                 struct ts_error *error)
{
    struct entry heap[TS_WORST_KEPT];
    uint64_t total = scan->subject->count;
    size_t kept = 0;
    for (uint64_t at = 0; at < total; at += PIECE) {
        size_t count = (size_t)(total - at < PIECE ? total - at : PIECE);
        TS_TRY(read_piece(scan, at, count, error));
        if (atomic_load(&call->server->stopping))
            return ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "the server stops");
        for (size_t i = 0; i < count; i++) {
            struct entry one = {badness_at(scan, i), at + i};
            if (!(one.badness > 0) || (kept == TS_WORST_KEPT && !less(heap[0], one)))
                continue;
            if (kept < TS_WORST_KEPT) {
                heap[kept] = one;
                sift_up(heap, kept++);
            } else {
                heap[0] = one;
                sift_down(heap, kept, 0);
            }
        }
    }
    if (kept)
        qsort(heap, kept, sizeof *heap, worst_first);
    worst->count = kept;
    for (size_t i = 0; i < kept; i++)
        worst->index[i] = heap[i].index;
    return TS_OK;
}

/* Those of a pair are kept: it is searched once. */
static enum ts_status worst_of(struct ts_call *call, struct scan *scan, struct ts_worst *worst, struct ts_error *error)
{
    const struct ts_focus *subject = scan->subject;
    struct ts_opened *opened = subject->opened;
    bool keeps = subject->pair && !subject->remap && subject->has[0] && subject->has[1], known = false;
    struct ts_worst *copy;
    if (keeps) {
        pthread_mutex_lock(&opened->lock);
        known = opened->worst[subject->index] != NULL;
        if (known)
            *worst = *opened->worst[subject->index];
        pthread_mutex_unlock(&opened->lock);
    }
    if (known)
        return TS_OK;
    TS_TRY(find_worst(call, scan, worst, error));
    copy = keeps ? malloc(sizeof *copy) : NULL;
    if (copy) {
        *copy = *worst;
        pthread_mutex_lock(&opened->lock);
        if (!opened->worst[subject->index]) {
            opened->worst[subject->index] = copy;
            copy = NULL;
        }
        pthread_mutex_unlock(&opened->lock);
        free(copy);
    }
    return TS_OK;
}

static enum ts_status find_first(struct ts_call *call, struct scan *scan, bool infinite, uint64_t *found,
                                 struct ts_error *error)
{
    uint64_t total = scan->subject->count;
    *found = UINT64_MAX;
    for (uint64_t at = 0; at < total && *found == UINT64_MAX; at += PIECE) {
        size_t count = (size_t)(total - at < PIECE ? total - at : PIECE);
        TS_TRY(read_piece(scan, at, count, error));
        if (atomic_load(&call->server->stopping))
            return ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "the server stops");
        for (size_t i = 0; i < count && *found == UINT64_MAX; i++)
            for (unsigned side = 0; side < 2; side++)
                if (scan->subject->has[side] && (infinite ? isinf(scan->sides[side][i]) : isnan(scan->sides[side][i])))
                    *found = at + i;
    }
    return TS_OK;
}

static void coordinates(const struct ts_focus *subject, uint64_t index, uint64_t *at)
{
    for (unsigned i = subject->rank; i-- > 0;) {
        at[i] = index % subject->shape[i];
        index /= subject->shape[i];
    }
}

static void numbers_json(struct ts_json_writer *json, const char *key, bool there, const double *values, size_t count)
{
    ts_json_key(json, key);
    if (!there) {
        ts_json_null(json);
        return;
    }
    ts_json_begin_array(json);
    for (size_t i = 0; i < count; i++)
        ts_json_number(json, values[i]);
    ts_json_end_array(json);
}

/* The element and those beside it along the last axis. */
static enum ts_status element_json(struct ts_call *call, struct scan *scan, uint64_t index, uint64_t after,
                                   struct ts_error *error)
{
    const struct ts_focus *subject = scan->subject;
    uint64_t at[TS_MAX_RANK] = {0}, row = subject->rank ? subject->shape[subject->rank - 1] : 1, first, last;
    struct ts_json_writer *json;
    size_t middle, count;
    coordinates(subject, index, at);
    first = index % row < AROUND ? index - index % row : index - AROUND;
    last = row - index % row <= AROUND ? index + (row - index % row) : index + AROUND + 1;
    count = (size_t)(last - first);
    middle = (size_t)(index - first);
    TS_TRY(read_piece(scan, first, count, error));
    json = ts_call_json(call, 200);
    ts_json_begin_object(json);
    ts_field_counts(json, "index", at, subject->rank);
    ts_field_count(json, "after", after);
    for (unsigned side = 0; side < 2; side++)
        if (subject->has[side])
            ts_field_number(json, side ? "b" : "a", scan->sides[side][middle]);
        else
            ts_field_null(json, side ? "b" : "a");
    if (subject->has[0] && subject->has[1])
        ts_field_number(json, "difference", scan->sides[1][middle] - scan->sides[0][middle]);
    else
        ts_field_null(json, "difference");
    ts_json_key(json, "neighbours");
    ts_json_begin_object(json);
    coordinates(subject, first, at);
    ts_field_counts(json, "start", at, subject->rank);
    ts_field_count(json, "count", count);
    numbers_json(json, "a", subject->has[0], scan->sides[0], count);
    numbers_json(json, "b", subject->has[1], scan->sides[1], count);
    ts_json_end_object(json);
    ts_json_end_object(json);
    ts_json_finish(json);
    return TS_OK;
}

static void search(struct ts_call *call, struct ts_focus *subject)
{
    uint64_t after = 0, found = UINT64_MAX;
    struct ts_worst worst = {0};
    struct scan scan = {0};
    struct ts_error error;
    enum ts_status status;
    char first[8] = "";
    if (!ts_call_count(call, "after", UINT64_MAX, &after))
        return;
    if (ts_call_parameter(call, "first", first, sizeof first) && strcmp(first, "nan") != 0 &&
        strcmp(first, "inf") != 0) {
        ts_call_fail(call, 400, NULL, "first must be nan or inf");
        return;
    }
    status = start_scan(subject, &scan, PIECE) ? TS_OK : ts_fail_memory(&error);
    if (status == TS_OK && first[0]) {
        status = find_first(call, &scan, first[0] == 'i', &found, &error);
    } else if (status == TS_OK) {
        status = worst_of(call, &scan, &worst, &error);
        found = after < worst.count ? worst.index[after] : UINT64_MAX;
    }
    if (status == TS_OK && found != UINT64_MAX)
        status = element_json(call, &scan, found, after, &error);
    else if (status == TS_OK)
        ts_call_fail(call, 404, NULL, first[0] ? "there is none" : "there are %zu elements worth naming, at most %d",
                     worst.count, TS_WORST_KEPT);
    if (status != TS_OK)
        ts_call_error(call, &error);
    end_scan(&scan);
}

void ts_handle_worst(struct ts_call *call)
{
    struct ts_focus subject;
    if (!ts_focus_take(call, &subject))
        return;
    search(call, &subject);
    ts_focus_release(&subject);
}

/* The same sequence everywhere and always (splitmix64). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void scatter(struct ts_call *call, struct ts_focus *subject)
{
    uint64_t points = 4096, state = 1;
    double *values;
    struct scan scan = {0};
    struct ts_error error;
    struct ts_json_writer *json;
    enum ts_status status;
    if (!ts_call_count(call, "points", POINTS_MOST, &points))
        return;
    points = points < subject->count ? points : subject->count;
    values = malloc((2 * (size_t)points + 1) * sizeof *values);
    status = values && start_scan(subject, &scan, 1) ? TS_OK : ts_fail_memory(&error);
    for (uint64_t i = 0; i < points && status == TS_OK; i++) {
        /* one from each of as many equal stretches */
        uint64_t low = (uint64_t)((__uint128_t)subject->count * i / points);
        uint64_t high = (uint64_t)((__uint128_t)subject->count * (i + 1) / points);
        status = read_piece(&scan, low + next_random(&state) % (high - low), 1, &error);
        values[2 * i] = scan.sides[0][0];
        values[2 * i + 1] = scan.sides[1][0];
    }
    if (status == TS_OK) {
        json = ts_call_json(call, 200);
        ts_json_begin_object(json);
        ts_field_count(json, "count", points);
        for (unsigned side = 0; side < 2; side++) {
            ts_json_key(json, side ? "b" : "a");
            if (!subject->has[side]) {
                ts_json_null(json);
                continue;
            }
            ts_json_begin_array(json);
            for (uint64_t i = 0; i < points; i++)
                ts_json_number(json, values[2 * i + side]);
            ts_json_end_array(json);
        }
        ts_json_end_object(json);
        ts_json_finish(json);
    } else {
        ts_call_error(call, &error);
    }
    free(values);
    end_scan(&scan);
}

void ts_handle_scatter(struct ts_call *call)
{
    struct ts_focus subject;
    if (!ts_focus_take(call, &subject))
        return;
    scatter(call, &subject);
    ts_focus_release(&subject);
}
