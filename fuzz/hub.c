/* Answers of a hub and headers of servers: the first byte chooses the reader. */
/* links: tt_hub */
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "hub/card.h"
#include "hub/listing.h"
#include "net/fields.h"
#include "net/url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void read_fields(const char *text)
{
    struct tt_content_range range;
    struct tt_url_origin origin;
    double seconds;
    char url[64];
    (void)tt_parse_content_range(text, &range);
    (void)tt_parse_retry_after(text, 1e9, &seconds);
    (void)tt_parse_rate_limit(text, &seconds);
    (void)tt_hub_next_page(text, url, sizeof url);
    (void)tt_url_origin(text, &origin);
    (void)tt_hub_is_path(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0) return 0;
    char *text = tt_calloc(bytes, 1), commit[TT_HUB_COMMIT_BYTES];
    struct tt_hub_listing listing = {0};
    struct tt_hub_card card = {0};
    struct tt_hub_patterns patterns;
    if (text == NULL) return 0;
    memcpy(text, data + 1, bytes - 1); /* which may have 0 bytes */
    switch (data[0] % 4) {
    case 0:
        (void)!tt_hub_listing_add(&listing, text, bytes - 1, "page");
        break;
    case 1:
        (void)!tt_hub_parse_commit(text, bytes - 1, "answer", commit);
        break;
    case 2:
        if (tt_hub_card_parse(text, bytes - 1, &card) == TT_OK)
            (void)!tt_hub_card_files(&card, NULL, "train", &patterns);
        break;
    default:
        read_fields(text);
    }
    tt_hub_card_deinit(&card);
    tt_hub_listing_deinit(&listing);
    tt_free(text);
    return 0;
}
