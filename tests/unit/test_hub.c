/* hf:// against a small cache laid out as huggingface_hub does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "io/hub.h"
#include "scratch.h"

#define COMMIT_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define COMMIT_B "0123456789abcdef0123456789abcdef01234567"

static struct ts_error error;
static char path[4096];

static void clear_environment(void)
{
    unsetenv("HF_HUB_CACHE");
    unsetenv("HUGGINGFACE_HUB_CACHE");
    unsetenv("HF_HOME");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", scratch_path("nobody"), 1);
}

static int make_cache(void **state)
{
    if (scratch_make(state) != 0)
        return -1;
    scratch_text("hub/models--owner--name/refs/main", COMMIT_A);
    scratch_text("hub/models--owner--name/refs/v1.0", COMMIT_B "\n");
    scratch_text("hub/models--owner--name/refs/refs/pr/7", COMMIT_B);
    scratch_text("hub/models--owner--name/refs/feature/x", COMMIT_A);
    scratch_text("hub/models--owner--name/refs/gone", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb");
    scratch_text("hub/models--owner--name/refs/evil", "../../../../../../../../etc");
    scratch_text("hub/models--owner--name/snapshots/" COMMIT_A "/model.safetensors", "a");
    scratch_text("hub/models--owner--name/snapshots/" COMMIT_A "/sub/x.bin", "x");
    scratch_text("hub/models--owner--name/snapshots/" COMMIT_B "/model.safetensors", "b");
    scratch_text("hub/models--gpt2/refs/main", COMMIT_A);
    scratch_text("hub/models--gpt2/snapshots/" COMMIT_A "/config.json", "{}");
    scratch_text("hub/datasets--owner--name/refs/main", COMMIT_B);
    scratch_text("hub/datasets--owner--name/snapshots/" COMMIT_B "/d.npy", "d");
    clear_environment();
    return 0;
}

static void resolves_to(const char *url, const char *expected)
{
    if (ts_hub_resolve(url, path, sizeof path, &error) != TS_OK)
        fail_msg("%s: %s", url, error.message);
    if (strncmp(path, scratch, strlen(scratch)) != 0 || strcmp(path + strlen(scratch) + 1, expected) != 0)
        fail_msg("%s: %s, expected .../%s", url, path, expected);
}

static void fails_with(const char *url, enum ts_status status, const char *message)
{
    assert_int_equal(ts_hub_resolve(url, path, sizeof path, &error), status);
    if (!strstr(error.message, message))
        fail_msg("%s: \"%s\" lacks \"%s\"", url, error.message, message);
}

static void finds_what_is_there(void **state)
{
    (void)state;
    setenv("HF_HUB_CACHE", scratch_path("hub"), 1);
    resolves_to("hf://owner/name", "hub/models--owner--name/snapshots/" COMMIT_A);
    resolves_to("hf://owner/name/", "hub/models--owner--name/snapshots/" COMMIT_A);
    resolves_to("hf://models/owner/name", "hub/models--owner--name/snapshots/" COMMIT_A);
    resolves_to("hf://owner/name/sub/x.bin", "hub/models--owner--name/snapshots/" COMMIT_A "/sub/x.bin");
    resolves_to("hf://owner/name@main/sub", "hub/models--owner--name/snapshots/" COMMIT_A "/sub");
    resolves_to("hf://owner/name@v1.0/model.safetensors",
                "hub/models--owner--name/snapshots/" COMMIT_B "/model.safetensors");
    resolves_to("hf://owner/name@" COMMIT_B, "hub/models--owner--name/snapshots/" COMMIT_B);
    resolves_to("hf://owner/name@refs/pr/7/model.safetensors",
                "hub/models--owner--name/snapshots/" COMMIT_B "/model.safetensors");
    resolves_to("hf://owner/name@feature%2Fx/sub", "hub/models--owner--name/snapshots/" COMMIT_A "/sub");
    resolves_to("hf://datasets/owner/name/d.npy", "hub/datasets--owner--name/snapshots/" COMMIT_B "/d.npy");
    resolves_to("hf://gpt2", "hub/models--gpt2/snapshots/" COMMIT_A);
    resolves_to("hf://gpt2/config.json", "hub/models--gpt2/snapshots/" COMMIT_A "/config.json");
    resolves_to("hf://models/gpt2/config.json", "hub/models--gpt2/snapshots/" COMMIT_A "/config.json");
    resolves_to("hf://gpt2@main/config.json", "hub/models--gpt2/snapshots/" COMMIT_A "/config.json");
    clear_environment();
}

static void cache_folder_in_the_order_of_the_python_library(void **state)
{
    (void)state;
    scratch_text("home/.cache/huggingface/hub/models--a--b/snapshots/" COMMIT_A "/x", "");
    scratch_text("xdg/huggingface/hub/models--a--b/snapshots/" COMMIT_A "/x", "");
    scratch_text("hfhome/hub/models--a--b/snapshots/" COMMIT_A "/x", "");
    scratch_text("old/models--a--b/snapshots/" COMMIT_A "/x", "");
    scratch_text("new/models--a--b/snapshots/" COMMIT_A "/x", "");
    setenv("HOME", scratch_path("home"), 1);
    resolves_to("hf://a/b@" COMMIT_A, "home/.cache/huggingface/hub/models--a--b/snapshots/" COMMIT_A);
    setenv("XDG_CACHE_HOME", scratch_path("xdg"), 1);
    resolves_to("hf://a/b@" COMMIT_A, "xdg/huggingface/hub/models--a--b/snapshots/" COMMIT_A);
    setenv("HF_HOME", scratch_path("hfhome"), 1);
    resolves_to("hf://a/b@" COMMIT_A, "hfhome/hub/models--a--b/snapshots/" COMMIT_A);
    setenv("HUGGINGFACE_HUB_CACHE", scratch_path("old"), 1);
    resolves_to("hf://a/b@" COMMIT_A, "old/models--a--b/snapshots/" COMMIT_A);
    setenv("HF_HUB_CACHE", scratch_path("new"), 1);
    resolves_to("hf://a/b@" COMMIT_A, "new/models--a--b/snapshots/" COMMIT_A);
    setenv("HF_HUB_CACHE", "~/.cache/huggingface/hub", 1);
    resolves_to("hf://a/b@" COMMIT_A, "home/.cache/huggingface/hub/models--a--b/snapshots/" COMMIT_A);
    clear_environment();
}

static void says_how_to_get_what_is_missing(void **state)
{
    (void)state;
    setenv("HF_HUB_CACHE", scratch_path("hub"), 1);
    fails_with("hf://nobody/nothing", TS_ERR_IO,
               "\"nobody/nothing\" is not in the local Hugging Face cache (looked in ");
    fails_with("hf://nobody/nothing", TS_ERR_IO, scratch_path("hub"));
    fails_with("hf://nobody/nothing/x/y", TS_ERR_IO, "download it with: hf download nobody/nothing");
    fails_with("hf://datasets/a/b", TS_ERR_IO, "hf download a/b --repo-type dataset");
    fails_with("hf://nothing", TS_ERR_IO, "\"nothing\" is not in");
    fails_with("hf://owner/name@v2", TS_ERR_IO, "not its revision v2 (there is: ");
    fails_with("hf://owner/name@v2", TS_ERR_IO, "v1.0");
    fails_with("hf://owner/name@v2", TS_ERR_IO, "0123456789ab");
    fails_with("hf://owner/name@v2", TS_ERR_IO, "hf download owner/name --revision v2");
    fails_with("hf://owner/name@gone", TS_ERR_IO, "not its revision gone");
    fails_with("hf://owner/name@evil", TS_ERR_IO, "not its revision evil"); /* what the file says is no commit */
    fails_with("hf://owner/name@refs", TS_ERR_IO, "not its revision refs");
    fails_with("hf://owner/name/none.bin", TS_ERR_IO, "but without none.bin");
    fails_with("hf://owner/name/none.bin", TS_ERR_IO, "hf download owner/name none.bin");
    clear_environment();
}

static void refuses_what_is_no_place(void **state)
{
    static const char *const urls[] = {
        "hf://",
        "hf:///",
        "hf:///name",
        "hf://owner//name",
        "hf://..",
        "hf://../..",
        "hf://owner/..",
        "hf://owner/na--me",
        "hf://owner/na me",
        "hf://owner/na\x1bme",
        "hf://owner/name@",
        "hf://owner/name@/x",
        "hf://owner/name@..",
        "hf://owner/name@..%2F..",
        "hf://owner/name@a%2Fb%2F..",
        "hf://owner/name@a b",
        "hf://owner/name/../../x",
        "hf://owner/name//x",
        "hf://owner/name/x/",
        "hf://owner/name/./x",
        "hf://owner/name/a\\b",
        "hf://owner/name/a\nb",
        "hf://@main",
        "http://owner/name",
    };
    (void)state;
    setenv("HF_HUB_CACHE", scratch_path("hub"), 1);
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++)
        fails_with(urls[i], TS_ERR_USAGE, "is no place on the hub");
    assert_true(ts_hub_is_url("hf://x"));
    assert_false(ts_hub_is_url("hf:/x"));
    clear_environment();
}

static void names_of_any_length(void **state)
{
    char url[2048], shorter[64];
    (void)state;
    setenv("HF_HUB_CACHE", scratch_path("hub"), 1);
    for (size_t length = 1; length < 400; length++) {
        memcpy(url, "hf://", 5);
        memset(url + 5, 'n', length);
        url[5 + length] = '/';
        memset(url + 6 + length, 'm', length);
        url[6 + 2 * length] = '@';
        memset(url + 7 + 2 * length, 'r', length);
        url[7 + 3 * length] = '\0';
        assert_int_equal(ts_hub_resolve(url, path, sizeof path, &error), length <= 96 ? TS_ERR_IO : TS_ERR_USAGE);
    }
    assert_int_equal(ts_hub_resolve("hf://owner/name", shorter, 20, &error), TS_ERR_IO);
    assert_non_null(strstr(error.message, "too long"));
    clear_environment();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_is_there),
        cmocka_unit_test(cache_folder_in_the_order_of_the_python_library),
        cmocka_unit_test(says_how_to_get_what_is_missing),
        cmocka_unit_test(refuses_what_is_no_place),
        cmocka_unit_test(names_of_any_length),
    };
    return cmocka_run_group_tests_name("hub", tests, make_cache, scratch_remove);
}
