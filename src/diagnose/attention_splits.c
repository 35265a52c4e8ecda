/* Attention whose queries, keys or values were captured as they leave their projections: split into heads in another
 * way than the reference does. */
#include <stdlib.h>
#include <string.h>

#include "diagnose/attention_chain.h"
#include "diagnose/formula.h"
#include "diagnose/variant.h"

#define WORTHWHILE 0.5

struct splits {
    enum ts_split split;
    bool slots[2]; /* which inputs of the operation */
};

/* Heads of an input, as it was captured: probabilities have other numbers. */
static size_t heads_of(const struct ts_variants *variants, unsigned slot)
{
    const struct ts_case *the_case = variants->the_case;
    const struct ts_actor *q = variants->from[0];
    bool scores = the_case->operation.kind == TS_OPERATION_SCORES;
    size_t heads = scores ? the_case->actor->heads : q->heads, width = scores ? q->width : the_case->actor->width;
    if (!heads || width % heads || (!scores && slot == 0))
        return 0;
    return variants->from[slot]->width % (width / heads) ? 0 : variants->from[slot]->width / (width / heads);
}

/* Queries viewed as [heads, tokens, size] where the case holds some tokens of a long sequence: what stands in place of
 * theirs is other tokens', and is read. */
static bool read_viewed(const struct ts_variants *variants, const struct ts_actor *from, size_t size, double *out)
{
    const struct ts_case *the_case = variants->the_case;
    const uint64_t first = ts_scene_first(the_case->scene), tokens = ts_scene_sequence(the_case->scene);
    float *read = malloc(size * sizeof *read);
    bool good = read && from->rows == the_case->actor->rows;
    for (size_t at = 0; at < from->rows * from->width && good; at += size) {
        const uint64_t token = ts_case_row(the_case, at / from->width), head = at % from->width / size;
        const uint64_t place = (head * tokens + token) * size;
        struct ts_error ignored;
        good = token < tokens && ts_scene_read(the_case->scene, from->pair, true, first + place / from->width, 1,
                                               place % from->width, size, read, &ignored) == TS_OK;
        for (size_t i = 0; i < size && good; i++)
            out[at + i] = (double)read[i];
    }
    free(read);
    return good;
}

/* An input split in another way, to be freed. NULL where that needs tokens that are not at hand. */
static double *split_input(const struct ts_variants *variants, unsigned slot, enum ts_split split)
{
    const struct ts_actor *from = variants->from[slot];
    size_t heads = heads_of(variants, slot), size = heads ? from->width / heads : 0, tokens = from->rows;
    double *out = heads < 2 ? NULL : malloc(tokens * from->width * sizeof *out);
    if (out && split == TS_SPLIT_UNTURNED && from->sequence != tokens) {
        if (slot == 0 && read_viewed(variants, from, size, out))
            return out;
        free(out);
        return NULL;
    }
    for (size_t at = 0; at < tokens * from->width && out; at++)
        out[at] = variants->inputs[slot][ts_split_place(split, tokens, heads, size, at / from->width, at / size % heads,
                                                        at % size)];
    return out;
}

/* The inputs as the candidate may take them; those that are made are to be freed. */
static bool split_inputs(const struct ts_variants *variants, const struct splits *splits, double *inputs[3],
                         double *made[2])
{
    memcpy(inputs, variants->inputs, sizeof variants->inputs);
    for (unsigned slot = 0; slot < 2; slot++) {
        made[slot] = NULL;
        if (splits->slots[slot] && !(inputs[slot] = made[slot] = split_input(variants, slot, splits->split))) {
            free(made[0]);
            return false;
        }
    }
    return true;
}

static bool predict_splits(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    struct ts_variants variants;
    double *inputs[3], *made[2];
    bool good;
    if (!ts_variants_open(&variants, the_case, &the_case->operation))
        return false;
    good = split_inputs(&variants, formula->numbers, inputs, made);
    if (good) {
        ts_operation_apply(the_case->scene, &the_case->operation, the_case->actor, inputs, out);
        free(made[0]);
        free(made[1]);
    }
    ts_variants_close(&variants);
    return good;
}

static void say(struct ts_variants *variants, const struct splits *splits, double *const *inputs)
{
    struct ts_case *the_case = variants->the_case;
    const char *first = ts_case_name(the_case, variants->from[splits->slots[0] ? 0 : 1]);
    const char *whose = splits->slots[0] && splits->slots[1]
                            ? ts_case_text(the_case, "%s and %s", first, ts_case_name(the_case, variants->from[1]))
                            : first;
    bool numbers = splits->split == TS_SPLIT_NUMBERS;
    ts_formula_next(the_case, &(struct ts_formula){.predict = predict_splits,
                                                   .numbers = splits,
                                                   .size = sizeof *splits,
                                                   .work = ts_operation_work(the_case, &the_case->operation)});
    ts_propose(the_case, "permuted", ts_variants_apply(variants, &the_case->operation, inputs), 0,
               "how heads are split off (view, reshape, transpose) between the projections and the attention",
               numbers ? "the candidate splits %s into [head_dim, heads] instead of [heads, head_dim]"
                       : "the candidate takes %s for [heads, tokens, head_dim]: viewed so in place of transposed",
               whose);
}

void ts_propose_splits(struct ts_case *the_case, struct ts_variants *variants)
{
    const bool scores = the_case->operation.kind == TS_OPERATION_SCORES;
    for (enum ts_split split = TS_SPLIT_NUMBERS; split <= TS_SPLIT_UNTURNED; split++)
        for (unsigned which = scores ? 1 : 2; which < (scores ? 4 : 3); which++) {
            const struct splits splits = {split, {which & 1, which & 2}};
            double *inputs[3], *made[2];
            if (!split_inputs(variants, &splits, inputs, made))
                continue;
            if (ts_variants_try(variants, &the_case->operation, inputs) > WORTHWHILE)
                say(variants, &splits, inputs);
            free(made[0]);
            free(made[1]);
        }
}
