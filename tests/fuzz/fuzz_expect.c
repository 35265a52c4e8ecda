/* Expectation files: whatever they say, it is read or refused with a place, and holding it against tensors ends. */
#include <math.h>

#include "base/pool.h"
#include "check/expect.h"
#include "common.h"

static struct ts_bundle *make_bundle(void)
{
    static const float values[] = {0, 0.5f, 0.5f, 1, -2, NAN, INFINITY, 3};
    static const char *const names[] = {"a", "layers.0.attn_probs", "layers.1.attn_probs", "b c"};
    struct ts_bundle *bundle = ts_bundle_new("fuzz");
    struct ts_error error;
    for (size_t i = 0; bundle && i < sizeof names / sizeof *names; i++) {
        struct ts_tensor *tensor;
        struct ts_source *source;
        if (ts_source_copy(values, sizeof values, "fuzz", &source, &error) != TS_OK)
            abort();
        if (ts_bundle_add(bundle, names[i], 2, &tensor, &error) != TS_OK ||
            ts_bundle_keep(bundle, source, &error) != TS_OK)
            abort();
        tensor->shape[0] = i ? 2 : 8;
        tensor->shape[1] = i ? 4 : 1;
        tensor->type = TS_F32;
        tensor->source = source;
        if (ts_tensor_finish(tensor, &error) != TS_OK)
            abort();
        ts_source_release(source);
    }
    return bundle;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ts_pool *pool;
    static struct ts_bundle *bundle;
    struct ts_expect expect;
    struct ts_error error;
    struct ts_expect_result *results;
    struct ts_arena arena;
    char *copy = malloc(size + 1); /* ends where the bytes end */
    if (!pool)
        pool = ts_pool_new(1);
    if (!bundle)
        bundle = make_bundle();
    if (copy && size)
        memcpy(copy, data, size);
    copy = copy ? realloc(copy, size ? size : 1) : NULL;
    ts_error_clear(&error);
    if (!copy || !pool || !bundle) {
        free(copy);
        return 0;
    }
    if (ts_expect_parse(copy, size, &expect, &error) == TS_OK) {
        bool files = false;
        for (size_t i = 0; i < expect.count; i++) {
            if (!expect.list[i].pattern || !expect.list[i].text || !expect.list[i].line)
                abort();
            files = files || expect.list[i].file;
        }
        results = calloc(expect.count + 1, sizeof *results);
        ts_arena_init(&arena, (size_t)64 << 20);
        if (results && !files) /* nothing is opened here */
            (void)ts_expect_run(pool, bundle, &expect, NULL, results, &arena, NULL, &error);
        ts_arena_release(&arena);
        free(results);
        ts_expect_release(&expect);
    } else if (!error.message[0]) {
        abort();
    }
    free(copy);
    return 0;
}
