/* tree.c - in: a seed; out: entries on the disk, locations, and what each must give. See tree.h. */
#define _XOPEN_SOURCE 700
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#ifdef ATTN_MSAN
#include <sanitizer/msan_interface.h>
#endif

/* No path of an entry is as long as the system's limit, 4,096 bytes. */
enum { PATH_BYTES = 8192, LONGEST = 3500 };

_Noreturn static void stop(const char *what, const char *path)
{
    fprintf(stderr, "%s '%s': %s\n", what, path, strerror(errno));
    exit(2);
}

/* ---- entries ---- */

/* The path of an entry from the base, or from the root with `whole`. */
static void path_of(const struct tree *t, int entry, bool whole, char path[PATH_BYTES])
{
    char rest[PATH_BYTES] = "";
    for (int i = entry; i >= 0 && (whole || i != TREE_BASE); i = t->entries[i].folder) {
        const int n = snprintf(path, PATH_BYTES, "%s%s%s", t->entries[i].name,
                               rest[0] != 0 ? "/" : "", rest);
        if (n < 0 || n >= PATH_BYTES)
            stop("too long", path);
        memcpy(rest, path, (size_t)n + 1);
    }
    if (whole) {
        const int n = snprintf(path, PATH_BYTES, "%s/%s", t->root, rest);
        if (n < 0 || n >= PATH_BYTES)
            stop("too long", path);
    } else {
        memcpy(path, rest, strlen(rest) + 1);
    }
}

uint8_t tree_byte(int content, int64_t at)
{
    const uint64_t mixed = ((uint64_t)content * 1000003 + (uint64_t)at / 3) * 2654435761U;
    const uint8_t low = (uint8_t)(mixed >> 13 & 0x7f);
    return content == TREE_SECRET ? low | 0x80 : low;
}

static void write_file(const char *path, int content, int64_t bytes)
{
    uint8_t data[256];
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    for (int64_t i = 0; i < bytes; i++)
        data[i] = tree_byte(content, i);
    if (fd < 0 || write(fd, data, (size_t)bytes) != (ssize_t)bytes)
        stop("cannot write", path);
    close(fd);
}

/* A name of a folder is used by one entry. */
static bool is_taken(const struct tree *t, int folder, const char *name)
{
    for (int i = 0; i < t->n; i++)
        if (t->entries[i].folder == folder && strcmp(t->entries[i].name, name) == 0)
            return true;
    return false;
}

static void make_name(struct fuzz_random *r, char name[256])
{
    static const char *const names[] = {
        "a",        "b",  "w.bin",   "...",  "..w",    "a b",
        "\xc3\xbc", "-",  "~",       "*",    "w\nbin", "%s",
        "C:",       "\\", "\x1b[2J", "\xff", ".w",     "model.onnx.data"
    };
    const int64_t k = fuzz_below(r, 20);
    memset(name, 0, 256);
    if (k < 18)
        snprintf(name, 256, "%s", names[k]);
    else
        memset(name, 'n', k == 18 ? 255 : 254);
}

/* A folder of the tree; those outside are left alone. */
static int pick_folder(const struct tree *t, struct fuzz_random *r)
{
    for (int tries = 0; tries < 8; tries++) {
        const int i = (int)fuzz_below(r, t->n);
        if (t->entries[i].kind == TREE_FOLDER && i != TREE_OUTSIDE)
            return i;
    }
    return TREE_BASE;
}

static void link_target(const struct tree *t, struct fuzz_random *r,
                        char target[PATH_BYTES])
{
    static const char *const fixed[] = { "../outside",
                                         "../outside/secret",
                                         ".",
                                         "..",
                                         "/proc/self/status",
                                         "/etc/passwd",
                                         "a",
                                         "b",
                                         "w.bin",
                                         "nowhere" };
    if (fuzz_chance(r, 60))
        snprintf(target, PATH_BYTES, "%s", fixed[fuzz_below(r, 10)]);
    else
        path_of(t, (int)fuzz_below(r, t->n), true, target);
}

static void make_socket(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (strlen(path) >= sizeof address.sun_path) { /* a pipe is as good */
        if (mkfifo(path, 0600) != 0)
            stop("cannot make", path);
        return;
    }
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(address.sun_path, path, strlen(path) + 1);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof address) != 0)
        stop("cannot make", path);
    close(fd);
}

/* A second name of a file; false where there is none to take. */
static bool make_hard_link(struct tree *t, struct fuzz_random *r, struct tree_entry *e,
                           const char *path)
{
    char from[PATH_BYTES];
    const int i = (int)fuzz_below(r, t->n);
    struct tree_entry *of = &t->entries[i];
    if (of->kind != TREE_FILE)
        return false;
    path_of(t, i, true, from);
    if (link(from, path) != 0)
        stop("cannot link", path);
    e->bytes = of->bytes;
    e->content = of->content;
    return true;
}

static void add_entry(struct tree *t, struct fuzz_random *r)
{
    char path[PATH_BYTES], target[PATH_BYTES];
    struct tree_entry *e = &t->entries[t->n];
    *e = (struct tree_entry){ .folder = pick_folder(t, r), .content = t->n };
    make_name(r, e->name);
    if (is_taken(t, e->folder, e->name))
        return;
    path_of(t, t->n, true, path);
    if (strlen(path) > LONGEST)
        return;
    const int64_t k = fuzz_below(r, 100);
    if (k < 30) {
        e->kind = TREE_FOLDER;
        if (mkdir(path, 0700) != 0)
            stop("cannot make", path);
    } else if (k < 45) {
        e->kind = TREE_LINK;
        link_target(t, r, target);
        if (symlink(target, path) != 0)
            stop("cannot link", path);
    } else if (k < 50) {
        e->kind = k < 48 ? TREE_PIPE : TREE_SOCKET;
        if (e->kind == TREE_SOCKET)
            make_socket(path);
        else if (mkfifo(path, 0600) != 0)
            stop("cannot make", path);
    } else {
        e->kind = TREE_FILE;
        if (k > 60 || !make_hard_link(t, r, e, path)) {
            e->bytes = fuzz_below(r, fuzz_chance(r, 20) ? 10 : 257);
            write_file(path, t->n, e->bytes);
        }
    }
    t->n++;
}

static void count_links(struct tree *t)
{
    for (int i = 0; i < t->n; i++) {
        t->entries[i].links = 0;
        for (int k = 0; k < t->n; k++)
            t->entries[i].links += t->entries[k].kind == TREE_FILE &&
                                   t->entries[k].content == t->entries[i].content;
    }
}

bool tree_root(struct tree *t)
{
    const char *folders[] = { "/dev/shm", getenv("TMPDIR"), "/tmp" };
    for (int i = 0; i < 3; i++) {
        if (folders[i] == NULL || strlen(folders[i]) > 30)
            continue;
        snprintf(t->root, sizeof t->root, "%s/attnrun-paths-XXXXXX", folders[i]);
        if (mkdtemp(t->root) != NULL) {
            snprintf(t->base, sizeof t->base, "%s/base", t->root);
            return true;
        }
    }
    perror("mkdtemp");
    return false;
}

void tree_make(struct tree *t, struct fuzz_random *r)
{
    char path[PATH_BYTES];
    t->entries[TREE_BASE] = (struct tree_entry){ .folder = -1, .name = "base" };
    t->entries[TREE_OUTSIDE] = (struct tree_entry){ .folder = -1, .name = "outside" };
    t->entries[TREE_SECRET] = (struct tree_entry){ .kind = TREE_FILE,
                                                   .folder = TREE_OUTSIDE,
                                                   .name = "secret",
                                                   .bytes = 256,
                                                   .content = TREE_SECRET };
    t->n = TREE_FIRST;
    for (int i = 0; i < TREE_FIRST; i++) {
        path_of(t, i, true, path);
        if (i == TREE_SECRET)
            write_file(path, i, 256);
        else if (mkdir(path, 0700) != 0)
            stop("cannot make", path);
    }
    for (int64_t k = 1 + fuzz_below(r, TREE_MAX - TREE_FIRST); k > 0; k--)
        add_entry(t, r);
    count_links(t);
}

static const char *kept; /* by remove_one */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
#ifdef ATTN_MSAN
    __msan_unpoison_string(path); /* nftw() has written it, which is not instrumented */
#endif
    if (kept == NULL || strcmp(path, kept) != 0)
        (void)remove(path); /* what is left fails in the next case */
    return 0;
}

void tree_remove(struct tree *t, bool root)
{
    kept = root ? NULL : t->root;
    nftw(t->root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- locations ---- */

/* `more` at byte `at` of text, which holds it. */
static void insert(char text[TREE_LOCATION], size_t at, const char *more)
{
    const size_t n = strlen(text), added = strlen(more);
    if (n + added >= TREE_LOCATION)
        return;
    memmove(text + at + added, text + at, n - at + 1);
    memcpy(text + at, more, added);
}

/* Where a component begins. */
static size_t pick_component(const char *text, struct fuzz_random *r)
{
    size_t begins[64] = { 0 };
    int n = 1;
    for (size_t i = 0; text[i] != 0 && n < 64; i++)
        if (text[i] == '/')
            begins[n++] = i + 1;
    return begins[fuzz_below(r, n)];
}

static void change_location(const struct tree *t, struct fuzz_random *r,
                            char text[TREE_LOCATION])
{
    static const char *const at_a_component[] = {
        "./", "/", "../", "a/", "a/../", "././"
    };
    static const char *const at_the_end[] = {
        "/", "/.", "/..", "/a", "\\..", "\xff", " "
    };
    static const char *const whole[] = { "",
                                         ".",
                                         "..",
                                         "/",
                                         "//",
                                         "../outside/secret",
                                         "*/_ORT_MEM_ADDR_/*",
                                         "/proc/self/fd/0",
                                         "file:///etc/passwd",
                                         "a/../../outside/secret" };
    char path[PATH_BYTES];
    switch (fuzz_below(r, 8)) {
    case 0: /* through another entry, which may be a link */
        snprintf(path, sizeof path, "%s/", t->entries[fuzz_below(r, t->n)].name);
        insert(text, pick_component(text, r), path);
        break;
    case 1:
        insert(text, pick_component(text, r), at_a_component[fuzz_below(r, 6)]);
        break;
    case 2:
        insert(text, strlen(text), at_the_end[fuzz_below(r, 7)]);
        break;
    case 3:
        snprintf(text, TREE_LOCATION, "%s", whole[fuzz_below(r, 10)]);
        break;
    case 4: /* absolute */
        path_of(t, (int)fuzz_below(r, t->n), true, path);
        snprintf(text, TREE_LOCATION, "%.*s", TREE_LOCATION - 1, path);
        break;
    case 5: /* cut */
        text[fuzz_below(r, (int64_t)strlen(text) + 1)] = 0;
        break;
    case 6: /* long, of components or of one */
        for (int64_t k = fuzz_below(r, 3) == 0 ? 2100 : fuzz_below(r, 140); k > 0; k--)
            insert(text, pick_component(text, r), fuzz_chance(r, 95) ? "./" : "nn");
        break;
    default:
        if (text[0] != 0)
            text[fuzz_below(r, (int64_t)strlen(text))] = (char)(1 + fuzz_below(r, 255));
    }
}

void tree_location(const struct tree *t, struct fuzz_random *r, char text[TREE_LOCATION])
{
    char path[PATH_BYTES];
    int entry = (int)fuzz_below(r, t->n);
    for (int tries = 0; tries < 3 && t->entries[entry].kind != TREE_FILE; tries++)
        entry = (int)fuzz_below(r, t->n);
    path_of(t, entry, false, path);
    snprintf(text, TREE_LOCATION, "%.*s", TREE_LOCATION - 1, path);
    for (int64_t k = fuzz_chance(r, 50) ? 0 : 1 + fuzz_below(r, 3); k > 0; k--)
        change_location(t, r, text);
}

/* ---- what must come of it ---- */

/* The rules that need no disk. */
static bool is_plain(const char *location)
{
    const char *last = ".";
    size_t last_bytes = 1;
    if (location[0] == '/')
        return false;
    for (const char *at = location;; at++) {
        const size_t n = strcspn(at, "/");
        if (n == 0 || n > 255 || (n == 2 && memcmp(at, "..", 2) == 0))
            return false;
        last = at;
        last_bytes = n;
        at += n;
        if (*at == 0)
            break;
    }
    return !(last_bytes == 1 && last[0] == '.');
}

static int find_child(const struct tree *t, int folder, const char *name, size_t bytes)
{
    for (int i = 0; i < t->n; i++)
        if (t->entries[i].folder == folder && strlen(t->entries[i].name) == bytes &&
            memcmp(t->entries[i].name, name, bytes) == 0)
            return i;
    return -1;
}

attnrun_status tree_expect(const struct tree *t, const char *location, int *entry)
{
    int at = TREE_BASE;
    if (!is_plain(location))
        return ATTNRUN_E_PATH;
    for (const char *c = location;;) {
        const size_t n = strcspn(c, "/");
        const bool is_last = c[n] == 0;
        if (n != 1 || c[0] != '.')
            at = find_child(t, at, c, n);
        if (at < 0)
            return ATTNRUN_E_IO;
        if (is_last)
            break;
        if (t->entries[at].kind != TREE_FOLDER)
            return ATTNRUN_E_PATH;
        c += n + 1;
    }
    *entry = at;
    return t->entries[at].kind == TREE_FILE && t->entries[at].links == 1 ? ATTNRUN_OK
                                                                         : ATTNRUN_E_PATH;
}

bool tree_links_secret(const struct tree *t)
{
    for (int i = TREE_FIRST; i < t->n; i++)
        if (t->entries[i].content == TREE_SECRET)
            return true;
    return false;
}

/* ---- another program ---- */

void tree_disturb(const struct tree *t, struct fuzz_random *r)
{
    char path[PATH_BYTES], other[PATH_BYTES], secret[PATH_BYTES];
    if (t->n == TREE_FIRST)
        return;
    const int k = TREE_FIRST + (int)fuzz_below(r, t->n - TREE_FIRST);
    path_of(t, k, true, path);
    path_of(t, (int)fuzz_below(r, t->n), true, other);
    path_of(t, fuzz_chance(r, 50) ? TREE_SECRET : TREE_OUTSIDE, true, secret);
    snprintf(other + strlen(other), 8, ".new");
    switch (fuzz_below(r, 5)) { /* what fails is as good: nothing changes */
    case 0:
        (void)!rename(path, other);
        break;
    case 1:
        (void)!rename(path, other);
        (void)!symlink(secret, path);
        break;
    case 2:
        (void)!remove(path);
        (void)!link(secret, path);
        break;
    case 3:
        (void)!remove(path);
        (void)!mkfifo(path, 0600);
        break;
    default:
        (void)!rename(path, other);
        (void)!mkdir(path, 0700);
    }
}
