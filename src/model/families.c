/* The list of model families. */
#include "model/families.h"

#include <string.h>

extern const struct ts_model_family ts_model_family_deepseek_v3, ts_model_family_gemma2, ts_model_family_gemma3,
    ts_model_family_gemma3n, ts_model_family_gpt2, ts_model_family_gpt_oss, ts_model_family_llama,
    ts_model_family_mistral, ts_model_family_mixtral, ts_model_family_olmoe, ts_model_family_phi3,
    ts_model_family_qwen2, ts_model_family_qwen2_moe, ts_model_family_qwen3, ts_model_family_qwen3_moe;

const struct ts_model_family *const ts_model_families[] = {
    &ts_model_family_deepseek_v3, &ts_model_family_gemma2,  &ts_model_family_gemma3,    &ts_model_family_gemma3n,
    &ts_model_family_gpt2,        &ts_model_family_gpt_oss, &ts_model_family_llama,     &ts_model_family_mistral,
    &ts_model_family_mixtral,     &ts_model_family_olmoe,   &ts_model_family_phi3,      &ts_model_family_qwen2,
    &ts_model_family_qwen2_moe,   &ts_model_family_qwen3,   &ts_model_family_qwen3_moe, NULL};

const struct ts_model_family *ts_model_family_of(const char *type)
{
    size_t length = strlen(type);
    for (size_t i = 0; ts_model_families[i]; i++)
        for (const char *at = ts_model_families[i]->types; at; at = strchr(at, ' ')) {
            at += *at == ' ';
            if (strncmp(at, type, length) == 0 && (at[length] == ' ' || !at[length]))
                return ts_model_families[i];
        }
    return NULL;
}

void ts_model_family_list(struct ts_buffer *out)
{
    for (size_t i = 0; ts_model_families[i]; i++) {
        ts_buffer_string(out, i ? ", " : "");
        for (const char *at = ts_model_families[i]->types; *at; at++)
            if (*at == ' ')
                ts_buffer_string(out, ", ");
            else
                ts_buffer_byte(out, *at);
    }
}
