#include "base/number.h"

#include <locale.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS_MAX = 17 }; /* which tell any two doubles apart */

/* The C locale is a constant of the C library: this call allocates nothing and needs no freelocale(). */
static locale_t c_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

int tt_vsnprintf(char *text, size_t text_bytes, const char *format, va_list arguments)
{
    locale_t before = uselocale(c_locale());
    int written = vsnprintf(text, text_bytes, format, arguments);
    uselocale(before);
    return written;
}

const char *tt_errno_text(int error_number)
{
    return strerror_l(error_number, c_locale());
}

int tt_snprintf(char *text, size_t text_bytes, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int written = tt_vsnprintf(text, text_bytes, format, arguments);
    va_end(arguments);
    return written;
}

static size_t skip_digits(const char *text, size_t at)
{
    while (text[at] >= '0' && text[at] <= '9') at++;
    return at;
}

size_t tt_parse_double_prefix(const char *text, double *out)
{
    size_t start = text[0] == '+' || text[0] == '-' ? 1 : 0;
    size_t at = skip_digits(text, start);
    size_t digits = at - start;
    if (text[at] == '.') {
        size_t end = skip_digits(text, at + 1);
        digits += end - at - 1;
        /* A point without a digit on either side is not part of a number. */
        if (digits > 0) at = end;
    }
    if (digits == 0) return 0;
    /* Only hexadecimal numbers differ for strtod: here "0x10" is the number 0 followed by an 'x'. */
    bool hexadecimal = text[start] == '0' && (text[start + 1] == 'x' || text[start + 1] == 'X');
    if (hexadecimal) {
        *out = text[0] == '-' ? -0.0 : 0.0;
        return at;
    }
    char *end;
    *out = strtod_l(text, &end, c_locale());
    return (size_t)(end - text);
}

bool tt_parse_double(const char *text, double *out)
{
    double value;
    size_t bytes = tt_parse_double_prefix(text, &value);
    if (bytes == 0 || text[bytes] != '\0' || !isfinite(value)) return false;
    *out = value;
    return true;
}

/* A decimal number d.ddd x 10^exponent of `count` digits, as an integer. */
struct decimal {
    uint64_t digits;
    int count;
    int exponent;
};

/* Where digits and power of ten are doubles without rounding, so one operation rounds once, as strtod does. */
static double decimal_value(struct decimal decimal)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const int power_max = (int)(sizeof powers / sizeof *powers) - 1;
    char text[48];
    int power = decimal.exponent - (decimal.count - 1);
    if (decimal.digits <= UINT64_C(1) << 53 && abs(power) <= power_max)
        return power < 0 ? (double)decimal.digits / powers[-power] : (double)decimal.digits * powers[power];
    snprintf(text, sizeof text, "%llue%d", (unsigned long long)decimal.digits, power);
    return strtod_l(text, NULL, c_locale());
}

static struct decimal decimal_round(double value, int count)
{
    char text[48];
    tt_snprintf(text, sizeof text, "%.*e", count - 1, value);
    char *mark = strchr(text, 'e');
    struct decimal decimal = {0, count, atoi(mark + 1)};
    for (char *at = text; at < mark; at++) {
        if (*at >= '0' && *at <= '9') decimal.digits = decimal.digits * 10 + (uint64_t)(*at - '0');
    }
    return decimal;
}

/* A decimal of `count` digits that parses back. At a power of two the gap below is half the gap above, so the nearest
 * decimal may not parse back while its neighbour does. */
static bool decimal_find(double value, int count, struct decimal *out)
{
    int exponent;
    *out = decimal_round(value, count);
    if (count >= DIGITS_MAX || decimal_value(*out) == value) return true;
    if (frexp(value, &exponent) != 0.5) return false;
    out->digits++;
    if (decimal_value(*out) == value) return true;
    out->digits -= 2;
    return decimal_value(*out) == value;
}

/* If one of some length parses back, one of each greater length does. */
static struct decimal decimal_shortest(double value)
{
    struct decimal shortest = {0}, tried;
    for (int least = 1, most = DIGITS_MAX; least <= most;) {
        int count = (least + most) / 2;
        if (decimal_find(value, count, &tried)) {
            shortest = tried;
            most = count - 1;
        } else {
            least = count + 1;
        }
    }
    return shortest;
}

/* The text of value > 0, finite. */
static void format_positive(double value, char *text, size_t text_bytes)
{
    struct decimal decimal = decimal_shortest(value);
    char digits[24];
    int count = snprintf(digits, sizeof digits, "%llu", (unsigned long long)decimal.digits);
    while (count > 1 && digits[count - 1] == '0') count--;
    int exponent = decimal.exponent;
    if (exponent < -4 || exponent >= 16) {
        snprintf(text, text_bytes, "%c%s%.*se%c%02d", digits[0], count > 1 ? "." : "", count - 1, digits + 1,
                 exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        snprintf(text, text_bytes, "0.%.*s%.*s", -exponent - 1, "0000", count, digits);
    } else if (count <= exponent + 1) {
        snprintf(text, text_bytes, "%.*s%.*s", count, digits, exponent + 1 - count, "0000000000000000");
    } else {
        snprintf(text, text_bytes, "%.*s.%.*s", exponent + 1, digits, count - exponent - 1,
                 digits + exponent + 1);
    }
}

const char *tt_format_double(double value, char *text, size_t text_bytes)
{
    char number[TT_DOUBLE_TEXT_BYTES] = "0";
    if (isnan(value)) {
        snprintf(text, text_bytes, "nan");
        return text;
    }
    if (isinf(value))
        snprintf(number, sizeof number, "inf");
    else if (value != 0)
        format_positive(fabs(value), number, sizeof number);
    snprintf(text, text_bytes, "%s%s", signbit(value) ? "-" : "", number);
    return text;
}
