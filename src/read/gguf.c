/* GGUF: the files of ggml and llama.cpp, versions 1 to 3 in both byte orders, and the parts of split models.
 *
 * Owns the header, the tensor directory and the search for sibling parts; gguf_metadata.c owns keys and
 * values, tensor/decode_blocks.h the element types. Where ggml refuses a whole file over one tensor, this
 * reader skips that tensor and says why. */
#include "read/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/table.h"
#include "base/text.h"
#include "read/readers.h"

/* split.count is a u16. */
#define MAX_PARTS 65535

enum ts_status ts_gguf_bytes(struct ts_gguf *file, uint64_t size, const char *what, const uint8_t **bytes,
                             struct ts_error *error)
{
    *bytes = ts_source_at(file->source, file->at, size);
    if (!*bytes)
        return ts_fail(error, TS_ERR_FORMAT, file->at, "truncated: %s needs %" PRIu64 " bytes, %" PRIu64 " are there",
                       what, size, file->source->size - file->at);
    file->at += size;
    return TS_OK;
}

enum ts_status ts_gguf_u32(struct ts_gguf *file, const char *what, uint32_t *value, struct ts_error *error)
{
    const uint8_t *bytes;
    TS_TRY(ts_gguf_bytes(file, 4, what, &bytes, error));
    *value = file->swapped ? ts_load_be32(bytes) : ts_load_le32(bytes);
    return TS_OK;
}

enum ts_status ts_gguf_u64(struct ts_gguf *file, const char *what, uint64_t *value, struct ts_error *error)
{
    const uint8_t *bytes;
    TS_TRY(ts_gguf_bytes(file, 8, what, &bytes, error));
    *value = file->swapped ? ts_load_be64(bytes) : ts_load_le64(bytes);
    return TS_OK;
}

enum ts_status ts_gguf_size(struct ts_gguf *file, const char *what, uint64_t *value, struct ts_error *error)
{
    uint32_t narrow;
    if (file->version != 1)
        return ts_gguf_u64(file, what, value, error);
    TS_TRY(ts_gguf_u32(file, what, &narrow, error));
    *value = narrow;
    return TS_OK;
}

enum ts_status ts_gguf_string(struct ts_gguf *file, const char *what, struct ts_gguf_string *string,
                              struct ts_error *error)
{
    const uint64_t start = file->at;
    const uint8_t *bytes;
    TS_TRY(ts_gguf_size(file, what, &string->size, error));
    if (ts_gguf_bytes(file, string->size, what, &bytes, error) != TS_OK) {
        file->at = start;
        return error->status;
    }
    string->text = (const char *)bytes;
    return TS_OK;
}

const char *ts_gguf_copy(struct ts_bundle *bundle, struct ts_gguf_string string)
{
    return ts_arena_copy(&bundle->arena, string.text, string.size > TS_GGUF_MAX_NAME ? 128 : (size_t)string.size);
}

static enum ts_status read_header(struct ts_gguf *file, struct ts_error *error)
{
    uint64_t least, left;
    const uint8_t *magic;
    TS_TRY(ts_gguf_bytes(file, 4, "the magic", &magic, error));
    if (memcmp(magic, "GGUF", 4) != 0)
        return ts_fail(error, TS_ERR_FORMAT, 0, "does not begin with GGUF");
    TS_TRY(ts_gguf_u32(file, "the header", &file->version, error));
    if ((file->version & 0xffff) == 0) { /* versions are small: the other byte order */
        file->swapped = true;
        file->version = __builtin_bswap32(file->version);
    }
    if (file->version < 1 || file->version > 3)
        return ts_fail(error, TS_ERR_UNSUPPORTED, 4, "is GGUF version %" PRIu32 "; this program knows 1 to 3",
                       file->version);
    TS_TRY(ts_gguf_size(file, "the header", &file->tensor_count, error));
    TS_TRY(ts_gguf_size(file, "the header", &file->key_count, error));
    left = file->source->size - file->at;
    /* The least a key takes: an empty string, its type and a value of one byte. A tensor: an empty name,
     * rank, type and offset. */
    least = ts_gguf_size_width(file) + 4 + 1;
    if (file->key_count > left / least)
        return ts_fail(error, TS_ERR_FORMAT, file->at,
                       "truncated: the header says %" PRIu64 " keys, %" PRIu64 " bytes are left", file->key_count,
                       left);
    least = ts_gguf_size_width(file) + 4 + 4 + 8;
    if (file->tensor_count > left / least)
        return ts_fail(error, TS_ERR_FORMAT, file->at,
                       "truncated: the header says %" PRIu64 " tensors, %" PRIu64 " bytes are left", file->tensor_count,
                       left);
    return TS_OK;
}

/* Header and keys. The source is kept from here on, since the bundle points into it. */
static enum ts_status read_start(struct ts_gguf *file, struct ts_bundle *bundle, struct ts_error *error)
{
    TS_TRY(ts_bundle_keep(bundle, file->source, error));
    TS_TRY(read_header(file, error));
    return ts_gguf_metadata(file, bundle, error);
}

/* One part of a split model. */
struct part {
    struct ts_input *input; /* of the file that was opened */
    struct ts_bundle *bundle;
    const struct ts_gguf *own; /* that file, read up to its tensors */
    const char *prefix;        /* its path without the suffix */
    uint64_t number;           /* from 0 */
    uint64_t tensors;          /* directory entries of the parts so far */
};

/* "-00002-of-00005.gguf": how the names of parts end. */
static void part_suffix(char text[64], uint64_t number, uint64_t parts)
{
    snprintf(text, 64, "-%05" PRIu64 "-of-%05" PRIu64 ".gguf", number + 1, parts);
}

/* A sibling's own wish for siblings is not heard. Its metadata repeats what the opened file says, but for the first
 * part, which holds all of it. */
static enum ts_status read_sibling(struct part *part, const char *member, struct ts_error *error)
{
    struct ts_bundle *bundle = part->bundle;
    const uint64_t parts = part->own->split_count;
    const char *slash = strrchr(member, '/');
    const size_t first = bundle->count;
    struct ts_gguf file = {.member = member};
    enum ts_status status;
    TS_TRY(ts_input_beside(part->input, slash ? slash + 1 : member, &file.source, error));
    status = read_start(&file, bundle, error);
    if (status == TS_OK && (file.split_no != part->number || file.split_count != parts))
        status = ts_bundle_find(bundle, NULL, error,
                                "%s does not say in split.no and split.count that it is part %" PRIu64 " of %" PRIu64,
                                member, part->number + 1, parts);
    if (status == TS_OK)
        status = ts_gguf_directory(&file, bundle, error);
    if (status == TS_OK) {
        bundle->file_bytes += file.source->size;
        part->tensors += file.tensor_count;
        for (size_t i = first; i < bundle->count; i++)
            bundle->tensors[i]->file = member;
    }
    ts_source_release(file.source);
    return status;
}

static enum ts_status read_own(struct part *part, struct ts_error *error)
{
    struct ts_gguf file = *part->own;
    part->tensors += file.tensor_count;
    return ts_gguf_directory(&file, part->bundle, error);
}

/* A part that fails is taken back and skipped, unless nothing can go on (no memory, the user). */
static enum ts_status read_part(struct part *part, struct ts_error *error)
{
    struct ts_bundle *bundle = part->bundle;
    const struct ts_bundle before = *bundle;
    struct ts_error why;
    const char *member;
    char suffix[64];
    part_suffix(suffix, part->number, part->own->split_count);
    member = ts_arena_printf(&bundle->arena, "%s%s", part->prefix, suffix);
    if (!member)
        return ts_fail_memory(error);
    if ((part->number == part->own->split_no ? read_own(part, error) : read_sibling(part, member, error)) == TS_OK)
        return TS_OK;
    if (error->status == TS_ERR_MEMORY || error->status == TS_ERR_CANCELLED)
        return error->status;
    bundle->count = before.count;
    bundle->meta_count = before.meta_count;
    bundle->skip_count = before.skip_count;
    bundle->finding_count = before.finding_count;
    ts_fail(&why, error->status, error->offset, "part %" PRIu64 " of %" PRIu64 ": %.400s", part->number + 1,
            part->own->split_count, error->message);
    return ts_bundle_skip_error(bundle, member, NULL, &why, error);
}

/* All parts of a split model, in their order, whichever was opened. */
static enum ts_status gather(struct ts_input *input, struct ts_bundle *bundle, struct ts_gguf *own,
                             struct ts_error *error)
{
    struct part part = {.input = input, .bundle = bundle, .own = own};
    const size_t skips = bundle->skip_count;
    struct ts_error why;
    char suffix[64];
    if (own->split_no >= own->split_count || own->split_count > MAX_PARTS) {
        TS_TRY(ts_bundle_find(bundle, NULL, error, "split.count is %" PRIu64 ", which does not go with split.no",
                              own->split_count));
        return ts_gguf_directory(own, bundle, error);
    }
    part_suffix(suffix, own->split_no, own->split_count);
    if (!input->folder || !ts_ends_with(own->member, suffix)) {
        ts_fail(&why, TS_ERR_FORMAT, TS_NO_OFFSET,
                "is part %" PRIu64 " of %" PRIu64 "; its name does not end in %s, so the other parts are not found",
                own->split_no + 1, own->split_count, suffix);
        TS_TRY(ts_bundle_skip_error(bundle, own->member, NULL, &why, error));
        return ts_gguf_directory(own, bundle, error);
    }
    part.prefix = ts_arena_copy(&bundle->arena, own->member, strlen(own->member) - strlen(suffix));
    if (!part.prefix)
        return ts_fail_memory(error);
    for (; part.number < own->split_count; part.number++)
        TS_TRY(read_part(&part, error));
    if (bundle->skip_count == skips && own->split_tensors != UINT64_MAX && own->split_tensors != part.tensors)
        return ts_bundle_find(bundle, NULL, error,
                              "split.tensors.count is %" PRIu64 " and the parts hold %" PRIu64 " tensors",
                              own->split_tensors, part.tensors);
    return TS_OK;
}

/* Of the tensors from index start on that have one name, the first stays. */
static enum ts_status drop_repeated_tensors(struct ts_input *input, struct ts_bundle *bundle, size_t start,
                                            struct ts_error *error)
{
    enum ts_status status = TS_OK;
    struct ts_table table;
    size_t kept = start;
    if (!ts_table_init(&table, bundle->count - start))
        return ts_fail_memory(error);
    for (size_t i = start; status == TS_OK && i < bundle->count; i++) {
        struct ts_tensor *tensor = bundle->tensors[i];
        if (ts_table_put(&table, tensor->name, i, NULL)) {
            bundle->tensors[kept++] = tensor;
        } else {
            struct ts_error why;
            ts_fail(&why, TS_ERR_FORMAT, TS_NO_OFFSET, "has the name of an earlier tensor; ggml refuses such a file");
            status =
                ts_bundle_skip_error(bundle, tensor->file ? tensor->file : input->member, tensor->name, &why, error);
        }
    }
    bundle->count = kept;
    ts_table_release(&table);
    return status;
}

/* Parts repeat keys of each other (general.architecture, split.count); said once is enough. */
static enum ts_status drop_repeated_keys(struct ts_bundle *bundle, size_t start, struct ts_error *error)
{
    struct ts_table table;
    size_t kept = start;
    if (!ts_table_init(&table, bundle->meta_count - start))
        return ts_fail_memory(error);
    for (size_t i = start; i < bundle->meta_count; i++)
        if (ts_table_put(&table, bundle->metas[i].key, i, NULL))
            bundle->metas[kept++] = bundle->metas[i];
    bundle->meta_count = kept;
    ts_table_release(&table);
    return TS_OK;
}

/* The formats before GGUF, by their first four bytes: a little-endian u32 that spells the name. */
static const char *ancestor(const struct ts_source *source)
{
    static const char *const known[][2] = {{"lmgg", "GGML"}, {"fmgg", "GGMF"}, {"tjgg", "GGJT"}, {"algg", "GGLA"}};
    for (size_t i = 0; source->size >= 4 && i < sizeof known / sizeof *known; i++)
        if (memcmp(source->data, known[i][0], 4) == 0)
            return known[i][1];
    return NULL;
}

static unsigned gguf_bid(const struct ts_input *input)
{
    const uint8_t *magic = ts_source_at(input->source, 0, 4);
    return magic && (memcmp(magic, "GGUF", 4) == 0 || ancestor(input->source)) ? 32 : 0;
}

static enum ts_status gguf_read(struct ts_input *input, struct ts_bundle *bundle, struct ts_error *error)
{
    const size_t first = bundle->count, first_key = bundle->meta_count;
    const char *old = ancestor(input->source);
    struct ts_gguf file = {.source = input->source, .member = input->member};
    if (old)
        return ts_fail(error, TS_ERR_UNSUPPORTED, 0,
                       "is in the %s format, an ancestor of GGUF; convert it with llama.cpp's "
                       "convert_llama_ggml_to_gguf.py",
                       old);
    TS_TRY(read_start(&file, bundle, error));
    if (!bundle->format) {
        bundle->format =
            ts_arena_printf(&bundle->arena, "gguf v%" PRIu32 "%s", file.version, file.swapped ? " big-endian" : "");
        if (!bundle->format)
            return ts_fail_memory(error);
    }
    if (file.split_count != UINT64_MAX && file.split_count > 1) {
        TS_TRY(gather(input, bundle, &file, error));
        TS_TRY(drop_repeated_keys(bundle, first_key, error));
    } else {
        TS_TRY(ts_gguf_directory(&file, bundle, error));
    }
    return drop_repeated_tensors(input, bundle, first, error);
}

const struct ts_reader ts_reader_gguf = {
    .name = "gguf",
    .summary = "GGUF of ggml and llama.cpp, versions 1 to 3, both byte orders, single and split",
    .gathers = true,
    .bid = gguf_bid,
    .read = gguf_read,
};
