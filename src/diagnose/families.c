/* The list of families. What is certain at a glance (NaN, zeros) comes first, then what knows the model, then what
 * knows only numbers. Ranking is the core's; of two that say the same as well, the first one's words stay, so that what
 * names tensors of the weights' file comes before what does not. */
#include "diagnose/families.h"

const struct ts_family *const ts_families[] = {&ts_family_memory,    &ts_family_types,   &ts_family_rotary,
                                               &ts_family_turns,     &ts_family_turned,  &ts_family_activation,
                                               &ts_family_attention, &ts_family_experts, &ts_family_modulation,
                                               &ts_family_products,  &ts_family_hidden,  &ts_family_given,
                                               &ts_family_vectors,   &ts_family_norm,    &ts_family_wiring,
                                               &ts_family_layout,    &ts_family_weights, &ts_family_algebra,
                                               &ts_family_places,    &ts_family_twins,   NULL};
