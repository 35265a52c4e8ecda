/* The files in tests/golden/text/raw were packed by Python's struct module; expected.f64 holds their numbers. */
#include "io/folder.h"
#include "opened.h"

static const struct ts_reader *const reader = &ts_reader_raw_sidecar;

struct beside {
    struct ts_folder *folder;
    struct opened opened;
    double expected[12];
};

static void open_beside(struct beside *beside, const char *name)
{
    struct ts_source *source;
    size_t size, index;
    char *data = load_file("tests/golden/text/raw/expected.f64", &size);
    assert_int_equal(size, 96);
    for (size_t i = 0; i < 12; i++)
        beside->expected[i] = ts_double_from_bits(ts_load_le64(data + 8 * i));
    free(data);
    assert_int_equal(ts_folder_open_disk("tests/golden/text/raw", true, false, &beside->folder, &beside->opened.error),
                     TS_OK);
    index = ts_folder_find(beside->folder, name);
    assert_int_not_equal(index, SIZE_MAX);
    assert_int_equal(ts_folder_open_member(beside->folder, index, &source, &beside->opened.error), TS_OK);
    opened_start(&beside->opened, reader, source, name, beside->folder);
    if (beside->opened.status != TS_OK)
        print_error("%s: %s\n", name, beside->opened.error.message);
    assert_int_equal(beside->opened.status, TS_OK);
    assert_int_equal(beside->opened.bid, 32);
}

static void close_beside(struct beside *beside)
{
    close_opened(&beside->opened);
    ts_folder_free(beside->folder);
}

static bool is_taken(const struct beside *beside, const char *name)
{
    return beside->folder->members[ts_folder_find(beside->folder, name)].taken;
}

static void test_single(void **state)
{
    struct beside beside;
    (void)state;
    open_beside(&beside, "plain.json");
    assert_int_equal(beside.opened.bundle->count, 1);
    assert_string_equal(beside.opened.bundle->tensors[0]->name, "");
    assert_shape(beside.opened.bundle->tensors[0], "[3,4]");
    assert_int_equal(beside.opened.bundle->tensors[0]->type, TS_F32);
    assert_values(beside.opened.bundle->tensors[0], beside.expected, 12);
    assert_true(is_taken(&beside, "plain.bin"));
    assert_false(is_taken(&beside, "pool.dat"));
    assert_int_equal(beside.opened.bundle->finding_count, 0);
    close_beside(&beside);

    open_beside(&beside, "fortran.f32.json");
    assert_shape(beside.opened.bundle->tensors[0], "[3,4]");
    assert_values(beside.opened.bundle->tensors[0], beside.expected, 12);
    close_beside(&beside);

    open_beside(&beside, "big.meta.json");
    assert_string_equal(beside.opened.bundle->tensors[0]->name, "big");
    assert_values(beside.opened.bundle->tensors[0], beside.expected, 12);
    assert_int_equal(beside.opened.bundle->finding_count, 0);
    close_beside(&beside);
}

static void test_manifest(void **state)
{
    struct beside beside;
    const struct ts_bundle *bundle;
    double turned[12];
    (void)state;
    open_beside(&beside, "all.json");
    bundle = beside.opened.bundle;
    assert_int_equal(bundle->count, 3);
    assert_string_equal(bundle->tensors[0]->name, "first");
    assert_values(bundle->tensors[0], beside.expected, 12);
    assert_string_equal(bundle->tensors[1]->name, "second");
    assert_int_equal(bundle->tensors[1]->type, TS_F64);
    assert_shape(bundle->tensors[1], "[2,6]");
    assert_values(bundle->tensors[1], beside.expected, 12);
    assert_string_equal(bundle->tensors[2]->name, "turned"); /* its strides are bytes: as elements they do not fit */
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 3; j++)
            turned[3 * i + j] = beside.expected[i + 4 * j];
    assert_values(bundle->tensors[2], turned, 12);
    assert_int_equal(bundle->finding_count, 1);
    assert_true(has_finding(&beside.opened, "\"loose.dat\" has 4 bytes more than dtype and shape need"));
    assert_int_equal(bundle->skip_count, 3);
    assert_true(has_skip(&beside.opened, "all.json:gone", "its raw file \"missing.dat\" cannot be opened"));
    assert_true(has_skip(&beside.opened, "all.json:long", "\"pool.dat\" has 144 bytes, dtype and shape need 16000"));
    assert_true(has_skip(&beside.opened, "all.json:odd", "dtype \"posit16\" is not one this program knows"));
    assert_true(is_taken(&beside, "pool.dat"));
    close_beside(&beside);
}

static void expect_failure(const char *text, const char *message)
{
    struct opened opened;
    open_text(&opened, reader, text);
    if (opened.status == TS_OK || !strstr(opened.error.message, message))
        print_error("%s: %s\n", text, opened.error.message);
    assert_int_not_equal(opened.status, TS_OK);
    assert_non_null(strstr(opened.error.message, message));
    close_opened(&opened);
}

static void test_failures(void **state)
{
    (void)state;
    expect_failure("{\"dtype\": \"f32\", \"shape\": [2]}", "no raw file stands beside it");
    expect_failure("{\"dtype\": \"f32\", \"shape\": [2], \"file\": \"../x.bin\"}", "\"../x.bin\" cannot be opened");
    expect_failure("{\"dtype\": \"f32\", \"shape\": [-2]}", "its shape is not of whole numbers");
    expect_failure("{\"dtype\": \"f32\", \"shape\": [2]", "JSON ends too early");
    expect_failure("{\"dtype\": \"f32\"}", "it has no shape");
    expect_failure("[1]", "expected an object that describes raw data");
}

static void test_bids(void **state)
{
    (void)state;
    assert_int_equal(bid_on(reader, "{\"shape\": [2], \"dtype\": \"torch.bfloat16\"}", "x.json"), 32);
    assert_int_equal(bid_on(reader, "{\"q\": {\"shape\": [2], \"dtype\": \"BF16\", \"file\": \"q.raw\"}}", "x.json"),
                     32);
    assert_int_equal(bid_on(reader, "{\"shape\": [2], \"dtype\": \"f32\", \"data\": [1, 2]}", "x.json"), 0);
    assert_int_equal(bid_on(reader, "{\"shape\": [2], \"dtype\": \"auto\"}", "x.json"), 0);
    assert_int_equal(bid_on(reader, "{\"dtype\": \"bfloat16\", \"hidden_size\": 64}", "config.json"), 0);
    assert_int_equal(bid_on(reader, "{}", "x.json"), 0);
    assert_int_equal(bid_on(reader, "1 2 3", "x.txt"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_single),
        cmocka_unit_test(test_manifest),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_bids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
