/* Configuration text: the settings of a training run, and transformers' fsdp_config. What is accepted must
 * come back the same from the resolved file. */
/* links: tt_job */
/* words: src/job/accelerate.c src/job/settings.c src/data/settings.c src/config/value.c */
#include <stdint.h>

#include "settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_settings settings;
    fuzz_settings_init(&settings);
    if (tt_settings_parse_yaml(&settings.store, (const char *)data, bytes, "fuzz") == TT_OK) {
        if (settings.config.fsdp_config == NULL || settings.config.fsdp_config[0] == '{')
            (void)!tt_train_resolve(&settings.store, &settings.config);
        fuzz_settings_check_round_trip(&settings);
    }
    fuzz_settings_deinit(&settings);
    return 0;
}
