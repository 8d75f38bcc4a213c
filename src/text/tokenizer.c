#include "text/tokenizer.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "text/tokenizer_impl.h"

enum { TOKENIZER_BYTES_MAX = 512 << 20, LONG_TEXT_BYTES = 1 << 20 };

static tt_status create(const struct tt_json *json, const struct tt_beside *beside, struct tt_tokenizer **out)
{
    struct tt_tokenizer *tokenizer = tt_calloc(1, sizeof *tokenizer);
    if (tokenizer == NULL) return TT_ERR_MEMORY;
    tokenizer->bos_id = tokenizer->eos_id = tokenizer->pad_id = -1;
    tt_status status = tokenizer_read(json, beside, tokenizer);
    if (status != TT_OK) {
        tt_while("reading the tokenizer '%s'", json->origin);
        tt_tokenizer_destroy(tokenizer);
        return status;
    }
    *out = tokenizer;
    return TT_OK;
}

tt_status tt_tokenizer_parse(const char *text, size_t bytes, const char *origin, struct tt_tokenizer **out)
{
    struct tt_json json = {0};
    TT_TRY(tt_json_parse_source(
        &(struct tt_json_source){.text = text, .bytes = bytes, .origin = origin, .nul = true}, &json));
    tt_status status = create(&json, &(struct tt_beside){0}, out);
    tt_json_deinit(&json);
    return status;
}

tt_status tt_tokenizer_json(const char *folder, struct tt_json *json)
{
    struct tt_path path;
    TT_TRY(tt_path_set(&path, folder, "tokenizer.json"));
    tt_status status = tt_json_read_nul(path.text, TOKENIZER_BYTES_MAX, json);
    if (status == TT_ERR_DATA && !tt_path_exists(path.text))
        tt_hint("transformers writes it: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)");
    return status;
}

/* `json`: tokenizer.json of the folder, or what is in its place. */
static tt_status load(const char *folder, const struct tt_json *json, struct tt_tokenizer **out)
{
    tt_status status = TT_OK;
    struct tt_beside beside = {0};
    struct tt_tokenizer *tokenizer = NULL;
    TT_GO(tt_beside_open(folder, &beside));
    TT_GO(create(json, &beside, &tokenizer));
    TT_GO(tokenizer_read_config(folder, &beside, tokenizer));
    tokenizer->folder = tt_strdup(folder);
    if (tokenizer->folder == NULL) TT_GO(TT_ERR_MEMORY);
    *out = tokenizer;
    tokenizer = NULL;
out:
    tt_tokenizer_destroy(tokenizer);
    tt_beside_close(&beside);
    return status;
}

tt_status tt_tokenizer_load(const char *folder, struct tt_tokenizer **out)
{
    struct tt_json json = {0};
    tt_status status = tt_tokenizer_json(folder, &json);
    if (status == TT_OK) status = load(folder, &json, out);
    if (status != TT_OK) tt_while("loading the tokenizer of '%s'", folder);
    tt_json_deinit(&json);
    return status;
}

tt_status tt_tokenizer_load_text(const char *folder, const char *text, size_t bytes,
                                 struct tt_tokenizer **out)
{
    struct tt_json json = {0};
    tt_status status = tt_json_parse_nul(text, bytes, "tokenizer.json", &json);
    if (status == TT_OK) status = load(folder, &json, out);
    if (status != TT_OK) tt_while("loading the tokenizer of '%s' with new tokens", folder);
    tt_json_deinit(&json);
    return status;
}

tt_status tt_tokenizer_stand_in(struct tt_tokenizer *tokenizer, const char *model_folder)
{
    tokenizer->model_folder = tt_strdup(model_folder);
    return tokenizer->model_folder != NULL ? TT_OK : TT_ERR_MEMORY;
}

const char *tt_tokenizer_model_folder(const struct tt_tokenizer *tokenizer)
{
    return tokenizer->model_folder;
}

void tt_tokenizer_destroy(struct tt_tokenizer *tokenizer)
{
    if (tokenizer == NULL) return;
    bpe_deinit(&tokenizer->model);
    vocab_deinit(&tokenizer->names);
    tt_arena_deinit(&tokenizer->decoded);
    tt_free(tokenizer->added);
    tt_free(tokenizer->added_by_id);
    added_finder_deinit(&tokenizer->raw);
    added_finder_deinit(&tokenizer->normalized);
    normalizers_deinit(&tokenizer->normalizers);
    pretokenizers_deinit(&tokenizer->pretokenizers);
    post_processor_deinit(&tokenizer->post);
    decoders_deinit(&tokenizer->decoders);
    tt_free(tokenizer->chat_template);
    tt_free(tokenizer->folder);
    tt_free(tokenizer->model_folder);
    tt_free(tokenizer);
}

/* NULL when the id belongs to no added token. */
static const struct added_token *find_added(const struct tt_tokenizer *tokenizer, int32_t id)
{
    size_t low = 0, high = tokenizer->added_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (tokenizer->added[tokenizer->added_by_id[middle]].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == tokenizer->added_count) return NULL;
    const struct added_token *token = &tokenizer->added[tokenizer->added_by_id[low]];
    return token->id == id ? token : NULL;
}

int32_t tt_tokenizer_vocab_size(const struct tt_tokenizer *tokenizer)
{
    return tokenizer->vocab_size;
}

int32_t tt_tokenizer_token_id(const struct tt_tokenizer *tokenizer, const char *token)
{
    int32_t index = vocab_id(&tokenizer->names, token, strlen(token));
    return index >= 0 ? tokenizer->added[index].id : vocab_id(&tokenizer->model.vocab, token, strlen(token));
}

const char *tt_tokenizer_token(const struct tt_tokenizer *tokenizer, int32_t id)
{
    const struct added_token *added = find_added(tokenizer, id);
    if (added != NULL) return added->content;
    const struct vocab_token *token = vocab_find(&tokenizer->model.vocab, id);
    return token == NULL ? NULL : token->data;
}

bool tt_tokenizer_is_special(const struct tt_tokenizer *tokenizer, int32_t id)
{
    const struct added_token *added = find_added(tokenizer, id);
    return added != NULL && added->special;
}

bool tt_tokenizer_is_added(const struct tt_tokenizer *tokenizer, int32_t id)
{
    return find_added(tokenizer, id) != NULL;
}

int32_t tt_tokenizer_bos_id(const struct tt_tokenizer *tokenizer)
{
    return tokenizer->bos_id;
}

int32_t tt_tokenizer_eos_id(const struct tt_tokenizer *tokenizer)
{
    return tokenizer->eos_id;
}

int32_t tt_tokenizer_pad_id(const struct tt_tokenizer *tokenizer)
{
    return tokenizer->pad_id;
}

const char *tt_tokenizer_chat_template(const struct tt_tokenizer *tokenizer)
{
    return tokenizer->chat_template;
}

const char *tt_tokenizer_folder(const struct tt_tokenizer *tokenizer)
{
    return tokenizer->folder;
}

tt_status tt_tokenizer_scratch_create(const struct tt_tokenizer *tokenizer, struct tt_tokenizer_scratch **out)
{
    (void)tokenizer;
    struct tt_tokenizer_scratch *scratch = tt_calloc(1, sizeof *scratch);
    if (scratch == NULL) return TT_ERR_MEMORY;
    tt_status status = bpe_scratch_create(&scratch->bpe);
    if (status == TT_OK) status = tt_pattern_runner_create(&scratch->runner);
    if (status != TT_OK) {
        tt_tokenizer_scratch_destroy(scratch);
        return status;
    }
    *out = scratch;
    return TT_OK;
}

static void forget_texts(struct tt_tokenizer_scratch *scratch)
{
    tt_str_deinit(&scratch->normal[0]);
    tt_str_deinit(&scratch->normal[1]);
    for (size_t i = 0; i < PIPELINE_STEPS_MAX; i++) tt_str_deinit(&scratch->pieces[i]);
    struct tracking *tracking = scratch->tracking;
    if (tracking == NULL) return;
    tt_ranges_deinit(&tracking->normal[0]);
    tt_ranges_deinit(&tracking->normal[1]);
    for (size_t i = 0; i < PIPELINE_STEPS_MAX; i++) tt_ranges_deinit(&tracking->pieces[i]);
    tt_ids_deinit(&tracking->ids);
    tt_ranges_deinit(&tracking->spans);
    tt_free(tracking);
    scratch->tracking = NULL;
}

void tt_tokenizer_scratch_destroy(struct tt_tokenizer_scratch *scratch)
{
    if (scratch == NULL) return;
    bpe_scratch_destroy(scratch->bpe);
    tt_pattern_runner_destroy(scratch->runner);
    forget_texts(scratch);
    tt_free(scratch->raw.data);
    tt_free(scratch->normalized.data);
    tt_free(scratch);
}

/* One call of tt_tokenizer_encode. */
struct encoding {
    const struct tt_tokenizer *tokenizer;
    struct tt_tokenizer_scratch *scratch;
    struct tt_ids *ids;
    struct tracking *tracking; /* NULL: without ranges, as the members below */
    const struct tt_encode_options *options;
    struct tt_ranges *ranges;
};

/* An id and, with ranges, the bytes from .. to of the current text that it stands for. */
static tt_status append_id(struct encoding *e, int32_t id, const char *from, const char *to)
{
    TT_TRY(tt_ids_append(e->ids, id));
    if (e->tracking == NULL || e->ranges->count == e->ids->count) return TT_OK; /* beyond the limit */
    return tt_ranges_append(e->ranges, text_track_range(&e->tracking->track, from, to));
}

static tt_status encode_tracked(void *context, const char *text, size_t bytes)
{
    struct encoding *e = context;
    struct tracking *tracking = e->tracking;
    tracking->ids.count = 0;
    TT_TRY(bpe_encode(&e->tokenizer->model, e->scratch->bpe, text, bytes, &tracking->ids));
    TT_TRY(bpe_spans(&e->tokenizer->model, e->scratch->bpe, (struct tt_span){text, bytes}, &tracking->ids,
                     &tracking->spans));
    for (size_t i = 0; i < tracking->ids.count; i++) {
        struct tt_byte_range span = tracking->spans.data[i];
        TT_TRY(append_id(e, tracking->ids.data[i], text + span.begin, text + span.end));
    }
    return TT_OK;
}

static tt_status encode_piece(void *context, const char *text, size_t bytes)
{
    struct encoding *e = context;
    return bpe_encode(&e->tokenizer->model, e->scratch->bpe, text, bytes, e->ids);
}

typedef tt_status encode_gap(struct encoding *e, const char *text, size_t bytes, bool at_start);

static bool breaks_word(const struct added_token *token, const char *text, size_t bytes, size_t start,
                        size_t end)
{
    size_t length;
    if (!token->single_word) return false;
    if (start > 0 && tt_unicode_is_word(tt_utf8_decode_before(text, start, &length))) return true;
    return end < bytes && tt_unicode_is_word(tt_utf8_decode(text + end, &length));
}

/* Whether a special token has a byte in a part of the text where it is ordinary text. */
static bool is_plain(const struct encoding *e, const struct added_token *token, const char *from,
                     const char *to)
{
    if (e->tracking == NULL || !token->special) return false;
    struct tt_byte_range range = text_track_range(&e->tracking->track, from, to);
    size_t low = 0, high = e->options->plain_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (e->options->plain[middle].end <= range.begin)
            low = middle + 1;
        else
            high = middle;
    }
    return low < e->options->plain_count && e->options->plain[low].begin < range.end;
}

/* A blank that stands for U+2581 is not white space. */
static bool is_space(const struct added_finder *finder, int32_t code)
{
    return code == ' ' ? !finder->blank_is_metaspace : tt_unicode_is_space(code);
}

/* Start of the white space before `start`, at least `least`. */
static size_t spaces_before(const struct added_finder *finder, const char *text, size_t start, size_t least)
{
    size_t length;
    if (start < least) return least;
    while (start > least && is_space(finder, tt_utf8_decode_before(text, start, &length))) start -= length;
    return start;
}

/* Writes the ids of added tokens in the text and passes the text between them to `gap`. */
static tt_status split_added(struct encoding *e, const struct added_finder *finder,
                             struct added_matches *matches, const char *text, size_t bytes, bool at_start,
                             encode_gap *gap)
{
    size_t done = 0, length;
    struct added_match match;
    added_matches_restart(matches);
    for (;;) {
        TT_TRY(added_finder_next(finder, text, bytes, matches, &match));
        if (match.bytes == 0) break;
        size_t start = match.start, end = start + match.bytes;
        const struct added_token *token = &e->tokenizer->added[match.id];
        if (breaks_word(token, text, bytes, start, end)) continue;
        if (is_plain(e, token, text + start, text + end)) {
            matches->taken = (size_t)match.start + 1; /* another token may begin inside */
            continue;
        }
        if (token->lstrip) start = spaces_before(finder, text, start, done);
        while (token->rstrip && end < bytes && is_space(finder, tt_utf8_decode(text + end, &length)))
            end += length;
        if (done < start) TT_TRY(gap(e, text + done, start - done, at_start && done == 0));
        /* The previous token may have consumed the white space that is all of this one. */
        if (start < end) TT_TRY(append_id(e, token->id, text + start, text + end));
        done = end;
    }
    return done < bytes ? gap(e, text + done, bytes - done, at_start && done == 0) : TT_OK;
}

static tt_status encode_normalized(struct encoding *e, const char *text, size_t bytes, bool at_start)
{
    struct tracking *tracking = e->tracking;
    struct pretokenizers_run run = {.pretokenizers = &e->tokenizer->pretokenizers,
                                    .runner = e->scratch->runner,
                                    .buffers = e->scratch->pieces,
                                    .word = tracking == NULL ? encode_piece : encode_tracked,
                                    .context = e};
    if (tracking != NULL) {
        run.track = &tracking->track;
        run.maps = tracking->pieces;
    }
    return pretokenizers_apply(&run, text, bytes, at_start);
}

static tt_status encode_raw(struct encoding *e, const char *text, size_t bytes, bool at_start)
{
    struct tracking *tracking = e->tracking;
    struct normalizing with = {.runner = e->scratch->runner, .buffers = e->scratch->normal};
    struct text_track before = {0};
    if (tracking != NULL) {
        before = tracking->track;
        with.track = &tracking->track;
        with.maps = tracking->normal;
    }
    TT_TRY(normalizers_apply(&e->tokenizer->normalizers, &with, &text, &bytes, &at_start));
    TT_TRY(split_added(e, &e->tokenizer->normalized, &e->scratch->normalized, text, bytes, at_start,
                       encode_normalized));
    if (tracking != NULL) tracking->track = before;
    return TT_OK;
}

static tt_status append_copy(struct encoding *e, size_t start, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        TT_TRY(tt_ids_append(e->ids, e->ids->data[start + i]));
        if (e->tracking != NULL && e->ranges->count < e->ids->count)
            TT_TRY(tt_ranges_append(e->ranges, e->ranges->data[start + i]));
    }
    return TT_OK;
}

static tt_status encode_pieces(struct encoding *e, const char *text, size_t bytes, bool add_special)
{
    const struct post_processor *post = &e->tokenizer->post;
    size_t start = SIZE_MAX, count = 0;
    for (size_t i = 0; i < post->count; i++) {
        const struct post_piece *piece = &post->pieces[i];
        if (!piece->is_text) {
            const char *at = start == SIZE_MAX ? text : text + bytes;
            if (add_special) TT_TRY(append_id(e, piece->id, at, at));
        } else if (start == SIZE_MAX) {
            start = e->ids->count;
            TT_TRY(split_added(e, &e->tokenizer->raw, &e->scratch->raw, text, bytes, true, encode_raw));
            count = e->ids->count - start;
        } else {
            TT_TRY(append_copy(e, start, count));
        }
    }
    return TT_OK;
}

static tt_status encode(struct encoding *e, const char *text, size_t bytes, bool add_special)
{
    struct tt_tokenizer_scratch *scratch = e->scratch;
    struct tt_ids *ids = e->ids;
    size_t before = ids->count, beyond = ids->beyond;
    if (bytes > TEXT_BYTES_MAX)
        return tt_fail(TT_ERR_DATA, "a text of %zu bytes is too long to encode at once", bytes);
    size_t invalid = tt_utf8_invalid_at(text, bytes);
    if (invalid < bytes) {
        return tt_fail(TT_ERR_DATA, "the text is not UTF-8: byte %zu is 0x%02X", invalid,
                       (unsigned)(unsigned char)text[invalid]);
    }
    tt_pattern_runner_reset(scratch->runner, bytes);
    tt_status status = encode_pieces(e, text, bytes, add_special);
    if (status == TT_OK && bytes > LONG_TEXT_BYTES) forget_texts(scratch);
    if (status != TT_OK) {
        ids->count = before;
        ids->beyond = beyond;
    }
    return status;
}

tt_status tt_tokenizer_encode(const struct tt_tokenizer *tokenizer, struct tt_tokenizer_scratch *scratch,
                              const char *text, size_t bytes, bool add_special, struct tt_ids *ids)
{
    struct encoding encoding = {.tokenizer = tokenizer, .scratch = scratch, .ids = ids};
    return encode(&encoding, text, bytes, add_special);
}

tt_status tt_tokenizer_encode_ranges(const struct tt_tokenizer *tokenizer,
                                     struct tt_tokenizer_scratch *scratch, struct tt_span text,
                                     const struct tt_encode_options *options, struct tt_ids *ids,
                                     struct tt_ranges *ranges)
{
    if (scratch->tracking == NULL) scratch->tracking = tt_calloc(1, sizeof *scratch->tracking);
    struct tracking *tracking = scratch->tracking;
    if (tracking == NULL) return TT_ERR_MEMORY;
    size_t before = ranges->count; /* as many as ids */
    tracking->track = (struct text_track){.base = text.data, .bytes = text.bytes};
    struct encoding encoding = {tokenizer, scratch, ids, tracking, options, ranges};
    tt_status status = encode(&encoding, text.data, text.bytes, options->add_special);
    if (status != TT_OK) ranges->count = before;
    return status;
}

/* The reference decides by the decoded text: a special token whose normal form differs from its name is not
 * skipped. */
static bool names_special(const struct tt_tokenizer *tokenizer, const char *token)
{
    int32_t index = vocab_id(&tokenizer->names, token, strlen(token));
    return index >= 0 && tokenizer->added[index].special;
}

tt_status tt_tokenizer_decode(const struct tt_tokenizer *tokenizer, const int32_t *ids, size_t count,
                              bool skip_special, struct tt_str *text)
{
    struct decode_list list = {0};
    tt_status status = TT_OK;
    for (size_t i = 0; i < count; i++) {
        const struct added_token *added = find_added(tokenizer, ids[i]);
        const struct vocab_token *token = added == NULL ? vocab_find(&tokenizer->model.vocab, ids[i]) : NULL;
        if (token != NULL) TT_GO(decode_list_append(&list, token->data, token->bytes));
        if (added == NULL || (skip_special && names_special(tokenizer, added->decoded))) continue;
        TT_GO(decode_list_append(&list, added->decoded, strlen(added->decoded)));
    }
    TT_GO(decoders_apply(&tokenizer->decoders, &list, text));
out:
    decode_list_deinit(&list);
    return status;
}
