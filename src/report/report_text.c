/* Owns the text report but its table: the head, the first divergence, what was left out, the verdict. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "report/changes.h"
#include "report/facts.h"
#include "report/report.h"
#include "report/text_lines.h"
#include "report/text_table.h"

/* Entries of a list shown without --all. */
#define SOME 8
/* Columns of "A (reference)  " before an input, and of "A  " where the path would be cut. Notes and recipes say A and
 * B, other sentences say which is which. */
#define INPUT_LABEL 15
#define INPUT_BRIEF 3
/* Columns of "  operation  ". */
#define LABEL 13

#define MOST_RECIPES  64
#define RECIPES_SHOWN 3

struct text {
    const struct ts_comparison *comparison;
    const struct ts_report_options *options;
    const struct ts_layout *layout;
    struct ts_buffer *out;
};

static const char *text_of(const struct ts_buffer *buffer)
{
    return buffer->data ? buffer->data : "";
}

static const char *plural(size_t count)
{
    return count == 1 ? "" : "s";
}

/* A sentence of its own, its later lines indented by two more than its first. */
static void put_sentence(const struct text *text, const char *sentence, size_t indent)
{
    ts_put_spaces(text->out, indent);
    ts_put_folded(text->layout, text->out, sentence, indent, indent + 2);
    ts_buffer_byte(text->out, '\n');
}

/* What stands above a list: an empty line, then the words. */
static void put_heading(const struct text *text, const char *words)
{
    ts_buffer_byte(text->out, '\n');
    put_sentence(text, words, 0);
}

/* How many entries of a list are shown. A single one that is left takes no more room than to say so. */
static size_t shown_of(const struct text *text, size_t count)
{
    return text->options->all || count <= SOME + 1 ? count : SOME;
}

static void put_more(const struct text *text, size_t count)
{
    char words[64];
    snprintf(words, sizeof words, "%zu more; see them with --all", count);
    put_sentence(text, words, 2);
}

/* What an input holds: "63 tensors, f32 holding bf16 values, 154 kB". */
static void put_contents(struct ts_buffer *line, const struct text *text, bool candidate)
{
    const struct ts_bundle *bundle = candidate ? text->comparison->b : text->comparison->a;
    char count[32], bytes[16];
    ts_buffer_printf(line, "%s tensor%s, ", ts_human_count(bundle->count, count), plural(bundle->count));
    if (bundle->count) {
        ts_put_types_in_use(line, text->comparison, candidate);
        ts_buffer_string(line, ", ");
    }
    ts_buffer_string(line, ts_human_bytes(bundle->file_bytes, bytes));
    ts_put_cost(line, text->options->costs, candidate);
}

/* Both inputs: the path of each, then what it holds, beside it where both fit so, else below it. */
static void put_inputs_head(const struct text *text)
{
    const char *paths[2] = {text->comparison->a->path, text->comparison->b->path};
    size_t width = text->layout->width, longest = 0, room = 0, label, column;
    struct ts_buffer lines[2];
    for (int i = 0; i < 2; i++) {
        size_t columns = ts_name_columns(paths[i]);
        longest = columns > longest ? columns : longest;
        ts_buffer_init(&lines[i], 65536);
        put_contents(&lines[i], text, i);
        room = lines[i].size > room ? lines[i].size : room;
    }
    label = INPUT_LABEL + longest > width ? INPUT_BRIEF : INPUT_LABEL;
    column = label + longest + 3;
    if (column + room > width)
        column = 0;
    for (int i = 0; i < 2; i++) {
        size_t used;
        ts_buffer_printf(text->out, "%c%s  ", i ? 'B' : 'A',
                         label == INPUT_BRIEF ? ""
                         : i                  ? " (candidate)"
                                              : " (reference)");
        used = label + ts_put_name(text->layout, text->out, paths[i], width - label);
        if (column) {
            ts_put_spaces(text->out, column - used);
        } else {
            ts_buffer_byte(text->out, '\n');
            ts_put_spaces(text->out, INPUT_BRIEF);
        }
        ts_put_folded(text->layout, text->out, text_of(&lines[i]), column ? column : INPUT_BRIEF, INPUT_BRIEF);
        ts_buffer_byte(text->out, '\n');
        ts_buffer_release(&lines[i]);
    }
}

/* Two recipes that differ at most in which entries they take: those of the layers of a stack. */
static bool same_but_for_entries(const char *one, const char *other)
{
    static const char entry[] = "index ";
    for (;; one++, other++) {
        if (strncmp(one, entry, sizeof entry - 1) == 0 && strncmp(other, entry, sizeof entry - 1) == 0) {
            one += sizeof entry - 1;
            other += sizeof entry - 1;
            one += strspn(one, "0123456789");
            other += strspn(other, "0123456789");
        }
        if (*one != *other || !*one)
            return *one == *other;
    }
}

/* The recipe, every entry being meant where there are several. */
static void put_recipe(struct ts_buffer *line, const char *recipe, bool several)
{
    static const char word[] = "index ";
    const char *at = recipe, *entry;
    while (several && (entry = strstr(at, word))) {
        ts_buffer_printf(line, "%.*seach", (int)(entry - at), at);
        at = entry + strlen(word);
        at += strspn(at, "0123456789");
    }
    ts_buffer_string(line, at);
}

/* "   18  B: swap 0 1" */
static void put_count(const struct text *text, size_t count, const char *what)
{
    char number[32];
    int used = snprintf(number, sizeof number, "%6zu  ", count);
    ts_buffer_string(text->out, number);
    ts_put_folded(text->layout, text->out, what, (size_t)used, (size_t)used);
    ts_buffer_byte(text->out, '\n');
}

/* Whether the table has a row of its own for this pair, which tells its layout. */
static bool has_row(const struct text *text, size_t pair)
{
    size_t count = 0;
    bool found = false;
    struct ts_line *lines = ts_list_lines(text->comparison, text->options, &count);
    for (size_t i = 0; lines && i < count && !found; i++)
        found = lines[i].kind == TS_LINE_ROW && lines[i].first == pair;
    free(lines);
    return found;
}

/* The layouts that were found, most frequent first: rows that are folded away do not show theirs. */
static void put_recipes(const struct text *text)
{
    const struct ts_pairing *pairing = &text->comparison->pairing;
    struct {
        const char *recipe;
        size_t count;
        bool several;
    } found[MOST_RECIPES];
    size_t kinds = 0, pairs = 0, others = 0, ambiguous = 0, one = 0;
    struct ts_buffer line;
    for (size_t i = 0; i < pairing->count; i++) {
        const char *recipe = pairing->pairs[i].recipe;
        size_t k = 0;
        ambiguous += pairing->pairs[i].ambiguous;
        if (!recipe || !recipe[0] || pairing->pairs[i].problem)
            continue;
        pairs++;
        one = i;
        while (k < kinds && !same_but_for_entries(found[k].recipe, recipe))
            k++;
        if (k == MOST_RECIPES) {
            others++;
            continue;
        }
        if (k == kinds) {
            found[kinds].recipe = recipe;
            found[kinds].several = false;
            found[kinds++].count = 0;
        }
        found[k].several = found[k].several || strcmp(found[k].recipe, recipe) != 0;
        found[k].count++;
    }
    if (!pairs || (pairs == 1 && !text->comparison->judgement.weights &&
                   (pairing->pairs[one].partial || has_row(text, one)))) /* a note or its row has told it */
        return;
    ts_buffer_init(&line, 65536);
    if (pairs == 1 && pairing->count > 1)
        ts_put_name(text->layout, &line, pairing->pairs[one].name, text->layout->width);
    else
        ts_buffer_printf(&line, "%zu of them", pairs);
    ts_buffer_string(&line, " needed a layout change");
    if (kinds == 1) { /* else each has a line of its own: recipes have semicolons inside */
        ts_buffer_string(&line, ": ");
        put_recipe(&line, found[0].recipe, found[0].several);
    }
    put_sentence(text, text_of(&line), 0);
    for (size_t shown = 0, most_shown = kinds == RECIPES_SHOWN + 1 ? kinds : RECIPES_SHOWN;
         kinds > 1 && shown < most_shown && shown < kinds; shown++) {
        size_t most = 0;
        for (size_t k = 1; k < kinds; k++)
            most = found[k].count > found[most].count ? k : most;
        ts_buffer_clear(&line);
        put_recipe(&line, found[most].recipe, found[most].several);
        put_count(text, found[most].count, text_of(&line));
        found[most].count = 0;
    }
    for (size_t k = 0; kinds > 1 && k < kinds; k++)
        others += found[k].count;
    if (others)
        put_count(text, others, "others; see them with --all");
    ts_buffer_clear(&line);
    ts_buffer_printf(&line, "for %zu of them another layout fits as well", ambiguous);
    if (ambiguous)
        put_sentence(text, text_of(&line), 0);
    ts_buffer_release(&line);
}

static void put_head(const struct text *text)
{
    const struct ts_comparison *comparison = text->comparison;
    struct ts_buffer line;
    put_inputs_head(text);
    ts_buffer_init(&line, 65536);
    if (comparison->pairing.count) {
        ts_buffer_string(&line, "paired ");
        ts_put_pairing(&line, comparison);
        if (comparison->pairing.order && comparison->pairing.count > 1)
            ts_buffer_printf(&line, ", in the %s", comparison->pairing.order);
        put_sentence(text, text_of(&line), 0);
    }
    put_recipes(text);
    for (size_t i = 0; i < comparison->pairing.note_count; i++)
        put_sentence(text, comparison->pairing.notes[i], 0);
    ts_buffer_release(&line);
}

/* "before   NAME: noise, 2.1 roundings of bf16" */
static void put_neighbour(const struct text *text, const char *label, size_t i)
{
    struct ts_buffer line;
    size_t used, room;
    ts_buffer_init(&line, 4096);
    ts_put_standing(&line, text->comparison, i);
    ts_buffer_printf(text->out, "  %-9s  ", label);
    room = LABEL + 2 + line.size < text->layout->width ? text->layout->width - LABEL - 2 - line.size : 0;
    if (room < 16) /* the name has a line of its own */
        room = text->layout->width > LABEL + 8 ? text->layout->width - LABEL - 2 : 5;
    used = ts_put_name(text->layout, text->out, text->comparison->pairing.pairs[i].name, room);
    ts_buffer_byte(text->out, ':');
    used += LABEL + 1;
    if (used + 1 + strcspn(text_of(&line), " ") > text->layout->width) { /* not even its first word fits beside it */
        ts_buffer_byte(text->out, '\n');
        ts_put_spaces(text->out, LABEL);
        used = LABEL;
    } else {
        ts_buffer_byte(text->out, ' ');
        used++;
    }
    ts_put_folded(text->layout, text->out, text_of(&line), used, LABEL);
    ts_buffer_byte(text->out, '\n');
    ts_buffer_release(&line);
}

static void put_fact(const struct text *text, const char *label, const char *fact)
{
    if (!fact || !fact[0])
        return;
    ts_buffer_printf(text->out, "  %-9s  ", label);
    ts_put_folded(text->layout, text->out, fact, LABEL, LABEL);
    ts_buffer_byte(text->out, '\n');
}

/* How the pairs given agree: the largest of their roundings, with the coarsest precision among them. *allowed: some do
 * by a rule of the user's, whatever their error is. */
static void put_agreement(struct ts_buffer *line, const struct ts_comparison *comparison, const size_t *pairs,
                          size_t count, bool *allowed)
{
    double most = 0;
    int bits = 64;
    *allowed = false;
    for (size_t i = 0; i < count; i++) {
        const struct ts_delta *delta = &comparison->deltas[pairs[i]];
        *allowed = *allowed || comparison->judgement.verdicts[pairs[i]].allowed;
        if (comparison->judgement.verdicts[pairs[i]].roundings > most)
            most = comparison->judgement.verdicts[pairs[i]].roundings;
        if (ts_pair_precision(delta) < bits)
            bits = ts_pair_precision(delta);
    }
    if (most == 0) {
        *allowed = false;
        ts_buffer_string(line, count == 1 ? " is equal" : " are equal");
        return;
    }
    if (*allowed)
        ts_buffer_string(line, count == 1 ? " is allowed (" : " are allowed (at most ");
    else
        ts_buffer_string(line, count == 1 ? " agrees (" : " agree (at most ");
    ts_put_short(line, most);
    ts_buffer_string(line, " roundings of ");
    ts_put_precision(line, bits);
    ts_buffer_byte(line, ')');
}

/* "Its input q_normed agrees (2.1 roundings of bf16), so the error is made here." False when no input is known. */
static bool put_inputs(struct ts_buffer *line, const struct ts_comparison *comparison, size_t first)
{
    size_t inputs[TS_MOST_INPUTS], count = ts_operation_inputs(comparison, first, inputs);
    bool allowed;
    for (size_t i = 0; i < count; i++)
        if (comparison->judgement.verdicts[inputs[i]].judged > TS_JUDGED_NOISE)
            return false;
    if (!count)
        return false;
    ts_buffer_string(line, count == 1 ? "Its input " : "Its inputs ");
    for (size_t i = 0; i < count; i++)
        ts_buffer_printf(line, "%s%s",
                         i == 0           ? ""
                         : i + 1 == count ? " and "
                                          : ", ",
                         comparison->pairing.pairs[inputs[i]].name);
    put_agreement(line, comparison, inputs, count, &allowed);
    ts_buffer_string(line, allowed ? "." : ", so the error is made here.");
    return true;
}

/* What comes before the first divergence, when its inputs are not known by name. */
static void put_before(struct ts_buffer *line, const struct ts_comparison *comparison, size_t first)
{
    const bool coarse = comparison->judgement.coarse < first; /* their noise is large */
    size_t agreeing = 0, unknown = 0;
    bool allowed = false;
    double most = 0;
    for (size_t i = 0; i < first; i++) {
        if (coarse && comparison->judgement.verdicts[i].judged == TS_JUDGED_NOISE)
            most = fmax(most, comparison->judgement.verdicts[i].error);
        *(comparison->judgement.verdicts[i].judged == TS_JUDGED_UNKNOWN ? &unknown : &agreeing) += 1;
        allowed = allowed || comparison->judgement.verdicts[i].allowed;
    }
    if (!first)
        ts_buffer_string(line, comparison->filtered ? "Nothing before it passes the filter."
                                                    : "Nothing was compared before it.");
    else if (agreeing == 1)
        ts_buffer_printf(line, "The tensor before it %s.", allowed ? "is allowed" : "agrees");
    else if (agreeing)
        ts_buffer_printf(line, "The %zu tensors before it %s.", agreeing, allowed ? "are allowed" : "agree");
    if (agreeing && most > 0 && !allowed) {
        line->size--; /* the stop */
        ts_buffer_printf(line, ", with errors of up to %.2g.", most);
    }
    if (unknown)
        ts_buffer_printf(line, "%s%zu before it could not be compared.", line->size ? " " : "", unknown);
}

/* Later tensors where error is made as well: a second bug, or the same one again. When that is said of all of them it
 * says nothing. */
static void put_others(const struct text *text, size_t first)
{
    const struct ts_judgement *judgement = &text->comparison->judgement;
    struct ts_buffer line;
    size_t count = 0;
    ts_buffer_init(&line, (size_t)1 << 20);
    for (size_t i = first + 1; i < judgement->count; i++) {
        if (judgement->verdicts[i].judged != TS_JUDGED_DIFFERS || !judgement->verdicts[i].made_here)
            continue;
        if (count++ < 4 || text->options->all)
            ts_buffer_printf(&line, "%s%s", line.size ? ", " : "", text->comparison->pairing.pairs[i].name);
    }
    if (count > 4 && !text->options->all)
        ts_buffer_printf(&line, " and %zu more", count - 4);
    if (count <= 4 || count + 1 < judgement->counts[TS_JUDGED_DIFFERS])
        put_fact(text, "also at", text_of(&line));
    ts_buffer_release(&line);
}

static void put_worst(const struct text *text, size_t first)
{
    const struct ts_pair *pair = &text->comparison->pairing.pairs[first];
    struct ts_buffer line;
    double a, b;
    uint64_t at = ts_worst_element(text->comparison, first, &a, &b);
    if (at == UINT64_MAX)
        return;
    ts_buffer_init(&line, 4096);
    ts_put_two(&line, pair, at, a, b);
    if (pair->a.rank) { /* a single number is nowhere */
        ts_buffer_string(&line, " at ");
        ts_put_coordinates(&line, &pair->a, at);
    }
    for (int side = 0; side < 2; side++) {
        const char *member = ts_pair_member(side ? &pair->b : &pair->a, at);
        if (member)
            ts_buffer_printf(&line, ", %s's in %s", side ? "the candidate" : "the reference", member);
    }
    put_fact(text, "worst", text_of(&line));
    ts_buffer_release(&line);
}

/* "rotation (0.98)", what it is, and below it what to check. */
static void put_causes(const struct text *text)
{
    const struct ts_diagnosis *diagnosis = text->options->diagnosis;
    struct ts_buffer line;
    if (!diagnosis)
        return;
    if (!diagnosis->count && !text->comparison->judgement.weights) /* weights are not made by an operation */
        put_fact(text, "structure", diagnosis->strongest);
    ts_buffer_init(&line, 65536);
    for (size_t i = 0; i < diagnosis->count && (i < 3 || text->options->all); i++) {
        const struct ts_cause *cause = &diagnosis->causes[i];
        ts_buffer_clear(&line);
        ts_buffer_printf(&line, "%s (%.2f%s): %s", cause->id, cause->confidence, cause->tied ? ", a tie" : "",
                         cause->summary ? cause->summary : "");
        put_fact(text, i ? "or" : "cause", text_of(&line));
        put_fact(text, "check", cause->check);
    }
    ts_buffer_release(&line);
}

/* What changed between two checkpoints and where, and in how many directions. */
static void put_changes(const struct text *text)
{
    struct ts_buffer line;
    size_t changed;
    ts_buffer_init(&line, (size_t)16 << 20);
    if (text->comparison->judgement.weights)
        ts_put_changes(&line, text->comparison);
    changed = line.size;
    if (changed) {
        ts_buffer_byte(text->out, '\n');
        put_sentence(text, line.data, 0);
    }
    ts_buffer_clear(&line);
    ts_put_ranks(&line, text->comparison);
    if (text->comparison->ranks && ts_changed_count(text->comparison)) {
        if (!changed)
            ts_buffer_byte(text->out, '\n');
        if (line.size)
            put_sentence(text, line.data, 0);
        put_sentence(text, ts_rank_method, 0);
    }
    ts_buffer_release(&line);
}

/* What the difference means for the choice of tokens. Without --all only for what the model gives out. */
static void put_rankings(const struct text *text)
{
    const struct ts_pairing *pairing = &text->comparison->pairing;
    struct ts_buffer line;
    bool any = false;
    ts_buffer_init(&line, (size_t)16 << 20);
    for (size_t i = 0; i < pairing->count; i++) {
        if (!ts_has_ranking(text->comparison, i) || !(text->options->all || ts_is_output(text->comparison, i)))
            continue;
        if (!any)
            ts_buffer_byte(text->out, '\n');
        any = true;
        ts_buffer_clear(&line);
        ts_buffer_printf(&line, "%s: ", pairing->pairs[i].name);
        ts_put_ranking(&line, text->comparison, i);
        put_sentence(text, text_of(&line), 0);
    }
    ts_buffer_release(&line);
}

static void put_divergence(const struct text *text)
{
    const struct ts_comparison *comparison = text->comparison;
    size_t first = comparison->judgement.first, count = comparison->pairing.count;
    const struct ts_pair *pair;
    bool weights = comparison->judgement.weights;
    struct ts_buffer line;
    size_t room;
    if (first >= count)
        return;
    pair = &comparison->pairing.pairs[first];
    ts_buffer_init(&line, (size_t)4 << 20);
    ts_buffer_string(&line, weights ? "First differing tensor:" : "First divergence:");
    room = text->layout->width > line.size ? text->layout->width - line.size - 1 : 0;
    if (room < 16 && ts_name_columns(pair->name) > room) { /* the name has a line of its own */
        ts_buffer_string(&line, "\n ");
        room = text->layout->width - 2;
    }
    ts_buffer_byte(&line, ' ');
    ts_put_name(text->layout, &line, pair->name, room);
    ts_buffer_byte(text->out, '\n');
    ts_put_styled(text->layout, text->out, TS_STYLE_BOLD, text_of(&line));
    ts_buffer_byte(text->out, '\n');
    ts_buffer_clear(&line);
    if (!weights) {
        if (!put_inputs(&line, comparison, first))
            put_before(&line, comparison, first);
        if (pair->by_order)
            ts_buffer_printf(&line, "%sBut the two were paired by position alone.", line.size ? " " : "");
        ts_put_spaces(text->out, 2);
        ts_put_folded(text->layout, text->out, text_of(&line), 2, 2);
        ts_buffer_byte(text->out, '\n');
    }
    put_causes(text);
    put_fact(text, "why", ts_reason(comparison, first));
    put_fact(text, "operation", comparison->judgement.verdicts[first].operation);
    ts_buffer_clear(&line);
    ts_put_remark(&line, pair);
    put_fact(text, "pairing", text_of(&line));
    ts_buffer_clear(&line);
    ts_put_uncaptured(&line, comparison, first);
    put_fact(text, "between", text_of(&line));
    put_worst(text, first);
    for (size_t i = first > 2 ? first - 2 : 0, k = 0; i < first && !weights; i++, k++)
        put_neighbour(text, k ? "" : "before", i);
    for (size_t i = first + 1; i < count && i <= first + 2 && !weights; i++)
        put_neighbour(text, i == first + 1 ? "after" : "", i);
    if (!weights)
        put_others(text, first);
    ts_buffer_release(&line);
}

static void put_unmatched(const struct text *text, const char *heading, const struct ts_tensor *const *tensors,
                          size_t count)
{
    size_t shown = shown_of(text, count), longest = 0;
    struct ts_buffer shape;
    if (!count)
        return;
    ts_buffer_init(&shape, 65536);
    ts_buffer_printf(&shape, "%s: %zu tensor%s", heading, count, plural(count));
    put_heading(text, text_of(&shape));
    for (size_t i = 0; i < shown; i++) {
        size_t columns = ts_name_columns(tensors[i]->name);
        longest = columns > longest ? columns : longest;
    }
    for (size_t i = 0; i < shown; i++) {
        size_t used, room;
        bool beside;
        ts_buffer_clear(&shape);
        ts_buffer_printf(&shape, "%s ", ts_tensor_type_name(tensors[i]));
        ts_tensor_shape_text(tensors[i], &shape);
        beside = shape.size + 6 + 16 < text->layout->width;
        room = text->layout->width - (beside ? shape.size + 6 : 2);
        ts_put_spaces(text->out, 2);
        used = ts_put_name(text->layout, text->out, tensors[i]->name, room);
        if (beside) {
            ts_put_spaces(text->out, used < longest && longest <= room ? longest - used : 0);
            ts_buffer_printf(text->out, "  %s\n", text_of(&shape));
        } else {
            ts_buffer_byte(text->out, '\n');
            put_sentence(text, text_of(&shape), 4);
        }
    }
    if (shown < count)
        put_more(text, count - shown);
    ts_buffer_release(&shape);
}

static void put_sampled(const struct text *text)
{
    const struct ts_pairing *pairing = &text->comparison->pairing;
    size_t all = 0, shown, count = 0;
    for (size_t i = 0; i < pairing->count; i++)
        all += ts_is_sampled(&pairing->pairs[i]);
    shown = shown_of(text, all);
    if (all)
        put_heading(text, "only a sample was dumped of");
    for (size_t i = 0; i < pairing->count; i++) {
        if (ts_is_sampled(&pairing->pairs[i]) && count++ < shown) {
            ts_put_spaces(text->out, 2);
            ts_put_name(text->layout, text->out, pairing->pairs[i].name, text->layout->width - 2);
            ts_buffer_byte(text->out, '\n');
        }
    }
    if (shown < all)
        put_more(text, all - shown);
}

static void put_skips(const struct text *text, const char *side, const struct ts_bundle *bundle)
{
    const size_t harmful = ts_harmful_skips(bundle), harmless = bundle->skip_count - harmful;
    const size_t most = shown_of(text, harmful);
    size_t shown = 0;
    struct ts_buffer line;
    if (!bundle->skip_count)
        return;
    ts_buffer_init(&line, (size_t)16 << 20);
    ts_buffer_printf(&line, "could not be read in the %s", side);
    if (harmful)
        put_heading(text, text_of(&line));
    for (size_t i = 0; i < bundle->skip_count; i++) {
        if (bundle->skips[i].harmless || shown >= most)
            continue;
        shown++;
        ts_buffer_clear(&line);
        ts_buffer_printf(&line, "%s: %s", bundle->skips[i].path, bundle->skips[i].reason);
        put_sentence(text, text_of(&line), 2);
    }
    if (shown < harmful)
        put_more(text, harmful - shown);
    if (harmless && text->options->all) {
        ts_buffer_clear(&line);
        ts_buffer_printf(&line, "no tensors in %zu other file%s of the %s", harmless, plural(harmless), side);
        put_heading(text, text_of(&line));
        for (size_t i = 0; i < bundle->skip_count; i++)
            if (bundle->skips[i].harmless)
                put_sentence(text, bundle->skips[i].path, 2);
    }
    ts_buffer_release(&line);
}

static void put_aside(const struct text *text)
{
    struct ts_buffer line;
    ts_buffer_init(&line, (size_t)16 << 20);
    for (int guessed = 0; guessed < 2; guessed++) {
        ts_buffer_clear(&line);
        ts_buffer_printf(&line, "set aside%s: ", guessed ? " (a guess)" : "");
        if (ts_put_aside(&line, &text->comparison->judgement, guessed, text->options->all ? SIZE_MAX : 16))
            put_sentence(text, text_of(&line), 0);
    }
    ts_buffer_release(&line);
}

static void put_notes(const struct text *text)
{
    const struct ts_comparison *comparison = text->comparison;
    const struct ts_judgement *judgement = &comparison->judgement;
    struct ts_buffer line;
    if (!judgement->note_count && !judgement->aside_count && !comparison->doubt_count)
        return;
    ts_buffer_byte(text->out, '\n');
    put_aside(text);
    ts_buffer_init(&line, (size_t)1 << 20);
    for (size_t i = 0; i < judgement->note_count + comparison->doubt_count; i++) {
        bool doubt = i >= judgement->note_count;
        ts_buffer_clear(&line);
        ts_buffer_printf(&line, "%s: %s", doubt ? "warning" : "note",
                         doubt ? comparison->doubts[i - judgement->note_count] : judgement->notes[i]);
        put_sentence(text, text_of(&line), 0);
    }
    ts_buffer_release(&line);
}

static void put_verdict(const struct text *text)
{
    static const enum ts_style styles[] = {TS_STYLE_GREEN, TS_STYLE_RED, TS_STYLE_YELLOW};
    const struct ts_comparison *comparison = text->comparison;
    const char *name = ts_outcome_name(comparison->outcome);
    const char *outcome = comparison->outcome_text ? comparison->outcome_text : "";
    size_t length = strlen(outcome);
    struct ts_buffer line;
    if (comparison->outcome == TS_OUTCOME_DIFFER && ts_ends_with(outcome, " differ"))
        length -= strlen(" differ"); /* said already */
    else if (comparison->outcome == TS_OUTCOME_DIFFER && ts_ends_with(outcome, " differs"))
        length -= strlen(" differs");
    ts_buffer_byte(text->out, '\n');
    ts_put_styled(text->layout, text->out, styles[comparison->outcome], name);
    ts_buffer_init(&line, 65536);
    ts_buffer_printf(&line, ": %.*s", (int)length, outcome);
    ts_put_folded(text->layout, text->out, text_of(&line), strlen(name), 2);
    ts_buffer_byte(text->out, '\n');
    ts_buffer_release(&line);
}

/* A path as a shell takes it. */
static void put_word(struct ts_buffer *line, const char *path)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-+:@%,=";
    bool quoted = !path[0] || path[0] == '-' || path[strspn(path, plain)];
    ts_buffer_string(line, quoted ? (path[0] == '-' ? " './" : " '") : " ");
    for (const char *at = path; *at; at++)
        if (*at == '\'')
            ts_buffer_string(line, "'\\''");
        else
            ts_buffer_byte(line, *at);
    ts_buffer_string(line, quoted ? "'" : "");
}

/* What to type next, for whoever sits at a terminal. */
static void put_hint(const struct text *text)
{
    const struct ts_comparison *comparison = text->comparison;
    struct ts_buffer line;
    if (!text->layout->hints || comparison->outcome != TS_OUTCOME_DIFFER)
        return;
    ts_buffer_init(&line, 65536);
    ts_buffer_string(&line, "look closer: tsleuth serve");
    put_word(&line, comparison->a->path);
    put_word(&line, comparison->b->path);
    ts_put_name(text->layout, text->out, text_of(&line), SIZE_MAX); /* in one piece, to be copied */
    ts_buffer_byte(text->out, '\n');
    ts_buffer_release(&line);
}

void ts_report_text(const struct ts_comparison *comparison, const struct ts_report_options *options,
                    const struct ts_layout *layout, struct ts_buffer *out)
{
    const struct text text = {.comparison = comparison, .options = options, .layout = layout, .out = out};
    const struct ts_pairing *pairing = &comparison->pairing;
    put_head(&text);
    ts_put_table(comparison, options, layout, out);
    put_changes(&text);
    put_divergence(&text);
    put_rankings(&text);
    put_unmatched(&text, "only in the reference", pairing->only_a, pairing->only_a_count);
    put_unmatched(&text, "only in the candidate", pairing->only_b, pairing->only_b_count);
    if (options->all) { /* a note has named the first */
        put_unmatched(&text, "reference, " TS_IDLE_TEXT, pairing->idle_a, pairing->idle_a_count);
        put_unmatched(&text, "candidate, " TS_IDLE_TEXT, pairing->idle_b, pairing->idle_b_count);
    }
    put_sampled(&text);
    put_skips(&text, "reference", comparison->a);
    put_skips(&text, "candidate", comparison->b);
    put_notes(&text);
    put_verdict(&text);
    put_hint(&text);
}
