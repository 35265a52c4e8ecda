/* Pairing of two bundles whose names come from the input, a line each: its first byte says which side, which shape and
 * which values, the rest is the name. A line that begins with '!' makes A a GGUF file with that number of heads. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pair/pair.h"

#define ELEMENTS  64
#define MAX_LINES 200

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void add(struct ts_bundle *bundle, const char *name, unsigned choice)
{
    static const uint64_t shapes[8][3] = {{4, 4, 4},  {2, 8, 4},  {8, 8, 1},  {4, 16, 1},
                                          {16, 4, 1}, {64, 1, 1}, {1, 1, 64}, {0, 4, 4}};
    float values[ELEMENTS];
    struct ts_tensor *tensor;
    struct ts_source *source;
    struct ts_error error;
    if (ts_bundle_add(bundle, name, choice % 4, &tensor, &error) != TS_OK)
        abort();
    for (unsigned i = 0; i < tensor->rank; i++)
        tensor->shape[i] = shapes[choice / 4 % 8][i];
    for (unsigned i = 0; i < ELEMENTS; i++)
        values[i] = (float)((int)((i * (choice / 32 + 1) * 2654435761u) >> 16 & 1023) - 512);
    if (ts_source_copy(values, sizeof values, "values", &source, &error) != TS_OK ||
        ts_bundle_keep(bundle, source, &error) != TS_OK)
        abort();
    tensor->type = TS_F32;
    tensor->source = source;
    if (ts_tensor_finish(tensor, &error) != TS_OK)
        abort();
    ts_source_release(source);
}

/* Both sides of every pair have one shape and can be read. */
static void look_at(const struct ts_pairing *pairing)
{
    for (size_t i = 0; i < pairing->count; i++) {
        const struct ts_pair *pair = &pairing->pairs[i];
        double values[ELEMENTS];
        struct ts_error error;
        size_t count = pair->a.count < ELEMENTS ? (size_t)pair->a.count : ELEMENTS;
        if (pair->problem)
            continue;
        if (pair->a.rank != pair->b.rank || pair->a.count != pair->b.count ||
            (pair->a.rank && memcmp(pair->a.shape, pair->b.shape, pair->a.rank * sizeof *pair->a.shape) != 0) ||
            ts_view_read_f64(&pair->a, 0, count, values, &error) != TS_OK ||
            ts_view_read_f64(&pair->b, 0, count, values, &error) != TS_OK)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ts_bundle *a = ts_bundle_new("a"), *b = ts_bundle_new("b");
    struct ts_pair_options options = {.by_content = true};
    struct ts_pairing pairing;
    struct ts_error error;
    char *text = malloc(size + 1);
    size_t lines = 0;
    if (!a || !b || !text)
        abort();
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    for (char *at = text, *end = text + size; at < end && lines < MAX_LINES; lines++) {
        char *line = at, *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        *stop = '\0';
        at = stop + 1;
        if (!line[0] || strlen(line) != (size_t)(stop - line))
            continue;
        if (line[0] == '!') {
            if (ts_bundle_meta(a, "general.architecture", "llama", &error) != TS_OK ||
                ts_bundle_meta(a, "llama.attention.head_count", line + 1, &error) != TS_OK)
                abort();
        } else {
            add((unsigned char)line[0] & 1 ? b : a, line + 1, (unsigned char)line[0] / 2u);
        }
    }
    if (lines & 1)
        a->order = "natural order of names";
    if (ts_pair_run(a, b, &options, NULL, NULL, &pairing, &error) == TS_OK) {
        look_at(&pairing);
        ts_pairing_release(&pairing);
    }
    ts_bundle_free(a);
    ts_bundle_free(b);
    free(text);
    return 0;
}
