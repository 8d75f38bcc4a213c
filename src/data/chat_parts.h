/* Contents that are lists of parts: [{"type": "text", "text": ...}]. Of a part, members that are null are left out, as
 * those that columns of tables add. */
#ifndef TT_DATA_CHAT_PARTS_H
#define TT_DATA_CHAT_PARTS_H

#include "base/json.h"

/* Copies a content; *out is owned. TT_ERR_UNSUPPORTED for a list that has a part with an image, a sound or a video;
 * `where` names the message in errors. */
TT_MUST_USE tt_status tt_chat_parts_copy(const struct tt_json_value *content, const char *where,
                                         struct tt_json_value **out);
/* Whether a content is a list of parts that are texts, and has one. */
bool tt_chat_parts_are_text(const struct tt_json_value *content);
/* The texts of such a content, one behind the other; *out is owned. */
TT_MUST_USE tt_status tt_chat_parts_join(const struct tt_json_value *content, struct tt_json_value **out);

#endif
