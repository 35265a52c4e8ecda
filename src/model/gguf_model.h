/* GGUF models: the settings and weights of a GGUF file as transformers would have them, so that the same families run
 * them.
 *
 * llama.cpp keeps a model under names of its own, with some weights in another layout: rows of q and k in pairs, norms
 * as 1 + w, experts stacked, products turned round. What the format does not keep (windows of Qwen 2, the scale of
 * attention in Gemma) is taken from what llama.cpp does with such a file. */
#ifndef TS_MODEL_GGUF_MODEL_H
#define TS_MODEL_GGUF_MODEL_H

#include <stdbool.h>

#include "base/error.h"
#include "model/config.h"
#include "model/weights.h"
#include "tensor/bundle.h"

enum {
    TS_GGUF_PLAIN = 0,
    TS_GGUF_BARE = 1,   /* without ".weight" behind it; its bias is name_bias */
    TS_GGUF_TURNED = 2, /* transformers keeps the weight [in, out] */
    TS_GGUF_SPREAD = 4  /* the first axis is a list of parameters: name.0.weight, name.1.weight */
};

struct ts_gguf_row {
    const char *kind; /* llama.cpp's word, between "blk.N." and ".weight" */
    const char *name; /* what transformers calls it below the layer */
    unsigned how;     /* of these */
};

struct ts_gguf_architecture {
    const char *name;                     /* general.architecture */
    const char *type;                     /* model_type; llama may be another one still, see ts_gguf_settings */
    const char *function;                 /* of the MLP */
    size_t period;                        /* of so many layers all but the last have a window; 0: none has */
    bool pairs;                           /* rows of q and k stand in pairs that turn together */
    bool shifted;                         /* norms are stored as 1 + w */
    bool renormalise;                     /* the weights of the chosen experts add up to one */
    const char *layers;                   /* what stands in front of a layer's number */
    const struct ts_gguf_row *rows;       /* of a layer, before the common ones; ends with a NULL kind */
    const struct ts_gguf_row *model_rows; /* outside of layers, before the common ones */
};

/* Whether the bundle is a GGUF file, so that no config.json is needed. */
bool ts_gguf_is_model(const struct ts_bundle *bundle);
/* The architecture of the file; one that cannot be run is an error that lists those that can. */
enum ts_status ts_gguf_architecture(const struct ts_bundle *bundle, const struct ts_gguf_architecture **architecture,
                                    struct ts_error *error);
/* The file's keys as a config. */
enum ts_status ts_gguf_settings(const struct ts_bundle *bundle, const struct ts_gguf_architecture *architecture,
                                struct ts_model_config *config, struct ts_error *error);
/* The file's tensors under the names of transformers, each seen as transformers has it. What has no name there keeps
 * its own, and is then left over. */
enum ts_status ts_gguf_weights(const struct ts_bundle *bundle, const struct ts_gguf_architecture *architecture,
                               const struct ts_model_config *config, struct ts_model_weights *weights,
                               struct ts_error *error);

/* The list of architectures; ends with a NULL name. */
extern const struct ts_gguf_architecture ts_gguf_architectures[];
/* Rows that all architectures share. */
extern const struct ts_gguf_row ts_gguf_layer_rows[], ts_gguf_model_rows[];

#endif
