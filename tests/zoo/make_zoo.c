/* Makes bug zoos: folders of traces of toy models, one reference each, with known bugs and with honest numerics.
 *
 * A bug's true first place needs no bookkeeping: the same numerics run with and without it, and the first captured
 * tensor that differs in any bit is the one. A case is kept only when the bug can be seen there (check.c). */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "zoo.h"

#define MOST_CASES 256
/* What must stand out to be asked of anyone: against rounding where the captured inputs determine the tensor, against
 * all the run's noise where they do not. */
#define CONTRAST_LEARNABLE 30.0
#define CONTRAST_OTHER     8.0
/* An honest run whose output has nothing to do with the reference's any more shows nothing. */
#define LARGEST_NOISE 0.6

struct zoo {
    const char *folder;
    struct zoo_config config;
    struct zoo_trace reference;
    struct zoo_trace honest[64], forced[64]; /* per numerics, run when first needed */
    bool ran[64];
    struct zoo_case cases[MOST_CASES];
    int count;
};

static int *uses; /* per bug, over all zoos: the least used come first */

static void fail(const char *what, const char *path)
{
    fprintf(stderr, "make_zoo: %s %s: %s\n", what, path, strerror(errno));
    exit(1);
}

static double relative(const struct zoo_tensor *a, const struct zoo_tensor *b)
{
    double difference = 0, size = 0;
    for (int i = 0; i < a->rows * a->heads * a->inner; i++) {
        double x = (double)a->values[i], y = (double)b->values[i];
        if ((!isfinite(x) && !isfinite(y)) || (x < -1e4 && y < -1e4)) /* masked */
            continue;
        difference += (y - x) * (y - x);
        size += x * x;
    }
    return size > 0 ? sqrt(difference / size) : difference > 0 ? (double)INFINITY : 0;
}

static void prepare(struct zoo *zoo, int index)
{
    const struct zoo_numerics *numerics = &zoo_numerics_list[index];
    struct zoo_model model;
    if (zoo->ran[index])
        return;
    zoo->ran[index] = true;
    zoo_model_build(&model, &zoo->config);
    zoo_model_lower(&model, numerics);
    zoo_forward(&model, numerics, NULL, &zoo->honest[index]);
    zoo_forward(&model, numerics, &zoo->reference, &zoo->forced[index]);
    zoo_model_release(&model);
}

static void write_case(struct zoo *zoo, const struct zoo_case *one, const struct zoo_trace *trace,
                       const struct zoo_numerics *numerics)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", zoo->folder, one->file);
    if (!zoo_write_trace(path, &zoo->config, trace, numerics))
        fail("cannot write", path);
    if (zoo->count < MOST_CASES)
        zoo->cases[zoo->count++] = *one;
}

static bool add_noise(struct zoo *zoo, int index)
{
    const struct zoo_numerics *numerics = &zoo_numerics_list[index];
    struct zoo_case one = {.dtype = numerics->dtype};
    const struct zoo_trace *trace = &zoo->honest[index];
    if (numerics == zoo->config.reference)
        return false;
    prepare(zoo, index);
    one.honest = relative(&zoo->reference.tensors[trace->count - 1], &trace->tensors[trace->count - 1]);
    if (!(one.honest < LARGEST_NOISE))
        return false;
    snprintf(one.file, sizeof one.file, "noise_%s.safetensors", numerics->name);
    write_case(zoo, &one, trace, numerics);
    return true;
}

/* The first captured tensor that differs. */
static int first_difference(const struct zoo_trace *a, const struct zoo_trace *b)
{
    for (int i = 0; i < a->count; i++)
        if (memcmp(a->tensors[i].values, b->tensors[i].values,
                   (size_t)(a->tensors[i].rows * a->tensors[i].heads * a->tensors[i].inner) * sizeof(float)) != 0)
            return i;
    return -1;
}

static bool add_bug(struct zoo *zoo, const struct zoo_bug *bug, int index, int layer, struct zoo_random random)
{
    const struct zoo_config *c = &zoo->config;
    const struct zoo_numerics *numerics = &zoo_numerics_list[index];
    struct zoo_case one = {.bug = bug->name, .dtype = numerics->dtype};
    struct zoo_trace trace = {0};
    struct zoo_model model;
    bool kept = false;
    zoo_model_build(&model, c);
    zoo_model_lower(&model, numerics);
    for (int l = 0; l < c->layers; l++)
        if (layer < 0 || l == layer) {
            struct zoo_random same = random; /* the same mistake in every layer */
            kept = bug->plant(&model, l, &same) || kept;
        }
    if (kept) {
        int first;
        prepare(zoo, index);
        zoo_forward(&model, numerics, NULL, &trace);
        first = first_difference(&zoo->honest[index], &trace);
        if (first >= 0) {
            const struct zoo_tensor *here = &trace.tensors[first], *honest = &zoo->honest[index].tensors[first];
            one.contrast = zoo_contrast(c, numerics, here, honest, &zoo->reference.tensors[first],
                                        &zoo->forced[index].tensors[first], &one.learnable);
            one.planted = relative(honest, here);
            one.honest = relative(&zoo->reference.tensors[first], honest);
            zoo_point_name(c, here->point, here->layer, one.first, sizeof one.first);
            /* seen through a whole attention or layer, most bugs only leave another result */
            snprintf(one.causes, sizeof one.causes, "%s%s", bug->causes,
                     !one.learnable && c->capture != ZOO_CAPTURE_FULL && !strstr(bug->causes, "unrelated") &&
                             (here->point == ZOO_O || here->point == ZOO_ATTENTION || here->point == ZOO_CONTEXT ||
                              here->point == ZOO_MLP || here->point == ZOO_LAYER)
                         ? ",unrelated"
                         : "");
        }
        kept = first >= 0 && one.contrast >= (one.learnable ? CONTRAST_LEARNABLE : CONTRAST_OTHER);
        /* in every layer at once, what captured tensors do not determine looks like coarser weights to anyone */
        kept = kept && (layer >= 0 || one.learnable);
        snprintf(one.file, sizeof one.file, "bug_%s_%s%s.safetensors", bug->name, numerics->name,
                 layer < 0 ? "_everywhere" : "");
        for (int i = 0; i < zoo->count; i++)
            kept = kept && strcmp(zoo->cases[i].file, one.file) != 0;
        if (kept)
            write_case(zoo, &one, &trace, numerics);
        zoo_trace_release(&trace);
    }
    zoo_model_release(&model);
    return kept;
}

/* Fp32, sixteen bits, and quantized, a third each or so. */
static int draw_numerics(const struct zoo *zoo, struct zoo_random *random)
{
    double kind = zoo_random_unit(random);
    for (;;) {
        int index = zoo_random_below(random, zoo_numerics_count);
        const struct zoo_numerics *n = &zoo_numerics_list[index];
        bool plain = n->weights == ZOO_WEIGHTS_PLAIN && n->cache == ZOO_WEIGHTS_PLAIN;
        bool fits = kind < 0.3 ? plain && n->format == ZOO_F32 : kind < 0.7 ? plain && n->format != ZOO_F32 : !plain;
        if (fits && n != zoo->config.reference)
            return index;
    }
}

static void add_bugs(struct zoo *zoo, int wanted, struct zoo_random *random)
{
    bool *tried = calloc((size_t)zoo_bug_count, sizeof *tried);
    for (int made = 0; made < wanted && tried;) {
        int best = -1, start = zoo_random_below(random, zoo_bug_count);
        for (int k = 0; k < zoo_bug_count; k++) {
            int bug = (start + k) % zoo_bug_count;
            if (!tried[bug] && (best < 0 || uses[bug] < uses[best]))
                best = bug;
        }
        if (best < 0)
            break;
        tried[best] = true;
        for (int attempt = 0; attempt < 4; attempt++) {
            int layer = zoo_random_below(random, zoo->config.layers), index = draw_numerics(zoo, random);
            struct zoo_random own = zoo_random_from(zoo_random_next(random), 3);
            if (zoo_bugs[best].everywhere && zoo_random_chance(random, 0.2))
                layer = -1;
            if (add_bug(zoo, &zoo_bugs[best], index, layer, own)) {
                uses[best]++;
                made++;
                break;
            }
        }
    }
    free(tried);
}

static int make(const char *out, int architecture, uint64_t seed, int bugs, int honest)
{
    struct zoo *zoo = calloc(1, sizeof *zoo);
    struct zoo_random random = zoo_random_from(seed, 77 + (uint64_t)architecture);
    struct zoo_model model;
    char folder[400], path[512];
    int start, made = 0, count;
    if (!zoo)
        fail("cannot allocate", "a zoo");
    zoo_config_draw(&zoo->config, architecture, seed);
    snprintf(folder, sizeof folder, "%s/%s", out, zoo->config.name);
    zoo->folder = folder;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        fail("cannot make", folder);
    zoo_model_build(&model, &zoo->config);
    zoo_model_lower(&model, zoo->config.reference);
    zoo_forward(&model, zoo->config.reference, NULL, &zoo->reference);
    if (!zoo_write_weights(folder, &model))
        fail("cannot write weights in", folder);
    zoo_model_release(&model);
    snprintf(path, sizeof path, "%s/reference.safetensors", folder);
    if (!zoo_write_trace(path, &zoo->config, &zoo->reference, zoo->config.reference))
        fail("cannot write", path);
    /* the numerics in turn, going on where the last architecture ended */
    start = (int)((seed * 7 + (uint64_t)architecture * (uint64_t)honest) % (uint64_t)zoo_numerics_count);
    for (int k = 0; k < zoo_numerics_count && made < honest; k++)
        made += add_noise(zoo, (start + k) % zoo_numerics_count);
    add_bugs(zoo, bugs, &random);
    snprintf(path, sizeof path, "%s/cases.json", folder);
    if (!zoo_write_cases(path, &zoo->config, zoo->cases, zoo->count))
        fail("cannot write", path);
    count = zoo->count;
    zoo_trace_release(&zoo->reference);
    for (int i = 0; i < zoo_numerics_count; i++) {
        zoo_trace_release(&zoo->honest[i]);
        zoo_trace_release(&zoo->forced[i]);
    }
    free(zoo);
    return count;
}

static const char usage[] =
    "usage: make_zoo FOLDER [--set tune|held-out] [--seed N] [--count N] [--bugs N] [--noise N] [--only NAME]\n"
    "\n"
    "Writes one zoo per architecture into FOLDER (which must exist), as many rounds of them as --count says, each\n"
    "round with its own seed. The tuning set starts at seed 1, the held-out set at seed 501; --seed overrides.\n";

int main(int argc, char **argv)
{
    uint64_t seed = 0, first = 1;
    int count = 1, bugs = 5, honest = 3, cases = 0;
    const char *out = NULL, *only = NULL;
    bool wrong = false;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (argv[i][0] != '-') {
            out = argv[i];
            continue;
        }
        if (value && strcmp(argv[i], "--set") == 0)
            first = strcmp(value, "held-out") == 0 ? 501 : 1;
        else if (value && strcmp(argv[i], "--seed") == 0)
            seed = strtoull(value, NULL, 10);
        else if (value && strcmp(argv[i], "--count") == 0)
            count = atoi(value);
        else if (value && strcmp(argv[i], "--bugs") == 0)
            bugs = atoi(value);
        else if (value && strcmp(argv[i], "--noise") == 0)
            honest = atoi(value);
        else if (value && strcmp(argv[i], "--only") == 0)
            only = value;
        else
            wrong = true;
        i++;
    }
    if (!out || wrong) {
        fputs(usage, stderr);
        return 3;
    }
    seed = seed ? seed : first; /* in whatever order they were given */
    uses = calloc((size_t)zoo_bug_count, sizeof *uses);
    for (int round = 0; round < count && uses; round++)
        for (int a = 0; a < zoo_architecture_count(); a++) {
            struct zoo_config config;
            zoo_config_draw(&config, a, seed + (uint64_t)round);
            if (!only || strncmp(config.name, only, strlen(only)) == 0)
                cases += make(out, a, seed + (uint64_t)round, bugs, honest);
        }
    free(uses);
    printf("%d cases\n", cases);
    return 0;
}
