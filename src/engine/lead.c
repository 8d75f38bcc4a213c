#include "engine/lead.h"

tt_status tt_lead_init(struct tt_device *device, struct tt_lead *lead)
{
    tt_status status = TT_OK;
    *lead = (struct tt_lead){0};
    for (int i = 0; i < TT_LEAD_BLOCKS; i++) TT_GO(tt_event_create(device, &lead->reached[i]));
out:
    if (status != TT_OK) tt_lead_deinit(lead);
    return status;
}

void tt_lead_deinit(struct tt_lead *lead)
{
    for (int i = 0; i < TT_LEAD_BLOCKS; i++)
        if (lead->reached[i] != NULL) tt_event_destroy(lead->reached[i]);
    *lead = (struct tt_lead){0};
}

tt_status tt_lead_next(struct tt_lead *lead, struct tt_stream *compute)
{
    TT_TRY(tt_event_record(lead->reached[lead->queued++ % TT_LEAD_BLOCKS], compute));
    return tt_event_synchronize(lead->reached[lead->queued % TT_LEAD_BLOCKS]);
}
