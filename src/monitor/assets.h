/* The files of page/, terminated, as cmake/embed.cmake makes them. */
#ifndef TT_MONITOR_ASSETS_H
#define TT_MONITOR_ASSETS_H

extern const char tt_page_html[], tt_page_style[], tt_page_script[];

#endif
