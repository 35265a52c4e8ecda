/* Owns layouts that only one tensor needs: where its siblings in other layers are the same on both sides as they stand,
 * a tensor that agrees only when it is turned is no habit of a format but a fault, and is left for the comparison to
 * find. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "pair/pairing.h"

struct kin {
    size_t plain, turned;
};

static bool is_whole(const struct ts_view *view)
{
    return view->join == TS_JOIN_NONE && view->count == view->tensor->count;
}

/* One tensor against one of the same shape, for which the layout was nobody's declaration. */
static bool is_candidate(const struct ts_pair *pair)
{
    const struct ts_tensor *a = pair->a.tensor, *b = pair->b.tensor;
    return !pair->problem && !pair->by_hand && !pair->guess && strcmp(pair->how, "name") == 0 && is_whole(&pair->a) &&
           is_whole(&pair->b) && !ts_view_is_computed(&pair->a) && !ts_view_is_computed(&pair->b) &&
           a->rank == b->rank && memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

/* The name with its numbers left out. */
static const char *kind_of(const char *name, struct ts_arena *arena)
{
    char *kind = ts_arena_alloc(arena, strlen(name) + 1), *at = kind;
    if (!kind)
        return NULL;
    for (; *name; name++)
        if (!isdigit((unsigned char)*name))
            *at++ = *name;
        else if (at == kind || at[-1] != '#')
            *at++ = '#';
    *at = '\0';
    return kind;
}

enum ts_status ts_drop_odd_layouts(struct ts_pairing *pairing, struct ts_error *error)
{
    struct kin *kin = calloc(pairing->count + 1, sizeof *kin);
    size_t *family = calloc(pairing->count + 1, sizeof *family), turned = 0;
    struct ts_table table = {0};
    struct ts_arena scratch;
    enum ts_status status = TS_OK;
    ts_arena_init(&scratch, (size_t)1 << 30);
    for (size_t i = 0; i < pairing->count; i++)
        turned += is_candidate(&pairing->pairs[i]) && *pairing->pairs[i].recipe;
    if (!kin || !family || (turned && !ts_table_init(&table, pairing->count)))
        status = ts_fail_memory(error);
    for (size_t i = 0; i < pairing->count && turned && status == TS_OK; i++) {
        const struct ts_pair *pair = &pairing->pairs[i];
        const char *kind = is_candidate(pair) ? kind_of(pair->name, &scratch) : "";
        if (!kind) {
            status = ts_fail_memory(error);
        } else if (*kind) {
            family[i] = i;
            ts_table_put(&table, kind, i, &family[i]);
            *(*pair->recipe ? &kin[family[i]].turned : &kin[family[i]].plain) += 1;
        }
    }
    for (size_t i = 0; i < pairing->count && turned && status == TS_OK; i++) {
        struct ts_pair *pair = &pairing->pairs[i];
        const struct kin *mine = &kin[family[i]];
        if (!is_candidate(pair) || !*pair->recipe || mine->plain < 2 || mine->plain <= mine->turned)
            continue;
        if (!ts_view_of(pair->a.tensor, &pairing->arena, &pair->a) ||
            !ts_view_of(pair->b.tensor, &pairing->arena, &pair->b))
            status = ts_fail_memory(error);
        pair->recipe = "";
        pair->ambiguous = false;
    }
    ts_table_release(&table);
    ts_arena_release(&scratch);
    free(family);
    free(kin);
    return status;
}
