/* Causes: why a pair differs, as JSON. */
#ifndef TS_SERVE_CAUSES_H
#define TS_SERVE_CAUSES_H

#include "base/json.h"
#include "compare/delta.h"
#include "diagnose/diagnose.h"

/* A list; empty when diagnosis is NULL. */
void ts_causes_json(struct ts_json_writer *json, const struct ts_diagnosis *diagnosis);

/* Relative L2 that one rounding makes in the coarser precision of a pair. */
double ts_noise_floor(const struct ts_delta *delta);

#endif
