/* Torch: what the parts of the PyTorch reader share. For torch*.c only.
 *
 * The way through: torch.c (zip files, plain pickles) or torch_legacy.c (the stream of pickles before torch 1.6) loads
 * pickles into one graph and tells where the storages are; torch_walk.c descends the graph and gives names;
 * torch_rebuild.c turns what a pickle says about a tensor into a view of bytes, torch_numpy.c the same for numpy,
 * torch_numbers.c makes tensors of Python numbers, torch_quantized.c of quantized ones. torch_names.c knows the names
 * of classes, functions and element types. */
#ifndef TS_READ_TORCH_H
#define TS_READ_TORCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "read/pickle.h"
#include "read/reader.h"

/* Shared parts of a graph are walked once for each name that leads to them, so that a few hundred bytes can say more
 * than any memory holds. These bounds are far above what real checkpoints need. */
#define TS_TORCH_MAX_TENSORS 100000   /* and one for each four bytes of the pickles: none is written in less */
#define TS_TORCH_MAX_STEPS   10000000 /* and one for each byte of the pickles */
#define TS_TORCH_MAX_DEPTH   200
#define TS_TORCH_MAX_NAME    4096
#define TS_TORCH_MAX_METAS   1000
#define TS_TORCH_MAX_SCALARS 100000 /* Python numbers outside of lists */
#define TS_TORCH_MAX_SKIPS   10000
#define TS_TORCH_MAX_CYCLES  10
#define TS_TORCH_MANY_KEYS   1000 /* a dict of so many numbers is one tensor: a vocabulary, a history by step */
#define TS_TORCH_META_CUT    200  /* bytes of a value that are kept */

/* Callables the reader understands. Everything else is opaque. */
enum ts_torch_known {
    TS_TORCH_UNSEEN, /* not looked up yet */
    TS_TORCH_OPAQUE,
    TS_TORCH_DTYPE, /* torch.float32 ... */
    TS_TORCH_REBUILD_TENSOR,
    TS_TORCH_REBUILD_TENSOR_V2,
    TS_TORCH_REBUILD_TENSOR_V3,
    TS_TORCH_REBUILD_QUANTIZED,
    TS_TORCH_REBUILD_PARAMETER,
    TS_TORCH_REBUILD_FROM_TYPE,
    TS_TORCH_REBUILD_SPARSE,
    TS_TORCH_REBUILD_SPARSE_CSR,
    TS_TORCH_REBUILD_NESTED,
    TS_TORCH_REBUILD_DEVICE,
    TS_TORCH_REBUILD_META,
    TS_TORCH_REBUILD_WRAPPER,
    TS_TORCH_OLD_TENSOR, /* torch.FloatTensor with (storage, offset, size, stride) as its state */
    TS_TORCH_STORAGE_CLASS,
    TS_TORCH_LOAD_FROM_BYTES,
    TS_TORCH_SIZE,
    TS_TORCH_DEVICE,
    TS_TORCH_LAYOUT,
    TS_TORCH_JIT_LIST,
    TS_TORCH_JIT_TAGGED,
    TS_TORCH_NUMPY_ARRAY,
    TS_TORCH_NUMPY_BUFFER,
    TS_TORCH_NUMPY_SCALAR,
    TS_TORCH_NUMPY_DTYPE,
    TS_TORCH_ENCODE, /* _codecs.encode: how protocol 2 writes bytes */
    TS_TORCH_MAPPING,
    TS_TORCH_SEQUENCE,
    TS_TORCH_COMPLEX,
    TS_TORCH_CONVERSION, /* int(x), float(x), bytes(x) ... */
    TS_TORCH_RECONSTRUCTOR,
    TS_TORCH_NEW_OBJECT
};

struct ts_torch_dtype {
    const char *name;    /* "float32" */
    const char *storage; /* "Float", or NULL: such tensors have untyped storages */
    enum ts_type type;
    uint8_t bytes;     /* of one element as torch counts */
    uint8_t packed;    /* numbers in one element: 2 for float4_e2m1fn_x2, else 1 */
    bool quantized;    /* its numbers are codes */
    uint8_t code_pack; /* codes in one byte, for quantized types that torch counts by code: 2 for quint4x2 */
};

/* Where the storages of one pickle are. */
struct ts_torch_space {
    const char *folder; /* zip: "archive/data/"; NULL: a legacy stream, its storages are in the table already */
    bool swapped;
    bool outside; /* nowhere: a plain pickle */
};

struct ts_torch_storage {
    uint32_t space;
    const uint8_t *key;
    uint64_t key_size;
    struct ts_source *source; /* NULL with problem set */
    const char *problem;
    bool swapped;
    uint64_t element_bytes, elements; /* legacy: as declared by the pickle */
    struct ts_source *flipped[3];     /* with signs turned: conjugated, negated, both */
    uint64_t users;
    struct ts_tensor *first_user;
};

struct ts_torch_pending {
    struct ts_tensor *tensor;
    uint64_t offset;
};

struct ts_torch {
    struct ts_input *input;
    struct ts_bundle *bundle;
    struct ts_pickle pickle;
    struct ts_source **sources; /* where the bytes of pickles lie; retained */
    size_t source_count, source_capacity;
    struct ts_torch_space *spaces;
    size_t space_count, space_capacity;
    struct ts_torch_storage **table; /* open addressing by space and key */
    size_t table_used, table_size;
    /* the walk */
    char path[TS_TORCH_MAX_NAME + 1];
    size_t path_size;
    unsigned depth;
    uint64_t steps, step_limit;
    uint64_t emitted, tensor_limit;
    uint64_t name_bytes;
    size_t scalars, metas, skips, cycles;
    bool over; /* a bound of the whole file was reached: the error is not one tensor's */
    /* Python numbers wait here until the end, then become one source */
    struct ts_buffer numbers;
    struct ts_torch_pending *pending;
    size_t pending_count, pending_capacity;
};

/* A tensor before it has a name. */
struct ts_torch_view {
    const struct ts_torch_dtype *dtype; /* NULL for numpy */
    struct ts_torch_storage *storage;   /* NULL for numpy */
    struct ts_source *source;
    uint64_t offset;
    enum ts_type type;
    bool swapped;
    bool strided;
    bool conjugated, negated;
    unsigned rank;
    uint64_t shape[TS_MAX_RANK];
    int64_t strides[TS_MAX_RANK];
};

/* torch_names.c */
enum ts_torch_known ts_torch_known(struct ts_pickle_value callable);
const struct ts_torch_dtype *ts_torch_dtype_of(struct ts_pickle_value value);      /* torch.float16, or NULL */
const struct ts_torch_dtype *ts_torch_storage_dtype(struct ts_pickle_value value); /* torch.HalfStorage, or NULL */
bool ts_torch_is_dangerous(const struct ts_pickle_global *global);
/* "module.name", cut to fit. */
void ts_torch_global_text(const struct ts_pickle_global *global, char *text, size_t size);

/* torch_storage.c */
enum ts_status ts_torch_add_space(struct ts_torch *torch, struct ts_torch_space space, uint32_t *number,
                                  struct ts_error *error);
enum ts_status ts_torch_add_source(struct ts_torch *torch, struct ts_source *source, struct ts_error *error);
/* The entry of (space, key), made when it is not there yet (then neither source nor problem is set). */
enum ts_status ts_torch_storage_entry(struct ts_torch *torch, uint32_t space, struct ts_pickle_value key,
                                      struct ts_torch_storage **storage, struct ts_error *error);
/* What a pickle refers to as a storage. shift: bytes into it where the reference begins. */
enum ts_status ts_torch_storage_of(struct ts_torch *torch, struct ts_pickle_value value,
                                   struct ts_torch_storage **storage, const struct ts_torch_dtype **dtype,
                                   uint64_t *shift, uint64_t *elements, struct ts_error *error);
/* ('storage', class, key, location, elements[, view]): false when it is something else. */
bool ts_torch_is_storage_id(struct ts_pickle_value id);
/* Bytes however they were written: bytes, bytearray, Python 2's str, _codecs.encode(text, 'latin1'). */
enum ts_status ts_torch_bytes_of(struct ts_torch *torch, struct ts_pickle_value value, struct ts_source **source,
                                 uint64_t *offset, uint64_t *size, struct ts_error *error);
/* A copy of the storage with signs turned. */
enum ts_status ts_torch_flip(struct ts_torch *torch, struct ts_torch_view *view, struct ts_error *error);
void ts_torch_release(struct ts_torch *torch);

/* torch_legacy.c */
bool ts_torch_is_legacy(const uint8_t *data, uint64_t size);
/* The tar file that torch 0.1 wrote, which this program does not read. */
bool ts_torch_is_tar(const struct ts_source *source);
/* A legacy stream at data[start], which lies in source: its value, and its storages in the table. */
enum ts_status ts_torch_load_legacy(struct ts_torch *torch, struct ts_source *source, uint64_t start, uint64_t size,
                                    struct ts_pickle_value *value, struct ts_error *error);

/* torch_walk.c */
enum ts_status ts_torch_walk(struct ts_torch *torch, struct ts_pickle_value value, struct ts_error *error);
/* Extends the name by ".key"; returns what ts_torch_leave needs to undo it. */
size_t ts_torch_enter(struct ts_torch *torch, const char *key, size_t size);
void ts_torch_leave(struct ts_torch *torch, size_t before);
/* The state of an object: its attributes under its name. */
enum ts_status ts_torch_walk_state(struct ts_torch *torch, struct ts_pickle_value state, struct ts_error *error);
enum ts_status ts_torch_meta(struct ts_torch *torch, const char *text, size_t size, struct ts_error *error);
/* A new tensor under the current name. */
enum ts_status ts_torch_add(struct ts_torch *torch, unsigned rank, struct ts_tensor **tensor, struct ts_error *error);
/* What stands at the current name cannot be read: notes why and goes on. Out of memory is passed on. */
enum ts_status ts_torch_skip(struct ts_torch *torch, const struct ts_error *why, bool harmless, struct ts_error *error);

/* torch_text.c */
/* Small things in words; begin with depth 0. False: it is no small thing, and what was appended is of no use. */
bool ts_torch_describe(struct ts_buffer *out, struct ts_pickle_value value, unsigned depth);
bool ts_torch_describe_items(struct ts_buffer *out, const struct ts_pickle_value *items, uint64_t count,
                             unsigned depth);

/* torch_rebuild.c */
bool ts_torch_is_tensor(enum ts_torch_known known);
enum ts_status ts_torch_view_of(struct ts_torch *torch, struct ts_pickle_value value, struct ts_torch_view *view,
                                struct ts_error *error);
/* Makes the view a tensor under the current name. */
enum ts_status ts_torch_emit_view(struct ts_torch *torch, const struct ts_torch_view *view, struct ts_tensor **tensor,
                                  struct ts_error *error);
/* Two tensors of one storage get an attribute that says so, for checks to see what is shared. storage may be NULL. */
enum ts_status ts_torch_note_sharing(struct ts_torch *torch, struct ts_torch_storage *storage, struct ts_tensor *tensor,
                                     struct ts_error *error);
/* A tensor that is part of another: in the bundle's arena, finished, without a name of its own. */
enum ts_status ts_torch_part(struct ts_torch *torch, const struct ts_torch_view *view, struct ts_tensor **tensor,
                             struct ts_error *error);
/* Everything that is_tensor says yes to, and numpy arrays, under the current name. Returns only what ends the file. */
enum ts_status ts_torch_emit(struct ts_torch *torch, struct ts_pickle_value value, struct ts_error *error);
/* A tuple, list or torch.Size of non-negative integers. */
enum ts_status ts_torch_sizes(struct ts_pickle_value value, const char *what, unsigned *rank,
                              uint64_t sizes[TS_MAX_RANK], struct ts_error *error);
/* Argument number i of a call, NONE when there is none. */
struct ts_pickle_value ts_torch_argument(const struct ts_pickle_object *object, uint64_t i);

/* torch_numpy.c */
bool ts_torch_is_numpy(enum ts_torch_known known);
/* An array, or (rank 0) a scalar. Its bytes are known to be there. */
enum ts_status ts_torch_numpy_view(struct ts_torch *torch, const struct ts_pickle_object *object,
                                   struct ts_torch_view *view, struct ts_error *error);

/* torch_numbers.c */
/* A number, a list of numbers, or lists of lists as a matrix: *done, and a tensor under the current name. */
enum ts_status ts_torch_numbers(struct ts_torch *torch, struct ts_pickle_value value, bool *done,
                                struct ts_error *error);
/* Dicts of numbers that are one tensor: {"data": [...], "shape": [...]} of f32, and those with very many keys. list may
 * be NULL. */
enum ts_status ts_torch_number_dict(struct ts_torch *torch, const struct ts_pickle_list *list, bool *done,
                                    struct ts_error *error);
/* A list of numbers as doubles or (all integers) int64 in memory of its own. */
enum ts_status ts_torch_number_list(struct ts_torch *torch, struct ts_pickle_value value, struct ts_torch_view *view,
                                    struct ts_error *error);
/* Gives the numbers met on the way their source. To be called once, after the walk. */
enum ts_status ts_torch_finish_numbers(struct ts_torch *torch, struct ts_error *error);

/* torch_quantized.c */
/* codes: the stored integers. quantizer: (scheme, scale, zero point) or (scheme, scales, zero points, axis). */
enum ts_status ts_torch_emit_quantized(struct ts_torch *torch, const struct ts_torch_view *codes,
                                       struct ts_pickle_value quantizer, struct ts_error *error);

#endif
