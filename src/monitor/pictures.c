#include "monitor/pictures.h"

#include <math.h>
#include <string.h>

#include "base/file.h"

enum { PICTURE_BYTES_MAX = 16 << 20 };

bool tt_picture_is_name(const char *name)
{
    static const char digits[] = "0123456789";
    size_t step = strspn(name, digits), image = name[step] == '-' ? strspn(name + step + 1, digits) : 0;
    return step > 0 && image > 0 && strcmp(name + step + 1 + image, ".jpg") == 0;
}

tt_status tt_picture_read(const char *folder, const char *name, struct tt_str *bytes)
{
    struct tt_path pictures, path;
    if (!tt_picture_is_name(name)) return tt_fail(TT_ERR_IO, "'%s' is no name of a picture", name);
    TT_TRY(tt_path_set(&pictures, folder, "pictures"));
    TT_TRY(tt_path_set(&path, pictures.text, name));
    return tt_file_read(path.text, PICTURE_BYTES_MAX, bytes);
}

static tt_status append_base64(const struct tt_str *bytes, struct tt_str *text)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *data = (const uint8_t *)bytes->data;
    for (size_t i = 0; i < bytes->bytes; i += 3) {
        size_t count = bytes->bytes - i < 3 ? bytes->bytes - i : 3;
        uint32_t group = 0;
        char four[4] = "====";
        for (size_t b = 0; b < 3; b++) group = group << 8 | (b < count ? data[i + b] : 0u);
        for (size_t c = 0; c <= count; c++) four[c] = letters[group >> (18 - 6 * c) & 63];
        TT_TRY(tt_str_append(text, four, sizeof four));
    }
    return TT_OK;
}

/* A picture that is gone is left out. */
static tt_status write_picture(const char *folder, const struct tt_json_value *row, bool embeds,
                               struct tt_str *text)
{
    struct tt_str bytes = {0};
    tt_status status = TT_OK;
    const char *name = tt_json_text(tt_json_get(row, "file"));
    if (name == NULL || !tt_picture_is_name(name)) return TT_OK;
    if (embeds && tt_picture_read(folder, name, &bytes) != TT_OK) {
        tt_error_clear();
        return TT_OK;
    }
    if (text->data[text->bytes - 1] != '[') TT_GO(tt_str_append_char(text, ','));
    TT_GO(tt_json_write(row, 0, false, text));
    if (!embeds || text->data[text->bytes - 1] != '}') goto out;
    text->bytes--;
    TT_GO(tt_str_append_text(text, ", \"data\": \""));
    TT_GO(append_base64(&bytes, text));
    TT_GO(tt_str_append_text(text, "\"}"));
out:
    tt_str_deinit(&bytes);
    return status;
}

tt_status tt_pictures_write(const char *folder, const struct tt_json_value *rows, bool embeds,
                            struct tt_str *text)
{
    double last = -INFINITY;
    size_t count = tt_json_count(rows);
    for (size_t i = 0; i < count; i++)
        last = fmax(last, tt_json_number(tt_json_get(tt_json_at(rows, i), "step")));
    TT_TRY(tt_str_append_char(text, '['));
    for (size_t i = 0; i < count; i++) {
        const struct tt_json_value *row = tt_json_at(rows, i);
        if (embeds && tt_json_number(tt_json_get(row, "step")) != last) continue;
        TT_TRY(write_picture(folder, row, embeds, text));
    }
    return tt_str_append_char(text, ']');
}
