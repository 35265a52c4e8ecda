/* Owns the list of what may go wrong in attention. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/attention_chain.h"
#include "diagnose/variant.h"

struct list {
    const struct ts_chain *own;
    size_t tokens, hidden, onset;
    bool mixable;
    const struct ts_other_values *others;
    struct ts_chain_guess *guesses;
    size_t count;
};

static struct ts_chain_guess *add(struct list *list, const char *id)
{
    struct ts_chain_guess *guess =
        &list->guesses[list->count < TS_MOST_GUESSES - 1 ? list->count++ : TS_MOST_GUESSES - 1];
    *guess = (struct ts_chain_guess){.id = id, .chain = *list->own};
    return guess;
}

static void guess_rotary(struct list *list)
{
    static const double bases[] = {1e4, 1e5, 5e5, 1e6, 5e6, 1e7}, factors[] = {0.02, 0.1, 10, 50, 100};
    static const struct {
        double q, k;
        const char *text;
    } turns[] = {{0, 0, "the rotary embedding is not applied"},
                 {0, 1, "the rotary embedding is not applied to the queries"},
                 {1, 0, "the rotary embedding is not applied to the keys"},
                 {-1, -1, "the rotary embedding turns the other way"},
                 {1, 2, "the rotary embedding is applied twice to the keys"},
                 {2, 1, "the rotary embedding is applied twice to the queries"},
                 {2, 2, "all angles are twice the reference's"},
                 {0.5, 0.5, "all angles are half the reference's"},
                 {4, 4, "all angles are 4 times the reference's"},
                 {0.25, 0.25, "all angles are a quarter of the reference's"},
                 {8, 8, "all angles are 8 times the reference's"},
                 {0.125, 0.125, "all angles are an eighth of the reference's"}};
    struct ts_chain_guess *guess;
    if (!(list->own->base > 0))
        return;
    for (size_t i = 0; i < sizeof bases / sizeof *bases + sizeof factors / sizeof *factors; i++) {
        double base =
            i < sizeof bases / sizeof *bases ? bases[i] : list->own->base * factors[i - sizeof bases / sizeof *bases];
        if (fabs(base / list->own->base - 1) < 0.01)
            continue;
        guess = add(list, "rotation");
        guess->chain.base = base;
        snprintf(guess->text, sizeof guess->text, "the angles fit theta = %s, the reference's %s",
                 ts_plain_number(base, 4, (char[32]){0}), ts_plain_number(list->own->base, 4, (char[32]){0}));
    }
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        guess = add(list, "rotation");
        guess->chain.q_turns = turns[i].q;
        guess->chain.k_turns = turns[i].k;
        snprintf(guess->text, sizeof guess->text, "%s", turns[i].text);
    }
    for (int from = -1; from <= 1; from += 2) {
        guess = add(list, "rotation");
        guess->chain.k_from = from;
        snprintf(guess->text, sizeof guess->text, "positions of keys and queries are off by one from each other");
    }
    guess = add(list, "rotation");
    guess->chain.late = 1;
    snprintf(guess->text, sizeof guess->text, "the last query turns as one position later");
    guess = add(list, "rotation");
    guess->chain.interleaved = !guess->chain.interleaved;
    snprintf(guess->text, sizeof guess->text, "the rotary embedding turns the wrong pairs (%s)",
             guess->chain.interleaved ? "interleaved" : "half-split");
    if (list->own->group >= 8) {
        guess = add(list, "rotation");
        guess->chain.group /= 2;
        snprintf(guess->text, sizeof guess->text, "only half of the numbers turn that should");
    }
    if (list->own->group * 2 <= list->own->size) {
        guess = add(list, "rotation");
        guess->chain.group *= 2;
        snprintf(guess->text, sizeof guess->text, "twice as many numbers turn as should");
    }
}

static void guess_mask(struct list *list)
{
    size_t onset = list->onset;
    long all = (long)list->tokens;
    struct ts_chain_guess *guess;
    if (list->own->shift < all) {
        for (long shift = -1; shift <= 1; shift += 2) {
            guess = add(list, "mask");
            guess->chain.shift = shift;
            snprintf(guess->text, sizeof guess->text, "the causal mask is off by one: each token sees %s",
                     shift > 0 ? "one ahead" : "only those before it");
        }
        guess = add(list, "mask");
        guess->chain.shift = -1;
        guess->chain.first_sees_itself = true;
        snprintf(guess->text, sizeof guess->text,
                 "the causal mask is off by one: each token sees only those before it, the first itself");
        guess = add(list, "mask");
        guess->chain.shift = all;
        snprintf(guess->text, sizeof guess->text, "the causal mask is missing");
    }
    for (long change = -1; change <= 1 && list->own->window; change++) {
        guess = add(list, "mask");
        guess->chain.window = change ? list->own->window + change : 0;
        if (change)
            snprintf(guess->text, sizeof guess->text, "the window is %ld long, the reference's %ld",
                     guess->chain.window, list->own->window);
        else
            snprintf(guess->text, sizeof guess->text, "the window of %ld is missing", list->own->window);
    }
    for (long length = (long)onset; length <= (long)onset + 1 && !list->own->window && onset > 1 && length < all;
         length++)
        for (int reversed = 0; reversed < 2; reversed++) {
            guess = add(list, "mask");
            guess->chain.window = length;
            guess->reversed = reversed;
            snprintf(guess->text, sizeof guess->text, "the %s has a window of %ld, the %s none",
                     reversed ? "reference" : "candidate", length, reversed ? "candidate" : "reference");
        }
}

static void guess_weighing(struct list *list)
{
    static const struct {
        enum ts_weighing weighing;
        const char *text;
    } ways[] = {{TS_WEIGH_SCORES, "the softmax is missing: the scores themselves weigh the values"},
                {TS_WEIGH_LOWERED, "the exponentials of the softmax are not divided by their sum"},
                {TS_WEIGH_EXPONENTS, "the exponentials of the softmax are not divided by their sum"}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct ts_chain_guess *guess = add(list, "softmax");
        guess->chain.weighing = ways[i].weighing;
        snprintf(guess->text, sizeof guess->text, "%s", ways[i].text);
    }
}

/* One of queries, keys and values in the place of another. */
static void guess_roles(struct list *list)
{
    static const struct {
        enum ts_role roles[3];
        const char *id, *text;
    } ways[] = {
        {{TS_ROLE_KEY, TS_ROLE_QUERY, TS_ROLE_VALUE}, "swapped-with", "queries and keys are exchanged"},
        {{TS_ROLE_QUERY, TS_ROLE_QUERY, TS_ROLE_VALUE}, "wrong-input", "the keys are the queries"},
        {{TS_ROLE_QUERY, TS_ROLE_KEY, TS_ROLE_QUERY}, "wrong-input", "the values are the queries"},
        {{TS_ROLE_QUERY, TS_ROLE_VALUE, TS_ROLE_KEY}, "swapped-with", "keys and values are exchanged"},
        {{TS_ROLE_QUERY, TS_ROLE_VALUE, TS_ROLE_VALUE}, "wrong-input", "the keys are the values"},
        {{TS_ROLE_QUERY, TS_ROLE_KEY, TS_ROLE_KEY}, "wrong-input", "the values are the keys"},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        bool queries = ways[i].roles[1] == TS_ROLE_QUERY || ways[i].roles[2] == TS_ROLE_QUERY;
        bool values = ways[i].roles[1] == TS_ROLE_VALUE || ways[i].roles[2] != TS_ROLE_VALUE;
        if (queries && list->own->served != list->own->heads)
            continue;
        /* whether values turn depends on when they are taken for what turns */
        for (int before = 0; before < (values && list->own->base > 0 ? 2 : 1); before++) {
            struct ts_chain_guess *guess = add(list, ways[i].id);
            memcpy(guess->chain.roles, ways[i].roles, sizeof guess->chain.roles);
            guess->chain.turned_before = before;
            snprintf(guess->text, sizeof guess->text, "%s%s", ways[i].text,
                     !values || !(list->own->base > 0) ? ""
                     : before                          ? ", behind the rotary embedding"
                                                       : ", before the rotary embedding");
        }
    }
}

static void guess_rest(struct list *list)
{
    static const double caps[] = {50, 30, 20};
    size_t onset = list->onset;
    double root = sqrt((double)list->own->size), hidden = sqrt((double)list->hidden);
    const double factors[] = {root, 1 / root, root / hidden, hidden / root, 1.3, 1 / 1.3, 2, 0.5, 4, 0.25, 8, 0.125};
    struct ts_chain_guess *guess;
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        guess = add(list, "softmax");
        guess->chain.scale *= factors[i];
        snprintf(guess->text, sizeof guess->text, "the scores are %.4g times the reference's before the softmax",
                 factors[i]);
    }
    if (list->mixable) {
        guess = add(list, "softmax");
        guess->chain.over_queries = true;
        snprintf(guess->text, sizeof guess->text, "the softmax runs over the queries instead of the keys");
    }
    if (list->own->cap > 0) {
        guess = add(list, "softmax");
        guess->chain.cap = 0;
        snprintf(guess->text, sizeof guess->text, "the soft cap of %.3g on the scores is missing", list->own->cap);
    }
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) {
        if (list->own->cap > 0)
            break;
        guess = add(list, "softmax");
        guess->chain.cap = caps[i];
        snprintf(guess->text, sizeof guess->text, "the scores have a soft cap of %.3g in the candidate only", caps[i]);
    }
    if (list->own->served > 1 && list->own->served < list->own->heads) {
        guess = add(list, "heads");
        guess->chain.tiled = true;
        snprintf(guess->text, sizeof guess->text, "key and value heads are tiled instead of repeated");
        guess = add(list, "heads");
        guess->chain.tiled_keys = true;
        snprintf(guess->text, sizeof guess->text, "key heads are tiled instead of repeated, and value heads are not");
        guess = add(list, "heads");
        guess->chain.tiled_values = true;
        snprintf(guess->text, sizeof guess->text, "value heads are tiled instead of repeated, and key heads are not");
    }
    for (size_t head = 0; head < list->own->served && list->own->served > 1 && list->own->served <= 8; head++) {
        guess = add(list, "heads");
        guess->chain.copied = head;
        guess->chain.copied_from = (head + 1) % list->own->served;
        snprintf(guess->text, sizeof guess->text, "key and value head %zu is a copy of head %zu", head,
                 guess->chain.copied_from);
    }
    if (list->own->heads > 1) {
        guess = add(list, "permuted");
        guess->chain.numbers_first = true;
        snprintf(guess->text, sizeof guess->text, "queries are split into [size, heads] instead of [heads, size]");
    }
    for (size_t i = 0; i < TS_MOST_OTHERS && list->others && list->others[i].operand.actor; i++) {
        guess = add(list, "wrong-input");
        guess->chain.v = list->others[i].operand;
        guess->chain.values = list->others[i].values;
        snprintf(guess->text, sizeof guess->text, "%s", list->others[i].text);
    }
    if (list->mixable && list->own->heads > 1) {
        guess = add(list, "permuted");
        guess->chain.heads_first = true;
        snprintf(guess->text, sizeof guess->text,
                 "heads and tokens of the context are not exchanged before they are merged");
    }
    for (int way = 0; way < 4; way++) {
        bool keys = way % 2;
        guess = add(list, "shifted");
        guess->chain.moved[keys ? TS_ROLE_KEY : TS_ROLE_VALUE] = way < 2 ? 1 : -1;
        snprintf(guess->text, sizeof guess->text, "%s stand a place further %s: each token meets that of the one %s it",
                 keys ? "keys" : "values", way < 2 ? "on" : "back", way < 2 ? "before" : "behind");
    }
    if (onset >= 1 && onset < list->tokens) {
        guess = add(list, "stale");
        guess->chain.stale = onset;
        guess->chain.stale_from = onset - 1;
        snprintf(guess->text, sizeof guess->text, "key and value of token %zu are those of token %zu", onset,
                 onset - 1);
    }
}

size_t ts_chain_guesses(const struct ts_chain *own, size_t tokens, bool mixable, size_t hidden, size_t onset,
                        const struct ts_other_values *others, struct ts_chain_guess *guesses)
{
    struct list list = {own, tokens, hidden, onset, mixable, others, guesses, 0};
    guess_rotary(&list);
    guess_mask(&list);
    guess_weighing(&list);
    guess_roles(&list);
    guess_rest(&list);
    return list.count;
}
