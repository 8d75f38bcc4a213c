/* Settings as the flags that give them. */
#ifndef TT_CONFIG_FLAGS_H
#define TT_CONFIG_FLAGS_H

#include "config/settings.h"

/* Settings that a source has set to another value than the default, as items of a YAML list: "--name=value", ... */
TT_MUST_USE tt_status tt_settings_write_flags(const struct tt_settings *settings, struct tt_str *text);

#endif
