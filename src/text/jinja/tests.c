/* Tests: `value is name`. */
#include "text/jinja/render.h"

struct test_call {
    struct jinja_render *render;
    const struct jinja_value *value;
    const struct jinja_value *argument; /* of tests that need one */
    int op;                             /* of comparisons */
};

typedef tt_status run_test(const struct test_call *test, bool *out);

static tt_status test_defined(const struct test_call *test, bool *out)
{
    *out = (test->value->type != JINJA_UNDEFINED) == (test->op == 0);
    return TT_OK;
}

static tt_status test_type(const struct test_call *test, bool *out)
{
    *out = test->value->type == test->op;
    return TT_OK;
}

static tt_status test_integer(const struct test_call *test, bool *out)
{
    *out = test->value->type == JINJA_INTEGER || test->value->type == JINJA_HUGE;
    return TT_OK;
}

static tt_status test_boolean(const struct test_call *test, bool *out)
{
    *out = test->value->type == JINJA_BOOL && test->value->boolean == (test->op != 0);
    return TT_OK;
}

static tt_status test_number(const struct test_call *test, bool *out)
{
    *out = jinja_is_number(test->value);
    return TT_OK;
}

static tt_status test_iterable(const struct test_call *test, bool *out)
{
    *out = jinja_is_iterable(test->value);
    return TT_OK;
}

static tt_status test_sequence(const struct test_call *test, bool *out)
{
    int64_t length;
    *out = jinja_length(test->value, &length) && test->value->type != JINJA_VIEW;
    return TT_OK;
}

static tt_status test_callable(const struct test_call *test, bool *out)
{
    uint8_t type = test->value->type;
    *out = type == JINJA_UNDEFINED || type == JINJA_MACRO || type == JINJA_METHOD || type == JINJA_FUNCTION ||
           type == JINJA_LOOP;
    return TT_OK;
}

static tt_status test_escaped(const struct test_call *test, bool *out)
{
    *out = test->value->type == JINJA_TEXT && test->value->is_markup;
    return TT_OK;
}

static tt_status test_case(const struct test_call *test, bool *out)
{
    struct jinja_value text;
    TT_TRY(jinja_to_text(test->render, test->value, &text));
    TT_TRY(jinja_charge(test->render, text.text->bytes / 16));
    *out = jinja_text_is(jinja_span(&text), test->op != 0 ? JINJA_IS_UPPER : JINJA_IS_LOWER);
    return TT_OK;
}

/* value % divisor == rest */
static tt_status has_rest(const struct test_call *test, const struct jinja_value *divisor, int64_t rest,
                          bool *out)
{
    struct jinja_value result, wanted = jinja_integer(rest);
    TT_TRY(jinja_binary(test->render, '%', test->value, divisor, &result));
    return jinja_equal(test->render, &result, &wanted, out);
}

static tt_status test_parity(const struct test_call *test, bool *out)
{
    struct jinja_value two = jinja_integer(2);
    return has_rest(test, &two, test->op, out);
}

static tt_status test_divisible(const struct test_call *test, bool *out)
{
    return has_rest(test, test->argument, 0, out);
}

static tt_status test_equal(const struct test_call *test, bool *out)
{
    TT_TRY(jinja_equal(test->render, test->value, test->argument, out));
    *out = *out == (test->op == 0);
    return TT_OK;
}

static tt_status test_order(const struct test_call *test, bool *out)
{
    int order;
    const char *sign = test->op == '<'             ? "<"
                       : test->op == '>'           ? ">"
                       : test->op == JINJA_SIGN_LE ? "<="
                                                   : ">=";
    TT_TRY(jinja_order(test->render, test->value, test->argument, sign, &order));
    *out = order != 2 && (test->op == '<'             ? order < 0
                          : test->op == '>'           ? order > 0
                          : test->op == JINJA_SIGN_LE ? order <= 0
                                                      : order >= 0);
    return TT_OK;
}

static tt_status test_in(const struct test_call *test, bool *out)
{
    return jinja_contains(test->render, test->value, test->argument, out);
}

/* Python's `is`, where it does not depend on how its values are stored. */
static tt_status test_same(const struct test_call *test, bool *out)
{
    const struct jinja_value *a = test->value, *b = test->argument;
    *out = false;
    if (a->type != b->type) return TT_OK;
    switch (a->type) {
    case JINJA_NONE:
        *out = true;
        return TT_OK;
    case JINJA_BOOL:
        *out = a->boolean == b->boolean;
        return TT_OK;
    case JINJA_INTEGER:
        *out = a->integer == b->integer;
        if (!*out || (a->integer >= -5 && a->integer <= 256)) return TT_OK;
        break;
    case JINJA_LIST:
    case JINJA_DICT:
    case JINJA_NAMESPACE:
    case JINJA_MACRO:
        *out = a->dict == b->dict;
        return TT_OK;
    default:
        break;
    }
    return jinja_fail(test->render, "the test 'sameas' of two '%s' objects is not supported",
                      jinja_type_name(a));
}

static tt_status test_name(const struct test_call *test, bool *out)
{
    if (!jinja_is_text(test->value))
        return jinja_fail(test->render, "the name of a filter or test is a text");
    struct tt_span name = jinja_span(test->value);
    *out = test->op != 0 ? jinja_test_id(name) >= 0
                         : jinja_filter_id(name) >= 0 || jinja_filter_is_refused(name);
    return TT_OK;
}

static const struct {
    const char *name;
    run_test *run;
    int op;
    bool has_argument;
} tests[] = {
    {"defined", test_defined, 0, false},
    {"undefined", test_defined, 1, false},
    {"none", test_type, JINJA_NONE, false},
    {"string", test_type, JINJA_TEXT, false},
    {"mapping", test_type, JINJA_DICT, false},
    {"boolean", test_type, JINJA_BOOL, false},
    {"float", test_type, JINJA_FLOAT, false},
    {"integer", test_integer, 0, false},
    {"number", test_number, 0, false},
    {"true", test_boolean, 1, false},
    {"false", test_boolean, 0, false},
    {"iterable", test_iterable, 0, false},
    {"sequence", test_sequence, 0, false},
    {"callable", test_callable, 0, false},
    {"escaped", test_escaped, 0, false},
    {"lower", test_case, 0, false},
    {"upper", test_case, 1, false},
    {"even", test_parity, 0, false},
    {"odd", test_parity, 1, false},
    {"divisibleby", test_divisible, 0, true},
    {"equalto", test_equal, 0, true},
    {"eq", test_equal, 0, true},
    {"==", test_equal, 0, true},
    {"ne", test_equal, 1, true},
    {"!=", test_equal, 1, true},
    {"lt", test_order, '<', true},
    {"lessthan", test_order, '<', true},
    {"<", test_order, '<', true},
    {"le", test_order, JINJA_SIGN_LE, true},
    {"<=", test_order, JINJA_SIGN_LE, true},
    {"gt", test_order, '>', true},
    {"greaterthan", test_order, '>', true},
    {">", test_order, '>', true},
    {"ge", test_order, JINJA_SIGN_GE, true},
    {">=", test_order, JINJA_SIGN_GE, true},
    {"in", test_in, 0, true},
    {"sameas", test_same, 0, true},
    {"filter", test_name, 0, false},
    {"test", test_name, 1, false},
};

int jinja_test_id(struct tt_span name)
{
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        if (tt_span_equals(name, tests[i].name)) return (int)i;
    return -1;
}

tt_status jinja_apply_test(struct jinja_render *render, int id, const struct jinja_value *value,
                           struct jinja_call *call, bool *out)
{
    struct test_call test = {.render = render, .value = value, .op = tests[id].op};
    if (call->named.count > 0)
        return jinja_fail(render, "the test '%s' with named arguments is not supported", tests[id].name);
    if (call->count != (tests[id].has_argument ? 1 : 0))
        return jinja_fail(render, "the test '%s' takes %s argument, %zu are given", tests[id].name,
                          tests[id].has_argument ? "one" : "no", call->count);
    if (tests[id].has_argument) test.argument = &call->positional[0];
    return tests[id].run(&test, out);
}
