/* One round of `tsleuth debug`: a folder with the reference, the candidate's dump and what both said. */
#ifndef TS_CLI_DEBUG_H
#define TS_CLI_DEBUG_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/child.h"
#include "report/report.h"

#include "cli/child.h"
#include "report/report.h"

struct debug_folder {
    char path[4096];      /* of the folder, absolute */
    char reference[4096]; /* reference.safetensors */
    char key[4096];       /* reference.key: what it was made from */
    char dump[4096];      /* candidate/: the candidate writes here */
    char old_dump[4096];  /* candidate.old/: the dump before */
    char log[4096];       /* candidate.log: what the candidate printed */
    char tokens[4096];    /* tokens.txt */
    char facts[4096];     /* run.json: what both runs took */
};

/* Names of a folder's parts; makes the folder. False, with errno set, when it cannot. */
bool debug_folder_open(const char *path, struct debug_folder *folder);
/* An empty dump folder; the one before is kept as candidate.old. */
bool debug_folder_fresh_dump(const struct debug_folder *folder);
/* Whether anything was dumped. */
bool debug_folder_has_dump(const struct debug_folder *folder);
/* The whole text of a small file, to be freed; NULL, with errno set, when there is none. */
char *debug_read_text(const char *path);
/* Says so; returns EXIT_TROUBLE. */
int debug_tell_unreadable(const char *path);
bool debug_write_text(const char *path, const char *text);
/* The last lines of the log. */
void debug_show_log(const char *path, FILE *to);

/* What the last runs in the folder took, as run.json has it: zeros where that says nothing. */
struct debug_facts {
    struct child reference, candidate; /* seconds 0: not known */
    bool reused;                       /* the reference was there already */
};
void debug_facts_read(const struct debug_folder *folder, struct debug_facts *facts);
bool debug_facts_write(const struct debug_folder *folder, const struct debug_facts *facts);

/* `tsleuth compare` with what making both sides took: two of these, or NULL. */
int compare_measured(int argc, char **argv, const struct ts_report_cost *costs);

#endif
