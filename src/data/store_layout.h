/* The layout of a store's file (data/store_file.h), for its writer and its reader. */
#ifndef TT_DATA_STORE_LAYOUT_H
#define TT_DATA_STORE_LAYOUT_H

#include "data/store.h"

enum { TT_STORE_ALIGNMENT = 64, TT_STORE_BLOCK_TOKENS = 1 << 14, TT_STORE_BYTE_ORDER = 0x01020304 };
#define TT_STORE_MAGIC "TTROWS5" /* the digit is the version of the layout */

struct tt_store_header {
    char magic[8];
    uint64_t byte_order;
    uint64_t key_bytes, token_count, sample_count, text_bytes, part_count;
    uint64_t rows_sum, tables_sum, header_sum;
    struct tt_dataset_report report;
};
_Static_assert(sizeof(struct tt_store_sample) == 40 && sizeof(size_t) == 8,
               "samples are written as they are");

/* Offsets. */
struct tt_store_layout {
    uint64_t key, ids, supervised, samples, texts, parts, sums, end;
};

/* false: a size overflows. */
bool tt_store_lay_out(const struct tt_store_header *header, struct tt_store_layout *out);
uint64_t tt_store_header_sum(const struct tt_store_header *header, const char *key);

#endif
