#include "http/connections.h"

#include <string.h>

#include "base/alloc.h"

tt_status tt_http_lines_init(size_t most, struct tt_http_lines *lines)
{
    *lines = (struct tt_http_lines){.most = most, .crowd = tt_calloc(most, sizeof *lines->crowd)};
    lines->ring.previous = lines->ring.next = &lines->ring;
    return lines->crowd != NULL ? TT_OK : TT_ERR_MEMORY;
}

void tt_http_lines_deinit(struct tt_http_lines *lines)
{
    tt_free(lines->crowd);
    lines->crowd = NULL;
}

/* Lines of this machine, or of others; ending ones do not count. */
static size_t count_lines(const struct tt_http_lines *lines, bool local)
{
    size_t count = 0;
    for (const struct tt_http_line *line = lines->ring.next; line != &lines->ring; line = line->next)
        count += !line->ends && line->local == local;
    return count;
}

/* `others_only`: those of other machines. */
static struct tt_http_line *choose(struct tt_http_lines *lines, bool others_only)
{
    size_t count = 0;
    for (struct tt_http_line *line = lines->ring.next; line != &lines->ring && count < lines->most;
         line = line->next) {
        if (line->ends || line->stage == TT_HTTP_ANSWERED || (others_only && line->local)) continue;
        struct tt_stranger *stranger = &lines->crowd[count++];
        *stranger = (struct tt_stranger){.stage = (int)line->stage, .since = line->since, .connection = line};
        memcpy(stranger->origin, line->origin, sizeof stranger->origin);
    }
    return tt_crowd_choose(lines->crowd, count);
}

struct tt_http_line *tt_http_lines_add(struct tt_http_lines *lines, struct tt_http_line *line)
{
    size_t others = count_lines(lines, false), all = others + count_lines(lines, true);
    size_t kept = TT_HTTP_KEPT_FOR_LOOPBACK < lines->most ? TT_HTTP_KEPT_FOR_LOOPBACK : lines->most - 1;
    struct tt_http_line *victim = NULL;
    bool others_full = !line->local && others >= lines->most - kept;
    if (others_full || all >= lines->most) {
        victim = choose(lines, others_full);
        if (victim == NULL) victim = line;
        victim->ends = true;
    }
    line->previous = lines->ring.previous;
    line->next = &lines->ring;
    line->previous->next = line->next->previous = line;
    return victim;
}

void tt_http_lines_remove(struct tt_http_line *line)
{
    if (line->next == NULL) return;
    line->previous->next = line->next;
    line->next->previous = line->previous;
}
