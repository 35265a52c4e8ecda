/* Owns what the configuration adds to a cause: the key that decides the matter, with its value. */
#include <string.h>

#include "diagnose/case.h"

/* The setting that a cause is about: when its summary holds the words. */
static const struct {
    const char *id, *words;
    enum ts_settings_key key;
} settings[] = {
    {"rotation", "theta", TS_SETTING_THETA},
    {"rotation", "theta", TS_SETTING_LOCAL_THETA},
    {"rotation", "frequencies differ", TS_SETTING_THETA},
    {"rotation", "partial rotary", TS_SETTING_PARTIAL_ROTARY},
    {"row-scaled", "epsilon", TS_SETTING_EPSILON},
    {"mask", "window", TS_SETTING_WINDOW},
    {"clamped", "", TS_SETTING_SCORE_CAP},
    {"clamped", "", TS_SETTING_LOGIT_CAP},
    {"skipped-op", "softcap", TS_SETTING_LOGIT_CAP},
    {"router-gate", "by their sum", TS_SETTING_RENORMALIZED},
    {"router-gate", "factor", TS_SETTING_ROUTED_SCALE},
    {"router-gate", "experts", TS_SETTING_EXPERTS_USED},
    {"heads", "key head", TS_SETTING_KV_HEADS},
    {"softmax", "scale", TS_SETTING_QUERY_SCALAR},
};

const char *ts_case_remark(struct ts_case_state *state, const char *id, const char *summary)
{
    const struct ts_settings *config = state->evidence ? &state->evidence->config : NULL;
    const char *text = "";
    if (!config || !config->known)
        return text;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        enum ts_settings_key key = settings[i].key;
        if (strcmp(settings[i].id, id) == 0 && strstr(summary, settings[i].words) && !isnan(config->values[key]))
            text = ts_case_text(&state->face, "%s%s %s %.9g", text,
                                text[0] ? "," : "; in the configuration:", config->names[key], config->values[key]);
    }
    if (strcmp(id, "activation") == 0 && config->activation[0])
        text = ts_case_text(&state->face, "; in the configuration: %s \"%s\"", config->activation_name,
                            config->activation);
    if (strcmp(id, "router-gate") == 0 && config->scoring[0])
        text = ts_case_text(&state->face, "%s%s scoring_func \"%s\"", text,
                            text[0] ? "," : "; in the configuration:", config->scoring);
    return text[0] ? ts_case_text(&state->face, "%s (%s)", text, config->source) : text;
}
