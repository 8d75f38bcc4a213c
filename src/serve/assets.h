/* The files of page/, terminated, as cmake/embed.cmake makes them. */
#ifndef TT_SERVE_ASSETS_H
#define TT_SERVE_ASSETS_H

extern const char tt_chat_html[], tt_chat_style[], tt_chat_script[];

#endif
