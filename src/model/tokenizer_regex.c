/* Regular expressions over PCRE2, with limits. */
#include "model/tokenizer_regex.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* The longest known pattern has two thousand bytes. */
#define MAX_PATTERN ((size_t)64 << 10)
/* Backing out of a run of spaces or letters takes a step for each: ten million are a run of ten megabytes. */
#define MATCH_LIMIT       10000000u
#define HEAP_LIMIT_KIB    (64u << 10)
#define JIT_STACK_FIRST   ((size_t)32 << 10)
#define JIT_STACK_LARGEST ((size_t)8 << 20)

struct ts_regex {
    pcre2_code *code;
};

struct ts_regex_search {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

static enum ts_status compile(struct ts_regex *regex, const struct ts_buffer *text, struct ts_error *error)
{
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    PCRE2_UCHAR message[256];
    PCRE2_SIZE at = 0;
    int number = 0;
    if (!context)
        return ts_fail_memory(error);
    /* Ruby's lines end with \n alone, and its ^ and $ are those of lines. */
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    regex->code =
        pcre2_compile((PCRE2_SPTR)(text->data ? text->data : ""), text->size,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &number, &at, context);
    pcre2_compile_context_free(context);
    if (regex->code) {
        /* Without a compiler for this machine, or memory for it, the interpreter does the same. */
        (void)pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);
        return TS_OK;
    }
    if (pcre2_get_error_message(number, message, sizeof message) < 0)
        message[0] = '\0';
    return ts_fail(error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET, "the pattern \"%.200s\" cannot be used: %.200s",
                   text->data ? text->data : "", (const char *)message);
}

struct ts_regex *ts_regex_new(const char *pattern, size_t size, struct ts_error *error)
{
    struct ts_regex *regex;
    struct ts_buffer text;
    enum ts_status status;
    if (size > MAX_PATTERN) {
        ts_fail(error, TS_ERR_LIMIT, TS_NO_OFFSET, "a pattern of %zu bytes, patterns end at %zu", size, MAX_PATTERN);
        return NULL;
    }
    regex = calloc(1, sizeof *regex);
    if (!regex) {
        ts_fail_memory(error);
        return NULL;
    }
    ts_buffer_init(&text, 64 * MAX_PATTERN);
    status = ts_pattern_translate(pattern, size, &text, error);
    if (status == TS_OK)
        status = compile(regex, &text, error);
    ts_buffer_release(&text);
    if (status != TS_OK) {
        ts_regex_free(regex);
        return NULL;
    }
    return regex;
}

void ts_regex_free(struct ts_regex *regex)
{
    if (!regex)
        return;
    pcre2_code_free(regex->code);
    free(regex);
}

struct ts_regex_search *ts_regex_search_new(void)
{
    struct ts_regex_search *search = calloc(1, sizeof *search);
    if (!search)
        return NULL;
    search->data = pcre2_match_data_create(1, NULL);
    search->context = pcre2_match_context_create(NULL);
    if (!search->data || !search->context) {
        ts_regex_search_free(search);
        return NULL;
    }
    pcre2_set_match_limit(search->context, MATCH_LIMIT);
    pcre2_set_heap_limit(search->context, HEAP_LIMIT_KIB);
    search->stack = pcre2_jit_stack_create(JIT_STACK_FIRST, JIT_STACK_LARGEST, NULL);
    if (search->stack)
        pcre2_jit_stack_assign(search->context, NULL, search->stack);
    return search;
}

void ts_regex_search_free(struct ts_regex_search *search)
{
    if (!search)
        return;
    pcre2_match_data_free(search->data);
    pcre2_match_context_free(search->context);
    if (search->stack)
        pcre2_jit_stack_free(search->stack);
    free(search);
}

enum ts_status ts_regex_find(const struct ts_regex *regex, struct ts_regex_search *search, const char *text,
                             size_t size, size_t from, bool *found, size_t *start, size_t *end, struct ts_error *error)
{
    const uint32_t options = PCRE2_NO_UTF_CHECK;
    const PCRE2_SIZE *span;
    PCRE2_UCHAR message[256];
    int result = pcre2_match(regex->code, (PCRE2_SPTR)text, size, from, options, search->data, search->context);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter has its stack on the heap */
        result = pcre2_match(regex->code, (PCRE2_SPTR)text, size, from, options | PCRE2_NO_JIT, search->data,
                             search->context);
    *found = result >= 0;
    if (result >= 0) {
        span = pcre2_get_ovector_pointer(search->data);
        /* \K in a lookahead can put the start behind the end. */
        if (span[0] > span[1] || span[0] < from)
            return ts_fail(error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET, "a pattern moves the start of its match");
        *start = span[0];
        *end = span[1];
        return TS_OK;
    }
    if (result == PCRE2_ERROR_NOMATCH)
        return TS_OK;
    if (result == PCRE2_ERROR_NOMEMORY)
        return ts_fail_memory(error);
    if (pcre2_get_error_message(result, message, sizeof message) < 0)
        message[0] = '\0';
    return ts_fail(error, TS_ERR_LIMIT, from, "a pattern of the tokenizer needs too much work on this text: %.200s",
                   (const char *)message);
}
