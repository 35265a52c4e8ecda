/* Names: what a tensor's name says in any convention.
 *
 * "model.layers.3.self_attn.q_proj.weight", "blk.3.attn_q.weight", "layers.3.attention.wq.weight" are layer 3,
 * "attn_q.weight"; "3_query", "py_layer_3_attn_q_proj_raw", "model.layers.3.self_attn.q_proj" are layer 3, "attn_q":
 * the output of that projection. Words that wrap a model (module., _orig_mod., py_, .pth) say nothing and are left out;
 * words that no table knows stay, in lower case with one kind of separator, so that "layer_3.foo_bar" meets
 * "model.layers.3.foo.bar". */
#ifndef TS_PAIR_NAMES_H
#define TS_PAIR_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

enum ts_name_stage { TS_STAGE_HEAD, TS_STAGE_LAYERS, TS_STAGE_TAIL, TS_STAGE_UNKNOWN };

struct ts_name {
    const char *text;  /* the words behind the layer as they stand: "self_attn_q_proj_weight" */
    const char *kind;  /* what it is: "attn_q.weight"; the words where no table knows them */
    const char *scope; /* which part of a model, from the words before the layer: "vision", "decoder"; "" */
    const char *group; /* the words of the file in "file:name"; "" */
    int64_t layer, expert, rank, sequence; /* -1: none; rank of a tensor-parallel run, sequence number of a dump */
    uint32_t place;                        /* of the kind within its stage; UINT32_MAX when unknown */
    enum ts_name_stage stage;
    bool known;   /* kind is from a table */
    bool weight;  /* a parameter, not something computed */
    bool stacked; /* of all layers in one: decoder.layers.mlp.wi_0.kernel, key_cache; layer is -1 then */
};

struct ts_names {
    struct ts_name *list;
    size_t count;
    bool sequences;  /* the numbers in front of the names count the dumps, not the layers */
    unsigned common; /* words that every name begins with */
    bool folders;    /* ranks are numbers of folders or files that need not mean ranks: model_0, part1 */
};

/* names[i] in the order of a bundle; NULLs give empty names. strip: words left out in front of each, up to `common` of
 * an earlier call. False without memory. */
bool ts_names_make(const char *const *names, size_t count, unsigned strip, struct ts_arena *arena,
                   struct ts_names *out);

/* The same, folders and files being no ranks. */
bool ts_names_make_apart(const char *const *names, size_t count, unsigned strip, struct ts_arena *arena,
                         struct ts_names *out);

/* The kind of one of q, k, v, gate or up without its ".weight" or ".bias", and that ending. */
const char *ts_kind_ending(const char *kind);

#endif
