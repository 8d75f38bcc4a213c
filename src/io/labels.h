/* The names of a classifier's labels: a JSON list of names, or transformers' id2label, a mapping from "0", "1", ... to
 * names. */
#ifndef TT_IO_LABELS_H
#define TT_IO_LABELS_H

#include "base/json.h"

enum { TT_LABELS_MAX = 1 << 20 };

struct tt_labels {
    struct tt_json json; /* owned */
    int64_t count;
};

/* TT_ERR_USAGE, with the name of the setting `what`: no such list or mapping, one label alone, a name twice. A zeroed
 * struct is empty, as is the struct after an error. */
TT_MUST_USE tt_status tt_labels_parse(const char *text, const char *what, struct tt_labels *labels);
void tt_labels_deinit(struct tt_labels *labels);
const char *tt_labels_name(const struct tt_labels *labels, int64_t label);
/* The label of that name; -1: none has it. */
int64_t tt_labels_find(const struct tt_labels *labels, const char *name);

#endif
