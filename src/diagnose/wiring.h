/* What the files of the wiring family share. Internal to src/diagnose. */
#ifndef TS_DIAGNOSE_WIRING_H
#define TS_DIAGNOSE_WIRING_H

#include "diagnose/families.h"
#include "diagnose/formula.h"

/* Terms of sums: missing, doubled, subtracted, from elsewhere; also where the sum itself was not captured. */
void ts_wiring_sums(struct ts_case *the_case);
/* A stream that goes on from a tensor far back. */
void ts_wiring_far(struct ts_case *the_case);
/* What can be said about a weight that nobody has seen: transposed, a column or a number of it wrong, applied to
 * another tensor. */
void ts_wiring_weights(struct ts_case *the_case);
/* Parts of a wider tensor (a fused projection) cut out at other places. */
void ts_wiring_slices(struct ts_case *the_case);

/* The actor so many pairs before, NULL when there is none. */
static inline const struct ts_actor *ts_earlier(const struct ts_case *the_case, size_t back)
{
    return back <= the_case->actor->pair && back < TS_SCENE_WINDOW
               ? ts_scene_actor(the_case->scene, the_case->actor->pair - back)
               : NULL;
}

static inline bool ts_same_size(const struct ts_case *the_case, const struct ts_actor *other)
{
    return other && other->rows == the_case->actor->rows && other->width == the_case->actor->width;
}

static inline bool ts_is_input(const struct ts_case *the_case, size_t pair)
{
    for (unsigned i = 0; i < the_case->operation.input_count; i++)
        if (the_case->operation.inputs[i] == pair)
            return true;
    return false;
}

#endif
