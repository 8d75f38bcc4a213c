/* Arithmetic: Python's, with integers of 64 bits. */
#include <math.h>
#include <stdlib.h>

#include "base/number.h"
#include "text/jinja/render.h"

static const char *sign_text(int op)
{
    switch (op) {
    case '+':
        return "+";
    case '-':
        return "-";
    case '*':
        return "*";
    case '/':
        return "/";
    case '%':
        return "%";
    case JINJA_SIGN_FLOORDIV:
        return "//";
    default:
        return "** or pow()";
    }
}

static tt_status fail_overflow(struct jinja_render *render)
{
    return jinja_fail(render, "integers beyond 64 bits are not supported");
}

static tt_status power_of_ints(struct jinja_render *render, int64_t base, int64_t exponent,
                               struct jinja_value *out)
{
    int64_t result = 1;
    for (; exponent > 0; exponent >>= 1) {
        if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result))
            return fail_overflow(render);
        if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return fail_overflow(render);
    }
    *out = jinja_integer(result);
    return TT_OK;
}

static tt_status compute_ints(struct jinja_render *render, int op, int64_t a, int64_t b,
                              struct jinja_value *out)
{
    int64_t result = 0;
    bool overflows = false;
    switch (op) {
    case '+':
        overflows = __builtin_add_overflow(a, b, &result);
        break;
    case '-':
        overflows = __builtin_sub_overflow(a, b, &result);
        break;
    case '*':
        overflows = __builtin_mul_overflow(a, b, &result);
        break;
    case JINJA_SIGN_POW:
        return power_of_ints(render, a, b, out);
    case '/':
        if (b == 0) return jinja_fail(render, "division by zero");
        *out = jinja_float((double)((long double)a / (long double)b));
        return TT_OK;
    default:
        if (b == 0) return jinja_fail(render, "integer division or modulo by zero");
        if (b == -1) {
            overflows = op != '%' && a == INT64_MIN;
            result = op == '%' || overflows ? 0 : -a;
            break;
        }
        result = op == '%' ? a % b : a / b;
        /* C rounds to zero, Python down. */
        if (a % b != 0 && (a < 0) != (b < 0)) result += op == '%' ? b : -1;
    }
    if (overflows) return fail_overflow(render);
    *out = jinja_integer(result);
    return TT_OK;
}

/* Python's float_divmod(). */
static void divide_floats(double a, double b, double *quotient, double *rest)
{
    double mod = fmod(a, b), div = (a - mod) / b;
    if (mod != 0) {
        if ((b < 0) != (mod < 0)) {
            mod += b;
            div -= 1;
        }
    } else {
        mod = copysign(0, b);
    }
    if (div != 0) {
        *quotient = floor(div);
        if (div - *quotient > 0.5) *quotient += 1;
    } else {
        *quotient = copysign(0, a / b);
    }
    *rest = mod;
}

static tt_status compute_floats(struct jinja_render *render, int op, double a, double b,
                                struct jinja_value *out)
{
    double result, other;
    bool divides = op == '/' || op == '%' || op == JINJA_SIGN_FLOORDIV;
    if (divides && b == 0)
        return jinja_fail(render, "%s",
                          op == '/'   ? "float division by zero"
                          : op == '%' ? "float modulo"
                                      : "float floor division by zero");
    switch (op) {
    case '+':
        result = a + b;
        break;
    case '-':
        result = a - b;
        break;
    case '*':
        result = a * b;
        break;
    case '/':
        result = a / b;
        break;
    case '%':
        divide_floats(a, b, &other, &result);
        break;
    case JINJA_SIGN_FLOORDIV:
        divide_floats(a, b, &result, &other);
        break;
    default:
        if (a == 0 && b < 0) return jinja_fail(render, "0.0 cannot be raised to a negative power");
        if (a < 0 && isfinite(a) && isfinite(b) && floor(b) != b)
            return jinja_fail(render, "complex numbers are not supported");
        result = pow(a, b);
        if (isinf(result) && isfinite(a) && isfinite(b))
            return jinja_fail(render, "the result of ** is too large");
    }
    *out = jinja_float(result);
    return TT_OK;
}

static double real_of(const struct jinja_value *value)
{
    return value->type == JINJA_FLOAT ? value->real : (double)jinja_int_of(value);
}

static tt_status compute_numbers(struct jinja_render *render, int op, const struct jinja_value *a,
                                 const struct jinja_value *b, struct jinja_value *out)
{
    if (a->type == JINJA_HUGE || b->type == JINJA_HUGE) return fail_overflow(render);
    bool are_ints = jinja_is_int(a) && jinja_is_int(b);
    if (are_ints && (op != JINJA_SIGN_POW || jinja_int_of(b) >= 0))
        return compute_ints(render, op, jinja_int_of(a), jinja_int_of(b), out);
    return compute_floats(render, op, real_of(a), real_of(b), out);
}

/* Text of which one side is Markup: the other one is escaped. */
static tt_status write_operand(struct jinja_writer *writer, const struct jinja_value *value, bool escapes)
{
    if (!escapes || value->is_markup) return jinja_write_part(writer, value, 0, value->text->bytes);
    return jinja_write_escaped(writer, value);
}

static tt_status join_texts(struct jinja_render *render, const struct jinja_value *a,
                            const struct jinja_value *b, struct jinja_value *out)
{
    struct jinja_writer writer = jinja_writer_new(render);
    bool is_markup = a->is_markup || b->is_markup;
    TT_TRY(jinja_reserve(&writer, (size_t)a->text->bytes + b->text->bytes));
    TT_TRY(write_operand(&writer, a, is_markup));
    TT_TRY(write_operand(&writer, b, is_markup));
    TT_TRY(jinja_writer_value(&writer, out));
    out->is_markup = is_markup;
    return TT_OK;
}

static tt_status join_lists(struct jinja_render *render, const struct jinja_value *a,
                            const struct jinja_value *b, struct jinja_value *out)
{
    struct jinja_value made;
    size_t count = a->list->count + b->list->count;
    TT_TRY(jinja_charge(render, count / 8));
    TT_TRY(jinja_new_list(render, count, a->type == JINJA_TUPLE, &made));
    for (size_t i = 0; i < a->list->count; i++) made.list->elements[i] = a->list->elements[i];
    for (size_t i = 0; i < b->list->count; i++)
        made.list->elements[a->list->count + i] = b->list->elements[i];
    *out = made;
    return TT_OK;
}

static tt_status repeat(struct jinja_render *render, const struct jinja_value *of, int64_t times,
                        struct jinja_value *out)
{
    if (times < 0) times = 0;
    if (of->type == JINJA_TEXT) {
        struct jinja_writer writer = jinja_writer_new(render);
        size_t bytes;
        if (__builtin_mul_overflow(of->text->bytes, (size_t)times, &bytes)) bytes = SIZE_MAX;
        TT_TRY(jinja_reserve(&writer, bytes));
        for (int64_t i = 0; i < times && of->text->bytes > 0; i++) {
            TT_TRY(jinja_charge(render, 1));
            TT_TRY(jinja_write_part(&writer, of, 0, of->text->bytes));
        }
        TT_TRY(jinja_writer_value(&writer, out));
        out->is_markup = of->is_markup;
        return TT_OK;
    }
    size_t count = 0, each = of->list->count;
    if (__builtin_mul_overflow(each, (size_t)times, &count) || count > TT_JINJA_MEMORY_MAX / sizeof *of)
        return jinja_fail(render, "a list of that many elements exceeds the memory limit");
    struct jinja_value made;
    TT_TRY(jinja_charge(render, count / 8));
    TT_TRY(jinja_new_list(render, count, of->type == JINJA_TUPLE, &made));
    for (size_t i = 0; i < count; i++) made.list->elements[i] = of->list->elements[i % each];
    *out = made;
    return TT_OK;
}

static bool is_sequence(const struct jinja_value *value)
{
    return value->type == JINJA_TEXT || value->type == JINJA_LIST || value->type == JINJA_TUPLE;
}

static tt_status fail_operands(struct jinja_render *render, int op, const struct jinja_value *a,
                               const struct jinja_value *b)
{
    if (op == '+' && a->type == JINJA_TEXT)
        return jinja_fail(render, "can only concatenate str (not \"%s\") to str", jinja_type_name(b));
    return jinja_fail(render, "unsupported operand type(s) for %s: '%s' and '%s'", sign_text(op),
                      jinja_type_name(a), jinja_type_name(b));
}

tt_status jinja_binary(struct jinja_render *render, int op, const struct jinja_value *a,
                       const struct jinja_value *b, struct jinja_value *out)
{
    if (jinja_is_number(a) && jinja_is_number(b)) return compute_numbers(render, op, a, b, out);
    if (op == '%' && a->type == JINJA_TEXT) return jinja_percent(render, a, b, out);
    if (a->type == JINJA_UNDEFINED) return jinja_fail_undefined(render, a);
    if (b->type == JINJA_UNDEFINED) return jinja_fail_undefined(render, b);
    if (op == '+' && a->type == b->type && is_sequence(a))
        return a->type == JINJA_TEXT ? join_texts(render, a, b, out) : join_lists(render, a, b, out);
    if (op == '*' && is_sequence(a) && jinja_is_int(b)) return repeat(render, a, jinja_int_of(b), out);
    if (op == '*' && jinja_is_int(a) && is_sequence(b)) return repeat(render, b, jinja_int_of(a), out);
    return fail_operands(render, op, a, b);
}

tt_status jinja_negate(struct jinja_render *render, const struct jinja_value *a, bool negative,
                       struct jinja_value *out)
{
    if (a->type == JINJA_UNDEFINED) return jinja_fail_undefined(render, a);
    if (a->type == JINJA_FLOAT) {
        *out = jinja_float(negative ? -a->real : a->real);
        return TT_OK;
    }
    if (!jinja_is_int(a)) {
        if (a->type == JINJA_HUGE) return fail_overflow(render);
        return jinja_fail(render, "bad operand type for unary %c: '%s'", negative ? '-' : '+',
                          jinja_type_name(a));
    }
    int64_t value = jinja_int_of(a);
    if (negative && value == INT64_MIN) return fail_overflow(render);
    *out = jinja_integer(negative ? -value : value);
    return TT_OK;
}

/* round(value, precision) of Python, and ceil and floor as the filter `round` has them. */
tt_status jinja_round(struct jinja_render *render, const struct jinja_value *value, int64_t precision,
                      char method, struct jinja_value *out)
{
    char text[400];
    double result;
    if (!jinja_is_number(value) || value->type == JINJA_HUGE)
        return jinja_fail(render, "'%s' cannot be rounded", jinja_type_name(value));
    if (precision < 0 || precision > 22)
        return jinja_fail(render, "rounding to %lld digits is not supported", (long long)precision);
    if (method == 'm' && jinja_is_int(value)) {
        *out = jinja_integer(jinja_int_of(value));
        return TT_OK;
    }
    double number = real_of(value);
    if (method == 'm') {
        /* Correct rounding to a decimal, half to even, and back: what Python does. */
        tt_snprintf(text, sizeof text, "%.*f", (int)precision, number);
        result = isfinite(number) && tt_parse_double_prefix(text, &result) > 0 ? result : number;
    } else {
        int64_t scale = 1;
        if (!isfinite(number))
            return jinja_fail(render, "cannot convert float %s to integer",
                              isnan(number) ? "NaN" : "infinity");
        for (int64_t i = 0; i < precision; i++)
            if (__builtin_mul_overflow(scale, 10, &scale)) return fail_overflow(render);
        number *= (double)scale;
        result = (method == 'c' ? ceil(number) : floor(number)) / (double)scale;
        if (result == 0) result = 0;
    }
    *out = jinja_float(result);
    return TT_OK;
}
