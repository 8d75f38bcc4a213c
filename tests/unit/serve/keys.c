/* serve/keys.h: keys and names of a file; other headers, lengths and lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "serve/keys.h"
#include "support/must.h"
#include "support/temporary.h"

static char path[200];

static void write_file(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void keys_of_clients(void **state)
{
    (void)state;
    char longest[TT_KEY_BYTES_MAX + 1] = {0}, text[2000], header[400];
    struct tt_keys *keys = NULL;
    memset(longest, 'k', TT_KEY_BYTES_MAX);
    snprintf(text, sizeof text, "# a comment\n\nsk-alone\nann \t sk-ann-1\r\n  bob sk-bob\nann sk-ann-2\n%s",
             longest);
    write_file(text);
    test_must(tt_keys_read(path, &keys));
    assert_int_equal(tt_keys_find(keys, "Bearer sk-alone"), 0);
    assert_int_equal(tt_keys_find(keys, "bearer   sk-alone "), 0);
    assert_int_equal(tt_keys_find(keys, "Bearer sk-ann-1"), 1);
    assert_int_equal(tt_keys_find(keys, "Bearer sk-bob"), 2);
    assert_int_equal(tt_keys_find(keys, "Bearer sk-ann-2"), 1);
    snprintf(header, sizeof header, "Bearer %s", longest);
    assert_int_equal(tt_keys_find(keys, header), 4);
    snprintf(header, sizeof header, "Bearer %sk", longest);
    assert_int_equal(tt_keys_find(keys, header), -1);
    static const char *const wrong[] = {NULL,
                                        "",
                                        "Bearer",
                                        "Bearer ",
                                        "sk-alone",
                                        "Basic sk-alone",
                                        "Bearer sk-alon",
                                        "Bearer sk-alonE",
                                        "Bearer ann",
                                        "Bearer #",
                                        "Bearer sk-alonee",
                                        "Bearer sk-alone sk-bob"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(tt_keys_find(keys, wrong[i]), -1);
    tt_keys_destroy(keys);
}

static void wrong_files(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "# nothing\n", "a b c\n", "good\na\x01z\n"};
    struct tt_keys *keys = NULL;
    char text[400] = {0};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_file(texts[i]);
        assert_int_equal(tt_keys_read(path, &keys), TT_ERR_DATA);
    }
    memset(text, 'k', TT_KEY_BYTES_MAX + 1);
    write_file(text);
    assert_int_equal(tt_keys_read(path, &keys), TT_ERR_DATA);
    assert_null(strstr(tt_error_last()->message, "kkk")); /* a message has no key */
    assert_int_not_equal(tt_keys_read("there-is-no-such-file", &keys), TT_OK);
    remove(path);
}

static int choose_path(void **state)
{
    (void)state;
    test_temporary(path, sizeof path, "keys_test.txt");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_clients),
        cmocka_unit_test(wrong_files),
    };
    return cmocka_run_group_tests(tests, choose_path, NULL);
}
