/* Owns tokens that came too late: each expert takes so many, and what comes behind has no share of it. */
#include <stdlib.h>

#include "diagnose/experts.h"
#include "diagnose/variant.h"

#define LEAST_DROPPED 4    /* and as many that are not */
#define SMALL_SHARE   0.1  /* of the dropped ones may have had next to no weight, where the choice was captured */
#define LEAST_NOISE   3e-6 /* of a token's energy: an expert has more of a say */
#define LEAST_BEHIND  2    /* right ones behind the first of them: otherwise all is wrong from some token on */

/* How many came before each token's choices to the expert that had most before it. by_rank: all first choices come
 * before all second ones. The most of all; 0 where experts cannot be read. */
static size_t places_in_line(const struct ts_case *the_case, const struct ts_router *router, bool by_rank,
                             size_t *before)
{
    const size_t rows = the_case->actor->rows, experts = router->logits->width, chosen = router->chosen;
    size_t *taken = calloc(experts, sizeof *taken), most = 0;
    for (size_t at = 0; at < rows * chosen && taken; at++) {
        const size_t row = by_rank ? at % rows : at / chosen, k = by_rank ? at / rows : at % chosen;
        int64_t list[TS_MOST_CHOSEN];
        if (!ts_experts_of(the_case, router, row, list) || list[k] < 0 || (uint64_t)list[k] >= experts) {
            most = 0;
            break;
        }
        before[row] = k == 0 || taken[list[k]] > before[row] ? taken[list[k]] : before[row];
        most = before[row] > most ? before[row] : most;
        taken[list[k]]++;
    }
    free(taken);
    return most;
}

/* Whether tokens are wrong that have so many before them, and no others: how many are not, of so many that have;
 * SIZE_MAX when it is not so. */
static size_t count_spared(const struct ts_case *the_case, const size_t *before, const bool *wrong, size_t capacity,
                           size_t *dropped)
{
    const size_t rows = the_case->actor->rows;
    size_t calm = 0, behind = 0, spared = 0;
    *dropped = 0;
    for (size_t row = 0; row < rows; row++) {
        const bool late = before[row] >= capacity;
        if (ts_case_aside(the_case, row))
            continue;
        if (wrong[row] && !late)
            return SIZE_MAX;
        *dropped += late;
        spared += late && !wrong[row];
        calm += !late;
        behind += !late && *dropped;
    }
    return *dropped >= LEAST_DROPPED && calm >= LEAST_DROPPED && behind >= LEAST_BEHIND ? spared : SIZE_MAX;
}

struct line {
    size_t capacity, dropped, spared;
    bool by_rank;
};

bool ts_propose_capacity(struct ts_case *the_case, const struct ts_router *router, double noise)
{
    const size_t rows = the_case->actor->rows;
    size_t *before = calloc(rows, sizeof *before);
    bool *wrong = calloc(rows, sizeof *wrong);
    struct line best = {.spared = SIZE_MAX};
    /* who came before is known where all tokens are at hand */
    const bool whole = ts_case_complete(the_case) && rows == the_case->scene->tokens && router->chosen;
    for (size_t row = 0; row < rows && wrong && whole; row++)
        wrong[row] = ts_is_wrong_row(the_case, row, fmax(noise, LEAST_NOISE));
    for (int by_rank = 0; by_rank < 2 && before && wrong && whole; by_rank++) {
        const size_t most = places_in_line(the_case, router, by_rank, before);
        for (struct line line = {.capacity = most, .by_rank = by_rank}; line.capacity > 0; line.capacity--) {
            line.spared = count_spared(the_case, before, wrong, line.capacity, &line.dropped);
            if (line.spared < best.spared)
                best = line;
        }
    }
    free(before);
    free(wrong);
    if (best.spared == SIZE_MAX || (double)best.spared > (router->indices ? SMALL_SHARE : 0) * (double)best.dropped)
        return false;
    ts_propose_plain(the_case, "router-gate", 0.95, "the capacity of experts, and tokens that are dropped",
                     "of %zu tokens one of the experts had %zu before them, and %s of these are wrong, and no others: "
                     "the candidate drops what is beyond a capacity of %zu for each expert%s",
                     best.dropped, best.capacity,
                     best.spared ? ts_case_text(the_case, "%zu", best.dropped - best.spared) : "all", best.capacity,
                     best.by_rank ? ", first choices first" : "");
    return true;
}
