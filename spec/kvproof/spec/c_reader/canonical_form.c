/* The canonical form of a state; `canonical_form.py` says what it is, and puts in what depends on the fields. */
enum { NUM_IDS_MAX = $NUM_IDS_MAX, IDS_MAX = $IDS_MAX, STREAM_MAX = $STREAM_MAX, ADDED_MAX = 260 };
#define NUM_IDENTITIES(s) ((s)[num_cells])
#define PARENT(s, i) ((s)[num_cells + 1 + (i)])
static cell *first;  /* the first state, without cells that have no meaning */
typedef struct {
  int num_seqs, num_named, num_flights, num_ids, num_kept, too_large, has_best, is_probe, is_best;
  int seqs[IDS_MAX], named[IDS_MAX + 1], flights[IDS_MAX], kept[IDS_MAX];
  int block_name[IDS_MAX + 1], flight_name[IDS_MAX], id_name[NUM_IDS_MAX + ADDED_MAX], ids[NUM_IDS_MAX + ADDED_MAX];
  int refs[IDS_MAX + 1], times[NUM_IDS_MAX + ADDED_MAX], visited[NUM_IDS_MAX + ADDED_MAX], stamp;
  uint64_t seq_mark[IDS_MAX], block_mark[IDS_MAX], kept_mark[IDS_MAX];
  unsigned char is_held[IDS_MAX + 1], is_linked[IDS_MAX];
  int num, num_best;
  uint8_t stream[STREAM_MAX], best[STREAM_MAX];
} Form;
static inline uint64_t mix(uint64_t h, uint64_t v) { h = (h ^ v) * 0x9E3779B97F4A7C15ull; return h ^ (h >> 29); }
static inline int state_cells(const cell *s) { return num_cells + 2 + NUM_IDENTITIES(s); }

static void erase(cell *s) {
$ERASE
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
static inline int number_code(Form *f, int v) { if (v < -128 || v > 127) f->too_large = 1; return (uint8_t)v; }
static inline int block_code(Form *f, int v) {
  if (v == k_NONE) return 0;
  if (v == k_NULL) return 1;
  return 2 + f->block_name[at(v, k_NUM_BLOCKS)];
}
static inline int flight_code(Form *f, int v) { return v == k_NONE ? 0 : 1 + f->flight_name[at(v, k_NUM_FLIGHTS)]; }
static inline int identity_code(Form *f, int v) { return v <= 0 ? (v < 0 ? 255 : 0) : f->id_name[v]; }
static inline int block_of(Form *f, int code) { return code == 0 ? k_NONE : code == 1 ? k_NULL : f->named[code - 2]; }
static inline int flight_of(Form *f, int code) { (void)f; return code - 1; }
static inline int identity_of(Form *f, int code) { (void)f; return code == 255 ? k_NONE : code; }

static inline void name_block(Form *f, int v) {
  if (v == k_NONE || v == k_NULL) return;
  v = at(v, k_NUM_BLOCKS);
  if (f->block_name[v] < 0) { f->block_name[v] = f->num_named; f->named[f->num_named++] = v; }
}
static void name_identity(const cell *s, Form *f, int v) {
  if (v <= 0 || f->id_name[v]) return;
  name_identity(s, f, PARENT(s, v));
  f->ids[++f->num_ids] = v;
  f->id_name[v] = f->num_ids;
}
static inline void visit_up(const cell *s, Form *f, int v) {
  while (v > 0 && f->visited[v] != f->stamp) { f->visited[v] = f->stamp; f->times[v]++; v = PARENT(s, v); }
}

/* What does not depend on names: of each block, of each sequence; which sequences share something with anything. */
static void survey(const cell *s, Form *f) {
  int num_ids = NUM_IDENTITIES(s);
  f->num_seqs = f->num_flights = f->num_kept = f->has_best = f->is_probe = 0;
  memset(f->refs, 0, sizeof(int) * (k_NUM_BLOCKS + 1));
  memset(f->is_held, 0, k_NUM_BLOCKS + 1);
  memset(f->times, 0, sizeof(int) * (num_ids + 1));
  memset(f->visited, 0, sizeof(int) * (num_ids + 1));
  f->stamp = 0;
  for (int seq = 0; seq < k_NUM_SEQS; seq++) if (!seq_is_plain(s, seq)) f->seqs[f->num_seqs++] = seq;
  for (int flight = 0; flight < k_NUM_FLIGHTS; flight++) if (!flight_is_plain(s, flight)) f->flights[f->num_flights++] = flight;
#define EACH(v) do { int b = (v); if (b != k_NONE && b != k_NULL) { b = at(b, k_NUM_BLOCKS); f->refs[b]++; f->is_held[b] = 1; } } while (0)
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
    uint64_t h = $CLASS(block);
  $BLOCK_NUMBERS
    f->block_mark[block] = h;
    if (f->is_held[block] || block_is_plain(s, block)) continue;
    f->kept[f->num_kept++] = block;
    f->stamp++;
  $BLOCK_IDENTITYS
  }
  for (int j = 0; j < f->num_seqs; j++) { int seq = f->seqs[j];
    f->stamp++;
  $SEQ_IDENTITYS
  }
#undef EACH
  for (int j = 0; j < f->num_seqs; j++) {
    int seq = f->seqs[j], linked = f->num_flights > 0;
    uint64_t h = 7;
  $SEQ_NUMBERS
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
}

#define EMIT(code) f->stream[f->num++] = (uint8_t)(code)
static void write_out(const cell *s, Form *f) {
  f->num = 0;
  EMIT(f->num_seqs); EMIT(f->num_named); EMIT(f->num_flights); EMIT(f->num_ids);
  if (f->num_ids > NUM_IDS_MAX) { f->too_large = 1; return; }
  for (int k = 0; k < f->num_named; k++) EMIT($CLASS(f->named[k]));
  for (int k = 1; k <= f->num_ids; k++) EMIT(k - 1 - f->id_name[PARENT(s, f->ids[k])]);
  for (int j = 0; j < f->num_seqs; j++) { int seq = f->seqs[j];
  $SEQ_EMIT
  }
  for (int k = 0; k < f->num_named; k++) { int block = f->named[k];
  $BLOCK_EMIT
  }
  for (int j = 0; j < f->num_flights; j++) { int flight = f->flights[j];
  $FLIGHT_EMIT
  }
  for (int j = 0; j < f->num_seqs; j++) for (int k = 0; k < f->num_named; k++) { int seq = f->seqs[j], block = f->named[k];
  $CROSSED_EMIT
  }
  $REST_EMIT
}
static void sort_flights(const cell *s, Form *f) {
  uint8_t keys[IDS_MAX][16];
  for (int j = 0; j < f->num_flights; j++) {
    int flight = f->flights[j], at_byte = f->num;
  $FLIGHT_EMIT
    memset(keys[flight], 0, 16);
    memcpy(keys[flight], f->stream + at_byte, least(16, f->num - at_byte));
    f->num = at_byte;
  }
  for (int j = 1; j < f->num_flights; j++) {
    int flight = f->flights[j], i = j;
    while (i > 0 && memcmp(keys[f->flights[i - 1]], keys[flight], 16) > 0) { f->flights[i] = f->flights[i - 1]; i--; }
    f->flights[i] = flight;
  }
  for (int j = 0; j < f->num_flights; j++) f->flight_name[f->flights[j]] = j;
}
static void compared(const cell *s, Form *f) {
  int num_named = f->num_named, num_ids = f->num_ids;
  for (int j = 0; j < f->num_kept; j++) {
    int block = f->kept[j];
    name_block(f, block);
#define EACH(v) name_identity(s, f, (v))
  $BLOCK_IDENTITYS
#undef EACH
  }
  for (int k = 0; k < f->num_named; k++) { int block = f->named[k];  /* what a broken rule left in a held block */
#define EACH(v) name_identity(s, f, (v))
  $BLOCK_IDENTITYS
#undef EACH
  }
  f->num = 0;
  if (f->num_flights) sort_flights(s, f);
  write_out(s, f);
  int smaller = f->num_best - f->num;
  if (f->has_best && !smaller) smaller = memcmp(f->best, f->stream, f->num);
  f->is_best = f->has_best && !smaller;
  if (!f->has_best || smaller > 0) { memcpy(f->best, f->stream, f->num); f->num_best = f->num; f->has_best = 1; }
  while (f->num_ids > num_ids) f->id_name[f->ids[f->num_ids--]] = 0;
  while (f->num_named > num_named) f->block_name[f->named[--f->num_named]] = -1;
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
static void named_seqs(const cell *s, Form *f) {
  f->num_named = f->num_ids = 0;
  memset(f->block_name, -1, sizeof(int) * (k_NUM_BLOCKS + 1));
  memset(f->id_name, 0, sizeof(int) * (NUM_IDENTITIES(s) + 1));
  for (int j = 0; j < f->num_seqs; j++) { int seq = f->seqs[j];
#define EACH(v) name_block(f, (v))
  $SEQ_BLOCKS
#undef EACH
#define EACH(v) name_identity(s, f, (v))
  $SEQ_IDENTITYS
#undef EACH
  }
  for (int j = 0; j < f->num_kept; j++) {
    int block = f->kept[j], i = j;
    uint64_t h = f->block_mark[block];
#define EACH(v) do { int v_ = (v), up = 0; if (v_ > 0) h = mix(h, f->times[v_]); while (v_ > 0 && !f->id_name[v_]) { up++; v_ = PARENT(s, v_); } h = mix(mix(h, up), v_ > 0 ? f->id_name[v_] : v_); } while (0)
  $BLOCK_IDENTITYS
#undef EACH
    f->kept_mark[block] = h;
    while (i > 0 && f->kept_mark[f->kept[i - 1]] > h) { f->kept[i] = f->kept[i - 1]; i--; }
    f->kept[i] = block;
  }
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
/* The string of a state, into `out`; its length. Cells without a meaning are erased. */
static int encode(cell *s, Form *f, uint8_t *out) {
  erase(s);
  survey(s, f);
  for (int j = 1; j < f->num_seqs; j++) {
    int seq = f->seqs[j], i = j;
    while (i > 0 && f->seq_mark[f->seqs[i - 1]] > f->seq_mark[seq]) { f->seqs[i] = f->seqs[i - 1]; i--; }
    f->seqs[i] = seq;
  }
  order_seqs(s, f, 0);
  int n = 0;
  for (int i = f->num_best; i & 7; i++) f->best[i] = 0;
  for (int i = 0; i < f->num_best; i += 8) {
    int mask = 0, at_mask = n++;
    for (int o = 0; o < 8; o++) {  /* without a branch that nobody can predict */
      int code = f->best[i + o], is_kept = code != 0;
      out[n] = (uint8_t)code;
      n += is_kept;
      mask |= is_kept << o;
    }
    out[at_mask] = (uint8_t)mask;
  }
  return n;
}
#define TAKE() (f->stream[f->num++])
static void decode(const uint8_t *bytes, int num_bytes, Form *f, cell *s) {
  int n = 0;
  for (const uint8_t *end = bytes + num_bytes; bytes < end;) {
    int mask = *bytes++;
    for (int o = 0; o < 8; o++) f->stream[n++] = mask >> o & 1 ? *bytes++ : 0;
  }
  f->num = 0;
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
