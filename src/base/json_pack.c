/* tt_json_pack of base/json.h. */
#include <stdarg.h>
#include <string.h>

#include "base/json_value.h"

/* A pack continues after a failure only to take over the remaining values. */
struct pack {
    const char *at;
    va_list arguments;
    bool failed;
};

static char next(struct pack *pack)
{
    while (*pack->at != '\0' && strchr(" ,:", *pack->at) != NULL) pack->at++;
    return *pack->at != '\0' ? *pack->at++ : '\0';
}

static struct tt_json_value *pack_value(struct pack *pack, char letter);

static struct tt_json_value *pack_members(struct pack *pack, bool object)
{
    struct tt_json_value *container = object ? tt_json_new_object() : tt_json_new_list();
    for (char letter; (letter = next(pack)) != (object ? '}' : ']');) {
        const char *key = object ? va_arg(pack->arguments, const char *) : NULL;
        if (letter == '\0') {
            (void)tt_fail(TT_ERR_INTERNAL, "a format of tt_json_pack does not end");
            pack->failed = true;
            break;
        }
        struct tt_json_value *value = pack_value(pack, object ? next(pack) : letter);
        if (container == NULL) tt_json_release(value);
        if (container == NULL ||
            (object ? tt_json_set(container, key, value) : tt_json_append(container, value)) != 0)
            pack->failed = true;
    }
    return container;
}

static struct tt_json_value *pack_value(struct pack *pack, char letter)
{
    switch (letter) {
    case 's':
        return tt_json_new_string(va_arg(pack->arguments, const char *));
    case 't':
        return tt_json_new_text(va_arg(pack->arguments, struct tt_span));
    case 'i':
        return tt_json_new_integer(va_arg(pack->arguments, int));
    case 'I':
        return tt_json_new_integer(va_arg(pack->arguments, int64_t));
    case 'f':
        return tt_json_new_real(va_arg(pack->arguments, double));
    case 'b':
        return tt_json_new_bool(va_arg(pack->arguments, int) != 0);
    case 'n':
        return tt_json_new_null();
    case 'o':
        return va_arg(pack->arguments, struct tt_json_value *);
    case 'O':
        return tt_json_copy(va_arg(pack->arguments, const struct tt_json_value *));
    case '{':
    case '[':
        return pack_members(pack, letter == '{');
    }
    (void)tt_fail(TT_ERR_INTERNAL, "a format of tt_json_pack has '%c'", letter);
    pack->failed = true;
    return NULL;
}

struct tt_json_value *tt_json_pack(const char *format, ...)
{
    struct pack pack = {.at = format};
    va_start(pack.arguments, format);
    struct tt_json_value *value = pack_value(&pack, next(&pack));
    va_end(pack.arguments);
    if (!pack.failed) return value;
    tt_json_release(value);
    return NULL;
}
