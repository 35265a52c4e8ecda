/* Owns gates that were not captured: the stream behind a block is x + gate * y, or x + gate * y + other gate * z of its
 * two branches, each gate one number per channel for all tokens. Hooks show x, y and z and no gate: it is learnt from
 * the reference, by least squares in every channel, and what the candidate does with it is tried. */
#include <stdlib.h>
#include <string.h>

#include "diagnose/variant.h"
#include "diagnose/wiring.h"

#define LEAST_ROWS  8
#define BRANCH_BACK 3  /* tensors between a branch that ends a block and the block */
#define REACH       14 /* and between the first branch, or the stream, and it */
#define WORTHWHILE  0.5
#define ROUNDINGS   8.0
#define LEAST_LEFT  2e-5
#define CONSTANT    0.1 /* of a gate's size: how much it must vary, so that it is none of one number for all */

enum way { AS_IT_IS, OTHER_SIGN, MISSING, ONE_MORE, LEFT_OUT, EXCHANGED, WAYS };

/* What the reference does: the stream, the nearer branch, the further one or NULL; gates of both, a channel each. */
struct gated {
    const struct ts_actor *x, *y, *z;
    double *gates;
};

struct gating {
    enum way ways[2]; /* of y and of z */
    bool two;
};

/* Sums of one channel for least squares in two unknowns. */
struct normal {
    double yy, yz, zz, ty, tz;
};

static bool solve(const struct normal *sums, bool two, double *y, double *z)
{
    double determinant = sums->yy * sums->zz - sums->yz * sums->yz;
    *z = 0;
    *y = sums->yy > 0 ? sums->ty / sums->yy : 0;
    if (!two)
        return sums->yy > 0;
    if (!(determinant > 1e-9 * sums->yy * sums->zz))
        return false;
    *y = (sums->ty * sums->zz - sums->tz * sums->yz) / determinant;
    *z = (sums->tz * sums->yy - sums->ty * sums->yz) / determinant;
    return true;
}

/* Fits the gates to the reference; false at the first channels that they do not give. */
static bool fit(const struct ts_case *the_case, const struct gated *gated)
{
    const struct ts_actor *actor = the_case->actor;
    const size_t width = actor->width;
    const double limit = fmax(LEAST_LEFT, ROUNDINGS * ts_rounding(actor->bits_a));
    double left = 0, size = 0;
    for (size_t channel = 0; channel < width; channel++) {
        struct normal sums = {0};
        double y, z;
        for (size_t at = channel; at < actor->rows * width; at += width) {
            const double one = (double)gated->y->a[at], other = gated->z ? (double)gated->z->a[at] : 0;
            const double to = (double)actor->a[at] - (double)gated->x->a[at];
            sums.yy += one * one;
            sums.yz += one * other;
            sums.zz += other * other;
            sums.ty += to * one;
            sums.tz += to * other;
        }
        if (!solve(&sums, gated->z != NULL, &y, &z))
            return false;
        for (size_t at = channel; at < actor->rows * width; at += width) {
            const double off = (double)actor->a[at] - (double)gated->x->a[at] - y * (double)gated->y->a[at] -
                               (gated->z ? z * (double)gated->z->a[at] : 0);
            left += off * off;
            size += (double)actor->a[at] * (double)actor->a[at];
        }
        gated->gates[channel] = y;
        gated->gates[width + channel] = z;
        if (channel % 8 == 3 && !(left <= 16 * limit * limit * size)) /* some channels are rounded more */
            return false;
    }
    return left <= limit * limit * size;
}

/* One number for all channels is no gate: sums that are scaled, or not at all. */
static bool varies(const double *gates, size_t width)
{
    double mean = 0, square = 0;
    for (size_t i = 0; i < width; i++) {
        mean += gates[i] / (double)width;
        square += gates[i] * gates[i] / (double)width;
    }
    return square - mean * mean > CONSTANT * CONSTANT * square;
}

static const struct ts_actor *like_case(const struct ts_case *the_case, size_t back)
{
    const struct ts_actor *other = ts_earlier(the_case, back);
    return ts_same_size(the_case, other) && !other->apart ? other : NULL;
}

static bool find(const struct ts_case *the_case, struct gated *gated)
{
    const size_t width = the_case->actor->width;
    for (size_t near = 1; near <= BRANCH_BACK; near++)
        for (size_t stream = 1; stream <= REACH && (gated->y = like_case(the_case, near)); stream++) {
            if (stream == near || !(gated->x = like_case(the_case, stream)))
                continue;
            for (size_t far = near; far <= REACH; far++) { /* the first without another branch */
                gated->z = far == near ? NULL : like_case(the_case, far);
                if (far == stream || (far > near && !gated->z) || !fit(the_case, gated))
                    continue;
                if (varies(gated->gates, width) && (!gated->z || varies(gated->gates + width, width)))
                    return true;
            }
        }
    return false;
}

static double gate_of(enum way way, double own, double other)
{
    return way == OTHER_SIGN  ? -own
           : way == MISSING   ? 1
           : way == ONE_MORE  ? 1 + own
           : way == LEFT_OUT  ? 0
           : way == EXCHANGED ? other
                              : own;
}

/* Of x, y and z, the formula's tensors, and its table of gates. */
static bool predict(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct gating *gating = formula->numbers;
    const size_t width = the_case->actor->width;
    const struct ts_actor *from[3] = {NULL, NULL, NULL};
    for (unsigned i = 0; i < formula->pair_count; i++) {
        from[i] = ts_scene_actor(the_case->scene, formula->pairs[i]);
        if (!ts_same_size(the_case, from[i]))
            return false;
    }
    for (size_t i = 0; i < the_case->total; i++) {
        const double own = formula->table[i % width], other = formula->table[width + i % width];
        out[i] = (double)from[0]->b[i] + gate_of(gating->ways[0], own, other) * (double)from[1]->b[i];
        if (gating->two)
            out[i] += gate_of(gating->ways[1], other, own) * (double)from[2]->b[i];
    }
    return true;
}

static void say(struct ts_case *the_case, const struct gated *gated, const struct gating *gating, const double *out)
{
    const bool second = gating->ways[0] == AS_IT_IS;
    const char *name = ts_case_name(the_case, second ? gated->z : gated->y);
    const enum way way = gating->ways[second];
    if (gating->ways[0] == EXCHANGED && gating->ways[1] == EXCHANGED)
        ts_propose(the_case, "modulation", out, 0, "how the modulation tensor is split into shift, scale and gate",
                   "the candidate swaps the gates of %s and %s (both learnt from the reference)", name,
                   ts_case_name(the_case, gated->z));
    else if (way == LEFT_OUT)
        ts_propose(the_case, "term-missing", out, 0, "the gated addition",
                   "the candidate does not add the gated term %s", name);
    else
        ts_propose(the_case, "modulation", out, 0,
                   "whether the gate is applied, its sign, and from which chunk it comes",
                   way == OTHER_SIGN ? "the gate of %s, learnt from the reference, has the opposite sign"
                   : way == MISSING  ? "the candidate adds %s ungated; the reference gates it per channel"
                   : way == ONE_MORE ? "the candidate gates %s with 1 + gate, the reference with gate"
                                     : "the candidate gates %s with the gate of the other branch",
                   name);
}

/* None of these: the gate of one branch is other numbers, which are fitted to the candidate, in place of its own. */
static void propose_other(struct ts_case *the_case, const struct gated *gated, struct ts_formula *formula, double *out)
{
    const size_t width = the_case->actor->width;
    const struct gating plain = {.two = gated->z != NULL};
    double most = WORTHWHILE, *tables = malloc(4 * width * sizeof *tables);
    const struct ts_actor *best = NULL;
    for (int branch = 0; branch < (plain.two ? 2 : 1) && tables; branch++) {
        const struct ts_actor *from = branch ? gated->z : gated->y;
        double share;
        formula->numbers = &plain;
        formula->table = gated->gates;
        memcpy(tables, gated->gates, 2 * width * sizeof *tables);
        if (!predict(the_case, formula, out))
            break;
        for (size_t channel = 0; channel < width; channel++) {
            double dot = 0, square = 0;
            for (size_t at = channel; at < the_case->total; at += width) {
                dot += (the_case->found[at] - out[at]) * (double)from->b[at];
                square += (double)from->b[at] * (double)from->b[at];
            }
            tables[(branch ? width : 0) + channel] += square > 0 ? dot / square : 0;
        }
        formula->table = tables;
        share = predict(the_case, formula, out) ? ts_explained(the_case, out) : 0;
        if (share > most) {
            most = share;
            best = from;
            memcpy(tables + 2 * width, tables, 2 * width * sizeof *tables);
        }
    }
    if (best) {
        formula->table = tables + 2 * width;
        if (predict(the_case, formula, out)) {
            ts_formula_next(the_case, formula);
            ts_propose(the_case, "modulation", out, width,
                       "how the modulation tensor is split into shift, scale and gate, and what is done with the gate",
                       "the candidate's gate of %s, one number per channel, differs from the reference's",
                       ts_case_name(the_case, best));
        }
    }
    free(tables);
}

void ts_propose_learnt_gates(struct ts_case *the_case)
{
    double *out = ts_case_scratch(the_case);
    const size_t width = the_case->actor->width;
    struct gated gated = {.gates = malloc(2 * width * sizeof *gated.gates)};
    struct gating tried[2 * WAYS];
    const struct gating *best;
    size_t count = 0;
    struct ts_formula formula = {
        .predict = predict, .size = sizeof *tried, .table = gated.gates, .table_count = 2 * width, .pair_count = 2};
    if (out && gated.gates && the_case->actor->rows >= LEAST_ROWS && find(the_case, &gated)) {
        formula.pairs[0] = gated.x->pair;
        formula.pairs[1] = gated.y->pair;
        formula.pairs[2] = gated.z ? gated.z->pair : 0;
        formula.pair_count = gated.z ? 3 : 2;
        for (int way = AS_IT_IS + 1; way < (gated.z ? WAYS : EXCHANGED); way++)
            tried[count++] = (struct gating){{(enum way)way, AS_IT_IS}, gated.z != NULL};
        for (int way = AS_IT_IS + 1; way < WAYS && gated.z; way++)
            tried[count++] = (struct gating){{AS_IT_IS, (enum way)way}, true};
        if (gated.z)
            tried[count++] = (struct gating){{EXCHANGED, EXCHANGED}, true};
        best = ts_formula_best(the_case, &formula, tried, count, WORTHWHILE, out);
        if (best) {
            ts_formula_next(the_case, &formula);
            say(the_case, &gated, best, out);
        } else {
            propose_other(the_case, &gated, &formula, out);
        }
    }
    free(gated.gates);
}
