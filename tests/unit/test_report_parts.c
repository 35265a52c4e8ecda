#include "report_sample.h"

#include <libdeflate.h>

#include "base/progress.h"
#include "report/changes.h"
#include "report/facts.h"
#include "report/markup.h"
#include "report/plane.h"
#include "report/png.h"

static void assert_digest(const char *text, size_t size, const char *expected)
{
    uint8_t digest[TS_SHA256_SIZE];
    char hex[2 * TS_SHA256_SIZE + 1];
    ts_sha256(text, size, digest);
    for (int i = 0; i < TS_SHA256_SIZE; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(hex, expected);
}

/* Values of Python's hashlib; lengths on both sides of where the padding takes a second block. */
static void test_sha256(void **state)
{
    char letters[120];
    (void)state;
    memset(letters, 'a', sizeof letters);
    assert_digest("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_digest("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_digest(letters, 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    assert_digest(letters, 56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
    assert_digest(letters, 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
    assert_digest(letters, 119, "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb");
}

static void test_base64(void **state)
{
    static const char *const cases[][2] = {{"", ""},
                                           {"f", "Zg=="},
                                           {"fo", "Zm8="},
                                           {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="},
                                           {"fooba", "Zm9vYmE="},
                                           {"foobar", "Zm9vYmFy"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ts_buffer out;
        ts_buffer_init(&out, 100);
        assert_true(ts_put_base64(&out, cases[i][0], strlen(cases[i][0])));
        assert_string_equal(out.data ? out.data : "", cases[i][1]);
        ts_buffer_release(&out);
    }
}

static uint32_t load_be32(const uint8_t *from)
{
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

/* Reads the picture back as the format says: chunks in order, checksums, rows behind a filter byte. */
static void test_png(void **state)
{
    static const uint8_t pixels[] = {0, 1, 2, 2, 1, 0};
    static const struct ts_colour palette[] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
    static const char *const types[] = {"IHDR", "PLTE", "IDAT", "IEND"};
    struct libdeflate_decompressor *decompressor = libdeflate_alloc_decompressor();
    struct ts_buffer out;
    const uint8_t *at, *end;
    (void)state;
    ts_buffer_init(&out, 4096);
    assert_true(ts_put_png(&out, pixels, 3, 2, palette, 3));
    assert_memory_equal(out.data, "\x89PNG\r\n\x1a\n", 8);
    at = (const uint8_t *)out.data + 8;
    end = (const uint8_t *)out.data + out.size;
    for (int i = 0; i < 4; i++) {
        uint32_t size = load_be32(at);
        assert_true(at + 12 + size <= end);
        assert_memory_equal(at + 4, types[i], 4);
        assert_int_equal(load_be32(at + 8 + size), libdeflate_crc32(0, at + 4, size + 4));
        if (i == 0)
            assert_memory_equal(at + 8, "\0\0\0\3\0\0\0\2\10\3\0\0\0", 13);
        if (i == 1)
            assert_memory_equal(at + 8, "\1\2\3\4\5\6\7\10\11", 9);
        if (i == 2) {
            uint8_t raw[8];
            size_t got;
            assert_int_equal(libdeflate_zlib_decompress(decompressor, at + 8, size, raw, sizeof raw, &got),
                             LIBDEFLATE_SUCCESS);
            assert_int_equal(got, 8);
            assert_memory_equal(raw, "\0\0\1\2\0\2\1\0", 8);
        }
        at += 12 + size;
    }
    assert_ptr_equal(at, end);
    libdeflate_free_decompressor(decompressor);
    ts_buffer_release(&out);
}

static void assert_markup(const char *text, size_t columns, const char *expected)
{
    struct ts_buffer out;
    ts_buffer_init(&out, 4096);
    ts_put_markup(&out, text, columns);
    assert_string_equal(out.data, expected);
    ts_buffer_release(&out);
}

static void test_markup(void **state)
{
    (void)state;
    assert_markup("a<b>&\"c'", 100, "a&lt;b&gt;&amp;&quot;c&#39;");
    assert_markup("x\ny\033", 100, "x\\x0ay\\x1b");
    assert_markup("\uffff|\ufffe|\ufffd", 100, "\\u{ffff}|\\u{fffe}|\ufffd");
    assert_markup("<<<<<<<<<<<<", 7, "&lt;&lt;…&lt;&lt;&lt;&lt;");
}

static void assert_short(double value, const char *expected)
{
    struct ts_buffer out;
    ts_buffer_init(&out, 64);
    ts_put_short(&out, value);
    assert_string_equal(out.data, expected);
    ts_buffer_release(&out);
}

static void test_short_numbers(void **state)
{
    (void)state;
    assert_short(0, "0");
    assert_short(0.84, "0.84");
    assert_short(-0.25, "-0.25");
    assert_short(3.14159, "3.1");
    assert_short(25.4, "25");
    assert_short(99.6, "100");
    assert_short(520.4, "520");
    assert_short(9999.4, "9999");
    assert_short(9999.6, "1.0e+04");
    assert_short(256789, "2.6e+05");
    assert_short(0.001, "0.001");
    assert_short(0.00012, "1.2e-04");
    assert_short((double)NAN, "nan");
    assert_short(-(double)INFINITY, "-inf");
}

static void test_names_of_operations(void **state)
{
    struct sample sample;
    size_t inputs[TS_MOST_INPUTS];
    (void)state;
    sample_open(&sample, "a", "b");
    sample_pair(&sample, "mlp.gate", TS_JUDGED_OK, 0, 0, 0);
    sample_pair(&sample, "mlp.gate_proj", TS_JUDGED_OK, 0, 0, 0);
    sample_pair(&sample, "up", TS_JUDGED_OK, 0, 0, 0);
    sample_pair(&sample, "mlp.up", TS_JUDGED_OK, 0, 0, 0);
    sample_pair(&sample, "act", TS_JUDGED_OK, 0, 0, 0);
    assert_int_equal(ts_operation_inputs(&sample.comparison, 4, inputs), 0);
    sample.comparison.judgement.verdicts[4].operation = "silu(mlp.gate_proj) * mlp.up";
    assert_int_equal(ts_operation_inputs(&sample.comparison, 4, inputs), 2);
    assert_int_equal(inputs[0], 1); /* not mlp.gate, and not up */
    assert_int_equal(inputs[1], 3);
    sample_close(&sample);
}

static void test_held_precision(void **state)
{
    struct sample sample;
    (void)state;
    sample_open(&sample, "a", "b");
    for (int i = 0; i < 3; i++)
        sample_pair(&sample, "x", TS_JUDGED_OK, 0, 0, 0); /* f32 on both sides, bf16 values in the candidate */
    assert_int_equal(ts_held_precision(&sample.comparison, false), -1);
    assert_int_equal(ts_held_precision(&sample.comparison, true), 7);
    sample.comparison.deltas[0].precision_b = 23;
    assert_int_equal(ts_held_precision(&sample.comparison, true), 7);
    sample.comparison.deltas[1].precision_b = 23; /* no longer most of them */
    assert_int_equal(ts_held_precision(&sample.comparison, true), -1);
    sample_close(&sample);
}

/* NaN on one side is worse than any number, and what was not compared is not bad at all. */
static void test_worst_first(void **state)
{
    struct sample sample;
    size_t *worst, count;
    (void)state;
    sample_open(&sample, "a", "b");
    sample_pair(&sample, "x", TS_JUDGED_DIFFERS, 0.5, 1, 1);
    sample_pair(&sample, "y", TS_JUDGED_UNKNOWN, 9, 1, 1);
    sample_pair(&sample, "z", TS_JUDGED_DIFFERS, 0.1, 1, 1);
    sample_pair(&sample, "w", TS_JUDGED_NOISE, 0.7, 1, 1);
    sample.comparison.pairing.pairs[1].problem = "no";
    sample.comparison.deltas[2].non_finite_mismatch = 1;
    worst = ts_sorted_pairs(&sample.comparison, 0, TS_SORT_ERROR, 10, &count);
    assert_int_equal(count, 4);
    assert_memory_equal(worst, ((size_t[]){2, 3, 0, 1}), 4 * sizeof *worst);
    free(worst);
    worst = ts_sorted_pairs(&sample.comparison, 1u << TS_JUDGED_DIFFERS, TS_SORT_ERROR, 1, &count);
    assert_int_equal(count, 1);
    assert_int_equal(worst[0], 2);
    free(worst);
    sample_close(&sample);
}

static void read_plane(struct sample *sample, size_t i, struct ts_plane *plane)
{
    struct ts_error error;
    *plane = (struct ts_plane){.pair = &sample->comparison.pairing.pairs[i]};
    plane->mark = ts_worst_element(&sample->comparison, i, &plane->mark_a, &plane->mark_b);
    assert_int_equal(ts_plane_read(plane, &error), TS_OK);
}

static void test_plane_of_small_tensors(void **state)
{
    struct sample sample;
    struct ts_plane plane;
    (void)state;
    sample_open(&sample, "a", "b");
    sample_pair_of(&sample, "x", "x", 3, (uint64_t[]){2, 3, 5}, TS_JUDGED_DIFFERS, 0.5, 1, 2);
    read_plane(&sample, 0, &plane);
    assert_int_equal(plane.height, 6);
    assert_int_equal(plane.width, 5);
    assert_false(plane.sampled);
    for (size_t i = 0; i < 30; i++) {
        assert_true(plane.seen[i]);
        assert_true(plane.a[i] == 0.5f);
        assert_true(plane.b[i] == (i == 29 ? 2.5f : 0.5f));
        assert_true(plane.difference[i] == (i == 29 ? 2 : 0));
    }
    ts_plane_release(&plane);
    sample_close(&sample);
}

/* One axis is wrapped, and the rest of the last row is not there. */
static void test_plane_of_vectors(void **state)
{
    struct sample sample;
    struct ts_plane plane;
    (void)state;
    sample_open(&sample, "a", "b");
    sample_pair_of(&sample, "x", "x", 2, (uint64_t[]){1, 1000}, TS_JUDGED_DIFFERS, 0.5, 1, (float)NAN);
    sample_pair_of(&sample, "y", "y", 1, (uint64_t[]){100}, TS_JUDGED_DIFFERS, 0.5, 1, 1);
    sample.comparison.deltas[0].non_finite_mismatch = 1;
    sample.comparison.deltas[0].first_non_finite_mismatch = 999;
    read_plane(&sample, 0, &plane);
    assert_int_equal(plane.wrapped, 64);
    assert_int_equal(plane.height, 16);
    assert_int_equal(plane.width, 64);
    assert_int_equal(plane.mark, 999);
    assert_true(isnan(plane.difference[999]));
    assert_true(plane.difference[998] == 0);
    assert_true(plane.seen[999]);
    assert_false(plane.seen[1000]);
    ts_plane_release(&plane);
    read_plane(&sample, 1, &plane);
    assert_int_equal(plane.wrapped, 0);
    assert_int_equal(plane.height, 1);
    assert_int_equal(plane.width, 100);
    ts_plane_release(&plane);
    sample_close(&sample);
}

/* Five million elements: a spread of them is looked at, and the worst one, wherever it is. */
static void test_plane_of_large_tensors(void **state)
{
    struct sample sample;
    struct ts_plane plane;
    size_t different = 0;
    (void)state;
    sample_open(&sample, "a", "b");
    sample_pair_of(&sample, "x", "x", 2, (uint64_t[]){2500, 2003}, TS_JUDGED_DIFFERS, 0.5, 1, 2);
    read_plane(&sample, 0, &plane);
    assert_int_equal(plane.height, 128);
    assert_int_equal(plane.width, 128);
    assert_true(plane.sampled);
    for (size_t i = 0; i < (size_t)128 * 128; i++) {
        assert_true(plane.seen[i]);
        assert_true(plane.a[i] == 0.5f);
        different += plane.difference[i] != 0;
    }
    assert_int_equal(different, 1);
    assert_true(plane.difference[128 * 128 - 1] == 2);
    ts_plane_release(&plane);
    sample_close(&sample);
}

static void test_plane_is_interrupted(void **state)
{
    struct sample sample;
    struct ts_buffer out;
    struct ts_error error;
    (void)state;
    sample_open(&sample, "a", "b");
    sample_pair(&sample, "x", TS_JUDGED_DIFFERS, 0.5, 1, 2);
    ts_buffer_init(&out, 1 << 20);
    atomic_store(&ts_cancelled, true);
    assert_int_equal(ts_report_html(&sample.comparison, &sample.options, &out, &error), TS_ERR_CANCELLED);
    atomic_store(&ts_cancelled, false);
    ts_buffer_release(&out);
    sample_close(&sample);
}

static void assert_folded(const char *text, size_t column, const char *expected)
{
    const struct ts_layout layout = {.width = 10, .unicode = true};
    struct ts_buffer out;
    ts_buffer_init(&out, 4096);
    ts_put_folded(&layout, &out, text, column, 2);
    assert_string_equal(out.data, expected);
    ts_buffer_release(&out);
}

static void test_layout(void **state)
{
    const struct ts_layout layout = {.width = 80, .unicode = true}, plain = {.width = 80};
    struct ts_buffer out;
    (void)state;
    assert_folded("one two three", 0, "one two\n  three");
    assert_folded("abcdefghijklmnopqrstuvwxyz", 0, "abcdefghij\n  klmnopqr\n  stuvwxyz");
    assert_folded("a abcdefghijkl b", 0, "a\n  abcdefgh\n  ijkl b");
    assert_folded("12345", 7, "\n  12345"); /* the first word does not fit behind what is there */
    assert_folded("漢字漢字漢字", 1, "漢字漢字\n  漢字");
    ts_buffer_init(&out, 4096);
    assert_int_equal(ts_put_name(&layout, &out, "model.layers.11.self_attn", 16), 16);
    assert_string_equal(out.data, "…rs.11.self_attn"); /* the layer tells more than the beginning */
    ts_buffer_clear(&out);
    assert_int_equal(ts_put_name(&plain, &out, "model.layers.11.self_attn", 16), 16);
    assert_string_equal(out.data, "~rs.11.self_attn");
    ts_buffer_clear(&out);
    assert_int_equal(ts_put_name(&layout, &out, "model.layers.12.post_attention_layernorm", 20), 20);
    assert_string_equal(out.data, "…12…ention_layernorm"); /* wherever it stands */
    ts_buffer_clear(&out);
    assert_int_equal(ts_put_name(&layout, &out, "layers.12.post_attention_layernorm", 25), 25);
    assert_string_equal(out.data, "…12…t_attention_layernorm"); /* and all of it */
    ts_buffer_clear(&out);
    assert_int_equal(ts_put_name(&layout, &out, "encoder.projection.weight", 16), 16);
    assert_string_equal(out.data, "encod…ion.weight");
    ts_buffer_clear(&out);
    assert_int_equal(ts_put_name(&layout, &out, "a\nb", 16), 6);
    assert_string_equal(out.data, "a\\x0ab");
    assert_int_equal(ts_name_columns("a\n漢"), 7);
    ts_buffer_release(&out);
}

/* What counts as the noise before a divergence: not which experts were chosen, nor rows that stand elsewhere. */
static void test_text_of_noise_that_is_large(void **state)
{
    const struct ts_layout layout = {.width = 80};
    const struct ts_report_options options = {0};
    struct ts_buffer text;
    struct sample sample;
    size_t rows, chosen;
    (void)state;
    sample_open(&sample, "run_a", "run_b");
    sample_pair(&sample, "layer_0_q", TS_JUDGED_NOISE, 0.21, 1e4, 0.1f);
    rows = sample_pair(&sample, "layer_0_experts.act", TS_JUDGED_NOISE, 1.4, 1e6, 1.0f);
    chosen = sample_pair(&sample, "layer_0_chosen", TS_JUDGED_NOISE, 0.98, NAN, 1.0f);
    sample_pair(&sample, "layer_1_q", TS_JUDGED_DIFFERS, 0.9, 1e6, 2.0f);
    sample.comparison.judgement.coarse = 0;
    sample.comparison.judgement.verdicts[rows].error = 0.18;
    sample.comparison.judgement.verdicts[chosen].error = (double)NAN;
    sample_outcome(&sample, TS_OUTCOME_DIFFER, "differ");
    ts_buffer_init(&text, (size_t)1 << 20);
    ts_report_text(&sample.comparison, &options, &layout, &text);
    ts_buffer_byte(&text, '\0');
    if (!strstr(text.data, "The 3 tensors before it agree, with errors of up to 0.21."))
        fail_msg("%s", text.data);
    ts_buffer_release(&text);
    sample_close(&sample);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256),
        cmocka_unit_test(test_base64),
        cmocka_unit_test(test_png),
        cmocka_unit_test(test_markup),
        cmocka_unit_test(test_short_numbers),
        cmocka_unit_test(test_names_of_operations),
        cmocka_unit_test(test_held_precision),
        cmocka_unit_test(test_worst_first),
        cmocka_unit_test(test_plane_of_small_tensors),
        cmocka_unit_test(test_plane_of_vectors),
        cmocka_unit_test(test_plane_of_large_tensors),
        cmocka_unit_test(test_plane_is_interrupted),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_text_of_noise_that_is_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
