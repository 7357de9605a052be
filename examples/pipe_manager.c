/* A block manager in C that kvproof checks over a pipe; the protocol is in docs/pipe.md.
 *
 *     cc -O2 -o manager examples/pipe_manager.c
 *     kvproof hunt --subject "pipe:./manager"
 *
 * Blocks are counted by reference, forks share them, and an append to a shared block copies it first. Compiled with
 * -DFORGET_TO_COUNT, a fork does not count its references.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS_MAX 4096
#define SEQS_MAX 4096
#define LINE_MAX_BYTES (1 << 20)

struct sequence {
    int *table, num_blocks, num_tokens;
};

static int block_size, num_blocks, num_free, num_seqs;
static int refs[BLOCKS_MAX], free_ids[BLOCKS_MAX];
static struct sequence seqs[SEQS_MAX];
static char line[LINE_MAX_BYTES];

/* Reading: keys are unique and written without blanks, so a key can be sought as text. */

static const char *value_of(const char *key) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "\"%s\":", key);
    const char *at = strstr(line, wanted);
    return at ? at + strlen(wanted) : NULL;
}

static int number(const char *key) { return value_of(key) ? atoi(value_of(key)) : 0; }

static int length_of(const char *key) { /* of an array of numbers */
    const char *at = value_of(key);
    if (!at || at[1] == ']')
        return 0;
    int count = 1;
    for (at++; *at != ']'; at++)
        count += *at == ',';
    return count;
}

static int item(const char *key, int index) {
    const char *at = value_of(key) + 1;
    while (index--)
        at = strchr(at, ',') + 1;
    return atoi(at);
}

/* The manager. */

static int blocks_for(int num_tokens) { return (num_tokens + block_size - 1) / block_size; }

static int take(void) {
    int block = free_ids[--num_free];
    refs[block] = 1;
    return block;
}

static void drop(int block) {
    if (--refs[block] == 0)
        free_ids[num_free++] = block;
}

static void add_block(struct sequence *seq) {
    seq->table = realloc(seq->table, (seq->num_blocks + 1) * sizeof *seq->table);
    seq->table[seq->num_blocks++] = take();
}

static void release(struct sequence *seq) {
    while (seq->num_blocks)
        drop(seq->table[--seq->num_blocks]);
    free(seq->table);
    memset(seq, 0, sizeof *seq);
}

static void begin(void) {
    while (num_seqs) {
        free(seqs[--num_seqs].table);
        memset(&seqs[num_seqs], 0, sizeof seqs[num_seqs]);
    }
    block_size = number("block_size");
    num_blocks = num_free = number("num_gpu_blocks");
    for (int block = 0; block < num_blocks; block++) {
        free_ids[block] = num_blocks - 1 - block;
        refs[block] = 0;
    }
}

static int can_append(void) { /* a new block, or a copy of a shared one, for each sequence at worst */
    int needed = 0;
    for (int i = 0; i < length_of("seqs"); i++) {
        struct sequence *seq = &seqs[item("seqs", i)];
        int is_new = blocks_for(seq->num_tokens + 1) > seq->num_blocks;
        needed += is_new || refs[seq->table[seq->num_blocks - 1]] > 1;
    }
    return needed <= num_free;
}

static void append(struct sequence *seq) { /* one token */
    int *last, old;
    if (blocks_for(seq->num_tokens + 1) > seq->num_blocks) {
        add_block(seq);
        printf("[]");
    } else if (refs[old = *(last = &seq->table[seq->num_blocks - 1])] > 1) {
        *last = take();
        drop(old);
        printf("[[%d,%d]]", old, *last);
    } else {
        printf("[]");
    }
    seq->num_tokens++;
}

static void fork_sequence(struct sequence *parent, struct sequence *child) {
    *child = *parent;
    child->table = malloc((parent->num_blocks + 1) * sizeof *child->table);
    for (int i = 0; i < parent->num_blocks; i++) {
        child->table[i] = parent->table[i];
#ifndef FORGET_TO_COUNT
        refs[child->table[i]]++;
#endif
    }
}

static void print_ids(const int *ids, int count) {
    for (int i = 0; i < count; i++)
        printf(i ? ",%d" : "%d", ids[i]);
}

static void print_seen(void) {
    const char *comma = "";
    printf("{\"tables\":{");
    for (int seq = 0; seq < num_seqs; seq++)
        if (seqs[seq].num_blocks) {
            printf("%s\"%d\":[", comma, seq);
            print_ids(seqs[seq].table, seqs[seq].num_blocks);
            printf("]");
            comma = ",";
        }
    printf("},\"free\":%d,\"refs\":[", num_free);
    print_ids(refs, num_blocks);
    printf("],\"free_ids\":[");
    print_ids(free_ids, num_free);
    printf("]}");
}

static struct sequence *sequence(const char *key) {
    int seq = number(key) % SEQS_MAX;
    if (seq >= num_seqs)
        num_seqs = seq + 1;
    return &seqs[seq];
}

static int is_call(const char *name) { return !strncmp(value_of("call") + 1, name, strlen(name)); }

static void answer(void) { /* what the call gives, as JSON */
    struct sequence *seq = sequence("seq");
    if (is_call("can_allocate")) {
        printf(blocks_for(length_of("tokens")) <= num_free ? "true" : "false");
    } else if (is_call("can_append")) {
        printf(can_append() ? "true" : "false");
    } else if (is_call("append")) {
        append(seq);
    } else if (is_call("observe")) {
        print_seen();
    } else {
        if (is_call("open"))
            begin();
        else if (is_call("allocate"))
            for (seq->num_tokens = length_of("tokens"); seq->num_blocks < blocks_for(seq->num_tokens);)
                add_block(seq);
        else if (is_call("share"))
            fork_sequence(sequence("parent"), sequence("child"));
        else if (is_call("release"))
            release(seq);
        printf("null");
    }
}

int main(void) {
    printf("{\"kvproof\":1,\"name\":\"pipe-example\",\"capabilities\":{\"fork\":true}}\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        printf("{\"answer\":");
        answer();
        printf(",\"seen\":");
        print_seen();
        printf("}\n");
        fflush(stdout);
    }
    return 0;
}
