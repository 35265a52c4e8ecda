/* The report of two checkpoints: what changed, where, in how many directions. */
#include "report_sample.h"

#include "base/text.h"
#include "compare/exact.h"
#include "report/change_groups.h"
#include "report/changes.h"
#include "report/facts.h"

static const struct ts_layout eighty = {.width = 80, .unicode = true};

static void assert_groups(const char *const *names, const bool *marked, size_t count, size_t most, const char *expected,
                          size_t groups)
{
    struct ts_pair pairs[64];
    struct ts_buffer out;
    assert_true(count <= 64);
    for (size_t i = 0; i < count; i++)
        pairs[i] = (struct ts_pair){.name = names[i]};
    ts_buffer_init(&out, 1 << 16);
    assert_int_equal(ts_put_groups(&out, pairs, marked, count, most), groups);
    assert_string_equal(out.data ? out.data : "", expected);
    ts_buffer_release(&out);
}

/* A model of so many layers with q, k, v, up, a norm; embeddings and a head. */
static size_t name_model(size_t layers, const char *names[64], char room[64][64])
{
    static const char *const kinds[] = {"input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                        "mlp.up_proj"};
    size_t count = 0;
    names[count++] = "model.embed_tokens.weight";
    for (size_t layer = 0; layer < layers; layer++)
        for (size_t k = 0; k < 5; k++, count++) {
            snprintf(room[count], sizeof room[count], "model.layers.%zu.%s.weight", layer, kinds[k]);
            names[count] = room[count];
        }
    names[count++] = "lm_head.weight";
    return count;
}

static void test_groups(void **state)
{
    const char *names[64];
    char room[64][64];
    bool marked[64] = {false};
    size_t count = name_model(12, names, room);
    (void)state;
    assert_int_equal(count, 62);
    assert_groups(names, marked, count, 4, "", 0);
    for (size_t i = 0; i < count; i++)
        if ((strstr(names[i], ".q_proj") || strstr(names[i], ".v_proj")) &&
            (strstr(names[i], "s.4.") || strstr(names[i], "s.5.") || strstr(names[i], "s.10.")))
            marked[i] = true;
    assert_groups(names, marked, count, 4, "layers 4-5, 10 self_attn.{q,v}_proj", 1);
    marked[0] = marked[61] = true;
    assert_groups(names, marked, count, 4, "layers 4-5, 10 self_attn.{q,v}_proj; model.embed_tokens, lm_head", 2);
    for (size_t i = 0; i < count; i++)
        marked[i] = marked[i] || strstr(names[i], "up_proj");
    assert_groups(names, marked, count, 2,
                  "layers 0-11 (all) mlp.up_proj; layers 4-5, 10 self_attn.{q,v}_proj; and 2 more", 3);
    memset(marked, 0, sizeof marked);
    marked[1] = marked[2] = true;
    assert_groups(names, marked, count, 4, "layer 0 input_layernorm, self_attn.q_proj", 1);
}

static void test_groups_of_other_names(void **state)
{
    static const char *const experts[] = {
        "model.layers.0.mlp.experts.0.w1.weight", "model.layers.0.mlp.experts.1.w1.weight",
        "model.layers.1.mlp.experts.0.w1.weight", "model.layers.1.mlp.experts.1.w1.weight"};
    static const char *const stacks[] = {"encoder.layers.0.fc1.weight", "encoder.layers.1.fc1.weight",
                                         "decoder.layers.0.fc1.weight", "decoder.layers.1.fc1.bias"};
    static const char *const gguf[] = {"blk.0.attn_q.weight", "blk.1.attn_q.weight", "blk.1.attn_k.weight", "3_query"};
    static const bool all[] = {true, true, true, true}, some[] = {false, true, false, true};
    (void)state;
    assert_groups(experts, all, 4, 4, "layers 0-1 (all) mlp.experts.*.w1", 1);
    assert_groups(experts, some, 4, 4, "layers 0-1 mlp.experts.*.w1", 1);
    assert_groups(stacks, all, 4, 4, "layers 0-1 (all) encoder.fc1; layer 0 decoder.fc1; layer 1 decoder.fc1.bias", 3);
    assert_groups(gguf, all, 4, 4, "layers 0-1 (all) attn_q; layer 1 attn_k; layer 3 query", 3);
}

/* Eight tensors; those of `changed` differ. */
static void make_checkpoints(struct sample *sample, const bool *changed)
{
    static const char *const names[] = {"model.embed_tokens.weight",
                                        "model.layers.0.self_attn.q_proj.weight",
                                        "model.layers.0.self_attn.v_proj.weight",
                                        "model.layers.0.mlp.down_proj.weight",
                                        "model.layers.1.self_attn.q_proj.weight",
                                        "model.layers.1.self_attn.v_proj.weight",
                                        "model.layers.1.mlp.down_proj.weight",
                                        "lm_head.weight"};
    static const uint64_t shape[] = {40, 50};
    sample_open(sample, "base", "tuned");
    sample->comparison.judgement.weights = true;
    for (size_t i = 0; i < 8; i++) {
        sample_pair_of(sample, names[i], names[i], 2, shape, changed[i] ? TS_JUDGED_DIFFERS : TS_JUDGED_OK,
                       changed[i] ? 0.01 * (double)(i + 1) : 0, 100, changed[i] ? 1 : 0);
        if (changed[i]) {
            sample->comparison.deltas[i].unequal = 2000 - 100 * i;
            sample->comparison.deltas[i].norm_ratio = 1.00049;
        }
    }
    sample_outcome(sample, TS_OUTCOME_DIFFER, "some of 8 tensors differ");
}

static char *text_of_changes(const struct sample *sample, void (*put)(struct ts_buffer *, const struct ts_comparison *))
{
    static char text[512];
    struct ts_buffer out;
    ts_buffer_init(&out, sizeof text - 1);
    put(&out, &sample->comparison);
    assert_false(out.failed);
    snprintf(text, sizeof text, "%s", out.data ? out.data : "");
    ts_buffer_release(&out);
    return text;
}

static void test_sentences(void **state)
{
    static const struct {
        bool changed[8];
        const char *sentence;
    } cases[] = {
        {{0}, ""},
        {{0, 1, 1, 0, 1, 1, 0, 0}, "4 of 8 tensors changed, all of them in layers 0-1 (all) self_attn.{q,v}_proj"},
        {{0, 0, 0, 0, 0, 1, 0, 0}, "1 of 8 tensors changed: layer 1 self_attn.v_proj"},
        {{1, 0, 0, 0, 0, 1, 0, 0}, "2 of 8 tensors changed: model.embed_tokens; layer 1 self_attn.v_proj"},
        {{1, 1, 1, 1, 1, 1, 1, 0}, "7 of 8 tensors changed, all but lm_head"},
        {{1, 1, 1, 1, 1, 1, 1, 1}, "all 8 tensors changed"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sample sample;
        make_checkpoints(&sample, cases[i].changed);
        assert_string_equal(text_of_changes(&sample, ts_put_changes), cases[i].sentence);
        sample_close(&sample);
    }
}

static const bool some[8] = {0, 1, 1, 0, 1, 0, 0, 1};

static struct ts_change_rank rank_of(unsigned rank, bool at_least)
{
    return (struct ts_change_rank){.known = true,
                                   .rows = 400,
                                   .columns = 500,
                                   .rank = rank,
                                   .at_least = at_least,
                                   .probed = 128,
                                   .floor = 0.5,
                                   .stable = 2.5,
                                   .effective = at_least ? (double)NAN : 3.5,
                                   .values = {4, 3},
                                   .value_count = 2};
}

static void test_ranks(void **state)
{
    struct ts_change_rank ranks[8] = {{0}};
    struct sample sample;
    (void)state;
    make_checkpoints(&sample, some);
    assert_string_equal(text_of_changes(&sample, ts_put_ranks), "");
    for (size_t i = 0; i < 8; i++)
        ranks[i] = rank_of(some[i] ? 8 : 0, false);
    sample.comparison.ranks = ranks;
    assert_string_equal(text_of_changes(&sample, ts_put_ranks),
                        "the change has rank 8 in all 4 matrices that changed: it looks like a merged LoRA of rank 8 "
                        "(its alpha cannot be recovered)");
    ranks[2].rank = 5;
    assert_string_equal(text_of_changes(&sample, ts_put_ranks),
                        "the change has a low rank, 5 to 8, in all 4 matrices that changed, mostly 8, which looks like "
                        "a merged LoRA of rank 8 or more");
    ranks[2] = rank_of(128, true);
    ranks[4] = rank_of(0, false);
    assert_string_equal(text_of_changes(&sample, ts_put_ranks),
                        "the change has rank 8 in 2 of the 4 matrices that changed, which looks like a merged LoRA of "
                        "rank 8; the change has full rank (at least 128) in 1 of the 4 matrices that changed: it was "
                        "trained or replaced entirely; the change is no larger than rounding in 1 of the 4 matrices "
                        "that changed");
    /* one element has rank one, and is no LoRA */
    for (size_t i = 0; i < 8; i++) {
        ranks[i] = (struct ts_change_rank){.reason = "not a matrix"};
        sample.comparison.deltas[i].unequal = some[i];
    }
    ranks[1] = rank_of(1, false);
    assert_string_equal(text_of_changes(&sample, ts_put_ranks), "");
    sample.comparison.ranks = NULL;
    sample_close(&sample);
}

static void test_text(void **state)
{
    struct ts_change_rank ranks[8];
    struct sample sample;
    struct ts_buffer out;
    (void)state;
    make_checkpoints(&sample, some);
    for (size_t i = 0; i < 8; i++)
        ranks[i] = rank_of(i == 4 ? 128 : 8, i == 4);
    ranks[7] = (struct ts_change_rank){.reason = "quantized"};
    sample.comparison.ranks = ranks;
    sample.comparison.judgement.verdicts[1].why = "it changed";
    ts_buffer_init(&out, 1 << 20);
    ts_report_text(&sample.comparison, &sample.options, &eighty, &out);
    assert_string_equal(out.data, "A (reference)  base    8 tensors, f32, 0 B\n"
                                  "B (candidate)  tuned   8 tensors, f32 holding bf16 values, 0 B\n"
                                  "paired 8 of 8 by name, in the capture order\n"
                                  "\n"
                                  "    tensor                           shape    changed  change  norm ratio  rank\n"
                                  "  ✗ …yers.0.self_attn.q_proj.weight  [40,50]  95 %     0.02    1.0005      8\n"
                                  "  ✗ …yers.0.self_attn.v_proj.weight  [40,50]  90 %     0.03    1.0005      8\n"
                                  "  ✗ …yers.1.self_attn.q_proj.weight  [40,50]  80 %     0.05    1.0005      ≥ 128\n"
                                  "  ✗ lm_head.weight                   [40,50]  65 %     0.08    1.0005      -\n"
                                  "    4 tensors are unchanged\n"
                                  "\n"
                                  "4 of 8 tensors changed: layers 0-1 (all) self_attn.q_proj; layer 0\n"
                                  "  self_attn.v_proj; lm_head\n"
                                  "the change has rank 8 in 2 of the 3 matrices that changed, which looks like a\n"
                                  "  merged LoRA of rank 8; the change has full rank (at least 128) in 1 of the 3\n"
                                  "  matrices that changed: it was trained or replaced entirely\n"
                                  "rank: how many singular values of candidate - reference are larger than rounding\n"
                                  "  to the stored types explains, up to 128\n"
                                  "\n"
                                  "First differing tensor: model.layers.0.self_attn.q_proj.weight\n"
                                  "  why        it changed\n"
                                  "  worst      reference 0.5, candidate 1.5 at [39,49]\n"
                                  "\n"
                                  "differ: some of 8 tensors\n");
    ts_buffer_release(&out);
    sample.comparison.ranks = NULL;
    sample_close(&sample);
}

static size_t place_of(const char *text, const char *what)
{
    const char *at = strstr(text, what);
    assert_non_null(at);
    return (size_t)(at - text);
}

static void test_sorts(void **state)
{
    struct sample sample;
    struct ts_buffer out;
    (void)state;
    make_checkpoints(&sample, some);
    sample.options.sort = TS_SORT_ERROR;
    ts_buffer_init(&out, 1 << 20);
    ts_report_text(&sample.comparison, &sample.options, &eighty, &out);
    assert_true(place_of(out.data, "✗ lm_head") < place_of(out.data, "✗ model.layers.1.self_attn.q_proj"));
    assert_true(place_of(out.data, "✗ model.layers.1.") < place_of(out.data, "✗ model.layers.0.self_attn.v_proj"));
    ts_buffer_clear(&out);
    sample.options.sort = TS_SORT_NAME;
    sample.options.all = true;
    ts_report_text(&sample.comparison, &sample.options, &eighty, &out);
    assert_true(place_of(out.data, "✗ lm_head") < place_of(out.data, "✓ model.embed"));
    assert_true(place_of(out.data, "✓ model.layers.0.mlp") < place_of(out.data, "✗ model.layers.0.self"));
    assert_null(strstr(out.data, "are unchanged"));
    ts_buffer_clear(&out);
    sample.options.sort = TS_SORT_SIZE;
    sample.options.all = false;
    sample.options.top = 1;
    ts_report_text(&sample.comparison, &sample.options, &eighty, &out);
    assert_non_null(strstr(out.data, "✓ model.embed_tokens")); /* all are of one size: the first of them */
    assert_null(strstr(out.data, "✗ "));
    ts_buffer_release(&out);
    sample_close(&sample);
}

/* What only rounding changed is no change; what has the same type on both sides is, however small. */
static void test_rounding_is_no_change(void **state)
{
    struct sample sample;
    struct ts_buffer out;
    (void)state;
    make_checkpoints(&sample, (bool[8]){0});
    sample.comparison.judgement.verdicts[3].judged = TS_JUDGED_NOISE;
    sample.comparison.deltas[3].unequal = 1900;
    sample.comparison.deltas[3].rel_l2 = 0.0017;
    sample_outcome(&sample, TS_OUTCOME_MATCH, "all 8 tensors agree");
    assert_int_equal(ts_changed_count(&sample.comparison), 0);
    ts_buffer_init(&out, 1 << 20);
    ts_report_text(&sample.comparison, &sample.options, &eighty, &out);
    assert_non_null(strstr(out.data, "\n\n    1 tensor is unchanged up to rounding, by at most 0.0017\n"
                                     "    7 tensors are unchanged\n\nmatch: "));
    ts_buffer_release(&out);
    sample.comparison.deltas[3].precision_a = 7; /* as on the other side */
    assert_int_equal(ts_changed_count(&sample.comparison), 1);
    sample_close(&sample);
}

static void test_json(void **state)
{
    struct ts_change_rank ranks[8];
    struct sample sample;
    struct ts_buffer out;
    (void)state;
    make_checkpoints(&sample, some);
    for (size_t i = 0; i < 8; i++)
        ranks[i] = rank_of(8, i == 1);
    ranks[7] = (struct ts_change_rank){.reason = "not a matrix"};
    sample.comparison.ranks = ranks;
    make_json(&sample, &out);
    assert_json(&out);
    assert_non_null(strstr(out.data, "\"weights\":true"));
    assert_non_null(strstr(out.data, "\"changes\":{\"tensors\":8,\"changed\":4,\"unchanged\":4,\"summary\":\"4 of 8 "));
    assert_non_null(strstr(out.data, "\"changed_fraction\":0.95,\"rel_change\":0.02,"));
    assert_non_null(strstr(out.data, "\"changed_fraction\":0,\"rel_change\":0,"));
    assert_non_null(strstr(out.data,
                           "\"change_rank\":{\"rank\":8,\"at_least\":true,\"matrix\":[400,500],\"probed\":128,"
                           "\"floor\":0.5,\"stable_rank\":2.5,\"effective_rank\":null,"
                           "\"singular_values\":[4,3]}"));
    assert_non_null(strstr(out.data, "\"change_rank\":{\"rank\":null,\"reason\":\"not a matrix\"}"));
    assert_null(strstr(out.data, "same_bytes"));
    ts_buffer_release(&out);
    sample.comparison.ranks = NULL;
    sample_close(&sample);
}

/* Bit by bit nothing is measured of what is the same, and nothing is claimed about it. */
static void test_json_of_bytes(void **state)
{
    uint64_t first[8] = {TS_EXACT_EQUAL, 17, TS_EXACT_UNKNOWN, TS_EXACT_EQUAL, 0, TS_EXACT_EQUAL, TS_EXACT_EQUAL, 5};
    struct sample sample;
    struct ts_buffer out;
    const char *at;
    (void)state;
    make_checkpoints(&sample, some);
    sample.comparison.first_bytes = first;
    make_json(&sample, &out);
    assert_json(&out);
    at = strstr(out.data, "\"name\":\"model.embed_tokens.weight\"");
    assert_non_null(at);
    at = strstr(at, "\"identical\":true");
    assert_non_null(at);
    assert_true(place_of(at, "\"nan_a\":null,\"nan_b\":null") < place_of(at, "\"name\":"));
    assert_true(place_of(at, "\"stats_a\":null,\"stats_b\":null,\"precision_a\":null") < place_of(at, "\"name\":"));
    assert_true(place_of(at, "\"same_bytes\":true,\"first_byte\":null") < place_of(at, "\"name\":"));
    assert_non_null(strstr(out.data, "\"same_bytes\":false,\"first_byte\":{\"of_data\":17,\"of_file_a\":17,"));
    assert_non_null(strstr(out.data, "\"same_bytes\":null,\"first_byte\":null"));
    ts_buffer_release(&out);
    sample.comparison.first_bytes = NULL;
    sample_close(&sample);
}

static void test_csv(void **state)
{
    struct ts_change_rank ranks[8];
    struct sample sample;
    struct ts_buffer out;
    (void)state;
    make_checkpoints(&sample, some);
    for (size_t i = 0; i < 8; i++)
        ranks[i] = rank_of(8, i == 1);
    sample.comparison.ranks = ranks;
    ts_buffer_init(&out, 1 << 20);
    ts_report_csv(&sample.comparison, &sample.options, &out);
    assert_non_null(strstr(out.data, ",why,changed_fraction,rel_change,change_rank,stable_rank\r\n"));
    assert_non_null(strstr(out.data, ",0.95,0.02,8+,2.5\r\n"));
    assert_non_null(strstr(out.data, ",0.9,0.03,8,2.5\r\n"));
    ts_buffer_release(&out);
    sample.comparison.ranks = NULL;
    sample_close(&sample);
}

static void test_html(void **state)
{
    struct ts_change_rank ranks[8];
    struct sample sample;
    struct ts_buffer out;
    (void)state;
    make_checkpoints(&sample, some);
    for (size_t i = 0; i < 8; i++)
        ranks[i] = rank_of(8, i == 1);
    sample.comparison.ranks = ranks;
    sample.comparison.pairing.pairs[1].name = "layers.0.<script>alert(1)</script>\"'&\x1b[31m";
    sample.comparison.pairing.pairs[0].name = "<img src=x onerror=alert(2)>";
    make_html(&sample, &out);
    assert_int_equal(count_of(out.data, "<tr id=\"t"), 4);
    assert_int_equal(count_of(out.data, "<li id=\"t"), 4); /* unchanged: folded, but there for links to lead to */
    assert_non_null(strstr(out.data, "<summary>4 tensors are unchanged</summary>"));
    assert_non_null(strstr(out.data, "<h2>All pairs, most changed first</h2>"));
    assert_non_null(strstr(out.data, "<td class=\"num\" data-v=\"0.95\">95 %</td>"));
    assert_non_null(strstr(out.data, ">≥ 8</td>"));
    assert_null(strstr(out.data, "first divergence"));
    assert_int_equal(count_of(out.data, "<script"), 1);
    assert_null(strstr(out.data, "<img src=x"));
    assert_null(strstr(out.data, "alert(1)</script>"));
    assert_null(strchr(out.data, '\x1b'));
    ts_buffer_release(&out);
    sample.comparison.ranks = NULL;
    sample_close(&sample);
}

static void test_filter(void **state)
{
    struct sample sample;
    struct ts_buffer out;
    (void)state;
    make_checkpoints(&sample, some);
    sample.comparison.filtered = 3;
    sample.comparison.paired[0] = sample.comparison.paired[1] = 11;
    ts_buffer_init(&out, 1 << 20);
    ts_report_text(&sample.comparison, &sample.options, &eighty, &out);
    assert_non_null(strstr(out.data, "\npaired 11 of 8 by name, of which 8 pass the filter, in the capture order\n"));
    ts_buffer_release(&out);
    make_json(&sample, &out);
    assert_non_null(strstr(out.data, "\"pairs\":8,\"filtered\":3,"));
    ts_buffer_release(&out);
    sample_close(&sample);
}

/* Logits: one line that says whether the same tokens would be chosen, in text and on the page. */
static void test_rankings(void **state)
{
    const struct ts_ranking ranking = {.known = true,
                                       .rows = 9,
                                       .same_first = 8.0 / 9,
                                       .top_overlap = 0.9444,
                                       .worst_rank = 3,
                                       .divergence = 0.012,
                                       .max_divergence = 0.085};
    struct sample sample;
    struct ts_buffer out;
    (void)state;
    sample_open(&sample, "a", "b");
    sample_pair(&sample, "layer_0_attn_probs", TS_JUDGED_NOISE, 0.01, 3, 0.1f);
    sample_pair(&sample, "logits", TS_JUDGED_DIFFERS, 0.1, 3, 0.1f);
    sample_pair_of(&sample, "layers.0.router_logits", "layers.0.router_logits", 2, (uint64_t[]){9, 8}, TS_JUDGED_NOISE,
                   0.01, 3, 0.1f);
    for (size_t i = 0; i < 3; i++)
        sample.comparison.deltas[i].ranking = ranking;
    sample_outcome(&sample, TS_OUTCOME_DIFFER, "1 of 2 tensors differ");
    ts_buffer_init(&out, (size_t)64 << 20);
    ts_report_text(&sample.comparison, &sample.options, &(struct ts_layout){.width = 200, .unicode = true}, &out);
    assert_non_null(strstr(out.data, "\nlogits: top-1 agrees in 8 of 9 rows (worst rank of the reference's: 3), top-10 "
                                     "overlap 94.4 %, KL 0.012 nats (max 0.085)\n"));
    assert_null(strstr(out.data, "probs: top-1"));
    assert_null(strstr(out.data, "router_logits: top-1")); /* not what the model gives out */
    ts_buffer_clear(&out);
    sample.options.all = true;
    ts_report_text(&sample.comparison, &sample.options, &eighty, &out);
    assert_non_null(strstr(out.data, "probs: top-1 agrees"));
    assert_non_null(strstr(out.data, "router_logits: top-1 agrees in 8 of 9 rows (worst rank of the\n"
                                     "  reference's: 3), KL 0.012 nats")); /* eight experts have no top ten */
    ts_buffer_release(&out);
    make_html(&sample, &out);
    assert_non_null(strstr(out.data, "<dt>ranking</dt><dd>logits: top-1 agrees in 8 of 9 rows"));
    assert_int_equal(count_of(out.data, "top-1 agrees"), 4); /* above, and in all rows */
    ts_buffer_release(&out);
    make_json(&sample, &out);
    assert_int_equal(count_of(out.data, "\"ranking\":"), 3);
    ts_buffer_release(&out);
    /* the largest of a sample need not be the largest of the row */
    ((struct ts_tensor *)sample.comparison.pairing.pairs[1].a.tensor)->sampled = true;
    make_json(&sample, &out);
    assert_int_equal(count_of(out.data, "\"ranking\":"), 2);
    ts_buffer_clear(&out);
    ts_report_text(&sample.comparison, &sample.options, &eighty, &out);
    assert_null(strstr(out.data, "\nlogits: top-1"));
    ts_buffer_release(&out);
    sample_close(&sample);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_groups_of_other_names),
        cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_sorts),
        cmocka_unit_test(test_rounding_is_no_change),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_json_of_bytes),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_html),
        cmocka_unit_test(test_filter),
        cmocka_unit_test(test_rankings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
