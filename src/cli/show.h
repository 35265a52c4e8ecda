/* Show: the view that `tsleuth show` prints as text or JSON. */
#ifndef TS_CLI_SHOW_H
#define TS_CLI_SHOW_H

#include <stdbool.h>

#include "tensor/slice.h"
#include "tensor/tensor.h"

struct view {
    const struct ts_tensor *tensor;
    struct ts_slice slice;
    int precision; /* significant digits, 0 for all */
    bool bits, all;
};

bool show_text(const struct view *view);
bool show_json(const struct view *view, const char *path);

#endif
