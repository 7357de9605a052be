/* The ghosts of a state, made anew: `enumerations.py` says why, and makes the same ones. */
static void enumerate_ghosts(cell *s) {
  int blocks = k_NUM_BLOCKS, ranks = k_NUM_RANKS, lengths[2][4] = {{0}};
  memset(s + o_holder, 0, sizeof(cell) * blocks * ranks);
  memset(s + o_rank, 0, sizeof(cell) * blocks * k_NUM_SEQS);
  memset(s + o_pinner, 0, sizeof(cell) * blocks * ranks);
  memset(s + o_pin_rank, 0, sizeof(cell) * k_NUM_FLIGHTS);
  memset(s + o_member, 0, sizeof(cell) * 8 * ranks);
  for (int b = 0; b < blocks; b++) {
    int num_holders = 0, num_users = 0, status = s[o_status + b];
    for (int q = 0; q < k_NUM_SEQS; q++) if (s[o_position + q * blocks + b] != k_NONE) {
      s[o_rank + b * k_NUM_SEQS + q] = num_holders;
      s[o_holder + b * ranks + num_holders++] = q;
    }
    for (int f = 0; f < k_NUM_FLIGHTS; f++) if (s[o_uses + f] == b) {
      s[o_pin_rank + f] = num_users;
      s[o_pinner + b * ranks + num_users++] = f;
    }
    s[o_place + b] = 0;
    if (status < k_FREE || status > k_RESERVED) continue;
    int pool = b < k_NUM_GPU_BLOCKS ? k_GPU : k_HOST;
    s[o_place + b] = lengths[pool][status];
    s[o_member + (pool * 4 + status) * ranks + lengths[pool][status]++] = b;
  }
}
