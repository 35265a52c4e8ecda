/* Faults in tensors of which a case holds some rows: planted everywhere, and once more in no other rows than those that
 * are looked at. A claim must be confirmed on all rows in the first, and lose its confidence in the second. */
#ifndef TS_TEST_HIDDEN_ROWS_H
#define TS_TEST_HIDDEN_ROWS_H

#include "diagnose/case.h"
#include "judged_trace.h"

struct hidden_plan {
    const char *id, *words;
    /* Adds the pairs and returns the one to look at. hidden: per row, it is damaged in another way; NULL: none is. */
    size_t (*build)(struct trace *trace, const bool *hidden);
    size_t rows;
    const char *unit;    /* "tokens" */
    double least;        /* confidence where it holds everywhere; 0: 0.9 */
    double most;         /* where it does not, of that; 0: three quarters */
    bool silent_there;   /* it is enough that the words are not said any more */
    bool without_family; /* it is said when no family has anything to say, */
    bool in_part;        /* or of a part of the tensor alone */
};

/* A case of the pair, as a diagnosis opens it. */
__attribute__((unused)) static struct ts_case_state *open_hidden(struct trace *trace, size_t index,
                                                                 struct ts_diagnosis *diagnosis)
{
    struct ts_case_state *state = malloc(sizeof *state);
    struct ts_delta_options options = {0};
    struct ts_pool *pool = ts_pool_new(1);
    struct ts_error error;
    assert_true(state && pool);
    *diagnosis = (struct ts_diagnosis){.pair = index};
    ts_arena_init(&diagnosis->arena, 1 << 24);
    assert_int_equal(ts_delta_run(pool, trace->pairs, trace->count, &options, trace->deltas, NULL, &error), TS_OK);
    assert_int_equal(
        ts_case_open(state, trace->pairs, trace->deltas, trace->count, index, trace->evidence, diagnosis, &error),
        TS_OK);
    assert_false(state->complete);
    ts_pool_free(pool);
    return state;
}

__attribute__((unused)) static void close_hidden(struct ts_case_state *state, struct ts_diagnosis *diagnosis)
{
    ts_case_release(state);
    free(state);
    ts_arena_release(&diagnosis->arena);
}

/* Marks the rows that a case of the pair holds; true when some are new. */
__attribute__((unused)) static bool look_at_rows(struct trace *trace, size_t index, bool *looked)
{
    struct ts_diagnosis diagnosis;
    struct ts_case_state *state = open_hidden(trace, index, &diagnosis);
    bool news = false;
    for (size_t i = 0; i < state->face.actor->rows; i++) {
        uint64_t row = state->direct ? state->own_rows[i] : state->scene.taken[i];
        news = news || !looked[row];
        looked[row] = true;
    }
    close_hidden(state, &diagnosis);
    return news;
}

/* The claim brings its formula: nothing is fitted again where it is put to other rows. */
__attribute__((unused)) static void assert_has_formula(struct trace *trace, size_t index, const char *id)
{
    struct ts_diagnosis diagnosis;
    struct ts_case_state *state = open_hidden(trace, index, &diagnosis);
    const struct ts_formula *formula = NULL;
    for (state->family = 0; ts_families[state->family]; state->family++) {
        ts_families[state->family]->propose(&state->face);
        ts_case_drop_scratch(state);
    }
    for (size_t i = 0; i < state->book->count && !formula; i++)
        if (strcmp(state->book->entries[i].cause.id, id) == 0)
            formula = &state->book->entries[i].formula;
    if (!formula || (!formula->predict && !formula->count && !formula->count_at_once && !formula->proved))
        fail_msg("%s has no formula", id);
    close_hidden(state, &diagnosis);
}

/* Nothing is said about a part of the rows without saying about how many. */
__attribute__((unused)) static void assert_owned_up(const struct trace *trace)
{
    for (size_t i = 0; i < trace->diagnosis.count; i++) {
        const struct ts_cause *cause = &trace->diagnosis.causes[i];
        char words[64];
        if (!(cause->proof.of_rows > 0))
            fail_msg("rows are not told: %s", cause->summary);
        snprintf(words, sizeof words, "%.0f of %.0f", cause->proof.rows, cause->proof.of_rows);
        if (cause->proof.rows < cause->proof.of_rows && !strstr(cause->summary, words))
            fail_msg("%s is not told: %s", words, cause->summary);
    }
}

__attribute__((unused)) static void expect_everywhere(const struct hidden_plan *plan)
{
    static unsigned plans;
    bool *looked = calloc(plan->rows, sizeof *looked), *hidden = calloc(plan->rows, sizeof *hidden);
    struct trace trace;
    const struct ts_cause *cause;
    size_t index, count = 0;
    char all[64];
    double before;
    assert_true(looked && hidden);
    trace_start(&trace);
    index = plan->build(&trace, NULL);
    trace_diagnose(&trace, index);
    assert_first(&trace, plan->id, plan->words);
    assert_owned_up(&trace);
    cause = &trace.diagnosis.causes[0];
    before = cause->confidence;
    snprintf(all, sizeof all, "on all %zu %s", plan->rows, plan->unit);
    if (!strstr(cause->summary, all) || cause->proof.rows != (double)plan->rows ||
        cause->proof.of_rows != (double)plan->rows || before < (plan->least > 0 ? plan->least : 0.9) ||
        strstr(cause->summary, "does not hold"))
        fail_msg("%s %.3f", cause->summary, before);
    if (!plan->without_family && !plan->in_part)
        assert_has_formula(&trace, index, plan->id);
    if (SANITIZED && plans++ % 2) /* every other one goes the whole way */
        goto done;
    look_at_rows(&trace, index, looked);
    /* which rows are looked at depends a little on what is in them; the worst one may be another each time */
    for (int round = 0, news = 1; news && round < 10; round++) {
        trace_end(&trace);
        trace_start(&trace);
        count = 0;
        for (size_t row = 0; row < plan->rows; row++)
            count += hidden[row] = !looked[row];
        index = plan->build(&trace, hidden);
        news = look_at_rows(&trace, index, looked);
    }
    assert_true(count > plan->rows / 3);
    trace_diagnose(&trace, index);
    assert_owned_up(&trace);
    for (size_t i = 0; i < trace.diagnosis.count; i++) {
        cause = &trace.diagnosis.causes[i];
        if (strcmp(cause->id, plan->id) != 0 || (plan->silent_there && !strstr(cause->summary, plan->words)))
            continue;
        if (cause->confidence > (plan->most > 0 ? plan->most : 0.75) * before) {
            trace_print(&trace);
            fail_msg("it is as sure as it was: %.3f", before);
        }
    }
done:
    trace_end(&trace);
    free(looked);
    free(hidden);
}

#endif
