#include "monitor/page.h"

#include <string.h>

#include "monitor/assets.h"

tt_status tt_page_write(const char *data, struct tt_str *html)
{
    const struct {
        const char *mark, *text;
    } parts[] = {{"@style@", tt_page_style}, {"@data@", data}, {"@script@", tt_page_script}};
    const char *at = tt_page_html;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *mark = strstr(at, parts[i].mark);
        if (mark == NULL) return tt_fail(TT_ERR_INTERNAL, "the page has no %s", parts[i].mark);
        TT_TRY(tt_str_append(html, at, (size_t)(mark - at)));
        TT_TRY(tt_str_append_text(html, parts[i].text));
        at = mark + strlen(parts[i].mark);
    }
    return tt_str_append_text(html, at);
}
