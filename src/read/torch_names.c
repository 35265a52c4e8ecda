/* Torch names: classes, functions and element types by the names that pickles use. */
#include <stdio.h>
#include <string.h>

#include "read/torch.h"

static const struct ts_torch_dtype dtypes[] = {
    {"float64", "Double", TS_F64, 8, 1, false, 1},
    {"float32", "Float", TS_F32, 4, 1, false, 1},
    {"float16", "Half", TS_F16, 2, 1, false, 1},
    {"bfloat16", "BFloat16", TS_BF16, 2, 1, false, 1},
    {"int64", "Long", TS_I64, 8, 1, false, 1},
    {"int32", "Int", TS_I32, 4, 1, false, 1},
    {"int16", "Short", TS_I16, 2, 1, false, 1},
    {"int8", "Char", TS_I8, 1, 1, false, 1},
    {"uint8", "Byte", TS_U8, 1, 1, false, 1},
    {"bool", "Bool", TS_BOOL, 1, 1, false, 1},
    {"complex32", "ComplexHalf", TS_C32, 4, 1, false, 1},
    {"complex64", "ComplexFloat", TS_C64, 8, 1, false, 1},
    {"complex128", "ComplexDouble", TS_C128, 16, 1, false, 1},
    {"qint8", "QInt8", TS_I8, 1, 1, true, 1},
    {"quint8", "QUInt8", TS_U8, 1, 1, true, 1},
    {"qint32", "QInt32", TS_I32, 4, 1, true, 1},
    {"quint4x2", "QUInt4x2", TS_U4, 1, 1, true, 2},
    {"quint2x4", "QUInt2x4", TS_U2, 1, 1, true, 4},
    {"uint16", "UInt16", TS_U16, 2, 1, false, 1},
    {"uint32", "UInt32", TS_U32, 4, 1, false, 1},
    {"uint64", "UInt64", TS_U64, 8, 1, false, 1},
    {"float8_e4m3fn", "Float8_e4m3fn", TS_F8_E4M3, 1, 1, false, 1},
    {"float8_e5m2", "Float8_e5m2", TS_F8_E5M2, 1, 1, false, 1},
    {"float8_e4m3fnuz", "Float8_e4m3fnuz", TS_F8_E4M3FNUZ, 1, 1, false, 1},
    {"float8_e5m2fnuz", "Float8_e5m2fnuz", TS_F8_E5M2FNUZ, 1, 1, false, 1},
    {"float8_e8m0fnu", "Float8_e8m0fnu", TS_F8_E8M0, 1, 1, false, 1},
    {"float4_e2m1fn_x2", "Float4_e2m1fn_x2", TS_F4_E2M1, 1, 2, false, 1},
    {"bits8", "Bits8", TS_U8, 1, 1, false, 1},
    {"bits16", "Bits16", TS_U16, 2, 1, false, 1},
    {"bits4x2", "Bits4x2", TS_U4, 1, 2, false, 1},
    {"bits2x4", "Bits2x4", TS_U2, 1, 4, false, 1},
    {"bits1x8", "Bits1x8", TS_U1, 1, 8, false, 1},
    /* int1 ... int7 and uint1 ... uint7 are names for subclasses; torch itself gives each element a byte. */
    {"int1", NULL, TS_I8, 1, 1, false, 1},
    {"int2", NULL, TS_I8, 1, 1, false, 1},
    {"int3", NULL, TS_I8, 1, 1, false, 1},
    {"int4", NULL, TS_I8, 1, 1, false, 1},
    {"int5", NULL, TS_I8, 1, 1, false, 1},
    {"int6", NULL, TS_I8, 1, 1, false, 1},
    {"int7", NULL, TS_I8, 1, 1, false, 1},
    {"uint1", NULL, TS_U8, 1, 1, false, 1},
    {"uint2", NULL, TS_U8, 1, 1, false, 1},
    {"uint3", NULL, TS_U8, 1, 1, false, 1},
    {"uint4", NULL, TS_U8, 1, 1, false, 1},
    {"uint5", NULL, TS_U8, 1, 1, false, 1},
    {"uint6", NULL, TS_U8, 1, 1, false, 1},
    {"uint7", NULL, TS_U8, 1, 1, false, 1},
};

/* Counts its size in bytes and leaves the type to the tensor. */
static const struct ts_torch_dtype untyped = {"untyped", "Untyped", TS_U8, 1, 1, false, 1};

#define DTYPE_COUNT (sizeof dtypes / sizeof *dtypes)

struct known_name {
    const char *module, *name; /* a module of "*": any */
    enum ts_torch_known known;
};

static const struct known_name known_names[] = {
    {"torch._utils", "_rebuild_tensor", TS_TORCH_REBUILD_TENSOR},
    {"torch._utils", "_rebuild_tensor_v2", TS_TORCH_REBUILD_TENSOR_V2},
    {"torch._utils", "_rebuild_tensor_v3", TS_TORCH_REBUILD_TENSOR_V3},
    {"torch._utils", "_rebuild_qtensor", TS_TORCH_REBUILD_QUANTIZED},
    {"torch._utils", "_rebuild_parameter", TS_TORCH_REBUILD_PARAMETER},
    {"torch._utils", "_rebuild_parameter_with_state", TS_TORCH_REBUILD_PARAMETER},
    {"torch._utils", "_rebuild_sparse_tensor", TS_TORCH_REBUILD_SPARSE},
    {"torch._utils", "_rebuild_sparse_csr_tensor", TS_TORCH_REBUILD_SPARSE_CSR},
    {"torch._utils", "_rebuild_nested_tensor", TS_TORCH_REBUILD_NESTED},
    {"torch._utils", "_rebuild_device_tensor_from_numpy", TS_TORCH_REBUILD_DEVICE},
    {"torch._utils", "_rebuild_device_tensor_from_cpu_tensor", TS_TORCH_REBUILD_DEVICE},
    {"torch._utils", "_rebuild_xla_tensor", TS_TORCH_REBUILD_DEVICE},
    {"torch._utils", "_rebuild_mlc_tensor", TS_TORCH_REBUILD_DEVICE},
    {"torch._utils", "_rebuild_meta_tensor_no_storage", TS_TORCH_REBUILD_META},
    {"torch._utils", "_rebuild_wrapper_subclass", TS_TORCH_REBUILD_WRAPPER},
    {"torch._tensor", "_rebuild_from_type", TS_TORCH_REBUILD_FROM_TYPE},
    {"torch._tensor", "_rebuild_from_type_v2", TS_TORCH_REBUILD_FROM_TYPE},
    {"torch.tensor", "_rebuild_from_type", TS_TORCH_REBUILD_FROM_TYPE},
    {"torch.storage", "_load_from_bytes", TS_TORCH_LOAD_FROM_BYTES},
    {"torch", "Size", TS_TORCH_SIZE},
    {"torch", "device", TS_TORCH_DEVICE},
    {"torch.serialization", "_get_layout", TS_TORCH_LAYOUT},
    {"torch.jit._pickle", "build_intlist", TS_TORCH_JIT_LIST},
    {"torch.jit._pickle", "build_doublelist", TS_TORCH_JIT_LIST},
    {"torch.jit._pickle", "build_boollist", TS_TORCH_JIT_LIST},
    {"torch.jit._pickle", "build_tensorlist", TS_TORCH_JIT_LIST},
    {"torch.jit._pickle", "restore_type_tag", TS_TORCH_JIT_TAGGED},
    {"numpy.core.multiarray", "_reconstruct", TS_TORCH_NUMPY_ARRAY},
    {"numpy._core.multiarray", "_reconstruct", TS_TORCH_NUMPY_ARRAY},
    {"numpy.core.numeric", "_frombuffer", TS_TORCH_NUMPY_BUFFER},
    {"numpy._core.numeric", "_frombuffer", TS_TORCH_NUMPY_BUFFER},
    {"numpy.core.multiarray", "scalar", TS_TORCH_NUMPY_SCALAR},
    {"numpy._core.multiarray", "scalar", TS_TORCH_NUMPY_SCALAR},
    {"numpy", "dtype", TS_TORCH_NUMPY_DTYPE},
    {"_codecs", "encode", TS_TORCH_ENCODE},
    {"collections", "OrderedDict", TS_TORCH_MAPPING},
    {"collections", "defaultdict", TS_TORCH_MAPPING},
    {"collections", "Counter", TS_TORCH_MAPPING},
    {"builtins", "dict", TS_TORCH_MAPPING},
    {"__builtin__", "dict", TS_TORCH_MAPPING},
    {"collections", "deque", TS_TORCH_SEQUENCE},
    {"builtins", "set", TS_TORCH_SEQUENCE},
    {"__builtin__", "set", TS_TORCH_SEQUENCE},
    {"builtins", "frozenset", TS_TORCH_SEQUENCE},
    {"__builtin__", "frozenset", TS_TORCH_SEQUENCE},
    {"builtins", "list", TS_TORCH_SEQUENCE},
    {"__builtin__", "list", TS_TORCH_SEQUENCE},
    {"builtins", "tuple", TS_TORCH_SEQUENCE},
    {"__builtin__", "tuple", TS_TORCH_SEQUENCE},
    {"builtins", "complex", TS_TORCH_COMPLEX},
    {"__builtin__", "complex", TS_TORCH_COMPLEX},
    {"builtins", "int", TS_TORCH_CONVERSION},
    {"__builtin__", "int", TS_TORCH_CONVERSION},
    {"__builtin__", "long", TS_TORCH_CONVERSION},
    {"builtins", "float", TS_TORCH_CONVERSION},
    {"__builtin__", "float", TS_TORCH_CONVERSION},
    {"builtins", "bool", TS_TORCH_CONVERSION},
    {"__builtin__", "bool", TS_TORCH_CONVERSION},
    {"builtins", "bytearray", TS_TORCH_CONVERSION},
    {"__builtin__", "bytearray", TS_TORCH_CONVERSION},
    {"builtins", "bytes", TS_TORCH_CONVERSION},
    {"__builtin__", "bytes", TS_TORCH_CONVERSION},
    {"builtins", "str", TS_TORCH_CONVERSION},
    {"__builtin__", "unicode", TS_TORCH_CONVERSION},
    {"copyreg", "_reconstructor", TS_TORCH_RECONSTRUCTOR},
    {"copy_reg", "_reconstructor", TS_TORCH_RECONSTRUCTOR},
    {"copyreg", "__newobj__", TS_TORCH_NEW_OBJECT},
    {"copy_reg", "__newobj__", TS_TORCH_NEW_OBJECT},
};

/* Callables that run code, read or write files, or reach the network when Python loads them: a name of "*" stands for
 * all of the module and of the modules below it. */
static const struct {
    const char *module, *name;
} dangerous[] = {
    {"os", "*"},
    {"posix", "*"},
    {"nt", "*"},
    {"posixpath", "*"},
    {"ntpath", "*"},
    {"subprocess", "*"},
    {"runpy", "*"},
    {"sys", "*"},
    {"socket", "*"},
    {"shutil", "*"},
    {"pty", "*"},
    {"webbrowser", "*"},
    {"importlib", "*"},
    {"imp", "*"},
    {"commands", "*"},
    {"popen2", "*"},
    {"multiprocessing", "*"},
    {"asyncio", "*"},
    {"threading", "*"},
    {"signal", "*"},
    {"ctypes", "*"},
    {"code", "*"},
    {"codeop", "*"},
    {"marshal", "*"},
    {"pickle", "*"},
    {"_pickle", "*"},
    {"cPickle", "*"},
    {"dill", "*"},
    {"cloudpickle", "*"},
    {"joblib", "*"},
    {"pdb", "*"},
    {"bdb", "*"},
    {"timeit", "*"},
    {"trace", "*"},
    {"profile", "*"},
    {"cProfile", "*"},
    {"pip", "*"},
    {"venv", "*"},
    {"ensurepip", "*"},
    {"pydoc", "*"},
    {"idlelib", "*"},
    {"lib2to3", "*"},
    {"http", "*"},
    {"httplib", "*"},
    {"urllib", "*"},
    {"urllib2", "*"},
    {"requests", "*"},
    {"aiohttp", "*"},
    {"ftplib", "*"},
    {"smtplib", "*"},
    {"telnetlib", "*"},
    {"ssl", "*"},
    {"tempfile", "*"},
    {"glob", "*"},
    {"linecache", "*"},
    {"zipimport", "*"},
    {"pkgutil", "*"},
    {"operator", "attrgetter"},
    {"operator", "methodcaller"},
    {"_operator", "attrgetter"},
    {"_operator", "methodcaller"},
    {"types", "FunctionType"},
    {"types", "CodeType"},
    {"types", "LambdaType"},
    {"io", "open"},
    {"io", "FileIO"},
    {"_io", "open"},
    {"_io", "FileIO"},
    {"codecs", "open"},
    {"torch.hub", "*"},
    {"torch.utils.cpp_extension", "*"},
    {"torch.utils.model_zoo", "*"},
    {"torch.utils.data.datapipes", "*"},
    {"torch.utils.collect_env", "*"},
    {"torch.distributed.run", "*"},
    {"torch", "load"},
    {"torch.serialization", "load"},
    {"torch.jit", "load"},
    {"torch.package", "*"},
    {"numpy", "load"},
    {"numpy", "fromfile"},
    {"numpy", "memmap"},
    {"numpy.testing._private.utils", "runstring"},
    {"pandas", "read_pickle"},
};

/* Of builtins (and __builtin__, its name in Python 2) these only: most of it is harmless. */
static const char *const dangerous_builtins[] = {
    "eval",      "exec",    "execfile", "compile", "open",  "file", "getattr",    "setattr", "delattr",   "input",
    "raw_input", "globals", "locals",   "vars",    "apply", "help", "breakpoint", "exit",    "__import__"};

static bool same(const uint8_t *text, size_t size, const char *name)
{
    return strlen(name) == size && memcmp(text, name, size) == 0;
}

static bool ends_with(const uint8_t *text, size_t size, const char *end)
{
    size_t length = strlen(end);
    return size > length && memcmp(text + size - length, end, length) == 0;
}

const struct ts_torch_dtype *ts_torch_dtype_of(struct ts_pickle_value value)
{
    if (value.kind != TS_PICKLE_GLOBAL || !same(value.global->module, value.global->module_size, "torch"))
        return NULL;
    for (size_t i = 0; i < DTYPE_COUNT; i++)
        if (same(value.global->name, value.global->name_size, dtypes[i].name))
            return &dtypes[i];
    return NULL;
}

/* torch.FloatStorage, torch.cuda.FloatStorage, torch.storage.UntypedStorage, torch.cuda.FloatTensor ... */
static const struct ts_torch_dtype *by_class(const struct ts_pickle_global *global, const char *end)
{
    size_t size;
    if (global->module_size < 5 || memcmp(global->module, "torch", 5) != 0 ||
        !ends_with(global->name, global->name_size, end))
        return NULL;
    size = global->name_size - strlen(end);
    for (size_t i = 0; i < DTYPE_COUNT; i++)
        if (dtypes[i].storage && same(global->name, size, dtypes[i].storage))
            return &dtypes[i];
    return same(global->name, size, "Untyped") || same(global->name, size, "_Untyped") ? &untyped : NULL;
}

const struct ts_torch_dtype *ts_torch_storage_dtype(struct ts_pickle_value value)
{
    if (value.kind != TS_PICKLE_GLOBAL)
        return NULL;
    if (ts_pickle_is_global(value.global, "torch._storage", "UntypedStorage") ||
        ts_pickle_is_global(value.global, "torch", "Storage")) /* names that came and went */
        return &untyped;
    return by_class(value.global, "Storage");
}

enum ts_torch_known ts_torch_known(struct ts_pickle_value callable)
{
    struct ts_pickle_global *global;
    enum ts_torch_known known = TS_TORCH_OPAQUE;
    if (callable.kind != TS_PICKLE_GLOBAL)
        return TS_TORCH_OPAQUE;
    global = callable.global;
    if (global->tag != TS_TORCH_UNSEEN)
        return (enum ts_torch_known)global->tag;
    for (size_t i = 0; i < sizeof known_names / sizeof *known_names; i++)
        if (ts_pickle_is_global(global, known_names[i].module, known_names[i].name))
            known = known_names[i].known;
    if (known == TS_TORCH_OPAQUE && ts_torch_dtype_of(callable))
        known = TS_TORCH_DTYPE;
    else if (known == TS_TORCH_OPAQUE && ts_torch_storage_dtype(callable))
        known = TS_TORCH_STORAGE_CLASS;
    else if (known == TS_TORCH_OPAQUE && by_class(global, "Tensor"))
        known = TS_TORCH_OLD_TENSOR;
    global->tag = (int)known;
    return known;
}

static bool is_dangerous(const uint8_t *module, size_t module_size, const uint8_t *name, size_t name_size)
{
    for (size_t i = 0; i < sizeof dangerous / sizeof *dangerous; i++) {
        size_t size = strlen(dangerous[i].module);
        if (module_size < size || module[0] != (uint8_t)dangerous[i].module[0] ||
            memcmp(module, dangerous[i].module, size) != 0)
            continue;
        if (strcmp(dangerous[i].name, "*") == 0) {
            if (module_size == size || module[size] == '.')
                return true;
        } else if (module_size == size && same(name, name_size, dangerous[i].name)) {
            return true;
        }
    }
    if (same(module, module_size, "builtins") || same(module, module_size, "__builtin__"))
        for (size_t i = 0; i < sizeof dangerous_builtins / sizeof *dangerous_builtins; i++)
            if (same(name, name_size, dangerous_builtins[i]))
                return true;
    return false;
}

bool ts_torch_is_dangerous(const struct ts_pickle_global *global)
{
    char text[512];
    size_t last;
    const char *point;
    if (is_dangerous(global->module, global->module_size, global->name, global->name_size))
        return true;
    if (!memchr(global->name, '.', global->name_size))
        return false;
    /* Since protocol 4 a name may lead through attributes: torch, "hub.load" or torch, "os.system". */
    ts_torch_global_text(global, text, sizeof text);
    point = strrchr(text, '.');
    last = point ? (size_t)(point - text) : 0;
    for (const char *from = text; from && from < point; from = strchr(from, '.'), from += from ? 1 : 0)
        if (is_dangerous((const uint8_t *)from, last - (size_t)(from - text), (const uint8_t *)point + 1,
                         strlen(point + 1)))
            return true;
    return false;
}

void ts_torch_global_text(const struct ts_pickle_global *global, char *text, size_t size)
{
    size_t used = 0;
    for (uint32_t i = 0; i < global->module_size && used + 1 < size; i++)
        text[used++] = global->module[i] ? (char)global->module[i] : '?';
    if (used + 1 < size)
        text[used++] = '.';
    for (uint32_t i = 0; i < global->name_size && used + 1 < size; i++)
        text[used++] = global->name[i] ? (char)global->name[i] : '?';
    text[used] = '\0';
}
