/* Vectors: with the model's weights at hand, which vector of the file the candidate multiplies channels with: a norm's
 * weight of another layer, without its 1 +, or none. Only what the file can prove is said here; the norm's own family
 * says what the trace alone shows. */
#include <stdlib.h>
#include <string.h>

#include "diagnose/formula.h"
#include "diagnose/product.h"
#include "diagnose/variant.h"

/* Share of a fitted vector's spread that may be left when it is taken for one of the file. */
#define FITS 0.05

/* How a vector of the file is applied. */
enum use { PLAIN, PLUS_ONE, USES };
static const char *const use_text[USES] = {"w", "1 + w"};

struct vectors {
    struct ts_case *the_case;
    const struct ts_evidence *evidence;
    size_t group;                   /* numbers of the vector */
    double *own;                    /* what the reference multiplies with */
    double *fitted;                 /* what the candidate does; NaN where it cannot be told */
    double *offsets;                /* of a norm with a bias: what the candidate adds; NULL without one */
    double *scratch;                /* one vector */
    const struct ts_weight *weight; /* the reference's vector in the file, NULL when it is not there */
    enum use use;
};

static bool read_vector(const struct ts_weight *weight, enum use use, double *out)
{
    struct ts_error ignored;
    if (ts_view_read_f64(&weight->view, 0, (size_t)weight->rows, out, &ignored) != TS_OK)
        return false;
    for (size_t i = 0; i < weight->rows && use == PLUS_ONE; i++)
        out[i] += 1;
    return true;
}

/* Share of what `wanted` differs from `usual` that the vector leaves. */
static double left_of(const double *wanted, const double *vector, const double *usual, size_t count)
{
    double left = 0, made = 0;
    for (size_t i = 0; i < count; i++) {
        double usually = usual ? usual[i] : 0;
        if (isnan(wanted[i]))
            continue;
        left += (wanted[i] - vector[i]) * (wanted[i] - vector[i]);
        made += (wanted[i] - usually) * (wanted[i] - usually);
    }
    return made > 0 ? left / made : (double)INFINITY;
}

/* The vector of the file that fits best; `except` with `except_use` is not looked at. */
static const struct ts_weight *nearest(const struct vectors *vectors, const double *wanted, const double *usual,
                                       const struct ts_weight *except, enum use except_use, enum use *use)
{
    const struct ts_weight *best = NULL;
    double least = FITS;
    for (size_t i = 0; i < vectors->evidence->counts[0]; i++) {
        const struct ts_weight *weight = &vectors->evidence->weights[0][i];
        for (int way = 0; way < USES && weight->inputs == 0 && weight->rows == vectors->group; way++) {
            double left;
            if ((weight == except && way == (int)except_use) || !read_vector(weight, (enum use)way, vectors->scratch))
                continue;
            left = left_of(wanted, vectors->scratch, usual, vectors->group);
            if (left < least) {
                least = left;
                best = weight;
                *use = (enum use)way;
            }
        }
    }
    return best;
}

static const double *all_ones(const struct vectors *vectors)
{
    for (size_t i = 0; i < vectors->group; i++)
        vectors->scratch[i] = 1;
    return vectors->scratch;
}

/* A norm that was learnt: the factor per channel between the plain norm and the candidate. */
static bool from_norm(struct vectors *vectors)
{
    struct ts_case *the_case = vectors->the_case;
    struct ts_operation plain = the_case->operation;
    const double *input = ts_case_norm_input(the_case);
    double *out = ts_case_scratch(the_case), *table = calloc(2 * plain.group, sizeof *table);
    double *inputs[3] = {(double *)input, NULL, NULL};
    size_t group = plain.group;
    double *sums = calloc(5 * group, sizeof *sums);
    bool good = input && out && table && sums;
    if (good) {
        for (size_t i = 0; i < group; i++)
            table[i] = 1;
        plain.table = table;
        plain.input_count = 1;
        ts_operation_apply(the_case->scene, &plain, the_case->actor, inputs, out);
        for (size_t i = 0; i < the_case->total; i++) {
            double *sum = sums + 5 * (i % group), x = out[i];
            double y = the_case->found[i] - the_case->operation.table[group + i % group];
            if (!isfinite(y) || !isfinite(x) || ts_case_aside(the_case, i / the_case->actor->width))
                continue;
            sum[0] += x * y;
            sum[1] += x * x;
            sum[2] += x;
            sum[3] += y;
            sum[4]++;
        }
        for (size_t i = 0; i < group; i++) {
            const double *sum = sums + 5 * i;
            double spread = sum[1] - sum[2] * sum[2] / fmax(sum[4], 1);
            vectors->own[i] = the_case->operation.table[i];
            vectors->fitted[i] = sum[1] > 0 ? sum[0] / sum[1] : (double)NAN;
            if (!vectors->offsets)
                continue;
            /* the bias may be another's as well: weight and bias are told apart by the channel's own spread */
            vectors->fitted[i] =
                sum[4] >= 3 && spread > 1e-9 * sum[1] ? (sum[0] - sum[2] * sum[3] / sum[4]) / spread : (double)NAN;
            vectors->offsets[i] =
                (sum[3] - vectors->fitted[i] * sum[2]) / fmax(sum[4], 1) + the_case->operation.table[group + i];
        }
        vectors->weight = nearest(vectors, vectors->own, NULL, NULL, PLAIN, &vectors->use);
    }
    free(table);
    free(sums);
    return good;
}

/* A tensor whose name is that of a vector in the file: the factor per channel between reference and candidate, times
 * the vector, which may stand for w or for 1 + w. */
static bool from_name(struct vectors *vectors)
{
    struct ts_case *the_case = vectors->the_case;
    const struct ts_actor *actor = the_case->actor;
    const char *own = ts_case_name(the_case, actor);
    struct ts_arena arena;
    struct ts_names names;
    size_t group = vectors->group;
    double *sums = calloc(2 * group, sizeof *sums);
    ts_arena_init(&arena, 1 << 20);
    for (size_t i = 0; sums && i < the_case->total; i++) {
        double x = the_case->expected[i], y = the_case->found[i];
        if (!isfinite(x) || !isfinite(y) || ts_case_aside(the_case, i / actor->width))
            continue;
        sums[2 * (i % group)] += x * y;
        sums[2 * (i % group) + 1] += x * x;
    }
    if (sums && ts_names_make(&own, 1, 0, &arena, &names))
        for (size_t i = 0; i < vectors->evidence->counts[0] && !vectors->weight; i++) {
            const struct ts_weight *weight = &vectors->evidence->weights[0][i];
            size_t length = strlen(names.list[0].kind);
            if (weight->inputs == 0 && weight->rows == group && weight->name->layer == names.list[0].layer &&
                strncmp(weight->name->kind, names.list[0].kind, length) == 0 &&
                strcmp(weight->name->kind + length, ".weight") == 0)
                vectors->weight = weight;
        }
    for (int use = 0; use < USES && vectors->weight; use++) {
        enum use other;
        if (!read_vector(vectors->weight, (enum use)use, vectors->own))
            vectors->weight = NULL;
        for (size_t i = 0; i < group && vectors->weight; i++)
            vectors->fitted[i] = sums[2 * i + 1] > 0 ? vectors->own[i] * sums[2 * i] / sums[2 * i + 1] : (double)NAN;
        vectors->use = (enum use)use;
        /* the way in which something of the file explains the candidate is the reference's */
        if (vectors->weight &&
            (nearest(vectors, vectors->fitted, vectors->own, vectors->weight, vectors->use, &other) ||
             left_of(vectors->fitted, all_ones(vectors), vectors->own, group) < FITS))
            break;
    }
    free(sums);
    ts_arena_release(&arena);
    return vectors->weight != NULL;
}

/* Offers the candidate with `vector` in place of the reference's, and another bias where one is given. */
static void offer(struct vectors *vectors, const double *vector, const double *offsets, const char *check,
                  const char *text)
{
    struct ts_case *the_case = vectors->the_case;
    size_t group = vectors->group;
    size_t width = the_case->actor->width;
    double *prediction = ts_case_scratch(the_case), *factors = calloc(2 * width, sizeof *factors);
    for (size_t i = 0; factors && i < width; i++) {
        double own = vectors->own[i % group], bias = 0;
        if (the_case->operation.kind == TS_OPERATION_NORM)
            bias = the_case->operation.table[group + i % group];
        factors[i] = own != 0 ? vector[i % group] / own : 1;
        factors[width + i] = (offsets ? offsets[i % group] : bias) - bias * factors[i];
    }
    if (factors)
        ts_formula_channels(the_case, factors, factors + width);
    free(factors);
    for (size_t i = 0; prediction && i < the_case->total; i++) {
        double own = vectors->own[i % group], bias = 0;
        if (the_case->operation.kind == TS_OPERATION_NORM)
            bias = the_case->operation.table[group + i % group];
        prediction[i] =
            own != 0 ? (the_case->expected[i] - bias) / own * vector[i % group] + (offsets ? offsets[i % group] : bias)
                     : the_case->found[i];
    }
    ts_propose(the_case, "channel-scaled", prediction, 0, check, "%s", text);
}

/* Weight and bias of another norm of the file. */
static void name_the_bias(struct vectors *vectors, const struct ts_weight *other, enum use use)
{
    struct ts_case *the_case = vectors->the_case;
    const double *own = the_case->operation.table + vectors->group;
    enum use plain = PLAIN;
    const struct ts_weight *bias = nearest(vectors, vectors->offsets, own, NULL, PLAIN, &plain);
    double *offsets = malloc(vectors->group * sizeof *offsets);
    if (bias && plain == PLAIN && offsets && read_vector(bias, PLAIN, offsets) &&
        read_vector(other, use, vectors->scratch))
        offer(vectors, vectors->scratch, offsets, "which weight and which bias are loaded for this norm",
              ts_case_text(the_case, "the candidate uses %s and %s, not %s and its bias", other->full, bias->full,
                           vectors->weight ? vectors->weight->full : "the reference's weight"));
    free(offsets);
}

static void name_the_vector(struct vectors *vectors)
{
    struct ts_case *the_case = vectors->the_case;
    enum use use = PLAIN;
    const struct ts_weight *other =
        nearest(vectors, vectors->fitted, vectors->own, vectors->weight, vectors->use, &use);
    const char *own = vectors->weight ? vectors->weight->full : "the reference's, which is not in the file";
    if (other && vectors->offsets)
        name_the_bias(vectors, other, use);
    if (other && read_vector(other, use, vectors->scratch))
        offer(vectors, vectors->scratch, NULL,
              "which weight is loaded for this norm, and whether it is applied as w or as 1 + w",
              other == vectors->weight
                  ? ts_case_text(
                        the_case,
                        "each channel has the factor (%s) / (%s): the candidate applies %s as %s, the reference as %s",
                        use_text[use], use_text[vectors->use], other->full, use_text[use], use_text[vectors->use])
                  : ts_case_text(the_case, "each channel has the factor w' / w: the candidate uses %s, not %s",
                                 other->full, own));
    if (!vectors->weight)
        return;
    if (left_of(vectors->fitted, all_ones(vectors), vectors->own, vectors->group) < FITS)
        offer(vectors, vectors->scratch, NULL, "whether the norm's weight is loaded and applied",
              ts_case_text(the_case, "each channel has the factor 1 / w: the candidate does not apply %s", own));
}

static void propose(struct ts_case *the_case)
{
    struct vectors vectors = {.the_case = the_case, .evidence = ts_case_evidence(the_case)};
    bool norm = the_case->operation.kind == TS_OPERATION_NORM;
    if (!vectors.evidence || !vectors.evidence->counts[0] || !ts_case_in_scene(the_case) || the_case->actor->rows < 2 ||
        (!norm && the_case->operation.kind != TS_OPERATION_NONE))
        return;
    vectors.group = norm ? the_case->operation.group : the_case->actor->width;
    vectors.own = malloc(vectors.group * sizeof *vectors.own);
    vectors.fitted = malloc(vectors.group * sizeof *vectors.fitted);
    vectors.scratch = malloc(vectors.group * sizeof *vectors.scratch);
    if (norm && the_case->operation.flag)
        vectors.offsets = malloc(vectors.group * sizeof *vectors.offsets);
    if (vectors.own && vectors.fitted && vectors.scratch && (norm ? from_norm(&vectors) : from_name(&vectors)))
        name_the_vector(&vectors);
    free(vectors.own);
    free(vectors.fitted);
    free(vectors.offsets);
    free(vectors.scratch);
}

const struct ts_family ts_family_vectors = {"vectors", propose};
