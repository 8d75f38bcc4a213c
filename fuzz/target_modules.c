/* target_modules, and the keys of rank_pattern: untrusted lists of names, or a regular expression. The first
 * byte chooses; matching ends within its step limit. */
/* links: tt_model */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/pattern.h"

static const char *const paths[] = {"lm_head", "model.layers.0.self_attn.q_proj",
                                    "model.layers.11.mlp.gate_proj", "model.norm"};
enum { PATH_COUNT = sizeof paths / sizeof paths[0] };

static void match_names(const char *text, enum tt_name_spelling spelling)
{
    struct tt_name_pattern pattern = {0};
    if (tt_name_pattern_init(&pattern, "target_modules", text, spelling) == TT_OK) {
        for (size_t i = 0; i < PATH_COUNT; i++) {
            bool matched, exact;
            (void)!tt_name_pattern_match(&pattern, paths[i], &matched, &exact);
        }
        for (size_t i = 0; i < pattern.count; i++)
            if (tt_name_pattern_entry(&pattern, i) == NULL) abort();
    }
    tt_name_pattern_deinit(&pattern);
}

static void match_values(const char *text)
{
    struct tt_value_pattern pattern = {0};
    if (tt_value_pattern_init(&pattern, "rank_pattern", text, true, 1, 1024) == TT_OK) {
        for (size_t i = 0; i < PATH_COUNT; i++) {
            double value = 0;
            bool ambiguous;
            if (tt_value_pattern_find(&pattern, paths[i], &value, &ambiguous) != TT_OK) continue;
            if (value != 0 && !(value >= 1 && value <= 1024)) abort();
        }
    }
    tt_value_pattern_deinit(&pattern);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    char *text = malloc(size);
    if (text == NULL) abort();
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    if (data[0] % 2 == 0)
        match_names(text, (enum tt_name_spelling)(data[0] / 2 % 3));
    else
        match_values(text);
    free(text);
    return 0;
}
