/* SHA-256 against the examples of FIPS 180 and of NIST, whatever the pieces; the processor's instructions against the
 * plain code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/sha256.h"
#include "base/sha256_impl.h"

static void expect(const char *text, size_t bytes, size_t times, size_t piece, const char *wanted)
{
    struct tt_sha256 sha256;
    unsigned char digest[TT_SHA256_BYTES];
    char digits[2 * TT_SHA256_BYTES + 1];
    tt_sha256_init(&sha256);
    for (size_t i = 0; i < times; i++)
        for (size_t at = 0; at < bytes; at += piece)
            tt_sha256_update(&sha256, text + at, bytes - at < piece ? bytes - at : piece);
    tt_sha256_final(&sha256, digest);
    for (int i = 0; i < TT_SHA256_BYTES; i++) snprintf(digits + (size_t)2 * i, 3, "%02x", digest[i]);
    assert_string_equal(digits, wanted);
}

static void examples(void **state)
{
    static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    static const char long_one[] =
        "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopq"
        "klmnopqrlmnopqrsmnopqrstnopqrstu";
    (void)state;
    expect("", 0, 1, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect("abc", 3, 1, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    for (size_t piece = 1; piece <= 56; piece++)
        expect(two, 56, 1, piece, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    for (size_t piece = 1; piece <= 112; piece++)
        expect(long_one, 112, 1, piece, "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
    expect("aaaaaaaaaa", 10, 100000, 10, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void two_ways(void **state)
{
    enum { BLOCKS = 65 };
    static unsigned char data[64 * BLOCKS + 1];
    uint32_t plain[8], fast[8], random = 1;
    (void)state;
    if (!sha256_has_instructions()) skip();
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)((random = random * 1664525 + 1013904223) >> 24);
    for (size_t count = 0; count <= BLOCKS; count++) {
        for (size_t i = 0; i < 8; i++) plain[i] = fast[i] = random = random * 1664525 + 1013904223;
        size_t first = count < BLOCKS ? count % 2 : 1; /* also where no word is aligned */
        sha256_add_plain(plain, data + first, count);
        sha256_add_fast(fast, data + first, count);
        assert_memory_equal(plain, fast, sizeof plain);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(examples), cmocka_unit_test(two_ways)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
