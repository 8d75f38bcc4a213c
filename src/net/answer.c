/* Answers: their headers by name. */
#include <string.h>

#include "base/ascii.h"
#include "net/client.h"

void tt_net_answer_deinit(struct tt_net_answer *answer)
{
    tt_str_deinit(&answer->body);
    tt_str_deinit(&answer->headers);
    tt_str_deinit(&answer->url);
    tt_str_deinit(&answer->first);
    *answer = (struct tt_net_answer){0};
}

bool tt_net_header(const struct tt_str *lines, const char *name, char *value, size_t value_bytes)
{
    const size_t name_bytes = strlen(name);
    for (const char *line = tt_str_text(lines), *end; *line != '\0'; line = end + (*end == '\n')) {
        end = line + strcspn(line, "\n");
        if (!tt_ascii_same_start(line, name, name_bytes) || line[name_bytes] != ':') continue;
        const char *first = line + name_bytes + 1;
        while (first < end && tt_ascii_is_space(*first)) first++;
        const char *last = end;
        while (last > first && tt_ascii_is_space(last[-1])) last--;
        size_t bytes = (size_t)(last - first);
        if (bytes >= value_bytes) return false;
        memcpy(value, first, bytes);
        value[bytes] = '\0';
        return true;
    }
    return false;
}
