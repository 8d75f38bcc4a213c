/* The dashboard's page: one file of HTML that loads nothing. */
#ifndef TT_MONITOR_PAGE_H
#define TT_MONITOR_PAGE_H

#include "base/str.h"

/* Appends the page. `data`: what tt_board_write wrote, for a page that shows it wherever it is opened; empty: a page
 * that asks its server for it. */
TT_MUST_USE tt_status tt_page_write(const char *data, struct tt_str *html);

#endif
