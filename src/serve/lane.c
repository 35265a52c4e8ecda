/* The queues of lane.h: one lock, one condition, tasks linked through themselves. */
#include "serve/lane.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/thread.h"

struct ts_lane {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct ts_task *first, **last;
    size_t waiting, limit;
    bool closing;
    unsigned width;
    pthread_t threads[];
};

static void *work(void *argument)
{
    struct ts_lane *lane = argument;
    pthread_mutex_lock(&lane->lock);
    for (;;) {
        struct ts_task *task;
        while (!lane->first && !lane->closing)
            pthread_cond_wait(&lane->filled, &lane->lock);
        task = lane->first;
        if (!task)
            break;
        lane->first = task->next;
        if (!lane->first)
            lane->last = &lane->first;
        lane->waiting--;
        pthread_mutex_unlock(&lane->lock);
        task->run(task);
        pthread_mutex_lock(&lane->lock);
    }
    pthread_mutex_unlock(&lane->lock);
    return NULL;
}

struct ts_lane *ts_lane_new(unsigned threads, size_t limit)
{
    struct ts_lane *lane = calloc(1, sizeof *lane + threads * sizeof lane->threads[0]);
    if (!lane)
        return NULL;
    lane->last = &lane->first;
    lane->limit = limit;
    pthread_mutex_init(&lane->lock, NULL);
    pthread_cond_init(&lane->filled, NULL);
    while (lane->width < threads && ts_thread_start(&lane->threads[lane->width], work, lane))
        lane->width++;
    if (!lane->width) {
        ts_lane_free(lane);
        return NULL;
    }
    return lane;
}

bool ts_lane_push(struct ts_lane *lane, struct ts_task *task)
{
    bool taken;
    pthread_mutex_lock(&lane->lock);
    taken = lane->waiting < lane->limit && !lane->closing;
    if (taken) {
        task->next = NULL;
        *lane->last = task;
        lane->last = &task->next;
        lane->waiting++;
        pthread_cond_signal(&lane->filled);
    }
    pthread_mutex_unlock(&lane->lock);
    return taken;
}

void ts_lane_close(struct ts_lane *lane)
{
    if (!lane)
        return;
    pthread_mutex_lock(&lane->lock);
    lane->closing = true;
    pthread_cond_broadcast(&lane->filled);
    pthread_mutex_unlock(&lane->lock);
    for (unsigned i = 0; i < lane->width; i++)
        pthread_join(lane->threads[i], NULL);
    lane->width = 0;
}

void ts_lane_free(struct ts_lane *lane)
{
    if (!lane)
        return;
    pthread_cond_destroy(&lane->filled);
    pthread_mutex_destroy(&lane->lock);
    free(lane);
}
