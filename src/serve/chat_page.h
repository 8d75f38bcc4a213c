/* The chat page of a server: one file of HTML that loads nothing and asks the server's own API, and the policy by which
 * a browser runs its script and its style and nothing else. */
#ifndef TT_SERVE_CHAT_PAGE_H
#define TT_SERVE_CHAT_PAGE_H

#include "base/str.h"
#include "http/server.h"

struct tt_chat_page {
    struct tt_str html;
    struct tt_str policy; /* the header Content-Security-Policy */
};

TT_MUST_USE tt_status tt_chat_page_init(struct tt_chat_page *page);
void tt_chat_page_answer(const struct tt_chat_page *page, struct tt_http_exchange *exchange);
void tt_chat_page_deinit(struct tt_chat_page *page);

#endif
