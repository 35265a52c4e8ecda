/* Owns the list of what may go wrong in attention. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/attention_chain.h"
#include "diagnose/variant.h"

/* Numbers between the usual ones are looked for in such steps, as logarithms. What is nearer to the usual one, or
 * hardly explains more, is that one. */
#define REFINE_FIRST  0.8
#define REFINE_LEAST  0.001
#define REFINE_FAR    5.0
#define REFINE_NEAR   0.01
#define REFINE_GAIN   0.9 /* of what is left unexplained */
#define REFINE_DIGITS 3
#define REFINE_MOST   4 /* numbers: a base, one of queries or keys alone, a scale, a cap */

struct list {
    const struct ts_chain *own;
    size_t tokens, hidden, onset;
    enum ts_mixing mixing;
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

double *ts_chain_number(struct ts_chain *chain, const struct ts_chain *own)
{
    bool base = chain->base != own->base, scale = chain->scale != own->scale, cap = chain->cap != own->cap;
    bool apart = (chain->queries_apart || chain->keys_apart) && chain->apart.base != own->base;
    if (base + scale + cap + apart != 1)
        return NULL;
    return base             ? &chain->base
           : apart          ? &chain->apart.base
           : scale          ? &chain->scale
           : chain->cap > 0 ? &chain->cap
                            : NULL;
}

void ts_chain_say_number(struct ts_chain_guess *guess, const struct ts_chain *own, int digits)
{
    const struct ts_chain *chain = &guess->chain;
    const char *about = digits > 2 ? "" : "about ";
    const double times = chain->scale / own->scale;
    if (chain->base != own->base || chain->queries_apart || chain->keys_apart)
        snprintf(guess->text, sizeof guess->text,
                 "the candidate's rotary angles%s fit theta = %s, the reference's theta = %s",
                 chain->queries_apart ? " of the queries"
                 : chain->keys_apart  ? " of the keys"
                                      : "",
                 ts_plain_number(chain->queries_apart || chain->keys_apart ? chain->apart.base : chain->base, digits,
                                 (char[32]){0}),
                 ts_plain_number(own->base, 4, (char[32]){0}));
    else if (chain->scale != own->scale)
        snprintf(guess->text, sizeof guess->text,
                 "before the softmax, the candidate's scores are %s%.*g times the reference's", about,
                 digits + (fabs(times - 1) < 0.1), times);
    else
        snprintf(guess->text, sizeof guess->text, "only the candidate has a softcap on the scores (%s%.*g)", about,
                 digits, chain->cap);
}

static void refine(struct ts_chain_guess *guess, ptrdiff_t at, const struct ts_chain *own, ts_chain_score score,
                   void *from)
{
    struct ts_chain_guess best = *guess;
    const double *listed = (double *)((char *)&guess->chain + at), *number = (double *)((char *)&best.chain + at);
    for (double step = REFINE_FIRST; step > REFINE_LEAST; step /= 2)
        for (int side = -1; side <= 1; side += 2)
            for (bool better = true; better && fabs(log(*number / *listed)) < REFINE_FAR;) {
                struct ts_chain_guess trial = best;
                *(double *)((char *)&trial.chain + at) *= exp(side * step);
                trial.score = score(from, &trial.chain);
                better = trial.score > best.score;
                best = better ? trial : best;
            }
    if (fabs(log(*number / *listed)) < REFINE_NEAR || !(1 - best.score < REFINE_GAIN * (1 - guess->score)))
        return;
    *guess = best;
    guess->refined = true;
    ts_chain_say_number(guess, own, REFINE_DIGITS);
}

void ts_chain_refine(struct ts_chain_guess *guesses, size_t count, const struct ts_chain *own, ts_chain_score score,
                     void *from)
{
    struct {
        struct ts_chain_guess *best;
        ptrdiff_t at;
    } numbers[REFINE_MOST];
    size_t number_count = 0;
    for (size_t g = 0; g < count; g++) {
        const double *number = guesses[g].reversed ? NULL : ts_chain_number(&guesses[g].chain, own);
        ptrdiff_t at = number ? (const char *)number - (const char *)&guesses[g].chain : 0;
        size_t n = 0;
        if (!number || !(guesses[g].score > 0))
            continue;
        while (n < number_count && numbers[n].at != at)
            n++;
        if (n == number_count && n == REFINE_MOST)
            continue;
        if (n == number_count) {
            numbers[n].at = at;
            numbers[number_count++].best = &guesses[g];
        } else if (guesses[g].score > numbers[n].best->score)
            numbers[n].best = &guesses[g];
    }
    for (size_t n = 0; n < number_count; n++)
        refine(numbers[n].best, numbers[n].at, own, score, from);
}

/* Queries or keys alone that turn in another way. */
static void guess_apart(struct list *list)
{
    static const double factors[] = {0.01, 0.1, 10, 100};
    const struct ts_turning own = {list->own->base, list->own->interleaved, list->own->group};
    for (int keys = 0; keys < 2; keys++)
        for (size_t way = 0; way < 3 + sizeof factors / sizeof *factors; way++) {
            const char *whose = keys ? "keys" : "queries";
            struct ts_chain_guess *guess;
            if ((way == 1 && own.group < 8) || (way == 2 && own.group * 2 > list->own->size))
                continue;
            guess = add(list, "rotation");
            guess->fine = true;
            guess->chain.apart = own;
            guess->chain.queries_apart = !keys;
            guess->chain.keys_apart = keys;
            if (way == 0) {
                guess->chain.apart.interleaved = !own.interleaved;
                snprintf(guess->text, sizeof guess->text, "the candidate rotates the wrong pairs of the %s (%s)", whose,
                         own.interleaved ? "half-split" : "interleaved");
            } else if (way < 3) {
                guess->chain.apart.group = way == 1 ? own.group / 2 : own.group * 2;
                snprintf(guess->text, sizeof guess->text,
                         "the candidate rotates %s as many channels of each head of the %s as it should",
                         way == 1 ? "half" : "twice", whose);
            } else {
                guess->chain.apart.base *= factors[way - 3];
                ts_chain_say_number(guess, list->own, 2);
            }
        }
}

/* Another share of each head is rotated. */
static void guess_share(struct list *list)
{
    const size_t own = list->own->group, size = list->own->size;
    const size_t others[] = {own / 2, own * 2, own / 4, size};
    static const char *const words[] = {"half as many", "twice as many", "a quarter of the", "all"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct ts_chain_guess *guess;
        if (others[i] < 4 || others[i] % 2 || others[i] > size || (others[i] == size && own * 2 >= size && i == 3))
            continue;
        guess = add(list, "rotation");
        guess->chain.group = others[i];
        snprintf(guess->text, sizeof guess->text,
                 "the candidate rotates %s channels of each head%s (%zu instead of %zu)", words[i],
                 i < 2 ? " as it should" : "", others[i], own);
    }
}

static void guess_rotary(struct list *list)
{
    static const double bases[] = {1e4, 1e5, 5e5, 1e6, 5e6, 1e7}, factors[] = {0.01, 0.02, 0.1, 10, 50, 100};
    static const struct {
        double q, k;
        const char *text;
    } turns[] = {{0, 0, "the candidate does not apply the rotary embedding"},
                 {0, 1, "the candidate does not apply the rotary embedding to the queries"},
                 {1, 0, "the candidate does not apply the rotary embedding to the keys"},
                 {-1, -1, "the candidate rotates in the opposite direction (the sign of the sine)"},
                 {1, 2, "the candidate applies the rotary embedding twice to the keys"},
                 {2, 1, "the candidate applies the rotary embedding twice to the queries"},
                 {2, 2, "all rotary angles are twice the reference's"},
                 {0.5, 0.5, "all rotary angles are half the reference's"},
                 {4, 4, "all rotary angles are 4 times the reference's"},
                 {0.25, 0.25, "all rotary angles are a quarter of the reference's"},
                 {8, 8, "all rotary angles are 8 times the reference's"},
                 {0.125, 0.125, "all rotary angles are an eighth of the reference's"},
                 {-1, 1, "the candidate rotates the queries in the opposite direction (the sign of the sine)"},
                 {1, -1, "the candidate rotates the keys in the opposite direction (the sign of the sine)"},
                 {0.5, 1, "the rotary angles of the queries are half the reference's"},
                 {1, 0.5, "the rotary angles of the keys are half the reference's"},
                 {0.25, 1, "the rotary angles of the queries are a quarter of the reference's"},
                 {1, 0.25, "the rotary angles of the keys are a quarter of the reference's"},
                 {0.125, 1, "the rotary angles of the queries are an eighth of the reference's"},
                 {1, 0.125, "the rotary angles of the keys are an eighth of the reference's"}};
    static const int far[] = {-100, -3, -1, 1, 3, 100}; /* positions that keys are off */
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
        snprintf(guess->text, sizeof guess->text,
                 "the candidate's rotary angles fit theta = %s, the reference's theta = %s",
                 ts_plain_number(base, 4, (char[32]){0}), ts_plain_number(list->own->base, 4, (char[32]){0}));
    }
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        guess = add(list, "rotation");
        guess->chain.q_turns *= turns[i].q;
        guess->chain.k_turns *= turns[i].k;
        snprintf(guess->text, sizeof guess->text, "%s", turns[i].text);
    }
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        guess = add(list, "rotation");
        guess->chain.k_from = far[i];
        if (abs(far[i]) == 1)
            snprintf(guess->text, sizeof guess->text,
                     "the candidate's query and key positions are off by one from each other");
        else
            snprintf(guess->text, sizeof guess->text,
                     "the positions of the candidate's keys are off by %+d from those of its queries", far[i]);
    }
    guess = add(list, "rotation");
    guess->chain.late = 1;
    snprintf(guess->text, sizeof guess->text, "the candidate rotates the last query as if it were one position later");
    guess_apart(list);
    guess = add(list, "rotation");
    guess->chain.interleaved = !guess->chain.interleaved;
    snprintf(guess->text, sizeof guess->text, "the candidate rotates the wrong pairs (%s)",
             guess->chain.interleaved ? "interleaved" : "half-split");
    guess_share(list);
}

/* Another window than the reference's: none, one by one off, half or twice as long, or as long as nothing is wrong. */
static void guess_window(struct list *list)
{
    const long own = list->own->window, onset = (long)list->onset;
    const long others[] = {0, own - 1, own + 1, own / 2, 2 * own, onset, onset + 1};
    for (size_t i = 0; i < sizeof others / sizeof *others && own; i++) {
        struct ts_chain_guess *guess;
        bool known = others[i] == own || (others[i] < 1 && i) || (i > 4 && others[i] < 2);
        for (size_t k = 1; k < i; k++)
            known = known || others[k] == others[i];
        if (known)
            continue;
        guess = add(list, "mask");
        guess->chain.window = others[i];
        if (others[i])
            snprintf(guess->text, sizeof guess->text,
                     "the candidate's sliding window is %ld tokens, the reference's %ld", others[i], own);
        else
            snprintf(guess->text, sizeof guess->text, "the candidate lacks the sliding window of %ld tokens", own);
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
            snprintf(guess->text, sizeof guess->text, "the candidate's causal mask is off by one: each token sees %s",
                     shift > 0 ? "one token ahead" : "the tokens before it but not itself");
        }
        guess = add(list, "mask");
        guess->chain.shift = -1;
        guess->chain.first_sees_itself = true;
        snprintf(guess->text, sizeof guess->text,
                 "the candidate's causal mask is off by one: each token sees the tokens before it but not itself, "
                 "except the first");
        guess = add(list, "mask");
        guess->chain.shift = all;
        snprintf(guess->text, sizeof guess->text, "the candidate has no causal mask");
    }
    if (list->own->shift < all || list->own->window) {
        guess = add(list, "mask");
        guess->fine = true;
        guess->chain.masked_late = true;
        snprintf(guess->text, sizeof guess->text,
                 "the candidate applies the mask after the softmax, which has seen every token");
    }
    guess_window(list);
    for (long length = (long)onset; length <= (long)onset + 1 && !list->own->window && onset > 1 && length < all;
         length++)
        for (int reversed = 0; reversed < 2; reversed++) {
            guess = add(list, "mask");
            guess->chain.window = length;
            guess->reversed = reversed;
            snprintf(guess->text, sizeof guess->text, "the %s has a sliding window of %ld tokens, the %s has none",
                     reversed ? "reference" : "candidate", length, reversed ? "candidate" : "reference");
        }
}

static void guess_weighing(struct list *list)
{
    static const struct {
        enum ts_weighing weighing;
        const char *text;
    } ways[] = {{TS_WEIGH_SCORES, "the candidate applies no softmax: the scores themselves weight the values"},
                {TS_WEIGH_LOWERED, "the candidate does not divide the softmax exponentials by their sum"},
                {TS_WEIGH_EXPONENTS, "the candidate does not divide the softmax exponentials by their sum"}};
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
        {{TS_ROLE_KEY, TS_ROLE_QUERY, TS_ROLE_VALUE}, "swapped-with", "the candidate swaps queries and keys"},
        {{TS_ROLE_QUERY, TS_ROLE_QUERY, TS_ROLE_VALUE}, "wrong-input", "the candidate uses the queries as keys"},
        {{TS_ROLE_QUERY, TS_ROLE_KEY, TS_ROLE_QUERY}, "wrong-input", "the candidate uses the queries as values"},
        {{TS_ROLE_QUERY, TS_ROLE_VALUE, TS_ROLE_KEY}, "swapped-with", "the candidate swaps keys and values"},
        {{TS_ROLE_QUERY, TS_ROLE_VALUE, TS_ROLE_VALUE}, "wrong-input", "the candidate uses the values as keys"},
        {{TS_ROLE_QUERY, TS_ROLE_KEY, TS_ROLE_KEY}, "wrong-input", "the candidate uses the keys as values"},
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
                     : before                          ? ", taken after the rotary embedding"
                                                       : ", taken before the rotary embedding");
        }
    }
}

/* Queries, keys, values or all of them split into heads in another way; heads merged in another way. */
static void guess_splits(struct list *list)
{
    static const char *const whose[] = {"the queries", "the keys", "the values", "queries, keys and values"};
    const size_t heads[] = {list->own->heads, list->own->served, list->own->served, list->own->heads};
    struct ts_chain_guess *guess;
    for (enum ts_split split = TS_SPLIT_NUMBERS; split <= (list->mixing ? TS_SPLIT_UNTURNED : TS_SPLIT_NUMBERS);
         split++)
        for (int role = 0; role < 4; role++) {
            if (heads[role] < 2)
                continue;
            guess = add(list, "permuted");
            for (int i = 0; i < 3; i++)
                guess->chain.splits[i] = role == i || role == 3 ? split : TS_SPLIT_HEADS;
            if (split == TS_SPLIT_NUMBERS)
                snprintf(guess->text, sizeof guess->text,
                         "the candidate splits %s into [head_dim, heads] instead of [heads, head_dim]", whose[role]);
            else
                snprintf(guess->text, sizeof guess->text,
                         "the candidate takes %s for [heads, tokens, head_dim]: viewed so in place of transposed",
                         whose[role]);
        }
    for (int viewed = 0; viewed < 2 && list->mixing && list->own->heads > 1; viewed++) {
        guess = add(list, "permuted");
        guess->chain.heads_first = true;
        for (int i = 0; i < 3 && viewed; i++)
            guess->chain.splits[i] = TS_SPLIT_UNTURNED;
        snprintf(guess->text, sizeof guess->text, "%s",
                 viewed ? "the candidate views queries, keys and values as [heads, tokens, head_dim], and the context "
                          "back, where heads and tokens must be transposed"
                        : "the candidate merges the heads of the context without transposing heads and tokens first");
    }
}

/* A key head in the place of the one before it. */
static void guess_copies(struct list *list)
{
    static const char *const whats[] = {"key and value head", "key head", "value head"};
    const size_t served = list->own->served;
    for (size_t head = 0; head < served && served > 1 && served <= 8; head++)
        for (enum ts_copy copies = TS_COPY_BOTH; copies <= TS_COPY_VALUES; copies++) {
            struct ts_chain_guess *guess = add(list, "heads");
            guess->fine = true; /* whatever one head does looks much alike */
            guess->chain.copied = head;
            guess->chain.copied_from = (head + 1) % served;
            guess->chain.copies = copies;
            snprintf(guess->text, sizeof guess->text, "the candidate's %s %zu is a copy of head %zu", whats[copies],
                     head, guess->chain.copied_from);
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
        snprintf(guess->text, sizeof guess->text,
                 "before the softmax, the candidate's scores are %.4g times the reference's%s", factors[i],
                 i == 0   ? ", as they are without 1 / sqrt(head_dim)"
                 : i == 1 ? ", as they are with 1 / sqrt(head_dim) twice"
                          : "");
    }
    if (list->mixing == TS_MIXES_ALL) {
        guess = add(list, "softmax");
        guess->chain.over_queries = true;
        snprintf(guess->text, sizeof guess->text, "the candidate's softmax runs over the queries instead of the keys");
    }
    if (list->own->cap > 0) {
        guess = add(list, "softmax");
        guess->chain.cap = 0;
        snprintf(guess->text, sizeof guess->text, "the candidate lacks the softcap of %.3g on the scores",
                 list->own->cap);
    }
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) {
        if (list->own->cap > 0)
            break;
        guess = add(list, "softmax");
        guess->chain.cap = caps[i];
        snprintf(guess->text, sizeof guess->text, "only the candidate has a softcap on the scores (%.3g)", caps[i]);
    }
    if (list->own->served > 1 && list->own->served < list->own->heads) {
        guess = add(list, "heads");
        guess->chain.tiled = true;
        snprintf(guess->text, sizeof guess->text, "the candidate tiles key and value heads instead of repeating each");
        guess = add(list, "heads");
        guess->chain.tiled_keys = true;
        snprintf(guess->text, sizeof guess->text,
                 "the candidate tiles the key heads instead of repeating each; the value heads are right");
        guess = add(list, "heads");
        guess->chain.tiled_values = true;
        snprintf(guess->text, sizeof guess->text,
                 "the candidate tiles the value heads instead of repeating each; the key heads are right");
    }
    guess_copies(list);
    for (size_t i = 0; i < TS_MOST_OTHERS && list->others && list->others[i].operand.actor; i++) {
        guess = add(list, "wrong-input");
        guess->chain.v = list->others[i].operand;
        guess->chain.values = list->others[i].values;
        snprintf(guess->text, sizeof guess->text, "%s", list->others[i].text);
    }
    for (int way = 0; way < 4; way++) {
        bool keys = way % 2;
        guess = add(list, "shifted");
        guess->chain.moved[keys ? TS_ROLE_KEY : TS_ROLE_VALUE] = way < 2 ? 1 : -1;
        snprintf(guess->text, sizeof guess->text,
                 "the candidate's %s are one token %s: each token gets those of the token %s it",
                 keys ? "keys" : "values", way < 2 ? "late" : "early", way < 2 ? "before" : "after");
    }
    if (onset >= 1 && onset < list->tokens) {
        guess = add(list, "stale");
        guess->chain.stale = onset;
        guess->chain.stale_from = onset - 1;
        snprintf(guess->text, sizeof guess->text, "the candidate's key and value of token %zu are those of token %zu",
                 onset, onset - 1);
    }
}

size_t ts_chain_guesses(const struct ts_chain *own, size_t tokens, enum ts_mixing mixing, size_t hidden, size_t onset,
                        const struct ts_other_values *others, struct ts_chain_guess *guesses)
{
    struct list list = {own, tokens, hidden, onset, mixing, others, guesses, 0};
    guess_rotary(&list);
    guess_mask(&list);
    guess_weighing(&list);
    guess_roles(&list);
    guess_splits(&list);
    guess_rest(&list);
    return list.count;
}
