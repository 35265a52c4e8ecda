/* Owns the proof of what a case has found: a case of a large tensor holds some of its rows, and a claim about all of
 * them is put to the others, so many at a time that memory stays what it was. A claim with a formula is put to every
 * row with the numbers it was found with; of any other its family is asked again, on some of the rows. What becomes of
 * the claim there decides its confidence, and the summary says how many rows it was tried on. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ordered.h"
#include "base/progress.h"
#include "diagnose/case.h"

#define RIVAL      0.1  /* claims so near the best one in rank are worth asking a family again */
#define MOST_WORK  6e7  /* numbers that are read and looked at for one proof: a few seconds */
#define LOOKS      8    /* so often a family looks at each number of the case */
#define REACH      10   /* earlier tensors that are loaded at least */
#define LEAST_ROWS 4    /* fewer say nothing */
#define HOLDS      0.9  /* share of what it explained at first that a claim must explain everywhere */
#define AGREES     0.01 /* a formula explains as much as the prediction did that it stands for, or this little less */
#define FEW_ROWS   0.01 /* in which a claim may fail and still hold */
#define FAR_MORE   16.0 /* times the usual error, in energy: is no rounding any more */
#define REFUTED    0.3  /* a claim that explains less of everything is not said */

/* Which rows have been looked at. */
struct rows {
    uint64_t first, count; /* of all of them */
    bool *seen;
    size_t looked;
    uint64_t at, phase; /* of the walk */
};

static bool rows_open(struct rows *rows, const struct ts_case_state *state)
{
    const struct ts_actor *actor = state->face.actor;
    *rows = (struct rows){0};
    if (state->direct) {
        rows->count = state->scene.pairs[actor->pair].a.count / state->own_last;
    } else {
        rows->first = ts_scene_first(&state->scene);
        rows->count = ts_scene_sequence(&state->scene);
        if (state->scene.batch > 1 && !rows->first && actor->rows == state->scene.taken_count &&
            state->scene.taken[actor->rows - 1] >= rows->count)
            rows->count = state->scene.tokens;
        if (actor->rows != state->scene.taken_count)
            return false;
    }
    if (rows->count <= actor->rows || rows->count > (uint64_t)1 << 24 || !(rows->seen = calloc((size_t)rows->count, 1)))
        return false;
    for (size_t i = 0; i < actor->rows; i++)
        rows->seen[state->direct ? state->own_rows[i] : state->scene.taken[i] - rows->first] = true;
    rows->looked = actor->rows;
    return true;
}

/* The next rows that nobody has looked at, in order: each batch spreads over all of them. */
static size_t next_rows(struct rows *rows, uint64_t stride, size_t most, uint64_t *out)
{
    size_t count = 0;
    while (rows->phase < stride && count < most) {
        if (rows->at >= rows->count) {
            rows->at = ++rows->phase;
            continue;
        }
        if (!rows->seen[rows->at])
            out[count++] = rows->first + rows->at;
        rows->at += stride;
    }
    qsort(out, count, sizeof *out, ts_by_number);
    return count;
}

/* How far back the claim looks: to its operation's inputs, and to whatever tensor it names. */
static size_t reach_of(const struct ts_case_state *state, const struct ts_cause *cause)
{
    const struct ts_operation *operation = &state->face.operation;
    size_t index = state->face.actor->pair, reach = REACH;
    for (unsigned k = 0; k < operation->input_count; k++)
        reach = index - operation->inputs[k] > reach ? index - operation->inputs[k] : reach;
    for (size_t back = 1; back < TS_SCENE_WINDOW && back <= index; back++)
        if (back > reach && strstr(cause->summary, state->scene.pairs[index - back].name))
            reach = back;
    return reach < index ? reach : index;
}

/* Numbers that a batch of rows takes. */
static double work_of(const struct ts_case_state *state, size_t reach, size_t family)
{
    const struct ts_actor *actor = state->face.actor;
    double width = 0, tokens = (double)ts_scene_sequence(&state->scene);
    if (state->direct)
        return (double)state->face.total * (2 + LOOKS);
    for (size_t back = 0; back <= reach; back++)
        if (!state->scene.pairs[actor->pair - back].problem && tokens > 0)
            width += (double)state->scene.pairs[actor->pair - back].a.count / (double)state->scene.tokens;
    width += (double)actor->width * (ts_families[family] == &ts_family_wiring ? 5 * LOOKS : LOOKS); /* at many others */
    /* attention works with every key */
    if (state->face.operation.kind == TS_OPERATION_SCORES)
        width += (double)actor->width * 16;
    else if (ts_families[family] == &ts_family_attention || ts_operation_is_product(&state->face.operation))
        width += (double)actor->width * tokens / 12;
    return width * (double)actor->rows;
}

/* One batch: the same family, asked again. Adds what there was to explain, and what the claim explains. */
static bool try_batch(const struct ts_case_state *state, const struct ts_case_entry *entry, size_t reach,
                      const uint64_t *list, size_t count, double *made, double *explained)
{
    struct ts_case_state *other = malloc(sizeof *other);
    struct ts_diagnosis aside = {0};
    struct ts_case_rows rows = {list, count, reach, &state->glance};
    struct ts_error ignored;
    bool good;
    if (!other)
        return false;
    ts_arena_init(&aside.arena, (size_t)1 << 22);
    good = ts_case_open_at(other, state->scene.pairs, state->deltas, state->pair_count, state->face.actor->pair,
                           state->evidence, &rows, &aside, &ignored) == TS_OK &&
           other->face.total && other->direct == state->direct;
    if (good && !other->quiet) {
        double energy = other->face.error - other->face.noise;
        other->family = entry->family;
        other->only = entry->cause.id;
        ts_families[entry->family]->propose(&other->face);
        *made += energy > 0 ? energy : 0;
        for (size_t i = 0; i < other->book->count; i++)
            if (strcmp(other->book->entries[i].cause.id, entry->cause.id) == 0)
                *explained += energy > 0 ? energy * other->book->entries[i].explained : 0;
    }
    ts_case_release(other);
    free(other);
    ts_arena_release(&aside.arena);
    return good;
}

/* Whether the formula is the claim: it explains as much of the rows that the claim was found on. */
static bool is_formula_of(struct ts_case_state *state, const struct ts_case_entry *entry)
{
    struct ts_case *face = &state->face;
    double *out = malloc(face->total * sizeof *out);
    bool good = out && entry->formula.predict(face, &entry->formula, out) &&
                (entry->formula.exact || entry->plain || ts_explained(face, out) > entry->explained - AGREES);
    ts_case_drop_scratch(state);
    free(out);
    return good;
}

/* What a proof has shown. */
struct shown {
    uint64_t rows, of_rows, failing, first_failing, calm;
    double share;  /* of the error's energy that the claim explains there */
    bool told;     /* the summary has the numbers of all of them */
    bool directed; /* in random directions */
};

/* The words with the numbers of everything. */
static void retell(struct ts_case_state *state, struct ts_case_entry *entry, const struct ts_tally *tally,
                   struct shown *shown)
{
    struct ts_cause *cause = &entry->cause;
    double share = cause->confidence;
    const char *text = entry->formula.tell(&state->face, &entry->formula, tally, &share), *whole;
    if (entry->plain || !entry->formula.predict)
        shown->share = share;
    if (!text)
        return;
    whole = ts_arena_printf(&state->face.diagnosis->arena, "%s%s", text, ts_case_remark(state, cause->id, text));
    cause->summary = whole ? whole : cause->summary;
    shown->told = entry->plain || !entry->formula.predict;
}

/* The claim's formula on every row. */
static bool prove_everywhere(struct ts_case_state *state, struct ts_case_entry *entry, struct shown *shown)
{
    const struct ts_case *face = &state->face;
    struct ts_cause_proof *proof = &entry->cause.proof;
    double limit = 1 - HOLDS * entry->explained, size = 0, noise, made, left;
    struct ts_everywhere all;
    if (!entry->formula.predict && !entry->formula.count && !entry->formula.count_at_once)
        return false;
    if (entry->formula.predict && !is_formula_of(state, entry))
        return false;
    for (size_t i = 0; i < face->total; i++)
        size += isfinite(face->expected[i]) ? face->expected[i] * face->expected[i] : 0;
    noise = size > 0 ? face->noise / size : 0;
    if (!ts_case_everywhere(state, &entry->formula, noise, limit, &all))
        return false;
    *shown =
        (struct shown){all.rows, all.of_rows, all.failing, all.first_failing, all.calm, all.equal, false, all.directed};
    if (!state->failing_count && !state->settled && !entry->plain) { /* a place is where it is */
        memcpy(state->failing, all.some, sizeof all.some);
        state->failing_count = all.some_count;
    }
    noise *= all.expected;
    noise = noise < 0.8 * all.error ? noise : 0.8 * all.error;
    size = all.expected > 0 ? all.expected : 1;
    proof->error = sqrt(all.error / size);
    proof->rounding = sqrt(noise / size);
    proof->elements = all.elements;
    if (!entry->formula.predict)
        shown->share = entry->cause.confidence;
    if (entry->formula.tell)
        retell(state, entry, &all.tally, shown);
    if (entry->formula.exact || !entry->formula.predict)
        return true;
    /* as where the claim was found: predicting nothing at all is no explanation */
    made = all.found < all.error && all.found > 4 * noise ? all.found - noise : all.error - noise;
    left = all.left > noise ? all.left - noise : 0;
    shown->share = made > 0 ? 1 - left / made : entry->explained;
    proof->left = sqrt(all.left / size);
    return true;
}

/* Without a formula: the family is asked again, as long as that takes no more than a few seconds. */
static bool prove_on_some(struct ts_case_state *state, struct ts_case_entry *entry, struct shown *shown)
{
    struct rows rows;
    double made = state->face.error - state->face.noise, explained, work, done = 0, share;
    size_t most = state->face.actor->rows, reach;
    uint64_t batches, *list = NULL;
    if (!rows_open(&rows, state))
        return false;
    explained = made * entry->explained;
    reach = state->direct ? 0 : reach_of(state, &entry->cause);
    work = work_of(state, reach, entry->family);
    batches = (rows.count + most - 1) / most;
    list = calloc(most, sizeof *list);
    /* a claim about a part of the tensor, and one that predicts nothing, is left as it is */
    while (list && !entry->plain && !entry->cause.proof.of && made > 0 && (done += work) <= MOST_WORK) {
        size_t count = next_rows(&rows, batches, most, list);
        if (count < LEAST_ROWS || atomic_load(&ts_cancelled) ||
            !try_batch(state, entry, reach, list, count, &made, &explained))
            break;
        rows.looked += count;
    }
    share = made > 0 ? explained / made : entry->explained;
    *shown = (struct shown){
        .rows = entry->formula.told_by ? entry->formula.told_by : rows.looked, .of_rows = rows.count, .share = share};
    if (!state->direct && state->scene.batch > 1) /* of a batch one sequence is looked at */
        shown->of_rows = state->scene.tokens;
    free(list);
    free(rows.seen);
    return true;
}

static void say(struct ts_case_state *state, struct ts_case_entry *entry, const struct shown *shown)
{
    struct ts_cause *cause = &entry->cause;
    const char *unit = ts_case_folded(&state->face) ? "stretch" : ts_case_row_word(&state->face), *text;
    const char *plural = ts_case_folded(&state->face) ? "stretches" : state->direct ? "rows" : "tokens";
    char number[32], where[160] = "";
    struct ts_arena *arena = &state->face.diagnosis->arena;
    if (shown->rows == shown->of_rows)
        snprintf(number, sizeof number, "all");
    else
        snprintf(number, sizeof number, "%" PRIu64 " of", shown->rows);
    if (shown->directed)
        snprintf(where, sizeof where, " (by random projections)");
    if (shown->failing)
        snprintf(where + strlen(where), sizeof where - strlen(where),
                 "; it does not hold in %" PRIu64 " of them, first in %s %" PRIu64, shown->failing, unit,
                 shown->first_failing);
    if (shown->calm)
        snprintf(where + strlen(where), sizeof where - strlen(where), "; %" PRIu64 " of %" PRIu64 " sequences %s right",
                 shown->calm, state->scene.batch, shown->calm == 1 ? "is" : "are");
    if (shown->told ||
        (shown->share >= HOLDS * entry->explained && (double)shown->failing <= FEW_ROWS * (double)shown->rows))
        text = ts_arena_printf(arena, "%s; checked on %s %" PRIu64 " %s%s", cause->summary, number, shown->of_rows,
                               plural, where);
    else
        text = ts_arena_printf(arena,
                               entry->formula.exact ? "%s; on %s %" PRIu64 " %s it holds for %.0f %% of the elements%s"
                                                    : "%s; on %s %" PRIu64 " %s it explains %.0f %% of the error%s",
                               cause->summary, number, shown->of_rows, plural,
                               100 * (shown->share > 0 ? shown->share : 0), where);
    cause->summary = text ? text : cause->summary;
    cause->proof.rows = (double)shown->rows;
    cause->proof.of_rows = (double)shown->of_rows;
}

static uint64_t rows_of_all(const struct ts_case_state *state)
{
    const struct ts_view *view = &state->scene.pairs[state->face.actor->pair].a;
    bool tokens = !state->direct && state->face.actor->rows == state->scene.taken_count;
    return tokens ? state->scene.tokens : view->count / (state->direct ? state->own_last : state->face.actor->width);
}

/* What rows err by where they err as those at hand do: of their size, or of the usual one. */
struct usual {
    double level, size;
};

enum { BEYOND };

/* Rows that err far more. */
static bool count_beyond(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                         struct ts_tally *tally)
{
    const struct usual *usual = formula->numbers;
    size_t width = the_case->actor->width;
    (void)out;
    for (size_t row = 0; row < the_case->actor->rows; row++) {
        double size = 0, error = 0;
        for (size_t i = row * width; i < (row + 1) * width; i++) {
            double own = ts_element_cost(the_case->found[i], the_case->expected[i], the_case->expected[i]);
            size += isfinite(the_case->expected[i]) ? the_case->expected[i] * the_case->expected[i] : 0;
            error += own > 0 ? own : 0;
        }
        if (ts_case_aside(the_case, row) || !(error > FAR_MORE * usual->level * fmax(size, usual->size)))
            continue;
        tally->sums[BEYOND]++;
        ts_tally_place(tally, the_case, row * width);
    }
    return true;
}

const char *ts_case_seen_on(struct ts_case_state *state, bool rounding)
{
    const char *unit = ts_case_folded(&state->face) ? "stretch" : ts_case_row_word(&state->face);
    const char *plural = ts_case_folded(&state->face) ? "stretches" : state->direct ? "rows" : "tokens";
    struct ts_everywhere all;
    struct usual usual = {0};
    struct ts_formula formula = {.count = count_beyond, .numbers = &usual, .size = sizeof usual};
    uint64_t rows = state->face.actor->rows, of_rows = rows_of_all(state);
    if (state->complete || rows >= of_rows)
        return "";
    for (size_t i = 0; i < state->face.total; i++)
        usual.size += isfinite(state->face.expected[i]) ? state->face.expected[i] * state->face.expected[i] : 0;
    usual.level = usual.size > 0 ? fmax(state->face.error, state->face.noise) / usual.size : 0;
    usual.size /= (double)rows;
    if (rounding && usual.level > 0 && ts_case_everywhere(state, &formula, 0, 0, &all)) {
        rows = all.rows;
        if (all.tally.sums[BEYOND] > 0)
            return ts_case_text(&state->face, "; of %" PRIu64 " %s it does not hold in %.0f, first in %s %" PRIu64,
                                rows, plural, all.tally.sums[BEYOND], unit, all.tally.places[0].row);
    }
    if (rows == of_rows)
        return ts_case_text(&state->face, "; checked on all %" PRIu64 " %s", of_rows, plural);
    return ts_case_text(&state->face, "; checked on %" PRIu64 " of %" PRIu64 " %s", rows, of_rows, plural);
}

void ts_case_own_up(struct ts_case_state *state)
{
    struct ts_case_book *book = state->book;
    if (state->complete)
        return;
    for (size_t i = 0; i < book->count; i++) {
        struct ts_case_entry *entry = &book->entries[i];
        struct shown shown = {.rows = state->face.actor->rows, .of_rows = rows_of_all(state), .told = true};
        if (entry->cause.proof.of_rows > 0)
            continue;
        if (entry->formula.proved)
            entry->cause.proof.rows = entry->cause.proof.of_rows = (double)shown.of_rows;
        else if (shown.rows < shown.of_rows)
            say(state, entry, &shown);
    }
}

/* weak: nothing but its own formula is worth the time. */
static void prove(struct ts_case_state *state, struct ts_case_entry *entry, bool weak)
{
    struct shown shown;
    bool everywhere;
    if (state->complete && !entry->formula.sampled) /* it was found on all there is */
        return;
    if (entry->formula.proved) {
        entry->cause.proof.rows = entry->cause.proof.of_rows = (double)rows_of_all(state);
        return;
    }
    everywhere = prove_everywhere(state, entry, &shown);
    if (!everywhere && (weak || !prove_on_some(state, entry, &shown)))
        return;
    /* what was fitted again says less about the numbers, and moves with every row */
    if (shown.share < (everywhere ? 1 : HOLDS) * entry->explained && shown.share < entry->cause.confidence) {
        double share = shown.share > 0 ? shown.share : 0;
        entry->rank -= entry->cause.confidence - share;
        entry->cause.confidence = share;
        entry->cause.proof.explained = share;
        entry->fell = true;
        say(state, entry, &shown);
        entry->explained = share;
        return;
    }
    say(state, entry, &shown);
}

/* Moves an entry whose rank fell behind those that are better now, by more than a margin. */
static void sink(struct ts_case_book *book, size_t at, double margin)
{
    while (at + 1 < book->count && book->entries[at].rank < book->entries[at + 1].rank &&
           book->entries[at].cause.confidence + margin < book->entries[at + 1].cause.confidence) {
        struct ts_case_entry first = book->entries[at + 1];
        book->entries[at + 1] = book->entries[at];
        book->entries[at++] = first;
    }
}

/* Those that fell take their place by rank; those of which too little is left go. */
static void settle(struct ts_case_book *book)
{
    size_t kept = 0;
    for (size_t i = book->count; i-- > 0;)
        if (book->entries[i].fell)
            sink(book, i, -1.0);
    for (size_t i = 0; i < book->count; i++)
        if (!(book->entries[i].cause.proof.of_rows > 0) || book->entries[i].cause.confidence >= REFUTED)
            book->entries[kept++] = book->entries[i];
    book->count = kept;
}

/* The best claim that will be said and has not been put to the proof; how many there are when there is none. */
static size_t next_claim(const struct ts_case_book *book)
{
    for (size_t at = 0, said = 0; at < book->count && said < TS_MOST_CAUSES; at++)
        if (ts_case_is_said(book, at)) {
            if (!book->entries[at].tried)
                return at;
            said++;
        }
    return book->count;
}

void ts_case_prove(struct ts_case_state *state)
{
    struct ts_case_book *book = state->book;
    size_t at = next_claim(book);
    bool best = true;
    while (at < book->count && !atomic_load(&ts_cancelled)) {
        struct ts_case_entry *entry = &book->entries[at];
        entry->tried = true;
        prove(state, entry, entry->rank <= book->entries[0].rank - RIVAL);
        if (best && !entry->fell) {
            state->failing_count = 0; /* the best one holds */
            state->settled = true;
        }
        best = false;
        if (entry->fell)
            sink(book, at, 0.1);
        if ((at = next_claim(book)) == book->count) {
            settle(book);
            at = next_claim(book);
        }
    }
}
