/* Operands of attention: the queries, keys and values that were captured, found by what names say. Internal to
 * src/diagnose; ts_names_operand and its like are in variant.h. */
#ifndef TS_DIAGNOSE_ATTENTION_OPERANDS_H
#define TS_DIAGNOSE_ATTENTION_OPERANDS_H

#include "diagnose/attention_chain.h"

#define TS_MOST_HEAD_SIZES 16

struct ts_operands {
    struct ts_operand q, k, v;
    struct ts_operand earlier_k, earlier_v; /* keys before they are turned or normalized, values of a layer before */
    bool turned;
};

/* The newest ones before the case's tensor. */
bool ts_operands_find(const struct ts_case *the_case, struct ts_operands *operands);
/* What may have been taken for the values. */
void ts_operands_others(const struct ts_operands *operands, struct ts_other_values *others);
/* Numbers per head that fit the widths; those of the captured shapes where they show them. */
size_t ts_operands_head_sizes(const struct ts_case *the_case, const struct ts_operands *operands,
                              size_t sizes[TS_MOST_HEAD_SIZES]);

#endif
