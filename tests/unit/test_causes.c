/* Runs the tables of causes, and fails when a cause of the vocabulary has no row. */
#include <dirent.h>

#include "diagnose/family.h"
#include "test_causes.h"

static const struct table *const tables[] = {&causes_algebra,   &causes_layout,  &causes_rotary,     &causes_wiring,
                                             &causes_attention, &causes_experts, &causes_modulation, &causes_memory,
                                             &causes_types,     &causes_weights};

/* No size is a square or a power of another, so that a figure in the words can come from one of them alone. */
static const struct size sizes[] = {
    {.tokens = 12, .heads = 4, .served = 2, .head = 8, .inner = 24, .experts = 6, .chosen = 2, .seed = 11},
    {.tokens = 19,
     .heads = 4,
     .served = 2,
     .head = 24,
     .inner = 56,
     .experts = 9,
     .chosen = 3,
     .seed = 52,
     .heads_first = true},
    {.tokens = 26, .heads = 8, .served = 2, .head = 20, .inner = 72, .experts = 8, .chosen = 2, .seed = 303},
};
static const size_t size_count = sizeof sizes / sizeof *sizes;

static bool has_word(const char *words, const char *word, bool inside)
{
    size_t length;
    for (const char *at = words; at && *at; at += length + (at[length] != 0)) {
        char one[64];
        length = strcspn(at, " ");
        snprintf(one, sizeof one, "%.*s", (int)length, at);
        if (inside ? strstr(word, one) != NULL : strcmp(word, one) == 0)
            return true;
    }
    return false;
}

/* {tokens} and its like, {last} for the last token, {0} for the planter's whole numbers. */
static void fill_in(const char *words, const struct side *side, char *text, size_t room)
{
    const struct size *size = side->size;
    const struct {
        const char *name;
        size_t value;
    } known[] = {{"{tokens}", size->tokens}, {"{last}", size->tokens - 1},       {"{heads}", size->heads},
                 {"{head}", size->head},     {"{hidden}", hidden(size)},         {"{inner}", size->inner},
                 {"{half}", size->head / 2}, {"{most}", size->head * 3 / 8 * 2}, {"{served}", size->served}};
    size_t used = 0;
    while (*words && used + 32 < room) {
        size_t k = 0;
        if (words[0] == '{' && words[1] >= '0' && words[1] <= '7' && words[2] == '}') {
            used += (size_t)snprintf(text + used, room - used, "%.6g", side->told[words[1] - '0']);
            words += 3;
            continue;
        }
        while (k < sizeof known / sizeof *known && strncmp(words, known[k].name, strlen(known[k].name)) != 0)
            k++;
        if (k < sizeof known / sizeof *known) {
            used += (size_t)snprintf(text + used, room - used, "%zu", known[k].value);
            words += strlen(known[k].name);
        } else {
            text[used++] = *words++;
        }
    }
    text[used] = 0;
}

/* The words are in the text; a number {~0} behind them is there as precisely as the precision allows. */
static bool holds(const char *text, const char *words, const struct side *side, char *wanted, size_t room)
{
    const char *number = strstr(words, "{~"), *at;
    char before[256];
    snprintf(before, sizeof before, "%.*s", number ? (int)(number - words) : (int)strlen(words), words);
    fill_in(before, side, wanted, room);
    at = strstr(text, wanted);
    if (at && number) {
        double value = side->told[number[2] - '0'], found = strtod(at + strlen(wanted), NULL);
        snprintf(wanted + strlen(wanted), room - strlen(wanted), "%.6g", value);
        return fabs(found - value) <= (side->row->rough ? 2e-2 : side->precision == F32 ? 5e-4 : 5e-3) * fabs(value);
    }
    return at != NULL;
}

/* Other numbers than those of every day, to look further. */
static uint64_t other_seed(void)
{
    const char *text = getenv("TSLEUTH_TEST_SEED");
    return text ? strtoull(text, NULL, 10) : 0;
}

static void make(struct side *side, const struct row *row, const struct size *size, enum precision precision,
                 const struct side *reference, bool planted)
{
    *side = (struct side){.row = row,
                          .size = size,
                          .way = reference && planted ? &row->candidate : &row->reference,
                          .precision = reference ? precision : F32,
                          .candidate = reference != NULL,
                          .planted = planted,
                          .reference = reference,
                          .told = {row->number}};
    draw_from(size->seed + other_seed());
    row->made(side);
}

/* In its own type; half of a float is bf16. */
static void store(const struct point *point, enum ts_type type, size_t i, char *to)
{
    int64_t integer = point->integers ? (int64_t)point->values[i] : 0;
    float real = (float)point->values[i];
    uint32_t bits = ts_float_bits(real);
    uint16_t half = (uint16_t)(bits >> 16);
    if (type == TS_F16)
        half = f16_code(point->values[i]);
    if (type == TS_I64)
        memcpy(to, &integer, sizeof integer);
    else if (type == TS_F32)
        memcpy(to, &real, sizeof real);
    else
        memcpy(to, &half, sizeof half);
}

static size_t turned_place(const struct point *point, size_t i)
{
    size_t inner = (size_t)point->shape[2], heads = (size_t)point->shape[1];
    size_t row = i / inner / heads, head = i / inner % heads;
    return (head * (size_t)point->shape[0] + row) * inner + i % inner;
}

static void add_point(struct trace *trace, enum precision precision, bool heads_first, const struct point *a,
                      const struct point *b)
{
    struct ts_bundle *bundles[2] = {trace->a, trace->b};
    struct ts_pair *pair = &trace->pairs[trace->count++];
    bool turned = heads_first && a->by_head;
    assert_string_equal(a->name, b->name);
    for (int side = 0; side < 2; side++) {
        const struct point *point = side ? b : a;
        enum ts_type type = point->integers                 ? TS_I64
                            : side == 0 || precision == F32 ? TS_F32
                            : precision == BF16             ? TS_BF16
                                                            : TS_F16;
        size_t element = ts_type_info(type)->block_bytes;
        struct ts_tensor *tensor;
        struct ts_source *source;
        struct ts_error error;
        char *bytes = malloc(point->count * element);
        for (size_t i = 0; i < point->count; i++)
            store(point, type, i, bytes + (turned ? turned_place(point, i) : i) * element);
        assert_int_equal(ts_source_copy(bytes, point->count * element, point->name, &source, &error), TS_OK);
        assert_int_equal(ts_bundle_add(bundles[side], point->name, turned ? 4 : point->rank, &tensor, &error), TS_OK);
        assert_int_equal(ts_bundle_keep(bundles[side], source, &error), TS_OK);
        if (turned)
            memcpy(tensor->shape, (uint64_t[]){1, point->shape[1], point->shape[0], point->shape[2]},
                   4 * sizeof *point->shape);
        else
            memcpy(tensor->shape, point->shape, point->rank * sizeof *point->shape);
        tensor->type = type;
        tensor->source = source;
        assert_int_equal(ts_tensor_finish(tensor, &error), TS_OK);
        ts_source_release(source);
        assert_true(ts_view_of(tensor, &trace->arena, side ? &pair->b : &pair->a));
        pair->name = pair->name_b = tensor->name;
        free(bytes);
    }
    pair->how = "name";
    pair->recipe = "";
}

struct judged {
    struct trace trace;
    struct side sides[2];
    char what[200];
};

static void add_file(struct judged *judged)
{
    struct ts_bundle *file;
    struct ts_error error;
    if (!judged->sides[0].file_count)
        return;
    file = ts_bundle_new("weights");
    for (size_t w = 0; w < judged->sides[0].file_count; w++) {
        const struct point *weight = &judged->sides[0].file[w];
        float *values = malloc(weight->count * sizeof *values);
        for (size_t i = 0; i < weight->count; i++)
            values[i] = (float)weight->values[i];
        made_add(file, weight->own_name, values, weight->rank, weight->shape);
        free(values);
    }
    if (ts_evidence_make(file, NULL, NULL, &judged->trace.evidence, &error) != TS_OK)
        fail_msg("%s", error.message);
}

static void judge(struct judged *judged, const struct row *row, const struct size *size, enum precision precision,
                  bool planted)
{
    static const char *const precisions[] = {"f32", "bf16", "f16"};
    size_t index = SIZE_MAX;
    trace_start(&judged->trace);
    make(&judged->sides[0], row, size, F32, NULL, false);
    make(&judged->sides[1], row, size, precision, &judged->sides[0], planted);
    for (size_t p = 0; p < judged->sides[0].count; p++) {
        if (has_word(row->hidden, judged->sides[0].points[p].name, true))
            continue;
        if (strcmp(judged->sides[0].points[p].name, row->at) == 0)
            index = judged->trace.count;
        add_point(&judged->trace, precision, size->heads_first, &judged->sides[0].points[p],
                  &judged->sides[1].points[p]);
    }
    assert_true(index != SIZE_MAX);
    snprintf(judged->what, sizeof judged->what, "%s, %s, at %s, %zu tokens, %s", row->id ? row->id : "none",
             row->variant, row->at, size->tokens, precisions[precision]);
    add_file(judged);
    trace_diagnose(&judged->trace, index);
}

static void judged_end(struct judged *judged)
{
    for (int side = 0; side < 2; side++)
        for (size_t p = 0; p < judged->sides[side].count; p++)
            free(judged->sides[side].points[p].values);
    forget_weights();
    trace_end(&judged->trace);
}

/* Where element i of what the recipe makes stands in the candidate; SIZE_MAX when it is no recipe. */
static size_t undone(const char *recipe, size_t i, size_t count)
{
    size_t n[4];
    int end = 0, axis, found = sscanf(recipe, "reshape(%zu, %zu, %zu, %zu", &n[0], &n[1], &n[2], &n[3]);
    if (sscanf(strchr(recipe, ')'), ").transpose(%d, %*d)", &axis) == 1 && axis + 2 <= found) {
        for (int k = found; k < 4; k++)
            n[k] = 1;
        if (axis == 0) {
            n[3] = n[2];
            n[2] = n[1];
            n[1] = n[0];
            n[0] = 1;
        }
        size_t k = i % n[3], first = i / n[3] % n[1], second = i / n[3] / n[1] % n[2], outer = i / n[3] / n[1] / n[2];
        return n[0] * n[1] * n[2] * n[3] != count ? SIZE_MAX : ((outer * n[1] + first) * n[2] + second) * n[3] + k;
    }
    if (sscanf(recipe, "reshape(%zu, %zu).flip(%d)", &n[0], &n[1], &axis) == 3)
        return n[0] * n[1] != count ? SIZE_MAX
               : axis               ? i / n[1] * n[1] + n[1] - 1 - i % n[1]
                                    : (n[0] - 1 - i / n[1]) * n[1] + i % n[1];
    if (sscanf(recipe, "reshape(%zu, %zu, %zu)[:, [%n", &n[0], &n[1], &n[2], &end) == 3 && end &&
        n[0] * n[1] * n[2] == count) {
        size_t from = SIZE_MAX, block = i / n[2] % n[1];
        const char *at = recipe + end;
        for (size_t b = 0; b <= block && at; b++) { /* the block'th number of the list */
            char *next;
            from = (size_t)strtoul(at, &next, 10);
            at = *next == ',' ? next + 1 : NULL;
        }
        return from < n[1] ? (i / n[2] / n[1] * n[1] + from) * n[2] + i % n[2] : SIZE_MAX;
    }
    return SIZE_MAX;
}

/* What the advice says to do to the candidate gives the reference. */
static bool is_undone(const struct judged *judged, const char *advice)
{
    const struct point *a = NULL, *b = NULL;
    double left = 0, size = 0;
    const char *recipe = strstr(advice, "reshape(");
    for (size_t p = 0; p < judged->sides[0].count; p++)
        if (strcmp(judged->sides[0].points[p].name, judged->sides[0].row->at) == 0) {
            a = &judged->sides[0].points[p];
            b = &judged->sides[1].points[p];
        }
    for (size_t i = 0; recipe && i < a->count; i++) {
        size_t from = undone(recipe, i, a->count);
        double d = from < a->count ? b->values[from] - a->values[i] : (double)INFINITY;
        left += d * d;
        size += a->values[i] * a->values[i];
    }
    /* values are held tokens first, and where they are not stored so it must be said */
    if (judged->sides[0].size->heads_first && a->by_head && !strstr(advice, "with the token axis first"))
        return false;
    return recipe && left < 1e-4 * size;
}

/* Returns whether the fault was named with its figures, and says what was found when it was not. */
static bool is_named(const struct row *row, const struct size *size, enum precision precision)
{
    struct judged judged;
    const struct ts_cause *first;
    const char *lacks = NULL;
    char text[256] = "";
    bool good;
    judge(&judged, row, size, precision, true);
    first = judged.trace.diagnosis.count ? &judged.trace.diagnosis.causes[0] : NULL;
    good = row->id ? first && strcmp(first->id, row->id) == 0 && first->confidence > 0.3 && first->confidence <= 1
                   : !first && judged.trace.diagnosis.strongest;
    for (size_t w = 0; good && w < sizeof row->words / sizeof *row->words && row->words[w]; w++) {
        if (!holds(row->id ? first->summary : judged.trace.diagnosis.strongest, row->words[w], &judged.sides[1], text,
                   sizeof text))
            lacks = "summary";
        if (lacks)
            break;
    }
    if (good && !lacks && row->check) {
        lacks = row->id && holds(first->check, row->check, &judged.sides[1], text, sizeof text) ? NULL : "advice";
    }
    if (good && !lacks && row->undo && !is_undone(&judged, first->check))
        lacks = "advice that undoes it";
    for (size_t i = 1; good && !lacks && i < judged.trace.diagnosis.count; i++)
        if (!has_word(row->beside, judged.trace.diagnosis.causes[i].id, false)) {
            lacks = "list of what may be said beside it";
            snprintf(text, sizeof text, "%s", judged.trace.diagnosis.causes[i].id);
        }
    if (!good || lacks || getenv("TSLEUTH_TEST_ROW")) {
        print_message("# %s %s%s%s%s%s\n", good && !lacks ? "good" : "POWER", judged.what, lacks ? ": no \"" : "",
                      lacks ? text : "", lacks ? "\" in the " : "", lacks ? lacks : "");
        trace_print(&judged.trace);
        if (first)
            print_message("# check: %s\n", first->check);
    }
    judged_end(&judged);
    return good && !lacks;
}

/* Without the fault nothing is said but that it is rounded. */
static bool is_silent(const struct row *row, const struct size *size, enum precision precision)
{
    struct judged judged;
    bool good = true;
    judge(&judged, row, size, precision, false);
    for (size_t i = 0; i < judged.trace.diagnosis.count; i++)
        good = good && strcmp(judged.trace.diagnosis.causes[i].id, "rounding") == 0;
    if (!good) {
        print_message("# SILENCE %s\n", judged.what);
        trace_print(&judged.trace);
    }
    judged_end(&judged);
    return good;
}

/* An earlier row has the same run without its fault. */
static bool was_silent(const struct table *table, size_t r)
{
    const struct row *row = &table->rows[r];
    for (size_t e = 0; e < r; e++) {
        const struct row *other = &table->rows[e];
        if (other->made == row->made && strcmp(other->at, row->at) == 0 &&
            strcmp(other->hidden ? other->hidden : "", row->hidden ? row->hidden : "") == 0 &&
            memcmp(&other->reference, &row->reference, sizeof row->reference) == 0)
            return true;
    }
    return false;
}

static void run_table(const struct table *table)
{
    const char *only = getenv("TSLEUTH_TEST_ROW"); /* a part of a variant's name: these alone, and what is said */
    size_t bad = 0;
    for (size_t r = 0; r < table->count; r++) {
        const struct row *row = &table->rows[r];
        if (only && !strstr(row->variant, only))
            continue;
        for (size_t s = 0; s < size_count; s++)
            for (int precision = F32; precision <= F16; precision++) {
                if (precision == F16 && row->wide)
                    continue;
                /* in each size and each precision some */
                if (SANITIZED && (r % size_count != s || (precision != F32 && (r / size_count) % 2 == 0)))
                    continue;
                /* every day two of the three for each size; with other numbers all of them */
                if (precision == F32 || (!row->clean && (other_seed() || (precision == F16) == (s == 1))))
                    bad += !is_named(row, &sizes[s], (enum precision)precision);
                if (only || !was_silent(table, r))
                    bad += !is_silent(row, &sizes[s], (enum precision)precision);
            }
    }
    if (bad)
        fail_msg("%s: %zu times something else was said", table->name, bad);
}

#define RUN(name)                                                                                                      \
    static void test_##name(void **state)                                                                              \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        run_table(&causes_##name);                                                                                     \
    }

RUN(algebra)
RUN(layout)
RUN(rotary)
RUN(wiring)
RUN(attention)
RUN(experts)
RUN(modulation)
RUN(memory)
RUN(types)
RUN(weights)

/* The words are ids of the vocabulary, and none is the row's own. */
static void are_others(const struct table *table, const struct row *row, const char *words)
{
    for (const char *at = words; at && *at;) {
        char one[64];
        size_t size = strcspn(at, " ");
        snprintf(one, sizeof one, "%.*s", (int)size, at);
        at += size + (at[size] != 0);
        if (!is_of_the_vocabulary(one) || (row->id && strcmp(one, row->id) == 0))
            fail_msg("%s, %s: \"%s\"", table->name, row->variant, one);
    }
}

static char *text_of(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text;
    long length;
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    length = ftell(file);
    rewind(file);
    assert_true(length > 0);
    text = calloc((size_t)length + 1, 1);
    assert_int_equal(fread(text, 1, (size_t)length, file), (size_t)length);
    fclose(file);
    return text;
}

/* How often the manual has the id: in lines that begin so, before they or their first cell end. With no id every word
 * there must be one. */
static size_t in_manual(const char *manual, const char *begin, const char *id)
{
    size_t found = 0;
    for (const char *line = manual; line; line = strchr(line, '\n'), line += line != NULL)
        if (strncmp(line, begin, strlen(begin)) == 0) {
            const char *at = line + strlen(begin), *end = at + strcspn(at, "|\n");
            if (strncmp(at, "none of these", 13) == 0 || strncmp(at, "---", 3) == 0 || strncmp(at, "id ", 3) == 0)
                continue;
            while (at < end) {
                char one[64];
                size_t length = strcspn(at, " ,|\n");
                snprintf(one, sizeof one, "%.*s", (int)length, at);
                at += length + strspn(at + length, " ,");
                if (!id && !is_of_the_vocabulary(one))
                    fail_msg("docs/causes.md has \"%s\", which is not of the vocabulary", one);
                found += id && strcmp(one, id) == 0;
            }
        }
    return found;
}

/* Every id has a row that plants it, another that could be taken for it, a line and a chapter in the manual; and the
 * manual has no others. */
static void test_vocabulary(void **state)
{
    char *manual = text_of("docs/causes.md"), *list = strstr(manual, "| id |"),
         *end = list ? strstr(list, "\n\n") : NULL;
    (void)state;
    assert_non_null(end);
    *end++ = 0;
    for (size_t i = 0; ts_cause_id(i); i++) {
        const char *id = ts_cause_id(i);
        size_t planted = 0, near = 0, listed = in_manual(list, "| ", id), described = in_manual(end, "### ", id);
        for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
            for (size_t r = 0; r < tables[t]->count; r++) {
                const struct row *row = &tables[t]->rows[r];
                bool own = row->id && strcmp(row->id, id) == 0;
                planted += own;
                near += !own && has_word(row->near, id, false);
            }
        if (!planted || !near || listed != 1 || described != 1)
            fail_msg("%s: %zu rows that plant it, %zu that are near it, %zu lines and %zu chapters in docs/causes.md",
                     id, planted, near, listed, described);
    }
    (void)in_manual(list, "| ", NULL);
    (void)in_manual(end, "### ", NULL);
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (size_t r = 0; r < tables[t]->count; r++) {
            const struct row *row = &tables[t]->rows[r];
            if (row->id && !is_of_the_vocabulary(row->id))
                fail_msg("%s: %s is not of the vocabulary", tables[t]->name, row->id);
            are_others(tables[t], row, row->near);
            are_others(tables[t], row, row->beside);
        }
    free(manual);
}

/* A family that is written down is asked. */
static void test_families(void **state)
{
    static const char begin[] = "\nconst struct ts_family ts_family_";
    DIR *folder = opendir("src/diagnose");
    size_t found = 0, listed = 0;
    (void)state;
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[512], name[64];
        const char *at;
        char *text;
        size_t length = strlen(entry->d_name), f = 0;
        if (length < 2 || strcmp(entry->d_name + length - 2, ".c") != 0)
            continue;
        snprintf(path, sizeof path, "src/diagnose/%s", entry->d_name);
        text = text_of(path);
        at = strstr(text, begin);
        if (at) {
            at += strlen(begin);
            snprintf(name, sizeof name, "%.*s", (int)strcspn(at, " "), at);
            while (ts_families[f] && strcmp(ts_families[f]->name, name) != 0)
                f++;
            if (!ts_families[f])
                fail_msg("%s is not in the list of families", name);
            found++;
        }
        free(text);
    }
    closedir(folder);
    while (ts_families[listed])
        listed++;
    assert_int_equal(found, listed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vocabulary), cmocka_unit_test(test_families), cmocka_unit_test(test_algebra),
        cmocka_unit_test(test_layout),     cmocka_unit_test(test_rotary),   cmocka_unit_test(test_wiring),
        cmocka_unit_test(test_attention),  cmocka_unit_test(test_experts),  cmocka_unit_test(test_modulation),
        cmocka_unit_test(test_memory),     cmocka_unit_test(test_types),    cmocka_unit_test(test_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
