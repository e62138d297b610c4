#include "server/config/listen_address.h"

#include "core/digits.h"

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
