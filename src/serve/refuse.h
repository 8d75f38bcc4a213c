/* Errors as OpenAI's API has them. */
#ifndef TT_SERVE_REFUSE_H
#define TT_SERVE_REFUSE_H

#include "http/server.h"

/* param and word may be NULL. */
void tt_serve_refuse(struct tt_http_exchange *exchange, int code, const char *type, const char *param,
                     const char *word, const char *message);
/* Answers with the error record of this thread and clears it. */
void tt_serve_fail(struct tt_http_exchange *exchange, tt_status status, const char *param);

#endif
