/* Reading the objects of a tokenizer.json, between tokenizer_json.c (vocabulary, merges, added tokens) and
 * tokenizer_json_steps.c (normalizers, pre-tokenizers, post-processors, decoders). Not for others.
 *
 * The file is read without a tree: a place in it is a copy of the reader. Keys come in any order, so that an object is
 * walked once for the places of the fields that are wanted. */
#ifndef TS_MODEL_TOKENIZER_JSON_H
#define TS_MODEL_TOKENIZER_JSON_H

#include "base/json.h"
#include "model/tokenizer_parts.h"

struct ts_json_field {
    const char *name;
    struct ts_json at; /* its value */
    bool present;      /* and not null */
    /* of a large object: its own fields, found on the same way */
    const char *what;
    struct ts_json_field *inner;
    size_t inner_count;
};

/* What reading needs besides the place: where texts without escapes are put together. */
struct ts_json_loader {
    struct ts_tokenizer *tokenizer;
    struct ts_buffer text[2];
    struct ts_error *error;
};

/* The places of the fields of the object at `at`; others are walked over. Not an object: an error that says what was
 * expected. */
enum ts_status ts_json_fields(struct ts_json_loader *loader, const struct ts_json *at, const char *what,
                              struct ts_json_field *fields, size_t count);
/* A field that has to be there. */
enum ts_status ts_json_required(struct ts_json_loader *loader, const struct ts_json *object, const char *what,
                                const struct ts_json_field *field);
/* *value stays when the field is not there. */
enum ts_status ts_json_bool_field(struct ts_json_loader *loader, const struct ts_json_field *field, bool *value);
enum ts_status ts_json_size_field(struct ts_json_loader *loader, const struct ts_json_field *field, uint64_t *value);
enum ts_status ts_json_text_field(struct ts_json_loader *loader, const struct ts_json_field *field,
                                  struct ts_text *value);
/* The key or string at `at`, unescaped: in the file, or in loader->text[which], until that is used again. */
enum ts_status ts_json_text_at(struct ts_json_loader *loader, const struct ts_json *at, unsigned which,
                               struct ts_text *text);
/* An id: an integer that ids can be. */
enum ts_status ts_json_id(struct ts_json_loader *loader, const struct ts_json *at, uint32_t *id);

enum ts_status ts_json_normalizer(struct ts_json_loader *loader, const struct ts_json *at);
enum ts_status ts_json_pre_tokenizer(struct ts_json_loader *loader, const struct ts_json *at);
enum ts_status ts_json_post_processor(struct ts_json_loader *loader, const struct ts_json *at);
enum ts_status ts_json_decoder(struct ts_json_loader *loader, const struct ts_json *at);

#endif
