/* One round of `tsleuth debug`: a folder with the reference, the candidate's dump and what both said. */
#ifndef TS_CLI_DEBUG_H
#define TS_CLI_DEBUG_H

#include <stdbool.h>
#include <stdio.h>

struct debug_folder {
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
/* The whole text of a small file, to be freed; NULL when there is none. */
char *debug_read_text(const char *path);
bool debug_write_text(const char *path, const char *text);
/* The last lines of the log. */
void debug_show_log(const char *path, FILE *to);

#endif
