#include "report_sample.h"

#include "base/text.h"

static const char hostile[] = "\033[31mred\033[0m\"<script>alert('x')</script>&\u202e\xff,=1\n";

static const struct ts_layout eighty = {.width = 80, .unicode = true};

static void make_text(const struct sample *sample, const struct ts_layout *layout, struct ts_buffer *out)
{
    ts_buffer_init(out, (size_t)64 << 20);
    ts_report_text(&sample->comparison, &sample->options, layout, out);
    assert_false(out->failed);
}

static void assert_text(const struct sample *sample, const char *expected)
{
    struct ts_buffer out;
    make_text(sample, &eighty, &out);
    assert_string_equal(out.data, expected);
    ts_buffer_release(&out);
}

/* A trace of eight tensors that goes wrong at the fifth. */
static void make_trace(struct sample *sample)
{
    struct ts_verdict *verdicts;
    sample_open(sample, "reference.safetensors", "candidate.safetensors");
    sample->comparison.a->file_bytes = 1100000;
    sample->comparison.b->file_bytes = 1100000;
    sample_pair(sample, "input_embeddings", TS_JUDGED_OK, 0, 0, 0);
    sample_pair(sample, "layer_0_attn_norm", TS_JUDGED_NOISE, 0.0017, 1.1, 0.01f);
    sample_pair(sample, "layer_0_attn_q", TS_JUDGED_NOISE, 0.0029, 3.1, 0.01f);
    sample_pair(sample, "layer_0_attn_q_normed", TS_JUDGED_NOISE, 0.0024, 2.1, 0.01f);
    sample_pair(sample, "layer_0_attn_q_rope", TS_JUDGED_DIFFERS, 0.84, 256789, 1.77f);
    sample_pair(sample, "layer_0_attn_scores", TS_JUDGED_DIFFERS, 0.5, 90000, 1.5f);
    sample_pair(sample, "layer_0_attn_probs", TS_JUDGED_DIFFERS, 0.4, 60000, 0.25f);
    sample_pair(sample, "layer_0_attn_context", TS_JUDGED_DIFFERS, 0.3, 30000, 0.75f);
    sample_pair(sample, "layer_0_attn_o", TS_JUDGED_DIFFERS, 0.3, 30000, 0.75f);
    sample_pair(sample, "layer_0_attn_residual", TS_JUDGED_NOISE, 0.001, 0.5, 0.01f);
    sample_pair(sample, "layer_0_mlp_norm", TS_JUDGED_DIFFERS, 0.3, 30000, 0.75f);
    sample_pair(sample, "logits", TS_JUDGED_DIFFERS, 0.2, 14000, 123.5f);
    verdicts = sample->comparison.judgement.verdicts;
    verdicts[4].operation = "rotary(layer_0_attn_q_normed), half-split pairs";
    verdicts[4].why = "replayed on the candidate's own inputs, the reference's operation gives something else";
    for (size_t i = 5; i < 12; i++)
        if (verdicts[i].judged == TS_JUDGED_DIFFERS)
            verdicts[i].why = "carried from the first divergence";
    sample_outcome(sample, TS_OUTCOME_DIFFER, "7 of 12 tensors differ");
}

static void test_text_of_a_divergence(void **state)
{
    struct sample sample;
    (void)state;
    make_trace(&sample);
    assert_text(&sample, "A (reference)  reference.safetensors\n"
                         "   12 tensors, f32, 1.1 MB\n"
                         "B (candidate)  candidate.safetensors\n"
                         "   12 tensors, f32 holding bf16 values, 1.1 MB\n"
                         "paired 12 of 12 by name, in the capture order\n"
                         "\n"
                         "    tensor                       shape     error  roundings  worst\n"
                         "    up to layer_0_attn_q_normed  4 pairs   noise  ≤ 3.1\n"
                         "  ✗ layer_0_attn_q_rope          [9,4,16]  0.84   2.6e+05    1.77 at [8,3,15]\n"
                         "  ✗ layer_0_attn_scores          [9,4,16]  0.5    9.0e+04    1.5 at [8,3,15]\n"
                         "  ✗ layer_0_attn_probs           [9,4,16]  0.4    6.0e+04    0.25 at [8,3,15]\n"
                         "  ✗ layer_0_attn_context         [9,4,16]  0.3    3.0e+04    0.75 at [8,3,15]\n"
                         "    … 2 more tensors differ downstream, 1 agrees\n"
                         "  ✗ logits                       [9,4,16]  0.2    1.4e+04    124 at [8,3,15]\n"
                         "\n"
                         "First divergence: layer_0_attn_q_rope\n"
                         "  Its input layer_0_attn_q_normed agrees (2.1 roundings of bf16), so the error\n"
                         "  is made here.\n"
                         "  why        replayed on the candidate's own inputs, the reference's operation\n"
                         "             gives something else\n"
                         "  operation  rotary(layer_0_attn_q_normed), half-split pairs\n"
                         "  worst      reference 0.5, candidate 2.27 at [8,3,15]\n"
                         "  before     layer_0_attn_q: noise, 3.1 roundings of bf16\n"
                         "             layer_0_attn_q_normed: noise, 2.1 roundings of bf16\n"
                         "  after      layer_0_attn_scores: differs, 9.0e+04 roundings of bf16\n"
                         "             layer_0_attn_probs: differs, 6.0e+04 roundings of bf16\n"
                         "\n"
                         "differ: 7 of 12 tensors\n");
    sample_close(&sample);
}

/* A path is not cut to make room for saying which input it is. */
static void test_text_of_a_long_path(void **state)
{
    static const char path[] = "a/folder/with/a/name/that/nearly/fills/the/line/of/eighty/columns.gguf";
    struct sample sample;
    struct ts_buffer out;
    (void)state;
    sample_open(&sample, path, "b.pt");
    sample_pair(&sample, "x", TS_JUDGED_OK, 0, 0, 0);
    sample_outcome(&sample, TS_OUTCOME_MATCH, "the only tensor is equal");
    make_text(&sample, &eighty, &out);
    assert_memory_equal(out.data, "A  a/folder/", 12);
    assert_non_null(strstr(out.data, "columns.gguf\n   1 tensor, f32, 0 B\nB  b.pt\n   1 tensor, "));
    ts_buffer_release(&out);
    sample_close(&sample);
}

/* Whoever sits at a terminal is told what to type next, in the words of a shell. */
static void test_text_with_a_hint(void **state)
{
    struct ts_layout terminal = {.width = 80, .unicode = true, .hints = true};
    struct sample sample;
    struct ts_buffer out;
    (void)state;
    make_trace(&sample);
    make_text(&sample, &terminal, &out);
    assert_non_null(strstr(out.data, "\ndiffer: 7 of 12 tensors\n"
                                     "look closer: tsleuth serve reference.safetensors candidate.safetensors\n"));
    ts_buffer_release(&out);
    sample_close(&sample);
    terminal.width = 30; /* a command is not broken */
    sample_open(&sample, "-a", "it's b");
    sample_pair(&sample, "x", TS_JUDGED_DIFFERS, 0.5, 100, 1);
    sample_outcome(&sample, TS_OUTCOME_DIFFER, "the only tensor differs");
    make_text(&sample, &terminal, &out);
    assert_non_null(strstr(out.data, "\nlook closer: tsleuth serve './-a' 'it'\\''s b'\n"));
    ts_buffer_release(&out);
    sample_outcome(&sample, TS_OUTCOME_MATCH, "the only tensor is equal");
    make_text(&sample, &terminal, &out);
    assert_null(strstr(out.data, "look closer"));
    ts_buffer_release(&out);
    sample_close(&sample);
}

static void test_text_in_plain_ascii(void **state)
{
    const struct ts_layout plain = {.width = 80};
    struct sample sample;
    struct ts_buffer out;
    (void)state;
    make_trace(&sample);
    make_text(&sample, &plain, &out);
    for (size_t i = 0; i < out.size; i++)
        assert_true((unsigned char)out.data[i] < 0x80);
    assert_non_null(strstr(out.data, "  x layer_0_attn_q_rope "));
    assert_non_null(strstr(out.data, "<= 3.1\n"));
    ts_buffer_release(&out);
    sample_close(&sample);
}

static void test_text_with_colour(void **state)
{
    const struct ts_layout coloured = {.width = 80, .unicode = true, .colour = true};
    struct sample sample;
    struct ts_buffer out, stripped;
    (void)state;
    make_trace(&sample);
    make_text(&sample, &coloured, &out);
    assert_non_null(strstr(out.data, "\033[31m✗\033[0m layer_0_attn_q_rope"));
    assert_non_null(strstr(out.data, "\033[31mdiffer\033[0m: 7 of 12 tensors\n"));
    /* without its colours it is the same text */
    ts_buffer_init(&stripped, 1 << 20);
    for (const char *at = out.data; *at; at++) {
        if (*at == '\033')
            while (*at != 'm')
                at++;
        else
            ts_buffer_byte(&stripped, *at);
    }
    assert_text(&sample, stripped.data);
    ts_buffer_release(&stripped);
    ts_buffer_release(&out);
    sample_close(&sample);
}

static void test_text_of_a_match(void **state)
{
    struct sample sample;
    (void)state;
    sample_open(&sample, "a.pt", "b.pt");
    sample_pair(&sample, "first", TS_JUDGED_OK, 0, 0, 0);
    sample_pair(&sample, "second", TS_JUDGED_OK, 0, 0, 0);
    sample_outcome(&sample, TS_OUTCOME_MATCH, "both tensors are equal");
    sample.comparison.pairing.notes[0] = "layers 3.. of A are compared with layers 0.. of B";
    sample.comparison.pairing.note_count = 1;
    sample.comparison.judgement.notes[0] = "one token: a longer prompt shows more";
    sample.comparison.judgement.note_count = 1;
    sample.comparison.judgement.aside = (uint64_t[]){3, 17};
    sample.comparison.judgement.aside_count = 2;
    sample.comparison.judgement.tokens = 76;
    sample.comparison.doubts[0] = "first and second hold the same values";
    sample.comparison.doubt_count = 1;
    assert_text(&sample, "A (reference)  a.pt   2 tensors, f32, 0 B\n"
                         "B (candidate)  b.pt   2 tensors, f32 holding bf16 values, 0 B\n"
                         "paired 2 of 2 by name, in the capture order\n"
                         "layers 3.. of A are compared with layers 0.. of B\n"
                         "\n"
                         "    tensor          shape    error  roundings\n"
                         "    first … second  2 pairs  equal\n"
                         "\n"
                         "set aside: 2 of 76 tokens that were routed to different experts on a near tie:\n"
                         "  3, 17\n"
                         "note: one token: a longer prompt shows more\n"
                         "warning: first and second hold the same values\n"
                         "\n"
                         "match: both tensors are equal\n");
    sample_close(&sample);
}

/* A guess is called one in every form; what was seen is not. */
static void test_tokens_set_aside_by_a_guess(void **state)
{
    const struct ts_layout plain = {.width = 120};
    uint64_t tokens[20];
    bool guessed[20];
    struct sample sample;
    struct ts_buffer out;
    (void)state;
    make_trace(&sample);
    for (size_t i = 0; i < 20; i++) {
        tokens[i] = 2 * i;
        guessed[i] = i != 4;
    }
    sample.comparison.judgement.aside = tokens;
    sample.comparison.judgement.guessed = guessed;
    sample.comparison.judgement.aside_count = 20;
    sample.comparison.judgement.tokens = 76;
    make_text(&sample, &plain, &out);
    assert_non_null(strstr(out.data,
                           "set aside: 1 of 76 tokens that were routed to different experts, on a near tie or "
                           "because of the first divergence: 8\n"));
    assert_non_null(
        strstr(out.data, "set aside (a guess): 19 of 76 tokens that seem to have been routed to different "));
    assert_non_null(strstr(out.data, " 0, 2, 4, 6, 10,"));
    assert_non_null(strstr(out.data, " and 3 more\n"));
    ts_buffer_release(&out);
    make_html(&sample, &out);
    assert_non_null(strstr(out.data, "<dt>set aside</dt><dd>1 of 76 tokens that were routed"));
    assert_non_null(strstr(out.data, "<dt>set aside (a guess)</dt><dd>19 of 76 tokens that seem to have been routed"));
    ts_buffer_release(&out);
    sample.comparison.judgement.aside_count = 5;
    make_json(&sample, &out);
    assert_json(&out);
    assert_non_null(strstr(out.data, "\"tokens_set_aside\":[0,2,4,6,8],\"tokens_set_aside_by_guess\":[0,2,4,6]"));
    ts_buffer_release(&out);
    sample.comparison.judgement.guessed = NULL;
    make_text(&sample, &plain, &out);
    assert_null(strstr(out.data, "guess"));
    ts_buffer_release(&out);
    sample_close(&sample);
}

static void test_text_of_nothing_in_common(void **state)
{
    struct sample sample;
    struct ts_comparison *comparison = &sample.comparison;
    const struct ts_tensor *only_a[1], *only_b[1];
    struct ts_error error;
    float zero = 0;
    (void)state;
    sample_open(&sample, "a.pt", "b.pt");
    only_a[0] = sample_tensor(comparison->a, "x", 1, (uint64_t[]){1}, &zero, 1);
    only_b[0] = sample_tensor(comparison->b, "y", 2, (uint64_t[]){1, 1}, &zero, 1);
    comparison->pairing.only_a = only_a;
    comparison->pairing.only_b = only_b;
    comparison->pairing.only_a_count = comparison->pairing.only_b_count = 1;
    assert_int_equal(ts_bundle_skip(comparison->b, "b/z.pt", false, "truncated at byte 12", &error), TS_OK);
    assert_int_equal(ts_bundle_skip(comparison->b, "b/README.md", true, "not a tensor file", &error), TS_OK);
    sample_outcome(&sample, TS_OUTCOME_INCOMPLETE, "the two inputs have no tensor in common");
    assert_text(&sample, "A (reference)  a.pt   1 tensor, f32, 0 B\n"
                         "B (candidate)  b.pt   1 tensor, f32, 0 B\n"
                         "\n"
                         "only in the reference: 1 tensor\n"
                         "  x  f32 [1]\n"
                         "\n"
                         "only in the candidate: 1 tensor\n"
                         "  y  f32 [1,1]\n"
                         "\n"
                         "could not be read in the candidate\n"
                         "  b/z.pt: truncated at byte 12\n"
                         "\n"
                         "incomplete: the two inputs have no tensor in common\n");
    sample_close(&sample);
}

/* Lines of the table that begin with a mark. */
static size_t count_rows(const char *text)
{
    size_t rows = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        rows += strncmp(at, "\n  ✗ ", 7) == 0 || strncmp(at, "\n  ≈ ", 7) == 0 || strncmp(at, "\n  ✓ ", 7) == 0;
    return rows;
}

static void test_text_selections(void **state)
{
    struct sample sample;
    struct ts_buffer out;
    const char *logits, *rope;
    (void)state;
    make_trace(&sample);
    sample.options.all = true;
    make_text(&sample, &eighty, &out);
    assert_int_equal(count_rows(out.data), 12);
    assert_null(strstr(out.data, "further tensor"));
    ts_buffer_release(&out);

    sample.options.all = false;
    sample.options.only = 1u << TS_JUDGED_DIFFERS;
    make_text(&sample, &eighty, &out);
    assert_int_equal(count_rows(out.data), 7);
    ts_buffer_release(&out);

    sample.options.only = 0;
    sample.options.top = 2;
    make_text(&sample, &eighty, &out);
    assert_int_equal(count_rows(out.data), 2);
    rope = strstr(out.data, "✗ layer_0_attn_q_rope");
    logits = strstr(out.data, "✗ layer_0_attn_scores");
    assert_true(rope && logits && rope < logits); /* 0.84 before 0.5 */
    ts_buffer_release(&out);

    sample.options.only = 1u << TS_JUDGED_UNKNOWN;
    make_text(&sample, &eighty, &out);
    assert_non_null(strstr(out.data, "    no tensor is of that kind\n"));
    ts_buffer_release(&out);
    sample_close(&sample);
}

static void test_text_of_grades(void **state)
{
    struct sample sample;
    struct ts_buffer out;
    (void)state;
    make_trace(&sample);
    sample.comparison.deltas[0].allclose[1] = true; /* EXCELLENT, but a run goes by its worst */
    sample.options.grades = true;
    make_text(&sample, &eighty, &out);
    assert_non_null(strstr(out.data, "roundings  grade"));
    assert_non_null(strstr(out.data, "≤ 3.1      ACCEPTABLE\n"));
    ts_buffer_release(&out);
    sample_close(&sample);
}

static void test_text_of_nan(void **state)
{
    struct sample sample;
    struct ts_buffer out;
    (void)state;
    sample_open(&sample, "a", "b");
    sample_pair_of(&sample, "x", "x", 1, (uint64_t[]){4}, TS_JUDGED_DIFFERS, 0, 0, (float)NAN);
    sample.comparison.deltas[0].non_finite_mismatch = 1;
    sample.comparison.deltas[0].first_non_finite_mismatch = 3;
    sample.comparison.judgement.verdicts[0].why =
        "1 elements are NaN or infinite on one side and something else on the other";
    sample_outcome(&sample, TS_OUTCOME_DIFFER, "the only tensor differs");
    make_text(&sample, &eighty, &out);
    assert_non_null(strstr(out.data, "  ✗ x       [4]    nan/inf  -          1 element at [3]\n"));
    assert_non_null(strstr(out.data, "worst      reference 0.5, candidate nan at [3]\n"));
    assert_non_null(strstr(out.data, "Nothing was compared before it.\n"));
    ts_buffer_release(&out);
    sample_close(&sample);
}

/* Bit by bit, 0 and -0 differ though no value does. */
static void test_text_of_unequal_bits(void **state)
{
    struct sample sample;
    struct ts_buffer out;
    (void)state;
    sample_open(&sample, "a", "b");
    sample_pair(&sample, "x", TS_JUDGED_DIFFERS, 0, 0, 0);
    sample.comparison.judgement.weights = true;
    sample_outcome(&sample, TS_OUTCOME_DIFFER, "the only tensor differs");
    make_text(&sample, &eighty, &out);
    assert_non_null(strstr(out.data, "  ✗ x       [9,4,16]  bits only  0       1.0000\n"));
    ts_buffer_release(&out);
    sample_close(&sample);
}

static void test_text_of_what_cannot_be_told(void **state)
{
    struct sample sample;
    struct ts_buffer out;
    (void)state;
    sample_open(&sample, "a", "b");
    sample_pair(&sample, "x", TS_JUDGED_OK, 0, 0, 0);
    sample_pair(&sample, "y", TS_JUDGED_UNKNOWN, 0, 0, 0);
    sample_pair_of(&sample, "z", "other.z", 2, (uint64_t[]){2, 3}, TS_JUDGED_DIFFERS, 0.5, 100, 1);
    sample.comparison.pairing.pairs[1].problem = "[3,4] against [5]: no layout fits";
    sample.comparison.pairing.pairs[2].recipe = "B: swap 0 1";
    sample.comparison.pairing.pairs[2].ambiguous = true;
    sample.comparison.pairing.pairs[2].how = "content";
    sample_outcome(&sample, TS_OUTCOME_DIFFER, "1 of 3 tensors differ");
    make_text(&sample, &eighty, &out);
    assert_non_null(strstr(out.data, "paired 3 of 3: 2 by name, 1 by content, in the capture order\n"));
    assert_non_null(strstr(out.data, "  ? y       [9,4,16]  cannot tell\n      [3,4] against [5]: no layout fits\n"));
    assert_non_null(strstr(out.data, "\n      candidate other.z; B: swap 0 1; another layout fits as well\n"));
    assert_non_null(strstr(out.data, "  pairing    candidate other.z; B: swap 0 1; another layout fits as well\n"));
    assert_non_null(strstr(out.data, "The tensor before it agrees. 1 before it could not be compared.\n"));
    ts_buffer_release(&out);
    sample_close(&sample);
}

static void test_text_of_causes(void **state)
{
    struct ts_diagnosis diagnosis = {.count = 2,
                                     .causes = {{"rotation", 0.98, "the angles fit theta = 1000000", "rope_theta"},
                                                {"scaled", 0.3, "by 1.2", NULL}}};
    struct sample sample;
    struct ts_buffer out;
    (void)state;
    make_trace(&sample);
    sample.options.diagnosis = &diagnosis;
    make_text(&sample, &eighty, &out);
    assert_non_null(strstr(out.data, "  cause      rotation (0.98): the angles fit theta = 1000000\n"
                                     "  check      rope_theta\n"
                                     "  or         scaled (0.30): by 1.2\n"));
    ts_buffer_release(&out);
    diagnosis.causes[0].tied = diagnosis.causes[1].tied = true;
    make_text(&sample, &eighty, &out);
    assert_non_null(strstr(out.data, "  cause      rotation (0.98, a tie): the angles fit theta = 1000000\n"));
    assert_non_null(strstr(out.data, "  or         scaled (0.30, a tie): by 1.2\n"));
    ts_buffer_release(&out);
    make_html(&sample, &out);
    assert_non_null(strstr(out.data, "<strong>scaled</strong> (0.30, a tie): by 1.2"));
    ts_buffer_release(&out);
    sample_close(&sample);
}

static void make_hostile(struct sample *sample, char *endless, size_t size)
{
    struct ts_error error;
    memset(endless, 'n', size - 1);
    endless[size - 1] = '\0';
    sample_open(sample, hostile, endless);
    sample_pair_of(sample, hostile, endless, 2, (uint64_t[]){2, 3}, TS_JUDGED_NOISE, 0.001, 3, 0.1f);
    sample_pair_of(sample, endless, hostile, 2, (uint64_t[]){2, 3}, TS_JUDGED_NOISE, 0.001, 3, 0.1f);
    sample_pair_of(sample, "\u05d0\u05d1\u05d2.weight",
                   "漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字", 2,
                   (uint64_t[]){2, 3}, TS_JUDGED_UNKNOWN, 0, 0, 0);
    sample_pair_of(sample, hostile, hostile, 2, (uint64_t[]){2, 3}, TS_JUDGED_DIFFERS, 0.5, 100, 1);
    sample_pair_of(sample, endless, endless, 2, (uint64_t[]){2, 3}, TS_JUDGED_DIFFERS, 0.5, 100, 1);
    for (size_t i = 0; i < 5; i++) {
        sample->comparison.pairing.pairs[i].recipe = i & 1 ? endless : hostile;
        sample->comparison.judgement.verdicts[i].why = i & 1 ? hostile : endless;
        sample->comparison.judgement.verdicts[i].operation = i & 1 ? hostile : endless;
    }
    sample->comparison.pairing.pairs[2].problem = hostile;
    sample->comparison.pairing.notes[0] = hostile;
    sample->comparison.pairing.note_count = 1;
    sample->comparison.judgement.notes[0] = endless;
    sample->comparison.judgement.note_count = 1;
    assert_int_equal(ts_bundle_skip(sample->comparison.a, hostile, false, endless, &error), TS_OK);
    assert_int_equal(ts_bundle_skip(sample->comparison.b, endless, true, hostile, &error), TS_OK);
    sample_outcome(sample, TS_OUTCOME_DIFFER, "2 of 5 tensors differ");
}

static void assert_lines_fit(const char *text, size_t width)
{
    for (const char *at = text; *at;) {
        const char *end = strchr(at, '\n');
        assert_non_null(end);
        if (ts_text_columns(at, (size_t)(end - at)) > width)
            fail_msg("wider than %zu: %.*s", width, (int)(end - at), at);
        at = end + 1;
    }
}

static void test_text_fits_and_is_safe(void **state)
{
    struct sample samples[2];
    char *endless = malloc(70000);
    (void)state;
    assert_non_null(endless);
    make_trace(&samples[0]);
    make_hostile(&samples[1], endless, 70000);
    for (unsigned width = 20; width < 140; width += 5)
        for (int which = 0; which < 2; which++)
            for (int all = 0; all < 2; all++) {
                const struct ts_layout layout = {.width = width, .unicode = width & 1};
                struct ts_buffer out;
                samples[which].options.all = all;
                make_text(&samples[which], &layout, &out);
                assert_lines_fit(out.data, width);
                for (size_t i = 0; i < out.size; i++)
                    assert_true((unsigned char)out.data[i] >= 0x20 || out.data[i] == '\n');
                assert_int_equal(ts_utf8_valid_prefix(out.data, out.size), out.size);
                assert_null(strstr(out.data, "\u202e"));
                ts_buffer_release(&out);
            }
    sample_close(&samples[0]);
    sample_close(&samples[1]);
    free(endless);
}

static void test_json(void **state)
{
    struct sample sample;
    struct ts_buffer out;
    (void)state;
    make_trace(&sample);
    sample.comparison.deltas[4].rel_l2 = (double)INFINITY;
    sample.comparison.deltas[4].cosine = (double)NAN;
    make_json(&sample, &out);
    assert_json(&out);
    assert_true(ts_starts_with(out.data, "{\"schema\":\"tsleuth.report/1\",\"verdict\":\"differ\","));
    assert_non_null(strstr(out.data, "\"a\":{\"path\":\"reference.safetensors\",\"format\":null,\"tensors\":12,"));
    assert_non_null(strstr(out.data, "\"holds\":\"bf16\""));
    assert_non_null(strstr(out.data, "\"first_divergence\":{\"name\":\"layer_0_attn_q_rope\",\"name_b\":"
                                     "\"layer_0_attn_q_rope\",\"index\":4,"));
    assert_non_null(strstr(out.data, "\"inputs\":[\"layer_0_attn_q_normed\"]"));
    assert_non_null(strstr(out.data, "\"causes\":[]"));
    assert_non_null(strstr(out.data, "\"rel_l2\":\"inf\""));
    assert_non_null(strstr(out.data, "\"cosine\":\"nan\""));
    assert_non_null(strstr(out.data, "\"shape\":[9,4,16]"));
    assert_non_null(strstr(out.data, "\"worst\":[8,3,15]"));
    assert_non_null(strstr(out.data, "\"unmatched_a\":[],\"unmatched_b\":[],\"skipped\":[]"));
    assert_null(strstr(out.data, "\"grade\""));
    ts_buffer_release(&out);

    sample.options.grades = true;
    make_json(&sample, &out);
    assert_non_null(strstr(out.data, "\"grade\":\"SIGNIFICANT\""));
    ts_buffer_release(&out);
    sample_close(&sample);
}

static void test_json_of_a_problem(void **state)
{
    struct sample sample;
    struct ts_buffer out;
    (void)state;
    sample_open(&sample, "a", "b");
    sample_pair(&sample, "x", TS_JUDGED_UNKNOWN, 0, 0, 0);
    sample.comparison.pairing.pairs[0].problem = "no layout fits";
    sample_outcome(&sample, TS_OUTCOME_INCOMPLETE, "1 tensor could not be compared");
    make_json(&sample, &out);
    assert_json(&out);
    assert_non_null(strstr(out.data, "\"verdict\":\"cannot tell\""));
    assert_non_null(strstr(out.data, "\"problem\":\"no layout fits\""));
    assert_non_null(strstr(out.data, "\"max_abs\":null,\"worst\":null"));
    assert_non_null(strstr(out.data, "\"first_divergence\":null"));
    ts_buffer_release(&out);
    sample_close(&sample);
}

/* One line of RFC 4180 from *at: its number of fields, and field `wanted` unquoted. */
static size_t read_csv(const char **at, size_t wanted, char *field, size_t size)
{
    size_t fields = 0, length = 0;
    bool quoted = false;
    const char *in = *at;
    for (;; in++) {
        if (*in == '"' && quoted && in[1] == '"') {
            in++;
        } else if (*in == '"') {
            quoted = !quoted;
            continue;
        } else if (!quoted && (*in == ',' || *in == '\r')) {
            fields++;
            if (*in == '\r')
                break;
            continue;
        }
        assert_true(*in != '\0');
        if (fields == wanted && length + 1 < size)
            field[length++] = *in;
    }
    field[length] = '\0';
    assert_int_equal(in[1], '\n');
    *at = in + 2;
    return fields;
}

static void test_csv(void **state)
{
    struct sample sample;
    struct ts_buffer out;
    const char *at;
    char field[64];
    const struct ts_tensor *lone[1];
    float zero = 0;
    (void)state;
    sample_open(&sample, "a", "b");
    sample_pair(&sample, "plain", TS_JUDGED_OK, 0, 0, 0);
    sample_pair(&sample, "say \"x, y\"", TS_JUDGED_DIFFERS, 0.5, 100, 1);
    sample_pair(&sample, "=cmd()", TS_JUDGED_UNKNOWN, 0, 0, 0);
    sample.comparison.pairing.pairs[2].problem = "no, really";
    lone[0] = sample_tensor(sample.comparison.b, "alone", 1, (uint64_t[]){1}, &zero, 1);
    sample.comparison.pairing.only_b = lone;
    sample.comparison.pairing.only_b_count = 1;
    sample.comparison.pairing.only_a = lone;
    sample.comparison.pairing.only_a_count = 1;
    ts_buffer_init(&out, 1 << 20);
    ts_report_csv(&sample.comparison, &sample.options, &out);
    at = out.data;
    assert_int_equal(read_csv(&at, 1, field, sizeof field), 30);
    assert_string_equal(field, "name");
    assert_int_equal(read_csv(&at, 1, field, sizeof field), 30);
    assert_string_equal(field, "plain");
    assert_int_equal(read_csv(&at, 1, field, sizeof field), 30);
    assert_string_equal(field, "say \"x, y\"");
    assert_int_equal(read_csv(&at, 1, field, sizeof field), 30);
    assert_string_equal(field, "'=cmd()");
    assert_int_equal(read_csv(&at, 1, field, sizeof field), 30);
    assert_string_equal(field, "alone");
    assert_int_equal(read_csv(&at, 2, field, sizeof field), 30);
    assert_string_equal(field, "alone");
    assert_string_equal(at, "");
    at = strstr(out.data, "1,\"say");
    read_csv(&at, 9, field, sizeof field);
    assert_string_equal(field, "0.5");
    read_csv(&at, 25, field, sizeof field);
    assert_string_equal(field, "no, really");
    ts_buffer_release(&out);
    sample_close(&sample);
}

static void test_junit(void **state)
{
    struct sample sample;
    struct ts_buffer out;
    (void)state;
    make_trace(&sample);
    ts_buffer_init(&out, 1 << 20);
    ts_report_junit(&sample.comparison, &sample.options, &out);
    assert_non_null(strstr(out.data, "<testsuite name=\"tsleuth compare\" tests=\"12\" failures=\"7\" errors=\"0\" "
                                     "skipped=\"0\">"));
    assert_int_equal(count_of(out.data, "<testcase "), 12);
    assert_int_equal(count_of(out.data, "<failure "), 7);
    assert_non_null(
        strstr(out.data, "<failure message=\"first divergence: replayed on the candidate&#39;s own inputs"));
    ts_buffer_release(&out);
    sample_close(&sample);
}

/* An incomplete comparison must not pass a build, whatever is missing. */
static void test_junit_of_incomplete(void **state)
{
    struct sample sample;
    struct ts_buffer out;
    const struct ts_tensor *lone[1];
    float zero = 0;
    (void)state;
    sample_open(&sample, "a", "b");
    sample_outcome(&sample, TS_OUTCOME_INCOMPLETE, "nothing in common");
    ts_buffer_init(&out, 1 << 20);
    ts_report_junit(&sample.comparison, &sample.options, &out);
    assert_non_null(strstr(out.data, "tests=\"1\" failures=\"0\" errors=\"1\""));
    assert_non_null(strstr(out.data, "<error message=\"nothing in common\"/>"));
    lone[0] = sample_tensor(sample.comparison.a, "alone", 1, (uint64_t[]){1}, &zero, 1);
    sample.comparison.pairing.only_a = lone;
    sample.comparison.pairing.only_a_count = 1;
    ts_buffer_clear(&out);
    ts_report_junit(&sample.comparison, &sample.options, &out);
    assert_non_null(strstr(out.data, "tests=\"1\" failures=\"0\" errors=\"1\" skipped=\"0\""));
    assert_non_null(strstr(out.data, "<error message=\"only in the reference\"/>"));
    sample.comparison.outcome = TS_OUTCOME_MATCH;
    ts_buffer_clear(&out);
    ts_report_junit(&sample.comparison, &sample.options, &out);
    assert_non_null(strstr(out.data, "tests=\"1\" failures=\"0\" errors=\"0\" skipped=\"1\""));
    ts_buffer_release(&out);
    sample_close(&sample);
}

static void test_html(void **state)
{
    struct sample sample;
    struct ts_buffer out;
    (void)state;
    make_trace(&sample);
    make_html(&sample, &out);
    assert_true(ts_starts_with(out.data, "<!doctype html>"));
    assert_true(ts_ends_with(out.data, "</html>\n"));
    assert_int_equal(count_of(out.data, "<circle "), 12);
    assert_int_equal(count_of(out.data, "<tr id=\"t"), 12);
    assert_int_equal(count_of(out.data, "<article>"), 7);
    assert_int_equal(count_of(out.data, "<img "), 21);
    assert_non_null(strstr(out.data, "one rounding of bf16"));
    assert_non_null(strstr(out.data, "first divergence: layer_0_attn_q_rope"));
    assert_non_null(strstr(out.data, "chart.scrollLeft = first.")); /* in view where the window is narrow */
    /* it loads nothing */
    assert_null(strstr(out.data, "http://"));
    assert_null(strstr(out.data, "https://"));
    assert_null(strstr(out.data, "url("));
    assert_int_equal(count_of(out.data, "src=\""), count_of(out.data, "src=\"data:image/png;base64,"));
    assert_int_equal(count_of(out.data, "<script"), 1);
    ts_buffer_release(&out);
    sample_close(&sample);
}

/* No byte of a name becomes markup, and no name swells the page. */
static void test_markup_is_safe(void **state)
{
    struct sample sample;
    struct ts_buffer out;
    char *endless = malloc(70000);
    (void)state;
    assert_non_null(endless);
    make_hostile(&sample, endless, 70000);
    make_html(&sample, &out);
    assert_true(out.size < 200000);
    assert_int_equal(count_of(out.data, "<script"), 1);
    assert_null(strstr(out.data, "alert('x')"));
    assert_non_null(strstr(out.data, "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;\\u{202e}\\xff"));
    assert_int_equal(ts_utf8_valid_prefix(out.data, out.size), out.size);
    ts_buffer_release(&out);
    ts_buffer_init(&out, 1 << 24);
    ts_report_junit(&sample.comparison, &sample.options, &out);
    assert_null(strstr(out.data, "<script"));
    assert_null(strchr(out.data, '\033'));
    assert_int_equal(ts_utf8_valid_prefix(out.data, out.size), out.size);
    ts_buffer_release(&out);
    make_json(&sample, &out);
    assert_json(&out);
    ts_buffer_release(&out);
    sample_close(&sample);
    free(endless);
}

/* 500 tensors, all of them wrong, noise as incompressible as it comes: below 2 MB. */
static void test_html_of_500_tensors(void **state)
{
    struct sample sample;
    struct ts_buffer out;
    const size_t count = (size_t)256 * 384;
    float *a = malloc(count * sizeof *a), *b = malloc(count * sizeof *b);
    uint32_t seed = 1;
    char name[64];
    (void)state;
    assert_non_null(a);
    assert_non_null(b);
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525 + 1013904223;
        a[i] = (float)(int32_t)seed / 1e9f;
        seed = seed * 1664525 + 1013904223;
        b[i] = a[i] + (float)(int32_t)seed / 1e9f;
    }
    sample_open(&sample, "reference.safetensors", "candidate.safetensors");
    for (size_t i = 0; i < 500; i++) {
        const uint64_t shape[] = {256, 384}, small[] = {3, 5};
        struct ts_pair *pair;
        snprintf(name, sizeof name, "model.layers.%zu.self_attn.q_proj.lora_A.weight.%zu", i / 10, i);
        sample_pair_of(&sample, ts_arena_string(&sample.comparison.arena, name), "x", 2, small, TS_JUDGED_DIFFERS,
                       0.5 + 0.001 * (double)(i % 7), 1e5, 1);
        pair = &sample.comparison.pairing.pairs[i];
        pair->name_b = pair->name;
        sample.comparison.judgement.verdicts[i].why =
            "its error is 23.1 times what came in and what this run makes elsewhere";
        if (i % 20 == 0) {
            sample.comparison.deltas[i].rel_l2 = 2;
            assert_true(ts_view_of(sample_tensor(sample.comparison.a, name, 2, shape, a, count),
                                   &sample.comparison.pairing.arena, &pair->a));
            assert_true(ts_view_of(sample_tensor(sample.comparison.b, name, 2, shape, b, count),
                                   &sample.comparison.pairing.arena, &pair->b));
        }
    }
    sample_outcome(&sample, TS_OUTCOME_DIFFER, "500 of 500 tensors differ");
    make_html(&sample, &out);
    assert_int_equal(count_of(out.data, "<img "), 36);
    assert_int_equal(count_of(out.data, "<tr id=\"t"), 500);
    assert_true(out.size < 2000000);
    ts_buffer_release(&out);
    sample_close(&sample);
    free(a);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_of_a_divergence),
        cmocka_unit_test(test_text_of_a_long_path),
        cmocka_unit_test(test_text_with_a_hint),
        cmocka_unit_test(test_text_in_plain_ascii),
        cmocka_unit_test(test_text_with_colour),
        cmocka_unit_test(test_text_of_a_match),
        cmocka_unit_test(test_tokens_set_aside_by_a_guess),
        cmocka_unit_test(test_text_of_nothing_in_common),
        cmocka_unit_test(test_text_selections),
        cmocka_unit_test(test_text_of_grades),
        cmocka_unit_test(test_text_of_nan),
        cmocka_unit_test(test_text_of_unequal_bits),
        cmocka_unit_test(test_text_of_what_cannot_be_told),
        cmocka_unit_test(test_text_of_causes),
        cmocka_unit_test(test_text_fits_and_is_safe),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_json_of_a_problem),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_junit),
        cmocka_unit_test(test_junit_of_incomplete),
        cmocka_unit_test(test_html),
        cmocka_unit_test(test_markup_is_safe),
        cmocka_unit_test(test_html_of_500_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
