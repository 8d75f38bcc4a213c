#include "job/data_key.h"

#include <string.h>

#include "base/crc64.h"
#include "base/file.h"
#include "data/settings.h"
#include "job/compared.h"

static tt_status write_settings(const struct tt_data_config *data, struct tt_str *key)
{
    for (const struct tt_setting *row = tt_data_settings; row->name != NULL; row++)
        if ((row->changes & TT_CHANGES_ROWS) != 0)
            TT_TRY(tt_job_write_setting(row, (const char *)data + row->offset, key));
    if (data->text_part) TT_TRY(tt_str_append_text(key, "without images\n"));
    if (data->rows_kind != NULL) TT_TRY(tt_str_printf(key, "%s\n", data->rows_kind->plural));
    bool streams = tt_data_streams(data);
    return tt_str_printf(key, "stream: %d, texts in pieces: %d\n", (int)streams,
                         streams && tt_data_holds_out(data));
}

struct texts {
    const char *folder;
    struct tt_str *key;
    bool dates; /* one of them asks for the date */
};

static tt_status add_text(struct texts *texts, const char *name, const char *data, size_t bytes)
{
    static const char asks[] = "strftime_now";
    if (memmem(data, bytes, asks, sizeof asks - 1) != NULL) texts->dates = true;
    return tt_str_printf(texts->key, "%s: %zu %016llx\n", name, bytes,
                         (unsigned long long)tt_crc64(0, data, bytes));
}

static tt_status add_file(void *context, const char *name)
{
    struct texts *texts = context;
    struct tt_str data = {0};
    struct tt_path path;
    TT_TRY(tt_path_set(&path, texts->folder, name));
    tt_status status = tt_file_read(path.text, TT_MODEL_FOLDER_COPY_BYTES_MAX, &data);
    if (status == TT_OK) status = add_text(texts, name, tt_str_text(&data), data.bytes);
    tt_str_deinit(&data);
    return status;
}

tt_status tt_data_key_make(const struct tt_data_key_source *source, struct tt_str *key, bool *keeps)
{
    struct texts texts = {source->tokenizer_folder, key, false};
    TT_TRY(write_settings(source->data, key));
    TT_TRY(tt_model_folder_list_tokenizer(source->tokenizer_folder, true, add_file, &texts));
    for (size_t i = 0; i < source->templates->template_count; i++) {
        const struct tt_chat_template *template = &source->templates->templates[i];
        TT_TRY(tt_str_printf(key, "template '%s' ", template->name));
        TT_TRY(add_text(&texts, "text", template->text, strlen(template->text)));
    }
    for (size_t i = 0; i < source->file_count; i++)
        if (source->files[i].text != NULL)
            TT_TRY(add_text(&texts, source->files[i].name, source->files[i].text,
                            strlen(source->files[i].text)));
    if (texts.dates && source->data->date != NULL)
        TT_TRY(tt_str_printf(key, "date: %s\n", source->data->date));
    *keeps = !texts.dates || source->dated;
    return TT_OK;
}
