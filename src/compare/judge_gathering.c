/* Owns the experts that tokens took as the order tells in which these gathered them.
 *
 * A router that sorts what it chose leaves each expert's tokens side by side, the experts rising. Where the k largest
 * of the captured logits explain the order so, on both sides, they are what was chosen, and tokens with others are set
 * aside, as where the choice itself was captured. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/ordered.h"
#include "compare/gathered.h"
#include "compare/judge_state.h"
#include "compare/router.h"
#include "tensor/layer.h"

#define BACK         8 /* earlier pairs that may hold the logits */
#define MOST_EXPERTS 4096

/* What both sides chose, token by token. */
struct gathering {
    const struct ts_pair *order, *logits;
    size_t tokens, chosen, experts;
    int bits[2];
    bool across;
    int64_t *took[2]; /* [tokens, chosen], falling; or in the order of the slots, where they were captured */
    bool *tied;       /* per token: rounding for the capture may have hidden which; on either side */
    bool *hidden[2];  /* per token: it has, since others stand in the order */
    bool *counted;    /* per token: its slots are not in the order of its logits; on either side */
    size_t *of, *seen;
    int64_t *next; /* per row: the expert of the nearest one from there on that is known */
    float *row;
};

static bool open_gathering(struct gathering *it, const struct ts_judge *state, size_t i)
{
    const size_t count = (size_t)state->pairs[i].a.count;
    *it = (struct gathering){.order = &state->pairs[i], .tokens = (size_t)state->scene.tokens};
    it->chosen = count / it->tokens;
    if (!it->chosen || it->chosen > TS_MOST_GATHERED)
        return false;
    it->took[0] = calloc(2 * count, sizeof **it->took);
    it->took[1] = it->took[0] ? it->took[0] + count : NULL;
    it->tied = malloc(4 * it->tokens * sizeof *it->tied);
    it->hidden[0] = it->tied ? it->tied + it->tokens : NULL;
    it->hidden[1] = it->tied ? it->hidden[0] + it->tokens : NULL;
    it->counted = it->tied ? it->hidden[1] + it->tokens : NULL;
    it->of = malloc(count * sizeof *it->of);
    it->next = malloc(count * sizeof *it->next);
    it->seen = malloc(it->tokens * sizeof *it->seen);
    it->row = malloc(MOST_EXPERTS * sizeof *it->row);
    return it->took[0] && it->tied && it->of && it->next && it->seen && it->row;
}

static void close_gathering(struct gathering *it)
{
    free(it->took[0]);
    free(it->tied);
    free(it->of);
    free(it->next);
    free(it->seen);
    free(it->row);
}

/* Reads a token's logits, and how far rounding for the capture may have moved them; false where they are none. */
static bool read_logits(struct gathering *it, size_t side, size_t token, double *slack)
{
    struct ts_error ignored;
    float most = 0;
    if (ts_view_read_f32(side ? &it->logits->b : &it->logits->a, token * it->experts, it->experts, it->row, &ignored) !=
        TS_OK)
        return false;
    for (size_t k = 0; k < it->experts; k++) {
        if (!isfinite(it->row[k]))
            return false;
        most = fmaxf(most, fabsf(it->row[k]));
    }
    *slack = ldexp((double)most, -it->bits[side]);
    return true;
}

/* The largest of a side's logits, and whether the last of them is one by a hair: of some tokens, or (NULL) of the first
 * so many. */
static bool choose(struct gathering *it, size_t side, const uint64_t *tokens, size_t count)
{
    int64_t best[TS_MOST_GATHERED + 1];
    for (size_t i = 0; i < count; i++) {
        const size_t token = tokens ? (size_t)tokens[i] : i;
        double slack;
        if (!read_logits(it, side, token, &slack))
            return false;
        ts_choose_experts(it->row, it->experts, it->chosen + 1, best);
        it->tied[token] =
            it->tied[token] || (double)it->row[best[it->chosen - 1]] - (double)it->row[best[it->chosen]] <= slack;
        memcpy(it->took[side] + token * it->chosen, best, it->chosen * sizeof *best);
    }
    return true;
}

/* The one of a token's experts that has `below` smaller ones. */
static int64_t nth(const int64_t *experts, size_t count, size_t below)
{
    for (size_t k = 0; k < count; k++) {
        size_t smaller = 0;
        for (size_t j = 0; j < count; j++)
            smaller += experts[j] < experts[k];
        if (smaller == below)
            return experts[k];
    }
    return -1;
}

/* Which tokens that are tied took others: theirs do not lie between their neighbours in the order. */
static void find_hidden(struct gathering *it, size_t side)
{
    const size_t rows = it->tokens * it->chosen;
    int64_t last = -1;
    memset(it->seen, 0, it->tokens * sizeof *it->seen);
    memset(it->hidden[side], 0, it->tokens * sizeof *it->hidden[side]);
    for (size_t row = 0; row < rows; row++) {
        const size_t token = it->of[row];
        const int64_t expert = nth(it->took[side] + token * it->chosen, it->chosen, it->seen[token]++);
        last = it->tied[token] ? last : expert;
        it->hidden[side][token] = it->hidden[side][token] || expert < last || expert > it->next[row];
    }
}

/* The experts rise along the order; those of tokens that are tied are not known. `looked`: of so many tokens they may
 * be. */
static bool rises(struct gathering *it, size_t side, size_t looked)
{
    int64_t coming = (int64_t)it->experts;
    size_t known = 0;
    if (!ts_gathered_tokens(it->order, side == 1, it->tokens, it->across, it->of))
        return false;
    memset(it->seen, 0, it->tokens * sizeof *it->seen);
    for (size_t row = it->tokens * it->chosen; row-- > 0;) {
        const size_t token = it->of[row], below = it->chosen - ++it->seen[token];
        if (!it->tied[token]) {
            const int64_t expert = nth(it->took[side] + token * it->chosen, it->chosen, below);
            if (expert > coming)
                return false;
            coming = expert;
            known++;
        }
        it->next[row] = coming;
    }
    if (known * 2 < looked * it->chosen)
        return false;
    find_hidden(it, side);
    return true;
}

/* These experts of a token are in the order of its logits, as far as those were captured. */
static bool is_by_logits(struct gathering *it, size_t side, size_t token, const int64_t *experts)
{
    double slack;
    if (!read_logits(it, side, token, &slack))
        return false;
    for (size_t k = 1; k < it->chosen; k++)
        if ((double)it->row[experts[k - 1]] < (double)it->row[experts[k]] - slack)
            return false;
    return true;
}

/* Slots are counted in the order of a token's choice: which of its experts was the first, where logits are tied. Some
 * count them otherwise, as by the numbers of the experts. */
static void read_slots(struct gathering *it, size_t side)
{
    const struct ts_view *view = side ? &it->order->b : &it->order->a;
    const size_t rows = it->tokens * it->chosen;
    int64_t *slots = malloc(2 * rows * sizeof *slots), *placed = slots ? slots + rows : NULL;
    struct ts_error ignored;
    bool good = slots && it->chosen > 1 && ts_view_read_i64(view, 0, rows, slots, &ignored) == TS_OK &&
                ts_gathered_tokens(it->order, side == 1, it->tokens, it->across, it->of),
         are_slots = false;
    memset(it->seen, 0, it->tokens * sizeof *it->seen);
    for (size_t row = 0; row < rows && good; row++) {
        const size_t token = it->of[row],
                     slot = it->across ? (size_t)slots[row] / it->tokens : (size_t)slots[row] % it->chosen;
        placed[token * it->chosen + slot % it->chosen] =
            nth(it->took[side] + token * it->chosen, it->chosen, it->seen[token]++);
        are_slots = are_slots || (uint64_t)slots[row] >= it->tokens;
    }
    for (size_t token = 0; token < it->tokens && good && are_slots; token++) {
        int64_t *took = it->took[side] + token * it->chosen, *own = placed + token * it->chosen;
        if (memcmp(took, own, it->chosen * sizeof *took) == 0)
            continue;
        it->counted[token] = it->counted[token] || !is_by_logits(it, side, token, own);
        memcpy(took, own, it->chosen * sizeof *took);
    }
    free(slots);
}

/* What was chosen rises along the order of both sides. */
static bool rise(struct gathering *it, size_t looked)
{
    for (int across = 0; across < 2; across++) {
        it->across = across;
        if (rises(it, 0, looked) && rises(it, 1, looked))
            return true;
    }
    return false;
}

/* These logits explain the order of both sides. Those of some tokens are tried first: a hidden state may look like
 * logits, and there are many, and wide ones. */
static bool explains(struct gathering *it, const struct ts_scene *scene)
{
    if (scene->taken_count < it->tokens) {
        memset(it->tied, true, it->tokens * sizeof *it->tied);
        for (size_t row = 0; row < scene->taken_count; row++)
            it->tied[scene->taken[row]] = false;
        if (!choose(it, 0, scene->taken, scene->taken_count) || !choose(it, 1, scene->taken, scene->taken_count) ||
            !rise(it, scene->taken_count / 2)) /* more of them may be tied */
            return false;
    }
    memset(it->tied, 0, it->tokens * sizeof *it->tied);
    if (!choose(it, 0, NULL, it->tokens) || !choose(it, 1, NULL, it->tokens) || !rise(it, it->tokens))
        return false;
    memset(it->counted, 0, it->tokens * sizeof *it->counted);
    read_slots(it, 0);
    read_slots(it, 1);
    return true;
}

static bool find_logits(struct gathering *it, struct ts_judge *state, size_t i)
{
    for (size_t back = 1; back <= BACK && back <= i; back++) {
        const struct ts_actor *actor = ts_scene_actor(&state->scene, i - back);
        if (!actor || actor->heads != 1 || actor->apart || actor->width <= it->chosen || actor->width > MOST_EXPERTS ||
            actor->rows != state->scene.taken_count || state->pairs[i - back].a.count != it->tokens * actor->width ||
            !ts_same_layer(state->pairs[i - back].name, it->order->name))
            continue;
        it->logits = &state->pairs[i - back];
        it->experts = actor->width;
        it->bits[0] = actor->bits_a;
        it->bits[1] = actor->bits_b;
        if (explains(it, &state->scene))
            return true;
    }
    return false;
}

void ts_judge_gathering(struct ts_judge *state, size_t i)
{
    struct ts_verdict *verdict = &state->out->verdicts[i];
    struct gathering it;
    size_t flipped = 0, turned = 0, counted = 0, row = 0;
    state->gathered = i;
    verdict->judged = TS_JUDGED_NOISE;
    verdict->why = "the same numbers in a different order: experts gather tokens as they come";
    if (open_gathering(&it, state, i) && find_logits(&it, state, i)) {
        for (size_t token = 0; token < it.tokens; token++) {
            const int64_t *a = it.took[0] + token * it.chosen, *b = it.took[1] + token * it.chosen;
            const bool others = !ts_are_same_experts(a, b, it.chosen) || it.hidden[0][token] != it.hidden[1][token];
            while (row < state->scene.taken_count && state->scene.taken[row] < token)
                row++;
            flipped += others;
            if (!others && !it.hidden[0][token] && memcmp(a, b, it.chosen * sizeof *a) != 0)
                *(it.counted[token] ? &counted : &turned) += 1;
            if (row == state->scene.taken_count || state->scene.taken[row] != token)
                continue;
            if (others || it.hidden[0][token])
                ts_judge_leave_out(state, row, false);
            else if (memcmp(a, b, it.chosen * sizeof *a) != 0)
                ts_judge_turn_round(state, i, row, it.chosen);
        }
        if (flipped)
            verdict->why =
                ts_judge_say(state->out, "%zu token%s routed to different experts; %s set aside from here on", flipped,
                             flipped == 1 ? " was" : "s were", flipped == 1 ? "it is" : "they are");
        else if (counted)
            verdict->why =
                ts_judge_say(state->out, "%zu token%s the same experts, in slots that are counted in another order",
                             turned + counted, turned + counted == 1 ? " has" : "s have");
        else if (turned)
            verdict->why = ts_judge_say(state->out, "%zu token%s the same experts in another order, on a near tie",
                                        turned, turned == 1 ? " has" : "s have");
    }
    close_gathering(&it);
}
