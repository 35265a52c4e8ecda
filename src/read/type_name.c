/* Owns the tables of names. */
#include "read/type_name.h"

#include <string.h>
#include <strings.h>

static const struct {
    const char *name;
    enum ts_type type;
} names[] = {
    /* numpy, torch, jax, MLX */
    {"float64", TS_F64},
    {"float32", TS_F32},
    {"float16", TS_F16},
    {"bfloat16", TS_BF16},
    {"int64", TS_I64},
    {"int32", TS_I32},
    {"int16", TS_I16},
    {"int8", TS_I8},
    {"int4", TS_I4},
    {"int2", TS_I2},
    {"uint64", TS_U64},
    {"uint32", TS_U32},
    {"uint16", TS_U16},
    {"uint8", TS_U8},
    {"uint4", TS_U4},
    {"uint2", TS_U2},
    {"uint1", TS_U1},
    {"bool_", TS_BOOL},
    {"complex64", TS_C64},
    {"complex128", TS_C128},
    {"complex32", TS_C32},
    {"float8_e4m3fn", TS_F8_E4M3},
    {"float8_e4m3", TS_F8_E4M3},
    {"float8_e5m2", TS_F8_E5M2},
    {"float8_e4m3fnuz", TS_F8_E4M3FNUZ},
    {"float8_e5m2fnuz", TS_F8_E5M2FNUZ},
    {"float8_e4m3b11fnuz", TS_F8_E4M3B11FNUZ},
    {"float8_e8m0fnu", TS_F8_E8M0},
    {"float8_e3m4", TS_F8_E3M4},
    {"float6_e2m3fn", TS_F6_E2M3},
    {"float6_e3m2fn", TS_F6_E3M2},
    {"float4_e2m1fn", TS_F4_E2M1},
    {"longdouble", TS_F80},
    {"float128", TS_F80}, /* numpy's name for the x87 type in 16 bytes */
    /* C, and old torch */
    {"double", TS_F64},
    {"float", TS_F32},
    {"half", TS_F16},
    {"fp64", TS_F64},
    {"fp32", TS_F32},
    {"fp16", TS_F16},
    {"bfloat", TS_BF16},
    {"__nv_bfloat16", TS_BF16},
    {"int", TS_I32},
    {"long", TS_I64},
    {"short", TS_I16},
    {"byte", TS_U8},
    {"uchar", TS_U8},
    {"char", TS_I8},
    {"int64_t", TS_I64},
    {"int32_t", TS_I32},
    {"int16_t", TS_I16},
    {"int8_t", TS_I8},
    {"uint64_t", TS_U64},
    {"uint32_t", TS_U32},
    {"uint16_t", TS_U16},
    {"uint8_t", TS_U8},
    {"size_t", TS_U64},
    /* safetensors */
    {"f8_e4m3fn", TS_F8_E4M3},
};

/* numpy's one letter and a size in bytes. */
static const struct {
    char name[4];
    enum ts_type type;
} codes[] = {
    {"f8", TS_F64},  {"f4", TS_F32}, {"f2", TS_F16}, {"f16", TS_F80},  {"i8", TS_I64}, {"i4", TS_I32},
    {"i2", TS_I16},  {"i1", TS_I8},  {"u8", TS_U64}, {"u4", TS_U32},   {"u2", TS_U16}, {"u1", TS_U8},
    {"b1", TS_BOOL}, {"?", TS_BOOL}, {"c8", TS_C64}, {"c16", TS_C128},
};

static bool equals(const char *text, size_t size, const char *name)
{
    return strlen(name) == size && strncasecmp(text, name, size) == 0;
}

/* "torch.float32", "numpy.float32", "jnp.float32" */
static void drop_module(const char **name, size_t *size)
{
    for (size_t i = *size; i-- > 0;)
        if ((*name)[i] == '.') {
            *name += i + 1;
            *size -= i + 1;
            return;
        }
}

bool ts_type_from_name(const char *name, size_t size, enum ts_type *type, bool *swapped)
{
    if (size > 0 && strchr("<>=|", name[0]) && name[0]) {
        /* The byte order says that it is numpy's code: "i8" alone is this program's name for one byte, and "<i8" is
         * eight. */
        for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
            if (equals(name + 1, size - 1, codes[i].name)) {
                *type = codes[i].type;
                if (name[0] == '>')
                    *swapped = true;
                return true;
            }
        return false;
    }
    drop_module(&name, &size);
    for (int i = 0; i < TS_TYPE_COUNT; i++)
        if (i != TS_CODED && equals(name, size, ts_type_info((enum ts_type)i)->name)) {
            *type = (enum ts_type)i;
            return true;
        }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (equals(name, size, names[i].name)) {
            *type = names[i].type;
            return true;
        }
    /* What no other table has: "f4" and "f2" are numpy's only. */
    if (equals(name, size, "f4") || equals(name, size, "f2")) {
        *type = name[1] == '4' ? TS_F32 : TS_F16;
        return true;
    }
    return false;
}
