/* Table rows of the settings of model/, over struct tt_lora_config. */
#ifndef TT_MODEL_SETTINGS_H
#define TT_MODEL_SETTINGS_H

#include "config/settings.h"

extern const struct tt_setting tt_lora_settings[];

#endif
