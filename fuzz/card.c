/* A model card by a stranger: read or ignored, never an error; its keys are whole and valid texts. The first byte
 * chooses the sign of the number of parameters. */
/* links: tt_convert */
/* words: src/convert/card.c src/convert/model_id.c */
#include <stdint.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "convert/card.h"
#include "folder.h"

static uint64_t number(const struct tt_str *keys, size_t *at, size_t bytes)
{
    uint64_t value = 0;
    if (bytes > keys->bytes - *at) abort();
    for (size_t i = 0; i < bytes; i++) value |= (uint64_t)(unsigned char)keys->data[*at + i] << (8 * i);
    *at += bytes;
    return value;
}

static void text(const struct tt_str *keys, size_t *at)
{
    uint64_t bytes = number(keys, at, 8);
    if (bytes > keys->bytes - *at) abort();
    if (tt_utf8_invalid_at(keys->data + *at, (size_t)bytes) != bytes) abort();
    *at += (size_t)bytes;
}

/* Keys of texts, of lists of texts and of numbers, and nothing behind them. */
static void check(const struct tt_gguf_header *header)
{
    size_t at = 0;
    for (uint64_t key = 0; key < header->key_count; key++) {
        text(&header->keys, &at);
        uint64_t type = number(&header->keys, &at, 4);
        if (type == 4) {
            (void)number(&header->keys, &at, 4);
        } else if (type == 8) {
            text(&header->keys, &at);
        } else if (type != 9 || number(&header->keys, &at, 4) != 8) {
            abort();
        } else {
            for (uint64_t i = number(&header->keys, &at, 8); i > 0; i--) text(&header->keys, &at);
        }
    }
    if (at != header->keys.bytes) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tt_card card = {0}, none = {0};
    struct tt_gguf_header header = {0};
    int64_t parameters = size > 0 && data[0] % 2 == 1 ? -20000000 : 7000000000;
    fuzz_write("README.md", data + (size > 0), size - (size > 0));
    if (tt_card_read(fuzz_folder(), &card) != TT_OK) abort();
    if (tt_gguf_put_card(&header, &card, &none, "model", parameters) != TT_OK) abort();
    check(&header);
    tt_gguf_header_deinit(&header);
    tt_card_deinit(&card);
    return 0;
}
