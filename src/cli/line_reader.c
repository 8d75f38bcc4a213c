#include "cli/line_reader.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

/* A signal may arrive just before the wait begins, so the wait ends by itself from time to time. */
enum { LINE_BYTES_MAX = 1 << 20, WAIT_MS = 100 };

/* Moves the first pending line into `line`. *taken is false where none is complete; at the end of the input the last
 * one is, also without a line feed. */
static tt_status take_line(struct tt_line_reader *reader, struct tt_str *line, bool *taken)
{
    struct tt_str *pending = &reader->pending;
    const char *end = pending->bytes > 0 ? memchr(pending->data, '\n', pending->bytes) : NULL;
    size_t bytes = end != NULL ? (size_t)(end - pending->data) : pending->bytes;
    *taken = end != NULL || (reader->ended && bytes > 0);
    if (bytes > LINE_BYTES_MAX)
        return tt_fail(TT_ERR_DATA, "a line of standard input has more than %d bytes", LINE_BYTES_MAX);
    if (!*taken) return TT_OK;
    size_t used = end != NULL ? bytes + 1 : bytes;
    tt_str_clear(line);
    TT_TRY(tt_str_append(line, pending->data, bytes));
    memmove(pending->data, pending->data + used, pending->bytes - used);
    pending->bytes -= used;
    if (line->bytes > 0 && line->data[line->bytes - 1] == '\r') line->data[--line->bytes] = 0;
    return TT_OK;
}

static tt_status read_more(struct tt_line_reader *reader)
{
    char buffer[4096];
    struct pollfd wait = {.fd = reader->file, .events = POLLIN};
    if (poll(&wait, 1, WAIT_MS) <= 0) return TT_OK;
    ssize_t bytes = read(reader->file, buffer, sizeof buffer);
    if (bytes < 0 && (errno == EINTR || errno == EAGAIN)) return TT_OK;
    if (bytes < 0) return tt_fail_errno(errno, "cannot read standard input");
    reader->ended = bytes == 0;
    return tt_str_append(&reader->pending, buffer, (size_t)bytes);
}

tt_status tt_line_read(struct tt_line_reader *reader, int interrupts, struct tt_str *line,
                       enum tt_line_end *end)
{
    for (;;) {
        bool taken;
        TT_TRY(take_line(reader, line, &taken));
        *end = TT_LINE_READ;
        if (taken) return TT_OK;
        *end = TT_LINE_END_OF_INPUT;
        if (reader->ended) return TT_OK;
        *end = TT_LINE_STOPPED;
        if (atomic_load(&reader->cancel->requests) > 0) return TT_OK;
        *end = TT_LINE_INTERRUPTED;
        if (atomic_load(&reader->cancel->interrupts) != interrupts) return TT_OK;
        TT_TRY(read_more(reader));
    }
}

void tt_line_reader_deinit(struct tt_line_reader *reader)
{
    tt_str_deinit(&reader->pending);
}
