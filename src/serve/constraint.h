/* The grammar of an answer, before the request is queued. */
#ifndef TT_SERVE_CONSTRAINT_H
#define TT_SERVE_CONSTRAINT_H

#include "serve/api_request.h"
#include "serve/talk.h"

/* Completes the source of the grammar of a request, a conversation's (`chat`) or another one, where a call of a tool
 * is forced or the template writes harmony, and compiles it: the engine keeps it. Errors as of
 * tt_generation_check_grammar; *param is then the member that asks for it. Any thread. */
TT_MUST_USE tt_status tt_serve_constrain(const struct tt_talk *talk, bool chat,
                                         struct tt_api_request *request, const char **param);

#endif
