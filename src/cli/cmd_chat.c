#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/line_reader.h"
#include "cli/paste.h"
#include "cli/signals.h"
#include "cli/talk_call.h"

struct chat_command {
    struct tt_talk_call call; /* must be first: the offsets of its settings apply here */
    const char *system;
};

/* One row reads as one paragraph. */
/* clang-format off */
static const struct tt_setting own_settings[] = {
    {.name = "system", .aliases = "system_prompt", .type = TT_SETTING_STRING,
     .offset = offsetof(struct chat_command, system), .help = "The system message of the conversation."},
    {.name = NULL},
};
/* clang-format on */

static size_t list_sections(struct tt_setting_section *sections)
{
    return tt_talk_call_sections("Conversation", own_settings, sections);
}

struct conversation {
    struct tt_cli *cli;
    const struct chat_command *command;
    struct tt_talk *talk;
    struct tt_sampling_options sampling;
    struct tt_line_reader reader;
    struct tt_json_value *messages; /* without the system message */
    struct tt_str system;           /* empty: none */
    struct tt_ids prompt;
    struct tt_str answer;
    bool terminal; /* a person types */
    bool adapter_off;
    size_t adapter;   /* number of the one that answers, unless it is off */
    uint64_t answers; /* so far: each has a seed of its own */
};

static bool is_interrupted(const struct conversation *c, int before)
{
    return atomic_load(&c->cli->cancel->interrupts) != before || atomic_load(&c->cli->cancel->requests) > 0;
}

/* Writes a message of the program, not of the model. */
static void report(const struct conversation *c, const char *text)
{
    tt_report_line(c->cli->report, text);
}

static bool has_adapter(const struct conversation *c)
{
    return tt_generation_has_adapter(tt_generation_team_engine(c->talk->team));
}

static tt_status add_message(struct conversation *c, const char *role, struct tt_span content)
{
    struct tt_json_value *message = tt_json_pack("{s:s, s:t}", "role", role, "content", content);
    return tt_json_append(c->messages, message) == 0 ? TT_OK : TT_ERR_MEMORY;
}

/* The messages with the system message before them, as a row. */
static struct tt_json_value *make_row(const struct conversation *c)
{
    struct tt_json_value *list = tt_json_new_list();
    bool made = list != NULL;
    if (c->system.bytes > 0)
        made = made && tt_json_append(list, tt_json_pack("{s:s, s:s}", "role", "system", "content",
                                                         tt_str_text(&c->system))) == 0;
    for (size_t i = 0; made && i < tt_json_count(c->messages); i++)
        made = tt_json_append_copy(list, tt_json_at(c->messages, i)) == 0;
    if (made) return tt_json_pack("{s:o}", "messages", list);
    tt_json_release(list);
    return NULL;
}

static tt_status make_request(struct conversation *c, struct tt_generation_request *request)
{
    const struct tt_generate_config *generate = &c->command->call.spec.generate;
    struct tt_json_value *row = make_row(c);
    if (row == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_talk_prompt(c->talk, row, "the conversation", &c->prompt);
    tt_json_release(row);
    if (status != TT_OK) return status;
    *request = (struct tt_generation_request){
        .prompt = c->prompt.data,
        .prompt_count = c->prompt.count,
        .max_new_tokens = tt_talk_room(c->talk, c->prompt.count, generate->max_new_tokens),
        .sampling = c->sampling,
        .seed = tt_generation_seed((uint64_t)c->command->call.spec.job.run.seed, c->answers),
        .ignore_end = generate->ignore_eos,
        .adapter_off = c->adapter_off,
        .adapter = (int)c->adapter,
    };
    if (request->max_new_tokens > 0) return TT_OK;
    tt_fail(TT_ERR_USAGE, "the conversation has %zu tokens, which leaves no room for an answer in %lld",
            c->prompt.count, (long long)tt_talk_length(c->talk));
    tt_hint("/reset begins a new conversation; --context_length N keeps memory for a longer one");
    return TT_ERR_USAGE;
}

/* Generates and prints the answer; c->answer gets its text. A failure of the engine sets *broken. */
static tt_status stream_answer(struct conversation *c, const struct tt_generation_request *request,
                               struct tt_talk_answer *answer, bool *broken)
{
    int before = atomic_load(&c->cli->cancel->interrupts);
    tt_str_clear(&c->answer);
    TT_TRY(tt_talk_ask(c->talk, request, answer));
    *broken = true;
    for (bool busy = true; busy;) {
        size_t shown = c->answer.bytes;
        TT_TRY(tt_generation_team_step(c->talk->team, &busy));
        if (is_interrupted(c, before)) tt_generation_team_cancel(c->talk->team, answer->id);
        TT_TRY(tt_talk_advance(c->talk, answer, &c->answer));
        busy = !tt_generation_is_finished(answer->state);
        if (c->answer.bytes > shown)
            TT_TRY(tt_report_print_raw(c->cli->report, c->answer.data + shown, c->answer.bytes - shown));
    }
    TT_TRY(tt_report_print_raw(c->cli->report, "\n", 1));
    *broken = false;
    return TT_OK;
}

static void report_end(const struct conversation *c, const struct tt_talk_answer *answer)
{
    char line[120];
    snprintf(line, sizeof line, "(the answer was cut after %zu tokens: --max_new_tokens, --context_length)",
             answer->tokens);
    if (answer->state == TT_GENERATION_CANCELLED) report(c, "(stopped)");
    if (answer->state == TT_GENERATION_LENGTH) report(c, line);
}

/* A turn: the user's message and its answer. A failed turn leaves the conversation as it was. */
static tt_status take_turn(struct conversation *c, const char *text, bool *broken)
{
    struct tt_generation_request request;
    struct tt_talk_answer answer = {0};
    tt_status status = TT_OK;
    size_t before = tt_json_count(c->messages);
    TT_TRY(add_message(c, "user", tt_span_of(text)));
    TT_GO(make_request(c, &request));
    TT_GO(stream_answer(c, &request, &answer, broken));
    report_end(c, &answer);
    c->answers++;
    TT_GO(add_message(c, "assistant", (struct tt_span){tt_str_text(&c->answer), c->answer.bytes}));
out:
    tt_talk_answer_deinit(c->talk, &answer);
    if (status == TT_OK) return TT_OK;
    struct tt_json_value *kept = tt_json_new_list();
    for (size_t i = 0; kept != NULL && i < before; i++)
        if (tt_json_append_copy(kept, tt_json_at(c->messages, i)) != 0) break;
    if (kept == NULL || tt_json_count(kept) != before) *broken = true;
    tt_json_release(c->messages);
    c->messages = kept;
    return status;
}

static tt_status reset(struct conversation *c)
{
    tt_json_release(c->messages);
    c->messages = tt_json_new_list();
    if (c->messages == NULL) return TT_ERR_MEMORY;
    report(c, "(a new conversation)");
    return TT_OK;
}

static tt_status set_system(struct conversation *c, const char *text)
{
    tt_str_clear(&c->system);
    report(c, *text != 0 ? "(the system message is set)" : "(no system message)");
    return tt_str_append_text(&c->system, text);
}

/* A command that cannot be obeyed: in a terminal a line in brackets, in a file or pipe an error, because the answers
 * after it would be those of another conversation. */
static tt_status refuse(const struct conversation *c, const char *why)
{
    char line[160];
    if (!c->terminal) return tt_fail(TT_ERR_USAGE, "%s", why);
    snprintf(line, sizeof line, "(%s)", why);
    report(c, line);
    return TT_OK;
}

static tt_status list_adapters(const struct conversation *c)
{
    const struct tt_inputs *inputs = c->talk->inputs;
    struct tt_str text = {0};
    tt_status status = tt_str_printf(&text, "(the adapter is %s", c->adapter_off ? "off" : "on");
    if (inputs->adapter_count > 1 && status == TT_OK)
        status = tt_str_printf(&text, "%s%s; there are", c->adapter_off ? "" : ": ",
                               c->adapter_off ? "" : inputs->adapters[c->adapter].name);
    for (size_t i = 0; inputs->adapter_count > 1 && i < inputs->adapter_count && status == TT_OK; i++)
        status = tt_str_printf(&text, "%s %s", i > 0 ? "," : "", inputs->adapters[i].name);
    if (status == TT_OK) status = tt_str_append_char(&text, ')');
    if (status == TT_OK) report(c, tt_str_text(&text));
    tt_str_deinit(&text);
    return status;
}

/* `word`: on, off, the name of an adapter, or nothing. */
static tt_status set_adapter(struct conversation *c, const char *word)
{
    const struct tt_inputs *inputs = c->talk->inputs;
    bool on = strcmp(word, "on") == 0, off = strcmp(word, "off") == 0;
    if (!has_adapter(c)) return refuse(c, "no adapter is loaded: --adapter_name_or_path FOLDER");
    tt_status refused = TT_OK;
    size_t named = 0;
    while (named < inputs->adapter_count && strcmp(word, inputs->adapters[named].name) != 0) named++;
    if (named < inputs->adapter_count) c->adapter = named;
    if (on || off || named < inputs->adapter_count)
        c->adapter_off = off;
    else if (*word != 0)
        refused = refuse(c, "/adapter on, /adapter off, or /adapter and the name of one");
    TT_TRY(list_adapters(c));
    return refused;
}

static void print_help(const struct conversation *c)
{
    static const char *const lines[] = {
        "/reset           begin a new conversation; the system message stays",
        "/system TEXT     set the system message; without TEXT: remove it",
        "/adapter on|off  answer with the adapter, or without it",
        "/adapter NAME    answer with that one of several adapters",
        "/help            this list",
        "/quit            end, as Ctrl-D does",
        "Ctrl-C           stop the answer",
        "A message that begins with / is written with two: //",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) report(c, lines[i]);
}

/* The text behind `word`, without blanks before it, where the line is that command; else NULL. */
static const char *after_word(const char *line, const char *word)
{
    size_t bytes = strlen(word);
    if (strncmp(line, word, bytes) != 0 || (line[bytes] != 0 && line[bytes] != ' ')) return NULL;
    return line + bytes + strspn(line + bytes, " ");
}

/* A line that begins with a slash. */
static tt_status obey(struct conversation *c, const char *line, bool *quit)
{
    const char *rest;
    if (after_word(line, "/quit") != NULL || after_word(line, "/exit") != NULL)
        *quit = true;
    else if (after_word(line, "/reset") != NULL)
        return reset(c);
    else if ((rest = after_word(line, "/system")) != NULL)
        return set_system(c, rest);
    else if ((rest = after_word(line, "/adapter")) != NULL)
        return set_adapter(c, rest);
    else if (after_word(line, "/help") != NULL)
        print_help(c);
    else
        return refuse(c, "unknown command; /help lists them, and // begins a message with /");
    return TT_OK;
}

/* An error of a turn ends a conversation that is read from a file or pipe, but not one with a person. */
static tt_status answer_line(struct conversation *c, const char *line, bool pasted, bool *quit)
{
    bool broken = false, slash = line[0] == '/' && !pasted; /* a pasted path is no command */
    if (line[strspn(line, " \t\n")] == 0) return TT_OK;
    if (slash && line[1] != '/') return obey(c, line, quit);
    tt_status status = take_turn(c, slash ? line + 1 : line, &broken);
    if (status == TT_OK || broken || !c->terminal || status == TT_ERR_MEMORY) return status;
    tt_report_error(c->cli->report);
    tt_error_clear();
    return TT_OK;
}

static void print_prompt(const struct conversation *c)
{
    if (!c->terminal) return;
    fputs("> ", c->cli->report->err);
    fflush(c->cli->report->err);
}

/* A terminal that collects whole lines drops what is beyond 4095 bytes of one without a sign. */
static bool is_cut(const struct conversation *c, const struct tt_str *line)
{
    enum { TERMINAL_LINE_BYTES = 4095 };
    return c->terminal && line->bytes >= TERMINAL_LINE_BYTES;
}

/* A message read at the prompt. */
struct message {
    struct tt_str line, text;
    enum tt_line_end end;
    bool cut, pasted;
};

/* A line, or in a terminal all lines of a pasted text. */
static tt_status read_lines(struct conversation *c, int interrupts, struct message *message)
{
    struct tt_paste paste = {0};
    do {
        TT_TRY(tt_line_read(&c->reader, interrupts, &message->line, &message->end));
        if (message->end != TT_LINE_READ) return TT_OK;
        message->cut = message->cut || is_cut(c, &message->line);
        if (c->terminal)
            TT_TRY(tt_paste_add(&paste, &message->line, &message->text));
        else
            TT_TRY(tt_str_append(&message->text, tt_str_text(&message->line), message->line.bytes));
    } while (paste.open);
    message->pasted = paste.first;
    return TT_OK;
}

static tt_status read_message(struct conversation *c, struct message *message)
{
    struct tt_paste_terminal terminal;
    /* from the prompt on, Ctrl-C ends the message */
    int interrupts = atomic_load(&c->cli->cancel->interrupts);
    bool marks = c->terminal && c->cli->report->terminal;
    tt_str_clear(&message->text);
    message->cut = message->pasted = false;
    if (marks) tt_paste_terminal_begin(c->reader.file, c->cli->report->err, &terminal);
    print_prompt(c);
    tt_status status = read_lines(c, interrupts, message);
    if (marks) tt_paste_terminal_end(c->cli->report->err, &terminal);
    return status;
}

static tt_status converse(struct conversation *c)
{
    struct message message = {.end = TT_LINE_READ};
    tt_status status = TT_OK;
    for (bool quit = false; !quit;) {
        TT_GO(read_message(c, &message));
        if (message.end == TT_LINE_END_OF_INPUT || message.end == TT_LINE_STOPPED) break;
        if (message.end == TT_LINE_INTERRUPTED) {
            report(c, "\n(/quit or Ctrl-D ends)");
            continue;
        }
        if (message.cut) {
            report(c,
                   "(the terminal cuts lines after 4095 bytes, so the end of one is lost and the message was "
                   "not sent: pipe long messages into trimtab chat, one a line)");
            continue;
        }
        if (message.text.bytes > 0 && memchr(message.text.data, 0, message.text.bytes) != NULL)
            TT_GO(tt_fail(TT_ERR_DATA, "a line of standard input holds a 0 byte"));
        TT_GO(answer_line(c, tt_str_text(&message.text), message.pasted, &quit));
    }
    if (message.end == TT_LINE_END_OF_INPUT && c->terminal) report(c, "");
    if (atomic_load(&c->cli->cancel->requests) > 0) status = tt_fail(TT_ERR_CANCELLED, "stopped on request");
out:
    tt_str_deinit(&message.line);
    tt_str_deinit(&message.text);
    return status;
}

static void greet(const struct conversation *c)
{
    if (!c->terminal) return;
    report(c, has_adapter(c) ? "model and adapter are loaded; /help lists commands"
                             : "the model is loaded; /help lists commands");
}

static tt_status lead(void *context, struct tt_talk *talk)
{
    struct conversation *c = context;
    c->talk = talk;
    TT_TRY(tt_talk_call_sampling(&c->command->call, talk->inputs, c->cli->report, &c->sampling));
    tt_signals_count_interrupts();
    greet(c);
    return converse(c);
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    const struct chat_command *command = call->target;
    struct conversation c = {
        .cli = cli,
        .command = command,
        .reader = {.file = STDIN_FILENO, .cancel = cli->cancel},
        .terminal = isatty(STDIN_FILENO) == 1,
    };
    tt_status status = TT_OK;
    if (command->system != NULL) TT_GO(tt_str_append_text(&c.system, command->system));
    c.messages = tt_json_new_list();
    if (c.messages == NULL) TT_GO(TT_ERR_MEMORY);
    status = tt_talk_call_run(&command->call, cli->cancel, 1, NULL, lead, &c);
out:
    tt_line_reader_deinit(&c.reader);
    tt_json_release(c.messages);
    tt_str_deinit(&c.system);
    tt_str_deinit(&c.answer);
    tt_ids_deinit(&c.prompt);
    return status;
}

static tt_status resolve(void *target, struct tt_settings *settings)
{
    return tt_talk_call_resolve(target, settings);
}

const struct tt_command_ops tt_cmd_chat = {
    .usage = " --model_name_or_path FOLDER [--adapter_name_or_path FOLDER] [--system TEXT]",
    .sections = list_sections,
    .target_bytes = sizeof(struct chat_command),
    .resolve = resolve,
    .run = run,
};
