#include "serve/keys.h"

#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/ascii.h"
#include "base/file.h"

enum { FILE_BYTES_MAX = 1 << 20 };

/* Zeros fill the key up, and the name: the whole of it is compared. */
struct key {
    unsigned char bytes[TT_KEY_BYTES_MAX + 1];
    char name[TT_KEY_BYTES_MAX + 1]; /* empty: none */
    int64_t client;
};

struct tt_keys {
    struct key *data;
    size_t count, capacity;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The client whose name it is; a new one. */
static int64_t client_of(const struct tt_keys *keys, const char *name)
{
    for (size_t i = 0; name[0] != 0 && i < keys->count; i++)
        if (strcmp(keys->data[i].name, name) == 0) return keys->data[i].client;
    return (int64_t)keys->count;
}

/* Takes the next word of the line; false: there is none. Longer ones than TT_KEY_BYTES_MAX, or with control characters,
 * give an empty word. */
static bool next_word(const char **at, const char *end, char word[TT_KEY_BYTES_MAX + 1])
{
    memset(word, 0, TT_KEY_BYTES_MAX + 1);
    while (*at < end && is_blank(**at)) ++*at;
    const char *begin = *at;
    bool well = true;
    for (; *at < end && !is_blank(**at); ++*at) well = well && (unsigned char)**at > ' ' && **at != 0x7f;
    size_t bytes = (size_t)(*at - begin);
    if (well && bytes <= TT_KEY_BYTES_MAX) memcpy(word, begin, bytes);
    return bytes > 0;
}

static tt_status add_line(struct tt_keys *keys, const char *at, const char *end, const char *path, int line)
{
    struct key key = {.client = 0};
    char first[TT_KEY_BYTES_MAX + 1], second[TT_KEY_BYTES_MAX + 1], third[TT_KEY_BYTES_MAX + 1];
    if (!next_word(&at, end, first) || first[0] == '#') return TT_OK;
    bool named = next_word(&at, end, second);
    bool well = first[0] != 0 && (!named || second[0] != 0) && !next_word(&at, end, third);
    if (!well || keys->count == TT_KEYS_MAX)
        return tt_fail(
            TT_ERR_DATA,
            "%s line %d: a line must be a key of at most %d bytes, or a name and a key; at most %d", path,
            line, TT_KEY_BYTES_MAX, TT_KEYS_MAX);
    if (named) memcpy(key.name, first, sizeof key.name);
    memcpy(key.bytes, named ? second : first, sizeof key.bytes);
    key.client = client_of(keys, key.name);
    TT_TRY(tt_grow(&keys->data, keys->count, &keys->capacity));
    keys->data[keys->count++] = key;
    return TT_OK;
}

tt_status tt_keys_read(const char *path, struct tt_keys **out)
{
    tt_status status = TT_OK;
    struct tt_str text = {0};
    struct tt_keys *keys = tt_calloc(1, sizeof *keys);
    int line = 1;
    if (keys == NULL) return TT_ERR_MEMORY;
    TT_GO(tt_file_read(path, FILE_BYTES_MAX, &text));
    for (const char *at = tt_str_text(&text), *end = at + text.bytes; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (stop == NULL) stop = end;
        TT_GO(add_line(keys, at, stop, path, line));
        at = stop + 1;
    }
    if (keys->count == 0) TT_GO(tt_fail(TT_ERR_DATA, "'%s' has no key, so nobody could ask", path));
    *out = keys;
    keys = NULL;
out:
    if (text.data != NULL) explicit_bzero(text.data, text.bytes);
    tt_str_deinit(&text);
    tt_keys_destroy(keys);
    return status;
}

void tt_keys_destroy(struct tt_keys *keys)
{
    if (keys == NULL) return;
    if (keys->data != NULL) explicit_bzero(keys->data, keys->count * sizeof *keys->data);
    tt_free(keys->data);
    tt_free(keys);
}

/* All keys are looked at, and all of each. */
int64_t tt_keys_find(const struct tt_keys *keys, const char *authorization)
{
    static const char scheme[] = "Bearer ";
    unsigned char given[TT_KEY_BYTES_MAX + 1] = {0};
    int64_t found = -1;
    if (authorization == NULL || !tt_ascii_same_start(authorization, scheme, sizeof scheme - 1)) return -1;
    authorization += sizeof scheme - 1;
    while (is_blank(*authorization)) authorization++;
    size_t bytes = strlen(authorization);
    while (bytes > 0 && is_blank(authorization[bytes - 1])) bytes--;
    if (bytes == 0 || bytes > TT_KEY_BYTES_MAX) return -1;
    memcpy(given, authorization, bytes);
    for (size_t i = 0; i < keys->count; i++) {
        unsigned differs = 0;
        for (size_t b = 0; b < sizeof given; b++) differs |= (unsigned)(given[b] ^ keys->data[i].bytes[b]);
        int64_t same = (int64_t)((differs - 1u) >> 31); /* 1 where nothing differs */
        found = same * keys->data[i].client + (1 - same) * found;
    }
    explicit_bzero(given, sizeof given);
    return found;
}
