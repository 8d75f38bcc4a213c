#include "store/xml.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/ascii.h"
#include "base/str.h"

enum { DEPTH_MAX = 64, TEXT_BYTES_MAX = 1 << 20, NAME_BYTES_MAX = 128 };
#define DOCUMENT_BYTES_MAX ((size_t)64 << 20)

struct level {
    size_t path_bytes; /* of the path before this element */
    size_t text_start; /* in `text` */
    bool has_elements;
    char name[NAME_BYTES_MAX]; /* as written, with its prefix */
};

struct reading {
    const char *data, *what;
    size_t bytes, at;
    struct level levels[DEPTH_MAX];
    int depth;
    bool done;
    struct tt_str path, text; /* text: of all open elements, one after the other */
    tt_xml_visit_element *visit;
    void *context;
};

static tt_status fail_at(const struct reading *reading, const char *why)
{
    return tt_fail(TT_ERR_DATA, "%s is not XML at byte %zu: %s", reading->what, reading->at, why);
}

static bool follows(const struct reading *reading, const char *text)
{
    size_t bytes = strlen(text);
    return reading->bytes - reading->at >= bytes && memcmp(reading->data + reading->at, text, bytes) == 0;
}

/* Moves behind the next `end`. */
static tt_status skip_to(struct reading *reading, const char *end)
{
    const char *found = memmem(reading->data + reading->at, reading->bytes - reading->at, end, strlen(end));
    if (found == NULL) return fail_at(reading, "it ends too early");
    reading->at = (size_t)(found - reading->data) + strlen(end);
    return TT_OK;
}

static void skip_blanks(struct reading *reading)
{
    while (reading->at < reading->bytes && tt_ascii_is_space(reading->data[reading->at])) reading->at++;
}

static bool is_name_byte(char c)
{
    return tt_ascii_is_letter(c) || tt_ascii_is_digit(c) || (unsigned char)c >= 0x80 ||
           (c != '\0' && strchr("_:.-", c) != NULL);
}

static tt_status read_name(struct reading *reading, char name[NAME_BYTES_MAX])
{
    size_t bytes = 0;
    while (reading->at + bytes < reading->bytes && is_name_byte(reading->data[reading->at + bytes])) bytes++;
    if (bytes == 0 || bytes >= NAME_BYTES_MAX) return fail_at(reading, "a name is expected");
    memcpy(name, reading->data + reading->at, bytes);
    name[bytes] = '\0';
    reading->at += bytes;
    return TT_OK;
}

static tt_status append_character(struct tt_str *text, uint32_t code)
{
    if (code < 0x80) return tt_str_append_char(text, (char)code);
    if (code < 0x800) {
        TT_TRY(tt_str_append_char(text, (char)(0xc0 | code >> 6)));
    } else {
        if (code < 0x10000) {
            TT_TRY(tt_str_append_char(text, (char)(0xe0 | code >> 12)));
        } else {
            TT_TRY(tt_str_append_char(text, (char)(0xf0 | code >> 18)));
            TT_TRY(tt_str_append_char(text, (char)(0x80 | (code >> 12 & 0x3f))));
        }
        TT_TRY(tt_str_append_char(text, (char)(0x80 | (code >> 6 & 0x3f))));
    }
    return tt_str_append_char(text, (char)(0x80 | (code & 0x3f)));
}

/* Reads what is behind '&'. */
static tt_status read_entity(struct reading *reading)
{
    static const struct {
        const char *name;
        char text;
    } known[] = {{"amp;", '&'}, {"lt;", '<'}, {"gt;", '>'}, {"quot;", '"'}, {"apos;", '\''}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (follows(reading, known[i].name)) {
            reading->at += strlen(known[i].name);
            return tt_str_append_char(&reading->text, known[i].text);
        }
    if (!follows(reading, "#")) return fail_at(reading, "an unknown entity");
    reading->at++;
    bool hexadecimal = follows(reading, "x");
    if (hexadecimal) reading->at++;
    uint32_t code = 0;
    size_t digits = 0;
    for (; reading->at < reading->bytes && digits < 8; reading->at++, digits++) {
        char c = tt_ascii_upper(reading->data[reading->at]);
        if (tt_ascii_is_digit(c))
            code = code * (hexadecimal ? 16 : 10) + (uint32_t)(c - '0');
        else if (hexadecimal && c >= 'A' && c <= 'F')
            code = code * 16 + (uint32_t)(c - 'A') + 10;
        else
            break;
    }
    bool valid = digits > 0 && follows(reading, ";") && code != 0 && code <= 0x10ffff &&
                 (code < 0xd800 || code > 0xdfff);
    if (!valid) return fail_at(reading, "a character by a wrong number");
    reading->at++;
    return append_character(&reading->text, code);
}

static tt_status check_text(const struct reading *reading)
{
    const struct level *level = &reading->levels[reading->depth - 1];
    return reading->text.bytes - level->text_start <= TEXT_BYTES_MAX ? TT_OK
                                                                     : fail_at(reading, "too long a text");
}

static tt_status read_text(struct reading *reading)
{
    while (reading->at < reading->bytes && reading->data[reading->at] != '<') {
        char c = reading->data[reading->at];
        if (c == '&') {
            reading->at++;
            TT_TRY(read_entity(reading));
            continue;
        }
        if ((unsigned char)c < 0x20 && !tt_ascii_is_space(c)) return fail_at(reading, "a control character");
        TT_TRY(tt_str_append_char(&reading->text, c));
        TT_TRY(check_text(reading));
        reading->at++;
    }
    return check_text(reading);
}

static tt_status read_cdata(struct reading *reading)
{
    size_t start = reading->at;
    TT_TRY(skip_to(reading, "]]>"));
    const char *data = reading->data + start;
    size_t bytes = reading->at - start - 3;
    if (memchr(data, '\0', bytes) != NULL) return fail_at(reading, "a control character");
    TT_TRY(tt_str_append(&reading->text, data, bytes));
    return check_text(reading);
}

static tt_status end_element(struct reading *reading)
{
    struct level *level = &reading->levels[reading->depth - 1];
    char *text = reading->text.data != NULL ? reading->text.data + level->text_start : NULL;
    size_t bytes = reading->text.bytes - level->text_start;
    if (level->has_elements) {
        while (bytes > 0 && tt_ascii_is_space(text[bytes - 1])) bytes--;
        while (bytes > 0 && tt_ascii_is_space(*text)) text++, bytes--;
        if (text != NULL) text[bytes] = '\0';
    }
    if (reading->visit != NULL)
        TT_TRY(reading->visit(reading->context, tt_str_text(&reading->path), text != NULL ? text : ""));
    reading->text.bytes = level->text_start;
    if (reading->text.data != NULL) reading->text.data[reading->text.bytes] = '\0';
    reading->path.bytes = level->path_bytes;
    reading->path.data[reading->path.bytes] = '\0';
    reading->depth--;
    reading->done = reading->depth == 0;
    return TT_OK;
}

/* Reads what is behind '<'. */
static tt_status begin_element(struct reading *reading)
{
    if (reading->depth == DEPTH_MAX) return fail_at(reading, "too many elements inside each other");
    struct level *level = &reading->levels[reading->depth];
    *level = (struct level){.path_bytes = reading->path.bytes, .text_start = reading->text.bytes};
    TT_TRY(read_name(reading, level->name));
    if (reading->depth > 0) {
        reading->levels[reading->depth - 1].has_elements = true;
        TT_TRY(tt_str_append_char(&reading->path, '/'));
    }
    const char *colon = strrchr(level->name, ':');
    if (colon != NULL && colon[1] == '\0') return fail_at(reading, "a name is expected");
    TT_TRY(tt_str_append_text(&reading->path, colon != NULL ? colon + 1 : level->name));
    reading->depth++;
    for (;;) {
        char name[NAME_BYTES_MAX];
        skip_blanks(reading);
        if (follows(reading, "/>")) {
            reading->at += 2;
            return end_element(reading);
        }
        if (follows(reading, ">")) {
            reading->at++;
            return TT_OK;
        }
        TT_TRY(read_name(reading, name));
        skip_blanks(reading);
        if (!follows(reading, "=")) return fail_at(reading, "an attribute without a value");
        reading->at++;
        skip_blanks(reading);
        if (!follows(reading, "\"") && !follows(reading, "'"))
            return fail_at(reading, "an attribute without quotes");
        const char quote[2] = {reading->data[reading->at++], '\0'};
        TT_TRY(skip_to(reading, quote));
    }
}

/* Reads what is behind "</". */
static tt_status read_end(struct reading *reading)
{
    char name[NAME_BYTES_MAX];
    TT_TRY(read_name(reading, name));
    skip_blanks(reading);
    if (!follows(reading, ">") || strcmp(name, reading->levels[reading->depth - 1].name) != 0)
        return fail_at(reading, "the end of another element is expected");
    reading->at++;
    return end_element(reading);
}

/* Reads what begins with '<'. */
static tt_status read_part(struct reading *reading)
{
    if (follows(reading, "<!--")) return skip_to(reading, "-->");
    if (follows(reading, "<?")) return skip_to(reading, "?>");
    if (follows(reading, "<![CDATA[") && reading->depth > 0) {
        reading->at += 9;
        return read_cdata(reading);
    }
    if (follows(reading, "<!")) return fail_at(reading, "a document type, which is not read");
    if (follows(reading, "</") && reading->depth > 0) {
        reading->at += 2;
        return read_end(reading);
    }
    if (!follows(reading, "<") || reading->done) return fail_at(reading, "text outside the element");
    reading->at++;
    return begin_element(reading);
}

tt_status tt_xml_visit(const char *data, size_t bytes, const char *what, tt_xml_visit_element *visit,
                       void *context)
{
    tt_status status = TT_OK;
    struct reading reading = {.data = data, .bytes = bytes, .what = what, .visit = visit, .context = context};
    if (bytes > DOCUMENT_BYTES_MAX)
        return tt_fail(TT_ERR_DATA, "%s has %zu bytes; at most %zu are read", what, bytes,
                       DOCUMENT_BYTES_MAX);
    if (follows(&reading, "\xef\xbb\xbf")) reading.at = 3;
    for (;;) {
        if (reading.depth > 0) {
            TT_GO(read_text(&reading));
        } else {
            skip_blanks(&reading);
        }
        if (reading.at == bytes) break;
        TT_GO(read_part(&reading));
    }
    if (!reading.done) status = fail_at(&reading, "it ends too early");
out:
    tt_str_deinit(&reading.path);
    tt_str_deinit(&reading.text);
    return status;
}
