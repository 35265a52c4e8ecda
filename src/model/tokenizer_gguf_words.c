/* tokenizer.ggml.pre: the name a converter gave to the pre-tokenizer of the tokenizer.json it read. The patterns are
 * those of that file. */
#include "model/tokenizer_gguf.h"

#include <stdio.h>
#include <string.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES_LAST  "\\s+(?!\\S)|\\s+"
#define NEWLINES     "\\s*[\\r\\n]+|" SPACES_LAST
#define SYMBOLS      " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
/* GPT-4's words, and what they do with digits */
#define GPT4(digits) CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "|" SYMBOLS NEWLINES
#define GPT2         "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|" SPACES_LAST
/* GPT-4o's: words change where a capital follows a small letter */
#define CAPITALS "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SMALLS   "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define GPT4O(ending, digits)                                                                                          \
    "[^\\r\\n\\p{L}\\p{N}]?" CAPITALS "*" SMALLS "+" ending "|[^\\r\\n\\p{L}\\p{N}]?" CAPITALS "+" SMALLS "*" ending   \
    "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" NEWLINES
#define DEEPSEEK                                                                                                       \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"               \
    " ?[\\p{P}\\p{S}]+[\\r\\n]*|" NEWLINES
#define BLOOM " ?[^(\\s|.,!?…。，、।۔،)]+"

static const struct ts_gguf_words all[] = {
    {" default ", {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}, false, false, false},
    {" llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano ",
     {GPT4("\\p{N}{1,3}")},
     false,
     true,
     true},
    {" dbrx smaug-bpe glm4 chatglm-bpe ", {GPT4("\\p{N}{1,3}")}, false, false, false},
    {" qwen2 deepseek-r1-qwen ", {GPT4("\\p{N}")}, true, false, false},
    {" kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2 ", {GPT4("\\p{N}")}, false, false, false},
    {" qwen35 ",
     {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" NEWLINES},
     true,
     false,
     false},
    {" gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert exaone4 jais trillion "
     "granite-docling ",
     {GPT2},
     false,
     false,
     false},
    {" mpt olmo ", {GPT2}, true, false, false},
    {" starcoder refact smollm codeshell exaone minerva-7b mellum2 ", {"\\p{N}", GPT2}, false, false, false},
    {" command-r ", {"\\p{N}", GPT2}, true, false, false},
    {" falcon ", {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}, false, false, false},
    {" gpt-4o llama4 kanana2 talkie minimax-m2 ", {GPT4O(CONTRACTIONS "?", "\\p{N}{1,3}")}, false, false, false},
    {" tekken ", {GPT4O("", "\\p{N}")}, false, true, true},
    {" deepseek-v3 hunyuan-dense joyai-llm ",
     {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK},
     false,
     false,
     false},
    {" deepseek-coder ",
     {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+", "\\p{N}"},
     false,
     false,
     false},
    {" poro-chat bloom gpt3-finnish ", {BLOOM}, false, false, false},
    {" viking ", {BLOOM, "\\p{N}"}, false, false, false},
    {" tiny_aya cohere2moe ",
     {"\\d{1,3}(?=(?:\\d{3})*\\b)", GPT4O(CONTRACTIONS "?", "\\p{N}{1,3}")},
     false,
     false,
     false},
    {" bailingmoe bailingmoe2 llada-moe ",
     {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| "
      "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|" SPACES_LAST},
     false,
     false,
     false},
    {" seed-coder ",
     {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" NEWLINES},
     false,
     false,
     false},
    {" minicpm5 ", {"\\p{N}{1,3}", GPT4("\\p{N}+")}, false, true, false},
};

const struct ts_gguf_words *ts_gguf_words(const char *name)
{
    char wanted[64];
    const int length = snprintf(wanted, sizeof wanted, " %s ", name);
    if (length < 3 || (size_t)length >= sizeof wanted || strchr(name, ' '))
        return NULL;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strstr(all[i].names, wanted))
            return &all[i];
    return NULL;
}
