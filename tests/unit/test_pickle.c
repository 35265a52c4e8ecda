/* The pickle machine: every instruction, from bytes written down by hand after Python's pickletools, and what it must
 * refuse. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "read/pickle.h"

static struct ts_pickle pickle;
static struct ts_error error;

static int start(void **state)
{
    (void)state;
    ts_pickle_init(&pickle);
    ts_error_clear(&error);
    return 0;
}

static int finish(void **state)
{
    (void)state;
    ts_pickle_release(&pickle);
    return 0;
}

/* Exact allocations, so that the address sanitizer sees a read past the end. */
static enum ts_status try_load(const char *bytes, size_t size, struct ts_pickle_value *value)
{
    static uint8_t *copy;
    uint64_t end;
    free(copy);
    copy = malloc(size ? size : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    return ts_pickle_load(&pickle, copy, size, 0, value, &end, &error);
}

/* LOAD("...") counts the bytes of a literal, NULs included. */
#define LOAD(literal) load(literal, sizeof(literal) - 1)

static struct ts_pickle_value load(const char *bytes, size_t size)
{
    struct ts_pickle_value value;
    if (try_load(bytes, size, &value) != TS_OK)
        fail_msg("%s", error.message);
    return value;
}

#define REFUSE(literal, words) refuse(literal, sizeof(literal) - 1, words)

static void refuse(const char *bytes, size_t size, const char *words)
{
    struct ts_pickle_value value;
    assert_int_not_equal(try_load(bytes, size, &value), TS_OK);
    if (!strstr(error.message, words))
        fail_msg("told \"%s\", expected \"%s\"", error.message, words);
}

static void is_integer(struct ts_pickle_value value, int64_t expected)
{
    assert_int_equal(value.kind, TS_PICKLE_INT);
    assert_int_equal(value.integer, expected);
}

static void is_text(struct ts_pickle_value value, enum ts_pickle_kind kind, const char *expected, size_t size)
{
    assert_int_equal(value.kind, kind);
    assert_int_equal(value.bytes->size, size);
    if (size)
        assert_memory_equal(value.bytes->data, expected, size);
}

static void scalars(void **state)
{
    struct ts_pickle_value value;
    (void)state;
    assert_int_equal(LOAD("N.").kind, TS_PICKLE_NONE);
    value = LOAD("\x88.");
    assert_true(value.kind == TS_PICKLE_BOOL && value.truth);
    value = LOAD("\x89.");
    assert_true(value.kind == TS_PICKLE_BOOL && !value.truth);
    value = LOAD("I01\n.");
    assert_true(value.kind == TS_PICKLE_BOOL && value.truth);
    value = LOAD("I00\n.");
    assert_true(value.kind == TS_PICKLE_BOOL && !value.truth);
    is_integer(LOAD("I-12\n."), -12);
    is_integer(LOAD("L34L\n."), 34);
    is_integer(LOAD("L00L\n."), 0);
    is_integer(LOAD("K\xff."), 255);
    is_integer(LOAD("M\x01\x02."), 513);
    is_integer(LOAD("J\xfe\xff\xff\xff."), -2);
    is_integer(LOAD("\x8a\x00."), 0);
    is_integer(LOAD("\x8a\x01\xff."), -1);
    is_integer(LOAD("\x8a\x02\xff\x00."), 255);
    is_integer(LOAD("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80."), INT64_MIN);
    is_integer(LOAD("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\x7f\x00."), INT64_MAX); /* a zero that says nothing */
    is_integer(LOAD("\x8b\x03\x00\x00\x00\x00\x00\x01."), 65536);
    value = LOAD("G\x3f\xf8\x00\x00\x00\x00\x00\x00.");
    assert_true(value.kind == TS_PICKLE_FLOAT && value.number == 1.5);
    value = LOAD("F-2.5e3\n.");
    assert_true(value.kind == TS_PICKLE_FLOAT && value.number == -2500);
    assert_true(isnan(LOAD("Fnan\n.").number));
    REFUSE("F1.5x\n.", "something else than digits");
    REFUSE("I1x\n.", "something else than digits");
    REFUSE("I\n.", "something else than digits");
    REFUSE("I12", "no end");
}

static void big_text(struct ts_pickle_value value, const char *expected)
{
    struct ts_buffer text;
    assert_int_equal(value.kind, TS_PICKLE_BIG);
    ts_buffer_init(&text, 1000);
    ts_pickle_big_text(value.bytes, &text);
    assert_string_equal(text.data, expected);
    ts_buffer_release(&text);
}

static void big_integers(void **state)
{
    char many[4 + 200 + 1] = "\x8a\xc8";
    struct ts_pickle_value value;
    (void)state;
    value = LOAD("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00."); /* 2^63 */
    big_text(value, "9223372036854775808");
    assert_true(ts_pickle_big_to_double(value.bytes) == 0x1p63);
    value = LOAD("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\x7f\xff."); /* -2^63 - 1 */
    big_text(value, "-9223372036854775809");
    assert_true(ts_pickle_big_to_double(value.bytes) == -0x1p63);
    value = LOAD("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."); /* torch's magic number */
    big_text(value, "119547037146038801333356");
    assert_true(ts_pickle_big_to_double(value.bytes) == 119547037146038801333356.0);
    /* 2^64 + 2^11 + 1 is just above the middle of two doubles: rounds up only if the last bit is seen */
    value = LOAD("\x8a\x09\x01\x08\x00\x00\x00\x00\x00\x00\x01.");
    assert_true(ts_pickle_big_to_double(value.bytes) == 0x1.0000000000001p64);
    value = LOAD("L123456789012345678901234567890L\n.");
    big_text(value, "123456789012345678901234567890");
    assert_true(ts_pickle_big_to_double(value.bytes) == 123456789012345678901234567890.0);
    memset(many + 2, 0x11, 200);
    many[202] = '.';
    value = load(many, 203);
    big_text(value, "an integer of 200 bytes");
    assert_true(isinf(ts_pickle_big_to_double(value.bytes)));
    REFUSE("\x8b\xff\xff\xff\x7f.", "2147483647 bytes, 1 are left");
    REFUSE("\x8b\xff\xff\xff\xff.", "4294967295 bytes, 1 are left");
}

static void strings(void **state)
{
    (void)state;
    is_text(LOAD("X\x03\x00\x00\x00"
                 "a\0b."),
            TS_PICKLE_TEXT, "a\0b", 3);
    is_text(LOAD("\x8c\x02hi."), TS_PICKLE_TEXT, "hi", 2);
    is_text(LOAD("\x8d\x02\0\0\0\0\0\0\0hi."), TS_PICKLE_TEXT, "hi", 2);
    is_text(LOAD("U\x02\xff\xfe."), TS_PICKLE_STRING, "\xff\xfe", 2);
    is_text(LOAD("T\x01\0\0\0x."), TS_PICKLE_STRING, "x", 1);
    is_text(LOAD("B\x01\0\0\0x."), TS_PICKLE_BYTES, "x", 1);
    is_text(LOAD("C\x00."), TS_PICKLE_BYTES, "", 0);
    is_text(LOAD("\x8e\x01\0\0\0\0\0\0\0x."), TS_PICKLE_BYTES, "x", 1);
    is_text(LOAD("\x96\x01\0\0\0\0\0\0\0x\x98."), TS_PICKLE_BYTES, "x", 1);
    is_text(LOAD("S'a\\n\\x41\\101\\\\'\n."), TS_PICKLE_STRING, "a\nAA\\", 5);
    is_text(LOAD("S\"plain\"\r\n."), TS_PICKLE_STRING, "plain", 5);
    is_text(LOAD("Va\\u00e9\xe9\\U0001f600\\\n."), TS_PICKLE_TEXT, "a\xc3\xa9\xc3\xa9\xf0\x9f\x98\x80\\", 10);
    REFUSE("S'a\\q'\n.", "escape");
    REFUSE("S'a\\x4'\n.", "escape");
    REFUSE("Sa\n.", "quotes");
    REFUSE("S'\n.", "quotes");
    REFUSE("Va\\u12\n.", "escape");
    REFUSE("V\\U00110000\n.", "escape");
    REFUSE("\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", "18446744073709551615 bytes, 1 are left");
    REFUSE("X\x10\0\0\0abc.", "needs 16 bytes, 4 are left");
    REFUSE("X\x10\0", "needs 4 bytes, 2 are left");
}

static void containers(void **state)
{
    struct ts_pickle_value value, item, key;
    struct ts_pickle_cursor cursor;
    (void)state;
    value = LOAD("(K\x01K\x02K\x03t.");
    assert_int_equal(value.kind, TS_PICKLE_TUPLE);
    assert_int_equal(value.tuple->count, 3);
    is_integer(value.tuple->items[2], 3);
    assert_int_equal(LOAD(").").tuple->count, 0);
    value = LOAD("K\x01K\x02K\x03\x87.");
    is_integer(value.tuple->items[0], 1);
    assert_int_equal(LOAD("NN\x86.").tuple->count, 2);
    assert_int_equal(LOAD("N\x85.").tuple->count, 1);
    value = LOAD("](K\x01K\x02"
                 "eK\x03"
                 "a.");
    assert_int_equal(value.kind, TS_PICKLE_LIST);
    assert_int_equal(value.list->count, 3);
    cursor = ts_pickle_begin(value.list);
    for (int64_t i = 1; i <= 3; i++) {
        assert_true(ts_pickle_next(&cursor, &item));
        is_integer(item, i);
    }
    assert_false(ts_pickle_next(&cursor, &item));
    assert_int_equal(LOAD("(K\x01K\x02l.").list->count, 2);
    value = LOAD("}(\x8c\x01"
                 "aK\x01\x8c\x01"
                 "bK\x02u\x8c\x01"
                 "cK\x03s.");
    assert_int_equal(value.kind, TS_PICKLE_DICT);
    assert_int_equal(value.list->count, 6);
    cursor = ts_pickle_begin(value.list);
    for (char c = 'a'; c <= 'c'; c++) {
        assert_true(ts_pickle_next(&cursor, &key) && ts_pickle_next(&cursor, &item));
        is_text(key, TS_PICKLE_TEXT, &c, 1);
        is_integer(item, c - 'a' + 1);
    }
    assert_int_equal(LOAD("(NNd.").list->count, 2);
    value = LOAD("\x8f(K\x01K\x02\x90.");
    assert_int_equal(value.kind, TS_PICKLE_SET);
    assert_int_equal(value.list->count, 2);
    assert_int_equal(LOAD("(K\x01\x91.").kind, TS_PICKLE_SET);
    REFUSE("(Nd.", "key without a value");
    REFUSE("}(Nu.", "key without a value");
    REFUSE("NNa.", "no container");
    REFUSE("]NNs.", "no container");
    REFUSE("](Nu.", "key without a value");
    REFUSE("}(NNe.", "no container");
}

static void long_lists(void **state)
{
    size_t size = 0;
    char *bytes = malloc(1 << 20);
    struct ts_pickle_value value, item;
    struct ts_pickle_cursor cursor;
    int64_t sum = 0;
    (void)state;
    assert_non_null(bytes);
    bytes[size++] = ']';
    for (unsigned batch = 0; batch < 100; batch++) { /* batches, and single items between them */
        bytes[size++] = '(';
        for (unsigned i = 0; i < 1000; i++) {
            bytes[size++] = 'K';
            bytes[size++] = (char)(i % 256);
        }
        memcpy(bytes + size,
               "eK\x07"
               "a",
               4);
        size += 4;
    }
    bytes[size++] = '.';
    value = load(bytes, size);
    free(bytes);
    assert_int_equal(value.list->count, 100 * 1001);
    cursor = ts_pickle_begin(value.list);
    while (ts_pickle_next(&cursor, &item))
        sum += item.integer;
    assert_int_equal(sum, 100 * (3 * 255 * 128 + 231 * 232 / 2 + 7)); /* 0..255 three times, 0..231 once, a seven */
}

static void stack_and_memo(void **state)
{
    struct ts_pickle_value value;
    (void)state;
    is_integer(LOAD("K\x01K\x02"
                    "0."),
               1);
    is_integer(LOAD("K\x01(K\x02K\x03"
                    "1."),
               1);
    is_integer(LOAD("K\x01("
                    "0."),
               1); /* POP on a mark removes the mark */
    assert_int_equal(LOAD("K\x05"
                          "2\x86.")
                         .tuple->items[1]
                         .integer,
                     5);
    assert_int_equal(LOAD("K\x05q\x07"
                          "0h\x07.")
                         .integer,
                     5);
    assert_int_equal(LOAD("K\x05r\xff\xff\xff\xff"
                          "0j\xff\xff\xff\xff.")
                         .integer,
                     5); /* sparse: no table of 2^32 */
    assert_int_equal(LOAD("K\x05p4000000000000000000\n0g4000000000000000000\n.").integer, 5);
    assert_int_equal(LOAD("K\x05\x94"
                          "0h\x00.")
                         .integer,
                     5);
    assert_int_equal(LOAD("\x80\x04\x95\x02\0\0\0\0\0\0\0K\x05.").integer, 5);
    /* out of order: 2 is in the table first and in the row later; MEMOIZE counts different entries */
    value = LOAD("(K\x05q\x02K\x06q\x00K\x07q\x01h\x02K\x08q\x02h\x02K\x09\x94h\x03t.");
    for (size_t i = 0; i < 8; i++)
        is_integer(value.tuple->items[i], (int64_t[]){5, 6, 7, 5, 8, 8, 9, 9}[i]);
    value = LOAD("]q\x00h\x00"
                 "a."); /* a list in itself */
    assert_ptr_equal(value.list->first->items[0].list, value.list);
    REFUSE("h\x01.", "memo entry 1 is used and was never stored");
    REFUSE("Nq\x00h\x01.", "memo entry 1 is used and was never stored");
    REFUSE("Np-1\n.", "memo index");
    REFUSE("q\x00.", "stack underflow");
    REFUSE("0.", "stack underflow");
    REFUSE("2.", "stack underflow");
    REFUSE(".", "stack underflow");
    REFUSE("(.", "stack underflow"); /* a mark is no value */
    REFUSE("NN(\x86.", "stack underflow");
    REFUSE("N(Na.", "stack underflow");
    REFUSE("](e", "without its STOP");
    REFUSE("e.", "no mark");
    REFUSE("Nt.", "no mark");
    REFUSE("1.", "no mark");
    REFUSE("(K\x01"
           "e.",
           "without a container");
    REFUSE("", "without its STOP");
    REFUSE("N", "without its STOP");
    REFUSE("\xff.", "0xff is no pickle instruction");
    REFUSE("\x80\x06N.", "pickle protocol 6");
    REFUSE("\x80", "needs 1 bytes, 0 are left");
    REFUSE("\x95\xff\0\0\0\0\0\0\0N.", "a frame says 255 bytes, 2 are left");
    REFUSE("\x97.", "out-of-band");
    assert_int_equal(error.status, TS_ERR_UNSUPPORTED);
}

static void calls_are_kept(void **state)
{
    struct ts_pickle_value value;
    (void)state;
    value = LOAD("cposix\nsystem\n\x8c\x02ls\x85R.");
    assert_int_equal(value.kind, TS_PICKLE_OBJECT);
    assert_true(ts_pickle_is_global(value.object->callable.global, "posix", "system"));
    assert_false(value.object->made_by_class);
    is_text(value.object->arguments.tuple->items[0], TS_PICKLE_TEXT, "ls", 2);
    assert_int_equal(value.object->offset, 19);
    assert_true(ts_pickle_is_global(pickle.globals, "posix", "system"));
    value = LOAD("\x8c\x01m\x8c\x01n\x93)\x81}b(K\x01"
                 "e(NNu.");
    assert_true(value.object->made_by_class);
    assert_int_equal(value.object->state.kind, TS_PICKLE_DICT);
    assert_int_equal(value.object->items->count, 1);
    assert_int_equal(value.object->pairs->count, 2);
    value = LOAD("(K\x01im\nn\n.");
    assert_true(ts_pickle_is_global(value.object->callable.global, "m", "n"));
    is_integer(value.object->arguments.tuple->items[0], 1);
    value = LOAD("(cm\nn\nK\x01o.");
    is_integer(value.object->arguments.tuple->items[0], 1);
    value = LOAD("cm\nn\n)}(\x8c\x01kK\x01u\x92.");
    assert_int_equal(value.object->keywords->count, 2);
    value = LOAD("\x82\x05.");
    assert_true(ts_pickle_is_global(value.global, "copyreg.extension", "5"));
    value = LOAD("\x84\x05\0\0\0.");
    assert_true(ts_pickle_is_global(value.global, "copyreg.extension", "5"));
    REFUSE("cm\nn\nNR.", "not a tuple");
    REFUSE("cm\nn\n))\x92.", "not a dict");
    REFUSE("cm\nn", "no end");
    REFUSE("NN\x93.", "not a string");
    REFUSE("]Nb.", "no object");
    REFUSE("(o.", "no class");
    REFUSE(")R.", "stack underflow");
}

static void persistent_ids(void **state)
{
    struct ts_pickle_value value;
    (void)state;
    pickle.tag = 9;
    value = LOAD("K\x07Q.");
    assert_int_equal(value.kind, TS_PICKLE_PERSISTENT);
    is_integer(value.persistent->id, 7);
    assert_int_equal(value.persistent->tag, 9);
    assert_ptr_equal(pickle.persistents, value.persistent);
    value = LOAD("Pabc\n.");
    is_text(value.persistent->id, TS_PICKLE_TEXT, "abc", 3);
    assert_ptr_equal(pickle.persistents->next, value.persistent);
    REFUSE("Q.", "stack underflow");
}

static void several_in_a_row(void **state)
{
    static const uint8_t bytes[] = "K\x01.K\x02.";
    struct ts_pickle_value value;
    uint64_t at = 0;
    (void)state;
    assert_int_equal(ts_pickle_load(&pickle, bytes, 6, at, &value, &at, &error), TS_OK);
    is_integer(value, 1);
    assert_int_equal(at, 3);
    assert_int_equal(ts_pickle_load(&pickle, bytes, 6, at, &value, &at, &error), TS_OK);
    is_integer(value, 2);
    assert_int_equal(at, 6);
    assert_int_equal(ts_pickle_load(&pickle, bytes, 6, at, &value, &at, &error), TS_ERR_FORMAT);
    assert_int_equal(ts_pickle_load(&pickle, bytes, 6, 7, &value, &at, &error), TS_ERR_FORMAT);
}

/* Every prefix of a pickle that uses most instructions is an error, not a crash. */
static void prefixes(void **state)
{
    static const char whole[] = "\x80\x04\x95\x10\0\0\0\0\0\0\0}(\x8c\x01"
                                "aK\x01\x8c\x01"
                                "b](G\0\0\0\0\0\0\0\0\x8a\x01\x05"
                                "e\x8c\x01"
                                "ccm\nn\n)R}bX\x01\0\0\0d\x94NS'x'\nI5\nPid\nu.";
    struct ts_pickle_value value;
    (void)state;
    for (size_t size = 0; size < sizeof whole - 2; size++)
        assert_int_not_equal(try_load(whole, size, &value), TS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(scalars, start, finish),
        cmocka_unit_test_setup_teardown(big_integers, start, finish),
        cmocka_unit_test_setup_teardown(strings, start, finish),
        cmocka_unit_test_setup_teardown(containers, start, finish),
        cmocka_unit_test_setup_teardown(long_lists, start, finish),
        cmocka_unit_test_setup_teardown(stack_and_memo, start, finish),
        cmocka_unit_test_setup_teardown(calls_are_kept, start, finish),
        cmocka_unit_test_setup_teardown(persistent_ids, start, finish),
        cmocka_unit_test_setup_teardown(several_in_a_row, start, finish),
        cmocka_unit_test_setup_teardown(prefixes, start, finish),
    };
    return cmocka_run_group_tests_name("pickle", tests, NULL, NULL);
}
