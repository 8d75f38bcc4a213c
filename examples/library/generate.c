/* Completes prompts through libtrimtab and shows the text as it comes, then counts its tokens.
 *
 *     cc generate.c $(pkg-config --cflags --libs trimtab) -o generate
 *     ./generate MODEL_FOLDER PROMPT [NAME VALUE]...
 *
 * The names are those of docs/settings.md: ./generate model "Once" adapter_name_or_path out max_new_tokens 40
 */
#include <stdio.h>
#include <string.h>
#include <trimtab.h>

struct text {
    char data[65536];
    size_t bytes;
};

/* Shows a piece and keeps it; ends the completion when there is no more room. */
static bool on_piece(void *context, int index, const char *piece, size_t bytes)
{
    struct text *text = context;
    (void)index; /* there is one prompt */
    fwrite(piece, 1, bytes, stdout);
    fflush(stdout);
    if (bytes > sizeof text->data - text->bytes) return false;
    memcpy(text->data + text->bytes, piece, bytes);
    text->bytes += bytes;
    return true;
}

static tt_status complete(const char *folder, const char *prompt, int count, char **pairs, struct text *text)
{
    struct tt_job *job = NULL;
    struct tt_completer *completer = NULL;
    tt_status status = tt_job_create(&job);
    if (status == TT_OK) status = tt_job_set(job, "model_name_or_path", folder);
    if (status == TT_OK) status = tt_job_set(job, "per_device_eval_batch_size", "1");
    for (int i = 0; i + 1 < count && status == TT_OK; i += 2)
        status = tt_job_set(job, pairs[i], pairs[i + 1]);
    if (status == TT_OK) status = tt_completer_create(job, &completer);
    if (status == TT_OK) status = tt_completer_run(completer, &prompt, 1, on_piece, text);
    tt_completer_destroy(completer);
    tt_job_destroy(job);
    return status;
}

static tt_status count_tokens(const char *folder, const struct text *text, size_t *count)
{
    struct tt_codec *codec = NULL;
    const int32_t *ids;
    tt_status status = tt_codec_open(folder, &codec);
    if (status == TT_OK) status = tt_codec_encode(codec, text->data, text->bytes, false, &ids, count);
    tt_codec_close(codec);
    return status;
}

int main(int argc, char **argv)
{
    static struct text text;
    size_t count = 0;
    if (argc < 3 || argc % 2 != 1) {
        fprintf(stderr, "usage: generate MODEL_FOLDER PROMPT [NAME VALUE]...\n");
        return 2;
    }
    tt_status status = complete(argv[1], argv[2], argc - 3, argv + 3, &text);
    if (status == TT_OK) status = count_tokens(argv[1], &text, &count);
    if (status == TT_OK) {
        printf("\n%zu tokens\n", count);
        return 0;
    }
    char message[2048];
    tt_error_format(tt_error_last(), message, sizeof message);
    fprintf(stderr, "%s\n", message);
    return 1;
}
