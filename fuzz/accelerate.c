/* accelerate's configuration file. */
/* links: tt_job */
#include <stdint.h>
#include <stdlib.h>

#include "folder.h"
#include "job/accelerate.h"
#include "job/settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tt_train_config config = {0};
    struct tt_settings *settings = NULL;
    if (tt_settings_create(tt_train_sections, tt_train_section_count, &config, sizeof config, &settings) !=
        TT_OK)
        abort();
    if (tt_accelerate_read(fuzz_write("accelerate.yaml", data, size), settings) == TT_OK) {
        struct tt_str text = {0};
        if (tt_settings_write_yaml(settings, &text) != TT_OK) abort();
        tt_str_deinit(&text);
    }
    tt_settings_destroy(settings);
    return 0;
}
