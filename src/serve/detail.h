/* Detail: what a close look at one tensor or pair finds. */
#ifndef TS_SERVE_DETAIL_H
#define TS_SERVE_DETAIL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "serve/call.h"
#include "serve/opened.h"

#define TS_PROFILE_BINS   512
#define TS_HISTOGRAM_BINS 64
#define TS_DETAIL_SAMPLE  65536

/* Of the differences; of a tensor alone, of its values. */
struct ts_axis_profile {
    double sum[TS_PROFILE_BINS], max[TS_PROFILE_BINS]; /* squares; magnitudes */
    uint64_t count[TS_PROFILE_BINS];
};

struct ts_detail {
    struct ts_axis_profile *profiles; /* one per axis */
    double range[2], difference_range[2];
    uint64_t counts[3][TS_HISTOGRAM_BINS]; /* of A, of B, of the difference */
    double quantiles[TS_DELTA_QUANTILES];  /* of the magnitude of the difference */
    bool has_quantiles;
    uint64_t looked; /* elements */
    bool sampled;    /* not all of them */
};

enum ts_status ts_detail_make(struct ts_call *call, struct ts_focus *subject, struct ts_detail *detail,
                              struct ts_error *error);
void ts_detail_release(struct ts_detail *detail);

/* The answer of GET .../tensors/P. */
void ts_tensor_answer(struct ts_call *call, struct ts_focus *subject);

#endif
