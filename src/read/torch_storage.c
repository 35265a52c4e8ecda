/* Torch storages: the byte arrays that tensors are views of, wherever the file keeps them, and bytes inside pickles. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/system.h"
#include "read/torch.h"

static bool grow(void **data, size_t count, size_t *capacity, size_t size)
{
    size_t more = *capacity ? *capacity * 2 : 8;
    void *moved;
    if (count < *capacity)
        return true;
    if (!(moved = ts_reallocarray(*data, more, size)))
        return false;
    *data = moved;
    *capacity = more;
    return true;
}

enum ts_status ts_torch_add_space(struct ts_torch *torch, struct ts_torch_space space, uint32_t *number,
                                  struct ts_error *error)
{
    if (!grow((void **)&torch->spaces, torch->space_count, &torch->space_capacity, sizeof space))
        return ts_fail_memory(error);
    *number = (uint32_t)torch->space_count;
    torch->spaces[torch->space_count++] = space;
    return TS_OK;
}

enum ts_status ts_torch_add_source(struct ts_torch *torch, struct ts_source *source, struct ts_error *error)
{
    if (!grow((void **)&torch->sources, torch->source_count, &torch->source_capacity, sizeof source))
        return ts_fail_memory(error);
    torch->sources[torch->source_count++] = ts_source_retain(source);
    return TS_OK;
}

void ts_torch_release(struct ts_torch *torch)
{
    for (size_t i = 0; i < torch->table_size; i++)
        if (torch->table[i]) {
            ts_source_release(torch->table[i]->source);
            for (unsigned k = 0; k < 3; k++)
                ts_source_release(torch->table[i]->flipped[k]);
        }
    for (size_t i = 0; i < torch->source_count; i++)
        ts_source_release(torch->sources[i]);
    free(torch->table);
    free(torch->sources);
    free(torch->spaces);
    free(torch->pending);
    ts_buffer_release(&torch->numbers);
    ts_pickle_release(&torch->pickle);
}

static struct ts_torch_storage **slot_of(struct ts_torch_storage **table, size_t size, uint32_t space,
                                         const uint8_t *key, uint64_t key_size)
{
    uint64_t hash = 0xcbf29ce484222325u ^ space; /* FNV-1a */
    size_t at;
    for (uint64_t i = 0; i < key_size; i++)
        hash = (hash ^ key[i]) * 0x100000001b3u;
    at = (size_t)(hash ^ hash >> 32) & (size - 1);
    while (table[at] && !(table[at]->space == space && table[at]->key_size == key_size &&
                          memcmp(table[at]->key, key, key_size) == 0))
        at = (at + 1) & (size - 1);
    return &table[at];
}

static enum ts_status grow_table(struct ts_torch *torch, struct ts_error *error)
{
    size_t size = torch->table_size ? torch->table_size * 2 : 64;
    struct ts_torch_storage **table = calloc(size, sizeof *table);
    if (!table)
        return ts_fail_memory(error);
    for (size_t i = 0; i < torch->table_size; i++) {
        struct ts_torch_storage *old = torch->table[i];
        if (old)
            *slot_of(table, size, old->space, old->key, old->key_size) = old;
    }
    free(torch->table);
    torch->table = table;
    torch->table_size = size;
    return TS_OK;
}

enum ts_status ts_torch_storage_entry(struct ts_torch *torch, uint32_t space, struct ts_pickle_value key,
                                      struct ts_torch_storage **storage, struct ts_error *error)
{
    const uint8_t *text;
    uint64_t size;
    char digits[24];
    struct ts_torch_storage **slot;
    if (key.kind == TS_PICKLE_TEXT || key.kind == TS_PICKLE_STRING || key.kind == TS_PICKLE_BYTES) {
        text = key.bytes->data;
        size = key.bytes->size;
    } else if (key.kind == TS_PICKLE_INT) { /* before torch 0.2 keys were addresses */
        size = (uint64_t)snprintf(digits, sizeof digits, "%" PRId64, key.integer);
        text = (const uint8_t *)digits;
    } else {
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "the key of a storage is neither a string nor a number");
    }
    if (size > 255)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "the key of a storage is %" PRIu64 " bytes long", size);
    if (torch->table_used * 2 >= torch->table_size)
        TS_TRY(grow_table(torch, error));
    slot = slot_of(torch->table, torch->table_size, space, text, size);
    if (!*slot) {
        struct ts_torch_storage *added = ts_arena_alloc(&torch->pickle.arena, sizeof *added);
        char *copy = ts_arena_copy(&torch->pickle.arena, (const char *)text, size);
        if (!added || !copy)
            return ts_fail_memory(error);
        added->space = space;
        added->key = (const uint8_t *)copy;
        added->key_size = size;
        *slot = added;
        torch->table_used++;
    }
    *storage = *slot;
    return TS_OK;
}

static enum ts_status give_up(struct ts_torch *torch, struct ts_torch_storage *storage, const struct ts_error *why,
                              struct ts_error *error)
{
    storage->problem = ts_arena_string(&torch->pickle.arena, why->message);
    return storage->problem ? TS_OK : ts_fail_memory(error);
}

/* Opens the member of the zip file that holds the storage. What goes wrong is remembered, not returned: it concerns
 * the tensors of this storage only. */
static enum ts_status open_member(struct ts_torch *torch, const struct ts_torch_space *space,
                                  struct ts_torch_storage *storage, struct ts_error *error)
{
    char name[1024];
    struct ts_error why;
    const struct ts_zip_entry *entry;
    enum ts_status status;
    int length = snprintf(name, sizeof name, "%s%s", space->folder, (const char *)storage->key);
    storage->swapped = space->swapped;
    if (length < 0 || (size_t)length >= sizeof name || memchr(storage->key, '\0', storage->key_size) ||
        !(entry = ts_zip_find(torch->input->zip, name))) {
        ts_fail(&why, TS_ERR_FORMAT, TS_NO_OFFSET, "its storage \"%.200s\" is not in the file",
                (const char *)storage->key);
        return give_up(torch, storage, &why, error);
    }
    if (entry->problem) {
        ts_fail(&why, TS_ERR_FORMAT, TS_NO_OFFSET, "its storage \"%.200s\" cannot be read: %s",
                (const char *)storage->key, entry->problem);
        return give_up(torch, storage, &why, error);
    }
    status = ts_zip_member(torch->input->zip, entry, &storage->source, &why);
    if (status == TS_ERR_MEMORY || status == TS_ERR_CANCELLED) {
        *error = why;
        return status;
    }
    return status == TS_OK ? TS_OK : give_up(torch, storage, &why, error);
}

bool ts_torch_is_storage_id(struct ts_pickle_value id)
{
    return id.kind == TS_PICKLE_TUPLE && id.tuple->count >= 5 && ts_pickle_equals(id.tuple->items[0], "storage");
}

/* (view key, offset, elements): a part of the storage, as torch before 0.4 wrote views. */
static enum ts_status apply_view(struct ts_pickle_value view, const struct ts_torch_dtype *dtype, uint64_t *shift,
                                 uint64_t *elements, struct ts_error *error)
{
    const struct ts_pickle_value *items;
    if (view.kind == TS_PICKLE_NONE)
        return TS_OK;
    if (view.kind != TS_PICKLE_TUPLE || view.tuple->count != 3)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "the view of a storage is not (key, offset, size)");
    items = view.tuple->items;
    if (items[1].kind != TS_PICKLE_INT || items[1].integer < 0 || items[2].kind != TS_PICKLE_INT ||
        items[2].integer < 0 || !ts_mul((uint64_t)items[1].integer, dtype->bytes, shift))
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "the view of a storage has an offset out of range");
    *elements = (uint64_t)items[2].integer;
    return TS_OK;
}

/* Stands in a cache for "was tried, does not work": many references may lead to the same bytes. */
static struct ts_source refused;

/* torch.storage._load_from_bytes: pickle.dump of a tensor puts a whole legacy file around each storage. */
static enum ts_status storage_from_bytes(struct ts_torch *torch, struct ts_pickle_object *object,
                                         struct ts_pickle_value *inner, struct ts_error *error)
{
    struct ts_pickle_value bytes = ts_torch_argument(object, 0), text = bytes;
    struct ts_source *source = NULL;
    uint64_t offset = 0, size = 0;
    if (bytes.kind == TS_PICKLE_OBJECT && ts_torch_known(bytes.object->callable) == TS_TORCH_ENCODE)
        text = ts_torch_argument(bytes.object, 0);
    if (text.kind != TS_PICKLE_BYTES && text.kind != TS_PICKLE_STRING && text.kind != TS_PICKLE_TEXT)
        return ts_fail(error, TS_ERR_FORMAT, object->offset, "its storage is made of something that is no bytes");
    if (text.bytes->loaded == &refused)
        return ts_fail(error, TS_ERR_FORMAT, object->offset, "its storage is inside of bytes that cannot be read");
    if (!text.bytes->loaded) {
        void **loaded = &text.bytes->loaded;
        *loaded = &refused;
        TS_TRY(ts_torch_bytes_of(torch, bytes, &source, &offset, &size, error));
        if (!ts_torch_is_legacy(source->data + offset, size))
            return ts_fail(error, TS_ERR_UNSUPPORTED, object->offset,
                           "its storage is inside of bytes that are no legacy torch file");
        TS_TRY(ts_torch_load_legacy(torch, source, offset, size, inner, error));
        if (inner->kind != TS_PICKLE_PERSISTENT || !ts_torch_is_storage_id(inner->persistent->id))
            return ts_fail(error, TS_ERR_FORMAT, object->offset, "a torch file inside of bytes holds no storage");
        *loaded = inner->persistent;
    }
    *inner = (struct ts_pickle_value){.kind = TS_PICKLE_PERSISTENT, .persistent = text.bytes->loaded};
    return TS_OK;
}

enum ts_status ts_torch_storage_of(struct ts_torch *torch, struct ts_pickle_value value,
                                   struct ts_torch_storage **storage, const struct ts_torch_dtype **dtype,
                                   uint64_t *shift, uint64_t *elements, struct ts_error *error)
{
    const struct ts_torch_space *space;
    const struct ts_pickle_value *items;
    uint64_t need;
    if (value.kind == TS_PICKLE_OBJECT && ts_torch_known(value.object->callable) == TS_TORCH_LOAD_FROM_BYTES)
        TS_TRY(storage_from_bytes(torch, value.object, &value, error));
    if (value.kind != TS_PICKLE_PERSISTENT)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "its storage is not a storage");
    if (value.persistent->tag >= torch->space_count || torch->spaces[value.persistent->tag].outside)
        return ts_fail(error, TS_ERR_UNSUPPORTED, value.persistent->offset, "its storage is outside of the file");
    space = &torch->spaces[value.persistent->tag];
    if (!ts_torch_is_storage_id(value.persistent->id))
        return ts_fail(error, TS_ERR_FORMAT, value.persistent->offset,
                       "its storage is not named as ('storage', type, key, location, size)");
    items = value.persistent->id.tuple->items;
    *dtype = ts_torch_storage_dtype(items[1]);
    if (!*dtype)
        *dtype = ts_torch_dtype_of(items[1]);
    if (!*dtype) {
        char name[160] = "something that is no class";
        if (items[1].kind == TS_PICKLE_GLOBAL)
            ts_torch_global_text(items[1].global, name, sizeof name);
        return ts_fail(error, TS_ERR_UNSUPPORTED, value.persistent->offset,
                       "its storage has type %s, which this program does not know", name);
    }
    if (items[4].kind != TS_PICKLE_INT || items[4].integer < 0)
        return ts_fail(error, TS_ERR_FORMAT, value.persistent->offset, "its storage has a size that is no number");
    *elements = (uint64_t)items[4].integer;
    *shift = 0;
    TS_TRY(ts_torch_storage_entry(torch, value.persistent->tag, items[2], storage, error));
    if (!(*storage)->source && !(*storage)->problem && space->folder)
        TS_TRY(open_member(torch, space, *storage, error));
    if (!(*storage)->source)
        return ts_fail(error, TS_ERR_FORMAT, value.persistent->offset, "%s",
                       (*storage)->problem ? (*storage)->problem : "its storage is not in the file");
    if (!ts_mul(*elements, (*dtype)->bytes, &need) || need > (*storage)->source->size)
        return ts_fail(error, TS_ERR_FORMAT, value.persistent->offset,
                       "its storage \"%.100s\" should hold %" PRIu64 " elements of %u bytes, the file has %" PRIu64
                       " bytes of it",
                       (const char *)(*storage)->key, *elements, (*dtype)->bytes, (*storage)->source->size);
    if (value.persistent->id.tuple->count > 5)
        TS_TRY(apply_view(items[5], *dtype, shift, elements, error));
    return TS_OK;
}

/* Hands the only reference over to the bundle. */
static enum ts_status keep(struct ts_torch *torch, struct ts_source *source, struct ts_error *error)
{
    enum ts_status status = ts_bundle_keep(torch->bundle, source, error);
    ts_source_release(source);
    return status;
}

/* UTF-8 of characters below 256, as bytes. */
static enum ts_status narrow(struct ts_torch *torch, struct ts_pickle_bytes *text, struct ts_source **source,
                             struct ts_error *error)
{
    uint8_t *out = NULL;
    uint64_t used = 0;
    TS_TRY(ts_spool_reserve(torch->input->spool, text->size ? text->size : 1, &out, error));
    for (uint64_t i = 0; i < text->size; i++) {
        uint8_t c = text->data[i];
        if (c >= 0x80) {
            if ((c != 0xc2 && c != 0xc3) || i + 1 == text->size || (text->data[i + 1] & 0xc0) != 0x80) {
                ts_spool_unreserve(torch->input->spool, out, text->size);
                return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "bytes written as text have a character above 255");
            }
            c = (uint8_t)((c & 3) << 6 | (text->data[++i] & 0x3f));
        }
        out[used++] = c;
    }
    return ts_spool_source(torch->input->spool, out, used, torch->input->source->path, source, error);
}

/* The source that these bytes lie in: one of the pickles', or (escapes were undone) a copy. */
static enum ts_status source_of(struct ts_torch *torch, struct ts_pickle_bytes *bytes, struct ts_source **source,
                                uint64_t *offset, struct ts_error *error)
{
    for (size_t i = torch->source_count; i-- > 0;) {
        struct ts_source *candidate = torch->sources[i];
        uintptr_t base = (uintptr_t)candidate->data, at = (uintptr_t)bytes->data;
        if (at >= base && at - base <= candidate->size && bytes->size <= candidate->size - (at - base)) {
            *source = candidate;
            *offset = at - base;
            return TS_OK;
        }
    }
    *offset = 0;
    if (!bytes->cache) {
        struct ts_source *copy = NULL;
        TS_TRY(ts_source_copy(bytes->data, bytes->size, torch->input->source->path, &copy, error));
        TS_TRY(keep(torch, copy, error));
        bytes->cache = copy;
    }
    *source = bytes->cache;
    return TS_OK;
}

enum ts_status ts_torch_bytes_of(struct ts_torch *torch, struct ts_pickle_value value, struct ts_source **source,
                                 uint64_t *offset, uint64_t *size, struct ts_error *error)
{
    enum ts_torch_known known;
    struct ts_pickle_value inner;
    if (value.kind == TS_PICKLE_BYTES || value.kind == TS_PICKLE_STRING) {
        *size = value.bytes->size;
        return source_of(torch, value.bytes, source, offset, error);
    }
    known = value.kind == TS_PICKLE_OBJECT ? ts_torch_known(value.object->callable) : TS_TORCH_OPAQUE;
    inner = known == TS_TORCH_OPAQUE ? value : ts_torch_argument(value.object, 0);
    if (known == TS_TORCH_ENCODE && inner.kind == TS_PICKLE_TEXT) {
        if (!inner.bytes->cache) { /* kept with the text: many calls may name the same one */
            struct ts_source *narrowed = NULL;
            inner.bytes->cache = &refused;
            TS_TRY(narrow(torch, inner.bytes, &narrowed, error));
            TS_TRY(keep(torch, narrowed, error));
            inner.bytes->cache = narrowed;
        }
        if (inner.bytes->cache == &refused)
            return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "bytes written as text have a character above 255");
        *source = inner.bytes->cache;
        *offset = 0;
        *size = (*source)->size;
        return TS_OK;
    }
    if (known == TS_TORCH_CONVERSION && value.object->arguments.tuple->count == 0) { /* bytes() */
        static const uint8_t nothing[1];
        struct ts_pickle_bytes *empty = ts_arena_alloc(&torch->pickle.arena, sizeof *empty);
        if (!empty)
            return ts_fail_memory(error);
        empty->data = nothing;
        *size = 0;
        return source_of(torch, empty, source, offset, error);
    }
    if (known == TS_TORCH_CONVERSION && inner.kind != TS_PICKLE_OBJECT)
        return inner.kind == TS_PICKLE_BYTES || inner.kind == TS_PICKLE_STRING
                   ? ts_torch_bytes_of(torch, inner, source, offset, size, error)
                   : ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "bytes are made of something that is no bytes");
    if (known == TS_TORCH_CONVERSION && ts_torch_known(inner.object->callable) == TS_TORCH_ENCODE)
        return ts_torch_bytes_of(torch, inner, source, offset, size, error);
    return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "bytes are expected and something else is there");
}

/* Turns the sign bit of every number (negated), of every imaginary part (conjugated), or of every real part (both). */
static void turn_signs(uint8_t *data, uint64_t size, unsigned width, bool complex_parts, unsigned kind, bool swapped)
{
    uint64_t numbers = size / width;
    for (uint64_t i = 0; i < numbers; i++) {
        bool imaginary = complex_parts && i % 2;
        bool turn = (kind & 2) != 0; /* negated */
        if (imaginary && (kind & 1))
            turn = !turn;
        if (turn)
            data[i * width + (swapped ? 0 : width - 1)] ^= 0x80;
    }
}

enum ts_status ts_torch_flip(struct ts_torch *torch, struct ts_torch_view *view, struct ts_error *error)
{
    const struct ts_type_info *info = ts_type_info(view->type);
    unsigned kind = (view->conjugated ? 1u : 0u) | (view->negated ? 2u : 0u);
    struct ts_torch_storage *storage = view->storage;
    struct ts_source **flipped;
    uint8_t *copy = NULL;
    if (info->kind != TS_CLASS_COMPLEX)
        kind &= 2; /* the conjugate of a real number is itself */
    if (!kind || !storage)
        return TS_OK;
    if ((info->kind != TS_CLASS_COMPLEX && info->kind != TS_CLASS_FLOAT) || info->block_elements != 1)
        return ts_fail(error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET, "a lazily negated tensor of type %s", info->name);
    flipped = &storage->flipped[kind - 1];
    if (!*flipped) { /* one tensor type per storage is what torch writes; another finds the copy of the first */
        TS_TRY(ts_spool_reserve(torch->input->spool, storage->source->size ? storage->source->size : 1, &copy, error));
        if (storage->source->size)
            memcpy(copy, storage->source->data, storage->source->size);
        turn_signs(copy, storage->source->size, info->block_bytes / info->components, info->components == 2, kind,
                   view->swapped);
        TS_TRY(ts_spool_source(torch->input->spool, copy, storage->source->size, torch->input->source->path, flipped,
                               error));
    }
    view->source = *flipped;
    return TS_OK;
}
