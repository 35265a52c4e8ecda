/* Lane: a queue of tasks and the few threads that work it off.
 *
 * The threads that talk to clients do nothing that takes time: they hand it to a lane. Quick answers, slow ones and
 * comparisons have lanes of their own, so that none of them waits behind another kind. */
#ifndef TS_SERVE_LANE_H
#define TS_SERVE_LANE_H

#include <stdbool.h>
#include <stddef.h>

struct ts_lane;

struct ts_task {
    struct ts_task *next;
    void (*run)(struct ts_task *task);
};

struct ts_lane *ts_lane_new(unsigned threads, size_t limit); /* NULL without memory or threads */
/* False when `limit` tasks wait already, or the lane is closing. */
bool ts_lane_push(struct ts_lane *lane, struct ts_task *task);
/* Runs what is queued, then ends the threads; nothing can be pushed any more. */
void ts_lane_close(struct ts_lane *lane);
void ts_lane_free(struct ts_lane *lane); /* closed before; NULL is fine */

#endif
