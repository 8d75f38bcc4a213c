/* Table rows of the settings of data/, over struct tt_data_config. */
#ifndef TT_DATA_SETTINGS_H
#define TT_DATA_SETTINGS_H

#include "config/settings.h"

extern const struct tt_setting tt_data_settings[];

#endif
