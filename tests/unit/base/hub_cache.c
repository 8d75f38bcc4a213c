/* base/hub_cache.h: which names and revisions lead to which folder, and that none leads out of the cache. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hub_cache.h"
#include "support/temporary.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"

static char root[160];
static const char *const variables[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME",
                                        "HOME"};

static const char *at(const char *name)
{
    static char path[4][512];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", root, name);
    return path[next];
}

static void put(const char *name, const char *text)
{
    assert_int_equal(tt_file_write_atomic(at(name), text, strlen(text)), TT_OK);
}

static int fresh(void **state)
{
    (void)state;
    test_temporary(root, sizeof root, "tt-hub-XXXXXX");
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
    return mkdtemp(root) != NULL ? 0 : -1;
}

static int clean(void **state)
{
    (void)state;
    return tt_dir_remove(root) == TT_OK ? 0 : -1;
}

static void make_repository(const char *folder)
{
    char path[200];
    snprintf(path, sizeof path, "%s/snapshots/" COMMIT, folder);
    assert_int_equal(tt_dir_create(at(path)), TT_OK);
    snprintf(path, sizeof path, "%s/refs", folder);
    assert_int_equal(tt_dir_create(at(path)), TT_OK);
    snprintf(path, sizeof path, "%s/refs/main", folder);
    put(path, COMMIT);
}

static void assert_found(const char *kind, const char *name, const char *revision, const char *wanted)
{
    char *folder = NULL;
    assert_int_equal(tt_hub_find(kind, name, revision, &folder), TT_OK);
    if (wanted == NULL && folder != NULL) fail_msg("%s leads to %s", name, folder);
    if (wanted != NULL && folder == NULL) fail_msg("%s is not found", name);
    if (wanted != NULL) assert_string_equal(folder, at(wanted));
    tt_free(folder);
}

static void names(void **state)
{
    (void)state;
    static const char *const good[] = {"gpt2", "owner/name", "Qwen/Qwen2.5-0.5B", "a_b/c.d-e_f", "0/1"};
    static const char *const bad[] = {"",      "/x",    "x/",   "a/b/c", "../x", "x/..",    "a--b", "a/b--c",
                                      ".x",    "x/.y",  "./x",  "a b",   "x/$y", "-x/y",    "x/y-", "a..b/c",
                                      "x/y\n", "~/x/y", "x\\y", "x/'y'", "x/y;", "\xc3\xa9"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) assert_true(tt_hub_is_name(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (tt_hub_is_name(bad[i])) fail_msg("'%s' is a name", bad[i]);
}

static void revisions(void **state)
{
    (void)state;
    make_repository("models--owner--name");
    make_repository("models--single");
    make_repository("datasets--owner--name");
    assert_int_equal(tt_dir_create(at("models--owner--name/refs/refs/pr")), TT_OK);
    put("models--owner--name/refs/refs/pr/1", COMMIT "\n");
    put("models--owner--name/refs/gone", "ffffffffffffffffffffffffffffffffffffffff");
    put("models--owner--name/refs/empty", "");
    put("models--owner--name/refs/out", "../../models--single/snapshots/" COMMIT);
    put("models--owner--name/refs/up", "..");
    assert_int_equal(setenv("HF_HUB_CACHE", root, 1), 0);
    static const char folder[] = "models--owner--name/snapshots/" COMMIT;
    assert_found("models", "owner/name", NULL, folder);
    assert_found("models", "owner/name", "main", folder);
    assert_found("models", "owner/name", COMMIT, folder);
    assert_found("models", "owner/name", "refs/pr/1", folder);
    assert_found("models", "single", NULL, "models--single/snapshots/" COMMIT);
    assert_found("datasets", "owner/name", NULL, "datasets--owner--name/snapshots/" COMMIT);
    static const char *const missing[] = {"gone", "empty", "out", "up", "..", "../../x", "/etc", "v1.0", ""};
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        assert_found("models", "owner/name", missing[i], NULL);
    assert_found("models", "owner/other", NULL, NULL);
    assert_found("models", "../models--single", NULL, NULL);
}

/* The variable that says the most wins. */
static void places(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value, *cache;
    } steps[] = {{"HOME", "home", "home/.cache/huggingface/hub"},
                 {"XDG_CACHE_HOME", "xdg", "xdg/huggingface/hub"},
                 {"HF_HOME", "hf", "hf/hub"},
                 {"HUGGINGFACE_HUB_CACHE", "old", "old"},
                 {"HF_HUB_CACHE", "new", "new"}};
    char folder[200], wanted[256];
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        snprintf(folder, sizeof folder, "%s/models--m", steps[i].cache);
        make_repository(folder);
        assert_int_equal(setenv(steps[i].name, at(steps[i].value), 1), 0);
        snprintf(wanted, sizeof wanted, "%s/snapshots/" COMMIT, folder);
        assert_found("models", "m", NULL, wanted);
    }
    assert_int_equal(setenv("HF_HUB_CACHE", "~/.cache/huggingface/hub", 1), 0);
    assert_found("models", "m", NULL, "home/.cache/huggingface/hub/models--m/snapshots/" COMMIT);
}

static void messages(void **state)
{
    (void)state;
    char *folder = NULL, name[64];
    assert_int_equal(setenv("HF_HUB_CACHE", root, 1), 0);
    assert_int_equal(tt_hub_locate("owner/name", "v2", "model", &folder), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, root));
    assert_non_null(strstr(tt_error_last()->hint, "hf download owner/name --revision v2"));
    assert_int_equal(tt_hub_locate("/nowhere/at/all", NULL, "adapter", &folder), TT_ERR_DATA);
    assert_null(strstr(tt_error_last()->hint, "hf download"));
    assert_null(folder);
    assert_int_equal(tt_hub_locate(root, NULL, "model", &folder), TT_OK);
    assert_string_equal(folder, root);
    tt_free(folder);
    assert_string_equal(tt_hub_name_of("/c/models--owner--the-name/snapshots/" COMMIT, name, sizeof name),
                        "the-name");
    assert_string_equal(tt_hub_name_of("/c/models--gpt2/snapshots/" COMMIT, name, sizeof name), "gpt2");
    assert_string_equal(tt_hub_name_of("/models/llama", name, sizeof name), "llama");
    assert_string_equal(tt_hub_name_of("/models--a--b/other/snapshots/x", name, sizeof name), "x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test_setup_teardown(revisions, fresh, clean),
        cmocka_unit_test_setup_teardown(places, fresh, clean),
        cmocka_unit_test_setup_teardown(messages, fresh, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
