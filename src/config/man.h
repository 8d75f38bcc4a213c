/* Manual pages in roff, the language of man(7). */
#ifndef TT_CONFIG_MAN_H
#define TT_CONFIG_MAN_H

#include "config/settings.h"

/* Appends `words` as plain text: nothing in it is a request or an escape of roff. A line break begins a new line of the
 * source, which fills the same paragraph. */
TT_MUST_USE tt_status tt_man_append(struct tt_str *roff, const char *words);
/* The settings of a command: one subsection for each title, one tagged paragraph for each row, and the names of those
 * that are accepted without effect. The section's heading is the caller's. */
TT_MUST_USE tt_status tt_man_settings(const struct tt_setting_section *sections, size_t section_count,
                                      struct tt_str *roff);

#endif
