#include "data/parquet/json_text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/number.h"
#include "base/utf8.h"

#define DAY_SECONDS 86400

/* ---- Texts ---- */

tt_status parquet_json_string(const char *data, size_t bytes, struct tt_str *text)
{
    static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    size_t plain = 0;
    TT_TRY(tt_str_append_char(text, '"'));
    for (size_t at = 0; at < bytes; at++) {
        unsigned char c = (unsigned char)data[at];
        if (c >= ' ' && c != '"' && c != '\\') continue;
        TT_TRY(tt_str_append(text, data + plain, at - plain));
        plain = at + 1;
        const char *known = memchr(escaped, c, sizeof escaped - 1);
        if (known != NULL) {
            const char escape[] = {'\\', letters[known - escaped]};
            TT_TRY(tt_str_append(text, escape, sizeof escape));
        } else {
            TT_TRY(tt_str_printf(text, "\\u%04x", c));
        }
    }
    TT_TRY(tt_str_append(text, data + plain, bytes - plain));
    return tt_str_append_char(text, '"');
}

static tt_status write_uuid(const uint8_t *data, struct tt_str *text)
{
    for (int i = 0; i < 16; i++)
        TT_TRY(tt_str_printf(text, "%s%02x",
                             i == 0                                  ? "\""
                             : i == 4 || i == 6 || i == 8 || i == 10 ? "-"
                                                                     : "",
                             data[i]));
    return tt_str_append_char(text, '"');
}

/* ---- Numbers ---- */

static int64_t read_integer(const struct parquet_value *value)
{
    int64_t wide;
    int32_t narrow;
    if (value->bytes == sizeof wide) return memcpy(&wide, value->data, sizeof wide), wide;
    return memcpy(&narrow, value->data, sizeof narrow), narrow;
}

static uint64_t read_unsigned(const struct parquet_value *value)
{
    int64_t number = read_integer(value);
    return value->bytes == sizeof number ? (uint64_t)number : (uint32_t)number;
}

/* Python's float.__repr__, and json's names of infinities and NaN. */
static tt_status write_double(double number, struct tt_str *text)
{
    char digits[TT_DOUBLE_TEXT_BYTES];
    if (isnan(number)) return tt_str_append_text(text, "NaN");
    if (isinf(number)) return tt_str_append_text(text, number < 0 ? "-Infinity" : "Infinity");
    TT_TRY(tt_str_append_text(text, tt_format_double(number, digits, sizeof digits)));
    return strpbrk(digits, ".e") == NULL ? tt_str_append_text(text, ".0") : TT_OK;
}

static double half_to_double(const uint8_t *data)
{
    int bits = data[0] | data[1] << 8, exponent = bits >> 10 & 31, fraction = bits & 1023;
    double number = exponent == 0    ? ldexp(fraction, -24)
                    : exponent == 31 ? (fraction == 0 ? INFINITY : NAN)
                                     : ldexp(fraction + 1024, exponent - 25);
    return bits >> 15 ? -number : number;
}

static tt_status write_real(const struct parquet_value *value, struct tt_str *text)
{
    float single;
    double number;
    if (value->bytes == 2) {
        number = half_to_double(value->data);
    } else if (value->bytes == sizeof single) {
        memcpy(&single, value->data, sizeof single);
        number = single;
    } else {
        memcpy(&number, value->data, sizeof number);
    }
    return write_double(number, text);
}

/* Bytes: the highest first; integers: the lowest. */
static bool read_decimal(const struct parquet_node *node, const struct parquet_value *value, __int128 *out)
{
    if (node->type == PARQUET_INT32 || node->type == PARQUET_INT64) {
        *out = read_integer(value);
        return true;
    }
    if (value->bytes == 0 || value->bytes > sizeof *out) return false;
    unsigned __int128 number = value->data[0] & 0x80 ? ~(unsigned __int128)0 : 0;
    for (size_t i = 0; i < value->bytes; i++) number = number << 8 | value->data[i];
    *out = (__int128)number;
    return true;
}

static tt_status write_decimal(__int128 number, int32_t scale, struct tt_str *text)
{
    char digits[48];
    int count = 0;
    unsigned __int128 rest = number < 0 ? -(unsigned __int128)number : (unsigned __int128)number;
    for (; rest > 0; rest /= 10) digits[count++] = (char)('0' + (int)(rest % 10));
    if (number < 0) TT_TRY(tt_str_append_char(text, '-'));
    if (count <= scale) TT_TRY(tt_str_append_char(text, '0'));
    for (int place = count > scale ? count : scale; place > 0; place--) {
        if (place == scale) TT_TRY(tt_str_append_char(text, '.'));
        TT_TRY(tt_str_append_char(text, place > count ? '0' : digits[place - 1]));
    }
    return TT_OK;
}

/* ---- Times ---- */

/* The day of the Gregorian calendar, days after 1970-01-01: years of 365.2425 days that begin in March, so that the day
 * that a leap year adds is the last one. */
static tt_status write_day(int64_t days, struct tt_str *text)
{
    int64_t since = days + 719468; /* 0000-03-01 */
    int64_t era = (since >= 0 ? since : since - 146096) / 146097;
    int64_t day = since - era * 146097;
    int64_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    int64_t of_year = day - (365 * year + year / 4 - year / 100);
    int64_t month = (5 * of_year + 2) / 153, of_month = of_year - (153 * month + 2) / 5 + 1;
    month += month < 10 ? 3 : -9;
    year += era * 400 + (month <= 2);
    return tt_str_printf(text, "%04" PRId64 "-%02" PRId64 "-%02" PRId64, year, month, of_month);
}

/* Nanoseconds are shown where there are some, as pandas' times do. */
static tt_status write_clock(int64_t seconds, int64_t nanos, struct tt_str *text)
{
    TT_TRY(tt_str_printf(text, "%02d:%02d:%02d", (int)(seconds / 3600), (int)(seconds / 60 % 60),
                         (int)(seconds % 60)));
    if (nanos == 0) return TT_OK;
    if (nanos % 1000 == 0) return tt_str_printf(text, ".%06d", (int)(nanos / 1000));
    return tt_str_printf(text, ".%09d", (int)nanos);
}

static int64_t per_second(int unit)
{
    return unit == 0 ? 1 : unit == PARQUET_MILLIS ? 1000 : unit == PARQUET_MICROS ? 1000000 : 1000000000;
}

static int64_t floor_divide(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static int64_t floor_remainder(int64_t a, int64_t b)
{
    return a % b < 0 ? a % b + b : a % b;
}

static tt_status write_timestamp(const struct parquet_node *node, int64_t value, struct tt_str *text)
{
    int64_t unit = per_second(node->unit), seconds = floor_divide(value, unit);
    TT_TRY(tt_str_append_char(text, '"'));
    TT_TRY(write_day(floor_divide(seconds, DAY_SECONDS), text));
    TT_TRY(tt_str_append_char(text, ' '));
    TT_TRY(write_clock(floor_remainder(seconds, DAY_SECONDS),
                       floor_remainder(value, unit) * (1000000000 / unit), text));
    return tt_str_append_text(text, node->utc ? "+00:00\"" : "\"");
}

/* Nanoseconds of the day, then the Julian day. */
static tt_status write_int96(const uint8_t *data, struct tt_str *text, const char **why)
{
    int64_t nanos;
    int32_t day;
    memcpy(&nanos, data, sizeof nanos);
    memcpy(&day, data + sizeof nanos, sizeof day);
    if (nanos < 0 || nanos >= (int64_t)DAY_SECONDS * 1000000000) {
        *why = "a time of day is not within a day";
        return TT_OK;
    }
    TT_TRY(tt_str_append_char(text, '"'));
    TT_TRY(write_day((int64_t)day - 2440588, text));
    TT_TRY(tt_str_append_char(text, ' '));
    TT_TRY(write_clock(nanos / 1000000000, nanos % 1000000000, text));
    return tt_str_append_char(text, '"');
}

static tt_status write_time(const struct parquet_node *node, int64_t value, struct tt_str *text,
                            const char **why)
{
    int64_t unit = per_second(node->unit);
    if (value < 0 || value / unit >= DAY_SECONDS) {
        *why = "a time of day is not within a day";
        return TT_OK;
    }
    TT_TRY(tt_str_append_char(text, '"'));
    TT_TRY(write_clock(value / unit, value % unit * (1000000000 / unit), text));
    return tt_str_append_char(text, '"');
}

static tt_status write_date(int64_t days, struct tt_str *text)
{
    TT_TRY(tt_str_append_char(text, '"'));
    TT_TRY(write_day(days, text));
    return tt_str_append_char(text, '"');
}

/* ---- Values ---- */

static tt_status write_value(const struct parquet_node *node, const struct parquet_value *value,
                             struct tt_str *text, const char **why)
{
    __int128 decimal;
    switch (node->kind) {
    case PARQUET_KIND_TEXT:
    case PARQUET_KIND_BYTES:
        if (tt_utf8_invalid_at((const char *)value->data, value->bytes) == value->bytes)
            return parquet_json_string((const char *)value->data, value->bytes, text);
        *why = "a value is not text: its bytes are not UTF-8";
        return TT_OK;
    case PARQUET_KIND_BOOLEAN:
        return tt_str_append_text(text, value->data[0] ? "true" : "false");
    case PARQUET_KIND_SIGNED:
        return tt_str_printf(text, "%" PRId64, read_integer(value));
    case PARQUET_KIND_UNSIGNED:
        return tt_str_printf(text, "%" PRIu64, read_unsigned(value));
    case PARQUET_KIND_FLOAT16:
    case PARQUET_KIND_FLOAT:
    case PARQUET_KIND_DOUBLE:
        return write_real(value, text);
    case PARQUET_KIND_DECIMAL:
        if (read_decimal(node, value, &decimal)) return write_decimal(decimal, node->scale, text);
        *why = "a decimal has more than 16 bytes, or none";
        return TT_OK;
    case PARQUET_KIND_DATE:
        return write_date(read_integer(value), text);
    case PARQUET_KIND_TIME:
        return write_time(node, read_integer(value), text, why);
    case PARQUET_KIND_TIMESTAMP:
        return write_timestamp(node, read_integer(value), text);
    case PARQUET_KIND_INT96:
        return write_int96(value->data, text, why);
    case PARQUET_KIND_UUID:
        return write_uuid(value->data, text);
    case PARQUET_KIND_OBJECT:
    case PARQUET_KIND_LIST:
    case PARQUET_KIND_MAP:
        break;
    }
    return tt_fail(TT_ERR_INTERNAL, "a column's value has no type");
}

bool parquet_json_value(const struct parquet_node *node, const struct parquet_value *value,
                        struct tt_str *text, const char **why, tt_status *status)
{
    const char *reason = NULL;
    tt_status result = write_value(node, value, text, &reason);
    if (result != TT_OK) *status = result;
    if (reason != NULL) *why = reason;
    return result == TT_OK && reason == NULL;
}
