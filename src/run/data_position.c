#include "run/data_position.h"

#include <stddef.h>

#define MEMBER(name, member)                                                                                 \
    {                                                                                                        \
        name, offsetof(struct tt_flow_state, member)                                                         \
    }

static const struct {
    const char *name;
    size_t offset;
} members[] = {
    MEMBER("epoch", place.epoch),    MEMBER("taken", place.taken),
    MEMBER("count", place.count),    MEMBER("oldest", place.oldest),
    MEMBER("file", place.from.file), MEMBER("offset", place.from.offset),
    MEMBER("line", place.from.line), MEMBER("row", place.from.row),
    MEMBER("rows", place.from.rows), MEMBER("source_rows", place.from.source_rows),
    MEMBER("units", units),
};

enum { MEMBERS = sizeof members / sizeof *members };

struct tt_json_value *tt_data_position_json(const struct tt_flow_state *state)
{
    struct tt_json_value *object = tt_json_new_object();
    for (int i = 0; i < MEMBERS; i++) {
        const int64_t *value = (const int64_t *)(const void *)((const char *)state + members[i].offset);
        tt_json_set(object, members[i].name, tt_json_new_integer(*value));
    }
    return object;
}

tt_status tt_data_position_read(const struct tt_json *json, const struct tt_json_value *object,
                                struct tt_flow_state *state)
{
    for (int i = 0; i < MEMBERS; i++) {
        int64_t *value = (int64_t *)(void *)((char *)state + members[i].offset);
        TT_TRY(tt_json_int(json, object, members[i].name, value));
        if (*value < 0)
            return tt_fail(TT_ERR_DATA, "%s: '%s' of the position in the data is %lld", json->origin,
                           members[i].name, (long long)*value);
    }
    return TT_OK;
}
