#include "net/fields.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/ascii.h"

/* A number of at most 18 digits; the text behind it, or NULL. */
static const char *read_number(const char *text, uint64_t *out)
{
    uint64_t value = 0;
    int digits = 0;
    for (; tt_ascii_is_digit(text[digits]); digits++) {
        if (digits == 18) return NULL;
        value = value * 10 + (uint64_t)(text[digits] - '0');
    }
    *out = value;
    return digits > 0 ? text + digits : NULL;
}

bool tt_parse_content_range(const char *value, struct tt_content_range *range)
{
    struct tt_content_range found = {.total = UINT64_MAX};
    if (!tt_ascii_same_start(value, "bytes ", 6)) return false;
    const char *at = read_number(value + 6, &found.first);
    if (at == NULL || *at != '-') return false;
    at = read_number(at + 1, &found.last);
    if (at == NULL || *at != '/') return false;
    if (strcmp(at, "/*") != 0) {
        at = read_number(at + 1, &found.total);
        if (at == NULL || *at != '\0') return false;
    }
    if (found.first > found.last || found.last >= found.total) return false;
    *range = found;
    return true;
}

/* Days from 1970-01-01 to a date of the Gregorian calendar: its years begin with March, so the leap day is the last. */
static int64_t days_of(int year, int month, int day)
{
    int64_t since = month <= 2 ? year - 1 : year, turned = month + (month > 2 ? -3 : 9);
    int64_t era = since / 400, of_era = since % 400;
    int64_t of_year = (153 * turned + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static bool read_date(const char *value, double *seconds)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    char name[4] = "";
    int day, year, hour, minute, second, end = 0;
    const char *comma = strchr(value, ',');
    if (comma == NULL || sscanf(comma + 1, " %2d %3s %4d %2d:%2d:%2d GMT%n", &day, name, &year, &hour,
                                &minute, &second, &end) != 6)
        return false;
    const char *month = strstr(months, name);
    if (end == 0 || strlen(name) != 3 || month == NULL || (month - months) % 3 != 0) return false;
    if (day < 1 || day > 31 || year < 1970 || hour < 0 || hour > 23 || minute < 0 || minute > 59 ||
        second < 0 || second > 60)
        return false;
    int64_t days = days_of(year, (int)(month - months) / 3 + 1, day);
    *seconds = (double)(days * 86400 + hour * 3600 + minute * 60 + second);
    return true;
}

bool tt_parse_retry_after(const char *value, double now, double *seconds)
{
    uint64_t number;
    const char *end = read_number(value, &number);
    if (end != NULL && *end == '\0') {
        *seconds = (double)number;
        return true;
    }
    double at;
    if (!read_date(value, &at)) return false;
    *seconds = at > now ? at - now : 0;
    return true;
}

bool tt_parse_rate_limit(const char *value, double *seconds)
{
    for (const char *at = value; (at = strchr(at, ';')) != NULL;) {
        at += 1 + strspn(at + 1, " ");
        uint64_t number;
        if (strncmp(at, "t=", 2) == 0 && read_number(at + 2, &number) != NULL) {
            *seconds = (double)number;
            return true;
        }
    }
    return false;
}
