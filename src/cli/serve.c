/* Owns `tsleuth serve`: options, the address, the end. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/progress.h"
#include "cli/command.h"
#include "serve/serve.h"

extern char **environ;

static const char help[] = "usage: tsleuth serve [REFERENCE [CANDIDATE]] [OPTIONS]\n"
                           "\n"
                           "Opens a page in the browser to look at tensors and to compare them: from files of\n"
                           "this machine, named here and never copied, or from what is dropped on the page.\n"
                           "Only this machine can reach it.\n"
                           "\n"
                           "  --open              start the browser\n"
                           "  --port N            this port and no other; 0 for any (default 8765 or the next\n"
                           "                      free one)\n"
                           "  --host ADDRESS      listen where others reach it; needs --token\n"
                           "  --token TEXT        what every request must carry, at least 16 characters;\n"
                           "                      'random' makes one\n"
                           "  --workspaces DIR    where uploads are kept (default ~/.cache/tsleuth/workspaces)\n"
                           "  --keep DAYS         remove workspaces that were not used for so long; 0 for never\n"
                           "                      (default 30)\n"
                           "  --keep-size GB      remove the oldest ones while all of them hold more than that\n"
                           "  --upload-limit GB   most bytes of one uploaded file (default: the free disk less 1)\n"
                           "\n"
                           "Ctrl-C ends it; what was uploaded is there the next time. The API behind the page\n"
                           "is described in docs/api.md.\n"
                           "\n"
                           "examples:\n"
                           "  tsleuth serve --open\n"
                           "  tsleuth serve reference.safetensors candidate.safetensors\n"
                           "  tsleuth serve runs/a.zip --port 9000\n"
                           "  tsleuth serve --host 0.0.0.0 --token random\n";

/* $XDG_CACHE_HOME/tsleuth/workspaces, or below ~/.cache. */
static bool default_folder(char *out, size_t size)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length;
    if (cache && *cache == '/')
        length = snprintf(out, size, "%s/tsleuth/workspaces", cache);
    else if (home && *home)
        length = snprintf(out, size, "%s/.cache/tsleuth/workspaces", home);
    else
        length = snprintf(out, size, "/tmp/tsleuth-%ld/workspaces", (long)getuid());
    return length > 0 && (size_t)length < size;
}

static bool random_token(char token[33])
{
    unsigned char bytes[16];
    int random = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    bool good = random >= 0 && read(random, bytes, sizeof bytes) == (ssize_t)sizeof bytes;
    if (random >= 0)
        close(random);
    for (size_t i = 0; good && i < sizeof bytes; i++)
        snprintf(token + 2 * i, 3, "%02x", bytes[i]);
    return good;
}

static void start_browser(const char *url)
{
#if defined(__APPLE__)
    const char *opener = "open";
#else
    const char *opener = "xdg-open";
#endif
    char *arguments[] = {(char *)(uintptr_t)opener, (char *)(uintptr_t)url, NULL};
    pid_t child;
    signal(SIGCHLD, SIG_IGN); /* nobody waits for it */
    if (posix_spawnp(&child, opener, NULL, NULL, arguments, environ) != 0)
        fprintf(stderr, "tsleuth: %s is not there to start a browser; open the address by hand\n", opener);
}

/* A token goes into addresses and cookies. */
static bool token_is_fine(const char *token)
{
    return strlen(token) >= 16 && strlen(token) <= 128 &&
           strspn(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") == strlen(token);
}

static int serve(const struct ts_serve_options *options, bool browser)
{
    struct ts_server *server;
    struct ts_error error;
    const struct timespec moment = {.tv_nsec = 50000000};
    sigset_t signals;
    /* blocked while the server's threads are made: these leave signals to this one */
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    if (ts_serve_start(options, &server, &error) != TS_OK)
        return tell_error(&error);
    pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
    printf("%s\n", ts_serve_url(server));
    fflush(stdout);
    if (terminal.width && isatty(STDERR_FILENO))
        fputs("Ctrl-C ends the server\n", stderr);
    if (browser)
        start_browser(ts_serve_url(server));
    /* Libraries have threads of their own, which may be the ones that a signal comes to: the handler of main.c serves
     * them all, and a second signal ends the program at once. */
    while (!atomic_load(&ts_cancelled))
        nanosleep(&moment, NULL);
    ts_serve_stop(server);
    return EXIT_MATCH;
}

static int run(int argc, char **argv)
{
    struct ts_serve_options options = {.keep_days = 30};
    const char *inputs[2] = {NULL, NULL};
    char folder[4096], token[33];
    uint64_t port = UINT64_MAX, gigabytes = 0, kept = 0;
    size_t operands;
    bool wants_help, browser = false;
    const struct option list[] = {{"open", OPTION_FLAG, &browser},
                                  {"port", OPTION_COUNT, &port},
                                  {"host", OPTION_TEXT, &options.host},
                                  {"token", OPTION_TEXT, &options.token},
                                  {"workspaces", OPTION_TEXT, &options.workspaces},
                                  {"keep", OPTION_COUNT, &options.keep_days},
                                  {"keep-size", OPTION_COUNT, &kept},
                                  {"upload-limit", OPTION_COUNT, &gigabytes},
                                  {NULL, OPTION_FLAG, NULL}};
    if (!options_parse(&command_serve, argc, argv, list, inputs, 2, &operands, &wants_help))
        return EXIT_TROUBLE;
    if (wants_help)
        return fputs(help, stdout) < 0 ? EXIT_TROUBLE : EXIT_MATCH;
    if (port != UINT64_MAX && port > 65535)
        return tell_usage(&command_serve, "--port is a number up to 65535");
    if (gigabytes > 1000000)
        return tell_usage(&command_serve, "--upload-limit is in gigabytes");
    if (kept > 1000000)
        return tell_usage(&command_serve, "--keep-size is in gigabytes");
    if (options.host && strcmp(options.host, "127.0.0.1") != 0 && strcmp(options.host, "::1") != 0 &&
        strcmp(options.host, "localhost") != 0 && !options.token)
        return tell_usage(&command_serve, "others can reach --host %s: give --token too", options.host);
    if (options.token && strcmp(options.token, "random") == 0) {
        if (!random_token(token))
            return tell_usage(&command_serve, "cannot read /dev/urandom for a token");
        options.token = token;
    } else if (options.token && !token_is_fine(options.token)) {
        return tell_usage(&command_serve, "--token has at least 16 letters, digits, - or _, and at most 128");
    }
    if (!options.workspaces) {
        if (!default_folder(folder, sizeof folder))
            return tell_usage(&command_serve, "the cache folder's name is too long; give --workspaces");
        options.workspaces = folder;
    }
    for (size_t i = 0; i < operands; i++) /* now, not on the page; what cannot be read is told there */
        if (strncmp(inputs[i], "hf://", 5) != 0 && access(inputs[i], R_OK) != 0) {
            struct ts_error error;
            ts_fail_errno(&error, errno, "cannot open");
            ts_error_path(&error, inputs[i]);
            return tell_error(&error);
        }
    options.port_given = port != UINT64_MAX;
    options.port = options.port_given ? port : TS_SERVE_PORT;
    options.keep_bytes = kept * 1000000000;
    options.upload_limit = gigabytes * 1000000000;
    options.paths[0] = inputs[0];
    options.paths[1] = inputs[1];
    return serve(&options, browser);
}

const struct command command_serve = {
    .name = "serve",
    .summary = "look at tensors and compare them in the browser",
    .help = help,
    .run = run,
};
