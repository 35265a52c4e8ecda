/* Owns what is worth telling about a run besides its tensors: how attention spreads, how many gates are shut, which
 * experts work, how large the streams are. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/trace.h"

#define OBSERVATIONS_LIMIT 100000
#define SHUT               0.01     /* of the largest output of its token */
#define MASKED             (-1e30f) /* scores below it are no scores: some write the smallest number for -inf */

static struct ts_observation *add(struct ts_trace_summary *summary, const char *point, enum ts_observed kind,
                                  size_t count)
{
    struct ts_observation *one;
    if (summary->observation_count == OBSERVATIONS_LIMIT)
        return NULL;
    if (summary->observation_count == summary->observation_capacity) {
        size_t capacity = summary->observation_capacity ? 2 * summary->observation_capacity : 64;
        struct ts_observation *larger = realloc(summary->observations, capacity * sizeof *larger);
        if (!larger)
            return NULL;
        summary->observations = larger;
        summary->observation_capacity = capacity;
    }
    one = &summary->observations[summary->observation_count];
    *one = (struct ts_observation){.point = ts_arena_string(&summary->arena, point),
                                   .kind = kind,
                                   .count = count,
                                   .values = ts_arena_array(&summary->arena, count ? count : 1, sizeof(float))};
    if (!one->point || !one->values)
        return NULL;
    summary->observation_count++;
    return one;
}

/* Masked scores [1, heads, tokens, keys]: how many keys each token sees, the same for every head. Probabilities cannot
 * tell, since small ones are rounded to zero. */
static bool count_visible(struct ts_trace_summary *summary, const struct ts_point *point)
{
    size_t rows = (size_t)point->shape[2], keys = (size_t)point->shape[3];
    if (rows > summary->visible_count) {
        uint32_t *larger = realloc(summary->visible, rows * sizeof *larger);
        if (!larger)
            return false;
        summary->visible = larger;
    }
    summary->visible_count = rows;
    for (size_t t = 0; t < rows; t++) {
        summary->visible[t] = 0;
        for (size_t k = 0; k < keys; k++)
            summary->visible[t] += point->values[t * keys + k] > MASKED;
    }
    return true;
}

/* Probabilities [1, heads, tokens, keys]. A token that sees one key has no choice, and is left out. */
static bool entropy(struct ts_trace_summary *summary, const struct ts_point *point)
{
    size_t heads = (size_t)point->shape[1], rows = (size_t)point->shape[2], keys = (size_t)point->shape[3];
    struct ts_observation *one = add(summary, point->name, TS_OBSERVED_ENTROPY, heads);
    if (!one)
        return false;
    for (size_t h = 0; h < heads; h++) {
        double total = 0;
        size_t counted = 0;
        for (size_t t = 0; t < rows && t < summary->visible_count; t++) {
            const float *row = point->values + (h * rows + t) * keys;
            double nats = 0, sum = 0;
            for (size_t k = 0; k < keys; k++)
                if (row[k] > 0) {
                    sum += (double)row[k];
                    nats -= (double)row[k] * log((double)row[k]);
                }
            if (summary->visible[t] < 2 || !(sum > 0))
                continue;
            total += (nats / sum + log(sum)) / log((double)summary->visible[t]);
            counted++;
        }
        one->values[h] = counted ? (float)(total / (double)counted) : 0;
    }
    return true;
}

static bool gate(struct ts_trace_summary *summary, const struct ts_point *point)
{
    size_t width = (size_t)point->shape[point->rank - 1], rows = 1, shut = 0;
    struct ts_observation *one = add(summary, point->name, TS_OBSERVED_GATE, 1);
    if (!one)
        return false;
    for (unsigned i = 0; i + 1 < point->rank; i++)
        rows *= (size_t)point->shape[i];
    for (size_t t = 0; t < rows; t++) {
        const float *row = point->values + t * width;
        float largest = 0;
        for (size_t i = 0; i < width; i++)
            largest = fabsf(row[i]) > largest ? fabsf(row[i]) : largest;
        for (size_t i = 0; i < width; i++)
            shut += fabsf(row[i]) < (float)SHUT * largest;
    }
    one->values[0] = rows && width ? (float)((double)shut / (double)(rows * width)) : 0;
    return true;
}

static bool load(struct ts_trace_summary *summary, const struct ts_point *point, size_t experts)
{
    size_t count = (size_t)(point->shape[0] * point->shape[1]);
    struct ts_observation *one = add(summary, point->name, TS_OBSERVED_EXPERTS, experts);
    if (!one)
        return false;
    for (size_t i = 0; i < count; i++)
        if (point->integers[i] >= 0 && (size_t)point->integers[i] < experts)
            one->values[point->integers[i]] += 1 / (float)count;
    return true;
}

static bool streams(struct ts_trace_summary *summary, const struct ts_point *point)
{
    size_t count = (size_t)point->shape[0], size = (size_t)(point->shape[2] * point->shape[3]);
    struct ts_observation *one = add(summary, point->name, TS_OBSERVED_STREAMS, count);
    if (!one)
        return false;
    for (size_t s = 0; s < count; s++) {
        double squares = 0;
        for (size_t i = 0; i < size; i++)
            squares += (double)point->values[s * size + i] * (double)point->values[s * size + i];
        one->values[s] = (float)sqrt(squares / (double)size);
    }
    return true;
}

/* The likeliest next tokens, from the last row of the logits. */
static void next_tokens(struct ts_trace_summary *summary, const struct ts_point *point)
{
    size_t vocabulary = (size_t)point->shape[2];
    const float *row = point->values + (point->shape[1] - 1) * vocabulary;
    double sum = 0, largest = -(double)INFINITY;
    for (size_t i = 0; i < vocabulary; i++)
        largest = (double)row[i] > largest ? (double)row[i] : largest;
    for (size_t i = 0; i < vocabulary; i++)
        sum += exp((double)row[i] - largest);
    summary->next_count = 0;
    for (size_t k = 0; k < TS_NEXT_TOKENS && k < vocabulary; k++) {
        size_t best = SIZE_MAX;
        for (size_t i = 0; i < vocabulary; i++) {
            bool taken = false;
            for (size_t j = 0; j < summary->next_count; j++)
                taken = taken || summary->next[j].id == (int64_t)i;
            if (!taken && !isnan(row[i]) && (best == SIZE_MAX || row[i] > row[best]))
                best = i;
        }
        if (best == SIZE_MAX)
            return;
        summary->next[summary->next_count++] =
            (struct ts_next_token){(int64_t)best, exp((double)row[best] - largest) / sum};
    }
}

bool ts_trace_observe(struct ts_trace_summary *summary, const struct ts_point *point, size_t experts)
{
    const char *name = point->name;
    if (point->integer)
        return !experts || !(ts_ends_with(name, ".gate.2") || ts_ends_with(name, ".router.2")) ||
               load(summary, point, experts);
    if (strcmp(name, "logits") == 0) {
        next_tokens(summary, point);
        return true;
    }
    if (ts_ends_with(name, ".attn_scores_masked"))
        return count_visible(summary, point);
    if (ts_ends_with(name, ".attn_probs"))
        return entropy(summary, point);
    if (strstr(name, "mlp.") &&
        (ts_ends_with(name, ".act_fn") || ts_ends_with(name, ".activation_fn") || ts_ends_with(name, ".act")))
        return gate(summary, point);
    if (point->rank == 4 && point->shape[1] == 1 && point->shape[0] > 1 && !strstr(name, "self_attn"))
        return strstr(name, "altup") || streams(summary, point);
    return true;
}

void ts_trace_summary_release(struct ts_trace_summary *summary)
{
    free(summary->observations);
    free(summary->visible);
    ts_arena_release(&summary->arena);
    *summary = (struct ts_trace_summary){0};
}
