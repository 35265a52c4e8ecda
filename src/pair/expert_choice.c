/* Owns whom the tokens of a layer choose, by what its router gave out. */
#include "pair/expert_choice.h"

#include <math.h>
#include <stdlib.h>

#define MOST_CHOSEN  32 /* experts of a token: bits of ties */
#define MOST_NUMBERS ((uint64_t)1 << 26)

/* The largest of a token's logits, falling; of equal ones the first. Bit i of the result: those at i and i + 1 are
 * equal. */
static uint32_t list_largest(const double *numbers, size_t count, size_t listed, uint16_t *experts)
{
    double logits[MOST_CHOSEN];
    uint32_t equal = 0;
    for (size_t i = 0; i < count; i++) {
        size_t at = i < listed ? i : listed;
        for (; at > 0 && numbers[i] > logits[at - 1]; at--)
            if (at < listed) {
                experts[at] = experts[at - 1];
                logits[at] = logits[at - 1];
            }
        if (at < listed) {
            experts[at] = (uint16_t)i;
            logits[at] = numbers[i];
        }
    }
    for (size_t i = 0; i + 1 < listed; i++)
        equal |= (uint32_t)(logits[i] == logits[i + 1]) << i;
    return equal;
}

/* The experts as they were chosen; false where one is none, or is there twice. */
static bool list_chosen(const double *numbers, size_t count, uint16_t *experts)
{
    for (size_t i = 0; i < count; i++) {
        if (!(numbers[i] >= 0 && numbers[i] < TS_MOST_EXPERTS))
            return false;
        experts[i] = (uint16_t)numbers[i];
        for (size_t k = 0; k < i; k++)
            if (experts[k] == experts[i])
                return false;
    }
    return true;
}

/* What a side's tokens would choose, as many as may be; false where a number is no logit, or no expert's. */
static bool read_side(const struct ts_view *view, const struct ts_expert_choice *choice,
                      const struct ts_expert_takers *side, size_t last, double *numbers)
{
    struct ts_error ignored;
    for (size_t token = 0; token < choice->tokens; token++) {
        uint16_t *experts = side->experts + token * choice->listed;
        if (ts_view_read_f64(view, token * last, last, numbers, &ignored) != TS_OK)
            return false;
        if (choice->whole) {
            if (!list_chosen(numbers, last, experts))
                return false;
            continue;
        }
        for (size_t i = 0; i < last; i++)
            if (!isfinite(numbers[i]))
                return false;
        side->equal[token] = list_largest(numbers, last, choice->listed, experts);
    }
    return true;
}

bool ts_expert_choice_read(const struct ts_pair *pair, uint64_t experts, uint64_t rows, struct ts_arena *arena,
                           struct ts_expert_choice *choice)
{
    const uint64_t last = pair->a.rank ? pair->a.shape[pair->a.rank - 1] : 0, tokens = last ? pair->a.count / last : 0;
    const bool whole = ts_type_is_integer(pair->a.tensor->type);
    double *numbers;
    bool good;
    if (pair->problem || tokens < rows || !tokens || !ts_view_same_shape(&pair->a, &pair->b) ||
        pair->a.count > MOST_NUMBERS || whole != ts_type_is_integer(pair->b.tensor->type) ||
        ts_type_info(pair->a.tensor->type)->components != 1 || ts_type_info(pair->b.tensor->type)->components != 1 ||
        (whole ? last > MOST_CHOSEN : last < experts || last < 2 || last > TS_MOST_EXPERTS))
        return false;
    *choice = (struct ts_expert_choice){
        .tokens = (size_t)tokens, .listed = last < MOST_CHOSEN ? (size_t)last : MOST_CHOSEN, .whole = whole};
    numbers = calloc((size_t)last, sizeof *numbers);
    good = numbers != NULL;
    for (int s = 0; s < 2 && good; s++) {
        struct ts_expert_takers *side = &choice->sides[s];
        side->experts = ts_arena_array(arena, choice->tokens, choice->listed * sizeof *side->experts);
        side->equal = ts_arena_array(arena, choice->tokens, sizeof *side->equal);
        good = side->experts && side->equal && read_side(s ? &pair->b : &pair->a, choice, side, (size_t)last, numbers);
    }
    free(numbers);
    return good;
}

void ts_expert_choice_tied(const struct ts_expert_choice *choice, int side, size_t token, size_t *first, size_t *end)
{
    const uint32_t equal = choice->sides[side].equal[token];
    *first = *end = choice->per_token;
    if (!(equal >> (choice->per_token - 1) & 1))
        return;
    while (*first > 0 && equal >> (*first - 1) & 1)
        --*first;
    do
        ++*end;
    while (*end < choice->listed && equal >> (*end - 1) & 1);
}

bool ts_expert_choice_list(struct ts_expert_choice *choice, struct ts_arena *arena)
{
    for (int s = 0; s < 2; s++) {
        struct ts_expert_takers *side = &choice->sides[s];
        size_t *firsts = side->firsts = ts_arena_array(arena, TS_MOST_EXPERTS + 2, sizeof *firsts);
        for (int pass = 0; pass < 2 && firsts; pass++) { /* count, then list */
            for (size_t token = 0; token < choice->tokens; token++) {
                size_t first, end;
                ts_expert_choice_tied(choice, s, token, &first, &end);
                for (size_t place = 0; place < end; place++) {
                    const size_t expert = side->experts[token * choice->listed + place];
                    if (pass)
                        side->members[firsts[expert + 1]] = (struct ts_expert_member){
                            .token = (uint32_t)token, .place = (uint16_t)place, .tied = place >= first};
                    firsts[expert + (pass ? 1 : 2)]++; /* the second pass moves them to where they belong */
                }
            }
            for (size_t expert = 2; expert < TS_MOST_EXPERTS + 2 && !pass; expert++)
                firsts[expert] += firsts[expert - 1];
            if (!pass && !(side->members = ts_arena_array(arena, firsts[TS_MOST_EXPERTS + 1], sizeof *side->members)))
                return false;
        }
    }
    choice->places = ts_arena_array(arena, choice->tokens, sizeof *choice->places);
    for (size_t token = 0; token < choice->tokens && choice->places; token++)
        choice->places[token] = SIZE_MAX;
    return choice->sides[0].firsts && choice->sides[1].firsts && choice->places;
}

static bool are_same_experts(const uint16_t *one, const uint16_t *other, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t k = 0;
        while (k < count && other[k] != one[i])
            k++;
        if (k == count)
            return false;
    }
    return true;
}

bool ts_expert_choice_strays(const struct ts_expert_choice *choice)
{
    const size_t k = choice->per_token;
    bool all = true;
    for (size_t token = 0; token < choice->tokens; token++) {
        const size_t at = token * choice->listed;
        size_t first, end;
        bool tied = false;
        for (int side = 0; side < 2; side++) {
            ts_expert_choice_tied(choice, side, token, &first, &end);
            tied = tied || first < end;
        }
        if (!tied && !are_same_experts(choice->sides[0].experts + at, choice->sides[1].experts + at, k))
            choice->strayed[token] = true;
        all = all && !tied;
    }
    return all;
}
