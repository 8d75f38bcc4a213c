/* Which connection of strangers gives way, and where connections come from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <cmocka.h>

#include "base/crowd.h"

/* "aab" are strangers of the origins a, a, b; stages and times are of each. Returns the place of the victim. */
static int choose(const char *origins, const int *stages, const double *since)
{
    struct tt_stranger strangers[16];
    int places[16];
    size_t count = strlen(origins);
    for (size_t i = 0; i < count; i++) {
        places[i] = (int)i;
        strangers[i] = (struct tt_stranger){.origin = {(unsigned char)origins[i]},
                                            .stage = stages[i],
                                            .since = since[i],
                                            .connection = &places[i]};
    }
    return *(int *)tt_crowd_choose(strangers, count);
}

static void victims(void **state)
{
    static const int same[8] = {0}, mixed[8] = {1, 0, 1, 0};
    static const double old_first[8] = {0, 1, 2, 3, 4, 5, 6, 7}, old_last[8] = {7, 6, 5, 4, 3, 2, 1, 0};
    (void)state;
    assert_null(tt_crowd_choose(NULL, 0));
    assert_int_equal(choose("a", same, old_first), 0);
    assert_int_equal(choose("abb", same, old_first),
                     1); /* of the origin with most, though another is older */
    assert_int_equal(choose("babbab", same, old_last), 5);
    assert_int_equal(choose("aabb", same, old_first), 0); /* equal ones: the older */
    assert_int_equal(choose("aabb", same, old_last), 3);
    assert_int_equal(choose("aaaa", mixed, old_first), 1); /* the one that has come least far */
    assert_int_equal(choose("aaaa", mixed, old_last), 3);
}

static void parse(const char *text, struct sockaddr_storage *address)
{
    memset(address, 0, sizeof *address);
    if (inet_pton(AF_INET, text, &((struct sockaddr_in *)address)->sin_addr) == 1) {
        address->ss_family = AF_INET;
    } else {
        address->ss_family = AF_INET6;
        assert_int_equal(inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)address)->sin6_addr), 1);
    }
}

static bool same_origin(const char *a, const char *b)
{
    struct sockaddr_storage one, other;
    unsigned char first[TT_ORIGIN_BYTES], second[TT_ORIGIN_BYTES];
    parse(a, &one);
    parse(b, &other);
    tt_origin_of((const struct sockaddr *)&one, first);
    tt_origin_of((const struct sockaddr *)&other, second);
    return memcmp(first, second, sizeof first) == 0;
}

static void origins(void **state)
{
    (void)state;
    assert_true(same_origin("10.1.2.3", "10.1.2.3"));
    assert_true(same_origin("10.1.2.3", "::ffff:10.1.2.3"));
    assert_false(same_origin("10.1.2.3", "10.1.2.4"));
    assert_true(same_origin("2001:db8:1:2::3", "2001:db8:1:2:ffff::"));
    assert_false(same_origin("2001:db8:1:2::3", "2001:db8:1:3::3"));
}

static void loopback(void **state)
{
    static const char *const own[] = {"127.0.0.1", "127.255.0.9", "::1", "::ffff:127.0.0.1"};
    static const char *const others[] = {"0.0.0.0",         "::",         "10.0.0.1", "128.0.0.1",
                                         "::ffff:10.0.0.1", "2001:db8::1"};
    struct sockaddr_storage address;
    (void)state;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        parse(own[i], &address);
        assert_true(tt_address_is_loopback((const struct sockaddr *)&address) && tt_host_is_loopback(own[i]));
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        parse(others[i], &address);
        assert_false(tt_address_is_loopback((const struct sockaddr *)&address) ||
                     tt_host_is_loopback(others[i]));
    }
    assert_false(tt_host_is_loopback("127.example.com") || tt_host_is_loopback("localhost"));
}

static void capacity(void **state)
{
    struct rlimit few = {300, 600};
    (void)state;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    assert_int_equal(tt_crowd_capacity(100, 100), 100); /* fits */
    assert_int_equal(tt_crowd_capacity(300, 200), 300); /* the limit is raised */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &few), 0);
    assert_int_equal(few.rlim_cur, 500);
    assert_int_equal(tt_crowd_capacity(1000, 500), 100); /* what is left */
    assert_int_equal(tt_crowd_capacity(1000, 5000), 16); /* some, whatever the limit */
    assert_int_equal(tt_crowd_capacity(3, 5000), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(victims),
        cmocka_unit_test(origins),
        cmocka_unit_test(loopback),
        cmocka_unit_test(capacity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
