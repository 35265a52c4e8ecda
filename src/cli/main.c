/* Owns the start: which command runs, signals, the global help. */
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/progress.h"
#include "base/text.h"
#include "cli/command.h"

static const struct command *const commands[] = {&command_check,   &command_compare, &command_debug,
                                                 &command_explain, &command_inspect, &command_serve,
                                                 &command_show,    &command_trace,   NULL};

static const char usage[] = "tsleuth: find where two runs of a network part ways, and why\n"
                            "\n"
                            "usage: tsleuth COMMAND [OPTIONS] ...\n"
                            "       tsleuth A B              short for tsleuth compare A B\n"
                            "       tsleuth X                short for tsleuth inspect X\n"
                            "\n";

static const char usage_end[] = "\n"
                                "X is a file, a folder, an archive, or hf://owner/repo in the local cache:\n"
                                "safetensors, PyTorch, GGUF, npy/npz, ONNX, text and JSON dumps, zip, tar, 7z.\n"
                                "\n"
                                "'tsleuth COMMAND --help' tells more, with examples.\n"
                                "Exit status: 0 fine, 1 something was found, 2 incomplete (something could not\n"
                                "be read, and the report says what), 3 wrong usage or unreadable input.\n";

static int help(FILE *to)
{
    fputs(usage, to);
    fputs("commands:\n", to);
    for (size_t i = 0; commands[i]; i++)
        fprintf(to, "  %-9s %s\n", commands[i]->name, commands[i]->summary);
    fputs(usage_end, to);
    return to == stdout ? EXIT_MATCH : EXIT_TROUBLE;
}

static void on_interrupt(int number)
{
    if (atomic_exchange(&ts_cancelled, true)) { /* a second Ctrl-C ends it at once */
        output_abandon();
        signal(number, SIG_DFL);
        raise(number); /* delivered when this returns */
    }
}

/* The file that is mapped at an address, by the system's list of mappings, "START-END PERMISSIONS OFFSET DEVICE INODE
 * PATH"; 0 where there is no such list. For a signal handler: no memory, no locks. */
static size_t mapped_path(uintptr_t address, char *path, size_t room)
{
    static char block[4096];
    uintptr_t bounds[2] = {0, 0};
    unsigned field = 0; /* 0 and 1: the bounds; from 2 on, the others */
    size_t size = 0;
    ssize_t got;
    const int list = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (list >= 0 && (got = read(list, block, sizeof block)) > 0)
        for (ssize_t i = 0; i < got; i++) {
            const char byte = block[i];
            if (byte == '\n') {
                if (size && address >= bounds[0] && address < bounds[1]) {
                    close(list);
                    return size;
                }
                bounds[0] = bounds[1] = field = 0;
                size = 0;
            } else if (field == 0 && byte == '-') {
                field = 1;
            } else if (size || (field == 6 && byte != ' ')) {
                if (size < room)
                    path[size++] = byte;
            } else if (byte == ' ' && field < 6) {
                field++;
            } else if (field < 2) {
                bounds[field] = bounds[field] * 16 + (uintptr_t)(byte <= '9' ? byte - '0' : byte - 'a' + 10);
            }
        }
    if (list >= 0)
        close(list);
    return 0;
}

/*
 * A mapped file that is cut short while we read it ends here; anything else would be a crash. All threads that read
 * it arrive, and the first one speaks: the others wait for its exit.
 */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    static atomic_flag taken = ATOMIC_FLAG_INIT;
    static const char before[] = "tsleuth: ", a_file[] = "a file",
                      after[] = " changed or could not be read while it was open\n";
    static char path[PATH_MAX];
    size_t size;
    (void)number;
    (void)context;
    while (atomic_flag_test_and_set(&taken))
        pause();
    size = mapped_path((uintptr_t)info->si_addr, path, sizeof path);
    output_abandon();
    if (write(STDERR_FILENO, before, sizeof before - 1) < 0 ||
        write(STDERR_FILENO, size ? path : a_file, size ? size : sizeof a_file - 1) < 0 ||
        write(STDERR_FILENO, after, sizeof after - 1) < 0)
        _exit(EXIT_TROUBLE);
    _exit(EXIT_TROUBLE);
}

/* Who measures one level must not measure another in its place unawares. */
static void tell_unmet_level(void)
{
    const char *asked = ts_simd_unmet(), *comma = "";
    if (!asked)
        return;
    fprintf(stderr, "tsleuth: TSLEUTH_SIMD is \"%s\", and this machine has only ", asked);
    for (enum ts_simd level = TS_SIMD_PORTABLE; level < TS_SIMD_LEVELS; level++)
        if (ts_simd_has(level)) {
            fprintf(stderr, "%s%s", comma, ts_simd_name(level));
            comma = ", ";
        }
    fprintf(stderr, "; going on with %s\n", ts_simd_name(ts_simd_level()));
}

static bool exists(const char *path)
{
    struct stat info;
    return ts_starts_with(path, "hf://") || stat(path, &info) == 0;
}

int main(int argc, char **argv)
{
    const struct sigaction bus_error = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    setlocale(LC_CTYPE, ""); /* numbers keep the point of the C locale */
    terminal_init();
    signal(SIGINT, on_interrupt);
    signal(SIGTERM, on_interrupt);
    sigaction(SIGBUS, &bus_error, NULL);
    tell_unmet_level();
    if (argc < 2)
        return help(stderr);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        for (size_t i = 0; argc > 2 && commands[i]; i++)
            if (strcmp(argv[2], commands[i]->name) == 0)
                return fputs(commands[i]->help, stdout) < 0 ? EXIT_TROUBLE : EXIT_MATCH;
        return help(stdout);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("tsleuth %s (%s)\n", TS_VERSION, ts_simd_name(ts_simd_level()));
        return EXIT_MATCH;
    }
    for (size_t i = 0; commands[i]; i++)
        if (strcmp(argv[1], commands[i]->name) == 0)
            return commands[i]->run(argc - 1, argv + 1);
    if (exists(argv[1])) { /* two inputs are compared, one is looked at */
        const struct command *command = argc > 2 && argv[2][0] != '-' ? &command_compare : &command_inspect;
        argv[0] = (char *)command->name;
        return command->run(argc, argv);
    }
    if (strpbrk(argv[1], "./"))
        fprintf(stderr, "tsleuth: there is no file \"%s\"\n", argv[1]);
    else
        fprintf(stderr, "tsleuth: \"%s\" is neither a command nor an existing file\n", argv[1]);
    fputs("Try 'tsleuth --help'.\n", stderr);
    return EXIT_TROUBLE;
}
