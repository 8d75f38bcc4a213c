#include "monitor/page.h"

#include <string.h>

#include "monitor/assets.h"

tt_status tt_page_fill(const char *html, const struct tt_page_part *parts, size_t count, struct tt_str *out)
{
    for (size_t i = 0; i < count; i++) {
        const char *mark = strstr(html, parts[i].mark);
        if (mark == NULL) return tt_fail(TT_ERR_INTERNAL, "the page has no %s", parts[i].mark);
        TT_TRY(tt_str_append(out, html, (size_t)(mark - html)));
        TT_TRY(tt_str_append_text(out, parts[i].text));
        html = mark + strlen(parts[i].mark);
    }
    return tt_str_append_text(out, html);
}

tt_status tt_page_write(const char *data, struct tt_str *html)
{
    const struct tt_page_part parts[] = {
        {"@style@", tt_page_style}, {"@data@", data}, {"@script@", tt_page_script}};
    return tt_page_fill(tt_page_html, parts, sizeof parts / sizeof *parts, html);
}
