/* Owns what the steps of a dump have to do with each other: names that begin with "step_3/" (or step3/, step=3/), or
 * have it behind the folder of a rank.
 *
 * A dump of a server holds a warm-up, a prefill and some tokens; the reference often is one pass. Then the step that
 * has its sizes, and its token ids where both have them, stands against it; where all of them together have, all. Dumps
 * that count from another number are brought together in the order of their steps. Whoever wants it otherwise renames.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ordered.h"
#include "pair/pairing.h"
#include "pair/words.h"

#define MAX_STEPS 4096
/* Token ids are compared up to here; an equal tensor of them says more than any number of equal sizes. */
#define MAX_IDS    65536
#define IDS_WEIGHT 1000000

struct step {
    uint64_t number;
    long score;
};

struct steps {
    struct step list[MAX_STEPS];
    size_t count;
    bool plain;               /* some tensors have none */
    bool many;                /* more than MAX_STEPS */
    const char *const *given; /* B's names as they came, which a rename speaks of */
};

/* "step_12/rank_0/x", "step_12:x" of a file, "step12.x": the number and how many bytes say it. */
static bool step_of(const char *name, uint64_t *step, size_t *length)
{
    size_t digits, at = 4;
    if (strncmp(name, "step", 4) != 0)
        return false;
    at += name[at] == '_' || name[at] == '=' || name[at] == '-';
    digits = strspn(name + at, "0123456789");
    if (digits == 0 || digits > 18 || !name[at + digits] || !strchr("/:.", name[at + digits]) || !name[at + digits + 1])
        return false;
    *step = strtoull(name + at, NULL, 10);
    *length = at + digits + 1;
    return true;
}

static int by_number(const void *a, const void *b)
{
    const struct step *left = a, *right = b;
    return left->number < right->number ? -1 : left->number > right->number;
}

static struct step *find_step(struct steps *steps, uint64_t number)
{
    const struct step key = {.number = number};
    return bsearch(&key, steps->list, steps->count, sizeof key, by_number);
}

/* Steps come in runs, so that most are the one before; the others are few. */
static void list_steps(const struct ts_side *side, struct steps *steps)
{
    uint64_t number = 0, last = 0;
    size_t length;
    for (size_t i = 0; i < side->count && !steps->many; i++) {
        const bool stepped = step_of(side->names[i], &number, &length);
        steps->plain |= !stepped;
        if (!stepped || (steps->count && number == last))
            continue;
        last = number;
        if (find_step(steps, number))
            continue;
        steps->many = steps->count == MAX_STEPS;
        if (!steps->many) {
            steps->list[steps->count++] = (struct step){.number = number};
            qsort(steps->list, steps->count, sizeof *steps->list, by_number);
        }
    }
}

/* Equal (1), different (-1), or nothing to compare (0). */
static int same_ids(const struct ts_tensor *one, const struct ts_tensor *other)
{
    struct ts_error ignored;
    if (!ts_type_is_integer(one->type) || !ts_type_is_integer(other->type) || one->count < 2 || other->count < 2)
        return 0;
    if (one->count != other->count || one->count > MAX_IDS)
        return -1;
    for (uint64_t at = 0; at < one->count; at += 64) {
        int64_t a[64], b[64];
        size_t now = one->count - at < 64 ? (size_t)(one->count - at) : 64;
        if (ts_tensor_read_i64(one, at, now, a, &ignored) != TS_OK ||
            ts_tensor_read_i64(other, at, now, b, &ignored) != TS_OK)
            return 0;
        if (memcmp(a, b, now * sizeof *a) != 0)
            return -1;
    }
    return 1;
}

static const char *last_part(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

static bool is_ids(const char *name)
{
    return strcmp(last_part(name), "input_ids") == 0;
}

/* How well each step of `many` goes with the one pass of `one`: tensors of a size that it has too, and its ids. */
static enum ts_status score_steps(const struct ts_side *many, const struct ts_side *one, struct steps *steps,
                                  struct ts_error *error)
{
    uint64_t *counts = calloc(one->count + 1, sizeof *counts), number;
    const struct ts_tensor *ids = NULL;
    size_t length;
    if (!counts)
        return ts_fail_memory(error);
    for (size_t i = 0; i < one->count; i++) {
        counts[i] = one->bundle->tensors[i]->count;
        if (is_ids(one->names[i]))
            ids = one->bundle->tensors[i];
    }
    qsort(counts, one->count, sizeof *counts, ts_by_number);
    for (size_t i = 0; i < many->count; i++) {
        const struct ts_tensor *tensor = many->bundle->tensors[i];
        struct step *step = step_of(many->names[i], &number, &length) ? find_step(steps, number) : NULL;
        if (!step)
            continue;
        step->score += bsearch(&tensor->count, counts, one->count, sizeof *counts, ts_by_number) != NULL;
        if (ids && is_ids(many->names[i]))
            step->score += (long)IDS_WEIGHT * same_ids(ids, tensor);
    }
    free(counts);
    return TS_OK;
}

static void strip_step(struct ts_side *side, uint64_t wanted)
{
    uint64_t number;
    size_t length;
    for (size_t i = 0; i < side->count; i++)
        if (step_of(side->names[i], &number, &length) && number == wanted)
            side->names[i] += length;
}

/* Tensors of the one pass whose sizes are those of all steps together. */
static enum ts_status score_all(struct ts_pairer *pairer, const struct ts_side *many, const struct ts_side *one,
                                long *score, struct ts_error *error)
{
    uint64_t *sums = ts_arena_array(&pairer->scratch, many->count + 1, sizeof *sums), number;
    struct ts_table names = {0};
    size_t length;
    *score = 0;
    if (!sums || !ts_table_init(&names, many->count))
        return ts_fail_memory(error);
    for (size_t i = 0; i < many->count; i++) {
        size_t at = i;
        if (!step_of(many->names[i], &number, &length) || strncmp(many->names[i] + length, "rank", 4) == 0)
            continue; /* steps of ranks are not put together */
        ts_table_put(&names, many->names[i] + length, i, &at);
        sums[at] += many->bundle->tensors[i]->count;
    }
    ts_table_release(&names);
    qsort(sums, many->count, sizeof *sums, ts_by_number);
    for (size_t i = 0; i < one->count; i++)
        *score += one->bundle->tensors[i]->count &&
                  bsearch(&one->bundle->tensors[i]->count, sums, many->count, sizeof *sums, ts_by_number);
    return TS_OK;
}

/* A prefill and its tokens, or a prefill in chunks, against one pass: they are put together as ranks are. */
static enum ts_status join_steps(struct ts_pairer *pairer, struct ts_side *many, struct steps *steps,
                                 struct ts_error *error)
{
    const bool of_b = many == &pairer->b;
    uint64_t number;
    size_t length;
    for (size_t i = 0; i < many->count; i++) {
        const char *name = many->names[i];
        const struct step *step = step_of(name, &number, &length) ? find_step(steps, number) : NULL;
        if (step && !(many->names[i] =
                          ts_arena_printf(&pairer->scratch, "rank%zu/%s", (size_t)(step - steps->list), name + length)))
            return ts_fail_memory(error);
    }
    return ts_pairer_note(pairer, error, "the %zu steps of %c are joined: %c has their tokens in one pass",
                          steps->count, of_b ? 'B' : 'A', of_b ? 'A' : 'B');
}

/* The rename that takes a step's folder out of B's names, as they spell it and wherever it stands; NULL without memory.
 */
static const char *rename_for(struct ts_pairer *pairer, const struct steps *steps, uint64_t wanted)
{
    for (size_t i = 0; i < pairer->b.count; i++) {
        const char *name = steps->given[i], *step = name;
        uint64_t number;
        size_t length;
        if (!step_of(pairer->b.names[i], &number, &length) || number != wanted)
            continue;
        if (!step_of(step, &number, &length) && (!(step = strstr(name, "/step")) || !step_of(++step, &number, &length)))
            continue;
        return ts_arena_printf(&pairer->scratch, "s,%s%.*s%s%c,%s,", step == name ? "^" : "/", (int)length - 1, step,
                               step[length - 1] == '.' ? "\\" : "", step[length - 1], step == name ? "" : "/");
    }
    return NULL;
}

static enum ts_status choose_step(struct ts_pairer *pairer, struct ts_side *many, const struct ts_side *one,
                                  struct steps *steps, struct ts_error *error)
{
    const bool of_b = many == &pairer->b;
    size_t best = 0;
    long together;
    const char *rename = NULL;
    TS_TRY(score_steps(many, one, steps, error));
    for (size_t i = 1; i < steps->count; i++)
        if (steps->list[i].score > steps->list[best].score)
            best = i;
    TS_TRY(score_all(pairer, many, one, &together, error));
    if (steps->count > 1 && 2 * together > (long)one->count && together > steps->list[best].score)
        return join_steps(pairer, many, steps, error);
    strip_step(many, steps->list[best].number);
    if (steps->count == 1)
        return TS_OK;
    if (of_b && !(rename = rename_for(pairer, steps, steps->list[best ? 0 : 1].number)))
        return ts_fail_memory(error);
    return ts_pairer_note(pairer, error, "step %" PRIu64 " of the %zu steps of %c is compared with %c%s%s%s",
                          steps->list[best].number, steps->count, of_b ? 'B' : 'A', of_b ? 'A' : 'B',
                          rename ? "; choose another with --rename '" : "", rename ? rename : "", rename ? "'" : "");
}

/* Steps 1 2 3 against 0 1 2: B's names get A's numbers. */
static enum ts_status renumber(struct ts_pairer *pairer, const struct steps *a, struct steps *b, struct ts_error *error)
{
    uint64_t number;
    size_t length;
    for (size_t i = 0; i < pairer->b.count; i++) {
        const char *name = pairer->b.names[i];
        const struct step *step = step_of(name, &number, &length) ? find_step(b, number) : NULL;
        if (!step)
            continue;
        pairer->b.names[i] =
            ts_arena_printf(&pairer->scratch, "step_%" PRIu64 "/%s", a->list[step - b->list].number, name + length);
        if (!pairer->b.names[i])
            return ts_fail_memory(error);
    }
    for (size_t i = 0; i < pairer->a.count; i++) /* step0/ is step_0/ as well */
        if (step_of(pairer->a.names[i], &number, &length)) {
            pairer->a.names[i] =
                ts_arena_printf(&pairer->scratch, "step_%" PRIu64 "/%s", number, pairer->a.names[i] + length);
            if (!pairer->a.names[i])
                return ts_fail_memory(error);
        }
    if (a->list[0].number == b->list[0].number)
        return TS_OK;
    return ts_pairer_note(pairer, error, "steps %" PRIu64 ".. of A are compared with %" PRIu64 ".. of B",
                          a->list[0].number, b->list[0].number);
}

/* rank_0/step_3/x is step_3/rank_0/x: whoever dumps may have either folder in the other. */
static enum ts_status put_steps_first(struct ts_pairer *pairer, struct ts_side *side, struct ts_error *error)
{
    struct ts_words *words = calloc(1, sizeof *words);
    enum ts_status status = words ? TS_OK : ts_fail_memory(error);
    for (size_t i = 0; i < side->count && status == TS_OK; i++) {
        const char *name = side->names[i], *step = strstr(name, "/step");
        char folder[TS_NAME_LENGTH];
        uint64_t number;
        size_t length;
        if (!step || (size_t)(++step - name) >= sizeof folder || !step_of(step, &number, &length))
            continue;
        memcpy(folder, name, (size_t)(step - name));
        folder[step - name] = '\0';
        if (!ts_words_split(folder, words) || ts_words_take_rank(words) < 0)
            continue;
        side->names[i] = ts_arena_printf(&pairer->scratch, "step_%" PRIu64 "/%s%s", number, folder, step + length);
        if (!side->names[i])
            status = ts_fail_memory(error);
    }
    free(words);
    return status;
}

enum ts_status ts_match_steps(struct ts_pairer *pairer, struct ts_error *error)
{
    struct steps *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
    const char **given = ts_arena_array(&pairer->scratch, pairer->b.count + 1, sizeof *given);
    enum ts_status status = TS_OK;
    if (given && pairer->b.count)
        memcpy(given, pairer->b.names, pairer->b.count * sizeof *given);
    if (b)
        b->given = given;
    if (!a || !b || !given) {
        status = ts_fail_memory(error);
    } else if ((status = put_steps_first(pairer, &pairer->a, error)) == TS_OK &&
               (status = put_steps_first(pairer, &pairer->b, error)) == TS_OK) {
        list_steps(&pairer->a, a);
        list_steps(&pairer->b, b);
        if (a->many || b->many || (!a->count && !b->count))
            status = TS_OK;
        else if (a->count && !a->plain && !b->count)
            status = choose_step(pairer, &pairer->a, &pairer->b, a, error);
        else if (b->count && !b->plain && !a->count)
            status = choose_step(pairer, &pairer->b, &pairer->a, b, error);
        else if (a->count == b->count)
            status = renumber(pairer, a, b, error);
    }
    free(a);
    free(b);
    return status;
}
