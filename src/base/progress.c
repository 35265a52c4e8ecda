/* The progress bar of progress.h, and the flag that says the user has had enough.
 *
 * Whichever thread adds to the count when the time has come draws the line, in one write, so that lines of
 * two threads cannot mix. Parts are left out, least needed first, until the line fits. */
#include "base/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS     UINT64_C(1000000000)
#define DRAW_AFTER_NS SECOND_NS
#define DRAW_EVERY_NS (SECOND_NS / 10)
#define BAR_MOST      30
#define BAR_LEAST     8 /* a shorter bar says less than the number beside it */

_Thread_local struct ts_watch *ts_watched;
static atomic_bool cancelled;

atomic_bool *ts_cancel_flag(void)
{
    return ts_watched ? &ts_watched->cancelled : &cancelled;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static size_t terminal_width(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return 80;
    return size.ws_col;
}

/* The progress must not stop the work, so a terminal that takes no more bytes is left alone. */
static void show(const char *line, size_t size)
{
    ssize_t written = write(STDERR_FILENO, line, size);
    (void)written;
}

struct unit {
    const char *name;
    double size;
};

static struct unit unit_for(double amount, bool elements)
{
    static const struct unit of_bytes[] = {{"EB", 1e18}, {"PB", 1e15}, {"TB", 1e12}, {"GB", 1e9},
                                           {"MB", 1e6},  {"kB", 1e3},  {"B", 1}};
    static const struct unit of_elements[] = {{"E elements", 1e18}, {"P elements", 1e15}, {"T elements", 1e12},
                                              {"G elements", 1e9},  {"M elements", 1e6},  {"k elements", 1e3},
                                              {"elements", 1}};
    const struct unit *unit = elements ? of_elements : of_bytes;
    while (unit->size > 1 && amount < unit->size)
        unit++;
    return *unit;
}

static void format_eta(char *out, size_t size, double seconds)
{
    const uint64_t whole = seconds < 359999 ? (uint64_t)(seconds + 0.5) : 359999; /* 99h59m */
    if (whole < 60)
        snprintf(out, size, "  eta %" PRIu64 "s", whole);
    else if (whole < 3600)
        snprintf(out, size, "  eta %" PRIu64 "m%02" PRIu64 "s", whole / 60, whole % 60);
    else
        snprintf(out, size, "  eta %" PRIu64 "h%02" PRIu64 "m", whole / 3600, whole / 60 % 60);
}

static size_t draw_bar(char *out, size_t cells, double share)
{
    size_t filled = (size_t)(share * (double)cells);
    out[0] = ' ';
    out[1] = '[';
    memset(out + 2, '#', filled);
    memset(out + 2 + filled, '.', cells - filled);
    out[2 + cells] = ']';
    return cells + 3;
}

static void draw(const struct ts_progress *progress, uint64_t now)
{
    const uint64_t done = atomic_load_explicit(&progress->done, memory_order_relaxed);
    const double seconds = (double)(now - progress->started_ns) / (double)SECOND_NS;
    const double rate = (double)done / seconds;
    const struct unit rate_unit = unit_for(rate, progress->elements);
    /* The last column stays free: a character there makes some terminals wrap. */
    const size_t room = terminal_width() - 1;
    char line[512] = "\r", head[128], amount[64] = "", speed[32], eta[32] = "", bar[BAR_MOST + 3] = "";
    size_t bar_size = 0, used;
    if (!progress->elements) /* what is counted is said once */
        snprintf(speed, sizeof speed, "  %.1f %s/s", rate / rate_unit.size, rate_unit.name);
    else if (rate_unit.size > 1)
        snprintf(speed, sizeof speed, "  %.1f %c/s", rate / rate_unit.size, rate_unit.name[0]);
    else
        snprintf(speed, sizeof speed, "  %.0f/s", rate);
    if (progress->total > 0) {
        const struct unit unit = unit_for((double)progress->total, progress->elements);
        const double share = done < progress->total ? (double)done / (double)progress->total : 1;
        snprintf(head, sizeof head, "  %.60s  %2d%%", progress->label, (int)(share * 100));
        snprintf(amount, sizeof amount, " %.1f of %.1f %s", (double)done / unit.size,
                 (double)progress->total / unit.size, unit.name);
        if (done > 0 && done < progress->total)
            format_eta(eta, sizeof eta, (double)(progress->total - done) / rate);
        used = strlen(head) + strlen(amount) + strlen(speed) + strlen(eta);
        if (used + BAR_LEAST + 3 > room) {
            used -= strlen(speed);
            speed[0] = '\0';
        }
        if (used + BAR_LEAST + 3 > room) {
            used -= strlen(amount);
            amount[0] = '\0';
        }
        if (used + BAR_LEAST + 3 <= room)
            bar_size = draw_bar(bar, room - used - 3 < BAR_MOST ? room - used - 3 : BAR_MOST, share);
    } else {
        const struct unit unit = unit_for((double)done, progress->elements);
        snprintf(head, sizeof head, "  %.60s  %.1f %s", progress->label, (double)done / unit.size, unit.name);
    }
    snprintf(line + 1, sizeof line - 1, "%s%.*s%s%s%s", head, (int)bar_size, bar, amount, speed, eta);
    used = strlen(line);
    if (used > room + 1)
        used = room + 1;
    memcpy(line + used, "\033[K", 3); /* erases what is left of a longer line before */
    show(line, used + 3);
}

void ts_progress_start(struct ts_progress *progress, const char *label, uint64_t total)
{
    const char *terminal = getenv("TERM");
    progress->label = label;
    progress->total = total;
    progress->elements = false;
    atomic_init(&progress->done, 0);
    atomic_init(&progress->drawn_ns, 0);
    progress->enabled = isatty(STDERR_FILENO) && !(terminal && strcmp(terminal, "dumb") == 0);
    progress->started_ns = progress->enabled ? now_ns() : 0;
    progress->watch = ts_watched;
    if (progress->watch) {
        progress->enabled = false;
        atomic_store(&progress->watch->done, 0);
        atomic_store(&progress->watch->total, total);
        atomic_store(&progress->watch->label, label);
    }
}

void ts_progress_start_elements(struct ts_progress *progress, const char *label, uint64_t total)
{
    ts_progress_start(progress, label, total);
    progress->elements = true;
}

void ts_progress_add(struct ts_progress *progress, uint64_t amount)
{
    uint64_t now, drawn;
    if (!progress)
        return;
    atomic_fetch_add_explicit(&progress->done, amount, memory_order_relaxed);
    if (progress->watch)
        atomic_fetch_add_explicit(&progress->watch->done, amount, memory_order_relaxed);
    if (!progress->enabled)
        return;
    now = now_ns();
    if (now - progress->started_ns < DRAW_AFTER_NS)
        return;
    /* A thread that was held up may carry an earlier time than the last drawing. */
    drawn = atomic_load_explicit(&progress->drawn_ns, memory_order_relaxed);
    if (now < drawn || now - drawn < DRAW_EVERY_NS)
        return;
    if (atomic_compare_exchange_strong_explicit(&progress->drawn_ns, &drawn, now, memory_order_relaxed,
                                                memory_order_relaxed))
        draw(progress, now);
}

void ts_progress_finish(struct ts_progress *progress)
{
    if (!progress || atomic_load_explicit(&progress->drawn_ns, memory_order_relaxed) == 0)
        return;
    show("\r\033[K", 4);
    atomic_store_explicit(&progress->drawn_ns, 0, memory_order_relaxed);
}
