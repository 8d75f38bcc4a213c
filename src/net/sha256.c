#include "net/sha256.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

/* The part of libcrypto's interface that is used; its ABI is that of all versions 3. */
static struct {
    void *(*new_state)(void);
    void (*free_state)(void *state);
    const void *(*sha256)(void);
    int (*init)(void *state, const void *kind, void *engine);
    int (*update)(void *state, const void *data, size_t bytes);
    int (*final)(void *state, unsigned char *digest, unsigned *bytes);
    bool is_there;
} crypto;

static void open_crypto(void)
{
    const struct {
        const char *name;
        void *place;
    } symbols[] = {
        {"EVP_MD_CTX_new", &crypto.new_state}, {"EVP_MD_CTX_free", &crypto.free_state},
        {"EVP_sha256", &crypto.sha256},        {"EVP_DigestInit_ex", &crypto.init},
        {"EVP_DigestUpdate", &crypto.update},  {"EVP_DigestFinal_ex", &crypto.final},
    };
    /* libcurl of Debian has loaded it; it stays open. */
    void *library = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (symbol == NULL) return;
        memcpy(symbols[i].place, &symbol, sizeof symbol);
    }
    crypto.is_there = true;
}

void tt_sha256_begin_plain(struct tt_sha256 *sum)
{
    *sum = (struct tt_sha256){0};
    crypto_hash_sha256_init(&sum->plain);
}

void tt_sha256_begin(struct tt_sha256 *sum)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    tt_sha256_begin_plain(sum);
    (void)pthread_once(&once, open_crypto);
    if (!crypto.is_there) return;
    sum->library = crypto.new_state();
    /* A configuration of OpenSSL may forbid any algorithm. */
    if (sum->library == NULL || crypto.init(sum->library, crypto.sha256(), NULL) == 1) return;
    crypto.free_state(sum->library);
    sum->library = NULL;
}

void tt_sha256_add(struct tt_sha256 *sum, const void *data, size_t bytes)
{
    if (sum->library == NULL)
        crypto_hash_sha256_update(&sum->plain, data, bytes);
    else
        sum->failed |= crypto.update(sum->library, data, bytes) != 1;
}

void tt_sha256_end(struct tt_sha256 *sum, unsigned char digest[TT_SHA256_BYTES])
{
    if (sum->library == NULL) {
        crypto_hash_sha256_final(&sum->plain, digest);
        return;
    }
    sum->failed |= crypto.final(sum->library, digest, NULL) != 1;
    crypto.free_state(sum->library);
    sum->library = NULL;
    if (sum->failed) memset(digest, 0, TT_SHA256_BYTES);
}
