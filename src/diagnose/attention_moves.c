/* Owns the proof of claims about attention in one step: chains on any rows of any sequence. Sequences that can be held
 * are walked, stretch by stretch; longer ones head by head, all stretches at once, with every key that they see. */
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "base/progress.h"
#include "diagnose/attention_long.h"
#include "diagnose/attention_pass.h"
#include "diagnose/attention_tables.h"
#include "diagnose/case.h"

/* Likeness of what is right, seen through a weight that prefers some directions. */
#define LIKE_AT_LEAST 0.6
#define TOGETHER      16 /* tokens whose products are taken with each other */
_Static_assert(TS_PARTS_ROWS <= TS_PASS_ROWS, "a stretch is done together");
_Static_assert(TS_PASS_ROWS % TOGETHER == 0, "a stretch is made of groups");

static double *read_operand(const struct ts_case *the_case, const struct ts_operand *operand, bool candidate,
                            size_t tokens, float *room)
{
    double *out = malloc((tokens * operand->width + 1) * sizeof *out);
    struct ts_error ignored;
    if (out && ts_scene_read(the_case->scene, operand->actor->pair, candidate, ts_scene_first(the_case->scene), tokens,
                             operand->offset, operand->width, room, &ignored) != TS_OK) {
        free(out);
        return NULL;
    }
    for (size_t i = 0; out && i < tokens * operand->width; i++)
        out[i] = (double)room[i];
    return out;
}

static size_t tokens_of(const struct ts_case *the_case)
{
    return (size_t)ts_scene_sequence(the_case->scene);
}

/* Operands of all tokens of the sequence are so many numbers. */
static bool is_short(const struct ts_case *the_case, const struct ts_chain *chain, size_t held)
{
    return tokens_of(the_case) <= held / (chain->q.width + chain->k.width + chain->v.width + 1);
}

/* The context of the case's rows, heads * size numbers each, with every token of their sequence. */
static bool chain_rows(struct ts_case *the_case, const struct ts_chain *chain, bool candidate, double *out)
{
    size_t tokens = tokens_of(the_case), width = chain->heads * chain->size, rows = the_case->actor->rows;
    struct ts_chain_inputs in = {0};
    double *all;
    float *room;
    bool good;
    if (!is_short(the_case, chain, TS_MOVES_HELD)) /* every processor walks stretches already */
        return ((const struct ts_case_state *)the_case)->proving ? ts_long_rows(the_case, chain, candidate, out)
                                                                 : ts_pass_rows(the_case, chain, candidate, out);
    all = malloc(tokens * width * sizeof *all);
    room = malloc(tokens * (chain->q.width + chain->k.width) * sizeof *room);
    good = all && room;
    if (good) {
        in.q = read_operand(the_case, &chain->q, candidate, tokens, room);
        in.k = read_operand(the_case, &chain->k, candidate, tokens, room);
        in.v = read_operand(the_case, &chain->v, candidate, tokens, room);
        good = in.q && in.k && in.v;
    }
    for (size_t row = 0, run; row < rows && good; row += run) {
        size_t first = (size_t)ts_case_row(the_case, row);
        for (run = 1; row + run < rows && ts_case_row(the_case, row + run) == first + run; run++) {
        }
        good = first + run <= tokens && ts_chain_run(chain, &in, tokens, first, run, all);
        if (good)
            memcpy(out + row * width, all + first * width, run * width * sizeof *out);
    }
    ts_chain_inputs_release(&in);
    free(room);
    free(all);
    return good;
}

/* Multiplications for a row: with the keys that it sees, twice. */
static double work_of(const struct ts_case *the_case, const struct ts_chain *chain)
{
    double tokens = (double)tokens_of(the_case), seen = chain->shift >= (long)tokens ? tokens : tokens / 2;
    seen = chain->window > 0 && (double)chain->window < seen ? (double)chain->window : seen;
    return 2 * (double)(chain->heads * chain->size) * seen;
}

/* The same with a few directions in place of values. */
static double few_of(double work, const struct ts_chain *chain)
{
    return work / 2 * (1 + TS_PASS_DIRECTIONS / (double)chain->size);
}

/* Divides rows by the size of other rows, and those then by their own. */
static void by_size(double *rows, double *sizes, size_t count, size_t width)
{
    for (size_t row = 0; row < count; row++) {
        double square = 0, factor;
        for (size_t i = row * width; i < (row + 1) * width; i++)
            square += sizes[i] * sizes[i];
        factor = square > 0 && isfinite(square) ? 1 / sqrt(square) : 0;
        for (size_t i = row * width; i < (row + 1) * width; i++) {
            rows[i] *= factor;
            sizes[i] *= factor;
        }
    }
}

/* Adds what rows that stand together show: their contexts as they should be and how they are moved, what is expected of
 * them and what is wrong. All of it over their size, so that tokens that see much count as much as those that see
 * little. */
static void add_together(double *own, double *moved, size_t wide, double *expected, double *error, size_t width,
                         size_t tokens, double *sums)
{
    double room[4][TOGETHER * TOGETHER], sizes[TOGETHER];
    struct ts_tables tables = {room[0], room[1], room[2], room[3]};
    by_size(moved, own, tokens, wide);
    by_size(error, expected, tokens, width);
    ts_products_of(moved, moved, tokens, wide, false, tables.moved);
    ts_products_of(own, moved, tokens, wide, false, tables.crossed);
    ts_products_of(error, error, tokens, width, false, tables.moved_found);
    ts_products_of(expected, error, tokens, width, false, tables.crossed_found);
    for (size_t t = 0; t < tokens; t++)
        sizes[t] = 1;
    ts_tables_add(&tables, sizes, tokens, sums);
}

static bool count_moves(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                        struct ts_tally *tally)
{
    const struct ts_moves *moves = formula->numbers;
    size_t rows = the_case->actor->rows, width = the_case->actor->width, wide = moves->right.heads * moves->right.size;
    double *own = malloc(rows * wide * sizeof *own), *moved = malloc(rows * wide * sizeof *moved);
    double *error = malloc(2 * the_case->total * sizeof *error), *expected = error + the_case->total;
    bool good = own && moved && error && chain_rows(the_case, &moves->right, false, own) &&
                chain_rows(the_case, &moves->wrong, true, moved);
    (void)out;
    for (size_t i = 0; i < rows * wide && good; i++)
        moved[i] -= own[i];
    for (size_t i = 0; i < the_case->total && good; i++) {
        error[i] = the_case->found[i] - the_case->expected[i];
        expected[i] = the_case->expected[i];
    }
    for (size_t row = 0; row < rows && good; row += TOGETHER)
        add_together(own + row * wide, moved + row * wide, wide, expected + row * width, error + row * width, width,
                     rows - row < TOGETHER ? rows - row : TOGETHER, tally->sums);
    free(own);
    free(moved);
    free(error);
    return good;
}

/* What tokens that stand together show, added up over their heads: products of how they are moved with each other, of
 * what they should be with that, and of that with itself. */
struct group {
    double moved[TOGETHER * TOGETHER], crossed[TOGETHER * TOGETHER], own[TOGETHER];
};
enum { GROUPS = TS_PASS_ROWS / TOGETHER };

/* A long sequence: one head after the other, whose keys and values both sides hold, and all stretches of tokens. */
struct spread {
    struct ts_case *the_case;
    struct ts_pass right, wrong;
    size_t tokens, count, chosen; /* stretches there are, and are taken */
    size_t picks[2];              /* the head, among those that each side holds */
    struct group *groups;         /* GROUPS of each stretch */
    struct ts_everywhere *results;
    double *room; /* of each worker */
    struct ts_progress progress;
    atomic_bool failed;
};

/* The tokens of a stretch; of those that are taken, both ends are among them. */
static size_t tokens_at(const struct spread *spread, uint64_t index, size_t *tokens)
{
    size_t at = spread->chosen > 1 ? (size_t)index * (spread->count - 1) / (spread->chosen - 1) : 0, rows = 0;
    for (size_t from = at * TS_PASS_ROWS; rows < TS_PASS_ROWS && from + rows < spread->tokens; rows++)
        tokens[rows] = from + rows;
    return rows;
}

static void add_head(void *context, uint64_t index, unsigned worker)
{
    struct spread *spread = context;
    size_t tokens[TS_PASS_ROWS], rows = tokens_at(spread, index, tokens), wide = spread->right.padded;
    const double *own, *other;
    double *moved = spread->room + worker * TS_PASS_ROWS * wide;
    if (atomic_load(&ts_cancelled) || atomic_load(&spread->failed) ||
        !(own = ts_pass_run(&spread->right, worker, spread->picks[0], spread->picks[0] + 1, tokens, rows)) ||
        !(other = ts_pass_run(&spread->wrong, worker, spread->picks[1], spread->picks[1] + 1, tokens, rows))) {
        atomic_store(&spread->failed, true);
        return;
    }
    for (size_t i = 0; i < rows * wide; i++)
        moved[i] = other[i] - own[i];
    for (size_t row = 0; row < rows; row++) {
        size_t from = row / TOGETHER * TOGETHER, end = from + TOGETHER < rows ? from + TOGETHER : rows;
        struct group *group = &spread->groups[index * GROUPS + row / TOGETHER];
        group->own[row - from] += ts_product_of(own + row * wide, own + row * wide, wide);
        for (size_t next = from; next < end; next++) {
            size_t at = (row - from) * TOGETHER + next - from, mirrored = (next - from) * TOGETHER + row - from;
            double product = next < row ? 0 : ts_product_of(moved + row * wide, moved + next * wide, wide);
            group->crossed[at] += ts_product_of(own + row * wide, moved + next * wide, wide);
            group->moved[at] += product;
            group->moved[mirrored] += next > row ? product : 0;
        }
    }
    ts_progress_add(&spread->progress, rows * spread->right.chain->size);
}

/* The tables of a group beside what is expected of its tokens and what is wrong with them, which are spoilt. */
static void add_group(const struct group *group, double *expected, double *error, size_t width, size_t tokens,
                      double *sums)
{
    double room[4][TOGETHER * TOGETHER], sizes[TOGETHER], factors[TOGETHER];
    struct ts_tables tables = {room[0], room[1], room[2], room[3]};
    by_size(error, expected, tokens, width);
    ts_products_of(error, error, tokens, width, false, tables.moved_found);
    ts_products_of(expected, error, tokens, width, false, tables.crossed_found);
    for (size_t t = 0; t < tokens; t++) {
        sizes[t] = 1;
        factors[t] = group->own[t] > 0 && isfinite(group->own[t]) ? 1 / sqrt(group->own[t]) : 0;
    }
    for (size_t s = 0; s < tokens; s++)
        for (size_t t = 0; t < tokens; t++) {
            double factor = factors[s] * factors[t];
            tables.moved[s * tokens + t] = factor * group->moved[s * TOGETHER + t];
            tables.crossed[s * tokens + t] = factor * group->crossed[s * TOGETHER + t];
        }
    ts_tables_add(&tables, sizes, tokens, sums);
}

/* What was found of a stretch, once all heads are added up. */
static void add_stretch(void *context, uint64_t index, unsigned worker)
{
    struct spread *spread = context;
    struct ts_everywhere *all = &spread->results[index];
    const struct ts_case *the_case = spread->the_case;
    size_t tokens[TS_PASS_ROWS], rows = tokens_at(spread, index, tokens), pair = the_case->actor->pair;
    size_t width = the_case->actor->width, total = rows * width;
    uint64_t first = ts_scene_first(the_case->scene) + tokens[0];
    double *expected = malloc(2 * total * sizeof *expected), *error = expected + total;
    float *room = malloc(2 * total * sizeof *room);
    struct ts_error ignored;
    (void)worker;
    if (!expected || !room ||
        ts_scene_read(the_case->scene, pair, false, first, rows, 0, width, room, &ignored) != TS_OK ||
        ts_scene_read(the_case->scene, pair, true, first, rows, 0, width, room + total, &ignored) != TS_OK)
        atomic_store(&spread->failed, true);
    for (size_t i = 0; i < total && !atomic_load(&spread->failed); i++) {
        double found = (double)room[total + i];
        expected[i] = (double)room[i];
        error[i] = found - expected[i];
        if (!isfinite(error[i]))
            continue;
        all->expected += expected[i] * expected[i];
        all->found += found * found;
        all->error += error[i] * error[i];
        all->elements += error[i] != 0;
    }
    for (size_t from = 0; from < rows && !atomic_load(&spread->failed); from += TOGETHER)
        add_group(&spread->groups[index * GROUPS + from / TOGETHER], expected + from * width, error + from * width,
                  width, rows - from < TOGETHER ? rows - from : TOGETHER, all->tally.sums);
    all->rows = rows;
    free(expected);
    free(room);
}

/* Makes a side hold what serves a head; where the head is among those then. */
static bool hold_head(struct ts_pass *pass, uint64_t first, size_t head, size_t *pick)
{
    size_t served = ts_chain_served(pass->chain, head);
    if ((!pass->held || pass->served != served) && !ts_pass_hold(pass, first, served))
        return false;
    for (*pick = 0; *pick < pass->count && pass->heads[*pick] != head;)
        ++*pick;
    return *pick < pass->count;
}

static bool run_spread(struct spread *spread)
{
    uint64_t first = ts_scene_first(spread->the_case->scene);
    bool good = true;
    /* one head at a time: on the two sides others may serve it */
    spread->right.most = spread->wrong.most = 1;
    for (size_t head = 0; head < spread->right.chain->heads && good; head++) {
        good = hold_head(&spread->right, first, head, &spread->picks[0]) &&
               hold_head(&spread->wrong, first, head, &spread->picks[1]);
        if (good)
            ts_pool_run(spread->right.pool, spread->chosen, add_head, spread);
        good = good && !atomic_load(&spread->failed);
    }
    if (good)
        ts_pool_run(spread->right.pool, spread->chosen, add_stretch, spread);
    return good && !atomic_load(&spread->failed);
}

static void forget(const struct ts_case *the_case, const struct ts_operand *operand)
{
    const struct ts_pair *pair = &the_case->scene->pairs[operand->actor->pair];
    ts_view_forget(&pair->a, 0, pair->a.count);
    ts_view_forget(&pair->b, 0, pair->b.count);
}

/* Whether the same directions can be taken of a head on both sides: they are those of what serves it. */
static bool are_served_alike(const struct ts_chain *right, const struct ts_chain *wrong)
{
    for (size_t head = 0; head < right->heads; head++)
        if (ts_chain_served(right, head) != ts_chain_served(wrong, head))
            return false;
    return true;
}

static bool count_spread(struct ts_case *the_case, const struct ts_formula *formula, struct ts_everywhere *all)
{
    const struct ts_moves *moves = formula->numbers;
    const struct ts_chain *right = &moves->right, *wrong = &moves->wrong;
    double most = ((const struct ts_case_state *)the_case)->settled ? TS_WEAKER_WORK : TS_PARTS_WORK;
    struct spread spread = {.the_case = the_case, .tokens = tokens_of(the_case)};
    double work = formula->work * (double)spread.tokens;
    bool few = work > fmin(most, TS_WHOLE_WORK) && are_served_alike(right, wrong),
         good = right->heads == wrong->heads && right->size == wrong->size;
    spread.count = spread.chosen = (spread.tokens + TS_PASS_ROWS - 1) / TS_PASS_ROWS;
    work = few ? formula->work_few * (double)spread.tokens : work;
    if (work > most)
        spread.chosen = (size_t)((double)spread.count * most / work) + 1;
    if (spread.chosen == 1 && spread.count > 1) /* both ends */
        spread.chosen = 2;
    good = good && ts_pass_open(&spread.right, the_case, right, false, few);
    good = good && ts_pass_open(&spread.wrong, the_case, wrong, true, few);
    if (good) {
        spread.groups = calloc(spread.chosen * GROUPS, sizeof *spread.groups);
        spread.results = calloc(spread.chosen, sizeof *spread.results);
        spread.room =
            malloc(ts_pool_width(spread.right.pool) * TS_PASS_ROWS * spread.right.padded * sizeof *spread.room);
    }
    ts_progress_start_elements(&spread.progress, "proving", spread.chosen * TS_PASS_ROWS * right->heads * right->size);
    good = good && spread.groups && spread.results && spread.room && run_spread(&spread);
    ts_progress_finish(&spread.progress);
    for (size_t i = 0; i < spread.chosen && good; i++) {
        all->rows += spread.results[i].rows;
        all->expected += spread.results[i].expected;
        all->found += spread.results[i].found;
        all->error += spread.results[i].error;
        all->elements += spread.results[i].elements;
        ts_tally_add(&all->tally, &spread.results[i].tally);
    }
    if (spread.right.projected)
        ts_tables_direct(all->tally.sums, (double)(right->heads * TS_PASS_DIRECTIONS));
    all->directed = spread.right.projected;
    all->of_rows = the_case->scene->tokens;
    ts_pass_close(&spread.right);
    ts_pass_close(&spread.wrong);
    forget(the_case, &right->q);
    forget(the_case, &right->k);
    forget(the_case, &right->v);
    free(spread.groups);
    free(spread.results);
    free(spread.room);
    return good;
}

const char *ts_moves_text(struct ts_case *the_case, const char *before, double likeness)
{
    return ts_case_text(
        the_case, "%s (of the hypotheses tried, this one moves the tokens most like the candidate: likeness %.2f)",
        before, likeness);
}

static const char *tell_moves(struct ts_case *the_case, const struct ts_formula *formula, const struct ts_tally *tally,
                              double *share)
{
    const struct ts_moves *moves = formula->numbers;
    double likeness = ts_tables_fair(tally->sums, (double)the_case->actor->width);
    if (moves->sure > 0) {
        *share = moves->sure * fmin(1, fmax(0, likeness) / LIKE_AT_LEAST);
        return moves->before;
    }
    *share = fmax(0, likeness - moves->modesty);
    return ts_moves_text(the_case, moves->before, likeness);
}

/* What needs every query at once cannot be done for some of them. */
static bool is_in_reach(const struct ts_case *the_case, const struct ts_chain *chain, size_t held)
{
    return is_short(the_case, chain, held) || ts_long_reaches(chain);
}

void ts_give_moves(struct ts_case *the_case, const struct ts_moves *moves, bool sampled, size_t held)
{
    bool at_once = is_short(the_case, &moves->wrong, held) && is_short(the_case, &moves->right, held);
    double work = work_of(the_case, &moves->wrong) + work_of(the_case, &moves->right);
    if (is_in_reach(the_case, &moves->wrong, held) && is_in_reach(the_case, &moves->right, held))
        ts_formula_next(the_case, &(struct ts_formula){.count = at_once ? count_moves : NULL,
                                                       .count_at_once = at_once ? NULL : count_spread,
                                                       .tell = tell_moves,
                                                       .numbers = moves,
                                                       .size = sizeof *moves,
                                                       .sampled = sampled,
                                                       .work = work,
                                                       .work_few = few_of(work, &moves->right)});
}

static bool predict_chain(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    return chain_rows(the_case, formula->numbers, true, out);
}

/* All of it, key head by key head. */
struct heads {
    struct ts_pass pass;
    const struct ts_stretch *stretches;
    size_t from, end; /* those of the sequence that is held */
    ts_take_columns *take;
    void *context;
};

static void run_stretch(void *context, uint64_t index, unsigned worker)
{
    struct heads *heads = context;
    struct ts_pass *pass = &heads->pass;
    const struct ts_chain *chain = pass->chain;
    size_t at = heads->end - 1 - (size_t)index, tokens[TS_PARTS_ROWS]; /* the last see most, and come first */
    const struct ts_stretch *stretch = &heads->stretches[at];
    struct ts_columns *columns;
    const double *out;
    for (size_t row = 0; row < stretch->rows; row++)
        tokens[row] = (size_t)(stretch->first - pass->first) + row;
    if (atomic_load(&ts_cancelled) || atomic_load(&pass->failed) ||
        !(out = ts_pass_run(pass, worker, 0, pass->count, tokens, stretch->rows)) ||
        !(columns = calloc(pass->count, sizeof *columns))) {
        atomic_store(&pass->failed, true);
        return;
    }
    for (size_t i = 0; i < pass->count; i++) {
        columns[i] = (struct ts_columns){.first = pass->heads[i] * chain->size,
                                         .count = chain->size,
                                         .out = out + i * stretch->rows * pass->padded,
                                         .stride = pass->padded};
        if (pass->projected) {
            columns[i].directions = ts_pass_directions(pass, pass->heads[i]);
            columns[i].direction_count = TS_PASS_DIRECTIONS;
        }
    }
    if (!heads->take(heads->context, at, columns, pass->count))
        atomic_store(&pass->failed, true);
    free(columns);
}

static bool predict_heads(struct ts_case *the_case, const struct ts_formula *formula,
                          const struct ts_stretch *stretches, size_t count, bool few, ts_take_columns *take,
                          void *context)
{
    const struct ts_chain *chain = formula->numbers;
    uint64_t sequence = ts_scene_sequence(the_case->scene);
    struct heads heads = {.stretches = stretches, .take = take, .context = context};
    bool good = ts_pass_open(&heads.pass, the_case, chain, true, few);
    for (; heads.from < count && good; heads.from = heads.end) {
        uint64_t own = stretches[heads.from].first / sequence;
        for (heads.end = heads.from; heads.end < count && stretches[heads.end].first / sequence == own; heads.end++) {
        }
        for (size_t served = 0; served < ts_chain_serving(chain) && good; served += heads.pass.held) {
            good = ts_pass_hold(&heads.pass, own * sequence, served);
            if (good)
                ts_pool_run(heads.pass.pool, heads.end - heads.from, run_stretch, &heads);
            good = good && !atomic_load(&heads.pass.failed);
        }
    }
    ts_pass_close(&heads.pass);
    return good;
}

void ts_give_chain(struct ts_case *the_case, const struct ts_chain *chain)
{
    double work = work_of(the_case, chain);
    if (is_in_reach(the_case, chain, TS_MOVES_HELD))
        ts_formula_next(the_case, &(struct ts_formula){.predict = predict_chain,
                                                       .predict_parts = ts_pass_reaches(chain) ? predict_heads : NULL,
                                                       .numbers = chain,
                                                       .size = sizeof *chain,
                                                       .work = work,
                                                       .work_few = few_of(work, chain)});
}
