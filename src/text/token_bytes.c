#include "text/token_bytes.h"

#include <string.h>

#include "text/byte_level.h"
#include "text/tokenizer_impl.h"
#include "text/unicode.h"

/* U+2581, by which SentencePiece writes a space. */
static const char blank[] = "\xE2\x96\x81";
enum { BLANK = 0x2581 };

static tt_status check_step(const struct decoder *step, bool fused, bool *drops_space)
{
    switch (step->kind) {
    case DECODE_BYTE_LEVEL:
    case DECODE_BYTE_FALLBACK:
        if (!fused) return TT_OK;
        break;
    case DECODE_FUSE:
        return TT_OK;
    case DECODE_METASPACE:
        if (fused || step->code != BLANK) break;
        *drops_space = *drops_space || step->drop_first;
        return TT_OK;
    case DECODE_REPLACE:
        if (!fused && tt_pattern_is_literal(step->pattern, blank) && strcmp(step->content, " ") == 0)
            return TT_OK;
        break;
    case DECODE_STRIP:
        if (!fused || step->code != ' ' || step->start > 1 || step->stop > 0) break;
        *drops_space = step->start == 1;
        return TT_OK;
    default:
        break;
    }
    return tt_fail(TT_ERR_UNSUPPORTED,
                   "the decoder of this tokenizer joins tokens to words: no bytes belong to a token alone");
}

tt_status tt_token_bytes_check(const struct tt_tokenizer *tokenizer, bool *drops_space)
{
    const struct decoders *decoders = &tokenizer->decoders;
    bool fused = false, drops = false;
    if (!decoders->present)
        return tt_fail(TT_ERR_UNSUPPORTED,
                       "this tokenizer has no decoder: its tokens are words without spaces");
    for (size_t i = 0; i < decoders->count; i++) {
        TT_TRY(check_step(&decoders->steps[i], fused, &drops));
        fused = fused || decoders->steps[i].kind == DECODE_FUSE;
    }
    *drops_space = drops;
    return TT_OK;
}

/* The bytes of a token in ByteLevel's alphabet; the token itself if it has any other character. */
static tt_status append_byte_level(struct tt_span token, struct tt_str *bytes)
{
    size_t before = bytes->bytes, length;
    for (size_t at = 0; at < token.bytes; at += length) {
        int byte = byte_level_byte(tt_utf8_decode(token.data + at, &length));
        if (byte < 0) {
            bytes->bytes = before;
            return tt_str_append(bytes, token.data, token.bytes);
        }
        TT_TRY(tt_str_append_char(bytes, (char)byte));
    }
    return TT_OK;
}

static tt_status append_blanks(struct tt_span token, struct tt_str *bytes)
{
    for (size_t at = 0; at < token.bytes;) {
        bool is_blank =
            token.bytes - at >= sizeof blank - 1 && memcmp(token.data + at, blank, sizeof blank - 1) == 0;
        TT_TRY(tt_str_append_char(bytes, is_blank ? ' ' : token.data[at]));
        at += is_blank ? sizeof blank - 1 : 1;
    }
    return TT_OK;
}

tt_status tt_token_bytes(const struct tt_tokenizer *tokenizer, int32_t id, struct tt_str *bytes)
{
    const struct decoders *decoders = &tokenizer->decoders;
    bool blanks = false, levels = false, falls_back = false;
    struct tt_span token = tt_span_of(tt_tokenizer_token(tokenizer, id));
    for (size_t i = 0; i < decoders->count; i++) {
        enum decoder_kind kind = decoders->steps[i].kind;
        levels = levels || kind == DECODE_BYTE_LEVEL;
        falls_back = falls_back || kind == DECODE_BYTE_FALLBACK;
        blanks = blanks || kind == DECODE_REPLACE || kind == DECODE_METASPACE;
    }
    int byte = falls_back ? decode_fallback_byte(token) : -1;
    if (byte >= 0) return tt_str_append_char(bytes, (char)byte);
    if (levels) return append_byte_level(token, bytes);
    return blanks ? append_blanks(token, bytes) : tt_str_append(bytes, token.data, token.bytes);
}
