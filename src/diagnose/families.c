/* The list of families. What is certain at a glance (NaN, zeros) comes first, then what knows the model, then what
 * knows only numbers; the order decides nothing but the work: ranking is the core's. */
#include "diagnose/families.h"

const struct ts_family *const ts_families[] = {&ts_family_memory,     &ts_family_types,
                                               &ts_family_rotary,     &ts_family_activation,
                                               &ts_family_attention,  &ts_family_experts,
                                               &ts_family_modulation, &ts_family_norm,
                                               &ts_family_wiring,     &ts_family_layout,
                                               &ts_family_weights,    &ts_family_algebra,
                                               &ts_family_places,     NULL};
