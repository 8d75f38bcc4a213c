/* The members of a request to the API: what a row of their table says, and the readers that several rows share.
 * Inside src/serve only. */
#ifndef TT_SERVE_API_MEMBER_H
#define TT_SERVE_API_MEMBER_H

#include "serve/api_request.h"

struct tt_api_parse {
    struct tt_api_request *request;
    const struct tt_json_value *root;
    enum tt_api_form form;
    const char *param; /* the member that is being read: errors name it */
};

struct tt_api_member;
/* Reads a member that is there and not null. Its name is p->param. */
typedef tt_status tt_api_read(struct tt_api_parse *p, const struct tt_api_member *member,
                              const struct tt_json_value *value);

/* Values that another server's default has, and that change nothing here. */
enum tt_api_neutral {
    TT_API_NONE, /* no value at all */
    TT_API_ZERO,
    TT_API_ONE,
    TT_API_FALSE,
    TT_API_TRUE,
    TT_API_EMPTY,
    TT_API_FREE_CHOICE,
    TT_API_TEXT_ALONE
};

struct tt_api_member {
    const char *name;
    int forms; /* enum tt_api_form of the bodies that have it */
    tt_api_read *read;
    size_t offset;      /* of the field of tt_api_request that the reader sets */
    double least, most; /* of a number */
    enum tt_api_neutral only;
};

TT_MUST_USE tt_status tt_api_read_number(struct tt_api_parse *p, const struct tt_api_member *member,
                                         const struct tt_json_value *value); /* double */
TT_MUST_USE tt_status tt_api_read_integer(struct tt_api_parse *p, const struct tt_api_member *member,
                                          const struct tt_json_value *value); /* int64_t */
TT_MUST_USE tt_status tt_api_read_flag(struct tt_api_parse *p, const struct tt_api_member *member,
                                       const struct tt_json_value *value); /* bool */
/* A member that is supported only at values without effect. */
TT_MUST_USE tt_status tt_api_read_neutral(struct tt_api_parse *p, const struct tt_api_member *member,
                                          const struct tt_json_value *value);

TT_MUST_USE tt_status tt_api_read_not_flag(struct tt_api_parse *p, const struct tt_api_member *member,
                                           const struct tt_json_value *value); /* bool: the opposite */
bool tt_api_is_text(const struct tt_json_value *value, const char *text);
/* The field of the request that the row names. */
void *tt_api_field(const struct tt_api_parse *p, const struct tt_api_member *member);
/* Reads the members of `table` that the body has, in the order of the table. */
TT_MUST_USE tt_status tt_api_read_members(struct tt_api_parse *p, const struct tt_api_member *table,
                                          size_t count);

#endif
