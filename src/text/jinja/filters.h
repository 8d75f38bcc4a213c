/* Private header of the files of filters. */
#ifndef TT_TEXT_JINJA_FILTERS_H
#define TT_TEXT_JINJA_FILTERS_H

#include "text/jinja/render.h"

enum { JINJA_FILTER_PARAMETERS = 5 };

struct jinja_filter_call {
    struct jinja_render *render;
    const char *name;
    const struct jinja_value *value;
    struct jinja_value arguments[JINJA_FILTER_PARAMETERS]; /* JINJA_MISSING where not given */
    struct jinja_call *call; /* as it is, for filters that bind their arguments on their own */
};

typedef tt_status jinja_filter(struct jinja_filter_call *filter, struct jinja_value *out);

static inline bool jinja_given(const struct jinja_filter_call *filter, int place)
{
    return filter->arguments[place].type != JINJA_MISSING;
}
/* Truth of an argument; `absent` where it is not given. */
static inline bool jinja_flag(const struct jinja_filter_call *filter, int place, bool absent)
{
    return jinja_given(filter, place) ? jinja_truth(&filter->arguments[place]) : absent;
}
/* An argument that must be an integer; `absent` where it is not given. */
tt_status jinja_int_argument(const struct jinja_filter_call *filter, int place, int64_t absent, int64_t *out);

/* filters_text.c */
jinja_filter jinja_filter_string, jinja_filter_safe, jinja_filter_escape, jinja_filter_trim,
    jinja_filter_case, jinja_filter_title, jinja_filter_replace, jinja_filter_indent, jinja_filter_center,
    jinja_filter_format, jinja_filter_tojson, jinja_filter_join;
/* filters_list.c */
jinja_filter jinja_filter_items, jinja_filter_list, jinja_filter_first, jinja_filter_last,
    jinja_filter_reverse, jinja_filter_map, jinja_filter_select, jinja_filter_unique, jinja_filter_sort,
    jinja_filter_dictsort, jinja_filter_extreme, jinja_filter_sum;

/* The member "a.b.0" of an item, as the filters' argument `attribute` names it; `path` MISSING or None: the item. */
tt_status jinja_item_path(struct jinja_render *render, const struct jinja_value *item,
                          const struct jinja_value *path, struct jinja_value *out);

#endif
