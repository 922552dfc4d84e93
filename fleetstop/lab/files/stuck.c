/* Where a main thread can be stuck in C code that does not return, whatever signal it takes.
   Includes no header and links nothing, so any C compiler alone can build it. */
int sched_yield(void);
int usleep(unsigned);
int nanosleep(const long *, long *);
int sem_wait(void *);
int vfork(void);
int pause(void);

void spin(void) { for (volatile unsigned long n = 0;; n++) {} }
void yield_spin(void) { for (;;) sched_yield(); }    /* as a CUDA spin-wait */
void usleep_poll(void) { for (;;) usleep(10000); }   /* as a blocking synchronisation */

void sleep_on(void) {
    long left[2] = {600, 0}; /* struct timespec; what is left goes back into it */
    while (nanosleep(left, left)) {}
}

void wait_for_nobody(void) {
    static long never[4]; /* sem_t, its value 0 */
    for (;;) sem_wait(never);
}

void wait_for_vfork(void) {
    if (vfork() == 0) /* the parent sleeps in D until this child execs or ends */
        for (;;) pause();
}
