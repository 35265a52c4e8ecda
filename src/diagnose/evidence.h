/* Evidence: what a person has besides the two traces: the model's weights, the candidate's own, and the configuration.
 * With it causes name tensors of the file and keys of the configuration, and products are replayed instead of guessed.
 */
#ifndef TS_DIAGNOSE_EVIDENCE_H
#define TS_DIAGNOSE_EVIDENCE_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "compare/judge.h"
#include "diagnose/settings.h"
#include "pair/names.h"
#include "read/open.h"
#include "tensor/bundle.h"
#include "tensor/view.h"

/* A parameter: a vector (inputs is 0) or a matrix [rows, inputs], axes of length one left out. */
struct ts_weight {
    struct ts_view view;
    const struct ts_name *name;
    const char *full; /* as the file calls it */
    uint64_t rows, inputs;
};

enum ts_weights_of { TS_WEIGHTS_REFERENCE, TS_WEIGHTS_CANDIDATE };

struct ts_evidence {
    struct ts_arena arena;
    struct ts_bundle *bundles[2]; /* owned; NULL where there is none */
    struct ts_names names[2];
    struct ts_weight *weights[2]; /* vectors and matrices alone, in the bundle's order */
    size_t counts[2];
    struct ts_settings config;
};

/* Paths may be NULL. */
enum ts_status ts_evidence_open(const char *weights, const char *weights_b, const char *config,
                                const struct ts_open_options *options, struct ts_evidence **evidence,
                                struct ts_error *error);
/* From bundles, which are taken over (also on error), and a configuration, which is not. Any may be NULL. */
enum ts_status ts_evidence_make(struct ts_bundle *weights, struct ts_bundle *weights_b, const struct ts_source *config,
                                struct ts_evidence **evidence, struct ts_error *error);
void ts_evidence_free(struct ts_evidence *evidence); /* NULL is fine */

/* What the configuration, or a name of a weight, tells of experts. Weights may be some of all, and tell of none. */
enum ts_experts ts_evidence_experts(const struct ts_evidence *evidence);
/* The weight of that name in the other file, or of the same meaning; NULL when there is none. */
const struct ts_weight *ts_evidence_same(const struct ts_evidence *evidence, const struct ts_weight *weight,
                                         enum ts_weights_of where);
/* The bias that belongs to a weight, in the same file; NULL when there is none. */
const struct ts_weight *ts_evidence_bias(const struct ts_evidence *evidence, const struct ts_weight *weight,
                                         enum ts_weights_of where);

#endif
