#include "base/str.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/ascii.h"
#include "base/number.h"

/* Room for `more` bytes and the terminator; doubling keeps appends amortised O(1). */
static tt_status reserve(struct tt_str *str, size_t more)
{
    size_t wanted;
    if (__builtin_add_overflow(str->bytes, more, &wanted) || wanted >= PTRDIFF_MAX / 2) {
        return tt_fail(TT_ERR_MEMORY, "out of memory: a string of %zu bytes cannot grow by %zu", str->bytes,
                       more);
    }
    wanted++;
    if (wanted <= str->capacity) return TT_OK;
    size_t capacity = str->capacity < 32 ? 32 : str->capacity * 2;
    if (capacity < wanted) capacity = wanted;
    char *grown = tt_realloc(str->data, capacity, 1);
    if (grown == NULL) return TT_ERR_MEMORY;
    str->data = grown;
    str->capacity = capacity;
    return TT_OK;
}

tt_status tt_str_append(struct tt_str *str, const char *data, size_t bytes)
{
    TT_TRY(reserve(str, bytes));
    if (bytes > 0) memcpy(str->data + str->bytes, data, bytes);
    str->bytes += bytes;
    str->data[str->bytes] = '\0';
    return TT_OK;
}

tt_status tt_str_append_text(struct tt_str *str, const char *text)
{
    return tt_str_append(str, text, strlen(text));
}

tt_status tt_str_append_char(struct tt_str *str, char c)
{
    return tt_str_append(str, &c, 1);
}

tt_status tt_str_append_fill(struct tt_str *str, char c, size_t count)
{
    TT_TRY(reserve(str, count));
    memset(str->data + str->bytes, c, count);
    str->bytes += count;
    str->data[str->bytes] = '\0';
    return TT_OK;
}

tt_status tt_str_printf(struct tt_str *str, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = tt_vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    tt_status status = TT_OK;
    if (length < 0) {
        status = tt_fail(TT_ERR_INTERNAL, "cannot format '%s'", format);
    } else {
        status = reserve(str, (size_t)length);
    }
    if (status == TT_OK) {
        tt_vsnprintf(str->data + str->bytes, (size_t)length + 1, format, again);
        str->bytes += (size_t)length;
    }
    va_end(again);
    return status;
}

void tt_str_clear(struct tt_str *str)
{
    str->bytes = 0;
    if (str->data != NULL) str->data[0] = '\0';
}

void tt_str_deinit(struct tt_str *str)
{
    tt_free(str->data);
    *str = (struct tt_str){0};
}

const char *tt_str_text(const struct tt_str *str)
{
    return str->data != NULL ? str->data : "";
}

struct tt_span tt_span_of(const char *text)
{
    return (struct tt_span){text, strlen(text)};
}

bool tt_span_equals(struct tt_span a, const char *text)
{
    size_t bytes = strlen(text);
    return a.bytes == bytes && (bytes == 0 || memcmp(a.data, text, bytes) == 0);
}

bool tt_span_starts_with(struct tt_span span, const char *start)
{
    size_t bytes = strlen(start);
    return span.bytes >= bytes && (bytes == 0 || memcmp(span.data, start, bytes) == 0);
}

bool tt_span_ends_with(struct tt_span span, const char *ending)
{
    size_t bytes = strlen(ending);
    return span.bytes >= bytes && (bytes == 0 || memcmp(span.data + span.bytes - bytes, ending, bytes) == 0);
}

bool tt_starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

int tt_compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool tt_starts_with_one_of(const char *text, const char *starts)
{
    for (const char *at = starts; *at != 0; at += strspn(at, " ")) {
        size_t bytes = strcspn(at, " ");
        if (bytes > 0 && strncmp(text, at, bytes) == 0) return true;
        at += bytes;
    }
    return false;
}

bool tt_ends_with(const char *text, const char *ending)
{
    return tt_span_ends_with(tt_span_of(text), ending);
}

const char *tt_format_bytes(double bytes, char *text, size_t text_bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t unit = 0;
    /* 1023.5 would print as "1024 KiB" rather than "1.0 MiB". */
    while (fabs(bytes) >= 1023.5 && unit + 1 < sizeof units / sizeof units[0]) {
        bytes /= 1024.0;
        unit++;
    }
    int decimals = unit > 0 && fabs(bytes) < 99.95 ? 1 : 0;
    tt_snprintf(text, text_bytes, "%.*f %s", decimals, bytes, units[unit]);
    return text;
}

struct tt_rounded tt_rounded(double value)
{
    struct tt_rounded out = {""};
    char digits[sizeof out.text];
    double size = fabs(value);
    if (!(size >= 999.5 && size < 1e15)) {
        tt_snprintf(out.text, sizeof out.text, "%.3g", value);
        return out;
    }
    double unit = pow(10, floor(log10(size)) - 2);
    size_t count = (size_t)tt_snprintf(digits, sizeof digits, "%.0f", round(size / unit) * unit), at = 0;
    if (value < 0) out.text[at++] = '-';
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && (count - i) % 3 == 0) out.text[at++] = ',';
        out.text[at++] = digits[i];
    }
    return out;
}

const char *tt_format_duration(double seconds, char *text, size_t text_bytes)
{
    if (!(seconds >= 0.0) || seconds > 1e12) {
        snprintf(text, text_bytes, "?");
    } else if (seconds < 59.95) {
        tt_snprintf(text, text_bytes, "%.1fs", seconds);
    } else {
        uint64_t whole = (uint64_t)(seconds + 0.5);
        if (whole < 3600) {
            snprintf(text, text_bytes, "%dm%02ds", (int)(whole / 60), (int)(whole % 60));
        } else {
            whole = (uint64_t)(seconds / 60.0 + 0.5);
            snprintf(text, text_bytes, "%lluh%02dm", (unsigned long long)(whole / 60), (int)(whole % 60));
        }
    }
    return text;
}

const char *tt_format_seconds(double seconds, char *text, size_t text_bytes)
{
    const char *unit = seconds < 0.9995e-4 ? "us" : seconds < 0.9995 ? "ms" : "s";
    double value = unit[0] == 'u' ? 1e6 * seconds : unit[0] == 'm' ? 1e3 * seconds : seconds;
    int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    if (!(seconds >= 0.0) || seconds >= 59.95) return tt_format_duration(seconds, text, text_bytes);
    tt_snprintf(text, text_bytes, "%.*f %s", decimals, value, unit);
    return text;
}

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

int tt_edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 127 };
    /* Rows of the dynamic program: the one before the previous, the previous, the current. The variant counts
     * a swap of neighbours as one edit and never edits a swapped pair again (optimal string alignment). */
    int rows[3][LONGEST + 1];
    int a_bytes = (int)strnlen(a, LONGEST), b_bytes = (int)strnlen(b, LONGEST);
    for (int j = 0; j <= b_bytes; j++) rows[0][j] = j;
    for (int i = 1; i <= a_bytes; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= b_bytes; j++) {
            int cost = a[i - 1] == b[j - 1] ? 0 : 1;
            row[j] = min_int(above[j - 1] + cost, min_int(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = min_int(row[j], two_above[j - 2] + 1);
            }
        }
    }
    return rows[a_bytes % 3][b_bytes];
}

bool tt_name_is_near(const char *known, const char *name, int *distance)
{
    size_t known_bytes = strlen(known), name_bytes = strlen(name), start = 0, end = 0;
    size_t shorter = known_bytes < name_bytes ? known_bytes : name_bytes;
    while (start < shorter && known[start] == name[start]) start++;
    /* A word that is only partly common counts as different: "shard_" and "sharding_" differ by one word. */
    while (start > 0 && known[start - 1] != '_') start--;
    while (end < shorter - start && known[known_bytes - 1 - end] == name[name_bytes - 1 - end]) end++;
    while (end > 0 && known[known_bytes - end] != '_') end--;
    *distance = tt_edit_distance(known, name);
    int differs = (int)(name_bytes - start - end);
    return *distance <= (differs + 1) / 2 && *distance < (int)name_bytes / 3 + 2;
}

/* The factor that a unit stands for, or 0 for an unknown one. */
static double unit_factor(const char *unit)
{
    static const char letters[] = "KMGTP";
    if (unit[0] == '\0' || tt_ascii_same(unit, "B")) return 1.0;
    const char *letter = strchr(letters, tt_ascii_upper(unit[0]));
    if (letter == NULL) return 0.0;
    int power = (int)(letter - letters) + 1;
    bool binary = unit[1] == 'i' || unit[1] == 'I';
    const char *rest = unit + (binary ? 2 : 1);
    if (rest[0] != '\0' && !tt_ascii_same(rest, "B")) return 0.0;
    return pow(binary ? 1024.0 : 1000.0, power);
}

tt_status tt_parse_bytes(const char *text, size_t *bytes)
{
    const char *start = text;
    while (tt_ascii_is_space(*start)) start++;
    double number = 0.0;
    size_t digits =
        tt_ascii_is_digit(start[0]) || start[0] == '.' ? tt_parse_double_prefix(start, &number) : 0;
    const char *end = start + digits;
    if (digits == 0) {
        return tt_fail(TT_ERR_USAGE, "'%s' is not a number of bytes (such as 24GiB, 512M or 1.5e9)", text);
    }
    while (tt_ascii_is_space(*end)) end++;
    double factor = unit_factor(end);
    if (factor == 0.0) {
        return tt_fail(TT_ERR_USAGE, "'%s': '%s' is not a unit of bytes (K, M, G, T or KiB, MiB, GiB, TiB)",
                       text, end);
    }
    double product = number * factor;
    if (!(product < 9223372036854775808.0)) {
        return tt_fail(TT_ERR_USAGE, "'%s' is more bytes than any machine has", text);
    }
    *bytes = (size_t)(product + 0.5);
    return TT_OK;
}
