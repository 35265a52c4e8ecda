#include "report/facts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "compare/delta_close.h"
#include "report/report.h"
#include "tensor/layer.h"

const char *ts_judged_name(enum ts_judged judged)
{
    static const char *const names[] = {"ok", "noise", "differs", "cannot tell"};
    return names[judged];
}

const char *ts_outcome_name(enum ts_outcome outcome)
{
    static const char *const names[] = {"match", "differ", "incomplete"};
    return names[outcome];
}

struct ts_delta ts_shown_delta(const struct ts_delta *delta)
{
    struct ts_delta shown = *delta;
    if (delta->compared || !delta->non_finite_mismatch)
        return shown;
    shown.max_abs = shown.mean_abs = shown.mean = shown.mse = shown.rmse = shown.rel_l2 = (double)NAN;
    shown.max_rel = shown.max_ulp = shown.cosine = shown.norm_ratio = (double)NAN;
    for (unsigned i = 0; i < TS_DELTA_QUANTILES; i++)
        shown.quantiles[i] = (double)NAN;
    return shown;
}

static void put_integer(struct ts_buffer *out, enum ts_type type, int64_t value)
{
    if (type == TS_U64)
        ts_buffer_printf(out, "%" PRIu64, (uint64_t)value);
    else
        ts_buffer_printf(out, "%" PRId64, value);
}

bool ts_put_integers(struct ts_buffer *out, const struct ts_pair *pair, uint64_t at)
{
    struct ts_error ignored;
    int64_t a, b;
    if (!ts_is_exact(pair) || ts_view_read_i64(&pair->a, at, 1, &a, &ignored) != TS_OK ||
        ts_view_read_i64(&pair->b, at, 1, &b, &ignored) != TS_OK)
        return false;
    ts_buffer_string(out, "reference ");
    put_integer(out, pair->a.tensor->type, a);
    ts_buffer_string(out, ", candidate ");
    put_integer(out, pair->b.tensor->type, b);
    return true;
}

void ts_put_two(struct ts_buffer *out, const struct ts_pair *pair, uint64_t at, double a, double b)
{
    char of_a[32], of_b[32];
    int digits = 6;
    if (ts_put_integers(out, pair, at))
        return;
    do {
        snprintf(of_a, sizeof of_a, "%.*g", digits, a);
        snprintf(of_b, sizeof of_b, "%.*g", digits, b);
    } while (a != b && strcmp(of_a, of_b) == 0 && digits++ < 17);
    ts_buffer_printf(out, "reference %s, candidate %s", of_a, of_b);
}

void ts_put_view_shape(struct ts_buffer *out, const struct ts_view *view)
{
    ts_buffer_byte(out, '[');
    for (unsigned i = 0; i < view->rank; i++)
        ts_buffer_printf(out, "%s%" PRIu64, i ? "," : "", view->shape[i]);
    ts_buffer_byte(out, ']');
}

void ts_put_pair_shape(struct ts_buffer *out, const struct ts_pair *pair)
{
    bool same = pair->a.rank == pair->b.rank;
    for (unsigned i = 0; same && i < pair->a.rank; i++)
        same = pair->a.shape[i] == pair->b.shape[i];
    ts_put_view_shape(out, &pair->a);
    if (!same) {
        ts_buffer_string(out, " / ");
        ts_put_view_shape(out, &pair->b);
    }
}

void ts_view_coordinates(const struct ts_view *view, uint64_t index, uint64_t *coordinates)
{
    for (unsigned i = view->rank; i-- > 0;) {
        uint64_t size = view->shape[i] ? view->shape[i] : 1;
        coordinates[i] = index % size;
        index /= size;
    }
}

void ts_put_coordinates(struct ts_buffer *out, const struct ts_view *view, uint64_t index)
{
    uint64_t at[TS_MAX_RANK] = {0};
    if (view->rank > TS_MAX_RANK)
        return;
    ts_view_coordinates(view, index, at);
    ts_buffer_byte(out, '[');
    for (unsigned i = 0; i < view->rank; i++)
        ts_buffer_printf(out, "%s%" PRIu64, i ? "," : "", at[i]);
    ts_buffer_byte(out, ']');
}

const char *ts_view_type_name(const struct ts_view *view)
{
    while (view->join != TS_JOIN_NONE && view->part_count && !view->tensor)
        view = &view->parts[0];
    return view->tensor ? ts_tensor_type_name(view->tensor) : "?";
}

void ts_put_short(struct ts_buffer *out, double value)
{
    double size = fabs(value);
    if (isnan(value))
        ts_buffer_string(out, "nan");
    else if (isinf(value))
        ts_buffer_string(out, value > 0 ? "inf" : "-inf");
    else if (size >= 99.5 && size < 9999.5)
        ts_buffer_printf(out, "%.0f", value);
    else if (size >= 0.000995 && size < 99.5) /* rounds to 0.001 and more: no exponent */
        ts_buffer_printf(out, "%.2g", value);
    else if (size == 0)
        ts_buffer_byte(out, '0');
    else
        ts_buffer_printf(out, "%.1e", value);
}

struct tally {
    const char *name;
    size_t count;
};

static int by_count(const void *a, const void *b)
{
    const struct tally *left = a, *right = b;
    if (left->count != right->count)
        return left->count > right->count ? -1 : 1;
    return strcmp(left->name, right->name);
}

/* Adds one to the entry of that name; entries beyond `most` are lost, which no set of names known here reaches. */
static void tally(struct tally *entries, size_t most, size_t *used, const char *name)
{
    size_t i = 0;
    while (i < *used && strcmp(entries[i].name, name) != 0)
        i++;
    if (i == most)
        return;
    if (i == *used)
        entries[(*used)++] = (struct tally){.name = name};
    entries[i].count++;
}

size_t ts_put_types(struct ts_buffer *out, const struct ts_bundle *bundle)
{
    struct tally types[TS_TYPE_COUNT + 32] = {{0}};
    size_t used = 0, shown;
    for (size_t i = 0; i < bundle->count; i++)
        tally(types, sizeof types / sizeof *types, &used, ts_tensor_type_name(bundle->tensors[i]));
    qsort(types, used, sizeof *types, by_count);
    shown = used > 3 ? 2 : used;
    for (size_t i = 0; i < shown; i++)
        ts_buffer_printf(out, "%s%s", i == 0 ? "" : i + 1 == used ? " and " : ", ", types[i].name);
    if (shown < used)
        ts_buffer_printf(out, " and %zu more", used - shown);
    return used;
}

static const struct ts_tensor *first_tensor(const struct ts_view *view)
{
    while (view->join != TS_JOIN_NONE && view->part_count && !view->tensor)
        view = &view->parts[0];
    return view->tensor;
}

int ts_held_precision(const struct ts_comparison *comparison, bool candidate)
{
    size_t votes[64] = {0}, all = 0;
    for (size_t i = 0; i < comparison->pairing.count; i++) {
        const struct ts_pair *pair = &comparison->pairing.pairs[i];
        const struct ts_delta *delta = &comparison->deltas[i];
        const struct ts_tensor *tensor = first_tensor(candidate ? &pair->b : &pair->a);
        int bits = candidate ? delta->precision_b : delta->precision_a, declared;
        if (pair->problem || delta->exact || !tensor)
            continue;
        declared = ts_type_info(tensor->type)->mantissa_bits;
        if (declared <= 0)
            continue;
        all++;
        if (bits > 0 && bits < declared && bits < 64)
            votes[bits]++;
    }
    for (int bits = 0; bits < 64; bits++)
        if (votes[bits] * 2 > all)
            return bits;
    return -1;
}

void ts_put_precision(struct ts_buffer *out, int mantissa_bits)
{
    switch (mantissa_bits) {
    case 2:
        ts_buffer_string(out, "fp8 e5m2");
        break;
    case 3:
        ts_buffer_string(out, "fp8 e4m3");
        break;
    case 7:
        ts_buffer_string(out, "bf16");
        break;
    case 10: /* TF32 keeps as many */
        ts_buffer_string(out, "f16");
        break;
    case 23:
        ts_buffer_string(out, "f32");
        break;
    case 52:
        ts_buffer_string(out, "f64");
        break;
    default:
        ts_buffer_printf(out, "%d-bit", mantissa_bits + 1); /* with the leading one that is not stored */
    }
}

void ts_put_types_in_use(struct ts_buffer *out, const struct ts_comparison *comparison, bool candidate)
{
    const int held = ts_held_precision(comparison, candidate);
    const bool several = ts_put_types(out, candidate ? comparison->b : comparison->a) > 1;
    if (held < 0)
        return;
    ts_buffer_string(out, several ? " (floats hold " : " holding ");
    ts_put_precision(out, held);
    ts_buffer_string(out, several ? " values)" : " values");
}

int ts_pair_precision(const struct ts_delta *delta)
{
    int bits = delta->precision_a < delta->precision_b ? delta->precision_a : delta->precision_b;
    return bits > 0 ? bits : 23;
}

void ts_put_cost(struct ts_buffer *out, const struct ts_report_cost *costs, bool candidate)
{
    char bytes[16];
    if (costs && costs[candidate].seconds > 0)
        ts_buffer_printf(out, ", in %.2f s", costs[candidate].seconds);
    if (costs && costs[candidate].peak_bytes)
        ts_buffer_printf(out, ", at most %s of memory", ts_human_bytes(costs[candidate].peak_bytes, bytes));
}

const char *ts_reason(const struct ts_comparison *comparison, size_t index)
{
    const char *why = comparison->judgement.verdicts[index].why, *problem = comparison->pairing.pairs[index].problem;
    return why ? why : problem ? problem : "";
}

static bool is_view_sampled(const struct ts_view *view)
{
    if (view->tensor && view->tensor->sampled)
        return true;
    for (size_t i = 0; view->join != TS_JOIN_NONE && i < view->part_count; i++)
        if (view->parts[i].tensor && view->parts[i].tensor->sampled)
            return true;
    return false;
}

static bool is_guessed(const struct ts_judgement *judgement, size_t i)
{
    return judgement->guessed && judgement->guessed[i];
}

bool ts_put_aside(struct ts_buffer *out, const struct ts_judgement *judgement, bool guessed, size_t most)
{
    size_t count = 0, shown = 0;
    for (size_t i = 0; i < judgement->aside_count; i++)
        count += is_guessed(judgement, i) == guessed;
    if (!count)
        return false;
    ts_buffer_printf(out, "%zu of %" PRIu64 " tokens that %s routed to different %s%s:", count, judgement->tokens,
                     guessed ? "seem to have been" : "were", judgement->keys_aside ? "experts or keys" : "experts",
                     judgement->first == SIZE_MAX ? " on a near tie"
                                                  : ", on a near tie or because of the first divergence");
    for (size_t i = 0; i < judgement->aside_count && shown < most; i++)
        if (is_guessed(judgement, i) == guessed)
            ts_buffer_printf(out, "%s %" PRIu64, shown++ ? "," : "", judgement->aside[i]);
    if (shown < count)
        ts_buffer_printf(out, " and %zu more", count - shown);
    return true;
}

bool ts_is_sampled(const struct ts_pair *pair)
{
    return is_view_sampled(&pair->a) || is_view_sampled(&pair->b);
}

size_t ts_harmful_skips(const struct ts_bundle *bundle)
{
    size_t count = 0;
    for (size_t i = 0; i < bundle->skip_count; i++)
        count += !bundle->skips[i].harmless;
    return count;
}

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '/' || c == ':' || (unsigned char)c >= 0x80;
}

/* name stands in text as a whole, not as a part of a longer name. */
static bool mentions(const char *text, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = text; length && (at = strstr(at, name)); at++)
        if ((at == text || !is_name_byte(at[-1])) && !is_name_byte(at[length]))
            return true;
    return false;
}

size_t ts_operation_inputs(const struct ts_comparison *comparison, size_t index, size_t inputs[TS_MOST_INPUTS])
{
    const char *operation = comparison->judgement.verdicts[index].operation;
    size_t count = 0;
    if (!operation)
        return 0;
    for (size_t i = index; i-- > 0 && count < TS_MOST_INPUTS;)
        if (mentions(operation, comparison->pairing.pairs[i].name))
            inputs[count++] = i;
    for (size_t i = 0; i < count / 2; i++) { /* in execution order */
        size_t swap = inputs[i];
        inputs[i] = inputs[count - 1 - i];
        inputs[count - 1 - i] = swap;
    }
    return count;
}

size_t ts_uncaptured(const struct ts_comparison *comparison, size_t index, size_t *from)
{
    const struct ts_pairing *pairing = &comparison->pairing;
    const struct ts_bundle *bundle = comparison->a;
    size_t pair = 0, alone = 0, found = 0;
    *from = 0;
    if (comparison->judgement.weights || comparison->filtered)
        return 0;
    for (size_t i = 0; i < bundle->count; i++) {
        if (alone < pairing->only_a_count && pairing->only_a[alone] == bundle->tensors[i]) {
            if (pair == index && !found++)
                *from = alone;
            alone++;
        }
        while (pair < pairing->count && first_tensor(&pairing->pairs[pair].a) == bundle->tensors[i])
            pair++;
    }
    return pair == pairing->count ? found : 0; /* else the pairs are in another order */
}

void ts_put_uncaptured(struct ts_buffer *out, const struct ts_comparison *comparison, size_t index)
{
    const struct ts_pairing *pairing = &comparison->pairing;
    size_t inputs[TS_MOST_INPUTS], from, count = ts_uncaptured(comparison, index, &from);
    if (!count || ts_operation_inputs(comparison, index, inputs))
        return;
    ts_buffer_printf(out, "the reference has %zu tensor%s ", count, count == 1 ? "" : "s");
    if (index)
        ts_buffer_printf(out, "between %s and this one", pairing->pairs[index - 1].name);
    else
        ts_buffer_string(out, "before this one");
    ts_buffer_printf(out, " that the candidate lacks (%s", pairing->only_a[from]->name);
    if (count > 1)
        ts_buffer_printf(out, "%s%s", count > 2 ? " to " : ", ", pairing->only_a[from + count - 1]->name);
    ts_buffer_printf(out, "): capture %s, too, to see where the error is made", count == 1 ? "it" : "them");
}

uint64_t ts_worst_element(const struct ts_comparison *comparison, size_t index, double *a, double *b)
{
    const struct ts_pair *pair = &comparison->pairing.pairs[index];
    const struct ts_delta *delta = &comparison->deltas[index];
    uint64_t at = delta->first_non_finite_mismatch;
    double values[2][2]; /* complex elements give two numbers */
    struct ts_error ignored;
    *a = delta->worst_a;
    *b = delta->worst_b;
    if (pair->problem)
        return UINT64_MAX;
    if (!delta->non_finite_mismatch)
        return delta->worst < pair->a.count ? delta->worst : UINT64_MAX;
    if (at >= pair->a.count || ts_view_read_f64(&pair->a, at, 1, values[0], &ignored) != TS_OK ||
        ts_view_read_f64(&pair->b, at, 1, values[1], &ignored) != TS_OK)
        return UINT64_MAX;
    *a = isnan(values[0][0]) ? (double)NAN : values[0][0]; /* its sign means nothing, and would be printed */
    *b = isnan(values[1][0]) ? (double)NAN : values[1][0];
    return at;
}

double ts_badness(const struct ts_comparison *comparison, size_t index)
{
    const struct ts_delta *delta = &comparison->deltas[index];
    if (comparison->pairing.pairs[index].problem)
        return -1;
    if (delta->non_finite_mismatch || isnan(delta->rel_l2))
        return (double)INFINITY;
    return delta->rel_l2;
}

bool ts_has_ranking(const struct ts_comparison *comparison, size_t index)
{
    const struct ts_pair *pair = &comparison->pairing.pairs[index];
    return comparison->deltas[index].ranking.known && !ts_is_sampled(pair);
}

bool ts_is_output(const struct ts_comparison *comparison, size_t index)
{
    const char *name = comparison->pairing.pairs[index].name;
    uint64_t layer;
    return ts_has_ranking(comparison, index) && (strstr(name, "logits") || strstr(name, "lm_head")) &&
           !ts_layer_of(name, &layer); /* a router's logits are inside of the model */
}

void ts_put_ranking(struct ts_buffer *out, const struct ts_comparison *comparison, size_t index)
{
    const struct ts_ranking *ranking = &comparison->deltas[index].ranking;
    const struct ts_view *view = &comparison->pairing.pairs[index].a;
    double same = ranking->same_first * ranking->rows;
    ts_buffer_printf(out, "top-1 agrees in %.0f of %.0f rows", same, ranking->rows);
    if (ranking->rows < ranking->all_rows)
        ts_buffer_printf(out, " (sampled from %.0f)", ranking->all_rows);
    if (ranking->worst_rank > 1)
        ts_buffer_printf(out, " (worst rank of the reference's: %.0f)", ranking->worst_rank);
    if (view->rank && view->shape[view->rank - 1] > 10) /* of ten or fewer all are shared */
        ts_buffer_printf(out, ", top-10 overlap %.3g %%", 100 * ranking->top_overlap);
    ts_buffer_string(out, ", KL ");
    ts_put_short(out, ranking->divergence);
    ts_buffer_string(out, " nats");
    if (ranking->rows > 1) {
        ts_buffer_string(out, " (max ");
        ts_put_short(out, ranking->max_divergence);
        ts_buffer_byte(out, ')');
    }
}

bool ts_is_equal(const struct ts_comparison *comparison, size_t index)
{
    const struct ts_delta *delta = &comparison->deltas[index];
    return !comparison->pairing.pairs[index].problem && delta->unequal == 0 && !delta->non_finite_mismatch &&
           comparison->judgement.verdicts[index].judged != TS_JUDGED_DIFFERS;
}

bool ts_has_roundings(const struct ts_comparison *comparison, size_t index)
{
    const struct ts_delta *delta = &comparison->deltas[index];
    return !comparison->pairing.pairs[index].problem && !delta->exact && !delta->non_finite_mismatch &&
           (comparison->judgement.verdicts[index].roundings > 0 || !(delta->rel_l2 > 0));
}

void ts_put_standing(struct ts_buffer *out, const struct ts_comparison *comparison, size_t index)
{
    const struct ts_delta *delta = &comparison->deltas[index];
    const struct ts_verdict *verdict = &comparison->judgement.verdicts[index];
    if (comparison->pairing.pairs[index].problem) {
        ts_buffer_string(out, "cannot be compared");
        return;
    }
    if (ts_is_equal(comparison, index)) {
        ts_buffer_string(out, "equal");
        return;
    }
    ts_buffer_printf(out, "%s, ", verdict->allowed ? "allowed" : ts_judged_name(verdict->judged));
    if (delta->non_finite_mismatch) {
        ts_buffer_printf(out, "%" PRIu64 " NaN or Inf on one side only", delta->non_finite_mismatch);
    } else if (!ts_has_roundings(comparison, index)) {
        ts_buffer_printf(out, "%" PRIu64 " of %" PRIu64 " unequal", delta->unequal, delta->count);
    } else {
        ts_put_short(out, verdict->roundings);
        ts_buffer_string(out, " roundings of ");
        ts_put_precision(out, ts_pair_precision(delta));
    }
}

/* "3 tensors", "3 of 5 tensors" */
static void put_share(struct ts_buffer *out, size_t some, size_t all)
{
    if (some != all)
        ts_buffer_printf(out, "%zu of ", some);
    ts_buffer_printf(out, "%zu tensor%s", all, all == 1 ? "" : "s");
}

void ts_put_pairing(struct ts_buffer *out, const struct ts_comparison *comparison)
{
    struct tally ways[32] = {{0}};
    const struct ts_pairing *pairing = &comparison->pairing;
    const size_t pairs = pairing->count + comparison->filtered;
    size_t used = 0;
    for (size_t i = 0; i < pairing->count; i++)
        tally(ways, sizeof ways / sizeof *ways, &used, pairing->pairs[i].how ? pairing->pairs[i].how : "name");
    qsort(ways, used, sizeof *ways, by_count);
    if (pairs != comparison->paired[0] || pairs != comparison->paired[1]) {
        /* some stand in several pairs, as one tensor of A does beside ranks of B that differ; or several in one */
        put_share(out, comparison->paired[0], comparison->a->count);
        ts_buffer_string(out, " with ");
        put_share(out, comparison->paired[1], comparison->b->count);
        ts_buffer_printf(out, " in %zu pair%s", pairs, pairs == 1 ? "" : "s");
    } else {
        ts_buffer_printf(out, "%zu of ", pairs);
        if (comparison->b->count == comparison->a->count)
            ts_buffer_printf(out, "%zu", comparison->a->count);
        else
            ts_buffer_printf(out, "A's %zu and B's %zu", comparison->a->count, comparison->b->count);
    }
    if (used == 1)
        ts_buffer_printf(out, " by %s", ways[0].name);
    for (size_t i = 0; used > 1 && i < used; i++)
        ts_buffer_printf(out, "%s%zu %s%s", i ? ", " : ": ", ways[i].count,
                         strcmp(ways[i].name, "tied") == 0 ? "" : "by ", ways[i].name);
    if (comparison->filtered)
        ts_buffer_printf(out, ", of which %zu pass%s the filter", pairing->count, pairing->count == 1 ? "es" : "");
}

void ts_put_remark(struct ts_buffer *out, const struct ts_pair *pair)
{
    if (strcmp(pair->name, pair->name_b) != 0)
        ts_buffer_printf(out, "candidate %s", pair->name_b);
    if (pair->recipe && pair->recipe[0])
        ts_buffer_printf(out, "%s%s", out->size ? "; " : "", pair->recipe);
    if (pair->guess)
        ts_buffer_printf(out, "%sno layout makes the values agree; this one is a guess", out->size ? "; " : "");
    else if (pair->by_size)
        ts_buffer_printf(out, "%sno layout makes the values agree; this one follows from the sizes",
                         out->size ? "; " : "");
    else if (pair->ambiguous)
        ts_buffer_printf(out, "%sanother layout fits as well", out->size ? "; " : "");
    if (pair->by_order)
        ts_buffer_printf(out, "%spaired by position alone", out->size ? "; " : "");
    if (ts_is_sampled(pair))
        ts_buffer_printf(out, "%sonly a sample of it was dumped", out->size ? "; " : "");
}
