/* shrunk.c - a mapped file that shrinks while it is read ends in SIGBUS: says which file
 * it was, removes what was being written, and exits as for any file that cannot be read.
 *
 * In: the address of the fault. The system's list of mappings has the file's name,
 * whoever mapped it: the model, its external data, a library. Everything here runs in a
 * signal handler, on any thread: no allocation, no stdio, buffers of its own. */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../io/file.h"
#include "cli.h"

enum { EXIT_IO = 3, FIELDS_BEFORE_NAME = 5 };

static char line[4400]; /* of /proc/self/maps: addresses and so on, and a path */
static char buffer[4096];
static char message[4400];
static atomic_flag taken = ATOMIC_FLAG_INIT;

/* The next line of the open file into `line`, cut where it is too long; false at the end.
 */
static bool next_line(int fd, size_t *at, size_t *filled)
{
    size_t n = 0;
    for (;;) {
        if (*at == *filled) {
            ssize_t got = read(fd, buffer, sizeof buffer);
            if (got <= 0)
                return false;
            *at = 0;
            *filled = (size_t)got;
        }
        char c = buffer[(*at)++];
        if (c == '\n')
            break;
        if (n + 1 < sizeof line)
            line[n++] = c;
    }
    line[n] = 0;
    return true;
}

static uintptr_t read_hex(const char **text)
{
    uintptr_t value = 0;
    for (;; (*text)++) {
        char c = **text;
        if (c >= '0' && c <= '9')
            value = value * 16 + (uintptr_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value * 16 + (uintptr_t)(c - 'a' + 10);
        else
            return value;
    }
}

/* "begin-end mode offset device inode   path": is `address` inside, and of which file at
 * which byte? */
static const char *file_in_line(uintptr_t address, uint64_t *byte)
{
    const char *at = line;
    uintptr_t begin = read_hex(&at);
    at += *at == '-';
    if (address < begin || address >= read_hex(&at))
        return NULL;
    for (int field = 1; field < FIELDS_BEFORE_NAME; field++) {
        at += strcspn(at, " ");
        at += strspn(at, " ");
        if (field == 2)
            *byte = read_hex(&at) + (address - begin);
    }
    at += strcspn(at, " ");
    at += strspn(at, " ");
    return *at == '/' ? at : NULL;
}

/* The file mapped at `address`, NULL where there is none. */
static const char *find_file(uintptr_t address, uint64_t *byte)
{
    size_t at = 0, filled = 0;
    const char *path = NULL;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && path == NULL && next_line(fd, &at, &filled))
        path = file_in_line(address, byte);
    if (fd >= 0)
        close(fd);
    return path;
}

static size_t shrunk_put(size_t n, const char *text)
{
    for (; *text != 0 && n + 1 < sizeof message; text++) {
        unsigned char c = (unsigned char)*text;
        message[n++] = c < 32 || c == 127 ? '?' : (char)c; /* safe for a terminal */
    }
    return n;
}

static void on_bus_error(int number, siginfo_t *info, void *unused)
{
    uint64_t byte = 0;
    struct stat st;
    (void)unused;
    while (atomic_flag_test_and_set(&taken))
        pause();                    /* another thread is at it and ends the process */
    bool fault = info->si_code > 0; /* else somebody sent the signal */
    const char *path = fault ? find_file((uintptr_t)info->si_addr, &byte) : NULL;
    if (path == NULL) { /* nothing of a file: as if there were no handler */
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    bool whole = stat(path, &st) == 0 && (uint64_t)st.st_size > byte;
    output_file_interrupted();
    size_t n = shrunk_put(0, "attnrun: IO: '");
    n = shrunk_put(n, path);
    n = shrunk_put(
        n, whole ? "' cannot be read where it is mapped"
                 : "' shrank while it was read; --copy-weights reads it whole first");
    message[n++] = '\n';
    (void)!write(STDERR_FILENO, message, n);
    _exit(EXIT_IO);
}

void cli_catch_bus_error(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    sigfillset(&action.sa_mask);
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGBUS, &action, NULL);
}
