/* Signatures against the published examples: four of the S3 API reference ("Signature Calculations for the
 * Authorization Header"), and of AWS' Signature Version 4 test suite. The keys are those of the examples. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "store/s3_sign.h"
#include "store/s3_time.h"

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define S3_TIME "20130524T000000Z"

static const struct example {
    const char *method, *path, *query, *content, *names, *signature;
    bool suite; /* of the test suite, whose service is "service" */
    struct tt_s3_header headers[6];
} examples[] = {
    {"GET",
     "/test.txt",
     "",
     EMPTY,
     "host;range;x-amz-content-sha256;x-amz-date",
     "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
     false,
     {{"host", "examplebucket.s3.amazonaws.com"},
      {"range", "bytes=0-9"},
      {"x-amz-content-sha256", EMPTY},
      {"x-amz-date", S3_TIME}}},
    {"PUT",
     "/test%24file.text",
     "",
     "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
     "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
     "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
     false,
     {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
      {"host", "examplebucket.s3.amazonaws.com"},
      {"x-amz-content-sha256", "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"},
      {"x-amz-date", S3_TIME},
      {"x-amz-storage-class", "REDUCED_REDUNDANCY"}}},
    {"GET",
     "/",
     "lifecycle=",
     EMPTY,
     "host;x-amz-content-sha256;x-amz-date",
     "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
     false,
     {{"host", "examplebucket.s3.amazonaws.com"}, {"x-amz-content-sha256", EMPTY}, {"x-amz-date", S3_TIME}}},
    {"GET",
     "/",
     "prefix=J&max-keys=2",
     EMPTY,
     "host;x-amz-content-sha256;x-amz-date",
     "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
     false,
     {{"host", "examplebucket.s3.amazonaws.com"}, {"x-amz-content-sha256", EMPTY}, {"x-amz-date", S3_TIME}}},
    /* get-vanilla, get-vanilla-query-order-key-case, post-vanilla */
    {"GET",
     "/",
     "",
     EMPTY,
     "host;x-amz-date",
     "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
     true,
     {{"host", "example.amazonaws.com"}, {"x-amz-date", "20150830T123600Z"}}},
    {"GET",
     "/",
     "Param2=value2&Param1=value1",
     EMPTY,
     "host;x-amz-date",
     "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
     true,
     {{"host", "example.amazonaws.com"}, {"x-amz-date", "20150830T123600Z"}}},
    {"POST",
     "/",
     "",
     EMPTY,
     "host;x-amz-date",
     "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
     true,
     {{"host", "example.amazonaws.com"}, {"x-amz-date", "20150830T123600Z"}}},
};

static void published(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const struct example *example = &examples[i];
        struct tt_str made = {0};
        char wanted[500];
        size_t count = 0;
        while (example->headers[count].name != NULL) count++;
        const char *access = example->suite ? "AKIDEXAMPLE" : "AKIAIOSFODNN7EXAMPLE";
        const char *service = example->suite ? "service" : "s3";
        const char *time = example->suite ? "20150830T123600Z" : S3_TIME;
        const struct tt_s3_signing signing = {.access = access,
                                              .secret = example->suite
                                                            ? "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
                                                            : "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                                              .region = "us-east-1",
                                              .service = service,
                                              .time = time,
                                              .method = example->method,
                                              .path = example->path,
                                              .query = example->query,
                                              .headers = example->headers,
                                              .header_count = count,
                                              .content = example->content};
        assert_int_equal(tt_s3_sign(&signing, &made), TT_OK);
        snprintf(
            wanted, sizeof wanted,
            "AWS4-HMAC-SHA256 Credential=%s/%.8s/us-east-1/%s/aws4_request, SignedHeaders=%s, Signature=%s",
            access, time, service, example->names, example->signature);
        assert_string_equal(tt_str_text(&made), wanted);
        tt_str_deinit(&made);
    }
}

static void sums(void **state)
{
    (void)state;
    char text[TT_SHA256_TEXT_BYTES];
    tt_sha256_text("", 0, text);
    assert_string_equal(text, EMPTY);
    tt_sha256_text("Welcome to Amazon S3.", 21, text);
    assert_string_equal(text, "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072");
}

static void times(void **state)
{
    (void)state;
    char text[TT_S3_TIME_BYTES];
    double seconds = 0;
    tt_s3_time(1369353600.9, text);
    assert_string_equal(text, S3_TIME);
    assert_true(tt_s3_parse_time("2013-05-24T00:00:00Z", &seconds));
    assert_true(seconds == 1369353600);
    assert_true(tt_s3_parse_time("2013-05-24T00:00:01.250Z", &seconds));
    assert_true(seconds == 1369353601);
    assert_true(tt_s3_parse_date("Fri, 24 May 2013 00:00:00 GMT", &seconds));
    assert_true(seconds == 1369353600);
    assert_false(tt_s3_parse_date("17", &seconds));
    static const char *const wrong[] = {"",
                                        "2013-05-24",
                                        "2013-05-24T00:00:00",
                                        "2013-05-24T00:00:00+01:00",
                                        "2013-13-24T00:00:00Z",
                                        "2013-05-24T25:00:00Z",
                                        "2013-05-24T00:00:00Z "};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(tt_s3_parse_time(wrong[i], &seconds));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published),
        cmocka_unit_test(sums),
        cmocka_unit_test(times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
