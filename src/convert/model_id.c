/* Names of models on the hub in parts: what gguf-py's Metadata takes for versions, sizes and the like. */
#include <string.h>

#include "convert/card.h"

enum { VERSION = 1, SIZE = 2, TYPE = 4, TUNE = 8, BASE = 16, PARTS_MAX = 64 };

struct part {
    struct tt_span text;
    unsigned kinds;
};

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool letter(char c)
{
    return lower(c) >= 'a' && lower(c) <= 'z';
}

static bool is_word(struct tt_span text, const char *const *words, size_t count)
{
    for (size_t w = 0; w < count; w++) {
        size_t i = 0;
        if (strlen(words[w]) != text.bytes) continue;
        while (i < text.bytes && lower(text.data[i]) == words[w][i]) i++;
        if (i == text.bytes) return true;
    }
    return false;
}

static size_t digits(struct tt_span text, size_t at)
{
    while (at < text.bytes && digit(text.data[at])) at++;
    return at;
}

/* (.digits)* up to the end. */
static bool is_dotted(struct tt_span text, size_t at)
{
    size_t end = digits(text, at);
    if (end == at) return false;
    return end == text.bytes || (text.data[end] == '.' && is_dotted(text, end + 1));
}

static bool starts_with(struct tt_span text, const char *start)
{
    size_t i = 0;
    while (start[i] != '\0' && i < text.bytes && lower(text.data[i]) == start[i]) i++;
    return start[i] == '\0';
}

/* v1, iter3, 2.5 */
static bool is_version(struct tt_span text)
{
    return is_dotted(text, starts_with(text, "v") ? 1 : starts_with(text, "iter") ? 4 : 0);
}

/* q4_k_m, iq2_s, bf16, fp32 */
static bool is_type(struct tt_span text)
{
    static const char *const floats[] = {"bf16", "bfp16", "f16", "fp16", "bf32", "bfp32", "f32", "fp32"};
    if (is_word(text, floats, sizeof floats / sizeof floats[0])) return true;
    size_t at = starts_with(text, "i") ? 1 : 0;
    if (at + 1 >= text.bytes || lower(text.data[at]) != 'q' || !digit(text.data[at + 1])) return false;
    for (at += 2; at < text.bytes; at += 2) {
        if (text.data[at] != '_' || at + 1 == text.bytes) return false;
        char c = text.data[at + 1];
        if (!digit(c) && !letter(c) && c != '_') return false;
    }
    return true;
}

/* The exponent of 1000: K, M, B, T; 0: no unit. */
static int unit(char c)
{
    static const char units[] = "kmbt";
    const char *found = c != '\0' ? strchr(units, lower(c)) : NULL;
    return found != NULL ? (int)(found - units) + 1 : 0;
}

/* 7B, 1.5b, 8x7B, A3B, 7b1. *value: of a plain number; 0: of none. */
static bool is_number_of_weights(struct tt_span text, double *value)
{
    char number[64];
    size_t at = text.bytes > 0 && lower(text.data[0]) == 'a' ? 1 : 0, start = at;
    bool plain = at == 0;
    *value = 0;
    at = digits(text, at);
    if (plain && at > start && at < text.bytes && lower(text.data[at]) == 'x') {
        plain = false;
        start = at + 1;
        at = digits(text, start);
    }
    if (at == start || text.bytes >= sizeof number) return false;
    size_t point = 0;
    if (at < text.bytes && (text.data[at] == '.' || text.data[at] == '_')) {
        point = at + 1;
        at = digits(text, point);
        if (at == point) return false;
    }
    int exponent = at < text.bytes ? unit(text.data[at]) : 0;
    bool tail = at + 2 == text.bytes && digit(text.data[at + 1]);
    if (exponent == 0 || (at + 1 != text.bytes && !tail)) return false;
    if (!plain || (tail && point != 0)) return true; /* 7.2b1 is no number */
    memcpy(number, text.data, at);
    if (point != 0) number[point - 1] = '.';
    number[at] = '\0';
    if (tail) {
        number[at] = '.';
        number[at + 1] = text.data[at + 1];
        number[at + 2] = '\0';
    }
    int64_t whole = 0;
    double fraction = 0, scale = 1;
    bool after = false;
    for (const char *c = number; *c != '\0'; c++) {
        if (*c == '.') {
            after = true;
        } else if (!after) {
            whole = whole < 1000000000000 ? whole * 10 + (*c - '0') : whole;
        } else {
            scale /= 10;
            fraction += scale * (*c - '0');
        }
    }
    *value = (double)whole + fraction;
    for (int i = 0; i < exponent; i++) *value *= 1000;
    return true;
}

/* A context length rather than the size of this model. */
static bool is_far(double value, int64_t parameters)
{
    double count = (double)parameters, distance = value > count ? value - count : count - value;
    if (value == 0 || parameters == 0) return false;
    return parameters < 0 ? value < -count / 8 : distance > 7 * count / 8;
}

static unsigned kinds_of(struct tt_span text, bool first, int64_t parameters)
{
    static const char *const sizes[] = {"small", "mini", "medium", "large", "xl", "xxl"};
    static const char *const tunes[] = {"chat", "instruct", "vision", "lora"};
    double value = 0;
    if (is_version(text)) return VERSION;
    if (is_type(text)) return TYPE;
    if (first) return 0;
    if (is_word(text, sizes, sizeof sizes / sizeof sizes[0])) return SIZE;
    if (is_number_of_weights(text, &value)) return is_far(value, parameters) ? TUNE : SIZE;
    return is_word(text, tunes, sizeof tunes / sizeof tunes[0]) ? TUNE : 0;
}

static bool has_digit(struct tt_span text)
{
    for (size_t i = 0; i < text.bytes; i++)
        if (digit(text.data[i])) return true;
    return false;
}

static size_t split(const char *name, int64_t parameters, struct part *parts)
{
    size_t count = 0;
    bool numbers = false;
    for (const char *c = name; *c != '\0';) {
        size_t bytes = strcspn(c, "-");
        if (bytes > 0) {
            if (count == PARTS_MAX) return 0; /* no name of a model */
            struct tt_span text = {c, bytes};
            parts[count] = (struct part){text, kinds_of(text, count == 0, parameters)};
            count++;
        }
        c += bytes + (c[bytes] == '-');
    }
    for (size_t i = 0; i < count; i++) numbers |= (parts[i].kinds & SIZE) != 0 && has_digit(parts[i].text);
    for (size_t i = 0; i < count; i++)
        if (numbers && (parts[i].kinds & SIZE) != 0 && !has_digit(parts[i].text)) parts[i].kinds = 0;
    return count;
}

/* Versions that are no part of the base name: "0.1" of Mistral-7B-0.1, not the 3 of Llama-3-8B. */
static tt_status read_version(const char *name, int64_t parameters, struct tt_str *version)
{
    struct part parts[PARTS_MAX];
    size_t count = split(name, parameters, parts);
    for (size_t i = 0; i < count; i++) {
        unsigned kinds = parts[i].kinds;
        if ((kinds & VERSION) == 0 && (kinds != 0 || !letter(parts[i].text.data[0]))) break;
        parts[i].kinds |= BASE;
    }
    for (size_t i = count; i-- > 0 && (parts[i].kinds & BASE) != 0 && parts[i].kinds != BASE;)
        parts[i].kinds &= ~(unsigned)BASE;
    for (size_t i = 0; i < count; i++) {
        if ((parts[i].kinds & VERSION) == 0 || (parts[i].kinds & BASE) != 0) continue;
        if (version->bytes > 0) TT_TRY(tt_str_append_char(version, '-'));
        TT_TRY(tt_str_append(version, parts[i].text.data, parts[i].text.bytes));
    }
    return TT_OK;
}

/* Words of small letters get a capital one, but "v1.2" and "7b" do not. */
static tt_status add_word(struct tt_str *title, struct tt_span word)
{
    bool small = false, other = false, after = false;
    for (size_t i = 0; i < word.bytes; i++) {
        small |= letter(word.data[i]) && lower(word.data[i]) == word.data[i];
        other |= (unsigned char)word.data[i] >= 0x80 || (word.data[i] >= 'A' && word.data[i] <= 'Z');
    }
    bool stays = other || !small || digit(word.data[0]) || (word.data[0] == 'v' && is_dotted(word, 1));
    if (title->bytes > 0) TT_TRY(tt_str_append_char(title, ' '));
    for (size_t i = 0; i < word.bytes; i++) {
        char c = word.data[i];
        TT_TRY(tt_str_append_char(title, !stays && !after && letter(c) ? (char)(c - 'a' + 'A') : c));
        after = letter(c);
    }
    return TT_OK;
}

static tt_status add_title(struct tt_str *title, struct tt_span text)
{
    static const char blanks[] = "- \t\n\r\v\f";
    for (size_t i = 0; i < text.bytes;) {
        size_t start = i;
        while (i < text.bytes && strchr(blanks, text.data[i]) == NULL) i++;
        if (i > start) TT_TRY(add_word(title, (struct tt_span){text.data + start, i - start}));
        i += i < text.bytes;
    }
    return TT_OK;
}

void tt_model_id_deinit(struct tt_model_id *id)
{
    tt_str_deinit(&id->name);
    tt_str_deinit(&id->organization);
    tt_str_deinit(&id->version);
    tt_str_deinit(&id->url);
}

static tt_status read_id(const char *text, int64_t parameters, struct tt_model_id *id)
{
    const char *slash = strchr(text, ' ') == NULL ? strchr(text, '/') : NULL, *name = text;
    struct tt_span owner = {text, 0};
    if (slash != NULL) {
        name = slash + 1;
        if (text[0] != '.') owner.bytes = (size_t)(slash - text);
    }
    TT_TRY(add_title(&id->name, tt_span_of(name)));
    if (strchr(text, ' ') != NULL) return TT_OK; /* a sentence */
    TT_TRY(read_version(name, parameters, &id->version));
    return add_title(&id->organization, owner);
}

tt_status tt_model_id_read(const char *text, int64_t parameters, struct tt_model_id *id)
{
    static const char hub[] = "https://huggingface.co/", plain[] = "http://huggingface.co/";
    bool of_hub = tt_starts_with(text, hub) || tt_starts_with(text, plain);
    if (of_hub || tt_starts_with(text, "http://") || tt_starts_with(text, "https://") ||
        tt_starts_with(text, "ssh://")) {
        TT_TRY(tt_str_append_text(&id->url, text));
        if (!of_hub) return TT_OK;
        const char *page = text + (tt_starts_with(text, hub) ? sizeof hub : sizeof plain) - 1;
        const char *slash = strchr(page, '/');
        if (slash == NULL || slash == page || slash[1] == '\0' || strchr(slash + 1, '/') != NULL)
            return TT_OK;
        return read_id(page, parameters, id);
    }
    TT_TRY(read_id(text, parameters, id));
    const char *slash = strchr(text, '/');
    /* A path begins with '/' or '.'. */
    if (slash == NULL || strchr(text, ' ') != NULL || text[0] == '.' || slash == text) return TT_OK;
    return tt_str_printf(&id->url, "%s%s", hub, text);
}
