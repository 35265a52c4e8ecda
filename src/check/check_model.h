/* One checkpoint that is compared with its config.json. Shared by check_model.c and check_extra.c. */
#ifndef TS_CHECK_CHECK_MODEL_H
#define TS_CHECK_CHECK_MODEL_H

#include "base/table.h"
#include "check/check_internal.h"

struct ts_model {
    struct ts_checking *checking;
    const struct ts_promise *promise;
    const struct ts_check_group *group;
    size_t number;         /* of the group */
    struct ts_table names; /* leaf -> tensor */
    struct ts_table lost;  /* names that could not be read, which is told already */
    bool *expected;        /* per tensor */
    const char *prefix;
    bool skip_experts; /* they are stored in a layout that is not described here */
    uint64_t *bare;    /* layers of which nothing is there, ascending */
    size_t bare_count;
};

/* Appends "layers.{3..5}", with everything that stands before it. */
void ts_model_put_layers(const struct ts_model *model, const uint64_t *layers, size_t count, struct ts_buffer *out);

/* Weights that are there and that the config does not promise: those not marked in `expected`. */
void ts_model_tell_extra(struct ts_model *model);

#endif
