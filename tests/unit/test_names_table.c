/* The names of llama.cpp against those of the files it is made from: tests/golden/names/weights.txt has what every name
 * means by itself, families.txt models whose names mean something only beside others. Tensors of a family have one
 * shape and unrelated values, so that nothing but names can bring them together. */
#include "made_bundle.h"
#include "pair/names.h"

#define MOST 8192

static char line[MOST];

static FILE *open_table(const char *path)
{
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("%s is missing", path);
    return file;
}

static bool read_line(FILE *file)
{
    if (!fgets(line, sizeof line, file))
        return false;
    assert_true(strlen(line) + 1 < sizeof line);
    line[strcspn(line, "\n")] = '\0';
    return true;
}

/* The text with every '#' replaced by the number. */
static void with_number(const char *text, int number, char *out, size_t room)
{
    size_t used = 0;
    for (; *text && used + 16 < room; text++)
        used += (size_t)(*text == '#' ? snprintf(out + used, room - used, "%d", number)
                                      : snprintf(out + used, room - used, "%c", *text));
    out[used] = '\0';
}

static struct ts_name name_of(const char *name, struct ts_arena *arena)
{
    struct ts_names names;
    assert_true(ts_names_make(&name, 1, 0, arena, &names));
    return names.list[0];
}

static size_t check_names(const char *one, const char *other)
{
    struct ts_arena arena;
    struct ts_name left, right;
    ts_arena_init(&arena, (size_t)16 << 20);
    left = name_of(one, &arena);
    right = name_of(other, &arena);
    if (!left.weight || !right.weight || left.layer != right.layer || strcmp(left.kind, right.kind) != 0)
        fail_msg("%s is layer %ld, %s; %s is layer %ld, %s", one, (long)left.layer, left.kind, other, (long)right.layer,
                 right.kind);
    ts_arena_release(&arena);
    return 1;
}

/* "blk.#.attn_q: self_attn.q_proj attention.wq ...": inside of layers without the words before and the number. With '='
 * in front the other side has no ending, or one that belongs to the name. */
static void test_weights_by_themselves(void **state)
{
    FILE *file = open_table("tests/golden/names/weights.txt");
    size_t pairs = 0, lines = 0;
    (void)state;
    while (read_line(file)) {
        char *kind = line, *at = strchr(line, ':'), *next;
        assert_non_null(at);
        *at = '\0';
        lines++;
        for (char *word = strtok_r(at + 1, " ", &next); word; word = strtok_r(NULL, " ", &next)) {
            const bool bare = *word == '=', layer = strncmp(kind, "blk.", 4) == 0 && !strchr(word, '#');
            const bool bias = bare && strncmp(strrchr(kind, '.') ? strrchr(kind, '.') : "", ".exp_probs_b", 12) == 0;
            for (int ending = 0; ending < (bare ? 1 : 2); ending++) {
                char one[512], other[512], numbered_one[512], numbered_other[512];
                assert_in_range(snprintf(one, sizeof one, "%s%s", kind, ending || bias ? ".bias" : ".weight"), 1,
                                sizeof one - 1);
                snprintf(other, sizeof other, "%s%s%s", layer ? "model.layers.#." : "", word + bare,
                         bare     ? ""
                         : ending ? ".bias"
                                  : ".weight");
                with_number(one, 3, numbered_one, sizeof numbered_one);
                with_number(other, 3, numbered_other, sizeof numbered_other);
                pairs += check_names(numbered_one, numbered_other);
            }
        }
    }
    fclose(file);
    assert_true(lines > 400 && pairs > 2000);
}

static void add_one(struct ts_bundle *bundle, const char *name)
{
    float *values = made_values(64);
    made_add(bundle, name, values, SHAPE(8, 8));
    free(values);
}

struct family {
    struct paired paired;
    char names[256][2][160];
    size_t count;
    char title[64];
};

static void add_pair(struct family *family, const char *one, const char *other, int number)
{
    char(*names)[160] = family->names[family->count];
    assert_true(family->count < 256);
    with_number(one, number, names[0], sizeof names[0]);
    with_number(other, number, names[1], sizeof names[1]);
    add_one(family->paired.a, names[0]);
    add_one(family->paired.b, names[1]);
    family->count++;
}

static void add_alone(struct family *family, const char *name, int number)
{
    char numbered[160];
    with_number(name, number, numbered, sizeof numbered);
    add_one(family->paired.b, numbered);
}

static void check_family(struct family *family, bool turned)
{
    const struct ts_pair_options options = {.by_content = false};
    struct paired *paired = &family->paired;
    if (turned) {
        struct ts_bundle *a = paired->a;
        paired->a = paired->b;
        paired->b = a;
    }
    paired_run(paired, &options);
    assert_int_equal(paired->status, TS_OK);
    for (size_t i = 0; i < family->count; i++) {
        bool met = false;
        for (size_t k = 0; k < paired->pairing.count; k++) {
            const struct ts_pair *pair = &paired->pairing.pairs[k];
            const char *one = turned ? pair->name_b : pair->name, *other = turned ? pair->name : pair->name_b;
            if (strcmp(one, family->names[i][0]) != 0)
                continue;
            met = true;
            if (strcmp(other, family->names[i][1]) != 0)
                fail_msg("%s: %s goes with %s instead of %s", family->title, one, other, family->names[i][1]);
        }
        if (!met)
            fail_msg("%s: %s and %s do not meet", family->title, family->names[i][0], family->names[i][1]);
    }
    assert_int_equal(paired->pairing.count, family->count);
    ts_pairing_release(&paired->pairing);
}

static void end_family(struct family *family, size_t *families)
{
    struct ts_error error;
    if (!family->count)
        return;
    assert_int_equal(ts_bundle_meta(family->paired.a, "general.architecture", family->title, &error), TS_OK);
    check_family(family, false);
    check_family(family, true);
    ts_bundle_free(family->paired.a);
    ts_bundle_free(family->paired.b);
    family->count = 0;
    ++*families;
}

static void test_families(void **state)
{
    static struct family family;
    FILE *file = open_table("tests/golden/names/families.txt");
    size_t families = 0;
    bool more;
    (void)state;
    do {
        char *other;
        more = read_line(file);
        if (!more || !line[0]) {
            end_family(&family, &families);
        } else if (line[0] != '#' && !(other = strchr(line, ' '))) {
            assert_in_range(snprintf(family.title, sizeof family.title, "%s", line), 1, sizeof family.title - 1);
            paired_start(&family.paired);
        } else if (line[0] != '#') {
            const bool alone = line[0] == '-';
            *other++ = '\0';
            for (int layer = 0; layer < (strchr(other, '#') ? 2 : 1); layer++)
                alone ? add_alone(&family, other, layer) : add_pair(&family, line, other, layer);
        }
    } while (more);
    fclose(file);
    assert_true(families > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_by_themselves),
        cmocka_unit_test(test_families),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
