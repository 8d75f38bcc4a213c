/* text/jinja/jinja.h: every refusal of a template has a row here, or its limit one in jinja.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "text/jinja/jinja.h"

struct row {
    const char *template, *message;
};

static const char *name = "value"; /* a variable of the templates */

/* The parser's: the template is never rendered. */
static const struct row of_parsing[] = {
    {"{{ '\\x4' }}", "an escape needs 2 hexadecimal digits"},
    {"{{ '\\ud800' }}", "U+D800 is no character"},
    {"{{ '\\N{DASH}' }}", "escapes by name (\\N{...}) are not supported"},
    {"{{ name. }}", "expected a name or a number"},
    {"{{ name(a=1, 2) }}", "this argument may not stand behind the others"},
    {"{{ 1 is odd is even }}", "tests with 'is' cannot be chained"},
    {"{{ 1 is", "this tag has no end '}}'"},
    {"{% for 1 in name %}{% endfor %}", "this cannot be assigned to"},
    {"{% set true = 1 %}", "this cannot be assigned to"},
    {"{% set a.x, b = 1, 2 %}", "several members of namespaces at once are not supported"},
    {"{% macro m(a=1, b) %}{% endmacro %}", "a parameter without a default behind one with a default"},
    {"{% call 1 %}{% endcall %}", "expected a call"},
    {"{% break %}", "'break' outside of a loop"},
    {"{% continue %}", "'continue' outside of a loop"},
    {"{% 1 %}", "expected the name of a tag"},
    {"{% if %}", "the tag ends here, expected an expression"},
    {"{% for x in name %}{% set loop = 1 %}{% endfor %}",
     "the variable 'loop' cannot be assigned to in a loop"},
    {"{% macro m(caller) %}{{ caller() }}{% endmacro %}", "the parameter 'caller' needs a default"},
    {"{{ self.title() }}", "the variable 'self' is not supported"},
};

static const struct row of_calls[] = {
    {"{{ range(a=1, **{'a': 2}) }}", "got multiple values for keyword argument 'a'"},
    {"{{ range(**[1]) }}", "argument after ** must be a mapping, not list"},
    {"{{ range(**{1: 2}) }}", "keywords must be strings"},
    {"{{ raise_exception('a', 'b') }}", "raise_exception() takes at most 1 arguments, 2 are given"},
    {"{{ raise_exception(text='b') }}", "raise_exception() has no argument 'text'"},
    {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "a macro takes not more than 1 argument(s)"},
    {"{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "a macro takes no keyword argument 'b'"},
    {"{{ 1() }}", "'int' object is not callable"},
    {"{{ name() }}", "'str' object is not callable"},
    {"{{ range() }}", "range expected 1 to 3 arguments, got 0"},
    {"{{ range(1, 2, 3, 4) }}", "range expected 1 to 3 arguments, got 4"},
    {"{{ range(stop=1) }}", "range() takes no keyword arguments"},
    {"{{ range('a') }}", "'str' object cannot be interpreted as an integer"},
    {"{{ range(0, 1, 0) }}", "range() arg 3 must not be zero"},
    {"{{ dict([1]) }}", "cannot convert dictionary update sequence element to a sequence"},
    {"{{ dict([[1]]) }}", "dictionary update sequence element has length 1; 2 is required"},
    {"{{ dict({}, {}) }}", "dict expected at most 1 argument, got 2"},
    {"{{ strftime_now(1) }}", "strftime() argument 1 must be str, not int"},
    {"{{ cycler(1) }}", "the functions cycler(), joiner() and lipsum() are not supported"},
    {"{{ lipsum() }}", "the functions cycler(), joiner() and lipsum() are not supported"},
    {"{% for x in name %}{{ loop.cycle(a=1) }}{% endfor %}", "this call takes no named arguments"},
    {"{% for x in name %}{{ loop.cycle() }}{% endfor %}", "no items for cycling given"},
    {"{% macro m() %}{{ caller() }}{% endmacro %}{% call m(caller=1) %}{% endcall %}",
     "got multiple values for keyword argument 'caller'"},
    {"{% call dict() %}{% endcall %}", "the call of a block must give a text"},
    {"{% filter length %}abc{% endfilter %}", "the filters of a block must give a text"},
};

static const struct row of_values[] = {
    {"{{ loop.x }}{% for x in [missing.a] %}{% endfor %}", "'loop' is undefined"},
    {"{{ [1][5] + 1 }}", "the value is undefined"},
    {"{{ 1 .real }}", "the attribute 'real' of 'int' is not supported"},
    {"{{ name.encode() }}", "the attribute 'encode' of 'str' is not supported"},
    {"{{ 1[1:2] }}", "'int' object cannot be sliced"},
    {"{{ name['a':] }}", "slice indices must be integers or None"},
    {"{{ name[::0] }}", "slice step cannot be zero"},
    {"{{ {[1]: 2} }}", "unhashable type: 'list'"},
    {"{{ {}.get([1]) }}", "unhashable type: 'list'"},
    {"{% for x in name %}{% for y in loop %}{% endfor %}{% endfor %}",
     "iterating over 'loop' is not supported"},
    {"{% for x in 1 %}{% endfor %}", "'int' object is not iterable"},
    {"{% set a, b = 1 %}", "cannot unpack non-iterable int object"},
    {"{% set name.x = 1 %}", "cannot assign attribute on non-namespace object"},
    {"{{ name is sameas name }}", "the test 'sameas' of two 'str' objects is not supported"},
    {"{{ 1 is filter }}", "the name of a filter or test is a text"},
    {"{{ 1 is odd(a=1) }}", "the test 'odd' with named arguments is not supported"},
    {"{{ 1 is odd(1) }}", "the test 'odd' takes no argument, 1 are given"},
    {"{{ 1 is divisibleby }}", "the test 'divisibleby' takes one argument, 0 are given"},
    {"{{ {'a': range}|tojson }}", "Object of type function is not JSON serializable"},
    {"{{ missing|tojson }}", "Object of type Undefined is not JSON serializable"},
    {"{{ range }}", "printing a 'function' object is not supported"},
    {"{{ 1 < 'a' }}", "'<' not supported between instances of 'int' and 'str'"},
    {"{{ 1 in 'a' }}", "'in <string>' requires string as left operand, not int"},
    {"{{ 1 in 2 }}", "argument of type 'int' is not iterable"},
    {"{{ [1e999 - 1e999] == [1e999 - 1e999] }}", "comparing NaN within lists or dicts is not supported"},
    {"{{ {}.keys() == {}.keys() }}", "comparing two 'dict_keys' objects is not supported"},
    {"{{ name.strip == name.strip }}", "comparing two 'method' objects is not supported"},
};

static const struct row of_numbers[] = {
    {"{{ 1 / 0 }}", "line 1, column 6: division by zero"},
    {"{{ 1 // 0 }}", "integer division or modulo by zero"},
    {"{{ 1 % 0 }}", "integer division or modulo by zero"},
    {"{{ 1.5 / 0 }}", "float division by zero"},
    {"{{ 1.5 % 0 }}", "float modulo"},
    {"{{ 1.5 // 0 }}", "float floor division by zero"},
    {"{{ 0.0 ** -1 }}", "0.0 cannot be raised to a negative power"},
    {"{{ (-1.5) ** 0.5 }}", "complex numbers are not supported"},
    {"{{ -name }}", "bad operand type for unary -: 'str'"},
    {"{{ +[] }}", "bad operand type for unary +: 'list'"},
    {"{{ name|round }}", "'str' cannot be rounded"},
    {"{{ 1.5|round(23) }}", "rounding to 23 digits is not supported"},
    {"{{ 1e999|round(0, 'ceil') }}", "cannot convert float infinity to integer"},
    {"{{ (1e999 - 1e999)|round(0, 'floor') }}", "cannot convert float NaN to integer"},
    {"{{ 1|round(0, 'up') }}", "method must be common, ceil or floor"},
    {"{{ 1|round('a') }}", "the filter 'round' needs an integer, not 'str'"},
    {"{{ 1|length }}", "object of type 'int' has no len()"},
    {"{{ name|abs }}", "bad operand type for abs(): 'str'"},
    {"{{ '99999999999999999999'|int }}", "integers beyond 64 bits are not supported"},
    {"{{ messages[0].big|float }}", "integers beyond 64 bits are not supported here"},
    {"{{ '%d' % messages[0].big }}", "integers beyond 64 bits are not supported here"},
    {"{{ 1e999|int }}", "cannot convert float infinity to integer"},
};

static const struct row of_filters[] = {
    {"{{ messages|map(attribute=1.5)|list }}", "an attribute is a text or an integer, not 'float'"},
    {"{{ 1|items|list }}", "can only get item pairs from a mapping"},
    {"{{ name|map('upper')|last }}", "'generator' object is not reversible"},
    {"{{ messages|map(attribute='a.b', default=1)|list }}",
     "map() with a default for a path of several names is not supported"},
    {"{{ name|map(attribute='a', x=1)|list }}", "map() got an unexpected keyword argument"},
    {"{{ name|map|list }}", "map() requires a filter argument"},
    {"{{ name|map(1)|list }}", "the name of a filter is a text"},
    {"{{ name|select(1)|list }}", "the name of a test is a text"},
    {"{{ 1|dictsort }}", "'int' object has no attribute 'items'"},
    {"{{ {}|dictsort(by='x') }}", "you can only sort by either \"key\" or \"value\""},
    {"{{ ['a']|sum(start='b') }}", "sum() can't sum strings"},
    {"{{ name|trim(1) }}", "strip arg must be None or str"},
    {"{{ 1|indent }}", "the filter 'indent' needs a text, not 'int'"},
    {"{{ name|indent('x'|safe) }}", "the filter 'indent' with Markup as its width is not supported"},
    {"{{ name|tojson(separators=[1, 2]) }}", "separators of tojson are two texts"},
    {"{{ name.strip(1) }}", "strip arg must be None or str"},
    {"{{ name.split(1) }}", "must be str or None, not int"},
    {"{{ name.replace(1, 'a') }}", "replace() argument 1 must be str, not int"},
    {"{{ name.startswith(('a', 1)) }}", "tuple for startswith must only contain str, not int"},
    {"{{ name.endswith(1) }}", "endswith first arg must be str or a tuple of str, not int"},
    {"{{ name.index('z') }}", "substring not found"},
    {"{{ name.partition('') }}", "empty separator"},
    {"{{ name.split('') }}", "empty separator"},
    {"{{ ','.join(['a', 1]) }}", "sequence item 1: expected str instance, int found"},
    {"{{ [1].index(2) }}", "the list has no such element"},
    {"{{ name.strip(chars='a') }}", "strip() takes no keyword arguments"},
    {"{{ name.center(9, 'ab') }}", "The fill character must be exactly one character long"},
    {"{{ name.center('a') }}", "'str' object cannot be interpreted as an integer"},
};

static const struct row of_formats[] = {
    {"{{ '%.500f' % 1.5 }}", "a number of that many digits is not supported"},
    {"{{ '%s %s' % 1 }}", "not enough arguments for format string"},
    {"{{ '%(a)s' % 1 }}", "format requires a mapping"},
    {"{{ '%(a' % {'a': 1} }}", "incomplete format key"},
    {"{{ '%(b)s' % {'a': 1} }}", "the format asks for the missing key 'b'"},
    {"{{ '%*d' % ('a', 1) }}", "* wants int"},
    {"{{ '%*d' % (-1, 1) }}", "a width of -1 is not supported"},
    {"{{ '%d' % 'a' }}", "%d format: a real number is required, not str"},
    {"{{ '%d' % 1e30 }}", "integers beyond 64 bits are not supported"},
    {"{{ '%.3d' % 1 }}", "%d with a precision is not supported"},
    {"{{ '%x' % 1.5 }}", "%x format: an integer is required, not float"},
    {"{{ '%#x' % 1 }}", "%x with a precision or # is not supported"},
    {"{{ '%f' % 'a' }}", "must be real number, not str"},
    {"{{ '%c' % 'a' }}", "the format '%c' is not supported"},
    {"{{ '%5' % 1 }}", "incomplete format"},
    {"{{ ('%s'|safe) % 1 }}", "% of Markup is not supported"},
    {"{{ '%s' % (1, 2) }}", "not all arguments converted during string formatting"},
    {"{{ name|format(1, a=2) }}", "can't handle positional and keyword arguments at the same time"},
};

static tt_status render(const char *template, const struct tt_jinja_date *date)
{
    static const char text[] = "[{\"role\": \"user\", \"big\": 99999999999999999999}]";
    struct tt_jinja *jinja = NULL;
    struct tt_jinja_output output = {0};
    struct tt_json json = {0};
    const struct tt_jinja_source source = {.text = template, .bytes = strlen(template), .name = "t.jinja"};
    assert_int_equal(tt_json_parse(text, strlen(text), "test", &json), TT_OK);
    const struct tt_jinja_variable variables[] = {
        {.name = "messages", .kind = TT_JINJA_JSON, .json = json.root},
        {.name = "name", .kind = TT_JINJA_TEXT, .text = tt_span_of(name)},
    };
    tt_status status = tt_jinja_parse(&source, &jinja);
    if (status == TT_OK)
        status = tt_jinja_render(
            jinja, &(struct tt_jinja_input){.variables = variables, .variable_count = 2, .date = *date},
            &output);
    tt_jinja_output_deinit(&output);
    tt_jinja_destroy(jinja);
    tt_json_deinit(&json);
    return status;
}

static int wrong(const struct row *row, const struct tt_jinja_date *date)
{
    tt_status status = render(row->template, date);
    const char *said = status == TT_OK ? "nothing" : tt_error_last()->message;
    if (status == TT_ERR_DATA && strstr(said, row->message) != NULL && strstr(said, "line 1, ") != NULL)
        return 0;
    print_error("%s: %s\n    instead of: %s\n", row->template, said, row->message);
    return 1;
}

static void check(const struct row *rows, size_t count)
{
    int failed = 0;
    for (size_t i = 0; i < count; i++)
        failed += wrong(&rows[i], &(struct tt_jinja_date){2024, 2, 3, 4, 5, 6});
    assert_int_equal(failed, 0);
}

#define TABLE(name)                                                                                          \
    static void name(void **state)                                                                           \
    {                                                                                                        \
        (void)state;                                                                                         \
        check(of_##name, sizeof of_##name / sizeof of_##name[0]);                                            \
    }
TABLE(parsing)
TABLE(calls)
TABLE(values)
TABLE(numbers)
TABLE(filters)
TABLE(formats)

static void dates(void **state)
{
    (void)state;
    static const struct row none = {"{{ strftime_now('%Y') }}", "the date that is given is none"};
    static const struct tt_jinja_date wrong_dates[] = {
        {10000, 1, 1, 0, 0, 0}, {2024, 0, 1, 0, 0, 0},  {2024, 13, 1, 0, 0, 0},
        {2024, 1, 0, 0, 0, 0},  {2024, 1, 32, 0, 0, 0},
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof wrong_dates / sizeof wrong_dates[0]; i++)
        failed += wrong(&none, &wrong_dates[i]);
    assert_int_equal(failed, 0);
}

/* `part` this many times between two others; %d in it is the number of the repetition. */
static void repeated(const char *head, const char *part, int times, const char *tail, const char *message)
{
    struct tt_str text = {0};
    assert_int_equal(tt_str_printf(&text, "%s", head), TT_OK);
    for (int i = 0; i < times; i++) {
        assert_int_equal(tt_str_append(&text, part, strcspn(part, "%")), TT_OK);
        if (strchr(part, '%') != NULL) assert_int_equal(tt_str_printf(&text, "%d=0,", i), TT_OK);
    }
    assert_int_equal(tt_str_printf(&text, "%s", tail), TT_OK);
    assert_int_equal(wrong(&(struct row){text.data, message}, &(struct tt_jinja_date){0}), 0);
    tt_str_deinit(&text);
}

static void sizes(void **state)
{
    (void)state;
    repeated("{{ ", "1", 400, " }}", "a number of too many digits");
    repeated("{{ dict(", "a%", 301, ") }}", "more than 300 named arguments");
    struct tt_str text = {0};
    for (int i = 0; i < TT_JINJA_TEXT_MAX / 64; i++)
        assert_int_equal(tt_str_printf(&text, "%064d", 0), TT_OK);
    assert_int_equal(tt_str_append_char(&text, 'a'), TT_OK);
    name = text.data;
    assert_int_equal(render("{{ name }}", &(struct tt_jinja_date){0}), TT_ERR_DATA);
    assert_non_null(
        strstr(tt_error_last()->message, "a text of 16777217 bytes, at most 16777216 are allowed"));
    name = "value";
    tt_str_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parsing), cmocka_unit_test(calls),   cmocka_unit_test(values),
        cmocka_unit_test(numbers), cmocka_unit_test(filters), cmocka_unit_test(formats),
        cmocka_unit_test(dates),   cmocka_unit_test(sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
