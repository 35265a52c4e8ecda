/* Attention: which key and value heads serve which query heads, and queries that stand where keys should. */
#include <stdlib.h>
#include <string.h>

#include "compare/operation_across.h"
#include "diagnose/formula.h"
#include "diagnose/variant.h"

#define WORTHWHILE 0.3

/* Scores or context over some rows, with given key or value heads for each query head. */
static void fill_heads(const struct ts_variants *variants, const size_t *serves, size_t first, size_t count)
{
    const struct ts_case *the_case = variants->the_case;
    const struct ts_actor *actor = the_case->actor, *q = variants->from[0], *k = variants->from[1];
    bool scores = the_case->operation.kind == TS_OPERATION_SCORES;
    size_t heads = scores ? actor->heads : q->heads, keys = scores ? actor->inner : q->inner;
    size_t inner = scores ? q->width / heads : actor->width / heads, part = q->width / heads;
    for (size_t row = first; row < first + count; row++)
        for (size_t head = 0; head < heads; head++) {
            double *out = variants->out + row * actor->width + head * (scores ? keys : inner);
            const double *from = variants->inputs[0] + row * q->width + head * part;
            if (!scores)
                memset(out, 0, inner * sizeof *out);
            for (size_t key = 0; key < keys; key++) {
                const double *to = variants->inputs[1] + key * k->width + serves[head] * inner;
                double sum = 0;
                if (!scores) {
                    for (size_t i = 0; i < inner && from[key] != 0; i++)
                        out[i] += from[key] * to[i];
                    continue;
                }
                for (size_t i = 0; i < inner; i++)
                    sum += from[i] * to[i];
                out[key] = ts_is_allowed((double)actor->a[row * actor->width + head * keys + key])
                               ? the_case->operation.factor * sum
                               : -(double)INFINITY;
            }
        }
}

/* Masks of the reference, and the factor, on products of queries with keys. */
static void mask_scores(const struct ts_case *the_case, double *out)
{
    for (size_t i = 0; i < the_case->total; i++)
        out[i] = ts_is_allowed((double)the_case->actor->a[i]) ? the_case->operation.factor * out[i] : -(double)INFINITY;
}

/* The same for rows of one sequence, many at a time. */
static bool predict_heads(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct ts_actor *actor = the_case->actor, *q, *k;
    bool scores = the_case->operation.kind == TS_OPERATION_SCORES, good;
    struct ts_across across = {.row_count = actor->rows, .serves = formula->numbers};
    struct ts_variants variants;
    if (!ts_variants_open(&variants, the_case, &the_case->operation))
        return false;
    q = variants.from[0];
    k = variants.from[1];
    across.rows = variants.inputs[0];
    across.heads = scores ? actor->heads : q->heads;
    across.part = q->width / across.heads;
    across.all = variants.inputs[1] + ts_scene_keys(the_case->scene, actor, 0) * k->width;
    across.keys = scores ? actor->inner : q->inner;
    across.width = k->width;
    across.size = (scores ? q->width : actor->width) / across.heads;
    good = the_case->scene->in_f32 && (scores ? ts_across_scores(&across, out) : ts_across_context(&across, out));
    if (good && scores)
        mask_scores(the_case, out);
    if (!good) {
        fill_heads(&variants, formula->numbers, 0, actor->rows);
        memcpy(out, variants.out, the_case->total * sizeof *out);
    }
    ts_variants_close(&variants);
    return true;
}

/* Cost of one head on the rows tried first. */
static double head_cost(const struct ts_variants *variants, size_t heads, size_t head)
{
    const struct ts_case *the_case = variants->the_case;
    const struct ts_actor *actor = the_case->actor;
    size_t part = actor->width / heads;
    double sum = 0;
    for (size_t row = variants->first; row < variants->first + variants->count; row++)
        for (size_t i = row * actor->width + head * part; i < row * actor->width + (head + 1) * part; i++) {
            double cost = ts_element_cost(the_case->found[i], variants->out[i], the_case->expected[i]);
            sum += cost > 0 ? cost : 0;
        }
    return sum;
}

/* Which key (value) head serves each query head in the candidate. */
void ts_propose_heads(struct ts_case *the_case, struct ts_variants *variants)
{
    const struct ts_actor *q = variants->from[0], *k = variants->from[1];
    bool scores = the_case->operation.kind == TS_OPERATION_SCORES;
    size_t heads = scores ? the_case->actor->heads : q->heads;
    size_t inner = (scores ? q->width : the_case->actor->width) / heads, served = k->width / inner;
    size_t *best, *trial, repeat, changed = 0, first = SIZE_MAX;
    double *costs;
    bool tiled = true;
    if (served < 2 || heads % served)
        return;
    repeat = heads / served;
    best = calloc(heads * 2, sizeof *best);
    costs = calloc(heads, sizeof *costs);
    trial = best ? best + heads : NULL;
    for (size_t shift = 0; shift < served && best && costs; shift++) {
        for (size_t head = 0; head < heads; head++)
            trial[head] = (head / repeat + shift) % served;
        fill_heads(variants, trial, variants->first, variants->count);
        for (size_t head = 0; head < heads; head++) {
            double cost = head_cost(variants, heads, head);
            if (shift == 0 || cost < 0.7 * costs[head]) {
                costs[head] = cost;
                best[head] = trial[head];
            }
        }
    }
    for (size_t head = 0; head < heads && best && costs; head++) {
        tiled = tiled && best[head] == head % served;
        if (best[head] != head / repeat) {
            changed++;
            first = first == SIZE_MAX ? head : first;
        }
    }
    if (changed) {
        fill_heads(variants, best, 0, the_case->actor->rows);
        ts_formula_next(the_case, &(struct ts_formula){.predict = predict_heads,
                                                       .numbers = best,
                                                       .size = heads * sizeof *best,
                                                       .work = ts_operation_work(the_case, &the_case->operation)});
        if (tiled)
            ts_propose(the_case, "heads", variants->out, 0,
                       "how key and value heads are repeated for grouped queries: repeat_interleave, not repeat",
                       "the candidate tiles the %s heads instead of repeating each: query head h uses head h %% %zu, "
                       "in the reference h / %zu",
                       scores ? "key" : "value", served, repeat);
        else
            ts_propose(the_case, "heads", variants->out, changed, "how key and value heads are assigned to query heads",
                       "%zu of %zu query heads use the wrong %s head: head %zu uses %zu instead of %zu", changed, heads,
                       scores ? "key" : "value", first, best[first], first / repeat);
    }
    free(best);
    free(costs);
}

/* Scores of keys in place of queries with the queries of every token in place of keys, over some rows; `keys` are those
 * of the case's tokens. */
static void fill_exchanged(const struct ts_case *the_case, const struct ts_actor *queries, const struct ts_actor *keys,
                           size_t first, size_t count, double *out)
{
    const struct ts_actor *actor = the_case->actor;
    size_t heads = actor->heads, tokens = actor->inner, size = queries->width / heads;
    size_t repeat = heads / (keys->width / size);
    for (size_t row = first; row < first + count; row++)
        for (size_t head = 0; head < heads; head++) {
            const float *from = keys->b + row * keys->width + head / repeat * size;
            const float *all = queries->b + ts_scene_keys(the_case->scene, actor, row) * queries->width + head * size;
            for (size_t token = 0; token < tokens; token++) {
                size_t at = row * actor->width + head * tokens + token;
                double sum = 0;
                for (size_t i = 0; i < size; i++)
                    sum += (double)from[i] * (double)all[token * queries->width + i];
                out[at] = ts_is_allowed((double)actor->a[at]) ? the_case->operation.factor * sum : -(double)INFINITY;
            }
        }
}

/* The queries of every token and the keys of the case's; false when they are not at hand. */
static bool find_exchanged(struct ts_case *the_case, const struct ts_actor **queries, const struct ts_actor **keys)
{
    const struct ts_actor *actor = the_case->actor;
    *queries = ts_scene_all(the_case->scene, the_case->operation.inputs[0]);
    *keys = ts_scene_actor(the_case->scene, the_case->operation.inputs[1]);
    return *queries && *keys && (*keys)->rows == actor->rows && actor->inner == actor->sequence &&
           (*queries)->rows % actor->inner == 0 && (*queries)->width % actor->heads == 0 &&
           (*keys)->width % ((*queries)->width / actor->heads) == 0 &&
           actor->heads % ((*keys)->width / ((*queries)->width / actor->heads)) == 0;
}

/* The heads of each row so often that there are as many as of queries. */
static double *repeated(const struct ts_actor *keys, size_t size, size_t heads)
{
    size_t width = heads * size, repeat = width / keys->width;
    double *out = malloc(keys->rows * width * sizeof *out);
    for (size_t i = 0; i < keys->rows * width && out; i++)
        out[i] = (double)keys->b[i / width * keys->width + i % width / size / repeat * size + i % size];
    return out;
}

static bool predict_exchanged(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct ts_actor *actor = the_case->actor, *queries, *keys;
    struct ts_across across = {.row_count = actor->rows, .heads = actor->heads, .keys = actor->inner};
    double *rows, *all;
    (void)formula;
    if (!find_exchanged(the_case, &queries, &keys))
        return false;
    across.part = across.size = queries->width / actor->heads;
    across.width = queries->width;
    rows = the_case->scene->in_f32 ? repeated(keys, across.size, actor->heads) : NULL;
    all = rows ? ts_as_doubles(queries->b + ts_scene_keys(the_case->scene, actor, 0) * queries->width,
                               actor->inner * queries->width)
               : NULL;
    across.rows = rows;
    across.all = all;
    if (all && ts_across_scores(&across, out))
        mask_scores(the_case, out);
    else
        fill_exchanged(the_case, queries, keys, 0, actor->rows, out);
    free(rows);
    free(all);
    return true;
}

void ts_propose_exchanged(struct ts_case *the_case, struct ts_variants *variants)
{
    const struct ts_actor *queries, *keys;
    if (the_case->operation.kind != TS_OPERATION_SCORES || !find_exchanged(the_case, &queries, &keys))
        return;
    fill_exchanged(the_case, queries, keys, variants->first, variants->count, variants->out);
    if (ts_variants_share(variants, variants->out) <= WORTHWHILE)
        return;
    fill_exchanged(the_case, queries, keys, 0, the_case->actor->rows, variants->out);
    ts_formula_next(the_case, &(struct ts_formula){.predict = predict_exchanged,
                                                   .work = ts_operation_work(the_case, &the_case->operation)});
    ts_propose(the_case, "wrong-input", variants->out, 0, "the order of the operands of the score product (q @ k.T)",
               "the candidate swaps queries and keys: the rows and columns of its scores are swapped");
}
