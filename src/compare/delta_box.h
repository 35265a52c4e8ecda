/* Pairs of which a side is stored far from the order in which they are compared: cut into boxes instead of stretches of
 * elements (tensor/view_box.h). A box is loaded into memory and looked at there as a small pair of its own. */
#ifndef TS_COMPARE_DELTA_BOX_H
#define TS_COMPARE_DELTA_BOX_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "pair/pair.h"

/* How a pair is cut: the same whatever the threads. */
struct ts_boxes {
    unsigned rank;
    enum ts_type types[2];
    uint64_t count;    /* boxes */
    uint64_t elements; /* of the largest box */
    uint64_t shape[];  /* rank numbers: of the pair; then: of a box */
};

/* NULL for pairs that are walked as they stand, and without memory. To be freed. */
struct ts_boxes *ts_boxes_plan(const struct ts_pair *pair);

/* The small pair: valid until another box is loaded. */
struct ts_box {
    struct ts_pair pair;
    /* private */
    struct ts_tensor tensors[2];
    struct ts_source sources[2];
    uint64_t shape[1];
    int64_t strides[1];
    uint64_t first[TS_MAX_RANK], extent[TS_MAX_RANK];
    uint8_t *bytes[2], *scratch;
    size_t room[2];
    struct ts_box *next;
};

/* Boxes that threads load into in turn: so many at a time that memory stays small, however many threads there are. */
struct ts_box_shelf {
    struct ts_box *idle;
    unsigned made;
    pthread_mutex_t lock; /* guards both */
    pthread_cond_t returned;
};

void ts_box_shelf_init(struct ts_box_shelf *shelf);
void ts_box_shelf_clear(struct ts_box_shelf *shelf); /* when all were returned: frees them, and the shelf stays */
void ts_box_shelf_release(struct ts_box_shelf *shelf);
struct ts_box *ts_box_take(struct ts_box_shelf *shelf); /* waits for one; NULL without memory */
void ts_box_return(struct ts_box_shelf *shelf, struct ts_box *box);

enum ts_status ts_box_load(struct ts_box *box, const struct ts_boxes *boxes, const struct ts_pair *pair, uint64_t index,
                           struct ts_error *error);
/* The element of the pair that an element of the box is. Both are row-major: what comes first in a box does so in the
 * pair. */
uint64_t ts_box_place(const struct ts_box *box, const struct ts_boxes *boxes, uint64_t element);

#endif
