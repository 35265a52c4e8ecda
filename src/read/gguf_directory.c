/* GGUF directory: the list of tensors of one file, and where their bytes are.
 *
 * ggml refuses a whole file over one bad entry; here that entry is skipped with the reason. Only a list that cannot be
 * walked to its end, which leaves the start of the data unknown, fails the file. */
#include "read/gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

/* ggml's own bounds. */
#define MAX_DIMS 4
#define MAX_NAME 63

struct entry {
    const char *name; /* in the bundle's arena; cut at a NUL byte, and short when the real one is absurdly long */
    uint64_t name_size;
    uint64_t at; /* where the entry stands */
    uint64_t dims[MAX_DIMS];
    uint32_t rank, number; /* number: ggml's of the element type */
    enum ts_type type;
    uint64_t offset; /* into the data section */
    uint64_t bytes;
    bool skipped;
};

static enum ts_status find_type(const struct entry *entry, enum ts_type *type, struct ts_error *error)
{
    static const struct {
        uint32_t number;
        enum ts_type type;
    } plain[] = {{0, TS_F32},  {1, TS_F16},  {24, TS_I8},  {25, TS_I16},
                 {26, TS_I32}, {27, TS_I64}, {28, TS_F64}, {30, TS_BF16}};
    static const struct {
        uint32_t number;
        const char *name;
    } removed[] = {{4, "Q4_2"},      {5, "Q4_3"},        {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},
                   {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"}};
    enum ts_block_type block;
    if (ts_block_from_ggml(entry->number, &block)) {
        *type = ts_type_of_block(block);
        return TS_OK;
    }
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (plain[i].number == entry->number) {
            *type = plain[i].type;
            return TS_OK;
        }
    for (size_t i = 0; i < sizeof removed / sizeof *removed; i++)
        if (removed[i].number == entry->number)
            return ts_fail(error, TS_ERR_UNSUPPORTED, entry->at,
                           "has type %" PRIu32 ", which was %s and is removed from ggml; convert the model again",
                           entry->number, removed[i].name);
    return ts_fail(error, TS_ERR_UNSUPPORTED, entry->at, "has type %" PRIu32 ", which this program does not know",
                   entry->number);
}

static enum ts_status check_size(struct entry *entry, struct ts_error *error)
{
    const struct ts_type_info *info = ts_type_info(entry->type);
    const uint64_t row = entry->rank ? entry->dims[0] : 1;
    uint64_t count = 1;
    if (row % info->block_elements != 0)
        return ts_fail(error, TS_ERR_FORMAT, entry->at,
                       "has rows of %" PRIu64 " elements, which are not whole blocks of %u, as %s needs", row,
                       info->block_elements, info->name);
    for (uint32_t i = 0; i < entry->rank; i++)
        if (entry->dims[i] == 0)
            count = 0;
    for (uint32_t i = 0; i < entry->rank; i++)
        if (entry->dims[i] > INT64_MAX || (count && !ts_mul(count, entry->dims[i], &count)) || count > INT64_MAX)
            return ts_fail(error, TS_ERR_FORMAT, entry->at, "has more than 2^63 elements");
    if (!ts_type_bytes(entry->type, count, &entry->bytes))
        return ts_fail(error, TS_ERR_FORMAT, entry->at, "is larger than any file");
    return TS_OK;
}

/* Everything that can be said of an entry without the others. */
static enum ts_status check_entry(const struct ts_gguf *file, struct entry *entry, struct ts_error *error)
{
    if (entry->name_size > TS_GGUF_MAX_NAME)
        return ts_fail(error, TS_ERR_FORMAT, entry->at, "has a name of %" PRIu64 " bytes; ggml ends at %d",
                       entry->name_size, MAX_NAME);
    if (strlen(entry->name) != entry->name_size)
        return ts_fail(error, TS_ERR_FORMAT, entry->at, "has a name with a NUL byte in it");
    if (entry->rank > MAX_DIMS)
        return ts_fail(error, TS_ERR_FORMAT, entry->at, "has %" PRIu32 " dimensions; ggml ends at %d", entry->rank,
                       MAX_DIMS);
    TS_TRY(find_type(entry, &entry->type, error));
    TS_TRY(check_size(entry, error));
    if (entry->offset % file->alignment != 0)
        return ts_fail(error, TS_ERR_FORMAT, entry->at,
                       "has offset %" PRIu64 ", which is no multiple of the alignment %" PRIu32, entry->offset,
                       file->alignment);
    return TS_OK;
}

static enum ts_status skip_entry(const struct ts_gguf *file, struct ts_bundle *bundle, struct entry *entry,
                                 const struct ts_error *why, struct ts_error *error)
{
    entry->skipped = true;
    return ts_bundle_skip_error(bundle, file->member, entry->name, why, error);
}

static enum ts_status read_entry(struct ts_gguf *file, struct ts_bundle *bundle, struct entry *entry,
                                 struct ts_error *error)
{
    const char *what = "the tensor directory";
    struct ts_gguf_string name;
    struct ts_error why;
    entry->at = file->at;
    TS_TRY(ts_gguf_string(file, what, &name, error));
    TS_TRY(ts_gguf_u32(file, what, &entry->rank, error));
    if (entry->rank > TS_MAX_RANK)
        return ts_fail(error, TS_ERR_FORMAT, file->at - 4,
                       "the tensor directory is corrupt: a tensor of %" PRIu32 " dimensions", entry->rank);
    for (uint32_t i = 0; i < entry->rank; i++) {
        uint64_t dim;
        TS_TRY(ts_gguf_size(file, what, &dim, error));
        if (i < MAX_DIMS)
            entry->dims[i] = dim;
    }
    TS_TRY(ts_gguf_u32(file, what, &entry->number, error));
    TS_TRY(ts_gguf_u64(file, what, &entry->offset, error));
    entry->name_size = name.size;
    entry->name = ts_gguf_copy(bundle, name);
    if (!entry->name)
        return ts_fail_memory(error);
    if (check_entry(file, entry, &why) != TS_OK)
        return skip_entry(file, bundle, entry, &why, error);
    if (name.size > MAX_NAME)
        return ts_bundle_find(bundle, entry->name, error, "has a name of %" PRIu64 " bytes; ggml refuses more than %d",
                              name.size, MAX_NAME);
    return TS_OK;
}

static int compare_offsets(const void *left, const void *right)
{
    const struct entry *a = *(struct entry *const *)left, *b = *(struct entry *const *)right;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* Skips the later one, in the order of the directory, of every two entries that share bytes. */
static enum ts_status skip_overlaps(const struct ts_gguf *file, struct ts_bundle *bundle, struct entry *entries,
                                    struct ts_error *error)
{
    struct entry **sorted = malloc((size_t)file->tensor_count * sizeof(struct entry *)), *last = NULL;
    enum ts_status status = TS_OK;
    size_t count = 0;
    if (!sorted)
        return ts_fail_memory(error);
    for (size_t i = 0; i < file->tensor_count; i++)
        if (!entries[i].skipped && entries[i].bytes)
            sorted[count++] = &entries[i];
    qsort(sorted, count, sizeof *sorted, compare_offsets);
    for (size_t i = 0; status == TS_OK && i < count; i++) {
        struct entry *next = sorted[i], *later;
        struct ts_error why;
        if (!last || next->offset - last->offset >= last->bytes) {
            last = next;
            continue;
        }
        later = next > last ? next : last;
        last = next > last ? last : next;
        ts_fail(&why, TS_ERR_FORMAT, later->at, "shares bytes with tensor \"%.128s\"; ggml refuses such a file",
                last->name);
        status = skip_entry(file, bundle, later, &why, error);
    }
    free(sorted);
    return status;
}

/* ggml takes only files whose tensors follow each other in the order of the directory, each padded to the alignment.
 * One finding is enough: after the first gap every offset is another one. */
static enum ts_status check_order(const struct ts_gguf *file, struct ts_bundle *bundle, const struct entry *entries,
                                  bool *overlapping, struct ts_error *error)
{
    uint64_t expected = 0, end = 0;
    bool told = false;
    *overlapping = false;
    for (size_t i = 0; i < file->tensor_count; i++) {
        const struct entry *entry = &entries[i];
        uint64_t stop;
        if (entry->skipped) {
            told = true; /* its size may not be known, so neither is what follows */
            continue;
        }
        if (!ts_add(entry->offset, entry->bytes, &stop))
            stop = UINT64_MAX;
        if (entry->bytes && entry->offset < end)
            *overlapping = true;
        if (stop > end)
            end = stop;
        if (entry->offset != expected && !told) {
            told = true;
            TS_TRY(ts_bundle_find(bundle, entry->name, error,
                                  "has offset %" PRIu64 " where ggml expects %" PRIu64 " and refuses the file",
                                  entry->offset, expected));
        }
        if (!ts_add(stop, file->alignment - 1, &expected))
            told = true;
        expected &= ~((uint64_t)file->alignment - 1);
    }
    return TS_OK;
}

static enum ts_status check_range(const struct ts_gguf *file, const struct entry *entry, uint64_t data,
                                  struct ts_error *error)
{
    const uint64_t size = file->source->size;
    uint64_t offset;
    if (!ts_add(data, entry->offset, &offset))
        return ts_fail(error, TS_ERR_FORMAT, entry->at, "has offset %" PRIu64 ", which is out of range", entry->offset);
    if (!ts_span_fits(offset, entry->bytes, size))
        return ts_fail(error, TS_ERR_FORMAT, offset, "truncated: needs %" PRIu64 " bytes, %" PRIu64 " are there",
                       entry->bytes, offset < size ? size - offset : 0);
    return TS_OK;
}

static enum ts_status add_entry(const struct ts_gguf *file, struct ts_bundle *bundle, struct entry *entry,
                                uint64_t data, struct ts_error *error)
{
    struct ts_tensor *tensor;
    struct ts_error why;
    TS_TRY(ts_bundle_add(bundle, "", entry->rank, &tensor, error));
    tensor->name = entry->name; /* in the arena already */
    tensor->type = entry->type;
    tensor->swapped = file->swapped;
    tensor->source = file->source;
    tensor->offset = data + entry->offset;
    for (uint32_t i = 0; i < entry->rank; i++)
        tensor->shape[i] = entry->dims[entry->rank - 1 - i];
    if (ts_tensor_finish(tensor, &why) == TS_OK)
        return TS_OK;
    ts_bundle_drop_last(bundle);
    return skip_entry(file, bundle, entry, &why, error);
}

static enum ts_status read_entries(struct ts_gguf *file, struct ts_bundle *bundle, struct entry *entries,
                                   struct ts_error *error)
{
    struct ts_error why;
    uint64_t data;
    bool overlapping;
    for (size_t i = 0; i < file->tensor_count; i++)
        TS_TRY(read_entry(file, bundle, &entries[i], error));
    data = (file->at + file->alignment - 1) & ~((uint64_t)file->alignment - 1); /* both are far below 2^63 */
    TS_TRY(check_order(file, bundle, entries, &overlapping, error));
    /* Out of range before overlaps: one absurd size must not take all the others with it. */
    for (size_t i = 0; i < file->tensor_count; i++)
        if (!entries[i].skipped && check_range(file, &entries[i], data, &why) != TS_OK)
            TS_TRY(skip_entry(file, bundle, &entries[i], &why, error));
    if (overlapping)
        TS_TRY(skip_overlaps(file, bundle, entries, error));
    for (size_t i = 0; i < file->tensor_count; i++)
        if (!entries[i].skipped)
            TS_TRY(add_entry(file, bundle, &entries[i], data, error));
    return TS_OK;
}

enum ts_status ts_gguf_directory(struct ts_gguf *file, struct ts_bundle *bundle, struct ts_error *error)
{
    struct entry *entries;
    enum ts_status status;
    if (file->tensor_count == 0)
        return TS_OK;
    entries = calloc((size_t)file->tensor_count, sizeof *entries);
    if (!entries)
        return ts_fail_memory(error);
    status = read_entries(file, bundle, entries, error);
    free(entries);
    return status;
}
