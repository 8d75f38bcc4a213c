/* store/xml.h: elements by their paths, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "base/str.h"
#include "store/xml.h"

static tt_status note(void *context, const char *path, const char *text)
{
    return tt_str_printf(context, "%s=%s|", path, text);
}

static const struct {
    const char *xml, *seen;
} whole[] = {
    {"<a/>", "a=|"},
    {"<a>text</a>", "a=text|"},
    {"<a><b/></a>", "a/b=|a=|"},
    {"\xef\xbb\xbf<?xml version=\"1.0\"?>\n<!-- a comment -->\n<a x='1' y=\"&gt;\">\n <b>1</b>\n "
     "<b>2</b>\n</a>\n",
     "a/b=1|a/b=2|a=|"},
    {"<s:a xmlns:s=\"u\"><s:b>x</s:b></s:a>", "a/b=x|a=|"},
    {"<a>&lt;&amp;&gt;&quot;&apos;&#65;&#x20AC;&#x1f600;</a>", "a=<&>\"'A\xe2\x82\xac\xf0\x9f\x98\x80|"},
    {"<a> <![CDATA[<b>&amp;]]> </a>", "a= <b>&amp; |"},
    {"<a>x<!-- y -->z</a>", "a=xz|"},
    {"<a><b>  kept  </b></a>", "a/b=  kept  |a=|"},
};

static const struct {
    const char *xml, *why;
} broken[] = {
    {"", "it ends too early"},
    {"text", "text outside the element"},
    {"<a>", "it ends too early"},
    {"<a></b>", "the end of another element"},
    {"<a/><b/>", "text outside the element"},
    {"</a>", "a name is expected"},
    {"<a", "a name is expected"},
    {"<a:/>", "a name is expected"},
    {"<a x></a>", "an attribute without a value"},
    {"<a x=1></a>", "an attribute without quotes"},
    {"<a x='1></a>", "it ends too early"},
    {"<a>&nbsp;</a>", "an unknown entity"},
    {"<a>&#0;</a>", "a character by a wrong number"},
    {"<a>&#xD800;</a>", "a character by a wrong number"},
    {"<a>&#x110000;</a>", "a character by a wrong number"},
    {"<a>\x01</a>", "a control character"},
    {"<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>", "a document type, which is not read"},
};

static void reads(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        struct tt_str seen = {0};
        assert_int_equal(tt_xml_visit(whole[i].xml, strlen(whole[i].xml), "the answer", note, &seen), TT_OK);
        assert_string_equal(tt_str_text(&seen), whole[i].seen);
        tt_str_deinit(&seen);
    }
}

static void refuses(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        assert_int_equal(tt_xml_visit(broken[i].xml, strlen(broken[i].xml), "the answer", NULL, NULL),
                         TT_ERR_DATA);
        const char *message = tt_error_last()->message;
        if (strstr(message, broken[i].why) == NULL ||
            strncmp(message, "the answer is not XML at byte ", 30) != 0)
            fail_msg("%s: %s", broken[i].xml, message);
    }
}

static void depth(void **state)
{
    (void)state;
    struct tt_str xml = {0};
    for (int i = 0; i < 65; i++) assert_int_equal(tt_str_append_text(&xml, "<a>"), TT_OK);
    assert_int_equal(tt_xml_visit(xml.data, xml.bytes, "the answer", NULL, NULL), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "too many elements inside each other"));
    tt_str_clear(&xml);
    assert_int_equal(tt_str_append_text(&xml, "<a>"), TT_OK);
    assert_int_equal(tt_str_append_fill(&xml, 'x', (1 << 20) + 1), TT_OK);
    assert_int_equal(tt_xml_visit(xml.data, xml.bytes, "the answer", NULL, NULL), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "too long a text"));
    tt_str_deinit(&xml);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads),
        cmocka_unit_test(refuses),
        cmocka_unit_test(depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
