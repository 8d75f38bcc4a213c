#include "io/labels.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct tt_json_value *value_of(const struct tt_labels *labels, int64_t label)
{
    char key[24];
    const struct tt_json_value *root = labels->json.root;
    if (tt_json_is_list(root)) return tt_json_at(root, (size_t)label);
    (void)snprintf(key, sizeof key, "%" PRId64, label);
    return tt_json_get(root, key);
}

static tt_status check_names(const struct tt_labels *labels, const char *what)
{
    for (int64_t i = 0; i < labels->count; i++) {
        const char *name = tt_labels_name(labels, i);
        if (name == NULL)
            return tt_fail(TT_ERR_USAGE, "%s has no name for label %" PRId64 " of %" PRId64, what, i,
                           labels->count);
        if (tt_labels_find(labels, name) != i)
            return tt_fail(TT_ERR_USAGE, "%s names '%.60s' twice", what, name);
    }
    return TT_OK;
}

tt_status tt_labels_parse(const char *text, const char *what, struct tt_labels *labels)
{
    tt_status status = TT_OK;
    *labels = (struct tt_labels){0};
    TT_GO(tt_json_parse(text, strlen(text), what, &labels->json));
    const struct tt_json_value *root = labels->json.root;
    labels->count = (int64_t)tt_json_count(root);
    bool takes = tt_json_is_list(root) || tt_json_is_object(root);
    if (!takes || labels->count < 2 || labels->count > TT_LABELS_MAX) {
        status = tt_fail(TT_ERR_USAGE, "%s is no list of two labels or more", what);
        tt_hint("name them in the order of their numbers: [negative, positive]");
        goto out;
    }
    TT_GO(check_names(labels, what));
out:
    if (status != TT_OK) tt_labels_deinit(labels);
    return status;
}

void tt_labels_deinit(struct tt_labels *labels)
{
    tt_json_deinit(&labels->json);
    *labels = (struct tt_labels){0};
}

const char *tt_labels_name(const struct tt_labels *labels, int64_t label)
{
    return tt_json_text(value_of(labels, label));
}

int64_t tt_labels_find(const struct tt_labels *labels, const char *name)
{
    for (int64_t i = 0; i < labels->count; i++) {
        const char *own = tt_labels_name(labels, i);
        if (own != NULL && strcmp(own, name) == 0) return i;
    }
    return -1;
}
