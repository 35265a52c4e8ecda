/* Call names: what a tensor that a tool caught at the call of a module is named here, whichever tool it was.
 *
 * The output of a module has the module's path ("model.layers.0.self_attn.q_proj"), a further one "PATH.output.1", the
 * input "PATH.input", a further one "PATH.input.1", or by its keyword "PATH.input.hidden_states". The second call of a
 * module adds "#2". So dumps of different tools meet by name. */
#ifndef TS_READ_CALL_NAME_H
#define TS_READ_CALL_NAME_H

#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"
#include "tensor/bundle.h"

enum ts_call_role { TS_CALL_OUTPUT, TS_CALL_INPUT };

/* index: which of the inputs or outputs, "0", "1.2", "hidden_states", or "". path may be "": the model itself. NULL
 * without memory. */
char *ts_call_name(struct ts_arena *arena, const char *path, enum ts_call_role role, const char *index);

/* Marks the second and further tensors of one name, from index start on, with #2, #3 ... in the order they stand. */
enum ts_status ts_call_number(struct ts_bundle *bundle, size_t start, struct ts_error *error);

/* The tensors [start, count) came out of one file that stands for one tensor: it gets the name, or, where the file held
 * several, each the name with its own behind. NULL file leaves theirs. */
enum ts_status ts_call_rename(struct ts_bundle *bundle, size_t start, const char *name, const char *file,
                              struct ts_error *error);

#endif
