/* Weights: a checkpoint by the names that transformers gives its parameters, each a view that is decoded when it is
 * used.
 *
 * Whoever runs a model takes every parameter it needs; what is missing, of another shape or left over is listed for the
 * strict loading that follows the plan. */
#ifndef TS_MODEL_WEIGHTS_H
#define TS_MODEL_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/table.h"
#include "tensor/bundle.h"
#include "tensor/view.h"

struct ts_model_weight {
    const char *name;
    struct ts_view view;
    bool used, ignored;
};

struct ts_model_weights {
    struct ts_arena arena;
    struct ts_model_weight *list;
    size_t count, capacity;
    struct ts_table names;
    const char *prefix;              /* what the file writes for "model.", or NULL when it writes just that */
    struct ts_buffer missing, wrong; /* lines: a name each */
    size_t missing_count, wrong_count;
};

/* Every tensor of the bundle under its own name. The bundle must outlive the weights. */
enum ts_status ts_model_weights_init(struct ts_model_weights *weights, const struct ts_bundle *bundle,
                                     struct ts_error *error);
void ts_model_weights_release(struct ts_model_weights *weights);
/* For other sources: empty, with room for so many; then add them. The first of two with one name stands. */
enum ts_status ts_model_weights_begin(struct ts_model_weights *weights, size_t room, struct ts_error *error);
void ts_model_weights_add(struct ts_model_weights *weights, const char *name,
                          const struct ts_view *view); /* name is kept */

/* Forgets what was noted as missing or misshapen: for another plan. */
void ts_model_weights_restart(struct ts_model_weights *weights);
/* The parameter, marked as used, or NULL. */
struct ts_model_weight *ts_model_weights_find(struct ts_model_weights *weights, const char *name);
/* The same with a shape; when it is missing or of another shape that is noted for ts_model_weights_check. */
const struct ts_view *ts_model_weights_need(struct ts_model_weights *weights, const char *name, unsigned rank,
                                            const uint64_t *shape);
/* Parameters that may be left over: names that contain the text. */
void ts_model_weights_ignore(struct ts_model_weights *weights, const char *text);
/* After a plan: an error that names what is missing, of another shape, and (unless allowed) left over. */
enum ts_status ts_model_weights_check(const struct ts_model_weights *weights, bool allow_unused,
                                      struct ts_error *error);
/* All that stands in the way, one line each, for showing; "" when nothing does. */
void ts_model_weights_list(const struct ts_model_weights *weights, bool allow_unused, struct ts_buffer *out);

#endif
