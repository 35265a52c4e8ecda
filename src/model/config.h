/* Config: what a model's config.json says, flat.
 *
 * Nested keys are joined by points and list entries by their index: "rope_parameters.rope_theta", "layer_types.0". null
 * counts as absent, and two equal keys with different values are an error. A multimodal model keeps its language model
 * under "text_config": lookups go there first. */
#ifndef TS_MODEL_CONFIG_H
#define TS_MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/table.h"

struct ts_model_config {
    struct ts_arena arena;
    struct ts_table names; /* key -> index of value */
    const char **values;   /* as text: numbers as written, "true", "false"; NULL for a list or an object */
    const char **keys;
    size_t count;
    const char *prefix; /* "text_config." or "" */
};

enum ts_status ts_model_config_parse(const void *text, size_t size, struct ts_model_config *config,
                                     struct ts_error *error);
/* For other sources than JSON, such as GGUF: empty, with room for so many keys; then put them in. */
bool ts_model_config_init(struct ts_model_config *config, size_t room);
bool ts_model_config_put(struct ts_model_config *config, const char *key, const char *value); /* both are copied */
void ts_model_config_release(struct ts_model_config *config);

/* The value, or NULL. */
const char *ts_model_config_text(const struct ts_model_config *config, const char *key);
/* Whether the key has a list or an object. */
bool ts_model_config_has_parts(const struct ts_model_config *config, const char *key);
/* The number, or `otherwise` where it is absent or not a number. */
double ts_model_config_number(const struct ts_model_config *config, const char *key, double otherwise);

#endif
