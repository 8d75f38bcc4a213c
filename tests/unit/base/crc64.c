#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/crc64.h"
#include "base/rng.h"

enum { BYTES = 5000 };

static void fill(unsigned char *data)
{
    struct tt_rng rng = tt_rng_make(5);
    for (int i = 0; i < BYTES; i++) data[i] = (unsigned char)tt_rng_u64(rng, (uint64_t)i);
}

static void known_value(void **state)
{
    (void)state;
    assert_true(tt_crc64(0, "123456789", 9) == UINT64_C(0x995dc9bbdf1939fa));
    assert_true(tt_crc64(0, "", 0) == 0);
}

static void parts_in_any_order(void **state)
{
    (void)state;
    static const size_t borders[] = {0, 1, 17, 18, 1000, 1003, 4095, BYTES};
    unsigned char data[BYTES];
    uint64_t terms = 0, running = 0;
    fill(data);
    for (int i = 6; i >= 0; i--)
        terms ^= tt_crc64_term(data + borders[i], borders[i + 1] - borders[i], BYTES - borders[i + 1]);
    for (int i = 0; i < 7; i++) running = tt_crc64(running, data + borders[i], borders[i + 1] - borders[i]);
    assert_true(tt_crc64_finish(terms, BYTES) == tt_crc64(0, data, BYTES));
    assert_true(running == tt_crc64(0, data, BYTES));
}

static void every_flipped_bit_shows(void **state)
{
    (void)state;
    unsigned char data[BYTES];
    fill(data);
    uint64_t sum = tt_crc64(0, data, BYTES);
    for (int bit = 0; bit < 8 * BYTES; bit += 7) {
        data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_true(tt_crc64(0, data, BYTES) != sum);
        data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_value),
        cmocka_unit_test(parts_in_any_order),
        cmocka_unit_test(every_flipped_bit_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
