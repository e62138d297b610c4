#include "storage/fetch/fetch_guard.h"

#include "core/digits.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

/* ---- addresses ----------------------------------------------------------------------------------------- */

static bool has_prefix(const uint8_t *address, const uint8_t *prefix, unsigned bits)
{
    unsigned bytes = bits / 8;
    unsigned rest = bits % 8;
    return memcmp(address, prefix, bytes) == 0 &&
           (rest == 0 || (address[bytes] >> (8 - rest)) == (prefix[bytes] >> (8 - rest)));
}

enum td_fetch_reach td_fetch_reach_of_ipv4(const uint8_t address[4])
{
    static const struct {
        uint8_t prefix[4];
        unsigned bits;
        enum td_fetch_reach reach;
    } ranges[] = {
        {{169, 254}, 16, TD_FETCH_LINK_LOCAL},         /* RFC 3927 */
        {{168, 63, 129, 16}, 32, TD_FETCH_METADATA},   /* of Azure */
        {{100, 100, 100, 200}, 32, TD_FETCH_METADATA}, /* of Alibaba Cloud */
        {{0}, 8, TD_FETCH_PRIVATE},                    /* "this network", RFC 791; 0.0.0.0 leads to this host */
        {{10}, 8, TD_FETCH_PRIVATE},                   /* RFC 1918 */
        {{172, 16}, 12, TD_FETCH_PRIVATE},
        {{192, 168}, 16, TD_FETCH_PRIVATE},
        {{100, 64}, 10, TD_FETCH_PRIVATE},   /* shared by customers of a provider, RFC 6598 */
        {{127}, 8, TD_FETCH_PRIVATE},        /* loopback, RFC 1122 */
        {{192, 0, 0}, 24, TD_FETCH_PRIVATE}, /* protocol assignments, RFC 6890 */
        {{198, 18}, 15, TD_FETCH_PRIVATE},   /* tests of networks, RFC 2544 */
        {{224}, 3, TD_FETCH_PRIVATE},        /* multicast, reserved, broadcast */
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (has_prefix(address, ranges[i].prefix, ranges[i].bits))
            return ranges[i].reach;
    return TD_FETCH_PUBLIC;
}

enum { NOTHING = -1 };

struct range {
    uint8_t prefix[16];
    unsigned bits;
    enum td_fetch_reach reach;
    int ipv4_at; /* offset of the embedded IPv4 address that decides; NOTHING: reach decides */
};

/* Returns the special range that holds an IPv6 address, or NULL. */
static const struct range *find_range(const uint8_t address[16])
{
    enum { OF_IPV4_AT_2 = 2, OF_IPV4_AT_12 = 12 };
    static const struct range ranges[] = {
        {{0}, 127, TD_FETCH_PRIVATE, NOTHING},      /* unspecified and loopback, RFC 4291 2.5.2 and 2.5.3 */
        {{0}, 96, TD_FETCH_PRIVATE, OF_IPV4_AT_12}, /* compatible with IPv4, RFC 4291 2.5.5.1 */
        {{[10] = 0xFF, [11] = 0xFF}, 96, TD_FETCH_PRIVATE, OF_IPV4_AT_12},     /* mapped, RFC 4291 2.5.5.2 */
        {{0x00, 0x64, 0xFF, 0x9B}, 96, TD_FETCH_PRIVATE, OF_IPV4_AT_12},       /* translated, RFC 6052 */
        {{0x00, 0x64, 0xFF, 0x9B, 0x00, 0x01}, 48, TD_FETCH_PRIVATE, NOTHING}, /* translated locally, RFC 8215 */
        {{0x20, 0x02}, 16, TD_FETCH_PRIVATE, OF_IPV4_AT_2},                    /* 6to4, RFC 3056 */
        {{0xFE, 0x80}, 10, TD_FETCH_LINK_LOCAL, NOTHING},                      /* RFC 4291 2.5.6 */
        {{0xFE, 0xC0}, 10, TD_FETCH_PRIVATE, NOTHING},                         /* site-local, RFC 3879 */
        {{0xFD, 0, 0x0E, 0xC2, [14] = 0x02, [15] = 0x54}, 128, TD_FETCH_METADATA, NOTHING}, /* of AWS */
        {{0xFC}, 7, TD_FETCH_PRIVATE, NOTHING},                                             /* unique local, RFC 4193 */
        {{0xFF}, 8, TD_FETCH_PRIVATE, NOTHING},                                             /* multicast */
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (has_prefix(address, ranges[i].prefix, ranges[i].bits))
            return &ranges[i];
    return NULL;
}

enum td_fetch_reach td_fetch_reach_of_ipv6(const uint8_t address[16])
{
    const struct range *range = find_range(address);
    if (range == NULL)
        return TD_FETCH_PUBLIC;
    return range->ipv4_at == NOTHING ? range->reach : td_fetch_reach_of_ipv4(address + range->ipv4_at);
}

bool td_fetch_ipv4_within(const struct in6_addr *address, struct in6_addr *out)
{
    const struct range *range = find_range(address->s6_addr);
    if (range == NULL || range->ipv4_at == NOTHING)
        return false;
    td_fetch_map_ipv4(address->s6_addr + range->ipv4_at, out);
    return true;
}

/* Reads the text of an address; an IPv4 address becomes IPv4-mapped. Returns false for other text. */
static bool read_address(const char *text, struct in6_addr *address)
{
    uint8_t ipv4[4];
    if (inet_pton(AF_INET, text, ipv4) != 1)
        return inet_pton(AF_INET6, text, address) == 1;
    td_fetch_map_ipv4(ipv4, address);
    return true;
}

/* Returns whether the host of a URL is a private address, and not a name. */
static bool is_private_address(const char *host)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr address;
    size_t len = strlen(host);
    bool has_brackets = len > 2 && host[0] == '[' && host[len - 1] == ']';
    (void)snprintf(text, sizeof text, "%.*s", (int)(has_brackets ? len - 2 : len), host + (has_brackets ? 1 : 0));
    return read_address(text, &address) && td_fetch_reach_of_ipv6(address.s6_addr) == TD_FETCH_PRIVATE;
}

/* Returns whether requests may go by proxies, which libcurl takes from these variables. */
static bool has_proxies(void)
{
    static const char *const names[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && value[0] != '\0')
            return true;
    }
    return false;
}

/* ---- requests ------------------------------------------------------------------------------------------ */

/* The URL of the current request. */
struct request {
    bool is_redirected, has_tls;
    int port; /* of the URL */
    char host[TD_FETCH_HOST_BYTES];
};

/* Reads the URL of the handle's request. Returns false when it cannot be read. */
static bool describe_request(const struct td_fetch_guard *guard, struct request *request)
{
    long redirects = 0;
    char *url = NULL;
    char *scheme = NULL;
    char *host = NULL;
    char *port = NULL;
    uint64_t number = 0;
    CURLU *parts = curl_url();
    bool ok = parts != NULL && curl_easy_getinfo(guard->easy, CURLINFO_REDIRECT_COUNT, &redirects) == CURLE_OK &&
              curl_easy_getinfo(guard->easy, CURLINFO_EFFECTIVE_URL, &url) == CURLE_OK && url != NULL &&
              curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
              curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
              curl_url_get(parts, CURLUPART_HOST, &host, 0) == CURLUE_OK && strlen(host) < sizeof request->host &&
              curl_url_get(parts, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
              td_number_read(td_text_of(port), UINT16_MAX, &number);
    if (ok) {
        request->is_redirected = redirects > 0;
        request->has_tls = strcasecmp(scheme, "https") == 0;
        request->port = (int)number;
        (void)snprintf(request->host, sizeof request->host, "%s", host);
    }
    curl_free(port);
    curl_free(scheme);
    curl_free(host);
    curl_url_cleanup(parts);
    return ok;
}

/* Records why a request is refused. Returns false. */
static bool refuse_request(struct td_fetch_guard *guard, const char *before, const char *host, const char *after)
{
    (void)snprintf(guard->refusal, sizeof guard->refusal, "%s%.100s%s", before, host, after);
    return false;
}

/* The address that a request is going to, or has gone to. */
struct place {
    char text[INET6_ADDRSTRLEN];
    bool is_known; /* whether it is an IPv4 or IPv6 address */
    struct in6_addr address;
    int port;
};

static enum td_fetch_reach reach_of(const struct place *place)
{
    return place->is_known ? td_fetch_reach_of_ipv6(place->address.s6_addr) : TD_FETCH_PRIVATE;
}

/* Returns whether the address and the port are not where the URL leads to, but a proxy's, which decides by itself: the
 * port is another one than the URL's, or it is where the first request went. */
static bool is_proxy(const struct td_fetch_guard *guard, const struct place *place, const struct request *request)
{
    return place->port != request->port || (place->port == guard->port && strcmp(place->text, guard->address) == 0);
}

/* Decides whether a redirect may lead to a public address: not if the address belongs to this host or to a network of
 * it. Networks that also hold the first request's address do not count, unless that may be a proxy's address. */
static bool may_go_to_public(struct td_fetch_guard *guard, const struct place *place)
{
    struct in6_addr first;
    struct in6_addr ipv4;
    enum td_fetch_near near;
    bool has_first = !has_proxies() && read_address(guard->address, &first);
    bool has_ipv4 = td_fetch_ipv4_within(&place->address, &ipv4);
    if (!td_fetch_near_look(&place->address, has_ipv4 ? &ipv4 : NULL, has_first ? &first : NULL, &near))
        return refuse_request(guard, "it redirects to ", place->text, ", but this host's own addresses cannot be read");
    if (near == TD_FETCH_OWN)
        return refuse_request(guard, "it redirects to ", place->text,
                              ", an address of this host, but is not there itself");
    if (near == TD_FETCH_CONNECTED)
        return refuse_request(guard, "it redirects to ", place->text,
                              ", an address of this host's network, but is not in that itself");
    return true;
}

/* Decides whether the request may go to the place. */
static bool may_go(struct td_fetch_guard *guard, const struct place *place, struct request *request)
{
    const enum td_fetch_reach reach = reach_of(place);
    const char *address = place->text;
    if (!describe_request(guard, request))
        return refuse_request(guard, "the URL that it leads to cannot be read", "", "");
    if (reach == TD_FETCH_LINK_LOCAL)
        return refuse_request(guard, request->is_redirected ? "it redirects to " : "its address is ", address,
                              ", which is link-local; such addresses are never asked");
    if (reach == TD_FETCH_METADATA)
        return refuse_request(guard, request->is_redirected ? "it redirects to " : "its address is ", address,
                              ", which is a cloud's service of credentials; such addresses are never asked");
    if (!request->is_redirected)
        return true;
    if (guard->has_tls && !request->has_tls)
        return refuse_request(guard, "it redirects from https to http, to ", request->host, "");
    const bool may_be_private = guard->is_private || is_proxy(guard, place, request);
    if (reach == TD_FETCH_PUBLIC && !may_be_private && !may_go_to_public(guard, place))
        return false;
    if (reach == TD_FETCH_PRIVATE && !may_be_private)
        return refuse_request(
            guard, "it redirects to ", address,
            ", an address of this host or of a private network, but is not at such an address itself");
    if (guard->needs_tls && !request->has_tls && strcasecmp(guard->host, request->host) != 0)
        return refuse_request(guard, "it redirects to another host without https, ", request->host,
                              ", and no digest would show whether its bytes are right");
    return true;
}

static curl_socket_t open_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct td_fetch_guard *guard = context;
    struct request request;
    struct place place = {.text = "an unknown address"};
    (void)purpose;
    if (address->family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, &address->addr, sizeof in);
        td_fetch_map_ipv4((const uint8_t *)&in.sin_addr, &place.address);
        place.is_known = true;
        place.port = ntohs(in.sin_port);
        (void)inet_ntop(AF_INET, &in.sin_addr, place.text, sizeof place.text);
    } else if (address->family == AF_INET6) {
        struct sockaddr_in6 in;
        memcpy(&in, &address->addr, sizeof in);
        place.address = in.sin6_addr;
        place.is_known = true;
        place.port = ntohs(in.sin6_port);
        (void)inet_ntop(AF_INET6, &in.sin6_addr, place.text, sizeof place.text);
    }
    if (!may_go(guard, &place, &request))
        return CURL_SOCKET_BAD;
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

/* Judges a connection that is open, perhaps since an earlier request. */
static int before_request(void *context, char *address, char *own_address, int port, int own_port)
{
    struct td_fetch_guard *guard = context;
    struct request request;
    struct place place = {.port = port};
    (void)own_address, (void)own_port;
    (void)snprintf(place.text, sizeof place.text, "%s", address);
    place.is_known = read_address(place.text, &place.address);
    guard->refusal[0] = '\0'; /* another address of the host was good */
    if (!may_go(guard, &place, &request))
        return CURL_PREREQFUNC_ABORT;
    guard->has_tls = request.has_tls;
    if (!request.is_redirected) {
        guard->is_private =
            reach_of(&place) == TD_FETCH_PRIVATE && (!has_proxies() || is_private_address(request.host));
        guard->port = port;
        (void)snprintf(guard->address, sizeof guard->address, "%s", address);
        memcpy(guard->host, request.host, sizeof guard->host);
    }
    return CURL_PREREQFUNC_OK;
}

bool td_fetch_guard_watch(struct td_fetch_guard *guard, void *easy)
{
    guard->easy = easy;
    return curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, guard) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, before_request) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_PREREQDATA, guard) == CURLE_OK;
}

void td_fetch_guard_begin(struct td_fetch_guard *guard, bool has_digest)
{
    guard->needs_tls = !has_digest;
    guard->refusal[0] = '\0';
    guard->host[0] = guard->address[0] = '\0';
    guard->is_private = guard->has_tls = false;
    guard->port = 0;
}

bool td_fetch_guard_blame(const struct td_fetch_guard *guard, const char *what, struct td_error *err)
{
    if (guard->refusal[0] == '\0')
        return false;
    (void)td_error_set(err, TD_FAILED_PRECONDITION, "%s: %s", what, guard->refusal);
    return true;
}

/* ---- near addresses ------------------------------------------------------------------------------------ */

void td_fetch_map_ipv4(const uint8_t ipv4[4], struct in6_addr *out)
{
    enum { MAPPED_BYTES = 12, FIRST_FF = 10 };
    memset(out, 0, sizeof *out);
    out->s6_addr[FIRST_FF] = out->s6_addr[FIRST_FF + 1] = 0xFF;
    memcpy(out->s6_addr + MAPPED_BYTES, ipv4, 4);
}

static bool is_within(const struct in6_addr *address, const struct td_fetch_network *network)
{
    const uint8_t *a = address->s6_addr;
    const uint8_t *b = network->address.s6_addr;
    unsigned bytes = network->prefix_bits / 8;
    unsigned rest = network->prefix_bits % 8;
    return memcmp(a, b, bytes) == 0 && (rest == 0 || a[bytes] >> (8 - rest) == b[bytes] >> (8 - rest));
}

enum td_fetch_near td_fetch_near_of(const struct in6_addr *address, const struct in6_addr *first,
                                    const struct td_fetch_network *networks, size_t count)
{
    enum td_fetch_near near = TD_FETCH_FAR;
    if (first != NULL && memcmp(address, first, sizeof *address) == 0)
        return TD_FETCH_FAR;
    for (size_t i = 0; i < count; i++) {
        const struct td_fetch_network *network = &networks[i];
        if (memcmp(address, &network->address, sizeof *address) == 0)
            return TD_FETCH_OWN;
        if (network->prefix_bits > 0 && is_within(address, network) && (first == NULL || !is_within(first, network)))
            near = TD_FETCH_CONNECTED;
    }
    return near;
}

/* ---- networks of this host ----------------------------------------------------------------------------- */

static unsigned count_bits(const struct in6_addr *mask)
{
    unsigned bits = 0;
    for (size_t i = 0; i < sizeof mask->s6_addr; i++)
        bits += (unsigned)__builtin_popcount(mask->s6_addr[i]);
    return bits;
}

/* Reads the address and the mask of an interface. Returns false if the address is neither IPv4 nor IPv6. */
static bool read_network(const struct ifaddrs *interface, struct td_fetch_network *out)
{
    enum { MAPPED_BITS = 96, BITS = 128 };
    if (interface->ifa_addr == NULL)
        return false;
    if (interface->ifa_addr->sa_family == AF_INET) {
        struct sockaddr_in address;
        struct sockaddr_in mask = {.sin_addr.s_addr = UINT32_MAX};
        memcpy(&address, interface->ifa_addr, sizeof address);
        if (interface->ifa_netmask != NULL)
            memcpy(&mask, interface->ifa_netmask, sizeof mask);
        unsigned bits = (unsigned)__builtin_popcount(mask.sin_addr.s_addr);
        td_fetch_map_ipv4((const uint8_t *)&address.sin_addr, &out->address);
        out->prefix_bits = bits == 0 ? 0 : MAPPED_BITS + bits;
        return true;
    }
    if (interface->ifa_addr->sa_family == AF_INET6) {
        struct sockaddr_in6 address;
        struct sockaddr_in6 mask = {0};
        memcpy(&address, interface->ifa_addr, sizeof address);
        out->address = address.sin6_addr;
        out->prefix_bits = BITS;
        if (interface->ifa_netmask != NULL) {
            memcpy(&mask, interface->ifa_netmask, sizeof mask);
            out->prefix_bits = count_bits(&mask.sin6_addr);
        }
        return true;
    }
    return false;
}

bool td_fetch_near_look(const struct in6_addr *address, const struct in6_addr *ipv4, const struct in6_addr *first,
                        enum td_fetch_near *out)
{
    struct ifaddrs *interfaces;
    *out = TD_FETCH_FAR;
    if (getifaddrs(&interfaces) != 0)
        return false;
    for (const struct ifaddrs *at = interfaces; at != NULL && *out != TD_FETCH_OWN; at = at->ifa_next) {
        struct td_fetch_network network;
        if (!read_network(at, &network))
            continue;
        enum td_fetch_near near = td_fetch_near_of(address, first, &network, 1);
        if (near != TD_FETCH_OWN && ipv4 != NULL) {
            enum td_fetch_near inner = td_fetch_near_of(ipv4, first, &network, 1);
            near = inner != TD_FETCH_FAR ? inner : near;
        }
        *out = near != TD_FETCH_FAR ? near : *out;
    }
    freeifaddrs(interfaces);
    return true;
}
