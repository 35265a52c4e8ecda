/* Owns the checks of who asks.
 *
 * A page of another site can make a browser send requests here. It cannot read the answers, unless its name is made to
 * point to this machine (DNS rebinding): so Host must be ours. It can send simple posts: so changes need a header that
 * makes them not simple, and an Origin that is ours. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "serve/server.h"

static const char *header(struct ts_call *call, const char *name)
{
    return MHD_lookup_connection_value(call->connection, MHD_HEADER_KIND, name);
}

/* Time does not tell how much of it is right. */
static bool same_secret(const char *given, size_t size, const char *secret)
{
    size_t length = strlen(secret);
    unsigned char different = size != length;
    for (size_t i = 0; i < size; i++)
        different |= (unsigned char)(given[i] ^ secret[length ? i % length : 0]);
    return !different;
}

/* "name:port", the port left out when it is 80. */
static bool split_host(const char *text, char *name, size_t size, unsigned long *port)
{
    const char *colon = strrchr(text, ':'), *bracket = strrchr(text, ']');
    size_t length = strlen(text);
    char *end;
    *port = 80;
    if (colon && (!bracket || colon > bracket)) {
        if (colon[1] < '0' || colon[1] > '9')
            return false;
        *port = strtoul(colon + 1, &end, 10);
        if (*end)
            return false;
        length = (size_t)(colon - text);
    }
    if (length == 0 || length >= size)
        return false;
    if (text[0] == '[') { /* an IPv6 address */
        if (text[length - 1] != ']')
            return false;
        text++;
        length -= 2;
    }
    memcpy(name, text, length);
    name[length] = '\0';
    return true;
}

static bool is_address(const char *name)
{
    struct in6_addr address;
    return inet_pton(AF_INET, name, &address) == 1 || inet_pton(AF_INET6, name, &address) == 1;
}

static bool host_is_ours(const struct ts_server *server, const char *host)
{
    char name[256];
    unsigned long port;
    if (!host || !split_host(host, name, sizeof name, &port) || port != server->port)
        return false;
    if (strcasecmp(name, "localhost") == 0 || strcasecmp(name, server->host) == 0 || strcmp(name, "127.0.0.1") == 0 ||
        strcmp(name, "::1") == 0)
        return true;
    /* others reach it too, by whatever address this machine has; an address cannot be made to point elsewhere */
    return !server->local && is_address(name);
}

/* The value of our cookie among those that came. */
static bool cookie_holds(const struct ts_server *server, const char *cookies)
{
    size_t name = strlen(server->cookie);
    while (cookies && *cookies) {
        size_t length;
        cookies += strspn(cookies, " ;");
        length = strcspn(cookies, ";");
        if (length > name && cookies[name] == '=' && memcmp(cookies, server->cookie, name) == 0 &&
            same_secret(cookies + name + 1, length - name - 1, server->token))
            return true;
        cookies += length;
    }
    return false;
}

static bool token_holds(struct ts_call *call)
{
    const struct ts_server *server = call->server;
    const char *given = header(call, "Authorization");
    char text[256];
    if (!server->token)
        return true;
    if (given && strncasecmp(given, "Bearer ", 7) == 0 && same_secret(given + 7, strlen(given + 7), server->token))
        return true;
    if (cookie_holds(server, header(call, "Cookie")))
        return true;
    if (call->method == TS_GET && ts_call_parameter(call, "token", text, sizeof text) &&
        same_secret(text, strlen(text), server->token)) {
        ts_call_header(call, "Set-Cookie", "%s=%s; HttpOnly; SameSite=Strict; Path=/", server->cookie, server->token);
        return true;
    }
    return false;
}

bool ts_guard_check(struct ts_call *call)
{
    const char *host = header(call, "Host"), *origin = header(call, "Origin"), *site = header(call, "Sec-Fetch-Site");
    bool changes = call->method != TS_GET && call->method != TS_HEAD;
    bool api = strncmp(call->path, "/api/", 5) == 0;
    if (!host_is_ours(call->server, host)) {
        ts_call_fail(call, 421, "use the address that the server printed when it started",
                     "this server does not answer for the host \"%.100s\"", host ? host : "");
        return false;
    }
    if (api && site && strcmp(site, "cross-site") == 0) {
        ts_call_fail(call, 403, NULL, "requests of other sites are refused");
        return false;
    }
    if (changes && origin && !(strncmp(origin, "http://", 7) == 0 && strcasecmp(origin + 7, host) == 0)) {
        ts_call_fail(call, 403, NULL, "requests of other sites are refused: the origin is \"%.100s\"", origin);
        return false;
    }
    if (!token_holds(call)) {
        ts_call_fail(call, 401, "open the address with ?token= that the server printed",
                     "the token is missing or wrong");
        return false;
    }
    if (changes && !header(call, "X-Tsleuth")) {
        ts_call_fail(call, 403, "send the header X-Tsleuth: 1",
                     "a request that changes something needs the header "
                     "X-Tsleuth");
        return false;
    }
    return true;
}

void ts_guard_headers(struct MHD_Response *response, bool page)
{
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(response, "Cross-Origin-Resource-Policy", "same-origin");
    MHD_add_response_header(response, "X-Frame-Options", "DENY");
    MHD_add_response_header(
        response, "Content-Security-Policy",
        page ? "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; font-src 'self'; "
               "connect-src 'self'; worker-src 'self' blob:; base-uri 'none'; form-action 'none'; "
               "frame-ancestors 'none'"
             : "default-src 'none'; sandbox; frame-ancestors 'none'");
    if (page)
        MHD_add_response_header(response, "Cross-Origin-Opener-Policy", "same-origin");
}
