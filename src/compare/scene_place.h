/* Place: where the tensors of a trace have their tokens. For scene.c, which loads them from there, and
 * honesty.c. */
#ifndef TS_COMPARE_SCENE_PLACE_H
#define TS_COMPARE_SCENE_PLACE_H

#include "compare/scene.h"

/* Where a tensor has its tokens. The shape is the squeezed one, without the axis of the batch where there is one. */
struct ts_place {
    const uint64_t *shape;
    unsigned rank, axis; /* axis == rank: no tokens in it */
    bool batched;        /* an axis of sequences was in front */
    bool all;            /* the axis holds the tokens of all sequences, [batch * tokens, ...] */
    uint64_t folded[3];  /* the shape of a list of heads, [tokens * heads, size], with its tokens apart */
};
void ts_place_find(const struct ts_scene *scene, size_t pair, struct ts_place *place);

/* Tokens of the sequence that most tensors have. */
uint64_t ts_place_tokens(const struct ts_pair *pairs, size_t count);
/* Several sequences at once; 1 when there is one. Their common length is left in *sequence. */
uint64_t ts_place_batch(const struct ts_pair *pairs, size_t count, uint64_t *sequence);
/* Where the tokens stand in tensors with heads whose number is another one, and how many heads the scores have. */
void ts_place_heads(struct ts_scene *scene);
/* Numbers of a token in the widest scores, 0 when there are none. */
uint64_t ts_place_scores(const struct ts_scene *scene);
/* Numbers of a token in a tensor, the mean of all that have no more than `widest`, and the most that a window of
 * successive ones has together. */
void ts_place_widths(const struct ts_scene *scene, uint64_t widest, uint64_t *mean, uint64_t *window);
/* About how many numbers of a side are loaded of this pair, by its shape alone. */
uint64_t ts_place_numbers(const struct ts_scene *scene, size_t pair);

#endif
