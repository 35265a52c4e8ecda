/* The thread pool of pool.h.
 *
 * A run is published under the lock by raising `generation`; each thread joins every run exactly once, takes
 * indices from the shared counter until they are used up, and checks out under the lock. The lock carries all
 * other data between threads, so the counter needs no ordering of its own. */
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/progress.h"
#include "base/system.h"
#include "base/thread.h"

/* A bound on nonsense from the environment; more than any machine this runs on has use for. */
#define MAX_THREADS 1024u

struct worker {
    struct ts_pool *pool;
    pthread_t thread;
    unsigned number;
};

struct ts_pool {
    pthread_mutex_t turn; /* held for the whole of a run by the thread that asked for it */
    pthread_mutex_t lock; /* guards what follows up to `next` */
    pthread_cond_t started, finished;
    uint64_t generation;
    unsigned active; /* threads that have not checked out of this run */
    bool stopping;
    void (*work)(void *context, uint64_t index, unsigned worker);
    void *context;
    struct ts_watch *watch; /* of the thread that asked for the run */
    uint64_t count;
    _Atomic uint64_t next;
    unsigned width; /* workers and the caller; fixed after ts_pool_new */
    struct worker workers[];
};

static unsigned processors(void)
{
    long online;
#if TS_LINUX
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        int allowed = CPU_COUNT(&set);
        if (allowed > 0)
            return (unsigned)allowed;
    }
#endif
    online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (unsigned)online : 1;
}

static unsigned choose_width(unsigned threads)
{
    if (threads == 0) {
        const char *asked = getenv("TSLEUTH_THREADS");
        char *end = NULL;
        long value = asked ? strtol(asked, &end, 10) : 0;
        if (value > 0 && *end == '\0')
            threads = value < (long)MAX_THREADS ? (unsigned)value : MAX_THREADS;
        else
            threads = processors();
    }
    return threads < MAX_THREADS ? threads : MAX_THREADS;
}

static void take_indices(struct ts_pool *pool, unsigned worker)
{
    uint64_t index;
    while ((index = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed)) < pool->count)
        pool->work(pool->context, index, worker);
}

static void *run_worker(void *argument)
{
    struct worker *self = argument;
    struct ts_pool *pool = self->pool;
    uint64_t seen = 0;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (pool->generation == seen && !pool->stopping)
            pthread_cond_wait(&pool->started, &pool->lock);
        if (pool->stopping)
            break;
        seen = pool->generation;
        ts_watched = pool->watch;
        pthread_mutex_unlock(&pool->lock);
        take_indices(pool, self->number);
        pthread_mutex_lock(&pool->lock);
        if (--pool->active == 0)
            pthread_cond_signal(&pool->finished);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* Fewer threads than asked for make a narrower pool, not a failure. */
static void start_workers(struct ts_pool *pool, unsigned count)
{
    pool->width = 1;
    while (pool->width < count) {
        struct worker *worker = &pool->workers[pool->width - 1];
        worker->pool = pool;
        worker->number = pool->width;
        if (!ts_thread_start(&worker->thread, run_worker, worker))
            break;
        pool->width++;
    }
}

struct ts_pool *ts_pool_new(unsigned threads)
{
    unsigned width = choose_width(threads);
    struct ts_pool *pool = calloc(1, sizeof *pool + (width - 1) * sizeof pool->workers[0]);
    if (!pool)
        return NULL;
    if (pthread_mutex_init(&pool->turn, NULL) != 0)
        goto no_turn;
    if (pthread_mutex_init(&pool->lock, NULL) != 0)
        goto no_lock;
    if (pthread_cond_init(&pool->started, NULL) != 0)
        goto no_started;
    if (pthread_cond_init(&pool->finished, NULL) != 0)
        goto no_finished;
    start_workers(pool, width);
    return pool;

no_finished:
    pthread_cond_destroy(&pool->started);
no_started:
    pthread_mutex_destroy(&pool->lock);
no_lock:
    pthread_mutex_destroy(&pool->turn);
no_turn:
    free(pool);
    return NULL;
}

void ts_pool_free(struct ts_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->started);
    pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 1; i < pool->width; i++)
        pthread_join(pool->workers[i - 1].thread, NULL);
    pthread_cond_destroy(&pool->finished);
    pthread_cond_destroy(&pool->started);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->turn);
    free(pool);
}

unsigned ts_pool_width(const struct ts_pool *pool)
{
    return pool->width;
}

void ts_pool_run(struct ts_pool *pool, uint64_t count, void (*work)(void *context, uint64_t index, unsigned worker),
                 void *context)
{
    pthread_mutex_lock(&pool->turn);
    if (count < 2 || pool->width == 1) { /* waking the others would cost more than it brings */
        for (uint64_t index = 0; index < count; index++)
            work(context, index, 0);
        pthread_mutex_unlock(&pool->turn);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    pool->work = work;
    pool->context = context;
    pool->watch = ts_watched;
    pool->count = count;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    pool->active = pool->width - 1;
    pool->generation++;
    pthread_cond_broadcast(&pool->started);
    pthread_mutex_unlock(&pool->lock);

    take_indices(pool, 0);

    pthread_mutex_lock(&pool->lock);
    while (pool->active > 0)
        pthread_cond_wait(&pool->finished, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    pthread_mutex_unlock(&pool->turn);
}
