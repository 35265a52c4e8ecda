/* For the align_*.c files only: the forms in which the ranks of a parallel run hold one tensor. */
#ifndef TS_PAIR_ALIGN_FORMS_H
#define TS_PAIR_ALIGN_FORMS_H

#include "pair/align_search.h"

enum ts_form_kind {
    TS_FORM_PLAIN, /* joined, added up, or one rank: also every n-th rank joined */
    TS_FORM_ZIGZAG,
    TS_FORM_FUSED,
    TS_FORM_INTERLEAVED
};

struct ts_align_form {
    struct ts_view view; /* the whole */
    const char *words;
    unsigned cost;
    enum ts_form_kind kind;
    unsigned axis;     /* on which shards are joined; UINT32_MAX: on none */
    bool copied;       /* only one of several shards that hold the same is read */
    uint64_t sizes[2]; /* FUSED: of the whole first part and of the others; INTERLEAVED: the width of a head */
};

struct ts_align_forms {
    struct ts_align_search *search; /* whose scratch arena everything lives in */
    struct ts_view *shards;
    size_t count;
    unsigned side;   /* on which the shards stand */
    uint64_t wanted; /* elements of the whole; 0: not known, and then what is held twice is known by its values */
    struct ts_align_form *list;
    size_t form_count, capacity;
};

/* The likely ones: all ranks equal, or joined, or added up. Where ranks should be equal and are not, each of them. */
enum ts_status ts_align_plain_forms(struct ts_align_forms *forms, struct ts_error *error);
/* The others: fewer pieces than ranks, context parallel, fused projections, heads dealt out in turn. */
enum ts_status ts_align_other_forms(struct ts_align_forms *forms, struct ts_error *error);

/* All shards alike but along `axis`; UINT32_MAX: alike. */
bool ts_align_shards_fit(const struct ts_align_forms *forms, unsigned axis);

#endif
