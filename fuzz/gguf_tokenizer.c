/* The tokenizer of a GGUF file, made from an untrusted tokenizer.json: written or refused. */
/* links: tt_convert */
/* words: src/text src/convert/gguf_tokenizer.c src/convert/gguf_pre.c */
#include <stdint.h>
#include <stdlib.h>

#include "convert/gguf.h"
#include "folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tt_model_facts config = {
        .vocab_size = 300, .bos_token_id = 1, .eos_token_ids = {2}, .eos_token_count = 1};
    struct tt_gguf_header header = {0};
    fuzz_write("tokenizer.json", data, size);
    if (tt_gguf_put_tokenizer(&header, fuzz_folder(), &config) == TT_OK) {
        struct tt_str bytes = {0};
        if (tt_gguf_header_write(&header, &bytes) != TT_OK || bytes.bytes % TT_GGUF_ALIGNMENT != 0) abort();
        tt_str_deinit(&bytes);
    }
    tt_gguf_header_deinit(&header);
    return 0;
}
