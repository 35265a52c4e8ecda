/* Comparison of two files: bench_compare plain|decode|engine A B ROUNDS
 *
 *   plain   one tensor each: all metrics, against plain reading of both files with the same threads
 *   decode  one tensor each, B's quantized: all metrics, against decoding B and nothing else, into memory and into a
 *           buffer in the cache
 *   engine  many tensors each: pairing, measuring and judging together, and opening beside it
 *
 * The rounds alternate, so that a busy machine is as busy for each. */
#include <inttypes.h>

#include "compare/comparison.h"
#include "plain.h"
#include "read/open.h"

#define RUN   ((size_t)8192)      /* elements decoded at a time, as the comparison does it */
#define PIECE ((uint64_t)1 << 21) /* what a thread takes */

static struct ts_bundle *open_bundle(const char *path)
{
    struct ts_bundle *bundle;
    struct ts_error error;
    if (ts_open(path, NULL, &bundle, &error) != TS_OK)
        give_up("%s: %s", path, error.message);
    if (!bundle->count)
        give_up("%s: no tensor", path);
    return bundle;
}

static double measure_delta(struct ts_pool *pool, char *const paths[2], struct ts_delta *delta, uint64_t *bytes)
{
    const struct ts_delta_options options = {0};
    struct ts_bundle *a = open_bundle(paths[0]), *b = open_bundle(paths[1]);
    struct ts_pair pair = {.name = a->tensors[0]->name, .name_b = b->tensors[0]->name};
    struct ts_arena arena;
    struct ts_error error;
    double start, seconds;
    ts_arena_init(&arena, (size_t)1 << 20);
    if (!ts_view_of(a->tensors[0], &arena, &pair.a) || !ts_view_of(b->tensors[0], &arena, &pair.b))
        give_up("no memory");
    if (pair.a.count != pair.b.count)
        give_up("the tensors are of different size");
    *bytes = a->tensors[0]->bytes + b->tensors[0]->bytes;
    start = now();
    if (ts_delta_run(pool, &pair, 1, &options, delta, NULL, &error) != TS_OK)
        give_up("%s", error.message);
    seconds = now() - start;
    ts_arena_release(&arena);
    ts_bundle_free(a);
    ts_bundle_free(b);
    return seconds;
}

struct decoding {
    const struct ts_tensor *tensor;
    float *all; /* where the numbers are kept, or NULL */
};

static void decode_piece(void *context, uint64_t index, unsigned worker)
{
    const struct decoding *decoding = context;
    const struct ts_tensor *tensor = decoding->tensor;
    uint64_t end = tensor->count - index * PIECE < PIECE ? tensor->count : (index + 1) * PIECE;
    float values[RUN];
    struct ts_error error;
    (void)worker;
    for (uint64_t first = index * PIECE; first < end; first += RUN) {
        size_t count = end - first < RUN ? (size_t)(end - first) : RUN;
        float *out = decoding->all ? decoding->all + first : values;
        if (ts_tensor_read_f32(tensor, first, count, out, &error) != TS_OK)
            give_up("%s", error.message);
        __asm__ volatile("" : : "r"(out) : "memory"); /* "used" */
    }
}

/* kept: the numbers stay in memory, which is had for the first call and used again. */
static double measure_decode(struct ts_pool *pool, const char *path, bool kept)
{
    static float *all;
    struct ts_bundle *bundle = open_bundle(path);
    struct decoding decoding = {.tensor = bundle->tensors[0]};
    double start, seconds;
    if (kept && !all)
        all = malloc(bundle->tensors[0]->count * sizeof *all);
    if (kept && !all)
        give_up("no memory");
    decoding.all = kept ? all : NULL;
    start = now();
    ts_pool_run(pool, (bundle->tensors[0]->count + PIECE - 1) / PIECE, decode_piece, &decoding);
    seconds = now() - start;
    ts_bundle_free(bundle);
    return seconds;
}

static double measure_engine(struct ts_pool *pool, char *const paths[2], struct best *opening, size_t *pairs,
                             size_t *unequal)
{
    struct ts_comparison_options options = {.pair = {.by_content = true}};
    struct ts_comparison comparison;
    struct ts_bundle *a, *b;
    struct ts_error error;
    double start = now(), seconds;
    a = open_bundle(paths[0]);
    b = open_bundle(paths[1]);
    best_add(opening, now() - start);
    start = now();
    if (ts_comparison_run(a, b, &options, pool, &comparison, &error) != TS_OK)
        give_up("%s", error.message);
    seconds = now() - start;
    *pairs = comparison.pairing.count;
    *unequal = 0;
    for (size_t i = 0; i < comparison.pairing.count; i++)
        *unequal += comparison.deltas[i].unequal > 0;
    ts_comparison_release(&comparison);
    return seconds;
}

int main(int argc, char **argv)
{
    struct best ours = {0}, beside = {0};
    struct rounds all = {0};
    struct ts_pool *pool = ts_pool_new(0);
    struct ts_delta delta = {0};
    struct plain plain;
    uint64_t bytes = 0;
    size_t pairs = 0, unequal = 0;
    unsigned long long rounds;
    if (argc != 5 ||
        (strcmp(argv[1], "plain") != 0 && strcmp(argv[1], "decode") != 0 && strcmp(argv[1], "engine") != 0))
        give_up("usage: %s plain|decode|engine A B ROUNDS", argv[0]);
    if (!pool)
        give_up("no memory");
    rounds = number_argument(argv[4], "rounds");
    if (argv[1][0] == 'e') {
        for (; rounds; rounds--)
            best_add(&ours, measure_engine(pool, argv + 2, &beside, &pairs, &unequal));
        printf("{\"pairs\": %zu, \"unequal\": %zu, \"seconds\": %.9f, \"open_s\": %.9f}\n", pairs, unequal,
               ours.seconds, beside.seconds);
        ts_pool_free(pool);
        return 0;
    }
    plain_open(pool, argv + 2, 2, &plain);
    for (; rounds; rounds--) {
        double seconds = measure_delta(pool, argv + 2, &delta, &bytes), decoding, mapped, bounded;
        if (argv[1][0] == 'd') {
            decoding = measure_decode(pool, argv[3], false);
            rounds_add(&all, seconds, decoding, measure_decode(pool, argv[3], true), 0);
            continue;
        }
        mapped = plain_read(pool, &plain, true);
        plain.giving_back = true;
        bounded = plain_read(pool, &plain, true);
        plain.giving_back = false;
        rounds_add(&all, seconds, mapped, plain_read(pool, &plain, false), bounded);
    }
    rounds_print(&all);
    printf("\"bytes\": %" PRIu64 ", \"plain_bytes\": %" PRIu64 ", \"elements\": %" PRIu64 ", \"threads\": %u, "
           "\"rel_l2\": %.9g, "
           "\"max_abs\": %.9g, \"mean_abs\": %.9g, \"cosine\": %.12g, \"max_rel\": %.9g, \"unequal\": %" PRIu64
           ", \"mismatched\": %" PRIu64 "}\n",
           bytes, plain.bytes, delta.count, ts_pool_width(pool), delta.rel_l2, delta.max_abs, delta.mean_abs,
           delta.cosine, delta.max_rel, delta.unequal, delta.mismatched);
    plain_close(pool, &plain);
    ts_pool_free(pool);
    return 0;
}
