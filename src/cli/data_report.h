/* The output of `trimtab data`. All texts are escaped for terminals. */
#ifndef TT_CLI_DATA_REPORT_H
#define TT_CLI_DATA_REPORT_H

#include "job/inputs.h"

struct tt_data_view {
    const struct tt_data_config *data;
    size_t first, count;  /* samples of the training data to show */
    const char *on, *off; /* around supervised text */
};

/* Appends the samples of the view. */
TT_MUST_USE tt_status tt_data_report_rows(const struct tt_inputs *inputs, const struct tt_data_view *view,
                                          struct tt_str *text);
/* Appends the figures of the training data, or of the evaluation data. */
TT_MUST_USE tt_status tt_data_report_text(const struct tt_inputs *inputs, const struct tt_data_view *view,
                                          bool eval, struct tt_str *text);
/* Appends everything as one JSON object. */
TT_MUST_USE tt_status tt_data_report_json(const struct tt_inputs *inputs, const struct tt_data_view *view,
                                          struct tt_str *text);

#endif
