/* Names of pre-tokenizers in GGUF (gguf_impl.h). */
#include <string.h>

#include "convert/gguf_impl.h"

enum { SPLITS_MAX = 3 };

#define CONTRACTIONS "'s|'t|'re|'ve|'m|'ll|'d"
/* Words of any letters with a sign before them; and by upper and lower case, with their marks. */
#define WORDS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(end)                                                                                           \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" end
#define BLANKS "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define OTHERS " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" BLANKS
#define OTHERS_SLASH " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS
/* Some files have the characters themselves in their classes. */
#define RAW_BLANKS "\\s*[\r\n]+|\\s+(?!\\S)|\\s+"

static const struct {
    const char *expressions[SPLITS_MAX]; /* of Split steps before a ByteLevel that does not split */
    const char *name;
    bool ignore_merges;
} pre_tokenizers[] = {
    {{CONTRACTIONS "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"}, "gpt-2", false},
    {{"(?i:" CONTRACTIONS ")|" WORDS "|\\p{N}{1,3}|" OTHERS}, "llama-bpe", true},
    {{"(?i:" CONTRACTIONS ")|" WORDS "|\\p{N}{1,3}|" OTHERS}, "dbrx", false},
    {{"(?i:" CONTRACTIONS ")|" WORDS "|\\p{N}|" OTHERS}, "qwen2", false},
    {{"(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
      "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" BLANKS},
     "qwen35",
     false},
    {{CASED("") "|\\p{N}|" OTHERS_SLASH}, "tekken", true},
    {{CASED("(?i:" CONTRACTIONS ")?") "|\\p{N}{1,3}|" OTHERS_SLASH}, "gpt-4o", false},
    {{"(?i:" CONTRACTIONS ")|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|" RAW_BLANKS},
     "seed-coder",
     false},
    {{"\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
      "?[\\p{P}\\p{S}]+[\r\n]*|" RAW_BLANKS},
     "deepseek-v3",
     false},
};
enum { PRE_TOKENIZERS = sizeof pre_tokenizers / sizeof *pre_tokenizers };

bool gguf_is_step(const struct tt_json_value *step, const char *type)
{
    const char *own = tt_json_text(tt_json_get(step, "type"));
    return own != NULL && strcmp(own, type) == 0;
}

static bool is_split(const struct tt_json_value *step, const char *expression)
{
    const char *own = tt_json_text(tt_json_get(tt_json_get(step, "pattern"), "Regex"));
    const char *behavior = tt_json_text(tt_json_get(step, "behavior"));
    return gguf_is_step(step, "Split") && expression != NULL && own != NULL && strcmp(own, expression) == 0 &&
           behavior != NULL && strcmp(behavior, "Isolated") == 0 &&
           !tt_json_is_true(tt_json_get(step, "invert"));
}

static bool are_splits(const struct tt_json_value *const *steps, size_t count,
                       const char *const expressions[SPLITS_MAX])
{
    for (size_t i = 0; i < SPLITS_MAX; i++)
        if (i < count ? !is_split(steps[i], expressions[i]) : expressions[i] != NULL) return false;
    return count <= SPLITS_MAX;
}

const char *gguf_pre_name(const struct tt_json_value *const *steps, size_t count, bool splits_text,
                          bool ignore_merges, bool *other_merges)
{
    const char *name = NULL;
    *other_merges = false;
    if (splits_text) {
        bool digits = count == 2 && gguf_is_step(steps[0], "Digits") &&
                      tt_json_is_true(tt_json_get(steps[0], "individual_digits"));
        const char *only = count == 1 ? "gpt-2" : digits ? "smollm" : NULL;
        *other_merges = only != NULL && ignore_merges;
        return ignore_merges ? NULL : only;
    }
    for (size_t i = 0; i < PRE_TOKENIZERS && name == NULL; i++) {
        if (!are_splits(steps, count - 1, pre_tokenizers[i].expressions)) continue;
        if (pre_tokenizers[i].ignore_merges == ignore_merges) name = pre_tokenizers[i].name;
        *other_merges = name == NULL;
    }
    return name;
}
