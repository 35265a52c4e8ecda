/* Normalizers: a text in, a text out, one after the other. */
#include <string.h>

#include "model/tokenizer_parts.h"
#include "model/unicode.h"

uint32_t ts_byte_character(unsigned char byte)
{
    /* Bytes that show are themselves; the others, in their order, are the characters from U+0100 on. */
    if ((byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad))
        return byte;
    if (byte <= ' ')
        return 0x100u + byte;
    if (byte <= 0xa0)
        return 0x100u + 33 + (byte - 0x7fu);
    return 0x100u + 33 + 34; /* 0xad */
}

bool ts_append_byte_characters(struct ts_buffer *out, const char *text, size_t size)
{
    for (size_t i = 0; i < size && !out->failed; i++) {
        char character[4];
        const unsigned length = ts_utf8_put(ts_byte_character((unsigned char)text[i]), character);
        ts_buffer_append(out, character, length);
    }
    return !out->failed;
}

static bool is_ideograph(uint32_t code)
{
    return (code >= 0x4e00 && code <= 0x9fff) || (code >= 0x3400 && code <= 0x4dbf) ||
           (code >= 0x20000 && code <= 0x2a6df) || (code >= 0x2a700 && code <= 0x2b73f) ||
           (code >= 0x2b740 && code <= 0x2b81f) || (code >= 0x2b920 && code <= 0x2ceaf) ||
           (code >= 0xf900 && code <= 0xfaff) || (code >= 0x2f800 && code <= 0x2fa1f);
}

static bool is_dropped(enum ts_step_kind kind, uint32_t code)
{
    switch (kind) {
    case TS_STEP_STRIP_ACCENTS:
        return ts_unicode_is_mark(code);
    case TS_STEP_STRIP_MARKS:
        return ts_unicode_is_nonspacing(code);
    default: /* TS_STEP_CLEAN; these three are spaces to it */
        return code != '\t' && code != '\n' && code != '\r' && (code == 0xfffd || ts_unicode_is_control(code));
    }
}

static void by_character(enum ts_step_kind kind, const char *text, size_t size, struct ts_buffer *out, bool *first)
{
    for (size_t at = 0, length; at < size && !out->failed; at += length) {
        uint32_t code;
        length = ts_utf8_get(text + at, &code);
        if (kind == TS_STEP_SPACE_CHINESE) {
            const bool spaced = is_ideograph(code);
            if (spaced)
                ts_buffer_byte(out, ' ');
            ts_buffer_append(out, text + at, length);
            if (spaced)
                ts_buffer_byte(out, ' ');
        } else if (!is_dropped(kind, code)) {
            if (kind == TS_STEP_CLEAN && ts_unicode_is_space(code))
                ts_buffer_byte(out, ' ');
            else
                ts_buffer_append(out, text + at, length);
        } else if (at == 0) {
            *first = false;
        }
    }
}

static void strip(const struct ts_step *step, const char *text, size_t size, struct ts_buffer *out, bool *first)
{
    size_t start = 0, end = size, last = size;
    uint32_t code;
    while (step->left && start < size) {
        const unsigned length = ts_utf8_get(text + start, &code);
        if (!ts_unicode_is_space(code))
            break;
        start += length;
    }
    while (step->right && end > start) {
        do
            last--;
        while (((unsigned char)text[last] & 0xc0) == 0x80);
        ts_utf8_get(text + last, &code);
        if (!ts_unicode_is_space(code))
            break;
        end = last;
    }
    if (start)
        *first = false;
    ts_buffer_append(out, text + start, end - start);
}

static enum ts_status apply(struct ts_work *work, const struct ts_step *step, const char *text, size_t size,
                            struct ts_buffer *out, bool *first)
{
    switch (step->kind) {
    case TS_STEP_NORMAL_FORM:
        if (!ts_unicode_normalize((enum ts_normal_form)step->form, text, size, out) && !out->failed)
            return ts_fail_memory(work->error);
        break;
    case TS_STEP_LOWERCASE:
        ts_unicode_lower(text, size, out);
        break;
    case TS_STEP_PREPEND:
        if (size)
            ts_buffer_append(out, step->content.data, step->content.size);
        ts_buffer_append(out, text, size);
        break;
    case TS_STEP_REPLACE:
        TS_TRY(ts_find_matches(work, step, text, size));
        for (size_t i = 0; i < work->match_count && !out->failed; i++) {
            const struct ts_match *match = &work->matches[i];
            if (match->matched && match->start == 0 && match->end > 0 && step->content.size == 0)
                *first = false;
            if (match->matched)
                ts_buffer_append(out, step->content.data, step->content.size);
            else
                ts_buffer_append(out, text + match->start, match->end - match->start);
        }
        break;
    case TS_STEP_STRIP:
        strip(step, text, size, out, first);
        break;
    case TS_STEP_BYTES:
        ts_append_byte_characters(out, text, size);
        break;
    default:
        by_character(step->kind, text, size, out, first);
    }
    return TS_OK;
}

enum ts_status ts_normalize(struct ts_work *work, const char *text, size_t size, struct ts_text *normal, bool *first)
{
    const struct ts_tokenizer *tokenizer = work->tokenizer;
    *normal = (struct ts_text){.data = text, .size = size};
    for (size_t i = 0; i < tokenizer->normalizer_count; i++) {
        struct ts_buffer *out = &work->normal[i % 2];
        ts_buffer_clear(out);
        TS_TRY(apply(work, &tokenizer->normalizers[i], normal->data, normal->size, out, first));
        if (out->failed)
            return ts_fail(work->error, TS_ERR_LIMIT, TS_NO_OFFSET,
                           "the normalized text is longer than %zu bytes, which is the limit for a text of this size",
                           out->limit);
        *normal = (struct ts_text){.data = out->data ? out->data : "", .size = out->size};
    }
    return TS_OK;
}
