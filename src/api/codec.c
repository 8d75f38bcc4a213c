/* tt_codec of trimtab.h: a tokenizer for programs that link the library. */
#include "base/alloc.h"
#include "base/hub_cache.h"
#include "text/tokenizer.h"
#include "trimtab.h"

struct tt_codec {
    struct tt_tokenizer *tokenizer;
    struct tt_tokenizer_scratch *scratch;
    struct tt_ids ids;  /* lent by tt_codec_encode */
    struct tt_str text; /* lent by tt_codec_decode */
};

tt_status tt_codec_open(const char *folder, struct tt_codec **out)
{
    struct tt_codec *codec = tt_calloc(1, sizeof *codec);
    if (codec == NULL) return TT_ERR_MEMORY;
    char *located = NULL;
    tt_status status = tt_hub_locate(folder, NULL, "model", &located);
    if (status == TT_OK) status = tt_tokenizer_load(located, &codec->tokenizer);
    tt_free(located);
    if (status == TT_OK) status = tt_tokenizer_scratch_create(codec->tokenizer, &codec->scratch);
    if (status == TT_OK)
        *out = codec;
    else
        tt_codec_close(codec);
    return status;
}

void tt_codec_close(struct tt_codec *codec)
{
    if (codec == NULL) return;
    tt_tokenizer_scratch_destroy(codec->scratch);
    tt_tokenizer_destroy(codec->tokenizer);
    tt_ids_deinit(&codec->ids);
    tt_str_deinit(&codec->text);
    tt_free(codec);
}

tt_status tt_codec_encode(struct tt_codec *codec, const char *text, size_t bytes, bool add_special,
                          const int32_t **ids, size_t *count)
{
    codec->ids.count = 0;
    TT_TRY(tt_tokenizer_encode(codec->tokenizer, codec->scratch, text, bytes, add_special, &codec->ids));
    *ids = codec->ids.data;
    *count = codec->ids.count;
    return TT_OK;
}

tt_status tt_codec_decode(struct tt_codec *codec, const int32_t *ids, size_t count, bool skip_special,
                          const char **text, size_t *bytes)
{
    TT_TRY(tt_tokenizer_decode(codec->tokenizer, ids, count, skip_special, &codec->text));
    *text = tt_str_text(&codec->text);
    if (bytes != NULL) *bytes = codec->text.bytes;
    return TT_OK;
}

int32_t tt_codec_vocab_size(const struct tt_codec *codec)
{
    return tt_tokenizer_vocab_size(codec->tokenizer);
}

int32_t tt_codec_token_id(const struct tt_codec *codec, const char *token)
{
    return tt_tokenizer_token_id(codec->tokenizer, token);
}
