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
                           "NAME is the reference's name of the tensor, or the end of it when only one fits.\n"
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
                           "Exit status: 0 no difference, 1 it differs, 3 wrong usage or unreadable input.\n";

/* The pair of that name, or the only one whose name ends with it; SIZE_MAX otherwise. */
static size_t find_pair(const struct ts_pairing *pairing, const char *name, size_t *fits)
{
    size_t found = SIZE_MAX, length = strlen(name);
    *fits = 0;
    for (size_t i = 0; i < pairing->count; i++) {
        const char *other = pairing->pairs[i].name;
        size_t size = strlen(other);
        if (strcmp(other, name) == 0)
            return i;
        if (size > length && strcmp(other + size - length, name) == 0) {
            found = i;
            ++*fits;
        }
    }
    return *fits == 1 ? found : SIZE_MAX;
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

static bool tell_json(const char *path, const struct ts_pair *pair, const struct ts_delta *delta,
                      const struct ts_diagnosis *diagnosis)
{
    struct json_file file;
    struct ts_json_writer *json = &file.writer;
    if (!json_file_open(&file, path))
        return false;
    ts_json_begin_object(json);
    ts_field_text(json, "schema", "tsleuth.explain/1");
    ts_field_text(json, "name", pair->name);
    ts_field_text(json, "recipe", pair->recipe ? pair->recipe : "");
    ts_field_number(json, "rel_l2", ts_shown_delta(delta).rel_l2);
    ts_field_causes(json, diagnosis);
    ts_json_end_object(json);
    return json_file_close(&file);
}

static bool is_idle(const struct ts_pairing *pairing, const char *name)
{
    for (size_t i = 0; i < pairing->idle_a_count; i++)
        if (strcmp(pairing->idle_a[i]->name, name) == 0)
            return true;
    for (size_t i = 0; i < pairing->idle_b_count; i++)
        if (strcmp(pairing->idle_b[i]->name, name) == 0)
            return true;
    return false;
}

static int explain(const struct ts_comparison *comparison, const char *name, const struct ts_evidence *evidence,
                   const char *json)
{
    struct ts_diagnosis diagnosis;
    struct ts_error error;
    size_t fits, index = find_pair(&comparison->pairing, name, &fits);
    const struct ts_pair *pair = &comparison->pairing.pairs[index == SIZE_MAX ? 0 : index];
    bool good;
    if (index == SIZE_MAX) {
        if (fits)
            ts_fail(&error, TS_ERR_USAGE, TS_NO_OFFSET, "%zu names end with that; give more of the name", fits);
        else if (is_idle(&comparison->pairing, name))
            ts_fail(&error, TS_ERR_USAGE, TS_NO_OFFSET, "nothing to compare: " TS_IDLE_TEXT);
        else
            ts_fail(&error, TS_ERR_USAGE, TS_NO_OFFSET, "no pair has that name; see: tsleuth compare --all");
        ts_error_tensor(&error, name);
        return tell_error(&error);
    }
    if (pair->problem) {
        ts_fail(&error, TS_ERR_USAGE, TS_NO_OFFSET, "%s", pair->problem);
        ts_error_tensor(&error, pair->name);
        return tell_error(&error);
    }
    if (ts_diagnose_with(comparison->pairing.pairs, comparison->deltas, comparison->pairing.count, index, evidence,
                         &diagnosis, &error) != TS_OK)
        return tell_error(&error);
    good =
        json ? tell_json(json, pair, &comparison->deltas[index], &diagnosis) : tell_text(comparison, index, &diagnosis);
    ts_diagnosis_release(&diagnosis);
    return !good                                                               ? EXIT_TROUBLE
           : comparison->judgement.verdicts[index].judged == TS_JUDGED_DIFFERS ? EXIT_DIFFER
                                                                               : EXIT_MATCH;
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
