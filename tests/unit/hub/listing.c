/* Answers of a hub, and cards of data sets, as data of strangers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "hub/card.h"
#include "hub/listing.h"
#include "support/must.h"

#define SHA1 "0123456789abcdef0123456789abcdef01234567"
#define SHA256 SHA1 "0123456789abcdef01234567"

static tt_status add(struct tt_hub_listing *listing, const char *text)
{
    return tt_hub_listing_add(listing, text, strlen(text), "page");
}

static void lists_files(void **state)
{
    struct tt_hub_listing listing = {0};
    (void)state;
    test_must(add(&listing,
                  "[{\"type\": \"directory\", \"path\": \"a\", \"oid\": \"x\"},"
                  "{\"type\": \"file\", \"path\": \"a/b.json\", \"size\": 5, \"oid\": \"" SHA1 "\"}]"));
    test_must(add(&listing, "[{\"type\": \"file\", \"path\": \"w\", \"size\": 130, \"oid\": \"" SHA1
                            "\", \"lfs\": {\"oid\": \"" SHA256 "\", \"size\": 70000}}]"));
    assert_int_equal(listing.count, 2);
    assert_string_equal(listing.files[0].path, "a/b.json");
    assert_string_equal(listing.files[0].digest, SHA1);
    assert_int_equal(listing.files[1].bytes, 70000);
    assert_string_equal(listing.files[1].digest, SHA256);
    static const char *const wrong[] = {
        "{}",
        "[{\"type\": \"file\"}]",
        "[{\"type\": \"file\", \"path\": \"../x\", \"size\": 5, \"oid\": \"" SHA1 "\"}]",
        "[{\"type\": \"file\", \"path\": \"/x\", \"size\": 5, \"oid\": \"" SHA1 "\"}]",
        "[{\"type\": \"file\", \"path\": \"x\", \"size\": -1, \"oid\": \"" SHA1 "\"}]",
        "[{\"type\": \"file\", \"path\": \"x\", \"size\": 5, \"oid\": \"../../etc/passwd\"}]",
        "[{\"type\": \"file\", \"path\": \"x\", \"size\": 5, \"oid\": \"" SHA1
        "\", \"lfs\": {\"oid\": \"" SHA1 "\", \"size\": 1}}]",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(add(&listing, wrong[i]), TT_ERR_DATA);
    assert_int_equal(listing.count, 2);
    tt_hub_listing_deinit(&listing);
}

static void plain_paths(void **state)
{
    static const char *const plain[] = {"a", "a/b", ".gitattributes", "a b/c", "..a", "a..", "\xc3\xa4"};
    static const char *const others[] = {"",   "/",    "/a",     "a/",  "a//b", ".",
                                         "..", "a/..", "a/../b", "./a", "a\\b", "a\nb"};
    (void)state;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) assert_true(tt_hub_is_path(plain[i]));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_false(tt_hub_is_path(others[i]));
}

static void commits_and_pages(void **state)
{
    char commit[TT_HUB_COMMIT_BYTES], url[40];
    (void)state;
    static const char good[] = "{\"sha\": \"" SHA1 "\"}", bad[] = "{\"sha\": \"main\"}";
    test_must(tt_hub_parse_commit(good, strlen(good), "answer", commit));
    assert_string_equal(commit, SHA1);
    assert_int_equal(tt_hub_parse_commit(bad, strlen(bad), "answer", commit), TT_ERR_DATA);
    assert_true(tt_hub_next_page("<http://a/1>; rel=\"first\", <http://a/2>; rel=\"next\"", url, sizeof url));
    assert_string_equal(url, "http://a/2");
    assert_false(tt_hub_next_page("<http://a/1>; rel=\"first\"", url, sizeof url));
    assert_false(tt_hub_next_page("<http://a/1; rel=\"next\"", url, sizeof url));
    assert_false(tt_hub_next_page("<>; rel=\"next\"", url, sizeof url));
    assert_false(tt_hub_next_page("<http://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa>; rel=\"next\"", url,
                                  sizeof url));
}

static void expect_files(const char *text, const char *config, const char *split, const char *wanted)
{
    struct tt_hub_card card;
    struct tt_hub_patterns patterns;
    struct tt_str got = {0};
    test_must(tt_hub_card_parse(text, strlen(text), &card));
    tt_status status = tt_hub_card_files(&card, config, split, &patterns);
    if (wanted == NULL) {
        assert_int_equal(status, TT_ERR_DATA);
    } else {
        test_must(status);
        for (size_t i = 0; i < patterns.count; i++) test_must(tt_str_printf(&got, "%s;", patterns.text[i]));
        assert_string_equal(tt_str_text(&got), wanted);
    }
    tt_str_deinit(&got);
    tt_hub_card_deinit(&card);
}

static void cards(void **state)
{
    static const char two[] =
        "---\nlicense: mit\nconfigs:\n- config_name: a\n  data_files: a.csv\n- config_name: b\n"
        "  default: true\n  data_files:\n  - split: train\n    path: [x-*, y-*]\n"
        "  - split: test\n    path: z\n---\ntext\n";
    (void)state;
    expect_files(two, "a", "train", "a.csv;");
    expect_files(two, "a", "test", "");
    expect_files(two, NULL, "train", "x-*;y-*;");
    expect_files(two, NULL, NULL, "x-*;y-*;z;");
    expect_files(two, "c", "train", NULL);
    expect_files("---\nconfigs:\n- config_name: a\n- config_name: b\n---\n", NULL, "train", NULL);
    expect_files("---\nconfigs:\n- config_name: a\n- config_name: default\n  data_files: q\n---\n", NULL,
                 "train", "q;");
    expect_files("---\nconfigs:\n- config_name: a\n  data_files: ../q\n---\n", NULL, "train", NULL);
    expect_files("---\nconfigs: [1, {config_name: [a]}]\n---\n", NULL, "train", NULL);
    static const char *const silent[] = {
        "", "no card", "---\n", "---\n---\n", "---\n: [\n---\n", "---\n- a\n---\n", "---\nconfigs: a\n---\n"};
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) expect_files(silent[i], "x", "train", "");
    assert_true(tt_hub_is_row_file("a/b.jsonl.gz") && tt_hub_is_row_file("x.parquet"));
    assert_false(tt_hub_is_row_file("README.md") || tt_hub_is_row_file(".json"));
    assert_true(tt_hub_matches("data/*", "data/a") && tt_hub_matches("**/a", "x/y/a"));
    assert_false(tt_hub_matches("*", "data/a") || tt_hub_matches("*", ".a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_files),
        cmocka_unit_test(plain_paths),
        cmocka_unit_test(commits_and_pages),
        cmocka_unit_test(cards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
