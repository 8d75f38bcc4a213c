/* Decoding token by token: text appears as soon as its characters are whole. */
#include <string.h>

#include "text/tokenizer.h"

/* Bytes that wait longer than any character needs are not a character. */
enum { WAITING_MAX = 8 };

/* Bytes of the beginning that two texts share, in whole characters. It is all of `before`, unless bytes that were shown
 * as broken have become a character since. */
static size_t count_common(const struct tt_str *before, const struct tt_str *after)
{
    size_t most = before->bytes < after->bytes ? before->bytes : after->bytes, count = 0;
    while (count < most && before->data[count] == after->data[count]) count++;
    while (count > 0 && count < after->bytes && ((unsigned char)after->data[count] & 0xC0) == 0x80) count--;
    return count;
}

/* The text of a token depends on the tokens before it (a word's space, the other bytes of a character). So the ids
 * since the last piece are decoded with and without the new ids, and the difference is their text. */
static tt_status show(const struct tt_tokenizer *tokenizer, struct tt_tokenizer_stream *stream, bool last,
                      struct tt_str *text)
{
    const struct tt_ids *ids = &stream->ids;
    TT_TRY(tt_tokenizer_decode(tokenizer, ids->data, stream->shown, stream->skip_special, &stream->before));
    TT_TRY(tt_tokenizer_decode(tokenizer, ids->data, ids->count, stream->skip_special, &stream->after));
    const struct tt_str *before = &stream->before, *after = &stream->after;
    bool broken = after->bytes >= 3 && memcmp(after->data + after->bytes - 3, "\xEF\xBF\xBD", 3) == 0;
    size_t known = count_common(before, after);
    if (known == after->bytes || (broken && !last && ids->count - stream->shown < WAITING_MAX)) return TT_OK;
    TT_TRY(tt_str_append(text, after->data + known, after->bytes - known));
    /* The ids of this piece are the context of the next one. */
    memmove(ids->data, ids->data + stream->shown, (ids->count - stream->shown) * sizeof ids->data[0]);
    stream->ids.count -= stream->shown;
    stream->shown = stream->ids.count;
    return TT_OK;
}

tt_status tt_tokenizer_stream_push(const struct tt_tokenizer *tokenizer, struct tt_tokenizer_stream *stream,
                                   int32_t id, struct tt_str *text)
{
    if (tt_tokenizer_token(tokenizer, id) == NULL) return TT_OK;
    TT_TRY(tt_ids_append(&stream->ids, id));
    return show(tokenizer, stream, false, text);
}

tt_status tt_tokenizer_stream_finish(const struct tt_tokenizer *tokenizer, struct tt_tokenizer_stream *stream,
                                     struct tt_str *text)
{
    TT_TRY(show(tokenizer, stream, true, text));
    stream->ids.count = stream->shown = 0;
    return TT_OK;
}

void tt_tokenizer_stream_deinit(struct tt_tokenizer_stream *stream)
{
    tt_ids_deinit(&stream->ids);
    tt_str_deinit(&stream->before);
    tt_str_deinit(&stream->after);
    *stream = (struct tt_tokenizer_stream){0};
}
