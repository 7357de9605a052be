/* The count of `independent_count.py`, written a second time: it shares no function with the text. What it finds is shown
   only if Python finds something there too, so only whether it finds something is said. */
static int slots_known(const cell *s, int seq, int index) {
  int full = s[o_num_full + seq];
  return index < full ? k_BLOCK_SIZE : index == full ? s[o_num_filled + seq] : 0;
}
static const cell *tokens_at(const cell *s, int seq, int index) {
  return s + o_tokens + (seq * k_NUM_INDEXES + index) * k_BLOCK_SIZE;
}
static int differ(const cell *a, const cell *b, int num) { return memcmp(a, b, num * sizeof(cell)) != 0; }
static int is_number_of_slots(int num) { return num >= 0 && num <= k_BLOCK_SIZE; }

static int is_miscounted_table(const cell *s, int seq, int *references, int *holders, int *places) {
  int blocks = k_NUM_BLOCKS, end = s[o_num_blocks + seq];
  cell position[k_NUM_BLOCKS];
  for (int b = 0; b < blocks; b++) position[b] = -1;
  if (s[o_first + seq] < 0 || end > k_NUM_INDEXES) return 1;
  for (int index = s[o_first + seq]; index < end; index++) {
    int block = s[o_table + seq * k_NUM_INDEXES + index], known = slots_known(s, seq, index);
    if (block < 0 || block >= blocks || !is_number_of_slots(known)) return 1;
    position[block] = index;
    if (references[block]++ == 0) { holders[block] = seq; places[block] = index; }
    const cell *tokens = tokens_at(s, seq, index);
    if (slots_known(s, holders[block], places[block]) != known) return 1;
    if (differ(tokens_at(s, holders[block], places[block]), tokens, known)) return 1;
    int source = block, written = s[o_num_written + block], flight = k_NUM_FLIGHTS ? s[o_filler + block] : -1;
    if (flight != -1) {
      if (flight < 0 || flight >= k_NUM_FLIGHTS) return 1;
      source = s[o_uses + flight];
      written = s[o_brings + flight];
      if (source < 0 || source >= blocks) return 1;
    }
    if (written < 0 || written > known || differ(s + o_memory + source * k_BLOCK_SIZE, tokens, written)) return 1;
  }
  return differ(position, s + o_position + seq * blocks, blocks);
}
static int is_miscounted(const cell *s) {
  int blocks = k_NUM_BLOCKS, references[k_NUM_BLOCKS], holders[k_NUM_BLOCKS], places[k_NUM_BLOCKS], lengths[2][4] = {{0}};
  for (int b = 0; b < blocks; b++) references[b] = 0;
  for (int q = 0; q < k_NUM_SEQS; q++) if (is_miscounted_table(s, q, references, holders, places)) return 1;
  for (int b = 0; b < blocks; b++) {
    int status = s[o_status + b], num_uses = 0, num_fills = 0, filler = -1;
    for (int f = 0; f < k_NUM_FLIGHTS; f++) {
      num_uses += s[o_uses + f] == b;
      if (s[o_fills + f] == b) { num_fills++; filler = f; }
    }
    if (references[b] != s[o_refcount + b]) return 1;
    if (num_uses != s[o_pins + b] || num_fills > 1 || filler != s[o_filler + b]) return 1;
    if ((status == 1) != (references[b] > 0 || num_uses || num_fills)) return 1;
    if (status < 0 || status > 3) return 1;
    lengths[b >= k_NUM_GPU_BLOCKS][status]++;
  }
  for (int pool = 0; pool < 2; pool++)
    for (int status = 0; status < 4; status++) if (lengths[pool][status] != s[o_count + 4 * pool + status]) return 1;
  return 0;
}
