#include "config/flags.h"

#include "base/json.h"
#include "config/describe.h"
#include "config/store.h"

static tt_status write_flag(const struct tt_setting_entry *entry, struct tt_str *text)
{
    struct tt_str flag = {0};
    struct tt_json_value *quoted = NULL;
    tt_status status = TT_OK;
    TT_GO(tt_str_printf(&flag, "--%s=%s", entry->row->name, entry->text != NULL ? entry->text : "null"));
    if (text->bytes > 0) TT_GO(tt_str_append_text(text, ", "));
    quoted = tt_json_pack("s", flag.data);
    TT_GO(tt_json_write(quoted, 0, false, text));
out:
    tt_json_release(quoted);
    tt_str_deinit(&flag);
    return status;
}

tt_status tt_settings_write_flags(const struct tt_settings *settings, struct tt_str *text)
{
    size_t index = 0;
    for (size_t i = 0; i < settings->section_count; i++) {
        for (const struct tt_setting *row = settings->sections[i].rows; row->name != NULL; row++, index++) {
            const struct tt_setting_entry *entry = &settings->entries[index];
            bool counts =
                tt_describe_group(row) != TT_SETTINGS_UNNEEDED && tt_describe_group(row) != TT_SETTINGS_ONLY;
            if (row->transient || entry->repeats || !counts || entry->origin == NULL ||
                tt_settings_has_default(settings, row->name))
                continue;
            TT_TRY(write_flag(entry, text));
        }
    }
    return TT_OK;
}
