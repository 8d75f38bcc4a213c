/* The dashboard's page: one file of HTML that loads nothing. */
#ifndef TT_MONITOR_PAGE_H
#define TT_MONITOR_PAGE_H

#include "base/str.h"

/* A part of a page, in the place of a mark. */
struct tt_page_part {
    const char *mark, *text;
};

/* Appends `html` with its parts, whose marks it has in their order. */
TT_MUST_USE tt_status tt_page_fill(const char *html, const struct tt_page_part *parts, size_t count,
                                   struct tt_str *out);

/* Appends the page. `data`: what tt_board_write wrote, for a page that shows it wherever it is opened; empty: a page
 * that asks its server for it. */
TT_MUST_USE tt_status tt_page_write(const char *data, struct tt_str *html);

#endif
