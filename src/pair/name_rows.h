/* Name rows: what the parts of a model are called in which convention. Data for names.c.
 *
 * A row gives one kind and everything it is called, words joined by '_', in lower case. The kind is llama.cpp's name
 * where it has one. Names of modules serve weights ("self_attn.q_proj.weight") and traces of their outputs
 * ("self_attn.q_proj") alike. Leading words for attention (self_attn, self_attention, attention ...) are written
 * "attn_", those for the feed-forward network (feed_forward, ffn, block_sparse_moe, moe) "mlp_"; a name that is written
 * out in full goes before.
 *
 * Rows stand in the order of a forward pass, which is where execution order comes from when a file does not tell. */
#ifndef TS_PAIR_NAME_ROWS_H
#define TS_PAIR_NAME_ROWS_H

#include <stdbool.h>

enum ts_name_only {
    TS_NAME_ANY,
    TS_NAME_WEIGHT, /* only with .weight or .bias behind */
    TS_NAME_TRACE,  /* only without */
    TS_NAME_BARE    /* a parameter that is written without .weight; a kind with an ending of its own keeps that */
};

struct ts_name_row {
    const char *kind, *names;
    enum ts_name_only only;
};

/* Inside a layer; then inside a layer of a vision or audio tower, before the others; all end with a NULL kind. */
extern const struct ts_name_row ts_layer_rows[];
extern const struct ts_name_row ts_vision_layer_rows[];
extern const struct ts_name_row ts_audio_layer_rows[];

/* Outside of layers: before the first one and behind the last one. */
extern const struct ts_name_row ts_head_rows[];
extern const struct ts_name_row ts_tail_rows[];
extern const struct ts_name_row ts_bridge_rows[];
extern const struct ts_name_row ts_vision_rows[];
extern const struct ts_name_row ts_audio_rows[];

/* Names that a layer seems to stand in, "subsampling.layers.0", but which are counted otherwise; from any word on that
 * stands before the layer. */
extern const struct ts_name_row ts_whole_rows[];

/* Where some name of a side has the witness in it (all of them, separated by blanks), `name` means that kind. */
struct ts_name_habit {
    const char *witness, *name, *kind;
};
extern const struct ts_name_habit ts_name_habits[];

/* What the words before a layer say, and which part of a model that is in the words of others. An empty witness is
 * always there. counted: some count from 0 there and others do not, so that only the order of numbers means something.
 */
struct ts_scope_row {
    const char *witness, *words, *scope;
    bool counted;
};
extern const struct ts_scope_row ts_scope_rows[];
#define TS_NAME_HABITS 32 /* room for all of either */

/* Kinds that are one tensor in some models and two in others, or that a name does not tell apart: tried, and proved by
 * content, when nothing else pairs them; where that holds in one layer it holds in all. The first TS_KIND_PAIRS_SURE
 * need no proof: a run has one of them, and a side that has only the other means the same. Ends with NULL. */
extern const char *const ts_kind_pairs[][2];
#define TS_KIND_PAIRS      96 /* room for all */
#define TS_KIND_PAIRS_SURE 35

#endif
