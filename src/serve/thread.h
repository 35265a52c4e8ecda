/* Threads of the server: signals go to the main thread alone. Header only. */
#ifndef TS_SERVE_THREAD_H
#define TS_SERVE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

static inline bool ts_thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    sigset_t all, before;
    int failed;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* faults belong to the thread that makes them */
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !failed;
}

#endif
