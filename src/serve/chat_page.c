#include "serve/chat_page.h"

#include <sodium.h>
#include <string.h>

#include "monitor/page.h"
#include "serve/assets.h"

enum { SUM_BYTES = sodium_base64_ENCODED_LEN(crypto_hash_sha256_BYTES, sodium_base64_VARIANT_ORIGINAL) };

/* The sum of an element's text, by which a policy names it. */
static void sum(const char *text, char out[SUM_BYTES])
{
    unsigned char digest[crypto_hash_sha256_BYTES];
    crypto_hash_sha256(digest, (const unsigned char *)text, strlen(text));
    sodium_bin2base64(out, SUM_BYTES, digest, sizeof digest, sodium_base64_VARIANT_ORIGINAL);
}

tt_status tt_chat_page_init(struct tt_chat_page *page)
{
    const struct tt_page_part parts[] = {{"@style@", tt_chat_style}, {"@script@", tt_chat_script}};
    char style[SUM_BYTES], script[SUM_BYTES];
    *page = (struct tt_chat_page){0};
    sum(tt_chat_style, style);
    sum(tt_chat_script, script);
    tt_status status = tt_page_fill(tt_chat_html, parts, sizeof parts / sizeof *parts, &page->html);
    if (status == TT_OK)
        status = tt_str_printf(&page->policy,
                               "default-src 'none'; script-src 'sha256-%s'; style-src 'sha256-%s'; "
                               "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                               "frame-ancestors 'none'",
                               script, style);
    if (status != TT_OK) tt_chat_page_deinit(page);
    return status;
}

void tt_chat_page_answer(const struct tt_chat_page *page, struct tt_http_exchange *exchange)
{
    tt_http_set_policy(exchange, page->policy.data);
    tt_http_answer(exchange, 200, "text/html; charset=utf-8", page->html.data, page->html.bytes);
}

void tt_chat_page_deinit(struct tt_chat_page *page)
{
    tt_str_deinit(&page->html);
    tt_str_deinit(&page->policy);
}
