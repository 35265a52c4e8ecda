/* Owns lists of hidden states: what transformers gives with output_hidden_states, saved as it is. Its numbers count
 * from the embedding on, so that hidden_states.1 is what layer 0 makes, and its last one stands behind the last norm.
 *
 * Where one side is such a list and the other names its layers, the list gets the names of what it holds. How long it
 * is tells whether it begins with the embedding; of the last one the values tell what it is. */
#include <inttypes.h>
#include <string.h>

#include "pair/pairing.h"
#include "pair/sketch.h"
#include "pair/words.h"

/* No model has more layers; no list of fewer is taken for one. */
#define MOST  1024
#define LEAST 3
/* Sketches nearer than this are of one tensor, with an error that a run may have. */
#define SAME 0.3

struct list {
    size_t of[MOST]; /* the tensor of each number; SIZE_MAX: none */
    size_t count;
    bool plain; /* nothing but numbers */
};

/* hidden_states.3, arr_3, or just 3: of names that say nothing else all have to be such. */
static bool number_of(const char *name, struct ts_words *words, uint64_t *number, bool *plain)
{
    char text[TS_NAME_ROOM];
    if (!ts_words_split(name, words))
        return false;
    ts_words_drop_wrappers(words);
    *plain = words->count == 1 && words->list[0].number;
    *number = words->list[0].value;
    if (*plain)
        return true;
    if (!ts_words_take_last_number(words, number))
        return false;
    ts_words_join(words, 0, words->count, text);
    *plain = strcmp(text, "arr") == 0;
    return *plain || ts_word_in(text, "hidden_states hidden_state all_hidden_states output_hidden_states "
                                      "outputs_hidden_states decoder_hidden_states");
}

/* The list of a side: numbers from 0 on, one tensor each, all of one size. False where there is none. */
static bool find_list(const struct ts_side *side, struct list *list)
{
    struct ts_words words;
    uint64_t number;
    size_t found = 0;
    bool plain, others = false, any_plain = false;
    list->count = 0;
    for (size_t i = 0; i < MOST; i++)
        list->of[i] = SIZE_MAX;
    for (size_t i = 0; i < side->count; i++) {
        if (!number_of(side->names[i], &words, &number, &plain)) {
            others = true;
            continue;
        }
        any_plain = any_plain || plain;
        if (number >= MOST || list->of[number] != SIZE_MAX)
            return false;
        list->of[number] = i;
        list->count = number >= list->count ? (size_t)number + 1 : list->count;
        found++;
    }
    list->plain = any_plain;
    if (list->count < LEAST || found != list->count || (any_plain && others))
        return false;
    for (size_t i = 1; i < list->count; i++)
        if (side->bundle->tensors[list->of[i]]->count != side->bundle->tensors[list->of[0]]->count)
            return false;
    return true;
}

/* What the layers of the other side make, and what stands behind its last norm. */
struct layers {
    size_t of[MOST];
    int64_t first, last;
    size_t count, norm;
};

static void find_layers(const struct ts_names *names, struct layers *layers)
{
    *layers = (struct layers){.first = INT64_MAX, .last = -1, .norm = SIZE_MAX};
    for (size_t i = 0; i < MOST; i++)
        layers->of[i] = SIZE_MAX;
    for (size_t i = 0; i < names->count; i++) {
        const struct ts_name *name = &names->list[i];
        if (name->layer < 0 && strcmp(name->kind, "output_norm") == 0)
            layers->norm = i;
        if (name->layer < 0 || name->layer >= MOST || strcmp(name->kind, "layer_out") != 0)
            continue;
        layers->first = name->layer < layers->first ? name->layer : layers->first;
        layers->last = name->layer > layers->last ? name->layer : layers->last;
        layers->count += layers->of[name->layer] == SIZE_MAX; /* an encoder and a decoder may both have it */
        layers->of[name->layer] = i;
    }
}

static enum ts_status distance(const struct ts_tensor *one, const struct ts_side *other, size_t index, double *far,
                               struct ts_error *error)
{
    struct ts_sketch left, right;
    *far = 1;
    if (index == SIZE_MAX || other->bundle->tensors[index]->count != one->count)
        return TS_OK;
    TS_TRY(ts_sketch_make(one, &left, error));
    TS_TRY(ts_sketch_make(other->bundle->tensors[index], &right, error));
    *far = ts_sketch_distance(&left, &right);
    return TS_OK;
}

static enum ts_status match_side(struct ts_pairer *pairer, struct ts_side *side, const struct ts_side *other,
                                 struct ts_error *error)
{
    const char letter = side == &pairer->b ? 'B' : 'A', against = side == &pairer->b ? 'A' : 'B';
    struct ts_names own, names;
    struct layers layers;
    struct list list;
    double to_layer;
    size_t begin;
    bool agrees;
    if (!find_list(side, &list))
        return TS_OK;
    if (!ts_names_make_apart(side->names, side->count, 0, &pairer->scratch, &own) ||
        !ts_names_make_apart(other->names, other->count, 0, &pairer->scratch, &names))
        return ts_fail_memory(error);
    for (size_t i = 0; i < side->count; i++) /* 3_x is layer 3 by itself */
        for (size_t k = 0; own.list[i].layer >= 0 && k < list.count; k++)
            if (list.of[k] == i)
                return TS_OK;
    find_layers(&names, &layers);
    if (layers.count < LEAST - 1 || layers.last - layers.first + 1 != (int64_t)layers.count ||
        (list.count != layers.count && list.count != layers.count + 1))
        return TS_OK;
    begin = list.count - layers.count;
    agrees = !list.plain;
    for (size_t i = begin; i < list.count && !agrees; i++) { /* numbers alone may be anything */
        TS_TRY(distance(side->bundle->tensors[list.of[i]], other, layers.of[layers.first + (int64_t)(i - begin)],
                        &to_layer, error));
        agrees = to_layer < SAME;
    }
    if (!agrees)
        return TS_OK;
    TS_TRY(distance(side->bundle->tensors[list.of[list.count - 1]], other, layers.of[layers.last], &to_layer, error));
    for (size_t i = 0; i < list.count; i++) {
        const bool last = begin && i + 1 == list.count && to_layer > SAME;
        const char *name =
            i < begin ? "model.embed_tokens"
            : !last   ? ts_arena_printf(&pairer->scratch, "model.layers.%" PRId64, layers.first + (int64_t)(i - begin))
            : layers.norm != SIZE_MAX ? "model.norm"
                                      : side->names[list.of[i]];
        if (!name)
            return ts_fail_memory(error);
        side->names[list.of[i]] = name;
    }
    if (!begin)
        return ts_pairer_note(pairer, error, "%s of %c is taken to be the output of the first layer of %c, and so on",
                              side->bundle->tensors[list.of[0]]->name, letter, against);
    return ts_pairer_note(pairer, error,
                          "the hidden states of %c count from the embedding: %s is compared with layer %" PRId64
                          " of %c, and so on%s",
                          letter, side->bundle->tensors[list.of[1]]->name, layers.first, against,
                          to_layer <= SAME          ? ""
                          : layers.norm == SIZE_MAX ? "; the last one comes after the last norm"
                                                    : ", and the last one with its last norm");
}

enum ts_status ts_match_hidden(struct ts_pairer *pairer, struct ts_error *error)
{
    TS_TRY(match_side(pairer, &pairer->a, &pairer->b, error));
    return match_side(pairer, &pairer->b, &pairer->a, error);
}
