/* The canonical form of a state; `canonical_form.py` says what it is, and puts in what depends on the fields. */
enum { NUM_IDS_MAX = $NUM_IDS_MAX, IDS_MAX = $IDS_MAX, STREAM_MAX = $STREAM_MAX, ADDED_MAX = 260 };
#define NUM_IDENTITIES(s) ((s)[num_cells])
#define PARENT(s, i) ((s)[num_cells + 1 + (i)])
static cell *first;  /* the first state, without cells that have no meaning */
static cell *initial;  /* the first state as it is */
/* Other values: far from any number that a search uses, and within what identities are looked up in; or small, as what a
   rule may compare them with. NUM_OTHERS is prime, so that hardly any two cells that a rule may compare have the same. */
enum { AS_FIRST, FAR_OFF, NEAR_BY, FAR = 450, NUM_OTHERS = 53, NEAR = 3 };
enum { UNNAMED = 255, NUM_SEQ_WORDS = ($NUM_SEQ_NUMBERS + 7) / 8 };
typedef struct {
  int num_seqs, num_named, num_flights, num_ids, num_kept, too_large, has_best, is_probe, is_best, has_links, has_kept;
  int seqs[IDS_MAX], named[IDS_MAX + 1], flights[IDS_MAX], kept[IDS_MAX], flight_name[IDS_MAX];
  int refs[IDS_MAX + 1], times[NUM_IDS_MAX + ADDED_MAX], visited[NUM_IDS_MAX + ADDED_MAX], stamp;
  uint64_t seq_mark[IDS_MAX], block_mark[IDS_MAX], kept_mark[IDS_MAX];
  uint64_t seq_numbers[IDS_MAX][NUM_SEQ_WORDS];  /* the codes of the numbers of a sequence */
  uint8_t block_codes[IDS_MAX + 2];              /* at the name + 1 */
  uint16_t id_codes[NUM_IDS_MAX + ADDED_MAX + 1];  /* at the identity + 1 */
  int ids[NUM_IDS_MAX + ADDED_MAX];
  unsigned char is_linked[IDS_MAX];
  int num, num_best, at_best;
  uint8_t streams[2][STREAM_MAX + 16];
} Form;
static inline uint64_t mix(uint64_t h, uint64_t v) { h = (h ^ v) * 0x9E3779B97F4A7C15ull; return h ^ (h >> 29); }
static inline int state_cells(const cell *s) { return num_cells + 2 + NUM_IDENTITIES(s); }

/* Copies a state, without the cells that have no meaning. */
static void erase(const cell *restrict s, cell *restrict clean) {
  memcpy(clean, s, state_cells(s) * sizeof(cell));
$ERASE
}
static inline int other_number(const cell *s, int place, int is_other) {
  int near = 1 + place % (NEAR - 1);
  return is_other == FAR_OFF || near > NUM_IDENTITIES(s) ? FAR + place % NUM_OTHERS : near;
}
/* Gives every cell without a meaning the value of the first state, or another one. by_sequence: those at one place of two
   sequences get the same. */
static void fill(cell *s, int is_other, int by_sequence) {
$FILL
}
static int seq_is_plain(const cell *s, int seq) {
  $SEQ_PLAIN
  return 1;
}
static int block_is_plain(const cell *s, int block) {
  $BLOCK_PLAIN
  return 1;
}
static int flight_is_plain(const cell *s, int flight) {
  $FLIGHT_PLAIN
  return 1;
}
static int seqs_are_same(const cell *s, int seq, int other) {
  $SEQ_SAME
  return 1;
}

/* Codes: 0 names nothing; 1 is NULL for a block. */
static inline int number_code(int *bits, int v) { *bits |= v + 128; return (uint8_t)v; }
static inline int block_code(const Form *f, int v) { return f->block_codes[at(v + 1, k_NUM_BLOCKS + 2)]; }
static inline int flight_code(const Form *f, int v) { return v == k_NONE ? 0 : 1 + f->flight_name[at(v, k_NUM_FLIGHTS)]; }
static inline int identity_code(const Form *f, int v) { return f->id_codes[v + 1]; }
static inline int block_of(const Form *f, int code) { return code == 0 ? k_NONE : code == 1 ? k_NULL : f->named[at(code - 2, IDS_MAX + 1)]; }
static inline int flight_of(const Form *f, int code) { (void)f; return code - 1; }
static inline int identity_of(const Form *f, int code) { (void)f; return code == 255 ? k_NONE : code; }

static inline void name_block(Form *f, int v) {
  uint8_t *code = &f->block_codes[at(v + 1, k_NUM_BLOCKS + 2)];
  if (*code == UNNAMED) { *code = 2 + f->num_named; f->named[f->num_named++] = v; }
}
static void name_new_identity(const cell *s, Form *f, int v) {
  int before = PARENT(s, v);
  if (!f->id_codes[before + 1] && before > 0) name_new_identity(s, f, before);
  f->ids[++f->num_ids] = v;
  f->id_codes[v + 1] = f->num_ids;
}
static inline void name_identity(const cell *s, Form *f, int v) { if (!f->id_codes[v + 1] && v > 0) name_new_identity(s, f, v); }
static inline void visit_up(const cell *s, Form *f, int v) {
  while (v > 0 && f->visited[v] != f->stamp) { f->visited[v] = f->stamp; f->times[v]++; v = PARENT(s, v); }
}

/* The sequences that exist, each with the codes of its numbers and a hash of them; the flights that exist. */
#define EMIT(code) (*out++ = (uint8_t)(code))
static void survey(const cell *s, Form *f) {
  int bits = 0;  /* more than eight: a number is too large for a byte */
  f->num_seqs = f->num_flights = f->has_best = f->is_probe = f->has_links = f->has_kept = 0;
  for (int flight = 0; flight < k_NUM_FLIGHTS; flight++) {
    f->flight_name[flight] = IDS_MAX;  /* no flight: what a wrong rule may let a block name */
    if (!flight_is_plain(s, flight)) f->flights[f->num_flights++] = flight;
  }
  for (int seq = 0; seq < k_NUM_SEQS; seq++) if (!seq_is_plain(s, seq)) {
    uint64_t *words = f->seq_numbers[seq], h = 7;
    uint8_t *out = (uint8_t *)words;
    words[NUM_SEQ_WORDS - 1] = 0;
  $SEQ_NUMBERS
    for (int i = 0; i < NUM_SEQ_WORDS; i++) h = mix(h, words[i]);
    f->seq_mark[seq] = h;
    f->seqs[f->num_seqs++] = seq;
  }
  f->too_large |= (bits & ~255) != 0;
}
static uint64_t mark_of_block(const cell *s, int block) {
  uint64_t h = $CLASS(block);
  $BLOCK_NUMBERS
  return h;
}
/* How often each block and identity is named; hashes of the numbers of blocks. */
static void count_links(const cell *s, Form *f) {
  int num_ids = NUM_IDENTITIES(s);
  if (f->has_links) return;
  f->has_links = 1;
  memset(f->refs, 0, sizeof(int) * (k_NUM_BLOCKS + 1));
  memset(f->times, 0, sizeof(int) * (num_ids + 1));
  memset(f->visited, 0, sizeof(int) * (num_ids + 1));
  f->stamp = 0;
  unsigned char is_held[IDS_MAX] = {0};
#define EACH(v) do { int b = (v); if (b != k_NONE && b != k_NULL) { b = at(b, k_NUM_BLOCKS); f->refs[b]++; is_held[b] = 1; } } while (0)
  for (int j = 0; j < f->num_seqs; j++) { int seq = f->seqs[j];
  $SEQ_BLOCKS
  }
#undef EACH
#define EACH(v) do { int b = (v); if (b != k_NONE && b != k_NULL) f->refs[at(b, k_NUM_BLOCKS)]++; } while (0)
  for (int j = 0; j < f->num_flights; j++) { int flight = f->flights[j];
  $FLIGHT_BLOCKS
  }
#undef EACH
#define EACH(v) visit_up(s, f, (v))
  for (int block = 0; block < k_NUM_BLOCKS; block++) {
    f->block_mark[block] = mark_of_block(s, block);
    if (is_held[block] || block_is_plain(s, block)) continue;
    f->stamp++;
  $BLOCK_IDENTITYS
  }
  for (int j = 0; j < f->num_seqs; j++) { int seq = f->seqs[j];
    f->stamp++;
  $SEQ_IDENTITYS
  }
#undef EACH
}
/* What tells sequences with equal numbers apart, and whether one shares something with anything. */
static void mark_links(const cell *s, Form *f, int seq) {
  int linked = f->num_flights > 0;
  uint64_t h = f->seq_mark[seq];
#define EACH(v) do { int b = (v); if (b != k_NONE && b != k_NULL) { b = at(b, k_NUM_BLOCKS); h = mix(h, f->block_mark[b]); linked |= f->refs[b] != 1; } else h = mix(h, 99 + b); } while (0)
  $SEQ_BLOCKS
#undef EACH
#define EACH(v) do { int i = (v); if (i <= 0) h = mix(h, 77); for (; i > 0 && f->visited[i] != f->stamp; i = PARENT(s, i)) { f->visited[i] = f->stamp; h = mix(h, f->times[i]); linked |= f->times[i] != 1; } } while (0)
  f->stamp++;
  $SEQ_IDENTITYS
#undef EACH
  f->seq_mark[seq] = h;
  f->is_linked[seq] = linked;
}
/* By their marks: those of their numbers first, those of their links where numbers are equal. */
static void sort_seqs(Form *f, int from, int to) {
  for (int j = from + 1; j < to; j++) {
    int seq = f->seqs[j], i = j;
    while (i > from && f->seq_mark[f->seqs[i - 1]] > f->seq_mark[seq]) { f->seqs[i] = f->seqs[i - 1]; i--; }
    f->seqs[i] = seq;
  }
}
static void order_by_marks(const cell *s, Form *f) {
  sort_seqs(f, 0, f->num_seqs);
  for (int from = 0, to; from < f->num_seqs; from = to) {
    uint64_t mark = f->seq_mark[f->seqs[from]];
    for (to = from + 1; to < f->num_seqs && f->seq_mark[f->seqs[to]] == mark;) to++;
    if (to - from == 1) continue;
    count_links(s, f);
    for (int j = from; j < to; j++) mark_links(s, f, f->seqs[j]);
    sort_seqs(f, from, to);
  }
}

static void write_out(const cell *s, Form *f) {
  uint8_t *restrict out = f->streams[!f->at_best], *start = out;
  int bits = 0, num_seqs = f->num_seqs, num_named = f->num_named;
  EMIT(f->num_seqs); EMIT(f->num_named); EMIT(f->num_flights); EMIT(f->num_ids);
  if (f->num_ids > NUM_IDS_MAX) { f->too_large = 1; f->num = 4; return; }
  for (int k = 0; k < num_named; k++) EMIT($CLASS(f->named[k]));
  for (int k = 1; k <= f->num_ids; k++) EMIT(k - 1 - f->id_codes[PARENT(s, f->ids[k]) + 1]);
  for (int j = 0; j < num_seqs; j++) { int seq = f->seqs[j];
    memcpy(out, f->seq_numbers[seq], 8 * NUM_SEQ_WORDS);
    out += $NUM_SEQ_NUMBERS;
  $SEQ_EMIT
  }
  for (int k = 0; k < num_named; k++) { int block = f->named[k];
  $BLOCK_EMIT
  }
  for (int j = 0; j < f->num_flights; j++) { int flight = f->flights[j];
  $FLIGHT_EMIT
  }
  for (int j = 0; j < num_seqs; j++) for (int k = 0; k < num_named; k++) { int seq = f->seqs[j], block = f->named[k];
  $CROSSED_EMIT
  }
  $REST_EMIT
  f->num = out - start;
  f->too_large |= (bits & ~255) != 0;
}
static void sort_flights(const cell *s, Form *f) {
  uint8_t keys[IDS_MAX][$NUM_FLIGHT_CODES];
  for (int j = 0; j < f->num_flights; j++) {
    int flight = f->flights[j], bits = 0;
    uint8_t *out = keys[flight];
  $FLIGHT_EMIT
  }
  for (int j = 1; j < f->num_flights; j++) {
    int flight = f->flights[j], i = j;
    while (i > 0 && memcmp(keys[f->flights[i - 1]], keys[flight], $NUM_FLIGHT_CODES) > 0) { f->flights[i] = f->flights[i - 1]; i--; }
    f->flights[i] = flight;
  }
  for (int j = 0; j < f->num_flights; j++) f->flight_name[f->flights[j]] = j;
}
static void compared(const cell *s, Form *f) {
  int num_named = f->num_named, num_ids = f->num_ids;
  for (int j = 0; j < f->num_kept; j++) name_block(f, f->kept[j]);
  for (int k = num_named; k < f->num_named; k++) { int block = f->named[k];
#define EACH(v) name_identity(s, f, (v))
  $BLOCK_IDENTITYS
#undef EACH
  }
  for (int k = 0; k < num_named; k++) { int block = f->named[k];  /* what a broken rule left in a held block */
#define EACH(v) name_identity(s, f, (v))
  $BLOCK_IDENTITYS
#undef EACH
  }
  if (f->num_flights) sort_flights(s, f);
  write_out(s, f);
  int smaller = f->num_best - f->num;
  if (f->has_best && !smaller) smaller = memcmp(f->streams[f->at_best], f->streams[!f->at_best], f->num);
  f->is_best = f->has_best && !smaller;
  if (!f->has_best || smaller > 0) { f->at_best = !f->at_best; f->num_best = f->num; f->has_best = 1; }
  while (f->num_ids > num_ids) f->id_codes[f->ids[f->num_ids--] + 1] = 0;
  while (f->num_named > num_named) f->block_codes[f->named[--f->num_named] + 1] = UNNAMED;
}
static void order_kept(const cell *s, Form *f, int done) {
  int end = done;
  while (end < f->num_kept && f->kept_mark[f->kept[end]] == f->kept_mark[f->kept[done]]) end++;
  if (done == f->num_kept) { compared(s, f); return; }
  if (end - done > 5) end = done + 1;
  for (int j = done; j < (f->is_probe ? done + 1 : end); j++) {
    int a = f->kept[done], b = f->kept[j];
    f->kept[done] = b; f->kept[j] = a;
    order_kept(s, f, done + 1);
    f->kept[done] = a; f->kept[j] = b;
  }
}
/* The blocks that no table names, and that are not as in the first state. */
static void find_kept(const cell *s, Form *f) {
  f->num_kept = 0;
  for (int block = 0; block < k_NUM_BLOCKS; block++)
    if (f->block_codes[block + 1] == UNNAMED && !block_is_plain(s, block)) f->kept[f->num_kept++] = block;
  f->has_kept = 1;
}
/* What tells the kept blocks apart: their numbers, how their content continues what has a name, and, if that does not
   suffice, how often the content is named. Returns whether the marks of two are equal. */
static int mark_kept(const cell *s, Form *f, int with_times) {
  int is_tied = 0;
  for (int j = 0; j < f->num_kept; j++) {
    int block = f->kept[j], i = j;
    uint64_t h = mark_of_block(s, block);
#define EACH(v) do { int v_ = (v), up = 0; if (with_times && v_ > 0) h = mix(h, f->times[v_]); while (v_ > 0 && !f->id_codes[v_ + 1]) { up++; v_ = PARENT(s, v_); } h = mix(mix(h, up), v_ > 0 ? f->id_codes[v_ + 1] : v_); } while (0)
  $BLOCK_IDENTITYS
#undef EACH
    f->kept_mark[block] = h;
    while (i > 0 && f->kept_mark[f->kept[i - 1]] > h) { f->kept[i] = f->kept[i - 1]; i--; }
    f->kept[i] = block;
  }
  for (int j = 1; j < f->num_kept; j++) is_tied |= f->kept_mark[f->kept[j - 1]] == f->kept_mark[f->kept[j]];
  return is_tied;
}
static void sort_kept(const cell *s, Form *f) {
  if (!mark_kept(s, f, 0)) return;
  count_links(s, f);
  mark_kept(s, f, 1);
}
static void named_seqs(const cell *s, Form *f) {
  f->num_named = f->num_ids = 0;
  memset(f->block_codes, UNNAMED, k_NUM_BLOCKS + 2);
  f->block_codes[k_NONE + 1] = 0;
  f->block_codes[k_NULL + 1] = 1;
  memset(f->id_codes, 0, sizeof(uint16_t) * (NUM_IDENTITIES(s) + 2));
  f->id_codes[k_NONE + 1] = 255;
  for (int j = 0; j < f->num_seqs; j++) { int seq = f->seqs[j];
#define EACH(v) name_block(f, (v))
  $SEQ_BLOCKS
#undef EACH
#define EACH(v) name_identity(s, f, (v))
  $SEQ_IDENTITYS
#undef EACH
  }
  if (!f->has_kept) find_kept(s, f);
  if (f->num_kept > 1) sort_kept(s, f);
  order_kept(s, f, 0);
}
/* Every order of the sequences that are left equal. One order is tried for each that may come next; if it gives the best
   string again, a renaming turns its other orders into orders that have been tried. */
static void order_seqs(const cell *s, Form *f, int done) {
  if (done >= f->num_seqs - 1) { named_seqs(s, f); return; }
  int end = done + 1;
  while (end < f->num_seqs && f->seq_mark[f->seqs[end]] == f->seq_mark[f->seqs[done]]) end++;
  if (!f->is_linked[f->seqs[done]]) end = done + 1;
  for (int j = done; j < end; j++) {
    int a = f->seqs[done], b = f->seqs[j], is_known = 0;
    for (int i = done; i < j && !is_known; i++) is_known = seqs_are_same(s, f->seqs[i], b);
    if (is_known) continue;
    f->seqs[done] = b; f->seqs[j] = a;
    int is_first = j == done, was_probe = f->is_probe;
    if (!is_first) { f->is_probe = 1; order_seqs(s, f, done + 1); f->is_probe = 0; }
    if (is_first || !f->is_best) order_seqs(s, f, done + 1);
    f->seqs[done] = a; f->seqs[j] = b;
    if (was_probe) break;
  }
}
$PACKING
/* The string of a state, into `out`; its length. */
static int encode(const cell *state, Form *f, uint8_t *out) {
  cell s[state_cells(state)];
  erase(state, s);
  survey(s, f);
  order_by_marks(s, f);
  order_seqs(s, f, 0);
  return pack(f->streams[f->at_best], f->num_best, out);
}
#define TAKE() (*in++)
static void decode(const uint8_t *bytes, int num_bytes, Form *f, cell *s) {
  const uint8_t *in = f->streams[0];
  unpack(bytes, num_bytes, f->streams[0]);
  f->num_seqs = TAKE(); f->num_named = TAKE(); f->num_flights = TAKE(); f->num_ids = TAKE();
  memcpy(s, first, num_cells * sizeof(cell));
  for (int k = 0; k < f->num_named; k++) {
    int class = TAKE(), block = 0, before = 0;
    for (int i = 0; i < k; i++) before += $CLASS(f->named[i]) == class;
    while ($CLASS(block) != class || before-- > 0) block++;
    f->named[k] = block;
  }
  NUM_IDENTITIES(s) = f->num_ids;
  PARENT(s, 0) = 0;
  for (int k = 1; k <= f->num_ids; k++) PARENT(s, k) = k - 1 - TAKE();
  for (int seq = 0; seq < f->num_seqs; seq++) {
  $SEQ_NUMBERS_TAKE
  $SEQ_TAKE
  }
  for (int k = 0; k < f->num_named; k++) { int block = f->named[k];
  $BLOCK_TAKE
  }
  for (int flight = 0; flight < f->num_flights; flight++) {
  $FLIGHT_TAKE
  }
  for (int seq = 0; seq < f->num_seqs; seq++) for (int k = 0; k < f->num_named; k++) { int block = f->named[k];
  $CROSSED_TAKE
  }
  $REST_TAKE
}
