/* Owns the reading of boxes: long pieces by position, and the turning of what was read into the order of the view. */
#include "tensor/view_box.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "tensor/view_walk.h"

/* Gaps up to this size are read with what stands around them: a call of its own would cost as much. */
#define GAP 512
/* Most that is read in one piece before it is turned: of so many pieces some lines of the result are whole. */
#define BAND (TS_VIEW_BOX_SCRATCH / 32)
/* A turn takes so many lines at a time, which the first-level cache holds whatever their distance. */
#define LINES 8
/* Elements unpacked at a time, and room for the packs they are in. */
#define UNPACKED 4096

static bool is_packed(const struct ts_tensor *tensor)
{
    return tensor->type == TS_CODED || ts_type_info(tensor->type)->block_elements != 1;
}

bool ts_view_is_far(const struct ts_view *view)
{
    struct ts_view_walk stored, axes;
    uint64_t base;
    if (view->join != TS_JOIN_NONE) {
        for (size_t i = 0; i < view->part_count; i++)
            if (ts_view_is_far(&view->parts[i]))
                return true;
        return false;
    }
    if (view->count == 0 || view->tensor->bytes < TS_VIEW_FAR)
        return false;
    if (!ts_view_axes(view, &stored, &base))
        return false;
    ts_view_walk_merge(stored.shape, stored.strides, stored.rank, &axes);
    return ts_view_walk_is_far(&axes, view->tensor->bytes / (view->tensor->count ? view->tensor->count : 1));
}

bool ts_view_box_type(const struct ts_view *view, enum ts_type *type)
{
    const struct ts_type_info *info;
    if (ts_view_is_computed(view) || view->join == TS_JOIN_SUM)
        return false;
    if (view->join == TS_JOIN_CONCAT) {
        for (size_t i = 0; i < view->part_count; i++) {
            enum ts_type own = TS_F32;
            if (!ts_view_box_type(&view->parts[i], &own) || (i && own != *type) ||
                view->parts[i].tensor->swapped != view->parts[0].tensor->swapped)
                return false;
            *type = own;
        }
        return view->part_count > 0;
    }
    info = ts_type_info(view->tensor->type);
    *type = is_packed(view->tensor) ? TS_F32 : view->tensor->type;
    if (is_packed(view->tensor))
        return info->kind == TS_CLASS_QUANT && info->components == 1;
    return info->block_bytes <= 16 && (info->block_bytes & (info->block_bytes - 1)) == 0;
}

void ts_view_box_strides(const struct ts_view *view, uint64_t *strides)
{
    struct ts_view_walk axes;
    uint64_t base;
    while (view->join != TS_JOIN_NONE)
        view = &view->parts[0];
    if (!ts_view_axes(view, &axes, &base))
        memcpy(axes.strides, view->strides, view->rank * sizeof *axes.strides);
    for (unsigned i = 0; i < view->rank; i++)
        strides[i] = (uint64_t)llabs(axes.strides[i]);
}

/* An axis of a box: of so many elements, which stand so far apart in the tensor, in elements, and in what is read and
 * in the result, in bytes. */
struct axis {
    size_t count;
    uint64_t step;
    int64_t raw, out;
};

struct leaf {
    const struct ts_tensor *tensor;
    size_t size; /* bytes of an element in the result */
    struct axis axes[TS_MAX_RANK];
    unsigned rank;
    uint8_t *scratch;
};

static enum ts_status unpack(const struct ts_tensor *tensor, uint64_t index, size_t count, float *out,
                             struct ts_error *error)
{
    const struct ts_type_info *info = ts_type_info(tensor->type);
    const unsigned per = info->block_elements;
    float values[UNPACKED];
    uint8_t packs[UNPACKED * 4];
    if (tensor->type == TS_CODED || (UNPACKED / per + 1) * info->block_bytes > sizeof packs)
        return ts_tensor_read_f32(tensor, index, count, out, error);
    while (count) {
        const size_t skip = (size_t)(index % per), most = UNPACKED / per * per - skip,
                     now = count < most ? count : most, blocks = (skip + now + per - 1) / per;
        TS_TRY(ts_source_read(tensor->source, tensor->offset + index / per * info->block_bytes,
                              blocks * info->block_bytes, packs, error));
        ts_type_decode_f32(tensor->type, tensor->swapped, packs, skip + now, values);
        memcpy(out, values + skip, now * sizeof *out);
        index += now;
        out += now;
        count -= now;
    }
    return TS_OK;
}

/* count elements that are stored side by side. */
static enum ts_status read_run(const struct leaf *leaf, uint64_t index, size_t count, uint8_t *out,
                               struct ts_error *error)
{
    const struct ts_tensor *tensor = leaf->tensor;
    if (is_packed(tensor))
        return unpack(tensor, index, count, (float *)(void *)out, error);
    /* the index wraps on the way to elements before the offset, and the sum is right again */
    return ts_source_read(tensor->source, tensor->offset + index * leaf->size, count * leaf->size, out, error);
}

#define TURN(type)                                                                                                     \
    for (size_t i = 0; i < across->count; i += LINES) {                                                                \
        const size_t lines = across->count - i < LINES ? across->count - i : LINES;                                    \
        for (size_t k = 0; k < down->count; k++) {                                                                     \
            const uint8_t *source = from + (int64_t)k * down->raw + (int64_t)i * across->raw;                          \
            uint8_t *target = to + (int64_t)k * down->out + (int64_t)i * across->out;                                  \
            for (size_t j = 0; j < lines; j++) {                                                                       \
                type value;                                                                                            \
                memcpy(&value, source + (int64_t)j * across->raw, sizeof value);                                       \
                memcpy(target + (int64_t)j * across->out, &value, sizeof value);                                       \
            }                                                                                                          \
        }                                                                                                              \
    }

/* Two axes: `across` is the one along which elements were read, `down` the one along which they are wanted. */
static void turn(const struct axis *across, const struct axis *down, size_t size, const uint8_t *from, uint8_t *to)
{
    struct sixteen {
        uint64_t halves[2];
    };
    switch (size) {
    case 1:
        TURN(uint8_t)
        break;
    case 2:
        TURN(uint16_t)
        break;
    case 4:
        TURN(uint32_t)
        break;
    case 8:
        TURN(uint64_t)
        break;
    default:
        TURN(struct sixteen)
    }
}

/* All axes of what was read, the last of them `last` elements long. */
static void put(const struct leaf *leaf, unsigned rank, size_t last, const uint8_t *raw, uint8_t *out)
{
    struct axis axes[TS_MAX_RANK], none = {.count = 1};
    size_t at[TS_MAX_RANK] = {0};
    unsigned down = 0, i;
    memcpy(axes, leaf->axes, rank * sizeof *axes);
    axes[rank - 1].count = last;
    for (i = 1; i < rank; i++)
        if (llabs(axes[i].out) < llabs(axes[down].out))
            down = i;
    do {
        if (!down && axes[0].raw == axes[0].out && axes[0].raw == (int64_t)leaf->size)
            memcpy(out, raw, axes[0].count * leaf->size);
        else
            turn(&axes[0], down ? &axes[down] : &none, leaf->size, raw, out);
        for (i = 1; i < rank; i++) {
            if (i == down)
                continue;
            raw += axes[i].raw;
            out += axes[i].out;
            if (++at[i] < axes[i].count)
                break;
            raw -= (int64_t)at[i] * axes[i].raw;
            out -= (int64_t)at[i] * axes[i].out;
            at[i] = 0;
        }
    } while (i < rank);
}

/* The axes up to `banded` stand side by side, `span` elements in all, and come with one read each time; of the next
 * axis as many as there is room for. */
static enum ts_status read_bands(struct leaf *leaf, unsigned banded, uint64_t span, uint64_t index, uint8_t *out,
                                 struct ts_error *error)
{
    struct axis one = {.count = 1, .step = span};
    struct axis *axis = banded < leaf->rank ? &leaf->axes[banded] : &leaf->axes[leaf->rank];
    const size_t bytes = (size_t)span * leaf->size;
    size_t most;
    bool close;
    if (banded == leaf->rank)
        *axis = one;
    close = axis->step >= span && (axis->step - span) * leaf->size <= GAP;
    /* a line of the cache more, so that the same place of every run is not in the same set */
    axis->raw = (int64_t)(close ? axis->step * leaf->size : (bytes + 64 + 15) / 16 * 16);
    most = TS_VIEW_BOX_SCRATCH / (size_t)axis->raw;
    for (size_t done = 0; done < axis->count;) {
        const size_t now = axis->count - done < most ? axis->count - done : most;
        const uint64_t from = index + done * axis->step;
        if (close)
            TS_TRY(read_run(leaf, from, (size_t)((now - 1) * axis->step + span), leaf->scratch, error));
        for (size_t i = 0; i < now && !close; i++)
            TS_TRY(read_run(leaf, from + i * axis->step, (size_t)span, leaf->scratch + i * (size_t)axis->raw, error));
        put(leaf, banded + 1, now, leaf->scratch, out + (int64_t)done * axis->out);
        done += now;
    }
    return TS_OK;
}

/* Everything outside the axes [0, inner), which read_one reads from an index on. */
static enum ts_status read_outer(struct leaf *leaf, unsigned inner, unsigned banded, uint64_t span, uint64_t index,
                                 uint8_t *out, struct ts_error *error)
{
    size_t at[TS_MAX_RANK] = {0};
    const unsigned rank = leaf->rank;
    unsigned i;
    do {
        if (!span)
            TS_TRY(read_run(leaf, index, leaf->axes[0].count, out, error));
        else
            TS_TRY(read_bands(leaf, banded, span, index, out, error));
        for (i = inner; i < rank; i++) {
            index += leaf->axes[i].step;
            out += leaf->axes[i].out;
            if (++at[i] < leaf->axes[i].count)
                break;
            index -= at[i] * leaf->axes[i].step;
            out -= (int64_t)at[i] * leaf->axes[i].out;
            at[i] = 0;
        }
    } while (i < rank);
    return TS_OK;
}

/* Nearest neighbours first, and what stands and is wanted in one piece as one axis. Axes that repeat come last. */
static void sort_axes(struct leaf *leaf)
{
    struct axis *axes = leaf->axes;
    unsigned kept = 0;
    for (unsigned i = 1; i < leaf->rank; i++)
        for (unsigned k = i; k > 0 && axes[k].step - 1 < axes[k - 1].step - 1; k--) {
            struct axis other = axes[k];
            axes[k] = axes[k - 1];
            axes[k - 1] = other;
        }
    for (unsigned i = 1; i < leaf->rank; i++)
        if (axes[i].step == axes[kept].step * axes[kept].count &&
            axes[i].out == axes[kept].out * (int64_t)axes[kept].count && axes[i].step)
            axes[kept].count *= axes[i].count;
        else
            axes[++kept] = axes[i];
    leaf->rank = leaf->rank ? kept + 1 : 0;
}

/* Finds how many of the nearest axes come with one read. */
static enum ts_status read_turned(struct leaf *leaf, uint64_t index, uint8_t *out, struct ts_error *error)
{
    uint64_t span = 1;
    unsigned banded = 0;
    while (banded < leaf->rank) {
        struct axis *axis = &leaf->axes[banded];
        const uint64_t more = (axis->count - 1) * axis->step + span;
        if (axis->step < span || (axis->step - span) * leaf->size > GAP || more * leaf->size > BAND)
            break;
        axis->raw = (int64_t)(axis->step * leaf->size);
        span = more;
        banded++;
    }
    return read_outer(leaf, banded + 1, banded, span, index, out, error);
}

/* out_steps in bytes. */
static enum ts_status read_leaf(const struct ts_view *view, const uint64_t *first, const uint64_t *count,
                                const int64_t *out_steps, size_t size, uint8_t *out, uint8_t *scratch,
                                struct ts_error *error)
{
    struct leaf leaf = {.tensor = view->tensor, .size = size, .scratch = scratch};
    struct ts_view_walk axes;
    uint64_t index;
    if (!ts_view_axes(view, &axes, &index))
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "a view that is not read in boxes");
    for (unsigned i = 0; i < view->rank; i++) {
        struct axis *axis = &leaf.axes[leaf.rank];
        index += first[i] * (uint64_t)axes.strides[i];
        if (count[i] == 1)
            continue;
        *axis = (struct axis){.count = (size_t)count[i], .step = (uint64_t)axes.strides[i], .out = out_steps[i]};
        if (axes.strides[i] < 0) { /* from its other end */
            index += (count[i] - 1) * axis->step;
            out += (int64_t)(count[i] - 1) * axis->out;
            axis->step = 0 - axis->step;
            axis->out = -axis->out;
        }
        leaf.rank++;
    }
    if (leaf.rank == TS_MAX_RANK)
        return ts_fail(error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET, "a view of more axes than boxes are read of");
    sort_axes(&leaf);
    if (leaf.rank == 0)
        return read_run(&leaf, index, 1, out, error);
    /* where it is wanted, unless what is stored next is wanted elsewhere and comes with it for little */
    if (leaf.axes[0].step == 1 && leaf.axes[0].out == (int64_t)size &&
        (leaf.rank == 1 || leaf.axes[0].count * size >= BAND / 4 ||
         (leaf.axes[1].step - leaf.axes[0].count) * size > GAP))
        return read_outer(&leaf, 1, 0, 0, index, out, error);
    for (size_t done = 0, whole = leaf.axes[0].count; done < whole;) {
        const size_t most =
            leaf.axes[0].step && leaf.axes[0].step * size <= GAP ? BAND / (leaf.axes[0].step * size) : whole;
        leaf.axes[0].count = whole - done < most ? whole - done : most;
        TS_TRY(read_turned(&leaf, index + done * leaf.axes[0].step, out + (int64_t)done * leaf.axes[0].out, error));
        done += leaf.axes[0].count;
    }
    return TS_OK;
}

static enum ts_status read_box(const struct ts_view *view, const uint64_t *first, const uint64_t *count,
                               const int64_t *out_steps, size_t size, uint8_t *out, uint8_t *scratch,
                               struct ts_error *error)
{
    uint64_t part_first[TS_MAX_RANK], part_count[TS_MAX_RANK], begin = 0;
    const unsigned axis = view->axis;
    if (view->join == TS_JOIN_NONE)
        return read_leaf(view, first, count, out_steps, size, out, scratch, error);
    memcpy(part_first, first, view->rank * sizeof *first);
    memcpy(part_count, count, view->rank * sizeof *count);
    for (size_t i = 0; i < view->part_count; i++) {
        const uint64_t end = begin + view->parts[i].shape[axis];
        const uint64_t low = first[axis] > begin ? first[axis] : begin;
        const uint64_t high = first[axis] + count[axis] < end ? first[axis] + count[axis] : end;
        if (low < high) {
            part_first[axis] = low - begin;
            part_count[axis] = high - low;
            TS_TRY(read_box(&view->parts[i], part_first, part_count, out_steps, size,
                            out + (int64_t)(low - first[axis]) * out_steps[axis], scratch, error));
        }
        begin = end;
    }
    return TS_OK;
}

enum ts_status ts_view_read_box(const struct ts_view *view, const uint64_t *first, const uint64_t *count, uint8_t *out,
                                uint8_t *scratch, struct ts_error *error)
{
    int64_t out_steps[TS_MAX_RANK], step;
    enum ts_type type;
    if (!ts_view_box_type(view, &type))
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "a view that is not read in boxes");
    step = (int64_t)ts_type_info(type)->block_bytes;
    for (unsigned i = view->rank; i-- > 0;) {
        if (!ts_span_fits(first[i], count[i], view->shape[i]) || !count[i])
            return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "a box outside its view");
        out_steps[i] = step;
        step *= (int64_t)count[i];
    }
    return read_box(view, first, count, out_steps, ts_type_info(type)->block_bytes, out, scratch, error);
}
