#include "diagnose/attention_operands.h"

#include <ctype.h>
#include <string.h>

#include "diagnose/variant.h"
#include "tensor/layer.h"

#define LOOKED_AT 40 /* earlier tensors that may be operands */

/* What a name says: 'q', 'k', 'v', 'f' for a fused projection, 0 for something else; and whether it is turned already.
 */
static char role_of(const char *name, bool *turned)
{
    static const char *const fused[] = {"c_attn", "W_pack", "att_proj"}; /* of GPT-2 and Qwen, Baichuan, OLMo */
    char role = 0;
    *turned = false;
    for (size_t i = 0; i < sizeof fused / sizeof *fused; i++)
        if (strstr(name, fused[i]))
            return 'f';
    while (*name) {
        size_t length = 0;
        char word[24];
        while (*name && !isalnum((unsigned char)*name))
            name++;
        while (isalnum((unsigned char)name[length]))
            length++;
        if (length && length < sizeof word) {
            for (size_t i = 0; i < length; i++)
                word[i] = (char)tolower((unsigned char)name[i]);
            word[length] = 0;
            if (!strcmp(word, "q") || !strcmp(word, "query") || !strcmp(word, "qcur") || !strcmp(word, "wq"))
                role = role ? role : 'q';
            else if (!strcmp(word, "k") || !strcmp(word, "key") || !strcmp(word, "kcur") || !strcmp(word, "wk"))
                role = role == 'q' ? 'f' : role ? role : 'k'; /* "query_key_value" */
            else if (!strcmp(word, "v") || !strcmp(word, "value") || !strcmp(word, "vcur") || !strcmp(word, "wv"))
                role = role ? role : 'v';
            else if (!strcmp(word, "qkv") || !strcmp(word, "wqkv"))
                role = 'f';
            else if (!strncmp(word, "rope", 4) || !strncmp(word, "rot", 3))
                *turned = true;
        }
        name += length;
    }
    return role;
}

static bool same_layer(const struct ts_case *the_case, const struct ts_actor *a, const struct ts_actor *b)
{
    return ts_same_layer(ts_case_name(the_case, a), ts_case_name(the_case, b));
}

bool ts_operands_find(const struct ts_case *the_case, struct ts_operands *operands)
{
    const struct ts_actor *fused = NULL;
    *operands = (struct ts_operands){0};
    for (size_t back = 1; back <= LOOKED_AT && back <= the_case->actor->pair; back++) {
        const struct ts_actor *actor = ts_scene_actor(the_case->scene, the_case->actor->pair - back);
        struct ts_operand operand = {actor, 0, actor ? actor->width : 0};
        bool turned;
        char role;
        if (!actor || actor->rows != the_case->actor->rows)
            continue;
        role = role_of(ts_case_name(the_case, actor), &turned);
        if (role == 'q' && !operands->q.actor) {
            operands->q = operand;
            operands->turned = turned;
        } else if (role == 'k' && !operands->k.actor)
            operands->k = operand;
        else if (role == 'v' && !operands->v.actor)
            operands->v = operand;
        else if (role == 'f' && !fused)
            fused = actor;
        else if (role == 'k' && operands->k.actor && !operands->earlier_k.actor && actor->width == operands->k.width &&
                 same_layer(the_case, actor, operands->k.actor))
            operands->earlier_k = operand;
        else if (role == 'v' && actor->width == operands->v.width && operands->k.actor && operands->q.actor) {
            operands->earlier_v = operand;
            break;
        }
        if (fused)
            break;
    }
    if (fused) { /* queries, keys and values one behind the other */
        size_t own = operands->q.actor ? operands->q.width : 0;
        size_t keys = operands->k.actor           ? operands->k.width
                      : own && own < fused->width ? (fused->width - own) / 2
                                                  : fused->width / 3;
        if (keys * 2 >= fused->width)
            return false;
        if (!operands->q.actor)
            operands->q = (struct ts_operand){fused, 0, fused->width - 2 * keys};
        if (!operands->k.actor)
            operands->k = (struct ts_operand){fused, fused->width - 2 * keys, keys};
        if (!operands->v.actor)
            operands->v = (struct ts_operand){fused, fused->width - keys, keys};
    }
    return operands->q.actor && operands->k.actor && operands->v.actor && operands->k.width == operands->v.width &&
           operands->k.width <= operands->q.width;
}

void ts_operands_others(const struct ts_operands *operands, struct ts_other_values *others)
{
    if (operands->earlier_k.actor)
        *others++ = (struct ts_other_values){operands->earlier_k, NULL,
                                             operands->turned
                                                 ? "the candidate uses the keys before the rotary embedding as values"
                                                 : "the candidate uses an earlier form of the keys as values"};
    if (operands->earlier_v.actor)
        *others =
            (struct ts_other_values){operands->earlier_v, NULL, "the candidate uses the values of an earlier layer"};
}

/* Heads of so many numbers, of which each key head serves as many as any other. */
static bool fits_heads(const struct ts_operands *operands, size_t size)
{
    return operands->q.width % size == 0 && operands->k.width % size == 0 && operands->k.width >= size &&
           operands->q.width / size % (operands->k.width / size) == 0;
}

size_t ts_operands_head_sizes(const struct ts_case *the_case, const struct ts_operands *operands,
                              size_t sizes[TS_MOST_HEAD_SIZES])
{
    static const size_t usual[] = {64, 128, 32, 16, 8, 80, 96, 256, 24, 48, 12, 20, 40};
    const struct ts_actor *shown[3] = {operands->q.actor, operands->k.actor, the_case->actor};
    size_t count = 0;
    for (int i = 0; i < 3; i++)
        if (shown[i]->heads > 1 && shown[i]->inner >= 4 && (i < 2 || shown[i]->width == operands->q.width) &&
            fits_heads(operands, shown[i]->inner)) {
            sizes[count++] = shown[i]->inner;
            return count;
        }
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (fits_heads(operands, usual[i]))
            sizes[count++] = usual[i];
    return count;
}

bool ts_names_operand(const char *name)
{
    bool turned;
    return role_of(name, &turned) != 0;
}

bool ts_names_attention(const char *name)
{
    return (strstr(name, "attn") || strstr(name, "attention") || strstr(name, "Attention") || strstr(name, "o_proj") ||
            strstr(name, "out_proj") || strstr(name, "kqv")) &&
           !ts_names_operand(name);
}

bool ts_names_context(const char *name)
{
    return strstr(name, "context") || strstr(name, "attn_ctx") || strstr(name, "kqv") || strstr(name, "attn_values") ||
           strstr(name, "o_proj_input");
}
