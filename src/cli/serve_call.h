/* The settings of `serve`, which the Deployment of a server has, too. */
#ifndef TT_CLI_SERVE_CALL_H
#define TT_CLI_SERVE_CALL_H

#include "cli/talk_call.h"

/* The first member of the command's struct. */
struct tt_serve_call {
    struct tt_talk_call call; /* must be first: the offsets of its settings apply here */
    const char *host, *allowed_hosts, *served_model_name;
    const char *api_key_file;
    int64_t port, slots, waiting, per_client, connections;
    size_t request_bytes;
    bool chat_page;
    double request_seconds, drain_seconds;
};

/* Fills `sections` [TT_COMMAND_SECTIONS_MAX]. Returns their number. */
size_t tt_serve_call_sections(struct tt_setting_section *sections);

#endif
