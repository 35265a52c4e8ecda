/* Owns keys and values that are other tokens': one of them, or all of them one place off. Over a long sequence a key is
 * looked for whose scores hold most of the error, and the token whose key they fit. */
#include <stdlib.h>
#include <string.h>

#include "diagnose/formula.h"
#include "diagnose/variant.h"

#define WORTHWHILE 0.3

/* Cost of one key in place of another, over rows and heads. */
static double key_cost(const struct ts_variants *variants, size_t to, size_t from)
{
    const struct ts_case *the_case = variants->the_case;
    const struct ts_actor *actor = the_case->actor, *q = variants->from[0], *k = variants->from[1];
    size_t size = q->width / actor->heads, repeat = actor->heads / (k->width / size);
    double cost = 0;
    for (size_t row = 0; row<actor->rows; row += actor->rows> 16 ? 3 : 1)
        for (size_t head = 0; head < actor->heads; head++) {
            size_t at = row * actor->width + head * actor->inner + to;
            const double *x = variants->inputs[0] + row * q->width + head * size;
            const double *y = variants->inputs[1] + from * k->width + head / repeat * size;
            double sum = 0, d;
            if (!ts_is_allowed(the_case->expected[at]) || !isfinite(the_case->found[at]))
                continue;
            for (size_t i = 0; i < size; i++)
                sum += x[i] * y[i];
            d = the_case->found[at] - the_case->operation.factor * sum;
            cost += d * d;
        }
    return cost;
}

static bool find_stale_key(const struct ts_variants *variants, size_t *token, size_t *source)
{
    const struct ts_case *the_case = variants->the_case;
    const struct ts_actor *actor = the_case->actor;
    double *costs, all = 0, best;
    if (the_case->operation.kind != TS_OPERATION_SCORES || the_case->operation.table ||
        !(costs = calloc(actor->inner, sizeof *costs)))
        return false;
    for (size_t i = 0; i < the_case->total; i++) {
        double cost = ts_element_cost(the_case->found[i], the_case->expected[i], the_case->expected[i]);
        costs[i % actor->inner] += cost > 0 ? cost : 0;
        all += cost > 0 ? cost : 0;
    }
    for (size_t key = *token = 0; key < actor->inner; key++)
        *token = costs[key] > costs[*token] ? key : *token;
    *source = *token;
    best = costs[*token] > 0.5 * all ? 0.1 * key_cost(variants, *token, *token) : 0;
    free(costs);
    for (size_t from = 0; from < actor->inner && best > 0; from++) {
        double cost = from == *token ? best : key_cost(variants, *token, from);
        if (cost < best) {
            best = cost;
            *source = from;
        }
    }
    return *source != *token;
}

/* Which tokens serve as keys or values: `token` is that of `source`; or all of them are those of another place. */
struct moved {
    bool all;
    size_t token, source;
    int way; /* back or ahead, the end around the corner or kept */
};

static void move_tokens(const struct moved *moved, size_t rows, size_t width, const double *own, double *out)
{
    size_t step = moved->way % 2 ? rows - 1 : 1;
    for (size_t row = 0; row < rows; row++) {
        size_t source = moved->all ? (row + rows - step) % rows : row == moved->token ? moved->source : row;
        if (moved->all && moved->way >= 2 && (moved->way % 2 ? row + 1 == rows : row == 0))
            source = row;
        memcpy(out + row * width, own + source * width, width * sizeof *out);
    }
}

static bool predict_moved(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct moved *how = formula->numbers;
    const struct ts_operation *operation = &the_case->operation;
    const struct ts_actor *from = ts_operation_input(the_case->scene, operation, 1);
    double *inputs[3] = {NULL, NULL, NULL}, *own = NULL;
    bool good = from && from->rows > how->token && from->rows > how->source && from->rows > 1;
    for (unsigned k = 0; k < operation->input_count && good; k++) {
        const struct ts_actor *input = ts_operation_input(the_case->scene, operation, k);
        good = input && (inputs[k] = ts_as_doubles(input->b, input->rows * input->width)) != NULL;
    }
    own = good ? inputs[1] : NULL;
    if (good && (inputs[1] = malloc(from->rows * from->width * sizeof *own))) {
        move_tokens(how, from->rows, from->width, own, inputs[1]);
        ts_operation_apply(the_case->scene, operation, the_case->actor, inputs, out);
    } else {
        good = false;
    }
    free(own);
    for (int k = 0; k < 3; k++)
        free(inputs[k]);
    return good;
}

static void give_moved(struct ts_case *the_case, const struct moved *moved)
{
    ts_formula_next(the_case, &(struct ts_formula){.predict = predict_moved,
                                                   .numbers = moved,
                                                   .size = sizeof *moved,
                                                   .work = ts_operation_work(the_case, &the_case->operation)});
}

/* One key (or value) is another token's: a cache that was not written, or written at the wrong place. */
void ts_propose_stale_token(struct ts_case *the_case, struct ts_variants *variants)
{
    const struct ts_actor *k = variants->from[1];
    double *keys = variants->inputs[1], most = WORTHWHILE, *kept = malloc(k->width * sizeof *kept);
    size_t token = 0, source = 0, tokens = k->rows;
    /* every token in place of every other, on the rows tried first */
    if (kept && tokens <= 64)
        for (size_t to = 0; to < tokens; to++)
            for (size_t from = 0; from < tokens; from++) {
                double share;
                if (from == to)
                    continue;
                memcpy(kept, keys + to * k->width, k->width * sizeof *kept);
                memcpy(keys + to * k->width, keys + from * k->width, k->width * sizeof *kept);
                share = ts_variants_try(variants, &the_case->operation, variants->inputs);
                memcpy(keys + to * k->width, kept, k->width * sizeof *kept);
                if (share > most) {
                    most = share;
                    token = to;
                    source = from;
                }
            }
    if (kept && tokens > 64 && tokens == the_case->actor->sequence && !find_stale_key(variants, &token, &source))
        source = token;
    if (kept && token != source) {
        memcpy(kept, keys + token * k->width, k->width * sizeof *kept);
        memcpy(keys + token * k->width, keys + source * k->width, k->width * sizeof *kept);
        give_moved(the_case, &(struct moved){.token = token, .source = source});
        ts_propose(the_case, "stale", ts_variants_apply(variants, &the_case->operation, variants->inputs), 2,
                   "the cache slot that each token is written to",
                   "the candidate's %s of token %zu is that of token %zu",
                   the_case->operation.kind == TS_OPERATION_SCORES ? "key" : "value", token, source);
        memcpy(keys + token * k->width, kept, k->width * sizeof *kept);
    }
    free(kept);
}

/* Keys or values of all tokens one place further: a cache that is written, or read, one slot off. */
void ts_propose_shifted_tokens(struct ts_case *the_case, struct ts_variants *variants)
{
    const struct ts_actor *from = variants->from[1];
    double *own = variants->inputs[1], *moved;
    if (!from->whole || from->rows < 3 || from->sequence != from->rows)
        return;
    moved = malloc(from->rows * from->width * sizeof *moved);
    for (int way = 0; way < 4 && moved; way++) {
        struct moved how = {.all = true, .way = way};
        double *inputs[3];
        memcpy(inputs, variants->inputs, sizeof inputs);
        inputs[1] = moved;
        move_tokens(&how, from->rows, from->width, own, moved);
        if (ts_variants_try(variants, &the_case->operation, inputs) <= WORTHWHILE)
            continue;
        give_moved(the_case, &how);
        ts_propose(the_case, "shifted", ts_variants_apply(variants, &the_case->operation, inputs), 1,
                   "the cache slot that a token is written to or read from",
                   "in the candidate, each token gets the %s of the token %s",
                   the_case->operation.kind == TS_OPERATION_SCORES ? "key" : "value",
                   way % 2 ? "after it" : "before it");
    }
    free(moved);
}
