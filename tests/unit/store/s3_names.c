/* Paths of objects, and the values of AWS' INI files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "store/s3_client.h"
#include "store/s3_keys.h"

static const struct {
    const char *path, *bucket, *key; /* bucket NULL: refused */
} paths[] = {
    {"s3://bucket", "bucket", ""},
    {"s3://bucket/", "bucket", ""},
    {"s3://a.b-c/d", "a.b-c", "d"},
    {"s3://bucket/a b/\xc3\xa9+", "bucket", "a b/\xc3\xa9+"},
    {"s3://bucket/folder/", "bucket", "folder"},
    {"s3://", NULL, NULL},
    {"s3://ab/c", NULL, NULL},
    {"s3://Bucket/c", NULL, NULL},
    {"s3:///c", NULL, NULL},
    {"s3://user@host/c", NULL, NULL},
    {"s3://bucket/../c", NULL, NULL},
    {"s3://bucket/a/./c", NULL, NULL},
    {"s3://bucket/a//c", NULL, NULL},
    {"s3://bucket/a\nb", NULL, NULL},
    {"s3://bucket/a\\b", NULL, NULL},
    {"s3://bucket/\xff", NULL, NULL},
};

static void names(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct tt_s3_name name;
        tt_status status = tt_s3_name_of(paths[i].path, &name);
        if ((status == TT_OK) != (paths[i].bucket != NULL)) fail_msg("%s", paths[i].path);
        if (status != TT_OK) {
            assert_int_equal(status, TT_ERR_USAGE);
            continue;
        }
        assert_string_equal(name.bucket, paths[i].bucket);
        assert_int_equal(name.key_bytes, strlen(paths[i].key));
        assert_memory_equal(name.key, paths[i].key, name.key_bytes);
    }
    char longest[1100];
    struct tt_s3_name name;
    memset(longest, 'a', sizeof longest);
    memcpy(longest, "s3://bucket/", 12);
    longest[12 + 1024] = '\0';
    assert_int_equal(tt_s3_name_of(longest, &name), TT_OK);
    longest[12 + 1024] = 'a';
    longest[12 + 1025] = '\0';
    assert_int_equal(tt_s3_name_of(longest, &name), TT_ERR_USAGE);
}

static const char ini[] =
    "# a comment\n[default]\naws_access_key_id = A\n  nested = no\n[ other ]\r\naws_access_key_id=B=C\r\n"
    "empty =\n[default]\nlater = 1\ns3 =\n  style = path\n\tother=2\nnested =\n  style = no\n[end]\ns3 =\n";

static void values(void **state)
{
    (void)state;
    static const struct {
        const char *section, *member, *value;
    } wanted[] = {
        {"default", "aws_access_key_id", "A"},
        {"other", "aws_access_key_id", "B=C"},
        {"default", "later", "1"},
        {"default", "nested", NULL},
        {"other", "empty", NULL},
        {"default", "s3.style", "path"},
        {"default", "s3.other", "2"},
        {"default", "s3.later", NULL},
        {"default", "style", NULL},
        {"other", "s3.style", NULL},
        {"end", "s3.style", NULL},
        {"none", "later", NULL},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        struct tt_str value = {0};
        bool found = tt_s3_ini_value(ini, wanted[i].section, wanted[i].member, &value);
        assert_int_equal(found, wanted[i].value != NULL);
        if (found) assert_string_equal(tt_str_text(&value), wanted[i].value);
        tt_str_deinit(&value);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
