/* Masks of attention: read off what was captured, told as a band, with what is hidden as padding is. Internal to
 * src/diagnose. */
#ifndef TS_DIAGNOSE_ATTENTION_MASK_H
#define TS_DIAGNOSE_ATTENTION_MASK_H

#include "diagnose/family.h"

/* Which keys each query may see: [rows, keys]. */
struct ts_mask {
    size_t rows, keys;
    unsigned char *allowed;
    size_t *at; /* which token each row is */
};

/* A token sees keys from token - window + 1 to token + shift; window 0: all before. The first tokens, `front` of them,
 * are hidden from those behind them, and the last ones, `back`, from all, as padding is. */
struct ts_mask_shape {
    long window, shift;
    size_t front, back;
};

bool ts_mask_open(struct ts_mask *mask, const struct ts_case *the_case);
void ts_mask_close(struct ts_mask *mask);
/* The mask that values show, in any head. `scores`: masked are those far below zero; else those that are zero. */
void ts_mask_read(struct ts_mask *mask, const struct ts_actor *actor, const float *values, bool scores);
void ts_mask_band(struct ts_mask *mask, const struct ts_mask_shape *shape);
/* A row that sees nothing cannot be: what it does then is up to the program, and taken as it is found. So is what the
 * tokens that are hidden see, all of it, or with a reference what padding may see or sees there. */
void ts_mask_fill(struct ts_mask *mask, const struct ts_mask_shape *shape, const struct ts_mask *found,
                  const struct ts_mask *reference);
size_t ts_mask_differences(const struct ts_mask *a, const struct ts_mask *b);

/* The band that fits best. */
struct ts_mask_shape ts_mask_describe(const struct ts_mask *mask);
bool ts_is_padded(const struct ts_mask_shape *shape);
bool ts_is_one_shape(const struct ts_mask_shape *a, const struct ts_mask_shape *b);
/* "each token sees itself and the tokens before it" */
const char *ts_mask_text(struct ts_case *the_case, const struct ts_mask_shape *shape, size_t keys);
/* What to look at, where the one is found and the other meant. */
const char *ts_mask_check(const struct ts_mask_shape *found, const struct ts_mask_shape *meant);
/* Where two masks that are the same band differ first: a stretch of keys. */
const char *ts_mask_first_difference(struct ts_case *the_case, const struct ts_mask *a, const struct ts_mask *b);

#endif
