/* The search by breadth, on all its workers. Each worker is a thread and owns the states whose hash falls to it: their
   strings one after the other, each with its predecessor, and a table that finds them.

   A level is searched in rounds. In a round each worker expands states of its own; a string that another worker owns
   goes to a box, and boxes are emptied at the end of the round. So no lock is needed, each state is stored once, and
   the states, transitions and depth do not depend on the number of workers. Strings are compared whole: a hash only
   says where to look. */

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

enum { WORKERS_MAX = 64, HEAD = 10, BOX_BYTES = 1 << 20, NUM_FIRST = 100, EVERY = 16, GOES_ON = 0, TIME, TRANSITIONS, MEMORY, FOUND, TOO_LARGE, CANCELLED };

typedef struct { uint8_t *bytes; size_t num, max; } Box;
typedef struct {
  Trial trial;
  uint8_t *strings;  /* predecessor (8 bytes), length (2), string, and so on */
  size_t num_bytes, next, level_end, *slots, num_slots;
  long num_states, num_transitions, num_expanded;
  size_t expanding;
  Box boxes[WORKERS_MAX];
  int number, has_done, reads_left_out;
} Worker;

typedef struct {
  long states, transitions, depth, reason, finding, detail, rule, worker, offset, bytes, expanded, reads_left_out;
} Report;

static Worker *workers;
static int num_workers;
static size_t memory_of_each;
static long transitions_max, states_max, level;
static double seconds_max;
static struct timespec began;
static volatile int reason, level_is_done, is_over;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static int num_waiting, num_present, turn;

static void all_wait(void (*last)(void)) {
  pthread_mutex_lock(&gate);
  int mine = turn;
  if (++num_waiting >= num_present) {
    if (last) last();
    num_waiting = 0;
    turn++;
    pthread_cond_broadcast(&opened);
  } else while (mine == turn) pthread_cond_wait(&opened, &gate);
  pthread_mutex_unlock(&gate);
}
static void stop(int why) { if (!reason) reason = why; }
static int length_at(const uint8_t *record) { uint16_t n; memcpy(&n, record + 8, 2); return n; }
static size_t memory_of(const Worker *w) { return w->num_bytes + w->num_slots * sizeof(size_t); }

/* A slot is 0, or the place of a string plus 1, below 16 bits of its hash. */
#define PLACE(slot) (((slot) & 0xFFFFFFFFFFFFull) - 1)
static int put_slot(size_t *slots, size_t num_slots, uint64_t h, size_t place) {
  size_t i = h / WORKERS_MAX & (num_slots - 1);
  while (slots[i]) i = (i + 1) & (num_slots - 1);
  slots[i] = (h >> 48 << 48) | (place + 1);
  return 1;
}
static int grow(Worker *w) {
  size_t num = w->num_slots ? 2 * w->num_slots : 1024;
  if (w->num_bytes + (num + w->num_slots) * sizeof(size_t) > memory_of_each) return 0;
  size_t *slots = calloc(num, sizeof(size_t));
  if (!slots) return 0;
  for (size_t i = 0; i < w->num_slots; i++) if (w->slots[i]) {
    size_t place = PLACE(w->slots[i]);
    put_slot(slots, num, hash_of(w->strings + place + HEAD, length_at(w->strings + place)), place);
  }
  free(w->slots);
  w->slots = slots;
  w->num_slots = num;
  return 1;
}
static void insert(Worker *w, uint64_t h, uint64_t from, const uint8_t *bytes, int num) {
  size_t i = h / WORKERS_MAX & (w->num_slots - 1);
  for (; w->slots[i]; i = (i + 1) & (w->num_slots - 1)) {
    const uint8_t *known = w->strings + PLACE(w->slots[i]);
    if (w->slots[i] >> 48 == h >> 48 && length_at(known) == num && !memcmp(known + HEAD, bytes, num)) return;
  }
  if (w->num_states >= states_max || memory_of(w) + HEAD + num > memory_of_each || ((size_t)w->num_states * 3 >= w->num_slots * 2 && !grow(w))) {
    stop(MEMORY);
    return;
  }
  uint8_t *record = w->strings + w->num_bytes;
  uint16_t length = num;
  memcpy(record, &from, 8);
  memcpy(record + 8, &length, 2);
  memcpy(record + HEAD, bytes, num);
  put_slot(w->slots, w->num_slots, h, w->num_bytes);
  w->num_bytes += HEAD + num;
  w->num_states++;
}
static void reached(void *to, int num) {
  Worker *w = to;
  const uint8_t *bytes = w->trial.bytes;
  uint64_t h = hash_of(bytes, num), from = (uint64_t)w->number << 56 | w->expanding;
  int owner = h % WORKERS_MAX % num_workers;
  w->num_transitions++;
  if (w->trial.form.too_large) { stop(TOO_LARGE); return; }
  if (owner == w->number) { insert(w, h, from, bytes, num); return; }
  Box *box = &w->boxes[owner];
  if (box->num + 18 + num > box->max) {
    size_t max = box->max ? 2 * box->max : 4 * BOX_BYTES;
    uint8_t *more = realloc(box->bytes, max);
    if (!more) { stop(MEMORY); return; }
    box->bytes = more;
    box->max = max;
  }
  uint16_t length = num;
  memcpy(box->bytes + box->num, &h, 8);
  memcpy(box->bytes + box->num + 8, &from, 8);
  memcpy(box->bytes + box->num + 16, &length, 2);
  memcpy(box->bytes + box->num + 18, bytes, num);
  box->num += 18 + num;
}
static void empty(Worker *w, Box *box) {
  for (size_t at_byte = 0; at_byte < box->num && !reason;) {
    uint64_t h, from;
    uint16_t num;
    memcpy(&h, box->bytes + at_byte, 8);
    memcpy(&from, box->bytes + at_byte + 8, 8);
    memcpy(&num, box->bytes + at_byte + 16, 2);
    insert(w, h, from, box->bytes + at_byte + 18, num);
    at_byte += 18 + num;
  }
  box->num = 0;
}
static double seconds_since(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (now.tv_sec - began.tv_sec) + (now.tv_nsec - began.tv_nsec) * 1e-9;
}
static long transitions(void) {
  long sum = 0;
  for (int i = 0; i < num_workers; i++) sum += workers[i].num_transitions;
  return sum;
}
static void begin_round(void) {
  level_is_done = 1;
  for (int i = 0; i < num_workers; i++) level_is_done &= workers[i].has_done;
  if (reason) is_over = 1;
  if (is_over || !level_is_done) return;
  is_over = 1;
  for (int i = 0; i < num_workers; i++) {
    is_over &= workers[i].num_bytes == workers[i].level_end;
    workers[i].level_end = workers[i].num_bytes;
  }
  level += !is_over;
}
/* Expands the next state of this level, and returns how many bytes are in the boxes then. */
static size_t expand_next(Worker *w) {
  Trial *t = &w->trial;
  int num = length_at(w->strings + w->next);
  size_t num_boxed = 0;
  w->expanding = w->next;
  int is_left = w->num_expanded >= NUM_FIRST && w->num_expanded % EVERY;
  if (is_left || w->reads_left_out) expand(t, w->strings + w->next + HEAD, num);
  else w->reads_left_out = expand_twice(t, w->strings + w->next + HEAD, num, w->num_expanded % (2 * EVERY) < EVERY ? FAR_OFF : NEAR_BY);
  w->num_expanded++;
  if (t->finding) { stop(FOUND); return 0; }
  w->next += HEAD + num;
  for (int i = 0; i < num_workers; i++) num_boxed += w->boxes[i].num;
  return num_boxed;
}
static void *work(void *argument) {
  Worker *w = argument;
  counts = w->trial.counts;
  while (!is_over) {
    size_t num_boxed = 0;
    while (w->next < w->level_end && num_boxed < BOX_BYTES && !reason) {
      if (transitions() >= transitions_max) { stop(TRANSITIONS); break; }
      if ((w->num_expanded & 63) == 0 && seconds_since() > seconds_max) { stop(TIME); break; }
      num_boxed = expand_next(w);
    }
    w->has_done = w->next == w->level_end;
    all_wait(0);
    for (int i = 0; i < num_workers; i++) if (i != w->number) empty(w, &workers[i].boxes[w->number]);
    all_wait(begin_round);
  }
  return 0;
}

static void make_trial(Trial *t) {
  size_t num = num_cells + 2 + NUM_IDS_MAX + TOKENS_MAX;
  memset(t, 0, sizeof *t);
  t->state = calloc(num, sizeof(cell));
  t->work = calloc(num, sizeof(cell));
  t->bytes = malloc(2 * STREAM_MAX);
}
static void free_trial(Trial *t) { free(t->state); free(t->work); free(t->bytes); }

/* Sizes, the first state, and the scope in the order of its struct. */
int prepare(const int *sizes, const cell *as_it_is, const int *of_scope) {
  set_sizes(sizes);
  memcpy(&scope, of_scope, sizeof scope);
  free(first);
  free(initial);
  first = calloc(num_cells + 2, sizeof(cell));
  initial = calloc(num_cells + 2, sizeof(cell));
  if (!first || !initial) return 0;
  cell clean[num_cells + 2];
  memcpy(initial, as_it_is, num_cells * sizeof(cell));
  memcpy(first, initial, num_cells * sizeof(cell));
  erase(first, clean);
  memcpy(first, clean, num_cells * sizeof(cell));
  return 1;
}
void forget(void) {
  for (int i = 0; i < num_workers; i++) {
    if (workers[i].strings) munmap(workers[i].strings, memory_of_each);
    free(workers[i].slots);
    for (int j = 0; j < num_workers; j++) free(workers[i].boxes[j].bytes);
    free_trial(&workers[i].trial);
  }
  free(workers);
  workers = 0;
  num_workers = 0;
}
void cancel(void) { stop(CANCELLED); }
long num_found(void) {
  long sum = 0;
  for (int i = 0; i < num_workers; i++) sum += workers[i].num_states;
  return sum;
}
/* Makes an empty worker with room for its states. Returns 0 if there is no memory. */
static int begin_worker(Worker *w, int number) {
  w->number = number;
  make_trial(&w->trial);
  w->trial.reached = reached;
  w->trial.to = w;
  w->strings = mmap(0, memory_of_each, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (w->strings == MAP_FAILED) { w->strings = 0; return 0; }
  return grow(w);
}
/* Inserts the first state, if its owner is among these workers. */
static void insert_first(int from_worker, int to_worker) {
  Trial root;
  make_trial(&root);
  memcpy(root.state, first, num_cells * sizeof(cell));
  int num = encode(root.state, &root.form, root.bytes);
  uint64_t h = hash_of(root.bytes, num);
  int owner = h % WORKERS_MAX % num_workers;
  if (owner >= from_worker && owner < to_worker) insert(&workers[owner], h, UINT64_MAX, root.bytes, num);
  free_trial(&root);
}
static void report(long *counted_by_name, Report *out) {
  memset(out, 0, sizeof *out);
  out->reason = reason;
  out->depth = level;
  for (int i = 0; i < num_workers; i++) {
    Worker *w = &workers[i];
    out->states += w->num_states;
    out->transitions += w->num_transitions;
    out->expanded += w->num_expanded;
    out->reads_left_out |= w->reads_left_out;
    out->bytes += memory_of(w);
    for (int j = 0; j < 256; j++) counted_by_name[j] += w->trial.counts[j];
    if (w->trial.finding && !out->finding) {
      out->finding = w->trial.finding;
      out->detail = w->trial.detail;
      out->rule = w->trial.rule;
      out->worker = i;
      out->offset = w->expanding;
    }
  }
}
/* Search from the first state. Returns 0 if there is no memory at all. */
int search(int with_workers, size_t memory, double seconds, long max_transitions, long *counted_by_name, Report *out) {
  forget();
  states_max = LONG_MAX;
  memory_of_each = memory / with_workers;
  seconds_max = seconds;
  transitions_max = max_transitions;
  workers = calloc(with_workers, sizeof(Worker));
  if (!workers) return 0;
  num_workers = with_workers;
  reason = level_is_done = is_over = num_waiting = 0;
  level = 0;
  clock_gettime(CLOCK_MONOTONIC, &began);
  for (int i = 0; i < num_workers; i++) if (!begin_worker(&workers[i], i)) { forget(); return 0; }
  insert_first(0, num_workers);
  for (int i = 0; i < num_workers; i++) workers[i].level_end = workers[i].num_bytes;
  pthread_t threads[WORKERS_MAX];
  int num_threads = 0;
  num_present = num_workers;
  for (int i = 1; i < num_workers; i++) {
    if (pthread_create(&threads[num_threads], 0, work, &workers[i])) { stop(MEMORY); break; }
    num_threads++;
  }
  pthread_mutex_lock(&gate);
  num_present = num_threads + 1;
  pthread_mutex_unlock(&gate);
  work(&workers[0]);
  for (int i = 0; i < num_threads; i++) pthread_join(threads[i], 0);
  report(counted_by_name, out);
  return 1;
}
/* The string of a stored state, into `bytes`; its length. Sets where it came from: the worker and the place. */
int stored(int worker, long offset, int *from_worker, long *from, uint8_t *bytes) {
  const uint8_t *record = workers[worker].strings + offset;
  uint64_t before;
  memcpy(&before, record, 8);
  *from_worker = before == UINT64_MAX ? -1 : (int)(before >> 56);
  *from = (long)(before & 0xFFFFFFFFFFFFFFull);
  memcpy(bytes, record + HEAD, length_at(record));
  return length_at(record);
}
/* The places of at most `num` of the states that a worker has expanded, evenly spaced; the number of them. */
int sample(int worker, int num, long *places) {
  const Worker *w = &workers[worker];
  int found = 0;
  long number = 0, num_expanded = w->num_expanded;
  if (num > num_expanded) num = num_expanded;
  for (size_t at_byte = 0; found < num && at_byte < w->next; at_byte += HEAD + length_at(w->strings + at_byte))
    if (number++ == (found + 1) * num_expanded / num - 1) places[found++] = at_byte;
  return found;
}

/* One part of a search that several processes share: this process is one of the workers, and has no others. Who calls
   carries the boxes to the other processes, and ends a level when every part has expanded its states. */
static Worker *part;

/* Makes the part of a number. Returns 0 if there is no memory. */
int begin_part(int number, int num_parts, size_t memory, long max_states) {
  forget();
  memory_of_each = memory;
  states_max = max_states;
  transitions_max = LONG_MAX;
  workers = calloc(num_parts, sizeof(Worker));
  if (!workers) return 0;
  num_workers = num_parts;
  reason = 0;
  part = &workers[number];
  if (!begin_worker(part, number)) { forget(); return 0; }
  return 1;
}
void insert_first_of_part(void) { insert_first(part->number, part->number + 1); }
/* Expands states for so many seconds, or until the boxes have so many bytes. Returns whether the level is done. */
int expand_part(double seconds, size_t max_bytes) {
  size_t num_boxed = 0;
  counts = part->trial.counts;
  clock_gettime(CLOCK_MONOTONIC, &began);
  for (long n = 1; part->next < part->level_end && num_boxed < max_bytes && !reason; n++) {
    num_boxed = expand_next(part);
    if (n % 64 == 0 && seconds_since() > seconds) break;
  }
  return part->next == part->level_end;
}
/* The strings for another part, each with its hash and predecessor. They are valid until the next call, and gone then. */
const uint8_t *box_of_part(int owner, size_t *num) {
  Box *box = &part->boxes[owner];
  *num = box->num;
  box->num = 0;
  return box->bytes;
}
void take_box(uint8_t *bytes, size_t num) { empty(part, &(Box){bytes, num, num}); }
/* Ends the level: what is new becomes the next one. Returns the new states, as they are stored. */
const uint8_t *end_level_of_part(size_t *num) {
  const uint8_t *from = part->strings + part->level_end;
  *num = part->num_bytes - part->level_end;
  part->next = part->level_end;
  part->level_end = part->num_bytes;
  return from;
}
/* Takes the states of an earlier level, as `end_level_of_part` returned them, and ends that level. */
void restore_part(const uint8_t *bytes, size_t num) {
  for (size_t at_byte = 0; at_byte < num && !reason;) {
    uint64_t from;
    int length = length_at(bytes + at_byte);
    memcpy(&from, bytes + at_byte, 8);
    insert(part, hash_of(bytes + at_byte + HEAD, length), from, bytes + at_byte + HEAD, length);
    at_byte += HEAD + length;
  }
  for (; part->next < part->level_end; part->num_expanded++) part->next += HEAD + length_at(part->strings + part->next);
  part->level_end = part->num_bytes;
}
void report_of_part(long *counted_by_name, Report *out) { report(counted_by_name, out); }

/* For one state: what Python asks when it compares, and when it follows a path. */
typedef struct { uint8_t *at; long num, max, count; } Strings;
static Trial *asking;
static void collected(void *to, int num) {
  Strings *s = to;
  uint16_t length = num;
  if (s->num + 2 + num > s->max) { s->max = -1; return; }
  memcpy(s->at + s->num, &length, 2);
  memcpy(s->at + s->num + 2, asking->bytes, num);
  s->num += 2 + num;
  s->count++;
}
/* The length of the string of a state; -1: it has too many identities, 0: a number of it is out of range. */
int string_of(const cell *state, uint8_t *bytes) {
  Trial t;
  make_trial(&t);
  out_of_range = 0;
  int num = encode(state, &t.form, bytes);
  int too_large = t.form.too_large;
  free_trial(&t);
  return out_of_range ? 0 : too_large ? -1 : num;
}
void state_of(const uint8_t *bytes, int num, cell *state) {
  Trial t;
  make_trial(&t);
  decode(bytes, num, &t.form, state);
  fill(state, AS_FIRST, 0);
  free_trial(&t);
}
/* The strings that one state leads to, each after its length (2 bytes). The number of them, or -1: no room. */
long successors(const uint8_t *bytes, int num, uint8_t *out, long max, int *finding) {
  Trial t;
  Strings found = {out, 0, max, 0};
  make_trial(&t);
  asking = &t;
  counts = t.counts;
  t.reached = collected;
  t.to = &found;
  expand(&t, bytes, num);
  *finding = t.finding;
  free_trial(&t);
  return found.max < 0 ? -1 : found.count;
}
/* Fire one rule on cells; whether a subscript was out of range. */
int fire_on(cell *state, int rule, const int *a, const cell *row, int *range) {
  out_of_range = 0;
  int result = fire(state, rule, a, row);
  *range = out_of_range;
  return result;
}
int claim_of(const cell *state) { return broken_claim(state); }
