/* Owns the search for a layer offset: a dump that begins at layer 3 against one that begins at layer 0. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pair/pairing.h"
#include "pair/sketch.h"

/* Models have some hundred layers at most; numbers further apart are something else. */
#define MAX_LAYERS 1024
/* Offsets that are equally likely by names and are then compared by content, at most. */
#define MAX_TIED 64
/* Tensors of each side looked at for that, and the largest of them: some of every layer are small. */
#define PROBES     12
#define PROBE_SIZE ((uint64_t)1 << 18)

/* The kinds of one layer, as numbers in ascending order. */
struct layer {
    int64_t number;
    size_t *kinds;
    size_t count, look; /* layers that look alike have the same number */
};

struct layers {
    struct layer *list;
    size_t count;
};

struct spot {
    int64_t layer;
    size_t kind;
};

static int by_layer_and_kind(const void *a, const void *b)
{
    const struct spot *left = a, *right = b;
    if (left->layer != right->layer)
        return left->layer < right->layer ? -1 : 1;
    return left->kind < right->kind ? -1 : left->kind > right->kind;
}

/* Which kinds stand in which layers. kinds gives each scope and kind a number; or each kind, without scopes. */
static bool survey(const struct ts_side *side, bool scopes, struct ts_table *kinds, struct ts_arena *arena,
                   struct layers *out)
{
    struct spot *spots = ts_arena_array(arena, side->count, sizeof *spots);
    size_t count = 0, kept = 0;
    *out = (struct layers){0};
    if (!spots)
        return false;
    for (size_t i = 0; i < side->count; i++) {
        const struct ts_name *name = &side->read.list[i];
        size_t number = kinds->used;
        const char *key;
        if (name->layer < 0)
            continue;
        key = ts_arena_printf(arena, "%s|%s", scopes ? name->scope : "", name->kind);
        if (!key)
            return false;
        ts_table_put(kinds, key, number, &number);
        spots[count++] = (struct spot){name->layer, number};
    }
    if (count)
        qsort(spots, count, sizeof *spots, by_layer_and_kind);
    out->list = ts_arena_array(arena, count, sizeof *out->list);
    if (!out->list)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (i && by_layer_and_kind(&spots[i], &spots[kept - 1]) == 0)
            continue;
        if (kept == 0 || spots[kept - 1].layer != spots[i].layer)
            out->list[out->count++] = (struct layer){.number = spots[i].layer};
        out->list[out->count - 1].count++;
        spots[kept++] = spots[i];
    }
    for (size_t i = 0, at = 0; i < out->count; at += out->list[i++].count) {
        struct layer *layer = &out->list[i];
        layer->kinds = ts_arena_array(arena, layer->count, sizeof *layer->kinds);
        if (!layer->kinds)
            return false;
        for (size_t k = 0; k < layer->count; k++)
            layer->kinds[k] = spots[at + k].kind;
        layer->look = i;
        for (size_t k = 0; k < i; k++)
            if (out->list[k].count == layer->count &&
                memcmp(out->list[k].kinds, layer->kinds, layer->count * sizeof *layer->kinds) == 0) {
                layer->look = out->list[k].look;
                break;
            }
    }
    return true;
}

static size_t in_common(const struct layer *a, const struct layer *b)
{
    size_t common = 0;
    for (size_t i = 0, k = 0; i < a->count && k < b->count;) {
        common += a->kinds[i] == b->kinds[k];
        if (a->kinds[i] <= b->kinds[k])
            i++;
        else
            k++;
    }
    return common;
}

/* Pairs that an offset makes. `known` remembers what two looks have in common, plus one. */
static size_t pairs_at(const struct layers *a, const struct layers *b, int64_t offset, size_t *known)
{
    size_t total = 0;
    for (size_t i = 0, k = 0; i < a->count && k < b->count;) {
        int64_t here = a->list[i].number - offset;
        if (here == b->list[k].number) {
            size_t *cell = &known[a->list[i].look * b->count + b->list[k].look];
            if (!*cell)
                *cell = in_common(&a->list[i], &b->list[k]) + 1;
            total += *cell - 1;
            i++;
            k++;
        } else if (here < b->list[k].number) {
            i++;
        } else {
            k++;
        }
    }
    return total;
}

static bool equal_layers(const struct layers *a, const struct layers *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (a->list[i].number != b->list[i].number)
            return false;
    return true;
}

/* How many of some tensors have the content of those they would stand beside. */
static enum ts_status probe(struct ts_pairer *pairer, int64_t offset, bool scopes, size_t *agreeing,
                            struct ts_error *error)
{
    const struct ts_side *a = &pairer->a, *b = &pairer->b;
    size_t looked_at = 0;
    *agreeing = 0;
    for (size_t i = 0; i < a->count && looked_at < PROBES; i++) {
        const struct ts_name *name = &a->read.list[i];
        if (name->layer < 0 || a->bundle->tensors[i]->count < 16 || a->bundle->tensors[i]->count > PROBE_SIZE)
            continue;
        for (size_t k = 0; k < b->count; k++) {
            const struct ts_name *other = &b->read.list[k];
            struct ts_sketch left, right;
            if (other->layer != name->layer - offset || strcmp(other->kind, name->kind) != 0 ||
                (scopes && strcmp(other->scope, name->scope) != 0) || other->expert != name->expert ||
                b->bundle->tensors[k]->count != a->bundle->tensors[i]->count)
                continue;
            TS_TRY(ts_sketch_make(a->bundle->tensors[i], &left, error));
            TS_TRY(ts_sketch_make(b->bundle->tensors[k], &right, error));
            looked_at++;
            *agreeing += ts_sketch_distance(&left, &right) < 0.05;
            break;
        }
    }
    return TS_OK;
}

/* *found: some offset makes pairs at all. */
static enum ts_status choose(struct ts_pairer *pairer, const struct layers *a, const struct layers *b, bool scopes,
                             size_t *known, bool *found, struct ts_error *error)
{
    int64_t first_a = a->list[0].number, last_a = a->list[a->count - 1].number;
    int64_t first_b = b->list[0].number, last_b = b->list[b->count - 1].number;
    int64_t tied[MAX_TIED], chosen;
    size_t best = 0, count = 0, most = 0;
    bool told = false;
    for (int64_t offset = first_a - last_b; offset <= last_a - first_b; offset++) {
        size_t pairs = pairs_at(a, b, offset, known);
        if (pairs > best) {
            best = pairs;
            count = 0;
        }
        if (pairs == best && pairs && count < MAX_TIED)
            tied[count++] = offset;
    }
    *found = count > 0;
    if (!count)
        return TS_OK;
    /* without any content to go by: no offset when that is as good, then first layer against first layer */
    chosen = tied[0];
    for (size_t i = 0; i < count; i++)
        if (tied[i] == 0 || (tied[i] == first_a - first_b && chosen != 0))
            chosen = tied[i];
    if (count > 1) {
        for (size_t i = 0; i < count; i++) {
            size_t agreeing;
            TS_TRY(probe(pairer, tied[i], scopes, &agreeing, error));
            if (agreeing > most || (agreeing == most && most && tied[i] == chosen)) {
                told = agreeing > most;
                most = agreeing;
                chosen = tied[i];
            } else if (agreeing == most) {
                told = false;
            }
        }
        if (!told && most == 0)
            TS_TRY(ts_pairer_note(pairer, error,
                                  "%zu layer offsets fit the names equally well; %+" PRId64
                                  " is assumed (choose one with --layer-offset)",
                                  count, chosen));
    }
    pairer->offset = chosen;
    return TS_OK;
}

/* scopes: parts of a model with other names are not compared. */
static enum ts_status search(struct ts_pairer *pairer, bool scopes, struct layers *a, struct layers *b, bool *found,
                             struct ts_error *error)
{
    struct ts_table kinds = {0};
    enum ts_status status;
    size_t *known;
    bool done = ts_table_init(&kinds, pairer->a.count + pairer->b.count) &&
                survey(&pairer->a, scopes, &kinds, &pairer->scratch, a) &&
                survey(&pairer->b, scopes, &kinds, &pairer->scratch, b);
    ts_table_release(&kinds);
    *found = true;
    if (!done)
        return ts_fail_memory(error);
    if (a->count == 0 || b->count == 0 || equal_layers(a, b) ||
        a->list[a->count - 1].number - a->list[0].number > MAX_LAYERS ||
        b->list[b->count - 1].number - b->list[0].number > MAX_LAYERS)
        return TS_OK;
    known = calloc(a->count * b->count, sizeof *known);
    status = known ? choose(pairer, a, b, scopes, known, found, error) : ts_fail_memory(error);
    free(known);
    return status;
}

/* Whether some layer of A has a partner under the offset. */
static bool meets_a_layer(const struct ts_pairer *pairer)
{
    bool present[MAX_LAYERS] = {false};
    if (pairer->offset <= -MAX_LAYERS || pairer->offset >= MAX_LAYERS)
        return false;
    for (size_t i = 0; i < pairer->a.count; i++) {
        const int64_t layer = pairer->a.read.list[i].layer;
        if (layer >= 0 && layer < MAX_LAYERS)
            present[layer] = true;
    }
    for (size_t i = 0; i < pairer->b.count; i++) {
        const int64_t layer = pairer->b.read.list[i].layer;
        if (layer >= 0 && layer < MAX_LAYERS - pairer->offset && layer + pairer->offset >= 0 &&
            present[layer + pairer->offset])
            return true;
    }
    return false;
}

enum ts_status ts_find_offset(struct ts_pairer *pairer, struct ts_error *error)
{
    struct layers a = {0}, b = {0};
    bool found;
    if (pairer->options->layer_offset_given) {
        pairer->offset = pairer->options->layer_offset;
    } else {
        TS_TRY(search(pairer, true, &a, &b, &found, error));
        if (!found) /* an engine's own word in front of its layers */
            TS_TRY(search(pairer, false, &a, &b, &found, error));
    }
    if (pairer->offset == 0)
        return TS_OK;
    pairer->out->layer_offset = pairer->offset;
    pairer->offset_text = ts_arena_printf(&pairer->out->arena, "layer offset %+" PRId64, pairer->offset);
    if (!pairer->offset_text)
        return ts_fail_memory(error);
    if (pairer->options->layer_offset_given)
        return ts_pairer_note(pairer, error,
                              meets_a_layer(pairer)
                                  ? "layer n of A is compared with layer n %c %" PRId64 " of B, as given"
                                  : "the layer offset that was given pairs nothing: no layer n of A has a layer "
                                    "n %c %" PRId64 " in B",
                              pairer->offset > 0 ? '-' : '+', pairer->offset > 0 ? pairer->offset : -pairer->offset);
    {
        int64_t first =
            a.list[0].number > b.list[0].number + pairer->offset ? a.list[0].number : b.list[0].number + pairer->offset;
        return ts_pairer_note(pairer, error, "layers %" PRId64 ".. of A are compared with layers %" PRId64 ".. of B",
                              first, first - pairer->offset);
    }
}
