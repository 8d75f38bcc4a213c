/* Reads tokenizer.json: vocabulary, merges, added tokens, and the steps of the pipeline. */
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "text/tokenizer_impl.h"

static tt_status copy_optional(const struct tt_json *json, const struct tt_json_value *object,
                               const char *key, char **out)
{
    const char *text = NULL;
    TT_TRY(tt_json_opt_string(json, object, key, &text));
    if (text == NULL || text[0] == 0) return TT_OK;
    *out = tt_strdup(text);
    return *out == NULL ? TT_ERR_MEMORY : TT_OK;
}

static tt_status read_vocab(const struct tt_json *json, const struct tt_json_value *model,
                            struct vocab *vocab)
{
    const struct tt_json_value *tokens = NULL;
    TT_TRY(tt_json_object(json, model, "vocab", &tokens));
    for (size_t i = 0; i < tt_json_count(tokens); i++) {
        struct tt_json_member token = tt_json_member(tokens, i);
        int64_t id = tt_json_is_integer(token.value) ? tt_json_integer(token.value) : -1;
        if (id < 0 || id >= INT32_MAX) {
            return tt_fail(TT_ERR_DATA, "%s: the id of token '%s' is not an integer from 0 to 2^31 - 2",
                           json->origin, token.key.data);
        }
        TT_TRY(vocab_add(vocab, token.key.data, token.key.bytes, (int32_t)id));
    }
    return vocab_finish(vocab);
}

/* "left right", with one space. */
static tt_status add_text_merge(struct bpe *bpe, const struct tt_json_value *value, uint32_t rank)
{
    struct tt_span text = tt_json_span(value);
    const char *end = text.data + text.bytes, *space = memchr(text.data, ' ', text.bytes);
    if (space == NULL || memchr(space + 1, ' ', (size_t)(end - space - 1)) != NULL) {
        return tt_fail(TT_ERR_DATA, "merge %u: '%s' is not two tokens and one space", rank, text.data);
    }
    return bpe_add_merge(bpe, text.data, (size_t)(space - text.data), space + 1, (size_t)(end - space - 1),
                         rank);
}

static tt_status read_merges(const struct tt_json *json, const struct tt_json_value *model, struct bpe *bpe)
{
    const struct tt_json_value *merges = NULL;
    TT_TRY(tt_json_array(json, model, "merges", &merges));
    size_t count = tt_json_count(merges);
    bpe->cuts_at_metaspace = true; /* cleared by merges and options */
    for (size_t i = 0; i < count; i++) {
        const struct tt_json_value *value = tt_json_at(merges, i);
        const struct tt_json_value *left = tt_json_at(value, 0), *right = tt_json_at(value, 1);
        tt_status status;
        if (tt_json_is_string(value)) {
            if (strncmp(tt_json_span(value).data, "#version", 8) == 0) continue;
            status = add_text_merge(bpe, value, (uint32_t)i);
        } else if (tt_json_count(value) == 2 && tt_json_is_string(left) && tt_json_is_string(right)) {
            struct tt_span a = tt_json_span(left), b = tt_json_span(right);
            status = bpe_add_merge(bpe, a.data, a.bytes, b.data, b.bytes, (uint32_t)i);
        } else {
            status =
                tt_fail(TT_ERR_DATA, "%s: merge %zu is neither \"a b\" nor [\"a\", \"b\"]", json->origin, i);
        }
        TT_TRY(status);
    }
    return TT_OK;
}

static tt_status read_model(const struct tt_json *json, struct tt_tokenizer *tokenizer)
{
    struct bpe *bpe = &tokenizer->model;
    const struct tt_json_value *model = NULL;
    const char *type = "BPE";
    double dropout = 0;
    TT_TRY(tt_json_object(json, json->root, "model", &model));
    TT_TRY(tt_json_opt_string(json, model, "type", &type));
    if (strcmp(type, "BPE") != 0) {
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: a model of type '%s'; only BPE is supported", json->origin,
                       type);
    }
    TT_TRY(tt_json_opt_double(json, model, "dropout", &dropout));
    if (dropout != 0) {
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: dropout %g would make every encoding random", json->origin,
                       dropout);
    }
    TT_TRY(copy_optional(json, model, "unk_token", &bpe->unk_token));
    TT_TRY(copy_optional(json, model, "continuing_subword_prefix", &bpe->prefix));
    TT_TRY(copy_optional(json, model, "end_of_word_suffix", &bpe->suffix));
    TT_TRY(tt_json_opt_bool(json, model, "fuse_unk", &bpe->fuse_unk));
    TT_TRY(tt_json_opt_bool(json, model, "byte_fallback", &bpe->byte_fallback));
    TT_TRY(tt_json_opt_bool(json, model, "ignore_merges", &bpe->ignore_merges));
    TT_TRY(read_vocab(json, model, &bpe->vocab));
    TT_TRY(read_merges(json, model, bpe));
    bpe->byte_level = tokenizer->pretokenizers.ends_in_byte_level;
    return bpe_finish(bpe);
}

struct adding {
    struct tt_tokenizer *tokenizer;
    int32_t largest; /* id of the tokens added so far; -1: none */
};

/* The reference assigns ids itself: the id of the model's token of this name, or the next id above the model's tokens
 * and the tokens added so far. */
static int32_t next_id(const struct tt_tokenizer *tokenizer, const char *content, int32_t *largest)
{
    int32_t id = vocab_id(&tokenizer->model.vocab, content, strlen(content));
    int32_t model_size = (int32_t)tokenizer->model.vocab.count;
    if (id < 0) id = *largest >= model_size ? *largest + 1 : model_size;
    if (id > *largest) *largest = id;
    return id;
}

/* One added token. A later one of the same name replaces it, except that special stays special. `stated`: the id that
 * the file gives, or -1. */
static tt_status add_token(const char *origin, const char *content, int64_t stated, struct added_token token,
                           struct adding *adding)
{
    struct tt_tokenizer *tokenizer = adding->tokenizer;
    if (content[0] == 0) return TT_OK;
    size_t bytes = strlen(content);
    int32_t index = vocab_id(&tokenizer->names, content, bytes);
    token.decodes_normal = token.normalized;
    if (index < 0) {
        index = (int32_t)tokenizer->added_count;
        TT_TRY(vocab_add(&tokenizer->names, content, bytes, index));
        if (tt_grow(&tokenizer->added, tokenizer->added_count, &tokenizer->added_capacity) != 0) {
            return TT_ERR_MEMORY;
        }
        token.id = next_id(tokenizer, content, &adding->largest);
        if (token.id >= INT32_MAX - 1)
            return tt_fail(TT_ERR_DATA, "%s: no id is left for '%s'", origin, content);
        tokenizer->added_count++;
    } else {
        token.id = tokenizer->added[index].id;
        token.special = token.special || tokenizer->added[index].special;
        token.decodes_normal = token.decodes_normal || tokenizer->added[index].decodes_normal;
    }
    if (stated >= 0 && token.id != stated) {
        tt_warn("%s: added token '%s' has id %lld and gets %d, as in the reference library", origin, content,
                (long long)stated, token.id);
    }
    token.content = token.decoded = tokenizer->names.tokens[index].data;
    token.bytes = bytes;
    tokenizer->added[index] = token;
    return TT_OK;
}

static tt_status read_added(const struct tt_json *json, const struct tt_json_value *value,
                            struct adding *adding)
{
    struct added_token token = {0};
    const char *content = NULL;
    int64_t stated = 0;
    if (!tt_json_is_object(value))
        return tt_fail(TT_ERR_DATA, "%s: an added token is not an object", json->origin);
    TT_TRY(tt_json_string(json, value, "content", &content));
    TT_TRY(tt_json_int(json, value, "id", &stated));
    TT_TRY(tt_json_bool(json, value, "single_word", &token.single_word));
    TT_TRY(tt_json_bool(json, value, "lstrip", &token.lstrip));
    TT_TRY(tt_json_bool(json, value, "rstrip", &token.rstrip));
    TT_TRY(tt_json_bool(json, value, "normalized", &token.normalized));
    TT_TRY(tt_json_bool(json, value, "special", &token.special));
    return add_token(json->origin, content, stated, token, adding);
}

static bool is_added(void *context, const char *content)
{
    const struct adding *adding = context;
    return vocab_id(&adding->tokenizer->names, content, strlen(content)) >= 0;
}

static bool is_same(const struct added_token *a, const struct added_token *b)
{
    return a->single_word == b->single_word && a->lstrip == b->lstrip && a->rstrip == b->rstrip &&
           a->normalized == b->normalized && a->special == b->special;
}

/* A token of a file beside tokenizer.json: the same text with the same members changes nothing. */
static tt_status add_beside(void *context, const char *origin, const struct tt_beside_token *token)
{
    struct adding *adding = context;
    struct added_token added = {.single_word = token->single_word,
                                .lstrip = token->lstrip,
                                .rstrip = token->rstrip,
                                .normalized = token->normalized,
                                .special = token->special};
    int32_t index = vocab_id(&adding->tokenizer->names, token->content, strlen(token->content));
    if (index >= 0 && is_same(&added, &adding->tokenizer->added[index])) return TT_OK;
    added.special |= token->named;
    return add_token(origin, token->content, token->id, added, context);
}

enum { ADDED_NORMAL_BYTES_MAX = 64 << 10 };

/* Normalized text is searched for the normal form of the token; decoders get it too. */
static tt_status normalize_token(struct tt_tokenizer *tokenizer, struct tt_pattern_runner *runner,
                                 struct tt_str buffers[2], struct added_token *token, size_t *bytes)
{
    const char *text = token->content;
    bool at_start = true;
    *bytes = token->bytes;
    tt_pattern_runner_reset(runner, *bytes);
    struct normalizing with = {.runner = runner, .buffers = buffers};
    TT_TRY(normalizers_apply(&tokenizer->normalizers, &with, &text, bytes, &at_start));
    if (*bytes > ADDED_NORMAL_BYTES_MAX)
        return tt_fail(TT_ERR_DATA, "the normalizer makes %zu bytes of the added token '%.80s'", *bytes,
                       token->content);
    if (*bytes == 0) {
        return tt_fail(TT_ERR_UNSUPPORTED, "the normalizer leaves nothing of added token '%s'",
                       token->content);
    }
    token->decoded = tt_arena_strndup(&tokenizer->decoded, text, *bytes);
    return token->decoded == NULL ? TT_ERR_MEMORY : TT_OK;
}

static tt_status build_finder(struct tt_tokenizer *tokenizer, bool normalized, struct added_finder *finder)
{
    size_t all = tokenizer->added_count, count = 0;
    struct added_pattern *patterns = tt_calloc(all + 1, sizeof *patterns);
    struct tt_str buffers[2] = {{0}, {0}};
    struct tt_pattern_runner *runner = NULL;
    tt_status status = patterns == NULL ? TT_ERR_MEMORY : tt_pattern_runner_create(&runner);
    /* Special tokens come first: they count among equal normal forms. */
    for (size_t i = 0; status == TT_OK && i < 2 * all; i++) {
        struct added_token *token = &tokenizer->added[i % all];
        size_t bytes = token->bytes;
        if (token->special != (i < all) || token->normalized != normalized) continue;
        const char *text = token->content;
        if (token->decodes_normal) TT_GO(normalize_token(tokenizer, runner, buffers, token, &bytes));
        if (normalized)
            text = token->decoded;
        else
            bytes = token->bytes;
        patterns[count++] = (struct added_pattern){text, bytes, (int32_t)(i % all)};
    }
    if (status == TT_OK) status = added_finder_build(finder, patterns, count);
out:
    tt_free(patterns);
    tt_str_deinit(&buffers[0]);
    tt_str_deinit(&buffers[1]);
    tt_pattern_runner_destroy(runner);
    return status;
}

static int compare_ids(const void *a, const void *b, void *context)
{
    const struct added_token *added = context;
    int32_t x = added[*(const uint32_t *)a].id, y = added[*(const uint32_t *)b].id;
    return x < y ? -1 : x > y;
}

/* Sorts the added tokens by id and finds the size of the vocabulary. */
static tt_status index_ids(struct tt_tokenizer *tokenizer)
{
    const struct vocab *vocab = &tokenizer->model.vocab;
    tokenizer->added_by_id = tt_calloc(tokenizer->added_count + 1, sizeof tokenizer->added_by_id[0]);
    if (tokenizer->added_by_id == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        const struct added_token *token = &tokenizer->added[i];
        const struct vocab_token *same = vocab_find(vocab, token->id);
        if (same != NULL && strcmp(same->data, token->content) != 0) {
            return tt_fail(TT_ERR_DATA, "tokens '%s' and '%s' share id %d", same->data, token->content,
                           token->id);
        }
        tokenizer->added_by_id[i] = (uint32_t)i;
    }
    qsort_r(tokenizer->added_by_id, tokenizer->added_count, sizeof tokenizer->added_by_id[0], compare_ids,
            tokenizer->added);
    int32_t largest = vocab->count == 0 ? -1 : vocab->tokens[vocab->count - 1].id;
    if (tokenizer->added_count > 0) {
        int32_t last = tokenizer->added[tokenizer->added_by_id[tokenizer->added_count - 1]].id;
        if (last > largest) largest = last;
    }
    tokenizer->vocab_size = largest + 1;
    return TT_OK;
}

static tt_status read_added_tokens(const struct tt_json *json, const struct tt_beside *beside,
                                   struct tt_tokenizer *tokenizer)
{
    const struct tt_json_value *tokens = tt_json_get(json->root, "added_tokens");
    struct adding adding = {tokenizer, -1};
    const struct tt_beside_visitor visitor = {add_beside, is_added, &adding};
    if (tokens != NULL && !tt_json_is_null(tokens)) {
        TT_TRY(tt_json_array(json, json->root, "added_tokens", &tokens));
    }
    for (size_t i = 0; i < tt_json_count(tokens); i++) {
        TT_TRY(read_added(json, tt_json_at(tokens, i), &adding));
    }
    TT_TRY(tt_beside_list(beside, &visitor));
    TT_TRY(build_finder(tokenizer, false, &tokenizer->raw));
    TT_TRY(build_finder(tokenizer, true, &tokenizer->normalized));
    return index_ids(tokenizer);
}

tt_status tokenizer_read(const struct tt_json *json, const struct tt_beside *beside,
                         struct tt_tokenizer *tokenizer)
{
    const struct tt_json_value *root = json->root;
    const char *version = "1.0";
    if (!tt_json_is_object(root)) return tt_fail(TT_ERR_DATA, "%s: not a JSON object", json->origin);
    TT_TRY(tt_json_opt_string(json, root, "version", &version));
    if (strcmp(version, "1.0") != 0) {
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: tokenizer version '%s'; only 1.0 is supported", json->origin,
                       version);
    }
    TT_TRY(normalizers_read(json, tt_json_get(root, "normalizer"), &tokenizer->normalizers));
    TT_TRY(pretokenizers_read(json, tt_json_get(root, "pre_tokenizer"), &tokenizer->pretokenizers));
    TT_TRY(pipeline_check_first(json, &tokenizer->normalizers, &tokenizer->pretokenizers));
    TT_TRY(post_processor_read(json, tt_json_get(root, "post_processor"), &tokenizer->post));
    TT_TRY(decoders_read(json, tt_json_get(root, "decoder"), &tokenizer->decoders));
    TT_TRY(read_model(json, tokenizer));
    TT_TRY(read_added_tokens(json, beside, tokenizer));
    tokenizer_leave_blanks(tokenizer);
    return TT_OK;
}
