/* Threads: signals go to the main thread alone, and the stack is as large on every system. Header only. */
#ifndef TS_BASE_THREAD_H
#define TS_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

/* Linux gives this by habit, macOS 512 KB, musl 128 KB. Memory is taken as it is touched. */
#define TS_THREAD_STACK ((size_t)8 << 20)

static inline bool ts_thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    bool started;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* faults belong to the thread that makes them */
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    started = pthread_attr_setstacksize(&attributes, TS_THREAD_STACK) == 0 &&
              pthread_create(thread, &attributes, run, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

#endif
