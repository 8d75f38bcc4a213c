#include "data/show.h"

#include "data/store.h"

/* Decoding from the start for every piece is quadratic, so the shown length is limited. */
enum { SHOWN_TOKENS = 2048 };

/* Replaces `text` by that of tokens first .. end - 1. The text of a piece is its addition to the text before it:
 * decoded alone it would lose the blank that some tokenizers drop at the start, and characters that span tokens. */
static tt_status decode_piece(const struct tt_tokenizer *tokenizer, const struct tt_sample *sample,
                              int32_t first, int32_t end, struct tt_str *before, struct tt_str *text)
{
    tt_str_clear(text);
    if (tokenizer == NULL) {
        for (int32_t i = first; i < end; i++)
            TT_TRY(tt_str_printf(text, "%s%d", i > first ? " " : "", (int)sample->ids[i]));
        return TT_OK;
    }
    struct tt_str now = {0};
    tt_status status = tt_tokenizer_decode(tokenizer, sample->ids, (size_t)end, false, &now);
    if (status == TT_OK) {
        size_t common = 0;
        while (common < before->bytes && common < now.bytes && before->data[common] == now.data[common])
            common++;
        status = tt_str_append(text, tt_str_text(&now) + common, now.bytes - common);
    }
    tt_str_deinit(before);
    *before = now;
    return status;
}

tt_status tt_dataset_pieces(const struct tt_dataset *dataset, size_t index,
                            const struct tt_tokenizer *tokenizer, tt_show_piece *visit, void *context)
{
    struct tt_sample sample = tt_dataset_sample(dataset, index);
    int32_t shown = sample.count < SHOWN_TOKENS ? sample.count : SHOWN_TOKENS;
    struct tt_str before = {0}, text = {0};
    tt_status status = TT_OK;
    TT_TRY(tt_store_check(tt_dataset_store(dataset), index, 0, sample.count));
    for (int32_t first = 0; first < shown;) {
        int32_t end = first + 1;
        while (end < shown && sample.supervised[end] == sample.supervised[first]) end++;
        TT_GO(decode_piece(tokenizer, &sample, first, end, &before, &text));
        struct tt_show_part part = {{tt_str_text(&text), text.bytes},
                                    sample.supervised[first] != 0,
                                    end < shown ? 0 : sample.count - shown};
        TT_GO(visit(context, &part));
        first = end;
    }
out:
    tt_str_deinit(&before);
    tt_str_deinit(&text);
    return status;
}

struct marks {
    const char *on, *off;
    struct tt_str *text;
};

static tt_status add_marked(void *context, const struct tt_show_part *part)
{
    const struct marks *marks = context;
    if (part->supervised) TT_TRY(tt_str_append_text(marks->text, marks->on));
    TT_TRY(tt_str_append(marks->text, part->text.data, part->text.bytes));
    if (part->supervised) TT_TRY(tt_str_append_text(marks->text, marks->off));
    if (part->left == 0) return TT_OK;
    return tt_str_printf(marks->text, " ... (%d more tokens)", (int)part->left);
}

tt_status tt_dataset_show(const struct tt_dataset *dataset, size_t index,
                          const struct tt_tokenizer *tokenizer, const char *on, const char *off,
                          struct tt_str *text)
{
    struct marks marks = {on, off, text};
    return tt_dataset_pieces(dataset, index, tokenizer, add_marked, &marks);
}
