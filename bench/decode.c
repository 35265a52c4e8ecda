/* Decoding of quantized blocks, beside ggml's where its library is: bench_decode ROUNDS [LIBGGML-BASE]
 *
 * Blocks are random but valid, more of them than caches hold, and are decoded as statistics do it: a few thousand
 * elements at a time into the same small buffer. ggml's own functions are called in the same way, from the same
 * threads, in turn with ours, and have to give the same values. */
#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/cpu.h"
#include "base/number.h"
#include "base/pool.h"
#include "measure.h"
#include "tensor/decode_blocks.h"

#define ELEMENTS ((size_t)48 << 20) /* 27 MB of Q4_K, 51 MB of Q8_0, 201 MB decoded */
#define RUN      ((size_t)8192)     /* elements at a time */
#define PIECE    (64 * RUN)         /* what a thread takes */

typedef void ggml_dequantize(const void *blocks, float *out, int64_t count);

/* As ggml.h has it; older versions fill tables in ggml_init. */
struct ggml_init_params {
    size_t mem_size;
    void *mem_buffer;
    bool no_alloc;
};
typedef void *ggml_init_function(struct ggml_init_params);

struct decoding {
    enum ts_block_type type;
    const struct ts_block_info *info;
    const uint8_t *blocks;
    ggml_dequantize *ggml; /* NULL: ours */
    float **out;           /* per worker */
};

static uint64_t dice(void)
{
    static uint64_t state;
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Any bytes are valid but for the f16 factors in front of each block: one in Q8_0, two in Q4_K. */
static uint8_t *make_blocks(const struct ts_block_info *info)
{
    const size_t blocks = ELEMENTS / info->elements, size = blocks * info->bytes;
    uint8_t *data = malloc(size + 8);
    if (!data)
        give_up("no memory");
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word = dice();
        memcpy(data + i, &word, 8);
    }
    for (size_t i = 0; i < blocks; i++)
        for (unsigned factor = 0; factor < (info->has_min ? 2 : 1); factor++) {
            uint16_t half = (uint16_t)(0x0800 + dice() % 0x2000); /* 1e-4 and up, like real ones */
            memcpy(data + i * info->bytes + 2 * factor, &half, 2);
        }
    return data;
}

static void decode_piece(void *context, uint64_t index, unsigned worker)
{
    const struct decoding *decoding = context;
    const size_t run_blocks = RUN / decoding->info->elements;
    const uint8_t *at = decoding->blocks + index * (PIECE / decoding->info->elements) * decoding->info->bytes;
    for (size_t done = 0; done < PIECE; done += RUN, at += run_blocks * decoding->info->bytes) {
        if (decoding->ggml)
            decoding->ggml(at, decoding->out[worker], (int64_t)RUN);
        else
            ts_decode_blocks(decoding->type, at, run_blocks, decoding->out[worker]);
        /* the values are "used", so that no compiler may leave out the work */
        __asm__ volatile("" : : "r"(decoding->out[worker]) : "memory");
    }
}

static double decode_all(struct ts_pool *pool, struct decoding *decoding, ggml_dequantize *ggml)
{
    double start = now();
    decoding->ggml = ggml;
    ts_pool_run(pool, ELEMENTS / PIECE, decode_piece, decoding);
    return now() - start;
}

static bool same_values(const struct decoding *decoding, ggml_dequantize *ggml)
{
    float *ours = malloc(RUN * sizeof *ours), *theirs = malloc(RUN * sizeof *theirs);
    bool same;
    if (!ours || !theirs)
        give_up("no memory");
    ts_decode_blocks(decoding->type, decoding->blocks, RUN / decoding->info->elements, ours);
    ggml(decoding->blocks, theirs, (int64_t)RUN);
    same = memcmp(ours, theirs, RUN * sizeof *ours) == 0;
    free(ours);
    free(theirs);
    return same;
}

static void measure(enum ts_block_type type, struct ts_pool *const pools[2], unsigned long long rounds,
                    ggml_dequantize *ggml)
{
    struct decoding decoding = {.type = type, .info = &ts_block_infos[type]};
    struct best ours[2] = {{0}}, theirs[2] = {{0}};
    uint8_t *blocks = make_blocks(decoding.info);
    const unsigned width = ts_pool_width(pools[1]);
    const double bytes = (double)(ELEMENTS * sizeof(float));
    decoding.blocks = blocks;
    decoding.out = calloc(width, sizeof *decoding.out);
    if (!decoding.out)
        give_up("no memory");
    for (unsigned i = 0; i < width; i++)
        if (!(decoding.out[i] = aligned_alloc(64, RUN * sizeof(float))))
            give_up("no memory");
    for (; rounds; rounds--)
        for (int team = 0; team < 2; team++) {
            best_add(&ours[team], decode_all(pools[team], &decoding, NULL));
            if (ggml)
                best_add(&theirs[team], decode_all(pools[team], &decoding, ggml));
        }
    printf("{\"type\": \"%s\", \"simd\": \"%s\", \"threads\": %u, \"one\": %.6g, \"all\": %.6g", decoding.info->name,
           ts_simd_name(ts_simd_level()), width, bytes / ours[0].seconds, bytes / ours[1].seconds);
    if (ggml)
        printf(", \"ggml_one\": %.6g, \"ggml_all\": %.6g, \"same\": %s", bytes / theirs[0].seconds,
               bytes / theirs[1].seconds, same_values(&decoding, ggml) ? "true" : "false");
    puts("}");
    for (unsigned i = 0; i < width; i++)
        free(decoding.out[i]);
    free(decoding.out);
    free(blocks);
}

/* A pointer to a function by way of its bytes, which is how POSIX wants it. */
static void find(void *library, const char *name, void *function, size_t size)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, size);
}

int main(int argc, char **argv)
{
    static const struct {
        enum ts_block_type type;
        const char *ggml_name;
    } kinds[] = {{TS_BLOCK_Q4_K, "dequantize_row_q4_K"}, {TS_BLOCK_Q8_0, "dequantize_row_q8_0"}};
    struct ts_pool *pools[2] = {ts_pool_new(1), ts_pool_new(0)};
    void *library = NULL;
    if (argc != 2 && argc != 3)
        give_up("usage: %s ROUNDS [LIBGGML-BASE]", argv[0]);
    if (!pools[0] || !pools[1])
        give_up("no memory");
    if (argc == 3) {
        ggml_init_function *init;
        library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
        if (!library)
            give_up("%s", dlerror());
        find(library, "ggml_init", &init, sizeof init);
        if (init)
            init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        ggml_dequantize *ggml = NULL;
        if (library)
            find(library, kinds[i].ggml_name, &ggml, sizeof ggml);
        measure(kinds[i].type, pools, number_argument(argv[1], "rounds"), ggml);
    }
    ts_pool_free(pools[0]);
    ts_pool_free(pools[1]);
    return 0;
}
