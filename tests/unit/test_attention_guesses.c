/* What may go wrong in attention: there is room for all of it, whatever the reference does, and all of it is told. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "diagnose/attention_chain.h"

enum { TOKENS = 64, SIZE = 32 };

static void check(const struct ts_chain *own, size_t onset, struct ts_chain_guess *guesses, size_t *most)
{
    static const struct ts_actor actor;
    const struct ts_other_values others[TS_MOST_OTHERS] = {{.operand = {.actor = &actor}, .text = "one"},
                                                           {.operand = {.actor = &actor}, .text = "other"}};
    const size_t count = ts_chain_guesses(own, TOKENS, TS_MIXES_ALL, own->heads * SIZE, onset, others, guesses);
    /* the last place is where those would go that find no room */
    assert_in_range(count, 1, TS_MOST_GUESSES - 1);
    assert_null(guesses[TS_MOST_GUESSES - 1].id);
    for (size_t g = 0; g < count; g++) {
        assert_non_null(guesses[g].id);
        assert_in_range(strlen(guesses[g].text), 1, sizeof guesses[g].text - 2);
    }
    *most = count > *most ? count : *most;
}

static void test_room(void **state)
{
    static const size_t served[] = {1, 2, 4, 8, 16}, groups[] = {4, 8, 16, 32}, onsets[] = {0, 1, 5, 40, TOKENS};
    static const double bases[] = {0, 1e4, 123456};
    static const long windows[] = {0, 1, 2, 16};
    struct ts_chain_guess *guesses = calloc(TS_MOST_GUESSES, sizeof *guesses);
    size_t most = 0;
    (void)state;
    assert_non_null(guesses);
    for (int i = 0; i < 5 * 5 * 4 * 5 * 3 * 4 * 2 * 2; i++) {
        int rest = i;
        struct ts_chain own = {.heads = served[rest % 5], .size = SIZE, .q_turns = 1, .k_turns = 1};
        size_t onset;
        rest /= 5;
        own.served = served[rest % 5];
        rest /= 5;
        own.group = groups[rest % 4];
        rest /= 4;
        onset = onsets[rest % 5];
        rest /= 5;
        own.base = bases[rest % 3];
        rest /= 3;
        own.window = windows[rest % 4];
        rest /= 4;
        own.shift = rest % 2 ? TOKENS : 0;
        own.cap = rest / 2 ? 30 : 0;
        own.scale = 1 / sqrt(SIZE);
        if (own.served <= own.heads)
            check(&own, onset, guesses, &most);
    }
    assert_true(most > 100); /* the richest was among them */
    free(guesses);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
