/* tokenizer.json: a tokenizer that parses must encode and decode a text without faults, and twice equally. */
/* words: src/text */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "The  quick\u00e9 e\u0301\u4e16\u754c <s> fox's 123 \u2581a\n\t ab"
                               "ababababab\U0001f600";
    struct tt_tokenizer *tokenizer = NULL;
    struct tt_tokenizer_scratch *scratch = NULL;
    struct tt_ids ids = {0}, again = {0};
    struct tt_str decoded = {0};
    if (tt_tokenizer_parse((const char *)data, size, "fuzz", &tokenizer) != TT_OK) return 0;
    if (tt_tokenizer_scratch_create(tokenizer, &scratch) != TT_OK) abort();
    tt_status status = tt_tokenizer_encode(tokenizer, scratch, text, sizeof text - 1, true, &ids);
    if (tt_tokenizer_encode(tokenizer, scratch, text, sizeof text - 1, true, &again) != status) abort();
    if (ids.count != again.count) abort();
    if (ids.count > 0 && memcmp(ids.data, again.data, ids.count * sizeof ids.data[0]) != 0) abort();
    if (status == TT_OK) (void)!tt_tokenizer_decode(tokenizer, ids.data, ids.count, false, &decoded);
    for (size_t i = 0; i < ids.count; i++) {
        (void)tt_tokenizer_token(tokenizer, ids.data[i]);
        (void)tt_tokenizer_is_special(tokenizer, ids.data[i]);
    }
    tt_str_deinit(&decoded);
    tt_ids_deinit(&ids);
    tt_ids_deinit(&again);
    tt_tokenizer_scratch_destroy(scratch);
    tt_tokenizer_destroy(tokenizer);
    return 0;
}
