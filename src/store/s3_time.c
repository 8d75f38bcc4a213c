#include "store/s3_time.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "net/fields.h"

bool tt_s3_parse_time(const char *text, double *unix_seconds)
{
    struct tm parts = {0};
    int bytes = 0;
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%n", &parts.tm_year, &parts.tm_mon, &parts.tm_mday,
               &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &bytes) != 6)
        return false;
    const char *rest = text + bytes;
    if (*rest == '.') rest += 1 + strspn(rest + 1, "0123456789");
    bool plain = parts.tm_year >= 1970 && parts.tm_mon >= 1 && parts.tm_mon <= 12 && parts.tm_mday >= 1 &&
                 parts.tm_mday <= 31 && parts.tm_hour >= 0 && parts.tm_hour < 24 && parts.tm_min >= 0 &&
                 parts.tm_min < 60 && parts.tm_sec >= 0 && parts.tm_sec <= 60;
    if (!plain || strcmp(rest, "Z") != 0) return false;
    parts.tm_year -= 1900;
    parts.tm_mon -= 1;
    *unix_seconds = (double)timegm(&parts);
    return true;
}

bool tt_s3_parse_date(const char *text, double *unix_seconds)
{
    /* Relative to 1970: a number of seconds would be no date. */
    return strchr(text, ',') != NULL && tt_parse_retry_after(text, 0, unix_seconds);
}
