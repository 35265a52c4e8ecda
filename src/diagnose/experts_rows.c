/* Owns the rows inside of experts that another expert should have made. Rows stand there by expert, and a token has one
 * for each that it chose; where the weights of the experts changed places, a token that chose both an expert and the
 * one whose weights it got holds the same row as the reference, in the other one's place. */
#include <stdlib.h>

#include "compare/row_match.h"
#include "diagnose/experts.h"
#include "diagnose/families.h"

#define CLOSE       0.01 /* of a row's energy may be left */
#define LEAST_WIDTH 16   /* narrower rows match by chance, */
#define LEAST       3    /* and fewer */
#define LEAST_SHARE 0.02
#define ELSEWHERE   0.8 /* of the rows that were found again stand in another expert's place */

struct rows {
    struct ts_row_match match;
    size_t *expert_a, *expert_b; /* whose place a row stands in */
};

static void close_rows(struct rows *rows)
{
    ts_row_match_release(&rows->match);
    free(rows->expert_a);
    free(rows->expert_b);
}

/* How many rows each expert has, in their order. */
static bool place_rows(const struct ts_view *chosen, size_t count, size_t *expert)
{
    size_t *many = calloc(TS_MOST_EXPERTS, sizeof *many), row = 0;
    struct ts_error ignored;
    bool good = many != NULL;
    for (size_t i = 0; i < count && good; i++) {
        int64_t which;
        good = ts_view_read_i64(chosen, i, 1, &which, &ignored) == TS_OK && which >= 0 && which < TS_MOST_EXPERTS;
        if (good)
            many[which]++;
    }
    for (size_t e = 0; e < TS_MOST_EXPERTS && good; e++)
        for (size_t i = 0; i < many[e]; i++)
            expert[row++] = e;
    free(many);
    return good;
}

static bool open_rows(struct rows *rows, const struct ts_pair *pair, const struct ts_pair *chosen)
{
    const struct ts_row_match *match = &rows->match;
    *rows = (struct rows){0};
    if (chosen->a.count != chosen->b.count || !chosen->a.count || pair->a.count % chosen->a.count ||
        pair->a.count / chosen->a.count < LEAST_WIDTH ||
        !ts_row_match_open(&rows->match, pair, &(struct ts_row_rule){.close = CLOSE, .lost = SIZE_MAX}) ||
        match->count != chosen->a.count)
        return false;
    rows->expert_a = calloc(match->count, sizeof *rows->expert_a);
    rows->expert_b = calloc(match->count, sizeof *rows->expert_b);
    return rows->expert_a && rows->expert_b && place_rows(&chosen->a, match->count, rows->expert_a) &&
           place_rows(&chosen->b, match->count, rows->expert_b);
}

void ts_propose_moved_rows(struct ts_case *the_case, const struct ts_router *router)
{
    const struct ts_pair *pair = ts_case_pair(the_case);
    struct rows rows;
    size_t again = 0, elsewhere = 0, first = 0, first_from = 0, experts = 0;
    int64_t step = 0;
    bool alike = true;
    if (!router->indices || ts_case_quiet(the_case) || !ts_case_wants(the_case, "router-gate"))
        return;
    if (!open_rows(&rows, pair, router->indices)) {
        close_rows(&rows);
        return;
    }
    for (size_t row = 0; row < rows.match.count; row++)
        experts = rows.expert_a[row] >= experts ? rows.expert_a[row] + 1 : experts;
    experts = router->logits && router->logits->width > experts ? router->logits->width : experts;
    for (size_t row = 0; row < rows.match.count; row++) {
        const size_t from = rows.match.rows[row].from;
        int64_t by;
        if (from == SIZE_MAX || rows.match.rows[row].ambiguous)
            continue;
        again++;
        if (rows.expert_a[from] == rows.expert_b[row])
            continue;
        by = ((int64_t)rows.expert_a[from] - (int64_t)rows.expert_b[row] + (int64_t)experts) % (int64_t)experts;
        if (!elsewhere++) {
            first = row;
            first_from = from;
            step = by;
        }
        alike = alike && by == step;
    }
    if (elsewhere >= LEAST && (double)elsewhere > LEAST_SHARE * (double)rows.match.count &&
        (double)elsewhere >= ELSEWHERE * (double)again) {
        const bool before = 2 * step > (int64_t)experts;
        const char *order = "";
        if (alike)
            order = ts_case_text(the_case, ", always the expert %lld places %s",
                                 (long long)(before ? (int64_t)experts - step : step), before ? "before" : "after");
        ts_propose_plain(the_case, "router-gate", alike ? 0.95 : 0.9, "the order of the experts' weights",
                         "the candidate's experts are in another order: %zu of %zu rows are another expert's in the "
                         "reference (expert %zu produces a row of expert %zu)%s",
                         elsewhere, rows.match.count, rows.expert_b[first], rows.expert_a[first_from], order);
    }
    close_rows(&rows);
}
