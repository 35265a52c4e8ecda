/* Walks tests/malformed: every file there is hostile or broken in one named way, and beside it NAME.expect holds the
 * text that opening it must give: in the error, in the reason of a skipped member, or in a finding. An empty .expect
 * means that the file opens and nothing of value is skipped. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/text.h"
#include "read/open.h"

static char *expected_text(const char *path)
{
    char name[2048];
    static char text[2048];
    FILE *file;
    size_t size;
    snprintf(name, sizeof name, "%s.expect", path);
    file = fopen(name, "r");
    if (!file)
        return NULL;
    size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    while (size && (text[size - 1] == '\n' || text[size - 1] == '\r'))
        size--;
    text[size] = '\0';
    return text;
}

/* Everything a person would be told, in one text. */
static void told(const char *path, struct ts_buffer *out, bool *clean)
{
    struct ts_bundle *bundle;
    struct ts_error error;
    struct ts_open_options options = {.spool_limit = (uint64_t)256 << 20};
    ts_error_clear(&error);
    *clean = true;
    if (ts_open(path, &options, &bundle, &error) != TS_OK) {
        *clean = false;
        ts_buffer_printf(out, "%s: %s: %s", error.path, error.tensor, error.message);
        assert_int_not_equal(error.status, TS_OK);
        assert_null(bundle);
        return;
    }
    for (size_t i = 0; i < bundle->skip_count; i++) {
        *clean = *clean && bundle->skips[i].harmless;
        ts_buffer_printf(out, "%s: %s\n", bundle->skips[i].path, bundle->skips[i].reason);
    }
    for (size_t i = 0; i < bundle->finding_count; i++)
        ts_buffer_printf(out, "%s: %s\n", bundle->findings[i].tensor ? bundle->findings[i].tensor : "",
                         bundle->findings[i].text);
    for (size_t i = 0; i < bundle->count; i++) {
        /* what was listed must be readable to its last element */
        double value[2];
        struct ts_tensor *tensor = bundle->tensors[i];
        if (tensor->count) {
            assert_int_equal(ts_tensor_read_f64(tensor, 0, 1, value, &error), TS_OK);
            assert_int_equal(ts_tensor_read_f64(tensor, tensor->count - 1, 1, value, &error), TS_OK);
        }
    }
    ts_bundle_free(bundle);
}

static unsigned wrong;

static void check_file(const char *path)
{
    const char *expected = expected_text(path);
    struct ts_buffer text;
    bool clean;
    if (!expected) {
        print_error("%s has no .expect beside it\n", path);
        wrong++;
        return;
    }
    ts_buffer_init(&text, (size_t)16 << 20);
    told(path, &text, &clean);
    if (expected[0] ? !text.data || !strstr(text.data, expected) : !clean) {
        print_error("%s\n  expected: %s\n  told:     %s\n", path, expected[0] ? expected : "(opens)",
                    text.data ? text.data : "(nothing)");
        wrong++;
    }
    ts_buffer_release(&text);
}

static void check_format(void **state)
{
    const char *format = *state;
    char folder[512], path[1024];
    struct dirent **entries;
    int count, files = 0;
    snprintf(folder, sizeof folder, "tests/malformed/%s", format);
    count = scandir(folder, &entries, NULL, alphasort);
    assert_true(count >= 0);
    wrong = 0;
    for (int i = 0; i < count; i++) {
        if (entries[i]->d_name[0] != '.' && !ts_ends_with(entries[i]->d_name, ".expect")) {
            snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
            check_file(path);
            files++;
        }
        free(entries[i]);
    }
    free(entries);
    assert_int_equal(wrong, 0);
    assert_true(files > 0);
}

int main(void)
{
    struct CMUnitTest tests[64];
    static char names[64][256];
    struct dirent **entries;
    size_t used = 0;
    int count = scandir("tests/malformed", &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char path[512];
        struct stat info;
        snprintf(path, sizeof path, "tests/malformed/%s", entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && stat(path, &info) == 0 && S_ISDIR(info.st_mode) &&
            strcmp(entries[i]->d_name, "__pycache__") != 0 && used < 64) {
            snprintf(names[used], sizeof names[used], "%s", entries[i]->d_name);
            tests[used] = (struct CMUnitTest){names[used], check_format, NULL, NULL, names[used]};
            used++;
        }
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    return used ? _cmocka_run_group_tests("malformed", tests, used, NULL, NULL) : 1;
}
