/* Owns what the values of one tensor show: NaN and infinities, one value everywhere, one bit pattern, parts that were
 * never written, dead rows. Most of it is in the statistics already; only the rest is scanned. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"
#include "check/check_internal.h"

/* Fewer equal elements say nothing. */
#define MIN_CONSTANT 8
/* Equal elements at one end that say it was not written: at least these, and at least one in sixteen. */
#define MIN_UNWRITTEN 64
/* Scans whose results are kept at a time. */
#define BATCH 4096

static enum ts_class kind_of(const struct ts_tensor *tensor)
{
    return ts_type_info(tensor->type)->kind;
}

bool ts_check_is_constant(const struct ts_tensor *tensor, const struct ts_stats *stats)
{
    if (tensor->count < 2 || stats->finite != stats->count || !stats->count)
        return false;
    if (ts_type_is_integer(tensor->type))
        return stats->exact_min == stats->exact_max;
    return stats->min == stats->max;
}

static void tell_nonfinite(struct ts_checking *checking, const struct ts_tensor *tensor, const struct ts_stats *stats)
{
    char place[TS_PLACE_TEXT], number[32], total[32];
    uint64_t infinite = stats->positive_inf + stats->negative_inf;
    if (stats->nan == stats->count && stats->nan)
        ts_check_add(checking, "nan", TS_FAULT, tensor->name, "all %s numbers are NaN",
                     ts_human_count(stats->nan, number));
    else if (stats->nan)
        ts_check_add(checking, "nan", TS_FAULT, tensor->name, "%s of %s numbers are NaN, the first at %s",
                     ts_human_count(stats->nan, number), ts_human_count(stats->count, total),
                     ts_check_place(tensor, stats->first_nan, place));
    if (!infinite)
        return;
    if (!stats->nan && !stats->positive_inf && ts_check_is_mask(tensor->name))
        ts_check_add(checking, "inf", TS_NOTE, tensor->name,
                     "%s of %s numbers are -inf, as masks have it, the first at %s", ts_human_count(infinite, number),
                     ts_human_count(stats->count, total), ts_check_place(tensor, stats->first_inf, place));
    else
        ts_check_add(checking, "inf", TS_FAULT, tensor->name, "%s of %s numbers are %s, the first at %s",
                     ts_human_count(infinite, number), ts_human_count(stats->count, total),
                     !stats->negative_inf   ? "+inf"
                     : !stats->positive_inf ? "-inf"
                                            : "infinite",
                     ts_check_place(tensor, stats->first_inf, place));
}

/* " (bits 0x0fc00000)" of an element, for types of whole bytes up to eight. */
static const char *bits_text(const struct ts_tensor *tensor, uint64_t index, char text[40])
{
    const struct ts_type_info *info = ts_type_info(tensor->type);
    uint64_t at[TS_MAX_RANK], bits = 0;
    int64_t place = (int64_t)index;
    const uint8_t *bytes;
    text[0] = '\0';
    if (tensor->type == TS_CODED || info->block_elements != 1 || info->components != 1 || info->block_bytes > 8)
        return text;
    if (tensor->strides) {
        place = 0;
        ts_flat_to_coordinates(tensor, index, at);
        for (unsigned i = 0; i < tensor->rank; i++)
            place += (int64_t)at[i] * tensor->strides[i];
    }
    bytes = tensor->source->data + ((int64_t)tensor->offset + place * info->block_bytes);
    for (unsigned i = 0; i < info->block_bytes; i++)
        bits |= (uint64_t)bytes[tensor->swapped ? info->block_bytes - 1u - i : i] << 8 * i;
    snprintf(text, 40, " (bits 0x%0*" PRIx64 ")", 2 * info->block_bytes, bits);
    return text;
}

static const char *value_text(const struct ts_tensor *tensor, uint64_t index, char text[64])
{
    struct ts_buffer buffer;
    struct ts_error ignored;
    ts_buffer_init(&buffer, 1024);
    if (ts_tensor_element_text(tensor, index, 6, &buffer, &ignored) != TS_OK || !buffer.data)
        snprintf(text, 64, "one value");
    else
        snprintf(text, 64, "%.63s", buffer.data);
    ts_buffer_release(&buffer);
    return text;
}

static bool is_norm(const char *name)
{
    return ts_check_says(name, "norm") || ts_check_has_word(name, "ln ln1 ln2") || ts_check_says(name, "ln_");
}

/* One value that a tensor of this name begins its life with, or has by its nature. */
static bool is_ordinary_constant(const struct ts_tensor *tensor, double value)
{
    const char *name = tensor->name;
    const bool zero = value == 0, one = value == 1;
    if ((zero || one) && is_norm(name))
        return true;
    if (zero && ts_check_says(name, "bias beta lora_b running_mean shift zero_point"))
        return true;
    if (one && ts_check_says(name, "running_var"))
        return true;
    if (ts_check_says(name, "gamma _scale scale_ rotary rope inv_freq mask"))
        return true;
    if (ts_check_has_word(name, "cos sin scale scales qzeros idx ids positions position") ||
        ts_ends_with(name, ".zeros"))
        return true;
    /* softmax over one position */
    return one && tensor->rank > 1 && tensor->shape[tensor->rank - 1] == 1;
}

static bool is_ordinary_integer(const struct ts_tensor *tensor)
{
    return ts_type_is_integer(tensor->type) && (tensor->type == TS_BOOL || !ts_check_is_weight(tensor->name));
}

struct ordinary {
    const char *first;
    size_t count;
};

static void tell_constant(struct ts_checking *checking, const struct ts_tensor *tensor, const struct ts_stats *stats,
                          struct ordinary *ordinary)
{
    char value[64], bits[40], number[32];
    if (tensor->count < MIN_CONSTANT)
        return;
    if (is_ordinary_integer(tensor) || is_ordinary_constant(tensor, stats->max)) {
        ordinary->first = ordinary->first ? ordinary->first : tensor->name;
        ordinary->count++;
    } else if (stats->zeros == stats->count) {
        ts_check_add(checking, "zeros", TS_WARNING, tensor->name, "all %s elements are zero",
                     ts_human_count(tensor->count, number));
    } else {
        ts_check_add(checking, "constant", TS_WARNING, tensor->name, "all %s elements are %s%s",
                     ts_human_count(tensor->count, number), value_text(tensor, 0, value), bits_text(tensor, 0, bits));
    }
}

/* Memory filled with a word that is wider than an element, such as 0xdeadbeef under bf16: the bytes repeat every eight.
 * Different memory ends the comparison at once. */
static bool tell_pattern(struct ts_checking *checking, const struct ts_tensor *tensor)
{
    const uint8_t *bytes = ts_tensor_bytes(tensor);
    unsigned period = 8;
    char number[32];
    uint64_t word = 0;
    if (!bytes || tensor->bytes < 64 || is_ordinary_integer(tensor) || ts_check_is_mask(tensor->name) ||
        memcmp(bytes, bytes + 8, (size_t)tensor->bytes - 8) != 0)
        return false;
    while (period > 1 && memcmp(bytes, bytes + period / 2, period / 2) == 0)
        period /= 2;
    for (unsigned i = 0; i < period; i++)
        word |= (uint64_t)bytes[i] << 8 * i;
    ts_check_add(checking, "constant", TS_WARNING, tensor->name, "its %s bytes repeat one pattern of %u: 0x%0*" PRIx64,
                 ts_human_count(tensor->bytes, number), period, 2 * (int)period, word);
    return true;
}

/* Masks, ids and probabilities have long equal stretches by their nature. */
static bool may_have_stretches(const struct ts_tensor *tensor)
{
    return is_ordinary_integer(tensor) || ts_check_says(tensor->name, "mask prob score attn_weight inv_freq rotary") ||
           ts_check_has_word(tensor->name, "ids cos sin");
}

static bool is_unwritten(const struct ts_tensor *tensor, uint64_t run)
{
    return run >= MIN_UNWRITTEN && run >= tensor->count / 16;
}

static void tell_unwritten(struct ts_checking *checking, const struct ts_tensor *tensor, uint64_t first, uint64_t run,
                           bool zero)
{
    char place[TS_PLACE_TEXT], value[64], bits[40], number[32];
    const double share = 100 * (double)run / (double)tensor->count;
    value_text(tensor, first, value);
    bits_text(tensor, first, bits);
    if (strncmp(value, "nan", 3) == 0)
        return; /* told as such */
    if (zero) {
        snprintf(value, sizeof value, "0");
        bits[0] = '\0';
    }
    if (first)
        ts_check_add(checking, "half-filled", TS_WARNING, tensor->name,
                     "from %s to the end all %s elements (%.3g %%) are %s%s", ts_check_place(tensor, first, place),
                     ts_human_count(run, number), share, value, bits);
    else
        ts_check_add(checking, "half-filled", TS_WARNING, tensor->name,
                     "the first %s elements (%.3g %%), up to %s, are all %s%s", ts_human_count(run, number), share,
                     ts_check_place(tensor, run, place), value, bits);
}

static void append_row(const struct ts_tensor *tensor, const struct ts_fill *fill, uint64_t row, struct ts_buffer *out)
{
    char place[TS_PLACE_TEXT];
    if (tensor->rank == 2 || fill->columns != tensor->shape[tensor->rank - 1]) {
        ts_buffer_printf(out, "%" PRIu64, row);
        return;
    }
    ts_check_place(tensor, row * fill->columns, place);
    *strrchr(place, ',') = '\0'; /* without the column */
    ts_buffer_printf(out, "%s]", place);
}

static void tell_dead_rows(struct ts_checking *checking, const struct ts_tensor *tensor, const struct ts_fill *fill)
{
    const size_t room = sizeof fill->first_dead / sizeof *fill->first_dead;
    const size_t listed = fill->dead < room ? (size_t)fill->dead : room;
    const bool padding = ts_check_is_embedding(tensor->name);
    char dead[32], rows[32];
    struct ts_buffer list;
    ts_buffer_init(&list, 4096);
    for (size_t i = 0; i < listed; i++) {
        ts_buffer_string(&list, i ? ", " : "");
        append_row(tensor, fill, fill->first_dead[i], &list);
    }
    ts_check_add(checking, "dead-rows", padding ? TS_NOTE : TS_WARNING, tensor->name,
                 "%s of %s rows are all zeros: %s%s", ts_human_count(fill->dead, dead),
                 ts_human_count(fill->rows, rows), list.data ? list.data : "", fill->dead > listed ? ", ..." : "");
    ts_buffer_release(&list);
}

/* Whole rows of zeros at the end of a vocabulary are room for more tokens. */
static bool is_padding(const struct ts_tensor *tensor, const struct ts_fill *fill)
{
    return fill->tail_zero && tensor->rank == 2 && fill->tail >= tensor->shape[1] &&
           ts_check_is_embedding(tensor->name);
}

static void tell_fill(struct ts_checking *checking, const struct ts_tensor *tensor, const struct ts_fill *fill)
{
    struct ts_fill rest = *fill;
    char rows[32], holes[32], hole[32];
    bool unwritten = false;
    if (may_have_stretches(tensor))
        return;
    if (is_padding(tensor, fill)) {
        ts_check_add(checking, "padding-rows", TS_NOTE, tensor->name, "the last %s of %s rows are zeros",
                     ts_human_count(fill->tail / tensor->shape[1], rows), ts_human_count(tensor->shape[0], hole));
    } else if (is_unwritten(tensor, fill->tail)) {
        tell_unwritten(checking, tensor, tensor->count - fill->tail, fill->tail, fill->tail_zero);
        unwritten = true;
    } else if (fill->tail_zero && fill->rows) {
        for (uint64_t row = fill->rows - fill->tail / fill->columns; row < fill->rows; row++) {
            if (rest.dead < sizeof rest.first_dead / sizeof *rest.first_dead)
                rest.first_dead[rest.dead] = row;
            rest.dead++;
        }
    }
    if (is_unwritten(tensor, fill->head)) {
        tell_unwritten(checking, tensor, 0, fill->head, fill->head_zero);
        unwritten = true;
    } else if (fill->head_zero && fill->rows) {
        const size_t room = sizeof rest.first_dead / sizeof *rest.first_dead;
        uint64_t head = fill->head / fill->columns;
        size_t shift = head < room ? (size_t)head : room;
        memmove(rest.first_dead + shift, rest.first_dead, (room - shift) * sizeof *rest.first_dead);
        for (size_t i = 0; i < shift; i++)
            rest.first_dead[i] = i;
        rest.dead += head;
    }
    if (rest.dead)
        tell_dead_rows(checking, tensor, &rest);
    if (!unwritten && fill->holes)
        ts_check_add(checking, "half-filled", TS_WARNING, tensor->name,
                     "zeros in %s runs of %s elements each, with other values between",
                     ts_human_count(fill->holes, holes), ts_human_count(fill->hole, hole));
}

struct job {
    const struct ts_checking *checking;
    size_t first;
    struct ts_fill *fills;
};

static void scan(void *context, uint64_t index, unsigned worker)
{
    struct job *job = context;
    const struct ts_tensor *tensor = job->checking->bundle->tensors[job->first + index];
    const struct ts_stats *stats = &job->checking->stats[job->first + index];
    (void)worker;
    memset(&job->fills[index], 0, sizeof *job->fills);
    if (!atomic_load(&ts_cancelled) && tensor->count >= MIN_UNWRITTEN && ts_fill_is_scannable(tensor) &&
        stats->finite && !ts_check_is_constant(tensor, stats))
        ts_fill_scan(tensor, stats, &job->fills[index]);
    if (ts_tensor_is_contiguous(tensor))
        ts_source_forget(tensor->source, tensor->offset, tensor->bytes);
    ts_progress_add(job->checking->progress, tensor->bytes);
}

static void tell_tensor(struct ts_checking *checking, size_t index, const struct ts_fill *fill,
                        struct ordinary *ordinary)
{
    const struct ts_tensor *tensor = checking->bundle->tensors[index];
    const struct ts_stats *stats = &checking->stats[index];
    const enum ts_class kind = kind_of(tensor);
    if (!tensor->count)
        return;
    if (kind == TS_CLASS_FLOAT || kind == TS_CLASS_QUANT || kind == TS_CLASS_COMPLEX || tensor->type == TS_CODED)
        tell_nonfinite(checking, tensor, stats);
    if (ts_check_is_constant(tensor, stats))
        tell_constant(checking, tensor, stats, ordinary);
    else if (!tell_pattern(checking, tensor))
        tell_fill(checking, tensor, fill);
}

enum ts_status ts_check_bytes(struct ts_checking *checking, struct ts_error *error)
{
    const size_t count = checking->bundle->count;
    struct job job = {.checking = checking};
    struct ordinary ordinary = {0};
    job.fills = calloc(count < BATCH ? count + 1 : BATCH, sizeof *job.fills);
    if (!job.fills)
        return ts_fail_memory(error);
    for (; job.first < count && !atomic_load(&ts_cancelled); job.first += BATCH) {
        size_t batch = count - job.first < BATCH ? count - job.first : BATCH;
        ts_pool_run(checking->pool, batch, scan, &job);
        for (size_t i = 0; i < batch; i++)
            tell_tensor(checking, job.first + i, &job.fills[i], &ordinary);
    }
    free(job.fills);
    if (ordinary.count == 1)
        ts_check_add(checking, "constant", TS_NOTE, ordinary.first,
                     "has one value everywhere, as is usual for its kind");
    else if (ordinary.count)
        ts_check_add(checking, "constant", TS_NOTE, ordinary.first,
                     "this and %zu other tensors have one value everywhere, as is usual for their kind",
                     ordinary.count - 1);
    return atomic_load(&ts_cancelled) ? ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted") : TS_OK;
}
