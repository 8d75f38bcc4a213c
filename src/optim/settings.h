/* Table rows of the settings of optim/, over struct tt_optim_config. */
#ifndef TT_OPTIM_SETTINGS_H
#define TT_OPTIM_SETTINGS_H

#include "config/settings.h"

extern const struct tt_setting tt_optim_settings[];

#endif
