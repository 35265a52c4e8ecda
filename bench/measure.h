/* For the programs of the benchmark: time, and one line of JSON per result on standard output, which bench/run reads.
 */
#ifndef TS_BENCH_MEASURE_H
#define TS_BENCH_MEASURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* BENCH_CLOCK=cpu: the time that all threads worked, for machines that do other things beside. */
static inline double now(void)
{
    static int by_cpu = -1;
    struct timespec at;
    if (by_cpu < 0) {
        const char *asked = getenv("BENCH_CLOCK");
        by_cpu = asked && strcmp(asked, "cpu") == 0;
    }
    clock_gettime(by_cpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

/* The shortest of several rounds: what else the machine did can only have made a round longer. */
struct best {
    double seconds;
    unsigned rounds;
};

static inline void best_add(struct best *best, double seconds)
{
    if (!best->rounds++ || seconds < best->seconds)
        best->seconds = seconds;
}

/* Seconds of several things that are measured one after the other, again and again: where a machine is now fast and now
 * slow, only what stands in one round can be compared. */
#define ROUND_THINGS 4
#define MOST_ROUNDS  64

struct rounds {
    double seconds[MOST_ROUNDS][ROUND_THINGS];
    size_t count;
};

static inline void rounds_add(struct rounds *rounds, double a, double b, double c, double d)
{
    const double all[ROUND_THINGS] = {a, b, c, d};
    if (rounds->count < MOST_ROUNDS)
        memcpy(rounds->seconds[rounds->count++], all, sizeof all);
}

/* As the first member of a JSON object. */
static inline void rounds_print(const struct rounds *rounds)
{
    fputs("{\"rounds\": [", stdout);
    for (size_t i = 0; i < rounds->count; i++) {
        const double *one = rounds->seconds[i];
        printf("%s[%.9f, %.9f, %.9f, %.9f]", i ? ", " : "", one[0], one[1], one[2], one[3]);
    }
    fputs("], ", stdout);
}

__attribute__((noreturn, format(printf, 1, 2))) static inline void give_up(const char *format, ...)
{
    __builtin_va_list args;
    fputs("bench: ", stderr);
    __builtin_va_start(args, format);
    vfprintf(stderr, format, args);
    __builtin_va_end(args);
    fputc('\n', stderr);
    exit(1);
}

static inline unsigned long long number_argument(const char *text, const char *what)
{
    char *end;
    unsigned long long number = strtoull(text, &end, 10);
    if (!*text || *end)
        give_up("%s: \"%s\" is not a number", what, text);
    return number;
}

#endif
