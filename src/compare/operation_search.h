/* Search: what the steps of learning an operation share. For operation*.c only.
 *
 * Nearly every candidate is wrong, so a candidate first has to give a few elements of the reference, the probes; it is
 * dropped at the first ones that stray too far. Only what fits there is tried on everything. */
#ifndef TS_COMPARE_OPERATION_SEARCH_H
#define TS_COMPARE_OPERATION_SEARCH_H

#include "compare/operation.h"

#define TS_SEARCH_INPUTS 24 /* earlier tensors of the right size that are considered */
#define TS_SEARCH_PROBES 64

struct ts_search {
    struct ts_scene *scene;
    const struct ts_actor *actor;
    size_t total;
    double tolerance;
    const struct ts_actor *same[TS_SEARCH_INPUTS]; /* newest first: as many rows and numbers as the actor */
    size_t same_count;
    const struct ts_actor *all[TS_SCENE_WINDOW]; /* newest first: every usable earlier one */
    size_t all_count;
    size_t probes[TS_SEARCH_PROBES]; /* elements looked at first, none of them masked */
    double wanted[TS_SEARCH_PROBES]; /* what the reference has there */
    size_t probe_count;
    double allowed;       /* square of the error that the probes may have in all */
    size_t stride, place; /* of the inputs, where they are parts of what stands in the scene; else 0 */
    struct ts_operation best;
};

/* Adds what a candidate's value at one probe is off by; true when the probes as a whole cannot fit any more. */
static inline bool ts_search_strays(const struct ts_search *search, size_t probe, double value, double *error)
{
    *error += (value - search->wanted[probe]) * (value - search->wanted[probe]);
    return !(*error <= search->allowed);
}

/* Scores have a number for each key. Elsewhere numbers as low are ordinary ones: streams of pictures have such. */
static inline bool ts_may_be_masked(const struct ts_actor *actor)
{
    return actor->heads > 1 ? actor->inner >= actor->sequence : actor->inner == actor->sequence;
}

/* Four sums, so that no addition waits for the one before. */
static inline double ts_dot(const double *x, const double *y, size_t count)
{
    double sums[4] = {0, 0, 0, 0};
    size_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (size_t k = 0; k < 4; k++)
            sums[k] += x[i + k] * y[i + k];
    for (; i < count; i++)
        sums[0] += x[i] * y[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* Applies a candidate to the reference's own inputs and keeps it when it is the best so far. Takes the table over. */
bool ts_search_consider(struct ts_search *search, struct ts_operation *candidate);

void ts_learn_norms(struct ts_search *search);
void ts_learn_rotary(struct ts_search *search);
void ts_learn_topk(struct ts_search *search);
void ts_learn_scores(struct ts_search *search);
void ts_learn_capped_scores(struct ts_search *search); /* those that are no soft cap of captured ones */
void ts_learn_softmax(struct ts_search *search);
void ts_learn_context(struct ts_search *search);
void ts_learn_attention(struct ts_search *search);
/* Norms, rotations and contexts of what is a part of an earlier tensor: a latent beside keys, values beside keys. */
void ts_learn_parts(struct ts_search *search);
/* Rotations alone. */
void ts_learn_parts_that_turn(struct ts_search *search);

/* A look at some numbers of probabilities times values, as far as they fit. v holds every token. */
bool ts_may_be_context(const struct ts_search *search, const struct ts_actor *p, const struct ts_actor *v);
/* Scores and probabilities: as many numbers per head as there are keys. */
bool ts_may_attend(const struct ts_actor *actor);

/* As ts_operation_apply; from: the actors of the inputs. */
void ts_apply_attention(const struct ts_scene *scene, const struct ts_operation *operation,
                        const struct ts_actor *actor, const struct ts_actor *const from[3], double *const *inputs,
                        double *out);

/* The same with its softmax over the queries instead of the keys; false where not all of them are at hand. */
bool ts_apply_attention_across(const struct ts_scene *scene, const struct ts_operation *operation,
                               const struct ts_actor *actor, const struct ts_actor *const from[3],
                               double *const *inputs, double *out);

#endif
