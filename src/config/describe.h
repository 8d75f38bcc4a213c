/* Parts that the texts about settings share: help, reference, manual pages. */
#ifndef TT_CONFIG_DESCRIBE_H
#define TT_CONFIG_DESCRIBE_H

#include "config/settings.h"

enum tt_setting_group {
    TT_SETTINGS_SERVED,
    TT_SETTINGS_ONLY,     /* accepted at the values that turn a feature off */
    TT_SETTINGS_UNNEEDED, /* accepted without effect */
};

enum tt_setting_group tt_describe_group(const struct tt_setting *row);
/* Sections of one title that follow each other are shown as one: whether this one continues its predecessor. */
bool tt_describe_continues(const struct tt_setting_section *sections, size_t index);
/* The form of a row's value: "auto|cpu|cuda", "N". */
TT_MUST_USE tt_status tt_describe_value(struct tt_str *text, const struct tt_setting *row);
/* Help with default, range and old spellings, as one paragraph. `alternative`: from tt_describe_alternative. */
TT_MUST_USE tt_status tt_describe_row(struct tt_str *text, const struct tt_setting *row, bool with_default,
                                      const char *alternative);
/* The setting that can replace a required one in this command, or NULL. */
const char *tt_describe_alternative(const struct tt_setting *row, const struct tt_setting_section *sections,
                                    size_t section_count);

#endif
