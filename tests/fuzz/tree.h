/* tree.h - a random tree of folders, files, links, pipes and sockets on the disk, and what a model
 * may read of it. */
#ifndef ATTN_FUZZ_TREE_H
#define ATTN_FUZZ_TREE_H

#include "attnrun.h"
#include "fuzz_random.h"

enum { TREE_MAX = 24, TREE_LOCATION = 5000 };

enum tree_kind { TREE_FOLDER, TREE_FILE, TREE_LINK, TREE_PIPE, TREE_SOCKET };

struct tree_entry {
    enum tree_kind kind;
    int folder; /* index of the entry that it is in */
    char name[256];
    int64_t bytes; /* of a file */
    int content; /* of a file: the entry whose bytes it has, itself or a hard link's target */
    int links; /* of a file: names that it has */
};

/* entries[TREE_BASE] is the folder of the model, entries[TREE_OUTSIDE] a folder beside it with
 * files that no model may read. */
enum { TREE_BASE, TREE_OUTSIDE, TREE_SECRET, TREE_FIRST };
struct tree {
    char root[64]; /* holds all of it, and is empty between cases */
    char base[80];
    struct tree_entry entries[TREE_MAX];
    int n;
};

/* An empty folder in memory where the system has one. False where it cannot be made. */
bool tree_root(struct tree *t);
void tree_make(struct tree *t, struct fuzz_random *r);
/* Removes all entries, and the root, too, where `root` is set. Follows no link. */
void tree_remove(struct tree *t, bool root);

/* A location of a model: mostly that of an entry, often almost right. */
void tree_location(const struct tree *t, struct fuzz_random *r, char text[TREE_LOCATION]);
/* What opening it must give by the rules of attn_file_open_beneath(), and the entry with its
 * bytes. */
attnrun_status tree_expect(const struct tree *t, const char *location, int *entry);
/* Whether a file of the folder is a hard link to the secret. */
bool tree_links_secret(const struct tree *t);
/* The byte `at` of the content of an entry. None inside is one of a secret. */
uint8_t tree_byte(int content, int64_t at);

/* Another entry takes the place of one, as of a program that changes the folder in between: the
 * tree is then no longer what `entries` say. */
void tree_disturb(const struct tree *t, struct fuzz_random *r);

#endif
