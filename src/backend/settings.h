/* Rows of the settings that backend/ owns, over struct tt_device_tuning. */
#ifndef TT_BACKEND_SETTINGS_H
#define TT_BACKEND_SETTINGS_H

#include "config/settings.h"

extern const struct tt_setting tt_tuning_settings[];

#endif
