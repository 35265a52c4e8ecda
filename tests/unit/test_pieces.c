/* Pages of pieces are given back while others are worked on, also when one thread stands still for a while. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>
#include <stdatomic.h>

#include "base/pool.h"
#include "compare/pieces.h"

enum { PIECES = 200, SLOW = 5, SIZE = 3 };

static struct {
    _Atomic bool held[PIECES]; /* its pages are in memory */
    _Atomic unsigned done, most, calls;
    unsigned wait; /* the slow piece goes on when so many others are done */
} job;

static void work(void *context, uint64_t index)
{
    unsigned count = 0, most = atomic_load(&job.most);
    (void)context;
    while (index == SLOW && atomic_load(&job.done) < job.wait)
        sched_yield();
    atomic_store(&job.held[index], true);
    /* what is fetched around its last page */
    if (index == SLOW && job.wait)
        atomic_store(&job.held[index + 1], true);
    for (size_t i = 0; i < PIECES; i++)
        count += atomic_load(&job.held[i]);
    while (count > most && !atomic_compare_exchange_weak(&job.most, &most, count))
        ;
    atomic_fetch_add(&job.done, 1);
}

static void forget(void *context, size_t item, uint64_t first, uint64_t end)
{
    (void)context;
    assert_int_equal(item, 0);
    atomic_fetch_add(&job.calls, 1);
    assert_true(first % SIZE == 0 && end % SIZE == 0 && first < end && end <= PIECES * SIZE);
    for (uint64_t i = first / SIZE; i < end / SIZE; i++)
        atomic_store(&job.held[i], false);
}

static void run(unsigned threads, unsigned wait)
{
    struct ts_pool *pool = ts_pool_new(threads);
    struct ts_pieces pieces;
    struct ts_error error;
    assert_non_null(pool);
    for (size_t i = 0; i < PIECES; i++)
        atomic_store(&job.held[i], false);
    atomic_store(&job.done, 0);
    atomic_store(&job.most, 0);
    atomic_store(&job.calls, 0);
    job.wait = wait;
    assert_true(ts_pieces_init(&pieces, pool));
    ts_pieces_begin(&pieces);
    ts_pieces_add(&pieces, PIECES * SIZE, SIZE);
    assert_int_equal(ts_pieces_count(&pieces), PIECES);
    assert_int_equal(ts_pieces_run(&pieces, pool, work, forget, NULL, &error), TS_OK);
    assert_int_equal(atomic_load(&job.done), PIECES);
    for (size_t i = 0; i < PIECES; i++)
        assert_false(atomic_load(&job.held[i]));
    /* each thread may have been stopped before it forgot what it was to forget */
    assert_true(atomic_load(&job.most) <= (threads + 2) * pieces.together + 3 * threads);
    if (threads == 1)
        assert_true(atomic_load(&job.calls) <= PIECES / pieces.together + 2);
    ts_pieces_release(&pieces);
    ts_pool_free(pool);
}

static void test_few_are_held(void **state)
{
    (void)state;
    run(1, 0);
    run(2, 0);
    run(8, 0);
    run(40, 0);
}

static void test_a_thread_that_stands_still(void **state)
{
    (void)state;
    run(2, 100);
    run(4, 150);
    run(8, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few_are_held),
        cmocka_unit_test(test_a_thread_that_stands_still),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
