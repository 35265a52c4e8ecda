/* Owns the scan for parts of a tensor that were never written: equal elements at its start and end, rows of zeros, and
 * zeros in regular runs. Elements are decoded, so every type and layout is served; the scans stop at the first element
 * that differs, so ordinary tensors cost a look at both ends. */
#include <string.h>

#include "base/number.h"
#include "check/check_internal.h"

#define CHUNK 1024

/* Shorter rows are zero by chance, or are no rows (kernels of convolutions). */
#define MIN_COLUMNS 8
/* Runs of zeros that count as holes. In half-sparse activations one in 256 gets this long. */
#define MIN_HOLE 8
/* Elements after which a scan for holes gives up when they do not look regular. */
#define HOLE_SAMPLE 65536

bool ts_fill_is_scannable(const struct ts_tensor *tensor)
{
    uint64_t needed;
    if (!tensor->count)
        return false;
    if (tensor->type == TS_CODED) /* two bits are the fewest that a codec packs a number into */
        return tensor->count / 8 <= tensor->bytes;
    return ts_type_bytes(tensor->type, tensor->count, &needed) && needed <= tensor->bytes;
}

struct reader {
    const struct ts_tensor *tensor;
    unsigned per; /* numbers per element */
    double values[2 * CHUNK];
};

static bool get(struct reader *reader, uint64_t first, size_t count)
{
    struct ts_error ignored;
    return ts_tensor_read_f64(reader->tensor, first, count, reader->values, &ignored) == TS_OK;
}

/* The same bits, or zeros of either sign. */
static bool same(double a, double b)
{
    return ts_double_bits(a) == ts_double_bits(b) || (a == 0 && b == 0);
}

static bool element_is(const struct reader *reader, size_t index, const double *value)
{
    for (unsigned i = 0; i < reader->per; i++)
        if (!same(reader->values[index * reader->per + i], value[i]))
            return false;
    return true;
}

static bool is_zero(const double *value, unsigned per)
{
    return value[0] == 0 && (per == 1 || value[1] == 0);
}

static uint64_t tail_run(struct reader *reader, uint64_t count, bool *zero)
{
    uint64_t run = 0;
    double last[2] = {0, 0};
    size_t ask = 64; /* most tensors end here */
    while (run < count) {
        size_t now = count - run < ask ? (size_t)(count - run) : ask;
        if (!get(reader, count - run - now, now))
            return 0;
        if (!run) {
            memcpy(last, reader->values + (now - 1) * reader->per, reader->per * sizeof *last);
            *zero = is_zero(last, reader->per);
        }
        for (size_t i = now; i > 0; i--, run++)
            if (!element_is(reader, i - 1, last))
                return run;
        ask = CHUNK;
    }
    return run;
}

static uint64_t head_run(struct reader *reader, uint64_t count, bool *zero)
{
    uint64_t run = 0;
    double first[2] = {0, 0};
    size_t ask = 64;
    while (run < count) {
        size_t now = count - run < ask ? (size_t)(count - run) : ask;
        if (!get(reader, run, now))
            return 0;
        if (!run) {
            memcpy(first, reader->values, reader->per * sizeof *first);
            *zero = is_zero(first, reader->per);
        }
        for (size_t i = 0; i < now; i++, run++)
            if (!element_is(reader, i, first))
                return run;
        ask = CHUNK;
    }
    return run;
}

static bool row_is_zero(struct reader *reader, uint64_t row, uint64_t columns)
{
    const uint64_t start = row * columns;
    size_t ask = 32;
    for (uint64_t at = 0; at < columns;) {
        size_t now = columns - at < ask ? (size_t)(columns - at) : ask;
        if (!get(reader, start + at, now))
            return false;
        for (size_t i = 0; i < now * reader->per; i++)
            if (reader->values[i] != 0)
                return false;
        at += now;
        ask = CHUNK;
    }
    return true;
}

/* Rows are the last axis, or all behind the first one where the last is as short as a kernel's. */
static void scan_rows(struct reader *reader, uint64_t zeros, struct ts_fill *fill)
{
    const struct ts_tensor *tensor = reader->tensor;
    uint64_t from = 0, to;
    if (tensor->rank < 2)
        return;
    fill->columns = tensor->shape[tensor->rank - 1];
    if (fill->columns < MIN_COLUMNS)
        fill->columns = tensor->count / tensor->shape[0];
    if (fill->columns < MIN_COLUMNS || fill->columns == tensor->count || zeros < fill->columns)
        return;
    fill->rows = tensor->count / fill->columns;
    to = fill->rows;
    if (fill->head_zero)
        from = fill->head / fill->columns;
    if (fill->tail_zero)
        to -= fill->tail / fill->columns;
    for (uint64_t row = from; row < to; row++) {
        if (!row_is_zero(reader, row, fill->columns))
            continue;
        if (fill->dead < sizeof fill->first_dead / sizeof *fill->first_dead)
            fill->first_dead[fill->dead] = row;
        fill->dead++;
    }
}

struct holes {
    uint64_t runs, regular; /* zero runs of MIN_HOLE and more; of them as long as the second */
    uint64_t covered, zeros;
    uint64_t length;     /* of the second */
    uint64_t run, gap;   /* what the scan is in */
    uint64_t short_gaps; /* between two holes: diagonals, not strides */
};

static void end_run(struct holes *holes)
{
    if (holes->run >= MIN_HOLE) {
        holes->runs++;
        holes->covered += holes->run;
        if (holes->runs == 2)
            holes->length = holes->run;
        holes->regular += holes->runs >= 2 && holes->run == holes->length;
        holes->short_gaps += holes->runs >= 2 && holes->gap < MIN_HOLE;
        holes->gap = 0;
    } else {
        holes->gap += holes->run;
    }
    holes->run = 0;
}

/* At least four holes, nine in ten of one length, that make up nine in ten of the zeros. The first may be cut short. */
static bool look_regular(const struct holes *holes)
{
    return holes->runs >= 4 && holes->regular * 10 >= (holes->runs - 1) * 9 &&
           holes->covered * 10 >= holes->zeros * 9 && holes->short_gaps * 10 <= holes->runs;
}

static void scan_holes(struct reader *reader, struct ts_fill *fill)
{
    const uint64_t count = reader->tensor->count;
    struct holes holes = {0};
    for (uint64_t at = 0; at < count;) {
        size_t now = count - at < CHUNK ? (size_t)(count - at) : CHUNK;
        if (!get(reader, at, now))
            return;
        for (size_t i = 0; i < now; i++) {
            if (reader->values[i] == 0) {
                holes.zeros++;
                holes.run++;
                continue;
            }
            if (holes.run)
                end_run(&holes);
            holes.gap++;
        }
        at += now;
        if (at == HOLE_SAMPLE && holes.runs >= 16 && !look_regular(&holes))
            return;
        if (at == HOLE_SAMPLE && !holes.runs && holes.zeros)
            return;
    }
    if (!look_regular(&holes))
        return;
    fill->holes = holes.runs;
    fill->hole = holes.length;
}

void ts_fill_scan(const struct ts_tensor *tensor, const struct ts_stats *stats, struct ts_fill *fill)
{
    struct reader reader = {.tensor = tensor, .per = ts_type_info(tensor->type)->components};
    uint64_t explained;
    memset(fill, 0, sizeof *fill);
    fill->tail = tail_run(&reader, tensor->count, &fill->tail_zero);
    fill->head = fill->tail < tensor->count ? head_run(&reader, tensor->count - fill->tail, &fill->head_zero) : 0;
    scan_rows(&reader, stats->zeros / reader.per, fill);
    explained = fill->dead * fill->columns + (fill->tail_zero ? fill->tail : 0) + (fill->head_zero ? fill->head : 0);
    if (reader.per == 1 && ts_type_info(tensor->type)->kind == TS_CLASS_FLOAT && stats->zeros > explained &&
        (stats->zeros - explained) / 4 >= tensor->count / 16)
        scan_holes(&reader, fill);
}
