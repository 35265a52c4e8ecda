/* Families: the architectures that can be run, each one file, listed once in families.c. */
#ifndef TS_MODEL_FAMILIES_H
#define TS_MODEL_FAMILIES_H

#include "model/run.h"

struct ts_model_family {
    const char *types; /* values of model_type in a config, separated by blanks */
    void (*forward)(struct ts_run *run);
};

extern const struct ts_model_family *const ts_model_families[]; /* ends with NULL */

/* The family of a model_type, or NULL. */
const struct ts_model_family *ts_model_family_of(const char *type);
/* Every type that can be run, separated by ", ". */
void ts_model_family_list(struct ts_buffer *out);

#endif
