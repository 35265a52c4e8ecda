#include "tensor/layer.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

static bool is_layer_word(const char *word, size_t length)
{
    static const char *const words[] = {"layers", "layer", "h", "blocks", "block", "blk"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == length && strncmp(words[i], word, length) == 0)
            return true;
    return false;
}

/* A whole number of at most nine digits that ends where a word ends. */
static bool number_at(const char *text, uint64_t *number)
{
    size_t digits = 0;
    *number = 0;
    for (; isdigit((unsigned char)text[digits]) && digits < 10; digits++)
        *number = *number * 10 + (uint64_t)(text[digits] - '0');
    return digits > 0 && digits < 10 && !isalnum((unsigned char)text[digits]);
}

/* "ffn_norm-5": how llama.cpp's graph numbers its points. */
static bool number_at_end(const char *name, uint64_t *layer)
{
    const char *dash = strrchr(name, '-');
    bool exponent = dash && dash > name + 1 && dash[-1] == 'e' && isdigit((unsigned char)dash[-2]); /* "noise_3e-4" */
    return dash && dash > name && isalpha((unsigned char)dash[-1]) && !exponent && number_at(dash + 1, layer) &&
           dash[1 + strspn(dash + 1, "0123456789")] == '\0';
}

bool ts_layer_of(const char *name, uint64_t *layer)
{
    const char *at = name;
    while (*at) {
        const char *start = at;
        while (isalnum((unsigned char)*at))
            at++;
        if (*at && is_layer_word(start, (size_t)(at - start)) && number_at(at + 1, layer))
            return true;
        /* a number that opens a file's name: 3_query */
        if (*at == '_' && (start == name || start[-1] == '/' || start[-1] == ':') && number_at(start, layer))
            return true;
        if (*at)
            at++;
    }
    return number_at_end(name, layer);
}

bool ts_same_layer(const char *name, const char *other)
{
    uint64_t layer, of_other;
    return ts_layer_of(name, &layer) && ts_layer_of(other, &of_other) && layer == of_other;
}
