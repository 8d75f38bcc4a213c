/* SHA-256 by libcrypto, where the machine has it, and by libsodium: against the examples of FIPS 180 and of NIST,
 * whatever the pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dlfcn.h>
#include <cmocka.h>

#include "net/sha256.h"

static void expect(bool plain, const char *text, size_t bytes, size_t times, size_t piece, const char *wanted)
{
    struct tt_sha256 sum;
    unsigned char digest[TT_SHA256_BYTES];
    char digits[2 * TT_SHA256_BYTES + 1];
    if (plain)
        tt_sha256_begin_plain(&sum);
    else
        tt_sha256_begin(&sum);
    for (size_t i = 0; i < times; i++)
        for (size_t at = 0; at < bytes; at += piece)
            tt_sha256_add(&sum, text + at, bytes - at < piece ? bytes - at : piece);
    tt_sha256_end(&sum, digest);
    sodium_bin2hex(digits, sizeof digits, digest, sizeof digest);
    assert_string_equal(digits, wanted);
}

static void examples(void **state)
{
    static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    (void)state;
    for (int plain = 0; plain <= 1; plain++) {
        expect(plain, "", 0, 1, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        expect(plain, "abc", 3, 1, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        for (size_t piece = 1; piece <= 56; piece++)
            expect(plain, two, 56, 1, piece,
                   "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
        expect(plain, "aaaaaaaaaa", 10, 100000, 10,
               "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
}

static void who(void **state)
{
    struct tt_sha256 sum;
    unsigned char digest[TT_SHA256_BYTES];
    (void)state;
    void *library = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL);
    tt_sha256_begin(&sum);
    assert_true((sum.library != NULL) == (library != NULL));
    tt_sha256_end(&sum, digest);
    tt_sha256_begin_plain(&sum);
    assert_null(sum.library);
    tt_sha256_end(&sum, digest);
}

/* A sum that libcrypto gave up is no sum of anything. */
static void refusals(void **state)
{
    struct tt_sha256 sum;
    static const unsigned char zeros[TT_SHA256_BYTES];
    unsigned char digest[TT_SHA256_BYTES];
    (void)state;
    tt_sha256_begin(&sum);
    if (sum.library == NULL) skip();
    sum.failed = true;
    tt_sha256_add(&sum, "abc", 3);
    tt_sha256_end(&sum, digest);
    assert_memory_equal(digest, zeros, sizeof zeros);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(examples), cmocka_unit_test(who),
                                       cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
