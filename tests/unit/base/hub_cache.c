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
#include "support/root.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"

static const char *const variables[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME",
                                        "HOME"};

static int fresh(void **state)
{
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
    return test_root_create(state);
}

static void make_repository(const char *folder)
{
    char path[200];
    snprintf(path, sizeof path, "%s/snapshots/" COMMIT, folder);
    assert_int_equal(tt_dir_create(test_at(path)), TT_OK);
    snprintf(path, sizeof path, "%s/refs", folder);
    assert_int_equal(tt_dir_create(test_at(path)), TT_OK);
    snprintf(path, sizeof path, "%s/refs/main", folder);
    test_put(path, COMMIT);
}

static void assert_found(const char *kind, const char *name, const char *revision, const char *wanted)
{
    char *folder = NULL;
    assert_int_equal(tt_hub_find(kind, name, revision, &folder), TT_OK);
    if (wanted == NULL && folder != NULL) fail_msg("%s leads to %s", name, folder);
    if (wanted != NULL && folder == NULL) fail_msg("%s is not found", name);
    if (wanted != NULL) assert_string_equal(folder, test_at(wanted));
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

static void names_with_revisions(void **state)
{
    static const struct {
        const char *text, *name, *revision; /* name NULL: refused */
    } cases[] = {
        {"a/b", "a/b", ""},       {"a/b@v1", "a/b", "v1"}, {"a/b@refs/pr/1", "a/b", "refs/pr/1"},
        {"a", NULL, NULL},        {"a@v1", NULL, NULL},    {"a/b@", NULL, NULL},
        {"a/b@../c", NULL, NULL}, {"a/b@c@d", NULL, NULL}, {"a/../b@v1", NULL, NULL},
        {"@v1", NULL, NULL},      {"", NULL, NULL},
    };
    char name[TT_HUB_NAME_BYTES], revision[TT_HUB_NAME_BYTES], longest[600];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (tt_hub_parse_name(cases[i].text, name, revision) != (cases[i].name != NULL))
            fail_msg("%s", cases[i].text);
        if (cases[i].name == NULL) continue;
        assert_string_equal(name, cases[i].name);
        assert_string_equal(revision, cases[i].revision);
    }
    memset(longest, 'a', sizeof longest);
    longest[1] = '/';
    longest[sizeof longest - 1] = '\0';
    assert_false(tt_hub_parse_name(longest, name, revision));
    longest[10] = '@';
    assert_false(tt_hub_parse_name(longest, name, revision));
}

static void revisions(void **state)
{
    (void)state;
    make_repository("models--owner--name");
    make_repository("models--single");
    make_repository("datasets--owner--name");
    assert_int_equal(tt_dir_create(test_at("models--owner--name/refs/refs/pr")), TT_OK);
    test_put("models--owner--name/refs/refs/pr/1", COMMIT "\n");
    test_put("models--owner--name/refs/gone", "ffffffffffffffffffffffffffffffffffffffff");
    test_put("models--owner--name/refs/empty", "");
    test_put("models--owner--name/refs/out", "../../models--single/snapshots/" COMMIT);
    test_put("models--owner--name/refs/up", "..");
    assert_int_equal(setenv("HF_HUB_CACHE", test_root(), 1), 0);
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
        assert_int_equal(setenv(steps[i].name, test_at(steps[i].value), 1), 0);
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
    assert_int_equal(setenv("HF_HUB_CACHE", test_root(), 1), 0);
    assert_int_equal(tt_hub_locate("owner/name", "v2", "model", &folder), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, test_root()));
    assert_non_null(strstr(tt_error_last()->hint, "trimtab download owner/name --revision v2"));
    assert_int_equal(tt_hub_locate("/nowhere/at/all", NULL, "adapter", &folder), TT_ERR_DATA);
    assert_null(strstr(tt_error_last()->hint, "trimtab download"));
    assert_null(folder);
    assert_int_equal(tt_hub_locate(test_root(), NULL, "model", &folder), TT_OK);
    assert_string_equal(folder, test_root());
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
        cmocka_unit_test(names_with_revisions),
        cmocka_unit_test_setup_teardown(revisions, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(places, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(messages, fresh, test_root_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
