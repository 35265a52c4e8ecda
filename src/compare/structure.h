/* Structure: whether an error is spread as rounding spreads it. Honest error has no favourite channel, head or token
 * and does not follow the reference; a bug nearly always does one of these. */
#ifndef TS_COMPARE_STRUCTURE_H
#define TS_COMPARE_STRUCTURE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/ordered.h"
#include "compare/scene.h"

/* Beyond these no honest run has been seen: see docs/noise.md. */
#define TS_CHANNEL_LIMIT 11.0 /* weights of eight bits, over forty tokens: 10 */
#define TS_CHANNEL_FEW   8.0  /* of sixteen tokens, and more where there are fewer */
#define TS_CHANNEL_GAP   6.0  /* a sixteenth of all lies beyond 1.8 medians: eleven; three bits, activated: 5.4 */
#define TS_BLOCK_LIMIT   15.0
#define TS_ROW_LIMIT     60.0
#define TS_OFFSET_LIMIT  0.75

#define TS_ELEMENT_LIMIT 40.0 /* of a token or three */
#define TS_ELEMENT_GAP   12.0 /* scans and norms with weights that differ much: 8.4 */
/* Of more tokens. In 15489 tensors of honest runs nothing was beyond both: 87 and 5, 51 and 14 are the furthest. */
#define TS_ELEMENT_MANY     60.0
#define TS_ELEMENT_MANY_GAP 8.0
#define TS_ELEMENT_ALONE    20.0

struct ts_structure {
    double element; /* the worst number's relative error over the median's */
    size_t worst_element;
    double element_gap;       /* the same number's over that of the largest ones behind it, two tokens' worth of which
                                 are left out: a wrong channel stands out alone, what has a long tail does not */
    double element_alone;     /* where it stands out: its error over what its token and its channel make likely */
    double element_head;      /* the error of the others in its head over the median head's; 0 without heads */
    bool scattered;           /* some numbers err, and most of those around them, in their tokens and in their channels,
                                 hardly do: a coarser precision spares nobody, a clamp does */
    double inherited_element; /* the same number's, largest among the tensors before: set by the judge */
    bool mostly_related;      /* most tokens have a relation to the reference (cosine above 0.3) */
    bool known;               /* what follows */
    size_t rows;              /* tokens that count */
    double channel;           /* the worst channel's relative error over the median channel's */
    size_t worst_channel;
    double channel_gap;       /* the same over the largest ones behind it, a sixteenth of all being left out */
    double channel_error;     /* its relative error */
    double rest;              /* relative error of all channels but one, where that holds more than half; else 0 */
    double channel_rows;      /* in how many tokens it errs: those of equal errors that would be as much spread */
    size_t constant_channels; /* channels that are constant in the candidate alone; the first of them: */
    size_t constant_channel;
    size_t zero_rows, zero_row; /* tokens that are zero in the candidate alone; the first of them */
    double block;               /* the worst block of channels (a head), error energy over the median block's, its worst
                                   channel and its worst token left out */
    size_t worst_block, block_size;
    double inherited_block; /* how far the same head stood out in the tensors before */
    double row;             /* the worst token's relative error energy over the median token's */
    size_t worst_row;
    double row_error;     /* its relative error */
    size_t strays;        /* tokens far above the median one */
    size_t worst_rows;    /* tokens that err at least half as much as the worst */
    double calm;          /* relative error of the others */
    bool by_distance;     /* of scores: keys near the token err far less than those at a distance: set by the judge */
    double least_row;     /* the least token's error energy over the median token's, by itself and by its size */
    double uneven;        /* spread of the tokens' error energy, in the logarithm */
    double inherited_row; /* how far tokens stood out in the tensors before: set by the judge, and where this is
                             a norm of a token that is small */
    double row_before;    /* how far the worst token stood out in the tensor just before, and */
    double row_error_before;  /* how much it erred there; 0 where that has no tokens */
    double row_gain;          /* what became of its error's energy since, over what did of the median token's */
    double inherited_channel; /* how far the worst channel stood out in the tensors before: set by the judge; of scores,
                                 how far the key did */
    double alike;  /* share of the reference that is the same in every token: 1 / tokens when there is no such part */
    double offset; /* the same share of the error, from 0 where it is that of the reference, as tokens that are nearly
                      equal err alike, to 1 where all of it is; the smaller one, as that of the slope. Of two or
                      three tokens, known or not, as well, where they have numbers enough */
    double slope;  /* correlation of the error with the reference, -1 to 1; the smaller one of all numbers as they
                      are and of every channel counted alike, so that no channel decides it alone; of fewer than
                      four tokens, known or not, of all numbers as they are */
};

/* How far a channel stands out, as ts_structure.channel does for the worst; 0 where there are no statistics. */
double ts_structure_channel(struct ts_scene *scene, const struct ts_actor *actor, size_t channel);
/* How far the worst channel may stand out: over few tokens chance makes more of it, and tokens that are nearly equal
 * are few. */
double ts_channel_limit(const struct ts_structure *structure);

/* What `offset` is above, from both shares. */
double ts_offset_share(double offset, double alike);

/* Whether one number errs as no rounding makes it. */
bool ts_element_stands_out(const struct ts_structure *structure);

/* How far this number stands out, by its relative error over the median's. */
double ts_structure_element(struct ts_scene *scene, const struct ts_actor *actor, size_t index);
void ts_structure_measure(struct ts_scene *scene, const struct ts_actor *actor, struct ts_structure *structure);
/* Relative error of what `actor` added to `before`, which it continues; 0 when it does not. */
double ts_structure_update(struct ts_scene *scene, const struct ts_actor *before, const struct ts_actor *actor);
/* How far the worst token stands out. `structure` (may be NULL) is told which, how much it errs, and about the others.
 */
double ts_structure_rows(struct ts_scene *scene, const struct ts_actor *actor, struct ts_structure *structure);

#endif
