/* Changes: what the report of two checkpoints says. How much of each tensor changed, where in the model, and in how
 * many directions. */
#ifndef TS_REPORT_CHANGES_H
#define TS_REPORT_CHANGES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "compare/comparison.h"
#include "report/report.h"

/* The share of elements whose value differs, 0 to 1; NaN and infinities on one side count. */
double ts_changed_fraction(const struct ts_delta *delta);
/* Its values are others: not only stored in another type, with the rounding that takes. */
bool ts_is_changed(const struct ts_comparison *comparison, size_t index);
size_t ts_changed_count(const struct ts_comparison *comparison);

/* "100 %", "12.3 %", "7 elements", "bits only" where 0 became -0. */
void ts_put_changed(struct ts_buffer *out, const struct ts_comparison *comparison, size_t index);
/* "1.0003" */
void ts_put_ratio(struct ts_buffer *out, double ratio);
/* "8", ">= 128", "-" where it means nothing. */
void ts_put_rank(struct ts_buffer *out, const struct ts_change_rank *rank, bool unicode);

/* "12 of 291 tensors changed, all of them in layers 4-7 self_attn.{q,v}_proj". Nothing when none did. Names are not
 * escaped. */
void ts_put_changes(struct ts_buffer *out, const struct ts_comparison *comparison);
/* "the change has rank 8 in all 12 matrices: a LoRA of rank 8 was merged; ...". Nothing when ranks were not asked for
 * or no matrix changed. */
void ts_put_ranks(struct ts_buffer *out, const struct ts_comparison *comparison);
/* How ranks are counted, a sentence. */
extern const char ts_rank_method[];

/* What TS_SORT_DEFAULT stands for. */
enum ts_sort ts_sort_of(const struct ts_comparison *comparison, const struct ts_report_options *options);
/* Indices of the pairs whose verdicts `only` allows (see struct ts_report_options), in that order, `most` at most. NULL
 * without memory; free the result. */
size_t *ts_sorted_pairs(const struct ts_comparison *comparison, unsigned only, enum ts_sort sort, size_t most,
                        size_t *count);

#endif
