/* SHA-1 against the examples of FIPS 180 and against git's names, whatever the pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/sha1.h"

static void expect(const char *text, size_t bytes, size_t times, size_t piece, const char *wanted)
{
    struct tt_sha1 sha1;
    unsigned char digest[TT_SHA1_BYTES];
    char digits[2 * TT_SHA1_BYTES + 1];
    tt_sha1_init(&sha1);
    for (size_t i = 0; i < times; i++)
        for (size_t at = 0; at < bytes; at += piece)
            tt_sha1_update(&sha1, text + at, bytes - at < piece ? bytes - at : piece);
    tt_sha1_final(&sha1, digest);
    for (int i = 0; i < TT_SHA1_BYTES; i++) snprintf(digits + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(digits, wanted);
}

static void examples(void **state)
{
    static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    (void)state;
    expect("", 0, 1, 1, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    expect("abc", 3, 1, 3, "a9993e364706816aba3e25717850c26c9cd0d89d");
    for (size_t piece = 1; piece <= 56; piece++)
        expect(two, 56, 1, piece, "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
    expect("aaaaaaaaaa", 10, 100000, 10, "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    expect("blob 0", 7, 1, 7, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"); /* git's empty file */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(examples)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
