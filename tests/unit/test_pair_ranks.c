/* Parallel runs: projections that each rank holds fused against separate ones, other numbers of ranks on each side,
 * ranks that are missing, and copies that should be the same. What a rank holds is written out as loops over rows. */
#include "made_bundle.h"
#include "scratch.h"

/* Dimensions of the model: [out, in] weights, [tokens, out] activations. */
enum { WIDTH = 12, TOKENS = 5, HEADS = 8, HEAD = 4, INNER = 48 };

/* One projection: rows of a weight, or columns of an activation. */
struct projection {
    float *values;
    int size; /* rows or columns */
};

static struct projection made_projection(int size, bool weight)
{
    return (struct projection){made_values((size_t)(size * (weight ? WIDTH : TOKENS))), size};
}

/* Entries [start, start + count) of a projection, put behind what `out` holds already: rows or columns. at: entries of
 * out before them, all: of out in all. */
static void put_share(const struct projection *from, bool weight, int start, int count, float *out, int at, int all)
{
    for (int i = 0; i < count; i++)
        for (int k = 0; k < (weight ? WIDTH : TOKENS); k++) {
            if (weight)
                out[(at + i) * WIDTH + k] = from->values[(start + i) * WIDTH + k];
            else
                out[k * all + at + i] = from->values[k * from->size + start + i];
        }
}

static void add_projection(struct ts_bundle *bundle, const char *name, const float *values, int size, bool weight)
{
    uint64_t shape[2] = {weight ? (uint64_t)size : TOKENS, weight ? WIDTH : (uint64_t)size};
    made_add(bundle, name, values, 2, shape);
}

/* Which entries of a projection of `heads` heads a rank holds: its own, or those of the head that it shares. */
static int share_start(int heads, int rank, int ranks)
{
    return heads >= ranks ? rank * (heads / ranks) * HEAD : rank * heads / ranks * HEAD;
}

static int share_size(int heads, int ranks)
{
    return heads >= ranks ? heads / ranks * HEAD : HEAD;
}

static const char *rank_name(int rank, const char *name)
{
    static char names[8][160];
    static unsigned next;
    char *out = names[next++ % 8];
    snprintf(out, sizeof names[0], "rank%d/%s", rank, name);
    return out;
}

/* q, k, v whole in one bundle, fused in the ranks of the other. spoil: an element of k that rank 2 has otherwise. */
static void add_fused(struct ts_bundle *separate, struct ts_bundle *fused, int kv_heads, int ranks, bool weight,
                      unsigned missing, float spoil)
{
    static const char *const names[] = {"model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj",
                                        "model.layers.0.self_attn.v_proj"};
    const int heads[3] = {HEADS, kv_heads, kv_heads};
    const char *ending = weight ? ".weight" : "";
    struct projection parts[3];
    int all = 0;
    char name[128];
    for (int i = 0; i < 3; i++) {
        parts[i] = made_projection(heads[i] * HEAD, weight);
        snprintf(name, sizeof name, "%s%s", names[i], ending);
        add_projection(separate, name, parts[i].values, parts[i].size, weight);
        all += share_size(heads[i], ranks);
    }
    for (int rank = 0; rank < ranks; rank++) {
        float *values = made_values((size_t)(all * (weight ? WIDTH : TOKENS)));
        int at = 0;
        for (int i = 0; i < 3; i++) {
            int size = share_size(heads[i], ranks);
            put_share(&parts[i], weight, share_start(heads[i], rank, ranks), size, values, at, all);
            at += size;
        }
        if (rank == 2) /* its third entry of k, at its second input or token */
            values[weight ? (share_size(HEADS, ranks) + 2) * WIDTH + 1 : all + share_size(HEADS, ranks) + 2] += spoil;
        snprintf(name, sizeof name, "model.layers.0.self_attn.qkv_proj%s", ending);
        if (!(missing >> rank & 1))
            add_projection(fused, rank_name(rank, name), values, all, weight);
        free(values);
    }
    for (int i = 0; i < 3; i++)
        free(parts[i].values);
}

static void check_fused(int kv_heads, int ranks, bool weight, bool fused_is_b, const char *of_q, const char *of_k)
{
    struct paired paired;
    paired_start(&paired);
    add_fused(fused_is_b ? paired.a : paired.b, fused_is_b ? paired.b : paired.a, kv_heads, ranks, weight, 0, 0);
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 3, 0);
    for (size_t i = 0; i < 3; i++) {
        const struct ts_pair *pair = &paired.pairing.pairs[i];
        const char *name = fused_is_b ? pair->name : pair->name_b;
        bool is_q = strstr(name, "q_proj") != NULL;
        char recipe[160];
        snprintf(recipe, sizeof recipe, "%c: attn_%c cut out of %s, joined on axis %d", fused_is_b ? 'B' : 'A',
                 *(strstr(name, "_proj") - 1), is_q ? of_q : of_k, weight ? 0 : 1);
        assert_string_equal(pair->recipe, recipe);
        assert_string_equal(fused_is_b ? pair->name_b : pair->name,
                            weight ? "rank*/model.layers.0.self_attn.qkv_proj.weight"
                                   : "rank*/model.layers.0.self_attn.qkv_proj");
        assert_false(pair->ambiguous);
    }
    paired_end(&paired);
}

static void test_fused_in_ranks(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++) {
        bool weight = form & 1, fused_is_b = form & 2;
        check_fused(8, 4, weight, fused_is_b, "4 shards", "4 shards"); /* as many key heads as query heads */
        check_fused(4, 4, weight, fused_is_b, "4 shards", "4 shards"); /* grouped */
        check_fused(2, 4, weight, fused_is_b, "4 shards", "2 of 4 shards, step 2");
        check_fused(1, 4, weight, fused_is_b, "4 shards", "1 of 4 shards, step 4");
        check_fused(4, 8, weight, fused_is_b, "8 shards", "4 of 8 shards, step 2");
    }
}

/* An error inside one rank's stripe is where it belongs in the whole tensor, and the rank is known. */
static void test_error_in_a_rank(void **state)
{
    (void)state;
    for (int weight = 0; weight < 2; weight++) {
        const struct ts_pair *pair;
        struct paired paired;
        double a[4 * HEAD * WIDTH], b[4 * HEAD * WIDTH];
        struct ts_error error;
        uint64_t worst = 0, entry;
        paired_start(&paired);
        add_fused(paired.a, paired.b, 4, 4, weight, 0, 9);
        paired_run(&paired, NULL);
        assert_int_equal(paired.pairing.count, 3);
        pair = paired_find(&paired,
                           weight ? "model.layers.0.self_attn.k_proj.weight" : "model.layers.0.self_attn.k_proj", NULL);
        assert_false(pair->guess);
        assert_int_equal(ts_view_read_f64(&pair->a, 0, (size_t)pair->a.count, a, &error), TS_OK);
        assert_int_equal(ts_view_read_f64(&pair->b, 0, (size_t)pair->b.count, b, &error), TS_OK);
        while (a[worst] == b[worst])
            worst++;
        entry = 2 * HEAD + 2; /* rank 2 holds one head */
        assert_int_equal(worst, weight ? entry * WIDTH + 1 : 4 * HEAD + entry);
        assert_string_equal(ts_pair_member(&pair->b, worst), weight ? "rank2/model.layers.0.self_attn.qkv_proj.weight"
                                                                    : "rank2/model.layers.0.self_attn.qkv_proj");
        assert_null(ts_pair_member(&pair->a, worst));
        paired_end(&paired);
    }
}

/* gate and up, and their biases, in each of three ranks. */
static void test_gate_up_in_ranks(void **state)
{
    (void)state;
    for (int fused_is_b = 0; fused_is_b < 2; fused_is_b++) {
        struct paired paired;
        struct projection gate = made_projection(INNER, true), up = made_projection(INNER, true);
        paired_start(&paired);
        add_projection(fused_is_b ? paired.a : paired.b, "blk.0.ffn_gate.weight", gate.values, INNER, true);
        add_projection(fused_is_b ? paired.a : paired.b, "blk.0.ffn_up.weight", up.values, INNER, true);
        for (int rank = 0; rank < 3; rank++) {
            float values[2 * INNER / 3 * WIDTH];
            put_share(&gate, true, rank * INNER / 3, INNER / 3, values, 0, 0);
            put_share(&up, true, rank * INNER / 3, INNER / 3, values, INNER / 3, 0);
            add_projection(fused_is_b ? paired.b : paired.a, rank_name(rank, "model.layers.0.mlp.gate_up_proj.weight"),
                           values, 2 * INNER / 3, true);
        }
        paired_run(&paired, NULL);
        assert_all_equal(&paired, 2, 0);
        free(gate.values);
        free(up.values);
        paired_end(&paired);
    }
}

/* The same, the ranks' shares in one tensor as they stood; and gate and up in turns. */
static void test_gate_up_of_joined_ranks(void **state)
{
    static const char *const words[] = {"B: ffn_gate cut out rank by rank (3 ranks)",
                                        "B: ffn_gate cut out, interleaved"};
    (void)state;
    for (int turns = 0; turns < 2; turns++) {
        struct paired paired;
        struct projection gate = made_projection(INNER, true), up = made_projection(INNER, true);
        const int share = turns ? 1 : INNER / 3;
        float values[2 * INNER * WIDTH];
        paired_start(&paired);
        add_projection(paired.a, "blk.0.ffn_gate.weight", gate.values, INNER, true);
        add_projection(paired.a, "blk.0.ffn_up.weight", up.values, INNER, true);
        for (int start = 0; start < INNER; start += share) {
            put_share(&gate, true, start, share, values, 2 * start, 0);
            put_share(&up, true, start, share, values, 2 * start + share, 0);
        }
        add_projection(paired.b, "model.layers.0.mlp.gate_up_proj.weight", values, 2 * INNER, true);
        paired_run(&paired, NULL);
        assert_all_equal(&paired, 2, 0);
        assert_string_equal(paired.pairing.pairs[0].recipe, words[turns]);
        free(gate.values);
        free(up.values);
        paired_end(&paired);
    }
}

/* Nothing agrees: the pairs are there, as guesses. One part is garbage: the others prove the cut. All rows are equal:
 * any cut fits. */
static void test_unproved_cuts(void **state)
{
    (void)state;
    for (int form = 0; form < 3; form++) {
        struct paired paired;
        struct projection gate = made_projection(INNER, true), up = made_projection(INNER, true);
        paired_start(&paired);
        for (int i = 0; i < INNER * WIDTH && form == 2; i++)
            gate.values[i] = up.values[i] = gate.values[i % WIDTH];
        add_projection(paired.a, "model.layers.0.mlp.gate_proj.weight", gate.values, INNER, true);
        add_projection(paired.a, "model.layers.0.mlp.up_proj.weight", up.values, INNER, true);
        for (int rank = 0; rank < 4; rank++) {
            float *values = made_values(2 * INNER / 4 * WIDTH);
            if (form == 2)
                put_share(&gate, true, rank * INNER / 4, INNER / 4, values, 0, 0);
            if (form >= 1)
                put_share(&up, true, rank * INNER / 4, INNER / 4, values, INNER / 4, 0);
            add_projection(paired.b, rank_name(rank, "model.layers.0.mlp.gate_up_proj.weight"), values, 2 * INNER / 4,
                           true);
            free(values);
        }
        paired_run(&paired, NULL);
        assert_int_equal(paired.pairing.count, 2);
        for (size_t i = 0; i < 2; i++) {
            assert_int_equal(paired.pairing.pairs[i].guess, form == 0);
            assert_int_equal(paired.pairing.pairs[i].ambiguous, form == 2);
        }
        if (form)
            assert_true(pair_error(paired_find(&paired, "model.layers.0.mlp.up_proj.weight", NULL)) == 0);
        free(gate.values);
        free(up.values);
        paired_end(&paired);
    }
}

/* Column-parallel, row-parallel, replicated, shared key heads, and partial sums, in `ranks` ranks. */
static void add_run(struct ts_bundle *bundle, struct projection parts[4], int kv_heads, int ranks, unsigned missing)
{
    struct projection sum = parts[3];
    for (int rank = 0; rank < ranks; rank++) {
        int q = HEADS / ranks * HEAD, k = share_size(kv_heads, ranks), in = WIDTH / ranks;
        float *values = made_values(HEADS * HEAD * WIDTH);
        if (missing >> rank & 1) {
            free(values);
            continue;
        }
        put_share(&parts[0], true, rank * q, q, values, 0, 0);
        add_projection(bundle, rank_name(rank, "model.layers.0.self_attn.q_proj.weight"), values, q, true);
        put_share(&parts[1], true, share_start(kv_heads, rank, ranks), k, values, 0, 0);
        add_projection(bundle, rank_name(rank, "model.layers.0.self_attn.k_proj.weight"), values, k, true);
        for (int i = 0; i < parts[2].size; i++)
            memcpy(values + i * in, parts[2].values + i * WIDTH + rank * in, (size_t)in * sizeof *values);
        made_add(bundle, rank_name(rank, "model.layers.0.self_attn.o_proj.weight"), values,
                 SHAPE((uint64_t)parts[2].size, (uint64_t)in));
        made_add(bundle, rank_name(rank, "model.layers.0.input_layernorm.weight"), parts[2].values, SHAPE(WIDTH));
        for (int i = 0; i < TOKENS * 8; i++) { /* each rank adds up its share of 12 numbers */
            values[i] = 0;
            for (int j = rank * 12 / ranks; j < (rank + 1) * 12 / ranks; j++)
                values[i] += sum.values[i % 40 * 12 + j];
        }
        made_add(bundle, rank_name(rank, "model.layers.0.mlp.down_proj"), values, SHAPE(TOKENS, 8));
        free(values);
    }
}

static void check_resharded(int kv_heads, int ranks_a, int ranks_b, const char *of_k)
{
    struct projection parts[4] = {made_projection(HEADS * HEAD, true), made_projection(kv_heads * HEAD, true),
                                  made_projection(20, true), made_projection(40, true)};
    struct paired paired;
    char recipe[128];
    for (int i = 0; i < 40 * WIDTH; i++)
        parts[3].values[i] = (float)(int)(parts[3].values[i] * 64); /* whole numbers: sums are exact */
    paired_start(&paired);
    add_run(paired.a, parts, kv_heads, ranks_a, 0);
    add_run(paired.b, parts, kv_heads, ranks_b, 0);
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 5, 0);
    snprintf(recipe, sizeof recipe, "A: join %d shards on axis 0; B: join %d shards on axis 0", ranks_a, ranks_b);
    assert_string_equal(paired_find(&paired, "rank*/model.layers.0.self_attn.q_proj.weight", NULL)->recipe, recipe);
    snprintf(recipe, sizeof recipe, "A: join %d shards on axis 1; B: join %d shards on axis 1", ranks_a, ranks_b);
    assert_string_equal(paired_find(&paired, "rank*/model.layers.0.self_attn.o_proj.weight", NULL)->recipe, recipe);
    snprintf(recipe, sizeof recipe, "A: sum of %d shards; B: sum of %d shards", ranks_a, ranks_b);
    assert_string_equal(paired_find(&paired, "rank*/model.layers.0.mlp.down_proj", NULL)->recipe, recipe);
    snprintf(recipe, sizeof recipe, "A: rank 0 of %d equal shards; B: rank 0 of %d equal shards", ranks_a, ranks_b);
    assert_string_equal(paired_find(&paired, "rank*/model.layers.0.input_layernorm.weight", NULL)->recipe, recipe);
    assert_string_equal(paired_find(&paired, "rank*/model.layers.0.self_attn.k_proj.weight", NULL)->recipe, of_k);
    for (size_t i = 0; i < paired.pairing.count; i++)
        assert_false(paired.pairing.pairs[i].ambiguous);
    for (int i = 0; i < 4; i++)
        free(parts[i].values);
    paired_end(&paired);
}

static void test_other_numbers_of_ranks(void **state)
{
    (void)state;
    check_resharded(4, 4, 2, "A: join 4 shards on axis 0; B: join 2 shards on axis 0");
    check_resharded(2, 4, 2, "A: join 2 of 4 shards, step 2, on axis 0; B: join 2 shards on axis 0");
    check_resharded(2, 2, 4, "A: join 2 shards on axis 0; B: join 2 of 4 shards, step 2, on axis 0");
    check_resharded(1, 4, 2, "A: rank 0 of 4 equal shards; B: rank 0 of 2 equal shards");
}

/* Fused on both sides, by other numbers of ranks; and fused against separate ones. */
static void test_fused_other_numbers(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++) {
        const int heads[3] = {HEADS, 4, 4};
        struct projection parts[3];
        struct paired paired;
        paired_start(&paired);
        for (int i = 0; i < 3; i++)
            parts[i] = made_projection(heads[i] * HEAD, true);
        for (int side = 0; side < 2; side++) {
            int ranks = side ? 2 : 4, all = 0;
            for (int i = 0; i < 3; i++)
                all += share_size(heads[i], ranks);
            for (int rank = 0; rank < ranks; rank++) {
                float values[2 * HEADS * HEAD * WIDTH];
                int at = 0;
                for (int i = 0; i < 3; i++) {
                    static const char *const names[] = {"blk.0.attn_q.weight", "blk.0.attn_k.weight",
                                                        "blk.0.attn_v.weight"};
                    int size = share_size(heads[i], ranks);
                    put_share(&parts[i], true, share_start(heads[i], rank, ranks), size, values, form && side ? 0 : at,
                              0);
                    if (form && side)
                        add_projection(paired.b, rank_name(rank, names[i]), values, size, true);
                    at += size;
                }
                if (!form || !side)
                    add_projection(side ? paired.b : paired.a, rank_name(rank, "blk.0.attn_qkv.weight"), values, all,
                                   true);
            }
        }
        paired_run(&paired, NULL);
        assert_all_equal(&paired, form ? 3 : 1, 0);
        if (!form)
            assert_string_equal(paired.pairing.pairs[0].recipe, "A: join 4 shards on axis 0, in 3 parts 8+4+4; "
                                                                "B: join 2 shards on axis 0, in 3 parts 16+8+8");
        for (int i = 0; i < 3; i++)
            free(parts[i].values);
        paired_end(&paired);
    }
}

/* As many ranks on both sides, fused on one: rank by rank. */
static void test_fused_rank_by_rank(void **state)
{
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (int rank = 0; rank < 3; rank++) {
        struct projection parts[2] = {made_projection(6, true), made_projection(6, true)};
        float fused[12 * WIDTH];
        put_share(&parts[0], true, 0, 6, fused, 0, 0);
        put_share(&parts[1], true, 0, 6, fused, 6, 0);
        add_projection(paired.a, rank_name(rank, "blk.0.ffn_gate.weight"), parts[0].values, 6, true);
        add_projection(paired.a, rank_name(rank, "blk.0.ffn_up.weight"), parts[1].values, 6, true);
        add_projection(paired.b, rank_name(rank, "blk.0.ffn_gate_up.weight"), fused, 12, true);
        free(parts[0].values);
        free(parts[1].values);
    }
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 6, 0);
    assert_string_equal(paired_find(&paired, "rank1/blk.0.ffn_up.weight", "rank1/blk.0.ffn_gate_up.weight")->recipe,
                        "B: ffn_up cut out");
    paired_end(&paired);
}

/* Ranks that are not there are told, and the others stand where they belong. */
static void test_missing_ranks(void **state)
{
    static const struct {
        unsigned missing;
        const char *note;
    } cases[] = {{1u << 1, "rank 1 of 4 of B is missing"},
                 {1u << 3, "rank 3 of 4 of B is missing"},
                 {1u << 0, "rank 0 of 4 of B is missing"},
                 {3u << 1, "ranks 1 2 of 4 of B are missing"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct projection parts[4] = {made_projection(HEADS * HEAD, true), made_projection(4 * HEAD, true),
                                      made_projection(20, true), made_projection(40, true)};
        struct paired paired;
        paired_start(&paired);
        add_projection(paired.a, "model.layers.0.self_attn.q_proj.weight", parts[0].values, HEADS * HEAD, true);
        add_projection(paired.a, "model.layers.0.self_attn.o_proj.weight", parts[2].values, 20, true);
        for (int rank = 0; rank < 4; rank++) {
            float values[HEADS * HEAD * WIDTH];
            if (cases[i].missing >> rank & 1)
                continue;
            put_share(&parts[0], true, rank * 8, 8, values, 0, 0);
            add_projection(paired.b, rank_name(rank, "model.layers.0.self_attn.q_proj.weight"), values, 8, true);
            for (int row = 0; row < 20; row++)
                memcpy(values + row * 3, parts[2].values + row * WIDTH + rank * 3, 3 * sizeof *values);
            made_add(paired.b, rank_name(rank, "model.layers.0.self_attn.o_proj.weight"), values, SHAPE(20, 3));
        }
        paired_run(&paired, NULL);
        assert_all_equal(&paired, 2, 0);
        assert_int_equal(paired.pairing.lacking, 2);
        assert_true(has_note(&paired, cases[i].note));
        paired_end(&paired);

        /* fused, and other numbers of ranks */
        paired_start(&paired);
        add_fused(paired.a, paired.b, 4, 4, true, cases[i].missing, 0);
        paired_run(&paired, NULL);
        assert_all_equal(&paired, 3, 0);
        assert_int_equal(paired.pairing.lacking, 3);
        assert_true(has_note(&paired, cases[i].note));
        paired_end(&paired);

        paired_start(&paired);
        add_run(paired.a, parts, 4, 2, 0);
        add_run(paired.b, parts, 4, 4, cases[i].missing);
        paired_run(&paired, NULL);
        assert_true(pair_error(paired_find(&paired, "rank*/model.layers.0.self_attn.q_proj.weight", NULL)) == 0);
        assert_true(has_note(&paired, cases[i].note));
        for (int k = 0; k < 4; k++)
            free(parts[k].values);
        paired_end(&paired);
    }
}

/* What rank `rank` has of 64 channels: of q, k and v (32, 16, 16) its share, of gate and up its share, or heads of HEAD
 * in turn. */
static void put_dealt(const struct projection *whole, int dealt, int rank, int ranks, float *out)
{
    static const int parts[3][3] = {{32, 16, 16}, {32, 32, 0}, {0, 0, 0}};
    int begin = 0, at = 0;
    for (int i = 0; i < 3 && dealt < 2; begin += parts[dealt][i++]) {
        put_share(whole, false, begin + rank * parts[dealt][i] / ranks, parts[dealt][i] / ranks, out, at, 64 / ranks);
        at += parts[dealt][i] / ranks;
    }
    for (int head = rank; head < 64 / HEAD && dealt == 2; head += ranks, at += HEAD)
        put_share(whole, false, head * HEAD, HEAD, out, at, 64 / ranks);
}

static const char *const dealt_names[] = {"model.layers.0.self_attn.qkv_proj", "model.layers.0.mlp.gate_up_proj",
                                          "model.layers.0.self_attn.attn_context"};

/* Fused on both sides, or dealt out head by head: a missing rank leaves a gap in each part. */
static void test_missing_ranks_of_parts(void **state)
{
    static const char *const recipes[] = {"A: shards 0 1 3 of 4 on axis 1, in 3 parts 32+16+16",
                                          "A: shards 0 1 3 of 4 on axis 1, in 2 parts 32+32",
                                          "A: shards 0 1 3 of 4 on axis 1, heads of 4 interleaved"};
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (int i = 0; i < 3; i++) {
        struct projection whole = made_projection(64, false);
        add_projection(paired.a, dealt_names[i], whole.values, 64, false);
        for (int rank = 0; rank < 4; rank++) {
            float values[TOKENS * 16];
            put_dealt(&whole, i, rank, 4, values);
            if (rank != 2)
                add_projection(paired.b, rank_name(rank, dealt_names[i]), values, 16, false);
        }
        free(whole.values);
    }
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 3, 0);
    assert_int_equal(paired.pairing.lacking, 3);
    assert_true(has_note(&paired, "rank 2 of 4 of B is missing"));
    for (int i = 0; i < 3; i++) {
        char recipe[160];
        snprintf(recipe, sizeof recipe, "%s; B: join 3 shards on axis 1", recipes[i]);
        assert_string_equal(paired_find(&paired, dealt_names[i], NULL)->recipe, recipe);
    }
    paired_end(&paired);

    /* against two ranks that are both here */
    paired_start(&paired);
    for (int i = 0; i < 2; i++) {
        struct projection whole = made_projection(64, false);
        for (int rank = 0; rank < 6; rank++) {
            const int of = rank < 2 ? 2 : 4, size = 64 / of, number = rank < 2 ? rank : rank - 2;
            float values[TOKENS * 32];
            put_dealt(&whole, i, number, of, values);
            if (rank < 2 || number != 2)
                add_projection(rank < 2 ? paired.a : paired.b, rank_name(number, dealt_names[i]), values, size, false);
        }
        free(whole.values);
    }
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 2, 0);
    assert_int_equal(paired.pairing.lacking, 2);
    assert_true(has_note(&paired, "rank 2 of 4 of B is missing"));
    paired_end(&paired);
}

/* One rank was captured, before its outputs were added to the others': those are no findings. But what has the values
 * of the whole is compared, and so is all else. */
static void test_one_rank_alone(void **state)
{
    (void)state;
    for (int pieces = 2; pieces <= 3; pieces++)
        for (int added = 0; added < 2; added++) {
            struct projection part = made_projection(20, false), rest = made_projection(20, false);
            struct paired paired;
            float sum[TOKENS * 20];
            const struct ts_pair *pair;
            paired_start(&paired);
            for (int i = 0; i < pieces; i++) {
                struct projection whole = made_projection(64, false);
                float values[TOKENS * 16];
                add_projection(paired.a, dealt_names[i], whole.values, 64, false);
                put_dealt(&whole, i, 1, 4, values);
                add_projection(paired.b, dealt_names[i], values, 16, false);
                free(whole.values);
            }
            for (int i = 0; i < TOKENS * 20; i++)
                sum[i] = part.values[i] + rest.values[i] * (added ? 0.1f : 1);
            add_projection(paired.a, "model.layers.0.mlp.down_proj", sum, 20, false);
            add_projection(paired.b, "model.layers.0.mlp.down_proj", part.values, 20, false);
            add_projection(paired.a, "model.layers.0.input_layernorm", sum, 20, false);
            add_projection(paired.b, "model.layers.0.input_layernorm", part.values, 20, false);
            paired_run(&paired, NULL);
            pair = paired_find(&paired, "model.layers.0.mlp.down_proj", NULL);
            if (pieces == 3 && !added)
                assert_string_equal(pair->problem, "a part of a sum over 4 ranks, of which only rank 1 is here");
            else
                assert_null(pair->problem);
            assert_null(paired_find(&paired, "model.layers.0.input_layernorm", NULL)->problem);
            free(part.values);
            free(rest.values);
            paired_end(&paired);
        }
}

/* Partial sums are no tensor while a rank is missing, and nobody may call what is left of them rounding. */
static void test_sums_of_missing_ranks(void **state)
{
    (void)state;
    for (int missing = -1; missing < 8; missing++) {
        struct projection q = made_projection(HEADS * HEAD, false), parts = made_projection(8 * 20, false);
        struct paired paired;
        float sum[TOKENS * 20];
        for (int i = 0; i < TOKENS * 20; i++) {
            sum[i] = 0;
            for (int rank = 0; rank < 8; rank++)
                sum[i] += parts.values[rank * TOKENS * 20 + i];
        }
        paired_start(&paired);
        add_projection(paired.a, "model.layers.0.self_attn.q_proj", q.values, HEADS * HEAD, false);
        add_projection(paired.a, "model.layers.0.mlp.down_proj", sum, 20, false);
        for (int rank = 0; rank < 8; rank++) {
            float values[TOKENS * HEAD];
            if (rank == missing)
                continue;
            put_share(&q, false, rank * HEAD, HEAD, values, 0, HEAD);
            add_projection(paired.b, rank_name(rank, "model.layers.0.self_attn.q_proj"), values, HEAD, false);
            add_projection(paired.b, rank_name(rank, "model.layers.0.mlp.down_proj"), parts.values + rank * TOKENS * 20,
                           20, false);
        }
        paired_run(&paired, NULL);
        assert_int_equal(paired.pairing.count, 2);
        assert_true(pair_error(&paired.pairing.pairs[0]) == 0);
        if (missing < 0)
            assert_null(paired.pairing.pairs[1].problem);
        else
            assert_string_equal(paired.pairing.pairs[1].problem, "a sum over ranks, of which only 7 of 8 are present");
        free(q.values);
        free(parts.values);
        paired_end(&paired);
    }
}

/* What several ranks hold is read once; a copy that is not the same has its own pair. */
static void test_copies_that_differ(void **state)
{
    struct projection k = made_projection(2 * HEAD, true);
    struct paired paired;
    (void)state;
    paired_start(&paired);
    add_projection(paired.a, "blk.0.attn_k.weight", k.values, k.size, true);
    made_add(paired.a, "blk.0.attn_norm.weight", k.values, SHAPE(WIDTH));
    for (int rank = 0; rank < 4; rank++) {
        float values[HEAD * WIDTH], norm[WIDTH];
        put_share(&k, true, rank / 2 * HEAD, HEAD, values, 0, 0);
        values[7] += rank == 3 ? 2 : 0;
        memcpy(norm, k.values, sizeof norm);
        norm[5] += rank == 2 ? 1 : 0;
        add_projection(paired.b, rank_name(rank, "blk.0.attn_k.weight"), values, HEAD, true);
        made_add(paired.b, rank_name(rank, "blk.0.attn_norm.weight"), norm, SHAPE(WIDTH));
    }
    paired_run(&paired, NULL);
    assert_int_equal(paired.pairing.count, 4);
    assert_int_equal(paired.pairing.only_b_count, 0);
    assert_true(pair_error(paired_find(&paired, "blk.0.attn_k.weight", "rank*/blk.0.attn_k.weight")) == 0);
    assert_true(pair_error(paired_find(&paired, "blk.0.attn_k.weight", "rank3/blk.0.attn_k.weight")) > 0.1);
    assert_true(pair_error(paired_find(&paired, "blk.0.attn_norm.weight", "rank*/blk.0.attn_norm.weight")) == 0);
    assert_true(pair_error(paired_find(&paired, "blk.0.attn_norm.weight", "rank2/blk.0.attn_norm.weight")) > 0.1);
    for (size_t i = 0; i < 4; i++)
        assert_false(paired.pairing.pairs[i].ambiguous);
    paired_end(&paired);

    /* and where the copies are parts of fused tensors */
    paired_start(&paired);
    add_fused(paired.a, paired.b, 1, 4, true, 0, 3);
    paired_run(&paired, NULL);
    assert_int_equal(paired.pairing.count, 4);
    assert_true(pair_error(paired_find(&paired, "model.layers.0.self_attn.k_proj.weight",
                                       "rank*/model.layers.0.self_attn.qkv_proj.weight")) == 0);
    assert_true(pair_error(paired_find(&paired, "model.layers.0.self_attn.k_proj.weight",
                                       "rank2/model.layers.0.self_attn.qkv_proj.weight")) > 0.1);
    free(k.values);
    paired_end(&paired);
}

/* One run split along the columns, another along the rows, as many ranks in each: names and ranks are the same. */
static void test_other_axis(void **state)
{
    float *values = made_values(8 * 6), part[24];
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (int rank = 0; rank < 2; rank++) {
        made_add(paired.a, rank_name(rank, "layer_0_x"), values + rank * 24, SHAPE(4, 6));
        for (int i = 0; i < 8; i++)
            memcpy(part + i * 3, values + i * 6 + rank * 3, 3 * sizeof *part);
        made_add(paired.b, rank_name(rank, "layer_0_x"), part, SHAPE(8, 3));
    }
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 1, 0);
    assert_string_equal(paired.pairing.pairs[0].recipe, "A: join 2 shards on axis 0; B: join 2 shards on axis 1");
    free(values);
    paired_end(&paired);
}

/* The same where only a map says what belongs together. */
static void test_map_of_shards(void **state)
{
    static const char *const left[] = {"one", "two"}, *const right[] = {"un", "deux", "trois"};
    float *values = made_values(12 * 6);
    struct paired paired;
    struct ts_pair_options options = {.map_file = scratch_path("shards.txt")};
    (void)state;
    scratch_text("shards.txt", "one + two = un + deux + trois\n");
    paired_start(&paired);
    for (int i = 0; i < 2; i++)
        made_add(paired.a, left[i], values + i * 36, SHAPE(6, 6));
    for (int i = 0; i < 3; i++)
        made_add(paired.b, right[i], values + i * 24, SHAPE(4, 6));
    paired_run(&paired, &options);
    assert_all_equal(&paired, 1, 0);
    assert_string_equal(paired.pairing.pairs[0].how, "map");
    assert_string_equal(paired.pairing.pairs[0].recipe, "A: join 2 shards on axis 0; B: join 3 shards on axis 0");
    free(values);
    paired_end(&paired);
}

/* Experts whose weights are in shards: each by itself, or as a stack. */
static void test_experts_in_ranks(void **state)
{
    (void)state;
    for (int form = 0; form < 6; form++) {
        bool stack = form & 1, shards_are_b = form < 4, stacked_shards = form == 2 || form == 3;
        struct paired paired;
        struct ts_bundle *whole, *shards;
        float *values = made_values(3 * 8 * WIDTH), share[3 * 4 * WIDTH];
        paired_start(&paired);
        whole = shards_are_b ? paired.a : paired.b;
        shards = shards_are_b ? paired.b : paired.a;
        if (stack)
            made_add(whole, "blk.0.ffn_up_exps.weight", values, SHAPE(3, 8, WIDTH));
        for (int expert = 0; expert < 3 && !stack; expert++)
            made_add(whole, made_name("model.layers.0.mlp.experts.%d.up_proj.weight", expert),
                     values + expert * 8 * WIDTH, SHAPE(8, WIDTH));
        for (int rank = 0; rank < 2; rank++) {
            for (int expert = 0; expert < 3; expert++) {
                memcpy(share + expert * 4 * WIDTH, values + (expert * 8 + rank * 4) * WIDTH, 4 * WIDTH * sizeof *share);
                if (!stacked_shards)
                    made_add(shards, rank_name(rank, made_name("model.layers.0.mlp.experts.%d.up_proj.weight", expert)),
                             share + expert * 4 * WIDTH, SHAPE(4, WIDTH));
            }
            if (stacked_shards)
                made_add(shards, rank_name(rank, "blk.0.ffn_up_exps.weight"), share, SHAPE(3, 4, WIDTH));
        }
        paired_run(&paired, NULL);
        assert_all_equal(&paired, stack || stacked_shards ? 1 : 3, 0);
        free(values);
        paired_end(&paired);
    }
}

/* Heads group by group in each rank, as Megatron stores them, where nobody says how many heads there are. */
static void test_groups_in_ranks(void **state)
{
    static const char *const names[] = {"model.layers.0.self_attn.q_proj.weight",
                                        "model.layers.0.self_attn.k_proj.weight",
                                        "model.layers.0.self_attn.v_proj.weight"};
    const int heads[3] = {HEADS, 4, 4};
    struct projection parts[3];
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (int i = 0; i < 3; i++) {
        parts[i] = made_projection(heads[i] * HEAD, true);
        add_projection(paired.a, names[i], parts[i].values, parts[i].size, true);
    }
    for (int rank = 0; rank < 2; rank++) {
        float values[2 * 4 * HEAD * WIDTH];
        int at = 0;
        for (int group = 0; group < 2; group++)
            for (int i = 0; i < 3; i++) {
                int size = heads[i] / 4 * HEAD;
                put_share(&parts[i], true, (rank * 2 + group) * size, size, values, at, 0);
                at += size;
            }
        add_projection(paired.b, rank_name(rank, "decoder.layers.0.self_attention.linear_qkv.weight"), values, at,
                       true);
    }
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 3, 0);
    assert_string_equal(paired_find(&paired, names[1], NULL)->recipe,
                        "B: join 2 shards on axis 0, attn_k cut out head by head");
    for (int i = 0; i < 3; i++)
        free(parts[i].values);
    paired_end(&paired);
}

/* A head that is the embedding, which the other side has in shards. */
static void test_tied_shards(void **state)
{
    float *values = made_values(40 * WIDTH);
    struct paired paired;
    (void)state;
    paired_start(&paired);
    made_add(paired.a, "model.embed_tokens.weight", values, SHAPE(40, WIDTH));
    made_add(paired.a, "lm_head.weight", values, SHAPE(40, WIDTH));
    for (int rank = 0; rank < 4; rank++)
        made_add(paired.b, rank_name(rank, "model.embed_tokens.weight"), values + rank * 10 * WIDTH, SHAPE(10, WIDTH));
    paired_run(&paired, NULL);
    assert_all_equal(&paired, 2, 0);
    assert_string_equal(paired_find(&paired, "lm_head.weight", "rank*/model.embed_tokens.weight")->how, "tied");
    free(values);
    paired_end(&paired);
}

/* What no values prove in one layer is proved by the others; what all ranks hold alike needs no proof; and without
 * other layers a join is a guess. */
static void test_proved_by_others(void **state)
{
    (void)state;
    for (int layers = 1; layers < 4; layers += 2) {
        struct paired paired;
        paired_start(&paired);
        for (int layer = 0; layer < layers; layer++) {
            float *gate = made_values(6 * 32), *norm = made_values(6 * 16), part[6 * 8];
            made_add(paired.a, made_name("layer_%d_mlp_gate_proj", layer), gate, SHAPE(6, 32));
            made_add(paired.a, made_name("layer_%d_attn_norm_output", layer), norm, SHAPE(6, 16));
            if (layer == layers - 1) { /* something else altogether */
                free(gate);
                free(norm);
                gate = made_values(6 * 32);
                norm = made_values(6 * 16);
            }
            for (int rank = 0; rank < 4; rank++) {
                for (int i = 0; i < 6; i++)
                    memcpy(part + i * 8, gate + i * 32 + rank * 8, 8 * sizeof *part);
                made_add(paired.b, rank_name(rank, made_name("layer_%d_mlp_gate_proj", layer)), part, SHAPE(6, 8));
                made_add(paired.b, rank_name(rank, made_name("layer_%d_attn_norm_output", layer)), norm, SHAPE(6, 16));
            }
            free(gate);
            free(norm);
        }
        paired_run(&paired, NULL);
        assert_int_equal(paired.pairing.count, 2 * layers);
        for (size_t i = 0; i < paired.pairing.count; i++) {
            const struct ts_pair *pair = &paired.pairing.pairs[i];
            assert_int_equal(pair->guess, layers == 1 && strstr(pair->name, "gate_proj") != NULL);
        }
        paired_end(&paired);
    }
}

/* Square weights of four layers in two shards each, one of them transposed: a fault on whichever side the shards are.
 * Where all are transposed it is how that side stores them. */
static void test_one_transposed_beside_shards(void **state)
{
    (void)state;
    for (int turned = 0; turned < 2; turned++)
        for (int all = 0; all < 2; all++) {
            struct paired paired;
            struct ts_bundle *whole, *shards;
            paired_start(&paired);
            whole = turned ? paired.b : paired.a;
            shards = turned ? paired.a : paired.b;
            for (int layer = 0; layer < 4; layer++) {
                float *values = made_values(16 * 16), piece[16 * 8];
                made_add(whole, made_name("layers.%d.self_attn.o_proj.weight", layer), values, SHAPE(16, 16));
                for (int rank = 0; rank < 2; rank++) {
                    for (int i = 0; i < 16 * 8; i++) {
                        const int row = i / 8, column = rank * 8 + i % 8;
                        piece[i] = values[all || layer == 2 ? column * 16 + row : row * 16 + column];
                    }
                    made_add(shards,
                             made_name(rank ? "rank1/layers.%d.self_attn.o_proj.weight"
                                            : "rank0/layers.%d.self_attn.o_proj.weight",
                                       layer),
                             piece, SHAPE(16, 8));
                }
                free(values);
            }
            paired_run(&paired, NULL);
            assert_int_equal(paired.pairing.count, 4);
            for (int layer = 0; layer < 4; layer++) {
                const struct ts_pair *pair = &paired.pairing.pairs[layer];
                assert_int_equal(pair_error(pair) > 0.1, !all && layer == 2);
                assert_int_equal(strstr(pair->recipe, "transpose") != NULL, all);
                assert_non_null(strstr(pair->recipe, "join 2 shards on axis 1"));
            }
            paired_end(&paired);
        }
}

/* Six ranks for three heads of keys: what two of them hold alike was looked at, and nobody says that it was not. */
static void test_copied_heads_are_no_rest(void **state)
{
    enum { RANKS = 6, KEYS = 3, SIZE = 8, IN = 12, PIECE = SIZE * IN };
    (void)state;
    for (int spoiled = 0; spoiled < 2; spoiled++) {
        float *q = made_values(RANKS * PIECE), *k = made_values(KEYS * PIECE), *v = made_values(KEYS * PIECE);
        struct paired paired;
        paired_start(&paired);
        made_add(paired.a, "model.layers.0.self_attn.q_proj.weight", q, SHAPE(RANKS * SIZE, IN));
        made_add(paired.a, "model.layers.0.self_attn.k_proj.weight", k, SHAPE(KEYS * SIZE, IN));
        made_add(paired.a, "model.layers.0.self_attn.v_proj.weight", v, SHAPE(KEYS * SIZE, IN));
        for (int rank = 0; rank < RANKS; rank++) {
            float fused[3 * PIECE];
            memcpy(fused, &q[rank * PIECE], PIECE * sizeof *q);
            memcpy(&fused[PIECE], &k[rank / 2 * PIECE], PIECE * sizeof *k);
            memcpy(&fused[2 * PIECE], &v[rank / 2 * PIECE], PIECE * sizeof *v);
            fused[PIECE + 5] += spoiled && rank == 3 ? 1 : 0;
            made_add(paired.b, made_name("rank%d/model.layers.0.self_attn.qkv_proj.weight", rank), fused,
                     SHAPE(3 * SIZE, IN));
        }
        paired_run(&paired, &(struct ts_pair_options){0});
        assert_int_equal(paired.status, TS_OK);
        assert_int_equal(paired.pairing.count, spoiled ? 4 : 3);
        assert_false(has_note(&paired, "was not compared"));
        for (size_t i = 0; i < paired.pairing.count; i++)
            assert_false(paired.pairing.pairs[i].partial);
        free(q);
        free(k);
        free(v);
        paired_end(&paired);
    }
}

/* Rows that are added so that ranks have as many each are padding where they are zero. */
static void test_padding_of_the_last_rank(void **state)
{
    enum { ROWS = 101, PADDED = 128, IN = 6, RANKS = 4, PIECE = PADDED / RANKS * IN };
    (void)state;
    for (int filled = 0; filled < 2; filled++) {
        float *values = made_values(PADDED * IN);
        struct paired paired;
        paired_start(&paired);
        for (size_t i = ROWS * IN; i < PADDED * IN && !filled; i++)
            values[i] = 0;
        made_add(paired.a, "model.embed_tokens.weight", values, SHAPE(ROWS, IN));
        for (int rank = 0; rank < RANKS; rank++)
            made_add(paired.b, made_name("rank%d/model.embed_tokens.weight", rank), &values[rank * PIECE],
                     SHAPE(PADDED / RANKS, IN));
        paired_run(&paired, &(struct ts_pair_options){0});
        assert_all_equal(&paired, 1, 0);
        assert_int_equal(paired.pairing.pairs[0].zeros, !filled);
        assert_int_equal(has_note(&paired, "was not compared"), filled);
        free(values);
        paired_end(&paired);
    }
}

/* Names that say which of two a tensor is only by its values do so for shards as well: gate, and what is called
 * post_attn beside what comes out of the heads. Behind a fault other layers tell. */
static void test_shards_of_short_names(void **state)
{
    enum { LAYERS = 3, RANKS = 2, ROWS = 5, COLUMNS = 12, COUNT = ROWS * COLUMNS };
    static const char *const words[] = {"gate", "up", "attn_context", "post_attn"};
    static const char *const modules[] = {"mlp.gate_proj", "mlp.up_proj", "self_attn.attn_context", "attn_residual"};
    struct paired paired;
    (void)state;
    paired_start(&paired);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int i = 0; i < 4; i++) {
            float *values = made_values(COUNT), *other = made_values(COUNT);
            char name[96];
            snprintf(name, sizeof name, "%d_%s", layer, words[i]);
            made_add(paired.a, name, values, SHAPE(ROWS, COLUMNS));
            for (int rank = 0; rank < RANKS; rank++) {
                float share[COUNT];
                const size_t width = i == 3 ? COLUMNS : COLUMNS / RANKS;
                for (size_t at = 0; at < ROWS * width; at++)
                    share[at] =
                        (layer == 2 ? other
                                    : values)[at / width * COLUMNS + at % width + (i == 3 ? 0 : (size_t)rank * width)];
                snprintf(name, sizeof name, "rank%d/model.layers.%d.%s", rank, layer, modules[i]);
                made_add(paired.b, name, share, SHAPE(ROWS, width));
            }
            free(values);
            free(other);
        }
    paired_run(&paired, &(struct ts_pair_options){0});
    assert_int_equal(paired.status, TS_OK);
    assert_int_equal(paired.pairing.count, 4 * LAYERS);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int i = 0; i < 4; i++) {
            char one[32], other[96];
            snprintf(one, sizeof one, "%d_%s", layer, words[i]);
            snprintf(other, sizeof other, "rank*/model.layers.%d.%s", layer, modules[i]);
            assert_int_equal(pair_error(paired_find(&paired, one, other)) > 0.1, layer == 2);
        }
    paired_end(&paired);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fused_in_ranks),
        cmocka_unit_test(test_error_in_a_rank),
        cmocka_unit_test(test_gate_up_in_ranks),
        cmocka_unit_test(test_gate_up_of_joined_ranks),
        cmocka_unit_test(test_unproved_cuts),
        cmocka_unit_test(test_other_numbers_of_ranks),
        cmocka_unit_test(test_fused_other_numbers),
        cmocka_unit_test(test_fused_rank_by_rank),
        cmocka_unit_test(test_missing_ranks),
        cmocka_unit_test(test_missing_ranks_of_parts),
        cmocka_unit_test(test_one_rank_alone),
        cmocka_unit_test(test_sums_of_missing_ranks),
        cmocka_unit_test(test_copies_that_differ),
        cmocka_unit_test(test_other_axis),
        cmocka_unit_test(test_map_of_shards),
        cmocka_unit_test(test_experts_in_ranks),
        cmocka_unit_test(test_groups_in_ranks),
        cmocka_unit_test(test_tied_shards),
        cmocka_unit_test(test_proved_by_others),
        cmocka_unit_test(test_one_transposed_beside_shards),
        cmocka_unit_test(test_copied_heads_are_no_rest),
        cmocka_unit_test(test_padding_of_the_last_rank),
        cmocka_unit_test(test_shards_of_short_names),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
