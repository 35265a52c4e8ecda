/* Owns `tsleuth explain`: why one pair of tensors differs, whichever the person asks about. */
#include <string.h>

#include "cli/command.h"
#include "compare/comparison.h"
#include "diagnose/diagnose.h"
#include "read/open.h"

static const char help[] = "usage: tsleuth explain REFERENCE CANDIDATE NAME [OPTIONS]\n"
                           "\n"
                           "Tests hypotheses about the difference of one tensor and reports those that\n"
                           "hold, best first, each with its evidence and what to check in the candidate.\n"
                           "'tsleuth compare' does this for the first divergence; this is for any other.\n"
                           "NAME is the reference's name of the tensor, or the end of it when only one fits.\n"
                           "\n"
                           "  --raw              quantized weights as their stored parts\n"
                           "  --json FILE        the result as JSON; - for standard output\n"
                           "  --follow-links     follow symbolic links that leave the folder\n"
                           "\n"
                           "examples:\n"
                           "  tsleuth explain ref.safetensors cand.safetensors layer_1_attn_q_rope\n"
                           "  tsleuth explain model.safetensors model.gguf model.layers.0.self_attn.q_proj.weight\n"
                           "\n"
                           "Exit status: 0 no difference, 1 it differs, 3 wrong usage or unreadable input.\n";

/* The pair of that name, or the only one whose name ends with it; SIZE_MAX otherwise. */
static size_t find_pair(const struct ts_pairing *pairing, const char *name)
{
    size_t found = SIZE_MAX, fits = 0, length = strlen(name);
    for (size_t i = 0; i < pairing->count; i++) {
        const char *other = pairing->pairs[i].name;
        size_t size = strlen(other);
        if (strcmp(other, name) == 0)
            return i;
        if (size > length && strcmp(other + size - length, name) == 0) {
            found = i;
            fits++;
        }
    }
    return fits == 1 ? found : SIZE_MAX;
}

static bool tell_text(const struct ts_pair *pair, const struct ts_delta *delta, const struct ts_verdict *verdict,
                      const struct ts_diagnosis *diagnosis)
{
    static const char *const judged[] = {"ok", "noise", "differs", "cannot tell"};
    struct ts_buffer out;
    bool good;
    ts_buffer_init(&out, (size_t)1 << 20);
    put_name(&out, pair->name, SIZE_MAX);
    ts_buffer_printf(&out, "  %s, error %.3g, %.3g roundings, cosine %.6g\n", judged[verdict->judged], delta->rel_l2,
                     verdict->roundings, delta->cosine);
    if (verdict->operation) {
        ts_buffer_string(&out, "  operation  ");
        put_wrapped(&out, verdict->operation, 13, 13);
        ts_buffer_byte(&out, '\n');
    }
    for (size_t i = 0; i < diagnosis->count; i++) {
        const struct ts_cause *cause = &diagnosis->causes[i];
        char head[64];
        snprintf(head, sizeof head, "  %s (%.2f) ", cause->id, cause->confidence);
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
    ts_json_key(json, "schema");
    ts_json_string(json, "tsleuth.explain/1");
    ts_json_key(json, "name");
    ts_json_string(json, pair->name);
    ts_json_key(json, "rel_l2");
    ts_json_number(json, delta->rel_l2);
    ts_json_key(json, "causes");
    ts_json_begin_array(json);
    for (size_t i = 0; i < diagnosis->count; i++) {
        ts_json_begin_object(json);
        ts_json_key(json, "id");
        ts_json_string(json, diagnosis->causes[i].id);
        ts_json_key(json, "confidence");
        ts_json_number(json, diagnosis->causes[i].confidence);
        ts_json_key(json, "summary");
        ts_json_string(json, diagnosis->causes[i].summary);
        ts_json_key(json, "check");
        ts_json_string(json, diagnosis->causes[i].check);
        ts_json_end_object(json);
    }
    ts_json_end_array(json);
    ts_json_end_object(json);
    return json_file_close(&file);
}

static int explain(const struct ts_comparison *comparison, const char *name, const char *json)
{
    struct ts_diagnosis diagnosis;
    struct ts_error error;
    size_t index = find_pair(&comparison->pairing, name);
    const struct ts_pair *pair = &comparison->pairing.pairs[index == SIZE_MAX ? 0 : index];
    bool good;
    if (index == SIZE_MAX) {
        ts_fail(&error, TS_ERR_USAGE, TS_NO_OFFSET,
                "no pair, or more than one, has that name; see: tsleuth compare --all");
        ts_error_tensor(&error, name);
        return tell_error(&error);
    }
    if (pair->problem) {
        ts_fail(&error, TS_ERR_USAGE, TS_NO_OFFSET, "%s", pair->problem);
        ts_error_tensor(&error, pair->name);
        return tell_error(&error);
    }
    if (ts_diagnose(comparison->pairing.pairs, comparison->deltas, comparison->pairing.count, index, &diagnosis,
                    &error) != TS_OK)
        return tell_error(&error);
    good = json ? tell_json(json, pair, &comparison->deltas[index], &diagnosis)
                : tell_text(pair, &comparison->deltas[index], &comparison->judgement.verdicts[index], &diagnosis);
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
    struct ts_bundle *a, *b;
    struct ts_pool *pool;
    struct ts_error error;
    const char *operands[3], *json = NULL;
    size_t count;
    bool wants_help;
    int result;
    const struct option list[] = {{"raw", OPTION_FLAG, &open.raw},
                                  {"json", OPTION_TEXT, &json},
                                  {"follow-links", OPTION_FLAG, &open.follow_links},
                                  {NULL, OPTION_FLAG, NULL}};
    if (!options_parse(&command_explain, argc, argv, list, operands, 3, &count, &wants_help))
        return EXIT_TROUBLE;
    if (wants_help)
        return fputs(help, stdout) < 0 ? EXIT_TROUBLE : EXIT_MATCH;
    if (count < 3)
        return tell_usage(&command_explain, "give the reference, the candidate and a tensor's name");
    if (ts_open(operands[0], &open, &a, &error) != TS_OK)
        return tell_error(&error);
    if (ts_open(operands[1], &open, &b, &error) != TS_OK) {
        ts_bundle_free(a);
        return tell_error(&error);
    }
    pool = ts_pool_new(0);
    if (!pool) {
        ts_bundle_free(a);
        ts_bundle_free(b);
        ts_fail_memory(&error);
        return tell_error(&error);
    }
    if (ts_comparison_run(a, b, &options, pool, &comparison, &error) == TS_OK) {
        result = explain(&comparison, operands[2], json);
        ts_comparison_release(&comparison);
    } else {
        result = tell_error(&error);
    }
    ts_pool_free(pool);
    return result;
}

const struct command command_explain = {
    .name = "explain",
    .summary = "say why one pair of tensors differs",
    .help = help,
    .run = run,
};
