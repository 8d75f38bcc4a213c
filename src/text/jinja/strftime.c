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

/* The text of one letter, or false. Formats of several parts are formats of their own. */
static bool format_letter(const struct tt_jinja_date *date, char letter, char out[64], const char **format)
{
    int hour = date->hour % 12 == 0 ? 12 : date->hour % 12;
    *format = NULL;
    out[0] = '\0';
    switch (letter) {
    case 'Y':
        snprintf(out, 64, "%d", date->year);
        break;
    case 'y':
        snprintf(out, 64, "%02d", date->year % 100);
        break;
    case 'C':
        snprintf(out, 64, "%02d", date->year / 100);
        break;
    case 'm':
        snprintf(out, 64, "%02d", date->month);
        break;
    case 'd':
        snprintf(out, 64, "%02d", date->day);
        break;
    case 'e':
        snprintf(out, 64, "%2d", date->day);
        break;
    case 'j':
        snprintf(out, 64, "%03d", day_of_year(date) + 1);
        break;
    case 'H':
        snprintf(out, 64, "%02d", date->hour);
        break;
    case 'I':
        snprintf(out, 64, "%02d", hour);
        break;
    case 'M':
        snprintf(out, 64, "%02d", date->minute);
        break;
    case 'S':
        snprintf(out, 64, "%02d", date->second);
        break;
    case 'w':
        snprintf(out, 64, "%d", weekday(date));
        break;
    case 'u':
        snprintf(out, 64, "%d", weekday(date) == 0 ? 7 : weekday(date));
        break;
    case 'U':
        snprintf(out, 64, "%02d", (day_of_year(date) + 7 - weekday(date)) / 7);
        break;
    case 'W':
        snprintf(out, 64, "%02d", (day_of_year(date) + 7 - (weekday(date) + 6) % 7) / 7);
        break;
    case 'B':
        snprintf(out, 64, "%s", months[date->month - 1]);
        break;
    case 'b':
    case 'h':
        snprintf(out, 64, "%.3s", months[date->month - 1]);
        break;
    case 'A':
        snprintf(out, 64, "%s", days[weekday(date)]);
        break;
    case 'a':
        snprintf(out, 64, "%.3s", days[weekday(date)]);
        break;
    case 'p':
        snprintf(out, 64, "%s", date->hour < 12 ? "AM" : "PM");
        break;
    case '%':
        snprintf(out, 64, "%%");
        break;
    case 'n':
        snprintf(out, 64, "\n");
        break;
    case 't':
        snprintf(out, 64, "\t");
        break;
    case 'Z':
    case 'z':
        break; /* a time without a zone */
    case 'F':
        *format = "%Y-%m-%d";
        break;
    case 'D':
    case 'x':
        *format = "%m/%d/%y";
        break;
    case 'T':
    case 'X':
        *format = "%H:%M:%S";
        break;
    case 'R':
        *format = "%H:%M";
        break;
    case 'r':
        *format = "%I:%M:%S %p";
        break;
    case 'c':
        *format = "%a %b %e %H:%M:%S %Y";
        break;
    default:
        return false;
    }
    return true;
}

static tt_status write_date(struct jinja_writer *writer, struct tt_span format)
{
    const struct tt_jinja_date *date = &writer->render->input->date;
    for (size_t at = 0; at < format.bytes; at++) {
        char text[64], letter = at + 1 < format.bytes ? format.data[at + 1] : '\0';
        const char *parts;
        if (format.data[at] != '%') {
            TT_TRY(jinja_write(writer, format.data + at, 1, 0));
            continue;
        }
        /* %-d and its like: no padding. */
        bool unpadded = letter == '-' && at + 2 < format.bytes;
        if (unpadded) letter = format.data[++at + 1];
        if (!format_letter(date, letter, text, &parts) || (unpadded && strchr("mdHIMSjeyUW", letter) == NULL))
            return jinja_fail(writer->render, "the format '%%%s%c' of strftime_now() is not supported",
                              unpadded ? "-" : "", letter > ' ' && letter < 0x7f ? letter : '?');
        if (parts != NULL) TT_TRY(write_date(writer, tt_span_of(parts)));
        const char *shown = text;
        while (unpadded && (*shown == '0' || *shown == ' ') && shown[1] != '\0') shown++;
        TT_TRY(jinja_write_literal(writer, shown, 0));
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
