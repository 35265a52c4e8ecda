/* Owns the proof of claims about attention in one step: chains on any rows of any sequence. Sequences that can be held
 * are walked, stretch by stretch; of longer ones runs of tokens are taken from one end to the other, with every key
 * that they see and all of their heads. */
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "base/progress.h"
#include "diagnose/attention_long.h"
#include "diagnose/attention_pass.h"
#include "diagnose/attention_tables.h"
#include "diagnose/case.h"

#define TOGETHER   16  /* tokens whose products are taken with each other */
#define LONG_WORK  8e9 /* multiplications, where they are not: some seconds */
#define LONG_RUN   4   /* tokens in a row, of long sequences */
#define LONG_LEAST 8   /* such runs at least */
_Static_assert(TS_PARTS_ROWS <= TS_PASS_ROWS, "a stretch is done together");
_Static_assert(LONG_RUN <= TS_LONG_TOGETHER && LONG_RUN <= TOGETHER, "a run is done together");

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

/* Some rows of a long sequence, spread over all of it: key heads are shared out, so that each is read once. */
struct spread {
    struct ts_case *the_case;
    const struct ts_moves *moves;
    size_t *tokens, count, wide;
    double *own, *moved; /* [count, wide] */
    bool *failed;        /* per key head */
    struct ts_long *workers;
};

static bool run_head(struct spread *spread, struct ts_long *it, const struct ts_chain *chain, bool candidate,
                     size_t served, double *out)
{
    for (size_t head = 0; head < chain->heads; head++) {
        if (ts_chain_served(chain, head) != served)
            continue;
        for (size_t i = 0; i < spread->count; i += LONG_RUN)
            if (atomic_load(&ts_cancelled) ||
                !ts_long_contexts(it, chain, candidate, head, spread->tokens[i], LONG_RUN,
                                  out + i * spread->wide + head * chain->size, spread->wide))
                return false;
    }
    return true;
}

static void run_served(void *context, uint64_t served, unsigned worker)
{
    struct spread *spread = context;
    struct ts_long *it = &spread->workers[worker];
    bool good = it->the_case || ts_long_open(it, spread->the_case, spread->moves->right.size);
    spread->failed[served] = !good ||
                             !run_head(spread, it, &spread->moves->right, false, (size_t)served, spread->own) ||
                             !run_head(spread, it, &spread->moves->wrong, true, (size_t)served, spread->moved);
}

/* What is expected of one run of rows, and what is wrong with it. */
static bool add_run(const struct spread *spread, size_t at, double *values, float *room, struct ts_everywhere *all)
{
    const struct ts_case *the_case = spread->the_case;
    size_t width = the_case->actor->width, pair = the_case->actor->pair, total = LONG_RUN * width;
    uint64_t first = ts_scene_first(the_case->scene) + spread->tokens[at];
    struct ts_error ignored;
    if (ts_scene_read(the_case->scene, pair, false, first, LONG_RUN, 0, width, room, &ignored) != TS_OK ||
        ts_scene_read(the_case->scene, pair, true, first, LONG_RUN, 0, width, room + total, &ignored) != TS_OK)
        return false;
    for (size_t i = 0; i < total; i++) {
        double expected = (double)room[i], found = (double)room[total + i], error = found - expected;
        values[i] = expected;
        values[total + i] = error;
        if (!isfinite(error))
            continue;
        all->expected += expected * expected;
        all->found += found * found;
        all->error += error * error;
        all->elements += error != 0;
    }
    add_together(spread->own + at * spread->wide, spread->moved + at * spread->wide, spread->wide, values,
                 values + total, width, LONG_RUN, all->tally.sums);
    return true;
}

static void forget(const struct ts_case *the_case, const struct ts_operand *operand)
{
    const struct ts_pair *pair = &the_case->scene->pairs[operand->actor->pair];
    ts_view_forget(&pair->a, 0, pair->a.count);
    ts_view_forget(&pair->b, 0, pair->b.count);
}

static bool count_spread(struct ts_case *the_case, const struct ts_formula *formula, struct ts_everywhere *all)
{
    const struct ts_moves *moves = formula->numbers;
    size_t tokens = tokens_of(the_case), width = the_case->actor->width, served = moves->right.served;
    size_t runs = (size_t)(LONG_WORK / (formula->work * LONG_RUN)), wide = moves->right.heads * moves->right.size;
    struct spread spread = {.the_case = the_case, .moves = moves, .wide = wide};
    struct ts_pool *pool = ts_pool_new(0);
    double *values = malloc(2 * LONG_RUN * width * sizeof *values);
    float *room = malloc(2 * LONG_RUN * width * sizeof *room);
    bool good;
    runs = runs < LONG_LEAST ? LONG_LEAST : runs;
    runs = runs < tokens / LONG_RUN ? runs : tokens / LONG_RUN;
    spread.count = runs * LONG_RUN;
    spread.tokens = calloc(spread.count, sizeof *spread.tokens);
    spread.own = calloc(spread.count, wide * sizeof *spread.own);
    spread.moved = calloc(spread.count, wide * sizeof *spread.moved);
    spread.failed = calloc(served, sizeof *spread.failed);
    spread.workers = pool ? calloc(ts_pool_width(pool), sizeof *spread.workers) : NULL;
    good = spread.workers && spread.tokens && spread.own && spread.moved && spread.failed && values && room &&
           runs > 1 && moves->wrong.served == served;
    for (size_t i = 0; i < spread.count && good; i++) /* both ends are among them */
        spread.tokens[i] = i / LONG_RUN * (tokens - LONG_RUN) / (runs - 1) + i % LONG_RUN;
    if (good)
        ts_pool_run(pool, served, run_served, &spread);
    for (size_t i = 0; i < served && good; i++)
        good = !spread.failed[i];
    for (size_t i = 0; i < spread.count * wide && good; i++)
        spread.moved[i] -= spread.own[i];
    for (size_t at = 0; at < spread.count && good; at += LONG_RUN)
        good = add_run(&spread, at, values, room, all);
    all->rows = spread.count;
    all->of_rows = the_case->scene->tokens;
    for (unsigned i = 0; spread.workers && i < ts_pool_width(pool); i++)
        ts_long_close(&spread.workers[i]);
    forget(the_case, &moves->right.q);
    forget(the_case, &moves->right.k);
    forget(the_case, &moves->right.v);
    ts_pool_free(pool);
    free(spread.tokens);
    free(spread.own);
    free(spread.moved);
    free(spread.failed);
    free(spread.workers);
    free(values);
    free(room);
    return good;
}

const char *ts_moves_text(struct ts_case *the_case, const char *before, double likeness)
{
    return ts_case_text(the_case,
                        "%s (of the hypotheses about it, this one moves the tokens as they were moved, likeness %.2f)",
                        before, likeness);
}

static const char *tell_moves(struct ts_case *the_case, const struct ts_formula *formula, const struct ts_tally *tally,
                              double *share)
{
    const struct ts_moves *moves = formula->numbers;
    double likeness = ts_tables_fair(tally->sums, (double)the_case->actor->width);
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
    if (is_in_reach(the_case, &moves->wrong, held) && is_in_reach(the_case, &moves->right, held))
        ts_formula_next(the_case, &(struct ts_formula){.count = at_once ? count_moves : NULL,
                                                       .count_at_once = at_once ? NULL : count_spread,
                                                       .tell = tell_moves,
                                                       .numbers = moves,
                                                       .size = sizeof *moves,
                                                       .sampled = sampled,
                                                       .work = work_of(the_case, &moves->wrong) +
                                                               work_of(the_case, &moves->right)});
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
        for (size_t served = 0; served < chain->served && good; served += heads.pass.held) {
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
        ts_formula_next(the_case,
                        &(struct ts_formula){.predict = predict_chain,
                                             .predict_parts = ts_pass_reaches(chain) ? predict_heads : NULL,
                                             .numbers = chain,
                                             .size = sizeof *chain,
                                             .work = work,
                                             .work_few = work / 2 * (1 + TS_PASS_DIRECTIONS / (double)chain->size)});
}
