#include "data/chat_mask.h"

#include <string.h>

#include "base/alloc.h"
#include "data/chat_roles.h"

/* Where the values of a message are in a rendering. */
struct place {
    bool any;
    uint32_t first, last; /* the first byte of its values and the byte behind the last one */
    uint32_t seen;        /* the first byte of anything of it, its role included; UINT32_MAX: none */
    uint32_t before;      /* the byte behind the last value of another message before `first` */
};

struct turn {
    size_t begin, end;       /* trains */
    size_t close, close_end; /* the token that ends it; close == close_end: none */
};

struct masking {
    struct tt_chat *chat;
    const struct tt_tokenizer *tokenizer;
    const struct tt_data_config *config;
    const struct tt_conversation *conversation;
    const struct tt_chat_text *text;
    const struct tt_chat_tokens *tokens;
    size_t count;         /* of messages */
    struct place *places; /* [count] */
    struct place *prior;  /* [count]: of the rendering up to one message */
    struct tt_str bytes;  /* one for each byte of the text: 1 trains */
    struct tt_chat_mask_report *report;
};

/* ---- Places ---- */

/* Members of a message that belong to its header, not to its content. */
static bool is_header(const struct tt_jinja_output *output, uint32_t member)
{
    const struct tt_jinja_origin *origin = &output->origins[member];
    struct tt_span key = {origin->key, origin->key_bytes};
    return member != 0 && origin->key != NULL && (tt_span_equals(key, "role") || tt_span_equals(key, "name"));
}

static void find_places(const struct tt_chat_text *text, struct place *places, size_t count)
{
    const struct tt_jinja_output *output = &text->output;
    uint32_t begin = 0, said = 0, speaker = UINT32_MAX; /* end of the last value, and whose it is */
    uint32_t said_before = 0; /* end of the last value of another message than that */
    for (size_t i = 0; i < count; i++) places[i] = (struct place){.seen = UINT32_MAX};
    for (size_t i = 0; i < output->span_count; begin = output->spans[i++].end) {
        uint32_t index, member, end = output->spans[i].end;
        if (!tt_jinja_origin_element(output, output->spans[i].origin, "messages", &index, &member) ||
            index >= count)
            continue;
        struct place *place = &places[index];
        if (place->seen == UINT32_MAX) place->seen = begin;
        if (is_header(output, member)) continue;
        if (speaker != index) said_before = said;
        if (!place->any) *place = (struct place){true, begin, end, place->seen, said_before};
        place->last = end;
        said = end;
        speaker = index;
    }
}

/* The first byte behind `at` of a message after `index`. */
static uint32_t next_message(const struct masking *m, size_t index, size_t at)
{
    uint32_t bound = (uint32_t)m->text->output.bytes;
    for (size_t i = index + 1; i < m->count; i++)
        if (m->places[i].seen >= at && m->places[i].seen < bound) bound = m->places[i].seen;
    return bound;
}

/* The token that ends the turn whose values end at `at`: the first end token before the next message, else the first
 * special token there (a header that doubles as the end). */
static void find_close(const struct masking *m, size_t index, size_t at, struct turn *turn)
{
    const struct tt_ranges *ranges = m->tokens->ranges;
    uint32_t bound = next_message(m, index, at);
    size_t low = 0, high = ranges->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges->data[middle].begin < at)
            low = middle + 1;
        else
            high = middle;
    }
    turn->close = turn->close_end = at;
    for (; low < ranges->count && ranges->data[low].end <= bound; low++) {
        int32_t id = m->tokens->ids->data[low];
        if (!tt_tokenizer_is_special(m->tokenizer, id)) continue;
        bool ends = tt_chat_is_end(m->chat, id);
        if (ends || turn->close == turn->close_end) {
            turn->close = ranges->data[low].begin;
            turn->close_end = ranges->data[low].end;
        }
        if (ends) return;
    }
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* ---- One turn ---- */

static size_t common(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    size_t count = a_bytes < b_bytes ? a_bytes : b_bytes, i = 0;
    while (i < count && a[i] == b[i]) i++;
    return i;
}

/* A message, and the rendering up to it. */
struct checking {
    size_t index;
    const struct tt_chat_text *asked; /* up to the message, and the header of the answer; NULL: none */
    const struct tt_chat_text *prior; /* up to the message, with it */
    struct place place;               /* in `prior` */
};

static tt_status refuse(const struct masking *m, const struct checking *c, size_t from, size_t wanted)
{
    enum { SHOWN = 100 };
    const struct place *place = &m->places[c->index];
    int shown = place->last > from ? (int)(place->last - from) : 0;
    int other = c->place.last > wanted ? (int)(c->place.last - wanted) : 0;
    tt_fail(
        TT_ERR_DATA,
        "what message %zu (%s) trains is not clear: in the conversation it is '%.*s', and the model is to "
        "write '%.*s'",
        c->index + 1, tt_conversation_role(m->conversation, c->index), shown < SHOWN ? shown : SHOWN,
        m->text->output.text + from, other < SHOWN ? other : SHOWN, c->prior->output.text + wanted);
    tt_hint(
        "use a template with {%% generation %%} (chat_template_path), or one that writes a message the same "
        "way wherever it stands; or train_last_turn_only, or sample_per_turn");
    return TT_ERR_DATA;
}

/* Where the turn begins: behind the header, which is what asking for the answer writes. `wanted`: where the model is to
 * begin, in the rendering up to the message. */
static tt_status find_begin(struct masking *m, const struct checking *c, size_t *begin)
{
    const struct tt_jinja_output *all = &m->text->output, *prior = &c->prior->output;
    const struct place *place = &m->places[c->index];
    if (c->asked == NULL) { /* no header that could be compared: its values alone */
        *begin = place->first;
        return TT_OK;
    }
    const struct tt_jinja_output *asked = &c->asked->output;
    size_t wanted = common(asked->text, asked->bytes, prior->text, prior->bytes);
    size_t from = common(asked->text, asked->bytes, all->text, all->bytes);
    if (wanted < c->place.before) return refuse(m, c, place->first, c->place.first);
    if (from < place->before) {
        /* History is written differently: the header follows the last value before it, as it does there. */
        const char *header = prior->text + c->place.before;
        from = place->before + common(header, wanted - c->place.before, all->text + place->before,
                                      all->bytes - place->before);
    }
    size_t said = place->last - from, to_say = c->place.last - wanted;
    if (place->last < from) said = 0;
    if (c->place.last < wanted) to_say = 0;
    bool is_end = said <= to_say &&
                  memcmp(all->text + place->last - said, prior->text + c->place.last - said, said) == 0;
    if (!is_end) return refuse(m, c, from, wanted);
    if (said != to_say) m->report->history_differs = true;
    *begin = from;
    return TT_OK;
}

/* Fills the turn of a message with values. */
static tt_status find_turn(struct masking *m, const struct checking *c, struct turn *turn)
{
    const struct tt_jinja_output *all = &m->text->output, *prior = &c->prior->output;
    const struct place *place = &m->places[c->index];
    TT_TRY(find_begin(m, c, &turn->begin));
    find_close(m, c->index, place->last, turn);
    uint32_t bound = next_message(m, c->index, place->last);
    size_t same = place->last + common(prior->text + c->place.last, prior->bytes - c->place.last,
                                       all->text + place->last, all->bytes - place->last);
    if (same > bound) same = bound;
    /* The text that follows differs from message to message: of it, only white space is surely the turn's. */
    bool closed = turn->close < turn->close_end && c->prior != m->text;
    for (size_t at = turn->close_end; closed && at < same; at++)
        if (!is_blank(all->text[at])) same = at;
    turn->end = turn->close_end > same ? turn->close_end : same;
    if (turn->end == place->last && c->index + 1 < m->count) {
        tt_fail(TT_ERR_DATA, "the chat template writes nothing that ends message %zu (%s)", c->index + 1,
                tt_conversation_role(m->conversation, c->index));
        tt_hint("a model that is trained on it never stops");
        return TT_ERR_DATA;
    }
    return TT_OK;
}

/* A message without text, where the renderings agree up to it: only its end trains. */
static void find_empty_turn(struct masking *m, const struct checking *c, struct turn *turn)
{
    const struct tt_jinja_output *all = &m->text->output, *prior = &c->prior->output;
    *turn = (struct turn){0};
    if (c->asked == NULL) return;
    const struct tt_jinja_output *asked = &c->asked->output;
    size_t from = common(asked->text, asked->bytes, all->text, all->bytes);
    size_t to = common(prior->text, prior->bytes, all->text, all->bytes);
    if (from < asked->bytes || to <= from) {
        m->report->history_differs = true;
        return;
    }
    find_close(m, c->index, from, turn);
    turn->begin = from;
    turn->end = to;
}

static tt_status check_turn(struct masking *m, size_t index, struct turn *turn)
{
    struct tt_chat_text asked = {0}, prior = {0};
    struct checking c = {.index = index, .prior = m->text, .place = m->places[index]};
    bool answers = strcmp(tt_conversation_role(m->conversation, index), "assistant") == 0;
    tt_status status = TT_OK;
    *turn = (struct turn){0};
    if (answers && index > 0) {
        TT_GO(tt_chat_render(m->chat, m->conversation, index, true, &asked));
        c.asked = &asked;
    }
    if (index + 1 < m->count) {
        TT_GO(tt_chat_render(m->chat, m->conversation, index + 1, false, &prior));
        find_places(&prior, m->prior, m->count);
        c.prior = &prior;
        c.place = m->prior[index];
    }
    if (m->places[index].any && c.place.any)
        TT_GO(find_turn(m, &c, turn));
    else if (!m->places[index].any)
        find_empty_turn(m, &c, turn);
out:
    if (status != TT_OK) tt_while("finding what message %zu trains", index + 1);
    tt_chat_text_deinit(&asked);
    tt_chat_text_deinit(&prior);
    return status;
}

/* ---- All turns ---- */

bool tt_chat_trains(const struct tt_data_config *config, const struct tt_conversation *conversation,
                    size_t index)
{
    switch ((enum tt_message_trains)conversation->trains[index]) {
    case TT_MESSAGE_SKIPPED:
        return false;
    case TT_MESSAGE_TRAINED:
        return true;
    case TT_MESSAGE_UNSAID:
        break;
    }
    const char *role = tt_conversation_role(conversation, index);
    return config->roles_to_train != NULL ? tt_chat_role_is_listed(config->roles_to_train, role)
                                          : strcmp(role, "assistant") == 0;
}

static bool trains(const struct masking *m, size_t index)
{
    return tt_chat_trains(m->config, m->conversation, index);
}

static bool trains_last_only(const struct masking *m)
{
    return m->config->train_last_turn_only || m->config->sample_per_turn;
}

static void mark(struct masking *m, size_t begin, size_t end)
{
    if (begin < end) memset(m->bytes.data + begin, 1, end - begin);
}

static tt_status mark_turn(struct masking *m, size_t index, bool last)
{
    struct turn turn;
    TT_TRY(check_turn(m, index, &turn));
    bool closes = m->config->train_on_eos == TT_TRAIN_EOS_TURN ||
                  m->config->train_on_eos == TT_TRAIN_EOS_ALL ||
                  (m->config->train_on_eos == TT_TRAIN_EOS_LAST && last);
    size_t said = turn.close < turn.close_end ? turn.close : m->places[index].last;
    mark(m, turn.begin, closes ? turn.end : said < turn.end ? said : turn.end);
    return TT_OK;
}

static tt_status mark_turns(struct masking *m)
{
    size_t last = m->count;
    for (size_t i = 0; i < m->count; i++)
        if (trains(m, i)) last = i;
    m->report->any_turn = last < m->count;
    for (size_t i = 0; i < m->count; i++) {
        bool trained = trains(m, i) && (!trains_last_only(m) || i == last);
        if (trained) TT_TRY(mark_turn(m, i, i == last));
        if (trained || m->config->train_on_eos != TT_TRAIN_EOS_ALL || !m->places[i].any) continue;
        struct turn turn = {0};
        find_close(m, i, m->places[i].last, &turn);
        mark(m, turn.close, turn.close_end);
    }
    return TT_OK;
}

/* Tags say what trains where no setting and no message says otherwise. */
static bool uses_tags(const struct masking *m, const struct tt_jinja *jinja)
{
    if (!tt_jinja_has_generation(jinja) || m->config->roles_to_train != NULL || trains_last_only(m) ||
        m->config->train_on_eos != TT_TRAIN_EOS_TURN)
        return false;
    for (size_t i = 0; i < m->count; i++)
        if (m->conversation->trains[i] != TT_MESSAGE_UNSAID) return false;
    return true;
}

static void mark_tags(struct masking *m)
{
    const struct tt_jinja_output *output = &m->text->output;
    uint32_t begin = 0;
    for (size_t i = 0; i < output->span_count; begin = output->spans[i++].end)
        if (output->spans[i].generation) mark(m, begin, output->spans[i].end);
    for (size_t i = 0; i < m->count; i++) m->report->any_turn = m->report->any_turn || trains(m, i);
}

/* A token that stands for nothing (a blank that the tokenizer puts before a text) goes with the byte behind it. */
static bool is_marked(const struct masking *m, size_t at)
{
    return at < m->bytes.bytes && m->bytes.data[at] != 0;
}

static tt_status mark_tokens(const struct masking *m, struct tt_str *mask)
{
    tt_str_clear(mask);
    for (size_t i = 0; i < m->tokens->ids->count; i++) {
        size_t at = m->tokens->ranges->data[i].begin, end = m->tokens->ranges->data[i].end;
        if (at == end) {
            TT_TRY(tt_str_append_char(mask, (char)is_marked(m, at)));
            continue;
        }
        while (at < end && m->bytes.data[at] == 0 && is_blank(m->text->output.text[at])) at++;
        bool all = at < end && memchr(m->bytes.data + at, 0, end - at) == NULL;
        TT_TRY(tt_str_append_char(mask, (char)all));
    }
    return TT_OK;
}

tt_status tt_chat_mask(struct tt_chat *chat, const struct tt_conversation *conversation,
                       const struct tt_chat_text *text, const struct tt_chat_tokens *tokens,
                       struct tt_str *mask, struct tt_chat_mask_report *report)
{
    const struct tt_chat_template *source = NULL;
    const struct tt_jinja *jinja = NULL;
    *report = (struct tt_chat_mask_report){0};
    TT_TRY(tt_chat_template(chat, conversation->tools != NULL, &source, &jinja));
    size_t count = tt_json_count(conversation->messages);
    struct masking m = {.chat = chat,
                        .tokenizer = tt_chat_tokenizer(chat),
                        .config = tt_chat_config(chat),
                        .conversation = conversation,
                        .text = text,
                        .tokens = tokens,
                        .count = count,
                        .report = report};
    tt_status status = TT_OK;
    m.places = tt_calloc(2 * count, sizeof *m.places);
    if (m.places == NULL) TT_GO(TT_ERR_MEMORY);
    m.prior = m.places + count;
    find_places(text, m.places, count);
    TT_GO(tt_str_append_fill(&m.bytes, 0, text->output.bytes));
    if (uses_tags(&m, jinja))
        mark_tags(&m);
    else
        TT_GO(mark_turns(&m));
    TT_GO(mark_tokens(&m, mask));
out:
    if (status != TT_OK && source != NULL) tt_while("masking with the chat template '%s'", source->path);
    tt_str_deinit(&m.bytes);
    tt_free(m.places);
    return status;
}
