/* Which values of the header Host are answered. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "http/hosts.h"

/* Answered wherever a server listens and whatever it allows. */
static const char *const own[] = {"localhost",        "LocalHost:8000", "localhost.", "127.0.0.1",
                                  "127.0.0.1:8000",   "10.0.0.7:9400",  "[::1]",      "[::1]:8000",
                                  "[2001:db8::1]:80", "192.168.1.1."};
/* Values that no setting allows by a name. */
static const char *const strange[] = {"",
                                      ":80",
                                      "evil.example",
                                      "evil.example:8000",
                                      "127.0.0.1.evil.example",
                                      "127.0.0.1:80@evil.example",
                                      "localhost.evil.example",
                                      "evil-localhost",
                                      "[evil.example]",
                                      "[::1",
                                      "[::1]evil",
                                      "[]",
                                      "1.2.3",
                                      "1234567890123456789012345678901234567890123456"};

static void expect(const char *allowed, bool open, const char *host, bool answered)
{
    const struct tt_http_hosts hosts = {allowed, open};
    if (tt_http_host_is_allowed(&hosts, host) != answered)
        fail_msg("'%s' with '%s'%s: not %d", host != NULL ? host : "(none)", allowed != NULL ? allowed : "",
                 open ? ", open" : "", answered);
}

static void addresses(void **state)
{
    (void)state;
    for (int open = 0; open < 2; open++) {
        for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
            expect(NULL, open, own[i], true);
            expect("a.example", open, own[i], true);
        }
        expect(NULL, open, NULL, true);
        for (size_t i = 0; i < sizeof strange / sizeof *strange; i++)
            expect("a.example", open, strange[i], false);
    }
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) expect(NULL, false, strange[i], false);
    expect(NULL, true, "evil.example:8000", true);
}

static void names(void **state)
{
    static const char *const lists[] = {"a.example,*.b.example", " a.example , *.b.example ",
                                        "[\"a.example\", \"*.b.example\"]"};
    (void)state;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        for (int open = 0; open < 2; open++) {
            expect(lists[i], open, "a.example", true);
            expect(lists[i], open, "A.Example:443", true);
            expect(lists[i], open, "a.example.", true);
            expect(lists[i], open, "x.b.example", true);
            expect(lists[i], open, "x.y.B.example:80", true);
            expect(lists[i], open, "b.example", false);
            expect(lists[i], open, ".b.example", false);
            expect(lists[i], open, "xb.example", false);
            expect(lists[i], open, "x.a.example", false);
            expect(lists[i], open, "a.example.c", false);
        }
    }
    expect("*", false, "whatever.example", true);
}

static void lists(void **state)
{
    static const char *const wrong[] = {
        "http://a.example", "a.example:80", "a.example,b/c", "*x.example", "*.", "**", ".a.example"};
    (void)state;
    assert_int_equal(tt_http_hosts_check(NULL, "allowed_hosts"), TT_OK);
    assert_int_equal(tt_http_hosts_check("a.example, *.b-1.example x_y *", "allowed_hosts"), TT_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (tt_http_hosts_check(wrong[i], "allowed_hosts") != TT_ERR_USAGE)
            fail_msg("'%s' is taken", wrong[i]);
        assert_non_null(strstr(tt_error_record()->message, "allowed_hosts: '"));
        tt_error_clear();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses),
        cmocka_unit_test(names),
        cmocka_unit_test(lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
