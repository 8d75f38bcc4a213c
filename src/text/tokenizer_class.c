/* A warning where transformers 5 would not run the steps of tokenizer.json: classes of tokenizers with steps of their
 * own take only the vocabulary, the merges and the post-processor from the file. */
#include <string.h>

#include "base/log.h"
#include "text/tokenizer_impl.h"

/* Models for which transformers 5.17 has a class of its own choice; "": the steps of tokenizer.json. */
static const struct {
    const char *model_type, *class_name;
    bool always; /* whatever tokenizer_config.json names */
} registered[] = {
    {"mistral", "", true},
    {"phi3", "", true},
    {"qwen2", "Qwen2Tokenizer", true},
    {"qwen3", "Qwen2Tokenizer", false},
    {"gemma2", "GemmaTokenizer", false},
    {"gemma3_text", "GemmaTokenizer", false},
};

enum steps { STEPS_LLAMA, STEPS_GEMMA, STEPS_GPT2, STEPS_QWEN2 };

static const struct {
    const char *class_name;
    enum steps steps;
} classes[] = {
    {"LlamaTokenizer", STEPS_LLAMA},
    {"GemmaTokenizer", STEPS_GEMMA},
    {"GPT2Tokenizer", STEPS_GPT2},
    {"Qwen2Tokenizer", STEPS_QWEN2},
};

/* Names with and without Fast at their end are the same class. */
static bool is_class(const char *name, const char *class_name)
{
    size_t bytes = strlen(class_name);
    return strncmp(name, class_name, bytes) == 0 && (name[bytes] == 0 || strcmp(name + bytes, "Fast") == 0);
}

static bool has_steps(const struct tt_tokenizer *tokenizer, enum tt_scan scan, bool nfc)
{
    const struct normalizers *normalizers = &tokenizer->normalizers;
    const struct pretokenizers *pretokenizers = &tokenizer->pretokenizers;
    bool normal = nfc ? normalizers->count == 1 && normalizers->steps[0].kind == NORMALIZE_FORM &&
                            normalizers->steps[0].form == TT_NFC
                      : normalizers->count == 0;
    return normal && pretokenizers->ends_in_byte_level && pretokenizers->count == 1 &&
           pretokenizers->steps[0].kind == PRETOKENIZE_SCAN && pretokenizers->steps[0].scan == scan;
}

/* True where a blank is put before a text. */
static bool puts_blank(const struct tt_tokenizer *tokenizer)
{
    const struct normalizers *normalizers = &tokenizer->normalizers;
    const struct pretokenizers *pretokenizers = &tokenizer->pretokenizers;
    for (size_t i = 0; i < normalizers->count; i++)
        if (normalizers->steps[i].kind == NORMALIZE_PREPEND) return true;
    for (size_t i = 0; i < pretokenizers->count; i++) {
        const struct pretokenizer *step = &pretokenizers->steps[i];
        if (step->kind == PRETOKENIZE_METASPACE && step->prepend != PREPEND_NEVER) return true;
    }
    return false;
}

static bool differ(const struct tt_tokenizer *tokenizer, enum steps steps)
{
    bool bytes = tokenizer->pretokenizers.ends_in_byte_level;
    switch (steps) {
    case STEPS_LLAMA: /* its Metaspace and an equal Prepend differ in texts that begin with a blank alone */
        return bytes || !puts_blank(tokenizer);
    case STEPS_GEMMA:
        return bytes || puts_blank(tokenizer);
    case STEPS_GPT2:
        return !has_steps(tokenizer, TT_SCAN_GPT2, false);
    case STEPS_QWEN2:
        return !has_steps(tokenizer, TT_SCAN_QWEN2, true);
    }
    return false;
}

void tokenizer_check_class(const struct tt_json *config, const struct tt_json *model,
                           const struct tt_tokenizer *tokenizer)
{
    const char *model_type = tt_json_text(tt_json_get(model->root, "model_type"));
    const char *name = tt_json_text(tt_json_get(config->root, "tokenizer_class"));
    const char *by = "tokenizer_class",
               *hint = "; tokenizer_class PreTrainedTokenizerFast makes it use those steps";
    if (tt_json_get(config->root, "auto_map") != NULL) return; /* code of the model's own */
    if (name == NULL) name = tt_json_text(tt_json_get(model->root, "tokenizer_class"));
    for (size_t i = 0; model_type != NULL && i < sizeof registered / sizeof registered[0]; i++) {
        if (strcmp(registered[i].model_type, model_type) != 0 || (name != NULL && !registered[i].always))
            continue;
        name = registered[i].class_name;
        by = "model_type";
        if (registered[i].always) hint = "";
    }
    for (size_t i = 0; name != NULL && i < sizeof classes / sizeof classes[0]; i++) {
        if (!is_class(name, classes[i].class_name) || !differ(tokenizer, classes[i].steps)) continue;
        tt_warn("by its %s, transformers 5 loads this tokenizer as %s, with other steps than those of "
                "tokenizer.json: ids "
                "may differ there from those of this run, which follows tokenizer.json%s",
                by, classes[i].class_name, hint);
    }
}
