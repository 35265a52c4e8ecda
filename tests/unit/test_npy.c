/* numpy files. The golden ones were written by numpy; their values are the ones that were put in. Headers by hand
 * follow what numpy 1 and 2 write for the same arrays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <libdeflate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/zip.h"
#include "read/readers.h"

struct opened {
    struct ts_input input;
    struct ts_bundle *bundle;
    struct ts_error error;
    enum ts_status status;
};

static void start(struct opened *opened)
{
    opened->input.spool = ts_spool_new((uint64_t)1 << 24);
    opened->bundle = ts_bundle_new("test");
    assert_non_null(opened->input.spool);
    assert_non_null(opened->bundle);
}

static void finish(struct opened *opened)
{
    ts_bundle_free(opened->bundle);
    if (opened->input.zip)
        ts_zip_free(opened->input.zip);
    ts_spool_free(opened->input.spool);
    ts_source_release(opened->input.source);
}

static struct opened open_bytes(const void *data, size_t size)
{
    struct opened opened = {.input = {.member = "x.npy"}};
    ts_error_clear(&opened.error);
    start(&opened);
    assert_int_equal(ts_source_copy(data, size, "x.npy", &opened.input.source, &opened.error), TS_OK);
    opened.status = ts_reader_npy.read(&opened.input, opened.bundle, &opened.error);
    return opened;
}

static struct opened open_golden(const char *path, const struct ts_reader *reader)
{
    struct opened opened = {.input = {.member = path}};
    ts_error_clear(&opened.error);
    start(&opened);
    assert_int_equal(ts_source_open(path, &opened.input.source, &opened.error), TS_OK);
    if (ts_zip_is(opened.input.source))
        assert_int_equal(ts_zip_open(opened.input.source, opened.input.spool, &opened.input.zip, &opened.error), TS_OK);
    assert_true(reader->bid(&opened.input) >= 48);
    opened.status = reader->read(&opened.input, opened.bundle, &opened.error);
    return opened;
}

/* Version, dictionary and data as a file. The dictionary is padded with blanks and a line break, as numpy does. */
static size_t make(uint8_t *out, unsigned major, const char *dictionary, const void *data, size_t size)
{
    size_t width = major == 1 ? 2 : 4, length = strlen(dictionary), at = 8 + width;
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (uint8_t)major;
    out[7] = 0;
    size_t padded = (at + length + 1 + 63) / 64 * 64 - at;
    for (size_t i = 0; i < width; i++)
        out[8 + i] = (uint8_t)(padded >> 8 * i);
    memset(out + at, ' ', padded);
    memcpy(out + at, dictionary, length);
    out[at + padded - 1] = '\n';
    if (size)
        memcpy(out + at + padded, data, size);
    return at + padded + size;
}

static struct opened open_made(unsigned major, const char *dictionary, const void *data, size_t size)
{
    uint8_t file[4096];
    return open_bytes(file, make(file, major, dictionary, data, size));
}

static void check_values(const struct ts_tensor *tensor, const double *expected, size_t count)
{
    double values[256];
    struct ts_error error;
    size_t numbers = count * ts_type_info(tensor->type)->components;
    assert_int_equal(tensor->count, count);
    assert_true(numbers <= 256);
    if (count)
        assert_int_equal(ts_tensor_read_f64(tensor, 0, count, values, &error), TS_OK);
    for (size_t i = 0; i < numbers; i++)
        if (!(values[i] == expected[i]))
            fail_msg("%s[%zu] is %g, not %g", tensor->name, i, values[i], expected[i]);
}

static const struct ts_tensor *only(const struct opened *opened)
{
    if (opened->status != TS_OK)
        fail_msg("%s", opened->error.message);
    assert_int_equal(opened->bundle->count, 1);
    assert_int_equal(opened->bundle->skip_count, 0);
    return opened->bundle->tensors[0];
}

static const double count_up[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
static const double sixths[] = {0, 0.16666666666666666, 0.3333333333333333, 0.5, 0.6666666666666666, 0.8333333333333333,
                                1};

static const struct golden {
    const char *name;
    enum ts_type type;
    unsigned rank;
    uint64_t shape[2];
    const double *values;
    size_t count;
} goldens[] = {
    {"f4", TS_F32, 2, {3, 4}, count_up, 12},
    {"f8", TS_F64, 1, {7}, sixths, 7},
    {"f2", TS_F16, 1, {5}, count_up, 5},
    {"i1", TS_I8, 1, {6}, (const double[]){-3, -2, -1, 0, 1, 2}, 6},
    {"i8", TS_I64, 1, {4}, count_up, 4},
    {"b1", TS_BOOL, 1, {2}, (const double[]){1, 0}, 2},
    {"c8", TS_C64, 1, {1}, (const double[]){1, 2}, 1},
    {"big", TS_F32, 2, {2, 3}, count_up, 6},
    {"fortran", TS_F32, 2, {3, 4}, count_up, 12},
    {"scalar", TS_F32, 0, {0}, (const double[]){3.5}, 1},
    {"empty", TS_F32, 2, {0, 3}, NULL, 0},
    {"u2", TS_U16, 1, {3}, count_up, 3},
    {"v2", TS_F32, 2, {3, 4}, count_up, 12}, /* not in the npz files */
};

static void check_golden(const struct ts_tensor *tensor, const struct golden *golden)
{
    assert_int_equal(tensor->type, golden->type);
    assert_int_equal(tensor->rank, golden->rank);
    for (unsigned i = 0; i < golden->rank; i++)
        assert_int_equal(tensor->shape[i], golden->shape[i]);
    check_values(tensor, golden->values, golden->count);
}

static void test_golden_npy(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++) {
        char path[256];
        snprintf(path, sizeof path, "tests/golden/numpy/%s.npy", goldens[i].name);
        struct opened opened = open_golden(path, &ts_reader_npy);
        const struct ts_tensor *tensor = only(&opened);
        assert_string_equal(tensor->name, "");
        check_golden(tensor, &goldens[i]);
        assert_ptr_equal(tensor->source, opened.input.source); /* nothing was copied */
        assert_int_equal(opened.bundle->finding_count, 0);
        finish(&opened);
    }
}

static void test_golden_fortran_has_strides(void **state)
{
    (void)state;
    struct opened opened = open_golden("tests/golden/numpy/fortran.npy", &ts_reader_npy);
    const struct ts_tensor *tensor = only(&opened);
    assert_non_null(tensor->strides);
    assert_int_equal(tensor->strides[0], 1);
    assert_int_equal(tensor->strides[1], 3);
    finish(&opened);
}

static void test_golden_object_is_refused(void **state)
{
    (void)state;
    struct opened opened = open_golden("tests/golden/numpy/object.npy", &ts_reader_npy);
    assert_int_equal(opened.status, TS_ERR_UNSUPPORTED);
    assert_non_null(strstr(opened.error.message, "array of Python objects"));
    finish(&opened);
}

static void check_npz(const char *path, bool stored)
{
    struct opened opened = open_golden(path, &ts_reader_npz);
    assert_int_equal(opened.status, TS_OK);
    assert_int_equal(opened.bundle->count, 12);
    assert_int_equal(opened.bundle->skip_count, 0);
    for (size_t i = 0; i < 12; i++) {
        const struct ts_tensor *tensor = opened.bundle->tensors[i];
        assert_string_equal(tensor->name, goldens[i].name);
        check_golden(tensor, &goldens[i]);
        if (stored) { /* a slice of the mapped file */
            const struct ts_source *file = opened.input.source;
            assert_true(tensor->source->data >= file->data && tensor->source->data < file->data + file->size);
        }
    }
    finish(&opened);
}

static void test_golden_npz(void **state)
{
    (void)state;
    check_npz("tests/golden/numpy/all.npz", true);
    check_npz("tests/golden/numpy/all_compressed.npz", false);
}

/* A zip file of stored members, as numpy.savez writes them. */
struct zip_maker {
    uint8_t file[8192], directory[2048];
    size_t size, directory_size;
    uint16_t count;
};

static void put(uint8_t *out, size_t *size, uint64_t value, unsigned width)
{
    for (unsigned i = 0; i < width; i++)
        out[(*size)++] = (uint8_t)(value >> 8 * i);
}

static void add_member(struct zip_maker *zip, const char *name, const void *data, size_t size)
{
    size_t length = strlen(name), offset = zip->size;
    uint32_t crc = libdeflate_crc32(0, data, size);
    uint8_t *out = zip->file, *directory = zip->directory;
    put(out, &zip->size, 0x04034b50, 4);
    put(directory, &zip->directory_size, 0x02014b50, 4);
    put(directory, &zip->directory_size, 20, 2);
    for (int i = 0; i < 2; i++) { /* the fields that both headers share */
        uint8_t *to = i ? directory : out;
        size_t *at = i ? &zip->directory_size : &zip->size;
        put(to, at, 20, 2);
        put(to, at, 0, 8); /* flags, method, time and date */
        put(to, at, crc, 4);
        put(to, at, size, 4);
        put(to, at, size, 4);
        put(to, at, length, 2);
        put(to, at, 0, 2);
    }
    put(directory, &zip->directory_size, 0, 6); /* comment, disk, attributes */
    put(directory, &zip->directory_size, 0, 4);
    put(directory, &zip->directory_size, offset, 4);
    memcpy(out + zip->size, name, length);
    memcpy(directory + zip->directory_size, name, length);
    zip->size += length;
    zip->directory_size += length;
    memcpy(out + zip->size, data, size);
    zip->size += size;
    zip->count++;
}

static struct opened open_zip(struct zip_maker *zip, unsigned *bid)
{
    struct opened opened = {.input = {.member = "x.npz"}};
    size_t start_of_directory = zip->size;
    memcpy(zip->file + zip->size, zip->directory, zip->directory_size);
    zip->size += zip->directory_size;
    put(zip->file, &zip->size, 0x06054b50, 4);
    put(zip->file, &zip->size, 0, 4);
    put(zip->file, &zip->size, zip->count, 2);
    put(zip->file, &zip->size, zip->count, 2);
    put(zip->file, &zip->size, zip->directory_size, 4);
    put(zip->file, &zip->size, start_of_directory, 4);
    put(zip->file, &zip->size, 0, 2);
    ts_error_clear(&opened.error);
    start(&opened);
    assert_int_equal(ts_source_copy(zip->file, zip->size, "x.npz", &opened.input.source, &opened.error), TS_OK);
    if (ts_zip_open(opened.input.source, opened.input.spool, &opened.input.zip, &opened.error) != TS_OK)
        fail_msg("%s", opened.error.message);
    *bid = ts_reader_npz.bid(&opened.input);
    opened.status = ts_reader_npz.read(&opened.input, opened.bundle, &opened.error);
    return opened;
}

static void test_npz_members(void **state)
{
    (void)state;
    struct zip_maker zip = {.size = 0};
    uint8_t file[1024];
    unsigned bid;
    size_t size =
        make(file, 1, "{'descr': [('a', '|u1'), ('b', '|u1')], 'fortran_order': False, 'shape': (2,)}", "\1\2\3\4", 4);
    add_member(&zip, "layer/0.npy", file, size);
    add_member(&zip, "bad.npy", file, size - 1);
    add_member(&zip, "folder/", "", 0);
    size = make(file, 1, "{'descr': '|u1', 'fortran_order': False, 'shape': ()}", "\7", 1);
    add_member(&zip, "w.npy", file, size);
    struct opened opened = open_zip(&zip, &bid);
    assert_int_equal(bid, 48);
    assert_int_equal(opened.status, TS_OK);
    assert_int_equal(opened.bundle->count, 3);
    assert_string_equal(opened.bundle->tensors[0]->name, "layer/0.a");
    check_values(opened.bundle->tensors[0], (const double[]){1, 3}, 2);
    assert_string_equal(opened.bundle->tensors[1]->name, "layer/0.b");
    check_values(opened.bundle->tensors[1], (const double[]){2, 4}, 2);
    assert_string_equal(opened.bundle->tensors[2]->name, "w");
    check_values(opened.bundle->tensors[2], (const double[]){7}, 1);
    assert_int_equal(opened.bundle->skip_count, 1);
    assert_string_equal(opened.bundle->skips[0].path, "x.npz/bad.npy");
    assert_non_null(strstr(opened.bundle->skips[0].reason, "need 4 bytes, 3 are left"));
    finish(&opened);
}

static void test_npz_among_other_files(void **state)
{
    (void)state;
    struct zip_maker zip = {.size = 0};
    uint8_t file[1024];
    unsigned bid;
    size_t size = make(file, 1, "{'descr': '|u1', 'fortran_order': False, 'shape': ()}", "\7", 1);
    add_member(&zip, "w.npy", file, size);
    add_member(&zip, "readme.txt", "hello", 5);
    struct opened opened = open_zip(&zip, &bid);
    assert_int_equal(bid, 0); /* an ordinary zip file */
    assert_int_equal(opened.bundle->count, 1);
    assert_int_equal(opened.bundle->skip_count, 1);
    assert_true(opened.bundle->skips[0].harmless);
    finish(&opened);
}

static void check_type(const char *descr, const void *data, size_t size, enum ts_type type, const double *expected,
                       size_t count)
{
    char dictionary[256];
    snprintf(dictionary, sizeof dictionary, "{'descr': %s, 'fortran_order': False, 'shape': (%zu,), }", descr, count);
    struct opened opened = open_made(1, dictionary, data, size);
    const struct ts_tensor *tensor = only(&opened);
    if (tensor->type != type)
        fail_msg("%s was read as %s", descr, ts_type_info(tensor->type)->name);
    check_values(tensor, expected, count);
    finish(&opened);
}

#define BYTES(...)  (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})
#define VALUES(...) (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double)

#define COMPLEX(real, imaginary) (const double[]){real, imaginary}, 1

static void test_types(void **state)
{
    (void)state;
    check_type("'|b1'", BYTES(0, 1, 1), TS_BOOL, VALUES(0, 1, 1));
    check_type("'?'", BYTES(0, 1), TS_BOOL, VALUES(0, 1));
    check_type("'|u1'", BYTES(255, 1), TS_U8, VALUES(255, 1));
    check_type("'<i2'", BYTES(0xfe, 0xff), TS_I16, VALUES(-2));
    check_type("'>i2'", BYTES(0xff, 0xfe), TS_I16, VALUES(-2));
    check_type("'>u4'", BYTES(0, 1, 0, 2), TS_U32, VALUES(65538));
    check_type("'<u8'", BYTES(1, 0, 0, 0, 1, 0, 0, 0), TS_U64, VALUES(4294967297.0));
    check_type("'>f8'", BYTES(0x3f, 0xf8, 0, 0, 0, 0, 0, 0), TS_F64, VALUES(1.5));
    check_type("'=f4'", BYTES(0, 0, 0xc0, 0x3f), TS_F32, VALUES(1.5));
    check_type("'f4'", BYTES(0, 0, 0xc0, 0x3f), TS_F32, VALUES(1.5));
    check_type("'float32'", BYTES(0, 0, 0xc0, 0x3f), TS_F32, VALUES(1.5));
    check_type("'>c8'", BYTES(0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0), TS_C64, COMPLEX(1, -2));
    check_type("'<M8[ns]'", BYTES(1, 0, 0, 0, 0, 0, 0, 0), TS_I64, VALUES(1));
    /* 1.0 and -2.5 as x87 numbers: a mantissa with its leading one, then exponent and sign, then padding. */
    check_type("'<f16'",
               BYTES(0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0x3f, 0, 0, 0, 0, 0, 0, /**/
                     0, 0, 0, 0, 0, 0, 0, 0xa0, 0x00, 0xc0, 0, 0, 0, 0, 0, 0),
               TS_F80, VALUES(1, -2.5));
}

static void test_ml_dtypes(void **state)
{
    (void)state;
    check_type("'<V2'", BYTES(0x80, 0x3f, 0x40, 0xc0), TS_BF16, VALUES(1, -3));
    check_type("'|V2'", BYTES(0x80, 0x3f, 0x40, 0xc0), TS_BF16, VALUES(1, -3));
    check_type("'bfloat16'", BYTES(0x80, 0x3f, 0x40, 0xc0), TS_BF16, VALUES(1, -3));
    check_type("[('bfloat16', '<V2')]", BYTES(0x80, 0x3f, 0x40, 0xc0), TS_BF16, VALUES(1, -3));
    check_type("[('bfloat16', '<u2')]", BYTES(0x80, 0x3f, 0x40, 0xc0), TS_BF16, VALUES(1, -3));
    check_type("'<V1'", BYTES(0x38, 0xc4), TS_F8_E4M3, VALUES(1, -3));
    check_type("'float8_e4m3fn'", BYTES(0x38, 0xc4), TS_F8_E4M3, VALUES(1, -3));
    check_type("[('e4m3fn', '|u1')]", BYTES(0x38, 0xc4), TS_F8_E4M3, VALUES(1, -3));
    check_type("'<f1'", BYTES(0x3c, 0xc2), TS_F8_E5M2, VALUES(1, -3));
    check_type("'float8_e5m2'", BYTES(0x3c, 0xc2), TS_F8_E5M2, VALUES(1, -3));
    check_type("'float8_e4m3fnuz'", BYTES(0x40, 0xcc), TS_F8_E4M3FNUZ, VALUES(1, -3));
    check_type("'float8_e5m2fnuz'", BYTES(0x40, 0xc6), TS_F8_E5M2FNUZ, VALUES(1, -3));
    check_type("'float8_e4m3b11fnuz'", BYTES(0x58, 0xe4), TS_F8_E4M3B11FNUZ, VALUES(1, -3));
    check_type("'float8_e3m4'", BYTES(0x30, 0xc8), TS_F8_E3M4, VALUES(1, -3));
    check_type("'float8_e8m0fnu'", BYTES(127, 130), TS_F8_E8M0, VALUES(1, 8));
    check_type("'<c4'", BYTES(0, 0x3c, 0, 0xc0), TS_C32, COMPLEX(1, -2));
    /* one byte each, of which the low bits count */
    check_type("'int4'", BYTES(0x0f, 0x07, 0xf8), TS_I4, VALUES(-1, 7, -8));
    check_type("'uint4'", BYTES(0x0f, 0x07, 0xf8), TS_U4, VALUES(15, 7, 8));
    check_type("'int2'", BYTES(0, 1, 2, 3, 2), TS_I2, VALUES(0, 1, -2, -1, -2));
    check_type("'float4_e2m1fn'", BYTES(0x02, 0x0f, 0x05), TS_F4_E2M1, VALUES(1, -6, 3));
    check_type("'float6_e2m3fn'", BYTES(0x08, 0x3f, 0x01, 0x10, 0x28), TS_F6_E2M3, VALUES(1, -7.5, 0.125, 2, -1));
}

static void test_guesses_are_told(void **state)
{
    (void)state;
    struct opened opened = open_made(1, "{'descr': '|V2', 'fortran_order': False, 'shape': ()}", "\x80\x3f", 2);
    assert_non_null(ts_tensor_attribute(only(&opened), "numpy"));
    assert_int_equal(opened.bundle->finding_count, 1);
    finish(&opened);
    opened = open_made(1, "{'descr': '<V2', 'fortran_order': False, 'shape': ()}", "\x80\x3f", 2);
    assert_non_null(strstr(ts_tensor_attribute(only(&opened), "numpy"), "bf16"));
    assert_int_equal(opened.bundle->finding_count, 0); /* numpy writes a byte order for ml_dtypes only */
    finish(&opened);
}

static void test_packed_fortran(void **state)
{
    (void)state;
    /* [[1, 2], [3, 4], [5, 6]] by columns */
    struct opened opened =
        open_made(1, "{'descr': 'uint4', 'fortran_order': True, 'shape': (3, 2)}", "\1\3\5\2\4\6", 6);
    const struct ts_tensor *tensor = only(&opened);
    check_values(tensor, count_up + 1, 6);
    assert_null(tensor->strides);
    finish(&opened);
}

static void test_header_spellings(void **state)
{
    static const char *const spellings[] = {
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }",
        "{\"shape\": (2, 3,), \"descr\": \"<i2\", \"fortran_order\": False}",
        "{'shape':(2L,3L),'fortran_order':False,'descr':'<i2'}",
        "  {  'descr' :'<i2' , 'fortran_order'\t: False,\n 'shape': ( 2 , 3 ) , }  ",
        "{u'descr': u'<i2', u'fortran_order': False, u'shape': [2, 3]}",
        "{'desc\\x72': '\\u003ci2', 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': ('<i2', (3,)), 'fortran_order': False, 'shape': (2,)}",
    };
    (void)state;
    for (unsigned major = 1; major <= 3; major++)
        for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
            struct opened opened = open_made(major, spellings[i], "\0\0\1\0\2\0\3\0\4\0\5\0", 12);
            const struct ts_tensor *tensor = only(&opened);
            assert_int_equal(tensor->rank, 2);
            assert_int_equal(tensor->shape[0], 2);
            assert_int_equal(tensor->shape[1], 3);
            check_values(tensor, count_up, 6);
            finish(&opened);
        }
}

static void test_records(void **state)
{
    (void)state;
    /* Two records of 8 bytes: f4, i2, u1, and one byte of padding. */
    static const uint8_t data[] = {0, 0, 0x80, 0x3f, 0xff, 0xff, 7, 0, 0, 0, 0, 0x40, 5, 0, 8, 0};
    struct opened opened = open_made(1,
                                     "{'descr': [('a', '<f4'), (('title', 'b'), '<i2'), ('c', '|u1'), ('', '|V1')], "
                                     "'fortran_order': False, 'shape': (2,), }",
                                     data, sizeof data);
    assert_int_equal(opened.status, TS_OK);
    assert_int_equal(opened.bundle->count, 3);
    assert_int_equal(opened.bundle->skip_count, 0);
    assert_string_equal(opened.bundle->tensors[0]->name, "a");
    check_values(opened.bundle->tensors[0], (const double[]){1, 2}, 2);
    assert_string_equal(opened.bundle->tensors[1]->name, "b");
    check_values(opened.bundle->tensors[1], (const double[]){-1, 5}, 2);
    assert_string_equal(opened.bundle->tensors[2]->name, "c");
    check_values(opened.bundle->tensors[2], (const double[]){7, 8}, 2);
    finish(&opened);
}

static void test_nested_records(void **state)
{
    (void)state;
    /* p: two of {x: u2, y: u2}, then q: (2, 2) of u2: sixteen bytes, numbers 0 to 7, then 8 to 15. */
    uint8_t data[32] = {0};
    for (uint8_t i = 0; i < 16; i++)
        data[2 * i] = i;
    struct opened opened = open_made(1,
                                     "{'descr': [('p', [('x', '<u2'), ('y', '<u2')], (2,)), ('q', '<u2', (2, 2))], "
                                     "'fortran_order': False, 'shape': (2,), }",
                                     data, sizeof data);
    assert_int_equal(opened.status, TS_OK);
    assert_int_equal(opened.bundle->count, 3);
    assert_string_equal(opened.bundle->tensors[0]->name, "p.x");
    assert_int_equal(opened.bundle->tensors[0]->rank, 2);
    check_values(opened.bundle->tensors[0], (const double[]){0, 2, 8, 10}, 4);
    check_values(opened.bundle->tensors[1], (const double[]){1, 3, 9, 11}, 4);
    assert_string_equal(opened.bundle->tensors[2]->name, "q");
    assert_int_equal(opened.bundle->tensors[2]->rank, 3);
    check_values(opened.bundle->tensors[2], (const double[]){4, 5, 6, 7, 12, 13, 14, 15}, 8);
    finish(&opened);
}

static void test_record_of_uneven_size(void **state)
{
    (void)state;
    uint8_t data[12] = {[4] = 1, [10] = 2};
    struct opened opened = open_made(1,
                                     "{'descr': [('a', '<f4'), ('b', '<i2'), ], 'fortran_order': False, "
                                     "'shape': (2,), }",
                                     data, sizeof data);
    assert_int_equal(opened.status, TS_OK);
    assert_int_equal(opened.bundle->count, 1); /* b: 6 bytes are three times 2 */
    assert_string_equal(opened.bundle->tensors[0]->name, "b");
    check_values(opened.bundle->tensors[0], (const double[]){1, 2}, 2);
    assert_int_equal(opened.bundle->skip_count, 1);
    assert_string_equal(opened.bundle->skips[0].path, "x.npy:a");
    assert_non_null(strstr(opened.bundle->skips[0].reason, "4 bytes stand 6 bytes apart"));
    finish(&opened);
}

static void test_names_become_utf8(void **state)
{
    static const struct {
        unsigned version;
        const char *written, *expected;
    } cases[] = {
        {1, "\xe9", "\xc3\xa9"}, /* Latin-1 before version 3 */
        {2, "\xe9", "\xc3\xa9"},
        {3, "\xc3\xa9", "\xc3\xa9"},
        {1, "\\xe9", "\xc3\xa9"},
        {3, "\\u20AC\\U0001f600", "\xe2\x82\xac\xf0\x9f\x98\x80"},
        {1, "a\\\\b\\'c\\\"d\\n\\r\\t", "a\\b'c\"d\n\r\t"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char dictionary[256];
        snprintf(dictionary, sizeof dictionary,
                 "{'descr': [('%s', '<u2'), ('other', '<u2', 1)], 'fortran_order': False, 'shape': ()}",
                 cases[i].written);
        struct opened opened = open_made(cases[i].version, dictionary, "\1\0\2\0", 4);
        assert_int_equal(opened.status, TS_OK);
        assert_string_equal(opened.bundle->tensors[0]->name, cases[i].expected);
        check_values(opened.bundle->tensors[0], count_up + 1, 1);
        finish(&opened);
    }
}

static void test_several_arrays_in_one_file(void **state)
{
    (void)state;
    uint8_t file[1024];
    size_t size = make(file, 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (3,)}", "\0\1\2", 3);
    size += make(file + size, 2, "{'descr': '|i1', 'fortran_order': False, 'shape': ()}", "\xff", 1);
    memcpy(file + size, "tail", 4);
    struct opened opened = open_bytes(file, size + 4);
    assert_int_equal(opened.status, TS_OK);
    assert_int_equal(opened.bundle->count, 2);
    check_values(opened.bundle->tensors[0], count_up, 3);
    assert_string_equal(opened.bundle->tensors[1]->name, "[1]");
    check_values(opened.bundle->tensors[1], (const double[]){-1}, 1);
    assert_int_equal(opened.bundle->finding_count, 1);
    assert_non_null(strstr(opened.bundle->findings[0].text, "4 bytes at the end"));
    finish(&opened);
}

static void test_refused(void **state)
{
    static const struct {
        const char *dictionary, *message;
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", "need 12 bytes, 8 are left"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "negative"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", "more than 2^64 bytes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", "too large"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 3}", "expected a shape"},
        {"{'descr': '<f4', 'fortran_order': False}", "'shape' is missing"},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", "neither True nor False"},
        {"{'descr': '<f4', 'descr': '<f8', 'shape': (2,)}", "twice"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}", "unknown key 'x'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} + 1", "behind the dictionary"},
        {"{'descr': '<f4, 'fortran_order': False, 'shape': (2,)}", "'<f4, ', which this program does not know"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)", "expected ',' or '}'"},
        {"{'descr': '<q9', 'fortran_order': False, 'shape': (1,)}", "'<q9', which this program does not know"},
        {"{'descr': '<U2', 'fortran_order': False, 'shape': (1,)}", "'<U2': text"},
        {"{'descr': '|S8', 'fortran_order': False, 'shape': (1,)}", "'|S8': byte strings"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "Python objects"},
        {"{'descr': [('a', '|O'), ('b', '<f4')], 'fortran_order': False, 'shape': (1,)}", "Python objects"},
        {"{'descr': '|V8', 'fortran_order': False, 'shape': (1,)}", "without a meaning"},
        {"{'descr': 'float8_e4m3', 'fortran_order': False, 'shape': (1,)}", "float8_e4m3 (the kind with infinities)"},
        {"{'descr': [[[[[[[[[[", "expected '('"},
        {"{'descr': '<c32', 'fortran_order': False, 'shape': (0,)}", "complex of long double"},
        {"{'descr': '<f12', 'fortran_order': False, 'shape': (0,)}", "long double of another machine"},
        {"{'descr': '>f16', 'fortran_order': False, 'shape': (0,)}", "long double of another machine"},
        {"{'descr': '\\xg0'}", "hexadecimal digit"},
        {"{'descr': 4}", "expected a string"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (a)}", "expected a number"},
        {"{'descr': [('a', '<f4') ('b', '<f4')]}", "expected ',' or ']' after a field"},
        {"{'descr': (((((((((((", "nested more than 8 deep"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct opened opened = open_made(1, cases[i].dictionary, "\0\0\0\0\0\0\0\0", 8);
        if (opened.status == TS_OK)
            fail_msg("%s was read", cases[i].dictionary);
        if (!strstr(opened.error.message, cases[i].message))
            fail_msg("%s: %s", cases[i].dictionary, opened.error.message);
        finish(&opened);
    }
}

static void test_quad_is_refused(void **state)
{
    (void)state;
    /* 1.0 and 1/3 as IEEE quads, as numpy writes them on ARM */
    static const uint8_t data[] = {0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,
                                   0,    0,    0,    0xff, 0x3f, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55,
                                   0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0xfd, 0x3f};
    for (size_t count = 1; count <= 2; count++) {
        char dictionary[128];
        snprintf(dictionary, sizeof dictionary, "{'descr': '<f16', 'fortran_order': False, 'shape': (%zu,)}", count);
        struct opened opened = open_made(1, dictionary, data, 16 * count);
        assert_int_equal(opened.status, TS_ERR_UNSUPPORTED);
        assert_int_equal(opened.bundle->count, 0);
        finish(&opened);
    }
}

static void test_every_truncation_fails(void **state)
{
    (void)state;
    uint8_t file[1024];
    size_t size = make(file, 1, "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2)}", "\0\0\0\0\0\0\0\0", 8);
    for (size_t cut = 0; cut < size; cut++) {
        struct opened opened = open_bytes(file, cut);
        assert_int_not_equal(opened.status, TS_OK);
        assert_int_equal(opened.bundle->count, 0);
        finish(&opened);
    }
}

static void test_long_header_is_refused(void **state)
{
    (void)state;
    struct opened opened = open_bytes("\x93NUMPY\2\0\0\0\x20\0{", 13);
    assert_int_equal(opened.status, TS_ERR_LIMIT);
    assert_non_null(strstr(opened.error.message, "header of 2097152 bytes"));
    finish(&opened);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_npy),
        cmocka_unit_test(test_golden_fortran_has_strides),
        cmocka_unit_test(test_golden_object_is_refused),
        cmocka_unit_test(test_golden_npz),
        cmocka_unit_test(test_npz_members),
        cmocka_unit_test(test_npz_among_other_files),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_ml_dtypes),
        cmocka_unit_test(test_guesses_are_told),
        cmocka_unit_test(test_packed_fortran),
        cmocka_unit_test(test_header_spellings),
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_nested_records),
        cmocka_unit_test(test_record_of_uneven_size),
        cmocka_unit_test(test_names_become_utf8),
        cmocka_unit_test(test_several_arrays_in_one_file),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_quad_is_refused),
        cmocka_unit_test(test_every_truncation_fails),
        cmocka_unit_test(test_long_header_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
