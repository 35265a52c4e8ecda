/* Settings: what a model's configuration says that a diagnosis can use. From a config.json (nested text_config and
 * rope_parameters count as well) or from the metadata of a GGUF file. Nothing in it is trusted: numbers that are no
 * sizes or do not fit the tensors are not used. */
#ifndef TS_DIAGNOSE_SETTINGS_H
#define TS_DIAGNOSE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "io/source.h"
#include "tensor/bundle.h"

enum ts_settings_key {
    TS_SETTING_HEADS,
    TS_SETTING_KV_HEADS,
    TS_SETTING_HEAD_DIM,
    TS_SETTING_HIDDEN,
    TS_SETTING_THETA,
    TS_SETTING_LOCAL_THETA,
    TS_SETTING_PARTIAL_ROTARY,
    TS_SETTING_EPSILON,
    TS_SETTING_WINDOW,
    TS_SETTING_SCORE_CAP,
    TS_SETTING_LOGIT_CAP,
    TS_SETTING_EXPERTS,
    TS_SETTING_EXPERTS_USED,
    TS_SETTING_RENORMALIZED, /* norm_topk_prob: 1 or 0 */
    TS_SETTING_ROUTED_SCALE,
    TS_SETTING_QUERY_SCALAR,
    TS_SETTING_EMBEDDING_SCALE,
    TS_SETTING_RESIDUAL_SCALE,
    TS_SETTING_ATTENTION_SCALE,
    TS_SETTING_LOGITS_SCALE,
    TS_SETTING_INITIAL_STD,
    TS_SETTING_COUNT
};

struct ts_settings {
    bool known;                        /* there is one */
    char source[128];                  /* "config.json", "the GGUF file's metadata" */
    double values[TS_SETTING_COUNT];   /* NaN where it says nothing */
    char names[TS_SETTING_COUNT][160]; /* the key as it stands there */
    char activation[32];               /* hidden_act; "" */
    char activation_name[48];          /* the key */
    char scoring[32];                  /* scoring_func of a router; "" */
};

/* Everything unknown. */
void ts_settings_clear(struct ts_settings *config);
/* From JSON; an error names the byte. */
enum ts_status ts_settings_read(struct ts_settings *config, const struct ts_source *source, struct ts_error *error);
/* From a bundle: its config.json when it has one, else GGUF metadata. Leaves `config` alone when there is neither. */
void ts_settings_of_bundle(struct ts_settings *config, const struct ts_bundle *bundle);

/* The number, or 0 when it is unknown, not a whole number, or not positive. */
size_t ts_settings_size(const struct ts_settings *config, enum ts_settings_key key);

#endif
