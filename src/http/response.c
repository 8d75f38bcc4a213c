#include "http/response.h"

#include <time.h>

static const char *phrase_of(int code)
{
    static const struct {
        int code;
        const char *phrase;
    } phrases[] = {
        {200, "OK"},
        {202, "Accepted"},
        {204, "No Content"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof phrases / sizeof phrases[0]; i++)
        if (phrases[i].code == code) return phrases[i].phrase;
    return "Answer";
}

/* strftime() would write the names of the locale. */
static tt_status append_date(struct tt_str *out)
{
    static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct tm now;
    time_t seconds = time(NULL);
    if (gmtime_r(&seconds, &now) == NULL) return TT_OK;
    return tt_str_printf(out, "Date: %.3s, %02d %.3s %d %02d:%02d:%02d GMT\r\n", days + 3 * now.tm_wday,
                         now.tm_mday, months + 3 * now.tm_mon, now.tm_year + 1900, now.tm_hour, now.tm_min,
                         now.tm_sec);
}

tt_status tt_http_head_append(const struct tt_http_head *head, struct tt_str *out)
{
    bool until_close = !head->sized && head->old;
    TT_TRY(tt_str_printf(out, "HTTP/1.1 %d %s\r\n", head->code, phrase_of(head->code)));
    TT_TRY(append_date(out));
    if (head->policy != NULL) TT_TRY(tt_str_printf(out, "Content-Security-Policy: %s\r\n", head->policy));
    TT_TRY(tt_str_printf(out, "Content-Type: %s\r\n", head->type));
    TT_TRY(tt_str_append_text(out, "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n"));
    if (head->sized && head->code != 204) TT_TRY(tt_str_printf(out, "Content-Length: %zu\r\n", head->bytes));
    if (!head->sized && !head->old) TT_TRY(tt_str_append_text(out, "Transfer-Encoding: chunked\r\n"));
    if (!head->keeps || until_close)
        TT_TRY(tt_str_append_text(out, "Connection: close\r\n"));
    else if (head->old)
        TT_TRY(tt_str_append_text(out, "Connection: keep-alive\r\n"));
    return tt_str_append_text(out, "\r\n");
}
