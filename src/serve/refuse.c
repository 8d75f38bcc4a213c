#include "serve/refuse.h"

#include <stdio.h>

#include "serve/api_answer.h"

void tt_serve_refuse(struct tt_http_exchange *exchange, int code, const char *type, const char *param,
                     const char *word, const char *message)
{
    struct tt_str text = {0};
    if (tt_api_write_error(message, type, param, word, &text) == TT_OK)
        tt_http_answer(exchange, code, "application/json", text.data, text.bytes);
    tt_error_clear();
    tt_str_deinit(&text);
}

void tt_serve_fail(struct tt_http_exchange *exchange, tt_status status, const char *param)
{
    char message[sizeof tt_error_record()->message];
    bool theirs = status == TT_ERR_USAGE || status == TT_ERR_DATA || status == TT_ERR_UNSUPPORTED;
    snprintf(message, sizeof message, "%s", tt_error_record()->message);
    tt_error_clear();
    if (theirs)
        tt_serve_refuse(exchange, 400, "invalid_request_error", param, NULL, message);
    else
        tt_serve_refuse(exchange, 500, "server_error", NULL, NULL, "the server cannot answer this request");
}
