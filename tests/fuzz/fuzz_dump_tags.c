/* Lines are the paths of files; of each a tensor is named and all are put in order. */
#include "common.h"
#include "read/dump_tags.h"

#define MOST_LINES 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ts_bundle *bundle = ts_bundle_new("fuzz");
    struct ts_tags_survey survey = {0};
    struct ts_tags tags;
    struct ts_error error;
    const char *paths[MOST_LINES];
    size_t count = 0;
    bool drop;
    ts_error_clear(&error);
    for (size_t at = 0; bundle && at < size && count < MOST_LINES;) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        size_t length = end ? (size_t)(end - data) - at : size - at;
        if (!memchr(data + at, '\0', length)) {
            paths[count] = ts_arena_copy(&bundle->arena, (const char *)data + at, length);
            if (!paths[count])
                abort();
            ts_tags_look(&survey, paths[count++]);
        }
        at += length + 1;
    }
    for (size_t i = 0; bundle && i < count; i++) {
        struct ts_tensor *tensor;
        if (ts_bundle_add(bundle, "value", 0, &tensor, &error) != TS_OK)
            abort();
        tensor->file = paths[i];
        if (!ts_tags_read(paths[i], i % 3, &tags))
            continue;
        tensor->name = ts_tags_name(&survey, &tags, i % 2 ? "value.x" : "", &bundle->arena, &drop);
        if (!tensor->name)
            abort();
    }
    if (bundle && (ts_tags_arrange(bundle, &error) != TS_OK || bundle->count != count))
        abort();
    ts_bundle_free(bundle);
    return 0;
}
