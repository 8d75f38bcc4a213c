/* Conversion of tokenizer.json to GGUF keys. The format has a kind ("gpt2": byte-level BPE, "llama": SentencePiece's
 * BPE), and for the first the name of a pre-tokenizer (tokenizer.ggml.pre) instead of its expression. */
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "convert/gguf.h"
#include "convert/gguf_impl.h"
#include "model/family.h"
#include "text/beside.h"
#include "text/tokenizer.h"

enum { FILE_BYTES_MAX = 256 << 20, STEPS_MAX = 4 };
enum token_type { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };

struct source {
    const char *folder;
    const struct tt_model_facts *config;
    struct tt_json tokenizer, generation; /* tokenizer.json, generation_config.json */
    struct tt_beside beside;
    const struct tt_json_value *model;
    bool byte_level, ignore_merges;
    const char *merging; /* name of SentencePiece's kind with merges; NULL: it has scores alone */
    size_t count;        /* rows of the embeddings */
    struct tt_span *tokens;
    int32_t *types;
    float *scores;
    struct tt_span *merges;
    size_t merge_count;
    struct tt_arena arena;
};

static tt_status refuse(const struct source *source, const char *what)
{
    tt_status status =
        tt_fail(TT_ERR_UNSUPPORTED, "%s: GGUF cannot express %s", source->tokenizer.origin, what);
    tt_hint("programs that read model folders can use the merged folder: trimtab merge");
    return status;
}

static tt_status read_file(const struct source *source, const char *name, bool required, struct tt_json *json)
{
    struct tt_path path;
    TT_TRY(tt_path_set(&path, source->folder, name));
    tt_status status = TT_OK;
    if (tt_path_exists(path.text)) {
        status = tt_json_read_nul(path.text, FILE_BYTES_MAX, json);
        if (status == TT_OK && !tt_json_is_object(json->root))
            status = tt_fail(TT_ERR_DATA, "%s: not a JSON object", path.text);
    } else if (required) {
        status = tt_fail(TT_ERR_DATA, "'%s' has no %s, and a GGUF model contains its tokenizer",
                         source->folder, name);
    }
    return status;
}

/* A single step, or the steps of a Sequence: of more than STEPS_MAX only the first ones are stored. */
static size_t list_steps(const struct tt_json_value *value, const char *member,
                         const struct tt_json_value *steps[STEPS_MAX])
{
    size_t count = 0;
    if (value == NULL || tt_json_is_null(value)) return 0;
    if (!gguf_is_step(value, "Sequence")) {
        steps[count++] = value;
        return count;
    }
    const struct tt_json_value *list = tt_json_get(value, member);
    for (size_t i = 0; i < tt_json_count(list); i++) {
        if (count < STEPS_MAX) steps[count] = tt_json_at(list, i);
        count++;
    }
    return count;
}

/* ---- Kinds ---- */

/* True if ByteLevel is the last step; *splits_text: this step splits the text itself, by GPT-2's expression. */
static bool ends_in_byte_level(const struct tt_json_value *const *steps, size_t count, bool *splits_text)
{
    if (count == 0 || count > STEPS_MAX || !gguf_is_step(steps[count - 1], "ByteLevel")) return false;
    const struct tt_json_value *use_regex = tt_json_get(steps[count - 1], "use_regex");
    *splits_text = use_regex == NULL || tt_json_is_true(use_regex);
    return true;
}

static tt_status put_pre_tokenizer(struct source *source, struct tt_gguf_header *header,
                                   const struct tt_json_value *const *steps, size_t count, bool splits_text)
{
    bool other_merges = false;
    if (tt_json_is_true(tt_json_get(steps[count - 1], "add_prefix_space")))
        return refuse(source, "a byte-level tokenizer with add_prefix_space");
    const char *name = gguf_pre_name(steps, count, splits_text, source->ignore_merges, &other_merges);
    if (name == NULL && other_merges)
        return refuse(source, source->ignore_merges ? "ignore_merges true with this pre_tokenizer"
                                                    : "ignore_merges false with this pre_tokenizer");
    if (name == NULL) return refuse(source, "its pre_tokenizer, which has no name in that format");
    return tt_gguf_put_string(header, "tokenizer.ggml.pre", tt_span_of(name));
}

/* Qwen's tokenizers normalize to NFC; readers of GGUF do not, because the format has no key for it. */
static tt_status put_byte_level(struct source *source, struct tt_gguf_header *header,
                                const struct tt_json_value *const *steps, size_t count, bool splits_text)
{
    const struct tt_json_value *normalizers[STEPS_MAX];
    size_t normalizer_count =
        list_steps(tt_json_get(source->tokenizer.root, "normalizer"), "normalizers", normalizers);
    for (size_t i = 0; i < normalizer_count; i++)
        if (i >= STEPS_MAX || !gguf_is_step(normalizers[i], "NFC"))
            return refuse(source, "the normalizer of a byte-level tokenizer");
    source->byte_level = true;
    TT_TRY(tt_gguf_put_string(header, "tokenizer.ggml.model", tt_span_of("gpt2")));
    return put_pre_tokenizer(source, header, steps, count, splits_text);
}

static bool is_metaspace(const char *text)
{
    return text != NULL && strcmp(text, "\xe2\x96\x81") == 0;
}

/* Gemma has this step behind a normalizer that leaves no blank: it does nothing. */
static bool splits_at_blanks(const struct tt_json_value *step)
{
    const char *blank = tt_json_text(tt_json_get(tt_json_get(step, "pattern"), "String"));
    return gguf_is_step(step, "Split") && blank != NULL && strcmp(blank, " ") == 0;
}

/* Blanks become U+2581, with or without one at the start: the only options of SentencePiece's kind. */
static tt_status put_sentencepiece(struct source *source, struct tt_gguf_header *header,
                                   const struct tt_json_value *const *steps, size_t count)
{
    const struct tt_json_value *normalizers[STEPS_MAX];
    bool prefix = false, replaces = false;
    size_t normalizer_count =
        list_steps(tt_json_get(source->tokenizer.root, "normalizer"), "normalizers", normalizers);
    for (size_t i = 0; i < normalizer_count; i++) {
        const struct tt_json_value *step = i < STEPS_MAX ? normalizers[i] : NULL;
        const struct tt_json_value *pattern = tt_json_get(step, "pattern");
        const char *blank = tt_json_text(tt_json_get(pattern, "String"));
        if (gguf_is_step(step, "Prepend") && is_metaspace(tt_json_text(tt_json_get(step, "prepend"))))
            prefix = true;
        else if (gguf_is_step(step, "Replace") && blank != NULL && strcmp(blank, " ") == 0 &&
                 is_metaspace(tt_json_text(tt_json_get(step, "content"))))
            replaces = true;
        else
            return refuse(source, "its normalizer");
    }
    if (count == 1 && gguf_is_step(steps[0], "Metaspace")) {
        const char *scheme = tt_json_text(tt_json_get(steps[0], "prepend_scheme"));
        prefix = scheme != NULL ? strcmp(scheme, "never") != 0
                                : !tt_json_is_false(tt_json_get(steps[0], "add_prefix_space"));
        replaces = true;
    } else if (count > 0 && !(count == 1 && replaces && splits_at_blanks(steps[0]))) {
        return refuse(source, "its pre_tokenizer");
    }
    if (!replaces) return refuse(source, "a tokenizer that is neither byte-level nor SentencePiece's");
    if (source->merging != NULL && prefix) return refuse(source, "a blank before the first word");
    const char *kind = source->merging != NULL ? source->merging : "llama";
    TT_TRY(tt_gguf_put_string(header, "tokenizer.ggml.model", tt_span_of(kind)));
    TT_TRY(tt_gguf_put_string(header, "tokenizer.ggml.pre",
                              tt_span_of(source->merging != NULL ? kind : "default")));
    return tt_gguf_put_bool(header, "tokenizer.ggml.add_space_prefix", prefix);
}

static tt_status put_kind(struct source *source, struct tt_gguf_header *header)
{
    const struct tt_json_value *steps[STEPS_MAX];
    bool splits_text = false;
    const char *type = "BPE";
    const struct tt_json *json = &source->tokenizer;
    TT_TRY(tt_json_object(json, json->root, "model", &source->model));
    TT_TRY(tt_json_opt_string(json, source->model, "type", &type));
    if (strcmp(type, "BPE") != 0) return refuse(source, "a model that is not BPE");
    TT_TRY(tt_json_opt_bool(json, source->model, "ignore_merges", &source->ignore_merges));
    size_t count = list_steps(tt_json_get(json->root, "pre_tokenizer"), "pretokenizers", steps);
    if (ends_in_byte_level(steps, count, &splits_text))
        return put_byte_level(source, header, steps, count, splits_text);
    if (tt_json_is_true(tt_json_get(source->model, "byte_fallback")) && !source->ignore_merges)
        return put_sentencepiece(source, header, steps, count);
    return refuse(source, "a tokenizer that is neither byte-level nor SentencePiece's");
}

/* ---- Tokens ---- */

static bool is_byte(struct tt_span text)
{
    return text.bytes == 6 && tt_span_starts_with(text, "<0x") && text.data[5] == '>';
}

static tt_status set_token(struct source *source, struct tt_span text, int64_t id, int type)
{
    if (id < 0 || (size_t)id >= source->count) {
        return tt_fail(TT_ERR_DATA, "%s: '%s' has id %lld, and the model embeds %zu",
                       source->tokenizer.origin, text.data, (long long)id, source->count);
    }
    source->tokens[id] = text;
    source->types[id] = type;
    return TT_OK;
}

/* The tokens that only the files beside tokenizer.json name, or make special. */
static tt_status read_beside(struct source *source)
{
    struct tt_tokenizer *tokenizer = NULL;
    TT_TRY(tt_tokenizer_load(source->folder, &tokenizer));
    tt_status status = TT_OK;
    int32_t size = tt_tokenizer_vocab_size(tokenizer);
    for (int32_t id = 0; id < size && status == TT_OK; id++) {
        if (!tt_tokenizer_is_added(tokenizer, id)) continue;
        if ((size_t)id >= source->count) {
            tt_warn("token '%s' has id %d, and the model embeds %zu: it is left out",
                    tt_tokenizer_token(tokenizer, id), id, source->count);
            continue;
        }
        if (source->types[id] == UNKNOWN) continue;
        const char *text = tt_arena_strdup(&source->arena, tt_tokenizer_token(tokenizer, id));
        if (text == NULL) status = TT_ERR_MEMORY;
        if (status == TT_OK)
            status = set_token(source, tt_span_of(text), id,
                               tt_tokenizer_is_special(tokenizer, id) ? CONTROL : USER_DEFINED);
    }
    tt_tokenizer_destroy(tokenizer);
    return status;
}

/* Marks in answers of Gemma 4 that programs look for: llama.cpp does not print control tokens (conversion/gemma.py). */
static void show_marks(struct source *source)
{
    static const char *const marks[] = {"<|channel>",   "<channel|>",       "<|tool_call>",
                                        "<tool_call|>", "<|tool_response>", "<tool_response|>",
                                        "<|\"|>"};
    for (size_t i = 0; i < source->count; i++)
        for (size_t m = 0; m < sizeof marks / sizeof marks[0] && source->types[i] == CONTROL; m++)
            if (tt_span_equals(source->tokens[i], marks[m])) source->types[i] = USER_DEFINED;
}

static tt_status read_tokens(struct source *source)
{
    const struct tt_json *json = &source->tokenizer;
    const struct tt_json_value *vocab = NULL;
    const char *text, *unknown = NULL;
    TT_TRY(tt_json_object(json, source->model, "vocab", &vocab));
    TT_TRY(tt_json_opt_string(json, source->model, "unk_token", &unknown));
    for (size_t i = 0; i < tt_json_count(vocab); i++) {
        struct tt_json_member token = tt_json_member(vocab, i);
        bool byte = !source->byte_level && is_byte(token.key);
        bool is_unknown = unknown != NULL && tt_span_equals(token.key, unknown);
        if (!tt_json_is_integer(token.value))
            return tt_fail(TT_ERR_DATA, "%s: the id of '%s' is not an integer", json->origin, token.key.data);
        TT_TRY(set_token(source, token.key, tt_json_integer(token.value),
                         byte         ? BYTE
                         : is_unknown ? UNKNOWN
                                      : NORMAL));
    }
    const struct tt_json_value *added = tt_json_get(json->root, "added_tokens");
    for (size_t i = 0; i < tt_json_count(added); i++) {
        const struct tt_json_value *token = tt_json_at(added, i);
        bool special = false;
        int64_t id = -1;
        if (!tt_json_is_object(token))
            return tt_fail(TT_ERR_DATA, "%s: added_tokens[%zu] is not an object", json->origin, i);
        TT_TRY(tt_json_string(json, token, "content", &text));
        TT_TRY(tt_json_int(json, token, "id", &id));
        TT_TRY(tt_json_opt_bool(json, token, "special", &special));
        bool is_unknown = unknown != NULL && strcmp(text, unknown) == 0;
        TT_TRY(set_token(source, tt_span_of(text), id,
                         is_unknown ? UNKNOWN
                         : special  ? CONTROL
                                    : USER_DEFINED));
    }
    TT_TRY(read_beside(source));
    /* Rows of the embeddings without a token. */
    for (size_t i = 0; i < source->count; i++) {
        if (source->types[i] != 0) continue;
        text = tt_arena_printf(&source->arena, "[PAD%zu]", i);
        if (text == NULL) return TT_ERR_MEMORY;
        TT_TRY(set_token(source, tt_span_of(text), (int64_t)i, UNUSED));
    }
    return TT_OK;
}

/* Splits a merge into its two halves: parts of the document. */
static tt_status split_merge(const struct source *source, const struct tt_json_value *value, size_t index,
                             struct tt_span *left, struct tt_span *right)
{
    struct tt_span text = tt_json_span(value);
    const char *blank = text.data != NULL ? memchr(text.data, ' ', text.bytes) : NULL;
    *left = tt_json_span(tt_json_at(value, 0));
    *right = tt_json_span(tt_json_at(value, 1));
    if (blank != NULL) {
        *left = (struct tt_span){text.data, (size_t)(blank - text.data)};
        *right = (struct tt_span){blank + 1, text.bytes - left->bytes - 1};
    }
    if (left->data != NULL && right->data != NULL && memchr(left->data, ' ', left->bytes) == NULL &&
        memchr(right->data, ' ', right->bytes) == NULL)
        return TT_OK;
    return tt_fail(TT_ERR_DATA, "%s: merge %zu is not two tokens without blanks", source->tokenizer.origin,
                   index);
}

/* Both, with `between` them, in the arena. */
static tt_status join(struct source *source, struct tt_span left, const char *between, struct tt_span right,
                      struct tt_span *out)
{
    size_t middle = strlen(between), bytes = left.bytes + middle + right.bytes;
    char *text = tt_arena_alloc(&source->arena, bytes + 1);
    if (text == NULL) return TT_ERR_MEMORY;
    memcpy(text, left.data, left.bytes);
    memcpy(text + left.bytes, between, middle);
    memcpy(text + left.bytes + middle, right.data, right.bytes);
    *out = (struct tt_span){text, bytes};
    return TT_OK;
}

/* SentencePiece's kind has scores instead of merges: the pair whose token has the greatest score is merged first, so
 * the score is minus the index of the merge that makes the token. */
static tt_status read_merges(struct source *source)
{
    const struct tt_json *json = &source->tokenizer;
    const struct tt_json_value *merges = NULL, *vocab = tt_json_get(source->model, "vocab");
    TT_TRY(tt_json_array(json, source->model, "merges", &merges));
    size_t count = tt_json_count(merges);
    source->merges = tt_calloc(count + 1, sizeof *source->merges);
    if (source->merges == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < source->count; i++)
        source->scores[i] = source->types[i] == NORMAL ? -(float)count : 0.0f;
    for (size_t i = count; i-- > 0;) { /* backwards, so that the first merge that makes a token counts */
        struct tt_span left, right, pair, joined;
        const struct tt_json_value *value = tt_json_at(merges, i);
        if (tt_span_starts_with(tt_json_span(value), "#version")) continue;
        TT_TRY(split_merge(source, value, i, &left, &right));
        TT_TRY(join(source, left, " ", right, &pair));
        TT_TRY(join(source, left, "", right, &joined));
        source->merges[count - 1 - source->merge_count++] = pair;
        const struct tt_json_value *id = tt_json_get_span(vocab, joined);
        if (id != NULL && source->types[tt_json_integer(id)] == NORMAL)
            source->scores[tt_json_integer(id)] = -(float)i;
    }
    memmove(source->merges, source->merges + count - source->merge_count,
            source->merge_count * sizeof *source->merges);
    return TT_OK;
}

static tt_status put_tokens(struct source *source, struct tt_gguf_header *header)
{
    source->count = (size_t)source->config->vocab_size;
    source->tokens = tt_calloc(source->count + 1, sizeof *source->tokens);
    source->types = tt_calloc(source->count + 1, sizeof *source->types);
    source->scores = tt_calloc(source->count + 1, sizeof *source->scores);
    if (source->tokens == NULL || source->types == NULL || source->scores == NULL) return TT_ERR_MEMORY;
    TT_TRY(read_tokens(source));
    if (source->merging != NULL) show_marks(source);
    TT_TRY(read_merges(source));
    TT_TRY(tt_gguf_put_strings(header, "tokenizer.ggml.tokens", source->tokens, source->count));
    TT_TRY(tt_gguf_put_i32s(header, "tokenizer.ggml.token_type", source->types, source->count));
    if (source->byte_level || source->merging != NULL)
        return tt_gguf_put_strings(header, "tokenizer.ggml.merges", source->merges, source->merge_count);
    return tt_gguf_put_f32s(header, "tokenizer.ggml.scores", source->scores, source->count);
}

/* ---- Special tokens ---- */

static int64_t find_id(const struct source *source, const char *text)
{
    for (size_t i = 0; text != NULL && i < source->count; i++)
        if (source->types[i] != UNUSED && tt_span_equals(source->tokens[i], text)) return (int64_t)i;
    return -1;
}

/* The id of the token that the files beside tokenizer.json name, a text or an object with "content"; else `otherwise`.
 */
static int64_t named_id(const struct source *source, const char *key, int64_t otherwise)
{
    const struct tt_json_value *value = tt_beside_get(&source->beside, key, NULL);
    const struct tt_json_value *text = tt_json_is_object(value) ? tt_json_get(value, "content") : value;
    int64_t id = find_id(source, tt_json_text(text));
    return id >= 0 ? id : otherwise;
}

/* True if the post-processor adds `id` before (or after) each text; id -1: no token. */
static bool is_added(const struct source *source, int64_t id, bool before)
{
    const struct tt_json_value *steps[STEPS_MAX];
    size_t count = list_steps(tt_json_get(source->tokenizer.root, "post_processor"), "processors", steps);
    for (size_t i = 0; i < count && i < STEPS_MAX && id >= 0; i++) {
        const struct tt_json_value *single = tt_json_get(steps[i], "single");
        size_t length = tt_json_count(single);
        if (!gguf_is_step(steps[i], "TemplateProcessing") || length == 0) continue;
        const struct tt_json_value *item = tt_json_at(single, before ? 0 : length - 1);
        const struct tt_json_value *token = tt_json_get(item, "SpecialToken");
        if (token != NULL && find_id(source, tt_json_text(tt_json_get(token, "id"))) == id) return true;
    }
    return false;
}

/* The flag of tokenizer_config.json, as llama.cpp's converter reads it; where it has none, the post-processor says
 * it. */
static bool adds(const struct source *source, const char *key, int64_t id, bool before)
{
    const struct tt_json_value *value = tt_json_get(source->beside.config.root, key);
    return tt_json_is_bool(value) ? tt_json_is_true(value) : is_added(source, id, before);
}

enum { ENDS_MAX = 64 };

/* Tokens at which generation ends besides eos. */
struct ends {
    int64_t ids[ENDS_MAX], eot, eom; /* -1: none */
    size_t count;
};

static void add_end(const struct source *source, struct ends *ends, int64_t eos, int64_t id)
{
    bool known = id < 0 || (size_t)id >= source->count || id == eos || ends->count == ENDS_MAX;
    for (size_t i = 0; i < ends->count; i++) known |= ends->ids[i] == id;
    if (!known) ends->ids[ends->count++] = id;
}

static bool is_end_of_turn(struct tt_span text)
{
    static const char *const names[] = {"<|eot_id|>",    "<|im_end|>", "<|end|>",
                                        "<end_of_turn>", "<turn|>",    "<end_of_utterance>"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (tt_span_equals(text, names[i])) return true;
    return false;
}

/* Removes and returns the first end that `fits`, or with NULL the first of all; -1: none. */
static int64_t take_end(const struct source *source, struct ends *ends, bool (*fits)(struct tt_span))
{
    for (size_t i = 0; i < ends->count; i++) {
        int64_t id = ends->ids[i];
        if (fits != NULL && !fits(source->tokens[id])) continue;
        memmove(&ends->ids[i], &ends->ids[i + 1], (--ends->count - i) * sizeof ends->ids[0]);
        return id;
    }
    return -1;
}

static bool is_end_of_message(struct tt_span text)
{
    return tt_span_equals(text, "<|eom_id|>");
}

static void list_ends(const struct source *source, int64_t eos, struct ends *ends)
{
    const struct tt_json_value *list = tt_json_get(source->generation.root, "eos_token_id");
    if (tt_json_is_integer(list)) add_end(source, ends, eos, tt_json_integer(list));
    for (size_t i = 0; i < tt_json_count(list); i++) {
        const struct tt_json_value *item = tt_json_at(list, i);
        if (tt_json_is_integer(item)) add_end(source, ends, eos, tt_json_integer(item));
    }
    for (int i = 0; i < source->config->eos_token_count; i++)
        add_end(source, ends, eos, source->config->eos_token_ids[i]);
}

/* Besides eos the format has keys for two end tokens: eot gets the one that ends turns and eom the one that ends
 * messages, or where there is none such the next that is left. */
static void assign_ends(const struct source *source, struct ends *ends)
{
    ends->eot = take_end(source, ends, is_end_of_turn);
    ends->eom = take_end(source, ends, is_end_of_message);
    if (ends->eot < 0) ends->eot = take_end(source, ends, NULL);
    if (ends->eom < 0) ends->eom = take_end(source, ends, NULL);
    if (ends->count == 0) return;
    tt_warn("GGUF has keys for three end tokens: '%s' (%lld)%s of generation_config.json %s none",
            source->tokens[ends->ids[0]].data, (long long)ends->ids[0], ends->count > 1 ? " and others" : "",
            ends->count > 1 ? "have" : "has");
}

static tt_status put_special(struct source *source, struct tt_gguf_header *header)
{
    struct ends ends = {0};
    int64_t bos = named_id(source, "bos_token", source->config->bos_token_id);
    int64_t eos = named_id(source, "eos_token",
                           source->config->eos_token_count > 0 ? source->config->eos_token_ids[0] : -1);
    list_ends(source, eos, &ends);
    if (eos < 0) eos = take_end(source, &ends, NULL);
    assign_ends(source, &ends);
    struct {
        const char *key;
        int64_t id;
    } ids[] = {
        {"tokenizer.ggml.bos_token_id", bos},
        {"tokenizer.ggml.eos_token_id", eos},
        {"tokenizer.ggml.eot_token_id", ends.eot},
        {"tokenizer.ggml.eom_token_id", ends.eom},
        {"tokenizer.ggml.unknown_token_id", named_id(source, "unk_token", -1)},
        {"tokenizer.ggml.padding_token_id", named_id(source, "pad_token", -1)},
    };
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (ids[i].id >= 0) TT_TRY(tt_gguf_put_u32(header, ids[i].key, ids[i].id));
    TT_TRY(
        tt_gguf_put_bool(header, "tokenizer.ggml.add_bos_token", adds(source, "add_bos_token", bos, true)));
    return tt_gguf_put_bool(header, "tokenizer.ggml.add_eos_token",
                            adds(source, "add_eos_token", eos, false));
}

tt_status tt_gguf_put_tokenizer(struct tt_gguf_header *header, const char *folder,
                                const struct tt_model_facts *config)
{
    tt_status status = TT_OK;
    struct source source = {.folder = folder, .config = config};
    if (config->family != NULL && config->family->gguf != NULL)
        source.merging = config->family->gguf->tokenizer;
    TT_GO(read_file(&source, "tokenizer.json", true, &source.tokenizer));
    TT_GO(tt_beside_open(folder, &source.beside));
    TT_GO(read_file(&source, "generation_config.json", false, &source.generation));
    TT_GO(put_kind(&source, header));
    TT_GO(put_tokens(&source, header));
    TT_GO(put_special(&source, header));
out:
    tt_json_deinit(&source.tokenizer);
    tt_beside_close(&source.beside);
    tt_json_deinit(&source.generation);
    tt_free(source.tokens);
    tt_free(source.types);
    tt_free(source.scores);
    tt_free(source.merges);
    tt_arena_deinit(&source.arena);
    return status;
}
