/* Torch legacy: what torch.save wrote before 1.6, and still writes inside of plain pickles.
 *
 * Five pickles in a row (magic number, protocol version, system, the value, the keys of its storages), then for each
 * key the number of elements as int64 and the elements. Numbers are little-endian whatever machine wrote them: torch
 * converts when it saves, and the byte order among the system's properties is that of the machine, not of the file. */
#include <inttypes.h>
#include <string.h>

#include "base/number.h"
#include "read/torch.h"

/* 0x1950a86a20f9469cfc6c as the pickle of an integer holds it. */
static const uint8_t magic[10] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};
static const char magic_text[] = "L119547037146038801333356L\n.";
#define PROTOCOL_VERSION 1001

bool ts_torch_is_legacy(const uint8_t *data, uint64_t size)
{
    uint64_t at = 2;
    if (size >= sizeof magic_text - 1 && memcmp(data, magic_text, sizeof magic_text - 1) == 0)
        return true; /* protocols 0 and 1 */
    if (size < 2 || data[0] != 0x80 || data[1] < 2 || data[1] > 5)
        return false;
    if (size > 11 && data[2] == 0x95) /* protocol 4 puts a frame around it */
        at = 11;
    return ts_span_fits(at, 2 + sizeof magic + 1, size) && data[at] == 0x8a && data[at + 1] == sizeof magic &&
           memcmp(data + at + 2, magic, sizeof magic) == 0 && data[at + 2 + sizeof magic] == '.';
}

bool ts_torch_is_tar(const struct ts_source *source)
{
    static const char *const members[] = {"sys_info", "pickle", "tensors", "storages"};
    uint64_t at = 0;
    for (unsigned block = 0; block < 4; block++) {
        const uint8_t *header = ts_source_at(source, at, 512);
        uint64_t size = 0;
        if (!header || memcmp(header + 257, "ustar", 5) != 0)
            return false;
        for (size_t i = 0; i < sizeof members / sizeof *members; i++)
            if (strncmp((const char *)header, members[i], 100) == 0)
                return true;
        if (header[156] != 'x' && header[156] != 'g') /* extended headers stand before the member they are about */
            return false;
        for (unsigned i = 124; i < 135 && header[i] >= '0' && header[i] <= '7'; i++)
            size = size << 3 | (uint64_t)(header[i] - '0');
        at += 512 + (size + 511) / 512 * 512;
    }
    return false;
}

/* The pickle knows the type of each storage, and the file needs it to know its length. */
static enum ts_status declare(struct ts_torch *torch, const struct ts_pickle_persistent *persistent,
                              struct ts_error *error)
{
    for (; persistent; persistent = persistent->next) {
        const struct ts_pickle_value *items;
        const struct ts_torch_dtype *dtype;
        struct ts_torch_storage *storage = NULL;
        if (!ts_torch_is_storage_id(persistent->id))
            continue;
        items = persistent->id.tuple->items;
        dtype = ts_torch_storage_dtype(items[1]);
        if (!dtype)
            dtype = ts_torch_dtype_of(items[1]);
        if (!dtype || items[4].kind != TS_PICKLE_INT || items[4].integer < 0)
            continue; /* whoever uses it will complain */
        TS_TRY(ts_torch_storage_entry(torch, persistent->tag, items[2], &storage, error));
        if (!storage->element_bytes) { /* the first reference counts, as in torch */
            storage->element_bytes = dtype->bytes;
            storage->elements = (uint64_t)items[4].integer;
        }
    }
    return TS_OK;
}

static enum ts_status give_up(struct ts_torch *torch, struct ts_torch_storage *storage, const struct ts_error *why,
                              struct ts_error *error)
{
    if (!storage->source && !storage->problem)
        storage->problem = ts_arena_string(&torch->pickle.arena, why->message);
    return storage->source || storage->problem ? TS_OK : ts_fail_memory(error);
}

/* One storage at *at; what is wrong with it concerns it and, when its length is not known, those behind it. */
static enum ts_status read_storage(struct ts_source *source, uint64_t *at, uint64_t end,
                                   struct ts_torch_storage *storage, struct ts_error *why)
{
    uint64_t elements, bytes;
    const uint8_t *count = ts_source_at(source, *at, 8);
    if (!count || end - *at < 8)
        return ts_fail(why, TS_ERR_FORMAT, *at, "truncated: the file ends before its storage");
    elements = ts_load_le64(count);
    if (!storage->element_bytes)
        return ts_fail(why, TS_ERR_FORMAT, *at, "a storage comes before it whose type the pickle does not tell");
    if (elements != storage->elements)
        return ts_fail(why, TS_ERR_FORMAT, *at,
                       "its storage has %" PRIu64 " elements in the pickle and %" PRIu64 " in the file",
                       storage->elements, elements);
    if (!ts_mul(elements, storage->element_bytes, &bytes) || bytes > end - *at - 8)
        return ts_fail(why, TS_ERR_FORMAT, *at,
                       "truncated: its storage has %" PRIu64 " elements of %" PRIu64 " bytes, %" PRIu64
                       " bytes are left",
                       elements, storage->element_bytes, end - *at - 8);
    if (!storage->source)
        TS_TRY(ts_source_slice(source, *at + 8, bytes, source->path, &storage->source, why));
    *at += 8 + bytes;
    return TS_OK;
}

static enum ts_status read_storages(struct ts_torch *torch, uint32_t space, struct ts_source *source, uint64_t at,
                                    uint64_t end, struct ts_pickle_value keys, struct ts_error *error)
{
    struct ts_pickle_cursor cursor;
    struct ts_pickle_value key;
    enum ts_status status = TS_OK;
    struct ts_error why;
    if (keys.kind != TS_PICKLE_LIST)
        return ts_fail(error, TS_ERR_FORMAT, at, "the keys of the storages are not a list");
    cursor = ts_pickle_begin(keys.list);
    while (ts_pickle_next(&cursor, &key)) {
        struct ts_torch_storage *storage = NULL;
        TS_TRY(ts_torch_storage_entry(torch, space, key, &storage, error));
        if (status == TS_OK)
            status = read_storage(source, &at, end, storage, &why);
        if (status == TS_ERR_MEMORY)
            return ts_fail_memory(error);
        if (status != TS_OK) /* from here on nothing is where it should be */
            TS_TRY(give_up(torch, storage, &why, error));
    }
    return TS_OK;
}

enum ts_status ts_torch_load_legacy(struct ts_torch *torch, struct ts_source *source, uint64_t start, uint64_t size,
                                    struct ts_pickle_value *value, struct ts_error *error)
{
    const uint64_t end = start + size; /* fits: a span of the source */
    struct ts_pickle *pickle = &torch->pickle;
    struct ts_pickle_persistent **from;
    struct ts_pickle_value ignored, version, keys;
    uint64_t at = start;
    uint32_t space = 0;
    TS_TRY(ts_torch_add_space(torch, (struct ts_torch_space){.folder = NULL}, &space, error));
    TS_TRY(ts_pickle_load(pickle, source->data, end, at, &ignored, &at, error));
    TS_TRY(ts_pickle_load(pickle, source->data, end, at, &version, &at, error));
    if (version.kind != TS_PICKLE_INT || version.integer != PROTOCOL_VERSION)
        return ts_fail(error, TS_ERR_UNSUPPORTED, at, "is not version %d of the legacy torch format", PROTOCOL_VERSION);
    TS_TRY(ts_pickle_load(pickle, source->data, end, at, &ignored, &at, error));
    from = pickle->persistents_end;
    pickle->tag = space;
    TS_TRY(ts_pickle_load(pickle, source->data, end, at, value, &at, error));
    TS_TRY(declare(torch, *from, error));
    TS_TRY(ts_pickle_load(pickle, source->data, end, at, &keys, &at, error));
    return read_storages(torch, space, source, at, end, keys, error);
}
