/* Slices of a tensor and shards of all ranks, found by content. */
#include "aligned.h"

/* B holds entries [start, start + count) of an axis of A; exact, rounded, and with noise. */
static void check_slice(struct table *table, size_t rank, const uint64_t *shape, size_t axis, uint64_t start,
                        uint64_t count, const char *recipe)
{
    double *values = random_values(table, product(rank, shape));
    double *part = sliced(table, values, rank, shape, axis, start, count);
    uint64_t shape_b[8];
    size_t total;
    struct ts_view a = make(table, TS_F32, values, rank, shape), b;
    struct ts_alignment found;
    char text[128];
    memcpy(shape_b, shape, rank * sizeof *shape);
    shape_b[axis] = count;
    total = product(rank, shape_b);
    b = make(table, TS_F32, part, rank, shape_b);
    found = aligned(table, &a, &b, NULL);
    snprintf(text, sizeof text, "A: %s", recipe);
    assert_found(table, &found, text, total, 0);
    found = aligned(table, &b, &a, NULL);
    snprintf(text, sizeof text, "B: %s", recipe);
    assert_found(table, &found, text, total, 0);
    b = make(table, TS_BF16, part, rank, shape_b);
    found = aligned(table, &b, &a, NULL);
    assert_found(table, &found, text, total, 0.004);
    b = make(table, TS_F32, noisy(table, part, total, 0.3), rank, shape_b);
    found = aligned(table, &b, &a, NULL);
    assert_found(table, &found, text, total, 0.4);
}

static void test_slices(void **state)
{
    struct table *table = *state;
    check_slice(table, SHAPE(8, 64), 0, 0, 6, "take 0..6 of 8 on axis 0");
    check_slice(table, SHAPE(8, 64), 0, 2, 6, "take 2..8 of 8 on axis 0");
    check_slice(table, SHAPE(9, 64), 0, 1, 8, "skip the first of 9 on axis 0");
    check_slice(table, SHAPE(300, 16), 0, 137, 20, "take 137..157 of 300 on axis 0");
    check_slice(table, SHAPE(2, 50, 24), 1, 11, 30, "take 11..41 of 50 on axis 1");
    check_slice(table, SHAPE(16, 64), 1, 24, 8, "shard 3 of 8 on axis 1");
    check_slice(table, SHAPE(16, 64), 1, 0, 8, "shard 0 of 8 on axis 1"); /* rank 0 only */
    check_slice(table, SHAPE(16, 64), 0, 4, 2, "shard 2 of 8 on axis 0");
}

static void test_padding(void **state)
{
    struct table *table = *state;
    double *values = random_values(table, 104 * 16);
    struct ts_view a = make(table, TS_F32, values, SHAPE(100, 16)), b;
    struct ts_alignment found;
    memset(values + 1600, 0, 64 * sizeof *values);
    b = make(table, TS_BF16, values, SHAPE(104, 16));
    found = aligned(table, &a, &b, NULL);
    assert_found(table, &found, "B: take 0..100 of 104 on axis 0 (the rest is zero)", 1600, 0.004);
}

static void test_one_of_a_batch(void **state)
{
    struct table *table = *state;
    double *values = random_values(table, 4 * 7 * 30);
    struct ts_view a = make(table, TS_F32, values, SHAPE(4, 7, 30));
    struct ts_view b = make(table, TS_F32, values + 2 * 210, SHAPE(7, 30));
    struct ts_alignment found = aligned(table, &a, &b, NULL);
    assert_found(table, &found, "A: index 2 of 4 on axis 0", 210, 0);
    b = make(table, TS_F32, values + 2 * 210, SHAPE(1, 7, 30));
    found = aligned(table, &a, &b, NULL);
    assert_found(table, &found, "A: index 2 of 4 on axis 0; B: squeeze 0", 210, 0);
}

/* Rank 2 of 4 holds heads 4 and 5 of 8, heads first, against tokens by heads * width. */
static void test_shard_and_layout(void **state)
{
    struct table *table = *state;
    double *values = random_values(table, 12 * 64);
    double *part = sliced(table, values, SHAPE(12, 64), 1, 32, 16);
    struct ts_view a = make(table, TS_F32, values, SHAPE(12, 64));
    struct ts_view b =
        make(table, TS_F32, permuted(table, part, SHAPE(12, 2, 8), (unsigned[]){1, 0, 2}), SHAPE(1, 2, 12, 8));
    struct ts_alignment found = aligned(table, &a, &b, NULL);
    assert_found(table, &found, "A: shard 2 of 4 on axis 1, split 1 as 2x8; B: squeeze 0, swap 0 1", 12 * 16, 0);
}

static void test_interleaved_and_fused_shard(void **state)
{
    struct table *table = *state;
    double *values = random_values(table, 96 * 10), *part = random_values(table, 24 * 10);
    struct ts_view a = make(table, TS_F32, values, SHAPE(96, 10)), b;
    struct ts_alignment found;
    /* heads of 4 rows dealt to 4 ranks; this is rank 1 */
    for (int i = 0; i < 24 * 10; i++)
        part[i] = values[(i / 40 * 16 + 4) * 10 + i % 40];
    b = make(table, TS_BF16, part, SHAPE(24, 10));
    found = aligned(table, &a, &b, NULL);
    assert_found(table, &found, "A: shard 1 of 4 on axis 0, heads of 4 interleaved; B: split 0 as 6x4", 240, 0.004);
    /* 64 rows of q, 16 of k, 16 of v; rank 3 of 4 */
    memcpy(part, values + 48 * 10, 160 * sizeof *part);
    memcpy(part + 160, values + (64 + 12) * 10, 40 * sizeof *part);
    memcpy(part + 200, values + (80 + 12) * 10, 40 * sizeof *part);
    b = make(table, TS_BF16, part, SHAPE(24, 10));
    found = aligned(table, &a, &b, NULL);
    assert_found(table, &found, "A: shard 3 of 4 on axis 0, in 3 parts 64+16+16", 240, 0.004);
}

/* Key heads repeated for each query head of their group: any copy will do. */
static void test_repeated_heads(void **state)
{
    struct table *table = *state;
    double *values = random_values(table, 2 * 9 * 8), repeated[8 * 9 * 8];
    struct ts_view a, b = make(table, TS_F32, values, SHAPE(2, 9, 8));
    struct ts_alignment found;
    for (int i = 0; i < 8 * 9 * 8; i++)
        repeated[i] = values[i / 72 / 4 * 72 + i % 72];
    a = make(table, TS_F32, repeated, SHAPE(8, 9, 8));
    found = aligned(table, &a, &b, NULL);
    assert_found(table, &found, "A: step 4 from 0 on axis 0", 144, 0);
}

static void test_two_axes(void **state)
{
    struct table *table = *state;
    double *values = random_values(table, 3 * 20 * 12);
    double *part = sliced(table, values, SHAPE(3, 20, 12), 1, 5, 15);
    struct ts_view a = make(table, TS_F32, values, SHAPE(3, 20, 12)), b;
    struct ts_alignment found;
    b = make(table, TS_F32, part + 180, SHAPE(15, 12)); /* the second sequence, its last 15 tokens */
    found = aligned(table, &a, &b, NULL);
    assert_found(table, &found, "A: index 1 of 3 on axis 0, take 5..20 of 20 on axis 0", 180, 0);
    /* each is longer somewhere: [20, 12] against [25, 10] */
    {
        double longer[25 * 10];
        for (int i = 0; i < 250; i++)
            longer[i] = i < 200 ? values[i / 10 * 12 + i % 10] : normal(table);
        a = make(table, TS_F32, values, SHAPE(20, 12));
        b = make(table, TS_F32, longer, SHAPE(25, 10));
        found = aligned(table, &a, &b, NULL);
        assert_found(table, &found, "A: take 0..10 of 12 on axis 1; B: take 0..20 of 25 on axis 0", 200, 0);
        b = make(table, TS_F32, random_values(table, 250), SHAPE(25, 10));
        found = aligned(table, &a, &b, NULL);
        assert_string_equal(found.problem, "[20,12] against [25,10]: no layout fits");
    }
}

/* `count` shards along an axis; exact, rounded, noisy, from either side. */
static void check_join(struct table *table, size_t rank, const uint64_t *shape, size_t axis, size_t count,
                       const char *recipe)
{
    double *values = random_values(table, product(rank, shape));
    struct ts_view whole = make(table, TS_F32, values, rank, shape), exact[8], rounded[8], rough[8];
    struct ts_alignment found;
    struct ts_error error;
    uint64_t shape_b[8], share = shape[axis] / count;
    const size_t total = product(rank, shape);
    char text[128];
    memcpy(shape_b, shape, rank * sizeof *shape);
    shape_b[axis] = share;
    for (size_t i = 0; i < count; i++) {
        double *part = sliced(table, values, rank, shape, axis, i * share, share);
        exact[i] = make(table, TS_F32, part, rank, shape_b);
        rounded[i] = make(table, TS_BF16, part, rank, shape_b);
        rough[i] = make(table, TS_F32, noisy(table, part, total / count, 0.3), rank, shape_b);
    }
    snprintf(text, sizeof text, "B: %s", recipe);
    found = joined(table, &whole, exact, count, NULL);
    assert_found(table, &found, text, total, 0);
    found = joined(table, &whole, rounded, count, NULL);
    assert_found(table, &found, text, total, 0.004);
    found = joined(table, &whole, rough, count, NULL);
    assert_found(table, &found, text, total, 0.4);
    snprintf(text, sizeof text, "A: %s", recipe);
    assert_int_equal(ts_align_shards(&whole, exact, count, false, NULL, &table->arena, &found, &error), TS_OK);
    assert_found(table, &found, text, total, 0);
}

/* Two sequences, padded to one length, tokens first, against one of them alone, heads first. */
static void test_one_of_a_padded_batch(void **state)
{
    struct table *table = *state;
    double *values = random_values(table, 2 * 9 * 4 * 16);
    double *turned = random_values(table, 4 * 7 * 16), *narrow = random_values(table, 2 * 16 * 4 * 7);
    struct ts_view a = make(table, TS_F32, values, SHAPE(2, 9, 4, 16)), b;
    struct ts_alignment found;
    for (size_t head = 0; head < 4; head++)
        for (size_t token = 0; token < 7; token++)
            for (size_t i = 0; i < 16; i++) {
                turned[(head * 7 + token) * 16 + i] = values[((9 + token) * 4 + head) * 16 + i];
                narrow[((16 + i) * 4 + head) * 7 + token] = values[((9 + token) * 4 + head) * 16 + i];
            }
    b = make(table, TS_F32, turned, SHAPE(1, 4, 7, 16));
    found = aligned(table, &a, &b, NULL);
    assert_found(table, &found, "A: index 1 of 2 on axis 0, take 0..7 of 9 on axis 0; B: squeeze 0, permute 1 0 2",
                 4 * 7 * 16, 0);
    /* each is longer somewhere */
    a = make(table, TS_BF16, values + 9 * 4 * 16, SHAPE(9, 4, 16));
    b = make(table, TS_F32, narrow, SHAPE(2, 16, 4, 7));
    found = aligned(table, &a, &b, NULL);
    assert_found(table, &found, "A: permute 2 1 0, take 0..7 of 9 on axis 2; B: index 1 of 2 on axis 0", 4 * 7 * 16,
                 0.004);
}

/* Sequences of unequal length: padded in a batch, and one behind the other without the padding, which stands behind or
 * before them and holds anything. The batch may have no axis for sequences. */
static void test_packed_sequences(void **state)
{
    static const uint64_t lengths[4] = {5, 9, 1, 6};
    struct table *table = *state;
    for (int kind = 0; kind < 8; kind++) {
        const bool from_the_end = kind % 2, turned = kind / 2 % 2, listed = kind / 4;
        const double *padded = random_values(table, 4 * 9 * 3 * 8);
        double packed[21 * 3 * 8], *at = packed;
        struct ts_view whole = listed ? make(table, TS_F32, padded, SHAPE(36, 3, 8))
                                      : make(table, TS_F32, padded, SHAPE(4, 9, 3, 8)),
                       rows;
        struct ts_alignment found;
        char recipe[80];
        for (size_t i = 0; i < 4; i++) {
            const size_t start = from_the_end ? (size_t)(9 - lengths[i]) : 0, count = (size_t)lengths[i] * 24;
            memcpy(at, padded + (i * 9 + start) * 24, count * sizeof *at);
            at += count;
        }
        rows = make(table, TS_BF16, packed, SHAPE(21, 3, 8));
        found = turned ? aligned(table, &rows, &whole, NULL) : aligned(table, &whole, &rows, NULL);
        assert_true(distance(table, &found) < 0.003);
        assert_false(found.guess);
        snprintf(recipe, sizeof recipe, "%c: %spack the %s 5+9+1+6 of 4x9 rows", turned ? 'B' : 'A',
                 listed ? "split 0 as 4x9, " : "", from_the_end ? "last" : "first");
        assert_string_equal(found.recipe, recipe);
    }
    { /* nothing in common */
        struct ts_view whole = make(table, TS_F32, random_values(table, 4 * 9 * 8), SHAPE(4, 9, 8));
        struct ts_view rows = make(table, TS_F32, random_values(table, 21 * 8), SHAPE(21, 8));
        struct ts_alignment found = aligned(table, &whole, &rows, NULL);
        assert_true(found.guess || found.problem);
    }
}

static void test_join(void **state)
{
    check_join(*state, SHAPE(76, 64), 1, 8, "join 8 shards on axis 1");
    check_join(*state, SHAPE(64, 30), 0, 8, "join 8 shards on axis 0");
    check_join(*state, SHAPE(1, 12, 64), 2, 4, "join 4 shards on axis 2");
}

/* Heads first in the shards, tokens first in the whole. */
static void test_join_and_layout(void **state)
{
    struct table *table = *state;
    double *values = random_values(table, 12 * 64);
    double *heads = permuted(table, values, SHAPE(12, 8, 8), (unsigned[]){1, 0, 2});
    struct ts_view whole = make(table, TS_F32, values, SHAPE(12, 64)), shards[4];
    struct ts_alignment found;
    for (size_t i = 0; i < 4; i++)
        shards[i] = make(table, TS_BF16, heads + i * 2 * 12 * 8, SHAPE(1, 2, 12, 8));
    found = joined(table, &whole, shards, 4, NULL);
    assert_found(table, &found, "A: split 1 as 8x8, swap 0 1; B: join 4 shards on axis 1, squeeze 0", 12 * 64, 0.004);
}

static void test_join_transposed_weight(void **state)
{
    static const struct ts_align_hints weights = {.weights = true};
    struct table *table = *state;
    double *values = random_values(table, 32 * 32);
    double *turned = permuted(table, values, SHAPE(32, 32), (unsigned[]){1, 0});
    struct ts_view whole = make(table, TS_F32, values, SHAPE(32, 32)), shards[4];
    struct ts_alignment found;
    for (size_t i = 0; i < 4; i++)
        shards[i] = make(table, TS_F32, turned + i * 256, SHAPE(8, 32));
    found = joined(table, &whole, shards, 4, &weights);
    assert_found(table, &found, "A: transpose; B: join 4 shards on axis 0", 1024, 0);
}

static void test_join_interleaved(void **state)
{
    struct table *table = *state;
    double *values = random_values(table, 128 * 10), part[320];
    struct ts_view whole = make(table, TS_F32, values, SHAPE(128, 10)), shards[4];
    struct ts_alignment found;
    for (int rank = 0; rank < 4; rank++) { /* heads of 8 rows; rank r has heads r, r + 4, r + 8, r + 12 */
        for (int head = 0; head < 4; head++)
            memcpy(part + head * 80, values + (rank + 4 * head) * 80, 80 * sizeof *part);
        shards[rank] = make(table, TS_BF16, part, SHAPE(32, 10));
    }
    found = joined(table, &whole, shards, 4, NULL);
    assert_found(table, &found, "A: split 0 as 4x4x8; B: join 4 shards on axis 0, heads of 8 interleaved", 1280, 0.004);
}

/* Heads on an axis of their own go round the ranks: each keeps its tokens, whichever side is in shards. */
static void test_join_heads_in_turns(void **state)
{
    struct table *table = *state;
    double *values = random_values(table, 8 * 11 * 11), part[2 * 121];
    struct ts_view whole = make(table, TS_F32, values, SHAPE(8, 11, 11)), shards[4];
    struct ts_alignment found;
    struct ts_error error;
    for (int rank = 0; rank < 4; rank++) {
        for (int head = 0; head < 2; head++)
            memcpy(part + head * 121, values + (rank + 4 * head) * 121, 121 * sizeof *part);
        shards[rank] = make(table, TS_F32, part, SHAPE(2, 11, 11));
    }
    found = joined(table, &whole, shards, 4, NULL);
    assert_found(table, &found, "B: join 4 shards on axis 0, interleaved", 968, 0);
    assert_int_equal(found.b.rank, 3);
    assert_int_equal(found.b.shape[0], 8);
    assert_int_equal(ts_align_shards(&whole, shards, 4, false, NULL, &table->arena, &found, &error), TS_OK);
    assert_found(table, &found, "A: join 4 shards on axis 0, interleaved", 968, 0);
    whole = make(table, TS_F32, values, SHAPE(11, 8, 11)); /* tokens first */
    for (int rank = 0; rank < 4; rank++) {
        for (int token = 0; token < 11; token++)
            for (int head = 0; head < 2; head++)
                memcpy(part + (token * 2 + head) * 11, values + (token * 8 + rank + 4 * head) * 11, 11 * sizeof *part);
        shards[rank] = make(table, TS_F32, part, SHAPE(11, 2, 11));
    }
    found = joined(table, &whole, shards, 4, NULL);
    assert_found(table, &found, "B: join 4 shards on axis 1, interleaved", 968, 0);
    assert_int_equal(found.b.shape[1], 8);
}

static void test_join_fused(void **state)
{
    struct table *table = *state;
    double *values = random_values(table, 96 * 10), part[24 * 10];
    struct ts_view whole = make(table, TS_F32, values, SHAPE(96, 10)), shards[4];
    struct ts_alignment found;
    for (int rank = 0; rank < 4; rank++) { /* gate and up, 48 rows each */
        memcpy(part, values + rank * 120, 120 * sizeof *part);
        memcpy(part + 120, values + 480 + rank * 120, 120 * sizeof *part);
        shards[rank] = make(table, TS_BF16, part, SHAPE(24, 10));
    }
    found = joined(table, &whole, shards, 4, NULL);
    assert_found(table, &found, "B: join 4 shards on axis 0, in 2 parts 12+12", 960, 0.004);
    for (int rank = 0; rank < 4; rank++) { /* 64 rows of q, 16 of k, 16 of v */
        memcpy(part, values + rank * 160, 160 * sizeof *part);
        memcpy(part + 160, values + 640 + rank * 40, 40 * sizeof *part);
        memcpy(part + 200, values + 800 + rank * 40, 40 * sizeof *part);
        shards[rank] = make(table, TS_F32, noisy(table, part, 240, 0.3), SHAPE(24, 10));
    }
    found = joined(table, &whole, shards, 4, NULL);
    assert_found(table, &found, "B: join 4 shards on axis 0, in 3 parts 16+4+4", 960, 0.4);
    for (int rank = 0; rank < 4; rank++) { /* 64 rows of q; two heads of 8 rows for each of k and v, so two copies */
        memcpy(part, values + rank * 160, 160 * sizeof *part);
        memcpy(part + 160, values + 640 + rank / 2 * 80, 80 * sizeof *part);
        shards[rank] = make(table, TS_F32, part, SHAPE(24, 10));
    }
    whole = make(table, TS_F32, values, SHAPE(80, 10));
    for (int rank = 0; rank < 4; rank++) { /* k is rows 64 to 71, v 72 to 79, each 4 rows to two ranks */
        memcpy(part, values + rank * 160, 160 * sizeof *part);
        memcpy(part + 160, values + 640 + rank / 2 * 40, 40 * sizeof *part);
        memcpy(part + 200, values + 720 + rank / 2 * 40, 40 * sizeof *part);
        shards[rank] = make(table, TS_F32, part, SHAPE(24, 10));
    }
    found = joined(table, &whole, shards, 4, NULL);
    assert_found(table, &found, "B: join 4 shards on axis 0, in 3 parts 16+4+4, 2 copies of each but the first", 800,
                 0);
}

static void test_join_zigzag(void **state)
{
    struct table *table = *state;
    double *values = random_values(table, 32 * 10), part[80];
    struct ts_view whole = make(table, TS_F32, values, SHAPE(32, 10)), shards[4];
    struct ts_alignment found;
    for (int rank = 0; rank < 4; rank++) {
        memcpy(part, values + rank * 40, 40 * sizeof *part);
        memcpy(part + 40, values + (7 - rank) * 40, 40 * sizeof *part);
        shards[rank] = make(table, TS_F32, part, SHAPE(8, 10));
    }
    found = joined(table, &whole, shards, 4, NULL);
    assert_found(table, &found, "B: join 4 shards on axis 0, zigzag", 320, 0);
}

static void test_partial_sums(void **state)
{
    struct table *table = *state;
    double *terms[4], *total = random_values(table, 12 * 40);
    struct ts_view whole, shards[4], rounded[4];
    struct ts_alignment found;
    memset(total, 0, 480 * sizeof *total);
    for (int rank = 0; rank < 4; rank++) {
        terms[rank] = random_values(table, 480);
        for (int i = 0; i < 480; i++)
            total[i] += terms[rank][i];
        shards[rank] = make(table, TS_F32, terms[rank], SHAPE(12, 40));
        rounded[rank] = make(table, TS_BF16, terms[rank], SHAPE(1, 12, 40));
    }
    whole = make(table, TS_F64, total, SHAPE(12, 40));
    found = joined(table, &whole, shards, 4, NULL);
    assert_found(table, &found, "B: sum of 4 shards", 480, 0);
    found = joined(table, &whole, rounded, 4, NULL);
    assert_found(table, &found, "B: sum of 4 shards, squeeze 0", 480, 0.004);
}

static void test_replicated(void **state)
{
    struct table *table = *state;
    double *values = random_values(table, 480);
    struct ts_view whole = make(table, TS_F32, values, SHAPE(12, 40)), shards[4];
    struct ts_alignment found;
    for (int rank = 0; rank < 4; rank++)
        shards[rank] = make(table, TS_BF16, values, SHAPE(12, 40));
    found = joined(table, &whole, shards, 4, NULL);
    assert_found(table, &found, "B: rank 0 of 4 equal shards", 480, 0.004);
    /* one rank went astray: said, and the others taken */
    shards[2] = make(table, TS_BF16, random_values(table, 480), SHAPE(12, 40));
    found = joined(table, &whole, shards, 4, NULL);
    assert_string_equal(found.recipe, "B: rank 0 of 4, rank 2 differs");
    assert_true(distance(table, &found) < 0.004);
    /* key heads held by two ranks each */
    for (int rank = 0; rank < 4; rank++)
        shards[rank] =
            make(table, TS_F32, sliced(table, values, SHAPE(12, 40), 1, (uint64_t)rank / 2 * 20, 20), SHAPE(12, 20));
    found = joined(table, &whole, shards, 4, NULL);
    assert_found(table, &found, "B: join 2 of 4 shards, step 2, on axis 1", 480, 0);
}

/* The last shard is padded, or some ranks are missing. */
static void test_join_and_slice(void **state)
{
    struct table *table = *state;
    double *values = random_values(table, 104 * 16);
    struct ts_view whole = make(table, TS_F32, values, SHAPE(101, 16)), shards[4];
    struct ts_alignment found;
    for (size_t i = 0; i < 4; i++)
        shards[i] = make(table, TS_BF16, values + i * 26 * 16, SHAPE(26, 16));
    found = joined(table, &whole, shards, 4, NULL);
    assert_found(table, &found, "B: join 4 shards on axis 0, take 0..101 of 104 on axis 0", 101 * 16, 0.004);
    /* columns: one shard against a piece of the whole fits as well, and is less */
    for (size_t i = 0; i < 4; i++) {
        double *part = random_values(table, 9 * 14);
        for (size_t k = 0; k < 9 * 14; k++)
            part[k] = i * 14 + k % 14 < 50 ? values[k / 14 * 50 + i * 14 + k % 14] : 0;
        shards[i] = make(table, TS_F32, part, SHAPE(9, 14));
    }
    whole = make(table, TS_F32, values, SHAPE(9, 50));
    found = joined(table, &whole, shards, 4, NULL);
    assert_found(table, &found, "B: join 4 shards on axis 1, take 0..50 of 56 on axis 1 (the rest is zero)", 9 * 50, 0);
    assert_false(found.ambiguous);
    for (size_t i = 0; i < 4; i++)
        shards[i] = make(table, TS_BF16, values + i * 26 * 16, SHAPE(26, 16));
    whole = make(table, TS_F32, values, SHAPE(104, 16));
    found = joined(table, &whole, shards, 2, NULL);
    assert_found(table, &found, "A: shard 0 of 2 on axis 0; B: join 2 shards on axis 0", 52 * 16, 0.004);
}

static void test_uneven_shards(void **state)
{
    struct table *table = *state;
    double *values = random_values(table, 101 * 16);
    struct ts_view whole = make(table, TS_F32, values, SHAPE(101, 16)), shards[3];
    struct ts_alignment found;
    shards[0] = make(table, TS_F32, values, SHAPE(34, 16));
    shards[1] = make(table, TS_F32, values + 34 * 16, SHAPE(34, 16));
    shards[2] = make(table, TS_F32, values + 68 * 16, SHAPE(33, 16));
    found = joined(table, &whole, shards, 3, NULL);
    assert_found(table, &found, "B: join 3 shards on axis 0", 101 * 16, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_slices),
        TEST(test_padding),
        TEST(test_one_of_a_batch),
        TEST(test_shard_and_layout),
        TEST(test_interleaved_and_fused_shard),
        TEST(test_repeated_heads),
        TEST(test_two_axes),
        TEST(test_one_of_a_padded_batch),
        TEST(test_packed_sequences),
        TEST(test_join),
        TEST(test_join_and_layout),
        TEST(test_join_transposed_weight),
        TEST(test_join_interleaved),
        TEST(test_join_heads_in_turns),
        TEST(test_join_fused),
        TEST(test_join_zigzag),
        TEST(test_partial_sums),
        TEST(test_replicated),
        TEST(test_join_and_slice),
        TEST(test_uneven_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
