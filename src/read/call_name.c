#include "read/call_name.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

char *ts_call_name(struct ts_arena *arena, const char *path, enum ts_call_role role, const char *index)
{
    const char *word = role == TS_CALL_INPUT ? "input" : "output";
    const char *dot = path[0] ? "." : "";
    if (role == TS_CALL_OUTPUT && (!index[0] || strcmp(index, "0") == 0))
        return ts_arena_string(arena, path[0] ? path : word);
    if (!index[0] || strcmp(index, "0") == 0)
        return ts_arena_printf(arena, "%s%s%s", path, dot, word);
    /* what a model is given or gives under a keyword is called so: input_ids, logits */
    if (!path[0] && !isdigit((unsigned char)index[0]))
        return ts_arena_string(arena, index);
    return ts_arena_printf(arena, "%s%s%s.%s", path, dot, word, index);
}

struct place {
    struct ts_tensor *tensor;
    size_t at;
};

static int by_name_and_place(const void *a, const void *b)
{
    const struct place *left = a, *right = b;
    int order = strcmp(left->tensor->name, right->tensor->name);
    return order ? order : left->at < right->at ? -1 : left->at > right->at;
}

enum ts_status ts_call_number(struct ts_bundle *bundle, size_t start, struct ts_error *error)
{
    size_t count = bundle->count - start, run = 1;
    struct place *places;
    enum ts_status status = TS_OK;
    const char *name = "";
    if (count < 2)
        return TS_OK;
    places = calloc(count, sizeof *places);
    if (!places)
        return ts_fail_memory(error);
    for (size_t i = 0; i < count; i++)
        places[i] = (struct place){bundle->tensors[start + i], i};
    qsort(places, count, sizeof *places, by_name_and_place);
    for (size_t i = 0; i < count && status == TS_OK; i++) {
        struct ts_tensor *tensor = places[i].tensor;
        run = i > 0 && strcmp(name, tensor->name) == 0 ? run + 1 : 1;
        if (run == 1) {
            name = tensor->name;
            continue;
        }
        tensor->name = ts_arena_printf(&bundle->arena, "%s#%zu", name, run);
        if (!tensor->name)
            status = ts_fail_memory(error);
    }
    free(places);
    return status;
}

enum ts_status ts_call_rename(struct ts_bundle *bundle, size_t start, const char *name, const char *file,
                              struct ts_error *error)
{
    for (size_t i = start; i < bundle->count; i++) {
        struct ts_tensor *tensor = bundle->tensors[i];
        if (bundle->count - start == 1 || !tensor->name[0])
            tensor->name = ts_arena_string(&bundle->arena, name);
        else
            tensor->name = ts_arena_printf(&bundle->arena, "%s.%s", name, tensor->name);
        if (!tensor->name)
            return ts_fail_memory(error);
        if (file)
            tensor->file = file;
    }
    return TS_OK;
}
