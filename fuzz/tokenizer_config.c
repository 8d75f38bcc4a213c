/* tokenizer_config.json (an even first byte) or special_tokens_map.json beside a small tokenizer. */
/* words: src/text */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "folder.h"
#include "text/tokenizer.h"

static const char tokenizer_json[] =
    "{\"added_tokens\": [{\"id\": 2, \"content\": \"</s>\", \"single_word\": false, \"lstrip\": false, "
    "\"rstrip\": false, "
    "\"normalized\": false, \"special\": true}], \"normalizer\": null, \"pre_tokenizer\": null, "
    "\"post_processor\": null, "
    "\"decoder\": null, \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
    "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": false, "
    "\"byte_fallback\": false, "
    "\"vocab\": {\"a\": 0, \"b\": 1, \"</s>\": 2}, \"merges\": []}}";

static void check_id(const struct tt_tokenizer *tokenizer, int32_t id)
{
    if (id != -1 && (id < 0 || id >= tt_tokenizer_vocab_size(tokenizer))) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json"};
    static bool ready;
    if (size == 0) return 0;
    if (!ready) fuzz_write("tokenizer.json", tokenizer_json, sizeof tokenizer_json - 1);
    ready = true;
    const char *name = names[data[0] % 2];
    fuzz_write(name, data + 1, size - 1);
    struct tt_tokenizer *tokenizer = NULL;
    if (tt_tokenizer_load(fuzz_folder(), &tokenizer) == TT_OK) {
        check_id(tokenizer, tt_tokenizer_bos_id(tokenizer));
        check_id(tokenizer, tt_tokenizer_eos_id(tokenizer));
        check_id(tokenizer, tt_tokenizer_pad_id(tokenizer));
        const char *template = tt_tokenizer_chat_template(tokenizer);
        if (template != NULL) (void)strlen(template);
    }
    tt_tokenizer_destroy(tokenizer);
    unlink(fuzz_path(name));
    return 0;
}
