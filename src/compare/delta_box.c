/* Owns the shape of boxes, and the small pair that is made of one. */
#include "compare/delta_box.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "tensor/view_box.h"

/* Bytes that are read in one piece, as far as the shape allows it, on both sides: a page and somewhat more. No power of
 * two, so that lines of a box do not meet in the same sets of a cache. */
#define RUN_BYTES 4160
/* Of one side of a box. */
#define LEAST_BYTES ((uint64_t)4 << 20)
#define MOST_BYTES  ((uint64_t)8 << 20)
/* Boxes in memory at a time: nine to eighteen megabytes each. */
#define MOST_BOXES 10

/* Axes of more than one element, those of near neighbours first. Returns their number. */
static unsigned sort_axes(const struct ts_view *view, unsigned *axes)
{
    uint64_t strides[TS_MAX_RANK];
    unsigned count = 0;
    ts_view_box_strides(view, strides);
    for (unsigned i = view->rank; i-- > 0;) { /* backwards: of equal ones the inner first */
        unsigned at = count++;
        if (view->shape[i] == 1) {
            count--;
            continue;
        }
        for (; at > 0 && strides[axes[at - 1]] > strides[i]; at--)
            axes[at] = axes[at - 1];
        axes[at] = i;
    }
    return count;
}

static uint64_t elements_of(const uint64_t *extent, unsigned rank)
{
    uint64_t count = 1;
    for (unsigned i = 0; i < rank; i++)
        count *= extent[i];
    return count;
}

/* Lets a box grow along the first axes of a side until it has runs of so many elements. */
static void grow_runs(const uint64_t *shape, const unsigned *axes, unsigned count, uint64_t run, uint64_t *extent)
{
    uint64_t have = 1;
    for (unsigned i = 0; i < count && have < run; i++) {
        uint64_t wanted = (run + have - 1) / have;
        wanted = wanted < shape[axes[i]] ? wanted : shape[axes[i]];
        extent[axes[i]] = extent[axes[i]] > wanted ? extent[axes[i]] : wanted;
        have *= extent[axes[i]];
    }
}

/* One step of a side: the first of its axes that has not all its elements yet gets twice as many. False at the end. */
static bool grow(const uint64_t *shape, const unsigned *axes, unsigned count, uint64_t *extent)
{
    for (unsigned i = 0; i < count; i++)
        if (extent[axes[i]] < shape[axes[i]]) {
            extent[axes[i]] = 2 * extent[axes[i]] < shape[axes[i]] ? 2 * extent[axes[i]] : shape[axes[i]];
            return true;
        }
    return false;
}

static void choose_extent(const struct ts_pair *pair, const size_t *sizes, uint64_t *extent)
{
    const struct ts_view *views[2] = {&pair->a, &pair->b};
    const unsigned rank = pair->a.rank;
    const uint64_t *shape = pair->a.shape, size = sizes[0] > sizes[1] ? sizes[0] : sizes[1];
    unsigned axes[2][TS_MAX_RANK], counts[2];
    bool more = true;
    for (unsigned i = 0; i < rank; i++)
        extent[i] = 1;
    for (int side = 0; side < 2; side++) {
        counts[side] = sort_axes(views[side], axes[side]);
        grow_runs(shape, axes[side], counts[side], RUN_BYTES / sizes[side], extent);
    }
    while (more && elements_of(extent, rank) * size < LEAST_BYTES) {
        more = false;
        for (int side = 0; side < 2 && elements_of(extent, rank) * size < LEAST_BYTES; side++)
            more = grow(shape, axes[side], counts[side], extent) || more;
    }
    while (elements_of(extent, rank) * size > MOST_BYTES) {
        unsigned widest = 0;
        for (unsigned i = 1; i < rank; i++)
            widest = extent[i] > extent[widest] ? i : widest;
        extent[widest] = (extent[widest] + 1) / 2;
    }
}

struct ts_boxes *ts_boxes_plan(const struct ts_pair *pair)
{
    const unsigned rank = pair->a.rank;
    enum ts_type types[2];
    struct ts_boxes *boxes;
    size_t sizes[2];
    if (pair->problem || pair->a.count == 0 || (!ts_view_is_far(&pair->a) && !ts_view_is_far(&pair->b)) ||
        !ts_view_box_type(&pair->a, &types[0]) || !ts_view_box_type(&pair->b, &types[1]))
        return NULL;
    boxes = malloc(sizeof *boxes + 2 * rank * sizeof *boxes->shape);
    if (!boxes)
        return NULL;
    *boxes = (struct ts_boxes){.rank = rank, .count = 1};
    for (int side = 0; side < 2; side++) {
        boxes->types[side] = types[side];
        sizes[side] = ts_type_info(types[side])->block_bytes;
    }
    memcpy(boxes->shape, pair->a.shape, rank * sizeof *boxes->shape);
    choose_extent(pair, sizes, boxes->shape + rank);
    boxes->elements = elements_of(boxes->shape + rank, rank);
    for (unsigned i = 0; i < rank; i++)
        boxes->count *= (boxes->shape[i] - 1) / boxes->shape[rank + i] + 1;
    return boxes;
}

static struct ts_box *new_box(void)
{
    struct ts_box *box = calloc(1, sizeof *box);
    if (box && !(box->scratch = malloc(TS_VIEW_BOX_SCRATCH))) {
        free(box);
        return NULL;
    }
    return box;
}

void ts_box_shelf_init(struct ts_box_shelf *shelf)
{
    shelf->idle = NULL;
    shelf->made = 0;
    pthread_mutex_init(&shelf->lock, NULL);
    pthread_cond_init(&shelf->returned, NULL);
}

void ts_box_shelf_clear(struct ts_box_shelf *shelf)
{
    for (struct ts_box *box = shelf->idle, *next; box; box = next) {
        next = box->next;
        free(box->bytes[0]);
        free(box->bytes[1]);
        free(box->scratch);
        free(box);
    }
    shelf->idle = NULL;
    shelf->made = 0;
}

void ts_box_shelf_release(struct ts_box_shelf *shelf)
{
    ts_box_shelf_clear(shelf);
    pthread_mutex_destroy(&shelf->lock);
    pthread_cond_destroy(&shelf->returned);
}

struct ts_box *ts_box_take(struct ts_box_shelf *shelf)
{
    struct ts_box *box;
    pthread_mutex_lock(&shelf->lock);
    while (!shelf->idle && shelf->made == MOST_BOXES)
        pthread_cond_wait(&shelf->returned, &shelf->lock);
    box = shelf->idle;
    if (box)
        shelf->idle = box->next;
    else if ((box = new_box()))
        shelf->made++;
    pthread_mutex_unlock(&shelf->lock);
    return box;
}

void ts_box_return(struct ts_box_shelf *shelf, struct ts_box *box)
{
    pthread_mutex_lock(&shelf->lock);
    box->next = shelf->idle;
    shelf->idle = box;
    pthread_cond_signal(&shelf->returned);
    pthread_mutex_unlock(&shelf->lock);
}

static enum ts_status make_room(struct ts_box *box, const struct ts_boxes *boxes, struct ts_error *error)
{
    for (int side = 0; side < 2; side++) {
        const size_t wanted = (size_t)boxes->elements * ts_type_info(boxes->types[side])->block_bytes;
        if (box->room[side] >= wanted)
            continue;
        free(box->bytes[side]);
        box->bytes[side] = malloc(wanted);
        box->room[side] = box->bytes[side] ? wanted : 0;
        if (!box->bytes[side])
            return ts_fail_memory(error);
    }
    return TS_OK;
}

/* What was loaded, as a tensor of one axis. */
static void dress(struct ts_box *box, int side, const struct ts_view *view, enum ts_type type)
{
    struct ts_tensor *tensor = &box->tensors[side];
    struct ts_source *source = &box->sources[side];
    source->data = box->bytes[side];
    source->size = box->shape[0] * ts_type_info(type)->block_bytes;
    source->path = view->tensor->name;
    *tensor = (struct ts_tensor){.name = view->tensor->name,
                                 .file = view->tensor->file,
                                 .type = type,
                                 .swapped = type == view->tensor->type && view->tensor->swapped,
                                 .printed_bits = view->tensor->printed_bits,
                                 .parsed = view->tensor->parsed,
                                 .rank = 1,
                                 .shape = box->shape,
                                 .count = box->shape[0],
                                 .bytes = source->size,
                                 .source = source};
    *(side ? &box->pair.b : &box->pair.a) = (struct ts_view){
        .tensor = tensor, .rank = 1, .shape = box->shape, .strides = box->strides, .count = box->shape[0]};
}

enum ts_status ts_box_load(struct ts_box *box, const struct ts_boxes *boxes, const struct ts_pair *pair, uint64_t index,
                           struct ts_error *error)
{
    const unsigned rank = boxes->rank;
    const uint64_t *shape = boxes->shape, *extent = boxes->shape + rank;
    box->shape[0] = 1;
    box->strides[0] = 1;
    for (unsigned i = rank; i-- > 0;) {
        const uint64_t along = (shape[i] - 1) / extent[i] + 1;
        box->first[i] = index % along * extent[i];
        box->extent[i] = shape[i] - box->first[i] < extent[i] ? shape[i] - box->first[i] : extent[i];
        box->shape[0] *= box->extent[i];
        index /= along;
    }
    TS_TRY(make_room(box, boxes, error));
    TS_TRY(ts_view_read_box(&pair->a, box->first, box->extent, box->bytes[0], box->scratch, error));
    TS_TRY(ts_view_read_box(&pair->b, box->first, box->extent, box->bytes[1], box->scratch, error));
    box->pair = (struct ts_pair){
        .name = pair->name, .name_b = pair->name_b, .how = pair->how, .recipe = "", .masked = pair->masked};
    dress(box, 0, &pair->a, boxes->types[0]);
    dress(box, 1, &pair->b, boxes->types[1]);
    return TS_OK;
}

uint64_t ts_box_place(const struct ts_box *box, const struct ts_boxes *boxes, uint64_t element)
{
    uint64_t place = 0, step = 1;
    for (unsigned i = boxes->rank; i-- > 0;) {
        place += (box->first[i] + element % box->extent[i]) * step;
        element /= box->extent[i];
        step *= boxes->shape[i];
    }
    return place;
}
