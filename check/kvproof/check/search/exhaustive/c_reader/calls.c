/* What is tried from a state: the choices of `specification_call`, `specification_calls` and `specification_rules`.

   Only choices are written here: which sequence, which tokens, which cached or evictable block. The rules, the programs
   of rules that a call runs (`f_...`) and the arithmetic of the text are generated and stand before this file. Each
   choice is tried on a copy of the state, and `tried` or `fired` takes what comes of it. */

static struct {
  int num_tokens, caching, window, lookahead, fork, swap, num_flights, reserving, is_rules;
} scope;

enum { NUM_VALUES = 2, TOKENS_MAX = 256, FOUND_MAX = 64, BROKEN_CLAIM = 1, FAILED, REFUSED_OR_NOT, CHANGED, MISCOUNTED };

typedef struct {
  cell *state, *work;
  Form form;
  int used[NUM_IDS_MAX + TOKENS_MAX + 4];
  int finding, detail, rule, is_digested;
  uint64_t digest;  /* of the strings that were reached, in their order */
  void (*reached)(void *, int num_bytes);
  void *to;
  uint8_t *bytes;
  long counts[256];
} Trial;

static void copy_state(Trial *t) { memcpy(t->work, t->state, state_cells(t->state) * sizeof(cell)); }
static void note(Trial *t, int finding, int detail) { if (!t->finding) { t->finding = finding; t->detail = detail; } }
static uint64_t hash_of(const uint8_t *bytes, int num) {
  uint64_t h = num, v;
  for (; num >= 8; bytes += 8, num -= 8) { memcpy(&v, bytes, 8); h = mix(h, v) ^ h >> 32; }
  for (v = 0; num > 0; num--) v = v << 8 | *bytes++;
  h = mix(h, v);
  h = (h ^ h >> 32) * 0xD6E8FEB86659FD93ull;
  return h ^ h >> 32;
}
/* A string says nothing of ghosts. So where rules update them, they are asked here, of every state that is reached. Nor
   can it say what a number names that is out of range. */
static void arrived(Trial *t) {
  int claim = scope.is_rules ? broken_claim_of_ghosts(t->work) : 0, num = encode(t->work, &t->form, t->bytes);
  if (t->is_digested) t->digest = hash_of(t->bytes, num) + 31 * t->digest;
  if (claim || out_of_range) note(t, BROKEN_CLAIM, claim);
  else t->reached(t->to, num);
}
/* A whole call has run on the copy; it must finish exactly if the arithmetic says so. */
static void tried(Trial *t, int stopped, int can_finish) {
  if (stopped < 0 || out_of_range) note(t, FAILED, stopped);
  else if ((stopped == 0) != can_finish) note(t, REFUSED_OR_NOT, stopped);
  else if (stopped == 0) arrived(t);
}

/* Tokens */
static int known(const cell *s, int seq) { return f_num_tokens_known(s, seq); }
static int token(const cell *s, int seq, int position) {
  return s[o_tokens + seq * k_NUM_INDEXES * k_BLOCK_SIZE + position];
}
static int last_token(const cell *s, int seq) { int n = known(s, seq); return n ? token(s, seq, n - 1) : 0; }
static int new_identity(cell *s, int before) {
  int i = ++NUM_IDENTITIES(s);
  PARENT(s, i) = before;
  return i;
}
static void use_up(Trial *t, int i) { while (i > 0 && !t->used[i]) { t->used[i] = 1; i = PARENT(t->state, i); } }
/* Marks what the sequences know, also where the window has left it, and the content of the cache. */
static void find_used(Trial *t) {
  const cell *s = t->state;
  memset(t->used, 0, sizeof t->used);
  for (int q = 0; q < k_NUM_SEQS; q++) if (s[o_live + q]) use_up(t, last_token(s, q));
  for (int b = 0; b < k_NUM_BLOCKS; b++)
    if (s[o_cached + b]) for (int o = 0; o < k_BLOCK_SIZE; o++) use_up(t, s[o_content + b * k_BLOCK_SIZE + o]);
}
static int choices(Trial *t, int before, int *found) {
  cell *s = t->state;
  int n = 0, unused = 0, num_after = 0;
  for (int i = 1; i <= NUM_IDENTITIES(s); i++) if (PARENT(s, i) == before) {
    num_after++;
    if (t->used[i]) found[n++] = i;
    else if (!unused) unused = i;
  }
  if (n < NUM_VALUES) found[n++] = unused ? unused : new_identity(s, before);
  return n;
}
static int fresh(Trial *t, int before) {
  cell *s = t->state;
  for (int i = 1; i <= NUM_IDENTITIES(s); i++) if (PARENT(s, i) == before && !t->used[i]) return i;
  return new_identity(s, before);
}

/* Blocks */
typedef struct { int from, to; } Pool;
static Pool pool(int number) {
  return number == k_GPU ? (Pool){0, k_NUM_GPU_BLOCKS} : (Pool){k_NUM_GPU_BLOCKS, k_NUM_BLOCKS};
}
typedef struct { int num; int8_t at[FOUND_MAX]; } Blocks;  /* ids are small, so that a copy is cheap */
typedef struct {
  Pool pool;
  Blocks victims;
  int8_t twins[TOKENS_MAX + 1];  /* by index of an entry, or by block that moves; k_NONE: none */
  int index, twin;            /* of an append; of a swap, index is whether its blocks have arrived */
} Choices;
static int to_take(const cell *s, const Choices *c) {
  for (int b = c->pool.from; b < c->pool.to; b++) if (s[o_status + b] == k_FREE) return b;
  for (int v = 0; v < c->victims.num; v++) if (s[o_status + c->victims.at[v]] == k_EVICTABLE) return c->victims.at[v];
  return k_NONE;
}
static int named_of_prompt(const Named *n, const cell *s, int index, int unused) {
  const Choices *c = n->choices;
  (void)unused;
  return c->twins[index] != k_NONE ? c->twins[index] : to_take(s, c);
}
static int named_of_append(const Named *n, const cell *s, int at_index, int seq) {
  const Choices *c = n->choices;
  seq = c->twins[0];
  if (at_index == c->index && c->twin != k_NONE) return c->twin;
  if (at_index < s[o_num_blocks + seq]) {
    int block = s[o_table + seq * k_NUM_INDEXES + at_index];
    if (at_index > c->index || s[o_refcount + block] == 1) return block;
  }
  return to_take(s, c);
}
static int named_of_swap(const Named *n, const cell *s, int seq, int index) {
  Choices *c = (Choices *)n->choices;
  int block = at(s[o_table + seq * k_NUM_INDEXES + index], k_NUM_BLOCKS);
  if (c->twins[block] == k_NONE) c->twins[block] = to_take(s, c);
  return c->twins[block];
}
static Blocks blocks_with(const cell *s, Pool p, const cell *row) {
  Blocks found = {0};
  for (int b = p.from; b < p.to; b++) if (f_holds_content((cell *)s, b, row)) found.at[found.num++] = b;
  return found;
}
/* Calls `run` for every choice of the evictable blocks that are taken when the free ones do not suffice. */
typedef void Run(Trial *, Choices *, int can_finish, const int *arguments);
static void for_victims(Trial *t, Choices *c, int num_taken, const int *kept, int num_kept, Run *run, const int *a) {
  const cell *s = t->state;
  Blocks evictable = {0};
  int num_free = 0;
  for (int b = c->pool.from; b < c->pool.to; b++) {
    int is_kept = 0;
    for (int k = 0; k < num_kept; k++) is_kept |= kept[k] == b;
    num_free += s[o_status + b] == k_FREE;
    if (s[o_status + b] == k_EVICTABLE && !is_kept) evictable.at[evictable.num++] = b;
  }
  int num = greatest(0, num_taken - num_free);
  if (num > evictable.num) { c->victims = evictable; run(t, c, 0, a); return; }
  int picked[FOUND_MAX];
  for (int i = 0; i < num; i++) picked[i] = i;
  for (;;) {
    c->victims.num = num;
    for (int i = 0; i < num; i++) c->victims.at[i] = evictable.at[picked[i]];
    run(t, c, 1, a);
    int i = num - 1;
    while (i >= 0 && picked[i] == evictable.num - num + i) i--;
    if (i < 0) return;
    for (picked[i]++; ++i < num;) picked[i] = picked[i - 1] + 1;
  }
}
static int computed(cell *s, int seq, int num_tokens) {
  int stopped = f_compute_tokens(s, k_BLOCK_SIZE, seq, num_tokens);
  return stopped || !scope.caching ? stopped : f_mark_computed_program(s, k_BLOCK_SIZE, seq, 0);
}

/* Prompts: seq, num_hit, first, num_entries, can_skip, number of tokens; the tokens are in `prompt`. */
static _Thread_local cell prompt[TOKENS_MAX];
static void run_prompt(Trial *t, Choices *c, int can_finish, const int *a) {
  Named named = {named_of_prompt, c};
  Numbers tokens = {prompt, a[5]};
  cell *s = t->work;
  int stopped;
  copy_state(t);
  if (a[2])
    stopped = f_admit_past_window_hit(s, k_BLOCK_SIZE, a[0], scope.window, tokens, a[2], a[1], a[3], &named, scope.caching);
  else stopped = f_admit_sequence(s, k_BLOCK_SIZE, a[0], scope.window, tokens, a[1], a[3], &named, scope.caching);
  if (!stopped) stopped = computed(s, a[0], a[5] - a[1] * k_BLOCK_SIZE);
  tried(t, stopped, can_finish && a[4]);
}
static void for_twins(Trial *t, Choices *c, const Blocks *sought, int place, int num_places, int num_taken, const int *a) {
  while (place < num_places && !sought[place].num) place++;
  if (place == num_places) {
    int kept[TOKENS_MAX], num = 0;
    for (int i = 0; i < num_places; i++) if (c->twins[i] != k_NONE) kept[num++] = c->twins[i];
    for_victims(t, c, num_taken - num, kept, num, run_prompt, a);
    return;
  }
  for (int i = 0; i < sought[place].num; i++) {
    c->twins[place] = sought[place].at[i];
    for_twins(t, c, sought, place + 1, num_places, num_taken, a);
  }
  c->twins[place] = k_NONE;
}
static void try_prompt(Trial *t, int seq, int num_tokens, int num_hit, int first_entry) {
  const cell *s = t->state;
  int num_rows = num_tokens / k_BLOCK_SIZE, has_more = 0;
  int num_entries = f_blocks_for(num_tokens ? num_tokens + scope.lookahead : 0);
  int can_skip = first_entry * k_BLOCK_SIZE <= greatest(0, f_first_read(num_hit * k_BLOCK_SIZE, scope.window));
  int a[] = {seq, num_hit, first_entry, num_entries, can_skip, num_tokens};
  Blocks hits[num_rows + 1], found[num_rows + 1];
  Choices c = {pool(k_GPU), {0}, {0}, 0, 0};
  for (int i = 0; i <= num_entries; i++) c.twins[i] = k_NONE;
  for (int i = 0; i < num_rows; i++) {
    hits[i].num = found[i].num = 0;
    if (i < first_entry || !scope.caching) continue;
    found[i] = blocks_with(s, pool(k_GPU), prompt + i * k_BLOCK_SIZE);
    if (i >= num_hit) { has_more |= found[i].num > 0; continue; }
    for (int k = 0; k < found[i].num; k++)
      if (s[o_computed + found[i].at[k]]) hits[i].at[hits[i].num++] = found[i].at[k];
    found[i] = hits[i];
  }
  for_twins(t, &c, hits, 0, num_rows, num_entries - first_entry, a);
  if (has_more) for_twins(t, &c, found, 0, num_rows, num_entries - first_entry, a);
}
static int is_computed(const cell *s, int index) {
  for (int b = 0; b < k_NUM_GPU_BLOCKS; b++)
    if (s[o_computed + b] && same(s + o_content + b * k_BLOCK_SIZE, prompt + index * k_BLOCK_SIZE, k_BLOCK_SIZE)) return 1;
  return 0;
}
static void try_prompts(Trial *t, int seq, int num_tokens, int num_done) {
  cell *s = t->state;
  if (num_done < num_tokens) {
    int found[NUM_VALUES + 1], num_ids = NUM_IDENTITIES(s);
    int num = choices(t, num_done ? prompt[num_done - 1] : 0, found);
    for (int i = 0; i < num; i++) { prompt[num_done] = found[i]; try_prompts(t, seq, num_tokens, num_done + 1); }
    NUM_IDENTITIES(s) = num_ids;
    return;
  }
  int num_rows = num_tokens / k_BLOCK_SIZE;
  for (int num_hit = 0; num_hit <= num_rows; num_hit++) {
    if (num_hit && !is_computed(s, num_hit - 1)) break;
    try_prompt(t, seq, num_tokens, num_hit, 0);
  }
  if (scope.window)
    for (int num_hit = 1; num_hit <= num_rows; num_hit++)
      for (int entry = num_hit; entry > 0; entry--) {
        if (entry < num_hit && !is_computed(s, entry)) break;
        try_prompt(t, seq, num_tokens, num_hit, entry);
      }
}

/* Appends: seq, number of tokens after it; the tokens are in `prompt`. */
static void run_append(Trial *t, Choices *c, int can_finish, const int *a) {
  Named named = {named_of_append, c};
  Numbers tokens = {prompt, a[1]};
  cell *s = t->work;
  copy_state(t);
  c->twins[0] = a[0];
  int num_entries = greatest(s[o_num_blocks + a[0]], f_blocks_for(a[1] + scope.lookahead));
  int stopped = f_know_tokens(s, k_BLOCK_SIZE, a[0], tokens, num_entries, &named, scope.caching);
  if (!stopped) stopped = f_reserve_entries(s, a[0], num_entries, &named);
  if (!stopped) stopped = computed(s, a[0], 1);
  tried(t, stopped, can_finish && a[2]);
}
static void try_append(Trial *t, int seq, int identity) {
  const cell *s = t->state;
  int num = known(s, seq) + 1, index = s[o_num_full + seq];
  for (int p = 0; p < num - 1; p++) prompt[p] = token(s, seq, p);
  prompt[num - 1] = identity;
  Choices c = {pool(s[o_home + seq]), {0}, {0}, index, k_NONE};
  Blocks found = {0};
  if (scope.caching && num % k_BLOCK_SIZE == 0) found = blocks_with(s, c.pool, prompt + index * k_BLOCK_SIZE);
  int num_taken = f_entries_missing(s, seq, 1 + scope.lookahead) + f_tail_is_shared(s, seq);
  int a[] = {seq, num, f_has_arrived(s, seq)};
  for_victims(t, &c, num_taken, 0, 0, run_append, a);
  for (int k = 0; k < found.num; k++) {
    c.twin = found.at[k];
    for_victims(t, &c, num_taken - 1, &c.twin, 1, run_append, a);
  }
}

/* Swaps: is_sent, number of sequences, the sequences. */
static void run_swap(Trial *t, Choices *c, int can_finish, const int *a) {
  Choices mine = *c;
  Named named = {named_of_swap, &mine};
  cell seqs[k_NUM_SEQS];
  for (int i = 0; i < a[1]; i++) seqs[i] = a[2 + i];
  copy_state(t);
  int stopped = f_swap_group(t->work, k_BLOCK_SIZE, (Numbers){seqs, a[1]}, &named, a[0]);
  tried(t, stopped, can_finish && c->index);
}
typedef struct { int is_ready, num_idle, num_held; const Blocks *sought; } Moves;
static void for_moves(Trial *t, Choices *c, const Moves *m, int block, const int *a) {
  while (block < k_NUM_BLOCKS && !m->sought[block].num) block++;
  if (block == k_NUM_BLOCKS) {
    int kept[FOUND_MAX], num = 0;  /* a twin that two blocks move to stands in it twice */
    for (int b = 0; b < k_NUM_BLOCKS; b++) if (c->twins[b] != k_NONE) kept[num++] = c->twins[b];
    int num_taken = m->num_held - num, is_ready = m->is_ready && !(a[0] && num_taken > m->num_idle);
    Choices copy = *c;
    copy.index = is_ready;
    for_victims(t, &copy, num_taken, kept, num, run_swap, a);
    return;
  }
  for (int i = 0; i < m->sought[block].num; i++) {
    c->twins[block] = m->sought[block].at[i];
    for_moves(t, c, m, block + 1, a);
  }
  c->twins[block] = k_NONE;
}
static void try_swap(Trial *t, const int *seqs, int num, int is_sent) {
  const cell *s = t->state;
  int a[k_NUM_SEQS + 2], has_found = 0, is_held[k_NUM_BLOCKS];
  Blocks none[k_NUM_BLOCKS], found[k_NUM_BLOCKS];
  Moves m = {1, 0, 0, none};
  Choices c = {pool(1 - s[o_home + seqs[0]]), {0}, {0}, 0, 0};
  a[0] = is_sent; a[1] = num;
  for (int b = 0; b < k_NUM_BLOCKS; b++) { none[b].num = found[b].num = is_held[b] = 0; c.twins[b] = k_NONE; }
  for (int i = 0; i < num; i++) {
    int seq = a[2 + i] = seqs[i];
    for (int index = s[o_first + seq]; index < s[o_num_blocks + seq]; index++) {
      int block = at(s[o_table + seq * k_NUM_INDEXES + index], k_NUM_BLOCKS);
      m.num_held += !is_held[block];
      is_held[block] = 1;
      m.is_ready &= s[o_filler + block] == k_NONE;
      found[block].num = 0;
      if (scope.caching && index < s[o_num_full + seq])
        found[block] = blocks_with(s, c.pool, s + o_tokens + (seq * k_NUM_INDEXES + index) * k_BLOCK_SIZE);
    }
  }
  for (int f = 0; f < k_NUM_FLIGHTS; f++) m.num_idle += s[o_uses + f] == k_NONE;
  for (int b = 0; b < k_NUM_BLOCKS; b++) has_found |= found[b].num > 0;
  for_moves(t, &c, &m, 0, a);
  m.sought = found;
  if (has_found) for_moves(t, &c, &m, 0, a);
}

static void try_flights(Trial *t, const int *different, int num_different) {
  const cell *s = t->state;
  cell arriving[FOUND_MAX];
  int num_idle = 0, num_arriving = 0;
  for (int f = 0; f < k_NUM_FLIGHTS; f++) num_idle += s[o_uses + f] == k_NONE;
  for (int j = 0; j < num_different; j++) {
    cell seq = different[j];
    int num = s[o_num_blocks + seq] - s[o_first + seq], can_start = num <= num_idle;
    if (num <= 0) continue;
    for (int i = s[o_first + seq]; i < s[o_num_blocks + seq]; i++)
      can_start &= s[o_filler + at(s[o_table + seq * k_NUM_INDEXES + i], k_NUM_BLOCKS)] == k_NONE;
    copy_state(t);
    tried(t, f_launch_step(t->work, (Numbers){&seq, 1}), can_start);
  }
  for (cell f = 0; f < k_NUM_FLIGHTS; f++) if (s[o_fills + f] != k_NONE) arriving[num_arriving++] = f;
  for (cell f = 0; f < k_NUM_FLIGHTS; f++) if (s[o_uses + f] != k_NONE && s[o_fills + f] == k_NONE) {
    copy_state(t);
    tried(t, f_land_step(t->work, (Numbers){&f, 1}), 1);
  }
  for (int i = 0; i < num_arriving + (num_arriving > 1); i++) {
    Numbers flights = i < num_arriving ? (Numbers){arriving + i, 1} : (Numbers){arriving, num_arriving};
    copy_state(t);
    tried(t, f_arrive_program(t->work, flights), 1);
  }
}

static void try_calls(Trial *t) {
  cell *s = t->state;
  int live[k_NUM_SEQS], different[k_NUM_SEQS], num_live = 0, num_different = 0, dead = k_NONE, num_ids = NUM_IDENTITIES(s);
  for (int q = 0; q < k_NUM_SEQS; q++) if (s[o_live + q]) live[num_live++] = q; else if (dead == k_NONE) dead = q;
  for (int j = 0; j < num_live; j++) {
    int is_new = 1;
    for (int k = 0; k < num_different && is_new; k++) is_new = !seqs_are_same(s, different[k], live[j]);
    if (is_new) different[num_different++] = live[j];
  }
  find_used(t);
  if (dead != k_NONE) {
    for (int num = 0; num <= (scope.caching ? scope.num_tokens : 0); num++) try_prompts(t, dead, num, 0);
    for (int j = 0; scope.fork && j < num_different; j++) {
      copy_state(t);
      tried(t, f_fork_sequence(t->work, different[j], dead), 1);
    }
  }
  for (int j = 0; j < num_different && !t->finding; j++) {
    int seq = different[j], num = known(s, seq), entries = s[o_num_full + seq] + (s[o_num_filled + seq] > 0);
    copy_state(t);
    tried(t, f_free_sequence(t->work, seq), 1);
    if (num < scope.num_tokens) {
      int found[NUM_VALUES + 1], n = 1;
      if (scope.caching) n = choices(t, last_token(s, seq), found);
      else found[0] = fresh(t, last_token(s, seq));
      for (int i = 0; i < n; i++) try_append(t, seq, found[i]);
      NUM_IDENTITIES(s) = num_ids;
    }
    if (scope.window && s[o_first + seq] < s[o_num_full + seq]) {
      int entry = s[o_first + seq], can_finish = !f_can_still_be_read(s, seq, entry);
      copy_state(t);
      tried(t, f_slide_window(t->work, seq, entry + 1), can_finish);
    }
    if (scope.lookahead && s[o_num_blocks + seq] > entries) {
      copy_state(t);
      tried(t, f_drop_reserved(t->work, seq, entries), 1);
    }
  }
  for (int m = 1; scope.swap && m < 1 << num_live; m++) {
    int seqs[k_NUM_SEQS], num = 0, is_one_pool = 1;
    for (int j = 0; j < num_live; j++) if (m >> j & 1) {
      seqs[num++] = live[j];
      is_one_pool &= s[o_home + live[j]] == s[o_home + seqs[0]];
    }
    if (!is_one_pool) continue;
    try_swap(t, seqs, num, 0);
    if (scope.num_flights) try_swap(t, seqs, num, 1);
  }
  if (scope.num_flights) try_flights(t, different, num_different);
  int has_evictable = 0;
  for (int b = 0; b < k_NUM_BLOCKS; b++) has_evictable |= s[o_status + b] == k_EVICTABLE;
  if (scope.caching && has_evictable) {
    copy_state(t);
    tried(t, f_reset_cache(t->work), 1);
  }
}

/* Single rules. A firing that is refused must leave the state as it was. */
#define FIRE(rule, ...) fired(t, r_##rule, (int[]){__VA_ARGS__}, row)
static void fired(Trial *t, int rule, const int *a, const cell *row) {
  int num = state_cells(t->state), stopped = counted(t->work, rule, a, row);
  t->rule = rule;
  if (stopped < 0 || out_of_range) note(t, FAILED, stopped);
  else if (stopped == 0) { arrived(t); copy_state(t); }
  else if (memcmp(t->work, t->state, num * sizeof(cell))) note(t, CHANGED, stopped);
}
typedef struct { int num, at[FOUND_MAX]; } Ids;
typedef void WithRow(Trial *, int seq, const cell *row, int stop, const Ids *blocks);
static void for_rows(Trial *t, int seq, int slot, int stop, cell *row, int before, const Ids *blocks, WithRow *run) {
  cell *s = t->state;
  if (slot == stop) { copy_state(t); run(t, seq, row, stop, blocks); return; }
  int found[NUM_VALUES + 1], num_ids = NUM_IDENTITIES(s), num = choices(t, before, found);
  for (int i = 0; i < num; i++) { row[slot] = found[i]; for_rows(t, seq, slot + 1, stop, row, found[i], blocks, run); }
  row[slot] = k_NONE;
  NUM_IDENTITIES(s) = num_ids;
}
static void with_rows(Trial *t, int seq, int stop, const Ids *blocks, WithRow *run) {
  const cell *s = t->state;
  cell row[k_BLOCK_SIZE];
  int filled = s[o_num_filled + seq], num = s[o_live + seq] ? known(s, seq) : 0;
  for (int o = 0; o < k_BLOCK_SIZE; o++) row[o] = o < filled ? token(s, seq, num - filled + o) : k_NONE;
  for_rows(t, seq, filled, stop, row, num ? token(s, seq, num - 1) : 0, blocks, run);
  copy_state(t);
}
static void fire_appends(Trial *t, int seq, const cell *row, int stop, const Ids *blocks) {
  for (int k = 0; k < blocks->num; k++) FIRE(append, seq, blocks->at[k], 0, stop);
}
static void fire_hits(Trial *t, int seq, const cell *row, int stop, const Ids *blocks) {
  int full = t->state[o_num_full + seq];
  (void)stop;
  for (int k = 0; k < blocks->num; k++) {
    FIRE(hit, seq, blocks->at[k], 0);
    FIRE(share, seq, blocks->at[k], 0);
    FIRE(exchange, seq, full, blocks->at[k], 0);
  }
}
static void fire_skip(Trial *t, int seq, const cell *row, int stop, const Ids *blocks) {
  (void)stop; (void)blocks;
  FIRE(skip, seq, 0);
}
static void try_rules_of(Trial *t, int seq, const Ids *seqs, const Ids *blocks, const Ids *flights) {
  const cell *s = t->state;
  int size = k_BLOCK_SIZE, full = s[o_num_full + seq], filled = s[o_num_filled + seq];
  cell none[size], *row = none;
  for (int o = 0; o < size; o++) none[o] = k_NONE;
  FIRE(admit, seq, scope.window);
  FIRE(begin_free, seq);
  FIRE(drop_last, seq);
  FIRE(finish, seq);
  for (int stop = 0; stop < size + 2; stop++) { FIRE(compute, seq, stop); FIRE(catch_up, seq, stop); }
  if (full < k_NUM_INDEXES) {
    for (int stop = 0; stop <= least(filled, scope.num_tokens - full * size); stop++) fire_appends(t, seq, none, stop, blocks);
    fire_appends(t, seq, none, size + 1, blocks);
  }
  for (int stop = filled + 1; stop <= least(size, scope.num_tokens - full * size); stop++) with_rows(t, seq, stop, blocks, fire_appends);
  if (scope.fork) for (int k = 0; k < seqs->num; k++) FIRE(fork, seq, seqs->at[k]);
  if (scope.window) FIRE(slide, seq);
  if (scope.window && scope.caching) {
    if (scope.window != 1) FIRE(admit, seq, 1);
    if ((full + 1) * size <= scope.num_tokens) with_rows(t, seq, size, blocks, fire_skip);
    FIRE(widen, seq, 1);
    if (scope.window != 1) FIRE(widen, seq, scope.window);
  }
  if (scope.lookahead && s[o_num_blocks + seq] < k_NUM_INDEXES)
    for (int k = 0; k < blocks->num; k++) FIRE(reserve, seq, blocks->at[k]);
  if (scope.caching) {
    for (int i = 0; i < k_NUM_INDEXES; i++) FIRE(promote, seq, i);
    for (int i = 0; i < full; i++) for (int k = 0; k < blocks->num; k++) {
      row = t->state + o_tokens + (seq * k_NUM_INDEXES + i) * size;
      FIRE(exchange, seq, i, blocks->at[k], 0);
    }
    if ((full + 1) * size <= scope.num_tokens) {
      with_rows(t, seq, size, blocks, fire_hits);
      for (int k = 0; filled && k < blocks->num; k++) {
        row = t->state + o_content + blocks->at[k] * size;
        FIRE(exchange, seq, full, blocks->at[k], 0);
      }
    }
    row = none;
  }
  if (scope.swap) {
    FIRE(begin_swap, seq);
    for (int k = 0; k < blocks->num; k++) {
      FIRE(move_entry, seq, blocks->at[k]);
      if (scope.caching) FIRE(rehit_entry, seq, blocks->at[k]);
      for (int f = 0; f < flights->num; f++) FIRE(send_entry, seq, blocks->at[k], flights->at[f]);
    }
    for (int k = 0; k < seqs->num; k++) FIRE(follow_entry, seq, seqs->at[k]);
    FIRE(end_swap, seq);
  }
}
static void try_rules(Trial *t) {
  const cell *s = t->state;
  Ids seqs = {0}, blocks = {0}, flights = {0};
  cell none[k_BLOCK_SIZE], *row = none;
  int has_free[2] = {0}, has_dead = 0, has_idle = 0;
  for (int o = 0; o < k_BLOCK_SIZE; o++) none[o] = k_NONE;
  for (int q = 0; q < k_NUM_SEQS; q++) if (s[o_live + q] || !has_dead++) seqs.at[seqs.num++] = q;
  for (int b = 0; b < k_NUM_BLOCKS; b++)
    if (s[o_status + b] != k_FREE || !has_free[f_pool_of(b)]++) blocks.at[blocks.num++] = b;
  for (int f = 0; f < k_NUM_FLIGHTS; f++) if (s[o_uses + f] != k_NONE || !has_idle++) flights.at[flights.num++] = f;
  find_used(t);
  copy_state(t);
  for (int j = 0; j < seqs.num && !t->finding; j++) try_rules_of(t, seqs.at[j], &seqs, &blocks, &flights);
  for (int k = 0; scope.caching && k < blocks.num; k++) { FIRE(mark_computed, blocks.at[k]); FIRE(evict, blocks.at[k]); }
  for (int f = 0; f < flights.num; f++) {
    for (int j = 0; j < seqs.num; j++)
      for (int i = 0; i < k_NUM_INDEXES; i++) FIRE(launch, flights.at[f], seqs.at[j], i);
    for (int k = 0; scope.caching && k < blocks.num; k++) FIRE(copy_out, flights.at[f], blocks.at[k]);
    FIRE(write_late, flights.at[f], 0);
    FIRE(land, flights.at[f]);
    FIRE(arrive, flights.at[f]);
  }
  for (int k = 0; scope.reserving && k < blocks.num; k++) FIRE(set_aside, blocks.at[k]);
}

/* Tokens that the window has left are in no string, and yet one of them may become the last again: they come before the
   last token, whose predecessors are known. Those that are in the string stay, whether they come before it or not. */
static void give_back_tokens(cell *s) {
  for (int q = 0; q < k_NUM_SEQS; q++) if (s[o_live + q] && s[o_first + q] > 0) {
    int num = known(s, q), i = 0;
    if (num < 0 || num > k_NUM_INDEXES * k_BLOCK_SIZE) { out_of_range = 1; return; }
    i = last_token(s, q);
    for (int p = num - 1; p >= 0; p--, i = i > 0 ? PARENT(s, i) : i)
      if (!m_tokens(s, q, p / k_BLOCK_SIZE, p % k_BLOCK_SIZE)) s[o_tokens + q * k_NUM_INDEXES * k_BLOCK_SIZE + p] = i;
  }
}
/* The independent count and the claims of the state of a string, then everything that is tried from it. */
static void expand_filled(Trial *t, const uint8_t *bytes, int num, int is_other) {
  out_of_range = 0;
  decode(bytes, num, &t->form, t->state);
  fill(t->state, is_other, !scope.is_rules);
  give_back_tokens(t->state);
  enumerate_ghosts(t->state);
  int miscounted = is_miscounted(t->state), claim = miscounted ? 0 : broken_claim(t->state);
  if (miscounted) note(t, MISCOUNTED, 0);
  else if (claim || out_of_range) note(t, BROKEN_CLAIM, claim);
  else if (scope.is_rules) try_rules(t);
  else try_calls(t);
}
static void expand(Trial *t, const uint8_t *bytes, int num) { expand_filled(t, bytes, num, AS_FIRST); }
static void dropped(void *to, int num) { (void)to; (void)num; }
/* Expands a state twice, the second time with other values in the cells that strings leave out. Returns whether something
   comes out differently: then the text reads such a cell. `left_out.py` has the theory. */
static int expand_twice(Trial *t, const uint8_t *bytes, int num, int is_other) {
  long uncounted[256], *counted = counts;
  t->is_digested = 1;
  t->digest = 0;
  expand(t, bytes, num);
  if (t->finding || t->form.too_large) return 0;
  Trial first_time = *t;
  t->reached = dropped;
  t->digest = 0;
  counts = uncounted;
  expand_filled(t, bytes, num, is_other);
  int differs = t->finding || t->form.too_large || t->digest != first_time.digest;
  counts = counted;
  t->reached = first_time.reached;
  t->finding = t->detail = t->is_digested = t->form.too_large = 0;
  return differs;
}
