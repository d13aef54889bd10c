/* Restore a terminal when the program on it crashes, with nothing but what a handler of signals may call. */

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

enum { CRASHES = 5, PATIENCE = 1000 };

static const int crashes[CRASHES] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
static struct sigaction before[CRASHES];
static struct termios settings;
static int keyboard, screen;
static const char *modes;

/* Once it is restored; not from the background, where the terminal is another program's. */
void terminal_restore(void)
{
    struct pollfd out = {.fd = screen, .events = POLLOUT};
    pid_t group = tcgetpgrp(keyboard);
    if (group != -1 && group != getpgrp())
        return;
    tcsetattr(keyboard, TCSANOW, &settings);
    /* a terminal that is stopped or lost must not keep the process */
    if (poll(&out, 1, PATIENCE) == 1 && !(out.revents & (POLLERR | POLLHUP)) && write(screen, modes, strlen(modes)) > 0)
        tcflush(keyboard, TCIFLUSH);
}

void terminal_release(void)
{
    for (int k = 0; k < CRASHES; k++)
        sigaction(crashes[k], &before[k], NULL);
}

static void crashed(int number)
{
    terminal_release();
    terminal_restore();
    raise(number); /* handled as before, as soon as this returns */
}

/* Returns 0 where the descriptor is no terminal. */
int terminal_guard(int keys, int output, const char *sequence)
{
    struct sigaction ours = {.sa_handler = crashed, .sa_flags = SA_ONSTACK};
    if (tcgetattr(keys, &settings))
        return 0;
    keyboard = keys, screen = output, modes = sequence;
    sigfillset(&ours.sa_mask);
    for (int k = 0; k < CRASHES; k++)
        sigaction(crashes[k], &ours, &before[k]);
    return 1;
}
