/* Pictures of evaluations: the files that a run's pictures.jsonl lists, in its folder pictures. */
#ifndef TT_MONITOR_PICTURES_H
#define TT_MONITOR_PICTURES_H

#include <stdbool.h>
#include "base/json.h"

/* Whether a name is "STEP-IMAGE.jpg" in numbers, as a training writes it: no other name is opened, so none leads out of
 * the folder. */
bool tt_picture_is_name(const char *name);
/* Appends the bytes of a picture of the run in `folder`; fails if there is none of this name. */
TT_MUST_USE tt_status tt_picture_read(const char *folder, const char *name, struct tt_str *bytes);
/* Appends a list with the rows of pictures.jsonl: all of them for a page that asks its server for the files;
 * `embeds`: those of the last step, each with its file as a member "data" in base64 (RFC 4648, section 4). Rows without
 * a name of a picture are left out. */
TT_MUST_USE tt_status tt_pictures_write(const char *folder, const struct tt_json_value *rows, bool embeds,
                                        struct tt_str *text);

#endif
