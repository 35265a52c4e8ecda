/* Glance: which tokens of a long sequence a case looks at. Internal to src/diagnose.
 *
 * A case holds some tokens only. Which ones is decided by a pass over every element: where the error begins, where it
 * is worst, where it ends, and a spread of those that err and of those that do not. What is said about tokens then
 * holds for all of them. */
#ifndef TS_DIAGNOSE_GLANCE_H
#define TS_DIAGNOSE_GLANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compare/delta.h"
#include "compare/scene.h"

struct ts_glance {
    uint64_t tokens; /* 0: nothing was measured */
    double *error;   /* per token: error energy; infinite where one side only is finite */
    double *size;    /* energy of the reference */
    bool *errs;      /* stands out from the calmest tokens */
    uint64_t erring; /* how many do */
    uint64_t first;  /* the first that does; `tokens` when none does */
    uint64_t last;
    uint64_t runs; /* stretches of them */
};

/* Measures pair `index`, every element of it, in pieces. Leaves glance->tokens at 0 when the pair has no tokens, has
 * too many, or cannot be read. */
void ts_glance_measure(struct ts_glance *glance, const struct ts_scene *scene, size_t index);
void ts_glance_release(struct ts_glance *glance);
/* Lets the scene, which has loaded nothing yet, take `wanted` tokens, at most as many as it has room for. */
void ts_glance_take(const struct ts_glance *glance, struct ts_scene *scene, const struct ts_delta *delta, size_t index,
                    size_t wanted);

#endif
