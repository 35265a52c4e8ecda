#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/pool.h"
#include "base/system.h"

#define COUNT 10000

struct tally {
    atomic_uint taken[COUNT];
    uint64_t results[COUNT]; /* plain: the end of the run must make them visible */
    atomic_uint bad_worker;
    unsigned width;
};

static void count_one(void *context, uint64_t index, unsigned worker)
{
    struct tally *tally = context;
    atomic_fetch_add(&tally->taken[index], 1);
    tally->results[index] = index * index;
    if (worker >= tally->width)
        atomic_fetch_add(&tally->bad_worker, 1);
}

static void test_every_index_once(void **state)
{
    static const unsigned widths[] = {1, 2, 3, 8};
    static const uint64_t counts[] = {0, 1, 2, 3, 7, 100, COUNT};
    struct tally *tally = malloc(sizeof *tally);
    (void)state;
    assert_non_null(tally);
    for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++) {
        struct ts_pool *pool = ts_pool_new(widths[w]);
        assert_non_null(pool);
        assert_int_equal(ts_pool_width(pool), widths[w]);
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            memset(tally, 0, sizeof *tally);
            tally->width = widths[w];
            ts_pool_run(pool, counts[c], count_one, tally);
            for (uint64_t i = 0; i < COUNT; i++) {
                assert_int_equal(tally->taken[i], i < counts[c]);
                assert_true(tally->results[i] == (i < counts[c] ? i * i : 0));
            }
            assert_int_equal(tally->bad_worker, 0);
        }
        ts_pool_free(pool);
    }
    free(tally);
}

/* Many short runs one after the other: a thread that is late for one must not take part in it twice, nor miss it. */
static void test_many_runs(void **state)
{
    struct tally *tally = calloc(1, sizeof *tally);
    struct ts_pool *pool = ts_pool_new(4);
    (void)state;
    assert_non_null(tally);
    assert_non_null(pool);
    tally->width = 4;
    for (int i = 0; i < 3000; i++)
        ts_pool_run(pool, 5, count_one, tally);
    for (int i = 0; i < 5; i++)
        assert_int_equal(tally->taken[i], 3000);
    assert_int_equal(tally->bad_worker, 0);
    ts_pool_free(pool);
    free(tally);
}

struct meeting {
    atomic_uint here;
    unsigned wanted;
    bool by_worker[4]; /* plain: the end of the run must make them visible */
};

/* Waits until all indices have begun, so that each is on a thread of its own. The threads of the pool then dawdle, so
 * that a run that ends without them is found out. */
static void meet(void *context, uint64_t index, unsigned worker)
{
    struct meeting *meeting = context;
    const time_t start = time(NULL);
    (void)index;
    atomic_fetch_add(&meeting->here, 1);
    while (atomic_load(&meeting->here) < meeting->wanted && time(NULL) - start < 20)
        sched_yield();
    if (worker > 0)
        nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    meeting->by_worker[worker] = true;
}

static void test_threads_run_together(void **state)
{
    (void)state;
    for (unsigned width = 2; width <= 4; width++) {
        struct meeting meeting = {.wanted = width};
        struct ts_pool *pool = ts_pool_new(width);
        assert_non_null(pool);
        ts_pool_run(pool, width, meet, &meeting);
        for (unsigned i = 0; i < width; i++)
            assert_true(meeting.by_worker[i]);
        ts_pool_free(pool);
    }
}

struct order {
    uint64_t seen[100];
    uint64_t count;
};

static void note_order(void *context, uint64_t index, unsigned worker)
{
    struct order *order = context;
    (void)worker;
    order->seen[order->count++] = index;
}

static void test_indices_in_order(void **state)
{
    struct order order = {.count = 0};
    struct ts_pool *pool = ts_pool_new(1);
    (void)state;
    assert_non_null(pool);
    ts_pool_run(pool, 100, note_order, &order);
    assert_int_equal(order.count, 100);
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(order.seen[i], i);
    ts_pool_free(pool);
}

struct caller;

struct shared {
    struct ts_pool *pool;
    struct caller *_Atomic owner; /* whose run is under way */
    atomic_uint clashes, total;
};

struct caller {
    struct shared *shared;
    unsigned count;
    atomic_uint done;
};

static void work_for_caller(void *context, uint64_t index, unsigned worker)
{
    struct caller *caller = context, *owner = NULL;
    struct shared *shared = caller->shared;
    (void)index;
    (void)worker;
    if (!atomic_compare_exchange_strong(&shared->owner, &owner, caller) && owner != caller)
        atomic_fetch_add(&shared->clashes, 1);
    atomic_fetch_add(&shared->total, 1);
    if (atomic_fetch_add(&caller->done, 1) + 1 == caller->count) { /* the last one of this run */
        atomic_store(&caller->done, 0);
        atomic_store(&shared->owner, NULL);
    }
}

static void run_often(struct shared *shared, unsigned count)
{
    struct caller caller = {.shared = shared, .count = count};
    for (int i = 0; i < 200; i++)
        ts_pool_run(shared->pool, count, work_for_caller, &caller);
}

static void *call_narrow(void *argument)
{
    run_often(argument, 1);
    return NULL;
}

static void *call_wide(void *argument)
{
    run_often(argument, 10);
    return NULL;
}

/* A run of one index stays on its caller; both kinds must wait for their turn. */
static void test_callers_take_turns(void **state)
{
    struct shared shared = {.pool = ts_pool_new(3)};
    pthread_t threads[4];
    (void)state;
    assert_non_null(shared.pool);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i == 3 ? call_narrow : call_wide, &shared), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(shared.clashes, 0);
    assert_int_equal(shared.total, 3 * 200 * 10 + 200);
    ts_pool_free(shared.pool);
}

static void test_threads_from_the_environment(void **state)
{
    struct ts_pool *pool;
    unsigned processors;
    (void)state;
    unsetenv("TSLEUTH_THREADS");
    pool = ts_pool_new(0);
    assert_non_null(pool);
    processors = ts_pool_width(pool);
    assert_true(processors >= 1);
    ts_pool_free(pool);

    setenv("TSLEUTH_THREADS", "3", 1);
    pool = ts_pool_new(0);
    assert_non_null(pool);
    assert_int_equal(ts_pool_width(pool), 3);
    ts_pool_free(pool);
    pool = ts_pool_new(2); /* a number from the caller comes first */
    assert_non_null(pool);
    assert_int_equal(ts_pool_width(pool), 2);
    ts_pool_free(pool);

    static const char *const nonsense[] = {"", "0", "-4", "many", "3x", " "};
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        setenv("TSLEUTH_THREADS", nonsense[i], 1);
        pool = ts_pool_new(0);
        assert_non_null(pool);
        assert_int_equal(ts_pool_width(pool), processors);
        ts_pool_free(pool);
    }
    unsetenv("TSLEUTH_THREADS");
}

#if TS_LINUX
static void test_affinity_is_respected(void **state)
{
    cpu_set_t before, one;
    struct ts_pool *pool;
    (void)state;
    unsetenv("TSLEUTH_THREADS");
    if (sched_getaffinity(0, sizeof before, &before) != 0)
        return; /* not skip(): cmocka reports it as a failure in TAP */
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &before)) {
            CPU_SET(i, &one);
            break;
        }
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        return; /* not skip(): cmocka reports it as a failure in TAP */
    pool = ts_pool_new(0);
    assert_non_null(pool);
    assert_int_equal(ts_pool_width(pool), 1);
    ts_pool_free(pool);
    sched_setaffinity(0, sizeof before, &before);
}
#endif

struct masks {
    struct meeting meeting;
    atomic_bool blocked[2], faults_blocked[2];
};

static void look_at_mask(void *context, uint64_t index, unsigned worker)
{
    struct masks *masks = context;
    sigset_t mask;
    meet(&masks->meeting, index, worker);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    atomic_store(&masks->blocked[worker], sigismember(&mask, SIGINT) == 1);
    atomic_store(&masks->faults_blocked[worker], sigismember(&mask, SIGBUS) == 1);
}

static void test_signals_go_to_the_caller(void **state)
{
    struct masks masks = {.meeting = {.wanted = 2}};
    struct ts_pool *pool = ts_pool_new(2);
    (void)state;
    assert_non_null(pool);
    ts_pool_run(pool, 2, look_at_mask, &masks);
    assert_int_equal(masks.meeting.here, 2);
    assert_false(masks.blocked[0]);
    assert_true(masks.blocked[1]);
    /* a file that is cut short while it is read faults where it is read */
    assert_false(masks.faults_blocked[1]);
    ts_pool_free(pool);
}

#if defined(__GLIBC__)
static void fill_stack(void *context, uint64_t index, unsigned worker)
{
    volatile char room[4 << 20];
    meet(context, index, worker);
    for (size_t i = 0; i < sizeof room; i += 4096)
        room[i] = (char)index;
}

static void test_stacks_are_as_large_everywhere(void **state)
{
    struct meeting meeting = {.wanted = 2};
    pthread_attr_t before, small;
    struct ts_pool *pool;
    (void)state;
    assert_int_equal(pthread_getattr_default_np(&before), 0);
    assert_int_equal(pthread_attr_init(&small), 0);
    assert_int_equal(pthread_attr_setstacksize(&small, 512 << 10), 0); /* what macOS gives */
    assert_int_equal(pthread_setattr_default_np(&small), 0);
    pool = ts_pool_new(2);
    assert_non_null(pool);
    ts_pool_run(pool, 2, fill_stack, &meeting);
    assert_int_equal(meeting.here, 2);
    ts_pool_free(pool);
    assert_int_equal(pthread_setattr_default_np(&before), 0);
    pthread_attr_destroy(&small);
    pthread_attr_destroy(&before);
}
#endif

static void test_free_nothing(void **state)
{
    (void)state;
    ts_pool_free(NULL);
    for (int i = 0; i < 50; i++) /* freed before its threads may have come up */
        ts_pool_free(ts_pool_new(4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_index_once),
        cmocka_unit_test(test_many_runs),
        cmocka_unit_test(test_threads_run_together),
        cmocka_unit_test(test_indices_in_order),
        cmocka_unit_test(test_callers_take_turns),
        cmocka_unit_test(test_threads_from_the_environment),
#if TS_LINUX
        cmocka_unit_test(test_affinity_is_respected),
#endif
        cmocka_unit_test(test_signals_go_to_the_caller),
#if defined(__GLIBC__)
        cmocka_unit_test(test_stacks_are_as_large_everywhere),
#endif
        cmocka_unit_test(test_free_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
