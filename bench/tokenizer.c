/* Speed of tokenizers on one core: encodes a text whole and line by line, and decodes it. One JSON line per
 * tokenizer.
 *
 *     bench_tokenizer TEXT FOLDER...         each FOLDER holds a tokenizer.json
 *
 * Times are the best of several rounds with a scratch that has seen the text (in a real run the word cache is warm
 * after the first line); "cold" is the first round of a fresh scratch. bench/peers/hf_tokenizers.py runs this and
 * the reference library in turns.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "text/tokenizer.h"

enum { ROUNDS = 5 };

struct result {
    double load, cold, whole, lines, decode; /* seconds */
    size_t ids;
};

static tt_status encode_lines(const struct tt_tokenizer *tokenizer, struct tt_tokenizer_scratch *scratch,
                              const struct tt_str *text, struct tt_ids *ids)
{
    for (size_t at = 0; at < text->bytes;) {
        const char *end = memchr(text->data + at, '\n', text->bytes - at);
        size_t next = end == NULL ? text->bytes : (size_t)(end - text->data) + 1;
        ids->count = 0;
        TT_TRY(tt_tokenizer_encode(tokenizer, scratch, text->data + at, next - at, true, ids));
        at = next;
    }
    return TT_OK;
}

static double best(double known, double seconds)
{
    return known == 0 || seconds < known ? seconds : known;
}

static tt_status measure(const char *folder, const struct tt_str *text, struct result *r)
{
    struct tt_tokenizer *tokenizer = NULL;
    struct tt_tokenizer_scratch *scratch = NULL;
    struct tt_ids ids = {0};
    struct tt_str decoded = {0};
    tt_status status = TT_OK;
    double start = tt_clock_seconds();
    TT_GO(tt_tokenizer_load(folder, &tokenizer));
    r->load = tt_clock_seconds() - start;
    TT_GO(tt_tokenizer_scratch_create(tokenizer, &scratch));
    for (int round = 0; round < ROUNDS; round++) {
        start = tt_clock_seconds();
        TT_GO(encode_lines(tokenizer, scratch, text, &ids));
        double seconds = tt_clock_seconds() - start;
        if (round == 0) r->cold = seconds;
        r->lines = best(r->lines, seconds);
        ids.count = 0;
        start = tt_clock_seconds();
        TT_GO(tt_tokenizer_encode(tokenizer, scratch, text->data, text->bytes, true, &ids));
        r->whole = best(r->whole, tt_clock_seconds() - start);
        start = tt_clock_seconds();
        TT_GO(tt_tokenizer_decode(tokenizer, ids.data, ids.count, false, &decoded));
        r->decode = best(r->decode, tt_clock_seconds() - start);
    }
    r->ids = ids.count;
out:
    tt_ids_deinit(&ids);
    tt_str_deinit(&decoded);
    tt_tokenizer_scratch_destroy(scratch);
    tt_tokenizer_destroy(tokenizer);
    return status;
}

int main(int argument_count, char **arguments)
{
    struct tt_str text = {0};
    if (argument_count < 3) {
        fprintf(stderr, "usage: %s TEXT FOLDER...\n", arguments[0]);
        return 2;
    }
    tt_status status = tt_file_read(arguments[1], (size_t)1 << 30, &text);
    for (int i = 2; status == TT_OK && i < argument_count; i++) {
        struct result r = {0};
        status = measure(arguments[i], &text, &r);
        double megabytes = (double)text.bytes / 1e6;
        if (status == TT_OK) {
            printf("{\"bench\": \"tokenizer\", \"tokenizer\": \"%s\", \"bytes\": %zu, \"ids\": %zu, "
                   "\"load_ms\": %.1f, "
                   "\"whole_MB_per_s\": %.2f, \"lines_MB_per_s\": %.2f, \"cold_lines_MB_per_s\": %.2f, "
                   "\"decode_MB_per_s\": %.2f}\n",
                   tt_path_basename(arguments[i]), text.bytes, r.ids, r.load * 1e3, megabytes / r.whole,
                   megabytes / r.lines, megabytes / r.cold, megabytes / r.decode);
            fflush(stdout);
        }
    }
    if (status != TT_OK) {
        char message[2048];
        tt_error_format(tt_error_last(), message, sizeof message);
        fprintf(stderr, "%s", message);
    }
    tt_str_deinit(&text);
    return status == TT_OK ? 0 : 3;
}
