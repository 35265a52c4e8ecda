/* The case behind struct ts_case: what the core knows beyond what families see. Internal to the
 * files that build, rank and prove it. */
#ifndef TS_DIAGNOSE_CASE_H
#define TS_DIAGNOSE_CASE_H

#include "diagnose/families.h"
#include "diagnose/formula.h"
#include "diagnose/glance.h"
#include "diagnose/product.h"

struct ts_case_values {
    const struct ts_actor *actor;
    bool candidate;
    double *values;
};

/* A cause and what it is ranked by. */
struct ts_case_entry {
    struct ts_cause cause;
    double rank, evidence, explained;
    size_t freedom, family;
    bool plain;                /* not a prediction */
    bool tried;                /* it was put to the proof, with whatever success */
    bool fell;                 /* and explains less of everything than of what it was found on */
    struct ts_formula formula; /* predict and count are NULL when there is none */
};

#define TS_CASE_ENTRIES 16 /* some are dropped in the end */
#define TS_CASE_FAILING 64

/* Causes, best first. */
struct ts_case_book {
    struct ts_case_entry entries[TS_CASE_ENTRIES];
    size_t count;
};

/* How a part of a case follows from the whole and one earlier tensor. */
enum ts_part {
    TS_PART_OTHER,  /* in no simple way */
    TS_PART_TERM,   /* that tensor is expected; found is what is left without the rest of the sum */
    TS_PART_ADDED,  /* what is added to the candidate's */
    TS_PART_STREAM, /* what is added to each side's own */
    TS_PART_NORM,   /* what the case's norm is given; of no other tensor */
};

struct ts_case_state {
    struct ts_case face; /* first: families hold a pointer to it */
    struct ts_scene scene;
    struct ts_glance glance; /* of long sequences: every token's error */
    bool glance_borrowed;
    const struct ts_delta *deltas;
    size_t pair_count;
    const struct ts_evidence *evidence;
    struct ts_product product; /* how the file's weights make the reference; weight is NULL when they do not */
    bool replayed;             /* expected is that product on the candidate's input */
    struct ts_actor own;       /* direct cases: the actor */
    uint64_t *own_rows;        /* and which rows it holds */
    uint64_t own_last;         /* numbers of a row, all of them */
    size_t *gathered;          /* rows of experts: which one of the reference each is (compare/gathered.h), else NULL */
    bool direct, complete, quiet, ordinary;
    size_t family;    /* the one that proposes */
    const char *only; /* a proof: the one id that is asked for */
    double *expected, *found;
    double elements; /* how many elements carry the error */
    double size;     /* energy of what was found */
    struct ts_case_values cache[2 * TS_SCENE_WINDOW];
    size_t cached;
    double *scratch[64]; /* freed when the family returns */
    size_t scratch_count;
    struct ts_case_book *book;         /* shared with parts */
    const char *about;                 /* what part of it this is; NULL: the whole */
    struct ts_case_state *whole;       /* of a part: the case it is of */
    enum ts_part part;                 /* and how it follows from that, */
    size_t part_pair;                  /* and from this tensor */
    struct ts_formula next;            /* of the proposal that comes next */
    struct ts_arena formulas;          /* what they point to */
    bool proving;                      /* rows that a formula is put to */
    uint64_t failing[TS_CASE_FAILING]; /* some rows in which the best claim does not hold, in order */
    size_t failing_count;
    bool settled; /* the best claim holds everywhere: where weaker ones fail does not matter */
};

/* Rows that a case is to hold, instead of those it would choose: tokens of the run, or rows of the matrix where it is
 * read directly. At most as many as another case of the pair has. */
struct ts_case_rows {
    const uint64_t *list;
    size_t count;
    size_t reach;                   /* how many earlier tensors are wanted */
    const struct ts_glance *glance; /* what is known about all of them, borrowed */
};

enum ts_status ts_case_open(struct ts_case_state *state, const struct ts_pair *pairs, const struct ts_delta *deltas,
                            size_t count, size_t index, const struct ts_evidence *evidence,
                            struct ts_diagnosis *diagnosis, struct ts_error *error);
enum ts_status ts_case_open_at(struct ts_case_state *state, const struct ts_pair *pairs, const struct ts_delta *deltas,
                               size_t count, size_t index, const struct ts_evidence *evidence,
                               const struct ts_case_rows *rows, struct ts_diagnosis *diagnosis, struct ts_error *error);
void ts_case_release(struct ts_case_state *state);
/* Marks the tokens of the scene that were routed to other experts before this pair. */
void ts_case_set_aside(struct ts_case_state *state, size_t index);

/* What a formula makes of all rows of the pair. Energies are sums of squares. */
struct ts_everywhere {
    uint64_t rows, of_rows; /* looked at, and how many there are */
    uint64_t failing;       /* rows in which it leaves more than the limit's share of the error, rounding aside */
    uint64_t first_failing;
    uint64_t calm;                  /* sequences of a batch without an error: their rows are not counted as looked at */
    uint64_t some[TS_CASE_FAILING]; /* of those, a spread, in order */
    size_t some_count;
    double error, left, expected, found;
    double elements; /* that carry the error */
    double equal;    /* share of the elements that it predicts to the last bit */
    bool directed;   /* products with random directions were compared in place of the numbers */
    struct ts_tally tally;
};

/* noise: energy of rounding over that of what is expected. False when the formula cannot be put to other rows, or the
 * walk was interrupted. In stretch.c. */
bool ts_case_everywhere(const struct ts_case_state *state, const struct ts_formula *formula, double noise, double limit,
                        struct ts_everywhere *all);
/* Whether an entry of the book is worth saying beside those before it. */
bool ts_case_is_said(const struct ts_case_book *book, size_t i);
/* Puts every claim about a part of the rows that will be said to the others, unless it was done. In prove.c. */
void ts_case_prove(struct ts_case_state *state);
/* Lets every claim that was put to no other rows say on how many it was seen. */
void ts_case_own_up(struct ts_case_state *state);
/* "; checked on 48 of 2048 tokens", after words about the rows at hand; "" when those are all. rounding: the words are
 * that rounding is all there is, which is put to every row. */
const char *ts_case_seen_on(struct ts_case_state *state, bool rounding);
/* What the candidate should hold, in state->expected, and the energy that one more rounding of its inputs and of its
 * output explains. These three are in case_noise.c. */
enum ts_status ts_case_replay(struct ts_case_state *state, double *noise, struct ts_error *error);
/* What the judge takes for noise, which knows more about products; where NaN spoil that, our own measure. */
double ts_case_agreed_noise(const struct ts_case_state *state, const struct ts_replay *judged, double own);
/* Sets error, noise, elements and quiet. modelled: energy that replaying explains, or 0 when nothing was learnt. */
void ts_case_weigh(struct ts_case_state *state, size_t index, double modelled);
/* A case about a part of another: the same pair, other values, which are borrowed; its noise is the whole's times the
 * factor. */
void ts_case_of_part(struct ts_case_state *part, struct ts_case_state *whole, double *expected, double *found,
                     double noise_factor, const char *about);
void ts_case_release_part(struct ts_case_state *part);
/* "; in the configuration: rope_theta 1000000 (config.json)" where it decides the matter, else "". */
const char *ts_case_remark(struct ts_case_state *state, const char *id, const char *summary);
/* Second looks at the terms of a sum, unless everything is explained. */
void ts_case_look_at_parts(struct ts_case_state *state);
/* Undoes the case's norm: what it is given by the candidate, and what the candidate's result would be made of; the
 * factor of each group that brings it back. False when it is no norm, or without memory. In parts.c. */
#define TS_LEAST_WEIGHT 1e-6 /* one that is smaller cannot be divided off */
bool ts_case_before_norm(struct ts_case *the_case, double *expected, double *found, double *factors);
/* When no cause holds and what came in agrees: what can still be said. */
void ts_case_say_remainder(struct ts_case_state *state);
void ts_case_drop_scratch(struct ts_case_state *state);

#endif
