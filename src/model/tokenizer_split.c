/* Pre-tokenizers: a text to words. Patterns, classes of characters, and the rewriting that some of them do. */
#include <string.h>

#include "model/tokenizer_parts.h"
#include "model/unicode.h"

static enum ts_status add_match(struct ts_work *work, size_t start, size_t end, bool matched)
{
    if (!ts_work_reserve(&work->matches, &work->match_capacity, work->match_count + 1, sizeof *work->matches))
        return ts_fail_memory(work->error);
    work->matches[work->match_count++] = (struct ts_match){.start = start, .end = end, .matched = matched};
    return TS_OK;
}

/* One match, and what is in front of it since the last. */
static enum ts_status add_found(struct ts_work *work, size_t *behind, size_t start, size_t end)
{
    if (*behind != start)
        TS_TRY(add_match(work, *behind, start, false));
    *behind = end;
    return add_match(work, start, end, true);
}

static enum ts_status find_regex(struct ts_work *work, const struct ts_step *step, const char *text, size_t size,
                                 size_t *behind)
{
    size_t from = 0, last = SIZE_MAX, start = 0, end = 0;
    bool found;
    while (from <= size) {
        TS_TRY(ts_regex_find(step->regex, work->search, text, size, from, &found, &start, &end, work->error));
        if (!found)
            break;
        if (start == end && end == last) { /* nothing, right behind a match: go on behind the next character */
            from += from < size ? ts_utf8_length(text[from]) : 1;
            continue;
        }
        TS_TRY(add_found(work, behind, start, end));
        from = last = end;
    }
    return TS_OK;
}

static enum ts_status find_literal(struct ts_work *work, const struct ts_step *step, const char *text, size_t size,
                                   size_t *behind)
{
    const char *at = text;
    while ((at = memmem(at, size - (size_t)(at - text), step->literal.data, step->literal.size))) {
        const size_t start = (size_t)(at - text);
        TS_TRY(add_found(work, behind, start, start + step->literal.size));
        at += step->literal.size;
    }
    return TS_OK;
}

static enum ts_status find_class(struct ts_work *work, const struct ts_step *step, const char *text, size_t size,
                                 size_t *behind)
{
    for (size_t at = 0, length; at < size; at += length) {
        uint32_t code;
        length = ts_utf8_get(text + at, &code);
        if (step->member(code))
            TS_TRY(add_found(work, behind, at, at + length));
    }
    return TS_OK;
}

enum ts_status ts_find_matches(struct ts_work *work, const struct ts_step *step, const char *text, size_t size)
{
    size_t behind = 0;
    work->match_count = 0;
    if (size == 0)
        return TS_OK;
    if (step->regex)
        TS_TRY(find_regex(work, step, text, size, &behind));
    else if (step->member)
        TS_TRY(find_class(work, step, text, size, &behind));
    else
        TS_TRY(find_literal(work, step, text, size, &behind));
    return behind < size ? add_match(work, behind, size, false) : TS_OK;
}

static enum ts_status add_span(struct ts_work *work, struct ts_spans *spans, size_t at, size_t size, bool first)
{
    if (size == 0)
        return TS_OK;
    if (!ts_work_reserve(&spans->list, &spans->capacity, spans->count + 1, sizeof *spans->list))
        return ts_fail_memory(work->error);
    spans->list[spans->count++] = (struct ts_span){.at = at, .size = size, .first = first};
    return TS_OK;
}

/* Joins neighbours of work->matches as the behavior says; what is left are the words. */
static size_t join(struct ts_match *matches, size_t count, enum ts_behavior behavior, bool invert)
{
    size_t kept = 0;
    bool before = false;
    for (size_t i = 0; i < count; i++) {
        const bool matched = matches[i].matched != invert;
        bool joined;
        switch (behavior) {
        case TS_SPLIT_REMOVED:
            if (!matched)
                matches[kept++] = matches[i];
            continue;
        case TS_SPLIT_MERGED_WITH_PREVIOUS:
            joined = matched && !before;
            break;
        case TS_SPLIT_CONTIGUOUS:
            joined = matched == before;
            break;
        default:
            joined = false;
        }
        if (joined && kept)
            matches[kept - 1].end = matches[i].end;
        else
            matches[kept++] = matches[i];
        before = matched;
    }
    return kept;
}

/* The same from the right: a match goes with what is behind it. */
static size_t join_with_next(struct ts_match *matches, size_t count, bool invert)
{
    size_t kept = count; /* of the list, the part from here on */
    bool before = false;
    for (size_t i = count; i-- > 0;) {
        const struct ts_match match = matches[i];
        const bool matched = match.matched != invert;
        if (matched && !before && kept < count)
            matches[kept].start = match.start;
        else
            matches[--kept] = match;
        before = matched;
    }
    memmove(matches, matches + kept, (count - kept) * sizeof *matches);
    return count - kept;
}

static enum ts_status split_span(struct ts_work *work, const struct ts_step *step, const char *text,
                                 struct ts_span span, struct ts_spans *to)
{
    size_t count;
    TS_TRY(ts_find_matches(work, step, text, span.size));
    if (step->behavior == TS_SPLIT_MERGED_WITH_NEXT)
        count = join_with_next(work->matches, work->match_count, step->invert);
    else
        count = join(work->matches, work->match_count, step->behavior, step->invert);
    for (size_t i = 0; i < count; i++) {
        const struct ts_match *match = &work->matches[i];
        TS_TRY(add_span(work, to, span.at + match->start, match->end - match->start, span.first && match->start == 0));
    }
    return TS_OK;
}

static enum ts_status fixed_length(struct ts_work *work, const struct ts_step *step, const char *text,
                                   struct ts_span span, struct ts_spans *to)
{
    size_t start = 0, at = 0, characters = 0;
    while (at < span.size) {
        at += ts_utf8_length(text[at]);
        if (++characters == step->length || at == span.size) {
            TS_TRY(add_span(work, to, span.at + start, at - start, span.first && start == 0));
            start = at;
            characters = 0;
        }
    }
    return TS_OK;
}

static bool starts_with(const char *text, size_t size, struct ts_text start)
{
    return size >= start.size && memcmp(text, start.data, start.size) == 0;
}

/* ' ' becomes the replacement, which may be put in front; words begin with it. */
static enum ts_status metaspace(struct ts_work *work, const struct ts_step *step, const char *text, struct ts_span span,
                                struct ts_buffer *out, struct ts_spans *to)
{
    const struct ts_text mark = step->content;
    const size_t start = out->size;
    size_t written;
    if ((step->scheme == TS_PREPEND_ALWAYS || (step->scheme == TS_PREPEND_FIRST && span.first)) && text[0] != ' ' &&
        !starts_with(text, span.size, mark))
        ts_buffer_append(out, mark.data, mark.size);
    for (size_t i = 0; i < span.size && !out->failed; i++) {
        if (text[i] == ' ')
            ts_buffer_append(out, mark.data, mark.size);
        else
            ts_buffer_byte(out, text[i]);
    }
    written = out->size - start;
    if (out->failed)
        return TS_OK; /* told by the caller */
    if (step->split) {
        const struct ts_step by_mark = {.kind = TS_STEP_SPLIT, .literal = mark, .behavior = TS_SPLIT_MERGED_WITH_NEXT};
        const struct ts_span whole = {.at = start, .size = written, .first = span.first};
        return split_span(work, &by_mark, out->data + start, whole, to);
    }
    return add_span(work, to, start, written, span.first);
}

/* Steps that write the text anew. */
static enum ts_status rewrite(struct ts_work *work, const struct ts_step *step, const char *text, struct ts_span span,
                              struct ts_buffer *out, struct ts_spans *to)
{
    const size_t start = out->size;
    if (step->kind == TS_STEP_METASPACE)
        return metaspace(work, step, text, span, out, to);
    if (step->kind == TS_STEP_WORD_BYTES) {
        ts_append_byte_characters(out, text, span.size);
    } else {
        if (text[0] != ' ')
            ts_buffer_byte(out, ' ');
        ts_buffer_append(out, text, span.size);
    }
    return add_span(work, to, start, out->size - start, span.first);
}

static bool rewrites(enum ts_step_kind kind)
{
    return kind == TS_STEP_PREFIX || kind == TS_STEP_WORD_BYTES || kind == TS_STEP_METASPACE;
}

enum ts_status ts_split_words(struct ts_work *work)
{
    const struct ts_tokenizer *tokenizer = work->tokenizer;
    for (size_t i = 0; i < tokenizer->splitter_count; i++) {
        const struct ts_step *step = &tokenizer->splitters[i];
        struct ts_spans *from = &work->spans[0], *to = &work->spans[1];
        struct ts_buffer *out = &work->text[1];
        struct ts_spans swap;
        to->count = 0;
        ts_buffer_clear(out);
        for (size_t j = 0; j < from->count; j++) {
            const char *text = work->text[0].data + from->list[j].at;
            if (rewrites(step->kind))
                TS_TRY(rewrite(work, step, text, from->list[j], out, to));
            else if (step->kind == TS_STEP_FIXED_LENGTH)
                TS_TRY(fixed_length(work, step, text, from->list[j], to));
            else
                TS_TRY(split_span(work, step, text, from->list[j], to));
            if (out->failed)
                return ts_fail(work->error, TS_ERR_LIMIT, TS_NO_OFFSET,
                               "the words are longer than %zu bytes, which is the limit for a text of this size",
                               out->limit);
        }
        swap = *from;
        *from = *to;
        *to = swap;
        if (rewrites(step->kind)) {
            struct ts_buffer text = work->text[0];
            work->text[0] = *out;
            *out = text;
        }
    }
    return TS_OK;
}
