/* What the parts of the judge share: judge.c (the order of things, replays, weights), judge_look.c (what each pair
 * shows), judge_growth.c and judge_start.c (error where no operation could be learnt), judge_router.c (chosen experts
 * and other integers), judge_flips.c and judge_ties.c (experts whose choice was not captured), judge_unseen.c (nor were
 * the logits), judge_rounded.c (what was rounded by itself), judge_aside.c (what tokens that are set aside leave in
 * others), judge_probabilities.c (behind a softmax), judge_order.c (rows that experts gather) and judge_points.c (the
 * same point of other layers). For these files only. */
#ifndef TS_COMPARE_JUDGE_STATE_H
#define TS_COMPARE_JUDGE_STATE_H

#include <math.h>

#include "compare/judge.h"
#include "compare/judge_points.h"
#include "compare/structure.h"

#define TS_INHERIT_FROM 12 /* earlier pairs whose error may have come in */

/* Above this many times what rounding explains, the operation itself is wrong. Honest replays of coarse runs stay below
 * 1.9, and 2.9 where a cache in fp8 is captured behind the rotation; a single row or head strays up to 4 by chance, and
 * a channel up to 5.4, whose weight is rounded the same in every row. In f32 constants learnt from rounded values add
 * their part, and so do functions that are exact to 1e-6 only; products hide a precision of their own, and rotated keys
 * may be captured as a cache in eight bits gives them back: twice as much is granted to these. */
#define TS_REPLAY_LIMIT   5.0
#define TS_REPLAY_PART    8.0
#define TS_REPLAY_CHANNEL 12.0
#define TS_REPLAY_FINE    2.0
/* An error that follows the result, as a factor's does, is none of rounding: that has no direction. */
#define TS_FOLLOWS_FROM 2.0

/* Tokens that took other experts at one router, whose choice was not captured. */
struct ts_judge_flips {
    size_t pair;       /* the router's logits */
    bool known;        /* there are some */
    bool open;         /* nothing tells whether there are: no more tokens stray than the logits' errors exchange */
    bool *rows;        /* per token that is looked at */
    const char *guess; /* what makes it one, as a clause; NULL where the logits tell */
};

/* A tensor of some layer that may tell which experts were chosen there. */
struct ts_judge_routing {
    size_t pair;
    uint64_t layer;
    bool integers;
    bool sure; /* else a gate, which may be that of an activation */
};

struct ts_judge {
    const struct ts_pair *pairs;
    const struct ts_delta *deltas;
    struct ts_judgement *out;
    enum ts_subject subject;
    struct ts_scene scene;
    double *errors; /* relative L2 per pair; NaN when it could not be measured */
    bool *learnt;
    bool *reordered;                 /* per pair: rows that experts gathered in another order */
    struct ts_structure *structures; /* per pair, for those that were not learnt */
    struct ts_replay *replays;       /* per pair, for those that were */
    enum ts_operation_kind *kinds;
    bool *products;    /* per pair: learnt as a matrix product of captured tensors */
    bool *adaptive;    /* per pair: learnt as a layer norm whose weight and bias may come from products */
    double *modulated; /* per pair: error of the captured tensor they may have come from, or of the modulation that was
                          learnt; 0 when there is none */
    size_t *follows;   /* per pair: 1 + the pair that it continues, as a stream does from layer to layer; 0: none */
    double *updates;   /* per pair that continues another: relative error of what was added to that */
    size_t *takes;     /* per pair that was learnt: 1 + the pair of its first input; 0: none */
    size_t *used; /* per pair: 1 + the first sum that takes it and comes out of the candidate's own numbers; 0: none */
    bool *parts;  /* per pair: a part of one just before it, as q is of q, k and v in one */
    double *levels; /* per pair of probabilities that was not learnt: relative error of the scores behind it */
    double *strays; /* per pair: how far its worst row stands out */
    size_t *gone;   /* per pair: how many of its tokens are set aside; 0 where it has none */
    struct ts_judge_flips *flips;
    size_t flip_count;
    struct ts_points points;          /* empty until someone asks for it */
    struct ts_judge_routing *routing; /* NULL until someone asks for it */
    size_t routing_count;
    bool experts;                /* the model has some; what names tell of them is known with the former */
    bool dense;                  /* it is known to have none, unless names tell of some */
    double rounding_of_products; /* of runs seen by the outputs of their layers; 0 until someone asks for it */
    bool *turned;       /* per token that is looked at: the same experts in another order; NULL until there is one */
    size_t turned_at;   /* the pair that showed it, of the last router that has some */
    size_t slots;       /* experts of a token there */
    bool *guesses;      /* per token that is looked at: set aside by a guess; NULL until there is one */
    bool *returned;     /* per token that is looked at: it was set aside and came back; NULL until there is one */
    size_t returned_at; /* the first pair that it came back to */
    const char *guess;  /* what made the first guess about a router one, NULL when there was none */
    bool flipped;       /* tokens seem to have taken other experts, unseen, in a run that has some */
    size_t gathered;    /* the last pair that holds an order in which tokens were gathered; 0: none does */
    size_t counted;     /* the last layer's first pair that lists more experts on one side, and 1; 0: none does */
    size_t strayed;     /* where they did first, in any run; SIZE_MAX: nowhere */
    size_t failed;      /* the first pair that is wrong whatever came in: a replay, integers, NaN; or their count */
};

/* A text that lives as long as the judgement. */
const char *ts_judge_say(struct ts_judgement *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "1.73", "12,000", "1.73 million": how many times something is something else. */
struct ts_times {
    char text[32];
};
struct ts_times ts_judge_times(double value);
/* A sentence for the report. */
void ts_judge_note(struct ts_judgement *out, const char *text);
/* Pair i differs, and the error is made there. */
void ts_judge_differs(struct ts_judge *state, size_t i, const char *why);
/* One rounding of the coarser side. */
double ts_judge_rounding(const struct ts_delta *delta);

/* Error and cosine of what has no relation to the reference. */
#define TS_UNRELATED   0.9
#define TS_RESEMBLES   0.3
#define TS_FEW_STRAY   5  /* one token of so many, at most */
#define TS_FEW_NUMBERS 64 /* fewer say little about their distribution */

/* How much further the error of pair i may stray by chance because it has few numbers: errors and what they are
 * measured by are both estimates from so many, whose ratio strays by 1 / sqrt(count) in the logarithm. Four times that
 * are granted; the limits themselves hold for TS_FEW_NUMBERS and more. */
static inline double ts_judge_chance_of(double count)
{
    count = fmax(1, count);
    return count < TS_FEW_NUMBERS ? exp(4 / sqrt(count) - 4 / sqrt(TS_FEW_NUMBERS)) : 1;
}

static inline double ts_judge_chance(const struct ts_judge *state, size_t i)
{
    return ts_judge_chance_of((double)state->pairs[i].a.count);
}

/* The same where only those count whose tokens are not set aside. How much a product makes of the error of a token
 * depends on what that is: it strays by 0.4 in the logarithm, and by 0.4 / sqrt(tokens) of several. Two times that are
 * granted; the limits hold for eight tokens and more. Few numbers of few tokens stray no further than either. */
static inline double ts_judge_chance_left(const struct ts_judge *state, size_t i)
{
    const double all = (double)state->scene.taken_count, left = fmax(1, all - (double)state->gone[i]);
    return fmax(ts_judge_chance_of((double)state->pairs[i].a.count * (all > 0 ? left / all : 1)),
                exp(0.8 / sqrt(left) - 0.8 / sqrt(8)));
}

/* Not learnt, and its error is known. */
static inline bool ts_judge_is_free(const struct ts_judge *state, size_t i)
{
    return !state->learnt[i] && isfinite(state->errors[i]);
}

/* The error by which a pair that was not learnt is judged: its own, or that of the scores that it came from. */
static inline double ts_judge_level(const struct ts_judge *state, size_t i)
{
    return state->levels[i] > 0 && isfinite(state->levels[i]) ? state->levels[i] : state->errors[i];
}

/* The same of all tokens but a few that stray far: one that took another expert says nothing about the others. */
static inline double ts_judge_calm_level(const struct ts_judge *state, size_t i)
{
    const struct ts_structure *structure = &state->structures[i];
    const double level = ts_judge_level(state, i);
    return structure->known && structure->strays && structure->strays * TS_FEW_STRAY <= structure->rows
               ? fmin(level, structure->calm)
               : level;
}

/* A sum over the numbers of a token that f32 adds up in another order: what it may change about the factor of a norm.
 */
static inline double ts_judge_sum_rounding(const struct ts_pair *pair)
{
    return pair->a.rank ? 0x1p-24 * sqrt((double)pair->a.shape[pair->a.rank - 1]) : 0;
}

bool ts_judge_is_norm(const char *name);
/* Its error is the same in every token, far more so than the tokens themselves are. */
bool ts_judge_is_offset(const struct ts_structure *structure);
enum ts_judge_start {
    TS_START_NONE,
    TS_START_OPEN, /* nothing that was captured tells a precision from a bug */
    TS_START_LIKELY
};

/* Loads, learns and replays every pair, on all threads of the pool (may be NULL), and notes what growth and structure
 * need for those that cannot be learnt: judge_look.c. */
enum ts_status ts_judge_look(struct ts_judge *state, struct ts_pool *pool, struct ts_error *error);
/* Whether a low precision starts at this pair, which was not learnt: judge_start.c. */
enum ts_judge_start ts_judge_may_start(const struct ts_judge *state, size_t i);
/* What comes out of an attention that was not captured between queries and context: how much a softmax makes of a
 * relative error of its scores. Those are products of queries and keys over the root of their number, and spread by
 * about the product of the sizes of a number of either, whatever the heads are: an error e of them makes e times that
 * in the exponent. 1 at least, and where nothing is known; *came is the error of those around. */
double ts_judge_sharpness(const struct ts_judge *state, size_t i, double *came);
/* Products that lie between what was captured and pair i: three (gate, up and down) for what comes out of experts or an
 * MLP, by its name, where nothing inside was; else 1. */
double ts_judge_products_of_module(const struct ts_judge *state, size_t i);
/* The largest error just before i; where the layer's own stream or the norm of that was captured, only from there on:
 * all that earlier layers made has come in through it. */
double ts_judge_came_into_layer(const struct ts_judge *state, size_t i);
/* The only one of its layer that was captured: all products of the layer are in it. */
bool ts_judge_is_whole_layer(const struct ts_judge *state, size_t i);
/* What comes out of such an attention, by its name. */
bool ts_judge_is_behind_attention(const struct ts_judge *state, size_t i);
/* A context was replayed shortly before. */
bool ts_judge_attention_is_known(const struct ts_judge *state, size_t i);
/* Much of an error where all that came before is equal to the last bit: it has grown out of nothing. */
bool ts_judge_is_sudden(const struct ts_judge *state, size_t i);
/* Growth, start and structure of the error of a pair that was not learnt. */
void ts_judge_unlearnt(struct ts_judge *state, size_t i);
/* Experts whose choice was not captured: a few tokens err by as much as they are large, other ones in each layer, and
 * the rest is calm, beside what came in (`base`). A bug of some tokens has the same ones everywhere, or one place:
 * judge_unseen.c. */
bool ts_judge_are_unseen_flips(struct ts_judge *state, size_t i, double base);
enum ts_judge_hidden { TS_HIDDEN_NOTHING, TS_HIDDEN_ROUTING, TS_HIDDEN_CHOICE, TS_HIDDEN_LAYER };
/* Some tokens stray at pair i, no more than noise gives other experts, and by its names the run has experts whose
 * choice is nowhere to be seen in this layer, or routers of other layers show what could have been captured here. Of
 * what comes out of the experts themselves the logits do not tell it either, where no k explains who strays: a bias may
 * have chosen, or groups. */
enum ts_judge_hidden ts_judge_hides_routing(struct ts_judge *state, size_t i, double base);
/* What attention ends with, of its context or the norm of that, or an MLP: a product that does not mix tokens, of the
 * tensor just before. */
bool ts_judge_is_end_projection(const struct ts_judge *state, size_t i);
/* Pair i is rounded, and neither its like in other layers nor anything before it is. No replay and no growth tells:
 * either grants every tensor one rounding to what it holds. Says so. */
bool ts_judge_is_rounded_alone(struct ts_judge *state, size_t i);
/* Scores and probabilities, with or without a sink behind the keys: a token that is set aside is a key to the others,
 * whose numbers for it say nothing. The copy has those of the reference there, and of probabilities what the other keys
 * would have without it; NULL when there are none, else to be freed: judge_aside.c. */
float *ts_judge_without_aside(const struct ts_judge *state, const struct ts_actor *actor, struct ts_actor *copy);
/* Scores, or what ts_judge_as_scores makes of probabilities: a token's own key and the one before it err far less than
 * keys at a distance do, as wrong angles and slopes make it. No rounding knows how far a key is. */
bool ts_judge_errs_by_distance(const struct ts_scene *scene, const struct ts_actor *scores);
/* Probabilities as the scores that they came from: judge_probabilities.c. The copy has both sides' then, and their
 * error; NULL when actor holds none, else to be freed. */
float *ts_judge_as_scores(const struct ts_judge *state, const struct ts_scene *scene, const struct ts_actor *actor,
                          struct ts_actor *copy);
/* Pair i was not learnt and differs, and every token of it is set aside: there is nothing to judge it by. */
bool ts_judge_has_nobody_left(const struct ts_judge *state, size_t i);
/* Of more than half of what differs and was not learnt that is so. */
bool ts_judge_is_mostly_gone(const struct ts_judge *state);
/* Before pair i is looked at: where all tokens are set aside, or all but so few that they say less, they come back in
 * the next layer, with what they err by as what came in, as long as that is not as large as they are. */
void ts_judge_bring_back(struct ts_judge *state, size_t i);
/* How many tokens are left, where that is less than half of them: for the report. */
void ts_judge_note_aside(struct ts_judge *state);
/* Pair i holds rows that experts gathered, the same ones in another order; *error is what is left when they are
 * matched. Says so. */
bool ts_judge_reordered(struct ts_judge *state, size_t i, double *error);
/* Rows of it that nobody has to find: those of tokens that are set aside, or whose k largest logits are others, which
 * the noise of the logits makes of near ties. */
size_t ts_judge_excused_rows(const struct ts_judge *state, size_t i);
/* Integers that are the keys which each token looks at; false when they are none. */
bool ts_judge_keys(struct ts_judge *state, size_t i);
/* Integers: chosen experts may be others where the candidate's own logits say so; anything else must be equal. */
void ts_judge_integers(struct ts_judge *state, size_t i);
/* Pair i lists experts, or their weights, and one side has more of them for each token, which the other has nothing to
 * compare with: says so, else NULL. A shared expert may be one of them that the other side adds by itself, so that this
 * is wrong where something else of its layer is. */
const char *ts_judge_counts_otherwise(struct ts_judge *state, size_t i);
/* Sets tokens aside whose experts are others, seen at the weights of the chosen: their indices may not be captured.
 * `replayed`: the weights are those of the candidate's own logits; else near ties only. */
void ts_judge_set_aside(struct ts_judge *state, const struct ts_operation *operation, const struct ts_actor *weights,
                        bool replayed);
/* The same at weights that stand in the places of their experts, with zeros in all others. */
void ts_judge_set_scattered_aside(struct ts_judge *state, const struct ts_actor *weights);
/* Sets one of the tokens that are looked at aside. What it was set aside for first is what is said about it. */
void ts_judge_leave_out(struct ts_judge *state, size_t row, bool guess);
/* The experts of one of the tokens that are looked at changed places at pair i, which has `slots` of each. */
void ts_judge_turn_round(struct ts_judge *state, size_t i, size_t row, size_t slots);
/* Pair i is the order in which experts gathered tokens, and the same one in another order: tokens that took other
 * experts are set aside. */
void ts_judge_gathering(struct ts_judge *state, size_t i);
/* What has a place for each of a token's experts (their weights, what comes out of each) says nothing about tokens
 * whose experts changed places: these are set aside while pair i is looked at, and marked in `hidden`. False when there
 * are none. */
bool ts_judge_hide_turned(struct ts_judge *state, size_t i, const struct ts_actor *actor, bool *hidden);
/* Logits or probabilities of a router, by its name. */
bool ts_judge_is_router(const char *name);
/* Before anything is judged: which tokens took other experts at routers whose choice was not captured. */
void ts_judge_find_flips(struct ts_judge *state);
/* Of the router at pair i nothing tells whether tokens took other experts: a bug of these would look the same. */
bool ts_judge_has_open_flips(const struct ts_judge *state, size_t i);
/* Sets those of the router at pair i aside. */
void ts_judge_apply_flips(struct ts_judge *state, size_t i);
void ts_judge_release_flips(struct ts_judge *state);
/* What is not known about experts, and what would tell: for the report. */
void ts_judge_note_flips(struct ts_judge *state);

#endif
