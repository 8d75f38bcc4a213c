/* strftime_now(): datetime.strftime() of Python in the C locale, for the date that the caller gives. */
#include <stdio.h>
#include <string.h>

#include "text/jinja/render.h"

static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                     "July",    "August",   "September", "October", "November", "December"};
static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                   "Thursday", "Friday", "Saturday"};

static bool is_leap(int year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

/* Days of the year before this one. */
static int day_of_year(const struct tt_jinja_date *date)
{
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    return before[date->month - 1] + date->day - 1 + (date->month > 2 && is_leap(date->year));
}

/* 0: Sunday */
static int weekday(const struct tt_jinja_date *date)
{
    long long years = date->year - 1;
    return (int)((years * 365 + years / 4 - years / 100 + years / 400 + day_of_year(date) + 1) % 7);
}

/* Numbers of the date and the time: the value and its width; width 0: the letter is none of them. */
static int number_of(const struct tt_jinja_date *date, char letter, int *value)
{
    int day = day_of_year(date), week = weekday(date);
    const struct {
        char letter;
        int width, value;
    } numbers[] = {{'Y', 1, date->year},
                   {'y', 2, date->year % 100},
                   {'C', 2, date->year / 100},
                   {'m', 2, date->month},
                   {'d', 2, date->day},
                   {'e', 2, date->day},
                   {'j', 3, day + 1},
                   {'H', 2, date->hour},
                   {'I', 2, date->hour % 12 == 0 ? 12 : date->hour % 12},
                   {'M', 2, date->minute},
                   {'S', 2, date->second},
                   {'w', 1, week},
                   {'u', 1, week == 0 ? 7 : week},
                   {'U', 2, (day + 7 - week) / 7},
                   {'W', 2, (day + 7 - (week + 6) % 7) / 7}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (numbers[i].letter != letter) continue;
        *value = numbers[i].value;
        return numbers[i].width;
    }
    return 0;
}

/* A format of several parts, or NULL. */
static const char *parts_of(char letter)
{
    static const struct {
        char letter;
        const char *format;
    } parts[] = {{'F', "%Y-%m-%d"}, {'D', "%m/%d/%y"}, {'x', "%m/%d/%y"},    {'T', "%H:%M:%S"},
                 {'X', "%H:%M:%S"}, {'R', "%H:%M"},    {'r', "%I:%M:%S %p"}, {'c', "%a %b %e %H:%M:%S %Y"}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i].letter == letter) return parts[i].format;
    return NULL;
}

/* The word of one letter, or NULL; *bytes of it are written. */
static const char *word_of(const struct tt_jinja_date *date, char letter, size_t *bytes)
{
    const char *word = letter == 'B' || letter == 'b' || letter == 'h' ? months[date->month - 1]
                       : letter == 'A' || letter == 'a'                ? days[weekday(date)]
                       : letter == 'p'                                 ? (date->hour < 12 ? "AM" : "PM")
                       : letter == '%'                                 ? "%"
                       : letter == 'n'                                 ? "\n"
                       : letter == 't'                                 ? "\t"
                       : letter == 'Z' || letter == 'z'                ? "" /* a time without a zone */
                                                                       : NULL;
    *bytes = word == NULL ? 0 : letter == 'b' || letter == 'h' || letter == 'a' ? 3 : strlen(word);
    return word;
}

static tt_status write_date(struct jinja_writer *writer, struct tt_span format)
{
    const struct tt_jinja_date *date = &writer->render->input->date;
    for (size_t at = 0; at < format.bytes; at++) {
        if (format.data[at] != '%') {
            TT_TRY(jinja_write(writer, format.data + at, 1, 0));
            continue;
        }
        char number[16], letter = at + 1 < format.bytes ? format.data[at + 1] : '\0';
        /* %-d and its like: no padding. */
        bool unpadded = letter == '-' && at + 2 < format.bytes;
        if (unpadded) letter = format.data[++at + 1];
        size_t bytes;
        int value, width = number_of(date, letter, &value);
        const char *word = unpadded ? NULL : word_of(date, letter, &bytes);
        const char *parts = unpadded ? NULL : parts_of(letter);
        if (width > 0)
            snprintf(number, sizeof number, letter == 'e' ? "%*d" : "%0*d", unpadded ? 1 : width, value);
        if (width == 0 && word == NULL && parts == NULL)
            return jinja_fail(writer->render, "the format '%%%s%c' of strftime_now() is not supported",
                              unpadded ? "-" : "", letter > ' ' && letter < 0x7f ? letter : '?');
        if (width > 0)
            TT_TRY(jinja_write_literal(writer, number, 0));
        else
            TT_TRY(word != NULL ? jinja_write(writer, word, bytes, 0)
                                : write_date(writer, tt_span_of(parts)));
        at++;
    }
    return TT_OK;
}

tt_status jinja_strftime(struct jinja_render *render, struct tt_span format, struct jinja_value *out)
{
    const struct tt_jinja_date *date = &render->input->date;
    struct jinja_writer writer = jinja_writer_new(render);
    if (date->year < 1) return jinja_fail(render, "the template asks for the date, and none is given");
    if (date->year > 9999 || date->month < 1 || date->month > 12 || date->day < 1 || date->day > 31)
        return jinja_fail(render, "the date that is given is none");
    TT_TRY(write_date(&writer, format));
    return jinja_writer_value(&writer, out);
}
