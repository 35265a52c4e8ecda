/* Owns `tsleuth explain`: why one pair of tensors differs, whichever the person asks about. */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "cli/command.h"
#include "cli/inputs.h"
#include "diagnose/diagnose.h"
#include "report/facts.h"
#include "report/json_fields.h"

static const char help[] = "usage: tsleuth explain REFERENCE CANDIDATE NAME [OPTIONS]\n"
                           "\n"
                           "Tests hypotheses about the difference of one tensor and reports those that\n"
                           "hold, best first, each with its evidence and what to check in the candidate.\n"
                           "'tsleuth compare' does this for the first divergence; this is for any other.\n"
                           "NAME is the tensor's name on either side, or the end of it when only one fits.\n"
                           "\n"
                           "  --weights PATH     the model's weights, a file or a folder: products are\n"
                           "                     replayed, and causes name the tensors of the file\n"
                           "  --weights-b PATH   the candidate's own weights, where it has others\n"
                           "  --config FILE      the model's config.json; else the one beside the weights\n"
                           "  --raw              quantized weights as their stored parts\n"
                           "  --json FILE        the result as JSON; - for standard output\n"
                           "  --follow-links     follow symbolic links that leave the folder\n"
                           "\n"
                           "examples:\n"
                           "  tsleuth explain ref.safetensors cand.safetensors layer_1_attn_q_rope\n"
                           "  tsleuth explain ref.npz cand.npz layers.3.mlp.gate_proj --weights Qwen3-0.6B/\n"
                           "  tsleuth explain model.safetensors model.gguf model.layers.0.self_attn.q_proj.weight\n"
                           "\n"
                           "Exit status: 0 no difference beyond rounding, 1 it differs, 2 there is no\n"
                           "telling, 3 wrong usage or unreadable input.\n";

/* The pair of that name, or the only one whose name ends with it; SIZE_MAX otherwise. What the candidate calls it does
 * as well where the reference calls nothing so. */
static size_t find_pair(const struct ts_pairing *pairing, const char *name, size_t *fits)
{
    for (int side = 0; side < 2; side++) {
        size_t found = SIZE_MAX;
        *fits = 0;
        for (size_t i = 0; i < pairing->count; i++) {
            const char *other = side ? pairing->pairs[i].name_b : pairing->pairs[i].name;
            if (strcmp(other, name) == 0)
                return i;
            if (ts_ends_with(other, name)) {
                found = i;
                ++*fits;
            }
        }
        if (*fits)
            return *fits == 1 ? found : SIZE_MAX;
    }
    return SIZE_MAX;
}

#define LONGEST 256 /* name that may be mistyped */

/* How many characters are to be put in, taken out or replaced to make one of the other. */
static size_t typing_errors(const char *a, const char *b)
{
    size_t costs[LONGEST + 1], width = strlen(b);
    if (strlen(a) > LONGEST || width > LONGEST)
        return SIZE_MAX;
    for (size_t j = 0; j <= width; j++)
        costs[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t before = costs[0]++;
        for (size_t j = 0; j < width; j++) {
            size_t best = before + (a[i] != b[j]);
            before = costs[j + 1];
            best = costs[j] + 1 < best ? costs[j] + 1 : best;
            costs[j + 1] = before + 1 < best ? before + 1 : best;
        }
    }
    return costs[width];
}

/* The name that was probably meant, or whose end was; NULL when none is near. */
static const char *find_meant(const struct ts_pairing *pairing, const char *name)
{
    const char *meant = NULL;
    size_t length = strlen(name), least = length / 6 + 2; /* so many errors are another name */
    for (size_t i = 0; i < pairing->count; i++)
        for (const char *end = pairing->pairs[i].name; end; end = strpbrk(end, "./_")) {
            size_t errors, size;
            end += end != pairing->pairs[i].name;
            size = strlen(end);
            if (size + least <= length)
                break;
            errors = size < length + least ? typing_errors(name, end) : SIZE_MAX;
            if (errors < least) {
                least = errors;
                meant = pairing->pairs[i].name;
            }
        }
    return meant;
}

/* "  why        ..." */
static void put_fact(struct ts_buffer *out, const char *label, const char *text)
{
    ts_buffer_printf(out, "  %-9s  ", label);
    put_wrapped(out, text, 13, 13);
    ts_buffer_byte(out, '\n');
}

/* Why it was judged so. What differs because something before it does is not worth explaining before that is. */
static void put_why(struct ts_buffer *out, const struct ts_comparison *comparison, size_t index)
{
    const struct ts_judgement *judgement = &comparison->judgement;
    const struct ts_verdict *verdict = &judgement->verdicts[index];
    const char *why = ts_reason(comparison, index);
    struct ts_buffer text;
    if (verdict->judged != TS_JUDGED_DIFFERS || !why[0])
        return;
    ts_buffer_init(&text, (size_t)1 << 20);
    ts_buffer_string(&text, why);
    if (!verdict->made_here && judgement->first < index && !judgement->weights)
        ts_buffer_printf(&text, ", %s: look there first", comparison->pairing.pairs[judgement->first].name);
    put_fact(out, "why", text.data ? text.data : "");
    ts_buffer_release(&text);
}

static bool tell_text(const struct ts_comparison *comparison, size_t index, const struct ts_diagnosis *diagnosis)
{
    const struct ts_pair *pair = &comparison->pairing.pairs[index];
    const struct ts_delta *delta = &comparison->deltas[index];
    const struct ts_verdict *verdict = &comparison->judgement.verdicts[index];
    const struct ts_delta shown = ts_shown_delta(delta);
    struct ts_buffer out;
    char facts[128];
    bool good;
    ts_buffer_init(&out, (size_t)1 << 20);
    snprintf(facts, sizeof facts, "%s, error %.3g, %.3g roundings, cosine %.6g", ts_judged_name(verdict->judged),
             shown.rel_l2, isnan(shown.rel_l2) ? shown.rel_l2 : verdict->roundings, shown.cosine);
    put_name(&out, pair->name, SIZE_MAX);
    ts_buffer_string(&out, ts_text_columns(out.data, out.size) + 2 + strlen(facts) > terminal.width ? "\n  " : "  ");
    put_wrapped(&out, facts, 2, 2);
    ts_buffer_byte(&out, '\n');
    put_why(&out, comparison, index);
    if (pair->recipe && pair->recipe[0]) /* what is said below holds of the two in this layout */
        put_fact(&out, "layout", pair->recipe);
    if (verdict->operation)
        put_fact(&out, "operation", verdict->operation);
    for (size_t i = 0; i < diagnosis->count; i++) {
        const struct ts_cause *cause = &diagnosis->causes[i];
        char head[64];
        snprintf(head, sizeof head, "  %s (%.2f%s) ", cause->id, cause->confidence, cause->tied ? ", a tie" : "");
        put_styled(&out, TS_STYLE_BOLD, head);
        ts_buffer_byte(&out, ' ');
        put_wrapped(&out, cause->summary, strlen(head) + 1, 13);
        ts_buffer_string(&out, "\n    check    ");
        put_wrapped(&out, cause->check, 13, 13);
        ts_buffer_byte(&out, '\n');
    }
    if (!diagnosis->count) {
        const char *text = delta->unequal == 0    ? "the two are equal"
                           : diagnosis->strongest ? diagnosis->strongest
                                                  : "none of the known causes holds";
        ts_buffer_string(&out, "  ");
        put_wrapped(&out, text, 2, 4);
        ts_buffer_byte(&out, '\n');
    }
    good = flush_out(&out);
    ts_buffer_release(&out);
    return good;
}

static bool tell_json(const char *path, const struct ts_comparison *comparison, size_t index,
                      const struct ts_diagnosis *diagnosis)
{
    const struct ts_pair *pair = &comparison->pairing.pairs[index];
    struct json_file file;
    struct ts_json_writer *json = &file.writer;
    if (!json_file_open(&file, path))
        return false;
    ts_json_begin_object(json);
    ts_field_text(json, "schema", "tsleuth.explain/1");
    ts_field_text(json, "name", pair->name);
    ts_field_text(json, "recipe", pair->recipe ? pair->recipe : "");
    ts_field_text(json, "verdict", ts_judged_name(comparison->judgement.verdicts[index].judged));
    ts_field_number(json, "rel_l2", ts_shown_delta(&comparison->deltas[index]).rel_l2);
    ts_field_causes(json, diagnosis);
    ts_json_end_object(json);
    return json_file_close(&file);
}

static bool is_among(const struct ts_tensor *const *tensors, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(tensors[i]->name, name) == 0)
            return true;
    return false;
}

/* Why no pair is to be explained. */
static int tell_missing(const struct ts_pairing *pairing, const char *name, size_t fits)
{
    const char *meant = fits ? NULL : find_meant(pairing, name);
    struct ts_error error;
    if (fits)
        ts_fail(&error, TS_ERR_USAGE, TS_NO_OFFSET, "%zu names end with that; give more of the name", fits);
    else if (is_among(pairing->idle_a, pairing->idle_a_count, name) ||
             is_among(pairing->idle_b, pairing->idle_b_count, name))
        ts_fail(&error, TS_ERR_USAGE, TS_NO_OFFSET, "nothing to compare: " TS_IDLE_TEXT);
    else if (is_among(pairing->only_a, pairing->only_a_count, name))
        ts_fail(&error, TS_ERR_USAGE, TS_NO_OFFSET, "nothing to compare: only the reference has it");
    else if (is_among(pairing->only_b, pairing->only_b_count, name))
        ts_fail(&error, TS_ERR_USAGE, TS_NO_OFFSET, "nothing to compare: only the candidate has it");
    else if (meant)
        ts_fail(&error, TS_ERR_USAGE, TS_NO_OFFSET, "no pair has that name; did you mean \"%s\"?", meant);
    else
        ts_fail(&error, TS_ERR_USAGE, TS_NO_OFFSET, "no pair has that name; see: tsleuth compare --all");
    ts_error_tensor(&error, name);
    return tell_error(&error);
}

static int explain(const struct ts_comparison *comparison, const char *name, const struct ts_evidence *evidence,
                   const char *json)
{
    struct ts_diagnosis diagnosis;
    struct ts_error error;
    size_t fits, index = find_pair(&comparison->pairing, name, &fits);
    const struct ts_pair *pair = &comparison->pairing.pairs[index == SIZE_MAX ? 0 : index];
    bool good;
    if (index == SIZE_MAX)
        return tell_missing(&comparison->pairing, name, fits);
    if (pair->problem) {
        ts_fail(&error, TS_ERR_USAGE, TS_NO_OFFSET, "%s", pair->problem);
        ts_error_tensor(&error, pair->name);
        return tell_error(&error);
    }
    if (ts_diagnose_with(comparison->pairing.pairs, comparison->deltas, comparison->pairing.count, index, evidence,
                         &diagnosis, &error) != TS_OK)
        return tell_error(&error);
    good = json ? tell_json(json, comparison, index, &diagnosis) : tell_text(comparison, index, &diagnosis);
    ts_diagnosis_release(&diagnosis);
    if (!good)
        return EXIT_TROUBLE;
    switch (comparison->judgement.verdicts[index].judged) {
    case TS_JUDGED_DIFFERS:
        return EXIT_DIFFER;
    case TS_JUDGED_UNKNOWN:
        return EXIT_INCOMPLETE;
    default:
        return EXIT_MATCH;
    }
}

static int run(int argc, char **argv)
{
    struct ts_open_options open = {0};
    struct ts_comparison_options options = {.pair = {.by_content = true}};
    struct ts_comparison comparison;
    struct ts_error error;
    struct ts_evidence *evidence;
    const char *operands[3], *json = NULL, *weights = NULL, *weights_b = NULL, *config = NULL;
    size_t count;
    bool wants_help;
    int result;
    const struct option list[] = {{"raw", OPTION_FLAG, &open.raw},
                                  {"weights", OPTION_TEXT, &weights},
                                  {"weights-b", OPTION_TEXT, &weights_b},
                                  {"config", OPTION_TEXT, &config},
                                  {"json", OPTION_TEXT, &json},
                                  {"follow-links", OPTION_FLAG, &open.follow_links},
                                  {NULL, OPTION_FLAG, NULL}};
    if (!options_parse(&command_explain, argc, argv, list, operands, 3, &count, &wants_help))
        return EXIT_TROUBLE;
    if (wants_help)
        return fputs(help, stdout) < 0 ? EXIT_TROUBLE : EXIT_MATCH;
    if (count < 3)
        return tell_usage(&command_explain, "give the reference, the candidate and a tensor's name");
    if (ts_evidence_open(weights, weights_b, config, &open, &evidence, &error) != TS_OK)
        return tell_error(&error);
    options.experts = ts_evidence_experts(evidence);
    if (!compare_inputs(operands, &open, &options, &comparison)) {
        ts_evidence_free(evidence);
        return EXIT_TROUBLE;
    }
    result = explain(&comparison, operands[2], evidence, json);
    ts_comparison_release(&comparison);
    ts_evidence_free(evidence);
    return result;
}

const struct command command_explain = {
    .name = "explain",
    .summary = "say why one pair of tensors differs",
    .help = help,
    .run = run,
};
