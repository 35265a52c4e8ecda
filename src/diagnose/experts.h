/* Experts: what the files of that family share. Internal to them. */
#ifndef TS_DIAGNOSE_EXPERTS_H
#define TS_DIAGNOSE_EXPERTS_H

#include "compare/router.h"
#include "diagnose/formula.h"

#define TS_MOST_CHOSEN    64
#define TS_MOST_EXPERTS   4096
#define TS_ROUTER_BACK    8 /* pairs between the router and what its experts make */
#define TS_GUESSED_CHOSEN 8 /* experts per token, where nothing says how many */

struct ts_router {
    const struct ts_actor *logits, *weights; /* NULL when they were not captured */
    const struct ts_pair *indices;
    size_t chosen;
    /* A shared expert that may be a term of what the experts make, and its gate's logit; NULL: none was captured. */
    const struct ts_actor *shared, *shared_gate;
};

const struct ts_pair *ts_pair_at(const struct ts_case *the_case, size_t index);
/* The experts that both sides chose for any token. */
bool ts_read_indices(const struct ts_pair *pair, uint64_t token, size_t chosen, int64_t *a, int64_t *b);
/* The logits of any token, [experts] of one side. */
bool ts_read_logits(const struct ts_case *the_case, const struct ts_actor *logits, bool candidate, uint64_t token,
                    float *out);

/* The experts of both sides, captured beside their weights, which are the case's tensor; NULL: they were not. */
const struct ts_pair *ts_find_choice(const struct ts_case *the_case);
/* Weights that follow from logits and a captured choice. learnt: the reference's follow from its logits, and other ways
 * to make them were tried; the experts that the candidate chose were not. */
void ts_propose_gathered(struct ts_case *the_case, bool learnt);
/* The router agrees and what its experts make does not: how they are mixed, whose work is wrong. */
void ts_propose_mixed(struct ts_case *the_case, const struct ts_router *router);
/* What is done with the gate of a shared expert, where both were captured: those of `all`. */
void ts_propose_shared_gate(struct ts_case *the_case, const struct ts_router *all);
/* How the chosen experts are mixed, by the router's captured weights. These are in experts_mixing.c. */
void ts_propose_mixing(struct ts_case *the_case, const struct ts_router *router);
/* What all tokens become, and what each of them leaves of that, squared. */
struct ts_alike {
    double slope, spread; /* how many times what is expected, and its standard deviation */
    double rest, left;
    double came; /* relative error of the router's logits */
    size_t rows;
};
/* Another activation inside of the experts. In experts_inside.c. */
void ts_propose_inside(struct ts_case *the_case, const struct ts_alike *alike);
/* The same by its logits alone. */
void ts_propose_ways(struct ts_case *the_case, const struct ts_router *router);
/* How much of a shared expert is in a row, on one side. */
double ts_shared_part(const struct ts_actor *gate, bool candidate, size_t row);
/* A shared expert was captured in this layer; whether it is a term of this tensor, and what its gate does to it, the
 * reference tells. */
struct ts_router ts_router_with_terms(const struct ts_case *the_case, const struct ts_router *router);
/* The experts that were routed to, beside a shared one that was captured, count so many times. */
void ts_propose_routed_part(struct ts_case *the_case, const struct ts_router *all);
/* Tokens that came too late for an expert that takes so many. In experts_capacity.c. */
bool ts_propose_capacity(struct ts_case *the_case, const struct ts_router *router, double noise);
/* The experts of a token in the reference: captured, or those with the largest logits. */
bool ts_experts_of(const struct ts_case *the_case, const struct ts_router *router, size_t row, int64_t *experts);
/* A row that errs far beyond noise, which is energy of it over what is expected. */
bool ts_is_wrong_row(const struct ts_case *the_case, size_t row, double noise);
/* The factor on what there is beside it that fits the candidate best, and what that makes. */
double ts_fit_routed(const struct ts_case *the_case, const struct ts_router *router, double *out);
/* Rows inside of experts that stand where another expert's should. In experts_rows.c. */
void ts_propose_moved_rows(struct ts_case *the_case, const struct ts_router *router);
/* Wrong exactly for the tokens that went to some experts; false when it is not so. */
bool ts_propose_some_experts(struct ts_case *the_case, const struct ts_router *router);
/* The same where neither the weights nor the choice were captured, as with hooks on modules: the router's logits are
 * all that is known. inside: the tensor is no sum over experts. */
void ts_propose_by_logits(struct ts_case *the_case, const struct ts_router *router, bool inside);
/* The same for the factor of each token alone; true when it is said. */
bool ts_propose_summed_experts(struct ts_case *the_case, const struct ts_router *router);
/* For what is added to another tensor, a shared expert or the stream: the part of a case. */
void ts_propose_added_experts(struct ts_case *the_case);
/* Tokens that went to other experts on a near tie somewhere before, of which only the logits tell. */
void ts_propose_unseen_routing(struct ts_case *the_case);
/* Whether the two sides choose other experts for a row on a near tie: logits that agree as well as this run's do, and
 * another set of the largest ones. */
bool ts_router_flips(const struct ts_actor *logits, size_t row, size_t chosen);
/* Logits of a router, by name and size. */
bool ts_is_router(const struct ts_case *the_case, const struct ts_actor *actor);

#endif
