/* Dump tags: folders whose files say in their names what they hold, "step=0___rank=0___dump_index=7___name=q.pt", as
 * SGLang's dumper writes them, in every version of it. Open asks here how to name and to order what it read. */
#ifndef TS_READ_DUMP_TAGS_H
#define TS_READ_DUMP_TAGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "tensor/bundle.h"

struct ts_tags {
    const char *folder; /* of the file, from `common` on, with its last slash */
    size_t folder_size;
    const char *name;
    size_t name_size;
    const char *layer; /* as written; NULL when the file does not say */
    size_t layer_size;
    const char *rest; /* the whole list of tags, for those that are not known here */
    size_t rest_size;
    uint64_t step, rank, index;
};

/* What the files of one input have between them: a step or a rank that is the same in all names is left out of them. */
struct ts_tags_survey {
    bool any, many_steps, many_ranks;
    uint64_t step, rank;
};

/* False for a path that is not named so. common: bytes of the path that all files share. */
bool ts_tags_read(const char *path, size_t common, struct ts_tags *tags);
void ts_tags_look(struct ts_tags_survey *survey, const char *path);

/* The name of the tensor that was called `inner` in the file. *drop: it is no tensor but what the dumper says about
 * one. NULL without memory. */
char *ts_tags_name(const struct ts_tags_survey *survey, const struct ts_tags *tags, const char *inner,
                   struct ts_arena *arena, bool *drop);

/* Puts the tensors of tagged files into the order they were dumped in, numbers the repeated ones, and turns what the
 * dumper wrote beside them into attributes. Tensors named "" are taken out. */
enum ts_status ts_tags_arrange(struct ts_bundle *bundle, struct ts_error *error);

/* Where every name ends in "-step3", as those of TensorRT-LLM's debug mode do: steps in order, and the step in front of
 * the names, or left out when there is but one. */
enum ts_status ts_tags_steps(struct ts_bundle *bundle, struct ts_error *error);

#endif
