/* The element types of numpy and of ml_dtypes by their descriptors: "<f4", "float32", "<V2", "float8_e4m3fn".
 *
 * numpy writes one letter for the kind and a size in bytes. The types of ml_dtypes have no letter of their
 * own: all are saved as void ("<V2" is bfloat16, "<V1" any of its one-byte types), except float8_e5m2 ("<f1")
 * and complex32
 * ("<c4"). Their names are understood where someone wrote them out. */
#include "read/npy_header.h"

#include <string.h>

#include "base/number.h"

struct named {
    const char *name;
    enum ts_type type;
    uint8_t size; /* of one element in memory */
    uint8_t bits;
    const char *problem;
};

static const struct named numpy_names[] = {
    {"bool", TS_BOOL, 1, 0, NULL},     {"bool_", TS_BOOL, 1, 0, NULL},       {"int8", TS_I8, 1, 0, NULL},
    {"int16", TS_I16, 2, 0, NULL},     {"int32", TS_I32, 4, 0, NULL},        {"int64", TS_I64, 8, 0, NULL},
    {"uint8", TS_U8, 1, 0, NULL},      {"uint16", TS_U16, 2, 0, NULL},       {"uint32", TS_U32, 4, 0, NULL},
    {"uint64", TS_U64, 8, 0, NULL},    {"float16", TS_F16, 2, 0, NULL},      {"float32", TS_F32, 4, 0, NULL},
    {"float64", TS_F64, 8, 0, NULL},   {"float", TS_F64, 8, 0, NULL}, /* Python's own */
    {"complex64", TS_C64, 8, 0, NULL}, {"complex128", TS_C128, 16, 0, NULL},
};

/* Those of ml_dtypes; without "float8_" the field names that onnx gives such arrays. */
static const struct named foreign_names[] = {
    {"bfloat16", TS_BF16, 2, 0, NULL},
    {"complex32", TS_C32, 4, 0, NULL},
    {"float8_e4m3fn", TS_F8_E4M3, 1, 0, NULL},
    {"e4m3fn", TS_F8_E4M3, 1, 0, NULL},
    {"float8_e4m3fnuz", TS_F8_E4M3FNUZ, 1, 0, NULL},
    {"e4m3fnuz", TS_F8_E4M3FNUZ, 1, 0, NULL},
    {"float8_e4m3b11fnuz", TS_F8_E4M3B11FNUZ, 1, 0, NULL},
    {"float8_e4m3b11", TS_F8_E4M3B11FNUZ, 1, 0, NULL}, /* its first name */
    {"float8_e5m2", TS_F8_E5M2, 1, 0, NULL},
    {"e5m2", TS_F8_E5M2, 1, 0, NULL},
    {"float8_e5m2fnuz", TS_F8_E5M2FNUZ, 1, 0, NULL},
    {"e5m2fnuz", TS_F8_E5M2FNUZ, 1, 0, NULL},
    {"float8_e3m4", TS_F8_E3M4, 1, 0, NULL},
    {"float8_e8m0fnu", TS_F8_E8M0, 1, 0, NULL},
    {"float6_e2m3fn", TS_F6_E2M3, 1, 6, NULL},
    {"float6_e3m2fn", TS_F6_E3M2, 1, 6, NULL},
    {"float4_e2m1fn", TS_F4_E2M1, 1, 4, NULL},
    {"int4", TS_I4, 1, 4, NULL},
    {"uint4", TS_U4, 1, 4, NULL},
    {"int2", TS_I2, 1, 2, NULL},
    {"uint2", TS_U2, 1, 2, NULL},
    {"uint1", TS_U1, 1, 1, NULL},
    {"int1", TS_U1, 1, 1, "int1, which this program does not know"},
    {"float8_e4m3", TS_F8_E4M3, 1, 0, "float8_e4m3 (the kind with infinities), which this program does not know"},
    {"bcomplex32", TS_C32, 4, 0, "bcomplex32 (complex of bf16), which this program does not know"},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const struct named *find_name(const struct named *table, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(table[i].name, text) == 0)
            return &table[i];
    return NULL;
}

static void take_name(struct ts_npy_field *field, const struct named *found)
{
    field->type = found->type;
    field->size = found->size;
    field->bits = found->bits;
    field->problem = found->problem;
    field->note = NULL;
    field->guess = false;
}

/* Integer, float and complex types by size: powers of two from 1 to 16. */
static bool numeric(char kind, uint64_t size, enum ts_type *type)
{
    static const struct {
        char kind;
        uint8_t size;
        enum ts_type type;
    } table[] = {
        {'b', 1, TS_BOOL}, {'i', 1, TS_I8},      {'i', 2, TS_I16}, {'i', 4, TS_I32}, {'i', 8, TS_I64},
        {'u', 1, TS_U8},   {'u', 2, TS_U16},     {'u', 4, TS_U32}, {'u', 8, TS_U64}, {'f', 2, TS_F16},
        {'f', 4, TS_F32},  {'f', 8, TS_F64},     {'c', 4, TS_C32}, {'c', 8, TS_C64}, {'c', 16, TS_C128},
        {'g', 2, TS_BF16}, {'f', 1, TS_F8_E5M2},
    };
    for (size_t i = 0; i < COUNT(table); i++)
        if (table[i].kind == kind && table[i].size == size) {
            *type = table[i].type;
            return true;
        }
    return false;
}

/* Void, text, time, long double: kinds that need a word. False for a kind that does not exist. */
static bool special(struct ts_npy_field *field, char kind, bool native)
{
    switch (kind) {
    case 'V':
        if (field->size == 2) {
            field->type = TS_BF16;
            field->guess = !native;
            field->note = native ? "void of 2 bytes, read as bf16: what numpy makes of ml_dtypes.bfloat16"
                                 : "void of 2 bytes without a byte order, read as bf16; a guess";
            return true;
        }
        if (field->size == 1) {
            field->type = TS_F8_E4M3;
            field->guess = true;
            field->note = "void of 1 byte, read as f8_e4m3; a guess: numpy saves every one-byte type of ml_dtypes so";
            return true;
        }
        field->problem = "void: bytes without a meaning this program knows";
        return true;
    case 'S':
    case 'a':
        field->problem = "byte strings, not numbers";
        return true;
    case 'U':
        field->problem = "text, not numbers";
        return ts_mul(field->size, 4, &field->size);
    case 'T':
        field->problem = "text, not numbers";
        return true;
    case 'M':
    case 'm':
        field->type = TS_I64;
        field->note = kind == 'M' ? "times (datetime64), shown as 64-bit integers; the lowest one is NaT"
                                  : "durations (timedelta64), shown as 64-bit integers; the lowest one is NaT";
        return field->size == 8;
    case 'f':
        if (field->size == 16 && !field->swapped) {
            field->type = TS_F80;
            return true;
        }
        field->problem = "a long double of another machine, which this program does not know";
        return field->size == 12 || field->size == 16;
    case 'c':
        field->problem = "complex of long double, which this program does not know";
        return field->size == 24 || field->size == 32;
    default:
        return false;
    }
}

bool ts_npy_dtype(struct ts_npy_field *field, const char *text)
{
    const struct named *found = find_name(numpy_names, COUNT(numpy_names), text);
    if (!found)
        found = find_name(foreign_names, COUNT(foreign_names), text);
    if (found) {
        take_name(field, found);
        return true;
    }
    bool native = *text == '<' || *text == '=';
    field->swapped = *text == '>' || *text == '!';
    if (native || field->swapped || *text == '|')
        text++;
    char kind = *text;
    if (kind == '\0')
        return false;
    if (kind == '?' && text[1] == '\0') {
        field->type = TS_BOOL;
        field->size = 1;
        return true;
    }
    text++;
    uint64_t size = 0;
    bool digits = false;
    for (; *text >= '0' && *text <= '9'; text++) {
        digits = true;
        size = size * 10 + (uint64_t)(*text - '0');
        if (size > UINT32_MAX)
            return false;
    }
    bool is_time = kind == 'M' || kind == 'm';
    if (is_time && *text == '[') { /* the unit: "[ns]", "[25s]" */
        size_t length = strlen(text);
        if (text[length - 1] != ']')
            return false;
        text += length;
    }
    if (*text != '\0')
        return false;
    if (kind == 'O') { /* with or without a size; the bytes in memory would be pointers */
        field->size = 8;
        field->problem = "Python objects";
        return true;
    }
    if (!digits)
        return false;
    field->size = size;
    if (numeric(kind, size, &field->type)) {
        field->swapped = field->swapped && size > 1;
        return true;
    }
    return special(field, kind, native);
}

bool ts_npy_dtype_named(struct ts_npy_field *field, const char *name)
{
    const struct named *found = find_name(foreign_names, COUNT(foreign_names), name);
    bool bare = strchr("Vui", field->descr[strspn(field->descr, "<>=|")]) != NULL;
    if (!found || !bare || found->size != field->size)
        return false;
    take_name(field, found);
    return true;
}
