/* Configuration text: the settings of a training run, and transformers' fsdp_config. What is accepted must
 * come back the same from the resolved file. */
/* links: tt_job */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config/store.h"
#include "job/accelerate.h"
#include "job/settings.h"

static bool same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* Unneeded keys are not written; everything else has to agree. */
static void check_round_trip(const struct tt_settings *settings)
{
    struct tt_train_config config = {0};
    struct tt_settings *again = NULL;
    struct tt_str text = {0};
    if (tt_settings_write_yaml(settings, &text) != TT_OK ||
        tt_settings_create(tt_train_sections, tt_train_section_count, &config, sizeof config, &again) !=
            TT_OK ||
        tt_settings_parse_yaml(again, tt_str_text(&text), text.bytes, "resolved") != TT_OK)
        abort();
    for (size_t i = 0; i < settings->count; i++)
        if (settings->entries[i].row->unneeded == NULL &&
            !same_text(settings->entries[i].text, again->entries[i].text))
            abort();
    tt_settings_destroy(again);
    tt_str_deinit(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tt_train_config config = {0};
    struct tt_settings *settings = NULL;
    if (tt_settings_create(tt_train_sections, tt_train_section_count, &config, sizeof config, &settings) !=
        TT_OK)
        abort();
    if (tt_settings_parse_yaml(settings, (const char *)data, bytes, "fuzz") == TT_OK) {
        if (config.fsdp_config == NULL || config.fsdp_config[0] == '{')
            (void)!tt_train_settings_resolve(settings, &config);
        check_round_trip(settings);
    }
    tt_settings_destroy(settings);
    return 0;
}
