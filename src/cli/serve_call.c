#include "cli/serve_call.h"

#include <stddef.h>

#define OWN(member) .offset = offsetof(struct tt_serve_call, member)

/* One row reads as one paragraph. */
/* clang-format off */
static const struct tt_setting rows[] = {
    {.name = "host", .type = TT_SETTING_STRING, OWN(host), .default_text = "127.0.0.1",
     .help = "Address to listen at. Other addresses than those of this machine itself are open to everybody who can "
             "reach them."},
    {.name = "port", .type = TT_SETTING_INT, OWN(port), .default_text = "8000", .minimum = 0, .maximum = 65535,
     .help = "Port to listen at; 0: a free one, which is printed."},
    {.name = "allowed_hosts", .type = TT_SETTING_JSON, OWN(allowed_hosts),
     .help = "Host names by which clients may ask, as trimtab.example.com or *.example.com, besides localhost and "
             "addresses in numbers. Not given: no others at loopback, all elsewhere; a proxy that keeps the name of "
             "the client's request needs it."},
    {.name = "served_model_name", .type = TT_SETTING_STRING, OWN(served_model_name),
     .help = "Name of the base model for clients; not given: the last part of its path. Adapters have the last parts "
             "of theirs."},
    {.name = "max_loras", .type = TT_SETTING_INT, OWN(call.spec.job.model.adapter_places), .default_text = "0",
     .minimum = 0, .maximum = 256,
     .help = "Adapters that have a place in memory, those of adapter_name_or_path among them. With a number the server "
             "loads and unloads adapters while it runs (/v1/load_lora_adapter, /v1/unload_lora_adapter), from folders "
             "of its machine that whoever may ask names: give keys with it. 0: those of the start, for good."},
    {.name = "max_lora_rank", .type = TT_SETTING_INT, OWN(call.spec.job.model.adapter_rank), .default_text = "16",
     .minimum = 1, .maximum = 4096, .needs = "max_loras",
     .help = "Largest rank of adapters that are loaded while the server runs; each place has memory for it in every "
             "linear of the layers."},
    {.name = "max_running", .aliases = "max_num_seqs", .type = TT_SETTING_INT, OWN(slots), .default_text = "16",
     .minimum = 1, .maximum = 4096,
     .help = "Requests that run at the same time; memory is kept for context_length tokens of each."},
    {.name = "max_waiting", .type = TT_SETTING_INT, OWN(waiting), .default_text = "256", .minimum = 0,
     .maximum = 1 << 16, .help = "Requests that wait for others to end; further ones get the status 429."},
    {.name = "max_per_client", .type = TT_SETTING_INT, OWN(per_client), .default_text = "0", .minimum = 0,
     .maximum = 1 << 16,
     .help = "Answers of one client, the holder of a key or an address, that run or wait at the same time; further "
             "ones get the status 429. 0: any number. Free places go to the client that has fewest running, whatever "
             "the number."},
    {.name = "api_key_file", .type = TT_SETTING_STRING, OWN(api_key_file), .path = TT_PATH_READ,
     .help = "File of keys, one a line, alone or behind the client's name: requests must have one in the header "
             "Authorization, as OpenAI's clients send it. Keys are never printed."},
    {.name = "chat_page", .type = TT_SETTING_BOOL, OWN(chat_page), .default_text = "true",
     .help = "A page at the address / to talk to the models in a browser. Keys are asked for there, too."},
    {.name = "max_connections", .type = TT_SETTING_INT, OWN(connections), .default_text = "512", .minimum = 1,
     .maximum = 1 << 16,
     .help = "Connections; for a further one the oldest idle one is closed, of the client that has most of them."},
    {.name = "max_request_size", .type = TT_SETTING_BYTES, OWN(request_bytes), .default_text = "1MiB",
     .help = "Largest body of a request; larger ones get the status 413."},
    {.name = "request_timeout", .type = TT_SETTING_DOUBLE, OWN(request_seconds), .default_text = "60",
     .minimum = 0.5, .maximum = 86400,
     .help = "Seconds in which a client must send its request, and fetch the rest of an answer that is complete."},
    {.name = "drain_timeout", .type = TT_SETTING_DOUBLE, OWN(drain_seconds), .default_text = "0", .minimum = 0,
     .maximum = 86400,
     .help = "Seconds that running requests may take after a request to stop, while new ones are refused; 0: they end "
             "at once, as all do after a second request."},
    {.name = NULL},
};
/* clang-format on */

size_t tt_serve_call_sections(struct tt_setting_section *sections)
{
    return tt_talk_call_sections("Server", rows, sections);
}
