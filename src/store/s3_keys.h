/* Credentials of S3: where they come from, and when they end. They stand in memory alone: no message, record or setting
 * has them, and memory that had them is wiped.
 *
 * The first of these that is there is used, as by AWS' own programs (AWS SDKs and Tools Reference Guide, "Standardized
 * credential providers"):
 *
 * 1. AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, perhaps AWS_SESSION_TOKEN.
 * 2. AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN (a service account of a cluster): AssumeRoleWithWebIdentity of STS.
 * 3. The profile AWS_PROFILE (else "default") of AWS_SHARED_CREDENTIALS_FILE (else ~/.aws/credentials) and of
 *    AWS_CONFIG_FILE (else ~/.aws/config).
 * 4. AWS_CONTAINER_CREDENTIALS_FULL_URI or _RELATIVE_URI (pod identities, ECS), with AWS_CONTAINER_AUTHORIZATION_TOKEN
 *    or the content of AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE.
 * 5. The instance metadata service, only where AWS_EC2_METADATA_SERVICE_ENDPOINT names it, with one second of
 *    patience. */
#ifndef TT_STORE_S3_KEYS_H
#define TT_STORE_S3_KEYS_H

#include <stdbool.h>

#include "base/error.h"
#include "base/str.h"
#include "net/client.h"

struct tt_s3_keys {
    struct tt_str access, secret, token; /* token: empty: none */
    double expires;                      /* seconds since 1970; 0: never */
};
/* Wipes and frees. A zeroed struct is empty. */
void tt_s3_keys_deinit(struct tt_s3_keys *keys);
TT_MUST_USE tt_status tt_s3_keys_copy(const struct tt_s3_keys *from, struct tt_s3_keys *to);

/* `region`: for the address of STS. TT_ERR_USAGE: none of the sources is there; the hint names them. */
TT_MUST_USE tt_status tt_s3_keys_find(struct tt_net *net, const char *region, struct tt_s3_keys *keys);

/* A member of the profile in the files of 3. (with `config` in AWS_CONFIG_FILE alone); false: it is not there. */
bool tt_s3_profile(const char *member, bool config, struct tt_str *value);
/* The value of `member` in [section] of an INI file's text; false: it is not there. "s3.x": x of the indented lines
 * below "s3 =". */
bool tt_s3_ini_value(const char *text, const char *section, const char *member, struct tt_str *value);

#endif
