/* Owns numpy's files: .npy, one array (or several, written one behind the other), and .npz, a zip of them.
 * The data stays where it is: Fortran order and the fields of records become strides, big-endian files stay
 * big-endian. Only the types below eight bits, to which ml_dtypes gives a whole byte each, are packed into
 * the spool. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"
#include "read/npy_header.h"
#include "read/readers.h"

struct array {
    struct ts_bundle *bundle;
    struct ts_spool *spool;
    struct ts_source *source; /* the file, or a member of the npz */
    const char *path;         /* as shown in findings and skips */
    const char *name;         /* of the array: "" for a file by itself */
    struct ts_npy_header header;
    struct ts_error *error;
};

/* One part failed: it is written down, and the others go on. Not without memory. */
static enum ts_status skip(struct ts_bundle *bundle, const char *path, const char *name, const struct ts_error *why,
                           struct ts_error *error)
{
    if (why->status != TS_ERR_MEMORY)
        return ts_bundle_skip_error(bundle, path, name, why, error);
    *error = *why;
    return why->status;
}

/* Lengths and steps in bytes of all axes: those of the array, then those inside the record. Every step fits:
 * the bytes of the whole array are known to lie in the file. */
static unsigned axes(const struct ts_npy_header *header, const struct ts_npy_field *field, uint64_t *shape,
                     uint64_t *steps)
{
    unsigned rank = header->rank;
    uint64_t step = header->item_size;
    for (unsigned i = 0; i < rank; i++) {
        unsigned axis = header->fortran ? i : rank - 1 - i;
        shape[axis] = header->shape[axis];
        steps[axis] = step;
        step *= header->shape[axis];
    }
    for (unsigned i = 0; i < field->rank; i++) {
        shape[rank + i] = field->shape[i];
        steps[rank + i] = field->steps[i];
    }
    return rank + field->rank;
}

/* Elements that have a byte each although their type takes `bits`: packed low bits first, in row-major order.
 */
static enum ts_status pack(struct array *array, const struct ts_npy_field *field, struct ts_tensor *tensor,
                           const uint64_t *steps)
{
    uint64_t count = 1, bytes, index[TS_MAX_RANK] = {0};
    for (unsigned i = 0; i < tensor->rank; i++)
        count *= tensor->shape[i];
    uint8_t *packed;
    if (!ts_type_bytes(field->type, count, &bytes))
        return ts_fail(array->error, TS_ERR_FORMAT, TS_NO_OFFSET, "is larger than any file");
    TS_TRY(ts_spool_reserve(array->spool, bytes, &packed, array->error));
    const uint8_t *from = array->source->data + array->header.data_offset + field->offset;
    uint64_t bit = 0;
    for (uint64_t n = 0; n < count; n++) {
        unsigned value = *from & ((1u << field->bits) - 1u);
        packed[bit / 8] |= (uint8_t)(value << bit % 8);
        if (bit % 8 + field->bits > 8)
            packed[bit / 8 + 1] |= (uint8_t)(value >> (8 - bit % 8));
        bit += field->bits;
        for (unsigned axis = tensor->rank; axis-- > 0;) {
            if (++index[axis] < tensor->shape[axis]) {
                from += steps[axis];
                break;
            }
            index[axis] = 0;
            from -= steps[axis] * (tensor->shape[axis] - 1);
        }
    }
    struct ts_source *source;
    TS_TRY(ts_spool_source(array->spool, packed, bytes, array->path, &source, array->error));
    enum ts_status status = ts_bundle_keep(array->bundle, source, array->error);
    ts_source_release(source);
    tensor->source = source;
    tensor->offset = 0;
    return status;
}

/* numpy writes "<f16" for the 80-bit numbers of x86 and for the 128-bit ones of ARM alike. x87 numbers have
 * an explicit leading one unless they are zero or subnormal; in IEEE quads that bit is an ordinary mantissa
 * bit, and short numbers such as 1.5 have nothing but zeros in their first ten bytes, where x87 has the whole
 * number. */
static bool is_quad(const uint8_t *data, uint64_t count)
{
    bool zeros = true, padding = false;
    for (uint64_t i = 0; i < count && i < 256; i++, data += 16) {
        uint64_t mantissa = ts_load_le64(data);
        unsigned exponent = ts_load_le16(data + 8);
        if ((exponent & 0x7fff) && !(mantissa >> 63))
            return true;
        zeros = zeros && mantissa == 0 && exponent == 0;
        padding = padding || ts_load_le16(data + 10) || ts_load_le32(data + 12);
    }
    return zeros && padding;
}

static enum ts_status set_strides(struct array *array, const struct ts_npy_field *field, struct ts_tensor *tensor,
                                  const uint64_t *steps)
{
    tensor->strides = ts_arena_array(&array->bundle->arena, tensor->rank, sizeof *tensor->strides);
    if (!tensor->strides)
        return ts_fail_memory(array->error);
    for (unsigned i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] > 1 && steps[i] % field->size != 0)
            return ts_fail(array->error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET,
                           "its elements of %" PRIu64 " bytes stand %" PRIu64
                           " bytes apart in the records; only whole multiples can be read in place",
                           field->size, steps[i]);
        tensor->strides[i] = (int64_t)(steps[i] / field->size);
    }
    return TS_OK;
}

static enum ts_status fill(struct array *array, const struct ts_npy_field *field, struct ts_tensor *tensor,
                           const uint64_t *shape, const uint64_t *steps)
{
    const struct ts_npy_header *header = &array->header;
    bool empty = false;
    for (unsigned i = 0; i < tensor->rank; i++) {
        tensor->shape[i] = shape[i];
        empty = empty || shape[i] == 0;
    }
    tensor->type = field->type;
    tensor->swapped = field->swapped;
    tensor->source = array->source;
    tensor->offset = header->data_offset + (empty ? 0 : field->offset);
    if (!empty && field->bits)
        TS_TRY(pack(array, field, tensor, steps));
    else if (!empty && tensor->rank > 0)
        TS_TRY(set_strides(array, field, tensor, steps));
    TS_TRY(ts_tensor_finish(tensor, array->error));
    if (field->type == TS_F80 && !tensor->strides && is_quad(array->source->data + tensor->offset, tensor->count))
        return ts_fail(array->error, TS_ERR_UNSUPPORTED, tensor->offset,
                       "128-bit floats ('%s' as ARM machines write it), which this program does not know",
                       field->descr);
    if (field->note)
        TS_TRY(ts_bundle_attribute(array->bundle, tensor, "numpy", field->note, array->error));
    if (field->guess)
        TS_TRY(ts_bundle_find(array->bundle, tensor->name, array->error, "'%s': %s", field->descr, field->note));
    return TS_OK;
}

/* Fails with the reason when this field cannot be shown; the bundle is then as it was. */
static enum ts_status add_field(struct array *array, const struct ts_npy_field *field, const char *name)
{
    uint64_t shape[2 * TS_MAX_RANK], steps[2 * TS_MAX_RANK];
    unsigned rank = axes(&array->header, field, shape, steps);
    if (field->problem)
        return ts_fail(array->error, TS_ERR_UNSUPPORTED, TS_NO_OFFSET, "elements of type '%s': %s", field->descr,
                       field->problem);
    if (rank > TS_MAX_RANK)
        return ts_fail(array->error, TS_ERR_LIMIT, TS_NO_OFFSET, "has %u axes; this program goes up to %d", rank,
                       TS_MAX_RANK);
    struct ts_tensor *tensor;
    TS_TRY(ts_bundle_add(array->bundle, name, rank, &tensor, array->error));
    enum ts_status status = fill(array, field, tensor, shape, steps);
    if (status != TS_OK)
        ts_bundle_drop_last(array->bundle);
    return status;
}

/* A record whose only field gives bare bytes a type by its name is an array of that type. */
static bool is_plain(const struct ts_npy_header *header)
{
    if (!header->record)
        return true;
    if (header->field_count != 1)
        return false;
    struct ts_npy_field probe = *header->fields[0];
    return ts_npy_dtype_named(&probe, probe.name);
}

static enum ts_status add_record(struct array *array)
{
    const struct ts_npy_header *header = &array->header;
    if (header->field_count == 0)
        return ts_fail(array->error, TS_ERR_UNSUPPORTED, header->data_offset, "records without a field");
    for (size_t i = 0; i < header->field_count; i++) {
        const struct ts_npy_field *field = header->fields[i];
        const char *name = field->name;
        if (*array->name)
            name = ts_arena_printf(&array->bundle->arena, "%s.%s", array->name, field->name);
        if (!name)
            return ts_fail_memory(array->error);
        struct ts_error why, *error = array->error;
        ts_error_clear(&why);
        array->error = &why;
        enum ts_status status = add_field(array, field, name);
        array->error = error;
        if (status != TS_OK)
            TS_TRY(skip(array->bundle, array->path, name, &why, error));
    }
    return TS_OK;
}

static enum ts_status add_array(struct array *array, uint64_t bytes)
{
    const struct ts_npy_header *header = &array->header;
    uint64_t left = array->source->size - header->data_offset;
    if (header->objects)
        return ts_fail(array->error, TS_ERR_UNSUPPORTED, header->data_offset,
                       "an array of Python objects: its data is a pickle that only running code could read; save it as "
                       "an array of numbers");
    if (bytes > left)
        return ts_fail(array->error, TS_ERR_FORMAT, header->data_offset,
                       "truncated: shape and type need %" PRIu64 " bytes, %" PRIu64 " are left", bytes, left);
    return is_plain(header) ? add_field(array, header->fields[0], array->name) : add_record(array);
}

/* Reads the array at *offset, and moves *offset behind its data. */
static enum ts_status read_array(struct array *array, uint64_t *offset)
{
    TS_TRY(ts_npy_header_read(&array->header, array->source, *offset, array->error));
    uint64_t bytes;
    enum ts_status status;
    if (ts_npy_header_bytes(&array->header, &bytes))
        status = add_array(array, bytes);
    else
        status =
            ts_fail(array->error, TS_ERR_FORMAT, array->header.data_offset, "shape and type need more than 2^64 bytes");
    *offset = status == TS_OK ? array->header.data_offset + bytes : array->source->size;
    ts_npy_header_release(&array->header);
    return status;
}

static bool is_magic(const struct ts_source *source, uint64_t offset)
{
    const uint8_t *start = ts_source_at(source, offset, TS_NPY_MAGIC_SIZE);
    return start && memcmp(start, TS_NPY_MAGIC, TS_NPY_MAGIC_SIZE) == 0;
}

/* All arrays of one npy file: numpy.save called again on an open file puts the next one behind the last. The
 * first keeps the plain name, the others get "[1]", "[2]", ... */
static enum ts_status read_file(struct array *array)
{
    TS_TRY(ts_bundle_keep(array->bundle, array->source, array->error));
    const char *base = array->name;
    uint64_t offset = 0;
    TS_TRY(read_array(array, &offset));
    for (unsigned i = 1; is_magic(array->source, offset); i++) {
        struct ts_error why, *error = array->error;
        ts_error_clear(&why);
        array->name = ts_arena_printf(&array->bundle->arena, "%s[%u]", base, i);
        if (!array->name)
            return ts_fail_memory(error);
        array->error = &why;
        enum ts_status status = read_array(array, &offset);
        array->error = error;
        if (status != TS_OK)
            return skip(array->bundle, array->path, array->name, &why, error);
    }
    if (offset < array->source->size)
        return ts_bundle_find(array->bundle, NULL, array->error,
                              "%" PRIu64 " bytes at the end of \"%s\" belong to no array", array->source->size - offset,
                              array->path);
    return TS_OK;
}

static unsigned npy_bid(const struct ts_input *input)
{
    const uint8_t *version = ts_source_at(input->source, TS_NPY_MAGIC_SIZE, 2);
    if (!is_magic(input->source, 0))
        return 0;
    return version && version[0] >= 1 && version[0] <= 3 && version[1] == 0 ? 64 : 48;
}

static enum ts_status npy_read(struct ts_input *input, struct ts_bundle *bundle, struct ts_error *error)
{
    struct array array = {.bundle = bundle,
                          .spool = input->spool,
                          .source = input->source,
                          .path = input->member,
                          .name = "",
                          .error = error};
    return read_file(&array);
}

/* Every file in it is an array, else it is a zip file that happens to hold some. data.pkl is how torch
 * begins. */
static unsigned npz_bid(const struct ts_input *input)
{
    size_t arrays = 0;
    if (!input->zip)
        return 0;
    for (size_t i = 0; i < input->zip->count; i++) {
        if (input->zip->entries[i].is_folder)
            continue;
        if (!ts_ends_with(input->zip->entries[i].name, ".npy"))
            return 0;
        arrays++;
    }
    return arrays ? 48 : 0; /* the zip's magic, and the names */
}

static enum ts_status read_member(struct ts_input *input, const struct ts_zip_entry *entry, const char *path,
                                  struct ts_bundle *bundle, struct ts_error *error)
{
    if (entry->problem)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "%s", entry->problem);
    if (ts_zip_find(input->zip, entry->name) != entry)
        return ts_fail(error, TS_ERR_FORMAT, entry->header_offset, "another member of this name follows");
    struct ts_source *source;
    TS_TRY(ts_zip_member(input->zip, entry, &source, error));
    char *name = ts_arena_copy(&bundle->arena, entry->name, strlen(entry->name) - strlen(".npy"));
    struct array array = {
        .bundle = bundle, .spool = input->spool, .source = source, .path = path, .name = name, .error = error};
    enum ts_status status = name ? read_file(&array) : ts_fail_memory(error);
    ts_source_release(source);
    return status;
}

static enum ts_status npz_read(struct ts_input *input, struct ts_bundle *bundle, struct ts_error *error)
{
    if (!input->zip)
        return ts_fail(error, TS_ERR_FORMAT, 0, "not a npz file: its zip directory cannot be read");
    for (size_t i = 0; i < input->zip->count; i++) {
        const struct ts_zip_entry *entry = &input->zip->entries[i];
        if (entry->is_folder)
            continue;
        const char *path = ts_arena_printf(&bundle->arena, "%s/%s", input->member, entry->name);
        if (!path)
            return ts_fail_memory(error);
        if (!ts_ends_with(entry->name, ".npy")) {
            TS_TRY(ts_bundle_skip(bundle, path, true, "not a npy array", error));
            continue;
        }
        struct ts_error why;
        ts_error_clear(&why);
        if (read_member(input, entry, path, bundle, &why) != TS_OK)
            TS_TRY(skip(bundle, path, NULL, &why, error));
    }
    return TS_OK;
}

const struct ts_reader ts_reader_npy = {
    .name = "npy",
    .summary = "numpy array (.npy)",
    .bid = npy_bid,
    .read = npy_read,
};

const struct ts_reader ts_reader_npz = {
    .name = "npz",
    .summary = "numpy arrays in a zip file (.npz)",
    .bid = npz_bid,
    .read = npz_read,
};
