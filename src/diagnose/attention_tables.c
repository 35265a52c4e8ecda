/* Owns how alike two tables of products are, and attention in one step on any rows of any sequence, where claims about
 * it are put to the proof. */
#include "diagnose/attention_tables.h"

#include <stdlib.h>
#include <string.h>

#include "diagnose/attention_long.h"

#define TOGETHER   16                /* tokens whose products are taken with each other */
#define HELD_MOST  ((size_t)1 << 21) /* numbers of queries, keys and values that are held at once */
#define OF_MOVED   0.2               /* how much each of the three ways to compare counts */
#define OF_FINER   0.5
#define OF_CROSSED 0.3

void ts_products_of(const double *x, const double *y, size_t tokens, size_t width, bool centred, double *out)
{
    double *mean = calloc(2 * tokens + 1, sizeof *mean), all = 0;
    for (size_t s = 0; s < tokens; s++)
        for (size_t t = 0; t < tokens; t++) {
            double sum = 0;
            for (size_t i = 0; i < width; i++)
                sum += x[s * width + i] * y[t * width + i];
            out[s * tokens + t] = isfinite(sum) ? sum : 0;
        }
    for (size_t s = 0; s < tokens && centred && mean; s++)
        for (size_t t = 0; t < tokens; t++) {
            mean[s] += out[s * tokens + t] / (double)tokens;
            mean[tokens + t] += out[s * tokens + t] / (double)tokens;
            all += out[s * tokens + t] / (double)(tokens * tokens);
        }
    for (size_t s = 0; s < tokens && centred && mean; s++)
        for (size_t t = 0; t < tokens; t++)
            out[s * tokens + t] += all - mean[s] - mean[tokens + t];
    free(mean);
}

double ts_table_cosine(const double *a, const double *b, size_t tokens)
{
    double dot = 0, left = 0, right = 0;
    for (size_t i = 0; i < tokens * tokens; i++) {
        dot += a[i] * b[i];
        left += a[i] * a[i];
        right += b[i] * b[i];
    }
    return left > 0 && right > 0 ? dot / sqrt(left * right) : 0;
}

/* Sums of products between what is predicted (A), what was found (B), and what the sizes of the rows alone make of each
 * (SA, SB): of whole tables, of crossed ones, and of different tokens only. CHANCE: squares of what the projection may
 * add to a crossed product, times its width. */
enum {
    MOVED_AB,
    MOVED_AA,
    MOVED_BB,
    CROSSED_AB,
    CROSSED_AA,
    CROSSED_BB,
    CHANCE,
    AB,
    AA,
    BB,
    A_SA,
    SA_SA,
    B_SB,
    SB_SB,
    SA_B,
    A_SB,
    SA_SB,
    SUMS
};
_Static_assert(SUMS <= TS_TALLY_SUMS, "a tally has so many sums");

void ts_tables_add(const struct ts_tables *tables, const double *sizes, size_t tokens, double *sums)
{
    for (size_t s = 0; s < tokens; s++)
        for (size_t t = 0; t < tokens; t++) {
            size_t at = s * tokens + t;
            double a = tables->moved[at], b = tables->moved_found[at], x = tables->crossed[at];
            double own_a = sqrt(fabs(tables->moved[s * tokens + s] * tables->moved[t * tokens + t]));
            double own_b = sqrt(fabs(tables->moved_found[s * tokens + s] * tables->moved_found[t * tokens + t]));
            sums[MOVED_AB] += a * b;
            sums[MOVED_AA] += a * a;
            sums[MOVED_BB] += b * b;
            sums[CROSSED_AB] += x * tables->crossed_found[at];
            sums[CROSSED_AA] += x * x;
            sums[CROSSED_BB] += tables->crossed_found[at] * tables->crossed_found[at];
            sums[CHANCE] += sizes ? sizes[s] * tables->moved[t * tokens + t] : 0;
            if (s == t)
                continue;
            sums[AB] += a * b;
            sums[AA] += a * a;
            sums[BB] += b * b;
            sums[A_SA] += a * own_a;
            sums[SA_SA] += own_a * own_a;
            sums[B_SB] += b * own_b;
            sums[SB_SB] += own_b * own_b;
            sums[SA_B] += own_a * b;
            sums[A_SB] += a * own_b;
            sums[SA_SB] += own_a * own_b;
        }
}

static double cosine(double dot, double left, double right)
{
    return left > 0 && right > 0 ? dot / sqrt(left * right) : 0;
}

/* Between different tokens, without what the sizes of the rows alone make of a table: rows that are all unrelated, or
 * that all move one way, resemble each other under any hypothesis. left: what there is of the prediction. */
static double finer(const double *sums, double *left)
{
    double slope_a = sums[SA_SA] > 0 ? sums[A_SA] / sums[SA_SA] : 0;
    double slope_b = sums[SB_SB] > 0 ? sums[B_SB] / sums[SB_SB] : 0;
    double dot = sums[AB] - slope_a * sums[SA_B] - slope_b * sums[A_SB] + slope_a * slope_b * sums[SA_SB];
    *left = sums[AA] - slope_a * sums[A_SA];
    return cosine(dot, *left, sums[BB] - slope_b * sums[B_SB]);
}

double ts_tables_likeness(const double *sums)
{
    double left;
    return OF_MOVED * cosine(sums[MOVED_AB], sums[MOVED_AA], sums[MOVED_BB]) + OF_FINER * finer(sums, &left) +
           OF_CROSSED * cosine(sums[CROSSED_AB], sums[CROSSED_AA], sums[CROSSED_BB]);
}

/* The same as it would be if the projection added nothing of its own to products. Far down a long sequence tokens are
 * moved in all directions, and a projection to so many numbers hides what is left of their products: then those count
 * for less. */
static double fair_likeness(const double *sums, double width)
{
    double left, alike = finer(sums, &left), across = cosine(sums[CROSSED_AB], sums[CROSSED_AA], sums[CROSSED_BB]);
    double finer_seen = left / (left + (sums[SA_SA] + sums[AA]) / width);
    double crossed_seen = sums[CROSSED_AA] / (sums[CROSSED_AA] + (sums[CHANCE] + sums[CROSSED_AA]) / width);
    double of_finer = left > 0 ? OF_FINER * finer_seen : 0;
    double of_crossed = sums[CROSSED_AA] > 0 ? OF_CROSSED * crossed_seen : 0;
    alike = of_finer > 0 ? fmin(1, alike / sqrt(finer_seen)) : 0;
    across = of_crossed > 0 ? fmin(1, across / sqrt(crossed_seen)) : 0;
    return (OF_MOVED * cosine(sums[MOVED_AB], sums[MOVED_AA], sums[MOVED_BB]) + of_finer * alike +
            of_crossed * across) /
           (OF_MOVED + of_finer + of_crossed);
}

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

/* All tokens of the sequence can be held. */
static bool is_short(const struct ts_case *the_case, const struct ts_chain *chain)
{
    return tokens_of(the_case) <= HELD_MOST / (chain->q.width + chain->k.width + chain->v.width + 1);
}

/* The context of the case's rows, heads * size numbers each, with every token of their sequence. */
static bool chain_rows(struct ts_case *the_case, const struct ts_chain *chain, bool candidate, double *out)
{
    size_t tokens = tokens_of(the_case), width = chain->heads * chain->size, rows = the_case->actor->rows;
    struct ts_chain_inputs in = {0};
    double *all;
    float *room;
    bool good;
    if (!is_short(the_case, chain))
        return ts_long_rows(the_case, chain, candidate, out);
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

static bool count_moves(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                        struct ts_tally *tally)
{
    const struct ts_moves *moves = formula->numbers;
    size_t rows = the_case->actor->rows, width = the_case->actor->width, wide = moves->right.heads * moves->right.size;
    double *own = malloc(rows * wide * sizeof *own), *moved = malloc(rows * wide * sizeof *moved);
    double *error = malloc(the_case->total * sizeof *error), room[4][TOGETHER * TOGETHER], sizes[TOGETHER];
    struct ts_tables tables = {room[0], room[1], room[2], room[3]};
    bool good = own && moved && error && chain_rows(the_case, &moves->right, false, own) &&
                chain_rows(the_case, &moves->wrong, true, moved);
    (void)out;
    for (size_t i = 0; i < rows * wide && good; i++)
        moved[i] -= own[i];
    for (size_t i = 0; i < the_case->total && good; i++)
        error[i] = the_case->found[i] - the_case->expected[i];
    for (size_t row = 0; row < rows && good; row += TOGETHER) {
        size_t tokens = rows - row < TOGETHER ? rows - row : TOGETHER;
        const double *x = own + row * wide, *d = moved + row * wide, *e = error + row * width;
        ts_products_of(d, d, tokens, wide, false, tables.moved);
        ts_products_of(x, d, tokens, wide, false, tables.crossed);
        ts_products_of(e, e, tokens, width, false, tables.moved_found);
        ts_products_of(the_case->expected + row * width, e, tokens, width, false, tables.crossed_found);
        for (size_t t = 0; t < tokens; t++) {
            sizes[t] = 0;
            for (size_t i = 0; i < wide; i++)
                sizes[t] += x[t * wide + i] * x[t * wide + i];
        }
        ts_tables_add(&tables, sizes, tokens, tally->sums);
    }
    free(own);
    free(moved);
    free(error);
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
    double likeness = fair_likeness(tally->sums, (double)the_case->actor->width);
    *share = fmax(0, likeness - moves->modesty);
    return ts_moves_text(the_case, moves->before, likeness);
}

/* What needs every query at once cannot be done for some of them. */
static bool is_in_reach(const struct ts_case *the_case, const struct ts_chain *chain)
{
    return is_short(the_case, chain) || ts_long_reaches(chain);
}

void ts_give_moves(struct ts_case *the_case, const struct ts_moves *moves, bool sampled)
{
    if (is_in_reach(the_case, &moves->wrong) && is_in_reach(the_case, &moves->right))
        ts_formula_next(the_case, &(struct ts_formula){.count = count_moves,
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

void ts_give_chain(struct ts_case *the_case, const struct ts_chain *chain)
{
    if (is_in_reach(the_case, chain))
        ts_formula_next(the_case, &(struct ts_formula){.predict = predict_chain,
                                                       .numbers = chain,
                                                       .size = sizeof *chain,
                                                       .work = work_of(the_case, chain)});
}
