/* Owns the reading of names: from their words to layer, part of the model, expert, sequence number, and the look-up of
 * what is left in the rows of name_rows.h. */
#include "pair/names.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "base/text.h"
#include "pair/caches.h"
#include "pair/namer.h"

/* Words in front that say whose tensors these are, or only that here comes a model. */
static bool says_nothing(const char *word)
{
    return ts_word_in(
        word, "params module model transformer language backbone base gpt neox rwkv text llm py cpp python torch "
              "pytorch hf ref reference cand candidate golden expected actual mlx jax ggml ours mine");
}

/* "self_attention_dense" -> "attn_dense", "block_sparse_moe_gate" -> "mlp_gate". */
static const char *unify(const char *text, char *out)
{
    static const char *const forms[][2] = {
        {"self_attn_", "attn_"},
        {"self_attention_", "attn_"},
        {"attn_attention_", "attn_"},
        {"attention_attention_", "attn_"},
        {"attention_", "attn_"},
        {"selfattention_", "attn_"},
        {"multi_head_attention_", "attn_"},
        {"norm_attn_norm_attn_", "attn_"},
        {"feed_forward_", "mlp_"},
        {"block_sparse_moe_", "mlp_"},
        {"ffn_", "mlp_"},
        {"moe_", "mlp_"},
        {"ff_", "mlp_"},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (ts_starts_with(text, forms[i][0]) && text[strlen(forms[i][0])]) {
            size_t head = strlen(forms[i][1]); /* never longer than what it replaces */
            memcpy(out, forms[i][1], head);
            memcpy(out + head, text + strlen(forms[i][0]), strlen(text + strlen(forms[i][0])) + 1);
            return out;
        }
    return text;
}

static bool fits(enum ts_name_only only, bool parameter)
{
    return only == TS_NAME_ANY || only == TS_NAME_BARE || (only == TS_NAME_WEIGHT) == parameter;
}

static const struct ts_row_place *look_up(const struct ts_namer *namer, const char *shelf, const char *text,
                                          bool parameter)
{
    char key[TS_NAME_ROOM];
    size_t length = strlen(text), found;
    key[0] = shelf[0];
    key[2] = ':';
    memcpy(key + 3, text, length + 1);
    for (int only = 0; only < 2; only++) {
        key[1] = only ? '*' : parameter ? 'w' : 't';
        found = ts_table_get(&namer->table, key);
        if (found != SIZE_MAX && fits(namer->places[found].row->only, parameter))
            return &namer->places[found];
    }
    return NULL;
}

/* The kind that a name has beside others of its side, or NULL. */
static const char *kind_by_habit(const struct ts_namer *namer, const char *text)
{
    for (size_t i = 0; ts_name_habits[i].name; i++)
        if (namer->habits[i] && strcmp(ts_name_habits[i].name, text) == 0)
            return ts_name_habits[i].kind;
    return NULL;
}

/* A name inside a layer, in the conventions of that part of the model first. */
const struct ts_row_place *ts_namer_layer_row(const struct ts_namer *namer, const char *scope, const char *text,
                                              bool parameter)
{
    char other[TS_NAME_ROOM];
    const char *forms[2] = {text, unify(text, other)};
    const char *own = strncmp(scope, "vision", 6) == 0 ? "V" : strncmp(scope, "audio", 5) == 0 ? "A" : NULL;
    const struct ts_row_place *found = NULL;
    const char *habit;
    if (strcmp(scope, "single") == 0 && ts_word_in(text, "linear1 linear2 proj_out proj_mlp")) {
        snprintf(other, sizeof other, "single_%s", text);
        return look_up(namer, "L", other, parameter);
    }
    if (strcmp(scope, "encoder") == 0 &&
        strcmp(text, "layer_1_layer_norm") == 0) /* T5: its second part is the network */
        return look_up(namer, "L", "ffn_norm", parameter);
    habit = kind_by_habit(namer, forms[1]);
    for (const char *shelf = "LAV"; *shelf && habit && !found; shelf++)
        found = look_up(namer, shelf, habit, parameter);
    for (int i = 0; i < 2 && !found && own; i++)
        found = look_up(namer, own, forms[i], parameter);
    for (const char *shelf = "LAV"; *shelf && !found; shelf++) {
        found = look_up(namer, shelf, forms[0], parameter);
        if (!found && forms[1] != text)
            found = look_up(namer, shelf, forms[1], parameter);
    }
    return found;
}

/* "multi_modal_projector_linear_1" -> "multi_modal_projector_linear_#". False without a number. */
static bool hide_number(const char *text, char *out)
{
    size_t end = strlen(text), start;
    while (end > 0 && !isdigit((unsigned char)text[end - 1]))
        end--;
    for (start = end; start > 0 && isdigit((unsigned char)text[start - 1]);)
        start--;
    if (start == end)
        return false;
    snprintf(out, TS_NAME_ROOM, "%.*s#%s", (int)start, text, text + end);
    return true;
}

static const struct ts_row_place *look_up_outside(const struct ts_namer *namer, const char *scope, const char *text,
                                                  bool parameter)
{
    static const char *const shelves[] = {"v", "a", "H", "T", "B"};
    char numbered_text[TS_NAME_ROOM];
    bool vision = strncmp(scope, "vision", 6) == 0, audio = strncmp(scope, "audio", 5) == 0;
    const struct ts_row_place *found = NULL;
    for (int pass = 0; pass < 2 && !found; pass++) {
        const char *habit;
        if (pass && !hide_number(text, numbered_text))
            break;
        habit = kind_by_habit(namer, pass ? numbered_text : text);
        for (size_t i = 0; i < sizeof shelves / sizeof *shelves && habit && !found; i++)
            found = look_up(namer, shelves[i], habit, parameter);
        for (size_t i = vision ? 0 : audio ? 1 : 2; i < sizeof shelves / sizeof *shelves && !found; i++)
            if (i != 1 || audio)
                found = look_up(namer, shelves[i], pass ? numbered_text : text, parameter);
    }
    return found;
}

/* A copy of a text, or the one that another name has. */
static const char *keep(const struct ts_namer *namer, const char *text)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    const char **place;
    for (const char *at = text; *at; at++)
        hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
    place = &namer->kept[(hash ^ hash >> 32) % TS_NAMER_KEPT];
    if (!*place || strcmp(*place, text) != 0)
        *place = ts_arena_string(namer->arena, text);
    return *place;
}

static bool set_kind(const struct ts_namer *namer, struct ts_name *name, const struct ts_row_place *found,
                     const char *text, const char *ending, bool exps)
{
    char kind[TS_NAME_ROOM + 64]; /* with what is added to a text */
    if (found && found->row->only == TS_NAME_BARE && !ending[0])
        ending = ".weight";
    name->known = found != NULL;
    name->weight = ending[0] != '\0';
    if (found && strchr(found->row->kind, '.'))
        ending = "";
    if (found) {
        name->place = found->place;
        name->stage = found->stage;
    }
    if (found && strchr(found->row->kind, '#')) {
        const char *hole = strchr(found->row->kind, '#'), *digits = text + strlen(text);
        while (digits > text && !isdigit((unsigned char)digits[-1]))
            digits--;
        while (digits > text && isdigit((unsigned char)digits[-1]))
            digits--;
        snprintf(kind, sizeof kind, "%.*s%.*s%s%s", (int)(hole - found->row->kind), found->row->kind,
                 (int)strspn(digits, "0123456789"), digits, hole + 1, ending);
        name->kind = keep(namer, kind);
        return name->kind != NULL;
    }
    snprintf(kind, sizeof kind, "%s%s%s", found ? found->row->kind : text, exps ? "_exps" : "", ending);
    name->kind = found && !ending[0] && !exps ? found->row->kind : keep(namer, kind);
    return name->kind != NULL;
}

/* ".weight" or ".bias" where the word says that the name is that of a parameter, in the words of any framework. */
const char *ts_namer_ending(const struct ts_words *words, unsigned last)
{
    const char *before = words->list[last - 1].text;
    bool norm = strstr(before, "norm") || ts_word_in(before, "ln");
    if (ts_words_is(words, last, "weight") || ts_words_is(words, last, "kernel") ||
        (norm && ts_word_in(words->list[last].text, "gamma scale")) ||
        (ts_words_is(words, last, "embedding") &&
         ts_word_in(before, "tokens embeddings embed embedder wte wpe positions")))
        return ".weight";
    return ts_words_is(words, last, "bias") || (norm && ts_words_is(words, last, "beta")) ? ".bias" : "";
}

/* q_proj.lora_A.weight, q_proj.lora_A.default.weight, attn_q.weight.lora_a: words [from, lora) say to what it is added.
 */
static bool find_adapter(const struct ts_namer *namer, const struct ts_words *words, unsigned from, unsigned lora,
                         bool in_layer, struct ts_name *name)
{
    char text[TS_NAME_ROOM];
    const struct ts_row_place *found;
    unsigned last = lora;
    if (last > from + 1 && ts_words_is(words, last - 1, "weight"))
        last--;
    ts_words_join(words, from, last, text);
    found =
        in_layer ? ts_namer_layer_row(namer, name->scope, text, true) : look_up_outside(namer, name->scope, text, true);
    return set_kind(namer, name, found, text, ts_words_is(words, lora + 1, "a") ? ".lora_a" : ".lora_b", false);
}

/* Words [from, last) in the rows, and *text what was looked up. Outside of layers "model." and the like may go, but
 * "transformer.norm" has its own meaning, so one at a time. */
static const struct ts_row_place *look_up_words(const struct ts_namer *namer, const struct ts_words *words,
                                                unsigned from, unsigned last, bool in_layer, const char *scope,
                                                bool parameter, char *text)
{
    const struct ts_row_place *found;
    ts_words_join(words, from, last, text);
    if (in_layer)
        return ts_namer_layer_row(namer, scope, text, parameter);
    found = look_up_outside(namer, scope, text, parameter);
    for (unsigned i = from; !found && i + 1 < last && says_nothing(words->list[i].text);) {
        i = ts_words_next(words, i + 1);
        ts_words_join(words, i, last, text);
        found = look_up_outside(namer, scope, text, parameter);
    }
    return found;
}

/* What lies beside a weight: scales of NVFP4 and FP8, limits of clipped modules. The rest must be known. */
static bool find_companion(const struct ts_namer *namer, const struct ts_words *words, unsigned from, unsigned last,
                           bool in_layer, struct ts_name *name, bool *done)
{
    static const struct {
        const char *words, *ending;
    } rows[] = {
        {"weight_scale_2", ".scale"},    {"weight_global_scale", ".scale"},
        {"qscale_act", ".input_scale"},  {"input_global_scale", ".input_scale"},
        {"input_scale", ".input_scale"}, {"scale", ".scale"},
        {"input_max", ".input_max"},     {"input_min", ".input_min"},
        {"output_max", ".output_max"},   {"output_min", ".output_min"},
    };
    *done = false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !*done; i++) {
        char text[TS_NAME_ROOM];
        const struct ts_row_place *found = NULL;
        unsigned count = 1;
        for (const char *at = rows[i].words; *at; at++)
            count += *at == '_';
        if (last <= from + count || strcmp(ts_words_join(words, last - count, last, text), rows[i].words) != 0)
            continue;
        for (unsigned end = last - count;
             end > from && !found && (end == last - count || ts_words_is(words, end, "linear")); end--) {
            found = look_up_words(namer, words, from, end, in_layer, name->scope, true, text);
        }
        *done = found != NULL;
        if (*done && !set_kind(namer, name, found, text, rows[i].ending, false))
            return false;
    }
    return true;
}

/* Finds the kind of words [from, count); with or without a layer. */
static bool find_kind(const struct ts_namer *namer, struct ts_words *words, unsigned from, bool in_layer,
                      struct ts_name *name)
{
    char text[TS_NAME_ROOM], other[TS_NAME_ROOM];
    const struct ts_row_place *found = NULL;
    const char *ending = "";
    unsigned last = words->count;
    bool exps = false;
    while (last > from && words->list[last - 1].gone)
        last--;
    for (unsigned i = from + 1; i + 1 < last; i++)
        if (ts_words_is(words, i, "lora") && ts_word_in(words->list[i + 1].text, "a b"))
            return find_adapter(namer, words, from, i, in_layer, name);
    if (last > from + 1 && (ending = ts_namer_ending(words, last - 1))[0]) {
        /* a parameter may end so without being one of a module: attention_sink_bias */
        found = look_up_words(namer, words, from, last, in_layer, name->scope, true, text);
        if (found && found->row->only == TS_NAME_BARE)
            return set_kind(namer, name, found, text, "", false);
        found = NULL;
        last--;
    }
    /* self_attn.output.1 is the second of what self_attn.1 calls so */
    if (!ending[0] && last > from + 1 && words->list[last - 1].number && !words->list[last - 1].gone &&
        ts_words_is(words, last - 2, "output"))
        words->list[last - 2].gone = true;
    /* blk.0.ffn_gate.3.weight: an expert of old GGUF files */
    if (in_layer && ending[0] && last > from + 2 && words->list[last - 1].number && ts_words_is(words, from, "ffn") &&
        ts_word_in(words->list[from + 1].text, "gate up down") && last == from + 3 &&
        words->list[last - 1].before == '.') {
        name->expert = (int64_t)words->list[last - 1].value;
        exps = true;
        last--;
    }
    for (unsigned i = from; i + 1 < last; i++)
        if (ts_word_in(words->list[i].text, "experts expert projections norms") && words->list[i + 1].number &&
            name->expert < 0) {
            name->expert =
                (int64_t)words->list[i + 1]
                    .value; /* projections: of AltUp, which llama.cpp stacks as well; norms: of StableLM, one a head */
            words->list[i + 1].gone = true;
            if (strcmp(words->list[i].text, "expert") == 0)
                words->list[i].text = "experts";
        }
    ts_words_join(words, from, last, text);
    if (in_layer && !text[0])
        return set_kind(namer, name, look_up(namer, "L", "layer_out", false), "layer_out", ending, false);
    found = look_up_words(namer, words, from, last, in_layer, name->scope, ending[0], text);
    if (!found && !ending[0] && last > from + 1 &&
        ts_word_in(words->list[last - 1].text, "output out outputs result")) {
        ts_words_join(words, from, last - 1, other);
        found = in_layer ? ts_namer_layer_row(namer, name->scope, other, false)
                         : look_up_outside(namer, name->scope, other, false);
    }
    if (!found && ending[0] && in_layer && last > from + 1 && ts_words_is(words, last - 1, "linear")) {
        ts_words_join(words, from, last - 1, other); /* q_proj.linear.weight: a module around another */
        found = ts_namer_layer_row(namer, name->scope, other, true);
    }
    if (!found && !ending[0]) {
        bool done;
        if (!find_companion(namer, words, from, last, in_layer, name, &done))
            return false;
        if (done)
            return true;
    }
    return set_kind(namer, name, found, in_layer ? unify(text, other) : text, ending, exps);
}

const char *ts_namer_tower(const struct ts_words *words, unsigned i)
{
    const char *word = words->list[i].text;
    const bool dot = i + 1 < words->count && words->list[i + 1].before == '.';
    if (ts_word_in(word, "vision visual vpm vit siglip siglip2") || (dot && strcmp(word, "v") == 0))
        return "vision";
    if (ts_word_in(word, "audio speech sound conformer speaker") || (dot && strcmp(word, "a") == 0))
        return "audio";
    return NULL;
}

/* From the words before the layer, or in front of a name without one: which tower or which half of a model. Marks the
 * words that are used up. */
static bool find_scope(const struct ts_namer *namer, struct ts_words *words, unsigned from, unsigned to, bool in_layer,
                       struct ts_name *name)
{
    char scope[TS_NAME_ROOM];
    size_t used = 0;
    bool tower = false;
    for (unsigned i = from; i < to; i++) {
        struct ts_word *word = &words->list[i];
        const char *says;
        if (word->gone || word->in_file)
            continue;
        says = ts_namer_tower(words, i);
        if (says) {
            word->gone = true;
            if (!tower)
                used = (size_t)snprintf(scope, sizeof scope, "%s", says);
            tower = true;
        } else if (tower && ts_word_in(word->text, "tower model encoder transformer")) {
            word->gone = true;
        } else if (!in_layer) {
            if (tower || !says_nothing(word->text))
                break;
        } else if (!says_nothing(word->text) && !ts_word_in(word->text, "double joint")) {
            const char *text = strcmp(word->text, "enc") == 0   ? "encoder"
                               : strcmp(word->text, "dec") == 0 ? "decoder"
                                                                : word->text;
            if (used + strlen(text) + 2 < sizeof scope)
                used += (size_t)snprintf(scope + used, sizeof scope - used, used ? "_%s" : "%s", text);
        }
    }
    scope[used] = '\0';
    for (size_t i = 0; in_layer && ts_scope_rows[i].words; i++)
        if (namer->scopes[i] && strcmp(scope, ts_scope_rows[i].words) == 0) {
            name->scope = ts_scope_rows[i].scope;
            return true;
        }
    name->scope = used ? keep(namer, scope) : "";
    return name->scope != NULL;
}

static bool keep_text(const struct ts_namer *namer, const struct ts_words *words, unsigned from, struct ts_name *name)
{
    char text[TS_NAME_ROOM];
    ts_words_join(words, from, words->count, text);
    name->text = keep(namer, text);
    return name->text != NULL;
}

int64_t ts_namer_take_rank(const struct ts_namer *namer, struct ts_words *words)
{
    int64_t rank = ts_words_take_rank(words);
    return rank < 0 && namer->folders ? ts_words_take_folder_rank(words, namer->any_word) : rank;
}

/* trunk.3.q_proj, where most names of this side say their layer so. */
static bool find_own_layer(const struct ts_namer *namer, const struct ts_words *words, unsigned *first,
                           unsigned *behind, uint64_t *layer)
{
    char own[TS_NAME_ROOM];
    return namer->own && ts_words_find_number(words, first, behind, layer, own) && strcmp(own, namer->own) == 0;
}

void ts_namer_strip(struct ts_words *words, unsigned left)
{
    for (unsigned i = 0; left && i + 1 < words->count; i++)
        if (!words->list[i].gone) {
            words->list[i].gone = true;
            left--;
        }
}

/* Takes a name apart, without what says nothing. False for one that cannot be. */
bool ts_namer_open(const struct ts_namer *namer, const char *from, struct ts_words *words, int64_t *rank,
                   int64_t *sequence)
{
    unsigned opening;
    if (!from || !ts_words_split(from, words))
        return false;
    *rank = ts_namer_take_rank(namer, words);
    ts_words_drop_wrappers(words);
    ts_namer_strip(words, namer->strip + namer->in_front);
    opening = ts_words_next(words, 0);
    if (namer->sequences && opening + 1 < words->count && words->list[opening].number) {
        *sequence = (int64_t)words->list[opening].value;
        words->list[opening].gone = true;
    }
    for (;;) { /* py_, cpp_, module. */
        opening = ts_words_next(words, 0);
        if (opening + 1 >= words->count || words->list[opening].in_file ||
            !ts_word_in(words->list[opening].text,
                        "module py cpp python torch pytorch hf ref reference cand candidate golden "
                        "expected actual mlx jax ggml ours mine"))
            break;
        words->list[opening].gone = true;
    }
    return true;
}

/* q_proj_3, q_proj_layer_3: what stands before the layer is a part of it. */
bool ts_namer_is_part(const struct ts_namer *namer, const struct ts_words *words, unsigned from, unsigned to)
{
    char text[TS_NAME_ROOM];
    from = ts_words_next(words, from);
    return from < to && ts_words_join(words, from, to, text)[0] && ts_namer_layer_row(namer, "", text, false);
}

/* A name that seems to stand in a layer, and is a row of ts_whole_rows: words [from, to) stand before the layer.
 * *found: NULL when it is none. */
static bool find_whole(const struct ts_namer *namer, struct ts_words *words, unsigned from, unsigned to,
                       struct ts_name *name, const struct ts_row_place **found)
{
    char text[TS_NAME_ROOM], numbered_text[TS_NAME_ROOM];
    const char *ending = "";
    unsigned last = words->count;
    *found = NULL;
    while (last > to && words->list[last - 1].gone)
        last--;
    if (last > to + 1 && (ending = ts_namer_ending(words, last - 1))[0])
        last--;
    for (unsigned i = from; i <= to && !*found; i = ts_words_next(words, i + 1)) {
        ts_words_join(words, i, last, text);
        *found = look_up(namer, "W", text, ending[0]);
        if (!*found && hide_number(text, numbered_text))
            *found = look_up(namer, "W", numbered_text, ending[0]);
    }
    if (!*found)
        return true;
    name->layer = -1;
    return find_scope(namer, words, from, words->count, false, name) && keep_text(namer, words, from, name) &&
           set_kind(namer, name, *found, text, ending, false);
}

/* decoder.layers.mlp.wi_0.kernel: what stands behind a word for layers that has no number is a part of all of them, if
 * it is a part of a layer at all. */
static bool find_stack(const struct ts_namer *namer, const struct ts_words *words, unsigned from, unsigned *first)
{
    char text[TS_NAME_ROOM];
    unsigned last = words->count;
    bool parameter;
    while (last > from && words->list[last - 1].gone)
        last--;
    parameter = last > from + 1 && ts_namer_ending(words, last - 1)[0];
    for (unsigned i = from; i + 1 < last; i++)
        if (ts_word_in(words->list[i].text, "layers blocks h") && !words->list[i + 1].number &&
            ts_words_join(words, i + 1, last - parameter, text)[0] && ts_namer_layer_row(namer, "", text, parameter)) {
            *first = i;
            return true;
        }
    return false;
}

static bool read_name(const struct ts_namer *namer, const char *from, struct ts_words *words, struct ts_name *name)
{
    unsigned first = 0, behind = 0, opening, file_end = 0, last;
    uint64_t layer;
    bool in_layer = false;
    const char *cache;
    *name = (struct ts_name){"", "", "", "", -1, -1, -1, -1, UINT32_MAX, TS_STAGE_UNKNOWN, false, false, false};
    if (!ts_namer_open(namer, from, words, &name->rank, &name->sequence)) {
        name->kind = name->text = from ? from : "";
        return true;
    }
    opening = ts_words_next(words, 0);
    cache = ts_cache_kind(from, &name->layer);
    if (cache) {
        name->stage = TS_STAGE_LAYERS;
        name->stacked = name->layer < 0;
        return keep_text(namer, words, opening, name) &&
               set_kind(namer, name, look_up(namer, "L", cache, false), cache, "", false);
    }
    if (namer->trailing && ts_words_take_last_number(words, &layer)) {
        in_layer = true;
        name->layer = (int64_t)layer;
        first = behind = opening;
    } else if (ts_words_is(words, opening, "layer") && opening + 2 < words->count && !words->list[opening + 2].number &&
               (ts_words_is(words, opening + 1, "input") || ts_words_is(words, opening + 1, "output")))
        words->list[opening].gone = words->list[opening + 1].gone = true; /* layer_input_input_ids: no layer at all */
    if (!in_layer) {
        in_layer = ts_words_find_layer(words, namer->sequences, &first, &behind, &layer) ||
                   find_own_layer(namer, words, &first, &behind, &layer);
        name->layer = in_layer ? (int64_t)layer : -1;
        for (last = words->count; last > 0 && words->list[last - 1].gone;)
            last--;
        if (in_layer && first < behind && behind >= last && ts_namer_is_part(namer, words, opening, first)) {
            for (unsigned i = first; i < behind; i++)
                words->list[i].gone = true;
            first = behind = opening;
        }
    }
    if (in_layer && first == behind && !namer->trailing) /* the number stands inside or at the end */
        for (unsigned i = words->count; i-- > first;)
            if (words->list[i].number && words->list[i].value == layer) {
                words->list[i].gone = true;
                break;
            }
    while (file_end < words->count && words->list[file_end].in_file)
        file_end++;
    if (in_layer && first < file_end) {
        file_end = 0; /* layer_3.pt holding "q": the file says the layer */
        for (unsigned i = 0; i < words->count; i++)
            words->list[i].in_file = false;
    }
    if (file_end) {
        char group[TS_NAME_ROOM];
        name->group = keep(namer, ts_words_join(words, 0, file_end, group));
        if (!name->group)
            return false;
    }
    if (in_layer && first < behind) {
        const struct ts_row_place *whole;
        bool done = find_whole(namer, words, ts_words_next(words, file_end), first, name, &whole);
        if (!done || whole)
            return done;
    }
    if (!in_layer && find_stack(namer, words, ts_words_next(words, file_end), &first)) {
        in_layer = name->stacked = true;
        behind = first + 1;
    }
    if (!in_layer) {
        opening = ts_words_next(words, file_end);
        if (!find_scope(namer, words, opening, words->count, false, name))
            return false;
        opening = ts_words_next(words, opening);
        return keep_text(namer, words, opening, name) && find_kind(namer, words, opening, false, name);
    }
    if (first == behind)
        behind = ts_words_next(words, file_end > first ? file_end : first);
    else if (!find_scope(namer, words, file_end, first, true, name))
        return false;
    behind = ts_words_next(words, behind);
    name->stage = TS_STAGE_LAYERS;
    return keep_text(namer, words, behind, name) && find_kind(namer, words, behind, true, name);
}

static bool add_rows(struct ts_namer *namer, const char *shelf, const struct ts_name_row *rows,
                     enum ts_name_stage stage)
{
    for (uint32_t i = 0; rows[i].kind; i++) {
        const struct ts_name_row *row = &rows[i];
        struct ts_row_place place = {row, stage, i};
        char kinds = row->only == TS_NAME_WEIGHT ? 'w' : row->only == TS_NAME_TRACE ? 't' : '*';
        const char *at = row->names;
        char *key = ts_arena_printf(namer->arena, "L*:%s", row->kind);
        size_t known = key ? ts_table_get(&namer->table, key) : SIZE_MAX;
        if (!key || namer->place_count == namer->place_room)
            return false;
        if (stage == TS_STAGE_LAYERS && known != SIZE_MAX)
            place.place = namer->places[known].place; /* said already, or known from text models */
        namer->places[namer->place_count] = place;
        for (bool itself = true; itself || *at; itself = false) {
            size_t length = itself ? strlen(row->kind) : strcspn(at, " ");
            key = ts_arena_printf(namer->arena, "%s%c:%.*s", shelf, kinds, (int)length, itself ? row->kind : at);
            if (!key)
                return false;
            ts_table_put(&namer->table, key, namer->place_count, NULL);
            if (!itself)
                at += length;
            while (!itself && *at == ' ')
                at++;
        }
        namer->place_count++;
    }
    return true;
}

static void count_rows(const struct ts_name_row *rows, size_t *row_count, size_t *name_count)
{
    for (; rows->kind; rows++) {
        ++*row_count;
        *name_count += 2;
        for (const char *at = rows->names; *at; at++)
            *name_count += *at == ' ';
    }
}

static bool open_namer(struct ts_namer *namer)
{
    static const struct {
        const char *shelf;
        const struct ts_name_row *rows;
        enum ts_name_stage stage;
    } shelves[] = {
        {"L", ts_layer_rows, TS_STAGE_LAYERS},       {"V", ts_vision_layer_rows, TS_STAGE_LAYERS},
        {"A", ts_audio_layer_rows, TS_STAGE_LAYERS}, {"H", ts_head_rows, TS_STAGE_HEAD},
        {"T", ts_tail_rows, TS_STAGE_TAIL},          {"v", ts_vision_rows, TS_STAGE_HEAD},
        {"a", ts_audio_rows, TS_STAGE_HEAD},         {"B", ts_bridge_rows, TS_STAGE_HEAD},
        {"W", ts_whole_rows, TS_STAGE_HEAD},
    };
    size_t names = 0;
    for (size_t i = 0; i < sizeof shelves / sizeof *shelves; i++)
        count_rows(shelves[i].rows, &namer->place_room, &names);
    namer->places = ts_arena_array(namer->arena, namer->place_room, sizeof *namer->places);
    if (!namer->places || !ts_table_init(&namer->table, names))
        return false;
    for (size_t i = 0; i < sizeof shelves / sizeof *shelves; i++)
        if (!add_rows(namer, shelves[i].shelf, shelves[i].rows, shelves[i].stage))
            return false;
    return true;
}

/* Where only the order of numbers means something, layers are counted from 0. */
static void count_layers(struct ts_name *list, size_t count, const struct ts_scope_row *row)
{
    for (int64_t next = 0, least; next < 64; next++) { /* no model has more, and what is above keeps its order */
        least = INT64_MAX;
        for (size_t i = 0; i < count; i++)
            if (strcmp(list[i].scope, row->scope) == 0 && list[i].layer >= next && list[i].layer < least)
                least = list[i].layer;
        if (least == INT64_MAX)
            return;
        for (size_t i = 0; i < count; i++)
            if (strcmp(list[i].scope, row->scope) == 0 && list[i].layer == least)
                list[i].layer = next;
    }
}

/* Leaves out what all names end in. */
static bool cut_names(const char *const **names, size_t count, struct ts_words *words, struct ts_arena *arena)
{
    const size_t length = ts_namer_same_ending(*names, count, words);
    const char **list = length ? ts_arena_array(arena, count, sizeof *list) : NULL;
    for (size_t i = 0; list && i < count; i++) {
        list[i] = ts_arena_copy(arena, (*names)[i], strlen((*names)[i]) - length);
        if (!list[i])
            return false;
    }
    *names = list ? list : *names;
    return list || !length;
}

static bool make(const char *const *names, size_t count, unsigned strip, bool folders, struct ts_arena *arena,
                 struct ts_names *out)
{
    const char **kept = calloc(TS_NAMER_KEPT, sizeof *kept);
    struct ts_namer namer = {.arena = arena, .kept = kept, .strip = strip};
    struct ts_words *words = calloc(2, sizeof *words);
    bool done;
    *out = (struct ts_names){.count = count};
    out->list = ts_arena_array(arena, count, sizeof *out->list);
    done = words && kept && out->list && cut_names(&names, count, words, arena) && open_namer(&namer) &&
           ts_namer_find_habits(&namer, names, count, folders, words, &out->common);
    if (done) {
        out->sequences = namer.sequences;
        out->folders = namer.folders;
    }
    for (size_t i = 0; i < count && done; i++)
        done = read_name(&namer, names[i], words, &out->list[i]);
    for (size_t i = 0; done && ts_scope_rows[i].scope; i++)
        if (ts_scope_rows[i].counted)
            count_layers(out->list, count, &ts_scope_rows[i]);
    ts_table_release(&namer.table);
    free(words);
    free(kept);
    return done;
}

bool ts_names_make(const char *const *names, size_t count, unsigned strip, struct ts_arena *arena, struct ts_names *out)
{
    return make(names, count, strip, true, arena, out);
}

bool ts_names_make_apart(const char *const *names, size_t count, unsigned strip, struct ts_arena *arena,
                         struct ts_names *out)
{
    return make(names, count, strip, false, arena, out);
}

const char *ts_kind_ending(const char *kind)
{
    const char *dot = strrchr(kind, '.');
    return dot && (strcmp(dot, ".weight") == 0 || strcmp(dot, ".bias") == 0) ? dot : kind + strlen(kind);
}
