/* Modulation: adaptive norms of diffusion transformers. Scale, shift and gate are chunks of one tensor; which chunk is
 * taken for what, with which sign, and whether the scale counts from one, is tried in every combination. */
#include <stdlib.h>
#include <string.h>

#include "diagnose/variant.h"

#define WORTHWHILE 0.3
#define NO_CHUNK   TS_NO_CHUNK
/* How many tensors before it the gated one may be, and how near the product must come to the reference. */
#define GATED_BACK 4
#define GATED_NEAR 1e-3

/* What a chunk goes through before it scales or gates. */
enum squash { AS_IT_IS, TANH, SIGMOID, SQUASHES };

/* What a gate is multiplied with, y being what is added to the stream x. */
enum gated_what { THE_ADDED, THE_STREAM, BOTH, GATED_WHATS };

/* x * (constant + sign * scale) + shift, or x + (constant + sign * gate) * y. */
struct guess {
    unsigned scale, shift; /* chunks; the gate is `scale` */
    double constant, sign;
    enum squash squash;
    enum gated_what what;
    bool early;       /* (x + shift) * (constant + sign * scale) */
    bool subtracted;  /* the shift */
    bool interleaved; /* chunk c of n holds the numbers c, c + n, c + 2 n ... */
};

static double chunk_at(const struct ts_case *the_case, const struct ts_actor *from, const double *values, size_t row,
                       unsigned chunk, bool interleaved, size_t i)
{
    const size_t width = the_case->actor->width;
    return chunk == NO_CHUNK ? 0
                             : values[ts_scene_row(the_case->scene, from, row) * from->width +
                                      (interleaved ? i * (from->width / width) + chunk : chunk * width + i)];
}

static double squashed(enum squash squash, double x)
{
    return squash == TANH ? tanh(x) : squash == SIGMOID ? 1 / (1 + exp(-x)) : x;
}

static void fill(const struct ts_variants *variants, const struct guess *guess, size_t first, size_t count)
{
    const struct ts_case *the_case = variants->the_case;
    bool gated = the_case->operation.kind == TS_OPERATION_GATED_SUM;
    size_t width = the_case->actor->width;
    const struct ts_actor *from = variants->from[gated ? 2 : 1];
    const double *m = variants->inputs[gated ? 2 : 1], *x = variants->inputs[0], *y = variants->inputs[1];
    for (size_t row = first; row < first + count; row++)
        for (size_t i = 0; i < width; i++) {
            const size_t at = row * width + i;
            double scale =
                guess->scale == NO_CHUNK
                    ? 0
                    : squashed(guess->squash, chunk_at(the_case, from, m, row, guess->scale, guess->interleaved, i));
            scale = guess->constant + guess->sign * scale;
            if (gated) {
                variants->out[at] =
                    x[at] * (guess->what == THE_ADDED ? 1 : scale) + y[at] * (guess->what == THE_STREAM ? 1 : scale);
            } else {
                const double shift = (guess->subtracted ? -1 : 1) *
                                     chunk_at(the_case, from, m, row, guess->shift, guess->interleaved, i);
                variants->out[at] = guess->early ? (x[at] + shift) * scale : x[at] * scale + shift;
            }
        }
}

/* The guess for other rows. */
static bool predict_guess(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    struct ts_variants variants;
    if (!ts_variants_open(&variants, the_case, &the_case->operation))
        return false;
    fill(&variants, formula->numbers, 0, the_case->actor->rows);
    memcpy(out, variants.out, the_case->total * sizeof *out);
    ts_variants_close(&variants);
    return true;
}

static void give_formula(struct ts_case *the_case, const struct guess *guess)
{
    ts_formula_next(the_case, &(struct ts_formula){.predict = predict_guess, .numbers = guess, .size = sizeof *guess});
}

static void consider(struct ts_variants *variants, const struct guess *guess, struct guess *best, double *most)
{
    double share;
    fill(variants, guess, variants->first, variants->count);
    share = ts_variants_share(variants, variants->out);
    if (share > *most + 1e-9) {
        *most = share;
        *best = *guess;
    }
}

/* x * gate, the sum with the residual being a tensor of its own. */
static bool is_gate(const struct ts_operation *operation)
{
    return operation->kind == TS_OPERATION_MODULATE && operation->other_chunk == NO_CHUNK && !operation->flag;
}

static void say_gating(struct ts_case *the_case, const struct ts_variants *variants, const struct guess *guess)
{
    const char *m = ts_case_name(the_case, variants->from[1]);
    if (guess->interleaved)
        ts_propose(the_case, "modulation", variants->out, 0, "the layout of the modulation tensor",
                   "the candidate takes every %zuth number of %s for the gate, where the reference takes chunk %u",
                   variants->from[1]->width / the_case->actor->width, m, the_case->operation.chunk);
    else
        ts_propose(the_case, "modulation", variants->out, 0,
                   "how the modulation tensor is split into shift, scale and gate",
                   "the candidate gates %s with chunk %u of %s%s%s, the reference with chunk %u",
                   ts_case_name(the_case, variants->from[0]), guess->scale, m,
                   guess->squash == TANH      ? ", through tanh"
                   : guess->squash == SIGMOID ? ", through a sigmoid"
                                              : "",
                   guess->sign < 0       ? ", with the opposite sign"
                   : guess->constant > 0 ? ", with 1 + gate"
                                         : "",
                   the_case->operation.chunk);
}

/* Both of the reference's chunks, as they are. */
static void say_same_chunks(struct ts_case *the_case, const struct ts_variants *variants, const struct guess *guess)
{
    const char *x = ts_case_name(the_case, variants->from[0]), *m = ts_case_name(the_case, variants->from[1]);
    const char *shift = the_case->operation.other_chunk == NO_CHUNK ? "" : " + shift";
    const double one = the_case->operation.flag ? 1 : 0;
    if (guess->interleaved)
        ts_propose(the_case, "modulation", variants->out, 0, "the layout of the modulation tensor",
                   "the candidate takes every %zuth number of %s for one of its chunks, where the reference takes %zu "
                   "in a row",
                   variants->from[1]->width / the_case->actor->width, m, the_case->actor->width);
    else if (guess->early)
        ts_propose(the_case, "modulation", variants->out, 0, "the order of scaling and shifting",
                   "the candidate adds the shift of %s before it scales, the reference behind it", m);
    else if (guess->subtracted)
        ts_propose(the_case, "modulation", variants->out, 0, "the sign of the shift",
                   "the candidate subtracts the shift of %s", m);
    else if (guess->sign < 0)
        ts_propose(the_case, "modulation", variants->out, 0, "the sign of the scale",
                   "the candidate subtracts the scale of %s", m);
    else if (guess->constant < one)
        ts_propose(the_case, "term-missing", variants->out, 0,
                   *shift ? "the \"1 +\" of x * (1 + scale) + shift" : "the \"1 +\" of x * (1 + scale)",
                   "the \"1 +\" is missing: the candidate computes %s * scale%s, so the difference is minus %s", x,
                   shift, x);
    else if (one > 0)
        ts_propose(the_case, "modulation", variants->out, 0, "where the \"1 +\" of the scale is added: once",
                   "the \"1 +\" is there twice: the candidate computes %s * (2 + scale)%s", x, shift);
    else
        ts_propose(the_case, "modulation", variants->out, 0, "whether the scale is applied as scale or as 1 + scale",
                   "the candidate computes %s * (1 + scale)%s, the reference scales by scale alone", x, shift);
}

static void say_modulate(struct ts_case *the_case, const struct ts_variants *variants, const struct guess *guess)
{
    const struct ts_operation *operation = &the_case->operation;
    const char *m = ts_case_name(the_case, variants->from[1]);
    const char *bare = guess->constant < (operation->flag ? 1 : 0) ? " (without \"1 +\")" : "";
    if (is_gate(operation))
        say_gating(the_case, variants, guess);
    else if (guess->scale == operation->chunk && guess->shift == operation->other_chunk)
        say_same_chunks(the_case, variants, guess);
    else if (guess->shift == NO_CHUNK && operation->other_chunk == NO_CHUNK)
        ts_propose(the_case, "modulation", variants->out, 0, "how the modulation tensor is split into scale and gate",
                   "the candidate takes chunk %u of %s for the scale%s, the reference chunk %u", guess->scale, m, bare,
                   operation->chunk);
    else if (operation->other_chunk == NO_CHUNK)
        ts_propose(the_case, "modulation", variants->out, 0, "whether there is a shift",
                   "the candidate adds chunk %u of %s as a shift, and the reference none", guess->shift, m);
    else if (guess->scale == operation->other_chunk && guess->shift == operation->chunk)
        ts_propose(the_case, "modulation", variants->out, 0,
                   "the order of scale and shift in the chunks of the modulation tensor",
                   "the candidate swaps scale and shift of %s: it takes chunk %u for the scale and chunk %u for the "
                   "shift, the reference %u and %u",
                   m, guess->scale, guess->shift, operation->chunk, operation->other_chunk);
    else if (guess->shift == NO_CHUNK || guess->scale == NO_CHUNK)
        ts_propose(the_case, "modulation", variants->out, 0, "whether scale and shift are both applied",
                   "the candidate does not apply the %s of %s", guess->shift == NO_CHUNK ? "shift" : "scale", m);
    else
        ts_propose(
            the_case, "modulation", variants->out, 0, "how the modulation tensor is split into shift, scale and gate",
            "the candidate takes chunk %u of %s for the scale%s and chunk %u for the shift, the reference %u and "
            "%u",
            guess->scale, m, bare, guess->shift, operation->chunk, operation->other_chunk);
}

/* The reference's own chunks, applied in another way. */
static void consider_same_chunks(struct ts_variants *variants, struct guess *best, double *most)
{
    const struct ts_operation *operation = &variants->the_case->operation;
    const bool gate = is_gate(operation);
    const struct guess own = {
        .scale = operation->chunk, .shift = operation->other_chunk, .constant = operation->flag ? 1 : 0, .sign = 1};
    struct guess guess;
    for (int variant = 0; variant < (own.shift == NO_CHUNK ? 0 : 2); variant++) {
        guess = own;
        guess.early = variant == 0;
        guess.subtracted = variant == 1;
        consider(variants, &guess, best, most);
    }
    guess = own;
    guess.constant++;
    consider(variants, &guess, best, most);
    guess = own;
    guess.interleaved = true;
    consider(variants, &guess, best, most);
    for (int squash = TANH; squash < (gate ? SQUASHES : TANH); squash++) {
        guess = own;
        guess.squash = (enum squash)squash;
        consider(variants, &guess, best, most);
    }
}

static void propose_modulate(struct ts_case *the_case, struct ts_variants *variants)
{
    const struct ts_operation *operation = &the_case->operation;
    unsigned chunks = (unsigned)(variants->from[1]->width / the_case->actor->width);
    struct guess best = {0};
    double most = WORTHWHILE;
    consider_same_chunks(variants, &best, &most);
    for (unsigned scale = 0; scale <= chunks; scale++)
        for (unsigned shift = is_gate(operation) ? chunks : 0; shift <= chunks; shift++)
            for (int variant = 0; variant < 3; variant++) {
                struct guess guess = {.scale = scale < chunks ? scale : NO_CHUNK,
                                      .shift = shift < chunks ? shift : NO_CHUNK,
                                      .constant = variant == 1 ? 0 : 1,
                                      .sign = variant == 2 ? -1 : 1};
                if (variant == 2 && is_gate(operation))
                    guess.constant = 0;
                if (scale == chunks && (variant || shift == chunks)) /* nothing applied: skipped */
                    continue;
                if (guess.scale == operation->chunk && guess.shift == operation->other_chunk && guess.sign == 1 &&
                    (guess.constant == 1) == operation->flag)
                    continue;
                consider(variants, &guess, &best, &most);
            }
    if (most > WORTHWHILE) {
        fill(variants, &best, 0, the_case->actor->rows);
        give_formula(the_case, &best);
        say_modulate(the_case, variants, &best);
    }
}

static void say_gate(struct ts_case *the_case, const struct ts_variants *variants, const struct guess *guess)
{
    const struct ts_operation *operation = &the_case->operation;
    const char *x = ts_case_name(the_case, variants->from[0]), *y = ts_case_name(the_case, variants->from[1]),
               *m = ts_case_name(the_case, variants->from[2]);
    if (guess->scale == NO_CHUNK && guess->constant == 0)
        ts_propose(the_case, "term-missing", variants->out, 0, "the gated addition",
                   "the candidate does not add the gated term %s", y);
    else if (guess->scale == NO_CHUNK)
        ts_propose(the_case, "modulation", variants->out, 0, "whether the gate is applied",
                   "the candidate does not apply the gate of %s: %s is %s ungated", m, y,
                   guess->constant < 0 ? "subtracted" : "added");
    else if (guess->interleaved)
        ts_propose(the_case, "modulation", variants->out, 0, "the layout of the modulation tensor",
                   "the candidate takes every %zuth number of %s for the gate, where the reference takes chunk %u",
                   variants->from[2]->width / the_case->actor->width, m, operation->chunk);
    else if (guess->what != THE_ADDED)
        ts_propose(the_case, "modulation", variants->out, 0, "what the gate is multiplied with",
                   guess->what == BOTH ? "the candidate multiplies the whole sum with the gate of %s: %s as well as %s"
                                       : "the candidate multiplies the gate of %s with %s instead of %s",
                   m, x, y);
    else if (guess->scale != operation->chunk)
        ts_propose(the_case, "modulation", variants->out, 0,
                   "how the modulation tensor is split into shift, scale and gate",
                   "the candidate gates %s with chunk %u of %s, the reference with chunk %u", y, guess->scale, m,
                   operation->chunk);
    else if ((guess->squash == TANH) != operation->flag)
        ts_propose(the_case, "modulation", variants->out, 0, "the function applied to the gate",
                   guess->squash == TANH      ? "the candidate applies tanh to the gate of %s"
                   : guess->squash == SIGMOID ? "the candidate applies a sigmoid to the gate of %s, the reference tanh"
                                              : "the candidate applies no tanh to the gate of %s",
                   m);
    else if (guess->squash == SIGMOID)
        ts_propose(the_case, "modulation", variants->out, 0, "the function applied to the gate",
                   "the candidate applies a sigmoid to the gate of %s", m);
    else if (guess->constant != 0)
        ts_propose(the_case, "modulation", variants->out, 0, "how the gate is applied",
                   "the candidate gates %s with 1 + gate", y);
    else
        ts_propose(the_case, "modulation", variants->out, 0, "the sign of the gate, or the order of a subtraction",
                   "the gate has the opposite sign: the candidate %s gate * %s", guess->sign < 0 ? "subtracts" : "adds",
                   y);
}

static void propose_gate(struct ts_case *the_case, struct ts_variants *variants)
{
    const struct ts_operation *operation = &the_case->operation;
    unsigned chunks = (unsigned)(variants->from[2]->width / the_case->actor->width);
    const struct guess own = {
        .scale = operation->chunk, .sign = operation->factor, .squash = operation->flag ? TANH : AS_IT_IS};
    struct guess best = {0}, guess;
    double most = WORTHWHILE;
    for (unsigned chunk = 0; chunk <= chunks; chunk++)
        for (int variant = 0; variant < 3; variant++) {
            guess = own;
            guess.scale = chunk < chunks ? chunk : NO_CHUNK;
            guess.constant = variant == 2 ? 1 : 0;
            guess.sign *= variant == 1 ? -1 : 1;
            if (chunk == chunks) /* without the gate: added, subtracted, left out */
                guess.constant = variant == 0 ? 1 : variant == 1 ? -1 : 0;
            if (guess.scale == operation->chunk && variant == 0)
                continue;
            consider(variants, &guess, &best, &most);
        }
    for (int squash = AS_IT_IS; squash < SQUASHES; squash++) {
        guess = own;
        guess.squash = (enum squash)squash;
        if (guess.squash != own.squash)
            consider(variants, &guess, &best, &most);
    }
    for (int what = THE_STREAM; what < GATED_WHATS; what++) {
        guess = own;
        guess.what = (enum gated_what)what;
        consider(variants, &guess, &best, &most);
    }
    guess = own;
    guess.interleaved = true;
    consider(variants, &guess, &best, &most);
    if (most > WORTHWHILE) {
        fill(variants, &best, 0, the_case->actor->rows);
        give_formula(the_case, &best);
        say_gate(the_case, variants, &best);
    }
}

/* A norm whose weights and biases, as they were learnt, are chunks of a captured row: an adaptive norm of which only
 * the end was captured. */
struct adaptive {
    const struct ts_actor *from;
    unsigned scale, shift, chunks;
    bool one; /* 1 + scale */
};

static double chunk_distance(const float *values, unsigned chunk, const double *table, size_t width, double add)
{
    double left = 0, all = 0;
    for (size_t i = 0; i < width; i++) {
        double x = (double)values[chunk * width + i] + add;
        left += (x - table[i]) * (x - table[i]);
        all += (table[i] - add) * (table[i] - add);
    }
    return all > 0 ? left / all : 1;
}

/* candidate: the table is held against its chunks. */
static bool find_adaptive(const struct ts_case *the_case, bool candidate, struct adaptive *found)
{
    const struct ts_operation *norm = &the_case->operation;
    size_t width = the_case->actor->width;
    if (norm->group != width || !norm->flag || norm->input_count != 1)
        return false;
    for (size_t back = 1; back < TS_SCENE_WINDOW && back <= the_case->actor->pair; back++) {
        const struct ts_actor *from = ts_scene_actor(the_case->scene, the_case->actor->pair - back);
        double scale = 0.02, shift = 0.02; /* of their energy: a bf16 table is no better known */
        const float *values = from ? candidate ? from->b : from->a : NULL;
        if (!from || from->rows != 1 || from->width < 2 * width || from->width % width || from->width / width > 16)
            continue;
        *found = (struct adaptive){.from = from, .chunks = (unsigned)(from->width / width)};
        for (unsigned chunk = 0; chunk < found->chunks; chunk++) {
            double biases = chunk_distance(values, chunk, norm->table + width, width, 0);
            for (int one = 0; one < 2; one++) {
                double weights = chunk_distance(values, chunk, norm->table, width, one);
                if (weights < scale) {
                    scale = weights;
                    found->scale = chunk;
                    found->one = one;
                }
            }
            if (biases < shift) {
                shift = biases;
                found->shift = chunk;
            }
        }
        if (scale < 0.02 && shift < 0.02)
            return true;
    }
    return false;
}

void ts_adapt_norm(struct ts_case *the_case)
{
    size_t width = the_case->actor->width;
    struct adaptive own;
    if (the_case->operation.kind != TS_OPERATION_NORM || !find_adaptive(the_case, false, &own))
        return;
    for (size_t i = 0; i < width; i++) {
        the_case->operation.table[i] = (double)own.from->b[own.scale * width + i] + (own.one ? 1 : 0);
        the_case->operation.table[width + i] = (double)own.from->b[own.shift * width + i];
    }
}

/* The right chunks, applied in another way; `one` is what is added to the reference's. */
static const struct applied {
    double one, scale, shift;
    const char *text, *check;
} applied[] = {
    {0, 1, -1, "the candidate subtracts the shift of an adaptive norm", "the sign of the shift"},
    {0, -1, 1, "the candidate subtracts the scale of an adaptive norm", "the sign of the scale"},
    {1, 1, 1, "the candidate adds the \"1 +\" of an adaptive norm twice",
     "whether the scale is captured and passed with its 1 already added"},
    {0, 1, 0, "the candidate does not apply the shift of an adaptive norm", "whether scale and shift are both applied"},
    {0, 0, 1, "the candidate does not apply the scale of an adaptive norm", "whether scale and shift are both applied"},
};

static void propose_applied(struct ts_variants *variants, const struct adaptive *own)
{
    struct ts_case *the_case = variants->the_case;
    struct ts_operation changed = the_case->operation;
    size_t width = the_case->actor->width;
    double *table = malloc(2 * width * sizeof *table);
    changed.table = table;
    for (size_t way = 0; way < sizeof applied / sizeof *applied && table; way++) {
        for (size_t i = 0; i < width; i++) {
            table[i] = applied[way].scale * (double)own->from->b[own->scale * width + i] + applied[way].one +
                       (own->one ? 1 : 0);
            table[width + i] = applied[way].shift * (double)own->from->b[own->shift * width + i];
        }
        if (!(ts_variants_try(variants, &changed, variants->inputs) > WORTHWHILE))
            continue;
        ts_formula_operation(the_case, &changed);
        ts_propose(the_case, "modulation", ts_variants_apply(variants, &changed, variants->inputs), 0,
                   applied[way].check, "%s: chunk %u of %s", applied[way].text,
                   applied[way].shift > 0 ? own->scale : own->shift, ts_case_name(the_case, own->from));
    }
    free(table);
}

static void propose_adaptive(struct ts_case *the_case)
{
    struct ts_operation changed = the_case->operation;
    size_t width = the_case->actor->width;
    struct adaptive own;
    struct ts_variants variants;
    double *table;
    if (!find_adaptive(the_case, true, &own) || !ts_variants_open(&variants, the_case, &the_case->operation))
        return;
    table = malloc(2 * width * sizeof *table);
    changed.table = table;
    for (unsigned at = 0; at < own.chunks * own.chunks * 2 && table; at++) {
        unsigned scale = at / 2 % own.chunks, shift = at / 2 / own.chunks;
        bool one = at % 2;
        if (scale == own.scale && shift == own.shift && one == own.one)
            continue;
        for (size_t i = 0; i < width; i++) {
            table[i] = (double)own.from->b[scale * width + i] + (one ? 1 : 0);
            table[width + i] = (double)own.from->b[shift * width + i];
        }
        if (!(ts_variants_try(&variants, &changed, variants.inputs) > WORTHWHILE))
            continue;
        ts_formula_operation(the_case, &changed);
        ts_propose(
            the_case, "modulation", ts_variants_apply(&variants, &changed, variants.inputs), 0,
            "how the modulation tensor is split into shift and scale, and whether the scale is applied as 1 + scale",
            "%s: the candidate takes chunk %u of %s for the scale%s and chunk %u for the "
            "shift, the reference %u%s and %u",
            scale == own.shift && shift == own.scale && one == own.one
                ? "scale and shift of an adaptive norm are swapped"
            : scale == own.scale && shift == own.shift && own.one ? "the \"1 +\" of an adaptive norm is missing"
                                                                  : "an adaptive norm takes the wrong chunks",
            scale, ts_case_name(the_case, own.from), one ? " (1 +)" : "", shift, own.scale, own.one ? " (1 +)" : "",
            own.shift);
    }
    free(table);
    propose_applied(&variants, &own);
    ts_variants_close(&variants);
}

/* y times a chunk of a captured row, the sum with the residual being a tensor of its own. */
struct gated {
    const struct ts_actor *y, *from;
    unsigned chunk, chunks;
};

/* How far y * chunk is from the reference, over its size. */
static double gated_distance(const struct ts_case *the_case, const struct gated *gated)
{
    const struct ts_actor *actor = the_case->actor;
    double left = 0, size = 0;
    for (size_t i = 0; i < actor->rows * actor->width; i++) {
        size_t row = ts_scene_row(the_case->scene, gated->from, i / actor->width);
        double gate = (double)gated->from->a[row * gated->from->width + gated->chunk * actor->width + i % actor->width];
        double off = (double)actor->a[i] - gate * (double)gated->y->a[i];
        left += off * off;
        size += (double)actor->a[i] * (double)actor->a[i];
        if (i % actor->width == actor->width - 1 && left > GATED_NEAR * size) /* the first row tells */
            return 1;
    }
    return size > 0 ? left / size : 1;
}

static bool find_gated(const struct ts_case *the_case, struct gated *gated)
{
    const struct ts_actor *actor = the_case->actor;
    for (size_t back = 1; back <= GATED_BACK && back <= actor->pair; back++) {
        gated->y = ts_scene_actor(the_case->scene, actor->pair - back);
        if (!gated->y || gated->y->rows != actor->rows || gated->y->width != actor->width)
            continue;
        for (size_t other = 1; other < TS_SCENE_WINDOW && other <= actor->pair; other++) {
            gated->from = ts_scene_actor(the_case->scene, actor->pair - other);
            if (!gated->from || gated->from == gated->y || gated->from->width % actor->width ||
                gated->from->width / actor->width > 16 ||
                (gated->from->rows != 1 && gated->from->rows != actor->rows && !gated->from->apart))
                continue;
            gated->chunks = (unsigned)(gated->from->width / actor->width);
            for (gated->chunk = 0; gated->chunk < gated->chunks; gated->chunk++)
                if (gated_distance(the_case, gated) < GATED_NEAR)
                    return true;
        }
    }
    return false;
}

/* How a chunk becomes a gate. */
static const struct {
    double constant, sign;
    bool squashed;
    const char *text;
} ways[] = {{0, 1, false, ""},
            {0, -1, false, ", with the opposite sign"},
            {1, 1, false, ", with 1 + gate"},
            {0, 1, true, ", through tanh"}};

struct gating {
    unsigned chunk, way;
};

/* Of y, the first tensor, and a chunk of the second. */
static bool predict_gated(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct gating *gating = formula->numbers;
    const struct ts_actor *actor = the_case->actor, *y = ts_scene_actor(the_case->scene, formula->pairs[0]),
                          *from = ts_scene_actor(the_case->scene, formula->pairs[1]);
    if (!y || !from || y->rows * y->width != the_case->total || from->width < (gating->chunk + 1) * actor->width)
        return false;
    for (size_t i = 0; i < the_case->total; i++) {
        size_t row = ts_scene_row(the_case->scene, from, i / actor->width);
        double gate = (double)from->b[row * from->width + gating->chunk * actor->width + i % actor->width];
        gate = ways[gating->way].squashed ? tanh(gate) : gate;
        out[i] = (ways[gating->way].constant + ways[gating->way].sign * gate) * (double)y->b[i];
    }
    return true;
}

/* What the candidate does with y and a chunk: another one, 1 + gate, tanh, the other sign. */
static void propose_gated(struct ts_case *the_case)
{
    double *out = ts_case_scratch(the_case);
    struct gating *tried;
    const struct gating *best;
    size_t count = 0;
    struct ts_formula formula = {.predict = predict_gated, .size = sizeof *tried, .pair_count = 2};
    struct gated gated;
    if (!out || !find_gated(the_case, &gated) || !(tried = calloc((size_t)gated.chunks * 4, sizeof *tried)))
        return;
    formula.pairs[0] = gated.y->pair;
    formula.pairs[1] = gated.from->pair;
    for (unsigned at = 0; at < gated.chunks * 4; at++)
        if (at / 4 != gated.chunk || at % 4 != 0)
            tried[count++] = (struct gating){at / 4, at % 4};
    best = ts_formula_best(the_case, &formula, tried, count, WORTHWHILE, out);
    if (best) {
        ts_formula_next(the_case, &formula);
        ts_propose(the_case, "modulation", out, 0, "how the modulation tensor is split into shift, scale and gate",
                   "the candidate gates %s with chunk %u of %s%s, the reference with chunk %u",
                   ts_case_name(the_case, gated.y), best->chunk, ts_case_name(the_case, gated.from),
                   ways[best->way].text, gated.chunk);
    }
    free(tried);
}

static void propose(struct ts_case *the_case)
{
    enum ts_operation_kind kind = the_case->operation.kind;
    struct ts_variants variants;
    if (kind == TS_OPERATION_NORM && ts_case_in_scene(the_case))
        propose_adaptive(the_case);
    if (kind == TS_OPERATION_NONE && ts_case_in_scene(the_case)) {
        propose_gated(the_case);
        ts_propose_learnt_gates(the_case);
        ts_propose_gated_norm(the_case);
    }
    if ((kind != TS_OPERATION_MODULATE && kind != TS_OPERATION_GATED_SUM) ||
        !ts_variants_open(&variants, the_case, &the_case->operation))
        return;
    if (kind == TS_OPERATION_MODULATE)
        propose_modulate(the_case, &variants);
    else
        propose_gate(the_case, &variants);
    ts_variants_close(&variants);
}

const struct ts_family ts_family_modulation = {"modulation", propose};
