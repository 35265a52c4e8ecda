/* Workspace: up to two inputs and one comparison of them. A folder with what was uploaded and a small JSON file, so
 * that a restart finds it again; in memory the comparison, while somebody looks at it.
 *
 * The folder of a workspace: `workspace.json`, `0/` and `1/` with the files of the two sides, `0.part/` and `1.part/`
 * with those that are not complete, `map.json` and `order.txt` of the last run, `mappings.json` with what was mapped by
 * hand. */
#ifndef TS_SERVE_WORKSPACE_H
#define TS_SERVE_WORKSPACE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/json.h"
#include "base/progress.h"
#include "serve/lane.h"

#define TS_WORKSPACE_ID 33 /* 'w' and 128 bits in hexadecimal */

struct ts_server;
struct ts_call;
struct ts_opened;
struct ts_upload;
struct ts_source;

enum ts_workspace_state { TS_STATE_IDLE, TS_STATE_BUSY, TS_STATE_DONE, TS_STATE_FAILED };

struct ts_workspace {
    struct ts_server *server;
    char id[TS_WORKSPACE_ID + 1];
    atomic_uint holders;
    pthread_mutex_t lock; /* guards what follows */
    uint64_t created;     /* seconds since 1970 */
    uint64_t used, saved; /* the last use; that which the file knows */
    uint64_t touched_ms;  /* monotonic: for closing what rests */
    char *paths[2];       /* of this machine, or NULL for uploads */
    bool swapped;         /* the sides stand in each other's folder */
    bool deleted;
    enum ts_workspace_state state;
    char *options;      /* JSON of the last run; NULL when there was none */
    char message[1200]; /* of a failed run */
    char fix[256];
    struct ts_opened *opened;   /* held; NULL while closed */
    struct ts_call *waiting;    /* calls that wait for the end of the run */
    struct ts_upload *uploads;  /* under way */
    uint64_t news;              /* counts what happened to it, for event streams */
    struct ts_source **forming; /* what a run has open: its pages may be let go while it works */
    size_t forming_count;
    struct ts_task job;
    struct ts_watch watch;
    _Atomic(const char *) stage; /* of the run, in the words of the API */
    struct ts_workspace *next;
};

struct ts_store {
    char *folder;
    pthread_mutex_t lock;
    struct ts_workspace *first;
    size_t count;
};

#define TS_MOST_WORKSPACES 1000

enum ts_status ts_store_open(struct ts_server *server, const char *folder, struct ts_error *error);
void ts_store_close(struct ts_store *store);
/* Writes down when workspaces were used. Removes what was not used for so many days, and the oldest while all hold more
 * than is to be kept or the disk is nearly full. */
void ts_store_clean(struct ts_server *server);

/* Held; NULL when there is none of that id. */
struct ts_workspace *ts_workspace_find(struct ts_server *server, const char *id);
enum ts_status ts_workspace_new(struct ts_server *server, const char *const paths[2], struct ts_workspace **workspace,
                                struct ts_error *error);
struct ts_workspace *ts_workspace_hold(struct ts_workspace *workspace);
void ts_workspace_drop(struct ts_workspace *workspace); /* NULL is fine */
/* Everything but the paths of this machine. */
void ts_workspace_delete(struct ts_workspace *workspace);

/* Its comparison is open, and nobody has asked for it for ten minutes before `now`; the lock is held. */
bool ts_workspace_rests(const struct ts_workspace *workspace, uint64_t now_ms);
/* Says that a run was under way when the server ended; the lock is held. */
void ts_workspace_cut_short(struct ts_workspace *workspace);
/* Writes workspace.json; the lock is held. */
enum ts_status ts_workspace_save(struct ts_workspace *workspace, struct ts_error *error);

/* The folder of a side, or that of its unfinished files; the lock is held. False when it is too long. */
bool ts_workspace_folder(const struct ts_workspace *workspace, unsigned side, bool part, char *out, size_t size);
/* What to open for a side: a path of this machine, the only file or folder that was uploaded, or the folder of all.
 * Empty when there is nothing. The lock is held. */
bool ts_workspace_input(const struct ts_workspace *workspace, unsigned side, char *out, size_t size);
/* How it is called in reports. */
void ts_workspace_name(const struct ts_workspace *workspace, unsigned side, char *out, size_t size);

/* The sides, the files, the state; the lock is held. */
void ts_workspace_json(struct ts_workspace *workspace, struct ts_json_writer *json, bool files);

#endif
