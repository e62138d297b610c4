#include "server/config/listen_address.h"

#include "core/digits.h"
#include "core/log.h"

#include <stdint.h>
#include <string.h>

bool td_listen_address_split(const char *listen, char *address, size_t capacity, const char **port)
{
    const char *colon = strrchr(listen, ':');
    if (colon == NULL || colon[1] == '\0')
        return false;
    size_t len = (size_t)(colon - listen);
    if (len >= 2 && listen[0] == '[' && listen[len - 1] == ']') {
        listen++;
        len -= 2;
    }
    if (len >= capacity)
        return false;
    memcpy(address, listen, len);
    address[len] = '\0';
    *port = colon + 1;
    uint64_t number;
    return td_number_read(td_text_of(*port), UINT16_MAX, &number);
}

bool td_listen_address_is_valid(const char *listen)
{
    char address[TD_LISTEN_ADDRESS_BYTES];
    const char *port;
    return td_listen_address_split(listen, address, sizeof address, &port);
}

bool td_address_is_loopback(const struct in6_addr *address)
{
    return IN6_IS_ADDR_LOOPBACK(address) || (IN6_IS_ADDR_V4MAPPED(address) && address->s6_addr[12] == 127);
}

bool td_address_of(const struct sockaddr_storage *name, struct in6_addr *address)
{
    if (name->ss_family == AF_INET6) {
        *address = ((const struct sockaddr_in6 *)(const void *)name)->sin6_addr;
        return true;
    }
    memset(address, 0, sizeof *address);
    memset(address->s6_addr + 10, 0xFF, 2);
    memcpy(address->s6_addr + 12, &((const struct sockaddr_in *)(const void *)name)->sin_addr, 4);
    return name->ss_family == AF_INET;
}

static bool judge_tokens(const struct td_exposure *exposure, struct td_error *err)
{
    if (exposure->has_tokens)
        return true;
    if (exposure->require_auth)
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "--require-auth: others reach %s, and it asks for no tokens; make one with tensord token "
                            "new NAME --tokens FILE and give --tokens FILE, or listen on 127.0.0.1",
                            exposure->url);
    if (exposure->publish_any)
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "--publish any: others reach %s, and could publish without a token; make one with tensord "
                            "token new NAME --tokens FILE --write and give --tokens FILE, listen on 127.0.0.1, or "
                            "give --publish local",
                            exposure->url);
    td_log(TD_LOG_WARN,
           "others reach %s without a token: every client that can connect can read every model; make a token with "
           "tensord token new NAME --tokens FILE and give --tokens FILE, or listen on 127.0.0.1",
           exposure->url);
    return true;
}

static bool judge_tls(const struct td_exposure *exposure, struct td_error *err)
{
    if (exposure->has_tls)
        return true;
    if (exposure->require_tls)
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "--require-tls: others reach %s, and it has no TLS; give --tls-cert and --tls-key, or "
                            "listen on 127.0.0.1",
                            exposure->url);
    td_log(
        TD_LOG_WARN,
        "others reach %s without TLS: others on the network path can read %s and change what is sent; give --tls-cert "
        "and --tls-key, or listen on 127.0.0.1",
        exposure->url, exposure->has_tokens ? "tokens and models" : "models");
    return true;
}

bool td_exposure_judge(const struct td_exposure *exposure, struct td_error *err)
{
    return exposure->url == NULL || (judge_tokens(exposure, err) && judge_tls(exposure, err));
}
