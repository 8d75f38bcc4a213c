#include "cli/paste.h"

#include <string.h>

static const char begin_mark[] = "\033[200~", end_mark[] = "\033[201~";
enum { MARK_BYTES = sizeof begin_mark - 1 };

tt_status tt_paste_add(struct tt_paste *paste, const struct tt_str *line, struct tt_str *message)
{
    const char *text = tt_str_text(line);
    if (paste->open) TT_TRY(tt_str_append_char(message, '\n'));
    for (size_t at = 0; at < line->bytes;) {
        const char *mark = memchr(text + at, '\033', line->bytes - at);
        size_t left = mark != NULL ? line->bytes - (size_t)(mark - text) : 0;
        bool begins = left >= MARK_BYTES && memcmp(mark, begin_mark, MARK_BYTES) == 0;
        bool ends = left >= MARK_BYTES && memcmp(mark, end_mark, MARK_BYTES) == 0;
        size_t next = mark != NULL ? (size_t)(mark - text) : line->bytes;
        if (mark != NULL && !begins && !ends) next++; /* another escape is text */
        if (next > at) TT_TRY(tt_str_append(message, text + at, next - at));
        if (begins && message->bytes == 0) paste->first = true;
        if (begins || ends) paste->open = begins;
        at = begins || ends ? next + MARK_BYTES : next;
    }
    return TT_OK;
}

void tt_paste_terminal_begin(int file, FILE *screen, struct tt_paste_terminal *terminal)
{
    *terminal = (struct tt_paste_terminal){.file = file};
    if (tcgetattr(file, &terminal->before) == 0) {
        struct termios modes = terminal->before;
        modes.c_lflag &= ~(tcflag_t)ECHOCTL; /* escapes would show as ^[ */
        terminal->changed = tcsetattr(file, TCSANOW, &modes) == 0;
    }
    fputs("\033[?2004h", screen);
    fflush(screen);
}

void tt_paste_terminal_end(FILE *screen, struct tt_paste_terminal *terminal)
{
    fputs("\033[?2004l", screen);
    fflush(screen);
    if (terminal->changed) (void)tcsetattr(terminal->file, TCSANOW, &terminal->before);
    terminal->changed = false;
}
