/* tsleuth_dump.h: get the tensors out of any C or C++ program. One file, C99 or C++11, POSIX, nothing else.
 *
 *     #define TSLEUTH_DUMP_IMPLEMENTATION         in one source file, before its other includes
 *     #include "tsleuth_dump.h"                   here and wherever tensors are dumped
 *     ts_dump_f32("model.layers.0.self_attn.q_proj", data, 2, shape);      shape: int64_t, outermost axis first
 *
 *     $ TSLEUTH_DUMP=trace.safetensors ./program && tsleuth reference.safetensors trace.safetensors
 *
 * Without TSLEUTH_DUMP (and without ts_dump_enable) a call costs one branch. The bytes are in the file when a call
 * returns: nothing is kept, so a buffer may be overwritten at once. Any thread may call. A full disk or a missing
 * folder is told on stderr once and never ends the program. Nothing here throws, exits or touches signals.
 *
 * Environment:
 *     TSLEUTH_DUMP          the file, or a folder that gets PROGRAM.safetensors
 *     TSLEUTH_DUMP_FILTER   which names: shell patterns (* ? [a-z] \) divided by commas; ! before one leaves names out.
 *                           "*.layers.[0-3].*,!*mlp*": a name passes when a plain pattern (if there is one) fits it
 *                           and no pattern with ! does. * also crosses dots and slashes.
 *     TSLEUTH_DUMP_SAMPLE   "100000": at most so many elements of each tensor; "1/8": every 8th row. Each sampled
 *                           tensor is declared as such in the file, with its whole shape and the hash of the whole
 * One file per rank, NAME.rank3.safetensors, when a tensor says its rank or the program was started by something that
 * sets RANK, OMPI_COMM_WORLD_RANK, PMI_RANK or SLURM_PROCID (and more than 1 as the number of ranks, if any).
 *
 * A name that was dumped before becomes NAME#2, NAME#3 ... The file is a valid safetensors file at every moment, also
 * after kill -9; docs/capture-c.md says how, and what is in it. */
#ifndef TSLEUTH_DUMP_H
#define TSLEUTH_DUMP_H

#if defined(TSLEUTH_DUMP_IMPLEMENTATION)
#if !defined(_POSIX_C_SOURCE) && !defined(_GNU_SOURCE) && !defined(_XOPEN_SOURCE)
#define _XOPEN_SOURCE 700
#endif
#if defined(__APPLE__) && !defined(_DARWIN_C_SOURCE)
#define _DARWIN_C_SOURCE
#endif
#if !defined(_FILE_OFFSET_BITS)
#define _FILE_OFFSET_BITS 64
#endif
#endif

#include <stddef.h>
#include <stdint.h>

#if defined(__cplusplus)
extern "C" {
#endif

/* Every element type of safetensors. Types that C lacks are given as their bits. */
enum ts_dump_type {
    TS_DUMP_F32,
    TS_DUMP_F64,
    TS_DUMP_F16,
    TS_DUMP_BF16,
    TS_DUMP_F8_E4M3,
    TS_DUMP_F8_E5M2,
    TS_DUMP_F8_E8M0,
    TS_DUMP_F8_E4M3FNUZ,
    TS_DUMP_F8_E5M2FNUZ,
    TS_DUMP_F6_E2M3, /* the types under a byte: packed, and without strides */
    TS_DUMP_F6_E3M2,
    TS_DUMP_F4,
    TS_DUMP_C64, /* two floats */
    TS_DUMP_I64,
    TS_DUMP_I32,
    TS_DUMP_I16,
    TS_DUMP_I8,
    TS_DUMP_U64,
    TS_DUMP_U32,
    TS_DUMP_U16,
    TS_DUMP_U8,
    TS_DUMP_BOOL /* a byte, 0 or 1 */
};

#define TS_DUMP_MAX_AXES 32

/* Begin with ts_dump_describe, which sets what you do not. */
struct ts_dump_tensor {
    const char *name;
    enum ts_dump_type type;
    const void *data; /* element [0, 0, ...] */
    int ndim;
    const int64_t *shape;
    const int64_t *strides; /* in elements, negative and zero ones too; NULL: row-major without gaps */
    const char *axes;       /* "tokens,heads,channels", or NULL */
    int64_t rank;           /* which process of a parallel run; -1: as the environment says */
    int64_t layer, step;    /* -1: not given */
};

/* 0: off, 1: on, -1: the environment was not read yet. Use the functions. */
extern int ts_dump_state_;

/* All return 1 when the tensor is in the file, and 0 when it is not: switched off, filtered out, or not writable. */
int ts_dump_write_(const struct ts_dump_tensor *tensor);
int ts_dump_write_plain_(const char *name, enum ts_dump_type type, const void *data, int ndim, const int64_t *shape);
int ts_dump_wants_(const char *name);

/* On from here, and off: leave out the warm-up, take only some steps. path as in TSLEUTH_DUMP; NULL: go on where it
 * was, or as TSLEUTH_DUMP says. The file stays open in between. */
void ts_dump_enable(const char *path);
void ts_dump_disable(void);

/* Finishes the files. Happens by itself when the program ends by exit or by returning from main. Dumps that follow
 * go to a new file beside the old one. */
void ts_dump_close(void);

/* Asks the disk to keep what was written even when the power goes (fsync). Not needed against crashes. */
void ts_dump_flush(void);

/* What the trace says about the run (tsleuth.run). Before the first dump. */
void ts_dump_info(const char *key, const char *value); /* "precision", "bf16" */
void ts_dump_tokens(const int32_t *ids, size_t count);

static inline int ts_dump_active_(void)
{
#if defined(__GNUC__)
    return __builtin_expect(__atomic_load_n(&ts_dump_state_, __ATOMIC_RELAXED) != 0, 0) != 0;
#else
    return *(volatile int *)&ts_dump_state_ != 0;
#endif
}

/* Would a tensor of this name be written? Ask before costly copies from a device. NULL: is anything? */
static inline int ts_dump_wants(const char *name)
{
    return ts_dump_active_() && ts_dump_wants_(name);
}

static inline struct ts_dump_tensor ts_dump_describe(const char *name, enum ts_dump_type type, const void *data,
                                                     int ndim, const int64_t *shape)
{
    struct ts_dump_tensor tensor;
    tensor.name = name;
    tensor.type = type;
    tensor.data = data;
    tensor.ndim = ndim;
    tensor.shape = shape;
    tensor.strides = NULL;
    tensor.axes = NULL;
    tensor.rank = tensor.layer = tensor.step = -1;
    return tensor;
}

static inline int ts_dump(const struct ts_dump_tensor *tensor)
{
    return ts_dump_active_() && ts_dump_write_(tensor);
}

static inline int ts_dump_plain(const char *name, enum ts_dump_type type, const void *data, int ndim,
                                const int64_t *shape)
{
    return ts_dump_active_() && ts_dump_write_plain_(name, type, data, ndim, shape);
}

static inline int ts_dump_f32(const char *name, const float *data, int ndim, const int64_t *shape)
{
    return ts_dump_plain(name, TS_DUMP_F32, data, ndim, shape);
}

static inline int ts_dump_f64(const char *name, const double *data, int ndim, const int64_t *shape)
{
    return ts_dump_plain(name, TS_DUMP_F64, data, ndim, shape);
}

static inline int ts_dump_f16(const char *name, const void *bits, int ndim, const int64_t *shape)
{
    return ts_dump_plain(name, TS_DUMP_F16, bits, ndim, shape);
}

static inline int ts_dump_bf16(const char *name, const void *bits, int ndim, const int64_t *shape)
{
    return ts_dump_plain(name, TS_DUMP_BF16, bits, ndim, shape);
}

static inline int ts_dump_i32(const char *name, const int32_t *data, int ndim, const int64_t *shape)
{
    return ts_dump_plain(name, TS_DUMP_I32, data, ndim, shape);
}

static inline int ts_dump_i64(const char *name, const int64_t *data, int ndim, const int64_t *shape)
{
    return ts_dump_plain(name, TS_DUMP_I64, data, ndim, shape);
}

#if defined(__cplusplus)
}
#endif
#endif /* TSLEUTH_DUMP_H */

#if defined(TSLEUTH_DUMP_IMPLEMENTATION) && !defined(TSLEUTH_DUMP_IMPLEMENTED_)
#define TSLEUTH_DUMP_IMPLEMENTED_

/* The file.
 *
 *     page 0 ...   length | {"__metadata__":{"tsleuth.order":"offset","tsleuth.run":"...",NOTES      }    notes
 *     pages        ,"a":{...},"b":{...}   ,"c":{...},"__tsleuth_spare__":{...}                       }    entries
 *     then         bytes of a, b, c, and the spare: a hole in the file, declared as a tensor of bytes
 *
 * A strict reader wants the tensors to cover the file exactly, so bytes appended and then declared would leave a moment
 * in which kill -9 spoils the file. Here the file is longer than its data from the start, and the spare makes the
 * header cover it. A dump writes the tensor's bytes into the spare, then its note, and then commits with one pwrite
 * that replaces the spare's entry by the tensor's and a smaller spare's. Cost does not grow with what is there already.
 *
 * One pwrite is all or nothing for kill -9 while it stays within one page: Linux copies page by page and looks for a
 * deadly signal only between them. So nothing that is committed crosses a page of 4096 bytes. When a page is full, the
 * entry and the new spare go to the next page first, and then the old spare is blanked; for that moment the name stands
 * there twice, and readers of JSON take the later one, which is right. Notes only ever fill blanks.
 *
 * When the header is full: as long as there are at most 32 MiB of data, they are copied to a new file with four times
 * the room, which takes the old one's place by rename, so small traces stay small and one file. Such a trace is closed
 * in the same way, without any reserve. Beyond that copying would stall the program and need the disk twice; the header
 * has room for some 100,000 tensors by then (30,000 large ones), and when that is used up the trace goes on in
 * NAME-00002.safetensors, to which "tsleuth.next" points.
 *
 * Of a trace above 32 MiB two moments remain in which a strict reader refuses the file (tsleuth does not, and nothing
 * is lost), each as long as one system call: when it is closed, between blanking the spare's entry and cutting off the
 * hole; and when it has used up its spare, between growing the file and the spare's new entry, some ten times up to 50
 * GB. No system call changes both ends of a file. In this order the header never promises bytes that are not there. */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#if !defined(__GNUC__)
#error "the implementation of tsleuth_dump.h needs gcc, clang, or a compiler with their __atomic builtins"
#endif
#if defined(__GLIBC__) && !defined(__USE_XOPEN2K8)
#error "include tsleuth_dump.h before other headers where TSLEUTH_DUMP_IMPLEMENTATION is defined, or use -std=gnu99"
#endif
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tsleuth_dump.h writes the memory's own byte order, and safetensors is little-endian"
#endif

/* Data up to here is copied when the header is full, rather than left in a part of its own. Tests lower them. */
#ifndef TS_DUMP_CHEAP_
#define TS_DUMP_CHEAP_ ((uint64_t)32 << 20)
#endif
#ifndef TS_DUMP_FIRST_PAGES_
#define TS_DUMP_FIRST_PAGES_ 6 /* of entries; some 200 */
#endif
#ifndef TS_DUMP_LARGE_HEADER_
#define TS_DUMP_LARGE_HEADER_ ((uint64_t)16 << 20)
#endif
#define TS_DUMP_PAGE_        ((uint64_t)4096)
#define TS_DUMP_HEADER_MOST_ ((uint64_t)94 << 20) /* readers refuse headers over 100,000,000 bytes */
#define TS_DUMP_NEXT_ROOM_   ((uint64_t)512)      /* of the notes, kept free for "tsleuth.next" */
#define TS_DUMP_NAME_MOST_   ((size_t)1400)       /* name, shape and note of a tensor fit a page together */
#define TS_DUMP_BUFFER_      ((size_t)1 << 20)
#define TS_DUMP_SPARE_       ",\"__tsleuth_spare__\":{\"dtype\":\"U8\",\"shape\":[%20llu],\"data_offsets\":[%20llu,%20llu]}"
#define TS_DUMP_SPARE_SIZE_  (sizeof TS_DUMP_SPARE_ - 1 + 3 * (20 - 6)) /* %20llu has 6 letters */
#define TS_DUMP_MAGIC_       "{\"__metadata__\":{\"tsleuth.order\":\"offset\""

#if defined(__cplusplus)
extern "C" {
#endif

struct ts_dump_text_ {
    char *data;
    size_t size, room;
    int failed;
};

struct ts_dump_body_ {
    int fd;
    uint64_t notes_size; /* bytes of the file up to the entries; whole pages, like header_end */
    uint64_t header_end; /* where the data begins */
    uint64_t notes_at, spare_at;
    uint64_t used, room; /* bytes of data, and with the spare */
};

struct ts_dump_name_ {
    uint64_t hash, count;
};

struct ts_dump_file_ {
    struct ts_dump_file_ *next;
    int64_t rank;
    struct ts_dump_body_ body; /* fd is -1 when it is closed or could not be opened */
    char *path, *first_path;   /* of the part being written, and of part 1 */
    unsigned part;
    int closed, noted, told;
    uint64_t written, lost;
    struct ts_dump_name_ *names; /* how often each was dumped; open addressing, hash 0 is free */
    size_t name_count, name_room;
};

struct ts_dump_walk_ {
    const unsigned char *data;
    int64_t element; /* bytes */
    int axes;
    int64_t shape[TS_DUMP_MAX_AXES + 1], strides[TS_DUMP_MAX_AXES + 1] /* in bytes */, at[TS_DUMP_MAX_AXES + 1];
    int64_t row_step, column_step, column;
    int finished;
};

int ts_dump_state_ = -1;
static pthread_mutex_t ts_dump_mutex_ = PTHREAD_MUTEX_INITIALIZER;
static int ts_dump_pid_; /* whose state this is: a forked child starts its own. -1: being set up */
static int ts_dump_settings_read_, ts_dump_exit_set_, ts_dump_told_;
static char *ts_dump_path_, *ts_dump_filter_;
static uint64_t ts_dump_sample_most_, ts_dump_sample_rows_;
static uint64_t ts_dump_limit_; /* on the size of files, as of the last call */
static struct ts_dump_file_ *ts_dump_files_;
static unsigned char *ts_dump_buffer_;
static struct ts_dump_text_ ts_dump_entry_, ts_dump_note_, ts_dump_name_text_, ts_dump_info_;

/* Text */

static void ts_dump_tell_(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void ts_dump_tell_(const char *format, ...)
{
    char line[1024] = "tsleuth_dump: ";
    size_t size = strlen(line);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + size, sizeof line - size - 1, format, arguments);
    va_end(arguments);
    size = strlen(line);
    line[size++] = '\n';
    if (write(2, line, size) < 0)
        return; /* nobody listens */
}

static void ts_dump_put_(struct ts_dump_text_ *text, const char *from, size_t size)
{
    if (text->failed)
        return;
    if (text->size + size + 1 > text->room) {
        size_t room = (text->size + size + 1) * 2 + 256;
        char *moved = (char *)realloc(text->data, room);
        if (!moved) {
            text->failed = 1;
            return;
        }
        text->data = moved;
        text->room = room;
    }
    memcpy(text->data + text->size, from, size);
    text->size += size;
    text->data[text->size] = '\0';
}

static void ts_dump_printf_(struct ts_dump_text_ *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void ts_dump_printf_(struct ts_dump_text_ *text, const char *format, ...)
{
    char piece[512];
    int size;
    va_list arguments;
    va_start(arguments, format);
    size = vsnprintf(piece, sizeof piece, format, arguments);
    va_end(arguments);
    if (size < 0 || (size_t)size >= sizeof piece)
        text->failed = 1;
    else
        ts_dump_put_(text, piece, (size_t)size);
}

static void ts_dump_empty_(struct ts_dump_text_ *text)
{
    text->size = 0;
    text->failed = 0;
    ts_dump_put_(text, "", 0);
}

/* Bytes of the UTF-8 character at `at`, 0 when it is none: no overlong forms, no surrogates, nothing past U+10FFFF. */
static size_t ts_dump_character_(const unsigned char *at)
{
    size_t size = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : at[0] < 0xf5 ? 4 : 0, i;
    for (i = 1; i < size; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) || (at[0] == 0xf0 && at[1] < 0x90) ||
        (at[0] == 0xf4 && at[1] > 0x8f))
        return 0;
    return size;
}

/* What stands between the quotes of a JSON string. A byte that is no UTF-8 is spelt \xNN. Returns 0 when it
 * stopped because `most` bytes of output would be passed. */
static int ts_dump_escape_(struct ts_dump_text_ *text, const char *string, size_t most)
{
    const unsigned char *at = (const unsigned char *)string;
    size_t left = most;
    while (*at) {
        size_t size = ts_dump_character_(at);
        char piece[8];
        if (size && *at >= 0x20 && *at != '"' && *at != '\\') {
            const unsigned char *from = at;
            while (*at >= 0x20 && *at != '"' && *at != '\\' && (size = ts_dump_character_(at)) != 0 &&
                   (size_t)(at - from) + size <= left)
                at += size;
            ts_dump_put_(text, (const char *)from, (size_t)(at - from));
            left -= (size_t)(at - from);
            if (at == from)
                return 0;
            continue;
        }
        if (size == 0)
            snprintf(piece, sizeof piece, "\\\\x%02x", (unsigned)*at);
        else if (*at < 0x20)
            snprintf(piece, sizeof piece, "\\u%04x", (unsigned)*at);
        else
            snprintf(piece, sizeof piece, "\\%c", *at);
        if (strlen(piece) > left)
            return 0;
        ts_dump_put_(text, piece, strlen(piece));
        left -= strlen(piece);
        at++;
    }
    return 1;
}

/* XXH64, in chunks of which all but the last are multiples of 32 bytes. */

struct ts_dump_hash_ {
    uint64_t lane[4], total;
};

#define TS_DUMP_P1_ UINT64_C(0x9E3779B185EBCA87)
#define TS_DUMP_P2_ UINT64_C(0xC2B2AE3D27D4EB4F)
#define TS_DUMP_P3_ UINT64_C(0x165667B19E3779F9)
#define TS_DUMP_P4_ UINT64_C(0x85EBCA77C2B2AE63)
#define TS_DUMP_P5_ UINT64_C(0x27D4EB2F165667C5)

static uint64_t ts_dump_turn_(uint64_t value, int by)
{
    return value << by | value >> (64 - by);
}

static uint64_t ts_dump_round_(uint64_t lane, uint64_t word)
{
    return ts_dump_turn_(lane + word * TS_DUMP_P2_, 31) * TS_DUMP_P1_;
}

static void ts_dump_hash_begin_(struct ts_dump_hash_ *hash)
{
    hash->lane[0] = TS_DUMP_P1_ + TS_DUMP_P2_;
    hash->lane[1] = TS_DUMP_P2_;
    hash->lane[2] = 0;
    hash->lane[3] = 0 - TS_DUMP_P1_;
    hash->total = 0;
}

/* Returns how many bytes at the end are left for ts_dump_hash_end_. */
static size_t ts_dump_hash_add_(struct ts_dump_hash_ *hash, const unsigned char *data, size_t size)
{
    int i;
    hash->total += size;
    for (; size >= 32; size -= 32)
        for (i = 0; i < 4; i++, data += 8) {
            uint64_t word;
            memcpy(&word, data, 8);
            hash->lane[i] = ts_dump_round_(hash->lane[i], word);
        }
    return size;
}

static uint64_t ts_dump_hash_end_(const struct ts_dump_hash_ *hash, const unsigned char *rest, size_t size)
{
    const uint64_t *lane = hash->lane;
    uint64_t value = TS_DUMP_P5_, word;
    uint32_t half;
    int i;
    if (hash->total >= 32) {
        value = ts_dump_turn_(lane[0], 1) + ts_dump_turn_(lane[1], 7) + ts_dump_turn_(lane[2], 12) +
                ts_dump_turn_(lane[3], 18);
        for (i = 0; i < 4; i++)
            value = (value ^ ts_dump_round_(0, lane[i])) * TS_DUMP_P1_ + TS_DUMP_P4_;
    }
    value += hash->total;
    for (; size >= 8; size -= 8, rest += 8) {
        memcpy(&word, rest, 8);
        value = ts_dump_turn_(value ^ ts_dump_round_(0, word), 27) * TS_DUMP_P1_ + TS_DUMP_P4_;
    }
    if (size >= 4) {
        memcpy(&half, rest, 4);
        value = ts_dump_turn_(value ^ half * TS_DUMP_P1_, 23) * TS_DUMP_P2_ + TS_DUMP_P3_;
        rest += 4;
        size -= 4;
    }
    for (; size; size--, rest++)
        value = ts_dump_turn_(value ^ *rest * TS_DUMP_P5_, 11) * TS_DUMP_P1_;
    value = (value ^ value >> 33) * TS_DUMP_P2_;
    value = (value ^ value >> 29) * TS_DUMP_P3_;
    return value ^ value >> 32;
}

static uint64_t ts_dump_hash_text_(const char *text, size_t size)
{
    struct ts_dump_hash_ hash;
    size_t left;
    uint64_t value;
    ts_dump_hash_begin_(&hash);
    left = ts_dump_hash_add_(&hash, (const unsigned char *)text, size);
    value = ts_dump_hash_end_(&hash, (const unsigned char *)text + size - left, left);
    return value ? value : 1;
}

/* Files: all of it or an error in errno. Offsets are kept below the limit on file sizes, so that SIGXFSZ never comes.
 */

static void ts_dump_ask_limit_(void)
{
    struct rlimit limit;
    ts_dump_limit_ = (uint64_t)INT64_MAX;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        (uint64_t)limit.rlim_cur < ts_dump_limit_)
        ts_dump_limit_ = (uint64_t)limit.rlim_cur;
}

static int ts_dump_store_(int fd, const void *data, uint64_t size, uint64_t at)
{
    const char *from = (const char *)data;
    if (size > ts_dump_limit_ || at > ts_dump_limit_ - size) {
        errno = EFBIG;
        return 0;
    }
    while (size) {
        ssize_t done = pwrite(fd, from, size < (1 << 30) ? (size_t)size : (size_t)1 << 30, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            errno = done < 0 ? errno : ENOSPC;
            return 0;
        }
        from += done;
        at += (uint64_t)done;
        size -= (uint64_t)done;
    }
    return 1;
}

static int ts_dump_resize_(int fd, uint64_t size)
{
    if (size > ts_dump_limit_) {
        errno = EFBIG;
        return 0;
    }
    while (ftruncate(fd, (off_t)size) != 0)
        if (errno != EINTR)
            return 0;
    return 1;
}

static int ts_dump_copy_(int from, uint64_t from_at, int to, uint64_t to_at, uint64_t size)
{
    while (size) {
        ssize_t got =
            pread(from, ts_dump_buffer_, size < TS_DUMP_BUFFER_ ? (size_t)size : TS_DUMP_BUFFER_, (off_t)from_at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            errno = got < 0 ? errno : EIO;
            return 0;
        }
        if (!ts_dump_store_(to, ts_dump_buffer_, (uint64_t)got, to_at))
            return 0;
        from_at += (uint64_t)got;
        to_at += (uint64_t)got;
        size -= (uint64_t)got;
    }
    return 1;
}

static int ts_dump_store_spare_(const struct ts_dump_body_ *body)
{
    char spare[TS_DUMP_SPARE_SIZE_ + 8];
    snprintf(spare, sizeof spare, TS_DUMP_SPARE_, (unsigned long long)(body->room - body->used),
             (unsigned long long)body->used, (unsigned long long)body->room);
    return ts_dump_store_(body->fd, spare, TS_DUMP_SPARE_SIZE_, body->spare_at);
}

static int ts_dump_blank_spare_(const struct ts_dump_body_ *body)
{
    char blanks[TS_DUMP_SPARE_SIZE_];
    memset(blanks, ' ', sizeof blanks);
    return ts_dump_store_(body->fd, blanks, sizeof blanks, body->spare_at);
}

/* Fills a new file whose sizes are set; its contents are `notes` or those of `old`. The length comes last: until then
 * nobody takes it for a trace. */
static int ts_dump_build_(struct ts_dump_body_ *body, const struct ts_dump_body_ *old,
                          const struct ts_dump_text_ *notes)
{
    uint64_t at, length = body->header_end - 8, entries = old ? old->spare_at - old->notes_size : 0;
    body->notes_at = old ? old->notes_at : 8 + notes->size;
    body->spare_at = body->notes_size + entries;
    body->used = old ? old->used : 0;
    /* Page by page: Linux would cache a longer write in larger pieces, and walk through all of one for each entry. */
    memset(ts_dump_buffer_, ' ', TS_DUMP_PAGE_);
    for (at = 0; at < body->header_end; at += TS_DUMP_PAGE_)
        if (!ts_dump_store_(body->fd, ts_dump_buffer_, TS_DUMP_PAGE_, at))
            return 0;
    if (old ? !ts_dump_copy_(old->fd, 8, body->fd, 8, old->notes_at - 8) ||
                  !ts_dump_copy_(old->fd, old->notes_size, body->fd, body->notes_size, entries) ||
                  !ts_dump_copy_(old->fd, old->header_end, body->fd, body->header_end, old->used)
            : !ts_dump_store_(body->fd, notes->data, notes->size, 8))
        return 0;
    return ts_dump_store_(body->fd, "}", 1, body->notes_size - 1) &&
           ts_dump_store_(body->fd, "}", 1, body->header_end - 1) && ts_dump_store_spare_(body) &&
           ts_dump_resize_(body->fd, body->header_end + body->room) && ts_dump_store_(body->fd, &length, 8, 0);
}

/* Gives a new file its name. 1: done. 0: the name belongs to something that must stay: why says what. -1: errno. */
static int ts_dump_claim_(const char *temporary, const char *path, const char **why)
{
    const struct ts_dump_file_ *own;
    int tries;
    for (own = ts_dump_files_; own; own = own->next)
        if ((own->path && strcmp(own->path, path) == 0) || (own->first_path && strcmp(own->first_path, path) == 0)) {
            *why = "was written by this program before";
            return 0;
        }
    for (tries = 0; tries < 100; tries++) {
        struct stat there, opened;
        char head[8 + sizeof TS_DUMP_MAGIC_ - 1];
        int fd, same, trace;
        if (link(temporary, path) == 0) {
            unlink(temporary);
            return 1;
        }
        if (errno == ENOENT || errno == ENOTDIR || errno == EROFS || errno == ENOSPC || errno == ENAMETOOLONG)
            return -1;
        /* Something is there, or this file system has no links. Whoever locks the old file may replace it. */
        *why = "cannot be opened";
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
        if (fd < 0)
            return 0;
        if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            *why = "is being written by another program";
            close(fd);
            return 0;
        }
        same = fstat(fd, &opened) == 0 && stat(path, &there) == 0 && opened.st_ino == there.st_ino &&
               opened.st_dev == there.st_dev;
        trace = same && S_ISREG(opened.st_mode) &&
                (opened.st_size == 0 || (pread(fd, head, sizeof head, 0) == (ssize_t)sizeof head &&
                                         memcmp(head + 8, TS_DUMP_MAGIC_, sizeof head - 8) == 0));
        if (same && (!trace || rename(temporary, path) == 0)) {
            close(fd);
            *why = "is no trace";
            return trace;
        }
        close(fd);
    }
    *why = "cannot be replaced";
    return 0;
}

/* A new file beside `path`, locked; its name in *temporary is to be freed. */
static int ts_dump_create_(const char *path, char **temporary)
{
    size_t size = strlen(path) + 32;
    int fd;
    *temporary = (char *)malloc(size);
    if (!*temporary)
        return -1;
    snprintf(*temporary, size, "%s.%ld.tmp", path, (long)getpid());
    unlink(*temporary); /* of a program that had this number before */
    fd = open(*temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        free(*temporary);
        *temporary = NULL;
        return -1;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        errno = 0; /* a file system without locks: names alone keep programs apart */
    return fd;
}

/* "a.safetensors" and ".rank3": "a.rank3.safetensors" */
static char *ts_dump_path_with_(const char *path, const char *infix)
{
    static const char suffix[] = ".safetensors";
    size_t size = strlen(path), tail = sizeof suffix - 1, room = size + strlen(infix) + 1;
    char *out = (char *)malloc(room);
    if (size <= tail || strcmp(path + size - tail, suffix) != 0)
        tail = 0;
    if (out)
        snprintf(out, room, "%.*s%s%s", (int)(size - tail), path, infix, path + size - tail);
    return out;
}

static void ts_dump_program_(char *name, size_t size)
{
    char path[4096];
    ssize_t got = readlink("/proc/self/exe", path, sizeof path - 1);
    const char *base = "program";
    if (got > 0) {
        path[got] = '\0';
        base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    }
#if defined(__APPLE__)
    base = getprogname();
#endif
    snprintf(name, size, "%.200s", base);
}

/* The fixed part of __metadata__. */
static void ts_dump_begin_notes_(struct ts_dump_text_ *notes, int64_t rank, unsigned part)
{
    struct ts_dump_text_ run = {NULL, 0, 0, 0};
    char program[256], when[32] = "";
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc))
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    ts_dump_program_(program, sizeof program);
    ts_dump_put_(&run, "{\"program\":\"", 12);
    ts_dump_escape_(&run, program, sizeof program * 6);
    ts_dump_printf_(&run, "\",\"pid\":%ld,\"start\":\"%s\"", (long)getpid(), when);
    if (rank >= 0)
        ts_dump_printf_(&run, ",\"rank\":%lld", (long long)rank);
    ts_dump_put_(&run, ts_dump_info_.data ? ts_dump_info_.data : "", ts_dump_info_.size);
    ts_dump_put_(&run, "}", 1);
    ts_dump_empty_(notes);
    ts_dump_put_(notes, TS_DUMP_MAGIC_, sizeof TS_DUMP_MAGIC_ - 1);
    ts_dump_printf_(notes, ",\"tsleuth.part\":\"%u\",\"tsleuth.run\":\"", part);
    if (run.data)
        ts_dump_escape_(notes, run.data, (size_t)-1);
    ts_dump_put_(notes, "\"", 1);
    notes->failed |= run.failed;
    free(run.data);
}

/* Opens a part: its sizes are in `body`. The file gets `path`, or a name beside it when that is taken. */
static int ts_dump_open_part_(struct ts_dump_file_ *file, struct ts_dump_body_ *body, const char *path, unsigned part)
{
    struct ts_dump_text_ notes = {NULL, 0, 0, 0};
    char *temporary = NULL, *wanted = NULL, infix[64];
    const char *why = "", *ignored;
    struct stat about;
    int claimed = -1, attempt, reason;
    body->fd = -1;
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) { /* /dev/stdout, a pipe */
        errno = EOPNOTSUPP;
        return 0;
    }
    ts_dump_begin_notes_(&notes, file->rank, part);
    if (!notes.failed) {
        uint64_t needs = (8 + notes.size + TS_DUMP_PAGE_ + TS_DUMP_PAGE_ - 1) / TS_DUMP_PAGE_ * TS_DUMP_PAGE_;
        if (body->notes_size < needs) {
            body->header_end += needs - body->notes_size;
            body->notes_size = needs;
        }
        body->fd = ts_dump_create_(path, &temporary);
    }
    if (body->fd >= 0) {
        uint64_t limit = ts_dump_limit_;
        if (limit > body->header_end && body->room > limit - body->header_end)
            body->room = limit - body->header_end;
        if (ts_dump_build_(body, NULL, &notes))
            for (attempt = 0, claimed = 0; attempt < 100 && claimed == 0; attempt++) {
                free(wanted);
                infix[0] = '\0';
                if (attempt == 1)
                    snprintf(infix, sizeof infix, ".pid%ld", (long)getpid());
                else if (attempt)
                    snprintf(infix, sizeof infix, ".pid%ld-%d", (long)getpid(), attempt);
                wanted = ts_dump_path_with_(path, infix);
                claimed = wanted ? ts_dump_claim_(temporary, wanted, attempt ? &ignored : &why) : -1;
                if (claimed == 1 && attempt)
                    ts_dump_tell_("%.300s %s; the tensors go to %.300s", path, why, wanted);
            }
    }
    reason = claimed == 0 ? EEXIST : errno;
    if (claimed != 1) {
        if (body->fd >= 0) {
            unlink(temporary);
            close(body->fd);
            body->fd = -1;
        }
        free(wanted);
        wanted = NULL;
    }
    free(temporary);
    free(notes.data);
    errno = reason;
    if (!wanted)
        return 0;
    free(file->path == file->first_path ? NULL : file->path);
    file->path = wanted;
    if (!file->first_path)
        file->first_path = wanted;
    file->part = part;
    return 1;
}

/* Where `size` bytes fit into one page at or after `at` and before `end`. 0: nowhere. */
static uint64_t ts_dump_place_(uint64_t at, uint64_t end, uint64_t size)
{
    uint64_t page_end = (at / TS_DUMP_PAGE_ + 1) * TS_DUMP_PAGE_;
    if (at + size <= (page_end < end ? page_end : end))
        return at;
    return size <= TS_DUMP_PAGE_ && page_end + size <= end ? page_end : 0;
}

/* A note is ,"key":"value". */
static int ts_dump_add_note_(struct ts_dump_body_ *body, const struct ts_dump_text_ *note, uint64_t kept_free)
{
    uint64_t at = ts_dump_place_(body->notes_at, body->notes_size - 1 - kept_free, note->size);
    if (!at || !ts_dump_store_(body->fd, note->data, note->size, at))
        return 0;
    body->notes_at = at + note->size;
    return 1;
}

static void ts_dump_finish_part_(struct ts_dump_body_ *body)
{
    if (body->fd < 0)
        return;
    if (ts_dump_blank_spare_(body))
        ts_dump_resize_(body->fd, body->header_end + body->used);
    close(body->fd);
    body->fd = -1;
}

/* Writes the trace anew without any reserve, beside itself, and puts it in its place in one step. 0: it is as it was.
 */
static int ts_dump_compact_(struct ts_dump_file_ *file)
{
    const struct ts_dump_body_ *old = &file->body;
    uint64_t entries = old->spare_at - old->notes_size, at = old->notes_at + 1 + entries, length, start;
    struct stat opened, there;
    char *temporary, blanks[64];
    int fd, done;
    if (fstat(old->fd, &opened) != 0 || stat(file->path, &there) != 0 || opened.st_ino != there.st_ino ||
        opened.st_dev != there.st_dev)
        return 0; /* it was given another name, and is finished under that one */
    fd = ts_dump_create_(file->path, &temporary);
    if (fd < 0)
        return 0;
    memset(blanks, ' ', sizeof blanks);
    blanks[0] = '}';
    start = (at + 1 + 63) / 64 * 64;
    length = start - 8;
    done = ts_dump_copy_(old->fd, 8, fd, 8, old->notes_at - 8) && ts_dump_store_(fd, "}", 1, old->notes_at) &&
           ts_dump_copy_(old->fd, old->notes_size, fd, old->notes_at + 1, entries) &&
           ts_dump_store_(fd, blanks, start - at, at) &&
           ts_dump_copy_(old->fd, old->header_end, fd, start, old->used) && ts_dump_store_(fd, &length, 8, 0) &&
           rename(temporary, file->path) == 0;
    if (!done)
        unlink(temporary);
    free(temporary);
    close(fd);
    return done;
}

static void ts_dump_finish_file_(struct ts_dump_file_ *file)
{
    if (file->body.fd >= 0 && file->body.used <= TS_DUMP_CHEAP_ && ts_dump_compact_(file)) {
        close(file->body.fd);
        file->body.fd = -1;
    }
    ts_dump_finish_part_(&file->body);
    if (file->lost && !file->closed)
        ts_dump_tell_("%llu of %llu tensors could not be written to %.300s", (unsigned long long)file->lost,
                      (unsigned long long)(file->lost + file->written), file->path ? file->path : ts_dump_path_);
    file->closed = 1;
    free(file->names);
    file->names = NULL;
    file->name_count = file->name_room = 0;
}

/* Copies the trace to a file with the sizes of `body`, which takes its place. */
static int ts_dump_rebuild_(struct ts_dump_file_ *file, struct ts_dump_body_ *body)
{
    char *temporary;
    int reason;
    body->fd = ts_dump_create_(file->path, &temporary);
    if (body->fd < 0)
        return 0;
    if (ts_dump_build_(body, &file->body, NULL) && rename(temporary, file->path) == 0) {
        close(file->body.fd);
        file->body = *body;
        free(temporary);
        return 1;
    }
    reason = errno;
    unlink(temporary);
    close(body->fd);
    free(temporary);
    errno = reason;
    return 0;
}

/* Goes on in the next file. */
static int ts_dump_roll_(struct ts_dump_file_ *file, struct ts_dump_body_ *body)
{
    struct ts_dump_body_ before = file->body;
    struct ts_dump_text_ note = {NULL, 0, 0, 0};
    char infix[32], *path;
    int opened;
    snprintf(infix, sizeof infix, "-%05u", file->part + 1);
    path = ts_dump_path_with_(file->first_path, infix);
    if (!path)
        return 0;
    opened = ts_dump_open_part_(file, body, path, file->part + 1);
    free(path);
    if (!opened)
        return 0;
    ts_dump_put_(&note, ",\"tsleuth.next\":\"", 17);
    ts_dump_escape_(&note, strrchr(file->path, '/') ? strrchr(file->path, '/') + 1 : file->path, 480);
    ts_dump_put_(&note, "\"", 1);
    if (!note.failed)
        ts_dump_add_note_(&before, &note, 0);
    free(note.data);
    ts_dump_finish_part_(&before);
    file->body = *body;
    return 1;
}

/* Sees to it that an entry (with the spare behind it), a note and data of these sizes fit. */
static int ts_dump_make_room_(struct ts_dump_file_ *file, uint64_t entry, uint64_t note, uint64_t bytes)
{
    int attempt;
    for (attempt = 0; attempt < 4; attempt++) {
        struct ts_dump_body_ *body = &file->body, next = *body;
        uint64_t entries = body->header_end - body->notes_size, limit = ts_dump_limit_, needs, enough;
        int entry_fits = ts_dump_place_(body->spare_at, body->header_end - 1, entry) != 0;
        int note_fits = !note || ts_dump_place_(body->notes_at, body->notes_size - 1 - TS_DUMP_NEXT_ROOM_, note) != 0;
        int grew, roomy;
        if (entry_fits && note_fits && bytes <= body->room - body->used)
            return 1;
        if (bytes > limit || body->header_end + body->used > limit - bytes) {
            errno = EFBIG;
            return 0;
        }
        needs = body->used + bytes;
        /* A large trace has room for some 100,000 tensors, or for 30,000 where they are large themselves. */
        enough = TS_DUMP_LARGE_HEADER_ / (needs / (file->written + 1) > TS_DUMP_CHEAP_ / 256 ? 4 : 1);
        roomy = body->header_end >= enough && (!file->noted || body->notes_size >= enough);
        if (entry_fits && note_fits && (body->used > TS_DUMP_CHEAP_ || (needs > TS_DUMP_CHEAP_ && roomy))) {
            next.room = needs + (needs < limit / 4 ? needs : 0);
            if (next.room > limit - body->header_end)
                next.room = limit - body->header_end;
            if (!ts_dump_resize_(body->fd, body->header_end + next.room))
                return 0;
            if (!ts_dump_store_spare_(&next)) {
                ts_dump_resize_(body->fd, body->header_end + body->room);
                return 0;
            }
            *body = next;
            continue;
        }
        if (!entry_fits)
            entries *= 4;
        if (!note_fits)
            next.notes_size *= 4;
        next.room = body->room;
        if (needs > TS_DUMP_CHEAP_) {
            entries = entries < enough ? enough : entries;
            if (file->noted && next.notes_size < enough)
                next.notes_size = enough;
            if (next.room < needs)
                next.room = needs + (needs < limit / 4 ? needs : 0);
        }
        if (next.notes_size > TS_DUMP_HEADER_MOST_ / 2)
            next.notes_size = TS_DUMP_HEADER_MOST_ / 2;
        if (next.notes_size < body->notes_size)
            next.notes_size = body->notes_size;
        if (entries > TS_DUMP_HEADER_MOST_ - next.notes_size)
            entries = TS_DUMP_HEADER_MOST_ - next.notes_size;
        next.header_end = next.notes_size + entries;
        if (next.room > limit - next.header_end)
            next.room = limit > next.header_end ? limit - next.header_end : 0;
        grew = (entry_fits || next.header_end - next.notes_size > body->header_end - body->notes_size) &&
               (note_fits || next.notes_size > body->notes_size);
        if (body->used <= TS_DUMP_CHEAP_ && grew && next.room >= body->used) {
            if (!ts_dump_rebuild_(file, &next))
                return 0;
        } else {
            next.room = bytes > TS_DUMP_CHEAP_ / 2 ? bytes * 2 : TS_DUMP_CHEAP_;
            if (!ts_dump_roll_(file, &next))
                return 0;
        }
    }
    errno = EFBIG;
    return 0;
}

/* Which file */

/* A whole number that is not negative, or -1. */
static int64_t ts_dump_number_(const char *text)
{
    char *end;
    long long number;
    if (!text || *text < '0' || *text > '9')
        return -1;
    errno = 0;
    number = strtoll(text, &end, 10);
    return *end || errno ? -1 : (int64_t)number;
}

/* The launcher that runs innermost comes first: torchrun below srun sets RANK, and leaves srun's variables as they
 * were. A launcher of one process says nothing. */
static int64_t ts_dump_rank_(void)
{
    static const char *const names[][2] = {{"RANK", "WORLD_SIZE"},
                                           {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                           {"PMI_RANK", "PMI_SIZE"},
                                           {"SLURM_PROCID", "SLURM_NTASKS"}};
    size_t i;
    for (i = 0; i < sizeof names / sizeof *names; i++) {
        const char *size = getenv(names[i][1]);
        int64_t rank = ts_dump_number_(getenv(names[i][0]));
        if (rank >= 0 && (!size || !*size || ts_dump_number_(size) > 1))
            return rank;
    }
    return -1;
}

/* The file that a rank's tensors go to, before names that are taken are avoided. To be freed. */
static char *ts_dump_file_path_(int64_t rank)
{
    struct stat about;
    size_t size = strlen(ts_dump_path_);
    char infix[48] = "", program[256], *real = NULL, *path, *out;
    if (ts_dump_path_[size - 1] == '/' || (stat(ts_dump_path_, &about) == 0 && S_ISDIR(about.st_mode))) {
        ts_dump_program_(program, sizeof program);
        path = (char *)malloc(size + strlen(program) + 32);
        if (path)
            snprintf(path, size + strlen(program) + 32, "%s%s%s.safetensors", ts_dump_path_,
                     ts_dump_path_[size - 1] == '/' ? "" : "/", program);
    } else {
        real = realpath(ts_dump_path_, NULL); /* a link is followed, not replaced */
        path = real ? real : strdup(ts_dump_path_);
    }
    if (rank >= 0)
        snprintf(infix, sizeof infix, ".rank%lld", (long long)rank);
    out = path ? ts_dump_path_with_(path, infix) : NULL;
    free(path);
    return out;
}

static void ts_dump_at_exit_(void)
{
    if (__atomic_load_n(&ts_dump_pid_, __ATOMIC_ACQUIRE) != (int)getpid())
        return; /* a forked child: the files are its parent's */
    ts_dump_close();
    __atomic_store_n(&ts_dump_state_, 0, __ATOMIC_RELAXED);
}

/* bytes: of the tensor that asks for it. A first one that is large is not going to be copied behind a larger header. */
static struct ts_dump_file_ *ts_dump_file_of_(int64_t rank, uint64_t bytes)
{
    struct ts_dump_file_ *file;
    char *path;
    int large, opened;
    for (file = ts_dump_files_; file; file = file->next)
        if (file->rank == rank && !file->closed)
            return file;
    if (!ts_dump_buffer_)
        ts_dump_buffer_ = (unsigned char *)malloc(TS_DUMP_BUFFER_);
    file = (struct ts_dump_file_ *)calloc(1, sizeof *file);
    path = ts_dump_buffer_ && file ? ts_dump_file_path_(rank) : NULL;
    if (!path) {
        free(file);
        return NULL;
    }
    file->rank = rank;
    large = bytes >= TS_DUMP_CHEAP_ / 4 && TS_DUMP_LARGE_HEADER_ / 4 > (2 + TS_DUMP_FIRST_PAGES_) * TS_DUMP_PAGE_;
    for (opened = 0; !opened && large >= 0; large--) { /* where a large one does not fit, a small one may */
        file->body.notes_size = 2 * TS_DUMP_PAGE_;
        file->body.header_end = large ? TS_DUMP_LARGE_HEADER_ / 4 : (2 + TS_DUMP_FIRST_PAGES_) * TS_DUMP_PAGE_;
        file->body.room = large && bytes < (uint64_t)INT64_MAX / 8 ? bytes * 4 : TS_DUMP_CHEAP_;
        opened = ts_dump_open_part_(file, &file->body, path, 1);
    }
    if (!opened) {
        ts_dump_tell_("cannot write %.300s: %s; no tensors are dumped", path, strerror(errno));
        file->told = 1;
    }
    free(path);
    file->next = ts_dump_files_;
    ts_dump_files_ = file;
    if (!ts_dump_exit_set_)
        ts_dump_exit_set_ = atexit(ts_dump_at_exit_) == 0;
    return file;
}

/* A forked child has its parent's state: the files in it stay the parent's, which goes on writing them. */
static void ts_dump_lock_(void)
{
    int self = (int)getpid(), seen = __atomic_load_n(&ts_dump_pid_, __ATOMIC_ACQUIRE);
    while (seen != self) {
        if (seen != -1 &&
            __atomic_compare_exchange_n(&ts_dump_pid_, &seen, -1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            pthread_mutex_init(&ts_dump_mutex_, NULL); /* another thread may have held it when the fork was made */
            while (ts_dump_files_) {
                struct ts_dump_file_ *file = ts_dump_files_;
                ts_dump_files_ = file->next;
                if (file->body.fd >= 0)
                    close(file->body.fd);
                if (file->path != file->first_path)
                    free(file->path);
                free(file->first_path);
                free(file->names);
                free(file);
            }
            __atomic_store_n(&ts_dump_pid_, self, __ATOMIC_RELEASE);
            break;
        }
        sched_yield();
        seen = __atomic_load_n(&ts_dump_pid_, __ATOMIC_ACQUIRE);
    }
    pthread_mutex_lock(&ts_dump_mutex_);
}

static void ts_dump_read_settings_(void)
{
    const char *sample = getenv("TSLEUTH_DUMP_SAMPLE"), *filter = getenv("TSLEUTH_DUMP_FILTER");
    const char *path = getenv("TSLEUTH_DUMP");
    char *end = NULL;
    if (ts_dump_settings_read_)
        return;
    ts_dump_settings_read_ = 1;
    ts_dump_filter_ = filter && *filter ? strdup(filter) : NULL;
    if (!ts_dump_path_ && path && *path)
        ts_dump_path_ = strdup(path);
    if (sample && *sample) {
        int rows = strncmp(sample, "1/", 2) == 0;
        unsigned long long number = strtoull(rows ? sample + 2 : sample, &end, 10);
        if (*end || !number || *sample == '-')
            ts_dump_tell_("TSLEUTH_DUMP_SAMPLE is \"%.40s\"; expected a number of elements, or 1/8 for every 8th row; "
                          "tensors are dumped whole",
                          sample);
        else
            *(rows ? &ts_dump_sample_rows_ : &ts_dump_sample_most_) = number;
    }
    if (ts_dump_state_ == -1)
        __atomic_store_n(&ts_dump_state_, ts_dump_path_ ? 1 : 0, __ATOMIC_RELAXED);
}

/* Names */

static int ts_dump_one_fits_(const char **pattern, const char *end, char character)
{
    const char *at = *pattern;
    unsigned char wanted = (unsigned char)character;
    if (*at == '[') {
        const char *close_at = at + 2 + (at + 1 < end && (at[1] == '!' || at[1] == '^'));
        int negated = at + 1 < end && (at[1] == '!' || at[1] == '^'), found = 0;
        while (close_at < end && *close_at != ']')
            close_at++;
        if (close_at < end) {
            for (at += 1 + negated; at < close_at; at++) {
                unsigned char low = (unsigned char)*at, high = low;
                if (at + 2 < close_at && at[1] == '-') {
                    high = (unsigned char)at[2];
                    at += 2;
                }
                found |= low <= wanted && wanted <= high;
            }
            *pattern = close_at + 1;
            return found != negated;
        }
    } else if (*at == '?') {
        *pattern = at + 1;
        return 1;
    } else if (*at == '\\' && at + 1 < end) {
        at++;
    }
    *pattern = at + 1;
    return *at == character;
}

static int ts_dump_pattern_fits_(const char *pattern, const char *end, const char *name)
{
    const char *star = NULL, *resume = NULL;
    for (;;) {
        const char *after = pattern;
        if (pattern < end && *pattern == '*') {
            star = ++pattern;
            resume = name;
        } else if (!*name) {
            return pattern == end;
        } else if (pattern < end && ts_dump_one_fits_(&after, end, *name)) {
            pattern = after;
            name++;
        } else if (star) {
            pattern = star;
            name = ++resume;
        } else {
            return 0;
        }
    }
}

static int ts_dump_passes_(const char *name)
{
    const char *at = ts_dump_filter_;
    int wanted = 0, any = 0;
    if (!at || !name)
        return 1;
    for (;;) {
        const char *end = at;
        int out = *at == '!';
        while (*end && *end != ',')
            end += end[0] == '\\' && end[1] ? 2 : 1;
        if (end > at + out) {
            int fits = ts_dump_pattern_fits_(at + out, end, name);
            if (out && fits)
                return 0;
            any |= !out;
            wanted |= !out && fits;
        }
        if (!*end)
            return wanted || !any;
        at = end + 1;
    }
}

/* The count of a name, made when it is new; NULL without memory. Names are told apart by 64 bits of hash: should two
 * ever share them, the second is called #2, and nothing else happens. */
static uint64_t *ts_dump_count_(struct ts_dump_file_ *file, uint64_t hash)
{
    size_t at;
    if (file->name_count * 2 >= file->name_room) {
        size_t room = file->name_room ? file->name_room * 2 : 256, i;
        struct ts_dump_name_ *names = (struct ts_dump_name_ *)calloc(room, sizeof *names);
        if (!names)
            return NULL;
        for (i = 0; i < file->name_room; i++) {
            if (!file->names[i].hash)
                continue;
            for (at = file->names[i].hash & (room - 1); names[at].hash; at = (at + 1) & (room - 1))
                continue;
            names[at] = file->names[i];
        }
        free(file->names);
        file->names = names;
        file->name_room = room;
    }
    for (at = hash & (file->name_room - 1); file->names[at].hash != hash; at = (at + 1) & (file->name_room - 1))
        if (!file->names[at].hash) {
            file->names[at].hash = hash;
            file->name_count++;
            break;
        }
    return &file->names[at].count;
}

/* The name as it stands in the file, into ts_dump_name_text_. */
static int ts_dump_name_tensor_(struct ts_dump_file_ *file, const char *name)
{
    struct ts_dump_text_ *text = &ts_dump_name_text_;
    uint64_t *count, number;
    size_t size;
    ts_dump_empty_(text);
    if (!ts_dump_escape_(text, name, TS_DUMP_NAME_MOST_))
        ts_dump_printf_(text, "~%016llx", (unsigned long long)ts_dump_hash_text_(name, strlen(name)));
    size = text->size;
    if (text->failed || !(count = ts_dump_count_(file, ts_dump_hash_text_(text->data, size))))
        return 0;
    if (strcmp(text->data, "__metadata__") == 0 || strcmp(text->data, "__tsleuth_spare__") == 0)
        *count += !*count; /* these mean something in the file */
    number = ++*count;
    while (number > 1) { /* NAME#2 may have been dumped under that very name */
        uint64_t *taken;
        text->size = size;
        ts_dump_printf_(text, "#%llu", (unsigned long long)number);
        taken = ts_dump_count_(file, ts_dump_hash_text_(text->data, text->size));
        if (text->failed || !taken)
            return 0;
        if (!(*taken)++)
            break;
        number++;
    }
    return 1;
}

/* Elements in row-major order, whatever their strides. merge: axes that lie behind each other become one, which leaves
 * one axis of a tensor without gaps. */
static void ts_dump_walk_begin_(struct ts_dump_walk_ *walk, const struct ts_dump_tensor *tensor, int64_t element,
                                int merge)
{
    int64_t natural = 1, strides[TS_DUMP_MAX_AXES];
    int i, axes = 0;
    memset(walk, 0, sizeof *walk);
    walk->data = (const unsigned char *)tensor->data;
    walk->element = element;
    walk->row_step = walk->column_step = 1;
    for (i = tensor->ndim - 1; i >= 0; i--) {
        strides[i] = (tensor->strides ? tensor->strides[i] : natural) * element;
        natural *= tensor->shape[i];
        walk->finished |= tensor->shape[i] == 0;
    }
    for (i = 0; i < tensor->ndim; i++) {
        if (merge && tensor->shape[i] == 1)
            continue;
        if (merge && axes && walk->strides[axes - 1] == strides[i] * tensor->shape[i]) {
            walk->shape[axes - 1] *= tensor->shape[i];
            walk->strides[axes - 1] = strides[i];
            continue;
        }
        walk->shape[axes] = tensor->shape[i];
        walk->strides[axes++] = strides[i];
    }
    if (!axes) {
        walk->shape[0] = 1;
        walk->strides[axes++] = element;
    }
    walk->axes = axes;
}

static void ts_dump_gather_(unsigned char *out, const unsigned char *from, int64_t count, int64_t stride,
                            int64_t element)
{
    int64_t i;
    if (stride == element) {
        memcpy(out, from, (size_t)(count * element));
        return;
    }
#define TS_DUMP_GATHER_(size)                                                                                          \
    case size:                                                                                                         \
        for (i = 0; i < count; i++)                                                                                    \
            memcpy(out + i * (size), from + i * stride, size);                                                         \
        break
    switch (element) {
        TS_DUMP_GATHER_(1);
        TS_DUMP_GATHER_(2);
        TS_DUMP_GATHER_(4);
        TS_DUMP_GATHER_(8);
    }
#undef TS_DUMP_GATHER_
}

/* The next elements, at most `most`; returns their count. */
static int64_t ts_dump_walk_next_(struct ts_dump_walk_ *walk, unsigned char *out, int64_t most)
{
    int last = walk->axes - 1, i;
    int64_t done = 0;
    while (done < most && !walk->finished) {
        const unsigned char *from = walk->data + walk->column * walk->strides[last];
        int64_t now = (walk->shape[last] - walk->column + walk->column_step - 1) / walk->column_step;
        int64_t carry = walk->row_step;
        for (i = 0; i < last; i++)
            from += walk->at[i] * walk->strides[i];
        if (now > most - done)
            now = most - done;
        ts_dump_gather_(out + done * walk->element, from, now, walk->strides[last] * walk->column_step, walk->element);
        done += now;
        walk->column += now * walk->column_step;
        if (walk->column < walk->shape[last])
            break;
        walk->column = 0;
        for (i = last - 1; i >= 0 && carry; i--) {
            walk->at[i] += carry;
            carry = walk->at[i] / walk->shape[i];
            walk->at[i] %= walk->shape[i];
        }
        walk->finished = carry != 0;
    }
    return done;
}

static int ts_dump_store_walk_(int fd, struct ts_dump_walk_ *walk, uint64_t at)
{
    for (;;) {
        int64_t count = ts_dump_walk_next_(walk, ts_dump_buffer_, (int64_t)TS_DUMP_BUFFER_ / walk->element);
        if (!count)
            return 1;
        if (!ts_dump_store_(fd, ts_dump_buffer_, (uint64_t)(count * walk->element), at))
            return 0;
        at += (uint64_t)(count * walk->element);
    }
}

static uint64_t ts_dump_hash_walk_(struct ts_dump_walk_ *walk)
{
    struct ts_dump_hash_ hash;
    size_t left = 0, size = 0;
    int64_t count;
    ts_dump_hash_begin_(&hash);
    while ((count = ts_dump_walk_next_(walk, ts_dump_buffer_, (int64_t)TS_DUMP_BUFFER_ / walk->element)) > 0) {
        size = (size_t)(count * walk->element);
        left = ts_dump_hash_add_(&hash, ts_dump_buffer_, size);
    }
    return ts_dump_hash_end_(&hash, ts_dump_buffer_ + size - left, left);
}

static const struct {
    const char *name;
    unsigned bits;
} ts_dump_types_[] = {{"F32", 32},    {"F64", 64},    {"F16", 16},        {"BF16", 16},       {"F8_E4M3", 8},
                      {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6},
                      {"F6_E3M2", 6}, {"F4", 4},      {"C64", 64},        {"I64", 64},        {"I32", 32},
                      {"I16", 16},    {"I8", 8},      {"U64", 64},        {"U32", 32},        {"U16", 16},
                      {"U8", 8},      {"BOOL", 8}};

/* Why a description cannot be followed, or NULL; *count elements, *bytes. */
static const char *ts_dump_check_(const struct ts_dump_tensor *tensor, uint64_t *count, uint64_t *bytes)
{
    uint64_t product = 1, bits;
    int i, empty = 0;
    if ((unsigned)tensor->type >= sizeof ts_dump_types_ / sizeof *ts_dump_types_)
        return "its element type is not known";
    if (tensor->ndim < 0 || tensor->ndim > TS_DUMP_MAX_AXES || (tensor->ndim && !tensor->shape))
        return "it has a negative number of axes, more than 32, or no shape";
    for (i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] < 0)
            return "its shape has a negative number";
        empty |= tensor->shape[i] == 0;
        if (tensor->shape[i] && product > ((uint64_t)1 << 56) / (uint64_t)tensor->shape[i])
            return "its shape is larger than any memory";
        product *= tensor->shape[i] ? (uint64_t)tensor->shape[i] : 1;
    }
    *count = empty ? 0 : product;
    bits = *count * ts_dump_types_[tensor->type].bits;
    *bytes = bits / 8;
    if (bits % 8)
        return "its elements do not fill whole bytes";
    if (*count && !tensor->data)
        return "its data is a null pointer";
    if (tensor->strides && ts_dump_types_[tensor->type].bits < 8)
        return "types under a byte cannot have strides";
    return NULL;
}

/* Sets the steps of a walk over rows by the wish in the environment; 0 when the tensor stays whole. */
static int ts_dump_choose_sample_(struct ts_dump_walk_ *walk, const struct ts_dump_tensor *tensor, uint64_t count)
{
    uint64_t most = ts_dump_sample_most_, length, rows;
    if (!count || !tensor->ndim || ts_dump_types_[tensor->type].bits < 8)
        return 0;
    length = (uint64_t)tensor->shape[tensor->ndim - 1];
    rows = count / length;
    if (ts_dump_sample_rows_) {
        if (ts_dump_sample_rows_ == 1 || rows == 1)
            return 0;
        walk->row_step = (int64_t)(ts_dump_sample_rows_ < rows ? ts_dump_sample_rows_ : rows);
        return 1;
    }
    if (!most || count <= most)
        return 0;
    if (length <= most) {
        uint64_t kept = most / length;
        walk->row_step = (int64_t)((rows + kept - 1) / kept);
    } else {
        walk->row_step = (int64_t)rows;
        walk->column_step = (int64_t)((length + most - 1) / most);
    }
    return 1;
}

static void ts_dump_shape_(struct ts_dump_text_ *text, const int64_t *shape, int ndim)
{
    int i;
    for (i = 0; i < ndim; i++)
        ts_dump_printf_(text, "%s%lld", i ? "," : "", (long long)shape[i]);
}

/* ,"tsleuth.note.NAME":"{...}": JSON in a JSON string, so its quotes are escaped. Empty when there is nothing to say.
 */
static void ts_dump_describe_note_(const struct ts_dump_tensor *tensor, const struct ts_dump_walk_ *sample,
                                   uint64_t hash)
{
    struct ts_dump_text_ *note = &ts_dump_note_, inner = {NULL, 0, 0, 0};
    ts_dump_empty_(note);
    if (tensor->axes) {
        ts_dump_put_(&inner, ",\"axes\":\"", 9);
        ts_dump_escape_(&inner, tensor->axes, 400);
        ts_dump_put_(&inner, "\"", 1);
    }
    if (tensor->rank >= 0)
        ts_dump_printf_(&inner, ",\"rank\":%lld", (long long)tensor->rank);
    if (tensor->layer >= 0)
        ts_dump_printf_(&inner, ",\"layer\":%lld", (long long)tensor->layer);
    if (tensor->step >= 0)
        ts_dump_printf_(&inner, ",\"step\":%lld", (long long)tensor->step);
    if (sample) {
        ts_dump_printf_(&inner, ",\"sampled\":true,\"row_step\":%lld,\"column_step\":%lld,\"whole_shape\":[",
                        (long long)sample->row_step, (long long)sample->column_step);
        ts_dump_shape_(&inner, tensor->shape, tensor->ndim);
        ts_dump_printf_(&inner, "],\"whole_hash\":\"xxh64:%016llx\"", (unsigned long long)hash);
    }
    if (inner.size) {
        ts_dump_put_(note, ",\"tsleuth.note.", 15);
        ts_dump_put_(note, ts_dump_name_text_.data, ts_dump_name_text_.size);
        ts_dump_put_(note, "\":\"{", 4);
        ts_dump_escape_(note, inner.data + 1, (size_t)-1);
        ts_dump_put_(note, "}\"", 2);
    }
    note->failed |= inner.failed;
    free(inner.data);
}

/* A tensor that should be in the trace and is not is named in it. */
static int ts_dump_lose_(struct ts_dump_file_ *file, const char *name, const char *why)
{
    struct ts_dump_text_ *note = &ts_dump_note_;
    file->lost++;
    if (!file->told)
        ts_dump_tell_("\"%.200s\" could not be written to %.300s: %s; further ones are only counted", name,
                      file->path ? file->path : "the trace", why);
    file->told = 1;
    if (file->body.fd < 0)
        return 0;
    ts_dump_empty_(note);
    ts_dump_put_(note, ",\"tsleuth.lost.", 15);
    ts_dump_put_(note, ts_dump_name_text_.data, ts_dump_name_text_.size);
    ts_dump_put_(note, "\":\"", 3);
    ts_dump_escape_(note, why, 200);
    ts_dump_put_(note, "\"", 1);
    if (!note->failed)
        ts_dump_add_note_(&file->body, note, TS_DUMP_NEXT_ROOM_);
    return 0;
}

static int ts_dump_commit_(struct ts_dump_body_ *body, const struct ts_dump_text_ *entry, uint64_t bytes)
{
    struct ts_dump_body_ after = *body;
    uint64_t at = ts_dump_place_(body->spare_at, body->header_end - 1, entry->size);
    if (!at || !ts_dump_store_(body->fd, entry->data, entry->size, at))
        return 0;
    after.spare_at = at + entry->size - TS_DUMP_SPARE_SIZE_;
    after.used += bytes;
    if (at != body->spare_at)
        ts_dump_blank_spare_(body);
    *body = after;
    return 1;
}

static int ts_dump_one_(const struct ts_dump_tensor *given)
{
    struct ts_dump_tensor tensor = *given;
    struct ts_dump_walk_ walk, sample;
    struct ts_dump_file_ *file;
    struct ts_dump_text_ *entry = &ts_dump_entry_;
    const char *wrong;
    uint64_t count = 0, bytes = 0, hash = 0, at;
    int64_t element, kept[2];
    int sampled, stored;
    ts_dump_ask_limit_();
    tensor.name = given->name && *given->name ? given->name : "tensor";
    if (!ts_dump_passes_(tensor.name))
        return 0;
    wrong = ts_dump_check_(&tensor, &count, &bytes);
    file = ts_dump_file_of_(tensor.rank >= 0 ? tensor.rank : ts_dump_rank_(),
                            wrong || ts_dump_sample_most_ || ts_dump_sample_rows_ ? 0 : bytes);
    if (!file)
        return 0;
    if (file->body.fd < 0) {
        file->lost++;
        return 0;
    }
    if (!ts_dump_name_tensor_(file, tensor.name))
        return ts_dump_lose_(file, tensor.name, "no memory");
    if (wrong)
        return ts_dump_lose_(file, tensor.name, wrong);
    element = ts_dump_types_[tensor.type].bits >= 8 ? ts_dump_types_[tensor.type].bits / 8 : 1;
    ts_dump_walk_begin_(&sample, &tensor, element, 0);
    sampled = ts_dump_choose_sample_(&sample, &tensor, count);
    ts_dump_walk_begin_(&walk, &tensor, element, 1);
    ts_dump_empty_(entry);
    ts_dump_put_(entry, ",\"", 2);
    ts_dump_put_(entry, ts_dump_name_text_.data, ts_dump_name_text_.size);
    ts_dump_printf_(entry, "\":{\"dtype\":\"%s\",\"shape\":[", ts_dump_types_[tensor.type].name);
    if (sampled) {
        uint64_t length = (uint64_t)tensor.shape[tensor.ndim - 1], rows = count / length;
        kept[0] = (int64_t)((rows + (uint64_t)sample.row_step - 1) / (uint64_t)sample.row_step);
        kept[1] = (int64_t)((length + (uint64_t)sample.column_step - 1) / (uint64_t)sample.column_step);
        hash = ts_dump_hash_walk_(&walk);
        bytes = (uint64_t)(kept[0] * kept[1] * element);
        ts_dump_shape_(entry, tensor.ndim > 1 ? kept : kept + 1, tensor.ndim > 1 ? 2 : 1);
    } else {
        ts_dump_shape_(entry, tensor.shape, tensor.ndim);
    }
    ts_dump_describe_note_(&tensor, sampled ? &sample : NULL, hash);
    if (entry->failed || ts_dump_note_.failed)
        return ts_dump_lose_(file, tensor.name, "no memory");
    /* the offsets and the spare are at most this long */
    if (!ts_dump_make_room_(file, entry->size + 64 + TS_DUMP_SPARE_SIZE_, ts_dump_note_.size, bytes))
        return ts_dump_lose_(file, tensor.name, strerror(errno));
    ts_dump_printf_(entry, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)file->body.used,
                    (unsigned long long)(file->body.used + bytes));
    ts_dump_printf_(entry, TS_DUMP_SPARE_, (unsigned long long)(file->body.room - file->body.used - bytes),
                    (unsigned long long)(file->body.used + bytes), (unsigned long long)file->body.room);
    at = file->body.header_end + file->body.used;
    if (sampled)
        stored = ts_dump_store_walk_(file->body.fd, &sample, at);
    else if (walk.axes == 1 && walk.strides[0] == element)
        stored = ts_dump_store_(file->body.fd, tensor.data, bytes, at);
    else
        stored = ts_dump_store_walk_(file->body.fd, &walk, at);
    if (stored && ts_dump_note_.size) {
        file->noted = 1;
        stored = ts_dump_add_note_(&file->body, &ts_dump_note_, TS_DUMP_NEXT_ROOM_);
    }
    if (!stored || !ts_dump_commit_(&file->body, entry, bytes))
        return ts_dump_lose_(file, tensor.name, strerror(errno));
    file->written++;
    return 1;
}

int ts_dump_write_(const struct ts_dump_tensor *tensor)
{
    int reason = errno, written = 0;
    ts_dump_lock_();
    ts_dump_read_settings_();
    if (ts_dump_state_ == 1 && ts_dump_path_)
        written = ts_dump_one_(tensor);
    pthread_mutex_unlock(&ts_dump_mutex_);
    errno = reason;
    return written;
}

int ts_dump_write_plain_(const char *name, enum ts_dump_type type, const void *data, int ndim, const int64_t *shape)
{
    struct ts_dump_tensor tensor = ts_dump_describe(name, type, data, ndim, shape);
    return ts_dump_write_(&tensor);
}

int ts_dump_wants_(const char *name)
{
    int wants;
    ts_dump_lock_();
    ts_dump_read_settings_();
    wants = ts_dump_state_ == 1 && ts_dump_passes_(name);
    pthread_mutex_unlock(&ts_dump_mutex_);
    return wants;
}

static void ts_dump_close_all_(void)
{
    struct ts_dump_file_ *file;
    ts_dump_ask_limit_();
    for (file = ts_dump_files_; file; file = file->next)
        ts_dump_finish_file_(file);
}

void ts_dump_enable(const char *path)
{
    int reason = errno;
    ts_dump_lock_();
    ts_dump_read_settings_();
    if (path && *path && (!ts_dump_path_ || strcmp(path, ts_dump_path_) != 0)) {
        char *copy = strdup(path);
        ts_dump_close_all_();
        free(ts_dump_path_);
        ts_dump_path_ = copy;
    }
    if (!ts_dump_path_ && !ts_dump_told_) {
        ts_dump_told_ = 1;
        ts_dump_tell_("ts_dump_enable has no path and TSLEUTH_DUMP names none; nothing is dumped");
    }
    __atomic_store_n(&ts_dump_state_, ts_dump_path_ ? 1 : 0, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&ts_dump_mutex_);
    errno = reason;
}

void ts_dump_disable(void)
{
    ts_dump_lock_();
    ts_dump_read_settings_();
    __atomic_store_n(&ts_dump_state_, 0, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&ts_dump_mutex_);
}

void ts_dump_close(void)
{
    int reason = errno;
    ts_dump_lock_();
    ts_dump_close_all_();
    pthread_mutex_unlock(&ts_dump_mutex_);
    errno = reason;
}

void ts_dump_flush(void)
{
    struct ts_dump_file_ *file;
    int reason = errno;
    ts_dump_lock_();
    for (file = ts_dump_files_; file; file = file->next)
        if (file->body.fd >= 0 && fsync(file->body.fd) != 0 && !file->told) {
            file->told = 1;
            ts_dump_tell_("%.300s could not be brought to the disk: %s", file->path, strerror(errno));
        }
    pthread_mutex_unlock(&ts_dump_mutex_);
    errno = reason;
}

void ts_dump_info(const char *key, const char *value)
{
    ts_dump_lock_();
    ts_dump_put_(&ts_dump_info_, ",\"", 2);
    ts_dump_escape_(&ts_dump_info_, key, 1000);
    ts_dump_put_(&ts_dump_info_, "\":\"", 3);
    ts_dump_escape_(&ts_dump_info_, value, 100000);
    ts_dump_put_(&ts_dump_info_, "\"", 1);
    pthread_mutex_unlock(&ts_dump_mutex_);
}

void ts_dump_tokens(const int32_t *ids, size_t count)
{
    size_t i;
    ts_dump_lock_();
    ts_dump_put_(&ts_dump_info_, ",\"tokens\":[", 11);
    for (i = 0; i < count; i++)
        ts_dump_printf_(&ts_dump_info_, "%s%ld", i ? "," : "", (long)ids[i]);
    ts_dump_put_(&ts_dump_info_, "]", 1);
    pthread_mutex_unlock(&ts_dump_mutex_);
}

#if defined(__cplusplus)
}
#endif
#endif /* TSLEUTH_DUMP_IMPLEMENTATION */
